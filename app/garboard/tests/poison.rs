//! The real program with a planted panic: a request that ends the engine every time it is done
//! again holds back its own export and nobody else's.

mod common;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::{Engine, files};
use guest::front_end::{Bells, FrontEnd, InflightMemory, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use rustix::process::Signal;
use units::{Clock, MonotonicClock};

const QUEUE_SIZE: u16 = 16;
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::REPLY_ACK | protocol::INFLIGHT_SHMFD;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A virtual machine with one ring, whose memory outlives the engine.
struct Guest {
    socket: PathBuf,
    memory: Arc<Memory>,
    driver: Driver,
    bells: Bells,
    inflight: Option<InflightMemory>,
    front_end: Option<FrontEnd>,
    statuses: Vec<u64>,
}

impl Guest {
    fn new(engine: &Engine, export: &str) -> Guest {
        let shown = engine.json(&["export", "show", export]);
        let memory = Arc::new(Memory::new(4 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, QUEUE_SIZE));
        Guest {
            socket: shown["socket"].as_str().expect("a path").into(),
            memory,
            driver,
            bells: Bells::new().expect("bells"),
            inflight: None,
            front_end: None,
            statuses: Vec::new(),
        }
    }

    /// What a virtual machine monitor does once a second while it has no back-end.
    fn connect(&mut self) -> io::Result<()> {
        let mut front_end = FrontEnd::connect(&self.socket)?;
        front_end.negotiate(FEATURES, PROTOCOL)?;
        front_end.set_memory(&self.memory)?;
        if self.inflight.is_none() {
            self.inflight = Some(front_end.make_inflight(1, QUEUE_SIZE)?);
        }
        front_end.set_inflight(self.inflight.as_ref().expect("made"))?;
        front_end.set_ring(0, &self.driver, self.driver.base(), &self.bells)?;
        front_end.enable(0, true)?;
        self.front_end = Some(front_end);
        Ok(())
    }

    /// Makes a write of one sector available.
    fn write(&mut self, sector: u64) {
        let header = self.memory.allocate(16, 16);
        let data = self.memory.allocate(512, 512);
        let status = self.memory.allocate(1, 1);
        self.memory.write(header, &1u32.to_le_bytes());
        self.memory.write(header + 8, &sector.to_le_bytes());
        self.memory.write(status, &[0xAA]);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let parts = [
            part(header, 16, false),
            part(data, 512, false),
            part(status, 1, true),
        ];
        self.driver.submit(&parts).expect("room");
        self.statuses.push(status);
        // Whether it is wanted or not: it may be for another engine.
        self.bells.kick.write(1).expect("kicked");
    }

    /// Waits until everything is answered; all must be well.
    fn finish(&mut self) {
        let begun = MonotonicClock.now();
        while self.driver.in_flight() > 0 {
            while self.driver.reap().is_some() {}
            assert!(MonotonicClock.now().since(begun) < PATIENCE, "no answer");
            std::thread::park_timeout(Duration::from_millis(5));
        }
        for status in self.statuses.drain(..) {
            assert_eq!(self.memory.read(status, 1), [0], "the guest sees no error");
        }
    }
}

/// Two arrays `a` and `b` of three drives; volumes and exports `poison` and `near` on `a`, `far` on
/// `b`.
fn prepare(engine: &Engine, folder: &std::path::Path) {
    for (number, spec) in files(folder, 6).iter().enumerate() {
        engine.json(&["drive", "add", spec, "--name", &format!("d{number}")]);
    }
    for (array, drives) in [("a", "d0,d1,d2"), ("b", "d3,d4,d5")] {
        engine.json(&[
            "array", "create", array, "--level", "5", "--drives", drives, "--wait",
        ]);
    }
    for (volume, array) in [("poison", "a"), ("near", "a"), ("far", "b")] {
        engine.json(&[
            "volume", "create", volume, "--array", array, "--size", "16MiB",
        ]);
        engine.json(&["export", "vhost", volume, "--queues", "1"]);
    }
}

fn state(engine: &Engine, export: &str) -> String {
    let shown = engine.json(&["export", "show", export]);
    shown["state"].as_str().expect("a text").to_owned()
}

/// Lets the guest's request end one engine after another; gives back the one that serves the
/// others only.
fn crash_three_times(mut engine: Engine, guest: &mut Guest, fault: &str) -> Engine {
    for crash in 0..3 {
        // The request ends the engine as soon as it is taken up again, perhaps within `connect`.
        let connected = guest.connect();
        if crash == 0 {
            connected.expect("connected");
            guest.write(0);
            guest.finish();
            guest.write(array::planted::POISON_SECTOR);
        }
        let folder = engine.folder().to_owned();
        let status = engine.wait();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(Signal::ABORT.as_raw()),
            "crash {crash}: {status}"
        );
        guest.front_end = None;
        engine = Engine::start_with(&folder, &[("GARBOARD_PLANTED", fault)]);
    }
    engine
}

