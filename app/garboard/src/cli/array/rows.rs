//! How arrays look in a table.

use std::fmt;

use control::view::{ArrayView, FoundArray, HeldMember, HoldView, LostRun, LostView, PaceView};

use crate::cli::drive::place;
use crate::output::{Row, or_dash, size, word};
use crate::progress;

/// Places of lost blocks that are shown.
const LOST_RUNS_SHOWN: usize = 4;

impl Row for ArrayView {
    const HEADS: &'static [&'static str] = &[
        "NAME", "LEVEL", "STATE", "MEMBERS", "SIZE", "FREE", "VOLUMES",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.level.to_string(),
            word(&self.state),
            self.members.len().to_string(),
            size(self.size_bytes),
            size(self.free_bytes),
            self.volumes.to_string(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("uuid", self.uuid.to_string()),
            ("parity", self.parity.to_string()),
            ("group size", self.group_size.to_string()),
            ("chunk", size(self.chunk_bytes)),
            ("full stripe", size(self.stripe_bytes)),
            ("block", self.block_bytes.to_string()),
            ("extent", size(self.extent_bytes)),
            ("write hole", word(&self.write_hole)),
            (
                "rebuild floor",
                format!("{}/s", size(self.rebuild_floor_bytes_per_second)),
            ),
            (
                "latency target",
                or_dash(self.latency_target_us.map(|us| format!("{us} us"))),
            ),
            (
                "hold timeout",
                or_dash(self.hold_timeout_ms.map(|ms| format!("{ms} ms"))),
            ),
            ("hedged reads", word(&self.hedged_reads)),
            ("unwritten regions", self.unwritten_regions.to_string()),
            (
                "scrub",
                match self.scrub_every_s {
                    Some(every) => format!("every {}", progress::duration(every)),
                    None => "only by command".to_owned(),
                },
            ),
            (
                "scrub rate",
                or_dash(
                    self.scrub_rate_bytes_per_second
                        .map(|rate| format!("{}/s", size(rate))),
                ),
            ),
            (
                "spares",
                or_dash((!self.spares.is_empty()).then(|| self.spares.join(", "))),
            ),
            ("pool", or_dash(self.pool.as_ref())),
            ("hold", or_dash(self.hold.as_ref().map(held))),
            ("lost blocks", or_dash(self.lost.as_ref().map(lost))),
            ("update", self.update.to_string()),
            ("node", or_dash(self.node)),
            ("reactors", or_dash(numbers(&self.reactors))),
            ("jobs", or_dash(numbers(&self.jobs))),
        ];
        for place in &self.members {
            let drive = or_dash(place.drive.as_ref());
            let cause = place
                .cause
                .as_ref()
                .map(|cause| format!(": {cause}"))
                .unwrap_or_default();
            let pace = place.pace.as_ref().map(pace).unwrap_or_default();
            let state = word(&place.state);
            let text = format!("{} {state} {drive}{cause}{pace}", place.member);
            details.push(("member", text));
        }
        details.extend(
            self.warnings
                .iter()
                .map(|warning| ("warning", warning.clone())),
        );
        details
    }
}

/// `[1, 2]`; nothing of none.
fn numbers<N: fmt::Debug>(numbers: &[N]) -> Option<String> {
    (!numbers.is_empty()).then(|| format!("{numbers:?}"))
}

/// How much nobody can tell any more, and where that is.
fn lost(lost: &LostView) -> String {
    let place = |run: &LostRun| match &run.volume {
        Some(volume) => {
            let LostRun {
                bytes,
                offset_bytes,
                ..
            } = run;
            format!("{bytes} of volume {volume} from byte {offset_bytes}")
        }
        None => format!("{} of no volume", run.bytes),
    };
    let shown: Vec<String> = lost.runs.iter().take(LOST_RUNS_SHOWN).map(place).collect();
    let more = lost.runs.len().saturating_sub(LOST_RUNS_SHOWN);
    let more = if more > 0 {
        format!("; {more} more places (--output json has all)")
    } else {
        String::new()
    };
    format!(
        "{} bytes, reads of which fail until they are written: {}{more}",
        lost.bytes,
        shown.join("; ")
    )
}

/// How a member keeps up with its peers; nothing when nobody has asked it for much.
fn pace(pace: &PaceView) -> String {
    let kind = |name: &str, p99: Option<u64>| p99.map(|p99| format!("{name} {p99} us"));
    let kinds = [
        kind("reads", pace.read_p99_us),
        kind("writes", pace.write_p99_us),
    ];
    let mut said: Vec<String> = Vec::new();
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    if !kinds.is_empty() {
        said.push(format!("99 of 100 {}", kinds.join(", ")));
    }
    if pace.slow_seconds > 0 {
        said.push(format!(
            "slower than its peers in {} of 300 s",
            pace.slow_seconds
        ));
    }
    if pace.lags {
        said.push("read around".to_owned());
    }
    if pace.read_errors > 0 {
        said.push(format!("{} reads failed within 24 h", pace.read_errors));
    }
    said.iter().map(|part| format!("; {part}")).collect()
}

/// What an array waits for, in a sentence.
fn held(hold: &HoldView) -> String {
    let member = |held: &HeldMember| {
        let drive = held.drive.as_deref().unwrap_or("no drive");
        format!("member {} on {drive}: {}", held.member, held.cause)
    };
    let members: Vec<String> = hold.members.iter().map(member).collect();
    let left = match hold.left_s {
        Some(left) => format!("requests fail in {}", progress::duration(left)),
        None => "requests fail".to_owned(),
    };
    format!(
        "for {}, {left}; {}",
        progress::duration(hold.waited_s),
        members.join(", ")
    )
}

impl Row for FoundArray {
    const HEADS: &'static [&'static str] =
        &["NAME", "UUID", "LEVEL", "FOUND", "SIZE", "DRIVES", "CAUSE"];

    fn cells(&self) -> Vec<String> {
        let drives: Vec<String> = self.drives.iter().map(|drive| place(&drive.spec)).collect();
        vec![
            self.name.clone(),
            self.uuid.to_string(),
            self.level.to_string(),
            format!("{} of {}", self.drives.len(), self.members),
            size(self.size_bytes),
            drives.join(" "),
            or_dash(self.cause.as_ref()),
        ]
    }
}
