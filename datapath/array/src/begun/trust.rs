//! Whether the file of a killed engine speaks for parity: then, once what it had begun is written
//! again, nothing is to be resynchronised. The conditions and their proof are in
//! docs/design/007-no-resync-after-a-kill.md. One doubt, and the regions in use are resynced as
//! after a power failure.

use std::fmt;
use std::io;
use std::time::Duration;

use units::limits::ARRAY_MEMBERS_MAX;
use units::{MemberIndex, bytes_u64};

use super::{
    BegunWrites, FLUSHING_WORDS, HEAD_APPEARANCES, HEAD_CLOCK, HEAD_FLUSHING, HEAD_GONE, HEAD_TORN,
    HEAD_TRUST, HEAD_WORDS, MAGIC, TRUSTED,
};
use crate::assembly::{Assembly, Verdict};
use crate::planted::{self, Fault};

/// A flush that has ended within this time has not failed: kernels try again for far longer.
const YOUNG: Duration = Duration::from_secs(1);

/// Whether a flush may have failed that was asked for at `since`, and has ended before the drives
/// were locked. Times are what the machine was up.
fn may_have_failed(since: Duration, locked: Option<Duration>) -> bool {
    let took = locked.and_then(|locked| locked.checked_sub(since));
    took.is_none_or(|took| took >= YOUNG) && !planted::is(Fault::FlushUnderWayForgotten)
}

/// When the oldest flush was asked for that was under way, as the words of a head say.
fn oldest_flush(head: &[u64]) -> Option<Duration> {
    let words = head[HEAD_FLUSHING..HEAD_WORDS].iter();
    let oldest = words.step_by(FLUSHING_WORDS).filter(|&&at| at != 0).min()?;
    Some(Duration::from_nanos(head[HEAD_CLOCK]).saturating_add(Duration::from_nanos(*oldest)))
}

/// What the head says besides whose it is.
#[derive(Debug)]
pub(super) struct Told {
    /// What it says itself against parity.
    doubt: Option<Doubt>,
    /// Since when a flush was under way.
    flush: Option<Duration>,
    appearances: Vec<u64>,
}

impl Told {
    /// From the words of a head.
    pub(super) fn read(head: &[u64]) -> Told {
        let gone = HEAD_GONE.map(|word| head[word]).into_iter().max();
        let doubt = match [head[HEAD_TRUST], head[HEAD_TORN], gone.unwrap_or(0)] {
            [TRUSTED, 0, 0] => None,
            [TRUSTED, 0, _] => Some(Doubt::Gone),
            [TRUSTED, _, _] => Some(Doubt::Torn),
            [_, _, _] => Some(Doubt::NotTrusted),
        };
        Told {
            doubt,
            flush: oldest_flush(head),
            appearances: head[HEAD_APPEARANCES..][..ARRAY_MEMBERS_MAX].to_vec(),
        }
    }
}

/// What is seen of a drive that was there when the last engine was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It has not been away.
    Stayed,
    Away,
    Unknown,
}

/// Why regions that were in use must be resynced although what was begun there is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The last engine did not trust all parity itself, or was never through with its start.
    NotTrusted,
    /// Some write of it has ended without being whole, or some flush failed.
    Torn,
    /// A flush was under way when the last engine ended, for long: it may have failed since.
    FlushHung,
    /// A member was gone when the last engine ended, and not out: it may have lost its power.
    Gone,
    /// The drive of a member may have been away, for all that is known.
    Unknown(MemberIndex),
    /// The drive of a member was away, and may have lost what was not flushed.
    Away(MemberIndex),
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
            Doubt::Torn => f.write_str("a write was given up, or a flush failed"),
            Doubt::FlushHung => f.write_str("a flush hung when the last engine ended"),
            Doubt::Gone => f.write_str("a member was gone when the last engine ended"),
            Doubt::Unknown(member) => {
                write!(f, "nothing shows that the drive of {member} was not away")
            }
            Doubt::Away(member) => write!(f, "the drive of {member} was away"),
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
        if self
            .told
            .flush
            .is_some_and(|since| may_have_failed(since, locked))
        {
            return Some(Doubt::FlushHung);
        }
        if !matches!(assembly.verdict, Verdict::Startable { .. }) {
            return Some(Doubt::Forced);
        }
        if planted::is(Fault::DrivesNotCompared) {
            return None;
        }
        let mut here = self.compared(assembly, appearance);
        let unknown = here.clone().find(|(_, seen)| *seen == Seen::Unknown);
        let away = here.find(|(_, seen)| *seen == Seen::Away);
        let unknown = unknown.map(|(member, _)| Doubt::Unknown(member));
        unknown.or(away.map(|(member, _)| Doubt::Away(member)))
    }

    /// Members that are here, and whose drives were away since the last engine was killed. They may
    /// have lost what was acknowledged and not flushed; where this is all that is doubted
    /// ([`Doubt::Away`]), the others know it.
    pub fn away(
        &self,
        assembly: &Assembly,
        appearance: impl Fn(MemberIndex) -> u64 + Clone,
    ) -> Vec<MemberIndex> {
        let away = self.compared(assembly, appearance);
        let away = away.filter(|(_, seen)| *seen == Seen::Away);
        away.map(|(member, _)| member).collect()
    }

    /// The members that are here, and what is seen of their drives.
    fn compared(
        &self,
        assembly: &Assembly,
        appearance: impl Fn(MemberIndex) -> u64 + Clone,
    ) -> impl Iterator<Item = (MemberIndex, Seen)> + Clone {
        let told = self.told.appearances.iter().zip(&assembly.members);
        let here = told.enumerate().filter(|(_, (_, drive))| drive.is_some());
        here.map(move |(position, (&before, _))| {
            let member = MemberIndex::from_at(position);
            let seen = match (before, appearance(member)) {
                (0, _) | (_, 0) => Seen::Unknown,
                (before, now) if before == now => Seen::Stayed,
                (_, _) => Seen::Away,
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
