//! What happens in the small models, until a stop comes.

mod beside;
mod changed;
mod erring;
mod replaced;

use array::{Geometry, GeometryParameters, Level};
use units::BlockSize;

use self::beside::BESIDE;
use self::changed::CHANGED;
use self::erring::ERRING;
use self::replaced::REPLACED;
use super::disk::Refuses;
use super::machine::Error;

/// Bytes of a chunk: eight blocks.
pub(super) const CHUNK_BYTES: u64 = 4096;
/// Rows of chunks: in three of them, each member of the smallest arrays has each role once.
pub(super) const ROWS: u64 = 3;

/// One step. Requests go side by side until something waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Writes so many blocks from the first on.
    Write(u64, usize),
    /// Reads so many blocks from the first on.
    Read(u64, usize),
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
    /// The next request of a drive errs that may do so in this way.
    Err(usize, Error),
    /// Waits until the array waits for a member.
    Held,
    /// A drive takes no writes of a block of data, which one that it refuses leaves like this.
    Refuse(usize, u64, Refuses),
    /// A block of data of a drive cannot be read.
    Spoil(usize, u64),
    /// Nothing is wrong with a drive's blocks any more.
    Mend(usize),
    /// A drive answers nothing.
    Hang(usize),
    /// Waits until all others have answered.
    Others,
    /// It carries out what it was asked.
    GoOn,
    /// Drives are looked at.
    Look,
    /// Waits until the guest's writes are answered.
    Written,
    /// The drive of a member that was excluded is there again, and taken back.
    Return(usize),
    /// A member is excluded by command.
    Fail(usize),
    /// A new drive is in the place of a member that is out: the next after all that were there.
    Replace(usize),
    /// Waits until a record says that so many stripes of a member are filled.
    Filled(usize, u64),
    /// Members are filled, or that waits.
    Passes(bool),
    /// Parity is not trusted any more.
    Resync,
    /// Then a block of it changes by itself.
    Tear(usize, u64),
    /// Waits until parity is trusted.
    Resynced,
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
    /// Members of a group, where the level does not say it.
    group_size: Option<usize>,
    /// Parity chunks of a stripe, where the level does not say it.
    parity: Option<usize>,
    /// Every write is logged.
    pub(super) strict: bool,
    /// Nothing was written as yet, and the drives hold garbage.
    pub(super) is_new: bool,
    /// So many members of each group may be lost together with the power.
    pub(super) lost: usize,
    /// At each request that a drive is asked, it errs once, in each way in which it may. A drive
    /// that is gone by that is there again after a stop, or it is not, where every write is logged.
    pub(super) errs: bool,
    /// At each moment in turn, the guest changes the memory of all that it writes.
    pub(super) changes: bool,
    /// A drive may take long over what a killed engine has asked.
    pub(super) lands_late: bool,
    /// What an engine has begun is in memory that outlives it.
    pub(super) told: bool,
    /// It takes too long for each commit.
    pub(super) is_long: bool,
    pub(super) steps: &'static [Step],
}

/// What most are like.
const PLAIN: Scenario = Scenario {
    name: "",
    level: Level::L5,
    members: 3,
    group_size: None,
    parity: None,
    strict: false,
    is_new: false,
    lost: 0,
    errs: false,
    changes: false,
    lands_late: false,
    told: false,
    is_long: false,
    steps: &[],
};

impl Scenario {
    pub(super) fn geometry(&self) -> Geometry {
        Geometry::new(GeometryParameters {
            level: self.level,
            members: self.members,
            parity: self.parity,
            group_size: self.group_size,
            chunk_bytes: CHUNK_BYTES,
            block: BlockSize::B512,
            member_data_blocks: ROWS * CHUNK_BYTES / 512,
        })
        .expect("a good shape")
    }

    /// By drive: whose place it is for. Members have the first ones.
    pub(super) fn drives(&self) -> Vec<usize> {
        let replaced = self.steps.iter().filter_map(|step| match step {
            Step::Replace(member) => Some(*member),
            _ => None,
        });
        (0..self.members).chain(replaced).collect()
    }

    /// Whether members that are out for good get new drives.
    pub(super) fn replaces(&self) -> bool {
        self.drives().len() > self.members
    }
}

/// All of them.
pub(super) fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    let more = [ERRING, REPLACED, CHANGED, BESIDE].into_iter().flatten();
    SCENARIOS.iter().chain(more)
}

use Step::{Fail, Flush, Idle, Return, Scrub, Stop, Vanish, Wait, Watch, Write, Zero};

