//! A drive hangs for the first time, with reads under way at it, in an array of which all reads are
//! hedged: they are answered while it still hangs, but for those beyond the budget.

use array::format::HedgedReads;

use super::end::check_budget;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Reads at once.
const READS: u64 = 14;
/// Blocks that are looked at for them.
const LOOKS: usize = 200;
/// Turns until all are answered. A turn polls a reactor twice at least, and a member is slow after
/// 30 polls.
const TURNS: usize = 300;
/// And until a member is out that answers nothing.
const LEAVING_TURNS: usize = 2000;

impl History {
    /// See the module.
    pub(super) fn hang_among_reads(&mut self, world: &mut World) {
        if self.geometry.parity() == 0 || self.torn || self.is_spelled || !self.started {
            return;
        }
        self.calm(world);
        self.run_until(world, |history, _| {
            history.started && history.given.is_none()
        });
        let mut options = Self::options(world);
        if options.hedged_reads == HedgedReads::Auto {
            options.hedged_reads = HedgedReads::Always;
            self.give_options(world, options);
        }
        self.run_until(world, |history, _| {
            let changing = history.given.is_some() || history.change.is_some();
            !changing && history.client.pending() == 0
        });
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let sound = map.is_optimal() && self.is_sound(world) && !self.client.doomed;
        if !sound || self.out(world, position) >= self.spare_parity(position) {
            return;
        }
        let mut reads = Vec::new();
        let most = 1 + self.random.below(READS);
        for _ in 0..LOOKS {
            let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                return;
            };
            if self.holder(world, block) == position && bytes_u64(reads.len()) < most {
                reads.push(self.client.read_again(&asked));
            }
        }
        let drive = map.members[position].drive.expect("it is in sync").at();
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].hung = true;
        let before = hedges(world);
        for asked in reads {
            let _ = self.client.submit(asked, world);
        }
        let mut turns = 0;
        while self.client.pending() > 0 && turns < TURNS {
            self.turn(world, 20);
            turns += 1;
        }
        let (given_up, refused) = hedges(world);
        let refused = refused - before.1;
        let waiting = self.client.pending();
        assert!(
            bytes_u64(waiting) <= refused,
            "{waiting} reads wait for a drive that hangs, {refused} may"
        );
        self.outcome.hedged.0 += given_up - before.0;
        self.outcome.hedged.1 += refused;
        check_budget(world);
        if given_up > before.0 && self.random.happens(500) {
            self.await_leaving(world, position);
        }
        world.outside.drives[drive].hung = false;
        self.run_until(world, |history, _| history.client.pending() == 0);
    }

    /// Nobody waits for the member, and it is left out all the same because it has not answered.
    fn await_leaving(&mut self, world: &mut World, position: usize) {
        for _ in 0..LEAVING_TURNS {
            if self.has_left(world, position) {
                return;
            }
            self.turn(world, 20);
        }
        panic!("member {position} hangs, and stays");
    }
}

/// Reads that were given up, and that may not be.
fn hedges(world: &World) -> (u64, u64) {
    let counters = || world.shards.iter().map(Shard::counters);
    let given_up = counters().map(|counters| counters.given_up_reads).sum();
    let refused =
        counters().map(|counters| counters.hedges_over_budget + counters.unbuffered_reads);
    (given_up, refused.sum())
}
