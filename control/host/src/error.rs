//! Refusals of the layers below, in the words of the API.

use array::Refusal;
use control::{EngineError, ErrorKind};
use drive::{OpenError, OpenErrorKind};
use engine::{ChangeError, StartError};
use rustix::process::{Resource, getrlimit};
use vhost_user_blk::{BindError, BindErrorKind};
use volume::VolumeError;

pub(crate) fn error(
    kind: ErrorKind,
    object: impl Into<String>,
    message: impl Into<String>,
) -> EngineError {
    EngineError::new(kind, object, message)
}

pub(crate) fn not_found(kind: &str, name: &str) -> EngineError {
    let next = format!("`garboard {kind} list` shows what there is");
    error(
        ErrorKind::NotFound,
        format!("{kind} {name}"),
        "there is none of this name",
    )
    .next(next)
}

/// An error of a layer below, whose text ends with the way out after its last `; ` if it knows
/// one; `otherwise` is the way out if it does not.
fn said(kind: ErrorKind, object: impl Into<String>, text: &str, otherwise: &str) -> EngineError {
    match text.rsplit_once("; ") {
        Some((cause, next)) => error(kind, object, cause).next(next),
        None => error(kind, object, text).next(otherwise),
    }
}

/// A geometry that cannot be.
pub(crate) fn of_geometry(object: &str, wrong: &array::GeometryError) -> EngineError {
    let next = "`garboard array create --help` names what fits";
    said(ErrorKind::Invalid, object, &wrong.to_string(), next)
}

pub(crate) fn of_open(name: &str, open: &OpenError) -> EngineError {
    let kind = match open.kind {
        OpenErrorKind::NotFound => ErrorKind::NotFound,
        OpenErrorKind::Exists => ErrorKind::Exists,
        OpenErrorKind::InUse => ErrorKind::Busy,
        OpenErrorKind::Permission
        | OpenErrorKind::WrongKind
        | OpenErrorKind::Size
        | OpenErrorKind::Unsupported => ErrorKind::Invalid,
        OpenErrorKind::Io => ErrorKind::Internal,
    };
    let next = match open.kind {
        OpenErrorKind::NotFound => "bring the drive, or give the path where it is",
        OpenErrorKind::Exists => "leave out `create` to use it as it is",
        OpenErrorKind::InUse => "stop whoever holds it, or choose another drive",
        OpenErrorKind::Permission
        | OpenErrorKind::WrongKind
        | OpenErrorKind::Size
        | OpenErrorKind::Unsupported => "choose another drive or size",
        OpenErrorKind::Io => "the kernel's log may say more",
    };
    // It is about a drive, as the object says already.
    let text = open.to_string();
    let text = text.strip_prefix("drive ").unwrap_or(&text);
    said(kind, format!("drive {name}"), text, next)
}

/// What to do about a drive that does not answer.
pub(crate) const WAY_TO_DRIVE: &str = "look at the kernel's log, and at the way to the drive";

pub(crate) fn of_io(object: String, doing: &str, source: &std::io::Error) -> EngineError {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if drive::Unanswered::is(source) {
        return error(ErrorKind::Unreachable, object, format!("{doing}: {source}"))
            .next(WAY_TO_DRIVE);
    }
    if source.kind() == FileTooLarge {
        let (limit, next) = file_limit();
        let text = format!("{doing} failed: its file may not be that large: {limit}");
        return error(ErrorKind::Full, object, text).next(next);
    }
    if matches!(source.kind(), StorageFull | QuotaExceeded) {
        let text = format!("{doing} failed: the file system that it lies on is full");
        return error(ErrorKind::Full, object, text)
            .next("make room there; `garboard drive list` says where its file is");
    }
    error(
        ErrorKind::Internal,
        object,
        format!("{doing} failed: {source}"),
    )
    .next("the kernel's log may say more; replace the drive if it happens again")
}

/// Why the kernel refuses to write a file so far from its beginning, and what to do about it.
pub(crate) fn file_limit() -> (String, String) {
    let Some(bytes) = getrlimit(Resource::Fsize).current else {
        let next = "replace the drive by one on a file system of larger files";
        return ("no file of its file system is".to_owned(), next.to_owned());
    };
    let limit = format!("the engine may not write beyond byte {bytes} of a file (RLIMIT_FSIZE)");
    let next = format!(
        "`prlimit --pid {} --fsize=unlimited` lifts that now, and LimitFSIZE=infinity of its unit \
         for good",
        std::process::id()
    );
    (limit, next)
}

