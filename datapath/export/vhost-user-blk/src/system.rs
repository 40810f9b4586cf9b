//! The few system calls that std does not offer. The only file of the crate with `unsafe`.
#![allow(
    unsafe_code,
    reason = "an island: system calls on the sockets and events of a session"
)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// An event descriptor, eventfd(2): a kick, a call, an error, or a wake of our own.
#[derive(Clone, Debug)]
pub struct Event {
    file: Arc<File>,
}

impl Event {
    /// A new one of our own.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn new() -> io::Result<Event> {
        // SAFETY: a system call without pointers; the result is checked.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let file = owned(descriptor)?.into();
        Ok(Event {
            file: Arc::new(file),
        })
    }

    /// Takes a descriptor from a front-end. It is made non-blocking, so that a front-end that
    /// fills it does not stop a reactor; and it must be of a kind for which that holds. Who means
    /// harm can switch that back, since it is the same for all who have the descriptor, and the
    /// kernel has no write to an eventfd that never waits (docs/promises.md, *A hostile guest*).
    ///
    /// # Errors
    /// When it is a file, a directory or a device.
    pub fn from_front_end(file: File) -> io::Result<Event> {
        let kind = file.metadata()?.mode() & libc::S_IFMT;
        // An eventfd has no kind at all (anonymous inode); some platforms use pipes.
        if ![0, libc::S_IFIFO, libc::S_IFSOCK].contains(&kind) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let descriptor = file.as_raw_fd();
        // SAFETY: a system call on a descriptor that `file` keeps open, without pointers.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        checked(flags)?;
        // SAFETY: as above.
        checked(unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
        // SAFETY: as above.
        checked(unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) })?;
        Ok(Event {
            file: Arc::new(file),
        })
    }

    /// Adds one. Does not block; an event that is full is signalled already.
    pub fn signal(&self) {
        let _ = (&*self.file).write(&1u64.to_ne_bytes());
    }

    /// Takes what was added. Does not block. Whether there was anything.
    #[allow(
        clippy::must_use_candidate,
        reason = "clearing is the purpose, what was there is a detail"
    )]
    pub fn clear(&self) -> bool {
        let mut count = [0u8; 8];
        (&*self.file)
            .read(&mut count)
            .is_ok_and(|length| length > 0)
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What [`wait`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Nothing.
    #[default]
    Idle,
    /// There is something to read.
    Readable,
    /// The other side is gone; there may still be something to read.
    Gone,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until something happens.
    Endless,
    /// At most so long.
    Milliseconds(u16),
    /// Only look.
    None,
}

/// Waits until one of the descriptors is ready. A descriptor that is `None` never is.
pub(crate) fn wait<const N: usize>(
    descriptors: [Option<BorrowedFd<'_>>; N],
    patience: Patience,
) -> io::Result<[Readiness; N]> {
    poll(
        descriptors.map(|descriptor| libc::pollfd {
            // poll(2): a negative descriptor is left out.
            fd: descriptor.map_or(-1, |descriptor| descriptor.as_raw_fd()),
            events: libc::POLLIN | libc::POLLRDHUP,
            revents: 0,
        }),
        patience,
    )
}

/// Waits until `wake` is signalled, or the other side of `stream` is gone. What there is to read
/// does not count.
pub(crate) fn wait_end(wake: &Event, stream: &UnixStream) -> io::Result<[Readiness; 2]> {
    let look = |fd: BorrowedFd<'_>, events| libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let both = [
        look(wake.as_fd(), libc::POLLIN),
        look(stream.as_fd(), libc::POLLRDHUP),
    ];
    poll(both, Patience::Endless)
}

fn poll<const N: usize>(
    mut polled: [libc::pollfd; N],
    patience: Patience,
) -> io::Result<[Readiness; N]> {
    let count = libc::nfds_t::try_from(N).expect("a handful");
    let timeout = match patience {
        Patience::Endless => -1,
        Patience::Milliseconds(most) => i32::from(most),
        Patience::None => 0,
    };
    loop {
        // SAFETY: `polled` is an array of `count` entries that outlives the call.
        let result = unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) };
        match checked(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    const GONE: libc::c_short = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    Ok(polled.map(|entry| match entry.revents {
        0 => Readiness::Idle,
        events if events & GONE != 0 => Readiness::Gone,
        _ => Readiness::Readable,
    }))
}

/// `VHOST_USER_SET_BACKEND_REQ_FD` of the vhost-user protocol.
const SET_BACKEND_REQ_FD: u32 = 21;
/// Bytes of a vhost-user message's header: request, flags, size.
const HEADER_BYTES: usize = 12;
/// Descriptors that one message may carry.
const DESCRIPTORS_MAX: usize = 32;

/// The number of the next message, which is not taken; `None` when nothing has come. Of a message
/// that has not come as far as its number, or cannot be looked at: 0, which no message has.
pub(crate) fn peek_request(stream: &UnixStream) -> Option<u32> {
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, recv};
    let mut number = [0u8; 4];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut number[..], flags) {
        Ok((0, _)) | Err(Errno::WOULDBLOCK) => None,
        Ok((4, _)) => Some(u32::from_ne_bytes(number)),
        Ok(_) | Err(_) => Some(0),
    }
}

