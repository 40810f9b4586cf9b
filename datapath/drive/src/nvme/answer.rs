//! What the kernel's answer to a command means: 0, a status of the drive, or an error number.

use std::time::Duration;

use block::Status;

use super::command::IDENTIFY_BYTES;
use crate::errno::{self, Verdict};

/// Times that a command is sent again which the drive did not carry out and does not say never to
/// send again; as many as the kernel's own driver for what the block layer sends.
const RETRIES_MAX: u16 = 5;

/// The longest that a drive is left alone before a command is sent again, whatever it asks for:
/// five times that is less than a minute.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(10);
/// What the times are multiples of that a drive asks for.
const RETRY_WAIT_UNIT: Duration = Duration::from_millis(100);

/// The part of a status that says what happened: kind and code.
const CODE: i32 = 0x7FF;
/// Where it says which of its times the drive wants to be left alone for: two bits, 0 for none.
const WAIT_SHIFT: u32 = 11;
/// It would be the same again.
const DO_NOT_RETRY: i32 = 0x4000;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// All of it was done; there are no half ones.
    Done,
    /// Not all of it.
    Failed(Verdict),
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To move or zero blocks: the same again does the same.
    Blocks,
    /// To make earlier writes durable. The drive may have lost these with the failure, and succeed
    /// the next time, as nothing is left to write.
    Flush,
}

/// How long a controller may ask to be left alone before a command is sent again: "Command Retry
/// Delay Time" 1 to 3, in tenths of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryWaits(pub(crate) [u16; 3]);

impl RetryWaits {
    /// Of one that does not say: commands are sent again at once.
    pub(crate) const NONE: RetryWaits = RetryWaits([0; 3]);

    /// From the answer to *identify controller*.
    pub(crate) fn parse(answer: &[u8; IDENTIFY_BYTES]) -> RetryWaits {
        RetryWaits([128, 130, 132].map(|at| u16::from_le_bytes([answer[at], answer[at + 1]])))
    }

    /// How long a command that was answered so waits before it is sent again, if it is.
    pub(crate) fn after(self, result: i32) -> Duration {
        if result <= 0 || result & DO_NOT_RETRY != 0 {
            return Duration::ZERO;
        }
        let tenths = match result >> WAIT_SHIFT & 3 {
            0 => 0,
            1 => self.0[0],
            2 => self.0[1],
            _ => self.0[2],
        };
        (RETRY_WAIT_UNIT * u32::from(tenths)).min(RETRY_WAIT_MAX)
    }
}

/// Judges the answer to a command that was sent again so many times already.
pub(crate) fn judge(asked: Asked, result: i32, tries: u16) -> Answered {
    let verdict = match result {
        0 => return Answered::Done,
        1.. => of_status(result),
        // The command was under way when its controller was reset, for it did not answer or is
        // taken away; the kernel has made sure that it is over.
        _ if result == -libc::EINTR => Failure::Passing(Status::Gone),
        // Lengths, places and memory were checked. (A drive that is without a path is called that,
        // too; those that can be are not served, see `Sibling::refusal`.)
        _ if result == -libc::EINVAL => Failure::Final(Verdict::Final(Status::Media)),
        // Somebody took our rights away.
        _ if [-libc::EACCES, -libc::EPERM].contains(&result) => {
            Failure::Final(Verdict::Final(Status::Gone))
        }
        errno => Failure::Final(errno::verdict(-errno)),
    };
    Answered::Failed(match verdict {
        Failure::Final(verdict) => verdict,
        Failure::Passing(status) if asked == Asked::Flush && !is_unbegun(result) => {
            Verdict::Final(status)
        }
        Failure::Passing(_) if tries < RETRIES_MAX => Verdict::Again,
        Failure::Passing(status) => Verdict::Final(status),
    })
}

/// Whether a status says that nothing was begun: this way to the drive is not, or no longer, to be
/// used, says the controller (0x301 to 0x303) or the kernel (0x370); or the namespace is not ready
/// (0x082), as for a while after its controller was reset. What it keeps to write, it keeps.
fn is_unbegun(status: i32) -> bool {
    status > 0 && matches!(status & CODE, 0x082 | 0x301..=0x303 | 0x370)
}

enum Failure {
    Final(Verdict),
    /// May go better the next time; if it does not, this is it.
    Passing(Status),
}

