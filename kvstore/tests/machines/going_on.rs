//! While a command waits for other groups' verdicts, commands that do not conflict with it are executed.

use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Outcome;
use skein_kvstore::slots::{SlotMap, slot_of};
use skein_kvstore::wire::{Move, Part, Request};
use skein_multicast::application::{Application, Delivery, Speech};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

use crate::cluster::{Words, fetch, query, ripen};
use crate::tested::{self, Machine};

const SESSION: SessionId = SessionId(7);
/// A layout in which each node hosts one replica.
fn layout() -> Layout {
    Layout::propose(Topology { nodes: 2, groups: 2, replicas: 1, engines: 1 }).unwrap()
}
const US: GroupId = GroupId(0);
const THEM: GroupId = GroupId(1);
/// Verdicts of the other group. `ALL`: its guards hold, and both branches can be executed. `NOT_HELD`: a guard
/// does not hold.
const ALL: &[u8] = &[7];
const NOT_HELD: &[u8] = &[4];
const NONE: [u64; 0] = [];

fn m(sequence: u64) -> MessageId {
    MessageId::new(SESSION, sequence)
}

/// The machine of one group of two. The test supplies the verdicts of the other group.
struct Bench {
    machine: Machine,
    limits: Limits,
    slots: SlotMap,
    position: u64,
    /// The first delivery has the clock `clock + 1`.
    clock: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::born(limits, 0)
    }

    fn born(limits: Limits, clock: u64) -> Self {
        let slots = SlotMap::even(2);
        let machine = tested::machine(ReplicaId::new(US, 0), &layout(), slots.clone(), limits);
        let mut bench = Self { machine, limits, slots, position: 0, clock };
        bench.control(m(1), &Request::Open);
        bench
    }

    /// A key of `group` with this prefix.
    fn key(&self, name: &str, group: GroupId) -> Vec<u8> {
        let keys = (0..).map(|n| format!("{name}{n}").into_bytes());
        keys.into_iter().find(|key| self.slots.owner(key) == group).expect("each has half of them")
    }

    fn ours(&self, name: &str) -> Vec<u8> {
        self.key(name, US)
    }

    fn get(&self, name: &str) -> Transaction {
        Transaction::of(Operation::Get { key: self.ours(name) })
    }

    fn append(&self, name: &str, value: &str) -> Transaction {
        Transaction::of(Operation::Append { key: self.ours(name), value: value.into() })
    }

    /// Appends to a key of each group, if the other group's key is missing.
    fn transfer(&self, name: &str, value: &str) -> Transaction {
        let theirs = self.key(name, THEM);
        let append = |key: &Vec<u8>| Operation::Append { key: key.clone(), value: value.into() };
        let transfer = self.append(name, value).then(append(&theirs));
        transfer.guard(theirs, Test::Missing)
    }

    fn deliver(&mut self, message: MessageId, to: GroupSet, payload: &[u8]) -> Words {
        self.position += 1;
        let delivery = Delivery {
            message,
            low_water: message.sequence.saturating_sub(300),
            destinations: to,
            clock: self.clock + self.position,
            position: self.position,
            time_ms: 0,
            payload,
            answers: true,
        };
        let mut words = Words::default();
        self.machine.deliver(delivery, &mut words).unwrap();
        fetch(&mut self.machine, &mut words);
        words
    }

    fn send(&mut self, sequence: u64, transaction: &Transaction) -> Words {
        let plan = Plan::of(transaction, &self.slots, &self.limits).expect("a good form");
        self.deliver(m(sequence), plan.destinations(), plan.request())
    }

    fn control(&mut self, message: MessageId, request: &Request<'_>) -> Words {
        self.deliver(message, GroupSet::first(2), &request.encode())
    }

    /// The other group objects to nothing.
    fn verdict(&mut self, sequence: u64) -> Words {
        self.say(sequence, ALL)
    }

    fn say(&mut self, sequence: u64, verdict: &[u8]) -> Words {
        let mut words = self.say_only(sequence, verdict);
        while self.machine.go_on(&mut words).unwrap() {}
        fetch(&mut self.machine, &mut words);
        words
    }

    /// The same, without the work that the machine leaves to another call.
    fn say_only(&mut self, sequence: u64, verdict: &[u8]) -> Words {
        let mut words = Words::default();
        self.machine.exchanged(m(sequence), THEM, verdict, &mut words).unwrap();
        words
    }

    /// Replaces the machine by a copy.
    fn copy(&mut self) {
        let replica = ReplicaId::new(US, 1);
        let mut copy = tested::machine(replica, &layout(), self.slots.clone(), self.limits);
        self.machine.begin_copy();
        ripen(&mut self.machine, &mut Words::default(), |part| {
            copy.restore(part, false).unwrap().expect("a good part");
        });
        let mut part = Vec::new();
        self.machine.finish_copy(&mut part).unwrap();
        copy.restore(&part, true).unwrap().expect("a good part");
        while copy.go_on(&mut Words::default()).unwrap() {}
        fetch(&mut copy, &mut Words::default());
        self.machine = copy;
    }
}

