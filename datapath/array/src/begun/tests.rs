//! What is told is read again as it was, and nothing that is wrong is believed.

use std::os::unix::fs::FileExt;

use units::{BlockSize, DriveIndex, MemberIndex, Role};

use super::*;
use crate::assembly::{Assembly, Found, Verdict, assemble};
use crate::format::{ArrayConfig, DriveIdentity, MemberState, Missed};
use crate::geometry::{Geometry, GeometryParameters, Level};
use crate::log::Redo;

const ARRAY: Uuid = Uuid::from_u128(7);
const BOOT: Uuid = Uuid::from_u128(8);
const LIFE: u64 = 5;
const UPDATE: (Update, u128) = (Update(40), 0x1234_5678_9ABC_DEF0_1111_2222_3333_4444);

/// A file of two shards, and what reads it.
struct Setting {
    file: File,
    begun: Arc<Begun>,
    tables: Vec<Table>,
}

fn geometry() -> Geometry {
    Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 4,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: 16 * 32,
    })
    .expect("a good shape")
}

fn config() -> ArrayConfig {
    let mut config = crate::format::tests::config(4);
    config.array = ARRAY;
    (config.update, config.update_id) = UPDATE;
    config.log_from = LIFE << crate::assembly::LIVES_SHIFT | 3;
    config
}

fn whose() -> BegunOf {
    BegunOf {
        array: ARRAY,
        boot: BOOT,
        life: LIFE,
    }
}

impl Setting {
    fn new() -> Setting {
        let room = Room {
            tickets: 6,
            small_buffers: 128,
            large_buffers: 128,
            ..Room::default()
        };
        let space = BegunSpace::new(2, &room);
        let file = memory::words::unnamed_file(bytes_usize(space.bytes())).expect("memory");
        let copy = file.try_clone().expect("a descriptor");
        let begun = Begun::create(copy, space, &whose()).expect("memory");
        let tables = (0..2).map(|shard| begun.table(shard, &room).expect("memory"));
        let tables = tables.collect();
        Setting {
            file,
            begun,
            tables,
        }
    }

    /// As it is when a start is durable.
    fn started() -> Setting {
        let setting = Setting::new();
        setting.begun.note_update(UPDATE.0, UPDATE.1);
        setting
    }

    /// The place of a large buffer of a shard, filled with a byte.
    fn buffer(&self, shard: usize, number: u64, byte: u8) -> u32 {
        let (_, [_, large]) = self.begun.buffers(shard);
        let at = large + number * bytes_u64(LARGE_BUFFER_BYTES);
        let bytes = vec![byte; LARGE_BUFFER_BYTES];
        self.file.write_all_at(&bytes, at).expect("memory");
        place(at)
    }

    /// Shard 1, ticket 3 writes lanes 2 and 3 of roles 0 and 3 in stripe 9, and lanes 4 to 6 of
    /// role 3.
    fn tell(&self) {
        let order = Order {
            stripe: StripeIndex(9),
            first: 2,
            content: Content::Kept,
        };
        let both = RoleSet::one(Role(0)).with(Role(3));
        let bands = [(2..4, both), (4..7, RoleSet::one(Role(3)))];
        let places = [self.buffer(1, 5, 0xA5), self.buffer(1, 9, 0x5A)];
        self.tables[1].begin(3, &order, bands.into_iter(), places.into_iter());
    }

    fn read_by(&self, whose: &BegunOf, config: &ArrayConfig) -> Result<BegunWrites, Unusable> {
        let length = self.file.metadata().expect("a file").len();
        let read = |offset, bytes: &mut [u8]| self.file.read_exact_at(bytes, offset);
        BegunWrites::read(read, length, whose, (config, &geometry()))
    }

    fn read(&self) -> Result<BegunWrites, Unusable> {
        self.read_by(&whose(), &config())
    }

    fn redo(&self, writes: &BegunWrites, position: usize) -> Vec<Redo> {
        let done = self.redo_by(writes, position, &[]);
        assert_eq!(done.lost, []);
        done.redo
    }

