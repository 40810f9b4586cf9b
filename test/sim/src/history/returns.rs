//! Members that come back with what they had when they left.

use array::assembly::may_return;
use array::planted::{self, Fault};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Rounds in which idle regions have become clean, as a rule.
const IDLE_ROUNDS: u64 = 60;

impl History {
    /// Members of a quiet array leave, something is written, and they come back: they lack little,
    /// and the rest of them counts at once. The array may be stopped at any point of it.
    pub(super) fn absence(&mut self, world: &mut World) {
        // Parity of a new array may be wrong everywhere, and yet nothing is torn.
        let is_new = self.outcome.crashes == 0;
        let may = (!self.torn || is_new) && self.given.is_none();
        // A rebuild would read what is rotten.
        if !may || !self.rot.is_empty() || !world.shards[world.home].map().is_whole() {
            return;
        }
        // A return waits for the window that is open, and so for every reactor.
        world.outside.starved = None;
        self.idle(world);
        // The same place is met before, meanwhile and after.
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let spot = self.client.draw(&mut self.random, stripe_blocks);
        self.write_at(world, spot.as_ref());
        let mut out = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            out.extend(self.pull(world));
            let writes = self.random.below(6);
            self.write_some(world, writes);
        }
        self.await_exclusions(world, &out);
        self.write_at(world, spot.as_ref());
        if self.random.happens(600) {
            self.idle(world);
        }
        let writes = self.random.below(4);
        self.write_some(world, writes);
        match self.random.below(10) {
            // The next life brings them back.
            0 => {
                self.power_is_due = self.random.happens(500);
                return;
            }
            1 => return self.die_writing(world),
            _ => {}
        }
        let slow = self.random.position(world.shards.len());
        world.outside.mail_is_slow[slow] |= slow != world.home && self.random.happens(500);
        for position in out {
            self.come_back(world, position);
        }
        self.write_at(world, spot.as_ref());
        if self.random.happens(300) {
            // As soon as nothing is missing any more.
            for _ in 0..100 {
                if world.shards[world.home].map().is_whole() {
                    break;
                }
                self.turn(world, 40);
            }
            self.power_is_due = true;
        }
    }

    fn await_exclusions(&mut self, world: &mut World, out: &[usize]) {
        for _ in 0..40 {
            let map = world.shards[world.home].map();
            if (out.iter()).all(|position| map.members[*position].state == MapState::Lost) {
                return;
            }
            self.write_some(world, 1);
            self.turn(world, 40);
        }
    }

    /// Guests write while the member comes back.
    fn come_back(&mut self, world: &mut World, position: usize) {
        let lost = world.shards[world.home].map().members[position].state == MapState::Lost;
        if lost && self.given.is_none() && self.return_one(world, position) {
            let writes = self.random.below(8);
            self.write_some(world, writes);
            // A drive may hang, or a reactor starve, for longer than this.
            self.wait(world, |history, _| history.given.is_none());
        }
        let writes = self.random.below(4);
        self.write_some(world, writes);
    }

    /// Nothing is written for long, and then the end comes in the middle of the first write.
    pub(super) fn die_writing(&mut self, world: &mut World) {
        if !self.is_soundly_degraded(world) || self.geometry.parity() == 0 || self.torn {
            return;
        }
        self.calm(world);
        self.run_until(world, |history, world| {
            let present = world.shards.iter().all(Shard::is_by_present_members);
            history.started && present && history.client.pending() == 0 && history.is_unchanging()
        });
        if let Some(flush) = self.client.flush() {
            let _ = self.client.submit(flush, world);
            self.run_until(world, |history, _| history.client.pending() == 0);
        }
        self.idle(world);
        // The log is written by who owns the stripe, the region map by the home, which hears late.
        let members = &world.shards[world.home].map().members;
        let lost = members
            .iter()
            .position(|member| member.state == MapState::Lost);
        let home = world.home;
        let asked = self.draw_where(world, |holder, owner| Some(holder) == lost && owner != home);
        if let Some((asked, owner)) = asked {
            world.outside.mail_is_slow[home] = self.random.happens(800);
            let _ = self.client.submit_on(asked, world, owner);
        } else if let Some((asked, _)) = self.client.draw_block(&mut self.random) {
            let _ = self.client.submit(asked, world);
        }
        self.client.advance(world);
        if self.random.happens(300) {
            let steps = self.random.below(150);
            (0..steps).for_each(|_| world.step());
        } else {
            // What is written first is durable, and what depends on it has not begun.
            self.step_until(world, true);
            self.step_until(world, false);
        }
        self.power_is_due = true;
        self.dies_at_once = self.is_soundly_degraded(world);
    }

    /// Goes on until some metadata is in doubt, or none is.
    fn step_until(&mut self, world: &mut World, in_doubt: bool) {
        let end = self.layout.data.offset;
        for _ in 0..500 {
            let drives = &world.outside.drives;
            if drives.iter().any(|drive| drive.is_in_doubt_below(end)) == in_doubt {
                return;
            }
            world.step();
        }
    }

    fn write_at(&mut self, world: &mut World, spot: Option<&Asked>) {
        if let Some(spot) = spot {
            let asked = self.client.write_again(spot);
            let _ = self.client.submit(asked, world);
            self.turn(world, 40);
        }
    }

    /// A member's drive goes away, or is called failed; its place.
    fn pull(&mut self, world: &mut World) -> Option<usize> {
        let position = self.random.position(self.geometry.members());
        if self.given.is_some() || self.out(world, position) >= self.geometry.parity() {
            return None;
        }
        let drive = world.shards[world.home].map().members[position].drive?.at();
        world.outside.drives[drive].hurt = true;
        if self.random.happens(300) {
            let member = MemberIndex::from_at(position);
            self.give(world, Given::Fail, Command::Fail { member });
        } else {
            world.outside.drives[drive].gone = true;
        }
        Some(position)
    }

    pub(super) fn write_some(&mut self, world: &mut World, writes: u64) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..writes {
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            let steps = self.random.below(40);
            self.turn(world, steps);
        }
    }

    /// Nothing new is asked, for long enough.
    pub(super) fn idle(&mut self, world: &mut World) {
        for _ in 0..IDLE_ROUNDS {
            self.turn(world, 40);
        }
    }

    /// Brings back the drive that was the lost member at `position`, with its cache or without;
    /// whether there was such a drive and it may return.
    pub(super) fn return_one(&mut self, world: &mut World, position: usize) -> bool {
        let coordinator = world.shards[world.home].coordinator().expect("home");
        let config = coordinator.config().clone();
        let record = &config.members[position];
        let is_it = |index: &usize| {
            let drive = &world.outside.drives[*index];
            disks::owner(drive).is_some_and(|superblock| superblock.member_uuid == record.uuid)
        };
        let index = (0..world.outside.drives.len()).find(is_it);
        // A drive is opened anew only when what it was asked before has landed, and asked again
        // only when every reactor knows that it was out.
        let landed = |index: &usize| {
            let drive = &world.outside.drives[*index];
            drive.pending() == 0 && (!drive.is_locked() || planted::is(Fault::LockedDriveReturns))
        };
        let Some(index) = index
            .filter(landed)
            .filter(|_| self.has_left(world, position))
        else {
            return false;
        };
        let member = MemberIndex::from_at(position);
        let superblock = self.superblock(member, record.uuid);
        let drive = &mut world.outside.drives[index];
        drive.heal();
        if self.random.happens(400) {
            drive.power_fails(&mut self.random);
        }
        let found = disks::read(index, drive).expect("it answers");
        if may_return(&found, &superblock, &config).is_err() {
            self.outcome.refused += 1;
            return false;
        }
        disks::erase(drive, &superblock);
        let command = Command::Return {
            member,
            place: crate::world::place_of(&self.layout, &world.outside.drives, index),
            uuid: record.uuid,
            identity: Default::default(),
        };
        self.give(world, Given::Replace, command);
        true
    }
}
