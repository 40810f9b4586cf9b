//! What a measurement could have reached: the roofline of the array's drives, and what the
//! requests in flight allow.

use array::Level;
use control::request::{DriveSpec, WriteHole};
use control::view::{ArrayView, DriveView, MemberState};
use models::Model;
use serde::{Deserialize, Serialize};

use super::Point;
use super::pattern::{Order, With};
use crate::expect::{self, Asked, Expectation, Limits, Unit};
use crate::output;

/// The array and the drives that theory is calculated for.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) expected: Expectation,
    /// How many times slower than their model the drives are.
    pub(super) slower: u32,
    /// What is logged before it is written.
    pub(super) write_hole: WriteHole,
    /// What was taken for granted.
    pub(super) notes: Vec<String>,
}

/// The figure that a measurement is held against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Theory {
    /// In requests or bytes per second, as `unit` says.
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) formula: String,
    pub(crate) bound: String,
}

impl Basis {
    /// The theory of an array, if its drives are known: by `model`, or because they are paced.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn of(
        array: &ArrayView,
        drives: &[DriveView],
        model: Option<Model>,
    ) -> Result<Basis, String> {
        let mut notes = Vec::new();
        let (model, slower) = match model {
            Some(model) => {
                notes.push(format!(
                    "theory takes every member for a {}, as --drive-model says",
                    model.name
                ));
                (model, 1)
            }
            None => paced(array, drives, &mut notes)?,
        };
        let level: Level = array
            .level
            .as_str()
            .parse()
            .map_err(|error| format!("{error}"))?;
        let lost = lost(array);
        if lost > 0 {
            notes.push(format!(
                "the array is degraded: theory is that of {lost} lost in every group"
            ));
        }
        let grouped = level.has_groups() && level != Level::L10;
        let asked = Asked {
            level,
            drives: array.members.len(),
            spares: 0,
            group_size: grouped.then_some(usize::from(array.group_size)),
            parity: (level == Level::Nm).then_some(usize::from(array.parity)),
            chunk_bytes: array.chunk_bytes,
            lost: Some(lost),
        };
        let expected = expect::expect(&asked, &model, &Limits::default())?;
        let mut basis = Basis {
            expected,
            slower,
            write_hole: array.write_hole,
            notes,
        };
        basis.notes.extend(basis.of_the_log());
        Ok(basis)
    }

    /// What is to be said of the log.
    fn of_the_log(&self) -> Option<String> {
        let shape = &self.expected.shape;
        if shape.parity == 0 || shape.data == 1 {
            return None;
        }
        Some(match (self.write_hole, shape.lost > 0) {
            (WriteHole::Auto, _) | (WriteHole::Off, false) => return None,
            (WriteHole::Strict, false) => {
                "the array logs all writes (--write-hole strict): theory of writes is that of \
                 logging and writing each; of mixed loads there is none"
                    .to_owned()
            }
            (hole @ (WriteHole::Strict | WriteHole::Off), true) => format!(
                "no theory of writes: degraded, with --write-hole {}",
                output::word(&hole)
            ),
        })
    }

    /// Whether each write to the array as it is is logged first.
    fn logs_all(&self) -> bool {
        let shape = &self.expected.shape;
        self.write_hole == WriteHole::Strict && shape.parity > 0 && shape.data > 1
    }

    /// The theory of one point on several arrays at once, which have no drive in common, each with
    /// so many devices; if there is one of each.
    pub(super) fn of_all(all: &[(Basis, usize)], point: &Point) -> Option<Theory> {
        let each = all
            .iter()
            .map(|(basis, devices)| basis.of_point(point, *devices));
        let each: Vec<Theory> = each.collect::<Option<_>>()?;
        if each.len() == 1 {
            return each.into_iter().next();
        }
        let distinct = |of: fn(&Theory) -> &String| {
            let mut found: Vec<&str> = each.iter().map(|theory| of(theory).as_str()).collect();
            found.sort_unstable();
            found.dedup();
            found.join("; ")
        };
        Some(Theory {
            value: each.iter().map(|theory| theory.value).sum(),
            unit: each.first()?.unit,
            formula: format!(
                "sum of {} arrays: {}",
                each.len(),
                distinct(|theory| &theory.formula)
            ),
            bound: distinct(|theory| &theory.bound),
        })
    }

    /// The theory of one point on so many devices of the array at once, if there is a formula for
    /// its workload.
    pub(super) fn of_point(&self, point: &Point, devices: usize) -> Option<Theory> {
        let name = self.workload(point)?;
        let mut workloads = self.expected.workloads.iter();
        let workload = workloads.find(|workload| workload.name == name)?;
        let slower = f64::from(self.slower);
        let binding = workload.binding();
        let most = Theory {
            value: binding.value / slower,
            unit: workload.unit,
            formula: binding.formula.clone(),
            bound: binding.bound.to_owned(),
        };
        let least_seconds = self.least_seconds(point)? * slower;
        let requests = super::float_of(point.jobs * point.depth * devices) / least_seconds;
        let in_flight = match workload.unit {
            Unit::Iops => requests,
            Unit::BytesPerSecond | Unit::Seconds => requests * expect::float(point.work.bytes),
        };
        if in_flight < most.value {
            return Some(Theory {
                value: in_flight,
                unit: workload.unit,
                formula: "requests in flight/time of one on idle drives".to_owned(),
                bound: "the requests in flight".to_owned(),
            });
        }
        Some(most)
    }

    /// The workload of `expect` that a point is an instance of.
    fn workload(&self, point: &Point) -> Option<&'static str> {
        let work = &point.work;
        let degraded = self.expected.shape.lost > 0;
        let stripe = self.expected.shape.stripe_bytes;
        let logs = self.logs_all();
        // The formulas of a degraded array are those of `auto`.
        let unlike_auto = degraded && self.of_the_log().is_some();
        if work.read_percent < 100 && unlike_auto {
            return None;
        }
        Some(match (work.order, work.read_percent, degraded) {
            _ if work.with == With::Flush => return None,
            (Order::Random, 100, false) if work.bytes == 4096 => "random_read",
            (Order::Random, 100, true) if work.bytes == 4096 => "degraded_random_read",
            (Order::Random, 0, false) if work.bytes == 4096 && logs => "random_write_strict",
            (Order::Random, 0, false) if work.bytes == 4096 => "random_write",
            (Order::Random, 0, true) if work.bytes == 4096 => "degraded_random_write",
            (Order::Random, 70, false) if work.bytes == 4096 && !logs => "random_mixed_70_30",
            (Order::Sequential, 100, false) => "sequential_read",
            (Order::Sequential, 100, true) => "degraded_sequential_read",
            // What is not whole stripes is merged or not, which is no bound of the drives.
            (Order::Sequential, 0, false) if work.bytes.is_multiple_of(stripe) && logs => {
                "sequential_write_strict"
            }
            (Order::Sequential, 0, false) if work.bytes.is_multiple_of(stripe) => {
                "sequential_write"
            }
            (Order::Sequential, 0, true) if work.bytes.is_multiple_of(stripe) => {
                "degraded_sequential_write"
            }
            _ => return None,
        })
    }

    /// Seconds of one request on idle drives at the model's own speed, at the least.
    fn least_seconds(&self, point: &Point) -> Option<f64> {
        let (shape, model) = (&self.expected.shape, &self.expected.drive_model);
        let micros = |figure: &models::Figure| expect::float(figure.value) / 1e6;
        let (read, write) = (
            micros(&model.read_latency_us),
            micros(&model.write_latency_us),
        );
        let work = &point.work;
        // What is logged is written twice, one after the other.
        let writes = if self.logs_all() { 2.0 } else { 1.0 };
        if work.order == Order::Random {
            let reads_first = shape.data > 1 && shape.parity > 0;
            let write = writes * write;
            let write = if reads_first { read + write } else { write };
            let part = f64::from(work.read_percent) / 100.0;
            return Some(part * read + (1.0 - part) * write);
        }
        // A long request is so many chunks, at the best spread evenly over all drives.
        let chunks = work.bytes.div_ceil(shape.chunk_bytes);
        let all = match work.read_percent {
            100 => chunks,
            _ => {
                chunks * super::number_of(shape.data + shape.parity) / super::number_of(shape.data)
            }
        };
        let each = all.div_ceil(super::number_of(shape.members));
        let (latency, rate, times) = match work.read_percent {
            100 => (read, &model.read_bytes_per_second, 1.0),
            _ => (write, &model.write_bytes_per_second, writes),
        };
        let moved = work.bytes.min(shape.chunk_bytes) * each;
        let once = latency.max(expect::float(moved) / expect::float(rate.value));
        Some(times * once)
    }
}

