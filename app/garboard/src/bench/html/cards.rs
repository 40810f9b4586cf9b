//! What is plotted: each workload, and what several have in common.

use std::fmt::Write as _;

use super::lines::{CLASSES, Line, Lines};
use super::rows::{Axis, Mark, Row, Rows};
use super::svg::{Measure, escape};
use super::{Group, best, layers, rate, rivals};
use crate::bench::{Efficiency, PointReport, Report};
use crate::output::{or_dash, size};

/// A workload's name as people say it.
pub(super) fn title(point: &PointReport) -> String {
    point.title().replace('_', " ")
}

pub(super) fn jobs_by_depth(point: &PointReport) -> String {
    format!("{} × {}", point.jobs, point.depth)
}

/// A plot with its title, what it shows, and what its colours mean.
pub(super) fn figure(title: &str, about: &str, legend: &[(&str, String)], plot: &str) -> String {
    let mut keys = String::new();
    for (class, text) in legend {
        let colour = match *class {
            "dash" | "tick" => String::new(),
            class => format!(" style=\"background:var(--{class})\""),
        };
        let _ = write!(
            keys,
            "<span><i class=\"{class}\"{colour}></i>{}</span>",
            escape(text)
        );
    }
    if !keys.is_empty() {
        keys = format!("<div class=\"legend\">{keys}</div>");
    }
    format!(
        "<figure><figcaption><b>{}</b> {}{keys}</figcaption>{plot}</figure>\n",
        escape(title),
        escape(about)
    )
}

/// What concerns all workloads.
pub(super) fn overviews(groups: &[Group<'_>]) -> Vec<String> {
    let figures: Vec<String> = [
        efficiency(groups),
        rivals::rates(groups),
        rivals::latencies(groups),
        rivals::pairs(groups),
        drive_bytes(groups),
        drives(groups),
    ]
    .into_iter()
    .flatten()
    .collect();
    if figures.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "<div class=\"card\"><div class=\"charts\">\n{}</div></div>\n",
        figures.concat()
    )]
}

/// The best point of each workload against its theory.
fn efficiency(groups: &[Group<'_>]) -> Option<String> {
    let row = |group: &Group<'_>| {
        let point = best(group);
        let efficiency = point.efficiency()?;
        let (measure, value) = rate(point);
        let theory = point.theoretical.as_ref()?;
        Some(Row {
            name: title(point),
            // What may be anything has no bar.
            marks: match efficiency {
                Efficiency::Known { percent, .. } => vec![Mark::Bar {
                    class: "one",
                    from: 0.0,
                    to: percent,
                }],
                Efficiency::Unsure => Vec::new(),
            },
            note: efficiency.text(),
            hint: format!(
                "{} jobs, {} deep: {} of {}; bound by {}: {}",
                point.jobs,
                point.depth,
                measure.text(value),
                measure.text(theory.value),
                theory.bound,
                theory.formula
            ),
        })
    };
    let rows: Vec<Row> = groups.iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let plot = Rows {
        name: "Measured of theoretical, in percent".to_owned(),
        measure: Measure::Percent,
        axis: Axis::Linear,
        line: Some(100.0),
        rows,
    };
    Some(figure(
        "Efficiency",
        "The highest rate of each workload, of what its drives can do at most.",
        &[("tick", "theory".to_owned())],
        &plot.draw(),
    ))
}

/// Bytes that drives move for a byte of the client.
fn drive_bytes(groups: &[Group<'_>]) -> Option<String> {
    let row = |group: &Group<'_>| {
        let point = best(group);
        let cost = point.cost.as_ref()?;
        let (read, written) = (
            cost.drive_read_bytes_per_byte,
            cost.drive_written_bytes_per_byte,
        );
        Some(Row {
            name: title(point),
            marks: vec![
                Mark::Bar {
                    class: "one",
                    from: 0.0,
                    to: read,
                },
                Mark::Bar {
                    class: "two",
                    from: read,
                    to: read + written,
                },
            ]
            .into_iter()
            .filter(|mark| matches!(mark, Mark::Bar { from, to, .. } if to - from > 0.005))
            .collect(),
            note: Measure::Times.text(read + written),
            hint: format!(
                "{read:.3} read and {written:.3} written; {:.2} copied; {:.2} messages between \
                 reactors and {:.2} system calls a request",
                cost.copied_bytes_per_byte,
                cost.messages_per_request,
                cost.system_calls_per_request
            ),
        })
    };
    let rows: Vec<Row> = groups.iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let plot = Rows {
        name: "Bytes of drives for each byte of the client".to_owned(),
        measure: Measure::Times,
        axis: Axis::Linear,
        line: None,
        rows,
    };
    Some(figure(
        "Bytes of drives for each byte asked",
        "Parity, reads before writes, and the array's own records.",
        &[("one", "read".to_owned()), ("two", "written".to_owned())],
        &plot.draw(),
    ))
}

