//! `iops`: a whole engine with one reactor on one CPU, and one polling client on another, through a
//! real vhost-user-blk socket. Prints thousands of requests per second and the server core's time
//! for each: that of its turns with work. Compare lines of one run with each other, never two runs.
//! `iops memory:5:read:4096:32...` measures what it names, in that order; without, all. With
//! `:stable` behind it, the guest promises not to change what it writes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

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
use units::{Clock, MonotonicClock};
use uuid::Uuid;
use vhost_user_blk::feature;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Writes, one after the other and not at random.
    Stream,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Stream => "stream",
        }
    }
}

/// What one line measures.
#[derive(Clone, Copy)]
struct Case {
    drives: &'static str,
    level: Level,
    kind: Kind,
    bytes: usize,
    depth: usize,
    /// The guest leaves alone what it writes.
    stable: bool,
}

fn main() {
    println!(
        "{:<8} {:<6} {:<6} {:>9} {:>6} {:>10} {:>8}",
        "drives", "level", "kind", "bytes", "depth", "k/s", "core ns"
    );
    let case = |drives, level, write, bytes, depth| Case {
        drives,
        level,
        kind: if write { Kind::Write } else { Kind::Read },
        bytes,
        depth,
        stable: false,
    };
    let cases = [
        case("null", Level::Raid0, false, 4096, 1),
        case("null", Level::Raid0, false, 4096, 32),
        case("null", Level::Raid5, false, 4096, 32),
        case("null", Level::Raid5, true, 4096, 32),
        case("memory", Level::Raid5, false, 4096, 1),
        case("memory", Level::Raid5, false, 4096, 32),
        case("memory", Level::Raid5, true, 4096, 32),
        case("memory", Level::Raid6, true, 4096, 32),
        case("memory", Level::Raid5, true, 262_144, 8),
        case("memory", Level::Raid5, false, 131_072, 16),
    ];
    let named: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<Case> = if named.is_empty() {
        cases.to_vec()
    } else {
        named.iter().map(|name| parse(name)).collect()
    };
    for case in asked {
        let (rate, core) = measure(&case);
        let kind = case.kind.name();
        println!(
            "{:<8} {:<6} {:<6} {:>9} {:>6} {:>10.1} {:>8.0}",
            case.drives,
            case.level,
            if case.stable { "stable" } else { kind },
            case.bytes,
            case.depth,
            rate / 1000.0,
            core
        );
    }
}

/// A case by its name: drives, level, kind, bytes and depth with colons between; the kind
/// `stream` writes in order.
fn parse(name: &str) -> Case {
    let words: Vec<&str> = name.split(':').collect();
    let [drives, level, kind, bytes, depth, more @ ..] = words.as_slice() else {
        panic!("{name}: drives:level:kind:bytes:depth[:stable]");
    };
    Case {
        drives: if *drives == "null" { "null" } else { "memory" },
        level: level.parse().expect("a level"),
        kind: match *kind {
            "read" => Kind::Read,
            "write" => Kind::Write,
            "stream" => Kind::Stream,
            other => panic!("{other}: read, write or stream"),
        },
        bytes: bytes.parse().expect("bytes"),
        depth: depth.parse().expect("a depth"),
        stable: more == ["stable"],
    }
}

