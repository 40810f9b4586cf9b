//! Surviving a front-end that truncates the memory it gave us.
//!
//! A load or store behind the end of a mapped file is a SIGBUS. The handler looks the address up in
//! a fixed table of the guest mappings that live, replaces the whole mapping by zero pages of our
//! own, and marks it broken; the load or store then goes on, and the connection is failed by
//! whoever looks at the mark. A SIGBUS anywhere else is given back to whoever handled it before we
//! came; there is nobody in this engine who survives one, so it is given back for good.
//!
//! The handler may run between any two instructions of any thread, so it takes no lock, allocates
//! nothing and calls nothing but async-signal-safe functions.

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

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
}

const FREE: usize = 0;
/// Being filled; no mapping begins at address 1.
const TAKEN: usize = 1;

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];
/// No slot at or above this one was ever used.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static TRUNCATIONS: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses that is in the table as long as this value lives.
#[derive(Debug)]
pub(super) struct Watched {
    slot: usize,
}

impl Watched {
    /// Puts a range into the table.
    pub(super) fn new(start: usize, length: usize) -> io::Result<Watched> {
        assert!(start > TAKEN && start.checked_add(length).is_some());
        let free = |slot: &Slot| {
            slot.start.load(Ordering::Relaxed) == FREE
                && slot
                    .start
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let Some(slot) = SLOTS.iter().position(free) else {
            let text =
                format!("{MAPPINGS_MAX} pieces of guest memory are mapped, and no more can be");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        };
        SLOTS_USED.fetch_max(slot + 1, Ordering::Release);
        SLOTS[slot].broken.store(false, Ordering::Relaxed);
        SLOTS[slot].end.store(start + length, Ordering::Relaxed);
        // Release: who sees the start sees the end, and the slot count.
        SLOTS[slot].start.store(start, Ordering::Release);
        Ok(Watched { slot })
    }

    pub(super) fn is_broken(&self) -> bool {
        SLOTS[self.slot].broken.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(FREE, Ordering::Release);
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
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Relaxed);
        if start <= TAKEN || !(start..end).contains(&address) {
            continue;
        }
        // Who faults in a mapping holds it, so the slot cannot change under us. Two threads may
        // both be here; the second replaces zeroes by zeroes.
        if !zeroes(start, end - start) {
            return false;
        }
        if !slot.broken.swap(true, Ordering::AcqRel) {
            TRUNCATIONS.fetch_add(1, Ordering::AcqRel);
        }
        return true;
    }
    false
}

fn zeroes(start: usize, length: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let address = ptr::without_provenance_mut(start);
    // SAFETY: replaces exactly one mapping of ours (the table holds live `Mapping`s only, entered
    // with their true range), whose bytes nobody holds a Rust reference to (`Segment`).
    let mapped = unsafe { libc::mmap(address, length, access, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}
