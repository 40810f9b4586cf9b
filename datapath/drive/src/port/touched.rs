//! What a port has moved to or from memory drives lately: that lies in the caches of its core, and
//! is written faster there. Of small writes to anything else each line would be loaded first, to be
//! overwritten: those go past the caches. So the parity that a small write has just read is written
//! into the cache, and a copy of a mirror is not.

/// Blocks that are remembered: 4 MiB of a drive, which is what near caches hold.
const BLOCKS: usize = 1024;
/// Of the size of one.
const SHIFT: u32 = 12;

/// See the module. A block that shares its place with another is forgotten for it.
#[derive(Debug)]
pub(super) struct Touched(Box<[u32; BLOCKS]>);

impl Touched {
    /// Nothing.
    pub(super) fn new() -> Touched {
        Touched(Box::new([0; BLOCKS]))
    }

    /// Whether the block of a drive in which a request begins was moved lately. From now on it was.
    #[inline]
    pub(super) fn note(&mut self, seat: u16, offset: u64) -> bool {
        let block = (u64::from(seat) << 48) ^ (offset >> SHIFT);
        // The fractional part of the golden ratio spreads what differs in few bits (Knuth, The Art
        // of Computer Programming, 6.4).
        let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bytes = hash.to_be_bytes();
        let place = usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % BLOCKS;
        // Never that of nothing.
        let mark = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]) | 1;
        std::mem::replace(&mut self.0[place], mark) == mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_was_moved_lately_from_its_first_time_on() {
        let mut touched = Touched::new();
        for (seat, offset, lately) in [
            (0, 0, false),
            (0, 4095, true),
            (0, 4096, false),
            (1, 0, false),
            (0, 0, true),
            (1, 4096, false),
            (1, 100, true),
        ] {
            assert_eq!(touched.note(seat, offset), lately, "{seat} {offset}");
        }
    }

    #[test]
    fn what_was_moved_long_ago_is_forgotten_and_what_was_just_moved_mostly_not() {
        let mut touched = Touched::new();
        let mut count = |blocks: std::ops::Range<u64>| {
            let known = blocks.filter(|block| touched.note(3, block << SHIFT));
            known.count()
        };
        assert_eq!(count(0..100_000), 0);
        assert_eq!(count(0..100), 0, "all of these were others' since");
        assert!(count(0..100) > 80);
    }
}
