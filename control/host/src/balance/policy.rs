//! Who should own how much of an array, and which ring should leave its reactor: numbers in,
//! numbers out.
//!
//! A write on the reactor on which it arrives costs no message and wakes nobody. So the stripes of
//! an array belong to the reactors whose rings ask for it, and to others as well only while these
//! have more to do than they can.

use std::sync::Arc;

use array::Owners;
use units::ReactorIndex;
use units::limits::BUCKETS;

/// A reactor that is busy for more than this part of its time has too much to do.
const TOO_BUSY: f64 = 0.85;
/// What those who ask must be able to do alone before others are let go.
const ENOUGH: f64 = 0.7;
/// One that is less busy can help.
const CAN_HELP: f64 = 0.5;
/// Who asks for less than this part of an array's requests does not count.
const ASKS: f64 = 0.05;
/// Differences below are none.
const EVEN: f64 = 0.2;
/// Of what the busiest owns, so much goes to the idlest at once.
const STEP: usize = 8;

/// What is known of an array, by reactor.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    /// How busy each reactor is, 0 to 1.
    pub(super) busy: &'a [f64],
    /// Requests for the array that have come there lately.
    pub(super) requests: &'a [f64],
    /// The part of `busy` that is for stripes of the array which it owns, at most.
    pub(super) owning: &'a [f64],
    /// Buckets that it owns.
    pub(super) owned: &'a [usize],
}

impl Asked<'_> {
    /// Buckets that each reactor should own; `None` when it is well as it is.
    pub(super) fn shares(&self) -> Option<Vec<usize>> {
        let count = self.busy.len();
        let total: f64 = self.requests.iter().sum();
        if total < 1.0 {
            return None;
        }
        let asks = |at: usize| self.requests[at] >= total * ASKS;
        let helps = |at: usize| !asks(at) && self.owned[at] > 0;
        let asking: Vec<usize> = (0..count).filter(|&at| asks(at)).collect();
        let helped: f64 = (0..count)
            .filter(|&at| helps(at))
            .map(|at| self.owning[at])
            .sum();
        let alone = asking.iter().map(|&at| self.busy[at]).fold(0.0, f64::max);
        let mut owners = asking.clone();
        if alone + helped / asking.len() as f64 > ENOUGH {
            owners.extend((0..count).filter(|&at| helps(at)));
        }
        let busiest = self.busiest(&owners)?;
        let idlest = (0..count)
            .filter(|at| !owners.contains(at))
            .min_by(|&one, &other| self.busy[one].total_cmp(&self.busy[other]));
        if self.busy[busiest] > TOO_BUSY
            && let Some(idlest) = idlest.filter(|&at| self.busy[at] < CAN_HELP)
        {
            owners.push(idlest);
        }
        let same = (0..count).all(|at| owners.contains(&at) == (self.owned[at] > 0));
        if same {
            return self.evened(&owners);
        }
        let mut shares = vec![0; count];
        for (position, &owner) in owners.iter().enumerate() {
            let more = usize::from(position < BUCKETS % owners.len());
            shares[owner] = BUCKETS / owners.len() + more;
        }
        Some(shares)
    }

    fn busiest(&self, owners: &[usize]) -> Option<usize> {
        let busier = |one: &&usize, other: &&usize| self.busy[**one].total_cmp(&self.busy[**other]);
        owners.iter().max_by(busier).copied()
    }

    /// The busiest of its owners gives some to the idlest.
    fn evened(&self, owners: &[usize]) -> Option<Vec<usize>> {
        let busiest = self.busiest(owners)?;
        let busier = |one: &&usize, other: &&usize| self.busy[**one].total_cmp(&self.busy[**other]);
        let idlest = *owners.iter().min_by(busier)?;
        let uneven = self.busy[busiest] - self.busy[idlest] > EVEN;
        let step = self.owned[busiest] / STEP;
        // What it does for others does not go away with stripes of this array.
        let matters = self.owning[busiest] > EVEN;
        if !uneven || !matters || self.busy[busiest] < ENOUGH || step == 0 {
            return None;
        }
        let mut shares = self.owned.to_vec();
        shares[busiest] -= step;
        shares[idlest] += step;
        Some(shares)
    }
}

