//! What a guest is shown: features, limits, and the configuration space of virtio-blk.
//!
//! Formats: Virtual I/O Device (VIRTIO) 1.2, "5.2 Block Device". A profile is fixed when the
//! export is created, so that a guest sees the same device after an engine restart or upgrade;
//! only the size and the cache mode change while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{BlockSize, limits};
use zerocopy::{Immutable, IntoBytes};

/// Bytes of virtio's sector, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of the serial that `VIRTIO_BLK_T_GET_ID` answers.
pub const SERIAL_BYTES: usize = 20;
/// Bytes of the largest configuration read that is answered; SPDK's initiator asks for this many.
pub const CONFIG_BYTES_MAX: usize = 256;
/// Rings that vhost-user can carry: the message that hands over a kick has eight bits for it.
pub const FRONT_END_QUEUES_MAX: u16 = 256;

/// Bits of the virtio feature word that this crate knows.
pub mod feature {
    /// `VIRTIO_BLK_F_SIZE_MAX`: the largest segment is told.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// `VIRTIO_BLK_F_SEG_MAX`: the most segments of a request are told.
    pub const SEG_MAX: u64 = 1 << 2;
    /// `VIRTIO_BLK_F_RO`: writes are refused.
    pub const RO: u64 = 1 << 5;
    /// `VIRTIO_BLK_F_BLK_SIZE`: the logical block size is told.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// `VIRTIO_BLK_F_FLUSH`: there is a cache, and a request that empties it.
    pub const FLUSH: u64 = 1 << 9;
    /// `VIRTIO_BLK_F_TOPOLOGY`: physical block, minimum and optimal request are told.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `VIRTIO_BLK_F_CONFIG_WCE`: the guest may switch the cache mode.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// `VIRTIO_BLK_F_MQ`: the number of queues is told.
    pub const MQ: u64 = 1 << 12;
    /// `VIRTIO_BLK_F_DISCARD`: content may be given up.
    pub const DISCARD: u64 = 1 << 13;
    /// `VIRTIO_BLK_F_WRITE_ZEROES`: zeroes are written without carrying them.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// `VIRTIO_F_INDIRECT_DESC`: a descriptor may point to a table of them.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// `VIRTIO_F_EVENT_IDX`: kicks and calls are asked for by index.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// `VHOST_USER_F_PROTOCOL_FEATURES`: the protocol's own features are negotiated.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// `VIRTIO_F_VERSION_1`: not a legacy device.
    pub const VERSION_1: u64 = 1 << 32;
    /// `VIRTIO_F_RING_PACKED`: the packed ring.
    pub const RING_PACKED: u64 = 1 << 34;
}

/// Whether a guest may change blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may.
    ReadWrite,
    /// It may not: `VIRTIO_BLK_F_RO`.
    ReadOnly,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// When it is done; a flush makes it durable.
    WriteBack,
    /// When it is durable: each write is followed by a flush of ours.
    WriteThrough,
}

/// Limits of discard or write-zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// Most sectors of 512 bytes of one range.
    pub sectors_max: u32,
    /// Most ranges of one request.
    pub ranges_max: u32,
    /// Ranges that begin and end at a multiple of so many sectors release space. Told for discard.
    pub alignment_sectors: u32,
}

/// What a guest is shown, fixed when the export is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name a guest has for the drive it sees, padded with zero bytes.
    pub serial: [u8; SERIAL_BYTES],
    /// The unit of the `block::Request`s that are submitted: the array's block size, or a smaller
    /// one when the guest's is smaller.
    pub block: BlockSize,
    /// The logical block size that the guest is told; not below `block`.
    pub logical_block: BlockSize,
    /// log2(physical block ÷ logical block).
    pub physical_block_exponent: u8,
    /// Smallest request without penalty, in logical blocks.
    pub minimum_io_blocks: u16,
    /// Best request, in logical blocks.
    pub optimal_io_blocks: u32,
    /// Rings, 1 to [`FRONT_END_QUEUES_MAX`].
    pub queues: u16,
    /// Descriptors of a ring at most, 4 to [`limits::QUEUE_SIZE_MAX`].
    pub queue_size: u16,
    /// The cache mode that a guest finds.
    pub cache: CacheMode,
    /// Whether a guest may write.
    pub access: Access,
    /// Limits of discard; `None` when it is not offered.
    pub discard: Option<RangeLimits>,
    /// Limits of write-zeroes; `None` when it is not offered.
    pub write_zeroes: Option<RangeLimits>,
}

/// Why a profile cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongProfile(&'static str);

impl std::fmt::Display for WrongProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WrongProfile {}

