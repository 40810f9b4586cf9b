//! Which tickets work on which lanes of which cell. Tickets that share a lane of a cell go one
//! after another in the order in which they came; others go at once.

use std::ops::Range;

use crate::slots::at;

/// No ticket.
const NONE: u32 = u32::MAX;

/// What a ticket holds or waits for.
#[derive(Clone, Debug)]
struct Claim {
    cell: u64,
    lanes: Range<u32>,
    granted: bool,
    /// Changes before it came.
    since: u64,
    next: u32,
    previous: u32,
}

/// Claims of all tickets of a shard, by ticket slot.
#[derive(Debug)]
pub(crate) struct Lanes {
    claims: Vec<Claim>,
    /// First and last claim of each hash bucket, in order of arrival.
    first: Vec<u32>,
    last: Vec<u32>,
    /// How often a claim came or went.
    changes: u64,
}

impl Lanes {
    pub(crate) fn new(tickets: usize) -> Lanes {
        let empty = Claim {
            cell: 0,
            lanes: 0..0,
            granted: false,
            since: 0,
            next: NONE,
            previous: NONE,
        };
        let buckets = (tickets * 2).next_power_of_two();
        Lanes {
            claims: vec![empty; tickets],
            first: vec![NONE; buckets],
            last: vec![NONE; buckets],
            changes: 0,
        }
    }

    /// How often a claim came or went so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Claims `lanes` of `cell` for `ticket`; whether they are granted at once.
    #[inline(always)]
    pub(crate) fn claim(&mut self, ticket: u32, cell: u64, lanes: Range<u32>) -> bool {
        assert!(lanes.start < lanes.end, "a ticket covers lanes");
        self.changes += 1;
        let bucket = self.bucket(cell);
        let previous = self.last[bucket];
        let mut claim = Claim {
            cell,
            lanes,
            granted: false,
            since: self.changes,
            next: NONE,
            previous,
        };
        claim.granted = self.is_free(&claim);
        let granted = claim.granted;
        self.claims[at(ticket)] = claim;
        if previous == NONE {
            self.first[bucket] = ticket;
        } else {
            self.claims[at(previous)].next = ticket;
        }
        self.last[bucket] = ticket;
        granted
    }

    /// Whether `ticket` may go.
    #[inline]
    pub(crate) fn is_granted(&self, ticket: u32) -> bool {
        self.claims[at(ticket)].granted
    }

    /// Gives up the claim of `ticket`, granted or not, and calls `grant` with each ticket that may
    /// go now.
    #[inline(always)]
    pub(crate) fn release(&mut self, ticket: u32, mut grant: impl FnMut(u32)) {
        let Claim {
            cell,
            next,
            previous,
            ..
        } = self.claims[at(ticket)].clone();
        self.changes += 1;
        let bucket = self.bucket(cell);
        if previous == NONE {
            self.first[bucket] = next;
        } else {
            self.claims[at(previous)].next = next;
        }
        if next == NONE {
            self.last[bucket] = previous;
        } else {
            self.claims[at(next)].previous = previous;
        }
        self.claims[at(ticket)].granted = false;
        let mut later = next;
        while later != NONE {
            if self.claims[at(later)].cell == cell
                && !self.claims[at(later)].granted
                && self.is_free(&self.claims[at(later)])
            {
                self.claims[at(later)].granted = true;
                grant(later);
            }
            later = self.claims[at(later)].next;
        }
    }

    /// Whether other tickets claim lanes of the same cell.
    #[inline]
    pub(crate) fn has_company(&self, ticket: u32) -> bool {
        let mine = &self.claims[at(ticket)];
        let alone_in_bucket = mine.previous == NONE && mine.next == NONE;
        !alone_in_bucket && self.of_cell(mine.cell).any(|(other, _)| other != ticket)
    }

    /// Whether one ticket's claim came before another's.
    pub(crate) fn came_before(&self, ticket: u32, other: u32) -> bool {
        self.claims[at(ticket)].since < self.claims[at(other)].since
    }

    /// The cell of which a ticket claims lanes.
    #[inline]
    pub(crate) fn cell(&self, ticket: u32) -> u64 {
        self.claims[at(ticket)].cell
    }

    /// Whether nobody claims lanes of a cell; not sure where it shares its bucket.
    #[inline]
    pub(crate) fn is_surely_free(&self, cell: u64) -> bool {
        self.first[self.bucket(cell)] == NONE
    }

    /// All claims of a cell, with their lanes, in the order in which they came.
    #[inline]
    pub(crate) fn of_cell(&self, cell: u64) -> impl Iterator<Item = (u32, &Range<u32>)> {
        let mut next = self.first[self.bucket(cell)];
        std::iter::from_fn(move || {
            while next != NONE {
                let (ticket, claim) = (next, &self.claims[at(next)]);
                next = claim.next;
                if claim.cell == cell {
                    return Some((ticket, &claim.lanes));
                }
            }
            None
        })
    }

