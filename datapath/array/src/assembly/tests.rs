//! Scenarios of assembly, each with the verdict a careful operator would give; and a model engine
//! that crashes at every point of a commit, whose acknowledged writes no assembly may lose.

mod histories;

use proptest::prelude::*;
use units::{DriveIndex, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::*;
use crate::format::tests::{config, level_superblock, superblock};
use crate::format::{ExclusionCause, Missed};
use crate::geometry::Level;

const DRIVE_BYTES: u64 = 256 << 20;

/// A drive with four good superblocks and one record.
fn drive(index: u16, superblock: Superblock, config: &ArrayConfig) -> Found {
    Found {
        drive: DriveIndex(index),
        drive_bytes: DRIVE_BYTES,
        identity: DriveIdentity::new(&format!("serial-{}", superblock.member.0)),
        superblocks: vec![Ok(superblock); 4],
        configs: vec![Ok((superblock.member, config.clone()))],
    }
}

/// Drives of a RAID 6 of `members`, all with the same record.
fn raid6(members: u16, config: &ArrayConfig) -> Vec<Found> {
    let place = |member| {
        drive(
            member,
            superblock(member, usize::from(members), DRIVE_BYTES),
            config,
        )
    };
    (0..members).map(place).collect()
}

/// Drives of any level that has no groups, or groups of two; all with the same record.
fn drives_of(level: Level, members: u16, config: &ArrayConfig) -> Vec<Found> {
    let count = usize::from(members);
    let superblock = |member| level_superblock(level, member, count, DRIVE_BYTES);
    let place = |member| drive(member, superblock(member), config);
    (0..members).map(place).collect()
}

fn mirror(config: &ArrayConfig) -> Vec<Found> {
    drives_of(Level::L1, 2, config)
}

fn set(found: &mut Found, config: &ArrayConfig) {
    let member = found.superblocks[0].as_ref().expect("good").member;
    found.configs = vec![Ok((member, config.clone()))];
}

fn one(found: &[Found]) -> Assembly {
    let mut assembled = assemble(found);
    assert_eq!(assembled.arrays.len(), 1, "{:?}", assembled.strays);
    assembled.arrays.remove(0)
}

/// A record some updates into its life.
fn later(config: &ArrayConfig, updates: u128) -> ArrayConfig {
    (0..updates).fold(config.clone(), |config, n| config.next(0xB000 + n))
}

fn excluding(config: &ArrayConfig, member: usize, id: u128) -> ArrayConfig {
    let mut next = config.next(id);
    next.members[member].state = MemberState::Excluded {
        since: next.update,
        cause: ExclusionCause::WriteError,
        missed: Missed::ALL,
    };
    next
}

const COMPLETE: Verdict = Verdict::Startable {
    degraded: false,
    dirty: false,
};
const DEGRADED: Verdict = Verdict::Startable {
    degraded: true,
    dirty: false,
};

const DIRTY: Verdict = Verdict::Startable {
    degraded: true,
    dirty: true,
};

fn reason_for(assembly: &Assembly, drive: u16) -> String {
    let reason = assembly
        .left_out
        .iter()
        .find(|(index, _)| index.0 == drive)
        .unwrap_or_else(|| panic!("drive {drive} is left out: {:?}", assembly.left_out));
    reason.1.to_string()
}

fn explanation(assembly: &Assembly) -> String {
    assembly.verdict.to_string()
}

#[test]
fn all_members_with_one_record_start_complete() {
    let assembly = one(&raid6(6, &config(6)));
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.members.len(), 6);
    assert!(assembly.members.iter().all(Option::is_some));
    assert!(assembly.left_out.is_empty() && assembly.behind.is_empty());
    assert_eq!(assembly.array(), Uuid::from_u128(0xA7));
}

#[test]
fn the_order_of_drives_does_not_matter() {
    let mut found = raid6(6, &later(&config(6), 3));
    let forward = one(&found);
    found.reverse();
    assert_eq!(one(&found), forward);
}

#[test]
fn an_array_that_was_not_stopped_cleanly_is_dirty() {
    let mut running = config(6);
    running.clean = false;
    running.resynced_until = StripeIndex(99);
    let assembly = one(&raid6(6, &running));
    assert_eq!(
        assembly.verdict,
        Verdict::Startable {
            degraded: false,
            dirty: true
        }
    );
    let start = assembly.start(5, false).expect("startable");
    // Which parity can be trusted besides says the region map.
    assert_eq!(start.resynced_until, StripeIndex(99));
    running.clean = true;
    let assembly = one(&raid6(6, &running));
    assert_eq!(
        assembly.verdict,
        Verdict::Startable {
            degraded: false,
            dirty: false
        }
    );
    let start = assembly.start(5, false).expect("startable");
    assert_eq!(start.resynced_until, StripeIndex(99));
    assert!(!start.clean, "while it runs it is not clean");
}

