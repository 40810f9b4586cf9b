//! Surviving a front-end that truncates the memory it gave us.
//!
//! A load or store behind the end of a mapped file is a SIGBUS. The handler looks the address up in
//! a fixed table of the guest mappings that live, replaces the whole mapping (or as much as can be)
//! by zero pages of our own, and marks it broken; the load or store then goes on, and the
//! connection is failed by whoever looks at the mark. A SIGBUS anywhere else is given back to
//! whoever handled it before we came; there is nobody in this engine who survives one, so it is
//! given back for good.
//!
//! The handler may run between any two instructions of any thread, so it takes no lock, allocates
//! nothing and calls nothing but async-signal-safe functions.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use libc::{c_int, c_void, siginfo_t};

use crate::signals;

/// Guest mappings that live at one time in this process.
pub const MAPPINGS_MAX: usize = 16384;

/// A range of addresses that the handler knows. `start` is [`FREE`], [`TAKEN`] or an address; `end`
/// and `broken` are valid while it is an address.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
    /// Counts the ranges that were here.
    uses: AtomicU64,
}

const FREE: usize = 0;
/// Being filled; no mapping begins at address 1.
const TAKEN: usize = 1;

/// What is replaced where the kernel does not give zeroes for all of a mapping, as one does not
/// that promises no more memory than it has (vm.overcommit_memory=2): as much as it gives, down to
/// one page, huge or not. The next fault takes the next part.
const PARTS: [usize; 4] = [1 << 30, 2 << 20, 64 << 10, 4 << 10];

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
        uses: AtomicU64::new(0),
    }
}; MAPPINGS_MAX];
/// No slot at or above this one was ever used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static TRUNCATIONS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

impl Slot {
    /// Puts a range here, if none is.
    fn take(&self, range: &Range<usize>) -> bool {
        let is_free = self.start.load(Ordering::Relaxed) == FREE
            && self
                .start
                .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if is_free {
            // Release: who sees the new count sees that the range before has gone.
            self.uses.fetch_add(1, Ordering::Release);
            // Who sees anything of what comes sees the count.
            fence(Ordering::Release);
            self.broken.store(false, Ordering::Relaxed);
            self.end.store(range.end, Ordering::Relaxed);
            // Release: who sees the start sees the end.
            self.start.store(range.start, Ordering::Release);
        }
        is_free
    }

    fn leave(&self) {
        self.start.store(FREE, Ordering::Release);
    }

    /// The range that is here, if one stays while this looks: a slot may be given up, and taken by
    /// another range, between two looks at it, and from the start of one to the end of another
    /// there may be all that this process has.
    fn range(&self) -> Option<Range<usize>> {
        self.range_beside(|| ())
    }

    /// The same, while `meanwhile` happens.
    fn range_beside(&self, meanwhile: impl FnOnce()) -> Option<Range<usize>> {
        let uses = self.uses.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        meanwhile();
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let stays = self.uses.load(Ordering::Relaxed) == uses;
        (start > TAKEN && stays).then_some(start..end)
    }
}

/// A range of addresses that is in the table as long as this value lives.
#[derive(Debug)]
pub(super) struct Watched {
    slot: usize,
}

impl Watched {
    /// Puts a range into the table.
    pub(super) fn new(start: usize, length: usize) -> io::Result<Watched> {
        assert!(start > TAKEN && start.checked_add(length).is_some());
        let range = start..start + length;
        let Some(slot) = SLOTS.iter().position(|slot| slot.take(&range)) else {
            let text =
                format!("{MAPPINGS_MAX} pieces of guest memory are mapped, and no more can be");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        };
        // Before anybody uses the mapping, and faults there.
        SLOTS_USED.fetch_max(slot + 1, Ordering::Release);
        Ok(Watched { slot })
    }

    pub(super) fn is_broken(&self) -> bool {
        SLOTS[self.slot].broken.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        SLOTS[self.slot].leave();
    }
}

/// How often memory was taken away from a guest mapping of this process.
#[inline]
#[must_use]
pub fn truncations() -> u64 {
    TRUNCATIONS.load(Ordering::Acquire)
}

