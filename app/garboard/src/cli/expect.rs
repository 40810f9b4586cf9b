//! `garboard expect`: what an array of given drives can do at most. Asks no engine.

use array::Level;
use clap::Args;
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use units::Size;

use crate::Console;
use crate::expect::{self, Asked, Expectation, Limits, Unit, Workload};
use crate::output::{self, Output, amount};

/// How a model of one's own is written, at the end of the help.
const MODEL_FORMAT: &str = "\
A model of your own is a TOML file:

  name = \"my-drive\"             letters, digits, `.`, `_` and `-`
  title = \"what people call it\"
  volatile_cache = true          or nothing: drives with power-loss protection

  [capacity_bytes]
  value = 3_840_000_000_000
  source = \"where the figure is from\"

and such a table for each of read_iops, write_iops (4 KiB random), read_bytes_per_second,
write_bytes_per_second, read_latency_us, write_latency_us and, where reads and writes disturb each
other, mixed_iops.";

/// What an array of given drives can do at most, and what binds it.
#[derive(Debug, Args)]
#[command(after_long_help = MODEL_FORMAT)]
pub(super) struct Expect {
    #[command(flatten)]
    shape: Shape,
    /// A built-in model (kioxia-cm7, kioxia-cm6, intel-p5520, micron-7450-pro, hdd-7200), or the
    /// path of a file with figures of your own (the end of this help has the format)
    #[arg(long, value_name = "NAME|FILE", value_parser = model)]
    drive_model: Model,
    #[command(flatten)]
    limits: Bounds,
}

#[derive(Debug, Args)]
pub(super) struct Shape {
    /// 0, 1, 10, 5, 6, 7 (triple parity), nm, 50, 60 or 70
    #[arg(long, value_parser = str::parse::<Level>)]
    level: Level,
    /// All drives, spares among them
    #[arg(long, value_name = "N")]
    drives: u16,
    /// Drives of these that wait as spares
    #[arg(long, value_name = "N", default_value = "0")]
    spares: u16,
    /// Members of a group, for levels 10, 50, 60 and 70
    #[arg(long, value_name = "N")]
    group_size: Option<u16>,
    /// Parity chunks of a stripe, for level nm
    #[arg(long, value_name = "M")]
    parity: Option<u16>,
    /// Bytes of a chunk, 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = super::size)]
    chunk: Size,
    /// How many drives each group has lost, for the degraded figures [default: 1]
    #[arg(long, value_name = "F")]
    lost: Option<u16>,
}

/// What may bind besides drives.
#[derive(Debug, Args)]
pub(super) struct Bounds {
    /// Bytes per second between all drives and memory: the least of buses, adapters, enclosures
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    host_bandwidth: Option<Size>,
    /// Requests per second to all drives together, measured on all at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 52))]
    host_iops: Option<u64>,
    /// Bytes per second between this host and its clients
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    network_bandwidth: Option<Size>,
    /// Cores of the engine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    cores: Option<u64>,
    /// Random reads per second that one core of the engine answers
    #[arg(long, value_name = "N", requires = "cores",
          value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    core_read_iops: Option<u64>,
    /// Random writes per second that one core of the engine answers
    #[arg(long, value_name = "N", requires = "cores",
          value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    core_write_iops: Option<u64>,
    /// The most that a rebuild may write, bytes per second
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rebuild_rate: Option<Size>,
}

/// Bytes per second, above zero.
fn rate(text: &str) -> Result<Size, String> {
    match super::size(text)? {
        Size(bytes) if bytes > 0 && bytes < 1 << 52 => Ok(Size(bytes)),
        _ => Err(format!("`{text}` is not a rate of bytes per second")),
    }
}

/// A drive model by name or file.
pub(super) fn model(text: &str) -> Result<Model, String> {
    Model::find(text).map_err(|error| error.to_string())
}

impl Shape {
    /// The shape as plain numbers.
    pub(super) fn asked(&self) -> Asked {
        Asked {
            level: self.level,
            drives: usize::from(self.drives),
            spares: usize::from(self.spares),
            group_size: self.group_size.map(usize::from),
            parity: self.parity.map(usize::from),
            chunk_bytes: self.chunk.0,
            lost: self.lost.map(usize::from),
        }
    }
}

impl Bounds {
    fn limits(&self) -> Limits {
        let cores = |each: Option<u64>| self.cores.zip(each).map(|(cores, each)| cores * each);
        Limits {
            host_bytes_per_second: self.host_bandwidth.map(|rate| rate.0),
            host_iops: self.host_iops,
            network_bytes_per_second: self.network_bandwidth.map(|rate| rate.0),
            core_read_iops: cores(self.core_read_iops),
            core_write_iops: cores(self.core_write_iops),
            rebuild_bytes_per_second: self.rebuild_rate.map(|rate| rate.0),
        }
    }
}

impl Expect {
    pub(super) fn run(&self, output: Output, console: &mut Console<'_>) -> Answer<()> {
        let asked = self.shape.asked();
        let expected = expect::expect(&asked, &self.drive_model, &self.limits.limits());
        let expected = expected.map_err(|message| {
            EngineError::new(ErrorKind::Invalid, "expect", message)
                .next("`garboard expect --help` says what each level takes")
        })?;
        match output {
            Output::Json => output::json(&expected, console),
            Output::Table => output::line(console, &text(&expected, console.width)),
        }
    }
}

