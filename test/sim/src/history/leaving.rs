//! Members that leave and come back at the moments that are hardest to survive.

use array::Pass;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Turns that something is waited for.
const TURNS: usize = 400;
/// Places that are looked at until one fits, and how many are written.
const LOOKS: usize = 100;
const WRITES: usize = 6;

impl History {
    /// Whether a member may leave now: nothing else goes on, and every member is in sync.
    fn may_leave(&self, world: &World) -> bool {
        let whole = world.shards[world.home].map().is_whole();
        self.given.is_none() && !self.torn && whole && self.is_sound(world)
    }

    /// Goes on until a member may leave, if that can be; nothing is hurt any more.
    pub(super) fn become_sound(&mut self, world: &mut World) -> bool {
        if !self.rot.is_empty() || self.power_is_due || self.geometry.parity() == 0 {
            return false;
        }
        self.calm(world);
        for drive in &mut world.outside.drives {
            drive.failing = None;
            drive.mend();
        }
        self.wait(world, |history, _| history.given.is_none());
        if self.given.is_none() {
            self.give(world, Given::Other, Command::Passes { run: true });
        }
        for _ in 0..TURNS {
            if self.may_leave(world) && self.client.pending() == 0 {
                return true;
            }
            self.replace_one(world);
            self.turn(world, 40);
        }
        false
    }