#[test]
fn only_parity_may_be_torn() {
    let mut running = config(4);
    let stripes = superblock(0, 4, DRIVE_BYTES).geometry.stripes();
    running.resynced_until = StripeIndex(stripes);
    for clean in [false, true] {
        running.clean = clean;
        for (level, has_parity) in [(Level::L0, false), (Level::L1, false), (Level::L5, true)] {
            let assembly = one(&drives_of(level, 4, &running));
            let may_be = has_parity && !clean;
            assert_eq!(assembly.may_be_torn(), may_be, "{level:?}, clean: {clean}");
            let mut logged = assembly;
            logged.config.options.write_hole = WriteHole::Strict;
            logged.config.resynced_until = StripeIndex(u64::MAX);
            assert!(!logged.may_be_torn(), "{level:?}, all was logged");
            logged.config.resynced_until = StripeIndex(0);
            assert_eq!(logged.may_be_torn(), may_be, "{level:?}, before it was");
        }
    }
}

#[test]
fn a_start_tears_if_somebody_is_not_here_and_parity_may_not_agree() {
    for clean in [false, true] {
        let mut running = config(4);
        running.clean = clean;
        let mut found = drives_of(Level::L5, 4, &running);
        assert!(!one(&found).would_tear(), "all are here");
        found.remove(1);
        assert_eq!(one(&found).would_tear(), !clean, "clean: {clean}");
    }
    let mut whole = one(&drives_of(Level::L5, 4, &config(4)));
    whole.config.clean = false;
    whole.config = excluding(&whole.config, 2, 7);
    assert!(!whole.would_tear(), "it was out before");
    whole.config.unfinished_since = whole.config.update;
    assert!(whole.would_tear(), "left out by a start");
}

#[test]
fn a_member_counts_for_the_stripes_below_the_one_to_be_filled_next() {
    let mut assembly = one(&raid6(6, &config(6)));
    let counts = |assembly: &Assembly, member: usize| {
        let stripes = [0, 4, 5, 6].map(StripeIndex);
        stripes.map(|stripe| assembly.counts(MemberIndex::from_at(member), stripe))
    };
    assembly.config.members[2].state = MemberState::Rebuilding {
        until: StripeIndex(5),
        missed: Missed::ALL,
    };
    assembly.config.members[3].state = MemberState::Missing;
    assembly.members[4] = None;
    assert_eq!(counts(&assembly, 1), [true; 4]);
    assert_eq!(counts(&assembly, 2), [true, true, false, false]);
    assert_eq!(counts(&assembly, 3), [false; 4], "out");
    assert_eq!(counts(&assembly, 4), [false; 4], "not here");
}

#[test]
fn lives_are_counted_from_each_start() {
    let most = (1 << LIVES_SHIFT) - 1;
    for lives in [0, 1, 5, most] {
        assert_eq!(lives_since_start(7 << LIVES_SHIFT | lives), lives);
    }
}

#[test]
fn a_majority_starts_degraded_and_excludes_the_absent() {
    let found = raid6(6, &config(6));
    let assembly = one(&found[..4]);
    assert_eq!(assembly.verdict, DEGRADED);
    let start = assembly.start(77, false).expect("startable");
    assert_eq!(start.update, Update(2));
    assert_eq!(start.update_id, 77);
    let absent = MemberState::Excluded {
        since: Update(2),
        cause: ExclusionCause::Absent,
        // Not all parity was trusted, so the base tells nothing; the record does.
        missed: Missed {
            base: Update(0),
            held: (Update(1), 0xF001),
        },
    };
    assert_eq!(start.members[4].state, absent);
    assert_eq!(start.members[5].state, absent);
    assert_eq!(start.in_sync().count(), 4);
}

#[test]
fn the_record_before_the_log_leaves_out_the_absent_and_keeps_the_log() {
    let mut running = later(&config(6), 3);
    running.clean = false;
    running.log_from = 5 << LIVES_SHIFT;
    let found = raid6(6, &running);
    let assembly = one(&found[1..]);
    let next = assembly.without(|_| true, 0x77, false);
    let next = next.expect("startable");
    assert_eq!((next.update, next.log_from), (Update(5), running.log_from));
    assert_eq!(next.in_sync().count(), 5);
    // All that it was written to, or some; and the member that was away has the record before it,
    // or the one before that, or one of that number that others never had.
    let mut lower = running.next(0x11);
    lower.log_from = running.log_from;
    let higher = running.next(0x99);
    for own in [running.clone(), later(&config(6), 2), lower, higher] {
        // Where it was cut off, another of that number may be the one that counts.
        let some = [1..6, 1..2, 4..6].into_iter();
        for reached in some.take(if own.update < next.update { 3 } else { 1 }) {
            let mut found = found.clone();
            set(&mut found[0], &own);
            found[reached].iter_mut().for_each(|one| set(one, &next));
            for here in [&found[..], &found[1..]] {
                let assembly = one(here);
                assert_eq!(assembly.config, next, "{}", own.update);
                assert_eq!(assembly.verdict, DIRTY);
                assert_eq!(assembly.members[0], None);
                assert_eq!(assembly.members.iter().flatten().count(), 5);
            }
        }
    }
}

