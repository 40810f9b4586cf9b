//! What comes of the answers to guests.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl Client {
    pub(super) fn finish(&mut self, slot: usize) {
        let mut pending = self.pending.remove(&slot).expect("looked at");
        for piece in 0..pending.pieces.len() {
            self.lists.take_back(slot * PIECES + piece);
        }
        let is_read = pending.asked.operation == Operation::Read;
        let bytes = if is_read { pending.asked.length } else { 0 };
        let mut room = std::mem::take(&mut self.found);
        room.resize(room.len().max(bytes), 0);
        let found = &mut room[..bytes];
        pending.memory.part(0, bytes).copy_to_slice(found);
        // It is the guest's again, who has other things there.
        let buffer = pending.buffer.take().expect("it is ours");
        self.pool.take_back(buffer, pending.memory);
        self.judge(pending, found, false);
        self.found = room;
    }

    /// Judges an answer; of a write, whether it promises that this is durable.
    pub(super) fn judge(&mut self, pending: Pending, found: &[u8], durable: bool) {
        self.answered += 1;
        let Pending {
            asked,
            token,
            pieces,
            status,
            number,
            may_fail,
            ..
        } = pending;
        let (operation, start, blocks) = (asked.operation, asked.start, asked.blocks);
        let Part { offset, bytes } = asked.part;
        let volume = asked.volume;
        let what = || format!("{operation:?} {start}+{blocks} ({offset}+{bytes}) of {volume}");
        let well = status.is_ok();
        let may_fail = may_fail || self.may_meet_lost(operation, &pieces);
        let may_fail = may_fail || self.doomed || number <= self.lenient;
        assert!(may_fail || well, "{}: {status:?}", what());
        if well && asked.part.is_whole() {
            self.forget_lost(operation, &pieces);
        }
        if well && operation == Operation::Write && blocks <= READ_BACK_BLOCKS {
            let read = self.ask(asked.volume, Operation::Read, start, blocks.into());
            self.written.push(read);
        }
        match token {
            Token::Flush(flushes) => {
                self.flushed += 1;
                for (uuid, flush) in flushes {
                    if let (Some(disk), true) = (self.disks.get_mut(&uuid), well) {
                        disk.model.finish_flush(flush);
                    }
                }
            }
            Token::Write(write) => {
                if well {
                    self.forget_cut_off(operation, &pieces);
                } else if number <= self.lenient {
                    self.note_cut_off(operation, &pieces);
                }
                let disk = self.disks.get_mut(&asked.volume).expect("in use");
                match (well, operation) {
                    (true, Operation::Discard) => disk.model.abandon_write(write),
                    (true, _) if durable => disk.model.finish_durable_write(write),
                    (true, _) => disk.model.finish_write(write),
                    (false, _) => disk.model.fail_write(write),
                }
            }
            Token::Read(read) => {
                let disk = self.disks.get_mut(&asked.volume).expect("in use");
                if self.doomed {
                    self.beyond.0 += 1;
                    self.beyond.1 += u64::from(!well);
                }
                if well {
                    let verdict = disk.model.finish_read(read, found);
                    verdict.unwrap_or_else(|wrong| panic!("{}: {wrong}", what()));
                } else {
                    disk.model.abandon_read(&read);
                }
            }
        }
    }
}
