//! What is said of a point beside its line in the table: the same on a terminal and on the page.

use super::pairs::{Against, Mode, Spread};
use super::report::{Efficiency, Figures, PointReport, Processors};
use super::stalls;
use crate::output::{amount, micros};

/// What does not fit into the line of a point.
pub(crate) fn details(point: &PointReport) -> Vec<String> {
    let name = format!("{} {}x{}", point.title(), point.jobs, point.depth);
    let mut lines = Vec::new();
    lines.extend(bursts(point).map(|text| format!("{name}: {text}")));
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
    for device in point.devices.iter().flatten() {
        lines.push(format!(
            "{name}: {}: {}, p50 {}, p99 {}",
            device.device,
            figure(point, &device.measured),
            micros(device.measured.latency_us_p50),
            micros(device.measured.latency_us_p99),
        ));
    }
    if let Some(Efficiency::Unsure) = point.efficiency() {
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

/// How bursts went.
fn bursts(point: &PointReport) -> Option<String> {
    let bursts = point.bursts.as_ref()?;
    let drives = point.drives.as_ref().map_or(1, Vec::len);
    let several = drives > 1 || point.devices.is_some();
    Some(format!(
        "{} bursts; first job done after {}, last after {} (p50; {} at the most): {} and {}{}",
        bursts.count,
        micros(bursts.first_done_us_p50),
        micros(bursts.last_done_us_p50),
        micros(bursts.last_done_us_max),
        amount(bursts.first_done_bytes_per_second, "B/s"),
        amount(bursts.last_done_bytes_per_second, "B/s"),
        if several { ", of all together" } else { "" },
    ))
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
pub(crate) fn figure(point: &PointReport, measured: &Figures) -> String {
    if point.in_bytes() {
        amount(measured.bytes_per_second, "B/s")
    } else {
        amount(measured.iops, "IOPS")
    }
}
