//! Volumes: made, grown and deleted by updates of their array's configuration.

use array::Command;
use array::format::{ArrayConfig, Superblock, VolumeState};
use control::engine::Begun;
use control::request::{VolumeCreate, VolumeLimit};
use control::view::{VolumeKey, VolumeView};
use control::{Answer, EngineError, ErrorKind};
use engine::ExportHost;
use units::limits::VOLUME_BURST_MS;
use units::{ArrayIndex, Clock, MonotonicClock, Size};
use uuid::Uuid;
use vhost_user_blk::{Counters, QueueKey};
use volume::{Limits, NewVolume, VolumeMap, VolumeTable, Zeroing};

use crate::arrays::stopping;
use crate::error::{WAY_OUT_OF_HANGS, error, late_and_taken_back, not_found, of_volume};
use crate::state::{ExportEntry, Serving, State};
use crate::undecided::About;
use crate::zeroing::{VolumeChange, ZeroingEntry};
use crate::{Host, views};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// How often it is asked what the guests of a volume did, while some of them go.
const LOOKS: u32 = 3;

/// A volume and the array that it lies on.
pub(crate) struct Located {
    pub(crate) array: ArrayIndex,
    pub(crate) array_uuid: Uuid,
    pub(crate) superblock: Superblock,
    pub(crate) config: ArrayConfig,
    pub(crate) volume: Uuid,
    /// What users call it.
    pub(crate) name: String,
}

impl Located {
    /// What limits and counters are kept by.
    pub(crate) fn key(&self) -> (Uuid, Uuid) {
        (self.array_uuid, self.volume)
    }
}

impl Host {
    /// Finds a volume of a running array.
    pub(crate) fn locate_volume(&self, key: &VolumeKey) -> Answer<Located> {
        self.catch_up();
        let state = self.state();
        let uuid = key.uuid;
        let absent = || not_found("volume", &uuid.to_string());
        let entry = state.arrays.get(&key.array).ok_or_else(absent)?;
        let config = self.config_of(entry);
        let record = config.volumes.iter().find(|volume| volume.uuid == uuid);
        let name = record.ok_or_else(absent)?.name.clone();
        let object = format!("volume {name}");
        if matches!(entry.serving, Serving::Stopping { .. }) {
            return Err(stopping(object, &entry.name));
        }
        self.refuse_undecided(&state, &object, (&entry.name, entry.index), About::Volumes)?;
        if self.engine.array_state(entry.index).is_none() {
            let text = format!("its array {} is not started", entry.name);
            let next = format!("`garboard array start {}`", entry.name);
            return Err(error(ErrorKind::Busy, object, text).next(next));
        }
        Ok(Located {
            array: entry.index,
            array_uuid: entry.uuid,
            superblock: entry.superblock,
            config,
            volume: uuid,
            name,
        })
    }

    pub(crate) fn do_create_volume(&self, create: &VolumeCreate) -> Answer<Begun> {
        let object = format!("volume {}", create.name);
        let (array, uuid) = self.decided(&create.array, About::Volumes)?;
        let is_it = |name: &str, uuid| name == create.name || uuid == create.uuid;
        self.refuse_zeroed_late(&object, uuid, is_it)?;
        self.refuse_waiting(&object, (&create.array, array), None)?;
        self.refuse_undecided_name(&object, &create.name)?;
        self.refuse_under_way(&object, is_it)?;
        let volumes = self.do_volumes();
        if let Some(taken) = volumes.iter().find(|volume| volume.name == create.name) {
            let text = format!("array {} has a volume of this name", taken.array);
            return Err(error(ErrorKind::Exists, object, text).next("choose another name"));
        }
        if let Some(taken) = volumes.iter().find(|volume| volume.uuid == create.uuid) {
            let text = format!("volume {} has the uuid {}", taken.name, taken.uuid);
            return Err(error(ErrorKind::Exists, object, text).next("choose another uuid"));
        }
        // Those of one that was deleted late.
        self.state().limits.remove(&(uuid, create.uuid));
        let superblock = self.superblock_of(&create.array)?;
        let mut config = self.running_config(array, &create.array)?;
        let new = NewVolume {
            uuid: create.uuid,
            name: create.name.clone(),
            size: Size(create.size_bytes),
            stable_buffers: create.stable_buffers,
        };
        let zeroing = VolumeTable::new(&mut config, &superblock)
            .create(new)
            .map_err(|refused| of_volume(object.clone(), &refused))?;
        self.commit_volumes(&object, array, &config)
            .map_err(|failed| of_first(failed, &zeroing))?;
        if !zeroing.is_done() {
            return Ok(self.begin_zeroing(ZeroingEntry {
                array: (create.array.clone(), array, uuid),
                superblock,
                volume: (create.name.clone(), create.uuid),
                change: VolumeChange::Create,
                zeroing,
            }));
        }
        tracing::info!(
            event = "volume_created",
            volume = create.name,
            array = create.array,
            "created"
        );
        let key = VolumeKey {
            array: create.array.clone(),
            uuid: create.uuid,
        };
        self.volume_view(&key)
            .map(|view| Begun::Done(Box::new(view)))
    }

