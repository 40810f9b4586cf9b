//! Requests that cross from one run of extents into another, or whose blocks are smaller than the
//! array's and that do not begin and end with one of those: carried out piece by piece.

use block::{Operation, Part, Request, Status};
use memory::{SegmentList, SegmentSlots};
use units::{ArrayIndex, bytes_usize};
use volume::VolumeMap;

use crate::shares::Share;

/// Requests of one reactor that go piece by piece at the same time.
pub(crate) const SPLITS: usize = 64;
/// Of these, the most that are kept for an array that does not use them.
const SPLITS_KEPT: usize = 8;

/// A request that is under way piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) array: ArrayIndex,
    pub(crate) queue: u32,
    /// In the guest's blocks.
    pub(crate) request: Request,
    /// Blocks of the guest that are done, and of the piece under way.
    pub(crate) done: u32,
    pub(crate) piece: u32,
    pub(crate) status: Status,
    lent: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Splits {
    slots: Vec<Option<Split>>,
    free: usize,
    /// An array that waits for its members leaves the others theirs.
    share: Share,
    lists: SegmentSlots,
    /// log2 of the bytes of the guest's blocks and of the array's.
    shifts: Vec<(u32, u32)>,
}

impl Default for Splits {
    /// None.
    fn default() -> Splits {
        Splits {
            slots: vec![None; SPLITS],
            free: SPLITS,
            share: Share::new(SPLITS, SPLITS_KEPT),
            lists: SegmentSlots::new(SPLITS, 16),
            shifts: vec![(0, 0); SPLITS],
        }
    }
}

impl Splits {
    /// An array comes, or goes; one that goes has nothing under way.
    pub fn set(&mut self, array: ArrayIndex, present: bool) {
        self.share.set(array, present);
    }

