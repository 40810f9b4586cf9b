//! Where engines leave to the next one what they have begun: files in memory, one for each start of
//! an array. See docs/design/003-begun-writes.md.
//!
//! ```text
//! /dev/shm/garboard-UID/ARRAY.LIFE    what array::begun describes
//! /dev/shm/garboard-UID/ARRAY.of      a link to the state directory of the engine that made it
//! /dev/shm/garboard-UID/ARRAY.ns      a link that names the mounts which it saw
//! ```
//! Files of a dead engine whose state directory is gone are removed by the next engine that starts.

mod lasting;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use array::assembly::Assembly;
use array::format::{ArrayConfig, MemberRecord, MemberState};
use array::planted::{self, Fault};
use array::{
    Begun, BegunOf, BegunWrites, BlockMask, Doubt, Geometry, LostBlocks, Redo, Room, ToRedo,
    Unusable, Why,
};
use control::Answer;
use units::{Clock, MemberIndex, MonotonicClock, bytes_u64, bytes_usize};
use uuid::Uuid;

pub(crate) use self::lasting::Lasting;
use crate::Host;
use crate::error::of_io;
use crate::losses::{is_bad, redo_all, with_half_written};
use crate::state::Notice;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What an engine has left that was killed.
#[derive(Debug)]
pub(crate) struct BegunFile {
    file: File,
    writes: BegunWrites,
}

fn boot() -> io::Result<Uuid> {
    let text = std::fs::read_to_string(BOOT_ID)?;
    text.trim().parse().map_err(io::Error::other)
}

/// What shows that a drive was not away; 0 when it may have been since it was opened.
pub(crate) fn same_appearance(drive: &drive::Drive) -> u64 {
    let now = drive.appearance();
    if now == drive.info().appearance {
        now
    } else {
        0
    }
}

fn begun_of(config: &ArrayConfig) -> io::Result<BegunOf> {
    Ok(BegunOf {
        array: config.array,
        boot: boot()?,
        life: config.life(),
    })
}

/// What the last engine had begun, if it is there. An error when that cannot be told.
fn find_begun(
    lasting: &Lasting,
    object: &str,
    assembly: &Assembly,
) -> io::Result<Option<BegunFile>> {
    let config = &assembly.config;
    if config.clean || planted::is(Fault::BegunNotRedone) {
        return Ok(None);
    }
    let whose = match begun_of(config) {
        // Where boots have no names, no engine has left anything.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        whose => whose?,
    };
    let Some(file) = lasting.open(whose.array, whose.life)? else {
        return Ok(None);
    };
    let length = file.metadata()?.len();
    let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
    let known = (config, &assembly.superblock.geometry);
    match BegunWrites::read(read, length, &whose, known) {
        Ok(writes) => Ok(Some(BegunFile { file, writes })),
        Err(Unusable::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Err(unusable) => {
            tracing::warn!(event = "begun_unusable", object, error = %unusable,
                "what the last engine had begun is not known: as after a power failure");
            Ok(None)
        }
    }
}

/// What it means that a drive did not take what is written again.
fn judge(
    object: &str,
    assembly: &Assembly,
    (name, what): (&str, &str),
    source: &io::Error,
) -> Answer<()> {
    // A member that is being filled may lack a chunk that only the others can tell.
    let is_here = |(member, drive): (&MemberRecord, &Option<_>)| {
        drive.is_some() && member.state == MemberState::InSync
    };
    let mut members = assembly.config.members.iter().zip(&assembly.members);
    if members.all(is_here) {
        tracing::warn!(event = "begun_not_redone", object, drive = name, error = %source,
            "it does not take what the last engine had begun");
        return Ok(());
    }
    let failed = of_io(format!("{object}, drive {name}"), what, source);
    Err(failed.next("bring its missing drives, or take this one out, and start it again"))
}

/// An array, its drives by member, and which blocks nobody can tell.
type Redoing<'a> = (
    &'a str,
    &'a Assembly,
    &'a [Option<(String, Arc<drive::Drive>)>],
    &'a LostBlocks,
);

