//! Which instructions compute.

use std::sync::OnceLock;

use crate::kernels::Pass;
use crate::{scalar, tune};

static BEST: OnceLock<Backend> = OnceLock::new();

/// Which instructions compute. All give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// 64-bit words and tables; runs on every CPU.
    Scalar,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 F and BW and GFNI.
    Avx512Gfni,
}

impl Backend {
    /// All, slowest first.
    const ALL: [Backend; 3] = [Backend::Scalar, Backend::Avx2, Backend::Avx512Gfni];

    /// The backends that this CPU can run, slowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Backend> {
        Backend::ALL
            .into_iter()
            .filter(|backend| backend.is_available())
    }

    /// The fastest backend that this CPU can run: of those with vectors the one that took least
    /// time when this was first asked. A [`crate::Code`] asks once and keeps it.
    #[must_use]
    pub fn best() -> Backend {
        *BEST.get_or_init(|| {
            let scalar = |backend: &Backend| *backend == Backend::Scalar;
            let vectors: Vec<Backend> = Backend::available().filter(|it| !scalar(it)).collect();
            let last = vectors.last().copied().unwrap_or(Backend::Scalar);
            tune::fastest(&vectors).unwrap_or(last)
        })
    }

    /// Whether this CPU can run it.
    #[inline]
    #[must_use]
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Backend::Scalar => true,
            Backend::Avx2 => is_x86_feature_detected!("avx2"),
            Backend::Avx512Gfni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
        }
    }

    /// Whether this CPU can run it.
    #[must_use]
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Backend::Scalar
    }

    /// The same, looked at once and for all; `None` when this CPU cannot run it.
    pub(crate) fn ready(self) -> Option<Ready> {
        self.is_available().then_some(Ready(self))
    }
}

/// A backend that this CPU can run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready(Backend);

impl Ready {
    /// Which it is.
    pub(crate) fn backend(self) -> Backend {
        self.0
    }

    /// Makes a pass.
    ///
    /// # Panics
    /// When the parts of the pass do not fit together.
    #[inline(always)]
    pub(crate) fn run(self, pass: &Pass<'_>) {
        pass.check();
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: available, by existence, and checked just above.
            Backend::Avx2 => unsafe { crate::avx2::run(pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Backend::Avx512Gfni => unsafe { crate::avx512::run(pass) },
            #[cfg(not(target_arch = "x86_64"))]
            Backend::Avx2 | Backend::Avx512Gfni => unreachable!("not available"),
            // SAFETY: as above.
            Backend::Scalar => unsafe { scalar::run(pass) },
        }
    }
}
