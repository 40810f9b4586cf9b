//! Scrubs: begun and paused at any time, they find nothing; after bits have flipped on drives, or
//! writes were lost there (`stale`), they find just that.
//!
//! A rotten block is read and written by nobody before the scrub has been there: what a guest reads
//! there, and what a write makes of parity there, nobody could promise. For the same reason no
//! member is rebuilt meanwhile, and what a stop leaves to a resync is put right by hand first. At
//! most as many chunks of a stripe rot at one block, with members out, as can be located; or, in
//! arrays that lose nothing else, so many that they are seen and cannot be located.

use array::format::ArrayOptions;
use array::{ScrubCause, ScrubCourse, ScrubFinding, ScrubOrder, ScrubOutcome, ScrubState};
use units::RoleSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Rotten blocks at a time, at most.
const ROTTEN_MAX: u64 = 8;

/// A block of the chunks of a stripe at which some hold what they should not.
pub(super) struct Rot {
    pub(super) stripe: StripeIndex,
    pub(super) lane: u64,
    wrong: RoleSet,
    /// No bits have flipped: a write was lost, or went elsewhere.
    is_stale: bool,
    /// By role: the drive, what it holds, and what it should.
    chunks: Vec<(DriveIndex, Vec<u8>, Vec<u8>)>,
    /// Whether it can be known which chunks are wrong.
    located: bool,
    /// A member has been left out meanwhile: too little may be there to know it, or what is seen
    /// of the rest may be enough.
    left_behind: bool,
}

impl std::fmt::Debug for Rot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.located { "located" } else { "seen" };
        let Rot {
            stripe,
            lane,
            wrong,
            is_stale,
            ..
        } = self;
        let what = if *is_stale { "old content" } else { "rot" };
        write!(
            f,
            "{what} of {wrong:?} at lane {lane} of {stripe}, to be {kind}"
        )
    }
}

impl History {
    /// Some scrubs have a rate, and some begin by themselves again and again.
    pub(super) fn draw_scrub_options(&mut self, options: &mut ArrayOptions) {
        if self.random.happens(200) {
            options.scrub_rate_bytes_per_second = (64 << 20) + self.random.below(1 << 30);
        }
        options.scrub_every_seconds = u32::from(self.random.happens(100));
    }

    /// The most wrong chunks that are located, as far as the engine looks for them.
    fn located_max(&self) -> usize {
        let half = self.geometry.parity() / 2;
        if self.geometry.data() == 1 {
            half
        } else {
            half.min(2)
        }
    }

    /// Members of a group that may be out, for all that has rotted.
    pub(super) fn spare_parity(&self, member: usize) -> usize {
        let (group, parity) = (self.geometry.group_members(), self.geometry.parity());
        let in_group = |rot: &&Rot| self.geometry.group(rot.stripe).at() == member / group;
        let taken = self.rot.iter().filter(in_group).map(|rot| {
            if rot.located {
                2 * rot.wrong.len()
            } else {
                parity
            }
        });
        parity - taken.max().unwrap_or(0).min(parity)
    }

    /// A member of this group is left out without having failed.
    pub(super) fn leave_rot_behind(&mut self, group: usize) {
        let geometry = self.geometry;
        let there = |rot: &&mut Rot| geometry.group(rot.stripe).at() == group;
        for rot in self.rot.iter_mut().filter(there) {
            rot.left_behind = true;
        }
    }

    /// Begins, goes on with or pauses a scrub.
    pub(super) fn order_scrub(&mut self, world: &mut World) {
        let orders = [ScrubOrder::Start, ScrubOrder::StartOver, ScrubOrder::Stop];
        let order = orders[self.random.position(3)];
        self.give(world, Given::Scrub, Command::Scrub(order));
    }

