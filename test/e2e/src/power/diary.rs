//! What was asked of the export and answered, in order, as lines of text; and what a power loss at
//! some moment of it leaves to be read.

use std::collections::BTreeMap;
use std::fmt;

use model::Volume;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A write was submitted.
    Write {
        number: u64,
        offset: usize,
        length: usize,
    },
    /// A flush was submitted; numbers are those of one count.
    Flush(u64),
    /// The request of this number was answered with success.
    Done(u64),
    /// The marker of this number was written, durably.
    Marker(u64),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Write {
                number,
                offset,
                length,
            } => write!(f, "write {number} {offset} {length}"),
            Entry::Flush(number) => write!(f, "flush {number}"),
            Entry::Done(number) => write!(f, "done {number}"),
            Entry::Marker(number) => write!(f, "marker {number}"),
        }
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["write", number, offset, length] => Entry::Write {
                number: number.parse().ok()?,
                offset: offset.parse().ok()?,
                length: length.parse().ok()?,
            },
            ["flush", number] => Entry::Flush(number.parse().ok()?),
            ["done", number] => Entry::Done(number.parse().ok()?),
            ["marker", number] => Entry::Marker(number.parse().ok()?),
            _ => return None,
        })
    }
}

/// All lines.
pub(crate) fn read(text: &str) -> Result<Vec<Entry>, String> {
    let parse =
        |line: &str| Entry::parse(line).ok_or_else(|| format!("no line of a diary: {line}"));
    text.lines().map(parse).collect()
}

/// What the write of this number writes: no two writes share an atom's content.
pub(crate) fn content(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    for atom in 0..units::bytes_u64(length / ATOM) {
        let word = (number + 1) << 20 | atom;
        for place in 0..units::bytes_u64(ATOM / 8) {
            bytes.extend((word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place).to_le_bytes());
        }
    }
    bytes
}

/// What is old or new as a whole.
const ATOM: usize = 512;

/// The oracle, moved on from marker to marker.
#[derive(Debug)]
pub(crate) struct Oracle<'d> {
    diary: &'d [Entry],
    volume: Volume,
    writes: BTreeMap<u64, model::Write>,
    flushes: BTreeMap<u64, model::Flush>,
    next: usize,
}

impl<'d> Oracle<'d> {
    pub(crate) fn new(diary: &'d [Entry], bytes: usize) -> Oracle<'d> {
        Oracle {
            diary,
            volume: Volume::new(bytes, ATOM),
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            next: 0,
        }
    }

    /// Goes on to the marker of this number: all before it has happened.
    pub(crate) fn advance(&mut self, marker: u64) {
        while self.next == 0 || self.diary[self.next - 1] != Entry::Marker(marker) {
            let entry = self.diary[self.next];
            self.next += 1;
            match entry {
                Entry::Write {
                    number,
                    offset,
                    length,
                } => {
                    let write = self.volume.begin_write(offset, &content(number, length));
                    self.writes.insert(number, write);
                }
                Entry::Flush(number) => {
                    self.flushes.insert(number, self.volume.begin_flush());
                }
                Entry::Done(number) => {
                    if let Some(write) = self.writes.remove(&number) {
                        self.volume.finish_write(write);
                    } else if let Some(flush) = self.flushes.remove(&number) {
                        self.volume.finish_flush(flush);
                    }
                }
                Entry::Marker(_) => {}
            }
        }
    }

    /// What may be read after a power loss somewhere between this marker and the next.
    pub(crate) fn after_power_loss(&self) -> Volume {
        let mut volume = self.volume.clone();
        for entry in &self.diary[self.next..] {
            match *entry {
                Entry::Write {
                    number,
                    offset,
                    length,
                } => drop(volume.begin_write(offset, &content(number, length))),
                Entry::Flush(_) | Entry::Done(_) => {}
                Entry::Marker(_) => break,
            }
        }
        volume.power_loss();
        volume
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_flushed_before_a_marker_must_be_there_and_the_rest_may_be() {
        let diary = "write 0 0 512\ndone 0\nflush 1\nmarker 0\ndone 1\nmarker 1\n\
                     write 2 0 512\nwrite 3 512 512\nmarker 2\nwrite 4 0 512\n";
        let diary = read(diary).unwrap();
        let may_be = |marker, sectors: [Option<u64>; 2]| {
            let mut oracle = Oracle::new(&diary, 1024);
            oracle.advance(marker);
            let mut volume = oracle.after_power_loss();
            let atom = |number: Option<u64>| number.map_or(vec![0; 512], |n| content(n, 512));
            let read = volume.begin_read(0);
            volume
                .finish_read(read, &sectors.map(atom).concat())
                .is_ok()
        };
        assert!(may_be(0, [None, None]) && may_be(0, [Some(0), None]));
        assert!(!may_be(0, [Some(2), None]), "it had not begun");
        assert!(!may_be(1, [None, None]), "it was flushed");
        assert!(may_be(1, [Some(0), None]) && may_be(1, [Some(2), Some(3)]));
        assert!(!may_be(1, [Some(4), None]) && may_be(2, [Some(4), None]));
        assert!(!may_be(2, [Some(3), None]), "it was written elsewhere");
    }
}