/// Makes this process survive front-ends that truncate their memory: such mappings become broken
/// ([`super::Mapping::is_broken`]) and read as zeroes. Once per process; more calls do nothing.
///
/// # Errors
/// What the kernel says when it refuses the handler.
pub fn survive_truncation() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
    let installed = INSTALLED.get_or_init(|| install().map_err(errno));
    installed.map_err(io::Error::from_raw_os_error)
}

fn install() -> io::Result<()> {
    // The previous action is in place before the handler can run.
    PREVIOUS.get_or_init(|| signals::current_action(libc::SIGBUS));
    signals::install(libc::SIGBUS, on_bus_error)
}

/// The handler. Only touches statics that are atomic or set before it is installed.
extern "C" fn on_bus_error(signal: c_int, information: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the thread's own errno, which a handler must leave as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the address is valid for the life of the thread.
    let before = unsafe { errno.read() };
    let is_fault = signals::is_fault(information);
    if !(is_fault && replace(fault_address(information))) {
        // PREVIOUS is set before the handler is installed.
        signals::give_back(signal, PREVIOUS.get(), is_fault);
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

fn fault_address(information: *mut siginfo_t) -> usize {
    // SAFETY: the kernel hands a valid structure to a handler with SA_SIGINFO.
    let information = unsafe { &*information };
    // SAFETY: a SIGBUS from the kernel carries an address.
    unsafe { information.si_addr() }.addr()
}

/// Replaces the guest mapping that has `address` by zeroes; says whether there was one.
fn replace(address: usize) -> bool {
    let used = SLOTS_USED.load(Ordering::Acquire);
    for slot in &SLOTS[..used] {
        // Who faults in a mapping holds it, so its slot cannot change under us, as those of others
        // may. Two threads may both be here; the second replaces zeroes by zeroes.
        let Some(range) = slot.range().filter(|range| range.contains(&address)) else {
            continue;
        };
        let part = |bytes: &usize| zeroes(&part_around(&range, address, *bytes));
        if !zeroes(&range) && !PARTS.iter().any(part) {
            return false;
        }
        if !slot.broken.swap(true, Ordering::AcqRel) {
            TRUNCATIONS.fetch_add(1, Ordering::AcqRel);
        }
        return true;
    }
    false
}

/// The part of `range` around `address` that is aligned to its size.
fn part_around(range: &Range<usize>, address: usize, bytes: usize) -> Range<usize> {
    let start = address & !(bytes - 1);
    start.max(range.start)..start.saturating_add(bytes).min(range.end)
}

fn zeroes(range: &Range<usize>) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let (address, length) = (ptr::without_provenance_mut(range.start), range.len());
    // SAFETY: replaces one mapping of ours or a part of it (the table holds live `Mapping`s only,
    // entered with their true range), whose bytes nobody holds a Rust reference to (`Segment`).
    let mapped = unsafe { libc::mmap(address, length, access, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_inside_its_mapping_and_has_the_address() {
        let range = 0x5000..0x20_0000;
        for (address, bytes, part) in [
            (0x6123, 0x1000, 0x6000..0x7000),
            (0x6123, 0x1_0000, 0x5000..0x1_0000),
            (0x1f_ffff, 0x20_0000, 0x5000..0x20_0000),
            (0x1f_ffff, 0x1_0000, 0x1f_0000..0x20_0000),
        ] {
            assert_eq!(part_around(&range, address, bytes), part);
        }
    }

    #[test]
    fn no_range_is_of_the_start_of_one_and_the_end_of_another() {
        let slot = Slot {
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            uses: AtomicU64::new(0),
        };
        assert_eq!(slot.range(), None);
        let (low, high) = (0x1000..0x2000, 0x9000..0xa000);
        assert!(slot.take(&low) && !slot.take(&high));
        assert_eq!(slot.range(), Some(low));
        let seen = slot.range_beside(|| {
            slot.leave();
            assert!(slot.take(&high));
        });
        assert_eq!(seen, None);
        assert_eq!(slot.range(), Some(high));
        slot.leave();
        assert_eq!(slot.range(), None);
    }
}
