//! What a volume gets is zeroed while other commands come.

use std::time::Duration;

use control::engine::Begun;
use control::view::{JobKind, JobState, JobView};
use control::{Engine, ErrorKind};
use drive::Fault;

use super::hanging::{PATIENCE, hang, relieve};
use super::spares::Run;
use super::{Bench, MIB, volume_of, wait_until};
use crate::Host;

/// An array of which all was used once.
fn used() -> Bench {
    let bench = Bench::tank();
    let all = bench.array("tank").free_bytes;
    let old = volume_of("old", "tank", all);
    bench.host.create_volume(&old).expect("room");
    bench.host.delete_named("old").expect("not exported");
    bench
}

fn job_of(begun: Begun) -> u64 {
    match begun {
        Begun::Zeroing { job } => job,
        Begun::Done(volume) => panic!("nothing is to be zeroed for {}", volume.name),
    }
}

/// Begins to make a volume.
fn begin(host: &Host, name: &str, size_bytes: u64) -> u64 {
    let begun = host.begin_create_volume(&volume_of(name, "tank", size_bytes));
    job_of(begun.expect("room"))
}

fn job(host: &Host, id: u64) -> JobView {
    let mut jobs = host.jobs().into_iter();
    jobs.find(|job| job.id == id).expect("there is one")
}

/// Bytes written to the drives of the array.
fn written(bench: &Bench) -> u64 {
    let drives = bench.host.drives().into_iter();
    drives.map(|drive| drive.counters.written_bytes_total).sum()
}

/// Whether requests to the array are under way.
fn is_pending(bench: &Bench) -> bool {
    let index = bench.host.state().arrays["tank"].index;
    let state = bench.host.engine.array_state(index).expect("it runs");
    state.pending > 0
}

#[test]
fn volumes_are_made_beside_each_other() {
    let bench = used();
    let host = &bench.host;
    let slow = begin(host, "slow", 32 * MIB);
    let shown = job(host, slow);
    assert_eq!(
        (shown.kind, shown.state),
        (JobKind::Zero, JobState::Running)
    );
    assert_eq!((shown.done_bytes, shown.total_bytes), (0, 32 * MIB));
    assert_eq!(bench.array("tank").jobs, [slow]);
    let taken_back = begin(host, "gone", MIB);
    host.cancel_job(taken_back).expect("it runs");
    host.zero_volume(taken_back);
    let refused = host.finish_volume(taken_back).expect_err("cancelled");
    assert!(refused.message.contains("was cancelled"), "{refused}");
    assert_eq!(job(host, taken_back).state, JobState::Cancelled);
    let failed = begin(host, "failed", MIB);
    // Another one is made and deleted, and the name is another's meanwhile.
    let other = volume_of("other", "tank", MIB);
    host.create_volume(&other).expect("room");
    host.delete_named("other").expect("not exported");
    let again = volume_of("slow", "tank", MIB);
    bench.refused((ErrorKind::Busy, "volume slow is being made"), |host| {
        host.create_volume(&again)
    });
    host.zero_volume(slow);
    assert_eq!(job(host, slow).done_bytes, 32 * MIB);
    let made = host.finish_volume(slow).expect("zeroed");
    assert_eq!((made.name.as_str(), made.size_bytes), ("slow", 32 * MIB));
    assert_eq!(job(host, slow).state, JobState::Done);
    host.zero_volume(failed);
    host.finish_volume(failed).expect("zeroed as well");
    let names: Vec<String> = host.volumes().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["failed", "slow"]);
    let gone = volume_of("gone", "tank", MIB);
    host.create_volume(&gone).expect("it was taken back");
}

