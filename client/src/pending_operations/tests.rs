use skein_kvstore::command::{Operation as Op, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::reply::Outcome;
use skein_kvstore::slots::SlotMap;
use skein_kvstore::wire::PartWriter;

use super::*;

const KEY: SessionKey = SessionKey(3);
const ALLOWED: Duration = Duration::from_secs(5);

type Ended = Vec<(u64, Result<Reply, Error>)>;

struct World {
    operations: PendingOperations,
    slots: SlotMap,
    tickets: u64,
    ended: Ended,
}

impl World {
    /// Two groups, and a session whose first message, 1, was sent.
    fn opening() -> Self {
        let (mut operations, slots) = (PendingOperations::default(), SlotMap::even(2));
        operations.opening(KEY, Plan::open(&slots));
        operations.sent(KEY, Next::Opening, 1);
        Self { operations, slots, tickets: 0, ended: Vec::new() }
    }

    fn open() -> Self {
        let mut world = Self::opening();
        assert!(!world.reply(1, 0, &done(&[])) && world.reply(1, 1, &done(&[])));
        world
    }

    fn submit(&mut self, keys: &[&str], now: Duration) -> u64 {
        let get = |key: &&str| Op::Get { key: key.as_bytes().to_vec() };
        let then = keys.iter().map(get).collect();
        let transaction = Transaction { then, ..Transaction::default() };
        let plan = Plan::of(&transaction, &self.slots, &Limits::default()).unwrap();
        self.tickets += 1;
        let ticket = Ticket { session: KEY, number: self.tickets };
        self.operations.submit(ticket, plan, now + ALLOWED, ALLOWED);
        self.tickets
    }

    fn reply(&mut self, sequence: u64, group: u16, bytes: &[u8]) -> bool {
        let ended = &mut self.ended;
        let mut finished = |ticket: Ticket, result| ended.push((ticket.number, result));
        let ours = &mut self.slots;
        let mut again = |slots: &SlotMap, plan: &Plan| {
            ours.clone_from(slots);
            plan.again(slots, &Limits::default())?.ok()
        };
        self.operations.reply(KEY, sequence, GroupId(group), bytes, &mut again, &mut finished)
    }

    fn expire(&mut self, now: Duration) {
        self.expire_without(now, GroupSet::EMPTY);
    }

    fn expire_without(&mut self, now: Duration, without_quorum: GroupSet) {
        let ended = &mut self.ended;
        let mut finished = |ticket: Ticket, result| ended.push((ticket.number, result));
        self.operations.expire(now, without_quorum, &mut finished);
    }

    fn next(&self) -> Option<&Plan> {
        self.operations.next(KEY, GroupSet::EMPTY).map(|(_, plan)| plan)
    }

    /// Multicasts the first operation in the queue.
    fn send(&mut self, sequence: u64) {
        self.operations.sent(KEY, Next::Operation(0), sequence);
    }

    fn stale(&mut self) -> Vec<u64> {
        let mut stale = Vec::new();
        self.operations.stale(&mut stale);
        stale.into_iter().map(|(_, sequence)| sequence).collect()
    }
}

fn only(group: u16) -> GroupSet {
    GroupSet::single(GroupId(group))
}

fn done(values: &[&[u8]]) -> Vec<u8> {
    let mut part = PartWriter::default();
    part.done(true, values.len());
    for value in values {
        let value = skein_kvstore::wire::Bytes(value);
        part.outcome(&Outcome::Value(Some((value, 7))));
    }
    part.bytes().to_vec()
}

fn refused(refusal: &Refusal) -> Vec<u8> {
    let mut part = PartWriter::default();
    part.refused(Some(refusal));
    part.bytes().to_vec()
}

// According to `slots_are_those_of_redis_cluster`: one is in the upper half of the hash slots, one in the lower.
const IN_G1: &str = "foo";
const IN_G0: &str = "";

#[test]
fn nothing_is_sent_before_every_group_knows_the_session() {
    let mut world = World::opening();
    world.submit(&[IN_G1], Duration::ZERO);
    assert!(world.next().is_none());
    assert!(!world.reply(1, 1, &done(&[])));
    assert!(world.next().is_none(), "g0 has not replied");
    assert!(world.reply(1, 0, &done(&[])));
    assert!(world.next().is_some());
    assert!(world.operations.senders().eq([KEY]));
}

/// The second epoch, in which g0 owns the slot of [`IN_G1`].
fn moved() -> Refusal {
    let whole: Vec<(u16, u16)> = vec![(0, 16_384)];
    let bytes = postcard::to_stdvec(&(2_u32, 2_u16, whole)).unwrap();
    Refusal::WrongEpoch { slots: postcard::from_bytes(&bytes).unwrap() }
}

#[test]
fn what_is_refused_for_its_slot_map_is_sent_by_the_new_one_within_its_time() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    assert_eq!(world.next().map(Plan::destinations), Some(only(1)));
    world.send(2);
    assert!(world.reply(2, 1, &refused(&moved())));
    assert_eq!(world.ended, [], "its caller is told nothing of it");
    assert_eq!(world.next().map(Plan::destinations), Some(only(0)));
    world.send(3);
    world.reply(3, 0, &done(&[b"x"]));
    assert_eq!(world.ended.len(), 1);
    assert!(world.ended[0].1.is_ok());
    world.submit(&[IN_G1], Duration::ZERO);
    assert_eq!(world.next().map(Plan::destinations), Some(only(0)), "the map stays");
}

