//! Spells: some drives at once are not there, or take no writes, and then work again as they were.
//! The array waits for those that it cannot do without. As long as it has not waited for too long,
//! nobody is told of an error.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// When some members work again, so long is waited for the others before they are left out.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// A hold was seen up to so long after it had begun.
const SOONER: Duration = Duration::from_secs(2);

/// One that begins so soon after another may be the same (`coordinate/hold/last.rs`).
const RELAPSE: Duration = Duration::from_secs(10);

/// What is known of members that are waited for.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// When they were first seen to be, and when last.
    since: Option<Instant>,
    seen: Instant,
    /// Since all was well, some were in vain.
    pub(super) gave_up: bool,
}

/// What passes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spell {
    kind: Kind,
    ends: Instant,
    /// It lasts longer than anybody waits.
    is_long: bool,
    /// The drive of the one that fails a flush for good as soon as all others of its group are
    /// waited for.
    loses: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An enclosure blinks, and its drives are answered for so.
    Blink(Status),
    /// The file system behind drives is full.
    Full,
    /// Writes fail.
    Refusing,
    /// Another host has reserved drives: it alone may write, and all may read.
    Reserved,
}

impl Holds {
    /// Another engine begins, and time with it.
    pub(super) fn begin(&mut self) {
        (self.since, self.seen) = (None, Instant(0));
    }
}

impl Spell {
    /// Drives are gone until somebody ends that.
    pub(super) fn endless(now: Instant) -> Spell {
        Spell {
            kind: Kind::Blink(Status::Gone),
            ends: now + Duration::from_secs(1 << 20),
            is_long: true,
            loses: None,
        }
    }
}

impl History {
    /// Whether what the array is asked may end with an error.
    pub(super) fn may_fail(&self) -> bool {
        self.client.doomed || self.abandons
    }

    /// A spell begins, if every member that counts is well.
    pub(super) fn begin_spell(&mut self, world: &mut World) {
        let map = world.shards[world.home].map().clone();
        let is_doubtful = |member: &array::MapMember| {
            let well = |drive: DriveIndex| {
                let drive = &world.outside.drives[drive.at()];
                drive.is_well() && !self.client.has_pending(drive.met_bad)
            };
            member.state != MapState::Lost && !member.drive.is_some_and(well)
        };
        let may_leave_out = self.geometry.parity() > 0 && self.torn;
        let busy = self.given.is_some()
            || !self.rot.is_empty()
            || self.spell.is_some()
            || map.is_holding();
        if busy || may_leave_out || map.members.iter().any(is_doubtful) {
            return;
        }
        let kind = match self.random.below(6) {
            0 | 1 => Kind::Blink(Status::Gone),
            2 => Kind::Blink(Status::Media),
            3 => Kind::Full,
            4 => Kind::Refusing,
            _ => Kind::Reserved,
        };
        let limit = self.hold_seconds(world);
        let is_long = limit == 0 || self.random.happens(300);
        let most = if is_long {
            limit * 2000 + 3000
        } else {
            (limit * 1000).saturating_sub(4000).max(1)
        };
        let lasts = Duration::from_millis(self.random.below(most));
        // Members come back one after another, half a second each at this pace.
        let back = 4 + bytes_u64(map.members.len()) / 2;
        let is_long = is_long || lasts.as_secs() + back > limit;
        let now = world.outside.now;
        self.spell = Some(Spell {
            kind,
            ends: now + lasts,
            is_long,
            loses: None,
        });
        self.is_spelled = true;
        self.client.is_refused |= kind == Kind::Refusing;
        self.outcome.spells.0 += 1;
        let all = self.random.happens(400);
        let each = 1 + self.random.below(4);
        let mut chosen = false;
        for (position, member) in map.members.iter().enumerate() {
            let Some(drive) = member.drive.filter(|_| member.state != MapState::Lost) else {
                continue;
            };
            let last = position + 1 == map.members.len();
            if !(all || self.random.happens(500) || (last && !chosen)) {
                continue;
            }
            chosen = true;
            let drive = &mut world.outside.drives[drive.at()];
            match kind {
                Kind::Blink(status) => drive.away = Some(status),
                Kind::Full => drive.refuses = Some((each, Status::NoSpace)),
                Kind::Refusing => drive.refuses = Some((each, Status::Media)),
                Kind::Reserved => drive.refuses = Some((1, Status::Gone)),
            }
            // One that is filled is left out rather than waited for, and so is one that is still
            // full when another took what it was asked as a trial.
            let fills = member.state != MapState::InSync;
            let straggles = each > 1 && lasts >= STRAGGLERS;
            // So is one about which nobody can be asked in time (`note_slow_mail`).
            let late = world.outside.mail_is_slow.contains(&true);
            drive.hurt |= kind != Kind::Full || is_long || fills || straggles || late;
        }
        if !is_long {
            self.lose_beside_a_blink(world, kind);
        }
    }

