//! What an unclean stop has left: logged writes are done again, and the region map says where
//! parity may be torn.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use array::assembly::Assembly;
use array::format::{ArrayConfig, MemberState};
use array::planted::{self, Fault};
use array::{Doubt, Redo, RegionMap, Replay, Suspects, ToRedo};
use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, Unanswered};
use units::MemberIndex;

use super::absent::Starting;
use crate::begun::BegunFile;
use crate::error::{error, of_io};
use crate::losses::redo_all;
use crate::records::MISSED_MAX;
use crate::state::Notice;
use crate::{Host, logs, records};

/// What was done again of the writes that were under way at an unclean stop.
#[derive(Debug)]
pub(crate) struct Redone {
    /// What was written, without the bytes.
    pub(super) redo: Vec<Redo>,
    /// What there is to say of it.
    pub(super) ignored: Option<String>,
    /// Whether the last engine has told that parity agrees with data where regions are dirty.
    told: bool,
    /// What speaks against that, and against that all that the log has is done again.
    doubt: Option<Doubt>,
    /// Members that are to be left out: they may have lost what was acknowledged.
    pub(super) unflushed: Vec<MemberIndex>,
    /// Blocks of the array that nobody can tell any more: guests were writing them from their own
    /// memory, and a member that held some of them is not here, or cannot read them.
    pub(super) lost: Vec<Range<u64>>,
}

impl Redone {
    /// Whether parity agrees with data where regions are dirty.
    fn agrees(&self) -> bool {
        self.told && self.doubt.is_none()
    }

    /// The regions of which parity cannot be trusted. What a strict array leaves to their resync is
    /// noted in the first record.
    pub(super) fn suspects(
        &self,
        (regions, clean): (&RegionMap, bool),
        next: &mut ArrayConfig,
    ) -> Suspects {
        if self.agrees() {
            return regions.suspects_when_told(next.resynced_until);
        }
        let suspects = regions.suspects(clean, next.resynced_until);
        if self.doubt.is_some() {
            Assembly::note_unlogged(next, &suspects);
        }
        suspects
    }
}

/// What drives had been asked when a start began.
#[derive(Debug)]
pub(super) struct Asked(Vec<(String, u64)>);

/// Refuses to do without what cannot be read of the log where that may lose something. By force
/// that is done: gives what is to be said of it.
fn refuse_doubtful(
    object: &str,
    replay: &Replay,
    drives: &[Option<(String, Arc<Drive>)>],
    force: bool,
) -> Answer<Option<String>> {
    let doubtful = replay.doubtful();
    let name = |member: &MemberIndex| drives[member.at()].as_ref().map(|(name, _)| name.as_str());
    let names: Vec<&str> = doubtful.iter().filter_map(name).collect();
    let names = names.join(", ");
    if names.is_empty() {
        return Ok(None);
    }
    if force {
        tracing::warn!(
            event = "log_ignored",
            object,
            drives = names,
            "what could not be read of the log counts as nothing"
        );
        return Ok(Some(format!(
            "started by force without what drive {names} could not read of the log: a stripe that \
             was written to shortly before the stop may be half old"
        )));
    }
    let text = format!(
        "drive {names} cannot read some of its log, and a member of its group is missing: a stripe \
         that was written to shortly before the stop may stay half old, with what the missing \
         member held there"
    );
    Err(error(ErrorKind::Unsafe, object, text).next(
        "bring the missing member back, or take that drive out if the others are enough; \
         `garboard array start --force` starts without what cannot be read",
    ))
}

/// A drive does not do what a start needs.
pub(super) fn of_drive(
    (object, name): (&str, &str),
    what: &str,
    source: &io::Error,
) -> EngineError {
    let next = if Unanswered::is(source) {
        WITHOUT_SILENT
    } else {
        "take that drive out, or see what it needs, and start the array again"
    };
    of_io(format!("{object}, drive {name}"), what, source).next(next)
}

/// What to do about an array that a drive did not answer while it was being started.
const WITHOUT_SILENT: &str = "look what is the matter with the drive, or start the array again: if it does not answer then, \
     either, the array is started without it where the others are enough";

fn flush_all(object: &str, drives: &[Option<(String, Arc<Drive>)>]) -> Answer<()> {
    let flush = |(name, drive): &(String, Arc<Drive>)| {
        let flushed = drive.flush();
        flushed.map_err(|source| of_drive((object, name), "flushing it", &source))
    };
    drives.iter().flatten().try_for_each(flush)
}

impl Host {
    /// Of each member that is here, how many requests were given up so far.
    pub(super) fn asked_of(&self, assembly: &Assembly) -> Asked {
        let drives = self.member_drives(assembly).into_iter().flatten();
        Asked(
            drives
                .map(|(name, drive)| (name, drive.given_up()))
                .collect(),
        )
    }

