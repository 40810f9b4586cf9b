//! Memory of a NUMA node, for what one reactor uses and another thread has to make.
//!
//! The kernel gives a page where the thread runs that touches it first, unless that thread asks for
//! another node. So whoever makes something for a reactor asks for that reactor's; a preference, so
//! that a node without room is no error. Kernels that know no nodes and filters of system calls
//! refuse it, and memory lies wherever the kernel likes, as it would without us.
//!
//! What does not live here: which node a CPU is on (`nodes`).

use std::io;
use std::thread::{Builder, ScopedJoinHandle};

use units::NodeIndex;

/// Bits of a word of the kernel's set of nodes.
const WORD_BITS: usize = usize::BITS as usize;
/// Words of such a set: as many nodes as a kernel can be built for.
const WORDS: usize = 1024 / WORD_BITS;

/// From now on this thread takes new pages from `node` as long as that has some; the threads that
/// it starts as well.
///
/// # Errors
/// When the kernel does not allow it, or knows no such node: nothing has changed then.
pub fn prefer(node: NodeIndex) -> io::Result<()> {
    let mut nodes = [0_usize; WORDS];
    let word = nodes.get_mut(node.at() / WORD_BITS);
    *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node.at() % WORD_BITS);
    // One more than there are, for the kernel takes the last bit off.
    set_policy(libc::MPOL_PREFERRED, nodes.as_ptr(), WORDS * WORD_BITS + 1)
}

fn set_policy(policy: libc::c_int, nodes: *const usize, bits: usize) -> io::Result<()> {
    // SAFETY: the kernel reads `bits` - 1 bits of the set at most, which is that long, or none when
    // there is none; it changes where pages come from that this thread touches later, no byte.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, nodes, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `work` so that new memory it touches is of `node`, as far as the kernel lets us: on a
/// thread of its own, so that nobody else's memory is moved by it.
///
/// # Errors
/// When there can be no thread.
///
/// # Panics
/// When `work` does.
pub fn near<R: Send>(node: Option<NodeIndex>, work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let Some(node) = node else {
        return Ok(work());
    };
    std::thread::scope(|scope| {
        let run = move || {
            // Refused, it is wherever the kernel likes; who starts the engine has asked and told.
            prefer(node).ok();
            work()
        };
        let thread: ScopedJoinHandle<'_, R> = Builder::new()
            .name(format!("near-{}", node.0))
            .spawn_scoped(scope, run)?;
        match thread.join() {
            Ok(made) => Ok(made),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// The policy of this thread and whether the first node is in its set.
    fn policy() -> (libc::c_int, bool) {
        let mut policy = -1;
        let mut nodes = [0_usize; WORDS];
        // SAFETY: the kernel writes one number, and a set as long as it is told.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                ptr::from_mut(&mut policy),
                nodes.as_mut_ptr(),
                WORDS * WORD_BITS,
                ptr::null::<libc::c_void>(),
                0,
            )
        };
        assert!(asked == 0 || is_refused(&io::Error::last_os_error()));
        (policy, nodes[0] & 1 == 1)
    }

    fn is_refused(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no nodes")]
    fn memory_is_asked_of_a_node_only_while_something_is_made_for_it() {
        let before = policy();
        let inside = near(Some(NodeIndex(0)), || {
            (
                prefer(NodeIndex(0)).map_err(|error| is_refused(&error)),
                policy(),
            )
        });
        let inside = inside.expect("a thread");
        let asked = (Ok(()), (libc::MPOL_PREFERRED, true));
        // Where the kernel, or a filter, refuses the call there is nothing to see.
        assert!(inside == asked || inside.0 == Err(true), "{inside:?}");
        assert_eq!(policy(), before);
        assert_eq!(near(None, policy).expect("here"), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no nodes")]
    fn a_node_that_there_is_not_is_an_error_and_work_is_done_all_the_same() {
        for node in [1000, 1023, 1024, u16::MAX] {
            assert!(prefer(NodeIndex(node)).is_err(), "{node}");
            let made = near(Some(NodeIndex(node)), || vec![7; 100_000]);
            assert_eq!(made.expect("a thread").len(), 100_000);
        }
    }
}
