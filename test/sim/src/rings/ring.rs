//! One ring as its guest has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Operation;
use guest::{Driver, Layout, Options, Token};
use memory::Segment;
use units::{BlockSize, bytes_usize};
use uuid::Uuid;
use vhost_user_blk::{Access, CacheMode, Profile, RangeLimits, Shown, feature};
use virtqueue::Inflight;
use volume::Limiter;

use super::Asks;
use super::chain::{self, Content, SERIAL, UNANSWERED};
use super::machine::{Machine, SlotPlace};
use super::served::Running;
use crate::random::Random;

/// Sectors of the largest discard.
const SECTORS_MAX: u32 = 8192;
/// What guests have in memory that they use for something else.
const OTHER: u8 = 0xDD;

/// The answer to a request of a client.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) key: usize,
    /// The status byte; none when the guest has reset its ring and does not wait any more.
    pub(crate) status: Option<u8>,
    /// What was written is durable.
    pub(crate) durable: bool,
    /// What was read.
    pub(crate) found: Vec<u8>,
}

impl Answered {
    /// Whether all went well.
    pub(crate) fn well(&self) -> bool {
        self.status == Some(chain::OK)
    }
}

/// Something to put into a ring.
#[derive(Debug)]
pub(super) struct Wish {
    content: Content,
    operation: Operation,
    meaning: Meaning,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The client's, by its key.
    Asked(usize),
    /// Nobody's: this status is the answer.
    Odd(u8),
    /// Nobody's, and it breaks the ring.
    Breaking,
}

impl Wish {
    /// What a client asks for; `None` when it cannot be said in such blocks.
    pub(super) fn new(asks: Asks<'_>, block: BlockSize, key: usize) -> Option<Wish> {
        let (first, bytes) = asks.place;
        let block = block.bytes();
        if !first.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return None;
        }
        Some(Wish {
            content: Content::new(asks.operation, (first / 512, bytes / 512), asks.bytes),
            operation: asks.operation,
            meaning: Meaning::Asked(key),
        })
    }

    /// What makes no sense.
    pub(super) fn odd(random: &mut Random) -> Wish {
        let (content, status) = Content::odd(random);
        Wish {
            content,
            operation: Operation::Read,
            meaning: Meaning::Odd(status),
        }
    }
}

/// A request that the guest waits for.
#[derive(Debug)]
pub(super) struct Sent {
    slot: SlotPlace,
    /// How many it has sent before.
    pub(super) order: u64,
    pub(super) operation: Operation,
    meaning: Meaning,
    status: u64,
    /// Bytes that the device may write.
    writable: u32,
    /// Bytes that it reads.
    room: usize,
    /// If it goes well, what was written is durable.
    durable: bool,
}

impl Sent {
    /// Whether an engine has it that has taken all up to this one.
    pub(super) fn is_taken(&self, last: Option<u64>) -> bool {
        // What asks nothing of the volume is taken unseen.
        let is_seen = matches!(self.meaning, Meaning::Asked(_));
        is_seen && last.is_some_and(|last| self.order <= last)
    }

    /// Nobody waits for it any more.
    fn forsaken(&self) -> Option<Answered> {
        let Meaning::Asked(key) = self.meaning else {
            return None;
        };
        Some(Answered {
            key,
            status: None,
            durable: false,
            found: Vec::new(),
        })
    }
}

/// What is done with a ring besides serving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It goes to this reactor.
    Moves(usize),
    /// The machine is paused, and goes on; then front-ends may forget what was in flight, as
    /// nothing is.
    Stops,
    /// The guest's driver begins anew.
    Resets,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) volume: Uuid,
    machine: Arc<Machine>,
    pub(super) driver: Driver,
    pub(super) features: u64,
    pub(super) shown: Arc<Shown>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) sent: BTreeMap<Token, Sent>,
    order: u64,
    /// Where the front-end keeps what is in flight.
    region: u64,
    /// Where an engine goes on that knows nothing else.
    pub(super) base: u32,
    /// The engine's side of it.
    pub(super) running: Option<Running>,
    pub(super) leaving: Option<Leaving>,
}

impl Ring {
    /// A ring of a guest of a volume on an array of such blocks.
    pub(super) fn new(
        machine: &Arc<Machine>,
        volume: Uuid,
        block: BlockSize,
        random: &mut Random,
    ) -> Ring {
        let (driver, mut features) = new_driver(machine, random);
        let mut cache = CacheMode::WriteBack;
        match random.below(8) {
            // Neither flushes nor switches: it believes that what is answered is durable.
            0 | 1 => {}
            2 => features |= feature::FLUSH,
            3 => {
                features |= feature::FLUSH | feature::CONFIG_WCE;
                cache = CacheMode::WriteThrough;
            }
            _ => features |= feature::FLUSH | feature::CONFIG_WCE,
        }
        // Guests may have smaller blocks than the array.
        let shown = if random.happens(500) {
            block
        } else {
            BlockSize::B512
        };
        let region = new_region(machine, driver.options());
        Ring {
            volume,
            machine: Arc::clone(machine),
            base: driver.base(),
            driver,
            features,
            shown: Arc::new(Shown::new(profile(shown, cache), 0)),
            limiter: Arc::new(Limiter::default()),
            sent: BTreeMap::new(),
            order: 0,
            region,
            running: None,
            leaving: None,
        }
    }

