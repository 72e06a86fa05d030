//! Short slices: how long the scheduler lets a thread run before others on its core get their turn.
//!
//! A thread that sleeps between two messages and uses less than its share of the core preempts a computing thread when
//! it is woken, if its slice is the shorter one. With the default slice, it waits until the other's slice is used up,
//! which the kernel checks once a tick: up to 4 ms with HZ = 250. A shorter slice gives no larger share of the core.

use std::io;

/// The shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;

/// Asks the scheduler to give the calling thread short slices. Policy and niceness do not change.
///
/// For threads that poll and sleep. Linux honours it from 6.12 on, for threads of the normal policy; elsewhere nothing
/// changes.
pub fn ask_for_short_slices() {
    if let Err(error) = shorten() {
        tracing::debug!(%error, "the scheduler was not asked for short slices");
    }
}

fn shorten() -> io::Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: it reads the structure, which has the size that it says, and changes how the calling thread is scheduled.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// The scheduling attributes of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes to the structure, which has that many.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })?;
    Ok(attributes)
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `what` on a separate thread, because it changes that thread's scheduling.
    fn on_a_thread<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(what).join().expect("it does not panic")
    }

    #[test]
    fn a_slice_is_short_where_the_kernel_has_slices_and_the_niceness_stays() {
        let (before, after) = on_a_thread(|| {
            // SAFETY: it changes the niceness of the calling thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            let before = attributes().expect("a thread may ask that");
            shorten().expect("a thread may ask for that");
            (before, attributes().expect("a thread may ask that"))
        });
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, 5));
        if before.sched_runtime == 0 {
            println!("the kernel does not tell of slices: not looked at");
        } else {
            assert_eq!(after.sched_runtime, SLICE_NS);
        }
    }

    #[test]
    fn a_thread_of_another_policy_is_left_alone() {
        let policy = on_a_thread(|| {
            let idle = libc::sched_param { sched_priority: 0 };
            // SAFETY: it reads the structure, and changes how the calling thread is scheduled.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) };
            assert_eq!(set, 0, "every thread may be of less importance");
            shorten().expect("there is nothing to ask for");
            attributes().expect("a thread may ask that").sched_policy
        });
        assert_eq!(policy, libc::SCHED_IDLE.cast_unsigned());
    }
}
