//! `beside`: what one volume costs another on the same reactor. A whole engine with one reactor on
//! one CPU; on another, one thread that polls two clients: A keeps many large requests in flight,
//! B one small one. B alone, A alone, then both. Compare the columns of one line, never two runs.
//! `beside memory:write:1048576:256:write:4096:1...`: drives, then kind, bytes and depth of A and
//! of B.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::Engine;
use control::request::{
    ArrayCreate, ArrayOptions, DriveAdd, DriveSpec, ExportCreate, ExportSocket, ExportWishes,
    Level, VolumeCreate,
};
use control::settings::{EngineSettings, Poll};
use control::view::{Access, GuestMemory, JobState, Sharing};
use guest::front_end::{Bells, FrontEnd, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use units::{Clock, Instant, MonotonicClock};
use uuid::Uuid;
use vhost_user_blk::feature;

const DRIVE_BYTES: u64 = 512 << 20;
const VOLUME_BYTES: u64 = 256 << 20;
const RING: u16 = 1024;
/// Buffers of a client, used in turn.
const BUFFERS: usize = 32;
const WARM: Duration = Duration::from_millis(500);
const SPELL: Duration = Duration::from_secs(2);

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
struct Load {
    write: bool,
    bytes: usize,
    depth: usize,
}

fn main() {
    let cases = [
        "memory:write:1048576:256:write:4096:1",
        "memory:write:1048576:256:read:4096:1",
        "memory:read:1048576:256:read:4096:1",
        "memory:write:65536:256:write:4096:1",
        "null:write:1048576:256:write:4096:1",
    ];
    let named: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<String> = if named.is_empty() {
        cases.map(str::to_owned).to_vec()
    } else {
        named
    };
    println!("A and B; B alone: us p50 p99; beside A: us p50 p99; A alone, beside B: MB/s");
    for name in asked {
        let words: Vec<&str> = name.split(':').collect();
        let [drives, a_kind, a_bytes, a_depth, b_kind, b_bytes, b_depth] = words.as_slice() else {
            panic!("{name}: drives:kind:bytes:depth:kind:bytes:depth");
        };
        let load = |kind: &str, bytes: &str, depth: &str| Load {
            write: kind == "write",
            bytes: bytes.parse().expect("bytes"),
            depth: depth.parse().expect("a depth"),
        };
        let loads = [
            load(a_kind, a_bytes, a_depth),
            load(b_kind, b_bytes, b_depth),
        ];
        measure(&name, drives, loads);
    }
}

fn measure(name: &str, drives: &str, loads: [Load; 2]) {
    let folder = std::env::temp_dir().join(format!("garboard-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let engine = host::Host::start(&EngineSettings {
        cores: vec![0],
        memory_bytes: None,
        poll: Poll::Always,
        runtime_dir: folder.clone(),
        state_dir: folder.clone(),
    })
    .expect("an engine");
    let sockets = ["a", "b"].map(|name| folder.join(name));
    set_up(&*engine, drives, &sockets);
    // Memory that was never touched costs a page fault for each first use.
    let fill = Load {
        write: true,
        bytes: 1 << 20,
        depth: 8,
    };
    for socket in &sockets {
        let mut filler = Client::new(socket, fill);
        while filler.sent < 2 * (VOLUME_BYTES >> 20) {
            filler.turn();
        }
        filler.finish();
    }
    let mut clients = [0, 1].map(|at| Client::new(&sockets[at], loads[at]));
    let both = [true, true];
    let [_, b_alone] = run(&mut clients, [false, true]);
    let [a_alone, _] = run(&mut clients, [true, false]);
    let [a_beside, b_beside] = run(&mut clients, both);
    println!(
        "{name}: B {:.1} {:.1}; {:.1} {:.1} (x {:.0}, n {}); A {:.0} {:.0} (x {:.2})",
        b_alone.p50,
        b_alone.p99,
        b_beside.p50,
        b_beside.p99,
        b_beside.p50 / b_alone.p50,
        b_beside.count,
        a_alone.rate,
        a_beside.rate,
        a_beside.rate / a_alone.rate
    );
    drop(clients);
    engine.shutdown().expect("stops");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// What a client got.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    count: usize,
    p50: f64,
    p99: f64,
    rate: f64,
}

/// Those who take part, for a while; all is answered at the end.
fn run(clients: &mut [Client; 2], takes_part: [bool; 2]) -> [Found; 2] {
    let clock = MonotonicClock;
    let turn_until = |clients: &mut [Client; 2], end: Instant| {
        while clock.now() < end {
            for (client, takes_part) in clients.iter_mut().zip(takes_part) {
                if takes_part {
                    client.turn();
                }
            }
        }
    };
    turn_until(clients, clock.now() + WARM);
    for client in clients.iter_mut() {
        client.times.clear();
    }
    let begun = clock.now();
    turn_until(clients, begun + SPELL);
    let seconds = clock.now().since(begun).as_secs_f64();
    let found = [0, 1].map(|at| clients[at].found(seconds));
    for client in clients.iter_mut() {
        client.finish();
    }
    found
}

/// A guest with one ring.
struct Client {
    load: Load,
    memory: Arc<Memory>,
    driver: Driver,
    _front_end: FrontEnd,
    _bells: Bells,
    /// By place: header, data, status.
    places: Vec<(u64, u64, u64)>,
    free: Vec<usize>,
    /// By token: the place, and when it was asked.
    asked: Vec<(usize, Instant)>,
    chance: u64,
    sent: u64,
    times: Vec<u64>,
}

impl Client {
    fn new(socket: &Path, load: Load) -> Client {
        let buffers = BUFFERS.min(load.depth);
        let room = (8 << 20) + (buffers + 1) * load.bytes;
        let memory = Arc::new(Memory::new(room).expect("memory"));
        let mut driver = Driver::new(&memory, Options::new(Layout::Split, RING));
        let bells = Bells::new().expect("events");
        let mut front_end = FrontEnd::connect(socket).expect("connects");
        let wanted =
            feature::VERSION_1 | feature::EVENT_IDX | feature::FLUSH | feature::PROTOCOL_FEATURES;
        let wanted_protocol = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
        front_end
            .negotiate(wanted, wanted_protocol)
            .expect("negotiates");
        front_end.set_memory(&memory).expect("memory is known");
        front_end.set_ring(0, &driver, 0, &bells).expect("a ring");
        front_end.enable(0, true).expect("enabled");
        driver.disable_calls();
        let data: Vec<u64> = (0..buffers)
            .map(|_| memory.allocate(load.bytes, 4096))
            .collect();
        let places = (0..load.depth)
            .map(|at| {
                let (header, status) = (memory.allocate(16, 16), memory.allocate(1, 1));
                (header, data[at % buffers], status)
            })
            .collect();
        Client {
            load,
            memory,
            driver,
            _front_end: front_end,
            _bells: bells,
            places,
            free: (0..load.depth).collect(),
            asked: vec![(0, Instant(0)); usize::from(RING)],
            chance: 1,
            sent: 0,
            times: Vec::with_capacity(1 << 22),
        }
    }

    /// Asks for as much as may be in flight, and takes what is answered.
    fn turn(&mut self) {
        while let Some(place) = self.free.pop() {
            self.ask(place);
        }
        self.reap();
    }

    fn finish(&mut self) {
        while self.free.len() < self.load.depth {
            self.reap();
        }
    }

    fn ask(&mut self, place: usize) {
        let (header, data, status) = self.places[place];
        let random = self.chance.wrapping_mul(6_364_136_223_846_793_005);
        self.chance = random.wrapping_add(1);
        let unit = units::bytes_u64(self.load.bytes) / 512;
        let at = (self.chance >> 20) % (VOLUME_BYTES / 512 / unit) * unit;
        self.memory.store_u32(header, u32::from(self.load.write));
        self.memory.store_u64(header + 8, at);
        // A status that nobody writes is no answer.
        self.memory.store_u8(status, 0xAA);
        self.sent += 1;
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let length = u32::try_from(self.load.bytes).expect("small");
        let parts = [
            part(header, 16, false),
            part(data, length, !self.load.write),
            part(status, 1, true),
        ];
        let now = MonotonicClock.now();
        let token = self.driver.submit(&parts).expect("the ring has room");
        self.asked[usize::from(token.0)] = (place, now);
    }

    fn reap(&mut self) {
        while let Some(used) = self.driver.reap() {
            let (place, begun) = self.asked[usize::from(used.token.0)];
            let took = MonotonicClock.now().0 - begun.0;
            let status = self.memory.load_u8(self.places[place].2);
            assert_eq!(status, 0, "answered well");
            self.free.push(place);
            self.times.push(took);
        }
    }

    fn found(&mut self, seconds: f64) -> Found {
        if self.times.is_empty() {
            return Found::default();
        }
        self.times.sort_unstable();
        let count = self.times.len();
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let of = |hundredth: usize| self.times[(count - 1) * hundredth / 100] as f64 / 1000.0;
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let rate = (count * self.load.bytes) as f64 / seconds / 1e6;
        Found {
            count,
            p50: of(50),
            p99: of(99),
            rate,
        }
    }
}

fn set_up(engine: &dyn Engine, drives: &str, sockets: &[std::path::PathBuf; 2]) {
    let names: Vec<String> = (0..5).map(|number| format!("d{number}")).collect();
    for name in &names {
        let size_bytes = DRIVE_BYTES;
        let spec = if drives == "null" {
            DriveSpec::Null { size_bytes }
        } else {
            DriveSpec::Memory { size_bytes }
        };
        let add = DriveAdd {
            name: name.clone(),
            uuid: Uuid::new_v4(),
            spec,
        };
        engine.add_drive(&add).expect("a drive");
    }
    let create = ArrayCreate {
        name: "array".to_owned(),
        uuid: Uuid::new_v4(),
        level: Level::Raid5,
        drives: names,
        options: ArrayOptions::default(),
        force: false,
    };
    engine.create_array(&create).expect("an array");
    for (name, socket) in ["a", "b"].into_iter().zip(sockets) {
        let volume = VolumeCreate {
            name: name.to_owned(),
            uuid: Uuid::new_v4(),
            array: "array".to_owned(),
            size_bytes: VOLUME_BYTES,
            stable_buffers: false,
        };
        let volume = engine.create_volume(&volume).expect("a volume");
        let export = ExportCreate {
            name: name.to_owned(),
            uuid: Uuid::new_v4(),
            volume: name.to_owned(),
            socket: ExportSocket {
                path: socket.clone(),
                owner: None,
                group: None,
                mode: 0o600,
            },
            wishes: ExportWishes {
                queues: Some(1),
                queue_size: Some(RING),
                block_bytes: None,
                serial: "bench".to_owned(),
            },
            profile: None,
            cores: Vec::new(),
            access: Access::ReadWrite,
            sharing: Sharing::Exclusive,
            guest_memory: GuestMemory::Unpinned,
        };
        engine
            .create_export(&export, &volume.key())
            .expect("an export");
    }
    let is_running = |engine: &dyn Engine| {
        let jobs = engine.jobs();
        jobs.iter().any(|job| job.state == JobState::Running)
    };
    while is_running(engine) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
