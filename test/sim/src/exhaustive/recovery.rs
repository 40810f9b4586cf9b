//! The engine after a stop, and what must be true of it.

use std::collections::BTreeSet;
use std::rc::Rc;

use array::assembly::{Assembly, Verdict};
use array::format::{Area, ArrayConfig, MemberState};
use array::planted::{self, Fault};
use array::{Command, MapState, MemberPlace};
use block::Operation;
use units::{MemberIndex, StripeIndex, bytes_u64, bytes_usize};

use super::disk::Disk;
use super::machine::{Choice, Error, Machine, Setup, Watch};
use super::steps::{bring_back, put_in};
use super::{Left, Lister, choices, content, layout, losses};
use crate::disks::{self, Medium};

/// What guests write after a stop has numbers from here on.
const ANEW: u64 = 1 << 40;

/// A recovery that a stop may end; nobody stops the last one.
impl Lister<'_> {
    /// Starts on what a stop has left, and judges what comes of it.
    pub(super) fn recover(&mut self, left: Left) {
        let depth = self.depth + 1;
        let mut watch = Lister {
            scenario: self.scenario,
            schedule: self.schedule,
            bounds: self.bounds,
            depth,
            erred: self.erred,
            seen: self.seen,
            count: self.count,
            last: 0,
            trail: Rc::clone(&self.trail),
        };
        if !watch.errs() {
            let machine = watch.restart(left, None);
            watch.judge(machine);
            return;
        }
        let machine = watch.restart(left.clone(), None);
        let asked = watch.judge(machine);
        // With the error nobody stops it: there would be no end to it.
        watch.bounds.depth = depth;
        for choice in choices(&asked) {
            // By others its drive would be out, and without a log this is the write hole.
            if choice.error != Error::Unreadable && !self.scenario.strict {
                continue;
            }
            watch.trail.borrow_mut().push(format!("{choice:?}"));
            let machine = watch.restart(left.clone(), Some(choice));
            watch.judge(machine);
            watch.trail.borrow_mut().pop();
        }
    }

    /// Whether a drive errs while this engine recovers; it is the only one that does.
    fn errs(&self) -> bool {
        self.scenario.errs && self.bounds.errs && self.depth == 1 && !self.erred
    }

    /// Whether a stop comes in this run.
    fn is_stopped(&self) -> bool {
        self.depth < self.bounds.depth
    }

    fn restart(&mut self, left: Left, choice: Option<Choice>) -> Machine {
        let Left {
            mut disks,
            model,
            doubtful,
            memory,
            gone: _,
        } = left;
        let mut assembly = find(&mut disks);
        disks::catch_up(&mut disks, &assembly);
        assembly.behind.clear();
        self.control_flushes(&mut disks, (&model, &doubtful));
        let mut regions = disks::regions(&disks, &assembly);
        let told = memory.as_ref().and_then(|memory| memory.read(&assembly));
        let (mut redo, guesses) = disks::read_log(&disks, &assembly, &regions);
        // No two starts of one history have the same numbers.
        let id = 1000 + 2 * u128::from(bytes_u64(self.depth));
        let found = assembly.clone();
        if !guesses.is_empty() && !planted::is(Fault::ReplayBeforeExclusion) {
            let guesses = if let Some(told) = &told {
                let first = told.to_redo(&disks, &assembly).redo;
                disks::redo_all(&mut disks, &assembly, &first, usize::MAX);
                self.control_flushes(&mut disks, (&model, &doubtful));
                assembly.who_misses(guesses, &first)
            } else {
                guesses
            };
            let noted = (&regions, &redo[..], &guesses[..]);
            disks::exclude_absent(&mut disks, &mut assembly, noted, &[], (id, usize::MAX));
            self.control_flushes(&mut disks, (&model, &doubtful));
        }
        disks::redo_all(&mut disks, &assembly, &redo, usize::MAX);
        self.control_flushes(&mut disks, (&model, &doubtful));
        if let Some(told) = &told {
            let begun = told.to_redo(&disks, &assembly).redo;
            disks::redo_all(&mut disks, &assembly, &begun, usize::MAX);
            self.control_flushes(&mut disks, (&model, &doubtful));
            redo.extend(begun);
        }
        let mut config = assembly.start(id + 1, true).expect("looked at").clone();
        found.note_replay(&mut config, &mut regions, &redo);
        let untold: Vec<_> = regions.untold().collect();
        assert!(untold.is_empty(), "{untold:?} may have been written or not");
        let suspects = match told {
            Some(told) if told.doubt.is_none() => regions.suspects_when_told(config.resynced_until),
            Some(_) | None => regions.suspects(assembly.config.clean, config.resynced_until),
        };
        let setup = Setup {
            geometry: self.scenario.geometry(),
            suspects,
            told: None,
            log: assembly.superblock.log(),
            regions,
            places: places(&assembly, &config),
            config,
            disks,
            model,
        };
        let mut machine = Machine::new(setup, self.schedule);
        machine.inherit(&doubtful);
        if self.errs() {
            machine.choose(choice);
        }
        let started = self.watched(|watch| machine.finish(watch, Command::Start));
        if started.is_err() && machine.has_erred() {
            return self.start_again(machine);
        }
        started.expect("all its drives are well");
        machine
    }

    /// An error was more than this start could bear; another process tries once more.
    fn start_again(&mut self, machine: Machine) -> Machine {
        let mut left = Left {
            disks: machine.disks().to_vec(),
            model: machine.model.clone(),
            doubtful: machine.doubtful().clone(),
            gone: None,
            memory: None,
        };
        let landing: Vec<_> = machine.taken().map(|(at, one)| (at, one.clone())).collect();
        machine.die();
        left.model.stop();
        for (at, write) in landing {
            left.disks[at].write(write);
        }
        for disk in &mut left.disks {
            disk.process_dies();
            disk.gone = false;
        }
        self.restart(left, None)
    }

    /// What the control path has written is flushed; a stop may come before.
    fn control_flushes(
        &mut self,
        disks: &mut [Disk],
        (model, doubtful): (&model::Volume, &BTreeSet<u64>),
    ) {
        let holds = |disk: &Disk| disk.cached().next().is_some();
        if self.is_stopped() && disks.iter().any(holds) {
            let now = Left {
                disks: disks.to_vec(),
                model: model.clone(),
                doubtful: doubtful.clone(),
                gone: None,
                memory: None,
            };
            self.list(&now, &[]);
        }
        for disk in disks.iter_mut().filter(|disk| !disk.gone) {
            disk.flush(disk.begin_flush());
        }
    }

    fn watched<T>(&mut self, run: impl FnOnce(&mut dyn Watch) -> T) -> T {
        if self.is_stopped() {
            run(self)
        } else {
            run(&mut super::Unwatched)
        }
    }

    /// What drives were asked, as far as anybody counts.
    fn judge(&mut self, mut machine: Machine) -> Vec<Operation> {
        self.read_everything(&mut machine);
        self.watched(|watch| machine.run(watch, Machine::is_quiet));
        self.read_everything(&mut machine);
        let area = layout(self.scenario).data;
        check(&mut machine, area);
        let scenario = self.scenario;
        let out: Vec<usize> = (0..scenario.members)
            .filter(|at| machine.is_out(*at))
            .collect();
        // A drive is opened only when it has carried out what was asked before.
        let believed = planted::is(Fault::LockedDriveReturns);
        let busy: Vec<usize> = (0..machine.disks().len())
            .filter(|at| machine.disks()[*at].is_locked())
            .collect();
        if !busy.is_empty() {
            self.write_over(&mut machine);
        }
        for drive in &busy {
            machine.disk(*drive).gone = false;
            if !believed {
                machine.disk(*drive).let_go();
            }
        }
        let mut is_back = false;
        for position in out {
            is_back |= self.watched(|watch| {
                let is_back = bring_back(&mut machine, position, watch);
                if !is_back && scenario.replaces() {
                    put_in(&mut machine, (scenario, position), watch);
                }
                is_back || scenario.replaces()
            });
        }
        if is_back {
            self.read_everything(&mut machine);
            self.watched(|watch| machine.run(watch, Machine::is_quiet));
            for drive in busy {
                machine.disk(drive).let_go();
            }
            self.read_everything(&mut machine);
            check(&mut machine, area);
        }
        let asked = machine.asked().to_vec();
        machine.die();
        asked
    }

    /// Guests write everything anew.
    fn write_over(&mut self, machine: &mut Machine) {
        let geometry = self.scenario.geometry();
        let blocks = u64::from(geometry.stripe_blocks());
        let mut number = ANEW;
        for stripe in 0..geometry.stripes() {
            let content = content(&mut number, bytes_usize(blocks));
            machine.ask(Operation::Write, stripe * blocks, &content);
            self.watched(|watch| machine.run(watch, Machine::is_answered));
        }
    }

    fn read_everything(&mut self, machine: &mut Machine) {
        let geometry = self.scenario.geometry();
        let blocks = u64::from(geometry.stripe_blocks());
        for stripe in 0..geometry.stripes() {
            let all = stripe * blocks..(stripe + 1) * blocks;
            if machine.doubtful().range(all.clone()).next().is_none() {
                machine.ask(
                    Operation::Read,
                    all.start,
                    &vec![0; bytes_usize(blocks) * 512],
                );
                continue;
            }
            // What stands beside a block that fails is judged all the same.
            self.watched(|watch| machine.run(watch, Machine::is_answered));
            for block in all {
                machine.ask(Operation::Read, block, &[0; 512]);
                self.watched(|watch| machine.run(watch, Machine::is_answered));
            }
        }
        self.watched(|watch| machine.run(watch, Machine::is_answered));
    }
}

