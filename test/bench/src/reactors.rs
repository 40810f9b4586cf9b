//! `reactors [read|rmw|full|helped:K] [SECONDS] [PAIRS] [DEPTH]`: one device on one reactor, and
//! the same on two, in turn. Each reactor has a ring, which it refills itself, so that no client is
//! measured; its drives answer at once. With two, half of all stripes belong to the other reactor:
//! what is written there goes by message. With `helped:K` the first reactor writes stripes of K
//! data chunks, all its own, and the second does nothing but help. Prints each pair, and the median
//! ratio.
//!
//! `reactors bound [SECONDS] [PAIRS] [DEPTH]`: whole stripes of 256 KiB on one reactor, and in turn
//! with it a core that does nothing but copy the same bytes and make their parity: no RAID 5 that
//! copies can do more.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

mod device;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use array::{Event, Help, Io, MemberRequest, Message, Room, Shard, Times};
use block::{Completion, Cookie, Full, Request, Status};
use memory::{Backing, Buffer, Pages, Pool, Segment};
use parity::Code;
use queues::{NoWake, Post, mesh};
use units::limits::INBOX_MESSAGES;
use units::{Clock, DriveIndex, Instant, MonotonicClock, ReactorIndex};
use vhost_user_blk::Queue;

use device::{Guest, Load};

const DEPTH: &str = "64";

/// What a shard sees: drives that answer at the next look, and the other reactors.
struct World {
    taken: Vec<Cookie>,
    answers: Vec<Completion>,
    post: Post<Message>,
    messages: u64,
    /// The reactor that does nothing but help this one.
    helper: Option<ReactorIndex>,
}

impl Io for World {
    fn now(&self) -> Instant {
        Instant(0)
    }
    fn drive_room(&self) -> usize {
        4096
    }
    fn drive(&mut self, request: MemberRequest) {
        self.taken.push(request.cookie);
    }
    fn times(&self, _: DriveIndex) -> Option<Times<'_>> {
        None
    }
    fn ask(&mut self, to: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        self.messages += 1;
        let sent = self.post.request(to, message);
        sent.map_err(|full| Full(full.0))
    }
    fn help(&mut self) -> Help {
        let mut help = Help::NOBODY;
        if let Some(helper) = self.helper.filter(|helper| self.post.is_idle(*helper)) {
            help.add(helper);
        }
        help
    }
    fn show(&mut self) {
        self.post.publish();
    }
    fn reply(&mut self, to: ReactorIndex, message: Message) {
        self.messages += 1;
        self.post.reply(to, message);
    }
    fn complete(&mut self, completion: Completion) {
        self.answers.push(completion);
    }
    fn event(&mut self, _: Event) {}
}

struct Reactor {
    guest: Guest,
    queue: Queue,
    shard: Shard,
    world: World,
    /// Requests of the guest that are not under way.
    idle: Vec<usize>,
    /// By token: which request.
    under_way: Vec<usize>,
    reaped: Vec<Cookie>,
    done: Vec<Completion>,
}

