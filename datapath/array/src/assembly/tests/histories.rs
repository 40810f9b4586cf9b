//! Histories that parted: which decides, which came to nothing, and who proves it.

use super::*;

#[test]
fn halves_that_were_both_started_are_a_split_brain() {
    let common = later(&config(2), 3);
    let mut found = mirror(&common);
    let first = one(&found[..1]).start(0x111, false).expect("lowest half");
    let second = one(&found[1..]).start(0x222, true).expect("forced half");
    for (left, right) in [(0, 0), (0, 3), (4, 0), (30, 0), (0, 30)] {
        let (left, mut right) = (later(&first, left), later(&second, right));
        right.written_seconds = 1_795_274_820;
        set(&mut found[0], &left);
        set(&mut found[1], &right);
        let assembly = one(&found);
        let said = explanation(&assembly);
        assert!(said.starts_with("refused: split brain"), "{said}");
        for side in [&left, &right] {
            let id = format!("{} ({:032x})", side.update, side.update_id);
            assert!(said.contains(&id), "{said} names {id}");
        }
        for when in [
            format!("({:032x}) at an unknown time after", left.update_id),
            format!("({:032x}) on 2026-11-21 15:27 UTC after", right.update_id),
        ] {
            assert!(said.contains(&when), "{said} says {when}");
        }
        assert!(assembly.start(1, true).is_err());
        assert_eq!(assembly.left_out.len(), 1);
        assert!(assembly.left_out[0].1.to_string().contains("alone"));
    }
}

#[test]
fn a_commit_that_reached_one_member_in_vain_is_given_up() {
    // Update 5 excluded member 5, reached member 2 only, and the engine died with member 2.
    let common = later(&config(6), 3);
    let vain = excluding(&common, 5, 0xAA);
    let mut found = raid6(6, &common);
    set(&mut found[2], &vain);
    let mut without: Vec<Found> = found.clone();
    without.remove(2);
    let assembly = one(&without);
    assert_eq!(assembly.verdict, DEGRADED);
    let start = assembly.start(0xBB, false).expect("a majority");
    for updates in [0, 1, 5, 40] {
        let now = later(&start, updates);
        for (at, member) in found.iter_mut().enumerate() {
            if at != 2 {
                set(member, &now);
            }
        }
        let assembly = one(&found);
        assert_eq!(assembly.verdict, DIRTY, "{updates} updates later");
        assert_eq!(assembly.config, now);
        assert!(
            reason_for(&assembly, 2).contains("its update 5 was never committed"),
            "{}",
            reason_for(&assembly, 2)
        );
    }
}

#[test]
fn what_a_replaced_member_did_in_vain_keeps_nobody_from_starting() {
    // As above, but another drive took the place of member 2: no exclusion says when they parted.
    let common = later(&config(6), 3);
    let mut found = raid6(6, &common);
    let mut without = found.clone();
    without.remove(2);
    let start = one(&without).start(0xBB, false).expect("a majority");
    for (alone, updates) in (1..4).flat_map(|alone| (1..60).map(move |updates| (alone, updates))) {
        let vain = (1..alone).fold(excluding(&common, 5, 0xAA), |vain, n| vain.next(0xAA0 + n));
        set(&mut found[2], &vain);
        let mut now = later(&start, updates);
        now.members[2].uuid = Uuid::from_u128(0xFACE);
        for (at, member) in found.iter_mut().enumerate() {
            if at != 2 {
                set(member, &now);
            }
        }
        let assembly = one(&found);
        assert_eq!(assembly.verdict, DIRTY, "{alone} alone, {updates} later");
        assert_eq!(assembly.config, now);
        // Whoever was forced meanwhile may have taken what the other side had acknowledged.
        now.forced_at = now.update;
        set(&mut found[0], &now);
        let forced = one(&found).verdict;
        assert!(forced == DIRTY || matches!(forced, Verdict::Refused { .. }));
    }
}

/// Five mirrors. Member 2 alone has update 5 of a start, which the others have of another one;
/// then a spare took its place.
struct InVain {
    found: Vec<Found>,
    start: ArrayConfig,
}

