//! What was away comes back as what it was.

use units::limits::START_GRACE;

use super::*;
use crate::request::WriteHole;

#[test]
fn a_member_that_returns_without_a_name_keeps_its_own() {
    let mut bed = Bed::full();
    let uuid = bed.control().drive("d1").expect("found").uuid;
    bed.control = None;
    let content = bed.host.unplug("file:/1");
    bed.start();
    bed.host.replug("file:/elsewhere", content);
    let back = bed.control().add_drive(drive("file:/elsewhere"));
    let back = back.expect("it is known by what is on it");
    assert_eq!((back.name.as_str(), back.uuid), ("d1", uuid));
    assert_eq!(back.state, DriveState::Member);
    assert_eq!(bed.control().drives().len(), 5);
    bed.kill_and_start();
    let kept = bed.control().drive("d1").expect("found");
    assert_eq!(kept.state, DriveState::Member);
}

/// So many seconds after the first look.
fn look(bed: &Bed, seconds: u64) {
    let now = Instant(0) + Duration::from_secs(seconds);
    bed.control().tend_drives(now).expect("looked");
}

#[test]
fn a_drive_that_comes_late_is_taken_by_itself_and_its_array_starts() {
    let mut bed = Bed::full();
    bed.control = None;
    let late: Vec<_> = ["file:/0", "file:/1", "file:/2"]
        .map(|spec| (spec, bed.host.unplug(spec)))
        .into();
    bed.start();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    for (spec, content) in late {
        look(&bed, 0);
        assert_eq!(state(&bed), ArrayState::Stopped, "{spec}");
        bed.host.replug(spec, content);
    }
    look(&bed, 5);
    assert_eq!(state(&bed), ArrayState::Optimal);
    let drive = bed.control().drive("d1").expect("found");
    assert_eq!((drive.state, drive.cause), (DriveState::Member, None));
}

#[test]
fn an_array_that_was_stopped_stays_so_when_its_drives_are_back() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("stopped");
    bed.control = None;
    let content = bed.host.unplug("file:/1");
    bed.start();
    bed.host.replug("file:/1", content);
    look(&bed, 0);
    let drive = bed.control().drive("d1").expect("found");
    assert_eq!(drive.state, DriveState::Member);
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Stopped);
}

#[test]
fn a_drive_that_is_removed_claims_no_place_any_more_also_when_it_is_away() {
    for away in [false, true] {
        let mut bed = Bed::full();
        if away {
            bed.control = None;
            let _ = bed.host.unplug("file:/1");
            bed.start();
        }
        let drive = bed.control().drive("d1").expect("known");
        let _ = bed.host.calls();
        bed.control().remove_drive("d1", true).expect("by force");
        let given_up = format!("give_up_claims {}", drive.uuid);
        assert!(bed.host.calls().contains(&given_up), "away: {away}");
    }
}

#[test]
fn a_place_with_another_drive_is_not_a_return() {
    let mut bed = Bed::full();
    bed.control = None;
    let _ = bed.host.unplug("file:/1");
    bed.start();
    let other = bed.host.unplug("file:/4");
    bed.host.replug("file:/1", other);
    look(&bed, 0);
    let drive = bed.control().drive("d1").expect("found");
    assert_eq!(drive.state, DriveState::Missing);
}

#[test]
fn a_drive_that_comes_and_goes_is_left_to_somebody_who_looks_at_it() {
    let bed = Bed::full();
    // No array uses it any more.
    bed.control().fail_member("a", 1).expect("one may be lost");
    let content = bed.host.unplug("file:/1");
    let is_open = |seconds| {
        look(&bed, seconds);
        bed.control().drive("d1").expect("wanted").state != DriveState::Missing
    };
    assert!(!is_open(0), "it is gone");
    for round in 0..3 {
        bed.host.replug("file:/1", content.clone());
        assert!(is_open(10 * round), "round {round}");
        let _ = bed.host.unplug("file:/1");
        assert!(!is_open(10 * round + 5), "round {round}");
    }
    bed.host.replug("file:/1", content.clone());
    assert!(!is_open(40), "the fourth time");
    let cause = bed.control().drive("d1").expect("wanted").cause;
    let cause = cause.expect("it says why");
    assert!(cause.contains("3 times within a day"), "{cause}");
    assert!(
        cause.contains("garboard drive add file:/1 --name d1"),
        "{cause}"
    );
    let body = DriveAddBody {
        name: Some("d1".into()),
        ..drive("file:/1")
    };
    bed.control().add_drive(body).expect("somebody says so");
    let back = bed.control().drive("d1").expect("found");
    assert_eq!(back.cause, None);
    // A day later it is forgotten.
    let _ = bed.host.unplug("file:/1");
    assert!(!is_open(90_000));
    bed.host.replug("file:/1", content);
    assert!(is_open(90_005));
}

