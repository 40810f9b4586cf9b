//! Rates from two looks at the counters.

use std::time::Duration;

use control::Answer;
use control::view::{DriveView, IoCounters, ReactorView, StatusView, VolumeView};
use serde::Serialize;
use units::{Clock, Instant, MonotonicClock};
use uuid::Uuid;

use crate::output::{Output, Row, size};
use crate::session::Session;

/// All counters at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    volumes: Vec<Counted>,
    drives: Vec<Counted>,
    reactors: Vec<ReactorView>,
}

/// A volume or drive: volumes of two arrays may have one name.
type Counted = (Uuid, String, IoCounters);

/// What happened between two looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Rates {
    interval_ms: u64,
    volumes: Vec<ObjectRates>,
    drives: Vec<ObjectRates>,
    reactors: Vec<ReactorRates>,
}

/// One volume or drive between two looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ObjectRates {
    name: String,
    read_iops: u64,
    write_iops: u64,
    read_bytes_per_second: u64,
    write_bytes_per_second: u64,
    read_latency_us: u64,
    write_latency_us: u64,
    errors: u64,
}

/// One reactor between two looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ReactorRates {
    reactor: u16,
    core: u16,
    busy_percent: u64,
    /// Turns of a millisecond or more, and the time in them.
    stalls: u64,
    stalled_us: u64,
    iops: u64,
}

/// Looks and prints until `count` looks were printed, or for ever.
pub(crate) fn run(
    session: &mut Session<'_, '_>,
    interval: Duration,
    count: Option<u32>,
) -> Answer<()> {
    let mut before = look(session)?;
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        session.client.pause(interval);
        let now = look(session)?;
        print(session, &rates(&before, &now))?;
        before = now;
        printed += 1;
    }
    Ok(())
}

fn look(session: &Session<'_, '_>) -> Answer<Look> {
    let volumes: Vec<VolumeView> = session.get("/v1/volumes")?;
    let drives: Vec<DriveView> = session.get("/v1/drives")?;
    let status: StatusView = session.get("/v1/status")?;
    Ok(Look {
        at: MonotonicClock.now(),
        volumes: volumes
            .into_iter()
            .map(|volume| (volume.uuid, volume.name, volume.counters))
            .collect(),
        drives: drives
            .into_iter()
            .map(|drive| (drive.uuid, drive.name, drive.counters))
            .collect(),
        reactors: status.engine.reactors,
    })
}

fn print(session: &mut Session<'_, '_>, rates: &Rates) -> Answer<()> {
    if session.output == Output::Json {
        // One object per line, so that a reader knows where one ends.
        let text = serde_json::to_string(rates).expect("strings and numbers only");
        return session.line(&text);
    }
    if session.console.terminal {
        // Home, and clear what is below (ECMA-48).
        session.line("\x1b[H\x1b[J")?;
    }
    for reactor in &rates.reactors {
        let ReactorRates {
            reactor,
            core,
            busy_percent,
            stalls,
            stalled_us,
            iops,
        } = reactor;
        let stalled = match stalls {
            0 => String::new(),
            _ => format!(", stood still {stalls} x, {} ms in all", stalled_us / 1000),
        };
        session.line(&format!(
            "reactor {reactor} on core {core}: {busy_percent}% busy, {iops} IOPS{stalled}"
        ))?;
    }
    session.line("volumes")?;
    session.list(&rates.volumes)?;
    session.line("drives")?;
    session.list(&rates.drives)
}

fn rates(before: &Look, now: &Look) -> Rates {
    let elapsed = now.at - before.at;
    let objects = |before: &[Counted], now: &[Counted]| {
        let of = |(uuid, name, now): &Counted| {
            let earlier = before.iter().find(|(other, ..)| other == uuid);
            let earlier = earlier.map_or(*now, |(.., counters)| *counters);
            object_rates(name, &earlier, now, elapsed)
        };
        now.iter().map(of).collect()
    };
    let reactor = |now: &ReactorView| {
        let earlier = before
            .reactors
            .iter()
            .find(|other| other.reactor == now.reactor);
        let earlier = earlier.unwrap_or(now);
        let busy = now
            .busy_time_us_total
            .saturating_sub(earlier.busy_time_us_total);
        let idle = now
            .idle_time_us_total
            .saturating_sub(earlier.idle_time_us_total);
        let percent = (busy * 100).checked_div(busy + idle).unwrap_or(0);
        let requests = now.requests_total.saturating_sub(earlier.requests_total);
        ReactorRates {
            reactor: now.reactor,
            core: now.core,
            busy_percent: percent,
            stalls: now.stalls_total.saturating_sub(earlier.stalls_total),
            stalled_us: now
                .stalled_time_us_total
                .saturating_sub(earlier.stalled_time_us_total),
            iops: per_second(requests, elapsed),
        }
    };
    Rates {
        interval_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        volumes: objects(&before.volumes, &now.volumes),
        drives: objects(&before.drives, &now.drives),
        reactors: now.reactors.iter().map(reactor).collect(),
    }
}

