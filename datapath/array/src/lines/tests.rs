//! Lines under a seeded order: who is served when, and that nobody is forgotten.

use super::*;

const TURN: u32 = 64;
const SLOTS: usize = 64;

/// Small numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Serves until `left` is used up or nobody waits, each at the cost that `cost` says. Who was
/// served.
fn serve(lines: &mut Lines, mut left: i64, cost: impl Fn(u32) -> i64) -> Vec<u32> {
    let mut served = Vec::new();
    while let Some(slot) = lines.first() {
        if left <= 0 {
            break;
        }
        if lines.credit() <= 0 {
            lines.pass_on();
            continue;
        }
        lines.charge(cost(slot));
        left -= cost(slot);
        lines.pop();
        served.push(slot);
    }
    served
}

fn waiting(lines: &Lines) -> Vec<u32> {
    let mut found = Vec::new();
    lines.each(|slot| found.push(slot));
    found
}

#[test]
fn within_a_line_the_first_goes_first() {
    let mut lines = Lines::new(4, SLOTS, TURN);
    for slot in [5, 3, 9, 1] {
        lines.push(slot, 2);
    }
    assert_eq!(waiting(&lines), [5, 3, 9, 1]);
    assert_eq!(serve(&mut lines, i64::MAX, |_| 1000), [5, 3, 9, 1]);
    assert_eq!((lines.first(), lines.count()), (None, 0));
}

#[test]
fn who_comes_later_waits_for_no_more_than_a_turn_of_each_other_and_what_is_begun() {
    // Lines 0 to 2 have much to do, in pieces of 256; a piece of 1 comes in line 3.
    for ahead in 0..20 {
        let mut lines = Lines::new(4, SLOTS, TURN);
        for slot in 0..60 {
            lines.push(slot, u16::try_from(slot % 3).expect("small"));
        }
        let before = serve(&mut lines, ahead * 256 + 1, |_| 256);
        lines.push(60, 3);
        let after = serve(
            &mut lines,
            i64::MAX,
            |slot| if slot == 60 { 1 } else { 256 },
        );
        let position = after.iter().position(|&slot| slot == 60).expect("served");
        assert!(position <= 3, "{position} after {} others", before.len());
    }
}

#[test]
fn lines_that_always_wait_get_the_same_whatever_their_pieces_cost() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let most = [1, 200, 40, 3].map(|most| most + i64::try_from(chance.below(50)).expect("few"));
        let mut lines = Lines::new(4, 4, TURN);
        let mut got = [0i64; 4];
        for slot in 0..4u16 {
            lines.push(u32::from(slot), slot);
        }
        for _ in 0..20_000 {
            let slot = lines.first().expect("all wait");
            if lines.credit() <= 0 {
                lines.pass_on();
                continue;
            }
            let cost = 1 + i64::try_from(chance.below(200)).expect("small") % most[at(slot)];
            lines.charge(cost);
            got[at(slot)] += cost;
            // The next piece of the same line is there already: its turn goes on.
            lines.push(slot, u16::try_from(slot).expect("small"));
            lines.pop();
        }
        let (least, largest) = (
            got.iter().min().expect("four"),
            got.iter().max().expect("four"),
        );
        let apart = largest - least;
        assert!(apart <= 2 * (i64::from(TURN) + 250), "seed {seed}: {got:?}");
    }
}

#[test]
fn nobody_is_forgotten_and_a_line_that_was_idle_has_saved_nothing() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let mut lines = Lines::new(4, SLOTS, TURN);
        let mut free: Vec<u32> = (0..u32::try_from(SLOTS).expect("few")).collect();
        let mut model = vec![Vec::new(); 3];
        for _ in 0..500 {
            if chance.below(2) == 0 && !free.is_empty() {
                let slot = free.pop().expect("looked at");
                let line = usize::try_from(chance.below(3)).expect("small");
                lines.push(slot, u16::try_from(line).expect("small"));
                model[line].push(slot);
            } else if let Some(slot) = lines.first() {
                if lines.credit() <= 0 || chance.below(4) == 0 {
                    lines.pass_on();
                    continue;
                }
                lines.charge(i64::try_from(chance.below(300)).expect("small"));
                lines.pop();
                let line = model.iter_mut().find(|line| line.first() == Some(&slot));
                assert_eq!(line.expect("it is the first of a line").remove(0), slot);
                free.push(slot);
            }
            assert!(
                lines
                    .lines
                    .iter()
                    .all(|line| line.credit <= i64::from(TURN))
            );
            let (mut found, mut expected) = (waiting(&lines), model.concat());
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "seed {seed}");
            let busy = model.iter().filter(|line| !line.is_empty()).count();
            assert_eq!(lines.count(), busy);
        }
    }
}

#[test]
fn who_comes_back_after_a_while_owes_nothing() {
    let mut lines = Lines::new(2, SLOTS, TURN);
    lines.push(0, 0);
    assert_eq!(serve(&mut lines, 1, |_| 1_000_000), [0]);
    lines.push(1, 1);
    lines.push(2, 0);
    lines.push(3, 1);
    assert_eq!(serve(&mut lines, i64::MAX, |_| 64), [1, 2, 3]);
}

#[test]
fn who_owes_is_served_although_another_can_do_nothing() {
    // Line 1 can do nothing, and line 2 has had far more than its turn.
    let mut lines = Lines::new(4, SLOTS, TURN);
    lines.push(1, 2);
    lines.push(2, 1);
    lines.push(3, 2);
    lines.charge(100 * i64::from(TURN));
    lines.pop();
    let mut attempts = Attempts::default();
    let mut served = false;
    while let Some(slot) = attempts.next(&mut lines) {
        if slot == 3 {
            served = true;
            lines.pop();
            continue;
        }
        assert_eq!(slot, 2);
        if attempts.tried(false, &lines) {
            break;
        }
        lines.pass_on();
    }
    assert!(served, "in one go");
    // And when nobody can, it ends.
    lines.push(4, 3);
    let mut attempts = Attempts::default();
    let mut tries = 0;
    while attempts.next(&mut lines).is_some() {
        tries += 1;
        if attempts.tried(false, &lines) {
            break;
        }
        lines.pass_on();
    }
    assert_eq!(tries, 2);
}

#[test]
fn the_turn_goes_on_to_a_line_that_owes_nothing() {
    let mut lines = Lines::new(2, SLOTS, TURN);
    for (slot, line) in [(0, 0), (1, 1)] {
        lines.push(slot, line);
    }
    let mut attempts = Attempts::default();
    for slot in [0, 1, 0] {
        assert_eq!(attempts.next(&mut lines), Some(slot));
        lines.charge(lines.credit());
    }
}
