use super::*;
use crate::ids::SessionId;

fn message(number: u64) -> MessageId {
    MessageId::new(SessionId(1), number)
}

fn at(clock: u64, group: u16) -> Timestamp {
    Timestamp::new(clock, GroupId(group))
}

/// Group 1's proposal.
fn remote(number: u64, clock: u64) -> Remote {
    let (message, timestamp) = (message(number), at(clock, 1));
    Remote { message, timestamp, ballot: Ballot::new(1, 0, 0), index: 5 }
}

/// Messages 1 to `count`, to groups 0, 1 and 2, as group 0 has logged them.
fn order(count: u64) -> DeliveryQueue {
    let mut order = DeliveryQueue::default();
    for number in 1..=count {
        let (destinations, local) = (GroupSet::first(3), at(number, 0));
        let (index, time_ms, inline) = (number, 0, number % 2 == 0);
        let (message, remotes) = (message(number), Vec::new());
        order.local(Pending::new(message, 1, destinations, local, index, time_ms, inline, remotes));
    }
    order
}

/// Logs message `number`, to group 0 alone.
fn log_alone(order: &mut DeliveryQueue, number: u64) {
    let (destinations, local) = (GroupSet::single(GroupId(0)), at(number, 0));
    let (message, remotes) = (message(number), Vec::new());
    order.local(Pending::new(message, 1, destinations, local, number, 0, true, remotes));
}

