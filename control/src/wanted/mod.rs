//! The wanted state: what the operator asked for and the drives cannot say themselves.
//!
//! Drives by identity, which of them are spares and for whom, exports with their guest-visible
//! profile, limits, and which arrays are to stay stopped. Arrays and volumes are true on the drives
//! only and are not kept here.
//!
//! **Order against the engine.** The engine acts first, then the change is recorded (one redb
//! transaction, on the drive before `apply` returns), then the caller is answered. So
//! an answered command is always recorded, and the record never promises what the engine refused.
//! A crash between the first two loses only what nobody was told had happened: an export that was
//! not recorded is gone (its guest was never attached), one that was not yet forgotten comes
//! back, and the repeated command does it again. When the record cannot be written, the caller
//! undoes the engine's part and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::crashes::HeldBack;
use crate::request::{DriveKnown, ExportCreate, VolumeLimit};
use crate::spares::SpareOf;
use crate::{Answer, EngineError, ErrorKind};

/// Counts up when a record changes its meaning; an older engine refuses a newer state.
const FORMAT: u64 = 1;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const DRIVES: TableDefinition<&str, &str> = TableDefinition::new("drives");
const EXPORTS: TableDefinition<&str, &str> = TableDefinition::new("exports");
const LIMITS: TableDefinition<u128, &str> = TableDefinition::new("limits");
const STOPPED: TableDefinition<u128, ()> = TableDefinition::new("stopped_arrays");
const SPARES: TableDefinition<u128, &str> = TableDefinition::new("spares");
const POOLS: TableDefinition<&str, &str> = TableDefinition::new("pools");
const HELD: TableDefinition<u128, &str> = TableDefinition::new("held_back");
/// The file in the state directory.
pub const FILE_NAME: &str = "wanted.redb";

/// An export as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedExport {
    /// How to make it, with the profile it had.
    pub create: ExportCreate,
    /// Its volume. A guest is never given another volume of the same name.
    pub volume_uuid: Uuid,
}

/// A pool of spares as it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedPool {
    /// Its uuid.
    pub uuid: Uuid,
    /// The arrays that take spares from it, by uuid.
    pub arrays: BTreeSet<Uuid>,
}

/// Everything wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedState {
    /// Drives by name.
    pub drives: BTreeMap<String, DriveKnown>,
    /// Exports by name.
    pub exports: BTreeMap<String, WantedExport>,
    /// Limits by the volume's uuid.
    pub limits: BTreeMap<Uuid, VolumeLimit>,
    /// Arrays that stay stopped at a start, by uuid.
    pub stopped: BTreeSet<Uuid>,
    /// Spares by the uuid of the drive: the drive's own record has its identity.
    pub spares: BTreeMap<Uuid, SpareOf>,
    /// Pools of spares by name.
    pub pools: BTreeMap<String, WantedPool>,
    /// What is not served because it crashed the engine, by uuid of the export or array.
    pub held: BTreeMap<Uuid, HeldBack>,
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
    Limit(Uuid, VolumeLimit),
    /// The volume is not limited any more.
    NoLimit(Uuid),
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
}

/// The kept wanted state.
#[derive(Debug)]
pub struct Wanted {
    database: Database,
}

impl Wanted {
    /// Opens the state in `directory`, or begins an empty one.
    ///
    /// # Errors
    /// `Busy` when another engine has it open, `Invalid` when a newer engine wrote it, `Internal`
    /// when it cannot be read.
    pub fn open(directory: &Path) -> Answer<Wanted> {
        let path = directory.join(FILE_NAME);
        let database = Database::create(&path).map_err(|error| {
            if matches!(error, redb::DatabaseError::DatabaseAlreadyOpen) {
                let next = format!(
                    "stop that engine, or use another state directory than {}",
                    directory.display()
                );
                return EngineError::new(ErrorKind::Busy, object(), "another engine has it open")
                    .next(next);
            }
            unreadable(&format!("{}: {error}", path.display()))
        })?;
        Wanted::with_database(database)
    }

