//! Which bytes a read of a volume may return.
//!
//! Every atom (512 bytes, or the drives' atomic unit) has versions. A write that has begun may be
//! seen; a write that is acknowledged supersedes what was settled before it began; what is
//! superseded may come back by a power loss until a flush that began later is acknowledged.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A model of a volume that begins as zeroes.
#[derive(Clone, Debug)]
pub struct Volume {
    atom_bytes: usize,
    /// What atoms hold that nothing was asked of.
    zero: Version,
    /// By atom; none of one that nothing was asked of.
    atoms: Vec<Vec<Version>>,
    /// Counts events; every event has a time of its own.
    now: u64,
    reads: BTreeSet<u64>,
    /// Atoms with more than one version.
    changing: BTreeSet<usize>,
}

/// One content that an atom may have.
#[derive(Clone, Debug)]
struct Version {
    /// What its write has written, for all its atoms at once, and where this atom's part of that
    /// begins.
    written: Arc<[u8]>,
    start: usize,
    begun: u64,
    /// When its write was answered; it may land at any moment before.
    settled: Option<u64>,
    /// When its write was answered with an error, although it may land yet: before a later write
    /// of the same atom does.
    failed: Option<u64>,
    /// When a later write was acknowledged, or a read has shown another version.
    superseded: Option<u64>,
    /// Superseded and flushed: not even a power loss brings it back.
    erased: bool,
}

/// A write on its way. Finish or abandon it, or drop it at a stop.
#[derive(Debug)]
#[must_use]
pub struct Write {
    begun: u64,
    atoms: Range<usize>,
}

/// A read on its way.
#[derive(Debug)]
#[must_use]
pub struct Read {
    begun: u64,
    offset: usize,
}

/// A flush on its way.
#[derive(Debug)]
#[must_use]
pub struct Flush {
    begun: u64,
}

/// What goes on over the end of an engine.
#[derive(Clone, Debug, Default)]
pub struct Kept<'t> {
    /// Writes whose guest waits for their answers.
    pub writes: Vec<&'t Write>,
    /// Reads.
    pub reads: Vec<&'t Read>,
}

/// A read returned what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The first wrong atom's offset in bytes.
    pub offset: usize,
    /// What the atom may hold.
    pub allowed: Vec<Vec<u8>>,
    /// What was read.
    pub found: Vec<u8>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(16)]);
        let allowed: Vec<String> = self.allowed.iter().map(|bytes| head(bytes)).collect();
        let (offset, found) = (self.offset, head(&self.found));
        write!(
            f,
            "byte {offset}: read {found}…, allowed {}",
            allowed.join("… or ")
        )
    }
}

impl Version {
    /// Nobody knows what it is.
    fn is_any(&self) -> bool {
        self.written.is_empty()
    }

    /// What it is, if somebody knows.
    fn bytes(&self, atom_bytes: usize) -> &[u8] {
        let end = self.written.len().min(self.start + atom_bytes);
        &self.written[self.start..end]
    }

    /// Whether its write was answered before then.
    fn is_over(&self, then: u64) -> bool {
        self.settled.or(self.failed).is_some_and(|when| when < then)
    }
}

impl Volume {
    /// A volume of so many bytes, all zero.
    ///
    /// # Panics
    /// When the size is not a multiple of the atom.
    #[must_use]
    pub fn new(bytes: usize, atom_bytes: usize) -> Volume {
        assert!(bytes.is_multiple_of(atom_bytes));
        let zero = Version {
            written: vec![0; atom_bytes].into(),
            start: 0,
            begun: 0,
            settled: Some(0),
            failed: None,
            superseded: None,
            erased: false,
        };
        Volume {
            atom_bytes,
            zero,
            atoms: vec![Vec::new(); bytes / atom_bytes],
            now: 0,
            reads: BTreeSet::new(),
            changing: BTreeSet::new(),
        }
    }

    /// A write of `bytes` is submitted; from now on reads may return them.
    pub fn begin_write(&mut self, offset: usize, bytes: &[u8]) -> Write {
        let begun = self.tick();
        let atoms = self.range(offset, bytes.len());
        self.add_versions(atoms.clone(), begun, bytes);
        Write { begun, atoms }
    }

    /// The guest has changed the memory of a write that is under way: each atom that it changed is
    /// written as it was or as it is now.
    pub fn change_write(&mut self, write: &Write, offset: usize, bytes: &[u8]) {
        let atoms = self.range(offset, bytes.len());
        let inside = atoms.start >= write.atoms.start && atoms.end <= write.atoms.end;
        assert!(inside, "{atoms:?} of {:?}", write.atoms);
        self.add_versions(atoms, write.begun, bytes);
    }