const SPARE: Uuid = Uuid::from_u128(0xFACE);

impl InVain {
    fn new() -> InVain {
        let common = later(&config(5), 3);
        let mut found = drives_of(Level::L1, 5, &common);
        let mut without = found.clone();
        without.remove(2);
        let start = one(&without).start(0xBB, false).expect("a majority");
        set(&mut found[2], &common.next(0xAA));
        InVain { found, start }
    }

    fn later(&self, updates: u128) -> ArrayConfig {
        let mut now = later(&self.start, updates);
        now.members[2].uuid = SPARE;
        now.members[2].state = MemberState::InSync;
        now
    }

    /// With the old drive, the spare and two who had to take what the old one has: `found` is
    /// changed before that is judged.
    fn verdict(&self, now: &ArrayConfig, change: impl Fn(&mut Vec<Found>)) -> Verdict {
        let mut found = self.found.clone();
        found.push(renamed(&found[2], 9, SPARE));
        for member in found.iter_mut().filter(|it| it.drive.0 != 2) {
            set(member, now);
        }
        change(&mut found);
        found.retain(|it| [2, 3, 4, 9].contains(&it.drive.0));
        one(&found).verdict
    }

    fn is_refused(&self, now: &ArrayConfig, change: impl Fn(&mut Vec<Found>)) {
        let verdict = self.verdict(now, change);
        assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict}");
    }
}

#[test]
fn who_went_on_together_witness_by_their_record_that_others_did_so_in_vain() {
    let all = InVain::new();
    for updates in 2..60 {
        let verdict = all.verdict(&all.later(updates), |_| {});
        assert_eq!(verdict, DIRTY, "{updates} later");
    }
}

#[test]
fn a_record_is_no_witness_of_those_who_may_never_have_had_it() {
    let all = InVain::new();
    // A start that is not through may have reached nobody but those that are here, nor may the
    // record of another one that it follows: nothing was made since.
    for later in 1..4 {
        let mut unfinished = all.later(later);
        unfinished.unfinished_since = Update(all.start.update.0 + 1);
        all.is_refused(&unfinished, |_| {});
        unfinished.unfinished_since = all.start.update;
        all.is_refused(&unfinished, |_| {});
    }
    // As the first update after they parted may.
    let mut first = all.later(0);
    first.unfinished_since = Update(0);
    all.is_refused(&first, |_| {});
    // What others have that were replaced as well, nobody knows.
    let mut replaced = all.later(2);
    for member in [0_u16, 1] {
        let uuid = Uuid::from_u128(0xF00 + u128::from(member));
        replaced.members[usize::from(member)].uuid = uuid;
    }
    all.is_refused(&replaced, |_| {});
    let mut forced = all.later(2);
    forced.forced_at = forced.update;
    all.is_refused(&forced, |_| {});
}

#[test]
fn who_was_in_sync_before_starts_that_came_to_nothing_witnesses_all_the_same() {
    let all = InVain::new();
    for (updates, since) in [(2, 2), (3, 2), (3, 3), (40, 2), (40, 40)] {
        let mut now = all.later(updates);
        now.unfinished_since = Update(all.start.update.0 + u64::try_from(since).expect("small"));
        assert_eq!(all.verdict(&now, |_| {}), DIRTY, "{updates} later, {since}");
    }
    // Of one that such a start left out nobody says whether it was in sync.
    let mut out = all.later(4);
    out.unfinished_since = out.update;
    for member in [0, 1] {
        out.members[member] = excluding(&all.later(3), member, 0xCC).members[member].clone();
    }
    all.is_refused(&out, |_| {});
}

