//! Skein's client library: a replicated, sharded key-value store in which every operation takes
//! effect in one strict order.
//!
//! # A tour
//!
//! A [`Client`] is one session with a cluster. [`Client::connect`] finds a cluster that `skein up` started, by its
//! directory. [`local::Cluster`] starts one inside the calling process, as the examples here do, and as an
//! application's own tests can do.
//!
//! ```
//! use skein_client::local::Cluster;
//! use skein_client::{Compare, Error, KeyRange, Operation, Test, Transaction};
//!
//! let cluster = Cluster::local()?;
//! let mut client = cluster.client()?; // or Client::connect("/path/to/the/cluster")?
//!
//! // Keys and values are any bytes.
//! client.put("account:ann", "100")?;
//! client.put("account:bob", "20")?;
//! assert_eq!(client.increment("account:bob", 5)?, 25);
//!
//! // A transaction is sent whole: if all guards hold, `then` is executed, otherwise `otherwise`. Its
//! // keys may be in any shards, and it takes one round of ordering.
//! let transfer = Transaction::default()
//!     .guard("account:ann", Test::Number { compare: Compare::AtLeast, number: 30 })
//!     .then(Operation::Increment { key: "account:ann".into(), by: -30 })
//!     .then(Operation::Increment { key: "account:bob".into(), by: 30 })
//!     .otherwise(Operation::Get { key: "account:ann".into() });
//! assert!(client.transact(&transfer)?.held);
//!
//! // Keys in order, over all shards.
//! let accounts = client.scan(&KeyRange::prefix("account:"), 100)?;
//! assert_eq!(accounts.pairs.len(), 2);
//!
//! // Errors say what happened, and whether the operation can have had an effect.
//! client.put("word", "hello")?;
//! let error = client.increment("word", 1).unwrap_err();
//! assert!(matches!(error, Error::Refused(_)) && error.had_no_effect());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To read, compute, and write only if nothing was changed meanwhile, [begin](Client::begin) a transaction, or let
//! [`attempt`](Client::attempt) repeat it as often as necessary. The commit guards the values read by their versions:
//!
//! ```
//! # use skein_client::Commit;
//! # let cluster = skein_client::local::Cluster::local()?;
//! # let mut client = cluster.client()?;
//! client.put("profile", "old")?;
//! let mut change = client.begin();
//! let old = change.get("profile")?.expect("just put");
//! change.put("profile", [&old[..], b" and new"].concat())?;
//! assert_eq!(change.commit()?, Commit::Done, "nobody else writes here");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which interface
//!
//! | | for | how it waits |
//! |---|---|---|
//! | [`Client`] | threads; one operation at a time, or [many under way](Client::submit) | on the caller's thread |
//! | [`asynchronous::Client`] | tasks; shared by any number of them | on one thread per process and cluster |
//! | [`Driver`] | many sessions on one thread, a callback per operation | when the caller [says so](Driver::wait) |
//!
//! Operations that a session has under way at the same time may take effect in any order. An operation that is invoked
//! after the reply to another takes effect after it.
//!
//! # When something fails
//!
//! Most failures are invisible: operations wait, within [their time](TIMEOUT_DEFAULT), until another leader is elected
//! or a node has come back. [`Error`] has a variant for each reaction of a caller to the others.
//! [`Error::had_no_effect`] returns whether an operation certainly had no effect; if that is open, as after a timeout
//! ([`Error::UnknownOutcome`]), it takes effect once or not at all. A client continues by itself when a group that
//! could not answer can answer again. `docs/clients.md` describes all of this, and [`local`] lets nodes die in an
//! application's own tests.

pub mod asynchronous;
pub mod backup;
pub mod blocking;
mod connect;
mod draft;
pub mod driver;
mod error;
mod inquiry;
mod interactive;
#[cfg(feature = "local")]
pub mod local;
mod operations;
mod pending_operations;
mod reads;

pub use blocking::Client;
pub use connect::ConnectError;
pub use draft::{Commit, Draft, Seen};
pub use driver::{Driver, SessionKey, Shape, TIMEOUT_DEFAULT, Ticket};
pub use error::{Error, Unavailability};
pub use interactive::Interactive;
pub use operations::{KeyRange, Swap};
pub use reads::ReadMode;
pub use skein_fabric::wait::{Waiting, ask_for_short_slices};
pub use skein_kvstore::command::{
    Compare, Guard, Key, Operation, Test, Transaction, Value, Version,
};
pub use skein_kvstore::limits::Limits;
pub use skein_kvstore::reply::{Outcome, Page, Refusal, Reply};
pub use skein_protocol::ids::{GroupId, GroupSet};
