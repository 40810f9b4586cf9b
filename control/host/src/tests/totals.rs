//! What guests did is counted for as long as the engine runs: also of guests that have gone, whose
//! rings nobody can ask any more.

use control::Engine;
use control::metrics::Samples;
use control::request::QueueMove;

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

fn writes(bench: &Bench) -> u64 {
    let view = bench.host.volume_named("v").expect("a volume");
    view.counters.writes_total
}

fn requests(bench: &Bench) -> u64 {
    let reactors = bench.host.status().reactors;
    reactors.iter().map(|reactor| reactor.requests_total).sum()
}

fn metric(bench: &Bench, name: &str) -> u64 {
    let metrics = bench.host.metrics();
    let metric = metrics.iter().find(|metric| metric.name == name);
    let Samples::Counters(samples) = &metric.expect("named").samples else {
        panic!("{name} counts");
    };
    samples.iter().map(|(_, value)| value).sum()
}

fn write(guest: Guest, blocks: u64) -> Guest {
    let guest = std::cell::RefCell::new(guest);
    for block in 0..blocks {
        guest.borrow_mut().write(8 * block);
        wait_until("an answer", || guest.borrow_mut().answer() == Some(0));
    }
    guest.into_inner()
}

#[test]
fn what_a_guest_did_is_counted_when_it_has_gone() {
    let bench = Bench::tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(&bench, "e", "v");
    let view = bench.host.export_named(&export).expect("a volume");
    let has_gone = || {
        let exports = bench.host.exports();
        exports[0].connections == 0 && exports[0].queues.is_empty()
    };
    let guest = write(Guest::connect(&view.socket), 3);
    assert_eq!(writes(&bench), 3);
    let before = requests(&bench);
    assert!(before >= 3, "{before}");
    drop(guest);
    wait_until("it goes", has_gone);
    assert_eq!(writes(&bench), 3, "they were written all the same");
    assert_eq!(metric(&bench, "volume_writes"), 3);
    assert_eq!(requests(&bench), before);
    // The next one's come to them, also when its ring moves to another reactor.
    let guest = write(Guest::connect(&view.socket), 2);
    assert_eq!(writes(&bench), 5);
    for core in [1, 0, 1] {
        let to = QueueMove { queue: 0, core };
        bench.host.move_queue("e", to).expect("it moves");
    }
    drop(write(guest, 1));
    wait_until("it goes", has_gone);
    assert_eq!(writes(&bench), 6);
    assert_eq!(requests(&bench), before + 3);
    // And they stay the volume's when the export is no more.
    bench.host.remove_export("e").expect("it is there");
    assert_eq!(writes(&bench), 6);
}

#[test]
fn what_guests_did_is_never_less_than_before_while_their_rings_move() {
    let bench = Bench::tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(&bench, "e", "v");
    let view = bench.host.export_named(&export).expect("a volume");
    let guest = write(Guest::connect(&view.socket), 100);
    let all = writes(&bench);
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| {
            for core in [1, 0].into_iter().cycle().take(2000) {
                let to = QueueMove { queue: 0, core };
                bench.host.move_queue("e", to).expect("it moves");
            }
        });
        while !moves.is_finished() {
            assert_eq!(writes(&bench), all);
            assert_eq!(metric(&bench, "volume_writes"), all);
        }
    });
    drop(write(guest, 1));
    wait_until("it goes", || bench.host.exports()[0].connections == 0);
    assert_eq!(writes(&bench), all + 1);
}
