//! Who may return, and what each has missed.

use units::{DriveIndex, StripeIndex};

use super::*;
use crate::format::tests::{config, superblock};
use crate::format::{Before, DriveIdentity, Missed, RegionBlock, RegionEntry, RegionKind};

const DRIVE_BYTES: u64 = 256 << 20;
const MEMBER: MemberIndex = MemberIndex(3);

fn found(superblock: Superblock, config: &ArrayConfig) -> Found {
    Found {
        drive: DriveIndex(9),
        drive_bytes: DRIVE_BYTES,
        identity: DriveIdentity::default(),
        superblocks: vec![Ok(superblock); 4],
        configs: vec![Ok((superblock.member, config.clone()))],
    }
}

fn stripes() -> u64 {
    superblock(0, 6, DRIVE_BYTES).geometry.stripes()
}

/// A RAID 6 whose parity is trusted.
fn resynced() -> ArrayConfig {
    let mut config = config(6);
    config.resynced_until = StripeIndex(stripes());
    config
}

/// The next record, which excludes the member.
fn excluding(config: &ArrayConfig, cause: ExclusionCause) -> ArrayConfig {
    let mut next = config.next(0xE0);
    let before = Before {
        committed: config,
        name: config.name_of_update(),
        stripes: stripes(),
    };
    next.exclude(MEMBER, cause, &before);
    next
}

fn missed_in(config: &ArrayConfig) -> Missed {
    match config.members[MEMBER.at()].state {
        MemberState::Rebuilding { missed, .. } | MemberState::Excluded { missed, .. } => missed,
        MemberState::InSync | MemberState::Missing => panic!("it is not out"),
    }
}

fn later(config: &ArrayConfig, updates: u128) -> ArrayConfig {
    (0..updates).fold(config.clone(), |config, n| config.next(0xB000 + n))
}

#[test]
fn the_drive_that_left_returns_however_long_it_was_out() {
    let own = superblock(3, 6, DRIVE_BYTES);
    let old = resynced();
    for updates in [0, 1, 40] {
        let now = later(&excluding(&old, ExclusionCause::Gone), updates);
        let back = may_return(&found(own, &old), &own, &now).expect("the one that left");
        assert_eq!((back.member, back.since), (MEMBER, Update(2)));
        assert!(back.by_itself());
    }
    for cause in ExclusionCause::ALL {
        let now = excluding(&old, cause);
        let back = may_return(&found(own, &old), &own, &now).expect("whatever it left for");
        let nothing_wrong = [
            ExclusionCause::Gone,
            ExclusionCause::Absent,
            ExclusionCause::Stale,
            ExclusionCause::Replaced,
        ];
        assert_eq!(back.by_itself(), nothing_wrong.contains(&cause), "{cause}");
    }
}

#[test]
fn one_that_counts_is_as_it_was_if_it_has_the_last_record_or_one_attempted_since() {
    let own = superblock(3, 6, DRIVE_BYTES);
    let durable = later(&resynced(), 4);
    let attempted = later(&durable, 2);
    let has = |config: &ArrayConfig| is_as_it_was(&found(own, config), &own, &durable, &attempted);
    for ours in [&durable, &later(&durable, 1), &attempted] {
        assert_eq!(has(ours), Ok(MEMBER));
    }
    let theirs = durable.next(0xF00D);
    let before = later(&resynced(), 3);
    for other in [&theirs, &before, &theirs.next(0xF00E), &later(&durable, 3)] {
        let refused = has(other).expect_err("it was elsewhere");
        assert!(matches!(refused, NoReturn::OtherRecord { .. }), "{refused}");
    }
}

