//! Slots of the log with right checksums and any content, and what would be written again.
#![no_main]

use std::sync::LazyLock;

use array::format::{ArrayConfig, LOG_HEADER_BYTES, LogPiece, Superblock};
use array::{Geometry, GeometryParameters, Level, RegionMap, Replay};
use libfuzzer_sys::fuzz_target;
use units::{BlockSize, MemberIndex, Role, RoleSet, StripeIndex, bytes_u64};
use uuid::Uuid;

const MEMBERS: usize = 4;
const DATA_BYTES: u64 = 4 << 20;

/// A RAID 6 of four members.
static ARRAY: LazyLock<(Superblock, ArrayConfig)> = LazyLock::new(|| {
    let layout = sim::disks::layout(BlockSize::B512, MEMBERS, DATA_BYTES, 1 << 20);
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L6,
        members: MEMBERS,
        parity: None,
        group_size: None,
        chunk_bytes: 16 << 10,
        block: BlockSize::B512,
        member_data_blocks: DATA_BYTES / 512,
    });
    let geometry = geometry.expect("a good shape");
    let first = MemberIndex(0);
    let superblock = sim::disks::superblock(geometry, &layout, first, Uuid::nil(), 16);
    (superblock, sim::world::new_config(&geometry, true))
});

/// Takes numbers off the front of the input; zeroes when it is used up.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        let (head, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..head.len()].copy_from_slice(head);
        u64::from_le_bytes(bytes)
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.next() & u64::from(u32::MAX)).expect("masked")
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = LogPiece::decode(data);
    let _ = LogPiece::decode(&fuzz::record(*b"GBLOGENT", data, 120));
    let (superblock, config) = &*ARRAY;
    let regions = RegionMap::new(superblock.regions(), config.array);
    let mut replay = Replay::new(config, superblock, &regions, |_| true);
    let mut numbers = Numbers(data);
    while !numbers.0.is_empty() {
        let small = numbers.next();
        let role = Role::from_at(usize::from(small.to_le_bytes()[0] % 8));
        let stripe = StripeIndex(numbers.next());
        let right = geometry_member(superblock, stripe, role);
        let member = right.unwrap_or(MemberIndex(3));
        let payload = vec![0x5A; 512 * usize::from(small.to_le_bytes()[2])];
        let sum = LogPiece::checksum([&payload[..]].into_iter());
        let piece = LogPiece {
            array: config.array,
            member,
            life: numbers.next(),
            writer: u16::from(small.to_le_bytes()[1] % 4),
            sequence: numbers.next(),
            window: numbers.word(),
            stripe,
            role,
            roles: RoleSet(numbers.next()).with(role),
            zeroes: small >> 32 & 1 == 1,
            runs: [(); array::format::LOG_RUNS].map(|()| (numbers.word(), numbers.word())),
            payload_checksum: sum,
        };
        let mut header = vec![0; LOG_HEADER_BYTES];
        piece.encode_into(&mut header);
        if let Some(length) = replay.payload_bytes(member, &header) {
            assert!(length <= 64 << 10, "a piece is within one chunk");
            let payload = if length == payload.len() {
                payload
            } else {
                vec![0; length]
            };
            replay.take(member, &header, payload);
        }
    }
    for part in replay.redo() {
        let end = part.offset + bytes_u64(part.bytes.len());
        assert!(part.member.at() < MEMBERS && end <= superblock.layout.data.length);
    }
});

/// The member that holds a role, if both are in the array.
fn geometry_member(
    superblock: &Superblock,
    stripe: StripeIndex,
    role: Role,
) -> Option<MemberIndex> {
    let geometry = &superblock.geometry;
    let inside = stripe.0 < geometry.stripes() && role.at() < geometry.group_members();
    inside.then(|| geometry.member(stripe, role))
}
