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

/// Whether `key` is its name or its uuid.
pub(crate) fn is_named<T: Named>(object: &T, key: &str) -> bool {
    object.name() == key || Uuid::try_parse(key).is_ok_and(|uuid| uuid == object.uuid())
}

/// The object that `key` names, by name or by uuid.
///
/// # Errors
/// `NotFound`, with the command that lists what is there. `Invalid` for a name that several have,
/// as volumes may of which one lies on drives that came from elsewhere.
pub fn find<T: Named>(mut objects: Vec<T>, key: &str) -> Answer<T> {
    objects.retain(|candidate| is_named(candidate, key));
    let object = object::<T>(&key.escape_debug().to_string());
    let kind = T::KIND;
    if objects.len() > 1 {
        let mut uuids: Vec<String> = objects.iter().map(|one| one.uuid().to_string()).collect();
        let message = format!("{} {kind}s are called this", uuids.len());
        uuids.sort_unstable();
        uuids.dedup();
        let next = if uuids.len() > 1 {
            format!("name it by its uuid: {}", uuids.join(" or "))
        } else {
            // Somebody has chosen the uuid himself, and lives with both by one at a time.
            format!(
                "they have one uuid: stop the array of the other one, which `garboard {kind} list` \
                 shows"
            )
        };
        return Err(EngineError::new(ErrorKind::Invalid, object, message).next(next));
    }
    objects.pop().ok_or_else(|| {
        let message = format!("there is no such {kind}");
        let next = format!("`garboard {kind} list` shows what is there");
        EngineError::new(ErrorKind::NotFound, object, message).next(next)
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
/// uuid and name is the same create again, unless `differs` names what is not as it was.
///
/// # Errors
/// `Exists` when the name or the uuid is another object's, or something differs; `Invalid` for a
/// name that is none.
pub fn create<T: Named>(
    mut objects: Vec<T>,
    name: &str,
    uuid: Option<Uuid>,
    differs: impl Fn(&T) -> Vec<&'static str>,
) -> Answer<Create<T>> {
    let invalid = |message| EngineError::new(ErrorKind::Invalid, object::<T>(""), message);
    check_name(name).map_err(|message| invalid(message).next("choose another name"))?;
    // Whose uuid it is decides before whose name it is: another one may have that as well.
    objects.sort_by_key(|candidate| Some(candidate.uuid()) != uuid);
    for candidate in objects {
        let same_uuid = Some(candidate.uuid()) == uuid;
        let again = same_uuid && candidate.name() == name;
        let differs = if again {
            differs(&candidate)
        } else {
            Vec::new()
        };
        if again && differs.is_empty() {
            return Ok(Create::There(candidate));
        }
        let (taken, next) = if again {
            (
                format!("it is there already, with another {}", differs.join(", ")),
                "repeat the command as it was, or give another name and uuid",
            )
        } else if same_uuid {
            (
                format!("it has the uuid {} already", candidate.uuid()),
                "use another uuid",
            )
        } else if candidate.name() == name {
            (
                "there is one of this name already".to_owned(),
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

/// The names of what differs.
pub(crate) fn differing<const N: usize>(same: [(&'static str, bool); N]) -> Vec<&'static str> {
    let differs = same.into_iter().filter(|(_, same)| !same);
    differs.map(|(name, _)| name).collect()
}
