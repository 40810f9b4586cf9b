//! Members that take much longer than their peers, window after window, though they answer.
//!
//! Of each window of a second and each member it is known how long its reads and its writes took.
//! The window is a *slow* one for a member when all but a hundredth of its reads (or writes) did
//! not stay below a millisecond, nor below four times what the median of its peers did. Peers are
//! the members in sync of its group. When it is slow for more members than the group has parity, it
//! is for none: then the load is to blame, and nothing could be done. Nor is it for a member that
//! had more than twice as many requests as the median of its peers: that one may simply be busy.
//!
//! A member may be so slow that few requests are made of it, or of anybody, because all wait for
//! it. So a window of few is a slow one as well, when half of them took at least 30 ms, and four
//! times as long as the median of its peers' medians. It says nothing when it is not slow.
//!
//! * A member of which 5 of the last 60 windows were slow *lags*, and until none of them is.
//! * One of which 30 of the last 300 were is to be left out, if the group can lose another one
//!   besides, and no member was for this reason within the last hour.
//!
//! Both only if that is more than four times as many as the median of its peers had: drives of
//! which each stumbles now and then are all alike. Windows in which nobody asked for anything do
//! not count, nor, but for what was said above, do members of which few requests were made.

use std::time::Duration;

use block::Histogram;
use units::limits::GROUP_MEMBERS_MAX;
use units::{Instant, MemberIndex};

use crate::planted::{self, Fault};

/// A slow member takes so many times as long as its peers.
const LONGER: u64 = 4;
/// One that had so many times as many requests as its peers may be slow for that.
const BUSIER: u64 = 2;
/// Of one that lags, so many times fewer requests are enough: it is only tried.
const FEWER: u64 = 8;
/// With so many requests there is one beyond the 99th of a hundred.
const TELLING: u64 = 100;
/// What takes less is never slow, in nanoseconds.
const LONG: u64 = 1_000_000;
/// So few requests say something when half of them took so long, in nanoseconds.
const FEW: u64 = 8;
const CRAWLS: u64 = 30_000_000;
/// Slow windows, and of how many, that make a member a laggard.
const LAGS: (u32, u32) = (5, 60);
const _: () = assert!(LAGS.0 > 0 && LAGS.1 <= u64::BITS);
/// And that have it left out.
const LEAVES: (u32, u32) = (30, 300);
/// Between two members that are left out for this reason.
const PAUSE: Duration = Duration::from_secs(3600);
/// Words of 64 windows that are remembered: at least [`LEAVES`].
const WORDS: usize = 5;

/// How long requests took in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) times: Histogram,
    /// How many there were.
    pub(crate) count: u64,
}

impl Sample {
    #[cfg(test)]
    fn record(&mut self, nanoseconds: u64) {
        self.times.record(nanoseconds);
        self.count += 1;
    }

    /// The bucket of the time that all but a hundredth did not take longer than.
    fn p99_bucket(&self) -> Option<usize> {
        self.times.bucket_below(self.count / 100)
    }

    /// The bucket of the time that at most half of them took longer than.
    fn median_bucket(&self) -> Option<usize> {
        self.times.bucket_below(self.count / 2)
    }
}

/// Reads and writes.
pub(crate) type Took = [Sample; 2];

/// What is known of one member.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Which drive it is of.
    incarnation: u32,
    /// Its last windows, the newest in the lowest bit: it was slow.
    slow: [u64; WORDS],
    lags: bool,
    /// What its reads and writes took in the last window, in nanoseconds, if there were enough.
    p99: [Option<u64>; 2],
}

impl Record {
    /// A window has ended.
    fn push(&mut self, slow: bool) {
        let mut carry = u64::from(slow);
        for word in &mut self.slow {
            let next = *word >> 63;
            *word = *word << 1 | carry;
            carry = next;
        }
    }

    /// Slow ones among the last so many windows.
    fn slow_of(&self, windows: u32) -> u32 {
        let mut left = windows;
        let mut count = 0;
        for word in self.slow {
            let mask = u64::MAX >> (64 - left.clamp(1, 64));
            count += (word & mask).count_ones();
            left = left.saturating_sub(64);
            if left == 0 {
                break;
            }
        }
        count
    }
}

/// What became known at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) member: MemberIndex,
    /// It lags from now on, or does not any more.
    pub(crate) lags: bool,
}

