//! How a life ends: at any moment, and at those that are hardest to survive; and how the next one
//! begins.

use std::ops::Range;

use array::assembly::Assembly;
use array::format::ExclusionCause;

use super::begun::Recovered;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// The number of the ending that leaves a record in the drives' caches.
const KILLED_IN_A_COMMIT: u64 = 6;
/// The number of the ending some steps after, whatever goes on.
const STEPS: u64 = 3;

/// In so many, a flush that was asked for has failed where it is to fail.
pub(super) const STEPS_OF_A_FLUSH: u64 = 400;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Power,
    /// The machine stays up, but drives may lose what they have not flushed.
    Killed(Option<Outage>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// Some drives lose their power before the next engine begins.
    Away,
    /// As many do as the others can do without.
    FewAway,
    /// A drive loses its cache while the next one is starting.
    Later,
    /// Flushes that are under way fail.
    Flush,
    /// The power fails while the next engines are starting.
    Reboot,
}

impl History {
    /// The process is killed or the power fails.
    pub(super) fn crash(&mut self, mut world: World) -> Vec<SimDrive> {
        self.outcome.crashes += 1;
        self.next_start.is_ordinary = true;
        self.count_unwritten(&world);
        let is_plain = !self.is_spelled && !self.record_in_doubt && !self.power_is_due;
        if is_plain && self.random.happens(150) && self.abandon_a_hold(&mut world) {
            return self.die_abandoned(world);
        }
        if is_plain && self.random.happens(80) && self.become_sound(&mut world) && !self.torn {
            return self.die_starting_over(world);
        }
        if is_plain && self.random.happens(500) && self.may_lose_caches(&mut world) {
            return self.die_trusted(world);
        }
        self.stop_at_any_moment(world)
    }

    /// The process is killed when all parity is trusted, and the next engine would not resync.
    pub(super) fn die_trusted(&mut self, world: World) -> Vec<SimDrive> {
        match self.random.below(10) {
            0..=2 => self.die_while_writing(world),
            3 | 4 => self.die_unflushed(world),
            5..=7 => self.die_with_a_loss(world),
            _ => self.die_with_full_caches(world),
        }
    }

    fn stop_at_any_moment(&mut self, mut world: World) -> Vec<SimDrive> {
        let in_a_spell = self.leave_spell(&mut world);
        // A record that is only in the caches, and the next stop before the next record counts.
        let ending = if self.record_in_doubt || in_a_spell {
            STEPS
        } else {
            self.random.below(7)
        };
        let is_killed = ending == KILLED_IN_A_COMMIT && !self.power_is_due;
        let is_likely = self.record_in_doubt || self.power_is_due || self.random.happens(500);
        let power = is_likely && !is_killed;
        self.power_is_due = false;
        self.record_in_doubt = is_killed;
        let is_protected = self.geometry.parity() > 0;
        let at_once = std::mem::take(&mut self.dies_at_once);
        let calm = !at_once && !in_a_spell;
        let may_fill = calm && self.rot.is_empty() && self.is_soundly_degraded(&world);
        if may_fill && self.random.happens(300) {
            self.write_until_whole(&mut world);
        }
        let may_log = calm && is_protected && self.is_soundly_degraded(&world);
        let writes_logged = may_log && !at_once && self.random.happens(700);
        if writes_logged {
            self.write_on_the_log(&mut world);
        }
        let logs = (at_once || writes_logged) && self.is_soundly_degraded(&world);
        self.outcome.logged += u64::from(logs);
        let may_tear = in_a_spell || !is_protected || self.is_sound(&world) || logs;
        if !may_tear {
            self.quiesce(&mut world, power);
        }
        let writes = calm && may_tear && !power;
        let is_ready = writes && self.random.happens(400) && self.become_sound(&mut world);
        let often = if self.modes.is_strict() { 700 } else { 300 };
        match ending {
            _ if at_once => {
                let steps = self.random.below(8);
                (0..steps).for_each(|_| world.step());
            }
            _ if is_ready || (writes && self.random.happens(often)) => {
                self.write_at_once(&mut world);
            }
            _ if may_tear && calm && is_protected && power && self.random.happens(400) => {
                self.write_into_caches(&mut world);
            }
            0 | KILLED_IN_A_COMMIT => self.await_metadata(&mut world, may_tear),
            1 if may_tear && power => self.rush(&mut world),
            2 if may_tear && power => self.flush_twice(&mut world),
            STEPS => {
                let steps = self.random.below(120);
                (0..steps).for_each(|_| world.step());
            }
            _ => {}
        }
        let may_lose = may_tear && !in_a_spell && !self.record_in_doubt;
        let victims = if may_lose {
            self.victims(&world, power)
        } else {
            Vec::new()
        };
        self.may_stay_busy(victims.first().copied(), power);
        self.torn |= is_protected && may_tear;
        let mut drives = self.end_beside(&victims, world, (logs, power));
        self.lose_victims(&mut drives, (&victims, power));
        self.leave_guests((power, at_once));
        drives
    }