    /// Whether its guest asks for anything now.
    pub(super) fn asks(&self) -> bool {
        matches!(self.leaving, None | Some(Leaving::Moves(_)))
    }

    /// What its requests lie in.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotPlace> {
        self.sent.values().map(|sent| sent.slot)
    }

    /// Whether its guest waits for anything.
    pub(super) fn waits(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether its guest has broken a rule.
    pub(super) fn is_abused(&self) -> bool {
        let breaks = |sent: &Sent| sent.meaning == Meaning::Breaking;
        self.sent.values().any(breaks)
    }

    /// The cache mode that the guest believes in.
    pub(super) fn cache(&self) -> CacheMode {
        self.shown.cache_for(self.features)
    }

    /// Makes a request available, if the ring has room and its guest would ask for that.
    pub(super) fn ask(&mut self, wish: Wish, slot: SlotPlace, random: &mut Random) -> bool {
        let Wish {
            content,
            operation,
            meaning,
        } = wish;
        if operation == Operation::Flush && self.features & feature::FLUSH == 0 {
            return false;
        }
        let memory = &self.machine.memory;
        let (parts, writable, status) = content.lay_out(memory, slot, random);
        let indirect = self.features & feature::INDIRECT_DESC != 0 && random.happens(500);
        let token = if indirect {
            // A table need not be aligned.
            let table = slot.table() + random.below(2) * 8;
            self.driver.submit_table(table, &parts)
        } else {
            self.driver.submit(&parts)
        };
        let Some(token) = token else {
            return false;
        };
        let sent = Sent {
            slot,
            order: self.order,
            operation,
            meaning,
            status,
            writable,
            room: content.room,
            durable: self.cache() == CacheMode::WriteThrough,
        };
        self.send(token, sent);
        true
    }

    /// Makes a chain available that breaks the ring, if that has room.
    pub(super) fn ask_to_break(&mut self, slot: SlotPlace, random: &mut Random) -> bool {
        let parts = chain::breaking(slot, random);
        let Some(token) = self.driver.submit(&parts) else {
            return false;
        };
        let sent = Sent {
            slot,
            order: self.order,
            operation: Operation::Read,
            meaning: Meaning::Breaking,
            status: slot.data(),
            writable: 1,
            room: 0,
            durable: false,
        };
        self.send(token, sent);
        true
    }

    fn send(&mut self, token: Token, sent: Sent) {
        self.order += 1;
        let before = self.sent.insert(token, sent);
        assert!(before.is_none(), "a driver names a request once");
    }

    /// The data of the request in a slot, as the guest has it.
    pub(super) fn data_of(&self, slot: SlotPlace, bytes: u64) -> Segment {
        let found = self.machine.memory.find(slot.data(), bytes);
        found.expect("a slot is in memory")
    }

    /// Takes an answer, and the slot that was used for it.
    pub(super) fn reap(&mut self) -> Option<(SlotPlace, Option<Answered>)> {
        let used = self.driver.reap()?;
        let sent = self.sent.remove(&used.token).expect("it waits for it");
        let memory = &self.machine.memory;
        let status = memory.read(sent.status, 1)[0];
        let found = memory.read(sent.slot.data(), sent.room);
        let what = format!("{sent:?}");
        assert_ne!(status, UNANSWERED, "answered without a status: {what}");
        assert_eq!(used.written, sent.writable, "bytes of {what}");
        let answered = match sent.meaning {
            Meaning::Asked(key) => Some(Answered {
                key,
                status: Some(status),
                durable: sent.durable,
                found,
            }),
            Meaning::Odd(expected) => {
                assert_eq!(status, expected, "the answer to {what}");
                let serial = found.len() != SERIAL.len() || status != chain::OK || found == SERIAL;
                assert!(serial, "the serial is {found:?}");
                None
            }
            Meaning::Breaking => panic!("what breaks a ring is answered: {what}"),
        };
        self.release(&sent);
        Some((sent.slot, answered))
    }

    /// The guest has other things there.
    fn release(&self, sent: &Sent) {
        let bytes = sent.status + 1 - sent.slot.header();
        let memory = self.machine.memory.find(sent.slot.header(), bytes);
        memory.expect("a slot is in memory").fill(OTHER);
    }

    /// Switches the cache mode, if the driver can. What is under way goes by either.
    pub(super) fn switch_cache(&mut self) {
        if self.features & feature::CONFIG_WCE == 0 {
            return;
        }
        self.shown.set_cache(match self.shown.cache() {
            CacheMode::WriteBack => CacheMode::WriteThrough,
            CacheMode::WriteThrough => CacheMode::WriteBack,
        });
        self.sent.values_mut().for_each(|sent| sent.durable = false);
    }

    /// The engine is dead. What it was to do with the ring is not done; a driver that begins anew
    /// goes on with that.
    pub(super) fn lose_engine(&mut self) {
        self.running = None;
        self.leaving = self.leaving.filter(|leaving| *leaving == Leaving::Resets);
    }

    /// What an engine needs of the in-flight region.
    pub(super) fn inflight(&self) -> Inflight {
        let layout = layout(self.driver.options().layout);
        let size = self.driver.options().size;
        let bytes = bytes_usize(Inflight::stride(layout, size));
        let region = self.machine.found(self.region, bytes);
        Inflight::new(layout, size, region, 0).expect("a region for it")
    }

    /// The front-end gives the next engine a region of which nothing is known.
    pub(super) fn forget_region(&mut self) {
        self.region = new_region(&self.machine, self.driver.options());
    }

    /// The guest's driver begins anew, in other memory and perhaps in another layout. What it had
    /// asked for it does not wait for any more.
    pub(super) fn reset(&mut self, random: &mut Random) -> Vec<(SlotPlace, Option<Answered>)> {
        let (driver, features) = new_driver(&self.machine, random);
        let kept = feature::FLUSH | feature::CONFIG_WCE;
        self.features = self.features & kept | features;
        self.base = driver.base();
        self.driver = driver;
        self.forget_region();
        let sent = std::mem::take(&mut self.sent);
        let dropped = sent.into_values().map(|sent| {
            self.release(&sent);
            (sent.slot, sent.forsaken())
        });
        dropped.collect()
    }

    /// Its guest is gone.
    pub(super) fn forsaken(self) -> Vec<Answered> {
        self.sent.values().filter_map(Sent::forsaken).collect()
    }

    /// Requests of which the memory lies in a bank.
    pub(super) fn in_bank(&self, bank: usize) -> impl Iterator<Item = &Sent> {
        let lies = move |sent: &&Sent| sent.slot.bank() == bank;
        self.sent.values().filter(lies)
    }

    /// Whether the guest could see the status of a request.
    pub(super) fn is_answered(&self, sent: &Sent) -> bool {
        self.machine.memory.read(sent.status, 1)[0] != UNANSWERED
    }

    /// Where an engine finds the parts of the ring.
    pub(super) fn memory(&self) -> virtqueue::RingMemory {
        let addresses = self.driver.addresses();
        let found = |(address, length)| self.machine.found(address, length);
        virtqueue::RingMemory {
            descriptors: found(addresses.descriptors),
            driver: found(addresses.driver),
            device: found(addresses.device),
        }
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }
}