#[test]
fn an_array_that_was_stopped_forgotten_and_imported_starts_with_the_next_engine() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("stopped");
    for name in ["d0", "d1", "d2", "d3"] {
        bed.control().remove_drive(name, true).expect("by force");
    }
    bed.kill_and_start();
    assert!(bed.control().arrays().is_empty());
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    bed.control().import_array(body).expect("imported");
    bed.kill_and_start();
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Optimal);
}

/// What a repeated create is refused with.
fn told<T: std::fmt::Debug>(answer: Answer<T>) -> String {
    let refused = answer.expect_err("something differs");
    assert_eq!(refused.kind, ErrorKind::Exists, "{refused}");
    refused.message
}

#[test]
fn a_create_that_is_repeated_with_other_options_names_them() {
    let bed = Bed::full();
    let control = bed.control();
    let uuid = Some(Uuid::from_u128(78));
    let repeated = |other: &dyn Fn(&mut ExportCreateBody)| {
        let mut body = export("v");
        body.uuid = uuid;
        other(&mut body);
        control.create_export(body)
    };
    repeated(&|_| ()).expect("made");
    repeated(&|_| ()).expect("made already");
    let there = "it is there already, with another ";
    let read_only = repeated(&|body| body.access = Access::ReadOnly);
    assert_eq!(told(read_only), format!("{there}access"));
    let queues = repeated(&|body| {
        body.queues = Some(3);
        body.mode = Some("0600".into());
    });
    assert_eq!(told(queues), format!("{there}socket, number of queues"));

    let mut body = array("a", &["d0", "d1", "d2", "d3"]);
    body.uuid = Some(control.array("a").expect("there").uuid);
    control.create_array(body.clone()).expect("made already");
    // Members may have been replaced since.
    body.drives.swap(1, 2);
    control.create_array(body.clone()).expect("made already");
    body.drives.pop();
    body.options.chunk_bytes = Some(128 << 10);
    let other = control.create_array(body);
    assert_eq!(told(other), format!("{there}number of drives, chunk"));

    control.add_drive(drive("file:/5")).expect("blank");
    let pool = |drive: &str| crate::body::PoolCreateBody {
        name: "p".into(),
        uuid,
        drives: vec![drive.into()],
        arrays: Vec::new(),
        force: false,
    };
    control.create_pool(&pool("d4")).expect("made");
    control.create_pool(&pool("d4")).expect("made already");
    // Drives come to it and leave it.
    control.create_pool(&pool("d5")).expect("made already");
}

#[test]
fn a_hold_timeout_is_not_rounded_in_silence() {
    let bed = Bed::full();
    let modify = |timeout| {
        let modify = ArrayModify {
            hold_timeout_ms: Some(timeout),
            ..ArrayModify::default()
        };
        bed.control().modify_array("a", &modify)
    };
    modify(2000).expect("whole seconds");
    let refused = modify(1500).expect_err("half a second");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert_eq!(refused.next, "give 1000 or 2000");
}

