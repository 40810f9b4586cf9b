//! Members that fail and that the array waits for, on the home shard: when the hold begins, who is
//! in it, when it is given up, and when a member works again.
//!
//! A member is held when the array cannot do without it and what failed may pass, and when its
//! host has no space left, because all drives of one host fill up together. From time to time the
//! home reads from it. Once that goes well, and no shard has a request to it that has not gone
//! well, it is a member as before. After the hold timeout those that can be left out are, and the
//! others are given up: requests fail, and the home goes on looking.

mod beside;
mod ending;
mod last;

use std::time::Duration;

use block::Status;
use units::{Instant, MemberIndex, MemberSet, ReactorIndex};

use self::last::LastHold;
use super::super::{DriveIo, IoOwner, Shard};
use super::exclude::Fate;
use crate::command::Command;
use crate::coordinator::Coordinator;
use crate::format::ArrayConfig;
use crate::io::{Event, Io, MemberFailure, Message};

/// Between two looks at all members that are held.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// When some members work again, so long is waited for the others before they are left out.
const STRAGGLERS: Duration = Duration::from_secs(2);
/// So long is waited for the answer of one member before the next one is looked at.
const PROBE: Duration = Duration::from_millis(500);

/// Members that are waited for.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    since: Instant,
    pub(super) members: Vec<(MemberIndex, Status)>,
    /// Who has been waited for since it began.
    met: MemberSet,
    given_up: bool,
    /// When one of them worked again.
    eased: Option<Instant>,
    look_at: Instant,
}

/// How far the look at the members that are held is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Look {
    #[default]
    Waiting,
    /// The next member is to be read from.
    Next { position: usize },
    /// A member is read from.
    Reading {
        position: usize,
        member: MemberIndex,
        until: Instant,
    },
    /// Shards are asked whether their requests to it have gone well.
    Asking {
        position: usize,
        member: MemberIndex,
        todo: Vec<ReactorIndex>,
        pending: usize,
        waits: bool,
    },
}

/// What the home keeps for holds.
#[derive(Debug)]
pub(crate) struct HoldKeeper {
    pub(super) holding: Option<Holding>,
    look: Look,
    /// By member: it is read from and has not answered.
    probing: Vec<bool>,
    /// By member: it was not there when it was read from last.
    absent: Vec<bool>,
    /// By member: it was waited for long enough and is left out now.
    pub(super) tired: Vec<bool>,
    last: Option<LastHold>,
    /// A pass was given up in the window that is open.
    pub(in crate::shard) window_spoiled: bool,
    /// Who is asked whether more members are gone than one.
    pub(super) call: Option<RollCall>,
    pub(super) calls: u32,
}

/// All members that count are read from, because one is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollCall {
    pub(super) serial: u32,
    pub(super) until: Instant,
    pub(super) pending: usize,
    /// Members from this one on are still to be asked, as there is room.
    pub(super) next: usize,
}

/// A hold, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldStatus {
    /// When it began.
    pub since: Instant,
    /// When it is given up, or was.
    pub until: Instant,
    /// Whether it was given up.
    pub given_up: bool,
    /// Who is waited for, and what their drives said.
    pub members: Vec<(MemberIndex, Status)>,
}

impl HoldKeeper {
    /// Whether tickets wait for members to come back.
    pub(in crate::shard) fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    /// For so many members.
    pub(crate) fn new(members: usize) -> HoldKeeper {
        HoldKeeper {
            holding: None,
            look: Look::Waiting,
            probing: vec![false; members],
            absent: vec![false; members],
            tired: vec![false; members],
            last: None,
            window_spoiled: false,
            call: None,
            calls: 0,
        }
    }

    /// Whether a member is waited for only because its host has no space left: what it has can be
    /// read.
    pub(super) fn is_full(&self, member: MemberIndex) -> bool {
        let full = |held: &(MemberIndex, Status)| *held == (member, Status::NoSpace);
        let holding = self.holding.as_ref();
        let full = holding.is_some_and(|holding| holding.members.iter().any(full));
        full && !self.absent[member.at()]
    }

    /// Members are out, and a record says so.
    pub(super) fn have_left(&mut self) {
        self.last.take_if(|last| !last.given_up);
    }

    /// Another drive is in a member's place.
    pub(super) fn is_replaced(&mut self, member: MemberIndex) {
        self.tired[member.at()] = false;
    }

    /// Whether answers of other shards are still to come.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.look, Look::Asking { pending, .. } if pending > 0)
    }

    /// When the home is to go on although nobody answers.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let call = self.call.map(|call| call.until);
        let holding = self.holding.as_ref();
        let look = match self.look {
            Look::Waiting => holding.map(|holding| holding.look_at),
            Look::Reading { until, .. } => Some(until),
            Look::Next { .. } | Look::Asking { .. } => None,
        };
        call.into_iter().chain(look).min()
    }
}

