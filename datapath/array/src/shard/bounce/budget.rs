//! How many reads may be given up.
//!
//! Each that is makes every other member of its stripe read once more, at a time at which one of
//! them is in trouble. So a shard gives up one read of so many, and besides as many as it can have
//! under way at once: the first hang of a drive finds the budget whole, and all that it keeps is
//! answered from the others. A few a second are always free, or a guest that reads little would
//! wait for drives because it reads little.

use units::limits::ARRAY_DRIVE_REQUESTS_MAX;

use crate::planted::{self, Fault};

/// How many reads a shard may give up.
#[derive(Clone, Copy, Debug)]
pub struct Hedging {
    /// At once.
    pub burst: u32,
    /// One more each time that so many were made.
    pub reads: u64,
    /// One more after so many looks.
    pub looks: u32,
}

impl Default for Hedging {
    fn default() -> Hedging {
        Hedging {
            burst: u32::try_from(ARRAY_DRIVE_REQUESTS_MAX).expect("thousands"),
            reads: 200,
            looks: 1,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::shard) struct Budget {
    hedging: Hedging,
    left: u32,
    /// Reads made until the last one that was added for them.
    reads: u64,
    looks: u32,
}

impl Budget {
    pub(in crate::shard) fn new(hedging: Hedging) -> Budget {
        Budget {
            hedging,
            left: hedging.burst,
            reads: 0,
            looks: 0,
        }
    }

    /// At a look: so many reads were made since the shard began.
    pub(in crate::shard) fn refill(&mut self, reads: u64) {
        self.looks += 1;
        let mut more = (reads - self.reads) / self.hedging.reads;
        self.reads += more * self.hedging.reads;
        if self.looks >= self.hedging.looks {
            self.looks = 0;
            more += 1;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.hedging.burst);
    }

    /// Whether one more may be given up; then it counts.
    pub(in crate::shard) fn spend(&mut self) -> bool {
        if self.left == 0 {
            return planted::is(Fault::HedgesWithoutBudget);
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Hedging = Hedging {
        burst: 4,
        reads: 10,
        looks: 3,
    };

    fn spends(budget: &mut Budget) -> usize {
        (0..100).filter(|_| budget.spend()).count()
    }

    #[test]
    fn all_that_can_be_under_way_may_be_given_up_at_once_and_then_no_more() {
        let mut budget = Budget::new(SMALL);
        assert_eq!(spends(&mut budget), 4);
        assert_eq!(spends(&mut budget), 0);
    }

    #[test]
    fn one_of_so_many_reads_may_be_given_up() {
        let mut budget = Budget::new(Hedging {
            looks: u32::MAX,
            ..SMALL
        });
        spends(&mut budget);
        let each = [(9, 0), (10, 1), (19, 0), (39, 2), (40, 1), (1000, 4)];
        for (reads, more) in each {
            budget.refill(reads);
            assert_eq!(spends(&mut budget), more, "after {reads} reads");
        }
    }

    #[test]
    fn without_any_reads_some_may_be_given_up_after_a_while() {
        let mut budget = Budget::new(SMALL);
        spends(&mut budget);
        let after = (0..7).map(|_| {
            budget.refill(0);
            spends(&mut budget)
        });
        assert_eq!(after.collect::<Vec<_>>(), [0, 0, 1, 0, 0, 1, 0]);
    }
}
