//! Histories: which record decides, and who wrote alone.

use units::{MemberIndex, Update};
use uuid::Uuid;

use super::Claim;
use super::choose::why_failed;
use crate::format::{ArrayConfig, MemberState};
use crate::planted::{self, Fault};

/// What the records of one array add up to.
#[derive(Debug)]
pub(super) struct History<'f> {
    /// The record that decides, by the position of a claim that carries it.
    pub(super) newest: usize,
    /// For each claim, how its record stands to the one that decides.
    pub(super) relations: Vec<Relation>,
    /// A record of a history that may hold acknowledged writes of its own.
    pub(super) rival: Option<&'f ArrayConfig>,
}

/// How a record stands to the one that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The same, an ancestor, or too old to tell.
    Kin,
    /// Of a history that parted, in which nothing was acknowledged.
    Abandoned,
    /// Of a history that parted, in which something may have been acknowledged.
    Rival,
}

/// The records that may decide, the first one before all others; at least one. Another one may only
/// where by the first the array cannot be started.
///
/// # Panics
/// Without claims.
pub(super) fn judge<'f>(claims: &[Claim<'f>]) -> Vec<History<'f>> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // Newest first; the id makes the choice the same whatever the order of the drives.
    order.sort_by_key(|at| {
        let claim = &claims[*at];
        let newest_first = std::cmp::Reverse((claim.update(), claim.config.update_id));
        (newest_first, claim.member(), claim.drive())
    });
    if planted::is(Fault::AcceptTheLowerUpdate) {
        return vec![History {
            newest: *order.last().expect("an array has claims"),
            relations: vec![Relation::Kin; claims.len()],
            rival: None,
        }];
    }
    let newest = order[0];
    let first = judge_from(claims, newest);
    let is_head = |at: &usize| {
        let record = claims[*at].config;
        !claims.iter().any(|other| {
            other.update() > record.update
                && other.config.id_of(record.update) == Some(record.update_id)
        })
    };
    let heads = order[1..].iter().copied().filter(is_head);
    if first.rival.is_some() {
        // The greatest update need not be the one that was committed: a few members may have got
        // further, alone and in vain. Then another history finds nothing against itself.
        let mut others = heads.map(|at| judge_from(claims, at));
        let other = others.find(|history| history.rival.is_none());
        return vec![other.unwrap_or(first)];
    }
    // Starts that came to nothing may have reached one member each, and left out another each: by
    // the record of one of them too few may be there that are enough by another's. If that record
    // is the first that anybody made since they parted, nobody can have gone on by it who does not
    // have it; of a later one, a copy that is older would be believed to say so.
    let decides = claims[newest].config;
    let is_of_a_start_in_vain = |at: &usize| {
        let parted = named_parting(claims[*at].config, decides);
        parted.is_some_and(|parted| decides.update.0 == parted.0 + 1)
            && decides.unfinished_since != Update(0)
    };
    let others = heads.filter(is_of_a_start_in_vain);
    let others = others.map(|at| judge_from(claims, at));
    std::iter::once(first).chain(others).collect()
}

/// Judges all records by the one of claim `newest`.
fn judge_from<'f>(claims: &[Claim<'f>], newest: usize) -> History<'f> {
    let decides = claims[newest].config;
    let parted: Vec<bool> = claims
        .iter()
        .map(|claim| has_parted(claim, decides))
        .collect();
    let others = claims.iter().zip(&parted).filter(|(_, parted)| **parted);
    let others: Vec<Uuid> = others
        .map(|(claim, _)| claim.superblock.member_uuid)
        .collect();
    // Of a member that is there twice, both drives are what they are: one was copied, or put back
    // to what it was.
    let stayed = |claim: &&Claim| {
        let parted = others.contains(&claim.superblock.member_uuid);
        !parted && is_known(claim, decides) && !claim.found.is_doubtful()
    };
    let kin = claims.iter().filter(stayed).collect();
    let sides = Sides {
        decides,
        kin,
        parted: others,
    };
    let relations: Vec<Relation> = (claims.iter().zip(&parted))
        .map(|(claim, parted)| match *parted {
            false => Relation::Kin,
            true if sides.was_in_vain(claim) => Relation::Abandoned,
            true => Relation::Rival,
        })
        .collect();
    let rival = relations
        .iter()
        .position(|relation| *relation == Relation::Rival);
    History {
        newest,
        rival: rival.map(|at| claims[at].config),
        relations,
    }
}

/// Whether a record belongs to another history than the one that decides.
fn has_parted(claim: &Claim, decides: &ArrayConfig) -> bool {
    let record = claim.config;
    if record.update > decides.update {
        return true;
    }
    match decides.id_of(record.update) {
        Some(id) => id != record.update_id,
        // Too old to be named. A member that was excluded has no record of that update or later.
        None => exclusion_of(claim, decides).is_some_and(|since| record.update >= since),
    }
}

/// Whether the history that decides knows the record for one of its own.
fn is_known(claim: &Claim, decides: &ArrayConfig) -> bool {
    let record = claim.config;
    let is_named = decides.id_of(record.update) == Some(record.update_id);
    is_named || exclusion_of(claim, decides).is_some_and(|since| record.update < since)
}

