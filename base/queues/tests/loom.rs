//! All interleavings of two threads on the rings, the credits and the parking, as loom sees them:
//! `RUSTFLAGS="--cfg loom" cargo test -p queues --release --test loom`.
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use queues::{Full, NoWake, Park, Pieces, Post, Wake, mesh, spsc};
use units::ReactorIndex;

const HERE: ReactorIndex = ReactorIndex(0);
const THERE: ReactorIndex = ReactorIndex(1);

/// Checks all interleavings with at most `preemptions` involuntary switches (three threads, or long
/// histories, would take hours without a bound).
fn bounded(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

#[test]
fn a_ring_hands_over_whole_messages_in_order() {
    loom::model(|| {
        let (mut sender, mut receiver) = spsc::channel::<Box<u32>>(2);
        let thread = thread::spawn(move || {
            for number in 0..3 {
                let mut message = Box::new(number);
                while let Err(Full(back)) = sender.push(message) {
                    message = back;
                    thread::yield_now();
                }
                sender.publish();
            }
        });
        for expected in 0..3 {
            loop {
                if let Some(message) = receiver.pop() {
                    assert_eq!(*message, expected);
                    break;
                }
                thread::yield_now();
            }
        }
        assert!(receiver.pop().is_none());
        thread.join().unwrap();
    });
}

#[test]
fn a_batch_is_seen_whole_or_in_order_and_dropped_if_not_received() {
    loom::model(|| {
        let (mut sender, mut receiver) = spsc::channel::<Box<u32>>(4);
        let thread = thread::spawn(move || {
            sender.push(Box::new(0)).unwrap();
            sender.push(Box::new(1)).unwrap();
            sender.publish();
            sender.push(Box::new(2)).unwrap();
        });
        let first = receiver.pop();
        let second = receiver.pop();
        if let Some(first) = &first {
            assert_eq!(**first, 0);
            assert_eq!(second.map(|second| *second), Some(1));
        }
        drop(receiver);
        thread.join().unwrap();
    });
}

/// Loom's stand-in for an eventfd: a wake-up that comes early ends the next wait.
struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ringing.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(&self) {
        *self.rung.lock().unwrap() = true;
        self.ringing.notify_one();
    }
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell {
        rung: Mutex::new(false),
        ringing: Condvar::new(),
    })
}

/// Receives one message, sleeping as long as there is none. A lost wake-up is a deadlock, which
/// loom reports.
fn receive_or_sleep(post: &mut Post<u32>, bell: &Bell) -> u32 {
    loop {
        if let Some((_, message)) = post.receive() {
            return message;
        }
        if post.park() == Park::Parked {
            bell.wait();
            post.unpark();
        }
    }
}

#[test]
fn a_request_wakes_whoever_parks_meanwhile() {
    loom::model(|| {
        let bell = bell();
        let mut posts = mesh::<u32>(vec![Arc::new(NoWake), bell.clone()], 1);
        let mut there = posts.pop().unwrap();
        let mut here = posts.pop().unwrap();
        let thread = thread::spawn(move || {
            here.request(THERE, 7).unwrap();
            here.publish();
        });
        assert_eq!(receive_or_sleep(&mut there, &bell), 7);
        thread.join().unwrap();
    });
}

#[test]
fn a_second_request_wakes_whoever_parks_after_the_first() {
    bounded(3, || {
        let bell = bell();
        let mut posts = mesh::<u32>(vec![Arc::new(NoWake), bell.clone()], 2);
        let mut there = posts.pop().unwrap();
        let mut here = posts.pop().unwrap();
        let thread = thread::spawn(move || {
            for number in 0..2 {
                here.request(THERE, number).unwrap();
                here.publish();
            }
        });
        assert_eq!(receive_or_sleep(&mut there, &bell), 0);
        assert_eq!(receive_or_sleep(&mut there, &bell), 1);
        thread.join().unwrap();
    });
}

#[test]
fn two_senders_wake_one_receiver() {
    bounded(3, || {
        let bell = bell();
        let mut posts = mesh::<u32>(vec![bell.clone(), Arc::new(NoWake), Arc::new(NoWake)], 1);
        let senders: Vec<_> = posts
            .drain(1..)
            .map(|mut post| {
                thread::spawn(move || {
                    post.request(HERE, 1).unwrap();
                    post.publish();
                })
            })
            .collect();
        let mut here = posts.pop().unwrap();
        let sum = receive_or_sleep(&mut here, &bell) + receive_or_sleep(&mut here, &bell);
        assert_eq!(sum, 2);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Both sides ask with a single credit and answer each other, twice: a slot that is not free when
/// its credit is fails the assertion in `push`; a refused request that nothing wakes is a deadlock.
#[test]
fn two_reactors_with_one_credit_ask_answer_and_sleep() {
    bounded(2, || {
        let bells = [bell(), bell()];
        let mut posts = mesh::<u32>(vec![bells[0].clone(), bells[1].clone()], 1);
        let there = posts.pop().unwrap();
        let here = posts.pop().unwrap();
        let [first, second] = bells;
        let thread = thread::spawn(move || ask_and_answer(there, HERE, 1, &second));
        ask_and_answer(here, THERE, 2, &first);
        thread.join().unwrap();
    });
}

const REQUEST: u32 = 0;
const REPLY: u32 = 1;

/// Asks `requests` times and serves what the other asks (three in all, over both sides).
fn ask_and_answer(mut post: Post<u32>, other: ReactorIndex, requests: usize, bell: &Bell) {
    let (mut asked, mut answered, mut served) = (0, 0, 0);
    while answered < requests || served < 3 - requests {
        if asked < requests && post.request(other, REQUEST).is_ok() {
            asked += 1;
            post.publish();
        }
        match receive_or_sleep(&mut post, bell) {
            REQUEST => {
                served += 1;
                post.reply(other, REPLY);
            }
            _ => answered += 1,
        }
        post.publish();
    }
}

#[test]
fn pieces_are_done_once_and_what_was_done_is_seen() {
    loom::model(|| {
        let job = Arc::new(Job::new());
        let helper = thread::spawn({
            let job = job.clone();
            move || job.work()
        });
        job.work();
        if job.pieces.are_done() {
            assert_eq!(job.bytes(), [2, 2]);
        }
        helper.join().unwrap();
        assert!(job.pieces.are_done());
    });
}

#[test]
fn after_a_stop_nobody_is_in_the_middle_of_a_piece() {
    loom::model(|| {
        let job = Arc::new(Job::new());
        let helper = thread::spawn({
            let job = job.clone();
            move || job.work()
        });
        job.pieces.stop();
        let stopped = job.bytes();
        helper.join().unwrap();
        assert_eq!(job.bytes(), stopped);
        assert!(!stopped.contains(&1), "{stopped:?}");
    });
}

/// Two pieces, and what is stored for each: 1 in the middle of it, and then 2.
struct Job {
    pieces: Pieces,
    bytes: [AtomicU32; 2],
}

impl Job {
    fn new() -> Job {
        Job {
            pieces: Pieces::new(2),
            bytes: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    fn work(&self) {
        while let Some(piece) = self.pieces.take() {
            let byte = &self.bytes[usize::try_from(piece.index()).unwrap()];
            assert_eq!(byte.swap(1, Ordering::Relaxed), 0, "each is done once");
            byte.store(2, Ordering::Relaxed);
        }
    }

    /// As they are seen without any order but that of the pieces.
    fn bytes(&self) -> [u32; 2] {
        [&self.bytes[0], &self.bytes[1]].map(|byte| byte.load(Ordering::Relaxed))
    }
}
