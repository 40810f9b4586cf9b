//! Logs for journald, on stderr: one line per event, a level, `event=` with a stable name, and
//! the object it is about.
//!
//! Under systemd each line begins with the priority (`<6>`, sd-daemon(3)) and has no time of its
//! own; elsewhere it begins with the level's name. What foreign parties can cause again and again
//! (guests, clients) goes through a [`RateLimit`]. A log that cannot be written to ends nothing.

mod gaps;

use std::fmt;
use std::time::Duration;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use units::Instant;

/// The environment variable with a filter (`debug`, `control=trace`, …).
pub const FILTER_VARIABLE: &str = "GARBOARD_LOG";

/// Begins logging for this process, on stderr. A second call changes nothing.
pub fn begin() {
    begin_on(
        std::io::stderr,
        std::env::var_os("JOURNAL_STREAM").is_some(),
    );
}

/// Begins logging for this process on `writer`; with priorities in front when it is `journal`.
/// A second call changes nothing.
pub fn begin_on<W>(writer: W, journal: bool)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter =
        EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that somebody logs already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(gaps::Gaps::new(writer, journal))
        // It would tell them on stderr, and panic where that is what cannot be written to.
        .log_internal_errors(false)
        .with_ansi(false)
        .event_format(Line { journal })
        .try_init();
}

/// The form of a line.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// With a priority for journald in front, instead of the level's name.
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.journal {
            write!(writer, "<{}>", priority(level))?;
        } else {
            write!(writer, "{level:<5} ")?;
        }
        context
            .field_format()
            .format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    if level == Level::ERROR {
        3
    } else if level == Level::WARN {
        4
    } else if level == Level::INFO {
        6
    } else {
        7
    }
}

/// Lets through `burst` events at once and one per `interval` after that.
#[derive(Clone, Debug)]
pub struct RateLimit {
    interval: Duration,
    burst: u32,
    /// Until when the events let through so far are paid for.
    paid_until: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    /// A limit that has let nothing through yet.
    #[must_use]
    pub fn new(burst: u32, interval: Duration) -> RateLimit {
        RateLimit {
            interval,
            burst,
            paid_until: None,
            suppressed: 0,
        }
    }

    /// Whether an event at `now` is to be logged: `Some` says how many were held back since the
    /// last one that was.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let paid_until = self
            .paid_until
            .map_or(now, |paid_until| paid_until.max(now));
        let ahead = paid_until.since(now);
        if self.burst == 0 || ahead > self.interval.saturating_mul(self.burst - 1) {
            self.suppressed += 1;
            return None;
        }
        self.paid_until = Some(paid_until + self.interval);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let second = Duration::from_secs(1);
        let mut limit = RateLimit::new(3, second);
        let begin = Instant(5);
        let admitted: Vec<_> = (0..5).map(|_| limit.admit(begin)).collect();
        assert_eq!(admitted, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(limit.admit(begin + second), Some(2));
        assert_eq!(limit.admit(begin + second), None);
        let later = begin + second * 100;
        let admitted: Vec<_> = (0..4).map(|_| limit.admit(later)).collect();
        assert_eq!(
            admitted,
            [Some(1), Some(0), Some(0), None],
            "unused time is not saved up"
        );
    }
}
