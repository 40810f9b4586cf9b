//! The one place where the engine is built.

use std::sync::Arc;

use control::Engine;
use control::settings::EngineSettings;
use host::Host;

/// Builds the engine that `garboard serve` runs.
///
/// # Errors
/// When the host does not allow it; the text says what and how to allow it.
pub(crate) fn engine(settings: &EngineSettings) -> anyhow::Result<Arc<dyn Engine>> {
    Ok(Host::start(settings)? as Arc<dyn Engine>)
}
