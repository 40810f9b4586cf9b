//! Requests to drives that take commands of NVMe: which command is next, with which memory.
//!
//! The kernel does not cut a command, nor does it less than all of it. What does not live here: the
//! bytes of a command (`nvme`), and how it reaches the kernel (`uring`).

use block::Operation;

use super::Port;
use super::joined::SEGMENTS_JOINED_MAX;
use super::keys::Key;
use super::tasks::Method;
use super::work::ZEROES_BYTES;
use crate::nvme::Command;
use crate::uring::{COMMAND_SEGMENTS_MAX, Direction, List, Sender, Transfer};

const _: () = assert!(SEGMENTS_JOINED_MAX <= COMMAND_SEGMENTS_MAX);

impl Port {
    /// As `hand_over`, for a drive that takes commands.
    pub(super) fn send_command(&mut self, slot: u32) -> Option<u64> {
        let task = self.tasks.get(slot);
        let seat = self.seats[usize::from(task.seat)]
            .as_mut()
            .expect("a seat stays while it is used");
        let namespace = *seat.drive.namespace().expect("asked before");
        let commands = self.rings.commands.as_mut().expect("made with the seat");
        let sender = Sender {
            handle: seat.handle.expect("an open file has one"),
            key: Key::Task(slot).encode(),
        };
        let request = &task.request;
        let offset = request.offset + task.done;
        let direction = if task.reads() {
            Direction::Read
        } else {
            Direction::Write
        };
        let transfer = |bytes| Command::transfer(&namespace, direction, offset, bytes);
        let left = task.left().min(seat.drive.info().transfer_bytes_max);
        let done = units::bytes_usize(task.done);
        match task.method {
            Method::Direct => {
                let length = units::bytes_usize(left);
                let list = &request.segments;
                let segments = |room: &mut List<'_>| {
                    list.for_each_part(done, length, |part| room.push(part));
                };
                commands.start_list(sender, slot, segments, transfer)
            }
            Method::Bounce => {
                let length = units::bytes_usize(left).min(self.buffers.bytes());
                let buffer = task.buffer.expect("acquired before");
                let segment = self.buffers.segment(buffer, length);
                if !task.reads() {
                    request.segments.copy_to(done, segment);
                }
                let bytes = units::bytes_u64(length);
                let started = commands.start(sender, transfer(bytes), segment);
                if started {
                    seat.counters.bounced_bytes += bytes;
                }
                started.then_some(bytes)
            }
            Method::Zeroes => {
                let bytes = left.min(ZEROES_BYTES);
                let segment = self.zeroes.segment(0, units::bytes_usize(bytes));
                let started = commands.start(sender, transfer(bytes), segment);
                started.then_some(bytes)
            }
            Method::Flush => {
                let flush = Command::flush(&namespace);
                commands.start_bare(sender, flush).then_some(0)
            }
            Method::Punch => {
                let bytes = namespace.zero_bytes(task.left());
                let may_unmap = request.operation == Operation::Discard;
                let zero = Command::zero(&namespace, offset, bytes, may_unmap);
                commands.start_bare(sender, zero).then_some(bytes)
            }
        }
    }

    /// Sends one command for a task and all that are joined to it. False when the ring is full.
    pub(super) fn send_joined(&mut self, head: u32, transfer: Transfer) -> bool {
        let task = self.tasks.get(head);
        let seat = self.seats[usize::from(task.seat)].as_ref();
        let seat = seat.expect("a seat stays while it is used");
        let namespace = *seat.drive.namespace().expect("asked before");
        let commands = self.rings.commands.as_mut().expect("made with the seat");
        let sender = Sender {
            handle: transfer.handle,
            key: transfer.key,
        };
        let lists = self.tasks.joined(head).map(|task| &task.request.segments);
        let segments = |room: &mut List<'_>| {
            for list in lists {
                list.as_slice().iter().for_each(|part| room.push(*part));
            }
        };
        let Transfer {
            direction, offset, ..
        } = transfer;
        let command = |bytes| Command::transfer(&namespace, direction, offset, bytes);
        let whole: u64 = self
            .tasks
            .joined(head)
            .map(|task| task.request.length)
            .sum();
        match commands.start_list(sender, head, segments, command) {
            Some(bytes) => {
                assert!(
                    bytes == whole,
                    "{bytes} of {whole} bytes went into one command"
                );
                true
            }
            None => false,
        }
    }
}
