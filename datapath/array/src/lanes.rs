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
}

impl Lanes {
    pub(crate) fn new(tickets: usize) -> Lanes {
        let empty = Claim {
            cell: 0,
            lanes: 0..0,
            granted: false,
            next: NONE,
            previous: NONE,
        };
        let buckets = (tickets * 2).next_power_of_two();
        Lanes {
            claims: vec![empty; tickets],
            first: vec![NONE; buckets],
            last: vec![NONE; buckets],
        }
    }

    /// Claims `lanes` of `cell` for `ticket`; whether they are granted at once.
    #[inline]
    pub(crate) fn claim(&mut self, ticket: u32, cell: u64, lanes: Range<u32>) -> bool {
        assert!(lanes.start < lanes.end, "a ticket covers lanes");
        let bucket = self.bucket(cell);
        let previous = self.last[bucket];
        self.claims[at(ticket)] = Claim {
            cell,
            lanes,
            granted: false,
            next: NONE,
            previous,
        };
        if previous == NONE {
            self.first[bucket] = ticket;
        } else {
            self.claims[at(previous)].next = ticket;
        }
        self.last[bucket] = ticket;
        let granted = self.is_free(ticket);
        self.claims[at(ticket)].granted = granted;
        granted
    }

    /// Whether `ticket` may go.
    pub(crate) fn is_granted(&self, ticket: u32) -> bool {
        self.claims[at(ticket)].granted
    }

    /// Gives up the claim of `ticket`, granted or not, and calls `grant` with each ticket that may
    /// go now.
    pub(crate) fn release(&mut self, ticket: u32, mut grant: impl FnMut(u32)) {
        let Claim {
            cell,
            next,
            previous,
            ..
        } = self.claims[at(ticket)].clone();
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
                && self.is_free(later)
            {
                self.claims[at(later)].granted = true;
                grant(later);
            }
            later = self.claims[at(later)].next;
        }
    }

    /// The next ticket behind `after` that waits for lanes which `ticket` holds.
    #[inline]
    pub(crate) fn next_waiting(&self, ticket: u32, after: u32) -> Option<u32> {
        let held = &self.claims[at(ticket)];
        let mut later = self.claims[at(after)].next;
        while later != NONE {
            let claim = &self.claims[at(later)];
            if claim.cell == held.cell && overlaps(claim, held) {
                return Some(later);
            }
            later = claim.next;
        }
        None
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
    fn is_free(&self, ticket: u32) -> bool {
        let mine = &self.claims[at(ticket)];
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
    fn those_that_wait_for_a_lane_are_found_in_order() {
        let mut lanes = Lanes::new(8);
        assert!(lanes.claim(0, 7, 0..4));
        assert!(lanes.claim(1, 7, 4..8));
        assert!(!lanes.claim(2, 7, 0..8));
        assert!(lanes.claim(3, 8, 0..4));
        assert!(!lanes.claim(4, 7, 3..4));
        let waiting = |ticket| {
            let next = |after: &u32| lanes.next_waiting(ticket, *after);
            std::iter::successors(next(&ticket), next).collect::<Vec<u32>>()
        };
        assert_eq!(waiting(0), [2, 4]);
        assert_eq!(waiting(1), [2]);
        assert_eq!(waiting(3), []);
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
