//! What must be refused, and that nothing of it is done.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Outcome, Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::{Command, Part, Request};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

use crate::cluster::{Cluster, Random};
use crate::strategy::{LIMITS, transaction};

const SESSION: SessionId = SessionId(7);

fn opened(groups: u16, limits: Limits) -> Cluster {
    let mut cluster = Cluster::new(groups, limits, 5);
    let open = Plan::open(&cluster.slots);
    cluster.order(MessageId::new(SESSION, 1), 1, open.destinations(), open.request());
    cluster.run();
    cluster
}

fn send(
    cluster: &mut Cluster,
    limits: &Limits,
    sequence: u64,
    transaction: &Transaction,
) -> Result<Reply, Refusal> {
    let plan = Plan::of(transaction, &cluster.slots, limits)?;
    let message = MessageId::new(SESSION, sequence);
    cluster.order(message, sequence, plan.destinations(), plan.request());
    cluster.run();
    plan.join(cluster.parts(message))
}

/// A key of `group`, not so long that a tree keeps it apart.
fn key_in(slots: &SlotMap, group: u16, number: usize) -> Vec<u8> {
    let mut keys = (0..).map(|n| format!("{number}-{n}").into_bytes());
    keys.find(|key| slots.owner(key) == GroupId(group)).expect("every group owns slots")
}

#[test]
fn what_no_group_could_do_is_refused_before_it_is_sent() {
    let slots = SlotMap::even(2);
    let get = |key: Vec<u8>| Operation::Get { key };
    let scan = |limit| Operation::Scan { start: vec![], end: None, limit };
    let many = Transaction { then: vec![get(vec![]); 31], ..Transaction::default() };
    let large = Operation::Put { key: b"k".to_vec(), value: vec![0; 21] };
    let untaken = Transaction::default().otherwise(large.clone());
    let patch = Operation::Patch { key: vec![], offset: u32::MAX, bytes: vec![1] };
    let tall = Transaction::default().guard("k", Test::Equals(vec![0; 5000]));
    type Is = fn(&Refusal) -> bool;
    #[rustfmt::skip]
    let cases: [(Transaction, Is, &str); 8] = [
        (many,                                     |r| *r == Refusal::TooManyKeys { keys: 31, max: 30 },  "too many keys"),
        (Transaction::of(get(vec![0; 41])),        |r| *r == Refusal::KeyTooLarge { len: 41, max: 40 },   "too long a key"),
        (Transaction::of(large),                   |r| matches!(r, Refusal::ValueTooLarge { len: 21, max: 20, .. }), "too long a value"),
        (untaken,                                  |r| matches!(r, Refusal::ValueTooLarge { .. }),        "in a branch that is not taken too"),
        (Transaction::of(patch),                   |r| matches!(r, Refusal::ValueTooLarge { .. }),        "a patch far out"),
        (Transaction::of(scan(0)),                 |r| matches!(r, Refusal::Malformed(_)),                "a page of nothing"),
        (Transaction { then: vec![scan(1), scan(1)], ..Transaction::default() },
                                                   |r| matches!(r, Refusal::Malformed(_)),                "two scans"),
        (tall,                                     |r| matches!(r, Refusal::TransactionTooLarge { max: 4096, .. }), "too many bytes"),
    ];
    for (transaction, is_right, because) in cases {
        let refusal = Plan::of(&transaction, &slots, &LIMITS).expect_err(because);
        assert!(is_right(&refusal), "{because}: {refusal}");
        // And if a sender does not ask, the machines refuse alike, in every group.
        let mut cluster = opened(2, LIMITS);
        let request = Request::Transaction(Command {
            epoch: cluster.slots.epoch,
            transaction: transaction.borrowed(),
        });
        let message = MessageId::new(SESSION, 2);
        cluster.order(message, 1, GroupSet::first(2), &request.encode());
        cluster.run();
        for (group, bytes) in cluster.parts(message) {
            assert_eq!(Part::decode(bytes), Ok(Part::Refused(refusal.clone())), "{group}");
        }
    }
}

