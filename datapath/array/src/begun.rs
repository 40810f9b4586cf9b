//! Writes that have begun, as memory that outlives the process tells the next engine.
//!
//! The transfer buffers of all shards lie in a file in memory, and beside them one entry for each
//! ticket, which says what it is about to write and in which buffers that is. After the process was
//! killed, the next engine carries out again whatever has an entry, so that no stripe is torn, even
//! when a member is gone by then. After a power failure nothing of this is left. The choice and its
//! proof are in docs/design/003-begun-writes.md.
//!
//! What does not live here: when an entry begins and ends (`shard/begun.rs`), and where the file is
//! (the control path).

mod borrowed;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod trust;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use memory::Words;
use units::limits::{
    ARRAY_MEMBERS_MAX, GROUP_MEMBERS_MAX, LARGE_BUFFER_BYTES, REACTORS_MAX, SMALL_BUFFER_BYTES,
};
use units::{
    Instant, MemberIndex, ReactorIndex, RoleSet, StripeIndex, Update, bytes_u64, bytes_usize,
};
use uuid::Uuid;

pub use self::borrowed::BlockMask;
pub use self::read::{BegunWrites, ToRedo, Unusable};
pub use self::trust::{Doubt, Why};
use crate::planted::{self, Fault};
use crate::shard::Room;

/// Parts of the file begin on a multiple of so many bytes, the largest page of any machine.
const ALIGNMENT: u64 = 64 << 10;
/// Buffers are named in units of so many bytes from the start of the file.
const UNIT: u64 = 4096;

/// What the first word of the file says: kind and version.
const MAGIC: u64 = u64::from_le_bytes(*b"GBBEGUN1");
/// Words of the head: those that never change, the checksum over them, and which of the two notes
/// of the last update counts; whether parity agrees wherever no entry is, whether some write has
/// ended without being whole, and by member what shows that its drive was not away. A file of a
/// program that knows nothing of the latter, or not all of it, says something else of trust:
/// nothing is trusted.
const HEAD_FIXED: usize = 8;
const HEAD_CHECKSUM: usize = 8;
const HEAD_NOTE: usize = 16;
const HEAD_NOTES: [usize; 2] = [17, 20];
const HEAD_TRUST: usize = 24;
const HEAD_TORN: usize = 25;
/// A bit for each shard: members are waited for that it has not heard to be gone.
const HEAD_HELD: [usize; 2] = [26, 27];
const HEAD_CLOCK: usize = 28;
const HEAD_APPEARANCES: usize = 32;
/// By shard, in a cache line each: when the oldest flush under way was asked for, and the oldest of
/// any other member than that; and which member that is, plus one.
const HEAD_FLUSHING: usize = 512;
const FLUSHING_WORDS: usize = 8;
const FLUSH_OLDEST: usize = 0;
const FLUSH_OTHERS: usize = 1;
const FLUSH_MEMBER: usize = 2;
/// A bit for each member: a flush of it has failed.
const HEAD_UNFLUSHED: usize = HEAD_FLUSHING + REACTORS_MAX * FLUSHING_WORDS;
/// By member, a bit for each shard: it is gone, and not out.
const HEAD_GONE: usize = HEAD_UNFLUSHED + ARRAY_MEMBERS_MAX.div_ceil(64);
const GONE_WORDS: usize = REACTORS_MAX.div_ceil(64);
const _: () = assert!(GONE_WORDS == HEAD_HELD.len());
const HEAD_WORDS: usize = HEAD_GONE + ARRAY_MEMBERS_MAX * GONE_WORDS;
const _: () = assert!(HEAD_APPEARANCES + ARRAY_MEMBERS_MAX <= HEAD_FLUSHING);
/// The head ends where the first share begins.
const _: () = assert!(HEAD_WORDS * size_of::<u64>() <= 64 << 10 && ALIGNMENT == 64 << 10);

/// What the word says when parity is trusted: what that promises, and of which version.
const TRUSTED: u64 = u64::from_le_bytes(*b"GBTRUST2");

/// Words of an entry, five cache lines; a ticket of one band and up to eight roles fills the first.
const ENTRY_WORDS: usize = 40;
/// Of an entry: its state, its stripe, its first band, the places of its buffers, two of them in a
/// word, and its other bands.
const STATE: usize = 0;
const STRIPE: usize = 1;
const BANDS: [usize; 3] = [2, 36, 38];
const PLACES: usize = 4;
const _: () = assert!(PLACES + GROUP_MEMBERS_MAX / 2 == BANDS[1]);

