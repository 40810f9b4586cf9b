//! A hold is given up while a drive that counts reads the memory of a guest: it may not be the
//! guest's again before that drive has answered.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::history::spells::Spell;

impl History {
    /// From an array in order to one in order. Whole stripes are written from guests' memory; of
    /// their drives one hangs and too many others are away, for longer than anybody waits.
    pub(super) fn give_up_beside_one_that_hangs(&mut self, mut world: World) -> World {
        let (parity, group) = (self.geometry.parity(), self.geometry.group_members());
        let enough = parity > 0 && group >= parity + 2;
        let plain = !self.forced && self.rot.is_empty() && !self.torn;
        if !enough || !plain || !self.random.happens(400) || !self.become_sound(&mut world) {
            return world;
        }
        self.run_until(&mut world, |history, world| {
            let still = history.given.is_none() && history.change.is_none();
            still && history.client.pending() == 0 && world.is_quiet()
        });
        let _ = self.write_whole_stripes(&mut world);
        let data = self.layout.data.offset;
        for _ in 0..400 {
            let mut drives = world.outside.drives.iter();
            if drives.any(|drive| drive.is_writing_from(data)) {
                break;
            }
            self.turn(&mut world, 1);
        }
        let first = self.random.position(self.geometry.groups()) * group;
        let hangs = self.random.position(group);
        let members = world.shards[world.home].map().members.clone();
        for place in 0..=parity + 1 {
            let member = &members[first + (hangs + place) % group];
            let drive = member.drive.expect("all are in sync");
            let drive = &mut world.outside.drives[drive.at()];
            drive.hurt = true;
            if place == 0 {
                drive.hung = true;
            } else {
                drive.away = Some(Status::Gone);
            }
        }
        self.spell = Some(Spell::endless(world.outside.now));
        self.is_spelled = true;
        self.outcome.spells.0 += 1;
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..600 {
            self.turn(&mut world, 20);
            if world.shards[world.home].map().given_up && self.random.happens(300) {
                self.ask(&mut world, stripe_blocks);
            }
        }
        let hung = members[first + hangs].drive.expect("looked at");
        world.outside.drives[hung.at()].hung = false;
        self.explain(&mut world);
        self.end_spell(&mut world);
        self.run_until(&mut world, |history, _| !history.is_spelled);
        self.settle(&mut world);
        world
    }

    /// Each is one request, where a volume has room for it.
    pub(super) fn write_whole_stripes(&mut self, world: &mut World) -> Vec<Asked> {
        let mut all = Vec::new();
        let stripe = u64::from(self.geometry.stripe_blocks());
        for volume in self.client.stable_volumes() {
            for _ in 0..3 {
                let stripes = self.client.blocks(volume) / stripe;
                if stripes > 0 {
                    let start = self.random.below(stripes) * stripe;
                    let write = self.client.ask(volume, Operation::Write, start, stripe);
                    all.push(write.clone());
                    let _ = self.client.submit(write, world);
                }
            }
        }
        self.client.advance(world);
        all
    }
}
