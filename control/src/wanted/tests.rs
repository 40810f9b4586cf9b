//! What was recorded is there after any end of the process; what could not be recorded is not.

use super::*;
use crate::request::{ExportSocket, ExportWishes};
use crate::view::{Access, GuestMemory, Sharing};

fn drive(name: &str) -> DriveKnown {
    DriveKnown {
        name: name.into(),
        uuid: Uuid::from_u128(1),
        spec: "file:/d,size=1GiB".parse().expect("a spec"),
        identity: "wwid 7".into(),
        member_of: None,
    }
}

fn export(name: &str) -> WantedExport {
    WantedExport {
        create: ExportCreate {
            name: name.into(),
            uuid: Uuid::from_u128(2),
            volume: "v".into(),
            socket: ExportSocket {
                path: "/s".into(),
                owner: None,
                group: Some("kvm".into()),
                mode: 0o660,
            },
            wishes: ExportWishes::default(),
            profile: None,
            cores: vec![1, 2],
            access: Access::ReadOnly,
            sharing: Sharing::Shared,
            guest_memory: GuestMemory::Pinned,
        },
        array_uuid: Some(Uuid::from_u128(7)),
        volume_uuid: Uuid::from_u128(3),
    }
}

fn limit() -> VolumeLimit {
    VolumeLimit {
        iops: Some(5),
        ..VolumeLimit::default()
    }
}

/// The state directory as a killed process leaves it: the files as they are now, and nothing of
/// what a clean close would still do.
fn killed(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    std::fs::copy(directory.join(FILE_NAME), copy.path().join(FILE_NAME)).expect("copied");
    copy
}

#[test]
fn every_change_is_there_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(folder.path()).expect("begun");
    let mut expected = WantedState::default();
    let check = |wanted: &Wanted, expected: &WantedState| {
        assert_eq!(wanted.state(), *expected);
        let copy = killed(folder.path());
        let reopened = Wanted::open(copy.path()).expect("opens after a kill");
        assert_eq!(reopened.state(), *expected);
    };
    let (volume, array) = (Uuid::from_u128(u128::MAX), Uuid::from_u128(9));
    let of = |array| WantedVolume {
        array,
        uuid: volume,
    };
    let other = VolumeLimit::default();

    expected.drives.insert("d0".into(), drive("d0"));
    expected.drives.insert("d1".into(), drive("d1"));
    wanted
        .apply(&[Change::Drive(drive("d0")), Change::Drive(drive("d1"))])
        .expect("recorded");
    check(&wanted, &expected);

    expected.exports.insert("e".into(), export("e"));
    expected.limits.insert(of(Some(array)), limit());
    expected.limits.insert(of(None), other.clone());
    expected.stopped.insert(array);
    let pool = WantedPool {
        uuid: Uuid::from_u128(4),
        arrays: BTreeSet::from([array]),
    };
    expected.pools.insert("p".into(), pool.clone());
    expected.spares.insert(volume, SpareOf::Pool("p".into()));
    expected.spares.insert(array, SpareOf::Array(array));
    let membership = Membership {
        update: 7,
        update_id: array,
        in_sync: vec![volume],
    };
    expected.memberships.insert(array, membership.clone());
    let text = "bytes may be wrong".into();
    let told = vec![Told { at_s: 5, text }];
    expected.told.insert(array, told.clone());
    let changes = [
        Change::Pool("p".into(), pool),
        Change::Spare(volume, SpareOf::Pool("p".into())),
        Change::Spare(array, SpareOf::Array(array)),
        Change::Export(Box::new(export("e"))),
        Change::Limit(of(Some(array)), limit()),
        Change::Limit(of(None), other),
        Change::Stopped(array),
        Change::Membership(array, membership),
        Change::Told(array, told),
    ];
    wanted.apply(&changes).expect("recorded");
    check(&wanted, &expected);

    let changes = [
        Change::NoDrive("d0".into()),
        Change::NoExport("e".into()),
        Change::NoLimit(of(Some(array))),
        Change::NoLimit(of(None)),
        Change::NotStopped(array),
        Change::NoSpare(volume),
        Change::NoSpare(array),
        Change::NoPool("p".into()),
        Change::NoMembership(array),
        Change::NoTold(array),
    ];
    wanted.apply(&changes).expect("recorded");
    expected = WantedState::default();
    expected.drives.insert("d1".into(), drive("d1"));
    check(&wanted, &expected);
}

#[test]
fn a_second_engine_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = Wanted::open(folder.path()).expect("begun");
    assert_eq!(
        Wanted::open(folder.path()).expect_err("taken").kind,
        ErrorKind::Busy
    );
    drop(first);
    Wanted::open(folder.path()).expect("free again");
}

