//! Every command against the pretended engine: what is refused and why, what survives a restart
//! and a kill, and that a refused call changes nothing.

mod again;
mod back;
mod held;
mod late;
mod spares;
mod wrong;

use tempfile::TempDir;
use uuid::Uuid;
use wrong::change_export;

use super::*;
use crate::body::{
    ArrayCreateBody, DriveAddBody, ExportCreateBody, ImportBody, ReplaceBody, VolumeCreateBody,
};
use crate::fake::{FakeEngine, FakeHost};
use crate::request::{
    ArrayModify, ArrayOptions, BackgroundKind, HedgedReads, Lamp, Level, QueueMove, VolumeLimit,
};
use crate::service::restore::volume_of;
use crate::view::{Access, ArrayState, DriveState, ExportState, LostView, MemberState};
use crate::wanted::{self, FILE_NAME, WantedExport, WantedVolume};

/// A host with drives, a state directory, and one run of the engine at a time.
struct Bed {
    host: FakeHost,
    state: TempDir,
    control: Option<Control>,
}

impl Bed {
    /// Six blank drives behind `file:/0` to `file:/5`, none added.
    fn bare() -> Bed {
        let host = FakeHost::new();
        for number in 0..6 {
            host.plug(&format!("file:/{number}"), 1 << 30);
        }
        let state = tempfile::tempdir().expect("a folder");
        let mut bed = Bed {
            host,
            state,
            control: None,
        };
        bed.start();
        bed
    }

    /// Five added drives `d0` to `d4`, array `a` of level 6 on the first four, volume `v` on it.
    fn full() -> Bed {
        let bed = Bed::bare();
        for number in 0..5 {
            bed.control()
                .add_drive(drive(&format!("file:/{number}")))
                .expect("added");
        }
        bed.control()
            .create_array(array("a", &["d0", "d1", "d2", "d3"]))
            .expect("created");
        bed.control().create_volume(volume("v")).expect("created");
        bed
    }

    fn start(&mut self) {
        let engine: FakeEngine = self.host.engine();
        let wanted = Wanted::open(self.state.path()).expect("opens");
        let control = Control::new(Arc::new(engine), wanted, "/run/test".into());
        control.restore().expect("restored");
        self.control = Some(control);
    }

    /// The engine ends without a word and starts again from what was on disk at that moment.
    fn kill_and_start(&mut self) {
        let copy = tempfile::tempdir().expect("a folder");
        let from = self.state.path().join(FILE_NAME);
        std::fs::copy(from, copy.path().join(FILE_NAME)).expect("copied");
        self.control = None;
        self.state = copy;
        self.start();
    }

    fn control(&self) -> &Control {
        self.control.as_ref().expect("started")
    }

    /// Everything that can be seen, for comparing before and after.
    fn everything(&self) -> String {
        let control = self.control();
        let wanted = control.wanted.state();
        format!(
            "{:?} {:?} {:?} {:?} {wanted:?}",
            control.drives(),
            control.arrays(),
            control.volumes(),
            control.exports(),
        )
    }
}

/// An array over a wanted state that can be made to refuse writes.
fn on_a_switch() -> (FakeHost, Control, wanted::failing::Switch) {
    let host = FakeHost::new();
    let (wanted, switch) = wanted::failing::wanted();
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    for number in 0..4 {
        let place = format!("file:/{number}");
        host.plug(&place, 1 << 30);
        control.add_drive(drive(&place)).expect("added");
    }
    let made = array("a", &["d0", "d1", "d2", "d3"]);
    control.create_array(made).expect("created");
    (host, control, switch)
}

fn drive(spec: &str) -> DriveAddBody {
    DriveAddBody {
        spec: spec.parse().expect("a spec"),
        name: None,
        uuid: None,
    }
}

fn array(name: &str, drives: &[&str]) -> ArrayCreateBody {
    ArrayCreateBody {
        name: name.into(),
        uuid: None,
        level: Level::Raid6,
        drives: drives.iter().map(|drive| (*drive).to_owned()).collect(),
        options: ArrayOptions::default(),
        spares: Vec::new(),
        force: false,
    }
}

fn volume(name: &str) -> VolumeCreateBody {
    VolumeCreateBody {
        name: name.into(),
        uuid: None,
        array: "a".into(),
        size_bytes: 1 << 20,
        stable_buffers: false,
    }
}

fn export(volume: &str) -> ExportCreateBody {
    serde_json::from_value(serde_json::json!({ "volume": volume })).expect("a body")
}