#[test]
fn a_command_for_other_groups_or_another_map_is_refused_in_all() {
    let mut cluster = opened(3, LIMITS);
    let key = key_in(&cluster.slots, 0, 0);
    let put = Transaction::of(Operation::Put { key, value: b"1".to_vec() });
    let send = |cluster: &mut Cluster, sequence, epoch, groups: GroupSet| {
        let request = Request::Transaction(Command { epoch, transaction: put.borrowed() });
        let message = MessageId::new(SESSION, sequence);
        cluster.order(message, 1, groups, &request.encode());
        cluster.run();
        let parts = cluster.parts(message).into_iter();
        parts.map(|(_, bytes)| format!("{:?}", Part::decode(bytes))).collect::<Vec<_>>()
    };
    let elsewhere = send(&mut cluster, 2, 1, GroupSet::first(2));
    assert!(elsewhere.iter().all(|part| part.contains("Malformed")), "{elsewhere:?}");
    let outdated = send(&mut cluster, 3, 2, GroupSet::single(GroupId(0)));
    assert!(outdated.iter().all(|part| part.contains("WrongEpoch")), "{outdated:?}");
    assert!(cluster.machines.values().all(|machine| machine.keys() == 0));
}

#[test]
fn what_says_that_it_only_reads_and_writes_is_refused_and_done_nowhere() {
    let put = Operation::Put { key: b"a".to_vec(), value: b"1".to_vec() };
    let get = Operation::Get { key: b"a".to_vec() };
    let cases = [
        Transaction::of(put.clone()),
        Transaction::of(get.clone()).then(put.clone()),
        Transaction::of(get.clone()).otherwise(put),
        Transaction::of(get).guard("a", Test::Missing),
    ];
    for transaction in cases {
        let mut cluster = opened(2, LIMITS);
        let request = Request::Read(Command { epoch: 1, transaction: transaction.borrowed() });
        let message = MessageId::new(SESSION, 2);
        // Sent to all groups, which must not wait for each other either.
        cluster.order(message, 1, GroupSet::first(2), &request.encode());
        cluster.run();
        for (group, bytes) in cluster.parts(message) {
            let refused = matches!(Part::decode(bytes), Ok(Part::Refused(Refusal::Malformed(_))));
            assert!(refused, "{group}: {transaction:?}");
        }
        assert!(cluster.machines.values().all(|machine| machine.keys() == 0));
    }
}

#[test]
fn one_group_s_refusal_is_every_group_s() {
    let limits = Limits::default();
    let mut cluster = opened(3, limits);
    let keys: Vec<_> = (0..3).map(|group| key_in(&cluster.slots, group, 0)).collect();
    let text = Transaction::of(Operation::Put { key: keys[2].clone(), value: b"text".to_vec() });
    send(&mut cluster, &limits, 2, &text).unwrap();
    let there = Transaction::of(Operation::Put { key: keys[1].clone(), value: b"1".to_vec() });
    send(&mut cluster, &limits, 3, &there).unwrap();
    let held =
        |cluster: &Cluster| -> Vec<_> { cluster.machines.values().map(Machine::keys).collect() };
    let before = held(&cluster);
    let transaction = Transaction::default()
        .then(Operation::Put { key: keys[0].clone(), value: b"1".to_vec() })
        .then(Operation::Delete { key: keys[1].clone() })
        .then(Operation::Increment { key: keys[2].clone(), by: 1 });
    let refused = send(&mut cluster, &limits, 4, &transaction);
    assert_eq!(refused, Err(Refusal::NotANumber { key: keys[2].clone() }));
    assert_eq!(held(&cluster), before, "nothing was done anywhere");
}

