//! What the last engine had begun, in memory that outlives it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use array::assembly::Assembly;
use array::planted::{self, Fault};
use array::{Begun, BegunOf, BegunSpace, BegunWrites, BlockMask, Doubt, Redo, ToRedo};

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::world;

/// What the next start meets.
#[derive(Debug, Default)]
pub(super) struct NextStart {
    /// A drive loses its cache meanwhile.
    pub(super) is_forgetful: bool,
    /// One takes nothing again.
    pub(super) is_refused: bool,
    /// The flush of one fails.
    pub(super) is_unflushed: bool,
    /// When it has locked the drives.
    pub(super) locked: Option<Duration>,
    /// Drives that it does without, because they are busy with what this one has asked.
    pub(super) busy: Vec<DriveIndex>,
    /// One that is busy when an engine looks first, and has let go when the last one does.
    pub(super) lets_go: Option<usize>,
}

impl History {
    /// Whose file one of this start is.
    fn begun_of(&self, config: &ArrayConfig) -> BegunOf {
        BegunOf {
            array: config.array,
            boot: Uuid::from_u128(self.boot.into()),
            life: config.life(),
        }
    }

    /// Memory for the next life. Some hosts have none.
    pub(super) fn begun_file(
        &mut self,
        config: &ArrayConfig,
        reactors: usize,
    ) -> Option<Arc<Begun>> {
        self.is_told = self.random.happens(850);
        if !self.is_told {
            return None;
        }
        let space = BegunSpace::new(reactors, &world::room(reactors));
        let file = memory::words::unnamed_file(bytes_usize(space.bytes())).expect("memory");
        self.begun.push(file.try_clone().expect("a descriptor"));
        let begun = Begun::create(file, space, &self.begun_of(config));
        Some(begun.expect("memory"))
    }

    /// Carries out again what the last engine left, as the control path does. The start may have
    /// been attempted before, and have been killed in the middle of it.
    pub(super) fn recover(
        &mut self,
        drives: &mut [SimDrive],
        assembly: &Assembly,
        regions: &RegionMap,
    ) -> Recovered {
        let is_unflushed = std::mem::take(&mut self.next_start.is_unflushed);
        let is_whole = is_whole(assembly);
        let may_lack = is_whole && self.geometry.parity() > 0;
        if may_lack && !is_unflushed && self.modes.is_strict() && self.random.happens(600) {
            // What is logged on some members only has begun for those that find no other.
            for away in 0..drives.len() {
                self.attempt_without(drives, away);
            }
        }
        for _ in 0..2 {
            if is_unflushed || !self.random.happens(300) {
                continue;
            }
            if may_lack && self.random.happens(500) {
                let away = self.random.position(drives.len());
                self.attempt_without(drives, away);
            } else {
                let most = [self.random.position(20), self.random.position(20)];
                let _ = self.attempt((drives, assembly, regions), most, None);
            }
        }
        let is_refused = std::mem::take(&mut self.next_start.is_refused);
        let refuses = is_refused || (!is_unflushed && self.random.happens(150));
        let refuses = is_whole && refuses;
        let refuses = refuses.then(|| self.random.position(64));
        let last = (&mut *drives, assembly, regions);
        let attempt = self.last_attempt(last, refuses);
        let Attempt {
            redo, agrees, lost, ..
        } = attempt;
        if agrees {
            self.outcome.trusted += 1;
            self.judge_trust(drives, assembly);
        }
        let well = |drive: &SimDrive| drive.is_well() && drive.forgets.is_empty();
        let may_fail = agrees && attempt.begun && may_lack && !self.forced && self.rot.is_empty();
        let fails = is_unflushed || self.random.happens(600);
        if may_fail && fails && drives.iter().all(well) {
            assert!(lost.is_empty(), "all members are here");
            return self.fail_the_flush(drives, assembly, redo);
        }
        Recovered {
            redo,
            agrees,
            unflushed: None,
            lost,
        }
    }

