//! One array: who may be used, and whether that is enough.

use std::fmt::Write;

use units::dates::date;
use units::{DriveIndex, MemberIndex};

use super::history::{History, Relation, judge};
use super::{Assembly, Claim, LeftOut, Verdict};
use crate::format::{ArrayConfig, MemberRecord, MemberState, Superblock};

/// What users call a drive.
type Name<'n> = &'n dyn Fn(DriveIndex) -> String;

/// Makes an array of the claims to it. `useless` are drives that belong to it and claim nothing.
pub(super) fn array(
    claims: Vec<Claim>,
    useless: Vec<(DriveIndex, LeftOut)>,
    name: Name,
) -> Assembly {
    let histories = judge(&claims);
    let mut assemblies = histories
        .iter()
        .map(|history| by(history, &claims, useless.clone(), name));
    let first = assemblies.next().expect("a record decides");
    match first.verdict {
        Verdict::Startable { .. } | Verdict::Refused { .. } => first,
        Verdict::NeedsForce { .. } | Verdict::Failed { .. } => {
            let starts = |it: &Assembly| matches!(it.verdict, Verdict::Startable { .. });
            assemblies.find(starts).unwrap_or(first)
        }
    }
}

/// Makes an array by one of the records that may decide.
fn by(
    history: &History,
    claims: &[Claim],
    useless: Vec<(DriveIndex, LeftOut)>,
    name: Name,
) -> Assembly {
    let decides = &claims[history.newest];
    let (config, superblock) = (decides.config, decides.superblock);
    let mut assembly = Assembly {
        superblock: *superblock,
        config: config.clone(),
        members: vec![None; config.members.len()],
        behind: Vec::new(),
        left_out: useless,
        damaged: Vec::new(),
        aside: Vec::new(),
        // Replaced below; nothing may be started that was not looked at.
        verdict: Verdict::Refused {
            explanation: String::new(),
        },
    };
    for (claim, relation) in claims.iter().zip(&history.relations) {
        match left_out(claim, *relation, decides, claims) {
            Some(reason) => assembly.left_out.push((claim.drive(), reason)),
            None => assembly.take(claim),
        }
    }
    assembly.leave_out_doubtful(claims);
    assembly.left_out.sort_by_key(|(drive, _)| *drive);
    assembly.behind.sort_unstable();
    assembly.damaged.sort_unstable();
    assembly.verdict = verdict(&assembly, (history, claims), name);
    assembly
}

impl Assembly {
    /// A member of which a record is hidden may have excluded the others and gone on; what it has
    /// does not go with what they have then. It is used where it cannot, not even with all that are
    /// absent, or where there is no doing without it.
    fn leave_out_doubtful(&mut self, claims: &[Claim]) {
        let standing = Standing::new(self, claims);
        if !standing.others_may_have_gone_on {
            return;
        }
        let enough = why_failed(&self.superblock, &standing.proven).is_none();
        let doubtful = claims.iter().filter(|claim| claim.found.is_doubtful());
        for claim in doubtful {
            let (member, drive) = (claim.member(), claim.drive());
            let used = self.members[member.at()] == Some(drive);
            // Nobody needs one that is being filled.
            let fills = !standing.in_sync.contains(&member);
            if used && (enough || fills) {
                self.members[member.at()] = None;
                self.left_out.push((drive, LeftOut::Hidden { member }));
                self.behind.retain(|other| *other != member);
                self.damaged.retain(|(other, _)| *other != member);
            }
        }
    }

    /// Whether a member that an unfinished start has left out may have been in sync until then. One
    /// that was being filled lacked something before, which shows where that is known. Who was
    /// left out by force, somebody has answered for.
    fn counted_until_left(&self, member: MemberIndex) -> bool {
        let settled = self.config.resynced_until.0 >= self.superblock.geometry.stripes();
        match self.config.members[member.at()].state {
            MemberState::Excluded { since, missed, .. } => {
                let may_have_been_in_sync = missed.base == since || !settled;
                may_have_been_in_sync && since > self.config.forced_at
            }
            MemberState::InSync | MemberState::Rebuilding { .. } | MemberState::Missing => false,
        }
    }