#[test]
fn what_is_refused_for_its_slot_map_ends_when_its_time_is_over() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    world.reply(2, 1, &refused(&moved()));
    world.expire(ALLOWED);
    assert!(matches!(world.ended[..], [(1, Err(Error::Unavailable { sent: false, .. }))]));
}

#[test]
fn whoever_is_refused_by_an_older_slot_map_is_told() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    let refusal = Refusal::WrongEpoch { slots: Box::new(SlotMap::even(2)) };
    world.reply(2, 1, &refused(&refusal));
    assert_eq!(world.ended, [(1, Err(Error::Refused(refusal)))], "it would be refused for ever");
}

#[test]
fn a_session_that_is_refused_refuses() {
    let mut world = World::opening();
    world.submit(&[IN_G1], Duration::ZERO);
    let refusal = Refusal::TooManySessions { max: 1 };
    world.reply(1, 0, &refused(&refusal));
    world.reply(1, 1, &refused(&refusal));
    assert_eq!(world.ended, [(1, Err(Error::Refused(refusal.clone())))]);
    assert_eq!(world.operations.waiting(KEY), Err(Error::Refused(refusal)));
    let mut session_closes = Vec::new();
    world.operations.close(KEY, ALLOWED, &mut Vec::new());
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [SessionClose::Forget(KEY)], "there is nothing to close");
}

#[test]
fn a_reply_needs_every_group_once() {
    let mut world = World::open();
    world.submit(&[IN_G0, IN_G1], Duration::ZERO);
    assert_eq!(world.next().unwrap().destinations(), GroupSet::first(2));
    world.send(2);
    assert!(!world.reply(2, 1, &done(&[b"of g1"])));
    assert!(!world.reply(2, 1, &done(&[b"again"])), "a repeated part");
    assert!(!world.reply(9, 1, &done(&[b"of what?"])), "never sent");
    assert!(world.reply(2, 0, &done(&[b"of g0"])));
    assert!(!world.reply(2, 0, &done(&[b"of g0"])), "settled once");
    let value = |bytes: &[u8]| Outcome::Value(Some((bytes.to_vec(), 7)));
    let outcomes = vec![value(b"of g0"), value(b"of g1")];
    assert_eq!(world.ended, [(1, Ok(Reply { held: true, outcomes }))]);
    assert_eq!(world.operations.counts(), Counts::default());
}

