//! The volume table against a model that knows what every extent holds, and the map against the
//! extents one by one.

use std::collections::BTreeMap;

use array::format::{
    ArrayConfig, ArrayOptions, Created, DriveIdentity, ExtentRun, ExtentSpace, Features,
    INCOMPAT_UNWRITTEN, Layout, MemberRecord, MemberState, Sectors, Superblock, Uuid, VolumeRecord,
    VolumeState, extents_of,
};
use array::{Geometry, GeometryParameters, Level, RegionSpace};
use block::Status;
use proptest::prelude::*;
use units::limits::ARRAY_VOLUMES_MAX;
use units::{BlockSize, MemberIndex, Size, StripeIndex, Update, bytes_u64};

use crate::free::{both, without};
use crate::*;

const MIB: u64 = 1 << 20;
/// 4 data chunks of 64 KiB: 16 MiB are 64 whole stripes.
const EXTENT: u64 = 16 * MIB;

/// What is kept for the list of lost blocks.
const LOST_LIST: u64 = 4096;

fn superblock(drive_bytes: u64) -> Superblock {
    let layout = Layout::for_member(drive_bytes, BlockSize::B4096, 6).expect("large enough");
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L6,
        members: 6,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: layout.data.length / 4096,
    })
    .expect("a good geometry");
    Superblock {
        array: Uuid::from_u128(0xA7),
        member_uuid: Uuid::from_u128(1),
        member: MemberIndex(0),
        update: Update(1),
        features: Features::default(),
        sectors: Sectors::default(),
        layout,
        geometry,
        extent_stripes: ExtentSpace::new(&geometry).stripes(),
        region_stripes: RegionSpace::stripes_for(&geometry, layout.region_map.length),
        created: Created::default(),
    }
}

fn config(unzeroed: Vec<ExtentRun>) -> ArrayConfig {
    let member = |number| MemberRecord {
        uuid: Uuid::from_u128(number),
        state: MemberState::InSync,
        drive_bytes: 256 * MIB,
        identity: DriveIdentity::default(),
    };
    ArrayConfig {
        array: Uuid::from_u128(0xA7),
        name: "tank".to_owned(),
        update: Update(1),
        update_id: 1,
        ancestors: Vec::new(),
        forced_at: Update(0),
        unfinished_since: Update(0),
        written_seconds: 0,
        features: Features::default(),
        clean: false,
        resynced_until: StripeIndex(0),
        log_from: 0,
        members: (1..=6).map(member).collect(),
        volumes: Vec::new(),
        unzeroed,
        lost: Default::default(),
        options: ArrayOptions::default(),
        scrub: Default::default(),
    }
}

fn new(number: u128, bytes: u64) -> NewVolume {
    NewVolume {
        uuid: Uuid::from_u128(number),
        name: format!("v{number}"),
        size: Size(bytes),
        stable_buffers: false,
    }
}

fn run(first: u64, count: u64) -> ExtentRun {
    ExtentRun { first, count }
}

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn volume(extents: Vec<ExtentRun>, size_blocks: u64) -> VolumeRecord {
    VolumeRecord {
        uuid: uuid(1),
        name: "v".to_owned(),
        size_blocks,
        extents,
        state: VolumeState::Ready,
        stable_buffers: false,
    }
}

#[test]
fn an_extent_is_the_fewest_whole_stripes_that_hold_16_mib() {
    let space = superblock(256 * MIB).extents();
    assert_eq!(space.stripes(), 64);
    assert_eq!(space.extent_blocks() * 4096, EXTENT);
    assert_eq!(space.count(), 246 * 4 / 16);
}

#[test]
fn a_volume_on_zeroed_extents_is_ready_at_once_and_exactly_as_large_as_asked() {
    let superblock = superblock(256 * MIB);
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert_eq!(table.capacity_bytes(), Size(61 * EXTENT));
    assert!(table.create(new(1, EXTENT + 4096)).expect("room").is_done());
    assert_eq!(table.free_bytes(), Size(59 * EXTENT));
    let volume = &config.volumes[0];
    assert_eq!(volume.state, VolumeState::Ready);
    assert_eq!(volume.size_blocks, EXTENT / 4096 + 1);
    assert_eq!(volume.extents, [run(0, 2)]);
}

