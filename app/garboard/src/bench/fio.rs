//! fio in our place: jobs written for it, and what it found, read again.
//!
//! fio knows the drives' files and devices, not vhost-user sockets as it is packaged; for exports
//! its jobs are for a guest, with `${DEVICE}` for the volume there.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use control::{Answer, EngineError, ErrorKind};
use serde_json::Value;

use super::load::{Measured, Run};
use super::pattern::{Order, With, Work};
use super::raw::Raw;
use crate::expect::float;

/// What fio is to load.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) name: String,
    /// As fio wants it.
    pub(super) file: String,
    /// Past the page cache.
    pub(super) direct: bool,
}

/// Why it has no bursts.
pub(super) const NO_BURSTS: &str =
    "fio does not tell when the first and the last job of a burst are done";

/// The load of fio that is the same as ours; none of bursts.
pub(super) fn jobs(targets: &[Target], run: &Run, time: Duration) -> Option<String> {
    let Work {
        order,
        bytes,
        read_percent,
        with,
    } = run.work;
    let words = match (order, read_percent) {
        (Order::Random, 100) => "randread",
        (Order::Random, 0) => "randwrite",
        (Order::Random, _) => "randrw",
        (_, 100) => "read",
        (_, _) => "write",
    };
    let mut text = format!(
        "[global]\nioengine=io_uring\nthread=1\ntime_based=1\nruntime={}ms\nramp_time={}ms\n\
         group_reporting=1\nbs={bytes}\niodepth={}\nnumjobs={}\n",
        time.as_millis(),
        (time / 10)
            .clamp(Duration::from_millis(100), Duration::from_secs(2))
            .as_millis(),
        run.depth,
        run.jobs,
    );
    let jobs = units::bytes_u64(run.jobs);
    // Others' pieces are left out.
    let skip = if order == Order::InterleavedOdd && jobs > 1 {
        format!(":{}", (jobs - 1) * bytes)
    } else {
        String::new()
    };
    let _ = writeln!(text, "rw={words}{skip}");
    let begin = match order {
        Order::Random | Order::Sequential => 0,
        Order::SequentialOdd | Order::InterleavedOdd => 4096,
    };
    match order {
        Order::Random => {
            let _ = writeln!(text, "norandommap=1\nsize={}", run.range);
            if (1..100).contains(&read_percent) {
                let _ = writeln!(text, "rwmixread={read_percent}");
            }
        }
        Order::Sequential | Order::SequentialOdd => {
            let part = (run.range - begin) / jobs / bytes * bytes;
            let _ = writeln!(text, "offset={begin}\noffset_increment={part}\nsize={part}");
        }
        Order::InterleavedOdd => {
            let all = (run.range - begin) / (jobs * bytes) * jobs * bytes;
            let size = all - (jobs - 1) * bytes;
            let _ = writeln!(
                text,
                "offset={begin}\noffset_increment={bytes}\nsize={size}"
            );
        }
    }
    match with {
        With::Nothing => {}
        With::Flush => text.push_str("fdatasync=1\n"),
        With::Burst(_) => return None,
    }
    for target in targets {
        let _ = write!(
            text,
            "\n[{}]\nnew_group=1\nfilename={}\ndirect={}\n",
            target.name,
            target.file,
            u8::from(target.direct)
        );
    }
    Some(text)
}

/// The jobs of a guest that has the volume as `$DEVICE`.
pub(super) fn guest() -> Vec<Target> {
    vec![Target {
        name: "volume".to_owned(),
        file: "${DEVICE}".to_owned(),
        direct: true,
    }]
}

/// What fio is told of drives.
///
/// # Errors
/// When a drive is nothing that fio could open.
pub(super) fn targets(raw: &Raw) -> Answer<Vec<Target>> {
    if let (Some(_), [(_, drive)]) = (&raw.file, raw.drives.as_slice())
        && let Some(file) = super::files::path_for_others(drive)
    {
        return Ok(vec![Target {
            name: "file".to_owned(),
            file,
            direct: drive.info().direct_io,
        }]);
    }
    let target = |(name, drive): &(String, std::sync::Arc<drive::Drive>)| {
        let info = drive.info();
        let path = info.path.as_deref().and_then(Path::to_str);
        let Some(path) = path else {
            let object = format!("drive {name}");
            return Err(
                EngineError::new(ErrorKind::Invalid, object, "fio cannot open it")
                    .next("fio takes files and block devices; leave --fio away for the others"),
            );
        };
        Ok(Target {
            name: name.clone(),
            file: escaped(path),
            direct: info.direct_io,
        })
    };
    raw.drives.iter().map(target).collect()
}

/// A path as fio's `filename` wants it: a colon would begin another file.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\\\").replace(':', "\\:")
}

/// Whether fio is there and can open all drives.
///
/// # Errors
/// What is missing.
pub(super) fn check(raw: &Raw) -> Answer<()> {
    targets(raw)?;
    let found = Command::new("fio")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    match found {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(&format!("it does not run ({})", output.status))),
        Err(error) => Err(failed(&format!("it cannot be started: {error}"))
            .next("install it (Debian: apt install fio), or leave --fio away")),
    }
}

fn failed(message: &str) -> EngineError {
    EngineError::new(ErrorKind::Internal, "fio", message)
}

