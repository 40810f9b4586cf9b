//! Where engines leave to the next one what they have begun: files in memory, one for each start of
//! an array. See docs/design/003-begun-writes.md.
//!
//! ```text
//! /dev/shm/garboard-UID/ARRAY.LIFE    what array::begun describes
//! /dev/shm/garboard-UID/ARRAY.of      a link to the state directory of the engine that made it
//! /dev/shm/garboard-UID/flushes       how many flushes failed, whoever asked for them
//! ```
//! Files of an engine whose state directory is gone are removed by the next engine that starts.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::assembly::Assembly;
use array::format::{ArrayConfig, MemberRecord, MemberState};
use array::planted::{self, Fault};
use array::{Begun, BegunOf, BegunSpace, BegunWrites, Doubt, Geometry, Redo, Unusable};
use control::Answer;
use memory::LastingCount;
use rustix::fs::{FallocateFlags, OFlags};
use units::MemberIndex;
use uuid::Uuid;

use crate::Host;
use crate::error::of_io;
use crate::losses::redo_part;
use crate::state::Notice;

/// The most of what the file system has free that one array takes, as its n-th part.
const SHARE: u64 = 8;
/// The file that counts failed flushes, and its size: a page of any machine.
const FLUSHES: &str = "flushes";
const FLUSHES_BYTES: u64 = 64 << 10;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The folder of the files, and whose engine this is.
#[derive(Clone, Debug)]
pub(crate) struct Lasting {
    pub(crate) folder: PathBuf,
    pub(crate) state_dir: PathBuf,
}

impl Lasting {
    /// Where a real engine keeps them.
    pub(crate) fn usual(state_dir: &Path) -> Lasting {
        let user = rustix::process::geteuid().as_raw();
        Lasting {
            folder: format!("/dev/shm/garboard-{user}").into(),
            state_dir: state_dir.to_owned(),
        }
    }

    /// Makes the folder unless it is there. One that somebody else can write to is not used.
    fn claim(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let found = std::fs::symlink_metadata(&self.folder)?;
        if !found.is_dir() || !is_ours(&found) {
            return Err(io::Error::other("it is somebody else's, or not a folder"));
        }
        Ok(())
    }

    /// Where flushes are counted that failed: one number for all engines of this user, because
    /// arrays of several may lie on one disk. `None` where it cannot be; then nothing is trusted.
    pub(crate) fn failed_flushes(&self) -> Option<Arc<LastingCount>> {
        let counted = self.count_of_flushes();
        let counted = counted.inspect_err(|error| {
            tracing::warn!(event = "flushes_not_counted", error = %error,
                folder = %self.folder.display(),
                "where failed flushes are counted cannot be used: what engines have begun is not \
                 recorded");
        });
        counted.ok().map(Arc::new)
    }

    fn count_of_flushes(&self) -> io::Result<LastingCount> {
        self.claim()?;
        let path = self.folder.join(FLUSHES);
        let file = match open_ours(&path)? {
            Some(file) => file,
            None => {
                self.make_count(&path)?;
                open_ours(&path)?.ok_or(io::ErrorKind::NotFound)?
            }
        };
        LastingCount::in_file(&file)
    }

    /// Makes the file that counts, unless somebody is faster. It begins at a number that no other
    /// such file had: should it be removed, it is seen that it is another one.
    fn make_count(&self, path: &Path) -> io::Result<()> {
        let first = Uuid::new_v4();
        let made = self.folder.join(format!("{FLUSHES}-{first}"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&made)?;
        let there = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FLUSHES_BYTES);
        let there = there.map_err(io::Error::from);
        let first = first.as_u64_pair().1.to_ne_bytes();
        let there = there.and_then(|()| file.write_all_at(&first, 0));
        let linked = there.and_then(|()| std::fs::hard_link(&made, path));
        let _ = std::fs::remove_file(&made);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }

    fn path(&self, array: Uuid, suffix: &str) -> PathBuf {
        self.folder.join(format!("{array}.{suffix}"))
    }

