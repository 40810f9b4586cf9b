//! Members that return: whether a drive is the one that left, what is erased on it first, and what
//! a start does not know of those that are out.
//!
//! The rule and its proof are in docs/on-disk.md, section 8.

#[cfg(test)]
mod tests;

use std::fmt;

use units::{MemberIndex, Update, bytes_usize};
use uuid::Uuid;

use super::{Assembly, Claim, Found, claim};
use crate::format::{
    Area, ArrayConfig, DriveIdentity, ExclusionCause, MemberState, RegionKind, Superblock,
    lower_half,
};
use crate::log::Redo;
use crate::regions::RegionMap;

/// A drive that was a member, and can be one again without being filled from end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Its place.
    pub member: MemberIndex,
    /// Its uuid.
    pub uuid: Uuid,
    /// The update that excluded it.
    pub since: Update,
    /// Why it was excluded.
    pub cause: ExclusionCause,
}

impl Returning {
    /// Whether it may come back without anybody asking for it: nothing was wrong with it but that
    /// it was not there, or that a copy was to take its place which has not.
    #[must_use]
    pub fn by_itself(&self) -> bool {
        match self.cause {
            ExclusionCause::Gone
            | ExclusionCause::Absent
            | ExclusionCause::Stale
            // Its place would be another's, had the copy taken it.
            | ExclusionCause::Replaced => true,
            ExclusionCause::ReadErrors
            | ExclusionCause::WriteError
            | ExclusionCause::FlushFailed
            | ExclusionCause::TooSlow
            | ExclusionCause::NoSpace
            | ExclusionCause::Command => false,
        }
    }
}

/// Why a drive cannot return, though it may be filled as a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReturn {
    /// It is not of this array, or cannot be read.
    Other(String),
    /// Another drive took its place.
    Replaced(MemberIndex),
    /// The array counts it as a member.
    NotOut(MemberIndex),
    /// Its record is not the one with which it left: an old copy, or it went on by itself.
    OtherRecord {
        /// Its place.
        member: MemberIndex,
        /// Its own record.
        update: (Update, u128),
        /// What it had when it left.
        held: (Update, u64),
    },
}

impl fmt::Display for NoReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoReturn::Other(text) => f.write_str(text),
            NoReturn::Replaced(member) => write!(f, "another drive took the place of {member}"),
            NoReturn::NotOut(member) => write!(f, "{member} is not out"),
            NoReturn::OtherRecord {
                member,
                update: (update, id),
                held: (held, held_id),
            } => write!(
                f,
                "{member}: it has {update} ({id:032x}), and the member had {held} when it left \
                 (…{held_id:016x}): an old copy, or it went on by itself"
            ),
        }
    }
}

/// What a drive says of itself that was found, if it has a place in this array.
fn claim_of_place<'a>(
    found: &'a Found,
    superblock: &Superblock,
    config: &ArrayConfig,
) -> Result<Claim<'a>, NoReturn> {
    let other = |text: &str| NoReturn::Other(text.to_owned());
    let claim = claim(found).map_err(|reason| match reason {
        Some((_, reason)) => NoReturn::Other(reason.to_string()),
        None => other("it carries no member"),
    })?;
    if claim.config.array != config.array || !claim.superblock.agrees_with(superblock) {
        return Err(other("it is of another array, or of another layout"));
    }
    if found.is_doubtful() {
        return Err(other(
            "it cannot read what may be a newer record of its own",
        ));
    }
    if claim.superblock.features.unknown_read_only() != 0 {
        return Err(other("it uses features from the future"));
    }
    let member = claim.member();
    let record = &config.members[member.at()];
    if record.uuid != claim.superblock.member_uuid {
        return Err(NoReturn::Replaced(member));
    }
    if let (Some(known), Some(seen)) = (hard(&record.identity), hard(&found.identity))
        && known != seen
    {
        return Err(NoReturn::Other(format!(
            "it is a copy of {known} on {seen}"
        )));
    }
    Ok(claim)
}

