//! Every signature, from the few bytes that make it; and drives that carry none.

use std::sync::Arc;

use units::Size;

use super::*;
use crate::{Drive, DriveSpec};

const MIB: u64 = 1 << 20;
/// Not a multiple of 64 KiB or 1 MiB, so that rounding shows.
const SIZE: u64 = 9 * MIB + 20_480;

fn drive(size: u64) -> Arc<Drive> {
    Drive::open(&DriveSpec::Memory { size: Size(size) }).unwrap()
}

/// Puts bytes anywhere, leaving the rest of their block as it is.
fn put(drive: &Drive, offset: u64, bytes: &[u8]) {
    let first = offset / 512 * 512;
    let at = units::bytes_usize(offset - first);
    let mut blocks = vec![0; (at + bytes.len()).next_multiple_of(512)];
    drive.read(first, &mut blocks).unwrap();
    blocks[at..at + bytes.len()].copy_from_slice(bytes);
    drive.write(first, &blocks).unwrap();
}

fn kind_and_place(drive: &Drive) -> Option<(String, u64)> {
    let found = drive.signature().unwrap()?;
    Some((found.kind, found.offset))
}

/// Bytes and where they go.
type Pieces = Vec<(u64, Vec<u8>)>;

/// Each signature: what it is called, where its magic is found, and the bytes that make it.
#[allow(clippy::too_many_lines, reason = "a table")]
fn known() -> Vec<(&'static str, u64, Pieces)> {
    let md = vec![0xfc, 0x4e, 0x2b, 0xa9];
    let md_end = (SIZE - 8192) / 4096 * 4096;
    let md_old = SIZE / 65536 * 65536 - 65536;
    let zfs = vec![0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];
    let zfs_end = SIZE / (256 << 10) * (256 << 10) - (128 << 10);
    let ext = |compatible: u8, incompatible: u16| {
        let incompatible = incompatible.to_le_bytes().to_vec();
        vec![
            (1080, vec![0x53, 0xef]),
            (1116, vec![compatible]),
            (1120, incompatible),
        ]
    };
    let mut mbr_entry = vec![0x80, 0, 2, 0, 0x83, 0, 0, 0];
    mbr_entry.resize(16, 1);
    let boot = (510, vec![0x55, 0xaa]);
    let at = |offset: u64, bytes: &[u8]| vec![(offset, bytes.to_vec())];
    vec![
        ("garboard member", MIB, at(MIB, b"GARBOARD")),
        ("garboard member", 8 * MIB, at(8 * MIB, b"GARBOARD")),
        ("GPT partition table", 512, at(512, b"EFI PART")),
        ("GPT partition table", 4096, at(4096, b"EFI PART")),
        (
            "GPT partition table",
            SIZE - 512,
            at(SIZE - 512, b"EFI PART"),
        ),
        (
            "GPT partition table",
            SIZE - 4096,
            at(SIZE - 4096, b"EFI PART"),
        ),
        (
            "MBR partition table",
            510,
            vec![(446, mbr_entry), boot.clone()],
        ),
        ("boot sector", 510, vec![boot.clone()]),
        ("ext2", 1080, ext(0, 2)),
        ("ext3", 1080, ext(4, 2)),
        ("ext4", 1080, ext(4, 0x42)),
        ("ext4", 1080, ext(0, 0x240)),
        ("xfs", 0, at(0, b"XFSB")),
        ("btrfs", 0x1_0040, at(0x1_0040, b"_BHRfS_M")),
        ("LVM2 physical volume", 0, at(0, b"LABELONE")),
        ("LVM2 physical volume", 512, at(512, b"LABELONE")),
        ("LVM2 physical volume", 1536, at(1536, b"LABELONE")),
        ("md member (0.90)", md_old, vec![(md_old, md.clone())]),
        (
            "md member (0.90)",
            md_old,
            at(md_old, &[0xa9, 0x2b, 0x4e, 0xfc]),
        ),
        ("md member (1.0)", md_end, vec![(md_end, md.clone())]),
        ("md member (1.1)", 0, vec![(0, md.clone())]),
        ("md member (1.2)", 4096, vec![(4096, md)]),
        ("LUKS", 0, at(0, b"LUKS\xba\xbe")),
        ("LUKS", 0x4000, at(0x4000, b"SKUL\xba\xbe")),
        ("swap", 4086, at(4086, b"SWAPSPACE2")),
        ("swap", 65526, at(65526, b"SWAPSPACE2")),
        ("swap", 4086, at(4086, b"SWAP-SPACE")),
        ("ZFS", 128 << 10, vec![(128 << 10, zfs.clone())]),
        (
            "ZFS",
            385 << 10,
            vec![(385 << 10, zfs.iter().rev().copied().collect())],
        ),
        ("ZFS", zfs_end, vec![(zfs_end, zfs)]),
        ("NTFS", 3, vec![(3, b"NTFS    ".to_vec()), boot.clone()]),
        ("exFAT", 3, vec![(3, b"EXFAT   ".to_vec()), boot.clone()]),
        ("FAT", 82, vec![(82, b"FAT32   ".to_vec()), boot.clone()]),
        ("FAT", 54, vec![(54, b"FAT16   ".to_vec()), boot.clone()]),
        ("FAT", 54, vec![(54, b"FAT12   ".to_vec()), boot]),
        ("iso9660", 0x8001, at(0x8001, b"CD001")),
        (
            "bcache",
            4120,
            at(
                4120,
                b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
            ),
        ),
        (
            "DRBD metadata",
            SIZE - 4036,
            at(SIZE - 4036, &[0x83, 0x74, 0x02, 0x6d]),
        ),
        ("SPDK RAID member", 0, at(0, b"SPDKRAID")),
        ("Ceph BlueStore", 0, at(0, b"bluestore block device\n")),
        (
            "DDF RAID member",
            SIZE - 512,
            at(SIZE - 512, &[0xde, 0x11, 0xde, 0x11]),
        ),
        (
            "Intel RAID member",
            SIZE - 1024,
            at(SIZE - 1024, b"Intel Raid ISM Cfg Sig. "),
        ),
        ("f2fs", 1024, at(1024, &[0x10, 0x20, 0xf5, 0xf2])),
    ]
}