#[test]
fn an_operation_without_a_reply_is_not_settled_until_it_has_one() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    world.submit(&[IN_G1], Duration::from_secs(1));
    world.expire(ALLOWED.checked_sub(Duration::from_nanos(1)).unwrap());
    assert!(world.ended.is_empty());
    world.expire(ALLOWED);
    assert_eq!(world.ended, [(1, Err(Error::UnknownOutcome { after: ALLOWED, silent: only(1) }))]);
    assert_eq!(world.operations.earliest(), Some(Duration::from_secs(6)));
    world.expire(Duration::from_secs(6));
    let why = Unavailability::NotSent { after: ALLOWED, silent: only(1) };
    assert_eq!(world.ended[1], (2, Err(Error::Unavailable { why, sent: false })));
    assert!(world.next().is_none(), "what was given up is not sent after all");
    assert!(world.reply(2, 1, &done(&[b"late"])), "now it can be settled");
    assert_eq!(world.ended.len(), 2, "and nobody hears of it");
    assert_eq!(world.operations.earliest(), None);
}

#[test]
fn a_group_without_a_quorum_is_named_and_sent_nothing() {
    let mut world = World::open();
    world.submit(&[IN_G0, IN_G1], Duration::ZERO);
    world.submit(&[IN_G1], Duration::ZERO);
    world.submit(&[IN_G0], Duration::ZERO);
    let (place, plan) = world.operations.next(KEY, only(1)).unwrap();
    assert_eq!((place, plan.destinations()), (Next::Operation(2), only(0)), "others are held back");
    world.operations.sent(KEY, place, 2);
    assert!(world.operations.next(KEY, only(1)).is_none());
    world.expire_without(ALLOWED, only(1));
    let why = Unavailability::NoQuorum { groups: only(1), after: ALLOWED };
    let lost = Error::Unavailable { why, sent: false };
    let unknown = Error::UnknownOutcome { after: ALLOWED, silent: only(0) };
    assert_eq!(world.ended, [(3, Err(unknown)), (1, Err(lost.clone())), (2, Err(lost.clone()))]);
    assert!(lost.had_no_effect());
    let mut opening = World::opening();
    opening.submit(&[IN_G0], Duration::ZERO);
    opening.expire_without(ALLOWED, only(1));
    assert_eq!(opening.ended, [(1, Err(lost.clone()))], "g1 must know the session first");
}

