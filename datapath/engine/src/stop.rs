//! Arrays end: the home marks them clean, then each reactor lets go of its part, which may take as
//! long as drives hang.

use array::format::ArrayConfig;
use array::{Command, Refusal};
use reactor::Handle;
use units::{ArrayIndex, Clock, MonotonicClock};

use crate::control::{Engine, LOOK_PAUSE};
use crate::core::Core;
use crate::error::{ChangeError, StartError};

/// A stop that the home has answered, while other reactors still have their parts of the array.
#[derive(Debug)]
pub(crate) struct Stop {
    /// Whether the clean mark is written.
    pub(crate) told: Result<(), Refusal>,
    pub(crate) config: ArrayConfig,
}

impl Engine {
    /// Marks the array clean and forgets it. No ring may serve one of its volumes any more.
    ///
    /// # Errors
    /// When the clean mark cannot be written: the array comes up dirty. `Late`: it has not stopped
    /// yet; ask again.
    pub fn stop_array(&self, array: ArrayIndex) -> Result<(), StartError> {
        // The home is gone perhaps, and cannot say again what became of the clean mark.
        if let Some(told) = self.told_by_stop(array) {
            self.drop_shards(array)?;
            return told.map_err(StartError::Refused);
        }
        let result = self.command(array, self.home(array), Command::Stop);
        if result == Err(ChangeError::Late) {
            return Err(StartError::Late);
        }
        // An earlier attempt that was late may have marked it since.
        let config = self.array_state(array).map(|state| state.config);
        let marked = config.as_ref().is_none_or(|config| config.clean);
        let told = match result {
            Err(ChangeError::Refused(refusal)) if !marked => Err(refusal),
            Ok(()) | Err(_) => Ok(()),
        };
        if let Some(config) = config {
            self.note_stop(array, told.clone(), config);
        }
        self.drop_shards(array)?;
        told.map_err(StartError::Refused)
    }

    /// Forgets the array without marking it.
    ///
    /// # Errors
    /// When a reactor is gone; `Late` when requests are not answered yet.
    pub fn drop_shards(&self, array: ArrayIndex) -> Result<(), StartError> {
        let begun = MonotonicClock.now();
        // A shard is let go only when idle; the others' messages may make it busy once more, so
        // all are asked until all are gone.
        let mut left: Vec<&Handle<Core>> = self.handles().iter().collect();
        let mut taken = Vec::new();
        while !left.is_empty() {
            let mut still = Vec::new();
            for handle in left {
                let shard = handle.call(move |core| {
                    let there = core.shard(array).is_some();
                    (there, core.take_shard(array))
                })?;
                match shard {
                    (true, None) => still.push(handle),
                    (_, shard) => taken.extend(shard),
                }
            }
            left = still;
            if !left.is_empty() {
                if MonotonicClock.now().since(begun) > self.patience() {
                    return Err(StartError::Late);
                }
                std::thread::park_timeout(LOOK_PAUSE);
            }
        }
        self.forget_late(array);
        let mut stops = self.stops.lock().expect("nothing panics under this lock");
        stops.remove(&array);
        drop(stops);
        self.budget().give_back(array);
        Ok(())
    }

    /// The last record of an array that has been told to stop and has not let go of its drives yet.
    ///
    /// # Panics
    /// When a thread panicked while it asked.
    #[must_use]
    pub fn stopping_config(&self, array: ArrayIndex) -> Option<ArrayConfig> {
        let stops = self.stops.lock().expect("nothing panics under this lock");
        stops.get(&array).map(|stop| stop.config.clone())
    }

    pub(crate) fn told_by_stop(&self, array: ArrayIndex) -> Option<Result<(), Refusal>> {
        let stops = self.stops.lock().expect("nothing panics under this lock");
        stops.get(&array).map(|stop| stop.told.clone())
    }

    pub(crate) fn note_stop(
        &self,
        array: ArrayIndex,
        told: Result<(), Refusal>,
        config: ArrayConfig,
    ) {
        let mut stops = self.stops.lock().expect("nothing panics under this lock");
        stops.insert(array, Stop { told, config });
    }
}