#[test]
fn who_misses_what_had_begun_is_left_out_with_those_who_may_know_better() {
    let mut running = later(&config(6), 3);
    running.clean = false;
    let found = raid6(6, &running);
    let assembly = one(&found[2..]);
    let part = |member| crate::Redo {
        member: MemberIndex(member),
        offset: 0,
        bytes: Vec::new(),
    };
    let who = |begun: &[crate::Redo]| assembly.who_misses(vec![MemberIndex(1)], begun);
    assert_eq!(who(&[]), [MemberIndex(1)]);
    // Whoever is here has it, and nobody is named twice.
    assert_eq!(who(&[part(1), part(2), part(5)]), [MemberIndex(1)]);
    let both = [MemberIndex(1), MemberIndex(0)];
    assert_eq!(who(&[part(0), part(1), part(0)]), both);
}

#[test]
fn every_record_of_a_start_leaves_out_who_was_set_aside() {
    let mut running = later(&config(6), 3);
    running.clean = false;
    running.resynced_until = StripeIndex(superblock(0, 6, DRIVE_BYTES).geometry.stripes());
    let found = raid6(6, &running);
    let whole = one(&found);
    let regions = crate::RegionMap::new(whole.superblock.regions(), whole.array());
    let (first, second) = (MemberIndex(1), MemberIndex(4));
    let rest = whole.set_aside(&[first, second], &regions);
    let rest = rest.expect("four of six");
    // The log makes a record necessary because of the first one only.
    let next = rest.without(|member| member == first, 0x77, false);
    let next = next.expect("startable");
    let in_sync: Vec<usize> = next.in_sync().map(MemberIndex::at).collect();
    assert_eq!(in_sync, [0, 2, 3, 5]);
    let third = MemberIndex(5);
    assert_eq!(whole.set_aside(&[first, second, third], &regions), None);
}

#[test]
fn fewer_than_k_members_fail_and_no_force_helps() {
    let assembly = one(&raid6(6, &config(6))[..3]);
    assert!(matches!(assembly.verdict, Verdict::Failed { .. }));
    assert!(assembly.start(1, true).is_err());
    let said = explanation(&assembly);
    assert!(
        said.starts_with("failed: group 0 needs 4 members in sync and has 3; member 3 is not here"),
        "{said}"
    );
}

#[test]
fn every_group_needs_its_members() {
    let all: Vec<Found> = (0..8)
        .map(|m| {
            drive(
                m,
                level_superblock(Level::L10, m, 8, DRIVE_BYTES),
                &config(8),
            )
        })
        .collect();
    let without = |missing: &[u16]| {
        let kept = all.iter().filter(|found| !missing.contains(&found.drive.0));
        one(&kept.cloned().collect::<Vec<_>>())
    };
    assert_eq!(without(&[0, 3, 5]).verdict, DEGRADED);
    let failed = without(&[4, 5]);
    assert!(explanation(&failed).contains("group 2 needs 1 members in sync and has 0"));
}

#[test]
fn half_of_a_mirror_starts_by_itself_only_with_the_lowest_member() {
    let found = mirror(&config(2));
    assert_eq!(one(&found[..1]).verdict, DEGRADED);
    let other = one(&found[1..]);
    let said = explanation(&other);
    assert!(
        said.starts_with("needs --force: only 1 of the 2 members in sync at update 1 are usable"),
        "{said}"
    );
    assert!(other.start(1, false).is_err());
    let forced = other.start(1, true).expect("forced");
    assert_eq!(forced.forced_at, Update(2));
}

#[test]
fn who_was_left_out_by_starts_that_came_to_nothing_is_remembered_until_one_does_not() {
    let mut assembly = one(&mirror(&config(2))[..1]);
    let first = assembly.without(|_| true, 1, false).expect("one of two");
    let out = |config: &ArrayConfig| config.left_by_unfinished().collect::<Vec<_>>();
    assert_eq!(first.unfinished_since, Update(2));
    assert_eq!(out(&first), [MemberIndex(1)]);
    assembly.config = first;
    let second = assembly.without(|_| true, 2, false).expect("one of two");
    assert_eq!(second.unfinished_since, Update(2), "still");
    assert_eq!(out(&second), [MemberIndex(1)]);
    assembly.config = second;
    let started = assembly.start(3, false).expect("one of two");
    assert_eq!(out(&started), [MemberIndex(1)], "its first record");
    let second = started.next(4);
    assert_eq!(out(&second), []);
    // Who was out before is none of them.
    assembly.config = second;
    let third = assembly.without(|_| true, 5, false).expect("one of two");
    assert_eq!(out(&third), []);
}