/// The update by which the history that decides excluded the member.
fn exclusion_of(claim: &Claim, decides: &ArrayConfig) -> Option<Update> {
    let member = decides.members.get(claim.member().at())?;
    match member.state {
        MemberState::Excluded { since, .. } if member.uuid == claim.superblock.member_uuid => {
            Some(since)
        }
        MemberState::Excluded { .. }
        | MemberState::InSync
        | MemberState::Rebuilding { .. }
        | MemberState::Missing => None,
    }
}

/// What speaks for the history that decides, against those that parted from it.
struct Sides<'c, 'f> {
    decides: &'f ArrayConfig,
    /// Who is found and belongs to it.
    kin: Vec<&'c Claim<'f>>,
    /// Members that are found with a record of another history.
    parted: Vec<Uuid>,
}

impl Sides<'_, '_> {
    /// Whether nothing can have been acknowledged under a record of a history that parted.
    fn was_in_vain(&self, claim: &Claim) -> bool {
        if claim.found.is_doubtful() {
            // It may hide a newer record, of those who went on.
            return false;
        }
        let (record, decides) = (claim.config, self.decides);
        let parted = parting(claim, decides);
        // Where that cannot be told, they may have parted at any time.
        let parted_after = parted.unwrap_or(Update(0));
        if record.forced_at > parted_after || decides.forced_at > parted_after {
            return false;
        }
        // At least half of those who had to take the record are found without it.
        let found_without = record
            .in_sync()
            .filter(|member| self.is_kin(record, *member, Update(0)))
            .count();
        2 * found_without >= record.in_sync().count() || self.had_no_followers(claim, parted)
    }

    /// Whether some who had to take a record never have, and the others, but for the member that
    /// has it, were too few to go on. Those never have that are found without it, and those that
    /// are in sync by the record that decides, be they here or not: whoever is in sync by an update
    /// of a start that is through has the one before it, so if that was made since the histories
    /// parted, he went over. The same holds of who is still in sync after starts that were not
    /// through, as these only leave members out.
    fn had_no_followers(&self, claim: &Claim, parted: Option<Update>) -> bool {
        let record = claim.config;
        let apart = || first_apart(record, self.decides);
        let first = parted.map_or_else(apart, |parted| Update(parted.0 + 1));
        let through = match self.decides.unfinished_since {
            Update(0) => self.decides.update,
            since => Update(since.0 - 1),
        };
        if through <= first {
            return false;
        }
        // By that very argument all took the update before, unless its start was not through: then
        // who has not is a copy, or was put back to what he was.
        let unfinished = record.unfinished_since;
        let is_past_a_start =
            record.update > first && (unfinished == Update(0) || unfinished > first);
        let is_twice = self.is_member(record, claim.member(), true);
        if is_past_a_start || is_twice {
            return false;
        }
        let recent = Update(record.update.0.saturating_sub(1));
        let never = |member: &MemberIndex| {
            let uuid = record.members[member.at()].uuid;
            let went_over =
                || self.is_member(record, *member, false) && !self.parted.contains(&uuid);
            self.is_kin(record, *member, recent) || went_over()
        };
        let needed = record.in_sync().filter(|member| *member != claim.member());
        let (not_taken, others): (Vec<_>, Vec<_>) = needed.partition(never);
        !not_taken.is_empty() && why_failed(claim.superblock, &others).is_some()
    }

    /// Whether a member of `record` is found with one that belongs to the history that decides,
    /// and is not older than `since`.
    fn is_kin(&self, record: &ArrayConfig, member: MemberIndex, since: Update) -> bool {
        let uuid = record.members[member.at()].uuid;
        let mut kin = self.kin.iter();
        kin.any(|kin| kin.superblock.member_uuid == uuid && kin.update() >= since)
    }

    /// Whether a member of `record` is in sync by the one that decides; `or_filled`, or is being
    /// filled, or was either before starts that were not through.
    fn is_member(&self, record: &ArrayConfig, member: MemberIndex, or_filled: bool) -> bool {
        let unfinished = self.decides.unfinished_since;
        let now = self.decides.members.get(member.at());
        let same = now.filter(|now| now.uuid == record.members[member.at()].uuid);
        same.is_some_and(|now| match now.state {
            MemberState::InSync => true,
            MemberState::Rebuilding { .. } => or_filled,
            MemberState::Excluded { since, .. } => {
                or_filled && unfinished != Update(0) && since >= unfinished
            }
            MemberState::Missing => false,
        })
    }
}

/// The last update that both histories share, if it can be told.
fn parting(claim: &Claim, decides: &ArrayConfig) -> Option<Update> {
    named_parting(claim.config, decides).or_else(|| {
        // Too long ago to be named; excluding the member was the first thing done without it.
        let since = exclusion_of(claim, decides)?;
        since.0.checked_sub(1).map(Update)
    })
}

/// The same, as far as both name it.
fn named_parting(record: &ArrayConfig, decides: &ArrayConfig) -> Option<Update> {
    let own =
        std::iter::once((record.update, record.update_id)).chain(record.ancestors.iter().copied());
    let shared = own.filter(|(update, id)| decides.id_of(*update) == Some(*id));
    shared.map(|(update, _)| update).max()
}

/// An update by which histories are apart that share none: the oldest that both name, or else the
/// record's own.
fn first_apart(record: &ArrayConfig, decides: &ArrayConfig) -> Update {
    let named = record.ancestors.iter().map(|(update, _)| *update);
    let named = named.filter(|update| decides.id_of(*update).is_some());
    named.min().unwrap_or(record.update)
}