    /// What a scrub says that it has found must be there.
    pub(super) fn judge_finding(&mut self, world: &World, finding: &ScrubFinding) {
        if self.client.doomed {
            return;
        }
        let same =
            |rot: &&Rot| rot.stripe == finding.stripe && rot.lane == u64::from(finding.block);
        let Some(rot) = self.rot.iter().position(|rot| same(&rot)) else {
            assert_eq!(finding.cause, ScrubCause::Unreadable, "{finding:?}");
            let is_lost = finding.outcome == ScrubOutcome::Lost;
            let may_be = !is_lost || self.may_be_lost(world, finding);
            assert!(may_be, "the others can tell: {finding:?}");
            return;
        };
        let rot = &mut self.rot[rot];
        // What has rotted on members that are out is not seen; fewer may be located.
        let map = world.shards[world.home].map();
        let is_out = |role: &Role| map.member(rot.stripe, *role).1.state != MapState::InSync;
        let out = rot.wrong.iter().filter(is_out);
        let out = out.fold(RoleSet::EMPTY, |out, role| out.union(RoleSet::one(role)));
        if !out.is_empty() && !rot.located && finding.outcome == ScrubOutcome::Repaired {
            assert_eq!(
                finding.wrong,
                rot.wrong.without(out),
                "{finding:?} of {rot:?}"
            );
            rot.left_behind = true;
            return;
        }
        let expected = match (rot.located, finding.cause) {
            (true, _) if rot.left_behind && finding.outcome == ScrubOutcome::NotLocated => return,
            (true, _) => ScrubOutcome::Repaired,
            (false, ScrubCause::Mismatch) => ScrubOutcome::NotLocated,
            (false, ScrubCause::Unreadable) => panic!("nothing was to be lost: {finding:?}"),
        };
        assert_eq!(finding.outcome, expected, "{finding:?} of {rot:?}");
    }

    /// Whether more of a row than there is parity is out, or bad, or may have been until just now.
    fn may_be_lost(&self, world: &World, finding: &ScrubFinding) -> bool {
        let map = world.shards[world.home].map();
        let row = self.geometry.member_block(finding.stripe) + u64::from(finding.block);
        let block = self.first_block() + row;
        let tells = |role: &usize| {
            let (_, member) = map.member(finding.stripe, Role::from_at(*role));
            let well = |drive: DriveIndex| {
                let drive = &world.outside.drives[drive.at()];
                !drive.hurt && !drive.bad.contains(&block)
            };
            member.state == MapState::InSync && member.drive.is_some_and(well)
        };
        let roles = 0..self.geometry.group_members();
        roles.filter(tells).count() < self.geometry.data()
    }

    /// All was looked at, and what could be seen and not located is among what was found.
    fn judge_tally(&self, world: &World) {
        let map = world.shards[world.home].map();
        let is_seen = |rot: &&Rot| {
            let mut roles = (0..rot.chunks.len()).map(Role::from_at);
            let is_in = |(role, (drive, _, _)): (Role, &(DriveIndex, _, _))| {
                let (_, member) = map.member(rot.stripe, role);
                member.state == MapState::InSync && member.drive == Some(*drive)
            };
            let all = roles.by_ref().zip(&rot.chunks).all(is_in);
            all && !rot.located && !rot.left_behind
        };
        let seen = bytes_u64(self.rot.iter().filter(is_seen).count());
        let scrub = world.shards[world.home].scrub_status().expect("home");
        let tally = scrub.record.tally;
        assert!(tally.unrepaired >= seen, "{seen} are wrong: {tally:?}");
    }

    /// Bits flip, and a scrub goes after them while guests go on, drives fail and the engine stops.
    pub(super) fn rot(&mut self, mut world: World) -> World {
        if self.geometry.parity() == 0 {
            return world;
        }
        let located = self.located_max() > 0 && self.random.happens(700);
        if !located && self.geometry.parity() == self.located_max() * 2 {
            // As many as are seen for sure are located.
            return world;
        }
        let before = self.random.happens(500).then(|| self.live_on(&mut world));
        for _ in 0..=self.random.below(ROTTEN_MAX) {
            match &before {
                Some(before) => self.lose_write(&mut world, before, located),
                None => self.flip_bits(&mut world, located),
            }
        }
        self.keep_off();
        self.give(
            &mut world,
            Given::Scrub,
            Command::Scrub(ScrubOrder::StartOver),
        );
        // From here on no pass goes on that began before.
        self.run_until(&mut world, |history, _| history.given.is_none());
        let rounds = self.random.below(80);
        self.rounds(&mut world, rounds);
        if self.random.happens(300) {
            let drives = self.crash(world);
            world = self.restart(drives);
            self.heal_suspects(&mut world);
        }
        self.calm(&mut world);
        self.end_any_spell(&mut world);
        for drive in &mut world.outside.drives {
            drive.heal();
        }
        self.run_until(&mut world, |history, _| {
            history.started && history.given.is_none() && history.client.pending() == 0
        });
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        self.scrub_to_the_end(&mut world, ScrubOrder::Start);
        self.judge_tally(&world);
        self.judge_rot(&mut world);
        self.rot.clear();
        self.keep_off();
        world
    }

