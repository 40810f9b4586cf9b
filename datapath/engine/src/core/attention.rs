//! Which rings a reactor looks at in each turn, and which sleep until they are kicked.
//!
//! A ring sleeps once its guest was asked for a kick, nothing was there after that, nothing of it
//! is under way, and the kernel watches the kick: whatever the guest makes available next, it
//! kicks. So a wake-up and the turns after it cost by the rings that were kicked, not by all there
//! are. A ring falls asleep only when its reactor has slept; one that always polls lets none.

use reactor::Duty;
use units::bytes_usize;

use super::{Core, KICK_TOKENS, Ring, WAKE_TOKEN};

/// While there is work, one turn of so many looks at a ring that sleeps.
const BUSY_TURNS_A_LOOK: u64 = 16;

/// How a ring gets its reactor's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attention {
    /// It is looked at in each turn. The port does not know its kick.
    Polled,
    /// It is looked at in each turn. Its kick is watched from the next sleep on.
    Kicked,
    /// It is looked at in each turn. Its kick is watched, or will be before the reactor sleeps.
    Watched,
    /// It is not looked at: its kick is watched.
    Asleep,
    /// It is looked at in each turn: its kick cannot be watched.
    Unwatchable,
}

impl Attention {
    /// Whether the port knows its kick.
    fn is_watched(self) -> bool {
        match self {
            Attention::Polled | Attention::Unwatchable => false,
            Attention::Kicked | Attention::Watched | Attention::Asleep => true,
        }
    }
}

impl Core {
    pub(super) fn awake_rings(&self) -> impl Iterator<Item = &Ring> {
        self.awake
            .iter()
            .filter_map(|&place| self.rings[place].as_ref())
    }

    /// Asks all guests whose rings do not sleep for kicks. Whether there is nothing to do until one
    /// comes.
    pub(super) fn ask_for_kicks(&mut self) -> bool {
        let mut quiet = true;
        for at in 0..self.awake.len() {
            let place = self.awake[at];
            let ring = self.rings[place].as_mut().expect("it is awake");
            ring.duty.begin();
            quiet &= ring.prepare_sleep();
            self.watch(place);
        }
        Duty::Nobody.begin();
        quiet
    }

    /// Wakes the rings that were kicked. What the port tells of a ring whose kick it does not know
    /// is of one that was here before.
    pub(super) fn take_kicks(&mut self) {
        let mut fired = std::mem::take(&mut self.fired);
        fired.clear();
        self.port.fired(&mut fired);
        for &token in &fired {
            if token == WAKE_TOKEN {
                self.wake.drain();
                continue;
            }
            let place = bytes_usize(token - KICK_TOKENS);
            if let Some(Some(ring)) = self.rings.get_mut(place)
                && ring.attention.is_watched()
            {
                ring.queue.clear_kick();
                self.attend(place, Attention::Kicked);
            }
        }
        self.fired = fired;
        while let Some(token) = self.port.lost() {
            assert!(token != WAKE_TOKEN, "an eventfd of ours can be watched");
            let place = bytes_usize(token - KICK_TOKENS);
            if let Some(Some(ring)) = self.rings.get(place)
                && ring.attention.is_watched()
            {
                self.attend(place, Attention::Unwatchable);
            }
        }
    }

    /// After a sleep, or what would have been one: rings that were watched all the time, and not
    /// kicked, sleep on. The guests of the others need not kick while we run.
    pub(super) fn let_sleep(&mut self) {
        let watched = std::mem::take(&mut self.watched_all);
        let Core { awake, rings, .. } = self;
        awake.retain(|&place| {
            let ring = rings[place].as_mut().expect("it is awake");
            ring.duty.begin();
            let rests = ring.stopping.is_none() && ring.queue.is_drained();
            if watched && rests && ring.attention == Attention::Watched {
                ring.attention = Attention::Asleep;
                return false;
            }
            ring.queue.disable_kicks();
            true
        });
        Duty::Nobody.begin();
    }

    /// Looks at one ring that sleeps, at each in its turn. A guest that forgets to kick, or takes
    /// its memory away, is found in the end. Seldom while there is work: that would wait for it.
    pub(super) fn look_at_a_sleeper(&mut self) {
        let is_due = !self.times.was_busy || self.turns.is_multiple_of(BUSY_TURNS_A_LOOK);
        if !is_due || self.awake.len() == self.rings.len() {
            return;
        }
        let place = self.next_sleeper;
        self.next_sleeper = if place + 1 < self.rings.len() {
            place + 1
        } else {
            0
        };
        if let Some(Some(ring)) = self.rings.get(place)
            && ring.attention == Attention::Asleep
        {
            ring.duty.begin();
            if ring.queue.wants_a_look() {
                self.attend(place, Attention::Watched);
            }
            Duty::Nobody.begin();
        }
    }

    /// Looks at a ring in each turn from now on.
    fn attend(&mut self, place: usize, attention: Attention) {
        let Some(Some(ring)) = self.rings.get_mut(place) else {
            return;
        };
        let before = std::mem::replace(&mut ring.attention, attention);
        assert!(attention != Attention::Asleep, "this is how it wakes");
        if before == Attention::Asleep {
            ring.duty.begin();
            ring.queue.disable_kicks();
            Duty::Nobody.begin();
            self.awake.push(place);
        }
    }

    /// Has the port watch the kick of a ring from the next sleep on.
    fn watch(&mut self, place: usize) {
        use std::os::fd::{AsFd, AsRawFd};
        let ring = self.rings[place].as_mut().expect("it is awake");
        match ring.attention {
            Attention::Polled => {
                let Some(kick) = ring.queue.kick() else {
                    return;
                };
                self.port.watch(kick.as_fd().as_raw_fd(), token_of(place));
                ring.attention = Attention::Watched;
            }
            // The port has armed it before.
            Attention::Kicked => ring.attention = Attention::Watched,
            Attention::Watched | Attention::Unwatchable => {}
            Attention::Asleep => panic!("a ring that sleeps is not in the list"),
        }
    }

    /// Before a ring changes, or ends: the port knows its kick no more, and it is looked at in each
    /// turn.
    pub(super) fn unwatch(&mut self, place: usize) {
        let ring = self.rings[place].as_ref().expect("it is there");
        if ring.attention.is_watched() {
            self.port.unwatch(token_of(place));
        }
        self.attend(place, Attention::Polled);
    }
}

fn token_of(place: usize) -> u64 {
    KICK_TOKENS + u64::try_from(place).expect("few rings")
}

#[cfg(test)]
mod tests;
