//! Runs inside a virtual machine: a drive that the array cannot do without refuses to write some
//! blocks. Writes may fail, and what was being written by those may be old or new, or fail to be
//! read; all else must be right.

use std::io;
use std::path::Path;

use model::{Read, Volume, Write};

use crate::device::{DEPTH, Device, Kind, REQUEST_BYTES};
use crate::random::Random;

/// The unit in which it is noted what may have failed: at least a block of the array.
const BLOCK: usize = 4096;
/// Bytes in which half of the requests are.
const NEAR: usize = 8 << 20;
/// Longest of the random requests.
const LENGTH_MAX: usize = 64 << 10;

/// What is under way in a slot.
enum Asked {
    Write(Write, usize, usize),
    Read(Read, usize, usize),
}

struct Comparer {
    device: Device,
    oracle: Volume,
    random: Random,
    asked: Vec<Option<Asked>>,
    /// By block: a write of it has failed.
    failed: Vec<bool>,
    /// Writes and reads that have failed.
    failures: [usize; 2],
}

/// Fills the volume at `socket`, asks for `requests` things, and compares everything. What was
/// found, in a line.
pub(crate) fn compare(socket: &Path, seed: u64, requests: usize) -> Result<String, String> {
    let io = |error: io::Error| error.to_string();
    let device = Device::connect(socket).map_err(io)?;
    let bytes = device.bytes().map_err(io)?;
    let mut comparer = Comparer {
        device,
        oracle: Volume::new(bytes, 512),
        random: Random::new(seed),
        asked: (0..DEPTH).map(|_| None).collect(),
        failed: vec![false; bytes / BLOCK],
        failures: [0; 2],
    };
    for offset in (0..bytes).step_by(REQUEST_BYTES) {
        comparer.write(offset, REQUEST_BYTES.min(bytes - offset))?;
    }
    for _ in 0..requests {
        let length = BLOCK * (1 + comparer.random.below(LENGTH_MAX / BLOCK));
        // Half of it near what is refused.
        let range = [NEAR.min(bytes), bytes][comparer.random.below(2)];
        let offset = BLOCK * comparer.random.below((range - length) / BLOCK + 1);
        if comparer.random.below(3) == 0 {
            comparer.read(offset, length)?;
        } else {
            comparer.write(offset, length)?;
        }
    }
    comparer.drain()?;
    for offset in (0..bytes).step_by(BLOCK) {
        comparer.read(offset, BLOCK)?;
    }
    comparer.drain()?;
    let failed = comparer.failed.iter().filter(|failed| **failed).count();
    match comparer.failures {
        [0, _] => Err("no write has met what is refused".to_owned()),
        [writes, reads] => Ok(format!(
            "{writes} writes failed, in {failed} blocks of {}, and {reads} reads; every byte right",
            comparer.failed.len()
        )),
    }
}

impl Comparer {
    fn slot(&mut self) -> Result<usize, String> {
        loop {
            if let Some(slot) = self.device.free() {
                return Ok(slot);
            }
            self.answer()?;
        }
    }

    fn write(&mut self, offset: usize, length: usize) -> Result<(), String> {
        let slot = self.slot()?;
        let mut bytes = vec![0; length];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_le_bytes());
        }
        let write = self.oracle.begin_write(offset, &bytes);
        self.asked[slot] = Some(Asked::Write(write, offset, length));
        let submitted = self
            .device
            .submit(slot, (Kind::Write, offset, length), &bytes);
        submitted.map_err(|error| error.to_string())
    }

    fn read(&mut self, offset: usize, length: usize) -> Result<(), String> {
        let slot = self.slot()?;
        let read = self.oracle.begin_read(offset);
        self.asked[slot] = Some(Asked::Read(read, offset, length));
        let submitted = self.device.submit(slot, (Kind::Read, offset, length), &[]);
        submitted.map_err(|error| error.to_string())
    }

    fn drain(&mut self) -> Result<(), String> {
        while self.asked.iter().any(Option::is_some) {
            self.answer()?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(), String> {
        let (slot, well) = self.device.wait_any();
        let blocks = |offset: usize, length: usize| offset / BLOCK..(offset + length) / BLOCK;
        match self.asked[slot].take().expect("it is asked") {
            Asked::Write(write, ..) if well => self.oracle.finish_write(write),
            Asked::Write(write, offset, length) => {
                self.oracle.fail_write(write);
                self.failed[blocks(offset, length)].fill(true);
                self.failures[0] += 1;
            }
            Asked::Read(read, ..) if well => {
                let found = self.device.data(slot);
                let judged = self.oracle.finish_read(read, &found);
                judged.map_err(|wrong| wrong.to_string())?;
            }
            Asked::Read(read, offset, length) => {
                // What was given up with a write that fails, before or after that is answered.
                let under_way = self.asked.iter().flatten().any(|asked| match asked {
                    Asked::Write(_, at, bytes) => *at < offset + length && offset < at + bytes,
                    Asked::Read(..) => false,
                });
                if !under_way && !self.failed[blocks(offset, length)].contains(&true) {
                    return Err(format!("a read at {offset} has failed"));
                }
                self.oracle.abandon_read(&read);
                self.failures[1] += 1;
            }
        }
        Ok(())
    }
}