    /// The flush that follows fails on a member, which may have lost what the dead engine had
    /// acknowledged. The others know it.
    fn fail_the_flush(
        &mut self,
        drives: &mut [SimDrive],
        assembly: &Assembly,
        redo: Vec<Redo>,
    ) -> Recovered {
        let member = MemberIndex::from_at(self.random.position(self.geometry.members()));
        let drive = assembly.members[member.at()].expect("all are here");
        let drive = &mut drives[drive.at()];
        drive.loses_cache(&mut self.random);
        self.outcome.unflushed += 1;
        let believed = planted::is(Fault::UnflushedBelieved);
        if !believed {
            (drive.gone, drive.hurt) = (true, true);
        }
        Recovered {
            redo,
            agrees: !believed,
            unflushed: (!believed).then_some(member),
            lost: Vec::new(),
        }
    }

    /// The attempt that starts. Drives may take no writes at first, or bad blocks none: then
    /// nothing starts for now, but for blocks of which nobody can tell what they held.
    fn last_attempt(
        &mut self,
        (drives, assembly, regions): (&mut [SimDrive], &Assembly, &RegionMap),
        refuses: Option<usize>,
    ) -> Attempt {
        let all = [usize::MAX; 2];
        if !assembly.config.lost.is_empty() && self.random.happens(700) {
            let all_refuse = self.random.happens(300);
            for drive in drives.iter_mut() {
                if all_refuse {
                    drive.refuses = Some((1, Status::Media));
                } else {
                    drive.unwritable = drive.bad.clone();
                }
            }
            let attempt = self.attempt((drives, assembly, regions), all, refuses);
            for drive in drives.iter_mut() {
                drive.end_spell();
                drive.unwritable.clear();
            }
            let untaken = &attempt.untaken;
            self.outcome.left_out += untaken.left_out;
            self.outcome.refused_starts += u64::from(untaken.in_lost_row);
            if !untaken.refused {
                return attempt;
            }
        }
        let mut attempt = self.attempt((drives, assembly, regions), all, refuses);
        let refusing = drives.iter().any(|drive| !drive.unwritable.is_empty());
        if refusing && attempt.untaken.refused {
            self.outcome.refused_starts += 1;
            drives.iter_mut().for_each(SimDrive::mend);
            attempt = self.attempt((drives, assembly, regions), all, refuses);
        }
        self.outcome.followed_starts += u64::from(!attempt.untaken.followed.is_empty());
        assert!(!attempt.untaken.refused, "nothing is wrong with the drives");
        attempt
    }

    /// An engine flushes a drive at its start, or has it flushed by a record that it mends, and
    /// that fails: the drive keeps of its cache what it likes, and the start is given up, or is
    /// killed. The drive was not away, and works again.
    pub(super) fn fail_a_flush_of_a_start(&mut self, drives: &mut [SimDrive]) {
        let assembly = disks::find(drives);
        let members = assembly.members.iter().flatten();
        let members: Vec<DriveIndex> = members.copied().collect();
        let fails = members[self.random.position(members.len())].at();
        if matches!(assembly.verdict, Verdict::Startable { .. }) {
            let writes = [0, self.random.position(20), usize::MAX];
            let most = [0, 1].map(|_| writes[self.random.position(3)]);
            let regions = disks::regions(drives, &assembly);
            let _ = self.attempt((drives, &assembly, &regions), most, None);
        }
        drives[fails].loses_cache(&mut self.random);
    }

    /// What is not resynced must agree as it is.
    fn judge_trust(&self, drives: &[SimDrive], assembly: &Assembly) {
        if !self.rot.is_empty() || drives.iter().any(|drive| !drive.forgets.is_empty()) {
            return;
        }
        let config = &assembly.config;
        let members = config.members.iter().zip(&assembly.members);
        let members = members.map(|(record, drive)| {
            let drive = drive.filter(|_| record.state == MemberState::InSync);
            drive.map(|drive| &drives[drive.at()])
        });
        let members: Vec<Option<&SimDrive>> = members.collect();
        let written = disks::regions(drives, assembly).written_regions();
        let mut torn = disks::torn_stripes(&self.oracle(), &self.layout, &written, &members);
        torn.retain(|stripe| bytes_u64(*stripe) < config.resynced_until.0);
        assert!(torn.is_empty(), "stripes {torn:?} are trusted and torn");
    }

