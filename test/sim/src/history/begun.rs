//! What the last engine had begun, in memory that outlives it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use array::assembly::Assembly;
use array::planted::{self, Fault};
use array::{Begun, BegunOf, BegunSpace, BegunWrites, BlockMask, Redo, ToRedo};

use super::attempts::Attempt;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::world;

/// What the next start meets.
#[derive(Debug, Default)]
pub(super) struct NextStart {
    /// A drive loses its cache meanwhile.
    pub(super) is_forgetful: bool,
    /// The power fails after some were killed.
    pub(super) is_reset: bool,
    /// One takes nothing again.
    pub(super) is_refused: bool,
    /// The flush of one fails.
    pub(super) is_unflushed: bool,
    /// No other is killed before it, and nothing goes wrong in it.
    pub(super) is_undisturbed: bool,
    /// When it has locked the drives.
    pub(super) locked: Option<Duration>,
    /// Drives that it does without, because they are busy with what this one has asked.
    pub(super) busy: Vec<DriveIndex>,
    /// One that is busy when an engine looks first, and has let go when the last one does.
    pub(super) lets_go: Option<usize>,
    /// Nothing is arranged for it in which each member has its part.
    pub(super) is_ordinary: bool,
    /// Whether it may do without members, even for good: all that was under way is on the log, or
    /// told of.
    pub(super) may_lack: bool,
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

    /// Memory for the next life. Some hosts have none. It is that of an earlier one where no start
    /// looks at that any more, with whatever is in its buffers: new memory is slow.
    pub(super) fn begun_file(
        &mut self,
        config: &ArrayConfig,
        reactors: usize,
    ) -> Option<Arc<Begun>> {
        self.is_told = self.random.happens(850);
        if !self.is_told {
            return None;
        }
        let space = |reactors: usize| BegunSpace::new(reactors, &world::room(reactors));
        let file = self.begun_before.pop().unwrap_or_else(|| {
            let most = space(REACTORS_MAX).bytes();
            memory::words::unnamed_file(bytes_usize(most)).expect("memory")
        });
        let space = space(reactors);
        space.clear(&file).expect("memory");
        self.begun.push(file.try_clone().expect("a descriptor"));
        let begun = Begun::create(file, space, &self.begun_of(config));
        Some(begun.expect("memory"))
    }

    /// Carries out again what the last engine left, as the control path does. The start may have
    /// been attempted before, and have been killed in the middle of it.
    pub(super) fn recover(
        &mut self,
        drives: &mut [SimDrive],
        (assembly, regions): (&mut Assembly, &mut RegionMap),
    ) -> Recovered {
        let is_unflushed = std::mem::take(&mut self.next_start.is_unflushed);
        let is_undisturbed = std::mem::take(&mut self.next_start.is_undisturbed);
        if !is_unflushed && !is_undisturbed {
            self.attempt_often(drives, (assembly, regions));
        }
        if std::mem::take(&mut self.next_start.is_reset) {
            self.power_fails_between(drives, (assembly, regions));
        }
        let is_whole = is_whole(assembly);
        let may_lack = is_whole && self.geometry.parity() > 0;
        let is_refused = std::mem::take(&mut self.next_start.is_refused);
        let refuses = is_refused || (!is_unflushed && self.random.happens(150));
        let refuses = is_whole && refuses && !is_undisturbed;
        let refuses = refuses.then(|| self.random.position(64));
        let (found, attempt) = self.last_attempt((&mut *drives, assembly, regions), refuses);
        let Attempt {
            redo,
            agrees,
            lost,
            aside,
            ..
        } = attempt;
        self.leave_aside(drives, &found.members, &aside);
        if agrees {
            self.outcome.trusted += 1;
            self.judge_trust(drives, (assembly, &assembly.config), |_| false);
        }
        let well = |drive: &SimDrive| drive.is_well() && drive.forgets.is_empty();
        let may_fail = agrees && attempt.begun && may_lack && aside.is_empty();
        let may_fail = may_fail && !self.forced && self.rot.is_empty();
        let fails = is_unflushed || self.random.happens(600);
        let mut recovered = Recovered {
            redo,
            agrees,
            unflushed: None,
            lost,
            found,
        };
        if may_fail && fails && drives.iter().all(well) {
            assert!(recovered.lost.is_empty(), "all members are here");
            self.fail_the_flush(drives, assembly, &mut recovered);
        }
        recovered
    }