fn answered(words: &Words) -> Vec<u64> {
    words.replies.iter().map(|(message, _)| message.sequence).collect()
}

fn spoken(words: &Words) -> Vec<u64> {
    words.exchanges.iter().map(|(message, _, _)| message.sequence).collect()
}

/// A group objects to what none of its replicas has room for, and a read that only the leader executes takes room there alone.
#[test]
fn a_machine_that_is_full_knows_whether_all_of_its_group_are() {
    let long = "x".repeat(600_000);
    let mut bench = Bench::new();
    bench.send(2, &bench.append("large", &long));
    bench.send(3, &bench.append("larger", &long));
    bench.send(4, &bench.transfer("hot", "1"));
    assert_eq!(bench.machine.speech(m(99)), Speech::Open);
    let both = bench.get("large").then(Operation::Get { key: bench.ours("larger") });
    assert_eq!(answered(&bench.send(5, &both)), [5]);
    assert!(!bench.machine.ready(), "its reply waits for the turn");
    assert_eq!(bench.machine.speech(m(99)), Speech::Open, "the other replicas have no reply");

    let mut bench = Bench::new();
    // Each has it twice.
    let half = &long[..long.len() / 2];
    bench.send(4, &bench.transfer("hot", half));
    assert_eq!(bench.machine.speech(m(4)), Speech::Open, "it has spoken");
    bench.send(5, &bench.transfer("hot", half));
    assert!(!bench.machine.ready());
    assert_eq!(bench.machine.speech(m(5)), Speech::Blocked, "by the first one, everywhere");
    assert_eq!(bench.machine.speech(m(99)), Speech::Blocked, "all have what waits");
    assert_eq!(bench.machine.speech(m(1)), Speech::Given, "it is over");
}

#[test]
fn what_does_not_meet_a_waiting_command_does_not_wait() {
    let mut bench = Bench::new();
    let scan = Operation::Scan { start: Vec::new(), end: None, limit: 10 };
    #[rustfmt::skip]
    let cases = [
        // sequence, what,                     answered, because
        (3,  bench.get("other"),               true,  "it reads another key"),
        (4,  bench.append("other", "x"),       true,  "it writes another key"),
        (5,  bench.get("hot"),                 false, "it reads what may be written"),
        (6,  bench.append("hot", "2"),         false, "it writes what may be read"),
        (7,  bench.get("hot"),                 false, "it meets others that wait"),
        (8,  Transaction::of(scan),            false, "it reads all keys"),
        (9,  bench.append("other", "y"),       false, "the scan must not see it"),
        (10, bench.get("other"),               false, "it reads what it will have written"),
        (11, bench.get("third"),               true,  "nobody writes it"),
    ];
    let first = bench.transfer("hot", "1");
    let words = bench.send(2, &first);
    assert_eq!((spoken(&words), answered(&words)), (vec![2], vec![]));
    for (sequence, transaction, goes_on, because) in &cases {
        let words = bench.send(*sequence, transaction);
        assert_eq!(!answered(&words).is_empty(), *goes_on, "{because}");
    }
    assert_eq!(bench.machine.under_way(), 1 + cases.len());
    bench.copy();
    let words = bench.verdict(2);
    assert_eq!(answered(&words), [2, 5, 6, 7, 8, 9, 10], "in their order");
    assert_eq!((bench.machine.under_way(), bench.machine.ready()), (0, true));

    // The same commands, one after the other.
    let mut other = Bench::new();
    other.verdict(2);
    let mut replies = other.send(2, &first).replies;
    for (sequence, transaction, _, _) in &cases {
        replies.extend(other.send(*sequence, transaction).replies);
    }
    for (message, reply) in words.replies {
        assert!(replies.contains(&(message, reply)), "{message} is answered otherwise");
    }
    assert_eq!(bench.machine.history(), other.machine.history());
    assert_eq!(bench.machine.digest().unwrap(), other.machine.digest().unwrap());
}