    fn take(&mut self, claim: &Claim) {
        let member = claim.member();
        let place = &mut self.members[member.at()];
        assert!(place.is_none(), "clones are left out before");
        *place = Some(claim.drive());
        if claim.update() < self.config.update {
            self.behind.push(member);
        }
        match claim.found.damaged_superblocks() {
            0 => {}
            copies => self.damaged.push((member, copies)),
        }
    }
}

/// Why a claim is refused.
fn left_out(
    claim: &Claim,
    relation: Relation,
    decides: &Claim,
    claims: &[Claim],
) -> Option<LeftOut> {
    let (member, update, newest) = (claim.member(), claim.update(), decides.update());
    let config = decides.config;
    match relation {
        Relation::Kin => {}
        Relation::Abandoned => {
            return Some(LeftOut::Abandoned {
                member,
                update,
                newest,
            });
        }
        Relation::Rival => {
            return Some(LeftOut::SplitBrain {
                member,
                update: (update, claim.config.update_id),
                other: (newest, config.update_id),
            });
        }
    }
    if !claim.superblock.agrees_with(decides.superblock) {
        return Some(LeftOut::OtherLayout { member });
    }
    let record = &config.members[member.at()];
    if record.uuid != claim.superblock.member_uuid {
        return Some(LeftOut::Replaced {
            member,
            update,
            newest,
        });
    }
    match record.state {
        MemberState::InSync | MemberState::Rebuilding { .. } => {}
        MemberState::Excluded { since, cause, .. } => {
            return Some(LeftOut::Excluded {
                member,
                since,
                cause,
            });
        }
        MemberState::Missing => {
            return Some(LeftOut::Replaced {
                member,
                update,
                newest,
            });
        }
    }
    if let Some(reason) = as_clone(claim, record, claims) {
        return Some(reason);
    }
    // One update behind means that the engine stopped while it wrote the newest.
    let too_old = newest.0 - update.0 > 1;
    too_old.then_some(LeftOut::Stale {
        member,
        member_uuid: record.uuid,
        update,
        newest,
    })
}

/// Why a claim is refused that shares its member with other drives.
fn as_clone(claim: &Claim, record: &MemberRecord, claims: &[Claim]) -> Option<LeftOut> {
    let same = |other: &&Claim| other.superblock.member_uuid == claim.superblock.member_uuid;
    let known =
        |claim: &Claim| !record.identity.is_empty() && claim.found.identity == record.identity;
    let (member, update) = (claim.member(), claim.update());
    let rivals: Vec<&Claim> = claims
        .iter()
        .filter(same)
        .filter(|other| other.drive() != claim.drive() && other.update() >= update)
        .collect();
    let older_than = rivals.iter().find(|other| other.update() > update);
    let other = older_than.or(rivals.first())?;
    if older_than.is_some() {
        return Some(LeftOut::OlderClone {
            member,
            used: other.drive(),
            update,
        });
    }
    let known_rival = rivals.iter().find(|other| known(other));
    match (known(claim), known_rival) {
        (true, None) => None,
        (false, Some(used)) => Some(LeftOut::OlderClone {
            member,
            used: used.drive(),
            update,
        }),
        (true, Some(_)) | (false, None) => Some(LeftOut::Clone {
            member,
            other: other.drive(),
            update,
        }),
    }
}

