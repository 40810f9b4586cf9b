//! Members that are files which somebody deleted while the engine has them open: they work as
//! before, and are lost when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::MapState;
use control::{Answer, ErrorKind};
use drive::Drive;
use units::{ArrayIndex, MemberIndex};
use uuid::Uuid;

use crate::Host;
use crate::error::error;
use crate::state::{DriveEntry, DriveRole, State};

impl Host {
    /// Notes which members are files that were deleted, and tells it once of each.
    pub(crate) fn note_deleted(&self) {
        let members: Vec<(Uuid, String, Arc<Drive>)> = {
            let state = self.state();
            let members = state.drives.values();
            let members = members.filter(|entry| matches!(entry.role, DriveRole::Member { .. }));
            let member =
                |entry: &DriveEntry| (entry.uuid, entry.name.clone(), Arc::clone(&entry.drive));
            members.map(member).collect()
        };
        let deleted = members
            .into_iter()
            .filter(|(_, _, drive)| drive.is_deleted());
        let deleted: BTreeMap<Uuid, String> = deleted.map(|(uuid, name, _)| (uuid, name)).collect();
        let mut state = self.state();
        for (uuid, drive) in &deleted {
            if !state.deleted.contains(uuid) {
                tracing::warn!(
                    event = "drive_deleted",
                    drive,
                    "its file was deleted: it works until the engine ends, and is lost then; \
                     another drive in its place keeps the redundancy"
                );
            }
        }
        state.deleted = deleted.into_keys().collect();
    }

    /// Refuses to let a member go that is needed as soon as files that were deleted are closed.
    pub(crate) fn refuse_beside_deleted(
        &self,
        object: &str,
        (name, index): (&str, ArrayIndex),
        member: MemberIndex,
    ) -> Answer<()> {
        self.note_deleted();
        let Some(running) = self.engine.array_state(index) else {
            return Ok(());
        };
        let deleted = {
            let state = self.state();
            let array = state.arrays.get(name).map(|entry| entry.uuid);
            array.map_or_else(Vec::new, |array| deleted_members(&state, array))
        };
        let group = running.map.geometry.group_members();
        let (first, is_it) = (member.at() / group * group, |at| at == member.at());
        let stays = (first..first + group).filter(|&at| {
            let in_sync = running.map.members[at].state == MapState::InSync;
            in_sync && !is_it(at) && !deleted.iter().any(|(other, _)| other.at() == at)
        });
        let enough = stays.count() >= running.map.geometry.data();
        let Some((other, drive)) = deleted.iter().find(|(other, _)| !is_it(other.at())) else {
            return Ok(());
        };
        if enough || deleted.iter().any(|(other, _)| is_it(other.at())) {
            return Ok(());
        }
        let text = format!(
            "the file of drive {drive}, {other}, was deleted and is lost when the engine ends: \
             the array could not be started without this one"
        );
        let next = format!(
            "`garboard array replace {name} --member {} --drive DRIVE` first",
            other.0
        );
        Err(error(ErrorKind::Unsafe, object, text).next(next))
    }
}

/// Members of an array whose files were deleted, and their drives.
pub(crate) fn deleted_members(state: &State, array: Uuid) -> Vec<(MemberIndex, String)> {
    let deleted = state.drives.values().filter_map(|entry| match entry.role {
        DriveRole::Member { array: of, member } if of == array => {
            let deleted = state.deleted.contains(&entry.uuid);
            deleted.then(|| (member, entry.name.clone()))
        }
        DriveRole::Member { .. }
        | DriveRole::LeftOut { .. }
        | DriveRole::Copy { .. }
        | DriveRole::Free => None,
    });
    deleted.collect()
}
