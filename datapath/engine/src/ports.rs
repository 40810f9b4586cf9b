//! The world as one shard sees it in production: the reactor's drives, inboxes and clock.

use crate::shares::Shares;
use array::{Event, Help, Io, MemberRequest, Message, Times};
use block::{Completion, Cookie, Full};
use drive::{DriveRequest, Port};
use queues::Post;
use units::{ArrayIndex, DriveIndex, Instant, ReactorIndex};

/// Credits to each reactor that work may not use.
const INBOX_RESERVE: usize = 4 * units::limits::ARRAYS_MAX;
/// Those that it may.
pub(crate) const INBOX_PIECES: usize = units::limits::INBOX_MESSAGES - INBOX_RESERVE;

/// A message between reactors: for which array, and what.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) array: ArrayIndex,
    pub(crate) message: Message,
}

/// What a completion of a member request carries: which array, and the shard's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberCookie {
    pub(crate) array: ArrayIndex,
    pub(crate) slot: u32,
}

impl MemberCookie {
    pub(crate) fn pack(self) -> Cookie {
        Cookie(u64::from(self.array.0) << 32 | u64::from(self.slot))
    }

    pub(crate) fn unpack(cookie: Cookie) -> MemberCookie {
        let array = u16::try_from(cookie.0 >> 32).expect("packed by us");
        let slot = u32::try_from(cookie.0 & u64::from(u32::MAX)).expect("masked");
        MemberCookie {
            array: ArrayIndex(array),
            slot,
        }
    }
}

/// See the module. Borrowed anew for each call of a shard.
pub(crate) struct Ports<'core> {
    pub(crate) array: ArrayIndex,
    /// When the turn began: a look at the clock costs as much as a tenth of a read.
    pub(crate) now: Instant,
    pub(crate) port: &'core mut Port,
    pub(crate) shares: &'core mut Shares,
    pub(crate) post: &'core mut Post<Envelope>,
    pub(crate) completions: &'core mut Vec<Completion>,
    pub(crate) events: &'core mut Vec<(ArrayIndex, Event)>,
}

impl Io for Ports<'_> {
    fn now(&self) -> Instant {
        self.now
    }

    fn drive_room(&self) -> usize {
        self.shares.drives.room(self.array, self.port.room())
    }

    // Inlined, or the request is written field by field and read again in larger words, which waits
    // until the fields are in the cache.
    #[inline(always)]
    fn drive(&mut self, request: MemberRequest) {
        let slot = u32::try_from(request.cookie.0).expect("a slot of the shard");
        let request = DriveRequest {
            drive: request.drive,
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            segments: request.segments,
            cookie: MemberCookie {
                array: self.array,
                slot,
            }
            .pack(),
        };
        self.port
            .submit(request)
            .expect("the shard looked at the room");
        self.shares.drives.taken(self.array);
    }

    fn keeps_all(&self, drive: DriveIndex) -> bool {
        self.port.keeps_all(drive)
    }

    fn times(&self, drive: DriveIndex) -> Option<Times<'_>> {
        let counters = self.port.counters(drive)?;
        Some(Times {
            counts: [counters.reads.requests, counters.writes.requests],
            took: [&counters.read_times, &counters.write_times],
        })
    }

    fn ask(&mut self, to: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        // All arrays share the inboxes: their work must leave room for the messages that let
        // work end (maps, failures), or two arrays could wait for each other. And what one array
        // has under way there, perhaps for as long as it waits for members, must leave room for
        // the others'.
        let is_work = matches!(message, Message::Work(_) | Message::Dirty { .. });
        let pieces = self.shares.pieces(to);
        let room = self.post.credits(to).saturating_sub(INBOX_RESERVE);
        if is_work && pieces.room(self.array, room) == 0 {
            return Err(Full(message));
        }
        // Whoever is asked for help answers at once, whatever hangs.
        if matches!(message, Message::Lend(_)) && room == 0 {
            return Err(Full(message));
        }
        let envelope = Envelope {
            array: self.array,
            message,
        };
        let sent = self.post.request(to, envelope);
        if is_work && sent.is_ok() {
            pieces.taken(self.array);
        }
        sent.map_err(|full| Full(full.0.message))
    }

    fn help(&mut self) -> Help {
        let post = &self.post;
        let helpers = &mut self.shares.helpers;
        helpers.find(|reactor| post.is_idle(reactor))
    }

    fn show(&mut self) {
        self.post.publish();
    }

    fn reply(&mut self, to: ReactorIndex, message: Message) {
        self.post.reply(
            to,
            Envelope {
                array: self.array,
                message,
            },
        );
    }

    #[inline]
    fn complete(&mut self, completion: Completion) {
        self.completions.push(completion);
    }

    fn event(&mut self, event: Event) {
        self.events.push((self.array, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_cookies_come_back_as_they_went() {
        for (array, slot) in [(0, 0), (63, u32::MAX), (u16::MAX, 7)] {
            let cookie = MemberCookie {
                array: ArrayIndex(array),
                slot,
            };
            assert_eq!(MemberCookie::unpack(cookie.pack()), cookie);
        }
    }
}
