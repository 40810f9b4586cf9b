//! Which flushes of members are under way, as the next engine is told: one may fail when nobody
//! hears of it any more, or its answer may lie there unread (docs/design/007).

use std::sync::Arc;

use units::{Instant, ReactorIndex};

use crate::begun::Begun;

/// See the module.
#[derive(Debug)]
pub(super) struct Flushes {
    begun: Option<Arc<Begun>>,
    me: ReactorIndex,
    /// The slots of their requests, and when they were made; the oldest first. A slot may be there
    /// twice while the answer to its first request is dealt with.
    under_way: Vec<(u32, Instant)>,
}

impl Flushes {
    /// Of a shard that has so many slots.
    pub(super) fn new(begun: Option<Arc<Begun>>, me: ReactorIndex, slots: usize) -> Flushes {
        let under_way = Vec::with_capacity(slots + 1);
        Flushes {
            begun,
            me,
            under_way,
        }
    }

    /// Comes before the request is made.
    pub(super) fn begin(&mut self, slot: u32, now: Instant) {
        self.under_way.push((slot, now));
        if self.under_way.len() == 1 {
            self.tell();
        }
    }

    /// Its answer is dealt with.
    pub(super) fn end(&mut self, slot: u32) {
        let at = self.under_way.iter().position(|(other, _)| *other == slot);
        let at = at.expect("what is answered was asked");
        self.under_way.remove(at);
        if at == 0 {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(begun) = &self.begun {
            begun.note_flush(self.me, self.under_way.first().map(|(_, at)| *at));
        }
    }
}
