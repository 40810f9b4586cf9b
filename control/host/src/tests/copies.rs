//! A member that works is replaced: the other drive becomes a copy of it, and takes its place.

use control::request::{ArrayModify, Level, MemberReplace};
use control::view::{ArrayState, JobKind, JobState, MemberState};
use control::{Engine, ErrorKind};
use drive::Fault;
use units::Update;

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

const SECTORS_PER_CHUNK: u64 = 128;
/// Chunks of the volume.
const CHUNKS: u64 = (2 * MIB) >> 16;

fn to(drive: &str) -> MemberReplace {
    MemberReplace {
        member: 1,
        drive: drive.to_owned(),
        force: false,
    }
}

/// A guest of array `tank`, which is in order, and a free drive `four`.
fn tank() -> (Bench, Guest) {
    let bench = Bench::tank();
    bench.memory("four");
    let guest = fill(&bench);
    (bench, guest)
}

/// A guest that has filled a new volume of array `tank`, once that is in order.
fn fill(bench: &Bench) -> Guest {
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    let volume = volume_of("v", "tank", 2 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(bench, "v", "v");
    bench.host.export_named(&export).expect("served");
    let mut guest = Guest::connect(&bench.path("v.sock"));
    for chunk in 0..CHUNKS {
        guest.fill(chunk * SECTORS_PER_CHUNK, byte(chunk));
    }
    guest
}

fn byte(number: u64) -> u8 {
    u8::try_from(number % 251).expect("a byte") + 1
}

/// While guests ask for anything, a copy hardly goes on; or it goes as fast as it can.
fn floor(bench: &Bench, bytes_per_second: u64) {
    let modify = ArrayModify {
        rebuild_floor_bytes_per_second: Some(bytes_per_second),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &modify).expect("it runs");
}

fn drive_of(bench: &Bench) -> Option<String> {
    bench.array("tank").members[1].drive.clone()
}

/// Waits until the copy has taken its place and lacks nothing.
fn await_place(bench: &Bench) {
    wait_until("the copy takes the place", || {
        bench.host.tend_copies();
        drive_of(bench).as_deref() == Some("four")
    });
    wait_until("what it lacks is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
}

/// What the guest reads when the copy is needed for it.
fn without_the_others(bench: &Bench, mut guest: Guest, expected: impl Fn(u64) -> u8) {
    bench.host.fail_member("tank", 0).expect("two are left");
    for chunk in 0..CHUNKS {
        let found = guest.read(chunk * SECTORS_PER_CHUNK);
        assert_eq!(found, [expected(chunk); 4096], "chunk {chunk}");
    }
}

#[test]
fn a_copy_takes_the_place_of_a_member_while_guests_write() {
    let (bench, mut guest) = tank();
    floor(&bench, 4 * MIB);
    let array = bench
        .host
        .replace_member("tank", &to("four"))
        .expect("free");
    assert_eq!(array.members[1].drive.as_deref(), Some("two"));
    let job = bench.host.jobs().pop().expect("it is being made");
    assert_eq!((job.kind, job.state), (JobKind::Copy, JobState::Running));
    let mut written = 0;
    let mut last = [0; 32];
    // What was copied is written anew behind the copy, and before it.
    let done = || bench.host.jobs()[0].done_bytes;
    while written < 3 * CHUNKS || done() < 4 * MIB {
        let chunk = written * 7 % CHUNKS;
        last[usize::try_from(chunk).expect("few")] = byte(written + 100);
        guest.fill(chunk * SECTORS_PER_CHUNK, byte(written + 100));
        assert_eq!(bench.array("tank").state, ArrayState::Optimal);
        written += 1;
    }
    assert_eq!(bench.host.jobs()[0].state, JobState::Running);
    floor(&bench, 1 << 40);
    await_place(&bench);
    let jobs = bench.host.jobs();
    let copy = jobs.iter().find(|job| job.kind == JobKind::Copy);
    assert_eq!(copy.map(|job| job.state), Some(JobState::Done));
    assert!(
        copy.is_some_and(|job| job.total_bytes > 32 * MIB && job.done_bytes == job.total_bytes)
    );
    let old = bench.drive("two");
    assert_eq!(old.state, control::view::DriveState::Failed);
    // Only what was written since was filled, not all.
    let rebuilt = jobs.iter().find(|job| job.kind == JobKind::Rebuild);
    let filled = rebuilt.map_or(0, |job| job.total_bytes);
    assert!(filled <= 16 * MIB, "{filled} bytes of 100 MiB");
    without_the_others(&bench, guest, |chunk| {
        last[usize::try_from(chunk).expect("few")]
    });
}

#[test]
fn what_the_member_cannot_read_is_filled_from_the_others() {
    super::on_both_kinds(|| {
        let (bench, guest) = tank();
        let data = bench.host.state().arrays["tank"].superblock.layout.data;
        for chunk in 0..CHUNKS / 4 {
            let offset = data.offset + chunk * 2 * 65536;
            let length = 4096;
            bench.inject("two", Fault::Media { offset, length });
        }
        bench
            .host
            .replace_member("tank", &to("four"))
            .expect("free");
        await_place(&bench);
        without_the_others(&bench, guest, byte);
    });
}

#[test]
fn a_member_that_leaves_meanwhile_is_replaced_all_the_same() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = tank();
        floor(&bench, 1);
        bench
            .host
            .replace_member("tank", &to("four"))
            .expect("free");
        guest.fill(0, 200);
        bench.inject("two", Fault::Pulled);
        guest.fill(SECTORS_PER_CHUNK, 201);
        guest.fill(2 * SECTORS_PER_CHUNK, 202);
        wait_until("the member is out", || {
            bench.array("tank").members[1].state == MemberState::Failed
        });
        floor(&bench, 1 << 40);
        await_place(&bench);
        without_the_others(&bench, guest, |chunk| match chunk {
            0..3 => 200 + u8::try_from(chunk).expect("few"),
            _ => byte(chunk),
        });
    });
}

