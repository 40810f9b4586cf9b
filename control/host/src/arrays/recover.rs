//! What an unclean stop has left: logged writes are done again, and the region map says where
//! parity may be torn.

use std::sync::Arc;

use array::assembly::Assembly;
use array::format::MemberState;
use array::{Redo, RegionMap, Replay};
use control::Answer;
use units::MemberIndex;

use crate::begun::BegunFile;
use crate::error::of_io;
use crate::{Host, records};

impl Host {
    /// Does again what is known of the writes that were under way at an unclean stop.
    /// Gives what was written, and whether parity agrees with data everywhere now.
    pub(super) fn redo(
        &self,
        object: &str,
        assembly: &Assembly,
        regions: &RegionMap,
    ) -> Answer<(Vec<Redo>, bool)> {
        let begun = self.find_begun(object, assembly);
        let mut redo = self.replay_log(object, assembly, (regions, begun.as_ref()))?;
        let Some(mut begun) = begun else {
            return Ok((redo, false));
        };
        redo.append(&mut self.redo_begun(object, assembly, &mut begun)?);
        Ok((redo, begun.agrees(object)))
    }

    /// Does again the writes that were under way when the array was stopped uncleanly, as the log
    /// has them, and makes them durable.
    /// Gives what was written.
    fn replay_log(
        &self,
        object: &str,
        assembly: &Assembly,
        (regions, begun): (&RegionMap, Option<&BegunFile>),
    ) -> Answer<Vec<Redo>> {
        let (superblock, config) = (&assembly.superblock, &assembly.config);
        if config.clean || superblock.geometry.parity() == 0 {
            return Ok(Vec::new());
        }
        let is_here = |member: MemberIndex| assembly.members[member.at()].is_some();
        let mut replay = Replay::new(config, superblock, regions, is_here);
        let drives = self.member_drives(assembly);
        let io = |name: &str, what: &str, source| {
            of_io(format!("{object}, drive {name}"), what, &source)
                .next("take that drive out, or see what it needs, and start the array again")
        };
        for (position, drive) in drives.iter().enumerate() {
            if let Some((name, drive)) = drive {
                let member = MemberIndex::from_at(position);
                records::read_log(drive, superblock, member, &mut replay)
                    .map_err(|source| io(name, "reading its log", source))?;
            }
        }
        let redo = replay.redo();
        tracing::info!(
            event = "log_read",
            object,
            writes = redo.len(),
            "the log is read"
        );
        if let Some(begun) = begun.filter(|_| !redo.is_empty()) {
            begun.withdraw(object)?;
        }
        for part in &redo {
            if let Some((name, drive)) = &drives[part.member.at()] {
                let offset = superblock.layout.data.offset + part.offset;
                let written = drive.write(offset, &part.bytes);
                written.map_err(|source| io(name, "writing what its log holds", source))?;
            }
        }
        if redo.is_empty() {
            return Ok(redo);
        }
        for (name, drive) in drives.iter().flatten() {
            drive
                .flush()
                .map_err(|source| io(name, "flushing it", source))?;
        }
        Ok(redo)
    }

    /// The region map as the members in sync have it. What cannot be read counts as dirty.
    pub(super) fn read_regions(&self, assembly: &Assembly) -> RegionMap {
        let superblock = &assembly.superblock;
        let mut map = RegionMap::new(superblock.regions(), superblock.array);
        for (position, record) in assembly.config.members.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let drive = assembly.members[position].filter(|_| record.state == MemberState::InSync);
            let drive = drive.and_then(|index| {
                let state = self.state();
                let entry = state.drive_at(index)?;
                Some((entry.name.clone(), Arc::clone(&entry.drive)))
            });
            let Some((name, drive)) = drive else {
                continue;
            };
            if let Err(source) = records::read_regions(&drive, superblock, member, &mut map) {
                tracing::warn!(event = "regions_unreadable", drive = name, error = %source,
                    "its copies of the region map count for nothing");
            }
        }
        map.complete();
        map
    }
}
