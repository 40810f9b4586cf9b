//! What somebody left on a drive: partition tables, file systems, members of other arrays.
//!
//! A small table of places and magic bytes, written from the published formats (named at each
//! entry). It errs on the side of finding something: a drive is refused or wiped on purpose, never
//! by oversight. What does not live here: reading what was found.

use std::fmt;
use std::io;

/// The first bytes of every superblock of ours.
pub const GARBOARD_MAGIC: [u8; 8] = *b"GARBOARD";

/// Where our superblocks near the start of a drive begin, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 1 << 20;

/// Bytes at both ends of a drive that [`crate::Drive::wipe`] clears. Everything that
/// [`crate::Drive::signature`] looks at lies inside.
pub const WIPE_BYTES: u64 = 4 << 20;

/// Where our superblocks near the end of a drive begin: in the last whole MiB (the size rounded
/// down to 1 MiB, less 1 MiB). None when the drive is too small to have both (below 3 MiB).
#[must_use]
pub fn superblock_end_offset(size_bytes: u64) -> Option<u64> {
    const MIB: u64 = 1 << 20;
    let end = (size_bytes / MIB * MIB).checked_sub(MIB)?;
    (end > SUPERBLOCK_OFFSET).then_some(end)
}

/// Something known, found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is, for people: `ext4`, `GPT partition table`, `garboard`.
    pub kind: String,
    /// Where its magic is, in bytes from the start of the drive.
    pub offset: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

/// What a member of an array of ours is called.
pub const OWN_SIGNATURE: &str = "garboard member";

/// Bytes kept from each end.
const WINDOW: u64 = 2 << 20;

/// The two ends of a drive.
struct Ends {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// The bytes at `offset`, if they lie in one of the two windows.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let cut = |window: &'_ [u8], begin: u64| {
            let from = usize::try_from(offset.checked_sub(begin)?).ok()?;
            let end = from.checked_add(length)?;
            (end <= window.len()).then_some((from, end))
        };
        if let Some((from, end)) = cut(&self.head, 0) {
            return Some(&self.head[from..end]);
        }
        let begin = self.size - units::bytes_u64(self.tail.len());
        let (from, end) = cut(&self.tail, begin)?;
        Some(&self.tail[from..end])
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }

    fn le_u32(&self, offset: u64) -> Option<u32> {
        let bytes = self.at(offset, 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// The offset so many bytes before the end, rounded down to `align`.
    fn before_end(&self, bytes: u64, align: u64) -> Option<u64> {
        Some(self.size.checked_sub(bytes)? / align * align)
    }
}

/// Whether a member's superblock is something known, or only what others write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Anybody,
    Others,
}