    /// Takes a request; `None` when no slot is free for its array. `shifts`: log2 of the bytes of
    /// its blocks and of the array's.
    pub(crate) fn begin(
        &mut self,
        (array, queue): (ArrayIndex, u32),
        request: Request,
        shifts: (u32, u32),
    ) -> Option<usize> {
        if self.share.room(array, self.free) == 0 {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        self.share.taken(array);
        self.free -= 1;
        let status = Status::Ok;
        self.slots[slot] = Some(Split {
            array,
            queue,
            request,
            done: 0,
            piece: 0,
            status,
            lent: false,
        });
        self.shifts[slot] = shifts;
        Some(slot)
    }

    /// The ring that asked.
    ///
    /// # Panics
    /// When nothing is under way there.
    #[must_use]
    pub fn ring_of(&self, slot: usize) -> usize {
        bytes_usize(u64::from(self.get(slot).queue))
    }

    pub(crate) fn get(&self, slot: usize) -> Split {
        self.slots[slot].expect("a split under way")
    }

    /// The next piece in blocks of the array, with its memory; `None` when all are done. Give it
    /// back by `hand_back` when it finds no room.
    pub(crate) fn next_piece(&mut self, slot: usize, map: &VolumeMap) -> Option<Request> {
        let (small, large) = self.shifts[slot];
        let split = self.slots[slot].as_mut().expect("a split under way");
        let request = split.request;
        let finer = large - small;
        let (next, part) = loop {
            if split.done == request.blocks || !split.status.is_ok() {
                return None;
            }
            let first = request.start + u64::from(split.done);
            let left = request.blocks - split.done;
            let inside = u32::try_from(first & ((1 << finer) - 1)).expect("at most 7");
            if inside == 0 && left >> finer > 0 {
                break ((first >> finer, left >> finer), Part::WHOLE);
            }
            let covered = left.min((1 << finer) - inside);
            if request.operation == Operation::Discard {
                // A hint: what does not fill a block stays as it is.
                split.done += covered;
                continue;
            }
            let bytes = |blocks: u32| u16::try_from(blocks << small).expect("below 4096");
            let (offset, bytes) = (bytes(inside), bytes(covered));
            break ((first >> finer, 1), Part { offset, bytes });
        };
        let (start, blocks) = match map.locate(next.0, next.1) {
            Ok(found) => found,
            Err(status) => {
                split.status = status;
                return None;
            }
        };
        split.piece = if part.is_whole() {
            blocks << finer
        } else {
            u32::from(part.bytes >> small)
        };
        let carries = matches!(request.operation, Operation::Read | Operation::Write);
        let segments = if carries {
            split.lent = true;
            let offset = bytes_usize(u64::from(split.done) << small);
            let length = bytes_usize(u64::from(split.piece) << small);
            self.lists
                .lend(slot, |list| request.segments.cut(offset, length, list))
        } else {
            SegmentList::EMPTY
        };
        Some(Request {
            start,
            blocks,
            part,
            segments,
            ..request
        })
    }

    /// The piece found no room: it is made again later.
    pub(crate) fn hand_back(&mut self, slot: usize) {
        self.take_back(slot);
    }

    /// The piece under way is done.
    ///
    /// # Panics
    /// When none is.
    pub fn piece_done(&mut self, slot: usize, status: Status) {
        self.take_back(slot);
        let split = self.slots[slot].as_mut().expect("a split under way");
        split.done += split.piece;
        split.status = split.status.and(status);
    }

    pub(crate) fn end(&mut self, slot: usize) -> Split {
        let ended = self.slots[slot].take().expect("a split under way");
        self.share.answered(ended.array);
        self.free += 1;
        ended
    }

    fn take_back(&mut self, slot: usize) {
        let split = self.slots[slot].as_mut().expect("a split under way");
        if std::mem::replace(&mut split.lent, false) {
            self.lists.take_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::{ExtentRun, ExtentSpace, VolumeRecord, VolumeState};
    use array::{Geometry, GeometryParameters, Level};
    use block::{Cookie, Stability};
    use units::BlockSize;
    use uuid::Uuid;

    const SMALL: u32 = 9;
    const LARGE: u32 = 12;

    /// Two extents that do not follow each other, on blocks of 4096 bytes.
    fn map() -> (VolumeMap, u64) {
        let geometry = Geometry::new(GeometryParameters {
            level: Level::L5,
            members: 3,
            parity: None,
            group_size: None,
            chunk_bytes: 4096,
            block: BlockSize::B4096,
            member_data_blocks: 64,
        });
        let space = ExtentSpace::with_stripes(&geometry.expect("a shape"), 8).expect("extents");
        let volume = VolumeRecord {
            uuid: Uuid::from_u128(1),
            name: "v".to_owned(),
            size_blocks: 2 * space.extent_blocks(),
            extents: [5, 2].map(|first| ExtentRun { first, count: 1 }).to_vec(),
            state: VolumeState::Ready,
            stable_buffers: false,
        };
        let map = VolumeMap::new(&volume, &space).expect("ready");
        (map, space.extent_blocks())
    }

    /// The array's blocks that a request of small blocks becomes: operation by operation, first
    /// byte and bytes.
    fn pieces(operation: Operation, start: u64, blocks: u32) -> Vec<(u64, u64)> {
        let (map, _) = map();
        let mut splits = Splits::default();
        let request = Request {
            operation,
            start,
            blocks,
            part: Part::WHOLE,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            cookie: Cookie(0),
        };
        let slot = splits
            .begin((ArrayIndex(0), 0), request, (SMALL, LARGE))
            .expect("a slot");
        let mut found = Vec::new();
        while let Some(piece) = splits.next_piece(slot, &map) {
            let part = piece.part;
            assert!(part.is_whole() || piece.blocks == 1);
            let bytes = if part.is_whole() {
                u64::from(piece.blocks) << LARGE
            } else {
                u64::from(part.bytes)
            };
            found.push(((piece.start << LARGE) + u64::from(part.offset), bytes));
            splits.piece_done(slot, Status::Ok);
        }
        assert!(splits.end(slot).status.is_ok());
        found
    }

    #[test]
    fn small_blocks_become_all_bytes_once_and_in_order() {
        let (map, extent) = map();
        let all = map.blocks() << (LARGE - SMALL);
        for start in 0..all {
            for blocks in 1..=u32::try_from(all - start).expect("few") {
                let mut byte = start << SMALL;
                for (first, bytes) in pieces(Operation::WriteZeroes, start, blocks) {
                    let at = byte >> LARGE;
                    let (block, _) = map.locate(at, 1).expect("inside");
                    assert_eq!(first, (block << LARGE) + byte % (1 << LARGE));
                    assert!(at / extent == ((byte + bytes - 1) >> LARGE) / extent);
                    byte += bytes;
                }
                assert_eq!(byte, (start + u64::from(blocks)) << SMALL);
            }
        }
    }

    #[test]
    fn an_array_that_waits_leaves_others_some_slots() {
        let mut splits = Splits::default();
        let request = Request {
            operation: Operation::Read,
            start: 0,
            blocks: 9,
            part: Part::WHOLE,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            cookie: Cookie(0),
        };
        let (waits, goes_on) = (ArrayIndex(3), ArrayIndex(9));
        splits.set(waits, true);
        splits.set(goes_on, true);
        let begin = |splits: &mut Splits, array| splits.begin((array, 0), request, (SMALL, LARGE));
        let taken = (0..SPLITS).filter(|_| begin(&mut splits, waits).is_some());
        assert_eq!(taken.count(), SPLITS - SPLITS_KEPT);
        for _ in 0..3 * SPLITS_KEPT {
            let slot = begin(&mut splits, goes_on).expect("its share");
            splits.end(slot);
        }
    }

    #[test]
    fn a_discard_leaves_parts_of_blocks_alone() {
        for (start, blocks, kept) in [(1, 6, 0), (1, 7, 0), (1, 15, 1), (0, 9, 1), (7, 18, 2)] {
            let found = pieces(Operation::Discard, start, blocks);
            let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, kept << LARGE, "{start}+{blocks}");
        }
    }
}
