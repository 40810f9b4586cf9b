//! Volumes: create, resize, delete, limit.

use std::ops::ControlFlow;

use units::Size;
use units::limits::{VOLUME_BANDWIDTH_MIN, VOLUME_BURST_MS_MAX};
use uuid::Uuid;

use super::{Control, invalid};
use crate::body::VolumeCreateBody;
use crate::engine::Begun;
use crate::name::{self, Create};
use crate::request::{VolumeCreate, VolumeLimit};
use crate::view::{ArrayState, ArrayView, VolumeView};
use crate::wanted::{Change, WantedVolume};
use crate::{Answer, EngineError, ErrorKind};

/// Of several volumes, those whose arrays are started, if some are.
fn retain_started(volumes: &mut Vec<VolumeView>, arrays: &[ArrayView]) {
    let is_started = |volume: &VolumeView| {
        let array = arrays.iter().find(|array| array.name == volume.array);
        array.is_some_and(|array| array.state != ArrayState::Stopped)
    };
    if volumes.iter().any(is_started) {
        volumes.retain(is_started);
    }
}

/// A volume has no limit any more, nor one that an older engine has noted without its array.
pub(super) fn no_limit(of: WantedVolume) -> [Change; 2] {
    [of, WantedVolume { array: None, ..of }].map(Change::NoLimit)
}

/// The smallest size a guest can address.
const SECTOR_BYTES: u64 = 512;

impl Control {
    /// All volumes, by name.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeView> {
        self.engine.volumes()
    }

    /// One volume, by name or uuid.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when several are meant. Of several of one uuid that is the one whose
    /// array is started, if it is the only one.
    pub fn volume(&self, key: &str) -> Answer<VolumeView> {
        let mut volumes = self.volumes();
        volumes.retain(|volume| name::is_named(volume, key));
        let [first, others @ ..] = &volumes[..] else {
            return name::find(volumes, key);
        };
        if !others.is_empty() && others.iter().all(|other| other.uuid == first.uuid) {
            retain_started(&mut volumes, &self.engine.arrays());
        }
        name::find(volumes, key)
    }

    /// The uuid of the array of this name.
    pub(super) fn uuid_of_array(&self, name: &str) -> Option<Uuid> {
        let mut arrays = self.engine.arrays().into_iter();
        arrays
            .find(|array| array.name == name)
            .map(|array| array.uuid)
    }

    /// A volume as it is noted.
    pub(super) fn noted(&self, volume: &VolumeView) -> WantedVolume {
        WantedVolume {
            array: self.uuid_of_array(&volume.array),
            uuid: volume.uuid,
        }
    }

    /// Makes a volume.
    ///
    /// # Errors
    /// As [`crate::Engine::begin_create_volume`] and [`crate::Engine::finish_volume`].
    pub fn create_volume(&self, body: VolumeCreateBody) -> Answer<VolumeView> {
        let begun = match self.begin_create_volume(body)? {
            ControlFlow::Break(there) => return Ok(there),
            ControlFlow::Continue(begun) => begun,
        };
        let volume = self.go_on_with(begun)?;
        tracing::info!(event = "volume_created", object = %format_args!("volume {}", volume.name), uuid = %volume.uuid);
        Ok(volume)
    }

    /// Begins to make a volume, unless it is there.
    fn begin_create_volume(
        &self,
        body: VolumeCreateBody,
    ) -> Answer<ControlFlow<VolumeView, Begun>> {
        let _changing = self.change()?;
        let ArrayView {
            name: array,
            uuid: array_uuid,
            ..
        } = self.array(&body.array)?;
        let differs = |volume: &VolumeView| {
            name::differing([
                ("array", volume.array == array),
                ("size", volume.size_bytes == body.size_bytes),
                (
                    "stable buffers",
                    volume.stable_buffers == body.stable_buffers,
                ),
            ])
        };
        let uuid = match name::create(self.volumes(), &body.name, body.uuid, differs)? {
            Create::There(volume) => return Ok(ControlFlow::Break(volume)),
            Create::New(uuid) => uuid,
        };
        check_size(&name::object::<VolumeView>(&body.name), body.size_bytes)?;
        let create = VolumeCreate {
            name: body.name,
            uuid,
            array,
            size_bytes: body.size_bytes,
            stable_buffers: body.stable_buffers,
        };
        // Those of a volume that was deleted late, or by an engine that ended then.
        let noted = [Some(array_uuid), None].map(|array| WantedVolume { array, uuid });
        let limits = self.wanted.state().limits;
        if noted.iter().any(|of| limits.contains_key(of)) {
            self.wanted.apply(&no_limit(noted[0]))?;
        }
        let begun = self.engine.begin_create_volume(&create)?;
        Ok(ControlFlow::Continue(begun))
    }

    /// Zeroes what a volume gets while other calls come, and then ends what was begun.
    fn go_on_with(&self, begun: Begun) -> Answer<VolumeView> {
        match begun {
            Begun::Done(volume) => Ok(*volume),
            Begun::Zeroing { job } => {
                self.engine.zero_volume(job);
                let _changing = self.change()?;
                self.engine.finish_volume(job)
            }
        }
    }

    /// One volume, by name or uuid, to change it.
    fn made_volume(&self, key: &str) -> Answer<VolumeView> {
        let found = self.volume(key);
        let Some(job) = self.engine.volume_under_way(key).filter(|_| found.is_err()) else {
            return found;
        };
        let object = name::object::<VolumeView>(key);
        let text = "it is being made: what it gets is zeroed first";
        let next = format!("`garboard job wait {job}`, or `garboard job cancel {job}`");
        Err(EngineError::new(ErrorKind::Busy, object, text).next(next))
    }

    /// Gives a volume another size.
    ///
    /// # Errors
    /// As [`crate::Engine::begin_resize_volume`] and [`crate::Engine::finish_volume`].
    pub fn resize_volume(&self, key: &str, size_bytes: u64) -> Answer<VolumeView> {
        let begun = self.begin_resize_volume(key, size_bytes)?;
        let resized = self.go_on_with(begun)?;
        tracing::info!(event = "volume_resized", object = %format_args!("volume {}", resized.name), size_bytes);
        Ok(resized)
    }

    fn begin_resize_volume(&self, key: &str, size_bytes: u64) -> Answer<Begun> {
        let _changing = self.change()?;
        let volume = self.made_volume(key)?;
        check_size(&name::object::<VolumeView>(&volume.name), size_bytes)?;
        self.engine.begin_resize_volume(&volume.key(), size_bytes)
    }

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// As [`crate::Engine::delete_volume`]; `Busy` also when a missing export waits for it.
    pub fn delete_volume(&self, key: &str) -> Answer<VolumeView> {
        let _changing = self.change()?;
        let volume = self.made_volume(key)?;
        self.refuse_wanted_exports(&volume)?;
        let noted = self.noted(&volume);
        self.engine.delete_volume(&volume.key())?;
        self.wanted.apply(&no_limit(noted))?;
        tracing::info!(event = "volume_deleted", object = %format_args!("volume {}", volume.name));
        Ok(volume)
    }

    /// Refuses to lose a volume that an export wants.
    pub(super) fn refuse_wanted_exports(&self, volume: &VolumeView) -> Answer<()> {
        let noted = self.noted(volume);
        let exports = self.wanted.state().exports.into_iter();
        let names: Vec<String> = exports
            .filter(|(_, export)| export.serves(noted))
            .map(|(name, _)| name)
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let object = name::object::<VolumeView>(&volume.name);
        let message = format!("it is exported as {}", names.join(", "));
        Err(EngineError::new(ErrorKind::Busy, object, message)
            .next(format!("`garboard export remove {}` first", names[0])))
    }

    /// Sets all limits of a volume.
    ///
    /// # Errors
    /// As [`crate::Engine::limit_volume`].
    pub fn limit_volume(&self, key: &str, limit: &VolumeLimit) -> Answer<VolumeView> {
        let _changing = self.change()?;
        let volume = self.made_volume(key)?;
        let object = name::object::<VolumeView>(&volume.name);
        check_limit(&object, limit)?;
        let limited = self.engine.limit_volume(&volume.key(), limit)?;
        let noted = self.noted(&volume);
        let mut records = no_limit(noted).to_vec();
        if !limit.is_none() {
            records.push(Change::Limit(noted, limit.clone()));
        }
        if let Err(error) = self.wanted.apply(&records) {
            let back = self.engine.limit_volume(&volume.key(), &volume.limit);
            self.undo("limit_volume", back.map(|_| ()));
            return Err(error);
        }
        Ok(limited)
    }
}

