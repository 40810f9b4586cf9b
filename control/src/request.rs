//! What the engine is asked for, as plain checked data.
//!
//! Every optional number that is `None` is the engine's choice. Sizes are in bytes, times in the
//! unit of their name. The JSON of these types is the body of the API's changing calls.

mod paced;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::Size;
use uuid::Uuid;

use crate::view::{Access, ExportProfile, GuestMemory, Sharing};

/// Where a drive is, or what it pretends to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveSpec {
    /// A regular file. `size_bytes` sets the size with `create` and is compared without.
    File {
        /// Absolute.
        path: PathBuf,
        /// The size to make or to expect.
        size_bytes: Option<u64>,
        /// Make the file now; refused when it exists.
        create: bool,
    },
    /// A block device, or the generic device of an NVMe drive, which takes commands.
    Block {
        /// Absolute.
        path: PathBuf,
    },
    /// Memory of the engine; empty again after a restart.
    Memory {
        /// The size.
        size_bytes: u64,
    },
    /// Memory of the engine that answers as slowly as a drive of a model.
    Paced {
        /// A built-in model's name, or the absolute path of a model's file.
        model: String,
        /// How many times slower than the model.
        slower: u32,
        /// How much of its time each request takes from the other direction, too.
        interference_percent: u8,
        /// The size.
        size_bytes: u64,
        /// No memory: keeps nothing and reads as zeroes, so that bytes cost the engine as little as
        /// those that a drive moves by itself.
        forgets: bool,
    },
    /// Keeps nothing and reads as zeroes, for measuring.
    Null {
        /// The size.
        size_bytes: u64,
    },
}

impl DriveSpec {
    /// The spec as it is kept: `create` acts once, now, and never at a restart.
    #[must_use]
    pub fn kept(&self) -> DriveSpec {
        match self {
            DriveSpec::File {
                path, size_bytes, ..
            } => DriveSpec::File {
                path: path.clone(),
                size_bytes: *size_bytes,
                create: false,
            },
            DriveSpec::Block { .. }
            | DriveSpec::Memory { .. }
            | DriveSpec::Paced { .. }
            | DriveSpec::Null { .. } => self.clone(),
        }
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveSpec::File {
                path,
                size_bytes,
                create,
            } => {
                write!(f, "file:{}", path.display())?;
                if let Some(bytes) = size_bytes {
                    write!(f, ",size={bytes}")?;
                }
                if *create {
                    write!(f, ",create")?;
                }
                Ok(())
            }
            DriveSpec::Block { path } => write!(f, "{}", path.display()),
            DriveSpec::Memory { size_bytes } => write!(f, "mem:{size_bytes}"),
            DriveSpec::Paced {
                model,
                slower,
                interference_percent,
                size_bytes,
                forgets,
            } => {
                let options = (*slower, *interference_percent, *forgets);
                paced::write(f, model, options, *size_bytes)
            }
            DriveSpec::Null { size_bytes } => write!(f, "null:{size_bytes}"),
        }
    }
}

/// Why a text is not a drive spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpecError(String);

impl fmt::Display for ParseSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseSpecError {}

impl FromStr for DriveSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<DriveSpec, ParseSpecError> {
        let size = parse_size;
        if let Some(rest) = text.strip_prefix("paced:") {
            return paced::parse(rest);
        }
        if let Some(rest) = text.strip_prefix("file:") {
            return parse_file(rest, size);
        }
        if let Some(rest) = text.strip_prefix("mem:") {
            return size(rest).map(|size_bytes| DriveSpec::Memory { size_bytes });
        }
        if let Some(rest) = text.strip_prefix("null:") {
            return size(rest).map(|size_bytes| DriveSpec::Null { size_bytes });
        }
        if text.starts_with('/') {
            return Ok(DriveSpec::Block { path: text.into() });
        }
        Err(ParseSpecError(format!(
            "`{text}` names no drive; write file:/PATH[,size=1GiB][,create], the absolute path \
             of a block device, mem:1GiB, null:1GiB or paced:MODEL[,scale=1/1000][,size=1GiB]"
        )))
    }
}

fn parse_size(text: &str) -> Result<u64, ParseSpecError> {
    match text.parse::<Size>() {
        Ok(Size(0)) => Err(ParseSpecError("a drive of size 0 holds nothing".into())),
        Ok(Size(bytes)) => Ok(bytes),
        Err(error) => Err(ParseSpecError(error.to_string())),
    }
}