impl Profile {
    /// Whether the numbers can be shown to a guest.
    ///
    /// # Errors
    /// Names the first number that cannot.
    pub fn check(&self) -> Result<(), WrongProfile> {
        let wrong = [
            (
                self.queues == 0 || self.queues > FRONT_END_QUEUES_MAX,
                "queues are not between 1 and 256, what vhost-user can carry",
            ),
            (
                self.queue_size < limits::QUEUE_SIZE_MIN
                    || self.queue_size > limits::QUEUE_SIZE_MAX,
                "the queue size is not between 4 and 1024",
            ),
            (
                !self.queue_size.is_power_of_two(),
                "the queue size is not a power of two",
            ),
            (
                self.logical_block.bytes() < self.block.bytes(),
                "the logical block is smaller than a block of the array",
            ),
            (
                self.physical_block_exponent > 7,
                "the physical block is over 128 logical blocks",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(WrongProfile(why)),
            None => Ok(()),
        }
    }

    /// The feature word that is offered.
    #[must_use]
    pub fn features(&self) -> u64 {
        let mut features = feature::SIZE_MAX
            | feature::SEG_MAX
            | feature::BLK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::CONFIG_WCE
            | feature::MQ
            | feature::INDIRECT_DESC
            | feature::EVENT_IDX
            | feature::PROTOCOL_FEATURES
            | feature::VERSION_1
            | feature::RING_PACKED;
        if self.access == Access::ReadOnly {
            features |= feature::RO;
        }
        if self.access == Access::ReadWrite && self.discard.is_some() {
            features |= feature::DISCARD;
        }
        if self.access == Access::ReadWrite && self.write_zeroes.is_some() {
            features |= feature::WRITE_ZEROES;
        }
        features
    }

    /// Most data segments of one request: a ring less the header's and the status's descriptor.
    #[must_use]
    pub fn segments_max(&self) -> u32 {
        u32::from(self.queue_size) - 2
    }

    /// Bytes of the largest segment: so that segments × bytes stays within the largest request.
    #[must_use]
    pub fn segment_bytes_max(&self) -> u32 {
        let most = limits::REQUEST_BYTES_MAX / u64::from(self.segments_max());
        let power = most.checked_ilog2().unwrap_or(0);
        u32::try_from(1u64 << power).expect("a request is below 4 GiB")
    }

    /// The configuration space at a size and cache mode.
    #[must_use]
    pub fn configuration(&self, sectors: u64, cache: CacheMode) -> Configuration {
        let none = RangeLimits {
            sectors_max: 0,
            ranges_max: 0,
            alignment_sectors: 0,
        };
        let discard = self.discard.unwrap_or(none);
        let zeroes = self.write_zeroes.unwrap_or(none);
        Configuration {
            capacity: sectors.to_le(),
            size_max: self.segment_bytes_max().to_le(),
            seg_max: self.segments_max().to_le(),
            geometry: [0; 4],
            blk_size: u32::try_from(self.logical_block.bytes())
                .expect("a block is 512 or 4096 bytes")
                .to_le(),
            physical_block_exp: self.physical_block_exponent,
            alignment_offset: 0,
            min_io_size: self.minimum_io_blocks.to_le(),
            opt_io_size: self.optimal_io_blocks.to_le(),
            writeback: u8::from(cache == CacheMode::WriteBack),
            unused0: 0,
            num_queues: self.queues.to_le(),
            max_discard_sectors: discard.sectors_max.to_le(),
            max_discard_seg: discard.ranges_max.to_le(),
            discard_sector_alignment: discard.alignment_sectors.to_le(),
            max_write_zeroes_sectors: zeroes.sectors_max.to_le(),
            max_write_zeroes_seg: zeroes.ranges_max.to_le(),
            write_zeroes_may_unmap: u8::from(self.write_zeroes.is_some()),
            unused1: [0; 3],
            max_secure_erase_sectors: 0,
        }
    }
}

/// `struct virtio_blk_config` up to write-zeroes and one word more, little-endian as the guest
/// reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
pub struct Configuration {
    capacity: u64,
    size_max: u32,
    seg_max: u32,
    geometry: [u8; 4],
    blk_size: u32,
    physical_block_exp: u8,
    alignment_offset: u8,
    min_io_size: u16,
    opt_io_size: u32,
    writeback: u8,
    unused0: u8,
    num_queues: u16,
    max_discard_sectors: u32,
    max_discard_seg: u32,
    discard_sector_alignment: u32,
    max_write_zeroes_sectors: u32,
    max_write_zeroes_seg: u32,
    write_zeroes_may_unmap: u8,
    unused1: [u8; 3],
    /// Not offered; here so that nothing is padding.
    max_secure_erase_sectors: u32,
}

/// Where `writeback` lies: the only byte that a guest may write.
pub const WRITEBACK_OFFSET: u32 = 32;

const _: () = {
    assert!(size_of::<Configuration>() == 64 && align_of::<Configuration>() == 8);
    assert!(std::mem::offset_of!(Configuration, blk_size) == 20);
    assert!(std::mem::offset_of!(Configuration, opt_io_size) == 28);
    assert!(std::mem::offset_of!(Configuration, writeback) == 32);
    assert!(std::mem::offset_of!(Configuration, num_queues) == 34);
    assert!(std::mem::offset_of!(Configuration, max_discard_sectors) == 36);
    assert!(std::mem::offset_of!(Configuration, write_zeroes_may_unmap) == 56);
};

/// A profile and what changes while it is shown. Shared by a front-end and its queues.
#[derive(Debug)]
pub struct Shown {
    /// What does not change.
    pub profile: Profile,
    sectors: Arc<AtomicU64>,
    write_through: AtomicBool,
}

impl Shown {
    /// `profile` at a size in sectors of 512 bytes.
    #[must_use]
    pub fn new(profile: Profile, sectors: u64) -> Shown {
        let write_through = profile.cache == CacheMode::WriteThrough;
        Shown {
            profile,
            sectors: Arc::new(AtomicU64::new(sectors)),
            write_through: AtomicBool::new(write_through),
        }
    }