impl Reactor {
    /// One turn: the guest asks, and the device does what there is to do. How many were answered.
    fn turn(&mut self) -> u64 {
        let Reactor {
            guest,
            queue,
            shard,
            world,
            idle,
            under_way,
            reaped,
            done,
        } = self;
        for index in idle.drain(..) {
            let token = guest.ask(index);
            under_way[usize::from(token.0)] = index;
        }
        queue.poll(Instant(0), &mut |request: Request| {
            shard.submit(request, world)
        });
        let mut moved = false;
        while let Some((from, message)) = world.post.receive() {
            moved = true;
            shard.message(from, message, world);
        }
        shard.poll(world);
        std::mem::swap(&mut world.taken, reaped);
        for cookie in reaped.drain(..) {
            shard.drive_done(cookie, Status::Ok, world);
        }
        std::mem::swap(&mut world.answers, done);
        for Completion { cookie, status } in done.drain(..) {
            let slot = u32::try_from(cookie.0).expect("a slot of the queue");
            queue.complete(slot, status, Instant(0));
        }
        queue.publish();
        world.post.publish();
        world.post.tell_idle(!moved);
        let mut answered = 0;
        while let Some(used) = guest.driver.reap() {
            idle.push(under_way[usize::from(used.token.0)]);
            answered += 1;
        }
        answered
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, otherwise: &str| words.get(at).map_or(otherwise.into(), String::clone);
    let depth = word(3, DEPTH).parse().expect("a depth");
    let load = Load::named(&word(0, "read"), depth);
    let seconds: f64 = word(1, "0.5").parse().expect("seconds");
    let pairs: usize = word(2, "7").parse().expect("a number of pairs");
    let time = Duration::from_secs_f64(seconds);
    if words.first().is_some_and(|word| word == "bound") {
        beside_the_bound(load, time, pairs);
        return;
    }
    println!("thousands of requests per second; two reactors: messages for each request");
    println!("{:>8} {:>8} {:>8} {:>8}", "one", "two", "messages", "ratio");
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // Whoever comes first changes, as the machine may slow down or speed up.
        let (one, two) = if pair % 2 == 0 {
            let one = measure(1, load, time);
            (one, measure(2, load, time))
        } else {
            let two = measure(2, load, time);
            (measure(1, load, time), two)
        };
        let ratio = two.0 / one.0;
        let (one, each, two) = (one.0 / 1000.0, two.1 / two.0, two.0 / 1000.0);
        println!("{one:>8.0} {two:>8.0} {each:>8.2} {ratio:>8.2}");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("ratio: {median:.2}, median of {pairs} pairs");
}

fn beside_the_bound(load: Load, time: Duration, pairs: usize) {
    println!("thousands of stripes per second");
    println!("{:>8} {:>8} {:>8}", "reactor", "bound", "ratio");
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let (ours, bound) = if pair % 2 == 0 {
            let ours = measure(1, load, time).0;
            (ours, copy_and_sum(load, time))
        } else {
            let bound = copy_and_sum(load, time);
            (measure(1, load, time).0, bound)
        };
        let ratio = ours / bound;
        println!(
            "{:>8.1} {:>8.1} {ratio:>8.2}",
            ours / 1000.0,
            bound / 1000.0
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let (median, most) = (ratios[pairs / 2], ratios[pairs - 1]);
    println!(
        "ratio: {median:.2} ({:.2} to {most:.2}), median of {pairs} pairs",
        ratios[0]
    );
}

/// Stripes per second of a loop that copies what the guest's requests hold, and makes parity of it,
/// always in the same buffers, which so are in the cache.
fn copy_and_sum(load: Load, time: Duration) -> f64 {
    let guest = Guest::new(load, 7, 1 << 20);
    let (_kept, stripes) = device::stripes(&guest);
    let chunks = stripes[0].len();
    let backing = Backing::Shared(Pages::Huge);
    let mut pool = Pool::new(chunks + 1, device::CHUNK, backing).expect("memory");
    let taken: Vec<Buffer> = std::iter::from_fn(|| pool.acquire()).collect();
    let segments: Vec<Segment> = taken.iter().map(|buffer| pool.segment(buffer)).collect();
    let (copies, parity) = segments.split_at(chunks);
    let code = Code::new(chunks, 1).expect("a small code");
    let (mut done, mut began) = (0_u64, MonotonicClock.now());
    for round in 0.. {
        for data in &stripes {
            code.copy_generate(data, copies, parity);
            done += 1;
        }
        if round == 100 {
            (done, began) = (0, MonotonicClock.now());
        }
        if round > 100 && MonotonicClock.now().since(began) >= time {
            break;
        }
    }
    let seconds = MonotonicClock.now().since(began).as_secs_f64();
    for buffer in taken {
        pool.release(buffer);
    }
    f64::from(u32::try_from(done).expect("a few seconds")) / seconds
}

/// Requests and messages per second of one device on so many reactors.
fn measure(reactors: usize, load: Load, time: Duration) -> (f64, f64) {
    let (map, shared) = device::array(load, reactors);
    let wakers = (0..reactors).map(|_| Arc::new(NoWake) as _).collect();
    let posts = mesh::<Message>(wakers, INBOX_MESSAGES);
    let stop = Arc::new(AtomicBool::new(false));
    let (answered, messages) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begins = Arc::new(Barrier::new(reactors + 1));
    let (told, hears) = mpsc::channel();
    std::thread::scope(|scope| {
        for (at, post) in posts.into_iter().enumerate() {
            let (map, shared) = (Arc::clone(&map), Arc::clone(&shared));
            let (stop, begins, told) = (Arc::clone(&stop), Arc::clone(&begins), told.clone());
            let (answered, messages) = (Arc::clone(&answered), Arc::clone(&messages));
            // Profilers tell threads by their names.
            let named = std::thread::Builder::new().name(format!("{at} of {reactors}"));
            let spawned = named.spawn_scoped(scope, move || {
                let blocks = map.geometry.blocks();
                let guest = Guest::new(load, 7 + units::bytes_u64(at), blocks);
                let queue = device::queue(&guest, blocks);
                let me = ReactorIndex::from_at(at);
                let mut reactor = Reactor {
                    shard: Shard::new(me, map, shared, Room::default()).expect("memory"),
                    queue,
                    guest,
                    world: World {
                        taken: Vec::new(),
                        answers: Vec::new(),
                        post,
                        messages: 0,
                        helper: (load.helped.is_some() && at == 0 && reactors == 2)
                            .then_some(ReactorIndex(1)),
                    },
                    idle: if load.helped.is_some() && at > 0 {
                        Vec::new()
                    } else {
                        (0..load.depth).collect()
                    },
                    under_way: vec![0; 1 << 16],
                    reaped: Vec::new(),
                    done: Vec::new(),
                };
                for _ in 0..2000 {
                    reactor.turn();
                }
                begins.wait();
                let before = reactor.world.messages;
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    count += reactor.turn();
                }
                answered.fetch_add(count, Ordering::Relaxed);
                messages.fetch_add(reactor.world.messages - before, Ordering::Relaxed);
                // Counted, so whoever waits for all of them may add up.
                told.send(()).expect("somebody hears");
            });
            spawned.expect("a thread");
        }
        begins.wait();
        let began = MonotonicClock.now();
        let nobody = hears.recv_timeout(time);
        assert!(nobody.is_err(), "a reactor ended by itself");
        stop.store(true, Ordering::Relaxed);
        let seconds = MonotonicClock.now().since(began).as_secs_f64();
        for _ in 0..reactors {
            hears.recv().expect("each tells");
        }
        let each = |count: &AtomicU64| {
            let count = u32::try_from(count.load(Ordering::Relaxed)).expect("a few seconds");
            f64::from(count) / seconds
        };
        (each(&answered), each(&messages))
    })
}
