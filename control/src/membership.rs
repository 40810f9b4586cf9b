//! Who was in sync when: what a host remembers of its arrays beside the drives.
//!
//! Members that are absent at a start may have gone on without those that are there, and only they
//! know. Of two halves the one with the lowest member starts by itself: so a drive 0 that was left
//! out would start from what it had then, at a start without the others. The host that saw it left
//! out remembers that.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Who of an array is in sync, as a durable record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The update of that record, or of an earlier one that says the same.
    pub update: u64,
    /// What tells it from another update of that number: two halves that both go on count alike.
    pub update_id: Uuid,
    /// The members by their own uuids, in the order of their places.
    pub in_sync: Vec<Uuid>,
}
