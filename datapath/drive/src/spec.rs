//! How a drive is named on the command line and in the wanted state.
//!
//! What does not live here: looking at the drive. Parsing touches no file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use units::Size;

use crate::pace::PaceLaw;

/// Which drive to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveSpec {
    /// A regular file: `file:PATH[,size=1GiB][,create]`.
    File {
        /// Where it is.
        path: PathBuf,
        /// How many of its bytes are used; all of them when not given. Needed to create it.
        size: Option<Size>,
        /// Make the file now; refused when it exists. See [`DriveSpec::reopened`].
        create: bool,
    },
    /// A block device, or the generic device of an NVMe drive, by its path.
    BlockDevice {
        /// Where it is.
        path: PathBuf,
    },
    /// Memory of this process, gone with it: `mem:1GiB`.
    Memory {
        /// How large.
        size: Size,
    },
    /// Memory of this process that answers as slowly as a model of a drive. Has no text: who
    /// names models finds them, too.
    Paced {
        /// What it paces itself by.
        law: Box<PaceLaw>,
        /// How large.
        size: Size,
        /// No memory, as [`DriveSpec::Null`]: then bytes cost the processor as little as those that
        /// a drive moves by itself.
        forgets: bool,
    },
    /// Forgets writes and answers reads without touching memory: `null:1GiB`.
    Null {
        /// How large it says it is.
        size: Size,
    },
}

impl DriveSpec {
    /// The same drive for the next time: creating happens once, now, never at a restart.
    #[must_use]
    pub fn reopened(&self) -> DriveSpec {
        let mut spec = self.clone();
        if let DriveSpec::File { create, .. } = &mut spec {
            *create = false;
        }
        spec
    }

    /// The path, of those drives that have one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            DriveSpec::File { path, .. } | DriveSpec::BlockDevice { path } => Some(path),
            DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => None,
        }
    }
}

/// Why a text names no drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpecError {
    text: String,
    cause: String,
}

impl fmt::Display for ParseSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` names no drive: {}; write file:PATH[,size=1GiB][,create], the path of a block \
             device, mem:1GiB or null:1GiB",
            self.text, self.cause
        )
    }
}

impl std::error::Error for ParseSpecError {}

impl FromStr for DriveSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<DriveSpec, ParseSpecError> {
        parse(text).map_err(|cause| ParseSpecError {
            text: text.to_owned(),
            cause,
        })
    }
}

fn parse(text: &str) -> Result<DriveSpec, String> {
    if text.contains('\0') {
        return Err("a path has no zero byte".to_owned());
    }
    if let Some(rest) = text.strip_prefix("file:") {
        return parse_file(rest);
    }
    if let Some(size) = text.strip_prefix("mem:") {
        return Ok(DriveSpec::Memory {
            size: parse_size(size)?,
        });
    }
    if let Some(size) = text.strip_prefix("null:") {
        return Ok(DriveSpec::Null {
            size: parse_size(size)?,
        });
    }
    if text.starts_with('/') || text.starts_with("./") || text.starts_with("../") {
        return Ok(DriveSpec::BlockDevice {
            path: PathBuf::from(text),
        });
    }
    Err("a path begins with / or ./ and every other kind with its name".to_owned())
}

/// A path cannot hold a comma here: a mistyped option must not become part of a file name.
fn parse_file(rest: &str) -> Result<DriveSpec, String> {
    let mut parts = rest.split(',');
    let path = parts.next().unwrap_or_default();
    if path.is_empty() {
        return Err("the path is missing".to_owned());
    }
    let (mut size, mut create) = (None, false);
    for option in parts {
        match option.split_once('=') {
            Some(("size", value)) if size.is_none() => size = Some(parse_size(value)?),
            None if option == "create" && !create => create = true,
            _ => return Err(format!("option `{option}` is unknown or given twice")),
        }
    }
    if create && size.is_none() {
        return Err("`create` needs a size".to_owned());
    }
    Ok(DriveSpec::File {
        path: PathBuf::from(path),
        size,
        create,
    })
}

fn parse_size(text: &str) -> Result<Size, String> {
    let size: Size = text
        .parse()
        .map_err(|cause: units::ParseSizeError| cause.to_string())?;
    if size.0 == 0 {
        return Err("a drive has at least one block".to_owned());
    }
    Ok(size)
}

/// A size such that reading the text gives the same number again.
struct Exact(Size);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Size` rounds to two decimals for people; a spec must come back as it was.
        let text = self.0.to_string();
        if text.parse() == Ok(self.0) {
            f.write_str(&text)
        } else {
            write!(f, "{}", self.0.0)
        }
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveSpec::File { path, size, create } => {
                write!(f, "file:{}", path.display())?;
                if let Some(size) = size {
                    write!(f, ",size={}", Exact(*size))?;
                }
                if *create {
                    f.write_str(",create")?;
                }
                Ok(())
            }
            DriveSpec::BlockDevice { path } => write!(f, "{}", path.display()),
            DriveSpec::Memory { size } => write!(f, "mem:{}", Exact(*size)),
            DriveSpec::Paced { law, size, forgets } => {
                write!(f, "paced:{}", law.name())?;
                if law.slower() > 1 {
                    write!(f, ",scale=1/{}", law.slower())?;
                }
                if *forgets {
                    f.write_str(",content=none")?;
                }
                write!(f, ",size={}", Exact(*size))
            }
            DriveSpec::Null { size } => write!(f, "null:{}", Exact(*size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_print_as_they_were_read() {
        for text in [
            "file:/a/b",
            "file:rel/b,size=1GiB",
            "file:/a b,size=1.5GiB,create",
            "/dev/nvme0n1",
            "./dev",
            "mem:1GiB",
            "mem:1073742336",
            "null:8TiB",
        ] {
            let spec: DriveSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn options_are_understood_in_any_order() {
        let spec: DriveSpec = "file:/a,create,size=4MiB".parse().unwrap();
        let file = |create| DriveSpec::File {
            path: "/a".into(),
            size: Some(Size(4 << 20)),
            create,
        };
        assert_eq!(spec, file(true));
        assert_eq!(spec.reopened(), file(false));
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for text in [
            "",
            "file:",
            "file:,create",
            "file:/a,create",
            "file:/a,sise=1GiB",
            "file:/a,size=1GiB,size=2GiB",
            "file:/a,size=1GiB,create,create",
            "file:/a,create=yes,size=1GiB",
            "file:/a,size=0",
            "mem:",
            "mem:0",
            "mem:much",
            "null:-1",
            "nvme0n1",
            "paced:hdd",
            "/dev/\0",
        ] {
            let error = text.parse::<DriveSpec>().expect_err(text);
            assert!(
                error.to_string().contains(&format!("`{text}`")),
                "{text}: {error}"
            );
        }
    }
}
