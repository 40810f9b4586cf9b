//! GF(2⁸) with the polynomial x⁸ + x⁴ + x³ + x² + 1 (0x11d), and its tables.
//!
//! The field of Linux md and of ISA-L; 2 generates it. Source: H. P. Anvin, "The mathematics of
//! RAID-6". All tables, here and in the backends, are made by
//! the compiler.

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
    INVERSES[a as usize]
}

/// `INVERSES[a]` · a = 1, and zero in the place of zero. For single bytes.
static INVERSES: [u8; 256] = inverses();

const fn inverses() -> [u8; 256] {
    // The 255 numbers other than zero are the powers of two, and the 255th is 1 again.
    let (mut powers, mut step) = ([1; 256], 1);
    while step < 256 {
        powers[step] = double(powers[step - 1]);
        step += 1;
    }
    let mut table = [0; 256];
    while step > 0 {
        step -= 1;
        table[powers[step] as usize] = powers[255 - step];
    }
    table
}

/// `PRODUCTS[a][b]` = a · b. For single bytes.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = products();

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