fn burst(burst_ms: u64) -> VolumeLimit {
    VolumeLimit {
        burst_ms: Some(burst_ms),
        ..limit(10)
    }
}

fn limit(iops: u64) -> VolumeLimit {
    VolumeLimit {
        iops: Some(iops),
        ..VolumeLimit::default()
    }
}

#[test]
fn what_was_asked_for_survives_a_kill() {
    let mut bed = Bed::full();
    let profile = bed
        .control()
        .create_export(export("v"))
        .expect("exported")
        .profile;
    bed.control()
        .limit_volume("v", &limit(500))
        .expect("limited");
    bed.kill_and_start();
    let control = bed.control();
    assert_eq!(control.drives().len(), 5);
    assert_eq!(
        control.array("a").expect("found").state,
        ArrayState::Optimal
    );
    assert_eq!(control.volume("v").expect("found").limit, limit(500));
    let export = control.export("v").expect("found");
    assert_eq!(
        (export.state, export.profile),
        (ExportState::Waiting, profile)
    );
    assert_eq!(
        export.socket.to_str(),
        Some("/run/test/exports/v/vhost.sock")
    );
}

#[test]
fn what_was_taken_back_stays_away_after_a_kill() {
    let mut bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    bed.control()
        .limit_volume("v", &limit(500))
        .expect("limited");
    bed.control()
        .limit_volume("v", &VolumeLimit::default())
        .expect("unlimited");
    bed.control().remove_export("v").expect("removed");
    bed.control().remove_drive("d4", false).expect("removed");
    bed.kill_and_start();
    assert!(bed.control().exports().is_empty());
    assert_eq!(
        bed.control().volume("v").expect("found").limit,
        VolumeLimit::default()
    );
    assert_eq!(bed.control().drives().len(), 4);
}

#[test]
fn a_stopped_array_stays_stopped_and_its_exports_come_with_it() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("stopped");
    bed.kill_and_start();
    assert_eq!(
        bed.control().array("a").expect("found").state,
        ArrayState::Stopped
    );
    bed.control().start_array("a", false).expect("started");
    bed.control().create_export(export("v")).expect("exported");
    let refused = bed.control().stop_array("a").expect_err("exported");
    assert_eq!(refused.kind, ErrorKind::Busy);
    bed.kill_and_start();
    assert_eq!(
        bed.control().array("a").expect("found").state,
        ArrayState::Optimal
    );
    assert_eq!(
        bed.control().export("v").expect("found").state,
        ExportState::Waiting
    );
}

#[test]
fn a_missing_drive_is_shown_and_comes_back_under_its_name_at_another_place() {
    let mut bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    let uuid = bed.control().drive("d1").expect("found").uuid;
    bed.control = None;
    let content = bed.host.unplug("file:/1");
    bed.start();
    let gone = bed.control().drive("d1").expect("still wanted");
    assert_eq!((gone.state, gone.uuid), (DriveState::Missing, uuid));
    assert_eq!(gone.cause.as_deref(), Some("nothing is there"));
    assert_eq!(
        bed.control().array("a").expect("found").state,
        ArrayState::Degraded
    );
    assert_eq!(
        bed.control().status().drives,
        Count {
            total: 5,
            attention: 1
        }
    );
    let refused = bed.control().wipe_drive("d1", true).expect_err("not open");
    assert_eq!(refused.kind, ErrorKind::NotFound);

    bed.host.replug("file:/elsewhere", content);
    let mut body = drive("file:/elsewhere");
    body.name = Some("d1".into());
    let back = bed.control().add_drive(body).expect("back");
    assert_eq!((back.uuid, back.state), (uuid, DriveState::Member));
    bed.kill_and_start();
    assert_eq!(
        bed.control().drive("d1").expect("found").state,
        DriveState::Member
    );
}

#[test]
fn an_array_with_blocks_that_are_lost_or_wrong_needs_attention_though_it_is_optimal() {
    let mut array = Bed::full().control().array("a").expect("there");
    assert_eq!(array.state, ArrayState::Optimal);
    let told = |array: &ArrayView| attention::of_array(array, false);
    assert_eq!(told(&array), None);
    array.members[1].cause = Some("its file was deleted".into());
    let said = "array a is about to lose: member 1 (its file was deleted)";
    assert_eq!(told(&array).as_deref(), Some(said));
    array.stopped_pass = Some("its resync has stopped".into());
    let said = format!("{said}: its resync has stopped");
    assert_eq!(told(&array), Some(said));
    array.stopped_pass = None;
    array.unrepaired_blocks = 1;
    let said = "array a has blocks that the last scrub left wrong";
    assert_eq!(told(&array).as_deref(), Some(said));
    array.lost = Some(LostView {
        blocks: 1,
        bytes: 512,
        runs: Vec::new(),
    });
    assert_eq!(
        told(&array).as_deref(),
        Some("array a has blocks that are lost")
    );
}