    /// Takes an open database.
    ///
    /// # Errors
    /// As [`Wanted::open`].
    pub(crate) fn with_database(database: Database) -> Answer<Wanted> {
        let wanted = Wanted { database };
        wanted.prepare()?;
        wanted.state()?;
        Ok(wanted)
    }

    /// Makes the tables, and checks that the state is not from a newer engine.
    fn prepare(&self) -> Answer<()> {
        let write = self.database.begin_write().map_err(unwritable)?;
        let format = {
            let mut meta = write.open_table(META).map_err(unwritable)?;
            let found = meta
                .get("format")
                .map_err(unwritable)?
                .map(|value| value.value());
            if found.is_none() {
                meta.insert("format", FORMAT).map_err(unwritable)?;
            }
            found.unwrap_or(FORMAT)
        };
        if format > FORMAT {
            let message =
                format!("it has format {format}, this engine knows formats up to {FORMAT}");
            return Err(EngineError::new(ErrorKind::Invalid, object(), message)
                .next("start the newer engine that wrote it"));
        }
        write.open_table(DRIVES).map_err(unwritable)?;
        write.open_table(EXPORTS).map_err(unwritable)?;
        write.open_table(LIMITS).map_err(unwritable)?;
        write.open_table(STOPPED).map_err(unwritable)?;
        write.open_table(SPARES).map_err(unwritable)?;
        write.open_table(POOLS).map_err(unwritable)?;
        write.open_table(HELD).map_err(unwritable)?;
        write.commit().map_err(unwritable)
    }

    /// Everything wanted now.
    ///
    /// # Errors
    /// `Internal` when it cannot be read.
    pub fn state(&self) -> Answer<WantedState> {
        let read = self.database.begin_read().map_err(unreadable_by)?;
        let mut state = WantedState::default();
        for row in read
            .open_table(DRIVES)
            .map_err(unreadable_by)?
            .iter()
            .map_err(unreadable_by)?
        {
            let (name, text) = row.map_err(unreadable_by)?;
            state
                .drives
                .insert(name.value().to_owned(), parse(text.value())?);
        }
        for row in read
            .open_table(EXPORTS)
            .map_err(unreadable_by)?
            .iter()
            .map_err(unreadable_by)?
        {
            let (name, text) = row.map_err(unreadable_by)?;
            state
                .exports
                .insert(name.value().to_owned(), parse(text.value())?);
        }
        for row in read
            .open_table(LIMITS)
            .map_err(unreadable_by)?
            .iter()
            .map_err(unreadable_by)?
        {
            let (uuid, text) = row.map_err(unreadable_by)?;
            state
                .limits
                .insert(Uuid::from_u128(uuid.value()), parse(text.value())?);
        }
        for row in read
            .open_table(STOPPED)
            .map_err(unreadable_by)?
            .iter()
            .map_err(unreadable_by)?
        {
            let (uuid, ()) = row
                .map(|(uuid, _)| (uuid.value(), ()))
                .map_err(unreadable_by)?;
            state.stopped.insert(Uuid::from_u128(uuid));
        }
        read_spares(&read, &mut state)?;
        let held = read.open_table(HELD).map_err(unreadable_by)?;
        for row in held.iter().map_err(unreadable_by)? {
            let (uuid, text) = row.map_err(unreadable_by)?;
            let uuid = Uuid::from_u128(uuid.value());
            state.held.insert(uuid, parse(text.value())?);
        }
        Ok(state)
    }

    /// Makes all of `changes`, or none; durable when it returns.
    ///
    /// # Errors
    /// `Internal` when they cannot be written.
    pub fn apply(&self, changes: &[Change]) -> Answer<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let write = self.database.begin_write().map_err(unwritable)?;
        for change in changes {
            apply_one(&write, change)?;
        }
        write.commit().map_err(unwritable)
    }
}

fn read_spares(read: &redb::ReadTransaction, state: &mut WantedState) -> Answer<()> {
    let spares = read.open_table(SPARES).map_err(unreadable_by)?;
    for row in spares.iter().map_err(unreadable_by)? {
        let (drive, text) = row.map_err(unreadable_by)?;
        let drive = Uuid::from_u128(drive.value());
        state.spares.insert(drive, parse(text.value())?);
    }
    let pools = read.open_table(POOLS).map_err(unreadable_by)?;
    for row in pools.iter().map_err(unreadable_by)? {
        let (name, text) = row.map_err(unreadable_by)?;
        let name = name.value().to_owned();
        state.pools.insert(name, parse(text.value())?);
    }
    Ok(())
}

