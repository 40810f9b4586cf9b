//! What goes wrong in a history.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// A member with so many slow windows may be left out soon.
const MAY_LEAVE: u32 = 25;

impl History {
    /// Members of the group of `member` that are out or may be soon.
    pub(super) fn out(&self, world: &World, member: usize) -> usize {
        let map = world.shards[world.home].map();
        let paces = world.shards[world.home].paces();
        let group = self.geometry.group_members();
        let first = member / group * group;
        let failing = self.given.is_some_and(|(_, given)| given == Given::Fail);
        let out = |position: &usize| {
            let member = &map.members[*position];
            // A request that has met a bad block does without that member until it is answered.
            let well = |drive: DriveIndex| {
                let drive = &world.outside.drives[drive.at()];
                drive.is_well() && !self.client.has_pending(drive.met_bad)
            };
            let leaves = paces
                .get(*position)
                .is_some_and(|pace| pace.slow_windows >= MAY_LEAVE);
            member.state != MapState::InSync || !member.drive.is_some_and(well) || leaves
        };
        (first..first + group).filter(out).count() + usize::from(failing)
    }

    /// Nothing is slow any more.
    pub(super) fn calm(&mut self, world: &mut World) {
        world.outside.mail_is_slow.fill(false);
        world.outside.starved = None;
        for drive in &mut world.outside.drives {
            drive.hung = false;
            drive.drags = false;
            drive.let_writes_go();
        }
    }

    pub(super) fn disturb(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        for (index, drive) in world.outside.drives.iter_mut().enumerate() {
            // One that is out may answer when another has been in its place for long.
            let is_used = |member: &array::MapMember| {
                member.drive.is_some_and(|drive| drive.at() == index)
                    && member.state != MapState::Lost
            };
            let stays = if map.members.iter().any(is_used) {
                500
            } else {
                800
            };
            drive.hung &= self.random.happens(stays);
            drive.drags &= self.random.happens(950);
        }
        if self.is_spelled {
            // One thing at a time: some member may be about to be left out.
            return;
        }
        // What a starved reactor has planned should be out of date when it gets room.
        if world.outside.starved.is_some() && self.random.happens(700) {
            self.replace_one(world);
            if self.given.is_none() {
                self.hurt(world);
            }
            return;
        }
        match self.random.below(32) {
            20..25 if self.modes.is_strict() && self.random.happens(500) => {
                self.stop_after_a_return(world);
            }
            20..25 if self.random.happens(400) => self.succeed(world),
            20..25 => self.absence(world),
            25 | 26 => self.write_while_not_all_know(world),
            27 => self.leave_at_the_end_of_a_pass(world),
            28 => self.die_while_logging(world),
            18 | 19 => self.fail_a_flush(world),
            13..18 => self.swap(world),
            12 => {
                let reactor = self.random.position(world.shards.len());
                let starves = reactor != world.home && world.outside.starved.is_none();
                world.outside.starved = starves.then_some(reactor);
            }
            0 => self.hang(world),
            29..32 => self.drag(world),
            1 => {
                let to = self.random.position(world.shards.len());
                world.outside.mail_is_slow[to] ^= true;
            }
            2 if self.given.is_none() && self.rot.is_empty() && self.random.happens(200) => {
                self.resync_all(world);
            }
            2 => {
                for drive in &mut world.outside.drives {
                    drive.mend();
                }
            }
            3 if self.given.is_none() => {
                let run = Command::Passes {
                    run: self.random.happens(800),
                };
                self.give(world, Given::Other, run);
            }
            4 if self.given.is_none() && self.random.happens(500) => self.order_scrub(world),
            4..=6 => self.replace_one(world),
            _ => self.hurt(world),
        }
    }

    /// All parity is called untrusted. What is bad then would be lost.
    pub(super) fn resync_all(&mut self, world: &mut World) {
        if world
            .outside
            .drives
            .iter()
            .all(|drive| drive.bad.is_empty())
        {
            self.give(world, Given::Resync, Command::Resync);
        }
    }

    /// Another drive comes in the place of one that hangs; what the old one was asked, and what a
    /// starved reactor was about to ask it, comes to light when the new one is there.
    fn swap(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let may = !self.torn && self.given.is_none() && map.is_optimal();
        if !may || self.out(world, position) >= self.spare_parity(position) {
            return;
        }
        let drive = map.members[position].drive.expect("it is in sync").at();
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].hung = true;
        world.outside.drives[drive].gone = self.random.happens(700);
        let reactor = self.random.position(world.shards.len());
        world.outside.starved = (reactor != world.home).then_some(reactor);
        self.swapped = Some(drive);
        for _ in 0..8 {
            let stripe_blocks = u64::from(self.geometry.stripe_blocks());
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
        if self.given.is_none() {
            let member = MemberIndex::from_at(position);
            self.give(world, Given::Fail, Command::Fail { member });
        }
    }

