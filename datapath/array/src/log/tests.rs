//! The log's promises: a piece is read as it was written, a write is done again only when all its
//! pieces are there that could be, in order, and nothing that is out of date.

use units::{BlockSize, MemberIndex, Role, RoleSet, StripeIndex, Update};

use super::*;
use crate::format::tests::{config, superblock};
use crate::format::{LOG_HEADER_BYTES, LogPiece, Missed};
use crate::geometry::{Geometry, GeometryParameters, Level};

const MIB: u64 = 1 << 20;
const ARRAY: Uuid = Uuid::from_u128(0xA7);

/// A piece of a write of one block to lane 2 of roles 0 and 4 (P) of a stripe.
fn piece(stripe: u64, role: u8, (life, sequence): (u64, u64)) -> LogPiece {
    let superblock = superblock(0, 6, 256 * MIB);
    let stripe = StripeIndex(stripe);
    LogPiece {
        array: ARRAY,
        member: superblock.geometry.member(stripe, Role(role)),
        life,
        writer: 1,
        sequence,
        window: 8,
        stripe,
        role: Role(role),
        roles: RoleSet::one(Role(0)).with(Role(4)),
        zeroes: false,
        runs: [(2, 1), (0, 0), (0, 0)],
        payload_checksum: 0,
    }
}

fn encoded(mut piece: LogPiece, content: u8) -> (MemberIndex, Vec<u8>, Vec<u8>) {
    let blocks = usize::try_from(piece.lanes()).expect("few");
    let payload = if piece.zeroes {
        Vec::new()
    } else {
        vec![content; 4096 * blocks]
    };
    piece.payload_checksum = LogPiece::checksum([payload.as_slice()].into_iter());
    let mut header = vec![0; LOG_HEADER_BYTES];
    piece.encode_into(&mut header);
    (piece.member, header, payload)
}

fn replay(is_here: impl Fn(MemberIndex) -> bool) -> Replay {
    let mut config = config(6);
    config.log_from = 5;
    let superblock = superblock(0, 6, 256 * MIB);
    let regions = RegionMap::new(superblock.regions(), superblock.array);
    Replay::new(&config, &superblock, &regions, is_here)
}

fn take(replay: &mut Replay, piece: LogPiece, content: u8) {
    let (member, header, payload) = encoded(piece, content);
    if let Some(bytes) = replay.payload_bytes(member, &header) {
        assert_eq!(bytes, payload.len());
        replay.take(member, &header, payload);
    }
}

#[test]
fn a_piece_is_read_as_it_was_written() {
    let mut one = piece(7, 4, (1 << 40, 99));
    one.zeroes = true;
    one.runs = [(1, 2), (5, 1), (8, 4)];
    let (_, header, payload) = encoded(one, 0);
    one.payload_checksum = LogPiece::checksum([payload.as_slice()].into_iter());
    assert_eq!(LogPiece::decode(&header), Ok(one));
    // As the document says.
    assert_eq!(&header[..8], b"GBLOGENT");
    assert_eq!(&header[48..56], &(1_u64 << 40).to_le_bytes());
    assert_eq!(&header[56..64], &99_u64.to_le_bytes());
    assert_eq!(&header[64..72], &7_u64.to_le_bytes());
    assert_eq!(&header[72..80], &0b1_0001_u64.to_le_bytes());
    assert_eq!(&header[80..84], &[1, 0, 4, 1]);
    assert_eq!(&header[88..92], &8_u32.to_le_bytes());
    assert_eq!(&header[96..104], &[1, 0, 0, 0, 2, 0, 0, 0]);
    for at in 0..120 {
        let mut torn = header.clone();
        torn[at] ^= 4;
        assert!(LogPiece::decode(&torn).is_err(), "byte {at}");
    }
}

#[test]
fn a_piece_of_a_role_that_the_write_has_not_is_none() {
    for (role, roles) in [
        (64, RoleSet::one(Role(0))),
        (255, RoleSet(u64::MAX)),
        (3, RoleSet::one(Role(0)).with(Role(4))),
        (0, RoleSet::EMPTY),
    ] {
        let mut odd = piece(7, 4, (5, 1));
        (odd.role, odd.roles) = (Role(role), roles);
        let (_, header, _) = encoded(odd, 0);
        let refused = LogPiece::decode(&header).expect_err("it contradicts itself");
        assert!(refused.to_string().contains("role"), "{refused}");
    }
}

