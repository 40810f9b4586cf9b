//! What reactors have done, for whoever spreads work among them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use array::{Command, Owners, Refusal};
use units::{ArrayIndex, ReactorIndex};
use vhost_user_blk::QueueKey;

use crate::control::{Engine, stopped};
use crate::core::{Core, ReactorTimes};

/// What a reactor has done since it began.
#[derive(Clone, Debug)]
pub struct ReactorLoad {
    /// Which.
    pub reactor: ReactorIndex,
    /// How it spent its time.
    pub times: ReactorTimes,
    /// The rings that it polls now.
    pub rings: Vec<RingLoad>,
    /// By array: tickets of its stripes that it has carried out (writes, and reads that nobody but
    /// the owner of a stripe can answer).
    pub tickets: Vec<(ArrayIndex, u64)>,
    /// By array: transfers of its shard, but for reads that go straight to guests.
    pub buffered: Vec<(ArrayIndex, u64)>,
}

/// What a ring has done since it came to its reactor, or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLoad {
    /// Its export.
    pub export: u64,
    /// Which ring of it.
    pub key: QueueKey,
    /// The array of its volume.
    pub array: ArrayIndex,
    /// Requests answered.
    pub requests: u64,
}

/// Stripes that are to go to other reactors. That may wait, for drives or for a window of a pass,
/// and whoever looks at all arrays does not wait with it.
#[derive(Debug)]
pub struct Distribution {
    answer: Receiver<Result<(), Refusal>>,
}

impl Distribution {
    /// What has become of it, told once; `None` while it is under way.
    #[must_use]
    pub fn result(&self) -> Option<Result<(), Refusal>> {
        match self.answer.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(stopped())),
        }
    }
}

impl Engine {
    /// Begins to give the stripes of an array to these owners. Another one that is asked for
    /// meanwhile counts instead.
    ///
    /// # Errors
    /// When a reactor is gone.
    pub fn distribute(
        &self,
        array: ArrayIndex,
        owners: Arc<Owners>,
    ) -> Result<Distribution, Refusal> {
        let answer = self.ask(array, self.home(array), Command::Distribute(owners))?;
        Ok(Distribution { answer })
    }

    /// What all reactors have done. Wakes those that sleep.
    #[must_use]
    pub fn loads(&self) -> Vec<ReactorLoad> {
        let mut loads = Vec::with_capacity(self.handles().len());
        for (position, handle) in self.handles().iter().enumerate() {
            let reactor = ReactorIndex::from_at(position);
            // One that is gone has nothing to do.
            loads.extend(handle.call(move |core: &mut Core| core.load(reactor)).ok());
        }
        loads
    }

    /// Who owns the stripes of an array; `None` when it does not run.
    #[must_use]
    pub fn owners(&self, array: ArrayIndex) -> Option<Arc<Owners>> {
        let home = self.handle(self.home(array));
        let map = home.call(move |core| core.map(array)).ok()??;
        Some(Arc::clone(&map.owners))
    }
}
