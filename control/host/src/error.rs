//! Refusals of the layers below, in the words of the API.

use array::Refusal;
use control::{EngineError, ErrorKind};
use drive::{OpenError, OpenErrorKind};
use engine::StartError;
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
    error(kind, format!("drive {name}"), open.to_string())
}

pub(crate) fn of_io(object: String, doing: &str, source: &std::io::Error) -> EngineError {
    error(
        ErrorKind::Internal,
        object,
        format!("{doing} failed: {source}"),
    )
}

pub(crate) fn of_refusal(object: String, refusal: &Refusal) -> EngineError {
    let kind = match refusal {
        Refusal::Unsafe(_) => ErrorKind::Unsafe,
        Refusal::Invalid(_) => ErrorKind::Invalid,
        Refusal::Full(_) => ErrorKind::Full,
        Refusal::Failed(_) => ErrorKind::Degraded,
    };
    error(kind, object, refusal.to_string())
}

pub(crate) fn of_start(object: String, start: &StartError) -> EngineError {
    match start {
        StartError::Refused(refusal) => of_refusal(object, refusal),
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
    error(kind, object, volume.to_string())
}

pub(crate) fn of_bind(object: String, bind: &BindError) -> EngineError {
    let kind = match bind.kind {
        BindErrorKind::InUse => ErrorKind::Busy,
        BindErrorKind::NotASocket | BindErrorKind::Path => ErrorKind::Invalid,
        BindErrorKind::Io => ErrorKind::Internal,
    };
    error(kind, object, bind.to_string())
}
