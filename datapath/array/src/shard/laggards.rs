//! A shard's part in finding out which members take longer than their peers (`crate::laggards`),
//! and which can often not read (`crate::read_errors`).
//!
//! The port of each reactor counts how long each drive took, as it does anyway. Once a window each
//! shard adds what is new there to words that all shards share, and the home judges by what came
//! together. Members that lag are read around like those that do not answer. So that it shows when
//! they are well again, the home reads from them now and then.

use block::{Histogram, Operation};
use units::{Instant, MemberIndex, bytes_u64};

use super::coordinate::commit_of;
use super::late::Patience;
use super::{IoOwner, Order, Shard, Shared};
use crate::coordinator::{CommitPhase, in_sync_without};
use crate::format::{ExclusionCause, MemberState, SUPERBLOCK_BYTES};
use crate::io::{Event, Io};
use crate::laggards::{Laggards, MemberPace, Sample, Took};
use crate::map::{ArrayMap, MapState};
use crate::planted;
use crate::read_errors::ReadErrors;

/// While nothing is asked, the home looks less often, by so many times.
const IDLE: u32 = 10;

/// Buckets that are looked at together.
const RUN: usize = 8;

/// What one shard has told of a drive.
#[derive(Debug, Default)]
struct Told {
    incarnation: u32,
    counts: [u64; 2],
    took: [Histogram; 2],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pacing {
    /// When the window ends.
    pub(super) ends: Instant,
    /// By member: what was told of its drive.
    told: Vec<Told>,
}

/// The home's side.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "that there was work does not say that somebody is to go"
)]
pub(crate) struct LaggardKeeper {
    laggards: Laggards,
    read_errors: ReadErrors,
    /// By member: what had come together at the end of the last window, and how many requests.
    seen: Vec<[Histogram; 2]>,
    counted: Vec<[u64; 2]>,
    /// By member: what was new then.
    took: Vec<Took>,
    /// There was something to judge in the last window.
    busy: bool,
    /// By member: it is read from to see how long that takes. And reads made for that, in all.
    on_trial: Vec<bool>,
    trials: u64,
    /// When to look again.
    wake: Option<Instant>,
    /// Some member is to be left out; and how often that was looked at.
    leaving: bool,
    looks: u64,
}

impl Pacing {
    pub(super) fn new(map: &ArrayMap) -> Pacing {
        Pacing {
            ends: Instant(0),
            told: map.members.iter().map(|_| Told::default()).collect(),
        }
    }
}

impl LaggardKeeper {
    fn new(map: &ArrayMap, patience: &Patience) -> LaggardKeeper {
        let members = map.members.len();
        let shape = (map.geometry.group_members(), map.geometry.parity());
        LaggardKeeper {
            laggards: Laggards::new(members, shape, patience.enough),
            read_errors: ReadErrors::new(members, shape.0, patience.read_errors),
            seen: vec![Default::default(); members],
            counted: vec![[0; 2]; members],
            took: vec![Took::default(); members],
            busy: false,
            on_trial: vec![false; members],
            trials: 0,
            wake: None,
            leaving: false,
            looks: 0,
        }
    }
}

impl LaggardKeeper {
    /// What members took since the last window.
    fn see(&mut self, shared: &Shared) {
        self.busy = false;
        for (position, took) in self.took.iter_mut().enumerate() {
            for (kind, sample) in took.iter_mut().enumerate() {
                let which = (position, kind);
                let counted = shared.counted(which);
                let before = std::mem::replace(&mut self.counted[position][kind], counted);
                if before != counted {
                    let new = counted.wrapping_sub(before);
                    shared.see_times(which, (&mut self.seen[position][kind], new), sample);
                    let lags = shared.lags(MemberIndex::from_at(position));
                    self.busy |= sample.count > 0 && !lags;
                } else if sample.count > 0 {
                    *sample = Sample::default();
                }
            }
        }
    }

    fn pace(&self, position: usize) -> MemberPace {
        MemberPace {
            read_errors: self.read_errors.of_day(position),
            ..self.laggards.pace(position)
        }
    }

    /// Who is to be left out, if anybody, and why.
    fn who_leaves(
        &self,
        now: Instant,
        counts: impl Fn(usize) -> bool + Copy,
        data: usize,
    ) -> Option<(MemberIndex, ExclusionCause)> {
        let lags = self.laggards.who_leaves(now, (counts, data));
        let lags = lags.map(|member| (member, ExclusionCause::TooSlow));
        lags.or_else(|| {
            let errs = self.read_errors.who_leaves(counts, data);
            errs.map(|member| (member, ExclusionCause::ReadErrors))
        })
    }
}

