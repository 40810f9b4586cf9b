//! What the kernel's error numbers mean for a drive. The only place that knows them.
//!
//! What does not live here: what is done about it. That is the array's decision.

use block::Status;

/// What to do with a kernel's answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing happened; ask again.
    Again,
    /// There was no memory: as `Again`. But a flush may say so of what was written before it, and
    /// only once.
    NoMemory,
    /// The drive does not know this operation.
    NotSupported,
    /// Memory, place or length are not as the kernel wants them by now. All of it was right when
    /// the drive was opened; with memory of ours it may be still.
    Misfit,
    /// It is over.
    Final(Status),
}

/// `errno` is positive.
pub(crate) fn verdict(errno: i32) -> Verdict {
    match errno {
        libc::EAGAIN | libc::EINTR => Verdict::Again,
        libc::ENOMEM | libc::ENOBUFS => Verdict::NoMemory,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Verdict::NotSupported,
        // A file system that turned read-only takes nothing any more; EBADE is how the kernel puts
        // it that another host has reserved the drive; ECANCELED comes when the reactor's thread
        // ends under its requests.
        libc::ENODEV
        | libc::ENXIO
        | libc::EBADF
        | libc::ESHUTDOWN
        | libc::ENOMEDIUM
        | libc::ESTALE
        | libc::EROFS
        | libc::EBADE
        | libc::ECANCELED => Verdict::Final(Status::Gone),
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Verdict::Final(Status::NoSpace),
        // The guest's memory went away: not the drive's fault.
        libc::EFAULT => Verdict::Final(Status::Invalid),
        // Nor is this the asker's: what was asked was checked against what the drive was.
        libc::EINVAL => Verdict::Misfit,
        // EIO, ENODATA, EILSEQ, EREMOTEIO, ETIMEDOUT, EBADMSG (a file system's checksum), and
        // whatever we have not heard of: these bytes could not be had, others perhaps can.
        _ => Verdict::Final(Status::Media),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_table_means_what_the_table_says() {
        for (status, numbers) in [
            (
                Status::Media,
                &[
                    libc::EIO,
                    libc::ENODATA,
                    libc::EILSEQ,
                    libc::EREMOTEIO,
                    libc::ETIMEDOUT,
                ][..],
            ),
            (
                Status::Gone,
                &[
                    libc::ENODEV,
                    libc::ENXIO,
                    libc::EBADF,
                    libc::ESHUTDOWN,
                    libc::EBADE,
                ],
            ),
            (Status::NoSpace, &[libc::ENOSPC, libc::EDQUOT]),
            (Status::Invalid, &[libc::EFAULT]),
        ] {
            for errno in numbers {
                assert_eq!(verdict(*errno), Verdict::Final(status), "{errno}");
            }
        }
        assert_eq!(verdict(libc::EAGAIN), Verdict::Again);
        assert_eq!(verdict(libc::EINTR), Verdict::Again);
        assert_eq!(verdict(libc::ENOMEM), Verdict::NoMemory);
        assert_eq!(verdict(libc::EOPNOTSUPP), Verdict::NotSupported);
        assert_eq!(verdict(libc::EINVAL), Verdict::Misfit);
    }
}
