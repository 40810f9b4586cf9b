//! The last lives, in which nothing fails: a clean stop, and copies of members that come into the
//! places of the originals. They are told apart by their records, and not used.

use array::format::{ExclusionCause, MemberRecord};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// A member, and its drive.
#[derive(Clone, Copy, Debug)]
struct Place {
    position: usize,
    drive: usize,
}

/// When a copy is made, and how the life ends before it comes into the place of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// While the array ran, which was stopped cleanly.
    RunningThenStopped,
    /// While the array ran, which was killed, but not at once.
    RunningThenKilled,
    /// While it was stopped; then it was started and killed.
    Stopped,
}

impl History {
    /// From an array in order to the end of the history.
    pub(super) fn last_lives(&mut self, mut world: World) {
        // One that lagged may be left out at any time.
        if !world.shards[world.home].map().is_optimal() {
            self.settle(&mut world);
        }
        let place = self.choose(&world);
        let mut made = [
            Made::RunningThenStopped,
            Made::RunningThenKilled,
            Made::Stopped,
        ][self.random.position(3)];
        if place.is_none() || self.client.disks.is_empty() {
            // Where nothing is written, no copy is old.
            made = Made::Stopped;
        }
        let mut copy = place.map(|place| world.outside.drives[place.drive].copy());
        if place.is_some() {
            let writes = self.random.below(20);
            self.write_some(&mut world, writes);
            if made == Made::RunningThenKilled {
                self.write_for_long(&mut world);
            }
            self.run_until(&mut world, |history, _| history.client.pending() == 0);
        }
        let place = place.filter(|_| world.shards[world.home].map().is_whole());
        let mut drives = if made == Made::RunningThenKilled {
            self.kill(world)
        } else {
            self.stop(world)
        };
        if made == Made::Stopped {
            copy = place.map(|place| drives[place.drive].copy());
            drives = self.one_more_life(drives);
        }
        if let (Some(place), Some(copy)) = (place, copy) {
            drives[place.drive] = copy;
            // It is to be left out.
            drives[place.drive].hurt = true;
            self.tell_apart(drives, place);
        }
    }

    /// Guests write until the record has been renewed.
    fn write_for_long(&mut self, world: &mut World) {
        // Time goes fast.
        world.outside.step_nanoseconds = 20_000_000;
        let update = |world: &World| {
            let coordinator = world.shards[world.home].coordinator();
            coordinator.expect("home").config().update.0
        };
        let before = update(world);
        for _ in 0..1000 {
            if update(world) >= before + 2 {
                return;
            }
            self.write_some(world, 1);
            self.turn(world, 20);
        }
        panic!("the record is never renewed");
    }

    fn stop(&mut self, mut world: World) -> Vec<SimDrive> {
        self.give(&mut world, Given::Stop, Command::Stop);
        self.run_until(&mut world, |history, _| history.given.is_none());
        self.client.stopped_cleanly();
        let mut drives = world.die();
        for drive in &mut drives {
            drive.power_fails(&mut self.random);
        }
        let _ = self.client.stop(true);
        self.leave_begun(true);
        drives
    }

    fn kill(&mut self, world: World) -> Vec<SimDrive> {
        let mut drives = world.die();
        for drive in &mut drives {
            drive.process_dies(false, &mut self.random);
        }
        let _ = self.client.stop(false);
        self.leave_begun(false);
        drives
    }

    /// The place of a member of an array in order that can do without it; often none.
    fn choose(&mut self, world: &World) -> Option<Place> {
        if self.geometry.parity() == 0 || !self.random.happens(600) {
            return None;
        }
        let position = self.random.position(self.geometry.members());
        let member = &world.shards[world.home].map().members[position];
        let drive = member.drive.expect("optimal").at();
        Some(Place { position, drive })
    }

    /// What was stopped cleanly is in order; it ends by a kill.
    fn one_more_life(&mut self, drives: Vec<SimDrive>) -> Vec<SimDrive> {
        let mut world = self.restart(drives);
        self.run_until(&mut world, |history, _| history.started);
        let config = world.shards[world.home].coordinator().expect("home");
        let config = config.config();
        let stripes = self.geometry.stripes();
        assert!(config.resynced_until.0 >= stripes, "stopped cleanly");
        if config.members.iter().any(was_left_behind) {
            self.settle(&mut world);
        }
        assert!(
            world.shards[world.home].map().is_optimal(),
            "stopped cleanly"
        );
        self.check(&mut world);
        let pending = |drive: &SimDrive| drive.pending();
        assert!(
            world
                .outside
                .drives
                .iter()
                .map(pending)
                .all(|pending| pending == 0)
        );
        self.kill(world)
    }

    /// An engine that finds a copy in the place of a member leaves it out, and has everything.
    fn tell_apart(&mut self, drives: Vec<SimDrive>, place: Place) {
        let mut world = self.restart(drives);
        self.run_until(&mut world, |history, _| history.started);
        let member = &world.shards[world.home].map().members[place.position];
        assert_eq!(member.state, MapState::Lost, "a copy is not the member");
        self.settle(&mut world);
        self.check(&mut world);
        self.outcome.copies += 1;
        drop(world.die());
    }
}

/// Whether a member was left out because it had lagged, when it did no more.
fn was_left_behind(member: &MemberRecord) -> bool {
    let cause = match member.state {
        MemberState::Excluded { cause, .. } => Some(cause),
        _ => None,
    };
    cause == Some(ExclusionCause::TooSlow)
}