#[test]
fn only_what_is_on_members_that_are_out_is_given_up_for_good() {
    let superblock = |m| superblock(m, 4, DRIVE_BYTES);
    let all: Vec<Found> = (0..4)
        .map(|m| drive(m, superblock(m), &config(4)))
        .collect();
    let found = one(&all[2..]);
    let next = found.without(|member| member.0 == 0, 1, true);
    let next = next.expect("by force");
    let geometry = found.superblock.geometry;
    let chunk = u64::from(geometry.chunk_blocks());
    for at in 0..2 * geometry.data() {
        let block = chunk * units::bytes_u64(at) + 3;
        let place = geometry.place(block);
        let is_out = geometry.member(place.stripe, place.role).0 == 0;
        let untold = std::iter::once(block..block + 1).collect::<Vec<_>>();
        let lost = found.lost_with(&next, &untold);
        assert_eq!(lost.len(), usize::from(is_out), "{block}");
    }
}

#[test]
fn a_minority_of_a_wide_mirror_needs_force() {
    let found: Vec<Found> = (0..5)
        .map(|m| {
            drive(
                m,
                level_superblock(Level::L1, m, 5, DRIVE_BYTES),
                &config(5),
            )
        })
        .collect();
    assert!(matches!(
        one(&found[..2]).verdict,
        Verdict::NeedsForce { .. }
    ));
    assert_eq!(one(&found[..3]).verdict, DEGRADED);
}

#[test]
fn a_member_excluded_meanwhile_is_left_out() {
    let old = config(6);
    let new = excluding(&old, 2, 9);
    let mut found = raid6(6, &new);
    set(&mut found[2], &old);
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert_eq!(assembly.members[2], None);
    assert_eq!(
        reason_for(&assembly, 2),
        "member 2: excluded by update 2: write error"
    );
}

#[test]
fn a_stop_in_the_middle_of_a_commit_leaves_nobody_behind() {
    let old = later(&config(6), 4);
    for written in 1..6 {
        let mut found = raid6(6, &old);
        for member in &mut found[..written] {
            set(member, &old.next(0xC0));
        }
        let assembly = one(&found);
        assert_eq!(assembly.verdict, COMPLETE, "written on {written}");
        assert_eq!(assembly.config.update, Update(6));
        let behind: Vec<usize> = assembly.behind.iter().map(|m| m.at()).collect();
        assert_eq!(behind, (written..6).collect::<Vec<_>>());
    }
}

#[test]
fn a_member_two_updates_behind_is_stale() {
    let old = config(6);
    let mut found = raid6(6, &later(&old, 2));
    set(&mut found[3], &old);
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert_eq!(
        reason_for(&assembly, 3),
        "member 3: superblock update 1 is older than update 3"
    );
    let start = assembly.start(1, false).expect("startable");
    assert_eq!(
        start.members[3].state,
        MemberState::Excluded {
            since: Update(4),
            cause: ExclusionCause::Stale,
            missed: Missed {
                base: Update(0),
                held: (Update(3), 0xB001),
            },
        }
    );
}

/// Its drive has the record that it left by: nobody has told it that it came back.
#[test]
fn who_was_to_be_filled_and_never_heard_of_it_holds_what_it_left_with() {
    let left = (Update(1), 0x77);
    let mut old = config(6);
    old.members[3].state = MemberState::Rebuilding {
        until: StripeIndex(0),
        missed: Missed {
            base: Update(0),
            held: left,
        },
    };
    let now = later(&old, 3);
    for (has, held) in [(0, left), (1, now.name_of_update())] {
        let mut found = raid6(6, &now);
        set(&mut found[3], &later(&old, has));
        let start = one(&found).start(1, false).expect("startable");
        let MemberState::Excluded { cause, missed, .. } = start.members[3].state else {
            panic!("{:?}", start.members[3].state);
        };
        assert_eq!(cause, ExclusionCause::Stale);
        assert_eq!(missed.held, held, "{has} updates later");
    }
}

#[test]
fn of_the_two_records_of_a_member_the_newer_good_one_counts() {
    let old = later(&config(6), 4);
    let new = old.next(0xC0);
    let torn = FormatError::Checksum {
        stored: 1,
        computed: 2,
    };
    let mut found = raid6(6, &new);
    for (at, found) in found.iter_mut().enumerate() {
        let member = MemberIndex::from_at(at);
        found.configs = vec![Ok((member, old.clone())), Ok((member, new.clone()))];
    }
    found[1].configs[1] = Err(torn.clone());
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.config.update, Update(6));
    assert_eq!(assembly.behind, vec![MemberIndex(1)]);

    found[1].configs = vec![Err(torn.clone()), Err(torn)];
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert_eq!(reason_for(&assembly, 1), "member 1: no good config record");
}