    /// Ends with these about to be lost; `logs`: others are out already, and the log protects what
    /// is under way.
    fn end_beside(
        &mut self,
        victims: &[DriveIndex],
        world: World,
        (logs, power): (bool, bool),
    ) -> Vec<SimDrive> {
        if logs && !victims.is_empty() {
            // Nobody else may be missing as well.
            let end = [End::Killed(None), End::Power][usize::from(power)];
            self.end_by(world, end)
        } else if logs && power && self.random.happens(300) {
            self.forget_logged(world)
        } else if logs && power && self.random.happens(400) {
            self.end_before_reset(world)
        } else {
            self.end_all(world, power)
        }
    }

    /// The process is killed, and the power fails when others have been killed as well that began
    /// with what it left.
    pub(super) fn end_before_reset(&mut self, world: World) -> Vec<SimDrive> {
        self.end_by(world, End::Killed(Some(Outage::Reboot)))
    }

    /// What is being logged may be gone after a start that has begun with it.
    fn forget_logged(&mut self, world: World) -> Vec<SimDrive> {
        self.end_by(world, End::Killed(Some(Outage::Later)))
    }

    /// The process is killed after it has given up what it had begun.
    fn die_abandoned(&mut self, world: World) -> Vec<SimDrive> {
        self.torn = true;
        self.dies_at_once = false;
        let drives = self.end_all(world, false);
        self.client.stop(false);
        self.again.clear();
        drives
    }

    /// Whether nothing but what is not flushed speaks against the file of this engine.
    pub(super) fn may_lose_caches(&mut self, world: &mut World) -> bool {
        let told = self.is_told && self.started && self.become_sound(world);
        told && self.is_sound(world) && !self.torn
    }

    /// The process is killed when members have taken some of what was begun, and one of them may
    /// not take it again.
    fn die_while_writing(&mut self, mut world: World) -> Vec<SimDrive> {
        self.write_at_once(&mut world);
        self.torn = true;
        (self.dies_at_once, self.next_start.is_refused) = (false, true);
        let drives = self.end_by(world, End::Killed(None));
        self.client.stop(false);
        self.again.clear();
        drives
    }

    /// The process is killed while members write, and hold much that is not flushed; in the next
    /// start the flush of one fails.
    fn die_unflushed(&mut self, mut world: World) -> Vec<SimDrive> {
        self.write_into_caches(&mut world);
        self.write_at_once(&mut world);
        self.torn = true;
        (self.dies_at_once, self.next_start.is_unflushed) = (false, true);
        let drives = self.end_by(world, End::Killed(None));
        self.client.stop(false);
        self.again.clear();
        drives
    }

    /// Some members are flushing.
    pub(super) fn begin_a_flush(&mut self, world: &mut World) {
        if let Some(flush) = self.client.flush() {
            let _ = self.client.submit(flush, world);
        }
        for _ in 0..400 {
            if world.outside.drives.iter().any(SimDrive::is_flushing) {
                break;
            }
            self.turn(world, 1);
        }
    }

