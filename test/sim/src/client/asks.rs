//! What clients ask for.

#[allow(clippy::wildcard_imports, reason = "one type in two files")]
use super::*;

/// Of a request, a guest changes so many at a time.
const CHANGED_ATOMS: usize = 16;

impl Asked {
    /// Whether blocks may differ when it is done.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.operation.changes()
    }
}

impl Client {
    /// Something at random.
    pub fn draw(&mut self, random: &mut Random, stripe_blocks: u64) -> Option<Asked> {
        if self.pending.len() >= IN_FLIGHT - KEPT + self.ring_room() {
            return None;
        }
        if let Some(asked) = self.stream_on(random) {
            return Some(asked);
        }
        let volumes = self.disks.keys().copied();
        let volumes: Vec<Uuid> = volumes.filter(|uuid| self.hidden != Some(*uuid)).collect();
        let volume = *volumes.get(random.position(volumes.len().max(1)))?;
        let total = self.disks[&volume].blocks;
        let most = if random.happens(300) {
            stripe_blocks * 3
        } else {
            24
        };
        let blocks = 1 + random.below(most.min(total).min(bytes_u64(BUFFER_BYTES / self.block)));
        // Some places are met again and again.
        let area = if random.happens(500) {
            total.min(200)
        } else {
            total
        };
        let start = random.below(area).min(total - blocks);
        let operation = match random.below(20) {
            0..=8 => Operation::Write,
            9..=16 => Operation::Read,
            17 => Operation::WriteZeroes,
            18 => Operation::Discard,
            _ => Operation::Flush,
        };
        if operation == Operation::Write && random.happens(150) {
            let chunk = self.chunk_blocks;
            // The same place of one chunk after another, or one piece right behind the other.
            let (step, blocks) = if random.happens(400) {
                (chunk, blocks.min(chunk))
            } else {
                let blocks = blocks.min(chunk * 2);
                (blocks, blocks)
            };
            self.stream = Some(Stream {
                volume,
                next: start + step,
                step,
                blocks,
                left: 2 + random.below(if step == chunk { 8 } else { 24 }),
            });
            return Some(self.ask(volume, operation, start, blocks));
        }
        let partly = self.atom < self.block && random.happens(400);
        if partly && !matches!(operation, Operation::Flush | Operation::Discard) {
            let atoms = bytes_u64(self.block / self.atom);
            let first = random.below(atoms);
            let count = 1 + random.below((atoms - first).min(atoms - 1));
            let size = bytes_u64(self.atom);
            let bytes = |atoms: u64| u16::try_from(atoms * size).expect("few");
            let part = Part {
                offset: bytes(first),
                bytes: bytes(count),
            };
            return Some(self.ask_part(volume, operation, start, part));
        }
        Some(self.ask(volume, operation, start, blocks))
    }

    /// Whether a stream goes on.
    pub fn streams(&self) -> bool {
        self.stream.is_some()
    }

    /// The next write of a stream, if one goes on.
    fn stream_on(&mut self, random: &mut Random) -> Option<Asked> {
        let stream = self.stream.as_mut()?;
        let (volume, start, blocks) = (stream.volume, stream.next, stream.blocks);
        stream.next += stream.step;
        stream.left -= 1;
        let total = self.disks.get(&volume).map_or(0, |disk| disk.blocks);
        let goes_on = start + blocks <= total && self.hidden != Some(volume);
        if stream.left == 0 || !goes_on {
            self.stream = None;
        }
        (goes_on && random.happens(900)).then(|| self.ask(volume, Operation::Write, start, blocks))
    }

    /// A write of one block at random, and the block of the array that it is.
    ///
    /// # Panics
    /// Never: the block is inside the volume.
    pub fn draw_block(&mut self, random: &mut Random) -> Option<(Asked, u64)> {
        let volumes: Vec<Uuid> = self.disks.keys().copied().collect();
        let volume = *volumes.get(random.position(volumes.len().max(1)))?;
        let total = self.disks[&volume].blocks;
        // Most of what is torn is in the places that are met again and again.
        let often = random.happens(500);
        let start = random.below(if often { total.min(200) } else { total });
        let (block, _) = self.disks[&volume].map.locate(start, 1).expect("inside");
        Some((self.ask(volume, Operation::Write, start, 1), block))
    }

    /// The block of the array that is the first of a request.
    ///
    /// # Panics
    /// When its volume is not there any more.
    #[must_use]
    pub fn first_block(&self, asked: &Asked) -> u64 {
        let map = &self.disks[&asked.volume].map;
        map.locate(asked.start, 1).expect("inside").0
    }

    /// Whether guests write parts of blocks of the array.
    #[must_use]
    pub fn writes_parts(&self) -> bool {
        self.atom < self.block
    }

    /// A write of something new to the same place.
    pub fn write_again(&mut self, asked: &Asked) -> Asked {
        let blocks = u64::from(asked.blocks);
        self.ask(asked.volume, Operation::Write, asked.start, blocks)
    }