    pub(crate) fn do_resize_volume(&self, key: &VolumeKey, size_bytes: u64) -> Answer<Begun> {
        let Located {
            array,
            array_uuid,
            superblock,
            mut config,
            volume,
            name,
        } = self.locate_volume(key)?;
        let object = format!("volume {name}");
        self.refuse_under_way(&object, |_, uuid| uuid == volume)?;
        self.refuse_zeroed_late(&object, array_uuid, |_, uuid| uuid == volume)?;
        let array_name = self.array_name(array);
        self.refuse_waiting(&object, (&array_name, array), None)?;
        let before = config.volumes.clone();
        let zeroing = VolumeTable::new(&mut config, &superblock)
            .grow(volume, Size(size_bytes))
            .map_err(|refused| of_volume(object.clone(), &refused))?;
        if zeroing.is_done() || config.volumes != before {
            self.commit_volumes(&object, array, &config)
                .map_err(|failed| of_first(failed, &zeroing))?;
        }
        if !zeroing.is_done() {
            return Ok(self.begin_zeroing(ZeroingEntry {
                array: (array_name, array, array_uuid),
                superblock,
                volume: (name, volume),
                change: VolumeChange::Grow(Size(size_bytes)),
                zeroing,
            }));
        }
        self.show_new_size(key)?;
        tracing::info!(
            event = "volume_resized",
            volume = name,
            size_bytes,
            "resized"
        );
        self.volume_view(key)
            .map(|view| Begun::Done(Box::new(view)))
    }

    /// Gives exports of a volume its new map, then tells their guests.
    pub(crate) fn show_new_size(&self, key: &VolumeKey) -> Answer<()> {
        let located = self.locate_volume(key)?;
        let map = Arc::new(map_of(&located)?);
        let shift = located.superblock.geometry.block_size().shift();
        let sectors = (map.blocks() << shift) / vhost_user_blk::SECTOR_BYTES;
        let own = |export: &&ExportEntry| {
            (export.array, export.volume) == (located.array_uuid, located.volume)
        };
        let hosts: Vec<Arc<ExportHost>> = {
            let state = self.state();
            let exports = state.exports.values().filter(own);
            exports.map(|export| Arc::clone(&export.host)).collect()
        };
        for host in hosts {
            host.set_volume(&map);
        }
        let state = self.state();
        for export in state.exports.values().filter(own) {
            export.session.resize(sectors);
        }
        Ok(())
    }

    pub(crate) fn do_delete_volume(&self, key: &VolumeKey) -> Answer<()> {
        let Located {
            array,
            array_uuid,
            superblock,
            mut config,
            volume,
            name,
        } = self.locate_volume(key)?;
        let object = format!("volume {name}");
        self.refuse_under_way(&object, |_, uuid| uuid == volume)?;
        self.refuse_zeroed_late(&object, array_uuid, |_, uuid| uuid == volume)?;
        self.refuse_waiting(&object, (&self.array_name(array), array), None)?;
        {
            let state = self.state();
            let serves = |own, served: Uuid| (own, served) == (array_uuid, volume);
            if let Some((name, next)) = state.export_where(serves) {
                let text = format!("export {name} serves it");
                return Err(error(ErrorKind::Busy, object, text).next(next));
            }
        }
        VolumeTable::new(&mut config, &superblock)
            .delete(volume)
            .map_err(|refused| of_volume(object.clone(), &refused))?;
        self.commit_volumes(&object, array, &config)?;
        self.state().limits.remove(&(array_uuid, volume));
        tracing::info!(event = "volume_deleted", volume = name, "deleted");
        Ok(())
    }