    /// An engine that is killed before its first record, while a drive is not there for once.
    pub(super) fn attempt_without(&mut self, drives: &mut [SimDrive], away: usize) {
        if std::mem::replace(&mut drives[away].gone, true) {
            return;
        }
        let assembly = disks::find(drives);
        if matches!(assembly.verdict, Verdict::Startable { .. }) {
            let regions = disks::regions(drives, &assembly);
            let log = [self.random.position(20), usize::MAX][self.random.position(2)];
            let most = [log, self.random.position(20)];
            let _ = self.attempt((drives, &assembly, &regions), most, None);
        }
        drives[away].gone = false;
    }

    /// Writes at most so many parts of what the log holds, and of what was begun; the drive of one
    /// of these may take nothing of the latter.
    fn attempt(
        &self,
        (drives, assembly, regions): (&mut [SimDrive], &Assembly, &RegionMap),
        most: [usize; 2],
        refuses: Option<usize>,
    ) -> Attempt {
        let found = self.find_begun(assembly);
        if !planted::is(Fault::TrustOutlivesAStart) {
            self.withdraw_trust();
        }
        let layout = &self.layout;
        let mut doubt = found.as_ref().map(|(_, writes)| {
            writes.doubt(assembly, self.next_start.locked, |member| {
                let drive = assembly.members[member.at()].expect("it is here").at();
                world::place_of(layout, drives, drive).appearance
            })
        });
        let (mut redo, mut untaken) = disks::replay(drives, assembly, regions, most[0]);
        if !redo.is_empty() {
            self.withdraw_trust();
        }
        if untaken.refused || most[0] < redo.len() {
            return Attempt {
                redo,
                begun: false,
                agrees: false,
                untaken,
                lost: Vec::new(),
            };
        }
        if untaken.left_out > 0 || !untaken.followed.is_empty() {
            doubt = doubt.map(|doubt| doubt.or(Some(Doubt::Torn)));
        }
        let ToRedo { redo: begun, lost } = found.map_or_else(ToRedo::default, |(file, writes)| {
            self.to_redo(file, &writes, (drives, assembly))
        });
        let refusing = refuses.and_then(|at| begun.get(at % begun.len().max(1)));
        let refusing = refusing.map(|part| part.member);
        if let Some(member) = refusing {
            doubt = doubt.map(|doubt| doubt.or(Doubt::refused(member)));
            for part in begun.iter().take(most[1]) {
                let drive = assembly.members[part.member.at()];
                if let Some(drive) = drive.filter(|_| refusing != Some(part.member)) {
                    let offset = self.layout.data.offset + part.offset;
                    drives[drive.at()].put(offset, &part.bytes);
                }
            }
        } else {
            let done = disks::redo_all(drives, assembly, &begun, most[1]);
            if done.left_out > 0 || !done.followed.is_empty() {
                doubt = doubt.map(|doubt| doubt.or(Some(Doubt::Torn)));
            }
            untaken.left_out += done.left_out;
            untaken.followed.extend(done.followed);
            untaken.refused |= done.refused;
        }
        let is_begun = !begun.is_empty();
        redo.extend(begun);
        Attempt {
            redo,
            begun: is_begun,
            agrees: doubt == Some(None),
            untaken,
            lost,
        }
    }

