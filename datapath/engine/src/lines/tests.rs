//! Lines of rings, turn by turn: who may hand over how much, without any reactor.

use block::{Part, Stability};
use memory::SegmentList;
use units::bytes_u64;
use units::limits::ARRAY_REQUESTS_MAX;

use super::*;

const A: ArrayIndex = ArrayIndex(3);
/// What requests of 1 MiB and of 4 KiB cost.
const LARGE: u64 = EXTRA + 256;
const SMALL: u64 = EXTRA + 1;

fn volume() -> Arc<Limiter> {
    Arc::new(Limiter::default())
}

/// Hands over requests of this price until the line has to wait. How many, and for what it waits.
fn fill(lines: &mut Lines, line: usize, price: u64) -> (u64, Wait) {
    let mut taken = 0;
    loop {
        match lines.admits(line) {
            Ok(()) => lines.taken(line, price),
            Err(wait) => return (taken, wait),
        }
        taken += 1;
    }
}

/// Hands over in as many turns as it takes, until the line waits for answers.
fn fill_up(lines: &mut Lines, line: usize, price: u64) -> u64 {
    let mut taken = 0;
    loop {
        lines.begin_turn();
        let (more, wait) = fill(lines, line, price);
        taken += more;
        if wait == Wait::ForAnswers {
            return taken;
        }
    }
}

#[test]
fn what_a_request_costs_comes_back_in_its_cookie() {
    for (bytes, price) in [(0, 2), (512, 3), (4096, 3), (4097, 4), (16 << 20, 4098)] {
        assert_eq!(price_of(bytes), price);
        let cookie = Cookie(7 << 32 | price << PRICE_SHIFT | 1023);
        assert_eq!((price_in(cookie), cookie.0 & SLOT_MASK), (price, 1023));
    }
    assert_eq!(price_in(Cookie(7 << 32 | 5)), 0, "a flush");
}

#[test]
fn what_is_discarded_or_zeroed_leaves_most_requests_of_an_array_to_others() {
    let request = |operation, blocks| Request {
        operation,
        start: 0,
        blocks,
        part: Part::WHOLE,
        segments: SegmentList::EMPTY,
        stability: Stability::MayChange,
        cookie: Cookie(0),
    };
    for operation in [Operation::Discard, Operation::WriteZeroes] {
        // 512 MiB, and a block.
        let (large, small) = (request(operation, 1 << 20), request(operation, 1));
        assert_eq!(price_for(&large, 0, 9), LARGE);
        assert_eq!(price_for(&small, 0, 12), SMALL);
        let mut lines = Lines::default();
        let line = lines.join(A, &volume());
        let taken = fill_up(&mut lines, line, price_for(&large, 0, 9));
        assert!(taken < bytes_u64(ARRAY_REQUESTS_MAX) / 64, "{taken}");
    }
    assert_eq!(price_for(&request(Operation::Read, 8), 4096, 9), SMALL);
    assert_eq!(price_for(&request(Operation::Write, 8), 4096, 9), SMALL);
}

#[test]
fn a_volume_alone_gets_each_turn_and_all_that_may_be_under_way() {
    let mut lines = Lines::default();
    let line = lines.join(A, &volume());
    for _ in 0..20 {
        lines.begin_turn();
        assert_eq!(fill(&mut lines, line, LARGE), (1, Wait::ForTurn));
    }
    let taken = fill_up(&mut lines, line, LARGE);
    assert_eq!(20 + taken, WINDOW.div_ceil(LARGE));
}

#[test]
fn a_small_request_comes_in_beside_a_volume_that_has_all_under_way_that_may_be() {
    let mut lines = Lines::default();
    let (heavy, light) = (lines.join(A, &volume()), lines.join(A, &volume()));
    fill_up(&mut lines, heavy, LARGE);
    for _ in 0..100 {
        lines.begin_turn();
        assert_eq!(lines.admits(heavy), Err(Wait::ForAnswers));
        assert_eq!(lines.admits(light), Ok(()));
        lines.taken(light, SMALL);
        lines.answered(light, SMALL);
    }
}

