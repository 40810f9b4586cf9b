//! Which pinned memory a ring knows, and how it comes to know other.

use std::io;
use std::sync::Arc;

use io_uring::{Probe, cqueue, opcode, squeue};
use memory::Segment;

use super::Ring;
use crate::pins::Pins;

/// See the module.
#[derive(Default)]
pub(super) struct Pinned {
    /// What the kernel has registered of this ring.
    known: Option<Arc<Pins>>,
    /// What is to take its place, when the kernel has every entry that names a buffer of it.
    next: Option<Arc<Pins>>,
    /// Whether the kernel takes lists of segments in a registered buffer (Linux 6.15).
    takes_lists: Option<bool>,
    /// Whether the last transfer that was queued names a buffer.
    pub(super) used: bool,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// Replaces the pins that transfers may use. Those that the kernel has taken keep theirs.
    pub(crate) fn set_pins(&mut self, pins: Arc<Pins>) {
        self.pinned.next = Some(pins);
        // What was queued names buffers by numbers of the set before.
        self.turn();
        self.change_pins();
    }

    /// Whether the last transfer that was queued names pinned memory.
    #[inline]
    pub(crate) fn used_pin(&self) -> bool {
        self.pinned.used
    }

    /// Whether a transfer of pinned memory may have failed because of that; the pins are out of use
    /// then.
    #[cold]
    pub(crate) fn gives_up_pins(&mut self, errno: i32) -> bool {
        let may = [
            libc::EFAULT,
            libc::EINVAL,
            libc::EOVERFLOW,
            libc::EOPNOTSUPP,
        ];
        if !may.contains(&errno) {
            return false;
        }
        if self.pinned.known.is_some() {
            // Entries that name its buffers may be queued: they find them still.
            let next = self.pinned.next.take();
            self.set_pins(next.unwrap_or_default());
        }
        true
    }

    /// Takes the pins that wait, once no entry is queued.
    pub(super) fn change_pins(&mut self) {
        if self.pinned.next.is_none() || !self.uring.submission().is_empty() {
            return;
        }
        let next = self.pinned.next.take();
        let before = self.pinned.known.take();
        if before.is_some() {
            // Should they stay, the next cannot be taken over, and none are used.
            let _ = self.uring.submitter().unregister_buffers();
        }
        // Not before the kernel has let go here: who drops the last of it waits for all pages.
        drop(before);
        if let Some(pins) = next
            && let Some(source) = pins.source()
            && self.take_over(source).is_ok()
        {
            self.pinned.known = Some(pins);
        }
    }

    /// Lets go of all pins now, as [`Ring::unregister_all`] does of files.
    pub(super) fn leave_pins(&mut self) {
        if self.pinned.known.take().is_some() {
            let _ = self.uring.submitter().unregister_buffers();
        }
    }

    /// As if the kernel had lost them.
    #[cfg(test)]
    pub(crate) fn forget_buffers(&mut self) {
        self.uring.submitter().unregister_buffers().unwrap();
    }

    fn take_over(&mut self, source: std::os::fd::RawFd) -> io::Result<()> {
        self.enable();
        let submitter = self.uring.submitter();
        if self.pinned.takes_lists.is_none() {
            let mut probe = Probe::new();
            let probed = submitter.register_probe(&mut probe).is_ok();
            let takes = probed && probe.is_supported(opcode::ReadvFixed::CODE);
            self.pinned.takes_lists = Some(takes);
        }
        submitter.register_buffers_clone(source)
    }

    /// The registered buffer in which these segments lie, if there is one.
    #[inline]
    pub(super) fn pinned(&self, segments: &[Segment]) -> Option<u16> {
        let known = self.pinned.known.as_ref()?;
        if segments.len() > 1 && self.pinned.takes_lists != Some(true) {
            return None;
        }
        known.find(segments)
    }
}