    /// A block is written, and again while the member that holds it is away; then that member
    /// comes back, and right after that the end comes: of what its log held from before nothing
    /// may be written again.
    pub(super) fn stop_after_a_return(&mut self, world: &mut World) {
        if !self.modes.is_strict() || self.geometry.data() == 1 || !self.become_sound(world) {
            return;
        }
        let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
            return;
        };
        if !self.may_leave(world) || !self.write_and_wait(world, asked.clone()) {
            return;
        }
        // Or it is written once more together with a block of another member, and that one leaves:
        // its part of the second write is erased, and the first one must not come back.
        let more = u64::from(self.geometry.chunk_blocks());
        let more = self.client.write_more(&asked, more);
        let more = more.filter(|_| self.random.happens(500));
        let is_more = more.is_some();
        let (again, block) = more.unwrap_or_else(|| (self.client.write_again(&asked), block));
        if is_more && !self.write_and_wait(world, again.clone()) {
            return;
        }
        let position = self.holder(world, block);
        self.take_away(world, position);
        if is_more {
            self.write_some(world, 1);
        } else if !self.write_and_wait(world, again) {
            return;
        }
        self.wait(world, |history, world| history.has_left(world, position));
        if !self.brings_back(world, position) {
            return;
        }
        self.wait(world, |_, world| world.shards[world.home].map().is_whole());
        if let Some(flush) = self.client.flush() {
            let _ = self.write_and_wait(world, flush);
        }
        self.power_is_due = true;
        self.dies_at_once = self.is_sound(world);
    }

    /// The end comes while the first write for long is on the log, which a member misses that is
    /// away for longer.
    pub(super) fn die_while_logging(&mut self, world: &mut World) {
        if self.geometry.data() == 1 || !self.become_sound(world) {
            return;
        }
        let position = self.random.position(self.geometry.members());
        self.take_away(world, position);
        self.write_some(world, 1);
        self.wait(world, |history, world| history.has_left(world, position));
        if self.has_left(world, position) {
            self.die_writing(world);
        }
    }

    /// While a member comes back a reactor is slow to hear of it, and is asked to write where that
    /// member has missed nothing.
    pub(super) fn write_while_not_all_know(&mut self, world: &mut World) {
        let others = world.shards.len() - 1;
        if others == 0 || !self.become_sound(world) {
            return;
        }
        let slow = (world.home + 1 + self.random.position(others)) % world.shards.len();
        self.idle(world);
        let position = self.random.position(self.geometry.members());
        if !self.may_leave(world) {
            return;
        }
        self.take_away(world, position);
        self.write_some(world, 1);
        self.wait(world, |history, world| {
            history.has_left(world, position) && history.client.pending() == 0
        });
        self.idle(world);
        world.outside.mail_is_slow[slow] = true;
        if !self.brings_back(world, position) {
            return;
        }
        for _ in 0..TURNS {
            if self.is_back(world, position) {
                break;
            }
            self.turn(world, 2);
        }
        for _ in 0..WRITES {
            let fits = |holder, owner| holder == position && owner == slow;
            let Some((asked, _)) = self.draw_where(world, fits) else {
                break;
            };
            let _ = self.client.submit_on(asked, world, slow);
        }
        self.wait(world, |history, _| {
            history.client.pending() == 0 && history.given.is_none()
        });
        self.read_back(world);
    }

    /// A member leaves when a pass is done and this is about to be made durable; what it was given
    /// by the pass it may have lost. Then it comes back.
    pub(super) fn leave_at_the_end_of_a_pass(&mut self, world: &mut World) {
        let is_new = self.torn && self.outcome.crashes == 0 && self.is_sound(world);
        if !is_new && !self.become_sound(world) {
            return;
        }
        let mut position = self.random.position(self.geometry.members());
        if !is_new {
            self.take_away(world, position);
            let writes = 3 + self.random.below(6);
            self.write_some(world, writes);
            self.wait(world, |history, world| history.has_left(world, position));
            self.idle(world);
            if !self.brings_back(world, position) {
                return;
            }
        }
        if !self.await_the_end_of_a_pass(world) {
            return;
        }
        if is_new {
            position = self.random.position(self.geometry.members());
        }
        self.take_away(world, position);
        self.wait(world, |history, world| history.has_left(world, position));
        if self.has_left(world, position) {
            let _ = self.brings_back(world, position);
        }
    }

    /// Goes on until a pass has done all and its end is not recorded yet; whether it came to that.
    fn await_the_end_of_a_pass(&mut self, world: &mut World) -> bool {
        for _ in 0..100 * TURNS {
            let stripes = self.geometry.stripes();
            let map = world.shards[world.home].map();
            let coordinator = world.shards[world.home].coordinator().expect("home");
            let config = coordinator.config();
            let recorded = config.resynced_until.0 >= stripes;
            let done = match world.shards[world.home].pass_status() {
                Some(status) if status.pass == Pass::Rebuild => status.done.0 >= stripes,
                Some(_) => false,
                None => !recorded && map.trusted_until.0 >= stripes,
            };
            if done {
                return !self.torn;
            }
            if map.is_whole() && recorded && self.given.is_none() {
                return false;
            }
            self.turn(world, 1);
        }
        false
    }

    // ---- steps ---------------------------------------------------------------------------

    /// A write of a block whose holder and owner fit, where no member that came back lacks
    /// anything; and its owner.
    pub(super) fn draw_where(
        &mut self,
        world: &World,
        fits: impl Fn(usize, usize) -> bool,
    ) -> Option<(Asked, usize)> {
        let map = world.shards[world.home].map();
        for _ in 0..LOOKS {
            let (asked, block) = self.client.draw_block(&mut self.random)?;
            let (stripe, _) = self.geometry.locate(block);
            let Some(owner) = map.owner(stripe).map(ReactorIndex::at) else {
                continue;
            };
            if map.unfilled(stripe).is_empty() && fits(self.holder(world, block), owner) {
                return Some((asked, owner));
            }
        }
        None
    }

    /// The member that holds a block of the array.
    pub(super) fn holder(&self, world: &World, block: u64) -> usize {
        let map = world.shards[world.home].map();
        let (stripe, start) = self.geometry.locate(block);
        let role = start / self.geometry.chunk_blocks();
        let role = Role::from_at(bytes_usize(u64::from(role)));
        map.member(stripe, role).0.at()
    }

    fn take_away(&mut self, world: &mut World, position: usize) {
        let drive = world.shards[world.home].map().members[position].drive;
        let drive = &mut world.outside.drives[drive.expect("it is in use").at()];
        drive.hurt = true;
        drive.gone = true;
    }

    /// A drive answers what it has kept, and returns if it was left out: all is in order again.
    pub(super) fn answer_and_return(&mut self, world: &mut World, position: usize, drive: usize) {
        world.outside.drives[drive].let_writes_go();
        self.run_until(world, |history, world| {
            world.outside.drives[drive].pending() == 0 && history.client.pending() == 0
        });
        if self.has_left(world, position) && self.given.is_none() {
            let _ = self.return_one(world, position);
            self.await_commands(world);
        }
        self.refill(world);
        self.read_everything(world);
        self.settle(world);
    }

    /// Whether every reactor knows that the member is out.
    pub(super) fn has_left(&self, world: &World, position: usize) -> bool {
        let is_out = |shard: &Shard| shard.map().members[position].state == MapState::Lost;
        world.shards.iter().all(is_out)
    }

    fn is_back(&self, world: &World, position: usize) -> bool {
        matches!(
            world.shards[world.home].map().members[position].state,
            MapState::Rebuilding { .. }
        )
    }

    /// Asks for the return of a member that has left; whether there is such a member.
    fn brings_back(&mut self, world: &mut World, position: usize) -> bool {
        self.has_left(world, position) && self.given.is_none() && self.return_one(world, position)
    }

    pub(super) fn write_and_wait(&mut self, world: &mut World, asked: Asked) -> bool {
        if !self.client.submit(asked, world) {
            return false;
        }
        self.wait(world, |history, _| history.client.pending() == 0);
        self.client.pending() == 0
    }

    /// Goes on until `done`, for some time at most: what is hung stays hung.
    pub(super) fn wait(&mut self, world: &mut World, done: impl Fn(&History, &World) -> bool) {
        for _ in 0..TURNS {
            if done(self, world) {
                return;
            }
            self.turn(world, 40);
        }
    }
}
