//! The figures of an array that has all its members, and the bounds that are not drives'.
//!
//! N members in g groups of n = k + M; per drive R and W (4 KiB random reads and writes), X (both
//! together), SR and SW (sequential), A = SW / 4 KiB.

use super::{Bound, Cores, Cost, Limits, Numbers, Shape, Unit, Workload, float};

/// Reads of each hundred requests of the mixed workload.
const MIXED_READS: f64 = 0.7;

/// What all workloads with every member there can do.
pub(super) fn workloads(numbers: &Numbers, shape: &Shape) -> Vec<Workload> {
    let mut workloads = vec![
        random_read(numbers),
        random_write(numbers),
        random_mixed(numbers),
        sequential_read(numbers),
    ];
    if shape.parity > 0 {
        workloads.push(sequential_read_data(numbers));
    }
    workloads.push(sequential_write(numbers));
    if shape.parity > 0 && shape.data > 1 {
        workloads.push(random_write_strict(numbers));
        workloads.push(sequential_write_strict(numbers));
    }
    workloads
}

pub(super) fn bound(bound: &'static str, formula: &str, value: f64) -> Bound {
    Bound {
        bound,
        formula: formula.to_owned(),
        value,
    }
}

fn random_read(numbers: &Numbers) -> Workload {
    let value = numbers.members * numbers.read_iops;
    Workload {
        name: "random_read",
        unit: Unit::Iops,
        bounds: vec![bound("random reads of the drives", "N·R", value)],
        cost: Cost::random(1.0, Cores::Read),
        latency: Some(numbers.read_seconds),
        note: None,
    }
}

/// The formula of one write that reaches 1 + M drives.
fn shared(numbers: &Numbers, figure: &str) -> String {
    match (numbers.parity, numbers.data, numbers.groups) {
        (0.0, _, _) => format!("N·{figure}"),
        (1.0, 1.0, _) => format!("N·{figure}/2"),
        (_, _, _) => format!("N·{figure}/(1+M)"),
    }
}

fn random_write(numbers: &Numbers) -> Workload {
    let (reads, writes) = (numbers.write_reads(), 1.0 + numbers.parity);
    let mut bounds = vec![bound(
        "random writes of the drives",
        &shared(numbers, "W"),
        numbers.members * numbers.write_iops / writes,
    )];
    if reads > 0.0 {
        bounds.push(bound(
            "random reads of the drives",
            "N·R/min(1+M, k-1)",
            numbers.members * numbers.read_iops / reads,
        ));
    }
    if let (Some(mixed), true) = (numbers.mixed_iops, reads > 0.0) {
        bounds.push(bound(
            "random reads and writes of the drives together",
            "N·X/(1+M+min(1+M, k-1))",
            numbers.members * mixed / (reads + writes),
        ));
    }
    let first = if reads > 0.0 {
        numbers.read_seconds
    } else {
        0.0
    };
    Workload {
        name: "random_write",
        unit: Unit::Iops,
        bounds,
        cost: Cost::random(reads + writes, Cores::Write),
        latency: Some(first + numbers.write_seconds),
        note: (reads > 0.0).then_some(
            "often printed rounded, or as N·W without the parity's share: compare formulas before \
             figures",
        ),
    }
}

fn random_mixed(numbers: &Numbers) -> Workload {
    let written = 1.0 - MIXED_READS;
    let reads = MIXED_READS + written * numbers.write_reads();
    let writes = written * (1.0 + numbers.parity);
    let mut bounds = vec![
        bound(
            "random reads of the drives",
            "N·R/(0.7+0.3·r)",
            numbers.members * numbers.read_iops / reads,
        ),
        bound(
            "random writes of the drives",
            "N·W/(0.3·(1+M))",
            numbers.members * numbers.write_iops / writes,
        ),
    ];
    if let Some(mixed) = numbers.mixed_iops {
        bounds.push(bound(
            "random reads and writes of the drives together",
            "N·X/(0.7+0.3·(r+1+M))",
            numbers.members * mixed / (reads + writes),
        ));
    }
    Workload {
        name: "random_mixed_70_30",
        unit: Unit::Iops,
        bounds,
        cost: Cost::random(reads + writes, Cores::Mixed),
        latency: None,
        note: Some("70 reads to 30 writes; r = min(1+M, k-1), the drive reads of a small write"),
    }
}

fn sequential_read(numbers: &Numbers) -> Workload {
    Workload {
        name: "sequential_read",
        unit: Unit::BytesPerSecond,
        bounds: vec![bound(
            "sequential reads of all drives",
            "N·SR",
            numbers.members * numbers.read_rate,
        )],
        cost: Cost::sequential(1.0),
        latency: None,
        note: (numbers.parity > 0.0).then_some(
            "every drive reads without a pause; drives that read through or over the parity \
             between data end nearer to sequential_read_data",
        ),
    }
}

fn sequential_read_data(numbers: &Numbers) -> Workload {
    let (formula, value) = (
        "N·SR·k/(k+M)",
        numbers.members * numbers.read_rate * numbers.data / numbers.group,
    );
    Workload {
        name: "sequential_read_data",
        unit: Unit::BytesPerSecond,
        bounds: vec![bound("sequential reads of the data drives", formula, value)],
        cost: Cost::sequential(1.0),
        latency: None,
        note: Some("as if the parity's share of every drive's time were lost"),
    }
}