/// The answer for people.
fn text(expected: &Expectation, width: Option<u16>) -> String {
    let shape = &expected.shape;
    let mut lines = vec![
        format!(
            "level {}: {} drives serve in {} of {}+{}, {} spare; chunk {}, stripe {}",
            shape.level,
            shape.members,
            match shape.groups {
                1 => "1 group".to_owned(),
                groups => format!("{groups} groups"),
            },
            shape.data,
            shape.parity,
            shape.spares,
            Size(shape.chunk_bytes),
            Size(shape.stripe_bytes),
        ),
        format!(
            "capacity: {} usable of {}",
            amount(expect::float(shape.usable_bytes), "B"),
            amount(expect::float(shape.raw_bytes), "B"),
        ),
        String::new(),
    ];
    let mut rows = Vec::new();
    for workload in &expected.workloads {
        let binding = workload.binding();
        rows.push(vec![
            workload.name.to_owned(),
            figure(workload, binding.value),
            binding.formula.clone(),
            binding.bound.to_owned(),
        ]);
        for other in &workload.bounds {
            if !std::ptr::eq(other, binding) {
                let value = figure_of_other(workload, other.value);
                let bound = other.bound.to_owned();
                rows.push(vec![String::new(), value, other.formula.clone(), bound]);
            }
        }
    }
    let heads = ["WORKLOAD", "AT MOST", "FORMULA", "BOUND BY"];
    lines.push(output::fitted(&heads, &rows, &[], width));
    lines.push(String::new());
    lines.extend(letters(expected));
    lines.push(String::new());
    for workload in &expected.workloads {
        if let Some(note) = workload.note {
            lines.push(format!("{}: {note}", workload.name));
        }
    }
    lines.extend(expected.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n")
}

/// What the letters of the formulas stand for, and where the figures are from.
fn letters(expected: &Expectation) -> Vec<String> {
    let (shape, model) = (&expected.shape, &expected.drive_model);
    let mut lines = vec![format!(
        "N {}, g {}, k {}, M {}, n = k+M {}, f (lost of each group) {}, A = SW/4 KiB",
        shape.members,
        shape.groups,
        shape.data,
        shape.parity,
        shape.data + shape.parity,
        shape.lost,
    )];
    lines.push(format!("drive model {}: {}", model.name, model.title));
    for (name, found) in model.figures() {
        let value = expect::float(found.value);
        let (letter, value) = match name {
            "capacity_bytes" => ("C", amount(value, "B")),
            "read_iops" => ("R", amount(value, "IOPS")),
            "write_iops" => ("W", amount(value, "IOPS")),
            "mixed_iops" => ("X", amount(value, "IOPS")),
            "read_bytes_per_second" => ("SR", amount(value, "B/s")),
            "write_bytes_per_second" => ("SW", amount(value, "B/s")),
            "read_latency_us" => ("read at depth 1", format!("{value} us")),
            _ => ("write at depth 1", format!("{value} us")),
        };
        lines.push(format!("  {letter} {value}: {}", found.source));
    }
    lines
}

/// The figure of a workload, with what it needs to be reached.
fn figure(workload: &Workload, value: f64) -> String {
    let plain = figure_of_other(workload, value);
    match workload.in_flight() {
        Some(in_flight) => format!("{plain} ({in_flight:.0} in flight)"),
        None => plain,
    }
}

fn figure_of_other(workload: &Workload, value: f64) -> String {
    match workload.unit {
        Unit::Iops => amount(value, "IOPS"),
        Unit::BytesPerSecond => amount(value, "B/s"),
        Unit::Seconds => seconds(value),
    }
}

/// A time for people.
fn seconds(value: f64) -> String {
    match value {
        value if value >= 7200.0 => format!("{:.1} h", value / 3600.0),
        value if value >= 120.0 => format!("{:.1} min", value / 60.0),
        value => format!("{value:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_the_unit_that_fits() {
        for (value, unit, expected) in [
            (64_800_000.0, "IOPS", "64.8 M IOPS"),
            (8_400_000.0, "IOPS", "8.40 M IOPS"),
            (148_500_000_000.0, "B/s", "149 GB/s"),
            (155_250_000_000.0, "B/s", "155 GB/s"),
            (999_600.0, "IOPS", "1.00 M IOPS"),
            (999_400.0, "IOPS", "999 k IOPS"),
            (170.0, "IOPS", "170 IOPS"),
            (127.5, "IOPS", "128 IOPS"),
            (42.5, "IOPS", "42.5 IOPS"),
            (92_160_000_000_000.0, "B", "92.2 TB"),
        ] {
            assert_eq!(amount(value, unit), expected);
        }
        assert_eq!(seconds(568.9), "9.5 min");
        assert_eq!(seconds(76_923.1), "21.4 h");
        assert_eq!(seconds(59.96), "60.0 s");
    }
}