#[test]
fn a_command_speaks_while_others_wait_unless_it_meets_them() {
    let mut bench = Bench::new();
    let (hot, cold) = (bench.transfer("hot", "1"), bench.transfer("cold", "1"));
    assert_eq!(spoken(&bench.send(2, &hot)), [2]);
    assert_eq!(spoken(&bench.send(3, &hot)), NONE, "what it would say depends on the first");
    assert_eq!(spoken(&bench.send(4, &cold)), [4], "this is another matter");
    assert_eq!(answered(&bench.verdict(4)), [4], "and answered first");
    let mut repeated = Words::default();
    bench.machine.repeat(m(4), &mut repeated);
    bench.machine.repeat(m(3), &mut repeated);
    assert_eq!(answered(&repeated), [4], "again, if it is asked for; the others are to come");
    bench.copy();
    assert_eq!(answered(&bench.verdict(3)), NONE, "heard before it was its turn");
    let words = bench.verdict(2);
    assert_eq!((spoken(&words), answered(&words)), (vec![3], vec![2, 3]));
    assert_eq!(bench.machine.under_way(), 0);
}

#[test]
fn two_looks_tell_that_something_took_effect_in_between() {
    let mut bench = Bench::new();
    let (first, get) = (bench.transfer("hot", "1"), bench.get("other"));
    bench.send(2, &first);
    let look = |bench: &mut Bench| {
        let plan = Plan::of(&get, &bench.slots, &bench.limits).expect("a good form");
        let mut answer = Vec::new();
        assert!(query(&mut bench.machine, plan.request(), &mut answer), "nothing meets it");
        answer.first_chunk::<8>().copied()
    };
    let before = look(&mut bench);
    assert_eq!(look(&mut bench), before, "nothing was written");
    let append = bench.append("other", "x");
    assert_eq!(answered(&bench.send(3, &append)), [3], "though it is not over");
    assert_ne!(look(&mut bench), before);
}

#[test]
fn what_is_under_way_is_bounded() {
    let mut bench = Bench::new();
    let (first, get) = (bench.transfer("hot", "1"), bench.get("other"));
    bench.send(2, &first);
    let mut sequence = 2;
    while bench.machine.ready() {
        sequence += 1;
        assert_eq!(answered(&bench.send(sequence, &get)), [sequence]);
    }
    assert!((100..1_000).contains(&sequence), "{sequence} were taken");
    assert_eq!(answered(&bench.verdict(2)), [2]);
    assert_eq!((bench.machine.under_way(), bench.machine.ready()), (0, true));
    // The same with few large commands: their bytes are bounded.
    let value = "x".repeat(1 << 20);
    let large = bench.append("large", &value);
    bench.send(1_000, &first.clone().guard(bench.ours("large"), Test::Exists));
    assert_eq!(answered(&bench.send(1_001, &large)), NONE);
    assert!(!bench.machine.ready());
    assert_eq!(answered(&bench.verdict(1_000)), [1_000, 1_001]);
}

#[test]
fn what_there_is_room_for_is_decided_in_turn() {
    let limits = Limits { memory_bytes_max: 20_000, ..Limits::default() };
    // There is room for one of the two, and the first may be without effect.
    for (verdict, fits) in [(ALL, false), (NOT_HELD, true)] {
        let mut bench = Bench::with(limits);
        let large = bench.transfer("hot", &"x".repeat(10_000));
        assert_eq!(spoken(&bench.send(2, &large)), [2]);
        let (put, small) = (bench.append("other", &"y".repeat(8_000)), bench.append("third", "z"));
        assert_eq!(answered(&bench.send(3, &small)), [3], "there is room for that anyway");
        assert_eq!(answered(&bench.send(4, &put)), NONE);
        bench.copy();
        let words = bench.say(2, verdict);
        assert_eq!(answered(&words), [2, 4]);
        let part = Part::decode(&words.replies[1].1).expect("a good part");
        assert_eq!(matches!(part, Part::Done { .. }), fits, "{part:?}");

        let mut other = Bench::with(limits);
        other.say(2, verdict);
        for (sequence, transaction) in [(2, &large), (3, &small), (4, &put)] {
            other.send(sequence, transaction);
        }
        assert_eq!(bench.machine.history(), other.machine.history(), "to the byte");
    }
}

