//! The volume table: create, grow, delete, and what a restart finishes.
//!
//! Every change is made to a copy of the config record that the caller commits as one update
//! (`ArrayConfig::next`). Creating and growing take two updates when old data has to be zeroed in
//! between; docs/on-disk.md, section 4, tells why no crash shows it to anybody.

use array::format::{
    ArrayConfig, ConfigTooLarge, ExtentRun, ExtentSpace, LOST_RECORD_BYTES, RUN_RECORD_BYTES,
    Superblock, Uuid, VolumeRecord, VolumeState, check_name, extents_of,
};
use array::planted::{self, Fault};
use units::limits::{ARRAY_LOST_WORDS_MAX, ARRAY_VOLUMES_MAX};
use units::{Size, bytes_u64};

use crate::VolumeError;
use crate::free::{both, choose, free, joined, without};

/// A volume to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Its identity.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its size, exactly.
    pub size: Size,
    /// Its user promises not to change a buffer that is being written.
    pub stable_buffers: bool,
}

/// What must read as zeroes, durably and with parity that agrees, before the change is finished.
///
/// Commit the record first, zero this, then finish. With nothing to zero nothing is to be finished.
#[must_use = "a volume must not show old data"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// Whole extents, sorted.
    pub runs: Vec<ExtentRun>,
    /// What the volume has behind its end already: the first block of the array, and how many. The
    /// record does not tell that this is under way: as long as zeroes may land there nobody is to
    /// grow or delete the volume.
    pub tail: Option<(u64, u64)>,
}

impl Zeroing {
    /// Whether the change is finished already.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.runs.is_empty() && self.tail.is_none()
    }

    /// All of it: the first block of the array, and how many.
    pub fn blocks(&self, space: &ExtentSpace) -> impl Iterator<Item = (u64, u64)> {
        let runs = self.runs.iter().map(|run| space.blocks(*run));
        runs.chain(self.tail)
    }
}

/// The volume table of a config record that is about to be committed.
#[derive(Debug)]
pub struct VolumeTable<'c> {
    config: &'c mut ArrayConfig,
    space: ExtentSpace,
    config_bytes: u64,
}

