//! What an array asks of the world around it, and what the shards of an array tell each other.
//!
//! The shards are state machines without I/O, clock or thread: production hands in reactors and
//! drives, the simulator hands in false ones.

use std::fmt;
use std::sync::Arc;

use block::{Completion, Cookie, Full, Histogram, Operation, Part, Stability, Status};
use memory::SegmentList;
use units::{DriveIndex, Instant, MemberIndex, ReactorIndex, Role};

use crate::format::ExclusionCause;
use crate::laggards::MemberPace;
use crate::lent::Lent;
use crate::losses::{LossChange, Rows};
use crate::map::ArrayMap;
use crate::scrub::{ScrubFinding, WindowTally};

/// What a member's drive is asked. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemberRequest {
    /// The drive behind the member.
    pub drive: DriveIndex,
    /// Which kind.
    pub operation: Operation,
    /// First byte on the drive.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Where the bytes are or go.
    pub segments: SegmentList,
    /// Comes back to [`crate::Shard::drive_done`].
    pub cookie: Cookie,
}

/// How long reads and writes of a drive took.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    /// How many of each there were: who has seen as many has seen all.
    pub counts: [u64; 2],
    /// By how long they took.
    pub took: [&'a Histogram; 2],
}

/// Who may help a shard with what it is about to compute.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    reactors: [ReactorIndex; Help::MOST],
    count: usize,
    /// How many pieces of it the shard does itself, at the most.
    pub own: u32,
}

impl Help {
    /// The most that help with one ticket.
    pub const MOST: usize = 3;
    /// Nobody does.
    pub const NOBODY: Help = Help {
        reactors: [ReactorIndex(0); Help::MOST],
        count: 0,
        own: u32::MAX,
    };

    /// Who may.
    #[must_use]
    pub fn reactors(&self) -> &[ReactorIndex] {
        &self.reactors[..self.count]
    }

    /// Adds one, if there is room; whether there is for more.
    pub fn add(&mut self, reactor: ReactorIndex) -> bool {
        if let Some(place) = self.reactors.get_mut(self.count) {
            *place = reactor;
            self.count += 1;
        }
        self.count < Help::MOST
    }
}

/// The world around one shard, on one reactor.
pub trait Io {
    /// The time now.
    fn now(&self) -> Instant;
    /// How many member requests can be submitted now.
    fn drive_room(&self) -> usize;
    /// Submits one member request.
    ///
    /// # Panics
    /// May panic when there was no room; the caller looks first.
    fn drive(&mut self, request: MemberRequest);
    /// Whether what this drive has answered is durable already, so that a flush has nothing to do.
    fn keeps_all(&self, drive: DriveIndex) -> bool {
        let _ = drive;
        false
    }
    /// How long reads and writes of a drive took that were asked for here, as long as this reactor
    /// has had the drive; `None` when nobody counts.
    fn times(&self, drive: DriveIndex) -> Option<Times<'_>>;
    /// Sends a request to the shard of this array on another reactor; it answers with exactly one
    /// reply. Hands the message back when there is no room for it or for its reply.
    ///
    /// # Errors
    /// `Full` with the message.
    fn ask(&mut self, to: ReactorIndex, message: Message) -> Result<(), Full<Message>>;
    /// Which reactors beside this one are awake, have nothing to do, and have room for a message.
    fn help(&mut self) -> Help {
        Help::NOBODY
    }
    /// Shows the others at once what they were asked, which else they see after this turn.
    fn show(&mut self) {}
    /// Answers a message of another reactor. Room was reserved when it was asked.
    fn reply(&mut self, to: ReactorIndex, message: Message);
    /// Answers a request of the layer above.
    fn complete(&mut self, completion: Completion);
    /// Tells the control path what happened.
    fn event(&mut self, event: Event);
}

