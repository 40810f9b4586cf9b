//! Drives that err, once, at each request in turn.

use array::Level;

use super::Step::{Fail, Flush, Idle, Read, Replace, Return, Vanish, Wait, Watch, Write};
use super::{PLAIN, Scenario};

/// In these, `errs` is set.
pub(super) const ERRING: &[Scenario] = &[
    Scenario {
        name: "drives-err-under-a-read",
        errs: true,
        steps: &[Idle, Watch, Read(0, 16), Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-under-a-small-write",
        errs: true,
        steps: &[Idle, Watch, Write(0, 1), Wait, Flush, Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-under-a-logged-write",
        strict: true,
        errs: true,
        steps: &[Idle, Watch, Write(7, 2), Wait, Flush, Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-beside-one-that-is-out",
        level: Level::L6,
        members: 4,
        errs: true,
        is_long: true,
        steps: &[
            Vanish(1),
            Write(0, 48),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "drives-of-level-7-err",
        level: Level::L7,
        members: 5,
        strict: true,
        errs: true,
        is_long: true,
        steps: &[Idle, Watch, Write(1, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-of-two-groups-err",
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        strict: true,
        errs: true,
        is_long: true,
        steps: &[Idle, Watch, Write(15, 2), Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-of-a-mirror-err",
        level: Level::L1,
        members: 2,
        errs: true,
        steps: &[
            Idle,
            Watch,
            Write(0, 1),
            Wait,
            Read(0, 8),
            Wait,
            Flush,
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-under-a-return",
        level: Level::L6,
        members: 4,
        errs: true,
        is_long: true,
        steps: &[Idle, Fail(1), Write(1, 1), Wait, Watch, Return(1), Idle],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-under-a-first-write",
        strict: true,
        is_new: true,
        errs: true,
        is_long: true,
        steps: &[Watch, Write(1, 1), Wait, Flush, Wait],
        ..PLAIN
    },
    Scenario {
        name: "drives-err-under-a-replacement",
        level: Level::L6,
        members: 4,
        errs: true,
        is_long: true,
        steps: &[
            Idle,
            Fail(1),
            Write(1, 1),
            Wait,
            Watch,
            Replace(1),
            Write(17, 1),
            Wait,
            Idle,
        ],
        ..PLAIN
    },
];
