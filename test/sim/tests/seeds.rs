//! A slice of the simulator's seeds; `cargo run -p sim --release -- --seeds N` runs as many as
//! wanted.

use std::ops::ControlFlow;

use sim::jobs;

/// So many that the test ends in well under a minute on two cores.
const SEEDS: u64 = 240;

#[test]
fn histories_of_many_seeds_keep_every_promise() {
    sim::keep_freed_memory();
    let work = |seed| std::panic::catch_unwind(|| sim::history::run(seed)).is_ok();
    let mut broken = None;
    jobs::in_order(jobs::usual(), 0..SEEDS, work, |seed, well| {
        if well {
            return ControlFlow::Continue(());
        }
        broken = Some(seed);
        ControlFlow::Break(())
    });
    if let Some(seed) = broken {
        panic!("again: cargo run -p sim --release -- --seed {seed} --seeds 1");
    }
}

#[test]
fn a_seed_gives_the_same_events_whenever_it_is_run() {
    for seed in 0..8 {
        let [first, second] = [0, 1].map(|_| sim::history::run(seed).trace);
        assert!(
            first == second,
            "seed {seed} gave events {first:016x}, then {second:016x}: something in the engine or \
             in the simulator depends on more than the seed (a hash map's order, an address, the \
             real time), and no failure can be run again"
        );
    }
    let [one, other] = [8, 9].map(|seed| sim::history::run(seed).trace);
    assert_ne!(one, other, "another seed is another history");
}
