//! The report as a table for people.

use crate::bench::details::{details, figure};
use crate::bench::{Efficiency, Ladder, PointReport, Report};
use crate::expect::Unit;
use crate::output::{self, amount, micros};

/// The report for people.
pub(super) fn text(report: &Report, width: Option<u16>) -> String {
    let mut lines = vec![head(report)];
    lines.push(points(report, width));
    for point in &report.points {
        lines.extend(details(point));
    }
    if let Some(first) = &report.first_error {
        lines.push(format!("errors: {}, the first: {first}", report.errors));
    }
    if let Some(why) = &report.ended_early {
        lines.push(format!("ended early: {why}"));
    }
    let more = [("skipped", &report.skipped), ("note", &report.assumptions)];
    for (word, texts) in more {
        lines.extend(texts.iter().map(|text| format!("{word}: {text}")));
    }
    if report.verified && report.errors == 0 && report.ended_early.is_none() {
        let points = report.points.iter();
        let bytes: u64 = points.map(|point| point.measured.verified_bytes).sum();
        lines.push(format!(
            "verified: every block of the range, and {} read under load, held what was written",
            output::size(bytes)
        ));
    }
    lines.join("\n")
}

/// All loads that several layers were measured with.
pub(super) fn layer_by_layer(ladders: &[Ladder<'_>], width: Option<u16>) -> String {
    let heads = [
        "WORKLOAD",
        "BYTES",
        "JOBSxDEPTH",
        "LAYER",
        "IN FLIGHT",
        "MEASURED",
        "OF BELOW",
        "P50",
        "OF BELOW",
        "P99",
        "OF BELOW",
    ];
    // How many requests are in flight follows from the others.
    let least = [4, 10, 9];
    let mut rows = Vec::new();
    let text = |ratio: f64| match ratio {
        ratio if ratio < 0.1 => format!("{ratio:.3} x"),
        ratio => format!("{ratio:.2} x"),
    };
    let ratio = |ratio: Option<f64>| output::or_dash(ratio.map(text));
    for ladder in ladders {
        for (number, rung) in ladder.rungs.iter().enumerate() {
            let once = |text: String| if number == 0 { text } else { String::new() };
            let (measured, of) = (rung.measured, rung.of_below);
            rows.push(vec![
                once(ladder.workload.clone()),
                once(output::size(ladder.request_bytes)),
                once(format!("{}x{}", ladder.jobs, ladder.depth)),
                rung.layer.name().to_owned(),
                rung.in_flight.to_string(),
                figure(rung.point, measured),
                ratio(of.map(|of| of.rate)),
                micros(measured.latency_us_p50),
                ratio(of.map(|of| of.latency_p50)),
                micros(measured.latency_us_p99),
                ratio(of.map(|of| of.latency_p99)),
            ]);
        }
    }
    let table = output::fitted(&heads, &rows, &least, width);
    format!(
        "layer by layer, each divided by the one below it where both have as many requests in \
         flight; drives have them together here, while in their own table each has as many\n{table}"
    )
}

fn head(report: &Report) -> String {
    let what = match (report.drives.len(), &report.file_system) {
        (_, Some(system)) => system.text(),
        (0, None) => format!("{} queues", report.queues),
        (drives, None) => format!("{drives} drives"),
    };
    format!(
        "{} layer, {} of {}, {what}, {} s each{}",
        report.layer.name(),
        output::size(report.range_bytes),
        output::size(report.size_bytes),
        report.seconds_per_point,
        if report.verified { ", verified" } else { "" },
    )
}

fn points(report: &Report, width: Option<u16>) -> String {
    let heads = [
        "WORKLOAD",
        "BYTES",
        "JOBSxDEPTH",
        "MEASURED",
        "THEORY",
        "EFFICIENCY",
        "P50",
        "P99",
        "P99.9",
        "CORES",
        "DRIVE BYTES",
        "COPIED",
        "MESSAGES",
        "BOUND BY",
    ];
    // What was spent, and what theory says, tell less than what came of it.
    let least = [12, 11, 10, 13, 9, 4, 8, 5];
    let rows: Vec<Vec<String>> = report.points.iter().map(row).collect();
    output::fitted(&heads, &rows, &least, width)
}

fn row(point: &PointReport) -> Vec<String> {
    let measured = &point.measured;
    let theory = point.theoretical.as_ref();
    let theory_text = theory.map(|theory| match theory.unit {
        Unit::Iops => amount(theory.value, "IOPS"),
        Unit::BytesPerSecond | Unit::Seconds => amount(theory.value, "B/s"),
    });
    let cost = point.cost.as_ref();
    let drive_bytes = cost.map(|cost| {
        let all = cost.drive_read_bytes_per_byte + cost.drive_written_bytes_per_byte;
        format!("{all:.2} x")
    });
    vec![
        point.title(),
        output::size(point.request_bytes),
        format!("{}x{}", point.jobs, point.depth),
        figure(point, measured),
        output::or_dash(theory_text),
        output::or_dash(point.efficiency().map(Efficiency::text)),
        micros(measured.latency_us_p50),
        micros(measured.latency_us_p99),
        micros(measured.latency_us_p999),
        output::or_dash(point.cores_used.map(|cores| format!("{cores:.2}"))),
        output::or_dash(drive_bytes),
        output::or_dash(cost.map(|cost| format!("{:.2} x", cost.copied_bytes_per_byte))),
        output::or_dash(cost.map(|cost| format!("{:.2}", cost.messages_per_request))),
        output::or_dash(theory.map(|theory| format!("{} ({})", theory.bound, theory.formula))),
    ]
}