    /// All of a group blink but one, which fails a flush for good when they are waited for. It is
    /// left out when they are back, and nobody is told of an error.
    fn lose_beside_a_blink(&mut self, world: &mut World, kind: Kind) {
        let Kind::Blink(status) = kind else {
            return;
        };
        if self.random.happens(500) {
            return;
        }
        let map = world.shards[world.home].map().clone();
        let position = self.random.position(map.members.len());
        let group = self.geometry.group_members();
        let first = position / group * group;
        let members = map.members.iter().enumerate().skip(first).take(group);
        let is_in_sync = |member: &array::MapMember| member.state == MapState::InSync;
        let in_sync = members.clone().filter(|(_, member)| is_in_sync(member));
        let spare = group - in_sync.count() < self.spare_parity(position);
        if self.geometry.data() == 1 || !spare || !is_in_sync(&map.members[position]) {
            return;
        }
        for (at, member) in members {
            let Some(drive) = member.drive.filter(|_| member.state != MapState::Lost) else {
                continue;
            };
            let drive = &mut world.outside.drives[drive.at()];
            drive.hurt = true;
            drive.away = Some(status).filter(|_| at != position);
        }
        let drive = map.members[position].drive.map(|drive| drive.at());
        self.spell.as_mut().expect("it has begun").loses = drive;
    }

    /// Who is to fail a flush while others are waited for does from now on, if they are.
    fn follow_loss(&mut self, world: &mut World) {
        let Some(drive) = self.spell.and_then(|spell| spell.loses) else {
            return;
        };
        let map = world.shards[world.home].map();
        let at = |member: &array::MapMember| member.drive.is_some_and(|one| one.at() == drive);
        let Some(position) = map.members.iter().position(at) else {
            return;
        };
        let group = self.geometry.group_members();
        let first = position / group * group;
        let mut others = (first..first + group).filter(|&other| other != position);
        if !others.all(|other| map.held[other] || map.members[other].state == MapState::Lost) {
            return;
        }
        world.outside.drives[drive].failing = Some(Failing {
            what: Failure::Flushes,
            after: 0,
            count: 1,
            status: Status::Media,
        });
        self.spell.as_mut().expect("looked at").loses = None;
        self.outcome.spells.1 += 1;
    }

    /// All members blink while some of them write, and the array is stopped before they are back:
    /// what had begun ends with an error, and torn. Whether it came to that.
    pub(super) fn abandon_a_hold(&mut self, world: &mut World) -> bool {
        if !self.become_sound(world) {
            return false;
        }
        self.wait(world, |history, _| {
            history.given.is_none() && history.change.is_none()
        });
        self.write_at_once(world);
        // One that is about to be left out is as good as out.
        let leaves = (0..self.geometry.members()).any(|member| self.out(world, member) > 0);
        let busy = self.given.is_some() || self.change.is_some() || self.torn || leaves;
        if busy || !self.is_sound(world) {
            return false;
        }
        let status = [Status::Gone, Status::Media][self.random.position(2)];
        for member in &world.shards[world.home].map().clone().members {
            let drive = member.drive.expect("all are in sync");
            let drive = &mut world.outside.drives[drive.at()];
            (drive.away, drive.hurt) = (Some(status), true);
        }
        let kind = Kind::Blink(status);
        let ends = world.outside.now + Duration::from_secs(1 << 20);
        self.spell = Some(Spell {
            kind,
            ends,
            is_long: true,
            loses: None,
        });
        (self.is_spelled, self.abandons) = (true, true);
        self.client.lenient = u64::MAX;
        for _ in 0..self.random.below(400) {
            self.turn(world, 4);
        }
        self.give(world, Given::Stop, Command::Stop);
        for _ in 0..self.random.below(400) {
            self.turn(world, 4);
        }
        self.outcome.abandoned += 1;
        true
    }

    fn hold_seconds(&self, world: &World) -> u64 {
        let coordinator = world.shards[world.home].coordinator().expect("home");
        coordinator.config().options.hold_timeout_seconds.into()
    }

