//! The socket of an export: its directory, its owner, and whether somebody else answers on it.
//!
//! What does not live here: what is said over it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where an export listens, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// The socket. Its directory is created (mode 0750) when it is missing.
    pub path: PathBuf,
    /// User id that the socket (and a directory created for it) is given to.
    pub owner: Option<u32>,
    /// Group id that the socket (and a directory created for it) is given to.
    pub group: Option<u32>,
    /// Permission bits of the socket.
    pub mode: u32,
}

/// What about the socket went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindErrorKind {
    /// Somebody answers on it: another engine, or another export.
    InUse,
    /// There is something else at its path.
    NotASocket,
    /// The path is longer than a socket address can be, or has no file name.
    Path,
    /// The operating system refused.
    Io,
}

/// Why an export cannot listen.
#[derive(Debug)]
pub struct BindError {
    /// What went wrong.
    pub kind: BindErrorKind,
    /// The socket.
    pub path: PathBuf,
    step: &'static str,
    source: Option<io::Error>,
}

impl BindError {
    pub(crate) fn io(path: PathBuf, step: &'static str, source: io::Error) -> BindError {
        BindError {
            kind: BindErrorKind::Io,
            path,
            step,
            source: Some(source),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}: {}", self.path.display(), self.step)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Longest path in a socket address, less the zero byte (`sun_path` of unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// A listening socket that is ours. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that never another's is removed.
    identity: (u64, u64),
}

impl Bound {
    /// Listens at a socket that nobody else answers on.
    ///
    /// The socket is made under another name, given to its owner, and moved to its place: so
    /// there is no moment at which the wrong people can connect, or nobody answers.
    pub(crate) fn new(settings: &SocketSettings) -> Result<Bound, BindError> {
        let path = &settings.path;
        let fail = |kind, step, source| BindError {
            kind,
            path: path.clone(),
            step,
            source,
        };
        let io = |step| move |source| fail(BindErrorKind::Io, step, Some(source));
        let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
            return Err(fail(BindErrorKind::Path, "there is no file name", None));
        };
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let beside = directory.join(format!(".{}.{number}", std::process::id()));
        if path.as_os_str().len().max(beside.as_os_str().len()) > PATH_BYTES_MAX {
            let step = "the path is too long for a socket (107 bytes)";
            return Err(fail(BindErrorKind::Path, step, None));
        }
        make_directory(directory, settings).map_err(io("the directory cannot be made"))?;
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other.map_err(io("it cannot be looked at"))?),
        };
        if let Some(found) = found {
            if !found.file_type().is_socket() {
                let step = "there is something else, not a socket; remove it or choose another";
                return Err(fail(BindErrorKind::NotASocket, step, None));
            }
            if answers(path) {
                let step = "somebody answers on it already";
                return Err(fail(BindErrorKind::InUse, step, None));
            }
        }
        let _ = fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside).map_err(io("it cannot be bound"))?;
        let placed = give(&beside, settings).and_then(|()| fs::rename(&beside, path));
        if let Err(error) = placed {
            let _ = fs::remove_file(&beside);
            return Err(io("it cannot be given to its owner")(error));
        }
        listener
            .set_nonblocking(true)
            .map_err(io("it cannot be polled"))?;
        let file = fs::symlink_metadata(path).map_err(io("it cannot be looked at"))?;
        Ok(Bound {
            listener,
            path: path.clone(),
            identity: (file.dev(), file.ino()),
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether anything but a refusal comes back. When in doubt somebody answers: so does whoever has
/// as many connections waiting as may, and we do not wait for him.
fn answers(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asked = SocketAddrUnix::new(path).and_then(|address| {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)
    });
    asked != Err(rustix::io::Errno::CONNREFUSED)
}

fn make_directory(directory: &Path, settings: &SocketSettings) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o750).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    // The umask may have taken bits away, and the front-end's user must get through.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o750))?;
    chown(directory, settings.owner, settings.group)
}

fn give(path: &Path, settings: &SocketSettings) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(settings.mode & 0o777))?;
    chown(path, settings.owner, settings.group)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn settings(path: PathBuf) -> SocketSettings {
        SocketSettings {
            path,
            owner: None,
            group: None,
            mode: 0o660,
        }
    }

    #[test]
    fn a_missing_directory_is_made_and_the_mode_is_set() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b/export.sock");
        let bound = Bound::new(&settings(path.clone())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o660);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        UnixStream::connect(&path).unwrap();
        drop(bound);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_that_somebody_answers_on_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("export.sock");
        let other = UnixListener::bind(&path).unwrap();
        let error = Bound::new(&settings(path.clone())).unwrap_err();
        assert_eq!(error.kind, BindErrorKind::InUse);
        assert!(error.to_string().contains("export.sock"));
        UnixStream::connect(&path).unwrap();
        drop(other);
    }

    #[test]
    fn one_whose_listener_does_not_listen_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("export.sock");
        let other = UnixListener::bind(&path).unwrap();
        // As few may wait as can.
        rustix::net::listen(&other, 0).unwrap();
        let waiting: Vec<bool> = (0..4).map(|_| answers(&path)).collect();
        assert_eq!(waiting, [true; 4]);
        let error = Bound::new(&settings(path)).unwrap_err();
        assert_eq!(error.kind, BindErrorKind::InUse);
    }

    #[test]
    fn a_socket_that_nobody_answers_on_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("export.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let bound = Bound::new(&settings(path.clone())).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(bound);
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("export.sock");
        fs::write(&path, b"precious").unwrap();
        let error = Bound::new(&settings(path.clone())).unwrap_err();
        assert_eq!(error.kind, BindErrorKind::NotASocket);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert_eq!(
            Bound::new(&settings(long)).unwrap_err().kind,
            BindErrorKind::Path
        );
    }

    #[test]
    fn the_socket_of_a_successor_is_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("export.sock");
        let first = Bound::new(&settings(path.clone())).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Bound::new(&settings(path.clone())).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
    }
}
