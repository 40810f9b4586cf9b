//! A drive answers some requests and keeps the others for ever, as one does whose file system is
//! frozen, or that has lost a queue. It is left out all the same, and nobody waits for it.

use super::end::position_drive;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::drive::Keeps;

/// Requests under way at the most, so that the drive always has something that it answers.
const REQUESTS: usize = 12;
/// Turns until it keeps something, at the most.
const FIRST_TURNS: usize = 100;
/// Turns until it is out. A turn polls a reactor seven times, more or less, and what is kept for
/// 3,000 polls costs the member.
const LEAVING_TURNS: usize = 20_000;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn keep_some(&mut self, mut world: World) -> World {
        let may = !self.forced && !self.torn && self.random.happens(100);
        if !may || !self.become_sound(&mut world) {
            return world;
        }
        self.run_until(&mut world, |history, world| {
            let still = history.given.is_none() && history.change.is_none();
            still && history.client.pending() == 0 && world.is_quiet()
        });
        let position = self.random.position(self.geometry.members());
        let drive = position_drive(&world, position);
        let keeps = [Keeps::Reads, Keeps::Changes, Keeps::Changes][self.random.position(3)];
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].keeps = Some(keeps);
        for turn in 0..LEAVING_TURNS {
            let kept = world.outside.drives[drive].kept();
            if self.has_left(&world, position) || (kept == 0 && turn >= FIRST_TURNS) {
                break;
            }
            self.draw_up_to(&mut world, REQUESTS + kept);
            self.turn(&mut world, 20);
        }
        let kept = world.outside.drives[drive].kept();
        if self.has_left(&world, position) {
            self.outcome.kept += 1;
            // Reads into the memory of guests wait for as long as it keeps them.
            let may_wait = if keeps == Keeps::Reads { kept } else { 0 };
            self.run_until(&mut world, |history, _| {
                history.client.pending() <= may_wait
            });
        } else {
            assert!(
                kept == 0,
                "member {position} keeps {kept} requests, and stays"
            );
        }
        world.outside.drives[drive].keeps = None;
        self.answer_and_return(&mut world, position, drive);
        world
    }

    /// Guests ask as long as fewer than so many requests are under way.
    fn draw_up_to(&mut self, world: &mut World, most: usize) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        if self.client.pending() < most
            && let Some(asked) = self.client.draw(&mut self.random, stripe_blocks)
        {
            let _ = self.client.submit(asked, world);
        }
    }
}
