//! The scrub: on the home shard its windows, one after another as its rate allows; on every shard
//! the cells of the open window whose stripes it owns.
//!
//! A cell is looked at as a whole. One that does not agree, or could not be read, is looked at
//! again block by block (`ticket/scrub.rs`).

use block::Status;
use units::StripeIndex;

use super::coordinate::CHECKPOINT;
use super::{Shard, cell_lanes};
use crate::command::Refusal;
use crate::coordinator::{Commit, CommitPhase, WindowReports, goes_before_scrub, next_window};
use crate::io::{Event, Io, PassEvent};
use crate::map::{ArrayMap, Pass, Window};
use crate::planted::{self, Fault};
use crate::scrub::{
    ScrubCourse, ScrubFinding, ScrubOrder, ScrubOutcome, ScrubState, ScrubStatus, WindowTally,
    can_scrub, time_of, window_bytes,
};

/// Tickets at once while nothing else is going on, and while requests are served.
const DEPTH_IDLE: usize = 8;
const DEPTH_BUSY: usize = 2;
/// Large buffers that all of them may take.
const BUFFERS: usize = 128;

/// Findings of one window that a shard tells one by one.
const TOLD_MAX: u32 = 64;

/// One shard's part of the open window of a scrub.
#[derive(Debug, Default)]
pub(super) struct WindowScrub {
    pub(super) tally: WindowTally,
    /// Cells of the window that are to be looked at block by block, and the next block of the
    /// last of them.
    suspects: Vec<u64>,
    next_block: u32,
    /// By member: blocks of its that were wrong, since the shard began.
    guilt: Vec<u64>,
}

impl WindowScrub {
    pub(super) fn new(members: usize) -> WindowScrub {
        WindowScrub {
            guilt: vec![0; members],
            ..WindowScrub::default()
        }
    }

    /// A window of so many cells begins.
    pub(super) fn begin(&mut self, cells: usize) {
        assert!(self.suspects.is_empty(), "the last window was done");
        self.tally = WindowTally::default();
        self.suspects.reserve(cells);
    }

    pub(super) fn suspect(&mut self, cell: u64) {
        // Whichever is under way keeps its place at the end.
        let last = self.suspects.len().saturating_sub(1);
        self.suspects.insert(last, cell);
    }

    fn forget_suspects(&mut self) {
        self.suspects.clear();
        self.next_block = 0;
    }

    pub(super) fn is_done(&self) -> bool {
        self.suspects.is_empty()
    }

    /// The next block to look at, of the cells that are suspects.
    fn take_block(&mut self, lanes: impl Fn(u64) -> u32) -> Option<(u64, u32)> {
        let cell = *self.suspects.last()?;
        let block = self.next_block;
        self.next_block += 1;
        if self.next_block == lanes(cell) {
            self.suspects.pop();
            self.next_block = 0;
        }
        Some((cell, block))
    }
}

impl Shard {
    /// How the scrub stands, on the home shard.
    #[must_use]
    pub fn scrub_status(&self) -> Option<ScrubStatus> {
        let coordinator = self.coordinator.as_deref()?;
        Some(ScrubStatus {
            record: coordinator.scrub.record,
            stripes: self.map.geometry.stripes(),
            course: if coordinator.scrub.failed {
                ScrubCourse::Failed
            } else if goes_before_scrub(&self.map)
                || coordinator.copied.is_some()
                || !can_scrub(&self.map)
            {
                ScrubCourse::Waits
            } else {
                ScrubCourse::Free
            },
        })
    }

    /// By member: blocks of its that scrubs found wrong, on this shard since it began.
    #[must_use]
    pub fn scrub_guilt(&self) -> &[u64] {
        &self.background.scrub.guilt
    }

    // ---- the home ------------------------------------------------------------------------

