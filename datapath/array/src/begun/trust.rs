//! Whether the file of a killed engine speaks for parity: then, once what it had begun is written
//! again, nothing is to be resynchronised. The conditions and their proof are in
//! docs/design/007-no-resync-after-a-kill.md. One doubt, and the regions in use are resynced as
//! after a power failure.

use std::fmt;
use std::io;
use std::time::Duration;

use units::limits::ARRAY_MEMBERS_MAX;
use units::{MemberIndex, bytes_u64, bytes_usize};

use super::{
    BegunWrites, FLUSH_MEMBER, FLUSH_OLDEST, FLUSH_OTHERS, FLUSHING_WORDS, GONE_WORDS,
    HEAD_APPEARANCES, HEAD_CLOCK, HEAD_FLUSHING, HEAD_GONE, HEAD_HELD, HEAD_TORN, HEAD_TRUST,
    HEAD_UNFLUSHED, MAGIC, TRUSTED, unflushed,
};
use crate::assembly::{Assembly, Verdict};
use crate::format::MemberState;
use crate::planted::{self, Fault};

/// A flush that has ended within this time has not failed: kernels try again for far longer.
const YOUNG: Duration = Duration::from_secs(1);

/// Whether a flush may have failed that was asked for at `since`, and has ended before the drives
/// were locked. Times are what the machine was up.
fn may_have_failed(since: Duration, locked: Option<Duration>) -> bool {
    let took = locked.and_then(|locked| locked.checked_sub(since));
    took.is_none_or(|took| took >= YOUNG) && !planted::is(Fault::FlushUnderWayForgotten)
}

/// Flushes of a shard that were under way.
#[derive(Clone, Copy, Debug)]
struct Flushes {
    /// When the oldest was asked for, and of whom, if that is known.
    since: Duration,
    member: Option<MemberIndex>,
    /// When the oldest of any other member was.
    others: Option<Duration>,
}

impl Flushes {
    /// As the words of a head say, by shard. A member that is none is nobody known.
    fn read(head: &[u64], members: usize) -> Vec<Flushes> {
        let clock = Duration::from_nanos(head[HEAD_CLOCK]);
        let since = |word: u64| clock.saturating_add(Duration::from_nanos(word));
        let lines = head[HEAD_FLUSHING..HEAD_UNFLUSHED].chunks_exact(FLUSHING_WORDS);
        let under_way = lines.filter(|line| line[FLUSH_OLDEST] != 0 || line[FLUSH_OTHERS] != 0);
        let flushes = under_way.map(|line| {
            let times = [line[FLUSH_OLDEST], line[FLUSH_OTHERS]].into_iter();
            let member = bytes_usize(line[FLUSH_MEMBER]).checked_sub(1);
            let member = member.filter(|at| *at < members && line[FLUSH_OLDEST] != 0);
            Flushes {
                since: since(times.filter(|at| *at != 0).min().unwrap_or(0)),
                member: member.map(MemberIndex::from_at),
                others: Some(line[FLUSH_OTHERS]).filter(|at| *at != 0).map(since),
            }
        });
        flushes.collect()
    }
}

/// What the head says besides whose it is.
#[derive(Debug)]
pub(super) struct Told {
    /// What it says itself against parity.
    doubt: Option<Doubt>,
    flushes: Vec<Flushes>,
    /// Members that may have lost something, and why.
    lacking: Vec<(MemberIndex, Why)>,
    appearances: Vec<u64>,
}

impl Told {
    /// From the words of a head, of an array of so many members.
    pub(super) fn read(head: &[u64], members: usize) -> Told {
        let held = HEAD_HELD.iter().any(|word| head[*word] != 0);
        let doubt = match ([head[HEAD_TRUST], head[HEAD_TORN]], held) {
            ([TRUSTED, 0], false) => None,
            ([TRUSTED, 0], true) => Some(Doubt::Held),
            ([TRUSTED, _], _) => Some(Doubt::Torn),
            ([_, _], _) => Some(Doubt::NotTrusted),
        };
        let lacking = (0..ARRAY_MEMBERS_MAX).map(MemberIndex::from_at);
        let lacking = lacking.filter_map(|member| {
            let (word, bit) = unflushed(member);
            let gone = HEAD_GONE + member.at() * GONE_WORDS;
            let gone = head[gone..gone + GONE_WORDS].iter().any(|word| *word != 0);
            let why = gone.then_some(Why::Gone);
            let why = if head[word] & bit == 0 {
                why
            } else {
                Some(Why::FlushFailed)
            };
            Some((member, why?))
        });
        Told {
            doubt,
            flushes: Flushes::read(head, members),
            lacking: lacking.collect(),
            appearances: head[HEAD_APPEARANCES..][..ARRAY_MEMBERS_MAX].to_vec(),
        }
    }

