//! Blocks that nobody can tell any more: members are out and filled again, and others meet bad
//! blocks then. The rebuild goes on. What is lost by the test's own count fails until it is
//! written, over stops of the engine; nothing else ever fails, and nobody is shown zeroes.

use std::collections::BTreeSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// A row with a bad block, and what is lost there while members are out.
pub(super) type Row = (StripeIndex, Vec<u64>);

/// Rows with a bad block, at most.
const ROWS: u64 = 6;

impl History {
    /// From an array in order to one whose members are filled again and all that was lost is
    /// written, with stops in between.
    pub(super) fn lose(&mut self, mut world: World) -> World {
        let parity = self.geometry.parity();
        let may = parity > 0 && !self.client.disks.is_empty() && !self.forced;
        if !may || !self.random.happens(500) {
            return world;
        }
        self.give(&mut world, Given::Other, Command::Passes { run: false });
        self.await_commands(&mut world);
        let outs = self.fail_some(&mut world);
        let (sticks, rows) = self.spoil(&mut world, &outs);
        if self.client.lost.is_empty() {
            self.settle(&mut world);
            return world;
        }
        let mut lost = self.client.lost.clone();
        // Those that belong to no volume may be lost for long.
        lost.extend(listed(&world));
        let comes_back = outs.len() > 1 && self.random.happens(500);
        for &position in &outs[usize::from(comes_back)..] {
            self.put_in(&mut world, position);
            self.await_commands(&mut world);
        }
        if let Some((block, drive)) = sticks {
            self.stick(&mut world, block, drive);
        }
        let incident = self.random.below(6);
        if incident == 0 {
            self.quiet(&mut world);
        }
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        match incident {
            0 => world = self.stop_at_zeroes(world),
            1 => self.take_no_zeroes(&mut world),
            2 => self.blink_at_zeroes(&mut world),
            3 => self.hold_what_is_given_up(&mut world, &lost),
            _ => {}
        }
        let mut world = self.fill(world);
        if comes_back {
            let known = self.client.lost.clone();
            let gone = self.bring_back(&mut world, &outs[..1], &rows);
            let others = |block: &u64| gone.contains(block) || !known.contains(block);
            lost.retain(others);
        }
        self.judge_and_write(world, &lost)
    }

    /// Members are filled: what is lost is looked at, and written.
    pub(super) fn judge_and_write(&mut self, mut world: World, lost: &BTreeSet<u64>) -> World {
        self.refill(&mut world);
        self.client.unsure.clear();
        self.run_until(&mut world, |_, world| world.is_quiet());
        self.check_parity(&world);
        self.judge_lost(&world, lost);
        for drive in &mut world.outside.drives {
            self.outcome.passed_over += bytes_u64(drive.refused());
            if !drive.unwritable.is_empty() {
                drive.mend();
            }
        }
        self.client.keep_off.clear();
        if self.random.happens(400) {
            world = self.stop_now(world);
        }
        self.read_everything(&mut world);
        self.judge_lost(&world, lost);
        self.outcome.lost.0 += bytes_u64(lost.len());
        self.outcome.lost.1 += world.shards[world.home].map().lost_blocks.count();
        let mut world = self.write_lost(world);
        self.settle(&mut world);
        world
    }

    /// Puts drives in all places that are empty, and waits until they are filled.
    pub(super) fn refill(&mut self, world: &mut World) {
        self.fill_empty_places(world);
        self.give(world, Given::Other, Command::Passes { run: true });
        self.await_commands(world);
        self.await_filled(world);
    }

    fn fill_empty_places(&mut self, world: &mut World) {
        for _ in 0..20 {
            self.run_until(world, |history, world| {
                history.given.is_none() && !world.is_in_trouble()
            });
            let Some(position) = empty_place(world) else {
                break;
            };
            self.put_in(world, position);
        }
    }

    pub(super) fn await_commands(&mut self, world: &mut World) {
        self.run_until(world, |history, _| history.given.is_none());
    }

    /// Fails as many members of a group as there is parity; their places.
    pub(super) fn fail_some(&mut self, world: &mut World) -> Vec<usize> {
        self.fail_of_a_group(world, self.geometry.parity())
    }

    /// As `fail_some`, so many.
    pub(super) fn fail_of_a_group(&mut self, world: &mut World, count: usize) -> Vec<usize> {
        let group = self.geometry.group_members();
        let first = self.random.position(self.geometry.groups()) * group;
        let mut places: Vec<usize> = (first..first + group).collect();
        while places.len() > count {
            let at = self.random.position(places.len());
            places.remove(at);
        }
        let group = first..first + group;
        for &position in &places {
            // One that lagged may have been left out just then.
            if lost_of(world, &group).len() >= count {
                break;
            }
            let map = world.shards[world.home].map();
            let Some(drive) = map.members[position].drive else {
                continue;
            };
            world.outside.drives[drive.at()].hurt = true;
            let member = MemberIndex::from_at(position);
            self.give(world, Given::Other, Command::Fail { member });
            self.await_commands(world);
        }
        lost_of(world, &group)
    }