#[test]
fn a_record_that_cannot_be_read_costs_no_member_and_proves_nothing() {
    let hidden = || Err(FormatError::Unreadable);
    let now = later(&config(6), 5);
    let mut found = raid6(6, &now);
    found[1].configs.push(hidden());
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.members[1], Some(DriveIndex(1)));
    // The other three, and two that are absent, could have gone on.
    for member in [2, 3] {
        found[member].configs.push(hidden());
    }
    let here = one(&found[1..5]);
    let said = explanation(&here);
    assert!(said.contains("3 of these cannot read"), "{said}");
    let whole = raid6(6, &now);
    assert_eq!(one(&whole[1..5]).verdict, DEGRADED);
    // It may have excluded the other one, and gone on.
    let mut mirror = mirror(&later(&config(2), 5));
    mirror[0].configs.push(hidden());
    assert!(explanation(&one(&mirror[..1])).starts_with("needs --force"));
    let second = one(&mirror);
    assert!(explanation(&second).starts_with("needs --force"));
    assert_eq!(second.members, [None, Some(DriveIndex(1))]);
    assert!(reason_for(&second, 0).contains("cannot be read"));
    // It may have gone on without the first, too.
    mirror[0].configs.pop();
    mirror[1].configs.push(hidden());
    let first = one(&mirror);
    assert_eq!(first.verdict, DEGRADED);
    assert_eq!(first.members, [Some(DriveIndex(0)), None]);
    // What hides something on a drive that another one has replaced is nobody's.
    mirror[1].configs.pop();
    let mut replaced = mirror[0].clone();
    replaced.configs.push(hidden());
    let mut record = mirror[0].config().expect("good").clone();
    record.members[0].uuid = Uuid::from_u128(0x11);
    for (found, member) in mirror.iter_mut().zip(0..) {
        found.configs = vec![Ok((MemberIndex(member), record.clone()))];
    }
    for superblock in mirror[0].superblocks.iter_mut().flatten() {
        superblock.member_uuid = Uuid::from_u128(0x11);
    }
    let mut three = mirror.clone();
    three.push(Found {
        drive: DriveIndex(7),
        ..replaced
    });
    let whole = one(&three);
    assert_eq!(whole.verdict, COMPLETE, "{:?}", whole.left_out);
    // One that is being filled is not needed.
    let mut filling = config(6);
    filling.members[5].state = MemberState::Rebuilding {
        until: StripeIndex(9),
        missed: Missed::ALL,
    };
    let mut found = raid6(6, &filling);
    for member in [1, 2, 3, 4, 5] {
        found[member].configs.push(hidden());
    }
    assert_eq!(one(&found).members[5], None);
    assert!(one(&found).members[4].is_some());
    // Alone it could do nothing: there is no doing without it, and nobody else has gone on.
    let mut out = excluding(&config(6), 0, 0xE0);
    out = excluding(&out, 1, 0xE1);
    let mut found = raid6(6, &out);
    found[2].configs.push(hidden());
    found[3].configs.push(hidden());
    let four = one(&found);
    assert_eq!(four.verdict, DEGRADED);
    assert!(four.members[2].is_some() && four.members[3].is_some());
}

#[test]
fn members_that_know_of_no_update_so_late_as_was_seen_need_force() {
    let now = later(&config(2), 5);
    let first = one(&mirror(&now)[..1]);
    assert_eq!(first.verdict, DEGRADED);
    let before = now.ancestors[0];
    for (seen, id, needs_force) in [
        (now.update, now.update_id, false),
        (now.update, now.update_id + 1, true),
        (before.0, before.1, false),
        (before.0, before.1 + 1, true),
        (Update(now.update.0 + 1), 7, true),
    ] {
        let mut recalled = first.clone();
        recalled.recall(seen, id);
        assert_eq!(recalled.start(7, false).is_err(), needs_force);
        // The record says so, and a split is known as one.
        let forced = recalled.start(7, true).expect("one is enough");
        assert_eq!(forced.forced_at == forced.update, needs_force);
    }
    // What cannot start for other reasons says these.
    let mut second = one(&mirror(&now)[1..]);
    let before = second.verdict.clone();
    second.recall(Update(now.update.0 + 1), 7);
    assert_eq!(second.verdict, before);
}

#[test]
fn a_record_of_another_array_or_place_on_a_member_is_not_believed() {
    let mut found = raid6(6, &config(6));
    let mut foreign = later(&config(6), 9);
    foreign.array = Uuid::from_u128(0xDEAD);
    found[0].configs.push(Ok((MemberIndex(0), foreign)));
    found[1]
        .configs
        .push(Ok((MemberIndex(4), later(&config(6), 9))));
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.config.update, Update(1));
}

#[test]
fn garbage_copies_of_a_superblock_fall_back_to_a_good_one() {
    let mut found = raid6(6, &config(6));
    found[2].superblocks[0] = Err(FormatError::Foreign);
    found[2].superblocks[1] = Err(FormatError::Truncated { bytes: 7 });
    found[2].superblocks[2] = Err(FormatError::Checksum {
        stored: 0,
        computed: 1,
    });
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.damaged, vec![(MemberIndex(2), 3)]);
}