    /// Ends a spell that is over, and notes whether errors are to be expected.
    pub(super) fn follow_spell(&mut self, world: &mut World) {
        self.note_given_up(world);
        let now = world.outside.now;
        if self.spell.is_some_and(|spell| now >= spell.ends) && !is_unexplained(world) {
            self.end_spell(world);
        }
        self.follow_loss(world);
        self.note_slow_mail(world);
        self.note_refusals(world);
        for event in &world.outside.events {
            self.outcome.records_moved += u64::from(matches!(event, Event::RecordMoved { .. }));
            self.outcome.slots_refused += u64::from(matches!(event, Event::LogSlotRefused { .. }));
        }
        self.is_spelled &= self.spell.is_some() || world.is_in_trouble();
        let takes_all = |drive: &SimDrive| drive.refuses.is_none() && drive.unwritable.is_empty();
        let is_over = world.outside.drives.iter().all(takes_all) && !world.is_in_trouble();
        if is_over && !world.shards[world.home].bars_regions() {
            self.client.forget_refused_stripes();
        }
        let given_up = |shard: &Shard| shard.map().given_up;
        if self.client.lenient == u64::MAX && !world.shards.iter().any(given_up) {
            self.client.lenient = self.client.begun;
        }
    }

    /// Members are waited for where too few are well without them, or because they are full; and
    /// others that failed at the same time, of other groups, too. What was waited for in vain, for
    /// as long as was said, may end with an error.
    pub(super) fn note_given_up(&mut self, world: &World) {
        let now = world.outside.now;
        // Who is full is waited for, and with it whoever failed at the same time.
        let mut events = world.outside.events.iter();
        let is_full = |event: &Event| {
            let full = Status::NoSpace;
            matches!(event, Event::Holds { status, .. } if *status == full)
        };
        let may_be = self.client.doomed || events.any(is_full);
        for event in &world.outside.events {
            if let Event::Holds { member, .. } = *event {
                let is_needed = may_be || !self.all_can_do_without(world, Some(member));
                assert!(is_needed, "others are well: {event:?}");
                let is_new = now.since(self.holds.seen) >= RELAPSE;
                let begun = self.holds.since.filter(|_| !is_new).unwrap_or(now);
                (self.holds.since, self.holds.seen) = (Some(begun), now);
            }
            if let Event::HoldTimedOut { after } = *event {
                let since = self.holds.since.map_or(Duration::ZERO, |at| now.since(at));
                // Who steps through a stop hears of both at once.
                let since = if since.is_zero() { after } else { since };
                let is_long = since + SOONER >= Duration::from_secs(self.hold_seconds(world));
                let may_be = is_long && !self.all_can_do_without(world, None);
                let may_be = may_be || self.client.doomed;
                assert!(may_be, "others are well, or it was not long: {since:?}");
                self.client.lenient = u64::MAX;
                self.holds.gave_up = true;
                self.outcome.given_up += 1;
            }
        }
        if world.shards[world.home].map().is_holding() {
            self.holds.seen = now;
        }
    }

    /// Of the group that this member is in, those in sync with whose drives nothing was ever wrong
    /// since all was well.
    fn well_of_group(&self, world: &World, member: usize) -> impl Iterator<Item = usize> {
        let group = self.geometry.group_members();
        let map = world.shards[world.home].map().clone();
        let drives = &world.outside.drives;
        let well = move |at: &usize| {
            let member = &map.members[*at];
            let is_well = |drive: DriveIndex| !drives[drive.at()].hurt;
            member.state == MapState::InSync && member.drive.is_some_and(is_well)
        };
        let first = member / group * group;
        (first..first + group).filter(well)
    }

    /// Whether enough others of its group are well.
    fn can_do_without(&self, world: &World, member: MemberIndex) -> bool {
        let well = self.well_of_group(world, member.at());
        let others = well.filter(|&other| other != member.at());
        others.count() >= self.geometry.data()
    }

    /// Whether enough are well in each group, without a member.
    fn all_can_do_without(&self, world: &World, member: Option<MemberIndex>) -> bool {
        let mut firsts = (0..self.geometry.members()).step_by(self.geometry.group_members());
        let enough = |first: usize| {
            let well = self.well_of_group(world, first);
            let others = well.filter(|&other| member.is_none_or(|member| other != member.at()));
            others.count() >= self.geometry.data()
        };
        firsts.all(enough)
    }

