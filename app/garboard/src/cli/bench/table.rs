//! The report as a table for people.

use crate::bench::{
    Against, Figures, Ladder, Mode, PointReport, Processors, Report, Spread, stalls,
};
use crate::expect::Unit;
use crate::output::{self, amount, micros};

/// From so much error on an efficiency says nothing.
const SURE_PERCENT: f64 = 50.0;

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
            let (measured, of) = (&rung.point.measured, rung.of_below);
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
    format!("layer by layer, each divided by the one below it\n{table}")
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

/// What does not fit into the line of a point.
fn details(point: &PointReport) -> Vec<String> {
    let name = format!("{} {}x{}", point.title(), point.jobs, point.depth);
    let mut lines = Vec::new();
    if let Some(bursts) = &point.bursts {
        lines.push(format!(
            "{name}: {} bursts; first job done after {}, last after {} (p50; {} at the most): {} \
             and {}",
            bursts.count,
            micros(bursts.first_done_us_p50),
            micros(bursts.last_done_us_p50),
            micros(bursts.last_done_us_max),
            amount(bursts.first_done_bytes_per_second, "B/s"),
            amount(bursts.last_done_bytes_per_second, "B/s"),
        ));
    }
    let drives = point.cost.iter().flat_map(|cost| &cost.drives);
    for drive in drives.filter(|drive| drive.outlier) {
        lines.push(format!(
            "{name}: drive {} is slower than the others: {} a request",
            drive.drive,
            micros(drive.latency_us_mean)
        ));
    }
    for drive in point.drives.iter().flatten().filter(|drive| drive.outlier) {
        lines.push(format!(
            "{name}: drive {} is slower than the others: {}, {:.1} % below the one in the middle",
            drive.drive,
            figure(point, &drive.measured),
            drive.below_median_percent,
        ));
    }
    if let Some(drives) = &point.drives
        && drives.len() > 1
    {
        let rates = drives.iter().map(|drive| drive.measured.iops);
        let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| {
            (least.min(rate), most.max(rate))
        });
        lines.push(format!(
            "{name}: {} drives, {} to {} each",
            drives.len(),
            amount(least, "IOPS"),
            amount(most, "IOPS"),
        ));
    }
    if point.efficiency_percent.is_some() && point.window_error_percent >= SURE_PERCENT {
        lines.push(format!(
            "{name}: rates may be off by {:.0} %, as few requests were answered for those in \
             flight: too few to tell an efficiency; measure longer (--seconds)",
            point.window_error_percent.ceil(),
        ));
    }
    lines.extend(rate(point).map(|text| format!("{name}: {text}")));
    let reactors = point.cost.as_ref().map(|cost| &cost.reactor_stalls);
    let stalls = stalls::text(point.client_stalls.as_ref(), reactors);
    lines.extend(stalls.map(|text| format!("{name}: {text}")));
    if let Some(against) = &point.against {
        let rival = rival(point, against);
        lines.extend(rival.map(|text| format!("{name}: {text}")));
    }
    if let Some(own) = &point.processors {
        let theirs = point.against.as_ref();
        let theirs = theirs.and_then(|against| against.theirs_processors.as_ref());
        let theirs = theirs.map(|theirs| format!("; theirs {}", processors(theirs)));
        let (own, theirs) = (processors(own), theirs.unwrap_or_default());
        lines.push(format!("{name}: time of processors: {own}{theirs}"));
    }
    lines
}

/// How a load at a given rate went.
fn rate(point: &PointReport) -> Option<String> {
    let rate = point.rate.as_ref()?;
    let asked = amount(rate.asked_iops, "IOPS");
    let peak = rate.peak_iops.map(|peak| amount(peak, "IOPS"));
    let peak = peak.map_or(String::new(), |peak| format!(", of a peak of {peak}"));
    let kept_up = if rate.kept_up {
        String::new()
    } else {
        format!(
            "; it did not keep up: {} requests were due and not sent when the time was over",
            rate.unsent
        )
    };
    Some(format!("asked for {asked}{peak}{kept_up}"))
}

