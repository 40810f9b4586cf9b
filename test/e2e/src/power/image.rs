//! What is on a member at the moment the power fails.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;
use crate::trace::{Event, Recording, SECTOR, Write};

const PAGE: usize = 64 << 10;

/// A sparse drive, full of one byte at first.
#[derive(Clone, Debug, Default)]
struct Image {
    filler: u8,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Image {
    fn write(&mut self, sector: u64, bytes: &[u8]) {
        let mut offset = units::bytes_usize(sector) * SECTOR;
        let mut left = bytes;
        while !left.is_empty() {
            let inside = offset % PAGE;
            let (now, rest) = left.split_at(left.len().min(PAGE - inside));
            let page = self.pages.entry(units::bytes_u64(offset / PAGE));
            let page = page.or_insert_with(|| vec![self.filler; PAGE].into());
            page[inside..inside + now.len()].copy_from_slice(now);
            offset += now.len();
            left = rest;
        }
    }

    fn save(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(bytes)?;
        if self.filler != 0 {
            file.write_all_at(&vec![self.filler; units::bytes_usize(bytes)], 0)?;
        }
        for (page, content) in &self.pages {
            if content.iter().any(|byte| *byte != self.filler) {
                file.write_all_at(content, page * units::bytes_u64(PAGE))?;
            }
        }
        Ok(())
    }
}

/// One member, or the marker device, at some moment.
#[derive(Clone, Debug, Default)]
struct Device {
    /// What no power loss takes away.
    durable: Image,
    /// Writes that were handed over and may be lost, in the order of their coming.
    cached: Vec<usize>,
    /// Those of them that were answered.
    answered: Vec<usize>,
    /// By flush under way: how many writes had been answered when it began.
    flushes: BTreeMap<usize, Vec<usize>>,
}

/// How much of what may be lost is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing that was answered, everything that was not.
    Unanswered,
    /// Everything that may be.
    Cached,
    /// Each write by chance, and some are torn.
    Chance,
}

/// All devices, moved on from event to event.
#[derive(Debug)]
pub(crate) struct Machine<'r> {
    recording: &'r Recording,
    devices: Vec<Device>,
    next: usize,
}

