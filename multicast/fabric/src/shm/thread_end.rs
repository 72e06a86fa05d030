//! A word in shared memory that says that the thread which uses a fabric has ended, however it has.
//!
//! The lock of a killed process is free only when the kernel has taken down the process's memory, which lasts tens of
//! milliseconds where cores are busy, and a leader's group stands still for as long. A *robust futex* says it sooner: the
//! kernel marks it when the thread that owns it ends, before anything else (`man 2 set_robust_list`). A thread that has
//! ended writes nothing any more, and no other one uses its fabric.
//!
//! The kernel keeps one list of such futexes per thread. The C library registers its own, for robust mutexes, of which
//! there are none here; ours takes its place until the thread ends.
//!
//! **Invariant.** The list is empty, or its one entry leads to a word that `watched` keeps mapped, in which the number of
//! this thread stands.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, Ordering};

use rustix::thread::gettid;

use crate::memory::Memory;

/// Set by the kernel, which leaves nothing of the owner's number.
const OWNER_DIED: u32 = 0x4000_0000;

/// Whether the thread whose end the word says has ended. If not, it may have all the same.
pub(super) fn has_ended(word: &AtomicU32) -> bool {
    // A reader of the mark sees all that the thread wrote before.
    word.load(Ordering::Acquire) & OWNER_DIED != 0
}

/// From here on, the word at `at` says when this thread ends. It is the only one that does. Where the kernel cannot do
/// that, it never says so.
pub(super) fn watch(memory: &Arc<Memory>, at: usize) {
    // While the thread ends, there is nothing left to watch with.
    let _ = END.try_with(|end| end.watch(memory, at));
}

/// The word says nothing any more, if it is of this thread.
pub(super) fn let_go(memory: &Arc<Memory>) {
    let _ = END.try_with(|end| {
        if end.watches(memory) {
            end.let_go();
        }
    });
}

/// The number by which the kernel knows this thread.
fn number() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

thread_local! {
    static END: End = End::new();
}

/// `struct robust_list_head` of the kernel, and the only entry of the list behind it.
#[repr(C)]
struct List {
    /// The first entry, or this list itself if there is none.
    first: AtomicPtr<()>,
    /// Distance from an entry to its futex, in bytes.
    to_futex: AtomicIsize,
    pending: AtomicPtr<()>,
    /// The entry: what follows it, which is the list itself.
    entry: AtomicPtr<()>,
}

/// Bytes of it that the kernel knows as the list.
const HEAD: usize = size_of::<List>() - size_of::<AtomicPtr<()>>();

struct End {
    list: Box<List>,
    /// The list that was registered before, if the kernel has taken ours.
    former: Option<*mut libc::c_void>,
    watched: RefCell<Option<(Arc<Memory>, usize)>>,
}

impl End {
    fn new() -> Self {
        let null = || AtomicPtr::new(ptr::null_mut());
        let list =
            List { first: null(), to_futex: AtomicIsize::new(0), pending: null(), entry: null() };
        let list = Box::new(list);
        let itself = ptr::from_ref::<List>(&list).cast_mut().cast();
        list.first.store(itself, Ordering::SeqCst);
        list.entry.store(itself, Ordering::SeqCst);
        let (mut former, mut len) = (ptr::null_mut::<libc::c_void>(), 0_usize);
        // SAFETY: the kernel writes a pointer and a length, to where we say; 0 means this thread.
        let got =
            unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut former, &raw mut len) };
        // SAFETY: the list is one of the kernel's layout, and is there until `drop` registers the former one.
        let set = || unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const *list, HEAD) };
        let registered = got == 0 && len == HEAD && set() == 0;
        Self { list, former: registered.then_some(former), watched: RefCell::new(None) }
    }

    fn watches(&self, memory: &Arc<Memory>) -> bool {
        self.watched.borrow().as_ref().is_some_and(|(watched, _)| Arc::ptr_eq(watched, memory))
    }

    fn watch(&self, memory: &Arc<Memory>, at: usize) {
        if self.former.is_none() || self.watches(memory) {
            return;
        }
        self.let_go();
        let word = memory.half(at);
        word.store(number(), Ordering::SeqCst);
        let entry = self.list.entry.as_ptr();
        let distance = ptr::from_ref(word).addr().wrapping_sub(entry.addr()).cast_signed();
        self.list.to_futex.store(distance, Ordering::SeqCst);
        // Last: the kernel may read the list from here on.
        self.list.first.store(entry.cast(), Ordering::SeqCst);
        self.watched.replace(Some((Arc::clone(memory), at)));
    }

    fn let_go(&self) {
        // First, so that the kernel does not mark what is about to be unmapped.
        let itself = ptr::from_ref::<List>(&self.list).cast_mut().cast();
        self.list.first.store(itself, Ordering::SeqCst);
        if let Some((memory, at)) = self.watched.take() {
            // A copy of this process, or another thread by now, has a number of its own.
            let (word, relaxed) = (memory.half(at), Ordering::Relaxed);
            let _ = word.compare_exchange(number(), 0, Ordering::SeqCst, relaxed);
        }
    }
}

