//! Drives that take long. Time is counted in looks, one each 10 ms while member requests are under
//! way: so a reactor that did not run for a while does not blame the drives for it.
//!
//! * A member is *slow* while a request to it is older than 30 ms and than four times what is usual
//!   among its peers. Reads go around it: they are reconstructed, or another copy is read.
//! * One that answers, but lags behind its peers (`crate::laggards`), is read around too.
//! * A member that was asked and has answered nothing for 3 s is *late*: its home excludes it, if
//!   the array can do without it and no stripe waits for a resync. Else it is waited for. One that
//!   answers something has a long queue; but not when it keeps a read or a write for ten times as
//!   long, while its peers do not: kernels give up what a drive does not answer, and who else keeps
//!   it (a file system that is frozen) may do so for ever.
//! * What a member that is out was asked and has not answered is *abandoned*: whoever waits for it
//!   is told that it is gone. Memory that the drive may write to stays the request's until it
//!   answers after all. A read into a guest's own memory is not abandoned, for the same reason.
//!   What an abandoned write takes to the drive does not matter: the drive counts for nothing, and
//!   nobody uses it again before it has answered (`control/host`).

mod ages;
mod hear;
mod patience;

use block::{Operation, Status};
use units::limits::GROUP_MEMBERS_MAX;
use units::{Instant, MemberIndex, Role, RoleSet, StripeIndex};

use super::bounce::Budget;
use super::coordinate::Fate;
use super::{DriveIo, IoOwner, Shard};
use crate::buffers::TicketBuffers;
use crate::coordinator::can_exclude;
use crate::format::{ArrayConfig, HedgedReads, MemberState};
use crate::io::{Io, MemberFailure};
use crate::map::{ArrayMap, MapState};
use crate::planted::{self, Fault};

pub use ages::Waits;
pub use patience::Patience;

/// A slow member's oldest request is so many times as old as its peers'.
const SLOWER: u32 = 4;
/// A slow member that keeps a read, a write or the zeroes before a first one for so many times as
/// long as one that is silent is late, whatever else it answers.
const KEPT: u32 = 10;
/// Looks after which what was usual counts for three quarters.
const USUAL_FOR: u32 = 64;

/// Buffers of a ticket that drives may still write to.
#[derive(Debug, Default)]
struct Grave {
    /// Reads that are not answered.
    pending: u32,
    /// The roles that they read.
    roles: RoleSet,
    /// A ticket names it.
    owned: bool,
    /// Once the ticket does not need them any more.
    buffers: Option<TicketBuffers>,
}

/// How a member answers.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// The look before which it answered last, and the spell of requests.
    heard: u32,
    spell: u32,
    /// How old requests were lately when they were answered, in looks.
    usual: u32,
    /// The age of its oldest request, in looks.
    oldest: u32,
    /// The age of its oldest read or write, in looks. How long a flush takes depends on all that
    /// was written.
    kept: u32,
}

/// See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what is slow now, and what was lately"
)]
pub(super) struct Late {
    pub(super) patience: Patience,
    /// Looks so far.
    pub(super) now: u32,
    pub(super) next: Option<Instant>,
    /// When others are heard again by who had nothing to do.
    hears_next: Instant,
    /// Counts the times without a pause in which requests are under way: an answer of an earlier
    /// one is old, however few looks ago it came. And whether there was a look in this one.
    spell: u32,
    has_looked: bool,
    /// The age of the oldest of all, be it given up or of a drive that is out; and whether some are
    /// of such a drive.
    longest: u32,
    any_out: bool,
    /// By member.
    answers: Vec<Answers>,
    /// By member: what other shards had heard of it.
    others: Vec<u32>,
    /// By member: slow as seen from here.
    slow: Vec<bool>,
    /// Some member is slow, as seen from any shard, or lags.
    pub(super) any_slow: bool,
    /// By member: it was slow lately, or reads of all go through buffers. And whether any is so.
    shaky: Vec<bool>,
    pub(super) any_shaky: bool,
    hedges_all: bool,
    pub(super) budget: Budget,
    graves: Vec<Grave>,
}

impl Late {
    /// Whether reads of a member go through buffers.
    pub(super) fn is_shaky(&self, member: MemberIndex) -> bool {
        self.shaky[member.at()]
    }

