//! A machine whose store fails reports the failure at once, does not answer the command, and executes nothing
//! of it.

use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::plan::Plan;
use skein_kvstore::slots::SlotMap;
use skein_kvstore::store::StoreError;
use skein_kvstore::wire::Request;
use skein_multicast::application::{Application, Delivery};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

use crate::cluster::Words;
use crate::failing::{Failing, Fuse};

const SESSION: SessionId = SessionId(7);
const TOPOLOGY: Topology = Topology { nodes: 2, groups: 2, replicas: 1, engines: 1 };
const US: GroupId = GroupId(0);
const THEM: GroupId = GroupId(1);
/// Verdicts of the other group. `ALL`: its guards hold, and both branches can be executed. `NOT_HELD`: a guard
/// does not hold.
const ALL: u8 = 7;
const NOT_HELD: u8 = 4;

/// One call of a machine.
#[derive(Clone, Debug)]
enum Call {
    Deliver(u64, GroupSet, Vec<u8>),
    Exchanged(u64, u8),
    GoOn,
    Query(Vec<u8>),
    BeginCopy,
    Copy,
    FinishCopy,
    Restore(Vec<u8>, bool),
    Digest,
}

/// Calls of a machine, in order.
struct Script {
    limits: Limits,
    slots: SlotMap,
    calls: Vec<Call>,
    sequence: u64,
}

impl Script {
    fn new(limits: Limits) -> Self {
        let mut script = Self { limits, slots: SlotMap::even(2), calls: Vec::new(), sequence: 1 };
        script.calls.push(Call::Deliver(1, GroupSet::first(2), Request::Open.encode()));
        script
    }

    /// A key of `group` with this prefix.
    fn key(&self, name: &str, group: GroupId) -> Vec<u8> {
        let mut keys = (0..).map(|n| format!("{name}{n}").into_bytes());
        keys.find(|key| self.slots.owner(key) == group).expect("each has half of them")
    }

    fn put(&self, name: &str, value: &[u8]) -> Operation {
        Operation::Put { key: self.key(name, US), value: value.to_vec() }
    }

    fn append(&self, name: &str, value: &[u8]) -> Operation {
        Operation::Append { key: self.key(name, US), value: value.to_vec() }
    }

    fn patch(&self, name: &str) -> Operation {
        Operation::Patch { key: self.key(name, US), offset: 3, bytes: b"patch".to_vec() }
    }

    fn increment(&self, name: &str) -> Operation {
        Operation::Increment { key: self.key(name, US), by: 2 }
    }

    fn get(&self, name: &str) -> Operation {
        Operation::Get { key: self.key(name, US) }
    }

    fn exists(&self, name: &str) -> Operation {
        Operation::Exists { key: self.key(name, US) }
    }

    fn delete(&self, name: &str) -> Operation {
        Operation::Delete { key: self.key(name, US) }
    }

    /// Sends the next message to its groups. Returns its sequence number.
    fn send(&mut self, transaction: &Transaction) -> u64 {
        let plan = Plan::of(transaction, &self.slots, &self.limits).expect("a good form");
        self.sequence += 1;
        let payload = plan.request().to_vec();
        self.calls.push(Call::Deliver(self.sequence, plan.destinations(), payload));
        self.sequence
    }

    /// The same, with a guard in the other group, whose verdict the command then needs.
    fn send_with_theirs(&mut self, transaction: Transaction) -> u64 {
        let theirs = self.key("theirs", THEM);
        self.send(&transaction.guard(theirs, Test::Missing))
    }

    fn query(&mut self, transaction: &Transaction) {
        let plan = Plan::of(transaction, &self.slots, &self.limits).expect("a good form");
        self.calls.push(Call::Query(plan.request().to_vec()));
    }

    /// Each operation alone, several in a transaction, guards of every kind that reads, and unordered reads.
    fn of_one_group(&mut self) {
        let scan = Operation::Scan { start: Vec::new(), end: None, limit: 10 };
        let alone = [
            self.put("a", b"first"),
            self.put("a", &[7; 300]),
            self.append("a", b"more"),
            self.append("fresh", b"more"),
            self.patch("a"),
            self.increment("n"),
            self.increment("n"),
            self.put("b", b"2"),
            self.get("a"),
            self.exists("a"),
            self.delete("b"),
            scan.clone(),
        ];
        for operation in alone {
            self.send(&Transaction::of(operation));
        }
        let unchanged = Test::Unchanged { end: None, held: Vec::new() };
        let (a, n) = (self.key("a", US), self.key("n", US));
        let many = Transaction::of(self.put("c", b"3"))
            .then(self.get("a"))
            .then(self.append("a", b"and"))
            .then(self.append("a", b"more"))
            .then(self.patch("fresh"))
            .then(self.increment("n"))
            .then(self.exists("n"))
            .then(self.delete("fresh"))
            .otherwise(self.put("d", b"4"))
            .guard(a, Test::Exists)
            .guard(n, Test::Equals(b"4".to_vec()));
        self.send(&many);
        self.send(&many);
        let scanned = Transaction::of(self.put("bb", b"5")).then(scan.clone());
        self.send(&scanned.guard(Vec::new(), unchanged));
        self.calls.push(Call::Exchanged(self.sequence, ALL));
        self.query(&Transaction::of(self.get("a")).then(self.exists("c")));
        self.query(&Transaction::of(scan));
    }