#[test]
fn a_request_that_kills_the_engine_again_and_again_holds_back_its_export_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let fault = "PoisonedRequest";
    let engine = Engine::start_with(folder.path(), &[("GARBOARD_PLANTED", fault)]);
    prepare(&engine, folder.path());
    let mut poison = Guest::new(&engine, "poison");
    let (mut near, mut far) = (Guest::new(&engine, "near"), Guest::new(&engine, "far"));

    let engine = crash_three_times(engine, &mut poison, fault);
    assert_eq!(state(&engine, "poison"), "held");
    for (guest, name) in [(&mut near, "near"), (&mut far, "far")] {
        guest.connect().expect("served");
        guest.write(8);
        guest.finish();
        assert_eq!(state(&engine, name), "connected");
    }
    // Nobody answers: the front-end tries again, and its guest waits.
    let error = poison.connect().expect_err("held back");
    assert!(
        matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ),
        "{error}"
    );
    let shown = engine.json(&["export", "show", "poison"]);
    let cause = shown["cause"].as_str().expect("a cause");
    assert!(
        cause.contains("3 times") && cause.contains("a planted panic"),
        "{cause}"
    );
    for said in [engine.says(&["status"]).1, engine.says(&["doctor"]).0] {
        assert!(said.contains("garboard export resume poison"), "{said}");
    }
    let metrics = engine.metrics();
    assert!(
        metrics.contains("garboard_export_held{export=\"poison\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("garboard_export_held{export=\"near\"} 0"),
        "{metrics}"
    );
    let beside = ["export", "vhost", "poison", "--name", "second"];
    assert_eq!(engine.refused(&beside)["code"], "busy");

    // It stays so, also after a clean end.
    let path = engine.folder().to_owned();
    assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    let engine = Engine::start_with(&path, &[("GARBOARD_PLANTED", fault)]);
    assert_eq!(state(&engine, "poison"), "held");
    assert_eq!(state(&engine, "near"), "waiting");

    // Without the fault it can go on, and its guest has seen nothing but a pause.
    assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    let engine = Engine::start(&path);
    assert_eq!(state(&engine, "poison"), "held");
    engine.json(&["export", "resume", "poison"]);
    assert_eq!(
        engine.refused(&["export", "resume", "poison"])["code"],
        "invalid"
    );
    poison.connect().expect("served again");
    poison.finish();
    assert_eq!(state(&engine, "poison"), "connected");
}

#[test]
fn a_request_that_kills_the_engine_inside_the_array_holds_back_that_arrays_exports() {
    let folder = tempfile::tempdir().expect("a folder");
    let fault = "PoisonedTicket";
    let engine = Engine::start_with(folder.path(), &[("GARBOARD_PLANTED", fault)]);
    prepare(&engine, folder.path());
    let mut poison = Guest::new(&engine, "poison");
    let mut far = Guest::new(&engine, "far");

    let engine = crash_three_times(engine, &mut poison, fault);
    assert_eq!(state(&engine, "poison"), "held");
    assert_eq!(state(&engine, "near"), "held");
    assert_eq!(state(&engine, "far"), "waiting");
    far.connect().expect("served");
    far.write(8);
    far.finish();
    // One by one they can be tried again.
    engine.json(&["export", "resume", "near"]);
    assert_eq!(state(&engine, "near"), "waiting");
    assert_eq!(state(&engine, "poison"), "held");
    let mut near = Guest::new(&engine, "near");
    near.connect().expect("served");
    near.write(8);
    near.finish();
}

#[test]
fn a_request_that_is_a_fault_and_no_panic_holds_back_its_export_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let fault = "PoisonedStack";
    let engine = Engine::start_with(folder.path(), &[("GARBOARD_PLANTED", fault)]);
    prepare(&engine, folder.path());
    let mut poison = Guest::new(&engine, "poison");
    let engine = crash_three_times(engine, &mut poison, fault);
    assert_eq!(state(&engine, "poison"), "held");
    assert_eq!(state(&engine, "near"), "waiting");
    let shown = engine.json(&["export", "show", "poison"]);
    let cause = shown["cause"].as_str().expect("a cause");
    assert!(cause.contains("a fault: signal 11"), "{cause}");
}

#[test]
fn an_engine_that_is_killed_holds_nobody_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = Engine::start(folder.path());
    prepare(&engine, folder.path());
    let mut guest = Guest::new(&engine, "poison");
    for round in 0..4 {
        guest.connect().expect("served");
        guest.write(round * 512);
        engine.end(Signal::KILL);
        guest.front_end = None;
        engine = Engine::start(folder.path());
    }
    guest.connect().expect("served");
    guest.finish();
    assert_eq!(state(&engine, "poison"), "connected");
}
