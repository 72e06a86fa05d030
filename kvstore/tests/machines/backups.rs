//! Copies for backups: completed at a mark, they are the state at its place in the order.

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::backup::{Content, CopyAnswer, Mark};
use skein_kvstore::command::Transaction;
use skein_kvstore::plan::Plan;
use skein_kvstore::wire::Request;
use skein_protocol::ids::{MessageId, SessionId};

use crate::cluster::{Cluster, Taker, query};
use crate::strategy::{LIMITS, transaction};
use crate::tested;

const WRITER: SessionId = SessionId(7);
const BACKUP: SessionId = SessionId(8);
const OTHER: SessionId = SessionId(9);

/// A cluster with open sessions, and the number of the writer's next message.
struct Run {
    cluster: Cluster,
    next: u64,
}

impl Run {
    fn new(groups: u16, seed: u64) -> Self {
        let mut cluster = Cluster::new(groups, LIMITS, seed);
        let open = Plan::open(&cluster.slots);
        for session in [WRITER, BACKUP, OTHER] {
            let message = MessageId::new(session, 1);
            cluster.order(message, 1, open.destinations(), open.request());
        }
        Self { cluster, next: 2 }
    }

    fn write(&mut self, transactions: &[Transaction]) {
        for transaction in transactions {
            let plan = Plan::of(transaction, &self.cluster.slots, &LIMITS).expect("a good form");
            let message = MessageId::new(WRITER, self.next);
            self.next += 1;
            self.cluster.order(message, 1, plan.destinations(), plan.request());
        }
    }

    /// Orders the backup's message `number`, a mark.
    fn mark(&mut self, number: u64) {
        let plan = Plan::mark(&self.cluster.slots);
        let message = MessageId::new(BACKUP, number);
        self.cluster.order(message, 1, plan.destinations(), plan.request());
    }

    /// The groups' answers to mark `number`.
    fn marks(&self, number: u64) -> Vec<Mark> {
        let parts = self.cluster.parts(MessageId::new(BACKUP, number));
        let reply = Plan::mark(&self.cluster.slots).join(parts).expect("it is not refused");
        Mark::of(&reply).expect("a mark for each group")
    }

    fn query(&mut self, session: SessionId, attempt: u32, number: u32) -> Option<Vec<u8>> {
        let machine = self.cluster.machines.get_mut(&(0, 0)).expect("a replica");
        let mut answer = Vec::new();
        query(machine, &Taker::query(session, attempt, number), &mut answer).then_some(answer)
    }

    fn content(&mut self, session: SessionId, attempt: u32, number: u32) -> Option<Content> {
        let answer = self.query(session, attempt, number).expect("its session is open");
        match CopyAnswer::decode(&answer).expect("an answer") {
            CopyAnswer::Part(part) => Some(part.content),
            CopyAnswer::Gone => None,
            CopyAnswer::Busy => panic!("busy"),
        }
    }
}

/// `before` is copied first, then `pending` is ordered in front of the mark, and `after` behind it.
fn check(groups: u16, orders: &[Vec<Transaction>; 3], seed: u64) {
    let [before, pending, after] = orders;
    let mut run = Run::new(groups, seed);
    run.write(before);
    run.cluster.takers = (0..groups).map(|group| (group, Taker::new(BACKUP))).collect();
    run.cluster.run();
    for group in 0..groups {
        while !run.cluster.takers[&group].has_walked {
            run.cluster.pull(group);
            run.cluster.go_on();
        }
    }
    run.write(pending);
    run.mark(2);
    run.write(after);
    run.cluster.run();
    let marks = run.marks(2);
    for (group, mark) in (0..groups).zip(&marks) {
        while run.cluster.takers[&group].completed.is_none() {
            run.cluster.pull(group);
        }
        assert_eq!(run.cluster.takers[&group].totals(), *mark, "group {group}");
    }

    // One after the other, without a copy, and with nothing behind the mark.
    let mut serial = Run::new(groups, seed);
    for transaction in before.iter().chain(pending) {
        serial.write(std::slice::from_ref(transaction));
        serial.cluster.run();
    }
    serial.mark(2);
    serial.cluster.run();
    assert_eq!(serial.marks(2), marks, "it is the state in front of the mark");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tested::cases(96)))]
    #[test]
    fn copies_of_one_group_are_its_state_at_the_mark(
        orders in [vec(transaction(), 0..30), vec(transaction(), 0..12), vec(transaction(), 0..12)],
        seed: u64,
    ) {
        check(1, &orders, seed);
    }

    #[test]
    fn copies_of_all_groups_are_the_state_at_the_mark(
        groups in 2u16..=4,
        orders in [vec(transaction(), 0..30), vec(transaction(), 0..12), vec(transaction(), 0..12)],
        seed: u64,
    ) {
        check(groups, &orders, seed);
    }
}

