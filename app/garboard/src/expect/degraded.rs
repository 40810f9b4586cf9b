//! The figures of an array in which every group has lost f members, and of their rebuild.
//!
//! Losses fall on data and parity chunks of a stripe as the rotation deals them: which of a
//! stripe's chunks are lost is hypergeometric. What a write then reads and writes follows the
//! engine's planner; what it logs, `--write-hole auto`.

use super::roofline::bound;
use super::{Bound, Cores, Cost, Limits, Numbers, Unit, Workload, float, small_write_reads};

/// Everything about the loss of `numbers.lost` members in each group, at least one,
/// but for the time of the rebuild.
pub(super) fn workloads(numbers: &Numbers, limits: &Limits) -> Vec<Workload> {
    vec![
        random_read(numbers),
        random_write(numbers),
        sequential_read(numbers),
        sequential_write(numbers),
        rebuild_rate(numbers, limits),
    ]
}

/// Drive reads of one user read: one where the chunk is there, k where it is lost.
pub(super) fn load(numbers: &Numbers) -> f64 {
    let survivors = numbers.group - numbers.lost;
    (survivors + numbers.lost * numbers.data) / numbers.group
}

/// Members that are left in the whole array.
fn survivors(numbers: &Numbers) -> f64 {
    numbers.groups * (numbers.group - numbers.lost)
}

fn random_read(numbers: &Numbers) -> Workload {
    let value = survivors(numbers) * numbers.read_iops / load(numbers);
    Workload {
        name: "degraded_random_read",
        unit: Unit::Iops,
        bounds: vec![bound(
            "random reads of the survivors",
            "g·(n-f)·R/(((n-f)+f·k)/n)",
            value,
        )],
        cost: Cost::random(load(numbers), Cores::Read),
        latency: None,
        note: Some(
            "every group has lost f; reads spread evenly over the array end here when only one \
             group has, because it answers its share last",
        ),
    }
}

/// What a small write costs, on average over where the losses are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WriteCost {
    /// Drive reads.
    pub(super) reads: f64,
    /// Drive writes in place.
    pub(super) writes: f64,
    /// Drive writes that are appended to the log first.
    pub(super) logged: f64,
}

/// n over r, exactly enough for n up to 64.
fn choose(n: f64, r: f64) -> f64 {
    let (mut value, mut step) = (1.0, 0.0);
    while step < r {
        value = value * (n - step) / (step + 1.0);
        step += 1.0;
    }
    value
}

/// See [`WriteCost`].
pub(super) fn write_cost(numbers: &Numbers) -> WriteCost {
    let Numbers {
        group,
        data,
        parity,
        lost,
        ..
    } = *numbers;
    let mut cost = WriteCost::default();
    let mut add = |chance: f64, reads: f64, writes: f64, logged: bool| {
        cost.reads += chance * reads;
        cost.writes += chance * writes;
        cost.logged += if logged { chance * writes } else { 0.0 };
    };
    let mut lost_parity = (lost - data).max(0.0);
    while lost_parity <= lost.min(parity) {
        let lost_data = lost - lost_parity;
        let chance = choose(parity, lost_parity) * choose(data, lost_data) / choose(group, lost);
        let left = parity - lost_parity;
        // A mirror has one data chunk: its copies say everything, and nothing is logged.
        let logged = lost_data > 0.0 && data > 1.0;
        let own = lost_data / data;
        let reads_without = if lost_data <= 1.0 { data - 1.0 } else { data };
        add(chance * own, reads_without, left, logged);
        let reads_with = if lost_data > 0.0 {
            1.0 + left
        } else {
            small_write_reads(data, left)
        };
        let reads_with = if left == 0.0 { 0.0 } else { reads_with };
        add(chance * (1.0 - own), reads_with, 1.0 + left, logged);
        lost_parity += 1.0;
    }
    cost
}

