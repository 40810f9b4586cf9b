//! Names of objects, and how a name or a uuid finds its object.

use units::limits::NAME_BYTES_MAX;
use uuid::Uuid;

use crate::view::{ArrayView, DriveView, ExportView, PoolView, VolumeView};
use crate::{Answer, EngineError, ErrorKind};

/// Checks that `text` can be the name of an object.
///
/// # Errors
/// A sentence that says what a name is.
pub fn check_name(text: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(allowed) {
        return Err(format!(
            "`{}` is not a name; a name is 1 to {NAME_BYTES_MAX} letters, digits, `_`, `.` or `-`",
            text.escape_debug()
        ));
    }
    // Names become parts of paths.
    if text == "." || text == ".." {
        return Err(format!("`{text}` is not a name but a folder"));
    }
    if Uuid::try_parse(text).is_ok() {
        return Err(format!("`{text}` is a uuid and cannot be a name as well"));
    }
    Ok(())
}

/// Checks that `text` can be a name or a uuid.
///
/// # Errors
/// As [`check_name`].
pub fn check_key(text: &str) -> Result<(), String> {
    match Uuid::try_parse(text) {
        Ok(_) => Ok(()),
        Err(_) => check_name(text),
    }
}

/// An object that has a name and a uuid.
pub trait Named {
    /// `drive`, `array`, `pool`, `volume` or `export`.
    const KIND: &'static str;
    /// Its name.
    fn name(&self) -> &str;
    /// Its uuid.
    fn uuid(&self) -> Uuid;
}

macro_rules! named {
    ($view:ty, $kind:literal) => {
        impl Named for $view {
            const KIND: &'static str = $kind;
            fn name(&self) -> &str {
                &self.name
            }
            fn uuid(&self) -> Uuid {
                self.uuid
            }
        }
    };
}

named!(DriveView, "drive");
named!(ArrayView, "array");
named!(VolumeView, "volume");
named!(ExportView, "export");
named!(PoolView, "pool");

/// `drive d3`: how an error names an object.
#[must_use]
pub fn object<T: Named>(name: &str) -> String {
    format!("{} {name}", T::KIND)
}

/// The object that `key` names, by name or by uuid.
///
/// # Errors
/// `NotFound`, with the command that lists what is there.
pub fn find<T: Named>(objects: Vec<T>, key: &str) -> Answer<T> {
    let uuid = Uuid::try_parse(key).ok();
    objects
        .into_iter()
        .find(|candidate| candidate.name() == key || Some(candidate.uuid()) == uuid)
        .ok_or_else(|| {
            let object = object::<T>(&key.escape_debug().to_string());
            let kind = T::KIND;
            EngineError::new(
                ErrorKind::NotFound,
                object,
                format!("there is no such {kind}"),
            )
            .next(format!("`garboard {kind} list` shows what is there"))
        })
}

/// What a create comes to when its name or uuid may be in use already.
#[derive(Debug)]
pub enum Create<T> {
    /// Make it, under this uuid.
    New(Uuid),
    /// It is there already, as asked: the create came twice.
    There(T),
}

/// Decides whether a create makes something new. With a uuid a create is idempotent: the same
/// uuid and `same` shape is the same create again.
///
/// # Errors
/// `Exists` when the name or the uuid is another object's; `Invalid` for a name that is none.
pub fn create<T: Named>(
    objects: Vec<T>,
    name: &str,
    uuid: Option<Uuid>,
    same: impl Fn(&T) -> bool,
) -> Answer<Create<T>> {
    let invalid = |message| EngineError::new(ErrorKind::Invalid, object::<T>(""), message);
    check_name(name).map_err(|message| invalid(message).next("choose another name"))?;
    for candidate in objects {
        let same_uuid = Some(candidate.uuid()) == uuid;
        if same_uuid && candidate.name() == name && same(&candidate) {
            return Ok(Create::There(candidate));
        }
        let (taken, next) = if same_uuid {
            (
                format!("uuid {} is another {}'s", candidate.uuid(), T::KIND),
                "use another uuid",
            )
        } else if candidate.name() == name {
            (
                format!("there is a {} of this name", T::KIND),
                "choose another name",
            )
        } else {
            continue;
        };
        let object = object::<T>(candidate.name());
        return Err(EngineError::new(ErrorKind::Exists, object, taken).next(next));
    }
    Ok(Create::New(uuid.unwrap_or_else(Uuid::new_v4)))
}