    /// The same, where members are full of these bytes, and others are not here.
    fn redo_by(&self, writes: &BegunWrites, position: usize, members: &[(u16, u8)]) -> ToRedo {
        let read = |offset, bytes: &mut [u8]| self.file.read_exact_at(bytes, offset);
        let read_member = |member: MemberIndex, _, bytes: &mut [u8]| {
            let full = members.iter().find(|(other, _)| *other == member.0);
            bytes.fill(full.map_or(0xEE, |(_, byte)| *byte));
            Ok(full.map_or(0, |_| BlockMask::MAX))
        };
        let done = writes.redo(position, read, read_member);
        done.expect("memory")
    }

    /// Shard 0, ticket 2 writes lanes 2 to 4 of all roles in stripe 9, from a guest's memory.
    fn borrow(&self) {
        let order = Order {
            stripe: StripeIndex(9),
            first: 2,
            content: Content::Borrowed,
        };
        let bands = [(2..5, RoleSet::range(0, 4))];
        let places = (0..4).map(|number| self.buffer(0, number, 0x77));
        self.tables[0].begin(2, &order, bands.into_iter(), places);
    }

    /// Puts a word of the file another way; gives what was there.
    fn set(&self, offset: u64, word: u64) -> u64 {
        let mut before = [0; 8];
        self.file
            .read_exact_at(&mut before, offset)
            .expect("memory");
        let written = self.file.write_all_at(&word.to_ne_bytes(), offset);
        written.expect("memory");
        u64::from_ne_bytes(before)
    }
}

#[test]
fn a_file_that_is_cleared_keeps_its_buffers_only() {
    let setting = Setting::started();
    let space = setting.begun.space;
    let mut bytes = vec![0xA5; bytes_usize(space.bytes())];
    setting.file.write_all_at(&bytes, 0).expect("memory");
    space.clear(&setting.file).expect("memory");
    setting.file.read_exact_at(&mut bytes, 0).expect("memory");
    let all = |start: u64, length: usize, value: u8| {
        let part = &bytes[bytes_usize(start)..][..length];
        part.iter().all(|byte| *byte == value)
    };
    assert!(all(0, HEAD_WORDS * size_of::<u64>(), 0), "the head");
    for shard in 0..2 {
        let table = setting.tables[0].words.as_slice().len() * size_of::<u64>();
        assert!(
            all(space.table(shard), table, 0),
            "entries of shard {shard}"
        );
        let buffers = space.buffers(shard);
        let length = bytes_usize(buffers.end - buffers.start);
        assert!(all(buffers.start, length, 0xA5), "buffers of shard {shard}");
    }
}

#[test]
fn what_was_begun_is_read_again_until_it_has_ended() {
    let setting = Setting::started();
    assert!(setting.read().expect("good").is_empty());
    setting.tell();
    let zeroes = Order {
        stripe: StripeIndex(0),
        first: 0,
        content: Content::Zeroes,
    };
    let all = RoleSet::range(0, 4);
    setting.tables[0].begin(0, &zeroes, [(0..16, all)].into_iter(), [].into_iter());
    let writes = setting.read().expect("good");
    assert_eq!(
        (writes.len(), writes.bytes()),
        (2, (16 * 4 + 2 * 2 + 3) * 4096)
    );
    let zeroed = setting.redo(&writes, 0);
    assert_eq!(zeroed.len(), 4);
    assert!(zeroed.iter().all(|part| part.bytes == vec![0; 16 * 4096]));
    let geometry = geometry();
    let part = |role, lane: u64, lanes: usize, byte| Redo {
        member: geometry.member(StripeIndex(9), Role(role)),
        offset: (geometry.member_block(StripeIndex(9)) + lane) * 4096,
        bytes: vec![byte; lanes * 4096],
    };
    let expected = [
        part(0, 2, 2, 0xA5),
        part(3, 2, 2, 0x5A),
        part(3, 4, 3, 0x5A),
    ];
    assert_eq!(setting.redo(&writes, 1), expected);
    setting.tables[0].end(0);
    assert_eq!(setting.read().expect("good").len(), 1);
    setting.tables[1].end(3);
    assert!(setting.read().expect("good").is_empty());
}