/// How a member keeps up with its peers, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberPace {
    /// What all but a hundredth of its reads and writes stayed below in the last window of a second
    /// with enough of them.
    pub p99: [Option<Duration>; 2],
    /// Windows in which it was slower than its peers, of the last 300 in which there was work.
    pub slow_windows: u32,
    /// It is read around for that.
    pub lags: bool,
    /// Reads of it that failed within a day.
    pub read_errors: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Laggards {
    records: Vec<Record>,
    group: usize,
    parity: usize,
    /// Fewer requests of a kind in a window say nothing.
    enough: u64,
    /// When a member was left out last.
    left: Option<Instant>,
}

impl Laggards {
    /// For so many members in groups of so many, each with so much parity.
    pub(crate) fn new(members: usize, (group, parity): (usize, usize), enough: u64) -> Laggards {
        Laggards {
            records: vec![Record::default(); members],
            group,
            parity,
            enough,
            left: None,
        }
    }

    pub(crate) fn pace(&self, position: usize) -> MemberPace {
        let record = &self.records[position];
        MemberPace {
            p99: record.p99.map(|p99| p99.map(Duration::from_nanos)),
            slow_windows: record.slow_of(LEAVES.1),
            lags: record.lags,
            read_errors: 0,
        }
    }

    /// Takes one window: by member, what its requests took, and its drive if it counts.
    pub(crate) fn judge(
        &mut self,
        took: &[Took],
        drive: impl Fn(usize) -> Option<u32>,
    ) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (position, record) in self.records.iter_mut().enumerate() {
            let incarnation = drive(position);
            if incarnation != Some(record.incarnation) {
                // It is another drive, or out.
                if record.lags {
                    turns.push(turn(position, false));
                }
                *record = Record {
                    incarnation: incarnation.unwrap_or(u32::MAX),
                    ..Record::default()
                };
            }
        }
        for first in (0..self.records.len()).step_by(self.group) {
            let counts = |position: &usize| drive(*position).is_some();
            let (mut members, mut count) = ([0; GROUP_MEMBERS_MAX], 0);
            for position in (first..first + self.group).filter(counts) {
                members[count] = position;
                count += 1;
            }
            let members = &members[..count];
            self.judge_group(members, took);
            self.turn_group(members, &mut turns);
        }
        turns
    }

    fn judge_group(&mut self, members: &[usize], took: &[Took]) {
        let is_idle = |&position: &usize| took[position].iter().all(|kind| kind.count == 0);
        if members.iter().all(is_idle) {
            // As most windows are where nobody asks for much.
            return;
        }
        // By place among `members`.
        let mut slow = [false; GROUP_MEMBERS_MAX];
        let mut judged = [false; GROUP_MEMBERS_MAX];
        let mut asked = false;
        for kind in [0, 1] {
            let p99 = |position: usize| {
                let (times, record) = (&took[position][kind], &self.records[position]);
                let count = times.count;
                if count < self.enough_of(record) {
                    return None;
                }
                // Of few trials the worst says little, and beside thousands of requests it would
                // be counted against who stumbles as rarely as the others.
                let bucket = if record.lags && count < TELLING {
                    times.median_bucket()
                } else {
                    times.p99_bucket()
                };
                bucket.map(|bucket| (bounds(bucket), count))
            };
            // Each is compared with all others.
            let mut p99s = [None; GROUP_MEMBERS_MAX];
            for (&position, known) in members.iter().zip(&mut p99s) {
                *known = p99(position);
            }
            let p99s = &p99s[..members.len()];
            for (at, &position) in members.iter().enumerate() {
                let own = p99s[at];
                if let Some(((_, below), count)) = own {
                    asked |= count >= self.enough;
                    judged[at] = true;
                    self.records[position].p99[kind] = Some(below);
                }
                let peers = p99s[..at].iter().chain(&p99s[at + 1..]).copied();
                let is_slow = is_longer(own, peers, LONG);
                slow[at] |= is_slow.unwrap_or_else(|| {
                    let few = |position: usize| few(&took[position][kind]);
                    let peers = members.iter().filter(|&&other| other != position);
                    let peers = peers.map(|&other| few(other));
                    let crawls = is_longer(few(position), peers, CRAWLS) == Some(true);
                    judged[at] |= crawls;
                    asked |= crawls;
                    crawls
                });
            }
        }
        let count = slow.iter().filter(|slow| **slow).count();
        let is_load = count > self.parity;
        if asked {
            for (at, &position) in members.iter().enumerate() {
                // A laggard stays one until it is known to keep up.
                if judged[at] || !self.records[position].lags {
                    self.records[position].push(slow[at] && !is_load);
                }
            }
        }
    }

    /// How many requests say something: of one that lags, few, because it is only tried.
    fn enough_of(&self, record: &Record) -> u64 {
        if record.lags {
            (self.enough / FEWER).max(1)
        } else {
            self.enough
        }
    }

    /// Whether a member had so many slow windows, and its peers had not.
    fn stands_out(&self, position: usize, members: &[usize], (slow, windows): (u32, u32)) -> bool {
        let own = self.records[position].slow_of(windows);
        if own < slow {
            return false;
        }
        let peers = members.iter().filter(|&&other| other != position);
        let peers = peers.map(|&other| u64::from(self.records[other].slow_of(windows)));
        let usual = median(peers).unwrap_or(0);
        u64::from(own) > usual.saturating_mul(LONGER)
    }

    fn turn_group(&mut self, members: &[usize], turns: &mut Vec<Turn>) {
        let is_slow = |&position: &usize| {
            let record = &self.records[position];
            record.lags || record.slow[0] != 0
        };
        if !members.iter().any(is_slow) {
            // As in most groups: the windows by which one lags are all in that word.
            return;
        }
        for &position in members {
            let record = &self.records[position];
            let lags = if record.lags {
                record.slow_of(LAGS.1) > 0
            } else {
                self.stands_out(position, members, LAGS)
            };
            if lags != record.lags {
                self.records[position].lags = lags;
                turns.push(turn(position, lags));
            }
        }
    }

    /// Who is to be left out, if anybody. `counts`: whether a member is in sync.
    pub(crate) fn who_leaves(
        &self,
        now: Instant,
        (counts, data): (impl Fn(usize) -> bool, usize),
    ) -> Option<MemberIndex> {
        let any_lags = self.records.iter().any(|record| record.lags);
        if !any_lags || self.left.is_some_and(|left| now.since(left) < PAUSE) {
            return None;
        }
        for first in (0..self.records.len()).step_by(self.group) {
            let members: Vec<usize> = (first..first + self.group)
                .filter(|&position| counts(position))
                .collect();
            // Without it there must be one more than is needed.
            let spare = usize::from(!planted::is(Fault::LaggardWasTheLastSpare));
            if members.len() <= data + spare {
                continue;
            }
            let leaves = |&&position: &&usize| {
                self.records[position].lags && self.stands_out(position, &members, LEAVES)
            };
            if let Some(&position) = members.iter().find(leaves) {
                return Some(MemberIndex::from_at(position));
            }
        }
        None
    }

    /// A member was left out.
    pub(crate) fn leaves(&mut self, now: Instant) {
        self.left = Some(now);
    }
}

