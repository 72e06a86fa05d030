//! The resident memory of the memory store. This test has a process of its own, so that nothing else changes
//! the measurement.

use std::fs;

use skein_kvstore::store::Store;
use skein_kvstore::store::memory::Memory;

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line for it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
    kib << 10
}

#[test]
fn twice_the_keys_and_values_at_most_for_values_of_100_bytes() {
    let mut store = Memory::default();
    let before = resident();
    // The keys come in no order, as hashed ones do: a tree filled in order is denser.
    for n in 0..300_000u64 {
        let key = format!("user{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        store.put(key.as_bytes(), &[b'x'; 100], n).unwrap();
    }
    let taken = resident() - before;
    let ratio = taken as f64 / store.bytes() as f64;
    println!("{taken} bytes for {} of keys and values: {ratio:.2} times", store.bytes());
    assert!(ratio <= 2.0, "{ratio:.2} times");
    // The ceiling must not count less than the store takes.
    let counted = store.bytes() + 96 * store.len() as u64;
    assert!(taken <= counted, "{taken} bytes taken, {counted} counted");
}