#[test]
fn the_file_has_room_for_what_each_shard_holds_and_no_more() {
    for tickets in [6, 5000] {
        has_room_for(tickets);
    }
}

fn has_room_for(tickets: usize) {
    let room = Room {
        tickets,
        small_buffers: 128,
        large_buffers: 130,
        ..Room::default()
    };
    let space = BegunSpace::new(3, &room);
    let all: Vec<Range<u64>> = (0..3).map(|shard| space.buffers(shard)).collect();
    for (shard, buffers) in all.iter().enumerate() {
        assert_eq!(buffers.end - buffers.start, room.buffer_bytes());
        let table = buffers.start - space.table(bytes_u64(shard));
        let entries = bytes_u64(tickets * ENTRY_WORDS * size_of::<u64>());
        assert!((entries..entries + ALIGNMENT).contains(&table), "{table}");
    }
    let next = all.iter().skip(1).map(|buffers| buffers.start);
    let apart = next.zip(&all).map(|(next, before)| next - before.end);
    let table = all[0].start - space.table(0);
    assert!(apart.into_iter().all(|apart| apart == table));
    assert_eq!(space.bytes(), all[2].end);
}

#[test]
#[should_panic(expected = "the file was made for shards like this")]
fn there_is_no_table_for_a_shard_more() {
    let setting = Setting::new();
    let room = Room {
        tickets: 6,
        small_buffers: 128,
        large_buffers: 128,
        ..Room::default()
    };
    let _ = setting.begun.table(2, &room);
}

#[test]
fn a_wide_ticket_names_all_its_buffers() {
    let geometry = Geometry::new(GeometryParameters {
        level: Level::Nm,
        members: 64,
        parity: Some(4),
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: 16 * 32,
    })
    .expect("a good shape");
    let setting = Setting::started();
    let order = Order {
        stripe: StripeIndex(1),
        first: 0,
        content: Content::Kept,
    };
    let places = (0..64).map(|role| {
        let byte = u8::try_from(role).expect("few");
        setting.buffer(0, role, byte)
    });
    let bands = [
        (0..1, RoleSet::range(0, 64)),
        (1..2, RoleSet::range(63, 64)),
    ];
    setting.tables[0].begin(5, &order, bands.into_iter(), places);
    let length = setting.file.metadata().expect("a file").len();
    let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
    let writes = BegunWrites::read(read, length, &whose(), (&config(), &geometry));
    let redo = setting.redo(&writes.expect("good"), 0);
    let found: Vec<u8> = redo.iter().map(|part| part.bytes[0]).collect();
    let expected: Vec<u8> = (0..64).chain([63]).collect();
    assert_eq!(found, expected);
}

#[test]
fn it_counts_for_its_own_array_boot_and_life_only() {
    let setting = Setting::new();
    setting.tell();
    let refused = setting.read().expect_err("no start is durable");
    assert!(matches!(refused, Unusable::Other(_)), "{refused}");
    setting.begun.note_update(UPDATE.0, UPDATE.1);
    assert_eq!(setting.read().expect("good").len(), 1);
    let other = Uuid::from_u128(99);
    for whose in [
        BegunOf {
            array: other,
            ..whose()
        },
        BegunOf {
            boot: other,
            ..whose()
        },
        BegunOf {
            life: LIFE + 1,
            ..whose()
        },
        BegunOf {
            life: LIFE - 1,
            ..whose()
        },
    ] {
        let refused = setting.read_by(&whose, &config());
        let refused = refused.expect_err("somebody else's");
        assert!(matches!(refused, Unusable::Other(_)), "{refused}");
    }
}

