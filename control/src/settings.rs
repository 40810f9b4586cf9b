//! What `garboard serve` is told: a config file (TOML), and flags that win over it.
//!
//! ```toml
//! socket = "/run/garboard/api.sock"
//! http = "127.0.0.1:9180"        # serves /metrics only
//! state_dir = "/var/lib/garboard"
//! cores = "2-5,8"
//! memory = "1GiB"
//! poll = "adaptive"              # always | adaptive | never
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::Size;
use units::limits::REACTORS_MAX;

use crate::{Answer, EngineError, ErrorKind};

/// How reactors wait for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Poll {
    /// Never sleep.
    Always,
    /// Sleep after a spell without work.
    #[default]
    Adaptive,
    /// Sleep as soon as there is no work.
    Never,
}

impl FromStr for Poll {
    type Err = String;
    fn from_str(text: &str) -> Result<Poll, String> {
        match text {
            "always" => Ok(Poll::Always),
            "adaptive" => Ok(Poll::Adaptive),
            "never" => Ok(Poll::Never),
            _ => Err(format!(
                "`{text}` is not a way to poll; there are always, adaptive, never"
            )),
        }
    }
}

/// CPUs, in ascending order, each once; written `2-5,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreList(pub Vec<u16>);

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreList, String> {
        let wrong = || format!("`{text}` is not a list of CPUs; write for example 2-5,8");
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u16>()
                .ok()
                .filter(|_| digits)
                .ok_or_else(wrong)
        };
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            if usize::from(last - first) >= REACTORS_MAX || cores.len() >= REACTORS_MAX {
                return Err(format!("`{text}` names more than {REACTORS_MAX} CPUs"));
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        let count = cores.len();
        cores.dedup();
        if cores.len() != count {
            return Err(format!("`{text}` names a CPU twice"));
        }
        if cores.len() > REACTORS_MAX {
            return Err(format!("`{text}` names more than {REACTORS_MAX} CPUs"));
        }
        Ok(CoreList(cores))
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

/// The settings that were given; every one may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Given {
    /// The API's socket.
    pub socket: Option<PathBuf>,
    /// Where `/metrics` is served over TCP.
    pub http: Option<SocketAddr>,
    /// Where the wanted state is.
    pub state_dir: Option<PathBuf>,
    /// CPUs for reactors.
    #[serde(deserialize_with = "from_text")]
    pub cores: Option<CoreList>,
    /// The budget for buffers.
    #[serde(deserialize_with = "from_text")]
    pub memory: Option<Size>,
    /// How reactors wait.
    pub poll: Option<Poll>,
}

fn from_text<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: serde::Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

impl Given {
    /// Reads a config file.
    ///
    /// # Errors
    /// `NotFound` when it cannot be read, `Invalid` with the line when it is wrong.
    pub fn read(path: &Path) -> Answer<Given> {
        let object = || format!("config {}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| {
            EngineError::new(ErrorKind::NotFound, object(), error.to_string())
                .next("give the path of a TOML file that can be read")
        })?;
        toml::from_str(&text).map_err(|error| {
            let message = error.to_string().trim_end().to_owned();
            EngineError::new(ErrorKind::Invalid, object(), message)
                .next("`garboard serve --help` names the settings")
        })
    }

    /// These settings, and `other` where they say nothing.
    #[must_use]
    pub fn or(self, other: Given) -> Given {
        Given {
            socket: self.socket.or(other.socket),
            http: self.http.or(other.http),
            state_dir: self.state_dir.or(other.state_dir),
            cores: self.cores.or(other.cores),
            memory: self.memory.or(other.memory),
            poll: self.poll.or(other.poll),
        }
    }
}

/// What an engine is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// CPUs for reactors; empty: min(4, CPUs − 1), at least one.
    pub cores: Vec<u16>,
    /// The budget for buffers; `None`: the engine's choice.
    pub memory_bytes: Option<u64>,
    /// How reactors wait.
    pub poll: Poll,
    /// Sockets and shared memory that do not outlive the host.
    pub runtime_dir: PathBuf,
    /// What outlives it.
    pub state_dir: PathBuf,
}

/// Where things are when nobody says: as root below `/run` and `/var/lib`, else below the
/// user's own directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The directory of the API's socket.
    pub runtime_dir: Option<PathBuf>,
    /// The directory of the wanted state.
    pub state_dir: Option<PathBuf>,
}