    /// A drive that refuses some writes and takes others costs just these, where the array cannot
    /// do without it.
    pub(super) fn note_refusals(&mut self, world: &World) {
        let blocks = u64::from(self.geometry.stripe_blocks());
        for event in &world.outside.events {
            let Event::WriteRefused {
                member,
                first,
                rows,
            } = *event
            else {
                continue;
            };
            let may_be = self.client.is_refused && !self.can_do_without(world, member);
            assert!(
                may_be || self.client.doomed,
                "{member} refuses nothing, or is not needed: {event:?}"
            );
            let stripe = StripeIndex(first / blocks);
            let end = match self.refused_regions(member, stripe, rows) {
                Some(end) => {
                    self.outcome.blocks_refused.1 += 1;
                    end.0
                }
                None => stripe.0 + 1,
            };
            self.client.refused.push(stripe.0 * blocks..end * blocks);
            self.outcome.blocks_refused.0 += 1;
        }
        // Beyond redundancy more is given up than what is being written.
        if !self.client.is_refused || self.client.doomed {
            return;
        }
        for shard in &world.shards {
            let lost = shard.map().lost_blocks.runs();
            let lost = lost.flat_map(|(first, count)| first..first + count);
            self.client.give_up_written(lost);
        }
    }

    /// Whether a member works again is asked all reactors: when a question takes long, it may be
    /// left out although it works again in time.
    fn note_slow_mail(&self, world: &mut World) {
        if !world.outside.mail_is_slow.contains(&true) {
            return;
        }
        let map = world.shards[world.home].map();
        for (member, held) in map.members.iter().zip(&map.held) {
            if let Some(drive) = member.drive.filter(|_| *held) {
                world.outside.drives[drive.at()].hurt = true;
            }
        }
    }

    /// If these are the rows of a region, or of all that a block of the map describes, the stripe
    /// after the last: none of them is written for a while.
    fn refused_regions(
        &self,
        member: MemberIndex,
        first: StripeIndex,
        rows: u32,
    ) -> Option<StripeIndex> {
        let space = self.superblock(MemberIndex(0), Uuid::nil()).regions();
        let region = space.region(first);
        let number = |region: usize| u32::try_from(region).expect("few");
        let mut blocks = (0..).take(space.blocks()).map(|block| space.regions(block));
        let block = blocks.find(|regions| regions.contains(&bytes_usize(region.into())));
        let block = block.expect("every region is in a block");
        let group = member.at() / self.geometry.group_members();
        for regions in [region..region + 1, region..number(block.end)] {
            let (start, _) = space.stripes(regions.start);
            let (_, end) = space.stripes(regions.end - 1);
            let stripes = (start.0..end.0).map(StripeIndex);
            let its = stripes.filter(|&stripe| self.geometry.group(stripe).at() == group);
            let its = bytes_u64(its.count()) * u64::from(self.geometry.chunk_blocks());
            if start == first && its == u64::from(rows) {
                return Some(end);
            }
        }
        None
    }

    /// Lets the array find out that drives are away.
    pub(super) fn explain(&mut self, world: &mut World) {
        self.run_until(world, |_, world| !is_unexplained(world));
    }

    /// Ends what spell there is, once all that it made fail is explained.
    pub(super) fn end_any_spell(&mut self, world: &mut World) {
        if self.spell.is_some() {
            self.explain(world);
            self.end_spell(world);
        }
    }

    pub(super) fn end_spell(&mut self, world: &mut World) {
        self.spell = None;
        for drive in &mut world.outside.drives {
            drive.end_spell();
        }
    }

    /// The end of a spell before what follows needs drives that are well, or a stop in the middle
    /// of it, where that tears no more than any other stop.
    pub(super) fn leave_spell(&mut self, world: &mut World) -> bool {
        if !self.is_spelled {
            return false;
        }
        let map = world.shards[world.home].map();
        let whole = map.is_whole() && world.outside.drives.iter().all(|drive| !drive.gone);
        let harmless = |spell: Spell| spell.kind == Kind::Full && !spell.is_long;
        let no_exclusion = whole && self.spell.is_some_and(harmless);
        let may = self.geometry.parity() == 0 || no_exclusion;
        if may && self.given.is_none() && self.random.happens(700) {
            return true;
        }
        self.calm(world);
        self.explain(world);
        self.end_spell(world);
        self.run_until(world, |history, _| !history.is_spelled);
        false
    }
}

/// Whether a drive failed and nobody knows yet whether it is away: one that came back now would
/// count as one that has lost what a flush should have kept.
fn is_unexplained(world: &World) -> bool {
    world.shards.iter().any(Shard::is_in_doubt)
}