/// Three groups in a chain, and keys in each of them.
fn chain() -> (World, [&'static str; 3]) {
    let (tree, slots) = (Tree::depth(3), SlotMap::even(3));
    let mut operations = PendingOperations::along(Some(&tree));
    operations.opening(KEY, Plan::open(&slots));
    operations.sent(KEY, Next::Opening, 1);
    let mut world = World { operations, slots, tickets: 0, ended: Vec::new() };
    for group in 0..3 {
        world.reply(1, group, &done(&[]));
    }
    // By their hash slots: 0, 10,276 and 12,182 of 16,384.
    (world, ["", "z", "foo"])
}

fn held_up(by: u16, groups: &[u16], sent: bool) -> Error {
    let groups = groups.iter().copied().map(GroupId).collect();
    let why = Unavailability::HeldUp { by: only(by), groups, after: ALLOWED };
    Error::Unavailable { why, sent }
}

#[test]
fn a_group_on_the_path_without_a_quorum_is_named_and_holds_back_what_goes_through_it() {
    let (mut world, [in_g0, in_g1, in_g2]) = chain();
    for keys in [&[in_g0, in_g2][..], &[in_g1, in_g2], &[in_g1], &[in_g2], &[in_g0]] {
        world.submit(keys, Duration::ZERO);
    }
    for (sequence, destination) in [(2, 2), (3, 0)] {
        let (place, plan) = world.operations.next(KEY, only(1)).expect("it needs no g1");
        assert_eq!(plan.destinations(), only(destination), "messages of one group take no path");
        world.operations.sent(KEY, place, sequence);
        assert!(world.reply(sequence, destination, &done(&[b"x"])));
    }
    assert!(world.operations.next(KEY, only(1)).is_none());
    world.ended.clear();
    world.expire_without(ALLOWED, only(1));
    let error = held_up(1, &[1, 2], false);
    assert!(error.had_no_effect());
    let text = error.to_string();
    assert!(text.contains("to {g1 g2}") && text.contains("wait for {g1}"), "{text}");
    let why = Unavailability::NoQuorum { groups: only(1), after: ALLOWED };
    let alone = Error::Unavailable { why, sent: false };
    assert_eq!(world.ended, [(1, Err(error.clone())), (2, Err(error)), (3, Err(alone))]);
}

#[test]
fn what_was_sent_is_held_up_if_a_group_on_the_way_to_a_silent_one_is_without_a_quorum() {
    let (mut world, [in_g0, in_g1, in_g2]) = chain();
    world.submit(&[in_g0, in_g2], Duration::ZERO);
    world.submit(&[in_g0, in_g1], Duration::ZERO);
    world.submit(&[in_g2], Duration::ZERO);
    for sequence in 2..=4 {
        world.send(sequence);
    }
    assert!(!world.reply(2, 0, &done(&[b"x"])));
    assert!(!world.reply(3, 1, &done(&[b"x"])), "g0 has not answered");
    world.expire_without(ALLOWED, only(1));
    let error = held_up(1, &[1, 2], true);
    assert!(!error.had_no_effect());
    let unknown = |silent| Error::UnknownOutcome { after: ALLOWED, silent: only(silent) };
    let [above, alone] = [0, 2].map(unknown);
    assert_eq!(world.ended, [(1, Err(error)), (2, Err(above)), (3, Err(alone))]);
}

#[test]
fn what_was_sent_to_several_groups_is_held_up_by_the_one_that_does_not_serve() {
    let mut world = World::open();
    world.submit(&[IN_G0, IN_G1], Duration::ZERO);
    world.submit(&[IN_G0, IN_G1], Duration::ZERO);
    world.submit(&[IN_G1], Duration::ZERO);
    for sequence in 2..=4 {
        world.send(sequence);
    }
    assert!(!world.reply(3, 1, &done(&[b"x"])));
    world.expire_without(ALLOWED, only(1));
    let unknown = |silent| Error::UnknownOutcome { after: ALLOWED, silent: only(silent) };
    let [elsewhere, alone] = [0, 1].map(unknown);
    let held_up = held_up(1, &[0, 1], true);
    assert_eq!(world.ended, [(1, Err(held_up)), (2, Err(elsewhere)), (3, Err(alone))]);
}

#[test]
fn groups_are_asked_about_what_is_late_and_cannot_be_told_otherwise() {
    let late = |world: &mut World, ms| world.operations.late(Duration::from_millis(ms));
    let (mut world, [in_g0, in_g1, in_g2]) = chain();
    assert_eq!(late(&mut world, 10_000), None, "nothing waits");
    world.submit(&[in_g1], Duration::ZERO);
    world.send(2);
    world.submit(&[in_g1, in_g2], Duration::from_secs(1));
    assert_eq!(
        late(&mut world, 3_999),
        None,
        "an operation has 5 s, and is late in the last of them"
    );
    assert_eq!(late(&mut world, 4_000), None, "g1 alone has it: nothing else can be silent");
    let below: GroupSet = [1, 2].map(GroupId).into_iter().collect();
    assert_eq!(late(&mut world, 5_000), Some((KEY, below)), "it needs these two");
    world.send(3);
    world.reply(3, 2, &done(&[b"x"]));
    assert_eq!(late(&mut world, 5_000), Some((KEY, only(1))), "g2 has answered");
    world.submit(&[in_g0, in_g2], Duration::from_secs(2));
    world.send(4);
    assert_eq!(late(&mut world, 6_000), Some((KEY, GroupSet::first(3))), "g1 passes it on");
    world.expire(Duration::from_secs(7));
    assert_eq!(late(&mut world, 10_000), None);

    let mut opening = World::opening();
    opening.reply(1, 0, &done(&[]));
    opening.submit(&[IN_G0], Duration::ZERO);
    assert_eq!(late(&mut opening, 4_000), Some((KEY, GroupSet::first(2))), "g1 has not let it in");
}

#[test]
fn a_session_along_a_tree_opens_through_every_group() {
    let (tree, slots) = (Tree::depth(3), SlotMap::even(3));
    let mut operations = PendingOperations::along(Some(&tree));
    operations.opening(KEY, Plan::open(&slots));
    let mut world = World { operations, slots, tickets: 0, ended: Vec::new() };
    world.submit(&[""], Duration::ZERO);
    assert!(world.operations.next(KEY, only(1)).is_none());
    world.expire_without(ALLOWED, only(1));
    world.operations.sent(KEY, Next::Opening, 1);
    world.submit(&[""], Duration::ZERO);
    assert!(!world.reply(1, 0, &done(&[])) && !world.reply(1, 1, &done(&[])));
    world.expire_without(ALLOWED, only(1));
    assert_eq!(world.ended[0], (1, Err(held_up(1, &[1, 2], false))));
    assert_eq!(world.ended[1], (2, Err(held_up(1, &[1, 2], false))), "g2 is silent behind g1");
}

#[test]
fn a_session_does_not_begin_while_a_group_is_without_a_quorum() {
    let (mut operations, slots) = (PendingOperations::default(), SlotMap::even(2));
    operations.opening(KEY, Plan::open(&slots));
    let mut world = World { operations, slots, tickets: 0, ended: Vec::new() };
    world.submit(&[IN_G0], Duration::ZERO);
    assert!(world.operations.next(KEY, only(1)).is_none(), "its first message would hold up g0");
    world.expire_without(ALLOWED, only(1));
    let why = Unavailability::NoQuorum { groups: only(1), after: ALLOWED };
    assert_eq!(world.ended, [(1, Err(Error::Unavailable { why, sent: false }))]);
    assert!(world.operations.senders().eq([KEY]), "it begins when all have one");
    assert_eq!(world.operations.next(KEY, GroupSet::EMPTY).unwrap().0, Next::Opening);
    let mut session_closes = Vec::new();
    world.operations.close(KEY, ALLOWED, &mut Vec::new());
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [SessionClose::Forget(KEY)], "there is nothing to close");
    world.operations.forget(KEY);
    assert_eq!(world.operations.counts(), Counts::default());
}