    /// The next engine is killed as well, while it resyncs, or before that.
    pub(super) fn kill_in_resync(&mut self, mut world: World) -> World {
        let stripes = self.geometry.stripes();
        let is_due = world.shards[world.home].map().trusted_until.0 < stripes;
        let is_plain = !self.record_in_doubt && self.client.pending() == 0;
        if !is_due || !is_plain || self.geometry.parity() == 0 {
            return world;
        }
        self.run_until(&mut world, |history, _| history.started);
        let steps = self.random.below(200);
        (0..steps).for_each(|_| world.step());
        let drives = self.end_all(world, false);
        self.client.stop(false);
        self.restart(drives)
    }

    pub(super) fn power_fails(&mut self, world: World) -> Vec<SimDrive> {
        self.end_by(world, End::Power)
    }

    /// Nothing runs any more: what is left on the drives, and in memory. Where power may fail, the
    /// process may also be killed, and some drives lose what they have not flushed.
    pub(super) fn end_all(&mut self, world: World, power: bool) -> Vec<SimDrive> {
        let end = if !power {
            End::Killed(None)
        } else if !self.random.happens(300) {
            End::Power
        } else if self.random.happens(400) {
            End::Killed(Some(Outage::Later))
        } else if self.random.happens(500) || !self.rot.is_empty() {
            // Members that were away would be out, and what has rotted needs them.
            End::Killed(Some(Outage::Reboot))
        } else {
            End::Killed(Some(Outage::Away))
        };
        self.end_by(world, end)
    }

    pub(super) fn end_killed(&mut self, world: World) -> Vec<SimDrive> {
        self.end_by(world, End::Killed(None))
    }

    /// Guests have what was answered since the last turn, although its engine is about to end.
    pub(super) fn judge_last_answers(&mut self, world: &mut World) {
        self.note_refusals(world);
        self.note_given_up(world);
        self.client.judge_rings();
        self.client.collect(world);
    }

    pub(super) fn end_by(&mut self, mut world: World, end: End) -> Vec<SimDrive> {
        self.judge_last_answers(&mut world);
        self.leave_open(&world, end != End::Killed(None));
        let is_ordinary = std::mem::take(&mut self.next_start.is_ordinary);
        let is_reset = end == End::Killed(Some(Outage::Reboot));
        let is_killed = is_reset || end == End::Killed(None);
        let may_lack = is_ordinary && self.may_lack_next(&world, is_killed);
        (self.next_start.may_lack, self.next_start.is_reset) = (may_lack, is_reset);
        self.outcome.trace = mix(self.outcome.trace, world.outside.trace);
        let few = self.few_away(&world, end == End::Killed(Some(Outage::FewAway)));
        let slow = end == End::Killed(Some(Outage::Flush)) || self.random.happens(200);
        let took = Duration::from_secs(if slow { 2 } else { 0 });
        self.next_start.locked = Some(Duration::from_nanos(world.outside.now.0) + took);
        let mut drives = world.die();
        self.next_start.is_forgetful = end == End::Killed(Some(Outage::Later));
        let landed = drives.iter_mut().map(|one| std::mem::take(&mut one.landed));
        self.outcome.landed += landed.sum::<u64>();
        let busy = self.stay_busy(end == End::Killed(None), &drives);
        for (index, drive) in drives.iter_mut().enumerate() {
            drive.hung = false;
            let away = end == End::Killed(Some(Outage::Away)) && self.random.happens(500);
            let away = away || few.contains(&index);
            drive.outages += u64::from(away);
            if away || end == End::Power {
                drive.power_fails(&mut self.random);
            } else {
                let flushes = drive.is_flushing();
                drive.process_dies(busy[index], &mut self.random);
                if flushes && end == End::Killed(Some(Outage::Flush)) {
                    drive.loses_cache(&mut self.random);
                }
            }
        }
        self.leave_begun(end == End::Power);
        drives
    }

