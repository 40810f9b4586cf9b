//! Memory that is pinned once, for all reactors: guests', where front-ends promise to leave it as
//! it is, and the transfer buffers that shards use first.
//!
//! Pinning takes as long as the memory takes to be made present, so each export that has the
//! promise has a thread for it; guests are served meanwhile, as without it. What does not live
//! here: what a pin is (`drive`), which transfers make use of it, and whose buffers are worth it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use drive::{Pin, Pins};
use memory::{Lasting, Mapping, RegionTable};
use reactor::Duty;
use units::{ArrayIndex, ReactorIndex};
use vhost_user_blk::SessionEvent;

use crate::control::Engine;
use crate::core::Core;

/// Whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The export's number, and the front-end's.
    FrontEnd(u64, u32),
    /// An array's shard on this reactor.
    Shard(ArrayIndex, ReactorIndex),
}

/// What a front-end has: its number, and its memory, if it has any.
type Wanted = (u32, Option<Arc<RegionTable>>);

/// All memory that is pinned now.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    owners: BTreeMap<Owner, Vec<Held>>,
    /// What reactors have, or are about to have.
    set: Arc<Pins>,
}

#[derive(Clone, Debug)]
struct Held {
    /// What a front-end has handed over.
    mapping: Option<Arc<Mapping>>,
    pin: Arc<Pin>,
}

impl Engine {
    /// Bytes of guest memory that are pinned for an export.
    #[must_use]
    pub fn pinned_bytes(&self, export: u64) -> u64 {
        let pinned = self.pinned();
        let all = Owner::FrontEnd(export, 0)..=Owner::FrontEnd(export, u32::MAX);
        bytes_of(pinned.owners.range(all))
    }

    /// Bytes of the engine's own transfer buffers that are pinned.
    #[must_use]
    pub fn pinned_buffer_bytes(&self) -> u64 {
        let is_ours = |owner: &Owner| matches!(owner, Owner::Shard(_, _));
        let pinned = self.pinned();
        bytes_of(pinned.owners.iter().filter(|(owner, _)| is_ours(owner)))
    }

    /// Pins the transfer buffers that an array's shard on this reactor uses first, until the array
    /// ends; none of an array that does not run. Returns how many bytes that is.
    ///
    /// # Errors
    /// As of [`Pin::new`].
    pub fn pin_buffers(&self, array: ArrayIndex, reactor: ReactorIndex) -> io::Result<u64> {
        let Some(memory) = self.first_buffers(array, reactor) else {
            return Ok(0);
        };
        let places = memory.each_ref().map(|memory| memory.segment());
        let pin = || {
            let pin = |memory| Pin::new(memory, &|| true).map(Arc::new);
            memory.map(pin).into_iter().collect::<io::Result<Vec<_>>>()
        };
        let pins = memory::near(self.places.of(reactor), pin)??;
        let held = |pin| Held { mapping: None, pin };
        let held = pins.into_iter().map(held).collect();
        let bytes = self.set_pins(Owner::Shard(array, reactor), held)?;
        let now = self.first_buffers(array, reactor);
        let now = now.map(|memory| memory.each_ref().map(|memory| memory.segment()));
        if now != Some(places) {
            // It has ended meanwhile, perhaps after its pins were looked for.
            self.set_pins(Owner::Shard(array, reactor), Vec::new())?;
            return Ok(0);
        }
        Ok(bytes)
    }

    /// Lets go of the buffers of an array that has ended.
    pub(crate) fn forget_buffers(&self, array: ArrayIndex) {
        for reactor in (0..self.handles().len()).map(ReactorIndex::from_at) {
            let owner = Owner::Shard(array, reactor);
            if self.pinned().owners.contains_key(&owner) {
                // The others' pins were handed on before.
                self.set_pins(owner, Vec::new()).ok();
            }
        }
    }

    fn first_buffers(
        &self,
        array: ArrayIndex,
        reactor: ReactorIndex,
    ) -> Option<[Arc<dyn Lasting>; 2]> {
        let ask = move |core: &mut Core| core.shard(array).map(|shard| shard.first_buffers());
        self.handle(reactor).call(ask).ok()?
    }

