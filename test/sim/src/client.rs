//! What guests do: requests to volumes, judged by the model.

mod asks;
mod ends;
mod lost;
mod memory;
mod ringing;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use ::memory::{Buffer, Segment, SegmentSlots};
use array::format::{ArrayConfig, ExtentSpace};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use units::{BlockSize, ReactorIndex, bytes_u64, bytes_usize};
use uuid::Uuid;
use volume::{Piece, VolumeMap};

use self::memory::Memory;
use crate::random::Random;
use crate::rings::Rings;
use crate::world::World;

/// Guests with the smallest blocks have so many in one of the array.
const PARTS: usize = 4;
/// Requests at a time.
pub const IN_FLIGHT: usize = 12;
/// Of these, so many are kept for what must be asked at once.
const KEPT: usize = 4;
/// Pieces of one request.
const PIECES: usize = 32;
const BUFFER_BYTES: usize = 512 << 10;
/// Writes of at most so many blocks are read back at once.
const READ_BACK_BLOCKS: u32 = 64;
/// So often, less one, a guest changes what it is writing at the most.
const CHANGES: u64 = 9;
/// Bytes that a volume can grow to, as the model keeps it.
pub const VOLUME_BYTES_MAX: u64 = 6 << 20;

/// What a request waits for in the model.
#[derive(Debug)]
enum Token {
    Write(model::Write),
    Read(model::Read),
    Flush(BTreeMap<Uuid, model::Flush>),
}

/// A request as the guest knows it.
#[derive(Clone, Debug)]
pub struct Asked {
    volume: Uuid,
    operation: Operation,
    start: u64,
    blocks: u32,
    part: Part,
    /// How many bytes it is about, and what is written.
    length: usize,
    bytes: Rc<Vec<u8>>,
}

#[derive(Debug)]
struct Pending {
    asked: Asked,
    /// How many requests were begun before.
    number: u64,
    /// How often its guest changes what it writes while that is under way.
    changes: u64,
    /// It meets what was lost when it was begun.
    may_fail: bool,
    token: Token,
    /// Where its data is, and what of ours that is; nothing of ours for what is in a ring.
    memory: Segment,
    buffer: Option<Buffer>,
    reactor: ReactorIndex,
    pieces: Vec<Piece>,
    submitted: usize,
    answered: usize,
    status: Status,
}

/// A volume as its guest knows it.
#[derive(Debug)]
pub struct Disk {
    model: model::Volume,
    map: VolumeMap,
    /// Bytes below are read and written; grows.
    blocks: u64,
}

/// Writes in order: to the same place of one chunk after another, or each right behind the last.
#[derive(Clone, Copy, Debug)]
struct Stream {
    volume: Uuid,
    next: u64,
    step: u64,
    blocks: u64,
    left: u64,
}

/// All guests.
#[derive(Debug)]
pub struct Client {
    pool: Memory,
    lists: SegmentSlots,
    pending: BTreeMap<usize, Pending>,
    /// Room for what a read has found.
    found: Vec<u8>,
    /// By uuid.
    pub disks: BTreeMap<Uuid, Disk>,
    /// Distinguishes all contents that are ever written.
    writes: u64,
    /// A volume that is being deleted: its guest is gone.
    pub hidden: Option<Uuid>,
    /// Blocks of the array that nobody reads or writes.
    pub keep_off: Vec<Range<u64>>,
    /// Blocks of the array that nobody can tell, until they are written: requests may fail.
    pub lost: BTreeSet<u64>,
    /// Of these, discarded ones: they may be lost still.
    pub discarded: BTreeSet<u64>,
    /// Blocks beside which some are lost, and not given up yet: writes may fail.
    pub unsure: Vec<Range<u64>>,
    /// Drives have refused some writes and taken others since all was well.
    pub is_refused: bool,
    /// What was being written then when an engine ended, and by writes that were given up with a
    /// hold: it may have been given up just before, or be later.
    cut_off: BTreeSet<u64>,
    /// The stripes in which such drives were needed: writes may fail there.
    pub refused: Vec<Range<u64>>,
    /// Blocks of the array that nobody can tell and that belong to no volume yet.
    open: BTreeSet<u64>,
    /// Blocks of the array that guests were writing from memory which they leave alone, when an
    /// engine was killed: a member that is gone may take them along.
    pub half_written: BTreeSet<u64>,
    /// Of these, those that were, and that nobody has written since.
    pub half_lost: BTreeSet<u64>,
    /// Some guests change what they write while that is under way.
    pub restless: bool,
    /// How often one did.
    pub changed: u64,
    /// Errors are expected of anything; what reads bring is judged as ever.
    pub doomed: bool,
    /// Reads answered since then, and those of them that failed.
    pub beyond: (u64, u64),
    /// So many of the first requests may fail: members were waited for in vain.
    pub lenient: u64,
    /// Flushes answered.
    pub flushed: u64,
    /// Requests begun.
    pub begun: u64,
    /// Requests answered.
    pub answered: u64,
    /// Reads of what was written since they were taken last.
    written: Vec<Asked>,
    /// Of the array.
    chunk_blocks: u64,
    /// A stream of writes that goes on.
    stream: Option<Stream>,
    /// Guests that have rings.
    rings: Option<Rings>,
    /// Bytes of the blocks that guests address: those of the array, or smaller ones.
    atom: usize,
    /// Bytes of a block of the array.
    block: usize,
}

