//! Which instructions are the fastest is measured, once in a process: wide ones make some CPUs
//! lower their clock, or take two turns for each of them.

use std::time::Duration;

use memory::pool::{Backing, Pages, Pool};
use units::{Clock, MonotonicClock};

use crate::backend::Backend;
use crate::code::Code;

/// What is measured: P and Q of so many chunks of so many bytes, all of it in the second cache of
/// any CPU of today.
const DATA: usize = 8;
const PARITY: usize = 2;
const CHUNK: usize = 16 << 10;
/// How often, by turns; the least time counts. By estimate all takes a tenth of a millisecond.
const ROUNDS: u32 = 15;
/// Narrower instructions must take less than so many percent of the time of wider ones. Else chance
/// decides where there is no difference, and one engine is not like the next.
const CLEARLY: u32 = 90;

/// The fastest of some backends, which are sorted by what they should be, the best last.
pub(crate) fn fastest(backends: &[Backend]) -> Option<Backend> {
    match backends {
        // Miri knows no time.
        [.., last] if backends.len() == 1 || cfg!(miri) => Some(*last),
        _ => choose(&measure(backends)?),
    }
}

fn choose(times: &[(Backend, Duration)]) -> Option<Backend> {
    let chosen = times.iter().copied().rev().reduce(|best, other| {
        let clearly = best.1 * CLEARLY / 100;
        if other.1 < clearly { other } else { best }
    });
    chosen.map(|(backend, _)| backend)
}

/// How long each takes at best; `None` where there is no memory for it.
fn measure(backends: &[Backend]) -> Option<Vec<(Backend, Duration)>> {
    let backing = Backing::Anonymous(Pages::Plain);
    let mut pool = Pool::new(DATA + PARITY, CHUNK, backing).ok()?;
    let buffers: Vec<_> = std::iter::from_fn(|| pool.acquire()).collect();
    let chunks: Vec<_> = buffers.iter().map(|buffer| pool.segment(buffer)).collect();
    chunks.iter().for_each(|chunk| chunk.fill(0x5a));
    let (data, parity) = chunks.split_at(DATA);
    let code = |backend: &Backend| Code::with_backend(DATA, PARITY, *backend).ok();
    let codes = backends.iter().map(code).collect::<Option<Vec<Code>>>()?;
    let mut least = vec![Duration::MAX; codes.len()];
    for _ in 0..ROUNDS {
        for (least, code) in least.iter_mut().zip(&codes) {
            let begun = MonotonicClock.now();
            code.generate(data, parity);
            *least = (*least).min(MonotonicClock.now().since(begun));
        }
    }
    buffers.into_iter().for_each(|buffer| pool.release(buffer));
    Some(backends.iter().copied().zip(least).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Backend = Backend::Avx2;
    const WIDE: Backend = Backend::Avx512Gfni;

    #[test]
    fn what_is_clearly_faster_is_taken_and_else_the_wider_one() {
        let chosen = |narrow, wide| {
            let times = [(NARROW, narrow), (WIDE, wide)]
                .map(|(backend, nanoseconds)| (backend, Duration::from_nanos(nanoseconds)));
            choose(&times)
        };
        assert_eq!(chosen(1000, 500), Some(WIDE));
        assert_eq!(chosen(1000, 1000), Some(WIDE));
        assert_eq!(chosen(950, 1000), Some(WIDE), "by chance, maybe");
        assert_eq!(chosen(800, 1000), Some(NARROW));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn each_backend_of_this_cpu_is_measured() {
        let backends: Vec<Backend> = Backend::available().collect();
        let times = measure(&backends).expect("there is memory");
        let measured: Vec<Backend> = times.iter().map(|(backend, _)| *backend).collect();
        assert_eq!(measured, backends);
        let is_real = |time: &Duration| *time > Duration::ZERO && *time < Duration::from_secs(1);
        assert!(times.iter().all(|(_, time)| is_real(time)), "{times:?}");
        assert!(backends.contains(&Backend::best()));
    }
}