    fn add_versions(&mut self, atoms: Range<usize>, begun: u64, bytes: &[u8]) {
        let written: Arc<[u8]> = bytes.into();
        let starts = (0..bytes.len()).step_by(self.atom_bytes);
        for (atom, start) in atoms.zip(starts) {
            self.changing.insert(atom);
            self.versions(atom).push(Version {
                written: Arc::clone(&written),
                start,
                begun,
                settled: None,
                failed: None,
                superseded: None,
                erased: false,
            });
        }
    }

    /// The write is acknowledged: what was settled before it began is not read any more.
    pub fn finish_write(&mut self, write: Write) {
        let now = self.tick();
        for atom in write.atoms {
            for version in &mut self.atoms[atom] {
                if version.begun == write.begun {
                    version.settled = Some(now);
                } else if version.is_over(write.begun) {
                    version.settled.get_or_insert(now);
                    version.superseded.get_or_insert(now);
                }
            }
        }
    }

    /// The write is acknowledged, and durable by that: what it supersedes is gone for ever.
    pub fn finish_durable_write(&mut self, write: Write) {
        let Write { begun, atoms } = write;
        self.finish_write(Write {
            begun,
            atoms: atoms.clone(),
        });
        for atom in atoms {
            for version in &mut self.atoms[atom] {
                version.erased |= version.begun != begun && version.is_over(begun);
            }
        }
    }

    /// The write is answered with an error, or was a discard (as a write of zeroes): old or new.
    pub fn abandon_write(&mut self, write: Write) {
        let now = self.tick();
        for atom in write.atoms {
            for version in &mut self.atoms[atom] {
                if version.begun == write.begun {
                    version.settled = Some(now);
                }
            }
        }
    }

    /// The write is answered with an error and may be carried out later all the same, but not
    /// after a later write of the same atoms.
    pub fn fail_write(&mut self, write: Write) {
        let now = self.tick();
        for atom in write.atoms {
            for version in &mut self.atoms[atom] {
                if version.begun == write.begun {
                    version.failed = Some(now);
                }
            }
        }
    }

    /// Whatever these bytes hold, it may be something else by now, until they are written again.
    pub fn forget(&mut self, offset: usize, length: usize) {
        let now = self.tick();
        for atom in self.range(offset, length) {
            self.changing.insert(atom);
            self.versions(atom).push(Version {
                written: Arc::new([]),
                start: 0,
                begun: now,
                settled: Some(now),
                failed: None,
                superseded: None,
                erased: false,
            });
        }
    }

    /// A flush is submitted.
    pub fn begin_flush(&mut self) -> Flush {
        Flush { begun: self.tick() }
    }

    /// The flush is acknowledged: what was superseded before it began is gone for ever.
    pub fn finish_flush(&mut self, flush: Flush) {
        let oldest_read = self.reads.first().copied().unwrap_or(u64::MAX);
        let changing = std::mem::take(&mut self.changing);
        for atom in changing {
            let versions = self.versions(atom);
            for version in versions.iter_mut() {
                version.erased |= version.superseded.is_some_and(|when| when < flush.begun);
            }
            versions.retain(|version| {
                !version.erased || version.superseded.is_some_and(|when| when > oldest_read)
            });
            assert!(!versions.is_empty(), "an atom holds something");
            if versions.len() > 1 {
                self.changing.insert(atom);
            }
        }
    }

    /// A read is submitted.
    pub fn begin_read(&mut self, offset: usize) -> Read {
        let begun = self.tick();
        self.reads.insert(begun);
        Read { begun, offset }
    }

