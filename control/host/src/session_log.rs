//! What sessions of exports tell the log, and not more of it than anybody reads.
//!
//! A front-end may come and go, and start rings that cannot be, as often as it likes, and each time
//! is told. What does not live here: what is told (crate `vhost-user-blk`), and how.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Instant;

/// So many events of one export are told within [`WINDOW`]: several starts of a guest with as many
/// rings as there can be.
const TOLD_MAX: u64 = 1024;
const WINDOW: Duration = Duration::from_secs(60);

/// How much each export has told.
#[derive(Debug, Default)]
pub(crate) struct SessionLog {
    /// By export, and whether it is a warning: what goes well leaves room for these.
    exports: BTreeMap<(u64, bool), Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// When its first event of this window was told.
    since: Instant,
    events: u64,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It is told, after so many that were not.
    After(u64),
    /// It is not.
    Untold,
}

impl SessionLog {
    /// Counts an event of an export, a warning or not, and says what becomes of it.
    pub(crate) fn count(&mut self, export: (u64, bool), now: Instant) -> Telling {
        let new = Told {
            since: now,
            events: 0,
        };
        let mut untold = 0;
        let mut told = *self.exports.entry(export).or_insert(new);
        if now.since(told.since) >= WINDOW {
            untold = told.events.saturating_sub(TOLD_MAX);
            told = new;
            // Exports that have long been silent may be gone.
            self.exports
                .retain(|_, other| now.since(other.since) < 2 * WINDOW);
        }
        told.events += 1;
        self.exports.insert(export, told);
        if told.events > TOLD_MAX {
            return Telling::Untold;
        }
        Telling::After(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn an_export_that_tells_too_much_is_told_of_once_a_minute() {
        let mut log = SessionLog::default();
        for _ in 0..TOLD_MAX {
            assert_eq!(log.count((1, true), at(10)), Telling::After(0));
        }
        for second in 10..70 {
            assert_eq!(log.count((1, true), at(second)), Telling::Untold);
            assert_eq!(
                log.count((2, true), at(second)),
                Telling::After(0),
                "another one"
            );
            assert_eq!(log.count((1, false), at(second)), Telling::After(0));
        }
        assert_eq!(log.count((1, true), at(70)), Telling::After(60));
        assert_eq!(log.count((1, true), at(71)), Telling::After(0));
    }

    #[test]
    fn exports_that_are_silent_are_forgotten() {
        let mut log = SessionLog::default();
        for export in 0..1000 {
            assert_eq!(log.count((export, false), at(export)), Telling::After(0));
        }
        let _ = log.count((999, false), at(2000));
        assert_eq!(log.exports.len(), 1);
    }
}
