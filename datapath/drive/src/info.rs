//! What is known of an opened drive.
//!
//! What does not live here: how it was found out (`open.rs`, `sysfs.rs`).

use std::fmt;
use std::path::PathBuf;

use units::NodeIndex;

/// What a drive is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// The generic device of an NVMe drive, which takes commands.
    NvmeGeneric,
    /// Memory of this process.
    Memory,
    /// Nothing.
    Null,
}

impl fmt::Display for DriveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriveKind::File => "file",
            DriveKind::BlockDevice => "block device",
            DriveKind::NvmeGeneric => "NVMe generic device",
            DriveKind::Memory => "memory",
            DriveKind::Null => "null",
        })
    }
}

/// What is known of an opened drive. Nothing of it changes while the drive is open.
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts found by probing, each independent of the others"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveInfo {
    /// What it is made of.
    pub kind: DriveKind,
    /// Where it is, with links followed; none for memory and null.
    pub path: Option<PathBuf>,
    /// Usable bytes, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block: every offset and length is a multiple. 512 or 4096.
    pub block_bytes: u64,
    /// What is written without reading first; a multiple of `block_bytes`.
    pub physical_block_bytes: u64,
    /// Largest aligned write that is either old or new after a power failure.
    pub atomic_bytes: u64,
    /// Whether a completed write is durable only after a flush, when it was opened
    /// ([`crate::Drive::has_volatile_cache`] knows what was turned on since). True for every file
    /// but those in memory, which a flush does nothing for.
    pub volatile_cache: bool,
    /// Whether I/O goes past the page cache.
    pub direct_io: bool,
    /// Why it does not; none when it does.
    pub buffered_reason: Option<String>,
    /// Whether every block read as zeroes when the drive was opened (a file created now, memory,
    /// what keeps nothing).
    pub reads_zero_when_new: bool,
    /// Whether discarded blocks read as zeroes.
    pub discard_reads_zero: bool,
    /// Whether discarding releases space. If not, `Discard` answers `Ok` and changes nothing.
    pub can_discard: bool,
    /// Whether `WriteZeroes` is faster than writing zeroes. It always works.
    pub can_write_zeroes: bool,
    /// Whether a head moves.
    pub rotational: bool,
    /// Largest transfer handed to the kernel in one piece; larger requests are split by the port.
    pub transfer_bytes_max: u64,
    /// Largest transfer in which the port joins requests; 0 where it joins none.
    pub joined_bytes_max: u64,
    /// Most segments handed to the kernel in one piece; longer lists are split by the port.
    pub segments_max: usize,
    /// Memory of a transfer begins at a multiple of this, or is copied by the port.
    pub memory_align: u64,
    /// Where two pieces of a transfer's memory meet, the one ends and the other begins at a
    /// multiple of this, or they are copied by the port.
    pub memory_boundary: u64,
    /// What is the same for as long as the drive was not away and kept its power: its content is
    /// what was written last, flushed or not. 0 where nothing shows that.
    pub appearance: u64,
    /// The NUMA node that it, or the device below its file, hangs on, where that is known.
    pub node: Option<NodeIndex>,
    /// How long the machine had been up when it was locked, if that is known: what others had asked
    /// of it had ended.
    pub locked: Option<std::time::Duration>,
    /// Maker's name of the model, where there is one.
    pub model: Option<String>,
    /// Serial number, where there is one.
    pub serial: Option<String>,
    /// World-wide name, where there is one.
    pub wwid: Option<String>,
}

impl DriveInfo {
    /// The best name that survives a restart: world-wide name, else model and serial number, else
    /// the path. None for memory and null, which do not survive.
    #[must_use]
    pub fn identity(&self) -> Option<String> {
        let by_serial = || {
            let serial = self.serial.as_ref()?;
            let model = self.model.as_deref().unwrap_or("unknown");
            Some(format!("serial:{model}:{serial}"))
        };
        let by_path = || Some(format!("path:{}", self.path.as_ref()?.display()));
        self.wwid
            .as_ref()
            .map(|wwid| format!("wwid:{wwid}"))
            .or_else(by_serial)
            .or_else(by_path)
    }

    /// The length that segments of a transfer must be multiples of, or be copied by the port.
    pub(crate) fn length_align(&self) -> u64 {
        if self.direct_io { self.block_bytes } else { 1 }
    }
}