#[test]
fn the_ceiling_refuses_growth_and_nothing_else() {
    let limits = Limits { memory_bytes_max: 16 << 20, ..Limits::default() };
    let mut cluster = opened(2, limits);
    let slots = cluster.slots.clone();
    let put = |group, number, len| {
        let key = key_in(&slots, group, number);
        Transaction::of(Operation::Put { key, value: vec![7; len] })
    };
    let mut sequence = 1;
    let mut next = || {
        sequence += 1;
        sequence
    };
    // Half of 16 MiB each: seven values of a mebibyte, and a little.
    for number in 0..7 {
        send(&mut cluster, &limits, next(), &put(0, number, 1 << 20)).expect("there is room");
    }
    let refusal = send(&mut cluster, &limits, next(), &put(0, 7, 1 << 20)).unwrap_err();
    let Refusal::OutOfMemory { group: 0, used, ceiling } = refusal else { panic!("{refusal}") };
    assert!(used <= ceiling && ceiling == 8 << 20, "{refusal}");

    // The other group has room, but not for half a transaction.
    let key = |group, number| key_in(&slots, group, number);
    let both = Transaction::default()
        .then(Operation::Put { key: key(1, 0), value: b"1".to_vec() })
        .then(Operation::Append { key: key(0, 8), value: vec![7; 1 << 20] });
    let refused = send(&mut cluster, &limits, next(), &both);
    assert!(matches!(refused, Err(Refusal::OutOfMemory { group: 0, .. })), "{refused:?}");
    assert_eq!(cluster.machines[&(1, 0)].keys(), 0);

    // Overwriting with as much, reading, deleting, and deleting for something else all work.
    send(&mut cluster, &limits, next(), &put(0, 0, 1 << 20)).expect("as large as before");
    let instead = Transaction::default()
        .then(Operation::Put { key: key(0, 9), value: vec![7; 1 << 20] })
        .then(Operation::Delete { key: key(0, 1) });
    send(&mut cluster, &limits, next(), &instead).expect("one for another");
    let get = Transaction::of(Operation::Get { key: key(0, 9) });
    let got = send(&mut cluster, &limits, next(), &get).unwrap();
    assert!(matches!(&got.outcomes[..], [Outcome::Value(Some((v, _)))] if v.len() == 1 << 20));
    send(&mut cluster, &limits, next(), &Transaction::of(Operation::Delete { key: key(0, 2) }))
        .expect("deleting always works");
    send(&mut cluster, &limits, next(), &put(0, 7, 1 << 20)).expect("there is room again");
}

