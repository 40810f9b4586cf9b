//! Commands to NVMe drives, and the ring that takes them.
//!
//! Apart from the other ring because its entries are twice as long, and so only made where there
//! is such a drive (docs/design/013-nvme-passthrough.md). What does not live here: what a command
//! says (`nvme`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{cqueue, opcode, squeue, types};
use memory::Segment;
use rustix::event::EventfdFlags;
use units::limits;

use super::{Handle, Mode, Ring};
use crate::counters::PortCounters;
use crate::error::PortError;
use crate::nvme::{Command, ENTRY_BYTES};

/// Segments of one command.
pub(crate) const COMMAND_SEGMENTS_MAX: usize = 64;
/// `NVME_URING_CMD_IO` of linux/nvme_ioctl.h: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const NVME_URING_CMD_IO: u32 = 0xC048_4E80;
/// `NVME_URING_CMD_IO_VEC`: the memory is a list of segments.
const NVME_URING_CMD_IO_VEC: u32 = 0xC048_4E81;

/// A ring for commands to NVMe drives, which need entries and answers of twice the length.
pub(crate) struct Commands {
    ring: Ring<squeue::Entry128, cqueue::Entry32>,
    /// `COMMAND_SEGMENTS_MAX` segments for each operation. The kernel reads a command's list when
    /// it carries the command out, which may be later than when it takes the entry: when the
    /// drive's queue is full, a thread of the kernel waits for room first. So each list has a place
    /// of its own, until the answer.
    lists: Vec<Segment>,
    /// Counts when the kernel has something for us. Not every kernel wakes who polls a ring that
    /// leaves its work to our own calls: 6.18.44 loses the wake-up, though the source of 6.12.117
    /// has the call.
    event: File,
}

/// Where a command's answer goes, and to which drive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) handle: Handle,
    pub(crate) key: u64,
}

impl Commands {
    /// Sets up a ring for so many operations at once and a table for so many files.
    pub(crate) fn new(operations: u32, files: u32) -> Result<Commands, PortError> {
        let count = usize::try_from(operations).expect("a u32 fits usize");
        let lists = vec![Segment::EMPTY; count * COMMAND_SEGMENTS_MAX];
        let entries = operations.min(limits::URING_ENTRIES);
        Commands::with(Ring::new(entries, files)?, lists).map_err(super::refused)
    }

