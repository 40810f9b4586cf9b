//! Why a drive is left out and why an array may not start, as values and as sentences.

use std::fmt;

use units::{DriveIndex, MemberIndex, Update};
use uuid::Uuid;

use crate::format::{ExclusionCause, FormatError};

/// Why a drive may not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// No copy of its superblock is good.
    Damaged(FormatError),
    /// Written by a newer engine.
    Future(FormatError),
    /// Smaller than when it became a member.
    Shrunk {
        /// Its place.
        member: MemberIndex,
        /// What it has.
        drive_bytes: u64,
        /// What it needs.
        member_bytes: u64,
    },
    /// No config record of it is good.
    NoConfig {
        /// Its place.
        member: MemberIndex,
    },
    /// What may be a newer record of it cannot be read, and the others do not prove that it is
    /// none.
    Hidden {
        /// Its place.
        member: MemberIndex,
    },
    /// Its superblock describes the array otherwise than that of the member that decides.
    OtherLayout {
        /// Its place.
        member: MemberIndex,
    },
    /// A copy of a member, and newer or better known copies are here.
    OlderClone {
        /// Its place.
        member: MemberIndex,
        /// The copy that is used.
        used: DriveIndex,
        /// This copy's own record.
        update: Update,
    },
    /// One of several copies of a member; nothing tells which is right.
    Clone {
        /// Its place.
        member: MemberIndex,
        /// Another one.
        other: DriveIndex,
        /// The record of both.
        update: Update,
    },
    /// Another drive took its place.
    Replaced {
        /// The place.
        member: MemberIndex,
        /// Its own record.
        update: Update,
        /// The record that decides.
        newest: Update,
    },
    /// Excluded by the array.
    Excluded {
        /// Its place.
        member: MemberIndex,
        /// By this update.
        since: Update,
        /// Why.
        cause: ExclusionCause,
    },
    /// Its own record is too old.
    Stale {
        /// Its place.
        member: MemberIndex,
        /// Which member.
        member_uuid: Uuid,
        /// Its own record.
        update: Update,
        /// The record that decides.
        newest: Update,
    },
    /// Its own record is of an update that was never committed.
    Abandoned {
        /// Its place.
        member: MemberIndex,
        /// Its own record.
        update: Update,
        /// The record that decides.
        newest: Update,
    },
    /// It and others went on without each other.
    SplitBrain {
        /// Its place.
        member: MemberIndex,
        /// Its own record, and the record's id.
        update: (Update, u128),
        /// The record of the others, and its id.
        other: (Update, u128),
    },
}

impl LeftOut {
    /// The place that the drive claims, as far as it can be read.
    #[must_use]
    pub fn member(&self) -> Option<MemberIndex> {
        match self {
            LeftOut::Damaged(_) | LeftOut::Future(_) => None,
            LeftOut::Shrunk { member, .. }
            | LeftOut::NoConfig { member }
            | LeftOut::Hidden { member }
            | LeftOut::OtherLayout { member }
            | LeftOut::OlderClone { member, .. }
            | LeftOut::Clone { member, .. }
            | LeftOut::Replaced { member, .. }
            | LeftOut::Excluded { member, .. }
            | LeftOut::Stale { member, .. }
            | LeftOut::Abandoned { member, .. }
            | LeftOut::SplitBrain { member, .. } => Some(*member),
        }
    }

    /// As a sentence that calls drives as `name` does.
    #[must_use]
    pub fn told(&self, name: &dyn Fn(DriveIndex) -> String) -> String {
        match self {
            LeftOut::OlderClone {
                member,
                used,
                update,
            } => {
                let used = name(*used);
                format!("{member}: copy with {update}; {used} is used instead")
            }
            LeftOut::Clone {
                member,
                other,
                update,
            } => {
                let other = name(*other);
                format!("{member}: {other} claims to be the same member with the same {update}")
            }
            LeftOut::Damaged(_)
            | LeftOut::Future(_)
            | LeftOut::Shrunk { .. }
            | LeftOut::NoConfig { .. }
            | LeftOut::Hidden { .. }
            | LeftOut::OtherLayout { .. }
            | LeftOut::Replaced { .. }
            | LeftOut::Excluded { .. }
            | LeftOut::Stale { .. }
            | LeftOut::Abandoned { .. }
            | LeftOut::SplitBrain { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Damaged(error) => write!(f, "no copy of the superblock is good: {error}"),
            LeftOut::Future(error) => write!(f, "{error}"),
            LeftOut::Shrunk {
                member,
                drive_bytes,
                member_bytes,
            } => write!(
                f,
                "{member}: drive has shrunk to {drive_bytes} bytes, the member needs {member_bytes}"
            ),
            LeftOut::NoConfig { member } => write!(f, "{member}: no good config record"),
            LeftOut::Hidden { member } => {
                write!(
                    f,
                    "{member}: what may be a newer record of it cannot be read"
                )
            }
            LeftOut::OtherLayout { member } => write!(
                f,
                "{member}: superblock describes another layout than that of the other members"
            ),
            LeftOut::OlderClone { .. } | LeftOut::Clone { .. } => {
                f.write_str(&self.told(&|drive| drive.to_string()))
            }
            LeftOut::Replaced {
                member,
                update,
                newest,
            } => write!(
                f,
                "{member}: {update}; another drive took its place by {newest}"
            ),
            LeftOut::Excluded {
                member,
                since,
                cause,
            } => write!(f, "{member}: excluded by {since}: {cause}"),
            LeftOut::Stale {
                member,
                update,
                newest,
                member_uuid: _,
            } => write!(f, "{member}: superblock {update} is older than {newest}"),
            LeftOut::Abandoned {
                member,
                update,
                newest,
            } => write!(
                f,
                "{member}: its {update} was never committed; the array went on to {newest}"
            ),
            LeftOut::SplitBrain {
                member,
                update: (update, id),
                other: (other, other_id),
            } => write!(
                f,
                "{member}: wrote {update} ({id:032x}) alone while others wrote {other} \
                 ({other_id:032x})"
            ),
        }
    }
}

/// Whether an array may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, by itself.
    Startable {
        /// Some member is not in sync.
        degraded: bool,
        /// It was not stopped cleanly.
        dirty: bool,
    },
    /// Enough members are here to read everything, but others may have gone on without them.
    NeedsForce {
        /// Who is here, who is not.
        explanation: String,
    },
    /// Too few members are here.
    Failed {
        /// Which group lacks how many.
        explanation: String,
    },
    /// Starting could lose acknowledged writes or misread what is there.
    Refused {
        /// Why.
        explanation: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Startable { degraded, dirty } => {
                let members = if *degraded { "degraded" } else { "complete" };
                let stop = if *dirty {
                    "not stopped cleanly"
                } else {
                    "clean"
                };
                write!(f, "can start: {members}, {stop}")
            }
            Verdict::NeedsForce { explanation } => write!(f, "needs --force: {explanation}"),
            Verdict::Failed { explanation } => write!(f, "failed: {explanation}"),
            Verdict::Refused { explanation } => write!(f, "refused: {explanation}"),
        }
    }
}
