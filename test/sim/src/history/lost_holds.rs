//! Members are away, or take no writes, just when blocks are given up or written anew: what waits
//! for the list of lost blocks is answered once it has waited for long enough, and nobody takes its
//! rows before the list is decided on.

use std::collections::BTreeSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// The end of a wait for something that need not happen.
const STEPS: usize = 4000;

impl History {
    /// The bad blocks of a drive take no zeroes. Nothing else is asked of their stripes.
    pub(super) fn take_no_zeroes(&mut self, world: &mut World) {
        let is_bad = |drive: &&mut SimDrive| !drive.bad.is_empty();
        let Some(drive) = world.outside.drives.iter_mut().find(is_bad) else {
            return;
        };
        drive.unwritable = drive.bad.clone();
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
        self.client.keep_off = self.client.unsure.clone();
    }

    /// The end comes while zeroes are on their way to a bad block, which the log has.
    pub(super) fn stop_at_zeroes(&mut self, mut world: World) -> World {
        if !self.await_step(&mut world, |world| {
            world.outside.drives.iter().any(SimDrive::is_writing_bad)
        }) {
            return world;
        }
        let power = self.random.happens(500);
        self.stop_by(world, power)
    }

    /// A drive vanishes when zeroes are written to a bad block of it, and is back soon. Then all of
    /// it can be read: what it said was no more true than what it says of zeroes.
    pub(super) fn blink_at_zeroes(&mut self, world: &mut World) {
        if !self.await_step(world, |world| {
            world.outside.drives.iter().any(SimDrive::is_writing_bad)
        }) {
            return;
        }
        let mut drives = world.outside.drives.iter();
        let drive = drives.position(SimDrive::is_writing_bad);
        let drive = drive.expect("one is");
        world.outside.drives[drive].away = Some(Status::Media);
        world.outside.drives[drive].hurt = true;
        self.client.lenient = u64::MAX;
        for _ in 0..self.random.below(400) {
            world.step();
        }
        self.come_back_all(world);
    }

    /// Nobody answers when blocks are about to be on the list.
    pub(super) fn hold_what_is_given_up(&mut self, world: &mut World, lost: &BTreeSet<u64>) {
        if self.await_step(world, |world| world.shards[world.home].is_changing_losses()) {
            self.hold_the_list(world, lost.iter().copied());
        }
    }

    /// Nobody answers when a block is about to leave the list.
    pub(super) fn hold_what_is_healed(&mut self, world: &mut World, volume: Uuid, start: u64) {
        // Members may be left out, and none may have to be read then that cannot be.
        for drive in &mut world.outside.drives {
            drive.mend();
        }
        let write = self.client.ask(volume, Operation::Write, start, 1);
        let _ = self.client.submit(write, world);
        self.client.advance(world);
        if self.await_step(world, |world| world.shards[world.home].is_changing_losses()) {
            let lost: Vec<u64> = self.client.lost.iter().copied().collect();
            self.hold_the_list(world, lost.into_iter());
        }
        self.refill(world);
    }

    pub(super) fn await_step(&mut self, world: &mut World, done: impl Fn(&World) -> bool) -> bool {
        self.calm(world);
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        for _ in 0..STEPS {
            if done(world) {
                return true;
            }
            world.step();
        }
        false
    }

    fn hold_the_list(&mut self, world: &mut World, lost: impl Iterator<Item = u64>) {
        let status = [Status::Gone, Status::Media][self.random.position(2)];
        let members = world.shards[world.home].map().members.clone();
        for member in members.iter().filter(|one| one.state != MapState::Lost) {
            let drive = member.drive.expect("it is in use").at();
            world.outside.drives[drive].away = Some(status);
            world.outside.drives[drive].hurt = true;
        }
        self.client.lenient = u64::MAX;
        self.run_until(world, |_, world| {
            let waits = world.shards[world.home].is_changing_losses();
            world.shards.iter().all(|shard| shard.map().given_up) || !waits
        });
        if world.shards[world.home].is_changing_losses() {
            self.outcome.held_lists += 1;
            // Nobody waits for longer than that.
            self.run_until(world, |history, _| history.client.pending() == 0);
        }
        // It comes to pass when the list does, or after it.
        for block in lost {
            self.write_row_of(world, block);
        }
        self.client.advance(world);
        for _ in 0..self.random.below(100) {
            world.step();
        }
        self.come_back_all(world);
    }

    /// Writes the stripe of a block, if it belongs to a volume.
    fn write_row_of(&mut self, world: &mut World, block: u64) {
        let blocks = u64::from(self.geometry.stripe_blocks());
        let base = block / blocks * blocks;
        let first = self.client.place_of(base);
        let last = self.client.place_of(base + blocks - 1);
        if let (Some((volume, start)), Some((same, end))) = (first, last)
            && volume == same
            && end == start + blocks - 1
        {
            let write = self.client.ask(volume, Operation::Write, start, blocks);
            let _ = self.client.submit(write, world);
        }
    }

    /// All drives are there again, as they were, and can be read and written everywhere.
    pub(super) fn come_back_all(&mut self, world: &mut World) {
        self.explain(world);
        for drive in &mut world.outside.drives {
            if drive.away.is_some() && self.random.happens(500) {
                drive.mend();
            }
        }
        self.end_spell(world);
        self.run_until(world, |history, world| {
            !world.is_in_trouble() && history.client.pending() == 0
        });
    }
}