    /// Whether a flush may have failed of which nobody knows whose it was.
    fn may_have_lost(&self, locked: Option<Duration>) -> bool {
        self.flushes.iter().any(|flushes| {
            let others = flushes
                .others
                .is_some_and(|since| may_have_failed(since, locked));
            let unknown = flushes.member.is_none() && may_have_failed(flushes.since, locked);
            others || unknown
        })
    }

    /// What it says of a member.
    fn of(&self, member: MemberIndex, locked: Option<Duration>) -> Option<Why> {
        let lacking = self.lacking.iter().find(|(other, _)| *other == member);
        let hung = self.flushes.iter().any(|flushes| {
            flushes.member == Some(member) && may_have_failed(flushes.since, locked)
        });
        lacking
            .map(|(_, why)| *why)
            .or(hung.then_some(Why::FlushHung))
    }
}

/// What is seen of a drive that was there when the last engine was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It has everything.
    Stayed,
    Lacks(Why),
    Unknown,
}

/// Why a member may have lost what its drive had acknowledged. All the others know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its drive was away since the last engine ended.
    Away,
    /// It was gone when the last engine ended, and not out: it may have lost its power.
    Gone,
    /// A flush of it failed.
    FlushFailed,
    /// A flush of it was under way for long when the last engine ended: it may have failed since.
    FlushHung,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Away => "was away",
            Why::Gone => "was gone when the last engine ended",
            Why::FlushFailed => "failed a flush",
            Why::FlushHung => "had a flush under way for long when the last engine ended",
        })
    }
}

/// Why regions that were in use must be resynced although what was begun there is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The last engine did not trust all parity itself, or was never through with its start.
    NotTrusted,
    /// Some write of it has ended without being whole.
    Torn,
    /// Flushes of several members, of one that is being filled, or of nobody knows whom, were under
    /// way when the last engine ended, for long: they may have failed since.
    FlushHung,
    /// Members were waited for when the last engine ended, and not known to be gone.
    Held,
    /// The drive of a member may have been away, for all that is known.
    Unknown(MemberIndex),
    /// A member may have lost what was not flushed.
    Lacks(MemberIndex, Why),
    /// Fewer members are here than may start by themselves.
    Forced,
    /// A drive does not take what is to be written again, or not all of it.
    Refused(MemberIndex),
    /// Some of the log cannot be read, and counts as nothing.
    LogUnread(MemberIndex),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NotTrusted => f.write_str("a resync was not done, or a start not finished"),
            Doubt::Torn => f.write_str("a write was given up"),
            Doubt::FlushHung => f.write_str("flushes hung when the last engine ended"),
            Doubt::Held => f.write_str("members were waited for when the last engine ended"),
            Doubt::Unknown(member) => {
                write!(f, "nothing shows that the drive of {member} was not away")
            }
            Doubt::Lacks(member, why) => write!(f, "the drive of {member} {why}"),
            Doubt::Forced => f.write_str("most of its members are not here"),
            Doubt::Refused(member) => write!(f, "the drive of {member} did not take it again"),
            Doubt::LogUnread(member) => {
                write!(f, "the drive of {member} cannot read some of its log")
            }
        }
    }
}

