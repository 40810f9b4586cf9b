//! The mesh: every reactor can ask every other one, and answers are never refused.
//!
//! One ring per ordered pair carries both the requests from A to B and A's replies to B. A may have
//! `capacity` requests at B without having received the reply. Each ring has room for twice that:
//!
//! * of the requests in the ring from A to B, A has not received the reply: at most `capacity`;
//! * of the replies in it, B has not received them, so B cannot have asked again on their credit:
//!   at most `capacity`.
//!
//! A slot is free in the eyes of its sender by the time the credit is, because the receiver frees
//! the slot before it publishes what the credit depends on. So a request needs a credit only, a
//! reply needs nothing, and two reactors that both are full still answer each other.

use std::fmt;
use std::sync::Arc;

use units::ReactorIndex;
use units::limits::REACTORS_MAX;

use crate::Full;
use crate::parking::{Door, Park, ReactorSet, Wake};
use crate::spsc::{self, Receiver, Sender};
use crate::sync::{AtomicU32, Ordering, Padded, fence};

/// The largest message. One of up to 56 bytes fills a single cache line.
pub const MESSAGE_BYTES_MAX: usize = 64;

/// A message on its way.
#[repr(C, align(64))]
struct Entry<T> {
    message: T,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Takes a credit of the sender.
    Request,
    /// Gives the receiver its credit back.
    Reply,
}

/// What a reactor keeps of one other.
struct Peer<T> {
    outgoing: Sender<Entry<T>>,
    incoming: Receiver<Entry<T>>,
    /// Requests that may still be sent.
    credits: usize,
    /// Requests received and not replied to.
    owed: usize,
}

/// One reactor's door to all others: it asks, answers, receives, and parks.
///
/// ```
/// use std::sync::Arc;
/// use queues::{mesh, NoWake};
/// use units::ReactorIndex;
///
/// let wakers = (0..2).map(|_| Arc::new(NoWake) as _).collect();
/// let mut posts = mesh::<u64>(wakers, 8);
/// posts[0].request(ReactorIndex(1), 20).unwrap();
/// posts[0].publish();
/// let (asker, number) = posts[1].receive().unwrap();
/// posts[1].reply(asker, number + 1);
/// posts[1].publish();
/// assert_eq!(posts[0].receive(), Some((ReactorIndex(1), 21)));
/// ```
pub struct Post<T> {
    index: usize,
    doors: Arc<[Padded<Door>]>,
    /// By reactor: 1 while it turns with nothing to do. A hint, apart from what senders write.
    idle: Arc<[Padded<AtomicU32>]>,
    is_idle: bool,
    /// By reactor; none at our own place.
    peers: Vec<Option<Peer<T>>>,
    /// Senders whose inbox may hold messages.
    ready: ReactorSet,
    /// Receivers with messages not published.
    unpublished: ReactorSet,
    /// The sender that is looked at next.
    next: usize,
}

/// A post for each of the reactors that `wakers` wake; each may have `capacity` requests at each
/// other one.
///
/// # Panics
/// Without reactors, with more than `REACTORS_MAX`, or with no capacity. A message of more than
/// [`MESSAGE_BYTES_MAX`] does not compile.
#[must_use]
pub fn mesh<T: Send>(wakers: Vec<Arc<dyn Wake>>, capacity: usize) -> Vec<Post<T>> {
    const {
        assert!(
            size_of::<T>() <= MESSAGE_BYTES_MAX,
            "a message is one cache line"
        );
    };
    let reactors = wakers.len();
    assert!(
        (1..=REACTORS_MAX).contains(&reactors),
        "{reactors} reactors of 1..={REACTORS_MAX}"
    );
    assert!(capacity > 0, "a mesh without credits");
    let doors: Arc<[Padded<Door>]> = wakers
        .into_iter()
        .map(|waker| Padded(Door::new(waker)))
        .collect();
    let idle: Arc<[Padded<AtomicU32>]> = (0..reactors).map(|_| Padded(AtomicU32::new(0))).collect();
    let mut posts: Vec<Post<T>> = (0..reactors)
        .map(|index| Post {
            index,
            doors: Arc::clone(&doors),
            idle: Arc::clone(&idle),
            is_idle: false,
            peers: (0..reactors).map(|_| None).collect(),
            ready: ReactorSet::default(),
            unpublished: ReactorSet::default(),
            next: 0,
        })
        .collect();
    for high in 1..reactors {
        for low in 0..high {
            let (up, from_low) = spsc::channel(2 * capacity);
            let (down, from_high) = spsc::channel(2 * capacity);
            posts[low].peers[high] = Some(Peer::new(up, from_high, capacity));
            posts[high].peers[low] = Some(Peer::new(down, from_low, capacity));
        }
    }
    posts
}

impl<T> Peer<T> {
    fn new(outgoing: Sender<Entry<T>>, incoming: Receiver<Entry<T>>, credits: usize) -> Peer<T> {
        Peer {
            outgoing,
            incoming,
            credits,
            owed: 0,
        }
    }

    fn push(&mut self, message: T, kind: Kind) {
        let pushed = self.outgoing.push(Entry { message, kind });
        assert!(pushed.is_ok(), "the ring has room for what credits allow");
    }
}

