//! Why a drive or a port could not be opened.

use std::fmt;
use std::io;
use std::path::Path;

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// No such path.
    NotFound,
    /// The file that was to be created is there already.
    Exists,
    /// Somebody else has it: another engine, a mount, an array of the kernel.
    InUse,
    /// This process may not open it for reading and writing.
    Permission,
    /// The spec names something else than what is there (a file where a device was meant, ...).
    WrongKind,
    /// Too small, or a size that does not fit.
    Size,
    /// A block size or another property that is not served.
    Unsupported,
    /// The operating system said no in another way.
    Io,
}

/// Why a drive could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// What kind of refusal.
    pub kind: OpenErrorKind,
    drive: String,
    cause: String,
    source: Option<io::Error>,
}

impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind, path: &Path, cause: impl Into<String>) -> OpenError {
        OpenError {
            kind,
            drive: path.display().to_string(),
            cause: cause.into(),
            source: None,
        }
    }

    pub(crate) fn unnamed(kind: OpenErrorKind, drive: String, cause: String) -> OpenError {
        OpenError {
            kind,
            drive,
            cause,
            source: None,
        }
    }

    /// The operating system's own words, sorted by what the reader can do about it.
    pub(crate) fn io(path: &Path, doing: &str, error: io::Error) -> OpenError {
        let (kind, cause) = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => (OpenErrorKind::NotFound, "no such path".into()),
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM) => {
                (OpenErrorKind::NotFound, "no drive behind this path".into())
            }
            Some(libc::EEXIST) => (
                OpenErrorKind::Exists,
                "the file exists; leave out `create` to use it as it is".into(),
            ),
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => (
                OpenErrorKind::Permission,
                format!("{doing}: {error}; the engine needs to read and write it"),
            ),
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                (OpenErrorKind::Size, format!("{doing}: {error}"))
            }
            _ => (OpenErrorKind::Io, format!("{doing}: {error}")),
        };
        OpenError {
            kind,
            drive: path.display().to_string(),
            cause,
            source: Some(error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drive {}: {}", self.drive, self.cause)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.source.as_ref()?;
        Some(source)
    }
}

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortErrorKind {
    /// `io_uring` is switched off for this process (sysctl, seccomp, SELinux).
    Refused,
    /// The kernel is too old, or was built without `io_uring`.
    TooOld,
    /// Not enough memory, or not enough of it may be locked.
    Memory,
    /// Anything else.
    Io,
}

/// Why a reactor got no door to the drives.
#[derive(Debug)]
pub struct PortError {
    /// What kind of refusal.
    pub kind: PortErrorKind,
    cause: String,
    source: io::Error,
}

impl PortError {
    /// `switch` is the content of `/proc/sys/kernel/io_uring_disabled`, where it can be read.
    pub(crate) fn from_setup(source: io::Error, switch: Option<&str>) -> PortError {
        let (kind, cause) = match (source.raw_os_error(), switch.map(str::trim)) {
            (Some(libc::EPERM | libc::EACCES), Some("2")) => (
                PortErrorKind::Refused,
                "io_uring is switched off: run `sysctl -w kernel.io_uring_disabled=0`",
            ),
            (Some(libc::EPERM | libc::EACCES), Some("1")) => (
                PortErrorKind::Refused,
                "io_uring is for root and one group only: run `sysctl -w \
                 kernel.io_uring_disabled=0`, or add this user to the group whose number is in \
                 `sysctl kernel.io_uring_group`",
            ),
            (Some(libc::EPERM | libc::EACCES), _) => (
                PortErrorKind::Refused,
                "io_uring is refused by a security policy: allow io_uring_setup, io_uring_enter \
                 and io_uring_register in the container's seccomp profile, or the io_uring \
                 permission in SELinux (see `ausearch -m avc`)",
            ),
            (Some(libc::ENOSYS), _) => (
                PortErrorKind::TooOld,
                "this kernel has no io_uring, or a sandbox hides it: use Linux 5.15 or newer with \
                 CONFIG_IO_URING, outside such sandboxes",
            ),
            (Some(libc::ENOMEM | libc::EAGAIN), _) => (
                PortErrorKind::Memory,
                "no memory for io_uring: raise the limit of locked memory (`ulimit -l`, \
                 LimitMEMLOCK= in systemd) or free some",
            ),
            (Some(libc::EMFILE | libc::ENFILE), _) => (
                PortErrorKind::Io,
                "no file descriptor left for io_uring: raise `ulimit -n` (LimitNOFILE= in systemd)",
            ),
            _ => (PortErrorKind::Io, "io_uring could not be set up"),
        };
        PortError {
            kind,
            cause: cause.to_owned(),
            source,
        }
    }

    pub(crate) fn too_old(missing: &str) -> PortError {
        PortError {
            kind: PortErrorKind::TooOld,
            cause: format!("this kernel's io_uring has no {missing}: use Linux 5.15 or newer"),
            source: io::Error::from_raw_os_error(libc::ENOSYS),
        }
    }

    pub(crate) fn memory(source: io::Error) -> PortError {
        PortError {
            kind: PortErrorKind::Memory,
            cause: "no memory for bounce buffers".to_owned(),
            source,
        }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause, self.source)
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_names_the_fix() {
        for (errno, switch, kind, word) in [
            (
                libc::EPERM,
                Some("2\n"),
                PortErrorKind::Refused,
                "io_uring_disabled=0",
            ),
            (
                libc::EPERM,
                Some("1\n"),
                PortErrorKind::Refused,
                "io_uring_group",
            ),
            (libc::EPERM, Some("0\n"), PortErrorKind::Refused, "seccomp"),
            (libc::EACCES, None, PortErrorKind::Refused, "SELinux"),
            (libc::ENOSYS, None, PortErrorKind::TooOld, "CONFIG_IO_URING"),
            (libc::ENOMEM, None, PortErrorKind::Memory, "MEMLOCK"),
            (libc::EMFILE, None, PortErrorKind::Io, "NOFILE"),
        ] {
            let error = PortError::from_setup(io::Error::from_raw_os_error(errno), switch);
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