/// Of a state: the entry counts; zeroes are written; the buffers hold parity only. Bits 8 to 15 are
/// the number of bands, the upper half is the lane at which its buffers begin.
const COUNTS: u64 = 1;
const ZEROES: u64 = 2;
const BORROWED: u64 = 4;

/// How the file is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunSpace {
    shards: u32,
    tickets: u32,
    small: u32,
    large: u32,
}

impl BegunSpace {
    /// For so many shards with this room each.
    ///
    /// # Panics
    /// When that is beyond all bounds.
    #[must_use]
    pub fn new(shards: usize, room: &Room) -> BegunSpace {
        let few = |count: usize| u32::try_from(count).expect("limits.rs bounds every pool");
        BegunSpace {
            shards: few(shards),
            tickets: few(room.tickets),
            small: few(room.small_buffers),
            large: few(room.large_buffers),
        }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.table(u64::from(self.shards))
    }

    fn table_bytes(&self) -> u64 {
        aligned(u64::from(self.tickets) * bytes_u64(ENTRY_WORDS * size_of::<u64>()))
    }

    fn small_bytes(&self) -> u64 {
        aligned(u64::from(self.small) * bytes_u64(SMALL_BUFFER_BYTES))
    }

    fn large_bytes(&self) -> u64 {
        aligned(u64::from(self.large) * bytes_u64(LARGE_BUFFER_BYTES))
    }

    /// Where the share of a shard begins, with its table.
    fn table(&self, shard: u64) -> u64 {
        let share = self.table_bytes() + self.small_bytes() + self.large_bytes();
        ALIGNMENT + shard * share
    }

    /// Makes a file that had a life before as good as new: all of it is zeroes but the buffers,
    /// which hold whatever that left there. For simulators, which have many lives.
    ///
    /// # Errors
    /// What the kernel says when it does not write to the file.
    pub fn clear(&self, file: &File) -> io::Result<()> {
        let zeroes = |words: usize| vec![0; words * size_of::<u64>()];
        file.write_all_at(&zeroes(HEAD_WORDS), 0)?;
        let table = zeroes(bytes_usize(self.tickets.into()) * ENTRY_WORDS);
        for shard in 0..u64::from(self.shards) {
            file.write_all_at(&table, self.table(shard))?;
        }
        Ok(())
    }

    /// What one shard uses of the file.
    #[must_use]
    pub fn share(&self, shard: usize) -> Range<u64> {
        let shard = bytes_u64(shard);
        self.table(shard)..self.table(shard + 1)
    }

    /// Where its buffers are, small ones first.
    fn buffers(&self, shard: u64) -> Range<u64> {
        self.table(shard) + self.table_bytes()..self.table(shard + 1)
    }
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Whose writes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunOf {
    /// The array.
    pub array: Uuid,
    /// When the machine was started, in its own words.
    pub boot: Uuid,
    /// Which start of the array ([`crate::format::ArrayConfig::life`]).
    pub life: u64,
}

/// The file, for those who write into it.
#[derive(Debug)]
pub struct Begun {
    space: BegunSpace,
    file: File,
    head: Words,
}

impl Begun {
    /// Makes a new file ready: zeroes (or [`BegunSpace::clear`]), [`BegunSpace::bytes`] at least,
    /// which nobody makes shorter.
    ///
    /// # Errors
    /// What the kernel says when it does not map it.
    pub fn create(file: File, space: BegunSpace, whose: &BegunOf) -> io::Result<Arc<Begun>> {
        if file.metadata()?.len() < space.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let head = Words::in_file(&file, 0, HEAD_WORDS)?;
        let fixed = fixed(&space, whose);
        let words = head.as_slice();
        for (word, value) in words.iter().zip(fixed).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        words[HEAD_CHECKSUM].store(checksum(&fixed), Ordering::Relaxed);
        words[0].store(fixed[0], Ordering::Release);
        Ok(Arc::new(Begun { space, file, head }))
    }

    /// An update of this life is durable. Entries count from the first one on, and only for records
    /// that descend from the last.
    pub(crate) fn note_update(&self, update: Update, id: u128) {
        let words = self.head.as_slice();
        // Which of the two is not the one that counts.
        let free = usize::from(words[HEAD_NOTE].load(Ordering::Relaxed) == 1);
        let (high, low) = Uuid::from_u128(id).as_u64_pair();
        for (position, value) in [update.0, high, low].into_iter().enumerate() {
            words[HEAD_NOTES[free] + position].store(value, Ordering::Relaxed);
        }
        words[HEAD_NOTE].store(bytes_u64(free + 1), Ordering::Release);
    }

