//! Who lags and who leaves, by what members took in one window after another.

use super::*;

const GROUP: usize = 6;
const SECOND: Duration = Duration::from_secs(1);

fn laggards(parity: usize) -> Laggards {
    Laggards::new(GROUP, (GROUP, parity), 50)
}

/// A window in which each member answered 200 reads in so many microseconds.
fn window(microseconds: [u64; GROUP]) -> Vec<Took> {
    let took = |took: u64| {
        let mut times = Took::default();
        for _ in 0..200 {
            times[0].record(took * 1000);
        }
        times
    };
    microseconds.into_iter().map(took).collect()
}

fn here(_: usize) -> Option<u32> {
    Some(0)
}

fn judge(laggards: &mut Laggards, microseconds: [u64; GROUP]) -> Vec<(usize, bool)> {
    let turns = laggards.judge(&window(microseconds), here);
    turns
        .into_iter()
        .map(|turn| (turn.member.at(), turn.lags))
        .collect()
}

const WELL: [u64; GROUP] = [300; GROUP];
const THIRD: [u64; GROUP] = [300, 300, 3000, 300, 300, 300];

#[test]
fn five_slow_windows_of_sixty_make_a_laggard_until_none_is() {
    let mut laggards = laggards(2);
    for _ in 0..4 {
        assert_eq!(judge(&mut laggards, THIRD), []);
        for _ in 0..10 {
            assert_eq!(judge(&mut laggards, WELL), []);
        }
    }
    assert_eq!(judge(&mut laggards, THIRD), [(2, true)]);
    assert!(laggards.pace(2).lags && !laggards.pace(1).lags);
    assert_eq!(laggards.pace(2).slow_windows, 5);
    assert!(laggards.pace(2).p99[0].is_some_and(|p99| p99 > 3 * SECOND / 1000));
    for _ in 0..59 {
        assert_eq!(judge(&mut laggards, WELL), []);
    }
    assert_eq!(judge(&mut laggards, WELL), [(2, false)]);
}

#[test]
fn slow_windows_that_are_too_far_apart_do_not_count() {
    let mut laggards = laggards(2);
    for window in 0..600 {
        let took = if window % 15 == 0 { THIRD } else { WELL };
        assert_eq!(judge(&mut laggards, took), [], "{window}");
    }
    assert_eq!(laggards.pace(2).slow_windows, 20);
}

#[test]
fn what_is_short_or_little_longer_or_rare_is_not_slow() {
    let mut laggards = laggards(2);
    for _ in 0..100 {
        // Ten times, and still short; then long, and not four times.
        assert_eq!(judge(&mut laggards, [90, 90, 900, 90, 90, 90]), []);
        assert_eq!(
            judge(&mut laggards, [2000, 2000, 7000, 2000, 2000, 2000]),
            []
        );
        // Long, but rare among few, or of very few, or not very long.
        for (long, took, short) in [
            (24, 1_000_000_000, 25),
            (7, 1_000_000_000, 0),
            (49, 29_000_000, 0),
        ] {
            let mut few = window(WELL);
            few[2] = Took::default();
            (0..long).for_each(|_| few[2][0].record(took));
            (0..short).for_each(|_| few[2][0].record(300_000));
            assert_eq!(laggards.judge(&few, here), []);
        }
    }
    assert_eq!(laggards.pace(2).slow_windows, 0);
}

/// A window in which each member answered so many writes in so many milliseconds.
fn writes(each: [(usize, u64); GROUP]) -> Vec<Took> {
    let took = |(count, took): (usize, u64)| {
        let mut times = Took::default();
        (0..count).for_each(|_| times[1].record(took * 1_000_000));
        times
    };
    each.into_iter().map(took).collect()
}

#[test]
fn one_for_which_everybody_waits_lags_although_little_is_asked_for() {
    let mut crawling = laggards(2);
    let took = writes([(15, 5), (14, 4), (14, 400), (16, 5), (20, 9), (9, 5)]);
    for window in 0..30 {
        let turns = crawling.judge(&took, here);
        let lags = turns.iter().any(|turn| turn.member.at() == 2 && turn.lags);
        assert_eq!((turns.len(), lags), (usize::from(window == 4), window == 4));
    }
    let leaves = crawling.who_leaves(Instant(0), (|_| true, 4));
    assert_eq!(leaves, Some(MemberIndex(2)));
    // All wait for the load, or one has most of it, or they are all of this kind.
    let all = [(15, 50); GROUP];
    let mut busy = [(15, 5); GROUP];
    busy[2] = (31, 400);
    let mut little_longer = [(15, 120); GROUP];
    little_longer[2] = (15, 400);
    let mut three = [(15, 5); GROUP];
    three[..3].fill((15, 400));
    for each in [all, busy, little_longer, three] {
        let mut laggards = laggards(2);
        for _ in 0..40 {
            assert_eq!(laggards.judge(&writes(each), here), [], "{each:?}");
        }
    }
}

#[test]
fn windows_of_few_requests_that_are_not_slow_count_for_nothing() {
    let mut laggards = laggards(2);
    let few = writes([(15, 5); GROUP]);
    for _ in 0..4 {
        assert_eq!(judge(&mut laggards, THIRD), []);
        for _ in 0..100 {
            assert_eq!(laggards.judge(&few, here), []);
        }
    }
    assert_eq!(judge(&mut laggards, THIRD), [(2, true)]);
}