#[test]
fn a_group_that_is_there_and_silent_is_named() {
    let mut world = World::opening();
    world.reply(1, 0, &done(&[]));
    world.submit(&[IN_G0], Duration::ZERO);
    world.expire(ALLOWED);
    let why = Unavailability::NotSent { after: ALLOWED, silent: only(1) };
    let error = Error::Unavailable { why, sent: false };
    assert!(error.to_string().contains("{g1}"), "{error}");
    assert_eq!(world.ended, [(1, Err(error))]);
}

#[test]
fn what_stays_without_a_reply_is_to_be_sent_again() {
    let mut world = World::open();
    for sequence in 2..=4 {
        world.submit(&[IN_G1], Duration::ZERO);
        world.send(sequence);
    }
    assert!(world.stale().is_empty(), "it has just been sent");
    world.reply(3, 1, &done(&[b"x"]));
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(5);
    assert_eq!(world.stale(), [2, 4]);
    world.expire(ALLOWED);
    assert_eq!(world.stale(), [2, 4, 5], "also when nobody waits");
    for sequence in [2, 4, 5] {
        world.reply(sequence, 1, &done(&[b"x"]));
    }
    assert!(world.stale().is_empty());
}

#[test]
fn a_session_that_has_expired_says_so_from_then_on() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    world.submit(&[IN_G1], Duration::ZERO);
    assert!(world.reply(2, 1, &refused(&Refusal::SessionExpired)));
    let expired = |sent| Err(Error::SessionExpired { sent });
    assert_eq!(world.ended, [(2, expired(false)), (1, expired(true))]);
    assert_eq!(world.operations.waiting(KEY), Err(Error::SessionExpired { sent: false }));
    assert_eq!(world.operations.counts(), Counts::default());
}