impl Client {
    /// Guests that write and read parts of blocks, too, or do not.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn new(parts: bool, chunk_blocks: u64, block: BlockSize) -> Client {
        let block = bytes_usize(block.bytes());
        Client {
            pool: Memory::new(),
            lists: SegmentSlots::new(IN_FLIGHT * PIECES, 4),
            pending: BTreeMap::new(),
            found: Vec::new(),
            disks: BTreeMap::new(),
            writes: 0,
            hidden: None,
            keep_off: Vec::new(),
            lost: BTreeSet::new(),
            discarded: BTreeSet::new(),
            unsure: Vec::new(),
            is_refused: false,
            cut_off: BTreeSet::new(),
            refused: Vec::new(),
            open: BTreeSet::new(),
            half_written: BTreeSet::new(),
            half_lost: BTreeSet::new(),
            restless: false,
            changed: 0,
            doomed: false,
            beyond: (0, 0),
            lenient: 0,
            flushed: 0,
            begun: 0,
            answered: 0,
            written: Vec::new(),
            chunk_blocks,
            stream: None,
            rings: None,
            atom: if parts { block / PARTS } else { block },
            block,
        }
    }

    /// Follows the volume table: maps of all volumes that are ready.
    ///
    /// # Panics
    /// When a volume is there that nobody made, or is not there that somebody made.
    pub fn follow(&mut self, config: &ArrayConfig, space: &ExtentSpace) {
        let mut maps: BTreeMap<Uuid, VolumeMap> = BTreeMap::new();
        for volume in &config.volumes {
            if let Some(map) = VolumeMap::new(volume, space) {
                maps.insert(volume.uuid, map);
            }
        }
        for (uuid, disk) in &mut self.disks {
            let map = maps.remove(uuid);
            let map = map.unwrap_or_else(|| panic!("volume {uuid} is not there any more"));
            assert!(map.blocks() >= disk.blocks, "volume {uuid} has shrunk");
            disk.blocks = map.blocks();
            disk.map = map;
        }
        for (uuid, map) in maps {
            let bytes = bytes_usize(VOLUME_BYTES_MAX);
            let (model, blocks) = (model::Volume::new(bytes, self.atom), map.blocks());
            self.disks.insert(uuid, Disk { model, map, blocks });
        }
        for block in std::mem::take(&mut self.open) {
            self.may_be_anything(block);
        }
    }

    /// Blocks of a volume.
    ///
    /// # Panics
    /// When there is no such volume.
    #[must_use]
    pub fn blocks(&self, volume: Uuid) -> u64 {
        self.disks[&volume].blocks
    }

    /// Requests that are not answered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a block of the array belongs to a volume that is read from end to end.
    #[must_use]
    pub fn covers(&self, block: u64) -> bool {
        let holds = |disk: &Disk| {
            let blocks = u32::try_from(disk.blocks).expect("few");
            let mut pieces = disk.map.split(0, blocks).expect("inside");
            pieces.any(|piece| {
                (piece.array_block..piece.array_block + u64::from(piece.blocks)).contains(&block)
            })
        };
        self.disks.values().any(holds)
    }

    /// Whether one of the first so many requests is not answered.
    #[must_use]
    pub fn has_pending(&self, first: u64) -> bool {
        self.pending.values().any(|pending| pending.number <= first)
    }

    /// How many requests began after the oldest that is not answered.
    #[must_use]
    pub fn overtaking(&self) -> u64 {
        let oldest = self.pending.values().map(|pending| pending.number).min();
        oldest.map_or(0, |oldest| self.begun - oldest)
    }

    /// Whether something that changes blocks is under way.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.pending
            .values()
            .any(|pending| pending.asked.operation.changes())
    }

    /// Whether something is under way on a volume.
    #[must_use]
    pub fn uses(&self, volume: Uuid) -> bool {
        self.pending
            .values()
            .any(|pending| pending.asked.volume == volume)
    }

    /// Reads of what has been written, as far as it is small.
    pub fn take_written(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.written)
    }

    /// Submits a request; not when there is no room.
    ///
    /// # Panics
    /// When the volume has not the blocks.
    pub fn submit(&mut self, asked: Asked, world: &mut World) -> bool {
        let mut reactor = world.random.position(world.shards.len());
        if world.outside.mail_is_slow[reactor] {
            // Or all guests soon wait there, and nothing happens elsewhere.
            reactor = world.random.position(world.shards.len());
        }
        self.submit_on(asked, world, reactor)
    }

    /// As `submit`, on one reactor.
    ///
    /// # Panics
    /// When the volume has not the blocks.
    pub fn submit_on(&mut self, asked: Asked, world: &mut World, reactor: usize) -> bool {
        let Some(slot) = (0..IN_FLIGHT).find(|slot| !self.pending.contains_key(slot)) else {
            return false;
        };
        // Nobody writes to a volume that is being deleted: its guest is gone.
        if !self.disks.contains_key(&asked.volume) || self.hidden == Some(asked.volume) {
            return true;
        }
        if self.is_kept_off(&asked) {
            return true;
        }
        let buffer = self.pool.acquire().expect("one for each slot");
        assert!(reactor < world.shards.len());
        let segment = if asked.operation == Operation::Write {
            let segment = self.pool.segment(&buffer).part(0, asked.length);
            segment.copy_from_slice(&asked.bytes);
            segment
        } else {
            self.pool.other(&buffer, asked.length)
        };
        let token = self.begin(&asked);
        let pieces = self.pieces_of(&asked);
        assert!(pieces.len() <= PIECES);
        self.begun += 1;
        let may_fail = self.may_meet_lost(asked.operation, &pieces);
        let writes = asked.operation == Operation::Write;
        let restless = self.restless && writes && world.random.happens(500);
        let changes = if restless {
            world.random.below(CHANGES)
        } else {
            0
        };
        let stable = self.is_stable(asked.volume);
        let changes = if stable { 0 } else { changes };
        self.pending.insert(
            slot,
            Pending {
                asked,
                number: self.begun,
                changes,
                may_fail,
                token,
                memory: segment,
                buffer: Some(buffer),
                reactor: ReactorIndex::from_at(reactor),
                pieces,
                submitted: 0,
                answered: 0,
                status: Status::Ok,
            },
        );
        true
    }

    fn pieces_of(&self, asked: &Asked) -> Vec<Piece> {
        if asked.operation == Operation::Flush {
            return vec![Piece {
                block_in_request: 0,
                array_block: 0,
                blocks: 0,
            }];
        }
        let map = &self.disks[&asked.volume].map;
        let split = map.split(asked.start, asked.blocks);
        split.expect("inside").collect()
    }

    /// Whether the request would touch what nobody shall touch.
    fn is_kept_off(&self, asked: &Asked) -> bool {
        if self.keep_off.is_empty() || asked.operation == Operation::Flush {
            return false;
        }
        let map = &self.disks[&asked.volume].map;
        let mut pieces = map.split(asked.start, asked.blocks).expect("inside");
        pieces.any(|piece| {
            let end = piece.array_block + u64::from(piece.blocks);
            let meets = |kept: &Range<u64>| kept.start < end && piece.array_block < kept.end;
            self.keep_off.iter().any(meets)
        })
    }

    fn begin(&mut self, asked: &Asked) -> Token {
        let offset = bytes_usize(asked.start) * self.block + usize::from(asked.part.offset);
        match asked.operation {
            Operation::Flush => {
                let flushes = self.disks.iter_mut();
                Token::Flush(
                    flushes
                        .map(|(uuid, disk)| (*uuid, disk.model.begin_flush()))
                        .collect(),
                )
            }
            Operation::Read => {
                let disk = self.disks.get_mut(&asked.volume).expect("looked at");
                Token::Read(disk.model.begin_read(offset))
            }
            Operation::Write | Operation::WriteZeroes | Operation::Discard => {
                let disk = self.disks.get_mut(&asked.volume).expect("looked at");
                Token::Write(disk.model.begin_write(offset, &asked.bytes))
            }
        }
    }

    /// Hands pieces to the array while it takes them.
    pub fn advance(&mut self, world: &mut World) {
        let block = self.block;
        let Client {
            pending,
            lists,
            disks,
            ..
        } = self;
        for (slot, pending) in pending {
            let disk = disks.get(&pending.asked.volume);
            let stability = disk.map_or(Stability::MayChange, |disk| disk.map.stability());
            while let Some(piece) = pending.pieces.get(pending.submitted) {
                let list = slot * PIECES + pending.submitted;
                let operation = pending.asked.operation;
                let carries = matches!(operation, Operation::Read | Operation::Write);
                let part = pending.asked.part;
                let bytes = if part.is_whole() {
                    bytes_usize(u64::from(piece.blocks)) * block
                } else {
                    usize::from(part.bytes)
                };
                let segment = pending
                    .memory
                    .part(piece.byte_offset(bytes_u64(block)), bytes);
                let cut = bytes_usize(world.random.below(bytes_u64(bytes)));
                // What is odd is always copied.
                let is_odd = cut.is_multiple_of(4);
                let cut = if is_odd { cut } else { cut / 512 * 512 };
                // Most guests have it in one piece.
                let cut = if cut.is_multiple_of(3) { 0 } else { cut };
                let segments = lists.lend(list, |list| {
                    if carries && cut > 0 {
                        list.push(segment.part(0, cut));
                    }
                    if carries {
                        list.push(segment.part(cut, bytes - cut));
                    }
                });
                let request = Request {
                    operation,
                    start: piece.array_block,
                    blocks: piece.blocks,
                    part,
                    segments,
                    stability,
                    cookie: Cookie(bytes_u64(*slot)),
                };
                pending.submitted += 1;
                if !world.submit(pending.reactor, request) {
                    pending.submitted -= 1;
                    lists.take_back(list);
                    break;
                }
            }
        }
    }

    /// Takes the answers and judges them.
    ///
    /// # Panics
    /// When an answer is wrong.
    pub fn collect(&mut self, world: &mut World) {
        if world.outside.completions.is_empty() {
            return;
        }
        let mine = |cookie: Cookie| cookie.0 < bytes_u64(IN_FLIGHT);
        let (answers, others) = std::mem::take(&mut world.outside.completions)
            .into_iter()
            .partition(|(_, completion)| mine(completion.cookie));
        world.outside.completions = others;
        let answers: Vec<(ReactorIndex, block::Completion)> = answers;
        for (_, completion) in answers {
            let slot = bytes_usize(completion.cookie.0);
            let pending = self.pending.get_mut(&slot).expect("under way");
            pending.answered += 1;
            pending.status = pending.status.and(completion.status);
            if pending.answered == pending.pieces.len() {
                self.finish(slot);
            }
        }
    }

    /// The volume that a block of the array belongs to, and its place there.
    ///
    /// # Panics
    /// Never: volumes are read from end to end.
    #[must_use]
    pub fn place_of(&self, block: u64) -> Option<(Uuid, u64)> {
        self.disks.iter().find_map(|(uuid, disk)| {
            let blocks = u32::try_from(disk.blocks).expect("few");
            let mut pieces = disk.map.split(0, blocks).expect("inside");
            let piece = pieces.find(|piece| {
                let range = piece.array_block..piece.array_block + u64::from(piece.blocks);
                range.contains(&block)
            })?;
            let first = u64::from(piece.block_in_request);
            Some((*uuid, first + block - piece.array_block))
        })
    }

    /// Nobody can know what a block of the array holds, until it is written; whether some guest
    /// reads it.
    pub fn may_be_anything(&mut self, block: u64) -> bool {
        let Some((uuid, place)) = self.place_of(block) else {
            // A volume may just be growing there.
            self.open.insert(block);
            return false;
        };
        let disk = self.disks.get_mut(&uuid).expect("looked at");
        disk.model
            .forget(bytes_usize(place) * self.block, self.block);
        true
    }
}
