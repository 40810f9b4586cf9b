//! What shards have room for in histories, and how patient they are.

use std::time::Duration;

use array::{Hedging, Lends, Patience, Room, Yield};

use super::CREDITS;

/// Few, so that a history comes to the end of them.
pub const HEDGING: Hedging = Hedging {
    burst: 8,
    reads: 50,
    looks: 400,
};

/// The room of each shard.
#[must_use]
pub fn room(reactors: usize) -> Room {
    Room {
        requests: 16,
        works: 16,
        foreign_works: CREDITS * reactors,
        asked_works: CREDITS - 1,
        tickets: 12,
        drive_requests: 200,
        home_requests: 1,
        ticket_requests: 4,
        small_buffers: 128,
        large_buffers: 128,
        // Requests are short: turns end in the middle of them.
        turn_bytes: 24 << 10,
        line_bytes: 4 << 10,
        // A look at each poll: a drive that is well has answered long before.
        patience: Patience {
            look: Duration::ZERO,
            slow: 30,
            late: 300,
            shaky: Duration::from_secs(600),
            window: Duration::from_millis(10),
            enough: 2,
            read_errors: 256,
            hedging: HEDGING,
        },
        // A history is short: decisions at every few requests.
        makes_way: Yield {
            window: Duration::from_millis(8),
            requests: 1,
        },
        // Every write of whole rows.
        lends: Lends {
            from_bytes: 1,
            piece_bytes: 512,
        },
    }
}