    /// Has just this memory pinned for a front-end; what it had before and is in `table` stays.
    /// Returns how many bytes that is.
    fn pin(
        &self,
        owner: Owner,
        table: Option<&RegionTable>,
        wanted: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let mut held = Vec::new();
        let before = self.pinned().owners.get(&owner).cloned();
        for region in table.map_or(&[][..], RegionTable::regions) {
            let is_it = |held: &&Held| {
                let mapping = held.mapping.as_ref();
                mapping.is_some_and(|mapping| Arc::ptr_eq(mapping, &region.mapping))
            };
            if held.iter().any(|held| is_it(&held)) {
                continue;
            }
            let mapping = Arc::clone(&region.mapping);
            held.push(match before.iter().flatten().find(is_it) {
                Some(held) => held.clone(),
                // Not under the lock: it takes long, and others are asked for meanwhile.
                None => Held {
                    pin: Arc::new(Pin::new(Arc::clone(&mapping) as Arc<dyn Lasting>, wanted)?),
                    mapping: Some(mapping),
                },
            });
        }
        self.set_pins(owner, held)
    }

    /// Gives all reactors the pins of all, with these of one front-end, and waits until they have
    /// them: what goes is let go of here, which takes long, and on no reactor.
    fn set_pins(&self, owner: Owner, held: Vec<Held>) -> io::Result<u64> {
        let bytes = held.iter().map(|held| held.pin.bytes()).sum();
        let (taken, taking) = channel::<()>();
        let mut pinned = self.pinned();
        let before = match held.is_empty() {
            true => pinned.owners.remove(&owner),
            false => pinned.owners.insert(owner, held),
        };
        let made = pinned.make_set();
        let failed = made.as_ref().err().map(ToString::to_string);
        let mut refused = None;
        let set = made.or_else(|_| {
            // Rather nothing of it than memory of somebody who is gone.
            refused = pinned.owners.remove(&owner);
            pinned.make_set()
        });
        let set = Arc::new(set.unwrap_or_default());
        let old = std::mem::replace(&mut pinned.set, Arc::clone(&set));
        // Under the lock, so that every reactor gets the newest set last.
        for handle in self.handles() {
            let (set, taken) = (Arc::clone(&set), taken.clone());
            let take = move |core: &mut Core| {
                core.set_pins(set);
                drop(taken);
            };
            handle.run(take).ok();
        }
        drop(pinned);
        drop(taken);
        // Ends when the last of them has it, or is gone.
        taking.recv().ok();
        drop((before, refused, old));
        match failed {
            None => Ok(bytes),
            Some(why) => Err(io::Error::other(why)),
        }
    }
}

fn bytes_of<'pinned>(owners: impl Iterator<Item = (&'pinned Owner, &'pinned Vec<Held>)>) -> u64 {
    let held = owners.flat_map(|(_, held)| held);
    held.map(|held| held.pin.bytes()).sum()
}

impl Pinned {
    fn make_set(&self) -> io::Result<Pins> {
        let all = self.owners.values().flatten();
        Pins::new(all.map(|held| Arc::clone(&held.pin)).collect())
    }
}

/// Sees to the pins of one export's front-ends; lets go of all of them when dropped.
#[derive(Debug)]
pub(crate) struct Pinner {
    wanted: Sender<Wanted>,
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
    fn run(&self, asked: &Receiver<Wanted>) {
        let mut front_ends = BTreeSet::new();
        let mut wanted = BTreeMap::new();
        loop {
            if wanted.is_empty() {
                let Ok(first) = asked.recv() else {
                    break;
                };
                wanted.extend([first]);
            }
            // Only the last word on each: tables come in quick succession when a guest starts.
            wanted.extend(asked.try_iter());
            // Those that are gone first: that is done in a moment.
            let gone = wanted.iter().find(|(_, table)| table.is_none());
            let next = gone.or(wanted.first_key_value());
            let front_end = *next.expect("not empty").0;
            let table = wanted.remove(&front_end).expect("found");
            let has_memory = table.is_some();
            let later = RefCell::new(wanted);
            self.see_to(front_end, table, &|| {
                let mut later = later.borrow_mut();
                later.extend(asked.try_iter());
                !later.contains_key(&front_end)
            });
            wanted = later.into_inner();
            if has_memory {
                front_ends.insert(front_end);
            } else {
                front_ends.remove(&front_end);
            }
        }
        for front_end in front_ends {
            self.see_to(front_end, None, &|| true);
        }
    }

    fn see_to(&self, front_end: u32, table: Option<Arc<RegionTable>>, wanted: &dyn Fn() -> bool) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let owner = Owner::FrontEnd(self.export, front_end);
        let event = match engine.pin(owner, table.as_deref(), wanted) {
            Ok(0) => return,
            Err(_) if !wanted() => return,
            Ok(bytes) => SessionEvent::MemoryPinned { front_end, bytes },
            Err(why) => {
                // Better none of it than memory that is not there any more.
                engine.pin(owner, None, wanted).ok();
                let why = why.to_string();
                SessionEvent::MemoryNotPinned { front_end, why }
            }
        };
        self.events.send((self.export, event)).ok();
    }
}