#[test]
fn versions_in_a_recreated_group_are_above_all_that_it_gave_before() {
    // `recreate` starts the clock with the time in microseconds.
    let recreated = [0, 1_795_000_000_000_000, 1_795_000_000_000_000 + 60_000_000];
    let mut last = 0;
    for clock in recreated {
        let mut bench = Bench::born(Limits::default(), clock);
        let put = Transaction::of(Operation::Put { key: bench.ours("key"), value: vec![7] });
        let version = |words: &Words| {
            let part = Part::decode(&words.replies[0].1).expect("a good part");
            let Part::Done { outcomes, .. } = part else { panic!("{part:?}") };
            let Outcome::Written(version) = outcomes[0] else { panic!("{outcomes:?}") };
            version
        };
        let old = last;
        for sequence in 2..10 {
            let written = version(&bench.send(sequence, &put));
            assert!(written > last, "{written} after {last}");
            last = written;
        }
        bench.copy();
        let written = version(&bench.send(10, &put));
        assert_eq!(written, last + 1, "a copy goes on");
        last = written;
        let guarded = put.clone().guard(bench.ours("key"), Test::Version(old));
        let words = bench.send(11, &guarded);
        let part = Part::decode(&words.replies[0].1).expect("a good part");
        assert!(matches!(part, Part::Done { held: false, .. }), "{old} is of another incarnation");
    }
}

