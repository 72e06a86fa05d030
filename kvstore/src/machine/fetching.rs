//! Commands and queries wait until what they read and write is in memory.
//!
//! **Invariant (only time).** Whether a key is in memory decides when a command is executed at this replica, and nothing
//! else. Commands behind one that fetches are blocked if they conflict with it, as behind one that waits for verdicts. So
//! the [answers and the state](super) are those of a replica that has everything in memory. A command has sent nothing
//! before its fetch is over, and from then on its keys stay pinned until it has taken effect.

use xxhash_rust::xxh3::xxh3_64;

use super::Machine;
use super::read_write_set::ReadWriteSet;
use super::under_way::Deferred;
use crate::store::Store;

/// Queries that fetch at the same time.
const QUERIES_MAX: usize = 256;
/// A query that was not repeated within so many calls was given up by whoever asked. A replica repeats each of those that
/// wait, which are fewer, before it repeats any of them again.
const CALLS_MAX: u64 = 1 << 13;

/// Queries whose keys are pinned.
#[derive(Default)]
pub(super) struct Queries {
    fetching: Vec<Query>,
    /// Number of calls.
    calls: u64,
}

struct Query {
    /// Hash of its bytes.
    name: u64,
    /// Number of the last call with it.
    asked: u64,
    reads: ReadWriteSet,
}

impl Queries {
    pub(super) fn clear(&mut self) {
        self.fetching.clear();
    }
}

impl<S: Store> Machine<S> {
    /// Number of commands that wait for something to be fetched.
    pub fn fetching(&self) -> usize {
        self.under_way.fetching()
    }

    /// Whether everything that a command needs is in memory.
    pub(super) fn has(&self, needs: &ReadWriteSet) -> bool {
        !S::FETCHES || needs.wanted(&self.limits).all(|wanted| self.store.has(wanted))
    }

    /// Fetches what the command needs, and keeps it in memory.
    pub(super) fn pin(&mut self, command: &mut Deferred) {
        if S::FETCHES && !std::mem::replace(&mut command.pinned, true) {
            self.pin_all(&command.read_write_set);
        }
    }

    /// Ends the [`pin`](Self::pin) of a command that has taken effect.
    pub(super) fn unpin(&mut self, command: &mut Deferred) {
        if S::FETCHES && std::mem::take(&mut command.pinned) {
            self.unpin_all(&command.read_write_set);
        }
    }

    fn pin_all(&mut self, needs: &ReadWriteSet) {
        needs.wanted(&self.limits).for_each(|wanted| self.store.pin(wanted));
    }

    fn unpin_all(&mut self, needs: &ReadWriteSet) {
        needs.wanted(&self.limits).for_each(|wanted| self.store.unpin(wanted));
    }

    /// Index of the first command, from `from` on, that nothing keeps from being tried.
    pub(super) fn next_to_resume(&mut self, from: usize) -> Option<usize> {
        let free = self.under_way.next_free(from);
        if !S::FETCHES {
            return free;
        }
        let fetched = self.under_way.next_fetched(from, |needs| self.has(needs));
        free.into_iter().chain(fetched).min()
    }

    /// Whether everything that a query reads is in memory. If not, it is fetched, and the query is to be repeated.
    pub(super) fn has_for_query(&mut self, query: &[u8], reads: &ReadWriteSet) -> bool {
        if self.has(reads) {
            return true;
        }
        let mut queries = std::mem::take(&mut self.queries);
        queries.calls += 1;
        let (name, asked) = (xxh3_64(query), queries.calls);
        if let Some(known) = queries.fetching.iter_mut().find(|it| it.name == name) {
            known.asked = asked;
        } else {
            if queries.fetching.len() == QUERIES_MAX
                && let Some(at) =
                    queries.fetching.iter().position(|it| it.asked + CALLS_MAX < asked)
            {
                self.unpin_all(&queries.fetching.swap_remove(at).reads);
            }
            if queries.fetching.len() < QUERIES_MAX {
                self.pin_all(reads);
                queries.fetching.push(Query { name, asked, reads: reads.clone() });
            }
        }
        self.queries = queries;
        false
    }

    /// Ends the fetch for a query that was answered.
    pub(super) fn end_query(&mut self, query: &[u8]) {
        if self.queries.fetching.is_empty() {
            return;
        }
        let name = xxh3_64(query);
        if let Some(at) = self.queries.fetching.iter().position(|it| it.name == name) {
            let done = self.queries.fetching.swap_remove(at);
            self.unpin_all(&done.reads);
        }
    }
}