#[test]
fn every_signature_is_found_where_it_is_and_gone_when_wiped() {
    for (kind, place, bytes) in known() {
        let drive = drive(SIZE);
        for (offset, piece) in &bytes {
            put(&drive, *offset, piece);
        }
        let wanted = Some((kind.to_owned(), place));
        assert_eq!(kind_and_place(&drive), wanted);
        drive.wipe().unwrap();
        assert_eq!(kind_and_place(&drive), None, "{kind} after the wipe");
    }
}

#[test]
fn each_magic_of_the_table_is_found_alone() {
    for (kind, offset, magic) in FIXED {
        let drive = drive(SIZE);
        put(&drive, *offset, magic);
        assert_eq!(kind_and_place(&drive), Some((kind.to_string(), *offset)));
    }
}

#[test]
fn one_wrong_byte_is_no_signature() {
    for (kind, place, bytes) in known() {
        for (at, (offset, piece)) in bytes.iter().enumerate() {
            // Only the piece at the found place is the magic; the rest are details.
            let is_magic = *offset == place;
            for byte in 0..piece.len() * usize::from(is_magic) {
                let drive = drive(SIZE);
                let mut broken = bytes.clone();
                broken[at].1[byte] ^= 0x20;
                for (offset, piece) in &broken {
                    put(&drive, *offset, piece);
                }
                let found = kind_and_place(&drive).map(|(kind, _)| kind);
                assert_ne!(found.as_deref(), Some(kind), "byte {byte} of {kind}");
            }
        }
    }
}

#[test]
fn a_blank_drive_of_any_size_carries_nothing() {
    for size in [512, 1024, 4096, 65536, MIB, 2 * MIB, 3 * MIB + 512, SIZE] {
        let drive = drive(size);
        assert_eq!(kind_and_place(&drive), None, "{size}");
        // Data that means nothing means nothing.
        let noise: Vec<u8> = (0..size)
            .map(|at| u8::try_from(at * 7 % 251).unwrap())
            .collect();
        drive.write(0, &noise).unwrap();
        assert_eq!(kind_and_place(&drive), None, "{size}");
        drive.wipe().unwrap();
    }
}

#[test]
fn what_we_wrote_is_named_before_what_was_there_first() {
    let drive = drive(SIZE);
    put(&drive, 0, b"XFSB");
    put(&drive, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]);
    put(&drive, MIB, &GARBOARD_MAGIC);
    assert_eq!(
        kind_and_place(&drive),
        Some(("garboard member".to_owned(), MIB))
    );
}

#[test]
fn wiping_leaves_the_middle_alone() {
    let drive = drive(10 * MIB);
    drive.write(0, &vec![0xA5; 10 << 20]).unwrap();
    drive.wipe().unwrap();
    let mut all = vec![0; 10 << 20];
    drive.read(0, &mut all).unwrap();
    let kept = 4 << 20..6 << 20;
    for (at, byte) in all.iter().enumerate() {
        let wanted = if kept.contains(&at) { 0xA5 } else { 0 };
        assert_eq!(*byte, wanted, "at {at}");
    }
}

#[test]
fn the_last_superblock_lies_in_the_last_whole_mebibyte() {
    for (size, wanted) in [
        (0, None),
        (MIB, None),
        (2 * MIB, None),
        (3 * MIB - 512, None),
        (3 * MIB, Some(2 * MIB)),
        (SIZE, Some(8 * MIB)),
        (64 * MIB, Some(63 * MIB)),
    ] {
        assert_eq!(superblock_end_offset(size), wanted, "{size}");
    }
}

#[test]
fn a_pulled_drive_tells_no_signature_rather_than_none() {
    let drive = drive(SIZE);
    drive.inject(crate::Fault::Pulled);
    drive.signature().unwrap_err();
    drive.wipe().unwrap_err();
}