/// Whether what was found is a member of this array that is out, as it was when it left.
///
/// # Errors
/// Why not.
pub fn may_return(
    found: &Found,
    superblock: &Superblock,
    config: &ArrayConfig,
) -> Result<Returning, NoReturn> {
    let claim = claim_of_place(found, superblock, config)?;
    let member = claim.member();
    let record = &config.members[member.at()];
    let MemberState::Excluded {
        since,
        cause,
        missed,
    } = record.state
    else {
        return Err(NoReturn::NotOut(member));
    };
    let own = (claim.update(), claim.config.update_id);
    let (held, held_id) = missed.held;
    let is_held = own.0 == held && lower_half(own.1) == held_id;
    // It may have got further in updates that were not committed, and when it was absent at a
    // start it may be one behind; then the history names what it has.
    let behind = u64::from(cause == ExclusionCause::Absent);
    let near = own.0.0 + behind >= held.0 && own.0 < since;
    let is_named = near && config.id_of(own.0) == Some(own.1);
    if !is_held && !is_named {
        return Err(NoReturn::OtherRecord {
            member,
            update: own,
            held: missed.held,
        });
    }
    Ok(Returning {
        member,
        uuid: record.uuid,
        since,
        cause,
    })
}

/// Whether what was found is a member that counts, and nobody else has made it take part in
/// anything: it has the record that is durable, or one of those that were attempted since.
/// `attempted` is the latest of these, or the durable one itself. Gives its place.
///
/// # Errors
/// Why it is not.
pub fn is_as_it_was(
    found: &Found,
    superblock: &Superblock,
    durable: &ArrayConfig,
    attempted: &ArrayConfig,
) -> Result<MemberIndex, NoReturn> {
    let claim = claim_of_place(found, superblock, durable)?;
    let member = claim.member();
    let own = (claim.update(), claim.config.update_id);
    if own.0 < durable.update || attempted.id_of(own.0) != Some(own.1) {
        return Err(NoReturn::OtherRecord {
            member,
            update: own,
            held: (durable.update, lower_half(durable.update_id)),
        });
    }
    Ok(member)
}

/// What the maker calls a drive; a path is only a hint.
fn hard(identity: &DriveIdentity) -> Option<&str> {
    let text = identity.as_str();
    let is_hard = text.starts_with("wwid:") || text.starts_with("serial:");
    is_hard.then_some(text)
}

/// What is erased on a drive before it is a member again: pieces in its log would be written over
/// what came after them, and its copies of the region map are old.
#[must_use]
pub fn areas_to_erase(superblock: &Superblock) -> Vec<Area> {
    let layout = &superblock.layout;
    vec![layout.log, layout.region_map]
}

impl Assembly {
    /// What is written again at a start was written, whatever the map says.
    pub fn note_written(&self, regions: &mut RegionMap, redo: &[Redo]) {
        let geometry = &self.superblock.geometry;
        for part in redo {
            let block = part.offset >> geometry.block_size().shift();
            let region = regions
                .space()
                .region(geometry.stripe_at(part.member, block));
            regions.note_written(region);
        }
    }

    /// As `note_written`; and what the log made an engine write at its start, members lack that
    /// were in use before and are not here. Their regions were dirty when the pieces were logged;
    /// should one be clean by now, the record says that such a member misses more.
    pub fn note_replay(&self, next: &mut ArrayConfig, regions: &mut RegionMap, redo: &[Redo]) {
        self.note_written(regions, redo);
        let geometry = &self.superblock.geometry;
        let shift = geometry.block_size().shift();
        for part in redo {
            let stripe = geometry.stripe_at(part.member, part.offset >> shift);
            let region = regions.space().region(stripe);
            let entry = regions.entry(bytes_usize(u64::from(region)));
            if entry.kind == RegionKind::Dirty {
                continue;
            }
            for (record, before) in next.members.iter_mut().zip(&self.config.members) {
                if let (
                    MemberState::Excluded { missed, .. },
                    MemberState::InSync | MemberState::Rebuilding { .. },
                ) = (&mut record.state, before.state)
                {
                    missed.base = missed.base.min(entry.epoch);
                }
            }
        }
    }
}