    /// Refuses to go on with a start during which a member did not answer, even if it has by now:
    /// what was asked of it counts as an error, and what was written to it may still land.
    pub(super) fn refuse_unanswered(&self, object: &str, asked: &Asked) -> Answer<()> {
        let silent = {
            let state = self.state();
            let given_up = |(name, before): &&(String, u64)| {
                let entry = state.drives.get(name);
                entry.is_none_or(|entry| entry.drive.given_up() != *before)
            };
            asked.0.iter().find(given_up).map(|(name, _)| name.clone())
        };
        let Some(name) = silent else {
            return Ok(());
        };
        let text = "it has not answered while the array was being started";
        let object = format!("{object}, drive {name}");
        Err(error(ErrorKind::Unreachable, object, text).next(WITHOUT_SILENT))
    }

    /// What is said of an array that was started without members whose content nobody can tell
    /// for sure where it was being written: those that its first update leaves out, or others of
    /// starts that came to nothing.
    pub(super) fn say_torn(
        &self,
        name: &str,
        (found, first): (&Assembly, &ArrayConfig),
        stripes: u64,
    ) {
        let away = first.left_by_unfinished();
        let away: Vec<String> = away.map(|member| member.to_string()).collect();
        if stripes == 0 || away.is_empty() || !found.may_be_torn() {
            return;
        }
        let away = away.join(", ");
        tracing::warn!(
            event = "started_torn",
            array = name,
            members = away,
            stripes,
            "what these members held beside what was being written may read as something else"
        );
        let said = format!(
            "started without {away} after an unclean stop: in {stripes} stripes what they held \
             beside what was being written may read as something else; compare it with a copy"
        );
        if let Some(entry) = self.state().arrays.get_mut(name) {
            entry.notices.push(Notice::Told(said));
        }
    }

    /// Does again what is known of the writes that were under way at an unclean stop.
    pub(super) fn redo(
        &self,
        object: &str,
        starting: &mut Starting,
        (regions, begun): (&RegionMap, Option<&BegunFile>),
    ) -> Answer<Redone> {
        if let Some(begun) = begun
            && let Some(redone) = self.redo_without_lacking(object, starting, (regions, begun))?
        {
            return Ok(redone);
        }
        let doubt = begun.and_then(|begun| self.doubt_of(begun, &starting.assembly));
        self.redo_with(object, starting, (regions, begun), doubt)
    }

    /// Members may have lost what the last engine had acknowledged. Where nothing else is doubted
    /// the others know all of that, and a resync would make parity of what these have left: the
    /// array starts as if they were not here, and they come back as others do. `None` where it is
    /// to start with them.
    fn redo_without_lacking(
        &self,
        object: &str,
        starting: &mut Starting,
        (regions, begun): (&RegionMap, &BegunFile),
    ) -> Answer<Option<Redone>> {
        let doubt = self.doubt_of(begun, &starting.assembly);
        if !matches!(doubt, Some(Doubt::Lacks(..))) || planted::is(Fault::AwayBelieved) {
            return Ok(None);
        }
        let lacking = self.lacking(begun, &starting.assembly);
        let members: Vec<MemberIndex> = lacking.iter().map(|(member, _)| *member).collect();
        let Some(rest) = starting.assembly.set_aside(&members, regions) else {
            return Ok(None);
        };
        if let Some((_, Some(_))) = self.read_log(object, &rest, regions)? {
            return Ok(None);
        }
        let drives = self.member_drives(&starting.assembly);
        let whole = std::mem::replace(&mut starting.assembly, rest);
        let redone = self.redo_with(object, starting, (regions, Some(begun)), None);
        let agrees = redone.as_ref().is_ok_and(Redone::agrees);
        if !agrees && !starting.has_written(&whole) {
            // All that are here are needed. Nothing that was written says that these are not.
            let error = redone.err().map(|refused| refused.to_string());
            tracing::warn!(event = "member_believed", object, members = ?members, error,
                "they may have lost what was written to them; the others do not take what had \
                 begun, so it starts with them, and resyncs");
            starting.assembly = whole;
            return Ok(None);
        }
        for (member, why) in lacking {
            let drive = drives[member.at()].as_ref();
            let drive = drive.map_or("-", |(name, _)| name);
            tracing::warn!(
                event = "member_set_aside",
                object,
                member = member.0,
                drive,
                reason = %why,
                "it may have lost what was written to it, and the others have it; it is left out, \
                 and takes it from them"
            );
        }
        redone.map(Some)
    }

