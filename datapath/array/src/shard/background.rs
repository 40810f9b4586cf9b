//! One shard's part of the background pass: the cells of the open window whose stripes it owns.

use block::{Part, Stability, Status};
use memory::SegmentList;
use units::limits::LARGE_BUFFER_BYTES;
use units::{Instant, StripeIndex, bytes_u64};

use super::Shard;
use super::scrub::WindowScrub;
use super::ticket::{Kind, Looking, TicketOrder};
use crate::coordinator::{PassState, PassStatus, due_pass, next_start};
use crate::geometry::Geometry;
use crate::io::{Io, Message};
use crate::map::{ArrayMap, Pass, Window};
use crate::plan::Band;

/// Tickets at once while nothing else is going on, and while requests are served.
const DEPTH_IDLE: usize = 16;
const DEPTH_BUSY: usize = 8;

/// See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a window fails or not whether or not that has been reported"
)]
pub(super) struct Background {
    window: Option<Window>,
    pub(super) cells_per_stripe: u64,
    /// The next cell of the window to look at.
    pub(super) next: u64,
    pub(super) under_way: usize,
    /// By cell of the window: this shard's tickets did it.
    filled: Vec<bool>,
    pub(super) failed: bool,
    reported: bool,
    pub(super) scrub: WindowScrub,
}

impl Background {
    pub(super) fn new(map: &ArrayMap) -> Background {
        let mut background = Background {
            window: None,
            cells_per_stripe: stripe_cells(&map.geometry),
            next: 0,
            under_way: 0,
            filled: Vec::new(),
            failed: false,
            reported: true,
            scrub: WindowScrub::new(map.members.len()),
        };
        background.follow(map);
        background
    }

    /// Whether a window is open.
    pub(super) fn is_open(&self) -> bool {
        self.window.is_some()
    }

    /// Acts by a new map: begins its window if it is a new one.
    pub(super) fn follow(&mut self, map: &ArrayMap) {
        if self.window.map(|window| window.opened) == map.window.map(|window| window.opened) {
            return;
        }
        assert_eq!(
            self.under_way, 0,
            "a window is closed when all shards are done with it"
        );
        self.window = map.window;
        self.next = 0;
        self.failed = false;
        self.reported = map.window.is_none();
        self.filled.clear();
        let cells = units::bytes_usize(self.cells());
        self.filled.resize(cells, false);
        let scrubs = map.window.is_some_and(|window| window.pass == Pass::Scrub);
        self.scrub.begin(if scrubs { cells } else { 0 });
    }

    pub(super) fn cells(&self) -> u64 {
        self.window.map_or(0, |window| {
            (window.end.0 - window.start.0) * self.cells_per_stripe
        })
    }

    /// Whether the open window's pass has done this cell.
    #[inline]
    pub(super) fn is_filled(&self, stripe: StripeIndex, cell: u32) -> bool {
        self.position(stripe, cell)
            .is_some_and(|position| self.filled[position])
    }

    #[inline]
    pub(super) fn position(&self, stripe: StripeIndex, cell: u32) -> Option<usize> {
        let window = self.window?;
        if stripe < window.start || stripe >= window.end {
            return None;
        }
        let cells = (stripe.0 - window.start.0) * self.cells_per_stripe + u64::from(cell);
        Some(units::bytes_usize(cells))
    }

    /// A ticket of the pass has ended.
    pub(super) fn ticket_done(&mut self, stripe: StripeIndex, cell: u32, status: Status) {
        assert!(self.under_way > 0, "a ticket ends once");
        self.under_way -= 1;
        if !status.is_ok() {
            self.failed = true;
            return;
        }
        let position = self
            .position(stripe, cell)
            .expect("its window is open while it is under way");
        self.filled[position] = true;
    }
}

impl Shard {
    /// How the background stands, on the home shard: `None` when nothing is to be done.
    #[must_use]
    pub fn pass_status(&self) -> Option<PassStatus> {
        let coordinator = self.coordinator.as_deref()?;
        let pass = due_pass(&self.map)?;
        let done = next_start(&self.map, pass);
        let stripes = self.map.geometry.stripes();
        let (left, to_visit) = match pass {
            Pass::Resync => {
                let suspects = &self.map.suspects;
                let all = suspects.stripes_from(StripeIndex(0));
                (suspects.stripes_from(done), all)
            }
            Pass::Scrub => unreachable!("it is never due: its record says where it is"),
            Pass::Rebuild => self.map.lacking(),
        };
        Some(PassStatus {
            pass,
            done,
            stripes,
            left,
            to_visit,
            state: if coordinator.retry.is_stopped() {
                PassState::Stopped
            } else if coordinator.passes_run {
                PassState::Running
            } else {
                PassState::Paused
            },
        })
    }

