//! What shards tell each other of members that take long.

use units::{Instant, MemberIndex};

use super::super::Shard;
use super::Late;

impl Shard {
    /// A member has answered what it was asked at the look `issued`.
    #[inline]
    pub(in crate::shard) fn hear(&mut self, (member, issued): (MemberIndex, u32)) {
        let Late {
            now,
            spell,
            answers,
            ..
        } = &mut self.late;
        let answers = &mut answers[member.at()];
        (answers.heard, answers.spell) = (*now, *spell);
        answers.usual = answers.usual.max(now.wrapping_sub(issued));
    }

    /// Tells the other shards which members have answered since the last look.
    pub(super) fn tell_heard(&self) {
        for (position, answers) in self.late.answers.iter().enumerate() {
            if answers.heard == self.late.now && answers.spell == self.late.spell {
                self.shared.call_heard(position);
            }
        }
    }

    /// Tells the other shards of answers, and hears of theirs.
    pub(super) fn listen(&mut self) {
        self.tell_heard();
        for position in 0..self.map.members.len() {
            let others = self.shared.heard(position);
            if others != self.late.others[position] {
                self.late.others[position] = others;
                self.late.answers[position].heard = self.late.now;
            }
        }
    }

    /// Which members are read through buffers.
    pub(in crate::shard) fn hear_shaky(&mut self, now: Instant) {
        self.late.any_shaky = false;
        for position in 0..self.map.members.len() {
            let shaky = self.late.hedges_all || self.shared.shaky_until(position) > now;
            self.late.shaky[position] = shaky;
            self.late.any_shaky |= shaky;
        }
    }

    /// A request comes. Where nothing was under way nobody looks, and what others have found of
    /// members since then is not known: the first read would go into a guest's memory from one
    /// that hangs.
    #[inline]
    pub(in crate::shard) fn hear_when_idle(&mut self, now: Instant) {
        if self.ios.in_use() == 0 && now >= self.late.hears_next {
            self.hear_of_others(now);
        }
    }

    #[inline(never)]
    fn hear_of_others(&mut self, now: Instant) {
        self.late.hears_next = now + self.late.patience.look;
        for position in 0..self.map.members.len() {
            let lags = self.shared.lags(MemberIndex::from_at(position));
            self.late.any_slow |= lags || self.shared.is_slow(position);
        }
        self.hear_shaky(now);
    }
}
