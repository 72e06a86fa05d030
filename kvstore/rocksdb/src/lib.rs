//! A store in RocksDB, for data larger than memory. Built with the feature `rocksdb`.
//!
//! RocksDB holds the *state* of a replica, and no log: it writes no log of its own. A state on disk is one that the
//! store once had, and names its position in the order of the replica's group. What came after that position is in the
//! log of the node, and is executed again.
//!
//! **Invariant (one cut).** Each batch contains its pairs, the number of keys, the bytes and the digest of all pairs
//! after it, and the position. RocksDB applies a batch whole, keeps all of them in one sequence, and writes them to disk
//! in that sequence. So whatever is on disk is the state after a prefix of the batches.
//!
//! A state that a start is to begin with is kept as a [checkpoint](Checkpoints).
//!
//! `docs/storage.md` describes the keys and values byte by byte.

#![cfg(feature = "rocksdb")]

mod checkpoints;
mod database;
mod error;
mod guard;
mod range;
mod state;
mod store;
mod tiered;

pub use self::checkpoints::Checkpoints;
pub use self::database::Options;
pub use self::guard::Guard;
pub use self::state::Owner;
pub use self::store::RocksStore;
pub use self::tiered::{TieredOptions, TieredStore, Wake};
