//! The home shard's steps: membership, metadata and background windows, one change at a time.
//!
//! A change is committed (flush what the record claims, write the record to every member that it
//! calls a member, flush it), then a new map is installed on every shard, then declared effective
//! to every shard. Acknowledgements that depend on it wait for that (architecture rule 3).

mod commit;
mod exclude;
mod handover;
mod hold;
mod record;
mod renew;
mod retry;

use std::sync::Arc;
use std::time::Duration;

use block::Status;
use units::{MemberIndex, StripeIndex};

pub(super) use self::exclude::Fate;
pub(crate) use self::handover::HandingOver;
pub(crate) use self::hold::HoldKeeper;
pub use self::hold::HoldStatus;
pub(crate) use self::renew::Renewal;
pub(crate) use self::retry::Retry;
use super::Shard;
use crate::command::{Command, Refusal};
use crate::coordinator::{
    Broadcast, Commit, CommitPhase, Coordinator, Ending, WindowReports, can_exclude, due_pass,
    next_start, next_window, trusted_until,
};
use crate::exposure::{completes, is_lacking};
use crate::format::{ArrayConfig, ExclusionCause};
use crate::io::{Event, Io, Message, PassEvent};
use crate::map::{ArrayMap, MapState, Pass, Window};
use crate::planted::{self, Fault};
use crate::scrub::{ScrubTally, WindowTally};

/// Progress of a pass is made durable at most this often.
pub(super) const CHECKPOINT: Duration = Duration::from_secs(2);

impl Shard {
    /// Makes this shard the one that decides.
    pub fn set_coordinator(&mut self, coordinator: Coordinator) {
        assert_eq!(self.map.home, self.me, "the home decides");
        self.coordinator = Some(Box::new(coordinator));
        self.stir();
    }

