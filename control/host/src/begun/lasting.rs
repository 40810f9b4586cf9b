//! The folder of the files in memory that engines leave, and what may be believed there. What they
//! say is `array::begun`'s to know.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::{Begun, BegunOf, BegunSpace, BegunWrites};
use rustix::fs::{FallocateFlags, OFlags};
use units::NodeIndex;
use uuid::Uuid;

/// The most of what the file system has free that one array takes, as its n-th part.
const SHARE: u64 = 8;
/// How the names of folders of other users begin.
const OTHERS: &[u8] = b"garboard-";
/// Names the mounts that this process sees.
const MOUNTS: &str = "/proc/self/ns/mnt";

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

    fn path(&self, array: Uuid, suffix: &str) -> PathBuf {
        self.folder.join(format!("{array}.{suffix}"))
    }

    /// A new file for this life, all of whose memory is there: what a shard uses on the node of its
    /// reactor, which `nodes` tells.
    pub(super) fn create(
        &self,
        whose: &BegunOf,
        space: BegunSpace,
        nodes: &[Option<NodeIndex>],
    ) -> io::Result<Arc<Begun>> {
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
        let made = make(&path, (space, nodes), whose);
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

    /// No file of the array speaks for parity from here on, whichever life it is of: which one
    /// counts depends on the members that a start finds.
    pub(crate) fn withdraw(&self, array: Uuid) -> io::Result<()> {
        for file in self.heads(array)? {
            BegunWrites::withdraw(|offset, bytes| file.write_all_at(bytes, offset))?;
        }
        for other in self.folders_of_others().unwrap_or_default() {
            let others = Lasting {
                folder: other,
                state_dir: self.state_dir.clone(),
            };
            // What cannot be opened is theirs to mend.
            for file in others.files_of(array, true).unwrap_or_default() {
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

    /// The files of an array's lives. Also those that count for nothing because others can write
    /// to them, or to the folder: that may be mended before the next start. An error when one may
    /// be there and cannot be opened.
    fn heads(&self, array: Uuid) -> io::Result<Vec<File>> {
        match std::fs::symlink_metadata(&self.folder) {
            Ok(found) if found.is_dir() && is_of_user(&found) => {}
            Ok(_) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        self.files_of(array, false)
    }

    /// As `heads`, whoever's the folder is; what cannot be opened may be passed over.
    fn files_of(&self, array: Uuid, passes: bool) -> io::Result<Vec<File>> {
        let mut heads = Vec::new();
        let prefix = format!("{array}.");
        for name in self.names()? {
            let life = name.strip_prefix(&prefix);
            if life.is_none_or(|life| life.parse::<u64>().is_err()) {
                continue;
            }
            let file = match open(&self.folder.join(&name)) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(_) if passes => continue,
                Err(error) => return Err(error),
            };
            let is_file = file.metadata()?.is_file();
            if is_file && BegunWrites::is_one(|at, bytes| file.read_exact_at(bytes, at))? {
                heads.push(file);
            }
        }
        Ok(heads)
    }

    /// Removes all files of an array but that of one life.
    pub(super) fn remove(&self, array: Uuid, but: Option<u64>) {
        let prefix = format!("{array}.");
        let keeps = |suffix: &str| match but {
            Some(life) => ["of", "ns", &life.to_string()].contains(&suffix),
            None => false,
        };
        for name in self.names().unwrap_or_default() {
            if name
                .strip_prefix(&prefix)
                .is_some_and(|suffix| !keeps(suffix))
            {
                // Gone already is as good; what stays counts for no other start.
                let _ = std::fs::remove_file(self.folder.join(&name));
            }
        }
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
                self.remove(array, None);
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
        let files = self.heads(array);
        files.is_ok_and(|files| files.iter().all(|file| file.try_lock().is_ok()))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
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

fn make(
    path: &Path,
    (space, nodes): (BegunSpace, &[Option<NodeIndex>]),
    whose: &BegunOf,
) -> io::Result<Arc<Begun>> {
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
    // A store to a page that is not there would be a signal when nothing is left. A page stays
    // where it is first made: here, and not where its reactor stores to it.
    let fill = |part: Range<u64>| {
        let (start, length) = (part.start, part.end - part.start);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), start, length)
    };
    for (shard, node) in nodes.iter().enumerate() {
        memory::near(*node, || fill(space.share(shard)))??;
    }
    fill(0..wanted)?;
    // For as long as this engine lives.
    file.lock()?;
    Begun::create(file, space, whose)
}
