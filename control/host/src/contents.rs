//! What a drive holds that is about to be given another use: what somebody would lose by that. What
//! does not live here: erasing it, and taking a member back.

use std::io;
use std::sync::Arc;

use array::format::SUPERBLOCK_BYTES;
use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, OWN_SIGNATURE, SUPERBLOCK_OFFSET};
use units::{DriveIndex, MemberIndex, bytes_usize};

use crate::arrays::{Candidate, identity_of};
use crate::error::{error, not_found};
use crate::state::{ArrayEntry, DriveRole};
use crate::{Host, records};

impl Host {
    /// What a drive carries now, of whatever kind.
    pub(crate) fn do_signature_on(&self, name: &str) -> Answer<Option<String>> {
        self.refuse_silent(name)?;
        let drive = {
            let state = self.state();
            let entry = state.drives.get(name);
            let entry = entry.ok_or_else(|| not_found("drive", name))?;
            Arc::clone(&entry.drive)
        };
        let found = self.content_of(name, &drive);
        if !matches!(found, Ok(None))
            && let Some(entry) = self.state().drives.get_mut(name)
        {
            // Also when that is erased: whoever wrote it may have written elsewhere, too.
            entry.blank = false;
        }
        found.map_err(|source| unread(format!("drive {name}"), &source, "erases"))
    }

    /// Refuses drives that carry anything, naming all that was found. Spares were looked at, or
    /// erased, when they became some, perhaps by an older engine that knew of fewer places: what
    /// nothing names is nobody's, and a lost member is not to wait for a command.
    pub(crate) fn refuse_contents(
        &self,
        object: &str,
        candidates: &[Candidate],
        by_spare: bool,
    ) -> Answer<()> {
        let mut found = Vec::new();
        for candidate in candidates {
            let Candidate { name, drive, .. } = candidate;
            let content = if by_spare {
                let signature = drive.signature();
                signature.map(|found| found.map(|signature| signature.kind))
            } else {
                self.content_of(name, drive)
            };
            let content =
                content.map_err(|source| unread(format!("drive {name}"), &source, "overwrites"))?;
            if let Some(content) = content {
                found.push(format!("drive {name} carries {content}"));
            } else if let Some(cause) = &candidate.left_out {
                found.push(format!("drive {name} was left out: {cause}"));
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let next = "--force overwrites it; `garboard drive wipe` erases it";
        Err(error(ErrorKind::Unsafe, object, found.join(", ")).next(next))
    }

    /// What somebody may miss when a drive is written to: what is known, or what nobody can tell
    /// where a member's superblocks were.
    fn content_of(&self, name: &str, drive: &Drive) -> io::Result<Option<String>> {
        if let Some(known) = known_content(drive, &self.member_sizes())? {
            return Ok(Some(known));
        }
        let doubtful = self.lost_by(name).filter(|_| doubt(drive).is_some());
        Ok(doubtful.map(|array| format!("unknown data over its superblock of array {array}")))
    }

    /// How large members of the arrays here are: the last superblocks of a drive that is larger lie
    /// where its member ends.
    pub(crate) fn member_sizes(&self) -> Vec<u64> {
        let state = self.state();
        let arrays = state.arrays.values();
        let mut sizes: Vec<u64> = arrays
            .map(|array| array.superblock.layout.member_bytes)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The array that has had this free drive, by what its maker calls it, and has lost it.
    pub(crate) fn lost_by(&self, drive: &str) -> Option<String> {
        let state = self.state();
        let entry = state.drives.get(drive)?;
        let info = entry.drive.info();
        if entry.role != DriveRole::Free || info.wwid.is_none() && info.serial.is_none() {
            return None;
        }
        let identity = identity_of(&entry.drive);
        let has_lost = |array: &&ArrayEntry| {
            let config = self.config_of(array);
            let mut places = (0..).map(MemberIndex).zip(&config.members);
            places.any(|(place, record)| {
                record.identity == identity && state.drive_of(array.uuid, place).is_none()
            })
        };
        let array = state.arrays.values().find(has_lost)?;
        Some(array.name.clone())
    }
}

/// What is known to lie on a drive. A member counts by any copy of its superblock that is one: the
/// first of them may be overwritten, and its array may be known to nobody here.
pub(crate) fn known_content(drive: &Drive, member_sizes: &[u64]) -> io::Result<Option<String>> {
    if let Some(found) = drive.signature()? {
        let is_own = found.kind == OWN_SIGNATURE;
        // What others wrote says more than what may be left of a member.
        let foreign = is_own.then(|| drive.foreign_signature()).transpose()?;
        return Ok(Some(foreign.flatten().unwrap_or(found).kind));
    }
    // Where there is nothing at all, somebody has erased what was to be found.
    let sizes = if is_blank(drive)? { &[] } else { member_sizes };
    let found = records::read_head(DriveIndex(0), drive, sizes)?;
    let is_member = found.superblocks.iter().any(records::was_written);
    Ok(is_member.then(|| OWN_SIGNATURE.to_owned()))
}

/// Why nobody can tell what a drive holds that was a member: its superblocks are gone, and nothing
/// is known that lies there. One that is blank where everything begins, as after a wipe, holds
/// nothing.
pub(crate) fn doubt(drive: &Drive) -> Option<String> {
    let unread = |source: io::Error| Some(ends_unread(&source));
    match drive.foreign_signature() {
        Ok(None) => {}
        Ok(Some(_)) => return None,
        Err(source) => return unread(source),
    }
    match records::read_head(DriveIndex(0), drive, &[]) {
        Ok(found) if found.superblock().is_some() => return None,
        Ok(_) => {}
        Err(source) => return unread(source),
    }
    match is_blank(drive) {
        Ok(true) => None,
        Ok(false) => Some("no superblock says so any more".to_owned()),
        Err(source) => unread(source),
    }
}

/// Whether there are but zeroes up to the end of the area of the first superblocks. Where these
/// were alone may be zeroes of anything.
fn is_blank(drive: &Drive) -> io::Result<bool> {
    let area = 2 * SUPERBLOCK_OFFSET;
    let mut head = vec![0; bytes_usize(area.min(drive.info().size_bytes))];
    drive.read(0, &mut head)?;
    let mut blocks = head.chunks(SUPERBLOCK_BYTES);
    Ok(blocks.all(|block| block.iter().all(|&byte| byte == 0)))
}

/// What is said of a drive of which the places cannot be read where everything known lies.
pub(crate) fn ends_unread(source: &io::Error) -> String {
    format!("its ends cannot be read: {source}")
}

/// `does` is what force does to it.
fn unread(object: String, source: &io::Error, does: &str) -> EngineError {
    let text = format!("{}, so nobody can tell what it holds", ends_unread(source));
    let next = format!("--force {does} it all the same; the kernel's log may say more");
    error(ErrorKind::Unsafe, object, text).next(next)
}
