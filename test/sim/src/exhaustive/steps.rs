//! The steps of the small models, and what the control path does for members that are out.

use std::time::Duration;

use array::Command;
use array::assembly::may_return;
use array::format::{ArrayConfig, MemberRecord, MemberState, Missed, Superblock};
use block::Operation;
use units::{MemberIndex, StripeIndex, bytes_u64, bytes_usize};
use uuid::Uuid;

use super::disk::Disk;
use super::machine::{LOOK, Machine, Watch};
use super::scenario::{Scenario, Step};
use super::{content, layout, superblock};
use crate::disks::{self, Medium};
use crate::world::place;

/// What new drives hold has numbers from here on: no guest has written it.
const GARBAGE: u64 = 1 << 32;

/// Does one step.
pub(super) fn take(
    machine: &mut Machine,
    (scenario, step): (&Scenario, Step),
    watch: &mut dyn Watch,
    number: &mut u64,
) {
    match step {
        Step::Write(first, blocks) => {
            machine.ask(Operation::Write, first, &content(number, blocks));
        }
        Step::Read(first, blocks) => {
            machine.ask(Operation::Read, first, &vec![0; blocks * 512]);
        }
        Step::Zero(first, blocks) => {
            machine.ask(Operation::WriteZeroes, first, &vec![0; blocks * 512]);
        }
        Step::Flush => machine.ask(Operation::Flush, 0, &[]),
        Step::Wait => machine.run(watch, Machine::is_answered),
        Step::Idle => machine.idle(watch),
        Step::Vanish(drive) => machine.disk(drive).gone = true,
        Step::Err(drive, error) => machine.aim(drive, error),
        Step::Held => machine.run(watch, |machine| machine.shard().map().is_holding()),
        Step::Refuse(drive, block, how) => {
            machine.disk(drive).refuse(data_block(scenario, block), how);
        }
        Step::Spoil(drive, block) => machine.spoil(drive, data_block(scenario, block)),
        Step::Mend(drive) => machine.disk(drive).mend(),
        Step::Hang(drive) => machine.hang(Some(drive)),
        Step::Others => {
            machine.pass(watch, Duration::from_millis(1));
            machine.run(watch, Machine::is_hanging);
        }
        Step::GoOn => machine.hang(None),
        Step::Look => machine.pass(watch, 4 * LOOK),
        Step::Written => machine.run(watch, Machine::is_written),
        Step::Fail(position) => {
            let member = MemberIndex::from_at(position);
            let failed = machine.finish(watch, Command::Fail { member });
            failed.expect("it can be done without");
        }
        Step::Return(position) => {
            let left = machine.last_drive(position);
            machine.run(watch, |machine| !machine.is_asked(left));
            assert!(bring_back(machine, position, watch), "it may return");
        }
        Step::Replace(position) => {
            machine.run(watch, |machine| machine.is_out(position));
            put_in(machine, (scenario, position), watch);
        }
        Step::Filled(position, stripes) => {
            machine.run(watch, |machine| is_filled(machine, position, stripes));
        }
        Step::Passes(run) => {
            let done = machine.finish(watch, Command::Passes { run });
            done.expect("always");
        }
        Step::Resync => machine.finish(watch, Command::Resync).expect("always"),
        Step::Tear(drive, block) => {
            let mut garbage = GARBAGE * bytes_u64(drive);
            let offset = 512 * data_block(scenario, block);
            machine.disk(drive).put(offset, &content(&mut garbage, 1));
            Medium::flush(machine.disk(drive));
        }
        Step::Resynced => machine.run(watch, Machine::is_resynced),
        Step::Scrub => {
            let order = array::ScrubOrder::Start;
            let _ = machine.command(Command::Scrub(order));
        }
        Step::Stop => machine.finish(watch, Command::Stop).expect("nobody writes"),
        Step::Watch => {}
    }
}

/// A block of data, as drives count them.
fn data_block(scenario: &Scenario, block: u64) -> u64 {
    layout(scenario).data.offset / 512 + block
}

/// Takes a drive back as the member that it was, as the control path does; whether one may return.
pub(super) fn bring_back(machine: &mut Machine, position: usize, watch: &mut dyn Watch) -> bool {
    machine.finish(watch, Command::Settle).expect("always");
    let config = config(machine);
    let all = machine.disks().iter().enumerate();
    let returns = |(drive, disk)| Some((drive, returning(drive, disk, position, &config)?));
    let Some((drive, own)) = all.into_iter().find_map(returns) else {
        return false;
    };
    disks::erase(machine.disk(drive), &own);
    Medium::flush(machine.disk(drive));
    let command = Command::Return {
        member: own.member,
        place: place(&own.layout, drive),
        uuid: own.member_uuid,
        identity: Default::default(),
    };
    let returned = machine.finish(watch, command);
    // Its own error keeps it out.
    assert!(returned.is_ok() || machine.has_erred(), "{returned:?}");
    true
}

/// What a drive says of itself, if it may come back to this place.
fn returning(
    drive: usize,
    disk: &Disk,
    position: usize,
    config: &ArrayConfig,
) -> Option<Superblock> {
    let found = disks::read(drive, disk)?;
    let own = *found.superblock()?;
    let is_its = own.member.at() == position;
    (is_its && may_return(&found, &own, config).is_ok()).then_some(own)
}

/// Puts a new drive in the place of a member that is out, as the control path does. It holds what
/// nobody has written here.
pub(super) fn put_in(
    machine: &mut Machine,
    (scenario, position): (&Scenario, usize),
    watch: &mut dyn Watch,
) {
    machine.finish(watch, Command::Settle).expect("always");
    let drive = machine.disks().len();
    let member = MemberIndex::from_at(position);
    // Not one of the first members', nor that of any drive before.
    let uuid = Uuid::from_u128(1000 + u128::from(bytes_u64(drive)));
    let own = superblock(scenario, member, uuid);
    let mut disk = Disk::default();
    let area = own.layout.data;
    let mut garbage = GARBAGE * bytes_u64(drive);
    let blocks = bytes_usize(area.length / 512);
    disk.put(area.offset, &content(&mut garbage, blocks));
    Medium::flush(&mut disk);
    disks::write_superblocks(&mut disk, &own);
    machine.add(disk);
    // What a stop leaves of the superblocks is no member.
    watch.look(machine);
    Medium::flush(machine.disk(drive));
    let record = MemberRecord {
        uuid,
        state: MemberState::Rebuilding {
            until: StripeIndex(0),
            missed: Missed::ALL,
        },
        drive_bytes: disks::DRIVE_BYTES,
        identity: Default::default(),
    };
    let command = Command::Replace {
        member,
        place: place(&own.layout, drive),
        record,
        copied: None,
    };
    let replaced = machine.finish(watch, command);
    // An error keeps it out.
    assert!(replaced.is_ok() || machine.has_erred(), "{replaced:?}");
}

/// Whether a record says that so many stripes of a member are filled, or all.
fn is_filled(machine: &Machine, position: usize, stripes: u64) -> bool {
    match config(machine).members[position].state {
        MemberState::InSync => true,
        MemberState::Rebuilding { until, .. } => until.0 >= stripes,
        _ => false,
    }
}

fn config(machine: &Machine) -> ArrayConfig {
    let coordinator = machine.shard().coordinator().expect("home");
    coordinator.config().clone()
}