    /// The fewest and the most chunks of a stripe that may be wrong at one block.
    pub(super) fn wrong_bounds(&self, located: bool) -> (usize, usize) {
        if located {
            (1, self.located_max())
        } else {
            let most = self.geometry.parity() - self.geometry.parity() / 2;
            (self.located_max() + 1, most)
        }
    }

    /// Whether a block of a stripe may rot.
    pub(super) fn may_rot(&self, world: &World, (stripe, lane): (StripeIndex, u64)) -> bool {
        let same = |rot: &Rot| rot.stripe == stripe && rot.lane == lane;
        !self.rot.iter().any(same) && end::written(world).has(stripe)
    }

    /// The drive behind a role, and its block.
    pub(super) fn chunk_block(
        &self,
        world: &World,
        (stripe, lane): (StripeIndex, u64),
        role: Role,
    ) -> (DriveIndex, u64) {
        let (_, member) = world.shards[world.home].map().member(stripe, role);
        let block = self.first_block() + self.geometry.member_block(stripe) + lane;
        (member.drive.expect("every member is in sync"), block)
    }

    fn flip_bits(&mut self, world: &mut World, located: bool) {
        let stripe = StripeIndex(self.random.below(self.geometry.stripes()));
        let lane = self.random.below(u64::from(self.geometry.chunk_blocks()));
        if !self.may_rot(world, (stripe, lane)) {
            return;
        }
        let (least, most) = self.wrong_bounds(located);
        let count = least + self.random.position(most + 1 - least);
        let mut wrong = RoleSet::EMPTY;
        while wrong.len() < count {
            let role = self.random.position(self.geometry.group_members());
            wrong = wrong.with(Role::from_at(role));
        }
        let mut contents = Vec::new();
        for role in wrong {
            let (drive, block) = self.chunk_block(world, (stripe, lane), role);
            let right = world.outside.drives[drive.at()].block(block);
            let (mut rotten, bytes, at) = (right.clone(), right.len(), role.at());
            for _ in 0..=self.random.below(3) {
                // Never twice the same, or mirrors agree on it.
                let byte = 8 * at + self.random.position(8);
                rotten[byte % bytes] ^= 1 << self.random.position(8);
            }
            if rotten == right {
                rotten[8 * at % bytes] ^= 1;
            }
            contents.push((role, rotten));
        }
        self.put_wrong(world, (stripe, lane), contents, (located, false));
    }

    /// Puts what is not right into chunks of a stripe, at one block.
    pub(super) fn put_wrong(
        &mut self,
        world: &mut World,
        (stripe, lane): (StripeIndex, u64),
        mut contents: Vec<(Role, Vec<u8>)>,
        (located, is_stale): (bool, bool),
    ) {
        let mut wrong = RoleSet::EMPTY;
        let mut chunks = Vec::new();
        for role in (0..self.geometry.group_members()).map(Role::from_at) {
            let (drive, block) = self.chunk_block(world, (stripe, lane), role);
            let right = world.outside.drives[drive.at()].block(block);
            let place = contents.iter().position(|(other, _)| *other == role);
            let rotten = place.map_or_else(|| right.clone(), |at| contents.swap_remove(at).1);
            if rotten != right {
                wrong = wrong.with(role);
                world.outside.drives[drive.at()].put(block * self.block_bytes(), &rotten);
            }
            chunks.push((drive, rotten, right));
        }
        self.rot.push(Rot {
            stripe,
            lane,
            wrong,
            is_stale,
            chunks,
            located,
            left_behind: false,
        });
    }

    /// Guests stay away from what is rotten.
    fn keep_off(&mut self) {
        let blocks = u64::from(self.geometry.stripe_blocks());
        let stripes = self.rot.iter().map(|rot| rot.stripe.0);
        self.client.keep_off = stripes
            .map(|stripe| stripe * blocks..(stripe + 1) * blocks)
            .collect();
    }