#[test]
fn a_member_that_only_a_start_in_vain_left_out_is_there_twice() {
    let all = InVain::new();
    let mut back = all.later(4);
    back.members[2] = excluding(&all.later(3), 2, 0xCC).members[2].clone();
    back.members[2].uuid = all.start.members[2].uuid;
    let verdict = all.verdict(&back, |_| {});
    assert!(matches!(verdict, Verdict::NeedsForce { .. }), "{verdict}");
    for since in [back.update.0, back.update.0 - 1] {
        back.unfinished_since = Update(since);
        all.is_refused(&back, |_| {});
    }
    // Left out before them, for good.
    let mut back = back.next(0xCD);
    back.unfinished_since = back.update;
    let verdict = all.verdict(&back, |_| {});
    assert!(matches!(verdict, Verdict::NeedsForce { .. }), "{verdict}");
}

#[test]
fn copies_and_hidden_records_witness_for_nobody() {
    let all = InVain::new();
    let now = all.later(4);
    // Its other record may be newer: the one by which it went on alone.
    all.is_refused(&now, |found| {
        found[2].configs.push(Err(FormatError::Unreadable));
    });
    // It got further, past its start: all that it counts on had a record of its side.
    let vain = all.found[2].configs[0].as_ref().expect("good").1.clone();
    let mut further = vain.next(0xAB);
    all.is_refused(&now, |found| set(&mut found[2], &further));
    // Or past an update of its side before a start.
    further.unfinished_since = further.update;
    all.is_refused(&now, |found| set(&mut found[2], &further));
    // However long ago they parted, as far as both still name some updates.
    for (updates, refused) in [(1, false), (16, false), (17, true), (20, true), (40, true)] {
        let further = (0..updates).fold(vain.clone(), |side, n| side.next(0xA00 + n));
        let now = all.later(32);
        let verdict = all.verdict(&now, |found| set(&mut found[2], &further));
        let is_refused = matches!(verdict, Verdict::Refused { .. });
        assert_eq!(is_refused, refused, "{updates} later: {verdict}");
    }
    let mut before_starts = (0..20).fold(vain.clone(), |side, n| side.next(0xA00 + n));
    before_starts.unfinished_since = Update(before_starts.update.0 - 2);
    all.is_refused(&all.later(32), |found| set(&mut found[2], &before_starts));
    // It is there twice.
    let mut back = now.clone();
    back.members[2] = all.start.members[2].clone();
    let filled = MemberState::Rebuilding {
        until: StripeIndex(0),
        missed: Missed::ALL,
    };
    for state in [MemberState::InSync, filled] {
        back.members[2].state = state;
        all.is_refused(&back, |_| {});
    }
    // Another is, with a record that counts on few.
    let mut few = all.start.next(0xCC);
    few.update_id = 0xCD;
    few.ancestors[0].1 = 0xCE;
    for member in [0, 1, 2] {
        few.members[member] = excluding(&all.start, member, 1).members[member].clone();
    }
    all.is_refused(&now, |found| set(&mut found[4], &few));
}

#[test]
fn an_old_copy_of_one_that_went_on_witnesses_for_nobody() {
    // Three pairs. Members 1, 3 and 5 went on without the others, and then these by themselves.
    let common = later(&config(6), 20);
    let mut found = drives_of(Level::L10, 6, &common);
    let without = |three: [usize; 3], id: u128| {
        let mut next = common.next(id);
        for member in three {
            next.members[member] = excluding(&common, member, id).members[member].clone();
        }
        (1..7).fold(next, |next, n| next.next(id + n))
    };
    let (mut odd, even) = (without([0, 2, 4], 0xAA), without([1, 3, 5], 0xBB));
    for member in [0, 2, 4] {
        set(&mut found[member], &even);
    }
    set(&mut found[3], &config(6));
    found.truncate(5);
    // Whoever is not there, or is and is too old, may have been left out by them.
    for is_past_a_start in [true, false] {
        if !is_past_a_start {
            odd.unfinished_since = odd.update;
        }
        set(&mut found[1], &odd);
        for with in [5, 3] {
            let found: Vec<Found> = found
                .iter()
                .filter(|it| it.drive.0 < with || it.drive.0 == 4)
                .cloned()
                .collect();
            let said = explanation(&one(&found));
            assert!(said.starts_with("refused: split brain"), "{said}");
        }
    }
}

