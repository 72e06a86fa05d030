//! How the tests open a store.

use skein_rocksdb::{Options, Owner};
use tempfile::TempDir;

pub(crate) const OWNER: Owner = [3; 16];
/// So small that batches are flushed now and then.
pub(crate) const SMALL: Options = Options { cache_bytes: 1 << 20, memtable_bytes: 64 << 10 };

/// A directory that is gone at the end. Not in `/tmp`, which may be in memory.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
