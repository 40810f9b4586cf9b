//! Guest memory of a queue, and what becomes of it when it changes under requests.

use std::sync::Arc;

use memory::guest::RegionTable;
use virtqueue::planted::{self, Fault};

use super::Queue;

/// Memory tables that requests taken before a change may still point into.
#[derive(Debug, Default)]
pub(super) struct Retired {
    pub(super) tables: Vec<Arc<RegionTable>>,
    /// Number of the table that is in use now.
    pub(super) current: u64,
    /// Requests taken under an earlier table and not yet answered.
    pub(super) pending: usize,
}

impl Retired {
    /// A request is answered that was taken under an earlier table.
    #[cold]
    pub(super) fn answered(&mut self) {
        self.pending -= 1;
        if self.pending == 0 {
            self.tables.clear();
        }
    }
}

impl Queue {
    /// Guest memory as requests are looked up in it now.
    #[must_use]
    pub fn memory(&self) -> Arc<RegionTable> {
        Arc::clone(&self.memory)
    }

    /// Replaces guest memory. Requests that were taken before keep the old table alive, until
    /// [`Queue::has_let_go`]. The ring itself must lie in what both have in common.
    pub fn set_memory(&mut self, memory: Arc<RegionTable>) {
        let old = std::mem::replace(&mut self.memory, memory);
        if self.pending > 0 {
            self.retired.tables.push(old);
        }
        self.retired.current += 1;
        self.retired.pending = self.pending;
    }

    /// Whether nothing points into earlier memory any more.
    #[must_use]
    pub fn has_let_go(&self) -> bool {
        self.retired.tables.is_empty() || planted::is(Fault::MemoryLetGo)
    }
}
