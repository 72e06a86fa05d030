//! Copies of the pairs of all groups, at one place in the order.

use std::collections::BTreeMap;
use std::convert::Infallible;

use skein_client::backup::{Backup, Sink};
use skein_kvstore::backup::{Mark, Record};

use crate::clusters::local;

/// Values and versions.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// The pairs of each group.
#[derive(Default)]
struct Pairs(BTreeMap<u16, Map>);

impl Pairs {
    fn add(&mut self, group: u16, mut records: &[u8]) {
        let pairs = self.0.get_mut(&group).expect("it was begun");
        while let Some(Record { key, value, version }) = Record::take(&mut records) {
            match value {
                Some(value) => pairs.insert(key.to_vec(), (value.to_vec(), version)),
                None => pairs.remove(key),
            };
        }
    }
}

impl Sink for Pairs {
    type Error = Infallible;

    fn begin(&mut self, group: u16) -> Result<(), Infallible> {
        self.0.insert(group, Map::new());
        Ok(())
    }

    fn walk(&mut self, group: u16, records: &[u8]) -> Result<(), Infallible> {
        self.add(group, records);
        Ok(())
    }

    fn change(&mut self, group: u16, records: &[u8]) -> Result<(), Infallible> {
        self.add(group, records);
        Ok(())
    }
}

/// Two accounts of each number, in any groups, always have the same balance.
#[test]
fn a_backup_has_no_transaction_by_halves_and_all_that_was_acknowledged() {
    use skein_client::{Operation, Transaction};
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let value = vec![b'x'; 2_000];
    for number in 0..500 {
        client.put(format!("before/{number}"), &value).unwrap();
    }
    let mut driver = cluster.driver().unwrap();
    let mut pairs = Pairs::default();
    let mut backup = Backup::begin(&mut driver).unwrap();
    let mut round = 0_u32;
    let marks = loop {
        if let Some(marks) = backup.step(&mut pairs).unwrap() {
            break marks;
        }
        let put = |side: &str| Operation::Put {
            key: format!("{side}/{}", round % 20).into_bytes(),
            value: round.to_string().into_bytes(),
        };
        client.transact(&Transaction::of(put("left")).then(put("right"))).unwrap();
        round += 1;
    };
    backup.end().unwrap();
    for (group, mark) in (0..).zip(&marks) {
        let mut found = Mark { position: mark.position, keys: 0, bytes: 0, digest: 0 };
        for (key, (value, version)) in &pairs.0[&group] {
            let record = Record { key, value: Some(value), version: *version };
            found.keys += 1;
            found.bytes += (key.len() + value.len()) as u64;
            found.digest = found.digest.wrapping_add(record.digest());
        }
        assert_eq!(found, *mark, "group {group}");
    }
    let all: Map = pairs.0.into_values().flatten().collect();
    for number in 0..500 {
        assert_eq!(all[format!("before/{number}").as_bytes()].0, value);
    }
    assert!(round > 0);
    for number in 0..round.min(20) {
        let side =
            |side: &str| all.get(format!("{side}/{number}").as_bytes()).map(|found| &found.0);
        assert_eq!(side("left"), side("right"), "account {number}");
    }
}