    /// See [`Host::redo`]; `doubt`: why the regions that were in use must be resynced, as far as
    /// it is known by now.
    fn redo_with(
        &self,
        object: &str,
        starting: &mut Starting,
        (regions, begun): (&RegionMap, Option<&BegunFile>),
        mut doubt: Option<Doubt>,
    ) -> Answer<Redone> {
        let known = (regions, begun);
        let (mut redo, ignored) = self.replay_log(object, starting, known, &mut doubt)?;
        let assembly = &starting.assembly;
        let (mut unflushed, mut lost) = (Vec::new(), Vec::new());
        if let Some(begun) = begun {
            let done = self.redo_begun(object, assembly, begun, &mut doubt)?;
            lost = done.lost;
            let mut begun = done.redo;
            if !begun.is_empty() {
                let mut regions = regions.clone();
                assembly.note_written(&mut regions, &redo);
                assembly.note_written(&mut regions, &begun);
                let told = regions.suspects_when_told(assembly.config.resynced_until);
                let parity = told.count() == 0;
                unflushed = self.flush_begun(object, assembly, parity, &mut doubt)?;
            }
            redo.append(&mut begun);
        }
        if let (Some(_), Some(doubt)) = (begun, doubt) {
            tracing::info!(event = "begun_doubted", object, reason = %doubt,
                "the regions that were in use are resynced");
        }
        Ok(Redone {
            redo,
            ignored,
            told: begun.is_some(),
            doubt,
            unflushed,
            lost,
        })
    }

    /// Does again the writes that were under way when the array was stopped uncleanly, as the log
    /// has them, and makes them durable.
    /// Gives what was written, and what there is to say of it.
    fn replay_log(
        &self,
        object: &str,
        starting: &mut Starting,
        (regions, begun): (&RegionMap, Option<&BegunFile>),
        doubt: &mut Option<Doubt>,
    ) -> Answer<(Vec<Redo>, Option<String>)> {
        let Some((replay, unread)) = self.read_log(object, &starting.assembly, regions)? else {
            return Ok((Vec::new(), None));
        };
        self.refuse_unanswered(object, &starting.asked)?;
        *doubt = doubt.or(unread);
        let drives = self.member_drives(&starting.assembly);
        let ignored = refuse_doubtful(object, &replay, &drives, starting.force)?;
        let redo = self.write_log(object, starting, (regions, begun, &replay), doubt)?;
        Ok((redo, ignored))
    }

    /// What the log of the members that are here has of an unclean stop, and what speaks against
    /// counting on it; `None` where there is none.
    fn read_log(
        &self,
        object: &str,
        assembly: &Assembly,
        regions: &RegionMap,
    ) -> Answer<Option<(Replay, Option<Doubt>)>> {
        let (superblock, config) = (&assembly.superblock, &assembly.config);
        // Copies of one chunk are never logged.
        if config.clean || !superblock.geometry.has_write_hole() {
            return Ok(None);
        }
        let is_here = |member: MemberIndex| assembly.members[member.at()].is_some();
        let mut replay = Replay::new(config, superblock, regions, is_here);
        let mut doubt = None;
        let drives = self.member_drives(assembly);
        let logs = logs::read_all(&drives, superblock, &replay);
        for (position, (drive, log)) in drives.iter().zip(logs).enumerate() {
            if let Some((name, _)) = drive {
                let member = MemberIndex::from_at(position);
                let slots = log
                    .take(member, &mut replay)
                    .map_err(|source| of_drive((object, name), "reading its log", &source))?;
                if slots > 0 {
                    doubt = doubt.or(Some(Doubt::LogUnread(member)));
                    tracing::warn!(
                        event = "log_unreadable",
                        object,
                        drive = name,
                        slots,
                        "it cannot read some of its log"
                    );
                }
            }
        }
        Ok(Some((replay, doubt)))
    }