#[test]
fn what_a_slot_holds_is_told_without_taking_notice_of_it() {
    let asked = replay(|_| true);
    for zeroes in [false, true] {
        let mut one = piece(3, 0, (5, 1));
        one.zeroes = zeroes;
        let (member, header, payload) = encoded(one, 1);
        assert_eq!(asked.holds(member, &header), Some(payload.len()));
        assert_eq!(asked.holds(MemberIndex(member.0 + 1), &header), None);
    }
    assert!(asked.newest.is_empty());
}

#[test]
fn a_write_is_done_again_when_all_its_pieces_are_there_and_not_otherwise() {
    let mut whole = replay(|_| true);
    take(&mut whole, piece(3, 0, (5, 1)), 0xA0);
    take(&mut whole, piece(3, 4, (5, 1)), 0xA4);
    let geometry = superblock(0, 6, 256 * MIB).geometry;
    let offset = (geometry.member_block(StripeIndex(3)) + 2) * 4096;
    let redo = whole.redo();
    assert_eq!(redo.len(), 2);
    for (part, (role, content)) in redo.iter().zip([(0, 0xA0), (4, 0xA4)]) {
        assert_eq!(part.member, geometry.member(StripeIndex(3), Role(role)));
        assert_eq!((part.offset, &part.bytes), (offset, &vec![content; 4096]));
    }
    // One piece is missing, and its member is here.
    let mut torn = replay(|_| true);
    take(&mut torn, piece(3, 0, (5, 1)), 0xA0);
    assert_eq!(torn.redo(), []);
    // Its member is not here, so whatever it had is of no account.
    let absent = geometry.member(StripeIndex(3), Role(4));
    let mut lost = replay(|member| member != absent);
    take(&mut lost, piece(3, 0, (5, 1)), 0xA0);
    assert_eq!(lost.redo().len(), 1);
    assert_eq!(lost.guesses(), [absent]);
    assert!(whole.guesses().is_empty() && torn.guesses().is_empty());
    // Nothing is on it, or it is out: nobody knows better.
    let beside = geometry.member(StripeIndex(3), Role(1));
    let mut whole = replay(|member| member != beside);
    take(&mut whole, piece(3, 0, (5, 1)), 0xA0);
    take(&mut whole, piece(3, 4, (5, 1)), 0xA4);
    assert!(whole.redo().len() == 2 && whole.guesses().is_empty());
    // It rebuilds, and has been there, or has not.
    for (until, parts) in [(4, 0), (3, 1)] {
        let mut config = config(6);
        config.members[absent.at()].state = MemberState::Rebuilding {
            until: StripeIndex(until),
            missed: Missed::ALL,
        };
        let superblock = superblock(0, 6, 256 * MIB);
        let regions = RegionMap::new(superblock.regions(), superblock.array);
        let mut rebuilds = Replay::new(&config, &superblock, &regions, |_| true);
        take(&mut rebuilds, piece(3, 0, (5, 1)), 0xA0);
        assert_eq!(rebuilds.redo().len(), parts, "until {until}");
        assert!(rebuilds.guesses().is_empty(), "it is here");
        let is_here = |member| member != absent;
        let mut rebuilds = Replay::new(&config, &superblock, &regions, is_here);
        take(&mut rebuilds, piece(3, 0, (5, 1)), 0xA0);
        assert_eq!(rebuilds.redo().len(), 1, "until {until}");
        assert_eq!(rebuilds.guesses().len(), usize::from(until == 4));
    }
    // It has returned, and lacks that region, or does not.
    for (is_dirty, parts) in [(false, 0), (true, 1)] {
        let mut config = config(6);
        config.members[absent.at()].state = MemberState::Rebuilding {
            until: StripeIndex(0),
            missed: Missed {
                base: Update(1),
                ..Missed::ALL
            },
        };
        let superblock = superblock(0, 6, 256 * MIB);
        let regions = RegionMap::new(superblock.regions(), superblock.array);
        let regions = if is_dirty {
            regions.all_dirty()
        } else {
            regions
        };
        let mut returned = Replay::new(&config, &superblock, &regions, |_| true);
        take(&mut returned, piece(3, 0, (5, 1)), 0xA0);
        assert_eq!(returned.redo().len(), parts, "dirty: {is_dirty}");
    }
    // The content is torn.
    let mut torn = replay(|_| true);
    take(&mut torn, piece(3, 0, (5, 1)), 0xA0);
    let (member, header, mut payload) = encoded(piece(3, 4, (5, 1)), 0xA4);
    payload[4095] ^= 1;
    torn.take(member, &header, payload);
    assert_eq!(torn.redo(), []);
}

