//! The power fails or the engine is killed, members are absent at the next start, and others meet
//! bad blocks in what is to be resynced then: nothing is given up as long as the absent ones may
//! come back. When they are back, what they have not missed is there; only the rest is given up.

use std::collections::BTreeSet;

use super::lost::{Row, listed};
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Writes before the stop, at most.
const WRITES: u64 = 6;

impl History {
    /// A member is left out although it does what it is asked: another may be lost besides.
    pub(super) fn judge_left(&mut self, world: &World, member: MemberIndex) {
        self.outcome.left_behind += 1;
        let map = world.shards[world.home].map();
        let group = self.geometry.group_members();
        let first = member.at() / group * group;
        let others = (first..first + group).filter(|&other| other != member.at());
        let left = others.filter(|&other| map.members[other].state == MapState::InSync);
        assert!(left.count() > self.geometry.data(), "{member} was needed");
        self.leave_rot_behind(first / group);
    }

    /// From an array in order to one that is so again.
    pub(super) fn get_help_late(&mut self, mut world: World) -> World {
        if !self.starts_without_some(300) {
            return world;
        }
        let parity = self.geometry.parity();
        let group = self.geometry.group_members();
        let first = self.random.position(self.geometry.groups()) * group;
        let (mut absent, mut there): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for position in first..first + group {
            let left = first + group - position;
            if self.random.position(left) < parity - absent.len() {
                absent.push(position);
            } else {
                there.push(position);
            }
        }
        let spots = self.write_spots(&mut world, first);
        // Those that belong to no volume may be lost for long.
        let before = listed(&world);
        if !world.shards[world.home].map().is_whole() {
            // One was left behind while others wrote: the power fails with one more only.
            self.settle(&mut world);
            return world;
        }
        let map = world.shards[world.home].map();
        let drives_of = |positions: &[usize]| -> Vec<usize> {
            let drive = |position: &usize| map.members[*position].drive.expect("optimal").at();
            positions.iter().map(drive).collect()
        };
        let absent_drives = drives_of(&absent);
        let mut world = self.stop_without(world, &absent_drives);
        let is_out = |position: &usize| {
            world.shards[world.home].map().members[*position].state == MapState::Lost
        };
        if !absent.iter().all(is_out) {
            self.settle(&mut world);
            return world;
        }
        let mut rows: Vec<Row> = Vec::new();
        for (stripe, lane) in spots {
            let bad = there[self.random.position(there.len())];
            rows.push(self.go_bad(&mut world, (stripe, lane), bad, &absent));
        }
        self.run_until(&mut world, |history, _| history.started);
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        self.await_commands(&mut world);
        for _ in 0..self.random.below(120) {
            self.turn(&mut world, 40);
        }
        let given_up = &listed(&world) - &before;
        assert!(given_up.is_empty(), "{given_up:?} may come back");
        let mut lost = self.bring_back(&mut world, &absent, &rows);
        lost.extend(before);
        self.judge_and_write(world, &lost)
    }

    /// Whether the array starts without as many members as there is parity: it takes more than half
    /// of them. Then so often, of a thousand.
    pub(super) fn starts_without_some(&mut self, often: u64) -> bool {
        let (members, parity) = (self.geometry.members(), self.geometry.parity());
        let may = parity > 0 && (members - parity) * 2 > members;
        let may = may && !self.client.disks.is_empty() && !self.forced;
        may && self.random.happens(often)
    }

    /// Writes blocks of a group, durably, and so that their regions are dirty often.
    pub(super) fn write_spots(
        &mut self,
        world: &mut World,
        first: usize,
    ) -> BTreeSet<(StripeIndex, u64)> {
        let chunk = u64::from(self.geometry.chunk_blocks());
        let mut spots = BTreeSet::new();
        self.calm(world);
        for _ in 0..=self.random.below(WRITES) {
            let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                break;
            };
            let (stripe, start) = self.geometry.locate(block);
            if self.geometry.group(stripe).at() * self.geometry.group_members() == first {
                self.submit_surely(world, asked);
                spots.insert((stripe, u64::from(start) % chunk));
            }
        }
        if let Some(flush) = self.client.flush() {
            self.submit_surely(world, flush);
        }
        spots
    }

    pub(super) fn stop_without(&mut self, world: World, absent: &[usize]) -> World {
        self.torn = true;
        self.outcome.crashes += 1;
        let power = self.random.happens(500);
        for &drive in absent {
            self.may_stay_busy(Some(DriveIndex::from_at(drive)), power);
        }
        let mut drives = self.end_all(world, power);
        let _ = self.client.stop(power);
        self.again.clear();
        for &drive in absent {
            drives[drive].gone = true;
            drives[drive].hurt = true;
        }
        let mut world = self.restart(drives);
        self.calm(&mut world);
        world
    }

    /// A member's block in a row cannot be read any more.
    fn go_bad(
        &mut self,
        world: &mut World,
        (stripe, lane): (StripeIndex, u64),
        bad: usize,
        absent: &[usize],
    ) -> Row {
        let lost = self.blocks_of(stripe, lane, absent.iter().copied().chain([bad]));
        self.client.lost.extend(lost.iter().copied());
        let drive = world.shards[world.home].map().members[bad].drive;
        let drive = &mut world.outside.drives[drive.expect("in sync").at()];
        let first = self.first_block();
        drive.hurt = true;
        drive
            .bad
            .insert(first + self.geometry.member_block(stripe) + lane);
        (stripe, lost)
    }

    /// Members that are out come back, with what they had; or others take their places. What is
    /// lost for good.
    pub(super) fn bring_back(
        &mut self,
        world: &mut World,
        absent: &[usize],
        rows: &[Row],
    ) -> BTreeSet<u64> {
        let pass = world.shards[world.home].pass_status();
        let stopped = pass.is_some_and(|pass| pass.state == PassState::Stopped);
        let mut gone: Vec<&Row> = rows.iter().collect();
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        for &position in absent {
            // What is written without them they lack.
            self.run_until(world, |history, _| {
                history.client.pending() == 0 && history.given.is_none()
            });
            let config = world.shards[world.home].coordinator().expect("home");
            let MemberState::Excluded { missed, .. } = config.config().members[position].state
            else {
                panic!("member {position} is out");
            };
            let missed = world.shards[world.home].missed_since(missed.base);
            if self.return_one(world, position) {
                let lacks = |row: &&Row| missed.as_ref().is_none_or(|missed| missed.has(row.0));
                gone.retain(lacks);
                self.outcome.not_given_up += u64::from(stopped && missed.is_some());
            } else {
                self.put_in(world, position);
            }
            self.await_commands(world);
            for _ in 0..self.random.below(30) {
                self.turn(world, 40);
            }
        }
        // What somebody has is not lost any more once he is there.
        let lost: BTreeSet<u64> = gone.iter().flat_map(|row| row.1.iter().copied()).collect();
        self.refill(world);
        self.client.lost.retain(|block| lost.contains(block));
        lost
    }
}
