//! The file of the wanted state: it is made whole or not at all, and opened anew after a write to
//! it failed. What is in it lives in [`super`].

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, StorageBackend};

use super::{prepare, unwritable};
use crate::{Answer, EngineError, ErrorKind};

/// The file in the state directory.
pub const FILE_NAME: &str = "wanted.redb";

type Open = dyn Fn() -> Result<Database, DatabaseError> + Send + Sync;
type Bytes = dyn Fn() -> io::Result<Vec<u8>> + Send + Sync;

/// How the file is opened, again and again.
pub(super) struct Place {
    /// What messages call it.
    pub(super) path: PathBuf,
    open: Box<Open>,
    bytes: Box<Bytes>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.path).finish()
    }
}

impl Place {
    /// The file in `directory`, which is made when there is none.
    pub(super) fn in_directory(directory: &Path) -> Answer<Place> {
        let path = directory.join(FILE_NAME);
        let (opened, read) = (path.clone(), path.clone());
        let place = Place {
            path,
            open: Box::new(move || Database::open(&opened)),
            bytes: Box::new(move || fs::read(&read)),
        };
        match is_made(&place.path) {
            Ok(true) => {}
            Ok(false) => {
                if place.path.exists() {
                    tracing::warn!(event = "wanted_state_empty", path = %place.path.display(),
                        "nothing is in it: an engine begins anew that knows no drives; `garboard \
                         array import` finds what is on them, exports are to be made again");
                }
                place.make(directory)?;
            }
            Err(error) => {
                let text = format!("{}: {error}", place.path.display());
                return Err(super::unreadable(&text));
            }
        }
        Ok(place)
    }

    #[cfg(test)]
    pub(super) fn anywhere(open: Box<Open>, bytes: Box<Bytes>) -> Place {
        let path = FILE_NAME.into();
        Place { path, open, bytes }
    }

    /// Makes an empty state beside its place and moves it there, so that half of one, which nobody
    /// could open, is never left behind by a full file system or a kill.
    fn make(&self, directory: &Path) -> Answer<()> {
        let beside = self.path.with_extension("new");
        let wrong = |error: io::Error| unwritable(&self.path, redb::Error::from(error));
        let remove = || match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        remove().map_err(wrong)?;
        let made = Database::create(&beside)
            .map_err(|error| unwritable(&self.path, error.into()))
            .and_then(|database| prepare(&database, &self.path));
        let moved = made.and_then(|()| {
            let moved = fs::rename(&beside, &self.path);
            let kept = moved.and_then(|()| File::open(directory)?.sync_all());
            kept.map_err(wrong)
        });
        // Otherwise it takes the room that is wanted.
        moved.inspect_err(|_| drop(remove()))
    }

    pub(super) fn open(&self) -> Answer<Database> {
        let opened = (self.open)();
        opened.map_err(|error| {
            if let DatabaseError::DatabaseAlreadyOpen = error {
                let next = format!(
                    "stop that engine, or use another state directory than {}",
                    self.path.parent().unwrap_or(&self.path).display()
                );
                let message = "another engine has it open";
                return EngineError::new(ErrorKind::Busy, super::object(), message).next(next);
            }
            let error = redb::Error::from(error);
            if is_full(&error) {
                // Opening after a kill repairs, and that writes.
                return unwritable(&self.path, error);
            }
            super::unreadable(&format!("{}: {error}", self.path.display()))
        })
    }
}

impl Place {
    /// What is in the file, in memory: opening and repairing it there needs no room in a file
    /// system.
    pub(super) fn copy(&self) -> Answer<Database> {
        let copied = (self.bytes)().map_err(redb::Error::from).and_then(|bytes| {
            let memory = InMemoryBackend::new();
            memory.set_len(units::bytes_u64(bytes.len()))?;
            memory.write(0, &bytes)?;
            Ok(Database::builder().create_with_backend(memory)?)
        });
        copied.map_err(|error| {
            let text = format!("{}: {error}", self.path.display());
            super::unreadable(&text)
        })
    }
}

/// Whether there is a file that something was written to. An older engine that met a full file
/// system at its first start left one that is empty, or long and empty.
fn is_made(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; 1 << 16];
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 || bytes[..count].iter().any(|byte| *byte != 0) {
            return Ok(count > 0);
        }
    }
}

/// Whether there was no room for it.
pub(super) fn is_full(error: &redb::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error, redb::Error::Io(error)
        if matches!(error.kind(), StorageFull | QuotaExceeded))
}
