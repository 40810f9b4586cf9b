//! A slice of the simulator's seeds; `cargo run -p sim --release -- --seeds N` runs as many as
//! wanted.

#[test]
fn histories_of_many_seeds_keep_every_promise() {
    for seed in 0..200 {
        let well = std::panic::catch_unwind(|| sim::history::run(seed));
        assert!(
            well.is_ok(),
            "again: cargo run -p sim --release -- --seed {seed} --seeds 1"
        );
    }
}
