//! A copy of a machine equals that machine.
//!
//! Every test here that runs a cluster replaces machines by copies of others as it goes. These tests change as
//! much as they can during a copy.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Operation, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Refusal;
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::{Part, Request};
use skein_multicast::application::{Application, Delivery, Malformed, NotRestored};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::{Cluster, Words, fetch, ripen};
use crate::strategy::{LIMITS, transaction};
use crate::tested::{self, Machine};

const SESSIONS: u64 = 4;
/// Number of sequence numbers for which replies to a session are retained, however low its mark.
const WINDOW: u64 = 1 << 13;
const NODE: SessionId = SessionId(u64::MAX);

#[derive(Clone, Debug)]
enum Step {
    /// Session, distance of the sequence number from its last one, distance of the low-water mark below that,
    /// and transaction.
    Transaction(u64, u64, u64, Transaction),
    Open(u64),
    Close(u64),
    Expire(u64),
    Again(u16, usize),
    /// Delivers everything everywhere before the next step.
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![20 => Just(1u64), 4 => 1u64..4, 1 => 8_000u64..9_000];
    let lag = prop_oneof![3 => 0u64..4, 3 => 0u64..40, 1 => 0u64..10_000];
    let session = || 0..SESSIONS;
    prop_oneof![
        30 => (session(), gap, lag, transaction())
            .prop_map(|(session, gap, lag, what)| Step::Transaction(session, gap, lag, what)),
        1 => session().prop_map(Step::Open),
        1 => session().prop_map(Step::Close),
        1 => session().prop_map(Step::Expire),
        3 => (any::<u16>(), any::<usize>()).prop_map(|(group, which)| Step::Again(group, which)),
        2 => Just(Step::Settle),
    ]
}

/// A transaction that was sent, and whether it only reads.
struct Sent {
    message: MessageId,
    destinations: GroupSet,
    only_reads: bool,
}

/// Limits with so little memory that writes are refused, and replies to reads forgotten.
fn tight(groups: u16) -> Limits {
    Limits { memory_bytes_max: u64::from(groups) * (11 << 10), ..LIMITS }
}

