//! Lost blocks as people see them, and what a start does where one takes no writes.

use std::ops::Range;
use std::sync::Arc;

use array::assembly::Assembly;
use array::format::{ArrayConfig, ExtentSpace, SUPERBLOCK_BYTES, Superblock, VolumeRecord};
use array::{Event, LostBlocks, Pass, Redo, RefusedRedo, agree_with};
use control::view::{LostRun, LostView};
use control::{Answer, ErrorKind};
use units::{ArrayIndex, MemberIndex, bytes_u64, bytes_usize};

use crate::Host;
use crate::error::error;
use crate::state::{ArrayEntry, Notice};

/// What nobody can tell any more of an array, if there is something.
pub(crate) fn view(entry: &ArrayEntry, config: &ArrayConfig) -> Option<LostView> {
    if config.lost.is_empty() {
        return None;
    }
    let space = entry.superblock.extents();
    let block_bytes = space.block_bytes();
    let places = config.lost.runs().flat_map(|run| cut(run, &space));
    let run = |(first, count): (u64, u64)| {
        let place = place_of(first, config, &space);
        let (volume, offset) = match place {
            Some((volume, offset)) => (Some(volume.name.clone()), offset),
            None => (None, first),
        };
        LostRun {
            volume,
            offset_bytes: offset * block_bytes,
            bytes: count * block_bytes,
        }
    };
    Some(LostView {
        blocks: config.lost.count(),
        bytes: config.lost.count() * block_bytes,
        runs: places.map(run).collect(),
    })
}

/// Blocks one after another, cut where an extent ends.
fn cut((first, count): (u64, u64), space: &ExtentSpace) -> impl Iterator<Item = (u64, u64)> {
    let (each, end) = (space.extent_blocks(), first + count);
    let mut from = first;
    std::iter::from_fn(move || {
        let start = from;
        from = ((start / each + 1) * each).min(end);
        (start < end).then_some((start, from - start))
    })
}

/// The volume that a block of the array belongs to, and its place there, in blocks.
fn place_of<'c>(
    block: u64,
    config: &'c ArrayConfig,
    space: &ExtentSpace,
) -> Option<(&'c VolumeRecord, u64)> {
    let (extent, within) = (block / space.extent_blocks(), block % space.extent_blocks());
    config.volumes.iter().find_map(|volume| {
        let mut before = 0;
        for run in &volume.extents {
            if (run.first..run.first + run.count).contains(&extent) {
                let at = before + (extent - run.first);
                return Some((volume, at * space.extent_blocks() + within));
            }
            before += run.count;
        }
        None
    })
}

/// What people call a pass.
pub(crate) fn pass_word(pass: Pass) -> &'static str {
    match pass {
        Pass::Resync => "resync",
        Pass::Rebuild => "rebuild",
        Pass::Scrub => "scrub",
    }
}

/// Why a pass does not go on that meets more lost blocks than may be listed, and what to do.
pub(crate) fn way_out_of_losses(name: &str, pass: Pass) -> String {
    let pass = pass_word(pass);
    format!(
        "blocks are lost for which the list of lost blocks has no room; write those anew that \
         `garboard array show {name}` lists, then `garboard array {pass} {name} start`"
    )
}