#[test]
fn writes_count_like_reads() {
    let mut laggards = laggards(1);
    let mut took = window(THIRD);
    for times in &mut took {
        times.swap(0, 1);
    }
    let turns: Vec<Turn> = (0..5).flat_map(|_| laggards.judge(&took, here)).collect();
    assert_eq!(turns, [turn(2, true)]);
}

#[test]
fn when_more_are_slow_than_the_group_can_lose_it_is_the_load() {
    let mut two = laggards(2);
    let mut one = laggards(1);
    for _ in 0..4 {
        let took = [300, 3000, 3000, 300, 300, 300];
        assert_eq!(judge(&mut two, took), []);
        assert_eq!(judge(&mut one, took), []);
    }
    let took = [300, 3000, 3000, 300, 300, 300];
    assert_eq!(judge(&mut two, took), [(1, true), (2, true)]);
    assert_eq!(judge(&mut one, took), []);
    assert_eq!(one.pace(1).slow_windows, 0);
}

#[test]
fn drives_that_all_stumble_now_and_then_are_all_alike() {
    let mut laggards = laggards(2);
    for window in 0..600 {
        let mut took = WELL;
        took[window % GROUP] = 5000;
        assert_eq!(judge(&mut laggards, took), [], "{window}");
        assert_eq!(laggards.who_leaves(Instant(0), (|_| true, 4)), None);
    }
    assert_eq!(laggards.pace(0).slow_windows, 50);
}

#[test]
fn thirty_of_three_hundred_have_it_left_out_once_an_hour_and_never_the_last_spare() {
    let mut laggards = laggards(2);
    let at = |seconds: u64| Instant(seconds * 1_000_000_000);
    for count in 1..=30 {
        assert_eq!(laggards.who_leaves(at(0), (|_| true, 4)), None, "{count}");
        judge(&mut laggards, THIRD);
    }
    let third = Some(MemberIndex(2));
    assert_eq!(laggards.who_leaves(at(0), (|_| true, 4)), third);
    // Level 5, or one that is out already.
    assert_eq!(laggards.who_leaves(at(0), (|_| true, 5)), None);
    assert_eq!(laggards.who_leaves(at(0), (|member| member != 5, 4)), None);
    laggards.leaves(at(10));
    assert_eq!(laggards.who_leaves(at(3609), (|_| true, 4)), None);
    assert_eq!(laggards.who_leaves(at(3610), (|_| true, 4)), third);
}

#[test]
fn another_drive_in_its_place_begins_anew() {
    let mut laggards = laggards(2);
    for _ in 0..40 {
        judge(&mut laggards, THIRD);
    }
    let other = |member| Some(u32::from(member == 2));
    assert_eq!(laggards.judge(&window(WELL), other), [turn(2, false)]);
    assert_eq!(laggards.pace(2).slow_windows, 0);
    // One that is out is no peer, and is not judged.
    let out = |member| (member != 2).then_some(0);
    for _ in 0..10 {
        assert_eq!(laggards.judge(&window(THIRD), out), []);
    }
}

#[test]
fn a_member_that_is_asked_for_more_than_its_peers_may_be_slow_for_that() {
    let mut laggards = laggards(2);
    for count in [201, 0] {
        for _ in 0..20 {
            let mut took = window(THIRD);
            for _ in 0..count {
                took[2][0].record(3_000_000);
            }
            let turns = laggards.judge(&took, here);
            assert!(count == 0 || turns.is_empty());
        }
    }
    assert_eq!(laggards.pace(2).slow_windows, 20);
}

#[test]
fn of_a_laggard_few_requests_are_enough_and_without_any_it_stays_one() {
    let mut laggards = laggards(2);
    for _ in 0..5 {
        judge(&mut laggards, THIRD);
    }
    let mut none = window(WELL);
    none[2] = Took::default();
    for _ in 0..100 {
        assert_eq!(laggards.judge(&none, here), []);
    }
    assert!(laggards.pace(2).lags);
    let mut few = none;
    for _ in 0..6 {
        few[2][0].record(80_000_000);
    }
    for count in 6..=30 {
        laggards.judge(&few, here);
        assert_eq!(laggards.pace(2).slow_windows, count);
    }
    for times in &mut few[2] {
        *times = Sample::default();
    }
    for _ in 0..6 {
        few[2][0].record(80_000);
    }
    let turns: Vec<Turn> = (0..60).flat_map(|_| laggards.judge(&few, here)).collect();
    assert_eq!(turns, [turn(2, false)]);
}

#[test]
fn of_few_trials_it_takes_half_to_be_slow() {
    for (slow, keeps_up) in [(9, true), (11, false)] {
        let mut laggards = laggards(2);
        (0..5).for_each(|_| drop(judge(&mut laggards, THIRD)));
        let mut tried = window(WELL);
        tried[2] = Took::default();
        for trial in 0..20 {
            tried[2][0].record(if trial < slow { 30_000_000 } else { 300_000 });
        }
        let turns: Vec<Turn> = (0..60).flat_map(|_| laggards.judge(&tried, here)).collect();
        let expected: &[Turn] = if keeps_up { &[turn(2, false)] } else { &[] };
        assert_eq!(turns, expected, "{slow} of 20");
    }
}

#[test]
fn who_has_more_than_twice_the_load_of_his_peers_is_not_compared_with_them() {
    let peers = || {
        [10, 12, 14]
            .map(|count| Some(((100, 110), count)))
            .into_iter()
    };
    let is_longer = |count| is_longer(Some(((900, 1000), count)), peers(), 500);
    let found = [1, 12 * BUSIER, 12 * BUSIER + 1].map(is_longer);
    assert_eq!(found, [Some(true), Some(true), Some(false)]);
}
