//! `garboard drive …`.

use clap::Subcommand;
use control::Answer;
use control::body::{DriveAddBody, ForceBody, LocateBody};
use control::request::{DriveSpec, Lamp};
use control::view::{DriveState, DriveView};
use uuid::Uuid;

use super::Yes;
use crate::doctor::{Tree, space};
use crate::output::{Row, or_dash, size, word};
use crate::session::{Question, Session};

/// Drives: what arrays are made of.
#[derive(Debug, Subcommand)]
pub(super) enum Drive {
    /// Open a drive; it is free until an array takes it or it is made a spare
    Add {
        /// file:PATH[,size=1GiB][,create], the path of a block device, or of the generic device of
        /// an NVMe drive (/dev/ng0n1: commands, past the kernel's block layer), mem:1GiB,
        /// null:1GiB, or paced:MODEL[,scale=1/1000][,size=1GiB][,interference=30%][,content=none]:
        /// memory that answers as slowly as a drive of a model (see `garboard expect --help`), or
        /// keeps nothing at that pace
        #[arg(value_parser = super::spec)]
        spec: DriveSpec,
        /// Its name [default: the first free of d0, d1, …]
        #[arg(long, value_parser = super::new_name)]
        name: Option<String>,
        /// Its uuid; the command can then be repeated
        #[arg(long)]
        uuid: Option<Uuid>,
    },
    /// List all drives
    List,
    /// Show one drive
    Show {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
    },
    /// Forget a drive; what is on it stays
    Remove {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// Also when it is a member of an array that survives without it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
    },
    /// Erase what names a content: superblocks, partition tables, file systems
    Wipe {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// Also when something known is on it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
    },
    /// Switch the lamp of the drive's bay on
    Locate {
        /// Name or uuid
        #[arg(value_parser = super::key)]
        name: String,
        /// Switch it off
        #[arg(long)]
        off: bool,
    },
}

impl Drive {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Drive::Add { spec, name, uuid } => {
                let body = DriveAddBody { spec, name, uuid };
                let drive: DriveView = session.post("/v1/drives", &body)?;
                if let Some(signature) = &drive.signature {
                    session.remark(&format!("drive {} carries {signature}", drive.name));
                }
                warn_of_space(session, &drive);
                let mut sentence =
                    format!("drive {} added, {}", drive.name, size(drive.size_bytes));
                if let (DriveState::Member, Some(array), Some(member)) =
                    (drive.state, &drive.array, drive.member)
                {
                    sentence = format!(
                        "drive {} returned, {}: it is member {member} of array {array} again",
                        drive.name,
                        size(drive.size_bytes)
                    );
                }
                session.done(&drive, &sentence)
            }
            Drive::List => {
                let drives: Vec<DriveView> = session.get("/v1/drives")?;
                session.list(&drives)
            }
            Drive::Show { name } => {
                let drive: DriveView = session.get(&path(&name))?;
                session.show(&drive)
            }
            Drive::Remove { name, force, yes } => {
                let drive: DriveView = session.get(&path(&name))?;
                if force && drive.state == DriveState::Member {
                    session.confirm(
                        &question(&drive, "this takes a member from its array"),
                        yes.yes,
                    )?;
                }
                let removed: DriveView =
                    session.delete(&format!("{}?force={force}", path(&drive.name)))?;
                session.done(&removed, &format!("drive {} removed", removed.name))
            }
            Drive::Wipe { name, force, yes } => {
                let drive: DriveView = session.get(&path(&name))?;
                // Nobody is asked about what is refused. Without force nothing known is erased,
                // should it not be refused after all.
                let refused =
                    drive.state == DriveState::Member || (drive.signature.is_some() && !force);
                if !refused {
                    session.confirm(
                        &question(&drive, "this erases what is on the drive"),
                        yes.yes,
                    )?;
                }
                let body = ForceBody {
                    force: force && !refused,
                };
                let wiped: DriveView =
                    session.post(&format!("{}/wipe", path(&drive.name)), &body)?;
                session.done(&wiped, &format!("drive {} wiped", wiped.name))
            }
            Drive::Locate { name, off } => {
                let body = LocateBody {
                    lamp: if off { Lamp::Off } else { Lamp::On },
                };
                let drive: DriveView = session.post(&format!("{}/locate", path(&name)), &body)?;
                let sentence = format!("lamp of drive {} is {}", drive.name, word(&body.lamp));
                session.done(&drive, &sentence)
            }
        }
    }
}

fn path(key: &str) -> String {
    format!("/v1/drives/{key}")
}

/// Says when a file may grow beyond what its file system has, together with the others there.
fn warn_of_space(session: &mut Session<'_, '_>, drive: &DriveView) {
    // A remark at most: the drive is added.
    let Ok(drives) = session.get::<Vec<DriveView>>("/v1/drives") else {
        return;
    };
    let Some(at) = drives.iter().position(|other| other.name == drive.name) else {
        return;
    };
    let tree = Tree::new("/".into());
    // Its file system is the one whose findings it is in.
    let with = space::findings(&tree, &drives);
    let mut others = drives;
    others.remove(at);
    let without = space::findings(&tree, &others);
    for finding in with.iter().filter(|finding| !without.contains(finding)) {
        session.remark(&format!("warning: {}", finding.found));
    }
}

fn question(drive: &DriveView, what: &str) -> Question {
    Question {
        object: format!("drive {}", drive.name),
        what: what.to_owned(),
        touched: vec![describe(drive)],
    }
}

/// Where a drive is, without what its size says better.
pub(super) fn place(spec: &DriveSpec) -> String {
    spec.for_people()
}

/// What a person needs to recognise a drive before it is overwritten.
pub(super) fn describe(drive: &DriveView) -> String {
    format!(
        "drive {} at {}: model {}, serial {}, {}, {}",
        drive.name,
        place(&drive.spec),
        or_dash(drive.model.as_ref()),
        or_dash(drive.serial.as_ref()),
        size(drive.size_bytes),
        drive.signature.as_deref().unwrap_or("nothing known on it"),
    )
}

impl Row for DriveView {
    const HEADS: &'static [&'static str] = &["NAME", "STATE", "SIZE", "ARRAY", "MEMBER", "SPEC"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            word(&self.state),
            size(self.size_bytes),
            or_dash(self.array.as_ref()),
            or_dash(self.member),
            place(&self.spec),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("uuid", self.uuid.to_string()),
            ("identity", self.identity.clone()),
            ("model", or_dash(self.model.as_ref())),
            ("serial", or_dash(self.serial.as_ref())),
            (
                "block",
                format!(
                    "{} (physical {})",
                    self.block_bytes, self.physical_block_bytes
                ),
            ),
            ("atomic", size(self.atomic_bytes)),
            ("access", self.access.clone()),
            ("write cache", self.write_cache.clone()),
            ("node", or_dash(self.node)),
            ("pool", or_dash(self.pool.as_ref())),
            ("signature", or_dash(self.signature.as_ref())),
            ("errors", self.counters.errors_total.to_string()),
            ("cause", or_dash(self.cause.as_ref())),
        ]
    }
}
