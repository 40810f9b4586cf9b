//! Write caches that somebody turns on while the drives are open. `/sys` tells, and does not answer
//! while the kernel has a device to itself: so each drive is looked at by a thread of its own.

use std::sync::Arc;

use drive::{CacheWatch, Drive};
use uuid::Uuid;

use crate::Host;
use crate::looks::Looks;

impl Host {
    /// Looks for write caches that somebody has turned on. Takes no lock while it asks, and keeps
    /// no drive open.
    pub(crate) fn do_look_at_write_caches(&self) {
        let drives: Vec<(Uuid, String, Arc<Drive>)> = {
            let state = self.state();
            let drives = state.drives.values();
            drives
                .map(|entry| (entry.uuid, entry.name.clone(), Arc::clone(&entry.drive)))
                .collect()
        };
        let watches = drives
            .into_iter()
            .filter_map(|(uuid, name, drive)| Some((uuid, name, drive.cache_watch()?)));
        let watches = watches.collect();
        self.look_apart(watches, |watch: CacheWatch| watch.turned_on());
    }

    /// Asks each drive by itself whether its write cache was turned on: one that is not well lets
    /// no other wait.
    pub(crate) fn look_apart<W: Send + 'static>(
        &self,
        watches: Vec<(Uuid, String, W)>,
        turned_on: fn(W) -> Option<Arc<Drive>>,
    ) {
        for (uuid, name, watch) in watches {
            let object = name.clone();
            begin_look(&self.looks, (uuid, &name), move || {
                if let Some(drive) = turned_on(watch) {
                    flush_apart(object, &drive);
                }
            });
        }
    }
}

/// Flushes a drive of which the write cache was turned on, on a thread of its own, until that goes
/// well or the drive is closed: who was told that it needs no flush does not ask for one again.
fn flush_apart(name: String, drive: &Arc<Drive>) {
    let object = format!("drive {name}");
    tracing::warn!(
        event = "write_cache_turned_on",
        object,
        "somebody has turned its write cache on: it is flushed from now on"
    );
    let drive = Arc::downgrade(drive);
    let flush = move || {
        let mut told = false;
        while let Some(drive) = drive.upgrade() {
            match drive.flush() {
                Ok(()) => return,
                Err(error) if !told => {
                    told = true;
                    tracing::error!(event = "write_cache_not_flushed", object, %error,
                        "what its write cache holds is lost with its power; it is tried again");
                }
                Err(_) => {}
            }
            std::mem::drop(drive);
            std::thread::park_timeout(units::limits::CACHE_LOOK);
        }
    };
    let spawned = std::thread::Builder::new()
        .name("flush".to_owned())
        .spawn(flush);
    if let Err(error) = spawned {
        tracing::error!(event = "write_cache_not_flushed", object = format!("drive {name}"), %error,
            "what its write cache holds is lost with its power until a guest flushes it");
    }
}

/// Begins a look, unless the last one at the same drive has not ended.
fn begin_look(
    looks: &Looks<Uuid>,
    (drive, name): (Uuid, &str),
    look: impl FnOnce() + Send + 'static,
) {
    let Some(under_way) = looks.enter(drive) else {
        return;
    };
    let run = move || {
        look();
        drop(under_way);
    };
    let thread = std::thread::Builder::new().name("look".to_owned());
    if let Err(error) = thread.spawn(run) {
        tracing::error!(event = "drive_not_looked_at", object = format!("drive {name}"), %error,
                "it is looked at again");
    }
}
