//! What the last engine had begun, in memory that outlives it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use array::assembly::Assembly;
use array::planted::{self, Fault};
use array::{Begun, BegunOf, BegunSpace, BegunWrites, Redo};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::world;

impl History {
    /// Whose file one of this start is.
    fn begun_of(&self, config: &ArrayConfig) -> BegunOf {
        BegunOf {
            array: config.array,
            boot: Uuid::from_u128(self.boot.into()),
            life: config.life(),
        }
    }

    /// Memory for the next life. Some hosts have none.
    pub(super) fn begun_file(
        &mut self,
        config: &ArrayConfig,
        reactors: usize,
    ) -> Option<Arc<Begun>> {
        self.is_told = self.random.happens(850);
        if !self.is_told {
            return None;
        }
        let space = BegunSpace::new(reactors, &world::room(reactors));
        let file = memory::words::unnamed_file(bytes_usize(space.bytes())).expect("memory");
        self.begun.push(file.try_clone().expect("a descriptor"));
        let begun = Begun::create(file, space, &self.begun_of(config));
        Some(begun.expect("memory"))
    }

    /// Writes again what the last engine had begun, if it can be known: the number of member writes
    /// is at most `most`. Files of other lives are there too, and must not count.
    pub(super) fn redo_begun(
        &self,
        drives: &mut [SimDrive],
        assembly: &Assembly,
        most: usize,
    ) -> Vec<Redo> {
        let whose = self.begun_of(&assembly.config);
        let known = (&assembly.config, &self.geometry);
        let reads = |file: &File, offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        let newest_first = self.begun.iter().rev();
        let found = newest_first.filter_map(|file| {
            let length = file.metadata().expect("a file").len();
            let read = |offset, bytes: &mut [u8]| reads(file, offset, bytes);
            let writes = BegunWrites::read(read, length, &whose, known).ok()?;
            Some((file, writes))
        });
        let mut redo = Vec::new();
        let skipped = assembly.config.clean || planted::is(Fault::BegunNotRedone);
        for (file, writes) in found.take(usize::from(!skipped)) {
            for position in 0..writes.len() {
                let read = |offset, bytes: &mut [u8]| reads(file, offset, bytes);
                redo.extend(writes.redo(position, read).expect("memory"));
            }
        }
        for part in redo.iter().take(most) {
            if let Some(drive) = assembly.members[part.member.at()] {
                let offset = self.layout.data.offset + part.offset;
                drives[drive.at()].put(offset, &part.bytes);
            }
        }
        redo
    }

    /// Writes of some lengths begin, and the end comes while members are writing.
    pub(super) fn write_at_once(&mut self, world: &mut World) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let writes = 2 + self.random.below(8);
        for _ in 0..writes {
            let asked = (0..4).find_map(|_| {
                let asked = self.client.draw(&mut self.random, stripe_blocks);
                asked.filter(|asked| asked.changes())
            });
            if let Some(asked) = asked {
                let _ = self.client.submit(asked, world);
            }
            let steps = self.random.below(8);
            self.turn(world, steps);
        }
        let data = self.layout.data.offset;
        let writes = |world: &World| {
            let drives = world.outside.drives.iter();
            drives.filter(|drive| drive.is_writing_from(data)).count()
        };
        let few = self.random.position(3) + 1;
        for _ in 0..400 {
            if writes(world) >= few {
                break;
            }
            self.turn(world, 1);
        }
        let steps = self.random.below(4);
        (0..steps).for_each(|_| world.step());
    }

    /// The process has died, or the power has failed: what is left in memory, and of what boot.
    pub(super) fn leave_begun(&mut self, power: bool) {
        if power {
            self.boot += 1;
        }
        // A start that is durable removes those before, unless it dies before it does.
        if self.random.happens(700) {
            let old = self.begun.len().saturating_sub(1);
            self.begun.drain(..old);
        }
    }
}