    /// The coordinator, on the home shard.
    #[must_use]
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_deref()
    }

    /// Asks for a change; the answer comes as [`Event::CommandDone`] with this `id`.
    ///
    /// # Panics
    /// On a shard that is not the home.
    pub fn command(&mut self, id: u64, command: Command) {
        self.decider().commands.push_back((id, command));
        self.stir();
    }

    pub(super) fn decider(&mut self) -> &mut Coordinator {
        self.coordinator
            .as_deref_mut()
            .expect("asked of the home shard")
    }

    pub(super) fn coordinate_window_done(&mut self, serial: u64, ok: bool, tally: WindowTally) {
        let reports = self.decider().window.as_mut().expect("a window is open");
        assert_eq!(reports.window.opened, serial, "reports on the open window");
        reports.missing -= 1;
        reports.ok &= ok;
        reports.tally.add(tally.into());
    }

    /// One step of whatever is going on. Nothing on other shards than the home.
    pub(super) fn coordinate(&mut self, io: &mut impl Io) -> usize {
        let Some(coordinator) = self.coordinator.as_deref_mut() else {
            return 0;
        };
        coordinator.try_again(io);
        if coordinator.broadcast.is_some() {
            return self.advance_broadcast(io);
        }
        let held = self.advance_holding(io);
        let coordinator = self.coordinator.as_deref().expect("looked at");
        if held > 0 || coordinator.broadcast.is_some() {
            return held;
        }
        if self.withdraw_handover(io) > 0 {
            return 1;
        }
        let coordinator = self.coordinator.as_deref().expect("looked at");
        if coordinator.commit.is_some() {
            return self.advance_commit(io);
        }
        if !coordinator.failures.is_empty() && coordinator.started {
            return self.begin_exclusion(io);
        }
        let is_done = |reports: WindowReports| reports.missing == 0;
        if coordinator.window.is_some_and(is_done) {
            return self.close_window(io);
        }
        let changed = self.change_losses(io);
        if changed > 0 {
            return changed;
        }
        let coordinator = self.coordinator.as_deref().expect("looked at");
        if !coordinator.commands.is_empty() {
            return self.begin_command(io);
        }
        if self.renew(io) > 0 {
            return 1;
        }
        if self.wants_to_leave() {
            return self.leave_behind(io);
        }
        let retired = self.advance_retire(io);
        if retired > 0 {
            return retired;
        }
        self.open_window(io)
    }

    // ---- commands ------------------------------------------------------------------------

    fn begin_command(&mut self, io: &mut impl Io) -> usize {
        let window_open = self.decider().window.is_some();
        let front = self.decider().commands.front().expect("looked at");
        if window_open && front.1.needs_quiet() {
            return usize::from(self.let_others_pass());
        }
        if let Command::Distribute(target) = &front.1 {
            let (command, target) = (front.0, Arc::clone(target));
            return self.distribute(command, &target, io);
        }
        let dirtied = self.dirty_for_command(io);
        if dirtied.is_some() || self.stop_awaits_regions() {
            return dirtied.unwrap_or(0);
        }
        let front = self.decider().commands.front().expect("looked at");
        let brings_drive_to =
            if let Command::Replace { member, .. } | Command::Return { member, .. } = front.1 {
                Some(member)
            } else {
                None
            };
        let options = if let Command::Options(options) = front.1 {
            Some(options)
        } else {
            None
        };
        let front = front.0;
        // What is refused below begins nothing: a member in use would have more logged for it.
        if let Some(member) = brings_drive_to
            && self.refuse_in_use(member).is_ok()
            && let Some(moved) = self.retire_for(front, io)
        {
            return moved;
        }
        if let Some(options) = options
            && self.refuse_strict(&options).is_ok()
            && let Some(moved) = self.strengthen_for(front, options, io)
        {
            return moved;
        }
        let (id, command) = self.decider().commands.pop_front().expect("looked at");
        let second = self.second_record(&command);
        match self.prepare(command) {
            Err(refusal) => io.event(Event::refused(id, refusal)),
            Ok(None) => io.event(Event::CommandDone { id, result: Ok(()) }),
            Ok(Some(mut commit)) => match self.decider().fits(&commit.config) {
                Ok(()) => {
                    match second {
                        Some(second) => self.decider().commands.push_front((id, second)),
                        None => commit.answers.push(id),
                    }
                    self.begin_commit(*commit);
                }
                Err(large) => io.event(Event::refused(id, Refusal::Full(large.to_string()))),
            },
        }
        1
    }

    /// A start and a stop commit two records, so that a copy of a member made before is two behind
    /// and known for what it is: with one, it would pass for the member of an engine that was
    /// stopped in the middle of it. This is the command again when its first is to be prepared.
    fn second_record(&mut self, command: &Command) -> Option<Command> {
        let decider = self.decider();
        let is_first = match command {
            Command::Start => !decider.started && !planted::is(Fault::OneRecordAtStart),
            Command::Stop => !decider.stops && !planted::is(Fault::OneRecordAtStop),
            Command::Fail { .. }
            | Command::Leave { .. }
            | Command::Replace { .. }
            | Command::Return { .. }
            | Command::Copying { .. }
            | Command::Dirty { .. }
            | Command::Settle
            | Command::Remove { .. }
            | Command::Volumes { .. }
            | Command::Options(_)
            | Command::Passes { .. }
            | Command::Distribute(_)
            | Command::Resync
            | Command::Scrub(_) => false,
        };
        is_first.then(|| command.clone())
    }

    /// What a command changes; `None` when nothing durable.
    fn prepare(&mut self, command: Command) -> Result<Option<Box<Commit>>, Refusal> {
        if self.decider().metadata_failed {
            return Err(Refusal::Failed(
                "the array's metadata cannot be written".to_owned(),
            ));
        }
        let started = self.decider().started;
        let stopped = self.decider().stopped;
        if stopped || (!started && !matches!(command, Command::Start)) {
            return Err(not_running());
        }
        let id = self.decider().draw_id();
        let next = self.decider().config.next(id);
        let places = self.decider().places.clone();
        let mut commit = commit_of(next, places, CommitPhase::Write);
        match command {
            // Its second record changes nothing; see `second_record`.
            Command::Start if started => {}
            // The configuration that it was made with is the one to commit.
            Command::Start => {
                commit.config = self.decider().config.clone();
                commit.config.clean |= planted::is(Fault::CleanWhileInUse);
                // The record that was found may be in the drives' caches only, as a killed engine
                // left it. This one goes over the last that is durable.
                if !planted::is(Fault::StartBeforeFlush) {
                    commit.phase = CommitPhase::FlushData;
                }
            }
            Command::Fail { member } => {
                self.prepare_fail(&mut commit, member, ExclusionCause::Command)?;
            }
            Command::Leave { member } => {
                self.prepare_fail(&mut commit, member, ExclusionCause::Replaced)?;
            }
            Command::Copying { member, step } => self.prepare_copying(member, step)?,
            Command::Dirty { regions } => return self.refuse_barred(&regions),
            Command::Settle | Command::Distribute(_) => return Ok(None),
            Command::Remove { member } => {
                self.prepare_fail(&mut commit, member, ExclusionCause::Gone)?;
            }
            command @ (Command::Replace { .. } | Command::Return { .. }) => {
                self.prepare_drive(&mut commit, command)?;
            }
            Command::Volumes { volumes, unzeroed } => {
                commit.config.volumes = volumes;
                commit.config.unzeroed = unzeroed;
                let checked = commit.config.check();
                checked.map_err(|error| Refusal::Invalid(error.to_string()))?;
                commit.phase = CommitPhase::FlushData;
            }
            Command::Options(options) => {
                self.refuse_strict(&options)?;
                let old = self.decider().config.options;
                self.decider().scrub.change_rate(&old, &options);
                commit.config.options = options;
            }
            Command::Passes { run } => {
                self.decider().passes_run = run;
                self.decider().retry.go_on();
                return Ok(None);
            }
            Command::Resync => {
                // It changes parity of regions that nobody writes.
                self.decider().copied = None;
                commit.config.untrust();
                commit.ending = Ending::Untrusts;
            }
            Command::Scrub(order) => return self.prepare_scrub(commit, order),
            Command::Stop => self.prepare_stop(&mut commit),
        }
        Ok(Some(Box::new(commit)))
    }

    fn prepare_stop(&mut self, commit: &mut Commit) {
        let is_first = !std::mem::replace(&mut self.decider().stops, true);
        if is_first && !planted::is(Fault::OneRecordAtStop) {
            // It changes nothing; see `second_record`.
            return;
        }
        // What a failed write left torn must be resynchronised.
        let resynced = self.map.trusted_until.0 >= self.map.geometry.stripes();
        // And what was given up may be half written until it is carried out.
        let whole = !self.map.is_broken() && !self.shared.owes() && !self.may_lack_regions();
        commit.config.clean = resynced && whole;
        commit.phase = CommitPhase::FlushData;
        commit.ending = Ending::Stops;
        self.claim_progress(&mut commit.config);
    }

    pub(super) fn prepare_fail(
        &mut self,
        commit: &mut Commit,
        member: MemberIndex,
        cause: ExclusionCause,
    ) -> Result<(), Refusal> {
        let Some(entry) = self.map.members.get(member.at()) else {
            return Err(Refusal::Invalid(format!("the array has no {member}")));
        };
        if entry.state == MapState::Lost {
            return Err(Refusal::Invalid(format!("{member} is out already")));
        }
        if !can_exclude(&self.map.geometry, &commit.config, member) {
            let text = format!("without {member} data is lost; replace a member that is out first");
            return Err(Refusal::Unsafe(text));
        }
        self.exclude(&mut commit.config, member, cause);
        commit.excluded.push((member, Status::Ok));
        Ok(())
    }

    // ---- maps ----------------------------------------------------------------------------

    /// The present map with the next serial.
    pub(super) fn successor(&self) -> ArrayMap {
        let mut map = ArrayMap::clone(&self.map);
        map.serial += 1;
        map
    }

    pub(super) fn begin_broadcast(
        &mut self,
        map: ArrayMap,
        answers: Vec<u64>,
        excluded: Vec<(MemberIndex, Status)>,
        io: &mut impl Io,
    ) {
        let serial = map.serial;
        self.install(Arc::new(map), io);
        self.note_log_use();
        self.tell_trust(false);
        let me = self.me;
        let decider = self.decider();
        let todo = decider
            .reactors
            .iter()
            .copied()
            .filter(|&reactor| reactor != me)
            .collect();
        let broadcast = Broadcast {
            serial,
            effective: false,
            holds_regions: false,
            todo,
            pending: 0,
            answers,
            excluded,
        };
        let replaced = decider.broadcast.replace(broadcast);
        assert!(replaced.is_none(), "one change at a time");
    }

    pub(super) fn installed(&mut self, serial: u64) {
        let broadcast = self
            .decider()
            .broadcast
            .as_mut()
            .expect("a map is on its way");
        assert_eq!(broadcast.serial, serial);
        broadcast.pending -= 1;
    }

    fn advance_broadcast(&mut self, io: &mut impl Io) -> usize {
        let mut broadcast = self.decider().broadcast.take().expect("looked at");
        let mut moved = 0;
        while let Some(&reactor) = broadcast.todo.last() {
            let message = if broadcast.effective {
                Message::Effective {
                    serial: broadcast.serial,
                }
            } else {
                Message::Install(Arc::clone(&self.map))
            };
            if io.ask(reactor, message).is_err() {
                break;
            }
            self.counters.messages += 1;
            broadcast.todo.pop();
            broadcast.pending += 1;
            moved += 1;
        }
        if !broadcast.todo.is_empty() || broadcast.pending > 0 {
            self.decider().broadcast = Some(broadcast);
            return moved;
        }
        if !broadcast.effective {
            broadcast.effective = true;
            let me = self.me;
            let reactors = self.decider().reactors.iter().copied();
            broadcast.todo = reactors.filter(|&reactor| reactor != me).collect();
            self.make_effective(broadcast.serial);
            self.decider().broadcast = Some(broadcast);
            self.settle(io);
            return 1;
        }
        self.tell_trust(true);
        for (member, status) in broadcast.excluded {
            io.event(Event::MemberExcluded { member, status });
        }
        for id in broadcast.answers {
            io.event(Event::CommandDone { id, result: Ok(()) });
        }
        1
    }

    // ---- background windows --------------------------------------------------------------

    fn open_window(&mut self, io: &mut impl Io) -> usize {
        let decider = self.decider();
        if decider.window.is_some() || !decider.started || decider.stopped {
            return 0;
        }
        let may_run = decider.passes_run && !decider.retry.is_stopped();
        let scrubbed = self.open_scrub_window(io);
        // Asked each turn; nothing is due in an array to which nothing has happened.
        if self.optimal && scrubbed == 0 {
            return 0;
        }
        if !may_run || scrubbed > 0 {
            return scrubbed;
        }
        let Some(pass) = due_pass(&self.map) else {
            return 0;
        };
        if pass == Pass::Rebuild && self.is_refill_unsafe() {
            return 0;
        }
        let mut map = self.successor();
        if map.window.is_none() {
            io.event(Event::Pass {
                pass,
                state: PassEvent::Began,
            });
        }
        let start = next_start(&map, pass);
        let window = next_window(&map, pass, start, self.decider().window_bytes);
        map.window = Some(window);
        self.set_window(window);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        1
    }

    pub(super) fn set_window(&mut self, window: Window) {
        let missing = self.decider().reactors.len();
        self.decider().window = Some(WindowReports {
            window,
            missing,
            ok: true,
            tally: ScrubTally::default(),
        });
    }

    /// All shards are done with the window: the pass goes on behind it, ends, or stops.
    fn close_window(&mut self, io: &mut impl Io) -> usize {
        let reports = self.decider().window.expect("looked at");
        if reports.window.pass == Pass::Scrub {
            return self.close_scrub_window(io);
        }
        let is_filled = completes(&self.map, &reports.window);
        // A member in sync holds its copies of the region map. Nothing writes them any more when
        // the array takes no writes, and the window has failed then.
        if is_filled && !self.map.read_only && self.decider().keeper.owes_copies() {
            return 0;
        }
        let WindowReports { window, ok, .. } = self.decider().window.take().expect("looked at");
        // A checkpoint would be an update over one that some member in sync has never got.
        let ok = ok && !self.decider().metadata_failed;
        let mut map = self.successor();
        map.window = None;
        let spoiled = std::mem::take(&mut self.decider().hold.window_spoiled);
        if !ok {
            if window.pass == Pass::Rebuild {
                self.unfill();
            }
            if !spoiled {
                self.decider().retry.stop(io.now());
                io.event(Event::Pass {
                    pass: window.pass,
                    state: PassEvent::Stopped,
                });
            }
            self.begin_broadcast(map, Vec::new(), Vec::new(), io);
            return 1;
        }
        self.decider().retry.go_on();
        advance_map(&mut map, window);
        let ended = match window.pass {
            Pass::Resync => map.trusted_until.0 >= map.geometry.stripes(),
            Pass::Rebuild => is_filled,
            Pass::Scrub => unreachable!("closed elsewhere"),
        };
        let due = io.now().since(self.decider().checkpoint) >= CHECKPOINT;
        let quiet = self.decider().commands.is_empty() && self.decider().passes_run;
        if ended || due || !quiet {
            let is_over = ended && (window.pass != Pass::Rebuild || !is_lacking(&map));
            self.begin_broadcast(map, Vec::new(), Vec::new(), io);
            if ended || due {
                self.begin_checkpoint(window.pass, is_over);
            }
            return 1;
        }
        let Some(pass) = due_pass(&map) else {
            // Beyond redundancy since it was opened.
            self.begin_broadcast(map, Vec::new(), Vec::new(), io);
            return 1;
        };
        let start = next_start(&map, pass);
        let next = next_window(&map, pass, start, self.decider().window_bytes);
        map.window = Some(next);
        self.set_window(next);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        1
    }

    /// Makes progress durable once the map that says it is everywhere.
    pub(super) fn begin_checkpoint(&mut self, pass: Pass, is_over: bool) {
        let id = self.decider().draw_id();
        let mut next = self.decider().config.next(id);
        self.claim_progress(&mut next);
        let places = self.decider().places.clone();
        let mut commit = commit_of(next, places, CommitPhase::FlushData);
        if planted::is(Fault::ProgressBeforeFlush) {
            commit.phase = CommitPhase::Write;
        }
        commit.finished = is_over.then_some(pass);
        self.begin_commit(commit);
    }
}

