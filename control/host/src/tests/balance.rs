//! Stripes and rings follow the load, while guests write.

use std::time::Duration;

use control::request::{ExportCreate, QueueMove};
use control::scrub::ScrubBody;
use units::limits::BUCKETS;
use units::{ArrayIndex, Clock, MonotonicClock, ReactorIndex};

use super::guests::Guest;
use super::*;

/// Buckets of the first array that a reactor owns.
fn share(bench: &Bench, reactor: u16) -> usize {
    share_of(bench, 0, reactor)
}

fn share_of(bench: &Bench, array: u16, reactor: u16) -> usize {
    let owners = bench.host.engine.owners(ArrayIndex(array));
    owners.expect("it runs").share(ReactorIndex(reactor))
}

/// A look, and all that follows from it for the first array.
fn look(bench: &Bench) {
    bench.host.do_look_at_load();
    wait_until("an end of stripes on their way", || {
        let mut balance = bench.host.balance.lock().expect("nothing panics under it");
        balance.take_results();
        balance.moving_for(ArrayIndex(0)).is_none()
    });
}

fn messages(bench: &Bench) -> u64 {
    let state = bench.host.engine.array_state(ArrayIndex(0));
    let counters = state.expect("it runs").counters;
    counters.iter().map(|counters| counters.messages).sum()
}

/// Writes blocks at places of their own, looks at the load, and so on until all stripes are there.
fn write_until(bench: &Bench, guest: &mut Guest, reactor: u16) {
    for byte in 1..100 {
        for sector in (0..8192).step_by(512) {
            guest.fill(sector, byte);
        }
        look(bench);
        assert_eq!(guest.read(4096), vec![byte; 4096]);
        if share(bench, reactor) == BUCKETS {
            return;
        }
    }
    panic!("the stripes do not follow");
}

#[test]
fn stripes_go_to_the_reactor_whose_ring_asks_for_them() {
    for level in [Level::Raid5, Level::Raid1] {
        let names = ["one", "two", "three"];
        let drives = if level == Level::Raid5 { 3 } else { 2 };
        let bench = Bench::tank_of(level, &names[..drives], Tuning::default());
        wait_until("the first resync", || bench.host.jobs().is_empty());
        assert_eq!(
            (share(&bench, 0), share(&bench, 1)),
            (BUCKETS / 2, BUCKETS / 2)
        );
        let volume = volume_of("v", "tank", 8 * MIB);
        bench.host.create_volume(&volume).expect("room");
        look(&bench);
        look(&bench);
        assert_eq!(share(&bench, 0), BUCKETS / 2, "nobody asks");
        let create = ExportCreate {
            cores: vec![1, 0],
            ..export_of(&bench, "e", "v")
        };
        let view = bench.host.export_named(&create).expect("a volume");
        let mut guest = Guest::connect(&view.socket);
        let reactor = |bench: &Bench| {
            let id = bench.host.state().exports["e"].id;
            bench.host.engine.rings(id)[0].0
        };
        let first = reactor(&bench).0;
        write_until(&bench, &mut guest, first);
        let before = messages(&bench);
        for sector in (0..8192).step_by(8) {
            guest.fill(sector, 7);
        }
        // Only its home calls regions dirty.
        let more = messages(&bench) - before;
        assert!(more < 200, "{more} messages for 1024 writes");
        let core = 1 - first;
        let to = QueueMove { queue: 0, core };
        bench.host.move_queue("e", to).expect("moved");
        write_until(&bench, &mut guest, 1 - first);
        for sector in (4097..8192).step_by(8) {
            assert!(
                guest.read(sector - 1).iter().all(|byte| *byte != 0),
                "{sector}"
            );
        }
    }
}

/// Its log has slots for seven reactors.
#[test]
fn stripes_do_not_go_to_a_reactor_that_has_no_part_of_the_log() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let cores = [0, 1].into_iter().cycle().take(9);
    let bench = Bench::with_cores(folder, Tuning::default(), cores.collect());
    for (array, level, drives, last) in [
        (0, Level::Raid5, ["a", "b", "c"].as_slice(), 6),
        (1, Level::Raid1, &["d", "e"], 8),
    ] {
        drives.iter().for_each(|name| bench.memory(name));
        bench.create(&format!("tank{array}"), level, drives);
        wait_until("the first resync", || bench.host.jobs().is_empty());
        let owners = bench.host.engine.owners(ArrayIndex(array));
        let owners = owners.expect("it runs").reactors();
        assert_eq!(owners, (0..=last).map(ReactorIndex).collect::<Vec<_>>());
    }
    bench.host.do_look_at_load();
    for _ in 0..20 {
        pretend_that_it_asks(&bench, 0);
        look(&bench);
        assert!(share(&bench, 0) < BUCKETS / 6, "it would go there");
    }
}