#[test]
fn it_counts_for_records_that_descend_from_the_last_update_only() {
    let setting = Setting::started();
    let next = config().next(77);
    assert!(setting.read_by(&whose(), &next).is_ok(), "its child");
    let mut fork = config();
    fork.update_id ^= 1;
    assert!(
        setting.read_by(&whose(), &fork).is_err(),
        "of the same number"
    );
    assert!(
        setting.read_by(&whose(), &fork.next(77)).is_err(),
        "its child"
    );
    for (number, id) in [(41, 77), (42, 78), (43, 79)] {
        setting.begun.note_update(Update(number), id);
    }
    assert!(setting.read().is_err(), "an ancestor");
    assert!(
        setting.read_by(&whose(), &next).is_err(),
        "another ancestor"
    );
    let last = next.next(78).next(79);
    assert!(setting.read_by(&whose(), &last).is_ok(), "the last one");
}

/// Every word of the head and of the entry is turned into others: nothing panics, and whatever is
/// still believed lies inside.
#[test]
fn nothing_that_is_wrong_is_believed() {
    let setting = Setting::started();
    setting.tell();
    let entry = setting.begun.space.table(1) + bytes_u64(3 * ENTRY_WORDS * 8);
    let head = (0..bytes_u64(HEAD_FIXED + 1)).map(|word| word * 8);
    for offset in head {
        for bit in 0..64 {
            let before = setting.set(offset, 0);
            setting.set(offset, before ^ 1 << bit);
            assert!(setting.read().is_err(), "bit {bit} at {offset}");
            setting.set(offset, before);
        }
    }
    let inside = |writes: &BegunWrites| {
        for position in 0..writes.len() {
            for part in setting.redo(writes, position) {
                assert!(part.member.at() < 4);
                let end = part.offset + bytes_u64(part.bytes.len());
                assert!(end <= geometry().member_blocks() * 4096);
            }
        }
    };
    let mut refused = 0;
    for word in 0..bytes_u64(ENTRY_WORDS) {
        for value in (0..64)
            .map(|bit| 1 << bit)
            .chain([u64::MAX, u64::MAX >> 32, 0])
        {
            let before = setting.set(entry + word * 8, 0);
            setting.set(entry + word * 8, before ^ value);
            match setting.read() {
                Ok(writes) => inside(&writes),
                Err(Unusable::Damaged(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            setting.set(entry + word * 8, before);
        }
    }
    assert!(refused > 300, "{refused} of {ENTRY_WORDS} × 67");
    assert_eq!(setting.read().expect("as it was").len(), 1);
    setting
        .file
        .set_len(setting.begun.space.bytes() - 1)
        .expect("shorter");
    assert!(setting.read().is_err(), "a part is missing");
}

#[test]
fn two_tickets_of_the_same_lanes_are_not_believed() {
    let setting = Setting::started();
    setting.tell();
    let order = Order {
        stripe: StripeIndex(9),
        first: 7,
        content: Content::Zeroes,
    };
    let bands = |lanes| [(lanes, RoleSet::one(Role(1)))].into_iter();
    setting.tables[0].begin(1, &order, bands(7..8), [].into_iter());
    assert_eq!(setting.read().expect("side by side").len(), 2);
    let order = Order { first: 6, ..order };
    setting.tables[0].begin(1, &order, bands(6..8), [].into_iter());
    assert!(setting.read().is_err());
    let order = Order {
        stripe: StripeIndex(8),
        ..order
    };
    setting.tables[0].begin(1, &order, bands(6..8), [].into_iter());
    assert_eq!(setting.read().expect("another stripe").len(), 2);
}

/// The member of a role in stripe 9, and where lane 2 is there.
fn place_of(role: u8) -> (u16, u64) {
    let (geometry, stripe) = (geometry(), StripeIndex(9));
    let offset = (geometry.member_block(stripe) + 2) * 4096;
    (geometry.member(stripe, Role(role)).0, offset)
}

#[test]
fn rows_that_a_guest_was_writing_from_its_own_memory_get_parity_of_what_the_members_have() {
    let setting = Setting::started();
    setting.borrow();
    let writes = setting.read().expect("good");
    let members = [0, 1, 2].map(|role| (place_of(role).0, 1 << role));
    let done = setting.redo_by(&writes, 0, &members);
    let (parity, offset) = place_of(3);
    let expected = Redo {
        member: MemberIndex(parity),
        offset,
        bytes: vec![7; 3 * 4096],
    };
    assert_eq!((done.redo, done.lost), (vec![expected], vec![]));
}

#[test]
fn what_a_member_had_of_such_rows_that_is_not_here_is_lost_and_the_others_agree_without_it() {
    let setting = Setting::started();
    setting.borrow();
    let writes = setting.read().expect("good");
    let members = [0, 2].map(|role| (place_of(role).0, 1 << role));
    let done = setting.redo_by(&writes, 0, &members);
    assert_eq!(done.redo.len(), 1);
    assert_eq!(done.redo[0].bytes, vec![5; 3 * 4096], "as of zeroes");
    // Three data chunks of 16 blocks to a stripe.
    let first = 9 * 48 + 16 + 2;
    assert_eq!(done.lost, vec![first..first + 3; 1]);
}

#[test]
fn once_the_copy_is_there_such_a_write_is_done_again_from_it() {
    let setting = Setting::started();
    setting.borrow();
    setting.tables[0].keep(2);
    let writes = setting.read().expect("good");
    let done = setting.redo(&writes, 0);
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|part| part.bytes == vec![0x77; 3 * 4096]));
}

fn mirror() -> Geometry {
    Geometry::new(GeometryParameters {
        level: Level::L1,
        members: 3,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: 16 * 32,
    })
    .expect("a good shape")
}

/// Shard 0, ticket 0 writes lanes of stripe 1 of a mirror, from a guest's memory.
fn borrow_mirror(setting: &Setting, lanes: Range<u32>) {
    let order = Order {
        stripe: StripeIndex(1),
        first: lanes.start,
        content: Content::Borrowed,
    };
    let places = (0..3).map(|_| setting.buffer(0, 0, 0x77));
    let bands = [(lanes, RoleSet::range(0, 3))];
    setting.tables[0].begin(0, &order, bands.into_iter(), places);
}

fn read_mirror(setting: &Setting, geometry: &Geometry) -> BegunWrites {
    let length = setting.file.metadata().expect("a file").len();
    let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
    BegunWrites::read(read, length, &whose(), (&config(), geometry)).expect("good")
}

#[test]
fn of_copies_any_one_that_is_here_decides() {
    let geometry = mirror();
    let setting = Setting::started();
    borrow_mirror(&setting, 4..5);
    let writes = read_mirror(&setting, &geometry);
    let member = |role| geometry.member(StripeIndex(1), Role(role));
    for (here, first) in [(vec![0, 1, 2], 0), (vec![1, 2], 1), (vec![2], 2)] {
        let full = |&role: &u8| (member(role).0, role + 1);
        let members: Vec<(u16, u8)> = here.iter().map(full).collect();
        let done = setting.redo_by(&writes, 0, &members);
        assert_eq!(done.lost, []);
        let written = done.redo.iter().map(|part| (part.member, part.bytes[0]));
        let others = (0..3).filter(|role| *role != first);
        let expected = others.map(|role| (member(role), first + 1));
        assert!(written.eq(expected), "{here:?}");
    }
    assert_eq!(setting.redo_by(&writes, 0, &[]).lost, vec![20..21; 1]);
}

#[test]
fn a_borrowed_entry_that_leaves_out_some_of_its_rows_is_not_believed() {
    let order = Order {
        stripe: StripeIndex(9),
        first: 2,
        content: Content::Borrowed,
    };
    let all = RoleSet::range(0, 4);
    for bands in [
        vec![(2..5, RoleSet::range(0, 3))],
        vec![(2..5, all), (5..6, all)],
    ] {
        let setting = Setting::started();
        let places = (0..4).map(|number| setting.buffer(0, number, 0x77));
        setting.tables[0].begin(2, &order, bands.into_iter(), places);
        assert!(setting.read().is_err());
    }
}

#[test]
fn of_a_member_that_cannot_read_some_block_that_one_is_lost_and_stays_as_it_is() {
    let setting = Setting::started();
    setting.borrow();
    let writes = setting.read().expect("good");
    let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
    let (bad, _) = place_of(1);
    let read_member = |member: MemberIndex, _, bytes: &mut [u8]| {
        bytes.fill(if member.0 == bad { 2 } else { 1 });
        Ok(if member.0 == bad { 0b101 } else { 0b111 })
    };
    let done = writes.redo(0, read, read_member).expect("memory");
    let first = 9 * 48 + 16 + 2;
    assert_eq!(done.lost, vec![first + 1..first + 2; 1]);
    let rows = [2, 0, 2].map(|byte| vec![byte; 4096]).concat();
    assert_eq!(done.redo[0].bytes, rows, "parity of zeroes in that row");
    // Should the start be repeated, zeroes would pass for what it had.
    assert_eq!(done.redo.len(), 1, "parity and nothing else");
}

#[test]
fn copies_that_each_cannot_read_another_block_make_up_for_each_other() {
    let geometry = mirror();
    let setting = Setting::started();
    borrow_mirror(&setting, 4..8);
    let writes = read_mirror(&setting, &geometry);
    let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
    let role = |member| {
        let role = geometry.role(StripeIndex(1), member);
        role.expect("a copy").0
    };
    let read_member = |member: MemberIndex, _, bytes: &mut [u8]| {
        bytes.fill(role(member) + 1);
        Ok([0b0110, 0b0101, 0][usize::from(role(member))])
    };
    let done = writes.redo(0, read, read_member).expect("memory");
    let first = (geometry.member_block(StripeIndex(1)) + 4) * 4096;
    let part = |part: &Redo| {
        let block = (part.offset - first) / 4096;
        (block, role(part.member), part.bytes[0])
    };
    let written: Vec<(u64, u8, u8)> = done.redo.iter().map(part).collect();
    let expected = [
        (0, 0, 2),
        (0, 2, 2),
        (1, 1, 1),
        (1, 2, 1),
        (2, 1, 1),
        (2, 2, 1),
    ];
    assert_eq!(written, expected, "block, copy, content");
    // Nobody has the last one, and nothing is written there.
    assert_eq!(done.lost, vec![23..24; 1]);
}

#[test]
fn a_borrowed_entry_of_more_than_a_cell_is_not_believed() {
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 4,
        parity: None,
        group_size: None,
        chunk_bytes: 1 << 20,
        block: BlockSize::B512,
        member_data_blocks: 1 << 14,
    })
    .expect("a good shape");
    for (lanes, good) in [(128, true), (129, false)] {
        let setting = Setting::started();
        let order = Order {
            stripe: StripeIndex(1),
            first: 128,
            content: Content::Borrowed,
        };
        let bands = [(128..128 + lanes, RoleSet::range(0, 4))];
        let places = (0..4).map(|number| setting.buffer(0, number, 0x77));
        setting.tables[0].begin(2, &order, bands.into_iter(), places);
        let length = setting.file.metadata().expect("a file").len();
        let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
        let writes = BegunWrites::read(read, length, &whose(), (&config(), &geometry));
        assert_eq!(writes.is_ok(), good, "{lanes}");
    }
}