impl BegunWrites {
    /// Why the regions in use must be resynced, as far as it is known before anything is written
    /// again. `locked`: how long the machine had been up when the last of the drives that are here
    /// was locked, if that is known; all that the dead engine had asked of them had ended then.
    /// `appearance` is that of a member's drive as it is now; zero when nothing is known.
    ///
    /// A member that is not here is no reason: what it lacks is known from the others.
    #[must_use]
    pub fn doubt(
        &self,
        assembly: &Assembly,
        locked: Option<Duration>,
        appearance: impl Fn(MemberIndex) -> u64 + Clone,
    ) -> Option<Doubt> {
        if self.told.doubt.is_some() {
            return self.told.doubt;
        }
        if self.told.may_have_lost(locked) {
            return Some(Doubt::FlushHung);
        }
        if !matches!(assembly.verdict, Verdict::Startable { .. }) {
            return Some(Doubt::Forced);
        }
        let here = || self.seen(assembly, locked, appearance.clone());
        // To be filled again from the start costs more than such a flush makes likely.
        let is_filled =
            |member: MemberIndex| assembly.config.members[member.at()].state == MemberState::InSync;
        if here().any(|(member, seen)| seen == Seen::Lacks(Why::FlushHung) && !is_filled(member)) {
            return Some(Doubt::FlushHung);
        }
        let unknown = here().find(|(_, seen)| *seen == Seen::Unknown);
        let lacks = here().find_map(|(member, seen)| match seen {
            Seen::Lacks(why) => Some(Doubt::Lacks(member, why)),
            Seen::Stayed | Seen::Unknown => None,
        });
        let unknown = unknown.map(|(member, _)| Doubt::Unknown(member));
        unknown.or(lacks)
    }

    /// Members that are here, and may have lost what was acknowledged and not flushed, and why;
    /// where this is all that is doubted ([`Doubt::Lacks`]), the others know it.
    #[must_use]
    pub fn lacking(
        &self,
        assembly: &Assembly,
        locked: Option<Duration>,
        appearance: impl Fn(MemberIndex) -> u64,
    ) -> Vec<(MemberIndex, Why)> {
        let here = self.seen(assembly, locked, appearance);
        let lacking = here.filter_map(|(member, seen)| match seen {
            Seen::Lacks(why) => Some((member, why)),
            Seen::Stayed | Seen::Unknown => None,
        });
        lacking.collect()
    }

    /// The members that are here, and what is seen of their drives.
    fn seen(
        &self,
        assembly: &Assembly,
        locked: Option<Duration>,
        appearance: impl Fn(MemberIndex) -> u64,
    ) -> impl Iterator<Item = (MemberIndex, Seen)> {
        let told = self.told.appearances.iter().zip(&assembly.members);
        let here = told.enumerate().filter(|(_, (_, drive))| drive.is_some());
        here.map(move |(position, (&before, _))| {
            let member = MemberIndex::from_at(position);
            let told = self.told.of(member, locked);
            let seen = match (told, before, appearance(member)) {
                (Some(why), _, _) => Seen::Lacks(why),
                (None, _, _) if planted::is(Fault::DrivesNotCompared) => Seen::Stayed,
                (None, 0, _) | (None, _, 0) => Seen::Unknown,
                (None, before, now) if before == now => Seen::Stayed,
                (None, _, _) => Seen::Lacks(Why::Away),
            };
            (member, seen)
        })
    }

    /// From here on the file speaks for parity no more, whatever becomes of this start. Comes
    /// before a start writes or flushes anything: a flush that fails loses what no entry names,
    /// and what the log holds is named by none. `write` puts bytes at an offset of the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn withdraw(write: impl FnOnce(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        if planted::is(Fault::TrustNotWithdrawn) {
            return Ok(());
        }
        let offset = bytes_u64(HEAD_TRUST * size_of::<u64>());
        write(offset, &0_u64.to_ne_bytes())
    }

    /// Whether it is such a file, of any array and life: no other is read or written.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_one(read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>) -> io::Result<bool> {
        let mut word = [0; size_of::<u64>()];
        match read(0, &mut word) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| u64::from_ne_bytes(word) == MAGIC),
        }
    }
}

impl Doubt {
    /// A drive has not taken what was to be written again.
    #[must_use]
    pub fn refused(member: MemberIndex) -> Option<Doubt> {
        (!planted::is(Fault::HalfARedoSuffices)).then_some(Doubt::Refused(member))
    }
}