/// Looks at the next message without taking it: when it hands over the back-end's own channel,
/// a duplicate of that channel comes back.
///
/// The `vhost` crate keeps the channel to itself and cannot send the one message we need
/// ("configuration changed"). The kernel duplicates descriptors for a reader that only peeks.
pub(crate) fn peek_channel(stream: &UnixStream) -> Option<UnixStream> {
    let mut header = [0u8; HEADER_BYTES];
    // SAFETY: `header` is writable, of the length given, and outlives the call.
    let length = unsafe {
        libc::recv(
            stream.as_raw_fd(),
            header.as_mut_ptr().cast(),
            HEADER_BYTES,
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    let [a, b, c, d, ..] = header;
    let whole = usize::try_from(length).is_ok_and(|length| length == HEADER_BYTES);
    if !whole || u32::from_ne_bytes([a, b, c, d]) != SET_BACKEND_REQ_FD {
        return None;
    }
    let mut descriptors = peek_descriptors(stream).into_iter();
    match (descriptors.next(), descriptors.next()) {
        (Some(only), None) => Some(UnixStream::from(only)),
        _ => None,
    }
}

/// Duplicates of the descriptors that come with the next message.
fn peek_descriptors(stream: &UnixStream) -> Vec<OwnedFd> {
    let mut header = [0u8; HEADER_BYTES];
    let mut entry = libc::iovec {
        iov_base: header.as_mut_ptr().cast(),
        iov_len: HEADER_BYTES,
    };
    // Words, so that the control messages are aligned; twice what the descriptors need.
    let mut control = [0u64; DESCRIPTORS_MAX + 8];
    // SAFETY: `msghdr` is plain data for which zero bytes mean "nothing".
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut entry;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: all that `message` points to is writable, as long as told, and outlives the call.
    let length = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, flags) };
    let mut found = Vec::new();
    if length < 0 {
        return found;
    }
    // SAFETY: the kernel filled `message`, and `control` is still there.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !at.is_null() {
        // SAFETY: CMSG_* give null or a whole header inside `control`.
        let control_header = unsafe { *at };
        let is_rights = (control_header.cmsg_level, control_header.cmsg_type)
            == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        if is_rights {
            // SAFETY: computes a length only.
            let head = usize::try_from(unsafe { libc::CMSG_LEN(0) }).expect("a few bytes");
            let count = (control_header.cmsg_len - head) / size_of::<RawFd>();
            // SAFETY: as for the header; gives the first byte after it.
            let data = unsafe { libc::CMSG_DATA(at) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel wrote `count` descriptors from `data` on.
                let descriptor = unsafe { data.wrapping_add(index).read_unaligned() };
                found.extend(owned(descriptor));
            }
        }
        // SAFETY: `at` lies in `control`, which `message` describes.
        at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
    }
    found
}

/// Sends all of `bytes`, if there is room for them now. A front-end that does not read must not
/// stop whoever has something to say, and whether the socket blocks is not for us to decide: the
/// front-end may have a handle of our end, and switch it.
pub(crate) fn send_now(stream: &UnixStream, bytes: &[u8]) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (descriptor, start) = (stream.as_raw_fd(), bytes.as_ptr().cast());
    // SAFETY: `bytes` is readable, as long as told, and outlives the call.
    let sent = unsafe { libc::send(descriptor, start, bytes.len(), flags) };
    usize::try_from(sent).is_ok_and(|sent| sent == bytes.len())
}