#[test]
fn a_reply_too_large_is_refused_before_anything_is_done() {
    let limits = Limits::default();
    let mut cluster = opened(2, limits);
    let key = |number| key_in(&SlotMap::even(2), 0, number);
    for number in 0..5 {
        let put = Operation::Put { key: key(number), value: vec![7; 1 << 20] };
        send(&mut cluster, &limits, 2 + number as u64, &Transaction::of(put)).unwrap();
    }
    let reads = (0..5).map(|number| Operation::Get { key: key(number) });
    let mut all = Transaction { then: reads.collect(), ..Transaction::default() };
    let refused = Err(Refusal::ReplyTooLarge { group: 0, max: 4 << 20 });
    assert_eq!(send(&mut cluster, &limits, 10, &all), refused);
    let elsewhere = key_in(&cluster.slots, 1, 0);
    send(
        &mut cluster,
        &limits,
        11,
        &Transaction::of(Operation::Put { key: elsewhere.clone(), value: vec![] }),
    )
    .unwrap();
    all.then.push(Operation::Delete { key: elsewhere });
    assert_eq!(send(&mut cluster, &limits, 12, &all), refused);
    assert_eq!(cluster.machines[&(1, 0)].keys(), 1, "the delete beside it was not done");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_request_comes_back_as_it_was_sent(transaction in transaction(), epoch in any::<u32>()) {
        let command = Command { epoch, transaction: transaction.borrowed() };
        for request in [Request::Transaction(command.clone()), Request::Read(command)] {
            let bytes = request.encode();
            prop_assert_eq!(Request::is_read(&bytes), matches!(request, Request::Read(_)));
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            for len in 0..bytes.len() {
                prop_assert!(Request::decode(&bytes[..len]).is_err(), "cut at {}", len);
            }
            prop_assert!(Request::decode(&[&bytes[..], &[0]].concat()).is_err(), "with more behind");
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in vec(any::<u8>(), 0..60)) {
        let _ = Part::decode(&bytes);
        let mut versioned = vec![skein_kvstore::wire::VERSION];
        versioned.extend(&bytes);
        let _ = Part::decode(&versioned);
        for payload in [&bytes, &versioned] {
            refused_or_done_alike(payload);
        }
    }

    #[test]
    fn no_damaged_request_does_harm(
        transaction in transaction(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let command = Command { epoch: 1, transaction: transaction.borrowed() };
        for request in [Request::Transaction(command.clone()), Request::Read(command)] {
            let mut bytes = request.encode();
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            refused_or_done_alike(&bytes);
        }
    }

    #[test]
    fn pages_of_any_sizes_join_without_a_hole(
        lens in vec(0usize..=20, 1..30),
        groups in 1u16..5,
        limit in 1u32..10,
        seed in 1u64..,
    ) {
        let mut cluster = opened(groups, LIMITS);
        let mut random = Random(seed);
        for (sequence, len) in (2u64..).zip(&lens) {
            let key = vec![random.below(256) as u8, random.below(256) as u8];
            let put = Transaction::of(Operation::Put { key, value: vec![0; *len] });
            send(&mut cluster, &LIMITS, sequence, &put).unwrap();
        }
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut start = Some(Vec::new());
        for sequence in 100.. {
            let Some(from) = start.take() else { break };
            let scan = Operation::Scan { start: from, end: None, limit };
            let reply = send(&mut cluster, &LIMITS, sequence, &Transaction::of(scan)).unwrap();
            for (group, bytes) in cluster.parts(MessageId::new(SESSION, sequence)) {
                let Ok(Part::Done { outcomes, .. }) = Part::decode(bytes) else { panic!("done") };
                let [Outcome::Page(page)] = &outcomes[..] else { panic!("{group} gives a page") };
                let bytes: usize = page.pairs.iter().map(|(k, v)| k.0.len() + v.0.len()).sum();
                prop_assert!(page.pairs.len() <= (limit as usize).min(LIMITS.scan_pairs_max));
                prop_assert!(page.pairs.len() == 1 || bytes <= LIMITS.scan_page_bytes_max);
            }
            let [Outcome::Page(page)] = &reply.outcomes[..] else { panic!("a scan gives a page") };
            prop_assert!(!page.pairs.is_empty() && page.pairs.len() <= limit as usize);
            seen.extend(page.pairs.iter().map(|(key, _)| key.clone()));
            start.clone_from(&page.next);
        }
        prop_assert!(seen.is_sorted_by(|a, b| a < b));
        let keys: u64 = (0..groups).map(|group| cluster.machines[&(group, 0)].keys()).sum();
        prop_assert_eq!(seen.len() as u64, keys);
    }
}

/// Whatever it is, all groups do the same about it, and it is answered.
fn refused_or_done_alike(payload: &[u8]) {
    let mut cluster = opened(2, LIMITS);
    let message = MessageId::new(SESSION, 2);
    cluster.order(message, 1, GroupSet::first(2), payload);
    cluster.run();
    let parts = cluster.parts(message);
    assert_eq!(parts.len(), 2, "every group answers");
    let kinds: Vec<_> = parts
        .iter()
        .map(|(_, bytes)| match Part::decode(bytes).expect("a part can be read") {
            Part::Done { held, .. } => Some(held),
            Part::Refused(_) | Part::RefusedElsewhere => None,
        })
        .collect();
    assert_eq!(kinds[0], kinds[1]);
}
