//! From what lies on drives to arrays: which record decides, which members may be used, and
//! whether an array may start by itself.
//!
//! Pure: looks at decoded records and touches nothing. The rules are those of docs/on-disk.md,
//! section 7. What does not live here: reading drives, and starting what was assembled.

mod choose;
mod history;
mod places;
mod reason;
mod returns;
#[cfg(test)]
mod tests;

pub use places::{PlaceRead, RecordPlace, Records};
pub use reason::{LeftOut, Verdict};
pub use returns::{NoReturn, Returning, areas_to_erase, is_as_it_was, may_return};

use std::ops::Range;

use units::{DriveIndex, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use crate::format::{
    ArrayConfig, Before, DriveIdentity, ExclusionCause, FormatError, MemberState, Superblock,
    WriteHole,
};
use crate::log::Redo;
use crate::planted::{self, Fault};
use crate::regions::{RegionMap, Suspects};

/// A start has so many bits for the lives of the log that begin before the next one.
pub const LIVES_SHIFT: u32 = 20;

/// Lives of the log that have begun since the start that began with this one's upper bits.
pub(crate) fn lives_since_start(life: u64) -> u64 {
    life & ((1 << LIVES_SHIFT) - 1)
}

/// What was read from one drive.
#[derive(Clone, Debug)]
pub struct Found {
    /// The drive.
    pub drive: DriveIndex,
    /// Its size.
    pub drive_bytes: u64,
    /// What names it, as in a member's record; empty when nothing does.
    pub identity: DriveIdentity,
    /// What the copies of the superblock decode to, in the order A, B, A', B'.
    pub superblocks: Vec<Result<Superblock, FormatError>>,
    /// What the config areas hold ([`Records::of`]); empty without a good superblock to find them
    /// by.
    pub configs: Vec<Result<(MemberIndex, ArrayConfig), FormatError>>,
}

impl Found {
    /// The superblock that says what the drive is: the first good copy.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblocks.iter().flatten().next()
    }

    /// The newest good record that belongs to the drive's own superblock.
    #[must_use]
    pub fn config(&self) -> Option<&ArrayConfig> {
        let superblock = self.superblock()?;
        let own = |(member, config): &&(MemberIndex, ArrayConfig)| {
            *member == superblock.member && config.check_against(superblock).is_ok()
        };
        let records = self.configs.iter().flatten().filter(own);
        records
            .map(|(_, config)| config)
            .max_by_key(|config| config.update)
    }

    /// Whether a record of it could not be read, which may be a newer one than all that could. It
    /// proves nothing about what others may have gone on to.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.configs.contains(&Err(FormatError::Unreadable))
    }

    /// Copies of the superblock that are bad or disagree with the first good one, and can be
    /// written anew from it.
    #[must_use]
    pub fn damaged_superblocks(&self) -> usize {
        let good = self.superblock();
        let bad = |copy: &&Result<Superblock, FormatError>| copy.as_ref().ok() != good;
        self.superblocks.iter().filter(bad).count()
    }
}

/// Everything that was found, sorted out.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// The arrays, by uuid.
    pub arrays: Vec<Assembly>,
    /// Drives that could not be counted to any array, and why. Those that were never ours are
    /// not among them.
    pub strays: Vec<(DriveIndex, LeftOut)>,
}

/// One array.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// The superblock of one of its members: layout and geometry are those of all.
    pub superblock: Superblock,
    /// The record that decides.
    pub config: ArrayConfig,
    /// By `MemberIndex`: the drive that may be used, in sync or rebuilding as the config says.
    pub members: Vec<Option<DriveIndex>>,
    /// Members whose own record is one update older. `config` is to be written to them, as it is,
    /// before the next update: that one goes to the area of their only good record.
    pub behind: Vec<MemberIndex>,
    /// Drives of this array that may not be used, and why.
    pub left_out: Vec<(DriveIndex, LeftOut)>,
    /// Members with copies of the superblock to write anew.
    pub damaged: Vec<(MemberIndex, usize)>,
    /// Members that are here and count as not here ([`Assembly::set_aside`]): every record that a
    /// start commits leaves them out.
    aside: Vec<MemberIndex>,
    /// Whether it may start.
    pub verdict: Verdict,
}

impl ArrayConfig {
    /// Which start of the array it is of: every start has its own.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.log_from >> LIVES_SHIFT
    }
}

impl Assembly {
    /// The array.
    #[must_use]
    pub fn array(&self) -> Uuid {
        self.config.array
    }

