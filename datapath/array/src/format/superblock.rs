//! The superblock: identity and layout of one member, written when it becomes one.

use units::{BlockSize, MemberIndex, Update};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::extent::ExtentSpace;
use super::head::{
    Features, FormatError, HEAD_BYTES, Head, RawFeatures, check_features, open, seal,
};
use super::layout::{Area, FIRST_SUPERBLOCK, Layout, SUPERBLOCK_DISTANCE};
use crate::geometry::{Geometry, GeometryParameters, Level};
use crate::log::LogSpace;
use crate::regions::RegionSpace;

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;

const KIND: [u8; 8] = *b"GARBOARD";
/// Left-symmetric as in Linux md for levels with parity, none for mirrors and level 0.
const ROTATION_LEFT_SYMMETRIC: u16 = 1;

/// Who made a member, and when; for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// The host's own id.
    pub host: u128,
    /// Seconds since 1970, UTC.
    pub seconds: u64,
}

/// Sector sizes of a drive when it was formatted, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sectors {
    /// What it is addressed in.
    pub logical: u32,
    /// What it writes at once.
    pub physical: u32,
}

/// Identity and layout of one member. Never changed after formatting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: Uuid,
    /// This member; new each time a drive becomes one.
    pub member_uuid: Uuid,
    /// Its place.
    pub member: MemberIndex,
    /// The array's update when it was formatted.
    pub update: Update,
    /// Features of the layout.
    pub features: Features,
    /// The drive's sectors.
    pub sectors: Sectors,
    /// Where everything lies.
    pub layout: Layout,
    /// The fixed numbers of the array.
    pub geometry: Geometry,
    /// Stripes of one extent.
    pub extent_stripes: u32,
    /// Stripes of one region of the region map; a power of two.
    pub region_stripes: u32,
    /// Who and when.
    pub created: Created,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawArea {
    offset: U64,
    length: U64,
}

/// Everything after the head.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawSuperblock {
    features: RawFeatures,
    member_uuid: [u8; 16],
    block_bytes: U32,
    logical_sector: U32,
    physical_sector: U32,
    region_stripes: U32,
    member_bytes: U64,
    config: [RawArea; 2],
    region_map: RawArea,
    log: RawArea,
    bad_ranges: RawArea,
    checksums: RawArea,
    snapshots: RawArea,
    data: RawArea,
    level: U16,
    data_chunks: u8,
    parity_chunks: u8,
    groups: U16,
    rotation: U16,
    chunk_bytes: U32,
    extent_stripes: U32,
    created_host: [u8; 16],
    created_seconds: U64,
}

const _: () = assert!(
    HEAD_BYTES + size_of::<RawSuperblock>() == 280,
    "part of the on-disk format"
);
const _: () = assert!(HEAD_BYTES + std::mem::offset_of!(RawSuperblock, data) == 224);
const _: () = assert!(HEAD_BYTES + std::mem::offset_of!(RawSuperblock, chunk_bytes) == 248);

impl Superblock {
    /// The bytes of all four copies.
    ///
    /// # Panics
    /// When the fields contradict each other, so that nobody could read it again.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let raw = RawSuperblock::from(self);
        bytes[HEAD_BYTES..][..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        let head = Head {
            kind: KIND,
            array: self.array,
            member: self.member,
            update: self.update,
        };
        seal(&mut bytes, head);
        assert_eq!(
            Superblock::decode(&bytes).as_ref(),
            Ok(self),
            "made a superblock that nobody can read"
        );
        bytes
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// When it is not a superblock, is damaged, contradicts itself or is from the future.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let (head, record) = open(bytes, KIND)?;
        let invalid = FormatError::Invalid;
        let (raw, _) = RawSuperblock::read_from_prefix(&record[HEAD_BYTES..])
            .map_err(|_| invalid("too short for a superblock"))?;
        if record.len() != SUPERBLOCK_BYTES {
            return Err(invalid("length of a superblock"));
        }
        let features = Features::from(raw.features);
        check_features(features, head.array)?;
        let block =
            BlockSize::from_bytes(u64::from(raw.block_bytes.get())).ok_or(invalid("block size"))?;
        let layout = Layout::from(&raw);
        layout.check(block).map_err(invalid)?;
        let geometry = raw.geometry(&layout, block)?;
        let extent_stripes = raw.extent_stripes.get();
        ExtentSpace::with_stripes(&geometry, extent_stripes).ok_or(invalid("extent size"))?;
        let region_stripes = raw.region_stripes.get();
        let map = layout.region_map;
        RegionSpace::new(&geometry, region_stripes, (map.offset, map.length))
            .ok_or(invalid("region size"))?;
        if LogSpace::new(&geometry, (layout.log.offset, layout.log.length)).slots() < 2 {
            return Err(invalid("log area"));
        }
        if head.member.at() >= geometry.members() {
            return Err(invalid("member index"));
        }
        Ok(Superblock {
            array: head.array,
            member_uuid: Uuid::from_bytes(raw.member_uuid),
            member: head.member,
            update: head.update,
            features,
            sectors: Sectors {
                logical: raw.logical_sector.get(),
                physical: raw.physical_sector.get(),
            },
            layout,
            geometry,
            extent_stripes,
            region_stripes,
            created: Created {
                host: u128::from_le_bytes(raw.created_host),
                seconds: raw.created_seconds.get(),
            },
        })
    }