#[test]
fn a_volume_that_grows_is_let_alone_until_it_has() {
    let bench = used();
    let host = &bench.host;
    host.create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let volume = &host.volume_named("v").expect("made").key();
    let begun = host.begin_resize_volume(volume, 40 * MIB);
    let grows = job_of(begun.expect("room"));
    let let_alone = || {
        bench.refused((ErrorKind::Busy, "volume v grows"), |host| {
            host.delete_named("v")
        });
        bench.refused((ErrorKind::Busy, "volume v grows"), |host| {
            host.resize_volume(volume, 41 * MIB)
        });
    };
    let_alone();
    let other = begin(host, "other", MIB);
    host.cancel_job(other).expect("it runs");
    host.finish_volume(other)
        .expect_err("only this is taken back");
    host.zero_volume(grows);
    let_alone();
    let grown = host.finish_volume(grows).expect("zeroed");
    assert_eq!(grown.size_bytes, 40 * MIB);
    let begun = host.begin_resize_volume(volume, 60 * MIB).expect("room");
    let grows = job_of(begun);
    host.cancel_job(grows).expect("it runs");
    host.zero_volume(grows);
    host.finish_volume(grows).expect_err("cancelled");
    assert_eq!(host.volume_named("v").expect("there").size_bytes, 40 * MIB);
    host.resize_volume(volume, 60 * MIB).expect("room again");
}

#[test]
fn an_array_that_stops_has_nothing_zeroed_any_more() {
    let bench = used();
    let host = &bench.host;
    let all = bench.array("tank").free_bytes;
    let (before, after) = (
        begin(host, "before", 20 * MIB),
        begin(host, "after", 20 * MIB),
    );
    host.zero_volume(after);
    host.stop_array("tank").expect("nobody zeroes");
    host.start_array("tank", false).expect("all are here");
    assert_eq!(bench.array("tank").free_bytes, all, "taken back");
    // Another one of the name is begun before those of before know.
    let again = begin(host, "after", 20 * MIB);
    let bytes = written(&bench);
    host.zero_volume(before);
    for job_id in [before, after] {
        let refused = host.finish_volume(job_id).expect_err("stopped");
        assert!(
            refused.message.contains("array tank was stopped"),
            "{refused}"
        );
        assert_eq!(job(host, job_id).state, JobState::Failed);
    }
    assert_eq!(
        written(&bench),
        bytes,
        "nothing is zeroed in what is another's"
    );
    assert!(host.volumes().is_empty(), "{:?}", host.volumes());
    host.zero_volume(again);
    host.finish_volume(again).expect("it is another one");
}

#[test]
fn whoever_stops_an_array_waits_for_the_zeroes_that_are_on_their_way() {
    let bench = used();
    let host = &bench.host;
    let job_id = begin(host, "v", 40 * MIB);
    hang(&bench);
    std::thread::scope(|scope| {
        scope.spawn(|| host.zero_volume(job_id));
        wait_until("zeroes are on their way", || is_pending(&bench));
        let stopping = scope.spawn(|| host.stop_array("tank"));
        std::thread::park_timeout(Duration::from_millis(50));
        assert!(!stopping.is_finished(), "they may still land");
        relieve(&bench);
        stopping.join().expect("no panic").expect("all has landed");
    });
    host.finish_volume(job_id).expect_err("stopped");
}

#[test]
fn a_job_that_is_cancelled_writes_no_more_zeroes() {
    let bench = used();
    let host = &bench.host;
    let job_id = begin(host, "v", 40 * MIB);
    hang(&bench);
    std::thread::scope(|scope| {
        scope.spawn(|| host.zero_volume(job_id));
        wait_until("zeroes are on their way", || is_pending(&bench));
        host.cancel_job(job_id).expect("it runs");
        relieve(&bench);
    });
    let done = job(host, job_id).done_bytes;
    assert!(done < 40 * MIB, "{done} bytes were zeroed");
    host.finish_volume(job_id).expect_err("cancelled");
}

#[test]
fn what_is_not_decided_is_not_undone_by_who_has_zeroed() {
    let bench = used();
    let host = &bench.host;
    host.create_volume(&volume_of("w", "tank", MIB))
        .expect("room");
    let job_id = begin(host, "v", 20 * MIB);
    host.zero_volume(job_id);
    hang(&bench);
    super::hanging::late(&bench, |host| host.delete_named("w"));
    // It would bring back what is deleted.
    let refused = host.finish_volume(job_id).expect_err("not decided");
    assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
    relieve(&bench);
    wait_until("all is decided", || {
        host.create_volume(&volume_of("v", "tank", MIB)).is_ok()
    });
    let names: Vec<String> = host.volumes().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["v"]);
}

