//! Limits of volumes as guests meet them. How exactly a rate holds is tested under false time
//! (`volume/src/limiter/tests.rs`); here nothing may be faster, and nothing may stand still.

use std::time::Duration;

use control::Engine;
use control::metrics::Samples;
use control::request::{ExportCreate, QueueMove, VolumeLimit};
use control::view::{Sharing, VolumeView};
use units::{Clock, MonotonicClock};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

/// An array with a volume `v` that is limited like this.
fn limited(limit: &VolumeLimit) -> Bench {
    let bench = Bench::tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let view = bench.host.limit_named("v", limit).expect("limited");
    assert_eq!(view.limit, *limit);
    bench
}

fn export(bench: &Bench, name: &str, core: u16) -> Guest {
    let create = ExportCreate {
        sharing: Sharing::Shared,
        cores: vec![core],
        ..export_of(bench, name, "v")
    };
    let view = bench.host.export_named(&create).expect("a volume");
    Guest::connect(&view.socket)
}

fn iops(iops: u64) -> VolumeLimit {
    VolumeLimit {
        iops: Some(iops),
        burst_ms: Some(10),
        ..VolumeLimit::default()
    }
}

fn volume(bench: &Bench) -> VolumeView {
    bench.host.volume_named("v").expect("a volume")
}

fn answered(guest: &mut Guest) {
    let guest = std::cell::RefCell::new(guest);
    wait_until("an answer", || guest.borrow_mut().answer() == Some(0));
}

/// Writes so many blocks one after another. How long that took.
fn write(guest: &mut Guest, count: u64) -> Duration {
    let begun = MonotonicClock.now();
    for block in 0..count {
        guest.write(8 * block);
        answered(guest);
    }
    MonotonicClock.now().since(begun)
}

pub(super) fn turns(bench: &Bench) -> u64 {
    let metrics = bench.host.metrics();
    let metric = metrics.iter().find(|metric| metric.name == "reactor_turns");
    let Samples::Counters(samples) = &metric.expect("named").samples else {
        panic!("turns are counted");
    };
    samples.iter().map(|(_, turns)| turns).sum()
}

#[test]
fn a_guest_is_not_faster_than_the_limit_of_requests() {
    let bench = limited(&iops(100));
    let mut guest = export(&bench, "e", 0);
    let took = write(&mut guest, 30);
    // What was saved before, and the first, are free: 28 intervals of 10 ms are left. A turn may
    // have begun a little before.
    assert!(took >= Duration::from_millis(240), "{took:?}");
    let view = volume(&bench);
    assert_eq!(view.counters.writes_total, 30);
    assert!(view.throttled_requests_total > 0, "{view:?}");
    assert!(view.throttled_time_us_total > 0, "{view:?}");
    for name in ["volume_throttled_requests", "volume_throttled_microseconds"] {
        let metrics = bench.host.metrics();
        let metric = metrics.iter().find(|metric| metric.name == name);
        let Samples::Counters(samples) = &metric.expect("named").samples else {
            panic!("{name} counts");
        };
        assert!(samples[0].1 > 0, "{samples:?}");
    }
}

#[test]
fn a_guest_is_not_faster_than_the_limit_of_bytes() {
    let limit = VolumeLimit {
        bytes_per_second: Some(MIB / 4),
        burst_ms: Some(1),
        ..VolumeLimit::default()
    };
    let bench = limited(&limit);
    let mut guest = export(&bench, "e", 0);
    let took = write(&mut guest, 20);
    // 64 blocks of 4 KiB in a second; the first is free.
    assert!(took >= Duration::from_millis(270), "{took:?}");
}

/// A request of 64 bytes could have 16 GiB of a volume written, past any limit.
#[test]
fn zeroes_that_a_guest_does_not_carry_count_as_written() {
    let limit = VolumeLimit {
        bytes_per_second: Some(MIB / 4),
        burst_ms: Some(1),
        ..VolumeLimit::default()
    };
    let bench = limited(&limit);
    let mut guest = export(&bench, "e", 0);
    let begun = MonotonicClock.now();
    for part in 0..3 {
        guest.begin_zeroing(256 * part, 128);
        answered(&mut guest);
    }
    // Each of 64 KiB, a quarter of a second; the first is free.
    let took = MonotonicClock.now().since(begun);
    assert!(took >= Duration::from_millis(450), "{took:?}");
}