impl<'r> Machine<'r> {
    /// Before the first event: the devices are full of one byte.
    pub(crate) fn new(recording: &'r Recording, devices: usize, filler: u8) -> Machine<'r> {
        let durable = Image {
            filler,
            ..Image::default()
        };
        let device = Device {
            durable,
            ..Device::default()
        };
        Machine {
            recording,
            devices: vec![device; devices],
            next: 0,
        }
    }

    /// Goes on until so many events have happened.
    pub(crate) fn advance(&mut self, events: usize) {
        while self.next < events {
            let event = self.recording.events[self.next].clone();
            self.next += 1;
            self.follow(&event);
        }
    }

    fn follow(&mut self, event: &Event) {
        let writes = &self.recording.writes;
        match *event {
            Event::WriteBegun { device, write } => self.devices[device].cached.push(write),
            Event::WriteDone { device, write } if writes[write].is_forced => {
                // An earlier answer to the same place has landed before it.
                let device = &mut self.devices[device];
                let mut settled = device.answered.clone();
                settled.retain(|earlier| writes[*earlier].meets(&writes[write]));
                settled.push(write);
                device.settle(writes, &settled);
            }
            Event::WriteDone { device, write } => self.devices[device].answered.push(write),
            Event::FlushBegun { device, flush } => {
                let device = &mut self.devices[device];
                device.flushes.insert(flush, device.answered.clone());
            }
            Event::FlushDone { device, flush } => {
                let device = &mut self.devices[device];
                let covered = device.flushes.remove(&flush).expect("it has begun");
                device.settle(writes, &covered);
            }
        }
    }

    /// Writes what is left of each member after a power loss now to its file.
    pub(crate) fn lose_power(
        &self,
        members: &[std::path::PathBuf],
        bytes: u64,
        (loss, random): (Loss, &mut Random),
    ) -> io::Result<()> {
        for (device, path) in self.devices.iter().zip(members) {
            let mut left = device.durable.clone();
            let kept_percent = [5, 50, 95][random.below(3)];
            for write in &device.cached {
                let answered = device.answered.contains(write);
                let Write { sector, bytes, .. } = &self.recording.writes[*write];
                let mut kept = 0..bytes.len() / SECTOR;
                match loss {
                    Loss::Unanswered if answered => {}
                    Loss::Unanswered | Loss::Cached => continue,
                    Loss::Chance if random.below(100) >= kept_percent => continue,
                    Loss::Chance if random.below(8) == 0 => {
                        kept.start = random.below(kept.end);
                        kept.end = kept.start + 1 + random.below(kept.end - kept.start);
                    }
                    Loss::Chance => {}
                }
                let place = sector + units::bytes_u64(kept.start);
                left.write(place, &bytes[kept.start * SECTOR..kept.end * SECTOR]);
            }
            left.save(path, bytes)?;
        }
        Ok(())
    }

    /// How many writes may be lost now.
    pub(crate) fn cached(&self) -> usize {
        self.devices.iter().map(|device| device.cached.len()).sum()
    }
}

impl Device {
    /// These writes are durable. One that came before and went to the same place, and is not, can
    /// still land over them only while it is under way.
    fn settle(&mut self, writes: &[Write], settled: &[usize]) {
        let mut cached = std::mem::take(&mut self.cached);
        cached.retain(|write| {
            let is_settled = settled.contains(write);
            if is_settled {
                self.durable
                    .write(writes[*write].sector, &writes[*write].bytes);
            }
            !is_settled
        });
        self.cached = cached;
        self.answered.retain(|write| !settled.contains(write));
        for covered in self.flushes.values_mut() {
            covered.retain(|write| !settled.contains(write));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is at the beginning of sectors 0 and 1 after a power loss when these events happened
    /// on one device; write 0 puts 1 into sector 0, write 1 puts 2 there, write 2 puts 3 into the
    /// other.
    fn left(events: &[Event], loss: Loss) -> [u8; 2] {
        let write = |sector, byte| Write {
            sector,
            bytes: vec![byte; SECTOR],
            is_forced: false,
        };
        let recording = Recording {
            events: events.to_vec(),
            writes: vec![write(0, 1), write(0, 2), write(1, 3)],
        };
        let mut machine = Machine::new(&recording, 1, 0);
        machine.advance(events.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        let how = (loss, &mut Random::new(1));
        machine
            .lose_power(&[file.path().to_owned()], 1 << 20, how)
            .unwrap();
        let found = std::fs::read(file.path()).unwrap();
        assert_eq!(found.len(), 1 << 20);
        [found[0], found[SECTOR]]
    }

    const fn begun(write: usize) -> Event {
        Event::WriteBegun { device: 0, write }
    }
    const fn done(write: usize) -> Event {
        Event::WriteDone { device: 0, write }
    }
    const FLUSH_BEGUN: Event = Event::FlushBegun {
        device: 0,
        flush: 0,
    };
    const FLUSH_DONE: Event = Event::FlushDone {
        device: 0,
        flush: 0,
    };

    #[test]
    fn only_what_was_answered_before_a_flush_began_is_safe_when_it_has_ended() {
        let events = [
            begun(0),
            done(0),
            begun(2),
            FLUSH_BEGUN,
            done(2),
            begun(1),
            done(1),
        ];
        assert_eq!(left(&events, Loss::Cached), [0, 0]);
        assert_eq!(left(&events, Loss::Unanswered), [2, 3]);
        let flushed = [&events[..], &[FLUSH_DONE]].concat();
        assert_eq!(left(&flushed, Loss::Cached), [1, 0]);
        assert_eq!(left(&flushed, Loss::Unanswered), [2, 3]);
    }

    #[test]
    fn what_was_not_answered_may_land_or_not() {
        let events = [
            begun(0),
            done(0),
            FLUSH_BEGUN,
            FLUSH_DONE,
            begun(1),
            begun(2),
        ];
        assert_eq!(left(&events, Loss::Unanswered), [1, 0]);
        assert_eq!(left(&events, Loss::Cached), [1, 0]);
    }
}
