//! Crashes while somebody was served: noted by the process that crashes, counted at the next start.
//!
//! A request that meets a bug of ours is done again after every restart, from the in-flight memory
//! of its guest, and would end the engine again and again, for all guests. So a process that
//! panics or faults while it works for an export writes a line into a file of the state directory
//! before it ends; a kill or a power failure writes none. At a start an export with
//! [`CRASHES_HELD_BACK`] such lines within [`CRASH_WINDOW`] is *held back* (`service/held.rs`):
//! not served until somebody says so, or another version of the program starts.
//!
//! The file is a hint: whatever is in it, nothing is worse than crashing once more.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use units::limits::{CRASH_WINDOW, CRASHES_HELD_BACK};
use uuid::Uuid;

/// The file in the state directory.
pub const FILE_NAME: &str = "crashes";
/// So much of the end of the file is looked at.
const FILE_BYTES_MAX: u64 = 64 << 10;
const LINE_BYTES_MAX: usize = 1024;
/// How every line begins: what it is, and its format.
const HEAD: &str = "garboard-crash 1";
const FILE_MODE: u32 = 0o600;

/// For whom a process worked when it crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspect {
    /// For the guest of this export.
    Export(Uuid),
    /// For this array: a request of one of its exports, or its own work.
    Array(Uuid),
}

impl Suspect {
    /// The uuid of the export or array.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        match self {
            Suspect::Export(uuid) | Suspect::Array(uuid) => uuid,
        }
    }
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suspect::Export(uuid) => write!(f, "export {uuid}"),
            Suspect::Array(uuid) => write!(f, "array {uuid}"),
        }
    }
}

/// A crash, as the process that crashed told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// When: seconds since 1970 UTC.
    pub at_s: u64,
    /// Of the program.
    pub version: String,
    /// For whom it worked.
    pub suspect: Suspect,
    /// What it said.
    pub message: String,
}

impl Crash {
    fn parse(line: &str) -> Option<Crash> {
        let mut words = line.strip_prefix(HEAD)?.strip_prefix(' ')?.splitn(5, ' ');
        let at_s = words.next()?.parse().ok()?;
        let version = words.next()?.to_owned();
        let kind = words.next()?;
        let uuid = Uuid::try_parse(words.next()?).ok()?;
        let suspect = match kind {
            "export" => Suspect::Export(uuid),
            "array" => Suspect::Array(uuid),
            _ => return None,
        };
        let message = words.next()?.to_owned();
        Some(Crash {
            at_s,
            version,
            suspect,
            message,
        })
    }
}

/// Somebody who is not served because its requests crashed the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// Who was suspected: the export, or its whole array.
    pub suspect: Suspect,
    /// How often it crashed.
    pub crashes: usize,
    /// When it crashed last: seconds since 1970 UTC.
    pub at_s: u64,
    /// Of the program that crashed; another one tries again.
    pub version: String,
    /// What it said last.
    pub message: String,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = CRASH_WINDOW.as_secs() / 60;
        let whose = match self.suspect {
            Suspect::Export(_) => "its requests",
            Suspect::Array(_) => "requests to its array, perhaps its own,",
        };
        write!(
            f,
            "held back: {whose} crashed the engine {} times within {minutes} minutes, last with: {}",
            self.crashes, self.message
        )
    }
}