/// What shards of one array tell each other.
pub enum Message {
    /// Asks the owner of a run of stripes to carry out a piece of a request.
    Work(WorkMessage),
    /// The answer to `Work`.
    WorkDone {
        /// The asker's request slot.
        request: u32,
        /// The verdict on the piece.
        status: Status,
    },
    /// A new map. Answered by `Installed` once the shard acts by it.
    Install(Arc<ArrayMap>),
    /// The answer to `Install` and to `Effective`.
    Installed {
        /// Serial of the map.
        serial: u64,
    },
    /// Every shard acts by the map of this serial: what depends on it may be acknowledged.
    Effective {
        /// Serial of the map.
        serial: u64,
    },
    /// A member failed; its home decides.
    Report(MemberFailure),
    /// A shard has done its part of the background window.
    WindowDone {
        /// Serial of the map that opened the window.
        serial: u64,
        /// Whether every unit succeeded.
        ok: bool,
        /// What a scrub found.
        tally: WindowTally,
    },
    /// Asks the home to make a region dirty on the drives. Answered by `DirtyDone` when that is
    /// done, or will never be.
    Dirty {
        /// Which.
        region: u32,
    },
    /// The home is about to call regions clean: the shard keeps those dirty in which it has writes
    /// under way. Answered by `Kept`.
    KeepDirty,
    /// The answer to `KeepDirty`.
    Kept,
    /// The answer to `Dirty`.
    DirtyDone {
        /// Which.
        region: u32,
    },
    /// Asks to finish what was logged in lives of the log before this one, and writes begun by
    /// maps before that of a serial. Answered by `LogDrained` when that is done.
    DrainLog {
        /// The life.
        life: u64,
        /// The serial; 0: such writes do not matter.
        since: u64,
    },
    /// The answer to `DrainLog`.
    LogDrained,
    /// Asks to make sure that whatever the shard has asked `owner` before has come there. Answered
    /// by `Fenced` when it has.
    Fence {
        /// Whose stripes go to others.
        owner: ReactorIndex,
    },
    /// The answer to `Fence`.
    Fenced,
    /// Asks nothing: the answer, `Heard`, shows that what was sent before has come.
    Knock,
    /// The answer to `Knock`.
    Heard,
    /// Asks to finish whatever is under way on stripes that nobody owns by the map. Answered by
    /// `HandedOver` when that is done, or when there are none any more.
    HandOver,
    /// The answer to `HandOver`.
    HandedOver {
        /// The log of the shard names what it has written.
        named: bool,
    },
    /// Asks whether requests to a member that is waited for have not gone well yet. Answered by
    /// `HoldState`.
    HoldCheck {
        /// The member.
        member: MemberIndex,
    },
    /// The answer to `HoldCheck`.
    HoldState {
        /// Whether some have not.
        waits: bool,
    },
    /// Asks the home to change the list of lost blocks. Answered by `LossesChanged` once that is
    /// durable and every shard acts by it, or cannot be.
    ChangeLosses {
        /// How.
        change: LossChange,
        /// Which blocks.
        rows: Rows,
    },
    /// The answer to `ChangeLosses`.
    LossesChanged {
        /// Whether it was done.
        ok: bool,
    },
    /// Asks to help with rows of a ticket, as far as nobody has taken them. Answered by `Lent` when
    /// none is left.
    Lend(Arc<Lent>),
    /// The answer to `Lend`.
    Lent {
        /// The asker's number for it.
        record: u32,
    },
    /// The answer to all that needs no other.
    Ack,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Work(work) => write!(
                f,
                "Work({:?} {}+{})",
                work.operation, work.start, work.blocks
            ),
            Message::WorkDone { request, status } => write!(f, "WorkDone({request} {status:?})"),
            Message::Install(map) => write!(f, "Install({})", map.serial),
            Message::Installed { serial } => write!(f, "Installed({serial})"),
            Message::Effective { serial } => write!(f, "Effective({serial})"),
            Message::Report(failure) => write!(f, "Report({failure:?})"),
            Message::WindowDone { serial, ok, .. } => write!(f, "WindowDone({serial} {ok})"),
            Message::Dirty { region } => write!(f, "Dirty({region})"),
            Message::DirtyDone { region } => write!(f, "DirtyDone({region})"),
            Message::KeepDirty => write!(f, "KeepDirty"),
            Message::Kept => write!(f, "Kept"),
            Message::DrainLog { life, .. } => write!(f, "DrainLog({life:?})"),
            Message::LogDrained => write!(f, "LogDrained"),
            Message::Fence { owner } => write!(f, "Fence({owner})"),
            Message::Fenced => write!(f, "Fenced"),
            Message::Knock => write!(f, "Knock"),
            Message::Heard => write!(f, "Heard"),
            Message::HandOver => write!(f, "HandOver"),
            Message::HandedOver { named } => write!(f, "HandedOver({named})"),
            Message::HoldCheck { member } => write!(f, "HoldCheck({member})"),
            Message::HoldState { waits } => write!(f, "HoldState({waits})"),
            Message::ChangeLosses { change, rows } => {
                write!(f, "ChangeLosses({change:?} {rows:?})")
            }
            Message::LossesChanged { ok } => write!(f, "LossesChanged({ok})"),
            Message::Lend(lent) => write!(f, "Lend({})", lent.record()),
            Message::Lent { record } => write!(f, "Lent({record})"),
            Message::Ack => write!(f, "Ack"),
        }
    }
}