/// Looks for anything known at both ends of a drive of `size` bytes.
///
/// # Errors
/// Those of `read`, which fills a buffer from an offset; both are multiples of 4096 wherever the
/// size of the drive is.
pub(crate) fn find(
    of: Of,
    size: u64,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Signature>> {
    let mut head = vec![0; units::bytes_usize(size.min(WINDOW))];
    read(0, &mut head)?;
    let begin = size.saturating_sub(WINDOW) / 4096 * 4096;
    let mut tail = vec![0; units::bytes_usize(size - begin)];
    read(begin, &mut tail)?;
    let ends = Ends { size, head, tail };
    let finders = [ours, members, fixed, ext, swap, zfs, partitions];
    let finders = match of {
        Of::Anybody => &finders[..],
        Of::Others => &finders[1..],
    };
    let found = finders.iter().find_map(|finder| finder(&ends));
    Ok(found.map(|(kind, offset)| Signature {
        kind: kind.to_owned(),
        offset,
    }))
}

type Found = Option<(&'static str, u64)>;

fn ours(ends: &Ends) -> Found {
    let places = [Some(SUPERBLOCK_OFFSET), superblock_end_offset(ends.size)];
    let found = places.into_iter().flatten();
    let found = found.filter(|at| ends.has(*at, &GARBOARD_MAGIC)).min()?;
    Some((OWN_SIGNATURE, found))
}

/// Members of other arrays whose place depends on the size of the drive.
fn members(ends: &Ends) -> Found {
    // linux/raid/md_p.h: MD_SB_MAGIC, little-endian here; 0.90 machines wrote their own order.
    const MD: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    const MD_SWAPPED: [u8; 4] = 0xa92b_4efc_u32.to_be_bytes();
    let old = ends.before_end(64 << 10, 64 << 10);
    let end = ends.before_end(8 << 10, 4 << 10);
    let places = [
        ("md member (0.90)", old, &MD),
        ("md member (0.90)", old, &MD_SWAPPED),
        ("md member (1.0)", end, &MD),
        ("md member (1.1)", Some(0), &MD),
        ("md member (1.2)", Some(4096), &MD),
    ];
    let md = places.into_iter().find_map(|(kind, place, magic)| {
        let place = place?;
        ends.has(place, magic).then_some((kind, place))
    });
    md.or_else(|| drbd(ends)).or_else(|| firmware(ends))
}

/// drbd's `drbd_int.h`: the last 4 KiB block begins with some 64-bit numbers, its magic at 60.
fn drbd(ends: &Ends) -> Found {
    let block = ends.before_end(4096, 4096)?;
    let magics: [u32; 3] = [0x8374_0267, 0x8374_026b, 0x8374_026d];
    let found = magics
        .iter()
        .any(|magic| ends.has(block + 60, &magic.to_be_bytes()));
    found.then_some(("DRBD metadata", block + 60))
}

/// What controllers' firmware writes at the end: SNIA DDF's header in the last block, Intel's in
/// the second last.
fn firmware(ends: &Ends) -> Found {
    [512, 4096].into_iter().find_map(|block| {
        let last = ends.before_end(block, 1)?;
        let before = ends.before_end(2 * block, 1)?;
        if ends.has(last, &[0xde, 0x11, 0xde, 0x11]) {
            return Some(("DDF RAID member", last));
        }
        let intel = ends.has(before, b"Intel Raid ISM Cfg Sig. ");
        intel.then_some(("Intel RAID member", before))
    })
}

/// Magic bytes at fixed places.
const FIXED: &[(&str, u64, &[u8])] = &[
    // spdk/lib bdev_raid: RAID_BDEV_SB_SIG.
    ("SPDK RAID member", 0, b"SPDKRAID"),
    // spdk/lib blob: SPDK_BLOB_SIG.
    ("SPDK blobstore", 0, b"SPDKBLOB"),
    // cryptsetup's LUKS1 and LUKS2 on-disk formats; the second header of LUKS2 has another magic.
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LUKS", 0x4000, b"SKUL\xba\xbe"),
    // bluestore_types: the label's first line.
    ("Ceph BlueStore", 0, b"bluestore block device\n"),
    // xfs_format.h: XFS_SB_MAGIC.
    ("xfs", 0, b"XFSB"),
    // btrfs on-disk format: superblock at 64 KiB, magic 64 bytes in.
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    // lib/label: LABELONE in one of the first four sectors.
    ("LVM2 physical volume", 0, b"LABELONE"),
    ("LVM2 physical volume", 512, b"LABELONE"),
    ("LVM2 physical volume", 1024, b"LABELONE"),
    ("LVM2 physical volume", 1536, b"LABELONE"),
    // bcache.h: BCACHE_MAGIC, 24 bytes into the sector at 4 KiB.
    (
        "bcache",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    // bcachefs_format.h: BCHFS_MAGIC, the same place.
    (
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    // ECMA-119: volume descriptor at sector 16; UDF's sequence begins there too.
    ("iso9660", 0x8001, b"CD001"),
    ("UDF", 0x8001, b"BEA01"),
    // f2fs_fs.h: F2FS_SUPER_MAGIC 1 KiB in.
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    // erofs and squashfs, which are images people keep on drives.
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("squashfs", 0, b"hsqs"),
    // fs/gfs2 and fs/ocfs2.
    ("gfs2", 0x1_0000, b"\x01\x16\x19\x70"),
    ("ocfs2", 0x2000, b"OCFSV2"),
    ("VMware VMFS", 0x10_0000, b"\x0d\xd0\x01\xc0"),
    // dm-verity, dm-integrity.
    ("dm-verity", 0, b"verity\0\0"),
    ("dm-integrity", 0, b"integrt\0"),
    // fs.h of Microsoft's boot sectors: the name field.
    ("NTFS", 3, b"NTFS    "),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("exFAT", 3, b"EXFAT   "),
    ("FAT", 82, b"FAT32   "),
    ("FAT", 54, b"FAT16   "),
    ("FAT", 54, b"FAT12   "),
    ("FAT", 54, b"FAT     "),
];

fn fixed(ends: &Ends) -> Found {
    let mut table = FIXED.iter();
    let (kind, offset, _) = table.find(|(_, offset, magic)| ends.has(*offset, magic))?;
    Some((kind, *offset))
}

/// fs/ext4/ext4.h: magic 0xEF53 at 1 KiB + 56; the features tell the generations apart.
fn ext(ends: &Ends) -> Found {
    const HAS_JOURNAL: u32 = 0x4;
    /// Everything in the incompatible features that ext3 does not know.
    const BEYOND_EXT3: u32 = !0x16;
    const SUPERBLOCK: u64 = 1024;
    if !ends.has(SUPERBLOCK + 56, &[0x53, 0xef]) {
        return None;
    }
    let compatible = ends.le_u32(SUPERBLOCK + 92)?;
    let incompatible = ends.le_u32(SUPERBLOCK + 96)?;
    let kind = if incompatible & BEYOND_EXT3 != 0 {
        "ext4"
    } else if compatible & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    };
    Some((kind, SUPERBLOCK + 56))
}

/// linux/swap.h: the magic ends the first page, of whatever size the machine's pages were.
fn swap(ends: &Ends) -> Found {
    let pages = [4096, 8192, 16384, 65536];
    let places = pages.map(|page| page - 10);
    let found = places
        .into_iter()
        .find(|at| ends.has(*at, b"SWAPSPACE2") || ends.has(*at, b"SWAP-SPACE"))?;
    Some(("swap", found))
}

/// OpenZFS's `uberblock_impl.h`: four labels of 256 KiB, two at each end, each with a ring of
/// uberblocks in its second half that begin with UBERBLOCK_MAGIC.
fn zfs(ends: &Ends) -> Found {
    const LABEL: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = ends.size / LABEL * LABEL;
    let labels = [
        Some(0),
        Some(LABEL),
        end.checked_sub(2 * LABEL),
        end.checked_sub(LABEL),
    ];
    for label in labels.into_iter().flatten() {
        for at in (label + LABEL / 2..label + LABEL).step_by(1 << 10) {
            if ends.has(at, &MAGIC.to_le_bytes()) || ends.has(at, &MAGIC.to_be_bytes()) {
                return Some(("ZFS", at));
            }
        }
    }
    None
}

/// Partition tables last: a file system's boot sector ends like an MBR.
fn partitions(ends: &Ends) -> Found {
    for block in [512, 4096] {
        // UEFI: header in the second block, its copy in the last.
        let copy = ends.before_end(block, 1);
        for at in [Some(block), copy].into_iter().flatten() {
            if ends.has(at, b"EFI PART") {
                return Some(("GPT partition table", at));
            }
        }
    }
    let entries = ends.at(446, 64)?;
    let used = entries.chunks(16).any(|entry| entry[4] != 0);
    let sane = entries.chunks(16).all(|entry| entry[0] & 0x7f == 0);
    if ends.has(510, &[0x55, 0xaa]) {
        let kind = if used && sane {
            "MBR partition table"
        } else {
            "boot sector"
        };
        return Some((kind, 510));
    }
    None
}

#[cfg(test)]
mod tests;
