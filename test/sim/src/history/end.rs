//! The ends of a history: everything in order, or more lost than the array survives.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// Each leaves the array in order.
    pub(super) fn hard_times(&mut self, mut world: World) -> World {
        world = self.get_help_late(world);
        world = self.write_in_a_start(world);
        world = self.lose_other_copies(world);
        world = self.strengthen_at_last(world);
        world = self.lose(world);
        world = self.fill_twice(world);
        world = self.heal_before_the_fill(world);
        world = self.doubt(world);
        world = self.be_killed_in_writes(world);
        world = self.hang_over_rewrites(world);
        world = self.keep_some(world);
        world = self.log_in_vain(world);
        world = self.refuse_needed(world);
        world = self.lose_memory_between_starts(world);
        self.give_up_beside_one_that_hangs(world)
    }

    /// What can be read although it is bad on one member is written there again. No row is bad on
    /// more.
    fn check_rewrites(&mut self, world: &mut World) {
        let (data, parity) = (self.geometry.data(), self.geometry.parity());
        self.run_until(world, |history, world| {
            let waits = history.change.is_some() || history.client.pending() > 0;
            // What was given up need not be rewritten.
            let waits = waits || world.is_in_trouble();
            history.started && history.given.is_none() && !waits && world.is_quiet()
        });
        if parity == 0 || !self.is_sound(world) || self.is_in_doubt(world) {
            return;
        }
        let position = self.random.position(self.geometry.members());
        let bad = if data > 1 && self.random.happens(500) {
            self.damage(world, position, position_drive(world, position));
            vec![position]
        } else {
            // One that lags may be left out just then, which is as many as may be.
            let nobody_leaves = self.out(world, position) == 0;
            self.damage_all(world);
            if parity > 1 && nobody_leaves && self.random.happens(500) {
                let drive = position_drive(world, position);
                world.outside.drives[drive].hurt = true;
                if self.random.happens(500) {
                    // What it was asked is given up when it is out.
                    world.outside.drives[drive].hung = true;
                    let asked = 1 + self.random.below(6);
                    self.draw_some(world, asked);
                }
                let member = MemberIndex::from_at(position);
                self.give(world, Given::Fail, Command::Fail { member });
            }
            let asked = self.random.below(60);
            self.draw_some(world, asked);
            self.await_commands(world);
            // Reads into the memory of guests wait for as long as it hangs.
            self.wait(world, |history, _| history.client.pending() == 0);
            self.calm(world);
            (0..self.geometry.members()).collect()
        };
        // What is zeroed meanwhile for a first write may have been read as zeroes before that.
        self.run_until(world, |_, world| world.is_quiet());
        let written = written(world);
        let before = detours(world);
        self.read_everything(world);
        self.run_until(world, |_, world| world.is_quiet());
        if detours(world) > before {
            // Some were read around a slow member, and it may have been this one.
            return;
        }
        let is_in = |position: &usize| {
            let map = world.shards[world.home].map();
            map.members[*position].state == MapState::InSync
        };
        if data > 1 {
            for position in bad.into_iter().filter(is_in) {
                self.check_rewritten(world, position, &written);
            }
        }
    }

    fn draw_some(&mut self, world: &mut World, count: u64) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..count {
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
    }

    fn check_rewritten(&self, world: &World, position: usize, written: &Suspects) {
        let member = MemberIndex::from_at(position);
        let data = self.geometry.data();
        let drive = &world.outside.drives[position_drive(world, position)];
        for block in &drive.bad {
            let block = block - self.first_block();
            let stripe = self.geometry.stripe_at(member, block);
            let role = self.geometry.role(stripe, member).expect("its own block");
            let lane = block % u64::from(self.geometry.chunk_blocks());
            let chunk = stripe.0 * bytes_u64(data) + bytes_u64(role.at());
            let is_read = role.at() < data
                && written.has(stripe)
                && self
                    .client
                    .covers(chunk * u64::from(self.geometry.chunk_blocks()) + lane);
            assert!(!is_read, "{stripe} is bad on {member} although it was read");
        }
    }

    /// Faults stop; everything is answered, filled again and consistent.
    pub(super) fn settle(&mut self, world: &mut World) {
        self.calm(world);
        self.end_any_spell(world);
        if self.random.happens(400) {
            self.check_rewrites(world);
        }
        for drive in &mut world.outside.drives {
            drive.heal();
        }
        self.run_until(world, |history, _| {
            history.started && history.given.is_none()
        });
        self.give(world, Given::Other, Command::Passes { run: true });
        // A rebuild of many stripes, one after another, by slow reactors takes several hundred.
        for _ in 0..1000 {
            self.run_until(world, |history, _| {
                history.given.is_none() && history.change.is_none() && history.client.pending() == 0
            });
            let map = world.shards[world.home].map();
            let lost = map
                .members
                .iter()
                .any(|member| member.state == MapState::Lost);
            let well = self.geometry.parity() == 0 || (!lost && map.is_optimal());
            if well && !world.is_in_trouble() {
                self.run_until(world, |_, world| world.is_quiet());
                // One that lagged, or whose reads failed too often, may be left out just then.
                if world.shards[world.home].map().is_optimal() {
                    break;
                }
            }
            self.replace_one(world);
            let stopped = world.shards[world.home]
                .pass_status()
                .is_some_and(|pass| pass.state == PassState::Stopped);
            if stopped && self.given.is_none() {
                self.give(world, Given::Other, Command::Passes { run: true });
            }
            for _ in 0..50 {
                self.turn(world, 40);
            }
        }
        // What was refused is tried again after a while.
        self.run_until(world, |_, world| !world.shards[world.home].bars_regions());
        self.client.forget_refused();
        self.write_doubted(world);
        let map = world.shards[world.home].map();
        assert!(map.is_optimal(), "{:?}", map.members);
        self.holds.gave_up = false;
        // Whatever was wrong is over: who is left out from here on has a reason from here on. Only
        // who was slow, or could not read, is remembered for that.
        let paces = world.shards[world.home].paces();
        let is_well = |pace: &array::MemberPace| {
            !pace.lags && pace.slow_windows == 0 && pace.read_errors == 0
        };
        let remembered = |position: usize| paces.get(position).is_some_and(|pace| !is_well(pace));
        let members = world.shards[world.home].map().members.iter().enumerate();
        let kept = members.filter(|(position, _)| remembered(*position));
        let kept: Vec<Option<DriveIndex>> = kept.map(|(_, member)| member.drive).collect();
        for (index, drive) in world.outside.drives.iter_mut().enumerate() {
            drive.hurt &= kept.contains(&Some(DriveIndex::from_at(index)));
        }
    }

    /// Reads everything twice and checks all parity.
    pub(super) fn check(&mut self, world: &mut World) {
        self.calm(world);
        for _ in 0..2 {
            self.read_everything(world);
        }
        self.run_until(world, |_, world| world.is_quiet());
        assert!(world.shards.iter().all(Shard::is_idle));
        check_budget(world);
        self.check_parity(world);
        // One that was barred, and that nobody asked for again, counts as dirty until its engine
        // ends (docs/design/017-refused-blocks.md).
        if self.outcome.blocks_refused.1 == 0 {
            self.run_until(world, |_, world| {
                world.is_quiet() && world.shards[world.home].is_all_clean()
            });
        }
        for volume in &world.shards[world.home]
            .coordinator()
            .expect("home")
            .config()
            .volumes
        {
            assert_eq!(volume.state, VolumeState::Ready);
        }
    }

    pub(super) fn read_everything(&mut self, world: &mut World) {
        for asked in self.client.read_all() {
            while !self.client.submit(asked.clone(), world) {
                self.turn(world, 20);
            }
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
    }

    pub(super) fn oracle(&self) -> model::Layout {
        model::Layout {
            data: self.geometry.data(),
            parity: self.geometry.parity(),
            groups: self.geometry.groups(),
            chunk_bytes: bytes_usize(self.geometry.chunk_bytes()),
            rows: bytes_usize(self.geometry.rows()),
        }
    }

    pub(super) fn check_parity(&self, world: &World) {
        let bad = self.torn_now(world);
        assert!(bad.is_empty(), "parity of stripes {bad:?} is wrong");
    }

    /// The stripes whose parity does not agree. Every member is there.
    pub(super) fn torn_now(&self, world: &World) -> Vec<StripeIndex> {
        let map = world.shards[world.home].map();
        let drive = |member: &array::MapMember| member.drive.expect("optimal").at();
        let drive = |member| Some(&world.outside.drives[drive(member)]);
        let members: Vec<Option<&SimDrive>> = map.members.iter().map(drive).collect();
        let torn = disks::torn_stripes(&self.oracle(), &self.layout, &written(world), &members);
        let torn = torn.into_iter().map(bytes_u64);
        torn.map(StripeIndex).collect()
    }
}

/// The regions that were written.
pub(super) fn written(world: &World) -> Suspects {
    let written = world.shards[world.home].written_regions();
    written.expect("asked of the home")
}

/// Of reads that could be, not more were given up than may be.
pub(super) fn check_budget(world: &World) {
    for (shard, polls) in world.shards.iter().zip(&world.polls) {
        let counters = shard.counters();
        let reads = counters.direct_reads / HEDGING.reads;
        let most = u64::from(HEDGING.burst) + reads + polls / u64::from(HEDGING.looks);
        let given_up = counters.given_up_reads;
        assert!(given_up <= most, "{given_up} reads given up, {most} may be");
    }
}

/// The drive in a member's place.
pub(super) fn position_drive(world: &World, position: usize) -> usize {
    let member = &world.shards[world.home].map().members[position];
    member.drive.expect("it is in sync").at()
}

/// Reads that went around a member, or were given up there.
fn detours(world: &World) -> u64 {
    let of = |shard: &Shard| {
        let counters = shard.counters();
        counters.detours + counters.laggard_detours + counters.given_up_reads
    };
    world.shards.iter().map(of).sum()
}
