//! `instructions read|rmw|rmw6|mirror|full COUNT`: the device side of one reactor, from ring to
//! completion, on drives that answer at once. Run under callgrind, which counts what `serve` does:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no \
//!     --toggle-collect='instructions::serve' instructions read 10000
//! ```
//!
//! `cargo xtask instructions` does that, and compares the counts with those that are kept.
//!
//! It also counts allocations made while serving, which must be none.
#![allow(clippy::print_stdout, reason = "a program for people")]
#![allow(
    unsafe_code,
    reason = "the global allocator counts; nothing else is unsafe"
)]

mod device;

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use array::{ArrayMap, Event, Io, MemberRequest, Message, Room, Shard, Shared, Times};
use block::{Completion, Cookie, Full, Request, Status};
use units::{DriveIndex, Instant, ReactorIndex};
use vhost_user_blk::Queue;

use device::{Guest, Load};

/// Counts allocations while told to.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: AllocLayout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Drives that answer at the next look and move no bytes.
#[derive(Default)]
struct Null {
    taken: Vec<Cookie>,
    answers: Vec<Completion>,
    member_requests: u64,
}

impl Io for Null {
    fn now(&self) -> Instant {
        Instant(0)
    }
    fn drive_room(&self) -> usize {
        4096
    }
    fn drive(&mut self, request: MemberRequest) {
        self.member_requests += 1;
        self.taken.push(request.cookie);
    }
    fn times(&self, _: DriveIndex) -> Option<Times<'_>> {
        None
    }
    fn ask(&mut self, _: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        Err(Full(message))
    }
    fn reply(&mut self, _: ReactorIndex, _: Message) {}
    fn complete(&mut self, completion: Completion) {
        self.answers.push(completion);
    }
    fn event(&mut self, _: Event) {}
}

struct Device {
    queue: Queue,
    shard: Shard,
    io: Null,
    reaped: Vec<Cookie>,
    done: Vec<Completion>,
}

/// One turn of the device after another, until all that was asked is answered.
#[inline(never)]
fn serve(device: &mut Device) {
    let Device {
        queue,
        shard,
        io,
        reaped,
        done,
    } = device;
    queue.poll(Instant(0), &mut |request: Request| {
        shard.submit(request, io)
    });
    while queue.pending() > 0 {
        shard.poll(io);
        std::mem::swap(&mut io.taken, reaped);
        for cookie in reaped.drain(..) {
            shard.drive_done(cookie, Status::Ok, io);
        }
        std::mem::swap(&mut io.answers, done);
        for Completion { cookie, status } in done.drain(..) {
            let slot = u32::try_from(cookie.0).expect("a slot of the queue");
            queue.complete(slot, status, Instant(0));
        }
    }
    queue.publish();
}

const BATCH: usize = 32;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (kind, count) = match arguments.as_slice() {
        [_, kind, count] => (kind.as_str(), count.parse().unwrap_or(10_000)),
        _ => ("read", 10_000),
    };
    let load = Load::named(kind, BATCH);
    let (map, shared) = device::array(load, 1);
    let mut guest = Guest::new(load, 7, map.geometry.blocks());
    let mut device = device(&guest, (map, shared));
    let mut served = 0usize;
    while served < count {
        for index in 0..BATCH {
            guest.ask(index);
        }
        COUNTING.store(served >= count / 2, Ordering::Relaxed);
        serve(&mut device);
        COUNTING.store(false, Ordering::Relaxed);
        while guest.driver.reap().is_some() {
            served += 1;
        }
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    let per_request = device.io.member_requests / units::bytes_u64(served);
    println!(
        "{kind}: {served} requests served, {per_request} member requests each, {allocations} \
         allocations, kernels {:?}",
        parity::Backend::best()
    );
    assert_eq!(allocations, 0, "nothing is allocated per request");
}

/// One queue on one shard.
fn device(guest: &Guest, (map, shared): (Arc<ArrayMap>, Arc<Shared>)) -> Device {
    let queue = device::queue(guest, map.geometry.blocks());
    let shard = Shard::new(ReactorIndex(0), map, shared, Room::default()).expect("memory");
    Device {
        queue,
        shard,
        io: Null::default(),
        reaped: Vec::new(),
        done: Vec::new(),
    }
}