impl<T> Post<T> {
    /// Sends a request; the other side sees it after [`Post::publish`].
    ///
    /// # Errors
    /// [`Full`] hands the message back when `capacity` replies are still to come from there. One of
    /// them wakes us if we park.
    ///
    /// # Panics
    /// When `to` is not another reactor of the mesh: what stays on a reactor needs no message.
    #[inline]
    pub fn request(&mut self, to: ReactorIndex, message: T) -> Result<(), Full<T>> {
        let peer = self.peer(to);
        if peer.credits == 0 {
            return Err(Full(message));
        }
        peer.credits -= 1;
        peer.push(message, Kind::Request);
        self.unpublished.add(to.at());
        Ok(())
    }

    /// Sends the reply to a request received from `to`. Room for it was reserved by the request.
    ///
    /// # Panics
    /// When every request received from `to` has had its reply.
    #[inline]
    pub fn reply(&mut self, to: ReactorIndex, message: T) {
        let peer = self.peer(to);
        assert!(peer.owed > 0, "a reply to {to} without a request");
        peer.owed -= 1;
        peer.push(message, Kind::Reply);
        self.unpublished.add(to.at());
    }

    /// The next message and who sent it, from each sender in turn. A reply returns its credit.
    #[inline]
    pub fn receive(&mut self) -> Option<(ReactorIndex, T)> {
        let mut looked = false;
        loop {
            let Some(sender) = self.ready.first_from(self.next) else {
                // A round over the senders is done: only now others may join the next one, and
                // always now, so that a busy sender cannot keep a quiet one out.
                if looked {
                    return None;
                }
                looked = true;
                self.next = 0;
                self.ready.join(self.doors[self.index].0.take_filled());
                continue;
            };
            let peer = self.peers[sender].as_mut().expect("only others mark us");
            let Some(Entry { message, kind }) = peer.incoming.pop() else {
                // What is published from now on sets the bit again.
                self.ready.remove(sender);
                continue;
            };
            match kind {
                Kind::Request => peer.owed += 1,
                Kind::Reply => peer.credits += 1,
            }
            self.next = sender + 1;
            return Some((ReactorIndex::from_at(sender), message));
        }
    }

    /// Shows the others what was sent since the last call and wakes those that are parked. Once per
    /// turn.
    #[inline]
    pub fn publish(&mut self) {
        if self.unpublished.is_empty() {
            return;
        }
        let unpublished = std::mem::take(&mut self.unpublished);
        for receiver in unpublished.iter() {
            let peer = self.peers[receiver].as_mut().expect("marked by sending");
            peer.outgoing.publish();
            self.doors[receiver].0.mark(self.index);
        }
        // Between our marks and the look at the receivers' state; see `parking`.
        fence(Ordering::SeqCst);
        for receiver in unpublished.iter() {
            self.doors[receiver].0.wake_if_parked();
        }
    }

    /// Publishes, and says whether this reactor may sleep. After `Parked` call [`Post::unpark`]
    /// when the sleep is over, whatever ended it.
    pub fn park(&mut self) -> Park {
        self.publish();
        self.tell_idle(false);
        if self.ready.is_empty() {
            self.doors[self.index].0.park()
        } else {
            Park::MailWaiting
        }
    }

    /// Says that this reactor runs again, so that nobody spends a system call on waking it.
    pub fn unpark(&mut self) {
        self.doors[self.index].0.unpark();
    }

    /// Says whether this reactor turns with nothing to do: others may ask it for help. One that
    /// parks does not turn.
    #[inline]
    pub fn tell_idle(&mut self, idle: bool) {
        if idle != self.is_idle {
            self.is_idle = idle;
            self.idle[self.index]
                .0
                .store(u32::from(idle), Ordering::Relaxed);
        }
    }

    /// Whether a reactor was awake with nothing to do when it said so last. It may be busy by now,
    /// or asleep.
    #[inline]
    #[must_use]
    pub fn is_idle(&self, reactor: ReactorIndex) -> bool {
        self.idle[reactor.at()].0.load(Ordering::Relaxed) != 0
    }

    /// How many requests may be sent to `to` before [`Full`].
    ///
    /// # Panics
    /// When `to` is not another reactor of the mesh.
    #[must_use]
    pub fn credits(&self, to: ReactorIndex) -> usize {
        self.peers[to.at()]
            .as_ref()
            .expect("a reactor has no ring to itself")
            .credits
    }

    /// Which reactor this post belongs to.
    #[must_use]
    pub fn index(&self) -> ReactorIndex {
        ReactorIndex::from_at(self.index)
    }

    /// How many reactors the mesh has.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.peers.len()
    }

    fn peer(&mut self, reactor: ReactorIndex) -> &mut Peer<T> {
        self.peers[reactor.at()]
            .as_mut()
            .expect("a reactor has no ring to itself")
    }
}

impl<T> fmt::Debug for Post<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post")
            .field("index", &self.index)
            .field("reactors", &self.peers.len())
            .field("ready", &self.ready)
            .field("unpublished", &self.unpublished)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
