//! Names and drive identities: bounded text, so that a record can always hold it.

use std::fmt;

use units::limits::NAME_BYTES_MAX;

/// Bytes of a drive's identity in a member record; longer ones keep their end.
pub const IDENTITY_BYTES_MAX: usize = 120;

/// Whatever names a drive outside of what is written on it (WWID, serial, path): a hint only.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveIdentity(String);

impl DriveIdentity {
    /// Keeps the last [`IDENTITY_BYTES_MAX`] bytes of `text`, where serials and file names differ.
    #[must_use]
    pub fn new(text: &str) -> DriveIdentity {
        let mut start = text.len().saturating_sub(IDENTITY_BYTES_MAX);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        DriveIdentity(text[start..].to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for DriveIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text is not a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    name: String,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a name: use 1 to {NAME_BYTES_MAX} of the characters A-Z a-z 0-9 _ . -",
            self.name.escape_default()
        )
    }
}

impl std::error::Error for InvalidName {}

/// Accepts 1 to 63 bytes of `[A-Za-z0-9_.-]`.
///
/// # Errors
/// When `name` is something else.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(known) {
        return Ok(());
    }
    Err(InvalidName {
        name: name.to_owned(),
    })
}

/// Reads a zero-padded name.
pub(super) fn decode_name(bytes: &[u8; 64]) -> Option<String> {
    let length = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let (name, padding) = bytes.split_at(length);
    let name = std::str::from_utf8(name).ok()?;
    (padding.iter().all(|byte| *byte == 0) && check_name(name).is_ok()).then(|| name.to_owned())
}

/// Zero-pads a name.
///
/// # Panics
/// When it is not a name: whoever made the record has checked.
pub(super) fn encode_name(name: &str) -> [u8; 64] {
    assert!(
        check_name(name).is_ok(),
        "names are checked where they enter"
    );
    let mut bytes = [0; 64];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}