/// Drives beside each other, in the point where they worked the hardest.
fn drives(groups: &[Group<'_>]) -> Option<String> {
    let points = groups.iter().map(|group| best(group));
    let work = |point: &&PointReport| {
        let drives = point.cost.iter().flat_map(|cost| &cost.drives);
        drives.map(|drive| drive.reads + drive.writes).sum::<u64>()
    };
    let point = points.max_by_key(work)?;
    let drives = &point.cost.as_ref()?.drives;
    let rows: Vec<Row> = drives
        .iter()
        .map(|drive| Row {
            name: drive.drive.clone(),
            marks: vec![Mark::Bar {
                class: if drive.outlier { "bad" } else { "one" },
                from: 0.0,
                to: drive.latency_us_mean,
            }],
            note: Measure::Micros.text(drive.latency_us_mean),
            hint: format!("{} reads, {} writes", drive.reads, drive.writes),
        })
        .collect();
    if rows.is_empty() || work(&point) == 0 {
        return None;
    }
    let slow = drives.iter().any(|drive| drive.outlier);
    let mut legend = vec![("one", "as the others".to_owned())];
    legend.extend(slow.then(|| ("bad", "far slower".to_owned())));
    let plot = Rows {
        name: "Mean time of a request, drive by drive".to_owned(),
        measure: Measure::Micros,
        axis: Axis::Linear,
        line: None,
        rows,
    };
    Some(figure(
        "Drive by drive",
        &format!("Mean time of a request during {}.", title(point)),
        &legend,
        &plot.draw(),
    ))
}

/// All that was measured of one workload.
pub(super) fn workload(group: &Group<'_>) -> String {
    let first = group[0];
    let mut figures = vec![rates(group), latencies(group)];
    figures.extend(sweep(group));
    figures.extend(bursts(group));
    figures.extend(layers::drive_rates(group));
    format!(
        "<div class=\"card\"><h3>{}</h3><p>{}; requests of {}</p><div \
         class=\"charts\">\n{}</div></div>\n",
        escape(&title(first)),
        escape(&first.about),
        size(first.request_bytes),
        figures.concat()
    )
}

fn rates(group: &Group<'_>) -> String {
    let theory = group.iter().any(|point| point.theoretical.is_some());
    let row = |point: &&PointReport| {
        let (measure, value) = rate(point);
        let mut marks = vec![Mark::Bar {
            class: "one",
            from: 0.0,
            to: value,
        }];
        let theory = point.theoretical.as_ref();
        marks.extend(theory.map(|theory| Mark::Tick(theory.value)));
        let of = point
            .efficiency()
            .map(|efficiency| format!(", {}", efficiency.of_theory()));
        Row {
            name: jobs_by_depth(point),
            marks,
            note: measure.text(value),
            hint: format!(
                "{} jobs, {} deep{}; {} cores",
                point.jobs,
                point.depth,
                of.unwrap_or_default(),
                or_dash(point.cores_used.map(|cores| format!("{cores:.2}")))
            ),
        }
    };
    let (measure, _) = rate(group[0]);
    let plot = Rows {
        name: format!("Rate of {}", title(group[0])),
        measure,
        axis: Axis::Linear,
        line: None,
        rows: group.iter().map(row).collect(),
    };
    let legend = [
        ("one", "measured".to_owned()),
        ("tick", "theory".to_owned()),
    ];
    figure(
        "Rate",
        "by jobs × requests in flight of each",
        if theory { &legend } else { &legend[..1] },
        &plot.draw(),
    )
}

fn latencies(group: &Group<'_>) -> String {
    let row = |point: &&PointReport| {
        let measured = &point.measured;
        let dot = |class, at| Mark::Dot { class, at };
        let marks = vec![
            Mark::Span(measured.latency_us_p50, measured.latency_us_p999),
            Mark::Tick(measured.latency_us_p999),
            dot("mid", measured.latency_us_p99),
            dot("low", measured.latency_us_p50),
        ];
        Row {
            name: jobs_by_depth(point),
            // Without an answer there is nothing to show.
            marks: if measured.requests > 0 {
                marks
            } else {
                Vec::new()
            },
            note: if measured.requests > 0 {
                format!("p99 {}", Measure::Micros.text(measured.latency_us_p99))
            } else {
                "no answer".to_owned()
            },
            hint: format!(
                "p50 {}, p99 {}, p99.9 {}, longest {}",
                Measure::Micros.text(measured.latency_us_p50),
                Measure::Micros.text(measured.latency_us_p99),
                Measure::Micros.text(measured.latency_us_p999),
                Measure::Micros.text(measured.latency_us_max)
            ),
        }
    };
    let plot = Rows {
        name: format!("Latency of {}", title(group[0])),
        measure: Measure::Micros,
        axis: Axis::Decades,
        line: None,
        rows: group.iter().map(row).collect(),
    };
    figure(
        "Latency",
        "by jobs × requests in flight of each",
        &[
            ("low", "p50".to_owned()),
            ("mid", "p99".to_owned()),
            ("tick", "p99.9".to_owned()),
        ],
        &plot.draw(),
    )
}

/// The rate over depth, when there are enough depths to see a curve.
fn sweep(group: &Group<'_>) -> Option<String> {
    let mut all: Vec<usize> = group.iter().map(|point| point.jobs).collect();
    all.sort_unstable();
    all.dedup();
    let line = |jobs: usize, value: &dyn Fn(&PointReport) -> Option<f64>| {
        let own = group.iter().filter(|point| point.jobs == jobs);
        let mut points: Vec<(usize, f64)> = own
            .filter_map(|point| Some((point.depth, value(point)?)))
            .collect();
        points.sort_by_key(|(depth, _)| *depth);
        let name = match jobs {
            1 => "1 job".to_owned(),
            jobs => format!("{jobs} jobs"),
        };
        Line { name, points }
    };
    let lines: Vec<Line> = all
        .iter()
        .take(CLASSES.len())
        .map(|jobs| line(*jobs, &|point| Some(rate(point).1)))
        .collect();
    if !lines.iter().any(|line| line.points.len() >= 3) {
        return None;
    }
    let theory = |point: &PointReport| point.theoretical.as_ref().map(|theory| theory.value);
    let theory: Vec<Line> = all.iter().map(|jobs| line(*jobs, &theory)).collect();
    let theory: Vec<Line> = theory
        .into_iter()
        .filter(|line| !line.points.is_empty())
        .collect();
    let names = CLASSES
        .into_iter()
        .zip(lines.iter().map(|line| line.name.clone()));
    let mut legend: Vec<(&str, String)> = names.collect();
    legend.extend((!theory.is_empty()).then(|| ("dash", "theory".to_owned())));
    let (measure, _) = rate(group[0]);
    let plot = Lines {
        name: format!("Rate of {} over requests in flight", title(group[0])),
        measure,
        lines,
        theory,
    };
    Some(figure("Rate over depth", "", &legend, &plot.draw()))
}

fn bursts(group: &Group<'_>) -> Option<String> {
    let row = |point: &&PointReport| {
        let bursts = point.bursts.as_ref()?;
        let dot = |class, at| Mark::Dot { class, at };
        Some(Row {
            name: jobs_by_depth(point),
            marks: vec![
                Mark::Span(bursts.first_done_us_p50, bursts.last_done_us_p50),
                dot("one", bursts.first_done_us_p50),
                dot("two", bursts.last_done_us_p50),
            ],
            note: Measure::Micros.text(bursts.last_done_us_p50),
            hint: format!(
                "{} bursts: {} until the first job was done, {} until the last",
                bursts.count,
                Measure::BytesPerSecond.text(bursts.first_done_bytes_per_second),
                Measure::BytesPerSecond.text(bursts.last_done_bytes_per_second)
            ),
        })
    };
    let rows: Vec<Row> = group.iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let plot = Rows {
        name: "When the first and the last job of a burst were done".to_owned(),
        measure: Measure::Micros,
        axis: Axis::Linear,
        line: None,
        rows,
    };
    Some(figure(
        "First and last done",
        "since the burst began (p50): between the two, jobs wait for stragglers",
        &[
            ("one", "first job".to_owned()),
            ("two", "last job".to_owned()),
        ],
        &plot.draw(),
    ))
}

/// The table of all points: heads, and cells by row.
pub(super) fn cells(report: &Report) -> (&'static [&'static str], Vec<Vec<String>>) {
    const HEADS: &[&str] = &[
        "Workload",
        "Request",
        "Jobs × depth",
        "Measured",
        "Theory",
        "Efficiency",
        "p50",
        "p99",
        "p99.9",
        "Longest",
        "Cores",
        "Drive bytes",
        "Copied",
        "Messages",
        "Calls",
        "Errors",
    ];
    let row = |point: &PointReport| {
        let (measure, value) = rate(point);
        let theory = point.theoretical.as_ref();
        let cost = point.cost.as_ref();
        let times = |value: f64| Measure::Times.text(value);
        let micros = |value: f64| Measure::Micros.text(value);
        let measured = &point.measured;
        vec![
            title(point),
            size(point.request_bytes),
            jobs_by_depth(point),
            measure.text(value),
            or_dash(theory.map(|theory| measure.text(theory.value))),
            or_dash(point.efficiency().map(Efficiency::text)),
            micros(measured.latency_us_p50),
            micros(measured.latency_us_p99),
            micros(measured.latency_us_p999),
            micros(measured.latency_us_max),
            or_dash(point.cores_used.map(|cores| format!("{cores:.2}"))),
            or_dash(cost.map(|cost| {
                times(cost.drive_read_bytes_per_byte + cost.drive_written_bytes_per_byte)
            })),
            or_dash(cost.map(|cost| times(cost.copied_bytes_per_byte))),
            or_dash(cost.map(|cost| format!("{:.2}", cost.messages_per_request))),
            or_dash(cost.map(|cost| format!("{:.2}", cost.system_calls_per_request))),
            measured.errors.to_string(),
        ]
    };
    (HEADS, report.points.iter().map(row).collect())
}
