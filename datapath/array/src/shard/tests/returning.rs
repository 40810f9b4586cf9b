//! Drives that come into a member's place: what the record says that they lack, and who may come.

use block::{Operation, Status};
use units::{BlockSize, DriveIndex, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::{Bench, Shape};
use crate::command::{Command, Copying, Refusal};
use crate::coordinator::MemberPlace;
use crate::format::{
    ArrayConfig, DriveIdentity, ExclusionCause, Layout, MemberRecord, MemberState, Missed,
};
use crate::geometry::Level;
use crate::io::Event;
use crate::map::MapState;
use crate::regions::Suspects;

const MEMBER: MemberIndex = MemberIndex(1);
/// Another drive than those that are there, and its own uuid.
const NEW: DriveIndex = DriveIndex(7);
pub(super) const NEW_UUID: Uuid = Uuid::from_u128(77);

/// A started home whose regions are clean, and whose passes do not run.
pub(super) fn quiet() -> Bench {
    let mut bench = Bench::home(|_, _| {});
    bench.command(Command::Passes { run: false });
    bench.outside.events.clear();
    bench
}

pub(super) fn config(bench: &Bench) -> ArrayConfig {
    bench.shard.coordinator().expect("home").config.clone()
}

fn record(bench: &Bench) -> MemberRecord {
    config(bench).members[MEMBER.at()].clone()
}

/// What a command comes to, when drives answer everything.
fn result(bench: &mut Bench, command: Command) -> Result<(), Refusal> {
    bench.outside.events.clear();
    bench.command(command);
    let done = bench.outside.events.iter().find_map(|event| {
        let Event::CommandDone { result, .. } = event else {
            return None;
        };
        Some(result.clone())
    });
    done.expect("it is answered")
}

fn refused(bench: &mut Bench, command: Command, why: &str) {
    let before = config(bench);
    let refusal = result(bench, command).expect_err(why);
    assert!(format!("{refusal:?}").contains(why), "{refusal:?}");
    let after = config(bench);
    assert_eq!(after.members, before.members, "nothing is recorded");
    // A life of the log may have ended for it.
    assert!(after.update == before.update || after.log_from > before.log_from);
}

fn new_place() -> MemberPlace {
    let mut layout = Layout::for_member(64 << 20, BlockSize::B512, 3).expect("large enough");
    // It tells its own areas from those of the drive before it.
    layout.data.offset += 512;
    layout.bad_ranges.offset += 1024;
    MemberPlace {
        drive: NEW,
        layout,
        // As of the drive that was there.
        appearance: 2,
        records: Default::default(),
    }
}

fn new_record() -> MemberRecord {
    MemberRecord {
        uuid: NEW_UUID,
        state: MemberState::Missing,
        drive_bytes: 64 << 20,
        identity: DriveIdentity::new("new"),
    }
}

/// Puts the new drive there.
pub(super) fn replace(copied: Option<Update>) -> Command {
    Command::Replace {
        member: MEMBER,
        place: new_place(),
        record: new_record(),
        copied,
    }
}

/// The drive that was there comes back, by another name.
pub(super) fn come_back(uuid: Uuid) -> Command {
    let layout = Layout::for_member(64 << 20, BlockSize::B512, 3).expect("large enough");
    Command::Return {
        member: MEMBER,
        place: MemberPlace {
            drive: DriveIndex(1),
            layout,
            appearance: 0,
            records: Default::default(),
        },
        uuid,
        identity: DriveIdentity::new("again"),
    }
}

/// What the member lacks that is being filled.
fn missed(bench: &Bench) -> Missed {
    let MemberState::Rebuilding { missed, .. } = record(bench).state else {
        panic!("{:?}", record(bench).state);
    };
    missed
}

/// Of how many regions those come back that were told of.
fn returned(bench: &Bench) -> Vec<(MemberIndex, usize)> {
    let returned = |event: &Event| {
        let Event::MemberReturned { member, regions } = event else {
            return None;
        };
        Some((*member, *regions))
    };
    bench.outside.events.iter().filter_map(returned).collect()
}

/// Makes a region dirty.
fn write_region(bench: &mut Bench, region: u64) {
    let stripe = region * u64::from(super::REGION_STRIPES);
    let write = bench.write_stripe(stripe);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn no_drive_comes_into_the_place_of_a_member_in_use() {
    let mut bench = quiet();
    let uuid = record(&bench).uuid;
    refused(&mut bench, replace(None), "still in use");
    refused(&mut bench, come_back(uuid), "still in use");
    assert_eq!(result(&mut bench, Command::Fail { member: MEMBER }), Ok(()));
    assert_eq!(result(&mut bench, replace(None)), Ok(()));
    refused(&mut bench, replace(None), "still in use");
    refused(&mut bench, come_back(NEW_UUID), "still in use");
}

#[test]
fn a_new_drive_lacks_everything_and_the_map_says_where_it_is() {
    let mut bench = quiet();
    let before = bench.shard.map.members[MEMBER.at()];
    bench.command(Command::Fail { member: MEMBER });
    write_region(&mut bench, 2);
    assert_eq!(result(&mut bench, replace(None)), Ok(()));
    let start = StripeIndex(0);
    let state = MemberState::Rebuilding {
        until: start,
        missed: Missed::ALL,
    };
    let expected = MemberRecord {
        state,
        ..new_record()
    };
    assert_eq!(record(&bench), expected);
    assert_eq!(returned(&bench), [], "it was not here before");
    let now = bench.shard.map.members[MEMBER.at()];
    assert_eq!(now.drive, Some(NEW));
    assert_eq!(now.incarnation, before.incarnation + 1);
    assert_eq!(now.data_offset, before.data_offset + 512);
    assert_eq!(now.trial_offset, before.trial_offset + 1024);
    assert_eq!(now.state, MapState::Rebuilding { until: start });
    assert!(bench.shard.map.missed[MEMBER.at()].is_none(), "all of it");
    let others = [0, 2].map(|other: usize| bench.shard.map.members[other].incarnation);
    assert_eq!(others, [0; 2]);
    let place = bench.shard.coordinator().expect("home").places[MEMBER.at()].clone();
    assert_eq!(place, Some(new_place()));
}

#[test]
fn who_comes_back_lacks_what_was_written_since_it_left_and_no_more() {
    let mut bench = quiet();
    let uuid = record(&bench).uuid;
    bench.command(Command::Fail { member: MEMBER });
    let MemberState::Excluded { since, missed, .. } = record(&bench).state else {
        panic!("it is out");
    };
    assert_eq!(missed.base, since);
    write_region(&mut bench, 2);
    write_region(&mut bench, 5);
    assert_eq!(result(&mut bench, come_back(uuid)), Ok(()));
    assert_eq!(returned(&bench), [(MEMBER, 2)]);
    assert_eq!(record(&bench).identity, DriveIdentity::new("again"));
    assert_eq!(self::missed(&bench), missed, "as when it left");
    let lacks = bench.shard.map.missed[MEMBER.at()].clone().expect("known");
    assert_eq!(*lacks, Suspects::of(lacks.space(), |at| at == 2 || at == 5));
    // It holds the rest at once, and these once they are filled.
    bench.command(Command::Passes { run: true });
    assert_eq!(record(&bench).state, MemberState::InSync);
    assert!(bench.shard.map.is_optimal());
}

#[test]
fn nobody_comes_back_who_is_another_or_was_never_there() {
    let mut bench = quiet();
    let uuid = record(&bench).uuid;
    bench.command(Command::Fail { member: MEMBER });
    refused(&mut bench, come_back(NEW_UUID), "another drive took");
    let mut missing = Bench::home(|config, _| {
        config.members[MEMBER.at()].state = MemberState::Missing;
    });
    refused(&mut missing, come_back(uuid), "was not excluded");
    assert_eq!(result(&mut bench, come_back(uuid)), Ok(()));
}

/// A member is copied, a region is written while that goes on, and it leaves: what the drive lacks
/// that comes into its place and that says it has been a copy since `copied`.
fn copy_lacks(member: MemberIndex, copied: impl Fn(Update) -> Option<Update>) -> (Missed, usize) {
    let mut bench = quiet();
    let copying = Command::Copying {
        member,
        step: Copying::Begins,
    };
    assert_eq!(result(&mut bench, copying), Ok(()));
    let begun = config(&bench).update;
    write_region(&mut bench, 3);
    let leave = Command::Leave { member: MEMBER };
    assert_eq!(result(&mut bench, leave), Ok(()));
    assert!(config(&bench).update > begun);
    assert_eq!(result(&mut bench, replace(copied(begun))), Ok(()));
    let known = bench.shard.decider().copied;
    assert_eq!(known.is_some(), member != MEMBER, "it counts once");
    (missed(&bench), returned(&bench).len())
}

#[test]
fn a_copy_lacks_what_was_written_since_it_began_if_the_home_knows_of_it() {
    let (missed, count) = copy_lacks(MEMBER, Some);
    // A start makes one update more than it was given, the copy the next.
    let begun = Update(3);
    let expected = Missed {
        base: begun,
        ..Missed::ALL
    };
    assert_eq!(
        (missed, count),
        (expected, 1),
        "it is as one who comes back"
    );
    let (missed, _) = copy_lacks(MEMBER, |begun| Some(Update(begun.0 + 100)));
    assert_eq!(missed.base, Update(begun.0 + 1), "it left by this one");
    assert_eq!(copy_lacks(MEMBER, |_| None), (Missed::ALL, 0));
    assert_eq!(copy_lacks(MemberIndex(2), Some), (Missed::ALL, 0));
}

#[test]
fn a_copy_of_a_member_that_left_with_nobody_knowing_what_it_lacks_lacks_everything() {
    let mut bench = quiet();
    let step = Copying::Begins;
    let member = MEMBER;
    let begins = Command::Copying { member, step };
    assert_eq!(result(&mut bench, begins), Ok(()));
    bench.command(Command::Leave { member });
    bench.shard.decider().config.untrust();
    assert_eq!(result(&mut bench, replace(Some(Update(2)))), Ok(()));
    assert_eq!(missed(&bench), Missed::ALL);
}

#[test]
fn a_copy_begins_only_of_an_array_that_can_do_without_the_member_and_knows_what_it_holds() {
    let begins = |member| Command::Copying {
        member,
        step: Copying::Begins,
    };
    let level = Level::L0;
    let shape = Shape {
        level,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    refused(&mut bench, begins(MEMBER), "without redundancy");
    let mut bench = quiet();
    refused(&mut bench, begins(MemberIndex(9)), "not in sync");
    type Change = fn(&mut crate::map::ArrayMap);
    let changes: [(Change, &str); 3] = [
        (|map| map.trusted_until = StripeIndex(3), "computed anew"),
        (|map| map.held[1] = true, "does not work"),
        (|map| map.hopeless[1] = true, "does not work"),
    ];
    for (change, why) in changes {
        let mut bench = quiet();
        let mut map = bench.shard.successor();
        change(&mut map);
        bench.set_map(map);
        let update = config(&bench).update;
        bench.shard.command(3, begins(MEMBER));
        bench.poll();
        let said = format!("{:?}", bench.outside.events);
        assert!(said.contains(why), "{said}");
        assert_eq!(config(&bench).update, update);
        assert_eq!(bench.shard.decider().copied, None);
    }
    assert_eq!(result(&mut bench, begins(MEMBER)), Ok(()));
}

#[test]
fn a_copy_that_ends_is_not_the_one_of_another_member() {
    let mut bench = quiet();
    let copying = |member, step| Command::Copying { member, step };
    bench.command(copying(MEMBER, Copying::Begins));
    let other = MemberIndex(2);
    assert_eq!(result(&mut bench, copying(other, Copying::Ends)), Ok(()));
    assert_eq!(bench.shard.decider().copied, Some(MEMBER));
    refused(
        &mut bench,
        copying(other, Copying::GoesOn),
        "counts for nothing",
    );
    assert_eq!(result(&mut bench, copying(MEMBER, Copying::GoesOn)), Ok(()));
    // A resync writes parity of regions that nobody is told of.
    assert_eq!(result(&mut bench, Command::Resync), Ok(()));
    refused(
        &mut bench,
        copying(MEMBER, Copying::GoesOn),
        "counts for nothing",
    );
}

#[test]
fn who_is_left_out_is_counted_by_why_and_once() {
    for (command, cause) in [
        (Command::Fail { member: MEMBER }, ExclusionCause::Command),
        (Command::Leave { member: MEMBER }, ExclusionCause::Replaced),
        (Command::Remove { member: MEMBER }, ExclusionCause::Gone),
    ] {
        let mut bench = quiet();
        let mut expected = [0; ExclusionCause::ALL.len()];
        assert_eq!(bench.shard.counters().excluded, expected);
        assert_eq!(result(&mut bench, command), Ok(()));
        expected[cause.at()] = 1;
        assert_eq!(bench.shard.counters().excluded, expected);
        let options = crate::format::ArrayOptions::default();
        assert_eq!(result(&mut bench, Command::Options(options)), Ok(()));
        assert_eq!(bench.shard.counters().excluded, expected, "it is out");
        let is_it =
            matches!(record(&bench).state, MemberState::Excluded { cause: by, .. } if by == cause);
        assert!(is_it, "{:?}", record(&bench).state);
    }
}

#[test]
fn a_record_says_how_far_a_rebuild_is_and_that_it_has_ended() {
    let mut bench = quiet();
    bench.command(Command::Fail { member: MEMBER });
    bench.command(replace(None));
    let stripes = bench.shard.map.geometry.stripes();
    bench.command(Command::Passes { run: true });
    assert_eq!(record(&bench).state, MemberState::InSync);
    // In steps of a window each of which takes long enough to be recorded.
    let mut bench = quiet();
    bench.command(Command::Fail { member: MEMBER });
    bench.command(replace(None));
    bench.shard.command(2, Command::Passes { run: true });
    bench.poll();
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        let Some(next) = bench.outside.asked.first().copied() else {
            break;
        };
        if next.operation == Operation::Read {
            bench.outside.now = bench.outside.now + std::time::Duration::from_millis(500);
        }
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
        if let MemberState::Rebuilding { until, missed } = record(&bench).state {
            assert_eq!(missed, Missed::ALL, "it still had nothing");
            seen.push(until.0);
        }
    }
    seen.dedup();
    assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
    assert!(seen.iter().all(|until| *until < stripes), "{seen:?}");
    assert_eq!(record(&bench).state, MemberState::InSync);
}

#[test]
fn what_a_pass_has_filled_since_its_record_stays_filled_but_for_another_drive() {
    let mut bench = quiet();
    bench.command(Command::Fail { member: MEMBER });
    bench.command(replace(None));
    let filled = |stripe| MapState::Rebuilding {
        until: StripeIndex(stripe),
    };
    let mut map = bench.shard.successor();
    map.members[MEMBER.at()].state = filled(5);
    bench.set_map(map);
    let state = |bench: &Bench| bench.shard.map.members[MEMBER.at()].state;
    let options = crate::format::ArrayOptions::default();
    assert_eq!(result(&mut bench, Command::Options(options)), Ok(()));
    assert_eq!(state(&bench), filled(5));
    bench.command(Command::Fail { member: MEMBER });
    assert_eq!(state(&bench), MapState::Lost);
    assert_eq!(result(&mut bench, replace(None)), Ok(()));
    assert_eq!(state(&bench), filled(0));
}