#[test]
fn later_writes_are_done_later_and_what_is_out_of_date_is_not_done() {
    let contents = |apart: bool| {
        let mut several = replay(|_| true);
        let all = [(5, 12, 3), (6, 13, 4), (5, 4, 1), (4, 11, 9), (5, 6, 2)];
        for (life, sequence, content) in all {
            for role in [0, 4] {
                let mut piece = piece(3, role, (life, sequence));
                if apart {
                    piece.runs[0].0 = u32::from(content);
                }
                take(&mut several, piece, content);
            }
        }
        let redo = several.redo();
        redo.iter().map(|part| part.bytes[0]).collect::<Vec<u8>>()
    };
    // Life 4 is dead, and numbers up to 13 - 8 are older than the window.
    assert_eq!(contents(true), [2, 2, 3, 3, 4, 4]);
    assert_eq!(contents(false), [4, 4]);
}

#[test]
fn pieces_that_cannot_be_are_not_taken() {
    let good = piece(3, 0, (5, 1));
    let mut replay = replay(|_| true);
    let mut takes = |piece: LogPiece, member: MemberIndex| {
        let (_, header, _) = encoded(piece, 1);
        replay.payload_bytes(member, &header).is_some()
    };
    assert!(takes(good, good.member));
    let far = superblock(0, 6, 256 * MIB).geometry.stripes();
    let bad = [
        LogPiece {
            array: Uuid::nil(),
            ..good
        },
        LogPiece {
            roles: good.roles.with(Role(6)),
            ..good
        },
        LogPiece {
            stripe: StripeIndex(far),
            ..good
        },
        LogPiece {
            stripe: StripeIndex(u64::MAX),
            ..good
        },
        LogPiece {
            stripe: StripeIndex(4),
            ..good
        },
        LogPiece {
            roles: RoleSet(u64::MAX),
            ..good
        },
        LogPiece {
            roles: RoleSet(1 << 63 | 1),
            ..good
        },
        LogPiece {
            runs: [(2, 1), (15, 2), (0, 0)],
            ..good
        },
        LogPiece {
            runs: [(2, 1), (u32::MAX, 2), (0, 0)],
            ..good
        },
        LogPiece {
            runs: [(0, 16), (0, 16), (0, 0)],
            ..good
        },
    ];
    for (position, piece) in bad.into_iter().enumerate() {
        assert!(!takes(piece, good.member), "{position}");
    }
    let elsewhere = MemberIndex((good.member.0 + 1) % 6);
    assert!(!takes(good, elsewhere), "a drive that took another's place");
}

#[test]
fn a_slot_that_cannot_be_read_matters_where_a_chunk_is_missing() {
    let geometry = superblock(0, 6, 256 * MIB).geometry;
    let [own, parity, other] = [0, 4, 2].map(|role| geometry.member(StripeIndex(3), Role(role)));
    // All are here: a resync does without the log, and what is left of it is not believed.
    let mut whole = replay(|_| true);
    take(&mut whole, piece(3, 0, (5, 1)), 0xA0);
    take(&mut whole, piece(3, 4, (5, 1)), 0xA4);
    whole.miss(parity);
    assert_eq!(whole.doubtful(), []);
    assert_eq!(whole.redo(), []);
    // One is not: the write, or a later one of which this hides a piece, may have been begun.
    let mut degraded = replay(|member| member != other);
    take(&mut degraded, piece(3, 0, (5, 1)), 0xA0);
    degraded.miss(parity);
    assert_eq!(degraded.doubtful(), [parity]);
    // What was found is done again by force.
    take(&mut degraded, piece(3, 4, (5, 1)), 0xA4);
    assert_eq!(degraded.doubtful(), [parity]);
    assert_eq!(degraded.redo().len(), 2);
    // An older write of the same stripe would undo it, if it has ended.
    let mut undone = replay(|member| member != other);
    take(&mut undone, piece(3, 0, (5, 1)), 0xA0);
    take(&mut undone, piece(3, 4, (5, 1)), 0xA4);
    take(&mut undone, piece(3, 0, (5, 2)), 0xB0);
    undone.miss(parity);
    assert_eq!(undone.redo(), []);
    // Nothing was logged: but two members may hide the same write.
    let mut unused = replay(|member| member != other);
    take(&mut unused, piece(3, 0, (4, 1)), 0xA0);
    unused.miss(parity);
    assert_eq!(unused.doubtful(), []);
    unused.miss(own);
    assert_eq!(unused.doubtful().len(), 2);
}

