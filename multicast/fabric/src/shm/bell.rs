//! One page per process that its peers read: whether the process is parked, has control messages, runs on a contended
//! core, has left, or has been killed.
//!
//! **Invariant (no lost wake-up).** A process that parks publishes `parked`, fences, and then looks at its memory once
//! more; a writer writes, fences, and then reads `parked`. Whichever fence comes first in their total order, either the
//! parking process sees the write or the writer sees it parked.
//!
//! Wakers change only the futex word. If they cleared `parked`, one that is stopped between that and its system call
//! would keep all others from waking. `parked` holds the number of the nap, so that a waker rings once per nap and not
//! once per write while the sleeper is still getting up.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

use super::thread_end;
use crate::clock::timeout;
use crate::memory::Memory;

/// The size of its file.
pub(super) const LEN: usize = 4096;

// Each on its own cache line, by writer and frequency.
const MAGIC: usize = 0;
const INCARNATION: usize = 8;
const PARKED: usize = 64; // u32, the owner, at every nap
const LEFT: usize = 68; // u32, the owner, or who found it dead
const CONTENDED: usize = 72; // u32, the owner, when that changes
const THREAD: usize = 76; // u32, the owner, and the kernel at its thread's end
const FUTEX: usize = 128; // u32, peers
const MAIL_SENT: usize = 192; // peers
const MAIL_TAKEN: usize = 256; // the owner

/// Names the layout of everything in the files, so that binaries with different layouts do not connect.
const FORMAT: u64 = u64::from_le_bytes(*b"skeinsh1");

/// A bell page, our own or a peer's.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<Memory>);

impl Bell {
    /// Initialises zeroed memory as a bell.
    pub(super) fn hang(memory: Arc<Memory>, incarnation: u64) -> Self {
        memory.word(INCARNATION).store(incarnation, Ordering::Relaxed);
        memory.word(MAGIC).store(FORMAT, Ordering::Release);
        Self(memory)
    }

    /// A peer's bell, if the memory is one.
    pub(super) fn of(memory: Arc<Memory>, incarnation: u64) -> Option<Self> {
        let known = memory.len() >= LEN
            && memory.word(MAGIC).load(Ordering::Acquire) == FORMAT
            && memory.word(INCARNATION).load(Ordering::Relaxed) == incarnation;
        known.then_some(Self(memory))
    }

    /// Publishes that the process has left: by itself, in an orderly way, or by whoever found it dead.
    pub(super) fn leave(&self) {
        self.0.half(LEFT).store(1, Ordering::SeqCst);
    }

    pub(super) fn has_left(&self) -> bool {
        self.0.half(LEFT).load(Ordering::Relaxed) != 0
    }

    /// Lets the kernel mark it when the calling thread ends. Only that thread uses the owner's fabric.
    pub(super) fn watch_thread(&self) {
        thread_end::watch(&self.0, THREAD);
    }

    /// Takes that back, so that the thread can end and the owner go on.
    pub(super) fn let_thread_go(&self) {
        thread_end::let_go(&self.0);
    }

    /// Whether the kernel has marked the end of the owner's thread.
    pub(super) fn has_lost_thread(&self) -> bool {
        thread_end::has_ended(self.0.half(THREAD))
    }

    /// Wakes the owner if it is parked. The caller has fenced after its writes. `rung` is the last nap that this caller
    /// has ended.
    ///
    /// Returns whether the owner's core is [contended](Self::set_contended), which is on the same cache line.
    pub(super) fn ring(&self, rung: &mut u32) -> bool {
        let nap = self.0.half(PARKED).load(Ordering::Relaxed);
        let contended = self.0.half(CONTENDED).load(Ordering::Relaxed) != 0;
        if nap == 0 || nap == *rung {
            return contended;
        }
        let word = self.0.half(FUTEX);
        word.fetch_add(1, Ordering::SeqCst);
        // Fails only if the address is not a futex's; the owner would then wake by itself.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
        *rung = nap;
        contended
    }

    /// Publishes whether others compute on the owner's core.
    pub(super) fn set_contended(&self, contended: bool) {
        self.0.half(CONTENDED).store(u32::from(contended), Ordering::Relaxed);
    }

    /// Sleeps as nap number `nap` until rung, for at most `longest`, unless `idle` returns false once peers can see
    /// that we are parked.
    pub(super) fn nap(&self, nap: u32, longest: Duration, idle: impl FnOnce() -> bool) {
        let word = self.0.half(FUTEX);
        let before = word.load(Ordering::SeqCst);
        self.0.half(PARKED).store(nap, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if idle() {
            let timeout = timeout(longest);
            // Woken, timed out, rung already or interrupted: the caller looks again in any case.
            let _ = futex::wait(word, futex::Flags::empty(), before, Some(&timeout));
        }
        self.0.half(PARKED).store(0, Ordering::SeqCst);
    }

    /// How many control messages were ever put into the owner's mailbox.
    pub(super) fn mail_sent(&self) -> u64 {
        self.0.word(MAIL_SENT).load(Ordering::Acquire)
    }

    /// Counts a control message that is in the mailbox now.
    pub(super) fn count_mail(&self) {
        self.0.word(MAIL_SENT).fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a control message that was taken out.
    pub(super) fn take_mail(&self) {
        let taken = self.0.word(MAIL_TAKEN);
        taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// How many control messages wait. A sender that died before it counted its message makes this less than the true
    /// number.
    pub(super) fn mail_waiting(&self) -> u64 {
        self.mail_sent().saturating_sub(self.0.word(MAIL_TAKEN).load(Ordering::Acquire))
    }
}
