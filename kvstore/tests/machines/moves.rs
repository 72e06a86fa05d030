//! Moves hash slots between groups while commands are under way.

use std::collections::BTreeMap;

use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::{Outcome, Refusal, Reply};
use skein_kvstore::slots::{HashSlot, SlotMap, slot_of};
use skein_kvstore::wire::Request;
use skein_multicast::application::Application;
use skein_protocol::ids::{GroupId, MessageId, SessionId};

use crate::cluster::{Cluster, Random};
use crate::tested;

const SESSION: SessionId = SessionId(7);

/// A cluster with one session, and the plans sent in it.
struct Asked {
    cluster: Cluster,
    limits: Limits,
    sequence: u64,
    plans: BTreeMap<u64, Plan>,
}

impl Asked {
    fn new(groups: u16, seed: u64) -> Self {
        let limits = Limits::default();
        let cluster = Cluster::new(groups, limits, seed);
        let mut this = Self { cluster, limits, sequence: 0, plans: BTreeMap::new() };
        this.send(Plan::open(&SlotMap::even(groups)));
        this.cluster.run();
        this
    }

    fn send(&mut self, plan: Plan) -> u64 {
        self.sequence += 1;
        let message = MessageId::new(SESSION, self.sequence);
        self.cluster.order(message, 1, plan.destinations(), plan.request());
        self.plans.insert(self.sequence, plan);
        self.sequence
    }

    fn transact(&mut self, transaction: &Transaction, slots: &SlotMap) -> u64 {
        self.send(Plan::of(transaction, slots, &self.limits).expect("it can be done"))
    }

    fn move_slot(&mut self, slot: HashSlot, to: u16, slots: &SlotMap) -> u64 {
        self.send(Plan::move_slot(slots, slot, GroupId(to)))
    }

    fn answer(&self, sequence: u64) -> Result<Reply, Refusal> {
        self.plans[&sequence].join(self.cluster.parts(MessageId::new(SESSION, sequence)))
    }

    /// The slot map, which must be the same in all machines.
    fn slots(&self) -> SlotMap {
        let mut machines = self.cluster.machines.values();
        let first = machines.next().expect("there are some").slots().clone();
        assert!(machines.all(|machine| *machine.slots() == first), "all have one map");
        first
    }
}

fn put(key: &[u8], value: &[u8]) -> Operation {
    Operation::Put { key: key.to_vec(), value: value.to_vec() }
}

fn get(key: &[u8]) -> Operation {
    Operation::Get { key: key.to_vec() }
}

#[test]
fn an_empty_slot_is_moved_and_whoever_sends_by_the_old_map_is_told_the_new_one() {
    let mut asked = Asked::new(3, 1);
    let old = asked.slots();
    let (key, from) = (b"key".to_vec(), old.owner(b"key"));
    let to = (from.0 + 1) % 3;
    let moved = asked.move_slot(slot_of(&key), to, &old);
    let late = asked.transact(&Transaction::of(put(&key, b"1")), &old);
    asked.cluster.run();
    assert!(asked.answer(moved).is_ok());
    let new = asked.slots();
    assert_eq!((new.epoch, new.owner(&key)), (2, GroupId(to)));
    let Err(Refusal::WrongEpoch { slots }) = asked.answer(late) else {
        panic!("{:?}", asked.answer(late));
    };
    assert_eq!(*slots, new);
    let again = asked.plans[&late].again(&slots, &asked.limits).expect("it is newer").unwrap();
    assert!(asked.plans[&late].again(&old, &asked.limits).is_none(), "it is not newer");
    assert_eq!(again.destinations().iter().next(), Some(GroupId(to)));
    let again = asked.send(again);
    asked.cluster.run();
    assert!(asked.answer(again).is_ok());
    assert_eq!(asked.cluster.machines[&(to, 0)].keys(), 1);
}

#[test]
fn a_slot_that_holds_keys_stays_and_so_does_the_map() {
    let mut asked = Asked::new(2, 2);
    let slots = asked.slots();
    let owner = slots.owner(b"key");
    asked.transact(&Transaction::of(put(b"key", b"1")), &slots);
    let slot = slot_of(b"key");
    let refused = asked.move_slot(slot, 1 - owner.0, &slots);
    asked.transact(&Transaction::of(Operation::Delete { key: b"key".to_vec() }), &slots);
    let moved = asked.move_slot(slot, 1 - owner.0, &slots);
    asked.cluster.run();
    let wanted = Refusal::SlotInUse { slot: slot.0, group: owner.0 };
    assert_eq!(asked.answer(refused), Err(wanted));
    assert!(asked.answer(moved).is_ok());
    assert_eq!(asked.slots().epoch, 2, "one of them was done");
}

