use std::collections::BTreeMap;

use super::*;

const G0: GroupId = GroupId(0);
const SESSION: SessionKey = SessionKey(4);
const SERVES: Option<Standing> = Some(Standing::Serves);
const NOT: Option<Standing> = Some(Standing::DoesNotServe);
const AFTER_0: Option<Standing> = Some(Standing::Follows(0));

/// Three replicas of each group, and what they answer.
struct World {
    inquiry: Inquiry,
    asked: BTreeMap<u64, ReplicaId>,
    forgotten: Vec<u64>,
    numbers: u64,
}

impl World {
    fn new(along_a_tree: bool) -> Self {
        let (asked, forgotten) = (BTreeMap::new(), Vec::new());
        Self { inquiry: Inquiry::new(3, along_a_tree), asked, forgotten, numbers: 0 }
    }

    fn look(&mut self, groups: &[u16]) {
        let groups: GroupSet = groups.iter().copied().map(GroupId).collect();
        self.keep(groups);
        let (asked, numbers) = (&mut self.asked, &mut self.numbers);
        let mut ask = |session, replica| {
            *numbers += 1;
            asked.insert(*numbers, replica);
            QueryKey { session, number: *numbers }
        };
        self.inquiry.look(SESSION, groups, &mut ask);
    }

    fn keep(&mut self, groups: GroupSet) {
        let forgotten = &mut self.forgotten;
        self.inquiry.keep(groups, &mut |query| forgotten.push(query.number));
    }

    /// Every replica that is asked answers so, by slot, but for those that say nothing.
    fn answers(&mut self, standings: [Option<Standing>; 3]) {
        let answers = |_: &u64, replica: &mut ReplicaId| {
            replica.group == G0 && standings[usize::from(replica.slot)].is_some()
        };
        for (number, replica) in self.asked.extract_if(.., answers) {
            let byte = match standings[usize::from(replica.slot)].unwrap() {
                Standing::Serves => vec![0],
                Standing::Follows(slot) => vec![1, slot],
                Standing::DoesNotServe => vec![2],
                Standing::Commits => vec![3],
            };
            assert!(self.inquiry.answer(QueryKey { session: SESSION, number }, &byte));
        }
    }

    fn is_named(&self) -> bool {
        self.inquiry.not_serving().contains(G0)
    }
}

#[test]
fn a_group_is_named_unless_it_may_serve() {
    #[rustfmt::skip]
    let cases = [
        ([None, None, None],               true,  "its nodes are paused"),
        ([NOT, NOT, NOT],                  true,  "it is lost"),
        ([None, NOT, None],                true,  "one of three is left"),
        ([NOT, AFTER_0, None],             true,  "its leader has no quorum"),
        ([SERVES, AFTER_0, AFTER_0],       false, "it serves"),
        ([NOT, SERVES, NOT],               false, "another leads by now"),
        ([None, AFTER_0, AFTER_0],         false, "the leader is cut off from this client alone"),
        ([NOT, Some(Standing::Follows(9)), NOT], false, "that says nothing"),
    ];
    let commits = [Some(Standing::Commits), None, None];
    let alike = cases.into_iter().flat_map(|(standings, named, because)| {
        [false, true].map(|along_a_tree| (along_a_tree, standings, named, because))
    });
    let differ = [
        (true, commits, false, "memory of followers that do not answer takes its entries"),
        (false, commits, true, "others need words of its followers"),
    ];
    for (along_a_tree, standings, named, because) in alike.chain(differ) {
        let mut world = World::new(along_a_tree);
        world.look(&[0]);
        for look in 0..LOOKS {
            assert!(!world.is_named(), "after {look} looks: {because}");
            world.answers(standings);
            world.look(&[0]);
        }
        assert_eq!(world.is_named(), named, "{because}");
    }
}

#[test]
fn a_group_that_serves_again_is_not_named() {
    let mut world = World::new(true);
    for _ in 0..=LOOKS {
        world.look(&[0]);
    }
    assert!(world.is_named());
    world.answers([SERVES, AFTER_0, AFTER_0]);
    world.look(&[0]);
    assert!(!world.is_named());
    // An answer counts for one look: what replicas said before they were stopped is forgotten.
    for _ in 0..LOOKS {
        assert!(!world.is_named());
        world.look(&[0]);
    }
    assert!(world.is_named());
}

#[test]
fn what_is_asked_is_asked_once_at_a_time_and_forgotten_in_the_end() {
    let mut world = World::new(true);
    world.look(&[0, 1]);
    world.look(&[0, 1]);
    assert_eq!(world.numbers, 6, "nobody has answered");
    world.answers([SERVES, None, None]);
    world.look(&[0, 1]);
    assert_eq!(world.numbers, 7);
    world.look(&[0]);
    assert_eq!(world.forgotten, [4, 5, 6], "g1 is not asked any more");
    world.keep(GroupSet::EMPTY);
    assert_eq!(world.forgotten, [4, 5, 6, 7, 2, 3]);
    assert!(world.inquiry.is_over());
    assert!(!world.inquiry.answer(QueryKey { session: SESSION, number: 7 }, &[0]), "it is late");
}
