//! When a scrub goes on, and how fast.

use super::*;

const DAY: u64 = 86_400;

fn clock() -> WallClock {
    WallClock {
        at: Instant(5),
        seconds: 1000 * DAY,
    }
}

fn days_from_clock(scrub: &Scrub, every_days: u64) -> Option<u64> {
    let every = u32::try_from(every_days * DAY).expect("few days");
    let at = scrub.scheduled_at(every)?;
    Some(at.since(clock().at).as_secs() / DAY)
}

#[test]
fn the_schedule_counts_from_the_last_pass_and_before_that_from_the_creation() {
    let mut scrub = Scrub::new(ScrubRecord::default(), clock(), 990 * DAY);
    assert_eq!(days_from_clock(&scrub, 0), None, "off");
    assert_eq!(days_from_clock(&scrub, 14), Some(4));
    assert_eq!(days_from_clock(&scrub, 7), Some(0), "is due");
    scrub.begin_scheduled();
    assert_eq!(days_from_clock(&scrub, 7), None, "one at a time");
    let later = clock().at + Duration::from_secs(DAY);
    scrub.finish(later);
    assert_eq!(scrub.record.finished_at, 1001 * DAY);
    assert_eq!(days_from_clock(&scrub, 7), Some(8));
    scrub.record.state = ScrubState::Paused;
    assert_eq!(days_from_clock(&scrub, 7), None, "stays paused");
}

#[test]
fn a_pass_begins_at_the_front_with_nothing_found() {
    let record = ScrubRecord {
        next: StripeIndex(9),
        tally: ScrubTally {
            mismatches: 3,
            ..ScrubTally::default()
        },
        ..ScrubRecord::default()
    };
    let mut scrub = Scrub::new(record, clock(), 0);
    scrub.begin(ScrubState::Running);
    assert_eq!(scrub.record.next, StripeIndex(0));
    assert_eq!(scrub.record.tally, ScrubTally::default());
}

#[test]
fn a_set_rate_counts_and_else_a_scheduled_pass_takes_half_of_its_time() {
    let mut scrub = Scrub::new(ScrubRecord::default(), clock(), 0);
    let terabytes = 10_u64 << 40;
    let week = u32::try_from(7 * DAY).expect("few");
    scrub.record.state = ScrubState::Running;
    assert_eq!(scrub.rate(0, week, terabytes), 0);
    assert_eq!(scrub.rate(77, week, terabytes), 77);
    scrub.record.state = ScrubState::Scheduled;
    assert_eq!(scrub.rate(77, week, terabytes), 77);
    let rate = scrub.rate(0, week, terabytes);
    let days = terabytes / rate / DAY;
    assert_eq!(days, 3, "a week's pass is through in three and a half days");
    assert_eq!(scrub.rate(0, week, 1 << 30), SCHEDULED_RATE_MIN);
}

#[test]
fn windows_of_a_slow_pass_are_small() {
    assert_eq!(window_bytes(0, 64), 64);
    assert_eq!(window_bytes(100, 64), 25);
    assert_eq!(window_bytes(1000, 64), 64);
    assert_eq!(time_of(500, 0), Duration::ZERO);
    assert_eq!(time_of(500, 1000), Duration::from_millis(500));
}

#[test]
fn a_scrub_is_due_where_one_can_go_on_and_when_its_time_has_come() {
    let week = u32::try_from(7 * DAY).expect("few");
    let mut map = crate::exposure::tests::whole();
    let mut scrub = Scrub::new(ScrubRecord::default(), clock(), 990 * DAY);
    assert_eq!(scrub.due_at(&map, week), Some(clock().at), "it is late");
    assert_eq!(scrub.due_at(&map, 0), None);
    scrub.record.state = ScrubState::Running;
    scrub.not_before = Instant(77);
    assert_eq!(scrub.due_at(&map, 0), Some(Instant(77)));
    map.read_only = true;
    assert_eq!(scrub.due_at(&map, 0), None, "nothing is written");
    map.read_only = false;
    scrub.failed = true;
    assert_eq!(scrub.due_at(&map, 0), None, "its record failed");
}

#[test]
fn each_finding_counts_once_by_its_cause_and_once_by_its_outcome() {
    use ScrubCause::{Mismatch, Unreadable};
    use ScrubOutcome::{Lost, NotKept, NotLocated, Repaired};
    // By cause, and by outcome: how many there are after each.
    let mut window = WindowTally::default();
    let mut expected = [0; 4];
    for (times, cause) in [(3, Mismatch), (2, Unreadable)] {
        for (outcome, at) in [(Repaired, 2), (NotLocated, 3), (NotKept, 3), (Lost, 3)] {
            for _ in 0..times {
                window.count(&ScrubFinding {
                    stripe: StripeIndex(7),
                    block: 1,
                    wrong: RoleSet::EMPTY,
                    cause,
                    outcome,
                });
                expected[usize::from(cause == Unreadable)] += 1;
                expected[at] += 1;
                let counted = [
                    window.mismatches,
                    window.unreadable,
                    window.repaired,
                    window.unrepaired,
                ];
                assert_eq!(counted, expected, "{cause:?} {outcome:?}");
                assert_eq!(window.found(), expected[0] + expected[1]);
            }
        }
    }
    assert_eq!(expected, [12, 8, 5, 15]);
    let mut sum = ScrubTally::from(window);
    sum.add(window.into());
    let counted = [sum.mismatches, sum.unreadable, sum.repaired, sum.unrepaired];
    assert_eq!(counted, [24, 16, 10, 30], "windows add up");
}

#[test]
fn a_clock_that_was_wrong_once_puts_no_pass_off_for_longer_than_the_period() {
    let every = 30 * u32::try_from(DAY).expect("seconds");
    let record = |finished_at| ScrubRecord {
        finished_at,
        ..ScrubRecord::default()
    };
    // It was ahead when the array was made, or when the last pass ended; it is behind now.
    for (finished_at, created, now) in [
        (0, 5000 * DAY, 1000 * DAY),
        (5000 * DAY, 0, 1000 * DAY),
        (999 * DAY, 990 * DAY, DAY),
    ] {
        let clock = WallClock {
            at: clock().at,
            seconds: now,
        };
        let mut scrub = Scrub::new(record(finished_at), clock, created);
        let due = scrub.scheduled_at(every).expect("scheduled");
        assert_eq!(due, clock.at + Duration::from_secs(30 * DAY));
        scrub.begin_scheduled();
        scrub.finish(due);
        let next = scrub.scheduled_at(every).expect("scheduled");
        assert_eq!(next, due + Duration::from_secs(30 * DAY));
    }
}
