//! Stripes go from one reactor to others while requests go on.
//!
//! What keeps two writes to a stripe apart is that one reactor makes its tickets. So there must be
//! no moment in which two do:
//!
//! ```text
//! a map by which nobody owns what moves, on every shard: nothing more is asked of the owner
//!   → fences: what every shard asked the owner before has come there
//!   → the owner has finished all of it
//!   → the owner's log names nothing
//!   → a map by which the next one owns it
//! ```
//!
//! In between, requests for these stripes wait where they arrived, in nobody's way; reads of blocks
//! that are where they belong do not ask an owner. That takes some messages and as long as the
//! writes that are under way. When it takes longer, because a drive does not answer, the owner
//! keeps its stripes: nobody else has touched them.
//!
//! A reactor logs in slots of its own. Those of two are written again after a stop in the order of
//! lives of the log only, and the next owner does not know which cells they name; so where the
//! owner's slots name anything, a life ends before the next one begins. Cells that the window of a
//! pass has done are known to their owner; so it is not done while a window is open.

use std::sync::Arc;
use std::time::Duration;

use units::limits::BUCKETS;
use units::{Instant, ReactorIndex};

use super::super::Shard;
use super::not_running;
use crate::command::{Command, Refusal};
use crate::io::{Event, Io, Message};
use crate::owners::{Handover, Owners};
use crate::planted::{self, Fault};

/// Buckets that go at once: requests for one in so many stripes wait meanwhile.
const BUCKETS_AT_ONCE: usize = BUCKETS / 32;
/// How long writes that are under way are waited for, and then a record.
const PATIENCE: Duration = Duration::from_millis(100);
const RECORD_PATIENCE: Duration = Duration::from_secs(2);
/// Lives of the log that are left to others: there are only so many between two starts.
const LIVES_MAX: u64 = 1 << 19;

/// What the home keeps for it.
#[derive(Debug, Default)]
pub(crate) struct HandingOver {
    step: Step,
    /// Answers that are still to come.
    fences: usize,
    drains: usize,
    /// The owner's log names what it has written.
    named: bool,
}

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    /// Shards that are still to be asked for a fence.
    Fencing(Move, Vec<ReactorIndex>),
    /// Whether the owner was asked.
    Draining(Move, bool),
    /// The owner has finished, and what its log names is made dead.
    Retiring(Move),
}

#[derive(Clone, Debug)]
struct Move {
    from: ReactorIndex,
    before: Arc<Owners>,
    after: Arc<Owners>,
    since: Instant,
}

impl HandingOver {
    pub(crate) fn fenced(&mut self) {
        self.fences -= 1;
    }

    pub(crate) fn handed_over(&mut self, named: bool) {
        self.drains -= 1;
        self.named = named;
    }

    /// Whether answers are still to come.
    pub(crate) fn is_asking(&self) -> bool {
        self.fences + self.drains > 0
    }

    /// When it is given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.step {
            Step::Fencing(this, _) | Step::Draining(this, _) => Some(this.since + PATIENCE),
            Step::Retiring(this) => Some(this.since + RECORD_PATIENCE),
            Step::Idle => None,
        }
    }
}

impl Shard {
    /// One step towards owners that a command wants. It is the first that waits, until it is done.
    pub(super) fn distribute(&mut self, command: u64, target: &Owners, io: &mut impl Io) -> usize {
        match std::mem::take(&mut self.decider().handing_over.step) {
            Step::Idle => self.begin_move(command, target, io),
            Step::Fencing(this, todo) => self.fence(this, todo, io),
            Step::Draining(this, asked) => self.drain_owner(this, asked, io),
            Step::Retiring(this) => self.retire_owner(command, this, io),
        }
    }

    /// What takes too long is given up, whatever else goes on: a record may wait for members for
    /// long. The owner keeps what is not handed over.
    pub(super) fn withdraw_handover(&mut self, io: &mut impl Io) -> usize {
        let late = |at: Instant| at <= io.now();
        let deadline = self.decider().handing_over.deadline();
        if deadline.is_none_or(|at| !late(at) && !self.map.is_broken()) {
            return 0;
        }
        let step = std::mem::take(&mut self.decider().handing_over.step);
        let (Step::Fencing(this, _) | Step::Draining(this, _) | Step::Retiring(this)) = step else {
            unreachable!("there is a deadline");
        };
        let mut map = self.successor();
        map.owners = this.before;
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        self.forget_retired();
        self.end_distribution(Err(does_not_end()), io)
    }

    /// A distribution that has to wait is no reason for others to wait: nobody has asked for it.
    /// Whether something else is the first command then.
    pub(super) fn let_others_pass(&mut self) -> bool {
        let commands = &mut self.decider().commands;
        let waits = |(_, command): &(u64, Command)| matches!(command, Command::Distribute(_));
        let other = commands.iter().position(|command| !waits(command));
        let passes = other
            .filter(|&place| place > 0)
            .and_then(|place| commands.remove(place));
        let passed = passes.is_some();
        commands.extend(passes);
        commands.rotate_right(usize::from(passed));
        passed
    }

