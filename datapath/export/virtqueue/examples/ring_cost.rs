//! Prints nanoseconds per request for popping and pushing: three descriptors (header, 4 KiB,
//! status), 64 requests a batch, several batches of distinct memory.
//!
//! `cargo run --release -p virtqueue --example ring_cost`
#![allow(clippy::print_stdout, reason = "a program to be read by people")]

use std::os::fd::AsFd;
use std::sync::Arc;

use guest::{Driver, Memory, Options, Part};
use memory::guest::{Mapping, Region, RegionTable};
use units::{Clock, MonotonicClock, bytes_u64};
use virtqueue::{Chain, Features, Head, Inflight, Layout, RingMemory, Vring};

const BATCH: usize = 64;
const BATCHES: usize = 20_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Case {
    layout: Layout,
    tables: Tables,
    record: Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    Direct,
    Indirect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Without,
    Inflight,
}

fn main() {
    println!("nanoseconds per request: fastest tenth of batches, and median");
    for layout in [Layout::Split, Layout::Packed] {
        for tables in [Tables::Direct, Tables::Indirect] {
            for record in [Record::Without, Record::Inflight] {
                let case = Case {
                    layout,
                    tables,
                    record,
                };
                let [tenth, median] = run(case);
                println!("{tenth:6.1} {median:6.1}  {layout:?} {tables:?} {record:?}");
            }
        }
    }
}

/// Other work of the machine only adds to a batch, so low quantiles of all batches tell most.
fn run(case: Case) -> [f64; 2] {
    let memory = Arc::new(Memory::new(64 << 20).expect("a memory file"));
    let table = regions(&memory);
    let mut driver = Driver::new(&memory, Options::new(driver_layout(case.layout), 256));
    let features = Features {
        event_idx: true,
        indirect: case.tables == Tables::Indirect,
    };
    let ring = ring_memory(&driver);
    let mut vring = Vring::new(case.layout, 256, ring, features, driver.base()).expect("good");
    let bytes = units::bytes_usize(Inflight::bytes(case.layout, 256, 1));
    let region = Memory::heap(bytes);
    if case.record == Record::Inflight {
        let record = Inflight::new(case.layout, 256, region.segment(), 0).expect("good");
        vring.attach(record).expect("good");
    }
    let requests: Vec<(u64, [Part; 3])> = (0..BATCH).map(|_| request(&memory)).collect();
    let clock = MonotonicClock;
    let mut chain = Chain::with_capacity(8);
    let mut heads: Vec<Head> = Vec::with_capacity(BATCH);
    let mut spent = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        for (table, parts) in &requests {
            let submitted = if case.tables == Tables::Indirect {
                driver.submit_table(*table, parts)
            } else {
                driver.submit(parts)
            };
            assert!(submitted.is_some());
        }
        let before = clock.now();
        while vring.pop(&*table, &mut chain).expect("an honest guest") {
            heads.push(chain.head);
        }
        for head in heads.drain(..) {
            vring.push(head, 4097);
        }
        let _ = std::hint::black_box(vring.publish());
        spent.push(clock.now().since(before).as_nanos());
        while driver.reap().is_some() {}
    }
    spent.sort_unstable();
    [BATCHES / 10, BATCHES / 2].map(|at| {
        let batch = u32::try_from(spent[at]).expect("less than seconds");
        f64::from(batch) / f64::from(u32::try_from(BATCH).expect("small"))
    })
}

fn driver_layout(layout: Layout) -> guest::Layout {
    match layout {
        Layout::Split => guest::Layout::Split,
        Layout::Packed => guest::Layout::Packed,
    }
}

/// Memory of one request, and of its indirect table.
fn request(memory: &Memory) -> (u64, [Part; 3]) {
    let part = |length: u32, writable| Part {
        address: memory.allocate(usize::try_from(length).expect("small"), 16),
        length,
        writable,
    };
    let parts = [part(16, false), part(4096, true), part(1, true)];
    (memory.allocate(48, 16), parts)
}

fn regions(memory: &Memory) -> Arc<RegionTable> {
    let length = bytes_u64(memory.segment().len());
    let mapping = Mapping::new(memory.file().as_fd(), 0, length).expect("mapped");
    let region = Region {
        guest_base: Memory::START,
        front_end_base: Memory::START,
        length,
        mapping,
        offset: 0,
    };
    RegionTable::new(vec![region]).expect("one region")
}

fn ring_memory(driver: &Driver) -> RingMemory {
    let find = |(address, length): (u64, usize)| {
        let segment = driver.memory().find(address, bytes_u64(length));
        segment.expect("a ring is in guest memory")
    };
    let addresses = driver.addresses();
    RingMemory {
        descriptors: find(addresses.descriptors),
        driver: find(addresses.driver),
        device: find(addresses.device),
    }
}