/// Whether the members that may be used are enough, and may start by themselves.
fn verdict(assembly: &Assembly, from: (&History, &[Claim]), name: Name) -> Verdict {
    let config = &assembly.config;
    if let Some(explanation) = why_refused(assembly, from, name) {
        return Verdict::Refused { explanation };
    }
    let Standing {
        in_sync,
        usable,
        proven,
        others_may_have_gone_on,
    } = Standing::new(assembly, from.1);
    if let Some(mut explanation) = why_failed(&assembly.superblock, &usable) {
        explain_left_out(&mut explanation, assembly, name);
        return Verdict::Failed { explanation };
    }
    let counting = if others_may_have_gone_on {
        &proven
    } else {
        &usable
    };
    if !is_majority(counting, &in_sync) {
        let mut explanation = format!(
            "only {} of the {} members in sync at {} are usable",
            usable.len(),
            in_sync.len(),
            config.update
        );
        let hidden = usable.len() - proven.len();
        if hidden > 0 {
            let more = ", and {} of these cannot read what may be a newer record";
            explanation.push_str(&more.replace("{}", &hidden.to_string()));
        }
        explanation.push_str(
            "; the others may have gone on without them, and all that they acknowledged since \
             would be lost",
        );
        explain_left_out(&mut explanation, assembly, name);
        return Verdict::NeedsForce { explanation };
    }
    if let Some(mut explanation) = why_left_may_have_gone_on(assembly, from.1, counting) {
        explain_left_out(&mut explanation, assembly, name);
        return Verdict::NeedsForce { explanation };
    }
    Verdict::Startable {
        degraded: usable.len() < config.members.len(),
        dirty: !config.clean,
    }
}

/// What the members that the deciding record calls in sync are good for.
struct Standing {
    in_sync: Vec<MemberIndex>,
    /// Those that may be used.
    usable: Vec<MemberIndex>,
    /// Those of them of which no record is hidden: if the array has gone on with one of these, it
    /// is known.
    proven: Vec<MemberIndex>,
    /// Whether the rest would be enough to have gone on alone.
    others_may_have_gone_on: bool,
}

impl Standing {
    fn new(assembly: &Assembly, claims: &[Claim]) -> Standing {
        let in_sync: Vec<MemberIndex> = assembly.config.in_sync().collect();
        let doubtful = |member: MemberIndex| {
            // Not what another drive of that place once was.
            let used = |claim: &&Claim| assembly.members[member.at()] == Some(claim.drive());
            claims
                .iter()
                .filter(used)
                .any(|claim| claim.found.is_doubtful())
        };
        let mut usable = in_sync.clone();
        usable.retain(|member| assembly.members[member.at()].is_some());
        let mut proven = usable.clone();
        proven.retain(|member| !doubtful(*member));
        let mut others = in_sync.clone();
        others.retain(|member| !proven.contains(member));
        Standing {
            others_may_have_gone_on: why_failed(&assembly.superblock, &others).is_none(),
            in_sync,
            usable,
            proven,
        }
    }
}

/// Whether nobody can have gone on without these.
fn is_majority(proven: &[MemberIndex], in_sync: &[MemberIndex]) -> bool {
    let tie_won = 2 * proven.len() == in_sync.len() && proven.first() == in_sync.first();
    2 * proven.len() > in_sync.len() || tie_won
}

/// Why a start by a record of starts that have not come to their second one may lose something.
/// What such a record leaves out counts all the same: perhaps nobody but those that are here has
/// the record, and the others have gone on as if it had never been. Of those that it leaves out,
/// who is here has not.
fn why_left_may_have_gone_on(
    assembly: &Assembly,
    claims: &[Claim],
    counting: &[MemberIndex],
) -> Option<String> {
    let config = &assembly.config;
    let left: Vec<MemberIndex> = (config.left_by_unfinished())
        .filter(|member| assembly.counted_until_left(*member))
        .collect();
    let is_here = |member: &&MemberIndex| {
        let uuid = config.members[member.at()].uuid;
        claims.iter().any(|claim| {
            let is_recent = claim.update().0 + 2 >= config.unfinished_since.0;
            is_recent && claim.superblock.member_uuid == uuid && !claim.found.is_doubtful()
        })
    };
    let mut before: Vec<MemberIndex> = config.in_sync().chain(left.iter().copied()).collect();
    before.sort_unstable();
    let mut here: Vec<MemberIndex> = (counting.iter())
        .chain(left.iter().filter(is_here))
        .copied()
        .collect();
    here.sort_unstable();
    if is_majority(&here, &before) {
        return None;
    }
    Some(format!(
        "only {} of the {} members are here that were in sync before {}, which was written by a \
         start that was not finished; the others may have gone on without it, and all that they \
         acknowledged since would be lost",
        here.len(),
        before.len(),
        config.unfinished_since
    ))
}