/// The ring that should leave the busiest reactor, and for where. `rings` are its rings: requests
/// that have come lately, and where else each may go.
pub(super) fn leaves(busy: &[f64], rings: &[(usize, f64, Vec<usize>)]) -> Option<(usize, usize)> {
    let busiest = (0..busy.len()).max_by(|&one, &other| busy[one].total_cmp(&busy[other]))?;
    if busy[busiest] <= TOO_BUSY {
        return None;
    }
    let here = || {
        rings
            .iter()
            .enumerate()
            .filter(|(_, ring)| ring.0 == busiest)
    };
    let total: f64 = here().map(|(_, ring)| ring.1).sum();
    let active = here().filter(|(_, ring)| ring.1 >= total * ASKS && ring.1 >= 1.0);
    if active.clone().count() < 2 {
        return None;
    }
    // The largest that does not make the other one as busy as this one is now.
    let mut best: Option<(f64, (usize, usize))> = None;
    for (position, (_, requests, places)) in active {
        let takes = busy[busiest] * requests / total;
        let idlest = places
            .iter()
            .filter(|&&at| at != busiest && busy[at] < CAN_HELP)
            .min_by(|&&one, &&other| busy[one].total_cmp(&busy[other]));
        let Some(&to) = idlest else { continue };
        let fits = takes <= (busy[busiest] - busy[to]) * 0.75;
        if fits && best.is_none_or(|(most, _)| takes > most) {
            best = Some((takes, (position, to)));
        }
    }
    best.map(|(_, found)| found)
}

