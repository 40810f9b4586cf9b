//! Who should own how much of an array, and which ring should leave its reactor: numbers in,
//! numbers out.
//!
//! A write on the reactor on which it arrives costs no message and wakes nobody. So the stripes of
//! an array belong to the reactors whose rings ask for it, and to others as well only while these
//! have more to do than they can. Rings begin and stay near the array's drives, so whoever asks is
//! near them, unless somebody has placed a ring elsewhere: then that reactor owns all the same, for
//! two messages and a wake-up between nodes cost each write more than the bytes that drives move
//! there (docs/design/015-numa.md). Only who helps is a matter of choice.

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
/// Who has this part of the requests of the one that has most asks for an array; and who owns some
/// of it, until it has less than that part. A step may end a life of the log, so what goes up and
/// down as background work of guests does must change nothing.
const BEGINS_TO_ASK: f64 = 0.1;
const ASKS_NO_MORE: f64 = 0.02;
/// Fewer requests than these, some ten in a second, are not worth a step, and of so few the parts
/// say little.
const FEW: f64 = 20.0;
/// Rings that have less than this part of the requests of their reactor beside the largest of them
/// are left where they are.
const WORTH: f64 = 0.05;
/// Differences, and parts of a reactor's time, that are smaller are none.
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
    /// Whether it is near the array's drives; all are where nobody is nearer.
    pub(super) near: &'a [bool],
}

/// A ring, and where it may be.
#[derive(Clone, Debug)]
pub(super) struct Polled {
    /// Where it is.
    pub(super) at: usize,
    /// Requests that have come lately.
    pub(super) requests: f64,
    /// Reactors where it is well placed: near the array's drives, or named by somebody.
    pub(super) near: Vec<usize>,
    /// Others, for when these have too much to do.
    pub(super) far: Vec<usize>,
}