    /// What a resync would make parity of is put right before, and what the log has written again
    /// is not rotten any more.
    fn heal_suspects(&mut self, world: &mut World) {
        let suspects = std::sync::Arc::clone(&world.shards[world.home].map().suspects);
        let (healed, left) = std::mem::take(&mut self.rot)
            .into_iter()
            .partition(|rot: &Rot| suspects.has(rot.stripe) || !self.is_rotten(world, rot));
        self.rot = left;
        for rot in healed {
            self.put_right(world, &rot);
        }
        self.keep_off();
    }

    fn is_rotten(&self, world: &World, rot: &Rot) -> bool {
        let block = self.first_block() + self.geometry.member_block(rot.stripe);
        let holds = |(drive, rotten, _): &(DriveIndex, Vec<u8>, Vec<u8>)| {
            world.outside.drives[drive.at()].block(block + rot.lane) == *rotten
        };
        rot.chunks.iter().all(holds)
    }

    fn put_right(&self, world: &mut World, rot: &Rot) {
        let block = self.first_block() + self.geometry.member_block(rot.stripe);
        for (drive, _, right) in &rot.chunks {
            world.outside.drives[drive.at()].put((block + rot.lane) * self.block_bytes(), right);
        }
    }

    /// Everything that could be located is right again, and nothing else has changed.
    fn judge_rot(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        for rot in &self.rot {
            let block = self.first_block() + self.geometry.member_block(rot.stripe);
            for (role, (drive, rotten, right)) in rot.chunks.iter().enumerate() {
                let (_, member) = map.member(rot.stripe, Role::from_at(role));
                let found = world.outside.drives[drive.at()].block(block + rot.lane);
                if member.drive != Some(*drive) || member.state != MapState::InSync {
                    // Should it return, a later scrub would find what rotted on it before it left.
                    if found == *rotten {
                        world.outside.drives[drive.at()]
                            .put((block + rot.lane) * self.block_bytes(), right);
                    }
                    continue;
                }
                let expected = if rot.located { right } else { rotten };
                let right = found == *expected || rot.left_behind;
                assert!(right, "role {role} after a scrub: {rot:?}");
            }
            if !rot.located || rot.left_behind {
                self.put_right(world, rot);
            }
            self.outcome.rotten += 1;
            self.outcome.stale += u64::from(rot.is_stale);
        }
    }

    /// A scrub of everything finds nothing, also where a drive brings another block's content once.
    pub(super) fn scrub_finds_nothing(&mut self, world: &mut World) {
        if self.geometry.parity() == 0 {
            return;
        }
        if self.random.happens(300) {
            self.lead_astray(world);
        }
        self.scrub_to_the_end(world, ScrubOrder::StartOver);
        let scrub = world.shards[world.home].scrub_status().expect("home");
        assert_eq!(scrub.record.tally, Default::default(), "{scrub:?}");
        for drive in &mut world.outside.drives {
            drive.astray.clear();
            self.outcome.astray += std::mem::take(&mut drive.went_astray);
        }
    }

    /// Some reads will bring what lies elsewhere on their drive. Nobody but a scrub reads.
    fn lead_astray(&mut self, world: &mut World) {
        self.run_until(world, |history, world| {
            history.given.is_none() && history.client.pending() == 0 && world.is_quiet()
        });
        let (first, rows) = (self.first_block(), self.geometry.member_blocks());
        for _ in 0..=self.random.below(ROTTEN_MAX) {
            let position = self.random.position(self.geometry.members());
            let block = self.random.below(rows);
            let other = (block ^ (1 << self.random.below(10))).min(rows - 1);
            let drive = end::position_drive(world, position);
            let astray = &mut world.outside.drives[drive].astray;
            astray.insert(first + block, first + other);
        }
    }

    fn scrub_to_the_end(&mut self, world: &mut World, mut order: ScrubOrder) {
        self.run_until(world, |history, _| history.given.is_none());
        self.end_copying(world);
        loop {
            self.run_until(world, |history, _| history.given.is_none());
            self.give(world, Given::Other, Command::Scrub(order));
            self.run_until(world, |history, world| {
                let scrub = world.shards[world.home].scrub_status().expect("home");
                history.given.is_none()
                    && (scrub.course == ScrubCourse::Failed
                        || scrub.record.state == ScrubState::Idle)
            });
            let scrub = world.shards[world.home].scrub_status().expect("home");
            if scrub.course != ScrubCourse::Failed {
                return;
            }
            order = ScrubOrder::Start;
        }
    }
}
