//! `garboard volume …`.

use clap::Subcommand;
use control::Answer;
use control::body::{ResizeBody, VolumeCreateBody};
use control::request::VolumeLimit;
use control::view::VolumeView;
use units::Size;
use units::limits::VOLUME_BURST_MS;
use uuid::Uuid;

use super::Yes;
use crate::output::{Row, or_dash, size};
use crate::session::{Question, Session};

/// Volumes: named, sized parts of an array.
#[derive(Debug, Subcommand)]
pub(super) enum Volume {
    /// Make a volume that reads as zeroes
    Create {
        /// Its name
        #[arg(value_parser = super::new_name)]
        name: String,
        /// The array, by name or uuid
        #[arg(long, value_parser = super::key)]
        array: String,
        /// What the guest sees, exactly
        #[arg(long, value_parser = super::size)]
        size: Size,
        /// The guests promise not to change memory that they are writing from before the write is
        /// answered. Writes of whole stripes, and of blocks of mirrors, then go to the drives
        /// without a copy. A guest that breaks it (a page cache with mapped files may) harms what
        /// it writes itself: parity does not agree there, and after a loss of a drive it reads
        /// wrong bytes
        #[arg(long)]
        stable_buffers: bool,
        /// Its uuid; the command can then be repeated
        #[arg(long)]
        uuid: Option<Uuid>,
    },
    /// List all volumes
    List,
    /// Show one volume
    Show {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
    },
    /// Give a volume another size
    Resize {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// The new size, exactly
        #[arg(long, value_parser = super::size)]
        size: Size,
    },
    /// Delete a volume and what it holds
    Delete {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        #[command(flatten)]
        yes: Yes,
    },
    /// Set all limits of a volume; what is left out is without limit
    Limit {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// Requests per second, of all its exports together; flushes are free
        #[arg(long, value_name = "N")]
        iops: Option<u64>,
        /// Bytes read and written per second; zeroes that a guest does not carry are written,
        /// too, discards are free
        #[arg(long, value_name = "SIZE", value_parser = super::rate)]
        bandwidth: Option<Size>,
        /// How much unused limit is kept and may be spent at once: 500ms, 2s; a number alone is
        /// milliseconds; 100 if left out
        #[arg(long, value_name = "TIME", value_parser = super::time::millis)]
        burst: Option<u64>,
    },
}

impl Volume {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Volume::Create {
                name,
                array,
                size: Size(size_bytes),
                stable_buffers,
                uuid,
            } => {
                let body = VolumeCreateBody {
                    name,
                    uuid,
                    array,
                    size_bytes,
                    stable_buffers,
                };
                let volume: VolumeView = session.post("/v1/volumes", &body)?;
                let sentence = format!(
                    "volume {} created, {}",
                    volume.name,
                    size(volume.size_bytes)
                );
                session.done(&volume, &sentence)
            }
            Volume::List => {
                let volumes: Vec<VolumeView> = session.get("/v1/volumes")?;
                session.list(&volumes)
            }
            Volume::Show { name } => {
                let volume: VolumeView = session.get(&path(&name))?;
                session.show(&volume)
            }
            Volume::Resize {
                name,
                size: Size(size_bytes),
            } => {
                let volume: VolumeView = session.patch(&path(&name), &ResizeBody { size_bytes })?;
                let sentence = format!("volume {} has {}", volume.name, size(volume.size_bytes));
                session.done(&volume, &sentence)
            }
            Volume::Delete { name, yes } => delete(&name, yes, session),
            Volume::Limit {
                name,
                iops,
                bandwidth,
                burst,
            } => {
                let bytes_per_second = bandwidth.map(|bandwidth| bandwidth.0);
                let limit = VolumeLimit {
                    iops,
                    bytes_per_second,
                    burst_ms: burst,
                };
                let before: VolumeView = session.get(&path(&name))?;
                let volume: VolumeView = session.put(&format!("{}/limit", path(&name)), &limit)?;
                let mut sentence = format!("volume {}: {}", volume.name, limits(&volume.limit));
                if before.limit != volume.limit {
                    sentence.push_str(&format!(" (before: {})", limits(&before.limit)));
                }
                session.done(&volume, &sentence)
            }
        }
    }
}

fn delete(name: &str, yes: Yes, session: &mut Session<'_, '_>) -> Answer<()> {
    let volume: VolumeView = session.get(&path(name))?;
    let line = format!(
        "volume {} on array {}, {}",
        volume.name,
        volume.array,
        size(volume.size_bytes)
    );
    let question = Question {
        object: format!("volume {}", volume.name),
        what: "this deletes the volume and what it holds".to_owned(),
        touched: vec![line],
    };
    session.confirm(&question, yes.yes)?;
    // What was asked about: while the question waits, the name may become another one's.
    let gone: VolumeView = session.delete(&path(&volume.uuid.to_string()))?;
    session.done(&gone, &format!("volume {} deleted", gone.name))
}

fn path(key: &str) -> String {
    format!("/v1/volumes/{key}")
}

/// The limits in a sentence.
pub(super) fn limits(limit: &VolumeLimit) -> String {
    if limit.is_none() {
        return "no limit".into();
    }
    let iops = or_dash(limit.iops);
    let bandwidth = or_dash(
        limit
            .bytes_per_second
            .map(|bytes| format!("{}/s", size(bytes))),
    );
    let burst = limit.burst_ms.unwrap_or(VOLUME_BURST_MS);
    format!("{iops} IOPS, {bandwidth}, burst {burst} ms")
}

impl Row for VolumeView {
    const HEADS: &'static [&'static str] = &["NAME", "ARRAY", "SIZE", "EXPORTS", "LIMIT"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.array.clone(),
            size(self.size_bytes),
            or_dash((!self.exports.is_empty()).then(|| self.exports.join(","))),
            limits(&self.limit),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let counters = &self.counters;
        vec![
            ("uuid", self.uuid.to_string()),
            ("allocated", size(self.allocated_bytes)),
            ("stable buffers", self.stable_buffers.to_string()),
            (
                "reads",
                format!(
                    "{}, {} in all",
                    counters.reads_total,
                    size(counters.read_bytes_total)
                ),
            ),
            (
                "writes",
                format!(
                    "{}, {} in all",
                    counters.writes_total,
                    size(counters.written_bytes_total)
                ),
            ),
            ("flushes", counters.flushes_total.to_string()),
            ("errors", counters.errors_total.to_string()),
            ("copied", size(self.copied_bytes_total)),
            ("throttled", self.throttled_requests_total.to_string()),
        ]
    }
}