#[test]
fn in_one_turn_no_more_is_handed_over_than_a_turn_and_a_request_of_each() {
    for busy in [1, 2, 3, 10] {
        let mut lines = Lines::default();
        let all: Vec<usize> = (0..busy).map(|_| lines.join(A, &volume())).collect();
        for turn in 0..200 {
            lines.begin_turn();
            let mut units = 0;
            for &line in &all {
                let (taken, wait) = fill(&mut lines, line, 16);
                assert_eq!(wait, Wait::ForTurn);
                units += taken * 16;
                for _ in 0..taken {
                    lines.answered(line, 16);
                }
            }
            let most = TURN.cast_unsigned() + busy * 16;
            assert!(
                turn == 0 || units <= most,
                "{busy} lines: {units} in turn {turn}"
            );
            assert!(turn == 0 || units >= TURN.cast_unsigned() - busy * 16);
        }
    }
}

#[test]
fn volumes_that_always_have_work_get_the_same_bytes_whatever_their_requests_cost() {
    let mut lines = Lines::default();
    let all: Vec<(usize, u64)> = [LARGE, SMALL, 4098, 18]
        .map(|price| (lines.join(A, &volume()), price))
        .to_vec();
    let mut got = vec![0; all.len()];
    for turn in 0..10_000 {
        lines.begin_turn();
        for at in 0..all.len() {
            // Who is asked first differs, as on a reactor.
            let at = (at + turn) % all.len();
            let (line, price) = all[at];
            let (taken, _) = fill(&mut lines, line, price);
            got[at] += taken * price;
            for _ in 0..taken {
                lines.answered(line, price);
            }
        }
    }
    let (least, most) = (
        got.iter().min().expect("four"),
        got.iter().max().expect("four"),
    );
    assert!(most - least <= 2 * 4098 + 10_000, "{got:?}");
}

#[test]
fn a_volume_that_comes_later_gets_half_of_what_may_be_under_way() {
    let mut lines = Lines::default();
    let (first, later) = (lines.join(A, &volume()), lines.join(A, &volume()));
    let mut under_way = [fill_up(&mut lines, first, LARGE), 0];
    // Both always have more; those under way are answered in the order in which they came.
    let mut order: std::collections::VecDeque<usize> = vec![0; 200].into();
    order.truncate(usize::try_from(under_way[0]).expect("few"));
    for turn in 0..1000 {
        lines.begin_turn();
        for at in [turn % 2, (turn + 1) % 2] {
            let (taken, _) = fill(&mut lines, [first, later][at], LARGE);
            under_way[at] += taken;
            order.extend((0..taken).map(|_| at));
        }
        let answered = order.pop_front().expect("there is always something");
        under_way[answered] -= 1;
        lines.answered([first, later][answered], LARGE);
    }
    let half = WINDOW / 2 / LARGE;
    for under_way in under_way {
        assert!(under_way.abs_diff(half) <= 2, "{under_way} of {half}");
    }
}

#[test]
fn an_array_that_answers_nothing_takes_nothing_from_another() {
    let mut lines = Lines::default();
    let stuck = lines.join(A, &volume());
    let other = lines.join(ArrayIndex(9), &volume());
    fill_up(&mut lines, stuck, LARGE);
    assert_eq!(fill_up(&mut lines, other, LARGE), WINDOW.div_ceil(LARGE));
}

#[test]
fn rings_of_one_volume_share_its_line_and_the_last_that_goes_ends_it() {
    let mut lines = Lines::default();
    let (one, other) = (volume(), volume());
    let line = lines.join(A, &one);
    assert_eq!(lines.join(A, &one), line);
    assert_ne!(lines.join(A, &other), line);
    lines.begin_turn();
    lines.taken(line, LARGE);
    lines.leave(line);
    lines.answered(line, LARGE);
    lines.leave(line);
    assert!(lines.lines[line].is_none());
    assert_eq!(lines.arrays[A.at()].under_way, 0);
    assert_eq!(lines.arrays[A.at()].lines, 0);
    // Whoever comes now owes nothing.
    let next = lines.join(A, &volume());
    assert_eq!(next, line);
    lines.begin_turn();
    assert_eq!(lines.admits(next), Ok(()));
}

#[test]
fn who_owed_and_is_idle_for_a_while_owes_and_saves_nothing() {
    let mut lines = Lines::default();
    let line = lines.join(A, &volume());
    lines.begin_turn();
    lines.taken(line, 4098);
    lines.answered(line, 4098);
    for _ in 0..100 {
        lines.begin_turn();
    }
    let (taken, _) = fill(&mut lines, line, 16);
    assert_eq!(taken, TURN.cast_unsigned() / 16);
}
