//! What an array of given drives can do at most: the roofline, as plain arithmetic.
//!
//! Every figure says the formula it comes from and what binds it; where several things limit the
//! same workload, all of them are kept and the least one counts. Nothing here talks to an engine.

mod degraded;
mod roofline;
#[cfg(test)]
mod tests;

use array::format::Layout;
use array::{Geometry, GeometryParameters, Level};
use models::Model;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use units::{BlockSize, bytes_u64, bytes_usize};

/// Bytes of a random request.
pub(crate) const RANDOM_BYTES: f64 = 4096.0;

/// The array that is asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Its level.
    pub(crate) level: Level,
    /// All drives, spares among them.
    pub(crate) drives: usize,
    /// Drives that wait and serve nothing.
    pub(crate) spares: usize,
    /// Members of a group, where the level does not say it.
    pub(crate) group_size: Option<usize>,
    /// Parity chunks of a stripe, where the level does not say it.
    pub(crate) parity: Option<usize>,
    /// Bytes of a chunk.
    pub(crate) chunk_bytes: u64,
    /// Drives that one group has lost, for the degraded figures; `None`: one, if it can.
    pub(crate) lost: Option<usize>,
}

/// What else may bind, besides drives; `None` is not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// What buses, adapters and enclosures move between all drives and memory, bytes per second.
    pub(crate) host_bytes_per_second: Option<u64>,
    /// Requests per second that all drives together take through them.
    pub(crate) host_iops: Option<u64>,
    /// What moves between the host and its clients, bytes per second.
    pub(crate) network_bytes_per_second: Option<u64>,
    /// What all cores of the engine answer, random reads per second.
    pub(crate) core_read_iops: Option<u64>,
    /// What all cores of the engine answer, random writes per second.
    pub(crate) core_write_iops: Option<u64>,
    /// What a rebuild may write, bytes per second.
    pub(crate) rebuild_bytes_per_second: Option<u64>,
}

/// The array's fixed numbers, as numbers for formulas.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Shape {
    #[serde(serialize_with = "as_name")]
    pub(crate) level: Level,
    /// N: drives that serve.
    pub(crate) members: usize,
    pub(crate) spares: usize,
    /// g.
    pub(crate) groups: usize,
    /// k.
    pub(crate) data: usize,
    /// M; copies beyond the first for mirrors.
    pub(crate) parity: usize,
    pub(crate) chunk_bytes: u64,
    pub(crate) stripe_bytes: u64,
    /// f: what one group has lost in the degraded figures.
    pub(crate) lost: usize,
    /// All drives, spares among them.
    pub(crate) raw_bytes: u64,
    /// What volumes can take: without redundancy, spares, and the engine's own records.
    pub(crate) usable_bytes: u64,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn as_name<S: Serializer>(level: &Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.name())
}

/// One thing that limits a workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bound {
    /// What it is that limits.
    pub(crate) bound: &'static str,
    /// How its value is calculated.
    pub(crate) formula: String,
    /// In the workload's unit.
    #[serde(serialize_with = "whole")]
    pub(crate) value: f64,
}

/// In what a figure is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Requests per second.
    Iops,
    /// Bytes per second.
    BytesPerSecond,
    /// Time.
    Seconds,
}

/// What an array can do of one kind of work.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// All that limit it; never empty.
    pub(crate) bounds: Vec<Bound>,
    /// What it asks of what is not a drive.
    cost: Cost,
    /// Seconds of one request on idle drives.
    latency: Option<f64>,
    /// What a reader must know to compare the figure with another.
    pub(crate) note: Option<&'static str>,
}

/// What one request, or one byte, of a workload asks of buses, networks and cores.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Drive requests of one request; for workloads counted in requests.
    operations: Option<f64>,
    /// Drive bytes of one request, or of one byte.
    bytes: f64,
    /// Client bytes of one request, or of one byte.
    client_bytes: f64,
    cores: Cores,
}

/// Which figure of the engine's cores binds a workload.
#[derive(Clone, Copy, Debug)]
enum Cores {
    Read,
    Write,
    /// Both, as the mix has them.
    Mixed,
    /// None that could be given.
    Unknown,
}

impl Cost {
    /// Of a 4 KiB request that becomes so many drive requests of 4 KiB.
    fn random(operations: f64, cores: Cores) -> Cost {
        Cost {
            operations: Some(operations),
            bytes: operations * RANDOM_BYTES,
            client_bytes: RANDOM_BYTES,
            cores,
        }
    }

    /// Of a byte that becomes so many drive bytes.
    fn sequential(bytes: f64) -> Cost {
        Cost {
            operations: None,
            bytes,
            client_bytes: 1.0,
            cores: Cores::Unknown,
        }
    }
}

