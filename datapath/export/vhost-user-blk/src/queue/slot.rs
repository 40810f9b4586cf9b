//! One chain on its way from the ring to the volume and back.

use block::{Cookie, Operation, Part, Request, Stability, Status};
use memory::{Segment, SegmentList};
use units::{Instant, bytes_u64, limits};
use virtqueue::Head;

use crate::request::{self, Blocks, Work};

/// What a slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Free,
    /// The pieces of its request.
    Moving,
    /// The flush that write-through adds.
    Flushing,
}

/// A chain that was taken and is not yet answered. Its number is its head's.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) phase: Phase,
    pub(super) head: Head,
    pub(super) work: Work,
    /// The data of a read or write; lent, else empty.
    pub(super) segments: SegmentList,
    pub(super) ranges: Vec<Blocks>,
    /// How many requests the chain becomes.
    pub(super) pieces: usize,
    /// Pieces submitted so far.
    pub(super) submitted: usize,
    /// Pieces submitted and not completed.
    pub(super) outstanding: usize,
    pub(super) verdict: Status,
    /// Whether the answer waits for a flush.
    pub(super) through: bool,
    pub(super) status: Segment,
    pub(super) writable: u64,
    pub(super) bytes: u64,
    pub(super) begun: Instant,
    /// Which memory table the segments are from.
    pub(super) table: u64,
}

impl Slot {
    pub(super) fn free() -> Slot {
        Slot {
            phase: Phase::Free,
            head: Head::default(),
            work: Work::Flush,
            segments: SegmentList::EMPTY,
            ranges: Vec::new(),
            pieces: 0,
            submitted: 0,
            outstanding: 0,
            verdict: Status::Ok,
            through: false,
            status: Segment::EMPTY,
            writable: 0,
            bytes: 0,
            begun: Instant(0),
            table: 0,
        }
    }

    /// Its write is done, and is to be durable before it is answered.
    pub(super) fn begin_flush(&mut self) {
        self.phase = Phase::Flushing;
        self.segments = SegmentList::EMPTY;
        self.pieces += 1;
    }

    /// Tells the guest the verdict.
    #[inline(always)]
    pub(super) fn write_status(&self) {
        self.status
            .copy_from_slice(&[request::status_byte(self.verdict)]);
    }

    /// The operation that the guest asked the volume for.
    pub(super) fn operation(&self) -> Option<Operation> {
        match self.work {
            Work::Answer(_) | Work::Serial => None,
            Work::Move(operation, _) | Work::Large(operation) | Work::Ranges(operation) => {
                Some(operation)
            }
            Work::Flush => Some(Operation::Flush),
        }
    }

    /// The piece that is to be submitted next.
    #[inline(always)]
    pub(super) fn next_request(&self) -> Request {
        let (operation, blocks) = match self.work {
            _ if self.phase == Phase::Flushing => (Operation::Flush, Blocks::NONE),
            Work::Move(operation, blocks) => (operation, blocks),
            Work::Large(_) => return self.next_of_large(),
            Work::Ranges(operation) => (operation, self.ranges[self.submitted]),
            Work::Flush | Work::Answer(_) | Work::Serial => (Operation::Flush, Blocks::NONE),
        };
        self.request(operation, blocks, self.segments)
    }

    #[inline(always)]
    fn request(&self, operation: Operation, blocks: Blocks, segments: SegmentList) -> Request {
        Request {
            operation,
            start: blocks.start,
            blocks: blocks.count,
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie: Cookie(u64::from(self.head.id())),
        }
    }

    /// As `next_request`, of data that was cut where requests begin.
    #[cold]
    fn next_of_large(&self) -> Request {
        let operation = self.operation().expect("it moves data");
        let offset = bytes_u64(self.submitted) * limits::REQUEST_BYTES_MAX;
        let bytes = limits::REQUEST_BYTES_MAX.min(self.bytes - offset);
        let [offset, bytes] = [offset, bytes].map(units::bytes_usize);
        let segments = self.segments.whole(offset, bytes);
        self.request(operation, self.ranges[self.submitted], segments)
    }
}

/// The verdict that tells more: a failure outweighs "not known", which outweighs "done".
pub(super) fn worse(one: Status, other: Status) -> Status {
    match (one, other) {
        (Status::Ok | Status::Unsupported, other) if !other.is_ok() => other,
        (one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_that_tells_more_wins_in_any_order() {
        let (ok, unknown, failed) = (Status::Ok, Status::Unsupported, Status::Media);
        for (one, other, both) in [
            (ok, ok, ok),
            (ok, unknown, unknown),
            (ok, failed, failed),
            (unknown, failed, failed),
            (unknown, unknown, unknown),
            (failed, failed, failed),
        ] {
            assert_eq!((worse(one, other), worse(other, one)), (both, both));
        }
    }
}
