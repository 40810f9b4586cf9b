//! Guest and device on two real threads, each sleeping whenever it may: all requests come
//! through, with their bytes, and no wake-up is lost.

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::View;
use guest::{Driver, Layout, Memory, Options, Part};
use virtqueue::{Chain, Vring};

const REQUESTS: u64 = 40_000;

/// An event descriptor's stand-in.
#[derive(Default)]
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
        let (mut rung, timeout) = self
            .wake
            .wait_timeout_while(
                self.rung.lock().expect("no panic holds it"),
                Duration::from_secs(20),
                |rung| !*rung,
            )
            .expect("no panic holds it");
        assert!(!timeout.timed_out(), "the {who} was never woken");
        *rung = false;
    }
}

/// Reads the number of a request and writes it back.
fn serve(mut vring: Vring, view: &View, kick: &Bell, call: &Bell) {
    let (mut chain, mut served) = (Chain::default(), 0);
    while served < REQUESTS {
        vring.disable_kicks();
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
        if burst == 0 && served < REQUESTS && !vring.enable_kicks() {
            kick.wait("device");
        }
    }
}

/// Submits while there is room, and takes back.
fn drive(mut driver: Driver, kick: &Bell, call: &Bell) {
    let memory = Arc::clone(driver.memory());
    let slots = 16;
    let buffers = memory.allocate(16 * slots, 16);
    let (mut submitted, mut done) = (0u64, 0u64);
    while done < REQUESTS {
        driver.disable_calls();
        while submitted < REQUESTS && submitted - done < units::bytes_u64(slots) {
            let address = buffers + 16 * (submitted % units::bytes_u64(slots));
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
            let address = buffers + 16 * (done % units::bytes_u64(slots)) + 8;
            assert_eq!(
                (used.written, memory.read(address, 8)),
                (8, done.to_le_bytes().to_vec())
            );
            done += 1;
        }
        if done == before && done < REQUESTS && !driver.enable_calls() {
            call.wait("guest");
        }
    }
}

#[test]
fn two_threads_come_through() {
    for layout in [Layout::Split, Layout::Packed] {
        for event_idx in [false, true] {
            let memory = Arc::new(Memory::new(1 << 20).expect("a memory file"));
            let options = Options {
                event_idx,
                start: 65_000,
                ..Options::new(layout, 16)
            };
            let driver = Driver::new(&memory, options);
            let (vring, view) = (common::vring(&driver), View::new(&memory));
            let (kick, call) = (Bell::default(), Bell::default());
            std::thread::scope(|scope| {
                let device = std::thread::Builder::new().name("device".to_owned());
                let served = device.spawn_scoped(scope, || serve(vring, &view, &kick, &call));
                drive(driver, &kick, &call);
                served
                    .expect("a thread")
                    .join()
                    .expect("the device comes to its end");
            });
        }
    }
}
