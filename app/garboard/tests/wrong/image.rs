//! A member's file, taken apart as docs/on-disk.md draws it, to be damaged and forged.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// The file of a member whose engine is gone.
pub(crate) struct Image {
    path: PathBuf,
    file: File,
}

/// An area that a superblock names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Area {
    ConfigA,
    ConfigB,
    Regions,
    Log,
}

impl Image {
    pub(crate) fn open(path: &Path) -> Image {
        let file = File::options().read(true).write(true).open(path);
        Image {
            path: path.to_owned(),
            file: file.expect("a file"),
        }
    }

    /// Everything but the chunks: what lies before them and what lies behind.
    pub(crate) fn records(&self) -> [Vec<u8>; 2] {
        let end = self.number(104);
        [self.read(0..self.data()), self.read(end - MIB..end)]
    }

    /// Writes all this back.
    pub(crate) fn restore(&self, records: &[Vec<u8>; 2]) {
        let end = self.number(104);
        self.write(0, &records[0]);
        self.write(end - MIB, &records[1]);
    }

    /// Where the chunks begin.
    pub(crate) fn data(&self) -> u64 {
        self.number(224)
    }

    pub(crate) fn resize(&self, bytes: u64) {
        self.file.set_len(bytes).expect("resized");
    }

    pub(crate) fn read(&self, range: Range<u64>) -> Vec<u8> {
        let length = usize::try_from(range.end - range.start).expect("small");
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, range.start)
            .expect("read");
        bytes
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("written");
    }

    /// Overwrites with what is nothing.
    pub(crate) fn spoil(&self, range: Range<u64>) {
        let length = usize::try_from(range.end - range.start).expect("small");
        self.write(range.start, &vec![0xa5; length]);
    }

    /// Where the four copies of the superblock are: A, B, A', B'.
    pub(crate) fn superblocks(&self) -> [u64; 4] {
        let end = self.number(104);
        [MIB, MIB + 65536, end - MIB, end - MIB + 65536]
    }

    /// An area of the member.
    pub(crate) fn area(&self, area: Area) -> Range<u64> {
        let at = match area {
            Area::ConfigA => 112,
            Area::ConfigB => 128,
            Area::Regions => 144,
            Area::Log => 160,
        };
        let offset = self.number(at);
        offset..offset + self.number(at + 8)
    }

    fn number(&self, at: u64) -> u64 {
        let bytes = self.read(MIB + at..MIB + at + 8);
        u64::from_le_bytes(bytes.try_into().expect("eight"))
    }

    /// Changes the record at `at` as `change` says, and makes its checksum right again.
    pub(crate) fn forge(&self, at: u64, change: impl Fn(&mut [u8])) {
        let head = self.read(at..at + 48);
        let length = u32::from_le_bytes(head[12..16].try_into().expect("four"));
        let mut record = self.read(at..at + u64::from(length));
        change(&mut record);
        record[36..40].copy_from_slice(&[0; 4]);
        let sum = checksum(&record);
        record[36..40].copy_from_slice(&sum.to_le_bytes());
        self.write(at, &record);
    }

    /// Changes all four copies of the superblock.
    pub(crate) fn forge_superblocks(&self, change: impl Fn(&mut [u8])) {
        for at in self.superblocks() {
            self.forge(at, &change);
        }
    }

    /// Changes both config records.
    pub(crate) fn forge_configs(&self, change: impl Fn(&mut [u8])) {
        for area in [Area::ConfigA, Area::ConfigB] {
            self.forge(self.area(area).start, &change);
        }
    }

    /// The config area with the newer record.
    pub(crate) fn newest_config(&self) -> Area {
        let update = |area| {
            let at = self.area(area).start;
            u64::from_le_bytes(self.read(at + 40..at + 48).try_into().expect("eight"))
        };
        if update(Area::ConfigA) > update(Area::ConfigB) {
            Area::ConfigA
        } else {
            Area::ConfigB
        }
    }

    /// Dirty regions of the first block of the region map, as its newest copy here says.
    pub(crate) fn dirty_regions(&self) -> usize {
        let at = self.area(Area::Regions).start;
        let copies = [at, at + 4096].map(|at| self.read(at..at + 4096));
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
        let newest = copies.iter().max_by_key(|copy| word(&copy[40..48]));
        let words = newest.expect("two")[64..].chunks_exact(8);
        words.filter(|bytes| word(bytes) & 1 == 1).count()
    }

    /// Another file with the same content.
    pub(crate) fn copy_to(&self, path: &Path) {
        std::fs::copy(&self.path, path).expect("copied");
    }
}

/// CRC-32C (Castagnoli), bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = !0;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
        }
    }
    !sum
}
