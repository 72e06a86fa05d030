use super::*;
use crate::ids::SessionId;

fn message(number: u64) -> MessageId {
    MessageId::new(SessionId(1), number)
}

fn at(clock: u64, group: u16) -> Timestamp {
    Timestamp::new(clock, GroupId(group))
}

/// What group 1 proposes.
fn remote(number: u64, clock: u64) -> Remote {
    let (message, timestamp) = (message(number), at(clock, 1));
    Remote { message, timestamp, ballot: Ballot::new(1, 0, 0), index: 5 }
}

/// Messages 1 to `count`, to groups 0, 1 and 2, as group 0 has logged them.
fn order(count: u64) -> Order {
    let mut order = Order::default();
    for number in 1..=count {
        let (destinations, local) = (GroupSet::first(3), at(number, 0));
        let (index, time_ms, inline) = (number, 0, number % 2 == 0);
        let (message, remotes) = (message(number), Vec::new());
        order.local(Pending::new(message, 1, destinations, local, index, time_ms, inline, remotes));
    }
    order
}

/// Message `number` to group 0 alone.
fn log_alone(order: &mut Order, number: u64) {
    let (destinations, local) = (GroupSet::single(GroupId(0)), at(number, 0));
    let (message, remotes) = (message(number), Vec::new());
    order.local(Pending::new(message, 1, destinations, local, number, 0, true, remotes));
}

#[test]
fn a_message_to_one_group_waits_for_those_before_it_and_for_nothing_else() {
    let mut order = Order::default();
    log_alone(&mut order, 1);
    order.queue.extend(self::order(2).queue.pop_back());
    order.len += 1;
    log_alone(&mut order, 3);
    // Nobody knows where 2 ends, but it is not before 1.
    let first = order.deliver_alone().expect("1 is next");
    assert_eq!((first.message, first.timestamp, first.position), (message(1), at(1, 0), 1));
    assert_eq!(order.deliver_alone(), None, "2 may end before 3");
    let second = order.least().expect("they are pending");
    assert_eq!(order.pending(&second).message, message(2));
    order.remove(&second);
    assert_eq!(order.deliver_alone().map(|next| next.message), Some(message(3)));
    assert_eq!((order.deliver_alone(), order.len()), (None, 0));
}

#[test]
fn a_message_to_one_group_is_found_as_long_as_it_is_pending() {
    for looked_for_before in [false, true] {
        let mut order = Order::default();
        (1..=3).for_each(|number| log_alone(&mut order, number));
        assert!(!looked_for_before || order.contains(message(1)) && !order.contains(message(4)));
        order.deliver_alone().expect("1 is next");
        log_alone(&mut order, 4);
        let there = (1..=5).map(|number| order.contains(message(number)));
        assert!(there.eq([false, true, true, true, false]));
        (2..=4).for_each(|_| _ = order.deliver_alone().expect("they are next"));
        assert!((1..=5).all(|number| !order.contains(message(number))));
        assert!(order.alone.get_mut().messages.is_empty());
    }
}

#[test]
fn proposals_find_their_messages_in_whatever_order_they_come() {
    let mut order = order(6);
    let by = |group, number| Remote { timestamp: at(40 + number, group), ..remote(number, 0) };
    let first = order.least().expect("they are pending");
    order.remove(&first);
    // One group's come in our order, the other's in the opposite one, and those for 1 are late.
    let together: Vec<_> = (1..=6).flat_map(|n| [by(1, n), by(2, 7 - n)]).collect();
    order.remotes(&together);
    for number in 2..=6 {
        let pending = order.get(message(number)).expect("it is pending");
        let mut known: Vec<_> = pending.unproven().map(|it| it.of(pending.message)).collect();
        known.sort_by_key(Remote::group);
        assert_eq!(known, [by(1, number), by(2, number)]);
    }
    assert!(!order.contains(message(1)), "it was delivered before anybody looked for one");
    let second = order.least().expect("they are pending");
    order.remove(&second);
    assert!(!order.contains(message(2)) && order.contains(message(3)));
    let heard = order.hear(message(4), &[by(1, 4)]).map(|pending| pending.message);
    assert_eq!(heard, Some(message(4)));
    assert_eq!(order.hear(message(2), &[by(1, 2)]), None);
}

#[test]
fn a_message_is_found_among_few_and_among_many() {
    for count in [FEW as u64, 3 * FEW as u64] {
        let mut order = order(count);
        log_alone(&mut order, count + 1);
        let find = |order: &Order, number| order.get(message(number)).map(|it| it.message);
        assert_eq!(find(&order, count), Some(message(count)));
        assert_eq!((find(&order, count + 1), find(&order, count + 2)), (None, None));
        for number in 1..=count {
            let first = order.least().expect("they are pending");
            assert!(order.contains(message(number)));
            order.remove(&first);
            assert!(!order.contains(message(number)));
            assert_eq!(find(&order, count), Some(message(count)).filter(|_| number < count));
        }
        assert!(order.several.get_mut().places.is_empty(), "nothing is left in the table");
    }
}

#[test]
fn what_is_proven_is_next_only_if_nothing_else_may_end_before_it() {
    let groups = GroupSet::first(3).without(GroupId(0));
    // The first has risen, and is in the heap.
    let two = |raised| {
        let mut order = order(3);
        let first = order.least().expect("they are pending");
        assert!(order.prove(&first, GroupSet::single(GroupId(1)), at(raised, 1)).is_none());
        order
    };
    #[rustfmt::skip]
    let cases = [
        // 1 may end at  2 ends at  next   because
        (9,              at(2, 2),  true,  "3 is the next in the queue, and ends above"),
        (9,              at(3, 0),  false, "3 may end there"),
        (9,              at(4, 2),  false, "3 may end before"),
        (2,              at(2, 2),  false, "1 may end before, whose bound is 2@g1"),
    ];
    for (raised, bound, next, because) in cases {
        let mut order = two(raised);
        let second = order.least().expect("they are pending");
        assert_eq!(order.pending(&second).message, message(2));
        let proven = order.prove(&second, groups, bound);
        assert_eq!(proven.map(|it| it.bound), next.then_some(bound), "{because}");
        if let Some(proven) = proven {
            assert_eq!(order.least().map(|it| it.bound), Some(proven.bound), "{because}");
        }
    }
    let mut order = order(1);
    let only = order.least().expect("it is pending");
    assert!(order.prove(&only, groups, at(7, 2)).is_some(), "there is nothing else");
}

#[test]
fn a_message_ends_where_it_was_decided() {
    let mut order = order(1);
    order.remotes(&[remote(1, 40)]);
    order.decide(Decision { message: message(1), timestamp: at(60, 2) });
    let candidate = order.least().expect("it is pending");
    assert!(order.pending(&candidate).is_final());
    assert_eq!(order.deliver(&candidate).timestamp, at(60, 2));
}

#[test]
fn a_state_has_all_that_is_known_of_a_pending_message() {
    let mut order = order(3);
    for clock in [41, 42] {
        order.remotes(&[remote(clock - 40, clock)]);
    }
    let first = order.least().expect("they are pending");
    order.prove(&first, GroupSet::single(GroupId(1)), at(41, 1));
    order.decide(Decision { message: message(3), timestamp: at(60, 2) });
    let mut bytes = Vec::new();
    order.save(&mut Writer(&mut bytes));
    let restored = Order::restore(&mut Reader(&bytes), 0).expect("what was saved");
    for number in 1..=3 {
        let (is, was) = (restored.get(message(number)), order.get(message(number)));
        assert_eq!(is, was, "what a quorum was seen to hold may be told nobody any more");
    }
}