/// The drive of a member that counts: in sync, and not waited for.
fn drive_of(map: &ArrayMap, position: usize) -> Option<u32> {
    let member = &map.members[position];
    let counts = member.state == MapState::InSync && !map.held[position];
    counts.then_some(member.incarnation)
}

impl Shard {
    /// How each member does beside its peers; empty on other shards than the home.
    #[must_use]
    pub fn paces(&self) -> Vec<MemberPace> {
        let keeper = self.coordinator().and_then(|home| home.laggards.as_ref());
        let paces =
            keeper.map(|keeper| (0..self.map.members.len()).map(|position| keeper.pace(position)));
        paces.into_iter().flatten().collect()
    }

    /// How often the home looked whether a member is to be left out for what was seen of its pace
    /// and errors. For simulators: it is judged when the home does something, and nobody waits for
    /// that.
    #[must_use]
    pub fn looks_who_leaves(&self) -> u64 {
        let keeper = self.coordinator().and_then(|home| home.laggards.as_ref());
        keeper.map_or(0, |keeper| keeper.looks)
    }

    /// When the home looks at its members' pace again.
    pub(super) fn pace_deadline(&self) -> Option<Instant> {
        self.coordinator()?.laggards.as_ref()?.wake
    }

    /// Tells how long drives took, once a window, and judges them on the home.
    pub(super) fn advance_paces(&mut self, io: &mut impl Io) {
        let now = io.now();
        if now >= self.pacing.ends {
            self.end_window(now, io);
        }
    }

    #[cold]
    fn end_window(&mut self, now: Instant, io: &mut impl Io) {
        self.pacing.ends = now + self.late.patience.window;
        self.tell_paces(io);
        let home = self.coordinator.as_deref();
        if home.is_some_and(|home| home.started && !home.stopped) {
            self.judge_paces(now, io);
        }
    }

    /// Adds what is new to what all shards know.
    fn tell_paces(&mut self, io: &impl Io) {
        for (position, told) in self.pacing.told.iter_mut().enumerate() {
            let entry = &self.map.members[position];
            let Some(now) = entry.drive.and_then(|drive| io.times(drive)) else {
                continue;
            };
            if entry.incarnation != told.incarnation {
                // What another drive has told of does not matter.
                *told = Told {
                    incarnation: entry.incarnation,
                    counts: now.counts,
                    took: now.took.map(|times| *times),
                };
                continue;
            }
            for (kind, &count) in now.counts.iter().enumerate() {
                let before = std::mem::replace(&mut told.counts[kind], count);
                if count == before {
                    continue;
                }
                let (now, told) = (&now.took[kind].buckets, &mut told.took[kind].buckets);
                if count < before {
                    // Counted anew: the drive was attached anew.
                    told.fill(0);
                }
                // Few buckets hold all of it: runs in which nothing is new are passed over at once.
                let runs = now.chunks(RUN).zip(told.chunks_mut(RUN)).enumerate();
                let runs = runs.filter(|(_, (now, told))| now != told);
                let more = runs.flat_map(|(run, (now, told))| {
                    let buckets = now.iter().zip(told).enumerate();
                    buckets.map(move |(bucket, (&now, told))| {
                        let before = std::mem::replace(told, now);
                        (run * RUN + bucket, now.saturating_sub(before))
                    })
                });
                let more = more.filter(|(_, more)| *more > 0);
                self.shared.add_times((position, kind), more);
            }
        }
    }

    fn judge_paces(&mut self, now: Instant, io: &mut impl Io) {
        let map = std::sync::Arc::clone(&self.map);
        let shared = std::sync::Arc::clone(&self.shared);
        let patience = self.late.patience;
        let window = patience.window;
        let home = self.decider();
        let keeper = home
            .laggards
            .get_or_insert_with(|| LaggardKeeper::new(&map, &patience));
        keeper.see(&shared);
        for position in 0..map.members.len() {
            let more = shared.take_read_errors(position);
            let member = &map.members[position];
            let incarnation = (member.state == MapState::InSync).then_some(member.incarnation);
            keeper.read_errors.note(now, (position, incarnation), more);
        }
        let pause = if keeper.busy { window } else { window * IDLE };
        keeper.wake = Some(now + pause);
        let drive = |position: usize| drive_of(&map, position);
        for turn in keeper.laggards.judge(&keeper.took, drive) {
            let pace = keeper.laggards.pace(turn.member.at());
            shared.call_laggard(turn.member, turn.lags);
            let member = turn.member;
            io.event(if turn.lags {
                Event::MemberLags { member, pace }
            } else {
                Event::MemberKeepsUp { member }
            });
        }
        let counts = |position: usize| drive(position).is_some();
        keeper.leaving = keeper
            .who_leaves(now, counts, map.geometry.data())
            .is_some();
        // The home looks at members that lag, also when nobody asks it for anything.
        self.late.any_slow |= shared.any_lags();
    }