/// Owners with these shares, of which as many as possible stay who they are.
pub(super) fn table(now: &Owners, shares: &[usize]) -> Arc<Owners> {
    let mut left = shares.to_vec();
    let mut of = vec![None; BUCKETS];
    // Neighbours should not all go to one: the order is that of multiples of an odd number.
    let order = || (0..BUCKETS).map(|at| at * 1597 % BUCKETS);
    for bucket in order() {
        let owner = now.of(bucket).map(ReactorIndex::at);
        if let Some(owner) = owner.filter(|&at| left.get(at).is_some_and(|left| *left > 0)) {
            left[owner] -= 1;
            of[bucket] = Some(owner);
        }
    }
    let mut next = 0;
    for bucket in order() {
        if of[bucket].is_none() {
            while left[next] == 0 {
                next += 1;
            }
            left[next] -= 1;
            of[bucket] = Some(next);
        }
    }
    Owners::new(|bucket| ReactorIndex::from_at(of[bucket].expect("shares are of all")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = BUCKETS;
    const QUARTERS: [usize; 4] = [ALL / 4; 4];

    fn shares(
        busy: [f64; 4],
        requests: [f64; 4],
        owning: [f64; 4],
        owned: [usize; 4],
    ) -> Option<Vec<usize>> {
        Asked {
            busy: &busy,
            requests: &requests,
            owning: &owning,
            owned: &owned,
        }
        .shares()
    }

    #[test]
    fn stripes_belong_to_whoever_asks() {
        let one = [0.0, 900.0, 0.0, 0.0];
        let idle = [0.02, 0.1, 0.02, 0.02];
        let none = [0.0; 4];
        assert_eq!(shares(idle, one, none, QUARTERS), Some(vec![0, ALL, 0, 0]));
        assert_eq!(shares(idle, one, none, [0, ALL, 0, 0]), None, "it is so");
        let two = [500.0, 900.0, 0.0, 20.0];
        assert_eq!(
            shares(idle, two, none, QUARTERS),
            Some(vec![ALL / 2, ALL / 2, 0, 0])
        );
        assert_eq!(shares(idle, none, none, QUARTERS), None, "nobody asks");
        let three = [500.0, 900.0, 500.0, 0.0];
        let thirds = Some(vec![1366, 1365, 1365, 0]);
        assert_eq!(shares(idle, three, none, QUARTERS), thirds);
    }

    #[test]
    fn others_help_while_those_who_ask_have_too_much_to_do() {
        let one = [900.0, 0.0, 0.0, 0.0];
        let alone = [ALL, 0, 0, 0];
        let owning = [0.8, 0.0, 0.0, 0.0];
        // The idlest comes in.
        let busy = [0.95, 0.3, 0.1, 0.4];
        let halves = vec![ALL / 2, 0, ALL / 2, 0];
        assert_eq!(shares(busy, one, owning, alone), Some(halves.clone()));
        assert_eq!(
            shares([0.95, 0.6, 0.7, 0.5], one, owning, alone),
            None,
            "nobody can"
        );
        assert_eq!(
            shares([0.8, 0.0, 0.0, 0.0], one, owning, alone),
            None,
            "no need"
        );
        // It stays as long as one alone could not do it.
        let halved: [usize; 4] = halves.try_into().expect("four");
        let helped = [0.4, 0.0, 0.4, 0.0];
        assert_eq!(shares([0.6, 0.0, 0.5, 0.0], one, helped, halved), None);
        let less = [0.2, 0.0, 0.2, 0.0];
        assert_eq!(
            shares([0.4, 0.0, 0.9, 0.0], one, less, halved),
            Some(vec![ALL, 0, 0, 0])
        );
    }

    #[test]
    fn the_busiest_owner_gives_to_the_idlest_while_that_matters() {
        let two = [900.0, 900.0, 0.0, 0.0];
        let halves = [ALL / 2, ALL / 2, 0, 0];
        let busy = [0.8, 0.4, 0.0, 0.0];
        let evened = Some(vec![ALL / 2 - ALL / 16, ALL / 2 + ALL / 16, 0, 0]);
        assert_eq!(shares(busy, two, [0.6, 0.3, 0.0, 0.0], halves), evened);
        assert_eq!(
            shares(busy, two, [0.1, 0.1, 0.0, 0.0], halves),
            None,
            "other work"
        );
        assert_eq!(
            shares([0.5, 0.2, 0.0, 0.0], two, [0.5, 0.2, 0.0, 0.0], halves),
            None
        );
        assert_eq!(
            shares([0.8, 0.7, 0.0, 0.0], two, [0.6; 4], halves),
            None,
            "even"
        );
    }

    #[test]
    fn a_ring_leaves_a_reactor_that_has_too_much_to_do_for_one_that_has_not() {
        let anywhere = || vec![0, 1, 2];
        let rings = |on_first: [f64; 3]| {
            let ring = |requests| (0, requests, anywhere());
            let mut rings: Vec<_> = on_first.into_iter().map(ring).collect();
            rings.push((1, 5000.0, anywhere()));
            rings
        };
        let busy = [0.95, 0.3, 0.1];
        assert_eq!(leaves(&busy, &rings([500.0, 300.0, 200.0])), Some((0, 2)));
        assert_eq!(leaves(&busy, &rings([900.0, 300.0, 200.0])), Some((0, 2)));
        assert_eq!(
            leaves(&busy, &rings([9000.0, 900.0, 2.0])),
            Some((1, 2)),
            "it would be as busy"
        );
        assert_eq!(
            leaves(&busy, &rings([900.0, 3.0, 2.0])),
            None,
            "one ring has it all"
        );
        assert_eq!(
            leaves(&[0.8, 0.3, 0.1], &rings([500.0, 300.0, 200.0])),
            None
        );
        assert_eq!(
            leaves(&[0.9, 0.6, 0.7], &rings([500.0, 300.0, 200.0])),
            None
        );
        let pinned: Vec<_> = rings([500.0, 300.0, 200.0])
            .into_iter()
            .map(|(reactor, requests, _)| (reactor, requests, vec![0, 1]))
            .collect();
        assert_eq!(leaves(&busy, &pinned), Some((0, 1)), "where it may go");
        assert_eq!(leaves(&[0.0; 3], &[]), None);
    }

    #[test]
    fn as_few_buckets_as_possible_get_another_owner_and_they_lie_apart() {
        let now = Owners::new(|bucket| ReactorIndex::from_at(bucket % 4));
        let next = table(&now, &[ALL / 2, ALL / 2, 0, 0]);
        let kept = (0..ALL).filter(|&bucket| now.of(bucket) == next.of(bucket));
        assert_eq!(kept.count(), ALL / 2);
        for reactor in 0..2 {
            assert_eq!(next.share(ReactorIndex(reactor)), ALL / 2);
        }
        let one = Owners::new(|_| ReactorIndex(0));
        let some = table(&one, &[ALL - ALL / 8, ALL / 8]);
        assert_eq!(some.share(ReactorIndex(1)), ALL / 8);
        // An eighth of each part of them, and not all of one part.
        for part in 0..16 {
            let buckets = part * (ALL / 16)..(part + 1) * (ALL / 16);
            let is_other = |&bucket: &usize| some.of(bucket) == Some(ReactorIndex(1));
            let others = buckets.filter(is_other).count();
            assert!((16..=48).contains(&others), "{others} of part {part}");
        }
    }
}
