//! The field and its tables, and the products of every backend.

use memory::Segment;

use super::{Chunks, backends};
use crate::field::{PRODUCTS, double, inverse, multiply, power};
use crate::kernels::{Pass, ROWS, Shape};

#[test]
fn two_generates_all_numbers_but_zero() {
    let mut seen: Vec<u8> = (0..255).map(|exponent| power(2, exponent)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=255).collect::<Vec<u8>>());
    assert_eq!(power(2, 8), 0x1d, "the polynomial is 0x11d");
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn multiplication_distributes_and_has_inverses() {
    for a in 0..=255 {
        assert_eq!(double(a), multiply(a, 2));
        for b in 0..=255 {
            assert_eq!(multiply(a, b), multiply(b, a));
            for c in [1, 2, 4, 8, 16, 32, 64, 128] {
                assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            }
        }
    }
    for a in 1..=255 {
        assert_eq!(multiply(a, inverse(a)), 1);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn the_table_holds_every_product() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(PRODUCTS[usize::from(a)][usize::from(b)], multiply(a, b));
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn the_tables_of_the_backends_hold_every_product() {
    use crate::{avx2::NIBBLES, avx512::AFFINE};
    for a in 0..=255u8 {
        let at = usize::from(a);
        for b in 0..=255u8 {
            let product = multiply(a, b);
            let nibbles = NIBBLES[at];
            let (low, high) = (usize::from(b & 15), usize::from(b >> 4));
            assert_eq!(nibbles.low[low] ^ nibbles.high[high], product);
            let rows = AFFINE[at].to_be_bytes();
            let bits = (0..8).map(|bit| ((rows[bit] & b).count_ones() & 1) << bit);
            assert_eq!(bits.sum::<u32>(), u32::from(product), "{a} · {b}");
        }
    }
}

/// 256 · 16 bytes: each number in each place of a vector.
fn all_numbers() -> (Chunks, Vec<Segment>) {
    let mut source = Chunks::new(1, if cfg!(miri) { 256 } else { 256 * 16 }, 1);
    for (at, byte) in source.get_mut(0).iter_mut().enumerate() {
        *byte = (at + at / 256).to_le_bytes()[0];
    }
    let segments = source.segments();
    (source, segments)
}

#[test]
fn every_backend_makes_all_65536_products_in_every_row() {
    let (source, sources) = all_numbers();
    let length = source.get(0).len();
    for backend in backends() {
        for factor in 0..=255u8 {
            let expected: Vec<u8> = source
                .get(0)
                .iter()
                .map(|&byte| multiply(factor, byte))
                .collect();
            for (shape, first) in [(Shape::Rows, 0), (Shape::SumAndRows, 1)] {
                for rows in if cfg!(miri) { ROWS } else { first + 1 }..=ROWS {
                    let mut targets = Chunks::new(rows, length, 3);
                    let mut factors = [factor; ROWS];
                    if first == 1 {
                        factors[0] = 1;
                    }
                    backend.ready().expect("available").run(&Pass {
                        shape,
                        sources: &sources,
                        old: &[],
                        factors: &[factors],
                        targets: &targets.segments(),
                        bytes: 0..length,
                        copies: &[],
                        add: false,
                    });
                    for row in first..rows {
                        assert_eq!(targets.get(row), expected, "{backend:?} {shape:?} {factor}");
                    }
                    targets.assert_guards();
                }
            }
        }
    }
}

#[test]
fn every_backend_doubles_all_numbers() {
    let (source, sources) = all_numbers();
    let length = source.get(0).len();
    let mut zero = Chunks::new(1, length, 1);
    let expected: Vec<u8> = source.get(0).iter().map(|&b| multiply(2, b)).collect();
    for backend in backends() {
        let mut targets = Chunks::new(2, length, 5);
        backend.ready().expect("available").run(&Pass {
            shape: Shape::SumAndPowers,
            sources: &[zero.segments()[0], sources[0]],
            old: &[],
            factors: &[[1, 1, 0, 0], [1, 2, 0, 0]],
            targets: &targets.segments(),
            bytes: 0..length,
            copies: &[],
            add: false,
        });
        assert_eq!(targets.get(0), source.get(0), "{backend:?}");
        assert_eq!(targets.get(1), expected, "{backend:?}");
    }
}