    pub(super) fn prepare_scrub(
        &mut self,
        mut commit: Commit,
        order: ScrubOrder,
    ) -> Result<Option<Box<Commit>>, Refusal> {
        if self.map.geometry.parity() == 0 {
            let text = "it has no redundancy, so nothing could be compared";
            return Err(Refusal::Invalid(text.to_owned()));
        }
        let scrub = &mut self.decider().scrub;
        match (order, scrub.record.state) {
            (ScrubOrder::StartOver, _) | (ScrubOrder::Start, ScrubState::Idle) => {
                scrub.begin(ScrubState::Running);
            }
            (ScrubOrder::Start, _) => {
                scrub.record.state = ScrubState::Running;
            }
            (ScrubOrder::Stop, ScrubState::Running | ScrubState::Scheduled) => {
                scrub.record.state = ScrubState::Paused;
            }
            (ScrubOrder::Stop, ScrubState::Idle | ScrubState::Paused) => {
                return Err(Refusal::Invalid("no scrub runs".to_owned()));
            }
        }
        scrub.failed = false;
        commit.config.scrub = scrub.record;
        // What was repaired must stay so.
        commit.phase = CommitPhase::FlushData;
        Ok(Some(Box::new(commit)))
    }

    /// When the scrub goes on, if nothing else stands in its way.
    pub(super) fn scrub_deadline(&self) -> Option<units::Instant> {
        let coordinator = self.coordinator.as_deref()?;
        // First what is quickly told: asked each turn, and mostly there is nothing.
        let every = coordinator.config.options.scrub_every_seconds;
        let due = coordinator.scrub.due_at(&self.map, every)?;
        let works = coordinator.window.is_some()
            || coordinator.commit.is_some()
            || coordinator.broadcast.is_some()
            || !coordinator.failures.is_empty()
            || !coordinator.commands.is_empty();
        let waits = goes_before_scrub(&self.map) || coordinator.copied.is_some();
        (!works && !waits).then_some(due)
    }

    /// Nothing else is due: the scrub's turn.
    pub(super) fn open_scrub_window(&mut self, io: &mut impl Io) -> usize {
        // Asked each turn: no map is made before there is something to do.
        if !self.is_scrub_due(&self.map, io) {
            return 0;
        }
        let map = self.successor();
        let Some(window) = self.next_scrub_window(&map, io) else {
            return 0;
        };
        self.set_window(window);
        let map = ArrayMap {
            window: Some(window),
            ..map
        };
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        1
    }

    /// Whether a window of the scrub may be opened now.
    fn is_scrub_due(&self, map: &ArrayMap, io: &mut impl Io) -> bool {
        let decider = self.coordinator().expect("asked of the home shard");
        let every = decider.config.options.scrub_every_seconds;
        let due = decider.scrub.due_at(map, every);
        // What it repairs on a member that is being copied, no region would tell.
        let waits = || goes_before_scrub(map) || decider.copied.is_some();
        due.is_some_and(|due| due <= io.now()) && !waits()
    }

    /// The window that may be opened now, in a map without one.
    fn next_scrub_window(&mut self, map: &ArrayMap, io: &mut impl Io) -> Option<Window> {
        let now = io.now();
        let array_bytes = map.geometry.blocks() << map.geometry.block_size().shift();
        let stripe_bytes = map.geometry.stripe_bytes();
        if !self.is_scrub_due(map, io) {
            return None;
        }
        let decider = self.decider();
        let options = decider.config.options;
        let every = options.scrub_every_seconds;
        let scrub = &mut decider.scrub;
        if !scrub.record.state.runs() {
            scrub.begin_scheduled();
        }
        let from = scrub.record.next;
        let rate = scrub.rate(options.scrub_rate_bytes_per_second, every, array_bytes);
        let most = window_bytes(rate, decider.window_bytes);
        let mut window = next_window(map, Pass::Scrub, from, most);
        if !planted::is(Fault::ScrubReadsUnwritten) {
            // What was never written holds nothing that could agree, and stays as it is as long as
            // the window is open only where it does not look.
            let stripes = window.end.0 - window.start.0;
            (window.start, window.end) = decider.keeper.written_run(from, stripes);
        }
        let bytes = (window.end.0 - window.start.0) * stripe_bytes;
        scrub.not_before = now + time_of(bytes, rate);
        if from.0 == 0 {
            io.event(Event::Pass {
                pass: Pass::Scrub,
                state: PassEvent::Began,
            });
        }
        Some(window)
    }

