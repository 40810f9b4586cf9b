//! Requests as guests write them: good ones parsed, bad ones refused.

use super::*;
use crate::profile::tests::profile;
use units::BlockSize;

const SIZE: u64 = 4096;

/// Bytes of a guest, cut into segments at the given lengths.
struct Bytes {
    bytes: Vec<u8>,
    cuts: Vec<usize>,
}

impl Bytes {
    fn new(bytes: Vec<u8>, cuts: &[usize]) -> Bytes {
        assert_eq!(cuts.iter().sum::<usize>(), bytes.len());
        Bytes {
            bytes,
            cuts: cuts.to_vec(),
        }
    }

    fn whole(bytes: Vec<u8>) -> Bytes {
        let length = bytes.len();
        Bytes::new(bytes, &[length])
    }

    #[allow(unsafe_code, reason = "a test lends its own bytes as a guest's")]
    fn segments(&mut self) -> Vec<Segment> {
        let length = self.bytes.len();
        // SAFETY: the bytes outlive the segments in every test, and are not touched meanwhile.
        let all = unsafe { Segment::new(self.bytes.as_mut_ptr(), length) };
        let mut at = 0;
        let cut = |length: &usize| {
            at += length;
            all.part(at - length, *length)
        };
        self.cuts.iter().map(cut).collect()
    }
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0xEE; 4]);
    bytes.extend(sector.to_le_bytes());
    bytes
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(sectors.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

fn bytes_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|part| bytes_u64(part.len())).sum()
}

fn parts<'a>(readable: &'a [Segment], writable: &'a [Segment]) -> Parts<'a> {
    Parts {
        readable,
        writable,
        readable_bytes: bytes_of(readable),
        writable_bytes: bytes_of(writable),
    }
}

fn ask(profile: &Profile, readable: Vec<u8>, writable: usize) -> (Work, Vec<Blocks>) {
    let (mut readable, mut writable) = (Bytes::whole(readable), Bytes::whole(vec![0; writable]));
    let (readable, writable) = (readable.segments(), writable.segments());
    let parts = parts(&readable, &writable);
    let envelope = open(parts).expect("a whole envelope");
    let mut ranges = vec![Blocks::NONE];
    let work = parse(&envelope, parts, (profile, SIZE), &mut ranges);
    (work, ranges)
}

fn moved(operation: Operation, start: u64, count: u32) -> Work {
    Work::Move(operation, Blocks { start, count })
}

fn with_data(kind: u32, sector: u64, bytes: usize) -> Vec<u8> {
    let mut readable = header(kind, sector);
    readable.resize(16 + bytes, 0xDA);
    readable
}

#[test]
fn reads_and_writes_become_blocks_of_the_array() {
    let p = profile();
    assert_eq!(ask(&p, header(0, 5), 1025).0, moved(Operation::Read, 5, 2));
    let write = with_data(1, 7, 512);
    assert_eq!(ask(&p, write, 1).0, moved(Operation::Write, 7, 1));
    let large = Profile {
        block: BlockSize::B4096,
        logical_block: BlockSize::B4096,
        ..profile()
    };
    assert_eq!(
        ask(&large, header(0, 16), 8193).0,
        moved(Operation::Read, 2, 2)
    );
    assert_eq!(ask(&p, header(0, SIZE), 1).0, Work::Answer(Status::Ok));
}

#[test]
fn what_does_not_fit_is_refused() {
    let p = profile();
    let large = Profile {
        block: BlockSize::B4096,
        logical_block: BlockSize::B4096,
        ..profile()
    };
    let most = units::bytes_usize(limits::REQUEST_BYTES_MAX);
    for (profile, readable, writable, status) in [
        (&p, header(0, 0), 512, Status::Invalid),
        (&p, header(0, 0), 514, Status::Invalid),
        (&p, with_data(1, 0, 511), 1, Status::Invalid),
        (&p, header(0, 0), most + 513, Status::OutOfRange),
        (&p, header(0, SIZE), 513, Status::OutOfRange),
        (&p, header(0, SIZE - 1), 1025, Status::OutOfRange),
        (&p, header(0, u64::MAX), 513, Status::OutOfRange),
        (&p, header(0, u64::MAX), 1025, Status::OutOfRange),
        (&large, header(0, 1), 4097, Status::Invalid),
        (&large, header(0, 8), 513, Status::Invalid),
        (&p, header(2, 0), 513, Status::Unsupported),
        (&p, header(u32::MAX, 0), 1, Status::Unsupported),
    ] {
        let head = readable[..16].to_vec();
        let got = ask(profile, readable, writable).0;
        assert_eq!(got, Work::Answer(status), "{head:?} {writable}");
    }
}