impl<'c> VolumeTable<'c> {
    /// The table inside `config`, which belongs to the array that `superblock` describes.
    ///
    /// # Panics
    /// When it does not; every record that was assembled does.
    #[must_use]
    pub fn new(config: &'c mut ArrayConfig, superblock: &Superblock) -> VolumeTable<'c> {
        assert_eq!(config.check_against(superblock), Ok(()));
        VolumeTable {
            config,
            space: superblock.extents(),
            config_bytes: superblock.layout.config[0].length,
        }
    }

    /// Bytes that volumes can still be made of: whole extents.
    #[must_use]
    pub fn free_bytes(&self) -> Size {
        let free = extents_of(&free(self.config, self.space.count()));
        Size(self.space.bytes(free))
    }

    /// Bytes that volumes can be made of at all: whole extents.
    #[must_use]
    pub fn capacity_bytes(&self) -> Size {
        Size(self.space.bytes(self.space.count()))
    }

    /// Extents for a volume of `size` from first to last, few runs and zeroed ones first. Takes
    /// nothing.
    ///
    /// # Errors
    /// `Size` and `NoSpace`.
    pub fn allocate(&self, size: Size) -> Result<Vec<ExtentRun>, VolumeError> {
        let blocks = self.blocks(size)?;
        self.choose(self.space.needed(blocks), None)
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// `Name`, `NameTaken`, `UuidTaken`, `TooMany`, `Size`, `NoSpace`, `RecordFull`.
    pub fn create(&mut self, new: NewVolume) -> Result<Zeroing, VolumeError> {
        check_name(&new.name).map_err(VolumeError::Name)?;
        let volumes = &self.config.volumes;
        if let Some(other) = volumes.iter().find(|volume| volume.uuid == new.uuid) {
            return Err(VolumeError::UuidTaken {
                uuid: new.uuid,
                name: other.name.clone(),
            });
        }
        if volumes.iter().any(|volume| volume.name == new.name) {
            return Err(VolumeError::NameTaken { name: new.name });
        }
        if volumes.len() >= ARRAY_VOLUMES_MAX {
            return Err(VolumeError::TooMany);
        }
        let size_blocks = self.blocks(new.size)?;
        let extents = self.choose(self.space.needed(size_blocks), None)?;
        let zeroing = self.zeroing(&extents);
        self.config.volumes.push(VolumeRecord {
            uuid: new.uuid,
            name: new.name,
            size_blocks,
            extents,
            state: if zeroing.is_done() {
                VolumeState::Ready
            } else {
                VolumeState::Creating
            },
            stable_buffers: new.stable_buffers,
        });
        if let Err(full) = self.check_room() {
            self.config.volumes.pop();
            return Err(full);
        }
        Ok(zeroing)
    }

    /// Makes a volume ready whose extents have been zeroed.
    ///
    /// # Errors
    /// `NotFound`, and `Busy` when it is not being created.
    pub fn finish_create(&mut self, uuid: Uuid) -> Result<(), VolumeError> {
        let at = self.position(uuid)?;
        let volume = &mut self.config.volumes[at];
        if volume.state != VolumeState::Creating {
            return Err(busy(volume));
        }
        volume.state = VolumeState::Ready;
        let extents = volume.extents.clone();
        self.mark_zeroed(extents);
        Ok(())
    }

    /// Makes a volume larger. Unless the zeroing is done at once, its size changes only with
    /// [`VolumeTable::finish_grow`]. The same size again changes nothing.
    ///
    /// # Errors
    /// `NotFound`, `Busy`, `Size`, `Shrink`, `NoSpace`, `RecordFull`.
    pub fn grow(&mut self, uuid: Uuid, size: Size) -> Result<Zeroing, VolumeError> {
        let at = self.position(uuid)?;
        self.check_idle(at)?;
        let size_blocks = self.blocks(size)?;
        let volume = &self.config.volumes[at];
        if size_blocks < volume.size_blocks {
            return Err(VolumeError::Shrink {
                name: volume.name.clone(),
                from: Size(volume.size_blocks * self.space.block_bytes()),
                to: size,
            });
        }
        let more = self.space.needed(size_blocks) - extents_of(&volume.extents);
        let tail = (size_blocks > volume.size_blocks).then(|| self.tail(volume));
        let mut zeroing = Zeroing::default();
        if more > 0 {
            let before = volume.extents.clone();
            let after = before.last().map(|run| run.first + run.count);
            let added = self.choose(more, after)?;
            zeroing = self.zeroing(&added);
            append(&mut self.config.volumes[at].extents, &added);
            if let Err(full) = self.check_room() {
                self.config.volumes[at].extents = before;
                return Err(full);
            }
        }
        zeroing.tail = tail.flatten();
        if zeroing.is_done() {
            self.config.volumes[at].size_blocks = size_blocks;
        }
        Ok(zeroing)
    }

    /// Changes the size of a volume when what it gets has been zeroed.
    ///
    /// # Errors
    /// `NotFound`; `Busy` when it is not ready; `Size` and `NoSpace` when `size` is not what its
    /// extents were added for.
    pub fn finish_grow(&mut self, uuid: Uuid, size: Size) -> Result<(), VolumeError> {
        let at = self.position(uuid)?;
        let size_blocks = self.blocks(size)?;
        let needed = self.space.needed(size_blocks);
        let volume = &mut self.config.volumes[at];
        if volume.state != VolumeState::Ready || size_blocks < volume.size_blocks {
            return Err(busy(volume));
        }
        if extents_of(&volume.extents) != needed {
            return Err(self.no_space(needed));
        }
        let held = self.space.needed(volume.size_blocks);
        volume.size_blocks = size_blocks;
        // Of those that it had nobody has zeroed what it shows.
        let added = cut(&mut volume.extents.clone(), held);
        self.mark_zeroed(added);
        Ok(())
    }

    /// Marks a volume as being deleted, when something has to be done between the two updates.
    ///
    /// # Errors
    /// `NotFound`, `Busy`.
    pub fn begin_delete(&mut self, uuid: Uuid) -> Result<(), VolumeError> {
        let at = self.position(uuid)?;
        self.check_idle(at)?;
        self.config.volumes[at].state = VolumeState::Deleting;
        Ok(())
    }

    /// Removes a volume that is ready or being deleted. What it held may be old data from now on.
    /// The record does not grow by this.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while its extents are being zeroed, because whoever does that would
    /// overwrite the next owner of them.
    pub fn delete(&mut self, uuid: Uuid) -> Result<(), VolumeError> {
        let at = self.position(uuid)?;
        if self.config.volumes[at].state != VolumeState::Deleting {
            self.check_idle(at)?;
        }
        let volume = self.config.volumes.remove(at);
        if !planted::is(Fault::DeletedVolumeCountsAsZeroes) {
            self.mark_unzeroed(volume.extents);
        }
        Ok(())
    }

    /// Finishes what a stopped engine left half done: drops volumes that were being created or
    /// deleted, and gives back extents that a grow had added. To be committed with the start of
    /// the array, before any volume is exported. Gives the volumes that were dropped.
    pub fn recover(&mut self) -> Vec<VolumeRecord> {
        self.recover_but(&[])
    }

    /// [`VolumeTable::recover`], but for volumes that somebody is still making or growing.
    pub fn recover_but(&mut self, under_way: &[Uuid]) -> Vec<VolumeRecord> {
        let mut dropped = Vec::new();
        let mut returned = Vec::new();
        for volume in std::mem::take(&mut self.config.volumes) {
            match volume.state {
                VolumeState::Ready => self.config.volumes.push(volume),
                VolumeState::Creating if under_way.contains(&volume.uuid) => {
                    self.config.volumes.push(volume);
                }
                VolumeState::Creating | VolumeState::Deleting => {
                    returned.extend_from_slice(&volume.extents);
                    dropped.push(volume);
                }
            }
        }
        let volumes = self.config.volumes.iter_mut();
        for volume in volumes.filter(|volume| !under_way.contains(&volume.uuid)) {
            let needed = self.space.needed(volume.size_blocks);
            returned.extend(cut(&mut volume.extents, needed));
        }
        self.mark_unzeroed(returned);
        dropped
    }

    /// Nobody can tell whether anything was written to these blocks of the array, and so what is
    /// there: what is free of them is zeroed before it is anybody's. To be committed like
    /// [`VolumeTable::recover`].
    pub fn distrust(&mut self, blocks: impl Iterator<Item = (u64, u64)>) {
        let (each, all) = (self.space.extent_blocks(), self.space.count());
        let mut runs = Vec::new();
        for (first, end) in blocks {
            let (first, end) = (first / each, end.div_ceil(each).min(all));
            if first < end {
                let count = end - first;
                runs = without(&runs, &[ExtentRun { first, count }]);
                runs.push(ExtentRun { first, count });
                runs = joined(runs);
            }
        }
        if runs.is_empty() {
            return;
        }
        let before = self.config.unzeroed.clone();
        // Those of volumes as well: fewer runs, and they count for nothing as long as they are.
        self.mark_unzeroed(runs);
        if self.check_room().is_err() {
            self.config.unzeroed = before;
            let (first, count) = (0, all);
            self.mark_unzeroed(vec![ExtentRun { first, count }]);
        }
    }

    fn position(&self, uuid: Uuid) -> Result<usize, VolumeError> {
        let volumes = &self.config.volumes;
        volumes
            .iter()
            .position(|volume| volume.uuid == uuid)
            .ok_or(VolumeError::NotFound { uuid })
    }

    /// Refuses a volume that is not ready or has extents that are still being zeroed.
    fn check_idle(&self, at: usize) -> Result<(), VolumeError> {
        let volume = &self.config.volumes[at];
        let growing = extents_of(&volume.extents) > self.space.needed(volume.size_blocks);
        if volume.state != VolumeState::Ready || growing {
            return Err(busy(volume));
        }
        Ok(())
    }

    /// Refuses a record that does not fit its area, now or after what is under way has been
    /// finished or dropped: only creating and growing may meet a full area.
    fn check_room(&self) -> Result<(), VolumeError> {
        let volumes = &self.config.volumes;
        let runs = volumes
            .iter()
            .map(|volume| volume.extents.len())
            .sum::<usize>()
            + self.config.unzeroed.len();
        // Taking a volume's runs from the unzeroed ones, or cutting it short, splits at most as
        // many runs as it has and one more. No extent is in more than one run of either table.
        let unfinished = (0..volumes.len()).filter(|at| self.check_idle(*at).is_err());
        let splits: usize = unfinished.map(|at| volumes[at].extents.len() + 1).sum();
        let runs_max = bytes_u64(runs + splits).min(2 * self.space.count());
        let later = runs_max.saturating_sub(bytes_u64(runs)) * bytes_u64(RUN_RECORD_BYTES);
        // And lost blocks may be listed at any time.
        let listed = self.config.lost.words().len();
        let later = later + bytes_u64((ARRAY_LOST_WORDS_MAX - listed) * LOST_RECORD_BYTES);
        let needed_bytes = (self.config.record_bytes() + later).next_multiple_of(4096);
        if needed_bytes <= self.config_bytes {
            return Ok(());
        }
        Err(VolumeError::RecordFull(ConfigTooLarge {
            needed_bytes,
            room_bytes: self.config_bytes,
        }))
    }

    fn blocks(&self, size: Size) -> Result<u64, VolumeError> {
        let block_bytes = self.space.block_bytes();
        if size.0 == 0 || !size.0.is_multiple_of(block_bytes) {
            return Err(VolumeError::Size { size, block_bytes });
        }
        Ok(size.0 / block_bytes)
    }

    fn choose(&self, count: u64, after: Option<u64>) -> Result<Vec<ExtentRun>, VolumeError> {
        let free = free(self.config, self.space.count());
        choose(&free, &self.config.unzeroed, count, after).ok_or_else(|| self.no_space(count))
    }

    fn no_space(&self, extents: u64) -> VolumeError {
        let extent_bytes = self.space.extent_blocks() * self.space.block_bytes();
        VolumeError::NoSpace {
            needed: Size(extents.saturating_mul(extent_bytes)),
            free: self.free_bytes(),
        }
    }

    fn zeroing(&self, extents: &[ExtentRun]) -> Zeroing {
        if planted::is(Fault::NewVolumeNotZeroed) {
            return Zeroing::default();
        }
        Zeroing {
            runs: both(&joined(extents.to_vec()), &self.unreadable_as_zeroes()),
            tail: None,
        }
    }

    /// What lies behind the end of a volume in its last extent, unless it reads as zeroes as it
    /// was when the volume got that extent.
    fn tail(&self, volume: &VolumeRecord) -> Option<(u64, u64)> {
        let last = volume.extents.last()?;
        let (first, count) = (last.first + last.count - 1, 1);
        let last = ExtentRun { first, count };
        let (start, blocks) = self.space.blocks(last);
        let used = volume.size_blocks % blocks;
        let reads_zero = used == 0 || self.zeroing(&[last]).is_done();
        (!reads_zero).then_some((start + used, blocks - used))
    }

    fn mark_zeroed(&mut self, extents: Vec<ExtentRun>) {
        self.config.unzeroed = without(&self.config.unzeroed, &joined(extents));
    }

    /// Extents that may hold old data, and those in which blocks are lost: a read of these fails
    /// until they are written, whatever they would hold.
    fn unreadable_as_zeroes(&self) -> Vec<ExtentRun> {
        let each = self.space.extent_blocks();
        let lost = self.config.lost.runs().map(|(first, count)| {
            let (first, last) = (first / each, (first + count - 1) / each);
            let count = last - first + 1;
            ExtentRun { first, count }
        });
        let mut runs = self.config.unzeroed.clone();
        for run in lost {
            runs = without(&runs, &[run]);
            runs.push(run);
            runs = joined(runs);
        }
        runs
    }

    fn mark_unzeroed(&mut self, extents: Vec<ExtentRun>) {
        let mut unzeroed = without(&self.config.unzeroed, &joined(extents.clone()));
        unzeroed.extend(extents);
        self.config.unzeroed = joined(unzeroed);
    }
}

/// Names of the volumes that have, within their size, what [`VolumeTable::distrust`] was told:
/// nothing else lists an extent that a ready volume needs. As long as they are there, because
/// nobody knows whether they were written all over since.
#[must_use]
pub fn distrusted<'c>(config: &'c ArrayConfig, space: &ExtentSpace) -> Vec<&'c str> {
    if !config.features.has_unwritten() {
        return Vec::new();
    }
    let has = |volume: &&VolumeRecord| {
        // What is being added to it is listed, too, until it is zeroed.
        let mut own = volume.extents.clone();
        cut(&mut own, space.needed(volume.size_blocks));
        let is_ready = volume.state == VolumeState::Ready;
        is_ready && !both(&joined(own), &config.unzeroed).is_empty()
    };
    let volumes = config.volumes.iter().filter(has);
    volumes.map(|volume| volume.name.as_str()).collect()
}

fn busy(volume: &VolumeRecord) -> VolumeError {
    VolumeError::Busy {
        name: volume.name.clone(),
    }
}

/// Appends runs in the volume's order, joining where the array's order agrees.
fn append(extents: &mut Vec<ExtentRun>, added: &[ExtentRun]) {
    for run in added {
        match extents.last_mut() {
            Some(last) if last.first + last.count == run.first => last.count += run.count,
            Some(_) | None => extents.push(*run),
        }
    }
}

/// Keeps the first `keep` extents and gives the rest.
fn cut(extents: &mut Vec<ExtentRun>, keep: u64) -> Vec<ExtentRun> {
    let mut left = keep;
    let mut rest = Vec::new();
    let mut kept = Vec::new();
    for run in extents.iter() {
        let take = run.count.min(left);
        left -= take;
        let (first, count) = (run.first, take);
        kept.extend((take > 0).then_some(ExtentRun { first, count }));
        let (first, count) = (run.first + take, run.count - take);
        rest.extend((count > 0).then_some(ExtentRun { first, count }));
    }
    *extents = kept;
    rest
}