fn object_rates(
    name: &str,
    before: &IoCounters,
    now: &IoCounters,
    elapsed: Duration,
) -> ObjectRates {
    // Counters begin anew with the engine: then there is no rate yet.
    let grown = |get: fn(&IoCounters) -> u64| get(now).saturating_sub(get(before));
    let rate = |get: fn(&IoCounters) -> u64| per_second(grown(get), elapsed);
    let (reads, writes) = (grown(|c| c.reads_total), grown(|c| c.writes_total));
    ObjectRates {
        name: name.to_owned(),
        read_iops: rate(|c| c.reads_total),
        write_iops: rate(|c| c.writes_total),
        read_bytes_per_second: rate(|c| c.read_bytes_total),
        write_bytes_per_second: rate(|c| c.written_bytes_total),
        read_latency_us: grown(|c| c.read_time_us_total)
            .checked_div(reads)
            .unwrap_or(0),
        write_latency_us: grown(|c| c.write_time_us_total)
            .checked_div(writes)
            .unwrap_or(0),
        errors: grown(|c| c.errors_total),
    }
}

fn per_second(amount: u64, elapsed: Duration) -> u64 {
    let per_second = (u128::from(amount) * 1_000_000_000).checked_div(elapsed.as_nanos());
    u64::try_from(per_second.unwrap_or(0)).unwrap_or(u64::MAX)
}

impl Row for ObjectRates {
    const HEADS: &'static [&'static str] = &[
        "NAME",
        "READ IOPS",
        "WRITE IOPS",
        "READ/S",
        "WRITE/S",
        "READ US",
        "WRITE US",
        "ERRORS",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.read_iops.to_string(),
            self.write_iops.to_string(),
            size(self.read_bytes_per_second),
            size(self.write_bytes_per_second),
            self.read_latency_us.to_string(),
            self.write_latency_us.to_string(),
            self.errors.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ms: u64, reads: u64, busy_us: u64) -> Look {
        let counters = IoCounters {
            reads_total: reads,
            read_bytes_total: reads * 4096,
            read_time_us_total: reads * 50,
            ..IoCounters::default()
        };
        Look {
            at: Instant(at_ms * 1_000_000),
            volumes: vec![(Uuid::nil(), "v".into(), counters)],
            drives: Vec::new(),
            reactors: vec![ReactorView {
                reactor: 0,
                core: 3,
                node: None,
                state: "polling".into(),
                busy_time_us_total: busy_us,
                idle_time_us_total: 4_000_000 - busy_us,
                stalls_total: busy_us / 100,
                stalled_time_us_total: busy_us / 10,
                requests_total: reads,
            }],
        }
    }

    #[test]
    fn rates_are_per_second_of_the_time_between() {
        let rates = rates(&look(1000, 100, 0), &look(3000, 300, 0));
        let volume = &rates.volumes[0];
        assert_eq!((volume.read_iops, volume.write_iops), (100, 0));
        assert_eq!(volume.read_bytes_per_second, 409_600);
        assert_eq!((volume.read_latency_us, volume.write_latency_us), (50, 0));
        assert_eq!((rates.interval_ms, rates.reactors[0].iops), (2000, 100));
        assert_eq!(rates.reactors[0].stalls, 0);
    }

    #[test]
    fn reactors_tell_how_long_they_stood_still_between_the_looks() {
        let rates = rates(&look(1000, 1, 100_000), &look(3000, 1, 400_000));
        let reactor = &rates.reactors[0];
        assert_eq!((reactor.stalls, reactor.stalled_us), (3_000, 30_000));
    }

    #[test]
    fn a_restarted_engine_and_no_time_give_no_rate() {
        assert_eq!(
            rates(&look(1000, 900, 0), &look(2000, 5, 0)).volumes[0].read_iops,
            0
        );
        assert_eq!(
            rates(&look(1000, 1, 0), &look(1000, 5, 0)).volumes[0].read_iops,
            0
        );
    }
}