    pub(crate) fn do_limit_volume(
        &self,
        key: &VolumeKey,
        limit: &VolumeLimit,
    ) -> Answer<VolumeView> {
        let name = self.volume_view(key)?.name;
        let limits = limits_of(&name, limit)?;
        {
            let mut state = self.state();
            let array = state.arrays.get(&key.array);
            let array = array.ok_or_else(|| not_found("array", &key.array))?.uuid;
            let entry = state.limits.entry((array, key.uuid)).or_default();
            entry.limit = limit.clone();
            entry.limiter.set(&limits, MonotonicClock.now());
        }
        // Who waits under the limits of before may sleep for long.
        self.engine.wake_reactors();
        tracing::info!(
            event = "volume_limited",
            volume = name,
            iops = limit.iops,
            bytes_per_second = limit.bytes_per_second,
            burst_ms = limit.burst_ms,
            "limited"
        );
        self.volume_view(key)
    }

    /// Gives back what volumes got that are not ready, but for those that are being made or grow.
    ///
    /// Not while zeroes may still land, there or for another volume: the extents stay taken until
    /// then. Nor while it is not known what became of an earlier change: this would be made from
    /// what was before it. [`Host::catch_up`] comes back to both.
    pub(crate) fn undo_half_made(&self, name: &str, array: ArrayIndex, superblock: &Superblock) {
        let (zeroed_late, under_way) = {
            let state = self.state();
            let entry = state.arrays.get(name);
            let zeroed_late = entry.is_some_and(|entry| !entry.zeroed_late.is_empty());
            (zeroed_late, state.volumes_under_way())
        };
        if zeroed_late || self.is_undecided(array, About::Volumes) {
            return;
        }
        let object = format!("array {name}");
        let undone = self.running_config(array, name).and_then(|mut config| {
            let before = config.volumes.clone();
            VolumeTable::new(&mut config, superblock).recover_but(&under_way);
            if config.volumes == before {
                return Ok(());
            }
            self.commit_volumes(&object, array, &config)
        });
        if let Err(failed) = undone {
            // The next start does it.
            tracing::error!(event = "volume_half_made", array = name, error = %failed, "left");
        }
    }

    /// It is known what became of a change of the volumes that was late: what it has begun is taken
    /// back, because whoever was to go on with it has been told that it is not done, and guests see
    /// the sizes that there are.
    pub(crate) fn settle_volumes(&self, name: &str) {
        let Ok((array, uuid)) = self.running(name) else {
            return;
        };
        let Ok(superblock) = self.superblock_of(name) else {
            return;
        };
        self.undo_half_made(name, array, &superblock);
        let exported: Vec<Uuid> = {
            let state = self.state();
            let exports = state.exports.values().filter(|own| own.array == uuid);
            exports.map(|export| export.volume).collect()
        };
        let volumes = self.do_volumes();
        let own = |volume: &&VolumeView| volume.array == name && exported.contains(&volume.uuid);
        for volume in volumes.iter().filter(own) {
            if let Err(refused) = self.show_new_size(&volume.key()) {
                tracing::warn!(event = "size_not_shown", volume = volume.name, error = %refused);
            }
        }
    }

    /// Refuses a name that a volume of any array may get at any moment.
    fn refuse_undecided_name(&self, object: &str, name: &str) -> Answer<()> {
        let state = self.state();
        for entry in state.arrays.values() {
            let undecided = self.engine.undecided(entry.index);
            let gives = |command: &Command| {
                matches!(command, Command::Volumes { volumes, .. }
                    if volumes.iter().any(|volume| volume.name == name))
            };
            if undecided.iter().any(gives) {
                self.refuse_undecided(&state, object, (&entry.name, entry.index), About::Volumes)?;
            }
        }
        Ok(())
    }

    /// Refuses to change the extents of a volume behind whose end zeroes may still land: the record
    /// does not tell of these. And to make another one in the place of one that is taken back then.
    fn refuse_zeroed_late(
        &self,
        object: &str,
        array: Uuid,
        is: impl Fn(&str, Uuid) -> bool,
    ) -> Answer<()> {
        let state = self.state();
        let late = state.array_by_uuid(array).map(|entry| &entry.zeroed_late);
        let mut late = late.into_iter().flatten().map(|late| &late.volume);
        let Some((name, _)) = late.find(|(name, uuid)| is(name, *uuid)) else {
            return Ok(());
        };
        let text = format!(
            "what volume {name} was to get was not zeroed in time, and zeroes may still land there"
        );
        let next = format!("try again when its drives answer; {WAY_OUT_OF_HANGS}");
        Err(error(ErrorKind::Busy, object, text).next(next))
    }