/// Writes parts again on the members that are here. Gives them without their bytes.
fn redo_parts(
    (object, assembly, drives, lost): Redoing<'_>,
    mut parts: Vec<Redo>,
    doubt: &mut Option<Doubt>,
) -> Answer<Vec<Redo>> {
    let refused = match redo_all(object, drives, (assembly, lost), &parts) {
        Ok(true) => None,
        Ok(false) => parts.first().map(|part| part.member),
        Err((member, source)) => {
            let what = "writing what the last engine had begun";
            let name = drives[member.at()].as_ref().map_or("", |(name, _)| name);
            judge(object, assembly, (name, what), &source)?;
            Some(member)
        }
    };
    if let Some(member) = refused {
        *doubt = doubt.or(Doubt::refused(member));
    }
    for part in &mut parts {
        part.bytes = Vec::new();
    }
    Ok(parts)
}

/// Reads what a member holds where a guest's memory was being written, and says which blocks: none
/// when it is not here, or lacks what was written since it was left out, and no bad ones.
fn read_half_written(
    assembly: &Assembly,
    (member, drive): (MemberIndex, Option<&(String, Arc<drive::Drive>)>),
    offset: u64,
    bytes: &mut [u8],
) -> io::Result<BlockMask> {
    let in_sync = assembly.config.members[member.at()].state == MemberState::InSync;
    let Some((_, drive)) = drive.filter(|_| in_sync) else {
        return Ok(0);
    };
    let offset = assembly.superblock.layout.data.offset + offset;
    if drive.read(offset, bytes).is_ok() {
        return Ok(BlockMask::MAX);
    }
    let size = bytes_usize(assembly.superblock.geometry.block_size().bytes());
    let mut told = 0;
    for (at, block) in bytes.chunks_exact_mut(size).enumerate() {
        let place = offset + bytes_u64(at * size);
        if drive.read(place, block).is_err() {
            if is_bad(drive, place, size) {
                continue;
            }
            // It was away for a moment.
            drive.read(place, block)?;
        }
        told |= 1 << at;
    }
    Ok(told)
}

/// When the last of the members' drives was locked, if that is known.
fn locked(drives: &[Option<(String, Arc<drive::Drive>)>]) -> Option<Duration> {
    let locked = drives.iter().flatten().map(|(_, it)| it.info().locked);
    let locked: Option<Vec<Duration>> = locked.collect();
    locked.and_then(|all| all.into_iter().max())
}

/// The appearance of a member's drive, by its drives; zero when nothing is known.
fn appearance_in(drives: &[Option<(String, Arc<drive::Drive>)>], member: MemberIndex) -> u64 {
    let drive = drives[member.at()].as_ref();
    drive.map_or(0, |(_, drive)| same_appearance(drive))
}

impl Host {
    /// Where the next engine will find what this one begins; `None` where it cannot be.
    pub(crate) fn begin_begun(
        &self,
        name: &str,
        config: &ArrayConfig,
        geometry: &Geometry,
        room: &Room,
    ) -> Option<Arc<Begun>> {
        let lasting = self.lasting.as_ref()?;
        if geometry.parity() == 0 {
            // Nothing of it can be torn apart.
            return None;
        }
        let made = begun_of(config);
        let made = made.and_then(|whose| {
            let space = self.engine.begun_space(room);
            lasting.create(&whose, space, self.engine.nodes())
        });
        let made = made.inspect(|begun| {
            let up = drive::since_boot().unwrap_or_default();
            begun.note_clock(up.saturating_sub(Duration::from_nanos(MonotonicClock.now().0)));
        });
        let made = made.inspect_err(|error| self.say_unkept(name, lasting, error));
        made.ok()
    }

    /// The array runs without memory that outlives this engine.
    fn say_unkept(&self, name: &str, lasting: &Lasting, error: &io::Error) {
        tracing::warn!(event = "begun_not_kept", array = name, error = %error,
            folder = %lasting.folder.display(),
            "the next engine will not know what this one had begun if it is killed: a member \
             that is lost at the same time may take blocks along that nobody was writing");
        let said = format!(
            "what is begun is not recorded in {} ({error}): a kill of the engine is to this array \
             what a power failure is",
            lasting.folder.display()
        );
        if let Some(entry) = self.state().arrays.get_mut(name) {
            entry.notices.push(Notice::Lasting(said));
        }
    }

