//! Every kernel of every backend.
//!
//! A kernel without branches on bytes is a linear map over bits, so it is right for all input when
//! it is right for each single bit in each place of one block and of what is left after blocks,
//! and for zero. That is tested first; then whole random stripes of many sizes, which also cross
//! tiles.

use std::sync::atomic::{AtomicBool, Ordering};

use memory::Segment;
use units::{Role, RoleSet};

use super::{Chance, Chunks, agrees, backends, expected_parity};
use crate::field::multiply;
use crate::{Backend, Change, Code};

/// The largest block of a backend, and what is left after it: smaller blocks and single bytes.
fn block_and_rest(backend: Backend) -> usize {
    let vector = match backend {
        Backend::Scalar => 8,
        Backend::Avx2 => 32,
        Backend::Avx512Gfni => 64,
    };
    let rest = if cfg!(miri) { 3 } else { 2 * vector + 3 };
    4 * vector + rest
}

/// Codes that use every kernel, with and without tiles and row groups. Miri is slow.
#[cfg(miri)]
const SIZES: [(usize, usize); 4] = [(3, 1), (3, 2), (2, 3), (2, 5)];
/// Codes that use every kernel, with and without tiles and row groups.
#[cfg(not(miri))]
const SIZES: [(usize, usize); 16] = [
    (1, 1),
    (2, 1),
    (7, 1),
    (1, 2),
    (4, 2),
    (11, 2),
    (14, 2),
    (3, 3),
    (5, 4),
    (4, 5),
    (3, 6),
    (3, 7),
    (2, 8),
    (22, 3),
    (62, 2),
    (60, 4),
];

/// Calls `test` with each code on each backend.
fn for_each_code(mut test: impl FnMut(&Code)) {
    for backend in backends() {
        for (data, parity) in SIZES {
            test(&Code::with_backend(data, parity, backend).expect("available"));
        }
    }
}

/// Calls `test` for every bit: chunk, byte, value. For codes with many chunks only some bytes of
/// the middle ones, since all places of a block are taken by the others.
fn for_each_bit(chunks: usize, length: usize, mut test: impl FnMut(usize, usize, u8)) {
    for chunk in 0..chunks {
        let (step, first_bit) = match (cfg!(miri), chunk < 2 || chunk + 2 >= chunks) {
            // Miri is slow: some bytes of a block and one after it.
            (true, _) => (length / 2 - 1, 7),
            (false, true) => (1, 0),
            (false, false) => (7, 0),
        };
        for at in (chunk % step..length).step_by(step) {
            for bit in first_bit..8 {
                test(chunk, at, 1 << bit);
            }
        }
    }
}

fn is_only(chunk: &[u8], at: usize, value: u8) -> bool {
    let (before, rest) = chunk.split_at(at);
    rest[0] == value && before.iter().chain(&rest[1..]).all(|&byte| byte == 0)
}

#[test]
fn each_single_bit_gives_its_column_of_parity() {
    for_each_code(|code| {
        let length = block_and_rest(code.backend());
        let mut data = Chunks::new(code.data(), length, 5);
        let mut copies = Chunks::new(code.data(), length, 9);
        let mut parity = Chunks::new(code.parity(), length, 3);
        let (d, c, p) = (data.segments(), copies.segments(), parity.segments());
        for_each_bit(code.data(), length, |column, at, value| {
            d[column].part(at, 1).fill(value);
            for copy in [false, true] {
                p.iter().for_each(|segment| segment.fill(0xff));
                if copy {
                    code.copy_generate(&d, &c, &p);
                } else {
                    code.generate(&d, &p);
                }
                for row in 0..code.parity() {
                    let expected = multiply(code.coefficient(row, column), value);
                    let right = is_only(parity.get(row), at, expected);
                    assert!(right, "{code:?} row {row} column {column} byte {at}");
                }
            }
            let copied = is_only(copies.get(column), at, value);
            assert!(copied, "{code:?} column {column} byte {at}");
            d[column].part(at, 1).fill(0);
        });
        [data, copies, parity]
            .iter()
            .for_each(Chunks::assert_guards);
    });
}