/// Memory in a file without a name, of a size that nobody can change any more.
///
/// # Errors
/// When the operating system refuses.
pub(crate) fn sealed_memory(bytes: u64) -> io::Result<File> {
    let name = c"inflight";
    // SAFETY: `name` is a zero-terminated string.
    let descriptor =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    let file: File = owned(descriptor)?.into();
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a system call on a descriptor that `file` keeps open, without pointers.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    checked(descriptor)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::sock_ctrl_msg::ScmSocket;

    #[test]
    fn a_full_event_does_not_block() {
        let event = Event::new().unwrap();
        let full = u64::MAX - 1;
        (&*event.file).write_all(&full.to_ne_bytes()).unwrap();
        event.signal();
        assert!(event.clear());
        assert!(!event.clear());
    }

    #[test]
    fn a_blocking_event_of_a_front_end_does_not_block_us() {
        // SAFETY: a system call without pointers.
        let descriptor = unsafe { libc::eventfd(0, 0) };
        let event = Event::from_front_end(owned(descriptor).unwrap().into()).unwrap();
        assert!(!event.clear());
        event.signal();
        assert!(event.clear());
    }

    #[test]
    fn a_file_is_no_event() {
        let file = tempfile::tempfile().unwrap();
        assert!(Event::from_front_end(file).is_err());
        assert!(Event::from_front_end(File::open("/dev/zero").unwrap()).is_err());
    }

    #[test]
    fn the_channel_is_seen_and_still_delivered() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (channel, other_end) = UnixStream::pair().unwrap();
        assert!(peek_channel(&ours).is_none());
        let mut header = Vec::new();
        for word in [SET_BACKEND_REQ_FD, 1, 0] {
            header.extend(word.to_ne_bytes());
        }
        theirs
            .send_with_fd(&header[..], channel.as_raw_fd())
            .unwrap();
        let mut peeked = peek_channel(&ours).unwrap();
        peeked.write_all(b"hello").unwrap();
        let mut heard = [0u8; 5];
        (&other_end).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        let mut taken = [0u8; 64];
        let (length, file) = ours.recv_with_fd(&mut taken).unwrap();
        assert_eq!((length, file.is_some()), (12, true));
        assert!(peek_channel(&ours).is_none());
    }

    #[test]
    fn other_messages_with_descriptors_are_left_alone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let header = [12u8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0];
        theirs.send_with_fd(&header[..], ours.as_raw_fd()).unwrap();
        assert!(peek_channel(&ours).is_none());
    }

    #[test]
    fn the_number_of_a_message_is_seen_when_all_of_it_is_there() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(peek_request(&ours), None);
        let number = 5u32.to_ne_bytes();
        (&theirs).write_all(&number[..3]).unwrap();
        assert_eq!(peek_request(&ours), Some(0));
        (&theirs).write_all(&number[3..]).unwrap();
        assert_eq!(peek_request(&ours), Some(5));
        let mut taken = [0u8; 4];
        (&ours).read_exact(&mut taken).unwrap();
        drop(theirs);
        assert_eq!(peek_request(&ours), None);
    }

    #[test]
    fn the_end_of_a_connection_is_seen_even_behind_unread_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let look = || wait([Some(ours.as_fd()), None], Patience::None).unwrap()[0];
        assert_eq!(look(), Readiness::Idle);
        (&theirs).write_all(b"x").unwrap();
        assert_eq!(look(), Readiness::Readable);
        drop(theirs);
        assert_eq!(look(), Readiness::Gone);
    }

    #[test]
    fn nothing_is_sent_where_there_is_no_room_or_nobody() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(send_now(&ours, b"hello"));
        let mut heard = [0u8; 5];
        (&theirs).read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        while send_now(&ours, &[0; 4096]) {}
        drop(theirs);
        assert!(!send_now(&ours, b"hello"), "and there is no signal");
    }

    #[test]
    fn sealed_memory_keeps_its_size() {
        let file = sealed_memory(8192).unwrap();
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(16384).is_err());
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }
}
