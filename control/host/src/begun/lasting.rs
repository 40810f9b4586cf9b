//! The folder of the files in memory that engines leave, and what may be believed there. What they
//! say is `array::begun`'s to know.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use array::{Begun, BegunOf, BegunSpace, BegunWrites};
use memory::LastingCount;
use rustix::fs::{FallocateFlags, OFlags};
use uuid::Uuid;

/// The most of what the file system has free that one array takes, as its n-th part.
const SHARE: u64 = 8;
/// How the names of folders of other users begin.
const OTHERS: &[u8] = b"garboard-";
/// Names the mounts that this process sees.
const MOUNTS: &str = "/proc/self/ns/mnt";
/// The file that counts failed flushes, and its size: a page of any machine.
const FLUSHES: &str = "flushes";
const FLUSHES_BYTES: u64 = 64 << 10;
/// How the names of files begin in which engines count blocking flushes under way.
const BLOCKING: &str = "blocking-";

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
        counted.inspect_err(say_uncounted).ok().map(Arc::new)
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
    pub(super) fn create(&self, whose: &BegunOf, space: BegunSpace) -> io::Result<Arc<Begun>> {
        self.claim()?;
        let life = whose.life.to_string();
        for suffix in ["of", "ns", &life] {
            // There from an attempt that failed.
            let _ = std::fs::remove_file(self.path(whose.array, suffix));
        }
        std::os::unix::fs::symlink(&self.state_dir, self.path(whose.array, "of"))?;
        if let Ok(mounts) = std::fs::read_link(MOUNTS) {
            std::os::unix::fs::symlink(mounts, self.path(whose.array, "ns"))?;
        }
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
            Ok(found) if found.is_dir() && is_ours(&found) => Ok(true),
            Ok(_) => {
                say_not_ours(&self.folder);
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The file of a life, if it is there and nobody else made it. An error when that cannot be
    /// told: it may be there. What others can write to is no reason not to start: else whoever
    /// makes a folder of our name before us would keep us from it.
    pub(super) fn open(&self, array: Uuid, life: u64) -> io::Result<Option<File>> {
        if !self.is_there()? {
            return Ok(None);
        }
        let path = self.path(array, &life.to_string());
        let Some(file) = open(&path)? else {
            return Ok(None);
        };
        let found = file.metadata()?;
        let ours = found.is_file() && is_ours(&found);
        if !ours {
            say_not_ours(&path);
        }
        Ok(ours.then_some(file))
    }

    /// Counts flushes that may have failed after an engine ended as flushes that failed; and those
    /// of engines that live, if they take long. Arrays of all files may share a disk, so that comes
    /// before any of them is believed. `locked` tells when the drives of an array were.
    pub(super) fn count_hanging(
        &self,
        count: &LastingCount,
        locked: &Locked<'_>,
    ) -> io::Result<()> {
        for (array, file) in self.heads("")? {
            if heed(&file, array, locked)? {
                count.add();
            }
        }
        self.count_blocking(count)
    }

    /// As `count_hanging`, of the blocking flushes of engines that are dead.
    fn count_blocking(&self, count: &LastingCount) -> io::Result<()> {
        for name in self.names()? {
            if !name.starts_with(BLOCKING) {
                continue;
            }
            let path = self.folder.join(&name);
            let Some(file) = open_ours(&path)? else {
                continue;
            };
            if file.try_lock().is_err() {
                continue;
            }
            if LastingCount::in_file(&file)?.value() > 0 {
                count.add();
            }
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Where this engine counts blocking flushes that are under way, for as long as it has the file
    /// open.
    pub(crate) fn blocking_flushes(&self) -> Option<(File, Arc<LastingCount>)> {
        let made = || {
            self.claim()?;
            let path = self.folder.join(format!("{BLOCKING}{}", Uuid::new_v4()));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(path)?;
            // Should another engine be faster and remove it, nobody could hear of ours.
            file.lock()?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FLUSHES_BYTES)?;
            if file.metadata()?.nlink() == 0 {
                return Err(io::Error::other("somebody has removed it"));
            }
            let count = Arc::new(LastingCount::in_file(&file)?);
            Ok((file, count))
        };
        made().inspect_err(say_uncounted).ok()
    }

    /// No file of the array speaks for parity from here on, whichever life it is of: which one
    /// counts depends on the members that a start finds.
    pub(crate) fn withdraw(&self, array: Uuid) -> io::Result<()> {
        for (_, file) in self.heads(&format!("{array}."))? {
            BegunWrites::withdraw(|offset, bytes| file.write_all_at(bytes, offset))?;
        }
        for other in self.folders_of_others().unwrap_or_default() {
            let others = Lasting {
                folder: other,
                state_dir: self.state_dir.clone(),
            };
            // What cannot be opened is theirs to mend.
            for (_, file) in others
                .files_of(&format!("{array}."), true)
                .unwrap_or_default()
            {
                let _ = BegunWrites::withdraw(|at, bytes| file.write_all_at(bytes, at));
            }
        }
        Ok(())
    }

    /// Where engines of other users keep theirs.
    fn folders_of_others(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.folder.parent().ok_or(io::ErrorKind::NotFound)?)? {
            let entry = entry?;
            let is_one = entry.file_name().as_encoded_bytes().starts_with(OTHERS);
            if is_one && entry.file_type()?.is_dir() && entry.path() != self.folder {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// The files whose names begin so. Also those that count for nothing because others can write
    /// to them, or to the folder: that may be mended before the next start. An error when one may
    /// be there and cannot be opened.
    fn heads(&self, prefix: &str) -> io::Result<Vec<(Uuid, File)>> {
        match std::fs::symlink_metadata(&self.folder) {
            Ok(found) if found.is_dir() && is_of_user(&found) => {}
            Ok(_) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        self.files_of(prefix, false)
    }

    /// As `heads`, whoever's the folder is; what cannot be opened may be passed over.
    fn files_of(&self, prefix: &str, passes: bool) -> io::Result<Vec<(Uuid, File)>> {
        let mut heads = Vec::new();
        for name in self.names()? {
            let of = name.rsplit_once('.').filter(|_| name.starts_with(prefix));
            let of = of.map(|(array, life)| (array.parse::<Uuid>(), life.parse::<u64>()));
            let Some((Ok(array), Ok(_))) = of else {
                continue;
            };
            let file = match open(&self.folder.join(&name)) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(_) if passes => continue,
                Err(error) => return Err(error),
            };
            let is_file = file.metadata()?.is_file();
            if is_file && BegunWrites::is_one(|at, bytes| file.read_exact_at(bytes, at))? {
                heads.push((array, file));
            }
        }
        Ok(heads)
    }

    /// Removes all files of an array but that of one life. What they tell of a flush that hangs is
    /// counted first: other arrays may lie on the same disk.
    pub(super) fn remove(&self, array: Uuid, but: Option<u64>, locked: &Locked<'_>) {
        let prefix = format!("{array}.");
        let keeps = |suffix: &str| match but {
            Some(life) => ["of", "ns", &life.to_string()].contains(&suffix),
            None => false,
        };
        for name in self.names().unwrap_or_default() {
            let suffix = name.strip_prefix(&prefix);
            let Some(suffix) = suffix.filter(|suffix| !keeps(suffix)) else {
                continue;
            };
            let path = self.folder.join(&name);
            let is_life = suffix.parse::<u64>().is_ok();
            if !is_life || self.heed_path(&path, array, locked).is_ok() {
                // Gone already is as good; what stays counts for no other start.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Counts the flush that hangs as the file says.
    fn heed_path(&self, path: &Path, array: Uuid, locked: &Locked<'_>) -> io::Result<()> {
        let Some(file) = open(path)?.filter(|file| file.metadata().is_ok_and(|it| it.is_file()))
        else {
            return Ok(());
        };
        let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        if BegunWrites::is_one(read)? && heed(&file, array, locked)? {
            self.count_of_flushes()?.add();
        }
        Ok(())
    }

    /// Removes what dead engines left whose state directory is gone: it is not where they had it,
    /// as seen from where they were.
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
                && self.was_seen_from_here(array)
                && self.is_dead(array)
            {
                self.remove(array, None, &|_| None);
            }
        }
    }

    /// Whether the engine of this array saw the same mounts: in a container another folder, or
    /// none, may be where its state is.
    fn was_seen_from_here(&self, array: Uuid) -> bool {
        let theirs = std::fs::read_link(self.path(array, "ns"));
        let ours = std::fs::read_link(MOUNTS);
        matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
    }

    /// Whether no engine has any file of this array locked.
    fn is_dead(&self, array: Uuid) -> bool {
        let files = self.heads(&format!("{array}."));
        files.is_ok_and(|files| files.iter().all(|(_, file)| file.try_lock().is_ok()))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
}

/// When the drives of an array were locked that are here, all that it needs to know of its flushes.
pub(super) type Locked<'a> = dyn Fn(Uuid) -> Option<Duration> + 'a;

/// Whether a flush that this file tells of is to be counted as one that failed; then that is known,
/// and the file of a dead engine tells of it no more.
fn heed(file: &File, array: Uuid, locked: &Locked<'_>) -> io::Result<bool> {
    // Who has it locked lives: what it asked is under way still.
    let is_dead = file.try_lock().is_ok();
    let locked = if is_dead {
        locked(array)
    } else {
        drive::since_boot()
    };
    let hangs = BegunWrites::hangs(|at, bytes| file.read_exact_at(bytes, at), locked)?;
    if hangs && is_dead {
        // Else it counts once more.
        let _ = BegunWrites::forget_flushes(|at, bytes| file.write_all_at(bytes, at));
    }
    Ok(hangs)
}

fn say_uncounted(error: &io::Error) {
    tracing::warn!(event = "flushes_not_counted", error = %error,
        "where flushes are counted cannot be used: what engines have begun is not recorded");
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

/// What is there counts for nothing.
fn say_not_ours(path: &Path) {
    tracing::warn!(event = "begun_unusable", path = %path.display(),
        "somebody else can write to it: what the last engine had begun is not known, as after a \
         power failure");
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
    // For as long as this engine lives.
    file.lock()?;
    Begun::create(file, space, whose)
}
