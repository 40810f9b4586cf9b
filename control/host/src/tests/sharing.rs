//! Volumes that share a reactor, as guests meet it. How long a request waits at the most is tested
//! without time (`engine/src/lines/tests.rs`, `array/src/lines/tests.rs`); here no burst is worked
//! off before another volume's request, and nothing is left behind.

use std::sync::Arc;
use std::time::Duration;

use control::Engine;
use control::request::{ExportCreate, QueueMove, VolumeLimit};
use drive::Fault;
use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};

use super::guests::Guest;
use super::limits::turns;
use super::{Bench, MIB, export_of, volume_of, wait_until};

/// Version 1, event index, several queues, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 12 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
const DEPTH: usize = 60;
const BYTES: u32 = 1 << 20;

/// A guest that writes a mebibyte with each of many requests.
struct Burst {
    memory: Arc<Memory>,
    driver: Driver,
    bells: Bells,
    _front_end: FrontEnd,
    header: u64,
    data: u64,
    status: u64,
    under_way: usize,
    sent: u64,
}

impl Burst {
    fn connect(bench: &Bench, export: &ExportCreate) -> Burst {
        let view = bench.host.export_named(export).expect("a volume");
        let memory = Arc::new(Memory::new(4 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, 256));
        let (header, data) = (
            memory.allocate(16 * DEPTH, 16),
            memory.allocate(1 << 20, 4096),
        );
        let status = memory.allocate(1, 1);
        let bells = Bells::new().expect("events");
        let mut front_end = FrontEnd::connect(&view.socket).expect("the engine listens");
        front_end.negotiate(FEATURES, PROTOCOL).expect("agreed");
        front_end.set_memory(&memory).expect("taken");
        front_end
            .set_ring(0, &driver, driver.base(), &bells)
            .expect("taken");
        front_end.enable(0, true).expect("enabled");
        Burst {
            memory,
            driver,
            bells,
            _front_end: front_end,
            header,
            data,
            status,
            under_way: 0,
            sent: 0,
        }
    }

    /// Asks until so many requests are under way.
    fn fill(&mut self, depth: usize) {
        while self.under_way < depth {
            let header = self.header + 16 * (self.sent % units::bytes_u64(DEPTH));
            self.memory.store_u32(header, 1);
            self.memory.store_u64(header + 8, self.sent % 32 * 2048);
            let part = |address, length, writable| Part {
                address,
                length,
                writable,
            };
            let parts = [
                part(header, 16, false),
                part(self.data, BYTES, false),
                part(self.status, 1, true),
            ];
            self.driver.submit(&parts).expect("room");
            self.under_way += 1;
            self.sent += 1;
        }
        self.bells.kick.write(1).expect("kicked");
    }

    /// How many were answered since it was asked last.
    fn answered(&mut self) -> usize {
        let mut count = 0;
        while self.driver.reap().is_some() {
            assert_eq!(self.memory.read(self.status, 1), [0], "answered well");
            count += 1;
        }
        self.under_way -= count;
        count
    }

    fn finish(&mut self) {
        let burst = std::cell::RefCell::new(self);
        wait_until("all answers of the burst", || {
            burst.borrow_mut().answered();
            burst.borrow().under_way == 0
        });
    }
}

/// Volumes `v` and `w` of one array, one export of each on the first reactor.
fn side_by_side() -> (Bench, Burst, Guest) {
    let bench = Bench::tank();
    for name in ["v", "w"] {
        let volume = volume_of(name, "tank", 32 * MIB);
        bench.host.create_volume(&volume).expect("room");
    }
    let on_first = |name, volume| ExportCreate {
        cores: vec![0],
        ..export_of(&bench, name, volume)
    };
    let burst = Burst::connect(&bench, &on_first("burst", "v"));
    let create = on_first("small", "w");
    let view = bench.host.export_named(&create).expect("a volume");
    let small = Guest::connect(&view.socket);
    (bench, burst, small)
}

#[test]
fn a_small_write_does_not_wait_for_a_burst_of_another_volume() {
    let (_bench, mut burst, mut small) = side_by_side();
    let mut least = DEPTH;
    for _ in 0..20 {
        burst.finish();
        burst.fill(DEPTH);
        small.write(8);
        let mut before = 0;
        while small.answer().is_none() {
            before += burst.answered();
        }
        // When this thread did not run for a while, more were answered that did not go before.
        least = least.min(before);
    }
    assert!(least <= 8, "{least} MiB of the burst went first");
    burst.finish();
}

#[test]
fn a_burst_goes_on_while_its_export_moves_is_limited_and_others_go() {
    let (bench, mut burst, mut small) = side_by_side();
    burst.fill(DEPTH);
    let to = QueueMove { queue: 0, core: 1 };
    bench.host.move_queue("burst", to).expect("moved");
    small.fill(8, 1);
    burst.finish();
    burst.fill(DEPTH);
    let back = QueueMove { queue: 0, core: 0 };
    bench.host.move_queue("burst", back).expect("moved");
    let slow = VolumeLimit {
        iops: Some(1),
        burst_ms: Some(1),
        ..VolumeLimit::default()
    };
    bench.host.limit_named("v", &slow).expect("limited");
    small.fill(16, 2);
    let unlimited = VolumeLimit::default();
    bench
        .host
        .limit_named("v", &unlimited)
        .expect("not limited");
    bench.host.remove_export("small").expect("removed");
    burst.finish();
    // Whoever comes now finds nothing of what was.
    let create = ExportCreate {
        cores: vec![0],
        ..export_of(&bench, "again", "w")
    };
    let view = bench.host.export_named(&create).expect("a volume");
    let mut again = Guest::connect(&view.socket);
    burst.fill(DEPTH);
    again.fill(24, 3);
    assert_eq!(again.read(16), [2; 4096]);
    burst.finish();
}

#[test]
fn a_reactor_sleeps_while_its_drives_have_all_that_a_volume_may_have_under_way() {
    let (bench, mut burst, mut small) = side_by_side();
    for name in ["one", "two", "three"] {
        bench.inject(name, Fault::Delay(Duration::from_millis(500)));
    }
    burst.fill(DEPTH);
    std::thread::park_timeout(Duration::from_millis(50));
    let before = turns(&bench);
    std::thread::park_timeout(Duration::from_millis(200));
    let during = turns(&bench) - before;
    assert!(during < 300, "{during} turns");
    for drive in bench.host.state().drives.values() {
        drive.drive.clear_faults();
    }
    burst.finish();
    small.fill(8, 1);
}