impl Asked<'_> {
    /// Buckets that each reactor should own; `None` when it is well as it is.
    pub(super) fn shares(&self) -> Option<Vec<usize>> {
        let count = self.busy.len();
        let total: f64 = self.requests.iter().sum();
        if total < FEW {
            return None;
        }
        let most = self.requests.iter().copied().fold(0.0, f64::max);
        let asks = |at: usize| {
            let least = if self.owned[at] > 0 {
                most * ASKS_NO_MORE
            } else {
                (most * BEGINS_TO_ASK).max(FEW)
            };
            self.requests[at] >= least
        };
        let helps = |at: usize| !asks(at) && self.owned[at] > 0;
        let asking: Vec<usize> = (0..count).filter(|&at| asks(at)).collect();
        if asking.is_empty() {
            return None;
        }
        let helped: f64 = (0..count)
            .filter(|&at| helps(at))
            .map(|at| self.owning[at])
            .sum();
        let alone = asking.iter().map(|&at| self.busy[at]).fold(0.0, f64::max);
        let mut owners = asking.clone();
        if alone + helped / asking.len() as f64 > ENOUGH {
            owners.extend((0..count).filter(|&at| helps(at)));
        }
        // One that helps from afar gives way to one that is near and has time by now.
        let far = owners.iter().position(|&at| helps(at) && !self.near[at]);
        if let Some(far) = far
            && let Some(helper) = self.helper(&owners).filter(|&at| self.near[at])
        {
            owners[far] = helper;
        }
        let busiest = self.busiest(&owners);
        if busiest.is_some_and(|at| self.busy[at] > TOO_BUSY)
            && let Some(helper) = self.helper(&owners)
        {
            owners.push(helper);
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

    /// Who can help best: the idlest of those that are near, or, if none of these can, of all.
    fn helper(&self, owners: &[usize]) -> Option<usize> {
        let can = |at: &usize| !owners.contains(at) && self.busy[*at] < CAN_HELP;
        let order = |one: &usize, other: &usize| {
            let nearer = self.near[*other].cmp(&self.near[*one]);
            nearer.then(self.busy[*one].total_cmp(&self.busy[*other]))
        };
        (0..self.busy.len()).filter(can).min_by(order)
    }

    /// The busiest of those whom the array's stripes keep busy: what an owner does for others does
    /// not go away with stripes of this array.
    fn busiest(&self, owners: &[usize]) -> Option<usize> {
        let busier = |one: &&usize, other: &&usize| self.busy[**one].total_cmp(&self.busy[**other]);
        let by_these = |at: &&usize| self.owning[**at] > EVEN;
        owners.iter().filter(by_these).max_by(busier).copied()
    }

    /// The busiest of its owners gives some to the idlest.
    fn evened(&self, owners: &[usize]) -> Option<Vec<usize>> {
        let busiest = self.busiest(owners)?;
        let busier = |one: &&usize, other: &&usize| self.busy[**one].total_cmp(&self.busy[**other]);
        let idlest = *owners.iter().min_by(busier)?;
        let uneven = self.busy[busiest] - self.busy[idlest] > EVEN;
        let step = self.owned[busiest] / STEP;
        if !uneven || self.busy[busiest] < ENOUGH || step == 0 {
            return None;
        }
        let mut shares = self.owned.to_vec();
        shares[busiest] -= step;
        shares[idlest] += step;
        Some(shares)
    }
}

/// The ring that should leave a reactor that has too much to do, and for where: the busiest of
/// those that one can leave.
pub(super) fn leaves(busy: &[f64], rings: &[Polled]) -> Option<(usize, usize)> {
    let too_busy = (0..busy.len()).filter(|&at| busy[at] > TOO_BUSY);
    let mut too_busy: Vec<usize> = too_busy.collect();
    too_busy.sort_by(|&one, &other| busy[other].total_cmp(&busy[one]));
    let mut leaves = too_busy.into_iter().map(|at| leaves_from(at, busy, rings));
    leaves.find_map(|found| found)
}

fn leaves_from(from: usize, busy: &[f64], rings: &[Polled]) -> Option<(usize, usize)> {
    let here = || rings.iter().enumerate().filter(|(_, ring)| ring.at == from);
    let mut rates: Vec<f64> = here().map(|(_, ring)| ring.requests).collect();
    rates.sort_by(|one, other| other.total_cmp(one));
    let total: f64 = rates.iter().sum();
    let beside: f64 = rates.iter().skip(1).sum();
    let next = *rates.get(1)?;
    // Beside one that has it all the others are not worth a pause of their guests. How many share
    // it does not matter: of a hundred that are equal each has little.
    if beside < total * WORTH {
        return None;
    }
    let active = here().filter(|(_, ring)| ring.requests >= (next * WORTH).max(1.0));
    // The largest that does not make the other one as busy as this one is now.
    let mut best: Option<(f64, (usize, usize))> = None;
    for (position, ring) in active {
        let takes = busy[from] * ring.requests / total;
        let fits = |to: &usize| takes <= (busy[from] - busy[*to]) * 0.75;
        let to = |places: &[usize]| idlest(busy, places, from).filter(fits);
        let Some(to) = to(&ring.near).or_else(|| to(&ring.far)) else {
            continue;
        };
        if best.is_none_or(|(most, _)| takes > most) {
            best = Some((takes, (position, to)));
        }
    }
    best.map(|(_, found)| found)
}

/// A ring that is far from its array's drives, because those who are near had too much to do or
/// because the drives are others by now, and where near them it can go: one that it leaves with
/// time to spare, so that it does not have to leave again.
pub(super) fn returns(busy: &[f64], rings: &[Polled]) -> Option<(usize, usize)> {
    let goes = |(position, ring): (usize, &Polled)| {
        if ring.near.contains(&ring.at) {
            return None;
        }
        let here = rings.iter().filter(|other| other.at == ring.at);
        let total: f64 = here.map(|other| other.requests).sum();
        let takes = busy[ring.at] * ring.requests / total.max(1.0);
        let to = idlest(busy, &ring.near, ring.at)?;
        (busy[to] + takes <= ENOUGH).then_some((position, to))
    };
    rings.iter().enumerate().find_map(goes)
}

/// The idlest of these reactors that can help, and is another one.
fn idlest(busy: &[f64], places: &[usize], but: usize) -> Option<usize> {
    let can = |at: &&usize| **at != but && busy[**at] < CAN_HELP;
    let idler = |one: &&usize, other: &&usize| busy[**one].total_cmp(&busy[**other]);
    places.iter().filter(can).min_by(idler).copied()
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
            near: &[true; 4],
        }
        .shares()
    }

    /// Of an array whose drives are near the last two reactors.
    fn far_shares(busy: [f64; 4], requests: [f64; 4], owned: [usize; 4]) -> Option<Vec<usize>> {
        // Whoever owns something does half of what it does for it.
        let owning: Vec<f64> = (0..4)
            .map(|at| busy[at] * owned[at] as f64 / ALL as f64)
            .collect();
        Asked {
            busy: &busy,
            requests: &requests,
            owning: &owning,
            owned: &owned,
            near: &[false, false, true, true],
        }
        .shares()
    }

    #[test]
    fn who_is_near_the_drives_helps_first_and_who_is_far_only_when_nobody_near_can() {
        let third = [0.0, 0.0, 900.0, 0.0];
        let alone = [0, 0, ALL, 0];
        // Idler ones are far.
        let near = Some(vec![0, 0, ALL / 2, ALL / 2]);
        assert_eq!(far_shares([0.1, 0.0, 0.95, 0.4], third, alone), near);
        let far = Some(vec![0, ALL / 2, ALL / 2, 0]);
        assert_eq!(far_shares([0.1, 0.0, 0.95, 0.6], third, alone), far);
        // And gives way once somebody near can.
        let helped = [0, ALL / 2, ALL / 2, 0];
        assert_eq!(far_shares([0.0, 0.6, 0.7, 0.6], third, helped), None);
        assert_eq!(far_shares([0.0, 0.6, 0.7, 0.4], third, helped), near);
        // Both are needed: it stays.
        let both = [0, ALL / 3, ALL / 3, ALL / 3];
        assert_eq!(far_shares([0.0, 0.6, 0.75, 0.7], third, both), None);
    }

    #[test]
    fn whoever_asks_from_afar_owns_for_somebody_has_placed_it() {
        let first = [900.0, 0.0, 0.0, 0.0];
        let owned = [0, 0, ALL / 2, ALL / 2];
        let idle = [0.3, 0.0, 0.1, 0.1];
        assert_eq!(far_shares(idle, first, owned), Some(vec![ALL, 0, 0, 0]));
        // Those near the drives help it before its neighbour does.
        let busy = [0.95, 0.0, 0.1, 0.2];
        let helped = Some(vec![ALL / 2, 0, ALL / 2, 0]);
        assert_eq!(far_shares(busy, first, [ALL, 0, 0, 0]), helped);
    }

    #[test]
    fn stripes_belong_to_whoever_asks() {
        let one = [0.0, 900.0, 0.0, 0.0];
        let idle = [0.02, 0.1, 0.02, 0.02];
        let none = [0.0; 4];
        assert_eq!(shares(idle, one, none, QUARTERS), Some(vec![0, ALL, 0, 0]));
        assert_eq!(shares(idle, one, none, [0, ALL, 0, 0]), None, "it is so");
        let two = [500.0, 900.0, 0.0, 10.0];
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
    fn who_asks_now_more_and_now_less_stays_what_it_is() {
        let idle = [0.1; 4];
        let (alone, halves) = ([ALL, 0, 0, 0], [ALL / 2, ALL / 2, 0, 0]);
        let of = |part: f64, owned| shares(idle, [1000.0, part * 1000.0, 0.0, 0.0], idle, owned);
        for part in [0.02, 0.04, 0.05, 0.06, 0.09] {
            assert_eq!(of(part, alone), None, "{part}");
            assert_eq!(of(part, halves), None, "{part}");
        }
        assert_eq!(of(0.1, alone), Some(halves.to_vec()));
        assert_eq!(of(0.019, halves), Some(alone.to_vec()));
    }

    #[test]
    fn for_few_requests_nothing_moves() {
        let of =
            |first, second, owned| shares([0.1; 4], [first, second, 0.0, 0.0], [0.0; 4], owned);
        assert_eq!(of(19.0, 0.0, QUARTERS), None);
        assert_eq!(of(20.0, 0.0, QUARTERS), Some(vec![ALL, 0, 0, 0]));
        assert_eq!(of(100.0, 19.0, [ALL, 0, 0, 0]), None, "a fifth, but of few");
        assert_eq!(of(15.0, 15.0, [0, 0, 0, ALL]), None, "neither");
    }

    #[test]
    fn many_who_ask_all_own() {
        let count = 32;
        let (busy, near) = (vec![0.1; count], vec![true; count]);
        let mut owned = vec![0; count];
        owned[0] = ALL;
        let asked = Asked {
            busy: &busy,
            requests: &vec![500.0; count],
            owning: &busy,
            owned: &owned,
            near: &near,
        };
        assert_eq!(asked.shares(), Some(vec![ALL / count; count]));
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
    fn nobody_helps_a_reactor_that_others_keep_busy() {
        let one = [900.0, 0.0, 0.0, 0.0];
        let alone = [ALL, 0, 0, 0];
        let busy = [0.95, 0.3, 0.1, 0.4];
        let halves = Some(vec![ALL / 2, 0, ALL / 2, 0]);
        for (owning, expected) in [(0.0, None), (0.2, None), (0.3, halves)] {
            let owning = [owning, 0.0, 0.0, 0.0];
            assert_eq!(shares(busy, one, owning, alone), expected, "{owning:?}");
        }
        // The other owner has too much to do by these stripes.
        let two = [900.0, 900.0, 0.0, 0.0];
        let halves = [ALL / 2, ALL / 2, 0, 0];
        let busy = [0.99, 0.9, 0.1, 0.0];
        let thirds = Some(vec![1366, 1365, 0, 1365]);
        assert_eq!(shares(busy, two, [0.05, 0.7, 0.0, 0.0], halves), thirds);
        // It has more of them than it can do, whatever the first does.
        let busy = [0.99, 0.84, 0.1, 0.0];
        let third = [1366, 1365, 0, 1365];
        let evened = Some(vec![1366, 1365 - 170, 0, 1365 + 170]);
        assert_eq!(shares(busy, two, [0.05, 0.7, 0.0, 0.0], third), evened);
    }

    /// A ring that is as well on any of these.
    fn polled(at: usize, requests: f64, near: &[usize]) -> Polled {
        Polled {
            at,
            requests,
            near: near.to_vec(),
            far: Vec::new(),
        }
    }

    #[test]
    fn a_ring_goes_far_from_its_drives_only_when_nobody_near_has_time() {
        let ring = |at, requests| Polled {
            at,
            requests,
            near: vec![0, 1],
            far: vec![2, 3],
        };
        let rings = [ring(0, 500.0), ring(0, 400.0)];
        let to = |busy: [f64; 4]| leaves(&busy, &rings).map(|(_, to)| to);
        assert_eq!(to([0.95, 0.2, 0.0, 0.1]), Some(1), "near, though busier");
        assert_eq!(
            to([0.95, 0.6, 0.2, 0.1]),
            Some(3),
            "the idlest of the others"
        );
        assert_eq!(
            to([0.95, 0.4, 0.0, 0.1]),
            Some(2),
            "near it would be too much"
        );
        assert_eq!(to([0.95, 0.6, 0.6, 0.6]), None);
    }

    #[test]
    fn a_ring_that_is_far_returns_when_somebody_near_has_time_to_spare() {
        let ring = |at, requests| Polled {
            at,
            requests,
            near: vec![0, 1],
            far: vec![2, 3],
        };
        let rings = [ring(0, 500.0), ring(2, 300.0), ring(2, 100.0)];
        // It brings three quarters of 0.4 along.
        assert_eq!(returns(&[0.5, 0.4, 0.4, 0.0], &rings), Some((1, 1)));
        assert_eq!(
            returns(&[0.5, 0.45, 0.4, 0.0], &rings),
            Some((2, 1)),
            "the smaller"
        );
        assert_eq!(returns(&[0.5, 0.5, 0.4, 0.0], &rings), None);
        assert_eq!(
            returns(&[0.0; 4], &[ring(3, 0.0)]),
            Some((0, 0)),
            "without requests"
        );
        assert_eq!(returns(&[0.0; 4], &[ring(1, 9.0)]), None, "it is near");
        // What may leave at 0.85 has not the time to spare that brings it back.
        let left = [ring(0, 500.0), ring(2, 400.0)];
        assert_eq!(returns(&[0.48, 0.6, 0.4, 0.0], &left), None);
    }

    #[test]
    fn a_ring_leaves_a_reactor_that_has_too_much_to_do_for_one_that_has_not() {
        let rings = |on_first: [f64; 3]| {
            let ring = |requests| polled(0, requests, &[0, 1, 2]);
            let mut rings: Vec<_> = on_first.into_iter().map(ring).collect();
            rings.push(polled(1, 5000.0, &[0, 1, 2]));
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
            .map(|ring| polled(ring.at, ring.requests, &[0, 1]))
            .collect();
        assert_eq!(leaves(&busy, &pinned), Some((0, 1)), "where it may go");
        assert_eq!(leaves(&[0.0; 3], &[]), None);
    }

    #[test]
    fn rings_leave_also_where_many_share_what_is_too_much() {
        let many = |count: usize, most: f64| {
            let mut rings = vec![polled(0, 40.0, &[0, 1, 2]); count];
            rings[0].requests = most;
            rings
        };
        let busy = [0.95, 0.3, 0.1];
        for count in [2, 20, 21, 100, 1000] {
            let found = leaves(&busy, &many(count, 40.0));
            assert_eq!(found.map(|(_, to)| to), Some(2), "{count}");
        }
        // What the largest leaves to others is much together.
        assert_eq!(leaves(&busy, &many(41, 1600.0)), Some((0, 2)));
        assert_eq!(leaves(&busy, &many(41, 9000.0)), Some((1, 2)), "too large");
        assert_eq!(leaves(&busy, &many(11, 9000.0)), None, "it has it all");
    }

    #[test]
    fn a_ring_that_has_the_busiest_reactor_alone_keeps_none_on_another() {
        let busy = [0.99, 0.9, 0.95, 0.1];
        let ring = |at, requests| polled(at, requests, &[0, 1, 2, 3]);
        let alone = [ring(0, 900.0), ring(1, 500.0), ring(1, 300.0)];
        assert_eq!(leaves(&busy, &alone), Some((1, 3)));
        let third = [alone.as_slice(), &[ring(2, 70.0), ring(2, 50.0)]].concat();
        assert_eq!(leaves(&busy, &third), Some((3, 3)), "the busier first");
        // One with time to spare keeps its rings.
        let busy = [0.99, 0.8, 0.8, 0.1];
        assert_eq!(leaves(&busy, &third), None);
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