fn random_write(numbers: &Numbers) -> Workload {
    let cost = write_cost(numbers);
    let survivors = survivors(numbers);
    let seconds = cost.writes / numbers.write_iops + cost.logged * 2.0 / numbers.append_iops();
    let (what, formula) = if cost.logged > 0.0 {
        (
            "random writes and log appends of the survivors",
            "g·(n-f)/(w/W+l·2/A)",
        )
    } else {
        ("random writes of the survivors", "g·(n-f)·W/w")
    };
    let mut bounds = vec![bound(what, formula, survivors / seconds)];
    if cost.reads > 0.0 {
        bounds.push(bound(
            "random reads of the survivors",
            "g·(n-f)·R/r",
            survivors * numbers.read_iops / cost.reads,
        ));
    }
    if let (Some(mixed), true) = (numbers.mixed_iops, cost.reads > 0.0) {
        let appends = cost.logged * 2.0 / numbers.append_iops();
        bounds.push(bound(
            "random reads and writes, and log appends, of the survivors together",
            "g·(n-f)/((r+w)/X+l·2/A)",
            survivors / ((cost.reads + cost.writes) / mixed + appends),
        ));
    }
    Workload {
        name: "degraded_random_write",
        unit: Unit::Iops,
        bounds,
        cost: Cost::random(cost.reads + cost.writes + 2.0 * cost.logged, Cores::Write),
        latency: None,
        note: Some(if cost.logged > 0.0 {
            "r reads, w writes and l logged writes of a write, on average over where the losses \
             are; stripes that lack a data chunk are logged first (--write-hole auto); flushes of \
             the log are not counted"
        } else {
            "w writes of a write: the copies that are left; nothing is logged"
        }),
    }
}

fn sequential_read(numbers: &Numbers) -> Workload {
    let once = survivors(numbers) * numbers.read_rate;
    let mut bounds = vec![bound(
        "sequential reads of the survivors, each chunk once",
        "g·(n-f)·SR",
        once,
    )];
    if numbers.data > 1.0 {
        bounds.push(bound(
            "sequential reads of the survivors, read again for each lost chunk",
            "g·(n-f)·SR/(((n-f)+f·k)/n)",
            once / load(numbers),
        ));
    }
    Workload {
        name: "degraded_sequential_read",
        unit: Unit::BytesPerSecond,
        bounds,
        cost: Cost::sequential(load(numbers)),
        latency: None,
        note: (numbers.data > 1.0).then_some(
            "this engine reads a stripe's survivors once for themselves and once for what is \
             lost; the other bound is what reading once would allow",
        ),
    }
}

fn sequential_write(numbers: &Numbers) -> Workload {
    let all_parity = choose(numbers.parity, numbers.lost) / choose(numbers.group, numbers.lost);
    let logged = if numbers.data > 1.0 {
        1.0 - all_parity
    } else {
        0.0
    };
    let value = numbers.groups * numbers.data * numbers.write_rate / (1.0 + logged);
    let written = (numbers.group - numbers.lost) / numbers.data;
    Workload {
        name: "degraded_sequential_write",
        unit: Unit::BytesPerSecond,
        bounds: vec![if logged > 0.0 {
            bound(
                "sequential writes and log appends of the survivors",
                "g·k·SW/(1+p)",
                value,
            )
        } else {
            bound("sequential writes of the survivors", "g·k·SW", value)
        }],
        cost: Cost::sequential(written * (1.0 + logged)),
        latency: None,
        note: (logged > 0.0).then_some(
            "p, the part of stripes that lack a data chunk, is written twice (--write-hole auto)",
        ),
    }
}

/// What one new drive is filled with, per second, while nobody else uses the array.
fn rebuild_rate(numbers: &Numbers, limits: &Limits) -> Workload {
    let readers = numbers.group - numbers.lost;
    let mut bounds = vec![
        bound(
            "sequential writes of the new drive",
            "SW",
            numbers.write_rate,
        ),
        bound(
            "sequential reads of the survivors",
            "(n-f)·SR/k",
            readers * numbers.read_rate / numbers.data,
        ),
    ];
    if let Some(most) = limits.rebuild_bytes_per_second {
        bounds.push(bound(
            "the rate that is allowed",
            "--rebuild-rate",
            float(most),
        ));
    }
    Workload {
        name: "rebuild",
        unit: Unit::BytesPerSecond,
        bounds,
        // All f of a group are filled from one reading of its stripes; no client sees any of it.
        cost: Cost {
            client_bytes: 0.0,
            ..Cost::sequential(numbers.data + numbers.lost)
        },
        latency: None,
        note: Some(
            "bytes per second into each new drive of one group, which are filled together, \
             without other load",
        ),
    }
}

/// From first to last byte of a drive, at the rate that binds: all that limits it is known by now.
pub(super) fn rebuild_time(numbers: &Numbers, rate: &Workload) -> Workload {
    let binding = rate.binding();
    Workload {
        name: "rebuild_time",
        unit: Unit::Seconds,
        bounds: vec![Bound {
            bound: binding.bound,
            formula: match binding.formula.as_str() {
                word if word.chars().all(|letter| letter.is_ascii_uppercase()) => {
                    format!("C/{word}")
                }
                sum => format!("C/({sum})"),
            },
            value: numbers.capacity / binding.value,
        }],
        cost: rate.cost,
        latency: None,
        note: Some("the whole drive, without other load"),
    }
}