fn why_refused(
    assembly: &Assembly,
    (history, claims): (&History, &[Claim]),
    name: Name,
) -> Option<String> {
    let config = &assembly.config;
    let future = |(_, reason): &&(DriveIndex, LeftOut)| matches!(reason, LeftOut::Future(_));
    if let Some((drive, reason)) = assembly.left_out.iter().find(future) {
        return Some(format!(
            "{}: {reason}; start it with the version that wrote this, or take that drive away",
            name(*drive)
        ));
    }
    // Whoever set such a bit may have reached some of the members only.
    let used = |claim: &&Claim| assembly.members.contains(&Some(claim.drive()));
    let unknown = claims.iter().filter(used).find_map(|claim| {
        let features = [claim.superblock.features, claim.config.features];
        let bits = features.map(|features| features.unknown_read_only());
        (bits != [0, 0]).then_some((claim.drive(), bits[0] | bits[1]))
    });
    if let Some((drive, bits)) = unknown {
        return Some(format!(
            "{}: array {} uses features from the future (read-only-compat bits {bits:#x}) and \
             must not be written; start it with the version that wrote this",
            name(drive),
            config.array
        ));
    }
    let rival = history.rival?;
    Some(format!(
        "split brain, both sides may hold acknowledged writes: {}; {}; attach the members that \
         are absent, or remove those of the side to give up",
        side(config, claims, name),
        side(rival, claims, name)
    ))
}

/// One side of a split brain: its drives, what it wrote last, from where, and with whom.
fn side(config: &ArrayConfig, claims: &[Claim], name: Name) -> String {
    let is_its = |claim: &&Claim| claim.config.update_id == config.update_id;
    let drives = claims.iter().filter(is_its);
    let drives: Vec<String> = drives.map(|claim| name(claim.drive())).collect();
    let when = match config.written_seconds {
        0 => "at an unknown time".to_owned(),
        seconds => format!("on {}", date(seconds)),
    };
    let mut text = format!(
        "{} wrote {} ({:032x}) {when} after",
        drives.join(", "),
        config.update,
        config.update_id
    );
    for (update, id) in config.ancestors.iter().take(3) {
        write!(text, " {} ({id:032x})", update.0).expect("memory");
    }
    text.push_str(" with members");
    for member in config.in_sync() {
        write!(text, " {}", member.0).expect("memory");
    }
    text
}

/// Why members are not enough, if they are not.
pub(super) fn why_failed(superblock: &Superblock, usable: &[MemberIndex]) -> Option<String> {
    let geometry = &superblock.geometry;
    (0..geometry.groups()).find_map(|group| {
        let of_group = |member: &&MemberIndex| member.at() / geometry.group_members() == group;
        let count = usable.iter().filter(of_group).count();
        (count < geometry.data()).then(|| {
            format!(
                "group {group} needs {} members in sync and has {count}",
                geometry.data()
            )
        })
    })
}

fn explain_left_out(explanation: &mut String, assembly: &Assembly, name: Name) {
    let says_so = |member| {
        let mut reasons = assembly.left_out.iter();
        reasons.any(|(_, reason)| reason.member() == Some(member))
    };
    for (position, drive) in assembly.members.iter().enumerate() {
        let member = MemberIndex::from_at(position);
        if drive.is_none() && !says_so(member) {
            write!(explanation, "; {member} is not here").expect("memory");
        }
    }
    for (drive, reason) in &assembly.left_out {
        let (drive, reason) = (name(*drive), reason.told(name));
        write!(explanation, "; {drive} left out: {reason}").expect("memory");
    }
}
