//! What goes wrong while something else does not yet know of it.

use array::Level;

use super::Step::{
    Err, Fail, Filled, Flush, GoOn, Hang, Held, Idle, Look, Mend, Others, Passes, Read, Refuse,
    Resync, Resynced, Return, Scrub, Spoil, Tear, Wait, Watch, Write, Written,
};
use super::{Error, PLAIN, Refuses, Scenario};

pub(super) const BESIDE: &[Scenario] = &[
    // One flush of a drive fails, and the next one goes well: it has kept nothing.
    Scenario {
        name: "drives-err-under-two-flushes",
        errs: true,
        steps: &[Idle, Write(0, 1), Wait, Watch, Flush, Flush, Wait],
        ..PLAIN
    },
    // A drive is away for a while that the array cannot do without. With the power it loses what
    // it was to flush: no log has it, because member 1 holds the parity of stripe 1.
    Scenario {
        name: "needed-drive-is-away-under-a-flush",
        steps: &[
            Idle,
            Fail(1),
            Write(16, 16),
            Wait,
            Watch,
            Err(0, Error::Gone),
            Read(16, 16),
            Held,
            Flush,
            Wait,
        ],
        ..PLAIN
    },
    // A record gets no further than its first flush, which fails. The last one that is durable
    // leaves out member 1, and stays until the next one is durable, too.
    Scenario {
        name: "record-begins-in-vain",
        level: Level::L6,
        members: 4,
        strict: true,
        steps: &[
            Idle,
            Fail(1),
            Write(0, 16),
            Wait,
            Flush,
            Wait,
            Write(0, 16),
            Wait,
            Watch,
            Err(0, Error::Unflushed),
            Scrub,
            Idle,
        ],
        ..PLAIN
    },
    // A drive hangs with a read and a write of the same block, and is left out. What it goes on to
    // write then is whatever has come into the buffer since; that it reads.
    Scenario {
        name: "read-of-one-that-is-out",
        steps: &[
            Idle,
            Write(0, 1),
            Wait,
            Hang(0),
            Read(0, 1),
            Write(0, 1),
            Others,
            Fail(0),
            Look,
            Written,
            Write(17, 1),
            Write(33, 1),
            Written,
            Watch,
            GoOn,
            Wait,
        ],
        ..PLAIN
    },
    // An engine starts without the drive, writes everything, and takes the drive back.
    Scenario {
        name: "dead-writes-of-a-mirror-land-late",
        level: Level::L1,
        members: 2,
        lands_late: true,
        steps: &[Idle, Watch, Write(0, 2), Wait, Write(9, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "dead-writes-land-late",
        strict: true,
        lands_late: true,
        steps: &[Idle, Watch, Write(1, 1), Wait],
        ..PLAIN
    },
    // A drive that is needed refuses a block, which cannot be read any more. When it can again, it
    // says what it said before.
    Scenario {
        name: "refused-and-unreadable",
        steps: &[
            Idle,
            Fail(1),
            Refuse(0, 0, Refuses::Unreadable),
            Write(0, 1),
            Wait,
            Mend(0),
            Watch,
            Read(0, 1),
            Read(8, 1),
            Wait,
        ],
        ..PLAIN
    },
    // The row is mended, while the log has what was to be written, and is written again.
    Scenario {
        name: "refused-under-a-logged-write",
        told: true,
        steps: &[
            Idle,
            Fail(1),
            Refuse(0, 0, Refuses::AsItWas),
            Watch,
            Write(0, 1),
            Wait,
            Write(8, 1),
            Wait,
        ],
        ..PLAIN
    },
    // Beside a block that cannot be read, a write leaves parity torn, and the log has that. When
    // the block can be read again, a resync makes it right, and the log has it still.
    Scenario {
        name: "resync-of-what-the-log-has",
        strict: true,
        lost: 1,
        steps: &[
            Idle,
            Passes(false),
            Resync,
            Tear(2, 0),
            Err(1, Error::Unreadable),
            Write(0, 1),
            Wait,
            Mend(1),
            Passes(true),
            Resynced,
            Watch,
            Write(2, 1),
            Wait,
        ],
        ..PLAIN
    },
    // A block is given up, and takes no zeroes. When it can be read again after a kill, its row
    // does not agree with it: parity is not trusted there.
    Scenario {
        name: "killed-after-a-block-was-passed-over",
        told: true,
        steps: &[
            Idle,
            Fail(1),
            Write(8, 1),
            Wait,
            Spoil(0, 0),
            Refuse(0, 0, Refuses::AsItWas),
            Watch,
            Return(1),
            Filled(1, 3),
        ],
        ..PLAIN
    },
];
