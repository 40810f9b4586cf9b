//! Starts that are killed before their first record, or come to something.

use std::fs::File;
use std::ops::Range;

use array::assembly::{Assembly, Found, LeftOut};
use array::planted::{self, Fault};
use array::{BegunWrites, Doubt, Redo, ToRedo};

use super::begun::is_whole;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::world;

/// How far an attempt gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// The id of a record of it.
    id: u128,
    /// So many members get this record.
    records: usize,
    /// So many parts are written of what was begun, before members are out; of what the log holds;
    /// and of what was begun.
    most: [usize; 3],
}

impl History {
    /// Whether the next start may do without members, as long as the others are enough: what was
    /// under way is on the log, or will be written again.
    pub(super) fn may_lack_next(&self, world: &World, is_killed: bool) -> bool {
        let map = world.shards[world.home].map();
        let resynced = map.trusted_until.0 >= self.geometry.stripes();
        let logged = self.modes.is_strict() && self.geometry.data() > 1;
        let told = is_killed && self.is_told && self.started;
        let plain = !self.forced && !self.doubts && !self.is_spelled && !self.record_in_doubt;
        let sound = self.is_sound(world) || self.is_soundly_degraded(world);
        (logged || told) && resynced && plain && sound && self.rot.is_empty()
    }

    /// The array may start, be it by force.
    pub(super) fn judge_verdict(&mut self, drives: &[SimDrive], assembly: &Assembly) {
        match &assembly.verdict {
            Verdict::Startable { .. } => {}
            Verdict::NeedsForce { explanation } => {
                // A start that has not come to its second record may have left out who went on.
                let is_whole = assembly.config.unfinished_since == Update(0);
                let all = is_whole
                    && assembly.config.in_sync().all(|member| {
                        let drive = drive_of(drives, &assembly.config, member);
                        drive.is_some_and(|drive| self.tells_its_records(&drives[drive]))
                    });
                assert!(!all, "all members in sync are here: {explanation}");
                self.forced = true;
                self.outcome.forced += 1;
            }
            Verdict::Failed { explanation } | Verdict::Refused { explanation } => {
                let drives: Vec<String> = drives
                    .iter()
                    .map(|drive| format!("gone {}, failing {:?}", drive.gone, drive.failing))
                    .collect();
                panic!("{explanation}; {:?}; {drives:#?}", assembly.config)
            }
        }
    }

    /// Whether a drive answers, can read all of the array's own records, and has had no reason to
    /// miss one.
    fn tells_its_records(&self, drive: &SimDrive) -> bool {
        let is_here = !drive.hurt && !drive.gone && !drive.is_locked() && drive.away.is_none();
        let first = self.first_block();
        is_here && drive.bad.range(..first).next().is_none()
    }

    /// Who is in sync and well is used, unless another drive is taken for the same member.
    pub(super) fn judge_left_out(&self, drives: &[SimDrive], assembly: &Assembly) {
        for (drive, reason) in &assembly.left_out {
            let well = &drives[drive.at()];
            let is_of_use = match reason {
                LeftOut::Damaged(_)
                | LeftOut::NoConfig { .. }
                | LeftOut::Hidden { .. }
                | LeftOut::OtherLayout { .. }
                | LeftOut::Replaced { .. }
                | LeftOut::Excluded { .. }
                | LeftOut::Stale { .. } => true,
                LeftOut::Future(_)
                | LeftOut::Shrunk { .. }
                | LeftOut::OlderClone { .. }
                | LeftOut::Clone { .. }
                | LeftOut::Abandoned { .. }
                | LeftOut::SplitBrain { .. } => false,
            };
            if !is_of_use || !self.tells_its_records(well) {
                continue;
            }
            let mut in_sync = assembly.config.in_sync();
            let is_its = |member| drive_of(drives, &assembly.config, member) == Some(drive.at());
            assert!(!in_sync.any(is_its), "{drive} is well: {reason:?}");
        }
    }

    /// Engines that are killed before their first record, and what is found after the last of them.
    pub(super) fn attempt_often(
        &mut self,
        drives: &mut [SimDrive],
        (assembly, regions): (&mut Assembly, &mut RegionMap),
    ) {
        let may_lack = |history: &History, assembly: &Assembly| {
            let may = is_whole(assembly) || history.next_start.may_lack;
            may && history.geometry.parity() > 0
        };
        let may = may_lack(self, assembly);
        // What is logged on some members only has begun for those that find no other.
        let often = match (self.modes.is_strict(), is_whole(assembly)) {
            (true, _) => 600,
            (false, false) if self.next_start.is_reset => 900,
            (false, true) => 0,
            (false, false) => 500,
        };
        if may && self.random.happens(often) {
            self.attempt_without_each(drives);
            self.find_again(drives, (assembly, regions));
        }
        for _ in 0..2 {
            if !self.random.happens(300) {
                continue;
            }
            if may_lack(self, assembly) && self.random.happens(500) {
                let away = self.random.position(drives.len());
                self.attempt_without(drives, away);
            } else {
                let most = [(); 3].map(|()| self.random.position(20));
                let reach = self.reach(most);
                self.attempt_if((drives, assembly, regions), reach);
            }
            self.find_again(drives, (assembly, regions));
        }
    }

