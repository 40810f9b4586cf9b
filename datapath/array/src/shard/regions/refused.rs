//! A block of the region map that a member refuses which is needed, while it takes other writes.
//!
//! What others have taken is written to the other place of the block next, which its drive takes
//! perhaps: then all holders have it, and nothing is lost but time. If not, or when nobody else has
//! it, regions that need the block are not written for a while (`keeper/barred.rs`).

use std::sync::Arc;

use units::{MemberIndex, StripeIndex, bytes_usize};

use super::super::{DriveIo, Shard};
use super::keeper::{Phase, Refuser, Round};
use crate::command::Refusal;
use crate::coordinator::{Commit, Coordinator};
use crate::io::{Event, Io};
use crate::map::MapState;
use crate::regions::RegionState;

impl Shard {
    /// Lets regions be asked for again that were barred.
    pub(super) fn lift_bars(&mut self, io: &mut impl Io) -> usize {
        if !self.keeper().has_bars() || self.map.read_only {
            return 0;
        }
        let (map, states) = (Arc::clone(&self.map), Arc::clone(&self.shared.regions));
        let is_needed =
            |(member, incarnation): Refuser| !map.is_out(member, incarnation) && map.needs(member);
        self.keeper().lift_bars(io.now(), is_needed, &states)
    }

    /// Whether no region is called dirty, as the home knows it. For simulators.
    #[must_use]
    pub fn is_all_clean(&self) -> bool {
        self.coordinator()
            .is_some_and(|home| home.keeper.is_all_clean())
    }

    /// Whether regions are not written for a while. For simulators.
    #[must_use]
    pub fn bars_regions(&self) -> bool {
        self.coordinator()
            .is_some_and(|home| home.keeper.bars_any())
    }

    /// A holder has refused a block, and takes other writes.
    pub(in crate::shard) fn region_refused(&mut self, done: DriveIo) {
        let keeper = self.keeper();
        let mut round = keeper.round.take().expect("a round is under way");
        round.pending -= 1;
        let is_it = |number: u32| keeper.offset(number) == done.offset;
        let mut blocks = round.blocks.iter();
        let position = blocks.position(|block| is_it(block.number));
        let position = position.expect("it is of the round");
        let refuser = (done.member, done.incarnation);
        keeper.note_bad_place(round.blocks[position].number, refuser);
        round.refused.push((position, refuser));
        keeper.round = Some(round);
    }

    /// All else of a round is over: what becomes of blocks that were refused. Whether the round
    /// goes on with some of them.
    pub(super) fn settle_refused(&mut self, round: &mut Round, io: &mut impl Io) -> bool {
        if round.refused.is_empty() || self.map.read_only {
            return false;
        }
        let mut again = Vec::new();
        for (position, (member, incarnation)) in std::mem::take(&mut round.refused) {
            if self.map.needs(member) && !self.map.is_out(member, incarnation) {
                round.refused.push((position, (member, incarnation)));
            } else {
                // It is left out if it fails once more, as any that does not take the map, or is
                // out.
                again.push((position, member));
            }
        }
        if !again.is_empty() {
            round.todo = again;
            round.phase = Phase::Write;
            return true;
        }
        for position in round.refused_blocks() {
            let is_in_sync =
                |member: &MemberIndex| self.map.members[member.at()].state == MapState::InSync;
            let is_taken = round.takers(position).iter().any(is_in_sync);
            // Whoever has it is there at the next start.
            let needs_all = |(member, _): &Refuser| !self.map.can_do_without(*member);
            let all_needed = round.refusers(position).iter().all(needs_all);
            if is_taken && all_needed && !round.is_second(position) {
                self.keeper().write_again(round, position);
            } else {
                self.tell_refused_block(round, position, io);
                self.keeper().bar_block(round, position, io.now());
            }
        }
        false
    }

    fn tell_refused_block(&mut self, round: &Round, position: usize, io: &mut impl Io) {
        let (member, _) = round.refusers(position)[0];
        let regions = self
            .shared
            .regions
            .space
            .regions(round.blocks[position].number);
        let number = |region: usize| u32::try_from(region).expect("at most REGIONS_MAX");
        let event = self.refusal_of(member, number(regions.start)..number(regions.end));
        io.event(event);
    }

    /// What a member refuses keeps these regions from being written.
    pub(super) fn refusal_of(&self, member: MemberIndex, regions: std::ops::Range<u32>) -> Event {
        let space = &self.shared.regions.space;
        let (StripeIndex(first), _) = space.stripes(regions.start);
        let (start, _) = self.rows(member, regions.start);
        let (_, end) = self.rows(member, regions.end - 1);
        let rows = (end - start) / self.geometry().block_size().bytes();
        Event::WriteRefused {
            member,
            first: first * u64::from(self.geometry().stripe_blocks()),
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
        }
    }

    /// Whether blocks of the map may be torn by a kill now, or may be no copies where a holder has
    /// refused one: not to be thought of after a clean stop.
    pub(in crate::shard) fn may_lack_regions(&self) -> bool {
        let lacks = |decider: &Coordinator| {
            decider.config.features.has_unwritten() && decider.keeper.has_bad_places()
        };
        self.writes_regions() || self.coordinator().is_some_and(lacks)
    }

    /// Regions were to become dirty for a command: it is refused if some cannot for now, and may
    /// be written later.
    pub(in crate::shard) fn refuse_barred(
        &mut self,
        regions: &[u32],
    ) -> Result<Option<Box<Commit>>, Refusal> {
        let states = Arc::clone(&self.shared.regions);
        let keeper = self.keeper();
        let known = |region: u32| bytes_usize(u64::from(region)) < states.space.count();
        let is_barred = |&&region: &&u32| {
            let is_lost = known(region) && states.get(region) == RegionState::Lost;
            is_lost && keeper.is_barred(region)
        };
        match regions.iter().find(is_barred) {
            Some(region) => Err(Refusal::Failed(format!(
                "the region map cannot be written for region {region}: a drive refuses a block of it"
            ))),
            None => Ok(None),
        }
    }
}