/// Three members. A start without member 2 reached member 0 only, one without member 0 then member
/// 1. Both records, by the ids of their updates.
fn starts_in_vain(level: Level, ids: (u128, u128)) -> (Vec<Found>, [ArrayConfig; 2]) {
    let common = later(&config(3), 3);
    let mut found = drives_of(level, 3, &common);
    let one_of = |found: &[Found], id| one(found).start(id, false).expect("two of three");
    let first = one_of(&found[..2], ids.0);
    let second = one_of(&found[1..], ids.1);
    set(&mut found[0], &first);
    set(&mut found[1], &second);
    (found, [first, second])
}

#[test]
fn starts_in_vain_that_reached_one_member_each_do_not_end_an_array() {
    for ids in [(0xAA, 0xBB), (0xBB, 0xAA)] {
        let (found, [_, second]) = starts_in_vain(Level::L5, ids);
        let assembly = one(&found);
        assert_eq!(assembly.verdict, DIRTY);
        assert_eq!(assembly.config, second);
        assert!(reason_for(&assembly, 0).contains("never committed"));
        let few = one(&found[..2]).verdict;
        assert!(matches!(few, Verdict::Failed { .. }), "{few}");
    }
}

#[test]
fn a_start_that_may_have_come_to_something_decides_although_too_few_have_its_record() {
    let (mut found, [first, _]) = starts_in_vain(Level::L5, (0xBB, 0xAA));
    let failed = |found: &[Found]| {
        let verdict = one(found).verdict;
        assert!(matches!(verdict, Verdict::Failed { .. }), "{verdict}");
    };
    // Not a start: whoever made it was through with one.
    let mut update = first.clone();
    update.unfinished_since = Update(0);
    set(&mut found[0], &update);
    failed(&found);
    // Made after another one, which was durable: then member 1 is there as it was long before.
    for mut further in [first.next(0xBC), first.next(0xBC).next(0xBD)] {
        set(&mut found[0], &further);
        failed(&found);
        further.unfinished_since = further.update;
        set(&mut found[0], &further);
        failed(&found);
    }
    // What only a newer version may write, nobody goes around by another record.
    let mut future = first.clone();
    future.features.read_only_compat |= 1 << 40;
    set(&mut found[0], &future);
    let verdict = one(&found).verdict;
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict}");
}

#[test]
fn a_hidden_record_is_given_up_for_nobody() {
    for ids in [(0xAA, 0xBB), (0xBB, 0xAA)] {
        for hidden in [0, 1] {
            let (mut found, _) = starts_in_vain(Level::L1, ids);
            found[hidden].configs.push(Err(FormatError::Unreadable));
            let verdict = one(&found).verdict;
            let starts = matches!(verdict, Verdict::Startable { .. });
            assert!(!starts, "{ids:?}, {hidden}: {verdict}");
        }
    }
}

/// Four mirrors. A start without member 1 reached member 2 only, with members 2 and 3 here then.
fn a_start_without_one() -> (Vec<Found>, ArrayConfig) {
    let common = later(&config(4), 3);
    let mut found = drives_of(Level::L1, 4, &common);
    let mut without = found.clone();
    without.remove(1);
    let vain = one(&without).start(0xAA, false).expect("three of four");
    set(&mut found[2], &vain);
    (found, vain)
}

fn with(found: &[Found], drives: &[u16]) -> Verdict {
    let is_here = |it: &&Found| drives.contains(&it.drive.0);
    one(&found.iter().filter(is_here).cloned().collect::<Vec<_>>()).verdict
}