#[test]
fn blocked_commands_that_read_little_do_not_stop_delivery_near_the_ceiling() {
    if tested::FETCHES {
        return; // How little they read is not known before it is fetched.
    }
    // By its bytes, the answer to each of them could have 4 MiB; the actual answer is small.
    let limits = Limits { memory_bytes_max: 16 << 20, ..Limits::default() };
    for copied in [false, true] {
        let mut bench = Bench::with(limits);
        bench.send(2, &bench.append("hot", "1"));
        assert_eq!(spoken(&bench.send(3, &bench.transfer("hot", "2"))), [3]);
        for sequence in 4..100 {
            let read = Operation::Get { key: bench.ours("hot") };
            let both = bench.append("hot", "3").then(read);
            assert_eq!(answered(&bench.send(sequence, &both)), NONE, "it meets what waits");
        }
        if copied {
            bench.copy();
        }
        let other = bench.append("other", &"x".repeat(1 << 10));
        assert_eq!(answered(&bench.send(100, &other)), [100], "there is room for it");
        assert!(bench.machine.ready());
        assert_eq!(answered(&bench.verdict(3)), (3..100).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_deleted_out_of_turn_makes_no_room_for_those_before() {
    let limits = Limits { memory_bytes_max: 20_000, ..Limits::default() };
    let run = |late: bool, names: &[&str]| {
        let mut bench = Bench::with(limits);
        if !late {
            for sequence in [3, 4] {
                bench.verdict(sequence);
            }
        }
        let old = bench.append("old", &"o".repeat(8_000));
        let waiting = ["hot", "warm"].map(|name| bench.transfer(name, "1"));
        for (sequence, transaction) in (2..).zip([&old, &waiting[0], &waiting[1]]) {
            bench.send(sequence, transaction);
        }
        let mut replies = Vec::new();
        for (sequence, name) in (5..).zip(names) {
            let large = bench.append(name, &"x".repeat(11_000));
            replies.extend(bench.send(sequence, &large).replies);
        }
        let delete = Transaction::of(Operation::Delete { key: bench.ours("old") });
        assert_eq!(answered(&bench.send(7, &delete)), [7], "nothing meets it");
        if late {
            assert!(replies.is_empty(), "they meet what waits");
            bench.copy();
            // The verdict about a command behind another waiting one arrives first.
            replies.extend(bench.verdict(4).replies);
            replies.extend(bench.verdict(3).replies);
        }
        let is_refused = |part: &[u8]| matches!(Part::decode(part), Ok(Part::Refused(_)));
        let refused = replies.iter().filter(|(_, part)| is_refused(part)).count();
        (refused, bench.machine.history())
    };
    for names in [&["hot", "warm"][..], &["hot"], &["warm"]] {
        assert_eq!(run(false, names).0, names.len(), "what is deleted behind them was there");
        assert_eq!(run(true, names), run(false, names), "{names:?}: to the byte");
    }
}

#[test]
fn sessions_begin_and_end_in_their_turn() {
    let mut bench = Bench::new();
    let first = bench.transfer("hot", "1");
    bench.send(2, &first);
    let node = MessageId::new(SessionId(u64::MAX), 1);
    let words = bench.control(node, &Request::Expire(vec![SESSION]));
    assert_eq!(words.ended, [SESSION], "nothing of it is taken any more");
    assert!(words.replies.is_empty() && !bench.machine.ready(), "until those before are over");
    bench.copy();
    let words = bench.verdict(2);
    assert_eq!(answered(&words), [2, 1], "it was before the session's end");
    assert!(words.ended.is_empty() && bench.machine.ready());
    let get = bench.get("hot");
    let late = bench.send(3, &get);
    let refused = Part::decode(&late.replies[0].1);
    assert!(matches!(refused, Ok(Part::Refused(_))), "{refused:?}");
}

/// Commands that one verdict unblocks are executed in parts. Each call does about as much work as it may, and
/// nothing is delivered until all are done.
#[test]
fn a_burst_is_done_in_parts_of_a_megabyte() {
    if tested::FETCHES {
        return; // Commands that fetch come one by one.
    }
    const LEN: usize = 300_000;
    const WAITING: u64 = 40;
    let mut bench = Bench::new();
    bench.send(2, &bench.append("x", &"a".repeat(LEN)));
    bench.send(3, &bench.transfer("x", "b"));
    for sequence in 4..4 + WAITING {
        assert!(bench.send(sequence, &bench.get("x")).replies.is_empty(), "it waits for 3");
    }
    bench.machine.take_work();
    let mut answered = bench.say_only(3, ALL).replies;
    let mut calls = 1;
    loop {
        let work = bench.machine.take_work();
        assert!(work < 2_000_000, "{work} bytes in one call");
        if bench.machine.ready() {
            break;
        }
        let mut words = Words::default();
        assert!(bench.machine.go_on(&mut words).unwrap(), "it is not done");
        assert!(words.replies.len() <= 4);
        answered.extend(words.replies);
        calls += 1;
    }
    assert!(!bench.machine.go_on(&mut Words::default()).unwrap() && calls > 8, "{calls}");
    assert!(answered.iter().map(|(message, _)| message.sequence).eq(3..4 + WAITING));
    assert_eq!(bench.machine.under_way(), 0);
}

/// A machine that was restored continues with the work that its source had left.
#[test]
fn a_copy_goes_on_with_what_was_left() {
    let mut bench = Bench::new();
    bench.send(2, &bench.append("x", &"a".repeat(300_000)));
    bench.send(3, &bench.transfer("x", "b"));
    (4..24).for_each(|sequence| assert!(bench.send(sequence, &bench.get("x")).replies.is_empty()));
    bench.machine.begin_copy();
    let mut copy =
        tested::machine(ReplicaId::new(US, 1), &layout(), bench.slots.clone(), bench.limits);
    loop {
        let mut part = Vec::new();
        bench.machine.go_on(&mut Words::default()).unwrap();
        let last = bench.machine.copy(1 << 20, &mut part).unwrap();
        copy.restore(&part, false).unwrap().expect("a good part");
        if last {
            break;
        }
    }
    bench.say_only(3, ALL);
    assert!(!bench.machine.ready(), "it is not done");
    let mut part = Vec::new();
    bench.machine.finish_copy(&mut part).unwrap();
    copy.restore(&part, true).unwrap().expect("a good part");
    for machine in [&mut copy, &mut bench.machine] {
        while machine.go_on(&mut Words::default()).unwrap() {}
        fetch(machine, &mut Words::default());
        assert!(machine.ready() && machine.under_way() == 0);
    }
    assert_eq!(copy.history(), bench.machine.history());
}

#[test]
fn a_look_waits_for_what_is_being_decided_with_others_and_for_nothing_else() {
    let mut bench = Bench::new();
    let transfer = bench.transfer("hot", "1");
    assert_eq!(spoken(&bench.send(2, &transfer)), [2]);
    let sees = |bench: &mut Bench, name: &str| {
        let plan = Plan::of(&bench.get(name), &bench.slots, &bench.limits).expect("a good form");
        query(&mut bench.machine, plan.request(), &mut Vec::new())
    };
    assert!(!sees(&mut bench, "hot"), "it may be so or not elsewhere");
    assert!(sees(&mut bench, "other"));
    bench.verdict(2);
    assert!(sees(&mut bench, "hot"));
}

/// There is room for what a command writes if its guards hold, and for a command behind it, but not for every
/// other result of the first.
#[test]
fn whatever_a_waiting_command_may_come_to_has_room_before_those_behind_it() {
    let limits = Limits { memory_bytes_max: 200_000, ..Limits::default() };
    let keys = Bench::with(limits);
    let guarded =
        |transaction: Transaction| transaction.guard(keys.key("hot", THEM), Test::Missing);
    let long = |len| "x".repeat(len);
    let read = |name: &str| Operation::Get { key: keys.ours(name) };
    let append = |name: &str, len| {
        let (key, value) = (keys.ours(name), long(len).into());
        Operation::Append { key, value }
    };
    let write = |len| keys.append("hot", &long(len));
    let cases = [
        ("otherwise", vec![guarded(write(1)).otherwise(append("hot", 99_000))], NOT_HELD),
        (
            "what is read otherwise",
            vec![
                keys.append("old", &long(50_000)),
                guarded(write(1)).otherwise(append("hot", 1)).otherwise(read("old")),
            ],
            NOT_HELD,
        ),
        (
            "what is read of what it writes",
            vec![guarded(write(1)), write(50_000).then(read("hot"))],
            ALL,
        ),
    ];
    for (what, before, verdict) in cases {
        let waiting = 1 + before.iter().position(|it| !it.guards.is_empty()).expect("one waits");
        let behind = keys.append("other", &long(100_000));
        let run = |late: bool| {
            let mut bench = Bench::with(limits);
            let number = 1 + waiting as u64;
            if !late {
                bench.say(number, verdict);
            }
            for (sequence, transaction) in (2..).zip(&before) {
                bench.send(sequence, transaction);
            }
            let last = 2 + before.len() as u64;
            let words = bench.send(last, &behind);
            if late {
                assert_eq!(answered(&words), NONE, "{what}");
                bench.say(number, verdict);
            }
            bench.machine.history()
        };
        assert_eq!(run(true), run(false), "{what}: to the byte");
    }
}

/// A call may end after a slot has moved and before the move is over. The digest is that of the last command
/// that is over.
#[test]
fn a_move_that_is_not_over_does_not_count() {
    let mut ended_there = 0;
    for len in ((1 << 20) - 120..(1 << 20) - 4).step_by(3) {
        let (mut bench, mut other) = (Bench::new(), Bench::new());
        let large = Operation::Put { key: bench.ours("hot"), value: vec![b'x'; len] };
        let (transfer, append) = (bench.transfer("hot", "1"), bench.append("hot", "2"));
        let slot = slot_of(&bench.ours("other")).0;
        let it = Request::Move(Move { epoch: 1, slot, to: THEM.0 });
        other.verdict(3);
        for bench in [&mut bench, &mut other] {
            bench.send(2, &Transaction::of(large.clone()));
            bench.send(3, &transfer);
            bench.send(4, &append);
        }
        let before = other.machine.digest_at(4).expect("it is there");
        bench.control(m(5), &it);
        bench.say_only(3, ALL);
        if (bench.machine.slots().epoch, bench.machine.history().0) == (2, 4) {
            ended_there += 1;
            assert_eq!(bench.machine.digest_at(4), Some(before), "{len}");
        }
        while bench.machine.go_on(&mut Words::default()).unwrap() {}
        fetch(&mut bench.machine, &mut Words::default());
        other.control(m(5), &it);
        assert_eq!(bench.machine.digests(), other.machine.digests(), "{len}");
    }
    // A move of a slot whose keys must be fetched does not follow in the same call.
    assert!(ended_there > 0 || tested::FETCHES);
}