#[test]
fn a_move_that_makes_no_sense_changes_nothing() {
    let mut asked = Asked::new(2, 3);
    let slots = asked.slots();
    let owner = slots.owner(b"key").0;
    #[rustfmt::skip]
    let cases = [
        (slot_of(b"key"),     2,     false, "there is no such group"),
        (HashSlot(16_384),    0,     false, "there is no such slot"),
        (slot_of(b"key"),     owner, true,  "it is there"),
    ];
    for (slot, to, done, because) in cases {
        let sequence = asked.move_slot(slot, to, &slots);
        asked.cluster.run();
        assert_eq!(asked.answer(sequence).is_ok(), done, "{because}");
        assert_eq!(asked.slots(), slots, "{because}");
    }
}

#[test]
fn a_group_that_lost_its_sessions_moves_nothing_and_holds_nobody_up() {
    let mut asked = Asked::new(3, 4);
    let slots = asked.slots();
    let owner = slots.owner(b"key");
    asked.cluster.recreate(owner);
    let refused = asked.move_slot(slot_of(b"key"), (owner.0 + 1) % 3, &slots);
    asked.cluster.run();
    assert_eq!(asked.answer(refused), Err(Refusal::SessionExpired));
    assert_eq!(asked.slots(), slots);
    // A group that does not wait for the owner's verdict does not keep it either.
    let another = GroupId((owner.0 + 1) % 3);
    asked.cluster.recreate(another);
    let key = b"c";
    assert!(![owner, another].contains(&slots.owner(key)), "the session is open there");
    asked.move_slot(slot_of(key), another.0, &slots);
    asked.cluster.run();
}

#[test]
fn replicas_with_two_slot_maps_have_two_digests() {
    let digests = |to: u16| {
        let mut asked = Asked::new(3, 5);
        let slots = asked.slots();
        let moved = asked.move_slot(slot_of(b"key"), to, &slots);
        asked.cluster.run();
        assert!(asked.answer(moved).is_ok());
        let machine = &asked.cluster.machines[&(2, 0)];
        (machine.slots().epoch, machine.history(), machine.digest().unwrap(), machine.digests())
    };
    let (one, other) = (digests(0), digests(1));
    assert_eq!((one.0, one.1), (other.0, other.1), "nothing else tells them apart");
    assert!(one.2 != other.2 && one.3 != other.3, "{one:?} {other:?}");
}