/// An array of so many members that is found whole.
pub(crate) fn whole_array(members: u16) -> Assembly {
    let count = usize::from(members);
    let superblock =
        |member| crate::format::tests::level_superblock(Level::L5, member, count, 256 << 20);
    let found = (0..members).map(|member| Found {
        drive: DriveIndex(member),
        drive_bytes: 256 << 20,
        identity: DriveIdentity::new(&format!("serial-{member}")),
        superblocks: vec![Ok(superblock(member)); 4],
        configs: vec![Ok((
            MemberIndex(member),
            crate::format::tests::config(members),
        ))],
    });
    let found: Vec<Found> = found.collect();
    let assembly = assemble(&found).arrays.remove(0);
    assert!(matches!(assembly.verdict, Verdict::Startable { .. }));
    assembly
}

/// An engine that trusted parity, and the array that is found after it: all are here.
fn trusted() -> (Setting, Assembly) {
    let setting = Setting::started();
    setting.begun.note_appearances([1, 2, 3, 4].into_iter());
    setting.begun.trust(true);
    (setting, whole_array(4))
}

#[test]
fn members_that_may_have_lost_something_are_named() {
    let (setting, assembly) = trusted();
    let begun = &setting.begun;
    begun.note_clock(Duration::from_secs(100));
    let locked = |seconds: u64| Some(Duration::from_secs(100 + seconds));
    let same = |member: MemberIndex| bytes_u64(member.at()) + 1;
    let read = |seconds: u64| {
        let writes = setting.read().expect("it is good");
        let lacking = writes.lacking(&assembly, locked(seconds), same);
        (writes.doubt(&assembly, locked(seconds), same), lacking)
    };
    let only = |member: MemberIndex, why| (Some(Doubt::Lacks(member, why)), vec![(member, why); 1]);
    let [first, second, third] = [MemberIndex(0), MemberIndex(1), MemberIndex(3)];
    begun.call_unflushed(third);
    assert_eq!(read(5), only(third, Why::FlushFailed));
    begun.forget_unflushed(third);
    assert_eq!(read(5), (None, Vec::new()));
    for shard in [ReactorIndex(0), ReactorIndex(77)] {
        begun.call_gone(shard, second, true);
        begun.call_gone(shard, third, true);
        begun.call_gone(shard, third, false);
        assert_eq!(read(5), only(second, Why::Gone));
        begun.call_gone(shard, second, false);
        assert_eq!(read(5), (None, Vec::new()));
    }
    let at = |seconds: u64| Instant(seconds * 1_000_000_000);
    let mut flushes = UnderWay {
        oldest: Some((at(2), first)),
        others: None,
    };
    begun.note_flushes(ReactorIndex(1), &flushes);
    assert_eq!(read(2), (None, Vec::new()), "a moment is nothing");
    assert_eq!(read(5), only(first, Why::FlushHung));
    flushes.others = Some(at(3));
    begun.note_flushes(ReactorIndex(1), &flushes);
    assert_eq!(read(3), only(first, Why::FlushHung));
    assert_eq!(read(5).0, Some(Doubt::FlushHung), "one of another, too");
    flushes = UnderWay {
        oldest: Some((at(2), MemberIndex(4))),
        others: None,
    };
    begun.note_flushes(ReactorIndex(1), &flushes);
    assert_eq!(
        read(60).0,
        Some(Doubt::FlushHung),
        "there is no such member"
    );
    begun.note_flushes(ReactorIndex(1), &UnderWay::default());
    assert_eq!(read(60), (None, Vec::new()));
    begun.call_held(ReactorIndex(77), true);
    assert_eq!(read(5).0, Some(Doubt::Held));
    begun.call_held(ReactorIndex(77), false);
    assert_eq!(read(5), (None, Vec::new()));
    begun.tear();
    assert_eq!(read(5).0, Some(Doubt::Torn));
}

