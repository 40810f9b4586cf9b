//! How much room a shard has, and how long its turns are.

use units::limits::{
    ARRAY_DRIVE_REQUESTS_MAX, ARRAY_REQUESTS_MAX, ARRAY_TICKETS_MAX, ARRAY_WORKS_MAX,
    GROUP_MEMBERS_MAX, INBOX_MESSAGES, LARGE_BUFFER_BYTES, SHARD_LINE_BYTES, SHARD_TURN_BYTES,
    SMALL_BUFFER_BYTES,
};

use super::late::Patience;
use super::lending::Lends;
use crate::throttle::Yield;

/// How much room a shard has. The defaults serve production; a simulator takes less.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Requests of this reactor.
    pub requests: usize,
    /// Pieces of this reactor's own requests worked on as owner.
    pub works: usize,
    /// Pieces that other reactors may send: the sum of their credits here.
    pub foreign_works: usize,
    /// Pieces under way at any one other reactor: fewer than the credits there, or work that
    /// waits for a membership change takes the room of the messages that bring it about.
    pub asked_works: usize,
    /// Tickets.
    pub tickets: usize,
    /// Member requests in flight.
    pub drive_requests: usize,
    /// Of these, what all but the array's own records leave to it.
    pub home_requests: usize,
    /// And what reads that go straight to drives leave to tickets besides, at most: they leave
    /// what the widest ticket of the array may ask for at once.
    pub ticket_requests: usize,
    /// Transfer buffers of 4 KiB.
    pub small_buffers: usize,
    /// Transfer buffers of 64 KiB.
    pub large_buffers: usize,
    /// Bytes of requests for which tickets are made in one turn, at least.
    pub turn_bytes: u32,
    /// And of one volume, before the next comes.
    pub line_bytes: u32,
    /// How long drives may take.
    pub patience: Patience,
    /// How a background pass makes way for requests.
    pub makes_way: Yield,
    /// Which tickets others help with.
    pub lends: Lends,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            requests: ARRAY_REQUESTS_MAX,
            works: ARRAY_WORKS_MAX,
            foreign_works: INBOX_MESSAGES * 8,
            asked_works: INBOX_MESSAGES - 8,
            tickets: ARRAY_TICKETS_MAX,
            drive_requests: ARRAY_DRIVE_REQUESTS_MAX,
            home_requests: HOME_REQUESTS,
            ticket_requests: BANDS_MAX * GROUP_MEMBERS_MAX,
            small_buffers: 4096,
            large_buffers: 512,
            turn_bytes: SHARD_TURN_BYTES,
            line_bytes: SHARD_LINE_BYTES,
            patience: Patience::default(),
            makes_way: Yield::default(),
            lends: Lends::default(),
        }
    }
}

/// Records, blocks of the region map and looks whether members are there; a few of each may hang
/// at one drive.
const HOME_REQUESTS: usize = 32;
/// As many parts as the read of a chunk of 64 KiB is tried again in.
const RETRY_REQUESTS: usize = 16;
/// Bands of a ticket, each of which may ask all members of its group.
const BANDS_MAX: usize = 3;

/// Member requests that others leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// To the array's own records.
    pub(super) to_home: usize,
    /// To these and to tickets.
    pub(super) to_tickets: usize,
    /// To these and to reads that are tried again: they were let in long ago, and what is to be
    /// reconstructed waits behind them.
    pub(super) to_retries: usize,
}

impl Kept {
    /// In so much room, by a group of so many members.
    pub(super) fn new(room: &Room, group_members: usize) -> Kept {
        let widest = BANDS_MAX * group_members;
        let to_tickets = room.home_requests + room.ticket_requests.min(widest);
        Kept {
            to_home: room.home_requests,
            to_tickets,
            to_retries: to_tickets + room.ticket_requests.min(RETRY_REQUESTS),
        }
    }
}

/// Transfer buffers of either size that the widest ticket may take.
pub(crate) const BUFFERS_MIN: usize = 2 * GROUP_MEMBERS_MAX;
/// Of all bytes of buffers, so many thirds are in large ones.
const LARGE_THIRDS: u64 = 2;

impl Room {
    /// Bytes of transfer buffers with which a shard can do all it may be asked for.
    pub const BUFFER_BYTES_MIN: u64 = buffer_bytes(BUFFERS_MIN, BUFFERS_MIN);

    /// Bytes of its transfer buffers.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        buffer_bytes(self.small_buffers, self.large_buffers)
    }

    /// The same with fewer transfer buffers, so that they take `bytes` at the most, or
    /// [`Room::BUFFER_BYTES_MIN`] if that is more.
    #[must_use]
    pub fn within(self, bytes: u64) -> Room {
        let bytes = bytes.clamp(Room::BUFFER_BYTES_MIN, self.buffer_bytes());
        let fit = |bytes: u64, each: usize| usize::try_from(bytes).expect("a few MiB") / each;
        let large = fit(bytes / 3 * LARGE_THIRDS, LARGE_BUFFER_BYTES);
        let large_buffers = large.clamp(BUFFERS_MIN, self.large_buffers);
        let rest = bytes - buffer_bytes(0, large_buffers);
        let small_buffers = fit(rest, SMALL_BUFFER_BYTES).min(self.small_buffers);
        Room {
            small_buffers,
            large_buffers,
            ..self
        }
    }
}

const fn buffer_bytes(small: usize, large: usize) -> u64 {
    (small * SMALL_BUFFER_BYTES + large * LARGE_BUFFER_BYTES) as u64
}

#[cfg(test)]
mod tests {
    //! Fewer buffers, and never too few.

    use units::bytes_u64;

    use super::*;

    #[test]
    fn buffers_fit_what_there_is() {
        let usual = Room::default();
        for bytes in (0..=usual.buffer_bytes() + (4 << 20)).step_by(100_000) {
            let room = usual.within(bytes);
            let most = bytes.max(Room::BUFFER_BYTES_MIN);
            assert!(room.buffer_bytes() <= most, "{bytes}: {room:?}");
            assert!(room.small_buffers.min(room.large_buffers) >= BUFFERS_MIN);
            // Next to nothing of it is left over.
            let used = most.min(usual.buffer_bytes()) - room.buffer_bytes();
            assert!(
                used < bytes_u64(LARGE_BUFFER_BYTES),
                "{bytes}: {used} unused"
            );
        }
        let all = usual.within(u64::MAX);
        let counts = |room: Room| (room.small_buffers, room.large_buffers);
        assert_eq!(counts(all), counts(usual));
    }
}
