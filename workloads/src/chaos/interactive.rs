//! Interactive transactions on [cells](super::cells), made with the client library: a draft reads
//! some cells and perhaps a page, writes, and commits. If it was overtaken, it continues from the
//! values found.

use skein_client::{Commit, Draft, KeyRange, Reply, Transaction};

/// Most other transactions sent while a draft waits for an answer, which may never come.
const WAITS_MAX: u32 = 64;

/// The request of a draft.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Key(Vec<u8>),
    Page(KeyRange, u32),
    Commit,
}

/// A draft in progress.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) draft: Draft,
    /// Number of reads before the writes.
    pub(super) reads: u32,
}

/// The draft of an asker.
#[derive(Clone, Debug, Default)]
pub(super) enum Interactive {
    #[default]
    None,
    Open(Open),
    /// The draft waits for the answer to `transaction`.
    Waiting {
        open: Open,
        asked: Asked,
        transaction: Transaction,
        waited: u32,
    },
}

impl Interactive {
    /// The draft if it can continue; `None` if it waits for an answer. A new one begins if there is
    /// none, or if it has waited too long.
    pub(super) fn take(&mut self, begin: impl FnOnce() -> Open) -> Option<Open> {
        match std::mem::take(self) {
            Self::Open(open) => Some(open),
            Self::None | Self::Waiting { waited: WAITS_MAX.., .. } => Some(begin()),
            Self::Waiting { open, asked, transaction, waited } => {
                *self = Self::Waiting { open, asked, transaction, waited: waited + 1 };
                None
            }
        }
    }

    /// Notes the request of a draft.
    pub(super) fn wait(&mut self, open: Open, asked: Asked, transaction: &Transaction) {
        let transaction = transaction.clone();
        *self = Self::Waiting { open, asked, transaction, waited: 0 };
    }

    /// Takes a reply, if it answers the draft's request.
    pub(super) fn told(&mut self, to: &Transaction, reply: &Reply) {
        if !matches!(self, Self::Waiting { transaction, .. } if transaction == to) {
            return;
        }
        let Self::Waiting { mut open, asked, .. } = std::mem::take(self) else { return };
        let reply = Ok(reply.clone());
        // A result that does not fit into a transaction, or is not a number, ends the draft.
        let goes_on = match asked {
            Asked::Key(key) => open.draft.saw(key, reply).is_ok(),
            Asked::Page(range, limit) => open.draft.saw_page(&range, limit, reply).is_ok(),
            Asked::Commit => match open.draft.conclude(Some(reply)) {
                Ok((Commit::Overtaken, draft)) => {
                    *self = Self::Open(Open { draft, reads: 1 });
                    return;
                }
                Ok((Commit::Done, _)) | Err(_) => return,
            },
        };
        if goes_on {
            *self = Self::Open(open);
        }
    }
}