#[test]
fn each_single_bit_of_a_change_is_added_to_the_parity() {
    for_each_code(|code| {
        let length = block_and_rest(code.backend());
        let mut change = Chunks::new(3, length, 7);
        let mut parity = Chunks::new(code.parity(), length, 3);
        let (c, p) = (change.segments(), parity.segments());
        let rows: Vec<(usize, Segment)> = p.iter().copied().enumerate().collect();
        let column = code.data() - 1;
        for_each_bit(2, length, |which, at, value| {
            c[which].part(at, 1).fill(value);
            for copy in [false, true] {
                p.iter().for_each(|segment| segment.fill(0));
                let (old, new) = (c[0], c[1]);
                if copy {
                    code.copy_delta(Change { column, old, new }, c[2], &rows);
                } else {
                    code.delta(column, old, new, &rows);
                }
                for row in 0..code.parity() {
                    let expected = multiply(code.coefficient(row, column), value);
                    let right = is_only(parity.get(row), at, expected);
                    assert!(right, "{code:?} row {row} chunk {which} byte {at}");
                }
            }
            assert_eq!(change.get(2), change.get(1), "the copy is the new content");
            c[which].part(at, 1).fill(0);
        });
        [change, parity].iter().for_each(Chunks::assert_guards);
    });
}