#[test]
fn exports_on_two_reactors_share_one_limit() {
    let bench = limited(&VolumeLimit::default());
    let mut guests = [export(&bench, "e", 0), export(&bench, "f", 1)];
    let begun = MonotonicClock.now();
    bench.host.limit_named("v", &iops(100)).expect("limited");
    let mut done = [0u64; 2];
    for (guest, sector) in guests.iter_mut().zip([0, 8]) {
        guest.write(sector);
    }
    while done.iter().sum::<u64>() < 60 {
        assert!(MonotonicClock.now().since(begun) < Duration::from_secs(20));
        for ((guest, done), sector) in guests.iter_mut().zip(&mut done).zip([0, 8]) {
            if guest.answer() == Some(0) {
                *done += 1;
                guest.write(sector);
            }
        }
        std::thread::park_timeout(Duration::from_micros(50));
    }
    let took = MonotonicClock.now().since(begun);
    // Nothing was saved when the limit was set, so only the first is free.
    assert!(took >= Duration::from_millis(500), "{took:?}");
    // How evenly depends on when this machine lets each reactor and this guest run.
    assert!(done.iter().all(|&done| done >= 5), "{done:?}");
}

/// A guest whose second request waits for more than an hour, unless something is done about it.
fn waits_for_long(bench: &Bench) -> Guest {
    let mut guest = export(bench, "e", 0);
    let slow = VolumeLimit {
        bytes_per_second: Some(1),
        burst_ms: Some(1),
        ..VolumeLimit::default()
    };
    bench.host.limit_named("v", &slow).expect("limited");
    write(&mut guest, 1);
    guest.write(0);
    wait_until("its ring waits", || held_back(bench) > 0);
    guest
}

/// How often rings of the export `e` were told to come again.
fn held_back(bench: &Bench) -> u64 {
    let id = bench.host.state().exports["e"].id;
    let rings = bench.host.engine.rings(id);
    rings.iter().map(|(_, _, counters)| counters.full).sum()
}

#[test]
fn a_reactor_whose_only_work_waits_for_a_limit_sleeps() {
    let bench = limited(&VolumeLimit::default());
    let mut guest = waits_for_long(&bench);
    let before = turns(&bench);
    std::thread::park_timeout(Duration::from_millis(300));
    assert!(guest.answer().is_none(), "it is due in an hour");
    let during = turns(&bench) - before;
    assert!(during < 300, "{during} turns");
}

#[test]
fn a_limit_that_is_raised_or_removed_lets_go_who_waits() {
    for limit in [iops(1000), VolumeLimit::default()] {
        let bench = limited(&VolumeLimit::default());
        let mut guest = waits_for_long(&bench);
        assert!(guest.answer().is_none());
        bench.host.limit_named("v", &limit).expect("limited");
        answered(&mut guest);
    }
}

#[test]
fn other_volumes_of_a_reactor_do_not_wait() {
    let bench = limited(&VolumeLimit::default());
    let volume = volume_of("w", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut slow = waits_for_long(&bench);
    let create = ExportCreate {
        cores: vec![0],
        ..export_of(&bench, "other", "w")
    };
    let view = bench.host.export_named(&create).expect("a volume");
    let mut guest = Guest::connect(&view.socket);
    write(&mut guest, 20);
    assert!(slow.answer().is_none());
}

#[test]
fn an_export_is_removed_and_moved_while_its_guest_waits_for_a_limit() {
    let bench = limited(&VolumeLimit::default());
    let mut guest = waits_for_long(&bench);
    let to = QueueMove { queue: 0, core: 1 };
    bench.host.move_queue("e", to).expect("moved");
    answered(&mut guest);
    guest.write(0);
    bench.host.remove_export("e").expect("removed");
    assert!(bench.host.exports().is_empty());
}

#[test]
fn a_limit_goes_with_its_volume() {
    let bench = limited(&iops(1));
    bench.host.delete_named("v").expect("not exported");
    assert!(bench.host.state().limits.is_empty());
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    bench.host.limit_named("v", &iops(1)).expect("limited");
    bench.host.destroy_array("tank", true).expect("forced");
    assert!(bench.host.state().limits.is_empty());
}