#[test]
fn every_other_drive_is_refused() {
    let own = superblock(3, 6, DRIVE_BYTES);
    let old = later(&resynced(), 4);
    let now = excluding(&old, ExclusionCause::Gone);
    let refused = |found: &Found, now: &ArrayConfig| {
        may_return(found, &own, now)
            .expect_err("another one")
            .to_string()
    };
    // Nothing, another array, another layout, another member, one that is in use.
    let mut blank = found(own, &old);
    blank.superblocks = vec![Err(crate::format::FormatError::Blank); 4];
    assert!(refused(&blank, &now).contains("no member"));
    let mut other = found(own, &old);
    for superblock in other.superblocks.iter_mut().flatten() {
        superblock.array = Uuid::from_u128(0xA8);
    }
    for (_, config) in other.configs.iter_mut().flatten() {
        config.array = Uuid::from_u128(0xA8);
    }
    assert!(refused(&other, &now).contains("another array"));
    let mut replaced = now.clone();
    replaced.members[3].uuid = Uuid::from_u128(77);
    assert!(refused(&found(own, &old), &replaced).contains("took the place"));
    assert!(refused(&found(own, &old), &old).contains("is not out"));
    // An older copy of it, and one that went on by itself, just now and long ago.
    let copy = later(&resynced(), 2);
    assert!(refused(&found(own, &copy), &now).contains("an old copy"));
    let alone = old.next(0xA1);
    for updates in [0, 40] {
        let now = later(&now, updates);
        assert!(refused(&found(own, &alone), &now).contains("went on by itself"));
        let mut forked = old.clone();
        forked.update_id = 0xA2;
        assert!(refused(&found(own, &forked), &now).contains("went on by itself"));
    }
    // A member that is out never gets the record that says so.
    assert!(refused(&found(own, &now), &now).contains("went on by itself"));
    let mut copy = found(own, &old);
    copy.identity = DriveIdentity::new("wwid:2");
    assert!(
        may_return(&copy, &own, &now).is_ok(),
        "nothing is known of the other"
    );
    let mut known = now.clone();
    known.members[3].identity = DriveIdentity::new("wwid:1");
    assert!(refused(&copy, &known).contains("a copy of wwid:1 on wwid:2"));
    let mut small = found(own, &old);
    small.drive_bytes = 1 << 20;
    assert!(refused(&small, &now).contains("shrunk"));
}

#[test]
fn a_member_that_was_absent_may_be_one_update_behind() {
    let own = superblock(3, 6, DRIVE_BYTES);
    let old = later(&resynced(), 4);
    let newest = old.next(0xC0);
    let now = excluding(&newest, ExclusionCause::Absent);
    assert!(may_return(&found(own, &old), &own, &now).is_ok());
    let gone = excluding(&newest, ExclusionCause::Gone);
    assert!(may_return(&found(own, &old), &own, &gone).is_err());
    // Nothing tells any more whether it is the one.
    assert!(may_return(&found(own, &old), &own, &later(&now, 20)).is_err());
}

#[test]
fn who_leaves_again_has_missed_what_it_had_missed_before() {
    let old = later(&resynced(), 4);
    let out = excluding(&old, ExclusionCause::Gone);
    assert_eq!(missed_in(&out).base, Update(6));
    let mut back = later(&out, 3).next(0xD0);
    back.members[3].state = MemberState::Rebuilding {
        until: StripeIndex(5),
        missed: missed_in(&out),
    };
    let again = excluding(&back, ExclusionCause::Gone);
    let missed = missed_in(&again);
    assert_eq!(
        (missed.base, missed.held),
        (Update(6), back.name_of_update())
    );
    // It had never got the record that brought it back.
    let mut early = back.next(0xD1);
    let before = Before {
        committed: &out,
        name: out.name_of_update(),
        stripes: stripes(),
    };
    early.exclude(MEMBER, ExclusionCause::Gone, &before);
    assert_eq!(missed_in(&early), missed_in(&out));
    // A new drive that was not filled has missed everything; so has who left during a resync.
    back.members[3].state = MemberState::Rebuilding {
        until: StripeIndex(5),
        missed: Missed::ALL,
    };
    assert_eq!(
        missed_in(&excluding(&back, ExclusionCause::Gone)).base,
        Update(0)
    );
    let mut resyncing = old.clone();
    resyncing.resynced_until = StripeIndex(stripes() - 1);
    assert_eq!(
        missed_in(&excluding(&resyncing, ExclusionCause::Gone)).base,
        Update(0)
    );
    let mut untrusted = out.clone();
    untrusted.untrust();
    assert_eq!(missed_in(&untrusted).base, Update(0));
}

