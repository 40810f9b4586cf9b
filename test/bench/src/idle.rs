//! `idle`: what an engine costs while nobody asks for anything, and how soon it answers then. The
//! finished program beside this one (or `GARBOARD_PROGRAM`) on CPU 0 (or `GARBOARD_CORES`), we on
//! CPU 1; two arrays of five drives, exports with a connected front-end each, whose rings are
//! empty, with in-flight memory. First how much of a core it takes, its memory, threads and
//! descriptors; then single reads of 4 KiB on some ring after rests of 5 to 10 ms, and even ones,
//! 1,000 and 10,000 a second, with each way of polling in turn: who is not measured stands still.
//! `bare` is a thread in the engine's place that does nothing but wake: what the machine itself
//! takes. Figures are medians of rounds, but p99.9, which is that of all rounds together.
//! `GARBOARD_AGAINST` names another version of the program, to be compared.
//! `idle mem:64:4:128...`: drives (`mem` or `file`), exports, queues of each, queue size. With
//! seconds as a fifth word: only what it takes, over so long.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

mod resting;
mod served;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reactor::EventFd;
use rustix::thread::{CpuSet, sched_setaffinity};
use units::{Clock, MonotonicClock};

use resting::{Resting, wait_until};
use served::{Served, Shape};

const POLLS: [&str; 3] = ["always", "adaptive", "never"];
const ADAPTIVE: usize = 1;
const KINDS: [&str; 3] = ["after a rest", "1,000 a second", "10,000 a second"];
const ROUNDS: usize = 7;
const READS: usize = 300;
const REST: Duration = Duration::from_millis(5);
const SPELL: Duration = Duration::from_secs(1);

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let asked = if named.is_empty() {
        ["mem:64:4:128"].map(str::to_owned).to_vec()
    } else {
        named
    };
    for name in asked {
        let words: Vec<&str> = name.split(':').collect();
        let [drives, exports, queues, queue_size, more @ ..] = words.as_slice() else {
            panic!("{name}: drives:exports:queues:size[:seconds of rest]");
        };
        let shape = Shape {
            drives: (*drives).to_owned(),
            exports: exports.parse().expect("exports"),
            queues: queues.parse().expect("queues"),
            queue_size: queue_size.parse().expect("a queue size"),
        };
        println!("{name}");
        match more {
            [seconds] => rest_only(&shape, seconds.parse().expect("seconds")),
            _ => compare(&shape),
        }
    }
}

fn program() -> PathBuf {
    let beside = || {
        let this = std::env::current_exe().expect("this program");
        this.with_file_name("garboard")
    };
    std::env::var_os("GARBOARD_PROGRAM").map_or_else(beside, PathBuf::from)
}

fn cores() -> String {
    std::env::var("GARBOARD_CORES").unwrap_or_else(|_| "0".to_owned())
}

fn rest_only(shape: &Shape, seconds: u64) {
    let served = Served::start(&program(), shape, ("adaptive", "adaptive"), &cores());
    let alone = served.usage();
    println!("  before anybody connects: {}", memory_of(&alone));
    let resting = Resting::connect(&served, shape);
    rest(&served, "adaptive", Duration::from_secs(seconds));
    drop(resting);
}

fn memory_of(usage: &served::Usage) -> String {
    let mebibytes = |kibibytes: u64| kibibytes.div_ceil(1024);
    let [own, files, shared] = usage.parts.map(mebibytes);
    format!(
        "{} MiB resident ({own} own, {files} of files, {shared} shared), {} threads, {} \
         descriptors",
        mebibytes(usage.resident),
        usage.threads.len(),
        usage.descriptors
    )
}