#[test]
fn a_drive_with_no_good_copy_is_a_stray() {
    let mut found = raid6(6, &config(6));
    found[2].superblocks = vec![
        Err(FormatError::Foreign),
        Err(FormatError::Checksum {
            stored: 0,
            computed: 1,
        }),
    ];
    found[3].superblocks = vec![Err(FormatError::Blank); 4];
    let assembled = assemble(&found);
    assert_eq!(assembled.arrays[0].verdict, DEGRADED);
    assert_eq!(assembled.strays.len(), 1, "a blank drive was never ours");
    assert_eq!(
        assembled.strays[0].1.to_string(),
        "no copy of the superblock is good: checksum is 00000001, record says 00000000"
    );
    for found in &mut found {
        found.superblocks = vec![Err(FormatError::Invalid("level"))];
    }
    let assembled = assemble(&found);
    assert!(assembled.arrays.is_empty());
    assert_eq!(assembled.strays.len(), 6);
}

#[test]
fn a_drive_that_shrank_is_left_out() {
    let mut found = raid6(6, &config(6));
    found[5].drive_bytes -= 1;
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert_eq!(
        reason_for(&assembly, 5),
        "member 5: drive has shrunk to 268435455 bytes, the member needs 268435456"
    );
}

#[test]
fn a_member_of_another_array_is_another_array() {
    let mut found = raid6(6, &config(6));
    let mut other = config(6);
    other.array = Uuid::from_u128(0x11);
    let mut stranger = superblock(4, 6, DRIVE_BYTES);
    stranger.array = other.array;
    found.push(drive(6, stranger, &other));
    let assembled = assemble(&found);
    assert_eq!(assembled.arrays.len(), 2);
    assert!(matches!(
        assembled.arrays[0].verdict,
        Verdict::Failed { .. }
    ));
    assert_eq!(assembled.arrays[0].members[4], Some(DriveIndex(6)));
    assert_eq!(assembled.arrays[1].verdict, COMPLETE);
}

#[test]
fn a_replaced_drive_that_returns_is_left_out() {
    let old = config(6);
    let mut new = old.next(3);
    new.members[1].uuid = Uuid::from_u128(0x99);
    let mut found = raid6(6, &new);
    found.push(found[1].clone());
    found[6].drive = DriveIndex(6);
    set(&mut found[6], &old);
    let mut replacement = superblock(1, 6, DRIVE_BYTES);
    replacement.member_uuid = Uuid::from_u128(0x99);
    found[1] = drive(1, replacement, &new);
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.members[1], Some(DriveIndex(1)));
    assert_eq!(
        reason_for(&assembly, 6),
        "member 1: update 1; another drive took its place by update 2"
    );
}

#[test]
fn equal_clones_that_nothing_tells_apart_are_both_refused() {
    let mut found = raid6(6, &config(6));
    let mut copy = found[0].clone();
    copy.drive = DriveIndex(9);
    for known in [true, false] {
        // Both known by the same identity, or neither.
        let identity = DriveIdentity::new(if known { "serial-0" } else { "else" });
        found[0].identity = identity.clone();
        copy.identity = identity;
        let mut both = found.clone();
        both.push(copy.clone());
        let assembly = one(&both);
        assert_eq!(assembly.verdict, DEGRADED);
        assert_eq!(assembly.members[0], None);
        assert_eq!(
            reason_for(&assembly, 0),
            "member 0: drive 9 claims to be the same member with the same update 1"
        );
        assert!(reason_for(&assembly, 9).contains("drive 0 claims"));
    }
}

#[test]
fn a_clone_that_is_older_or_unknown_gives_way() {
    let old = config(6);
    let mut found = raid6(6, &old);
    let mut copy = found[0].clone();
    copy.drive = DriveIndex(9);
    copy.identity = DriveIdentity::new("another drive");
    found.push(copy);
    let assembly = one(&found);
    assert_eq!(assembly.verdict, COMPLETE);
    assert_eq!(assembly.members[0], Some(DriveIndex(0)));
    assert_eq!(
        reason_for(&assembly, 9),
        "member 0: copy with update 1; drive 0 is used instead"
    );

    // The update counts before the identity.
    for member in &mut found[1..] {
        set(member, &old.next(5));
    }
    let assembly = one(&found);
    assert_eq!(assembly.members[0], Some(DriveIndex(9)));
    assert!(reason_for(&assembly, 0).contains("drive 9 is used instead"));
}

#[test]
fn clones_of_everything_fail_rather_than_mix() {
    let mut found = raid6(4, &config(4));
    for at in 0..4 {
        let mut copy = found[at].clone();
        copy.drive = DriveIndex(10 + u16::try_from(at).unwrap());
        found.push(copy);
    }
    let assembly = one(&found);
    assert!(matches!(assembly.verdict, Verdict::Failed { .. }));
    assert_eq!(assembly.left_out.len(), 8);
}

