//! Guest and device on two real threads, each sleeping whenever it may: all requests come
//! through, with their bytes, and no wake-up is lost.

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::View;
use guest::{Driver, Layout, Options, Part};
use virtqueue::{Chain, Vring};

/// An event descriptor's stand-in.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("no panic holds it") = true;
        self.wake.notify_one();
    }

    fn wait(&self, who: &str) {
        let rung = self.rung.lock().expect("no panic holds it");
        let long = Duration::from_secs(20);
        let waited = self.wake.wait_timeout_while(rung, long, |rung| !*rung);
        let (mut rung, timeout) = waited.expect("no panic holds it");
        assert!(!timeout.timed_out(), "the {who} was never woken");
        *rung = false;
    }
}

#[derive(Clone, Copy, Debug)]
struct Play {
    options: Options,
    /// Requests the guest keeps in flight.
    depth: u64,
    requests: u64,
}

/// Reads the number of a request and writes it back.
fn serve(play: Play, mut vring: Vring, view: &View, bells: &[Bell; 2]) {
    let [kick, call] = bells;
    let (mut chain, mut served) = (Chain::default(), 0);
    vring.disable_kicks();
    while served < play.requests {
        let mut burst = 0;
        while burst < 7 && vring.pop(view, &mut chain).expect("an honest guest") {
            let mut number = [0; 8];
            chain.readable[0].copy_to_slice(&mut number);
            assert_eq!(u64::from_le_bytes(number), served, "in order");
            chain.writable[0].copy_from_slice(&number);
            vring.push(chain.head, 8);
            (served, burst) = (served + 1, burst + 1);
        }
        if vring.publish() {
            call.ring();
        }
        if burst == 0 {
            if !vring.enable_kicks() {
                kick.wait("device");
            }
            vring.disable_kicks();
        }
    }
}

/// Submits while there is room, and takes back.
fn drive(play: Play, mut driver: Driver, bells: &[Bell; 2]) {
    let [kick, call] = bells;
    let memory = Arc::clone(driver.memory());
    let buffers = memory.allocate(16 * units::bytes_usize(play.depth), 16);
    let (mut submitted, mut done) = (0u64, 0u64);
    driver.disable_calls();
    while done < play.requests {
        while submitted < play.requests && submitted - done < play.depth {
            let address = buffers + 16 * (submitted % play.depth);
            memory.store_u64(address, submitted);
            memory.store_u64(address + 8, u64::MAX);
            let part = |address, writable| Part {
                address,
                length: 8,
                writable,
            };
            let parts = [part(address, false), part(address + 8, true)];
            if driver.submit(&parts).is_none() {
                break;
            }
            submitted += 1;
        }
        if driver.kick_wanted() {
            kick.ring();
        }
        let before = done;
        while let Some(used) = driver.reap() {
            let address = buffers + 16 * (done % play.depth) + 8;
            let number = memory.read(address, 8);
            assert_eq!((used.written, number), (8, done.to_le_bytes().to_vec()));
            done += 1;
        }
        if done == before {
            if !driver.enable_calls() {
                call.wait("guest");
            }
            driver.disable_calls();
        }
    }
}

fn run(play: Play) {
    let memory = common::memory(1 << 20);
    let driver = Driver::new(&memory, play.options);
    let (vring, view) = (common::vring(&driver), View::new(&memory));
    let bells = <[Bell; 2]>::default();
    std::thread::scope(|scope| {
        let device = std::thread::Builder::new().name("device".to_owned());
        let served = device.spawn_scoped(scope, || serve(play, vring, &view, &bells));
        drive(play, driver, &bells);
        let served = served.expect("a thread").join();
        served.unwrap_or_else(|_| panic!("{play:?}: the device comes to its end"));
    });
}

#[test]
fn two_that_sleep_wake_each_other() {
    for layout in [Layout::Split, Layout::Packed] {
        for (event_idx, depth) in [(false, 1), (false, 16), (true, 1), (true, 16)] {
            run(Play {
                options: Options {
                    event_idx,
                    start: 65_000,
                    ..Options::new(layout, 16)
                },
                depth,
                requests: if cfg!(miri) { 20 } else { 5_000 },
            });
        }
    }
}