/// The numbers are those of the NVMe base and NVM command set specifications; kind in bits 8 to 10.
fn of_status(status: i32) -> Failure {
    let is_final = status & DO_NOT_RETRY != 0;
    let passing = |status: Status| {
        if is_final {
            Failure::Final(Verdict::Final(status))
        } else {
            Failure::Passing(status)
        }
    };
    match status & CODE {
        // Opcode, field, size or attribute that the drive does not know.
        0x001 | 0x002 | 0x180 | 0x183 => Failure::Final(Verdict::NotSupported),
        // Namespace invalid; sanitize failed or under way; reservation of another host; being
        // formatted.
        0x00B | 0x01C | 0x01D | 0x083 | 0x084 => Failure::Final(Verdict::Final(Status::Gone)),
        0x081 => Failure::Final(Verdict::Final(Status::NoSpace)),
        // Power is being lost; a way to the drive that is lost, in whatever manner; the command was
        // taken back by the host.
        0x005 | 0x300..=0x303 | 0x360 | 0x370 | 0x371 => passing(Status::Gone),
        // Transfer or internal error, aborted (also with its queue), interrupted, transient, not
        // ready: not the fault of these blocks.
        0x004 | 0x006 | 0x007 | 0x008 | 0x021 | 0x022 | 0x082 => passing(Status::Media),
        // Write fault, read error, checks, denied, unwritten (0x280 and above); blocks behind the
        // end (0x080), which were inside when the drive was opened; write protection (0x020,
        // 0x182); and whatever we have not heard of.
        _ => Failure::Final(Verdict::Final(Status::Media)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(result: i32, tries: u16) -> Answered {
        super::judge(Asked::Blocks, result, tries)
    }

    fn last(result: i32) -> Answered {
        judge(result, RETRIES_MAX)
    }

    fn ends(status: Status) -> Answered {
        Answered::Failed(Verdict::Final(status))
    }

    const AGAIN: Answered = Answered::Failed(Verdict::Again);

    #[test]
    fn every_status_of_the_table_means_what_the_table_says() {
        assert_eq!(judge(0, 0), Answered::Done);
        for (status, codes) in [
            (
                Status::Media,
                &[
                    0x280, 0x281, 0x282, 0x283, 0x284, 0x286, 0x287, 0x080, 0x182, 0x020, 0x013,
                    0x1BA, 0x7FF,
                ][..],
            ),
            (Status::Gone, &[0x00B, 0x01C, 0x01D, 0x083, 0x084]),
            (Status::NoSpace, &[0x081]),
        ] {
            for code in codes {
                assert_eq!(judge(*code, 0), ends(status), "{code:#x}");
                // Bits for how long to wait, and that a log says more.
                assert_eq!(judge(code | 0x3800, 0), ends(status), "{code:#x}");
                assert_eq!(judge(code | DO_NOT_RETRY, 0), ends(status), "{code:#x}");
            }
        }
        for code in [0x001, 0x002, 0x180, 0x183] {
            let wanted = Answered::Failed(Verdict::NotSupported);
            assert_eq!(judge(code | DO_NOT_RETRY, 0), wanted, "{code:#x}");
        }
    }

    #[test]
    fn what_may_pass_is_tried_five_times_unless_the_drive_says_that_it_will_not() {
        for (status, codes) in [
            (
                Status::Media,
                &[0x004, 0x006, 0x007, 0x008, 0x021, 0x022, 0x082][..],
            ),
            (Status::Gone, &[0x005, 0x300, 0x303, 0x360, 0x370, 0x371]),
        ] {
            for code in codes {
                assert_eq!(judge(*code, 0), AGAIN, "{code:#x}");
                assert_eq!(judge(*code, RETRIES_MAX - 1), AGAIN, "{code:#x}");
                assert_eq!(last(*code), ends(status), "{code:#x}");
                assert_eq!(judge(code | DO_NOT_RETRY, 0), ends(status), "{code:#x}");
            }
        }
    }

    #[test]
    fn a_flush_that_failed_is_not_sent_again_but_one_that_was_never_begun_is() {
        let flush = |result| super::judge(Asked::Flush, result, 0);
        assert_eq!(flush(0), Answered::Done);
        for code in [0x004, 0x006, 0x007, 0x008, 0x021, 0x022] {
            assert_eq!(flush(code), ends(Status::Media), "{code:#x}");
        }
        for code in [0x005, 0x300, 0x360, 0x371, -libc::EINTR] {
            assert_eq!(flush(code), ends(Status::Gone), "{code:#x}");
        }
        for code in [0x082, 0x301, 0x302, 0x303, 0x370, -libc::EAGAIN] {
            assert_eq!(flush(code), AGAIN, "{code:#x}");
        }
        for (code, status) in [(0x082, Status::Media), (0x370, Status::Gone)] {
            let often = super::judge(Asked::Flush, code, RETRIES_MAX);
            assert_eq!(often, ends(status), "{code:#x}");
            assert_eq!(flush(code | DO_NOT_RETRY), ends(status), "{code:#x}");
        }
    }

    #[test]
    fn a_command_waits_as_long_as_the_drive_asks_but_not_for_ever() {
        let mut answer = [0; IDENTIFY_BYTES];
        answer[126..136].copy_from_slice(&[9, 9, 1, 0, 0x20, 0, 0xFF, 0xFF, 9, 9]);
        let waits = RetryWaits::parse(&answer);
        assert_eq!(waits, RetryWaits([1, 32, 65535]));
        for (result, milliseconds) in [
            (0, 0),
            (0x006, 0),
            (0x0806, 100),
            (0x1082, 3200),
            // A log says more.
            (0x2806, 100),
            (0x1806, 10_000),
            (0x0806 | DO_NOT_RETRY, 0),
            (-libc::EINTR, 0),
        ] {
            let wanted = Duration::from_millis(milliseconds);
            assert_eq!(waits.after(result), wanted, "{result:#x}");
        }
        assert_eq!(RetryWaits::NONE.after(0x0806), Duration::ZERO);
    }

    #[test]
    fn the_kernels_own_errors_are_told_from_the_drives() {
        assert_eq!(judge(-libc::EINTR, 0), AGAIN, "the controller was reset");
        assert_eq!(last(-libc::EINTR), ends(Status::Gone));
        assert_eq!(
            judge(-libc::EAGAIN, RETRIES_MAX),
            AGAIN,
            "no room in the queue"
        );
        for (errno, status) in [
            (libc::ENODEV, Status::Gone),
            (libc::EACCES, Status::Gone),
            (libc::EINVAL, Status::Media),
            (libc::EIO, Status::Media),
            (libc::EFAULT, Status::Invalid),
            (libc::ECANCELED, Status::Gone),
        ] {
            assert_eq!(judge(-errno, 0), ends(status), "{errno}");
        }
    }
}