    /// Whether anything was under way for so long, at the last look, that its member may be slow.
    pub(super) fn waits_long(&self) -> bool {
        self.longest >= self.patience.slow
    }

    pub(super) fn new(patience: Patience, map: &ArrayMap) -> Late {
        let members = map.members.len();
        let mut late = Late {
            patience,
            now: 0,
            next: None,
            hears_next: Instant(0),
            spell: 0,
            has_looked: false,
            longest: 0,
            any_out: false,
            answers: vec![Answers::default(); members],
            others: vec![0; members],
            slow: vec![false; members],
            any_slow: false,
            shaky: vec![false; members],
            any_shaky: false,
            hedges_all: false,
            budget: Budget::new(patience.hedging),
            graves: Vec::new(),
        };
        late.follow(map);
        late
    }

    /// Acts by `map`. Where all reads can be given up, the first is already.
    pub(super) fn follow(&mut self, map: &ArrayMap) {
        let always = map.hedged_reads == HedgedReads::Always && map.geometry.parity() > 0;
        self.hedges_all = always;
        if always {
            self.shaky.fill(true);
            self.any_shaky = true;
        }
    }
}

impl Shard {
    /// When the drives are to be looked at again.
    pub(super) fn look_deadline(&self) -> Option<Instant> {
        let next = self.late.next?;
        let looks = self.ios.in_use() > 0 || self.late.slow.contains(&true) || self.has_trials();
        looks.then_some(next)
    }

    /// Looks at what is under way, when it is time.
    pub(super) fn advance_late(&mut self, io: &mut impl Io) -> usize {
        if self.ios.in_use() == 0 && !self.late.any_slow {
            if self.late.next.take().is_some() && self.late.has_looked {
                self.tell_heard();
            }
            return 0;
        }
        let now = io.now();
        let Some(next) = self.late.next else {
            self.late.next = Some(now + self.late.patience.look);
            self.late.spell = self.late.spell.wrapping_add(1);
            self.late.has_looked = false;
            return 0;
        };
        if now < next {
            return 0;
        }
        self.late.next = Some(now + self.late.patience.look);
        self.late.has_looked = true;
        self.listen();
        self.late.now = self.late.now.wrapping_add(1);
        if self.late.now.is_multiple_of(USUAL_FOR) {
            for Answers { usual, .. } in &mut self.late.answers {
                *usual -= usual.div_ceil(4);
            }
        }
        self.measure();
        self.call_slow(now);
        self.report_late();
        let mut moved = 0;
        self.late.budget.refill(self.counters.direct_reads);
        if self.late.any_slow {
            moved += self.try_laggards(io);
            moved += self.give_up_reads(io);
        }
        moved + self.abandon_what_is_out(io) + self.abandon_records(io)
    }

    /// Says which members are slow as seen from here, and hears which are as seen from anywhere.
    fn call_slow(&mut self, now: Instant) {
        self.late.any_slow = false;
        for position in 0..self.map.members.len() {
            let slow = self.is_slow_here(position);
            if slow != self.late.slow[position] {
                self.late.slow[position] = slow;
                self.shared.call_slow(position, self.me, slow);
                self.counters.slow_spells += u64::from(slow);
            }
            if slow {
                self.shared
                    .call_shaky(position, now + self.late.patience.shaky);
            }
            let lags = self.shared.lags(MemberIndex::from_at(position));
            self.late.any_slow |= lags || self.shared.is_slow(position);
        }
        self.hear_shaky(now);
    }

    fn is_slow_here(&self, position: usize) -> bool {
        let age = self.late.answers[position].oldest;
        if age < self.late.patience.slow || self.map.members[position].state == MapState::Lost {
            return false;
        }
        let group = self.map.geometry.group_members();
        let first = position / group * group;
        let mut peers = [0; GROUP_MEMBERS_MAX];
        let mut count = 0;
        for other in first..first + group {
            if other != position && self.map.members[other].state != MapState::Lost {
                peers[count] = self.late.answers[other]
                    .oldest
                    .max(self.late.answers[other].usual);
                count += 1;
            }
        }
        let peers = &mut peers[..count];
        peers.sort_unstable();
        // Of two the lesser: one that is stuck must not excuse the other.
        let usual = peers.get(count.saturating_sub(1) / 2).copied();
        usual.is_some_and(|usual| age > usual.saturating_mul(SLOWER))
    }