impl Workload {
    /// The bound that counts: the least.
    pub(crate) fn binding(&self) -> &Bound {
        let least = self.bounds.iter().reduce(|least, bound| {
            if bound.value < least.value {
                bound
            } else {
                least
            }
        });
        least.expect("every workload has a bound")
    }

    /// The figure.
    pub(crate) fn value(&self) -> f64 {
        self.binding().value
    }

    /// Requests that must be in flight to get there at the least, by Little's law.
    pub(crate) fn in_flight(&self) -> Option<f64> {
        self.latency.map(|latency| (self.value() * latency).ceil())
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let binding = self.binding();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("value", &Whole(binding.value))?;
        map.serialize_entry("unit", &self.unit)?;
        map.serialize_entry("formula", &binding.formula)?;
        map.serialize_entry("bound", binding.bound)?;
        map.serialize_entry("bounds", &self.bounds)?;
        if let Some(in_flight) = self.in_flight() {
            map.serialize_entry("requests_in_flight", &Whole(in_flight))?;
        }
        if let Some(note) = self.note {
            map.serialize_entry("note", note)?;
        }
        map.end()
    }
}

/// A figure in JSON: a whole number of its base unit.
struct Whole(f64);

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        whole(&self.0, serializer)
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::trivially_copy_pass_by_ref,
    reason = "figures are positive and far below 2^63; the signature is serde's"
)]
fn whole<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    assert!(value.is_finite() && *value >= 0.0, "a figure");
    serializer.serialize_u64(value.round() as u64)
}

/// Everything about one array of one kind of drive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Expectation {
    #[serde(flatten)]
    pub(crate) shape: Shape,
    pub(crate) drive_model: Model,
    #[serde(serialize_with = "by_name")]
    pub(crate) workloads: Vec<Workload>,
    pub(crate) notes: Vec<&'static str>,
}

fn by_name<S: Serializer>(workloads: &[Workload], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(workloads.iter().map(|workload| (workload.name, workload)))
}

impl Shape {
    /// Checks what is asked against the same rules as `array create`.
    ///
    /// # Errors
    /// What is wrong and the way out, as a sentence.
    pub(crate) fn of(asked: &Asked, model: &Model) -> Result<Shape, String> {
        let members = asked.drives.checked_sub(asked.spares);
        let members = members.filter(|members| *members > 0).ok_or_else(|| {
            format!(
                "{} spares of {} drives leave none to serve",
                asked.spares, asked.drives
            )
        })?;
        let capacity = model.capacity_bytes.value;
        let block = BlockSize::B4096;
        let parameters = |member_data_blocks| GeometryParameters {
            level: asked.level,
            members,
            parity: asked.parity,
            group_size: asked.group_size,
            chunk_bytes: asked.chunk_bytes,
            block,
            member_data_blocks,
        };
        // First what does not depend on sizes: a wrong group is a clearer word than a small drive.
        Geometry::new(parameters(capacity / block.bytes())).map_err(|error| error.to_string())?;
        let layout =
            Layout::for_member(capacity, block, members).map_err(|small| small.to_string())?;
        let geometry = Geometry::new(parameters(layout.data.length / block.bytes()))
            .map_err(|error| error.to_string())?;
        let survives = geometry.parity();
        let lost = asked.lost.unwrap_or(survives.min(1));
        if lost > survives {
            return Err(format!(
                "a group of level {} survives the loss of {survives} drives, not of {lost}",
                asked.level
            ));
        }
        Ok(Shape {
            level: asked.level,
            members,
            spares: asked.spares,
            groups: geometry.groups(),
            data: geometry.data(),
            parity: geometry.parity(),
            chunk_bytes: asked.chunk_bytes,
            stripe_bytes: geometry.stripe_bytes(),
            lost,
            raw_bytes: capacity.saturating_mul(bytes_u64(asked.drives)),
            usable_bytes: geometry.blocks() * block.bytes(),
        })
    }
}

/// Calculates everything.
///
/// # Errors
/// See [`Shape::of`].
pub(crate) fn expect(asked: &Asked, model: &Model, limits: &Limits) -> Result<Expectation, String> {
    let shape = Shape::of(asked, model)?;
    let numbers = Numbers::of(&shape, model);
    let mut workloads = roofline::workloads(&numbers, &shape);
    if shape.lost > 0 {
        workloads.extend(degraded::workloads(&numbers, limits));
    }
    for workload in &mut workloads {
        roofline::add_limits(workload, limits);
    }
    let rebuild = workloads.iter().find(|workload| workload.name == "rebuild");
    let time = rebuild.map(|rate| degraded::rebuild_time(&numbers, rate));
    workloads.extend(time);
    Ok(Expectation {
        notes: notes(&shape, model, limits),
        shape,
        drive_model: model.clone(),
        workloads,
    })
}