pub(crate) fn of_refusal(object: String, refusal: &Refusal) -> EngineError {
    let kind = match refusal {
        Refusal::Unsafe(_) => ErrorKind::Unsafe,
        Refusal::Invalid(_) => ErrorKind::Invalid,
        Refusal::Full(_) => ErrorKind::Full,
        Refusal::Failed(_) => ErrorKind::Degraded,
    };
    let next = match refusal {
        Refusal::Unsafe(_) => "replace a lost member first",
        Refusal::Invalid(_) => "`garboard array show` tells its state",
        Refusal::Full(_) => "delete volumes that are not needed",
        Refusal::Failed(_) => "see its drives; stop it and start it again when they are well",
    };
    said(kind, object, &refusal.to_string(), next)
}

/// What to do about drives that hang.
pub(crate) const WAY_OUT_OF_HANGS: &str =
    "look at its drives (`garboard drive list`), and remove the one that hangs: --force";

/// What was asked for is done once drives answer, and nobody knows when that is.
pub(crate) fn late(object: impl Into<String>) -> EngineError {
    let text = "its drives have not answered yet, and it is done as soon as they do";
    error(ErrorKind::Busy, object, text).next(WAY_OUT_OF_HANGS)
}

/// What was asked for is not done, and what was begun of it is taken back once drives answer.
pub(crate) fn late_and_taken_back(object: impl Into<String>) -> EngineError {
    let text = "its drives have not answered yet; what it has begun is taken back when they do";
    error(ErrorKind::Busy, object, text).next(format!("ask again then; {WAY_OUT_OF_HANGS}"))
}

pub(crate) fn of_change(object: String, change: &ChangeError) -> EngineError {
    match change {
        ChangeError::Refused(refusal) => of_refusal(object, refusal),
        ChangeError::Late => late(object),
    }
}

pub(crate) fn of_start(object: String, start: &StartError) -> EngineError {
    match start {
        StartError::Refused(refusal) => of_refusal(object, refusal),
        StartError::Late => late(object),
        StartError::Memory { .. } => error(ErrorKind::Full, object, start.to_string())
            .next("stop another array, or give more with `garboard serve --memory SIZE`"),
        StartError::Port(_) | StartError::Io(_) | StartError::Stopped | StartError::Shard(_) => {
            error(ErrorKind::Internal, object, start.to_string())
        }
    }
}

pub(crate) fn of_volume(object: String, volume: &VolumeError) -> EngineError {
    let kind = match volume {
        VolumeError::NameTaken { .. } | VolumeError::UuidTaken { .. } => ErrorKind::Exists,
        VolumeError::NotFound { .. } => ErrorKind::NotFound,
        VolumeError::TooMany | VolumeError::NoSpace { .. } | VolumeError::RecordFull(_) => {
            ErrorKind::Full
        }
        VolumeError::Busy { .. } => ErrorKind::Busy,
        VolumeError::Name(_) | VolumeError::Size { .. } | VolumeError::Shrink { .. } => {
            ErrorKind::Invalid
        }
    };
    let next = match volume {
        VolumeError::NameTaken { .. } | VolumeError::UuidTaken { .. } => "choose another",
        VolumeError::NotFound { .. } => "`garboard volume list` shows what there is",
        VolumeError::TooMany | VolumeError::NoSpace { .. } | VolumeError::RecordFull(_) => {
            "choose a smaller size, or delete volumes that are not needed"
        }
        VolumeError::Busy { .. } => "try again when that is done",
        VolumeError::Name(_) => "choose another name",
        VolumeError::Size { .. } => "choose a multiple of the block",
        VolumeError::Shrink { .. } => "make a smaller volume and copy what is to be kept",
    };
    said(kind, object, &volume.to_string(), next)
}

pub(crate) fn of_bind(object: String, bind: &BindError) -> EngineError {
    let kind = match bind.kind {
        BindErrorKind::InUse => ErrorKind::Busy,
        BindErrorKind::NotASocket | BindErrorKind::Path => ErrorKind::Invalid,
        BindErrorKind::Io => ErrorKind::Internal,
    };
    let next = match bind.kind {
        BindErrorKind::InUse | BindErrorKind::NotASocket | BindErrorKind::Path => {
            "choose another --socket"
        }
        BindErrorKind::Io => "the kernel's log may say more",
    };
    said(kind, object, &bind.to_string(), next)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_file_that_may_not_grow_is_no_fault_of_its_drive_nor_of_its_file_system() {
        let told = of_io(
            "drive d0".to_owned(),
            "writing to it",
            &io::ErrorKind::FileTooLarge.into(),
        );
        assert_eq!(told.kind, ErrorKind::Full);
        let text = told.to_string();
        assert!(text.contains("may not be that large"), "{text}");
        assert!(!text.contains("make room"), "{text}");
    }

    #[test]
    fn a_full_file_system_is_no_fault_of_its_drive() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let told = of_io("drive d0".to_owned(), "writing to it", &kind.into());
            assert_eq!(told.kind, ErrorKind::Full);
            let text = told.to_string();
            assert!(
                text.contains("make room there") && !text.contains("replace"),
                "{text}"
            );
        }
    }
}