#[test]
fn what_a_slot_hides_undoes_nothing_in_other_cells_of_its_stripe() {
    let mut superblock = superblock(0, 6, 256 * MIB);
    superblock.geometry = Geometry::new(GeometryParameters {
        level: Level::L6,
        members: 6,
        parity: None,
        group_size: None,
        chunk_bytes: 128 << 10,
        block: BlockSize::B4096,
        member_data_blocks: superblock.layout.data.length / 4096,
    })
    .expect("two cells in a chunk");
    let mut config = config(6);
    config.log_from = 5;
    let regions = RegionMap::new(superblock.regions(), superblock.array);
    let [parity, other] = [4, 2].map(|role| superblock.geometry.member(StripeIndex(3), Role(role)));
    for (lane, parts) in [(2, 0), (15, 0), (16, 2), (31, 2)] {
        let mut replay = Replay::new(&config, &superblock, &regions, |member| member != other);
        take(&mut replay, piece(3, 0, (5, 1)), 0xA0);
        take(&mut replay, piece(3, 4, (5, 1)), 0xA4);
        // A later one, of which a slot that cannot be read hides the parity.
        let mut later = piece(3, 0, (5, 2));
        later.runs[0].0 = lane;
        take(&mut replay, later, 0xB0);
        replay.miss(parity);
        assert_eq!(replay.redo().len(), parts, "lane {lane}");
    }
}

#[test]
fn of_what_is_written_several_times_only_the_last_is() {
    let part = |member, offset, bytes: &[u8]| Redo {
        member: MemberIndex(member),
        offset,
        bytes: bytes.to_vec(),
    };
    let all = vec![
        part(0, 10, &[1; 10]),
        part(1, 10, &[2; 4]),
        part(0, 12, &[3; 2]),
        part(0, 16, &[4; 8]),
        part(0, 8, &[5; 3]),
        part(0, 40, &[6; 4]),
        part(0, 40, &[7; 4]),
        part(0, 0, &[]),
    ];
    let mut whole = std::collections::BTreeMap::new();
    for one in &all {
        for (place, byte) in (one.offset..).zip(&one.bytes) {
            whole.insert((one.member, place), *byte);
        }
    }
    let last = last_of_each(all);
    let mut found = std::collections::BTreeMap::new();
    for one in &last {
        assert!(!one.bytes.is_empty());
        for (place, byte) in (one.offset..).zip(&one.bytes) {
            let before = found.insert((one.member, place), *byte);
            assert_eq!(before, None, "{place} is written twice");
        }
    }
    assert_eq!(found, whole);

    // A block that was written twice.
    let mut replay = replay(|_| true);
    for (sequence, content) in [(1, 0x11), (2, 0x22)] {
        take(&mut replay, piece(7, 0, (5, sequence)), content);
        take(&mut replay, piece(7, 4, (5, sequence)), content);
    }
    let redo = replay.redo();
    assert_eq!(redo.len(), 2, "once on each member");
    assert!(redo.iter().all(|part| part.bytes == [0x22; 4096]));
}

#[test]
fn parity_goes_with_what_a_drive_holds_that_refuses() {
    let geometry = superblock(0, 6, 256 * MIB).geometry;
    let (stripe, size) = (StripeIndex(5), 4096);
    assert_eq!((geometry.data(), geometry.parity()), (4, 2));
    let offset = geometry.member_block(stripe) * bytes_u64(size);
    let content = |role: u8, byte: u8| vec![byte ^ (role * 17); size];
    let parity_of = |data: &[Vec<u8>]| {
        let backing = memory::Backing::Anonymous(memory::Pages::Plain);
        let mut pool = memory::Pool::new(6, size, backing).expect("memory");
        let buffers = [(); 6].map(|()| pool.acquire().expect("six"));
        let parts = [0, 1, 2, 3, 4, 5].map(|at: usize| pool.segment(&buffers[at]));
        for (part, data) in parts.iter().zip(data) {
            part.copy_from_slice(data);
        }
        let code = parity::Code::new(4, 2).expect("a code");
        code.generate(&parts[..4], &parts[4..]);
        let parity = [4, 5].map(|at: usize| {
            let mut bytes = vec![0; size];
            parts[at].copy_to_slice(&mut bytes);
            bytes
        });
        buffers.into_iter().for_each(|buffer| pool.release(buffer));
        parity
    };
    let mut data = [0, 1, 2, 3].map(|role| content(role, 0x40));
    let parity = parity_of(&data);
    let member = |role: u8| geometry.member(stripe, Role(role));
    let redo = |role: u8, bytes: &Vec<u8>| Redo {
        member: member(role),
        offset,
        bytes: bytes.clone(),
    };
    let parts = [redo(1, &data[1]), redo(4, &parity[0]), redo(5, &parity[1])];
    let refused = |role: u8| RefusedRedo {
        member: member(role),
        offset,
        bytes: data[1].clone(),
        holds: content(9, 3),
    };
    let (one, all) = ([refused(1)], |_, _| true);
    let agrees = agree_with(&geometry, &parts, &one, all).expect("memory");
    for parity in [4, 5] {
        let nothing = agree_with(&geometry, &parts, &[refused(parity)], all);
        assert_eq!(nothing.expect("memory"), None, "parity is what it is");
    }
    let without = agree_with(&geometry, &parts[..2], &one, all);
    assert_eq!(
        without.expect("memory"),
        None,
        "one parity is not done again"
    );
    let twice = agree_with(&geometry, &parts, &[refused(1), refused(1)], all);
    assert_eq!(twice.expect("memory"), None, "which of the two it is");
    let out = |other, _| other != member(5);
    let without = agree_with(&geometry, &parts[..2], &one, out).expect("memory");
    // What is to be filled there need not agree, and says nothing itself.
    let unfilled = |role: u8| move |other, of| (other, of) != (member(role), stripe);
    let nothing = agree_with(&geometry, &parts, &[refused(4)], unfilled(4));
    assert_eq!(nothing.expect("memory"), Some(vec![]));
    let nothing = agree_with(&geometry, &parts, &[refused(1)], unfilled(1));
    assert_eq!(nothing.expect("memory"), Some(vec![]));
    data[1] = content(9, 3);
    let expected = parity_of(&data);
    let sorted = |mut parts: Vec<Redo>| {
        parts.sort_by_key(|part| part.member);
        parts
    };
    let right = vec![redo(4, &expected[0]), redo(5, &expected[1])];
    assert_eq!(agrees.map(sorted), Some(sorted(right)));
    assert_eq!(without, Some(vec![redo(4, &expected[0])]));
}

