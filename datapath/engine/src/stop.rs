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
    /// Whether the clean mark is written, if there is to be one.
    pub(crate) told: Result<(), Refusal>,
    /// The last record; `None` when nobody could be asked.
    pub(crate) config: Option<ArrayConfig>,
}

impl Engine {
    /// Marks the array clean and forgets it; its last record, unless the home is gone. No ring may
    /// serve one of its volumes any more.
    ///
    /// # Errors
    /// When the clean mark cannot be written: the array comes up dirty. `Late`: it has not stopped
    /// yet; ask again.
    pub fn stop_array(&self, array: ArrayIndex) -> Result<Option<ArrayConfig>, StartError> {
        self.note_decided_stops();
        if self.noted_stop(array).is_none() {
            let result = self.command(array, self.home(array), Command::Stop);
            match result {
                Err(ChangeError::Late) => return Err(StartError::Late),
                Ok(()) => self.note_stop(array, Ok(())),
                Err(ChangeError::Refused(refusal)) => {
                    // An earlier one that was late may have been carried out just before.
                    self.note_decided_stops();
                    if self.noted_stop(array).is_none() {
                        self.note_stop(array, Err(refusal));
                    }
                }
            }
        }
        let (told, config) = self.noted_stop(array).expect("noted above");
        self.drop_shards(array)?;
        told.map(|()| config).map_err(StartError::Refused)
    }

    /// Forgets an array that has not been started and never will be.
    ///
    /// # Errors
    /// As [`Engine::drop_shards`]; then [`Engine::stop_array`] ends it, and says this refusal.
    pub fn give_up(&self, array: ArrayIndex, refusal: Refusal) -> Result<(), StartError> {
        self.note_stop(array, Err(refusal));
        self.drop_shards(array)
    }

    /// Notes what has become of stops that were late.
    pub(crate) fn note_decided_stops(&self) {
        // What one has taken and not noted yet another would miss, and say that it was refused.
        let _noting = self
            .noting_stops
            .lock()
            .expect("nothing panics under this lock");
        for (array, told) in self.take_decided_stops() {
            self.note_stop(array, told);
        }
    }

    /// Forgets the array without marking it.
    ///
    /// # Errors
    /// When a reactor is gone; `Late` when requests are not answered yet.
    pub fn drop_shards(&self, array: ArrayIndex) -> Result<(), StartError> {
        let begun = MonotonicClock.now();
        // Whoever has requests may ask any other for a part of them, also one that is idle now. No
        // new ones come.
        for handle in self.handles() {
            while handle.call(move |core| core.has_requests(array))? {
                if MonotonicClock.now().since(begun) > self.patience() {
                    return Err(StartError::Late);
                }
                std::thread::park_timeout(LOOK_PAUSE);
            }
        }
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
        self.forget_buffers(array);
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
        stops.get(&array).and_then(|stop| stop.config.clone())
    }

    fn noted_stop(&self, array: ArrayIndex) -> Option<(Result<(), Refusal>, Option<ArrayConfig>)> {
        let stops = self.stops.lock().expect("nothing panics under this lock");
        let stop = stops.get(&array)?;
        Some((stop.told.clone(), stop.config.clone()))
    }

    /// Keeps what became of the clean mark, and the last record, while the home is there to tell.
    /// The first answer counts: who asks again is told that the array does not run.
    fn note_stop(&self, array: ArrayIndex, told: Result<(), Refusal>) {
        if self.noted_stop(array).is_some() {
            return;
        }
        let config = self.array_state(array).map(|state| state.config);
        let mut stops = self.stops.lock().expect("nothing panics under this lock");
        stops.entry(array).or_insert(Stop { told, config });
    }
}
