//! What commands to a namespace need to know of it, and which namespaces are served.

use super::answer::RetryWaits;
use super::command::IDENTIFY_BYTES;

/// A namespace that is served: blocks without metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) id: u32,
    pub(crate) block_bytes: u64,
    /// The most that one *write zeroes* takes; 0 where it is not to be used.
    pub(crate) zero_bytes_max: u64,
    /// Whether blocks that were unmapped by *write zeroes* read as zeroes, and may be.
    pub(crate) deallocates: bool,
    /// Of its controller.
    pub(crate) retry_waits: RetryWaits,
}

impl Namespace {
    /// The most blocks that a command can name.
    pub(crate) const BLOCKS_MAX: u64 = 1 << 16;

    pub(crate) fn blocks(&self, bytes: u64) -> u64 {
        assert!(
            bytes.is_multiple_of(self.block_bytes),
            "{bytes} bytes are no whole blocks of {}",
            self.block_bytes
        );
        bytes / self.block_bytes
    }

    /// How much of so many bytes the next *write zeroes* does.
    pub(crate) fn zero_bytes(&self, left: u64) -> u64 {
        let most = self.zero_bytes_max.min(Self::BLOCKS_MAX * self.block_bytes);
        left.min(most / self.block_bytes * self.block_bytes)
    }
}

/// What *identify* says of how a namespace is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) block_bytes: u64,
    /// Bytes that go with each block.
    pub(crate) metadata_bytes: u64,
    /// Kind of protection information; 0 is none.
    pub(crate) protection: u8,
    pub(crate) deallocates: bool,
}

impl Format {
    /// From the answer to *identify namespace*; none when it contradicts itself.
    pub(crate) fn parse(answer: &[u8; IDENTIFY_BYTES]) -> Option<Format> {
        // Which of the formats: four bits, and two more of namespaces that have more than 16.
        let formatted = answer[26];
        let which = usize::from(formatted & 0xF | (formatted >> 5 & 3) << 4);
        if which > usize::from(answer[25]) {
            return None;
        }
        let format = &answer[128 + 4 * which..][..4];
        let shift = u32::from(format[2]);
        // Unmapped blocks read as zeroes (1 of bits 0 to 2), and *write zeroes* may unmap (bit 3).
        let unmapped = answer[33];
        Some(Format {
            block_bytes: 1u64.checked_shl(shift).filter(|_| shift >= 9)?,
            metadata_bytes: u64::from(u16::from_le_bytes([format[0], format[1]])),
            protection: answer[29] & 7,
            deallocates: unmapped & 7 == 1 && unmapped & 8 != 0,
        })
    }

    /// Why a namespace with this format is not served.
    pub(crate) fn refusal(&self, block_bytes: u64) -> Option<String> {
        if self.metadata_bytes > 0 {
            let kind = match self.protection {
                0 => String::new(),
                kind => format!(" (protection information of type {kind})"),
            };
            return Some(format!(
                "is formatted with {} bytes of metadata for each block{kind}, which is not \
                 served; format it without (`nvme format`), or use its block device",
                self.metadata_bytes
            ));
        }
        (self.block_bytes != block_bytes).then(|| {
            format!(
                "has blocks of {} bytes, but the kernel says {block_bytes}: it was formatted \
                 anew; let the kernel look again (`nvme ns-rescan`)",
                self.block_bytes
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(set: &[(usize, u8)]) -> [u8; IDENTIFY_BYTES] {
        let mut answer = [0; IDENTIFY_BYTES];
        // Two formats: 512 bytes; 4096 bytes with 8 of metadata.
        answer[25] = 1;
        answer[128..136].copy_from_slice(&[0, 0, 9, 0, 8, 0, 12, 2]);
        for (at, value) in set {
            answer[*at] = *value;
        }
        answer
    }

    #[test]
    fn the_format_in_use_is_the_one_that_is_named() {
        let plain = Format {
            block_bytes: 512,
            metadata_bytes: 0,
            protection: 0,
            deallocates: false,
        };
        let protected = Format {
            block_bytes: 4096,
            metadata_bytes: 8,
            protection: 1,
            deallocates: false,
        };
        assert_eq!(Format::parse(&answer(&[])), Some(plain));
        // Bit 4 says where metadata is, not which format.
        let found = Format::parse(&answer(&[(26, 0x11), (29, 0x09)]));
        assert_eq!(found, Some(protected));
        let many = answer(&[(25, 63), (26, 0x20), (128 + 64 + 2, 12)]);
        let wanted = Format {
            block_bytes: 4096,
            ..plain
        };
        assert_eq!(Format::parse(&many), Some(wanted));
        assert_eq!(Format::parse(&answer(&[(26, 2)])), None, "there are two");
        assert_eq!(Format::parse(&answer(&[(130, 8)])), None, "256 bytes");
        assert_eq!(Format::parse(&answer(&[(130, 64)])), None, "2^64 bytes");
    }

    #[test]
    fn blocks_are_unmapped_only_if_they_read_as_zeroes_then() {
        for (byte, deallocates) in [(0x09, true), (0x19, true), (0x01, false), (0x0A, false)] {
            let format = Format::parse(&answer(&[(33, byte)])).unwrap();
            assert_eq!(format.deallocates, deallocates, "{byte:#x}");
        }
    }

    #[test]
    fn metadata_and_a_stale_view_of_the_kernel_are_refused_with_what_to_do() {
        let plain = Format::parse(&answer(&[])).unwrap();
        assert_eq!(plain.refusal(512), None);
        let stale = plain.refusal(4096).unwrap();
        assert!(
            stale.contains("512") && stale.contains("ns-rescan"),
            "{stale}"
        );
        let protected = Format::parse(&answer(&[(26, 1), (29, 1)])).unwrap();
        let words = protected.refusal(4096).unwrap();
        assert!(
            words.contains("8 bytes of metadata") && words.contains("type 1"),
            "{words}"
        );
        let bare = Format::parse(&answer(&[(26, 1)])).unwrap();
        assert!(!bare.refusal(4096).unwrap().contains("protection"));
    }

    #[test]
    fn zeroing_is_cut_to_what_one_command_takes() {
        let namespace = |block_bytes, zero_bytes_max| Namespace {
            id: 1,
            block_bytes,
            zero_bytes_max,
            deallocates: false,
            retry_waits: RetryWaits::NONE,
        };
        for (namespace, left, wanted) in [
            (namespace(512, u64::MAX), 1 << 40, 32 << 20),
            (namespace(4096, u64::MAX), 1 << 40, 256 << 20),
            (namespace(4096, 10_000), 1 << 20, 8192),
            (namespace(512, 1 << 20), 4096, 4096),
        ] {
            assert_eq!(namespace.zero_bytes(left), wanted);
        }
    }
}
