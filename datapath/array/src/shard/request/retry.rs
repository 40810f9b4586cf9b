//! Pieces of reads that failed at a drive, or were given up: what is asked anew, and of whom.

use block::Status;
use units::{MemberIndex, Role, bytes_usize};

use super::super::Shard;
use crate::io::{Io, Trouble};

/// Blocks of a request that a drive could not read and that the owner shall reconstruct.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Retry {
    request: u32,
    first: u32,
    blocks: u32,
    member: MemberIndex,
    why: Why,
}

/// Why a piece is asked for anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It failed.
    Failed,
    /// It failed, and the drive is asked again for parts of it first, so that only what it has
    /// really lost is reconstructed.
    InParts,
    /// It did not fail, but was given up.
    Late,
}

impl Retry {
    pub(in crate::shard) fn late(
        request: u32,
        (first, blocks): (u32, u32),
        member: MemberIndex,
    ) -> Retry {
        Retry {
            request,
            first,
            blocks,
            member,
            why: Why::Late,
        }
    }
}

/// Bytes of the parts in which a failed read is tried again.
pub(in crate::shard) const PART_BYTES: u64 = 4 << 10;

impl Shard {
    /// A piece of a request could not be read.
    pub(super) fn retry(
        &mut self,
        request: u32,
        (first, blocks): (u32, u32),
        (member, status): (MemberIndex, Status),
    ) {
        let in_parts = status == Status::Media && self.bytes(blocks) > PART_BYTES;
        let why = if in_parts { Why::InParts } else { Why::Failed };
        self.retries.push_back(Retry {
            request,
            first,
            blocks,
            member,
            why,
        });
    }

    /// Reads that failed on a drive are tried again in parts; what fails then is sent to the owners
    /// of its stripes.
    pub(in crate::shard) fn retry_reads(&mut self, io: &mut impl Io) -> usize {
        let (mut moved, mut left) = (0, self.retries.len());
        while left > 0
            && let Some(&Retry {
                request,
                first,
                blocks,
                member,
                why,
            }) = self.retries.front()
        {
            left -= 1;
            let block = self.requests[request].start + u64::from(first);
            let (stripe, in_stripe) = self.geometry().locate(block);
            let role = self.geometry().role(stripe, member);
            let data_role = in_stripe / self.geometry().chunk_blocks();
            let source = self.direct_role(stripe, Role::from_at(bytes_usize(u64::from(data_role))));
            let whole = !self.meets_lost(request, (first, blocks));
            if why == Why::InParts && source == role && whole {
                if !self.retry_part(io) {
                    break;
                }
                // It may have parts left.
                left += 1;
                moved += 1;
                continue;
            }
            let kind = match why {
                Why::Late => Trouble::Late,
                Why::Failed | Why::InParts => Trouble::Failed,
            };
            if !self.send_work(request, (stripe, first, blocks), role.map(kind), io) {
                if self.map.owner(stripe).is_some() {
                    break;
                }
                // Its stripe goes to another owner: the others need not wait for that.
                self.retries.rotate_left(1);
                continue;
            }
            self.retries.pop_front();
            moved += 1;
        }
        moved
    }

    /// Asks the drive again for the next part of the read that failed; whether there was room.
    fn retry_part(&mut self, io: &mut impl Io) -> bool {
        if !self.can_retry(io) {
            return false;
        }
        let retry = self.retries.front_mut().expect("looked at");
        let Retry {
            request,
            first,
            blocks,
            member,
            ..
        } = *retry;
        let per_part = u32::try_from(PART_BYTES >> self.map.geometry.block_size().shift());
        let per_part = per_part.expect("at most eight blocks");
        let (stripe, in_stripe) = self
            .map
            .geometry
            .locate(self.requests[request].start + u64::from(first));
        let lane = in_stripe % self.map.geometry.chunk_blocks();
        let part = blocks.min(per_part - lane % per_part);
        retry.first += part;
        retry.blocks -= part;
        let last = retry.blocks == 0;
        let role = self
            .geometry()
            .role(stripe, member)
            .expect("it was read there");
        let piece = self.requests[request].begin_piece(first, part);
        self.issue_direct_part(request, (stripe, role, lane), piece, io);
        if last {
            self.retries.pop_front();
            // The parts stand for the piece that failed.
            self.requests[request].pending -= 1;
        }
        true
    }
}
