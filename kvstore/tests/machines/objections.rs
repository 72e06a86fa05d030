//! Groups that have a message in different places, or not at all, and object to what they cannot speak about.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Compare, Operation, Test, Transaction};
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Refusal;
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::Part;
use skein_protocol::ids::{GroupId, MessageId, SessionId};

use crate::cluster::Cluster;
use crate::strategy::{LIMITS, transaction};
use crate::tested;

const SESSION: SessionId = SessionId(7);

/// A difference between the orders of two groups after one was recreated.
#[derive(Clone, Debug)]
enum Fault {
    Swapped,
    Omitted,
}

fn fault() -> impl Strategy<Value = (Fault, u16, usize)> {
    let fault = prop_oneof![3 => Just(Fault::Swapped), 1 => Just(Fault::Omitted)];
    (fault, any::<u16>(), any::<usize>())
}

/// Nobody waits for ever, all replicas of a group do the same, and all groups that have a transaction which exchanges verdicts
/// do the same with it. Returns the number of objections that were told to a client.
fn check(
    groups: u16,
    transactions: &[Transaction],
    faults: &[(Fault, u16, usize)],
    seed: u64,
) -> usize {
    let mut cluster = Cluster::new(groups, LIMITS, seed);
    cluster.disagrees = true;
    let open = Plan::open(&cluster.slots);
    cluster.order(MessageId::new(SESSION, 1), 1, open.destinations(), open.request());
    let mut sent = Vec::new();
    for (sequence, transaction) in (2..).zip(transactions) {
        let plan = Plan::of(transaction, &cluster.slots, &LIMITS).expect("a good form");
        let message = MessageId::new(SESSION, sequence);
        cluster.order(message, 1, plan.destinations(), plan.request());
        sent.push((message, transaction));
    }
    for (fault, group, which) in faults {
        match fault {
            Fault::Swapped => cluster.swap(GroupId(group % groups), *which),
            Fault::Omitted => cluster.omit(GroupId(group % groups), *which),
        }
    }
    cluster.run();
    let mut objections = 0;
    for (message, transaction) in sent {
        let parts = cluster.parts(message);
        let parts = parts.iter().map(|(_, part)| Part::decode(part).expect("a part"));
        let done: Vec<_> = parts
            .map(|part| match part {
                Part::Done { held, .. } => Some(held),
                Part::Refused(Refusal::Objected { .. }) => {
                    objections += 1;
                    None
                }
                _ => None,
            })
            .collect();
        if !transaction.guards.is_empty() {
            assert!(done.iter().all(|it| *it == done[0]), "{message}: {done:?}");
        }
    }
    objections
}

/// Two transfers between the same two accounts, which the two groups have in different orders: each group is to speak first
/// about the one that the other group has second.
#[test]
fn of_two_transactions_in_two_orders_one_or_both_are_refused() {
    let slots = SlotMap::even(2);
    let key = |group| {
        let keys = (b'a'..=b'z').map(|name| vec![name]);
        keys.into_iter()
            .find(|key| slots.owner(key) == GroupId(group))
            .expect("each has half of them")
    };
    let [ours, theirs] = [0, 1].map(key);
    let transfer = Transaction::of(Operation::Increment { key: ours.clone(), by: 1 })
        .then(Operation::Increment { key: theirs.clone(), by: -1 })
        .guard(ours, Test::Number { compare: Compare::Less, number: 5 });
    let swapped = [(Fault::Swapped, 1, 0)];
    for seed in 0..100 {
        let objections = check(2, &[transfer.clone(), transfer.clone()], &swapped, seed);
        assert!((1..=2).contains(&objections), "{objections}, seed {seed}");
    }
    assert_eq!(check(2, &[transfer.clone(), transfer.clone()], &[], 0), 0, "in one order");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tested::cases(400)))]
    #[test]
    fn nobody_waits_for_ever_and_all_groups_do_the_same(
        groups in 2u16..5,
        transactions in vec(transaction(), 1..40),
        faults in vec(fault(), 1..12),
        seed in any::<u64>(),
    ) {
        check(groups, &transactions, &faults, seed);
    }
}