impl Shard {
    /// The record that is durable, and the latest that was attempted, on the home shard.
    #[must_use]
    pub fn records(&self) -> Option<[ArrayConfig; 2]> {
        let coordinator = self.coordinator.as_deref()?;
        let durable = coordinator.config();
        let attempted = coordinator.commit.as_ref().map(|commit| &commit.config);
        Some([durable, attempted.unwrap_or(durable)].map(ArrayConfig::clone))
    }

    /// The record that is durable, on the home shard, once the array has started: before, it is
    /// the one that the start makes.
    #[must_use]
    pub fn durable(&self) -> Option<&ArrayConfig> {
        let coordinator = self.coordinator.as_deref()?;
        coordinator.started.then(|| coordinator.config())
    }

    /// What is waited for, on the home shard.
    #[must_use]
    pub fn hold_status(&self) -> Option<HoldStatus> {
        let coordinator = self.coordinator.as_deref()?;
        let holding = coordinator.hold.holding.as_ref()?;
        Some(HoldStatus {
            since: holding.since,
            until: holding.since + timeout(coordinator),
            given_up: holding.given_up,
            members: holding.members.clone(),
        })
    }

    /// One step of what holds ask for; nothing while a map is on its way.
    pub(super) fn advance_holding(&mut self, io: &mut impl Io) -> usize {
        let moved = self.hold_beside_a_record(io);
        if moved > 0 {
            return moved;
        }
        let moved = self.hold_failures(io);
        if moved > 0 {
            return moved;
        }
        let decider = self.decider();
        if decider.hold.holding.is_none() {
            return self.advance_look(io);
        }
        let stops = |(_, command): &(u64, Command)| matches!(command, Command::Stop);
        if decider.commands.iter().any(stops) {
            return self.end_for_a_stop(io);
        }
        if self.forget_settled(io) {
            return 1;
        }
        let now = io.now();
        let decider = self.decider();
        let limit = timeout(decider);
        let holding = decider.hold.holding.as_ref().expect("looked at");
        let late = !holding.given_up && now.since(holding.since) >= limit;
        let eased = holding.eased;
        let straggles = eased.is_some_and(|eased| now.since(eased) >= STRAGGLERS);
        if late || straggles {
            return self.time_out(late, now, io);
        }
        self.advance_look(io)
    }

    // ---- beginning -----------------------------------------------------------------------

