//! The primitives that threads share: the standard library's, or loom's when loom checks us. Crates
//! that share words besides take them from here, so that they need no `cfg` of their own.

#[cfg(loom)]
pub use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicUsize, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicUsize, fence},
};
#[cfg(not(loom))]
pub use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};

/// A cell that hands out its address, with the shape of loom's.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `visit` with the address; loom checks that nobody writes meanwhile.
    #[inline]
    pub(crate) fn with<R>(&self, visit: impl FnOnce(*const T) -> R) -> R {
        visit(self.0.get())
    }

    /// Calls `visit` with the address; loom checks that nobody else is there meanwhile.
    #[inline]
    pub(crate) fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        visit(self.0.get())
    }
}

/// Lets others run while one of them is waited for.
#[cfg(not(loom))]
pub(crate) fn wait_a_little() {
    std::thread::yield_now();
}

/// As above.
#[cfg(loom)]
pub(crate) fn wait_a_little() {
    loom::thread::yield_now();
}

/// Keeps what one core writes on cache lines of its own; two lines, because processors fetch them
/// in pairs.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