    /// The array as it is after what the last attempt has left.
    fn find_again(
        &mut self,
        drives: &mut [SimDrive],
        (assembly, regions): (&mut Assembly, &mut RegionMap),
    ) {
        *assembly = disks::find(drives);
        disks::catch_up(drives, assembly);
        self.judge_verdict(drives, assembly);
        self.judge_left_out(drives, assembly);
        self.find_half_written(assembly);
        *regions = disks::regions(drives, assembly);
    }

    /// What a start that was killed has given up already.
    fn find_half_written(&mut self, assembly: &Assembly) {
        let (lost, client) = (&assembly.config.lost, &self.client);
        let half = client.half_written.iter().copied();
        let is_out = |block: u64| {
            let place = self.geometry.place(block);
            let holder = self.geometry.member(place.stripe, place.role);
            assembly.config.members[holder.at()].state != MemberState::InSync
        };
        let is_new = |block: u64| lost.has(block) && !client.lost.contains(&block);
        let given_up = half.filter(|block| is_new(*block) && is_out(*block));
        for block in given_up.collect::<Vec<_>>() {
            self.lose_half_written(block);
        }
    }

    /// The power fails after starts were killed that have reached something: what memory told is
    /// gone.
    pub(super) fn power_fails_between(
        &mut self,
        drives: &mut [SimDrive],
        (assembly, regions): (&mut Assembly, &mut RegionMap),
    ) {
        for drive in drives.iter_mut() {
            drive.power_fails(&mut self.random);
        }
        self.boot += 1;
        self.next_start.may_lack &= self.modes.is_strict() && self.geometry.data() > 1;
        self.outcome.reset += 1;
        self.find_again(drives, (assembly, regions));
        // What was found before may have been in the drives' caches only.
        self.modes.found(assembly.config.options);
    }

    /// Each drive is not there for once, until a member is out because of that, as a rule.
    fn attempt_without_each(&mut self, drives: &mut [SimDrive]) {
        let first = self.random.position(drives.len());
        for away in (first..drives.len()).chain(0..first) {
            if self.attempt_without(drives, away) && self.random.happens(700) {
                break;
            }
        }
    }

    /// An engine that is killed before its first record, while a drive is not there for once, or
    /// another one neither. Whether a member is out now.
    pub(super) fn attempt_without(&mut self, drives: &mut [SimDrive], away: usize) -> bool {
        if drives[away].gone {
            return false;
        }
        let serving = serving(drives);
        drives[away].gone = true;
        let other = (away + 1 + self.random.position(drives.len() - 1)) % drives.len();
        let both = self.geometry.parity() > 1 && !drives[other].gone && self.random.happens(300);
        drives[other].gone |= both;
        let mut is_out = false;
        let assembly = find_any(drives);
        // The half that the other one has left out does not start by itself where that was: a host
        // remembers it (docs/on-disk.md section 7, 3).
        let is_left_out = !serving.is_empty() && serving.iter().all(|at| drives[at.at()].gone);
        let starts = |assembly: &Assembly| {
            !is_left_out && matches!(assembly.verdict, Verdict::Startable { .. })
        };
        if let Some(mut assembly) = assembly.filter(starts) {
            disks::catch_up(drives, &assembly);
            let regions = disks::regions(drives, &assembly);
            let first =
                [self.random.position(20), usize::MAX][usize::from(self.random.happens(800))];
            let log = [self.random.position(20), usize::MAX][self.random.position(2)];
            let most = [first, log, self.random.position(20)];
            let reach = self.reach(most);
            is_out = self.attempt_if((drives, &mut assembly, &regions), reach);
        }
        drives[away].gone = false;
        drives[other].gone &= !both;
        self.outcome.excluded_early += u64::from(is_out);
        is_out
    }

