//! Clusters whose keys and values are in RocksDB.

use std::fs;

use crate::durable::{kill_all, on_disk};

/// Five of them fit into the budget of the group.
const VALUE_BYTES: usize = 2 << 20;
const BUDGET: u64 = 12 << 20;

#[test]
fn a_group_holds_what_its_budget_on_disk_allows_and_no_more() {
    let (dir, sandbox) = on_disk();
    let text = format!(
        "[topology]\ngroups = 1\n[node]\nstore = \"rocksdb\"\nhot_bytes = \"1MiB\"\n\
         [limits]\nvalue_bytes_max = \"2MiB\"\nmemory_bytes_max = \"512MiB\"\nstore_bytes_max = {BUDGET}\n"
    );
    let up = sandbox.expect(0, &["up", "--detach", "--config", &sandbox.config(&text)]);
    let sizes = "1.0 MiB a node for keys and values, of at most 12.0 MiB on disk";
    assert!(up.out.contains(sizes), "{}", up.out);
    let file = dir.path().join("value");
    fs::write(&file, vec![b'x'; VALUE_BYTES]).expect("it can be written");
    let file = file.to_str().expect("text");
    let put = |code, key: &str| sandbox.expect(code, &["put", key, "--file", file]).err;
    for key in ["one", "two", "three", "four"] {
        put(0, key);
    }
    let warned = "limits.store_bytes_max allows each group";
    let shown = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(shown.contains("durability sync, store rocksdb"), "{shown}");
    assert!(!shown.contains(warned), "{shown}");
    put(0, "five");
    let shown = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(shown.contains(warned), "{shown}");
    let full = |err: &str| err.contains(&format!("and its ceiling is {BUDGET}"));
    let refused = put(3, "six");
    assert!(full(&refused), "{refused}");

    // A restart reads the log: it refuses the same write again, and has all others.
    kill_all(&sandbox);
    sandbox.expect(0, &["up", "--detach"]);
    let refused = put(3, "six");
    assert!(full(&refused), "{refused}");
    for key in ["one", "two", "three", "four", "five"] {
        assert_eq!(sandbox.expect(0, &["get", key]).out.trim().len(), VALUE_BYTES);
    }
    sandbox.expect(0, &["del", "one"]);
    put(0, "six");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}
