//! One vocabulary for every seam of the data path: what is asked, and what is answered.
//!
//! An export, a volume, an array and a drive all speak `Request` and `Completion`; each seam has
//! `submit`, which may hand the request back as [`Full`], and a way to collect completions.
#![forbid(unsafe_code)]

mod histogram;

use memory::SegmentList;

pub use histogram::{Histogram, LATENCY_BUCKETS};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Blocks to memory.
    Read,
    /// Memory to blocks.
    Write,
    /// Everything completed before becomes durable. Has no blocks and no memory.
    Flush,
    /// The content of the blocks is no longer needed; they may read as zeroes or as before.
    Discard,
    /// The blocks read as zeroes from now on. The space may be released.
    WriteZeroes,
}

impl Operation {
    /// Whether the operation changes blocks.
    #[must_use]
    pub fn changes(self) -> bool {
        match self {
            Operation::Write | Operation::Discard | Operation::WriteZeroes => true,
            Operation::Read | Operation::Flush => false,
        }
    }
}

/// The verdict on a request. What the guest may be told; what we want to know goes to counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done.
    #[default]
    Ok,
    /// The bytes could not be read or written, and no redundancy is left to answer from.
    Media,
    /// The drive (or the array) is not there any more.
    Gone,
    /// The blocks are not inside.
    OutOfRange,
    /// The volume is read-only.
    ReadOnly,
    /// The operation is not known here.
    Unsupported,
    /// The host has no space left behind a file drive.
    NoSpace,
    /// The request contradicts itself (lengths, alignment).
    Invalid,
}

impl Status {
    /// Whether all went well.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == Status::Ok
    }

    /// The first verdict that is not `Ok`.
    #[must_use]
    pub fn and(self, other: Status) -> Status {
        if self.is_ok() { other } else { self }
    }
}

/// Some bytes of one block: what a guest with smaller blocks than the array's asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where in the block they begin.
    pub offset: u16,
    /// How many; 0 stands for whole blocks.
    pub bytes: u16,
}

impl Part {
    /// No part: whole blocks.
    pub const WHOLE: Part = Part {
        offset: 0,
        bytes: 0,
    };

    /// Whether whole blocks are meant.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.bytes == 0
    }
}

/// What may become of the memory of a write before its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stability {
    /// Its owner may change it at any time, as a guest may: what is computed from it needs a copy.
    #[default]
    MayChange,
    /// Its owner promises not to.
    Stable,
}

/// The asker's own number of a request; comes back in the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// What is asked of a volume, an array or a drive. Blocks are in the block size of who is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which kind.
    pub operation: Operation,
    /// First block.
    pub start: u64,
    /// How many blocks.
    pub blocks: u32,
    /// Whole blocks, or which bytes of the one block.
    pub part: Part,
    /// Where the bytes are or go: for `Read` and `Write` exactly as many as are asked for, else
    /// empty.
    pub segments: SegmentList,
    /// What may become of that memory meanwhile.
    pub stability: Stability,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's own number.
    pub cookie: Cookie,
    /// The verdict.
    pub status: Status,
}

/// The thing handed back because no slot is free. Retry after the next poll.
#[derive(Debug)]
pub struct Full<T>(pub T);
