//! What closes the write hole is changed while an array runs, and what else may be changed then.
//!
//! What is promised at a moment is the weakest of all modes that may be in force: a weaker one from
//! the moment at which it is asked for, a stronger one only when the change was confirmed.
//! *strict*: a member may be lost together with the power. *auto*: that may be so while another is
//! out already, and then of what is written meanwhile nothing else is lost. *off*: such a stop may
//! lose the blocks of members that are out, in rows that were being written or were not flushed,
//! and nothing besides.

use array::format::{ArrayOptions, HedgedReads};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Modes, of which each promises more than those before it.
const MODES: [WriteHole; 3] = [WriteHole::Off, WriteHole::Auto, WriteHole::Strict];
const HEDGED: [HedgedReads; 2] = [HedgedReads::Auto, HedgedReads::Always];
/// Turns that a change is waited for.
const TURNS: usize = 400;

/// Turns that a write takes which takes long.
const KEPT_TURNS: usize = 60;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Modes {
    /// What the next engine may find: more than one while a change is on its way.
    possible: Vec<ArrayOptions>,
    /// What is promised.
    promised: WriteHole,
}

fn rank(mode: WriteHole) -> usize {
    MODES.iter().position(|other| *other == mode).expect("all")
}

impl Modes {
    /// An array is made with these.
    pub(super) fn begin(&mut self, options: ArrayOptions) {
        self.possible = vec![options];
        self.promised = options.write_hole;
    }

    pub(super) fn is_strict(&self) -> bool {
        self.promised == WriteHole::Strict
    }

    fn weaken(&mut self, mode: WriteHole) {
        if rank(mode) < rank(self.promised) {
            self.promised = mode;
        }
    }

    /// The last change asked for is on the drives and with every reactor.
    pub(super) fn confirmed(&mut self) {
        self.possible.drain(..self.possible.len() - 1);
        self.promised = self.possible[0].write_hole;
    }

    /// The last change asked for is confirmed; or refused, because parity may not agree that nobody
    /// has logged.
    pub(super) fn done(&mut self, doomed: bool, result: &Result<(), Refusal>) {
        let says = "parity may not agree";
        if matches!(result, Err(Refusal::Failed(why)) if why.starts_with(says)) {
            let asked = self.possible.pop().expect("it was asked for");
            assert_eq!(asked.write_hole, WriteHole::Strict, "{result:?}");
            return;
        }
        assert!(doomed || result.is_ok(), "{result:?}");
        self.confirmed();
    }

    /// The next engine has found these.
    pub(super) fn found(&mut self, options: ArrayOptions) {
        let known = self.possible.contains(&options);
        assert!(known, "{options:?} were not asked for: {:?}", self.possible);
        self.possible.retain(|other| *other != options);
        self.possible.push(options);
        self.promised = options.write_hole;
        for other in 0..self.possible.len() {
            self.weaken(self.possible[other].write_hole);
        }
    }
}

impl History {
    /// What an array is made with.
    pub(super) fn draw_options(&mut self, options: &mut ArrayOptions) {
        options.hold_timeout_seconds = [0, 6, 10][self.random.position(3)];
        options.write_hole = match self.random.below(20) {
            0..3 => WriteHole::Strict,
            3..5 => WriteHole::Off,
            _ => WriteHole::Auto,
        };
        options.hedged_reads = HEDGED[self.random.position(2)];
        self.draw_scrub_options(options);
        self.modes.begin(*options);
    }

    /// Some options change, at any moment.
    pub(super) fn change_options(&mut self, world: &mut World) {
        if self.given.is_some() {
            return;
        }
        match self.random.below(6) {
            0..3 => self.strengthen(world),
            3 if !self.is_spelled => self.back_and_forth(world),
            _ => self.give_some_options(world),
        }
    }

    pub(super) fn options(world: &World) -> ArrayOptions {
        let coordinator = world.shards[world.home].coordinator().expect("home");
        coordinator.config().options
    }

    fn give_some_options(&mut self, world: &mut World) {
        let mut options = Self::options(world);
        options.write_hole = MODES[self.random.position(3)];
        // How long is waited for members is known when they go away.
        if !self.is_spelled && self.random.happens(300) {
            options.hold_timeout_seconds = [0, 6, 10][self.random.position(3)];
        }
        if self.random.happens(300) {
            options.rebuild_floor_bytes_per_second = self.random.below(1 << 30);
            options.latency_target_us = u32::from(self.random.happens(500)) * 500;
            self.draw_scrub_options(&mut options);
        }
        if self.random.happens(300) {
            options.hedged_reads = HEDGED[self.random.position(2)];
        }
        self.give_options(world, options);
    }

    pub(super) fn give_options(&mut self, world: &mut World, options: ArrayOptions) {
        self.outcome.modes += 1;
        self.modes.weaken(options.write_hole);
        self.modes.possible.push(options);
        self.give(world, Given::Options, Command::Options(options));
    }

    pub(super) fn give_mode(&mut self, world: &mut World, mode: WriteHole) {
        let mut options = Self::options(world);
        options.write_hole = mode;
        self.give_options(world, options);
    }

    /// What is written while members are out is logged; if `strict`, all is.
    pub(super) fn give_log_mode(&mut self, world: &mut World, strict: bool) {
        self.run_until(world, |history, _| {
            history.started && history.given.is_none()
        });
        if strict {
            self.give_mode(world, WriteHole::Strict);
        } else if self.modes.promised == WriteHole::Off {
            self.give_mode(world, WriteHole::Auto);
        }
    }

