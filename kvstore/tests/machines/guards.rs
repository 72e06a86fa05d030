//! Commands that must be refused, and that nothing of them is executed.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::range::RangeDigest;
use skein_kvstore::reply::{Outcome, Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::{Command, Part, Request};
use skein_multicast::application::Application;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

use crate::cluster::{Cluster, Random};
use crate::strategy::{LIMITS, transaction};
use crate::tested::{self, Machine};

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

/// A key of `group`, short enough to be kept in place in a tree.
fn key_in(slots: &SlotMap, group: u16, number: usize) -> Vec<u8> {
    let mut keys = (0..).map(|n| format!("{number}-{n}").into_bytes());
    keys.find(|key| slots.owner(key) == GroupId(group)).expect("every group owns slots")
}

#[test]
fn what_no_group_could_do_is_refused_before_it_is_sent() {
    let slots = SlotMap::even(2);
    let get = |key: Vec<u8>| Operation::Get { key };
    let scan = |limit| Operation::Scan { start: vec![], end: None, limit };
    let many =
        Transaction { then: (0..31).map(|n| get(vec![n])).collect(), ..Transaction::default() };
    let often = Transaction { then: vec![get(vec![]); 121], ..Transaction::default() };
    let large = Operation::Put { key: b"k".to_vec(), value: vec![0; 21] };
    let untaken = Transaction::default().otherwise(large.clone());
    let patch = Operation::Patch { key: vec![], offset: u32::MAX, bytes: vec![1] };
    let tall = Transaction::default().guard("k", Test::Equals(vec![0; 5000]));
    let held = |pairs| vec![RangeDigest { group: 0, pairs, bytes: 9, digest: 0 }];
    let range = |pairs| Test::Unchanged { end: None, held: held(pairs) };
    let watched = Transaction::default().guard("a", range(3)).guard("b", range(4));
    type Is = fn(&Refusal) -> bool;
    #[rustfmt::skip]
    let cases: [(Transaction, Is, &str); 10] = [
        (many,                                     |r| *r == Refusal::TooManyKeys { keys: 31, max: 30 },  "too many keys"),
        (often,                                    |r| *r == Refusal::TooManyKeys { keys: 121, max: 30 }, "one key, too often"),
        (watched,                                  |r| matches!(r, Refusal::RangesTooLarge { pairs: 7, pairs_max: 6, .. }), "ranges of too many pairs"),
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
        // If a sender does not check, the machines refuse the command, alike in every group.
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
        let refusal = |(_, bytes)| match Part::decode(bytes) {
            Ok(Part::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        parts.map(refusal).collect::<Vec<_>>()
    };
    let elsewhere = send(&mut cluster, 2, 1, GroupSet::first(2));
    assert!(elsewhere.iter().all(|it| matches!(it, Refusal::Malformed(_))), "{elsewhere:?}");
    let outdated = send(&mut cluster, 3, 2, GroupSet::single(GroupId(0)));
    assert!(outdated.iter().all(|it| matches!(it, Refusal::WrongEpoch { .. })), "{outdated:?}");
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
        // The command goes to all groups, which must not wait for each other either.
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
    // Each group has half of 16 MiB: room for seven values of 1 MiB and a little more.
    for number in 0..7 {
        send(&mut cluster, &limits, next(), &put(0, number, 1 << 20)).expect("there is room");
    }
    let refusal = send(&mut cluster, &limits, next(), &put(0, 7, 1 << 20)).unwrap_err();
    let Refusal::OutOfMemory { group: 0, used, ceiling } = refusal else { panic!("{refusal}") };
    assert!(used <= ceiling && ceiling == 8 << 20, "{refusal}");

    // The other group has room, but must not execute its half of a transaction alone.
    let key = |group, number| key_in(&slots, group, number);
    let both = Transaction::default()
        .then(Operation::Put { key: key(1, 0), value: b"1".to_vec() })
        .then(Operation::Append { key: key(0, 8), value: vec![7; 1 << 20] });
    let refused = send(&mut cluster, &limits, next(), &both);
    assert!(matches!(refused, Err(Refusal::OutOfMemory { group: 0, .. })), "{refused:?}");
    assert_eq!(cluster.machines[&(1, 0)].keys(), 0);

    // Overwriting with as many bytes, reading, deleting, and replacing one key by another all work.
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

/// Maximum, over the machines, of the bytes of work since the last call.
fn work(cluster: &mut Cluster) -> u64 {
    cluster.machines.values_mut().map(Machine::take_work).max().unwrap_or(0)
}

#[test]
fn a_key_counts_once_however_often_it_is_mentioned() {
    let slots = SlotMap::even(2);
    let keys = || (0..30_u8).map(|n| vec![n]);
    let mut transaction = Transaction::default();
    for key in keys() {
        transaction = transaction.guard(key.clone(), Test::Missing);
        transaction = transaction.then(Operation::Put { key: key.clone(), value: vec![] });
        transaction = transaction.otherwise(Operation::Get { key });
    }
    assert!(Plan::of(&transaction, &slots, &LIMITS).is_ok(), "thirty keys, as many as may be");
    let more = transaction.then(Operation::Get { key: b"more".to_vec() });
    let refused = Plan::of(&more, &slots, &LIMITS).map(drop);
    assert_eq!(refused, Err(Refusal::TooManyKeys { keys: 31, max: 30 }));
}

#[test]
fn a_short_command_does_not_make_an_engine_touch_hundreds_of_megabytes() {
    let limits = Limits::default();
    let mut cluster = opened(2, limits);
    let slots = cluster.slots.clone();
    let far = (limits.value_bytes_max - 1) as u32;
    let patch = |key: Vec<u8>| Operation::Patch { key, offset: far, bytes: vec![1] };
    let key = |number| key_in(&slots, 0, number);
    let all =
        |operations: Vec<Operation>| Transaction { then: operations, ..Transaction::default() };
    let mut sequence = 1;
    let mut next = || {
        sequence += 1;
        sequence
    };
    // The command's bytes show that it is too large. The client refuses to send it, and a machine that receives
    // it executes nothing of it.
    let many = all((0..128).map(|n| patch(key(n))).collect());
    let refusal = Refusal::WritesTooLarge { len: 128 << 20, max: 4 << 20 };
    assert_eq!(Plan::of(&many, &slots, &limits).map(drop), Err(refusal.clone()));
    let request = Request::Transaction(Command { epoch: 1, transaction: many.borrowed() });
    let message = MessageId::new(SESSION, next());
    assert!(request.encode().len() < 4 << 10, "{} bytes", request.encode().len());
    work(&mut cluster);
    cluster.order(message, message.sequence, GroupSet::single(GroupId(0)), &request.encode());
    cluster.run();
    let parts = cluster.parts(message);
    assert_eq!(Part::decode(parts[0].1), Ok(Part::Refused(refusal)));
    let touched = work(&mut cluster);
    assert!(touched < 16 << 10, "{touched} bytes");

    // These results depend on the stored values: a command is refused before the first byte beyond the limit is
    // made.
    for number in 0..5 {
        let value = vec![7; limits.value_bytes_max - 1];
        let put = Transaction::of(Operation::Put { key: key(number), value });
        send(&mut cluster, &limits, next(), &put).unwrap();
    }
    let append = |number| Operation::Append { key: key(number), value: vec![1] };
    let again = [Operation::Delete { key: key(5) }, patch(key(5))];
    #[rustfmt::skip]
    let cases = [
        (all((0..4).map(append).collect()),                 true,  "four values of a mebibyte, made anew"),
        (all((0..5).map(append).collect()),                 false, "and another one"),
        (all(vec![patch(key(5)); 100]),                     true,  "one value, made anew once"),
        (all(again.iter().cycle().take(200).cloned().collect()), false, "one value, made anew a hundred times"),
    ];
    for (transaction, done, because) in cases {
        work(&mut cluster);
        let reply = send(&mut cluster, &limits, next(), &transaction);
        let refused = matches!(reply, Err(Refusal::WritesTooLarge { max, .. }) if max == 4 << 20);
        assert_eq!((reply.is_ok(), refused), (done, !done), "{because}: {reply:?}");
        let touched = work(&mut cluster);
        assert!(touched <= 5 << 20, "{because}: {touched} bytes");
        // Restores the lengths, which may have grown by one byte: the next case must not be refused for that.
        for number in 0..5 {
            let value = vec![7; limits.value_bytes_max - 1];
            let put = Transaction::of(Operation::Put { key: key(number), value });
            send(&mut cluster, &limits, next(), &put).unwrap();
        }
    }
}

#[test]
fn a_long_value_is_not_read_as_a_number() {
    let limits = Limits::default();
    let mut cluster = opened(2, limits);
    let key = key_in(&cluster.slots, 0, 0);
    let mut sequence = 1;
    let mut next = || {
        sequence += 1;
        sequence
    };
    for (zeros, number) in [(60, true), (64, false)] {
        let value = [vec![b'0'; zeros], b"7".to_vec()].concat();
        let put = Transaction::of(Operation::Put { key: key.clone(), value });
        send(&mut cluster, &limits, next(), &put).unwrap();
        let add = Transaction::of(Operation::Increment { key: key.clone(), by: 1 });
        assert_eq!(send(&mut cluster, &limits, next(), &add).is_ok(), number, "{zeros} zeros");
    }
}

#[test]
fn a_guard_on_a_version_holds_of_that_one_alone() {
    let limits = Limits::default();
    let mut cluster = opened(1, limits);
    let put = Transaction::of(Operation::Put { key: b"k".to_vec(), value: b"1".to_vec() });
    let reply = send(&mut cluster, &limits, 2, &put).unwrap();
    let [Outcome::Written(version)] = reply.outcomes[..] else { panic!("{reply:?}") };
    let mut sequence = 2;
    let mut holds = |key: &str, version| {
        sequence += 1;
        let guarded = Transaction::default().guard(key, Test::Version(version));
        send(&mut cluster, &limits, sequence, &guarded).unwrap().held
    };
    assert!(holds("k", version) && !holds("k", 0));
    assert!(holds("absent", 0) && !holds("absent", version));
    for bit in 0..u64::BITS {
        assert!(!holds("k", version ^ 1 << bit), "bit {bit} tells them apart");
        assert!(!holds("absent", 1 << bit), "bit {bit}");
    }
}

#[test]
fn a_guard_on_a_number_compares_as_it_says() {
    use skein_kvstore::command::Compare::{AtLeast, AtMost, Equal, Greater, Less};
    let limits = Limits::default();
    let mut cluster = opened(1, limits);
    for (sequence, (key, value)) in (2..).zip([("n", "-5"), ("max", "9223372036854775807")]) {
        let put = Transaction::of(Operation::Put { key: key.into(), value: value.into() });
        send(&mut cluster, &limits, sequence, &put).unwrap();
    }
    #[rustfmt::skip]
    let cases = [
        // key     with       <      <=     =      >=     >
        ("n",      -6,        [false, false, false, true,  true]),
        ("n",      -5,        [false, true,  true,  true,  false]),
        ("n",      -4,        [true,  true,  false, false, false]),
        ("absent", 0,         [false, true,  true,  true,  false]),
        ("absent", 1,         [true,  true,  false, false, false]),
        ("max",    i64::MAX,  [false, true,  true,  true,  false]),
        ("max",    i64::MIN,  [false, false, false, true,  true]),
        // The lower 32 bits are the same.
        ("max",    -1,        [false, false, false, true,  true]),
    ];
    let mut sequence = 10;
    for (key, number, expected) in cases {
        let held = [Less, AtMost, Equal, AtLeast, Greater].map(|compare| {
            sequence += 1;
            let guarded = Transaction::default().guard(key, Test::Number { compare, number });
            send(&mut cluster, &limits, sequence, &guarded).unwrap().held
        });
        assert_eq!(held, expected, "{key} and {number}");
    }
}

#[test]
fn a_guard_on_a_range_holds_until_something_in_it_changes() {
    let limits = Limits::default();
    let mut cluster = opened(3, limits);
    let slots = cluster.slots.clone();
    let key = |number: u16| format!("r{number:02}").into_bytes();
    let put = |number, value: &str| {
        Transaction::of(Operation::Put { key: key(number), value: value.into() })
    };
    let delete = |number| Transaction::of(Operation::Delete { key: key(number) });
    let mut sequence = 1;
    let mut next = || {
        sequence += 1;
        sequence
    };
    for number in 0..20 {
        send(&mut cluster, &limits, next(), &put(number, "old")).unwrap();
    }
    let scan = Operation::Scan { start: key(5), end: Some(key(15)), limit: 100 };
    let page = send(&mut cluster, &limits, next(), &Transaction::of(scan)).unwrap();
    let [Outcome::Page(page)] = &page.outcomes[..] else { panic!("{page:?}") };
    assert_eq!(page.pairs.len(), 10);
    let of = |group| {
        let pairs = page.pairs.iter().filter(|(key, _)| slots.owner(key) == group);
        RangeDigest::of(group, pairs.map(|(key, value)| (&key[..], &value[..])))
    };
    let held: Vec<_> = slots.groups().iter().map(of).filter(|held| held.pairs > 0).collect();
    assert!(held.len() > 1, "the range is in several groups");
    let guard = Test::Unchanged { end: Some(key(15)), held };
    let guarded = Transaction::default().guard(key(5), guard);
    #[rustfmt::skip]
    let cases = [
        (put(4, "new"),     true,  "before the range"),
        (put(15, "new"),    true,  "behind it"),
        (put(7, "new"),     false, "a value in it"),
        (put(7, "old"),     true,  "it is what it was"),
        (delete(8),         false, "one is gone"),
        (put(8, "old"),     true,  "it is there again"),
        (put(100, "new"),   false, "one came: r100 is between r10 and r11"),
        (delete(100),       true,  "it went"),
    ];
    for (change, holds, because) in cases {
        send(&mut cluster, &limits, next(), &change).unwrap();
        let reply = send(&mut cluster, &limits, next(), &guarded).unwrap();
        assert_eq!(reply.held, holds, "{because}");
    }
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
    #![proptest_config(ProptestConfig::with_cases(tested::cases(300)))]

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

/// All groups answer any payload, and all alike.
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
