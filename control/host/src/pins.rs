//! Pins the transfer buffers of arrays that make use of them, so that the kernel need not look up
//! their pages for each transfer (docs/design/016-pinned-memory.md).
//!
//! Looked at once a second: an array that does little has no page of memory for it. What does not
//! live here: how memory is pinned (`engine`), and guests' memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::MutexGuard;

use engine::ReactorLoad;
use units::{ArrayIndex, ReactorIndex};

use crate::Host;
use crate::state::{DriveRole, Serving, State};

/// Transfers between two looks from which on a shard's buffers are pinned.
const BUSY: u64 = 1000;
/// No more are pinned once so many bytes are, of all arrays: what is pinned cannot be swapped out,
/// nor given back while its array idles.
const BYTES_MAX: u64 = 512 << 20;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct BufferPins {
    shards: BTreeMap<(ArrayIndex, ReactorIndex), Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    transfers: u64,
    /// They are pinned, or cannot be.
    is_settled: bool,
}

impl BufferPins {
    /// The shards whose buffers are worth it since this look.
    fn look(&mut self, loads: &[ReactorLoad]) -> Vec<(ArrayIndex, ReactorIndex)> {
        let before = std::mem::take(&mut self.shards);
        let mut busy = Vec::new();
        for load in loads {
            for &(array, transfers) in &load.buffered {
                let shard = (array, load.reactor);
                // Fewer than before: another array has the number now.
                let known = before.get(&shard);
                let known = known.filter(|seen| seen.transfers <= transfers);
                let is_settled = known.is_some_and(|seen| seen.is_settled);
                let more = known.map_or(0, |seen| transfers - seen.transfers);
                if !is_settled && more >= BUSY {
                    busy.push(shard);
                }
                let seen = Seen {
                    transfers,
                    is_settled,
                };
                self.shards.insert(shard, seen);
            }
        }
        busy
    }

    /// Another array has the number from now on.
    fn forget(&mut self, array: ArrayIndex) {
        self.shards.retain(|&(of, _), _| of != array);
    }

    fn settle(&mut self, shard: (ArrayIndex, ReactorIndex)) {
        if let Some(seen) = self.shards.get_mut(&shard) {
            seen.is_settled = true;
        }
    }
}

impl State {
    /// The name of an array that runs on drives of which pinned memory is made use of.
    fn array_that_pins(&self, array: ArrayIndex) -> Option<String> {
        let entries = self.arrays.values();
        let mut running = entries.filter(|entry| matches!(entry.serving, Serving::Running));
        let entry = running.find(|entry| entry.index == array)?;
        let is_member = |role: &DriveRole| match role {
            DriveRole::Member { array: of, .. } => *of == entry.uuid,
            DriveRole::Free | DriveRole::Copy { .. } | DriveRole::LeftOut { .. } => false,
        };
        let mut members = self.drives.values().filter(|drive| is_member(&drive.role));
        members
            .any(|drive| drive.drive.uses_pins())
            .then(|| entry.name.clone())
    }
}

impl Host {
    fn buffer_pins(&self) -> MutexGuard<'_, BufferPins> {
        let pins = self.buffer_pins.lock();
        pins.expect("nothing panics under this lock")
    }

    /// An array is about to start under this number.
    pub(crate) fn forget_buffers(&self, array: ArrayIndex) {
        self.buffer_pins().forget(array);
    }

    /// One look at what shards do with their buffers.
    pub(crate) fn pin_buffers(&self, loads: &[ReactorLoad]) {
        let busy = self.buffer_pins().look(loads);
        for (array, reactor) in busy {
            let Some(name) = self.state().array_that_pins(array) else {
                continue;
            };
            if self.engine.pinned_buffer_bytes() >= BYTES_MAX {
                return;
            }
            // Not under any lock: it takes some milliseconds.
            let pinned = self.engine.pin_buffers(array, reactor);
            if tell(&name, reactor, pinned) {
                self.buffer_pins().settle((array, reactor));
            }
        }
    }
}

/// Whether that was the last word on it.
fn tell(name: &str, reactor: ReactorIndex, pinned: io::Result<u64>) -> bool {
    let object = format_args!("array {name}");
    match pinned {
        Ok(0) => return false,
        Ok(bytes) => tracing::info!(event = "buffers_pinned", %object, reactor = reactor.0, bytes,
            "its busy transfer buffers are pinned"),
        Err(why) => {
            tracing::info!(event = "buffers_not_pinned", %object, reactor = reactor.0, %why,
            "its transfers work as well, and cost more of the processor");
        }
    }
    true
}

#[cfg(test)]
mod tests {
    //! Whose buffers are worth it.

    use super::*;

    fn load(reactor: u16, buffered: &[(u16, u64)]) -> ReactorLoad {
        let buffered = buffered
            .iter()
            .map(|&(array, all)| (ArrayIndex(array), all));
        ReactorLoad {
            reactor: ReactorIndex(reactor),
            times: engine::ReactorTimes::default(),
            rings: Vec::new(),
            tickets: Vec::new(),
            buffered: buffered.collect(),
        }
    }

    #[test]
    fn shards_that_move_much_are_pinned_once_and_anew_when_another_array_has_their_number() {
        let mut pins = BufferPins::default();
        let shard = |array, reactor| (ArrayIndex(array), ReactorIndex(reactor));
        let mut look = |first: &[(u16, u64)], second: &[(u16, u64)]| {
            let busy = pins.look(&[load(0, first), load(1, second)]);
            busy.iter().for_each(|shard| pins.settle(*shard));
            busy
        };
        let none = Vec::new();
        assert_eq!(
            look(&[(0, 5000)], &[(0, 7)]),
            none,
            "nobody knows since when"
        );
        assert_eq!(look(&[(0, 5999)], &[(0, 7)]), none);
        assert_eq!(look(&[(0, 6999), (3, 0)], &[(0, 7)]), [shard(0, 0)]);
        assert_eq!(look(&[(0, 9999), (3, 1000)], &[(0, 7)]), [shard(3, 0)]);
        assert_eq!(look(&[(0, 12_000), (3, 9000)], &[(0, 2000)]), [shard(0, 1)]);
        assert_eq!(
            look(&[(0, 10), (3, 19_000)], &[(0, 9000)]),
            none,
            "another array"
        );
        assert_eq!(
            look(&[(0, 1010), (3, 29_000)], &[(0, 19_000)]),
            [shard(0, 0)]
        );
        assert_eq!(look(&[(3, 39_000)], &[]), none);
        assert_eq!(
            look(&[(0, 50_000), (3, 49_000)], &[]),
            none,
            "it came between"
        );
        assert_eq!(look(&[(0, 60_000), (3, 59_000)], &[]), [shard(0, 0)]);
    }

    #[test]
    fn an_array_that_starts_has_nothing_of_the_one_before_it() {
        let mut pins = BufferPins::default();
        let shards = [0, 1].map(|array| (ArrayIndex(array), ReactorIndex(0)));
        let mut look = |transfers| {
            let busy = pins.look(&[load(0, &[(0, transfers), (1, transfers)])]);
            busy.iter().for_each(|shard| pins.settle(*shard));
            if transfers == 2000 {
                pins.forget(ArrayIndex(0));
            }
            busy
        };
        assert_eq!(look(0), []);
        assert_eq!(look(2000), shards);
        assert_eq!(look(4000), [], "nobody knows since when");
        assert_eq!(look(6000), [shards[0]]);
    }
}
