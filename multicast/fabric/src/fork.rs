//! Detection of forked processes: a fabric belongs only to the process that made it.
//!
//! A child has a copy of everything, and shares the memory and the connections. What it wrote would pass for its
//! parent's, and what it cleaned up would be missing there.

use std::process::abort;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process that called [`Process::current`] and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Identifies a process, so that its children are recognised as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The calling process.
    pub fn current() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler adds to an atomic and does nothing else, so it may run in a child at any
            // moment. If there is no memory to register it, forks are not noticed, which changes nothing
            // for those who do not fork.
            let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the calling process, and not one that it was forked from. No system call.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Whether `is_so` holds in a child that is forked for it and exits afterwards, without notifying anybody. For tests.
#[doc(hidden)]
pub fn holds_in_child(is_so: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child has one thread, which runs `is_so` and ends the process without unwinding into its caller, or
    // dropping anything of it. `is_so` must not need a lock that another thread held at the fork.
    match unsafe { fork() } {
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(is_so));
            // SAFETY: it ends this process and nothing else.
            unsafe { _exit(i32::from(!outcome.unwrap_or(false))) }
        }
        child if child > 0 => {
            let mut status = -1;
            // SAFETY: `status` outlives the call, and the child is ours.
            let waited = unsafe { waitpid(child, &raw mut status, 0) };
            waited == child && status == 0
        }
        _ => abort(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fabric;

    #[test]
    fn a_child_knows_that_it_is_not_its_parent() {
        let process = Process::current();
        assert!(process.is_current());
        assert!(holds_in_child(|| !process.is_current() && Process::current().is_current()));
        assert!(!holds_in_child(|| process.is_current()));
        assert!(process.is_current(), "a parent goes on");
    }

    #[test]
    fn a_child_that_drops_a_fabric_leaves_it_to_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let host = crate::shm::Host::at(dir.path()).unwrap();
        let mut fabric = Some(host.join("a").unwrap());
        let mut other = host.join("b").unwrap();
        assert!(holds_in_child(|| {
            drop(fabric.take());
            true
        }));
        let peer = other.dial("a").expect("it is there still");
        assert!(!other.is_gone(peer));
        drop(fabric);
        assert!(other.is_gone(peer));
    }
}
