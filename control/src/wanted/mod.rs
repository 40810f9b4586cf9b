//! The wanted state: what the operator asked for and the drives cannot say themselves.
//!
//! Drives by identity, which of them are spares and for whom, exports with their guest-visible
//! profile, limits, and which arrays are to stay stopped. Arrays and volumes are true on the drives
//! only and are not kept here; but who was in sync is, so that drives with an old story are known.
//!
//! **Order against the engine.** The engine acts first, then the change is recorded (one redb
//! transaction, on the drive before `apply` returns), then the caller is answered. So
//! an answered command is always recorded, and the record never promises what the engine refused.
//! A crash between the first two loses only what nobody was told had happened: an export that was
//! not recorded is gone (its guest was never attached), one that was not yet forgotten comes
//! back, and the repeated command does it again. When the record cannot be written, the caller
//! undoes the engine's part and says so; the next change tries it again, so an engine whose file
//! system was full needs no restart once there is room.

mod file;
mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use redb::{AccessGuard, Database, ReadableDatabase, ReadableTable, StorageError, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::crashes::HeldBack;
use crate::membership::Membership;
use crate::request::{DriveKnown, ExportCreate, VolumeLimit};
use crate::spares::SpareOf;
use crate::{Answer, EngineError, ErrorKind};

pub use self::file::FILE_NAME;
use self::file::{Place, is_full};
pub use self::limits::WantedVolume;

/// Counts up when a record changes its meaning; an older engine refuses a newer state.
const FORMAT: u64 = 1;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const DRIVES: TableDefinition<&str, &str> = TableDefinition::new("drives");
const EXPORTS: TableDefinition<&str, &str> = TableDefinition::new("exports");
const STOPPED: TableDefinition<u128, ()> = TableDefinition::new("stopped_arrays");
const SPARES: TableDefinition<u128, &str> = TableDefinition::new("spares");
const POOLS: TableDefinition<&str, &str> = TableDefinition::new("pools");
const HELD: TableDefinition<u128, &str> = TableDefinition::new("held_back");
const MEMBERSHIPS: TableDefinition<u128, &str> = TableDefinition::new("memberships");
const COPIES: TableDefinition<u128, &str> = TableDefinition::new("copies");
const TOLD: TableDefinition<u128, &str> = TableDefinition::new("told");

/// An export as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedExport {
    /// How to make it, with the profile it had.
    pub create: ExportCreate,
    /// Its volume. A guest is never given another volume of the same name.
    pub volume_uuid: Uuid,
    /// The array of that; not known of those that an engine made which did not note it. A guest is
    /// never given another volume of the same uuid either.
    #[serde(default)]
    pub array_uuid: Option<Uuid>,
}

impl WantedExport {
    /// Whether this is, or may be, its volume.
    #[must_use]
    pub fn serves(&self, volume: WantedVolume) -> bool {
        let array = self.array_uuid;
        self.volume_uuid == volume.uuid && (array.is_none() || array == volume.array)
    }
}

/// A pool of spares as it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPool {
    /// Its uuid.
    pub uuid: Uuid,
    /// The arrays that take spares from it, by uuid.
    pub arrays: BTreeSet<Uuid>,
}

/// A member that is to be replaced by a copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedCopy {
    /// Its place.
    pub member: u16,
    /// The uuid of the drive that becomes the copy.
    pub drive: Uuid,
}

/// What a start has told of an array that may cost bytes, and nobody has said that he knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// When: seconds since 1970 UTC.
    pub at_s: u64,
    /// What, in a sentence.
    pub text: String,
}

