//! Whose turn it is among the volumes of one reactor. A request is handed over only in its volume's
//! turn; until then it stays in the guest's ring.
//!
//! The rings of one volume are a *line*. In each turn of the reactor a line may hand over so many
//! bytes; who takes more, because its request is larger, owes them in the turns that follow. So a
//! turn is short, however much is in the rings. And the lines of one array together have at most
//! so many bytes under way, but each may always have its part of them: who comes later does not
//! wait for all of what others brought before. (docs/design/008-fair-sharing.md)

use std::sync::Arc;

use block::{Cookie, Operation, Request};
use units::ArrayIndex;
use units::limits::{ARRAYS_MAX, RINGS_BYTES_MAX, TURN_BYTES, TURN_BYTES_MIN};
use volume::Limiter;

/// What requests cost is counted in units of 4 KiB, so that it fits into a cookie beside the
/// ring's slot.
const UNIT_SHIFT: u32 = 12;
/// What each request costs besides its bytes.
const EXTRA: u64 = 2;
/// Where the price is in a cookie, and what is below it.
pub(crate) const PRICE_SHIFT: u32 = 16;
pub(crate) const SLOT_MASK: u64 = (1 << PRICE_SHIFT) - 1;

const WINDOW: u64 = RINGS_BYTES_MAX >> UNIT_SHIFT;
const TURN: i64 = (TURN_BYTES >> UNIT_SHIFT).cast_signed();
const TURN_MIN: i64 = (TURN_BYTES_MIN >> UNIT_SHIFT).cast_signed();

/// What a request of so many bytes costs.
#[inline]
pub(crate) fn price_of(bytes: u64) -> u64 {
    (EXTRA + bytes.div_ceil(1 << UNIT_SHIFT)).min(SLOT_MASK)
}

/// What counts of what one request only says, and does not carry: it keeps the array's slots, and
/// the drives, for longer than others do.
const UNCARRIED_MAX: u64 = 1 << 20;

/// What a request costs that moves so many bytes; `shift` of its blocks.
#[inline]
pub(crate) fn price_for(request: &Request, moved: u64, shift: u32) -> u64 {
    match request.operation {
        Operation::Discard | Operation::WriteZeroes => {
            price_of((u64::from(request.blocks) << shift).min(UNCARRIED_MAX))
        }
        Operation::Read | Operation::Write | Operation::Flush => price_of(moved),
    }
}

/// What the request with this cookie cost.
#[inline]
pub(crate) fn price_in(cookie: Cookie) -> u64 {
    cookie.0 >> PRICE_SHIFT & SLOT_MASK
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The next turn.
    ForTurn,
    /// Answers to requests of this reactor and array.
    ForAnswers,
    /// Room in the array, or for one more that goes piece by piece. Who has it here gives it back
    /// with an answer, be it of another array.
    ForRoom,
}

/// One volume's rings.
#[derive(Debug)]
struct Line {
    limiter: Arc<Limiter>,
    array: ArrayIndex,
    rings: usize,
    /// What it may still hand over in this turn; negative: what it owes.
    credit: i64,
    /// It had to wait for its turn in the one before.
    waited: bool,
    under_way: u64,
}

/// What the lines of one array have under way.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    under_way: u64,
    /// Lines that have something under way.
    lines: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Lines {
    lines: Vec<Option<Line>>,
    arrays: Vec<Window>,
    /// Lines that had to wait in this turn.
    waited: i64,
}

impl Default for Lines {
    /// None.
    fn default() -> Lines {
        Lines {
            lines: Vec::new(),
            arrays: vec![Window::default(); ARRAYS_MAX],
            waited: 0,
        }
    }
}

impl Lines {
    /// A ring of the volume with this limiter comes here. Its line.
    pub fn join(&mut self, array: ArrayIndex, limiter: &Arc<Limiter>) -> usize {
        let is_its = |line: &Line| Arc::ptr_eq(&line.limiter, limiter) && line.array == array;
        let known = |line: &Option<Line>| line.as_ref().is_some_and(is_its);
        if let Some(line) = self.lines.iter().position(known) {
            self.line(line).rings += 1;
            return line;
        }
        let line = Line {
            limiter: Arc::clone(limiter),
            array,
            rings: 1,
            credit: TURN_MIN,
            waited: false,
            under_way: 0,
        };
        if let Some(free) = self.lines.iter().position(Option::is_none) {
            self.lines[free] = Some(line);
            return free;
        }
        self.lines.push(Some(line));
        self.lines.len() - 1
    }

    /// A ring goes. All that it handed over is answered.
    pub fn leave(&mut self, line: usize) {
        let entry = self.line(line);
        entry.rings -= 1;
        if entry.rings == 0 {
            assert_eq!(entry.under_way, 0, "a ring leaves when it is drained");
            self.lines[line] = None;
        }
    }

    /// All lines get what they may hand over in this turn: those that had to wait share it.
    #[inline]
    pub fn begin_turn(&mut self) {
        let most = if self.waited > 1 {
            (TURN / self.waited).max(TURN_MIN)
        } else {
            TURN
        };
        self.waited = 0;
        for line in self.lines.iter_mut().flatten() {
            line.credit = (line.credit + most).min(most);
            line.waited = false;
        }
    }

    /// Whether the line's next request may be handed over now.
    #[inline]
    pub fn admits(&mut self, line: usize) -> Result<(), Wait> {
        let line = self.lines[line].as_mut().expect("a ring is in a line");
        if line.credit <= 0 {
            self.waited += i64::from(!line.waited);
            line.waited = true;
            return Err(Wait::ForTurn);
        }
        let window = &self.arrays[line.array.at()];
        if window.under_way >= WINDOW && line.under_way >= WINDOW / window.lines.max(1) {
            return Err(Wait::ForAnswers);
        }
        Ok(())
    }

    /// A request of this price was handed over.
    #[inline]
    pub fn taken(&mut self, line: usize, price: u64) {
        let line = self.lines[line].as_mut().expect("a ring is in a line");
        let window = &mut self.arrays[line.array.at()];
        window.lines += u64::from(line.under_way == 0);
        window.under_way += price;
        line.under_way += price;
        line.credit -= price.cast_signed();
    }

    /// And is answered.
    #[inline]
    pub fn answered(&mut self, line: usize, price: u64) {
        let line = self.lines[line].as_mut().expect("a ring is in a line");
        let window = &mut self.arrays[line.array.at()];
        line.under_way -= price;
        window.under_way -= price;
        window.lines -= u64::from(price > 0 && line.under_way == 0);
    }

    fn line(&mut self, line: usize) -> &mut Line {
        self.lines[line].as_mut().expect("a ring is in a line")
    }
}

#[cfg(test)]
mod tests;
