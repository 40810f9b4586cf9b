//! Memory whose pages the kernel holds on to, so that it need not look them up for each request.
//!
//! The kernel keeps the *pages*, not the addresses: should other memory come to the same addresses,
//! it would go on with the old pages. Two things see to it that this cannot happen: a pin keeps its
//! memory mapped, so the addresses stay its own, and rings take and leave whole sets of pins. What
//! nobody here can prevent is that other pages come under the mapping itself (a hole punched into
//! the file, as a balloon does): whoever pins memory promises that this does not happen.
//!
//! Pages are looked up once, here, by a thread that may wait; rings take over what was found
//! (`IORING_REGISTER_CLONE_BUFFERS`, with an offset since Linux 6.13). Not before Linux 6.16: until
//! then the kernel takes the place in a large page from the address, which is wrong where file and
//! address are not aligned alike ("io_uring/rsrc: don't rely on user vaddr alignment").
//! What does not live here: which requests make use of it (`uring`).
#![allow(unsafe_code, reason = "an island: memory is registered with io_uring")]

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::IoUring;
use io_uring::types::CloneBuffersFlags;
use memory::{Lasting, Segment};
use units::bytes_u64;

use crate::nvme::is_kernel_since;

/// Bytes of one registered buffer; the kernel takes no more.
const BUFFER_BYTES: usize = 1 << 30;
/// Registered buffers of a ring; the kernel takes no more.
const BUFFERS_MAX: usize = 1 << 14;
/// Bytes that are made present at once: the address space is locked meanwhile.
const POPULATE_BYTES: usize = 64 << 20;

const TOO_OLD: &str = "this kernel cannot share pinned memory between rings: Linux 6.16 can";

/// Memory whose pages the kernel holds on to until this, and every [`Pins`] with it, is gone.
pub struct Pin {
    /// First, since its pages are let go before the addresses are.
    ring: IoUring,
    buffers: usize,
    memory: Arc<dyn Lasting>,
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a pin of {} bytes", self.bytes())
    }
}

impl Pin {
    /// Makes all of `memory` present and holds on to its pages. Takes its time: about a second for
    /// 4 GiB that nobody has touched before.
    ///
    /// # Errors
    /// `OutOfMemory` when there are not so many pages or the process may not lock them
    /// (`RLIMIT_MEMLOCK`); `Unsupported` when its kind of memory cannot be held, or the kernel is
    /// older than Linux 6.16; `Interrupted` when it is not wanted any more, which is asked every
    /// 64 MiB; else what the kernel says.
    pub fn new(memory: Arc<dyn Lasting>, wanted: &dyn Fn() -> bool) -> io::Result<Pin> {
        if !is_kernel_since((6, 16)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, TOO_OLD));
        }
        let whole = memory.segment();
        let buffers = whole.len().div_ceil(BUFFER_BYTES);
        if buffers > BUFFERS_MAX {
            return Err(too_many(buffers));
        }
        let ring = donor()?;
        ring.submitter().register_buffers_sparse(count(buffers))?;
        for at in 0..buffers {
            let piece = piece(whole, at);
            populate(piece, wanted)?;
            let vector = libc::iovec {
                iov_base: piece.address().cast(),
                iov_len: piece.len(),
            };
            // SAFETY: mapped while `memory` lives (`Lasting`), which is longer than the ring.
            // What drives read into it is asked for by segments of it, as without a pin.
            unsafe {
                let update = ring.submitter();
                update.register_buffers_update(count(at), &[vector], None)
            }
            .map_err(explained)?;
        }
        Ok(Pin {
            ring,
            buffers,
            memory,
        })
    }

    /// How much it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        bytes_u64(self.memory.segment().len())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Now; closing the ring would do it a moment later.
        let _ = self.ring.submitter().unregister_buffers();
    }
}

/// Pins that rings have at one time.
#[derive(Default)]
pub struct Pins {
    /// From where rings take them; none while there is no pin.
    ring: Option<IoUring>,
    /// By address; no two overlap.
    spans: Vec<Span>,
    /// What keeps the addresses.
    pins: Vec<Arc<Pin>>,
}

/// A pin as it is looked up.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: Segment,
    /// Number of its first buffer.
    first: u16,
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.pins).finish()
    }
}

impl Pins {
    /// These pins, to be handed to every port ([`crate::Port::set_pins`]).
    ///
    /// # Errors
    /// `Unsupported` when there are more than 16,384
    /// buffers of 1 GiB in all; else what the kernel says.
    pub fn new(pins: Vec<Arc<Pin>>) -> io::Result<Pins> {
        if pins.is_empty() {
            return Ok(Pins::default());
        }
        let ring = donor()?;
        let mut spans = Vec::with_capacity(pins.len());
        let mut first = 0;
        for pin in &pins {
            if first + pin.buffers > BUFFERS_MAX {
                return Err(too_many(first + pin.buffers));
            }
            // Behind all that are there: some kernels lose what comes after the place.
            let flags = CloneBuffersFlags::DST_REPLACE;
            ring.submitter()
                .register_buffers_clone_offset(
                    pin.ring.as_raw_fd(),
                    0,
                    count(first),
                    count(pin.buffers),
                    flags,
                )
                .map_err(explained)?;
            spans.push(Span {
                bytes: pin.memory.segment(),
                first: u16::try_from(first).expect("below BUFFERS_MAX"),
            });
            first += pin.buffers;
        }
        spans.sort_unstable_by_key(|span| span.bytes.address().addr());
        for pair in spans.windows(2) {
            let end = pair[0].bytes.address().addr() + pair[0].bytes.len();
            assert!(end <= pair[1].bytes.address().addr(), "pinned twice");
        }
        Ok(Pins {
            ring: Some(ring),
            spans,
            pins,
        })
    }

