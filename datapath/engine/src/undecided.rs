//! Changes of arrays that were not answered in time: kept until the array has said what became of
//! them, and whoever builds on that has asked.

use std::sync::mpsc::{Receiver, TryRecvError};

use array::{Command, Refusal};
use units::ArrayIndex;

use crate::control::Engine;

/// A change whose caller has given up waiting.
#[derive(Debug)]
pub(crate) struct LateChange {
    pub(crate) array: ArrayIndex,
    pub(crate) command: Command,
    pub(crate) answer: Receiver<Result<(), Refusal>>,
}

/// A change that was late, and what became of it.
#[derive(Debug)]
pub struct Decided {
    /// Of which array.
    pub array: ArrayIndex,
    /// What was asked for.
    pub command: Command,
    /// Whether it was made. If it was, all reactors act by it.
    pub result: Result<(), Refusal>,
}

impl Engine {
    /// Changes of an array that were late, and of which [`Engine::take_decided`] has not told.
    ///
    /// # Panics
    /// When a thread panicked while it asked.
    #[must_use]
    pub fn undecided(&self, array: ArrayIndex) -> Vec<Command> {
        let late = self.late.lock().expect("nothing panics under this lock");
        let own = late.iter().filter(|change| change.array == array);
        own.map(|change| change.command.clone()).collect()
    }

    /// What has become of changes that were late; of each once, and in the order they were asked.
    ///
    /// # Panics
    /// When a thread panicked while it asked.
    #[must_use]
    pub fn take_decided(&self) -> Vec<Decided> {
        self.note_decided_stops();
        self.take(|command| !matches!(command, Command::Stop))
    }

    /// What has become of stops that were late.
    pub(crate) fn take_decided_stops(&self) -> Vec<(ArrayIndex, Result<(), Refusal>)> {
        let stops = self
            .take(|command| matches!(command, Command::Stop))
            .into_iter();
        stops.map(|stop| (stop.array, stop.result)).collect()
    }

    fn take(&self, is_wanted: impl Fn(&Command) -> bool) -> Vec<Decided> {
        let mut late = self.late.lock().expect("nothing panics under this lock");
        let mut decided = Vec::new();
        for change in std::mem::take(&mut *late) {
            let answer = is_wanted(&change.command).then(|| change.answer.try_recv());
            let result = match answer {
                Some(Ok(result)) => result,
                None | Some(Err(TryRecvError::Empty)) => {
                    late.push(change);
                    continue;
                }
                // Its reactor has ended.
                Some(Err(TryRecvError::Disconnected)) => {
                    Err(Refusal::Failed("a reactor has stopped".to_owned()))
                }
            };
            let LateChange { array, command, .. } = change;
            decided.push(Decided {
                array,
                command,
                result,
            });
        }
        decided
    }

    pub(crate) fn note_late(&self, change: LateChange) {
        let mut late = self.late.lock().expect("nothing panics under this lock");
        late.push(change);
    }

    /// The array has ended: what it was asked is told by its drives.
    pub(crate) fn forget_late(&self, array: ArrayIndex) {
        let mut late = self.late.lock().expect("nothing panics under this lock");
        late.retain(|change| change.array != array);
    }
}
