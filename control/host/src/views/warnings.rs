//! What the operator should know of an array now.

use array::PassState;
use array::assembly::Verdict;
use array::format::{MemberState, Superblock};
use control::view::LEFT_WRONG;
use units::MemberIndex;
use units::limits::START_GRACE;

use super::verdict;
use crate::deleted::deleted_members;
use crate::found;
use crate::losses::{pass_word, way_out_of_losses};
use crate::state::{ArrayEntry, DriveEntry, DriveRole, Notice, Serving, State};
use crate::waiting::hanging;

/// What was said when the array was assembled and still holds, what a start would come to, and
/// what the last scrub has left.
pub(super) fn warnings(
    state: &State,
    entry: &ArrayEntry,
    config: &array::format::ArrayConfig,
    running: Option<&engine::ArrayState>,
) -> Vec<String> {
    let is_out = |drive: &DriveEntry| match drive.role {
        DriveRole::LeftOut { array, .. } => array == entry.uuid,
        DriveRole::Member { .. } | DriveRole::Copy { .. } | DriveRole::Free => false,
    };
    let is_member = |drive: &DriveEntry| match drive.role {
        DriveRole::Member { array, .. } => array == entry.uuid,
        DriveRole::LeftOut { .. } | DriveRole::Copy { .. } | DriveRole::Free => false,
    };
    let holds = |notice: &Notice| match notice {
        Notice::Lasting(text) | Notice::Told(text) => Some(text.clone()),
        Notice::LeftOut { drive, text } => {
            let out = state.drives.get(drive).is_some_and(is_out);
            out.then(|| text.clone())
        }
        Notice::Together(drives) => {
            let mut names = drives.clone();
            names.retain(|name| state.drives.get(name).is_some_and(is_member));
            let text = format!(
                "drives {} are files of one file system and fail together",
                names.join(", ")
            );
            (names.len() > 1).then_some(text)
        }
        // The pass that it has stopped tells it.
        Notice::LostListFull => None,
    };
    let mut warnings: Vec<String> = entry.notices.iter().filter_map(holds).collect();
    warnings.extend(deleted_members(state, entry.uuid).into_iter().map(|(member, drive)| {
        format!(
            "the file of {member}, drive {drive}, was deleted: it works until the engine ends and \
             is lost then; `garboard array replace {} --member {} --drive DRIVE` keeps the \
             redundancy",
            entry.name, member.0
        )
    }));
    if let Some(running) = running {
        warnings.extend(contested(state, entry, config));
        warnings.extend(hanging(state, entry, running));
    }
    warnings.extend(untold(config, &entry.superblock));
    match verdict(state, entry) {
        None
        | Some(Verdict::Startable {
            degraded: false, ..
        }) => {}
        Some(
            verdict @ (Verdict::Startable { .. }
            | Verdict::NeedsForce { .. }
            | Verdict::Failed { .. }
            | Verdict::Refused { .. }),
        ) => warnings.push(verdict.to_string()),
    }
    if matches!(entry.serving, Serving::Stopping { .. }) {
        warnings.push(format!(
            "it was told to stop and serves nobody; `garboard array stop {}` says when it has \
             stopped",
            entry.name
        ));
    }
    warnings.extend(untrusted(state, entry, running));
    warnings.extend(running.and_then(|running| stopped_pass(entry, running)));
    let wrong = unrepaired(config, running);
    if wrong > 0 {
        let blocks = if wrong == 1 { "block" } else { "blocks" };
        warnings.push(format!(
            "{LEFT_WRONG}{wrong} {blocks}; `garboard array scrub {} show` lists them",
            entry.name
        ));
    }
    warnings
}

/// Places that are lost and that several drives claim: none of these is taken back by itself.
fn contested<'a>(
    state: &'a State,
    entry: &'a ArrayEntry,
    config: &'a array::format::ArrayConfig,
) -> impl Iterator<Item = String> + 'a {
    let members = config.members.iter().enumerate();
    let lost = members.filter(|(_, member)| matches!(member.state, MemberState::Excluded { .. }));
    lost.filter_map(|(position, record)| {
        let member = MemberIndex::from_at(position);
        let mark = found::mark(&Superblock {
            member,
            member_uuid: record.uuid,
            ..entry.superblock
        });
        let is_claimant = |drive: &&DriveEntry| drive.role.is_unused() && drive.mark == mark;
        let claimants: Vec<&DriveEntry> = state.drives.values().filter(is_claimant).collect();
        let names = |drives: &[&DriveEntry]| {
            let names: Vec<&str> = drives.iter().map(|drive| drive.name.as_str()).collect();
            names.join(", ")
        };
        let contested = state.contested.get(&mark);
        let is_away = |drive: &&DriveEntry| {
            contested.is_some_and(|all| all.iter().any(|it| *it != drive.uuid))
        };
        let place = format!(
            "`garboard array replace {} --member {}",
            entry.name, member.0
        );
        match claimants[..] {
            [] => None,
            [drive] if !is_away(&drive) => None,
            [drive] => Some(format!(
                "drive {name} says that it is {member}, and so did one that is away now: it may be \
                 a copy, and is not taken back by itself; bring the other one back, or \
                 forget it (`garboard drive remove`), or {place} --drive {name}`",
                name = drive.name,
            )),
            [_, _, ..] => Some(format!(
                "drives {} all say that they are {member}, and so none of them is taken back: \
                 `garboard drive remove DRIVE` forgets a copy, and the right one returns by itself \
                 when it is the last one; or {place} --drive DRIVE`",
                names(&claimants)
            )),
        }
    })
}

