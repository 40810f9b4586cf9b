//! The report as a page: one file with everything in it, for light and dark screens.
//!
//! `svg.rs` has scales and shapes, `rows.rs` and `lines.rs` the two kinds of plots, `cards.rs`,
//! `rivals.rs` and `layers.rs` what is plotted. Here is the page around it.

mod cards;
mod layers;
mod lines;
mod rivals;
mod rows;
mod svg;

use std::fmt::Write as _;

use self::svg::{Measure, escape};
use super::details::details;
use super::files::FileSystem;
use super::{PointReport, Report, ladders};
use crate::output::size;
use units::dates::date;

const STYLE: &str = include_str!("html/style.css");

/// Points that differ only in jobs and depth; those at a given rate are apart.
type Group<'a> = Vec<&'a PointReport>;

/// The page of one or several layers.
pub(crate) fn page(reports: &[Report]) -> String {
    let mut body = String::new();
    let ladders = ladders(reports);
    if !ladders.is_empty() {
        body.push_str(&layers::all(&ladders));
    }
    for report in reports {
        if !body.is_empty() {
            body.push_str("<hr>\n");
        }
        layer(&mut body, report);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>garboard \
         bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n\
         </html>\n"
    )
}

fn layer(body: &mut String, report: &Report) {
    head(body, report);
    alarm(body, report);
    let groups = groups(report);
    tiles(body, &groups);
    for card in cards::overviews(&groups) {
        body.push_str(&card);
    }
    if !groups.is_empty() {
        body.push_str("<h2>Workload by workload</h2>\n");
    }
    for group in &groups {
        body.push_str(&cards::workload(group));
    }
    table(body, report);
    let said: Vec<String> = report.points.iter().flat_map(details).collect();
    list(body, "What is to be said of points", &said);
    list(body, "What was taken for granted", &report.assumptions);
    list(body, "What was not measured", &report.skipped);
}

/// The points of a report, those together that belong together, in their order.
fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for point in &report.points {
        let same = groups.iter_mut().find(|group| {
            let first = group[0];
            (first.title(), first.request_bytes) == (point.title(), point.request_bytes)
        });
        match same {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    groups
}

/// The point of a group with the highest rate; groups are not empty.
fn best<'a>(group: &Group<'a>) -> &'a PointReport {
    let mut best = group[0];
    for point in group {
        if point.measured.iops > best.measured.iops {
            best = point;
        }
    }
    best
}

/// What a point's rate is counted in, and the rate.
fn rate(point: &PointReport) -> (Measure, f64) {
    if point.in_bytes() {
        (Measure::BytesPerSecond, point.measured.bytes_per_second)
    } else {
        (Measure::Iops, point.measured.iops)
    }
}

fn head(body: &mut String, report: &Report) {
    let sockets = report.sockets.iter().map(|path| path.display().to_string());
    let mut facts = vec![date(report.begun_s)];
    facts.extend(report.host.processor.clone());
    facts.push(format!("{} CPUs", report.host.cpus));
    facts.extend(report.host.kernel.clone());
    let mut what = vec![format!(
        "{} of {}",
        size(report.range_bytes),
        size(report.size_bytes)
    )];
    if report.queues > 0 {
        what.push(format!("{} queues", report.queues));
    }
    what.push(format!("{} s for each point", report.seconds_per_point));
    if let Some(model) = &report.drive_model {
        what.push(match report.slower {
            1 => format!("theory of drives like {}", model.name),
            slower => format!("drives paced as {} at 1/{slower}", model.name),
        });
    }
    if report.verified {
        what.push("verified".to_owned());
    }
    let mut targets: Vec<String> = sockets.collect();
    targets.extend(report.drives.iter().cloned());
    targets.extend(report.file_system.as_ref().map(FileSystem::text));
    if let Some(against) = &report.against {
        targets.push(format!("against {}", against.display()));
    }
    let _ = write!(
        body,
        "<h1>garboard bench: {} layer</h1>\n<p>{}<br>{}<br>{}</p>\n",
        report.layer.name(),
        escape(&facts.join(" · ")),
        escape(&what.join(" · ")),
        escape(&targets.join(" · ")),
    );
}

fn alarm(body: &mut String, report: &Report) {
    let mut texts = Vec::new();
    texts.extend(
        report
            .ended_early
            .iter()
            .map(|why| format!("The run ended early; what was measured before is here: {why}")),
    );
    if report.errors > 0 {
        let first = report.first_error.as_deref().unwrap_or_default();
        texts.push(format!("{} errors, the first: {first}", report.errors));
    }
    for text in texts {
        let _ = writeln!(body, "<div class=\"card alarm\">{}</div>", escape(&text));
    }
}

fn tiles(body: &mut String, groups: &[Group<'_>]) {
    body.push_str("<div class=\"tiles\">\n");
    for group in groups {
        let point = best(group);
        let (measure, value) = rate(point);
        let against = point.against.as_ref();
        let under = match (point.efficiency(), against) {
            (_, Some(against)) => format!("{:.2} × the rival", against.ratio_median),
            (Some(efficiency), None) => efficiency.of_theory(),
            (None, None) => format!(
                "p99 {}",
                Measure::Micros.text(point.measured.latency_us_p99)
            ),
        };
        let _ = writeln!(
            body,
            "<div class=\"tile\"><span>{}, {}</span><b>{}</b><span>{} jobs × {} deep · \
             {under}</span></div>",
            escape(&cards::title(point)),
            size(point.request_bytes),
            measure.text(value),
            point.jobs,
            point.depth,
        );
    }
    body.push_str("</div>\n");
}

fn table(body: &mut String, report: &Report) {
    if report.points.is_empty() {
        return;
    }
    body.push_str("<h2>All points</h2>\n<div class=\"card table\"><table>\n<tr>");
    let (heads, rows) = cards::cells(report);
    for head in heads {
        let _ = write!(body, "<th>{}</th>", escape(head));
    }
    for row in rows {
        body.push_str("</tr>\n<tr>");
        for cell in row {
            let _ = write!(body, "<td>{}</td>", escape(&cell));
        }
    }
    body.push_str("</tr>\n</table></div>\n");
}

fn list(body: &mut String, title: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    let _ = writeln!(body, "<h2>{title}</h2>\n<ul>");
    for text in texts {
        let _ = writeln!(body, "<li>{}</li>", escape(text));
    }
    body.push_str("</ul>\n");
}
