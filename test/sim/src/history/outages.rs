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
        if outage == Outage::FewAway && (flushes(&world) || !self.is_sound(&world)) {
            outage = Outage::Away;
        }
        // After the last turn: each finds all parity trusted, and takes it back.
        self.torn = true;
        let mut drives = self.end_by(world, End::Killed(Some(outage)));
        let others_know = outage == Outage::FewAway && self.knows_who_was_away(&mut drives);
        self.next_start.is_undisturbed = others_know;
        self.client.stop(!others_know);
        self.again.clear();
        drives
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
