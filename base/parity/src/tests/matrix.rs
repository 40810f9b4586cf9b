//! The matrix: its definition, nesting, and that every square part has an inverse.

use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};

use super::{Chance, element};
use crate::field::{PRODUCTS, inverse, power};
use crate::{Backend, Code, CodeError};

fn code(data: usize, parity: usize) -> Code {
    Code::with_backend(data, parity, Backend::Scalar).expect("a code")
}

#[test]
fn p_is_the_sum_and_q_has_the_powers_of_two() {
    let code = code(62, 2);
    for column in 0..62 {
        assert_eq!(code.coefficient(0, column), 1);
        assert_eq!(code.coefficient(1, column), power(2, column));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn every_element_is_that_of_its_definition_in_every_code() {
    let table: Vec<Vec<u8>> = (0..PARITY_MAX)
        .map(|row| (0..GROUP_MEMBERS_MAX).map(|c| element(row, c)).collect())
        .collect();
    for data in 1..=GROUP_MEMBERS_MAX {
        for parity in 0..=PARITY_MAX.min(GROUP_MEMBERS_MAX - data) {
            let code = code(data, parity);
            for (row, elements) in table[..parity].iter().enumerate() {
                for (column, &element) in elements[..data].iter().enumerate() {
                    assert_eq!(code.coefficient(row, column), element);
                }
                assert_eq!(code.coefficient(row, 0), 1, "with k = 1 it is a mirror");
            }
        }
    }
}

#[test]
fn a_code_can_be_shared_by_threads() {
    fn assert_shared<T: Send + Sync + 'static>() {}
    assert_shared::<Code>();
    assert_shared::<crate::Decoder>();
}

#[test]
fn codes_that_do_not_fit_are_refused() {
    for (data, parity) in [
        (0, 0),
        (0, 1),
        (65, 0),
        (33, 32),
        (63, 2),
        (31, 33),
        (usize::MAX, 1),
    ] {
        let error = Code::new(data, parity).expect_err("does not fit");
        assert_eq!(error, CodeError::Size { data, parity });
    }
    for (data, parity) in [(1, 0), (64, 0), (32, 32), (1, 32), (63, 1)] {
        assert!(Code::new(data, parity).is_ok(), "{data}+{parity}");
    }
    for backend in [Backend::Scalar, Backend::Avx2, Backend::Avx512Gfni] {
        let made = Code::with_backend(2, 1, backend).map(|code| code.backend());
        let expected = if backend.is_available() {
            Ok(backend)
        } else {
            Err(CodeError::Backend(backend))
        };
        assert_eq!(made, expected);
    }
}

/// Whether the square part of these rows and columns has an inverse.
fn is_regular(code: &Code, rows: &[usize], columns: &[usize]) -> bool {
    let mut part: Vec<Vec<u8>> = rows
        .iter()
        .map(|&row| columns.iter().map(|&c| code.coefficient(row, c)).collect())
        .collect();
    for pivot in 0..part.len() {
        let Some(found) = (pivot..part.len()).find(|&row| part[row][pivot] != 0) else {
            return false;
        };
        part.swap(pivot, found);
        let (above, below) = part.split_at_mut(pivot + 1);
        let first = &above[pivot];
        let scale = inverse(first[pivot]);
        for row in below {
            let factor = PRODUCTS[usize::from(row[pivot])][usize::from(scale)];
            for (element, of_first) in row.iter_mut().zip(first).skip(pivot) {
                *element ^= PRODUCTS[usize::from(factor)][usize::from(*of_first)];
            }
        }
    }
    true
}

/// All sets of `count` numbers below `bound`.
fn subsets(count: usize, bound: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    (count - 1..bound)
        .flat_map(|last| {
            subsets(count - 1, last).into_iter().map(move |mut set| {
                set.push(last);
                set
            })
        })
        .collect()
}

fn assert_all_regular(data: usize, parity: usize) {
    let code = code(data, parity);
    for size in 1..=parity.min(data) {
        let columns = subsets(size, data);
        for rows in subsets(size, parity) {
            for columns in &columns {
                assert!(is_regular(&code, &rows, columns), "{rows:?} × {columns:?}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn every_square_part_of_small_codes_has_an_inverse() {
    assert_all_regular(61, 3);
    assert_all_regular(22, 4);
    assert_all_regular(14, 6);
}

#[test]
#[ignore = "half a minute; run with --ignored"]
fn every_square_part_of_larger_codes_has_an_inverse() {
    assert_all_regular(60, 4);
    assert_all_regular(22, 6);
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn random_square_parts_of_the_largest_code_have_an_inverse() {
    let mut chance = Chance::new(1);
    let code = code(32, 32);
    for _ in 0..2000 {
        let size = 1 + chance.below(32);
        let rows = chance.subset(size, 32);
        let columns = chance.subset(size, 32);
        assert!(is_regular(&code, &rows, &columns), "{rows:?} × {columns:?}");
    }
}