fn check(groups: u16, steps: Vec<Step>, seed: u64) {
    let limits = tight(groups);
    let mut cluster = Cluster::new(groups, limits, seed);
    let all = cluster.slots.groups();
    let mut last = [1; SESSIONS as usize];
    let mut marks = [0; SESSIONS as usize];
    let mut ended = [false; SESSIONS as usize];
    let (mut sent, mut named) = (Vec::new(), Vec::new());
    let control = |cluster: &mut Cluster, message, request: &Request<'_>| {
        cluster.order(message, 1, all, &request.encode());
    };
    for session in 0..SESSIONS {
        control(&mut cluster, MessageId::new(SessionId(session), 1), &Request::Open);
    }
    for (at, step) in (1..).zip(steps) {
        match step {
            Step::Transaction(session, gap, lag, what) => {
                let sequence = &mut last[session as usize];
                *sequence += gap;
                let message = MessageId::new(SessionId(session), *sequence);
                let plan = Plan::of(&what, &cluster.slots, &limits).expect("a good form");
                let low_water = sequence.saturating_sub(lag);
                cluster.order(message, low_water, plan.destinations(), plan.request());
                let mark = &mut marks[session as usize];
                *mark = low_water.max(*mark);
                let mut operations = what.then.iter().chain(&what.otherwise);
                let only_reads = operations.all(Operation::is_read);
                sent.push(Sent { message, destinations: plan.destinations(), only_reads });
                named.push(message);
            }
            // Opens another session, so that the table grows while it is copied.
            Step::Open(session) => {
                let session = SessionId(session + SESSIONS * at);
                control(&mut cluster, MessageId::new(session, 1), &Request::Open);
            }
            Step::Close(session) => {
                ended[session as usize] = true;
                last[session as usize] += 1;
                let message = MessageId::new(SessionId(session), last[session as usize]);
                control(&mut cluster, message, &Request::Close);
                named.push(message);
            }
            Step::Expire(session) => {
                ended[session as usize] = true;
                let request = Request::Expire(vec![SessionId(session)]);
                control(&mut cluster, MessageId::new(NODE, at), &request);
            }
            Step::Again(group, which) => cluster.order_again(GroupId(group % groups), which),
            Step::Settle => cluster.run(),
        }
    }
    cluster.run();
    // Any replica may lead next and receive a duplicate of any message: all must give the same answer.
    for message in named {
        for group in all.iter() {
            cluster.repeat(group, message);
        }
    }
    // Each group still answers duplicates of messages that their sessions have not released.
    for Sent { message, destinations, only_reads } in sent {
        let at = message.session.0 as usize;
        let outside = message.sequence + WINDOW <= last[at];
        if ended[at] || message.sequence < marks[at] || outside {
            continue;
        }
        let parts: BTreeMap<_, _> = cluster.parts(message).into_iter().collect();
        let answered: Vec<_> =
            destinations.iter().map(|group| (group, parts[&group].to_vec())).collect();
        for (group, first) in answered {
            let again = cluster.repeat(group, message).expect("it is owed");
            let forgotten = Ok(Part::Refused(Refusal::Forgotten));
            assert!(again == first || (only_reads && Part::decode(&again) == forgotten));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tested::cases(120)))]
    #[test]
    fn whatever_happens_meanwhile(
        groups in 1u16..4,
        steps in vec(step(), 1..80),
        seed in any::<u64>(),
    ) {
        check(groups, steps, seed);
    }

    /// Parts that were cut or changed are refused, and a good copy can be restored afterwards.
    #[test]
    fn damaged_parts_are_refused(
        transactions in vec(transaction(), 0..20),
        budget in 1usize..2_000,
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let (source, parts) = copied(&transactions, budget);
        let which = which.index(parts.len());
        let good = &parts[which];
        let mut changed = good.clone();
        for (at, byte) in damage {
            let at = at.index(changed.len());
            changed[at] ^= byte;
        }
        for bad in [&good[..cut.index(good.len())], &changed[..]] {
            if bad == good {
                continue;
            }
            let mut machine = machine(0);
            for (number, part) in parts[..which].iter().enumerate() {
                prop_assert_eq!(machine.restore(part, false).unwrap(), Ok(()), "part {}", number);
            }
            let last = which == parts.len() - 1;
            prop_assert_eq!(machine.restore(bad, last).unwrap(), Err(Malformed));
            if which > 0 {
                prop_assert_eq!(machine.restore(good, last).unwrap(), Err(Malformed), "there is a hole");
            }
            restore_all(&mut machine, &parts);
            prop_assert_eq!(machine.digest().unwrap(), source.digest().unwrap());
            prop_assert_eq!(machine.history(), source.history());
        }
    }

    /// Damaged records with a good checksum do no harm, even if they are accepted.
    #[test]
    fn no_nonsense_does_harm(
        transactions in vec(transaction(), 0..20),
        budget in 1usize..2_000,
        which in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let (source, mut parts) = copied(&transactions, budget);
        let good = parts.clone();
        let bad = which.index(parts.len());
        for (at, byte, insert) in damage {
            let sealed = parts[bad].len() - 8;
            // The header has tests of its own.
            let at = (7 + at.index(sealed - 7 + 1)).min(sealed);
            if insert || at == sealed {
                parts[bad].insert(at, byte);
            } else {
                parts[bad][at] = byte;
            }
        }
        let sealed = parts[bad].len() - 8;
        let checksum = xxh3_64(&parts[bad][..sealed]);
        parts[bad][sealed..].copy_from_slice(&checksum.to_le_bytes());
        let mut machine = machine(0);
        let last = parts.len() - 1;
        let taken = parts.iter().enumerate().all(|(n, part)| machine.restore(part, n == last).unwrap().is_ok());
        if taken {
            // It may be another state, but it is a valid one.
            feed(&mut machine, &transactions, 1_000);
            machine.digest().unwrap();
        }
        restore_all(&mut machine, &good);
        prop_assert_eq!(machine.digest().unwrap(), source.digest().unwrap());
    }
}

