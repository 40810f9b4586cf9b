//! What happens in the small models, until a stop comes.

use array::{Geometry, GeometryParameters, Level};
use units::BlockSize;

/// Bytes of a chunk: eight blocks.
pub(super) const CHUNK_BYTES: u64 = 4096;
/// Rows of chunks: in three of them, each member of the smallest arrays has each role once.
pub(super) const ROWS: u64 = 3;

/// One step. Requests go side by side until something waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Writes so many blocks from the first on.
    Write(u64, usize),
    /// Writes zeroes.
    Zero(u64, usize),
    /// Flushes.
    Flush,
    /// Waits until the guest has all its answers.
    Wait,
    /// Waits until nothing is under way and idle regions are clean.
    Idle,
    /// The drive of a member is not there any more.
    Vanish(usize),
    /// The drive of a member that was excluded is there again, and taken back.
    Return(usize),
    /// A member is excluded by command.
    Fail(usize),
    /// Everything is compared.
    Scrub,
    /// The array is marked clean.
    Stop,
    /// From here on a stop may come at any moment.
    Watch,
}

/// One model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    level: Level,
    pub(super) members: usize,
    /// Every write is logged.
    pub(super) strict: bool,
    /// Nothing was written as yet, and the drives hold garbage.
    pub(super) is_new: bool,
    /// So many members may be lost together with the power.
    pub(super) lost: usize,
    pub(super) steps: &'static [Step],
}

impl Scenario {
    pub(super) fn geometry(&self) -> Geometry {
        Geometry::new(GeometryParameters {
            level: self.level,
            members: self.members,
            parity: None,
            group_size: None,
            chunk_bytes: CHUNK_BYTES,
            block: BlockSize::B512,
            member_data_blocks: ROWS * CHUNK_BYTES / 512,
        })
        .expect("a good shape")
    }
}

use Step::{Fail, Flush, Idle, Return, Scrub, Stop, Vanish, Wait, Watch, Write, Zero};

/// Chunks of level 5 on three members: stripe s has user blocks 16 s to 16 s + 15, eight for each
/// of its two data chunks. Level 6 on four members likewise.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "one-small-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Write(0, 1), Flush, Wait, Idle],
    },
    Scenario {
        name: "full-stripe-races-small-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Idle,
            Watch,
            Write(0, 16),
            Write(3, 1),
            Wait,
            Write(9, 2),
            Wait,
        ],
    },
    Scenario {
        name: "clean-after-a-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Write(0, 1), Wait, Idle, Write(16, 1), Wait],
    },
    Scenario {
        name: "flushes-side-by-side",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Idle,
            Watch,
            Write(0, 1),
            Wait,
            Flush,
            Write(16, 1),
            Flush,
            Wait,
            Flush,
            Wait,
        ],
    },
    Scenario {
        name: "mirror",
        level: Level::L1,
        members: 2,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Write(0, 2), Write(1, 1), Wait, Flush, Wait],
    },
    Scenario {
        name: "strict-one-write",
        level: Level::L5,
        members: 3,
        strict: true,
        is_new: false,
        lost: 1,
        steps: &[Idle, Watch, Write(1, 1), Wait],
    },
    Scenario {
        name: "strict-two-chunks",
        level: Level::L5,
        members: 3,
        strict: true,
        is_new: false,
        lost: 1,
        steps: &[Idle, Watch, Write(7, 2), Wait, Write(0, 1), Wait],
    },
    Scenario {
        name: "strict-two-lost-of-level-6",
        level: Level::L6,
        members: 4,
        strict: true,
        is_new: false,
        lost: 2,
        steps: &[Idle, Watch, Write(1, 1), Wait],
    },
    Scenario {
        name: "degraded-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Vanish(0),
            Write(0, 48),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Write(9, 1),
            Flush,
            Wait,
        ],
    },
    Scenario {
        name: "stale-log",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Vanish(0),
            Write(0, 48),
            Wait,
            Idle,
            Write(1, 1),
            Wait,
            Flush,
            Wait,
            Watch,
            Write(0, 16),
            Wait,
            Write(17, 1),
            Wait,
            Write(9, 1),
            Wait,
        ],
    },
    Scenario {
        name: "log-of-level-6",
        level: Level::L6,
        members: 4,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Vanish(1),
            Write(0, 48),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Wait,
            Write(9, 1),
            Wait,
        ],
    },
    Scenario {
        name: "member-fails-under-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Write(0, 1), Vanish(0), Write(17, 1), Wait],
    },
    // The region is dirty before, so that it is the write itself that fails. Of level 5 this is the
    // write hole that `auto` leaves: a member and the power go at the same time.
    Scenario {
        name: "mirror-leg-fails-in-write",
        level: Level::L1,
        members: 2,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Write(0, 1), Wait, Watch, Write(0, 1), Vanish(0), Wait],
    },
    Scenario {
        name: "mirror-leg-fails",
        level: Level::L1,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Write(0, 1), Vanish(1), Write(9, 1), Wait],
    },
    Scenario {
        name: "excluded-and-back",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Idle,
            Fail(1),
            Write(1, 1),
            Wait,
            Watch,
            Return(1),
            Write(17, 1),
            Wait,
        ],
    },
    Scenario {
        name: "twice-away",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Idle,
            Fail(1),
            Write(1, 1),
            Wait,
            Return(1),
            Idle,
            Fail(1),
            Write(17, 1),
            Wait,
            Watch,
            Return(1),
            Idle,
        ],
    },
    Scenario {
        name: "log-of-a-life-before",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[
            Idle,
            Fail(1),
            Write(1, 1),
            Wait,
            Return(1),
            Idle,
            Watch,
            Write(1, 1),
            Wait,
            Write(0, 16),
            Wait,
            Flush,
            Wait,
        ],
    },
    Scenario {
        name: "scrub-races-write",
        level: Level::L6,
        members: 4,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Watch, Scrub, Write(0, 1), Wait, Zero(8, 8), Wait],
    },
    Scenario {
        name: "clean-stop",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: false,
        lost: 0,
        steps: &[Idle, Write(0, 1), Wait, Watch, Stop],
    },
    Scenario {
        name: "first-write",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: true,
        lost: 0,
        steps: &[Watch, Write(1, 1), Wait, Flush, Wait, Idle],
    },
    Scenario {
        name: "first-writes-of-a-mirror",
        level: Level::L1,
        members: 2,
        strict: false,
        is_new: true,
        lost: 0,
        steps: &[Watch, Write(0, 1), Write(9, 1), Wait],
    },
    Scenario {
        name: "first-write-under-which-a-member-fails",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: true,
        lost: 0,
        steps: &[Idle, Watch, Write(1, 1), Vanish(1), Write(17, 1), Wait],
    },
    Scenario {
        name: "first-write-without-one-that-returns",
        level: Level::L5,
        members: 3,
        strict: false,
        is_new: true,
        lost: 0,
        steps: &[
            Idle,
            Fail(1),
            Watch,
            Write(1, 1),
            Wait,
            Return(1),
            Write(17, 1),
            Wait,
        ],
    },
];
