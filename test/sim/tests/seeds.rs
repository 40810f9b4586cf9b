//! A slice of the simulator's seeds; `cargo run -p sim --release -- --seeds N` runs as many as
//! wanted.

/// So many that the test ends in well under a minute on two cores.
const SEEDS: u64 = 60;

#[test]
fn histories_of_many_seeds_keep_every_promise() {
    for seed in 0..SEEDS {
        let well = std::panic::catch_unwind(|| sim::history::run(seed));
        assert!(
            well.is_ok(),
            "again: cargo run -p sim --release -- --seed {seed} --seeds 1"
        );
    }
}
