//! Drives that are files, and whether their file systems have what they may still take.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use control::request::DriveSpec;
use control::view::DriveView;
use units::Size;

use super::tree::Tree;
use super::{Finding, Severity};

/// Bytes of a block of `stat`.
const STAT_BLOCK: u64 = 512;

/// What the drives on one file system may still take, and what it has.
#[derive(Debug, Default)]
struct Promised {
    drives: Vec<String>,
    folder: String,
    bytes: u64,
    free: u64,
}

/// Each file system that has less than what the files on it may still grow by.
pub(crate) fn findings(tree: &Tree, drives: &[DriveView]) -> Vec<Finding> {
    let mut systems: BTreeMap<u64, Promised> = BTreeMap::new();
    for drive in drives {
        let DriveSpec::File { path, .. } = &drive.spec else {
            continue;
        };
        let Some((system, taken, free)) = space(&tree.at(&path.display().to_string())) else {
            continue;
        };
        let grows = drive.size_bytes.saturating_sub(taken);
        if grows == 0 {
            continue;
        }
        let promised = systems.entry(system).or_default();
        promised.drives.push(drive.name.clone());
        promised.bytes += grows;
        promised.free = free;
        let folder = path.parent().unwrap_or(Path::new("/"));
        promised.folder = folder.display().to_string();
    }
    let short = systems
        .into_values()
        .filter(|promised| promised.bytes > promised.free);
    short.map(|promised| finding(&promised)).collect()
}

/// The file system of a file, what the file has taken of it, and what is free.
fn space(path: &Path) -> Option<(u64, u64, u64)> {
    let facts = std::fs::metadata(path).ok()?;
    let system = rustix::fs::statvfs(path).ok()?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    Some((facts.dev(), facts.blocks() * STAT_BLOCK, free))
}

fn finding(promised: &Promised) -> Finding {
    let (names, lacks) = (promised.drives.join(", "), promised.bytes - promised.free);
    let found = format!(
        "{names} may still take {} of the file system of {}, which has {} free",
        Size(promised.bytes),
        promised.folder,
        Size(promised.free)
    );
    let subject = if promised.drives.len() == 1 {
        format!("drive {names}")
    } else {
        format!("drives {names}")
    };
    Finding::good(&subject, "space", found)
        .at(Severity::Warning)
        .costs("once it is full, writes to their arrays wait for space, and fail after the hold timeout")
        .fix(format!("free {} there, or move drives to another file system", Size(lacks)))
}