    /// An attempt that is killed, unless it would cost a member where none may be lost. Whether
    /// members are out because of it.
    fn attempt_if(
        &mut self,
        (drives, assembly, regions): (&mut [SimDrive], &mut Assembly, &RegionMap),
        reach: Reach,
    ) -> bool {
        let (_, guesses) = disks::read_log(drives, assembly, regions);
        if !guesses.is_empty() && !self.next_start.may_lack {
            return false;
        }
        let before = assembly.config.update;
        let here = assembly.members.clone();
        let Attempt { aside, .. } =
            self.attempt((&mut *drives, &mut *assembly, regions), reach, None);
        let is_out = assembly.config.update != before;
        if is_out {
            self.leave_aside(drives, &here, &aside);
        }
        is_out
    }

    /// Members that a start has set aside are out although they do what they are asked: others must
    /// not be lost besides, what has rotted there may not be located, and bad blocks of the others
    /// may be lost with them: docs/design/007-no-resync-after-a-kill.md, *What setting aside
    /// costs*.
    pub(super) fn leave_aside(
        &mut self,
        drives: &mut [SimDrive],
        here: &[Option<DriveIndex>],
        aside: &[MemberIndex],
    ) {
        for member in aside {
            let drive = here[member.at()].expect("it was here");
            let drive = &mut drives[drive.at()];
            (drive.gone, drive.hurt) = (true, true);
            self.outcome.set_aside += 1;
            let size = self.geometry.group_members();
            let group = member.at() / size;
            self.leave_rot_behind(group);
            for other in here[group * size..][..size].iter().flatten() {
                let other = &mut drives[other.at()];
                other.mend();
                other.failing = other.failing.filter(|failing| failing.count == 0);
            }
        }
    }

    /// So far, and a record that it commits before may reach some members only.
    fn reach(&mut self, most: [usize; 3]) -> Reach {
        let members = self.geometry.members();
        let records = if self.random.happens(200) {
            self.random.position(members)
        } else {
            members
        };
        Reach {
            records,
            most,
            ..self.reach_all()
        }
    }

    pub(super) fn reach_all(&mut self) -> Reach {
        Reach {
            id: u128::from(self.random.next()) << 64 | u128::from(self.random.next()),
            records: usize::MAX,
            most: [usize::MAX; 3],
        }
    }

    /// An engine flushes a drive at its start, or has it flushed by a record that it mends, and
    /// that fails: the drive keeps of its cache what it likes, and the start is given up, or is
    /// killed. The drive was not away, and works again.
    pub(super) fn fail_a_flush_of_a_start(&mut self, drives: &mut [SimDrive]) {
        let mut assembly = disks::find(drives);
        let members = assembly.members.iter().flatten();
        let members: Vec<DriveIndex> = members.copied().collect();
        let fails = members[self.random.position(members.len())].at();
        if matches!(assembly.verdict, Verdict::Startable { .. }) {
            let writes = [0, self.random.position(20), usize::MAX];
            let most = [(); 3].map(|()| writes[self.random.position(3)]);
            disks::catch_up(drives, &assembly);
            let regions = disks::regions(drives, &assembly);
            let reach = self.reach(most);
            self.attempt_if((drives, &mut assembly, &regions), reach);
        }
        drives[fails].loses_cache(&mut self.random);
    }

    /// Writes what was begun, and then that those are out who may know better. Gives what drives
    /// did not take; an error when it ends before that is done.
    fn leave_out(
        &self,
        drives: &mut [SimDrive],
        assembly: &mut Assembly,
        noted: (&RegionMap, &[Redo], &[MemberIndex]),
        (found, Reach { id, records, most }): (Option<&(&File, BegunWrites)>, Reach),
    ) -> Result<disks::Untaken, disks::Untaken> {
        let (mut first, mut done) = (ToRedo::default(), disks::Untaken::default());
        let found = found.filter(|_| !planted::is(Fault::ExclusionBeforeBegun));
        if let Some((file, writes)) = found {
            first = self.to_redo(file, writes, (drives, assembly));
            done = disks::redo_all(drives, assembly, &first.redo, most[0]);
            if done.refused || most[0] < first.redo.len() {
                return Err(done);
            }
            disks::flush_log(drives, assembly);
        }
        hurt_absent(drives, assembly);
        let (regions, redo, guesses) = noted;
        let who = assembly.who_misses(guesses.to_vec(), &first.redo);
        let noted = (regions, redo, &who[..]);
        if disks::exclude_absent(drives, assembly, noted, &first.lost, (id, records)) {
            Ok(done)
        } else {
            Err(done)
        }
    }