    /// Looks since a member that has something to answer has answered something; or since it was
    /// asked what it keeps for ever.
    fn silence(&self, position: usize) -> u32 {
        let Answers { heard, kept, .. } = self.late.answers[position];
        let for_ever = self.late.patience.late.saturating_mul(KEPT);
        let counts = !planted::is(Fault::KeptForEver);
        if self.late.slow[position] && kept >= for_ever && counts {
            return kept;
        }
        let since = self.late.now.wrapping_sub(heard);
        since.min(self.late.answers[position].oldest)
    }

    /// Whether what was given up on a member had waited for long.
    pub(super) fn is_silent(&self, member: MemberIndex) -> bool {
        let since = self
            .late
            .now
            .wrapping_sub(self.late.answers[member.at()].heard);
        since >= self.late.patience.late
    }

    /// Whether nothing may be read around a member: where parity or copies may be wrong, the same
    /// chunk is read each time, and who goes around a member may meet one of its group that is
    /// waited for, or that may have lost some.
    pub(super) fn may_differ(&self, stripe: StripeIndex) -> bool {
        let may_differ = !self.map.parity_trusted(stripe, false)
            || self.map.read_only
            || (self.holding && self.map.waits_in_group(stripe))
            || self.is_open(stripe)
            || self.map.is_torn(stripe);
        may_differ && !planted::is(Fault::DetourOverUntrusted)
    }

    /// The roles of `stripe` that are slow and that it can be read without, besides those of
    /// `lost`.
    pub(super) fn slow_roles(&self, stripe: StripeIndex, lost: RoleSet) -> RoleSet {
        let mut slow = RoleSet::EMPTY;
        if !self.late.any_slow {
            return slow;
        }
        if self.may_differ(stripe) {
            return slow;
        }
        let all = || (0..self.map.members.len()).map(MemberIndex::from_at);
        // What does not answer is worse than what takes long.
        let stuck = all().filter(|member| self.shared.is_slow(member.at()));
        let lag = all().filter(|&member| self.shared.lags(member));
        for member in stuck.chain(lag) {
            let role = self.geometry().role(stripe, member);
            let Some(role) = role.filter(|role| !lost.has(*role)) else {
                continue;
            };
            if lost.len() + slow.with(role).len() <= self.geometry().parity() {
                slow = slow.with(role);
            }
        }
        slow
    }

    /// Tells the home of members that do not answer, again and again as long as they do not.
    fn report_late(&mut self) {
        let late = self.late.patience.late;
        for position in 0..self.map.members.len() {
            let age = self.silence(position);
            let entry = self.map.members[position];
            let is_due = age >= late && (age - late).is_multiple_of(late / 4 + 1);
            if !is_due || entry.state == MapState::Lost || !self.others_answer(position) {
                continue;
            }
            let member = MemberIndex::from_at(position);
            let known = |told: &MemberFailure| told.member == member;
            if !self.reports.iter().any(known) {
                self.reports.push(MemberFailure {
                    member,
                    incarnation: entry.incarnation,
                    status: Status::Gone,
                    late: true,
                    passing: false,
                });
            }
        }
    }

    // ---- abandoning ----------------------------------------------------------------------

    /// Abandons what members that are out have not answered for long.
    fn abandon_what_is_out(&mut self, io: &mut impl Io) -> usize {
        if !self.late.any_out && !planted::is(Fault::AbandonedBeforeExclusion) {
            return 0;
        }
        let is_out = |shard: &Shard, done: &DriveIo| {
            let entry = &shard.map.members[done.member.at()];
            let out = entry.state == MapState::Lost || entry.incarnation != done.incarnation;
            let early = shard.silence(done.member.at()) >= shard.late.patience.late;
            let out = out || (early && planted::is(Fault::AbandonedBeforeExclusion));
            let may = match done.owner {
                // A guest's memory is not ours; records are written to members that the map does
                // not have yet.
                IoOwner::Nobody
                | IoOwner::Abandoned { .. }
                | IoOwner::GivenUp { .. }
                | IoOwner::Direct { .. }
                | IoOwner::Metadata => false,
                IoOwner::Flush { .. }
                | IoOwner::Bounced { .. }
                | IoOwner::Ticket { .. }
                | IoOwner::Log { .. }
                | IoOwner::LogFlush
                | IoOwner::Region
                | IoOwner::Probe
                | IoOwner::Trial
                | IoOwner::RollCall { .. }
                | IoOwner::Doubt
                | IoOwner::Zeroing
                | IoOwner::Clear => true,
            };
            may && out
        };
        self.abandon_where(is_out, io)
    }

