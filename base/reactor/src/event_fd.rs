//! The wake-up of a reactor: a counter in the kernel that a sleep can wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use queues::Wake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};

/// An eventfd that never blocks; readable from a wake-up until it is drained.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, without a wake-up.
    ///
    /// # Errors
    /// What the kernel says, such as that there are too many open files.
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        match retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes())) {
            // Again: the counter is at its end, so it is readable all the more.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => panic!("an eventfd of ours takes a count: {error}"),
        }
    }

    /// Takes all wake-ups so far; says whether there were any.
    pub fn drain(&self) -> bool {
        match retry_on_intr(|| rustix::io::read(&self.0, &mut [0; 8])) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false,
            Err(error) => panic!("an eventfd of ours gives its count: {error}"),
        }
    }

    /// Waits for a wake-up, at most for `limit`, and leaves it there; says whether there is one. A
    /// signal may end the wait early.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        // A limit beyond what the kernel can count is none.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut descriptors, limit.as_ref()) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(error) => panic!("one descriptor of ours can be polled: {error}"),
        }
    }
}

impl Wake for EventFd {
    fn wake(&self) {
        EventFd::wake(self);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_kept_until_they_are_drained() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain());
        assert!(!event.wait(Some(Duration::ZERO)));
        event.wake();
        event.wake();
        assert!(event.wait(None));
        assert!(event.wait(None), "waiting takes nothing");
        assert!(event.drain());
        assert!(!event.drain(), "all are taken at once");
        assert!(!event.wait(Some(Duration::from_millis(1))));
    }

    #[test]
    fn a_counter_at_its_end_is_no_error() {
        let event = EventFd::new().unwrap();
        let most = (u64::MAX - 1).to_ne_bytes();
        assert_eq!(rustix::io::write(&event, &most), Ok(8));
        event.wake();
        assert!(event.wait(None) && event.drain());
    }

    #[test]
    fn an_endless_limit_is_none() {
        let event = EventFd::new().unwrap();
        event.wake();
        assert!(event.wait(Some(Duration::MAX)));
    }
}
