//! What a block of the demo's volume holds: a function of its number and its version.

/// Bytes of a block of the demo.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Bytes of a block in all its versions; version 0 is a block that was never written: zeroes.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    seed: u64,
    scratch: Vec<u8>,
}

impl Content {
    /// Content of one run; another `seed` gives other bytes.
    pub(crate) fn new(seed: u64) -> Content {
        Content {
            seed,
            scratch: vec![0; BLOCK_BYTES],
        }
    }

    /// Writes what `block` holds at `version` to `target`, one block long: number, version,
    /// noise, and a checksum of all that at the end.
    pub(crate) fn fill(&self, block: u32, version: u32, target: &mut [u8]) {
        assert_eq!(target.len(), BLOCK_BYTES, "one block");
        if version == 0 {
            target.fill(0);
            return;
        }
        let mut state = self.seed ^ (u64::from(block) << 32 | u64::from(version));
        let (words, _) = target.as_chunks_mut::<8>();
        for word in words.iter_mut() {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            *word = (state ^ state >> 29)
                .wrapping_mul(0xBF58_476D_1CE4_E5B9)
                .to_le_bytes();
        }
        target[..4].copy_from_slice(&block.to_le_bytes());
        target[4..8].copy_from_slice(&version.to_le_bytes());
        let sum = checksum(&target[..BLOCK_BYTES - 8]);
        target[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    }

    /// Says what is wrong with `found`, which should be `block` at `version`.
    pub(crate) fn check(&mut self, block: u32, version: u32, found: &[u8]) -> Result<(), String> {
        let mut expected = std::mem::take(&mut self.scratch);
        self.fill(block, version, &mut expected);
        let same = expected == found;
        self.scratch = expected;
        if same {
            return Ok(());
        }
        let word = |at: usize| {
            let bytes = [found[at], found[at + 1], found[at + 2], found[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let sum = checksum(&found[..BLOCK_BYTES - 8]).to_le_bytes();
        let what = if found.iter().all(|byte| *byte == 0) {
            "zeroes".to_owned()
        } else if found[BLOCK_BYTES - 8..] == sum {
            format!("block {} of version {}", word(0), word(4))
        } else {
            "bytes that were never written so".to_owned()
        };
        Err(format!(
            "block {block} should have version {version} and holds {what}"
        ))
    }
}

/// Fowler, Noll and Vo's 64-bit hash (1a), over words instead of bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0xCBF2_9CE4_8422_2325, |sum, word| {
        (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_block_is_found_and_named() {
        let mut content = Content::new(7);
        let mut bytes = vec![0; BLOCK_BYTES];
        content.check(3, 0, &bytes).expect("never written");
        content.fill(3, 2, &mut bytes);
        content.check(3, 2, &bytes).expect("as written");
        let stale = content.check(3, 3, &bytes).expect_err("stale");
        assert!(stale.ends_with("holds block 3 of version 2"), "{stale}");
        let elsewhere = content.check(4, 2, &bytes).expect_err("elsewhere");
        assert!(elsewhere.contains("holds block 3"), "{elsewhere}");
        for at in [0, 5, 100, BLOCK_BYTES - 9, BLOCK_BYTES - 1] {
            bytes[at] ^= 1;
            let torn = content.check(3, 2, &bytes).expect_err("one bit");
            assert!(torn.contains("never written so"), "{torn}");
            bytes[at] ^= 1;
        }
        bytes.fill(0);
        let lost = content.check(3, 2, &bytes).expect_err("lost");
        assert!(lost.ends_with("holds zeroes"), "{lost}");
    }
}
