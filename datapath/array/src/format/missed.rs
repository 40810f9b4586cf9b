//! What a member that was out may have missed: from which update on, and by which record of its
//! own it is known to be the one that left. docs/on-disk.md, section 8, has the proof.

use units::{MemberIndex, Update};

use super::config::{ArrayConfig, ExclusionCause, MemberRecord, MemberState};
use crate::planted::{self, Fault};

/// What a member lacks that is out, or that has returned and is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// It may lack what regions hold that are dirty, or whose epoch is this update or later. Zero
    /// means everything.
    pub base: Update,
    /// The last update that it is sure to have had as a member, and the lower half of its id:
    /// a drive with another record is not the one that left.
    pub held: (Update, u64),
}

impl Missed {
    /// Everything, and nobody is known to have it.
    pub const ALL: Missed = Missed {
        base: Update(0),
        held: (Update(0), 0),
    };
}

/// What was before the record that excludes a member.
#[derive(Clone, Copy, Debug)]
pub struct Before<'c> {
    /// The record that called it a member last.
    pub committed: &'c ArrayConfig,
    /// The last update that was committed, by [`ArrayConfig::name_of_update`]: a member has it.
    pub name: (Update, u64),
    /// Stripes of the array.
    pub stripes: u64,
}

impl ArrayConfig {
    /// The update of this record and the lower half of its id.
    #[must_use]
    pub fn name_of_update(&self) -> (Update, u64) {
        (self.update, lower_half(self.update_id))
    }

    /// Calls `member` excluded by this record.
    pub fn exclude(&mut self, member: MemberIndex, cause: ExclusionCause, before: &Before) {
        let Before {
            committed,
            name,
            stripes,
        } = *before;
        let since = self.update;
        let before = &committed.members[member.at()];
        // What this record claims of passes was flushed before it is written, but perhaps not on a
        // member that it excludes.
        let claims = planted::is(Fault::ClaimsOfTheCommitCount);
        let resynced = |config: &ArrayConfig| config.resynced_until.0 >= stripes;
        let resynced = resynced(self) && (claims || resynced(committed));
        let settled = resynced || planted::is(Fault::ResyncNotMissed);
        let again = planted::is(Fault::LeavesAgainAsWhole);
        let record = &mut self.members[member.at()];
        let known = match before.state {
            MemberState::Rebuilding { missed, .. } if before.uuid == record.uuid && !claims => {
                missed.base
            }
            MemberState::Rebuilding { .. }
            | MemberState::InSync
            | MemberState::Excluded { .. }
            | MemberState::Missing => since,
        };
        let base = match record.state {
            // A resync that goes on without it changes parity of regions that nobody writes.
            _ if !settled => Update(0),
            MemberState::InSync => known,
            MemberState::Rebuilding { .. } if again => since,
            MemberState::Rebuilding { missed, .. } | MemberState::Excluded { missed, .. } => {
                missed.base.min(known)
            }
            MemberState::Missing => Update(0),
        };
        let held = match before.state {
            _ if before.uuid != record.uuid => Missed::ALL.held,
            MemberState::InSync | MemberState::Rebuilding { .. } => name,
            MemberState::Excluded { missed, .. } => missed.held,
            MemberState::Missing => Missed::ALL.held,
        };
        let missed = Missed { base, held };
        record.state = MemberState::Excluded {
            since,
            cause,
            missed,
        };
    }

    /// As [`ArrayConfig::name_of_update`], of the update before this one; of none when this is the
    /// first.
    #[must_use]
    pub fn name_of_last_update(&self) -> (Update, u64) {
        let last = self.ancestors.first();
        last.map_or(Missed::ALL.held, |(update, id)| (*update, lower_half(*id)))
    }

    /// All parity becomes untrusted: members that are out miss what a resync changes.
    pub(crate) fn untrust(&mut self) {
        self.resynced_until = units::StripeIndex(0);
        for record in &mut self.members {
            if let MemberState::Excluded { missed, .. } = &mut record.state
                && !planted::is(Fault::ResyncNotMissed)
            {
                missed.base = Update(0);
            }
        }
    }

    /// Whether what a member missed is of the past.
    pub(super) fn can_miss(&self, member: &MemberRecord) -> bool {
        match member.state {
            MemberState::InSync | MemberState::Missing => true,
            MemberState::Rebuilding { missed, .. } => missed.base <= self.update,
            MemberState::Excluded { since, missed, .. } => missed.base <= since,
        }
    }
}

/// Enough of an update's id to tell one from another.
pub(crate) fn lower_half(id: u128) -> u64 {
    u64::try_from(id & u128::from(u64::MAX)).expect("masked")
}