    /// All shards are done with the window: the scrub goes on behind it, ends, or gives up.
    pub(super) fn close_scrub_window(&mut self, io: &mut impl Io) -> usize {
        let reports = self.decider().window.take().expect("looked at");
        let WindowReports {
            window, ok, tally, ..
        } = reports;
        let mut map = self.successor();
        map.window = None;
        let spoiled = std::mem::take(&mut self.decider().hold.window_spoiled);
        let failed = self.decider().metadata_failed;
        if !ok || failed {
            if !spoiled || failed {
                self.decider().scrub.failed = true;
                io.event(Event::Pass {
                    pass: Pass::Scrub,
                    state: PassEvent::Stopped,
                });
            }
            self.begin_broadcast(map, Vec::new(), Vec::new(), io);
            return 1;
        }
        let now = io.now();
        let decider = self.decider();
        let (next, _) = decider.keeper.written_run(window.end, 1);
        let ended = next.0 >= map.geometry.stripes();
        decider.scrub.record.tally.add(tally);
        decider.scrub.record.next = window.end;
        if ended {
            decider.scrub.finish(now);
        }
        let due = now.since(decider.checkpoint) >= CHECKPOINT;
        let quiet = decider.commands.is_empty() && decider.failures.is_empty();
        if quiet && !ended && !due {
            map.window = self.next_scrub_window(&map, io);
            if let Some(next) = map.window {
                self.set_window(next);
            }
        }
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        if ended || due {
            self.begin_checkpoint(Pass::Scrub, ended);
        }
        1
    }

    // ---- every shard ---------------------------------------------------------------------

    /// Starts tickets of the scrub: blocks of suspect cells first.
    pub(super) fn advance_scrub(&mut self, window: Window, io: &mut impl Io) -> usize {
        let depth = if self.is_busy() {
            DEPTH_BUSY
        } else {
            DEPTH_IDLE
        };
        let depth = depth.min(BUFFERS / self.geometry().group_members()).max(1);
        let (mut moved, now) = (0, io.now());
        if self.background.failed {
            self.background.scrub.forget_suspects();
        }
        while self.background.under_way < depth && self.tickets.free() > 0 {
            let (lanes, chunk) = (cell_lanes(self.geometry()), self.geometry().chunk_blocks());
            let per_stripe = self.background.cells_per_stripe;
            let in_cell = |cell: u64| {
                let number = u32::try_from(cell % per_stripe).expect("few cells");
                lanes.min(chunk - number * lanes)
            };
            let (position, block) = match self.background.scrub.take_block(in_cell) {
                Some((cell, block)) => (cell, Some(block)),
                None => match self.next_allowed_cell(window, now) {
                    Some(cell) => (cell, None),
                    None => break,
                },
            };
            let stripe = StripeIndex(window.start.0 + position / per_stripe);
            let cell = u32::try_from(position % per_stripe).expect("few cells");
            let slot = self.tickets.acquire().expect("one is free");
            self.background.under_way += 1;
            match block {
                None => self.begin_repair(slot, Pass::Scrub, (stripe, cell), io),
                Some(block) => {
                    self.begin_scrub_block(slot, (stripe, cell), cell * lanes + block, io);
                }
            }
            moved += 1;
        }
        let all = self.background.next == self.background.cells();
        if all && self.background.scrub.is_done() && self.background.under_way == 0 {
            moved += self.report_window(window, io);
        }
        moved
    }

    /// A ticket of the scrub has ended. A cell that is suspect is looked at once more.
    pub(super) fn scrub_ticket_done(&mut self, at: (StripeIndex, u32), suspect: bool, ok: Status) {
        let (stripe, cell) = at;
        self.background.ticket_done(stripe, cell, ok);
        if suspect {
            let position = self.background.position(stripe, cell);
            let position = position.expect("its window is open while it is under way");
            self.background.scrub.suspect(units::bytes_u64(position));
        }
    }

    /// Counts what was found, and tells the control path of it.
    pub(super) fn note_finding(&mut self, finding: ScrubFinding, io: &mut impl Io) {
        let scrub = &mut self.background.scrub;
        scrub.tally.count(&finding);
        self.counters.scrub_found += 1;
        if finding.outcome == ScrubOutcome::Repaired {
            self.counters.scrub_repaired += 1;
        }
        for role in finding.wrong {
            let (member, _) = self.map.member(finding.stripe, role);
            scrub.guilt[member.at()] += 1;
        }
        if scrub.tally.found() <= TOLD_MAX {
            io.event(Event::Scrubbed(finding));
        }
    }
}
