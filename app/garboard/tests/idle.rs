//! The real program with many front-ends that ask for nothing: how often it wakes, what it takes of
//! a processor, and what of memory. The bounds are some ten times what was measured
//! (docs/numbers/reactors.md), so that a busy machine does not break them; a thread that looks
//! around every few milliseconds, or a queue that takes a megabyte, does.

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::Engine;
use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use units::{Clock, MonotonicClock};

const EXPORTS: usize = 16;
const QUEUES: u32 = 4;
const QUEUE_SIZE: u16 = 128;
/// Fewer descriptors than the engine needs for all of them.
const DESCRIPTORS: u64 = 256;
/// Version 1, event index, several queues, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 12 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
const REST: Duration = Duration::from_secs(4);
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// In a second.
const WAKE_UPS_MAX: u64 = 300;
/// Of 1000 of a core.
const SHARE_MAX: u64 = 100;
const RESIDENT_KIB_MAX: u64 = 256 << 10;

struct Ring {
    driver: Driver,
    bells: Bells,
}

/// A virtual machine, connected as long as it is there.
struct Guest {
    memory: Arc<Memory>,
    rings: Vec<Ring>,
    _front_end: FrontEnd,
}

impl Guest {
    fn connect(socket: &str) -> Guest {
        let memory = Arc::new(Memory::new(1 << 20).expect("memory"));
        let mut front_end = FrontEnd::connect(socket.as_ref()).expect("it listens");
        front_end.negotiate(FEATURES, PROTOCOL).expect("agreed");
        front_end.set_memory(&memory).expect("taken");
        let ring = |index| {
            let driver = Driver::new(&memory, Options::new(Layout::Split, QUEUE_SIZE));
            let bells = Bells::new().expect("bells");
            front_end
                .set_ring(index, &driver, 0, &bells)
                .expect("taken");
            front_end.enable(index, true).expect("enabled");
            Ring { driver, bells }
        };
        let rings = (0..QUEUES).map(ring).collect();
        Guest {
            memory,
            rings,
            _front_end: front_end,
        }
    }

    /// Reads a block through a ring, with a kick only if one is wanted.
    fn read(&mut self, ring: usize) {
        let (header, data) = (self.memory.allocate(16, 16), self.memory.allocate(513, 512));
        self.memory.write(header, &[0; 16]);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let parts = [part(header, 16, false), part(data, 513, true)];
        let Ring { driver, bells } = &mut self.rings[ring];
        driver.submit(&parts).expect("room");
        if driver.kick_wanted() {
            bells.kick.write(1).expect("kicked");
        }
        let begun = MonotonicClock.now();
        while driver.reap().is_none() {
            assert!(MonotonicClock.now().since(begun) < PATIENCE, "no answer");
            std::thread::yield_now();
        }
        assert_eq!(self.memory.read(data + 512, 1), [0], "answered well");
    }
}

/// What the engine's process has used so far: sleeps of its threads, and ticks of a processor.
fn used(engine: &Engine) -> (u64, u64) {
    let process = PathBuf::from(format!("/proc/{}", engine.id()));
    let tasks = fs::read_dir(process.join("task"))
        .expect("it runs")
        .flatten();
    // A thread may end while we look.
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let sleeps = statuses.filter_map(|text| number_of(&text, "voluntary_ctxt_switches:"));
    let stat = fs::read_to_string(process.join("stat")).expect("it runs");
    let (_, after_name) = stat.rsplit_once(')').expect("a name in brackets");
    let words: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .map_while(|word| word.parse().ok())
        .collect();
    (sleeps.sum(), words[0] + words[1])
}

fn number_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Starts an engine that is given few descriptors, and may take more.
fn start(folder: &std::path::Path) -> Engine {
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        ..before
    };
    setrlimit(Resource::Nofile, few).expect("less is always allowed");
    let engine = Engine::start(folder);
    setrlimit(Resource::Nofile, before).expect("it was so before");
    engine
}

#[test]
fn an_engine_whose_guests_rest_rests_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = start(folder.path());
    let specs: Vec<String> = (0..4).map(|_| "mem:256MiB".to_owned()).collect();
    engine.fill(&specs);
    let connect = |export| {
        let name = format!("v{export}");
        engine.json(&["volume", "create", &name, "--array", "a", "--size", "2MiB"]);
        let shown = engine.json(&[
            "export",
            "vhost",
            &name,
            "--queues",
            "4",
            "--queue-size",
            "128",
        ]);
        Guest::connect(shown["socket"].as_str().expect("a path"))
    };
    let mut guests: Vec<Guest> = (0..EXPORTS).map(connect).collect();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", engine.id())).expect("it runs");
    assert!(
        descriptors.count() > usize::try_from(DESCRIPTORS).expect("few"),
        "all guests are served because the engine takes what it may have"
    );

    // The look of the control path at what was just made is over.
    std::thread::park_timeout(Duration::from_secs(1));
    let (before, begun) = (used(&engine), MonotonicClock.now());
    std::thread::park_timeout(REST);
    let after = used(&engine);
    let took = u64::try_from(MonotonicClock.now().since(begun).as_millis()).expect("short");
    let wake_ups = (after.0 - before.0) * 1000 / took;
    // A tick is a hundredth of a second.
    let share = (after.1 - before.1) * 10 * 1000 / took;
    let status = fs::read_to_string(format!("/proc/{}/status", engine.id())).expect("it runs");
    let resident = number_of(&status, "VmRSS:").expect("Linux says so");
    println!("{wake_ups} wake-ups a second, {share} of 1000 of a core, {resident} KiB");
    assert!(wake_ups < WAKE_UPS_MAX, "{wake_ups} wake-ups a second");
    assert!(share < SHARE_MAX, "{share} of 1000 of a core");
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB are resident");

    // And wakes for each ring, be it the first to be kicked or one of many.
    for round in 0..3 {
        for (at, guest) in guests.iter_mut().enumerate() {
            for ring in 0..guest.rings.len() {
                guest.read((ring + at + round) % 4);
            }
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
