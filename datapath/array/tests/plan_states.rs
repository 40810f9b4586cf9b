//! Every plan for every state of every stripe of up to eight chunks, carried out symbolically.
//!
//! A byte of a chunk here is the coefficient of one unknown: an old data chunk, a new one, or the
//! rubbish in a parity that is not trusted. So equality holds for all contents, not for a sample.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod plan_common;

use array::{Beyond, Method, StripeState, WritePlan, plan_read, plan_repair, plan_write};
use model::field::{add_scaled, inverse, multiply};
use plan_common::{Code, ROLES};
use units::{Role, RoleSet};

/// A chunk with a byte for every unknown.
type Chunk = plan_common::Chunk<24>;
type Stripe = plan_common::Stripe<24>;

/// All codes of up to eight chunks.
fn codes() -> impl Iterator<Item = Code> {
    (1..=ROLES).flat_map(|n| (1..=n).map(move |k| Code::new(k, n - k)))
}

/// The chunk that is one unknown.
fn unknown(index: usize) -> Chunk {
    let mut chunk = Chunk::default();
    chunk[index] = 1;
    chunk
}

/// A stripe of old data; its parity right, or rubbish.
fn old_stripe(code: &Code, parity_right: bool) -> Stripe {
    let mut stripe = Stripe::default();
    for role in code.data() {
        stripe[role.at()] = unknown(role.at());
    }
    code.encode(&mut stripe);
    for parity in code.parity().iter().filter(|_| !parity_right) {
        stripe[parity.at()] = unknown(2 * ROLES + parity.at() - code.k);
    }
    stripe
}

/// All subsets of a set.
fn subsets(of: RoleSet) -> impl Iterator<Item = RoleSet> {
    (0..=of.0).map(RoleSet).filter(move |set| of.covers(*set))
}

/// All states of a stripe: every role good, unreadable or lost, parity trusted or not.
fn states(code: &Code) -> impl Iterator<Item = StripeState> {
    subsets(code.roles()).flat_map(|unreadable| {
        subsets(unreadable).flat_map(move |lost| {
            [true, false].map(|trusted| StripeState::new(lost, unreadable, trusted))
        })
    })
}

/// Runs a write and compares the stripe with what it must be.
fn check_write(code: &Code, state: &StripeState, written: RoleSet, plan: &WritePlan) {
    let context = || format!("{}+{} {written:?} {state:?} {plan:?}", code.k, code.m);
    // Rubbish in untrusted parity must not matter, but where the plan says that it does.
    let mut stripe = old_stripe(code, state.parity_trusted || plan.doubtful);
    let mut expected = old_stripe(code, true);
    let new: Vec<(Role, Chunk)> = written
        .iter()
        .map(|role| (role, unknown(ROLES + role.at())))
        .collect();
    for (role, chunk) in &new {
        expected[role.at()] = *chunk;
    }
    code.encode(&mut expected);

    code.write(plan, state, &new, &mut stripe);

    for role in written.union(code.parity()).without(state.lost) {
        assert_eq!(
            stripe[role.at()],
            expected[role.at()],
            "{role}: {}",
            context()
        );
    }
    let kept = code.data().without(written);
    for role in kept {
        assert_eq!(
            stripe[role.at()],
            unknown(role.at()),
            "{role}: {}",
            context()
        );
    }
    let unreadable = kept.both(state.unreadable);
    assert!(
        !plan.doubtful || !unreadable.is_empty() && !state.parity_trusted,
        "{}",
        context()
    );
    // Untrusted parity makes up nothing for a member that is there.
    let made_up = plan.decode.without(state.lost);
    assert!(!plan.doubtful || made_up.is_empty(), "{}", context());
}

#[test]
fn every_write_leaves_data_and_every_parity_right() {
    let (mut plans, mut beyond) = (0u64, 0u64);
    for code in codes() {
        for state in states(&code) {
            for written in subsets(code.data()).skip(1) {
                match plan_write(code.k, code.m, written, &state) {
                    Ok(plan) => {
                        check_write(&code, &state, written, &plan);
                        plans += 1;
                    }
                    Err(Beyond) => beyond += 1,
                }
            }
        }
    }
    assert!(
        plans > 1_000_000 && beyond > 1_000_000,
        "{plans} plans, {beyond} beyond"
    );
}

/// Whether some sum of the `sources` is `target`, by elimination: the definition of computable.
fn spans(sources: &[Chunk], target: Chunk) -> bool {
    let mut rows: Vec<Chunk> = Vec::new();
    let reduce = |rows: &[Chunk], mut chunk: Chunk| {
        for row in rows {
            let pivot = row.iter().position(|byte| *byte != 0).expect("not zero");
            let factor = multiply(chunk[pivot], inverse(row[pivot]));
            add_scaled(&mut chunk, factor, row);
        }
        chunk
    };
    for source in sources {
        let rest = reduce(&rows, *source);
        if rest != Chunk::default() {
            rows.push(rest);
        }
    }
    reduce(&rows, target) == Chunk::default()
}