    /// A read of the same place.
    pub fn read_again(&mut self, asked: &Asked) -> Asked {
        let blocks = u64::from(asked.blocks);
        self.ask(asked.volume, Operation::Read, asked.start, blocks)
    }

    /// A write of so many blocks more from the same place on, and the block of the array that is
    /// its last; `None` at the end of the volume.
    ///
    /// # Panics
    /// Never: the blocks are inside the volume.
    pub fn write_more(&mut self, asked: &Asked, more: u64) -> Option<(Asked, u64)> {
        let disk = &self.disks[&asked.volume];
        let last = asked.start + u64::from(asked.blocks) - 1 + more;
        if last >= disk.blocks {
            return None;
        }
        let (block, _) = disk.map.locate(last, 1).expect("inside");
        let blocks = last + 1 - asked.start;
        let more = self.ask(asked.volume, Operation::Write, asked.start, blocks);
        Some((more, block))
    }

    /// Everything that is to be read once: all volumes from end to end.
    pub fn read_all(&mut self) -> Vec<Asked> {
        self.read_all_by(bytes_u64(BUFFER_BYTES / self.block))
    }

    /// The same, at most so many blocks at a time.
    pub fn read_all_by(&mut self, most: u64) -> Vec<Asked> {
        let volumes: Vec<(Uuid, u64)> = self
            .disks
            .iter()
            .map(|(uuid, disk)| (*uuid, disk.blocks))
            .collect();
        let mut all = Vec::new();
        for (uuid, blocks) in volumes {
            for start in (0..blocks).step_by(bytes_usize(most)) {
                all.push(self.ask(uuid, Operation::Read, start, most.min(blocks - start)));
            }
        }
        all
    }

    /// A flush, if there is anything to flush.
    pub fn flush(&mut self) -> Option<Asked> {
        let hidden = self.hidden;
        let volume = *self.disks.keys().find(|uuid| hidden != Some(**uuid))?;
        Some(self.ask(volume, Operation::Flush, 0, 1))
    }

    pub(crate) fn ask(
        &mut self,
        volume: Uuid,
        operation: Operation,
        start: u64,
        blocks: u64,
    ) -> Asked {
        let length = bytes_usize(blocks) * self.block;
        let bytes = self.content(operation, length);
        Asked {
            volume,
            operation,
            start,
            blocks: u32::try_from(blocks).expect("few"),
            part: Part::WHOLE,
            length,
            bytes: Rc::new(bytes),
        }
    }

    pub(super) fn ask_part(
        &mut self,
        volume: Uuid,
        operation: Operation,
        start: u64,
        part: Part,
    ) -> Asked {
        let bytes = self.content(operation, usize::from(part.bytes));
        Asked {
            volume,
            operation,
            start,
            blocks: 1,
            part,
            length: usize::from(part.bytes),
            bytes: Rc::new(bytes),
        }
    }

    /// Some guest changes a part of what it writes.
    ///
    /// # Panics
    /// Never: the part is inside of what is written.
    pub fn change_memory(&mut self, random: &mut Random) {
        let slots = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.changes > 0);
        let slots: Vec<usize> = slots.map(|(slot, _)| *slot).collect();
        let Some(&slot) = slots.get(random.position(slots.len().max(1))) else {
            return;
        };
        let length = self.pending[&slot].asked.length;
        let atoms = length / self.atom;
        let first = random.position(atoms);
        let count = 1 + random.position((atoms - first).min(CHANGED_ATOMS));
        let bytes = self.content(Operation::Write, count * self.atom);
        let pending = self.pending.get_mut(&slot).expect("looked at");
        pending.changes -= 1;
        let range = first * self.atom..(first + count) * self.atom;
        pending
            .memory
            .part(range.start, range.len())
            .copy_from_slice(&bytes);
        let asked = &mut pending.asked;
        // What a guest asks for again is what it has in its memory then.
        Rc::make_mut(&mut asked.bytes)[range.clone()].copy_from_slice(&bytes);
        let place = bytes_usize(asked.start) * self.block + usize::from(asked.part.offset);
        let (Some(disk), Token::Write(write)) = (self.disks.get_mut(&asked.volume), &pending.token)
        else {
            unreachable!("a write to a volume that is there");
        };
        disk.model.change_write(write, place + range.start, &bytes);
        self.changed += 1;
    }

    /// What is written: bytes that are never written again, or zeroes.
    fn content(&mut self, operation: Operation, length: usize) -> Vec<u8> {
        if operation == Operation::Read {
            return Vec::new();
        }
        let mut bytes = vec![0; length];
        if operation == Operation::Write {
            for (position, atom) in bytes.chunks_exact_mut(self.atom).enumerate() {
                self.writes += 1;
                let mut content = Random::new(self.writes << 20 | bytes_u64(position));
                for word in atom.chunks_exact_mut(8) {
                    word.copy_from_slice(&content.next().to_le_bytes());
                }
                atom[..8].copy_from_slice(&self.writes.to_le_bytes());
            }
        }
        bytes
    }
}