#[test]
fn a_member_that_is_filled_is_not_begun_anew_because_a_flush_took_long() {
    let (setting, mut assembly) = trusted();
    assembly.config.members[1].state = MemberState::Rebuilding {
        until: StripeIndex(1),
        missed: Missed::ALL,
    };
    let member = MemberIndex(1);
    let doubt = || {
        let writes = setting.read().expect("it is good");
        writes.doubt(&assembly, None, |member| bytes_u64(member.at()) + 1)
    };
    let flushes = UnderWay {
        oldest: Some((Instant(1), member)),
        others: None,
    };
    setting.begun.note_flushes(ReactorIndex(0), &flushes);
    assert_eq!(doubt(), Some(Doubt::FlushHung));
    setting.begun.call_unflushed(member);
    assert_eq!(doubt(), Some(Doubt::Lacks(member, Why::FlushFailed)));
}

#[test]
fn a_start_that_somebody_forces_does_not_trust_parity_and_another_may() {
    let (setting, mut assembly) = trusted();
    let doubt = |assembly: &Assembly, here: u64| {
        let writes = setting.read().expect("it is good");
        writes.doubt(assembly, None, |member| bytes_u64(member.at()) + here)
    };
    assert_eq!(doubt(&assembly, 1), None);
    assert_eq!(
        doubt(&assembly, 2),
        Some(Doubt::Lacks(MemberIndex(0), Why::Away))
    );
    assembly.verdict = Verdict::NeedsForce {
        explanation: String::new(),
    };
    assert_eq!(doubt(&assembly, 1), Some(Doubt::Forced));
}