    /// Abandons records that a member does not take which the array can do without: nobody is
    /// excluded as long as another change is under way.
    fn abandon_records(&mut self, io: &mut impl Io) -> usize {
        if self.late.longest < self.late.patience.late {
            return 0;
        }
        let Some(commit) = self
            .coordinator()
            .and_then(|decider| decider.commit.as_ref())
        else {
            return 0;
        };
        // Those that failed already are out of what this becomes.
        let mut config = commit.config.clone();
        for failed in &commit.failed {
            config.members[failed.member.at()].state = MemberState::Missing;
        }
        let (mut moved, mut from) = (0, 0);
        while let Some(slot) = self.ios.used_from(from) {
            from = slot + 1;
            let done = self.ios[slot];
            let is_record = matches!(done.owner, IoOwner::Metadata);
            // A drive that has just taken a place is not the one that is silent there.
            let asked = self.late.now.wrapping_sub(done.issued);
            let silence = self.silence(done.member.at()).min(asked);
            let is_late = is_record && silence >= self.late.patience.late;
            // One that would be waited for answers in its own time: what becomes of a flush that is
            // given up nobody hears.
            let failure = MemberFailure {
                member: done.member,
                incarnation: done.incarnation,
                status: Status::Gone,
                late: true,
                passing: true,
            };
            let is_late = is_late && self.fate(&config, &failure) == Fate::Excluded;
            if is_late && self.may_be_late(&config, done.member) {
                config.members[done.member.at()].state = MemberState::Missing;
                self.give_up_on(slot, io);
                moved += 1;
            }
        }
        moved
    }

    /// Whether a member is excluded for not answering, if the configuration were this.
    pub(super) fn may_be_late(&self, config: &ArrayConfig, member: MemberIndex) -> bool {
        // Without it, stripes that wait for their resync would be lost.
        let torn = self.map.trusted_until.0 < self.map.geometry.stripes();
        let torn = torn && !planted::is(Fault::LateWhileTorn);
        let can = can_exclude(&self.map.geometry, config, member);
        !torn && can && self.others_answer(member.at())
    }

    /// Whether enough members of the group answer, as far as this shard knows: when none does, it
    /// is not the drive that hangs.
    fn others_answer(&self, position: usize) -> bool {
        let group = self.map.geometry.group_members();
        let first = position / group * group;
        let answers = |other: &usize| {
            let in_sync = self.map.members[*other].state == MapState::InSync;
            in_sync && *other != position && self.silence(*other) < self.late.patience.late / 2
        };
        (first..first + group).filter(answers).count() >= self.map.geometry.data()
    }

    fn abandon_where(
        &mut self,
        which: impl Fn(&Shard, &DriveIo) -> bool,
        io: &mut impl Io,
    ) -> usize {
        if self.late.longest < self.late.patience.slow {
            return 0;
        }
        let mut moved = 0;
        let mut from = 0;
        while let Some(slot) = self.ios.used_from(from) {
            from = slot + 1;
            let done = &self.ios[slot];
            let age = self.late.now.wrapping_sub(done.issued);
            if age < self.late.patience.slow || !which(self, done) {
                continue;
            }
            self.give_up_on(slot, io);
            moved += 1;
        }
        moved
    }