pub(super) fn layout(layout: Layout) -> virtqueue::Layout {
    match layout {
        Layout::Split => virtqueue::Layout::Split,
        Layout::Packed => virtqueue::Layout::Packed,
    }
}

/// A driver, and the features of its ring.
fn new_driver(machine: &Machine, random: &mut Random) -> (Driver, u64) {
    let (layout, size) = if random.happens(500) {
        (Layout::Split, [8, 16, 32][random.position(3)])
    } else {
        (Layout::Packed, [8, 11, 16, 30][random.position(4)])
    };
    let options = Options {
        layout,
        size,
        event_idx: random.happens(500),
        // The end of all numbers is near, or it is the beginning.
        start: [0, 65_530][random.position(2)],
    };
    let mut features = feature::VERSION_1;
    if options.event_idx {
        features |= feature::EVENT_IDX;
    }
    if random.happens(700) {
        features |= feature::INDIRECT_DESC;
    }
    (Driver::new(&machine.memory, options), features)
}

fn new_region(machine: &Machine, options: Options) -> u64 {
    let bytes = Inflight::stride(layout(options.layout), options.size);
    machine.memory.allocate(bytes_usize(bytes), 64)
}

fn profile(block: BlockSize, cache: CacheMode) -> Profile {
    let limits = RangeLimits {
        sectors_max: SECTORS_MAX,
        ranges_max: 4,
        alignment_sectors: 8,
    };
    Profile {
        serial: SERIAL,
        block,
        logical_block: block,
        physical_block_exponent: 0,
        minimum_io_blocks: 1,
        optimal_io_blocks: 8,
        queues: 1,
        queue_size: 32,
        cache,
        access: Access::ReadWrite,
        discard: Some(limits),
        write_zeroes: Some(limits),
    }
}
