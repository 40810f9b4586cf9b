//! The control path: the API, the wanted state, metrics and logs over one [`Engine`].
//!
//! What does not live here: anything that is on a request's way. The engine is a trait, so that
//! all of this runs against a pretended one in tests.
#![forbid(unsafe_code)]

pub mod engine;
pub mod metrics;
pub mod request;
pub mod view;

pub use engine::{Answer, Engine, EngineError, ErrorKind};
