//! Guests ask without a pause while the array fills a new drive, makes its parity again or compares
//! it: that comes to its end all the same, and no request waits for ever while others go past it.

use array::{PassStatus, ScrubCourse, ScrubOrder, ScrubState};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// So often of a thousand times.
const OFTEN: u64 = 100;
/// Requests under way at any time, if the guests have as many to ask for.
const BUSY: usize = 8;
/// Attempts to ask for something in a turn, and its events: fewer than a request takes.
const ASKS: usize = 10;
const EVENTS: u64 = 3;
/// Turns in which the work may stand still; 9,397 were seen in 387 times.
const STILL_TURNS: usize = 60_000;
/// Requests that may begin after another one before that is answered; 178 were seen.
const OVERTAKING: u64 = 1000;

impl History {
    /// From an array in order to one in order.
    pub(super) fn ask_without_a_pause(&mut self, world: &mut World) {
        let able = self.geometry.parity() > 0 && !self.forced && !self.client.disks.is_empty();
        if !able || !self.random.happens(OFTEN) {
            return;
        }
        self.calm(world);
        self.await_commands(world);
        self.end_copying(world);
        self.await_commands(world);
        self.begin_work(world);
        self.await_commands(world);
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let (mut still, mut overtaking) = (0, 0);
        let mut progress = progress(world);
        while progress.is_some() {
            for _ in 0..ASKS {
                if self.client.pending() < BUSY {
                    self.ask(world, stripe_blocks);
                }
            }
            self.turn(world, EVENTS);
            let now = self::progress(world);
            still = if now == progress { still + 1 } else { 0 };
            progress = now;
            assert!(still < STILL_TURNS, "it stands still: {progress:?}");
            overtaking = overtaking.max(self.client.overtaking());
            assert!(overtaking < OVERTAKING, "a request waits for ever");
        }
        self.outcome.loaded.0 += 1;
        self.outcome.loaded.1 = self.outcome.loaded.1.max(overtaking);
        self.settle(world);
    }

    /// Something that goes over the whole array.
    fn begin_work(&mut self, world: &mut World) {
        match self.random.below(3) {
            0 => self.resync_all(world),
            1 => {
                let position = self.random.position(self.geometry.members());
                let drive = end::position_drive(world, position);
                world.outside.drives[drive].hurt = true;
                let member = MemberIndex::from_at(position);
                self.give(world, Given::Other, Command::Fail { member });
                self.await_commands(world);
                self.put_in(world, position);
            }
            _ => {
                let order = Command::Scrub(ScrubOrder::StartOver);
                self.give(world, Given::Scrub, order);
            }
        }
    }
}

/// How far it is, while it goes on.
fn progress(world: &World) -> Option<(Option<PassStatus>, StripeIndex)> {
    let home = &world.shards[world.home];
    let scrub = home.scrub_status().expect("home");
    // One that the schedule asked for takes days.
    let compares = scrub.record.state == ScrubState::Running && scrub.course != ScrubCourse::Failed;
    let pass = home.pass_status();
    (pass.is_some() || compares).then_some((pass, scrub.record.next))
}
