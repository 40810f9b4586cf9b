//! Faults to test the tests with. One build (feature `planted`, see `cargo xtask planted`) switches
//! them on at run time, one after another, and the simulator must catch each. In every other build
//! [`is`] is false when it is compiled, and nothing of this is left.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// A write that failed on a member is answered before the member is out.
    AnswerBeforeExclusion = 1,
    /// A write that failed on a member is answered, and nobody is told.
    FailedWriteForgotten,
    /// A write that failed on a member is answered before every reactor acts by the new map.
    AnswerBeforeEveryReactor,
    /// A write that leaves a member out is answered before every reactor leaves it out.
    PlanWithoutBarrier,
    /// A ticket goes on by its plan although the map has changed.
    PlanOfAnOldMap,
    /// Parity is changed by a difference where it may be wrong.
    DeltaAgainstUntrustedParity,
    /// The home is not told that a member failed.
    MessageLost,
    /// A rebuild does not wait for writes to the same stripe.
    RebuildWithoutLanes,
    /// A reconstructing read does not wait for writes to the same stripe.
    ReadWithoutLanes,
    /// A member that is out is read while it has a drive.
    ReadAnExcludedMember,
    /// A member is read where its rebuild has not been.
    ReadAnUnfilledMember,
    /// Copies of a mirror that may differ are read by turns.
    UntrustedMirrorsTakeTurns,
    /// The oldest record that is found decides.
    AcceptTheLowerUpdate,
    /// A torn record counts.
    TornRecordTaken,
    /// Every record is written over the last.
    RecordOverTheLast,
    /// A record that got no further than its first flush leaves its number out.
    NumberOfARecordSkipped,
    /// A record is written to half of the members.
    RecordOnHalfOfTheMembers,
    /// A record counts before it is flushed.
    RecordNotFlushed,
    /// Progress is recorded before what it claims is flushed.
    ProgressBeforeFlush,
    /// A window of a rebuild counts as filling every member that is rebuilt.
    WindowFillsEverybody,
    /// The first record of an engine goes over the last one that is durable.
    StartBeforeFlush,
    /// The array is marked clean while it is in use.
    CleanWhileInUse,
    /// A start commits one record.
    OneRecordAtStart,
    /// A stop commits one record.
    OneRecordAtStop,
    /// An array that is written to for long keeps its record.
    RecordNotRenewed,
    /// One member is not flushed.
    MemberForgottenInFlush,
    /// A flush that failed on a member is answered, and nobody is told.
    FailedFlushForgotten,
    /// A flush counts although another flush of the same drive has failed.
    LaterFlushCounts,
    /// A flush does not wait for another that took its work.
    FlushDoesNotJoin,
    /// What is written while a flush is under way does not count as written.
    WriteDuringFlushForgotten,
    /// The resync leaves out a stripe.
    ResyncSkipsAStripe,
    /// A pass counts one stripe too many as done.
    PassRunsAhead,
    /// What could not be read is answered and not written again.
    MediaErrorStays,
    /// A drive's failure counts against the drive that has replaced it.
    IncarnationIgnored,
    /// One group is turned by one place.
    WrongRotationInOneGroup,
    /// A write does not wait until its region is dirty on the drives.
    WriteBeforeDirty,
    /// Writes to regions that are dirty already do not wait for the records of the start.
    WriteBeforeStart,
    /// The region map counts before it is flushed.
    RegionsNotFlushed,
    /// A region is called clean although writes to it are under way.
    ClearedInUse,
    /// A region is called clean before its members are flushed.
    ClearedBeforeFlush,
    /// A region is called clean although its parity is not trusted.
    ClearedBeforeResync,
    /// A region counts as written before the zeroes on its members are flushed.
    WrittenBeforeZeroes,
    /// A region counts as written before it is zeroed.
    RegionsNotZeroed,
    /// A region is zeroed on members with data only.
    ZeroesWithoutParity,
    /// A region is not zeroed on members that are being filled.
    ZeroesWithoutTheUnfilled,
    /// A region is not zeroed on members that have come since that began.
    ZeroesWithoutNewcomers,
    /// A region counts as written while some reactor reads it from a member that was not zeroed.
    ZeroesBeforeEveryReactor,
    /// A read finds a region unwritten that was when the last map came.
    ZeroesOfAnOldMap,
    /// A write reads old content where nothing was written.
    OldContentOfUnwritten,
    /// A member that comes in lacks nothing of what was written for the first time lately.
    PassSkipsNewRegions,
    /// A scrub looks at regions that were never written.
    ScrubReadsUnwritten,
    /// A holder's failure to take the region map is forgotten.
    RegionCopyForgotten,
    /// The oldest copy of the region map decides.
    OldestRegionsDecide,
    /// Nothing is logged where members are missing.
    LogSkipped,
    /// A logged write goes on before its pieces are flushed.
    LogNotFlushed,
    /// A flush of the log counts although no port had room to ask a drive.
    LogFlushNeedsNoRoom,
    /// A slot of the log is taken again before its write is flushed in its place.
    LogSlotUsedAgainEarly,
    /// A write to a cell that the log still names is not logged.
    NamedCellNotLogged,
    /// What the log holds is written in its place before it is durable where it was found. Not
    /// among those that the simulator must catch, which meets it once in thousands of histories:
    /// `control/host/src/tests/logs.rs` sees it.
    ReplayedUnflushed,
    /// What the log holds is done again before members are out that may know that it was not begun.
    ReplayBeforeExclusion,
    /// Members are out before what had begun is written again, of which only memory tells.
    ExclusionBeforeBegun,
    /// Memory of what was to be written again is used for something else before a drive that is
    /// out has let go of it.
    RewriteReused,
    /// A shard rests on although a message came.
    RestsThroughMessages,
    /// Stripes go to another reactor although writes to them are under way.
    HandedOverUndrained,
    /// Stripes go to another reactor although writes to them are on their way to the one before.
    HandedOverUnfenced,
    /// Stripes go to another reactor while some ask the one before.
    HandedOverAtOnce,
    /// Stripes go to another reactor that does not know what the log has of them.
    HandedOverWithTheLog,
    /// Stripes go to another reactor although the log still names some of them, because all members
    /// are in sync again.
    HandedOverUnderNames,
    /// Stripes go to another reactor while a pass works on them.
    HandedOverInAWindow,
    /// Pieces of dead lives of the log are written again.
    StaleLogReplayed,
    /// What the log still names of long ago is written again.
    OldPiecesReplayed,
    /// A logged write is done again although pieces of it are missing.
    TornLogReplayed,
    /// A write to a part of a block does not bring the rest of the block along.
    PartWithoutTheRest,
    /// A write to a part of a block does not wait for others to the same stripe.
    PartWithoutLanes,
    /// A scrub makes parity of whatever data it finds.
    ScrubRecomputesParity,
    /// A scrub does not wait for writes to the same stripe.
    ScrubWithoutLanes,
    /// A scrub believes parity that a resync is still to make right.
    ScrubTrustsUntrustedParity,
    /// A scrub writes another chunk than the one that is wrong.
    ScrubRepairsTheNeighbour,
    /// A scrub changes a block although it cannot know which chunk is wrong.
    ScrubRepairsWhatItCannotLocate,
    /// A returned member is not filled where regions were called clean by the update that
    /// excluded it.
    EpochOffByOne,
    /// A returned member is not filled where regions are dirty.
    DirtyRegionsNotMissed,
    /// A returned member counts as whole at once.
    ReturnedCountsAsWhole,
    /// What the log held at a start is done again at the next one, too.
    LogOutlivesAStart,
    /// What a returned member had missed is forgotten at a restart.
    MissedForgottenAtRestart,
    /// A member that leaves again while it is filled has missed only what came after.
    LeavesAgainAsWhole,
    /// What a record claims of a pass counts for a member that it excludes, too.
    ClaimsOfTheCommitCount,
    /// Regions become dirty while not every reactor knows of a returned member.
    DirtyBeforeEveryReactor,
    /// A write is logged before its region is dirty on the drives.
    LoggedBeforeDirty,
    /// What a resync changed while a member was out counts as known to it.
    ResyncNotMissed,
    /// What a drive does not answer is given up before its member is out.
    AbandonedBeforeExclusion,
    /// Memory that a drive may still write to is used again.
    AbandonedMemoryReused,
    /// A slow member is read around where parity or copies may be wrong.
    DetourOverUntrusted,
    /// What a member cannot read is made of parity that may be torn from it.
    DoubtfulDecodeBelieved,
    /// A member that does not answer is excluded although stripes wait for their resync.
    LateWhileTorn,
    /// Memory of a read that was given up is used again before the drive has answered.
    GivenUpMemoryReused,
    /// What a drive brings after its read was given up goes to the guest all the same.
    GivenUpReadCopied,
    /// What was given up is reconstructed without waiting for writes to the same stripe.
    HedgeWithoutLanes,
    /// A shard goes on reading as before when all reads are to go through buffers.
    HedgedReadsNotFollowed,
    /// A member of which all reads were given up seems to have answered them.
    GivenUpNotCounted,
    /// As many reads are given up as are kept.
    HedgesWithoutBudget,
    /// A member that lags is left out although it is the last that may be lost.
    LaggardWasTheLastSpare,
    /// A copy of a member counts as if it had been made in one moment, at its end.
    CopyCountsFromItsEnd,
    /// What a copy lacks because the member could not be read counts as copied.
    UnreadableCounts,
    /// A write that waits for a member is answered.
    HeldWriteAnswered,
    /// A write that waited for a member counts as done when the member works again.
    HeldWriteNotRepeated,
    /// A member that keeps a request for ever is not left out as long as it answers others.
    KeptForEver,
    /// A write that was given up is not carried out later.
    GivenUpWriteForgotten,
    /// A write that was logged and then given up is not carried out in its place later.
    GivenUpLogForgotten,
    /// A resync changes parity that the log names, and the log does not say so.
    ResyncNotLogged,
    /// What a drive goes on holding where it refuses a write is not what its row says.
    RefusalNotFollowed,
    /// The log goes on saying what was refused, beside what is written to the row later.
    RefusalNotTold,
    /// The next engine is told of a mended row and of what the log has of it, which differ.
    RefusalBegunBesideTheLog,
    /// What hangs on a refused block that cannot be read is not given up.
    UnreadableRefusalStays,
    /// A write that joined another of its stripe is not copied with it.
    JoinedNotCopied,
    /// A small write changes parity and is not copied.
    SmallWriteNotCopied,
    /// Whole rows get parity and are not copied.
    StripeNotCopied,
    /// A write that joined another is answered before they are written.
    JoinedAnsweredEarly,
    /// A write joins another although it waits for lanes of a third.
    JoinsOverOthers,
    /// Writes that were logged together part when they are planned anew.
    LoggedPart,
    /// What joined a write that was logged and then given up is not kept with it.
    JoinedNotKept,
    /// A write that was put off never begins.
    DelayedForGood,
    /// A flush that waits for a member is answered.
    HeldFlushAnswered,
    /// A member that failed is left out although the array cannot do without it.
    NeededMemberExcluded,
    /// A member whose host has no space left is left out.
    FullMemberExcluded,
    /// Who fails for good is beyond help as long as others are away.
    OpenFateDecided,
    /// An I/O error of a drive that is not there counts as one of its blocks.
    ErrorsBelieved,
    /// A flush that goes well counts while it is open what another one has lost.
    FlushCountsBesideADoubt,
    /// A drive comes into a member's place while what is logged still names the one before it.
    DriveBeforeLogRetired,
    /// A mode that promises more counts although what was begun without it may not have ended.
    ModeCountsAtOnce,
    /// It counts before what was begun without it has ended.
    ModeWithoutDrain,
    /// The next engine does not write again what the killed one had begun.
    BegunNotRedone,
    /// The next engine is not told of writes any more while they are under way.
    BegunForgottenEarly,
    /// The next engine is told of writes before their bytes are complete.
    BegunBeforeComputed,
    /// What an engine before the last one had begun is written again.
    BegunOfAnotherLife,
    /// The next engine is told that parity is trusted while a resync is still to come.
    TrustedTooEarly,
    /// An engine that writes again what the log holds, and dies, leaves the file trusted.
    TrustNotWithdrawn,
    /// As long as a start writes nothing from the log, the next one trusts the file, too.
    TrustOutlivesAStart,
    /// The next engine is not told of a write that ended without being whole.
    TornEndNotTold,
    /// The next engine is not told of a flush that failed.
    FailedFlushNotTold,
    /// Nor of a member that is gone.
    GoneNotTold,
    /// Parity is trusted although a drive did not take what is written again.
    HalfARedoSuffices,
    /// Parity is trusted although a drive was away meanwhile.
    DrivesNotCompared,
    /// A flush that was under way when the engine was killed counts as one that went well.
    FlushUnderWayForgotten,
    /// A member whose flush failed in a start stays one, and parity is made of what it has left.
    UnflushedBelieved,
    /// A member whose drive was away stays one, and parity is made of what it has left.
    AwayBelieved,
    /// A drive is used although what a dead engine has asked of it has not landed. This one and the
    /// next are the simulator's: production leaves it to the kernel's locks
    /// (`datapath/drive/src/open.rs`).
    DeadWritesNotAwaited,
    /// A member comes back although such requests of its drive have not landed.
    LockedDriveReturns,
    /// A new volume is not zeroed.
    NewVolumeNotZeroed,
    /// What a deleted volume held counts as zeroes.
    DeletedVolumeCountsAsZeroes,
    /// Blocks are given up, and the parity of their rows stays as it was.
    ForfeitKeepsParity,
    /// What is given up is logged for a member that is being filled, too.
    ForfeitLogsWhatIsFilled,
    /// After a window that failed, cells are filled again although the log names their member.
    FilledAgainOverTheLog,
    /// Which blocks are lost is forgotten at a restart.
    LostBlocksForgotten,
    /// Zeroes are written over what was lost before it is recorded.
    ForfeitNotRecorded,
    /// A write of a lost block is answered before it is recorded.
    HealedAfterTheAnswer,
    /// A read under way when its block is given up brings the zeroes that are written there.
    ReadOutlivesItsBlock,
    /// A lost block counts as written before what was written is flushed.
    HealedBeforeFlush,
    /// Rows of a read that cannot be read from the same members fail, all of them.
    RowsFailTogether,
    /// The same for what a write needs of its rows.
    RowsOfWritesFailTogether,
    /// Who still waits in a line when its turn is over is forgotten.
    LineForgotten,
    /// A piece of which tickets are still to be made is answered when those made so far are done.
    AnsweredWhileItWaits,
    /// What the drives get is read from the guest's memory a second time, after parity was made.
    GuestMemoryReadTwice,
    /// What a member brings that is out by then counts as read.
    OutMembersBelieved,
    /// The next engine takes for all of a write what its buffers hold while its data is a guest's.
    BorrowedTakenForKept,
    /// Rows whose data was a guest's are left as they are.
    BorrowedNotMended,
    /// Blocks of such rows are read although a member is gone that held them.
    BorrowedBelieved,
    /// A write from a guest's memory that failed is made again from there.
    BorrowedMadeAgain,
    /// A write is answered while a drive reads it from a guest's memory.
    BorrowedAnsweredEarly,
    /// A write is borrowed where nobody has promised to leave its memory alone.
    BorrowedUnpromised,
    /// Memory is let go although a drive may still read it for a write that was given up.
    BorrowersForgotten,
    /// A ticket writes while others compute what it writes.
    HelpedLanesNotAwaited,
    /// The engine panics when it takes a write to [`POISON_SECTOR`] from a ring.
    PoisonedRequest,
    /// The engine panics when it plans a write to [`POISON_STRIPE`].
    PoisonedTicket,
    /// The engine's stack is full when it takes a write to [`POISON_SECTOR`] from a ring.
    PoisonedStack,
}

