//! One drive, or a file, through a ring of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use block::{Completion, Cookie, Operation, Status};
use drive::{Drive, DriveRequest, Port, PortOptions};
use guest::Memory;
use memory::SegmentSlots;
use units::{DriveIndex, bytes_u64, bytes_usize};

use super::device::{Kind, Request};
use super::load::{Lane, Run};
use super::workloads::MIB;

/// Bytes of data that the slots of a drive share at the most.
const DATA_BYTES_MAX: u64 = 16 * MIB;

/// See the module.
pub(super) struct DriveLane {
    port: Port,
    memory: Arc<Memory>,
    lists: SegmentSlots,
    /// By slot: where its data is.
    data: Vec<u64>,
    done: Vec<Completion>,
}

/// The number of the only drive of a port.
const ONLY: DriveIndex = DriveIndex(0);

impl DriveLane {
    /// `joined_bytes_max`: see [`PortOptions::joined_bytes_max`].
    pub(super) fn new(
        drive: &Arc<Drive>,
        run: &Run,
        joined_bytes_max: u64,
    ) -> io::Result<DriveLane> {
        let slots = run.jobs * run.depth;
        let bytes = bytes_usize(run.work.bytes);
        let buffers = bytes_usize(DATA_BYTES_MAX / run.work.bytes).clamp(1, slots);
        let memory = Arc::new(Memory::new(buffers * (bytes + 4096) + (1 << 20))?);
        let places: Vec<u64> = (0..buffers).map(|_| memory.allocate(bytes, 4096)).collect();
        // Some drives make less of zeroes.
        let mut chance = 0x2545_F491_4F6C_DD1D_u64;
        let mut noise = vec![0; bytes];
        for place in &places {
            for word in noise.chunks_exact_mut(8) {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                word.copy_from_slice(&chance.to_le_bytes());
            }
            memory.write(*place, &noise);
        }
        let requests = u32::try_from(slots).unwrap_or(u32::MAX);
        let options = PortOptions {
            requests,
            joined_bytes_max,
            ..PortOptions::default()
        };
        let mut port = Port::new(options).map_err(io::Error::other)?;
        port.attach(ONLY, Arc::clone(drive))
            .map_err(io::Error::other)?;
        Ok(DriveLane {
            port,
            memory,
            lists: SegmentSlots::new(slots, 1),
            data: (0..slots).map(|slot| places[slot % buffers]).collect(),
            done: Vec::with_capacity(slots),
        })
    }
}

impl Lane for DriveLane {
    fn submit(&mut self, slot: usize, request: Request) {
        let (operation, length) = match request.kind {
            Kind::Read => (Operation::Read, bytes_u64(request.bytes)),
            Kind::Write => (Operation::Write, bytes_u64(request.bytes)),
            Kind::Flush => (Operation::Flush, 0),
        };
        let segment = self.memory.find(self.data[slot], bytes_u64(request.bytes));
        let segment = segment.expect("a slot's data");
        let segments = self.lists.lend(slot, |list| {
            if length > 0 {
                list.push(segment);
            }
        });
        let request = DriveRequest {
            drive: ONLY,
            operation,
            offset: request.offset,
            length,
            segments,
            cookie: Cookie(bytes_u64(slot)),
        };
        self.port
            .submit(request)
            .expect("it has room for all slots");
    }

    fn kick(&mut self) -> io::Result<()> {
        self.port.poll(&mut self.done);
        Ok(())
    }

    fn reap(&mut self) -> Option<(usize, u8)> {
        let Completion { cookie, status } = self.done.pop()?;
        let slot = bytes_usize(cookie.0);
        self.lists.take_back(slot);
        Some((slot, u8::from(status != Status::Ok)))
    }

    fn wait(&mut self, longest: Duration) -> io::Result<()> {
        self.port.wait(Some(longest));
        Ok(())
    }

    fn put(&self, slot: usize, bytes: &[u8]) {
        self.memory.write(self.data[slot], bytes);
    }

    fn get(&self, slot: usize, target: &mut [u8]) {
        let segment = self.memory.find(self.data[slot], bytes_u64(target.len()));
        segment.expect("a slot's data").copy_to_slice(target);
    }
}
