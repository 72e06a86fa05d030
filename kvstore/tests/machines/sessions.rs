//! At-most-once execution, and the replies retained for sessions.

use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Outcome, Refusal, Reply};
use skein_kvstore::wire::{Part, Request};
use skein_protocol::ids::{GroupId, MessageId, SessionId};

use crate::cluster::{Cluster, REPLICAS};

const SESSION: SessionId = SessionId(7);
const NODE: MessageId = MessageId::new(SessionId(u64::MAX), 1);

fn m(sequence: u64) -> MessageId {
    MessageId::new(SESSION, sequence)
}

struct Bench {
    cluster: Cluster,
    limits: Limits,
}

impl Bench {
    fn new(groups: u16, limits: Limits) -> Self {
        let mut bench = Self { cluster: Cluster::new(groups, limits, 1), limits };
        assert!(bench.control(m(1), &Request::Open).is_ok());
        bench
    }

    fn control(&mut self, message: MessageId, request: &Request<'_>) -> Result<Reply, Refusal> {
        let all = self.cluster.slots.groups();
        self.cluster.order(message, 1, all, &request.encode());
        self.cluster.run();
        Plan::open(&self.cluster.slots).join(self.cluster.parts(message))
    }

    fn send(
        &mut self,
        message: MessageId,
        low_water: u64,
        transaction: &Transaction,
    ) -> Result<Reply, Refusal> {
        let plan = Plan::of(transaction, &self.cluster.slots, &self.limits)?;
        self.cluster.order(message, low_water, plan.destinations(), plan.request());
        self.cluster.run();
        plan.join(self.cluster.parts(message))
    }
}

fn put(key: &str, value: &[u8]) -> Transaction {
    Transaction::of(Operation::Put { key: key.into(), value: value.into() })
}

fn get(key: &str) -> Transaction {
    Transaction::of(Operation::Get { key: key.into() })
}

fn increment(key: &str) -> Transaction {
    Transaction::of(Operation::Increment { key: key.into(), by: 1 })
}

fn number(number: i64) -> Reply {
    Reply { held: true, outcomes: vec![Outcome::Number(number)] }
}

#[test]
fn a_command_that_comes_again_is_answered_and_not_executed() {
    let mut bench = Bench::new(1, Limits::default());
    let first = bench.send(m(2), 1, &increment("n"));
    assert_eq!(first, Ok(number(1)));
    let answered = bench.cluster.repeat(GroupId(0), m(2)).expect("it is owed");
    assert_eq!(Part::decode(&answered), Part::decode(bench.cluster.parts(m(2))[0].1));
    assert_eq!(bench.send(m(2), 1, &increment("n")), first, "delivered twice");
    assert_eq!(bench.send(m(3), 3, &increment("n")), Ok(number(2)));
    assert_eq!(bench.cluster.repeat(GroupId(0), m(2)), None, "the session is owed it no more");
    bench.send(m(2), 3, &increment("n")).ok();
    assert_eq!(bench.send(m(4), 3, &increment("n")), Ok(number(3)), "still recognised");
}

#[test]
fn the_low_water_mark_does_not_decide_what_is_a_duplicate() {
    let mut bench = Bench::new(3, Limits::default());
    // The session has given up message 2, and its message 3 with that low-water mark is ordered before message
    // 2.
    bench.send(m(3), 3, &put("a", b"1")).expect("there is room");
    let late = Transaction::default()
        .then(Operation::Increment { key: "a".into(), by: 1 })
        .then(Operation::Put { key: "b".into(), value: b"2".into() })
        .then(Operation::Put { key: "c".into(), value: b"2".into() });
    bench.send(m(2), 3, &late).expect("in all its groups, as it is new in some");
    assert!(matches!(
        &bench.send(m(4), 3, &get("a")).unwrap().outcomes[..],
        [Outcome::Value(Some((value, _)))] if value == b"2"
    ));
}

#[test]
fn a_session_that_is_not_open_commands_nothing() {
    let transfer = Transaction::default()
        .guard("a", Test::Missing)
        .then(Operation::Put { key: "b".into(), value: b"1".into() })
        .then(Operation::Put { key: "c".into(), value: b"1".into() });
    let mut bench = Bench::new(3, Limits::default());
    let never = MessageId::new(SessionId(8), 2);
    assert_eq!(bench.send(never, 1, &transfer), Err(Refusal::SessionExpired));

    assert!(bench.control(m(2), &Request::Close).is_ok());
    assert_eq!(bench.send(m(3), 1, &transfer), Err(Refusal::SessionExpired));
    assert_eq!(bench.control(m(5), &Request::Open), Err(Refusal::SessionExpired));
    assert_eq!(bench.send(m(4), 1, &transfer), Err(Refusal::SessionExpired));
    let again = bench.cluster.repeat(GroupId(1), m(2)).expect("closing is answered again");
    assert_eq!(Part::decode(&again), Ok(Part::Done { held: true, outcomes: vec![] }));
    let old = bench.cluster.repeat(GroupId(1), m(1)).expect("a reason");
    assert_eq!(Part::decode(&old), Ok(Part::Refused(Refusal::SessionExpired)));

    // A session that expires before it opens stays closed.
    let dead = SessionId(9);
    assert!(bench.control(NODE, &Request::Expire(vec![dead])).is_ok());
    let opened = bench.control(MessageId::new(dead, 1), &Request::Open);
    assert_eq!(opened, Err(Refusal::SessionExpired));
    for group in 0..3 {
        for slot in 0..REPLICAS {
            assert_eq!(bench.cluster.ended[&(group, slot)], [SESSION, dead]);
            assert_eq!(bench.cluster.machines[&(group, slot)].keys(), 0);
        }
    }
}