/// The environment variable that names the API's socket.
pub const SOCKET_VARIABLE: &str = "GARBOARD_SOCKET";
/// The API's socket in its directory.
pub const SOCKET_NAME: &str = "api.sock";

impl Places {
    /// The places of this user; `variable` looks into the environment.
    pub fn of(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Places {
        if root {
            return Places {
                runtime_dir: Some("/run/garboard".into()),
                state_dir: Some("/var/lib/garboard".into()),
            };
        }
        let home = || variable("HOME").map(|home| home.join(".local/state"));
        Places {
            runtime_dir: variable("XDG_RUNTIME_DIR").map(|dir| dir.join("garboard")),
            state_dir: variable("XDG_STATE_HOME")
                .or_else(home)
                .map(|dir| dir.join("garboard")),
        }
    }

    /// The places of the user that runs this process.
    #[must_use]
    pub fn here() -> Places {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        Places::of(is_root(), absolute)
    }

    /// The API's socket: the one that was said, else the environment's, else the default.
    ///
    /// # Errors
    /// `Unreachable` when nobody says where it is.
    pub fn socket(&self, said: Option<PathBuf>) -> Answer<PathBuf> {
        let variable = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        said.or_else(|| variable.map(PathBuf::from))
            .or_else(|| self.runtime_dir.as_ref().map(|dir| dir.join(SOCKET_NAME)))
            .ok_or_else(|| {
                let message = "nobody says where it is: XDG_RUNTIME_DIR is not set";
                EngineError::new(ErrorKind::Unreachable, "engine", message)
                    .next(format!("give --socket PATH or set {SOCKET_VARIABLE}"))
            })
    }
}

/// Whether this process may do everything. The owner of its folder in /proc is its effective
/// user.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|folder| folder.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_read_and_nonsense_is_refused() {
        for (text, cores) in [
            ("0", vec![0]),
            ("2-4", vec![2, 3, 4]),
            ("8,2-3", vec![2, 3, 8]),
        ] {
            assert_eq!(text.parse(), Ok(CoreList(cores)), "{text}");
        }
        for text in [
            "", ",", "1,", "a", "3-1", "1-", "-1", "+1", "1,1", "0-65535", "65536", "0-128",
        ] {
            assert!(text.parse::<CoreList>().is_err(), "{text}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_wrong_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        let text = "socket = '/a'\nmemory = '1GiB'\ncores = '1,3'\npoll = 'never'\nhttp = '127.0.0.1:9180'\n";
        std::fs::write(&path, text).expect("written");
        let flags = Given {
            socket: Some("/b".into()),
            ..Given::default()
        };
        let given = flags.or(Given::read(&path).expect("a good file"));
        assert_eq!(given.socket, Some("/b".into()));
        assert_eq!(given.memory, Some(Size(1 << 30)));
        assert_eq!(given.cores, Some(CoreList(vec![1, 3])));
        assert_eq!(given.poll, Some(Poll::Never));
        for wrong in [
            "sokcet = '/a'",
            "memory = '1 ton'",
            "cores = 'all'",
            "poll = 'maybe'",
            "= 3",
        ] {
            std::fs::write(&path, wrong).expect("written");
            let error = Given::read(&path).expect_err(wrong);
            assert_eq!(error.kind, ErrorKind::Invalid, "{wrong}");
            assert_ne!(error.next, "", "{wrong}");
        }
        let error = Given::read(&folder.path().join("none")).expect_err("no file");
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_ne!(error.next, "");
    }

    #[test]
    fn places_follow_the_user() {
        let variable = |name: &str| match name {
            "XDG_RUNTIME_DIR" => Some(PathBuf::from("/run/user/7")),
            "HOME" => Some(PathBuf::from("/home/seven")),
            _ => None,
        };
        let mine = Places::of(false, variable);
        assert_eq!(mine.runtime_dir, Some("/run/user/7/garboard".into()));
        assert_eq!(
            mine.state_dir,
            Some("/home/seven/.local/state/garboard".into())
        );
        let root = Places::of(true, variable);
        assert_eq!(root.runtime_dir, Some("/run/garboard".into()));
        assert_eq!(root.state_dir, Some("/var/lib/garboard".into()));
    }
}
