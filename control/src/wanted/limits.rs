//! Limits of volumes, as they are kept.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, WriteTransaction};
use uuid::Uuid;

use super::{by_uuid, parse, print, unreadable_by};
use crate::Answer;
use crate::request::VolumeLimit;

/// Of engines that did not note arrays: by the volume alone.
const LIMITS: TableDefinition<u128, &str> = TableDefinition::new("limits");
const LIMITS_OF: TableDefinition<(u128, u128), &str> = TableDefinition::new("volume_limits");

/// A volume, whatever it is called: somebody may have chosen one uuid for volumes of two arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedVolume {
    /// The uuid of its array; not known where an engine has noted this which did not note that.
    pub array: Option<Uuid>,
    /// Its uuid.
    pub uuid: Uuid,
}

pub(super) fn make_tables(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(LIMITS)?;
    write.open_table(LIMITS_OF)?;
    Ok(())
}

pub(super) fn read(read: &ReadTransaction) -> Answer<BTreeMap<WantedVolume, VolumeLimit>> {
    let volume = |array, uuid| WantedVolume { array, uuid };
    let unknown = by_uuid(read, LIMITS)?.into_iter();
    let unknown = unknown.map(|(uuid, limit)| (volume(None, uuid), limit));
    let mut limits: BTreeMap<WantedVolume, VolumeLimit> = unknown.collect();
    let table = read.open_table(LIMITS_OF).map_err(unreadable_by)?;
    for row in table.iter().map_err(unreadable_by)? {
        let (key, text) = row.map_err(unreadable_by)?;
        let (array, uuid) = key.value();
        let array = Some(Uuid::from_u128(array));
        let of = volume(array, Uuid::from_u128(uuid));
        limits.insert(of, parse(text.value())?);
    }
    Ok(limits)
}

pub(super) fn apply(
    write: &WriteTransaction,
    volume: WantedVolume,
    limit: Option<&VolumeLimit>,
) -> Result<(), redb::Error> {
    let uuid = volume.uuid.as_u128();
    let mut unknown = write.open_table(LIMITS)?;
    let mut table = write.open_table(LIMITS_OF)?;
    let text = limit.map(print);
    match (volume.array.map(|array| (array.as_u128(), uuid)), text) {
        (Some(key), Some(text)) => drop(table.insert(key, text.as_str())?),
        (Some(key), None) => drop(table.remove(key)?),
        (None, Some(text)) => drop(unknown.insert(uuid, text.as_str())?),
        (None, None) => drop(unknown.remove(uuid)?),
    }
    Ok(())
}
