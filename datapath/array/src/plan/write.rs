//! Plans of writes: by which method the parity follows the data.

use units::RoleSet;

use super::read::{doubtful, sources};
use super::{Beyond, StripeState};

/// How the new parity is come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// From the new data alone: every data chunk is written.
    Full,
    /// From old data, old parity and new data.
    ReadModifyWrite,
    /// From the new data and the data chunks kept.
    ReconstructWrite,
    /// As reconstruct-write, after the old content of kept chunks that cannot be read is decoded.
    ReconstructFirst,
    /// Not at all: no parity to write.
    Plain,
}

/// How to write some data chunks of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// How the new parity is come by.
    pub method: Method,
    /// The roles whose old content is read first.
    pub read: RoleSet,
    /// The kept data roles to decode from `read`, which then is k roles, before parity is computed.
    pub decode: RoleSet,
    /// The roles to write: written data and parity, never a lost one. All parity written is
    /// wholly new; a data role that is written but lost lives on in the parity.
    pub write: RoleSet,
    /// Whether new parity depends on old parity that is not trusted: the best there is, and wrong
    /// where an unclean stop tore the stripe. What is decoded then is of lost members only.
    pub doubtful: bool,
}

impl WritePlan {
    fn new(method: Method, read: RoleSet, write: RoleSet) -> WritePlan {
        WritePlan {
            method,
            read,
            decode: RoleSet::EMPTY,
            write,
            doubtful: false,
        }
    }
}

/// Plans writing the data roles `written` (every block of the band in them) of a stripe of
/// `k` + `m`.
///
/// The cheapest method in reads that leaves every parity that can be written right; of two equally
/// cheap, the one that reads no parity. All methods write the same roles.
///
/// # Errors
/// [`Beyond`] when the new content could not be read back or the parity could not be made right:
/// more is lost than there is parity, or what is needed is not readable.
///
/// # Panics
/// When `written` is empty or not data, or the state contradicts itself.
#[inline]
pub fn plan_write(
    k: usize,
    m: usize,
    written: RoleSet,
    state: &StripeState,
) -> Result<WritePlan, Beyond> {
    let all = RoleSet::range(0, k + m);
    let readable = state.readable(all);
    let data = RoleSet::range(0, k);
    let sound = data.covers(written) && !written.is_empty();
    assert!(sound, "data chunks are written, one at least");
    let parity = all.without(data).without(state.lost);
    let kept = data.without(written);
    let write = written.union(parity).without(state.lost);

    if parity.is_empty() && !written.meets(state.lost) {
        let method = if k == 1 && m > 0 {
            Method::Full
        } else {
            Method::Plain
        };
        return Ok(WritePlan::new(method, RoleSet::EMPTY, write));
    }
    if state.lost.exceeds(m) {
        return Err(Beyond);
    }
    if kept.is_empty() {
        return Ok(WritePlan::new(Method::Full, RoleSet::EMPTY, write));
    }

    // Old parity is of use only when it is trusted, and when all of it can be read: a parity that
    // cannot be read is written anew, whole.
    let modify = written.union(parity);
    let modify_possible = readable.covers(modify);
    let modify_right = modify_possible && state.parity_trusted;
    let reconstruct_possible = readable.covers(kept);
    // Where both read as much, a change of parity computes less: it goes over what is written, not
    // over the stripe. And a chunk that went bad in silence does not become part of the parity.
    if modify_right && (!reconstruct_possible || !kept.is_smaller(modify)) {
        return Ok(WritePlan::new(Method::ReadModifyWrite, modify, write));
    }
    if reconstruct_possible {
        return Ok(WritePlan::new(Method::ReconstructWrite, kept, write));
    }
    let decode = kept.without(readable);
    let told = !decode.meets(state.untold(k));
    if let Some(sources) = sources(k, kept.both(readable), readable).filter(|_| told) {
        return Ok(WritePlan {
            decode,
            doubtful: doubtful(k, sources, state),
            ..WritePlan::new(Method::ReconstructFirst, sources, write)
        });
    }
    if modify_possible {
        // Kept chunks are out of reach; what parity says of them, it goes on saying.
        return Ok(WritePlan {
            doubtful: true,
            ..WritePlan::new(Method::ReadModifyWrite, modify, write)
        });
    }
    Err(Beyond)
}
