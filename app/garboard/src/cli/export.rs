//! `garboard export …`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use control::body::{ExportCreateBody, QueueMoveBody};
use control::settings::CoreList;
use control::view::{Access, ExportView, GuestMemory, Sharing};
use control::{Answer, EngineError, ErrorKind};
use units::Size;
use uuid::Uuid;

use super::Yes;
use crate::output::{Row, or_dash, word};
use crate::session::{Question, Session};

/// Exports: volumes made reachable.
#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// Export a volume over vhost-user-blk
    Vhost(Box<Vhost>),
    /// List all exports
    List,
    /// Show one export
    Show {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
    },
    /// Serve a queue on another core, while the guest runs
    Move {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// The queue's number
        #[arg(long, value_name = "Q")]
        queue: u16,
        /// The CPU
        #[arg(long, value_name = "C")]
        core: u16,
    },
    /// Serve an export again that is held back because its requests crashed the engine
    Resume {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
    },
    /// End an export
    Remove {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        #[command(flatten)]
        yes: Yes,
    },
}

#[derive(Debug, Args)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct Vhost {
    /// The volume, by name or uuid
    #[arg(value_parser = super::key)]
    volume: String,
    /// The export's name [default: the volume's]
    #[arg(long, value_parser = super::new_name)]
    name: Option<String>,
    /// Where front-ends connect; folders that are missing are made, and the last one has mode 0750
    /// then [default: exports/NAME/vhost.sock beside the engine's socket]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The socket's owner
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// The socket's group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The socket's permissions, in octal [default: 0660]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Queues [default: one per reactor]
    #[arg(long, value_name = "N")]
    queues: Option<u16>,
    /// Descriptors of a queue
    #[arg(long, value_name = "N")]
    queue_size: Option<u16>,
    /// The logical block, 512 or 4096 [default: 512, and 4096 where the array has such blocks]
    #[arg(long, value_name = "BYTES", value_parser = super::size)]
    block_size: Option<Size>,
    /// The guest's name for it, at most 20 characters [default: from the volume's uuid]
    #[arg(long)]
    serial: Option<String>,
    /// CPUs that serve it, for example 2-5 [default: all of the engine's]
    #[arg(long, value_name = "LIST", value_parser = str::parse::<CoreList>)]
    cores: Option<CoreList>,
    /// Guests may not write
    #[arg(long)]
    read_only: bool,
    /// Allow several front-ends, and other exports of the volume
    #[arg(long)]
    shared: bool,
    /// Promise that nobody takes pages of guest memory away (a balloon, memory that is unplugged,
    /// migration after copying): drives move its bytes without looking its pages up
    #[arg(long)]
    pin_guest_memory: bool,
    /// Its uuid; the command can then be repeated
    #[arg(long)]
    uuid: Option<Uuid>,
}

impl Vhost {
    fn body(self) -> Answer<ExportCreateBody> {
        let socket = match self.socket {
            None => None,
            Some(path) => Some(std::path::absolute(&path).map_err(|error| {
                let object = format!("socket {}", path.display());
                EngineError::new(ErrorKind::Invalid, object, error.to_string())
            })?),
        };
        Ok(ExportCreateBody {
            volume: self.volume,
            name: self.name,
            uuid: self.uuid,
            socket,
            owner: self.owner,
            group: self.group,
            mode: self.mode,
            queues: self.queues,
            queue_size: self.queue_size,
            block_bytes: self.block_size.map(|block| block.0),
            serial: self.serial,
            cores: self.cores.unwrap_or_default().0,
            access: if self.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            sharing: if self.shared {
                Sharing::Shared
            } else {
                Sharing::Exclusive
            },
            guest_memory: if self.pin_guest_memory {
                GuestMemory::Pinned
            } else {
                GuestMemory::Unpinned
            },
        })
    }
}