/// The most that one group lacks.
fn lost(array: &ArrayView) -> usize {
    let groups = array.members.iter().map(|member| member.group);
    let lost_of = |group: u16| {
        let members = array.members.iter().filter(|member| member.group == group);
        members
            .filter(|member| member.state != MemberState::Online)
            .count()
    };
    groups.map(lost_of).max().unwrap_or(0)
}

/// The model and scale of members that are all paced alike.
fn paced(
    array: &ArrayView,
    drives: &[DriveView],
    notes: &mut Vec<String>,
) -> Result<(Model, u32), String> {
    let names: Vec<&String> = array
        .members
        .iter()
        .filter_map(|member| member.drive.as_ref())
        .collect();
    let mut found: Option<(&str, u32)> = None;
    for drive in drives.iter().filter(|drive| names.contains(&&drive.name)) {
        let DriveSpec::Paced {
            model,
            slower,
            interference_percent,
            ..
        } = &drive.spec
        else {
            return Err(
                "the drives' figures are not known: give --drive-model, or use paced drives"
                    .to_owned(),
            );
        };
        if found.is_some_and(|(other, scale)| (other, scale) != (model, *slower)) {
            return Err("the members are paced differently".to_owned());
        }
        if *interference_percent > 0 && found.is_none() {
            notes.push("theory does not count the drives' interference".to_owned());
        }
        found = Some((model, *slower));
    }
    let (model, slower) = found.ok_or("the array has no drives")?;
    let model = Model::find(model).map_err(|error| error.to_string())?;
    notes.push(format!(
        "drives are paced as {} at 1/{slower}: theory is at that scale, too",
        model.name
    ));
    Ok((model, slower))
}