fn parse_file(
    rest: &str,
    size: impl Fn(&str) -> Result<u64, ParseSpecError>,
) -> Result<DriveSpec, ParseSpecError> {
    let mut parts = rest.split(',');
    let path = PathBuf::from(parts.next().unwrap_or_default());
    if !path.is_absolute() {
        return Err(ParseSpecError(format!(
            "`{}` is not an absolute path, and the engine runs elsewhere",
            path.display()
        )));
    }
    let (mut size_bytes, mut create) = (None, false);
    for part in parts {
        match part.split_once('=') {
            Some(("size", text)) if size_bytes.is_none() => size_bytes = Some(size(text)?),
            None if part == "create" && !create => create = true,
            _ => {
                return Err(ParseSpecError(format!(
                    "`{part}` is not an option of file:PATH; there are size=SIZE and create"
                )));
            }
        }
    }
    if create && size_bytes.is_none() {
        return Err(ParseSpecError("create needs size=SIZE".into()));
    }
    Ok(DriveSpec::File {
        path,
        size_bytes,
        create,
    })
}

impl Serialize for DriveSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DriveSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<DriveSpec, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A drive to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveAdd {
    /// Its name.
    pub name: String,
    /// Its uuid in this engine.
    pub uuid: Uuid,
    /// Where it is.
    pub spec: DriveSpec,
}

/// A drive that was added before, as the wanted state remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveKnown {
    /// Its name.
    pub name: String,
    /// Its uuid in this engine.
    pub uuid: Uuid,
    /// Where it was last seen. A hint.
    pub spec: DriveSpec,
    /// The last [`crate::view::DriveView::identity`]; empty when the drive has none (a blank
    /// file, memory).
    pub identity: String,
    /// The array that it was a member of, and its number there. Only people are told.
    #[serde(default)]
    pub member_of: Option<MemberOf>,
}

impl DriveKnown {
    /// One that nothing else is known of.
    #[must_use]
    pub fn new(name: &str, uuid: Uuid, spec: &DriveSpec) -> DriveKnown {
        DriveKnown {
            name: name.to_owned(),
            uuid,
            spec: spec.kept(),
            identity: String::new(),
            member_of: None,
        }
    }
}

/// A place in an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberOf {
    /// The array's uuid.
    pub uuid: Uuid,
    /// Its name then.
    pub array: String,
    /// The member's number.
    pub member: u16,
}

/// A lamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lamp {
    /// Blinks.
    On,
    /// Dark.
    Off,
}

/// The level of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Striping without redundancy.
    #[serde(rename = "0")]
    Raid0,
    /// 2..n copies.
    #[serde(rename = "1")]
    Raid1,
    /// Groups of copies.
    #[serde(rename = "10")]
    Raid10,
    /// P.
    #[serde(rename = "5")]
    Raid5,
    /// P and Q.
    #[serde(rename = "6")]
    Raid6,
    /// P, Q and R (triple parity).
    #[serde(rename = "7")]
    Raid7,
    /// Any number of parity chunks.
    #[serde(rename = "nm")]
    Nm,
    /// Groups of level 5.
    #[serde(rename = "50")]
    Raid50,
    /// Groups of level 6.
    #[serde(rename = "60")]
    Raid60,
    /// Groups of level 7.
    #[serde(rename = "70")]
    Raid70,
}

impl Level {
    /// Every level, in the order of the documentation.
    pub const ALL: [Level; 10] = [
        Level::Raid0,
        Level::Raid1,
        Level::Raid10,
        Level::Raid5,
        Level::Raid6,
        Level::Raid7,
        Level::Nm,
        Level::Raid50,
        Level::Raid60,
        Level::Raid70,
    ];

    /// The level as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Raid0 => "0",
            Level::Raid1 => "1",
            Level::Raid10 => "10",
            Level::Raid5 => "5",
            Level::Raid6 => "6",
            Level::Raid7 => "7",
            Level::Nm => "nm",
            Level::Raid50 => "50",
            Level::Raid60 => "60",
            Level::Raid70 => "70",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Level, String> {
        Level::ALL
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| {
                let all = Level::ALL.map(Level::as_str).join(", ");
                format!("`{text}` is not a level; there are {all}")
            })
    }
}

/// What is done against the write hole. In every mode the regions that were being written are
/// resynced after an unclean stop; a write is logged by writing all its pieces, data and parity,
/// into the logs of their members first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteHole {
    /// Writes are logged where a data chunk is missing. Power loss together with the loss of
    /// another member, at once or before the resync has ended, may lose data that was not being
    /// written.
    #[default]
    Auto,
    /// All writes are logged: nothing else is lost than what the missing members cost anyway.
    Strict,
    /// Nothing is logged. As `auto`, and of a degraded array power loss alone may lose the missing
    /// blocks of rows that were being written, or had been and were not flushed.
    Off,
}

/// Which reads can be answered from the other members when their drive hangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HedgedReads {
    /// Those of drives that have hung within ten minutes. Those that a drive keeps when it hangs
    /// for the first time wait until it answers, or the host gives them up.
    #[default]
    Auto,
    /// All; each is copied once more for it.
    Always,
}

/// An array to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayCreate {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// The level.
    pub level: Level,
    /// Names of free drives; their order is the members' order.
    pub drives: Vec<String>,
    /// Everything that has a default.
    pub options: ArrayOptions,
    /// Overwrite drives that carry a signature.
    pub force: bool,
}