/// The model: the value of each key, and the slot map.
#[derive(Clone)]
struct Model {
    slots: SlotMap,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The expected answer.
#[derive(Debug)]
enum Wanted {
    Held(bool),
    Value(Option<Vec<u8>>),
    WrongEpoch(u32),
    InUse,
}

/// Orders commands over several keys, with the present map or an older one, and moves of their slots. Machines
/// deliver them, send verdicts and are copied in an order that the scheduler chooses.
#[test]
fn commands_and_moves_come_to_what_they_come_to_one_after_the_other() {
    let keys: Vec<Vec<u8>> = (0..6).map(|key| format!("key{key}").into_bytes()).collect();
    let (mut moves, mut refused, mut in_use) = (0, 0, 0);
    let seeds = u64::from(tested::cases(150));
    for seed in 1..seeds {
        let mut random = Random((seed * 0x9E37_79B9) | 1);
        let groups = 2 + random.below(3) as u16;
        let mut asked = Asked::new(groups, seed);
        let mut model = Model { slots: asked.slots(), pairs: BTreeMap::new() };
        let mut older = vec![model.slots.clone()];
        let mut wanted = Vec::new();
        // 1 if a move was sent that will change the map. Commands are sent with the old map until it is done.
        let mut ahead = 0;
        for step in 0..40 {
            let stale = random.below(6) == 0;
            let by =
                if stale { older[random.below(older.len())].clone() } else { model.slots.clone() };
            let pick = |random: &mut Random| keys[random.below(keys.len())].clone();
            let (one, other) = (pick(&mut random), pick(&mut random));
            let value = format!("{step}").into_bytes();
            let outdated = by.epoch != model.slots.epoch + ahead;
            let (sequence, expected) = match random.below(6) {
                0 => {
                    let (slot, to) = (slot_of(&one), random.below(usize::from(groups)) as u16);
                    let sequence = asked.move_slot(slot, to, &by);
                    let used = model.pairs.keys().any(|key| slot_of(key) == slot);
                    if !outdated && !used && model.slots.owner(&one).0 != to {
                        ahead = 1;
                        moves += 1;
                    }
                    let done = if used { Wanted::InUse } else { Wanted::Held(true) };
                    (sequence, done)
                }
                1 => {
                    let read = Wanted::Value(model.pairs.get(&one).cloned());
                    (asked.transact(&Transaction::of(get(&one)), &by), read)
                }
                2 => {
                    let delete = Operation::Delete { key: one.clone() };
                    let sequence = asked.transact(&Transaction::of(delete), &by);
                    if !outdated {
                        model.pairs.remove(&one);
                    }
                    (sequence, Wanted::Held(true))
                }
                _ => {
                    let both = Transaction::of(put(&one, &value)).then(put(&other, &value));
                    let both = both.guard(other.clone(), Test::Missing).otherwise(get(&one));
                    let held = !model.pairs.contains_key(&other);
                    if !outdated && held {
                        model.pairs.insert(one.clone(), value.clone());
                        model.pairs.insert(other.clone(), value.clone());
                    }
                    (asked.transact(&both, &by), Wanted::Held(held))
                }
            };
            let now = model.slots.epoch + ahead;
            let expected = if outdated { Wanted::WrongEpoch(now) } else { expected };
            wanted.push((sequence, expected));
            if random.below(4) == 0 || step == 39 {
                asked.cluster.run();
                assert_eq!(asked.slots().epoch, model.slots.epoch + ahead, "seed {seed}");
                model.slots = asked.slots();
                older.push(model.slots.clone());
                ahead = 0;
            }
        }
        let mut versions = BTreeMap::<Vec<u8>, u64>::new();
        for (sequence, wanted) in wanted {
            let answer = asked.answer(sequence);
            let request =
                Request::decode(asked.plans[&sequence].request()).expect("as it was sent");
            let asked_for = request.command().map(|command| command.transaction);
            if let (Some(asked_for), Ok(reply)) = (asked_for, &answer)
                && reply.held
            {
                let mut written = BTreeMap::new();
                for (operation, outcome) in asked_for.then.iter().zip(&reply.outcomes) {
                    if let Outcome::Written(version) = outcome {
                        written.insert(operation.key().expect("it was written").0, *version);
                    }
                }
                for (key, version) in written {
                    let before = versions.insert(key.to_vec(), version).unwrap_or_default();
                    assert!(before < version, "seed {seed}: {before} and then {version}");
                }
            }
            let fits = match (&wanted, &answer) {
                (Wanted::Held(held), Ok(reply)) => reply.held == *held,
                (Wanted::Value(value), Ok(reply)) => {
                    let found = match &reply.outcomes[..] {
                        [Outcome::Value(found)] => found.as_ref().map(|(value, _)| value),
                        _ => None,
                    };
                    found == value.as_ref()
                }
                (Wanted::WrongEpoch(epoch), Err(Refusal::WrongEpoch { slots })) => {
                    refused += 1;
                    slots.epoch == *epoch
                }
                // The first recorded answer to a read may come from a replica that left the read to the leader.
                (Wanted::WrongEpoch(_), Err(Refusal::Forgotten)) => {
                    asked.plans[&sequence].only_reads()
                }
                (Wanted::InUse, Err(Refusal::SlotInUse { .. })) => {
                    in_use += 1;
                    true
                }
                _ => false,
            };
            assert!(fits, "seed {seed}, {sequence}: {answer:?}, and not {wanted:?}");
        }
        for (key, value) in &model.pairs {
            let owner = model.slots.owner(key).0;
            let read = asked.transact(&Transaction::of(get(key)), &model.slots);
            asked.cluster.run();
            let found = asked.answer(read).expect("it can be read").outcomes.remove(0);
            assert!(
                matches!(&found, Outcome::Value(Some((it, _))) if it == value),
                "seed {seed}: {found:?} in g{owner}"
            );
        }
        let keys: u64 = (0..groups).map(|group| asked.cluster.machines[&(group, 0)].keys()).sum();
        assert_eq!(keys, model.pairs.len() as u64, "seed {seed}: no key stands twice");
        assert!(asked.cluster.machines.values().all(Application::ready), "seed {seed}");
    }
    let often = seeds * 2 / 3;
    assert!(moves > often && refused > often && in_use > often, "{moves} {refused} {in_use}");
}
