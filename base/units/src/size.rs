//! Sizes as people write them, and the two block sizes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes; reads and prints `512`, `64KiB`, `10GiB`, `1.5TB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSizeError {
    text: String,
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a size; write for example 512, 64KiB, 10GiB or 1.5TB",
            self.text
        )
    }
}

impl std::error::Error for ParseSizeError {}

const UNITS: [(&str, u64); 11] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Size, ParseSizeError> {
        let wrong = || ParseSizeError {
            text: text.to_owned(),
        };
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, bytes)| text.strip_suffix(name).map(|number| (number, *bytes)))
            .unwrap_or((text, 1));
        let (whole, fraction) = number
            .trim_end()
            .split_once('.')
            .unwrap_or((number.trim_end(), ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| wrong())?);
        let fraction: u128 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().map_err(|_| wrong())?
        };
        let bytes = u128::from(whole) * u128::from(unit) + fraction * u128::from(unit) / scale;
        u64::try_from(bytes).map(Size).map_err(|_| wrong())
    }
}

impl fmt::Display for Size {
    /// The largest binary unit in which the size has at most two decimals, exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in UNITS[..5].iter().rev() {
            if self.0 < *bytes {
                continue;
            }
            let hundredths = u128::from(self.0) * 100 / u128::from(*bytes);
            let (whole, rest) = (hundredths / 100, hundredths % 100);
            return match (rest, rest % 10) {
                (0, _) => write!(f, "{whole}{name}"),
                (_, 0) => write!(f, "{whole}.{}{name}", rest / 10),
                _ => write!(f, "{whole}.{rest:02}{name}"),
            };
        }
        write!(f, "{}", self.0)
    }
}

/// The unit of addressing: 512 or 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockSize {
    /// 512 bytes.
    B512 = 9,
    /// 4096 bytes.
    B4096 = 12,
}

impl BlockSize {
    /// The block size of so many bytes, if there is one.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<BlockSize> {
        match bytes {
            512 => Some(BlockSize::B512),
            4096 => Some(BlockSize::B4096),
            _ => None,
        }
    }

    /// In bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// The power of two.
    #[inline]
    #[must_use]
    pub fn shift(self) -> u32 {
        // Asked many times for each request, so the value is the answer.
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("64KiB", 65536),
            ("10GiB", 10 << 30),
            ("1.5TB", 1_500_000_000_000),
            ("0.5KiB", 512),
            ("7B", 7),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "GiB",
            "-1",
            "1.2.3",
            "1e3",
            "99999999999PiB",
            "0x10",
            "ten",
            "1.KiBKiB",
            "1 2",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512"),
            (65536, "64KiB"),
            (3 << 29, "1.5GiB"),
            (1 << 40, "1TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
