//! A member that works is copied while guests write, left out, and its copy takes its place.

use array::Copying;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// All of it. The array may be stopped afterwards as at any time; a drive that fails meanwhile
    /// ends it.
    pub(super) fn succeed(&mut self, world: &mut World) {
        world.outside.starved = None;
        let stripes = self.geometry.stripes();
        self.wait(world, |history, world| {
            let trusted = world.shards[world.home].map().trusted_until.0 >= stripes;
            trusted && history.given.is_none() && history.is_unchanging()
        });
        let trusted = world.shards[world.home].map().trusted_until.0 >= stripes;
        let may = trusted && self.given.is_none() && self.geometry.parity() > 0;
        let position = self.random.position(self.geometry.members());
        let spare = self.out(world, position) < self.geometry.parity();
        // What is rotten would be copied.
        if !may || !spare || !self.rot.is_empty() {
            return;
        }
        let member = MemberIndex::from_at(position);
        // It may begin late, or be refused because another copy has not ended.
        self.copying.push(member);
        if !self.is_copied(world, member, Copying::Begins) {
            return;
        }
        let mut base = update(world);
        let drive = world.shards[world.home].map().members[position].drive;
        if let Some(drive) = drive.filter(|_| self.random.happens(300)) {
            // A drive that is replaced because it wears out.
            self.damage(world, position, drive.at());
        }
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        // The same place is met before, meanwhile and after.
        let spot = self.client.draw(&mut self.random, stripe_blocks);
        let mut copy = SimDrive::new(self.geometry.block_size());
        disks::soil(&mut copy, &self.layout, &mut self.random);
        let all = world.shards[world.home].missed_since(Update(0));
        let all = all.map_or_else(
            || vec![(StripeIndex(0), StripeIndex(self.geometry.stripes()))],
            |written| runs_of(&written),
        );
        if self.random.happens(500) {
            self.idle(world);
        }
        let mut well = self.copy_runs(world, (position, &mut copy), &all, spot.as_ref());
        for _ in 0..self.random.below(3) {
            if !well || !self.is_copied(world, member, Copying::GoesOn) {
                break;
            }
            let next = update(world);
            let missed = world.shards[world.home].missed_since(base);
            let missed = missed.expect("since an update");
            let runs = runs_of(&missed);
            base = next;
            well = self.copy_runs(world, (position, &mut copy), &runs, spot.as_ref());
        }
        if self.random.happens(600) {
            // What was written meanwhile is clean by then.
            self.idle(world);
        }
        if well {
            self.change_over(world, position, (copy, base), spot.as_ref());
        }
        if self.random.happens(800) {
            self.wait(world, |history, _| history.given.is_none());
            self.end_copying(world);
        }
    }

    /// No copy counts any more: scrubs wait for it. One that became a member has ended before.
    pub(super) fn end_copying(&mut self, world: &mut World) {
        while self.given.is_none()
            && let Some(member) = self.copying.pop()
        {
            self.is_copied(world, member, Copying::Ends);
        }
    }

    /// The member leaves, and the copy of it comes.
    fn change_over(
        &mut self,
        world: &mut World,
        position: usize,
        copied: (SimDrive, Update),
        spot: Option<&Asked>,
    ) {
        let place = world.shards[world.home].map().members[position];
        let (Some(drive), MapState::InSync, true) =
            (place.drive, place.state, self.given.is_none())
        else {
            return;
        };
        // Its own bad blocks do not matter any more.
        let itself = usize::from(!world.outside.drives[drive.at()].is_well());
        if self.out(world, position) - itself >= self.geometry.parity() {
            return;
        }
        let member = MemberIndex::from_at(position);
        world.outside.drives[drive.at()].hurt = true;
        self.copied = true;
        self.give(world, Given::Fail, Command::Leave { member });
        self.wait(world, |history, world| {
            history.given.is_none() && history.has_left(world, position)
        });
        self.copied = false;
        let writes = self.random.below(3);
        self.write_some(world, writes);
        if self.given.is_none() && self.has_left(world, position) {
            self.take_place(world, member, copied);
            let writes = self.random.below(6);
            self.write_some(world, writes);
            if let Some(spot) = spot {
                let asked = self.client.write_again(spot);
                let _ = self.client.submit(asked, world);
            }
            self.wait(world, |history, _| history.given.is_none());
        }
    }

    /// Says how the copy comes along; whether it still counts.
    fn is_copied(&mut self, world: &mut World, member: MemberIndex, step: Copying) -> bool {
        if self.given.is_some() {
            return false;
        }
        self.copied = false;
        self.give(world, Given::Copy, Command::Copying { member, step });
        self.wait(world, |history, _| history.given.is_none());
        std::mem::take(&mut self.copied)
    }

    /// Copies runs of stripes of a member, while guests write. Whether the member answered.
    fn copy_runs(
        &mut self,
        world: &mut World,
        (position, copy): (usize, &mut SimDrive),
        runs: &[(StripeIndex, StripeIndex)],
        spot: Option<&Asked>,
    ) -> bool {
        let member = MemberIndex::from_at(position);
        let space = self.superblock(member, Uuid::nil()).regions();
        let (geometry, data) = (self.geometry, self.layout.data.offset);
        let block_bytes = geometry.block_size().bytes();
        let chunk = u64::from(geometry.chunk_blocks());
        let mut unreadable = Vec::new();
        for &(start, end) in runs {
            for stripe in (start.0..end.0).map(StripeIndex) {
                if geometry.role(stripe, member).is_none() {
                    continue;
                }
                if self.random.happens(20) {
                    let writes = self.random.below(3);
                    self.write_some(world, writes);
                }
                if self.random.happens(5)
                    && let Some(spot) = spot
                {
                    let asked = self.client.write_again(spot);
                    let _ = self.client.submit(asked, world);
                    self.turn(world, 40);
                }
                let entry = &world.shards[world.home].map().members[position];
                let (state, drive) = (entry.state, entry.drive);
                let Some(drive) = drive.filter(|_| state == MapState::InSync) else {
                    return false;
                };
                let drive = &world.outside.drives[drive.at()];
                if !drive.answers() {
                    return false;
                }
                let offset = data + geometry.member_block(stripe) * block_bytes;
                let bytes = drive.get(offset, chunk * block_bytes);
                let blocks = offset / block_bytes..offset / block_bytes + chunk;
                if drive.bad.range(blocks).next().is_some() {
                    // What is there is not known.
                    unreadable.push(space.region(stripe));
                } else {
                    copy.put(offset, &bytes);
                }
            }
        }
        unreadable.dedup();
        if unreadable.is_empty() {
            return true;
        }
        if self.given.is_some() {
            return false;
        }
        self.copied = false;
        let regions = unreadable;
        self.give(world, Given::Copy, Command::Dirty { regions });
        self.wait(world, |history, _| history.given.is_none());
        std::mem::take(&mut self.copied)
    }

    fn take_place(
        &mut self,
        world: &mut World,
        member: MemberIndex,
        (mut copy, base): (SimDrive, Update),
    ) {
        disks::erase(&mut copy, &self.superblock(member, Uuid::nil()));
        self.outcome.successors += 1;
        self.fill_place(world, member, (copy, Some(base)));
    }
}

fn runs_of(missed: &Suspects) -> Vec<(StripeIndex, StripeIndex)> {
    let mut runs = Vec::new();
    let mut from = StripeIndex(0);
    while let Some(run) = missed.run_from(from) {
        runs.push(run);
        from = run.1;
    }
    runs
}

fn update(world: &World) -> Update {
    let coordinator = world.shards[world.home].coordinator();
    coordinator.expect("home").config().update
}