    /// Whether a start without the members that are not here, or that starts have left out which
    /// came to nothing, may show wrong bytes: what they held beside what was being written can be
    /// computed only by parity that may not agree.
    #[must_use]
    pub fn would_tear(&self) -> bool {
        let mut left = self.config.left_by_unfinished();
        let is_short = self.away().next().is_some() || left.next().is_some();
        is_short && self.may_be_torn()
    }

    /// Whether parity may not agree with data: the array was not stopped cleanly, and not all that
    /// was written was logged.
    #[must_use]
    pub fn may_be_torn(&self) -> bool {
        let has_parity = self.superblock.geometry.has_write_hole();
        // What was written before it was strict, nobody has logged.
        let logs = self.config.options.write_hole == WriteHole::Strict && self.is_resynced();
        has_parity && !self.config.clean && !logs
    }

    /// Whether no resync was under way.
    #[must_use]
    pub fn is_resynced(&self) -> bool {
        self.config.resynced_until.0 >= self.superblock.geometry.stripes()
    }

    /// Members in sync that are not here.
    pub fn away(&self) -> impl Iterator<Item = MemberIndex> {
        let in_sync = self.config.in_sync();
        in_sync.filter(|member| self.members[member.at()].is_none())
    }

    /// The array as it is without members that may have lost what they acknowledged, if parity
    /// agrees wherever a stripe may be in use, so that the others know all that these held: they
    /// are as good as not here.
    #[must_use]
    pub fn set_aside(&self, members: &[MemberIndex], regions: &RegionMap) -> Option<Assembly> {
        let agrees = regions.suspects_when_told(self.config.resynced_until);
        let mut rest = self.clone();
        for member in members {
            rest.members[member.at()] = None;
            rest.aside.push(*member);
        }
        let knows = self.is_resynced() && agrees.count() == 0 && rest.has_enough();
        knows.then_some(rest)
    }