#[test]
fn a_copy_belongs_to_a_session_and_ends_with_it() {
    for end in [Request::Close, Request::Expire(vec![BACKUP])] {
        let mut run = Run::new(1, 1);
        assert_eq!(run.query(BACKUP, 1, 0), None, "its session is not open here yet");
        run.cluster.run();
        assert_eq!(run.content(BACKUP, 1, 0), Some(Content::Walk));
        let busy = run.query(OTHER, 1, 0).expect("its session is open");
        assert_eq!(CopyAnswer::decode(&busy), Some(CopyAnswer::Busy));
        let by = if end == Request::Close { BACKUP } else { SessionId(u64::MAX) };
        let all = run.cluster.slots.groups();
        run.cluster.order(MessageId::new(by, 2), 1, all, &end.encode());
        run.cluster.run();
        assert_eq!(run.content(BACKUP, 1, 1), None, "it has ended");
        assert_eq!(run.content(BACKUP, 2, 0), None, "it has ended");
        assert_eq!(run.content(OTHER, 1, 0), Some(Content::Walk), "there is room for another");
    }
}

#[test]
fn parts_are_sent_in_order_and_the_last_one_again() {
    let mut run = Run::new(1, 1);
    run.cluster.run();
    assert_eq!(run.content(BACKUP, 1, 1), None, "a copy begins with part 0");
    assert_eq!(run.content(BACKUP, 1, 0), Some(Content::Walk));
    assert_eq!(run.content(BACKUP, 1, 0), Some(Content::Walk), "the last one");
    assert_eq!(run.content(BACKUP, 1, 2), None, "one was left out");
    assert_eq!(run.content(BACKUP, 1, 1), Some(Content::Changes));
    assert_eq!(run.content(BACKUP, 1, 0), None, "an old question, late");
    assert_eq!(run.content(BACKUP, 2, 0), Some(Content::Walk), "the session has begun anew");
    assert_eq!(run.content(BACKUP, 1, 2), None, "an old question, late");
    assert_eq!(run.content(BACKUP, 2, 1), Some(Content::Changes));
}

#[test]
fn a_mark_in_the_middle_of_a_walk_is_missed_and_a_later_one_completes_the_copy() {
    let mut run = Run::new(1, 1);
    let put = |key: &str| {
        Transaction::of(skein_kvstore::command::Operation::Put {
            key: key.into(),
            value: b"value".to_vec(),
        })
    };
    run.write(&[put("a"), put("b"), put("c")]);
    run.cluster.run();
    assert_eq!(run.content(BACKUP, 1, 0), Some(Content::Walk), "a part has one of them");
    run.mark(2);
    run.cluster.run();
    let missed = run.marks(2)[0];
    assert_eq!((missed.keys, missed.bytes), (3, 18));
    assert_eq!(run.content(BACKUP, 1, 1), Some(Content::Missed(missed.position)));
    let mut number = 2;
    while run.content(BACKUP, 1, number) == Some(Content::Walk) {
        number += 1;
    }
    run.write(&[put("d")]);
    run.mark(3);
    run.cluster.run();
    let position = run.marks(3)[0].position;
    assert!(position > missed.position);
    assert_eq!(run.content(BACKUP, 1, number + 1), Some(Content::Complete(position)));
}

#[test]
fn a_mark_that_does_not_go_to_all_groups_is_refused() {
    let mut run = Run::new(2, 1);
    let one = run.cluster.slots.groups().iter().next().expect("two");
    let to = skein_protocol::ids::GroupSet::single(one);
    let message = MessageId::new(BACKUP, 2);
    run.cluster.order(message, 1, to, &Request::Mark.encode());
    run.cluster.run();
    let parts = run.cluster.parts(message);
    let part = skein_kvstore::wire::Part::decode(parts[0].1).expect("a part");
    assert!(matches!(part, skein_kvstore::wire::Part::Refused(_)), "{part:?}");
}