#[test]
fn what_a_start_has_told_outlives_the_engine_until_somebody_knows() {
    let mut bed = Bed::full();
    let uuid = bed.control().array("a").expect("there").uuid;
    let said = |bed: &Bed| {
        let array = bed.control().array("a").expect("there");
        assert_eq!(array.warnings, array.start_warnings);
        array.warnings
    };
    let refused = bed.control().acknowledge_array("a").expect_err("nothing");
    assert_eq!(refused.kind, ErrorKind::NotFound);
    bed.host.tell_of_start(uuid, &["bytes may be wrong"]);
    assert_eq!(said(&bed), ["bytes may be wrong"]);
    for _ in 0..2 {
        bed.control().tend_memberships(Instant(0)).expect("room");
    }
    // Another engine, whose start has nothing to tell, and one that has something else.
    bed.host.tell_of_start(uuid, &[]);
    bed.kill_and_start();
    let one = said(&bed);
    assert_eq!(one.len(), 1, "{one:?}");
    let way_out = "`garboard array acknowledge a`";
    assert!(
        one[0].contains(" UTC: bytes may be wrong") && one[0].contains(way_out),
        "{one:?}"
    );
    let told = bed.control().status().attention;
    assert_eq!(told, [format!("array a: {}", one[0])]);
    bed.host.tell_of_start(uuid, &["others, too"]);
    bed.control().tend_memberships(Instant(0)).expect("room");
    assert_eq!(said(&bed).len(), 2);
    bed.control().fail_member("a", 1).expect("redundant");
    let told = bed.control().status().attention.join("; ");
    for part in [
        "array a is degraded: member 1",
        "bytes may be wrong",
        "others, too",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let known = bed.control().acknowledge_array("a").expect("told");
    assert_eq!(known.start_warnings.len(), 2);
    assert_eq!(said(&bed), [""; 0]);
    bed.control().tend_memberships(Instant(0)).expect("room");
    bed.kill_and_start();
    assert_eq!(said(&bed), [""; 0]);
}

#[test]
fn the_latest_of_what_many_starts_have_told_is_kept() {
    let bed = Bed::full();
    let uuid = bed.control().array("a").expect("there").uuid;
    for start in 0..20 {
        bed.host.tell_of_start(uuid, &[&format!("start {start}")]);
        bed.control().tend_memberships(Instant(0)).expect("room");
    }
    let told = bed.control().array("a").expect("there").start_warnings;
    assert_eq!(told.len(), 16);
    assert!(told[0].contains("start 4") && told[15].contains("start 19"));
}

#[test]
fn a_missing_drive_says_what_it_was_and_its_array_who_is_missing() {
    let mut bed = Bed::full();
    bed.control = None;
    let content = bed.host.unplug("file:/1");
    bed.start();
    let gone = bed.control().drive("d1").expect("wanted");
    assert_eq!(
        (gone.array.as_deref(), gone.member),
        (Some("a"), Some(1)),
        "of {gone:?}"
    );
    let cause = |bed: &Bed| {
        let array = bed.control().array("a").expect("there");
        array.members[1].cause.clone()
    };
    let said = "drive d1 is missing: nothing is there";
    assert_eq!(cause(&bed).as_deref(), Some(said));
    assert_eq!(
        bed.control().status().attention,
        [format!("array a is degraded: member 1 ({said})")]
    );
    // Another one has its place since.
    let replace = ReplaceBody {
        drive: "d4".into(),
        force: false,
    };
    let replaced = bed.control().replace_member("a", 1, &replace);
    replaced.expect("it was nobody's");
    let gone = bed.control().drive("d1").expect("wanted");
    assert_eq!((gone.array, gone.member), (None, None));
    let told = bed.control().status().attention;
    assert!(
        told.contains(&"drive d1 is missing: nothing is there".to_owned()),
        "{told:?}"
    );
    drop(content);
}

#[test]
fn another_drive_at_the_place_of_a_missing_one_is_not_taken_for_it() {
    let mut bed = Bed::full();
    bed.control = None;
    let (one, two) = (bed.host.unplug("file:/1"), bed.host.unplug("file:/2"));
    bed.host.replug("file:/1", two);
    bed.host.replug("file:/2", one);
    bed.start();
    for name in ["d1", "d2"] {
        let drive = bed.control().drive(name).expect("wanted");
        assert_eq!(drive.state, DriveState::Missing, "{name}");
        assert_eq!(drive.cause.as_deref(), Some("another drive is there"));
    }
}

/// An array of this name on three more drives.
fn another_array(bed: &Bed, name: &str) {
    for number in [10, 11, 12] {
        bed.host.plug(&format!("file:/{number}"), 1 << 30);
        let added = bed.control().add_drive(drive(&format!("file:/{number}")));
        added.expect("added");
    }
    let created = bed.control().create_array(array(name, &["d5", "d6", "d7"]));
    created.expect("created");
}

#[test]
fn an_export_waits_for_its_array_and_never_takes_another_volume_of_the_name() {
    let mut bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    bed.control = None;
    let contents: Vec<_> = (0..3)
        .map(|n| bed.host.unplug(&format!("file:/{n}")))
        .collect();
    bed.start();
    assert_eq!(
        bed.control().array("a").expect("found").state,
        ArrayState::Stopped
    );
    // The pretended engine knows volumes of assembled arrays, so the export is made and held
    // there; without the array at all it is missing.
    bed.control = None;
    let last = bed.host.unplug("file:/3");
    bed.start();
    let missing = bed.control().export("v").expect("wanted");
    assert_eq!(missing.state, ExportState::Missing);
    assert_eq!(
        missing.cause.as_deref(),
        Some("volume v is on no started array")
    );
    let refused = bed
        .control()
        .move_queue("v", QueueMove { queue: 0, core: 0 });
    assert_eq!(refused.expect_err("not made").kind, ErrorKind::Busy);

    // Another array with another volume `v`: not for this export's guest.
    another_array(&bed, "a");
    bed.control().create_volume(volume("v")).expect("created");
    bed.kill_and_start();
    assert_eq!(
        bed.control().export("v").expect("wanted").state,
        ExportState::Missing
    );
    assert!(bed.control().volume("v").expect("found").exports.is_empty());
    drop((contents, last));
}

/// An array `b` with a volume `v`, as on drives of another host: nobody here has seen to it that
/// its name differs from that of the volume of array `a`. The uuids of the two.
fn twins(bed: &Bed) -> (Uuid, Uuid) {
    let twin = Uuid::from_u128(0x7);
    let own = bed.control().volume("v").expect("the only one").uuid;
    twin_of(bed, twin);
    (own, twin)
}

/// An array `b` with a volume `v` of this uuid.
fn twin_of(bed: &Bed, uuid: Uuid) {
    another_array(bed, "b");
    let twin = crate::request::VolumeCreate {
        name: "v".to_owned(),
        uuid,
        array: "b".to_owned(),
        size_bytes: 1 << 20,
        stable_buffers: false,
    };
    bed.control()
        .engine
        .create_volume(&twin)
        .expect("pretended");
}

#[test]
fn a_guest_never_gets_a_volume_of_another_array_that_has_the_uuid_of_its_own() {
    let mut bed = Bed::full();
    let own = bed.control().volume("v").expect("the only one").uuid;
    bed.control().create_export(export("v")).expect("exported");
    twin_of(&bed, own);
    let refused = bed.control().volume("v").expect_err("which?");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(refused.to_string().contains("stop the array"), "{refused}");
    // By its record it is known whose it was.
    let state = |bed: &Bed| bed.control().export("v").expect("wanted").state;
    bed.kill_and_start();
    assert_ne!(state(&bed), ExportState::Missing);
    bed.control = None;
    let away = ["file:/0", "file:/1", "file:/2", "file:/3"].map(|at| bed.host.unplug(at));
    bed.start();
    assert_eq!(state(&bed), ExportState::Missing, "the other one is here");
    let there = bed.control().volume("v").expect("one is started");
    assert_eq!((there.array.as_str(), there.exports), ("b", vec![]));
    drop(away);
}

#[test]
fn of_two_volumes_of_one_uuid_an_old_record_names_none() {
    let bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    let own = bed.control().volume("v").expect("the only one").uuid;
    twin_of(&bed, own);
    let control = bed.control();
    let (volumes, mut arrays) = (control.volumes(), control.arrays());
    let mut wanted = control.wanted.state().exports["v"].clone();
    let found = |wanted: &WantedExport, arrays: &[ArrayView]| {
        volume_of(wanted, &volumes, arrays).map(|volume| volume.array)
    };
    assert_eq!(found(&wanted, &arrays).expect("its own"), "a");
    wanted.array_uuid = None;
    let refused = found(&wanted, &arrays).expect_err("which?");
    assert_eq!(refused.kind, ErrorKind::Exists);
    let other = arrays.iter_mut().find(|array| array.name == "a");
    other.expect("there").state = ArrayState::Stopped;
    found(&wanted, &arrays).expect_err("it may be that of the one that is stopped");
}

#[test]
fn of_two_volumes_of_one_uuid_each_has_its_own_limits_and_may_go_when_its_own_export_does() {
    let mut bed = Bed::full();
    let own = bed.control().volume("v").expect("the only one").uuid;
    bed.control().create_export(export("v")).expect("exported");
    bed.control().limit_volume("v", &limit(10)).expect("there");
    twin_of(&bed, own);
    bed.kill_and_start();
    let limits = |bed: &Bed| {
        let volumes = bed.control().volumes().into_iter();
        let limits = volumes.map(|volume| (volume.array, volume.limit.iops));
        limits.collect::<BTreeMap<_, _>>()
    };
    let expected = BTreeMap::from([("a".to_owned(), Some(10)), ("b".to_owned(), None)]);
    assert_eq!(limits(&bed), expected);
    bed.control = None;
    let away = ["file:/0", "file:/1", "file:/2", "file:/3"];
    let drives = away.map(|at| bed.host.unplug(at));
    bed.start();
    bed.control()
        .delete_volume("v")
        .expect("it is of b, and the export of a");
    bed.control = None;
    for (at, drive) in away.into_iter().zip(drives) {
        bed.host.replug(at, drive);
    }
    bed.start();
    assert_eq!(limits(&bed), BTreeMap::from([("a".to_owned(), Some(10))]));
}

#[test]
fn of_limits_of_an_older_engine_it_is_noted_whose_they_are() {
    let mut bed = Bed::full();
    let own = bed.control().volume("v").expect("the only one").uuid;
    let noted = |array| WantedVolume { array, uuid: own };
    let change = wanted::Change::Limit(noted(None), limit(10));
    bed.control().wanted.apply(&[change]).expect("room");
    bed.kill_and_start();
    let volume = bed.control().volume("v").expect("there");
    assert_eq!(volume.limit, limit(10));
    let array = bed.control().array("a").expect("there").uuid;
    let limits = bed.control().wanted.state().limits;
    let expected = BTreeMap::from([(noted(Some(array)), limit(10))]);
    assert_eq!(limits, expected);
}

#[test]
fn of_an_export_of_an_older_engine_it_is_noted_whose_volume_it_is() {
    let mut bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    let mut wanted = bed.control().wanted.state().exports["v"].clone();
    let array = wanted.array_uuid.take();
    assert!(array.is_some());
    let change = wanted::Change::Export(Box::new(wanted));
    bed.control().wanted.apply(&[change]).expect("room");
    bed.kill_and_start();
    let noted = bed.control().wanted.state().exports["v"].array_uuid;
    assert_eq!(noted, array);
}

#[test]
fn volumes_of_one_name_are_told_apart_by_uuid() {
    let bed = Bed::full();
    let (own, twin) = twins(&bed);
    for uuid in [own, twin] {
        let key = uuid.to_string();
        let limit = VolumeLimit {
            iops: Some(7),
            ..VolumeLimit::default()
        };
        let limited = bed.control().limit_volume(&key, &limit).expect("one");
        assert_eq!((limited.uuid, limited.limit), (uuid, limit));
        let resized = bed.control().resize_volume(&key, 1 << 29).expect("one");
        assert_eq!(resized.uuid, uuid);
    }
    let body = |volume: Uuid, name: &str| ExportCreateBody {
        name: Some(name.to_owned()),
        ..export(&volume.to_string())
    };
    bed.control().create_export(body(twin, "e")).expect("one");
    let exports_of = |uuid: Uuid| bed.control().volume(&uuid.to_string()).expect("it").exports;
    assert_eq!(
        (exports_of(own), exports_of(twin)),
        (vec![], vec!["e".to_owned()])
    );
    // Only that one is in use.
    let busy = bed.control().delete_volume(&twin.to_string());
    assert_eq!(busy.expect_err("exported").kind, ErrorKind::Busy);
    let deleted = bed.control().delete_volume(&own.to_string());
    assert_eq!(deleted.expect("not exported").uuid, own);
    let left: Vec<Uuid> = bed
        .control()
        .volumes()
        .iter()
        .map(|left| left.uuid)
        .collect();
    assert_eq!(left, [twin]);
}

#[test]
fn a_name_that_two_volumes_have_is_refused_with_their_uuids() {
    let bed = Bed::full();
    let (own, twin) = twins(&bed);
    let refused = [
        bed.control().delete_volume("v").map(|_| ()),
        bed.control().resize_volume("v", 1 << 30).map(|_| ()),
        bed.control()
            .limit_volume("v", &VolumeLimit::default())
            .map(|_| ()),
        bed.control().create_export(export("v")).map(|_| ()),
    ];
    for refused in refused {
        let refused = refused.expect_err("which");
        assert_eq!(refused.kind, ErrorKind::Invalid);
        for uuid in [own, twin] {
            assert!(refused.next.contains(&uuid.to_string()), "{refused}");
        }
    }
}

#[test]
fn exports_get_their_own_volumes_after_a_start_whatever_these_are_called() {
    let mut bed = Bed::full();
    let (own, twin) = twins(&bed);
    for (name, volume) in [("e", twin), ("f", own)] {
        let body = ExportCreateBody {
            name: Some(name.to_owned()),
            ..export(&volume.to_string())
        };
        bed.control().create_export(body).expect("one");
    }
    bed.kill_and_start();
    let exports_of = |uuid: Uuid| bed.control().volume(&uuid.to_string()).expect("it").exports;
    assert_eq!(
        (exports_of(twin), exports_of(own)),
        (vec!["e".to_owned()], vec!["f".to_owned()])
    );
}

#[test]
fn members_change_their_identity_in_the_record() {
    let bed = Bed::full();
    let identity = |name: &str| bed.control().wanted.state().drives[name].identity.clone();
    let uuid = bed.control().array("a").expect("found").uuid;
    assert_eq!(identity("d0"), format!("member {uuid} 0"));
    assert_eq!(identity("d4"), "");
    bed.control().fail_member("a", 1).expect("failed");
    let body = ReplaceBody {
        drive: "d4".into(),
        force: false,
    };
    let view = bed
        .control()
        .replace_member("a", 1, &body)
        .expect("replaced");
    assert_eq!(view.members[1].state, MemberState::Rebuilding);
    assert_eq!(view.jobs.len(), 2, "the initialization and the rebuild");
    assert_eq!(
        (identity("d4"), identity("d1")),
        (format!("member {uuid} 1"), String::new())
    );
    bed.control().destroy_array("a", true).expect("destroyed");
    assert_eq!(identity("d0"), "");
}

#[test]
fn who_is_in_sync_is_remembered_as_long_as_the_array_is_there() {
    let bed = Bed::full();
    let uuid = bed.control().array("a").expect("there").uuid;
    let told = || bed.control().wanted.state().memberships.remove(&uuid);
    let in_sync = |told: Option<Membership>| told.map(|told| told.in_sync.len());
    let all = bed.control().array("a").expect("there").members.len();
    let now = Instant(0);
    bed.control().tend_memberships(now).expect("looked");
    assert_eq!(in_sync(told()), Some(all));
    bed.control().fail_member("a", 1).expect("redundant");
    assert_eq!(in_sync(told()), Some(all - 1));
    // An older record that runs is the truth now.
    let mut future = told().expect("there");
    future.update = u64::MAX;
    let change = Change::Membership(uuid, future);
    bed.control().wanted.apply(&[change]).expect("written");
    bed.control().tend_memberships(now).expect("looked");
    assert!(told().expect("there").update < u64::MAX);
    // The next engine is told before it looks at drives.
    let mut bed = bed;
    bed.kill_and_start();
    assert_eq!(
        bed.host.recalled().remove(&uuid),
        bed.control().wanted.state().memberships.remove(&uuid)
    );
    let told = || bed.control().wanted.state().memberships.remove(&uuid);
    bed.control().destroy_array("a", true).expect("destroyed");
    assert_eq!(told(), None);
}

#[test]
fn creates_with_a_uuid_are_idempotent_and_nothing_else_is() {
    let bed = Bed::full();
    let control = bed.control();
    let uuid = Uuid::from_u128(77);

    let mut body = drive("file:/5");
    body.uuid = Some(uuid);
    let first = control.add_drive(body.clone()).expect("added");
    assert_eq!(control.add_drive(body.clone()).expect("again"), first);
    body.spec = "file:/6".parse().expect("a spec");
    assert_eq!(
        control.add_drive(body).expect_err("other spec").kind,
        ErrorKind::Exists
    );

    let mut body = volume("w");
    body.uuid = Some(uuid);
    let first = control.create_volume(body.clone()).expect("created");
    assert_eq!(control.create_volume(body.clone()).expect("again"), first);
    body.size_bytes *= 2;
    assert_eq!(
        control.create_volume(body.clone()).expect_err("size").kind,
        ErrorKind::Exists
    );
    body.name = "x".into();
    assert_eq!(
        control.create_volume(body).expect_err("name").kind,
        ErrorKind::Exists
    );
    assert_eq!(
        control
            .create_volume(volume("w"))
            .expect_err("no uuid")
            .kind,
        ErrorKind::Exists
    );

    let mut body = export("v");
    body.uuid = Some(uuid);
    let first = control.create_export(body.clone()).expect("exported");
    assert_eq!(control.create_export(body).expect("again").uuid, first.uuid);
    assert_eq!(control.exports().len(), 1);

    let calls = bed.host.calls();
    let creates = calls
        .iter()
        .filter(|call| call.starts_with("create_volume"))
        .count();
    assert_eq!(
        creates, 2,
        "the engine sees a repeated create only once: {calls:?}"
    );
}

#[test]
fn a_uuid_stands_for_a_name_everywhere() {
    let bed = Bed::full();
    let control = bed.control();
    let key = |uuid: Uuid| uuid.to_string();
    let array_key = key(control.array("a").expect("found").uuid);
    assert_eq!(control.array(&array_key).expect("found").name, "a");
    let volume_key = key(control.volume("v").expect("found").uuid);
    let made = control
        .create_export(export(&volume_key))
        .expect("exported");
    assert_eq!((made.name.as_str(), made.volume.as_str()), ("v", "v"));
    let drive_key = key(control.drive("d4").expect("found").uuid);
    control.locate_drive(&drive_key, Lamp::On).expect("lit");
    assert_eq!(
        bed.host.calls().last().map(String::as_str),
        Some("locate_drive d4 On")
    );
    control.remove_export(&key(made.uuid)).expect("removed");
}

#[test]
fn a_signature_is_named_and_only_force_overwrites_it() {
    let bed = Bed::full();
    let error = bed
        .control()
        .destroy_array("a", false)
        .expect_err("it has a volume");
    assert_eq!(error.kind, ErrorKind::Unsafe);
    bed.control().destroy_array("a", true).expect("destroyed");
    bed.host.sign("file:/2", "an ext4 file system");
    let mut body = array("b", &["d0", "d1", "d2"]);
    let error = bed
        .control()
        .create_array(body.clone())
        .expect_err("signed");
    assert_eq!(error.kind, ErrorKind::Unsafe);
    assert!(error.message.contains("ext4"), "{error}");
    assert_eq!(error.object, "drive d2");
    assert!(bed.control().arrays().is_empty());
    body.force = true;
    bed.control().create_array(body).expect("forced");
    assert_eq!(bed.control().drive("d2").expect("found").signature, None);
}

#[test]
fn what_cannot_be_recorded_is_undone() {
    let host = FakeHost::new();
    for number in 0..5 {
        host.plug(&format!("file:/{number}"), 1 << 30);
    }
    let (wanted, switch) = wanted::failing::wanted();
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    for number in 0..4 {
        control
            .add_drive(drive(&format!("file:/{number}")))
            .expect("added");
    }
    control
        .create_array(array("a", &["d0", "d1", "d2"]))
        .expect("created");
    control.create_volume(volume("v")).expect("created");
    switch.fail();

    let refused = control.add_drive(drive("file:/4")).expect_err("no room");
    assert_eq!(
        (refused.kind, refused.object.as_str()),
        (ErrorKind::Full, "wanted state")
    );
    assert!(
        control
            .engine
            .drives()
            .iter()
            .all(|drive| drive.name != "d4")
    );
    control.create_export(export("v")).expect_err("no room");
    assert!(control.engine.exports().is_empty());
    control.limit_volume("v", &limit(5)).expect_err("no room");
    assert_eq!(control.engine.volumes()[0].limit, VolumeLimit::default());

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("5");
    std::fs::write(&path, "what the engine makes").expect("written");
    let place = format!("file:{}", path.display());
    host.plug(&place, 1 << 30);
    let refused = control.add_drive(drive(&place)).expect_err("no room");
    assert_eq!(refused.kind, ErrorKind::Full);
    assert!(path.exists(), "a file that was there before is removed");
    let _ = host.unplug(&place);
    let new = format!("{place},size=1GiB,create");
    let refused = control.add_drive(drive(&new)).expect_err("no room");
    assert_eq!(refused.kind, ErrorKind::Full);
    assert!(!path.exists(), "the new file is left behind");

    switch.work();
    control.add_drive(drive("file:/4")).expect("room again");
    control.create_export(export("v")).expect("room again");
}

#[test]
fn an_engine_starts_on_a_full_file_system_with_what_it_can_read() {
    let host = FakeHost::new();
    for number in 0..6 {
        host.plug(&format!("file:/{number}"), 1 << 30);
    }
    let start = |wanted| {
        let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
        control.restore().expect("nothing is fatal");
        control
    };
    let (wanted, switch) = wanted::failing::wanted();
    let control = start(wanted);
    for number in 0..6 {
        let place = format!("file:/{number}");
        control.add_drive(drive(&place)).expect("added");
    }
    let create = |name, drives: &[&str]| control.create_array(array(name, drives));
    create("a", &["d0", "d1", "d2"]).expect("created");
    control.create_volume(volume("v")).expect("created");
    control.create_export(export("v")).expect("created");
    switch.fail();
    // What is on them, and so what they are told by, is recorded by the next look that can.
    create("b", &["d3", "d4", "d5"]).expect("nothing has to be recorded");
    let Control { engine, wanted, .. } = control;
    drop(engine);
    let control = start(wanted::failing::again(wanted).expect("read"));
    for name in ["a", "b"] {
        let state = control.array(name).expect("found").state;
        assert_eq!(state, ArrayState::Optimal, "{name}");
    }
    assert_eq!(control.engine.exports().len(), 1);
    let limited = control.limit_volume("v", &limit(5));
    assert_eq!(limited.expect_err("no room").kind, ErrorKind::Full);
    switch.work();
    control.limit_volume("v", &limit(5)).expect("room again");
}

#[test]
fn what_the_engine_refuses_is_not_recorded() {
    let mut bed = Bed::full();
    let before = bed.control().wanted.state();
    let calls = [
        "add_drive",
        "remove_drive",
        "create_export",
        "limit_volume",
        "stop_array",
    ];
    for call in calls {
        bed.host.fail_next(call);
    }
    let control = bed.control();
    control.add_drive(drive("file:/5")).expect_err("asked for");
    control.remove_drive("d4", false).expect_err("asked for");
    control.create_export(export("v")).expect_err("asked for");
    control.limit_volume("v", &limit(5)).expect_err("asked for");
    control.stop_array("a").expect_err("asked for");
    assert_eq!(control.wanted.state(), before);
    bed.kill_and_start();
    assert_eq!(
        bed.control().array("a").expect("found").state,
        ArrayState::Optimal
    );
}

#[test]
fn a_drive_that_is_refused_is_named_by_its_spec_unless_it_was_given_a_name() {
    let bed = Bed::full();
    let refused = |name: Option<&str>| {
        let body = DriveAddBody {
            name: name.map(str::to_owned),
            ..drive("file:/9")
        };
        let refused = bed.control().add_drive(body);
        refused.expect_err("nothing is there").object
    };
    assert_eq!(refused(None), "drive file:/9");
    assert_eq!(refused(Some("late")), "drive late");
}

#[test]
fn an_array_of_another_engine_is_found_and_imported_for_good() {
    let bed = Bed::full();
    let mut other = Bed::bare();
    other.host = bed.host.clone();
    drop(bed);
    other.control = None;
    other.start();
    let found = other.control().find_arrays(&[]).expect("looked");
    assert_eq!((found.len(), found[0].drives.len()), (1, 4));
    let some = ["file:/0".parse().expect("a spec")];
    assert_eq!(
        other.control().find_arrays(&some).expect("looked")[0]
            .drives
            .len(),
        1
    );
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    let array = other.control().import_array(body).expect("imported");
    assert_eq!(array.state, ArrayState::Optimal);
    other.kill_and_start();
    assert_eq!(
        other.control().array("a").expect("found").state,
        ArrayState::Optimal
    );
    assert_eq!(
        other.control().volume("v").expect("found").size_bytes,
        1 << 20
    );
    assert!(other.control().drive("a-0").is_ok());
}

#[test]
fn a_default_serial_and_access_are_as_documented() {
    let bed = Bed::full();
    let uuid = bed
        .control()
        .volume("v")
        .expect("found")
        .uuid
        .simple()
        .to_string();
    let body = change_export(|body| body.access = Access::ReadOnly);
    let view = bed.control().create_export(body).expect("exported");
    assert_eq!(view.profile.expect("made").serial, uuid[..20]);
    assert_eq!(view.access, Access::ReadOnly);
}

#[test]
fn the_end_marks_the_arrays_clean() {
    let bed = Bed::full();
    bed.control().shutdown().expect("finished");
    assert_eq!(
        bed.host.calls().last().map(String::as_str),
        Some("shutdown")
    );
}
