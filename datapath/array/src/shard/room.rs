//! How much room a shard has, and how long its turns are.

use units::limits::{
    ARRAY_DRIVE_REQUESTS_MAX, ARRAY_REQUESTS_MAX, ARRAY_TICKETS_MAX, ARRAY_WORKS_MAX,
    INBOX_MESSAGES, SHARD_LINE_BYTES, SHARD_TURN_BYTES,
};

use super::late::Patience;
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
            small_buffers: 4096,
            large_buffers: 512,
            turn_bytes: SHARD_TURN_BYTES,
            line_bytes: SHARD_LINE_BYTES,
            patience: Patience::default(),
            makes_way: Yield::default(),
        }
    }
}
