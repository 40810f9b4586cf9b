//! A folder with drives and an engine that comes and goes.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Engine, files};
use crate::guest::Guest;
use crate::image::Image;

/// Drives `d0`…, the array `a` on them, and its volume `v` that holds writing 1.
pub(crate) struct Bed {
    folder: TempDir,
    engine: Option<Engine>,
}

impl Bed {
    /// An array of `count` drives of 64 MiB, and free drives behind it.
    pub(crate) fn new(level: &str, count: usize, free: usize) -> Bed {
        Bed::made(level, count, free, &[])
    }

    /// As `new`, with more words for the command that makes the array.
    pub(crate) fn made(level: &str, count: usize, free: usize, more: &[&str]) -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::start(folder.path());
        let all = u32::try_from(count + free).expect("few");
        let mut names = Vec::new();
        for (number, spec) in files(folder.path(), all).iter().enumerate() {
            let name = format!("d{number}");
            engine.json(&["drive", "add", spec, "--name", &name]);
            names.push(name);
        }
        let drives = names[..count].join(",");
        let create = [
            "array", "create", "a", "--level", level, "--drives", &drives, "--wait",
        ];
        engine.json(&[&create[..], more].concat());
        engine.json(&["volume", "create", "v", "--array", "a", "--size", "4MiB"]);
        engine.json(&["export", "vhost", "v", "--queues", "1"]);
        let bed = Bed {
            folder,
            engine: Some(engine),
        };
        bed.guest().write(1);
        bed
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it runs")
    }

    pub(crate) fn guest(&self) -> Guest {
        Guest::attach(self.engine())
    }

    /// Ends the engine as a shutdown does.
    pub(crate) fn stop(&mut self) {
        let engine = self.engine.take().expect("it runs");
        assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    }

    /// Ends the engine as a crash does.
    pub(crate) fn kill(&mut self) {
        self.engine.take().expect("it runs").end(Signal::KILL);
    }

    pub(crate) fn start(&mut self) {
        assert!(self.engine.is_none(), "one at a time");
        self.engine = Some(Engine::start(self.folder.path()));
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// The file of drive `name`.
    pub(crate) fn image(&self, name: &str) -> Image {
        Image::open(&self.path(&format!("{name}.img")))
    }

    /// Puts a file in the place of another.
    pub(crate) fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).expect("renamed");
    }

    pub(crate) fn array(&self) -> Value {
        self.engine().json(&["array", "show", "a"])
    }

    /// The state of the array, and all that it warns of.
    pub(crate) fn state(&self) -> (String, String) {
        let array = self.array();
        let warnings = array["warnings"].as_array().expect("a list").iter();
        let warnings: Vec<&str> = warnings.filter_map(Value::as_str).collect();
        (text(&array["state"]), warnings.join("\n"))
    }

    /// The state of a drive, and the cause that is given for it.
    pub(crate) fn drive(&self, name: &str) -> (String, String) {
        let drive = self.engine().json(&["drive", "show", name]);
        (text(&drive["state"]), text(&drive["cause"]))
    }

    /// What commands decide of the array. Its update is none of that: passes that end and the
    /// renewal of records move it at any time.
    fn decided(&self) -> Value {
        let array = self.array();
        let members = array["members"].as_array().expect("a list").iter();
        let members: Vec<Value> = members
            .map(|member| {
                let out = member["state"] == "missing" || member["state"] == "failed";
                json!({ "drive": member["drive"], "out": out })
            })
            .collect();
        let options = ["spares", "pool", "write_hole", "hold_timeout_ms"];
        json!({ "members": members, "options": options.map(|name| &array[name]) })
    }

    /// A command is refused, with these words and no change of the array.
    pub(crate) fn refused(&self, arguments: &[&str], code: &str, words: &[&str]) {
        let before = self.decided();
        let refusal = self.engine().refused(arguments);
        assert_eq!(refusal["code"], code, "{arguments:?}: {refusal}");
        let said = format!("{}; {}", text(&refusal["message"]), text(&refusal["next"]));
        holds(&said, words);
        assert!(!text(&refusal["next"]).is_empty(), "{refusal}");
        assert_eq!(self.decided(), before, "{arguments:?}");
    }

    /// Lets the engine write no file beyond so many bytes, or all again. Reads go on.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        let engine = Pid::from_raw(self.engine().id());
        prlimit(engine, Resource::Fsize, limit).expect("it is ours");
    }

    /// What the engines here have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("engine.log")).expect("a log")
    }

    /// Waits until the array is optimal.
    pub(crate) fn await_optimal(&self) {
        self.await_state("optimal");
    }

    /// Waits until something is so.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..2_000 {
            if is_so() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        panic!("never: {what}: {}", self.array());
    }

    /// Waits until the array is as wanted.
    pub(crate) fn await_state(&self, wanted: &str) {
        self.wait_until(wanted, || self.state().0 == wanted);
    }

    /// Waits until all regions are clean, because nobody writes.
    pub(crate) fn await_clean_regions(&self) {
        for _ in 0..3_000 {
            if self.image("d0").dirty_regions() == 0 {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        panic!("never clean");
    }

    /// Everything agrees: the guest reads writing `writing`, and a scrub finds nothing.
    pub(crate) fn is_sound(&self, writing: u64) {
        self.guest().verify(writing);
        assert_eq!(self.scrub(), 0);
    }

    /// Compares everything; the blocks that do not agree.
    pub(crate) fn scrub(&self) -> u64 {
        // It fails when it finds what it cannot repair.
        let start = ["array", "scrub", "a", "start", "--wait"];
        let output = self.engine().command(&start);
        let shown = self.engine().json(&["array", "scrub", "a", "show"]);
        let found = shown["mismatched_blocks"].as_u64();
        let found = found.unwrap_or_else(|| panic!("{shown}"));
        assert!(shown["finished_at_s"].is_u64(), "{shown}");
        assert_eq!(shown["stripes_checked"], shown["stripes"], "{shown}");
        assert_eq!(output.status.success(), found == 0, "{shown}");
        found
    }

    /// What the engine said last of the region map: dirty regions, and all.
    pub(crate) fn regions_read(&self) -> (u64, u64) {
        let log = self.log();
        let line = log
            .lines()
            .rfind(|line| line.contains("regions_read"))
            .expect("said");
        let number = |name: &str| {
            let (_, rest) = line.split_once(name).expect("said");
            let digits = rest.trim_start_matches(['=', ' ']);
            let end = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            digits[..end].parse().expect("a number")
        };
        (number("dirty="), number("regions="))
    }
}

/// Whether a text has all these words.
pub(crate) fn holds(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The spec of a file that is there.
pub(crate) fn spec(path: &Path) -> String {
    format!("file:{}", path.display())
}
