//! Requests of one turn that follow each other on a drive become one operation of the kernel.
//!
//! Nothing waits for company: what is joined is what one `poll` hands over in any case. Each
//! request is still answered once and for itself. What of an operation did not go through is made
//! again, each request by itself, so that an error is the fault of one request only. Why the bounds
//! are what they are: docs/design/011-joined-operations.md.
//!
//! What does not live here: how a request goes on that has an operation of its own (`work.rs`).

use std::time::Duration;

use block::Status;

use super::keys::Key;
use super::tasks::{Method, Stage};
use super::{DriveRequest, Port};
use crate::uring::{Direction, Transfer};

/// Segments of one operation that several requests share: one for each page.
pub(super) const SEGMENTS_JOINED_MAX: usize = 64;
/// Memory joins where one piece ends with a page and the next begins with one: a drive that takes
/// lists of pages (NVMe) would be asked once for each side of any other seam.
const PAGE_BYTES: usize = 4096;

/// Requests of one drive and direction that follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// When the last one came; from the next turn on it is with the kernel.
    turn: u64,
    last: u32,
    /// Where the last one ends, and so the next one would have to begin.
    end: u64,
    bytes: u64,
    segments: usize,
}

impl Run {
    fn new(turn: u64, slot: u32, request: &DriveRequest) -> Run {
        Run {
            turn,
            last: slot,
            end: request.offset + request.length,
            bytes: request.length,
            segments: request.segments.as_slice().len(),
        }
    }

    /// This one and the next, unless that is too much for one operation.
    fn and(&self, next: Run, bytes_max: u64) -> Option<Run> {
        let bytes = self.bytes + next.bytes;
        let segments = self.segments + next.segments;
        let fits = bytes <= bytes_max && segments <= SEGMENTS_JOINED_MAX;
        fits.then_some(Run {
            bytes,
            segments,
            ..next
        })
    }
}

impl Port {
    /// Puts a new task into the queue for the kernel, or behind the one whose operation it shares.
    pub(super) fn queue(&mut self, slot: u32) {
        if self.joins(slot) {
            self.joined_times += 1;
        } else {
            self.ready.push_back(slot);
        }
    }

    fn joins(&mut self, slot: u32) -> bool {
        let task = self.tasks.get(slot);
        let seat = self.seats[usize::from(task.seat)]
            .as_mut()
            .expect("a seat stays while it is used");
        if task.method != Method::Direct {
            // What comes after it does not go before it.
            seat.runs = Default::default();
            return false;
        }
        let run = &mut seat.runs[usize::from(task.reads())];
        let next = Run::new(self.turn, slot, &task.request);
        let before = std::mem::replace(run, next);
        if before.turn != next.turn || before.end != task.request.offset {
            return false;
        }
        let bytes_max = seat.drive.info().joined_bytes_max;
        let Some(both) = before.and(next, bytes_max.min(self.joined_bytes_max)) else {
            return false;
        };
        let request = task.request;
        let last = self.tasks.get(before.last);
        if !seam_fits(&last.request, &request) {
            return false;
        }
        last.next = Some(slot);
        *run = both;
        true
    }

    /// Hands a task and all that are joined to it to the kernel, or back to the queue.
    pub(super) fn start_joined(&mut self, head: u32) {
        let task = self.tasks.get(head);
        let direction = if task.reads() {
            Direction::Read
        } else {
            Direction::Write
        };
        let (place, offset) = (task.seat, task.request.offset);
        let handle = self.seat(place).handle.expect("only files have tasks");
        let transfer = Transfer {
            direction,
            handle,
            offset,
            key: Key::Task(head).encode(),
        };
        let started = if self.seat(place).drive.namespace().is_some() {
            self.send_joined(head, transfer)
        } else {
            let lists = self.tasks.joined(head).map(|task| &task.request.segments);
            self.rings
                .plain
                .start_lists(transfer, lists, SEGMENTS_JOINED_MAX)
        };
        if !started {
            self.ready.push_back(head);
            return;
        }
        self.in_kernel += 1;
        let mut next = Some(head);
        while let Some(slot) = next {
            let task = self.tasks.get(slot);
            let bytes = task.request.length;
            task.stage = Stage::InKernel { bytes };
            next = task.next;
        }
    }

    /// The operation of joined tasks moved so many bytes. Those that are wholly through end; what
    /// the others meet, they find out each by itself, after a while if the drive asked for that.
    pub(super) fn advance_joined(&mut self, head: u32, moved: u64, wait: Duration) {
        let mut moved = moved;
        let mut next = Some(head);
        while let Some(slot) = next {
            let task = self.tasks.get(slot);
            next = task.next.take();
            task.stage = Stage::Queued;
            let (place, bytes) = (task.seat, task.request.length);
            let is_through = moved >= bytes;
            moved = if is_through { moved - bytes } else { 0 };
            if self.seat(place).leaving {
                self.finish(slot, Status::Gone);
            } else if is_through {
                self.finish(slot, Status::Ok);
            } else {
                self.parted_times += 1;
                self.again(slot, wait);
            }
        }
        assert!(moved == 0, "{moved} bytes more were moved than asked");
    }
}

/// Whether the memory of two requests can be one list for any drive.
fn seam_fits(before: &DriveRequest, after: &DriveRequest) -> bool {
    let last = before.segments.as_slice().last();
    let first = after.segments.as_slice().first();
    let (Some(last), Some(first)) = (last, first) else {
        return false;
    };
    let end = last.address().addr().wrapping_add(last.len());
    (end | first.address().addr()).is_multiple_of(PAGE_BYTES)
}
