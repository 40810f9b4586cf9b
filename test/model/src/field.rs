//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), bit by bit, and the code on it.
//!
//! P and Q as in H. P. Anvin, "The mathematics of RAID-6"; further parities are rows of an
//! extended Cauchy matrix, each scaled so that its first coefficient is 1.

use std::sync::OnceLock;

/// Bytes that are multiplied together.
const TOGETHER: usize = 64;
/// Bytes of which sums are made at a time.
const SUMMED: usize = 256;

/// a × b, as one learns to multiply at school.
#[must_use]
pub fn multiply(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(product).expect("reduced below 2^8")
}

/// The b with a × b = 1.
///
/// # Panics
/// For zero, which has none.
#[must_use]
pub fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "every element but zero has an inverse");
    inverses()[usize::from(a)]
}

/// 2 to the power of `exponent`.
#[must_use]
pub fn power_of_two(exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| double(power))
}

/// What data chunk `data` is multiplied with on its way into parity chunk `parity`.
///
/// # Panics
/// When `data + parity` is 255 or more: the matrix ends there.
#[must_use]
pub fn coefficient(parity: usize, data: usize) -> u8 {
    assert!(parity + data < 255, "parity {parity} of data {data}");
    match parity {
        0 => 1,
        1 => power_of_two(data),
        _ => {
            let y = power_of_two(parity - 1);
            let cauchy = |x: u8| inverse(x ^ y);
            multiply(
                cauchy(inverse(power_of_two(data))),
                inverse(cauchy(power_of_two(0))),
            )
        }
    }
}

/// target += factor × source, bit by bit as in [`multiply`], but of many bytes at a time.
///
/// # Panics
/// When the lengths differ.
pub fn add_scaled(target: &mut [u8], factor: u8, source: &[u8]) {
    assert_eq!(target.len(), source.len());
    if factor == 1 {
        target.iter_mut().zip(source).for_each(|(t, s)| *t ^= s);
        return;
    }
    if factor == 0 || source.chunks(256).all(is_zero) {
        return;
    }
    for (target, source) in target.chunks_mut(TOGETHER).zip(source.chunks(TOGETHER)) {
        let mut powers = [0; TOGETHER];
        powers[..source.len()].copy_from_slice(source);
        let mut sum = [0; TOGETHER];
        for bit in 0..8 - factor.leading_zeros() {
            let counts = (factor >> bit & 1).wrapping_neg();
            for (sum, power) in sum.iter_mut().zip(&mut powers) {
                *sum ^= *power & counts;
                *power = double(*power);
            }
        }
        target.iter_mut().zip(sum).for_each(|(t, s)| *t ^= s);
    }
}

/// By row of factors: the sum of factor × source over all sources. Sources are added by the bits of
/// their factors first, and only these sums are doubled.
///
/// # Panics
/// When the lengths differ, or a row has not a factor for each source.
#[must_use]
pub fn sums_of_scaled(rows: &[Vec<u8>], sources: &[&[u8]]) -> Vec<Vec<u8>> {
    let length = sources.first().map_or(0, |source| source.len());
    assert!(sources.iter().all(|source| source.len() == length));
    assert!(rows.iter().all(|row| row.len() == sources.len()));
    let mut sums = vec![vec![0; length]; rows.len()];
    let mut some = Vec::with_capacity(sources.len());
    for start in (0..length).step_by(SUMMED) {
        let part = start..length.min(start + SUMMED);
        // Much of what is checked was never written, and zeroes add nothing.
        let parts = sources.iter().map(|source| &source[part.clone()]);
        some.clear();
        some.extend(parts.enumerate().filter(|(_, source)| !is_zero(source)));
        if some.is_empty() {
            continue;
        }
        for (row, sum) in rows.iter().zip(&mut sums) {
            let terms = some.iter().map(|(at, source)| (row[*at], *source));
            add_all(terms, &mut sum[part.clone()]);
        }
    }
    sums
}

