//! Requests that a drive has taken, and the bytes of writes.

use array::MemberRequest;
use block::Operation;
use units::{Instant, ReactorIndex, bytes_usize};

use super::SimDrive;

/// A request that the drive has taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) reactor: ReactorIndex,
    pub(super) request: MemberRequest,
    /// The bytes of a write, if they were taken when it was submitted. Others are only when it is
    /// carried out: nobody may change them meanwhile.
    pub(super) bytes: Option<Vec<u8>>,
    /// Of a flush: what it covers.
    pub(super) began: u64,
    pub(super) at: Instant,
    /// It is answered only once this block was written.
    pub(super) sticks: Option<u64>,
    /// It waits until `let_writes_go`, whatever comes after it.
    pub(super) is_kept: bool,
}

/// A copy of what a write carries, in one of the `rooms` if there is one.
pub(super) fn copy_of(request: &MemberRequest, rooms: &mut Vec<Vec<u8>>) -> Vec<u8> {
    if request.operation != Operation::Write {
        return Vec::new();
    }
    let mut bytes = rooms.pop().unwrap_or_default();
    bytes.resize(bytes_usize(request.length), 0);
    let mut done = 0;
    for segment in request.segments.as_slice() {
        segment.copy_to_slice(&mut bytes[done..done + segment.len()]);
        done += segment.len();
    }
    assert_eq!(done, bytes.len(), "a write carries what it names");
    bytes
}

impl SimDrive {
    /// A request has ended: if it was a flush, others may be under way that began before it.
    pub(super) fn note_flush_end(&mut self, ended: Operation) {
        if ended == Operation::Flush {
            let flushes = |taken: &&Taken| taken.request.operation == Operation::Flush;
            let flushes = self.taken.iter().filter(flushes);
            let latest = flushes.map(|taken| taken.began).max();
            self.store.flush_ends(latest);
        }
    }
}