#[test]
fn what_a_record_claims_of_passes_does_not_count_for_whom_it_excludes() {
    // It was to be called filled, and the flush of what it was filled with failed.
    let old = later(&resynced(), 4);
    let out = excluding(&old, ExclusionCause::Gone);
    let mut back = later(&out, 3);
    back.members[3].state = MemberState::Rebuilding {
        until: StripeIndex(5),
        missed: missed_in(&out),
    };
    let mut filled = back.next(0xF0);
    filled.members[3].state = MemberState::InSync;
    let exclude = |next: &mut ArrayConfig, committed: &ArrayConfig| {
        let before = Before {
            committed,
            name: committed.name_of_update(),
            stripes: stripes(),
        };
        next.exclude(MEMBER, ExclusionCause::WriteError, &before);
    };
    exclude(&mut filled, &back);
    assert_eq!(missed_in(&filled).base, Update(6));
    // The same of a resync.
    let mut resyncing = old.clone();
    resyncing.resynced_until = StripeIndex(stripes() - 1);
    let mut resynced = resyncing.next(0xF1);
    resynced.resynced_until = StripeIndex(stripes());
    exclude(&mut resynced, &resyncing);
    assert_eq!(missed_in(&resynced).base, Update(0));
}

#[test]
fn missed_is_what_is_dirty_or_was_called_clean_since() {
    let own = superblock(0, 6, DRIVE_BYTES);
    let space = own.regions();
    let mut map = RegionMap::new(space, own.array);
    let told = |region: usize| RegionEntry {
        kind: if region == 1 {
            RegionKind::Dirty
        } else {
            RegionKind::Clean
        },
        epoch: Update([0, 0, 5, 6, 7].get(region).copied().unwrap_or(0)),
    };
    let mut bytes = vec![0; crate::format::REGION_BLOCK_BYTES];
    RegionBlock::encode_into((own.array, 0, 1), told, &mut bytes);
    for member in space.holders(0) {
        map.take(member, 0, &bytes);
    }
    // The second block was never written.
    for member in space.holders(1) {
        map.take(member, 1, &[0; crate::format::REGION_BLOCK_BYTES]);
    }
    map.complete();
    let missed = map.missed(Update(6)).expect("not everything");
    let has = |region: u32| missed.has(space.stripes(region).0);
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(has),
        [false, true, false, true, true, false]
    );
    assert_eq!(missed.count(), 3);
    assert_eq!(map.missed(Update(0)), None);
}

#[test]
fn what_the_log_did_again_is_missed_by_who_was_not_there() {
    let own = superblock(0, 6, DRIVE_BYTES);
    let old = later(&resynced(), 4);
    let here: Vec<Found> = (0..6)
        .filter(|member| *member != 3)
        .map(|member| found(superblock(member, 6, DRIVE_BYTES), &old))
        .collect();
    let assembly = super::super::assemble(&here).arrays.remove(0);
    let mut next = assembly.start(1, false).expect("startable");
    assert_eq!(missed_in(&next).base, Update(6));
    let mut map = RegionMap::new(own.regions(), own.array);
    let redo = Redo {
        member: MemberIndex(0),
        offset: 0,
        bytes: vec![1; 4096],
    };
    // Dirty as it is: it is missed anyway.
    assembly.note_replay(
        &mut next,
        &mut map.clone().all_dirty(),
        std::slice::from_ref(&redo),
    );
    assert_eq!(missed_in(&next).base, Update(6));
    assembly.note_replay(&mut next, &mut map, &[redo]);
    assert_eq!(missed_in(&next).base, Update(0));
}

#[test]
fn a_region_that_the_log_wrote_to_is_no_more_called_unwritten() {
    let (config, own) = (resynced(), superblock(0, 6, DRIVE_BYTES));
    let here: Vec<Found> = (0..6)
        .map(|member| found(superblock(member, 6, DRIVE_BYTES), &config))
        .collect();
    let assembly = super::super::assemble(&here).arrays.remove(0);
    let space = own.regions();
    let last = u32::try_from(space.count() - 1).expect("few");
    let (stripe, _) = space.stripes(last);
    let redo = Redo {
        member: own.geometry.member(stripe, units::Role(0)),
        offset: own.geometry.member_block(stripe) * own.geometry.block_size().bytes(),
        bytes: vec![1; 4096],
    };
    let at = bytes_usize(u64::from(last));
    let mut map = RegionMap::unwritten(space, own.array);
    assert_eq!(map.entry(at).kind, RegionKind::Unwritten);
    assembly.note_written(&mut map, &[redo]);
    assert_eq!(map.entry(at).kind, RegionKind::Dirty);
}

#[test]
fn log_and_region_map_are_erased() {
    let own = superblock(3, 6, DRIVE_BYTES);
    assert_eq!(
        areas_to_erase(&own),
        [own.layout.log, own.layout.region_map]
    );
}