#[test]
fn parts_have_one_place() {
    let put = |n: u8| Operation::Put { key: vec![n], value: vec![n; 20] };
    let transactions: Vec<_> = (0..20).map(|n| Transaction::of(put(n))).collect();
    let (source, parts) = copied(&transactions, 200);
    let (last, before) = parts.split_last().expect("one at least");
    assert!(before.len() > 2, "{} parts", parts.len());
    let fed = |order: &[&[u8]]| {
        let mut machine = machine(0);
        order.iter().try_for_each(|part| machine.restore(part, false).unwrap())
    };
    assert_eq!(fed(&[&before[0], &before[1], &before[2]]), Ok(()));
    assert_eq!(fed(&[&before[1]]), Err(Malformed), "not the first");
    assert_eq!(fed(&[&before[0], &before[2]]), Err(Malformed), "one is missing");
    assert_eq!(fed(&[&before[0], &before[1], &before[1]]), Err(Malformed), "one comes twice");
    assert_eq!(fed(&[&before[0], &before[1], &before[0], &before[1]]), Ok(()), "from the start");
    let mut machine = machine(0);
    assert_eq!(machine.restore(&before[0], true).unwrap(), Err(Malformed), "this is not the last");
    for part in before {
        machine.restore(part, false).unwrap().expect("a good part");
    }
    assert_eq!(machine.restore(last, false).unwrap(), Err(Malformed), "this is the last");
    let mut elsewhere = self::machine(1);
    assert_eq!(elsewhere.restore(&before[0], false).unwrap(), Err(Malformed), "another group's");
    let changed = |part: &[u8], at: usize| {
        let mut part = part.to_vec();
        part[at] += 1;
        let sealed = part.len() - 8;
        let checksum = xxh3_64(&part[..sealed]);
        part[sealed..].copy_from_slice(&checksum.to_le_bytes());
        part
    };
    assert_eq!(fed(&[&changed(&before[0], 0)]), Err(Malformed), "another version's");
    let mut machine = self::machine(0);
    for part in before {
        machine.restore(part, false).unwrap().expect("a good part");
    }
    let counted = changed(last, last.len() - 9);
    assert_eq!(machine.restore(&counted, true).unwrap(), Err(Malformed), "it does not add up");
    // A machine that has a state already replaces it by another one.
    feed(&mut machine, &transactions, 1);
    restore_all(&mut machine, &parts);
    assert_eq!(machine.digest().unwrap(), source.digest().unwrap());
}