#[test]
fn parts_of_the_head_follow_one_another() {
    let parts = [
        (0, HEAD_FIXED),
        (HEAD_CHECKSUM, 1),
        (HEAD_NOTE, 1),
        // Each is a number and two halves of an id.
        (HEAD_NOTES[0], 3),
        (HEAD_NOTES[1], 3),
        (HEAD_TRUST, 1),
        (HEAD_TORN, 1),
        (HEAD_HELD[0], HEAD_HELD.len()),
        (HEAD_CLOCK, 1),
        (HEAD_APPEARANCES, ARRAY_MEMBERS_MAX),
        (HEAD_FLUSHING, REACTORS_MAX * FLUSHING_WORDS),
        (HEAD_UNFLUSHED, ARRAY_MEMBERS_MAX / 64),
        (HEAD_GONE, ARRAY_MEMBERS_MAX * REACTORS_MAX / 64),
        (HEAD_WORDS, 0),
    ];
    for pair in parts.windows(2) {
        let [(first, words), (next, _)] = pair else {
            unreachable!("two");
        };
        assert!(first + words <= *next, "{first} and {words} more, {next}");
    }
    // One bit a shard, and what shards write has a line of its own.
    assert_eq!(REACTORS_MAX % 64, 0);
    assert_eq!(HEAD_FLUSHING % FLUSHING_WORDS, 0);
}

