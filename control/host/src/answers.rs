//! What drives are asked that may not answer: each on a thread of its own, and nobody waits for any
//! of them longer than [`Asks::wait`]. One that still owes an answer is not asked again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use array::assembly::Found;
use control::request::DriveSpec;
use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, Unanswered};
use units::{Clock, Instant, MonotonicClock};
use uuid::Uuid;

use crate::apart::apart;
use crate::error::{WAY_TO_DRIVE, error, not_found};
use crate::looks::{Look, Looks};
use crate::opened::{Opened, look_at, path_of};
use crate::state::{DriveEntry, DriveRole};
use crate::{Host, records};

/// What is asked, and not answered yet.
#[derive(Debug)]
pub(crate) struct Asks {
    /// How long a drive may take to be opened, or to say what it holds.
    pub(crate) wait: Duration,
    pub(crate) drives: Looks<Uuid>,
    /// Paths that are being opened.
    paths: Looks<PathBuf>,
}

impl Asks {
    pub(crate) fn new(wait: Duration) -> Asks {
        Asks {
            wait,
            drives: Looks::default(),
            paths: Looks::default(),
        }
    }
}

impl Host {
    /// Opens what a spec names, and looks what it holds.
    pub(crate) fn look(&self, name: &str, spec: &DriveSpec) -> Answer<Opened> {
        // A file that is made may take its time, and is not left behind.
        if matches!(spec, DriveSpec::File { create: true, .. }) {
            return look_at(name, spec);
        }
        let end = MonotonicClock.now() + self.asks.wait;
        let look = self.enter(spec, end).ok_or_else(|| self.silent(name))?;
        let (named, wanted) = (name.to_owned(), spec.clone());
        let open = move || {
            let opened = look_at(&named, &wanted);
            drop(look);
            opened
        };
        let opened = apart(self.asks.wait, vec![open]).pop().flatten();
        opened.unwrap_or_else(|| Err(self.silent(name)))
    }

    /// Waits until then for who opens the same path: one that still owes an answer is not asked
    /// again. None when there is one.
    pub(crate) fn enter(&self, spec: &DriveSpec, end: Instant) -> Option<Option<Look<PathBuf>>> {
        let Some(path) = path_of(spec) else {
            return Some(None);
        };
        let look = self.asks.paths.enter_until(&path.to_owned(), end);
        look.map(Some)
    }

    /// A drive that does not answer. What it answers some time is dropped: it is closed then.
    pub(crate) fn silent(&self, name: &str) -> EngineError {
        let seconds = self.asks.wait.as_secs();
        let text = format!("it does not answer: it was waited for {seconds} s");
        error(ErrorKind::Unreachable, format!("drive {name}"), text).next(WAY_TO_DRIVE)
    }

    /// What lies on the drives of the roles that are wanted. Those that do not say so in time are
    /// left out, like those that cannot be read.
    pub(crate) fn read_drives(&self, wanted: impl Fn(&DriveRole) -> bool) -> Vec<Found> {
        let drives: Vec<_> = {
            let state = self.state();
            let drives = state.drives.values().filter(|entry| wanted(&entry.role));
            let drive = |entry: &DriveEntry| {
                let handle = Arc::clone(&entry.drive);
                (entry.name.clone(), entry.uuid, entry.index, handle)
            };
            drives.map(drive).collect()
        };
        let mut names = Vec::with_capacity(drives.len());
        let mut reads = Vec::with_capacity(drives.len());
        for (name, uuid, index, drive) in drives {
            // One that still owes an answer is not asked again, and nobody waits for it twice.
            let Some(asked) = self.asks.drives.enter(uuid) else {
                self.note_silent(&name);
                continue;
            };
            names.push(name);
            reads.push(move || {
                let given_up = drive.given_up();
                let read = records::read(index, &drive);
                // What could be read of it before it fell silent, or after, is not all.
                let answers = drive.given_up() == given_up;
                drop((drive, asked));
                answers.then_some(read)
            });
        }
        let mut found = Vec::with_capacity(reads.len());
        for (name, read) in names.iter().zip(apart(self.asks.wait, reads)) {
            let read = read.flatten();
            self.note_answer(name, read.is_some());
            match read {
                Some(Ok(one)) => found.push(one),
                Some(Err(source)) => tell_unread(name, &source.to_string()),
                None => {}
            }
        }
        found
    }

    /// A drive has not said what it holds.
    pub(crate) fn note_silent(&self, name: &str) {
        self.note_answer(name, false);
    }

    fn note_answer(&self, name: &str, answers: bool) {
        if !answers {
            tell_unread(name, "it does not answer");
        }
        let mut state = self.state();
        let Some(uuid) = state.drives.get(name).map(|entry| entry.uuid) else {
            return;
        };
        if answers {
            state.silent.remove(&uuid);
        } else {
            state.silent.insert(uuid);
        }
    }

    /// Which of these drives answer at all: whoever goes on to ask another would wait as long as
    /// that likes.
    pub(crate) fn answering(&self, drives: &[(Uuid, Arc<Drive>)]) -> Vec<bool> {
        let mut owing = Vec::with_capacity(drives.len());
        let mut reads = Vec::with_capacity(drives.len());
        for (uuid, drive) in drives {
            let asked = self.asks.drives.enter(*uuid);
            owing.push(asked.is_none());
            let drive = Arc::clone(drive);
            reads.extend(asked.map(|asked| {
                move || {
                    let block = drive.info().block_bytes.min(drive.info().size_bytes);
                    let read = drive.read(0, &mut vec![0; units::bytes_usize(block)]);
                    drop((drive, asked));
                    // Another error is an answer.
                    !read.is_err_and(|error| Unanswered::is(&error))
                }
            }));
        }
        let mut answered = apart(self.asks.wait, reads).into_iter();
        let answers = |owes: bool| !owes && answered.next().flatten() == Some(true);
        owing.into_iter().map(answers).collect()
    }

    /// Refuses a drive that does not answer.
    pub(crate) fn refuse_silent(&self, name: &str) -> Answer<()> {
        let drive = {
            let state = self.state();
            let entry = state.drives.get(name);
            let entry = entry.ok_or_else(|| not_found("drive", name))?;
            (entry.uuid, Arc::clone(&entry.drive))
        };
        if self.answering(&[drive]) == [true] {
            return Ok(());
        }
        Err(self.silent(name))
    }
}

fn tell_unread(drive: &str, error: &str) {
    tracing::warn!(event = "drive_unreadable", drive, error, "left out");
}
