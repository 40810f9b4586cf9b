//! Layer beside layer: the same load on each, and what each leaves of the one below it.

use serde::{Deserialize, Serialize};

use super::report::Figures;
use super::{PointReport, Report};

/// What is measured, from the drives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layer {
    Drives,
    Array,
    Volume,
    Export,
    /// Files in a directory, mostly in a guest.
    FileSystem,
}

impl Layer {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layer::Drives => "drives",
            Layer::Array => "array",
            Layer::Volume => "volume",
            Layer::Export => "export",
            Layer::FileSystem => "file system",
        }
    }
}

/// One load, in all layers that it was measured in: two at least.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ladder<'a> {
    /// With the state of the array and the rate that was asked for.
    pub(crate) workload: String,
    pub(crate) request_bytes: u64,
    pub(crate) jobs: usize,
    pub(crate) depth: usize,
    /// The lowest first.
    pub(crate) rungs: Vec<Rung<'a>>,
}

/// A load in one layer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rung<'a> {
    pub(crate) layer: Layer,
    /// Requests in flight of all drives or devices together.
    pub(crate) in_flight: usize,
    /// What came of them: of drives not always the figures of the point.
    #[serde(skip)]
    pub(crate) measured: &'a Figures,
    #[serde(skip)]
    pub(crate) point: &'a PointReport,
    /// None of the lowest, and where the layer below had another number of requests in flight.
    pub(crate) of_below: Option<Ratios>,
}

/// A layer's figures, divided by those of the one below.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratios {
    pub(crate) below: Layer,
    pub(crate) rate: f64,
    pub(crate) latency_p50: f64,
    pub(crate) latency_p99: f64,
}