    /// The flush that follows fails on a member, which may have lost what the dead engine had
    /// acknowledged. The others know it.
    fn fail_the_flush(
        &mut self,
        drives: &mut [SimDrive],
        assembly: &Assembly,
        recovered: &mut Recovered,
    ) {
        let member = MemberIndex::from_at(self.random.position(self.geometry.members()));
        let drive = assembly.members[member.at()].expect("all are here");
        let drive = &mut drives[drive.at()];
        drive.loses_cache(&mut self.random);
        self.outcome.unflushed += 1;
        if planted::is(Fault::UnflushedBelieved) {
            recovered.agrees = false;
            return;
        }
        (drive.gone, drive.hurt) = (true, true);
        recovered.unflushed = Some(member);
    }

    /// The attempt that starts. Drives may take no writes at first, or bad blocks none: then
    /// nothing starts for now, but for blocks of which nobody can tell what they held. Gives what
    /// was found by it, too.
    fn last_attempt(
        &mut self,
        (drives, assembly, regions): (&mut [SimDrive], &mut Assembly, &RegionMap),
        refuses: Option<usize>,
    ) -> (Assembly, Attempt) {
        if !assembly.config.lost.is_empty() && self.random.happens(700) {
            let all_refuse = self.random.happens(300);
            for drive in drives.iter_mut() {
                if all_refuse {
                    drive.refuses = Some((1, Status::Media));
                } else {
                    drive.unwritable = drive.bad.clone();
                }
            }
            let found = assembly.clone();
            let reach = self.reach_all();
            let attempt = self.attempt((drives, assembly, regions), reach, refuses);
            for drive in drives.iter_mut() {
                drive.end_spell();
                drive.unwritable.clear();
            }
            let untaken = &attempt.untaken;
            self.outcome.left_out += untaken.left_out;
            self.outcome.refused_starts += u64::from(untaken.in_lost_row);
            if !untaken.refused {
                return (found, attempt);
            }
        }
        let mut found = assembly.clone();
        let reach = self.reach_all();
        let mut attempt = self.attempt((drives, assembly, regions), reach, refuses);
        let refusing = drives.iter().any(|drive| !drive.unwritable.is_empty());
        if refusing && attempt.untaken.refused {
            self.outcome.refused_starts += 1;
            drives.iter_mut().for_each(SimDrive::mend);
            found = assembly.clone();
            let reach = self.reach_all();
            attempt = self.attempt((drives, assembly, regions), reach, refuses);
        }
        self.outcome.followed_starts += u64::from(!attempt.untaken.followed.is_empty());
        assert!(!attempt.untaken.refused, "nothing is wrong with the drives");
        (found, attempt)
    }

    /// What is not resynced must agree as it is, on the members of `assembly` that this record
    /// calls in sync.
    pub(super) fn judge_trust(
        &self,
        drives: &[SimDrive],
        (assembly, config): (&Assembly, &ArrayConfig),
        is_resynced: impl Fn(StripeIndex) -> bool,
    ) {
        if !self.rot.is_empty() || drives.iter().any(|drive| !drive.forgets.is_empty()) {
            return;
        }
        let members = config.members.iter().zip(&assembly.members);
        let members = members.map(|(record, drive)| {
            let drive = drive.filter(|_| record.state == MemberState::InSync);
            drive.map(|drive| &drives[drive.at()])
        });
        let members: Vec<Option<&SimDrive>> = members.collect();
        let written = disks::regions(drives, assembly).written_regions();
        let mut torn = disks::torn_stripes(&self.oracle(), &self.layout, &written, &members);
        torn.retain(|stripe| {
            let stripe = StripeIndex(bytes_u64(*stripe));
            stripe < config.resynced_until && !is_resynced(stripe)
        });
        assert!(torn.is_empty(), "stripes {torn:?} are trusted and torn");
    }

    /// All that was begun.
    pub(super) fn to_redo(
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
    pub(super) fn withdraw_trust(&self) {
        for file in &self.begun {
            let write = |offset, bytes: &[u8]| file.write_all_at(bytes, offset);
            BegunWrites::withdraw(write).expect("memory");
        }
    }

    /// The file of the last engine, if it counts. Files of other lives are there too, and must not.
    pub(super) fn find_begun(&self, assembly: &Assembly) -> Option<(&File, BegunWrites)> {
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
            self.begun_before.extend(self.begun.drain(..old));
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
    /// The array as it was found.
    pub(super) found: Assembly,
}

/// Whether every member is here and holds everything.
pub(super) fn is_whole(assembly: &Assembly) -> bool {
    let members = assembly.config.members.iter().zip(&assembly.members);
    let mut members =
        members.map(|(record, drive)| record.state == MemberState::InSync && drive.is_some());
    members.all(|whole| whole)
}
