//! Exports: a socket, its session, and the rings on reactors.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use control::request::{ExportCreate, QueueMove};
use control::view::{Access, ExportProfile, ExportView, GuestMemory, Sharing, VolumeKey};
use control::{Answer, ErrorKind};
use engine::{ExportHost, MoveError, Served, Spread};
use units::{BlockSize, ReactorIndex};
use vhost_user_blk::{
    CacheMode, Profile, QueueKey, RangeLimits, SECTOR_BYTES, SERIAL_BYTES, Session, SessionHandle,
    Settings, SocketSettings,
};

use crate::balance::Placed;
use crate::error::{error, late, not_found, of_bind, of_io};
use crate::state::{Ending, ExportEntry};
use crate::volumes::{Located, map_of};
use crate::{Host, views};

/// Descriptors of a ring when nobody says.
const QUEUE_SIZE: u16 = 256;
/// Sectors of one discard or write-zeroes range at most: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;
/// Ranges of one discard or write-zeroes request.
const RANGES_MAX: u32 = 16;

/// An export that is being removed.
#[derive(Debug)]
pub(crate) struct Removal {
    object: String,
    /// Tells when its session has ended, or is dropped then.
    ended: Receiver<()>,
}

impl Removal {
    /// Waits until it is removed, but no longer than that.
    pub(crate) fn wait(self, patience: Duration) -> Answer<()> {
        match self.ended.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => Err(late(self.object)),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

impl Host {
    pub(crate) fn do_create_export(
        &self,
        create: &ExportCreate,
        volume: &VolumeKey,
    ) -> Answer<ExportView> {
        let object = format!("export {}", create.name);
        let located = self.locate_volume(volume)?;
        self.refuse_second_export(&object, create, &located)?;
        let (spread, reactors) = if create.cores.is_empty() {
            (Spread::Anywhere, self.engine.reactors())
        } else {
            let named = self.reactors_of(&object, &create.cores)?;
            let count = named.len();
            (Spread::Named(named), count)
        };
        let profile = self.profile_of(&object, create, &located, reactors)?;
        let shown = session_profile(&object, &profile, create.access, &located)?;
        let map = Arc::new(map_of(&located)?);
        let shift = located.superblock.geometry.block_size().shift();
        let sectors = (map.blocks() << shift) / SECTOR_BYTES;
        let (id, (limiter, past)) = {
            let mut state = self.state();
            state.next_export += 1;
            let shared = state.limits.entry(located.key()).or_default().shared();
            (state.next_export, shared)
        };
        let served = Served {
            array: located.array,
            map,
            limiter,
            past,
            memory_stays: create.guest_memory == GuestMemory::Pinned,
        };
        let host = ExportHost::new(
            Arc::clone(&self.engine),
            (id, create.uuid.into_bytes()),
            served,
            spread,
            self.session_events.clone(),
        );
        let host = Arc::new(
            host.map_err(|error| of_io(object.clone(), "making a thread for it", &error))?,
        );
        let settings = Settings {
            name: create.name.clone(),
            socket: SocketSettings {
                path: create.socket.path.clone(),
                owner: number_of(&object, "user", create.socket.owner.as_deref(), user_id)?,
                group: number_of(&object, "group", create.socket.group.as_deref(), group_id)?,
                mode: create.socket.mode,
            },
            sharing: match create.sharing {
                Sharing::Exclusive => vhost_user_blk::Sharing::Exclusive,
                Sharing::Shared => vhost_user_blk::Sharing::Shared,
            },
            profile: shown,
            sectors,
        };
        let session = Session::start(settings, Arc::clone(&host) as Arc<dyn vhost_user_blk::Host>);
        let session = session.map_err(|bind| of_bind(object, &bind))?;
        session.set_ready(true);
        let entry = ExportEntry {
            create: create.clone(),
            id,
            array: located.array_uuid,
            volume: located.volume,
            profile,
            host,
            session,
            placed: Placed::new(),
        };
        self.state().exports.insert(create.name.clone(), entry);
        tracing::info!(event = "export_created", export = create.name, volume = create.volume,
            socket = %create.socket.path.display(), "listening");
        self.export_view(&create.name)
    }

    fn refuse_second_export(
        &self,
        object: &str,
        create: &ExportCreate,
        located: &Located,
    ) -> Answer<()> {
        let state = self.state();
        if state.ending.contains_key(&create.name) {
            let text = "the one before of this name has not answered its last requests yet";
            return Err(error(ErrorKind::Busy, object, text).next("choose another name, or wait"));
        }
        let volume = located.volume;
        if state
            .ending
            .values()
            .any(|ending| (ending.array, ending.volume) == (located.array_uuid, volume))
        {
            let text = "an export of its volume has not answered its last requests yet";
            return Err(error(ErrorKind::Busy, object, text).next("wait until it has"));
        }
        for other in state.exports.values() {
            if other.create.name == create.name || other.create.uuid == create.uuid {
                let text = format!(
                    "export {} has the uuid {}",
                    other.create.name, other.create.uuid
                );
                return Err(
                    error(ErrorKind::Exists, object, text).next("choose another name and uuid")
                );
            }
            if other.create.socket.path == create.socket.path {
                let text = format!(
                    "export {} listens on {}",
                    other.create.name,
                    create.socket.path.display()
                );
                return Err(error(ErrorKind::Busy, object, text).next("choose another --socket"));
            }
            let shared =
                create.sharing == Sharing::Shared && other.create.sharing == Sharing::Shared;
            if (other.array, other.volume) == (located.array_uuid, located.volume) && !shared {
                let text = format!(
                    "export {} serves volume {}",
                    other.create.name, create.volume
                );
                let next =
                    "remove it first, or make both --shared if their guests agree on who writes";
                return Err(error(ErrorKind::Busy, object, text).next(next));
            }
        }
        Ok(())
    }

    /// The reactors on these CPUs.
    fn reactors_of(&self, object: &str, cores: &[u16]) -> Answer<Vec<ReactorIndex>> {
        let reactor = |core: &u16| {
            self.engine.reactor_on(usize::from(*core)).ok_or_else(|| {
                let text = format!("no reactor runs on CPU {core}");
                error(ErrorKind::NotFound, object, text)
                    .next("`garboard status` shows the reactors")
            })
        };
        cores.iter().map(reactor).collect()
    }

    fn profile_of(
        &self,
        object: &str,
        create: &ExportCreate,
        located: &Located,
        reactors: usize,
    ) -> Answer<ExportProfile> {
        if let Some(profile) = &create.profile {
            return Ok(profile.clone());
        }
        let geometry = &located.superblock.geometry;
        let array_block = geometry.block_size().bytes();
        // Writes to parts of a block are tickets of the array, and level 0 has none.
        let smallest = if geometry.parity() > 0 {
            SECTOR_BYTES
        } else {
            array_block
        };
        let wished = create.wishes.block_bytes.unwrap_or(smallest);
        if wished < smallest {
            let text = format!(
                "its array is of level 0 and has blocks of {array_block} bytes, and there a guest \
                 cannot have smaller ones"
            );
            return Err(
                error(ErrorKind::Invalid, object, text).next(format!("--block-size {array_block}"))
            );
        }
        let queues = u16::try_from(reactors).unwrap_or(u16::MAX);
        let mut profile = ExportProfile {
            virtio_features: 0,
            protocol_features: 0,
            queues: create.wishes.queues.unwrap_or(queues),
            queue_size: create.wishes.queue_size.unwrap_or(QUEUE_SIZE),
            block_bytes: wished,
            physical_block_bytes: 4096,
            minimum_io_bytes: geometry.chunk_bytes(),
            optimal_io_bytes: geometry.stripe_bytes(),
            segments_max: 0,
            segment_bytes_max: 0,
            serial: create.wishes.serial.clone(),
        };
        let shown = session_profile(object, &profile, create.access, located)?;
        profile.virtio_features = shown.features();
        profile.segments_max = shown.segments_max();
        profile.segment_bytes_max = shown.segment_bytes_max();
        Ok(profile)
    }

    pub(crate) fn do_move_queue(&self, name: &str, to: QueueMove) -> Answer<ExportView> {
        let object = format!("queue {} of export {name}", to.queue);
        let (host, id) = {
            let state = self.state();
            let entry = state
                .exports
                .get(name)
                .ok_or_else(|| not_found("export", name))?;
            (Arc::clone(&entry.host), entry.id)
        };
        let reactor = self.reactors_of(&object, &[to.core])?[0];
        let (mut moved, mut ends) = (false, false);
        for (_, key, _) in self.engine.rings(id) {
            if key.index != to.queue {
                continue;
            }
            ends = true;
            match host.move_ring(QueueKey { ..key }, reactor, self.engine.patience()) {
                Ok(()) => moved = true,
                Err(MoveError::NoRing) => {}
                Err(MoveError::Late) => {
                    let text = "what it took is not answered yet, so it stays where it is";
                    return Err(error(ErrorKind::Busy, object, text)
                        .next("look for a drive that hangs: `garboard drive list`"));
                }
            }
        }
        if let Some(entry) = self.state().exports.get_mut(name).filter(|_| moved) {
            entry.placed.insert(to.queue);
        }
        if !moved && ends {
            let text = "that queue is being stopped, and waits for what it took";
            return Err(error(ErrorKind::Busy, object, text)
                .next("look for a drive that hangs: `garboard drive list`"));
        }
        if !moved {
            let text = "no guest has started such a queue";
            return Err(error(ErrorKind::NotFound, object, text)
                .next(format!("`garboard export show {name}`")));
        }
        self.export_view(name)
    }

    pub(crate) fn do_remove_export(&self, name: &str) -> Answer<()> {
        self.begin_removal(name)?.wait(self.engine.patience())
    }

    /// Removes an export, and does not wait until its last requests are answered.
    pub(crate) fn begin_removal(&self, name: &str) -> Answer<Removal> {
        let object = format!("export {name}");
        let mut state = self.state();
        if state.ending.contains_key(name) {
            return Err(late(object));
        }
        let entry = state.exports.remove(name);
        let entry = entry.ok_or_else(|| not_found("export", name))?;
        let ending = Ending {
            array: entry.array,
            volume: entry.volume,
        };
        state.ending.insert(name.to_owned(), ending);
        drop(state);
        let ended = self.end_session(name, entry.session);
        Ok(Removal { object, ended })
    }

    /// Ends a session on a thread of its own: that waits for the last request, however long a
    /// drive hangs, and we do not. Gives what tells when it has.
    fn end_session(&self, name: &str, session: SessionHandle) -> Receiver<()> {
        let (host, export) = (self.myself.clone(), name.to_owned());
        let (sender, ended) = channel();
        let stop = move || {
            session.stop();
            tracing::info!(event = "export_removed", export, "removed");
            if let Some(host) = host.upgrade() {
                host.state().ending.remove(&export);
            }
            sender.send(()).ok();
        };
        let spawned = std::thread::Builder::new()
            .name("export-end".to_owned())
            .spawn(stop);
        if let Err(source) = spawned {
            // The session ended here, where the closure was dropped.
            self.state().ending.remove(name);
            tracing::warn!(event = "no_thread", error = %source, "ended all the same");
        }
        ended
    }

    pub(crate) fn export_view(&self, name: &str) -> Answer<ExportView> {
        let exports = self.do_exports();
        exports
            .into_iter()
            .find(|view| view.name == name)
            .ok_or_else(|| not_found("export", name))
    }

    pub(crate) fn do_exports(&self) -> Vec<ExportView> {
        let state = self.state();
        let view = |entry: &ExportEntry| {
            let rings = self.engine.rings(entry.id);
            let view = views::export(entry, &entry.session.status(), &rings, &self.cores);
            let pinned_bytes = self.engine.pinned_bytes(entry.id);
            ExportView {
                pinned_bytes,
                ..view
            }
        };
        state.exports.values().map(view).collect()
    }
}

/// What the session shows, checked.
fn session_profile(
    object: &str,
    profile: &ExportProfile,
    access: Access,
    located: &Located,
) -> Answer<Profile> {
    let invalid = |text: String| error(ErrorKind::Invalid, object, text);
    let logical = BlockSize::from_bytes(profile.block_bytes).ok_or_else(|| {
        invalid(format!("{} is no block size", profile.block_bytes)).next("there are 512 and 4096")
    })?;
    if profile.serial.len() > SERIAL_BYTES || !profile.serial.is_ascii() {
        return Err(invalid(format!(
            "a serial has at most {SERIAL_BYTES} ASCII characters"
        ))
        .next("choose another --serial"));
    }
    let mut serial = [0; SERIAL_BYTES];
    serial[..profile.serial.len()].copy_from_slice(profile.serial.as_bytes());
    let blocks = |bytes: u64| bytes / profile.block_bytes;
    let ratio = blocks(profile.physical_block_bytes.max(profile.block_bytes));
    let limits = RangeLimits {
        sectors_max: RANGE_SECTORS_MAX,
        ranges_max: RANGES_MAX,
        alignment_sectors: u32::try_from(profile.optimal_io_bytes / SECTOR_BYTES)
            .unwrap_or(u32::MAX),
    };
    let shown = Profile {
        serial,
        block: logical.min(located.superblock.geometry.block_size()),
        logical_block: logical,
        physical_block_exponent: u8::try_from(ratio.ilog2()).expect("below 64"),
        minimum_io_blocks: u16::try_from(blocks(profile.minimum_io_bytes)).unwrap_or(u16::MAX),
        optimal_io_blocks: u32::try_from(blocks(profile.optimal_io_bytes)).unwrap_or(u32::MAX),
        queues: profile.queues,
        queue_size: profile.queue_size,
        cache: CacheMode::WriteBack,
        access: match access {
            Access::ReadWrite => vhost_user_blk::Access::ReadWrite,
            Access::ReadOnly => vhost_user_blk::Access::ReadOnly,
        },
        discard: Some(limits),
        write_zeroes: Some(limits),
    };
    shown.check().map_err(|wrong| {
        invalid(wrong.to_string()).next("`garboard export vhost --help` names what fits")
    })?;
    Ok(shown)
}

/// A user or group by number or by name.
fn number_of(
    object: &str,
    kind: &str,
    wanted: Option<&str>,
    by_name: impl Fn(&str) -> Option<u32>,
) -> Answer<Option<u32>> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let number = wanted.parse().ok().or_else(|| by_name(wanted));
    let text = || format!("there is no {kind} {wanted} on this host");
    number.map(Some).ok_or_else(|| {
        let next = format!("name a {kind} of this host, or give a number");
        error(ErrorKind::NotFound, object, text()).next(next)
    })
}

fn user_id(name: &str) -> Option<u32> {
    id_in("/etc/passwd", name)
}

fn group_id(name: &str) -> Option<u32> {
    id_in("/etc/group", name)
}

/// The number of a name in a file whose lines are `name:password:number:…`.
fn id_in(path: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut lines = text.lines().map(|line| line.split(':'));
    let mut line = lines.find(|line| line.clone().next() == Some(name))?;
    line.nth(2)?.parse().ok()
}
