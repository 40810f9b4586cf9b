//! Answers that are given out later, by the time that they are due.
//!
//! A pretended drive answers reads in their order, and writes in theirs, so what is held back of
//! one drive and kind is a queue: an answer goes to its end and comes from its front, however many
//! there are. Only what takes a time of its own (a flush beside writes, a fault) looks further. A
//! queue grows to what its drive had under way at most, and stays so.

use std::collections::VecDeque;

use block::Completion;
use units::Instant;

/// Later than anything that is due.
const NEVER: Instant = Instant(u64::MAX);

/// An answer that an ordered fault holds back, or the pace of a pretended drive.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    due: Instant,
    completion: Completion,
}

/// What is held back of all drives of a port.
#[derive(Debug)]
pub(super) struct DelayedAnswers {
    /// By seat: reads, and all else; those that are due first in front.
    queues: Vec<[VecDeque<Delayed>; 2]>,
    count: usize,
    /// Nothing is due before.
    next: Instant,
}

impl DelayedAnswers {
    pub(super) fn new() -> DelayedAnswers {
        DelayedAnswers {
            queues: Vec::new(),
            count: 0,
            next: NEVER,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When the next one is due, if there is one.
    pub(super) fn next(&self) -> Option<Instant> {
        (self.count > 0).then_some(self.next)
    }

    /// A drive may be in this seat.
    pub(super) fn make_room(&mut self, seat: usize) {
        if self.queues.len() <= seat {
            self.queues.resize_with(seat + 1, Default::default);
        }
    }

    /// Holds an answer back. Those of a seat and kind that are due together go out as they came.
    pub(super) fn push(
        &mut self,
        (seat, is_read): (u16, bool),
        due: Instant,
        completion: Completion,
    ) {
        let queue = &mut self.queues[usize::from(seat)][usize::from(is_read)];
        let later = queue.iter().rev().take_while(|other| other.due > due);
        let place = queue.len() - later.count();
        queue.insert(place, Delayed { due, completion });
        self.count += 1;
        self.next = self.next.min(due);
    }

    /// Gives out what is due.
    #[inline]
    pub(super) fn take_due(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        if self.next <= now {
            self.take_from_all(now, finished);
        }
    }

    fn take_from_all(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        let before = finished.len();
        self.next = NEVER;
        for queue in self.queues.iter_mut().flatten() {
            while let Some(front) = queue.front() {
                if front.due > now {
                    self.next = self.next.min(front.due);
                    break;
                }
                finished.push(front.completion);
                queue.pop_front();
            }
        }
        self.count -= finished.len() - before;
    }

    /// All that is held back of a seat.
    pub(super) fn leave(&mut self, seat: u16) -> impl Iterator<Item = Completion> + '_ {
        let queues = self.queues.get_mut(usize::from(seat));
        let left = queues.into_iter().flatten();
        let count = &mut self.count;
        left.flat_map(|queue| queue.drain(..)).map(|delayed| {
            *count -= 1;
            delayed.completion
        })
    }
}

#[cfg(test)]
mod tests {
    use block::{Cookie, Status};

    use super::*;

    fn answer(cookie: u64) -> Completion {
        Completion {
            cookie: Cookie(cookie),
            status: Status::Ok,
        }
    }

    fn taken(answers: &mut DelayedAnswers, now: u64) -> Vec<u64> {
        let mut finished = Vec::new();
        answers.take_due(Instant(now), &mut finished);
        finished
            .iter()
            .map(|completion| completion.cookie.0)
            .collect()
    }

    #[test]
    fn answers_come_when_they_are_due_those_of_a_drive_in_order() {
        let mut answers = DelayedAnswers::new();
        answers.make_room(1);
        assert_eq!((answers.len(), answers.next()), (0, None));
        for (cookie, due) in [(1, 50), (2, 70), (3, 60), (4, 60), (5, 90)] {
            answers.push((0, true), Instant(due), answer(cookie));
        }
        answers.push((0, false), Instant(40), answer(6));
        answers.push((1, true), Instant(65), answer(7));
        assert_eq!((answers.len(), answers.next()), (7, Some(Instant(40))));
        assert_eq!(taken(&mut answers, 39), []);
        assert_eq!(taken(&mut answers, 50), [6, 1]);
        assert_eq!((answers.len(), answers.next()), (5, Some(Instant(60))));
        assert_eq!(taken(&mut answers, 70), [3, 4, 2, 7]);
        assert_eq!(answers.next(), Some(Instant(90)));
        assert!(!answers.is_empty());
        assert_eq!(taken(&mut answers, 1000), [5]);
        assert!(answers.is_empty() && answers.next().is_none());
    }

    #[test]
    fn a_seat_takes_what_is_its_own_along() {
        let mut answers = DelayedAnswers::new();
        answers.make_room(2);
        for (seat, is_read, cookie) in [(1, true, 1), (2, true, 2), (1, false, 3)] {
            answers.push((seat, is_read), Instant(10 * cookie), answer(cookie));
        }
        let left: Vec<u64> = answers
            .leave(1)
            .map(|completion| completion.cookie.0)
            .collect();
        assert_eq!(left, [3, 1]);
        assert_eq!(answers.len(), 1);
        assert_eq!(taken(&mut answers, 20), [2]);
        assert!(answers.is_empty() && answers.leave(7).next().is_none());
    }
}
