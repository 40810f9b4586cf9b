//! What the shards of one array see of each other without messages: words that one sets and another
//! takes.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use block::{Histogram, LATENCY_BUCKETS, Status};
use queues::sync::{self, AtomicBool, AtomicU32, Ordering};
use units::limits::REACTORS_MAX;
use units::{Instant, MemberIndex, ReactorIndex};
use uuid::Uuid;

use crate::begun::Begun;
use crate::laggards::Sample;
use crate::log::LogSpace;
use crate::map::{ArrayMap, MapState};
use crate::planted::{self, Fault};
use crate::regions::{RegionMap, RegionStates};
use crate::throttle::{Heard, UNLIMITED};

/// Words with a bit for each reactor.
const REACTOR_WORDS: usize = REACTORS_MAX.div_ceil(64);

/// Something was written since the last flush began.
const WRITTEN: u32 = 1 << 31;

/// What all shards of one array share: words that a writer sets and a flusher takes.
#[derive(Debug)]
pub struct Shared {
    /// By member: how many flushes are under way, and [`WRITTEN`]. One word, because who finds that
    /// nothing was written must know of the same moment whether another one has taken that.
    flushing: Vec<AtomicU32>,
    /// By member: one more than the incarnation whose flush failed last. A drive may tell of lost
    /// writes only once, so no later flush of the same drive proves anything.
    failed: Vec<AtomicU32>,
    /// By member: how many flushes it was asked for, which numbers them.
    asked: Vec<sync::AtomicU64>,
    /// By shard, and by member for each: the oldest flush that the shard has asked for and whose
    /// answer it has not dealt with; 0 when there is none.
    oldest: Vec<sync::AtomicU64>,
    /// By member: the shards that find it slow, one bit for each.
    slow: Vec<[AtomicU64; REACTOR_WORDS]>,
    /// By member: flushes that failed and of which it is not known yet what that means.
    doubted: Vec<AtomicU32>,
    /// Tickets that were answered with an error and are carried out all the same.
    owed: AtomicUsize,
    /// Writes that were given up and that their drives may still read from guests' memory.
    borrowers: AtomicUsize,
    /// By member: looks of shards that have heard from it.
    heard: Vec<AtomicU32>,
    /// By shard: the window that it spoke of last, and how long its requests took then; 0 in the
    /// low half when there were few.
    latencies: Vec<AtomicU64>,
    /// How fast the open pass may go: bytes per second and drive.
    rate: AtomicU64,
    /// By member, reads and writes, and bucket: requests that took so long, on all shards.
    times: Vec<[[AtomicU64; LATENCY_BUCKETS]; 2]>,
    /// By member, reads and writes: how many that are.
    counted: Vec<[AtomicU64; 2]>,
    /// By member: until when it is counted on to be slow again.
    shaky: Vec<AtomicU64>,
    /// By member: it lags behind its peers.
    laggards: Vec<AtomicBool>,
    /// By member: reads that it could not do, since the home took their number.
    read_errors: Vec<AtomicU32>,
    /// Cells, counted over all stripes, and lanes of them, that writes left torn because the array
    /// takes none any more: as many as tickets were under way.
    torn: Mutex<Vec<(u64, Range<u32>)>>,
    /// Which regions may be written.
    pub(super) regions: Arc<RegionStates>,
    pub(super) array: Uuid,
    /// Where the log lies, and how many shards write it.
    pub(super) log: (LogSpace, usize),
    /// Where the next engine finds what was begun.
    pub(super) begun: Option<Arc<Begun>>,
}

