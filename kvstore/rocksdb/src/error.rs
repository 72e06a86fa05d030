//! Errors of RocksDB, as errors of a store.

use std::io;
use std::path::Path;

use rocksdb::{Error, ErrorKind};
use skein_kvstore::store::StoreError;

/// Text of RocksDB's error after `ENOSPC`.
const NO_SPACE: &str = "No space left on device";

/// Turns an error of the store in `path` into one that says what to do. RocksDB's text names the file, if it is one.
pub(crate) fn explain(error: &Error, attempt: &'static str, path: &Path) -> StoreError {
    explain_text(error.kind(), error.as_ref(), attempt, path)
}

fn explain_text(kind: ErrorKind, text: &str, attempt: &'static str, path: &Path) -> StoreError {
    let file = path.to_owned();
    match kind {
        _ if text.contains(NO_SPACE) => StoreError::Full { file },
        ErrorKind::Corruption => StoreError::Damaged { file, what: text.to_owned() },
        _ => StoreError::System { attempt, file, source: io::Error::other(text.to_owned()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_says_what_to_do() {
        let explained = |kind, text| explain_text(kind, text, "write", Path::new("/data/g0"));
        let full = "IO error: No space left on device: While appending to file: /data/g0/9.sst";
        assert!(matches!(explained(ErrorKind::IOError, full), StoreError::Full { .. }));
        let damaged = "Corruption: block checksum mismatch: in /data/g0/9.sst";
        let error = explained(ErrorKind::Corruption, damaged);
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what == damaged));
        let error = explained(ErrorKind::IOError, "IO error: Input/output error: /data/g0/9.sst");
        assert!(matches!(&error, StoreError::System { attempt: "write", .. }));
        assert!(error.to_string().contains("/data/g0/9.sst"));
    }
}