    /// Whether another ticket holds or waits for lanes of `cell`.
    #[cfg(test)]
    fn is_busy(&self, cell: u64) -> bool {
        let mut ticket = self.first[self.bucket(cell)];
        while ticket != NONE {
            if self.claims[at(ticket)].cell == cell {
                return true;
            }
            ticket = self.claims[at(ticket)].next;
        }
        false
    }

    /// Whether no earlier claim shares a lane.
    #[inline]
    fn is_free(&self, mine: &Claim) -> bool {
        let mut earlier = mine.previous;
        while earlier != NONE {
            let other = &self.claims[at(earlier)];
            if other.cell == mine.cell && overlaps(other, mine) {
                return false;
            }
            earlier = other.previous;
        }
        true
    }

    #[inline]
    fn bucket(&self, cell: u64) -> usize {
        let mixed = cell.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        units::bytes_usize(mixed) & (self.first.len() - 1)
    }
}

fn overlaps(one: &Claim, other: &Claim) -> bool {
    other.lanes.start < one.lanes.end && one.lanes.start < other.lanes.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_cell_are_found_in_order() {
        let mut lanes = Lanes::new(8);
        // Two buckets only: of any three cells, two share one.
        lanes.claims.resize(4, lanes.claims[0].clone());
        for (ticket, cell, range) in [(0, 7, 0..4), (1, 8, 4..8), (2, 7, 0..8), (3, 9, 0..4)] {
            let granted = lanes.claim(ticket, cell, range);
            assert_eq!(granted, ticket != 2);
        }
        let of = |lanes: &Lanes, cell| {
            let claims = lanes.of_cell(cell);
            claims
                .map(|(ticket, range)| (ticket, range.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&lanes, 7), [(0, 0..4), (2, 0..8)]);
        assert_eq!(of(&lanes, 8), [(1, 4..8)]);
        assert_eq!(of(&lanes, 10), []);
        let company = |lanes: &Lanes| [0, 1, 2, 3].map(|ticket| lanes.has_company(ticket));
        assert_eq!(company(&lanes), [true, false, true, false]);
        assert!(lanes.came_before(1, 3) && !lanes.came_before(3, 1) && !lanes.came_before(1, 1));
        let before = lanes.changes();
        lanes.release(0, |ticket| assert_eq!(ticket, 2));
        assert_eq!(company(&lanes)[1..], [false; 3]);
        assert!(lanes.changes() > before);
    }

    #[test]
    fn claims_beside_each_other_go_side_by_side() {
        let mut lanes = Lanes::new(8);
        for (ticket, range) in [(0, 4..8), (1, 0..4), (2, 8..9)] {
            assert!(lanes.claim(ticket, 7, range), "{ticket}");
        }
        assert!(!lanes.claim(3, 7, 3..4));
        assert!(!lanes.claim(4, 7, 8..20));
    }

    #[test]
    fn overlapping_claims_go_in_order_of_arrival() {
        let mut lanes = Lanes::new(8);
        assert!(lanes.claim(0, 7, 0..4));
        assert!(!lanes.claim(1, 7, 2..6));
        assert!(
            !lanes.claim(2, 7, 5..8),
            "would overtake ticket 1, which waits for lane 5"
        );
        assert!(lanes.claim(3, 7, 8..9));
        assert!(lanes.claim(4, 8, 0..4), "another cell");
        let may_go = |lanes: &Lanes| [0, 1, 2].map(|ticket| lanes.is_granted(ticket));
        assert_eq!(may_go(&lanes), [true, false, false]);
        let mut granted = Vec::new();
        lanes.release(0, |ticket| granted.push(ticket));
        assert_eq!(granted, [1]);
        assert_eq!(may_go(&lanes), [false, true, false]);
        lanes.release(1, |ticket| granted.push(ticket));
        assert_eq!(granted, [1, 2]);
        for ticket in [2, 3, 4] {
            lanes.release(ticket, |_| panic!("nobody waits"));
        }
        assert!(!lanes.is_busy(7) && !lanes.is_busy(8));
    }

    #[test]
    fn cells_that_share_a_hash_bucket_do_not_wait_for_each_other() {
        let mut lanes = Lanes::new(1);
        // Two buckets only: of any three cells, two share one.
        lanes.claims.resize(4, lanes.claims[0].clone());
        for (ticket, cell) in [(0, 10), (1, 11), (2, 12), (3, 13)] {
            assert!(lanes.claim(ticket, cell, 0..1));
        }
        for ticket in [1, 0, 3, 2] {
            lanes.release(ticket, |_| panic!("nobody waits"));
        }
    }
}
