//! Transfer buffers of one shard, in two sizes: 4 KiB for small writes, so that hundreds of them
//! stay in cache side by side, and 64 KiB for all else.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use memory::{Backing, Buffer, Lasting, Pages, Pool, Segment};
use units::RoleSet;
use units::limits::{GROUP_MEMBERS_MAX, LARGE_BUFFER_BYTES, SMALL_BUFFER_BYTES};

use crate::shard::room::BUFFERS_MIN;

/// Buffers of each size that are taken before the others: all that is in use as a rule.
const FIRST: [usize; 2] = [256, 256];

/// Which of the two pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Class {
    #[default]
    Small = 0,
    Large = 1,
}

impl Class {
    /// Where buffers of at least so many bytes are.
    #[inline]
    pub(crate) fn of(bytes: usize) -> Class {
        if bytes <= SMALL_BUFFER_BYTES {
            Class::Small
        } else {
            Class::Large
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// By class.
    pools: [Pool; 2],
    /// Where they begin in their file, if they are in one.
    in_file: [u64; 2],
}

/// The buffers of one ticket: at most one per role for what was on the drive and one for what
/// will be there.
#[derive(Debug)]
pub(crate) struct TicketBuffers {
    class: Class,
    held: [RoleSet; 2],
    buffers: [Box<[Option<Buffer>; GROUP_MEMBERS_MAX]>; 2],
    /// Where they are, as long as they are held.
    segments: [Box<[Segment; GROUP_MEMBERS_MAX]>; 2],
}

/// One buffer that is no ticket's.
#[derive(Debug)]
pub(crate) struct Loan {
    class: Class,
    buffer: Buffer,
}

/// Which of a role's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// What was on the drive, where it must be kept beside the new content.
    Old = 0,
    /// What the drive holds when the ticket is done.
    New = 1,
}

impl Default for TicketBuffers {
    fn default() -> TicketBuffers {
        let none = || Box::new([const { None }; GROUP_MEMBERS_MAX]);
        let nowhere = || Box::new([Segment::EMPTY; GROUP_MEMBERS_MAX]);
        TicketBuffers {
            class: Class::Small,
            held: [RoleSet::EMPTY; 2],
            buffers: [none(), none()],
            segments: [nowhere(), nowhere()],
        }
    }
}

impl TicketBuffers {
    /// Whether it holds some.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        let [old, new] = self.held;
        !old.union(new).is_empty()
    }

    /// Takes the buffers of these roles out.
    pub(crate) fn split_off(&mut self, roles: RoleSet) -> TicketBuffers {
        let mut taken = TicketBuffers {
            class: self.class,
            ..TicketBuffers::default()
        };
        for side in 0..self.held.len() {
            taken.held[side] = self.held[side].both(roles);
            self.held[side] = self.held[side].without(roles);
            for role in taken.held[side] {
                taken.buffers[side][role.at()] = self.buffers[side][role.at()].take();
                taken.segments[side][role.at()] = self.segments[side][role.at()];
            }
        }
        taken
    }
}

