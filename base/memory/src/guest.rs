//! Guest memory: which addresses a guest may name, and where those bytes are in our address space.
//!
//! A table of regions never changes; memory added or removed makes a new table. Everything here is
//! asked with numbers a guest chose, so every sum is checked and no wrong number panics.
//! What does not live here: the messages that carry regions, and what is read or written.

mod budget;
mod mapping;
mod truncation;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{bytes_u64, bytes_usize};

use crate::Segment;
pub use budget::{Admitted, FRONT_END_BYTES_MAX, Held, MAPPED_BYTES_MAX, TooMuch, admit};
pub use mapping::Mapping;
pub use truncation::{MAPPINGS_MAX, survive_truncation, truncations};

/// Regions of one table; more than any front-end offers (509 memory slots).
pub const REGIONS_MAX: usize = 512;

/// Consecutive guest memory.
#[derive(Clone, Debug)]
pub struct Region {
    /// The first address, as the guest's drivers know it (guest physical).
    pub guest_base: u64,
    /// The first address, as the front-end's own process knows it; rings are named by these.
    pub front_end_base: u64,
    /// How many bytes.
    pub length: u64,
    /// What holds the bytes.
    pub mapping: Arc<Mapping>,
    /// Where in the mapping the region begins.
    pub offset: u64,
}

/// Some of the bytes are in no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress {
    /// The first address asked for.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at {:#x} are not all guest memory",
            self.length, self.address
        )
    }
}

impl std::error::Error for BadAddress {}

/// Why regions make no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// More than [`REGIONS_MAX`].
    TooMany {
        /// How many there are.
        regions: usize,
    },
    /// A region without bytes.
    Empty {
        /// Its first guest address.
        guest_base: u64,
    },
    /// A region whose end is beyond the last address.
    TooLong {
        /// Its first guest address.
        guest_base: u64,
    },
    /// A region that is not inside its mapping.
    OutsideMapping {
        /// Its first guest address.
        guest_base: u64,
    },
    /// Two regions that share guest addresses.
    Overlap {
        /// The first guest address of the lower one.
        lower: u64,
        /// The first guest address of the upper one.
        upper: u64,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::TooMany { regions } => {
                write!(f, "{regions} memory regions, of at most {REGIONS_MAX}")
            }
            RegionError::Empty { guest_base } => {
                write!(f, "the memory region at {guest_base:#x} is empty")
            }
            RegionError::TooLong { guest_base } => {
                write!(
                    f,
                    "the memory region at {guest_base:#x} ends beyond the last address"
                )
            }
            RegionError::OutsideMapping { guest_base } => {
                write!(
                    f,
                    "the memory region at {guest_base:#x} is larger than its mapping"
                )
            }
            RegionError::Overlap { lower, upper } => {
                write!(f, "the memory regions at {lower:#x} and {upper:#x} overlap")
            }
        }
    }
}

impl std::error::Error for RegionError {}

/// All memory of one guest at one time.
///
/// A segment from here is valid while its mapping lives: whoever lets go of a table has first
/// completed the requests that were translated with it.
#[derive(Debug)]
pub struct RegionTable {
    /// By guest address; no two overlap.
    regions: Vec<Region>,
    /// Beside each region: what every request asks of it.
    spans: Vec<Span>,
    generation: u64,
}

/// A region as it is looked up: where it begins for the guest, and where its bytes are.
#[derive(Clone, Copy, Debug)]
struct Span {
    guest_base: u64,
    bytes: Segment,
}

impl Span {
    /// Where `address` is inside, if it is.
    #[inline(always)]
    fn inside(&self, address: u64) -> Option<usize> {
        let inside = address.wrapping_sub(self.guest_base);
        // One comparison: an address below the region wraps to a number above every length.
        (inside < bytes_u64(self.bytes.len())).then(|| bytes_usize(inside))
    }
}