/// Prints what an engine uses while nobody asks for anything.
fn rest(served: &Served, poll: &str, time: Duration) {
    // The first seconds after a change are not rest: regions are made clean again.
    wait_until(MonotonicClock.now() + Duration::from_secs(15));
    let (before, begun) = (served.usage(), MonotonicClock.now());
    wait_until(begun + time);
    let (after, took) = (served.usage(), MonotonicClock.now().since(begun));
    let used = after.since(&before);
    let nanoseconds: u64 = used.iter().map(|thread| thread.nanoseconds).sum();
    let sleeps: u64 = used.iter().map(|thread| thread.sleeps).sum();
    println!(
        "  {poll}: {:.2} % of a core, {:.1} wake-ups a second; {}",
        percent(nanoseconds, took),
        per_second(sleeps, took),
        memory_of(&after)
    );
    for thread in used.iter().take(8) {
        println!(
            "    {:<16} {:>6.3} % {:>6.1} wake-ups a second",
            thread.name,
            percent(thread.nanoseconds, took),
            per_second(thread.sleeps, took)
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share for people")]
fn percent(nanoseconds: u64, of: Duration) -> f64 {
    nanoseconds as f64 / of.as_secs_f64() / 1e7
}

#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// What is measured again and again: times of all rounds.
struct Line {
    name: String,
    rounds: Vec<Vec<Duration>>,
}

impl Line {
    fn new(name: String) -> Line {
        Line {
            name,
            rounds: Vec::new(),
        }
    }

    fn quantiles(&self, of: f64) -> Vec<f64> {
        let quantile = |times: &Vec<Duration>| quantile(times.clone(), of);
        self.rounds.iter().map(quantile).collect()
    }

    /// The medians of ratios round by round: p50 and p99.
    fn against(&self, other: &Line) -> [f64; 2] {
        [0.5, 0.99].map(|of| {
            let pairs = self.quantiles(of).into_iter().zip(other.quantiles(of));
            median(pairs.map(|(one, other)| one / other).collect())
        })
    }

    fn print(&self, against: &Line) {
        let all = self.rounds.iter().flatten().copied().collect();
        let [half, most] = self.against(against);
        println!(
            "  {:<34} {:>8.1} {:>8.1} {:>8.1} {half:>9.2} {most:>6.2}",
            self.name,
            median(self.quantiles(0.5)),
            median(self.quantiles(0.99)),
            quantile(all, 0.999)
        );
    }
}

/// In microseconds.
fn quantile(mut times: Vec<Duration>, of: f64) -> f64 {
    times.sort();
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a short list"
    )]
    let place = (times.len() as f64 * of) as usize;
    times[place.min(times.len() - 1)].as_secs_f64() * 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// An engine with its front-ends, and what was measured of it.
struct Side {
    served: Served,
    resting: Resting,
    lines: [Line; 3],
}

/// One for each way of polling, and if there is another program to compare with, one of that. All
/// stand still.
fn sides(shape: &Shape) -> Vec<Side> {
    let mut wanted: Vec<(PathBuf, &str, &str)> = POLLS.map(|poll| (program(), poll, poll)).to_vec();
    if let Some(other) = std::env::var_os("GARBOARD_AGAINST") {
        wanted.push((other.into(), "adaptive", "other's adaptive"));
    }
    // All before anybody connects: a child inherits descriptors of front-ends, and where we run.
    keep_to(&[0, 1]);
    let start = |(program, poll, name): (PathBuf, &'static str, &'static str)| {
        let served = Served::start(&program, shape, (poll, name), &cores());
        served.stand_still();
        (served, name)
    };
    let all: Vec<(Served, &str)> = wanted.into_iter().map(start).collect();
    keep_to(&[1]);
    let connect = |(served, name): (Served, &str)| {
        served.go_on();
        let resting = Resting::connect(&served, shape);
        if name != POLLS[0] {
            rest(&served, name, Duration::from_secs(10));
        }
        served.stand_still();
        Side {
            served,
            resting,
            lines: KINDS.map(|kind| Line::new(format!("{name}, {kind}"))),
        }
    };
    all.into_iter().map(connect).collect()
}

fn compare(shape: &Shape) {
    let mut sides = sides(shape);
    let mut bare = Line::new("bare".to_owned());
    for round in 0..ROUNDS {
        bare.rounds.push(wake_bare());
        for at in 0..sides.len() {
            let at = (at + round) % sides.len();
            let Side {
                served,
                resting,
                lines: [rests, few, many],
            } = &mut sides[at];
            served.go_on();
            // What its clocks missed meanwhile.
            wait_until(MonotonicClock.now() + Duration::from_secs(1));
            rests.rounds.push(resting.after_rests(READS, REST));
            few.rounds.push(resting.evenly(1000, SPELL));
            many.rounds.push(resting.evenly(10_000, SPELL));
            served.stand_still();
        }
    }
    println!(
        "  {:<34} {:>8} {:>8} {:>8}   to always p50, p99",
        "us", "p50", "p99", "p99.9"
    );
    bare.print(&sides[0].lines[0]);
    for kind in 0..KINDS.len() {
        for side in &sides {
            side.lines[kind].print(&sides[0].lines[kind]);
        }
    }
    let [half, most] = sides[ADAPTIVE].lines[0].against(&bare);
    println!("  adaptive after a rest to bare: {half:.2} {most:.2}");
    for other in &sides[POLLS.len()..] {
        for (ours, its) in sides[ADAPTIVE].lines.iter().zip(&other.lines) {
            let [half, most] = ours.against(its);
            println!("  {} to {}: {half:.2} {most:.2}", ours.name, its.name);
        }
    }
    for side in &sides {
        // The end asks it.
        side.served.go_on();
    }
}

fn keep_to(all: &[usize]) {
    let mut cpus = CpuSet::new();
    for cpu in all {
        cpus.set(*cpu);
    }
    sched_setaffinity(None, &cpus).expect("there are two CPUs that may be used");
}

/// Wakes a thread on CPU 0 after rests; until it says that it is awake.
fn wake_bare() -> Vec<Duration> {
    const ENOUGH: u64 = u64::MAX;
    let bell = Arc::new(EventFd::new().expect("an event"));
    let [asked, awake] = [0; 2].map(|_| Arc::new(AtomicU64::new(0)));
    let (heard, wanted, told) = (Arc::clone(&bell), Arc::clone(&asked), Arc::clone(&awake));
    let sleeper = std::thread::Builder::new().name("bare".to_owned());
    let sleeper = sleeper.spawn(move || {
        keep_to(&[0]);
        loop {
            heard.wait(None);
            heard.drain();
            let wanted = wanted.load(Ordering::Acquire);
            told.store(wanted, Ordering::Release);
            if wanted == ENOUGH {
                return;
            }
        }
    });
    let sleeper = sleeper.expect("a thread");
    let mut times = Vec::with_capacity(READS);
    for number in (1..).take(READS) {
        wait_until(MonotonicClock.now() + REST + REST / 2);
        let begun = MonotonicClock.now();
        asked.store(number, Ordering::Release);
        bell.wake();
        while awake.load(Ordering::Acquire) < number {
            std::hint::spin_loop();
        }
        times.push(MonotonicClock.now().since(begun));
    }
    asked.store(ENOUGH, Ordering::Release);
    bell.wake();
    sleeper.join().expect("it ends");
    times
}