    /// Whether every group has enough members in sync, and here.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        let geometry = &self.superblock.geometry;
        let members = self.config.members.iter().zip(&self.members);
        let good: Vec<bool> = members
            .map(|(record, drive)| record.state == MemberState::InSync && drive.is_some())
            .collect();
        let count = |group: &[bool]| group.iter().filter(|good| **good).count();
        good.chunks(geometry.group_members())
            .all(|group| count(group) >= geometry.data())
    }

    /// Of blocks that nobody can tell while members are away, those that a record gives up for
    /// good: who counts by it tells them when he is back.
    #[must_use]
    pub fn lost_with(&self, next: &ArrayConfig, untold: &[Range<u64>]) -> Vec<Range<u64>> {
        let geometry = &self.superblock.geometry;
        let is_lost = |block: &u64| {
            let place = geometry.place(*block);
            let holder = geometry.member(place.stripe, place.role);
            next.members[holder.at()].state != MemberState::InSync
        };
        let lost = untold.iter().cloned().flatten().filter(is_lost);
        lost.map(|block| block..block + 1).collect()
    }

    /// Whether a member is here and counts for a stripe whose region is dirty: whatever a member
    /// had before that returns, it lacks such regions until its rebuild has been there.
    #[must_use]
    pub fn counts(&self, member: MemberIndex, stripe: StripeIndex) -> bool {
        let counts = match self.config.members[member.at()].state {
            MemberState::InSync => true,
            MemberState::Rebuilding { until, .. } => stripe < until,
            MemberState::Excluded { .. } | MemberState::Missing => false,
        };
        counts && self.members[member.at()].is_some()
    }

    /// Takes into account that somebody saw the array reach this update, of this id. Members that
    /// know of none so late, or of another, were left out by others, who went on.
    pub fn recall(&mut self, update: Update, id: u128) {
        let config = &self.config;
        let another = config.id_of(update).is_some_and(|known| known != id);
        let know = if config.update < update {
            format!("know of no update after {}", config.update)
        } else if another {
            format!("know of another {update}")
        } else {
            return;
        };
        if matches!(self.verdict, Verdict::Startable { .. }) {
            let explanation = format!(
                "the members that are here {know}, and this host has seen {update} ({id:032x}): \
                 others went on without them, and all that they acknowledged since would be lost"
            );
            self.verdict = Verdict::NeedsForce { explanation };
        }
    }

    /// The update to commit before the first write: names exactly the members that are here.
    ///
    /// With `force` a minority may start, and the record says so. A dirty array trusts no parity.
    ///
    /// # Errors
    /// The verdict, when it does not allow this.
    pub fn start(&self, update_id: u128, force: bool) -> Result<ArrayConfig, &Verdict> {
        let mut next = self.without(|_| true, update_id, force)?;
        // What the log held was done again before this. A start leaves room for the lives that an
        // engine begins, one after each rebuild.
        if !planted::is(Fault::LogOutlivesAStart) {
            next.log_from = ((self.config.log_from >> LIVES_SHIFT) + 1) << LIVES_SHIFT;
        }
        Ok(next)
    }

    /// A start has left these to a resync, though the array logs all that it writes: until that is
    /// through, no start takes it at its word ([`Assembly::may_be_torn`]).
    pub fn note_unlogged(next: &mut ArrayConfig, suspects: &Suspects) {
        let first = suspects.run_from(StripeIndex(0)).map(|(first, _)| first);
        if let (WriteHole::Strict, Some(first)) = (next.options.write_hole, first) {
            next.resynced_until = next.resynced_until.min(first);
        }
    }

    /// The update that a start commits before it does again what the log has of a write of which
    /// members may know more that are not here ([`Assembly::who_misses`]): as that of
    /// [`Assembly::start`], but the log counts on, and so does what the last engine had begun, and
    /// of those that are not here just these are out. Those that were set aside are out as well:
    /// one of them that is still in sync by such a record would be the truth for a start that
    /// follows, and what the others lack would be made of what it has left.
    ///
    /// # Errors
    /// The verdict, when it does not allow this.
    pub fn without(
        &self,
        who: impl Fn(MemberIndex) -> bool,
        update_id: u128,
        force: bool,
    ) -> Result<ArrayConfig, &Verdict> {
        let forced = match self.verdict {
            Verdict::Startable { .. } => false,
            Verdict::NeedsForce { .. } if force => true,
            Verdict::NeedsForce { .. } | Verdict::Failed { .. } | Verdict::Refused { .. } => {
                return Err(&self.verdict);
            }
        };
        let mut next = self.config.next(update_id);
        if forced {
            next.forced_at = next.update;
        }
        next.clean = false;
        next.unfinished_since = match self.config.unfinished_since {
            Update(0) => next.update,
            since => since,
        };
        for (position, drive) in self.members.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let is_out = who(member) || self.aside.contains(&member);
            if drive.is_none() && is_out {
                self.leave_out(&mut next, member);
            }
        }
        Ok(next)
    }

    /// Whom [`Assembly::without`] leaves out: of whom the log [`crate::Replay::guesses`], and who
    /// is not here and misses what the last engine had begun and was just done again. Of these rows
    /// only memory tells, and a power failure takes that along: a member that is in sync by the
    /// record then and holds what was there before would make something else of what those that are
    /// out held.
    #[must_use]
    pub fn who_misses(&self, mut guesses: Vec<MemberIndex>, begun: &[Redo]) -> Vec<MemberIndex> {
        for part in begun {
            let member = part.member;
            if self.members[member.at()].is_none() && !guesses.contains(&member) {
                guesses.push(member);
            }
        }
        guesses
    }

    /// Calls a member excluded in the record that a start commits, unless it is out already.
    fn leave_out(&self, next: &mut ArrayConfig, member: MemberIndex) {
        let record = &next.members[member.at()];
        let returning = match record.state {
            MemberState::InSync => None,
            MemberState::Rebuilding { missed, .. } => Some(missed),
            MemberState::Excluded { .. } | MemberState::Missing => return,
        };
        let stale = self.left_out.iter().find_map(|(_, reason)| {
            if let LeftOut::Stale {
                member_uuid,
                update,
                ..
            } = reason
                && *member_uuid == record.uuid
            {
                Some(*update)
            } else {
                None
            }
        });
        let mut name = self.config.name_of_update();
        if let (Some(missed), Some(update)) = (returning, stale)
            && missed.held.0 == update
        {
            // The record by which it came back has never reached it.
            name = missed.held;
        }
        let cause = match stale {
            Some(_) => ExclusionCause::Stale,
            None => ExclusionCause::Absent,
        };
        self.exclude(next, (member, cause), name);
    }

    /// As [`ArrayConfig::exclude`], in the record that a start commits: a member that the control
    /// path cannot use after all.
    pub fn exclude(
        &self,
        next: &mut ArrayConfig,
        (member, cause): (MemberIndex, ExclusionCause),
        name: (Update, u64),
    ) {
        let before = Before {
            committed: &self.config,
            name,
            stripes: self.superblock.geometry.stripes(),
        };
        next.exclude(member, cause, &before);
    }
}

/// One drive's claim to be a member.
#[derive(Clone, Copy, Debug)]
struct Claim<'f> {
    found: &'f Found,
    superblock: &'f Superblock,
    config: &'f ArrayConfig,
}

