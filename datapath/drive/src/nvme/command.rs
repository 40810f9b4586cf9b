//! The bytes of a command, as `struct nvme_uring_cmd` of linux/nvme_ioctl.h wants them. `struct
//! nvme_passthru_cmd`, which `ioctl` takes, differs in a field that only the kernel writes.

use units::bytes_u64;

use super::namespace::Namespace;
use crate::uring::Direction;

/// The end of a ring's long entry: the command, and 8 bytes that nobody reads.
pub(crate) const ENTRY_BYTES: usize = 80;
/// The command.
pub(crate) const COMMAND_BYTES: usize = 72;
/// What a controller answers when it is asked what it, or a namespace, is.
pub(crate) const IDENTIFY_BYTES: usize = 4096;

/// Where the fields are.
mod at {
    pub(super) const OPCODE: usize = 0;
    pub(super) const NAMESPACE: usize = 4;
    pub(super) const ADDRESS: usize = 24;
    pub(super) const DATA_LENGTH: usize = 36;
    /// Command double words 10 to 15.
    pub(super) const WORDS: usize = 40;
}

/// Operation codes, of the NVM command set and of the admin one.
mod opcode {
    pub(super) const FLUSH: u8 = 0x00;
    pub(super) const WRITE: u8 = 0x01;
    pub(super) const READ: u8 = 0x02;
    pub(super) const WRITE_ZEROES: u8 = 0x08;
    pub(super) const IDENTIFY: u8 = 0x06;
}

/// Of *write zeroes*, in double word 12: blocks may lose their storage, if they read as zeroes.
const DEALLOCATE: u32 = 1 << 25;

/// A command without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    opcode: u8,
    namespace: u32,
    words: [u32; 3],
}

impl Command {
    /// A transfer of whole blocks, at most [`Namespace::BLOCKS_MAX`] of them.
    pub(crate) fn transfer(
        namespace: &Namespace,
        direction: Direction,
        offset: u64,
        bytes: u64,
    ) -> Command {
        let opcode = match direction {
            Direction::Read => opcode::READ,
            Direction::Write => opcode::WRITE,
        };
        Command::on_blocks(namespace, opcode, offset, bytes)
    }

    /// Makes blocks read as zeroes.
    pub(crate) fn zero(namespace: &Namespace, offset: u64, bytes: u64, may_unmap: bool) -> Command {
        let mut command = Command::on_blocks(namespace, opcode::WRITE_ZEROES, offset, bytes);
        if may_unmap && namespace.deallocates {
            command.words[2] |= DEALLOCATE;
        }
        command
    }

    /// Makes completed writes durable.
    pub(crate) fn flush(namespace: &Namespace) -> Command {
        Command {
            opcode: opcode::FLUSH,
            namespace: namespace.id,
            words: [0; 3],
        }
    }

    /// Asks what a namespace is: `IDENTIFY_BYTES` of answer.
    pub(crate) fn identify(namespace: u32) -> Command {
        Command {
            opcode: opcode::IDENTIFY,
            namespace,
            // "Identify Namespace data structure".
            words: [0; 3],
        }
    }

    /// Asks what the controller is: as many bytes.
    pub(crate) fn identify_controller() -> Command {
        Command {
            opcode: opcode::IDENTIFY,
            namespace: 0,
            // "Identify Controller data structure".
            words: [1, 0, 0],
        }
    }

    fn on_blocks(namespace: &Namespace, opcode: u8, offset: u64, bytes: u64) -> Command {
        let (first, blocks) = (namespace.blocks(offset), namespace.blocks(bytes));
        assert!(
            (1..=Namespace::BLOCKS_MAX).contains(&blocks),
            "{blocks} blocks"
        );
        let low = u32::try_from(first & u64::from(u32::MAX)).expect("masked");
        let high = u32::try_from(first >> 32).expect("half of it");
        let count = u32::try_from(blocks - 1).expect("checked: 0 stands for one block");
        Command {
            opcode,
            namespace: namespace.id,
            words: [low, high, count],
        }
    }

