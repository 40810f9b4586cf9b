//! The end of a life of the log, on the home: what older lives hold is brought to its end and made
//! dead. Once all members are in sync again, so that writes need the log no more; and before
//! another drive, or the one that was there, comes into a member's place.
//!
//! That drive does not have the pieces of its member: it never had them, or they were erased,
//! because what came after them was written without it. As soon as its member is in sync, a write
//! whose pieces are not all there would count as one that was not begun, and what is older would
//! be done again over it.
//!
//! And before a rebuild goes on after a window of it has failed. Cells of that window counted as
//! filled while it was open, and writes to them have logged pieces for the member that is filled.
//! Then they do not count any more: writes leave the member out, and the rebuild fills the cells
//! again, logging nothing. Once a record claims that, a replay would put what is older there.
//!
//! And before a mode counts that promises more (`auto` after `off`, `strict` after both): from here
//! on every shard logs by it, and once what was begun without has ended and is flushed, the record
//! says so.

use units::ReactorIndex;

use super::super::Shard;
use super::super::coordinate::commit_of;
use crate::coordinator::CommitPhase;
use crate::format::{ArrayOptions, WriteHole};
use crate::io::{Io, Message};
use crate::planted::{self, Fault};

/// What the home keeps for it.
#[derive(Debug, Default)]
pub(crate) struct Retire {
    /// Something may have been logged in this life.
    used: bool,
    step: Step,
    /// The command that needed it and may go on.
    done_for: Option<u64>,
    /// Cells that counted as filled do not any more, but pieces up to this life name their member.
    unfilled: Option<u64>,
}

/// What a life of the log ends for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// All members are in sync.
    Whole,
    /// This command needs it.
    Command(u64),
    /// A window of a rebuild has failed.
    Unfilled,
}

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    /// Shards are told of the life that pieces belong to from now on, and asked to finish those of
    /// the lives before.
    Asking {
        life: u64,
        todo: Vec<ReactorIndex>,
        pending: usize,
        cause: Cause,
        /// What a command changes, and the map since which all act by it.
        options: Option<(ArrayOptions, u64)>,
    },
}

impl Retire {
    /// Whether answers are still to come.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.step, Step::Asking { pending, .. } if pending > 0)
    }

    /// The mode that shards act by although no record says so yet.
    pub(crate) fn mode_ahead(&self) -> Option<WriteHole> {
        match &self.step {
            Step::Asking { options, .. } => options.map(|(options, _)| options.write_hole),
            Step::Idle => None,
        }
    }
}

/// Whether a stop may do less harm with `next` than with `now`.
fn promises_more(next: WriteHole, now: WriteHole) -> bool {
    match (now, next) {
        (WriteHole::Off, WriteHole::Auto | WriteHole::Strict)
        | (WriteHole::Auto, WriteHole::Strict) => true,
        (WriteHole::Off, WriteHole::Off)
        | (WriteHole::Auto, WriteHole::Off | WriteHole::Auto)
        | (WriteHole::Strict, WriteHole::Off | WriteHole::Auto | WriteHole::Strict) => false,
    }
}

impl Shard {
    fn retire(&mut self) -> &mut Retire {
        &mut self.decider().retire
    }

    pub(in crate::shard) fn log_drained(&mut self) {
        if let Step::Asking { pending, .. } = &mut self.retire().step {
            *pending -= 1;
        }
    }

    /// Once all members are in sync again, what the log holds is made dead, so that writes need it
    /// no more.
    pub(in crate::shard) fn advance_retire(&mut self, io: &mut impl Io) -> usize {
        let due = self.is_log_over();
        self.note_log_use();
        if matches!(self.retire().step, Step::Asking { .. }) {
            return self.drain(io);
        }
        // A record cannot be committed now, and nothing can be filled either.
        let unfilled = self.is_refill_unsafe() && !self.map.is_broken();
        if !unfilled && (!due || !self.retire().used) {
            return 0;
        }
        let cause = if unfilled {
            Cause::Unfilled
        } else {
            Cause::Whole
        };
        self.begin_retire(cause, None, io);
        1
    }

    /// Something may be logged by the present map.
    pub(in crate::shard) fn note_log_use(&mut self) {
        let whole = self.is_whole_without_log();
        self.retire().used |= !whole;
    }

    /// Whether the log may name what is older than the members' chunks.
    pub(in crate::shard) fn is_log_used(&mut self) -> bool {
        self.note_log_use();
        self.retire().used
    }

    /// The command that a life has ended for needs another to end.
    pub(in crate::shard) fn forget_retired(&mut self) {
        self.retire().done_for = None;
    }

    /// A window of a rebuild has failed.
    pub(in crate::shard) fn unfill(&mut self) {
        if !planted::is(Fault::FilledAgainOverTheLog) {
            self.retire().unfilled = Some(self.map.log_life);
        }
    }