#[test]
fn who_was_left_out_by_a_start_that_came_to_nothing_may_have_gone_on() {
    let (mut found, vain) = a_start_without_one();
    // Members 0 and 1 are enough by the record before.
    let verdict = with(&found, &[2, 3]);
    let said = verdict.to_string();
    assert!(matches!(verdict, Verdict::NeedsForce { .. }), "{verdict}");
    assert!(said.contains("only 2 of the 4 members"), "{said}");
    assert!(said.contains("before update 5,"), "{said}");
    // Not with the lowest, or with most.
    assert_eq!(with(&found, &[0, 2]), DIRTY);
    assert_eq!(with(&found, &[0, 2, 3]), DIRTY);
    // Who is here has not gone on, unless he was elsewhere for longer or may hide it.
    assert_eq!(with(&found, &[1, 2, 3]), DIRTY);
    let needs_force = |found: &[Found]| {
        let verdict = with(found, &[1, 2, 3]);
        assert!(matches!(verdict, Verdict::NeedsForce { .. }), "{verdict}");
    };
    let before = found[1].clone();
    found[1].configs.push(Err(FormatError::Unreadable));
    needs_force(&found);
    set(&mut found[1], &later(&config(4), 2));
    assert_eq!(with(&found, &[1, 2, 3]), DIRTY, "it was behind");
    set(&mut found[1], &later(&config(4), 1));
    needs_force(&found);
    found[1] = renamed(&before, 1, SPARE);
    needs_force(&found);
    // A start that has come to its second record has told everybody that counts.
    for member in [2, 3] {
        set(&mut found[member], &vain.next(0xAB));
    }
    assert_eq!(with(&found, &[2, 3]), DIRTY);
}

#[test]
fn only_who_counted_when_a_start_left_him_out_may_have_gone_on() {
    let (mut found, vain) = a_start_without_one();
    let stripes = found[0].superblocks[0]
        .as_ref()
        .expect("good")
        .geometry
        .stripes();
    let left = |change: &dyn Fn(&mut ArrayConfig)| {
        let mut vain = vain.clone();
        change(&mut vain);
        vain
    };
    let filled = |config: &mut ArrayConfig| {
        let MemberState::Excluded { missed, .. } = &mut config.members[1].state else {
            panic!("it is out");
        };
        missed.base = Update(1);
        config.resynced_until = StripeIndex(stripes);
    };
    for (starts, record) in [
        // Being filled, it did not; unless all lack something because parity is not trusted yet.
        (true, left(&|config| filled(config))),
        (
            false,
            left(&|config| {
                filled(config);
                config.resynced_until = StripeIndex(stripes - 1);
            }),
        ),
        // Left out by force; or after it.
        (true, left(&|config| config.forced_at = config.update)),
        (false, left(&|config| config.forced_at = Update(4))),
    ] {
        set(&mut found[2], &record);
        let verdict = with(&found, &[2, 3]);
        assert_eq!(
            matches!(verdict, Verdict::Startable { .. }),
            starts,
            "{verdict}"
        );
    }
}

#[test]
fn an_old_copy_does_not_decide_because_the_newest_record_does_not_start() {
    let common = later(&config(2), 3);
    let mut found = mirror(&common);
    for updates in [1, 10, 60] {
        set(&mut found[1], &later(&common, updates));
        let verdict = one(&found).verdict;
        let starts_by_itself = updates == 1;
        assert_eq!(
            verdict == COMPLETE,
            starts_by_itself,
            "{updates}: {verdict}"
        );
        assert!(
            starts_by_itself || matches!(verdict, Verdict::NeedsForce { .. }),
            "{updates}: {verdict}"
        );
    }
}

#[test]
fn a_parted_record_of_a_wider_array_is_no_reason_to_panic() {
    let all = InVain::new();
    let wide = later(&config(7), 3).next(0xAA);
    let verdict = all.verdict(&all.later(3), |found| {
        let superblock = level_superblock(Level::L1, 6, 7, DRIVE_BYTES);
        found[2] = drive(2, superblock, &wide);
    });
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict}");
}

/// As if another drive had taken the place.
fn renamed(found: &Found, drive: u16, member_uuid: Uuid) -> Found {
    let mut found = found.clone();
    found.drive = DriveIndex(drive);
    for superblock in &mut found.superblocks {
        superblock.as_mut().expect("good").member_uuid = member_uuid;
    }
    found
}