/// Verdicts about commands that are not delivered belong to the state that is discarded.
#[test]
fn verdicts_heard_before_the_copy_are_gone_with_the_state() {
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 2, replicas: 1, engines: 1 }).unwrap();
    let replica = ReplicaId::new(GroupId(0), 0);
    let of_two = || tested::machine(replica, &layout, SlotMap::even(2), tight(2));
    let (mut source, mut machine, mut part) = (of_two(), of_two(), Vec::new());
    let heard = |machine: &mut Machine, sequence, from| {
        let message = MessageId::new(SessionId(1), sequence);
        machine.exchanged(message, GroupId(from), &[7], &mut Words::default()).unwrap();
    };
    heard(&mut machine, 2, 1);
    heard(&mut machine, 3, 1);
    heard(&mut source, 4, 1);
    // These do not count: a verdict of its own group that is no objection, and one of a group that does not exist.
    heard(&mut source, 5, 0);
    heard(&mut source, 6, u16::MAX);
    let slots = SlotMap::even(2);
    let key = (0..=u8::MAX).map(|n| vec![n]).find(|key| slots.owner(key) == GroupId(0));
    let put = Operation::Put { key: key.expect("one of many"), value: b"1".to_vec() };
    let put = Plan::of(&Transaction::of(put), &slots, &tight(2)).expect("a good form");
    let all = [Request::Open.encode(), Request::Expire(vec![SessionId(2)]).encode()];
    let requests = [&all[0], put.request(), &all[1]];
    for (position, payload) in (1..).zip(requests) {
        let alone = GroupSet::single(GroupId(0));
        let delivery = Delivery {
            message: MessageId::new(if position == 3 { NODE } else { SessionId(1) }, position),
            low_water: 1,
            destinations: if position == 2 { alone } else { slots.groups() },
            clock: position,
            position,
            time_ms: 0,
            payload,
            answers: true,
        };
        source.deliver(delivery, &mut Words::default()).unwrap();
        fetch(&mut source, &mut Words::default());
    }
    assert_eq!(source.keys(), 1);
    source.begin_copy();
    source.copy(1, &mut part).unwrap();
    machine.restore(&part, false).unwrap().expect("a good part");
    // A verdict arrives during the copy, about a session that has ended in the copied state.
    let late = MessageId::new(SessionId(2), 9);
    machine.exchanged(late, GroupId(1), &[7], &mut Words::default()).unwrap();
    ripen(&mut source, &mut Words::default(), |part| {
        machine.restore(part, false).unwrap().expect("a good part");
    });
    part.clear();
    source.finish_copy(&mut part).unwrap();
    machine.restore(&part, true).unwrap().expect("a good part");
    assert_eq!((source.early(), machine.early()), (1, 1));
}

/// Writes 20 of 60 keys. No key is written again before all others were.
fn write(source: &mut Machine, round: u64) {
    for n in 20 * round..20 * (round + 1) {
        let put = Operation::Put { key: vec![(n % 60) as u8], value: vec![1; 20] };
        let plan =
            Plan::of(&Transaction::of(put), &SlotMap::even(1), &tight(1)).expect("a good form");
        deliver(source, MessageId::new(SessionId(1), n), n, plan.request());
    }
}

/// A machine with 60 keys, written in the rounds before the fifth, of which a copy was begun.
fn copied_under_load() -> Machine {
    let mut source = machine(0);
    let open = Plan::open(&SlotMap::even(1));
    deliver(&mut source, MessageId::new(SessionId(1), 1), 1, open.request());
    (1..5).for_each(|round| write(&mut source, round));
    source.begin_copy();
    source
}

/// Pairs that are copied again do not count: they may be more than the state.
#[test]
fn a_copy_tells_when_it_has_come_to_every_key_once() {
    let mut source = copied_under_load();
    let (mut part, mut copied) = (Vec::new(), 0);
    for round in 5..200 {
        assert!(!source.has_walked(), "{copied} bytes of 60 keys");
        write(&mut source, round);
        part.clear();
        let ripe = source.copy(500, &mut part).unwrap();
        copied += part.len();
        if source.has_walked() {
            assert!(!ripe, "keys that were written meanwhile are left");
            break;
        }
    }
    assert!(source.has_walked() && copied > 60 * 20, "{copied} bytes of 60 keys");
    source.begin_copy();
    assert!(!source.has_walked(), "another copy begins anew");
}

/// However much is written between two parts, the copy ends, and the last part is small.
#[test]
fn a_copy_ends_under_any_load() {
    let mut source = copied_under_load();
    let mut part = Vec::new();
    let ended = (5..200).find(|round| {
        write(&mut source, *round);
        part.clear();
        source.copy(500, &mut part).unwrap()
    });
    assert!(ended.is_some(), "it goes on for ever");
    part.clear();
    source.finish_copy(&mut part).unwrap();
    assert!(part.len() < 100, "the last part has {} bytes", part.len());
}

