//! What a drive refuses of what a start does again: parity goes with what it holds instead, as it
//! does when a drive refuses a write while the array runs (`shard/ticket/refused.rs`).

use std::collections::BTreeMap;
use std::io;

use memory::{Backing, Pages, Pool};
use parity::Code;
use units::{MemberIndex, Role, StripeIndex, bytes_u64, bytes_usize};

use super::Redo;
use crate::geometry::Geometry;

/// A block that a drive did not take, and can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRedo {
    /// On which member.
    pub member: MemberIndex,
    /// Where, in bytes from the start of its data area.
    pub offset: u64,
    /// What was to be written there.
    pub bytes: Vec<u8>,
    /// What it holds.
    pub holds: Vec<u8>,
}

/// The last that is done again in a block, if anything is.
fn last(redo: &[Redo], member: MemberIndex, offset: u64, length: usize) -> Option<Vec<u8>> {
    let part = redo.iter().rev().find(|part| {
        let end = part.offset + bytes_u64(part.bytes.len());
        part.member == member && (part.offset..end).contains(&offset)
    })?;
    let from = bytes_usize(offset - part.offset);
    Some(part.bytes.get(from..from + length)?.to_vec())
}

/// What is to be written after all of `redo` so that its rows agree with what drives hold that have
/// refused a part of it. `None` where that cannot be told: parity was refused, or what goes with
/// the block is not among what is done again. `counts` tells whether a member does for a stripe:
/// what is to be filled there anyway need not agree.
///
/// # Errors
/// When the host refuses the memory.
pub fn agree_with(
    geometry: &Geometry,
    redo: &[Redo],
    refused: &[RefusedRedo],
    counts: impl Fn(MemberIndex, StripeIndex) -> bool,
) -> io::Result<Option<Vec<Redo>>> {
    let data = geometry.data();
    let shift = geometry.block_size().shift();
    let size = bytes_usize(geometry.block_size().bytes());
    let mut changed: BTreeMap<(MemberIndex, u64), Vec<u8>> = BTreeMap::new();
    for (at, block) in refused.iter().enumerate() {
        let place = |it: &RefusedRedo| (it.member, it.offset);
        if refused[..at].iter().any(|it| place(it) == place(block)) {
            // Of two that were to be written there, which one parity says is not told.
            return Ok(None);
        }
        let stripe = geometry.stripe_at(block.member, block.offset >> shift);
        let Some(role) = geometry.role(stripe, block.member) else {
            return Ok(None);
        };
        if !counts(block.member, stripe) {
            // What it should hold is computed from the others, as it was written there.
            continue;
        }
        if role.at() >= data && data > 1 {
            return Ok(None);
        }
        let copies = data == 1;
        let others = if copies {
            let all = geometry.data_roles().union(geometry.parity_roles());
            all.without(units::RoleSet::one(role))
        } else {
            geometry.parity_roles()
        };
        for other in others {
            let member = geometry.member(stripe, other);
            if !counts(member, stripe) {
                continue;
            }
            let known = changed.remove(&(member, block.offset));
            let Some(before) = known.or_else(|| last(redo, member, block.offset, size)) else {
                return Ok(None);
            };
            if refused.iter().any(|it| place(it) == (member, block.offset)) {
                return Ok(None);
            }
            let now = if copies {
                block.holds.clone()
            } else {
                changed_parity(geometry, (role, other), block, &before)?
            };
            changed.insert((member, block.offset), now);
        }
    }
    let redo = |((member, offset), bytes)| Redo {
        member,
        offset,
        bytes,
    };
    Ok(Some(changed.into_iter().map(redo).collect()))
}

fn changed_parity(
    geometry: &Geometry,
    (role, parity): (Role, Role),
    block: &RefusedRedo,
    before: &[u8],
) -> io::Result<Vec<u8>> {
    let length = before.len();
    let mut pool = Pool::new(
        3,
        length.next_multiple_of(4096),
        Backing::Anonymous(Pages::Plain),
    )?;
    let buffers = [(); 3].map(|()| pool.acquire().expect("as many"));
    let [old, new, target] = [0, 1, 2].map(|at| pool.segment(&buffers[at]).part(0, length));
    old.copy_from_slice(&block.bytes);
    new.copy_from_slice(&block.holds);
    target.copy_from_slice(before);
    let code = Code::new(geometry.data(), geometry.parity()).map_err(io::Error::other)?;
    let row = [(parity.at() - geometry.data(), target)];
    code.delta(role.at(), old, new, &row);
    let mut after = vec![0; length];
    target.copy_to_slice(&mut after);
    buffers.into_iter().for_each(|buffer| pool.release(buffer));
    Ok(after)
}
