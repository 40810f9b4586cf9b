//! The control path: the API, the wanted state, metrics and logs over one [`Engine`].
//!
//! What does not live here: anything that is on a request's way. The engine is a trait, so that
//! all of this runs against a pretended one in tests.
#![forbid(unsafe_code)]

pub mod api;
pub mod body;
pub mod claim;
pub mod crashes;
pub mod engine;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod log;
pub mod membership;
pub mod metrics;
pub mod name;
mod port;
pub mod request;
pub mod scrub;
pub mod serve;
pub mod service;
pub mod settings;
pub mod spares;
pub mod view;
pub mod wanted;

pub use engine::{Answer, Engine, EngineError, ErrorKind};
pub use service::Control;