fn check_limit(object: &str, limit: &VolumeLimit) -> Answer<()> {
    if limit.iops == Some(0) || limit.bytes_per_second == Some(0) {
        return Err(invalid(object, "a limit of 0 would hold every request")
            .next("leave the limit out for none"));
    }
    if let Some(bytes) = limit.bytes_per_second
        && bytes < VOLUME_BANDWIDTH_MIN
    {
        let text = format!("{bytes} bytes per second are less than one block of 4096 bytes");
        return Err(invalid(object, text).next("give the bandwidth with its unit, as in 100MiB"));
    }
    let Some(burst_ms) = limit.burst_ms else {
        return Ok(());
    };
    if limit.is_none() {
        return Err(invalid(object, "a burst without a limit").next("give iops or bandwidth"));
    }
    if !(1..=VOLUME_BURST_MS_MAX).contains(&burst_ms) {
        let text = format!("unused limit cannot be kept for {burst_ms} ms");
        return Err(invalid(object, text).next(format!("give 1 to {VOLUME_BURST_MS_MAX} ms")));
    }
    Ok(())
}

fn check_size(object: &str, size_bytes: u64) -> Answer<()> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(SECTOR_BYTES) {
        let message =
            format!("a size of {size_bytes} bytes: it is a multiple of {SECTOR_BYTES} and not 0");
        let up = Size(
            size_bytes
                .div_ceil(SECTOR_BYTES)
                .max(1)
                .saturating_mul(SECTOR_BYTES),
        )
        .0;
        return Err(invalid(object, message).next(format!("the next size up is {up}")));
    }
    Ok(())
}