#[test]
fn a_read_only_volume_refuses_what_changes_it() {
    let read_only = Profile {
        access: Access::ReadOnly,
        ..profile()
    };
    for kind in [1, 11, 13] {
        let mut readable = header(kind, 0);
        readable.extend([0; 512]);
        let got = ask(&read_only, readable, 1).0;
        assert_eq!(got, Work::Answer(Status::ReadOnly), "type {kind}");
    }
    assert_eq!(
        ask(&read_only, header(0, 0), 513).0,
        moved(Operation::Read, 0, 1)
    );
    assert_eq!(ask(&read_only, header(4, 0), 1).0, Work::Flush);
}

#[test]
fn ranges_are_taken_one_by_one() {
    for (kind, operation) in [(11, Operation::Discard), (13, Operation::WriteZeroes)] {
        let mut readable = header(kind, 99);
        readable.extend(range(8, 16, 0));
        readable.extend(range(0, 0, 0));
        readable.extend(range(SIZE - 1, 1, 0));
        let (work, ranges) = ask(&profile(), readable, 1);
        assert_eq!(work, Work::Ranges(operation));
        let expected = [(8, 16), (SIZE - 1, 1)].map(|(start, count)| Blocks { start, count });
        assert_eq!(ranges, expected);
    }
}

#[test]
fn wrong_ranges_are_refused() {
    let most = profile().discard.expect("offered").sectors_max;
    let many: Vec<u8> = (0..17).flat_map(|_| range(0, 1, 0)).collect();
    for (kind, ranges, status) in [
        (11, vec![], Status::Invalid),
        (11, vec![0; 15], Status::Invalid),
        (11, vec![0; 17], Status::Invalid),
        (13, many, Status::Invalid),
        (11, range(0, 1, 1), Status::Unsupported),
        (13, range(0, 1, 2), Status::Unsupported),
        (11, range(SIZE, 1, 0), Status::OutOfRange),
        (13, range(u64::MAX, 1, 0), Status::OutOfRange),
        (11, range(u64::MAX, 1, 0), Status::OutOfRange),
        (13, range(0, most + 1, 0), Status::Invalid),
        (
            13,
            [range(0, 1, 0), range(SIZE, 1, 0)].concat(),
            Status::OutOfRange,
        ),
    ] {
        let mut readable = header(kind, 0);
        readable.extend(&ranges);
        let got = ask(&profile(), readable, 1).0;
        assert_eq!(got, Work::Answer(status), "type {kind}, {ranges:?}");
    }
    let mut zeroes = header(13, 0);
    zeroes.extend(range(0, 1, 1));
    let got = ask(&profile(), zeroes, 1).0;
    assert_eq!(got, Work::Ranges(Operation::WriteZeroes), "unmap is known");
}

#[test]
fn what_is_not_offered_is_not_supported() {
    let bare = Profile {
        discard: None,
        write_zeroes: None,
        ..profile()
    };
    for kind in [11, 13] {
        let mut readable = header(kind, 0);
        readable.extend(range(0, 1, 0));
        assert_eq!(ask(&bare, readable, 1).0, Work::Answer(Status::Unsupported));
    }
}

#[test]
fn a_discard_covers_only_whole_blocks_and_zeroes_all_or_nothing() {
    let large = Profile {
        block: BlockSize::B4096,
        logical_block: BlockSize::B4096,
        ..profile()
    };
    for (sector, sectors, expected) in [
        (1, 16, Some((1, 1))),
        (8, 8, Some((1, 1))),
        (1, 7, None),
        (9, 6, None),
        (7, 17, Some((1, 2))),
    ] {
        let mut readable = header(11, 0);
        readable.extend(range(sector, sectors, 0));
        let (work, ranges) = ask(&large, readable, 1);
        assert_eq!(work, Work::Ranges(Operation::Discard));
        let expected = expected.map(|(start, count)| Blocks { start, count });
        assert_eq!(ranges, Vec::from_iter(expected), "{sector}+{sectors}");
    }
    let mut readable = header(13, 0);
    readable.extend(range(1, 16, 0));
    assert_eq!(ask(&large, readable, 1).0, Work::Answer(Status::Invalid));
}