#[test]
fn each_run_of_a_piece_is_done_again_with_its_own_bytes() {
    let mut whole = replay(|_| true);
    let runs = [(1, 2), (5, 1), (8, 3)];
    for role in [0, 4] {
        let mut one = piece(3, role, (5, 1));
        one.runs = runs;
        let payload: Vec<u8> = (0..6).flat_map(|block| [role + block; 4096]).collect();
        one.payload_checksum = LogPiece::checksum([payload.as_slice()].into_iter());
        let mut header = vec![0; LOG_HEADER_BYTES];
        one.encode_into(&mut header);
        assert_eq!(
            whole.payload_bytes(one.member, &header),
            Some(payload.len())
        );
        whole.take(one.member, &header, payload);
    }
    let geometry = superblock(0, 6, 256 * MIB).geometry;
    let begin = geometry.member_block(StripeIndex(3));
    let redo = whole.redo();
    for role in [0, 4] {
        let member = geometry.member(StripeIndex(3), Role(role));
        let written = redo.iter().filter(|part| part.member == member);
        let blocks = written.flat_map(|part| {
            let first = part.offset / 4096 - begin;
            (first..).zip(part.bytes.chunks(4096).map(|block| block[0]))
        });
        let lanes = [1, 2, 5, 8, 9, 10];
        let expected = lanes.into_iter().zip(role..);
        assert_eq!(blocks.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn what_a_slot_hides_of_one_group_is_nothing_to_another() {
    let of = |member| crate::format::tests::level_superblock(Level::L10, member, 4, 256 * MIB);
    let (superblock, config) = (of(0), config(4));
    let regions = RegionMap::new(superblock.regions(), superblock.array);
    let geometry = superblock.geometry;
    for stripe in [2, 3] {
        let group = geometry.group(StripeIndex(stripe)).at();
        for missing in 0..4 {
            let mut whole = Replay::new(&config, &superblock, &regions, |_| true);
            for role in [0, 1] {
                let mut one = piece(stripe, role, (5, 1));
                one.member = geometry.member(StripeIndex(stripe), Role(role));
                one.roles = RoleSet::range(0, 2);
                take(&mut whole, one, 0xA0);
            }
            whole.miss(MemberIndex::from_at(missing));
            let done = 2 * usize::from(missing / 2 != group);
            assert_eq!(whole.redo().len(), done, "{missing} of stripe {stripe}");
        }
    }
}

#[test]
fn cells_beside_each_other_seldom_have_the_same_hash() {
    let cells = (0..128).flat_map(|stripe| [0, 1, 2, 3].map(|cell| (stripe, cell)));
    let hashes = cells.map(|(stripe, cell)| cell_hash(StripeIndex(stripe), cell));
    let different: std::collections::BTreeSet<u16> = hashes.collect();
    assert!(different.len() > 400, "{} of 512", different.len());
}