#[test]
fn where_nothing_is_redundant_no_reads_are_hedged() {
    let bed = Bed::full();
    let hedged = |hedged_reads| ArrayModify {
        hedged_reads: Some(hedged_reads),
        ..ArrayModify::default()
    };
    let control = bed.control();
    let modified = control.modify_array("a", &hedged(HedgedReads::Always));
    assert_eq!(modified.expect("level 6").hedged_reads, HedgedReads::Always);
    for name in ["e0", "e1"] {
        let spec = format!("file:/{name},size=64MiB,create");
        let drive = DriveAddBody {
            name: Some(name.into()),
            ..drive(&spec)
        };
        control.add_drive(drive).expect("new");
    }
    let stripe = |hedged_reads| ArrayCreateBody {
        level: Level::Raid0,
        options: ArrayOptions {
            hedged_reads,
            ..ArrayOptions::default()
        },
        ..array("z", &["e0", "e1"])
    };
    let refused = control.create_array(stripe(HedgedReads::Always));
    assert_eq!(refused.expect_err("level 0").kind, ErrorKind::Invalid);
    control
        .create_array(stripe(HedgedReads::Auto))
        .expect("new");
    let refused = control.modify_array("z", &hedged(HedgedReads::Always));
    assert_eq!(refused.expect_err("level 0").kind, ErrorKind::Invalid);
    control
        .modify_array("z", &hedged(HedgedReads::Auto))
        .expect("as it is");
}

#[test]
fn what_an_array_has_no_use_for_is_refused_with_the_reason_and_what_it_is_anyway_is_not() {
    let bed = Bed::full();
    let control = bed.control();
    let drives = ["e0", "e1", "e2", "e3"];
    for name in drives {
        let spec = format!("file:/{name},size=64MiB,create");
        let drive = DriveAddBody {
            name: Some(name.into()),
            ..drive(&spec)
        };
        control.add_drive(drive).expect("new");
    }
    let of = |write_hole| ArrayModify {
        write_hole: Some(write_hole),
        ..ArrayModify::default()
    };
    for (name, level, drives, reason) in [
        ("z", Level::Raid0, &drives[..2], "no parity"),
        ("m", Level::Raid1, &drives[2..], "no write hole"),
    ] {
        let made = |write_hole| ArrayCreateBody {
            level,
            options: ArrayOptions {
                write_hole,
                ..ArrayOptions::default()
            },
            ..array(name, drives)
        };
        let refused = control.create_array(made(WriteHole::Strict));
        let refused = refused.expect_err(name);
        assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
        assert!(refused.message.contains(reason), "{refused}");
        control.create_array(made(WriteHole::Off)).expect(name);
        let refused = control.modify_array(name, &of(WriteHole::Strict));
        let refused = refused.expect_err(name);
        assert!(refused.message.contains(reason), "{refused}");
        control
            .modify_array(name, &of(WriteHole::Auto))
            .expect(name);
    }
    let every = |scrub_every_s| ArrayModify {
        scrub_every_s: Some(scrub_every_s),
        ..ArrayModify::default()
    };
    let refused = control.modify_array("z", &every(5)).expect_err("level 0");
    assert!(refused.message.contains("compare"), "{refused}");
    control.modify_array("z", &every(0)).expect("never");
    control.modify_array("m", &every(5)).expect("copies");
}

#[test]
fn regions_are_unwritten_where_that_is_asked_for_and_something_is_redundant() {
    let bed = Bed::full();
    let control = bed.control();
    for name in ["e0", "e1", "e2"] {
        let spec = format!("file:/{name},size=64MiB,create");
        let drive = DriveAddBody {
            name: Some(name.into()),
            ..drive(&spec)
        };
        control.add_drive(drive).expect("new");
    }
    let told = serde_json::from_str::<ArrayOptions>("{}").expect("all of it has defaults");
    assert_eq!(told.unwritten_regions, None);
    let create = |level, unwritten_regions| ArrayCreateBody {
        level,
        uuid: Some(Uuid::from_u128(77)),
        options: ArrayOptions {
            unwritten_regions,
            ..ArrayOptions::default()
        },
        ..array("z", &["e0", "e1", "e2"])
    };
    let refused = control.create_array(create(Level::Raid0, Some(true)));
    let refused = refused.expect_err("level 0");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(
        refused.message.contains("no unwritten regions"),
        "{refused}"
    );
    let made = control.create_array(create(Level::Raid5, Some(true)));
    assert!(made.expect("new").unwritten_regions);
    let again = control.create_array(create(Level::Raid5, Some(false)));
    let refused = again.expect_err("another array");
    assert!(refused.message.contains("unwritten regions"), "{refused}");
    // Who repeats a command without the option does not mean that there are none.
    for same in [Some(true), None] {
        let again = control.create_array(create(Level::Raid5, same));
        assert!(again.expect("it is there already").unwritten_regions);
    }
}

