//! Members that are not here when what the log holds is done again: they may know that some of it
//! was not begun, and are out by a durable record before any of it is written.

use std::ops::Range;

use array::assembly::{Assembly, Verdict};
use array::format::{ArrayConfig, ExclusionCause, MemberState};
use array::{Doubt, Redo, RegionMap};
use control::{Answer, ErrorKind};
use drive::Unanswered;
use units::MemberIndex;
use uuid::Uuid;
use volume::VolumeTable;

use super::assemble::of_verdict;
use super::created_now;
use super::recover::{Asked, of_drive};
use crate::error::{error, of_io};
use crate::losses::{give_up_half_written, is_full};
use crate::{Host, records};

/// The region map; what is done again of the log and what was begun; and which blocks nobody can
/// tell, as long as the members that are not here are not.
type Noted<'a> = (&'a RegionMap, [&'a [Redo]; 2], &'a [Range<u64>]);

/// A start under way.
pub(super) struct Starting {
    /// With the record that was committed last.
    pub(super) assembly: Assembly,
    /// Members that take no records: they count as not here.
    pub(super) unwritable: Vec<MemberIndex>,
    /// Whether a minority may start.
    pub(super) force: bool,
    /// By which it is known who has not answered.
    pub(super) asked: Asked,
}

impl Starting {
    /// The update that the engine commits first.
    pub(super) fn first_update(&self, name: &str, found: &Assembly) -> Answer<ArrayConfig> {
        let start = |assembly: &Assembly, id, force| {
            let next = assembly.start(id, force);
            next.map_err(Clone::clone)
        };
        let mut next = self.next(&format!("array {name}"), found, start)?;
        let dropped = VolumeTable::new(&mut next, &found.superblock).recover();
        for volume in dropped {
            tracing::warn!(
                event = "volume_dropped",
                array = name,
                volume = volume.name,
                "its creation or deletion was not finished"
            );
        }
        Ok(next)
    }

    /// An update of this start, as `make` does it: in it those are out that are not here, and those
    /// that take no records, who have had no other than what was `found`.
    fn next(
        &self,
        object: &str,
        found: &Assembly,
        make: impl Fn(&Assembly, u128, bool) -> Result<ArrayConfig, Verdict>,
    ) -> Answer<ArrayConfig> {
        let next = make(&self.assembly, Uuid::new_v4().as_u128(), self.force);
        let mut next = next.map_err(|verdict| of_verdict(object, &verdict))?;
        for &member in &self.unwritable {
            let counts = match self.assembly.config.members[member.at()].state {
                MemberState::InSync | MemberState::Rebuilding { .. } => true,
                MemberState::Excluded { .. } | MemberState::Missing => false,
            };
            if counts {
                let name = found.config.name_of_update();
                found.exclude(&mut next, (member, ExclusionCause::WriteError), name);
            }
        }
        Ok(next)
    }

    /// Whether members may have another record by now than the one that was found.
    pub(super) fn has_written(&self, found: &Assembly) -> bool {
        self.assembly.config.update != found.config.update
    }
}

impl Host {
    /// Commits that those are out who are not here, and which blocks nobody can tell because of
    /// that. They miss what is about to be done again.
    ///
    /// A member that does not take that is out by the update after it, if the others are enough. If
    /// they are not, those that have it forget it: nothing is done by it, and an array that lacks
    /// this member could not start by it when the other one is back.
    pub(super) fn exclude_absent(
        &self,
        object: &str,
        starting: &mut Starting,
        (who, (regions, redo, lost)): (&[MemberIndex], Noted<'_>),
        doubt: &mut Option<Doubt>,
    ) -> Answer<()> {
        let found = starting.assembly.clone();
        loop {
            let without = |assembly: &Assembly, id, force| {
                let next = assembly.without(|member| who.contains(&member), id, force);
                next.map_err(Clone::clone)
            };
            let mut next = starting.next(object, &found, without)?;
            next.written_seconds = created_now().seconds;
            for redo in redo {
                found.note_replay(&mut next, &mut regions.clone(), redo);
            }
            let lost = found.lost_with(&next, lost);
            give_up_half_written(&found.config.name, &mut next, &lost);
            let before = starting.assembly.clone();
            let written = self.write_to_all(object, &before, &next);
            let refused = written.inspect_err(|_| self.forget_record(object, &before, &next))?;
            starting.assembly.config = next;
            if refused.is_empty() {
                tracing::warn!(
                    event = "absent_excluded",
                    object,
                    update = starting.assembly.config.update.0,
                    "members that are not here are out before the log is done again"
                );
                return Ok(());
            }
            for &(member, _) in &refused {
                *doubt = doubt.or(Doubt::refused(member));
                starting.assembly.members[member.at()] = None;
                starting.unwritable.push(member);
            }
            if !starting.assembly.has_enough() {
                self.forget_record(object, &before, &starting.assembly.config);
                let causes: Vec<String> = refused.into_iter().map(|(_, cause)| cause).collect();
                let failed = error(ErrorKind::Degraded, object, causes.join(", and "));
                return Err(failed.next(
                    "the others are not enough: see what its drives need, and start it again",
                ));
            }
        }
    }

    /// A record is one of nobody again, as it was before it was written.
    fn forget_record(&self, object: &str, assembly: &Assembly, record: &ArrayConfig) {
        for (name, drive) in self.member_drives(assembly).into_iter().flatten() {
            let erased = records::erase_config(&drive, &assembly.superblock, record);
            if let Err(source) = erased {
                tracing::warn!(event = "record_not_taken_back", object, drive = name,
                    error = %source, "a record stays there that counts for nothing else");
            }
        }
    }

    /// Writes a record to all who are here. Gives those that do not take it, and why. A drive that
    /// has no room is no reason to leave it out.
    fn write_to_all(
        &self,
        object: &str,
        assembly: &Assembly,
        next: &ArrayConfig,
    ) -> Answer<Vec<(MemberIndex, String)>> {
        let mut refused = Vec::new();
        for (position, drive) in self.member_drives(assembly).into_iter().enumerate() {
            let Some((name, drive)) = drive else { continue };
            let member = MemberIndex::from_at(position);
            let written = records::write_config(&drive, &assembly.superblock, member, next);
            if let Err(source) = written {
                if Unanswered::is(&source) {
                    let what = "writing that members are out which are not here";
                    return Err(of_drive((object, &name), what, &source));
                }
                if is_full(&source) {
                    let failed = of_io(
                        format!("{object}, drive {name}"),
                        "writing that members are out which are not here",
                        &source,
                    );
                    return Err(failed.next("make room, and start the array again"));
                }
                tracing::warn!(event = "member_unwritable", object, member = member.0, drive = name,
                    error = %source, "it takes no records; it is left out");
                let cause = format!("{member}, drive {name}, takes no records: {source}");
                refused.push((member, cause));
            }
        }
        Ok(refused)
    }
}