    /// A new file for this life, all of whose memory is there.
    fn create(&self, whose: &BegunOf, space: BegunSpace) -> io::Result<Arc<Begun>> {
        self.claim()?;
        let life = whose.life.to_string();
        for suffix in ["of", &life] {
            // There from an attempt that failed.
            let _ = std::fs::remove_file(self.path(whose.array, suffix));
        }
        std::os::unix::fs::symlink(&self.state_dir, self.path(whose.array, "of"))?;
        let path = self.path(whose.array, &life);
        let made = make(&path, space, whose);
        if made.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    /// Whether the folder is there, and nobody else can write to it.
    fn is_there(&self) -> io::Result<bool> {
        match std::fs::symlink_metadata(&self.folder) {
            Ok(found) => Ok(found.is_dir() && is_ours(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The file of a life, if it is there and nobody else made it. An error when that cannot be
    /// told: it may be there.
    fn open(&self, array: Uuid, life: u64) -> io::Result<Option<File>> {
        if !self.is_there()? {
            return Ok(None);
        }
        let Some(file) = open(&self.path(array, &life.to_string()))? else {
            return Ok(None);
        };
        let found = file.metadata()?;
        Ok((found.is_file() && is_ours(&found)).then_some(file))
    }

    /// Counts flushes that hung when an engine ended as flushes that failed. Arrays of all files
    /// may share a disk, so that comes before any of them is believed.
    fn count_hanging(&self, count: &LastingCount) -> io::Result<()> {
        for file in self.heads("")? {
            if BegunWrites::hangs(|offset, bytes| file.read_exact_at(bytes, offset))? {
                count.add();
                // Else it counts once more.
                let _ = BegunWrites::forget_hanging(|at, bytes| file.write_all_at(bytes, at));
            }
        }
        Ok(())
    }

    /// No file of the array speaks for parity from here on, whichever life it is of: which one
    /// counts depends on the members that a start finds.
    pub(crate) fn withdraw(&self, array: Uuid) -> io::Result<()> {
        for file in self.heads(&format!("{array}."))? {
            BegunWrites::withdraw(|offset, bytes| file.write_all_at(bytes, offset))?;
        }
        Ok(())
    }

    /// The files whose names begin so. Also those that count for nothing because others can write
    /// to them, or to the folder: that may be mended before the next start. An error when one may
    /// be there and cannot be opened.
    fn heads(&self, prefix: &str) -> io::Result<Vec<File>> {
        match std::fs::symlink_metadata(&self.folder) {
            Ok(found) if found.is_dir() && is_of_user(&found) => {}
            Ok(_) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let mut heads = Vec::new();
        for name in self.names()? {
            let life = name.rsplit_once('.').map(|(_, life)| life.parse::<u64>());
            if !name.starts_with(prefix) || !matches!(life, Some(Ok(_))) {
                continue;
            }
            let Some(file) = open(&self.folder.join(&name))? else {
                continue;
            };
            let is_file = file.metadata()?.is_file();
            if is_file && BegunWrites::is_one(|at, bytes| file.read_exact_at(bytes, at))? {
                heads.push(file);
            }
        }
        Ok(heads)
    }

    /// Removes all files of an array but that of one life.
    fn remove(&self, array: Uuid, but: Option<u64>) {
        let prefix = format!("{array}.");
        let keeps = |suffix: &str| match but {
            Some(life) => suffix == "of" || suffix == life.to_string(),
            None => false,
        };
        for name in self.names().unwrap_or_default() {
            if name
                .strip_prefix(&prefix)
                .is_some_and(|suffix| !keeps(suffix))
            {
                // Gone already is as good; what stays counts for no other start.
                let _ = std::fs::remove_file(self.folder.join(name));
            }
        }
    }

    /// Removes what engines left whose state directory is gone.
    pub(crate) fn sweep(&self) {
        if self.claim().is_err() {
            return;
        }
        for name in self.names().unwrap_or_default() {
            let array = name.strip_suffix(".of");
            let array = array.and_then(|array| array.parse().ok());
            let whose = std::fs::read_link(self.folder.join(&name));
            if let (Some(array), Ok(state_dir)) = (array, whose)
                && matches!(state_dir.try_exists(), Ok(false))
            {
                self.remove(array, None);
            }
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
}

/// What an engine has left that was killed.
#[derive(Debug)]
pub(crate) struct BegunFile {
    file: File,
    writes: BegunWrites,
    /// How many flushes had failed before it was read.
    failed_flushes: u64,
}

/// The file of this path, if it is there.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(flags.bits().cast_signed());
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// As `open`, for a file that nobody else may have made.
fn open_ours(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = open(path)? else {
        return Ok(None);
    };
    let found = file.metadata()?;
    if found.is_file() && is_ours(&found) {
        return Ok(Some(file));
    }
    let text = format!("{} is somebody else's, or not a file", path.display());
    Err(io::Error::other(text))
}

/// Whether nobody but this user can change it.
fn is_ours(found: &Metadata) -> bool {
    is_of_user(found) && found.mode() & 0o077 == 0
}

fn is_of_user(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

fn make(path: &Path, space: BegunSpace, whose: &BegunOf) -> io::Result<Arc<Begun>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path)?;
    let there = rustix::fs::fstatvfs(&file)?;
    let free = there.f_bavail.saturating_mul(there.f_frsize);
    let wanted = space.bytes();
    if wanted > free / SHARE {
        let text = format!(
            "{} MiB are wanted, which is more than an {SHARE}th of the {} MiB that are free",
            wanted >> 20,
            free >> 20
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    // A store to a page that is not there would be a signal when nothing is left.
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, wanted)?;
    Begun::create(file, space, whose)
}

fn boot() -> io::Result<Uuid> {
    let text = std::fs::read_to_string(BOOT_ID)?;
    text.trim().parse().map_err(io::Error::other)
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
    failed_flushes: u64,
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
        Ok(writes) => Ok(Some(BegunFile {
            file,
            writes,
            failed_flushes,
        })),
        Err(Unusable::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Err(unusable) => {
            tracing::warn!(event = "begun_unusable", object, error = %unusable,
                "what the last engine had begun is not known: as after a power failure");
            Ok(None)
        }
    }
}

impl Host {
    /// Where the next engine will find what this one begins; `None` where it cannot be.
    pub(crate) fn begin_begun(
        &self,
        name: &str,
        config: &ArrayConfig,
        geometry: &Geometry,
        failed_flushes: u64,
    ) -> Option<Arc<Begun>> {
        let lasting = self.lasting.as_ref()?;
        if geometry.parity() == 0 {
            // Nothing of it can be torn apart.
            return None;
        }
        let made = begun_of(config);
        let made = made.and_then(|whose| lasting.create(&whose, self.engine.begun_space()));
        let made = made.inspect(|begun| begun.note_failed_flushes(failed_flushes));
        made.inspect_err(|error| self.say_unkept(name, lasting, error))
            .ok()
    }

    /// How many flushes have failed so far, or may have; a number that nobody else gets where that
    /// is not known.
    pub(crate) fn failed_flushes(&self) -> u64 {
        let known = self.failed_flushes.as_ref().zip(self.lasting.as_ref());
        let known = known.filter(|(count, lasting)| lasting.count_hanging(count).is_ok());
        known.map_or_else(
            || Uuid::new_v4().as_u64_pair().1,
            |(count, _)| count.value(),
        )
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
    /// may be killed, or give up, after a flush that has failed. So many had failed before.
    pub(crate) fn take_begun(
        &self,
        object: &str,
        assembly: &Assembly,
        failed_flushes: u64,
    ) -> Answer<Option<BegunFile>> {
        let Some(lasting) = &self.lasting else {
            return Ok(None);
        };
        let found = find_begun(lasting, object, assembly, failed_flushes);
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

    /// Why the regions that were in use must be resynced, as far as it is known by now.
    pub(crate) fn doubt_of(&self, begun: &BegunFile, assembly: &Assembly) -> Option<Doubt> {
        let drives = self.member_drives(assembly);
        begun
            .writes
            .doubt(assembly, begun.failed_flushes, |member| {
                let drive = drives[member.at()].as_ref();
                drive.map_or(0, |(_, drive)| drive.info().appearance)
            })
    }

    /// Writes again what the last engine had begun when it was killed, and makes it durable. Gives
    /// what was written, without the bytes.
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
    ) -> Answer<Vec<Redo>> {
        let BegunFile { file, writes, .. } = begun;
        let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        let drives = self.member_drives(assembly);
        // A member that is being filled may lack a chunk that only the others can tell.
        let is_here = |(member, drive): (&MemberRecord, &Option<_>)| {
            drive.is_some() && member.state == MemberState::InSync
        };
        let is_whole = assembly.config.members.iter().zip(&drives).all(is_here);
        let judge = |doubt: &mut Option<Doubt>,
                     member: MemberIndex,
                     (name, what): (&str, &str),
                     source: &io::Error| {
            *doubt = doubt.or(Doubt::refused(member));
            if is_whole {
                tracing::warn!(event = "begun_not_redone", object, drive = name, error = %source,
                    "it does not take what the last engine had begun");
                return Ok(());
            }
            let failed = of_io(format!("{object}, drive {name}"), what, source);
            Err(failed.next("bring its missing drives, or take this one out, and start it again"))
        };
        let mut done = Vec::new();
        for position in 0..writes.len() {
            let redo = writes.redo(position, read);
            let what = "reading what the last engine had begun";
            let redo = redo.map_err(|source| of_io(object.to_owned(), what, &source))?;
            for mut part in redo {
                if let Some(drive) = &drives[part.member.at()] {
                    let written = redo_part(object, drive, assembly, &part);
                    let what = "writing what the last engine had begun";
                    match written {
                        Ok(true) => {}
                        Ok(false) => *doubt = doubt.or(Doubt::refused(part.member)),
                        Err(source) => judge(doubt, part.member, (&drive.0, what), &source)?,
                    }
                }
                part.bytes = Vec::new();
                done.push(part);
            }
        }
        for (position, drive) in drives.iter().enumerate().filter(|_| !done.is_empty()) {
            if let Some((name, drive)) = drive {
                let member = MemberIndex::from_at(position);
                let flushed = drive.flush();
                flushed.or_else(|source| judge(doubt, member, (name, "flushing it"), &source))?;
            }
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
