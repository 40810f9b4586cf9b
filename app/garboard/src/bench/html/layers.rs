//! What several drives, or several layers, look like beside each other.

use super::cards::{figure, title};
use super::rows::{Axis, Mark, Row, Rows};
use super::svg::Measure;
use super::{Group, best, rate};
use crate::bench::report::{DriveRate, Figures};
use crate::bench::{PointReport, Report, median};
use crate::output::size;

/// Each of several drives that were loaded at once, in the point with the highest rate.
pub(super) fn drive_rates(group: &Group<'_>) -> Option<String> {
    let point = best(group);
    let drives = point.drives.as_ref().filter(|drives| drives.len() > 1)?;
    let (measure, _) = rate(point);
    let of = |figures: &Figures| match measure {
        Measure::BytesPerSecond => figures.bytes_per_second,
        Measure::Iops | Measure::Micros | Measure::Percent | Measure::Times => figures.iops,
    };
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

/// The same point in layer after layer: what each leaves of the one below.
pub(super) fn ladder(reports: &[&Report]) -> String {
    let mut figures = String::new();
    let Some((first, above)) = reports.split_first() else {
        return figures;
    };
    for point in &first.points {
        let key =
            |point: &PointReport| (point.workload, point.request_bytes, point.jobs, point.depth);
        let same = |report: &&Report| {
            let found = report.points.iter().find(|other| key(other) == key(point));
            found.map(|found| (report.layer, found.clone()))
        };
        let others: Vec<(&str, PointReport)> = above.iter().filter_map(same).collect();
        if others.is_empty() {
            continue;
        }
        let (measure, _) = rate(point);
        let all = std::iter::once((first.layer, point.clone())).chain(others);
        let row = |(layer, point): (&str, PointReport)| Row {
            name: layer.to_owned(),
            marks: vec![Mark::Bar {
                class: "one",
                from: 0.0,
                to: rate(&point).1,
            }],
            note: measure.text(rate(&point).1),
            hint: format!(
                "p99 {}",
                Measure::Micros.text(point.measured.latency_us_p99)
            ),
        };
        let plot = Rows {
            name: format!("Rate of {} by layer", title(point)),
            measure,
            axis: Axis::Linear,
            line: None,
            rows: all.map(row).collect(),
        };
        let head = format!("{}, {}", title(point), size(point.request_bytes));
        let about = format!("{} jobs × {} deep", point.jobs, point.depth);
        figures.push_str(&figure(&head, &about, &[], &plot.draw()));
    }
    format!(
        "<p>Of drives, jobs and depth are of each; of other layers, of the whole.</p><div \
         class=\"card\"><div class=\"charts\">\n{figures}</div></div>\n"
    )
}
