//! A front-end that says anything: vhost-user messages in any order, with descriptors of any kind.
//! Each input is one connection to a session that lives on, and that must still greet an honest
//! front-end afterwards.
#![no_main]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use guest::Memory;
use guest::front_end::{Bells, FrontEnd, message};
use libfuzzer_sys::fuzz_target;
use memory::RegionTable;
use units::BlockSize;
use vhost_user_blk::{
    Access, CacheMode, Event, Host, MemoryChange, Profile, Queue, QueueKey, Session, SessionEvent,
    SessionHandle, Settings, Sharing, SocketSettings,
};

/// A version that no back-end speaks: ends the connection.
const WRONG: u32 = 2;

/// Keeps queues, and never polls one.
#[derive(Default)]
struct Shelf(Mutex<BTreeMap<QueueKey, Queue>>);

impl Shelf {
    fn with(&self, key: QueueKey, act: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.0.lock().expect("no panic").get_mut(&key) {
            act(queue);
        }
    }
}

impl Host for Shelf {
    fn start_queue(&self, key: QueueKey, queue: Queue) {
        let before = self.0.lock().expect("no panic").insert(key, queue);
        assert!(before.is_none(), "{key} is started twice");
    }
    fn stop_queue(&self, key: QueueKey) -> u32 {
        let queue = self.0.lock().expect("no panic").remove(&key);
        queue.expect("only what was started is stopped").stop()
    }
    fn set_memory(&self, front_end: u32, memory: &Arc<RegionTable>, _: MemoryChange) {
        for (key, queue) in self.0.lock().expect("no panic").iter_mut() {
            if key.front_end == front_end {
                queue.set_memory(Arc::clone(memory));
            }
        }
    }
    fn set_call(&self, key: QueueKey, call: Option<Event>) {
        self.with(key, |queue| queue.set_call(call));
    }
    fn set_kick(&self, key: QueueKey, kick: Option<Event>) {
        self.with(key, |queue| queue.set_kick(kick));
    }
    fn set_error(&self, key: QueueKey, error: Option<Event>) {
        self.with(key, |queue| queue.set_error(error));
    }
    fn event(&self, event: &SessionEvent) {
        assert!(!matches!(event, SessionEvent::Panicked), "{event}");
    }
}

struct Bed {
    path: PathBuf,
    _session: SessionHandle,
    memory: Memory,
    bells: Bells,
    file: std::fs::File,
}

static BED: LazyLock<Bed> = LazyLock::new(|| {
    let name = format!("garboard-fuzz-{}", std::process::id());
    let path = std::env::temp_dir().join(name).join("messages.sock");
    let profile = Profile {
        serial: [b'0'; 20],
        block: BlockSize::B512,
        logical_block: BlockSize::B512,
        physical_block_exponent: 3,
        minimum_io_blocks: 128,
        optimal_io_blocks: 512,
        queues: 4,
        queue_size: 64,
        cache: CacheMode::WriteBack,
        access: Access::ReadWrite,
        discard: None,
        write_zeroes: None,
    };
    let settings = Settings {
        name: "fuzz".to_owned(),
        socket: SocketSettings {
            path: path.clone(),
            owner: None,
            group: None,
            mode: 0o600,
        },
        sharing: Sharing::Shared,
        profile,
        sectors: 4096,
    };
    let session = Session::start(settings, Arc::new(Shelf::default())).expect("a session");
    session.set_ready(true);
    Bed {
        path,
        _session: session,
        memory: Memory::new(1 << 20).expect("memory"),
        bells: Bells::new().expect("events"),
        file: std::fs::File::open("/dev/null").expect("it is there"),
    }
});

fuzz_target!(|data: &[u8]| {
    let bed = &*BED;
    let Ok(front_end) = FrontEnd::connect(&bed.path) else {
        panic!("nobody listens any more");
    };
    let mut rest = data;
    // Request, flags, kind of descriptor, bytes of payload; then the payload.
    while let [request, flags, kind, length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        let bytes = message(u32::from(*request), u32::from(*flags), payload);
        let descriptors: &[RawFd] = match kind % 6 {
            0 => &[],
            1 => &[bed.memory.file().as_raw_fd()],
            2 => &[bed.bells.kick.as_raw_fd()],
            3 => &[bed.file.as_raw_fd()],
            4 => &[bed.memory.file().as_raw_fd(), bed.bells.kick.as_raw_fd()],
            _ => &[bed.memory.file().as_raw_fd(); 9],
        };
        if front_end.raw(&bytes, descriptors).is_err() {
            break;
        }
    }
    // What was said is followed before this is, and this ends the connection.
    let _ = front_end.raw(&message(1, WRONG, &[]), &[]);
    while !front_end.is_cut() {}
    drop(front_end);
    let mut honest = FrontEnd::connect(&bed.path).expect("somebody listens");
    honest.negotiate(1 << 32, 0).expect("it is greeted");
});