#[test]
fn a_copy_that_is_cancelled_leaves_its_drive_free() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = tank();
        bench.memory("five");
        floor(&bench, 1);
        bench
            .host
            .replace_member("tank", &to("four"))
            .expect("free");
        // Guests are busy: it does not end meanwhile.
        guest.fill(0, 7);
        let job = bench.host.jobs().pop().expect("it is being made").id;
        let again = bench.host.replace_member("tank", &to("five"));
        assert_eq!(again.expect_err("one at a time").kind, ErrorKind::Busy);
        let removed = bench.host.remove_drive("four", true);
        assert_eq!(removed.expect_err("it is in use").kind, ErrorKind::Busy);
        let wiped = bench.host.wipe_drive("four", true);
        assert_eq!(wiped.expect_err("it is in use").kind, ErrorKind::Busy);
        let cancelled = bench.host.cancel_job(job).expect("it runs");
        assert_eq!(cancelled.state, JobState::Cancelled);
        wait_until("its drive is free", || {
            bench.host.tend_copies();
            bench.drive("four").state == control::view::DriveState::Free
        });
        assert_eq!(drive_of(&bench).as_deref(), Some("two"));
        floor(&bench, 1 << 40);
        bench
            .host
            .replace_member("tank", &to("four"))
            .expect("free");
        await_place(&bench);
        without_the_others(
            &bench,
            guest,
            |chunk| if chunk == 0 { 7 } else { byte(chunk) },
        );
    });
}

#[test]
fn a_copy_ends_with_its_array_and_none_is_made_without_redundancy() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = tank();
        floor(&bench, 1);
        bench
            .host
            .replace_member("tank", &to("four"))
            .expect("free");
        guest.fill(0, 7);
        drop(guest);
        bench.host.remove_export("v").expect("it ends");
        bench.host.stop_array("tank").expect("clean");
        wait_until("its drive is free", || {
            bench.host.tend_copies();
            bench.drive("four").state == control::view::DriveState::Free
        });
        let bare = Bench::new();
        for name in ["one", "two", "four"] {
            bare.memory(name);
        }
        bare.create("tank", Level::Raid0, &["one", "two"]);
        bare.refused((ErrorKind::Invalid, "redundancy"), |host| {
            host.replace_member("tank", &to("four"))
        });
    });
}

#[test]
fn a_drive_that_was_another_member_is_not_taken_for_it_when_its_copy_was_not_made() {
    let drives = ["one", "two", "three", "four"];
    let bench = Bench::tank_of(Level::Raid6, &drives, crate::Tuning::default());
    let mut guest = fill(&bench);
    let dirty = || {
        let index = bench.host.state().arrays["tank"].index;
        let regions = bench.host.engine.missed_since(index, Update(u64::MAX));
        regions.expect("it runs").count()
    };
    // What is dirty when a member leaves is filled anew in any case.
    wait_until("nothing is dirty", || dirty() == 0);
    bench.host.fail_member("tank", 0).expect("two are spare");
    bench
        .host
        .replace_member("tank", &to("one"))
        .expect("it was a member here");
    let job = bench.host.jobs().pop().expect("it is being made");
    wait_until("some of it is copied", || {
        bench.host.jobs().pop().expect("the same").done_bytes > 32 * MIB
    });
    bench.host.cancel_job(job.id).expect("it runs");
    wait_until("its drive is free", || {
        bench.host.tend_copies();
        bench.drive("one").state == control::view::DriveState::Free
    });
    // Its old place: it is filled from end to end, not only where it missed something.
    let back = MemberReplace {
        member: 0,
        ..to("one")
    };
    bench.host.replace_member("tank", &back).expect("free");
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    for member in [1, 2] {
        bench
            .host
            .fail_member("tank", member)
            .expect("two are left");
    }
    for chunk in 0..CHUNKS {
        let found = guest.read(chunk * SECTORS_PER_CHUNK);
        assert_eq!(found, [byte(chunk); 4096], "chunk {chunk}");
    }
}