#[test]
fn a_volume_on_old_data_is_ready_only_when_that_is_zeroed() {
    let superblock = superblock(256 * MIB);
    let mut config = config(vec![run(0, 61)]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    let zeroing = table.create(new(1, 2 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(0, 2)]);
    assert_eq!(
        table.delete(uuid(1)),
        Err(VolumeError::Busy {
            name: "v1".to_owned()
        })
    );
    table.finish_create(uuid(1)).expect("creating");
    assert!(table.finish_create(uuid(1)).is_err(), "once");
    assert_eq!(config.volumes[0].state, VolumeState::Ready);
    assert_eq!(config.unzeroed, [run(2, 59)]);
}

#[test]
fn what_nobody_can_tell_is_zeroed_for_the_next_volume() {
    let superblock = superblock(256 * MIB);
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    for number in 1..=2 {
        let made = table.create(new(number, 2 * EXTENT)).expect("room");
        assert!(made.is_done());
    }
    let blocks = EXTENT / 4096;
    let named = |config: &ArrayConfig| -> String {
        let mut config = config.clone();
        assert!(distrusted(&config, &superblock.extents()).is_empty());
        config.features.incompat = INCOMPAT_UNWRITTEN;
        distrusted(&config, &superblock.extents()).join(" ")
    };
    table.distrust(std::iter::empty());
    assert_eq!(named(&config), "");
    // From within the second volume into its third neighbour.
    let mut table = VolumeTable::new(&mut config, &superblock);
    table.distrust([(3 * blocks + 5, 6 * blocks + 1)].into_iter());
    assert_eq!(named(&config), "v2");
    let mut table = VolumeTable::new(&mut config, &superblock);
    let zeroing = table.create(new(3, 5 * EXTENT)).expect("room");
    assert!(zeroing.is_done(), "elsewhere there are zeroes");
    let zeroing = table.create(new(4, 51 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(4, 2)]);
    assert_eq!(named(&config), "v2", "the other is not ready");
    let mut table = VolumeTable::new(&mut config, &superblock);
    table.finish_create(uuid(4)).expect("zeroed");
    let zeroing = table.grow(uuid(3), Size(6 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(6, 1)]);
    assert_eq!(named(&config), "v2", "what the other gets is not shown yet");
    let mut table = VolumeTable::new(&mut config, &superblock);
    table.delete(uuid(2)).expect("nobody uses it");
    assert_eq!(named(&config), "");
    let mut table = VolumeTable::new(&mut config, &superblock);
    let zeroing = table.create(new(5, 2 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(2, 2)]);
    // Behind the last extent there is nothing.
    table.distrust([(60 * blocks, 63 * blocks)].into_iter());
    assert_eq!(config.check_against(&superblock), Ok(()));
}

#[test]
fn extents_with_lost_blocks_are_written_before_anybody_reads_them() {
    let superblock = superblock(256 * MIB);
    let blocks = superblock.extents().extent_blocks();
    let mut config = config(Vec::new());
    config.lost.add(2 * blocks - 1..2 * blocks + 1);
    let mut table = VolumeTable::new(&mut config, &superblock);
    let zeroing = table.create(new(1, 2 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(1, 1)]);
    table.finish_create(uuid(1)).expect("creating");
    let zeroing = table.create(new(2, 2 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(2, 1)]);
}

#[test]
fn zeroed_extents_are_preferred_and_deleted_ones_are_old_data() {
    let superblock = superblock(256 * MIB);
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert!(table.create(new(1, 10 * EXTENT)).expect("room").is_done());
    table.delete(uuid(1)).expect("ready");
    assert_eq!(table.allocate(Size(20 * EXTENT)), Ok(vec![run(10, 20)]));
    let zeroing = table.create(new(2, 60 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(0, 10)]);
    assert_eq!(config.unzeroed, [run(0, 10)]);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let superblock = superblock(256 * MIB);
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    let _ = table.create(new(1, EXTENT)).expect("room");
    let _ = table.create(new(2, EXTENT)).expect("room");
    let before = config.clone();
    let mut table = VolumeTable::new(&mut config, &superblock);
    let mut says = |new: NewVolume| table.create(new).expect_err("refused").to_string();
    let taken = NewVolume {
        name: "v1".to_owned(),
        ..new(3, EXTENT)
    };
    assert_eq!(says(taken), "volume v1 exists; choose another name");
    let named = |name: &str| NewVolume {
        name: name.to_owned(),
        ..new(3, EXTENT)
    };
    assert!(says(named("a b")).starts_with("`a b` is not a name"));
    assert!(says(named("")).contains("is not a name"));
    assert!(says(new(1, EXTENT)).starts_with("volume v1 has the uuid"));
    assert_eq!(
        says(new(3, 512)),
        "size 512 is not a multiple of the array's block of 4096 bytes, or zero"
    );
    assert!(says(new(3, 0)).starts_with("size 0"));
    assert_eq!(
        says(new(3, 60 * EXTENT)),
        "needs 960MiB of space and the array has 944MiB free (in whole extents)"
    );
    assert!(says(new(3, u64::MAX - 4095)).starts_with("needs"));
    assert_eq!(
        table
            .grow(uuid(1), Size(EXTENT - 4096))
            .expect_err("shrink")
            .to_string(),
        "volume v1 has 16777216 bytes and cannot shrink to 16773120"
    );
    assert!(matches!(
        table.grow(uuid(1), Size(61 * EXTENT)),
        Err(VolumeError::NoSpace { .. })
    ));
    assert_eq!(
        table.delete(uuid(9)),
        Err(VolumeError::NotFound { uuid: uuid(9) })
    );
    assert!(table.finish_create(uuid(1)).is_err());
    assert!(table.finish_grow(uuid(1), Size(2 * EXTENT)).is_err());
    assert_eq!(config, before);
}

#[test]
fn an_array_has_at_most_1024_volumes() {
    let superblock = superblock(8 << 30);
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    for number in 0..1024 {
        assert!(table.create(new(number, 4096)).expect("room").is_done());
    }
    assert_eq!(table.create(new(5000, 4096)), Err(VolumeError::TooMany));
    assert_eq!(config.volumes.len(), ARRAY_VOLUMES_MAX);
}

#[test]
fn growing_inside_the_last_extent_is_one_update() {
    let superblock = superblock(256 * MIB);
    let mut config = config(vec![run(0, 61)]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    let _ = table.create(new(1, 4096)).expect("room");
    table.finish_create(uuid(1)).expect("creating");
    assert!(table.grow(uuid(1), Size(EXTENT)).expect("inside").is_done());
    assert!(table.grow(uuid(1), Size(EXTENT)).expect("same").is_done());
    assert_eq!(config.volumes[0].size_blocks, EXTENT / 4096);
    assert_eq!(config.volumes[0].extents, [run(0, 1)]);
}

#[test]
fn growing_inside_an_extent_that_nobody_can_tell_zeroes_what_is_behind_the_end() {
    let superblock = superblock(256 * MIB);
    let each = EXTENT / 4096;
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    let made = table.create(new(1, EXTENT + 7 * 4096)).expect("room");
    assert!(made.is_done());
    table.distrust([(0, 2 * each)].into_iter());
    // The same size again shows nothing.
    let same = table.grow(uuid(1), Size(EXTENT + 7 * 4096));
    assert!(same.expect("same").is_done());
    let zeroing = table.grow(uuid(1), Size(EXTENT + 9 * 4096)).expect("room");
    assert_eq!(
        (&zeroing.runs[..], zeroing.tail),
        (&[][..], Some((each + 7, each - 7)))
    );
    let space = superblock.extents();
    assert!(zeroing.blocks(&space).eq([(each + 7, each - 7)]));
    assert_eq!(
        config.volumes[0].size_blocks,
        each + 7,
        "not before it is zeroed"
    );
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert_eq!(table.recover(), [], "a stop in between leaves it as it was");
    table
        .finish_grow(uuid(1), Size(EXTENT + 9 * 4096))
        .expect("zeroed");
    assert_eq!(config.volumes[0].size_blocks, each + 9);
    assert_eq!(
        config.unzeroed,
        [run(0, 2)],
        "nobody zeroed what it had before"
    );
    // And with extents besides, which are somewhere else.
    config.unzeroed = vec![run(0, 2), run(3, 58)];
    let mut table = VolumeTable::new(&mut config, &superblock);
    let zeroing = table.grow(uuid(1), Size(4 * EXTENT - 4096)).expect("room");
    assert_eq!(
        (&zeroing.runs[..], zeroing.tail),
        (&[run(3, 1)][..], Some((each + 9, each - 9)))
    );
    assert!(
        zeroing
            .blocks(&space)
            .eq([(3 * each, each), (each + 9, each - 9)])
    );
    table
        .finish_grow(uuid(1), Size(4 * EXTENT - 4096))
        .expect("zeroed");
    assert_eq!(config.unzeroed, [run(0, 2), run(4, 57)]);
    // The extent that it ends in now was zeroed when it got it.
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert!(
        table
            .grow(uuid(1), Size(4 * EXTENT))
            .expect("inside")
            .is_done()
    );
    table.delete(uuid(1)).expect("nobody uses it");
    assert_eq!(config.unzeroed, [run(0, 61)]);
}

#[test]
fn growing_inside_an_extent_with_lost_blocks_zeroes_what_is_behind_the_end() {
    let superblock = superblock(256 * MIB);
    let each = EXTENT / 4096;
    let mut config = config(Vec::new());
    config.lost.add(each + 20..each + 21);
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert!(table.create(new(1, EXTENT)).expect("room").is_done());
    let zeroing = table.create(new(2, 4096)).expect("room");
    assert_eq!(zeroing.runs, [run(1, 1)]);
    table.finish_create(uuid(2)).expect("creating");
    let zeroing = table.grow(uuid(2), Size(EXTENT)).expect("room");
    assert_eq!(zeroing.tail, Some((each + 1, each - 1)));
}

#[test]
fn growing_over_old_data_changes_the_size_only_when_that_is_zeroed() {
    let superblock = superblock(256 * MIB);
    let mut config = config(vec![run(0, 61)]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    let _ = table.create(new(1, EXTENT)).expect("room");
    table.finish_create(uuid(1)).expect("creating");
    let zeroing = table.grow(uuid(1), Size(3 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(1, 2)]);
    for refused in [
        table.grow(uuid(1), Size(4 * EXTENT)).err(),
        table.delete(uuid(1)).err(),
        table.begin_delete(uuid(1)).err(),
    ] {
        assert!(matches!(refused, Some(VolumeError::Busy { .. })));
    }
    assert!(table.finish_grow(uuid(1), Size(4 * EXTENT)).is_err());
    table
        .finish_grow(uuid(1), Size(3 * EXTENT))
        .expect("zeroed");
    assert_eq!(config.volumes[0].size_blocks, 3 * EXTENT / 4096);
    assert_eq!(config.volumes[0].extents, [run(0, 3)]);
    assert_eq!(config.unzeroed, [run(3, 58)]);
}

#[test]
fn a_restart_drops_what_was_half_done_and_its_extents_are_old_data() {
    let superblock = superblock(256 * MIB);
    let mut config = config(vec![run(0, 61)]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    for number in 1..=3 {
        let _ = table.create(new(number, EXTENT)).expect("room");
        table.finish_create(uuid(number)).expect("creating");
    }
    let _ = table.grow(uuid(1), Size(3 * EXTENT)).expect("room");
    table.begin_delete(uuid(2)).expect("ready");
    let _ = table.create(new(4, EXTENT)).expect("room");
    let dropped = table.recover();
    let names: Vec<&str> = dropped.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["v2", "v4"]);
    assert_eq!(config.volumes.len(), 2);
    assert_eq!(config.volumes[0].extents, [run(0, 1)]);
    assert_eq!(config.unzeroed, [run(1, 1), run(3, 58)]);
    assert_eq!(VolumeTable::new(&mut config, &superblock).recover(), []);
}

#[test]
fn extents_that_a_stopped_grow_had_added_are_not_trusted() {
    let superblock = superblock(256 * MIB);
    let mut config = config(vec![run(1, 1), run(3, 58)]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    assert!(table.create(new(1, EXTENT)).expect("room").is_done());
    let zeroing = table.grow(uuid(1), Size(4 * EXTENT)).expect("room");
    assert_eq!(zeroing.runs, [run(1, 1), run(3, 1)]);
    assert_eq!(table.recover(), []);
    assert_eq!(config.volumes[0].extents, [run(0, 1)]);
    assert_eq!(config.unzeroed, [run(1, 60)]);
}

#[test]
fn a_record_without_room_refuses_new_pieces_and_still_lets_delete() {
    let mut superblock = superblock(8 << 30);
    superblock.layout.config[0].length = 8192 + LOST_LIST;
    let mut config = config(Vec::new());
    let mut table = VolumeTable::new(&mut config, &superblock);
    let mut number = 0;
    let refused = loop {
        number += 1;
        if let Err(refused) = table.create(new(number, 4096)) {
            break refused;
        }
    };
    assert!(matches!(refused, VolumeError::RecordFull(_)), "{refused}");
    // 1024 + 6 × 192 bytes are there before the first volume of 128 + 16.
    assert_eq!(number, (8192 - 1024 - 6 * 192) / (128 + 16) + 1);
    for gone in 1..number {
        table.delete(uuid(gone)).expect("ready");
    }
    assert!(config.volumes.is_empty());
    assert_eq!(config.unzeroed.len(), 1);
}

#[test]
fn what_was_begun_can_be_finished_or_dropped_in_a_record_without_room() {
    let mut superblock = superblock(8 << 30);
    superblock.layout.config[0].length = 8192 + LOST_LIST;
    let count = superblock.extents().count();
    for finish in [true, false] {
        // Every volume splits the one unzeroed run, because a ready one lies between.
        let mut config = config(Vec::new());
        let mut table = VolumeTable::new(&mut config, &superblock);
        let _ = table.create(new(9000, EXTENT)).expect("room");
        config.unzeroed = vec![run(1, count - 1)];
        let mut table = VolumeTable::new(&mut config, &superblock);
        let mut number = 0;
        while table.create(new(number, EXTENT)).is_ok() {
            number += 1;
        }
        assert!(number > 20);
        for odd in (1..number).step_by(2).filter(|_| finish) {
            table.finish_create(uuid(odd)).expect("creating");
        }
        assert!(!table.recover().is_empty());
        assert!(config.record_bytes() <= 8192, "{}", config.record_bytes());
    }
}

#[test]
fn finishing_every_second_volume_fits_the_area_too() {
    let mut superblock = superblock(8 << 30);
    superblock.layout.config[0].length = 8192 + LOST_LIST;
    let mut config = config(vec![run(0, superblock.extents().count())]);
    let mut table = VolumeTable::new(&mut config, &superblock);
    let mut number = 0;
    while table.create(new(number, EXTENT)).is_ok() {
        number += 1;
    }
    for odd in (1..number).step_by(2) {
        table.finish_create(uuid(odd)).expect("creating");
    }
    assert!(config.unzeroed.len() > 15);
    assert!(config.record_bytes() <= 8192, "{}", config.record_bytes());
}

#[test]
fn a_map_finds_every_block_and_nothing_else() {
    let space = superblock(256 * MIB).extents();
    let extent = space.extent_blocks();
    let map = VolumeMap::new(
        &volume(vec![run(5, 2), run(1, 1), run(9, 3)], 5 * extent + 7),
        &space,
    )
    .expect("ready");
    assert_eq!(map.blocks(), 5 * extent + 7);
    assert_eq!(map.locate(0, 8), Ok((5 * extent, 8)));
    assert_eq!(map.locate(2 * extent - 3, 8), Ok((7 * extent - 3, 3)));
    assert_eq!(map.locate(2 * extent - 1, 8), Ok((7 * extent - 1, 1)));
    assert_eq!(map.locate(2 * extent, 8), Ok((extent, 8)));
    assert_eq!(map.locate(2 * extent + 1, 8), Ok((extent + 1, 8)));
    assert_eq!(map.locate(5 * extent + 6, 1), Ok((11 * extent + 6, 1)));
    for (block, blocks) in [
        (5 * extent + 6, 2),
        (5 * extent + 7, 1),
        (5 * extent + 7, 0),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
        (0, u32::MAX),
    ] {
        assert_eq!(map.locate(block, blocks), Err(Status::OutOfRange));
    }
    assert_eq!(map.split(5 * extent + 7, 1).err(), Some(Status::OutOfRange));
    assert_eq!(map.split(5 * extent + 7, 0).expect("flush").count(), 0);
    let pieces: Vec<Piece> = map.split(extent + 1, 4096 * 3).expect("inside").collect();
    assert_eq!(
        pieces,
        [
            Piece {
                block_in_request: 0,
                array_block: 6 * extent + 1,
                blocks: 4095
            },
            Piece {
                block_in_request: 4095,
                array_block: extent,
                blocks: 4096
            },
            Piece {
                block_in_request: 8191,
                array_block: 9 * extent,
                blocks: 4097
            },
        ]
    );
    assert_eq!(pieces[1].byte_offset(4096), 4095 * 4096);
}

#[test]
fn a_map_is_made_only_of_what_is_ready_and_inside() {
    let space = superblock(256 * MIB).extents();
    let extent = space.extent_blocks();
    let creating = VolumeRecord {
        state: VolumeState::Creating,
        ..volume(vec![run(0, 1)], 1)
    };
    for bad in [
        creating,
        volume(vec![run(0, 1)], extent + 1),
        volume(vec![run(60, 2)], 1),
        volume(vec![run(u64::MAX, 2)], 1),
        volume(Vec::new(), 1),
        volume(vec![run(0, 1)], 0),
    ] {
        assert!(VolumeMap::new(&bad, &space).is_none(), "{bad:?}");
    }
}

/// What each extent holds: whether it could show somebody's data.
struct Model {
    superblock: Superblock,
    config: ArrayConfig,
    holds_data: Vec<bool>,
    /// And whether the blocks of it that no volume has shown yet could.
    unseen: Vec<bool>,
    /// Zeroing that is under way: runs, and the size a grow is for.
    busy: BTreeMap<u128, (Zeroing, Option<Size>)>,
    next: u128,
}

impl Model {
    fn new(zeroed: bool) -> Model {
        let superblock = superblock(64 * MIB);
        let count = superblock.extents().count();
        let unzeroed = if zeroed { vec![] } else { vec![run(0, count)] };
        Model {
            superblock,
            config: config(unzeroed),
            holds_data: vec![!zeroed; usize::try_from(count).unwrap()],
            unseen: vec![!zeroed; usize::try_from(count).unwrap()],
            busy: BTreeMap::new(),
            next: 1,
        }
    }

    fn table(&mut self) -> VolumeTable<'_> {
        VolumeTable::new(&mut self.config, &self.superblock)
    }

    fn some(&self, choice: u8) -> Option<u128> {
        let volumes = &self.config.volumes;
        let at = usize::from(choice).checked_rem(volumes.len())?;
        Some(volumes[at].uuid.as_u128())
    }

    fn extents(runs: &[ExtentRun]) -> impl Iterator<Item = usize> + '_ {
        let numbers = runs.iter().flat_map(|run| run.first..run.first + run.count);
        numbers.map(|number| usize::try_from(number).unwrap())
    }

    fn of(&self, number: u128) -> &VolumeRecord {
        let found = self.config.volumes.iter().find(|v| v.uuid == uuid(number));
        found.expect("chosen from the table")
    }

    fn step(&mut self, deed: u8, choice: u8, size: u64) {
        let before = self.config.clone();
        let free = self.table().free_bytes().0;
        match deed % 7 {
            0 => {
                let number = self.next;
                self.next += 1;
                match self.table().create(new(number, size)) {
                    Ok(zeroing) => self.begin(number, zeroing, None),
                    Err(refused) => {
                        let full = VolumeError::NoSpace {
                            needed: Size(size.next_multiple_of(EXTENT)),
                            free: Size(free),
                        };
                        assert_eq!(refused, full);
                        assert!(size.next_multiple_of(EXTENT) > free);
                        assert_eq!(self.config, before);
                    }
                }
            }
            1 => {
                let Some(number) = self.some(choice).filter(|number| self.is_free(*number)) else {
                    return;
                };
                let prefix: Vec<usize> = Model::extents(&self.of(number).extents).collect();
                match self.table().grow(uuid(number), Size(size)) {
                    Ok(zeroing) => self.begin(number, zeroing, Some(Size(size))),
                    Err(_) => assert_eq!(self.config, before),
                }
                let now: Vec<usize> = Model::extents(&self.of(number).extents).collect();
                assert!(
                    now.starts_with(&prefix),
                    "what is written stays where it is"
                );
            }
            2 => self.finish(),
            3 => {
                let Some(number) = self.some(choice).filter(|number| self.is_free(*number)) else {
                    return;
                };
                let refused = self.table().delete(uuid(number)).is_err();
                assert_eq!(refused, self.busy.contains_key(&number));
                assert_eq!(refused, self.config == before);
            }
            4 => {
                // A guest writes everywhere it can.
                let Some(number) = self.some(choice) else {
                    return;
                };
                if self.of(number).state == VolumeState::Ready {
                    let space = self.superblock.extents();
                    let reach = space.needed(self.of(number).size_blocks);
                    let own = Model::extents(&self.of(number).extents);
                    let reach = usize::try_from(reach).unwrap();
                    for extent in own.take(reach).collect::<Vec<_>>() {
                        self.holds_data[extent] = true;
                    }
                }
            }
            _ => {
                // The engine dies and starts again. A zeroing in part is none.
                self.busy.clear();
                self.table().recover();
                if deed % 7 == 6 {
                    self.lose(choice, size);
                }
            }
        }
    }

    /// What is zeroed behind the end of a volume is for its caller to know.
    fn is_free(&self, number: u128) -> bool {
        let zeroing = self.busy.get(&number).map(|(zeroing, _)| zeroing);
        zeroing.is_none_or(|zeroing| zeroing.tail.is_none())
    }

    /// After the engine has died: nobody knows what is in some of the extents.
    fn lose(&mut self, choice: u8, size: u64) {
        let each = self.superblock.extents().extent_blocks();
        let count = bytes_u64(self.holds_data.len());
        let first = u64::from(choice) % count;
        let end = (first + 1 + size / EXTENT).min(count);
        self.table()
            .distrust([(first * each + 1, end * each)].into_iter());
        for extent in Model::extents(&[run(first, end - first)]) {
            (self.holds_data[extent], self.unseen[extent]) = (true, true);
        }
    }

    fn begin(&mut self, number: u128, zeroing: Zeroing, grow: Option<Size>) {
        if zeroing.is_done() {
            return;
        }
        let old = self.busy.insert(number, (zeroing, grow));
        assert!(old.is_none(), "a busy volume refuses");
    }

    fn finish(&mut self) {
        let Some((number, (zeroing, grow))) = self.busy.pop_first() else {
            return;
        };
        for extent in Model::extents(&zeroing.runs) {
            (self.holds_data[extent], self.unseen[extent]) = (false, false);
        }
        if let Some((start, blocks)) = zeroing.tail {
            let each = self.superblock.extents().extent_blocks();
            let volume = self.of(number);
            let mut own = Model::extents(&volume.extents);
            let last = own.nth(usize::try_from(volume.size_blocks / each).unwrap());
            let last = last.expect("it ends in it");
            let end = bytes_u64(last) * each + volume.size_blocks % each;
            assert_eq!(start, end, "nothing below the end of the volume");
            assert_eq!((start + blocks) % each, 0, "up to that of the extent");
            drop(own);
            self.unseen[last] = false;
        }
        let finished = match grow {
            None => self.table().finish_create(uuid(number)),
            Some(size) => self.table().finish_grow(uuid(number), size),
        };
        assert_eq!(finished, Ok(()));
    }

    /// What must hold after every step; `shown` is how many blocks of each volume could be read
    /// before.
    fn check(&self, shown: &BTreeMap<Uuid, u64>) {
        assert_eq!(self.config.check(), Ok(()));
        assert_eq!(self.config.check_against(&self.superblock), Ok(()));
        let space = self.superblock.extents();
        let listed: Vec<usize> = Model::extents(&self.config.unzeroed).collect();
        let used: Vec<usize> = (self.config.volumes.iter())
            .flat_map(|volume| Model::extents(&volume.extents))
            .collect();
        for (extent, holds_data) in self.holds_data.iter().enumerate() {
            let trusted = !listed.contains(&extent) && !used.contains(&extent);
            let holds_data = *holds_data || self.unseen[extent];
            assert!(!(trusted && holds_data), "extent {extent} is not zeroed");
        }
        let each = space.extent_blocks();
        for (uuid, reach) in self.reach() {
            let volume = self.of(uuid.as_u128());
            let from = shown.get(&uuid).copied().unwrap_or(0);
            for (extent, first) in Model::extents(&volume.extents).zip((0..).map(|at| at * each)) {
                let (seen, new) = (first < from, first < reach && first + each > from);
                let old = self.unseen[extent] || (!seen && self.holds_data[extent]);
                assert!(
                    !(reach > from && new && old),
                    "{} shows old data",
                    volume.name
                );
            }
            let own = extents_of(&volume.extents);
            assert!(own >= space.needed(volume.size_blocks));
            assert!(VolumeMap::new(volume, &space).is_some());
        }
    }

    /// How many blocks of each ready volume can be read.
    fn reach(&self) -> BTreeMap<Uuid, u64> {
        let ready = |volume: &&VolumeRecord| volume.state == VolumeState::Ready;
        let volumes = self.config.volumes.iter().filter(ready);
        volumes
            .map(|volume| (volume.uuid, volume.size_blocks))
            .collect()
    }
}

fn any_runs() -> impl Strategy<Value = (Vec<bool>, Vec<ExtentRun>)> {
    proptest::collection::vec(any::<bool>(), 0..40).prop_map(|bits| {
        let one = |(at, _): (u64, &bool)| run(at, 1);
        let set = (0..).zip(&bits).filter(|(_, set)| **set).map(one).collect();
        let joined = array::format::join_runs(set).expect("each once");
        (bits, joined)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_volume_ever_shows_what_another_wrote(
        zeroed in any::<bool>(),
        deeds in proptest::collection::vec((any::<u8>(), any::<u8>(), 1u64..20_000), 1..60),
    ) {
        let mut model = Model::new(zeroed);
        for (deed, choice, blocks) in deeds {
            let shown = model.reach();
            model.step(deed, choice, blocks * 4096);
            model.check(&shown);
        }
    }

    #[test]
    fn runs_are_subtracted_and_met_as_sets_are(
        (ones, one) in any_runs(),
        (others, other) in any_runs(),
    ) {
        let bits = |runs: &[ExtentRun]| {
            let mut bits = vec![false; 40];
            for extent in Model::extents(runs) {
                bits[extent] = true;
            }
            bits
        };
        let padded = |bits: &[bool]| -> Vec<bool> {
            (0..40).map(|at| bits.get(at) == Some(&true)).collect()
        };
        let (ones, others) = (padded(&ones), padded(&others));
        let expected = |keep: fn(bool, bool) -> bool| {
            ones.iter().zip(&others).map(|(one, other)| keep(*one, *other)).collect::<Vec<_>>()
        };
        prop_assert_eq!(bits(&without(&one, &other)), expected(|one, other| one && !other));
        prop_assert_eq!(bits(&both(&one, &other)), expected(|one, other| one && other));
    }

    #[test]
    fn the_pieces_of_a_request_are_its_blocks_one_by_one(
        firsts in Just((0u64..60).collect::<Vec<_>>()).prop_shuffle(),
        count in 1usize..20,
        start in 0u64..90_000,
        blocks in 0u32..20_000,
    ) {
        let space = superblock(256 * MIB).extents();
        let extent = space.extent_blocks();
        let extents: Vec<ExtentRun> = firsts[..count].iter().map(|first| run(*first, 1)).collect();
        let size = extent * u64::try_from(count).unwrap() - 17;
        let map = VolumeMap::new(&volume(extents, size), &space).expect("ready");
        let inside = start + u64::from(blocks) <= size;
        prop_assert_eq!(map.split(start, blocks).is_ok(), inside);
        if let Ok(pieces) = map.split(start, blocks) {
            let mut next = 0;
            for piece in pieces {
                prop_assert_eq!(piece.block_in_request, next);
                prop_assert!(piece.blocks > 0);
                for block in [0, piece.blocks / 2, piece.blocks - 1] {
                    let in_volume = start + u64::from(next + block);
                    let place = firsts[usize::try_from(in_volume / extent).unwrap()];
                    let expected = place * extent + in_volume % extent;
                    prop_assert_eq!(piece.array_block + u64::from(block), expected);
                }
                next += piece.blocks;
            }
            prop_assert_eq!(next, blocks);
        }
    }
}
