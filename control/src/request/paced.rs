//! The text of a paced drive:
//! `paced:MODEL[,scale=1/1000][,size=1GiB][,interference=30%][,content=none]`.
//!
//! What does not live here: the models. Whether there is one of that name is found out when the
//! drive is opened.

use units::Size;

use super::{DriveSpec, ParseSpecError};

/// The size when nobody says. Memory is taken only as it is written.
const SIZE_BYTES: u64 = 1 << 30;
/// The most that a drive may be slowed down.
const SLOWER_MAX: u32 = 1_000_000;

/// Reads what follows `paced:`.
pub(super) fn parse(rest: &str) -> Result<DriveSpec, ParseSpecError> {
    let mut parts = rest.split(',');
    let model = parts.next().unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_path = model.starts_with('/') && !model.contains('\0');
    if model.is_empty() || !(is_path || model.bytes().all(is_name)) {
        return Err(ParseSpecError(format!(
            "`{model}` is neither a drive model's name nor the absolute path of its file; write \
             for example paced:kioxia-cm7,scale=1/1000"
        )));
    }
    let (mut slower, mut size_bytes, mut interference_percent) = (None, None, None);
    let mut forgets = false;
    for part in parts {
        match part.split_once('=') {
            Some(("scale", text)) if slower.is_none() => slower = Some(parse_scale(text)?),
            Some(("size", text)) if size_bytes.is_none() => {
                size_bytes = Some(super::parse_size(text)?);
            }
            Some(("interference", text)) if interference_percent.is_none() => {
                interference_percent = Some(parse_percent(text)?);
            }
            Some(("content", "none")) if !forgets => forgets = true,
            _ => {
                return Err(ParseSpecError(format!(
                    "`{part}` is not an option of paced:MODEL, or given twice; there are \
                     scale=1/N, size=SIZE, interference=PERCENT and content=none"
                )));
            }
        }
    }
    Ok(DriveSpec::Paced {
        model: model.to_owned(),
        slower: slower.unwrap_or(1),
        interference_percent: interference_percent.unwrap_or(0),
        size_bytes: size_bytes.unwrap_or(SIZE_BYTES),
        forgets,
    })
}

/// `1/1000`, or 1.
fn parse_scale(text: &str) -> Result<u32, ParseSpecError> {
    let wrong = || {
        ParseSpecError(format!(
            "`{text}` is not a scale; write 1 or 1/N, N up to {SLOWER_MAX}"
        ))
    };
    let digits = match text.strip_prefix("1/") {
        Some(digits) => digits,
        None if text == "1" => "1",
        None => return Err(wrong()),
    };
    let number = digits.parse::<u32>().ok();
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    number
        .filter(|slower| plain && (1..=SLOWER_MAX).contains(slower))
        .ok_or_else(wrong)
}

/// `30%` or `30`.
fn parse_percent(text: &str) -> Result<u8, ParseSpecError> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u8>().ok();
    number
        .filter(|percent| plain && *percent <= 100)
        .ok_or_else(|| {
            ParseSpecError(format!(
                "`{text}` is not a part of a hundred; write for example interference=30%"
            ))
        })
}

/// The canonical text.
pub(super) fn write(
    f: &mut std::fmt::Formatter<'_>,
    model: &str,
    (slower, interference_percent, forgets): (u32, u8, bool),
    size_bytes: u64,
) -> std::fmt::Result {
    write!(f, "paced:{model}")?;
    if slower > 1 {
        write!(f, ",scale=1/{slower}")?;
    }
    if interference_percent > 0 {
        write!(f, ",interference={interference_percent}%")?;
    }
    if forgets {
        f.write_str(",content=none")?;
    }
    write!(f, ",size={size_bytes}")
}

/// For people: the size rounded.
impl DriveSpec {
    /// The text with its size in a unit for people.
    #[must_use]
    pub fn for_people(&self) -> String {
        match self {
            DriveSpec::Paced { size_bytes, .. } => {
                let exact = format!(",size={size_bytes}");
                let text = self.to_string();
                let short = text.strip_suffix(&exact).unwrap_or(&text);
                format!("{short},size={}", Size(*size_bytes))
            }
            DriveSpec::File { path, .. } => format!("file:{}", path.display()),
            DriveSpec::Block { path } => path.display().to_string(),
            DriveSpec::Memory { size_bytes } => format!("mem:{}", Size(*size_bytes)),
            DriveSpec::Null { size_bytes } => format!("null:{}", Size(*size_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(slower: u32, interference_percent: u8, size_bytes: u64) -> DriveSpec {
        DriveSpec::Paced {
            model: "kioxia-cm7".into(),
            slower,
            interference_percent,
            size_bytes,
            forgets: false,
        }
    }

    #[test]
    fn paced_drives_are_read_and_written_and_read_again() {
        for (text, spec) in [
            ("paced:kioxia-cm7", paced(1, 0, 1 << 30)),
            ("paced:kioxia-cm7,scale=1", paced(1, 0, 1 << 30)),
            (
                "paced:kioxia-cm7,scale=1/1000,size=64MiB",
                paced(1000, 0, 64 << 20),
            ),
            (
                "paced:kioxia-cm7,interference=30%,scale=1/1000000",
                paced(1_000_000, 30, 1 << 30),
            ),
            ("paced:kioxia-cm7,interference=100", paced(1, 100, 1 << 30)),
        ] {
            let read: DriveSpec = text.parse().expect(text);
            assert_eq!(read, spec);
            assert_eq!(read.to_string().parse(), Ok(spec), "{read}");
        }
        let forgets: DriveSpec = "paced:x,content=none,size=4KiB".parse().expect("an option");
        assert_eq!(forgets.to_string(), "paced:x,content=none,size=4096");
        assert_eq!(forgets.to_string().parse(), Ok(forgets));
        let file: DriveSpec = "paced:/a/b.toml,scale=1/10".parse().expect("a path");
        assert_eq!(
            file.to_string(),
            "paced:/a/b.toml,scale=1/10,size=1073741824"
        );
        assert_eq!(file.for_people(), "paced:/a/b.toml,scale=1/10,size=1GiB");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "paced:",
            "paced:,size=1GiB",
            "paced:a b",
            "paced:rel/path",
            "paced:x,scale=0",
            "paced:x,scale=2",
            "paced:x,scale=1/0",
            "paced:x,scale=1/+5",
            "paced:x,scale=1/1000001",
            "paced:x,scale=0.001",
            "paced:x,scale=1/2,scale=1/2",
            "paced:x,size=0",
            "paced:x,size=1,size=1",
            "paced:x,interference=101",
            "paced:x,interference=-1",
            "paced:x,interference=%",
            "paced:x,create",
            "paced:x,content=all",
            "paced:x,content=none,content=none",
        ] {
            assert!(text.parse::<DriveSpec>().is_err(), "{text}");
        }
    }
}