    /// All that was begun.
    fn to_redo(
        &self,
        file: &File,
        writes: &BegunWrites,
        (drives, assembly): (&[SimDrive], &Assembly),
    ) -> ToRedo {
        let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        let data = self.layout.data.offset;
        let read_member = |member: MemberIndex, offset: u64, bytes: &mut [u8]| {
            let in_sync = assembly.config.members[member.at()].state == MemberState::InSync;
            let Some(drive) = assembly.members[member.at()].filter(|_| in_sync) else {
                return Ok(0);
            };
            let drive = &drives[drive.at()];
            bytes.copy_from_slice(&drive.get(data + offset, bytes_u64(bytes.len())));
            let first = (data + offset) / drive.block_bytes();
            let bad = drive
                .bad
                .range(first..first + 128)
                .map(|block| block - first);
            Ok(bad.fold(BlockMask::MAX, |told, at| told & !(1 << at)))
        };
        let mut all = ToRedo::default();
        for position in 0..writes.len() {
            let one = writes.redo(position, read, read_member).expect("memory");
            all.redo.extend(one.redo);
            all.lost.extend(one.lost);
        }
        all
    }

    /// A start is about to write: no other one believes what any file says of parity.
    fn withdraw_trust(&self) {
        for file in &self.begun {
            let write = |offset, bytes: &[u8]| file.write_all_at(bytes, offset);
            BegunWrites::withdraw(write).expect("memory");
        }
    }

    /// The file of the last engine, if it counts. Files of other lives are there too, and must not.
    fn find_begun(&self, assembly: &Assembly) -> Option<(&File, BegunWrites)> {
        if assembly.config.clean || planted::is(Fault::BegunNotRedone) {
            return None;
        }
        let whose = self.begun_of(&assembly.config);
        let known = (&assembly.config, &self.geometry);
        self.begun.iter().rev().find_map(|file| {
            let length = file.metadata().expect("a file").len();
            let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
            let writes = BegunWrites::read(read, length, &whose, known).ok()?;
            Some((file, writes))
        })
    }

    /// Writes of some lengths begin, and the end comes while members are writing.
    pub(super) fn write_at_once(&mut self, world: &mut World) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let writes = 2 + self.random.below(8);
        for _ in 0..writes {
            let asked = (0..4).find_map(|_| {
                let asked = self.client.draw(&mut self.random, stripe_blocks);
                asked.filter(|asked| asked.changes())
            });
            if let Some(asked) = asked {
                let _ = self.client.offer(asked, world);
            }
            let steps = self.random.below(8);
            self.turn(world, steps);
        }
        let logs = self.modes.is_strict() && self.random.happens(600);
        let areas = [self.layout.data, self.layout.log];
        let from = areas[usize::from(logs)].offset;
        let writes = |world: &World| {
            let drives = world.outside.drives.iter();
            drives.filter(|drive| drive.is_writing_from(from)).count()
        };
        let few = self.random.position(3) + 1;
        for _ in 0..400 {
            if writes(world) >= few {
                break;
            }
            self.turn(world, 1);
        }
        let steps = self.random.below(4);
        (0..steps).for_each(|_| world.step());
    }

    /// The process has died, or the power has failed: what is left in memory, and of what boot.
    pub(super) fn leave_begun(&mut self, power: bool) {
        if power {
            self.boot += 1;
        }
        // A start that is durable removes those before, unless it dies before it does.
        if self.random.happens(700) {
            let old = self.begun.len().saturating_sub(1);
            self.begun.drain(..old);
        }
    }
}

/// What a start has carried out again.
#[derive(Debug)]
pub(super) struct Recovered {
    /// What was written.
    pub(super) redo: Vec<Redo>,
    /// Whether parity agrees now wherever regions are dirty.
    pub(super) agrees: bool,
    /// A member that is to be left out.
    pub(super) unflushed: Option<MemberIndex>,
    /// Blocks of the array that nobody can tell.
    pub(super) lost: Vec<Range<u64>>,
}

/// What an attempt to start has come to.
#[derive(Debug)]
struct Attempt {
    redo: Vec<Redo>,
    /// Some of it had begun.
    begun: bool,
    agrees: bool,
    untaken: disks::Untaken,
    lost: Vec<Range<u64>>,
}

/// Whether every member is here and holds everything.
fn is_whole(assembly: &Assembly) -> bool {
    let members = assembly.config.members.iter().zip(&assembly.members);
    let mut members =
        members.map(|(record, drive)| record.state == MemberState::InSync && drive.is_some());
    members.all(|whole| whole)
}