    /// The next engine finds the array again, and starts it.
    pub(super) fn restart(&mut self, mut drives: Vec<SimDrive>) -> World {
        self.spell = None;
        (self.is_spelled, self.abandons) = (false, false);
        self.await_busy(&mut drives);
        for drive in &mut drives {
            drive.end_spell();
            if !self.forced && self.random.happens(300) {
                drive.heal();
            }
        }
        if std::mem::take(&mut self.next_start.is_forgetful) {
            self.fail_a_flush_of_a_start(&mut drives);
        }
        let mut assembly = disks::find(&mut drives);
        if self.random.happens(300) {
            // Killed while it caught up.
            let reached = self.random.position(assembly.behind.len() + 1);
            assembly.behind.truncate(reached);
            disks::catch_up(&mut drives, &assembly);
            assembly = disks::find(&mut drives);
        }
        disks::catch_up(&mut drives, &assembly);
        self.judge_verdict(&drives, &assembly);
        self.judge_left_out(&drives, &assembly);
        self.modes.found(assembly.config.options);
        let mut regions = disks::regions(&drives, &assembly);
        let Recovered {
            redo,
            agrees,
            unflushed,
            lost,
            found,
        } = self.recover(&mut drives, (&mut assembly, &mut regions));
        let id = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
        let mut config = assembly.start(id, true).expect("startable").clone();
        if let Some(member) = unflushed {
            assembly.members[member.at()] = None;
            let (cause, name) = (
                ExclusionCause::FlushFailed,
                assembly.config.name_of_update(),
            );
            assembly.exclude(&mut config, (member, cause), name);
        }
        found.note_replay(&mut config, &mut regions, &redo);
        recover_volumes(&mut config, &assembly, &regions);
        let mut places = disks::places(&assembly);
        for place in places.iter_mut().flatten() {
            *place = crate::world::place_of(&self.layout, &drives, place.drive.at());
        }
        for (place, record) in places.iter_mut().zip(&config.members) {
            let is_member =
                |state| matches!(state, MemberState::InSync | MemberState::Rebuilding { .. });
            *place = place.take().filter(|_| is_member(record.state));
        }
        let suspects = if agrees {
            regions.suspects_when_told(config.resynced_until)
        } else {
            regions.suspects(assembly.config.clean, config.resynced_until)
        };
        self.give_up_half_written(&mut config, lost);
        // All drives are read for it, so not at each start.
        if !self.forced && self.outcome.trace.is_multiple_of(2) {
            self.judge_trust(&drives, (&assembly, &config), |stripe| suspects.has(stripe));
        }
        let mut world = self.world(config, places, (regions, suspects), drives);
        self.note_doubted(&world);
        self.write_half_written(&mut world);
        world
    }

    /// What was half written on members that are not here is lost in the first record. Nothing else
    /// is.
    fn give_up_half_written(&mut self, config: &mut ArrayConfig, lost: Vec<Range<u64>>) {
        for block in lost.into_iter().flatten() {
            config.lost.add(block..block + 1);
            self.lose_half_written(block);
        }
        assert!(config.lost.fits(), "few writes are under way");
    }

    pub(super) fn lose_half_written(&mut self, block: u64) {
        let was_written = self.client.half_written.contains(&block);
        assert!(was_written, "nobody was writing block {block}");
        self.client.may_fail_at(block);
        self.client.lost.insert(block);
        self.client.half_lost.insert(block);
        self.outcome.half_written += 1;
    }