fn sequential_write(numbers: &Numbers) -> Workload {
    let value = numbers.members * numbers.write_rate * numbers.data / numbers.group;
    let formula = match (numbers.parity, numbers.data) {
        (0.0, _) => "N·SW",
        (1.0, 1.0) => "N·SW/2",
        (_, _) => "N·SW·k/(k+M)",
    };
    Workload {
        name: "sequential_write",
        unit: Unit::BytesPerSecond,
        bounds: vec![bound("sequential writes of the drives", formula, value)],
        cost: Cost::sequential(numbers.group / numbers.data),
        latency: None,
        note: None,
    }
}

/// `--write-hole strict`: each of the 1 + M parts of a write is appended to its member's log,
/// with 4 KiB of header, before it is written in place.
fn random_write_strict(numbers: &Numbers) -> Workload {
    let writes = 1.0 + numbers.parity;
    let seconds = writes / numbers.write_iops + writes * 2.0 / numbers.append_iops();
    // A group with two data chunks and more always reads something.
    let reads = numbers.write_reads();
    let mut bounds = vec![
        bound(
            "random writes and log appends of the drives",
            "N/((1+M)/W+(1+M)·2/A)",
            numbers.members / seconds,
        ),
        bound(
            "random reads of the drives",
            "N·R/min(1+M, k-1)",
            numbers.members * numbers.read_iops / reads,
        ),
    ];
    if let Some(mixed) = numbers.mixed_iops {
        bounds.push(bound(
            "random reads and writes, and log appends, of the drives together",
            "N/((1+M+min(1+M, k-1))/X+(1+M)·2/A)",
            numbers.members / ((reads + writes) / mixed + writes * 2.0 / numbers.append_iops()),
        ));
    }
    Workload {
        name: "random_write_strict",
        unit: Unit::Iops,
        bounds,
        cost: Cost::random(3.0 * writes + numbers.write_reads(), Cores::Write),
        latency: None,
        note: Some("with --write-hole strict; flushes of the log are not counted"),
    }
}

/// The same of whole stripes, but for the headers, which are few beside them.
fn sequential_write_strict(numbers: &Numbers) -> Workload {
    let once = numbers.members * numbers.write_rate * numbers.data / numbers.group;
    Workload {
        name: "sequential_write_strict",
        unit: Unit::BytesPerSecond,
        bounds: vec![bound(
            "sequential writes and log appends of the drives",
            "N·SW·k/(k+M)/2",
            once / 2.0,
        )],
        cost: Cost::sequential(2.0 * numbers.group / numbers.data),
        latency: None,
        note: Some("with --write-hole strict everything is written twice"),
    }
}

/// Adds the bounds that are not of the drives.
pub(super) fn add_limits(workload: &mut Workload, limits: &Limits) {
    let cost = workload.cost;
    let host = limits.host_bytes_per_second.map(float);
    let network = limits.network_bytes_per_second.map(float);
    let operations = limits.host_iops.map(float).zip(cost.operations);
    let all = [
        (
            host.map(|rate| rate / cost.bytes),
            "the host's bandwidth to its drives",
            "host bandwidth/(drive bytes of a request or byte)",
        ),
        (
            network
                .filter(|_| cost.client_bytes > 0.0)
                .map(|rate| rate / cost.client_bytes),
            "the network's bandwidth",
            "network bandwidth/(bytes of a request or byte)",
        ),
        (
            operations.map(|(rate, operations)| rate / operations),
            "the host's requests to its drives",
            "host requests/(drive requests of a request)",
        ),
    ];
    for (value, name, formula) in all {
        if let Some(value) = value {
            workload.bounds.push(bound(name, formula, value));
        }
    }
    if let Some((value, formula)) = cores(cost.cores, limits) {
        let cores = bound("the engine's cores", formula, value);
        workload.bounds.push(cores);
    }
}

/// Requests of a kind that the engine's cores answer in a second, as far as it was said.
fn cores(kind: Cores, limits: &Limits) -> Option<(f64, &'static str)> {
    let (reads, writes) = (limits.core_read_iops, limits.core_write_iops);
    let plain = "cores·requests per core";
    match kind {
        Cores::Read => Some((float(reads?), plain)),
        Cores::Write => Some((float(writes?), plain)),
        Cores::Mixed => {
            let read_seconds = reads.map(|reads| MIXED_READS / float(reads));
            let write_seconds = writes.map(|writes| (1.0 - MIXED_READS) / float(writes));
            // One of both alone is a bound, too: the others cannot take less than no time.
            let (seconds, formula) = match (read_seconds, write_seconds) {
                (None, None) => return None,
                (Some(reads), None) => (reads, "cores·reads per core/0.7"),
                (None, Some(writes)) => (writes, "cores·writes per core/0.3"),
                (Some(reads), Some(writes)) => (
                    reads + writes,
                    "cores/(0.7/reads per core+0.3/writes per core)",
                ),
            };
            Some((1.0 / seconds, formula))
        }
        Cores::Unknown => None,
    }
}
