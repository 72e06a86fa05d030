//! The store keeps the promises of `Store`, whatever of it is in memory and on disk.

mod both;
#[path = "../../tests/conformance/mod.rs"]
mod conformance;
mod opened;

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::store::Store;

use crate::both::Both;
use crate::conformance::{conforms, step};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_store_in_rocksdb_conforms(first in vec(step(), 0..100), then in vec(step(), 0..100)) {
        let mut store = Both::default();
        conforms(&mut store, first);
        // What is removed is still in lower layers, and must not be seen.
        store.clear().unwrap();
        conforms(&mut store, then);
    }
}