/// What a time is at least and less than, and of how many.
type Taken = ((u64, u64), u64);

/// The middle of few requests.
fn few(times: &Sample) -> Option<Taken> {
    if times.count < FEW {
        return None;
    }
    let bucket = times.median_bucket()?;
    Some((bounds(bucket), times.count))
}

/// Whether it takes too long for what its peers take, if both are known.
fn is_longer(
    own: Option<Taken>,
    peers: impl Iterator<Item = Option<Taken>> + Clone,
    long: u64,
) -> Option<bool> {
    let ((at_least, _), count) = own?;
    let peers = peers.flatten();
    let usual = median(peers.clone().map(|((_, below), _)| below))?;
    let load = median(peers.map(|(_, count)| count)).unwrap_or(0);
    let is_loaded = count > load.saturating_mul(BUSIER);
    Some(!is_loaded && at_least >= long && at_least >= usual.saturating_mul(LONGER))
}

fn turn(position: usize, lags: bool) -> Turn {
    Turn {
        member: MemberIndex::from_at(position),
        lags,
    }
}

/// What a time in a bucket is at least, and less than.
fn bounds(bucket: usize) -> (u64, u64) {
    let begin = bucket
        .checked_sub(1)
        .and_then(Histogram::end_of_bucket)
        .unwrap_or(0);
    (
        begin,
        Histogram::end_of_bucket(bucket).unwrap_or(begin.saturating_mul(2)),
    )
}

/// The one in the middle; of two the lesser.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut sorted = [0; GROUP_MEMBERS_MAX];
    let mut count = 0;
    for value in values {
        sorted[count] = value;
        count += 1;
    }
    let sorted = &mut sorted[..count];
    sorted.sort_unstable();
    sorted.get(count.saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests;
