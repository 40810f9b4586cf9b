//! Stripes and rings follow the load, while guests write.

use control::request::{ExportCreate, QueueMove};
use units::limits::BUCKETS;
use units::{ArrayIndex, ReactorIndex};

use super::guests::Guest;
use super::*;

/// Buckets of the only array that a reactor owns.
fn share(bench: &Bench, reactor: u16) -> usize {
    let owners = bench.host.engine.owners(ArrayIndex(0));
    owners.expect("it runs").share(ReactorIndex(reactor))
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
        bench.host.do_look_at_load();
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
        bench.host.do_look_at_load();
        bench.host.do_look_at_load();
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

#[test]
fn an_array_that_cannot_give_stripes_away_is_left_alone_for_a_while() {
    let bench = Bench::tank();
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let view = bench.host.export_named(&export_of(&bench, "e", "v"));
    let mut guest = Guest::connect(&view.expect("a volume").socket);
    bench.host.do_look_at_load();
    // What is under way on a stripe of the second reactor does not end.
    bench.inject(
        "two",
        drive::Fault::Delay(std::time::Duration::from_millis(700)),
    );
    guest.write(2048);
    wait_until("the write to begin", || {
        let state = bench.host.engine.array_state(ArrayIndex(0));
        state.expect("it runs").pending > 0
    });
    let mut looks = 0;
    loop {
        pretend_that_it_asks(&bench);
        bench.host.do_look_at_load();
        if guest.answer().is_some() {
            break;
        }
        looks += 1;
        assert_eq!(share(&bench, 1), BUCKETS / 2, "it keeps them");
    }
    assert!(looks > 20, "few of {looks} wait for the drive");
    bench.host.state().drives["two"].drive.clear_faults();
    for _ in 0..20 {
        pretend_that_it_asks(&bench);
        bench.host.do_look_at_load();
    }
    assert_eq!(share(&bench, 0), BUCKETS);
    guest.fill(2048, 3);
    assert_eq!(guest.read(2048), vec![3; 4096]);
}

/// The balance counts answers only, so it is told that there were some.
fn pretend_that_it_asks(bench: &Bench) {
    let mut balance = bench.host.balance.lock().expect("nothing panics under it");
    balance.pretend(ArrayIndex(0));
}
