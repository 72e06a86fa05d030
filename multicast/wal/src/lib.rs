//! The log on disk of a node: one for all of its replicas.
//!
//! Records are opaque bytes of a *group*, with a kind. The log knows nothing of ballots or messages. Its
//! core is arithmetic, as the orderings are: [`Writer`] turns records into writes, [`Recovery`] turns
//! files into records, and neither has a clock or does I/O of its own. [`Disk`] runs them with threads
//! over a real directory, and the simulator over a [`Medium`](files::Medium), a disk that loses power.
//! [`Reading`] reads back what the present start has written, while it writes more.
//!
//! **Invariant.** Whatever [`Writer::durable`] ever covered is handed out by every later recovery, byte
//! for byte and in order, or its group is named as damaged; and nothing is handed out that was not
//! appended. `docs/storage.md` describes the format and says what it rests on.

#![forbid(unsafe_code)]

mod aligned;
pub mod disk;
pub mod files;
pub mod format;
pub mod inspect;
mod lsn;
mod reading;
mod recovery;
mod writer;

pub use aligned::Aligned;
pub use disk::Disk;
pub use lsn::{Group, Lsn, Owner};
pub use reading::{Gone, Progress, Reading};
pub use recovery::{RecoverError, RecoveredGroup, Recovery, Verdict};
pub use writer::{AppendError, Flush, Options, Sizes, Task, Writer};
