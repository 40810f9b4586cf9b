//! Drives that a killed engine has left with requests. A drive stays locked until they are carried
//! out: the next engine waits for it, or starts without it, and then they land while that one is
//! at work. The drive may come back when it has let go, and not before.

use array::planted::{self, Fault};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// A drive that the next engine will do without may be one that is still busy.
    pub(super) fn may_stay_busy(&mut self, drive: Option<DriveIndex>, power: bool) {
        if let Some(drive) = drive.filter(|_| !power)
            && self.random.happens(600)
        {
            self.next_start.busy.push(drive);
        }
    }

    /// The engine is gone, by a kill and nothing else, or not: which drives are still busy.
    pub(super) fn stay_busy(&mut self, killed: bool, drives: &[SimDrive]) -> Vec<bool> {
        let mut busy = vec![false; drives.len()];
        let stays = std::mem::take(&mut self.next_start.busy);
        self.next_start.lets_go = None;
        if !killed {
            return busy;
        }
        for drive in stays {
            busy[drive.at()] = true;
        }
        if planted::is(Fault::DeadWritesNotAwaited) {
            return vec![true; drives.len()];
        }
        let writing = drives.iter().position(|drive| drive.is_writing_from(0));
        if !busy.contains(&true)
            && self.random.happens(500)
            && let Some(drive) = writing
        {
            busy[drive] = true;
            self.next_start.lets_go = Some(drive);
        }
        busy
    }

    /// Another engine has started meanwhile without a drive that takes long, and was killed before
    /// its first record. Now the drive lets go.
    pub(super) fn await_busy(&mut self, drives: &mut [SimDrive]) {
        let Some(drive) = self.next_start.lets_go.take() else {
            return;
        };
        let begun = drives[drive].is_locked() && self.geometry.parity() > 0 && !self.forced;
        if begun && self.random.happens(500) {
            let others = |at: usize| at == drive || drives[at].is_well();
            if (0..drives.len()).all(others) {
                self.outcome.outwaited += 1;
                let _ = self.attempt_without(drives, drive);
            }
        }
        drives[drive].let_go();
    }
}