impl Buffers {
    /// Room for `small` and `large` buffers, in memory of this process or in a file from these
    /// offsets on.
    ///
    /// # Errors
    /// When the host refuses the memory.
    pub(crate) fn new(
        small: usize,
        large: usize,
        file: Option<(BorrowedFd<'_>, [u64; 2])>,
    ) -> std::io::Result<Buffers> {
        let enough = large.min(small) >= BUFFERS_MIN;
        assert!(enough, "the widest ticket must fit an idle pool");
        let pool = |count, bytes, at: usize| {
            let pool = match file {
                Some((file, offsets)) => Pool::in_file(count, bytes, file, offsets[at]),
                None => Pool::new(count, bytes, Backing::Anonymous(Pages::Plain)),
            };
            pool.map(|pool| pool.first(FIRST[at].min(count)))
        };
        Ok(Buffers {
            pools: [
                pool(small, SMALL_BUFFER_BYTES, 0)?,
                pool(large, LARGE_BUFFER_BYTES, 1)?,
            ],
            in_file: file.map_or([0; 2], |(_, offsets)| offsets),
        })
    }

    /// Takes a buffer of at least `bytes` for each role named; all or none.
    #[inline(always)]
    pub(crate) fn acquire(
        &mut self,
        ticket: &mut TicketBuffers,
        bytes: usize,
        old: RoleSet,
        new: RoleSet,
    ) -> bool {
        assert!(!ticket.any(), "a ticket takes its buffers once");
        let class = Class::of(bytes);
        let pool = self.pool(class);
        // Counting the roles is not free, and hardly ever needed.
        if pool.free() < 2 * GROUP_MEMBERS_MAX && pool.free() < old.len() + new.len() {
            return false;
        }
        for (side, roles) in [(Side::Old, old), (Side::New, new)] {
            for role in roles {
                let buffer = pool.acquire().expect("counted above");
                let buffer = ticket.buffers[side as usize][role.at()].insert(buffer);
                ticket.segments[side as usize][role.at()] = pool.segment(buffer);
            }
        }
        ticket.class = class;
        ticket.held = [old, new];
        true
    }

    /// Gives all buffers of a ticket back.
    #[inline]
    pub(crate) fn release(&mut self, ticket: &mut TicketBuffers) {
        if ticket.any() {
            self.release_held(ticket);
        }
    }

    #[inline]
    fn release_held(&mut self, ticket: &mut TicketBuffers) {
        let pool = self.pool(ticket.class);
        for (buffers, held) in ticket.buffers.iter_mut().zip(ticket.held) {
            for role in held {
                let buffer = buffers[role.at()].take().expect("held");
                pool.release(buffer);
            }
        }
        ticket.held = [RoleSet::EMPTY; 2];
    }

    /// The memory of one buffer of a ticket.
    #[inline]
    pub(crate) fn segment(&self, ticket: &TicketBuffers, side: Side, role: units::Role) -> Segment {
        let side = side as usize;
        assert!(ticket.held[side].has(role), "the plan named this role");
        ticket.segments[side][role.at()]
    }

    /// Where one buffer of a ticket begins in the file, in bytes.
    pub(crate) fn offset(&self, ticket: &TicketBuffers, side: Side, role: units::Role) -> u64 {
        let buffer = ticket.buffers[side as usize][role.at()].as_ref();
        let buffer = buffer.expect("the plan named this role");
        let class = ticket.class as usize;
        self.in_file[class] + self.pools[class].offset(buffer)
    }

    /// A buffer for what is no ticket's, as long as half of them are left for tickets, and as many
    /// as the widest of these takes: a drive that hangs may keep what is lent.
    pub(crate) fn lend(&mut self, bytes: usize, widest: usize) -> Option<Loan> {
        let class = match bytes {
            0..=SMALL_BUFFER_BYTES => Class::Small,
            bytes if bytes <= LARGE_BUFFER_BYTES => Class::Large,
            _ => return None,
        };
        let pool = self.pool(class);
        if pool.free() <= (pool.len() / 2).max(widest) {
            return None;
        }
        let buffer = pool.acquire()?;
        Some(Loan { class, buffer })
    }

    /// See `lend`.
    pub(crate) fn give_back(&mut self, loan: Loan) {
        self.pool(loan.class).release(loan.buffer);
    }

    /// So many bytes of what was lent.
    pub(crate) fn lent(&self, loan: &Loan, bytes: usize) -> Segment {
        let whole = self.pools[loan.class as usize].segment(&loan.buffer);
        whole.part(0, bytes)
    }

    /// The memory of those that are taken before the others, by class.
    pub(crate) fn first_memory(&self) -> [Arc<dyn Lasting>; 2] {
        self.pools.each_ref().map(Pool::first_memory)
    }

    /// Buffers that are taken; zero when the shard is idle.
    pub(crate) fn in_use(&self) -> usize {
        let in_use = |pool: &Pool| pool.len() - pool.free();
        self.pools.iter().map(in_use).sum()
    }

    fn pool(&mut self, class: Class) -> &mut Pool {
        &mut self.pools[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use units::{Role, bytes_u64, bytes_usize};

    use super::*;

    #[test]
    fn a_ticket_gets_all_its_buffers_or_none() {
        let mut buffers = Buffers::new(BUFFERS_MIN, BUFFERS_MIN, None).expect("memory");
        let (first, last) = (RoleSet((1 << 60) - 1), RoleSet(!0 << 60));
        let (all, mut wide) = (first.union(last), TicketBuffers::default());
        let mut other = TicketBuffers::default();
        assert!(buffers.acquire(&mut other, 512, RoleSet::one(Role(0)), RoleSet::EMPTY));
        assert!(!buffers.acquire(&mut wide, 512, all, all), "one is in use");
        buffers.release(&mut other);
        assert!(buffers.acquire(&mut wide, 512, first, first.union(last)));
        // Four are left.
        let few = RoleSet((1 << 4) - 1);
        let many = few.with(Role(4));
        let mut ticket = TicketBuffers::default();
        for (old, new) in [(RoleSet::EMPTY, many), (many, RoleSet::EMPTY), (few, few)] {
            assert!(
                !buffers.acquire(&mut ticket, 512, old, new),
                "{old:?} {new:?}"
            );
            assert_eq!(buffers.in_use(), 124);
        }
        assert!(buffers.acquire(&mut ticket, 512, RoleSet::EMPTY, few));
        buffers.release(&mut ticket);
        assert!(buffers.acquire(&mut ticket, 4097, many, many), "large ones");
        buffers.release(&mut ticket);
        buffers.release(&mut wide);
        assert_eq!(buffers.in_use(), 0);
    }

    #[test]
    fn what_a_ticket_holds_lies_in_the_file_where_it_is_said_to_be() {
        let sizes = [SMALL_BUFFER_BYTES, LARGE_BUFFER_BYTES].map(bytes_u64);
        let [small, large] = sizes.map(|size| size * bytes_u64(BUFFERS_MIN));
        let begin = [4096, 4096 + small];
        let length = bytes_usize(begin[1] + large);
        let file = memory::words::unnamed_file(length).expect("memory");
        let place = Some((file.as_fd(), begin));
        let mut buffers = Buffers::new(BUFFERS_MIN, BUFFERS_MIN, place).expect("memory");
        let roles = RoleSet::one(Role(0)).with(Role(3));
        let mut tag = 0;
        for bytes in [SMALL_BUFFER_BYTES, LARGE_BUFFER_BYTES] {
            let mut ticket = TicketBuffers::default();
            assert!(buffers.acquire(&mut ticket, bytes, roles, roles));
            for (side, role) in [
                (Side::Old, 0),
                (Side::Old, 3),
                (Side::New, 0),
                (Side::New, 3),
            ] {
                tag += 1;
                buffers.segment(&ticket, side, Role(role)).fill(tag);
                let mut there = vec![0; bytes];
                let offset = buffers.offset(&ticket, side, Role(role));
                file.read_exact_at(&mut there, offset).expect("memory");
                assert!(there.iter().all(|byte| *byte == tag), "{side:?} {role}");
            }
            buffers.release(&mut ticket);
        }
    }

    #[test]
    fn what_is_no_tickets_is_lent_by_its_size_as_long_as_enough_are_left() {
        let mut buffers = Buffers::new(BUFFERS_MIN, BUFFERS_MIN, None).expect("memory");
        for bytes in [
            SMALL_BUFFER_BYTES,
            SMALL_BUFFER_BYTES + 1,
            LARGE_BUFFER_BYTES,
        ] {
            for (widest, left) in [(6, 64), (64, 64), (80, 80), (127, 127), (128, 128)] {
                let lend = || buffers.lend(bytes, widest);
                let loans: Vec<Loan> = std::iter::from_fn(lend).collect();
                assert_eq!(loans.len(), BUFFERS_MIN - left, "{bytes}");
                assert_eq!(buffers.in_use(), loans.len());
                for loan in loans {
                    assert_eq!(buffers.lent(&loan, bytes).len(), bytes);
                    buffers.give_back(loan);
                }
                assert_eq!(buffers.in_use(), 0);
            }
        }
        assert!(buffers.lend(LARGE_BUFFER_BYTES + 1, 0).is_none());
    }
}
