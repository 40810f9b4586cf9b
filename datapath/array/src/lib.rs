//! Arrays: members joined into one block address space that survives losses.
//!
//! Sans-I/O: no system call, no clock, no thread and no allocation per request. What does not
//! live here: drives, volumes, and the arithmetic of parity.
#![forbid(unsafe_code)]

pub mod assembly;
mod begun;
mod buffers;
mod command;
mod coordinator;
mod exposure;
pub mod format;
mod geometry;
mod io;
mod laggards;
mod lanes;
mod lent;
mod lines;
mod log;
mod losses;
mod map;
mod owners;
mod plan;
pub mod planted;
mod read_errors;
mod regions;
mod scrub;
mod shard;
mod slots;
mod throttle;

pub use begun::{Begun, BegunOf, BegunSpace, BegunWrites, BlockMask, Doubt, ToRedo, Unusable, Why};
pub use command::{Command, Copying, Refusal};
pub use coordinator::{
    Coordinator, CoordinatorSettings, MapIdentity, MemberPlace, PassState, PassStatus, initial_map,
};
pub use geometry::{Geometry, GeometryError, GeometryParameters, Level, ParseLevelError, Place};
pub use io::{
    Event, Help, Io, MemberFailure, MemberRequest, Message, PassEvent, Times, Trouble, WorkMessage,
};
pub use laggards::MemberPace;
pub use lent::Lent;
pub use log::{LogSpace, Redo, RefusedRedo, Replay, agree_with};
pub use losses::{LossChange, LostBlocks, LostWord, Rows};
pub use map::{ArrayMap, MapMember, MapState, Pass, Window};
pub use owners::Owners;
pub use plan::{
    Band, Bands, Beyond, Method, ReadPlan, StripeState, WritePlan, bands, plan_read, plan_repair,
    plan_write,
};
pub use regions::{RegionMap, RegionSpace, Suspects};
pub use scrub::{
    ScrubCause, ScrubCourse, ScrubFinding, ScrubOrder, ScrubOutcome, ScrubRecord, ScrubState,
    ScrubStatus, ScrubTally, WallClock, WindowTally,
};
pub use shard::{
    Hedging, HoldStatus, Lends, Patience, Room, Shard, ShardCounters, ShardError, Shared, Waits,
};
pub use throttle::Yield;