    /// The same for another front-end: one size, but a cache mode of its own.
    #[must_use]
    pub fn for_front_end(&self) -> Shown {
        Shown {
            profile: self.profile.clone(),
            sectors: Arc::clone(&self.sectors),
            write_through: AtomicBool::new(self.profile.cache == CacheMode::WriteThrough),
        }
    }

    /// The size in sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed)
    }

    /// Changes the size; requests are checked against it from now on.
    pub fn set_sectors(&self, sectors: u64) {
        self.sectors.store(sectors, Ordering::Relaxed);
    }

    /// The cache mode that the configuration space shows.
    #[must_use]
    pub fn cache(&self) -> CacheMode {
        if self.write_through.load(Ordering::Relaxed) {
            CacheMode::WriteThrough
        } else {
            CacheMode::WriteBack
        }
    }

    /// Changes the cache mode.
    pub fn set_cache(&self, cache: CacheMode) {
        self.write_through
            .store(cache == CacheMode::WriteThrough, Ordering::Relaxed);
    }

    /// The cache mode that holds for a driver with these features: one that neither flushes nor
    /// switches the mode believes that an acknowledged write is durable (VIRTIO 1.2, 5.2.6.2).
    #[must_use]
    pub fn cache_for(&self, features: u64) -> CacheMode {
        if features & feature::CONFIG_WCE != 0 {
            self.cache()
        } else if features & feature::FLUSH != 0 {
            CacheMode::WriteBack
        } else {
            CacheMode::WriteThrough
        }
    }

    /// Bytes `offset..offset + length` of the configuration space; zeroes beyond its end.
    /// `None` when more is asked than anybody may.
    #[must_use]
    pub fn read_configuration(&self, offset: u32, length: u32) -> Option<Vec<u8>> {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        if offset > CONFIG_BYTES_MAX || length > CONFIG_BYTES_MAX - offset {
            return None;
        }
        let configuration = self.profile.configuration(self.sectors(), self.cache());
        let mut bytes = [0u8; CONFIG_BYTES_MAX];
        bytes[..size_of::<Configuration>()].copy_from_slice(configuration.as_bytes());
        Some(bytes[offset..offset + length].to_vec())
    }