    /// Commands that need the other group's verdict, which arrives later or has arrived, and commands behind
    /// them.
    fn of_two_groups(&mut self) {
        // A short result is kept and applied. A long one is not kept, and the branch is run again.
        for value in [&[1; 10][..], &[1; 3_000]] {
            for verdict in [ALL, NOT_HELD] {
                let both = Transaction::of(self.put("t", value)).then(self.get("a"));
                let both = both.otherwise(self.append("u", b"no"));
                let at = self.send_with_theirs(both);
                self.send(&Transaction::of(self.get("t")).then(self.put("v", b"behind")));
                self.send(&Transaction::of(self.append("meets_nothing", b"it")));
                self.calls.push(Call::Exchanged(at, verdict));
                self.calls.push(Call::GoOn);
            }
        }
        // The verdict arrives before the command.
        for verdict in [ALL, NOT_HELD] {
            self.calls.push(Call::Exchanged(self.sequence + 1, verdict));
            let key = self.key("t", US);
            let both = Transaction::of(self.append("t", b"now")).otherwise(self.put("w", b"or"));
            self.send_with_theirs(both.guard(key, Test::Exists));
        }
    }

    /// So many commands wait for a verdict that the machine leaves some of them to another call.
    fn of_much_work(&mut self) {
        self.send(&Transaction::of(self.put("t", &vec![1; 700_000])));
        let at = self.send_with_theirs(Transaction::of(self.append("t", b"first")));
        for _ in 0..4 {
            self.send(&Transaction::of(self.append("t", b"behind")));
        }
        self.calls.push(Call::Exchanged(at, ALL));
        self.calls.push(Call::GoOn);
    }

    /// A copy, with commands between its parts and some under way at its end.
    fn copied(&mut self) {
        self.calls.push(Call::BeginCopy);
        self.calls.push(Call::Copy);
        self.send(&Transaction::of(self.put("a", b"changed")));
        self.calls.push(Call::Copy);
        self.send(&Transaction::of(self.delete("a")));
        (0..8).for_each(|_| self.calls.push(Call::Copy));
        self.send(&Transaction::of(self.delete("n")));
        self.send_with_theirs(Transaction::of(self.put("t", b"under way")));
        self.send(&Transaction::of(self.get("t")).then(self.append("t", b"behind")));
        self.send(&Transaction::of(self.put("c", b"at the end")));
        self.calls.push(Call::FinishCopy);
        self.calls.push(Call::Exchanged(self.sequence - 2, ALL));
        self.calls.push(Call::Digest);
    }
}

/// A machine that executes a script, and its output.
struct Played {
    machine: Machine<Failing>,
    position: u64,
    words: Words,
    /// The parts of the copy.
    parts: Vec<Vec<u8>>,
}

impl Played {
    fn new(script: &Script, fuse: &Fuse) -> Self {
        let store = Failing::with(fuse);
        let (id, slots) = (ReplicaId::new(US, 0), script.slots.clone());
        let layout = Layout::propose(TOPOLOGY).unwrap();
        let machine = Machine::with_store(store, id, &layout, slots, script.limits);
        Self { machine, position: 0, words: Words::default(), parts: Vec::new() }
    }

    fn call(&mut self, call: &Call) -> Result<(), StoreError> {
        self.words = Words::default();
        let (machine, words) = (&mut self.machine, &mut self.words);
        match call {
            Call::Deliver(sequence, destinations, payload) => {
                self.position += 1;
                let delivery = Delivery {
                    message: MessageId::new(SESSION, *sequence),
                    low_water: 1,
                    destinations: *destinations,
                    clock: self.position,
                    position: self.position,
                    time_ms: 0,
                    payload,
                    answers: true,
                };
                machine.deliver(delivery, words)
            }
            Call::Exchanged(sequence, verdict) => {
                machine.exchanged(MessageId::new(SESSION, *sequence), THEM, &[*verdict], words)
            }
            Call::GoOn => {
                while machine.go_on(words)? {}
                Ok(())
            }
            Call::Query(query) => machine.query(query, &mut Vec::new()).map(drop),
            Call::BeginCopy => {
                machine.begin_copy();
                Ok(())
            }
            Call::Copy => {
                let mut part = Vec::new();
                machine.copy(1, &mut part)?;
                self.parts.push(part);
                Ok(())
            }
            Call::FinishCopy => {
                let mut part = Vec::new();
                machine.finish_copy(&mut part)?;
                self.parts.push(part);
                Ok(())
            }
            Call::Restore(part, last) => {
                machine.restore(part, *last)?.expect("a part that cannot be stored is a good part");
                Ok(())
            }
            Call::Digest => machine.digest().map(drop),
        }
    }