    pub(crate) fn commit_volumes(
        &self,
        object: &str,
        array: ArrayIndex,
        config: &ArrayConfig,
    ) -> Answer<()> {
        let command = Command::Volumes {
            volumes: config.volumes.clone(),
            unzeroed: config.unzeroed.clone(),
        };
        self.engine.change(array, command).map_err(|change| {
            self.of_change(object.to_owned(), (&self.array_name(array), array), &change)
        })
    }

    fn superblock_of(&self, array: &str) -> Answer<Superblock> {
        let state = self.state();
        let entry = state
            .arrays
            .get(array)
            .ok_or_else(|| not_found("array", array))?;
        Ok(entry.superblock)
    }

    pub(crate) fn running_config(&self, array: ArrayIndex, name: &str) -> Answer<ArrayConfig> {
        let state = self.engine.array_state(array);
        state
            .map(|state| state.config)
            .ok_or_else(|| not_found("array", name))
    }

    pub(crate) fn array_name(&self, array: ArrayIndex) -> String {
        let state = self.state();
        let entry = state.arrays.values().find(|entry| entry.index == array);
        entry.map_or_else(String::new, |entry| entry.name.clone())
    }

    pub(crate) fn volume_view(&self, key: &VolumeKey) -> Answer<VolumeView> {
        let mut volumes = self.do_volumes().into_iter();
        let found = volumes.find(|view| view.key() == *key);
        found.ok_or_else(|| not_found("volume", &key.uuid.to_string()))
    }

    /// What guests did on a volume since the engine began, those that have gone among them.
    fn done_on(&self, state: &State, (array, volume): (Uuid, Uuid)) -> Counters {
        let past = state.limits.get(&(array, volume)).map(|entry| &entry.past);
        let past = || past.map(|past| past.counters()).unwrap_or_default();
        let exports = state.exports.values();
        let exports = exports.filter(|own| (own.array, own.volume) == (array, volume));
        let ids: Vec<u64> = exports.map(|export| export.id).collect();
        for _ in 0..LOOKS {
            let before = past();
            let mut rings: BTreeMap<(u64, QueueKey), Counters> = BTreeMap::new();
            for id in &ids {
                for (_, key, ring) in self.engine.rings(*id) {
                    // One that moved meanwhile was found on both reactors: the last has all of it.
                    let found = rings.entry((*id, key)).or_default();
                    if ring.requests() >= found.requests() {
                        *found = ring;
                    }
                }
            }
            let mut done = before.clone();
            for ring in rings.values() {
                done.add(ring);
            }
            // One that ended meanwhile is in neither, or in both.
            if past() == before {
                return done;
            }
        }
        past()
    }

    pub(crate) fn do_volumes(&self) -> Vec<VolumeView> {
        let state = self.state();
        let mut volumes = Vec::new();
        for entry in state.arrays.values() {
            let config = self.config_of(entry);
            for record in config
                .volumes
                .iter()
                .filter(|volume| volume.state == VolumeState::Ready)
            {
                let done = self.done_on(&state, (entry.uuid, record.uuid));
                volumes.push(views::volume(&state, entry, record, &done));
            }
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        volumes
    }
}

/// What is said when the first of two updates of a volume is late: nobody makes the second.
fn of_first(failed: EngineError, zeroing: &Zeroing) -> EngineError {
    if failed.kind != ErrorKind::Busy || zeroing.is_done() {
        return failed;
    }
    late_and_taken_back(failed.object)
}

/// The limits as rings obey them.
fn limits_of(name: &str, limit: &VolumeLimit) -> Answer<Limits> {
    let rate = |rate: Option<u64>| {
        let checked = |rate| {
            NonZeroU64::new(rate).ok_or_else(|| {
                let text = "a limit of 0 would hold every request";
                error(ErrorKind::Invalid, format!("volume {name}"), text)
                    .next("leave the limit out for none")
            })
        };
        rate.map(checked).transpose()
    };
    Ok(Limits {
        requests_per_second: rate(limit.iops)?,
        bytes_per_second: rate(limit.bytes_per_second)?,
        burst: Duration::from_millis(limit.burst_ms.unwrap_or(VOLUME_BURST_MS)),
    })
}

/// The map of a volume that is ready.
pub(crate) fn map_of(located: &Located) -> Answer<VolumeMap> {
    let record = located
        .config
        .volumes
        .iter()
        .find(|record| record.uuid == located.volume);
    let record = record.ok_or_else(|| not_found("volume", &located.volume.to_string()))?;
    VolumeMap::new(record, &located.superblock.extents()).ok_or_else(|| {
        error(
            ErrorKind::Busy,
            format!("volume {}", record.name),
            "it is being made or deleted",
        )
    })
}