/// Whether a write can be done at all: the new data is stored or in parity, and every parity that
/// is written is a sum of what can be read and the new data.
fn possible(code: &Code, state: &StripeState, written: RoleSet) -> bool {
    let parity = code.parity().without(state.lost);
    if parity.is_empty() {
        return !written.meets(state.lost);
    }
    let old = old_stripe(code, true);
    let readable = code.roles().without(state.unreadable);
    let sources: Vec<Chunk> = readable.iter().map(|role| old[role.at()]).collect();
    let mut kept_only = old;
    for role in written {
        kept_only[role.at()] = Chunk::default();
    }
    code.encode(&mut kept_only);
    // What untrusted parity says of a chunk whose member is there may go on being said, if all of
    // it is changed by what is written; it may not be believed.
    let kept_untold = state.untold(code.k).without(written);
    let goes_on = readable.covers(written.union(parity));
    state.lost.len() <= code.m
        && (kept_untold.is_empty() || goes_on)
        && parity
            .iter()
            .all(|role| spans(&sources, kept_only[role.at()]))
}

#[test]
fn untold_is_what_members_that_are_there_cannot_read_beside_untrusted_parity() {
    for code in codes() {
        for state in states(&code) {
            let media = code.data().both(state.unreadable).without(state.lost);
            let expected = if state.parity_trusted || code.k == 1 {
                RoleSet::EMPTY
            } else {
                media
            };
            assert_eq!(state.untold(code.k), expected, "{state:?}");
        }
    }
}

#[test]
fn a_write_is_refused_only_when_no_method_could_do_it() {
    for code in codes().filter(|code| code.k + code.m <= 6) {
        for state in states(&code) {
            for written in subsets(code.data()).skip(1) {
                let planned = plan_write(code.k, code.m, written, &state).is_ok();
                let context = format!("{}+{} {written:?} {state:?}", code.k, code.m);
                assert_eq!(planned, possible(&code, &state, written), "{context}");
            }
        }
    }
}

#[test]
fn an_optimal_stripe_is_written_by_the_method_with_the_fewest_reads() {
    for code in codes().filter(|code| code.m > 0) {
        for written in subsets(code.data()).skip(1) {
            let plan = plan_write(code.k, code.m, written, &StripeState::OPTIMAL).unwrap();
            let (modified, kept) = (written.len(), code.k - written.len());
            let (method, reads) = if kept == 0 {
                (Method::Full, 0)
            } else if modified + code.m <= kept {
                (Method::ReadModifyWrite, modified + code.m)
            } else {
                (Method::ReconstructWrite, kept)
            };
            let found = (plan.method, plan.read.len(), plan.write.len());
            let context = format!("{}+{} {written:?}", code.k, code.m);
            assert_eq!(found, (method, reads, modified + code.m), "{context}");
        }
    }
}