fn not_running() -> Refusal {
    Refusal::Invalid("the array is not running".to_owned())
}

pub(super) fn commit_of(
    config: ArrayConfig,
    places: Vec<Option<crate::coordinator::MemberPlace>>,
    phase: CommitPhase,
) -> Commit {
    Commit {
        config,
        places,
        phase,
        todo: Vec::new(),
        pending: 0,
        excluded: Vec::new(),
        replaced: Vec::new(),
        returned: Vec::new(),
        answers: Vec::new(),
        failed: Vec::new(),
        finished: None,
        ending: Ending::GoesOn,
    }
}

/// Moves the cursors of the window's pass to its end.
fn advance_map(map: &mut ArrayMap, mut window: Window) {
    if planted::is(Fault::PassRunsAhead) && window.end.0 < map.geometry.stripes() {
        window.end.0 += 1;
    }
    let stripes = map.geometry.stripes();
    match window.pass {
        Pass::Resync => {
            let cursor = map.trusted_until.max(window.end);
            map.trusted_until = trusted_until(&map.suspects, cursor, stripes);
        }
        Pass::Scrub => {}
        Pass::Rebuild => {
            for position in 0..map.members.len() {
                if !window.fills.has(MemberIndex::from_at(position)) {
                    continue;
                }
                // What is between the window and what it lacks next, it does not lack.
                let reached = map.next_lacking(position, window.end);
                if let MapState::Rebuilding { until } = &mut map.members[position].state {
                    *until = (*until).max(reached.unwrap_or(StripeIndex(stripes)));
                }
            }
        }
    }
}