fn apply_one(write: &redb::WriteTransaction, change: &Change) -> Answer<()> {
    match change {
        Change::Drive(drive) => {
            let mut table = write.open_table(DRIVES).map_err(unwritable)?;
            table
                .insert(drive.name.as_str(), print(drive).as_str())
                .map_err(unwritable)?;
        }
        Change::NoDrive(name) => {
            write
                .open_table(DRIVES)
                .map_err(unwritable)?
                .remove(name.as_str())
                .map_err(unwritable)?;
        }
        Change::Export(export) => {
            let mut table = write.open_table(EXPORTS).map_err(unwritable)?;
            let name = export.create.name.as_str();
            table
                .insert(name, print(export).as_str())
                .map_err(unwritable)?;
        }
        Change::NoExport(name) => {
            write
                .open_table(EXPORTS)
                .map_err(unwritable)?
                .remove(name.as_str())
                .map_err(unwritable)?;
        }
        Change::Limit(uuid, limit) => {
            let mut table = write.open_table(LIMITS).map_err(unwritable)?;
            table
                .insert(uuid.as_u128(), print(limit).as_str())
                .map_err(unwritable)?;
        }
        Change::NoLimit(uuid) => {
            write
                .open_table(LIMITS)
                .map_err(unwritable)?
                .remove(uuid.as_u128())
                .map_err(unwritable)?;
        }
        Change::Stopped(uuid) => {
            write
                .open_table(STOPPED)
                .map_err(unwritable)?
                .insert(uuid.as_u128(), ())
                .map_err(unwritable)?;
        }
        Change::NotStopped(uuid) => {
            write
                .open_table(STOPPED)
                .map_err(unwritable)?
                .remove(uuid.as_u128())
                .map_err(unwritable)?;
        }
        Change::Spare(..) | Change::NoSpare(_) | Change::Pool(..) | Change::NoPool(_) => {
            return apply_to_spares(write, change);
        }
        Change::HoldBack(..) | Change::Release(_) => return apply_to_held(write, change),
    }
    Ok(())
}

fn apply_to_held(write: &redb::WriteTransaction, change: &Change) -> Answer<()> {
    let mut table = write.open_table(HELD).map_err(unwritable)?;
    if let Change::HoldBack(uuid, held) = change {
        let text = print(held);
        table
            .insert(uuid.as_u128(), text.as_str())
            .map_err(unwritable)?;
    } else if let Change::Release(uuid) = change {
        table.remove(uuid.as_u128()).map_err(unwritable)?;
    }
    Ok(())
}

fn apply_to_spares(write: &redb::WriteTransaction, change: &Change) -> Answer<()> {
    let mut spares = write.open_table(SPARES).map_err(unwritable)?;
    let mut pools = write.open_table(POOLS).map_err(unwritable)?;
    match change {
        Change::Spare(drive, of) => {
            let text = print(of);
            spares
                .insert(drive.as_u128(), text.as_str())
                .map_err(unwritable)?;
        }
        Change::NoSpare(drive) => {
            spares.remove(drive.as_u128()).map_err(unwritable)?;
        }
        Change::Pool(name, pool) => {
            let text = print(pool);
            pools
                .insert(name.as_str(), text.as_str())
                .map_err(unwritable)?;
        }
        Change::NoPool(name) => {
            pools.remove(name.as_str()).map_err(unwritable)?;
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
        | Change::Release(_) => unreachable!("the caller has done these"),
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

#[allow(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn unwritable(error: impl Into<redb::Error>) -> EngineError {
    let message = format!("it cannot be written: {}", error.into());
    EngineError::new(ErrorKind::Internal, object(), message)
        .next("make room in the state directory and restart the engine; exports reconnect")
}

#[cfg(test)]
pub(crate) mod failing;
#[cfg(test)]
mod tests;
