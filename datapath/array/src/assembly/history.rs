//! Histories: which record decides, and who wrote alone.

use units::Update;

use super::Claim;
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

/// Finds the record that decides.
///
/// # Panics
/// Without claims.
pub(super) fn judge<'f>(claims: &[Claim<'f>]) -> History<'f> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // Newest first; the id makes the choice the same whatever the order of the drives.
    order.sort_by_key(|at| {
        let claim = &claims[*at];
        let newest_first = std::cmp::Reverse((claim.update(), claim.config.update_id));
        (newest_first, claim.member(), claim.drive())
    });
    if planted::is(Fault::AcceptTheLowerUpdate) {
        return History {
            newest: *order.last().expect("an array has claims"),
            relations: vec![Relation::Kin; claims.len()],
            rival: None,
        };
    }
    let first = judge_from(claims, *order.first().expect("an array has claims"));
    if first.rival.is_none() {
        return first;
    }
    // The greatest update need not be the one that was committed: a few members may have got
    // further, alone and in vain. Then another history finds nothing against itself.
    let is_head = |at: &&usize| {
        let record = claims[**at].config;
        !claims.iter().any(|other| {
            other.update() > record.update
                && other.config.id_of(record.update) == Some(record.update_id)
        })
    };
    order[1..]
        .iter()
        .filter(is_head)
        .map(|at| judge_from(claims, *at))
        .find(|history| history.rival.is_none())
        .unwrap_or(first)
}

/// Judges all records by the one of claim `newest`.
fn judge_from<'f>(claims: &[Claim<'f>], newest: usize) -> History<'f> {
    let decides = claims[newest].config;
    let parted: Vec<bool> = claims
        .iter()
        .map(|claim| has_parted(claim, decides))
        .collect();
    // Of a member that is there twice, both drives are what they are: one was copied, or put back
    // to what it was.
    let stayed = |claim: &&Claim| {
        let member = claim.superblock.member_uuid;
        let mut others = claims.iter().zip(&parted);
        let parted =
            others.any(|(other, parted)| *parted && other.superblock.member_uuid == member);
        !parted && is_known(claim, decides) && !claim.found.is_doubtful()
    };
    let kin: Vec<&Claim> = claims.iter().filter(stayed).collect();
    let relations: Vec<Relation> = (claims.iter().zip(&parted))
        .map(|(claim, parted)| match *parted {
            false => Relation::Kin,
            true if was_never_committed(claim, decides, &kin) => Relation::Abandoned,
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

/// Whether nothing can have been acknowledged under a record of a history that parted: neither
/// side was forced since, and at least half of the members that had to take the record are among
/// those that are found without it (`kin`).
fn was_never_committed(claim: &Claim, decides: &ArrayConfig, kin: &[&Claim]) -> bool {
    let record = claim.config;
    // Where that cannot be told, they may have parted at any time.
    let parted_after = parting(claim, decides).unwrap_or(Update(0));
    if record.forced_at > parted_after || decides.forced_at > parted_after {
        return false;
    }
    let needed = record.in_sync().count();
    let without = record
        .in_sync()
        .filter(|member| {
            let uuid = record.members[member.at()].uuid;
            kin.iter().any(|kin| kin.superblock.member_uuid == uuid)
        })
        .count();
    2 * without >= needed
}

/// The last update that both histories share, if it can be told.
fn parting(claim: &Claim, decides: &ArrayConfig) -> Option<Update> {
    let record = claim.config;
    let own =
        std::iter::once((record.update, record.update_id)).chain(record.ancestors.iter().copied());
    let shared = own
        .filter(|(update, id)| decides.id_of(*update) == Some(*id))
        .map(|(update, _)| update)
        .max();
    shared.or_else(|| {
        // Too long ago to be named; excluding the member was the first thing done without it.
        let since = exclusion_of(claim, decides)?;
        since.0.checked_sub(1).map(Update)
    })
}