#[test]
fn a_client_does_not_end_the_sessions_of_others() {
    let mut bench = Bench::new(2, Limits::default());
    let refused = bench.control(m(2), &Request::Expire(vec![SESSION, SessionId(9)]));
    assert!(matches!(refused, Err(Refusal::Malformed(_))), "{refused:?}");
    assert!(bench.cluster.ended.values().all(Vec::is_empty), "{:?}", bench.cluster.ended);
    bench.send(m(3), 1, &put("a", b"1")).expect("its session is open");
    let other = MessageId::new(SessionId(9), 1);
    bench.control(other, &Request::Open).expect("and another one may be opened");
}

#[test]
fn an_expired_session_frees_what_it_was_owed() {
    let mut bench = Bench::new(2, Limits::default());
    let dead = SessionId(9);
    let before = bench.cluster.machines[&(0, 0)].bytes();
    bench.control(MessageId::new(dead, 1), &Request::Open).expect("it opens");
    for sequence in 2..50 {
        bench.send(MessageId::new(dead, sequence), 1, &increment("{a}n")).expect("a number");
        bench.send(MessageId::new(dead, 100 + sequence), 1, &get("{a}n")).expect("a number");
    }
    bench.send(m(2), 1, &Transaction::of(Operation::Delete { key: "{a}n".into() })).unwrap();
    bench.send(m(3), 3, &get("{a}n")).unwrap();
    bench.send(m(4), 4, &get("x")).unwrap();
    bench.send(m(5), 5, &get("a")).unwrap();
    bench.control(NODE, &Request::Expire(vec![dead])).expect("it expires");
    let after = bench.cluster.machines[&(0, 0)].bytes();
    assert!(after <= before, "{before} bytes before, {after} after");
}

#[test]
fn replies_to_reads_are_not_kept_and_others_are() {
    let mut bench = Bench::new(1, Limits::default());
    bench.send(m(2), 1, &put("large", &vec![1; 100_000])).unwrap();
    let before = bench.cluster.machines[&(0, 0)].bytes();
    bench.send(m(3), 1, &get("large")).unwrap();
    assert_eq!(bench.cluster.machines[&(0, 0)].bytes(), before);
    let owed = bench.cluster.repeat(GroupId(0), m(2)).expect("it is owed");
    assert!(matches!(Part::decode(&owed), Ok(Part::Done { .. })), "an effect's is kept");
    let first = bench.cluster.repeat(GroupId(0), m(3)).expect("an answer");
    assert_eq!(Part::decode(&first), Ok(Part::Refused(Refusal::Forgotten)));
    bench.send(m(63), 63, &put("large", b"now small")).unwrap();
    assert_eq!(bench.cluster.repeat(GroupId(0), m(3)), None, "nobody waits for it any more");
}

#[test]
fn sessions_open_and_close_in_all_groups_or_in_none() {
    let mut bench = Bench::new(2, Limits::default());
    let other = MessageId::new(SessionId(8), 1);
    let one = skein_protocol::ids::GroupSet::single(GroupId(0));
    bench.cluster.order(other, 1, one, &Request::Open.encode());
    bench.cluster.run();
    let (_, reply) = bench.cluster.parts(other)[0];
    assert!(matches!(Part::decode(reply), Ok(Part::Refused(Refusal::Malformed(_)))));
    let next = MessageId::new(SessionId(8), 2);
    assert_eq!(bench.send(next, 1, &put("a", b"1")), Err(Refusal::SessionExpired));
}

#[test]
fn a_group_that_lost_its_sessions_objects_and_holds_nobody_up() {
    let mut bench = Bench::new(3, Limits::default());
    for key in ["a", "b", "c"] {
        bench.send(m(2 + u64::from(key.as_bytes()[0])), 1, &put(key, b"1")).expect("there is room");
    }
    let owner = bench.cluster.slots.owner(b"a");
    assert_ne!(bench.cluster.slots.owner(b"b"), owner, "or the transfer goes to one group");
    bench.cluster.recreate(owner);
    let transfer = Transaction::default()
        .guard("b", Test::Exists)
        .then(Operation::Increment { key: "a".into(), by: 1 })
        .then(Operation::Increment { key: "b".into(), by: -1 });
    assert_eq!(bench.send(m(200), 1, &transfer), Err(Refusal::SessionExpired));
    assert!(matches!(
        &bench.send(m(201), 1, &get("b")).expect("its group goes on").outcomes[..],
        [Outcome::Value(Some((value, _)))] if value == b"1"
    ));
}