#[test]
fn a_copy_that_went_on_alone_proves_nothing_against_the_others() {
    let common = later(&config(2), 20);
    let mut found = mirror(&common);
    let mut copy = found[0].clone();
    copy.drive = DriveIndex(9);
    let half = one(std::slice::from_ref(&copy));
    let alone = half.start(0x111, false).expect("the lowest half");
    for (together, alone_for) in [(1, 4), (4, 1), (12, 20), (20, 12), (30, 40), (40, 30)] {
        let together = later(&common, together);
        set(&mut found[0], &together);
        set(&mut found[1], &together);
        let alone = (0..alone_for).fold(alone.clone(), |side, n| side.next(0xC000 + n));
        set(&mut copy, &alone);
        let all = [found[0].clone(), found[1].clone(), copy.clone()];
        let said = explanation(&one(&all));
        assert!(said.starts_with("refused: split brain"), "{said}");
    }
}

#[test]
fn a_spare_too_old_to_be_known_proves_nothing_against_its_own_side() {
    // Member 1 went on without member 0, with a spare in its place; then member 0 without either,
    // with another spare.
    let common = later(&config(2), 5);
    let mut found = mirror(&common);
    let half = one(&found[..1]);
    let zero = half.start(0x111, false).expect("the lowest half");
    let spares = [0x5A0, 0x5A1].map(Uuid::from_u128);
    let mut one_side = excluding(&common, 0, 0x222).next(0x223);
    one_side.members[0].uuid = spares[0];
    one_side.members[0].state = MemberState::InSync;
    let one_side = (0..8).fold(one_side, |side, n| side.next(0xC000 + n));
    let mut other_side = zero.next(0x112);
    other_side.members[1].uuid = spares[1];
    other_side.members[1].state = MemberState::InSync;
    let (mut first, mut second) = (
        renamed(&found[0], 8, spares[0]),
        renamed(&found[1], 9, spares[1]),
    );
    for later_by in 0..40 {
        let now = later(&other_side, later_by);
        let in_vain = one_side.next(0xDEAD);
        if now.id_of(in_vain.update).is_none() {
            continue;
        }
        set(&mut found[0], &now);
        set(&mut second, &now);
        set(&mut found[1], &in_vain);
        set(&mut first, &one_side);
        let all = [
            found[0].clone(),
            found[1].clone(),
            first.clone(),
            second.clone(),
        ];
        let said = explanation(&one(&all));
        assert!(
            said.starts_with("refused: split brain"),
            "{later_by} later: {said}"
        );
    }
}

#[test]
fn a_lone_member_that_got_further_in_vain_does_not_decide() {
    let common = later(&config(6), 3);
    let vain = excluding(&excluding(&common, 5, 0xAA), 4, 0xAB);
    let mut found = raid6(6, &common);
    let mut without = found.clone();
    without.remove(2);
    let start = one(&without).start(0xBB, false).expect("a majority");
    for member in &mut found {
        set(member, &start);
    }
    set(&mut found[2], &vain);
    assert!(vain.update > start.update);
    let assembly = one(&found);
    assert_eq!(assembly.config.update_id, 0xBB);
    assert_eq!(assembly.verdict, DIRTY);
    assert!(reason_for(&assembly, 2).contains("never committed"));
}

#[test]
fn a_side_that_was_forced_is_never_given_up() {
    let common = later(&config(3), 3);
    let mut found = drives_of(Level::L1, 3, &common);
    // Member 0 was forced to start alone and filled member 1 again; then member 1 went over to
    // member 2, which had gone on meanwhile.
    let mut alone = one(&found[..1]).start(0x111, true).expect("forced");
    alone = alone.next(0x112);
    alone.members[1].state = MemberState::InSync;
    let others = one(&found[1..]).start(0x222, false).expect("a majority");
    set(&mut found[0], &alone);
    for forced_too in [false, true] {
        let mut others = later(&others, 4);
        if forced_too {
            others.forced_at = others.update;
        }
        for member in &mut found[1..] {
            set(member, &others);
        }
        let said = explanation(&one(&found));
        assert!(said.starts_with("refused: split brain"), "{said}");
    }
}
