//! What an engine had begun, in memory that outlives it, and what the next one makes of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use array::assembly::Assembly;
use array::format::ArrayConfig;
use array::{Begun, BegunOf, BegunSpace, BegunWrites, BlockMask, Doubt, ToRedo};
use units::{Instant, MemberIndex, bytes_u64, bytes_usize};
use uuid::Uuid;

use super::disk::{Disk, mix};
use super::machine::room;
use crate::disks::Medium;
use crate::world::place;

/// Bytes of the head and of the table of entries, with what lies between.
const SAID: usize = 128 << 10;

/// The memory of an engine that lives.
#[derive(Debug)]
pub(super) struct Told {
    file: File,
    begun: Arc<Begun>,
}

impl Told {
    pub(super) fn new(config: &ArrayConfig) -> Told {
        let space = BegunSpace::new(1, &room());
        let file = memory::words::unnamed_file(bytes_usize(space.bytes())).expect("memory");
        let own = file.try_clone().expect("a descriptor");
        let begun = Begun::create(own, space, &begun_of(config)).expect("memory");
        Told { file, begun }
    }

    pub(super) fn begun(&self) -> Arc<Begun> {
        Arc::clone(&self.begun)
    }

    /// Tells apart what it says, but for the content of buffers: drives have that, or have not.
    pub(super) fn said(&self) -> u64 {
        let mut bytes = [0; SAID];
        self.file.read_exact_at(&mut bytes, 0).expect("memory");
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let words = (0..).zip(words).filter(|(_, word)| *word != 0);
        words.fold(0, |sum, (at, word)| mix(mix(sum, at), word))
    }

    /// What the next engine finds if this one is killed now.
    pub(super) fn left(&self, now: Instant) -> Memory {
        let length = BegunSpace::new(1, &room()).bytes();
        let mut bytes = vec![0; bytes_usize(length)];
        self.file.read_exact_at(&mut bytes, 0).expect("memory");
        Memory {
            bytes: bytes.into(),
            said: self.said(),
            ended: Duration::from_nanos(now.0),
        }
    }
}

/// What is left of it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    bytes: Rc<[u8]>,
    /// See [`Told::said`].
    pub(super) said: u64,
    /// When all ended that the engine had asked of drives.
    ended: Duration,
}

impl Memory {
    /// The writes of the engine before, if it has something to say of this array.
    pub(super) fn read(&self, assembly: &Assembly) -> Option<Found<'_>> {
        let config = &assembly.config;
        if config.clean {
            return None;
        }
        let known = (config, &assembly.superblock.geometry);
        let length = bytes_u64(self.bytes.len());
        let writes = BegunWrites::read(self.reader(), length, &begun_of(config), known).ok()?;
        let layout = &assembly.superblock.layout;
        let appearance = |member: MemberIndex| {
            let drive = assembly.members[member.at()].expect("it is here");
            place(layout, drive.at()).appearance
        };
        let doubt = writes.doubt(assembly, Some(self.ended), appearance);
        Some(Found {
            memory: self,
            writes,
            doubt,
        })
    }

    fn reader(&self) -> impl Fn(u64, &mut [u8]) -> io::Result<()> {
        |offset, bytes: &mut [u8]| {
            let offset = bytes_usize(offset);
            bytes.copy_from_slice(&self.bytes[offset..offset + bytes.len()]);
            Ok(())
        }
    }
}

/// What was found in it.
pub(super) struct Found<'a> {
    memory: &'a Memory,
    writes: BegunWrites,
    /// Why parity is not to be trusted all the same.
    pub(super) doubt: Option<Doubt>,
}

impl Found<'_> {
    /// All that was begun.
    pub(super) fn to_redo(&self, disks: &[Disk], assembly: &Assembly) -> ToRedo {
        let data = assembly.superblock.layout.data.offset;
        let read_member = |member: MemberIndex, offset: u64, bytes: &mut [u8]| {
            let Some(drive) = assembly.members[member.at()] else {
                return Ok(0);
            };
            let drive = &disks[drive.at()];
            bytes.copy_from_slice(&drive.get(data + offset, bytes_u64(bytes.len())));
            Ok(BlockMask::MAX)
        };
        let mut all = ToRedo::default();
        for position in 0..self.writes.len() {
            let one = self
                .writes
                .redo(position, self.memory.reader(), read_member);
            let one = one.expect("memory");
            assert!(one.lost.is_empty(), "nothing is borrowed from guests");
            all.redo.extend(one.redo);
        }
        all
    }
}

/// Whose it is: all happens between two starts of the machine.
fn begun_of(config: &ArrayConfig) -> BegunOf {
    BegunOf {
        array: config.array,
        boot: Uuid::nil(),
        life: config.life(),
    }
}