impl Host {
    /// Writes into the log what was given up, and what is not lost any more.
    pub(crate) fn log_losses(&self, (name, index): (&str, ArrayIndex), event: &Event) {
        let is_full = matches!(event, Event::LostListFull { .. });
        if let Some(entry) = self.state().arrays.get_mut(name) {
            let is_other = |notice: &Notice| !matches!(notice, Notice::LostListFull);
            entry.notices.retain(is_other);
            let full = is_full.then_some(Notice::LostListFull);
            entry.notices.extend(full);
        }
        if let Event::LostListFull { first } = event {
            let state = self.engine.array_state(index);
            let due = state.and_then(|state| state.pass);
            let pass = due.map_or(Pass::Rebuild, |due| due.pass);
            tracing::error!(
                event = "lost_list_full",
                array = name,
                first,
                "the pass stops here: {}",
                way_out_of_losses(name, pass)
            );
        } else if let Event::BlocksLost {
            first,
            blocks,
            total,
        } = event
        {
            tracing::error!(
                event = "blocks_lost",
                array = name,
                first,
                blocks,
                total,
                "members could not read them and the others cannot tell: reads of them fail until \
                 they are written; `garboard array show` says where they are; write them again, or \
                 restore what they belong to from a backup"
            );
        } else if let Event::NotGivenUp { first, member } = event {
            tracing::error!(
                event = "blocks_not_given_up",
                array = name,
                first,
                member = member.0,
                "more members cannot read them than there is parity, but this one is out and may \
                 have them: the pass stops here; bring it back, or replace it"
            );
        } else if let Event::BlocksHealed { total } = event {
            tracing::info!(
                event = "blocks_healed",
                array = name,
                total,
                "lost blocks were written anew"
            );
        }
    }
}

/// The list of lost blocks with what guests were writing from their own memory, as far as a member
/// that had it is not here, or cannot read it. Refused when it has no room for that.
pub(crate) fn with_half_written(
    object: &str,
    listed: &LostBlocks,
    lost: &[Range<u64>],
) -> Answer<LostBlocks> {
    let mut all = listed.clone();
    lost.iter().for_each(|range| all.add(range.clone()));
    if all.fits() {
        return Ok(all);
    }
    let text = "when the last engine was killed its guests were writing more from their own memory, \
                to members that are not here or blocks that cannot be read, than its list of lost \
                blocks has room for";
    let refused = error(ErrorKind::Degraded, object.to_owned(), text);
    Err(refused.next("bring the missing members back, and start it again"))
}

/// The record of a start says so, and the log.
pub(crate) fn give_up_half_written(name: &str, next: &mut ArrayConfig, lost: &[Range<u64>]) {
    if lost.is_empty() {
        return;
    }
    lost.iter().for_each(|range| next.lost.add(range.clone()));
    tracing::error!(
        event = "blocks_half_written",
        array = name,
        total = next.lost.count(),
        "guests were writing these blocks from their own memory when the last engine was killed, \
         and a member that had them is not here, or cannot read them: reads of them fail until \
         they are written, which guests that are still there do by themselves; `garboard array \
         show` says where they are"
    );
}

/// Whether a drive that is there can read this as little as it could write it. Drives that vanish
/// answer with plain I/O errors, too.
pub(crate) fn is_bad(drive: &drive::Drive, offset: u64, length: usize) -> bool {
    let can_read = |offset, length| drive.read(offset, &mut vec![0; length]).is_ok();
    let is_there = || {
        let mut heads = Superblock::head_offsets().into_iter();
        heads.any(|head| can_read(head, SUPERBLOCK_BYTES))
    };
    is_there() && !can_read(offset, length) && is_there()
}

/// What becomes of what is done again at a start: whether nothing was left out, or which member did
/// not take it.
pub(crate) type RedoResult = Result<bool, (MemberIndex, std::io::Error)>;

