//! Skein's client library.

pub mod blocking;
pub mod driver;
mod error;
mod operations;

pub use blocking::Client;
pub use driver::{Driver, SessionKey, Ticket};
pub use error::{Error, Unavailability};
pub use operations::{KeyRange, Swap};
pub use skein_kvstore::command::{
    Compare, Guard, Key, Operation, Test, Transaction, Value, Version,
};
pub use skein_kvstore::reply::{Outcome, Page, Refusal, Reply};
