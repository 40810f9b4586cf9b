//! Stripes go to other reactors while requests and faults go on.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Of a thousand rounds, before so many stripes begin to go to others.
pub(super) const OFTEN: u64 = 60;

impl History {
    /// Some buckets get other owners, and requests for their stripes come at once.
    pub(super) fn distribute(&mut self, world: &mut World) {
        let reactors = world.shards.len();
        if self.given.is_some() || reactors < 2 {
            return;
        }
        let often = if self.modes.is_strict() { 200 } else { 30 };
        if self.random.happens(often) {
            return self.write_and_hand_on(world);
        }
        if self.random.happens(40) {
            return self.hand_over_past_the_mail(world);
        }
        let now = Arc::clone(&world.shards[world.home].map().owners);
        let last = StripeIndex(self.geometry.stripes() - 1);
        let used = (0..=last.0).map(|stripe| self.geometry.bucket(StripeIndex(stripe)));
        let used = used.max().expect("it has stripes");
        let some = [200, 1000][self.random.position(2)];
        let target = Owners::new(|bucket| {
            let before = now.of(bucket).expect("no command is under way");
            if bucket <= used && self.random.happens(some) {
                ReactorIndex::from_at(self.random.position(reactors))
            } else {
                before
            }
        });
        let changes = *target != *now;
        self.outcome.distributed.0 += u64::from(changes);
        self.give(world, Given::Owners, Command::Distribute(target));
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..self.random.below(8) {
            self.ask(world, stripe_blocks);
            let steps = self.random.below(10);
            self.turn(world, steps);
        }
    }

    /// A write is on its way to the owner of its stripe while the stripe gets another one.
    fn hand_over_past_the_mail(&mut self, world: &mut World) {
        let others: Vec<usize> = (0..world.shards.len())
            .filter(|at| *at != world.home)
            .collect();
        let &[asker, owner] = others.as_slice() else {
            return;
        };
        if self.geometry.parity() == 0 || !self.become_sound(world) {
            return;
        }
        let Some((asked, _)) = self.draw_where(world, |_, of| of == owner) else {
            return;
        };
        let now = Arc::clone(&world.shards[world.home].map().owners);
        if self.given.is_some() || now.is_moving() {
            return;
        }
        world.outside.mail_is_stuck = Some((asker, owner));
        let again = self.client.write_again(&asked);
        let _ = self.client.submit_on(asked, world, asker);
        self.turn(world, 20);
        let target = Owners::new(|bucket| match now.of(bucket).map(ReactorIndex::at) {
            Some(of) if of == owner => ReactorIndex::from_at(world.home),
            of => ReactorIndex::from_at(of.expect("none move")),
        });
        self.outcome.distributed.0 += 1;
        self.give(world, Given::Owners, Command::Distribute(target));
        for _ in 0..60 {
            self.turn(world, 20);
        }
        for _ in 0..4 {
            let more = self.client.write_again(&again);
            let _ = self.client.submit_on(more, world, world.home);
        }
        let steps = self.random.below(40);
        self.turn(world, steps);
        world.outside.mail_is_stuck = None;
        self.wait(world, |history, _| {
            history.client.pending() == 0 && history.given.is_none()
        });
    }

    /// A block is written and logged by one reactor, and then by another that has its stripe from
    /// there; then the end comes: the older of the two may not be written again over the newer.
    pub(super) fn write_and_hand_on(&mut self, world: &mut World) {
        let reactors = world.shards.len();
        if reactors < 2 || self.geometry.data() == 1 || !self.become_sound(world) {
            return;
        }
        let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
            return;
        };
        if self.modes.is_strict() {
            for _ in 0..1 + self.random.below(4) {
                let again = self.client.write_again(&asked);
                let _ = self.write_and_wait(world, again);
            }
        } else {
            self.write_around_a_rebuild(world, &asked, block);
        }
        let (stripe, _) = self.geometry.locate(block);
        let bucket = self.geometry.bucket(stripe);
        let now = Arc::clone(&world.shards[world.home].map().owners);
        if self.given.is_some() || now.is_moving() || self.power_is_due {
            return;
        }
        let owner = |other| now.of(other).expect("none move");
        let next = ReactorIndex::from_at((owner(bucket).at() + 1) % reactors);
        let target = Owners::new(|other| if other == bucket { next } else { owner(other) });
        self.outcome.distributed.0 += 1;
        self.give(world, Given::Owners, Command::Distribute(target));
        self.wait(world, |history, _| history.given.is_none());
        let last = self.client.write_again(&asked);
        if !self.write_and_wait(world, last) {
            return;
        }
        if let Some(flush) = self.client.flush() {
            let _ = self.write_and_wait(world, flush);
        }
        self.power_is_due = true;
        self.dies_at_once = self.is_sound(world);
    }

    /// A block is written while its member is out and is filled again, until nothing that was
    /// logged when it was out counts any more.
    fn write_around_a_rebuild(&mut self, world: &mut World, asked: &Asked, block: u64) {
        let position = self.holder(world, block);
        if self.out(world, position) >= self.spare_parity(position) || self.given.is_some() {
            return;
        }
        let drive = world.shards[world.home].map().members[position].drive;
        world.outside.drives[drive.expect("in sync").at()].hurt = true;
        let member = MemberIndex::from_at(position);
        self.give(world, Given::Fail, Command::Fail { member });
        self.wait(world, |history, _| history.given.is_none());
        let life = |world: &World| world.shards[world.home].map().log_from;
        let before = life(world);
        let is_whole = |world: &World| world.shards[world.home].map().is_whole();
        let mut whole_at = None;
        for _ in 0..2_000 {
            self.replace_one(world);
            if self.client.pending() < 2 {
                let again = self.client.write_again(asked);
                let _ = self.client.submit(again, world);
            }
            let steps = self.random.below(30);
            self.turn(world, steps);
            if is_whole(world) {
                whole_at = whole_at.or(Some(before.max(life(world))));
            }
            if whole_at.is_some_and(|at| life(world) > at) {
                break;
            }
        }
        self.wait(world, |history, _| {
            history.client.pending() == 0 && history.given.is_none()
        });
    }
}