    /// Takes from the failures that were told those that need no commit.
    fn hold_failures(&mut self, io: &mut impl Io) -> usize {
        let decider = self.coordinator.as_deref_mut().expect("the home");
        if decider.failures.is_empty() || !decider.started || decider.metadata_failed {
            return 0;
        }
        let failures = std::mem::take(&mut decider.failures);
        let decider = self.coordinator.as_deref().expect("the home");
        let config = decider.commit.as_ref().map(|commit| &commit.config);
        let config = config.unwrap_or(&decider.config);
        let (mut held, mut hopeless, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for failure in failures {
            let MemberFailure {
                member,
                incarnation,
                ..
            } = failure;
            let known = failure.passing && self.map.held[member.at()];
            if known || self.map.settled(member, incarnation) {
                continue;
            }
            if failure.late {
                // Nothing failed: it is left out, or it is not.
                rest.push(failure);
                continue;
            }
            match self.fate(config, &failure) {
                Fate::Excluded | Fate::Open => rest.push(failure),
                Fate::Held => held.push(failure),
                Fate::Hopeless => hopeless.push(failure),
            }
        }
        let decider = self.decider();
        decider.failures = rest;
        if decider.failures.is_empty() {
            // The member that it was for is full, or out: nobody looks when the call ends.
            decider.hold.call = None;
        }
        if held.is_empty() && hopeless.is_empty() {
            return 0;
        }
        self.hold(&held, &hopeless, io);
        1
    }

    /// Waits for members from now on, and calls others hopeless.
    pub(super) fn hold(
        &mut self,
        held: &[MemberFailure],
        hopeless: &[MemberFailure],
        io: &mut impl Io,
    ) {
        let mut map = self.successor();
        let now = io.now();
        let keeper = &mut self.decider().hold;
        let last = keeper.last.filter(|last| last.goes_on(held, now));
        for &MemberFailure { member, status, .. } in held {
            if std::mem::replace(&mut map.held[member.at()], true) {
                continue;
            }
            let holding = keeper.holding.get_or_insert_with(|| Holding {
                since: last.map_or(now, |last| last.since),
                members: Vec::new(),
                met: last.map_or(MemberSet::EMPTY, |last| last.members),
                given_up: false,
                eased: None,
                look_at: now + LOOK_PAUSE,
            });
            holding.members.push((member, status));
            holding.met = holding.met.with(member);
            keeper.absent[member.at()] = false;
            io.event(Event::Holds { member, status });
        }
        for &MemberFailure { member, status, .. } in hopeless {
            map.held[member.at()] = false;
            map.hopeless[member.at()] = true;
            io.event(Event::BeyondRedundancy { member, status });
        }
        map.barrier = map.serial;
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
    }

    // ---- looking -------------------------------------------------------------------------

    fn advance_look(&mut self, io: &mut impl Io) -> usize {
        match self.decider().hold.look.clone() {
            Look::Waiting => {
                let now = io.now();
                let holding = self.decider().hold.holding.as_mut();
                let Some(holding) = holding.filter(|holding| now >= holding.look_at) else {
                    return 0;
                };
                holding.look_at = now + LOOK_PAUSE;
                self.decider().hold.look = Look::Next { position: 0 };
                1
            }
            Look::Next { position } => self.begin_look(position, io),
            Look::Reading {
                position, until, ..
            } => {
                if io.now() < until {
                    return 0;
                }
                // It hangs; others may work again.
                self.decider().hold.look = Look::Next {
                    position: position + 1,
                };
                1
            }
            Look::Asking {
                position,
                member,
                mut todo,
                mut pending,
                waits,
            } => {
                let mut moved = 0;
                while let Some(&reactor) = todo.last() {
                    if io.ask(reactor, Message::HoldCheck { member }).is_err() {
                        break;
                    }
                    self.counters.messages += 1;
                    todo.pop();
                    pending += 1;
                    moved += 1;
                }
                if !todo.is_empty() || pending > 0 {
                    self.decider().hold.look = Look::Asking {
                        position,
                        member,
                        todo,
                        pending,
                        waits,
                    };
                    return moved;
                }
                self.decider().hold.look = Look::Next {
                    position: position + usize::from(waits),
                };
                if !waits {
                    self.release(member, io);
                }
                moved + 1
            }
        }
    }

    fn begin_look(&mut self, position: usize, io: &mut impl Io) -> usize {
        let holding = self.decider().hold.holding.as_ref();
        let held = holding.and_then(|holding| holding.members.get(position));
        let Some(&(member, _)) = held else {
            self.decider().hold.look = Look::Waiting;
            return 1;
        };
        if self.decider().hold.probing[member.at()] {
            self.decider().hold.look = Look::Next {
                position: position + 1,
            };
            return 1;
        }
        if !self.can_issue(1, io) {
            return 0;
        }
        let until = io.now() + PROBE;
        let keeper = &mut self.decider().hold;
        keeper.probing[member.at()] = true;
        keeper.look = Look::Reading {
            position,
            member,
            until,
        };
        self.ping(member, IoOwner::Probe, io);
        1
    }

    /// A member that is held has answered.
    pub(in crate::shard) fn probe_done(&mut self, done: DriveIo, status: Status, now: Instant) {
        let keeper = &mut self.decider().hold;
        keeper.probing[done.member.at()] = false;
        keeper.absent[done.member.at()] = !status.is_ok();
        let position = match keeper.look {
            Look::Reading {
                position, member, ..
            } if member == done.member => position,
            // Too late for that look; the next one asks it again.
            Look::Waiting | Look::Next { .. } | Look::Reading { .. } | Look::Asking { .. } => {
                return;
            }
        };
        if !status.is_ok() {
            self.decider().hold.look = Look::Next {
                position: position + 1,
            };
            return;
        }
        let waits = self.is_waiting_for(done.member, now);
        let me = self.me;
        let decider = self.decider();
        let reactors = decider.reactors.iter().copied();
        decider.hold.look = Look::Asking {
            position,
            member: done.member,
            todo: reactors.filter(|&reactor| reactor != me).collect(),
            pending: 0,
            waits,
        };
    }

    /// Another shard has said whether its requests to the member have gone well.
    pub(in crate::shard) fn hold_checked(&mut self, waiting: bool) {
        if let Look::Asking { pending, waits, .. } = &mut self.decider().hold.look {
            *pending -= 1;
            *waits |= waiting;
        }
    }

    /// A member works again.
    fn release(&mut self, member: MemberIndex, io: &mut impl Io) {
        let now = io.now();
        let held = self.map.held[member.at()];
        let holding = self.decider().hold.holding.as_mut();
        let Some(holding) = holding.filter(|_| held) else {
            return;
        };
        holding.members.retain(|(other, _)| *other != member);
        holding.eased = Some(now);
        self.decider().hold.tired[member.at()] = false;
        io.event(Event::MemberWorks { member });
        let mut map = self.successor();
        map.held[member.at()] = false;
        map.released[member.at()] += 1;
        self.end_if_empty(&mut map, io);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
    }
}

/// How long members are waited for.
fn timeout(coordinator: &Coordinator) -> Duration {
    Duration::from_secs(coordinator.config.options.hold_timeout_seconds.into())
}
