//! What several drives, or several layers, look like beside each other.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::cards::{figure, title};
use super::rows::{Axis, Mark, Row, Rows};
use super::svg::{Measure, escape};
use super::{Group, best, rate};
use crate::bench::ladder::Rung;
use crate::bench::report::{DriveRate, Figures};
use crate::bench::{Ladder, Layer, median};
use crate::output::size;

/// Each of several drives that were loaded at once, in the point with the highest rate.
pub(super) fn drive_rates(group: &Group<'_>) -> Option<String> {
    let point = best(group);
    let drives = point.drives.as_ref().filter(|drives| drives.len() > 1)?;
    let (measure, _) = rate(point);
    let of = |figures: &Figures| in_measure(measure, figures);
    let row = |drive: &DriveRate| Row {
        name: drive.drive.clone(),
        marks: vec![Mark::Bar {
            class: if drive.outlier { "bad" } else { "one" },
            from: 0.0,
            to: of(&drive.measured),
        }],
        note: measure.text(of(&drive.measured)),
        hint: format!(
            "{:.1} % below the one in the middle; p99 {}",
            drive.below_median_percent,
            Measure::Micros.text(drive.measured.latency_us_p99)
        ),
    };
    let mut sorted: Vec<f64> = drives.iter().map(|drive| of(&drive.measured)).collect();
    sorted.sort_by(f64::total_cmp);
    let plot = Rows {
        name: format!("Rate of each drive, {}", title(point)),
        measure,
        axis: Axis::Linear,
        line: Some(median(&sorted)),
        rows: drives.iter().map(row).collect(),
    };
    let mut legend = vec![
        ("one", "a drive".to_owned()),
        ("tick", "the one in the middle".to_owned()),
    ];
    let slow = drives.iter().any(|drive| drive.outlier);
    legend.extend(slow.then(|| ("bad", "more than 5 % below".to_owned())));
    Some(figure(
        "Drive by drive",
        &format!("all at once, {} jobs × {} deep", point.jobs, point.depth),
        &legend,
        &plot.draw(),
    ))
}