    /// Writes at most so many parts of what the log holds, and of what was begun; the drive of one
    /// of these may take nothing of the latter.
    pub(super) fn attempt(
        &self,
        (drives, assembly, regions): (&mut [SimDrive], &mut Assembly, &RegionMap),
        reach: Reach,
        refuses: Option<usize>,
    ) -> Attempt {
        let found = self.find_begun(assembly);
        if !planted::is(Fault::TrustOutlivesAStart) {
            self.withdraw_trust();
        }
        let doubt = found
            .as_ref()
            .map(|(_, writes)| self.doubt_of(writes, drives, assembly));
        let found = found.as_ref();
        let Some((rest, aside)) = self.without_lacking(found, (drives, assembly, regions)) else {
            let known = (found, doubt);
            return self.attempt_with((drives, assembly, regions), known, reach, refuses);
        };
        // Records that it brought up to the others' are durable; nothing else flushes it now.
        for member in &aside {
            let drive = assembly.members[member.at()].expect("it is here");
            drives[drive.at()].flush();
        }
        let whole = std::mem::replace(assembly, rest);
        let known = (found, Some(None));
        let attempt = self.attempt_with((&mut *drives, assembly, regions), known, reach, refuses);
        // Or they are out already.
        if attempt.agrees || assembly.config.update != whole.config.update {
            return Attempt { aside, ..attempt };
        }
        *assembly = whole;
        if attempt.is_killed {
            return attempt;
        }
        self.attempt_with((drives, assembly, regions), (found, doubt), reach, refuses)
    }

    /// Whether the next start knows who may have lost something, and doubts no more than that; or
    /// nothing, as those are out already. There are not more than the others can do without, and by
    /// the record, too, no resync is under way: before its end a member's loss may take with it
    /// what only that one held.
    pub(super) fn knows_who_lacks(&self, drives: &mut [SimDrive]) -> bool {
        let assembly = disks::find(drives);
        let Some((_, writes)) = self.find_begun(&assembly) else {
            return false;
        };
        let few = || {
            let appearance = |member| self.appearance(drives, &assembly, member);
            let lacking = writes.lacking(&assembly, self.next_start.locked, appearance);
            let group = self.geometry.group_members();
            (0..self.geometry.members()).step_by(group).all(|first| {
                let there = lacking.iter().map(|(member, _)| member.at());
                let there = there.filter(|at| (first..first + group).contains(at));
                there.count() <= self.geometry.parity()
            })
        };
        match self.doubt_of(&writes, drives, &assembly) {
            None => true,
            Some(Doubt::Lacks(..)) => assembly.is_resynced() && few(),
            Some(_) => false,
        }
    }

    fn doubt_of(
        &self,
        writes: &BegunWrites,
        drives: &[SimDrive],
        assembly: &Assembly,
    ) -> Option<Doubt> {
        let appearance = |member| self.appearance(drives, assembly, member);
        writes.doubt(assembly, self.next_start.locked, appearance)
    }

    fn appearance(&self, drives: &[SimDrive], assembly: &Assembly, member: MemberIndex) -> u64 {
        let drive = assembly.members[member.at()].expect("it is here").at();
        world::place_of(&self.layout, drives, drive).appearance
    }

    /// The array without members whose drives were away, if they are to be left out, and which.
    fn without_lacking(
        &self,
        found: Option<&(&File, BegunWrites)>,
        (drives, assembly, regions): (&[SimDrive], &Assembly, &RegionMap),
    ) -> Option<(Assembly, Vec<MemberIndex>)> {
        let (_, writes) = found.filter(|_| !planted::is(Fault::AwayBelieved))?;
        let doubt = self.doubt_of(writes, drives, assembly);
        if !matches!(doubt, Some(Doubt::Lacks(..))) {
            return None;
        }
        let appearance = |member| self.appearance(drives, assembly, member);
        let lacking = writes.lacking(assembly, self.next_start.locked, appearance);
        let members: Vec<MemberIndex> = lacking.iter().map(|(member, _)| *member).collect();
        let rest = assembly.set_aside(&members, regions)?;
        Some((rest, members))
    }