    /// Starts tickets of the pass, and tells the home when this shard's part is done.
    pub(super) fn advance_background(&mut self, io: &mut impl Io) -> usize {
        let Some(window) = self.background.window else {
            return 0;
        };
        let now = io.now();
        self.advance_throttle(now);
        if self.background.reported {
            return 0;
        }
        if window.pass == Pass::Scrub {
            return self.advance_scrub(window, io);
        }
        let depth = if self.is_busy() {
            DEPTH_BUSY
        } else {
            DEPTH_IDLE
        };
        let mut moved = 0;
        let cells = self.background.cells();
        while self.background.next < cells && self.background.under_way < depth {
            if self.tickets.free() == 0 {
                break;
            }
            let Some(position) = self.next_allowed_cell(window, now) else {
                break;
            };
            let stripe = StripeIndex(window.start.0 + position / self.background.cells_per_stripe);
            let cell =
                u32::try_from(position % self.background.cells_per_stripe).expect("few cells");
            let slot = self.tickets.acquire().expect("one is free");
            self.background.under_way += 1;
            self.begin_repair(slot, window.pass, (stripe, cell), io);
            moved += 1;
        }
        if self.background.next == cells && self.background.under_way == 0 {
            moved += self.report_window(window, io);
        }
        moved
    }

    /// Whether requests are served.
    pub(super) fn is_busy(&self) -> bool {
        self.requests.in_use() + self.works.in_use() > 0
    }

    /// Takes the next cell of the window, if it may be done now for all that requests take.
    pub(super) fn next_allowed_cell(&mut self, window: Window, now: Instant) -> Option<u64> {
        let before = self.background.next;
        let position = self.next_owned_cell(window)?;
        let stripe = StripeIndex(window.start.0 + position / self.background.cells_per_stripe);
        if self.take_allowance(stripe, now) {
            return Some(position);
        }
        self.background.next = before;
        None
    }

    /// Takes the next cell of the window that this shard owns and where somebody lacks something;
    /// none after a failure.
    fn next_owned_cell(&mut self, window: Window) -> Option<u64> {
        let (cells, per_stripe) = (self.background.cells(), self.background.cells_per_stripe);
        if self.background.failed {
            self.background.next = cells;
        }
        while self.background.next < cells {
            let position = self.background.next;
            let stripe = StripeIndex(window.start.0 + position / per_stripe);
            let is_idle = || window.pass == Pass::Rebuild && self.map.to_fill(stripe).is_empty();
            if self.map.owner(stripe) == Some(self.me) && !is_idle() {
                self.background.next += 1;
                return Some(position);
            }
            self.background.next += per_stripe - position % per_stripe;
        }
        None
    }

    pub(super) fn report_window(&mut self, window: Window, io: &mut impl Io) -> usize {
        let (serial, ok) = (window.opened, !self.background.failed);
        let tally = self.background.scrub.tally;
        if self.map.home == self.me {
            self.coordinate_window_done(serial, ok, tally);
        } else {
            let done = Message::WindowDone { serial, ok, tally };
            if io.ask(self.map.home, done).is_err() {
                return 0;
            }
            self.counters.messages += 1;
        }
        self.background.reported = true;
        1
    }

    /// Asks for a cell of a background pass.
    pub(super) fn begin_repair(
        &mut self,
        slot: u32,
        pass: Pass,
        (stripe, cell): (StripeIndex, u32),
        io: &mut impl Io,
    ) {
        let geometry = self.geometry();
        let start = cell * cell_lanes(geometry);
        let end = (start + cell_lanes(geometry)).min(geometry.chunk_blocks());
        let asked = Band {
            lanes: start..end,
            written: geometry.data_roles(),
        };
        let order = TicketOrder {
            kind: Kind::Repair(pass),
            work: 0,
            stripe,
            cell,
            start: 0,
            part: Part::WHOLE,
            offset: 0,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            late: None,
        };
        self.tickets[slot].looking = Looking::default();
        self.begin_ticket(slot, order, &[asked], io);
    }
}

/// Lanes of one cell: the most blocks of a chunk that one ticket covers.
pub(crate) fn cell_lanes(geometry: &Geometry) -> u32 {
    let blocks = bytes_u64(LARGE_BUFFER_BYTES) >> geometry.block_size().shift();
    u32::try_from(blocks)
        .expect("64 KiB in blocks")
        .min(geometry.chunk_blocks())
}

/// Cells of one stripe.
pub(super) fn stripe_cells(geometry: &Geometry) -> u64 {
    u64::from(geometry.chunk_blocks().div_ceil(cell_lanes(geometry)))
}