impl RegionTable {
    /// A table of these regions, in any order.
    ///
    /// # Errors
    /// [`RegionError`] when a region is empty, ends nowhere or lies outside its mapping, or when
    /// two share guest addresses. (They may share front-end addresses: one piece of memory may
    /// appear to the guest twice.)
    pub fn new(mut regions: Vec<Region>) -> Result<Arc<RegionTable>, RegionError> {
        if regions.len() > REGIONS_MAX {
            let regions = regions.len();
            return Err(RegionError::TooMany { regions });
        }
        for region in &regions {
            region.check()?;
        }
        regions.sort_unstable_by_key(|region| region.guest_base);
        for pair in regions.windows(2) {
            let (lower, upper) = (pair[0].guest_base, pair[1].guest_base);
            if upper - lower < pair[0].length {
                return Err(RegionError::Overlap { lower, upper });
            }
        }
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let span = |region: &Region| Span {
            guest_base: region.guest_base,
            bytes: region.bytes(),
        };
        Ok(Arc::new(RegionTable {
            spans: regions.iter().map(span).collect(),
            regions,
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// Where `length` bytes from guest address `address` on are, if all of them are in the region
    /// where the caller found an address last.
    #[inline(always)]
    #[must_use]
    pub fn near(&self, address: u64, length: u64, last: usize) -> Option<Segment> {
        let span = self.spans.get(last)?;
        let inside = span.inside(address)?;
        if length > bytes_u64(span.bytes.len() - inside) {
            return None;
        }
        Some(span.bytes.part(inside, bytes_usize(length)))
    }

    /// Appends where `length` bytes from guest address `address` on are; they may span regions that
    /// touch. No bytes are nowhere, whatever the address. `last` is the caller's memory of where it
    /// found the last address, to try first; any number will do.
    ///
    /// # Errors
    /// [`BadAddress`] when a byte is in no region; `out` is then as it was.
    #[inline]
    pub fn translate(
        &self,
        address: u64,
        length: u64,
        last: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        if length == 0 {
            return Ok(());
        }
        if let Some(segment) = self.near(address, length, *last) {
            out.push(segment);
            return Ok(());
        }
        self.translate_elsewhere(BadAddress { address, length }, last, out)
    }

    /// What is at guest address `address` and behind it in the region where the caller found an
    /// address last, if it is there.
    #[inline]
    #[must_use]
    pub fn peek(&self, address: u64, last: usize) -> Option<Segment> {
        let span = self.spans.get(last)?;
        let inside = span.inside(address)?;
        Some(span.bytes.part(inside, span.bytes.len() - inside))
    }

    /// The bytes are not all where the last ones were.
    #[inline(never)]
    fn translate_elsewhere(
        &self,
        asked: BadAddress,
        last: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        let at = self.find(asked.address).ok_or(asked)?;
        *last = at;
        if let Some(segment) = self.regions[at].guest_segment(asked.address, asked.length) {
            out.push(segment);
            return Ok(());
        }
        self.translate_across(at, asked, out)
    }

    /// The rare case: the bytes begin in region `at` and go on in those behind it.
    #[cold]
    fn translate_across(
        &self,
        at: usize,
        asked: BadAddress,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        let before = out.len();
        let (mut address, mut left) = (asked.address, asked.length);
        for region in &self.regions[at..] {
            // Regions do not overlap, so this one has the address or nobody has.
            let Some(inside) = region.guest_bytes_from(address) else {
                break;
            };
            let take = left.min(inside);
            let part = region.guest_segment(address, take);
            out.push(part.expect("as much as the region has"));
            left -= take;
            if left == 0 {
                return Ok(());
            }
            let Some(next) = address.checked_add(take) else {
                break;
            };
            address = next;
        }
        out.truncate(before);
        Err(asked)
    }

    /// Where `length` bytes from guest address `address` on are, all in one region.
    ///
    /// # Errors
    /// [`BadAddress`] when they are not in one region.
    pub fn guest(&self, address: u64, length: u64) -> Result<Segment, BadAddress> {
        let found = self.find(address);
        found
            .and_then(|at| self.regions[at].guest_segment(address, length))
            .ok_or(BadAddress { address, length })
    }

    /// Where `length` bytes from `address` of the front-end's process on are, all in one region.
    ///
    /// # Errors
    /// [`BadAddress`] when they are not in one region.
    pub fn front_end(&self, address: u64, length: u64) -> Result<Segment, BadAddress> {
        self.regions
            .iter()
            .find_map(|region| region.segment(region.front_end_base, address, length))
            .ok_or(BadAddress { address, length })
    }

    /// The regions by guest address.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The address space that the regions have.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            mappings: self.regions.len(),
            bytes: self.regions.iter().map(|region| region.mapping.len()).sum(),
        }
    }

    /// A number that no other table of this process has; later tables have higher ones.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the front-end took away memory that a region needs. One load while no front-end of
    /// this process ever did.
    #[inline]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        truncations() > 0 && self.regions.iter().any(|region| region.mapping.is_broken())
    }

    /// The position of the region that has guest address `address`.
    fn find(&self, address: u64) -> Option<usize> {
        let above = self
            .regions
            .partition_point(|region| region.guest_base <= address);
        let at = above.checked_sub(1)?;
        self.spans[at].inside(address).map(|_| at)
    }
}

impl Region {
    fn check(&self) -> Result<(), RegionError> {
        let guest_base = self.guest_base;
        let fits = |base: u64| base.checked_add(self.length - 1).is_some();
        if self.length == 0 {
            Err(RegionError::Empty { guest_base })
        } else if !fits(guest_base) || !fits(self.front_end_base) {
            Err(RegionError::TooLong { guest_base })
        } else if self
            .offset
            .checked_add(self.length)
            .is_none_or(|end| end > self.mapping.len())
        {
            Err(RegionError::OutsideMapping { guest_base })
        } else {
            Ok(())
        }
    }

    /// All its bytes; inside the mapping (`check`).
    fn bytes(&self) -> Segment {
        let (start, length) = (bytes_usize(self.offset), bytes_usize(self.length));
        self.mapping.segment().part(start, length)
    }

    /// How many bytes of the region lie at guest address `address` and behind it, if any do.
    fn guest_bytes_from(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.guest_base)?;
        (inside < self.length).then(|| self.length - inside)
    }

    fn guest_segment(&self, address: u64, length: u64) -> Option<Segment> {
        self.segment(self.guest_base, address, length)
    }

    /// `length` bytes from `address` on, if all are here; the region begins at `base`.
    fn segment(&self, base: u64, address: u64, length: u64) -> Option<Segment> {
        let inside = address.checked_sub(base)?;
        if inside >= self.length || length > self.length - inside {
            return None;
        }
        Some(self.bytes().part(bytes_usize(inside), bytes_usize(length)))
    }
}

#[cfg(test)]
mod tests;
