//! Guests' memory that is taken away: a bank of it while requests lie there, or all of it.

use vhost_user_blk::Broken;

use super::Rings;
use super::machine::{BANKS, Machine};
use super::served;

/// Of a thousand events with requests under way, so many take a bank away or give it back.
const OFTEN: u64 = 4;

/// Of so many events with requests under way, all memory is cut off in one.
const TRUNCATED: u64 = 4000;

/// How far a bank is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Change {
    /// All memory is there.
    #[default]
    None,
    /// Guests put nothing there any more.
    Leaving(usize),
    /// The engine has been told; what it took before may still lie there.
    Removed(usize),
    /// The engine has let go of it.
    Gone(usize),
    /// The front-end has cut off everything, and guests are gone.
    Truncated,
}

impl Change {
    /// The bank in which guests put nothing.
    pub(super) fn avoided(self) -> Option<usize> {
        match self {
            Change::Leaving(bank) | Change::Removed(bank) | Change::Gone(bank) => Some(bank),
            Change::None | Change::Truncated => None,
        }
    }

    /// The bank that an engine does not know.
    pub(super) fn unknown(self) -> Option<usize> {
        match self {
            Change::Removed(bank) | Change::Gone(bank) => Some(bank),
            Change::None | Change::Leaving(_) | Change::Truncated => None,
        }
    }
}

impl Rings {
    /// A step on the way of a bank.
    pub(super) fn change_memory(&mut self) {
        self.change = match self.change {
            Change::None if self.random.happens(OFTEN) => {
                Change::Leaving(self.random.position(BANKS))
            }
            Change::Leaving(bank) if self.is_taken(bank) => {
                self.counts.banks += u64::from(self.lies_in(bank));
                self.tell_memory(Some(bank));
                Change::Removed(bank)
            }
            Change::Removed(bank) if self.has_let_go() => {
                self.judge_let_go(bank);
                Change::Gone(bank)
            }
            Change::Gone(bank) if !self.lies_in(bank) && self.random.happens(OFTEN) => {
                self.tell_memory(None);
                Change::None
            }
            change => change,
        };
    }

    /// Whether the engine has all that lies in a bank.
    fn is_taken(&self, bank: usize) -> bool {
        self.rings.values().all(|ring| {
            let taken = ring.running.as_ref().and_then(|running| running.taken);
            ring.in_bank(bank).all(|sent| sent.is_taken(taken))
        })
    }

    fn lies_in(&self, bank: usize) -> bool {
        self.rings
            .values()
            .any(|ring| ring.in_bank(bank).next().is_some())
    }

    fn tell_memory(&mut self, without: Option<usize>) {
        for ring in self.rings.values_mut() {
            if let Some(running) = &mut ring.running {
                running.queue.set_memory(self.machine.table(without));
            }
        }
    }

    fn has_let_go(&self) -> bool {
        let mut running = self.rings.values().filter_map(|ring| ring.running.as_ref());
        running.all(|running| running.queue.has_let_go())
    }

    /// What lay there is answered; what a broken ring had is not.
    fn judge_let_go(&self, bank: usize) {
        for ring in self.rings.values().filter(|ring| !ring.is_abused()) {
            for sent in ring.in_bank(bank) {
                let is_answered = ring.is_answered(sent);
                assert!(is_answered, "the memory of {sent:?} is let go");
            }
        }
    }

    /// Whether a front-end cuts all memory off now.
    pub(crate) fn truncates(&mut self) -> bool {
        let may = self.is_busy() && !self.is_truncated();
        may && self.random.below(TRUNCATED) == 0
    }

    /// All memory is cut off, and guests are gone with it.
    pub(crate) fn truncate(&mut self) {
        self.counts.truncated += 1;
        self.change = Change::Truncated;
        self.machine.truncate();
    }

    /// Whether all memory is cut off.
    pub(crate) fn is_truncated(&self) -> bool {
        self.change == Change::Truncated
    }

    /// Queues without memory finish what they have, and end; after the last one nobody waits any
    /// more, and other guests come.
    pub(super) fn end_truncated(&mut self, place: usize) {
        let ring = self.rings.get_mut(&place).expect("it is there");
        if let Some(running) = &mut ring.running
            && self.random.happens(200)
        {
            // The session finds the front-end gone.
            running.queue.quiesce();
        }
        let ends = |running: &mut served::Running| running.queue.is_drained();
        if let Some(running) = ring.running.take_if(ends) {
            let why = running.queue.broken();
            let is_known = ring.is_abused() || matches!(why, None | Some(Broken::MemoryGone));
            assert!(is_known, "{why:?}: {:?}", ring.sent);
            self.reactors[running.reactor].lines.leave(running.line);
        }
        if self.rings.values().all(|ring| ring.running.is_none()) {
            for ring in std::mem::take(&mut self.rings).into_values() {
                self.answers.extend(ring.forsaken());
            }
            self.change = Change::None;
            (self.machine, self.free) = Machine::start();
        }
    }
}
