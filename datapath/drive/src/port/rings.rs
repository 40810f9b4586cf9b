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
    /// Sets up the plain ring, which takes so many operations in one call.
    pub(super) fn new(entries: u32) -> Result<Rings, PortError> {
        let plain = Ring::new(entries, keys::place(FILES_MAX))?;
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

    /// Sees to it that there is a ring for a drive, which may have so many operations under way.
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
        let is_busy = commands.look();
        if !self.watched {
            // The kernel looks when it takes this: what came since our look is not slept over.
            let key = Key::Commands.encode();
            self.watched = self.plain.start_watch(commands.fd(), key);
        }
        if is_busy || !self.watched {
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use units::{Clock, MonotonicClock};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Sleeps until there is an answer, and says whether that was before the limit.
    fn is_woken(rings: &mut Rings) -> bool {
        let begun = MonotonicClock.now();
        let mut answers = Vec::new();
        while answers.is_empty() {
            rings.sleep(Some(LIMIT));
            rings.reap(&mut answers);
        }
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].key, Key::Task(7).encode());
        MonotonicClock.now().since(begun) < LIMIT / 2
    }

    #[test]
    fn nobody_sleeps_over_commands_that_the_kernel_has_not_taken() {
        let mut commands = Commands::new(64, 1).unwrap();
        assert!(!commands.look());
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(commands.start_watch(reader.as_raw_fd(), Key::Task(7).encode()));
        assert!(commands.is_busy(), "queued");
        assert!(!commands.look(), "taken, and not answered");
    }

    #[test]
    fn a_sleeper_is_woken_by_either_ring_each_time() {
        let mut rings = Rings::new(64).unwrap();
        rings.commands = Some(Commands::new(64, 1).unwrap());
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        for (by_command, asleep) in [
            (true, true),
            (true, true),
            (true, false),
            (false, true),
            (true, true),
        ] {
            let (fd, key) = (reader.as_raw_fd(), Key::Task(7).encode());
            let started = match &mut rings.commands {
                Some(commands) if by_command => commands.start_watch(fd, key),
                _ => rings.plain.start_watch(fd, key),
            };
            assert!(started);
            if asleep {
                rings.turn();
            }
            std::thread::scope(|threads| {
                let mut write = || writer.write_all(b"!").unwrap();
                if asleep {
                    // Long enough to be asleep by then; if not, less is tested.
                    threads.spawn(move || {
                        std::thread::park_timeout(Duration::from_millis(50));
                        write();
                    });
                } else {
                    write();
                }
                assert!(is_woken(&mut rings), "by a command: {by_command}");
            });
            reader.read_exact(&mut [0]).unwrap();
        }
    }
}