/// Everything wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedState {
    /// Drives by name.
    pub drives: BTreeMap<String, DriveKnown>,
    /// Exports by name.
    pub exports: BTreeMap<String, WantedExport>,
    /// Limits of volumes.
    pub limits: BTreeMap<WantedVolume, VolumeLimit>,
    /// Arrays that stay stopped at a start, by uuid.
    pub stopped: BTreeSet<Uuid>,
    /// Spares by the uuid of the drive: the drive's own record has its identity.
    pub spares: BTreeMap<Uuid, SpareOf>,
    /// Pools of spares by name.
    pub pools: BTreeMap<String, WantedPool>,
    /// What is not served because it crashed the engine, by uuid of the export or array.
    pub held: BTreeMap<Uuid, HeldBack>,
    /// Who was in sync last, by uuid of the array.
    pub memberships: BTreeMap<Uuid, Membership>,
    /// Copies that are being made, by uuid of the array: one at a time.
    pub copies: BTreeMap<Uuid, WantedCopy>,
    /// What starts have told, by uuid of the array.
    pub told: BTreeMap<Uuid, Vec<Told>>,
}

/// One change of the wanted state.
#[derive(Clone, Debug)]
pub enum Change {
    /// The drive is wanted like this.
    Drive(DriveKnown),
    /// The drive is not wanted any more.
    NoDrive(String),
    /// The export is wanted like this.
    Export(Box<WantedExport>),
    /// The export is not wanted any more.
    NoExport(String),
    /// The volume is limited like this.
    Limit(WantedVolume, VolumeLimit),
    /// The volume is not limited any more.
    NoLimit(WantedVolume),
    /// The array stays stopped.
    Stopped(Uuid),
    /// The array starts by itself.
    NotStopped(Uuid),
    /// The drive of this uuid is a spare.
    Spare(Uuid, SpareOf),
    /// The drive of this uuid is no spare any more.
    NoSpare(Uuid),
    /// The pool is wanted like this.
    Pool(String, WantedPool),
    /// The pool is not wanted any more.
    NoPool(String),
    /// The export or array of this uuid is not served.
    HoldBack(Uuid, Box<HeldBack>),
    /// It is served again.
    Release(Uuid),
    /// These are in sync in the array.
    Membership(Uuid, Membership),
    /// The array is there no more.
    NoMembership(Uuid),
    /// A member of this array is to be replaced by a copy.
    Copy(Uuid, WantedCopy),
    /// That was done, or is not wanted any more.
    NoCopy(Uuid),
    /// Starts of this array have told all of this.
    Told(Uuid, Vec<Told>),
    /// Somebody knows.
    NoTold(Uuid),
}

/// The kept wanted state.
#[derive(Debug)]
pub struct Wanted {
    place: Place,
    /// `None` after a write failed, until it is opened anew: the library takes no other write.
    database: Mutex<Option<Database>>,
    /// What is in it, which can be read when the file cannot.
    state: RwLock<WantedState>,
    /// Who is held back, or not any more, that could not be recorded as yet.
    unrecorded: Mutex<Verdicts>,
}

/// Who is held back from now on, and who is not any more, by uuid of the export or array.
pub type Verdicts = BTreeMap<Uuid, Option<HeldBack>>;

impl Wanted {
    /// Opens the state in `directory`, or begins an empty one. Where there is no room left, what is
    /// there is read: guests are served by it, and the next change tries to write again.
    ///
    /// # Errors
    /// `Busy` when another engine has it open, `Invalid` when a newer engine wrote it, `Full` when
    /// there is none and no room for one, `Internal` when it cannot be read.
    pub fn open(directory: &Path) -> Answer<Wanted> {
        Wanted::at(Place::in_directory(directory)?)
    }

    fn at(place: Place) -> Answer<Wanted> {
        let opened = prepared(place.open(), &place.path);
        let (database, state) = match opened {
            Err(full) if full.kind == ErrorKind::Full => {
                tracing::error!(event = "wanted_state_unwritable", error = %full,
                    "what is there is read; no change is recorded until there is room");
                let (_, state) = prepared(place.copy(), &place.path)?;
                (None, state)
            }
            opened => {
                let (database, state) = opened?;
                (Some(database), state)
            }
        };
        Ok(Wanted {
            place,
            database: Mutex::new(database),
            state: RwLock::new(state),
            unrecorded: Mutex::default(),
        })
    }