#[test]
fn what_is_zeroed_late_is_taken_back_once_the_zeroes_have_landed() {
    let bench = used();
    let host = &bench.host;
    host.create_volume(&volume_of("g", "tank", MIB))
        .expect("room");
    let left = bench.array("tank").free_bytes;
    let volume = &host.volume_named("g").expect("made").key();
    let made = begin(host, "v", 20 * MIB);
    let begun = host.begin_resize_volume(volume, 40 * MIB).expect("room");
    let grows = job_of(begun);
    let cancelled = begin(host, "other", MIB);
    let patience = host.engine.patience();
    host.engine.set_patience(PATIENCE);
    // One of three is not enough, so all of it waits until they are back.
    for name in ["one", "two"] {
        bench.inject(name, Fault::Pulled);
    }
    for job_id in [made, grows] {
        host.zero_volume(job_id);
        let refused = host.finish_volume(job_id).expect_err("not in time");
        assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
        assert!(
            refused.message.contains("is taken back when they work"),
            "it is not done: {refused}"
        );
        assert_eq!(job(host, job_id).state, JobState::Failed);
    }
    host.cancel_job(cancelled).expect("it runs");
    host.finish_volume(cancelled).expect_err("cancelled");
    // As a look once a second does.
    host.tend_copies();
    let let_alone = (ErrorKind::Busy, "zeroes may still land");
    bench.refused(let_alone, |host| host.delete_named("g"));
    bench.refused(let_alone, |host| host.resize_volume(volume, 41 * MIB));
    bench.refused(let_alone, |host| {
        host.create_volume(&volume_of("v", "tank", MIB))
    });
    assert!(bench.array("tank").free_bytes < left, "not given to others");
    relieve(&bench);
    host.engine.set_patience(patience);
    wait_until("all is taken back", || {
        host.tend_copies();
        bench.array("tank").free_bytes == left
    });
    let names: Vec<String> = host.volumes().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["g"]);
    host.create_volume(&volume_of("v", "tank", 20 * MIB))
        .expect("it may be asked again");
    host.resize_volume(volume, 40 * MIB).expect("so may this");
    host.delete_named("g").expect("and deleted");
}

#[test]
fn a_volume_whose_zeroes_hang_is_not_said_to_be_made_one_day() {
    let bench = used();
    let host = &bench.host;
    let job_id = begin(host, "v", 20 * MIB);
    hang(&bench);
    host.engine.set_patience(PATIENCE);
    host.zero_volume(job_id);
    let refused = host.finish_volume(job_id).expect_err("not in time");
    assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
    assert!(refused.message.contains("is taken back"), "{refused}");
    assert!(refused.next.contains("--force"), "{refused}");
}

#[test]
fn commands_come_while_a_volume_is_zeroed_and_a_shutdown_ends_that() {
    let bench = used();
    let run = Run::on(bench);
    for name in ["one", "two", "three"] {
        run.bench
            .inject(name, Fault::Delay(Duration::from_millis(300)));
    }
    let zero_jobs = || {
        let jobs = run.control.jobs().into_iter();
        jobs.filter(|job| job.kind == JobKind::Zero)
            .collect::<Vec<JobView>>()
    };
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let body = control::body::VolumeCreateBody {
                name: "v".to_owned(),
                uuid: None,
                array: "tank".to_owned(),
                size_bytes: 40 * MIB,
                stable_buffers: false,
            };
            run.control.create_volume(body)
        });
        wait_until("it is zeroed", || !zero_jobs().is_empty());
        // Whoever wants to be rid of it is not told that there is none.
        let refused = run
            .control
            .delete_volume("v")
            .expect_err("it is being made");
        assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
        assert!(refused.next.contains("garboard job cancel"), "{refused}");
        let refused = run.control.delete_volume("w").expect_err("there is none");
        assert_eq!(refused.kind, ErrorKind::NotFound, "{refused}");
        // What changes something waits for no zeroes.
        run.control.cancel_job(99).expect_err("there is none");
        assert_eq!(zero_jobs()[0].state, JobState::Running, "still zeroed");
        assert!(!made.is_finished());
        run.control.shutdown().expect("in order");
        let refused = made.join().expect("no panic").expect_err("not made");
        assert_eq!(refused.kind, ErrorKind::Unreachable, "{refused}");
    });
}