    /// Whether some member is to be left out, as far as the home knows.
    pub(super) fn wants_to_leave(&self) -> bool {
        let keeper = self.coordinator().and_then(|home| home.laggards.as_ref());
        keeper.is_some_and(|keeper| keeper.leaving)
    }

    /// Leaves a member out that lags, or can often not read, if that may be.
    pub(super) fn leave_behind(&mut self, io: &mut impl Io) -> usize {
        let now = io.now();
        let data = self.geometry().data();
        let home = self.coordinator.as_deref().expect("the home");
        let counts = |position: usize| {
            let in_sync = home.config.members[position].state == MemberState::InSync;
            in_sync && !self.map.held[position]
        };
        let keeper = home.laggards.as_ref().expect("it wants that");
        let leaver = keeper.who_leaves(now, counts, data);
        let may = !home.metadata_failed && !home.stops && !home.stopped;
        let leaver = leaver.filter(|&(member, _)| may && self.may_be_late(&home.config, member));
        let home = self.decider();
        let keeper = home.laggards.as_mut().expect("looked at");
        keeper.leaving = false;
        keeper.looks += 1;
        let Some((member, cause)) = leaver else {
            // What comes after this in a turn was not looked at.
            return 1;
        };
        keeper.laggards.leaves(now);
        let pace = keeper.pace(member.at());
        let id = home.draw_id();
        let next = home.config.next(id);
        let left = in_sync_without(&self.map.geometry, &next, member);
        assert!(
            left > data || planted::is_forgiven(),
            "{member} does what it is asked, and is left out although it is the last to spare"
        );
        let home = self.decider();
        let mut commit = commit_of(next, home.places.clone(), CommitPhase::Write);
        if self.prepare_fail(&mut commit, member, cause).is_ok() {
            self.counters.left_behind += 1;
            io.event(Event::MemberLeftBehind {
                member,
                pace,
                cause,
            });
            self.begin_commit(commit);
        }
        1
    }

    // ---- trials --------------------------------------------------------------------------

    /// Whether members are to be read from for that.
    pub(super) fn has_trials(&self) -> bool {
        let keeper = self.coordinator().and_then(|home| home.laggards.as_ref());
        keeper.is_some_and(|keeper| keeper.busy) && self.late.any_slow
    }

    /// Reads from members that lag, and from those that do not answer something, as long as others
    /// are asked for something: one request may be lost, and the drive be well.
    pub(super) fn try_laggards(&mut self, io: &mut impl Io) -> usize {
        let runs = self.coordinator().is_some_and(|home| !home.stopped);
        if !runs || !self.has_trials() {
            return 0;
        }
        let mut moved = 0;
        for position in 0..self.map.members.len() {
            let member = MemberIndex::from_at(position);
            let entry = &self.map.members[position];
            let here = entry.drive.is_some() && entry.state == MapState::InSync;
            let doubtful = self.shared.lags(member) || self.shared.is_slow(position);
            let keeper = self.decider().laggards.as_ref().expect("looked at");
            if !here || keeper.on_trial[position] || !doubtful {
                continue;
            }
            if self.can_serve(1, io) {
                self.try_member(member, io);
                moved += 1;
            }
        }
        moved
    }

    fn try_member(&mut self, member: MemberIndex, io: &mut impl Io) {
        let entry = self.map.members[member.at()];
        let bytes = self.geometry().member_blocks() << self.geometry().block_size().shift();
        let length = bytes_u64(SUPERBLOCK_BYTES);
        let keeper = self.decider().laggards.as_mut().expect("it lags");
        keeper.on_trial[member.at()] = true;
        keeper.trials = keeper.trials.wrapping_add(1);
        // All over the drive: a fraction of the golden ratio is never where it was.
        let place = keeper.trials.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
        let place = place % (bytes / length).max(1);
        let memory = self.hold.memory();
        let order = Order {
            owner: IoOwner::Trial,
            member,
            operation: Operation::Read,
            offset: entry.data_offset + place * length,
            length,
        };
        self.counters.trials += 1;
        self.issue(order, |list| list.push(memory), io);
    }

    /// A member was read from to see how long that takes; what came of it says something else.
    pub(super) fn trial_done(&mut self, member: MemberIndex) {
        let keeper = self.coordinator.as_deref_mut();
        if let Some(keeper) = keeper.and_then(|home| home.laggards.as_mut()) {
            keeper.on_trial[member.at()] = false;
        }
    }
}