    fn begin_move(&mut self, command: u64, target: &Owners, io: &mut impl Io) -> usize {
        if self.decider().handing_over.is_asking() {
            // Of one that was given up.
            return 0;
        }
        if let Err(refusal) = self.may_distribute(command, target) {
            return self.end_distribution(Err(refusal), io);
        }
        // Where lives of the log end for it, they are few.
        let most = if self.is_log_used() {
            BUCKETS
        } else {
            BUCKETS_AT_ONCE
        };
        let Some(Handover {
            from,
            between,
            after,
        }) = self.map.owners.toward(target, most)
        else {
            return self.end_distribution(Ok(()), io);
        };
        let is_first = |first: Option<&(u64, _)>| first.is_some_and(|first| first.0 == command);
        assert!(is_first(self.decider().commands.front()), "one at a time");
        let this = Move {
            from,
            before: Arc::clone(&self.map.owners),
            after,
            since: io.now(),
        };
        let mut map = self.successor();
        if planted::is(Fault::HandedOverAtOnce) {
            map.owners = this.after;
            self.begin_broadcast(map, Vec::new(), Vec::new(), io);
            return 1;
        }
        map.owners = between;
        let all = self.decider().reactors.iter().copied();
        let todo = if planted::is(Fault::HandedOverUnfenced) {
            Vec::new()
        } else {
            all.filter(|&reactor| reactor != from).collect()
        };
        self.decider().handing_over.step = Step::Fencing(this, todo);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        1
    }

    fn may_distribute(&mut self, command: u64, target: &Owners) -> Result<(), Refusal> {
        let decider = self.decider();
        // Who asked first may have given up. Two would take stripes back from each other for ever.
        let overrules =
            |(id, other): &(u64, Command)| *id > command && matches!(other, Command::Distribute(_));
        if decider.commands.iter().any(overrules) {
            let text = "stripes are to go elsewhere since";
            return Err(Refusal::Failed(text.to_owned()));
        }
        let known = |reactor: &ReactorIndex| decider.reactors.contains(reactor);
        if target.is_moving() || !target.reactors().iter().all(known) {
            let text = "stripes can only go to reactors that have a share of the array";
            return Err(Refusal::Invalid(text.to_owned()));
        }
        if !decider.is_writing_records() {
            return Err(not_running());
        }
        if self.map.is_broken() {
            return Err(does_not_end());
        }
        Ok(())
    }

    /// Every shard knows by its map that nobody owns what moves.
    fn fence(&mut self, this: Move, mut todo: Vec<ReactorIndex>, io: &mut impl Io) -> usize {
        let mut moved = 0;
        while let Some(&reactor) = todo.last() {
            if reactor == self.me {
                self.begin_fence(reactor, this.from);
            } else if io
                .ask(reactor, Message::Fence { owner: this.from })
                .is_err()
            {
                break;
            } else {
                self.counters.messages += 1;
            }
            todo.pop();
            self.decider().handing_over.fences += 1;
            moved += 1;
        }
        let handing_over = &mut self.decider().handing_over;
        handing_over.step = if todo.is_empty() && handing_over.fences == 0 {
            moved += 1;
            Step::Draining(this, planted::is(Fault::HandedOverUndrained))
        } else {
            Step::Fencing(this, todo)
        };
        moved
    }

    /// All that the owner was asked is with it.
    fn drain_owner(&mut self, this: Move, mut asked: bool, io: &mut impl Io) -> usize {
        let mut moved = 0;
        if !asked {
            if this.from == self.me {
                self.begin_hand_over(this.from);
                asked = true;
            } else if io.ask(this.from, Message::HandOver).is_ok() {
                self.counters.messages += 1;
                asked = true;
            }
            self.decider().handing_over.drains += usize::from(asked);
            moved += usize::from(asked);
        }
        let is_drained = asked && !self.decider().handing_over.is_asking();
        self.decider().handing_over.step = if is_drained {
            moved += 1;
            Step::Retiring(this)
        } else {
            Step::Draining(this, asked)
        };
        moved
    }

    /// The owner has nothing under way there any more.
    fn retire_owner(&mut self, command: u64, this: Move, io: &mut impl Io) -> usize {
        let named = if planted::is(Fault::HandedOverUnderNames) {
            self.is_log_used()
        } else {
            self.decider().handing_over.named
        };
        if named && !planted::is(Fault::HandedOverWithTheLog) {
            let begun = crate::assembly::lives_since_start(self.map.log_life);
            if begun > LIVES_MAX {
                // As if it took too long.
                let since = Instant(0);
                self.decider().handing_over.step = Step::Retiring(Move { since, ..this });
                return 1;
            }
            if let Some(moved) = self.begin_life_for(command, None, io) {
                self.decider().handing_over.step = Step::Retiring(this);
                return moved;
            }
        }
        self.forget_retired();
        let mut map = self.successor();
        map.owners = this.after;
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        // Others need not wait for all of it.
        self.decider().commands.rotate_left(1);
        1
    }

    fn end_distribution(&mut self, result: Result<(), Refusal>, io: &mut impl Io) -> usize {
        let ended = self.decider().commands.pop_front();
        let (id, _) = ended.expect("it is the first until it ends");
        io.event(Event::CommandDone { id, result });
        1
    }
}

fn does_not_end() -> Refusal {
    let text = "members are waited for, or drives take long: stripes stay with their reactors";
    Refusal::Failed(text.to_owned())
}
