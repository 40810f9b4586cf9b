//! Bad blocks of members that are in sync, where a power failure may have torn parity and the
//! resync has not been there: nobody may make them of such parity. They fail until they are
//! written, and the resync gives them up; nothing else ever fails, and nobody is shown anything
//! else.

use std::collections::BTreeSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Bad blocks, at most; and looks at stripes for each.
const SPOTS: usize = 8;
const LOOKS: usize = 8;

/// A row: a stripe, and a block of each of its chunks.
type Spot = (StripeIndex, u64);

impl History {
    /// From an array in order to one in order.
    pub(super) fn doubt(&mut self, mut world: World) -> World {
        let (data, parity) = (self.geometry.data(), self.geometry.parity());
        let may = parity > 0 && data > 1 && !self.client.disks.is_empty() && !self.forced;
        if !may || !self.random.happens(500) {
            return world;
        }
        if parity > 1 && self.random.happens(300) {
            self.fail_one(&mut world);
            self.write_on_the_log(&mut world);
            if !self.is_soundly_degraded(&world) {
                self.quiesce(&mut world, true);
            }
        } else {
            self.write_into_caches(&mut world);
        }
        let before = members_out(&world);
        let mut world = self.end_and_restart(world, true);
        // One whose drive was away may be out as well: then there is no parity to do without.
        if members_out(&world) == before {
            self.spoil_suspects(&mut world);
        }
        if self.client.lost.is_empty() && self.client.unsure.is_empty() {
            self.run_until(&mut world, |history, _| history.started);
            self.settle(&mut world);
            return world;
        }
        let mut lost = self.client.lost.clone();
        // Those that belong to no volume may be lost for long.
        lost.extend(lost::listed(&world));
        self.run_until(&mut world, |history, _| history.started);
        self.await_commands(&mut world);
        let stands = self.random.happens(600);
        self.give(&mut world, Given::Other, Command::Passes { run: !stands });
        self.await_commands(&mut world);
        if self.random.happens(700) {
            self.read_everything(&mut world);
        }
        if self.random.happens(700) {
            let asked = self.random.below(60);
            self.write_some(&mut world, asked);
        }
        if self.random.happens(300) {
            // Bad blocks lie there still, and are suspect still.
            self.quiesce(&mut world, true);
            let power = self.random.happens(500);
            world = self.stop_by(world, power);
        }
        self.run_until(&mut world, |history, _| history.given.is_none());
        self.refill(&mut world);
        let map = world.shards[world.home].map().clone();
        self.outcome.doubted.1 += map.lost_blocks.count();
        // All that is not on the list can be read again.
        let is_listed = |block: &u64| map.lost_blocks.has(*block);
        self.client.lost.retain(is_listed);
        self.client.discarded.retain(is_listed);
        self.judge_and_write(world, &lost)
    }

    /// Whether parity is not trusted somewhere, or will not be soon: no bad block comes up then
    /// that guests do not know of.
    pub(super) fn is_in_doubt(&self, world: &World) -> bool {
        let is_resynced = world.shards[world.home].map().trusted_until.0 >= self.geometry.stripes();
        let asked = self.given.is_some_and(|(_, given)| given == Given::Resync);
        self.torn || !is_resynced || asked
    }

    /// After a stop: bad blocks from before, where parity is not trusted now, are lost.
    pub(super) fn note_doubted(&mut self, world: &World) {
        if self.geometry.data() == 1 || !self.client.lost.is_empty() || self.forced {
            return;
        }
        let map = world.shards[world.home].map();
        let (first, chunk) = (self.first_block(), u64::from(self.geometry.chunk_blocks()));
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for (position, member) in map.members.iter().enumerate() {
            let drive = member.drive.filter(|_| member.state != MapState::Lost);
            let bad = drive.map(|drive| &world.outside.drives[drive.at()].bad);
            for block in bad.into_iter().flatten().filter(|block| **block >= first) {
                let (member, block) = (MemberIndex::from_at(position), block - first);
                let stripe = self.geometry.stripe_at(member, block);
                let role = self.geometry.role(stripe, member).expect("its own block");
                if map.parity_trusted(stripe, false) {
                    continue;
                }
                let base = stripe.0 * stripe_blocks;
                if role.at() < self.geometry.data() {
                    let lost = base + bytes_u64(role.at()) * chunk + block % chunk;
                    self.client.lost.insert(lost);
                    self.outcome.doubted.0 += 1;
                }
                self.client.unsure.push(base..base + stripe_blocks);
                self.doubts = true;
            }
        }
    }