    /// How many bytes all of them hold.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pins.iter().map(|pin| pin.bytes()).sum()
    }

    /// From where a ring takes them over.
    pub(crate) fn source(&self) -> Option<RawFd> {
        Some(self.ring.as_ref()?.as_raw_fd())
    }

    /// The buffer in which all of these segments lie; none without segments.
    #[inline]
    pub(crate) fn find(&self, segments: &[Segment]) -> Option<u16> {
        let begin = segments.first()?.address().addr();
        let above = |span: &Span| span.bytes.address().addr() <= begin;
        let at = self.spans.partition_point(above).checked_sub(1)?;
        let span = &self.spans[at];
        let start = span.bytes.address().addr();
        let buffer = (begin - start) / BUFFER_BYTES;
        let low = start + buffer * BUFFER_BYTES;
        let high = (low + BUFFER_BYTES).min(start + span.bytes.len());
        let is_inside = |segment: &Segment| {
            let begin = segment.address().addr();
            (low..high).contains(&begin) && segment.len() <= high - begin
        };
        if !segments.iter().all(is_inside) {
            return None;
        }
        // No more than the kernel's limit, checked when the set was made.
        u16::try_from(usize::from(span.first) + buffer).ok()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            let _ = ring.submitter().unregister_buffers();
        }
    }
}

/// A ring that does nothing but keep buffers.
fn donor() -> io::Result<IoUring> {
    IoUring::builder().dontfork().build(1)
}

fn piece(whole: Segment, at: usize) -> Segment {
    let offset = at * BUFFER_BYTES;
    whole.part(offset, (whole.len() - offset).min(BUFFER_BYTES))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("at most BUFFERS_MAX")
}

/// Touches all pages for writing, a little at a time. What cannot be had the kernel says when the
/// memory is registered.
fn populate(piece: Segment, wanted: &dyn Fn() -> bool) -> io::Result<()> {
    let mut offset = 0;
    while offset < piece.len() {
        if !wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = (piece.len() - offset).min(POPULATE_BYTES);
        let part = piece.part(offset, length);
        let odd = part.address().addr() % 4096;
        let start = part.address().wrapping_sub(odd);
        // SAFETY: the advice changes no byte, also of what else is on the first page.
        unsafe { libc::madvise(start.cast(), length + odd, libc::MADV_POPULATE_WRITE) };
        offset += length;
    }
    Ok(())
}

fn too_many(buffers: usize) -> io::Error {
    let text = format!("{buffers} GiB of pinned memory, of at most {BUFFERS_MAX}");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// What the kernel's numbers mean here.
fn explained(error: io::Error) -> io::Error {
    let (kind, text) = match error.raw_os_error() {
        Some(libc::ENOMEM) => (
            io::ErrorKind::OutOfMemory,
            "not enough memory, or more than this process may lock: raise its limit (ulimit -l, \
             LimitMEMLOCK= of a systemd unit) or give it CAP_IPC_LOCK",
        ),
        Some(libc::EINVAL) => (io::ErrorKind::Unsupported, TOO_OLD),
        Some(libc::EOPNOTSUPP | libc::EFAULT) => (
            io::ErrorKind::Unsupported,
            "memory of this kind cannot be pinned: use a memfd, /dev/shm or huge pages",
        ),
        _ => return error,
    };
    io::Error::new(kind, text)
}

#[cfg(test)]
mod tests {
    //! Where segments are looked for.

    use super::*;

    const GIB: usize = BUFFER_BYTES;

    fn at(address: usize, length: usize) -> Segment {
        let address = std::ptr::without_provenance_mut(address);
        // SAFETY: nothing is read or written through it.
        unsafe { Segment::new(address, length) }
    }

    #[test]
    fn segments_are_in_a_buffer_or_in_none() {
        let span = |address, length, first| Span {
            bytes: at(address, length),
            first,
        };
        let pins = Pins {
            ring: None,
            spans: vec![
                span(GIB / 2, 4096, 7),
                span(GIB, 2 * GIB + 4096, 0),
                span(4 * GIB, 8192, 3),
            ],
            pins: Vec::new(),
        };
        for (segments, wanted) in [
            (vec![], None),
            (vec![at(0, 1)], None),
            (vec![at(GIB / 2 - 1, 1)], None),
            (vec![at(GIB / 2 - 1, 2)], None),
            (vec![at(GIB / 2, 4096)], Some(7)),
            (vec![at(GIB / 2 + 1, 4096)], None),
            (vec![at(GIB / 2 + 4096, 1)], None),
            (vec![at(GIB - 1, 2)], None),
            (vec![at(GIB, GIB)], Some(0)),
            (vec![at(GIB, GIB + 1)], None),
            (vec![at(2 * GIB - 1, 2)], None),
            (vec![at(2 * GIB, 4096), at(GIB * 3 - 4096, 4096)], Some(1)),
            (vec![at(2 * GIB, 4096), at(GIB * 2 - 4096, 4096)], None),
            (vec![at(2 * GIB, 4096), at(GIB * 3, 4096)], None),
            (vec![at(3 * GIB, 4096)], Some(2)),
            (vec![at(3 * GIB, 4097)], None),
            (vec![at(3 * GIB + 4096, 1)], None),
            (vec![at(4 * GIB, 8192)], Some(3)),
            (vec![at(4 * GIB, 4096), at(GIB / 2, 4096)], None),
            (vec![at(5 * GIB, 4096)], None),
        ] {
            assert_eq!(pins.find(&segments), wanted, "{segments:?}");
        }
    }
}