#[test]
fn the_method_of_a_degraded_write_is_that_of_the_design() {
    use Method::{Full, Plain, ReadModifyWrite, ReconstructFirst, ReconstructWrite};
    let set = |roles: &[u8]| roles.iter().copied().map(Role).collect::<RoleSet>();
    let plan = |m, written, lost, media, trusted| {
        let state = StripeState::new(set(lost), set(media), trusted);
        plan_write(4, m, set(written), &state).map(|plan| (plan.method, plan.doubtful))
    };
    // Four data chunks: roles 0 to 3; P is 4, Q is 5.
    for (found, expected) in [
        (
            plan(1, &[0], &[0], &[], true),
            Ok((ReconstructWrite, false)),
        ),
        (plan(1, &[0], &[1], &[], true), Ok((ReadModifyWrite, false))),
        (
            plan(1, &[0, 1, 2], &[3], &[], true),
            Ok((ReadModifyWrite, false)),
        ),
        (plan(1, &[0], &[4], &[], true), Ok((Plain, false))),
        (plan(2, &[0], &[4], &[], true), Ok((ReadModifyWrite, false))),
        (plan(2, &[0], &[4, 5], &[], true), Ok((Plain, false))),
        (
            plan(2, &[0], &[0, 1], &[], true),
            Ok((ReconstructFirst, false)),
        ),
        (
            plan(2, &[0, 1], &[0, 1], &[], true),
            Ok((ReconstructWrite, false)),
        ),
        (
            plan(2, &[0, 1, 2, 3], &[0, 1], &[], true),
            Ok((Full, false)),
        ),
        (
            plan(2, &[0], &[], &[4], true),
            Ok((ReconstructWrite, false)),
        ),
        (
            plan(2, &[0], &[1], &[4], true),
            Ok((ReconstructFirst, false)),
        ),
        (plan(1, &[0], &[1], &[4], true), Err(Beyond)),
        (plan(1, &[0], &[1, 2], &[], true), Err(Beyond)),
        (plan(1, &[0], &[1, 4], &[], true), Ok((Plain, false))),
        (plan(1, &[0], &[0, 4], &[], true), Err(Beyond)),
        (
            plan(1, &[0], &[], &[], false),
            Ok((ReconstructWrite, false)),
        ),
        (
            plan(1, &[0], &[1], &[], false),
            Ok((ReconstructFirst, true)),
        ),
        (
            plan(1, &[0], &[0], &[], false),
            Ok((ReconstructWrite, false)),
        ),
        // A bad block beside untrusted parity.
        (plan(1, &[0], &[], &[1], false), Ok((ReadModifyWrite, true))),
        (
            plan(1, &[0], &[], &[0], false),
            Ok((ReconstructWrite, false)),
        ),
        (plan(1, &[0], &[], &[1, 4], false), Err(Beyond)),
        (plan(2, &[0], &[0], &[1], false), Err(Beyond)),
        (
            plan(2, &[0], &[2], &[1], false),
            Ok((ReadModifyWrite, true)),
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn mirrors_write_every_copy_and_read_none() {
    for code in codes().filter(|code| code.k == 1 && code.m > 0) {
        for state in states(&code) {
            let copies = code.roles().without(state.lost);
            let plan = plan_write(1, code.m, code.data(), &state);
            let found = plan.map(|plan| (plan.method, plan.read, plan.write));
            let full = (Method::Full, RoleSet::EMPTY, copies);
            let expected = if copies.is_empty() {
                Err(Beyond)
            } else {
                Ok(full)
            };
            assert_eq!(found, expected, "{state:?}");
        }
    }
}

#[test]
fn every_read_is_right_and_reads_no_more_than_it_must() {
    for code in codes() {
        for unreadable in subsets(code.roles()) {
            for (wanted, trusted) in
                subsets(code.roles()).flat_map(|wanted| [(wanted, true), (wanted, false)])
            {
                let state = StripeState::new(RoleSet::EMPTY, unreadable, trusted);
                let context = format!("{}+{} {wanted:?} {state:?}", code.k, code.m);
                let direct = wanted.without(unreadable);
                let readable = code.roles().without(unreadable);
                let decodes = direct != wanted;
                let Ok(plan) = plan_read(code.k, code.m, wanted, &state) else {
                    assert!(decodes && readable.len() < code.k, "{context}");
                    continue;
                };
                let least = if decodes {
                    direct.len().max(code.k)
                } else {
                    direct.len()
                };
                assert_eq!(plan.read.len(), least, "{context}");
                assert!(plan.read.covers(direct), "{context}");
                assert_eq!(plan.decode, wanted.without(direct), "{context}");

                let truth = old_stripe(&code, true);
                let decoded = code.read(
                    &plan,
                    &state,
                    &old_stripe(&code, trusted || plan.doubtful || code.k == 1),
                );
                for role in plan.decode {
                    assert_eq!(decoded[role.at()], truth[role.at()], "{role}: {context}");
                }
                let from_data = plan.read.without(code.data()).is_empty();
                assert!(!plan.doubtful || !trusted && !from_data, "{context}");
            }
        }
    }
}

#[test]
fn every_repair_makes_its_targets_agree_with_its_sources() {
    for code in codes() {
        for unreadable in subsets(code.roles()) {
            let allowed = unreadable.union(code.parity());
            for (targets, trusted) in
                subsets(allowed).flat_map(|targets| [(targets, true), (targets, false)])
            {
                let state = StripeState::new(RoleSet::EMPTY, unreadable, trusted);
                check_repair(&code, targets, &state);
            }
        }
    }
}

fn check_repair(code: &Code, targets: RoleSet, state: &StripeState) {
    let context = format!("{}+{} {targets:?} {state:?}", code.k, code.m);
    let readable = code.roles().without(state.unreadable);
    let Ok(plan) = plan_repair(code.k, code.m, targets, state) else {
        assert!(readable.len() < code.k, "{context}");
        return;
    };
    let good = readable.without(targets);
    let reused = plan.read.both(targets);
    assert_eq!(plan.decode, targets.without(reused), "{context}");
    assert_eq!(reused.len(), code.k - good.len().min(code.k), "{context}");
    assert!(code.parity().covers(reused), "{context}");

    let mut stripe = old_stripe(code, state.parity_trusted);
    let decoded = code.read(&plan, state, &stripe);
    for role in plan.decode {
        stripe[role.at()] = decoded[role.at()];
    }
    let whole = code.decode(plan.read, &stripe);
    let truth = old_stripe(code, true);
    let from_data = plan.read.without(code.data()).is_empty();
    for role in targets {
        assert_eq!(stripe[role.at()], whole[role.at()], "{role}: {context}");
        let certain = state.parity_trusted || from_data;
        assert!(
            !certain || stripe[role.at()] == truth[role.at()],
            "{role}: {context}"
        );
    }
    assert_eq!(
        plan.doubtful,
        !state.parity_trusted && !from_data && code.k > 1,
        "{context}"
    );
}
