//! How long drives may take: what `late.rs` measures is compared with this.

use std::time::Duration;

use crate::shard::bounce::Hedging;

/// How long drives may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two looks.
    pub look: Duration,
    /// Looks after which a member that does not answer a request is read around.
    pub slow: u32,
    /// Looks after which a member that does not answer anything is excluded.
    pub late: u32,
    /// One that was slow is counted on to be again for so long.
    pub shaky: Duration,
    /// For so long at a time members are compared with their peers.
    pub window: Duration,
    /// Fewer requests to a member in that time say nothing.
    pub enough: u64,
    /// So many reads of a member may fail within a day before it is left out.
    pub read_errors: u32,
    /// How many reads may be given up.
    pub hedging: Hedging,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            look: Duration::from_millis(10),
            slow: 3,
            late: 300,
            shaky: Duration::from_secs(600),
            window: Duration::from_secs(1),
            enough: 50,
            read_errors: 256,
            hedging: Hedging::default(),
        }
    }
}