#[test]
fn the_update_that_counts_is_not_touched_while_the_next_one_is_noted() {
    let setting = Setting::new();
    let words = setting.begun.head.as_slice();
    let word = |at: usize| words[at].load(std::sync::atomic::Ordering::Relaxed);
    let notes = || HEAD_NOTES.map(|first| [0, 1, 2].map(|at| word(first + at)));
    // Which counts, from one on; at first none does.
    let counts = || bytes_usize(word(HEAD_NOTE));
    for number in 1..6 {
        let (before, counted) = (notes(), counts());
        setting.begun.note_update(Update(number), 9 << 64 | 7);
        let (after, counting) = (notes(), counts());
        assert_eq!(after[counting - 1], [number, 9, 7]);
        assert_ne!(counting, counted);
        let untouched = 2 - counting;
        assert_eq!(after[untouched], before[untouched], "update {number}");
    }
}

#[test]
fn a_file_of_such_writes_is_told_from_others_and_from_one_that_cannot_be_read() {
    let setting = Setting::new();
    let read = |offset, bytes: &mut [u8]| setting.file.read_exact_at(bytes, offset);
    assert!(BegunWrites::is_one(read).expect("it is read"));
    let others: [&[u8]; 3] = [&[], b"GBBEGUN", b"GBBEGUN2 and so on"];
    for other in others {
        let read = |_, bytes: &mut [u8]| io::Read::read_exact(&mut &*other, bytes);
        assert!(!BegunWrites::is_one(read).expect("it is read"), "{other:?}");
    }
    let fails = |_, _: &mut [u8]| Err(io::ErrorKind::PermissionDenied.into());
    let error = BegunWrites::is_one(fails).expect_err("nobody knows");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn once_trust_is_withdrawn_parity_is_not_trusted_and_all_else_stays_told() {
    let (setting, assembly) = trusted();
    setting.tell();
    let read = || {
        let writes = setting.read().expect("it is good");
        let same = |member: MemberIndex| bytes_u64(member.at()) + 1;
        (writes.doubt(&assembly, None, same), writes.len())
    };
    assert_eq!(read(), (None, 1));
    let write = |offset, bytes: &[u8]| setting.file.write_all_at(bytes, offset);
    BegunWrites::withdraw(write).expect("memory");
    assert_eq!(read(), (Some(Doubt::NotTrusted), 1));
    let fails = |_, _: &[u8]| Err(std::io::ErrorKind::StorageFull.into());
    assert!(BegunWrites::withdraw(fails).is_err());
}
