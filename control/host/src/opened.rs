//! Drives as they are opened: by their specs, and what is on them then.

use std::sync::Arc;

use control::request::DriveSpec;
use control::{Answer, ErrorKind};
use drive::{Drive, OpenErrorKind};
use models::Model;
use units::Size;

use crate::error::{error, of_open};
use crate::found;

/// What is known of what a drive holds; `None` also when it cannot be read.
fn signature_on(drive: &Drive) -> Option<String> {
    let found = drive.signature().ok().flatten();
    found.map(|signature| signature.kind)
}

/// A drive that was opened, and what it holds.
pub(crate) struct Opened {
    pub(crate) drive: Arc<Drive>,
    /// As [`found::mark_on`] says.
    pub(crate) mark: String,
    /// As [`signature_on`] says.
    pub(crate) signature: Option<String>,
}

impl Opened {
    /// Looks what an open drive holds.
    pub(crate) fn of(drive: Arc<Drive>) -> Opened {
        Opened {
            mark: found::mark_on(&drive),
            signature: signature_on(&drive),
            drive,
        }
    }

    /// What it is told by.
    pub(crate) fn identity(&self) -> String {
        found::identity(&self.drive, &self.mark)
    }
}

/// Opens what a spec names, and looks what it holds; `name` is for the error. Takes as long as the
/// drive does.
pub(crate) fn look_at(name: &str, spec: &DriveSpec) -> Answer<Opened> {
    open_spec(name, spec).map(Opened::of)
}

/// Opens what a spec names; `name` is for the error.
pub(crate) fn open_spec(name: &str, spec: &DriveSpec) -> Answer<Arc<Drive>> {
    Drive::open(&spec_of(name, spec)?).map_err(|open| {
        let told = of_open(name, &open);
        match (open.kind, spec) {
            (OpenErrorKind::NotFound, DriveSpec::File { create: true, .. }) => {
                told.next("make the folder first, or give another path")
            }
            (OpenErrorKind::NotFound, DriveSpec::File { .. }) => told.next(
                "give the path where it is; a new one is made with \
                 `,size=SIZE,create` behind the path",
            ),
            _ => told,
        }
    })
}

/// The same drive, as the data path names it; `Invalid` when there is no drive model of the name
/// that a paced drive gives.
/// A drive's spec of the API as the data path takes it; `name` is for errors.
///
/// # Errors
/// When it paces itself by a model that is not to be found.
pub fn spec_of(name: &str, spec: &DriveSpec) -> Answer<drive::DriveSpec> {
    Ok(match spec {
        DriveSpec::File {
            path,
            size_bytes,
            create,
        } => drive::DriveSpec::File {
            path: path.clone(),
            size: size_bytes.map(Size),
            create: *create,
        },
        DriveSpec::Block { path } => drive::DriveSpec::BlockDevice { path: path.clone() },
        DriveSpec::Memory { size_bytes } => drive::DriveSpec::Memory {
            size: Size(*size_bytes),
        },
        DriveSpec::Paced {
            model,
            slower,
            interference_percent,
            size_bytes,
            forgets,
        } => {
            let model = Model::find(model).map_err(|wrong| {
                error(
                    ErrorKind::Invalid,
                    format!("drive {name}"),
                    wrong.to_string(),
                )
                .next("name one of them, or the absolute path of a model's file")
            })?;
            let slower = (*slower).clamp(1, drive::SLOWER_MAX);
            let interference = (*interference_percent).min(100);
            drive::DriveSpec::Paced {
                law: Box::new(drive::PaceLaw::new(&model, slower, interference)),
                size: Size(*size_bytes),
                forgets: *forgets,
            }
        }
        DriveSpec::Null { size_bytes } => drive::DriveSpec::Null {
            size: Size(*size_bytes),
        },
    })
}

pub(crate) fn path_of(spec: &DriveSpec) -> Option<&std::path::Path> {
    match spec {
        DriveSpec::File { path, .. } | DriveSpec::Block { path } => Some(path),
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => None,
    }
}

/// Whether two paths lead to one file or device. The generic device of an NVMe drive and its block
/// device are one.
pub(crate) fn same_file(one: &std::path::Path, other: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let [one_beside, other_beside] = [one, other].map(drive::block_device_of);
    let one = one_beside.as_deref().unwrap_or(one);
    let other = other_beside.as_deref().unwrap_or(other);
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => one == other,
    }
}
