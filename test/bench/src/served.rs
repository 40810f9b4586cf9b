//! The finished program as an engine of its own process, and what that process uses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How large an engine is to be.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// `mem` or `file`.
    pub(crate) drives: String,
    pub(crate) exports: usize,
    pub(crate) queues: usize,
    pub(crate) queue_size: u16,
}

/// `garboard serve` with two arrays of five drives each, and exports of 8 MiB on them in turn.
pub(crate) struct Served {
    program: PathBuf,
    folder: PathBuf,
    child: Child,
}

impl Served {
    /// One that polls in this way, under a name that tells it apart.
    pub(crate) fn start(
        program: &Path,
        shape: &Shape,
        (poll, name): (&str, &str),
        cores: &str,
    ) -> Served {
        let name = name.replace([' ', '\''], "-");
        let name = format!("garboard-idle-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let log = fs::File::create(folder.join("log")).expect("a file");
        let child = Command::new(program)
            .arg("serve")
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--socket")
            .arg(folder.join("api"))
            .args(["--poll", poll, "--cores", cores])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it runs");
        let served = Served {
            program: program.to_owned(),
            folder,
            child,
        };
        while !served.tell(&["status"]) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        served.fill(shape);
        served
    }

    fn fill(&self, shape: &Shape) {
        let per_array = shape.exports.div_ceil(2).next_power_of_two().max(8);
        let mebibytes = 128 + 2 * per_array;
        for (array, first) in [("a0", 0), ("a1", 5)] {
            let names: Vec<String> = (first..first + 5)
                .map(|drive| format!("d{drive}"))
                .collect();
            for name in &names {
                let spec = if shape.drives == "mem" {
                    format!("mem:{mebibytes}MiB")
                } else {
                    let path = self.folder.join(name);
                    format!("file:{},size={mebibytes}MiB,create", path.display())
                };
                self.must(&["drive", "add", &spec, "--name", name]);
            }
            let drives = names.join(",");
            self.must(&[
                "array", "create", array, "--level", "5", "--drives", &drives, "--wait",
            ]);
        }
        for export in 0..shape.exports {
            let name = format!("v{export}");
            let array = format!("a{}", export % 2);
            self.must(&[
                "volume", "create", &name, "--array", &array, "--size", "8MiB",
            ]);
            let socket = self.socket(export);
            let (socket, queues) = (socket.to_string_lossy(), shape.queues.to_string());
            let size = shape.queue_size.to_string();
            self.must(&[
                "export",
                "vhost",
                &name,
                "--socket",
                &socket,
                "--queues",
                &queues,
                "--queue-size",
                &size,
            ]);
        }
    }

    pub(crate) fn socket(&self, export: usize) -> PathBuf {
        self.folder.join(format!("v{export}.sock"))
    }

    fn tell(&self, arguments: &[&str]) -> bool {
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(self.folder.join("api"));
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("it runs").success()
    }

    fn must(&self, arguments: &[&str]) {
        assert!(
            self.tell(arguments),
            "{arguments:?} is refused: see the log"
        );
    }

    /// Stands still until [`Served::go_on`].
    pub(crate) fn stand_still(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it runs");
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it runs");
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Usage {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(process.join("task"))
            .expect("it runs")
            .flatten()
        {
            // A thread may end while we look.
            if let Some(thread) = Thread::read(&task.path()) {
                threads.insert(task.file_name().to_string_lossy().into_owned(), thread);
            }
        }
        let status = fs::read_to_string(process.join("status")).expect("it runs");
        let kibibytes = |name| number_of(&status, name).expect("Linux says so");
        let descriptors = fs::read_dir(process.join("fd")).expect("it runs").count();
        Usage {
            threads,
            resident: kibibytes("VmRSS:"),
            parts: ["RssAnon:", "RssFile:", "RssShmem:"].map(kibibytes),
            descriptors,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What a thread has used so far.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) nanoseconds: u64,
    /// How often it went to sleep.
    pub(crate) sleeps: u64,
}

impl Thread {
    fn read(task: &Path) -> Option<Thread> {
        let read = |name| fs::read_to_string(task.join(name)).ok();
        let name = read("comm")?.trim().to_owned();
        let scheduled = read("schedstat")?;
        let nanoseconds = scheduled.split_whitespace().next()?.parse().ok()?;
        let sleeps = number_of(&read("status")?, "voluntary_ctxt_switches:")?;
        Some(Thread {
            name,
            nanoseconds,
            sleeps,
        })
    }
}

/// What a process uses.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) threads: BTreeMap<String, Thread>,
    /// In KiB.
    pub(crate) resident: u64,
    /// Of which memory of its own, files, and shared memory.
    pub(crate) parts: [u64; 3],
    pub(crate) descriptors: usize,
}

impl Usage {
    /// What each thread has used since, most first; those that have slept or run only.
    pub(crate) fn since(&self, before: &Usage) -> Vec<Thread> {
        let used = |(id, thread): (&String, &Thread)| {
            let (nanoseconds, sleeps) = before
                .threads
                .get(id)
                .map_or((0, 0), |before| (before.nanoseconds, before.sleeps));
            Thread {
                name: thread.name.clone(),
                nanoseconds: thread.nanoseconds - nanoseconds,
                sleeps: thread.sleeps - sleeps,
            }
        };
        let mut all: Vec<Thread> = self.threads.iter().map(used).collect();
        all.retain(|thread| thread.nanoseconds > 0);
        all.sort_by_key(|thread| std::cmp::Reverse(thread.nanoseconds));
        all
    }
}

/// The number behind a name at the beginning of a line.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