/// Many keys were written between two parts. A replica waits for its copy; a snapshot has time until it is hastened.
#[test]
fn a_snapshot_has_more_time_than_a_copy_for_a_replica() {
    const KEYS: u64 = 2_000;
    const BUDGET: usize = 64 << 10;
    let limits = Limits { value_bytes_max: 8 << 10, transaction_bytes_max: 1 << 20, ..LIMITS };
    let put = |n: u64| Operation::Put { key: n.to_be_bytes().to_vec(), value: vec![1; 8 << 10] };
    let write = |source: &mut Machine, round: u64, keys: Range<u64>| {
        for from in keys.step_by(25) {
            let then = (from..from + 25).map(put).collect();
            let transaction = Transaction { guards: Vec::new(), then, otherwise: Vec::new() };
            let plan = Plan::of(&transaction, &SlotMap::even(1), &limits).expect("a good form");
            let number = 2 + (round * KEYS + from) / 25;
            deliver(source, MessageId::new(SessionId(1), number), number, plan.request());
        }
    };
    // Copies all once. Returns how many bytes these were.
    let walk = |source: &mut Machine| {
        let mut part = Vec::new();
        while !source.has_walked() {
            fetch(source, &mut Words::default());
            source.copy(BUDGET, &mut part).unwrap();
        }
        part.len()
    };
    let all_changed = |snapshot: bool| {
        let mut source = machine_within(0, limits);
        let open = Plan::open(&SlotMap::even(1));
        deliver(&mut source, MessageId::new(SessionId(1), 1), 1, open.request());
        write(&mut source, 0, 0..KEYS);
        if snapshot {
            source.begin_snapshot();
        } else {
            source.begin_copy();
        }
        let bytes = walk(&mut source);
        write(&mut source, 1, 0..KEYS);
        (source, bytes)
    };
    let copied = |source: &mut Machine| {
        let mut part = Vec::new();
        let ripe = source.copy(BUDGET, &mut part).unwrap();
        (part.len(), ripe)
    };
    let (bytes, _) = copied(&mut all_changed(false).0);
    assert!(bytes > 3 * BUDGET, "{bytes} bytes: as many as changed, within bounds");
    let (mut source, bytes) = all_changed(true);
    if bytes < KEYS as usize {
        // Its store keeps the pairs.
        return;
    }
    let (bytes, _) = copied(&mut source);
    assert!(bytes < 3 * BUDGET / 2, "{bytes} bytes");
    write(&mut source, 2, 0..KEYS);
    source.hasten_copy();
    let (bytes, _) = copied(&mut source);
    assert!(bytes > 3 * BUDGET / 2, "{bytes} bytes: it is hastened");
    let (mut source, _) = all_changed(true);
    let mut left = KEYS as usize * (8 << 10);
    while left > 4 << 20 {
        left -= copied(&mut source).0;
    }
    write(&mut source, 2, KEYS - 100..KEYS);
    assert!(copied(&mut source).0 > 3 * BUDGET, "little is left: it catches up");
    source.begin_copy();
    walk(&mut source);
    write(&mut source, 3, 0..KEYS);
    assert!(copied(&mut source).0 > 3 * BUDGET, "it was of the snapshot alone");
}

/// A machine with 20 keys, and the parts of its snapshot, which is on disk.
fn with_snapshot() -> (Machine, Vec<Vec<u8>>) {
    let puts = (0..20).map(|n| Operation::Put { key: vec![n], value: vec![n; 20] });
    let puts: Vec<_> = puts.map(Transaction::of).collect();
    let mut source = machine(0);
    feed(&mut source, &puts, 1);
    source.begin_snapshot();
    let mut parts = Vec::new();
    ripen(&mut source, &mut Words::default(), |part| parts.push(part.to_vec()));
    parts.push(Vec::new());
    source.finish_copy(parts.last_mut().expect("just pushed")).unwrap();
    while !source.has_kept() {
        std::thread::yield_now();
    }
    (source, parts)
}