    /// Everything wanted now.
    #[must_use]
    pub fn state(&self) -> WantedState {
        // In this order: what is being recorded now would be in neither of them.
        let unrecorded = self.unrecorded();
        let mut state = self.recorded();
        for (uuid, held) in unrecorded.iter() {
            match held {
                Some(held) => state.held.insert(*uuid, held.clone()),
                None => state.held.remove(uuid),
            };
        }
        state
    }

    fn recorded(&self) -> WantedState {
        let state = self.state.read();
        state.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn unrecorded(&self) -> MutexGuard<'_, Verdicts> {
        let unrecorded = self.unrecorded.lock();
        unrecorded.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all of `changes`, or none; durable when it returns.
    ///
    /// # Errors
    /// `Full` when there is no room for them, `Internal` when they cannot be written otherwise.
    pub fn apply(&self, changes: &[Change]) -> Answer<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.record(&mut self.database(), changes)
    }

    /// Holds back, or lets go on. What cannot be recorded is so all the same, as long as this
    /// process lives, and is recorded with the next change: whoever crashed the engine is not to
    /// crash it again because there is no room.
    ///
    /// # Errors
    /// As [`Wanted::apply`].
    pub fn hold_back(&self, verdicts: Verdicts) -> Answer<()> {
        if verdicts.is_empty() {
            return Ok(());
        }
        let mut database = self.database();
        self.unrecorded().extend(verdicts);
        self.record(&mut database, &[])
    }

    fn database(&self) -> MutexGuard<'_, Option<Database>> {
        let database = self.database.lock();
        database.unwrap_or_else(PoisonError::into_inner)
    }

    /// What could not be recorded before comes first: `changes` know of it.
    fn record(&self, database: &mut Option<Database>, changes: &[Change]) -> Answer<()> {
        let before = self.unrecorded().clone();
        let mut all: Vec<Change> = before.into_iter().map(change_of).collect();
        all.extend_from_slice(changes);
        self.write(database, &all)?;
        self.unrecorded().clear();
        Ok(())
    }

    fn write(&self, database: &mut Option<Database>, changes: &[Change]) -> Answer<()> {
        if database.is_none() {
            *database = Some(self.open_anew()?);
        }
        let opened = database.as_ref().expect("opened above");
        let before = self.recorded();
        let written = write(opened, changes)
            .map_err(|error| unwritable(&self.place.path, error))
            .and_then(|()| self.remember(opened));
        let Err(error) = written else {
            return Ok(());
        };
        // It is closed first: it is locked.
        *database = None;
        match self.open_anew() {
            Ok(opened) => *database = Some(opened),
            Err(again) => {
                tracing::warn!(event = "wanted_state_closed", error = %again,
                    "it is opened again at the next change");
                return Err(error);
            }
        }
        // Only making it durable may have failed; opening it has done that now.
        if self.recorded() == before {
            Err(error)
        } else {
            Ok(())
        }
    }

    fn open_anew(&self) -> Answer<Database> {
        let (database, state) = prepared(self.place.open(), &self.place.path)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(database)
    }

    fn remember(&self, database: &Database) -> Answer<()> {
        let state = read(database)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(())
    }
}

fn change_of((uuid, held): (Uuid, Option<HeldBack>)) -> Change {
    match held {
        Some(held) => Change::HoldBack(uuid, Box::new(held)),
        None => Change::Release(uuid),
    }
}

/// An opened state that this engine may change, and what is in it.
fn prepared(opened: Answer<Database>, path: &Path) -> Answer<(Database, WantedState)> {
    let database = opened?;
    prepare(&database, path)?;
    let state = read(&database)?;
    Ok((database, state))
}

/// Makes the tables, and checks that the state is not from a newer engine.
fn prepare(database: &Database, path: &Path) -> Answer<()> {
    let found = make_tables(database).map_err(|error| unwritable(path, error))?;
    if found > FORMAT {
        let message = format!("it has format {found}, this engine knows formats up to {FORMAT}");
        return Err(EngineError::new(ErrorKind::Invalid, object(), message)
            .next("start the newer engine that wrote it"));
    }
    Ok(())
}