/// Writes what is to be done again at a start, on the members that are here.
///
/// A bad block of which nobody can tell what it held may take no writes either: that loses nothing,
/// and is no reason not to start. One that can be read is no such block: what it holds would be
/// used. So parity is changed to that, as it is while the array runs.
pub(crate) fn redo_all(
    object: &str,
    drives: &[Option<(String, Arc<drive::Drive>)>],
    (assembly, lost): (&Assembly, &LostBlocks),
    parts: &[Redo],
) -> RedoResult {
    let superblock = &assembly.superblock;
    let mut refused = Refused::default();
    for part in parts {
        let Some(drive) = &drives[part.member.at()] else {
            continue;
        };
        if let Err(source) = redo_part(object, drive, (superblock, lost), part, &mut refused) {
            // The others are written all the same: a resync may have to do with that.
            refused.fatal.get_or_insert((part.member, source));
        }
    }
    if let Some(fatal) = refused.fatal {
        return Err(fatal);
    }
    let Some((member, source)) = refused.first else {
        return Ok(!refused.left_out);
    };
    let refused = refused.parts;
    let counts = |member, stripe| assembly.counts(member, stripe);
    let agrees = agree_with(&superblock.geometry, parts, &refused, counts);
    let Some(agrees) = agrees.map_err(|source| (member, source))? else {
        return Err((member, source));
    };
    for part in agrees {
        if let Some((_, drive)) = &drives[part.member.at()] {
            let written = drive.write(superblock.layout.data.offset + part.offset, &part.bytes);
            written.map_err(|source| (part.member, source))?;
        }
    }
    for block in &refused {
        let drive = drives[block.member.at()].as_ref();
        tracing::error!(
            event = "redo_refused",
            object,
            drive = drive.map_or("-", |(name, _)| name),
            offset = block.offset,
            bytes = block.bytes.len(),
            "it does not take what was being written when the last engine ended, and can be read: \
             it keeps what it holds there, and parity agrees; replace it"
        );
    }
    Ok(false)
}

/// What did not go well of what was done again.
#[derive(Default)]
struct Refused {
    /// Bad blocks were left out that hold nothing anybody could use.
    left_out: bool,
    /// Blocks that can be read and do not take what is written, and the first error.
    parts: Vec<RefusedRedo>,
    first: Option<(MemberIndex, std::io::Error)>,
    /// Why the start cannot go on.
    fatal: Option<(MemberIndex, std::io::Error)>,
}

/// Whether a drive takes writes at all, where nobody reads.
pub(crate) fn takes_others(drive: &drive::Drive, superblock: &Superblock) -> bool {
    let trial = superblock.layout.bad_ranges.offset;
    drive.write(trial, &[0; SUPERBLOCK_BYTES]).is_ok()
}

pub(crate) fn is_full(source: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = [FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull];
    kinds.contains(&source.kind())
}

/// Writes a part of what is to be done again.
fn redo_part(
    object: &str,
    (name, drive): &(String, Arc<drive::Drive>),
    (superblock, lost): (&Superblock, &LostBlocks),
    part: &Redo,
    refused: &mut Refused,
) -> std::io::Result<()> {
    let data = superblock.layout.data.offset;
    let Err(source) = drive.write(data + part.offset, &part.bytes) else {
        return Ok(());
    };
    if is_full(&source) {
        return Err(source);
    }
    let shift = superblock.geometry.block_size().shift();
    let first = part.offset >> shift;
    let blocks = part.bytes.chunks_exact(bytes_usize(1 << shift));
    for (block, bytes) in (first..).zip(blocks) {
        let offset = data + (block << shift);
        let Err(source) = drive.write(offset, bytes) else {
            continue;
        };
        let mut holds = vec![0; bytes.len()];
        if drive.read(offset, &mut holds).is_ok() {
            // It may have been away for a moment, or has it already.
            if holds == bytes || drive.write(offset, bytes).is_ok() {
                continue;
            }
            if !takes_others(drive, superblock) {
                return Err(source);
            }
            refused.first.get_or_insert((part.member, source));
            refused.parts.push(RefusedRedo {
                member: part.member,
                offset: block << shift,
                bytes: bytes.to_vec(),
                holds,
            });
            continue;
        }
        let is_bad = || is_bad(drive, offset, bytes.len());
        if !lost.may_be_left_out(&superblock.geometry, (part.member, block), is_bad) {
            return Err(source);
        }
        let written = bytes_u64(bytes.len());
        tracing::warn!(event = "lost_block_not_written", object, drive = name, error = %source,
            member_block = block, bytes = written,
            "a bad block takes no writes; what it held is lost already");
        refused.left_out = true;
    }
    Ok(())
}