#[test]
fn each_single_bit_of_a_source_gives_its_part_of_what_was_lost() {
    for_each_code(|code| {
        let length = block_and_rest(code.backend());
        let roles = RoleSet::range(0, code.data() + code.parity());
        let lost = roles.lowest(code.parity());
        let decoder = code
            .decoder(roles.without(lost), lost)
            .expect("within parity");
        let mut sources = Chunks::new(code.data(), length, 5);
        let mut targets = Chunks::new(code.parity(), length, 3);
        let (s, t) = (sources.segments(), targets.segments());
        for_each_bit(code.data(), length, |source, at, value| {
            s[source].part(at, 1).fill(value);
            decoder.recover(&s, &t);
            for target in 0..code.parity() {
                let expected = multiply(decoder.factor(target, source), value);
                let right = is_only(targets.get(target), at, expected);
                assert!(right, "{code:?} target {target} source {source} byte {at}");
            }
            s[source].part(at, 1).fill(0);
        });
        [sources, targets].iter().for_each(Chunks::assert_guards);
    });
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn random_stripes_of_all_lengths_have_the_parity_of_the_definition() {
    for backend in backends() {
        let mut chance = Chance::new(11);
        for round in 0..150 {
            let parity_count = chance.below(33);
            let data_count = 1 + chance.below(64 - parity_count);
            let code = Code::with_backend(data_count, parity_count, backend).expect("available");
            // Some lengths cross two tiles.
            let length = chance.below([70, 700, 9000][round % 3]);
            let mut data = Chunks::new(data_count, length, chance.below(64));
            let mut copies = Chunks::new(data_count, length, chance.below(64));
            let mut parity = Chunks::new(parity_count, length, chance.below(64));
            data.randomize(&mut chance);
            parity.randomize(&mut chance);
            let expected = expected_parity(&code, &data);

            code.generate(&data.segments(), &parity.segments());

            for (row, expected) in expected.iter().enumerate() {
                assert_eq!(parity.get(row), expected, "{code:?} row {row} of {length}");
            }
            parity.randomize(&mut chance);

            code.copy_generate(&data.segments(), &copies.segments(), &parity.segments());

            for (row, expected) in expected.iter().enumerate() {
                assert_eq!(parity.get(row), expected, "{code:?} row {row} of {length}");
            }
            for column in 0..data_count {
                assert_eq!(copies.get(column), data.get(column), "{code:?} of {length}");
            }
            [data, copies, parity]
                .iter()
                .for_each(Chunks::assert_guards);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn stripes_of_any_shape_are_copied_and_have_the_parity_that_the_scalar_backend_gives_them() {
    let mut chance = Chance::new(17);
    for backend in backends() {
        for (data_count, parity_count) in (1..=12).chain([23, 62]).flat_map(|k| [(k, 1), (k, 2)]) {
            let code = Code::with_backend(data_count, parity_count, backend).expect("available");
            let scalar = Code::with_backend(data_count, parity_count, Backend::Scalar);
            let scalar = scalar.expect("available");
            for length in [
                1, 63, 127, 128, 255, 256, 257, 511, 513, 4095, 4096, 4097, 8700,
            ] {
                let mut data = Chunks::new(data_count, length, chance.below(64));
                let mut copies = Chunks::new(data_count, length, chance.below(64));
                let mut parity = Chunks::new(2 * parity_count, length, chance.below(64));
                data.randomize(&mut chance);
                parity.randomize(&mut chance);
                let (d, p) = (data.segments(), parity.segments());
                let (p, expected) = p.split_at(parity_count);
                scalar.generate(&d, expected);
                code.copy_generate(&d, &copies.segments(), p);
                for row in 0..parity_count {
                    let same = p[row].equals(expected[row]);
                    assert!(same, "{code:?} row {row} of {length}");
                }
                for column in 0..data_count {
                    let same = copies.get(column) == data.get(column);
                    assert!(same, "{code:?} column {column} of {length}");
                }
                [data, copies, parity]
                    .iter()
                    .for_each(Chunks::assert_guards);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn a_change_of_any_rows_gives_the_parity_of_the_new_data_in_these_rows_only() {
    for backend in backends() {
        let mut chance = Chance::new(12);
        for round in 0..150 {
            let parity_count = 1 + chance.below(12);
            let data_count = 1 + chance.below(20);
            let code = Code::with_backend(data_count, parity_count, backend).expect("available");
            let length = chance.below([70, 700, 5000][round % 3]);
            let mut data = Chunks::new(data_count, length, 3);
            let mut new_chunks = Chunks::new(2, length, 5);
            let mut parity = Chunks::new(parity_count, length, 7);
            data.randomize(&mut chance);
            new_chunks.randomize(&mut chance);
            let (d, n, p) = (data.segments(), new_chunks.segments(), parity.segments());
            code.generate(&d, &p);
            let before = expected_parity(&code, &data);
            let column = chance.below(data_count);
            let count = chance.below(parity_count + 1);
            let mut rows = chance.subset(count, parity_count);
            if round % 2 == 0 {
                rows.reverse();
            }
            let targets: Vec<(usize, Segment)> = rows.iter().map(|&row| (row, p[row])).collect();

            if round % 4 < 2 {
                code.delta(column, d[column], n[0], &targets);
            } else {
                let (old, new) = (d[column], n[0]);
                code.copy_delta(Change { column, old, new }, n[1], &targets);
                assert_eq!(
                    new_chunks.get(1),
                    new_chunks.get(0),
                    "a copy of the new content"
                );
            }

            d[column].copy_from(n[0]);
            let after = expected_parity(&code, &data);
            for row in 0..parity_count {
                let expected = if rows.contains(&row) { &after } else { &before };
                assert_eq!(
                    parity.get(row),
                    expected[row],
                    "{code:?} row {row} of {rows:?}"
                );
            }
            [data, new_chunks, parity]
                .iter()
                .for_each(Chunks::assert_guards);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a race on bytes, as guests make it, is what is tested")]
fn parity_is_that_of_the_copies_while_somebody_changes_the_data() {
    const LENGTH: usize = 8192;
    for backend in backends() {
        for (data_count, parity_count) in
            [(3, 1), (3, 2), (3, 3), (3, 6), (14, 1), (14, 2), (14, 9)]
        {
            let code = Code::with_backend(data_count, parity_count, backend).expect("available");
            let mut data = Chunks::new(data_count, LENGTH, 3);
            let mut copies = Chunks::new(data_count + 1, LENGTH, 5);
            let mut parity = Chunks::new(parity_count, LENGTH, 7);
            let (d, c, p) = (data.segments(), copies.segments(), parity.segments());
            let (c, copy) = (&c[..data_count], c[data_count]);
            let rows: Vec<(usize, Segment)> = p.iter().copied().enumerate().collect();
            let stop = AtomicBool::new(false);
            let mut changed = 0;
            let all_agree = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut value = 0;
                    while !stop.load(Ordering::Relaxed) {
                        value = if value == 250 { 0 } else { value + 1 };
                        d.iter().for_each(|segment| segment.fill(value));
                    }
                });
                let last_byte = || {
                    let mut byte = [0];
                    d[1].part(LENGTH - 1, 1).copy_to_slice(&mut byte);
                    byte
                };
                let (old, new, column) = (c[1], d[1], 1);
                let mut both_agree = || {
                    code.copy_generate(&d, c, &p);
                    let generated = agrees(&code, c, &p);
                    let before = last_byte();
                    code.copy_delta(Change { column, old, new }, copy, &rows);
                    let changes = last_byte() != before;
                    c[1].copy_from(copy);
                    changed += i32::from(changes);
                    // Until some changes came in time, if the machine lets both threads run.
                    (generated && agrees(&code, c, &p), changed == 20)
                };
                let mut agree = true;
                for _ in 0..2000 {
                    let (well, enough) = both_agree();
                    agree &= well;
                    if enough || !agree {
                        break;
                    }
                }
                stop.store(true, Ordering::Relaxed);
                agree
            });
            assert!(all_agree, "{code:?}, {changed} rounds with a change");
            [data, copies, parity]
                .iter()
                .for_each(Chunks::assert_guards);
        }
    }
}

#[test]
fn without_parity_copies_are_made_all_the_same() {
    let code = Code::new(2, 0).expect("a code");
    let mut chunks = Chunks::new(4, 100, 3);
    chunks.randomize(&mut Chance::new(13));
    let segments = chunks.segments();
    code.generate(&segments[..2], &[]);
    code.copy_generate(&segments[..2], &segments[2..], &[]);
    assert_eq!(chunks.get(2), chunks.get(0));
    assert_eq!(chunks.get(3), chunks.get(1));
}

#[test]
fn segments_that_do_not_fit_are_refused() {
    let mut chunks = Chunks::new(4, 64, 0);
    let s = chunks.segments();
    let short = s[3].part(0, 63);
    let code = Code::new(2, 1).expect("a code");
    let refuses = |call: &dyn Fn()| {
        let call = std::panic::AssertUnwindSafe(call);
        assert!(std::panic::catch_unwind(call).is_err());
    };
    refuses(&|| code.generate(&s[..2], &[short]));
    refuses(&|| code.generate(&[s[0], short], &s[2..3]));
    refuses(&|| code.generate(&s[..3], &s[3..]));
    refuses(&|| code.generate(&s[..2], &[]));
    refuses(&|| code.generate(&[], &[]));
    refuses(&|| code.copy_generate(&s[..2], &[], &s[2..3]));
    refuses(&|| code.copy_generate(&s[..2], &[s[2], short], &s[2..3]));
    refuses(&|| code.delta(2, s[0], s[1], &[(0, s[2])]));
    refuses(&|| code.delta(0, s[0], s[1], &[(1, s[2])]));
    refuses(&|| code.delta(0, s[0], s[1], &[(0, short)]));
    refuses(&|| code.delta(0, s[0], short, &[(0, s[2])]));
    refuses(&|| code.delta(0, short, short, &[(0, s[2])]));
    refuses(&|| code.delta(0, s[0], s[1], &[(0, s[2]), (0, s[2])]));
    let none = Code::new(2, 0).expect("a code");
    refuses(&|| none.copy_generate(&s[..2], &s[2..3], &[]));
    refuses(&|| crate::xor_into(s[0], short));
    let lost = RoleSet::one(Role(0));
    let decoder = code.decoder(RoleSet::range(1, 3), lost).expect("one lost");
    refuses(&|| decoder.recover(&s[..1], &s[2..3]));
    refuses(&|| decoder.recover(&[s[0], short], &s[2..3]));
}