impl Drop for End {
    /// A thread that ends in an orderly way says nothing: its fabric may go on, in another.
    fn drop(&mut self) {
        self.let_go();
        if let Some(former) = self.former {
            // SAFETY: it was registered for this thread, by the C library, which keeps it as long as the thread.
            unsafe { libc::syscall(libc::SYS_set_robust_list, former, HEAD) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::shm::Host;
    use crate::{Fabric as _, Permission};

    fn page() -> Arc<Memory> {
        Arc::new(crate::shm::room::anonymous(4096).expect("memory"))
    }

    /// Ends this thread at once: nothing is dropped.
    fn die() -> ! {
        // SAFETY: no other thread needs anything that this one owns.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    }

    /// Runs `act` in a thread that then ends at once, and waits for that.
    fn in_a_thread_that_dies(act: impl FnOnce() + Send + 'static) {
        let (tid, tids) = std::sync::mpsc::channel();
        thread::spawn(move || {
            tid.send(number()).expect("it is waited for");
            act();
            die();
        });
        let tid = tids.recv().expect("it runs");
        while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
            thread::yield_now();
        }
    }

    #[test]
    fn the_word_of_a_thread_that_dies_says_so() {
        let (memory, other) = (page(), page());
        let words = (Arc::clone(&memory), Arc::clone(&other));
        in_a_thread_that_dies(move || {
            watch(&words.0, 8);
            watch(&words.1, 64);
            watch(&words.0, 8);
            assert!(!has_ended(words.0.half(8)));
        });
        assert!(has_ended(memory.half(8)) && !has_ended(memory.half(12)));
        assert!(!has_ended(other.half(64)), "one word at a time");
    }

    /// The process here lives on, and holds the lock.
    #[test]
    fn a_peer_whose_thread_dies_is_gone_while_its_process_still_holds_the_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = Host::at(&dir.path().join("host")).expect("a host");
        let mut here = host.join("here").expect("it joins");
        for (prepares, gone) in [(false, false), (true, true)] {
            let name = format!("there-{prepares}");
            let (host, joins_as) = (host.clone(), name.clone());
            let (joined, joins) = std::sync::mpsc::channel();
            let (met, meets) = std::sync::mpsc::channel::<()>();
            let dies = thread::spawn(move || {
                in_a_thread_that_dies(move || {
                    let mut there = host.join(&joins_as).expect("it joins");
                    let log = there.create(4096, Permission::Granted).expect("a region");
                    if prepares {
                        there.prepare(log);
                    }
                    joined.send(()).expect("it is waited for");
                    meets.recv().expect("the other one has come");
                    std::mem::forget(there);
                });
            });
            joins.recv().expect("it joins");
            let peer = here.dial(&name).expect("it lives");
            assert!(!here.is_gone(peer));
            met.send(()).expect("it waits");
            dies.join().expect("it ends");
            assert_eq!(here.is_gone(peer), gone, "{name}");
            assert_eq!(here.dial(&name).is_err(), gone, "{name}");
        }
    }

    #[test]
    fn a_thread_that_lets_go_or_ends_in_an_orderly_way_says_nothing() {
        let memory = page();
        let word = Arc::clone(&memory);
        in_a_thread_that_dies(move || {
            watch(&word, 8);
            let_go(&word);
        });
        assert!(!has_ended(memory.half(8)));
        let word = Arc::clone(&memory);
        thread::spawn(move || watch(&word, 8)).join().expect("it ends");
        assert!(!has_ended(memory.half(8)));
    }

    /// The kernel would read memory that is free, otherwise.
    #[test]
    fn the_list_is_the_kernels_only_as_long_as_it_is_there() {
        let registered = || {
            let (mut list, mut len) = (ptr::null_mut::<libc::c_void>(), 0_usize);
            // SAFETY: the kernel writes a pointer and a length, to where we say.
            let got =
                unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) };
            assert_eq!(got, 0);
            list.cast_const()
        };
        let (memory, before) = (page(), registered());
        let end = End::new();
        assert_eq!(registered(), ptr::from_ref::<List>(&end.list).cast());
        end.watch(&memory, 8);
        assert_eq!(memory.half(8).load(Ordering::SeqCst), number());
        drop(end);
        assert_eq!((registered(), memory.half(8).load(Ordering::SeqCst)), (before, 0));
    }
}