    /// A drive does not answer for a while.
    fn hang(&mut self, world: &mut World) {
        let drive = self.random.position(world.outside.drives.len());
        let map = world.shards[world.home].map().clone();
        let fills = |member: &array::MapMember| {
            let here = member.drive.is_some_and(|index| index.at() == drive);
            here && member.state != MapState::Lost
        };
        let Some(position) = map.members.iter().position(fills) else {
            // It may be about to fill a place.
            world.outside.drives[drive].hurt = true;
            world.outside.drives[drive].hung = true;
            return;
        };
        let filled = map.members[position].state != MapState::InSync;
        if filled && self.torn && self.geometry.data() == 1 {
            // As in `hurt`.
            return;
        }
        if !filled && self.out(world, position) >= self.spare_parity(position) {
            // It may be left out, and then none is left to fail.
            return;
        }
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].hung = true;
        if self.random.happens(500) {
            self.await_late(world, position, drive);
        }
    }

    /// A drive takes many times as long as the others for a while.
    fn drag(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let member = map.members[position];
        let may = !self.torn && member.state == MapState::InSync;
        if !may || self.out(world, position) >= self.spare_parity(position) {
            return;
        }
        let drive = member.drive.expect("it is in sync").at();
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].drags = true;
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let patience = [200, 1200][self.random.position(2)];
        for _ in 0..patience {
            if world.shards[world.home].map().members[position].state == MapState::Lost {
                break;
            }
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
    }

    /// A member that does not answer is left out, if it may be, and what is asked from then on is
    /// answered without it.
    fn await_late(&mut self, world: &mut World, position: usize, drive: usize) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for other in 0..world.outside.drives.len() {
            world.outside.drives[other].hung &= other == drive;
        }
        world.outside.starved = None;
        let is_out = |world: &World| {
            world
                .shards
                .iter()
                .all(|shard| shard.map().members[position].state == MapState::Lost)
        };
        for _ in 0..2000 {
            if is_out(world) {
                break;
            }
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
        if !is_out(world) {
            return;
        }
        self.outcome.late += 1;
        // What it was asked to read into the guests' own memory is theirs only once it answers.
        let stuck = world.outside.drives[drive].pending();
        for _ in 0..6 {
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
        self.run_until(world, |history, _| history.client.pending() <= stuck);
    }

    /// One flush fails on one member, once, and soon after the power fails.
    fn fail_a_flush(&mut self, world: &mut World) {
        if self.next_flush_fails(world).is_none() {
            return;
        }
        let Some(flush) = self.client.flush() else {
            return;
        };
        let _ = self.client.submit(flush, world);
        self.power_is_due = self.random.happens(500);
    }

    /// The next flush of one member fails, if a member may fail now: of which drive.
    pub(super) fn next_flush_fails(&mut self, world: &mut World) -> Option<usize> {
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let member = map.members[position];
        // A record that is under way may leave out another one.
        let end = self.layout.region_map.offset;
        let mut drives = world.outside.drives.iter();
        let is_writing = drives.any(|drive| drive.is_in_doubt_below(end));
        if self.torn || is_writing || member.state != MapState::InSync {
            return None;
        }
        if self.out(world, position) >= self.spare_parity(position) {
            return None;
        }
        let drive = member.drive.expect("it is in sync").at();
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].failing = Some(Failing {
            what: Failure::Flushes,
            after: 0,
            count: 1,
            status: Status::Media,
        });
        Some(drive)
    }

    /// Something that costs a member, or a part of it.
    pub(super) fn hurt(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let member = map.members[position];
        let Some(drive) = member.drive.map(|drive| drive.at()) else {
            return;
        };
        match member.state {
            MapState::Lost => return,
            // It counts as out already; but of copies that differ guests may have read its own.
            MapState::Rebuilding { .. } if self.torn && self.geometry.data() == 1 => return,
            MapState::Rebuilding { .. } => {}
            MapState::InSync => {
                let well = world.outside.drives[drive].is_well();
                if self.torn || !well || self.out(world, position) >= self.spare_parity(position) {
                    return;
                }
            }
        }
        let below = self.layout.data.offset;
        world.outside.drives[drive].hurt = true;
        let what = match self.random.below(10) {
            0 | 1 => {
                world.outside.drives[drive].gone = true;
                return;
            }
            2 if self.given.is_none() => {
                // What it was asked before may come back when another drive is in its place.
                let comes_back = self.random.happens(500);
                world.outside.drives[drive].hung = comes_back;
                world.outside.drives[drive].gone = comes_back && self.random.happens(700);
                let member = MemberIndex::from_at(position);
                self.give(world, Given::Fail, Command::Fail { member });
                return;
            }
            2..=4 if self.is_in_doubt(world) => return,
            2..=4 => return self.damage(world, position, drive),
            5 => Failure::Writes,
            6 => Failure::WritesBelow(below),
            _ => Failure::Flushes,
        };
        let after = self
            .random
            .below(if what == Failure::Flushes { 2 } else { 6 });
        // An error that passes leaves a member that looks well and is not.
        let count = [1, u64::MAX][self.random.position(2)];
        let status = disks::ERRORS[self.random.position(disks::ERRORS.len())];
        world.outside.drives[drive].failing = Some(Failing {
            what,
            after,
            count,
            status,
        });
    }

    /// Bad blocks in some stripes.
    pub(super) fn damage(&mut self, world: &mut World, position: usize, drive: usize) {
        let member = MemberIndex::from_at(position);
        for _ in 0..20 {
            let stripe = StripeIndex(self.random.below(self.geometry.stripes()));
            if self.geometry.role(stripe, member).is_none() {
                continue;
            }
            let lane = self.random.below(u64::from(self.geometry.chunk_blocks()));
            let first = self.first_block();
            let block = first + self.geometry.member_block(stripe) + lane;
            world.outside.drives[drive].bad.insert(block);
        }
    }

    /// Bad blocks of all members in some stripes, each in a row of its own.
    pub(super) fn damage_all(&mut self, world: &mut World) {
        let chunk = u64::from(self.geometry.chunk_blocks());
        for _ in 0..10 {
            let stripe = StripeIndex(self.random.below(self.geometry.stripes()));
            // Near one another, so that many requests meet several.
            let near = self.random.below(chunk);
            for lane in near..chunk.min(near + 1 + self.random.below(6)) {
                let role = Role::from_at(self.random.position(self.geometry.group_members()));
                let place = self.geometry.places(stripe);
                let member = &world.shards[world.home].map().members[place.member(role).at()];
                let drive = member.drive.expect("in sync").at();
                let block = self.first_block() + place.block + lane;
                let drives = &world.outside.drives;
                if !drives.iter().any(|drive| drive.bad.contains(&block)) {
                    world.outside.drives[drive].bad.insert(block);
                }
            }
        }
    }

    /// Puts a new drive in the place of a member that is lost.
    pub(super) fn replace_one(&mut self, world: &mut World) {
        let members = &world.shards[world.home].map().members;
        let lost = members
            .iter()
            .position(|member| member.state == MapState::Lost);
        let (Some(position), None) = (lost, self.given) else {
            return;
        };
        if !self.rot.is_empty() {
            // A rebuild would read it.
            return;
        }
        if self.random.happens(600) && self.return_one(world, position) {
            return;
        }
        self.put_in(world, position);
    }

    /// Puts a new drive in the place of a member that is out.
    pub(super) fn put_in(&mut self, world: &mut World, position: usize) {
        let member = MemberIndex::from_at(position);
        let mut drive = self.new_drive();
        if self.random.happens(800) {
            disks::soil(&mut drive, &self.layout, &mut self.random);
        }
        self.fill_place(world, member, (drive, None));
    }

    /// Puts a drive in the place of a member that is out; `copied`: it holds a copy of it.
    pub(super) fn fill_place(
        &mut self,
        world: &mut World,
        member: MemberIndex,
        (mut drive, copied): (SimDrive, Option<Update>),
    ) {
        let uuid = Uuid::from_u128(u128::from(self.random.next()));
        disks::write_superblocks(&mut drive, &self.superblock(member, uuid));
        let place = place(&self.layout, world.outside.drives.len());
        world.outside.drives.push(drive);
        self.spare += 1;
        let record = MemberRecord {
            uuid,
            state: MemberState::InSync,
            drive_bytes: disks::DRIVE_BYTES,
            identity: Default::default(),
        };
        let command = Command::Replace {
            member,
            place,
            record,
            copied,
        };
        self.give(world, Given::Replace, command);
    }
}