/// What the start of an array has told that may cost bytes.
pub(super) fn start_warnings(entry: &ArrayEntry) -> Vec<String> {
    let told = |notice: &Notice| match notice {
        Notice::Told(text) => Some(text.clone()),
        Notice::Lasting(_)
        | Notice::LeftOut { .. }
        | Notice::Together(_)
        | Notice::LostListFull => None,
    };
    entry.notices.iter().filter_map(told).collect()
}

/// Blocks that the last scrub left wrong.
pub(super) fn unrepaired(
    config: &array::format::ArrayConfig,
    running: Option<&engine::ArrayState>,
) -> u64 {
    let scrub = running.map_or(config.scrub, |running| running.scrub.record);
    scrub.tally.unrepaired
}

/// Of a stopped array that can start: the members without which it may show wrong bytes.
pub(super) fn torn_without<'entry>(
    state: &State,
    entry: &'entry ArrayEntry,
    running: Option<&engine::ArrayState>,
) -> &'entry [u16] {
    if running.is_some() {
        return &[];
    }
    match verdict(state, entry) {
        None | Some(Verdict::Startable { .. } | Verdict::NeedsForce { .. }) => &entry.torn_without,
        Some(Verdict::Failed { .. } | Verdict::Refused { .. }) => &[],
    }
}

/// What the loss of a member would do now, beside what degraded says anyway.
fn untrusted(
    state: &State,
    entry: &ArrayEntry,
    running: Option<&engine::ArrayState>,
) -> Option<String> {
    let Some(running) = running else {
        if torn_without(state, entry, running).is_empty() {
            return None;
        }
        let by_itself = matches!(verdict(state, entry), Some(Verdict::Startable { .. }));
        let starts = by_itself.then(|| {
            format!(
                ": it waits for them {} s after the engine has started, before it starts without; \
                 `garboard array start {}` does so at once",
                START_GRACE.as_secs(),
                entry.name
            )
        });
        let starts = starts.unwrap_or_default();
        return Some(format!(
            "members that were in sync when it went down are not here, and what they held beside \
             what was being written then can only be guessed without them{starts}"
        ));
    };
    let stripes = running.map.stripes_untrusted();
    // A new array has nothing to lose yet, and its first resync is shown as that.
    (stripes > 0 && !entry.initializing).then(|| {
        format!(
            "parity of {stripes} stripes may not agree until a resync has been there: what a \
             lost member holds in them cannot be told"
        )
    })
}

/// That what is due has stopped, and how it goes on.
pub(super) fn stopped_pass(entry: &ArrayEntry, running: &engine::ArrayState) -> Option<String> {
    let pass = running.pass?;
    let (what, name) = (pass_word(pass.pass), &entry.name);
    let is_full = |notice: &Notice| matches!(notice, Notice::LostListFull);
    match pass.state {
        PassState::Running => None,
        PassState::Paused => Some(format!(
            "its {what} is stopped; `garboard array {what} {name} start` goes on with it"
        )),
        PassState::Stopped if entry.notices.iter().any(is_full) => Some(format!(
            "its {what} has stopped: {}",
            way_out_of_losses(name, pass.pass)
        )),
        PassState::Stopped => Some(format!(
            "its {what} has stopped because a stripe could not be read or written, and the log \
             says which; it is tried again after a minute at first, and each hour in the end; \
             `garboard array {what} {name} start` tries again now"
        )),
    }
}

/// That nobody can tell where something was written to volumes that are there.
fn untold(config: &array::format::ArrayConfig, superblock: &Superblock) -> Option<String> {
    let names = volume::distrusted(config, &superblock.extents());
    (!names.is_empty()).then(|| {
        format!(
            "all copies of some of the region map were lost: where nothing but zeroes was ever \
             written, volumes {} may read as anything, also if guests wrote these zeroes; check \
             what lies on them (this is said until they are deleted)",
            names.join(", ")
        )
    })
}