impl Shared {
    /// For the members of `map`, with the region map as the drives have it, where the log lies and
    /// how many shards there are, and where the next engine finds what these have begun.
    #[must_use]
    pub fn new(
        map: &ArrayMap,
        regions: &RegionMap,
        log: (LogSpace, usize),
        begun: Option<Arc<Begun>>,
    ) -> Arc<Shared> {
        let members = map.members.len();
        let usable = |member: MemberIndex| map.members[member.at()].state != MapState::Lost;
        Arc::new(Shared {
            regions: Arc::new(RegionStates::new(regions, usable)),
            array: regions.array(),
            log,
            begun,
            flushing: (0..members).map(|_| AtomicU32::new(WRITTEN)).collect(),
            failed: (0..members).map(|_| AtomicU32::new(0)).collect(),
            asked: (0..members).map(|_| sync::AtomicU64::new(0)).collect(),
            oldest: (0..members * log.1)
                .map(|_| sync::AtomicU64::new(0))
                .collect(),
            slow: (0..members).map(|_| Default::default()).collect(),
            doubted: (0..members).map(|_| AtomicU32::new(0)).collect(),
            owed: AtomicUsize::new(0),
            borrowers: AtomicUsize::new(0),
            heard: (0..members).map(|_| AtomicU32::new(0)).collect(),
            latencies: (0..REACTORS_MAX).map(|_| AtomicU64::new(0)).collect(),
            rate: AtomicU64::new(UNLIMITED),
            times: (0..members).map(|_| no_times()).collect(),
            counted: (0..members).map(|_| Default::default()).collect(),
            shaky: (0..members).map(|_| AtomicU64::new(0)).collect(),
            laggards: (0..members).map(|_| AtomicBool::new(false)).collect(),
            read_errors: (0..members).map(|_| AtomicU32::new(0)).collect(),
            torn: Mutex::new(Vec::new()),
        })
    }

    /// Something ends otherwise than well: the next engine is to trust no parity of what is in use.
    pub(super) fn tear(&self) {
        if let Some(begun) = &self.begun {
            begun.tear();
        }
    }

    /// A write of these lanes of a cell has reached a part of its members only, and no more is
    /// written.
    pub(super) fn tear_cell(&self, cell: u64, lanes: Range<u32>) {
        let mut torn = self.torn.lock().expect("nothing panics under this lock");
        torn.push((cell, lanes));
    }

    /// Whether nothing may be computed from what members hold in some of these lanes. For an array
    /// that takes no writes any more.
    pub(super) fn is_cell_torn(&self, cell: u64, lanes: &Range<u32>) -> bool {
        let torn = self.torn.lock().expect("nothing panics under this lock");
        let meets = |other: &Range<u32>| other.start < lanes.end && lanes.start < other.end;
        torn.iter()
            .any(|(other, there)| *other == cell && meets(there))
    }

    /// Whether a flush of this member has failed: it may have lost what was written before.
    pub(super) fn may_have_lost(&self, member: MemberIndex, incarnation: u32) -> bool {
        self.failed[member.at()].load(Ordering::SeqCst) == incarnation.wrapping_add(1)
    }

    /// See [`Begun::call_unflushed`].
    pub(super) fn call_unflushed(&self, member: MemberIndex) {
        if let Some(begun) = &self.begun {
            begun.call_unflushed(member);
        }
    }

    /// See [`Begun::call_held`].
    pub(super) fn call_held(&self, me: ReactorIndex, held: bool) {
        if let Some(begun) = &self.begun {
            begun.call_held(me, held);
        }
    }

    /// See [`Begun::call_gone`].
    pub(super) fn call_gone(&self, me: ReactorIndex, member: MemberIndex, gone: bool) {
        if let Some(begun) = &self.begun {
            begun.call_gone(me, member, gone);
        }
    }

    /// Before a write to `member` is acknowledged.
    pub(super) fn mark_written(&self, member: MemberIndex) {
        let word = &self.flushing[member.at()];
        let now = word.load(Ordering::SeqCst);
        if planted::is(Fault::WriteDuringFlushForgotten) && now & !WRITTEN > 0 {
            return;
        }
        if now & WRITTEN == 0 {
            word.fetch_or(WRITTEN, Ordering::SeqCst);
        }
    }

    /// Whether a flush of `member` is needed: something was written, or another flusher took the
    /// word and its flush may still be under way.
    pub(super) fn begin_flush(&self, member: MemberIndex) -> bool {
        let word = &self.flushing[member.at()];
        let joins = !planted::is(Fault::FlushDoesNotJoin);
        let take = |now: u32| {
            let needed = now & WRITTEN != 0 || (now > 0 && joins);
            needed.then(|| (now & !WRITTEN) + 1)
        };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }

