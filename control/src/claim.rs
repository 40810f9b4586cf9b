//! What only one engine may have: its state directory and its socket.
//!
//! Both are claimed by a lock on a file (flock, which the kernel lets go when the process dies),
//! before anything in them is read. A socket file that is there is taken over only when nobody
//! answers on it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use units::{Clock, MonotonicClock};

use crate::{Answer, EngineError, ErrorKind};

/// How long a lock is waited for: a killed engine has it until the kernel has let go of its memory.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
const STATE_DIR_MODE: u32 = 0o700;
const RUNTIME_DIR_MODE: u32 = 0o755;
const SOCKET_MODE: u32 = 0o660;
/// The longest path of a UNIX socket: what `sun_path` holds besides its final zero (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A state directory that is ours for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: Lock,
}

impl StateDir {
    /// Makes the directory when it is missing (0700) and locks it.
    ///
    /// # Errors
    /// `Busy` when another engine has it and keeps it, `Internal` when it cannot be made.
    pub fn claim(path: &Path) -> Answer<StateDir> {
        let object = format!("state directory {}", path.display());
        make_dir(path, STATE_DIR_MODE).map_err(|error| failed(&object, &error))?;
        let lock = lock(&path.join("lock"), &object)?;
        Ok(StateDir {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The API's socket, bound and locked; removed when dropped.
#[derive(Debug)]
pub struct ApiSocket {
    path: PathBuf,
    listener: UnixListener,
    _lock: Lock,
}

impl ApiSocket {
    /// Makes the directory when it is missing (0755: front-ends go through it to the exports'
    /// sockets), and binds the socket (0660).
    ///
    /// # Errors
    /// `Busy` when somebody answers on it or another engine claims it; `Exists` when a file that
    /// is no socket is in the way; `Internal` when it cannot be made.
    pub fn claim(path: &Path) -> Answer<ApiSocket> {
        let object = format!("socket {}", path.display());
        let dir = path
            .parent()
            .filter(|_| path.is_absolute() && path.to_str().is_some());
        let Some(dir) = dir else {
            let message = "it is to be an absolute path in UTF-8";
            return Err(EngineError::new(ErrorKind::Invalid, object, message));
        };
        let beside = with_suffix(path, ".new");
        check_length(&beside, path, &object)?;
        make_dir(dir, RUNTIME_DIR_MODE).map_err(|error| failed(&object, &error))?;
        let lock = lock(&with_suffix(path, ".lock"), &object)?;
        check_free(path, &object)?;
        // Bound beside its place and moved there: it never has other rights, and no moment is
        // without the right file.
        let _ = fs::remove_file(&beside);
        let bind = || -> io::Result<UnixListener> {
            let listener = UnixListener::bind(&beside)?;
            fs::set_permissions(&beside, Permissions::from_mode(SOCKET_MODE))?;
            fs::rename(&beside, path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().map_err(|error| failed(&object, &error))?;
        Ok(ApiSocket {
            path: path.to_owned(),
            listener,
            _lock: lock,
        })
    }

    /// A second handle on the listener, non-blocking.
    ///
    /// # Errors
    /// `Internal` when the process has no file descriptor left.
    pub fn listener(&self) -> Answer<UnixListener> {
        let object = format!("socket {}", self.path.display());
        self.listener
            .try_clone()
            .map_err(|error| failed(&object, &error))
    }

    /// The directory of the socket.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.path.parent().expect("checked by claim")
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        // The lock is still held, so the file is ours. The lock's file stays: removing it would
        // let two engines lock two files of one name.
        let _ = fs::remove_file(&self.path);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result,
    }
}

/// A locked file, unlocked when dropped. Closing alone would not do: from its fork to its exec, a
/// child has the open file, too, and the next claim would find it locked.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(path: &Path, object: &str) -> Answer<Lock> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(path).map_err(|error| failed(object, &error))?;
    let begun = MonotonicClock.now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(object, &error)),
        }
        if MonotonicClock.now().since(begun) >= PATIENCE {
            return Err(
                EngineError::new(ErrorKind::Busy, object, "another engine has it")
                    .next("stop that engine, or give this one its own --socket and --state-dir"),
            );
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Whether the kernel takes the longest path at which the socket is bound.
fn check_length(longest: &Path, path: &Path, object: &str) -> Answer<()> {
    let (bytes, own) = (longest.as_os_str().len(), path.as_os_str().len());
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let fit = SOCKET_PATH_BYTES_MAX - (bytes - own);
    let message = format!("its path has {own} bytes, and {fit} fit");
    Err(EngineError::new(ErrorKind::Invalid, object, message)
        .next("give a shorter --socket, or set GARBOARD_SOCKET to one"))
}

/// Whether the place of the socket is empty, or holds a socket on which nobody answers.
fn check_free(path: &Path, object: &str) -> Answer<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(object, &error)),
        Ok(found) if !found.file_type().is_socket() => {
            let message = "a file that is no socket is in its place";
            return Err(EngineError::new(ErrorKind::Exists, object, message)
                .next("move it away, or give another --socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(event = "stale_socket_taken_over", object);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(object, &error)),
        Ok(_) => Err(
            EngineError::new(ErrorKind::Busy, object, "somebody answers on it")
                .next("stop who answers, or give another --socket"),
        ),
    }
}

fn failed(object: &str, error: &io::Error) -> EngineError {
    if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    ) {
        let message = "there is no room left on its file system";
        return EngineError::new(ErrorKind::Full, object, message)
            .next("make room there, or give another place");
    }
    EngineError::new(ErrorKind::Internal, object, error.to_string())
        .next("look at the directory and its rights")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_is_refused_with_what_fits() {
        let folder = tempfile::tempdir().expect("a folder");
        let room = 103 - folder.path().as_os_str().len() - 1;
        let socket = |bytes| ApiSocket::claim(&folder.path().join("s".repeat(bytes)));
        socket(room).expect("it fits");
        let error = socket(room + 1).expect_err("too long");
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(
            error.to_string().contains("104 bytes, and 103 fit"),
            "{error}"
        );
    }

    #[test]
    fn a_full_file_system_is_told_as_one() {
        let full = failed("socket s", &io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind, ErrorKind::Full);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn a_state_directory_is_made_private_and_has_one_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/state");
        let first = StateDir::claim(&path).expect("made");
        assert_eq!(mode(&path), 0o700);
        let error = StateDir::claim(&path).expect_err("taken");
        assert_eq!(error.kind, ErrorKind::Busy);
        drop(first);
        StateDir::claim(&path).expect("free again");
    }

    #[test]
    fn an_engine_that_is_about_to_end_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let dying = StateDir::claim(&path).expect("made");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| StateDir::claim(&path));
            std::thread::park_timeout(5 * PAUSE);
            assert!(!next.is_finished(), "it waits");
            drop(dying);
            next.join().expect("no panic").expect("free in time");
        });
    }

    #[test]
    fn what_a_forked_child_still_has_open_is_free_for_the_next_engine() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateDir::claim(&folder.path().join("state")).expect("made");
        let socket = ApiSocket::claim(&folder.path().join("run/api.sock")).expect("bound");
        let of_child = (&state._lock.0, &socket._lock.0);
        let of_child = (of_child.0.try_clone(), of_child.1.try_clone());
        let (path, place) = (state.path.clone(), socket.path.clone());
        drop((state, socket));
        StateDir::claim(&path).expect("free, though a child has it open");
        ApiSocket::claim(&place).expect("free, though a child has it open");
        drop(of_child);
    }

    #[test]
    fn a_socket_has_one_owner_and_a_stale_one_is_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run/api.sock");
        let first = ApiSocket::claim(&path).expect("bound");
        assert_eq!(
            (mode(&path), mode(path.parent().expect("in a folder"))),
            (0o660, 0o755)
        );
        assert_eq!(
            ApiSocket::claim(&path).expect_err("taken").kind,
            ErrorKind::Busy
        );
        drop(first);
        assert!(!path.exists(), "removed with its owner");

        // What a killed engine leaves: the file, and nobody behind it.
        drop(UnixListener::bind(&path).expect("bound"));
        let second = ApiSocket::claim(&path).expect("stale");
        UnixStream::connect(&path).expect("we answer now");
        drop(second);

        // Somebody who is not an engine of ours and takes no lock.
        let other = UnixListener::bind(&path).expect("bound");
        let error = ApiSocket::claim(&path).expect_err("somebody answers");
        assert_eq!(error.kind, ErrorKind::Busy);
        drop(other);
        fs::remove_file(&path).expect("removed");

        fs::write(&path, "precious").expect("written");
        let error = ApiSocket::claim(&path).expect_err("not a socket");
        assert_eq!(error.kind, ErrorKind::Exists);
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
    }
}
