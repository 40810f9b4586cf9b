//! New drives in the places of members that are out: requests, failures and errors beside the
//! rebuild.

use array::Level;

use super::Step::{
    Fail, Filled, Flush, Idle, Passes, Read, Replace, Return, Vanish, Wait, Watch, Write,
};
use super::{PLAIN, Scenario};

/// A new drive is the next after all that were there: the first one of three members is drive 3.
pub(super) const REPLACED: &[Scenario] = &[
    Scenario {
        name: "replaced-under-writes",
        steps: &[
            Idle,
            Fail(1),
            Write(1, 1),
            Wait,
            Watch,
            Replace(1),
            Write(0, 1),
            Write(17, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "replaced-and-read",
        steps: &[
            Idle,
            Fail(1),
            Watch,
            Replace(1),
            Read(0, 48),
            Wait,
            Write(9, 2),
            Read(32, 16),
            Filled(1, 1),
            Write(1, 1),
            Flush,
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "replaced-mirror",
        level: Level::L1,
        members: 2,
        steps: &[
            Idle,
            Vanish(0),
            Write(1, 1),
            Wait,
            Watch,
            Replace(0),
            Write(0, 1),
            Write(17, 1),
            Wait,
            Read(0, 24),
            Wait,
            Flush,
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "new-drive-is-replaced",
        is_long: true,
        steps: &[
            Idle,
            Fail(1),
            Watch,
            Replace(1),
            Filled(1, 1),
            Write(17, 1),
            Vanish(3),
            Wait,
            Replace(1),
            Write(1, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "new-drive-is-back",
        steps: &[
            Idle,
            Fail(1),
            Replace(1),
            Filled(1, 1),
            Fail(1),
            Write(1, 1),
            Wait,
            Watch,
            Return(1),
            Write(17, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "replaced-and-another-fails",
        level: Level::L6,
        members: 4,
        steps: &[
            Idle,
            Fail(1),
            Replace(1),
            Filled(1, 1),
            Watch,
            Vanish(2),
            Write(1, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
    Scenario {
        name: "two-are-replaced",
        level: Level::L6,
        members: 4,
        is_long: true,
        steps: &[
            Idle,
            Fail(1),
            Fail(2),
            Watch,
            Replace(1),
            Filled(1, 1),
            Replace(2),
            Write(17, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
    // The one lacks a stripe, the other all three: they are not filled together.
    Scenario {
        name: "one-is-replaced-and-one-is-back",
        level: Level::L6,
        members: 4,
        steps: &[
            Idle,
            Fail(1),
            Fail(2),
            Write(33, 1),
            Wait,
            Passes(false),
            Replace(2),
            Return(1),
            Watch,
            Passes(true),
            Write(33, 1),
            Write(41, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "replaced-and-one-lost",
        level: Level::L6,
        members: 4,
        strict: true,
        lost: 1,
        is_long: true,
        steps: &[
            Idle,
            Fail(1),
            Watch,
            Replace(1),
            Write(1, 1),
            Write(17, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
];
