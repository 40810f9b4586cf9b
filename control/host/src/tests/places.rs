//! Drives that are not where they were: found by what is on them.

use std::fs;

use control::request::{DriveKnown, DriveSpec};
use control::view::ArrayState;
use control::{Answer, Engine, ErrorKind};

use super::{Bench, file_at};

/// What the wanted state remembers of the three drives, and the next engine.
fn remembered(bench: Bench) -> (Bench, Vec<DriveKnown>) {
    let known = |name: &str| {
        let drive = bench.drive(name);
        DriveKnown {
            name: drive.name,
            uuid: drive.uuid,
            spec: drive.spec,
            identity: drive.identity,
            member_of: None,
        }
    };
    let known = ["one", "two", "three"].map(known).to_vec();
    (bench.next(), known)
}

fn open_all(bench: &Bench, known: &[DriveKnown]) -> Vec<Answer<()>> {
    let open = |known: &DriveKnown| bench.host.open_drive(known).map(|_| ());
    known.iter().map(open).collect()
}

fn starts_whole(bench: &Bench) {
    bench.host.assemble();
    let started = bench.host.start_array("tank", false).expect("all are here");
    assert_eq!(started.state, ArrayState::Optimal);
    let drives: Vec<_> = started
        .members
        .into_iter()
        .map(|member| member.drive)
        .collect();
    assert_eq!(
        drives,
        ["one", "two", "three"].map(|name| Some(name.to_owned()))
    );
}

#[test]
fn a_file_with_another_name_is_found() {
    let (bench, known) = remembered(Bench::file_tank());
    fs::rename(bench.path("two"), bench.path("elsewhere")).expect("renamed");
    fs::write(bench.path("noise"), vec![0xa5; 8 << 20]).expect("a file");
    assert_eq!(open_all(&bench, &known), [Ok(()), Ok(()), Ok(())]);
    assert_eq!(bench.drive("two").spec, file_at_size(&bench, "elsewhere"));
    starts_whole(&bench);
}

fn file_at_size(bench: &Bench, name: &str) -> DriveSpec {
    DriveSpec::File {
        path: bench.path(name),
        size_bytes: Some(super::DRIVE_BYTES),
        create: false,
    }
}

#[test]
fn files_that_changed_places_are_found() {
    let (bench, known) = remembered(Bench::file_tank());
    fs::rename(bench.path("one"), bench.path("x")).expect("renamed");
    fs::rename(bench.path("two"), bench.path("one")).expect("renamed");
    fs::rename(bench.path("three"), bench.path("two")).expect("renamed");
    fs::rename(bench.path("x"), bench.path("three")).expect("renamed");
    assert_eq!(open_all(&bench, &known), [Ok(()), Ok(()), Ok(())]);
    starts_whole(&bench);
}

#[test]
fn a_member_of_another_array_at_the_path_is_refused() {
    let bench = Bench::file_tank();
    for name in ["a", "b"] {
        bench.file(name);
    }
    bench.create("pond", control::request::Level::Raid1, &["a", "b"]);
    let (bench, known) = remembered(bench);
    fs::remove_file(bench.path("two")).expect("lost");
    fs::rename(bench.path("b"), bench.path("two")).expect("renamed");
    let refusal = bench.refused((ErrorKind::NotFound, "is another drive"), |host| {
        host.open_drive(&known[1])
    });
    assert!(refusal.next.contains("drive add"), "{refusal}");
    bench.open_file("two").expect("free for others");
}

#[test]
fn copies_of_a_lost_file_are_named_and_none_is_chosen() {
    let (bench, known) = remembered(Bench::file_tank());
    fs::copy(bench.path("two"), bench.path("copy")).expect("a copy");
    fs::rename(bench.path("two"), bench.path("elsewhere")).expect("renamed");
    let refusal = bench.refused((ErrorKind::Invalid, "elsewhere"), |host| {
        host.open_drive(&known[1])
    });
    assert!(refusal.message.contains("copy"), "{refusal}");
}

#[test]
fn what_carries_nothing_is_taken_by_its_path() {
    let (bench, mut known) = remembered(Bench::file_tank());
    fs::write(bench.path("two"), vec![0; 64 << 20]).expect("blank");
    known[1].spec = file_at(&bench.path("two"));
    bench.host.open_drive(&known[1]).expect("blank");
    known[2].identity = String::new();
    bench
        .host
        .open_drive(&known[2])
        .expect("nothing is known of it");
}

#[test]
fn a_drive_that_is_nowhere_is_said_so() {
    let (bench, known) = remembered(Bench::file_tank());
    fs::remove_file(bench.path("two")).expect("lost");
    bench.refused((ErrorKind::NotFound, "no such path"), |host| {
        host.open_drive(&known[1])
    });
}
