//! Requests of virtio-blk as guests lay them out in their memory, good and bad.

use block::Operation;
use guest::{Memory, Part};
use units::{bytes_u64, bytes_usize};

use super::machine::SlotPlace;
use crate::random::Random;

/// What a status byte holds before it is answered.
pub(super) const UNANSWERED: u8 = 0xAA;
pub(super) const OK: u8 = 0;
pub(super) const IOERR: u8 = 1;
pub(super) const UNSUPP: u8 = 2;

const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
const TYPE_DISCARD: u32 = 11;
const TYPE_WRITE_ZEROES: u32 = 13;

/// The name of the drive that guests see.
pub(super) const SERIAL: [u8; 20] = *b"simulated drive\0\0\0\0\0";

/// What goes into a chain.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) kind: u32,
    pub(super) sector: u64,
    /// Behind the header.
    pub(super) readable: Vec<u8>,
    /// Bytes before the status.
    pub(super) room: usize,
}

impl Content {
    /// A request for sectors; of a write, with its bytes.
    pub(super) fn new(
        operation: Operation,
        (sector, sectors): (u64, u64),
        bytes: &[u8],
    ) -> Content {
        let mut content = Content {
            kind: match operation {
                Operation::Read => TYPE_IN,
                Operation::Write => TYPE_OUT,
                Operation::Flush => TYPE_FLUSH,
                Operation::Discard => TYPE_DISCARD,
                Operation::WriteZeroes => TYPE_WRITE_ZEROES,
            },
            sector,
            readable: Vec::new(),
            room: 0,
        };
        match operation {
            Operation::Read => content.room = bytes_usize(sectors) * 512,
            Operation::Write => content.readable = bytes.to_vec(),
            Operation::Flush => content.sector = 0,
            Operation::Discard | Operation::WriteZeroes => {
                content.sector = 0;
                // Sometimes in two parts.
                let first = if sector.is_multiple_of(3) {
                    sectors / 2
                } else {
                    0
                } / 8
                    * 8;
                for (at, count) in [(sector, first), (sector + first, sectors - first)] {
                    content.add_range(at, count, 0);
                }
            }
        }
        content
    }

    fn add_range(&mut self, sector: u64, sectors: u64, flags: u32) {
        let sectors = u32::try_from(sectors).expect("few");
        self.readable.extend(sector.to_le_bytes());
        self.readable.extend(sectors.to_le_bytes());
        self.readable.extend(flags.to_le_bytes());
    }

    /// A request that makes no sense, or asks nothing of the volume; and how it is answered.
    pub(super) fn odd(random: &mut Random) -> (Content, u8) {
        let mut content = Content {
            kind: TYPE_IN,
            sector: 0,
            readable: Vec::new(),
            room: 0,
        };
        let status = match random.below(8) {
            0 => {
                content.kind = 99;
                UNSUPP
            }
            1 => {
                (content.sector, content.room) = (u64::MAX - random.below(3), 512);
                IOERR
            }
            2 => {
                content.room = 511;
                IOERR
            }
            3 => {
                (content.kind, content.readable) = (TYPE_OUT, vec![0; 513]);
                IOERR
            }
            4 => {
                content.kind = TYPE_DISCARD;
                // A flag that nobody knows.
                content.add_range(0, 1, 2);
                UNSUPP
            }
            5 => {
                content.kind = TYPE_WRITE_ZEROES;
                content.add_range(0, 1 << 20, 0);
                IOERR
            }
            6 => {
                (content.kind, content.room) = (TYPE_GET_ID, SERIAL.len());
                OK
            }
            _ => OK,
        };
        (content, status)
    }

    /// Writes it into a slot. The parts of its chain, cut at random, its writable bytes, and where
    /// its status is.
    pub(super) fn lay_out(
        &self,
        memory: &Memory,
        slot: SlotPlace,
        random: &mut Random,
    ) -> (Vec<Part>, u32, u64) {
        memory.write(slot.header(), &self.kind.to_le_bytes());
        memory.write(slot.header() + 4, &[0; 4]);
        memory.write(slot.header() + 8, &self.sector.to_le_bytes());
        memory.write(slot.data(), &self.readable);
        let status = slot.data() + bytes_u64(self.readable.len() + self.room);
        memory.write(status, &[UNANSWERED]);
        let readable = (slot.header(), 16 + self.readable.len());
        let writable = (status - bytes_u64(self.room), self.room + 1);
        // Most drivers put header, data and status each into a descriptor of its own.
        let usual = random.happens(600);
        let mut parts = Vec::new();
        for ((address, length), writable, natural) in
            [(readable, false, 16), (writable, true, self.room)]
        {
            let cut = if usual {
                natural
            } else {
                random.position(length)
            };
            let more = if random.happens(300) {
                random.position(length)
            } else {
                0
            };
            let mut cuts = [0, cut, more, length];
            cuts.sort_unstable();
            for pair in cuts.windows(2).filter(|pair| pair[1] > pair[0]) {
                parts.push(Part {
                    address: address + bytes_u64(pair[0]),
                    length: u32::try_from(pair[1] - pair[0]).expect("short"),
                    writable,
                });
            }
        }
        let written = u32::try_from(self.room + 1).expect("short");
        (parts, written, status)
    }
}

/// A chain that breaks its ring.
pub(super) fn breaking(slot: SlotPlace, random: &mut Random) -> Vec<Part> {
    let part = |address, length, writable| Part {
        address,
        length,
        writable,
    };
    let header = part(slot.header(), 16, false);
    match random.below(4) {
        // No place for the status.
        0 => vec![header],
        // Half a header.
        1 => vec![part(slot.header(), 8, false), part(slot.data(), 1, true)],
        // A place that is not memory.
        2 => vec![header, part(0, 512, true), part(slot.data(), 1, true)],
        // What is to be read behind what is to be written.
        _ => vec![part(slot.data(), 1, true), header],
    }
}
