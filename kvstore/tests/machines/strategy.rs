//! Random commands. They use few keys, so that commands conflict, and small limits, so that commands exceed
//! them.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Compare, Guard, Operation, Test, Transaction};
use skein_kvstore::limits::Limits;

pub(crate) const LIMITS: Limits = Limits {
    key_bytes_max: 40,
    value_bytes_max: 20,
    transaction_keys_max: 30,
    transaction_bytes_max: 4096,
    reply_bytes_max: 4096,
    scan_pairs_max: 6,
    scan_page_bytes_max: 40,
    memory_bytes_max: 1 << 30,
    store_bytes_max: 0,
};

pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (b'a'..b'k').prop_map(|c| vec![c]),
        1 => Just(b"a key too long to stand in a node".to_vec()),
        1 => Just(Vec::new()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(any::<u8>(), 0..=10),
        2 => (-20i64..20).prop_map(|n| n.to_string().into_bytes()),
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN)].prop_map(|n| n.to_string().into_bytes()),
        1 => prop_oneof![Just("+5"), Just("-"), Just("007"), Just("9223372036854775808")]
            .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn test() -> impl Strategy<Value = Test> {
    let compare = prop_oneof![
        Just(Compare::Less),
        Just(Compare::AtMost),
        Just(Compare::Equal),
        Just(Compare::AtLeast),
        Just(Compare::Greater)
    ];
    prop_oneof![
        2 => Just(Test::Exists),
        2 => Just(Test::Missing),
        1 => value().prop_map(Test::Equals),
        1 => (0u64..40).prop_map(Test::Version),
        2 => (compare, -5i64..5).prop_map(|(compare, number)| Test::Number { compare, number }),
        2 => prop::option::of(key()).prop_map(|end| Test::Unchanged { end, held: Vec::new() }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let by = prop_oneof![4 => -10i64..10, 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
    prop_oneof![
        3 => key().prop_map(|key| Operation::Get { key }),
        1 => key().prop_map(|key| Operation::Exists { key }),
        4 => (key(), value()).prop_map(|(key, value)| Operation::Put { key, value }),
        2 => key().prop_map(|key| Operation::Delete { key }),
        3 => (key(), value()).prop_map(|(key, value)| Operation::Append { key, value }),
        4 => (key(), by).prop_map(|(key, by)| Operation::Increment { key, by }),
        3 => (key(), 0u32..10, vec(any::<u8>(), 0..=10))
            .prop_map(|(key, offset, bytes)| Operation::Patch { key, offset, bytes }),
        2 => (key(), prop::option::of(key()), 1u32..12)
            .prop_map(|(start, end, limit)| Operation::Scan { start, end, limit }),
    ]
}

/// Single operations, and branches of several with and without guards.
pub(crate) fn transaction() -> impl Strategy<Value = Transaction> {
    let guard = (key(), test()).prop_map(|(key, test)| Guard { key, test });
    let branch = || vec(operation(), 0..6).prop_map(one_scan);
    prop_oneof![
        2 => operation().prop_map(Transaction::of),
        1 => branch().prop_map(|then| Transaction { then, ..Transaction::default() }),
        2 => (vec(guard, 0..3), branch(), branch())
            .prop_map(|(guards, then, otherwise)| Transaction { guards, then, otherwise }),
    ]
}

fn one_scan(mut branch: Vec<Operation>) -> Vec<Operation> {
    let mut scans = 0;
    branch.retain(|operation| {
        scans += usize::from(matches!(operation, Operation::Scan { .. }));
        scans <= 1 || !matches!(operation, Operation::Scan { .. })
    });
    branch
}
