//! Whose turn it is among those who wait for the same: first come, first served within a *line*,
//! and the lines take turns by what they cost (deficit round robin). What does not live here: what
//! they wait for.

use crate::planted::{self, Fault};
use crate::slots::at;

/// Nobody.
const NONE: u32 = u32::MAX;

/// One line: those who wait in it, in order.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    /// What it may still take in its turn; negative: what it owes.
    credit: i64,
    /// The line that comes after it, if it is in the round.
    next: u32,
}

/// See the module. Who waits is a slot, of which each is in one line at most.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    /// By slot: who is behind it.
    behind: Vec<u32>,
    /// The lines in which somebody waits: the one whose turn it is, and the last.
    current: u32,
    last: u32,
    count: usize,
    /// What a line gets in each of its turns.
    turn: i64,
}

impl Lines {
    /// Lines for so many slots. `turn`: what one may take before the next comes.
    pub(crate) fn new(lines: usize, slots: usize, turn: u32) -> Lines {
        let empty = Line {
            first: NONE,
            last: NONE,
            credit: 0,
            next: NONE,
        };
        assert!(turn > 0, "or no turn ever ends");
        assert!(lines.is_power_of_two(), "numbers are masked");
        Lines {
            lines: vec![empty; lines],
            behind: vec![NONE; slots],
            current: NONE,
            last: NONE,
            count: 0,
            turn: i64::from(turn),
        }
    }

    /// Waits in a line; any number names one.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, line: u16) {
        let position = usize::from(line) & (self.lines.len() - 1);
        self.behind[at(slot)] = NONE;
        let entry = &mut self.lines[position];
        if entry.first == NONE {
            (entry.first, entry.last) = (slot, slot);
            entry.credit = self.turn;
            self.append(position);
        } else {
            self.behind[at(entry.last)] = slot;
            entry.last = slot;
        }
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.current != NONE).then(|| self.lines[at(self.current)].first)
    }

    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.current == NONE
    }

    /// In how many lines somebody waits.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// What the line whose turn it is may still take; it begins nothing when that is not positive.
    #[inline]
    pub(crate) fn credit(&self) -> i64 {
        self.lines[at(self.current)].credit
    }

    /// The line whose turn it is has taken so much.
    #[inline]
    pub(crate) fn charge(&mut self, cost: i64) {
        self.lines[at(self.current)].credit -= cost;
    }

    /// The first waits no more.
    #[inline]
    pub(crate) fn pop(&mut self) {
        let entry = &mut self.lines[at(self.current)];
        entry.first = self.behind[at(entry.first)];
        if entry.first == NONE {
            self.remove();
        }
    }

    /// The next line's turn; the current one comes again behind all others. Unused credit is not
    /// kept.
    pub(crate) fn pass_on(&mut self) {
        let position = at(self.current);
        let entry = &mut self.lines[position];
        entry.credit = (entry.credit + self.turn).min(self.turn);
        self.remove();
        if !planted::is(Fault::LineForgotten) {
            self.append(position);
        }
    }

    /// Calls `visit` with all who wait.
    pub(crate) fn each(&self, mut visit: impl FnMut(u32)) {
        let mut line = self.current;
        while line != NONE {
            let mut slot = self.lines[at(line)].first;
            while slot != NONE {
                visit(slot);
                slot = self.behind[at(slot)];
            }
            line = self.lines[at(line)].next;
        }
    }

    fn append(&mut self, position: usize) {
        let line = u32::try_from(position).expect("few lines");
        self.lines[position].next = NONE;
        if self.current == NONE {
            self.current = line;
        } else {
            self.lines[at(self.last)].next = line;
        }
        self.last = line;
        self.count += 1;
    }

    /// Takes the current line out of the round.
    fn remove(&mut self) {
        self.current = self.lines[at(self.current)].next;
        self.count -= 1;
    }
}

/// One go through the lines, in which some of them may be able to do nothing.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// So many in succession were tried in vain.
    stuck: usize,
}

impl Attempts {
    /// The turn goes on to a line that owes nothing: who that is. Debts are paid on the way, so
    /// whoever was tried in vain is tried again before it ends: nobody who could go on is left
    /// because others cannot.
    #[inline]
    pub(crate) fn next(&mut self, lines: &mut Lines) -> Option<u32> {
        let first = lines.first()?;
        if lines.credit() > 0 {
            return Some(first);
        }
        self.stuck = 0;
        while lines.credit() <= 0 {
            lines.pass_on();
            lines.first()?;
        }
        lines.first()
    }

    /// The line whose turn it is has been tried; whether none can do anything.
    #[inline]
    pub(crate) fn tried(&mut self, moved: bool, lines: &Lines) -> bool {
        self.stuck = if moved { 0 } else { self.stuck + 1 };
        self.stuck >= lines.count()
    }
}

#[cfg(test)]
mod tests;
