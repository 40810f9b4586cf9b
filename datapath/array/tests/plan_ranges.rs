//! Every write of every range within two stripes, on every array of up to eight members, with
//! every set of members lost that the array survives; then every byte of every member compared
//! with the oracle, and everything read back through the read planner.
//!
//! A block is one byte here. The number of writes is asserted, so that cases cannot get lost
//! unseen.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod geometry_common;
mod plan_common;

use array::{Geometry, Level, StripeState, bands, plan_read, plan_write};
use geometry_common::{geometries, layout};
use plan_common::Code;
use units::{MemberIndex, Role, RoleSet, StripeIndex};

/// A chunk of up to four blocks.
type Chunk = plan_common::Chunk<4>;
type Stripe = plan_common::Stripe<4>;

/// An array whose members are bytes.
struct Array {
    geometry: Geometry,
    code: Code,
    members: Vec<Vec<u8>>,
    lost: u32,
    parity_trusted: bool,
}

impl Array {
    fn is_lost(&self, member: MemberIndex) -> bool {
        self.lost >> member.at() & 1 == 1
    }

    fn state(&self, stripe: StripeIndex) -> StripeState {
        let gone = |role: &Role| self.is_lost(self.geometry.member(stripe, *role));
        let lost = self.code.roles().iter().filter(gone).collect();
        StripeState::new(lost, RoleSet::EMPTY, self.parity_trusted)
    }

    /// Where lane 0 of a role's chunk is.
    fn position(&self, stripe: StripeIndex, role: Role) -> (usize, usize) {
        let member = self.geometry.member(stripe, role).at();
        (
            member,
            usize::try_from(self.geometry.member_block(stripe)).unwrap(),
        )
    }

    /// The stripe's chunks, lanes from 0 on; rubbish where a member is lost.
    fn load(&self, stripe: StripeIndex) -> Stripe {
        let mut chunks = Stripe::default();
        let lanes = usize::try_from(self.geometry.chunk_blocks()).unwrap();
        for role in self.code.roles() {
            let (member, start) = self.position(stripe, role);
            let bytes = &self.members[member][start..start + lanes];
            chunks[role.at()][..lanes].copy_from_slice(bytes);
        }
        chunks
    }

    /// Writes `bytes` from a block on, band by band, as planned.
    fn write(&mut self, first: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (stripe, start) = self.geometry.locate(first + u64::try_from(done).unwrap());
            let left = u32::try_from(bytes.len() - done).unwrap();
            let blocks = left.min(self.geometry.stripe_blocks() - start);
            let part = &bytes[done..][..usize::try_from(blocks).unwrap()];
            self.write_stripe(stripe, start, part);
            done += part.len();
        }
    }

    fn write_stripe(&mut self, stripe: StripeIndex, start: u32, bytes: &[u8]) {
        let (chunk_blocks, blocks) = (
            self.geometry.chunk_blocks(),
            u32::try_from(bytes.len()).unwrap(),
        );
        let state = self.state(stripe);
        for band in &bands(chunk_blocks, self.code.k, start, blocks) {
            let plan =
                plan_write(self.code.k, self.code.m, band.written, &state).expect("survives");
            let mut chunks = self.load(stripe);
            let mut new: Vec<(Role, Chunk)> = Vec::new();
            for role in band.written {
                let mut chunk = Chunk::default();
                for lane in band.lanes.clone() {
                    let block = u32::from(role.0) * chunk_blocks + lane - start;
                    chunk[usize::try_from(lane).unwrap()] = bytes[usize::try_from(block).unwrap()];
                }
                new.push((role, chunk));
            }
            self.code.write(&plan, &state, &new, &mut chunks);
            for role in plan.write {
                let (member, start) = self.position(stripe, role);
                for lane in band
                    .lanes
                    .clone()
                    .map(|lane| usize::try_from(lane).unwrap())
                {
                    self.members[member][start + lane] = chunks[role.at()][lane];
                }
            }
        }
    }

    /// All data of a stripe, decoded where a member is lost.
    fn read(&self, stripe: StripeIndex) -> Vec<u8> {
        let (code, state) = (&self.code, self.state(stripe));
        let plan = plan_read(code.k, code.m, code.data(), &state).expect("survives");
        let chunks = self.load(stripe);
        let decoded = code.read(&plan, &state, &chunks);
        let chunk = |role: Role| {
            if plan.decode.has(role) {
                decoded[role.at()]
            } else {
                chunks[role.at()]
            }
        };
        let lanes = usize::try_from(self.geometry.chunk_blocks()).unwrap();
        code.data()
            .iter()
            .flat_map(|role| chunk(role)[..lanes].to_vec())
            .collect()
    }
}

/// All sets of members with at most M lost in every group.
fn survivable(geometry: &Geometry) -> Vec<u32> {
    let n = geometry.group_members();
    let in_group = |lost: u32, group: usize| (lost >> (group * n) & ((1 << n) - 1)).count_ones();
    let parity = u32::try_from(geometry.parity()).unwrap();
    (0..1u32 << geometry.members())
        .filter(|lost| (0..geometry.groups()).all(|group| in_group(*lost, group) <= parity))
        .collect()
}