    /// Where the four copies lie: A and B near the start, A' and B' near the end of the member.
    ///
    /// With a drive's rounded size ([`Layout::member_bytes`]) this is where to look first; the
    /// end copies of a drive that is larger than its member are found by the member sizes that
    /// other members of its array name.
    ///
    /// # Panics
    /// When the member is smaller than 1 MiB.
    #[must_use]
    pub fn offsets(member_bytes: u64) -> [u64; 4] {
        let tail = member_bytes
            .checked_sub(FIRST_SUPERBLOCK)
            .expect("a member is not smaller than its superblocks");
        [
            FIRST_SUPERBLOCK,
            FIRST_SUPERBLOCK + SUPERBLOCK_DISTANCE,
            tail,
            tail + SUPERBLOCK_DISTANCE,
        ]
    }

    /// Where the copies near the start lie, which are at the same place on every member.
    #[must_use]
    pub fn head_offsets() -> [u64; 2] {
        [FIRST_SUPERBLOCK, FIRST_SUPERBLOCK + SUPERBLOCK_DISTANCE]
    }

    /// How the array is cut into extents.
    ///
    /// # Panics
    /// When [`Superblock::extent_stripes`] is 0, which no decoded superblock has.
    #[must_use]
    pub fn extents(&self) -> ExtentSpace {
        ExtentSpace::with_stripes(&self.geometry, self.extent_stripes)
            .expect("an extent has stripes")
    }

    /// Whether two superblocks describe the same array: all but what is each member's own.
    #[must_use]
    pub fn agrees_with(&self, other: &Superblock) -> bool {
        self.array == other.array
            && self.layout == other.layout
            && self.geometry == other.geometry
            && self.extent_stripes == other.extent_stripes
            && self.region_stripes == other.region_stripes
    }
}

impl RawSuperblock {
    fn geometry(&self, layout: &Layout, block: BlockSize) -> Result<Geometry, FormatError> {
        let invalid = FormatError::Invalid;
        if self.rotation.get() != ROTATION_LEFT_SYMMETRIC {
            return Err(invalid("rotation"));
        }
        let level = level_of(self.level.get()).ok_or(invalid("level"))?;
        let (data, parity) = (
            usize::from(self.data_chunks),
            usize::from(self.parity_chunks),
        );
        let geometry = Geometry::new(GeometryParameters {
            level,
            members: (data + parity) * usize::from(self.groups.get()),
            parity: Some(parity),
            group_size: Some(data + parity),
            chunk_bytes: u64::from(self.chunk_bytes.get()),
            block,
            member_data_blocks: layout.data.length / block.bytes(),
        })
        .map_err(|_| invalid("geometry"))?;
        let agrees = geometry.data() == data && geometry.groups() == usize::from(self.groups.get());
        agrees.then_some(geometry).ok_or(invalid("geometry"))
    }
}

impl From<&Superblock> for RawSuperblock {
    fn from(superblock: &Superblock) -> RawSuperblock {
        let (layout, geometry) = (&superblock.layout, &superblock.geometry);
        let fits = "a geometry is within limits";
        let block_bytes = u32::try_from(geometry.block_size().bytes()).expect(fits);
        RawSuperblock {
            features: superblock.features.into(),
            member_uuid: superblock.member_uuid.into_bytes(),
            block_bytes: block_bytes.into(),
            logical_sector: superblock.sectors.logical.into(),
            physical_sector: superblock.sectors.physical.into(),
            region_stripes: superblock.region_stripes.into(),
            member_bytes: layout.member_bytes.into(),
            config: layout.config.map(RawArea::from),
            region_map: layout.region_map.into(),
            log: layout.log.into(),
            bad_ranges: layout.bad_ranges.into(),
            checksums: layout.checksums.into(),
            snapshots: layout.snapshots.into(),
            data: layout.data.into(),
            level: level_code(geometry.level()).into(),
            data_chunks: u8::try_from(geometry.data()).expect(fits),
            parity_chunks: u8::try_from(geometry.parity()).expect(fits),
            groups: u16::try_from(geometry.groups()).expect(fits).into(),
            rotation: ROTATION_LEFT_SYMMETRIC.into(),
            chunk_bytes: u32::try_from(geometry.chunk_bytes()).expect(fits).into(),
            extent_stripes: superblock.extent_stripes.into(),
            created_host: superblock.created.host.to_le_bytes(),
            created_seconds: superblock.created.seconds.into(),
        }
    }
}

impl From<&RawSuperblock> for Layout {
    fn from(raw: &RawSuperblock) -> Layout {
        Layout {
            member_bytes: raw.member_bytes.get(),
            config: raw.config.map(Area::from),
            region_map: raw.region_map.into(),
            log: raw.log.into(),
            bad_ranges: raw.bad_ranges.into(),
            checksums: raw.checksums.into(),
            snapshots: raw.snapshots.into(),
            data: raw.data.into(),
        }
    }
}

impl From<Area> for RawArea {
    fn from(area: Area) -> RawArea {
        RawArea {
            offset: area.offset.into(),
            length: area.length.into(),
        }
    }
}

impl From<RawArea> for Area {
    fn from(raw: RawArea) -> Area {
        Area {
            offset: raw.offset.get(),
            length: raw.length.get(),
        }
    }
}

fn level_code(level: Level) -> u16 {
    match level {
        Level::L0 => 0,
        Level::L1 => 1,
        Level::L5 => 5,
        Level::L6 => 6,
        Level::L7 => 7,
        Level::L10 => 10,
        Level::L50 => 50,
        Level::L60 => 60,
        Level::L70 => 70,
        Level::Nm => 256,
    }
}

fn level_of(code: u16) -> Option<Level> {
    Level::ALL
        .into_iter()
        .find(|level| level_code(*level) == code)
}