const _: () = assert!(
    size_of::<Message>() <= 56,
    "a message and its header fill one cache line"
);

/// What came of reading blocks directly from the chunk in some role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It failed, in the guest's memory: if they cannot be read into the owner's either, they are
    /// to be reconstructed and rewritten.
    Failed(Role),
    /// It was given up: they are to be reconstructed if that may be.
    Late(Role),
}

/// A piece of a request for the owner of its stripes.
#[derive(Clone, Copy, Debug)]
pub struct WorkMessage {
    /// The asker's request slot.
    pub request: u32,
    /// The volume's number: whose turn it is is decided by volume.
    pub line: u16,
    /// Which kind.
    pub operation: Operation,
    /// What the asker met when it read the blocks directly.
    pub trouble: Option<Trouble>,
    /// First block in the array.
    pub start: u64,
    /// How many blocks; all in one bucket run.
    pub blocks: u32,
    /// Whole blocks, or which bytes of the one block.
    pub part: Part,
    /// Where in the segments the piece begins, in bytes.
    pub offset: u32,
    /// The whole request's memory.
    pub segments: SegmentList,
    /// What may become of it meanwhile.
    pub stability: Stability,
}

/// A member that failed a write or a flush, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "one says that nothing failed, the other that what failed may pass"
)]
pub struct MemberFailure {
    /// Which member.
    pub member: MemberIndex,
    /// Which filling of that member: a failure of a drive that was replaced meanwhile is stale.
    pub incarnation: u32,
    /// What its drive said.
    pub status: Status,
    /// Nothing failed: its drive does not answer.
    pub late: bool,
    /// What failed may go well another time, and nothing is lost meanwhile.
    pub passing: bool,
}

impl MemberFailure {
    /// The same member was told of once more.
    pub(crate) fn take(&mut self, other: MemberFailure) {
        if other.late {
            return;
        }
        let passing = other.passing && (self.late || self.passing);
        *self = MemberFailure { passing, ..other };
    }
}

