//! One piece of the log as it lies on a member; docs/on-disk.md, section 9.

use units::{MemberIndex, Role, RoleSet, StripeIndex, Update};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::head::{FormatError, HEAD_BYTES, Head, open, seal};

/// Bytes before the payload of a piece.
pub const LOG_HEADER_BYTES: usize = 4096;
/// Runs of lanes that one piece can name.
pub const LOG_RUNS: usize = 3;

const KIND: [u8; 8] = *b"GBLOGENT";
const FLAG_ZEROES: u8 = 1;

/// What one member is about to get, as its own log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// The array.
    pub array: Uuid,
    /// The member whose log it is in.
    pub member: MemberIndex,
    /// Which life of the log: pieces of lives before the record's *log from* count for nothing.
    pub life: u64,
    /// The reactor that wrote it, and its number there in this life, from 1.
    pub writer: u16,
    /// See `writer`.
    pub sequence: u64,
    /// Pieces of the same writer in this life that are so much older count for nothing: their
    /// writes are durable in their places.
    pub window: u32,
    /// The stripe.
    pub stripe: StripeIndex,
    /// The chunk.
    pub role: Role,
    /// All roles that the same write changes; each has a piece like this.
    pub roles: RoleSet,
    /// Zeroes are written; there is no payload.
    pub zeroes: bool,
    /// Runs of lanes: first lane and how many; unused ones are empty. Their content follows one
    /// after another.
    pub runs: [(u32, u32); LOG_RUNS],
    /// CRC-32C of the payload.
    pub payload_checksum: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRun {
    lane: U32,
    lanes: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawLogPiece {
    life: U64,
    sequence: U64,
    stripe: U64,
    roles: U64,
    writer: U16,
    role: u8,
    flags: u8,
    payload_checksum: U32,
    window: U32,
    reserved: [u8; 4],
    runs: [RawRun; LOG_RUNS],
}

/// Bytes of the record; what follows up to the payload is zero.
const RECORD_BYTES: usize = HEAD_BYTES + size_of::<RawLogPiece>();
const _: () = assert!(RECORD_BYTES == 120, "part of the on-disk format");

impl LogPiece {
    /// Lanes of all runs.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.runs.iter().map(|(_, lanes)| lanes).sum()
    }

    /// Writes the header into the first bytes of `bytes`.
    ///
    /// # Panics
    /// When there are fewer than a header has.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let raw = RawLogPiece {
            life: self.life.into(),
            sequence: self.sequence.into(),
            stripe: self.stripe.0.into(),
            roles: self.roles.0.into(),
            writer: self.writer.into(),
            role: self.role.0,
            flags: if self.zeroes { FLAG_ZEROES } else { 0 },
            payload_checksum: self.payload_checksum.into(),
            window: self.window.into(),
            reserved: [0; 4],
            runs: self.runs.map(|(lane, lanes)| RawRun {
                lane: lane.into(),
                lanes: lanes.into(),
            }),
        };
        bytes[HEAD_BYTES..RECORD_BYTES].copy_from_slice(raw.as_bytes());
        let head = Head {
            kind: KIND,
            array: self.array,
            member: self.member,
            update: Update(self.life),
        };
        seal(&mut bytes[..RECORD_BYTES], head);
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When it is none, is damaged, contradicts itself or is from the future.
    pub fn decode(bytes: &[u8]) -> Result<LogPiece, FormatError> {
        let (head, record) = open(bytes, KIND)?;
        let invalid = FormatError::Invalid;
        let (raw, _) = RawLogPiece::read_from_prefix(&record[HEAD_BYTES..])
            .map_err(|_| invalid("too short for a piece of the log"))?;
        let role = Role(raw.role);
        let roles = RoleSet(raw.roles.get());
        if role.at() >= 64 || !roles.has(role) {
            return Err(invalid("role of a piece of the log"));
        }
        Ok(LogPiece {
            array: head.array,
            member: head.member,
            life: raw.life.get(),
            writer: raw.writer.get(),
            sequence: raw.sequence.get(),
            window: raw.window.get(),
            stripe: StripeIndex(raw.stripe.get()),
            role,
            roles,
            zeroes: raw.flags & FLAG_ZEROES != 0,
            runs: raw.runs.map(|run| (run.lane.get(), run.lanes.get())),
            payload_checksum: raw.payload_checksum.get(),
        })
    }

    /// The checksum of a payload, given in parts.
    #[must_use]
    pub fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        for part in parts {
            digest.update(part);
        }
        u32::try_from(digest.finalize()).expect("CRC-32C has 32 bits")
    }
}
