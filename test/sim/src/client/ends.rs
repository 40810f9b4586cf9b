//! How guests live through the end of an engine.

use block::{Operation, Stability};
use uuid::Uuid;

use super::{Asked, Client, PIECES, Pending};

impl Client {
    /// Volumes whose guests leave alone what they write.
    pub fn stable_volumes(&self) -> Vec<Uuid> {
        let volumes = self.disks.keys().copied();
        volumes.filter(|&volume| self.is_stable(volume)).collect()
    }

    /// Whether the guests of a volume leave alone what they write.
    pub(super) fn is_stable(&self, volume: Uuid) -> bool {
        let disk = self.disks.get(&volume);
        disk.is_some_and(|disk| disk.map.stability() == Stability::Stable)
    }

    /// The engine has died, or the power was lost. Gives what was under way, in any order.
    pub fn stop(&mut self, power_is_lost: bool) -> Vec<Asked> {
        for disk in self.disks.values_mut() {
            if power_is_lost {
                disk.model.power_loss();
            } else {
                disk.model.stop();
            }
        }
        if let Some(rings) = &mut self.rings {
            rings.power_off();
        }
        self.leave()
    }

    /// Nothing is under way any more.
    pub(super) fn leave(&mut self) -> Vec<Asked> {
        self.written.clear();
        let mut left = Vec::new();
        for (slot, pending) in std::mem::take(&mut self.pending) {
            self.note_half_written(&pending);
            if self.is_refused {
                self.note_cut_off(pending.asked.operation, &pending.pieces);
            }
            if let Some(buffer) = pending.buffer {
                for piece in 0..pending.submitted {
                    self.lists.take_back(slot * PIECES + piece);
                }
                self.pool.forsake(buffer);
            }
            left.push(pending.asked);
        }
        left
    }

    pub(super) fn note_half_written(&mut self, pending: &Pending) {
        let writes = pending.asked.operation == Operation::Write;
        if writes && self.is_stable(pending.asked.volume) {
            for piece in &pending.pieces {
                let end = piece.array_block + u64::from(piece.blocks);
                self.half_written.extend(piece.array_block..end);
            }
        }
    }

    /// A clean stop makes everything durable: the model is told as of a flush.
    pub fn stopped_cleanly(&mut self) {
        for disk in self.disks.values_mut() {
            let flush = disk.model.begin_flush();
            disk.model.finish_flush(flush);
        }
    }
}
