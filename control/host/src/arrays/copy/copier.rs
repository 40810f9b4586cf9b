//! The thread that copies a member, beside the array.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use array::format::Superblock;
use array::{Command, Copying, MapState, Suspects};
use drive::Drive;
use engine::{ArrayState, ChangeError};
use units::{ArrayIndex, Clock, Instant, MemberIndex, MonotonicClock, StripeIndex, Update};

use super::{Ended, Hand};
use crate::Host;

/// Bytes that are copied at a time.
const STEP_BYTES: u64 = 1 << 20;
/// The copy is good enough when it lacks at most one region of so many, or so few.
const FEW: (usize, usize) = (256, 8);
/// Passes after which it is good enough in any case: guests write faster than we copy.
const PASSES_MAX: u32 = 8;
/// A pass takes at least so long, unless little is missing: regions that were in use before it are
/// clean by then.
const CALM: Duration = Duration::from_secs(15);
/// No region became clean so late.
const DIRTY_ONLY: Update = Update(u64::MAX);
/// A member of which so many blocks cannot be read is not worth copying.
const UNREADABLE_MAX: usize = 4096;
/// Regions that are called dirty at a time.
const DIRTY_AT_ONCE: usize = 64;
/// Looks at a drive that is gone until the array knows it, too.
const GONE_LOOKS: u32 = 100;
/// How often it is looked whether guests ask for something.
const LOOK: Duration = Duration::from_millis(100);

/// The thread that copies.
pub(super) struct Copier {
    pub(super) host: Weak<Host>,
    pub(super) index: ArrayIndex,
    pub(super) member: MemberIndex,
    pub(super) incarnation: u32,
    pub(super) superblock: Superblock,
    pub(super) from: Arc<Drive>,
    pub(super) to: Arc<Drive>,
    /// When guests were looked at last, what they had asked for, and whether it was more than
    /// before.
    pub(super) looked: (Instant, u64, bool),
    pub(super) hand: Arc<Hand>,
}

impl Copier {
    pub(super) fn run(mut self) {
        let outcome = self.copy();
        let hand = Arc::clone(&self.hand);
        // Whoever sees that it has ended may count on its having let go of the drives.
        drop(self);
        let mut word = hand.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *word = Some(outcome);
    }

    /// Goes over the member until little of it is missing. From which update on it is.
    fn copy(&mut self) -> Result<Update, Ended> {
        let mut base = self.go_on()?;
        // What is first written from here on becomes dirty after `base`, and counts as missed.
        let mut missing = self.all_written()?;
        for pass in 1.. {
            let began = MonotonicClock.now();
            self.pass(missing.as_ref())?;
            let flushed = self.to.flush();
            flushed.map_err(|source| self.failed("flushing the copy", &source))?;
            let few = |missing: &Suspects| missing.count() <= FEW.1.max(missing.regions() / FEW.0);
            // What was in use before this pass is dirty for a while, and counts as missed once more
            // unless it becomes clean before the next one begins.
            while !few(&self.missed_since(base)?)
                && !few(&self.missed_since(DIRTY_ONLY)?)
                && MonotonicClock.now().since(began) < CALM
            {
                self.state()?;
                std::thread::park_timeout(LOOK);
            }
            // What becomes clean from here on does so at `next` or later.
            let next = self.go_on()?;
            let now = self.missed_since(base)?;
            if few(&now) || pass >= PASSES_MAX {
                return Ok(base);
            }
            base = next;
            missing = Some(now);
        }
        unreachable!("it ends at the last pass");
    }

    fn missed_since(&self, base: Update) -> Result<Suspects, Ended> {
        let host = self.host.upgrade().ok_or(Ended::Stopped)?;
        let missed = host.engine.missed_since(self.index, base);
        missed.ok_or(Ended::Stopped)
    }

    /// The regions that were ever written: `None` for all.
    fn all_written(&self) -> Result<Option<Suspects>, Ended> {
        let host = self.host.upgrade().ok_or(Ended::Stopped)?;
        Ok(host.engine.missed_since(self.index, Update(0)))
    }

    fn failed(&self, doing: &str, source: &std::io::Error) -> Ended {
        Ended::Failed(format!("{doing}: {source}"))
    }

    /// Commits a record, so that regions which become clean later are told from others; its update.
    fn go_on(&self) -> Result<Update, Ended> {
        let member = self.member;
        self.command(Command::Copying {
            member,
            step: Copying::GoesOn,
        })?;
        Ok(self.state()?.config.update)
    }

    fn command(&self, command: Command) -> Result<(), Ended> {
        loop {
            // Another array may have its number by now, and one that waits does nothing.
            while self.state()?.hold.is_some() {
                if self.from.is_taken_away() {
                    // It is opened anew when nobody has it any more.
                    return Err(Ended::Failed("the host has taken it away".to_owned()));
                }
                std::thread::park_timeout(LOOK);
            }
            let host = self.host.upgrade().ok_or(Ended::Stopped)?;
            match host.engine.change(self.index, command.clone()) {
                Ok(()) => return Ok(()),
                // It is under way, and does no harm twice.
                Err(ChangeError::Late) => {}
                Err(refused) => {
                    // Perhaps because of that.
                    self.state()?;
                    return Err(Ended::Failed(refused.to_string()));
                }
            }
        }
    }

