use super::*;
use crate::ids::SessionId;

fn message(sequence: u64) -> MessageId {
    MessageId::new(SessionId(1), sequence)
}

fn groups(groups: &[u16]) -> GroupSet {
    groups.iter().copied().map(GroupId).collect()
}

/// What the last group of a chain of three delivers.
fn chain() -> Shared {
    Shared::new(Tree::depth(3), GroupId(2))
}

fn delivered(number: u64, to: &[u16], rank: u64, place: u64) -> SharedMessage {
    let (rank, place) = (Rank::new(rank), Rank::new(place));
    SharedMessage { message: message(number), destinations: groups(to), rank, place }
}

fn places(of: &[u64]) -> Vec<Rank> {
    of.iter().copied().map(Rank::new).collect()
}

/// Messages of three lowest common ancestors, in the order of delivery. The first one goes to one group alone.
fn three() -> Shared {
    let mut shared = chain();
    shared.deliver(delivered(1, &[2], 5, 5));
    shared.deliver(delivered(2, &[1, 2], 6, 90));
    shared.deliver(delivered(3, &[0, 2], 7, 40));
    shared.deliver(delivered(4, &[1, 2], 8, 91));
    shared
}

fn trim(shared: &mut Shared) -> Vec<MessageId> {
    let mut dropped = Vec::new();
    shared.trim(|message| dropped.push(message));
    dropped
}

#[test]
fn a_message_is_kept_until_each_destination_has_applied_what_its_ancestor_ordered_up_to_there() {
    let mut shared = three();
    assert_eq!(shared.len(), 3);
    assert!(
        shared.hear(GroupId(1), Rank::NOTHING, &places(&[90, 70])),
        "group 1 orders the second one itself"
    );
    assert_eq!(trim(&mut shared), [], "some of our own replicas may not have applied it");
    shared.settle(Rank::new(7));
    assert_eq!(shared.lacks(), groups(&[0]), "we have not applied the last one ourselves");
    assert_eq!(trim(&mut shared), [message(2)]);
    assert!(!shared.hear(GroupId(1), Rank::NOTHING, &places(&[90, 60])), "that is no news");
    assert!(shared.hear(GroupId(0), Rank::NOTHING, &places(&[40])));
    assert_eq!((trim(&mut shared), shared.lacks()), (vec![message(3)], GroupSet::EMPTY));
    shared.settle(Rank::new(6));
    shared.settle(Rank::new(20));
    assert_eq!((trim(&mut shared), shared.lacks()), (vec![], groups(&[1])));
    shared.hear(GroupId(1), Rank::NOTHING, &places(&[91, 70]));
    assert_eq!(trim(&mut shared), [message(4)]);
    assert!(shared.is_empty());
}

#[test]
fn a_group_tells_a_place_for_itself_and_each_group_above_it() {
    let mut shared = three();
    let told = |shared: &Shared| shared.places().map(Rank::number).collect::<Vec<_>>();
    assert_eq!(told(&shared), [0, 0, 0]);
    shared.settle(Rank::new(7));
    assert_eq!(told(&shared), [0, 90, 40]);
    // A replica that is behind delivers what all that count have applied.
    shared.settle(Rank::new(30));
    shared.deliver(delivered(5, &[0, 1, 2], 9, 44));
    assert_eq!(told(&shared), [0, 91, 44]);
    shared.hear(GroupId(0), Rank::NOTHING, &places(&[44]));
    shared.hear(GroupId(1), Rank::NOTHING, &places(&[91, 44]));
    assert_eq!(trim(&mut shared).len(), 4, "the one that came last, too");
}

#[test]
fn a_leader_tells_each_group_that_shares_something_once_and_another_leader_again() {
    let mut shared = chain();
    assert_eq!(shared.take_untold(Rank::new(4)), GroupSet::EMPTY, "nobody shares anything");
    shared.deliver(delivered(2, &[1, 2], 6, 90));
    assert_eq!(shared.take_untold(Rank::NOTHING), GroupSet::EMPTY, "nothing is applied");
    assert_eq!(shared.take_untold(Rank::new(6)), groups(&[1, 2]));
    assert_eq!(shared.take_untold(Rank::new(9)), GroupSet::EMPTY, "there is nothing new");
    shared.deliver(delivered(3, &[0, 2], 10, 40));
    shared.settle(Rank::new(9));
    assert_eq!(shared.take_untold(Rank::new(10)), groups(&[0, 2]));
    shared.forget_told();
    shared.settle(Rank::new(10));
    assert_eq!(shared.take_untold(Rank::NOTHING), groups(&[0, 1, 2]), "what is settled stays so");
}

#[test]
fn a_replica_that_takes_a_state_keeps_and_knows_the_same() {
    let mut shared = three();
    shared.settle(Rank::new(7));
    shared.hear(GroupId(0), Rank::NOTHING, &places(&[33]));
    shared.hear(GroupId(1), Rank::NOTHING, &places(&[90, 70]));
    shared.trim(|_| ());
    let mut saved = Vec::new();
    shared.save(&mut Writer(&mut saved));
    let restore = |bytes: &[u8]| {
        let mut from = Reader(bytes);
        let restored = Shared::restore(&Tree::depth(3), GroupId(2), &mut from);
        restored.filter(|_| from.0.is_empty())
    };
    let restored = restore(&saved).expect("it was just saved");
    assert_eq!(restored, Shared { dirty: true, ..shared });
    assert!((0..saved.len()).all(|cut| restore(&saved[..cut]).is_none()));
    let mut elsewhere = Vec::new();
    let mut odd = chain();
    odd.kept.push_back(Kept { shared: delivered(1, &[2, 7], 3, 3), lca: GroupId(2) });
    odd.save(&mut Writer(&mut elsewhere));
    assert_eq!(restore(&elsewhere), None, "there is no such group");
}