/// The array as it is found: it may start, be it by force. No drive is left out that is there and
/// of a member in sync, and nothing is forced when all of these are.
fn find(disks: &mut [Disk]) -> Assembly {
    let assembly = disks::find(disks);
    let first = assembly.superblock.layout.data.offset / 512;
    let here = |drive: usize| {
        let tells = disks[drive].bad().iter().all(|block| *block >= first);
        tells && !Medium::is_gone(&disks[drive])
    };
    for (drive, reason) in &assembly.left_out {
        let owner = disks::owner(&disks[drive.at()]).filter(|_| here(drive.at()));
        let counts = owner.is_some_and(|own| {
            let record = &assembly.config.members[own.member.at()];
            record.uuid == own.member_uuid && record.state == MemberState::InSync
        });
        assert!(!counts, "{drive} is well: {reason:?}");
    }
    let all = assembly.config.in_sync().all(|member| {
        let drive = assembly.members[member.at()];
        drive.is_some_and(|drive| here(drive.at()))
    });
    match &assembly.verdict {
        Verdict::NeedsForce { explanation } if all => panic!("all are here: {explanation}"),
        Verdict::Startable { .. } | Verdict::NeedsForce { .. } => assembly,
        Verdict::Failed { explanation } | Verdict::Refused { explanation } => {
            panic!("{explanation}; {:?}", assembly.config)
        }
    }
}

