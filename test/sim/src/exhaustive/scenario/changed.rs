//! Guests that change what they write while that is under way.

use array::Level;

use super::Step::{Flush, Idle, Vanish, Wait, Watch, Write};
use super::{PLAIN, Scenario};

/// Where regions are clean at the end, nothing makes parity right after the stop.
pub(super) const CHANGED: &[Scenario] = &[
    Scenario {
        name: "changed-under-a-small-write",
        changes: true,
        steps: &[Idle, Watch, Write(1, 1), Wait, Idle],
        ..PLAIN
    },
    // With four data chunks parity is changed by a difference.
    Scenario {
        name: "changed-under-a-difference",
        members: 5,
        changes: true,
        is_long: true,
        steps: &[Idle, Watch, Write(1, 1), Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "changed-under-a-whole-stripe",
        changes: true,
        steps: &[Idle, Watch, Write(0, 16), Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "changed-under-joined-writes",
        changes: true,
        steps: &[
            Idle,
            Watch,
            Write(0, 1),
            Write(1, 1),
            Write(2, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "changed-under-a-mirrored-write",
        level: Level::L1,
        members: 2,
        changes: true,
        steps: &[Idle, Watch, Write(1, 1), Wait, Flush, Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "changed-under-a-logged-write",
        strict: true,
        lost: 1,
        changes: true,
        is_long: true,
        steps: &[Idle, Watch, Write(7, 2), Wait],
        ..PLAIN
    },
    Scenario {
        name: "changed-under-a-degraded-write",
        changes: true,
        steps: &[
            Vanish(0),
            Write(0, 48),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
];