/// The parts of an array's shape that have a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArrayOptions {
    /// Bytes of a chunk; default 64 KiB.
    pub chunk_bytes: Option<u64>,
    /// Parity chunks of a stripe; needed for `nm`, refused where the level says it.
    pub parity: Option<u16>,
    /// Members of a group; needed for 50, 60 and 70; default 2 for 10.
    pub group_size: Option<u16>,
    /// 512 or 4096; default the largest of the members'.
    pub block_bytes: Option<u64>,
    /// What is done against the write hole.
    pub write_hole: WriteHole,
    /// Which reads can be answered from the other members when their drive hangs.
    pub hedged_reads: HedgedReads,
    /// What was never written reads as zeroes, whatever the drives hold: nothing is initialized;
    /// default no.
    pub unwritten_regions: Option<bool>,
}

/// An array to take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayImport {
    /// Name or uuid as found on the drives.
    pub array: String,
    /// Where to look besides the known drives; empty: all block devices of this host.
    pub specs: Vec<DriveSpec>,
    /// Start even when only force would.
    pub force: bool,
    /// Names that belong to drives which are not open.
    pub taken: BTreeSet<String>,
}

/// Options of an array that can change while it runs; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArrayModify {
    /// What is done against the write hole.
    pub write_hole: Option<WriteHole>,
    /// A rebuild gets at least this much, in bytes per second of one member.
    pub rebuild_floor_bytes_per_second: Option<u64>,
    /// Background work makes room when guests see more than this.
    pub latency_target_us: Option<u64>,
    /// How long requests wait for members that the array cannot do without, before they fail; in
    /// whole seconds. 0: they fail at once.
    pub hold_timeout_ms: Option<u64>,
    /// The most that a scrub may take, in user bytes per second; 0: as the background goes.
    pub scrub_rate_bytes_per_second: Option<u64>,
    /// A scrub begins by itself so long after the last; 0: never.
    pub scrub_every_s: Option<u64>,
    /// Which reads can be answered from the other members when their drive hangs.
    pub hedged_reads: Option<HedgedReads>,
}

/// A place in an array, and the drive to fill it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReplace {
    /// The place.
    pub member: u16,
    /// Name of a free drive.
    pub drive: String,
    /// Overwrite a signature on the drive.
    pub force: bool,
}

/// A kind of background work on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackgroundKind {
    /// Fill a new or returned member.
    Rebuild,
    /// Make parity agree again after an unclean stop.
    Resync,
}

/// A volume to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Name of a started array.
    pub array: String,
    /// What the guest sees, exactly; not 0.
    pub size_bytes: u64,
    /// The guests promise not to change memory that they are writing from: writes of whole stripes,
    /// and of blocks of mirrors, go without a copy.
    pub stable_buffers: bool,
}

/// The limits of a volume; `None` is without limit. They hold for all its exports together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeLimit {
    /// Requests per second, of every kind but flushes; not 0.
    pub iops: Option<u64>,
    /// Bytes read and written per second, at least 4096. Write-zeroes count
    /// as written; discards are free.
    pub bytes_per_second: Option<u64>,
    /// How long the limits may be exceeded after a pause, in milliseconds of unused limit kept:
    /// 1 to 3,600,000; default 100.
    pub burst_ms: Option<u64>,
}

impl VolumeLimit {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.iops.is_none() && self.bytes_per_second.is_none()
    }
}

/// A vhost-user-blk export to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportCreate {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Name of the volume.
    pub volume: String,
    /// Where and for whom the socket is.
    pub socket: ExportSocket,
    /// What the guest will see of it, where it has a say.
    pub wishes: ExportWishes,
    /// What the guest saw before: wins over `wishes`, and is not to be widened by an upgrade.
    pub profile: Option<ExportProfile>,
    /// CPUs whose reactors serve the queues; empty: all.
    pub cores: Vec<u16>,
    /// Whether guests may write.
    pub access: Access,
    /// Whether there may be other front-ends and exports.
    pub sharing: Sharing,
    /// Whether guest memory may be registered for good.
    pub guest_memory: GuestMemory,
}

/// The socket of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportSocket {
    /// Absolute, at most 107 bytes. Its directory is made when missing (0755, owner as below).
    pub path: PathBuf,
    /// User name or number; `None`: the engine's.
    pub owner: Option<String>,
    /// Group name or number; `None`: the engine's.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: u32,
}

/// What may be asked of a guest-visible profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportWishes {
    /// Queues; default one per reactor.
    pub queues: Option<u16>,
    /// Descriptors of a queue, a power of two up to 1024; default 256.
    pub queue_size: Option<u16>,
    /// The logical block, 512 or 4096; default 512.
    pub block_bytes: Option<u64>,
    /// What GET_ID says, at most 20 printable ASCII bytes. Always given by the control path.
    pub serial: String,
}

/// A queue of an export and the core to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueMove {
    /// The queue's index.
    pub queue: u16,
    /// The CPU whose reactor is to serve it.
    pub core: u16,
}
