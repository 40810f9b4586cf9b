//! The engine after a stop, and what must be true of it.

use std::rc::Rc;

use array::assembly::Verdict;
use array::format::{Area, MemberState};
use array::{Command, MapState};
use block::Operation;
use units::{StripeIndex, bytes_u64, bytes_usize};

use super::disk::Disk;
use super::machine::{Machine, Setup, Watch};
use super::{Left, Lister, bring_back, layout, losses};
use crate::disks::{self, Medium};

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
            seen: self.seen,
            count: self.count,
            last: 0,
            trail: Rc::clone(&self.trail),
        };
        let machine = watch.restart(left);
        watch.judge(machine);
    }

    /// Whether a stop comes in this run.
    fn is_stopped(&self) -> bool {
        self.depth < self.bounds.depth
    }

    fn restart(&mut self, left: Left) -> Machine {
        let Left { mut disks, model } = left;
        let mut assembly = disks::find(&mut disks);
        match &assembly.verdict {
            Verdict::Startable { .. } | Verdict::NeedsForce { .. } => {}
            Verdict::Failed { explanation } | Verdict::Refused { explanation } => {
                panic!("{explanation}; {:?}", assembly.config)
            }
        }
        disks::catch_up(&mut disks, &assembly);
        assembly.behind.clear();
        self.control_flushes(&mut disks, &model);
        let mut regions = disks::regions(&disks, &assembly);
        let (redo, _) = disks::replay(&mut disks, &assembly, &regions, usize::MAX);
        self.control_flushes(&mut disks, &model);
        // No two starts of one history have the same number.
        let id = 1000 + u128::from(bytes_u64(self.depth));
        let mut config = assembly.start(id, true).expect("looked at").clone();
        assembly.note_replay(&mut config, &mut regions, &redo);
        let untold: Vec<_> = regions.untold().collect();
        assert!(untold.is_empty(), "{untold:?} may have been written or not");
        let mut places = disks::places(&assembly);
        for (place, record) in places.iter_mut().zip(&config.members) {
            let is_in = matches!(
                record.state,
                MemberState::InSync | MemberState::Rebuilding { .. }
            );
            if !is_in {
                *place = None;
            }
        }
        let setup = Setup {
            geometry: self.scenario.geometry(),
            suspects: regions.suspects(assembly.config.clean, config.resynced_until),
            log: assembly.superblock.log(),
            regions,
            config,
            places,
            disks,
            model,
        };
        let mut machine = Machine::new(setup, self.schedule);
        let started = self.watched(|watch| machine.finish(watch, Command::Start));
        started.expect("all its drives are well");
        machine
    }

    /// What the control path has written is flushed; a stop may come before.
    fn control_flushes(&mut self, disks: &mut [Disk], model: &model::Volume) {
        if self.is_stopped() && disks.iter().any(|disk| !disk.cached().is_empty()) {
            self.list(disks, &[], model);
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

    fn judge(&mut self, mut machine: Machine) {
        self.read_everything(&mut machine);
        self.watched(|watch| machine.run(watch, Machine::is_quiet));
        self.read_everything(&mut machine);
        let area = layout(self.scenario).data;
        check(&mut machine, area);
        let members = &machine.shard().map().members;
        let lost = |at: &usize| members[*at].state == MapState::Lost;
        let out: Vec<usize> = (0..members.len()).filter(lost).collect();
        let mut is_back = false;
        for position in out {
            is_back |= self.watched(|watch| bring_back(&mut machine, position, watch));
        }
        if is_back {
            self.read_everything(&mut machine);
            self.watched(|watch| machine.run(watch, Machine::is_quiet));
            self.read_everything(&mut machine);
            check(&mut machine, area);
        }
        machine.die();
    }

    fn read_everything(&mut self, machine: &mut Machine) {
        let geometry = self.scenario.geometry();
        let blocks = geometry.stripe_blocks();
        for stripe in 0..geometry.stripes() {
            let empty = vec![0; bytes_usize(u64::from(blocks)) * 512];
            machine.ask(Operation::Read, stripe * u64::from(blocks), &empty);
        }
        self.watched(|watch| machine.run(watch, Machine::is_answered));
    }
}

/// The drives hold what was read, whoever of them is lost next.
fn check(machine: &mut Machine, area: Area) {
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
