//! Reads that can be given up.
//!
//! A read goes straight into the guest's memory, and until the drive answers it may write there:
//! so such a read is not answered from the other members, however long its drive takes. What goes
//! to memory of ours can be. That are the reads of tickets, and reads of *shaky* members: those
//! that were slow (`late`) within the last minutes are likely to be again, so what is read from
//! them goes to a buffer and is copied. Where all reads are hedged (`HedgedReads`), all members
//! count as such.
//!
//! A read that is given up is not awaited any more. Its buffer stays the drive's until it answers
//! after all, and what it brings is not looked at. A ticket is planned anew without that member;
//! a piece of a request becomes work for the owner of its stripe, as after an error, but nothing is
//! rewritten. A budget bounds what that adds to what the other members have to do.

mod budget;

use block::{Operation, Status};
use memory::Segment;
use units::{MemberIndex, bytes_usize};

pub(super) use self::budget::Budget;
pub use self::budget::Hedging;
use super::request::Retry;
use super::{DriveIo, IoOwner, Order, Shard};
use crate::buffers::Loan;
use crate::io::Io;
use crate::planted::{self, Fault};

/// A read through memory of ours.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    request: u32,
    first: u32,
    blocks: u32,
    loan: Option<Loan>,
}

impl Shard {
    /// How many blocks of a read go to a member at once.
    pub(super) fn at_once(&self, member: MemberIndex, blocks: u32) -> u32 {
        if self.late.is_shaky(member) {
            blocks.min(super::cell_lanes(self.geometry()))
        } else {
            blocks
        }
    }

    /// Asks for a read of a shaky member by way of a buffer; whether there was one. There is room
    /// for the request.
    #[cold]
    pub(super) fn issue_bounced(&mut self, order: Order, io: &mut impl Io) -> bool {
        let IoOwner::Direct {
            request,
            first,
            blocks,
        } = order.owner
        else {
            unreachable!("only reads of guests go straight to a member");
        };
        let reads = order.operation == Operation::Read;
        if !reads || !self.late.is_shaky(order.member) || self.geometry().parity() == 0 {
            return false;
        }
        let bytes = bytes_usize(order.length);
        let Some(loan) = self.lend_buffer(bytes) else {
            self.counters.unbuffered_reads += 1;
            return false;
        };
        let memory = self.buffers.lent(&loan, bytes);
        let bounce = self.bounces.acquire().expect("as many as member requests");
        self.bounces[bounce] = Bounce {
            request,
            first,
            blocks,
            loan: Some(loan),
        };
        self.counters.bounced_reads += 1;
        let owner = IoOwner::Bounced { bounce };
        self.issue(Order { owner, ..order }, |list| list.push(memory), io);
        true
    }

    /// A buffer for what is no ticket's, if enough are left for these.
    pub(super) fn lend_buffer(&mut self, bytes: usize) -> Option<Loan> {
        let widest = 2 * self.geometry().group_members();
        self.buffers.lend(bytes, widest)
    }

    /// The request that a read through a buffer is for, and which blocks of it.
    pub(super) fn bounced_range(&self, bounce: u32) -> (u32, (u32, u32)) {
        let bounce = &self.bounces[bounce];
        (bounce.request, (bounce.first, bounce.blocks))
    }

    fn bounced(&self, bounce: u32, length: u64) -> Segment {
        let loan = self.bounces[bounce].loan.as_ref();
        self.buffers
            .lent(loan.expect("until it ends"), bytes_usize(length))
    }

    /// A drive has answered a read through a buffer.
    pub(super) fn bounced_done(
        &mut self,
        bounce: u32,
        (done, status): (DriveIo, Status),
        io: &mut impl Io,
    ) {
        let Bounce {
            request,
            first,
            blocks,
            ..
        } = self.bounces[bounce];
        if status.is_ok() && !done.outlived {
            self.hand_over(bounce, done.length);
        }
        self.end_bounce(bounce);
        self.direct_done(request, (first, blocks), (&done, status), io);
    }

    /// Copies what was read to where the guest wants it.
    fn hand_over(&mut self, bounce: u32, length: u64) {
        let Bounce { request, first, .. } = self.bounces[bounce];
        let memory = self.bounced(bounce, length);
        let offset = bytes_usize(self.bytes(first));
        let segments = self.requests[request].segments();
        segments.copy_from(offset, memory);
        self.counters.bytes_copied += length;
    }