#[test]
fn an_array_that_cannot_give_stripes_away_is_left_alone_for_a_while() {
    let bench = Bench::tank();
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let view = bench.host.export_named(&export_of(&bench, "e", "v"));
    let mut guest = Guest::connect(&view.expect("a volume").socket);
    look(&bench);
    // What is under way on a stripe of the second reactor does not end.
    bench.inject("two", drive::Fault::Delay(Duration::from_millis(700)));
    guest.write(2048);
    wait_until("the write to begin", || {
        let state = bench.host.engine.array_state(ArrayIndex(0));
        state.expect("it runs").pending > 0
    });
    let mut looks = 0;
    loop {
        pretend_that_it_asks(&bench, 0);
        look(&bench);
        if guest.answer().is_some() {
            break;
        }
        looks += 1;
        assert_eq!(share(&bench, 1), BUCKETS / 2, "it keeps them");
    }
    assert!(looks > 20, "few of {looks} wait for the drive");
    bench.host.state().drives["two"].drive.clear_faults();
    for _ in 0..20 {
        pretend_that_it_asks(&bench, 0);
        look(&bench);
    }
    assert_eq!(share(&bench, 0), BUCKETS);
    guest.fill(2048, 3);
    assert_eq!(guest.read(2048), vec![3; 4096]);
}

/// The balance counts answers only, so it is told that there were some.
fn pretend_that_it_asks(bench: &Bench, array: u16) {
    let mut balance = bench.host.balance.lock().expect("nothing panics under it");
    balance.pretend(ArrayIndex(array));
}

#[test]
fn an_array_whose_stripes_have_to_wait_holds_no_other_up() {
    let bench = Bench::tank();
    for name in ["a", "b"] {
        bench.memory(name);
    }
    bench.create("pond", Level::Raid1, &["a", "b"]);
    wait_until("the first resyncs", || bench.host.jobs().is_empty());
    bench.host.do_look_at_load();
    // Stripes do not go while the window of a pass is open.
    bench.inject("two", drive::Fault::Delay(Duration::from_secs(2)));
    let scrub = ScrubBody {
        from_beginning: true,
    };
    bench.host.start_scrub("tank", scrub).expect("it begins");
    wait_until("its window", || {
        let state = bench.host.engine.array_state(ArrayIndex(0));
        state.expect("it runs").map.window.is_some()
    });
    let begun = MonotonicClock.now();
    pretend_that_it_asks(&bench, 0);
    pretend_that_it_asks(&bench, 1);
    bench.host.do_look_at_load();
    wait_until("the stripes of the other", || {
        share_of(&bench, 1, 0) == BUCKETS
    });
    let took = MonotonicClock.now().since(begun);
    assert!(took < Duration::from_secs(1), "{took:?}");
    // It is asked once, however often somebody looks, and asked anew when it has been left alone.
    let mut moving_for = Vec::new();
    for _ in 0..45 {
        pretend_that_it_asks(&bench, 0);
        bench.host.do_look_at_load();
        assert_eq!(share(&bench, 0), BUCKETS / 2);
        let balance = bench.host.balance.lock().expect("nothing panics under it");
        moving_for.push(balance.moving_for(ArrayIndex(0)));
    }
    let waits = (1..30).map(Some).chain([None; 10]).chain((0..6).map(Some));
    assert_eq!(moving_for, waits.collect::<Vec<_>>());
    bench.host.state().drives["two"].drive.clear_faults();
    wait_until("its stripes, too", || share(&bench, 0) == BUCKETS);
}

/// Two guests of one queue each, and how busy the reactors are called.
struct Asking {
    bench: Bench,
    guests: [Guest; 2],
    /// By reactor: with and without work, in looks of a second.
    spent: [(Duration, Duration); 2],
    looks: u8,
}