    /// Some blocks of other members in rows of that group cannot be read any more. What is lost by
    /// that was written before, often since members are out. Gives such a block that belongs to a
    /// volume, and its drive; and all rows.
    pub(super) fn spoil(
        &mut self,
        world: &mut World,
        outs: &[usize],
    ) -> (Option<(u64, usize)>, Vec<Row>) {
        let group = self.geometry.group_members();
        let first = outs[0] / group * group;
        let chunk = u64::from(self.geometry.chunk_blocks());
        let (mut sticks, mut rows) = (None, Vec::new());
        let mut spots = BTreeSet::new();
        for _ in 0..=self.random.below(ROWS) {
            let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                break;
            };
            let (stripe, start) = self.geometry.locate(block);
            let lane = u64::from(start) % chunk;
            let is_other = self.geometry.group(stripe).at() * group != first;
            // One bad block in a row: then it is whole without the others.
            if is_other || !spots.insert((stripe, lane)) {
                continue;
            }
            let others = (first..first + group).filter(|other| !outs.contains(other));
            let others: Vec<usize> = others.collect();
            let holder = self.holder(world, block);
            let bad = if others.contains(&holder) {
                holder
            } else {
                others[self.random.position(others.len())]
            };
            // Nothing is lost where nothing was ever written.
            if self.random.happens(600) || !end::written(world).has(stripe) {
                self.submit_surely(world, asked);
            }
            let gone = self.blocks_of(stripe, lane, outs.iter().copied().chain([bad]));
            self.client.lost.extend(gone.iter().copied());
            rows.push((stripe, gone));
            let drive = world.shards[world.home].map().members[bad].drive;
            let drive = drive.expect("in sync").at();
            let first_block = self.first_block();
            let place = first_block + self.geometry.member_block(stripe) + lane;
            world.outside.drives[drive].hurt = true;
            world.outside.drives[drive].bad.insert(place);
            if bad == holder {
                sticks = Some((block, drive));
            }
        }
        (sticks, rows)
    }

    /// The blocks of the array that members hold in a row of which nobody can tell more.
    pub(super) fn blocks_of(
        &mut self,
        stripe: StripeIndex,
        lane: u64,
        members: impl Iterator<Item = usize>,
    ) -> Vec<u64> {
        let chunk = u64::from(self.geometry.chunk_blocks());
        let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
        let mut blocks = Vec::new();
        for position in members {
            let role = self.geometry.role(stripe, MemberIndex::from_at(position));
            let role = role.expect("of its group");
            if self.geometry.data() == 1 {
                blocks.push(base + lane);
            } else if role.at() < self.geometry.data() {
                blocks.push(base + bytes_u64(role.at()) * chunk + lane);
            }
        }
        let stripe = base..base + u64::from(self.geometry.stripe_blocks());
        self.client.unsure.push(stripe);
        blocks
    }

    pub(super) fn submit_surely(&mut self, world: &mut World, asked: Asked) {
        while !self.client.submit(asked.clone(), world) {
            self.turn(world, 20);
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
    }

    /// A read of a lost block is under way until something is written there.
    fn stick(&mut self, world: &mut World, block: u64, drive: usize) {
        let Some((volume, start)) = self.client.place_of(block) else {
            return;
        };
        let (stripe, lane) = self.geometry.locate(block);
        let lane = u64::from(lane % self.geometry.chunk_blocks());
        let place = self.first_block() + self.geometry.member_block(stripe) + lane;
        self.run_until(world, |history, _| history.client.pending() == 0);
        world.outside.drives[drive].stuck = Some(place);
        let read = self.client.ask(volume, Operation::Read, start, 1);
        let _ = self.client.submit(read, world);
        for _ in 0..20 {
            self.turn(world, 20);
        }
        world.outside.drives[drive].stuck = None;
    }

    /// Members are filled while guests go on; often the engine stops in the middle of it.
    fn fill(&mut self, mut world: World) -> World {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let rounds = self.random.below(60);
        for _ in 0..rounds {
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, &mut world);
            }
            let steps = self.random.below(40);
            self.turn(&mut world, steps);
        }
        if self.random.happens(600) {
            return world;
        }
        self.quiet(&mut world);
        for _ in 0..self.random.below(400) {
            world.step();
        }
        self.stop_now(world)
    }

    /// Nothing is asked any more, and what was is durable.
    fn quiet(&mut self, world: &mut World) {
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        self.run_until(world, |history, _| {
            history.started && history.client.pending() == 0 && history.given.is_none()
        });
        if let Some(flush) = self.client.flush() {
            self.submit_surely(world, flush);
        }
    }

    /// The engine is killed, or the power fails, and the next one starts.
    fn stop_now(&mut self, world: World) -> World {
        let power = self.random.happens(500);
        self.stop_by(world, power)
    }

    /// The engine ends, and the next one begins its start.
    pub(super) fn end_and_restart(&mut self, world: World, power: bool) -> World {
        self.torn = true;
        self.outcome.crashes += 1;
        let drives = self.end_all(world, power);
        let _ = self.client.stop(power);
        self.again.clear();
        self.restart(drives)
    }

    pub(super) fn stop_by(&mut self, world: World, power: bool) -> World {
        let mut world = self.end_and_restart(world, power);
        if self.random.happens(500) {
            self.calm(&mut world);
        }
        self.run_until(&mut world, |history, _| history.started);
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        self.await_commands(&mut world);
        world
    }

    /// A rebuild does not stop because of what is lost.
    pub(super) fn await_filled(&mut self, world: &mut World) {
        self.calm(world);
        for _ in 0..20 {
            self.run_until(world, |_, world| {
                let filled = world.shards[world.home].map().is_optimal();
                (filled || empty_place(world).is_some()) && !world.is_in_trouble()
            });
            // One that cannot read much may be left out meanwhile.
            self.fill_empty_places(world);
        }
        assert!(world.shards[world.home].map().is_optimal(), "it is filled");
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
    }

    /// Only what had too few copies was given up.
    pub(super) fn judge_lost(&self, world: &World, lost: &BTreeSet<u64>) {
        for shard in &world.shards {
            for (first, count) in shard.map().lost_blocks.runs() {
                let other = (first..first + count).find(|block| !lost.contains(block));
                assert_eq!(other, None, "it was given up and not lost");
            }
        }
    }

    /// The power fails while the record is on its way that says that a block is not lost any more.
    fn stop_while_healing(&mut self, mut world: World, volume: Uuid, start: u64) -> World {
        if let Some(flush) = self.client.flush() {
            self.submit_surely(&mut world, flush);
        }
        let end = self.layout.region_map.offset;
        let write = self.client.ask(volume, Operation::Write, start, 1);
        let _ = self.client.submit(write, &mut world);
        self.client.advance(&mut world);
        for _ in 0..500 {
            let is_there = |drive: &SimDrive| drive.has_cached_below(end);
            if world.outside.drives.iter().any(is_there) {
                break;
            }
            world.step();
        }
        for _ in 0..self.random.below(8) {
            world.step();
        }
        self.stop_by(world, true)
    }

    /// Writes what is lost, with a stop right after an answer now and then.
    pub(super) fn write_lost(&mut self, mut world: World) -> World {
        let lost: Vec<u64> = self.client.lost.iter().copied().collect();
        let discarded: Vec<u64> = self.client.discarded.iter().copied().collect();
        for block in lost.into_iter().chain(discarded) {
            let Some((volume, start)) = self.client.place_of(block) else {
                continue;
            };
            // Members that are away may be left out.
            if self.random.happens(150) && !self.torn {
                self.hold_what_is_healed(&mut world, volume, start);
            } else if self.random.happens(500) {
                world = self.stop_while_healing(world, volume, start);
                let read = self.client.ask(volume, Operation::Read, start, 1);
                self.submit_surely(&mut world, read);
            }
            let write = self.client.ask(volume, Operation::Write, start, 1);
            self.submit_surely(&mut world, write);
            let is_lost = |set: &BTreeSet<u64>| set.contains(&block);
            let waits = is_lost(&self.client.lost) || is_lost(&self.client.discarded);
            assert!(!waits, "block {block} cannot be written");
            self.outcome.lost.2 += 1;
            if self.random.happens(400) {
                world = self.stop_now(world);
            }
            let read = self.client.ask(volume, Operation::Read, start, 1);
            self.submit_surely(&mut world, read);
        }
        self.client.lost.clear();
        self.client.discarded.clear();
        self.calm(&mut world);
        // One with a block that takes no writes is left out, if others hold what it had.
        self.refill(&mut world);
        self.run_until(&mut world, |_, world| {
            world.shards[world.home].map().is_optimal()
        });
        for shard in &world.shards {
            for (first, count) in shard.map().lost_blocks.runs() {
                let known = |block: u64| self.client.place_of(block).is_some();
                assert!(!(first..first + count).any(known), "written and still lost");
            }
        }
        world
    }
}

/// Blocks that are on the list of those that are lost.
pub(super) fn listed(world: &World) -> BTreeSet<u64> {
    let runs = world.shards[world.home].map().lost_blocks.runs();
    runs.flat_map(|(first, count)| first..first + count)
        .collect()
}

/// Members of a group that are out.
fn lost_of(world: &World, group: &std::ops::Range<usize>) -> Vec<usize> {
    let members = &world.shards[world.home].map().members;
    let lost = |position: &usize| members[*position].state == MapState::Lost;
    group.clone().filter(lost).collect()
}

/// A place of which the member is out.
fn empty_place(world: &World) -> Option<usize> {
    let members = &world.shards[world.home].map().members;
    let out = |member: &array::MapMember| member.state == MapState::Lost;
    members.iter().position(out)
}
