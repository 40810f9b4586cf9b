//! Drives that arrays wait for and that come back as other devices: the kernel gives a drive that
//! was unplugged, or whose enclosure was off, a new node, and the old one never answers again.
//!
//! Such a drive may have lost what was in its cache. One without a volatile cache has everything
//! that it has acknowledged; what it has not is made again by whoever waits. So it is opened anew
//! and takes the old one's number, and the array finds that it works.

use std::sync::Arc;

use array::assembly::is_as_it_was;
use array::format::SUPERBLOCK_BYTES;
use control::request::DriveKnown;
use control::view::DriveView;
use control::{Answer, ErrorKind};
use drive::{Drive, DriveInfo, SUPERBLOCK_OFFSET};
use units::{ArrayIndex, DriveIndex, MemberIndex};
use uuid::Uuid;

use crate::error::{error, not_found};
use crate::state::DriveRole;
use crate::{Host, records};

/// A member that its array waits for.
struct Awaited {
    index: DriveIndex,
    drive: Arc<Drive>,
    array: ArrayIndex,
    member: MemberIndex,
}

impl Host {
    pub(crate) fn do_awaited(&self) -> Vec<String> {
        let arrays: Vec<(ArrayIndex, Uuid)> = {
            let state = self.state();
            let arrays = state.arrays.values();
            let running = arrays.filter(|array| array.serving.has_shards());
            running.map(|array| (array.index, array.uuid)).collect()
        };
        // Mostly nobody waits, and no drive is looked at.
        let holds = |(index, _): &(ArrayIndex, Uuid)| self.engine.hold(*index).is_some();
        let holding: Vec<(ArrayIndex, Uuid)> = arrays.into_iter().filter(holds).collect();
        let mut members: Vec<String> = {
            let state = self.state();
            let is_of = |role: &DriveRole| match role {
                DriveRole::Member { array, .. } => holding.iter().any(|(_, uuid)| uuid == array),
                DriveRole::LeftOut { .. } | DriveRole::Copy { .. } | DriveRole::Free => false,
            };
            let drives = state.drives.values().filter(|entry| is_of(&entry.role));
            drives.map(|entry| entry.name.clone()).collect()
        };
        members.retain(|name| self.awaits(name));
        members
    }

    /// Whether an array waits for a drive that the host has taken away.
    pub(crate) fn awaits(&self, name: &str) -> bool {
        self.awaited(name).is_some()
    }

    fn awaited(&self, name: &str) -> Option<Awaited> {
        let awaited = {
            let state = self.state();
            let entry = state.drives.get(name)?;
            let DriveRole::Member { array, member } = entry.role else {
                return None;
            };
            Awaited {
                index: entry.index,
                drive: Arc::clone(&entry.drive),
                array: state.array_by_uuid(array)?.index,
                member,
            }
        };
        let hold = self.engine.hold(awaited.array)?;
        let waits = hold.members.iter().any(|(held, _)| *held == awaited.member);
        (waits && awaited.drive.is_taken_away()).then_some(awaited)
    }

    pub(crate) fn do_reopen_awaited(&self, known: &DriveKnown) -> Answer<DriveView> {
        let object = format!("drive {}", known.name);
        let awaited = self.awaited(&known.name);
        let awaited = awaited.ok_or_else(|| not_found("drive", &known.name))?;
        let place = self.find_again(known)?;
        let refuse = |text: String| {
            error(ErrorKind::Unsafe, object.clone(), text).next(
                "it is not taken back while its array waits for it: stop and start the engine, \
                 which finds out what it has",
            )
        };
        judge(&awaited.drive, &place.opened.drive).map_err(refuse)?;
        self.judge_records(&awaited, &place.opened.drive)
            .map_err(refuse)?;
        // Whoever took its file for another one has not taken the file from us.
        let mut block = [0; SUPERBLOCK_BYTES];
        if awaited.drive.read(SUPERBLOCK_OFFSET, &mut block).is_ok() {
            let text = "it can still be read where it was".to_owned();
            return Err(error(ErrorKind::Busy, object, text).next("its array finds that it works"));
        }
        if !self.awaits(&known.name) {
            return Err(not_found("drive", &known.name));
        }
        // Ours is one reference more to what waits until the kernel has let go of it.
        let Awaited { drive, array, .. } = awaited;
        drop(drive);
        self.let_go(&known.name, Some((&place.opened.drive, array)))?;
        let before = {
            let mut state = self.state();
            let entry = state.drives.get_mut(&known.name);
            entry.map(|entry| {
                entry.spec = place.spec.kept();
                std::mem::replace(&mut entry.drive, place.opened.drive)
            })
        };
        // Closing a device may take its time.
        drop(before);
        tracing::info!(event = "drive_reopened", object, spec = %place.spec,
            "it is another device now, and its array goes on with it");
        // If it was left out a moment ago, it returns.
        self.bring_back(&known.name);
        self.drive_view(&known.name)
    }

    /// Whether nobody has made the drive take part in anything since it was away.
    fn judge_records(&self, awaited: &Awaited, drive: &Drive) -> Result<(), String> {
        let superblock = {
            let state = self.state();
            let mut arrays = state.arrays.values();
            let array = arrays.find(|array| array.index == awaited.array);
            array.map(|array| array.superblock)
        };
        let records = self.engine.records(awaited.array);
        let (Some(superblock), Some([durable, attempted])) = (superblock, records) else {
            return Err("its array does not run".to_owned());
        };
        let found = records::read(awaited.index, drive).map_err(|error| error.to_string())?;
        match is_as_it_was(&found, &superblock, &durable, &attempted) {
            Ok(member) if member == awaited.member => Ok(()),
            Ok(member) => Err(format!("it is {member}, not {}", awaited.member)),
            Err(reason) => Err(reason.to_string()),
        }
    }
}

/// Whether a drive that was away can have nothing lost, and works as it did.
fn judge(before: &Drive, now: &Drive) -> Result<(), String> {
    if before.has_volatile_cache() || now.has_volatile_cache() {
        let text = "it has a volatile cache and was away: it may have lost what was not flushed";
        return Err(text.to_owned());
    }
    let shape = |info: &DriveInfo| {
        (
            (info.kind, info.size_bytes, info.block_bytes),
            (
                info.transfer_bytes_max,
                info.segments_max,
                info.memory_align,
            ),
            (
                info.can_discard,
                info.discard_reads_zero,
                info.can_write_zeroes,
            ),
        )
    };
    if shape(before.info()) != shape(now.info()) {
        return Err("its size, blocks or limits are others than before".to_owned());
    }
    Ok(())
}