    fn with(
        ring: Ring<squeue::Entry128, cqueue::Entry32>,
        lists: Vec<Segment>,
    ) -> io::Result<Commands> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = File::from(rustix::event::eventfd(0, flags)?);
        ring.uring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Commands { ring, lists, event })
    }

    /// What is the same for every ring.
    pub(crate) fn ring(&mut self) -> &mut Ring<squeue::Entry128, cqueue::Entry32> {
        &mut self.ring
    }

    pub(crate) fn counters(&self) -> PortCounters {
        self.ring.counters
    }

    /// Becomes readable when the kernel has something for us since [`Commands::look`].
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Hands over everything queued and lets finished operations appear, all that the descriptor
    /// has told of so far. Whether nobody may sleep now; see [`Commands::is_busy`].
    pub(crate) fn look(&mut self) -> bool {
        // First, so that what comes from here on is told of again. Fails when there was nothing.
        let _ = (&self.event).read(&mut [0; 8]);
        self.ring.turn();
        self.is_busy()
    }

    /// Whether there are answers to take, or commands that the kernel has not taken, for want of
    /// memory: nothing would tell of these, for nothing is done about them.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.ring.has_answers() || !self.ring.uring.submission().is_empty()
    }

    /// Waits in this ring for a file to become readable: something that takes as long as a test
    /// likes.
    #[cfg(test)]
    pub(crate) fn start_watch(&mut self, fd: RawFd, key: u64) -> bool {
        let events = u32::try_from(libc::POLLIN).expect("a small flag");
        let entry = opcode::PollAdd::new(types::Fd(fd), events).build();
        self.ring.push(entry.into(), key)
    }

    /// Where the list of operation `slot` is.
    #[cfg(test)]
    pub(crate) fn list(&self, slot: usize) -> &[Segment] {
        &self.lists[slot * COMMAND_SEGMENTS_MAX..][..COMMAND_SEGMENTS_MAX]
    }

    /// Sends a command that needs no memory. False when the ring is full.
    pub(crate) fn start_bare(&mut self, sender: Sender, command: Command) -> bool {
        self.start(sender, command, Segment::EMPTY)
    }

    /// Sends a command with one piece of memory. False when the ring is full.
    pub(crate) fn start(&mut self, sender: Sender, command: Command, memory: Segment) -> bool {
        let length = u32::try_from(memory.len()).expect("a transfer is at most 16 MiB");
        let bytes = command.encode(memory.address(), length);
        self.push(sender, NVME_URING_CMD_IO, bytes)
    }

    /// Sends a command with the first so many `segments`, which are put into the list of operation
    /// `slot`. `command` is asked for it when it is known how many bytes they have. Returns these;
    /// none when the ring is full.
    pub(crate) fn start_list(
        &mut self,
        sender: Sender,
        slot: u32,
        segments: impl FnOnce(&mut List<'_>),
        command: impl FnOnce(u64) -> Command,
    ) -> Option<u64> {
        if self.ring.is_full() {
            return None;
        }
        let first = usize::try_from(slot).expect("a u32 fits usize") * COMMAND_SEGMENTS_MAX;
        let room = &mut self.lists[first..][..COMMAND_SEGMENTS_MAX];
        let mut list = List {
            room,
            count: 0,
            bytes: 0,
        };
        segments(&mut list);
        let (count, bytes) = (list.count, list.bytes);
        let command = command(bytes);
        let started = match &self.lists[first..][..count] {
            [segment] => {
                let segment = *segment;
                self.start(sender, command, segment)
            }
            segments => {
                // A segment is laid out as an iovec (asserted where it is defined).
                let length = u32::try_from(segments.len()).expect("few");
                let bytes = command.encode(segments.as_ptr().cast(), length);
                self.push(sender, NVME_URING_CMD_IO_VEC, bytes)
            }
        };
        assert!(started, "there was room a moment ago");
        Some(bytes)
    }

    fn push(&mut self, sender: Sender, operation: u32, command: [u8; ENTRY_BYTES]) -> bool {
        let entry = match sender.handle {
            Handle::Registered(place) => opcode::UringCmd80::new(types::Fixed(place), operation),
            Handle::Plain(fd) => opcode::UringCmd80::new(types::Fd(fd), operation),
        };
        self.ring.push(entry.cmd(command).build(), sender.key)
    }
}

/// The segments of one command; takes no more than there is room for.
pub(crate) struct List<'room> {
    room: &'room mut [Segment],
    count: usize,
    bytes: u64,
}

impl List<'_> {
    pub(crate) fn push(&mut self, segment: Segment) {
        if let Some(place) = self.room.get_mut(self.count) {
            *place = segment;
            self.count += 1;
            self.bytes += units::bytes_u64(segment.len());
        }
    }
}

/// Sends one command by a ring of its own and waits for its answer: 0, a status of the drive, or a
/// negative error number.
pub(crate) fn try_command(device: &File, command: Command, memory: Segment) -> io::Result<i32> {
    let mut commands = Commands::with(Ring::with_mode(Mode::Plain, 1, 0)?, Vec::new())?;
    let handle = Handle::Plain(device.as_raw_fd());
    let started = commands.start(Sender { handle, key: 0 }, command, memory);
    assert!(started, "the ring is empty");
    let mut answers = Vec::with_capacity(1);
    while answers.is_empty() {
        commands.ring.sleep(None);
        commands.ring.reap(&mut answers);
    }
    Ok(answers[0].result)
}