#[test]
fn it_does_not_matter_how_a_chain_is_cut() {
    let profile = profile();
    let content: Vec<u8> = (0..1024u32).map(|at| at.to_le_bytes()[0]).collect();
    for first in 0..=40 {
        for last in 0..=3 {
            // A write: header and data anywhere, the status alone or behind ignored bytes.
            let bytes = [header(1, 3), content.clone()].concat();
            let length = bytes.len();
            let mut readable = Bytes::new(bytes, &[first, 1, 0, length - first - 1]);
            let mut writable = Bytes::new(vec![0; last + 1], &[last, 1, 0]);
            let (r, w) = (readable.segments(), writable.segments());
            let parts = parts(&r, &w);
            let envelope = open(parts).expect("a whole envelope");
            let work = parse(&envelope, parts, (&profile, SIZE), &mut Vec::new());
            assert_eq!(work, moved(Operation::Write, 3, 2), "cut {first} {last}");
            let mut data = Vec::new();
            data_of(Operation::Write, parts, &mut data);
            assert!(data.iter().all(|part| !part.is_empty()));
            let mut got = vec![0; 1024];
            assert!(copy_out(&data, 0, &mut got) && bytes_of(&data) == 1024);
            assert_eq!(got, content, "cut {first} {last}");
            envelope.status.copy_from_slice(&[0x5A]);
            assert_eq!(writable.bytes[last], 0x5A);
            assert_eq!(envelope.writable, bytes_u64(last + 1));
        }
        // A read: the status is the last byte of the last segment.
        let mut readable = Bytes::new(header(0, 3), &[first.min(16), 16 - first.min(16)]);
        let mut writable = Bytes::new(vec![0; 1025], &[first, 1025 - first]);
        let (r, w) = (readable.segments(), writable.segments());
        let parts = parts(&r, &w);
        let envelope = open(parts).expect("a whole envelope");
        let work = parse(&envelope, parts, (&profile, SIZE), &mut Vec::new());
        assert_eq!(work, moved(Operation::Read, 3, 2));
        let mut data = Vec::new();
        data_of(Operation::Read, parts, &mut data);
        data.iter().for_each(|part| part.fill(7));
        envelope.status.copy_from_slice(&[9]);
        assert_eq!(writable.bytes[..1024], [7; 1024]);
        assert_eq!(writable.bytes[1024], 9);
    }
}

#[test]
fn the_serial_fills_what_room_there_is() {
    for room in [0usize, 1, 19, 20, 30] {
        let mut writable = Bytes::new(vec![0xFF; room + 1], &[room / 2, room - room / 2, 1]);
        let segments = writable.segments();
        let parts = parts(&[], &segments);
        copy_serial(parts, b"0123456789abcdefghij");
        let length = room.min(20);
        assert_eq!(writable.bytes[..length], b"0123456789abcdefghij"[..length]);
        assert!(writable.bytes[length..].iter().all(|byte| *byte == 0xFF));
    }
}

#[test]
fn a_chain_without_its_ends_is_malformed() {
    let mut header = Bytes::whole(header(0, 0));
    let header = header.segments();
    let mut short = Bytes::whole(vec![0; 15]);
    let mut one = Bytes::whole(vec![0]);
    assert_eq!(
        open(parts(&short.segments(), &one.segments())).map(|_| ()),
        Err(Malformed::ShortHeader)
    );
    assert_eq!(
        open(parts(&[], &one.segments())).map(|_| ()),
        Err(Malformed::ShortHeader)
    );
    assert_eq!(
        open(parts(&header, &[])).map(|_| ()),
        Err(Malformed::NoStatus)
    );
    assert_eq!(
        open(parts(&header, &[Segment::EMPTY])).map(|_| ()),
        Err(Malformed::NoStatus)
    );
}

#[test]
fn data_is_cut_where_requests_begin() {
    const MIB: usize = 1 << 20;
    for (cuts, pieces) in [
        (&[16 * MIB, MIB][..], &[16 * MIB, MIB][..]),
        (&[33 * MIB], &[16 * MIB, 16 * MIB, MIB]),
        (
            &[3 * MIB, 15 * MIB, 30 * MIB],
            &[3 * MIB, 13 * MIB, 2 * MIB, 14 * MIB, 16 * MIB],
        ),
    ] {
        let mut bytes = Bytes::new(vec![0; cuts.iter().sum()], cuts);
        let mut data = bytes.segments();
        let first = data[0].address();
        cut_data(&mut data);
        let lengths: Vec<usize> = data.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, pieces);
        let mut at = 0;
        for part in data {
            assert_eq!(part.address().addr() - first.addr(), at);
            at += part.len();
        }
    }
}
