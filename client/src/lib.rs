//! Skein's client library.

pub mod asynchronous;
pub mod blocking;
mod connect;
pub mod driver;
mod error;
mod ledger;
pub mod local;
mod operations;

pub use blocking::Client;
pub use connect::ConnectError;
pub use driver::{Driver, SessionKey, Shape, TIMEOUT_DEFAULT, Ticket};
pub use error::{Error, Unavailability};
pub use operations::{KeyRange, Swap};
pub use skein_kvstore::command::{
    Compare, Guard, Key, Operation, Test, Transaction, Value, Version,
};
pub use skein_kvstore::reply::{Outcome, Page, Refusal, Reply};