#[cfg(test)]
mod tests {
    use super::super::workloads::work;
    use super::*;

    fn basis(level: Level, lost: usize, write_hole: WriteHole) -> Basis {
        let asked = Asked {
            level,
            drives: 6,
            spares: 0,
            group_size: None,
            parity: None,
            chunk_bytes: 64 << 10,
            lost: Some(lost),
        };
        let model = Model::find("kioxia-cm7").expect("built in");
        Basis {
            expected: expect::expect(&asked, &model, &Limits::default()).expect("possible"),
            slower: 1,
            write_hole,
            notes: Vec::new(),
        }
    }

    #[test]
    fn what_an_array_logs_is_part_of_its_theory() {
        use WriteHole::{Auto, Off, Strict};
        let plain = Some(("N·W/(1+M)", "N·SW·k/(k+M)"));
        let strict = Some(("N/((1+M)/W+(1+M)·2/A)", "N·SW·k/(k+M)/2"));
        let degraded = Some(("g·(n-f)/(w/W+l·2/A)", "g·k·SW/(1+p)"));
        for (level, lost, hole, writes, (mixed, said)) in [
            (Level::L5, 0, Auto, plain, (true, false)),
            (Level::L5, 0, Off, plain, (true, false)),
            (Level::L5, 0, Strict, strict, (false, true)),
            (Level::L5, 1, Auto, degraded, (false, false)),
            (Level::L5, 1, Strict, None, (false, true)),
            (Level::L5, 1, Off, None, (false, true)),
            // Mirrors log nothing.
            (
                Level::L10,
                0,
                Strict,
                Some(("N·W/2", "N·SW/2")),
                (true, false),
            ),
        ] {
            let basis = basis(level, lost, hole);
            let formula = |work: super::super::Work| {
                let point = Point {
                    name: "",
                    about: "",
                    work,
                    jobs: 1 << 20,
                    depth: 1 << 10,
                    rate: None,
                };
                basis.of_point(&point, 1).map(|theory| theory.formula)
            };
            let what = format!("{level}, {lost} lost, {hole:?}");
            let whole = basis.expected.shape.stripe_bytes;
            let found = formula(work(Order::Random, 4096, 0)).zip(formula(work(
                Order::Sequential,
                whole,
                0,
            )));
            let found = found.as_ref();
            let found = found.map(|(random, whole)| (random.as_str(), whole.as_str()));
            assert_eq!(found, writes, "{what}");
            let both = formula(work(Order::Random, 4096, 70));
            assert_eq!(both.is_some(), mixed, "{what}");
            assert!(formula(work(Order::Random, 4096, 100)).is_some(), "{what}");
            assert_eq!(basis.of_the_log().is_some(), said, "{what}");
        }
    }
}
