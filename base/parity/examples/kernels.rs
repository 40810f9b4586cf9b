//! Prints how fast each kernel is on each backend, in GB/s of data read, and relative to a copy
//! in the same run.
//!
//! `cargo run --release -p parity --example kernels [bytes per chunk]`
#![allow(
    unsafe_code,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement: it owns its memory, needs time and prints"
)]

use std::time::{Duration, Instant};

use memory::Segment;
use parity::{Backend, Change, Code};
use units::RoleSet;

/// Data chunks measured, and parity chunks.
const SIZES: [(usize, usize); 12] = [
    (8, 1),
    (23, 1),
    (4, 2),
    (8, 2),
    (11, 2),
    (23, 2),
    (8, 3),
    (11, 3),
    (8, 4),
    (11, 6),
    (16, 8),
    (32, 32),
];

fn main() {
    let argument = std::env::args().nth(1);
    let length = argument.map_or(16 << 10, |text| text.parse().expect("bytes per chunk"));
    let mut memory = vec![0x5au8; 140 * length + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let base = memory[skip..].as_mut_ptr();
    // SAFETY: `memory` outlives the segment and is not touched meanwhile.
    let whole = unsafe { Segment::new(base, 140 * length) };
    let chunks: Vec<Segment> = (0..140).map(|n| whole.part(n * length, length)).collect();
    let copy = rate(8 * length, || {
        for (to, from) in chunks[8..16].iter().zip(&chunks[..8]) {
            to.copy_from(*from);
        }
    });
    println!("chunks of {length} bytes; a copy of 8 chunks: {copy:.1} GB/s");
    println!(
        "{:12} {:>6} {:>16} {:>16} {:>16} {:>16}",
        "", "k+M", "generate", "and copy", "delta", "recover"
    );
    for backend in Backend::available() {
        for (data, parity) in SIZES {
            let code = Code::with_backend(data, parity, backend).expect("available");
            let rates = rates(&code, &chunks, length);
            let columns = rates.map(|rate| format!("{rate:8.1} ({:4.0} %)", 100.0 * rate / copy));
            println!(
                "{:12} {:>6} {}",
                format!("{backend:?}"),
                format!("{data}+{parity}"),
                columns.join(" ")
            );
        }
    }
}

/// Generate, copy and generate, delta (of its new bytes), recover of as much as can be lost.
fn rates(code: &Code, chunks: &[Segment], length: usize) -> [f64; 4] {
    let (data, rest) = chunks.split_at(code.data());
    let (parity, rest) = rest.split_at(code.parity());
    let copies = &rest[..code.data()];
    let rows: Vec<(usize, Segment)> = parity.iter().copied().enumerate().collect();
    let roles = RoleSet::range(0, code.data() + code.parity());
    let lost = roles.lowest(code.parity().min(code.data()));
    let decoder = code
        .decoder(roles.without(lost), lost)
        .expect("within parity");
    let change = Change {
        column: code.data() - 1,
        old: copies[0],
        new: data[0],
    };
    [
        rate(length * code.data(), || code.generate(data, parity)),
        rate(length * code.data(), || {
            code.copy_generate(data, copies, parity);
        }),
        rate(length, || {
            code.delta(change.column, change.old, change.new, &rows);
        }),
        rate(length * code.data(), || {
            decoder.recover(data, &copies[..lost.len()]);
        }),
    ]
}

/// GB/s of the best of many runs, since other work on the machine only ever slows a run down.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(60) {
        let run = Instant::now();
        for _ in 0..8 {
            work();
        }
        best = best.min(run.elapsed().as_secs_f64() / 8.0);
    }
    let bytes = f64::from(u32::try_from(bytes).expect("a small measurement"));
    bytes / best / 1e9
}
