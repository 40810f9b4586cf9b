//! Every loss within the parity is given back.

use memory::Segment;
use units::{Role, RoleSet};

use super::{Chance, Chunks, backends};
use crate::field::PRODUCTS;
use crate::{Code, CodeError, Decoder, DecoderCache};

/// Whether the decoder's matrix times the generator's rows of its sources is the generator's
/// rows of its targets: then it is right for all bytes.
fn assert_decodes(code: &Code, decoder: &Decoder) {
    for (target_at, target) in decoder.targets().iter().enumerate() {
        for column in 0..code.data() {
            let mut sum = 0;
            for (source_at, source) in decoder.sources().iter().enumerate() {
                let factor = decoder.factor(target_at, source_at);
                let element = generator(code, source, column);
                sum ^= PRODUCTS[usize::from(factor)][usize::from(element)];
            }
            assert_eq!(sum, generator(code, target, column), "{code:?} {decoder:?}");
        }
    }
}

/// The row of a role in the whole generator: the unit matrix above the parity rows.
fn generator(code: &Code, role: Role, column: usize) -> u8 {
    match role.at().checked_sub(code.data()) {
        None => u8::from(role.at() == column),
        Some(row) => code.coefficient(row, column),
    }
}

/// All sets of at most `most` of the first `roles` roles.
fn losses(roles: usize, most: usize) -> Vec<RoleSet> {
    let mut all = vec![RoleSet::EMPTY];
    for role in 0..roles {
        let role = Role::from_at(role);
        let with: Vec<RoleSet> = all
            .iter()
            .filter(|set| set.len() < most)
            .map(|set| set.with(role))
            .collect();
        all.extend(with);
    }
    all
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn every_loss_within_the_parity_is_solved_up_to_20_members() {
    let mut seen = 0;
    for members in 1..=20 {
        for parity in 0..members.min(5) {
            let code = Code::new(members - parity, parity).expect("a code");
            let all = RoleSet::range(0, members);
            for lost in losses(members, parity) {
                let decoder = code
                    .decoder(all.without(lost), lost)
                    .expect("within parity");
                assert_eq!(decoder.targets(), lost);
                assert_decodes(&code, &decoder);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 37_197, "the number of patterns");
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn random_losses_of_large_codes_are_solved() {
    let mut chance = Chance::new(2);
    for _ in 0..1500 {
        let parity = 1 + chance.below(32);
        let members = parity + 1 + chance.below(64 - parity);
        let code = Code::new(members - parity, parity).expect("a code");
        let losses = 1 + chance.below(parity);
        let lost = role_set(&chance.subset(losses, members));
        let available = RoleSet::range(0, members).without(lost);
        let wanted = 1 + chance.below(losses);
        let decoder = code
            .decoder(available, lost.lowest(wanted))
            .expect("within parity");
        assert_eq!(decoder.targets(), lost.lowest(wanted));
        assert_decodes(&code, &decoder);
    }
}

fn role_set(roles: &[usize]) -> RoleSet {
    roles.iter().map(|&role| Role::from_at(role)).collect()
}

/// Loses roles of a random stripe, recovers the targets, and compares bytes.
fn assert_recovers(code: &Code, lost: RoleSet, length: usize, seed: u64) {
    let roles = code.data() + code.parity();
    let mut stripe = Chunks::new(roles, length, 7);
    stripe.randomize(&mut Chance::new(seed));
    let segments = stripe.segments();
    let (data, parity) = segments.split_at(code.data());
    code.generate(data, parity);
    let decoder = code
        .decoder(RoleSet::range(0, roles).without(lost), lost)
        .expect("within parity");
    let sources: Vec<Segment> = decoder.sources().iter().map(|r| segments[r.at()]).collect();
    let mut found = Chunks::new(lost.len(), length, 11);

    decoder.recover(&sources, &found.segments());

    for (index, role) in lost.iter().enumerate() {
        assert_eq!(found.get(index), stripe.get(role.at()), "{code:?} {lost:?}");
    }
    found.assert_guards();
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn every_loss_of_up_to_7_members_gives_back_the_bytes_on_every_backend() {
    for backend in backends() {
        for members in 1..=7 {
            for parity in 0..members.min(5) {
                let code =
                    Code::with_backend(members - parity, parity, backend).expect("available");
                for lost in losses(members, parity) {
                    assert_recovers(&code, lost, 333, 3);
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn random_losses_of_large_codes_give_back_the_bytes_on_every_backend() {
    for backend in backends() {
        let mut chance = Chance::new(4);
        for seed in 0..60 {
            let parity = 1 + chance.below(32);
            let members = parity + 1 + chance.below(64 - parity);
            let code = Code::with_backend(members - parity, parity, backend).expect("available");
            let losses = 1 + chance.below(parity);
            let lost = role_set(&chance.subset(losses, members));
            assert_recovers(&code, lost, 4096 + chance.below(700), seed);
        }
    }
}

#[test]
fn data_is_read_before_parity_and_never_more_than_needed() {
    let code = Code::new(4, 3).expect("a code");
    let sources = |available: &[usize], targets: &[usize]| {
        code.decoder(role_set(available), role_set(targets))
            .map(|decoder| decoder.sources())
    };
    assert_eq!(sources(&[0, 1, 2, 3, 4, 5, 6], &[]), Ok(RoleSet::EMPTY));
    assert_eq!(
        sources(&[0, 2, 3, 4, 5, 6], &[1]),
        Ok(role_set(&[0, 2, 3, 4]))
    );
    assert_eq!(sources(&[0, 2, 3, 5, 6], &[1]), Ok(role_set(&[0, 2, 3, 5])));
    assert_eq!(sources(&[0, 3, 5, 6], &[1, 4]), Ok(role_set(&[0, 3, 5, 6])));
    assert_eq!(
        sources(&[0, 1, 2, 3, 4, 5, 6], &[6, 2]),
        Ok(role_set(&[0, 1, 3, 4])),
        "a target is not read"
    );
    assert_eq!(
        sources(&[0, 3, 5], &[1]),
        Err(CodeError::Lost {
            available: 3,
            needed: 4
        })
    );
    assert_eq!(sources(&[0, 7], &[1]), Err(CodeError::Role { roles: 7 }));
    assert_eq!(
        sources(&[0, 1, 2, 3], &[63]),
        Err(CodeError::Role { roles: 7 })
    );
}

#[test]
fn without_parity_nothing_is_given_back() {
    let code = Code::new(3, 0).expect("a code");
    let lost = RoleSet::one(Role(1));
    let available = RoleSet::range(0, 3).without(lost);
    assert!(code.decoder(available, lost).is_err());
}

#[test]
fn a_full_cache_forgets_the_oldest_and_does_not_grow() {
    let code = Code::new(6, 3).expect("a code");
    let other = Code::new(5, 3).expect("a code");
    let all = RoleSet::range(0, 8);
    let mut cache = DecoderCache::new(4);
    let mut addresses = Vec::new();
    for round in 0..3 {
        for lost in 0..8 {
            let lost = RoleSet::one(Role(lost));
            for code in [&code, &other, &code] {
                let decoder = cache.get(code, all.without(lost), lost).expect("one lost");
                assert_eq!(decoder.targets(), lost);
                assert_decodes(code, decoder);
                addresses.push(std::ptr::from_ref(decoder).addr());
            }
            let again = addresses[addresses.len() - 3];
            assert_eq!(
                again,
                addresses[addresses.len() - 1],
                "found again, {round}"
            );
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 4, "as many places as the capacity");
    let refused = cache.get(&other, RoleSet::range(0, 4), RoleSet::one(Role(4)));
    assert!(refused.is_err());
}

#[test]
fn decoders_leave_a_full_cache_in_the_order_they_came() {
    let code = Code::new(6, 3).expect("a code");
    let mut cache = DecoderCache::new(3);
    let mut place = |lost: u8| {
        let lost = RoleSet::one(Role(lost));
        let available = RoleSet::range(0, 9).without(lost);
        let decoder = cache.get(&code, available, lost).expect("one lost");
        std::ptr::from_ref(decoder).addr()
    };
    let first: Vec<usize> = (0..3).map(&mut place).collect();
    assert_eq!(place(0), first[0], "found again, and not younger for it");
    let second: Vec<usize> = (3..6).map(&mut place).collect();
    assert_eq!(second, first);
}