    /// The read has returned `found`. What it shows while nothing is written stays.
    ///
    /// # Errors
    /// When an atom is none of the versions it may have had since the read began.
    pub fn finish_read(&mut self, read: Read, found: &[u8]) -> Result<(), Mismatch> {
        let now = self.tick();
        self.reads.remove(&read.begun);
        let atoms = self.range(read.offset, found.len());
        let atom_bytes = self.atom_bytes;
        for (atom, found) in atoms.zip(found.chunks(atom_bytes)) {
            if self.atoms[atom].is_empty() && *found == *self.zero.written {
                continue;
            }
            let versions = self.versions(atom);
            let visible =
                |version: &Version| version.superseded.is_none_or(|when| when > read.begun);
            let seen = |version: &Version| version.is_any() || *version.bytes(atom_bytes) == *found;
            if let [version] = &versions[..]
                && visible(version)
                && seen(version)
            {
                // As most are: nothing follows where there is no other.
                continue;
            }
            if !versions
                .iter()
                .any(|version| visible(version) && seen(version))
            {
                let allowed = versions.iter().filter(|version| visible(version));
                return Err(Mismatch {
                    offset: atom * atom_bytes,
                    allowed: allowed
                        .map(|version| version.bytes(atom_bytes).to_vec())
                        .collect(),
                    found: found.to_vec(),
                });
            }
            // What has failed and is shown was carried out after all: what its place held before
            // is gone, although it may come itself once more.
            let late = |version: &Version| version.settled.is_none() && version.failed.is_some();
            let mut shown = versions.iter().filter(|&it| visible(it) && seen(it));
            let is_late = shown.all(late);
            let quiet = |version: &Version| version.settled.is_some_and(|when| when < read.begun);
            let is_over = |it: &Version| quiet(it) || (is_late && it.is_over(read.begun));
            if versions.iter().all(is_over) {
                let is_gone = |it: &&mut Version| !seen(it) && quiet(it);
                for version in versions.iter_mut().filter(is_gone) {
                    version.superseded.get_or_insert(now);
                }
            }
        }
        Ok(())
    }

    /// The read is answered with an error, or not at all.
    pub fn abandon_read(&mut self, read: &Read) {
        self.reads.remove(&read.begun);
    }

    /// The engine dies: everything on its way is undecided. Drop the tokens.
    pub fn stop(&mut self) {
        self.stop_but(&Kept::default());
    }

    /// As a stop, but some requests go on: their guest outlives the engine, and has them carried
    /// out, and answered, by the next one. Drop the tokens of the others.
    pub fn stop_but(&mut self, kept: &Kept<'_>) {
        let now = self.tick();
        let reads: BTreeSet<u64> = kept.reads.iter().map(|read| read.begun).collect();
        let writes: BTreeSet<u64> = kept.writes.iter().map(|write| write.begun).collect();
        self.reads.retain(|begun| reads.contains(begun));
        for atom in &self.changing {
            for version in &mut self.atoms[*atom] {
                if !writes.contains(&version.begun) {
                    version.settled.get_or_insert(now);
                }
            }
        }
    }

    /// The power fails: as a stop, and what was not flushed may be as before. Drop the tokens.
    pub fn power_loss(&mut self) {
        self.stop();
        for atom in &self.changing {
            for version in self.atoms[*atom]
                .iter_mut()
                .filter(|version| !version.erased)
            {
                version.superseded = None;
            }
        }
    }

    /// Tells apart, of volumes that nobody reads or writes now, those that may return other bytes
    /// from now on. `mix` adds a number to a hash.
    #[must_use]
    pub fn fingerprint(&self, mix: impl Fn(u64, u64) -> u64) -> u64 {
        let mut sum = 0;
        for versions in &self.atoms {
            let untouched = versions.is_empty().then_some(&self.zero);
            for version in versions.iter().chain(untouched) {
                for word in version.bytes(self.atom_bytes).chunks(8) {
                    let word = word
                        .iter()
                        .fold(0, |word, byte| word << 8 | u64::from(*byte));
                    sum = mix(sum, word);
                }
                let state = u64::from(version.superseded.is_some()) << 1;
                sum = mix(sum, state | u64::from(version.erased));
            }
            sum = mix(sum, u64::MAX);
        }
        sum
    }

    /// What an atom may hold: at first zeroes.
    fn versions(&mut self, atom: usize) -> &mut Vec<Version> {
        let versions = &mut self.atoms[atom];
        if versions.is_empty() {
            versions.push(self.zero.clone());
        }
        versions
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn range(&self, offset: usize, length: usize) -> Range<usize> {
        let aligned =
            offset.is_multiple_of(self.atom_bytes) && length.is_multiple_of(self.atom_bytes);
        assert!(aligned, "{offset}+{length} in atoms of {}", self.atom_bytes);
        let (start, end) = (
            offset / self.atom_bytes,
            (offset + length) / self.atom_bytes,
        );
        assert!(
            end <= self.atoms.len(),
            "{offset}+{length} is beyond the end"
        );
        start..end
    }
}

#[cfg(test)]
mod tests;
