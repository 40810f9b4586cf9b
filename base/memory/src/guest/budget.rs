//! How much of this process's address space front-ends may have, each and all together.
//!
//! A front-end says how large its memory is, and a file without content may be as large as it
//! likes: what is mapped costs nothing but addresses, and without them nothing can be allocated
//! any more, which is the end of the engine. What does not live here: who asks for how much.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::MAPPINGS_MAX;

/// Bytes that are mapped of all front-ends at one time, of 127 TiB that an x86-64 process can
/// address. Each disk of a guest is a front-end of its own, and maps all of the guest's memory.
pub const MAPPED_BYTES_MAX: u64 = 112 << 40;
/// What is kept of them for those that have little.
const KEPT_BYTES: u64 = 16 << 40;
/// Bytes of the memory of one front-end.
pub const FRONT_END_BYTES_MAX: u64 = 16 << 40;
/// As many bytes and regions a front-end may have while there are any. More than that it gets only
/// while more is free than is kept for others, and half of all regions: so what the greedy leave is
/// enough for many that are not.
const SHARE: Held = Held {
    mappings: 64,
    bytes: 1 << 40,
};

static MAPPED: Held<AtomicUsize, AtomicU64> = Held {
    mappings: AtomicUsize::new(0),
    bytes: AtomicU64::new(0),
};

/// Address space that somebody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held<Count = usize, Bytes = u64> {
    /// How many mappings.
    pub mappings: Count,
    /// How many bytes they have.
    pub bytes: Bytes,
}

/// Why a front-end gets no more memory mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// It would have more than [`FRONT_END_BYTES_MAX`].
    OfFrontEnd,
    /// It has its share, and others have most of the rest, or all of it.
    OfAll,
}

/// Address space for one mapping that a front-end is to get.
#[derive(Debug)]
pub struct Admitted(pub(super) Counted);

/// Address space for one more mapping of `bytes` bytes, for a front-end that has `held`. What it
/// `gives_back` as soon as it has all of its new memory does not count against it.
///
/// # Errors
/// [`TooMuch`] says why not.
pub fn admit(held: Held, gives_back: Held, bytes: u64) -> Result<Admitted, TooMuch> {
    let mappings = MAPPED.mappings.load(Ordering::Relaxed);
    let mut answer = Ok(());
    // Together with the counting, or several would have it at once.
    let counted = Counted::when(bytes, |mapped| {
        let mapped = Held {
            mappings: mappings.saturating_sub(gives_back.mappings),
            bytes: mapped.saturating_sub(gives_back.bytes),
        };
        answer = admit_beside(mapped, held, bytes);
        answer.is_ok()
    });
    answer?;
    counted.map(Admitted).ok_or(TooMuch::OfAll)
}

fn admit_beside(mapped: Held, held: Held, bytes: u64) -> Result<(), TooMuch> {
    let wanted = held.bytes.saturating_add(bytes);
    if wanted > FRONT_END_BYTES_MAX {
        return Err(TooMuch::OfFrontEnd);
    }
    let is_greedy = held.mappings >= SHARE.mappings || wanted > SHARE.bytes;
    let is_scarce = mapped.mappings >= MAPPINGS_MAX / 2
        || mapped.bytes.saturating_add(bytes) > MAPPED_BYTES_MAX - KEPT_BYTES;
    if is_greedy && is_scarce {
        return Err(TooMuch::OfAll);
    }
    Ok(())
}

/// Address space that is counted as long as this value lives.
#[derive(Debug)]
pub(super) struct Counted {
    bytes: u64,
}

impl Counted {
    /// Counts one mapping of `bytes` bytes. `None` when that is more than all may have.
    pub(super) fn new(bytes: u64) -> Option<Counted> {
        Counted::when(bytes, |_| true)
    }