    /// Guests that are still there write again what was half written.
    fn write_half_written(&mut self, world: &mut World) {
        if self.client.half_lost.is_empty() {
            return;
        }
        self.run_until(world, |history, _| history.started);
        for block in std::mem::take(&mut self.client.half_lost) {
            let Some((volume, start)) = self.client.place_of(block) else {
                continue;
            };
            if self.client.hidden != Some(volume) && self.client.lost.contains(&block) {
                let write = self.client.ask(volume, Operation::Write, start, 1);
                self.submit_surely(world, write);
            }
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
    }

    /// Goes on until metadata is being written, and some steps more.
    fn await_metadata(&mut self, world: &mut World, may_tear: bool) {
        let changes = may_tear && self.random.happens(500);
        let ends = [self.layout.region_map.offset, self.layout.data.offset];
        let end = ends[self.random.position(2)];
        // A pass records how far it got, when it gets there.
        let pass = world.shards[world.home].pass_status();
        let runs = pass.is_some_and(|pass| pass.state == PassState::Running);
        // The first flush of a commit fails: it starts over. That costs a member, so that nothing
        // may be torn.
        let starts_over = may_tear && self.random.happens(300) && {
            self.quiesce(world, true);
            self.is_sound(world) && self.next_flush_fails(world).is_some()
        };
        let end = if starts_over { ends[0] } else { end };
        let changes = changes || starts_over;
        for _ in 0..if runs { 5000 } else { 500 } {
            let in_doubt = |drive: &SimDrive| drive.is_in_doubt_below(end);
            // The end of a rebuild is what nobody must believe too early.
            let pass = world.shards[world.home].pass_status();
            let is_late = may_tear || pass.is_none_or(|pass| pass.done.0 >= pass.stripes);
            if world.outside.drives.iter().any(in_doubt) && (is_late || self.random.happens(2)) {
                break;
            }
            if changes && self.started {
                self.change_volumes(world);
            }
            if may_tear {
                self.turn(world, 4);
            } else {
                // Nothing that would write again, as the zeroing of a volume.
                (0..4).for_each(|_| world.step());
            }
        }
        let steps = self.random.below(40);
        (0..steps).for_each(|_| world.step());
        if starts_over {
            for drive in &mut world.outside.drives {
                // Or it fails in the next life, which may not lose a member.
                drive.failing = drive.failing.filter(|failing| failing.count == 0);
            }
        }
    }

    /// Writes and flushes at once until a flush is answered, and not a moment more: what it
    /// promises must be true already.
    fn rush(&mut self, world: &mut World) {
        let flushes = self.client.flushed + 1 + self.random.below(4);
        for _ in 0..3000 {
            if self.client.flushed >= flushes || !self.started {
                return;
            }
            let asked = if self.random.happens(300) {
                self.client.flush()
            } else {
                let stripe_blocks = u64::from(self.geometry.stripe_blocks());
                self.client.draw(&mut self.random, stripe_blocks)
            };
            if let Some(asked) = asked {
                let _ = self.client.offer(asked, world);
            }
            let steps = self.random.below(6);
            self.turn(world, steps);
        }
    }

    /// Writes that nobody flushes: of each some members may have kept their part, others not.
    pub(super) fn write_into_caches(&mut self, world: &mut World) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let writes = 4 + self.random.below(40);
        for _ in 0..writes {
            let asked = self.client.draw(&mut self.random, stripe_blocks);
            if let Some(asked) = asked.filter(Asked::changes) {
                let _ = self.client.offer(asked, world);
            }
            let steps = self.random.below(40);
            self.turn(world, steps);
        }
    }

    /// A write while a flush is under way, and a flush after it; nothing else.
    fn flush_twice(&mut self, world: &mut World) {
        self.calm(world);
        self.run_until(world, |history, _| {
            history.started && history.client.pending() == 0
        });
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let write = self.client.draw(&mut self.random, stripe_blocks);
        for asked in [write, self.client.flush()].into_iter().flatten() {
            let _ = self.client.submit(asked, world);
            let steps = self.random.below(30);
            self.turn(world, steps);
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
        if let Some(flush) = self.client.flush() {
            let _ = self.client.submit(flush, world);
            self.run_until(world, |history, _| history.client.pending() == 0);
        }
    }

    /// Brings requests to their end, so that no stripe is torn by a stop; what goes on besides
    /// goes on.
    pub(super) fn quiesce(&mut self, world: &mut World, power: bool) {
        self.calm(world);
        self.run_until(world, |history, _| {
            history.started && history.client.pending() == 0
        });
        if power && let Some(flush) = self.client.flush() {
            // The zeroing of new volumes writes, too.
            self.run_until(world, |history, _| history.is_unchanging());
            assert!(self.client.submit(flush, world));
            self.run_until(world, |history, _| history.client.pending() == 0);
        } else {
            self.run_until(world, |history, _| history.is_unchanging());
        }
        let steps = self.random.below(60);
        for _ in 0..steps {
            world.step();
        }
    }
}

/// What a start makes of the volume table. Nothing damages copies of the region map but being cut
/// off while they are written, so that some copy of each block is good.
fn recover_volumes(config: &mut ArrayConfig, assembly: &Assembly, regions: &RegionMap) {
    let untold: Vec<_> = regions.untold().collect();
    assert!(untold.is_empty(), "{untold:?} may have been written or not");
    VolumeTable::new(config, &assembly.superblock).recover();
}