/// Requests per second, and nanoseconds of the server's core for each.
fn measure(case: &Case) -> (f64, f64) {
    let folder = std::env::temp_dir().join(format!("garboard-iops-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let engine = host::Host::start(&EngineSettings {
        cores: vec![0],
        memory_bytes: None,
        poll: Poll::Always,
        runtime_dir: folder.clone(),
        state_dir: folder.clone(),
    })
    .expect("an engine");
    let socket = folder.join("e.sock");
    export(&*engine, case, &socket);
    // Memory that was never touched costs a page fault for each first use.
    let fill = Case {
        kind: Kind::Write,
        bytes: 262_144,
        depth: 8,
        ..*case
    };
    // The array's first pass would be measured with it.
    while engine
        .jobs()
        .iter()
        .any(|job| job.state == JobState::Running)
    {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let busy = || engine.status().reactors[0].busy_time_us_total;
    drive(&fill, &socket, Some((128 << 20) / 262_144), &busy);
    let rate = drive(case, &socket, None, &busy);
    engine.shutdown().expect("stops");
    std::fs::remove_dir_all(&folder).expect("removed");
    rate
}

fn export(engine: &dyn Engine, case: &Case, socket: &std::path::Path) {
    let size_bytes = 256 << 20;
    let names: Vec<String> = (0..5).map(|number| format!("d{number}")).collect();
    for name in &names {
        let spec = match case.drives {
            "null" => DriveSpec::Null { size_bytes },
            _ => DriveSpec::Memory { size_bytes },
        };
        let add = DriveAdd {
            name: name.clone(),
            uuid: Uuid::new_v4(),
            spec,
        };
        engine.add_drive(&add).expect("a drive");
    }
    let create = ArrayCreate {
        name: "a".to_owned(),
        uuid: Uuid::new_v4(),
        level: case.level,
        drives: names,
        options: ArrayOptions::default(),
        force: false,
    };
    engine.create_array(&create).expect("an array");
    let volume = VolumeCreate {
        name: "v".to_owned(),
        uuid: Uuid::new_v4(),
        array: "a".to_owned(),
        size_bytes: 128 << 20,
        stable_buffers: case.stable,
    };
    let volume = engine.create_volume(&volume).expect("a volume");
    let export = ExportCreate {
        name: "e".to_owned(),
        uuid: Uuid::new_v4(),
        volume: "v".to_owned(),
        socket: ExportSocket {
            path: socket.to_owned(),
            owner: None,
            group: None,
            mode: 0o600,
        },
        wishes: ExportWishes {
            queues: Some(1),
            queue_size: Some(512),
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

/// Keeps `depth` requests in flight: at random for a second after a warm-up, or in order until
/// `count` are answered.
#[allow(
    clippy::too_many_lines,
    reason = "a client's loop over its own state, nothing of which is used elsewhere"
)]
fn drive(
    case: &Case,
    socket: &std::path::Path,
    count: Option<u64>,
    busy: &impl Fn() -> u64,
) -> (f64, f64) {
    let memory = Arc::new(Memory::new(64 << 20).expect("memory"));
    let mut driver = Driver::new(&memory, Options::new(Layout::Split, 512));
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
    let places: Vec<(u64, u64, u64)> = (0..case.depth)
        .map(|_| {
            (
                memory.allocate(16, 16),
                memory.allocate(case.bytes, 4096),
                memory.allocate(1, 1),
            )
        })
        .collect();
    let mut free: Vec<usize> = (0..case.depth).collect();
    let mut owner = vec![0; 512];
    let sectors = (128 << 20) / 512;
    let unit = units::bytes_u64(case.bytes) / 512;
    let mut chance = 1u64;
    let (mut sent, mut done, mut looks) = (0u64, 0u64, 0u64);
    let clock = MonotonicClock;
    let warm = clock.now() + Duration::from_millis(200);
    let mut begun = None;
    loop {
        while count.is_none_or(|count| sent < count)
            && let Some(slot) = free.pop()
        {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (header, data, status) = places[slot];
            memory.store_u32(header, u32::from(case.kind != Kind::Read));
            // A status that nobody writes is no answer.
            memory.store_u8(status, 0xAA);
            let place = if count.is_some() || case.kind == Kind::Stream {
                sent
            } else {
                chance >> 20
            };
            sent += 1;
            memory.store_u64(header + 8, place % (sectors / unit) * unit);
            let length = u32::try_from(case.bytes).expect("small");
            let parts = [
                Part {
                    address: header,
                    length: 16,
                    writable: false,
                },
                Part {
                    address: data,
                    length,
                    writable: case.kind == Kind::Read,
                },
                Part {
                    address: status,
                    length: 1,
                    writable: true,
                },
            ];
            let token = driver.submit(&parts).expect("the ring has room");
            owner[usize::from(token.0)] = slot;
        }
        while let Some(used) = driver.reap() {
            let slot = owner[usize::from(used.token.0)];
            assert_eq!(memory.load_u8(places[slot].2), 0, "answered well");
            free.push(slot);
            done += 1;
        }
        if count.is_some_and(|count| done >= count) && free.len() == case.depth {
            return (0.0, 0.0);
        }
        if count.is_some_and(|count| sent >= count) {
            continue;
        }
        // The clock costs as much as a request.
        looks += 1;
        if looks % 64 != 0 {
            continue;
        }
        let now = clock.now();
        match begun {
            None if count.is_none() && now >= warm => {
                begun = Some((now, busy()));
                done = 0;
            }
            Some((begun, spent)) if count.is_none() && now.since(begun).as_secs() >= 1 => {
                let spent = Duration::from_micros(busy() - spent).as_secs_f64();
                #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
                let done = done as f64;
                return (done / now.since(begun).as_secs_f64(), spent * 1e9 / done);
            }
            None | Some(_) => {}
        }
    }
}
