//! A simulated drive: what is durable, what its cache holds, and what is under way.

use std::collections::BTreeMap;

use array::MemberRequest;
use block::{Operation, Status};
use units::{ReactorIndex, bytes_usize};

use crate::random::Random;

/// A request that the drive has taken.
#[derive(Debug)]
struct Taken {
    reactor: ReactorIndex,
    request: MemberRequest,
    /// The bytes of a write, taken when it was submitted.
    bytes: Vec<u8>,
}

/// See the module. Bytes are kept in blocks of 512; blocks never written read as zeroes.
#[derive(Debug, Default)]
pub struct SimDrive {
    durable: BTreeMap<u64, [u8; 512]>,
    cache: BTreeMap<u64, [u8; 512]>,
    taken: Vec<Taken>,
    /// The drive answers nothing but `Gone`.
    pub gone: bool,
    /// Blocks that cannot be read until they are written.
    pub bad: std::collections::BTreeSet<u64>,
}

const BLOCK: u64 = 512;

impl SimDrive {
    /// Takes a request.
    pub fn submit(&mut self, reactor: ReactorIndex, request: MemberRequest) {
        let mut bytes = Vec::new();
        if request.operation == Operation::Write {
            bytes.resize(bytes_usize(request.length), 0);
            let mut done = 0;
            for segment in request.segments.as_slice() {
                segment.copy_to_slice(&mut bytes[done..done + segment.len()]);
                done += segment.len();
            }
            assert_eq!(done, bytes.len(), "a write carries what it names");
        }
        assert!(request.offset.is_multiple_of(BLOCK) && request.length.is_multiple_of(BLOCK));
        self.taken.push(Taken {
            reactor,
            request,
            bytes,
        });
    }

    /// How many requests are under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.taken.len()
    }

    /// Finishes one request, by chance.
    pub fn finish_one(
        &mut self,
        random: &mut Random,
    ) -> Option<(ReactorIndex, MemberRequest, Status)> {
        if self.taken.is_empty() {
            return None;
        }
        let Taken {
            reactor,
            request,
            bytes,
        } = self.taken.swap_remove(random.position(self.taken.len()));
        let status = self.carry_out(&request, &bytes);
        Some((reactor, request, status))
    }

    fn carry_out(&mut self, request: &MemberRequest, bytes: &[u8]) -> Status {
        if self.gone {
            return Status::Gone;
        }
        let blocks = request.offset / BLOCK..(request.offset + request.length) / BLOCK;
        match request.operation {
            Operation::Read => {
                if blocks.clone().any(|block| self.bad.contains(&block)) {
                    return Status::Media;
                }
                let mut content = Vec::with_capacity(bytes_usize(request.length));
                for block in blocks {
                    content.extend_from_slice(&self.block(block));
                }
                let mut done = 0;
                for segment in request.segments.as_slice() {
                    segment.copy_from_slice(&content[done..done + segment.len()]);
                    done += segment.len();
                }
                assert_eq!(done, content.len(), "a read carries what it names");
            }
            Operation::Write => {
                for (block, content) in blocks.zip(bytes.chunks_exact(512)) {
                    self.cache
                        .insert(block, content.try_into().expect("512 bytes"));
                    self.bad.remove(&block);
                }
            }
            Operation::WriteZeroes | Operation::Discard => {
                for block in blocks {
                    self.cache.insert(block, [0; 512]);
                    self.bad.remove(&block);
                }
            }
            Operation::Flush => {
                let mut cache = std::mem::take(&mut self.cache);
                self.durable.append(&mut cache);
            }
        }
        Status::Ok
    }

    /// What a read of the block finds now.
    #[must_use]
    pub fn block(&self, block: u64) -> [u8; 512] {
        let cached = self.cache.get(&block).or_else(|| self.durable.get(&block));
        cached.copied().unwrap_or([0; 512])
    }

    /// The process dies: what was taken still lands, by chance in part.
    pub fn process_dies(&mut self, random: &mut Random) {
        let taken = std::mem::take(&mut self.taken);
        for Taken { request, bytes, .. } in taken {
            if request.operation != Operation::Read && random.happens(700) {
                self.carry_out(&request, &bytes);
            }
        }
    }

    /// Power fails: any part of the cache and of what was taken is stored, block by block.
    pub fn power_fails(&mut self, random: &mut Random) {
        let cache = std::mem::take(&mut self.cache);
        for (block, content) in cache {
            if random.happens(500) {
                self.durable.insert(block, content);
            }
        }
        for Taken { request, bytes, .. } in std::mem::take(&mut self.taken) {
            if request.operation != Operation::Write {
                continue;
            }
            for (position, content) in bytes.chunks_exact(512).enumerate() {
                if random.happens(400) {
                    let block = request.offset / BLOCK + units::bytes_u64(position);
                    self.durable
                        .insert(block, content.try_into().expect("512 bytes"));
                }
            }
        }
    }
}
