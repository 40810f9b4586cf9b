//! Requests that cross from one run of extents into another: carried out run by run.

use block::{Operation, Request, Status};
use memory::{SegmentList, SegmentSlots};
use units::bytes_usize;
use volume::VolumeMap;

/// Requests of one reactor that cross a border at the same time.
pub(crate) const SPLITS: usize = 64;

/// A request that is under way piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) queue: u32,
    pub(crate) request: Request,
    /// Blocks that are done, and of the piece under way.
    pub(crate) done: u32,
    pub(crate) piece: u32,
    pub(crate) status: Status,
    lent: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Splits {
    slots: Vec<Option<Split>>,
    lists: SegmentSlots,
    block_shift: Vec<u32>,
}

impl Splits {
    pub(crate) fn new() -> Splits {
        Splits {
            slots: vec![None; SPLITS],
            lists: SegmentSlots::new(SPLITS, 16),
            block_shift: vec![0; SPLITS],
        }
    }

    /// Takes a request; `None` when no slot is free.
    pub(crate) fn begin(
        &mut self,
        queue: u32,
        request: Request,
        block_shift: u32,
    ) -> Option<usize> {
        let slot = self.slots.iter().position(Option::is_none)?;
        let status = Status::Ok;
        self.slots[slot] = Some(Split {
            queue,
            request,
            done: 0,
            piece: 0,
            status,
            lent: false,
        });
        self.block_shift[slot] = block_shift;
        Some(slot)
    }

    pub(crate) fn get(&self, slot: usize) -> Split {
        self.slots[slot].expect("a split under way")
    }

    /// The next piece in blocks of the array, with its memory; `None` when all are done. Give it
    /// back by `hand_back` when it finds no room.
    pub(crate) fn next_piece(&mut self, slot: usize, map: &VolumeMap) -> Option<Request> {
        let split = self.slots[slot].as_mut().expect("a split under way");
        let request = split.request;
        if split.done == request.blocks || !split.status.is_ok() {
            return None;
        }
        let left = request.blocks - split.done;
        let (start, blocks) = match map.locate(request.start + u64::from(split.done), left) {
            Ok(found) => found,
            Err(status) => {
                split.status = status;
                return None;
            }
        };
        split.piece = blocks;
        let shift = self.block_shift[slot];
        let carries = matches!(request.operation, Operation::Read | Operation::Write);
        let segments = if carries {
            split.lent = true;
            let offset = bytes_usize(u64::from(split.done) << shift);
            let length = bytes_usize(u64::from(blocks) << shift);
            self.lists
                .lend(slot, |list| request.segments.cut(offset, length, list))
        } else {
            SegmentList::EMPTY
        };
        Some(Request {
            start,
            blocks,
            segments,
            ..request
        })
    }

    /// The piece found no room: it is made again later.
    pub(crate) fn hand_back(&mut self, slot: usize) {
        self.take_back(slot);
    }

    /// The piece under way is done.
    pub(crate) fn piece_done(&mut self, slot: usize, status: Status) {
        self.take_back(slot);
        let split = self.slots[slot].as_mut().expect("a split under way");
        split.done += split.piece;
        split.status = split.status.and(status);
    }

    pub(crate) fn end(&mut self, slot: usize) -> Split {
        self.slots[slot].take().expect("a split under way")
    }

    fn take_back(&mut self, slot: usize) {
        let split = self.slots[slot].as_mut().expect("a split under way");
        if std::mem::replace(&mut split.lent, false) {
            self.lists.take_back(slot);
        }
    }
}
