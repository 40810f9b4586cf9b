//! An in-flight region with any content, as a front-end may hand one over, and a ring that goes on
//! from it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memory::{Backing, Pages, Pool, Segment};
use std::cell::RefCell;
use virtqueue::{BadAddress, Chain, Features, GuestMemory, Inflight, Layout, RingMemory, Vring};

const SIZE: u16 = 8;
const BYTES: usize = 4096;

/// Guest memory that begins at guest address 0.
struct Flat(Segment);

impl GuestMemory for Flat {
    fn translate(
        &self,
        address: u64,
        length: u64,
        _hint: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        let bad = BadAddress { address, length };
        let end = address.checked_add(length).ok_or(bad)?;
        if end > units::bytes_u64(self.0.len()) {
            return Err(bad);
        }
        let (start, length) = (units::bytes_usize(address), units::bytes_usize(length));
        out.push(self.0.part(start, length));
        Ok(())
    }
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(
        Pool::new(1, BYTES, Backing::Anonymous(Pages::Plain)).expect("memory"),
    );
}

fuzz_target!(|data: &[u8]| {
    POOL.with_borrow_mut(|pool| {
        let buffer = pool.acquire().expect("one");
        run(pool.segment(&buffer), data);
        pool.release(buffer);
    });
});

fn run(all: Segment, data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    all.fill(0);
    let count = data.len().min(all.len());
    all.part(0, count).copy_from_slice(&data[..count]);
    let layout = if choice & 1 == 0 {
        Layout::Split
    } else {
        Layout::Packed
    };
    let features = Features {
        event_idx: choice & 2 != 0,
        indirect: choice & 4 != 0,
    };
    let stride = units::bytes_usize(Inflight::stride(layout, SIZE));
    let start = stride.next_multiple_of(64);
    let ring = RingMemory {
        descriptors: all.part(start, 128),
        driver: all.part(start + 128, 64),
        device: all.part(start + 192, 128),
    };
    let Ok(inflight) = Inflight::new(layout, SIZE, all, 0) else {
        return;
    };
    let Ok(mut vring) = Vring::new(layout, SIZE, ring, features, u32::from(choice >> 3)) else {
        return;
    };
    if vring.attach(inflight).is_err() {
        return;
    }
    let (memory, mut chain) = (Flat(all), Chain::default());
    for _ in 0..4 * SIZE {
        match vring.pop(&memory, &mut chain) {
            Ok(true) => vring.push(chain.head, 1),
            Ok(false) => break,
            Err(_) => return,
        }
        let _ = vring.publish();
    }
}
