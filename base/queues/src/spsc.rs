//! A bounded ring with one sender and one receiver.
//!
//! Both indices run free and wrap; a slot is `index & mask`. The sender owns the slots from `head`
//! round to `tail`, the receiver those from `head` to the `tail` it was shown. Each side keeps its
//! own index and the last one it saw of the other, so that a cache line moves between the cores
//! once per batch and not once per message.
//!
//! ```
//! let (mut sender, mut receiver) = queues::spsc::channel(2);
//! sender.push("first").unwrap();
//! assert_eq!(receiver.pop(), None, "not published yet");
//! sender.publish();
//! assert_eq!(receiver.pop(), Some("first"));
//! ```

use std::fmt;
use std::mem::MaybeUninit;

use crate::Full;
use crate::sync::{Arc, AtomicUsize, Ordering, Padded, UnsafeCell};

struct Ring<T> {
    /// The first slot the receiver has not taken. Written by the receiver only.
    head: Padded<AtomicUsize>,
    /// The first slot the sender has not published. Written by the sender only.
    tail: Padded<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by one side at a time (see the head of the file), so a message moves
// from one thread to the other and is never shared: `T: Send` is what that needs.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The number of slots is a power of two (`channel`).
        &self.slots[index & (self.slots.len() - 1)]
    }

    /// # Safety
    /// The caller owns the slot of `index`, it holds a message, and nobody takes it again.
    unsafe fn take(&self, index: usize) -> T {
        self.slot(index).with(|slot| {
            // SAFETY: the caller's promise; the address is that of a live slot.
            let slot = unsafe { slot.read() };
            // SAFETY: the caller's promise: the slot holds a message.
            unsafe { slot.assume_init() }
        })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Acquire);
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != tail {
            // SAFETY: both sides are gone, so all slots are ours; `head..tail` hold messages.
            drop(unsafe { self.take(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// The side that sends.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    capacity: usize,
    /// The next slot to fill.
    tail: usize,
    /// The last `tail` that the receiver was shown.
    published: usize,
    /// The last `head` that was read.
    head_seen: usize,
}

/// The side that receives.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// The next slot to take.
    head: usize,
    /// The last `tail` that was read.
    tail_seen: usize,
}

/// A ring with room for `capacity` messages.
///
/// # Panics
/// When `capacity` is zero.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel_from(capacity, 0)
}

/// A ring whose indices begin at `index`, so that a test can let them wrap.
pub(crate) fn channel_from<T: Send>(capacity: usize, index: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a ring without room");
    let slots = (0..capacity.next_power_of_two())
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let ring = Arc::new(Ring {
        head: Padded(AtomicUsize::new(index)),
        tail: Padded(AtomicUsize::new(index)),
        slots,
    });
    let sender = Sender {
        ring: Arc::clone(&ring),
        capacity,
        tail: index,
        published: index,
        head_seen: index,
    };
    let receiver = Receiver {
        ring,
        head: index,
        tail_seen: index,
    };
    (sender, receiver)
}

impl<T> Sender<T> {
    /// Puts `message` into the ring; the receiver sees it after [`Sender::publish`].
    ///
    /// # Errors
    /// [`Full`] hands the message back when `capacity` messages are not received yet.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), Full<T>> {
        if self.tail.wrapping_sub(self.head_seen) >= self.capacity {
            // Acquire: the receiver has read the slots before `head`, so they may be overwritten.
            self.head_seen = self.ring.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) >= self.capacity {
                return Err(Full(message));
            }
        }
        self.ring.slot(self.tail).with_mut(|slot| {
            // SAFETY: the slot lies outside `head..tail`, so it is the sender's, and there is one
            // sender (`&mut self`); what it held was taken by the receiver.
            unsafe { slot.write(MaybeUninit::new(message)) };
        });
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Shows the receiver all messages pushed so far.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            // Release: the messages before `tail` are written.
            self.ring.tail.0.store(self.tail, Ordering::Release);
            self.published = self.tail;
        }
    }
}

impl<T> Receiver<T> {
    /// The oldest published message.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            // Acquire: pairs with `publish`, so that the messages before `tail` are seen whole.
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        // SAFETY: the slot lies in `head..tail`, so it holds a message and is the receiver's; there
        // is one receiver (`&mut self`), and `head` moves on below.
        let message = unsafe { self.ring.take(self.head) };
        self.head = self.head.wrapping_add(1);
        // Release: the slot is read before the sender may overwrite it.
        self.ring.head.0.store(self.head, Ordering::Release);
        Some(message)
    }
}

impl<T> Drop for Sender<T> {
    /// Publishes what is pushed, so that it is received or dropped, and not forgotten.
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("capacity", &self.capacity)
            .field("tail", &self.tail)
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::thread;

    #[test]
    fn messages_come_out_in_order_over_the_wrap_of_the_indices() {
        for capacity in 1..=5 {
            let (mut sender, mut receiver) = channel_from(capacity, usize::MAX - 3);
            for round in 0..10 {
                for message in 0..capacity {
                    assert_eq!(sender.push((round, message)), Ok(()));
                }
                assert_eq!(sender.push((round, 99)), Err(Full((round, 99))));
                assert_eq!(receiver.pop(), None, "seen before it was published");
                sender.publish();
                for message in 0..capacity {
                    assert_eq!(receiver.pop(), Some((round, message)));
                }
                assert_eq!(receiver.pop(), None);
            }
        }
    }

    /// A message that counts how many of it live.
    struct Counted(#[allow(dead_code, reason = "counts by being there")] Rc<()>);
    // SAFETY: the test has one thread.
    unsafe impl Send for Counted {}

    #[test]
    fn messages_never_received_are_dropped_once() {
        for (pushed, published, popped) in [(3, 0, 0), (3, 2, 1), (3, 3, 3), (2, 2, 0)] {
            let alive = Rc::new(());
            let (mut sender, mut receiver) = channel(4);
            for index in 0..pushed {
                assert!(sender.push(Counted(Rc::clone(&alive))).is_ok());
                if index + 1 == published {
                    sender.publish();
                }
            }
            for _ in 0..popped {
                drop(receiver.pop().expect("published"));
            }
            assert_eq!(Rc::strong_count(&alive), 1 + pushed - popped);
            drop(sender);
            drop(receiver);
            assert_eq!(Rc::strong_count(&alive), 1);
        }
    }

    #[test]
    fn every_message_reaches_the_other_thread_in_order() {
        let messages: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let (mut sender, mut receiver) = channel(7);
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..messages {
                    let mut message = Box::new(number);
                    while let Err(Full(back)) = sender.push(message) {
                        message = back;
                        sender.publish();
                        thread::yield_now();
                    }
                    if number % 3 == 0 {
                        sender.publish();
                    }
                }
            });
            let mut next = 0;
            while next < messages {
                match receiver.pop() {
                    Some(message) => {
                        assert_eq!(*message, next);
                        next += 1;
                    }
                    None => thread::yield_now(),
                }
            }
        });
    }
}