    /// Whether a flush of `member` that ended so has made everything durable that was written
    /// before it: not when another flush of the same drive failed.
    pub(super) fn is_flushed(&self, member: MemberIndex, incarnation: u32, status: Status) -> bool {
        if status == Status::Gone {
            // The drive was not there to begin it; if it comes back, it may still have everything.
            return false;
        }
        let failed = &self.failed[member.at()];
        let this = incarnation.wrapping_add(1);
        if !status.is_ok() {
            // A late answer of a drive that is out says nothing of the one after it.
            failed.fetch_max(this, Ordering::SeqCst);
            return false;
        }
        failed.load(Ordering::SeqCst) != this || planted::is(Fault::LaterFlushCounts)
    }

    /// A flush of `member` is about to be asked for; its number.
    pub(super) fn ask_flush(&self, member: MemberIndex) -> u64 {
        self.asked[member.at()].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last flush that was asked for.
    pub(super) fn last_flush(&self, member: MemberIndex) -> u64 {
        self.asked[member.at()].load(Ordering::SeqCst)
    }

    /// Of the flushes of `member` whose answers shard `me` has not dealt with, the oldest. Told
    /// before a flush is made; and after an answer is dealt with, so that whoever misses it here
    /// finds what it has told.
    pub(super) fn call_oldest_flush(
        &self,
        me: ReactorIndex,
        member: MemberIndex,
        oldest: Option<u64>,
    ) {
        let at = me.at() * self.asked.len() + member.at();
        self.oldest[at].store(oldest.unwrap_or(0), Ordering::Release);
    }

    /// Whether some answer is not dealt with, of flushes of `member` up to number `last`.
    pub(super) fn awaits_flushes(&self, member: MemberIndex, last: u64) -> bool {
        let words = self.oldest[member.at()..].iter().step_by(self.asked.len());
        let mut oldest = words.map(|word| word.load(Ordering::Acquire));
        oldest.any(|oldest| oldest != 0 && oldest <= last)
    }

    /// A flush of a member failed, and it is asked whether its drive was there.
    pub(super) fn begin_doubt(&self, member: MemberIndex) {
        self.doubted[member.at()].fetch_add(1, Ordering::SeqCst);
    }

    /// What that flush has lost is known to [`Shared::is_flushed`].
    pub(super) fn finish_doubt(&self, member: MemberIndex) {
        let before = self.doubted[member.at()].fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a doubt ends once");
    }

    /// Whether it is open what a flush of a member has lost: a later one that went well proves
    /// nothing meanwhile.
    pub(super) fn is_doubted(&self, member: MemberIndex) -> bool {
        let open = self.doubted[member.at()].load(Ordering::SeqCst) > 0;
        open && !planted::is(Fault::FlushCountsBesideADoubt)
    }

    /// A ticket is carried out although it was answered; or that one has ended.
    pub(super) fn owe(&self) {
        self.owed.fetch_add(1, Ordering::SeqCst);
    }

    /// See `owe`.
    pub(super) fn carry_out(&self) {
        let before = self.owed.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a ticket ends once");
    }

    /// Whether some ticket is still to be carried out although it was answered.
    pub(super) fn owes(&self) -> bool {
        self.owed.load(Ordering::SeqCst) > 0
    }

    /// A write is given up that its drive may still read from a guest's memory; or that is over.
    pub(super) fn note_borrower(&self, begins: bool) {
        if begins {
            self.borrowers.fetch_add(1, Ordering::SeqCst);
        } else {
            let before = self.borrowers.fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "a drive answers once");
        }
    }

    /// Whether there are such.
    pub(super) fn is_borrowing(&self) -> bool {
        self.borrowers.load(Ordering::SeqCst) > 0
    }

