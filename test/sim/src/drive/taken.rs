//! Requests that a drive has taken, and the bytes of writes.

use array::MemberRequest;
use block::Operation;
use units::{Instant, ReactorIndex, bytes_usize};

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

/// What a write carries, in `room`, which grows as it must.
pub(super) fn bytes_of<'a>(request: &MemberRequest, room: &'a mut Vec<u8>) -> &'a [u8] {
    if request.operation != Operation::Write {
        return &[];
    }
    let length = bytes_usize(request.length);
    if room.len() < length {
        room.resize(length, 0);
    }
    let mut done = 0;
    for segment in request.segments.as_slice() {
        segment.copy_to_slice(&mut room[done..done + segment.len()]);
        done += segment.len();
    }
    assert_eq!(done, length, "a write carries what it names");
    &room[..length]
}

/// A copy of what a write carries.
pub(super) fn copy_of(request: &MemberRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes_of(request, &mut bytes);
    bytes
}