/// Who is to be held back by a program of this version, and the crashes that still count for
/// nobody. Those of other versions and those too long ago are forgotten.
#[must_use]
pub fn judge(crashes: &[Crash], now_s: u64, version: &str) -> (Vec<HeldBack>, Vec<Crash>) {
    let recent = |crash: &&Crash| {
        // A clock that was set back leaves crashes in the future.
        crash.version == version && crash.at_s.abs_diff(now_s) <= CRASH_WINDOW.as_secs()
    };
    let recent: Vec<Crash> = crashes.iter().filter(recent).cloned().collect();
    let mut suspects: Vec<Suspect> = recent.iter().map(|crash| crash.suspect).collect();
    suspects.sort_unstable();
    suspects.dedup();
    let held = |suspect: Suspect| {
        let own: Vec<&Crash> = recent.iter().filter(|c| c.suspect == suspect).collect();
        let last = own.last().filter(|_| own.len() >= CRASHES_HELD_BACK)?;
        Some(HeldBack {
            suspect,
            crashes: own.len(),
            at_s: last.at_s,
            version: version.to_owned(),
            message: last.message.clone(),
        })
    };
    let held: Vec<HeldBack> = suspects.into_iter().filter_map(held).collect();
    let counted = |crash: &Crash| held.iter().any(|held| held.suspect == crash.suspect);
    let kept = recent.iter().filter(|crash| !counted(crash));
    let kept = kept.cloned().collect();
    (held, kept)
}

/// What crashed before, oldest first. Lines that are none are passed over.
///
/// # Errors
/// When the file cannot be read, or is none.
pub fn read(directory: &Path) -> io::Result<Vec<Crash>> {
    let path = directory.join(FILE_NAME);
    let found = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    if !found.is_file() {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    let mut file = File::open(&path)?;
    let from = found.len().saturating_sub(FILE_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(Crash::parse).collect())
}

/// The file, open for the whole life of the process, so that a crash needs no path and no
/// descriptor.
#[derive(Debug)]
pub struct CrashLog {
    file: File,
}

impl CrashLog {
    /// Begins the file anew with what still counts, all of it or the old one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(directory: &Path, kept: &[Crash]) -> io::Result<CrashLog> {
        let path = directory.join(FILE_NAME);
        let beside = directory.join(format!("{FILE_NAME}.new"));
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(FILE_MODE);
        let log = CrashLog {
            file: options.open(&beside)?,
        };
        for crash in kept {
            log.write(crash.at_s, &crash.version, crash.suspect, &crash.message)?;
        }
        log.file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(directory)?.sync_all()?;
        Ok(log)
    }

    /// Notes a crash of this process, durably.
    ///
    /// Takes no lock and allocates nothing: it is called by whoever is about to end the process, a
    /// handler of a signal among them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&self, suspect: Suspect, message: &dyn fmt::Display) -> io::Result<()> {
        self.write(now_s(), env!("CARGO_PKG_VERSION"), suspect, message)?;
        self.file.sync_all()
    }

    fn write(
        &self,
        at_s: u64,
        version: &str,
        suspect: Suspect,
        message: &dyn fmt::Display,
    ) -> io::Result<()> {
        let mut line = Line::default();
        // A line that is cut short says the most important first.
        let _ = write!(line, "{HEAD} {at_s} {version} {suspect} {message}");
        (&self.file).write_all(line.whole())
    }
}

static LOG: OnceLock<CrashLog> = OnceLock::new();

/// From now on [`note`] writes to `log`. The first log of a process stays.
pub fn arm(log: CrashLog) {
    let _ = LOG.set(log);
}

/// Notes that this process crashes while it works for `suspect`, if there is a log. As
/// [`CrashLog::note`].
pub fn note(suspect: Suspect, message: &dyn fmt::Display) {
    if let Some(log) = LOG.get() {
        // Nothing can be done about a failure: the process ends, and one crash is not counted.
        let _ = log.note(suspect, message);
    }
}

/// Seconds since 1970 UTC.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A line in the making, without allocation. Begins a new line itself, so that one that was torn
/// before it does not swallow it.
struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    used: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            bytes: [b'\n'; LINE_BYTES_MAX],
            used: 1,
        }
    }
}

impl Line {
    /// What is to be written: with the end of the line.
    fn whole(&self) -> &[u8] {
        &self.bytes[..=self.used]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            // The last byte stays the end of the line.
            if self.used == LINE_BYTES_MAX - 1 {
                return Err(fmt::Error);
            }
            self.bytes[self.used] = if byte.is_ascii_control() { b' ' } else { byte };
            self.used += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
