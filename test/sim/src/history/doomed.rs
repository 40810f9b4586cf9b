//! More fails than the array survives. Everything is still answered, and with an error or well; a
//! read that goes well brings what some guest has written to each block and the model allows, as
//! ever: nothing of another block or volume, no mix, nothing made of parity that may be torn. But
//! one: what a member held that leaves before the resync has been there may be anything, which is
//! the write hole of `docs/promises.md`.

use std::collections::BTreeSet;

use array::ArrayMap;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Requests after it has come to that.
const ASKED: u64 = 60;
/// Of a thousand histories whose drives all fail, so many have them fail in one way.
const ALIKE: u64 = 300;
/// Blocks of each drive that cannot be read, at most.
const BAD: u64 = 400;

/// What is known of the write hole.
#[derive(Debug, Default)]
pub(super) struct Hole {
    /// By reactor: the map when it was looked at last.
    maps: Vec<Arc<ArrayMap>>,
    /// Blocks that may have been anything once.
    blocks: BTreeSet<u64>,
}

impl History {
    /// The end of a history.
    pub(super) fn doom(&mut self, mut world: World) {
        self.run_until(&mut world, |history, _| history.started);
        self.client.doomed = true;
        self.note_hole(&world);
        self.open_torn_mirrors(&world);
        match self.random.below(3) {
            0 => self.fail_all(&mut world),
            1 => self.lose_too_many(&mut world),
            _ => self.spoil_all(&mut world),
        }
        self.ask_in_vain(&mut world);
        self.await_answers(&mut world);
        self.read_in_pieces(&mut world);
        if self.random.happens(500) {
            // What waits goes on, and what was given up while it had begun is carried out yet.
            self.spell = None;
            for drive in &mut world.outside.drives {
                drive.heal();
            }
            self.ask_in_vain(&mut world);
            self.await_answers(&mut world);
            self.read_in_pieces(&mut world);
        }
        self.outcome.beyond = self.client.beyond;
        drop(world.die());
    }

    /// Copies that no resync has made equal: after one was read, the other may be, because the
    /// first cannot be read any more.
    fn open_torn_mirrors(&mut self, world: &World) {
        if self.geometry.data() > 1 || self.geometry.parity() == 0 {
            return;
        }
        for stripe in (0..self.geometry.stripes()).map(StripeIndex) {
            let is_trusted = |shard: &Shard| shard.map().parity_trusted(stripe, false);
            if !world.shards.iter().all(is_trusted) {
                self.open_hole(stripe, RoleSet::one(Role(0)));
            }
        }
    }

    /// Blocks of members that are out by now may be anything where parity was not trusted a moment
    /// ago: it may be torn, and they are made of it.
    pub(super) fn note_hole(&mut self, world: &World) {
        if !self.client.doomed {
            return;
        }
        let maps = world.shards.iter().map(|shard| Arc::clone(shard.map()));
        let maps: Vec<Arc<ArrayMap>> = maps.collect();
        let before = std::mem::replace(&mut self.hole.maps, maps);
        for at in 0..self.hole.maps.len() {
            let now = Arc::clone(&self.hole.maps[at]);
            let before = before.get(at).unwrap_or(&now);
            if Arc::ptr_eq(before, &now) {
                continue;
            }
            for stripe in (0..self.geometry.stripes()).map(StripeIndex) {
                if !(before.parity_trusted(stripe, false) && now.parity_trusted(stripe, false)) {
                    self.open_hole(stripe, now.lost(stripe, false));
                }
            }
        }
    }

    /// What members with these roles held of a stripe may be anything, if it was not before.
    fn open_hole(&mut self, stripe: StripeIndex, lost: RoleSet) {
        let chunk = u64::from(self.geometry.chunk_blocks());
        let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
        for role in lost {
            let is_copy = self.geometry.data() == 1;
            if role.at() >= self.geometry.data() && !is_copy {
                continue;
            }
            let first = base
                + if is_copy {
                    0
                } else {
                    bytes_u64(role.at()) * chunk
                };
            for block in first..first + chunk {
                if self.hole.blocks.insert(block) {
                    self.client.may_be_anything(block);
                }
            }
        }
    }

    /// All drives fail, one after another: all in one way, or each in its own.
    fn fail_all(&mut self, world: &mut World) {
        let is_alike = self.random.happens(ALIKE);
        let mut failing = self.draw_failing();
        for drive in &mut world.outside.drives {
            if !is_alike {
                failing = self.draw_failing();
            }
            let after = self.random.below(30);
            drive.failing = Some(Failing { after, ..failing });
        }
    }

    /// A way in which a drive fails for good.
    fn draw_failing(&mut self) -> Failing {
        let what = [
            Failure::All,
            Failure::Writes,
            Failure::Flushes,
            Failure::WritesBelow(self.layout.data.offset),
        ][self.random.position(4)];
        Failing {
            what,
            after: 0,
            count: u64::MAX,
            status: disks::ERRORS[self.random.position(disks::ERRORS.len())],
        }
    }

    /// More members of a group are gone than it has parity, while the others are well.
    fn lose_too_many(&mut self, world: &mut World) {
        let group = self.geometry.group_members();
        let first = self.random.position(self.geometry.groups()) * group;
        let mut stay: Vec<usize> = (first..first + group).collect();
        for lost in 0..group {
            if lost > self.geometry.parity() && self.random.happens(600) {
                break;
            }
            let at = stay.swap_remove(self.random.position(stay.len()));
            if let Some(drive) = world.shards[world.home].map().members[at].drive {
                world.outside.drives[drive.at()].gone = true;
            }
            // Writes are under way between the first and the last of them.
            if let Some(asked) = self.draw_small() {
                let _ = self.client.submit(asked, world);
            }
            let steps = self.random.below(60);
            self.turn(world, steps);
        }
    }

    /// Many blocks of all drives cannot be read, most of them in rows with others.
    fn spoil_all(&mut self, world: &mut World) {
        let first = self.first_block();
        let rows = self.layout.data.length / self.geometry.block_size().bytes();
        let most = self.random.below(BAD);
        let bad: Vec<u64> = (0..most).map(|_| first + self.random.below(rows)).collect();
        for drive in &mut world.outside.drives {
            drive.hurt = true;
            let often = 300 + self.random.below(700);
            let its = bad.iter().filter(|_| self.random.happens(often));
            drive.bad.extend(its);
        }
    }

    /// Guests go on.
    fn ask_in_vain(&mut self, world: &mut World) {
        for _ in 0..ASKED {
            if let Some(asked) = self.draw_small() {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
    }

    fn draw_small(&mut self) -> Option<Asked> {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        self.client.draw(&mut self.random, stripe_blocks)
    }

    fn await_answers(&mut self, world: &mut World) {
        self.calm(world);
        self.run_until(world, |history, world| {
            // A command waits for as long as the array does.
            let holds = world.shards[world.home].map().is_holding();
            history.client.pending() == 0 && (history.given.is_none() || holds)
        });
    }

    /// Reads everything; in pieces so small that not all meet what cannot be read.
    fn read_in_pieces(&mut self, world: &mut World) {
        let blocks = u64::from(self.geometry.chunk_blocks()).min(8);
        for asked in self.client.read_all_by(blocks) {
            while !self.client.submit(asked.clone(), world) {
                self.turn(world, 20);
            }
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
    }
}