    /// The buffer is ours again.
    fn end_bounce(&mut self, bounce: u32) {
        if let Some(loan) = self.bounces[bounce].loan.take() {
            self.buffers.give_back(loan);
        }
        self.bounces.release(bounce);
    }

    /// A drive has answered a read that was given up.
    pub(super) fn given_up_done(&mut self, bounce: u32, (done, status): (DriveIo, Status)) {
        if status.is_ok() && planted::is(Fault::GivenUpReadCopied) {
            self.hand_over(bounce, done.length);
        }
        self.end_bounce(bounce);
    }

    /// Nobody waits any more for what goes to this buffer.
    fn disown(&mut self, slot: u32, bounce: u32) {
        let look = self.late.now;
        self.ios[slot].owner = IoOwner::GivenUp { bounce, look };
        if planted::is(Fault::GivenUpMemoryReused) {
            self.ios[slot].owner = IoOwner::Abandoned { grave: None, look };
            self.end_bounce(bounce);
        }
    }

    /// The member is out, and has not answered a read through a buffer.
    pub(super) fn abandon_bounced(&mut self, slot: u32, bounce: u32, io: &mut impl Io) {
        let Bounce {
            request,
            first,
            blocks,
            ..
        } = self.bounces[bounce];
        let done = self.ios[slot];
        self.disown(slot, bounce);
        self.direct_done(request, (first, blocks), (&done, Status::Gone), io);
    }

    /// Gives up what slow members keep, where others can say what was to be read.
    pub(super) fn give_up_reads(&mut self, io: &mut impl Io) -> usize {
        if !self.late.waits_long() {
            return 0;
        }
        let (mut moved, mut from) = (0, 0);
        while let Some(slot) = self.ios.used_from(from) {
            from = slot + 1;
            let done = self.ios[slot];
            let age = self.late.now.wrapping_sub(done.issued);
            let waits = age >= self.late.patience.slow && self.shared.is_slow(done.member.at());
            if done.operation != Some(Operation::Read) || !waits {
                continue;
            }
            let may = match done.owner {
                IoOwner::Ticket { ticket, role } => self.may_give_up_read(ticket, role),
                IoOwner::Bounced { bounce } => self.may_give_up_bounced(bounce, done.member),
                IoOwner::Nobody
                | IoOwner::Direct { .. }
                | IoOwner::GivenUp { .. }
                | IoOwner::Flush { .. }
                | IoOwner::Log { .. }
                | IoOwner::LogFlush
                | IoOwner::Metadata
                | IoOwner::Region
                | IoOwner::Clear
                | IoOwner::Zeroing
                | IoOwner::Abandoned { .. }
                | IoOwner::Probe
                | IoOwner::Trial
                | IoOwner::RollCall { .. }
                | IoOwner::Doubt => false,
            };
            if !may {
                continue;
            }
            if !self.late.budget.spend() {
                let refused = std::mem::replace(&mut self.ios[slot].refused, true);
                self.counters.hedges_over_budget += u64::from(!refused);
                continue;
            }
            moved += 1;
            self.counters.given_up_reads += 1;
            self.give_up_read(slot, io);
        }
        moved
    }

    fn give_up_read(&mut self, slot: u32, io: &mut impl Io) {
        let DriveIo { owner, member, .. } = self.ios[slot];
        if let IoOwner::Ticket { ticket, role } = owner {
            let grave = Some(self.bury(ticket, role));
            let look = self.late.now;
            self.ios[slot].owner = IoOwner::Abandoned { grave, look };
            self.read_given_up(ticket, role, io);
        } else if let IoOwner::Bounced { bounce } = owner {
            let (request, range) = self.bounced_range(bounce);
            self.disown(slot, bounce);
            self.retries.push_back(Retry::late(request, range, member));
        }
    }

    /// Whether the others can say what was to be read.
    fn may_give_up_bounced(&self, bounce: u32, member: MemberIndex) -> bool {
        let Bounce { request, first, .. } = self.bounces[bounce];
        let block = self.requests[request].start() + u64::from(first);
        let (stripe, _) = self.geometry().locate(block);
        let role = self.geometry().role(stripe, member);
        let around = self.slow_roles(stripe, self.map.lost(stripe, false));
        // Somebody has to reconstruct it.
        let owned = self.map.owner(stripe).is_some();
        owned && role.is_some_and(|role| around.has(role))
    }

    /// Forgets them all, as the death of the process would.
    pub(super) fn forget_bounces(&mut self) {
        for bounce in self.bounces.used() {
            self.end_bounce(bounce);
        }
    }
}
