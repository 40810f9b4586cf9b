//! What a shard may use.

use std::time::Duration;

use array::{Hedging, Lends, Patience, Room, Yield};

use super::{IN_FLIGHT, LOOK};

/// As much as a shard needs at least.
pub(in crate::exhaustive) fn room() -> Room {
    Room {
        requests: IN_FLIGHT,
        works: IN_FLIGHT,
        foreign_works: 1,
        asked_works: 1,
        tickets: IN_FLIGHT,
        drive_requests: 200,
        home_requests: 0,
        ticket_requests: 0,
        small_buffers: 128,
        large_buffers: 128,
        turn_bytes: 24 << 10,
        line_bytes: 4 << 10,
        // A drive that answers late is late by this model's order only, or hangs.
        patience: Patience {
            look: LOOK,
            slow: 2,
            late: 1_000_000,
            shaky: Duration::ZERO,
            window: Duration::from_secs(3600),
            enough: 1_000_000,
            read_errors: 256,
            hedging: Hedging::default(),
        },
        makes_way: Yield::default(),
        lends: Lends::default(),
    }
}