impl<'a> Rung<'a> {
    fn new(report: &Report, point: &'a PointReport) -> Rung<'a> {
        let all = point.jobs * point.depth;
        let (in_flight, measured) = match &point.together {
            Some(together) => (all, together),
            None => (all * report.targets(), &point.measured),
        };
        Rung {
            layer: report.layer,
            in_flight,
            measured,
            point,
            of_below: None,
        }
    }

    /// Divided by another: only where as much was asked of both.
    fn of(&self, below: &Rung<'_>) -> Option<Ratios> {
        if self.in_flight != below.in_flight {
            return None;
        }
        Ratios::of(self.measured, (below.layer, below.measured))
    }

    /// Whether these are the figures of the point, and not those of a load of its own.
    pub(crate) fn is_point(&self) -> bool {
        self.point.together.is_none()
    }
}

impl Ratios {
    /// None where one of the two has no answers to be compared.
    fn of(own: &Figures, (below, theirs): (Layer, &Figures)) -> Option<Ratios> {
        let ratio = |own: f64, theirs: f64| (own > 0.0 && theirs > 0.0).then_some(own / theirs);
        Some(Ratios {
            below,
            rate: ratio(own.iops, theirs.iops)?,
            latency_p50: ratio(own.latency_us_p50, theirs.latency_us_p50)?,
            latency_p99: ratio(own.latency_us_p99, theirs.latency_us_p99)?,
        })
    }
}

/// All loads that more than one layer was measured with; the reports are sorted by layer.
pub(crate) fn ladders(reports: &[Report]) -> Vec<Ladder<'_>> {
    let key = |point: &PointReport| {
        let (jobs, depth) = (point.jobs, point.depth);
        (point.title(), point.request_bytes, jobs, depth)
    };
    let mut ladders: Vec<Ladder<'_>> = Vec::new();
    for report in reports {
        for point in &report.points {
            let (workload, request_bytes, jobs, depth) = key(point);
            let same = ladders
                .iter_mut()
                .find(|ladder| key(ladder.rungs[0].point) == key(point));
            let rung = Rung::new(report, point);
            let Some(ladder) = same else {
                ladders.push(Ladder {
                    workload,
                    request_bytes,
                    jobs,
                    depth,
                    rungs: vec![rung],
                });
                continue;
            };
            // Two reports of one layer stand beside each other, not one above the other, and which
            // of them is below something else nobody knows.
            let lower = ladder.rungs.iter().rev();
            let mut lower = lower.skip_while(|other| other.layer >= report.layer);
            let below = lower.next();
            let is_one = |next: &Rung<'_>| below.is_some_and(|below| below.layer != next.layer);
            let below = below.filter(|_| lower.next().is_none_or(is_one));
            let of_below = below.and_then(|below| rung.of(below));
            ladder.rungs.push(Rung { of_below, ..rung });
        }
    }
    let is_ladder = |ladder: &Ladder<'_>| {
        let first = ladder.rungs[0].layer;
        ladder.rungs.iter().any(|rung| rung.layer != first)
    };
    ladders.retain(is_ladder);
    ladders
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::load::Measured;
    use super::super::pattern::Order;
    use super::super::workloads::work;
    use super::super::{Point, Report};
    use super::*;

    /// A report of one point: requests in a second, and the latency of all of them.
    fn report(layer: Layer, depth: usize, requests: u64, micros: u64) -> Report {
        let point = Point {
            name: "random_read",
            about: "",
            work: work(Order::Random, 4096, 100),
            jobs: 1,
            depth,
            rate: None,
        };
        let mut measured = Measured::nothing();
        measured.requests = requests;
        measured.seconds = 1.0;
        measured.latency.add_many(micros * 1000, requests);
        let mut report = Report::new(layer, Duration::from_secs(1));
        report
            .points
            .push(PointReport::new(&point, &measured, None, 1));
        report
    }

    #[test]
    fn each_layer_is_divided_by_the_one_below_it_that_has_the_same_load() {
        let mut drives = report(Layer::Drives, 8, 3000, 30);
        drives.drives = vec!["d0".to_owned(), "d1".to_owned()];
        // With eight in flight of each, and of both together.
        let together = report(Layer::Drives, 8, 1000, 10).points.remove(0);
        drives.points[0].together = Some(together.measured);
        let mut array = report(Layer::Array, 8, 800, 20);
        array.drives.clone_from(&drives.drives);
        let reports = [
            drives,
            array,
            report(Layer::Array, 8, 400, 40),
            report(Layer::Volume, 1, 7, 7),
            report(Layer::Volume, 1, 8, 8),
            report(Layer::Export, 8, 200, 80),
            report(Layer::FileSystem, 8, 0, 0),
        ];
        let ladders = ladders(&reports);
        assert_eq!(ladders.len(), 1, "depth 1 was measured in one layer only");
        let rungs = &ladders[0].rungs;
        assert_eq!((rungs[0].in_flight, rungs[1].in_flight), (8, 8));
        let of_below: Vec<_> = rungs
            .iter()
            .map(|rung| rung.of_below.map(|ratios| (ratios.below, ratios.rate)))
            .collect();
        assert_eq!(
            of_below,
            [
                None,
                Some((Layer::Drives, 0.8)),
                Some((Layer::Drives, 0.4)),
                None,
                None,
            ],
            "nothing of one of two, nor of one without answers but that it is there"
        );
        let p50 = rungs[1].of_below.expect("one").latency_p50;
        assert!((p50 - 2.0).abs() < 0.1, "{p50}");
    }

    #[test]
    fn layers_that_were_asked_for_more_and_for_less_are_not_divided() {
        let mut drives = report(Layer::Drives, 8, 3000, 30);
        drives.drives = vec!["d0".to_owned(), "d1".to_owned()];
        let reports = [drives, report(Layer::Array, 8, 800, 20)];
        let ladders = ladders(&reports);
        let rungs = &ladders[0].rungs;
        assert_eq!((rungs[0].in_flight, rungs[1].in_flight), (16, 8));
        assert!(rungs[1].of_below.is_none(), "more of below: {rungs:?}");
    }
}
