//! What an engine had asked that is dead. The kernel carries it out all the same, and as long as it
//! does, the drive stays locked: whoever opens it waits, or does without it.

use super::SimDrive;
use super::taken::Taken;
use crate::random::Random;

impl SimDrive {
    /// The process dies: what was taken still lands, by chance in part, in any order. Flushes do
    /// nothing: one that fails now loses what nobody will ever be told of. `keeps`: the drive takes
    /// long over it.
    pub fn process_dies(&mut self, keeps: bool, random: &mut Random) {
        self.store.process_dies();
        self.times.clear();
        self.store.flush_ends(None);
        let mut taken = std::mem::take(&mut self.taken);
        while !taken.is_empty() {
            let one = taken.swap_remove(random.position(taken.len()));
            if one.request.operation.changes() && random.happens(700) {
                self.dead.push(one);
            }
        }
        if !keeps {
            self.let_go();
        }
    }

    /// Whether something of a dead engine is under way.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        !self.dead.is_empty()
    }

    /// One more of these is carried out; whether there was one.
    pub fn land_one(&mut self) -> bool {
        let Some(Taken { request, bytes, .. }) = self.dead.pop() else {
            return false;
        };
        let bytes = bytes.expect("taken when the process ended");
        // Whoever counts the drive as lost does not keep the kernel from it.
        let (gone, away) = (self.gone, self.away);
        (self.gone, self.away) = (false, None);
        self.carry_out(&request, &bytes, 0);
        (self.gone, self.away) = (gone, away);
        self.landed += 1;
        true
    }

    /// All of it is, and nobody is at work.
    pub fn let_go(&mut self) {
        let landed = self.landed;
        while self.land_one() {}
        self.landed = landed;
    }
}
