//! What the demo says at its end.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use units::Size;

/// One step of the story.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    /// What was done.
    pub(super) name: String,
    /// How long it took.
    pub(super) time_us: u64,
    /// Requests answered meanwhile.
    pub(super) requests: u64,
    /// Bytes written meanwhile.
    pub(super) written_bytes: u64,
    /// Bytes read and found right meanwhile.
    pub(super) verified_bytes: u64,
    /// The longest time without an answer.
    pub(super) pause_us_max: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    /// Whether everything was right.
    pub(super) passed: bool,
    /// What was not; `null` when everything was.
    pub(super) cause: Option<String>,
    /// The folder, if it is still there.
    pub(super) folder: Option<String>,
    /// The steps.
    pub(super) steps: Vec<Step>,
    /// Requests answered.
    pub(super) requests_total: u64,
    /// Bytes written.
    pub(super) written_bytes_total: u64,
    /// Bytes read and found right.
    pub(super) verified_bytes_total: u64,
    /// Requests that failed and reads that were wrong.
    pub(super) errors_total: u64,
    /// The longest time without an answer around the kill.
    pub(super) kill_pause_us: u64,
    /// How long filling the new members took.
    pub(super) rebuild_time_us: u64,
    /// Blocks found right at the end.
    pub(super) blocks_verified: u64,
    /// Blocks of the volume.
    pub(super) blocks_total: u64,
    /// Bytes of a block.
    pub(super) block_bytes: u64,
}

impl Report {
    /// The table for people.
    pub(super) fn table(&self) -> String {
        let mut steps = Table::new();
        steps
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header([
                "STEP",
                "TIME",
                "REQUESTS",
                "IOPS",
                "WRITTEN",
                "VERIFIED",
                "LONGEST PAUSE",
            ]);
        for step in &self.steps {
            let requests = step.requests * 1_000_000 / step.time_us.max(1);
            steps.add_row([
                step.name.clone(),
                seconds(step.time_us),
                step.requests.to_string(),
                requests.to_string(),
                mebibytes(step.written_bytes),
                mebibytes(step.verified_bytes),
                milliseconds(step.pause_us_max),
            ]);
        }
        for column in steps.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut total = Table::new();
        total.load_style(presets::NOTHING);
        let verified = format!(
            "{} of {} of {} bytes",
            self.blocks_verified, self.blocks_total, self.block_bytes
        );
        for (name, text) in [
            ("requests", self.requests_total.to_string()),
            ("written", mebibytes(self.written_bytes_total)),
            ("verified", mebibytes(self.verified_bytes_total)),
            ("errors", self.errors_total.to_string()),
            (
                "longest pause at the kill",
                milliseconds(self.kill_pause_us),
            ),
            ("rebuild under load", seconds(self.rebuild_time_us)),
            ("blocks right at the end", verified),
            ("verdict", self.verdict()),
        ] {
            total.add_row([name.to_owned(), text]);
        }
        format!("{steps}\n\n{total}")
    }

    fn verdict(&self) -> String {
        match (&self.cause, self.passed) {
            (None, true) => "PASSED: nothing lost, nothing wrong, nothing failed".into(),
            (cause, _) => format!("FAILED: {}", cause.as_deref().unwrap_or("not finished")),
        }
    }
}

/// A rate or amount in whole mebibytes.
pub(super) fn mebibytes(bytes: u64) -> String {
    Size(bytes >> 20 << 20).to_string()
}

/// `12.3 s`.
pub(super) fn seconds(micros: u64) -> String {
    format!("{}.{} s", micros / 1_000_000, micros / 100_000 % 10)
}

/// `12 ms`.
pub(super) fn milliseconds(micros: u64) -> String {
    format!("{} ms", micros.div_ceil(1000))
}
