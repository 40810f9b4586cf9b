//! A place for the wanted state that refuses writes when a test says so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};

use super::Wanted;
use super::file::Place;
use crate::Answer;

/// Whether writes fail; clones are the same switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<AtomicBool>, Arc<AtomicBool>);

impl Switch {
    /// From now on every write fails, as on a full file system.
    pub(crate) fn fail(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// What is written next is written, but not made durable.
    pub(crate) fn fail_next_sync(&self) {
        self.1.store(true, Ordering::SeqCst);
    }

    /// There is room again.
    pub(crate) fn work(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

/// An empty wanted state in memory, and its switch.
pub(crate) fn wanted() -> (Wanted, Switch) {
    let switch = Switch::default();
    let backend = Backend {
        inner: Arc::default(),
        switch: switch.clone(),
    };
    let inner = Arc::clone(&backend.inner);
    let open = move || Database::builder().create_with_backend(backend.clone());
    let bytes = move || {
        let length = usize::try_from(inner.len()?).expect("a small one");
        let mut bytes = vec![0; length];
        inner.read(0, &mut bytes)?;
        Ok(bytes)
    };
    let place = Place::anywhere(Box::new(open), Box::new(bytes));
    (Wanted::at(place).expect("empty"), switch)
}

/// The same state, as the next engine opens it.
pub(crate) fn again(wanted: Wanted) -> Answer<Wanted> {
    let Wanted {
        place, database, ..
    } = wanted;
    drop(database);
    Wanted::at(place)
}

#[derive(Clone, Debug)]
struct Backend {
    inner: Arc<InMemoryBackend>,
    switch: Switch,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.switch.check()?;
        self.inner.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.switch.check()?;
        if self.switch.1.swap(false, Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.switch.check()?;
        self.inner.write(offset, data)
    }
}
