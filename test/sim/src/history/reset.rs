//! The process is killed while some of what it writes is on the log, because a member is out, and
//! the rest is not, because its rows lack parity only. Starts without one more member are killed
//! before their first record, and then the power fails. Memory had told of the rows that are not on
//! the log; by then those starts must have made them whole, or that member must count still.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn lose_memory_between_starts(&mut self, mut world: World) -> World {
        let logs = self.geometry.parity() > 1 && self.geometry.data() > 1;
        let may = logs && !self.client.disks.is_empty() && !self.forced;
        if !may || !self.random.happens(300) {
            return world;
        }
        self.give_mode(&mut world, WriteHole::Auto);
        self.await_commands(&mut world);
        self.give(&mut world, Given::Other, Command::Passes { run: false });
        self.await_commands(&mut world);
        let count = 1 + self.random.position(self.geometry.parity() - 1);
        self.fail_of_a_group(&mut world, count);
        self.leave_nothing_before(&mut world);
        for _ in 0..=self.random.below(3) {
            self.write_at_once(&mut world);
        }
        self.outcome.crashes += 1;
        self.torn = true;
        self.dies_at_once = false;
        self.next_start.is_ordinary = true;
        let drives = self.end_before_reset(world);
        self.client.stop(true);
        self.again.clear();
        let mut world = self.restart(drives);
        self.run_until(&mut world, |history, _| history.started);
        self.read_everything(&mut world);
        self.refill(&mut world);
        self.settle(&mut world);
        world
    }
}
