//! One page per process that its peers look at: is it parked, has it mail, is its core contended,
//! has it left.
//!
//! **Invariant (no lost wake-up).** Whoever parks publishes `parked`, fences, and then looks at its
//! memory once more; whoever writes, writes, fences, and then looks at `parked`. In the one order
//! of the two fences, either the parker sees the write or the writer sees it parked.
//!
//! Wakers change only the futex word. If they cleared `parked`, one that is stopped between that
//! and its system call would keep all others from waking. `parked` holds the number of the nap, so
//! that a waker rings once a nap and not once a write while the sleeper is still getting up.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

use crate::clock::timeout;
use crate::memory::Memory;

/// The size of its file.
pub(super) const LEN: usize = 4096;

// Each on a cache line of its own, by who writes it how often.
const MAGIC: usize = 0;
const INCARNATION: usize = 8;
const PARKED: usize = 64; // u32, the owner, at every nap
const LEFT: usize = 68; // u32, the owner, once
const CONTENDED: usize = 72; // u32, the owner, when that changes
const FUTEX: usize = 128; // u32, peers
const MAIL_SENT: usize = 192; // peers
const MAIL_TAKEN: usize = 256; // the owner

/// Names the layout of all that is in the files, so that binaries that differ do not meet.
const FORMAT: u64 = u64::from_le_bytes(*b"skeinsh1");

/// A bell page, our own or a peer's.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<Memory>);

impl Bell {
    /// Makes zeroed memory a bell.
    pub(super) fn hang(memory: Arc<Memory>, incarnation: u64) -> Self {
        memory.word(INCARNATION).store(incarnation, Ordering::Relaxed);
        memory.word(MAGIC).store(FORMAT, Ordering::Release);
        Self(memory)
    }

    /// A peer's bell, if that is what it is.
    pub(super) fn of(memory: Arc<Memory>, incarnation: u64) -> Option<Self> {
        let known = memory.len() >= LEN
            && memory.word(MAGIC).load(Ordering::Acquire) == FORMAT
            && memory.word(INCARNATION).load(Ordering::Relaxed) == incarnation;
        known.then_some(Self(memory))
    }

    /// Tells peers that the process has left in an orderly way.
    pub(super) fn leave(&self) {
        self.0.half(LEFT).store(1, Ordering::SeqCst);
    }

    pub(super) fn has_left(&self) -> bool {
        self.0.half(LEFT).load(Ordering::Relaxed) != 0
    }

    /// Wakes the owner if it is parked. The caller has fenced after its writes. `rung` is the nap
    /// that this caller has last ended.
    ///
    /// Returns whether the owner's core is [contended](Self::set_contended): that stands on the same cache line.
    pub(super) fn ring(&self, rung: &mut u32) -> bool {
        let nap = self.0.half(PARKED).load(Ordering::Relaxed);
        let contended = self.0.half(CONTENDED).load(Ordering::Relaxed) != 0;
        if nap == 0 || nap == *rung {
            return contended;
        }
        let word = self.0.half(FUTEX);
        word.fetch_add(1, Ordering::SeqCst);
        // Fails only if the address were not a futex's; the owner would then wake by itself.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
        *rung = nap;
        contended
    }

    /// Tells peers whether others compute on the owner's core.
    pub(super) fn set_contended(&self, contended: bool) {
        self.0.half(CONTENDED).store(u32::from(contended), Ordering::Relaxed);
    }

    /// Sleeps as nap number `nap` until rung, for at most `longest`, unless `idle` says no once
    /// peers can see that we are parked.
    pub(super) fn nap(&self, nap: u32, longest: Duration, idle: impl FnOnce() -> bool) {
        let word = self.0.half(FUTEX);
        let before = word.load(Ordering::SeqCst);
        self.0.half(PARKED).store(nap, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if idle() {
            let timeout = timeout(longest);
            // Woken, timed out, rung already or interrupted: the caller looks around either way.
            let _ = futex::wait(word, futex::Flags::empty(), before, Some(&timeout));
        }
        self.0.half(PARKED).store(0, Ordering::SeqCst);
    }

    /// How many letters were ever put into the owner's mailbox.
    pub(super) fn mail_sent(&self) -> u64 {
        self.0.word(MAIL_SENT).load(Ordering::Acquire)
    }

    /// Counts a letter that is in the mailbox now.
    pub(super) fn count_mail(&self) {
        self.0.word(MAIL_SENT).fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a letter taken out.
    pub(super) fn take_mail(&self) {
        let taken = self.0.word(MAIL_TAKEN);
        taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// How many letters wait. A sender that died before it counted its letter makes it less.
    pub(super) fn mail_waiting(&self) -> u64 {
        self.mail_sent().saturating_sub(self.0.word(MAIL_TAKEN).load(Ordering::Acquire))
    }
}
