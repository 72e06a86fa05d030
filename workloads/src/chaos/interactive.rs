//! Interactive transactions on [cells](super::cells), as the client library makes them: a draft reads some cells
//! and perhaps a page, writes, and commits; if it was overtaken, it goes on from what it found.

use skein_client::{Commit, Draft, KeyRange, Reply, Transaction};

/// So many other things are asked for while a draft waits for an answer, at most: it may never come.
const WAITS_MAX: u32 = 64;

/// What a draft has asked the cluster for.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Key(Vec<u8>),
    Page(KeyRange, u32),
    Commit,
}

/// A draft, and how far it is.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) draft: Draft,
    /// It reads so many things more before it writes.
    pub(super) reads: u32,
}

/// The draft that somebody works on.
#[derive(Clone, Debug, Default)]
pub(super) enum Interactive {
    #[default]
    None,
    Open(Open),
    /// It has asked for something.
    Waiting {
        open: Open,
        asked: Asked,
        transaction: Transaction,
        waited: u32,
    },
}

impl Interactive {
    /// The draft that can go on; `None` if it waits for an answer. There is another one if there is none, or
    /// if it has waited for too long.
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

    /// A draft asks for something.
    pub(super) fn wait(&mut self, open: Open, asked: Asked, transaction: &Transaction) {
        let transaction = transaction.clone();
        *self = Self::Waiting { open, asked, transaction, waited: 0 };
    }

    /// Takes in the answer, if it is one to what the draft has asked for.
    pub(super) fn told(&mut self, to: &Transaction, reply: &Reply) {
        if !matches!(self, Self::Waiting { transaction, .. } if transaction == to) {
            return;
        }
        let Self::Waiting { mut open, asked, .. } = std::mem::take(self) else { return };
        let reply = Ok(reply.clone());
        // What does not fit into a transaction, or is no number, ends it.
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
