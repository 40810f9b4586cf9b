//! Requests that the kernel works on: slots, and buffers for misaligned memory.

use std::io;

use block::Operation;
use memory::Segment;
use units::Instant;

use super::{DriveRequest, keys};
use crate::mapping::Mapping;

/// How a request is carried out. A request has at most one operation in the kernel at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Between the drive and the asker's memory.
    Direct,
    /// Through a buffer of ours, because the asker's memory is not aligned enough.
    Bounce,
    /// One `fdatasync`.
    Flush,
    /// One `fallocate`.
    Punch,
    /// By writing zeroes, because the drive cannot do better.
    Zeroes,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In one of the port's queues.
    Queued,
    /// The kernel has an operation of so many bytes.
    InKernel {
        /// Bytes of the operation.
        bytes: u64,
    },
}

/// A request in work.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) request: DriveRequest,
    pub(super) seat: u16,
    pub(super) method: Method,
    pub(super) stage: Stage,
    /// Bytes from the start that are through.
    pub(super) done: u64,
    pub(super) buffer: Option<u16>,
    /// The one that follows it in the same operation (`joined.rs`).
    pub(super) next: Option<u32>,
    /// Answers without progress.
    pub(super) tries: u16,
    /// Its operation names pinned memory.
    pub(super) pinned: bool,
    pub(super) begun: Instant,
}

impl Task {
    /// Bytes that are not through yet.
    pub(super) fn left(&self) -> u64 {
        self.request.length - self.done
    }

    pub(super) fn reads(&self) -> bool {
        self.request.operation == Operation::Read
    }
}

/// A fixed number of tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<u32>,
}

impl Tasks {
    pub(super) fn new(slots: usize) -> Tasks {
        Tasks {
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().map(keys::place).collect(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// # Panics
    /// When all slots are busy; `Port::room` is asked first.
    pub(super) fn acquire(&mut self, task: Task) -> u32 {
        let slot = self.free.pop().expect("room was asked for");
        self.slots[keys::at(slot)] = Some(task);
        slot
    }

    pub(super) fn release(&mut self, slot: u32) -> Task {
        let task = self.slots[keys::at(slot)].take();
        self.free.push(slot);
        task.expect("a slot is released once")
    }

    pub(super) fn get(&mut self, slot: u32) -> &mut Task {
        self.slots[keys::at(slot)]
            .as_mut()
            .expect("the slot is busy")
    }

    /// A task and those that share its operation, in order.
    pub(super) fn joined(&self, head: u32) -> impl Iterator<Item = &Task> {
        let get = |slot: u32| self.slots[keys::at(slot)].as_ref();
        std::iter::successors(get(head), move |task| task.next.and_then(get))
    }

    /// The slots of all tasks that `wanted` names. For the control path.
    pub(super) fn find(&self, wanted: impl Fn(&Task) -> bool) -> Vec<u32> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, task)| task.as_ref().is_some_and(&wanted))
            .map(|(slot, _)| keys::place(slot))
            .collect()
    }
}

/// Buffers for requests whose memory is not aligned enough.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Mapping,
    bytes: usize,
    free: Vec<u16>,
}

impl Buffers {
    pub(super) fn new(count: u16, bytes: usize) -> io::Result<Buffers> {
        Ok(Buffers {
            memory: Mapping::new(usize::from(count) * bytes)?,
            bytes,
            free: (0..count).rev().collect(),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn acquire(&mut self) -> Option<u16> {
        self.free.pop()
    }

    pub(super) fn release(&mut self, buffer: u16) {
        debug_assert!(!self.free.contains(&buffer));
        self.free.push(buffer);
    }

    pub(super) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The first `length` bytes of a buffer.
    pub(super) fn segment(&self, buffer: u16, length: usize) -> Segment {
        assert!(length <= self.bytes);
        self.memory
            .segment(usize::from(buffer) * self.bytes, length)
    }
}