/// Of a volume, in units of 512 bytes: 2 MiB.
pub const POISON_SECTOR: u64 = 4096;
/// Where that is on an array of two data chunks of 64 KiB, for its first volume.
pub const POISON_STRIPE: u64 = 16;

impl Fault {
    /// Those that end the whole process, for tests of the real program (its variable
    /// `GARBOARD_PLANTED` names one).
    pub const CRASHES: &[Fault] = &[
        Fault::PoisonedRequest,
        Fault::PoisonedTicket,
        Fault::PoisonedStack,
    ];

    /// All that the simulator must catch.
    pub const ALL: &[Fault] = &[
        Fault::AnswerBeforeExclusion,
        Fault::FailedWriteForgotten,
        Fault::AnswerBeforeEveryReactor,
        Fault::PlanWithoutBarrier,
        Fault::PlanOfAnOldMap,
        Fault::DeltaAgainstUntrustedParity,
        Fault::MessageLost,
        Fault::RebuildWithoutLanes,
        Fault::ReadWithoutLanes,
        Fault::ReadAnExcludedMember,
        Fault::ReadAnUnfilledMember,
        Fault::WindowFillsEverybody,
        Fault::UntrustedMirrorsTakeTurns,
        Fault::AcceptTheLowerUpdate,
        Fault::TornRecordTaken,
        Fault::RecordOverTheLast,
        Fault::NumberOfARecordSkipped,
        Fault::RecordOnHalfOfTheMembers,
        Fault::RecordNotFlushed,
        Fault::ProgressBeforeFlush,
        Fault::StartBeforeFlush,
        Fault::CleanWhileInUse,
        Fault::OneRecordAtStart,
        Fault::OneRecordAtStop,
        Fault::RecordNotRenewed,
        Fault::MemberForgottenInFlush,
        Fault::FailedFlushForgotten,
        Fault::LaterFlushCounts,
        Fault::FlushDoesNotJoin,
        Fault::WriteDuringFlushForgotten,
        Fault::ResyncSkipsAStripe,
        Fault::PassRunsAhead,
        Fault::MediaErrorStays,
        Fault::IncarnationIgnored,
        Fault::WrongRotationInOneGroup,
        Fault::WriteBeforeDirty,
        Fault::WriteBeforeStart,
        Fault::RegionsNotFlushed,
        Fault::ClearedInUse,
        Fault::ClearedBeforeFlush,
        Fault::ClearedBeforeResync,
        Fault::WrittenBeforeZeroes,
        Fault::RegionsNotZeroed,
        Fault::ZeroesWithoutParity,
        Fault::ZeroesWithoutTheUnfilled,
        Fault::ZeroesWithoutNewcomers,
        Fault::ZeroesBeforeEveryReactor,
        Fault::ZeroesOfAnOldMap,
        Fault::OldContentOfUnwritten,
        Fault::PassSkipsNewRegions,
        Fault::ScrubReadsUnwritten,
        Fault::RegionCopyForgotten,
        Fault::OldestRegionsDecide,
        Fault::LogSkipped,
        Fault::LogNotFlushed,
        Fault::LogFlushNeedsNoRoom,
        Fault::LogSlotUsedAgainEarly,
        Fault::NamedCellNotLogged,
        Fault::ReplayBeforeExclusion,
        Fault::ExclusionBeforeBegun,
        Fault::RewriteReused,
        Fault::RestsThroughMessages,
        Fault::HandedOverUndrained,
        Fault::HandedOverUnfenced,
        Fault::HandedOverAtOnce,
        Fault::HandedOverWithTheLog,
        Fault::HandedOverUnderNames,
        Fault::HandedOverInAWindow,
        Fault::StaleLogReplayed,
        Fault::OldPiecesReplayed,
        Fault::TornLogReplayed,
        Fault::PartWithoutTheRest,
        Fault::PartWithoutLanes,
        Fault::ScrubRecomputesParity,
        Fault::ScrubWithoutLanes,
        Fault::ScrubTrustsUntrustedParity,
        Fault::ScrubRepairsTheNeighbour,
        Fault::ScrubRepairsWhatItCannotLocate,
        Fault::EpochOffByOne,
        Fault::DirtyRegionsNotMissed,
        Fault::ReturnedCountsAsWhole,
        Fault::LogOutlivesAStart,
        Fault::MissedForgottenAtRestart,
        Fault::LeavesAgainAsWhole,
        Fault::ClaimsOfTheCommitCount,
        Fault::DirtyBeforeEveryReactor,
        Fault::LoggedBeforeDirty,
        Fault::ResyncNotMissed,
        Fault::AbandonedBeforeExclusion,
        Fault::AbandonedMemoryReused,
        Fault::DetourOverUntrusted,
        Fault::DoubtfulDecodeBelieved,
        Fault::LateWhileTorn,
        Fault::GivenUpMemoryReused,
        Fault::GivenUpReadCopied,
        Fault::HedgeWithoutLanes,
        Fault::HedgedReadsNotFollowed,
        Fault::HedgesWithoutBudget,
        Fault::GivenUpNotCounted,
        Fault::LaggardWasTheLastSpare,
        Fault::CopyCountsFromItsEnd,
        Fault::UnreadableCounts,
        Fault::HeldWriteAnswered,
        Fault::HeldWriteNotRepeated,
        Fault::KeptForEver,
        Fault::GivenUpWriteForgotten,
        Fault::GivenUpLogForgotten,
        Fault::ResyncNotLogged,
        Fault::RefusalNotFollowed,
        Fault::RefusalNotTold,
        Fault::RefusalBegunBesideTheLog,
        Fault::UnreadableRefusalStays,
        Fault::JoinedNotCopied,
        Fault::SmallWriteNotCopied,
        Fault::StripeNotCopied,
        Fault::JoinedAnsweredEarly,
        Fault::JoinsOverOthers,
        Fault::LoggedPart,
        Fault::JoinedNotKept,
        Fault::DelayedForGood,
        Fault::HeldFlushAnswered,
        Fault::NeededMemberExcluded,
        Fault::FullMemberExcluded,
        Fault::OpenFateDecided,
        Fault::ErrorsBelieved,
        Fault::FlushCountsBesideADoubt,
        Fault::DriveBeforeLogRetired,
        Fault::ModeCountsAtOnce,
        Fault::ModeWithoutDrain,
        Fault::BegunNotRedone,
        Fault::BegunForgottenEarly,
        Fault::BegunBeforeComputed,
        Fault::BegunOfAnotherLife,
        Fault::TrustedTooEarly,
        Fault::TrustNotWithdrawn,
        Fault::TrustOutlivesAStart,
        Fault::TornEndNotTold,
        Fault::FailedFlushNotTold,
        Fault::GoneNotTold,
        Fault::HalfARedoSuffices,
        Fault::DrivesNotCompared,
        Fault::FlushUnderWayForgotten,
        Fault::UnflushedBelieved,
        Fault::AwayBelieved,
        Fault::DeadWritesNotAwaited,
        Fault::LockedDriveReturns,
        Fault::NewVolumeNotZeroed,
        Fault::DeletedVolumeCountsAsZeroes,
        Fault::ForfeitKeepsParity,
        Fault::ForfeitLogsWhatIsFilled,
        Fault::FilledAgainOverTheLog,
        Fault::LostBlocksForgotten,
        Fault::ForfeitNotRecorded,
        Fault::HealedAfterTheAnswer,
        Fault::ReadOutlivesItsBlock,
        Fault::HealedBeforeFlush,
        Fault::RowsFailTogether,
        Fault::RowsOfWritesFailTogether,
        Fault::LineForgotten,
        Fault::AnsweredWhileItWaits,
        Fault::GuestMemoryReadTwice,
        Fault::OutMembersBelieved,
        Fault::BorrowedTakenForKept,
        Fault::BorrowedNotMended,
        Fault::BorrowedBelieved,
        Fault::BorrowedMadeAgain,
        Fault::BorrowedAnsweredEarly,
        Fault::BorrowedUnpromised,
        Fault::HelpedLanesNotAwaited,
    ];
}