/// Lets fio make the load; what came of each drive.
///
/// # Errors
/// When fio fails, or tells something that is not understood.
pub(super) fn run(raw: &Raw, run: &Run, time: Duration) -> Answer<Vec<Measured>> {
    let targets = targets(raw)?;
    let jobs = jobs(&targets, run, time).ok_or_else(|| failed("it has no such load"))?;
    let mut command = Command::new("fio");
    command.args(["--output-format=json+", "-"]);
    if run.work.read_percent == 100 {
        command.arg("--readonly");
    }
    let output = fed(&mut command, &jobs).map_err(|error| failed(&error.to_string()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    let first = error.lines().next().unwrap_or_default();
    if !output.status.success() {
        return Err(failed(&format!("it ended with {}: {first}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Warnings may stand before the object.
    let begin = text.find('{').unwrap_or(0);
    let report: Value = serde_json::from_str(&text[begin..])
        .map_err(|error| failed(&format!("its report is not understood: {error}: {first}")))?;
    read(&report, &targets)
}

/// Runs a command that reads `text`.
fn fed(command: &mut Command, text: &str) -> io::Result<std::process::Output> {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().expect("asked for");
    input.write_all(text.as_bytes())?;
    drop(input);
    child.wait_with_output()
}

/// What fio found, target by target.
fn read(report: &Value, targets: &[Target]) -> Answer<Vec<Measured>> {
    let groups = report["jobs"].as_array();
    let of = |target: &Target| {
        let all = groups.into_iter().flatten();
        let mut own = all.filter(|group| group["jobname"] == target.name.as_str());
        let group = own.next();
        group
            .map(measured)
            .ok_or_else(|| failed(&format!("it tells nothing of {}", target.name)))
    };
    targets.iter().map(of).collect()
}

fn measured(group: &Value) -> Measured {
    let mut measured = Measured::nothing();
    for direction in ["read", "write"] {
        let found = &group[direction];
        let number = |name: &str| found[name].as_u64().unwrap_or(0);
        measured.requests += number("total_ios");
        measured.bytes += number("io_bytes");
        measured.seconds = measured.seconds.max(float(number("runtime")) / 1000.0);
        let bins = found["clat_ns"]["bins"].as_object();
        for (ns, count) in bins.into_iter().flatten() {
            if let (Ok(ns), Some(count)) = (ns.parse(), count.as_u64()) {
                measured.latency.add_many(ns, count);
            }
        }
    }
    measured.all_requests = measured.requests;
    measured.all_bytes = measured.bytes;
    let error = group["error"].as_u64().unwrap_or(0);
    if error != 0 {
        measured.fault(format!("fio ended with error {error}"));
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::super::load::Limit;
    use super::super::workloads::work;
    use super::*;

    fn run_of(order: Order, read_percent: u8) -> Run {
        Run {
            work: work(order, 48 << 10, read_percent),
            jobs: 2,
            depth: 4,
            range: 1 << 20,
            limit: Limit::Time(Duration::from_secs(1)),
            rate: None,
        }
    }

    fn target() -> Target {
        Target {
            name: "d0".to_owned(),
            file: escaped("/a:b"),
            direct: true,
        }
    }

    #[test]
    fn jobs_say_what_our_own_load_does() {
        let text = |order, read| {
            jobs(&[target()], &run_of(order, read), Duration::from_secs(1)).expect("a load")
        };
        let random = text(Order::Random, 70);
        for line in [
            "rw=randrw",
            "rwmixread=70",
            "bs=49152",
            "iodepth=4",
            "numjobs=2",
            "runtime=1000ms",
            "[d0]",
            "filename=/a\\:b",
            "direct=1",
        ] {
            assert!(
                random.lines().any(|found| found == line),
                "{line}: {random}"
            );
        }
        // Two streams that take turns: each leaves out the other's piece.
        let turns = text(Order::InterleavedOdd, 0);
        for line in ["rw=write:49152", "offset=4096", "offset_increment=49152"] {
            assert!(turns.lines().any(|found| found == line), "{line}: {turns}");
        }
        let own = text(Order::Sequential, 100);
        for line in [
            "rw=read",
            "offset=0",
            "offset_increment=491520",
            "size=491520",
        ] {
            assert!(own.lines().any(|found| found == line), "{line}: {own}");
        }
        let mut burst = run_of(Order::Sequential, 0);
        burst.work.with = With::Burst(1 << 20);
        assert_eq!(jobs(&[target()], &burst, Duration::from_secs(1)), None);
    }

    #[test]
    fn what_fio_found_is_read_again() {
        let report = serde_json::json!({"jobs": [{
            "jobname": "d0", "error": 0,
            "read": {"total_ios": 300, "io_bytes": 300 * 4096, "runtime": 500,
                     "clat_ns": {"bins": {"1000": 200, "9000": 98, "70000": 2}}},
            "write": {"total_ios": 100, "io_bytes": 100 * 4096, "runtime": 500,
                      "clat_ns": {"bins": {"1000": 100}}},
        }]});
        let found = read(&report, &[target()]).expect("understood");
        let found = &found[0];
        assert_eq!((found.requests, found.bytes), (400, 400 * 4096));
        assert!((found.seconds - 0.5).abs() < 1e-9);
        let near = |ns: u64, exact: u64| ns >= exact && ns <= exact + exact / 32;
        assert!(near(found.latency.per_mille(500), 1000));
        assert!(near(found.latency.per_mille(990), 9000));
        assert!(near(found.latency.per_mille(999), 70_000));
        let other = Target {
            name: "d1".to_owned(),
            ..target()
        };
        let missing = read(&report, &[other]).expect_err("not there");
        assert!(missing.to_string().contains("d1"), "{missing}");
    }
}