    /// The machine's contents, and the progress that it reports.
    fn state(&self) -> (u64, u64, (u64, u64), usize) {
        let machine = &self.machine;
        (machine.keys(), machine.bytes(), machine.history(), machine.digests().len())
    }
}

/// Plays a script with a store that fails at its first operation, then at its second, and so on. Returns the
/// number of operations.
fn fails_everywhere(script: &Script) -> u64 {
    let mut well = Played::new(script, &Fuse::default());
    let mut said = Vec::new();
    for call in &script.calls {
        well.call(call).expect("its store is well");
        said.push(std::mem::take(&mut well.words).replies);
    }
    for nth in 1.. {
        let fuse = Fuse::default();
        let mut played = Played::new(script, &fuse);
        fuse.burn(nth);
        let mut failed = false;
        for (call, well) in script.calls.iter().zip(&said) {
            let before = played.state();
            let result = played.call(call);
            let replies = &played.words.replies;
            failed = fuse.has_failed();
            assert_eq!(result.is_err(), failed, "operation {nth}, in {call:?}");
            if !failed {
                assert_eq!(replies, well, "{call:?}");
                continue;
            }
            // The commands answered earlier in the same call were executed.
            let answered = replies.len();
            assert_eq!(*replies, well[..answered], "operation {nth}, in {call:?}");
            assert!(answered < well.len().max(1), "operation {nth}: {call:?} is answered");
            if matches!(call, Call::Deliver(..)) {
                assert_eq!(played.state(), before, "operation {nth}: a part of {call:?} was done");
            }
            break;
        }
        if !failed {
            return nth - 1;
        }
    }
    unreachable!("there is an end to the operations of a script")
}

/// Limits with room for everything, and limits so tight that the present sizes have to be read.
fn limits() -> [Limits; 2] {
    let tight = Limits { memory_bytes_max: 6_000, ..Limits::default() };
    [Limits::default(), tight]
}

#[test]
fn a_command_in_which_the_store_fails_is_not_answered_and_nothing_of_it_is_done() {
    for limits in limits() {
        let mut script = Script::new(limits);
        script.of_one_group();
        let operations = fails_everywhere(&script);
        assert!(operations > 40, "{operations}");
    }
}

#[test]
fn a_command_of_several_groups_in_which_the_store_fails_is_not_answered() {
    for limits in limits() {
        let mut script = Script::new(limits);
        script.send(&Transaction::of(script.put("a", &[1; 100])));
        script.of_two_groups();
        let operations = fails_everywhere(&script);
        assert!(operations > 40, "{operations}");
    }
}

#[test]
fn what_a_machine_has_left_to_another_call_is_not_answered_if_the_store_fails_then() {
    let mut script = Script::new(Limits::default());
    script.of_much_work();
    let (operations, before) = (fails_everywhere(&script), script.calls.pop());
    assert!(matches!(before, Some(Call::GoOn)));
    assert!(operations > fails_everywhere(&script), "nothing was left");
}

#[test]
fn a_state_that_cannot_be_read_or_stored_is_not_copied() {
    let mut script = Script::new(Limits::default());
    script.of_one_group();
    script.copied();
    let operations = fails_everywhere(&script);
    assert!(operations > 60, "{operations}");

    // A receiver whose store fails reports the failure, and not that the copy is invalid.
    let mut source = Played::new(&script, &Fuse::default());
    script.calls.iter().for_each(|call| source.call(call).expect("its store is well"));
    let last = source.parts.len() - 1;
    let parts = source.parts.into_iter().enumerate();
    let calls = parts.map(|(number, part)| Call::Restore(part, number == last));
    let mut script = Script { calls: calls.collect(), ..Script::new(Limits::default()) };
    let under_way = script.sequence;
    script.calls.extend([Call::GoOn, Call::Digest]);
    assert_eq!(under_way, 1, "it is restored into a machine that was asked for nothing");
    let operations = fails_everywhere(&script);
    assert!(operations > 10, "{operations}");
}