    /// Writes what the log holds to its places, and makes it durable. Gives what was written.
    fn write_log(
        &self,
        object: &str,
        starting: &mut Starting,
        (regions, begun, replay): (&RegionMap, Option<&BegunFile>, &Replay),
        doubt: &mut Option<Doubt>,
    ) -> Answer<Vec<Redo>> {
        let redo = replay.redo();
        tracing::info!(
            event = "log_read",
            object,
            writes = redo.len(),
            torn = replay.torn(),
            "the log is read"
        );
        if redo.is_empty() {
            return Ok(redo);
        }
        // What was found may be in the drives' caches only, as a killed engine left it. Were it
        // lost when some of it is in its place, the next start would not know that it was begun.
        if !planted::is(Fault::ReplayedUnflushed) {
            flush_all(object, &self.member_drives(&starting.assembly))?;
        }
        // The next start may find members that are not here now, which know that some of it was
        // not begun. They count for nothing then.
        let guesses = replay.guesses();
        if !guesses.is_empty() && !planted::is(Fault::ReplayBeforeExclusion) {
            let first = self.redo_first(object, &starting.assembly, begun, doubt)?;
            let noted = (regions, [&redo[..], &first.redo], &first.lost[..]);
            let who = starting.assembly.who_misses(guesses, &first.redo);
            self.exclude_absent(object, starting, (&who, noted), doubt)?;
        }
        let assembly = &starting.assembly;
        let drives = self.member_drives(assembly);
        let lost = &assembly.config.lost;
        let written = redo_all(object, &drives, (assembly, lost), &redo);
        let written = written.map_err(|(member, source)| {
            let name = drives[member.at()].as_ref().map_or("-", |(name, _)| name);
            of_drive((object, name), "writing what its log holds", &source)
        })?;
        if let (false, Some(part)) = (written, redo.first()) {
            *doubt = doubt.or(Doubt::refused(part.member));
        }
        flush_all(object, &drives)?;
        Ok(redo)
    }

    /// Writes what the last engine had begun before members are out by a record of this start. A
    /// start that is killed after it, and a power failure after that, would leave nobody who knows
    /// of these rows, and what those members held in them could not be told from torn ones.
    fn redo_first(
        &self,
        object: &str,
        assembly: &Assembly,
        begun: Option<&BegunFile>,
        doubt: &mut Option<Doubt>,
    ) -> Answer<ToRedo> {
        let Some(begun) = begun.filter(|_| !planted::is(Fault::ExclusionBeforeBegun)) else {
            return Ok(ToRedo::default());
        };
        let done = self.redo_begun(object, assembly, begun, doubt)?;
        flush_all(object, &self.member_drives(assembly))?;
        Ok(done)
    }

    /// The region map as the members in sync have it. What cannot be read counts as dirty.
    pub(crate) fn read_regions(&self, assembly: &Assembly) -> RegionMap {
        let superblock = &assembly.superblock;
        let mut map = RegionMap::to_read(superblock, &assembly.config);
        let mut left = Vec::new();
        for (position, record) in assembly.config.members.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let drive = assembly.members[position].filter(|_| record.state == MemberState::InSync);
            let drive = drive.and_then(|index| {
                let state = self.state();
                let entry = state.drive_at(index)?;
                Some((entry.name.clone(), Arc::clone(&entry.drive)))
            });
            let Some((name, drive)) = drive else {
                continue;
            };
            let (read, next) =
                records::read_regions(&drive, superblock, (member, 0), &mut map, Some(MISSED_MAX));
            if let Some(next) = next {
                left.push((Arc::clone(&drive), member, next));
            }
            if let Err(source) = read {
                tracing::warn!(event = "regions_unreadable", drive = name, error = %source,
                    "its copies of the region map count for nothing");
            }
        }
        // Of what nobody else has told, a slow drive is asked after all.
        for (drive, member, next) in left {
            let (read, _) =
                records::read_regions(&drive, superblock, (member, next), &mut map, None);
            if let Err(source) = read {
                tracing::warn!(event = "regions_unreadable", member = member.0, error = %source,
                    "some of its other copies of the region map count for nothing, too");
            }
        }
        map.complete();
        let is_told = assembly.config.features.has_unwritten();
        if map.lost_blocks() > 0 && superblock.geometry.parity() > 0 && !is_told {
            tracing::error!(
                event = "regions_lost",
                array = assembly.config.name,
                blocks = map.lost_blocks(),
                of = map.space().blocks(),
                "no good copy of these blocks of the region map is here: what they tell of counts as \
                 written; look at the drives, or at who writes to them"
            );
        }
        map
    }

    /// What is known to be no good of copies of the region map is made so on the drives: by the
    /// next record it could not be told any more. A member that does not take that is left out by
    /// the first write of the map.
    pub(crate) fn erase_regions(&self, object: &str, assembly: &Assembly, regions: &RegionMap) {
        for (position, drive) in self.member_drives(assembly).into_iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let to_erase = regions.to_erase().iter();
            let of_member = to_erase.filter(|(other, _)| *other == member);
            let blocks: Vec<u32> = of_member.map(|(_, block)| *block).collect();
            let Some((name, drive)) = drive.filter(|_| !blocks.is_empty()) else {
                continue;
            };
            tracing::warn!(
                event = "regions_erased",
                object,
                drive = name,
                blocks = blocks.len(),
                "copies of the region map count for nothing, and are erased"
            );
            let erased = records::erase_regions(&drive, &assembly.superblock, &blocks);
            if let Err(source) = erased {
                tracing::error!(event = "regions_not_erased", object, drive = name, error = %source,
                    "it keeps copies of the region map that count for nothing");
            }
        }
    }
}
