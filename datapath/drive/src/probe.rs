//! Whether the kernel gives this process an `io_uring`, found out by asking for one.

use crate::error::PortError;
use crate::uring::{Mode, Ring};

/// What the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingProbe {
    /// How answers arrive: `deferred` (Linux 6.1, the best), `cooperative` (Linux 5.19) or
    /// `plain`, in which the kernel interrupts the reactor for each.
    pub mode: &'static str,
}

/// Sets up a small ring, as a reactor would, and lets go of it.
///
/// # Errors
/// When the kernel refuses `io_uring` (the error names the fix), is too old, or has no memory.
pub fn probe_ring() -> Result<RingProbe, PortError> {
    let ring: Ring = Ring::new(8, 1)?;
    if let Some(missing) = ring.missing() {
        return Err(PortError::too_old(missing));
    }
    Ok(RingProbe {
        mode: match ring.mode() {
            Mode::Deferred => "deferred",
            Mode::Cooperative => "cooperative",
            Mode::Plain => "plain",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Port, PortOptions};

    #[test]
    fn the_probe_says_what_a_port_would_meet() {
        let port = Port::new(PortOptions::default()).map(|_| ());
        let probe = probe_ring();
        assert_eq!(probe.is_ok(), port.is_ok());
        if let Ok(probe) = probe {
            assert!(["deferred", "cooperative", "plain"].contains(&probe.mode));
        }
    }
}