#[test]
fn an_array_that_may_be_torn_waits_for_a_late_member_whatever_else_is_done() {
    let mut bed = Bed::full();
    let late = bed.host.unplug("file:/1");
    bed.host.crash(&[1]);
    bed.kill_and_start();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    assert_eq!(state(&bed), ArrayState::Stopped);
    bed.control().restore().expect("nothing is fatal");
    let soon = bed.control().begun + (START_GRACE - Duration::from_millis(1));
    bed.control().tend_starts(soon).expect("looked");
    look(&bed, 0);
    assert_eq!(state(&bed), ArrayState::Stopped);
    bed.host.replug("file:/1", late);
    look(&bed, 5);
    assert_eq!(state(&bed), ArrayState::Optimal);
}

#[test]
fn an_array_that_may_be_torn_starts_without_a_member_in_the_end_or_when_somebody_says_so() {
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    for by_command in [false, true] {
        let mut bed = Bed::full();
        let _ = bed.host.unplug("file:/1");
        bed.host.crash(&[1]);
        bed.kill_and_start();
        assert_eq!(state(&bed), ArrayState::Stopped);
        if by_command {
            let started = bed.control().start_array("a", false);
            started.expect("it can do without");
        } else {
            let late = bed.control().begun + START_GRACE;
            bed.control().tend_starts(late).expect("looked");
        }
        assert_eq!(state(&bed), ArrayState::Degraded, "{by_command}");
    }
}

#[test]
fn an_array_that_a_member_does_not_answer_when_it_starts_is_started_without_it_after_a_grace() {
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    for is_later in [false, true] {
        let mut bed = Bed::full();
        let mut now = bed.control().begun + START_GRACE;
        if is_later {
            bed.host.fail_next("start_array");
            bed.kill_and_start();
            now = bed.control().begun + START_GRACE;
            bed.control()
                .tend_starts(now)
                .expect("nobody is waited for");
            assert_eq!(state(&bed), ArrayState::Stopped);
        }
        bed.host.fall_silent("file:/1");
        if is_later {
            bed.control().restore().expect("nothing is fatal");
        } else {
            bed.kill_and_start();
            now = bed.control().begun + START_GRACE;
        }
        // Its host may be about to reset it.
        for soon in [Duration::ZERO, START_GRACE - Duration::from_millis(1)] {
            bed.control().tend_starts(now + soon).expect("looked");
            assert_eq!(state(&bed), ArrayState::Stopped, "{is_later}");
        }
        bed.control()
            .tend_starts(now + START_GRACE)
            .expect("looked");
        assert_eq!(state(&bed), ArrayState::Degraded, "{is_later}");
    }
}

#[test]
fn an_array_that_was_stopped_does_not_start_when_the_grace_is_over() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("stopped");
    let _ = bed.host.unplug("file:/1");
    bed.host.crash(&[1]);
    bed.kill_and_start();
    let late = bed.control().begun + START_GRACE;
    bed.control().tend_starts(late).expect("looked");
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Stopped);
}

#[test]
fn an_array_starts_when_whom_it_waited_for_is_here_although_others_were_out_before() {
    let mut bed = Bed::full();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    let _ = bed.host.unplug("file:/0");
    bed.kill_and_start();
    assert_eq!(state(&bed), ArrayState::Degraded);
    let late = bed.host.unplug("file:/1");
    bed.host.crash(&[1]);
    bed.kill_and_start();
    assert_eq!(state(&bed), ArrayState::Stopped);
    bed.host.replug("file:/1", late);
    look(&bed, 5);
    assert_eq!(state(&bed), ArrayState::Degraded);
}