    /// The array is stopped, or has started: then only what this life begins is left.
    pub(crate) fn end_begun(&self, array: Uuid, but: Option<u64>) {
        if let Some(lasting) = &self.lasting {
            lasting.remove(array, but);
        }
    }

    /// What the last engine had begun when it was killed, if that can be known. From here on no
    /// other start believes what it says of parity: this one is about to write and to flush, and
    /// may be killed, or give up, after a flush that has failed.
    pub(crate) fn take_begun(
        &self,
        object: &str,
        assembly: &Assembly,
    ) -> Answer<Option<BegunFile>> {
        let Some(lasting) = &self.lasting else {
            return Ok(None);
        };
        if assembly.superblock.geometry.parity() == 0 {
            // None is ever made.
            return Ok(None);
        }
        let found = find_begun(lasting, object, assembly);
        let found = found.and_then(|found| {
            if !planted::is(Fault::TrustOutlivesAStart) {
                lasting.withdraw(assembly.config.array)?;
            }
            Ok(found)
        });
        if let (Err(error), true) = (&found, assembly.config.clean) {
            tracing::warn!(event = "begun_unreadable", object, error = %error,
                folder = %lasting.folder.display(),
                "what engines have begun cannot be looked at; the array was stopped, and needs none \
                 of it");
            return Ok(None);
        }
        found.map_err(|source| {
            let what = "reading what the last engine had begun";
            let folder = lasting.folder.display();
            of_io(object.to_owned(), what, &source).next(format!(
                "see what {folder} needs, and start it again; without the files of this array \
                 there it starts as after a power failure"
            ))
        })
    }

    /// See [`control::view::ArrayView::torn_without`]. Nothing is torn where an engine that was
    /// killed has left what it had begun, and nothing speaks against that.
    pub(crate) fn torn_without(&self, assembly: &Assembly) -> Vec<u16> {
        let object = format!("array {}", assembly.config.name);
        let find = |lasting| find_begun(lasting, &object, assembly).ok().flatten();
        let vouches =
            |begun: BegunFile| assembly.is_resynced() && self.doubt_of(&begun, assembly).is_none();
        let vouched = || self.lasting.as_ref().and_then(find).is_some_and(vouches);
        if !assembly.would_tear() || vouched() {
            return Vec::new();
        }
        assembly.away().map(|member| member.0).collect()
    }

    /// Why the regions that were in use must be resynced, as far as it is known by now.
    pub(crate) fn doubt_of(&self, begun: &BegunFile, assembly: &Assembly) -> Option<Doubt> {
        let drives = self.member_drives(assembly);
        let appearance = |member: MemberIndex| appearance_in(&drives, member);
        begun.writes.doubt(assembly, locked(&drives), appearance)
    }

    /// Members that may have lost what the last engine had acknowledged, and why.
    pub(crate) fn lacking(
        &self,
        begun: &BegunFile,
        assembly: &Assembly,
    ) -> Vec<(MemberIndex, Why)> {
        let drives = self.member_drives(assembly);
        let appearance = |member: MemberIndex| appearance_in(&drives, member);
        begun.writes.lacking(assembly, locked(&drives), appearance)
    }

