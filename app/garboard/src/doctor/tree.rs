//! Reading `/sys` and `/proc`, or a made-up copy of them.
//!
//! Everything here is advice: a missing file is a missing fact, never an error.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nodes::Nodes;

/// The root of what is read.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

/// Files longer than this are not read: those of `/sys` and `/proc` that matter here are short,
/// `/proc/cpuinfo` of a large host being the longest.
const FILE_BYTES_MAX: usize = 4 << 20;

impl Tree {
    pub(crate) fn new(root: PathBuf) -> Tree {
        Tree { root }
    }

    /// Whether this is the host itself.
    pub(crate) fn is_host(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether there is anything to read. What of it is missing is a missing fact; all of it, a
    /// mistake in the name.
    pub(crate) fn is_there(&self) -> bool {
        self.at("/sys").is_dir() || self.at("/proc").is_dir()
    }

    /// What errors call it.
    pub(crate) fn object(&self) -> String {
        format!("folder {}", self.root.display())
    }

    /// Its NUMA nodes.
    pub(super) fn nodes(&self) -> Nodes {
        Nodes::read(&self.root)
    }

    /// What its processor and its kernel are called.
    pub(crate) fn names_of_host(&self) -> (Option<String>, Option<String>) {
        let info = self.text("/proc/cpuinfo");
        let processor = info.and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let release = self.text("/proc/sys/kernel/osrelease");
        (processor, release.map(|release| format!("Linux {release}")))
    }

    /// How many CPUs it has.
    pub(crate) fn cpus_of_host(&self) -> usize {
        let info = self.text("/proc/cpuinfo").unwrap_or_default();
        let begins = |line: &&str| {
            line.split_once(':')
                .is_some_and(|(key, _)| key.trim() == "processor")
        };
        info.lines().filter(begins).count()
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The trimmed text of a file, if it is there and not empty.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        text(&self.at(path))
    }

    /// A number that is alone in a file.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The names in a folder, in order; of numbered names, by number.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        names(&self.at(path))
    }

    /// The folder itself, without links.
    pub(super) fn real(&self, path: &str) -> Option<PathBuf> {
        let real = fs::canonicalize(self.at(path)).ok()?;
        real.starts_with(fs::canonicalize(&self.root).ok()?)
            .then_some(real)
    }

    /// Major and minor number of the device that a file lies on, or that it is.
    pub(super) fn device_of(&self, path: &Path) -> Option<(u64, u64)> {
        let metadata = fs::metadata(self.at(path.to_str()?)).ok()?;
        let device = if metadata.rdev() == 0 {
            metadata.dev()
        } else {
            metadata.rdev()
        };
        Some((major(device), minor(device)))
    }
}

/// See `makedev(3)`; the split that Linux has had since 2.6.
fn major(device: u64) -> u64 {
    (device >> 8 & 0xFFF) | (device >> 32 & 0xFFFF_F000)
}

/// See [`major`].
fn minor(device: u64) -> u64 {
    (device & 0xFF) | (device >> 12 & 0xFFFF_FF00)
}

/// See [`Tree::text`].
pub(super) fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty() && text.len() <= FILE_BYTES_MAX).then(|| text.to_owned())
}

/// See [`Tree::names`].
pub(super) fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_by_key(|name| (number_in(name), name.clone()));
    names
}

/// The number that a name ends with or holds, for a natural order.
fn number_in(name: &str) -> u64 {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// CPUs as the kernel and our options write them: `0-3,8`.
pub(super) fn as_list(numbers: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let parts = parts.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    parts.collect::<Vec<_>>().join(",")
}