#[test]
fn the_end_of_the_waiting_is_for_an_array_that_had_too_few_as_well() {
    let mut bed = Bed::full();
    let added = bed.control().add_drive(drive("file:/5"));
    added.expect("added");
    let mut mirror = array("b", &["d4", "d5"]);
    mirror.level = Level::Raid1;
    bed.control().create_array(mirror).expect("created");
    let _ = bed.host.unplug("file:/1");
    let _ = bed.host.unplug("file:/4");
    let late = bed.host.unplug("file:/5");
    bed.host.crash(&[1]);
    bed.kill_and_start();
    bed.host.replug("file:/5", late);
    look(&bed, 5);
    let states = |bed: &Bed| ["a", "b"].map(|name| bed.control().array(name).expect("found").state);
    let stopped = ArrayState::Stopped;
    assert_eq!(states(&bed), [stopped; 2], "others of the second may come");
    let end = bed.control().begun + START_GRACE;
    bed.control().tend_starts(end).expect("looked");
    assert_eq!(states(&bed), [ArrayState::Degraded; 2]);
}

#[test]
fn an_array_that_has_enough_again_waits_for_others_to_follow_and_starts_then() {
    let mut bed = Bed::full();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    let tend = |bed: &Bed, seconds| {
        let now = bed.control().begun + START_GRACE + Duration::from_secs(seconds);
        bed.control().tend_starts(now).expect("looked");
    };
    let _ = bed.host.unplug("file:/0");
    let _ = bed.host.unplug("file:/1");
    let late = bed.host.unplug("file:/2");
    bed.kill_and_start();
    tend(&bed, 0);
    assert_eq!(state(&bed), ArrayState::Stopped, "too few are here");
    tend(&bed, 3600);
    bed.host.replug("file:/2", late);
    look(&bed, 5);
    tend(&bed, 7200);
    assert_eq!(state(&bed), ArrayState::Stopped, "the other one may follow");
    tend(&bed, 7200 + START_GRACE.as_secs() - 1);
    assert_eq!(state(&bed), ArrayState::Stopped);
    tend(&bed, 7200 + START_GRACE.as_secs());
    assert_eq!(state(&bed), ArrayState::Degraded);
}

#[test]
fn an_array_with_too_few_that_somebody_stops_does_not_start_when_others_come() {
    let mut bed = Bed::full();
    let _ = bed.host.unplug("file:/0");
    let _ = bed.host.unplug("file:/1");
    let late = bed.host.unplug("file:/2");
    bed.kill_and_start();
    let _ = bed.control().stop_array("a");
    bed.host.replug("file:/2", late);
    look(&bed, 5);
    let end = bed.control().begun + START_GRACE;
    bed.control().tend_starts(end).expect("looked");
    let state = bed.control().array("a").expect("found").state;
    assert_eq!(state, ArrayState::Stopped);
}

#[test]
fn an_array_that_was_whole_too_late_starts_at_the_end_without_whom_it_waits_for() {
    let mut bed = Bed::full();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    let drives = ["file:/0", "file:/1", "file:/2", "file:/3"];
    let away = drives.map(|spec| (spec, bed.host.unplug(spec)));
    bed.host.crash(&[0]);
    bed.kill_and_start();
    for (spec, content) in away.into_iter().skip(1) {
        bed.host.replug(spec, content);
    }
    look(&bed, 5);
    assert_eq!(state(&bed), ArrayState::Stopped);
    let end = bed.control().begun + START_GRACE;
    bed.control().tend_starts(end).expect("looked");
    assert_eq!(state(&bed), ArrayState::Degraded);
}

#[test]
fn an_array_that_could_not_start_at_the_end_starts_when_whom_it_waited_for_is_here() {
    let mut bed = Bed::full();
    let state = |bed: &Bed| bed.control().array("a").expect("found").state;
    let _ = bed.host.unplug("file:/0");
    bed.kill_and_start();
    let late = bed.host.unplug("file:/1");
    bed.host.crash(&[1]);
    bed.kill_and_start();
    bed.host.fail_next("start_array");
    let end = bed.control().begun + START_GRACE;
    bed.control().tend_starts(end).expect("looked");
    assert_eq!(state(&bed), ArrayState::Stopped);
    bed.host.replug("file:/1", late);
    look(&bed, 5);
    assert_eq!(state(&bed), ArrayState::Degraded);
}
