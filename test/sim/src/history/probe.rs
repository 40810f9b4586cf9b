//! Small writes where a stop tore stripes, before the resync gets there.
//!
//! The resync makes all parity right in the end, so a write that changed parity without making it
//! right would leave no trace. That is why parity is looked at here while the resync stands still:
//! what was written since the stop must be protected once it is answered.
//!
//! And reads there while a member is slow: nobody may reconstruct from such parity what the member
//! will say in the end.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Blocks that are looked at, and of those that are torn, how many are written.
const LOOKS: usize = 300;
const WRITES: usize = 12;
/// Turns until a member counts as slow, and how many for reads that could go around it.
const SLOW_TURNS: usize = 400;
const READ_TURNS: usize = 10;

impl History {
    /// Writes blocks whose parity is wrong, and checks that of what was written.
    pub(super) fn probe(&mut self, world: &mut World) {
        if self.geometry.parity() == 0 || !self.torn {
            return;
        }
        self.calm(world);
        self.run_until(world, |history, _| {
            history.started && history.given.is_none()
        });
        self.give(world, Given::Other, Command::Passes { run: false });
        self.run_until(world, |history, _| history.given.is_none());
        if self.is_sound(world) && self.random.happens(700) {
            self.read_from_the_slow(world);
        }
        if self.is_sound(world) {
            let mut written = Vec::new();
            for _ in 0..LOOKS {
                let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                    break;
                };
                if written.len() < WRITES && !self.parity_is_right(world, block) {
                    while !self.client.submit(asked.clone(), world) {
                        self.turn(world, 20);
                    }
                    written.push(block);
                }
            }
            self.run_until(world, |history, _| history.client.pending() == 0);
            for block in written {
                self.outcome.probed += 1;
                let right = self.parity_is_right(world, block);
                assert!(right, "block {block} was written and has no parity");
            }
        }
        self.give(world, Given::Other, Command::Passes { run: true });
    }

    /// Reads blocks whose parity is wrong from a member that does not answer for a while.
    fn read_from_the_slow(&mut self, world: &mut World) {
        let mut torn = Vec::new();
        for _ in 0..LOOKS {
            let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                return;
            };
            if !self.parity_is_right(world, block) {
                torn.push((self.client.read_again(&asked), self.holder(world, block)));
            }
        }
        let Some((first, position)) = torn.pop() else {
            return;
        };
        torn.retain(|(_, holder)| *holder == position);
        let drive = world.shards[world.home].map().members[position].drive;
        let drive = drive.expect("every member is in sync").at();
        self.run_until(world, |history, _| history.client.pending() == 0);
        let spells = |world: &World| -> u64 {
            let spells = |shard: &Shard| shard.counters().slow_spells;
            world.shards.iter().map(spells).sum()
        };
        let before = spells(world);
        world.outside.drives[drive].hung = true;
        let _ = self.client.submit(first.clone(), world);
        for _ in 0..SLOW_TURNS {
            if spells(world) > before {
                break;
            }
            self.turn(world, 20);
        }
        torn.push((first, position));
        for (asked, _) in torn {
            let _ = self.client.submit(asked, world);
        }
        for _ in 0..READ_TURNS {
            self.turn(world, 20);
        }
        world.outside.drives[drive].hung = false;
        self.run_until(world, |history, _| history.client.pending() == 0);
        self.outcome.read_torn += 1;
    }

    /// Whether the parity of the lane of a block of the array agrees with its data.
    pub(super) fn parity_is_right(&self, world: &World, block: u64) -> bool {
        let map = world.shards[world.home].map();
        let (stripe, start) = self.geometry.locate(block);
        let lane = u64::from(start % self.geometry.chunk_blocks());
        let first = self.first_block() + self.geometry.member_block(stripe);
        let content = |role: usize| {
            let (_, member) = map.member(stripe, Role::from_at(role));
            let drive = member.drive.expect("every member is in sync").at();
            world.outside.drives[drive].block(first + lane)
        };
        let data = self.geometry.data();
        (0..self.geometry.parity()).all(|parity| {
            let mut expected = vec![0; bytes_usize(self.block_bytes())];
            for column in 0..data {
                let factor = model::field::coefficient(parity, column);
                model::field::add_scaled(&mut expected, factor, &content(column));
            }
            expected == content(data + parity)
        })
    }
}
