//! Reactors tell what they do with their time.

use std::time::Duration;

use control::Engine;
use control::metrics::Samples;

use super::Bench;

#[test]
fn an_idle_reactor_is_parked_and_a_zeroing_one_is_busy() {
    let bench = Bench::tank();
    let look = || bench.host.status().reactors;
    let index = bench.host.state().arrays["tank"].index;
    // Nothing to do, and nobody asks.
    std::thread::park_timeout(Duration::from_millis(20));
    let before = look();
    assert!(
        before.iter().all(|reactor| reactor.state == "parked"),
        "{before:?}"
    );
    assert!(
        before
            .iter()
            .all(|reactor| reactor.idle_time_us_total >= 20_000),
        "{before:?}"
    );
    for _ in 0..8 {
        bench.host.engine.zero(index, 0, 1 << 17).expect("zeroed");
    }
    let after = look();
    let busy = |at: usize| after[at].busy_time_us_total - before[at].busy_time_us_total;
    assert!(busy(0) > 0 && busy(1) > 0, "{before:?} {after:?}");
    for name in ["reactor_busy_microseconds", "reactor_idle_microseconds"] {
        let metrics = bench.host.metrics();
        let metric = metrics.iter().find(|metric| metric.name == name);
        let Samples::Counters(samples) = &metric.expect("named").samples else {
            panic!("{name} counts");
        };
        assert!(
            samples.iter().all(|(_, value)| *value > 0),
            "{name}: {samples:?}"
        );
    }
}
