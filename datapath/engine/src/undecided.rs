//! Changes of arrays that were not answered in time: kept until the array has said what became of
//! them, and whoever builds on that has asked.

use std::sync::mpsc::{Receiver, TryRecvError};

use array::{Command, Refusal};
use block::Status;
use units::ArrayIndex;

use crate::control::{Engine, stopped};

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

/// Zeroes whose caller has given up waiting.
#[derive(Debug)]
pub struct LateZeroes(pub(crate) Receiver<Status>);

impl LateZeroes {
    /// Whether none of them can land any more: their array has answered, or has ended.
    #[must_use]
    pub fn are_over(&self) -> bool {
        !matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }
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
        take(&mut late, is_wanted)
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

/// Takes out what has been answered, in the order it was asked. What comes after a change that its
/// array has not answered stays with it: the answers of both may arrive while this looks, and the
/// later one must not seem the first.
fn take(late: &mut Vec<LateChange>, is_wanted: impl Fn(&Command) -> bool) -> Vec<Decided> {
    let mut decided = Vec::new();
    let mut waits: Vec<ArrayIndex> = Vec::new();
    for change in std::mem::take(late) {
        let asked = is_wanted(&change.command);
        let looks = asked && !waits.contains(&change.array);
        let result = match looks.then(|| change.answer.try_recv()) {
            Some(Ok(result)) => result,
            None | Some(Err(TryRecvError::Empty)) => {
                if asked {
                    waits.push(change.array);
                }
                late.push(change);
                continue;
            }
            // Its reactor has ended.
            Some(Err(TryRecvError::Disconnected)) => Err(stopped()),
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    type Answer = Sender<Result<(), Refusal>>;

    fn asked(late: &mut Vec<LateChange>, array: u16, command: Command) -> Answer {
        let (sender, answer) = channel();
        late.push(LateChange {
            array: ArrayIndex(array),
            command,
            answer,
        });
        sender
    }

    fn stops(late: &mut Vec<LateChange>) -> Vec<(u16, bool)> {
        let taken = take(late, |command| matches!(command, Command::Stop));
        let told = taken.iter().map(|stop| (stop.array.0, stop.result.is_ok()));
        told.collect()
    }

    #[test]
    fn an_answer_that_overtook_an_earlier_one_is_not_told_first() {
        let mut late = Vec::new();
        let _resync = asked(&mut late, 0, Command::Resync);
        let first = asked(&mut late, 0, Command::Stop);
        let second = asked(&mut late, 0, Command::Stop);
        let other = asked(&mut late, 1, Command::Stop);
        // As they look while the home answers: the first had no answer yet, the second has one.
        let refused = Err(Refusal::Invalid("the array is not running".to_owned()));
        second.send(refused).expect("kept");
        other.send(Ok(())).expect("kept");
        assert_eq!(stops(&mut late), [(1, true)]);
        first.send(Ok(())).expect("kept");
        assert_eq!(stops(&mut late), [(0, true), (0, false)]);
        assert_eq!(late.len(), 1, "who asks for stops takes nothing else");
    }

    #[test]
    fn what_a_reactor_that_ended_was_asked_has_failed() {
        let mut late = Vec::new();
        drop(asked(&mut late, 0, Command::Stop));
        assert_eq!(stops(&mut late), [(0, false)]);
        assert!(late.is_empty());
    }
}
