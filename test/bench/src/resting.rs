//! Front-ends that rest: all rings of all exports are there and empty, and now and then one request
//! comes on one of them.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::Duration;

use guest::front_end::{Bells, FrontEnd, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use units::{Clock, Instant, MonotonicClock};
use vhost_user_blk::feature;

use crate::served::{Served, Shape};

const SECTORS: u64 = (8 << 20) / 512;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ring, and the memory of its one request.
struct Ring {
    driver: Driver,
    bells: Bells,
    header: u64,
    data: u64,
    status: u64,
}

/// One virtual machine.
struct Guest {
    memory: Arc<Memory>,
    rings: Vec<Ring>,
    /// Connected as long as this is there.
    _front_end: FrontEnd,
}

impl Guest {
    fn new(socket: &std::path::Path, shape: &Shape) -> Guest {
        let memory = Arc::new(Memory::new(1 << 20).expect("memory"));
        let mut front_end = FrontEnd::connect(socket).expect("connects");
        let wanted =
            feature::VERSION_1 | feature::EVENT_IDX | feature::FLUSH | feature::PROTOCOL_FEATURES;
        let wanted_protocol = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
        let wanted_protocol = wanted_protocol | protocol::INFLIGHT_SHMFD;
        front_end
            .negotiate(wanted | feature::MQ, wanted_protocol)
            .expect("negotiates");
        front_end.set_memory(&memory).expect("memory is known");
        let queues = u16::try_from(shape.queues).expect("few");
        let inflight = front_end.make_inflight(queues, shape.queue_size);
        let inflight = inflight.expect("in-flight memory");
        front_end.set_inflight(&inflight).expect("it is known");
        let ring = |index: u16| {
            let mut driver = Driver::new(&memory, Options::new(Layout::Split, shape.queue_size));
            let bells = Bells::new().expect("events");
            let index = u32::from(index);
            front_end
                .set_ring(index, &driver, 0, &bells)
                .expect("a ring");
            front_end.enable(index, true).expect("enabled");
            driver.disable_calls();
            Ring {
                driver,
                bells,
                header: memory.allocate(16, 16),
                data: memory.allocate(4096, 4096),
                status: memory.allocate(1, 1),
            }
        };
        let rings = (0..queues).map(ring).collect();
        Guest {
            memory,
            rings,
            _front_end: front_end,
        }
    }
}

/// All front-ends of an engine.
pub(crate) struct Resting {
    guests: Vec<Guest>,
    chance: u64,
    pub(crate) kicks: u64,
}

impl Resting {
    pub(crate) fn connect(served: &Served, shape: &Shape) -> Resting {
        let guest = |export| Guest::new(&served.socket(export), shape);
        Resting {
            guests: (0..shape.exports).map(guest).collect(),
            chance: 1,
            kicks: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        let next = self.chance.wrapping_mul(6_364_136_223_846_793_005);
        self.chance = next.wrapping_add(1);
        (self.chance >> 33) % below
    }

    /// One read of 4 KiB on some ring; how long until its answer was there.
    pub(crate) fn read(&mut self) -> Duration {
        let guest = self.draw(units::bytes_u64(self.guests.len()));
        let rings = units::bytes_u64(self.guests[0].rings.len());
        let ring = units::bytes_usize(self.draw(rings));
        let sector = self.draw(SECTORS / 8) * 8;
        let Guest { memory, rings, .. } = &mut self.guests[units::bytes_usize(guest)];
        let Ring {
            driver,
            bells,
            header,
            data,
            status,
        } = &mut rings[ring];
        memory.store_u32(*header, 0);
        memory.store_u64(*header + 8, sector);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let parts = [
            part(*header, 16, false),
            part(*data, 4096, true),
            part(*status, 1, true),
        ];
        let begun = MonotonicClock.now();
        driver.submit(&parts).expect("the ring is empty");
        if driver.kick_wanted() {
            bells.kick.write(1).expect("kicked");
            self.kicks += 1;
        }
        while driver.reap().is_none() {
            spin_loop();
            assert!(MonotonicClock.now().since(begun) < PATIENCE, "no answer");
        }
        let took = MonotonicClock.now().since(begun);
        assert_eq!(memory.read(*status, 1), [0], "answered well");
        took
    }

    /// Reads after rests of `rest` and up to as much again.
    pub(crate) fn after_rests(&mut self, count: usize, rest: Duration) -> Vec<Duration> {
        let more = u64::try_from(rest.as_micros()).expect("short");
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let until = MonotonicClock.now() + rest + Duration::from_micros(self.draw(more));
            wait_until(until);
            times.push(self.read());
        }
        times
    }

    /// Reads at even distances, as many per second. Those that were due while another one was under
    /// way are left out.
    pub(crate) fn evenly(&mut self, per_second: u32, spell: Duration) -> Vec<Duration> {
        let step = Duration::from_secs(1) / per_second;
        let begun = MonotonicClock.now();
        let mut due = begun;
        let mut times = Vec::new();
        while due.since(begun) < spell {
            while MonotonicClock.now() < due {
                spin_loop();
            }
            times.push(self.read());
            let now = MonotonicClock.now();
            while due < now {
                due = due + step;
            }
        }
        times
    }
}

/// Sleeps most of the time, so that the processor rests as well.
pub(crate) fn wait_until(until: Instant) {
    const NEAR: Duration = Duration::from_micros(300);
    loop {
        let left = until.since(MonotonicClock.now());
        if left.is_zero() {
            return;
        }
        if left > NEAR {
            std::thread::park_timeout(left - NEAR);
        } else {
            spin_loop();
        }
    }
}