    /// Says whether shard `me` finds a member slow.
    pub(super) fn call_slow(&self, position: usize, me: ReactorIndex, slow: bool) {
        let (word, bit) = (&self.slow[position][me.at() / 64], 1 << (me.at() % 64));
        if slow {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// A member has answered a shard.
    pub(super) fn call_heard(&self, position: usize) {
        self.heard[position].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes when a member has answered some shard.
    pub(super) fn heard(&self, position: usize) -> u32 {
        self.heard[position].load(Ordering::Relaxed)
    }

    /// Requests to a member, reads or writes: of each of these buckets so many more.
    pub(super) fn add_times(
        &self,
        (position, kind): (usize, usize),
        more: impl Iterator<Item = (usize, u64)>,
    ) {
        let mut all = 0;
        for (bucket, more) in more {
            self.times[position][kind][bucket].fetch_add(more, Ordering::Relaxed);
            all += more;
        }
        // Who sees the number sees what is in the buckets.
        self.counted[position][kind].fetch_add(all, Ordering::Release);
    }

    /// How many reads of a member there were, or writes: if as many as before, nothing is new.
    pub(super) fn counted(&self, (position, kind): (usize, usize)) -> u64 {
        self.counted[position][kind].load(Ordering::Acquire)
    }

    /// What is new since `seen` of how long reads of a member took, or writes: at least `new`; into
    /// `sample`. What comes meanwhile and is not seen is new the next time.
    pub(super) fn see_times(
        &self,
        (position, kind): (usize, usize),
        (seen, new): (&mut Histogram, u64),
        sample: &mut Sample,
    ) {
        *sample = Sample::default();
        let words = self.times[position][kind].iter().zip(&mut seen.buckets);
        for ((word, seen), more) in words.zip(&mut sample.times.buckets) {
            if sample.count >= new {
                // All that was counted is found; the rest of the buckets is as it was.
                return;
            }
            let all = word.load(Ordering::Relaxed);
            *more = all.wrapping_sub(std::mem::replace(seen, all));
            sample.count += *more;
        }
    }

    /// Says whether a member lags behind its peers.
    pub(super) fn call_laggard(&self, member: MemberIndex, lags: bool) {
        self.laggards[member.at()].store(lags, Ordering::Relaxed);
    }

    /// Whether a member lags behind its peers. A hint, like `is_slow`.
    pub(super) fn lags(&self, member: MemberIndex) -> bool {
        self.laggards[member.at()].load(Ordering::Relaxed)
    }

    /// A member could not read what it holds.
    pub(super) fn note_read_error(&self, member: MemberIndex) {
        self.read_errors[member.at()].fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so since this was asked last.
    pub(super) fn take_read_errors(&self, position: usize) -> u32 {
        // Asked each window, and hardly ever there is one.
        let word = &self.read_errors[position];
        match word.load(Ordering::Relaxed) {
            0 => 0,
            _ => word.swap(0, Ordering::Relaxed),
        }
    }

    /// Regions that are dirty may be written: the start of the array is durable. A home says so by
    /// itself; shards that have none need it said.
    pub fn open_regions(&self) {
        self.regions.open();
    }

    /// Says until when a member is counted on to be slow again.
    pub(super) fn call_shaky(&self, position: usize, until: Instant) {
        self.shaky[position].store(until.0, Ordering::Relaxed);
    }

    pub(super) fn shaky_until(&self, position: usize) -> Instant {
        Instant(self.shaky[position].load(Ordering::Relaxed))
    }

    /// Whether any member lags.
    pub(super) fn any_lags(&self) -> bool {
        self.laggards
            .iter()
            .any(|lags| lags.load(Ordering::Relaxed))
    }

    /// Whether some shard finds a member slow. A hint: reading it is not wrong.
    #[must_use]
    pub fn is_slow(&self, position: usize) -> bool {
        self.slow[position]
            .iter()
            .any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Says what shard `me` heard of its requests until the window before this one ended.
    pub(super) fn tell_latency(&self, me: ReactorIndex, window: u64, heard: Heard) {
        let word = window << 32 | u64::from(heard.encode());
        self.latencies[me.at()].store(word, Ordering::Relaxed);
    }

    /// The worst that a shard told of in this window or the one before.
    pub(super) fn worst_latency(&self, window: u64) -> Heard {
        let mask = u64::from(u32::MAX);
        let recent = [window & mask, window.wrapping_sub(1) & mask];
        let words = self
            .latencies
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        let recent = words.filter(|word| recent.contains(&(word >> 32)));
        let told = recent.filter_map(|word| u32::try_from(word & mask).ok());
        told.map(Heard::decode).max().unwrap_or(Heard::Nothing)
    }

    pub(super) fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    pub(super) fn finish_flush(&self, member: MemberIndex, ok: bool) {
        let word = &self.flushing[member.at()];
        let finish = |now: u32| {
            assert!(now & !WRITTEN > 0, "a flush ends once");
            Some(if ok { now } else { now | WRITTEN } - 1)
        };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, finish)
            .expect("there is always a next");
    }
}

fn no_times() -> [[AtomicU64; LATENCY_BUCKETS]; 2] {
    std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))
}