/// Chunks of level 5 on three members: stripe s has user blocks 16 s to 16 s + 15, eight for each
/// of its two data chunks. Level 6 on four members likewise.
/// Level 50 of two groups of three deals them over the groups: stripe 2 r is row r of members 0 to
/// 2, stripe 2 r + 1 that of members 3 to 5; level 60 likewise.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "one-small-write",
        steps: &[Idle, Watch, Write(0, 1), Flush, Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "full-stripe-races-small-write",
        steps: &[
            Idle,
            Watch,
            Write(0, 16),
            Write(3, 1),
            Wait,
            Write(9, 2),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "clean-after-a-write",
        steps: &[Idle, Watch, Write(0, 1), Wait, Idle, Write(16, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "flushes-side-by-side",
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
        ..PLAIN
    },
    Scenario {
        name: "mirror",
        level: Level::L1,
        members: 2,
        steps: &[Idle, Watch, Write(0, 2), Write(1, 1), Wait, Flush, Wait],
        ..PLAIN
    },
    Scenario {
        name: "strict-one-write",
        strict: true,
        lost: 1,
        steps: &[Idle, Watch, Write(1, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "strict-two-chunks",
        strict: true,
        lost: 1,
        steps: &[Idle, Watch, Write(7, 2), Wait, Write(0, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "strict-two-lost-of-level-6",
        level: Level::L6,
        members: 4,
        strict: true,
        lost: 2,
        steps: &[Idle, Watch, Write(1, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "strict-without-one-of-level-6",
        level: Level::L6,
        members: 4,
        strict: true,
        lost: 1,
        steps: &[
            Vanish(3),
            Write(0, 48),
            Wait,
            // The log has nothing of the first stripe any more, which lacks parity.
            Write(33, 1),
            Wait,
            Write(33, 1),
            Wait,
            Write(33, 1),
            Wait,
            Write(33, 1),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Wait,
            Write(9, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "degraded-write",
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
        ..PLAIN
    },
    Scenario {
        name: "stale-log",
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
        ..PLAIN
    },
    Scenario {
        name: "log-of-level-6",
        level: Level::L6,
        members: 4,
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
        ..PLAIN
    },
    Scenario {
        name: "member-fails-under-write",
        steps: &[Idle, Watch, Write(0, 1), Vanish(0), Write(17, 1), Wait],
        ..PLAIN
    },
    // The region is dirty before, so that it is the write itself that fails. Of level 5 this is the
    // write hole that `auto` leaves: a member and the power go at the same time.
    Scenario {
        name: "mirror-leg-fails-in-write",
        level: Level::L1,
        members: 2,
        steps: &[Idle, Write(0, 1), Wait, Watch, Write(0, 1), Vanish(0), Wait],
        ..PLAIN
    },
    Scenario {
        name: "mirror-leg-fails",
        level: Level::L1,
        members: 3,
        steps: &[Idle, Watch, Write(0, 1), Vanish(1), Write(9, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "excluded-and-back",
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
        ..PLAIN
    },
    Scenario {
        name: "twice-away",
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
        ..PLAIN
    },
    Scenario {
        name: "log-of-a-life-before",
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
        ..PLAIN
    },
    Scenario {
        name: "scrub-races-write",
        level: Level::L6,
        members: 4,
        steps: &[Idle, Watch, Scrub, Write(0, 1), Wait, Zero(8, 8), Wait],
        ..PLAIN
    },
    Scenario {
        name: "clean-stop",
        steps: &[Idle, Write(0, 1), Wait, Watch, Stop],
        ..PLAIN
    },
    Scenario {
        name: "first-write",
        is_new: true,
        steps: &[Watch, Write(1, 1), Wait, Flush, Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "first-writes-of-a-mirror",
        level: Level::L1,
        members: 2,
        is_new: true,
        steps: &[Watch, Write(0, 1), Write(9, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "first-write-under-which-a-member-fails",
        is_new: true,
        steps: &[Idle, Watch, Write(1, 1), Vanish(1), Write(17, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "first-write-without-one-that-returns",
        is_new: true,
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
        ..PLAIN
    },
    Scenario {
        name: "level-7-one-small-write",
        level: Level::L7,
        members: 5,
        steps: &[Idle, Watch, Write(1, 1), Wait, Flush, Wait],
        ..PLAIN
    },
    Scenario {
        name: "strict-three-lost-of-level-7",
        level: Level::L7,
        members: 5,
        strict: true,
        lost: 3,
        steps: &[Idle, Watch, Write(1, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "log-of-level-7-without-two",
        level: Level::L7,
        members: 5,
        steps: &[
            Vanish(1),
            Vanish(2),
            Write(0, 48),
            Wait,
            Idle,
            Watch,
            Write(1, 1),
            Wait,
            Write(9, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "three-leave-level-7",
        level: Level::L7,
        members: 5,
        is_long: true,
        steps: &[
            Idle,
            Watch,
            Write(0, 1),
            Vanish(0),
            Write(17, 1),
            Wait,
            Vanish(1),
            Write(1, 1),
            Wait,
            Vanish(2),
            Write(33, 1),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "three-parities-of-level-nm",
        level: Level::Nm,
        members: 5,
        parity: Some(3),
        is_long: true,
        steps: &[Idle, Watch, Scrub, Write(7, 2), Wait, Zero(0, 8), Wait],
        ..PLAIN
    },
    Scenario {
        name: "writes-to-two-groups",
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        steps: &[Idle, Watch, Write(15, 2), Wait, Flush, Wait, Idle],
        ..PLAIN
    },
    Scenario {
        name: "strict-one-lost-of-each-group",
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        strict: true,
        lost: 1,
        steps: &[Idle, Watch, Write(1, 1), Wait, Write(17, 1), Wait],
        ..PLAIN
    },
    Scenario {
        name: "both-groups-lack-a-member",
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        steps: &[
            Vanish(0),
            Vanish(4),
            Write(0, 96),
            Wait,
            Idle,
            Watch,
            Write(15, 2),
            Flush,
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "a-member-of-each-group-fails-under-write",
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        steps: &[
            Idle,
            Watch,
            Write(0, 1),
            Vanish(0),
            Write(49, 1),
            Vanish(4),
            Wait,
        ],
        ..PLAIN
    },
    Scenario {
        name: "excluded-from-one-group-and-back",
        level: Level::L60,
        members: 8,
        group_size: Some(4),
        is_long: true,
        steps: &[Idle, Fail(5), Write(17, 1), Wait, Watch, Return(5), Idle],
        ..PLAIN
    },
    Scenario {
        name: "mirrors-in-pairs",
        level: Level::L10,
        members: 4,
        steps: &[
            Idle,
            Watch,
            Write(7, 2),
            Vanish(2),
            Write(1, 1),
            Wait,
            Flush,
            Wait,
        ],
        ..PLAIN
    },
];