    /// With where the bytes are: one piece of so many, or, of `vectors`, a list of so many pieces.
    pub(crate) fn encode(self, address: *const u8, length: u32) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(at::OPCODE, &[self.opcode]);
        put(at::NAMESPACE, &self.namespace.to_ne_bytes());
        put(at::ADDRESS, &bytes_u64(address.addr()).to_ne_bytes());
        put(at::DATA_LENGTH, &length.to_ne_bytes());
        for (place, word) in self.words.iter().enumerate() {
            put(at::WORDS + 4 * place, &word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::RetryWaits;

    const NAMESPACE: Namespace = Namespace {
        id: 0x0102_0304,
        block_bytes: 4096,
        zero_bytes_max: 1 << 20,
        deallocates: true,
        retry_waits: RetryWaits::NONE,
    };

    /// A command by hand: opcode, address, length, words 10 to 12.
    fn by_hand(opcode: u8, address: u64, length: u32, words: [u32; 3]) -> [u8; ENTRY_BYTES] {
        let mut bytes = vec![opcode, 0, 0, 0];
        bytes.extend(0x0102_0304_u32.to_ne_bytes());
        bytes.extend([0; 16]); // double words 2 and 3, metadata
        bytes.extend(address.to_ne_bytes());
        bytes.extend([0; 4]); // bytes of metadata
        bytes.extend(length.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend([0; 12]); // double words 13 to 15
        bytes.extend([0; 8]); // timeout: the drive's own; reserved
        assert_eq!(bytes.len(), COMMAND_BYTES);
        bytes.extend([0; 8]);
        bytes.try_into().unwrap()
    }

    #[test]
    fn every_byte_of_a_command_is_where_the_kernel_reads_it() {
        let (offset, bytes) = (0x12_3456_789A << 12, 256 << 12);
        let address = std::ptr::without_provenance(0xABCD_E000);
        let place = [0x3456_789A, 0x12, 255];
        let read = Command::transfer(&NAMESPACE, Direction::Read, offset, bytes);
        assert_eq!(
            read.encode(address, 1 << 20),
            by_hand(2, 0xABCD_E000, 1 << 20, place)
        );
        let write = Command::transfer(&NAMESPACE, Direction::Write, offset, bytes);
        assert_eq!(write.encode(address, 3), by_hand(1, 0xABCD_E000, 3, place));
        let nowhere = std::ptr::null();
        let flush = Command::flush(&NAMESPACE).encode(nowhere, 0);
        assert_eq!(flush, by_hand(0, 0, 0, [0; 3]));
        let identify = Command::identify(0x0102_0304).encode(address, 4096);
        assert_eq!(identify, by_hand(6, 0xABCD_E000, 4096, [0; 3]));
        let mut controller = by_hand(6, 0xABCD_E000, 4096, [1, 0, 0]);
        controller[4..8].fill(0);
        let identify = Command::identify_controller().encode(address, 4096);
        assert_eq!(identify, controller);
    }

    #[test]
    fn zeroes_are_unmapped_only_where_that_is_allowed_and_reads_as_zeroes() {
        let keeps = Namespace {
            deallocates: false,
            ..NAMESPACE
        };
        for (namespace, may_unmap, bit) in [
            (NAMESPACE, true, 1 << 25),
            (NAMESPACE, false, 0),
            (keeps, true, 0),
        ] {
            let zero = Command::zero(&namespace, 4096, 65536 * 4096, may_unmap);
            let wanted = by_hand(8, 0, 0, [1, 0, 65535 | bit]);
            assert_eq!(zero.encode(std::ptr::null(), 0), wanted);
        }
    }

    #[test]
    fn the_largest_and_the_smallest_drive_are_addressed_in_their_own_blocks() {
        let small = Namespace {
            block_bytes: 512,
            ..NAMESPACE
        };
        let last = u64::MAX / 4096 * 4096 - 4096;
        for (namespace, offset, words) in [
            (small, 512, [1, 0, 0]),
            (small, 1 << 41, [0, 1, 0]),
            (NAMESPACE, last, [0xFFFF_FFFE, 0x000F_FFFF, 0]),
        ] {
            let bytes = namespace.block_bytes;
            let command = Command::transfer(&namespace, Direction::Read, offset, bytes);
            assert_eq!(command.words, words, "{offset}");
        }
    }
}
