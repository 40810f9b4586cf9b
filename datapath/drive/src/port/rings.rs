//! The rings of a port: one for all drives, and from the first drive on that takes commands of NVMe
//! one for these. The reactor sleeps in the former, which is told when the latter has answers.

use std::time::Duration;

use units::limits;

use super::keys::{self, Key};
use crate::counters::PortCounters;
use crate::drive::Drive;
use crate::error::PortError;
use crate::uring::{Answer, Commands, Handle, Mode, Ring};

/// Drives that may still be leaving while others take their numbers.
const LEAVING_MAX: usize = 64;
/// Files that a ring knows.
const FILES_MAX: usize = limits::DRIVES_MAX + LEAVING_MAX;

pub(super) struct Rings {
    pub(super) plain: Ring,
    pub(super) commands: Option<Commands>,
    /// Whether the kernel is to say in the plain ring when that of commands has answers.
    watched: bool,
}

impl Rings {
    /// Sets up the plain ring for so many operations at once.
    pub(super) fn new(operations: u32) -> Result<Rings, PortError> {
        let plain = Ring::new(operations, keys::place(FILES_MAX))?;
        Ok(Rings::with(plain))
    }

    pub(super) fn with(plain: Ring) -> Rings {
        Rings {
            plain,
            commands: None,
            watched: false,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.plain.mode()
    }

    pub(super) fn counters(&self) -> PortCounters {
        let plain = self.plain.counters();
        let commands = self.commands.as_ref().map(Commands::counters);
        let commands = commands.unwrap_or_default();
        PortCounters {
            enters: plain.enters + commands.enters,
            operations: plain.operations + commands.operations,
            ..plain
        }
    }

    /// Sees to it that there is a ring for a drive; `operations` as in [`Rings::new`].
    pub(super) fn prepare(&mut self, drive: &Drive, operations: usize) -> Result<(), PortError> {
        if drive.namespace().is_some() && self.commands.is_none() {
            let commands = Commands::new(keys::place(operations), keys::place(FILES_MAX))?;
            self.commands = Some(commands);
        }
        Ok(())
    }

    /// Makes a drive known at a place of its ring's table; none of a drive without a kernel's file.
    pub(super) fn register(&mut self, drive: &Drive, place: usize) -> Option<Handle> {
        let (fd, place) = (drive.fd()?, keys::place(place));
        Some(match (drive.namespace(), &mut self.commands) {
            (Some(_), Some(commands)) => commands.ring().register(place, fd),
            (_, _) => self.plain.register(place, fd),
        })
    }

    /// Lets go of a drive that no operation uses any more.
    pub(super) fn unregister(&mut self, drive: &Drive, handle: Handle) {
        match (drive.namespace(), &mut self.commands) {
            (Some(_), Some(commands)) => commands.ring().unregister(handle),
            (_, _) => self.plain.unregister(handle),
        }
    }

    pub(super) fn unregister_all(&mut self) {
        self.plain.unregister_all();
        if let Some(commands) = &mut self.commands {
            commands.ring().unregister_all();
        }
    }

    /// Hands over everything queued, in one call for each ring that has something, and lets
    /// finished operations appear; never sleeps.
    pub(super) fn turn(&mut self) {
        self.plain.turn();
        if let Some(commands) = &mut self.commands {
            commands.ring().turn();
        }
    }

    /// Hands over everything queued, and sleeps until there is an answer, a signal, or the limit.
    pub(super) fn sleep(&mut self, limit: Option<Duration>) {
        let Some(commands) = &mut self.commands else {
            return self.plain.sleep(limit);
        };
        // A ring can be watched once it is somebody's.
        commands.ring().enable();
        commands.ring().turn();
        if !self.watched {
            // The kernel looks when it takes this: what is there already is not slept over.
            let key = Key::Commands.encode();
            self.watched = self.plain.start_watch(commands.fd(), key);
        }
        if commands.ring().has_answers() || !self.watched {
            self.plain.turn();
        } else {
            self.plain.sleep(limit);
            commands.ring().turn();
        }
    }

    /// Takes all answers but those that concern only the rings.
    pub(super) fn reap(&mut self, answers: &mut Vec<Answer>) {
        self.plain.reap(answers);
        if let Some(commands) = &mut self.commands {
            let watch = Key::Commands.encode();
            answers.retain(|answer| {
                let is_watch = answer.key == watch;
                self.watched &= !is_watch;
                !is_watch
            });
            commands.ring().reap(answers);
        }
    }
}