    /// Takes a guest's write to the configuration space. Only the cache mode can be written;
    /// other bytes are ignored, as a real device does.
    pub fn write_configuration(&self, offset: u32, bytes: &[u8]) {
        let written = WRITEBACK_OFFSET
            .checked_sub(offset)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| bytes.get(skip));
        match written {
            Some(0) => self.set_cache(CacheMode::WriteThrough),
            Some(_) => self.set_cache(CacheMode::WriteBack),
            None => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn profile() -> Profile {
        Profile {
            serial: *b"0123456789abcdef0123",
            block: BlockSize::B512,
            logical_block: BlockSize::B512,
            physical_block_exponent: 3,
            minimum_io_blocks: 128,
            optimal_io_blocks: 512,
            queues: 4,
            queue_size: 256,
            cache: CacheMode::WriteBack,
            access: Access::ReadWrite,
            discard: Some(RangeLimits {
                sectors_max: 1 << 15,
                ranges_max: 16,
                alignment_sectors: 8,
            }),
            write_zeroes: Some(RangeLimits {
                sectors_max: 1 << 15,
                ranges_max: 16,
                alignment_sectors: 8,
            }),
        }
    }

    #[test]
    fn configuration_has_the_layout_of_the_standard() {
        let shown = Shown::new(profile(), 0x1122_3344_5566);
        let bytes = shown.read_configuration(0, 60).unwrap();
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes[..8], 0x1122_3344_5566u64.to_le_bytes());
        assert_eq!(u32_at(8), 65536, "size_max");
        assert_eq!(u32_at(12), 254, "seg_max");
        assert_eq!(u32_at(20), 512, "blk_size");
        assert_eq!((bytes[24], bytes[25]), (3, 0), "physical block");
        assert_eq!(u16_at(26), 128, "min_io_size");
        assert_eq!(u32_at(28), 512, "opt_io_size");
        assert_eq!(bytes[32], 1, "writeback");
        assert_eq!(u16_at(34), 4, "num_queues");
        assert_eq!((u32_at(36), u32_at(40), u32_at(44)), (1 << 15, 16, 8));
        assert_eq!((u32_at(48), u32_at(52)), (1 << 15, 16));
        assert_eq!(bytes[56], 1, "write_zeroes_may_unmap");
    }

    #[test]
    fn any_size_up_to_256_is_answered_and_padded_with_zeroes() {
        let shown = Shown::new(profile(), 8);
        for length in 1..=256u32 {
            let bytes = shown.read_configuration(0, length).unwrap();
            assert_eq!(bytes.len(), usize::try_from(length).unwrap());
            assert!(bytes.iter().skip(64).all(|byte| *byte == 0));
        }
        assert_eq!(
            shown.read_configuration(8, 4).unwrap(),
            65536u32.to_le_bytes()
        );
        assert_eq!(shown.read_configuration(0, 257), None);
        assert_eq!(shown.read_configuration(256, 1), None);
        assert_eq!(shown.read_configuration(u32::MAX, u32::MAX), None);
    }

    #[test]
    fn only_the_cache_mode_can_be_written() {
        let shown = Shown::new(profile(), 8);
        let before = shown.read_configuration(0, 256);
        shown.write_configuration(0, &[0xFF; 32]);
        shown.write_configuration(33, &[0; 200]);
        assert_eq!(shown.read_configuration(0, 256), before);
        shown.write_configuration(32, &[0]);
        assert_eq!(shown.cache(), CacheMode::WriteThrough);
        shown.write_configuration(30, &[0, 0, 1, 0]);
        assert_eq!(shown.cache(), CacheMode::WriteBack);
    }

    #[test]
    fn a_driver_that_cannot_flush_gets_write_through() {
        let shown = Shown::new(profile(), 8);
        assert_eq!(shown.cache_for(0), CacheMode::WriteThrough);
        assert_eq!(shown.cache_for(feature::FLUSH), CacheMode::WriteBack);
        shown.set_cache(CacheMode::WriteThrough);
        assert_eq!(shown.cache_for(feature::FLUSH), CacheMode::WriteBack);
        assert_eq!(
            shown.cache_for(feature::FLUSH | feature::CONFIG_WCE),
            CacheMode::WriteThrough
        );
    }

    #[test]
    fn segments_times_bytes_stays_within_the_largest_request() {
        for queue_size in [4, 16, 64, 128, 256, 512, 1024] {
            let profile = Profile {
                queue_size,
                ..profile()
            };
            assert_eq!(profile.check(), Ok(()));
            let most = u64::from(profile.segments_max()) * u64::from(profile.segment_bytes_max());
            assert!(most <= limits::REQUEST_BYTES_MAX, "queue size {queue_size}");
            assert!(
                most > limits::REQUEST_BYTES_MAX / 2,
                "queue size {queue_size}"
            );
        }
    }

    #[test]
    fn numbers_that_cannot_be_shown_are_refused() {
        for wrong in [
            Profile {
                queues: 0,
                ..profile()
            },
            Profile {
                queues: 257,
                ..profile()
            },
            Profile {
                queue_size: 2,
                ..profile()
            },
            Profile {
                queue_size: 2048,
                ..profile()
            },
            Profile {
                queue_size: 100,
                ..profile()
            },
            Profile {
                block: BlockSize::B4096,
                ..profile()
            },
            Profile {
                physical_block_exponent: 8,
                ..profile()
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