#[test]
fn an_array_written_by_a_newer_engine_is_refused() {
    let array = Uuid::from_u128(0xA7);
    let newer = FormatError::NewerFormat { array, format: 7 };
    let mut found = raid6(6, &config(6));
    found[4].superblocks = vec![Err(newer.clone()); 4];
    let said = explanation(&one(&found));
    assert!(
        said.starts_with("refused: drive 4: format 7 of array"),
        "{said}"
    );

    let mut found = raid6(6, &config(6));
    found[1]
        .configs
        .push(Err(FormatError::NewerFeatures { array, bits: 2 }));
    let said = explanation(&one(&found));
    assert!(said.contains("incompat bits 0x2"), "{said}");

    for found in &mut found {
        found.superblocks = vec![Err(newer.clone())];
    }
    let assembled = assemble(&found);
    assert!(assembled.arrays.is_empty());
    assert_eq!(assembled.strays.len(), 6);

    let mut read_only = config(6);
    read_only.features.read_only_compat = 8;
    let said = explanation(&one(&raid6(6, &read_only)));
    assert!(said.contains("read-only-compat bits 0x8"), "{said}");

    // On one member only, in its superblock or its record.
    let mut found = raid6(6, &config(6));
    let mut marked = superblock(3, 6, DRIVE_BYTES);
    marked.features.read_only_compat = 16;
    found[3].superblocks = vec![Ok(marked); 4];
    let said = explanation(&one(&found));
    assert!(said.starts_with("refused: drive 3: array"), "{said}");
    let mut found = raid6(6, &config(6));
    set(&mut found[5], &read_only);
    let said = explanation(&one(&found));
    assert!(said.starts_with("refused: drive 5: array"), "{said}");
}

#[test]
fn a_member_of_another_layout_is_left_out() {
    let mut found = raid6(6, &later(&config(6), 1));
    let mut other = superblock(5, 6, DRIVE_BYTES);
    other.extent_stripes += 1;
    found[5] = drive(5, other, &config(6));
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert!(reason_for(&assembly, 5).contains("another layout"));
}

#[test]
fn a_rebuilding_member_is_used_but_does_not_count() {
    let mut rebuilding = config(6);
    for member in [0, 1] {
        rebuilding.members[member].state = MemberState::Rebuilding {
            until: StripeIndex(5),
            missed: Missed::ALL,
        };
    }
    let found = raid6(6, &rebuilding);
    let assembly = one(&found);
    assert_eq!(assembly.verdict, DEGRADED);
    assert_eq!(assembly.members[0], Some(DriveIndex(0)));
    assert!(matches!(one(&found[..5]).verdict, Verdict::Failed { .. }));
    let start = one(&found[1..]).start(1, false).expect("four in sync");
    assert!(matches!(
        start.members[0].state,
        MemberState::Excluded { .. }
    ));
    assert_eq!(start.members[1].state, rebuilding.members[1].state);
}

#[test]
fn nothing_found_is_no_array() {
    let nothing = assemble(&[]);
    assert!(nothing.arrays.is_empty() && nothing.strays.is_empty());
}

/// Six drives of a RAID 6 (four suffice) and an engine that keeps the order of docs/on-disk.md
/// and dies at any step. Promise: while nobody forces, an assembly that starts by itself counts
/// no member in sync that lacks an acknowledged write; and all drives together always start.
#[derive(Debug)]
struct World {
    slots: Vec<[Option<ArrayConfig>; 2]>,
    written: Vec<u32>,
    acknowledged: u32,
    next_id: u128,
}

const MEMBERS: u16 = 6;

/// Where the engine dies: after so many steps.
struct Life(u32);