impl Export {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Export::Vhost(vhost) => {
                let asked = vhost.block_size.is_some();
                let body = vhost.body()?;
                let missing = body.socket.as_deref().and_then(missing_folder);
                let export: ExportView = session.post("/v1/exports", &body)?;
                if let Some(folder) = missing {
                    let folder = folder.display();
                    session.remark(&format!(
                        "note: folder {folder} was not there and has been made for the socket"
                    ));
                }
                if let (false, Some(note)) = (asked, block_note(&export)) {
                    session.remark(&note);
                }
                let socket = export.socket.display();
                let sentence = format!(
                    "export {} of volume {} at {socket}",
                    export.name, export.volume
                );
                session.done(&export, &sentence)
            }
            Export::List => {
                let exports: Vec<ExportView> = session.get("/v1/exports")?;
                session.list(&exports)
            }
            Export::Show { name } => {
                let export: ExportView = session.get(&path(&name))?;
                session.show(&export)
            }
            Export::Move { name, queue, core } => {
                let path = format!("{}/queues/{queue}", path(&name));
                let export: ExportView = session.put(&path, &QueueMoveBody { core })?;
                let sentence = format!("queue {queue} of export {} is on core {core}", export.name);
                session.done(&export, &sentence)
            }
            Export::Resume { name } => {
                let path = format!("{}/resume", path(&name));
                let export: ExportView = session.post(&path, &())?;
                session.done(&export, &format!("export {} is served again", export.name))
            }
            Export::Remove { name, yes } => {
                let export: ExportView = session.get(&path(&name))?;
                // A guest that is attached loses its drive; without one nothing is lost.
                if export.connections > 0 {
                    let question = Question {
                        object: format!("export {}", export.name),
                        what: "this takes the volume away from a running guest".into(),
                        touched: vec![format!(
                            "export {} of volume {}, {} front-ends connected",
                            export.name, export.volume, export.connections
                        )],
                    };
                    session.confirm(&question, yes.yes)?;
                }
                let gone: ExportView = session.delete(&path(&export.name))?;
                session.done(&gone, &format!("export {} removed", gone.name))
            }
        }
    }
}

/// The folder of a socket, where it is missing: it will be made, and may be a slip of the pen.
fn missing_folder(socket: &Path) -> Option<PathBuf> {
    let folder = socket.parent()?;
    (!folder.exists()).then(|| folder.to_owned())
}

/// What a person should know who did not choose the block size, when it is not the usual one.
fn block_note(export: &ExportView) -> Option<String> {
    let bytes = export.profile.as_ref()?.block_bytes;
    (bytes > 512).then(|| {
        format!("note: the guest sees blocks of {bytes} bytes, as the array has, and not of 512")
    })
}

/// What was promised of guest memory, and what is made of it.
fn memory_word(export: &ExportView) -> String {
    let promised = word(&export.guest_memory);
    match (export.guest_memory, export.pinned_bytes) {
        (GuestMemory::Unpinned, _) => promised,
        (GuestMemory::Pinned, 0) => format!("{promised} (nothing now)"),
        (GuestMemory::Pinned, bytes) => format!("{promised} ({})", Size(bytes)),
    }
}

pub(super) fn path(key: &str) -> String {
    format!("/v1/exports/{key}")
}

impl Row for ExportView {
    const HEADS: &'static [&'static str] = &["NAME", "VOLUME", "STATE", "QUEUES", "SOCKET"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.volume.clone(),
            word(&self.state),
            or_dash(self.profile.as_ref().map(|profile| profile.queues)),
            self.socket.display().to_string(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("uuid", self.uuid.to_string()),
            ("protocol", self.protocol.clone()),
            ("connections", self.connections.to_string()),
            ("access", word(&self.access)),
            ("sharing", word(&self.sharing)),
            ("guest memory", memory_word(self)),
            ("cause", or_dash(self.cause.as_ref())),
        ];
        if let Some(profile) = &self.profile {
            details.push(("serial", profile.serial.clone()));
            details.push(("queue size", profile.queue_size.to_string()));
            let block = format!(
                "{} (physical {})",
                profile.block_bytes, profile.physical_block_bytes
            );
            details.push(("block", block));
            details.push(("features", format!("{:#x}", profile.virtio_features)));
        }
        for queue in &self.queues {
            let cause = queue
                .cause
                .as_ref()
                .map(|cause| format!(", stopped: {cause}"));
            let text = format!(
                "{} core {}, {} requests{}",
                queue.queue,
                or_dash(queue.core),
                queue.requests_total,
                cause.unwrap_or_default()
            );
            details.push(("queue", text));
        }
        details
    }
}