/// Adds factor × source for each term, of as many bytes as are summed at a time.
fn add_all<'a>(terms: impl Iterator<Item = (u8, &'a [u8])>, sum: &mut [u8]) {
    let (mut by_bit, mut bits) = ([[0; SUMMED]; 8], 0);
    for (factor, source) in terms {
        for (bit, sum) in by_bit.iter_mut().enumerate() {
            if factor >> bit & 1 == 1 {
                sum.iter_mut().zip(source).for_each(|(t, s)| *t ^= s);
                bits = bits.max(bit + 1);
            }
        }
    }
    // As one evaluates a polynomial: what belongs to the highest bit is doubled most often.
    let mut all = [0; SUMMED];
    for part in by_bit[..bits].iter().rev() {
        let pairs = all.iter_mut().zip(part);
        pairs.for_each(|(all, part)| *all = double(*all) ^ part);
    }
    sum.iter_mut().zip(all).for_each(|(sum, all)| *sum ^= all);
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// 2 × a.
fn double(a: u8) -> u8 {
    (a << 1) ^ if a >> 7 == 1 { 0x1d } else { 0 }
}

/// All inverses, found once by [`multiply`]; zero in the place of zero.
fn inverses() -> &'static [u8; 256] {
    static INVERSES: OnceLock<[u8; 256]> = OnceLock::new();
    INVERSES.get_or_init(|| {
        let mut inverses = [0; 256];
        for a in 1..=255 {
            let found = (1..=255).find(|b| multiply(a, *b) == 1);
            inverses[usize::from(a)] = found.expect("every element but zero has an inverse");
        }
        inverses
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        for a in 0..=255 {
            assert_eq!(multiply(a, 1), a);
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b) == 0, a == 0 || b == 0);
                let (ab, ab3) = (multiply(a, b), multiply(a, b ^ 3));
                assert_eq!(ab3, ab ^ multiply(a, 3), "distributive");
                assert_eq!(multiply(ab, 7), multiply(a, multiply(b, 7)), "associative");
            }
        }
        assert_eq!(multiply(0x80, 2), 0x1d, "the polynomial");
    }

    #[test]
    fn what_is_added_is_the_product_of_each_byte() {
        let source: Vec<u8> = (0..=255).chain(0..=98).collect();
        for factor in 0..=255 {
            let mut sum: Vec<u8> = source.iter().rev().copied().collect();
            let before = sum.clone();
            add_scaled(&mut sum, factor, &source);
            let expected = source.iter().zip(before);
            let expected = expected.map(|(byte, before)| before ^ multiply(*byte, factor));
            assert!(sum.into_iter().eq(expected), "factor {factor}");
        }
    }

    #[test]
    fn a_sum_of_products_is_what_each_adds() {
        let source = |shift: u8| -> Vec<u8> {
            let bytes = (0..=255).chain(0..=98).chain(7..=200);
            bytes.map(|byte: u8| byte.rotate_left(3) ^ shift).collect()
        };
        let mut sources: Vec<Vec<u8>> = (0..5).map(|shift| source(shift * 51)).collect();
        // Nothing was ever written there.
        sources[2][..400].fill(0);
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let rows = [[1; 5], [0; 5], [1, 2, 4, 8, 16], [255, 0, 3, 128, 77]].map(Vec::from);
        let sums = sums_of_scaled(&rows, &sources);
        for (row, sum) in rows.iter().zip(sums) {
            let mut expected = vec![0; sources[0].len()];
            for (factor, source) in row.iter().zip(&sources) {
                add_scaled(&mut expected, *factor, source);
            }
            assert_eq!(sum, expected, "{row:?}");
        }
        assert_eq!(sums_of_scaled(&[Vec::new()], &[]), [[]; 1]);
    }

    #[test]
    fn two_generates_every_element_but_zero() {
        let powers: std::collections::BTreeSet<u8> = (0..255).map(power_of_two).collect();
        assert_eq!((powers.len(), powers.contains(&0)), (255, false));
    }

    #[test]
    fn the_first_coefficients_are_those_published() {
        let row = |parity| [0, 1, 2, 3, 4, 5].map(|data| coefficient(parity, data));
        assert_eq!(row(0), [1, 1, 1, 1, 1, 1]);
        assert_eq!(row(1), [1, 2, 4, 8, 16, 32]);
        assert_eq!(row(2), [0x01, 0xf5, 0xd2, 0xc4, 0x9a, 0x71], "R");
        assert_eq!(row(3), [0x01, 0xbb, 0xa6, 0xd7, 0xc7, 0x07], "S");
    }
}