/// Ours beside the rival's.
fn rival(point: &PointReport, against: &Against) -> impl Iterator<Item = String> {
    let spread = |ratio: &Spread| {
        let Spread { median, min, max } = ratio;
        format!("{median:.2} x ({min:.2} to {max:.2})")
    };
    let mut texts = vec![
        format!(
            "{:.2} x the rival (median of {} pairs, {:.2} to {:.2}); theirs {}, p50 {}, p99 {}, \
             p99.9 {}",
            against.ratio_median,
            against.pairs.len(),
            against.ratio_min,
            against.ratio_max,
            figure(point, &against.theirs),
            micros(against.theirs.latency_us_p50),
            micros(against.theirs.latency_us_p99),
            micros(against.theirs.latency_us_p999),
        ),
        format!(
            "latencies of the rival's: p50 {}, p99 {}, p99.9 {}",
            spread(&against.latency_p50),
            spread(&against.latency_p99),
            spread(&against.latency_p999),
        ),
    ];
    for (who, modes) in [
        ("ours", &against.ours_modes),
        ("theirs", &against.theirs_modes),
    ] {
        if let [slow, fast] = modes.as_slice() {
            let (slow, fast) = (mode(point, slow), mode(point, fast));
            texts.push(format!("{who} in two modes: {slow}, or {fast}"));
        }
    }
    if let Some(rate) = &against.theirs_rate {
        let (ours, theirs) = (spread(&against.ours_tail), spread(&against.theirs_tail));
        let kept_up = if rate.kept_up {
            ""
        } else {
            ", and did not keep up"
        };
        texts.push(format!("p99.9 of p50: ours {ours}, theirs {theirs}"));
        let asked = amount(rate.asked_iops, "IOPS");
        texts.push(format!("the rival was asked for {asked}{kept_up}"));
    }
    texts.into_iter()
}

fn mode(point: &PointReport, mode: &Mode) -> String {
    let rate = if point.in_bytes() {
        let bytes = crate::expect::float(point.request_bytes);
        amount(mode.iops * bytes, "B/s")
    } else {
        amount(mode.iops, "IOPS")
    };
    let p50 = micros(mode.latency_us_p50);
    format!("{rate}, p50 {p50} ({} pairs)", mode.pairs)
}

fn processors(spent: &Processors) -> String {
    format!(
        "{:.2} cores, {} a request",
        spent.cores_used,
        micros(spent.core_us_per_request)
    )
}

/// A rate in what says more of the point.
fn figure(point: &PointReport, measured: &Figures) -> String {
    if point.in_bytes() {
        amount(measured.bytes_per_second, "B/s")
    } else {
        amount(measured.iops, "IOPS")
    }
}

fn row(point: &PointReport) -> Vec<String> {
    let measured = &point.measured;
    let theory = point.theoretical.as_ref();
    let theory_text = theory.map(|theory| match theory.unit {
        Unit::Iops => amount(theory.value, "IOPS"),
        Unit::BytesPerSecond | Unit::Seconds => amount(theory.value, "B/s"),
    });
    let efficiency = point.efficiency_percent;
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
        output::or_dash(
            efficiency.map(|percent| efficiency_text(percent, point.window_error_percent)),
        ),
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

/// Measured of theoretical, with how far off it may be where that is more than the digits say; and
/// none where it may be anything.
fn efficiency_text(percent: f64, error_percent: f64) -> String {
    match error_percent {
        error if error < 0.5 => format!("{percent:.1} %"),
        error if error < SURE_PERCENT => format!("{percent:.1} ±{:.0} %", error.ceil()),
        _ => "unsure".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_efficiency_that_may_be_anything_is_not_told() {
        for (error, text) in [
            (0.4, "96.0 %"),
            (9.2, "96.0 ±10 %"),
            (49.9, "96.0 ±50 %"),
            (50.0, "unsure"),
            (379.0, "unsure"),
        ] {
            assert_eq!(efficiency_text(96.0, error), text);
        }
    }
}