    /// All parity is trusted again: what was bad before is on the list, or can be read.
    pub(super) fn doubts_end(&mut self, world: &World) {
        if !std::mem::take(&mut self.doubts) {
            return;
        }
        let map = world.shards[world.home].map();
        self.outcome.doubted.1 += map.lost_blocks.count();
        self.client.lost.retain(|block| map.lost_blocks.has(*block));
        self.client.unsure.clear();
    }

    /// Writes what is lost by that, as somebody would who has a backup.
    pub(super) fn write_doubted(&mut self, world: &mut World) {
        let (lost, discarded) = (&mut self.client.lost, &mut self.client.discarded);
        let mut blocks = std::mem::take(lost);
        blocks.append(discarded);
        for block in blocks {
            if let Some((volume, start)) = self.client.place_of(block) {
                let write = self.client.ask(volume, Operation::Write, start, 1);
                self.submit_surely(world, write);
            }
        }
        self.run_until(world, |_, world| world.is_quiet());
    }

    fn fail_one(&mut self, world: &mut World) {
        let position = self.random.position(self.geometry.members());
        let drive = end::position_drive(world, position);
        world.outside.drives[drive].hurt = true;
        let member = MemberIndex::from_at(position);
        self.give(world, Given::Other, Command::Fail { member });
        self.await_commands(world);
    }

    /// Blocks of members that are there cannot be read any more, in rows of which nobody trusts the
    /// parity; most in rows that are torn. What is lost by that is what they held.
    fn spoil_suspects(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        let stripes = (0..self.geometry.stripes()).map(StripeIndex);
        let suspects: Vec<StripeIndex> = stripes
            .filter(|&stripe| !map.parity_trusted(stripe, false))
            .collect();
        let torn: Vec<StripeIndex> = if map.is_whole() {
            let torn = self.torn_now(world).into_iter();
            torn.filter(|stripe| suspects.contains(stripe)).collect()
        } else {
            Vec::new()
        };
        let mut spots = BTreeSet::new();
        for _ in 0..SPOTS {
            let among = if torn.is_empty() || self.random.happens(200) {
                &suspects
            } else {
                &torn
            };
            let Some(&stripe) = among.get(self.random.position(among.len().max(1))) else {
                return;
            };
            let lane = self.lane_to_spoil(world, stripe);
            let is_new = spots.insert((stripe, lane));
            // Beside a member that is out, one more in a row is what there is parity for.
            if is_new || map.is_whole() {
                self.spoil_one(world, (stripe, lane));
            }
        }
    }

    /// A block of a chunk, where parity is wrong if there is such a one.
    fn lane_to_spoil(&mut self, world: &World, stripe: StripeIndex) -> u64 {
        let chunk = u64::from(self.geometry.chunk_blocks());
        let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
        let mut lane = self.random.below(chunk);
        for _ in 0..LOOKS {
            let whole = world.shards[world.home].map().is_whole();
            if !whole || !self.parity_is_right(world, base + lane) {
                break;
            }
            lane = self.random.below(chunk);
        }
        lane
    }

    fn spoil_one(&mut self, world: &mut World, (stripe, lane): Spot) {
        let map = world.shards[world.home].map().clone();
        let data = self.geometry.data();
        let roles = data + usize::from(self.random.happens(200)) * self.geometry.parity();
        let role = self.random.position(roles);
        let (_, member) = map.member(stripe, Role::from_at(role));
        let Some(drive) = member.drive.filter(|_| member.state == MapState::InSync) else {
            return;
        };
        let chunk = u64::from(self.geometry.chunk_blocks());
        let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
        if role < data {
            self.client
                .lost
                .insert(base + bytes_u64(role) * chunk + lane);
            self.outcome.doubted.0 += 1;
        }
        if role >= data || !map.is_whole() || self.client.writes_parts() {
            // Else each write of whole blocks there can be planned without that one.
            let stripe = base..base + u64::from(self.geometry.stripe_blocks());
            self.client.unsure.push(stripe);
        }
        let place = self.first_block() + self.geometry.member_block(stripe) + lane;
        let drive = &mut world.outside.drives[drive.at()];
        drive.hurt = true;
        drive.bad.insert(place);
    }
}

fn members_out(world: &World) -> usize {
    let members = world.shards[world.home].map().members.iter();
    let out = members.filter(|member| member.state == MapState::Lost);
    out.count()
}