/// The same load in layer after layer: what each leaves of the one below.
pub(super) fn all(ladders: &[Ladder<'_>]) -> String {
    let mut text = "<h1>garboard bench: layer by layer</h1>\n<p>Each layer's rate, and how many \
                    times that of the one below it is, where both have as many requests in \
                    flight. Behind its name: these, of all drives together, or of the whole.</p>\n"
        .to_owned();
    text.push_str(&table(ladders));
    text.push_str("<div class=\"card\"><div class=\"charts\">\n");
    for ladder in ladders {
        let about = format!("{} jobs × {} deep", ladder.jobs, ladder.depth);
        let head = format!("{}, {}", load(ladder), size(ladder.request_bytes));
        text.push_str(&rates(ladder, &head, &about));
        text.push_str(&latencies(ladder, &head, &about));
    }
    text.push_str("</div></div>\n");
    text
}

/// A rate as it is counted.
fn in_measure(measure: Measure, figures: &Figures) -> f64 {
    match measure {
        Measure::BytesPerSecond => figures.bytes_per_second,
        Measure::Iops | Measure::Micros | Measure::Percent | Measure::Times => figures.iops,
    }
}

fn load(ladder: &Ladder<'_>) -> String {
    ladder.workload.replace('_', " ")
}

fn times(ratio: f64) -> String {
    Measure::Times.text(ratio)
}

/// Loads by layers.
fn table(ladders: &[Ladder<'_>]) -> String {
    let all = ladders.iter().flat_map(|ladder| &ladder.rungs);
    let layers: BTreeSet<Layer> = all.map(|rung| rung.layer).collect();
    let mut text = "<div class=\"card table\"><table>\n<tr>".to_owned();
    for head in ["Workload", "Request", "Jobs × depth"] {
        let _ = write!(text, "<th>{head}</th>");
    }
    for layer in &layers {
        let _ = write!(text, "<th>{}</th>", layer.name());
    }
    for ladder in ladders {
        text.push_str("</tr>\n<tr>");
        let jobs = format!("{} × {}", ladder.jobs, ladder.depth);
        for cell in [load(ladder), size(ladder.request_bytes), jobs] {
            let _ = write!(text, "<td>{}</td>", escape(&cell));
        }
        for layer in &layers {
            let own = ladder.rungs.iter().filter(|rung| rung.layer == *layer);
            let cells: Vec<String> = own.map(cell).collect();
            let _ = write!(text, "<td>{}</td>", cells.join("<br>"));
        }
    }
    text.push_str("</tr>\n</table></div>\n");
    text
}

fn cell(rung: &Rung<'_>) -> String {
    let (measure, _) = rate(rung.point);
    let value = in_measure(measure, rung.measured);
    let ratio = rung.of_below.map(|of| format!(" · {}", times(of.rate)));
    escape(&(measure.text(value) + &ratio.unwrap_or_default()))
}

fn rates(ladder: &Ladder<'_>, head: &str, about: &str) -> String {
    // All in one unit, that of the lowest.
    let (measure, _) = rate(ladder.rungs[0].point);
    let row = |rung: &Rung<'_>| {
        let value = in_measure(measure, rung.measured);
        let mut marks = vec![Mark::Bar {
            class: "one",
            from: 0.0,
            to: value,
        }];
        let theory = rung.point.theoretical.as_ref().filter(|_| rung.is_point());
        marks.extend(theory.map(|theory| Mark::Tick(theory.value)));
        let below = rung.of_below.map(|of| {
            let note = format!(" · {}", times(of.rate));
            (note, format!("{} of {}", times(of.rate), of.below.name()))
        });
        let (note, hint) = below.unwrap_or_default();
        Row {
            name: format!("{}, {}", rung.layer.name(), rung.in_flight),
            marks,
            note: measure.text(value) + &note,
            hint,
        }
    };
    let theory = ladder
        .rungs
        .iter()
        .any(|rung| rung.is_point() && rung.point.theoretical.is_some());
    let plot = Rows {
        name: format!("Rate of {head} by layer"),
        measure,
        axis: Axis::Linear,
        line: None,
        rows: ladder.rungs.iter().map(row).collect(),
    };
    let legend = [
        ("one", "rate · of the layer below".to_owned()),
        ("tick", "theory".to_owned()),
    ];
    let legend = if theory { &legend[..] } else { &legend[..1] };
    figure(head, about, legend, &plot.draw())
}

fn latencies(ladder: &Ladder<'_>, head: &str, about: &str) -> String {
    let row = |rung: &Rung<'_>| {
        let measured = rung.measured;
        let text = |value: f64| Measure::Micros.text(value);
        let dot = |class, at| Mark::Dot { class, at };
        let (p50, p99) = (measured.latency_us_p50, measured.latency_us_p99);
        let marks = vec![Mark::Span(p50, p99), dot("mid", p99), dot("low", p50)];
        let below = rung.of_below.map(|of| {
            let hint = format!(
                ": {} and {} of {}",
                times(of.latency_p50),
                times(of.latency_p99),
                of.below.name()
            );
            (format!(" · {}", times(of.latency_p50)), hint)
        });
        let (note, hint) = below.unwrap_or_default();
        Row {
            name: format!("{}, {}", rung.layer.name(), rung.in_flight),
            // Without an answer there is nothing to show.
            marks: if measured.requests > 0 {
                marks
            } else {
                Vec::new()
            },
            note: if measured.requests > 0 {
                format!("p50 {}{note}", text(p50))
            } else {
                "no answer".to_owned()
            },
            hint: format!("p50 {}, p99 {}{hint}", text(p50), text(p99)),
        }
    };
    let plot = Rows {
        name: format!("Latency of {head} by layer"),
        measure: Measure::Micros,
        axis: Axis::Decades,
        line: None,
        rows: ladder.rungs.iter().map(row).collect(),
    };
    let legend = [
        ("low", "p50 · of the layer below".to_owned()),
        ("mid", "p99".to_owned()),
    ];
    figure(&format!("{head}: latency"), about, &legend, &plot.draw())
}