    /// Writes again what the last engine had begun when it was killed. Gives what was written,
    /// without the bytes, and what cannot be told of it.
    ///
    /// A drive that does not take it is left to the resync of the regions that were in use, and an
    /// error only when a member is not here or not filled: what that one holds there needs all the
    /// others.
    pub(crate) fn redo_begun(
        &self,
        object: &str,
        assembly: &Assembly,
        begun: &BegunFile,
        doubt: &mut Option<Doubt>,
    ) -> Answer<ToRedo> {
        let BegunFile { file, writes } = begun;
        let drives = self.member_drives(assembly);
        let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        let mut done = ToRedo::default();
        // What was half written comes first: should more be lost by it than can be, nothing of it
        // is changed.
        let (borrowed, kept): (Vec<usize>, Vec<usize>) =
            (0..writes.len()).partition(|&position| writes.is_borrowed(position));
        let mut mended = Vec::new();
        for position in borrowed {
            let mut fails = None;
            let read_member = |member: MemberIndex, offset, bytes: &mut [u8]| {
                let drive = drives[member.at()].as_ref();
                let read = read_half_written(assembly, (member, drive), offset, bytes);
                read.inspect_err(|_| fails = Some(member))
            };
            let redo = writes.redo(position, read, read_member);
            match (redo, fails) {
                (Ok(redo), _) => {
                    mended.extend(redo.redo);
                    done.lost.extend(redo.lost);
                }
                // Left to the resync, as a drive that takes nothing.
                (Err(source), Some(member)) => {
                    *doubt = doubt.or(Doubt::refused(member));
                    let name = drives[member.at()].as_ref().map_or("", |(name, _)| name);
                    judge(
                        object,
                        assembly,
                        (name, "reading what was half written"),
                        &source,
                    )?;
                }
                (Err(source), None) => {
                    return Err(of_io(object.to_owned(), "making parity anew", &source));
                }
            }
        }
        let lost = with_half_written(object, &assembly.config.lost, &done.lost)?;
        let parts = (object, assembly, &drives[..], &lost);
        done.redo = redo_parts(parts, mended, doubt)?;
        for position in kept {
            let nobody = |_, _, _: &mut [u8]| Ok(0);
            let redo = writes.redo(position, read, nobody);
            let what = "reading what the last engine had begun";
            let redo = redo.map_err(|source| of_io(object.to_owned(), what, &source))?;
            done.redo.extend(redo_parts(parts, redo.redo, doubt)?);
        }
        tracing::info!(
            event = "begun_redone",
            object,
            tickets = writes.len(),
            bytes = writes.bytes(),
            "what the last engine had begun is written again"
        );
        Ok(done)
    }

    /// Makes durable what was written again, and gives the members that are to be left out. One
    /// whose flush fails may have lost what was acknowledged. As long as `parity` agrees, the
    /// others still know it; a resync would make parity of what is left.
    pub(crate) fn flush_begun(
        &self,
        object: &str,
        assembly: &Assembly,
        parity: bool,
        doubt: &mut Option<Doubt>,
    ) -> Answer<Vec<MemberIndex>> {
        let mut failed = Vec::new();
        let mut rest = assembly.clone();
        for (position, drive) in self.member_drives(assembly).into_iter().enumerate() {
            let Some((name, drive)) = drive else { continue };
            if let Err(source) = drive.flush() {
                rest.members[position] = None;
                failed.push((MemberIndex::from_at(position), name, source));
            }
        }
        let others_know = parity && doubt.is_none() && rest.has_enough();
        if others_know && !planted::is(Fault::UnflushedBelieved) {
            for (member, name, source) in &failed {
                tracing::warn!(event = "member_unflushed", object, member = member.0, drive = name,
                    error = %source,
                    "it may have lost what was written to it, and the others have it; it is left out");
            }
            return Ok(failed.into_iter().map(|(member, ..)| member).collect());
        }
        for (member, name, source) in failed {
            *doubt = doubt.or(Doubt::refused(member));
            judge(object, assembly, (&name, "flushing it"), &source)?;
        }
        Ok(Vec::new())
    }

    /// By member: its drive, if it is here.
    pub(crate) fn member_drives(
        &self,
        assembly: &Assembly,
    ) -> Vec<Option<(String, Arc<drive::Drive>)>> {
        let members = 0..assembly.members.len();
        let drive = |position: usize| {
            let member = MemberIndex::from_at(position);
            let state = self.state();
            let entry = state.drive_at(assembly.members[member.at()]?)?;
            Some((entry.name.clone(), Arc::clone(&entry.drive)))
        };
        members.map(drive).collect()
    }
}