impl Life {
    fn step(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

impl World {
    fn new() -> World {
        let first = config(MEMBERS);
        World {
            slots: vec![[None, Some(first)]; usize::from(MEMBERS)],
            written: vec![0; usize::from(MEMBERS)],
            acknowledged: 0,
            next_id: 1,
        }
    }

    fn id(&mut self) -> u128 {
        self.next_id += 1;
        self.next_id
    }

    fn found(&self, present: u8) -> Vec<Found> {
        let mut found = raid6(MEMBERS, &config(MEMBERS));
        for (one, slots) in found.iter_mut().zip(&self.slots) {
            let member = one.superblocks[0].as_ref().expect("good").member;
            let read = |slot: &Option<ArrayConfig>| match slot {
                Some(config) => Ok((member, config.clone())),
                None => Err(FormatError::Checksum {
                    stored: 0,
                    computed: 1,
                }),
            };
            one.configs = slots.iter().map(read).collect();
        }
        found.retain(|one| present >> one.drive.0 & 1 == 1);
        found
    }

    /// Writes a record to one drive; dying in the middle tears it.
    fn put(&mut self, at: usize, config: &ArrayConfig, life: &mut Life) -> Option<()> {
        let slot = ArrayConfig::slot(config.update).at();
        self.slots[at][slot] = None;
        life.step()?;
        self.slots[at][slot] = Some(config.clone());
        life.step()
    }

    /// Excludes who has gone, then commits to all who count, in an order that differs each time.
    /// Beyond redundancy the engine holds, for ever in this model.
    fn commit(&mut self, config: &mut ArrayConfig, here: u8, life: &mut Life) -> Option<()> {
        let counts = |state: MemberState| {
            matches!(state, MemberState::InSync | MemberState::Rebuilding { .. })
        };
        for (at, member) in config.members.iter_mut().enumerate() {
            if counts(member.state) && here >> at & 1 == 0 {
                member.state = MemberState::Excluded {
                    since: config.update,
                    cause: ExclusionCause::Gone,
                    missed: Missed::ALL,
                };
            }
        }
        (config.in_sync().count() >= 4).then_some(())?;
        let turn = usize::try_from(self.next_id % 6).unwrap();
        for at in (0..6).map(|at| (at + turn) % 6) {
            if counts(config.members[at].state) {
                self.put(at, config, life)?;
            }
        }
        Some(())
    }

    /// Writes to all in sync; excludes who has gone before it acknowledges.
    fn write(&mut self, config: &mut ArrayConfig, here: u8, life: &mut Life) -> Option<()> {
        let value = self.written.iter().max().expect("six") + 1;
        let in_sync: Vec<usize> = config.in_sync().map(MemberIndex::at).collect();
        for at in &in_sync {
            if here >> at & 1 == 1 {
                self.written[*at] = value;
                life.step()?;
            }
        }
        if in_sync.into_iter().any(|at| here >> at & 1 == 0) {
            let id = self.id();
            let mut next = config.next(id);
            self.commit(&mut next, here, life)?;
            *config = next;
        }
        self.acknowledged = value;
        Some(())
    }

    /// Brings one excluded drive back.
    fn rebuild(&mut self, config: &mut ArrayConfig, here: u8, life: &mut Life) -> Option<()> {
        let excluded = |member: &MemberState| matches!(member, MemberState::Excluded { .. });
        let back = (0..6).find(|at| here >> at & 1 == 1 && excluded(&config.members[*at].state));
        let Some(at) = back else {
            return Some(());
        };
        let source = config.in_sync().next().expect("four").at();
        for state in [
            MemberState::Rebuilding {
                until: StripeIndex(0),
                missed: Missed::ALL,
            },
            MemberState::InSync,
        ] {
            let id = self.id();
            let mut next = config.next(id);
            next.members[at].state = state;
            self.commit(&mut next, here, life)?;
            *config = next;
            self.written[at] = self.written[source];
        }
        Some(())
    }

    /// One life of an engine, from assembly to death.
    fn live(&mut self, present: u8, deeds: &[(u8, u8)], mut life: Life) -> Result<(), String> {
        let found = self.found(present);
        let assembled = assemble(&found);
        let Some(assembly) = assembled.arrays.first() else {
            return Ok(());
        };
        if present == 0x3F && !matches!(assembly.verdict, Verdict::Startable { .. }) {
            return Err(format!("all drives are here: {}", assembly.verdict));
        }
        let id = self.id();
        let Ok(start) = assembly.start(id, false) else {
            return Ok(());
        };
        for member in start.in_sync() {
            if self.written[member.at()] < self.acknowledged {
                return Err(format!("{member} lacks an acknowledged write"));
            }
        }
        // Death at any step is part of the plan.
        let _ = self.run(assembly, start, (present, deeds), &mut life);
        Ok(())
    }

    fn run(
        &mut self,
        assembly: &Assembly,
        start: ArrayConfig,
        (present, deeds): (u8, &[(u8, u8)]),
        life: &mut Life,
    ) -> Option<()> {
        for member in &assembly.behind {
            self.put(member.at(), &assembly.config, life)?;
        }
        let mut here = present;
        let mut config = start;
        self.commit(&mut config, here, life)?;
        // The start resyncs what the last death left torn: every member holds the same again.
        let newest = config.in_sync().map(|m| self.written[m.at()]).max()?;
        for member in config.in_sync().collect::<Vec<_>>() {
            self.written[member.at()] = newest;
        }
        for (deed, drive) in deeds {
            match deed % 4 {
                0 | 1 => self.write(&mut config, here, life)?,
                2 => here &= !(1 << (drive % 6)),
                _ => self.rebuild(&mut config, here, life)?,
            }
        }
        let id = self.id();
        let mut clean = config.next(id);
        clean.clean = true;
        self.commit(&mut clean, here, life)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_assembly_counts_on_a_member_that_lacks_an_acknowledged_write(
        lives in proptest::collection::vec(
            (
                prop_oneof![Just(0x3Fu8), 0u8..0x40],
                proptest::collection::vec((any::<u8>(), any::<u8>()), 0..8),
                0u32..90,
            ),
            1..10,
        ),
    ) {
        let mut world = World::new();
        for (present, deeds, steps) in lives {
            let lived = world.live(present, &deeds, Life(steps));
            prop_assert!(lived.is_ok(), "{:?} in {:?}", lived, world.written);
        }
    }
}
