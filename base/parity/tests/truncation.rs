//! A guest that takes its memory away while its stripe is copied and summed.
// Miri knows neither memory files nor signals.
#![cfg(not(miri))]
#![allow(
    unsafe_code,
    reason = "segments of memory that the test itself owns are made here"
)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::os::fd::AsFd;

use memory::Segment;
use memory::guest::{Mapping, survive_truncation};
use parity::{Backend, Code};
use units::bytes_u64;

const CHUNK: usize = 8192;

/// A file in memory without a name.
fn file(bytes: usize) -> File {
    let path = format!("/dev/shm/garboard-parity-{}", std::process::id());
    let file = File::create_new(&path);
    fs::remove_file(&path).unwrap();
    let file = file.unwrap();
    file.set_len(bytes_u64(bytes)).unwrap();
    file
}

fn chunks(of: Segment, count: usize) -> Vec<Segment> {
    (0..count).map(|at| of.part(at * CHUNK, CHUNK)).collect()
}

#[test]
fn what_is_left_of_a_stripe_is_copied_and_its_parity_is_that_of_the_copy() {
    survive_truncation().unwrap();
    for backend in Backend::available() {
        for (data, parity) in [(2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (3, 3)] {
            let code = Code::with_backend(data, parity, backend).unwrap();
            let bytes = data * CHUNK;
            let guests = file(bytes);
            let mapping = Mapping::new(guests.as_fd(), 0, bytes_u64(bytes)).unwrap();
            mapping.segment().fill(7);
            // Of the last chunk the second half is gone. Who looks there gets zeroes for all of
            // the mapping from then on, also for what was looked at just before.
            let left = bytes - CHUNK / 2;
            guests.set_len(bytes_u64(left)).unwrap();

            let mut ours = vec![1u8; (data + 2 * parity) * CHUNK];
            // SAFETY: `ours` outlives the segment and is not touched meanwhile.
            let whole = unsafe { Segment::new(ours.as_mut_ptr(), ours.len()) };
            let made = chunks(whole, data + 2 * parity);
            let (copies, targets) = made.split_at(data);
            let (targets, expected) = targets.split_at(parity);
            code.copy_generate(&chunks(mapping.segment(), data), copies, targets);
            code.generate(copies, expected);

            assert!(mapping.is_broken(), "{code:?}");
            for (target, expected) in targets.iter().zip(expected) {
                assert!(target.equals(*expected), "{code:?}: parity of the copies");
            }
            let known = |&byte: &u8| byte == 7 || byte == 0;
            assert!(ours[..left].iter().all(known), "{code:?}");
            assert!(ours[left..bytes].iter().all(|&byte| byte == 0), "{code:?}");
        }
    }
}