#[test]
fn a_session_says_goodbye_when_nobody_waits() {
    let mut world = World::open();
    let (mut session_closes, mut dropped) = (Vec::new(), Vec::new());
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    let unsent = world.submit(&[IN_G1], Duration::ZERO);
    world.operations.close(KEY, ALLOWED, &mut dropped);
    assert!(dropped.iter().map(|ticket| ticket.number).eq([unsent]));
    assert_eq!(world.operations.waiting(KEY), Err(Error::Closed));
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [], "somebody waits");
    world.reply(2, 1, &done(&[b"x"]));
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [SessionClose::Send(KEY)]);
    session_closes.clear();
    world.operations.ending(KEY, 3, Plan::close(&world.slots));
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [], "not every group knows");
    world.reply(3, 0, &done(&[]));
    world.reply(3, 1, &done(&[]));
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [SessionClose::Forget(KEY)]);
    world.operations.forget(KEY);
    assert_eq!(world.operations.counts(), Counts::default());
    assert!(!world.reply(3, 0, &done(&[])), "later replies go nowhere");
}

#[test]
fn a_group_that_stays_silent_does_not_keep_a_session_for_ever() {
    let mut world = World::opening();
    let mut session_closes = Vec::new();
    world.operations.close(KEY, ALLOWED, &mut Vec::new());
    world.operations.session_closes(Duration::ZERO, &mut session_closes);
    assert_eq!(session_closes, [], "what opens it must not come after what closes it");
    world.operations.session_closes(ALLOWED, &mut session_closes);
    assert_eq!(session_closes, [SessionClose::Forget(KEY)]);
}

#[test]
fn a_read_whose_answer_was_lost_is_asked_again_under_another_name() {
    let mut world = World::open();
    let read = world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    assert!(world.reply(2, 1, &refused(&Refusal::Forgotten)), "that message is done with");
    assert!(world.ended.is_empty(), "its caller waits");
    assert!(world.next().is_some_and(|plan| !plan.request().is_empty()), "and it is sent again");
    world.send(3);
    assert!(world.reply(3, 1, &done(&[b"here"])));
    assert!(matches!(world.ended[..], [(ticket, Ok(_))] if ticket == read), "{:?}", world.ended);
    assert_eq!(world.operations.counts(), Counts::default());
}

#[test]
fn a_write_whose_answer_was_lost_is_not_asked_again() {
    let put = Op::Put { key: IN_G1.into(), value: b"1".to_vec() };
    let get = Op::Get { key: IN_G1.into() };
    #[rustfmt::skip]
    let cases = [
        // transaction                                     again  because
        (Transaction::of(get.clone()),                     true,  "it only reads"),
        (Transaction::of(put.clone()),                     false, "it may have taken effect"),
        (Transaction::of(get.clone()).then(put.clone()),   false, "it reads, and writes too"),
        (Transaction::of(get).otherwise(put),              false, "it may have written in the other branch"),
    ];
    for (transaction, again, because) in cases {
        let mut world = World::open();
        let plan = Plan::of(&transaction, &world.slots, &Limits::default()).unwrap();
        let ticket = Ticket { session: KEY, number: 1 };
        world.operations.submit(ticket, plan, ALLOWED, ALLOWED);
        world.send(2);
        assert!(world.reply(2, 1, &refused(&Refusal::Forgotten)), "that message is done with");
        assert_eq!(world.next().is_some(), again, "{because}");
        let forgotten = [(1, Err(Error::Refused(Refusal::Forgotten)))];
        assert_eq!(world.ended == forgotten, !again, "{because}: {:?}", world.ended);
    }
}

#[test]
fn its_time_goes_on_meanwhile_and_a_session_that_is_closed_asks_nothing() {
    let mut world = World::open();
    world.submit(&[IN_G1], Duration::ZERO);
    world.send(2);
    world.reply(2, 1, &refused(&Refusal::Forgotten));
    world.expire(ALLOWED);
    assert!(matches!(world.ended[..], [(1, Err(Error::Unavailable { .. }))]), "{:?}", world.ended);

    world.submit(&[IN_G1], ALLOWED);
    world.send(3);
    world.operations.close(KEY, 2 * ALLOWED, &mut Vec::new());
    world.reply(3, 1, &refused(&Refusal::Forgotten));
    assert!(
        matches!(world.ended[1], (2, Err(Error::Refused(Refusal::Forgotten)))),
        "{:?}",
        world.ended
    );
}