    /// Whether what is logged names members where a rebuild is to fill them again.
    pub(in crate::shard) fn is_refill_unsafe(&self) -> bool {
        let decider = self.coordinator.as_deref().expect("the home");
        let logs = self.geometry().has_write_hole();
        let names = |life: u64| decider.config.log_from <= life;
        decider.retire.unfilled.is_some_and(names) && logs && decider.is_writing_records()
    }

    /// Before a drive comes into a member's place: `None` once nothing that is logged names the
    /// drive before it.
    pub(in crate::shard) fn retire_for(&mut self, command: u64, io: &mut impl Io) -> Option<usize> {
        if planted::is(Fault::DriveBeforeLogRetired) {
            return None;
        }
        self.begin_life_for(command, None, io)
    }

    /// Before a mode counts that promises more: `None` once all that was begun without it has
    /// ended, and the record says so.
    pub(in crate::shard) fn strengthen_for(
        &mut self,
        command: u64,
        options: ArrayOptions,
        io: &mut impl Io,
    ) -> Option<usize> {
        // While shards are asked the map is ahead of the record, which decides.
        let recorded = self.decider().config.options.write_hole;
        if !promises_more(options.write_hole, recorded) || planted::is(Fault::ModeCountsAtOnce) {
            return None;
        }
        self.begin_life_for(command, Some(options), io)
    }

    /// Lets a life of the log end for a command: `None` once nothing of older lives counts.
    pub(in crate::shard) fn begin_life_for(
        &mut self,
        command: u64,
        options: Option<ArrayOptions>,
        io: &mut impl Io,
    ) -> Option<usize> {
        let decider = self.coordinator.as_deref().expect("the home");
        let logs = self.geometry().has_write_hole();
        if !decider.is_writing_records() || !logs {
            return None;
        }
        if self.retire().done_for == Some(command) {
            return None;
        }
        if matches!(self.retire().step, Step::Asking { .. }) {
            return Some(self.drain(io));
        }
        self.begin_retire(Cause::Command(command), options, io);
        Some(1)
    }

    fn is_whole_without_log(&self) -> bool {
        self.map.is_whole() && self.map.write_hole != WriteHole::Strict
    }

    /// Whether nothing needs the log any more.
    fn is_log_over(&self) -> bool {
        let decider = self.coordinator.as_deref().expect("the home");
        let runs = decider.started && !decider.stopped;
        let needs = self.map.is_broken() || self.geometry().data() == 1;
        self.is_whole_without_log() && runs && !needs
    }

    fn begin_retire(&mut self, cause: Cause, options: Option<ArrayOptions>, io: &mut impl Io) {
        let (me, life) = (self.me, self.map.log_life + 1);
        let others = self.decider().reactors.iter().copied();
        let todo = others.filter(|&reactor| reactor != me).collect();
        let mut map = self.successor();
        map.log_life = life;
        if let Some(options) = options {
            map.write_hole = options.write_hole;
        }
        self.retire().step = Step::Asking {
            life,
            todo,
            pending: 0,
            cause,
            options: options.map(|options| (options, map.serial)),
        };
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
    }

    /// Asks the shards, and commits what follows when all have finished.
    fn drain(&mut self, io: &mut impl Io) -> usize {
        let decider = self.coordinator.as_deref_mut().expect("the home");
        let Step::Asking {
            life,
            todo,
            pending,
            cause,
            options,
        } = &mut decider.retire.step
        else {
            return 0;
        };
        let (life, cause, options) = (*life, *cause, *options);
        let since = options.map_or(0, |(_, serial)| serial);
        let mut moved = 0;
        while let Some(&reactor) = todo.last() {
            if io.ask(reactor, Message::DrainLog { life, since }).is_err() {
                break;
            }
            self.counters.messages += 1;
            todo.pop();
            *pending += 1;
            moved += 1;
        }
        if !todo.is_empty() || *pending > 0 || !self.is_drained(life, since) {
            return moved;
        }
        self.retire().step = Step::Idle;
        // After a record that failed none may follow: this one would have its number. Nor may one
        // follow the last of a stop.
        let goes_on = match cause {
            Cause::Whole => self.is_log_over(),
            Cause::Command(_) => true,
            Cause::Unfilled => !self.map.is_broken(),
        };
        let decider = self.decider();
        if !goes_on || !decider.is_writing_records() {
            return moved + 1;
        }
        decider.retire.used = cause != Cause::Whole;
        decider.retire.done_for = match cause {
            Cause::Command(command) => Some(command),
            Cause::Whole | Cause::Unfilled => None,
        };
        let id = decider.draw_id();
        let mut next = decider.config.next(id);
        next.log_from = life;
        if let Some((options, _)) = options {
            decider.scrub.change_rate(&next.options, &options);
            next.options = options;
        }
        let places = decider.places.clone();
        self.begin_commit(commit_of(next, places, CommitPhase::FlushData));
        moved + 1
    }
}
