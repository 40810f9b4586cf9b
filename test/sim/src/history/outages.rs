//! The engine is killed while drives hold much that is not flushed, and some of them lose it.

use super::stop::{End, Outage, STEPS_OF_A_FLUSH};
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// The process is killed when members hold much that is not flushed, and some lose it before
    /// the next engine starts, or while it does.
    pub(super) fn die_with_full_caches(&mut self, mut world: World) -> Vec<SimDrive> {
        self.write_into_caches(&mut world);
        self.dies_at_once = false;
        let outages = [
            Outage::Away,
            Outage::FewAway,
            Outage::FewAway,
            Outage::Later,
            Outage::Flush,
            Outage::Flush,
        ];
        // What has rotted needs all members.
        let first = if self.rot.is_empty() { 0 } else { 3 };
        let mut outage = outages[first + self.random.position(outages.len() - first)];
        if outage == Outage::Flush {
            self.begin_a_flush(&mut world);
        }
        // What they had flushed, or not, is known only when no flush is under way.
        let flushes = |world: &World| world.outside.drives.iter().any(SimDrive::is_flushing);
        for _ in 0..STEPS_OF_A_FLUSH {
            if outage != Outage::FewAway || !flushes(&world) {
                break;
            }
            world.step();
        }
        if !self.is_sound(&world) || world.is_in_trouble() {
            // One that lags was left out just then, or its record is being written. What was begun
            // before that is not logged: with what the others hold it would be lost.
            let mut drives = self.die_some_steps_later(world);
            self.leave_what_was_lost(&mut drives, false);
            return drives;
        }
        if outage == Outage::FewAway && flushes(&world) {
            outage = Outage::Away;
        }
        // After the last turn: each finds all parity trusted, and takes it back.
        self.torn = true;
        let mut drives = self.end_by(world, End::Killed(Some(outage)));
        let others_know = outage == Outage::FewAway && self.knows_who_lacks(&mut drives);
        self.next_start.is_undisturbed = others_know;
        self.client.stop(!others_know);
        self.again.clear();
        drives
    }

    /// The process is killed when a drive has lost what it held and the engine has heard of it,
    /// before or after everybody knows that this drive is out.
    pub(super) fn die_with_a_loss(&mut self, mut world: World) -> Vec<SimDrive> {
        self.write_into_caches(&mut world);
        if self.random.happens(500) {
            self.lose_power_of_one(world)
        } else {
            self.fail_the_flush_of_one(world)
        }
    }

    /// A flush has failed, and taken along what its drive held.
    fn fail_the_flush_of_one(&mut self, mut world: World) -> Vec<SimDrive> {
        let failing = self.next_flush_fails(&mut world);
        if let Some(drive) = failing {
            // What it says decides whether it is asked if it is there.
            let said = [Status::Media, Status::Unsupported][self.random.position(2)];
            let failing = world.outside.drives[drive].failing.as_mut();
            failing.expect("it is to fail").status = said;
        }
        self.begin_a_flush(&mut world);
        let has_failed = |world: &World| {
            let drive = failing.and_then(|drive| world.outside.drives[drive].failing);
            drive.is_none_or(|failing| failing.count == 0)
        };
        for _ in 0..STEPS_OF_A_FLUSH {
            if has_failed(&world) {
                break;
            }
            self.turn(&mut world, 1);
        }
        let lost = failing.filter(|_| has_failed(&world));
        let mut drives = self.die_some_steps_later(world);
        if let Some(drive) = failing {
            // Or it fails in the next life, which may not lose a member.
            drives[drive].failing = drives[drive].failing.filter(|failing| failing.count == 0);
        }
        if let Some(lost) = lost {
            drives[lost].loses_cache(&mut self.random);
            self.outcome.caches_lost += 1;
        }
        self.leave_what_was_lost(&mut drives, lost.is_some());
        drives
    }

    /// A drive has lost its power, and answered that it is gone. It is back when the next engine
    /// starts, and looks as it did.
    fn lose_power_of_one(&mut self, mut world: World) -> Vec<SimDrive> {
        let position = self.random.position(self.geometry.members());
        let may = self.is_sound(&world) && self.out(&world, position) < self.spare_parity(position);
        let gone = may.then(|| end::position_drive(&world, position));
        let mut is_heard = false;
        if let Some(gone) = gone {
            let drive = &mut world.outside.drives[gone];
            (drive.gone, drive.hurt) = (true, true);
            for _ in 0..STEPS_OF_A_FLUSH {
                // What it was asked before comes back with that.
                let map = world.shards[world.home].map();
                let member = MemberIndex::from_at(position);
                let mut shards = world.shards.iter();
                let told = shards.any(|shard| shard.knows_of_gone(member));
                is_heard = told || map.members[position].state == MapState::Lost;
                if is_heard {
                    break;
                }
                self.turn(&mut world, 1);
            }
        }
        let mut drives = self.die_some_steps_later(world);
        if let Some(gone) = gone {
            drives[gone].gone = false;
            if is_heard {
                drives[gone].loses_cache(&mut self.random);
                self.outcome.caches_lost += 1;
            }
        }
        self.leave_what_was_lost(&mut drives, is_heard);
        drives
    }

    fn die_some_steps_later(&mut self, mut world: World) -> Vec<SimDrive> {
        let steps = self.random.below(30);
        (0..steps).for_each(|_| world.step());
        self.dies_at_once = false;
        self.torn = true;
        self.end_by(world, End::Killed(None))
    }

    /// Where the others know what one has lost, guests find all that was acknowledged.
    fn leave_what_was_lost(&mut self, drives: &mut [SimDrive], is_lost: bool) {
        // What becomes of the flush of one that has not let go is not known yet.
        let all_here = !drives.iter().any(SimDrive::is_locked);
        let others_know = is_lost && all_here && self.knows_who_lacks(drives);
        self.next_start.is_undisturbed = others_know;
        self.client.stop(!others_know);
        self.again.clear();
    }

    /// Drives of members, as many of each group as it can do without at most.
    pub(super) fn few_away(&mut self, world: &World, are: bool) -> Vec<usize> {
        let (group, parity) = (self.geometry.group_members(), self.geometry.parity());
        let mut few = Vec::new();
        for first in (0..self.geometry.members()).step_by(group).filter(|_| are) {
            let many = 1 + self.random.position(parity);
            let from = self.random.position(group);
            let positions = (from..from + many).map(|at| first + at % group);
            few.extend(positions.map(|position| end::position_drive(world, position)));
        }
        few
    }
}
