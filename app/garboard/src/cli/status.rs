//! `garboard status` and `garboard top`.

use std::time::Duration;

use clap::Args;
use control::Answer;
use control::view::{Count, EngineStatus, StatusView};

use crate::output::{Row, size};
use crate::progress;
use crate::session::Session;
use crate::top;

/// So many things that need attention are told at once.
const FEW: usize = 8;

/// Everything at a glance.
pub(super) fn status(session: &mut Session<'_, '_>) -> Answer<()> {
    let status: StatusView = session.get("/v1/status")?;
    session.warn(&status.engine.warnings);
    let (few, more) = status.attention.split_at(status.attention.len().min(FEW));
    session.warn(few);
    if !more.is_empty() {
        let next = "`garboard array list` and `garboard drive list` show them";
        session.remark(&format!(
            "warning: {} more need attention: {next}",
            more.len()
        ));
    }
    session.show(&status)
}

/// Show rates, again and again.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// End after so many looks [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
}

impl Top {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        top::run(
            session,
            Duration::from_secs(self.interval.into()),
            self.count,
        )
    }
}

fn count(count: Count) -> String {
    match count.attention {
        0 => count.total.to_string(),
        1 => format!("{} (1 needs attention)", count.total),
        attention => format!("{} ({attention} need attention)", count.total),
    }
}

fn buffers(engine: &EngineStatus) -> String {
    let pinned = match engine.pinned_buffer_bytes {
        0 => String::new(),
        bytes => format!(", {} of them pinned", size(bytes)),
    };
    let limit = match engine.memory_bytes {
        0 => "no limit given".to_owned(),
        limit => format!("of {}", size(limit)),
    };
    format!("{} for buffers{pinned}, {limit}", size(engine.buffer_bytes))
}

impl Row for StatusView {
    const HEADS: &'static [&'static str] = &[
        "VERSION", "UPTIME", "DRIVES", "ARRAYS", "VOLUMES", "EXPORTS", "JOBS",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.version.clone(),
            progress::duration(self.uptime_s),
            count(self.drives),
            count(self.arrays),
            count(self.volumes),
            count(self.exports),
            self.jobs_running.to_string(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("process", self.process.to_string()),
            ("memory", buffers(&self.engine)),
            ("poll", self.engine.poll.clone()),
            ("parity", self.engine.parity_backend.clone()),
        ];
        for reactor in &self.engine.reactors {
            let node = reactor.node.map(|node| format!(" of node {node}"));
            let text = format!(
                "{} on core {}{}, {}, {} requests",
                reactor.reactor,
                reactor.core,
                node.unwrap_or_default(),
                reactor.state,
                reactor.requests_total
            );
            details.push(("reactor", text));
        }
        details
    }
}