#[test]
fn a_message_to_one_group_waits_for_those_before_it_and_for_nothing_else() {
    let mut order = DeliveryQueue::default();
    log_alone(&mut order, 1);
    order.queue.extend(self::order(2).queue.pop_back());
    order.len += 1;
    log_alone(&mut order, 3);
    // It is open where 2 ends, but it does not end before 1.
    let first = order.deliver_alone().expect("1 is next");
    assert_eq!((first.message, first.rank, first.position), (message(1), at(1, 0).into(), 1));
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
        let mut order = DeliveryQueue::default();
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
#[cfg(debug_assertions)]
#[should_panic(expected = "is logged twice")]
fn a_message_that_is_pending_is_not_folded_in_again() {
    let mut order = order(CHECKED as u64 + 1);
    let again = order.iter().nth(1).cloned().expect("there are more");
    order.local(Pending { local: at(10_000, 0), ..again });
}

#[test]
fn assertions_look_at_no_more_of_the_table_than_they_must() {
    let order = order(CHECKED as u64 + 1);
    assert!(order.is_new(message(1)), "the first is too far back");
    assert!(!order.is_new(message(2)) && order.is_new(message(10_000)));
}

#[test]
fn proposals_find_their_messages_in_whatever_order_they_come() {
    let mut order = order(6);
    let by = |group, number| Remote { timestamp: at(40 + number, group), ..remote(number, 0) };
    let first = order.least().expect("they are pending");
    order.remove(&first);
    // One group's proposals come in our order, the other's in the opposite one, and those for 1 are late.
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
        let find = |order: &DeliveryQueue, number| order.get(message(number)).map(|it| it.message);
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
    // The bound of 1 has risen, so 1 is in the heap.
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
    assert_eq!(order.deliver(&candidate).rank, at(60, 2).into());
}

/// Group 1's proposal in that ballot.
fn remote_in(ballot: Ballot, number: u64, clock: u64) -> Remote {
    Remote { ballot, ..remote(number, clock) }
}

/// Group 1's report in that ballot that a message is over for it.
fn over(ballot: Ballot, number: u64) -> Remote {
    Remote { timestamp: Timestamp::over(GroupId(1)), ..remote_in(ballot, number, 0) }
}

/// A ballot of group 1 after it was recreated.
fn anew() -> Ballot {
    Ballot::new(Ballot::recreated(1).unwrap() + 1, 0, 0)
}

fn first(order: &DeliveryQueue) -> &Pending {
    order.get(message(1)).expect("it is pending")
}

#[test]
fn what_a_group_proposed_before_it_was_recreated_stays_whatever_it_proposes_since() {
    let mut order = order(1);
    order.remotes(&[remote(1, 40)]);
    order.remotes(&[remote_in(anew(), 1, 90)]);
    let pinned = first(&order);
    assert_eq!(pinned.remotes()[0], Proposal::from(&remote_in(anew(), 1, 40)));
    assert_eq!((pinned.proven(), pinned.bound()), (GroupSet::single(GroupId(1)), at(40, 1)));
    // Neither a later leader of the group nor a restored state changes that.
    let mut bytes = Vec::new();
    order.save(&mut Writer(&mut bytes));
    let restored = DeliveryQueue::restore(&mut Reader(&bytes), 0).expect("what was saved");
    for mut order in [order, restored] {
        assert_eq!(order.len(), 1);
        let later = Ballot::new(anew().counter() + 1, 1, 0);
        order.remotes(&[remote_in(later, 1, 95)]);
        assert_eq!(first(&order).remotes()[0].timestamp, at(40, 1), "it is pinned");
        assert_eq!((first(&order).bound(), first(&order).remotes()[0].ballot), (at(40, 1), later));
    }
}

#[test]
fn a_message_that_is_over_for_a_group_needs_nothing_of_it_unless_its_proposal_is_proven() {
    for proposed_before in [false, true] {
        let mut order = order(1);
        if proposed_before {
            order.remotes(&[remote(1, 40)]);
        }
        order.remotes(&[over(remote(1, 40).ballot, 1)]);
        let pending = first(&order);
        assert_eq!(pending.proven(), GroupSet::single(GroupId(1)), "no quorum need be seen");
        assert_eq!((pending.bound(), pending.remotes().len()), (at(1, 0), 1));
        assert!(pending.remotes()[0].timestamp.is_over());
        let later = Ballot::new(anew().counter() + 1, 1, 0);
        order.remotes(&[remote_in(later, 1, 95)]);
        assert!(first(&order).remotes()[0].timestamp.is_over(), "it stays over");
    }
    let mut order = order(1);
    order.remotes(&[remote(1, 40)]);
    let candidate = order.least().expect("it is pending");
    order.prove(&candidate, GroupSet::single(GroupId(1)), at(40, 1));
    order.remotes(&[over(anew(), 1)]);
    assert_eq!(first(&order).remotes(), [Proposal::from(&remote(1, 40))], "it was proven");
}

/// A replica that has proven the later proposal keeps it, and all replicas end the message alike.
#[test]
fn that_a_message_was_over_for_a_group_does_not_replace_what_it_has_proposed_since() {
    for later in [Ballot::new(remote(1, 40).ballot.counter() + 1, 1, 0), anew()] {
        let mut order = order(1);
        order.remotes(&[remote_in(later, 1, 60)]);
        order.remotes(&[over(remote(1, 40).ballot, 1)]);
        assert_eq!(first(&order).remotes(), [Proposal::from(&remote_in(later, 1, 60))]);
        assert_eq!(first(&order).proven(), GroupSet::EMPTY);
    }
}

/// A recreated group may have forgotten a message that some replica of ours has delivered by its former proposal.
#[test]
fn what_a_group_proposed_before_it_was_recreated_stays_if_the_message_is_over_for_it() {
    let mut order = order(1);
    order.remotes(&[remote(1, 40)]);
    order.remotes(&[over(anew(), 1)]);
    let pinned = first(&order);
    assert_eq!(pinned.remotes(), [Proposal::from(&remote_in(anew(), 1, 40))]);
    assert_eq!((pinned.proven(), pinned.bound()), (GroupSet::single(GroupId(1)), at(40, 1)));
}

#[test]
fn a_proposal_is_replaced_by_one_of_a_later_ballot_alone() {
    let ballot = |counter| Ballot::new(counter, 0, 0);
    #[rustfmt::skip]
    let cases = [
        // then proposed in  stands  because
        (ballot(4),          40,     "an earlier ballot is over"),
        (ballot(5),          40,     "it comes twice, and says the same or is damaged"),
        (ballot(6),          30,     "the former one may be lost"),
    ];
    for (later, clock, because) in cases {
        let mut order = order(1);
        order.remotes(&[remote_in(ballot(5), 1, 40)]);
        order.remotes(&[remote_in(later, 1, 30)]);
        assert_eq!(first(&order).remotes()[0].timestamp, at(clock, 1), "{because}");
        assert_eq!(first(&order).proven(), GroupSet::EMPTY, "{because}");
        let known = |ballot| first(&order).has_remote(&remote_in(ballot, 1, 7));
        assert!(known(ballot(5)) && !known(ballot(7)));
    }
}

/// The proposals of group 1, in the order in which they were folded in: ballot, message, clock.
type Proposals<'a> = &'a [(u32, u64, u64)];

#[test]
fn a_proposal_is_void_when_a_later_ballot_proposes_another_message_at_its_timestamp() {
    #[rustfmt::skip]
    let cases: [(Proposals<'_>, Proposals<'_>, &str); 7] = [
        // proposed                            stands                     because
        (&[(5, 1, 46), (6, 2, 46)],            &[(6, 2, 46)],             "no log has both"),
        (&[(5, 1, 46), (6, 2, 47)],            &[(5, 1, 46), (6, 2, 47)], "one log may have both"),
        (&[(5, 1, 46), (6, 2, 45)],            &[(5, 1, 46), (6, 2, 45)], "one log may have both"),
        (&[(6, 2, 46), (5, 1, 46)],            &[(6, 2, 46)],             "the earlier one comes late"),
        (&[(5, 1, 46), (6, 2, 46), (5, 1, 46)], &[(6, 2, 46)],            "the earlier one comes again"),
        (&[(5, 1, 46), (6, 1, 46), (7, 2, 46)], &[(7, 2, 46)],            "it was announced anew before"),
        (&[(5, 1, 46), (6, 3, 50), (7, 2, 46)], &[(6, 3, 50), (7, 2, 46)], "it is earlier by two ballots"),
    ];
    let proposal = |&(counter, number, clock): &(u32, u64, u64)| {
        remote_in(Ballot::new(counter, 0, 0), number, clock)
    };
    for (proposed, stands, because) in cases {
        for saved in [false, true] {
            let mut order = order(3);
            for proposed in proposed {
                order.remotes(&[proposal(proposed)]);
                if saved {
                    let mut bytes = Vec::new();
                    order.save(&mut Writer(&mut bytes));
                    order = DeliveryQueue::restore(&mut Reader(&bytes), 0).expect("what was saved");
                }
            }
            let known = order.iter().flat_map(|it| it.remotes().iter().map(|r| r.of(it.message)));
            let mut known: Vec<_> = known.collect();
            known.sort_by_key(|remote| remote.ballot);
            assert_eq!(
                known,
                stands.iter().map(proposal).collect::<Vec<_>>(),
                "{because}, {saved}"
            );
        }
    }
}

#[test]
fn a_group_proposes_anew_what_it_had_proposed_in_vain() {
    let mut order = order(2);
    order.remotes(&[remote_in(Ballot::new(5, 0, 0), 1, 46)]);
    order.remotes(&[remote_in(Ballot::new(6, 0, 0), 2, 46)]);
    order.remotes(&[remote_in(anew(), 1, 60), remote_in(anew(), 2, 61)]);
    let timestamps = order.iter().map(|pending| pending.remotes()[0].timestamp);
    assert_eq!(timestamps.collect::<Vec<_>>(), [at(60, 1), at(46, 1)], "only the other is pinned");
}

#[test]
fn nothing_is_looked_for_when_all_that_was_proposed_earlier_is_delivered() {
    let mut order = order(2);
    order.remotes(&[remote_in(Ballot::new(5, 0, 0), 1, 46)]);
    order.remotes(&[remote_in(Ballot::new(6, 0, 0), 2, 47)]);
    let next = remote_in(Ballot::new(6, 0, 0), 3, 48);
    assert!(!order.ballots.expects(&[next]));
    for _ in 0..2 {
        let next = order.least().expect("they are pending");
        order.remove(&next);
    }
    order.remotes(&[next]);
    assert!(order.ballots.expects(&[next]));
}

#[test]
fn a_decided_message_is_next_by_its_final_timestamp_though_it_had_risen_before() {
    let mut order = order(3);
    // The bound of 1 rose to 40, and then 1 was decided to end below the others.
    let candidate = order.least().expect("they are pending");
    assert!(order.prove(&candidate, GroupSet::single(GroupId(1)), at(40, 1)).is_none());
    assert_eq!(order.least().map(|it| it.bound), Some(at(2, 0)));
    order.decide(Decision { message: message(1), timestamp: at(1, 2) });
    let next = order.least().expect("it is decided");
    assert_eq!((order.pending(&next).message, next.bound), (message(1), at(1, 2)));
    assert!(order.pending(&next).is_final());
    order.remove(&next);
    // What was pushed for it before is stale, and nothing else is lost by that.
    let left: Vec<_> = std::iter::from_fn(|| {
        let next = order.least()?;
        let message = order.pending(&next).message;
        order.remove(&next);
        Some(message)
    })
    .collect();
    assert_eq!(left, [message(2), message(3)]);
}

#[test]
fn what_rises_while_it_waits_in_the_heap_is_found_at_its_new_place() {
    let mut order = order(2);
    let groups = |number| GroupSet::single(GroupId(number));
    for (group, clock) in [(1, 10), (2, 20)] {
        let candidate = order.least().expect("they are pending");
        assert_eq!(order.pending(&candidate).message, message(1));
        order.prove(&candidate, groups(group), at(clock, group));
        if group == 1 {
            let second = order.least().expect("it is pending");
            assert_eq!(order.pending(&second).message, message(2));
            order.prove(&second, groups(1), at(15, 1));
        }
    }
    let bounds: Vec<_> = std::iter::from_fn(|| {
        let next = order.least()?;
        order.remove(&next);
        Some(next.bound)
    })
    .collect();
    assert_eq!(bounds, [at(15, 1), at(20, 2)]);
}

#[test]
fn what_was_taken_out_of_the_middle_is_not_looked_for_any_more() {
    let mut order = DeliveryQueue::default();
    order.local(self::order(1).queue.pop_back().flatten().expect("it is there"));
    (2..=4).for_each(|number| log_alone(&mut order, number));
    assert!(order.contains(message(3)), "somebody looks for one");
    // 1 may end late: the others overtake it.
    let candidate = order.least().expect("they are pending");
    order.prove(&candidate, GroupSet::single(GroupId(1)), at(90, 1));
    for number in 2..=4 {
        let next = order.least().expect("they are pending");
        assert_eq!(order.pending(&next).message, message(number));
        assert!(order.overtakes(&next));
        order.remove(&next);
        assert!(!order.contains(message(number)));
    }
    assert!(order.alone.get_mut().messages.is_empty(), "nothing is left in the table");
}

#[test]
fn the_oldest_is_the_one_that_has_waited_longest() {
    let mut order = order(3);
    for (place, since) in order.queue.iter_mut().zip([30, 10, 20]) {
        place.as_mut().expect("it is pending").since_ms = since;
    }
    assert_eq!(order.oldest(), Some((10, message(2))));
}

#[test]
fn a_state_says_how_many_were_delivered_and_begins_to_wait_when_it_is_taken() {
    let mut order = order(1);
    order.delivered = 1 << 40;
    let mut bytes = Vec::new();
    order.save(&mut Writer(&mut bytes));
    let restored = DeliveryQueue::restore(&mut Reader(&bytes), 77).expect("what was saved");
    assert_eq!((restored.delivered(), restored.oldest()), (1 << 40, Some((77, message(1)))));
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
    let restored = DeliveryQueue::restore(&mut Reader(&bytes), 0).expect("what was saved");
    for number in 1..=3 {
        let (is, was) = (restored.get(message(number)), order.get(message(number)));
        assert_eq!(is, was, "what a quorum was seen to hold may be told nobody any more");
    }
}