    fn attempt_with(
        &self,
        (drives, assembly, regions): (&mut [SimDrive], &mut Assembly, &RegionMap),
        (found, mut doubt): (Option<&(&File, BegunWrites)>, Option<Option<Doubt>>),
        reach: Reach,
        refuses: Option<usize>,
    ) -> Attempt {
        let most = reach.most;
        let (mut redo, guesses) = disks::read_log(drives, assembly, regions);
        if !redo.is_empty() {
            self.withdraw_trust();
            disks::flush_log(drives, assembly);
        }
        let mut first = disks::Untaken::default();
        if !guesses.is_empty() && !planted::is(Fault::ReplayBeforeExclusion) {
            let noted = (regions, &redo[..], &guesses[..]);
            match self.leave_out(drives, assembly, noted, (found, reach)) {
                Ok(untaken) => first = untaken,
                Err(untaken) => return Attempt::ended(redo, untaken),
            }
        }
        let assembly = &*assembly;
        let mut untaken = disks::redo_all(drives, assembly, &redo, most[1]);
        if untaken.refused || most[1] < redo.len() {
            return Attempt::ended(redo, untaken);
        }
        untaken.left_out += first.left_out;
        untaken.followed.extend(first.followed);
        if untaken.left_out > 0 || !untaken.followed.is_empty() {
            doubt = doubt.map(|doubt| doubt.or(Some(Doubt::Torn)));
        }
        let ToRedo { redo: begun, lost } = found.map_or_else(ToRedo::default, |(file, writes)| {
            self.to_redo(file, writes, (drives, assembly))
        });
        let refusing = refuses.and_then(|at| begun.get(at % begun.len().max(1)));
        let refusing = refusing.map(|part| part.member);
        if let Some(member) = refusing {
            doubt = doubt.map(|doubt| doubt.or(Doubt::refused(member)));
            for part in begun.iter().take(most[2]) {
                let drive = assembly.members[part.member.at()];
                if let Some(drive) = drive.filter(|_| refusing != Some(part.member)) {
                    let offset = self.layout.data.offset + part.offset;
                    drives[drive.at()].put(offset, &part.bytes);
                }
            }
        } else {
            let done = disks::redo_all(drives, assembly, &begun, most[2]);
            if done.left_out > 0 || !done.followed.is_empty() {
                doubt = doubt.map(|doubt| doubt.or(Some(Doubt::Torn)));
            }
            untaken.left_out += done.left_out;
            untaken.followed.extend(done.followed);
            untaken.refused |= done.refused;
        }
        let (is_begun, is_killed) = (!begun.is_empty(), most[2] < begun.len());
        redo.extend(begun);
        Attempt {
            redo,
            begun: is_begun,
            agrees: doubt == Some(None),
            untaken,
            lost,
            aside: Vec::new(),
            is_killed,
        }
    }
}

/// What an attempt to start has come to.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) redo: Vec<Redo>,
    /// Some of it had begun.
    pub(super) begun: bool,
    pub(super) agrees: bool,
    pub(super) untaken: disks::Untaken,
    pub(super) lost: Vec<Range<u64>>,
    /// Members that it has left out, as their drives were away.
    pub(super) aside: Vec<MemberIndex>,
    /// Something was left to do.
    is_killed: bool,
}

impl Attempt {
    /// One that got no further.
    fn ended(redo: Vec<Redo>, untaken: disks::Untaken) -> Attempt {
        Attempt {
            redo,
            begun: false,
            agrees: false,
            untaken,
            lost: Vec::new(),
            aside: Vec::new(),
            is_killed: true,
        }
    }
}

/// The drive that was made this member.
fn drive_of(drives: &[SimDrive], config: &ArrayConfig, member: MemberIndex) -> Option<usize> {
    let uuid = config.members[member.at()].uuid;
    let is_its = |drive: &SimDrive| {
        let owner = disks::owner(drive);
        owner.is_some_and(|own| (own.member, own.member_uuid) == (member, uuid))
    };
    drives.iter().position(is_its)
}

/// Members that are not here may be out by now.
fn hurt_absent(drives: &mut [SimDrive], assembly: &Assembly) {
    for drive in drives {
        let owner = disks::owner(drive);
        drive.hurt |= owner.is_some_and(|own| {
            let position = own.member.at();
            let is_member = assembly.config.members[position].uuid == own.member_uuid;
            is_member && assembly.members[position].is_none()
        });
    }
}

/// Drives of members that are in sync by what all who are here know; none if nobody has a record.
fn serving(drives: &mut [SimDrive]) -> Vec<DriveIndex> {
    let Some(assembly) = find_any(drives) else {
        return Vec::new();
    };
    let members = assembly.config.members.iter().zip(&assembly.members);
    let in_sync = members.filter(|(member, _)| member.state == MemberState::InSync);
    in_sync.filter_map(|(_, drive)| *drive).collect()
}

/// The array, if somebody here has a record of it. A drive that was to be a member, and has none
/// yet, says nothing of the array by itself.
fn find_any(drives: &mut [SimDrive]) -> Option<Assembly> {
    let is_one = |found: Found| found.config().is_some();
    let is_any = (0..drives.len()).any(|at| disks::read(at, &drives[at]).is_some_and(is_one));
    is_any.then(|| disks::find(drives))
}