/// The fault that is switched on; zero for none.
static SWITCHED_ON: AtomicU8 = AtomicU8::new(0);

/// Assertions end a process that a fault would lead astray.
static ASSERTED: AtomicBool = AtomicBool::new(false);

/// Whether an assertion is to let pass what a fault breaks, because a test is to find out by what
/// comes of it. In builds without faults it never does.
#[must_use]
pub fn is_forgiven() -> bool {
    cfg!(feature = "planted")
        && SWITCHED_ON.load(Ordering::Relaxed) != 0
        && !ASSERTED.load(Ordering::Relaxed)
}

/// Whether what would cost a request more than a few instructions is asserted as well: in builds
/// for tests, among them that of the simulator.
#[inline(always)]
#[must_use]
pub const fn is_watched() -> bool {
    cfg!(any(debug_assertions, feature = "planted"))
}

/// From now on assertions look at faults, too.
pub fn assert_all() {
    ASSERTED.store(true, Ordering::Relaxed);
}

/// Whether a fault is switched on.
#[inline(always)]
#[must_use]
pub fn is(fault: Fault) -> bool {
    cfg!(feature = "planted") && SWITCHED_ON.load(Ordering::Relaxed) == fault as u8
}

/// Switches one fault on for the whole process, or all off.
///
/// # Panics
/// In a build without the feature `planted`.
pub fn switch_on(fault: Option<Fault>) {
    if !cfg!(feature = "planted") {
        panic!("this build has no faults");
    }
    SWITCHED_ON.store(fault.map_or(0, |fault| fault as u8), Ordering::Relaxed);
}