/// Bytes that differ from their neighbours and from those of another seed.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let byte = |at: u64| {
        (at + seed * 1_000)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes()[0]
    };
    (0..length)
        .map(|at| byte(u64::try_from(at).unwrap()))
        .collect()
}

/// All ranges within two stripes; which two changes from range to range, so that all turns of the
/// rotation are met. Returns how many writes were made.
fn check_ranges(geometry: Geometry, parity_trusted: bool) -> u64 {
    let layout = layout(&geometry);
    let stripe_bytes = layout.stripe_bytes();
    let stripes = layout.rows * layout.groups;
    let before = pattern(0, stripes * stripe_bytes);
    let good = layout.members_of(&before);
    let code = Code::new(layout.data, layout.parity);
    let members = good.clone();
    let mut array = Array {
        geometry,
        code,
        members,
        lost: 0,
        parity_trusted,
    };
    let mut writes = 0;
    for start in 0..2 * stripe_bytes {
        for end in start + 1..=2 * stripe_bytes {
            let turn = (start * 5 + end) % (stripes - 1);
            let bytes = pattern(1, end - start);
            let mut after = before.clone();
            after[turn * stripe_bytes..][start..end].copy_from_slice(&bytes);
            let two = turn * stripe_bytes..(turn + 2) * stripe_bytes;
            let expected = expected_rows(&array, &after, turn);
            for lost in survivable(&geometry) {
                array.lost = lost;
                let first = u64::try_from(two.start + start).unwrap();
                array.write(first, &bytes);
                compare(&array, &expected, &after[two.clone()], turn);
                restore(&mut array, &good, turn);
                writes += 1;
            }
        }
    }
    writes
}

/// What the members of two stripes must hold, by stripe and role.
fn expected_rows(array: &Array, after: &[u8], turn: usize) -> [Vec<Vec<u8>>; 2] {
    let layout = layout(&array.geometry);
    [turn, turn + 1].map(|stripe| {
        let bytes = &after[stripe * layout.stripe_bytes()..][..layout.stripe_bytes()];
        let data: Vec<Vec<u8>> = bytes
            .chunks(layout.chunk_bytes)
            .map(<[u8]>::to_vec)
            .collect();
        layout.encode(&data)
    })
}

fn compare(array: &Array, expected: &[Vec<Vec<u8>>; 2], user: &[u8], turn: usize) {
    let lanes = usize::try_from(array.geometry.chunk_blocks()).unwrap();
    let mut read = Vec::new();
    for (offset, chunks) in expected.iter().enumerate() {
        let stripe = StripeIndex(u64::try_from(turn + offset).unwrap());
        read.extend(array.read(stripe));
        for role in array.code.roles().without(array.state(stripe).lost) {
            let (member, start) = array.position(stripe, role);
            let found = &array.members[member][start..start + lanes];
            let (lost, geometry) = (array.lost, array.geometry);
            assert_eq!(
                found,
                chunks[role.at()],
                "{role} of {stripe}, lost {lost:b}, {geometry:?}"
            );
        }
    }
    assert_eq!(
        read, user,
        "read back, lost {:b}, {:?}",
        array.lost, array.geometry
    );
}

/// Puts the members back as they were, and proves that lost ones were not written.
fn restore(array: &mut Array, good: &[Vec<u8>], turn: usize) {
    let lanes = usize::try_from(array.geometry.chunk_blocks()).unwrap();
    for stripe in [turn, turn + 1].map(|stripe| StripeIndex(u64::try_from(stripe).unwrap())) {
        for role in array.code.roles() {
            let (member, start) = array.position(stripe, role);
            let range = start..start + lanes;
            let lost = array.is_lost(MemberIndex::from_at(member));
            let touched = array.members[member][range.clone()] != good[member][range.clone()];
            assert!(!(lost && touched), "lost member {member} was written");
            array.members[member][range.clone()].copy_from_slice(&good[member][range]);
        }
    }
    assert_eq!(array.members, good, "something else was written");
}

fn check_levels(levels: &[Level], chunk_blocks: u32) -> u64 {
    let wanted = geometries(chunk_blocks)
        .into_iter()
        .filter(|geometry| levels.contains(&geometry.level()));
    wanted
        .map(|geometry| check_ranges(geometry, true) + check_ranges(geometry, false))
        .sum()
}

#[test]
fn ranges_on_stripes_and_mirrors() {
    let levels = [Level::L0, Level::L1, Level::L10];
    assert_eq!(check_levels(&levels, 2) + check_levels(&levels, 4), 73_516);
}

#[test]
fn ranges_on_single_groups() {
    let levels = [Level::L5, Level::L6, Level::L7];
    assert_eq!(check_levels(&levels, 2) + check_levels(&levels, 4), 619_904);
}

#[test]
fn ranges_on_any_parity() {
    assert_eq!(check_levels(&[Level::Nm], 2), 260_784);
}

#[test]
fn ranges_on_several_groups() {
    let levels = [Level::L50, Level::L60, Level::L70];
    assert_eq!(check_levels(&levels, 2) + check_levels(&levels, 4), 86_728);
}