    /// By member: what shows that its drive was not away ([`crate::MemberPlace::appearance`]).
    /// Told before any record that names the drive is noted.
    pub(crate) fn note_appearances(&self, appearances: impl Iterator<Item = u64>) {
        let words = &self.head.as_slice()[HEAD_APPEARANCES..];
        for (word, appearance) in words.iter().zip(appearances) {
            word.store(appearance, Ordering::Relaxed);
        }
        fence(Ordering::Release);
    }

    /// Whether parity agrees with data in every stripe, but for lanes that an entry names, and does
    /// so until this is taken back.
    pub(crate) fn trust(&self, trusted: bool) {
        let word = if trusted { TRUSTED } else { 0 };
        self.head.as_slice()[HEAD_TRUST].store(word, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Some write ends without being whole: for as long as this engine lives, the file does not
    /// speak for parity any more. Comes before whatever ends.
    pub(crate) fn tear(&self) {
        if planted::is(Fault::TornEndNotTold) {
            return;
        }
        self.head.as_slice()[HEAD_TORN].store(1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// How long this machine was up, asleep or not, when the clock of the shards began. The next
    /// process may count from elsewhere.
    pub fn note_clock(&self, began: Duration) {
        let nanos = u64::try_from(began.as_nanos()).unwrap_or(0);
        self.head.as_slice()[HEAD_CLOCK].store(nanos, Ordering::Release);
    }

    /// A flush of a member has failed, and may have lost what the drive had acknowledged. The
    /// others know it. Comes before whatever waited for the flush ends.
    pub(crate) fn call_unflushed(&self, member: MemberIndex) {
        if planted::is(Fault::FailedFlushNotTold) {
            return;
        }
        let (word, bit) = unflushed(member);
        self.head.as_slice()[word].fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::Release);
    }

    /// A member has a drive that lacks what its record says: what was lost before is no matter.
    pub(crate) fn forget_unflushed(&self, member: MemberIndex) {
        let (word, bit) = unflushed(member);
        self.head.as_slice()[word].fetch_and(!bit, Ordering::SeqCst);
    }

    /// Of the flushes whose answers shard `me` has not dealt with: when the oldest was asked for,
    /// and of whom, and when the oldest of any other member was. They may fail, or have failed,
    /// when nobody hears of them any more.
    pub(crate) fn note_flushes(&self, me: ReactorIndex, flushes: &UnderWay) {
        let line = &self.head.as_slice()[HEAD_FLUSHING + me.at() * FLUSHING_WORDS..];
        let (oldest, member) = match flushes.oldest {
            Some((at, member)) => (Some(at), bytes_u64(member.at()) + 1),
            None => (None, 0),
        };
        // 0 is none. Who reads in between finds nobody named.
        let word = |at: Option<Instant>| at.map_or(0, |at| at.0.max(1));
        line[FLUSH_MEMBER].store(0, Ordering::Release);
        line[FLUSH_OLDEST].store(word(oldest), Ordering::Release);
        line[FLUSH_OTHERS].store(word(flushes.others), Ordering::Release);
        line[FLUSH_MEMBER].store(member, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Whether a member is gone, as shard `me` has heard, and not out.
    pub(crate) fn call_gone(&self, me: ReactorIndex, member: MemberIndex, gone: bool) {
        if planted::is(Fault::GoneNotTold) {
            return;
        }
        self.set(HEAD_GONE + member.at() * GONE_WORDS, me, gone);
    }

    /// Whether others are waited for, as shard `me` knows.
    pub(crate) fn call_held(&self, me: ReactorIndex, held: bool) {
        self.set(HEAD_HELD[0], me, held);
    }

    /// The bit of a shard, in the words from `first` on.
    fn set(&self, first: usize, me: ReactorIndex, is_set: bool) {
        let word = &self.head.as_slice()[first + me.at() / 64];
        let bit = 1 << (me.at() % 64);
        if is_set {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
        fence(Ordering::Release);
    }

    /// The entries of one shard, which has this room.
    ///
    /// # Errors
    /// What the kernel says when it does not map them.
    pub(crate) fn table(&self, shard: usize, room: &Room) -> io::Result<Table> {
        let shards = bytes_usize(self.space.shards.into());
        let fits = shard < shards && self.space == BegunSpace::new(shards, room);
        assert!(fits, "the file was made for shards like this");
        let tickets = bytes_usize(self.space.tickets.into());
        let at = self.space.table(bytes_u64(shard));
        let words = Words::in_file(&self.file, at, tickets * ENTRY_WORDS)?;
        Ok(Table { words })
    }

    /// The file, and where in it the small and the large buffers of a shard are.
    pub(crate) fn buffers(&self, shard: usize) -> (BorrowedFd<'_>, [u64; 2]) {
        let first = self.space.buffers(bytes_u64(shard)).start;
        (self.file.as_fd(), [first, first + self.space.small_bytes()])
    }
}

/// The flushes of a shard that are under way, as the next engine is told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// The oldest, and whose it is.
    pub(crate) oldest: Option<(Instant, MemberIndex)>,
    /// The oldest of the other members.
    pub(crate) others: Option<Instant>,
}

/// Where it says of a member that a flush has failed.
fn unflushed(member: MemberIndex) -> (usize, u64) {
    (HEAD_UNFLUSHED + member.at() / 64, 1 << (member.at() % 64))
}

/// Words of the head that never change.
fn fixed(space: &BegunSpace, whose: &BegunOf) -> [u64; HEAD_FIXED] {
    let (array, boot) = (whose.array.as_u64_pair(), whose.boot.as_u64_pair());
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let counts = pair(space.shards, space.tickets);
    let buffers = pair(space.small, space.large);
    [
        MAGIC, array.0, array.1, boot.0, boot.1, whose.life, counts, buffers,
    ]
}

fn checksum(words: &[u64]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for word in words {
        digest.update(&word.to_ne_bytes());
    }
    digest.finalize()
}

/// Where a ticket writes, and what.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) stripe: StripeIndex,
    /// The lane at which its buffers begin.
    pub(crate) first: u32,
    pub(crate) content: Content,
}

/// Where what a ticket writes is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All of it in its buffers.
    Kept,
    /// Nowhere: it writes zeroes.
    Zeroes,
    /// Its data is where the guest has it, which the next engine cannot see.
    Borrowed,
}

/// The entries of one shard, by ticket slot.
#[derive(Debug)]
pub(crate) struct Table {
    words: Words,
}

impl Table {
    #[inline]
    fn entry(&self, slot: u32) -> &[AtomicU64; ENTRY_WORDS] {
        let (entries, _) = self.words.as_slice().as_chunks();
        &entries[crate::slots::at(slot)]
    }

    /// A ticket is about to write `bands`, from buffers at `places`, role by role of all that the
    /// bands name. From here on the next engine does it.
    #[inline]
    pub(crate) fn begin(
        &self,
        slot: u32,
        order: &Order,
        bands: impl Iterator<Item = (Range<u32>, RoleSet)>,
        mut places: impl Iterator<Item = u32>,
    ) {
        let entry = self.entry(slot);
        entry[STRIPE].store(order.stripe.0, Ordering::Relaxed);
        let mut count = 0;
        for (at, (lanes, roles)) in BANDS.into_iter().zip(bands) {
            let length = lanes.end - lanes.start;
            let run = u64::from(lanes.start) << 32 | u64::from(length);
            entry[at].store(run, Ordering::Relaxed);
            entry[at + 1].store(roles.0, Ordering::Relaxed);
            count += 1;
        }
        for word in &entry[PLACES..BANDS[1]] {
            let Some(low) = places.next() else {
                break;
            };
            let high = places.next().unwrap_or(0);
            word.store(u64::from(high) << 32 | u64::from(low), Ordering::Relaxed);
        }
        let content = match order.content {
            Content::Kept => 0,
            Content::Zeroes => ZEROES,
            Content::Borrowed => BORROWED,
        };
        let state = u64::from(order.first) << 32 | count << 8 | content | COUNTS;
        // Whoever sees this sees all of the above, and the bytes in the buffers.
        entry[STATE].store(state, Ordering::Release);
    }

    /// All that it writes is in its buffers now.
    pub(crate) fn keep(&self, slot: u32) {
        let state = &self.entry(slot)[STATE];
        let kept = state.load(Ordering::Relaxed) & !BORROWED;
        state.store(kept, Ordering::Release);
    }

    /// What it wrote is there, or missed only by members that are out.
    pub(crate) fn end(&self, slot: u32) {
        self.entry(slot)[STATE].store(0, Ordering::Relaxed);
        // Nothing that the shard stores from here on, its buffers among it, is seen before this.
        fence(Ordering::Release);
    }
}

/// Where a buffer lies that begins so many bytes after the start of the file.
#[inline]
pub(crate) fn place(offset: u64) -> u32 {
    u32::try_from(offset / UNIT).expect("the file has less than 16 TiB")
}