/// What the control path is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member was excluded; the array acts by it everywhere.
    MemberExcluded {
        /// Which member.
        member: MemberIndex,
        /// What its drive said.
        status: Status,
    },
    /// A member that was out is back: what it has missed is being filled.
    MemberReturned {
        /// Which member.
        member: MemberIndex,
        /// So many regions.
        regions: usize,
    },
    /// A member has taken longer than its peers for a while: it is read around.
    MemberLags {
        /// Which member.
        member: MemberIndex,
        /// How it keeps up.
        pace: MemberPace,
    },
    /// A member that lagged does not any more, or is another drive.
    MemberKeepsUp {
        /// Which member.
        member: MemberIndex,
    },
    /// A member has taken longer than its peers for so long, or could so often not read, that it is
    /// being left out.
    MemberLeftBehind {
        /// Which member.
        member: MemberIndex,
        /// How it did.
        pace: MemberPace,
        /// Which of the two.
        cause: ExclusionCause,
    },
    /// A member that the array cannot do without may have lost what it was to keep.
    BeyondRedundancy {
        /// Which member.
        member: MemberIndex,
        /// What its drive said.
        status: Status,
    },
    /// A member fails and is waited for; what needs it waits.
    Holds {
        /// Which member.
        member: MemberIndex,
        /// What its drive said.
        status: Status,
    },
    /// Members were waited for in vain: what needs them fails until they work again.
    HoldTimedOut {
        /// For how long.
        after: std::time::Duration,
    },
    /// A member that was waited for works again.
    MemberWorks {
        /// Which.
        member: MemberIndex,
    },
    /// No member is waited for any more.
    Resumes {
        /// For how long some was.
        after: std::time::Duration,
    },
    /// A background pass began, ended, or stopped at an error.
    Pass {
        /// Which.
        pass: crate::map::Pass,
        /// How it stands.
        state: PassEvent,
    },
    /// A scrub found something. Of many in one window, only the first are told one by one.
    Scrubbed(ScrubFinding),
    /// Blocks were given up: nobody can tell what they held.
    BlocksLost {
        /// The first block of the array.
        first: u64,
        /// How many in its row.
        blocks: u64,
        /// How many are lost now.
        total: u64,
    },
    /// A write failed because the drive of a member that is needed refuses it, and is there. Or
    /// regions are not written for a while, because it refuses what they need before that.
    WriteRefused {
        /// Which member.
        member: MemberIndex,
        /// The first block of the array that this is about, in the first of the rows.
        first: u64,
        /// Of how many rows, one after another, a block is refused; or all that the regions have.
        rows: u32,
    },
    /// The drive of a member that is needed refuses its record at the start of a config area: from
    /// now on it is in the middle.
    RecordMoved {
        /// Which member.
        member: MemberIndex,
    },
    /// The drive of a member that is needed refuses a slot of its log: others are used.
    LogSlotRefused {
        /// Which member.
        member: MemberIndex,
    },
    /// Nobody can tell what blocks held, and the list of lost blocks has no room for them.
    LostListFull {
        /// The first block of the array.
        first: u64,
    },
    /// Nobody can tell what blocks held, but a member that is out may have them still: the pass
    /// stops.
    NotGivenUp {
        /// The first block of the array.
        first: u64,
        /// The member that may have them.
        member: MemberIndex,
    },
    /// Lost blocks were written anew.
    BlocksHealed {
        /// How many are lost still.
        total: u64,
    },
    /// Metadata could not be written: the array takes no more writes.
    MetadataFailed,
    /// A command of the control path is done.
    CommandDone {
        /// The command's number.
        id: u64,
        /// What came of it.
        result: Result<(), crate::command::Refusal>,
    },
}

impl Event {
    /// A command that is not carried out.
    pub(crate) fn refused(id: u64, refusal: crate::command::Refusal) -> Event {
        let result = Err(refusal);
        Event::CommandDone { id, result }
    }
}

/// How a background pass stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassEvent {
    /// It began.
    Began,
    /// It reached the end.
    Finished,
    /// A stripe could not be read or written; the pass will not go on by itself.
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_member_again_counts_unless_nothing_failed() {
        let told = |status, late, passing| MemberFailure {
            member: MemberIndex(1),
            incarnation: 2,
            status,
            late,
            passing,
        };
        let late = told(Status::Gone, true, false);
        let lasts = |status| told(status, false, false);
        let passes = |status| told(status, false, true);
        for (before, again, expected) in [
            (passes(Status::NoSpace), late, passes(Status::NoSpace)),
            (lasts(Status::Media), late, lasts(Status::Media)),
            (late, late, late),
            // The latest word of the drive counts, and what has lasted once goes on to.
            (late, passes(Status::Gone), passes(Status::Gone)),
            (late, lasts(Status::Media), lasts(Status::Media)),
            (
                passes(Status::Gone),
                passes(Status::NoSpace),
                passes(Status::NoSpace),
            ),
            (
                passes(Status::Gone),
                lasts(Status::Media),
                lasts(Status::Media),
            ),
            (
                lasts(Status::Media),
                passes(Status::Gone),
                lasts(Status::Gone),
            ),
        ] {
            let mut failure = before;
            failure.take(again);
            assert_eq!(failure, expected, "{before:?}, then {again:?}");
        }
    }

    #[test]
    fn as_many_help_as_there_is_room_for() {
        let mut help = Help::NOBODY;
        let room = [0, 1, 2, 3].map(|reactor| help.add(ReactorIndex(reactor)));
        assert_eq!(room, [true, true, false, false]);
        assert_eq!(help.reactors(), [0, 1, 2].map(ReactorIndex));
    }
}
