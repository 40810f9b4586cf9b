//! Volumes take turns, each in a line of its own.

use super::Bench;

/// In how many lines requests of these wait, when all tickets are taken.
fn lines(first: Option<u16>, second: Option<u16>) -> usize {
    let mut bench = Bench::new();
    let mut stripe = 0;
    while bench.shard.tickets.free() > 0 {
        bench.write_stripe(stripe);
        stripe += 1;
    }
    for volume in [first, second] {
        bench.volume = volume;
        bench.write_stripe(stripe);
        stripe += 1;
    }
    let lines = bench.shard.waiting_works.count();
    bench.answer_all();
    assert!(bench.shard.is_idle());
    lines
}

#[test]
fn volumes_take_turns_with_each_other_and_with_the_control_path() {
    assert_eq!(lines(Some(4), Some(4)), 1);
    for (first, second) in [(0, 1), (1, 0), (0, 62), (63, 1), (64, 65), (127, 128)] {
        assert_eq!(lines(Some(first), Some(second)), 2, "{first}, {second}");
    }
    for number in [0, 1, 62, 63, 64, 126, 128, u16::MAX] {
        assert_eq!(lines(Some(number), None), 2, "{number}");
    }
}