impl Asking {
    /// Both begin on the first reactor, and may be on either.
    fn new() -> Asking {
        let bench = Bench::tank();
        wait_until("the first resync", || bench.host.jobs().is_empty());
        let guests = [("a", vec![0, 1]), ("b", vec![1, 0])].map(|(name, cores)| {
            let volume = volume_of(name, "tank", 8 * MIB);
            bench.host.create_volume(&volume).expect("room");
            let create = ExportCreate {
                cores,
                ..export_of(&bench, name, name)
            };
            let view = bench.host.export_named(&create).expect("a volume");
            Guest::connect(&view.socket)
        });
        Asking {
            bench,
            guests,
            spent: Default::default(),
            looks: 0,
        }
    }

    /// The reactors of their rings.
    fn reactors(&self) -> [u16; 2] {
        ["a", "b"].map(|export| {
            let id = self.bench.host.state().exports[export].id;
            self.bench.host.engine.rings(id)[0].0.0
        })
    }

    /// Both guests go and come again.
    fn reconnect(mut self) -> Asking {
        let Asking { bench, guests, .. } = self;
        drop(guests);
        self.guests = ["a", "b"].map(|export| {
            let id = bench.host.state().exports[export].id;
            wait_until("its end", || bench.host.engine.rings(id).is_empty());
            Guest::connect(&bench.path(&format!("{export}.sock")))
        });
        self.bench = bench;
        self
    }

    /// A look at reactors that are busy for so much of a second, while each guest has a write under
    /// way. What was asked comes back wherever the ring is by then.
    fn look(&mut self, busy_ms: [u64; 2]) {
        self.looks += 1;
        let byte = self.looks;
        for guest in &mut self.guests {
            guest.begin_fill(4096, byte);
        }
        let mut loads = self.bench.host.engine.loads();
        for ((load, spent), busy_ms) in loads.iter_mut().zip(&mut self.spent).zip(busy_ms) {
            spent.0 += Duration::from_millis(busy_ms);
            spent.1 += Duration::from_millis(1000 - busy_ms);
            (load.times.busy, load.times.idle) = *spent;
        }
        self.bench.host.balance_by(&loads);
        for guest in &mut self.guests {
            guest.wait();
            assert_eq!(guest.read(4096), vec![byte; 4096]);
        }
    }

    /// Looks until a ring has left; one that did not leave in time is left alone for some.
    fn look_until_one_leaves(&mut self, busy_ms: [u64; 2]) {
        let before = self.reactors();
        for _ in 0..100 {
            self.look(busy_ms);
            if self.reactors() != before {
                return;
            }
        }
        panic!("no ring leaves");
    }
}

#[test]
fn a_ring_leaves_a_reactor_that_has_too_much_to_do_and_its_guest_goes_on() {
    let mut asking = Asking::new();
    assert_eq!(asking.reactors(), [0, 0]);
    for busy_ms in [[800, 0], [950, 600], [950, 600], [800, 0]] {
        asking.look(busy_ms);
        assert_eq!(asking.reactors(), [0, 0], "{busy_ms:?}");
    }
    asking.look_until_one_leaves([950, 50]);
    let after = asking.reactors();
    assert_eq!(after[0] + after[1], 1, "one of them is on the other");
    // Neither is beside another by now.
    for busy_ms in [[950, 50], [50, 950]] {
        asking.look(busy_ms);
        assert_eq!(asking.reactors(), after, "{busy_ms:?}");
    }
}

#[test]
fn a_queue_that_was_moved_is_there_when_its_guest_comes_again() {
    let mut asking = Asking::new();
    asking.look_until_one_leaves([950, 50]);
    let balanced = asking.reactors();
    let mut asking = asking.reconnect();
    assert_eq!(asking.reactors(), balanced);
    asking.look([0, 0]);
    // By command, and for all that comes: nobody moves it any more.
    let core = 1 - balanced[0];
    let to = QueueMove { queue: 0, core };
    asking.bench.host.move_queue("a", to).expect("moved");
    let mut asking = asking.reconnect();
    assert_eq!(asking.reactors(), [core, balanced[1]]);
    for _ in 0..3 {
        asking.look([950, 50]);
        assert_eq!(asking.reactors()[0], core);
    }
}
