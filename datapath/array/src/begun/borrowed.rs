//! Rows whose data went to the drives from a guest's memory, which the next engine cannot see.
//!
//! All data of such rows was being written, so each block holds what it held before or what was to
//! be written, and no other block hangs on their parity. It is made anew of what the members have.
//! What a member had that is not here, or cannot read it, cannot be told: nothing says whether it
//! was old or new, and parity agrees with neither. Such blocks are lost until they are written,
//! which a guest that is still there does as soon as it is served again, and parity is made as if
//! they were zeroes. Nothing is written in their place: a start that is repeated would take that
//! for what the member had, and the list of lost blocks is durable only with the first record. Of
//! copies any one will do, block by block.

use std::io;

use memory::pool::BUFFER_ALIGNMENT;
use memory::{Backing, Buffer, Pages, Pool, Segment};
use parity::Code;
use units::limits::LARGE_BUFFER_BYTES;
use units::{MemberIndex, Role, RoleSet, bytes_usize};

use super::read::{Entry, ToRedo};
use crate::geometry::Geometry;
use crate::log::Redo;
use crate::losses::Rows;
use crate::planted::{self, Fault};

/// Blocks of a chunk, the first in bit 0.
pub type BlockMask = u128;
const _: () = assert!(LARGE_BUFFER_BYTES / 512 <= 128, "a bit for each block");

/// What was read of one chunk: zeroes in blocks that could not be told.
struct Chunk {
    role: Role,
    bytes: Vec<u8>,
    told: BlockMask,
}

/// The rows of such an entry.
struct Torn<'a> {
    geometry: &'a Geometry,
    entry: &'a Entry,
    lane: u32,
    lanes: u32,
}

impl Torn<'_> {
    /// Bytes of a block.
    fn block(&self) -> usize {
        bytes_usize(self.geometry.block_size().bytes())
    }

    /// All blocks of a chunk.
    fn all(&self) -> BlockMask {
        let lanes = 1_u128.checked_shl(self.lanes);
        lanes.map_or(BlockMask::MAX, |end| end - 1)
    }

    /// Where so many blocks after the first are on a member.
    fn offset(&self, blocks: u32) -> u64 {
        let block = self.geometry.member_block(self.entry.stripe);
        let block = block + u64::from(self.lane + blocks);
        block << self.geometry.block_size().shift()
    }

    fn read(
        &self,
        role: Role,
        mut read_member: impl FnMut(MemberIndex, u64, &mut [u8]) -> io::Result<BlockMask>,
    ) -> io::Result<Chunk> {
        let blocks = usize::try_from(self.lanes).expect("few");
        let mut bytes = vec![0; blocks * self.block()];
        let member = self.geometry.member(self.entry.stripe, role);
        let told = read_member(member, self.offset(0), &mut bytes)? & self.all();
        for (at, block) in bytes.chunks_exact_mut(self.block()).enumerate() {
            if told >> at & 1 == 0 {
                block.fill(0);
            }
        }
        Ok(Chunk { role, bytes, told })
    }

    fn write(&self, role: Role, blocks: u32, bytes: Vec<u8>) -> Redo {
        Redo {
            member: self.geometry.member(self.entry.stripe, role),
            offset: self.offset(blocks),
            bytes,
        }
    }

    /// Runs of the blocks of a mask: the first and how many.
    fn runs(&self, mask: BlockMask) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for at in (0..self.lanes).filter(|at| mask >> at & 1 == 1) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == at => *count += 1,
                Some(_) | None => runs.push((at, 1)),
            }
        }
        runs
    }

    /// Nobody can tell the other blocks of a data role.
    fn lose(&self, role: Role, told: BlockMask, done: &mut ToRedo) {
        if planted::is(Fault::BorrowedBelieved) {
            return;
        }
        for (first, count) in self.runs(self.all() & !told) {
            let rows = Rows {
                stripe: self.entry.stripe,
                start: self.lane + first,
                end: self.lane + first + count,
                roles: RoleSet::one(role),
            };
            done.lost.extend(rows.blocks(self.geometry));
        }
    }
}

/// What makes the rows of such an entry agree.
pub(super) fn mend(
    entry: &Entry,
    geometry: &Geometry,
    mut read_member: impl FnMut(MemberIndex, u64, &mut [u8]) -> io::Result<BlockMask>,
) -> io::Result<ToRedo> {
    if planted::is(Fault::BorrowedNotMended) {
        return Ok(ToRedo::default());
    }
    let (lane, lanes, roles) = entry.bands[0];
    let torn = Torn {
        geometry,
        entry,
        lane,
        lanes,
    };
    let copies = geometry.data() == 1;
    let sources = if copies { roles } else { geometry.data_roles() };
    let chunks = sources.iter().map(|role| torn.read(role, &mut read_member));
    let chunks = chunks.collect::<io::Result<Vec<Chunk>>>()?;
    if copies {
        Ok(mend_copies(&torn, &chunks))
    } else {
        mend_parity(&torn, &chunks)
    }
}

fn mend_copies(torn: &Torn<'_>, copies: &[Chunk]) -> ToRedo {
    let size = torn.block();
    let block = |bytes: &[u8], at: u32| {
        let first = usize::try_from(at).expect("few") * size;
        bytes[first..first + size].to_vec()
    };
    let holder = |at: u32| copies.iter().find(|copy| copy.told >> at & 1 == 1);
    let mut done = ToRedo::default();
    let mut told = 0;
    for at in 0..torn.lanes {
        let Some(holder) = holder(at) else {
            continue;
        };
        told |= 1 << at;
        let content = block(&holder.bytes, at);
        let differs = |copy: &&Chunk| {
            let told = copy.told >> at & 1 == 1;
            !told || block(&copy.bytes, at) != content
        };
        for copy in copies.iter().filter(differs) {
            done.redo.push(torn.write(copy.role, at, content.clone()));
        }
    }
    torn.lose(Role(0), told, &mut done);
    done
}

fn mend_parity(torn: &Torn<'_>, data: &[Chunk]) -> io::Result<ToRedo> {
    let mut done = ToRedo::default();
    let parity = generate(torn.geometry, data)?;
    let parts = torn.geometry.parity_roles().iter().zip(parity);
    let parts = parts.map(|(role, bytes)| torn.write(role, 0, bytes));
    done.redo = parts.collect();
    for chunk in data {
        torn.lose(chunk.role, chunk.told, &mut done);
    }
    Ok(done)
}

/// The parity chunks that go with these data chunks.
fn generate(geometry: &Geometry, data: &[Chunk]) -> io::Result<Vec<Vec<u8>>> {
    let (k, m) = (geometry.data(), geometry.parity());
    let length = data[0].bytes.len();
    let whole = length.next_multiple_of(BUFFER_ALIGNMENT);
    let mut pool = Pool::new(k + m, whole, Backing::Anonymous(Pages::Plain))?;
    let buffers = (0..k + m).map(|_| pool.acquire().expect("as many"));
    let buffers: Vec<Buffer> = buffers.collect();
    let parts = buffers.iter().map(|one| pool.segment(one).part(0, length));
    let parts: Vec<Segment> = parts.collect();
    for (part, chunk) in parts.iter().zip(data) {
        part.copy_from_slice(&chunk.bytes);
    }
    let code = Code::new(k, m).map_err(io::Error::other)?;
    code.generate(&parts[..k], &parts[k..]);
    let mut made = vec![vec![0; length]; m];
    for (part, bytes) in parts[k..].iter().zip(&mut made) {
        part.copy_to_slice(bytes);
    }
    buffers.into_iter().for_each(|one| pool.release(one));
    Ok(made)
}
