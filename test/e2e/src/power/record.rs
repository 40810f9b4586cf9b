//! Runs inside the virtual machine: writes to the export, and keeps a diary of what was asked and
//! what was answered. After each answered flush it writes to a device of its own, forced through
//! the cache, beside the members on the logged device: by these markers the diary's moments are
//! found in the kernel's trace.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::device::{Device, Kind};
use crate::diary::{Entry, content};
use crate::random::Random;

/// O_DIRECT and O_DSYNC on x86-64.
const FLAGS: i32 = 0o40000 | 0o10000;
/// Sectors from one marker to the next.
pub(crate) const MARKER_SECTORS: u64 = 8;
/// Longer than regions stay dirty that nobody writes to.
const QUIET: Duration = Duration::from_secs(12);
/// After a quiet spell half of the requests come so far apart that each makes only its own regions
/// dirty; the others make all dirty at once (docs/on-disk.md, section 8).
const GENTLE: Duration = Duration::from_millis(150);
/// Quiet spells during a recording.
const SPELLS: usize = 3;

struct Recorder {
    device: Device,
    markers: File,
    marker: u64,
    diary: String,
    random: Random,
    writes: u64,
    /// By slot: what was asked, for its answer.
    asked: Vec<Option<Entry>>,
}

/// Records `requests` requests to the export at `socket`, and leaves the diary at `diary`.
pub(crate) fn record(
    (socket, markers, diary): (&Path, &Path, &Path),
    seed: u64,
    requests: usize,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let markers = options.write(true).custom_flags(FLAGS).open(markers)?;
    let mut recorder = Recorder {
        device: Device::connect(socket)?,
        markers,
        marker: 0,
        diary: String::new(),
        random: Random::new(seed),
        writes: 0,
        asked: vec![None; crate::device::DEPTH],
    };
    recorder.mark()?;
    let spell = (requests / SPELLS).max(1);
    for request in 0..requests {
        if request > 0 && request.is_multiple_of(spell) {
            recorder.drain()?;
            std::thread::park_timeout(QUIET);
        }
        recorder.ask()?;
        if request > spell && request % spell < spell / 2 {
            std::thread::park_timeout(GENTLE);
        }
    }
    recorder.drain()?;
    std::fs::write(diary, recorder.diary)
}

impl Recorder {
    fn say(&mut self, entry: &Entry) {
        writeln!(self.diary, "{entry}").expect("a text takes everything");
    }

    /// Everything in the diary so far has happened before this.
    fn mark(&mut self) -> io::Result<()> {
        let mut buffer = vec![0u8; 8192];
        let start = buffer.as_ptr().align_offset(4096);
        let block = &mut buffer[start..start + 4096];
        block[..8].copy_from_slice(&self.marker.to_le_bytes());
        let place = self.marker * MARKER_SECTORS * 512;
        self.markers.write_all_at(block, place)?;
        let marker = self.marker;
        self.say(&Entry::Marker(marker));
        self.marker += 1;
        Ok(())
    }

    fn ask(&mut self) -> io::Result<()> {
        let Some(slot) = self.device.free() else {
            self.answer()?;
            return self.ask();
        };
        if self.random.below(5) == 0 {
            let number = self.writes;
            self.writes += 1;
            self.submit(slot, Entry::Flush(number), &[])
        } else {
            let bytes = self.device.bytes()?;
            let lengths = [
                512,
                4096,
                4096,
                4096,
                24 << 10,
                64 << 10,
                128 << 10,
                256 << 10,
            ];
            let length = lengths[self.random.below(lengths.len())];
            // Most of it in little room, so that writes meet in stripes.
            let range = [1 << 20, 4 << 20, bytes][self.random.below(3)].min(bytes);
            let offset = self.random.below((range - length) / 512 + 1) * 512;
            let number = self.writes;
            self.writes += 1;
            let write = Entry::Write {
                number,
                offset,
                length,
            };
            self.submit(slot, write, &content(number, length))
        }
    }

    fn submit(&mut self, slot: usize, entry: Entry, data: &[u8]) -> io::Result<()> {
        self.say(&entry);
        let request = match entry {
            Entry::Write { offset, length, .. } => (Kind::Write, offset, length),
            Entry::Flush(_) | Entry::Done(_) | Entry::Marker(_) => (Kind::Flush, 0, 0),
        };
        self.asked[slot] = Some(entry);
        self.device.submit(slot, request, data)
    }

    fn answer(&mut self) -> io::Result<()> {
        let slot = self.device.wait()?;
        match self.asked[slot].take() {
            Some(Entry::Flush(number)) => {
                self.say(&Entry::Done(number));
                self.mark()
            }
            Some(Entry::Write { number, .. }) => {
                self.say(&Entry::Done(number));
                Ok(())
            }
            Some(Entry::Done(_) | Entry::Marker(_)) | None => unreachable!("never asked"),
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        while self.asked.iter().any(Option::is_some) {
            self.answer()?;
        }
        self.mark()
    }
}
