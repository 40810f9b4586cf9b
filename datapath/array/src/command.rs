//! What the control path can ask of an array. The home carries it out, one command after another
//! (`shard/coordinate`).

use std::fmt;
use std::sync::Arc;

use units::{MemberIndex, Update};
use uuid::Uuid;

use crate::coordinator::MemberPlace;
use crate::format::{ArrayOptions, DriveIdentity, ExtentRun, MemberRecord, VolumeRecord};
use crate::owners::Owners;
use crate::planted::{self, Fault};
use crate::scrub::ScrubOrder;

/// What the control path can ask of an array.
#[derive(Clone, Debug)]
pub enum Command {
    /// Commits the configuration that the coordinator began with; nothing may be written before.
    Start,
    /// Excludes a member.
    Fail {
        /// Which.
        member: MemberIndex,
    },
    /// Excludes a member of which a copy is about to take its place; it may return by itself when
    /// that comes to nothing.
    Leave {
        /// Which.
        member: MemberIndex,
    },
    /// Puts a formatted drive in the place of a member that is out; its rebuild begins by itself
    /// where passes run.
    Replace {
        /// Which.
        member: MemberIndex,
        /// The new drive.
        place: MemberPlace,
        /// Its record; the state is set here.
        record: MemberRecord,
        /// It holds a copy of the member that is out: nothing that this one was asked to write in
        /// a region that is clean since an update before this one is missing. See
        /// [`Command::Copying`].
        copied: Option<Update>,
    },
    /// Says how a copy of a member in sync is coming along, which is to take its place. Commits a
    /// record that changes nothing, so that regions which are called clean from now on are told
    /// from those that were before.
    Copying {
        /// Which member.
        member: MemberIndex,
        /// How.
        step: Copying,
    },
    /// Calls regions dirty, as if they were to be written: a copy lacks what they hold. Answered
    /// when they are on the drives.
    Dirty {
        /// Which; a few.
        regions: Vec<u32>,
    },
    /// Takes a drive back that was this member when it was excluded; only what it has missed
    /// since is filled. Its log and its copies of the region map are erased already.
    Return {
        /// Which.
        member: MemberIndex,
        /// Where it is.
        place: MemberPlace,
        /// The member's uuid, as the drive has it.
        uuid: Uuid,
        /// What names the drive now.
        identity: DriveIdentity,
    },
    /// Nothing: answered when every change before it is through on every shard.
    Settle,
    /// Excludes a member whose drive is taken away; it may return by itself.
    Remove {
        /// Which.
        member: MemberIndex,
    },
    /// Replaces the volume table.
    Volumes {
        /// All volumes.
        volumes: Vec<VolumeRecord>,
        /// All extents that may hold old data.
        unzeroed: Vec<ExtentRun>,
    },
    /// Replaces the options.
    Options(ArrayOptions),
    /// Lets background passes run, or not.
    Passes {
        /// Whether they run.
        run: bool,
    },
    /// Makes all parity untrusted, so that a resync computes it anew.
    Resync,
    /// Gives stripes to other reactors, some at a time, while requests go on. Refused when what is
    /// under way there does not end soon; what was given before stays so.
    Distribute(Arc<Owners>),
    /// Begins or pauses the scrub.
    Scrub(ScrubOrder),
    /// Marks the array clean. Requests must have ended; none is taken afterwards.
    Stop,
}

impl Command {
    /// Whether a command waits until no window of a pass is open.
    pub(crate) fn needs_quiet(&self) -> bool {
        match self {
            Command::Replace { .. }
            | Command::Return { .. }
            | Command::Copying {
                step: Copying::Begins,
                ..
            }
            | Command::Stop
            | Command::Resync
            | Command::Scrub(_) => true,
            Command::Distribute(_) => !planted::is(Fault::HandedOverInAWindow),
            Command::Start
            | Command::Fail { .. }
            | Command::Leave { .. }
            | Command::Copying { .. }
            | Command::Dirty { .. }
            | Command::Settle
            | Command::Remove { .. }
            | Command::Volumes { .. }
            | Command::Options(_)
            | Command::Passes { .. } => false,
        }
    }
}

/// How a copy of a member is coming along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// It begins.
    Begins,
    /// It goes on from an update that was committed since.
    GoesOn,
    /// It is not made any more.
    Ends,
}

/// Why a command was not carried out. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The array would lose data.
    Unsafe(String),
    /// The state does not allow it.
    Invalid(String),
    /// There is no room for the record.
    Full(String),
    /// Metadata cannot be written.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unsafe(text)
            | Refusal::Invalid(text)
            | Refusal::Full(text)
            | Refusal::Failed(text) => f.write_str(text),
        }
    }
}