impl Claim<'_> {
    fn drive(&self) -> DriveIndex {
        self.found.drive
    }

    fn member(&self) -> MemberIndex {
        self.superblock.member
    }

    fn update(&self) -> Update {
        self.config.update
    }
}

/// Sorts out what was found on all drives.
#[must_use]
pub fn assemble(found: &[Found]) -> Assembled {
    assemble_named(found, &|drive| drive.to_string())
}

/// [`assemble`], in whose sentences drives are called as `name` does.
#[must_use]
pub fn assemble_named(found: &[Found], name: &dyn Fn(DriveIndex) -> String) -> Assembled {
    let mut claims: Vec<Claim> = Vec::new();
    let mut strays: Vec<(Option<Uuid>, DriveIndex, LeftOut)> = Vec::new();
    for one in found {
        match claim(one) {
            Ok(claim) => claims.push(claim),
            Err(Some((array, reason))) => strays.push((array, one.drive, reason)),
            Err(None) => {}
        }
    }
    let mut arrays: Vec<Uuid> = claims.iter().map(|claim| claim.config.array).collect();
    arrays.sort_unstable();
    arrays.dedup();
    let mut assembled = Assembled {
        arrays: Vec::new(),
        strays: Vec::new(),
    };
    for array in arrays {
        let own: Vec<Claim> = claims
            .iter()
            .filter(|claim| claim.config.array == array)
            .copied()
            .collect();
        let (mine, others) = strays
            .into_iter()
            .partition(|(stray, _, _)| *stray == Some(array));
        strays = others;
        let mine: Vec<(Option<Uuid>, DriveIndex, LeftOut)> = mine;
        let useless = mine.into_iter().map(|(_, drive, reason)| (drive, reason));
        assembled
            .arrays
            .push(choose::array(own, useless.collect(), name));
    }
    assembled.strays = strays
        .into_iter()
        .map(|(_, drive, reason)| (drive, reason))
        .collect();
    assembled
}

/// Why a drive makes no claim, and to which array it would belong if that is known; `None` inside
/// when it never was ours.
type NoClaim = Option<(Option<Uuid>, LeftOut)>;

/// What one drive claims to be.
fn claim(found: &Found) -> Result<Claim<'_>, NoClaim> {
    let Some(superblock) = found.superblock() else {
        return Err(without_superblock(found));
    };
    let array = Some(superblock.array);
    let member = superblock.member;
    if found.drive_bytes < superblock.layout.member_bytes {
        let reason = LeftOut::Shrunk {
            member,
            drive_bytes: found.drive_bytes,
            member_bytes: superblock.layout.member_bytes,
        };
        return Err(Some((array, reason)));
    }
    let future = found
        .configs
        .iter()
        .flat_map(|config| config.as_ref().err());
    if let Some(error) = future
        .into_iter()
        .find(|error| newer_array(error).is_some())
    {
        return Err(Some((array, LeftOut::Future(error.clone()))));
    }
    let Some(config) = found.config() else {
        return Err(Some((array, LeftOut::NoConfig { member })));
    };
    Ok(Claim {
        found,
        superblock,
        config,
    })
}

/// The most telling reason why no copy of the superblock is good.
fn without_superblock(found: &Found) -> NoClaim {
    let errors = || {
        found
            .superblocks
            .iter()
            .filter_map(|copy| copy.as_ref().err())
    };
    if let Some(error) = errors().find(|error| newer_array(error).is_some()) {
        return Some((newer_array(error), LeftOut::Future(error.clone())));
    }
    let damaged = errors().find(|error| match error {
        FormatError::Checksum { .. } | FormatError::Length { .. } | FormatError::Invalid(_) => true,
        FormatError::Unreadable
        | FormatError::Blank
        | FormatError::Foreign
        | FormatError::Truncated { .. }
        | FormatError::NewerFormat { .. }
        | FormatError::NewerFeatures { .. } => false,
    });
    damaged.map(|error| (None, LeftOut::Damaged(error.clone())))
}

/// The array of a record from the future.
fn newer_array(error: &FormatError) -> Option<Uuid> {
    match error {
        FormatError::NewerFormat { array, .. } | FormatError::NewerFeatures { array, .. } => {
            Some(*array)
        }
        FormatError::Unreadable
        | FormatError::Truncated { .. }
        | FormatError::Blank
        | FormatError::Foreign
        | FormatError::Length { .. }
        | FormatError::Checksum { .. }
        | FormatError::Invalid(_) => None,
    }
}