    /// The same, if that may be beside what is mapped.
    fn when(bytes: u64, mut may_be: impl FnMut(u64) -> bool) -> Option<Counted> {
        add_bytes(bytes, &mut may_be)?;
        MAPPED.mappings.fetch_add(1, Ordering::Relaxed);
        Some(Counted { bytes })
    }

    /// Counts at least so many bytes for it. `None` when that is more than all may have.
    pub(super) fn at_least(mut self, bytes: u64) -> Option<Counted> {
        let more = bytes.saturating_sub(self.bytes);
        add_bytes(more, &mut |_| true)?;
        self.bytes += more;
        Some(self)
    }
}

fn add_bytes(bytes: u64, may_be: &mut impl FnMut(u64) -> bool) -> Option<()> {
    let more = |mapped: u64| {
        let now = mapped.checked_add(bytes)?;
        (may_be(mapped) && now <= MAPPED_BYTES_MAX).then_some(now)
    };
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let added = MAPPED.bytes.fetch_update(set, fetch, more);
    added.ok().map(|_| ())
}

impl Drop for Counted {
    fn drop(&mut self) {
        MAPPED.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        MAPPED.mappings.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    fn held(mappings: usize, bytes: u64) -> Held {
        Held { mappings, bytes }
    }

    #[test]
    fn who_has_much_gets_more_only_while_enough_is_free_for_others() {
        let (none, little) = (held(0, 0), held(63, TIB / 2));
        let (many, large) = (held(64, TIB / 2), held(1, TIB));
        let full = MAPPINGS_MAX / 2;
        for (mapped, has, bytes, answer) in [
            (none, none, 16 * TIB, Ok(())),
            (none, none, 16 * TIB + 1, Err(TooMuch::OfFrontEnd)),
            (none, large, 15 * TIB, Ok(())),
            (none, large, 15 * TIB + 1, Err(TooMuch::OfFrontEnd)),
            (none, large, u64::MAX, Err(TooMuch::OfFrontEnd)),
            (none, many, 4096, Ok(())),
            (held(full - 1, 0), many, 4096, Ok(())),
            (held(full, 0), many, 4096, Err(TooMuch::OfAll)),
            (held(full, 0), little, 4096, Ok(())),
            (held(1, 96 * TIB - 4096), large, 4096, Ok(())),
            (held(1, 96 * TIB), large, 4096, Err(TooMuch::OfAll)),
            (held(1, 111 * TIB), little, TIB / 2, Ok(())),
            (held(1, 111 * TIB), little, TIB, Err(TooMuch::OfAll)),
        ] {
            let found = admit_beside(mapped, has, bytes);
            assert_eq!(found, answer, "{mapped:?} {has:?} {bytes}");
        }
    }

    /// Other tests of this process map memory meanwhile, but never so much.
    #[test]
    fn what_goes_is_not_counted_any_more() {
        for _ in 0..3 {
            let most = Counted::new(MAPPED_BYTES_MAX - TIB).expect("nothing is mapped yet");
            assert!(Counted::new(2 * TIB).is_none());
            assert!(Counted::new(u64::MAX).is_none());
            assert!(Counted::new(TIB / 2).is_some());
            let grown = Counted::new(4096).and_then(|counted| counted.at_least(TIB / 2));
            assert!(grown.is_some());
            assert!(Counted::new(3 * TIB / 4).is_none(), "it counts");
            assert!(
                grown
                    .and_then(|counted| counted.at_least(2 * TIB))
                    .is_none()
            );
            drop(most);
        }
        let none = Held::default();
        // As many disks of a large guest as there is room for, whoever comes first.
        let disks: Vec<_> = std::iter::from_fn(|| admit(none, none, 6 * TIB).ok()).collect();
        assert_eq!(disks.len(), 16);
        // Its memory again, in place of what it has.
        let has = held(1, 6 * TIB);
        assert!(admit(none, has, 6 * TIB).is_ok());
        assert!(admit(none, none, TIB).is_ok(), "what is kept for others");
    }
}
