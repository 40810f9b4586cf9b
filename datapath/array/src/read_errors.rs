//! Members that can often not read what they hold.
//!
//! What a member cannot read is answered from the others and written again, and mostly that is all:
//! its drive puts another sector in the place of the bad one. A drive that needs this again and
//! again is wearing out. So reads that failed are counted hour by hour, and a member with more of
//! them in the last day than is tolerated is left out, if the group can lose another one besides.
//! Where it cannot, a member that reads most of what it holds is better than none; people are told.

use units::{Instant, MemberIndex};

/// What a day is made of.
const HOURS: usize = 24;
/// How long one of these is.
const HOUR_SECONDS: u64 = 3600;

/// What is known of one member.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Which drive it is of.
    incarnation: u32,
    /// Reads that failed, by hour modulo [`HOURS`].
    failed: [u32; HOURS],
    /// The newest hour of these.
    hour: u64,
}

impl Record {
    /// Forgets what is more than a day old.
    fn turn(&mut self, hour: u64) {
        let passed = usize::try_from(hour.saturating_sub(self.hour)).unwrap_or(HOURS);
        for later in 1..=passed.min(HOURS) {
            let at = self.hour + u64::try_from(later).expect("of a day");
            self.failed[slot(at)] = 0;
        }
        self.hour = self.hour.max(hour);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadErrors {
    records: Vec<Record>,
    group: usize,
    tolerated: u32,
    /// Some read has failed, once.
    any: bool,
}

impl ReadErrors {
    /// For so many members in groups of so many, of each of which so many reads a day may fail.
    pub(crate) fn new(members: usize, group: usize, tolerated: u32) -> ReadErrors {
        ReadErrors {
            records: vec![Record::default(); members],
            group,
            tolerated,
            any: false,
        }
    }

    /// So many more reads of a member failed. `incarnation`: of which drive, if the member counts.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        (position, incarnation): (usize, Option<u32>),
        more: u32,
    ) {
        self.any |= more > 0;
        let record = &mut self.records[position];
        let hour = hour_of(now);
        if incarnation != Some(record.incarnation) {
            // It is another drive, or out: nothing is known, since no hour.
            *record = Record {
                incarnation: incarnation.unwrap_or(u32::MAX),
                ..Record::default()
            };
        }
        record.turn(hour);
        if incarnation.is_some() {
            let failed = &mut record.failed[slot(hour)];
            *failed = failed.saturating_add(more);
        }
    }

    /// Reads of a member that failed within a day, as of the last note.
    pub(crate) fn of_day(&self, position: usize) -> u32 {
        let failed = self.records[position].failed;
        failed.into_iter().fold(0, u32::saturating_add)
    }

    /// Who is to be left out, if anybody: the worst. `counts`: whether a member is in sync; `data`:
    /// how many of a group are needed.
    pub(crate) fn who_leaves(
        &self,
        counts: impl Fn(usize) -> bool,
        data: usize,
    ) -> Option<MemberIndex> {
        if !self.any {
            // As with most arrays, for years.
            return None;
        }
        let groups = (0..self.records.len()).step_by(self.group);
        let worst = groups.filter_map(|first| {
            let members = (first..first + self.group).filter(|&position| counts(position));
            let enough = members.clone().count() > data + 1;
            let bad = members.filter(|&position| self.of_day(position) > self.tolerated);
            bad.filter(|_| enough)
                .max_by_key(|&position| self.of_day(position))
        });
        worst
            .max_by_key(|&position| self.of_day(position))
            .map(MemberIndex::from_at)
    }
}

fn hour_of(now: Instant) -> u64 {
    now.since(Instant(0)).as_secs() / HOUR_SECONDS
}

fn slot(hour: u64) -> usize {
    usize::try_from(hour % 24).expect("of a day")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GROUP: usize = 4;

    fn at(hours: u64) -> Instant {
        Instant(0) + Duration::from_secs(hours * HOUR_SECONDS + 1)
    }

    fn errors() -> ReadErrors {
        let mut errors = ReadErrors::new(2 * GROUP, GROUP, 10);
        for position in 0..2 * GROUP {
            errors.note(at(0), (position, Some(0)), 0);
        }
        errors
    }

    fn all(_: usize) -> bool {
        true
    }

    #[test]
    fn more_than_tolerated_within_a_day_is_too_many() {
        let mut errors = errors();
        errors.note(at(0), (2, Some(0)), 5);
        errors.note(at(23), (2, Some(0)), 5);
        assert_eq!((errors.of_day(2), errors.who_leaves(all, 2)), (10, None));
        errors.note(at(23), (2, Some(0)), 1);
        assert_eq!(errors.who_leaves(all, 2), Some(MemberIndex(2)));
        // The first five are of yesterday.
        errors.note(at(24), (2, Some(0)), 0);
        assert_eq!((errors.of_day(2), errors.who_leaves(all, 2)), (6, None));
        errors.note(at(500), (2, Some(0)), 1);
        assert_eq!(errors.of_day(2), 1);
    }

    #[test]
    fn nobody_leaves_who_is_needed_or_leaves_nothing_to_lose() {
        let mut errors = errors();
        errors.note(at(1), (2, Some(0)), 50);
        assert_eq!(errors.who_leaves(all, 3), None);
        assert_eq!(errors.who_leaves(|position| position != 0, 2), None);
        // What is missing in another group does not matter.
        let leaves = errors.who_leaves(|position| position != 5, 2);
        assert_eq!(leaves, Some(MemberIndex(2)));
    }

    #[test]
    fn the_worst_goes_first() {
        let mut errors = errors();
        errors.note(at(1), (1, Some(0)), 11);
        errors.note(at(1), (6, Some(0)), 13);
        errors.note(at(1), (7, Some(0)), 12);
        assert_eq!(errors.who_leaves(all, 2), Some(MemberIndex(6)));
    }

    #[test]
    fn another_drive_begins_anew_and_one_that_is_out_counts_for_nothing() {
        let mut errors = errors();
        errors.note(at(1), (1, Some(0)), 50);
        errors.note(at(1), (1, None), 50);
        assert_eq!(errors.of_day(1), 0);
        errors.note(at(1), (1, Some(1)), 3);
        assert_eq!(errors.of_day(1), 3);
        errors.note(at(1), (1, Some(2)), 4);
        assert_eq!(errors.of_day(1), 4);
    }
}