#[test]
fn garbage_and_a_newer_state_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    let garbage = vec![0xA5_u8; 65536];
    std::fs::write(&path, &garbage).expect("written");
    let error = Wanted::open(folder.path()).expect_err("garbage");
    assert_eq!(error.kind, ErrorKind::Internal);
    assert_eq!(std::fs::read(&path).expect("there"), garbage);
    std::fs::remove_file(&path).expect("removed");

    let wanted = Wanted::open(folder.path()).expect("begun");
    let database = wanted.database.into_inner().expect("nobody panicked");
    let database = database.expect("open");
    let write = database.begin_write().expect("begun");
    write
        .open_table(META)
        .expect("open")
        .insert("format", FORMAT + 1)
        .expect("set");
    write.commit().expect("committed");
    drop(database);
    let error = Wanted::open(folder.path()).expect_err("newer");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("format 2"), "{error}");
}

#[test]
fn a_record_that_cannot_be_read_is_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(folder.path()).expect("begun");
    let database = wanted.database.into_inner().expect("nobody panicked");
    let database = database.expect("open");
    let write = database.begin_write().expect("begun");
    write
        .open_table(DRIVES)
        .expect("open")
        .insert("d0", "{")
        .expect("set");
    write.commit().expect("committed");
    drop(database);
    let error = Wanted::open(folder.path()).expect_err("broken record");
    assert_eq!(error.kind, ErrorKind::Internal);
}

#[test]
fn after_a_write_that_had_no_room_the_next_one_goes_well_once_there_is_some() {
    let (wanted, switch) = failing::wanted();
    wanted.apply(&[Change::Drive(drive("d0"))]).expect("room");
    let before = wanted.state();
    switch.fail();
    for _ in 0..2 {
        let error = wanted.apply(&[Change::NoDrive("d0".into())]);
        let error = error.expect_err("no room");
        assert_eq!(error.kind, ErrorKind::Full);
        assert!(error.to_string().contains(FILE_NAME), "{error}");
        assert_eq!(wanted.state(), before);
    }
    switch.work();
    assert_eq!(wanted.state(), before);
    wanted.apply(&[Change::Drive(drive("d1"))]).expect("room");
    let names: Vec<String> = wanted.state().drives.into_keys().collect();
    assert_eq!(names, ["d0", "d1"]);
}

#[test]
fn a_state_that_cannot_be_written_at_a_start_is_read_and_written_once_there_is_room() {
    for killed in [false, true] {
        let (wanted, switch) = failing::wanted();
        wanted.apply(&[Change::Drive(drive("d0"))]).expect("room");
        if killed {
            // A clean close writes, too.
            switch.fail();
        }
        let wanted = if killed {
            failing::again(wanted)
        } else {
            let Wanted {
                place, database, ..
            } = wanted;
            drop(database);
            switch.fail();
            Wanted::at(place)
        };
        let wanted = wanted.expect("read");
        let before = wanted.state();
        assert!(before.drives.contains_key("d0"));
        let refused = wanted.apply(&[Change::Drive(drive("d1"))]);
        assert_eq!(refused.expect_err("no room").kind, ErrorKind::Full);
        assert_eq!(wanted.state(), before);
        switch.work();
        wanted.apply(&[Change::Drive(drive("d1"))]).expect("room");
        let wanted = failing::again(wanted).expect("there");
        assert_eq!(wanted.state().drives.len(), 2);
    }
}

#[test]
fn what_is_refused_was_not_made_and_what_was_made_is_not_refused() {
    let (wanted, switch) = failing::wanted();
    wanted.apply(&[Change::Drive(drive("d0"))]).expect("room");
    let before = wanted.state();
    for _ in 0..5 {
        switch.fail_next_sync();
        let made = wanted.apply(&[Change::Drive(drive("d1"))]);
        assert_eq!(made.is_ok(), wanted.state() != before);
        wanted.apply(&[Change::NoDrive("d1".into())]).expect("room");
        assert_eq!(wanted.state(), before);
    }
}

#[test]
fn a_file_that_was_half_made_is_made_again() {
    // As a start left it that had no room, sooner or later.
    for left in [0, 1 << 20] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        // As one leaves it that is killed.
        std::fs::write(path.with_extension("new"), [0; 5000]).expect("written");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(left).expect("holes");
        let wanted = Wanted::open(folder.path()).expect("begun");
        wanted.apply(&[Change::Drive(drive("d0"))]).expect("kept");
        drop(wanted);
        let wanted = Wanted::open(folder.path()).expect("there");
        assert_eq!(wanted.state().drives.len(), 1);
    }
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    std::fs::write(&path, "something else").expect("written");
    Wanted::open(folder.path()).expect_err("no state");
    assert_eq!(std::fs::read(&path).expect("there"), b"something else");
}