/// The letters of the formulas, as numbers.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    /// N: members.
    members: f64,
    /// g: groups.
    groups: f64,
    /// n = k + M: members of a group.
    group: f64,
    /// k: data chunks of a stripe.
    data: f64,
    /// M: parity chunks of a stripe.
    parity: f64,
    /// f: lost members of one group, in every group.
    lost: f64,
    /// R: 4 KiB random reads per second of a drive.
    read_iops: f64,
    /// W: 4 KiB random writes per second of a drive.
    write_iops: f64,
    /// X: both together, if that is less.
    mixed_iops: Option<f64>,
    /// SR: sequential read of a drive.
    read_rate: f64,
    /// SW: sequential write of a drive.
    write_rate: f64,
    /// C: bytes of a drive.
    capacity: f64,
    /// Seconds of a 4 KiB read at depth 1.
    read_seconds: f64,
    /// Seconds of a 4 KiB write at depth 1.
    write_seconds: f64,
}

impl Numbers {
    fn of(shape: &Shape, model: &Model) -> Numbers {
        Numbers {
            members: count(shape.members),
            groups: count(shape.groups),
            group: count(shape.data + shape.parity),
            data: count(shape.data),
            parity: count(shape.parity),
            lost: count(shape.lost),
            read_iops: float(model.read_iops.value),
            write_iops: float(model.write_iops.value),
            mixed_iops: model.mixed_iops.as_ref().map(|mixed| float(mixed.value)),
            read_rate: float(model.read_bytes_per_second.value),
            write_rate: float(model.write_bytes_per_second.value),
            capacity: float(model.capacity_bytes.value),
            read_seconds: float(model.read_latency_us.value) / 1e6,
            write_seconds: float(model.write_latency_us.value) / 1e6,
        }
    }

    /// A: what a drive appends, 4 KiB blocks per second.
    fn append_iops(&self) -> f64 {
        self.write_rate / RANDOM_BYTES
    }

    /// Drive reads of one small write on a complete array: by read-modify-write the old chunk and
    /// old parity, by reconstruct-write the other data chunks, whichever is less.
    fn write_reads(&self) -> f64 {
        small_write_reads(self.data, self.parity)
    }
}

/// See [`Numbers::write_reads`]; also for a group that has lost parity.
fn small_write_reads(data: f64, parity: f64) -> f64 {
    if parity == 0.0 {
        0.0
    } else {
        (1.0 + parity).min(data - 1.0)
    }
}

/// A count in a formula.
fn count(number: usize) -> f64 {
    float(bytes_u64(number))
}

/// A figure in a formula: model figures are at most 2^52, so nothing is lost.
pub(crate) fn float(number: u64) -> f64 {
    assert!(bytes_usize(number) <= 1 << 60, "a figure");
    number as f64
}

/// What the whole answer takes for granted.
fn notes(shape: &Shape, model: &Model, limits: &Limits) -> Vec<&'static str> {
    let mut notes = vec![
        "random: 4 KiB blocks spread evenly over the array, more in flight than drives can take, \
         no cache; sequential: whole stripes",
        "GB/s and MB/s are decimal; 1 GB/s = 0.931 GiB/s",
    ];
    if shape.parity > 0 && shape.data > 1 {
        notes.push(
            "sequential reads have two bounds, all drives and data drives: state which one an \
             efficiency is measured against",
        );
        notes.push(
            "random writes: reads and writes of a drive are taken not to slow each other, unless \
             the model has mixed_iops",
        );
    }
    if model.mixed_iops.is_none() && shape.parity == 0 {
        notes.push("reads and writes of a drive are taken not to slow each other");
    }
    if shape.spares > 0 {
        notes.push("spares serve nothing until they replace a member");
    }
    if limits.host_bytes_per_second.is_none() && limits.host_iops.is_none() {
        notes.push(
            "buses, adapters and enclosures are not looked at: measure all drives at once and \
             give --host-bandwidth and --host-iops",
        );
    }
    if limits.core_read_iops.is_none() && limits.core_write_iops.is_none() {
        notes.push(
            "the engine's cores are not looked at: give --cores, --core-read-iops and \
             --core-write-iops",
        );
    } else {
        notes.push(
            "the engine's cores are looked at for random requests only, and as far as \
             --core-read-iops and --core-write-iops are given: for bytes per core of long requests \
             there is no option",
        );
    }
    notes
}