fn restore_snapshot(machine: &mut Machine, parts: &[Vec<u8>]) -> Result<(), NotRestored> {
    let (last, parts) = parts.split_last().expect("there is a last one");
    for part in parts {
        machine.restore_snapshot(part, false).unwrap().expect("a good part");
    }
    machine.restore_snapshot(last, true).unwrap()
}

/// Another replica is sent no name of pairs that it would have to find.
#[test]
fn a_snapshot_without_pairs_is_no_copy_for_another_replica() {
    if !tested::KEEPS {
        return;
    }
    let (source, parts) = with_snapshot();
    let has_value = |part: &Vec<u8>| part.windows(20).any(|bytes| bytes == [7; 20]);
    assert!(!parts.iter().any(has_value));
    let mut own = machine(0);
    assert_eq!(restore_snapshot(&mut own, &parts), Ok(()));
    assert_eq!((own.keys(), own.history()), (20, source.history()));
    let mut other = machine(0);
    let (last, parts) = parts.split_last().expect("there is a last one");
    for part in parts {
        other.restore(part, false).unwrap().expect("a good part");
    }
    assert_eq!(other.restore(last, true).unwrap(), Err(Malformed));
}

#[test]
fn pairs_that_are_not_those_of_the_snapshot_are_not_taken() {
    if !tested::KEEPS {
        return;
    }
    let (_source, parts) = with_snapshot();
    if tested::spoil() {
        let why = restore_snapshot(&mut machine(0), &parts).unwrap_err();
        assert!(matches!(&why, NotRestored::NotKept(why) if why.contains("others")), "{why}");
    }
}

fn machine(group: u16) -> Machine {
    machine_within(group, tight(1))
}

fn machine_within(group: u16, limits: Limits) -> Machine {
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
    tested::machine(ReplicaId::new(GroupId(group), 0), &layout, SlotMap::even(1), limits)
}

/// Opens a session, if it is not open, and delivers these transactions.
fn feed(machine: &mut Machine, transactions: &[Transaction], from: u64) {
    let slots = SlotMap::even(1);
    let session = SessionId(from);
    let open = Plan::open(&slots);
    let plans = transactions
        .iter()
        .map(|transaction| Plan::of(transaction, &slots, &tight(1)).expect("a good form"));
    for (sequence, plan) in (1..).zip(std::iter::once(open).chain(plans)) {
        deliver(machine, MessageId::new(session, sequence), from + sequence, plan.request());
    }
}

fn deliver(machine: &mut Machine, message: MessageId, position: u64, payload: &[u8]) {
    let delivery = Delivery {
        message,
        low_water: message.sequence.saturating_sub(10),
        destinations: GroupSet::single(GroupId(0)),
        clock: position,
        position,
        time_ms: 0,
        payload,
        answers: true,
    };
    machine.deliver(delivery, &mut Words::default()).unwrap();
    fetch(machine, &mut Words::default());
}

/// A machine that has executed these transactions, and the parts of its copy.
fn copied(transactions: &[Transaction], budget: usize) -> (Machine, Vec<Vec<u8>>) {
    let mut source = machine(0);
    feed(&mut source, transactions, 1);
    source.begin_copy();
    let mut parts = Vec::new();
    loop {
        let mut part = Vec::new();
        source.go_on(&mut Words::default()).unwrap();
        let little = source.copy(budget, &mut part).unwrap();
        parts.push(part);
        if little {
            break;
        }
    }
    parts.push(Vec::new());
    source.finish_copy(parts.last_mut().expect("just pushed")).unwrap();
    (source, parts)
}

fn restore_all(machine: &mut Machine, parts: &[Vec<u8>]) {
    for (number, part) in parts.iter().enumerate() {
        machine.restore(part, number == parts.len() - 1).unwrap().expect("a good part");
    }
}