    /// From an array in order to one that is so again: the strongest mode is asked for, and a
    /// member is lost together with the power as soon as it counts.
    pub(super) fn strengthen_at_last(&mut self, mut world: World) -> World {
        let may = self.geometry.parity() > 0 && self.geometry.data() > 1 && !self.forced;
        if !may || self.client.disks.is_empty() || !self.random.happens(200) {
            return world;
        }
        if self.modes.is_strict() {
            self.give_mode(&mut world, WriteHole::Auto);
            self.await_commands(&mut world);
        }
        self.strengthen_to(&mut world, WriteHole::Strict);
        if self.power_is_due {
            let drives = self.crash(world);
            world = self.restart(drives);
        }
        self.run_until(&mut world, |history, _| history.started);
        self.read_everything(&mut world);
        self.settle(&mut world);
        world
    }

    /// A stronger mode is asked for, at any moment.
    fn strengthen(&mut self, world: &mut World) {
        let mode = MODES[1 + self.random.position(2)];
        if rank(self.modes.promised) >= rank(mode) {
            self.give_some_options(world);
            return;
        }
        if self.geometry.parity() == 0 || self.geometry.data() == 1 || self.is_spelled {
            return;
        }
        if self.random.happens(500) {
            let _ = self.become_sound(world);
        }
        self.strengthen_to(world, mode);
    }

    /// Writes go on while a stronger mode is asked for, and as soon as it is confirmed the end
    /// comes: what was begun before must be as safe as what is begun after it.
    fn strengthen_to(&mut self, world: &mut World, mode: WriteHole) {
        // What was begun while more members were here is what `auto` leaves open.
        self.wait(world, |_, world| {
            world.shards.iter().all(Shard::is_by_present_members)
        });
        if self.given.is_some() {
            return;
        }
        let slow = self.random.position(world.shards.len());
        world.outside.mail_is_slow[slow] |= self.random.happens(500);
        let writes = self.random.below(8);
        self.write_some(world, writes);
        if self.given.is_some() {
            return;
        }
        if self.random.happens(700) {
            self.keep_a_write(world);
        }
        // Something else may have been ordered meanwhile.
        if self.given.is_none() {
            self.give_mode(world, mode);
        }
        for turn in 0..TURNS {
            if self.given.is_none() {
                break;
            }
            if turn == KEPT_TURNS {
                world
                    .outside
                    .drives
                    .iter_mut()
                    .for_each(SimDrive::let_writes_go);
            }
            if self.random.happens(300) {
                self.write_some(world, 1);
            }
            let steps = 1 + self.random.below(10);
            self.turn(world, steps);
        }
        let strict = self.modes.is_strict() && self.is_sound(world) && !self.torn;
        let auto = self.modes.promised != WriteHole::Off && self.is_soundly_degraded(world);
        if self.given.is_none() && (strict || auto) && self.random.happens(700) {
            self.outcome.strengthened += 1;
            self.power_is_due = true;
            self.dies_at_once = true;
        } else {
            world
                .outside
                .drives
                .iter_mut()
                .for_each(SimDrive::let_writes_go);
        }
    }

    /// Of some write one member takes long over its part.
    fn keep_a_write(&mut self, world: &mut World) {
        let data = self.layout.data.offset;
        for _ in 0..KEPT_TURNS {
            self.write_some(world, 1);
            let drives = &mut world.outside.drives;
            let writing = drives.iter_mut().find(|drive| drive.is_writing_from(data));
            if let Some(drive) = writing {
                drive.hurt = true;
                drive.keep_writes_from(data);
                return;
            }
        }
    }

    /// A mode is left and comes back, while something is written in each.
    fn back_and_forth(&mut self, world: &mut World) {
        let before = Self::options(world).write_hole;
        for mode in [MODES[self.random.position(3)], before] {
            if self.given.is_some() || !self.started {
                return;
            }
            self.give_mode(world, mode);
            let writes = 1 + self.random.below(6);
            self.write_some(world, writes);
            self.wait(world, |history, _| history.given.is_none());
            let writes = self.random.below(4);
            self.write_some(world, writes);
        }
    }

    /// Before a stop: which blocks may hold anything after it, because nothing was logged. Blocks
    /// of members that are out, where the stop may tear a row; a kill tears none if the next
    /// engine knows what was begun.
    pub(super) fn leave_open(&mut self, world: &World, power: bool) {
        let map = world.shards[world.home].map();
        let known = !power && self.is_told && self.started;
        let exposed = self.modes.promised == WriteHole::Off && self.geometry.data() > 1;
        if !exposed || known || map.is_whole() || self.geometry.parity() == 0 {
            return;
        }
        let chunk = u64::from(self.geometry.chunk_blocks());
        let first = self.first_block();
        let end = first + self.layout.data.length / self.block_bytes();
        let mut rows = std::collections::BTreeSet::new();
        for (position, member) in map.members.iter().enumerate() {
            let Some(drive) = member.drive.filter(|_| member.state != MapState::Lost) else {
                continue;
            };
            for block in world.outside.drives[drive.at()].unsettled(power) {
                if (first..end).contains(&block) {
                    let lane = (block - first) % chunk;
                    let member = MemberIndex::from_at(position);
                    rows.insert((self.geometry.stripe_at(member, block - first), lane));
                }
            }
        }
        let mut blocks = Vec::new();
        for (stripe, lane) in rows {
            for role in 0..self.geometry.data() {
                let (_, member) = map.member(stripe, Role::from_at(role));
                if member.state != MapState::InSync {
                    let chunk_index = stripe.0 * bytes_u64(self.geometry.data()) + bytes_u64(role);
                    blocks.push(chunk_index * chunk + lane);
                }
            }
        }
        for block in blocks {
            self.outcome.left_open += u64::from(self.client.may_be_anything(block));
        }
    }
}