    #[cold]
    fn give_up_on(&mut self, slot: u32, io: &mut impl Io) {
        let done = self.ios[slot];
        let look = self.late.now;
        let grave = match done.owner {
            IoOwner::Ticket { ticket, role } => {
                let keeps = self.keeps_buffers(ticket, done.operation);
                keeps.then(|| self.bury(ticket, role))
            }
            IoOwner::Bounced { bounce } => {
                self.counters.abandoned += 1;
                return self.abandon_bounced(slot, bounce, io);
            }
            IoOwner::Nobody
            | IoOwner::GivenUp { .. }
            | IoOwner::Log { .. }
            | IoOwner::Direct { .. }
            | IoOwner::Flush { .. }
            | IoOwner::LogFlush
            | IoOwner::Metadata
            | IoOwner::Region
            | IoOwner::Clear
            | IoOwner::Zeroing
            | IoOwner::Probe
            | IoOwner::Trial
            | IoOwner::RollCall { .. }
            | IoOwner::Doubt
            | IoOwner::Abandoned { .. } => None,
        };
        self.ios[slot].owner = IoOwner::Abandoned { grave, look };
        self.counters.abandoned += 1;
        self.note_borrower(&done, true);
        self.deliver(done, Status::Gone, io);
    }

    /// Whether a drive that is given up keeps the buffers of a request. One that reads may still
    /// write to them. What it writes late is nothing to a member that is out and will lack the
    /// region when it comes back; but where the region is not dirty (what a drive could not read is
    /// written again, a scrub corrects) it must be what was meant.
    fn keeps_buffers(&self, ticket: u32, operation: Option<Operation>) -> bool {
        let lacks = self.tickets[ticket].region.is_some() || planted::is(Fault::RewriteReused);
        operation == Some(Operation::Read) || !lacks
    }

    /// One more request that keeps buffers of a ticket; their grave.
    pub(super) fn bury(&mut self, ticket: u32, role: Role) -> u32 {
        let number = self.tickets[ticket].grave.unwrap_or_else(|| {
            let graves = &mut self.late.graves;
            let is_free =
                |grave: &Grave| !grave.owned && grave.pending == 0 && grave.buffers.is_none();
            let free = graves.iter().position(is_free).unwrap_or_else(|| {
                graves.push(Grave::default());
                graves.len() - 1
            });
            graves[free].roles = RoleSet::EMPTY;
            u32::try_from(free).expect("no more than requests")
        });
        self.tickets[ticket].grave = Some(number);
        let grave = &mut self.late.graves[crate::slots::at(number)];
        grave.owned = true;
        grave.pending += 1;
        grave.roles = grave.roles.with(role);
        number
    }

    /// A drive has answered what was abandoned.
    pub(super) fn abandoned_done(&mut self, (grave, look): (Option<u32>, u32)) {
        let Some(grave) = grave else {
            return;
        };
        self.counters.wasted_hedges += u64::from(look == self.late.now);
        let grave = &mut self.late.graves[crate::slots::at(grave)];
        grave.pending -= 1;
        if grave.pending == 0
            && let Some(mut buffers) = grave.buffers.take()
        {
            self.buffers.release(&mut buffers);
        }
    }

    /// Gives a ticket's buffers back, but for those that drives may still write to.
    pub(super) fn release_buffers(&mut self, slot: u32) {
        self.release_written(slot);
    }

    /// As `release_buffers`, of one that has written.
    #[inline(always)]
    pub(super) fn release_written(&mut self, slot: u32) {
        self.assert_not_lent(slot);
        let ticket = &mut self.tickets[slot];
        ticket.forget_begun(slot, self.begun.as_ref());
        self.borrowers -= usize::from(std::mem::take(&mut ticket.borrows));
        ticket.computed = false;
        if let Some(grave) = ticket.grave.take() {
            let grave = &mut self.late.graves[crate::slots::at(grave)];
            grave.owned = false;
            if grave.pending > 0 && !planted::is(Fault::AbandonedMemoryReused) {
                grave.buffers = Some(ticket.buffers.split_off(grave.roles));
            }
        }
        self.buffers.release(&mut ticket.buffers);
    }

    /// Forgets what was abandoned, as the death of the process would.
    pub(super) fn open_graves(&mut self) {
        for mut grave in self.late.graves.drain(..) {
            if let Some(buffers) = &mut grave.buffers {
                self.buffers.release(buffers);
            }
        }
    }
}