/// Where members are that count.
fn places(assembly: &Assembly, config: &ArrayConfig) -> Vec<Option<MemberPlace>> {
    let mut places = disks::places(assembly);
    for (place, record) in places.iter_mut().zip(&config.members) {
        let is_in = matches!(
            record.state,
            MemberState::InSync | MemberState::Rebuilding { .. }
        );
        if !is_in {
            *place = None;
        }
    }
    places
}

/// The drives hold what was read, whoever of them is lost next.
fn check(machine: &mut Machine, area: Area) {
    for block in 0..machine.shard().map().geometry.blocks() {
        if machine.shard().map().lost_blocks.has(block) {
            let doubtful = machine.doubtful().contains(&block);
            assert!(doubtful, "block {block} is given up, and could be told");
            machine.model.forget(bytes_usize(block) * 512, 512);
        }
    }
    check_rewritten(machine, area);
    let map = machine.shard().map();
    assert_eq!(map.trusted_until, StripeIndex(map.geometry.stripes()));
    let geometry = map.geometry;
    let oracle = model::Layout {
        data: geometry.data(),
        parity: geometry.parity(),
        groups: geometry.groups(),
        chunk_bytes: bytes_usize(geometry.chunk_bytes()),
        rows: bytes_usize(geometry.rows()),
    };
    let mut members: Vec<Option<Vec<u8>>> = map
        .members
        .iter()
        .map(|member| {
            let drive = member.drive.filter(|_| member.state == MapState::InSync)?;
            Some(machine.disks()[drive.at()].get(area.offset, area.length))
        })
        .collect();
    let written = machine.shard().written_regions().expect("the home");
    disks::blank_unwritten(&geometry, &written, &mut members);
    let bad = oracle.check_parity(&members);
    assert!(bad.is_empty(), "parity of stripes {bad:?} is wrong");
    let spare = |group: &[Option<Vec<u8>>]| {
        geometry.parity() - group.iter().filter(|member| member.is_none()).count()
    };
    let groups = members.chunks(geometry.group_members());
    let spare: Vec<usize> = groups.map(spare).collect();
    for set in losses(&geometry, &spare) {
        let mut rest = members.clone();
        set.iter().for_each(|at| rest[*at] = None);
        let Some(user) = oracle.user_of(&rest) else {
            panic!("without {set:?} nobody can tell what was there");
        };
        let read = machine.model.begin_read(0);
        let judged = machine.model.finish_read(read, &user);
        judged.unwrap_or_else(|mismatch| panic!("without {set:?}: {mismatch}"));
    }
}

/// What could not be read is written again: all that guests see was read.
fn check_rewritten(machine: &Machine, area: Area) {
    let map = machine.shard().map();
    let written = machine.shard().written_regions().expect("the home");
    let geometry = map.geometry;
    for (position, member) in map.members.iter().enumerate() {
        let Some(drive) = member.drive.filter(|_| member.state == MapState::InSync) else {
            continue;
        };
        for block in machine.disks()[drive.at()].bad() {
            let Some(block) = block.checked_sub(area.offset / 512) else {
                continue;
            };
            let (member, chunk) = (MemberIndex::from_at(position), geometry.chunk_blocks());
            let stripe = geometry.stripe_at(member, block);
            let role = geometry.role(stripe, member).expect("its own").at();
            let user = stripe.0 * bytes_u64(geometry.data()) + bytes_u64(role);
            let user = user * u64::from(chunk) + block % u64::from(chunk);
            // Nobody has read parity, and of copies perhaps another.
            let is_read = role < geometry.data() && geometry.data() > 1 && written.has(stripe);
            let is_lost = is_read && map.lost_blocks.has(user);
            assert!(!is_read || is_lost, "block {user} is bad and was read");
        }
    }
}