/// Gives the format that is found. Nothing is changed in one that is newer.
fn make_tables(database: &Database) -> Result<u64, redb::Error> {
    let write = database.begin_write()?;
    let found = {
        let mut meta = write.open_table(META)?;
        let found = meta.get("format")?.map(|value| value.value());
        if found.is_none() {
            meta.insert("format", FORMAT)?;
        }
        found.unwrap_or(FORMAT)
    };
    if found > FORMAT {
        return Ok(found);
    }
    write.open_table(DRIVES)?;
    write.open_table(EXPORTS)?;
    limits::make_tables(&write)?;
    write.open_table(STOPPED)?;
    write.open_table(SPARES)?;
    write.open_table(POOLS)?;
    write.open_table(HELD)?;
    write.open_table(MEMBERSHIPS)?;
    write.open_table(COPIES)?;
    write.open_table(TOLD)?;
    write.commit()?;
    Ok(found)
}

fn read(database: &Database) -> Answer<WantedState> {
    let read = database.begin_read().map_err(unreadable_by)?;
    let stopped = read.open_table(STOPPED).map_err(unreadable_by)?;
    let stopped = stopped.iter().map_err(unreadable_by)?.map(|row| {
        let (uuid, ()) = row
            .map(|(uuid, _)| (uuid.value(), ()))
            .map_err(unreadable_by)?;
        Ok(Uuid::from_u128(uuid))
    });
    Ok(WantedState {
        drives: by_name(&read, DRIVES)?,
        exports: by_name(&read, EXPORTS)?,
        limits: limits::read(&read)?,
        stopped: stopped.collect::<Answer<_>>()?,
        spares: by_uuid(&read, SPARES)?,
        pools: by_name(&read, POOLS)?,
        held: by_uuid(&read, HELD)?,
        memberships: by_uuid(&read, MEMBERSHIPS)?,
        copies: by_uuid(&read, COPIES)?,
        told: by_uuid(&read, TOLD)?,
    })
}

fn by_name<T: DeserializeOwned>(
    read: &redb::ReadTransaction,
    table: TableDefinition<&str, &str>,
) -> Answer<BTreeMap<String, T>> {
    let table = read.open_table(table).map_err(unreadable_by)?;
    let rows = table.iter().map_err(unreadable_by)?;
    let row = |row: Result<(AccessGuard<&str>, AccessGuard<&str>), StorageError>| {
        let (name, text) = row.map_err(unreadable_by)?;
        Ok((name.value().to_owned(), parse(text.value())?))
    };
    rows.map(row).collect()
}

fn by_uuid<T: DeserializeOwned>(
    read: &redb::ReadTransaction,
    table: TableDefinition<u128, &str>,
) -> Answer<BTreeMap<Uuid, T>> {
    let table = read.open_table(table).map_err(unreadable_by)?;
    let rows = table.iter().map_err(unreadable_by)?;
    let row = |row: Result<(AccessGuard<u128>, AccessGuard<&str>), StorageError>| {
        let (uuid, text) = row.map_err(unreadable_by)?;
        Ok((Uuid::from_u128(uuid.value()), parse(text.value())?))
    };
    rows.map(row).collect()
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    for change in changes {
        apply_one(&write, change)?;
    }
    write.commit()?;
    Ok(())
}

