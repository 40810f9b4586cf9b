//! Arrays: members joined into one block address space that survives losses.
//!
//! Sans-I/O: no system call, no clock, no thread and no allocation per request. What does not
//! live here: drives, volumes, and the arithmetic of parity.
#![forbid(unsafe_code)]

pub mod format;
mod geometry;
mod plan;

pub use geometry::{Geometry, GeometryError, GeometryParameters, Level, ParseLevelError, Place};
pub use plan::{
    Band, Bands, Beyond, Method, ReadPlan, StripeState, WritePlan, bands, plan_read, plan_repair,
    plan_write,
};
