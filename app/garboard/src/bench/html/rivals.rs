//! Plots of ours beside a rival's.

use super::cards::{figure, jobs_by_depth, title};
use super::rows::{Axis, Mark, Row, Rows};
use super::svg::Measure;
use super::{Group, rate};
use crate::bench::PointReport;
use crate::bench::pairs::Mode;

/// Requests per second, ours of theirs.
pub(super) fn rates(groups: &[Group<'_>]) -> Option<String> {
    let row = |point: &&PointReport| {
        let against = point.against.as_ref()?;
        let mut marks = vec![Mark::Span(against.ratio_min, against.ratio_max)];
        marks.extend(against.pairs.iter().map(|pair| Mark::Dot {
            class: "pair",
            at: pair.ratio,
        }));
        marks.push(Mark::Dot {
            class: "high",
            at: against.ratio_median,
        });
        Some(Row {
            name: format!("{} {}", title(point), jobs_by_depth(point)),
            marks,
            note: Measure::Times.text(against.ratio_median),
            hint: format!(
                "median {:.2} of {} pairs, {:.2} to {:.2}",
                against.ratio_median,
                against.pairs.len(),
                against.ratio_min,
                against.ratio_max
            ),
        })
    };
    let rows: Vec<Row> = groups.iter().flatten().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let plot = Rows {
        name: "Requests per second of ours, divided by the rival's".to_owned(),
        measure: Measure::Times,
        axis: Axis::Linear,
        line: Some(1.0),
        rows,
    };
    Some(figure(
        "Against the rival",
        "Requests per second, ours divided by theirs; right of the line is faster.",
        &[
            ("one", "a pair".to_owned()),
            ("high", "median".to_owned()),
            ("tick", "as fast".to_owned()),
        ],
        &plot.draw(),
    ))
}

/// Latencies, ours of theirs.
pub(super) fn latencies(groups: &[Group<'_>]) -> Option<String> {
    let rows_of = |point: &&PointReport| {
        let against = point.against.as_ref();
        let kinds = against.map(|against| {
            [
                ("p50", "low", against.latency_p50),
                ("p99", "mid", against.latency_p99),
                ("p99.9", "high", against.latency_p999),
            ]
        });
        let name = format!("{} {}", title(point), jobs_by_depth(point));
        kinds
            .into_iter()
            .flatten()
            .map(move |(what, class, ratio)| Row {
                name: format!("{name}, {what}"),
                marks: vec![
                    Mark::Span(ratio.min, ratio.max),
                    Mark::Tick(ratio.min),
                    Mark::Tick(ratio.max),
                    Mark::Dot {
                        class,
                        at: ratio.median,
                    },
                ],
                note: Measure::Times.text(ratio.median),
                hint: format!("{:.2} to {:.2}", ratio.min, ratio.max),
            })
    };
    let rows: Vec<Row> = groups.iter().flatten().flat_map(rows_of).collect();
    if rows.is_empty() {
        return None;
    }
    let plot = Rows {
        name: "Latencies of ours, divided by the rival's".to_owned(),
        measure: Measure::Times,
        axis: Axis::Decades,
        line: Some(1.0),
        rows,
    };
    Some(figure(
        "Latency against the rival",
        "Ours divided by theirs: median, least and most of the pairs; left of 1 is faster.",
        &[],
        &plot.draw(),
    ))
}

/// What each measured in each pair, where one request is in flight, or where one of the two falls
/// into two modes.
pub(super) fn pairs(groups: &[Group<'_>]) -> Option<String> {
    let rows_of = |point: &&PointReport| {
        let against = point.against.as_ref();
        let against = against.filter(|against| {
            let one = point.jobs * point.depth == 1 && point.rate.is_none();
            one || !against.ours_modes.is_empty() || !against.theirs_modes.is_empty()
        });
        let (_, own) = rate(point);
        // What the point is counted in, for each request.
        let each = own / point.measured.iops.max(1e-9);
        let name = format!("{} {}", title(point), jobs_by_depth(point));
        let (measure, _) = rate(point);
        let rows = against.map(|against| {
            let of = |who: &str, class, modes: &[Mode], rates: Vec<f64>| {
                let dots = rates.iter().map(|rate| Mark::Dot {
                    class,
                    at: rate * each,
                });
                let in_mode = |mode: &Mode| {
                    let rate = measure.text(mode.iops * each);
                    format!("{rate} in {} pairs", mode.pairs)
                };
                let said: Vec<String> = modes.iter().map(in_mode).collect();
                Row {
                    name: format!("{name}, {who}"),
                    marks: dots.collect(),
                    note: match said.as_slice() {
                        [] => "one mode".to_owned(),
                        _ => "two modes".to_owned(),
                    },
                    hint: said.join(", "),
                }
            };
            let pairs = against.pairs.iter();
            let (ours, theirs) = pairs.map(|pair| (pair.ours_iops, pair.theirs_iops)).unzip();
            [
                of("ours", "pair", &against.ours_modes, ours),
                of("theirs", "other", &against.theirs_modes, theirs),
            ]
        });
        rows.into_iter().flatten().map(move |row| (measure, row))
    };
    let rows: Vec<(Measure, Row)> = groups.iter().flatten().flat_map(rows_of).collect();
    // One scale has one unit: that of the first, which 4 KiB are before long ones.
    let (measure, _) = rows.first()?;
    let measure = *measure;
    let rows = rows.into_iter().filter(|(own, _)| *own == measure);
    let plot = Rows {
        name: "Rates of ours and of the rival, pair by pair".to_owned(),
        measure,
        axis: Axis::Linear,
        line: None,
        rows: rows.map(|(_, row)| row).collect(),
    };
    Some(figure(
        "Pair by pair",
        "The rate of each measurement with one request in flight, or in two modes.",
        &[("one", "ours".to_owned()), ("two", "theirs".to_owned())],
        &plot.draw(),
    ))
}
