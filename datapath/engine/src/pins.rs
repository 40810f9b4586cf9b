//! Guest memory that front-ends promise to leave as it is: pinned once, for all reactors.
//!
//! Pinning takes as long as the memory takes to be made present, so each export that has the
//! promise has a thread for it; guests are served meanwhile, as without it. What does not live
//! here: what a pin is (`drive`), and which transfers make use of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use drive::{Pin, Pins};
use memory::{Lasting, Mapping, RegionTable};
use reactor::Duty;
use vhost_user_blk::SessionEvent;

use crate::control::Engine;

/// Whose memory: the export's number, and the front-end's.
type Owner = (u64, u32);

/// All memory that is pinned now.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    owners: BTreeMap<Owner, Vec<Held>>,
}

#[derive(Clone, Debug)]
struct Held {
    mapping: Arc<Mapping>,
    pin: Arc<Pin>,
}

impl Engine {
    /// Bytes of guest memory that are pinned for an export.
    #[must_use]
    pub fn pinned_bytes(&self, export: u64) -> u64 {
        let pinned = self.pinned();
        let of_export = pinned.owners.range((export, 0)..=(export, u32::MAX));
        let held = of_export.flat_map(|(_, held)| held);
        held.map(|held| held.pin.bytes()).sum()
    }

    /// Has just this memory pinned for a front-end; what it had before and is in `table` stays.
    /// Returns how many bytes that is.
    fn pin(&self, owner: Owner, table: Option<&RegionTable>) -> io::Result<u64> {
        let mut held = Vec::new();
        let before = self.pinned().owners.get(&owner).cloned();
        for region in table.map_or(&[][..], RegionTable::regions) {
            let is_it = |held: &&Held| Arc::ptr_eq(&held.mapping, &region.mapping);
            if held.iter().any(|held| is_it(&held)) {
                continue;
            }
            let mapping = Arc::clone(&region.mapping);
            held.push(match before.iter().flatten().find(is_it) {
                Some(held) => held.clone(),
                // Not under the lock: it takes long, and others are asked for meanwhile.
                None => Held {
                    pin: Arc::new(Pin::new(Arc::clone(&mapping) as Arc<dyn Lasting>)?),
                    mapping,
                },
            });
        }
        self.set_pins(owner, held)
    }

    /// Gives all reactors the pins of all, with these of one front-end.
    fn set_pins(&self, owner: Owner, held: Vec<Held>) -> io::Result<u64> {
        let bytes = held.iter().map(|held| held.pin.bytes()).sum();
        let mut pinned = self.pinned();
        let before = match held.is_empty() {
            true => pinned.owners.remove(&owner),
            false => pinned.owners.insert(owner, held),
        };
        let all = pinned.owners.values().flatten();
        let pins = match Pins::new(all.map(|held| Arc::clone(&held.pin)).collect()) {
            Ok(pins) => Arc::new(pins),
            Err(error) => {
                pinned.owners.remove(&owner);
                pinned.owners.extend(before.map(|before| (owner, before)));
                return Err(error);
            }
        };
        // Under the lock, so that every reactor gets the newest set last.
        for handle in self.handles() {
            let pins = Arc::clone(&pins);
            handle.run(move |core| core.set_pins(pins)).ok();
        }
        Ok(bytes)
    }
}

/// Sees to the pins of one export's front-ends; lets go of all of them when dropped.
#[derive(Debug)]
pub(crate) struct Pinner {
    wanted: Sender<(u32, Option<Arc<RegionTable>>)>,
}

impl Pinner {
    /// Starts the thread of an export.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(
        engine: &Arc<Engine>,
        (export, uuid): (u64, [u8; 16]),
        events: Sender<(u64, SessionEvent)>,
    ) -> io::Result<Pinner> {
        let (wanted, asked) = channel();
        let keeper = Keeper {
            // The engine may end before the export is dropped.
            engine: Arc::downgrade(engine),
            export,
            events,
        };
        let name = format!("pin-{export}");
        thread::Builder::new().name(name).spawn(move || {
            Duty::Export(uuid).begin();
            keeper.run(&asked);
        })?;
        Ok(Pinner { wanted })
    }

    /// A front-end has this memory now, or none any more.
    pub(crate) fn want(&self, front_end: u32, table: Option<Arc<RegionTable>>) {
        // Its thread is gone only if it has panicked, and the engine with it.
        self.wanted.send((front_end, table)).ok();
    }
}

struct Keeper {
    engine: Weak<Engine>,
    export: u64,
    events: Sender<(u64, SessionEvent)>,
}

impl Keeper {
    fn run(&self, asked: &Receiver<(u32, Option<Arc<RegionTable>>)>) {
        let mut front_ends = BTreeMap::new();
        while let Ok(first) = asked.recv() {
            // Only the last word on each: tables come in quick succession when a guest starts.
            let mut wanted = BTreeMap::from([first]);
            wanted.extend(asked.try_iter());
            for (front_end, table) in wanted {
                self.see_to(front_end, table.as_deref());
                front_ends.insert(front_end, table.is_some());
            }
            front_ends.retain(|_, has_memory| *has_memory);
        }
        for front_end in front_ends.into_keys() {
            self.see_to(front_end, None);
        }
    }

    fn see_to(&self, front_end: u32, table: Option<&RegionTable>) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let event = match engine.pin((self.export, front_end), table) {
            Ok(0) => return,
            Ok(bytes) => SessionEvent::MemoryPinned { front_end, bytes },
            Err(why) => {
                // Better none of it than memory that is not there any more.
                engine.pin((self.export, front_end), None).ok();
                let why = why.to_string();
                SessionEvent::MemoryNotPinned { front_end, why }
            }
        };
        self.events.send((self.export, event)).ok();
    }
}
