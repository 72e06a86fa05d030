//! Random transactions of several sessions in random schedules, with duplicates.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::command::{Test, Transaction};
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Refusal, Reply};
use skein_protocol::ids::{GroupId, MessageId, SessionId};

use crate::cluster::{Cluster, REPLICAS, Random};
use crate::model::{Model, assert_same};
use crate::strategy::{LIMITS, transaction};
use crate::tested;

const SESSIONS: [SessionId; 2] = [SessionId(7), SessionId(8)];

#[derive(Clone, Debug)]
enum Step {
    Transaction(Transaction),
    /// Delivers a message of this group's order once more.
    Again(u16, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => transaction().prop_map(Step::Transaction),
        1 => (any::<u16>(), any::<usize>()).prop_map(|(group, which)| Step::Again(group, which)),
    ]
}

struct Expected {
    message: MessageId,
    plan: Plan,
    transaction: Transaction,
    reply: Result<Reply, Refusal>,
}

fn check(groups: u16, steps: Vec<Step>, seed: u64) {
    let mut cluster = Cluster::new(groups, LIMITS, seed);
    let mut random = Random(seed.rotate_left(17) | 1);
    let mut model = Model::default();
    let mut expected = Vec::new();
    let open = Plan::open(&cluster.slots);
    for session in SESSIONS {
        cluster.order(MessageId::new(session, 1), 1, open.destinations(), open.request());
    }
    // The messages are not ordered by sequence number, and the low-water mark does not wait for missing ones.
    let mut sequences: Vec<u64> = (2..2 + steps.len() as u64).collect();
    for at in 0..sequences.len() {
        let with = (at + random.below(4)).min(sequences.len() - 1);
        sequences.swap(at, with);
    }
    for (step, sequence) in steps.into_iter().zip(sequences) {
        match step {
            Step::Transaction(mut transaction) => {
                // In half of the cases, a guarded range was read just before.
                for guard in &mut transaction.guards {
                    if let Test::Unchanged { end, held } = &mut guard.test
                        && random.below(2) == 0
                    {
                        *held = model.held(&guard.key, end.as_deref(), &cluster.slots);
                    }
                }
                let read = || {
                    transaction.guards.iter().map(|guard| match &guard.test {
                        Test::Unchanged { held, .. } => {
                            held.iter().map(|it| it.pairs as usize).sum()
                        }
                        _ => 0,
                    })
                };
                if read().sum::<usize>() > LIMITS.scan_pairs_max {
                    continue;
                }
                let plan = Plan::of(&transaction, &cluster.slots, &LIMITS).expect("a good form");
                let message = MessageId::new(SESSIONS[random.below(2)], sequence);
                let low_water = sequence.saturating_sub(random.below(8) as u64);
                cluster.order(message, low_water, plan.destinations(), plan.request());
                let reply = model.apply(&transaction, &cluster.slots, &LIMITS, |group| {
                    cluster.last_position(group)
                });
                expected.push(Expected { message, plan, transaction, reply });
            }
            Step::Again(group, which) => cluster.order_again(GroupId(group % groups), which),
        }
    }
    cluster.run();
    for Expected { message, plan, transaction, reply } in &expected {
        let joined = plan.join(cluster.parts(*message));
        assert_same(&joined, reply, transaction, &LIMITS);
    }
    let keys: u64 = (0..groups).map(|g| cluster.machines[&(g, REPLICAS - 1)].keys()).sum();
    assert_eq!(keys, model.map.len() as u64);
    compare_all(&mut cluster, &model);
}

/// Reads everything that the model holds, page by page.
fn compare_all(cluster: &mut Cluster, model: &Model) {
    let mut start = Some(Vec::new());
    let mut seen = Vec::new();
    for sequence in 10_000.. {
        let Some(from) = start.take() else { break };
        let scan = skein_kvstore::command::Operation::Scan { start: from, end: None, limit: 4 };
        let plan = Plan::of(&Transaction::of(scan), &cluster.slots, &LIMITS).expect("a good form");
        let message = MessageId::new(SESSIONS[0], sequence);
        cluster.order(message, sequence, plan.destinations(), plan.request());
        cluster.run();
        let reply = plan.join(cluster.parts(message)).expect("a scan is not refused");
        let [skein_kvstore::reply::Outcome::Page(page)] = &reply.outcomes[..] else {
            panic!("a scan gives a page")
        };
        seen.extend(page.pairs.clone());
        start.clone_from(&page.next);
    }
    let all = model.map.iter().map(|(key, (value, _))| (key.clone(), value.clone()));
    assert!(seen.into_iter().eq(all));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tested::cases(400)))]
    #[test]
    fn every_schedule_does_what_one_map_does(
        groups in prop_oneof![Just(1u16), Just(2), Just(3), Just(5)],
        steps in vec(step(), 1..40),
        seed in any::<u64>(),
    ) {
        check(groups, steps, seed);
    }
}