    /// The array, as long as the member is in sync there.
    fn state(&self) -> Result<ArrayState, Ended> {
        if self.hand.stop.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        let host = self.host.upgrade().ok_or(Ended::Stopped)?;
        let state = host.engine.array_state(self.index).ok_or(Ended::Stopped)?;
        let member = state.map.members.get(self.member.at());
        let member = member.ok_or(Ended::Stopped)?;
        if member.state != MapState::InSync || member.incarnation != self.incarnation {
            return Err(Ended::Left);
        }
        Ok(state)
    }

    /// Copies what lies in these regions, or all.
    fn pass(&mut self, missing: Option<&Suspects>) -> Result<(), Ended> {
        let geometry = self.superblock.geometry;
        let stripes = geometry.stripes();
        let next_run = |from: StripeIndex| match missing {
            Some(missing) => missing.run_from(from),
            None => (from.0 < stripes).then_some((from, StripeIndex(stripes))),
        };
        let block_bytes = geometry.block_size().bytes();
        // Stripes of all groups take turns: a run of them is one range of each member.
        let range = |(start, end): (StripeIndex, StripeIndex)| {
            let last = StripeIndex(end.0 - 1);
            let (first, last) = (geometry.member_block(start), geometry.member_block(last));
            let end = last + u64::from(geometry.chunk_blocks());
            first * block_bytes..end * block_bytes
        };
        let mut bytes = 0;
        let mut from = StripeIndex(0);
        while let Some(run) = next_run(from) {
            bytes += range(run).end - range(run).start;
            from = run.1;
        }
        self.hand.total.fetch_add(bytes, Ordering::Relaxed);
        let mut unreadable = Vec::new();
        let mut from = StripeIndex(0);
        while let Some(run) = next_run(from) {
            let range = range(run);
            let mut offset = range.start;
            while offset < range.end {
                let length = STEP_BYTES.min(range.end - offset);
                self.step((offset, length), &mut unreadable)?;
                offset += length;
            }
            from = run.1;
        }
        self.call_dirty(&unreadable)
    }

    /// Copies some bytes of the member's data area, and notes blocks that it cannot read.
    fn step(
        &mut self,
        (offset, length): (u64, u64),
        unreadable: &mut Vec<u64>,
    ) -> Result<(), Ended> {
        self.make_way(length)?;
        let at = self.superblock.layout.data.offset + offset;
        let mut room = vec![0; units::bytes_usize(length)];
        if self.from.read(at, &mut room).is_err() {
            let block_bytes = self.superblock.geometry.block_size().bytes();
            let blocks = room.chunks_mut(units::bytes_usize(block_bytes));
            for (number, block) in (0..).zip(blocks) {
                if let Err(source) = self.read_block(at + number * block_bytes, block)? {
                    tracing::debug!(%source, block = number, "filled from the others");
                    block.fill(0);
                    unreadable.push(offset / block_bytes + number);
                }
            }
            if unreadable.len() > UNREADABLE_MAX {
                let text = format!(
                    "more than {UNREADABLE_MAX} blocks of the member cannot be read: \
                     `garboard array fail` and `array replace` fill the drive from the others"
                );
                return Err(Ended::Failed(text));
            }
        }
        let written = self.to.write(at, &room);
        written.map_err(|source| self.failed("writing the copy", &source))?;
        self.hand.done.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a block of the member; one whose drive is gone is about to leave the array.
    fn read_block(&self, offset: u64, block: &mut [u8]) -> Result<std::io::Result<()>, Ended> {
        for _ in 0..GONE_LOOKS {
            let read = self.from.read(offset, block);
            let code = read.as_ref().err().and_then(std::io::Error::raw_os_error);
            if !matches!(code, Some(libc::ENODEV | libc::ENXIO)) {
                return Ok(read);
            }
            self.state()?;
            std::thread::park_timeout(LOOK);
        }
        Err(Ended::Failed("the member's drive is gone".to_owned()))
    }

    /// While guests ask for something, goes only as fast as a rebuild may at least.
    fn make_way(&mut self, length: u64) -> Result<(), Ended> {
        if self.hand.stop.load(Ordering::Relaxed) {
            return Err(Ended::Stopped);
        }
        let (at, asked, busy) = self.looked;
        if MonotonicClock.now().since(at) >= LOOK {
            let state = self.state()?;
            let now: u64 = state.counters.iter().map(|one| one.drive_requests).sum();
            self.looked = (MonotonicClock.now(), now, now != asked);
        }
        if busy {
            let state = self.state()?;
            let floor = state.config.options.rebuild_floor_bytes_per_second.max(1);
            let nanoseconds = u128::from(length) * 1_000_000_000 / u128::from(floor);
            let pause = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
            std::thread::park_timeout(pause.min(Duration::from_secs(1)));
        }
        Ok(())
    }

    /// What could not be read is filled from the other members.
    fn call_dirty(&self, unreadable: &[u64]) -> Result<(), Ended> {
        let space = self.superblock.regions();
        let region = |&block: &u64| {
            let stripe = self.superblock.geometry.stripe_at(self.member, block);
            space.region(stripe)
        };
        let mut regions: Vec<u32> = unreadable.iter().map(region).collect();
        regions.sort_unstable();
        regions.dedup();
        for regions in regions.chunks(DIRTY_AT_ONCE) {
            let regions = regions.to_vec();
            self.command(Command::Dirty { regions })?;
        }
        Ok(())
    }
}
