//! GF(2⁸) with the polynomial x⁸ + x⁴ + x³ + x² + 1 (0x11d), and its tables.
//!
//! The field of Linux md and of ISA-L; 2 generates it. Source: H. P. Anvin, "The mathematics of
//! RAID-6". All tables are made by the compiler from [`multiply`].

/// The product, bit by bit. The definition that all faster ways are tested against.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut shifted, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = double(shifted);
        bit += 1;
    }
    product
}

/// Twice `a`.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a >= 0x80 { 0x1d } else { 0 }
}

/// `base` to the power of `exponent`.
pub(crate) const fn power(base: u8, exponent: usize) -> u8 {
    let (mut result, mut step) = (1, 0);
    while step < exponent {
        result = multiply(result, base);
        step += 1;
    }
    result
}

/// The number whose product with `a` is 1.
///
/// # Panics
/// When `a` is zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    // The 255 numbers other than zero form a group under multiplication, so a²⁵⁵ = 1.
    power(a, 254)
}

/// `PRODUCTS[a][b]` = a · b. For single bytes.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

/// Products with the 16 low and the 16 high nibbles. For byte shuffles.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    /// `low[n]` = factor · n.
    pub(crate) low: [u8; 16],
    /// `high[n]` = factor · 16n.
    pub(crate) high: [u8; 16],
}

/// `NIBBLES[a]` multiplies by a.
pub(crate) static NIBBLES: [Nibbles; 256] = nibbles();

/// `AFFINE[a]` multiplies by a: the bit matrix in the order of `gf2p8affineqb`, where byte 7 − i
/// holds the row of result bit i.
pub(crate) static AFFINE: [u64; 256] = affine();

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0u8;
    loop {
        let row = &mut table[a as usize];
        let mut power_of_a = a;
        let mut b = 1usize;
        while b < 256 {
            // Every b is a power of two and the rest below it, whose product is known already.
            if b.is_power_of_two() {
                row[b] = power_of_a;
                power_of_a = double(power_of_a);
            } else {
                let rest = b & (b - 1);
                row[b] = row[rest] ^ row[b ^ rest];
            }
            b += 1;
        }
        if a == u8::MAX {
            return table;
        }
        a += 1;
    }
}

const fn nibbles() -> [Nibbles; 256] {
    let mut table = [Nibbles {
        low: [0; 16],
        high: [0; 16],
    }; 256];
    let mut a = 0;
    while a < 256 {
        let mut n = 0;
        while n < 16 {
            table[a].low[n] = PRODUCTS[a][n];
            table[a].high[n] = PRODUCTS[a][n << 4];
            n += 1;
        }
        a += 1;
    }
    table
}

const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut column = 0;
        while column < 8 {
            let product = PRODUCTS[a][1 << column];
            let mut row = 0;
            while row < 8 {
                if product >> row & 1 == 1 {
                    table[a] |= 1 << (8 * (7 - row) + column);
                }
                row += 1;
            }
            column += 1;
        }
        a += 1;
    }
    table
}