fn apply_one(write: &redb::WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    match change {
        Change::Drive(drive) => {
            let mut table = write.open_table(DRIVES)?;
            table.insert(drive.name.as_str(), print(drive).as_str())?;
        }
        Change::NoDrive(name) => {
            write.open_table(DRIVES)?.remove(name.as_str())?;
        }
        Change::Export(export) => {
            let mut table = write.open_table(EXPORTS)?;
            let name = export.create.name.as_str();
            table.insert(name, print(export).as_str())?;
        }
        Change::NoExport(name) => {
            write.open_table(EXPORTS)?.remove(name.as_str())?;
        }
        Change::Limit(volume, limit) => limits::apply(write, *volume, Some(limit))?,
        Change::NoLimit(volume) => limits::apply(write, *volume, None)?,
        Change::Stopped(uuid) => {
            write.open_table(STOPPED)?.insert(uuid.as_u128(), ())?;
        }
        Change::NotStopped(uuid) => {
            write.open_table(STOPPED)?.remove(uuid.as_u128())?;
        }
        Change::Spare(..) | Change::NoSpare(_) | Change::Pool(..) | Change::NoPool(_) => {
            return apply_to_spares(write, change);
        }
        Change::HoldBack(..) | Change::Release(_) => return apply_to_held(write, change),
        Change::Membership(uuid, membership) => {
            let mut table = write.open_table(MEMBERSHIPS)?;
            table.insert(uuid.as_u128(), print(membership).as_str())?;
        }
        Change::NoMembership(uuid) => {
            write.open_table(MEMBERSHIPS)?.remove(uuid.as_u128())?;
        }
        Change::Copy(uuid, copy) => {
            let mut table = write.open_table(COPIES)?;
            table.insert(uuid.as_u128(), print(copy).as_str())?;
        }
        Change::NoCopy(uuid) => {
            write.open_table(COPIES)?.remove(uuid.as_u128())?;
        }
        Change::Told(uuid, told) => {
            let mut table = write.open_table(TOLD)?;
            table.insert(uuid.as_u128(), print(told).as_str())?;
        }
        Change::NoTold(uuid) => {
            write.open_table(TOLD)?.remove(uuid.as_u128())?;
        }
    }
    Ok(())
}

fn apply_to_held(write: &redb::WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    let mut table = write.open_table(HELD)?;
    if let Change::HoldBack(uuid, held) = change {
        let text = print(held);
        table.insert(uuid.as_u128(), text.as_str())?;
    } else if let Change::Release(uuid) = change {
        table.remove(uuid.as_u128())?;
    }
    Ok(())
}

fn apply_to_spares(write: &redb::WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    let mut spares = write.open_table(SPARES)?;
    let mut pools = write.open_table(POOLS)?;
    match change {
        Change::Spare(drive, of) => {
            let text = print(of);
            spares.insert(drive.as_u128(), text.as_str())?;
        }
        Change::NoSpare(drive) => {
            spares.remove(drive.as_u128())?;
        }
        Change::Pool(name, pool) => {
            let text = print(pool);
            pools.insert(name.as_str(), text.as_str())?;
        }
        Change::NoPool(name) => {
            pools.remove(name.as_str())?;
        }
        Change::Drive(_)
        | Change::NoDrive(_)
        | Change::Export(_)
        | Change::NoExport(_)
        | Change::Limit(..)
        | Change::NoLimit(_)
        | Change::Stopped(_)
        | Change::NotStopped(_)
        | Change::HoldBack(..)
        | Change::Release(_)
        | Change::Membership(..)
        | Change::NoMembership(_)
        | Change::Copy(..)
        | Change::NoCopy(_)
        | Change::Told(..)
        | Change::NoTold(_) => unreachable!("the caller has done these"),
    }
    Ok(())
}

fn object() -> String {
    "wanted state".into()
}

fn print(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("records have string keys and no other failure")
}

fn parse<T: DeserializeOwned>(text: &str) -> Answer<T> {
    serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(message: &str) -> EngineError {
    EngineError::new(
        ErrorKind::Internal,
        object(),
        format!("it cannot be read: {message}"),
    )
    .next(
        "arrays and volumes are on the drives and safe; move the file away, start, and add drives \
         and exports again",
    )
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn unreadable_by(error: impl Into<redb::Error>) -> EngineError {
    unreadable(&error.into().to_string())
}

fn unwritable(path: &Path, error: redb::Error) -> EngineError {
    let file = path.display();
    if is_full(&error) {
        let message = format!("there is no room left on the file system of {file}");
        return EngineError::new(ErrorKind::Full, object(), message)
            .next("make room there, and run the command again");
    }
    let message = format!("{file} cannot be written: {error}");
    EngineError::new(ErrorKind::Internal, object(), message)
        .next("see that it can be, and run the command again; the kernel's log may say more")
}

#[cfg(test)]
pub(crate) mod failing;
#[cfg(test)]
mod tests;
