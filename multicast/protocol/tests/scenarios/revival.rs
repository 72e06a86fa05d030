//! A lost group that continues from one replica's log: which replicas count, which stay silent, and until when.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::transfer::{Left, Request};
use skein_protocol::group::{Cause, GroupRecord, Role};
use skein_protocol::ids::GroupSet;
use skein_protocol::ordering::{Inspect as _, MessageStage, OrderingProtocol as _};
use skein_protocol::ramcast::{Ramcast, Record};
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;
use skein_protocol::tram::Tram;
use skein_protocol::view::View;

use crate::by_hand::{Answer, ByHand, Vote};
use crate::played::{Played, both};
use crate::stage::{config, message, replica, sends_state};

both!(
    all_that_the_survivor_holds_is_committed_and_what_it_lacks_is_given_up,
    what_a_group_that_begins_anew_delivers_is_above_all_that_its_former_self_may_have,
    the_survivor_leads_when_f_others_have_its_state,
    nobody_gives_the_state_away_when_somebody_leads_or_another_begins,
    a_suspended_replica_keeps_still_whoever_asks,
    who_has_no_state_promises_itself_to_the_new_generation_too,
    a_state_of_a_former_generation_is_of_no_use,
);

/// The incarnation of the replicas that have lost their memory.
const LIFE: u32 = 1 << 10;

/// The slots of five, in the incarnations that count from here on.
fn view() -> View {
    View::of([LIFE, 0, LIFE, LIFE, LIFE])
}

fn marker(counter: u32) -> Ballot {
    Ballot::revived(counter, 1, 0).expect("a generation is left")
}

/// Whether the core sends its state to that incarnation of slot 0.
fn seeds<O: Played>(core: &mut O, incarnation: u32) -> bool {
    sends_state(core, 0, incarnation, Rank::NOTHING)
}

/// Slot 1 of five, which has read this much of its leader's log: message 50, to all groups, of an earlier ballot; the
/// ballot's first entry; and another entry. Two of five replicas are known to hold them.
fn survivor<O: Played>(behind: O::Record) -> O {
    survivor_of(O::GROUPS, behind)
}

/// The same in a cluster of so many groups.
fn survivor_of<O: Played>(groups: u16, behind: O::Record) -> O {
    let mut core = O::new(config(replica(0, 1), 0, groups, 5), View::first(5));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let (earlier, birth) = (Ballot::new(1, 2, 0), Ballot::new(2, 0, 0));
    core.let_lead(birth);
    core.begin_to_follow(birth, 0, 2);
    let first = O::record(message(50), 1, GroupSet::first(groups), true);
    let log = [(earlier, first), (birth, GroupRecord::NewBallot.into()), (birth, behind)];
    for (index, (birth, record)) in (1..).zip(log) {
        let event = Event::Logged { index, birth, time_ms: 0, record, held: false, last: true };
        core.step(event, &mut Vec::new());
    }
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), 0);
    core
}

/// Another message, to one group.
fn other<O: Played>(inline: bool) -> O::Record {
    O::record(message(51), 1, GroupSet::first(1), inline)
}

fn all_that_the_survivor_holds_is_committed_and_what_it_lacks_is_given_up<O: Played>() {
    let mut core = survivor::<O>(other::<O>(false));
    assert_eq!(core.log().stalled_on(), Some(message(51)));
    core.goes_on(marker(7), view(), 20);
    assert_eq!((core.log().commit_index(), core.log().last_index()), (2, 2));
    assert!(
        core.stage_of(message(50)) == MessageStage::Pending && core.log().stalled_on().is_none()
    );
    assert_eq!((core.log().ballot(), core.log().promised()), (marker(7), marker(7)));
    assert_eq!(core.log().first_index(), u64::MAX);
    assert_eq!(core.log().view(), &view());
}

#[test]
fn the_survivors_clock_is_no_lower_than_any_that_was_reported() {
    for (reported, is) in [(20, 50), (80, 80)] {
        let mut core = survivor::<Ramcast>(other::<Ramcast>(false));
        core.goes_on(marker(7), view(), reported);
        assert_eq!(core.inspect().clock(), is);
    }
}

fn what_a_group_that_begins_anew_delivers_is_above_all_that_its_former_self_may_have<O: Played>() {
    let (clock, now_ms) = (1 << 50, 5_000);
    let (me, view) = (config(replica(0, 0), LIFE, 1, 3), View::of([LIFE; 3]));
    let mut former = O::new(me, view.clone());
    former.step(Event::Tick { now_ms }, &mut Vec::new());
    let mut leader = former.anew(view, 7, clock);
    let ballot = leader.campaign(Cause::Start);
    assert!(ballot > Ballot::new(8, 2, 0) && ballot.generation() == 1);
    assert_eq!(leader.log().now_ms(), now_ms);
    leader.granted(1, LIFE, (Ballot::ZERO, 0), vec![LIFE; 3]);
    leader.begin_to_lead(&mut Vec::new());
    let (message, destinations) = (message(1), GroupSet::first(1));
    let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
    leader.step(received, &mut Vec::new());
    let acceptance = Acceptance { tag: ballot.tag(), index: leader.log().last_index() };
    leader.step(Event::Acknowledged { by: replica(0, 1), acceptance }, &mut Vec::new());
    let next = leader.deliver().expect("it is committed");
    assert!(next.clock > clock && leader.inspect().highest_clock() >= next.clock, "{next:?}");
}

#[test]
fn a_replica_that_may_lack_something_revives_nobody_and_who_was_chosen_lacks_nothing() {
    assert!(survivor::<Ramcast>(Record::Exchange).inspect().can_be_revived(0));
    let mut core = survivor::<Ramcast>(GroupRecord::Evict { slot: 1 }.into());
    assert!(
        !core.inspect().can_be_revived(0),
        "others may be done with message 50, and not have waited for it"
    );
    core.goes_on(marker(7), view(), 0);
    assert!(core.inspect().can_be_revived(0), "nobody else holds more, an operator says");
    let blank = Ramcast::new(config(replica(0, 1), LIFE, 2, 5), View::first(5));
    assert_eq!((blank.log().role(), blank.inspect().can_be_revived(0)), (Role::Blank, false));
}

fn the_survivor_leads_when_f_others_have_its_state<O: Played>() {
    let wants = |core: &mut O| {
        for _ in 0..100 {
            let now_ms = core.log().now_ms() + 10;
            core.step(Event::Tick { now_ms }, &mut Vec::new());
        }
        core.wants_to_lead().is_some()
    };
    let mut core = survivor::<O>(other::<O>(true));
    core.goes_on(marker(7), view(), 0);
    assert!(seeds(&mut core, LIFE) && !seeds(&mut core, 0) && !seeds(&mut core, LIFE + 1));
    let has_seeded = |core: &mut O, slot: u8| {
        let (needs, applied) = (Some(Ballot::ZERO), Rank::NOTHING);
        let request = Request { slot, incarnation: LIFE, needs, applied, taken: None, log: None };
        assert_eq!(core.asked_for_state(&request, true), Answer::Begin);
        core.log_mut().sends_part(Left::Nothing);
        core.stops_sending(slot);
    };
    assert!(!wants(&mut core), "nobody could elect it");
    has_seeded(&mut core, 2);
    has_seeded(&mut core, 2);
    assert!(!wants(&mut core), "one other could");
    has_seeded(&mut core, 4);
    assert!(wants(&mut core));
    has_seeded(&mut core, 3);
    assert!(wants(&mut core), "more than it takes do no harm");
}

fn nobody_gives_the_state_away_when_somebody_leads_or_another_begins<O: Played>() {
    let revived = || {
        let mut core = survivor::<O>(other::<O>(true));
        core.goes_on(marker(7), view(), 0);
        assert!(seeds(&mut core, LIFE));
        core
    };
    let mut core = revived();
    core.waits_for_survivor(marker(8 + (1 << 24)));
    assert!(!seeds(&mut core, LIFE), "another one is the survivor now");
    let mut core = revived();
    let elected = Ballot::new(marker(7).counter() + 1, 2, LIFE);
    core.let_lead(elected);
    core.begin_to_follow(elected, 3, 4);
    assert!(!seeds(&mut core, LIFE), "it follows");
    let mut core = revived();
    core.campaign(Cause::Start);
    let last = (core.log().inspect().last_birth(), core.log().last_index());
    for slot in [0, 2] {
        let named = core.log().named();
        core.granted(slot, LIFE, last, named);
    }
    core.begin_to_lead(&mut Vec::new());
    assert!(core.log().leads());
    core.step(Event::Denied, &mut Vec::new());
    assert!(!seeds(&mut core, LIFE), "it has led");
}

fn a_suspended_replica_keeps_still_whoever_asks<O: Played>() {
    let mut core = survivor::<O>(other::<O>(true));
    core.waits_for_survivor(marker(7));
    assert!(core.log().is_suspended() && core.log().is_silent());
    for leads in [false, true] {
        let verdict = core.judge(Ballot::new(marker(9).counter(), 0, LIFE), leads, true);
        assert_eq!(verdict, Vote::Nothing);
    }
    assert_eq!(core.wants_to_lead(), None);
    // An operator may begin with this replica after all.
    core.goes_on(marker(9 + (1 << 24)), view(), 0);
    assert!(!core.log().is_suspended() && !core.log().is_silent());
}

fn who_has_no_state_promises_itself_to_the_new_generation_too<O: Played>() {
    let mut blank = O::new(config(replica(0, 0), LIFE, O::GROUPS, 5), View::first(5));
    blank.waits_for_survivor(marker(7));
    assert_eq!(
        (blank.log().promised(), blank.log().inspect().ballot_counter()),
        (marker(7), marker(7).counter())
    );
    assert!(!blank.log().is_suspended(), "it has nothing to keep");
    blank.waits_for_survivor(marker(3));
    assert_eq!(blank.log().promised(), marker(7), "a promise does not fall");
}

#[test]
fn nobody_goes_on_from_what_waits_for_a_message_that_others_are_done_with() {
    let to_one = other::<Ramcast>(true);
    #[rustfmt::skip]
    let cases = [
        // settled  serves  because
        (49,        true,   "message 50 ends at 50 or later"),
        (50,        false,  "message 50 may have ended, and nobody tells where"),
        (60,        false,  "message 50 may have ended, and nobody tells where"),
    ];
    for (settled, serves, because) in cases {
        assert_eq!(
            survivor::<Ramcast>(to_one).inspect().can_be_revived(settled),
            serves,
            "{because}"
        );
        let mut committed = survivor::<Ramcast>(to_one);
        committed.goes_on(marker(7), view(), 0);
        assert!(committed.stage_of(message(50)) == MessageStage::Pending);
        assert_eq!(
            committed.inspect().can_be_revived(settled),
            serves,
            "{because}; its order knows it"
        );
    }
}

/// Its rank in the log of its group is 1: the first entry of the first generation.
#[test]
fn along_a_tree_nobody_goes_on_from_what_may_wait_for_results_that_others_have_dropped() {
    let to_one = other::<Tram>(true);
    #[rustfmt::skip]
    let cases = [
        // settled  serves  because
        (0,         true,   "nobody is known to have applied message 50"),
        (1,         false,  "all others have applied message 50, and the other group its results"),
        (3,         false,  "all others have applied message 50, and the other group its results"),
    ];
    for (settled, serves, because) in cases {
        let logged = survivor_of::<Tram>(2, to_one);
        assert_eq!(logged.inspect().can_be_revived(settled), serves, "{because}");
        let mut pending = survivor_of::<Tram>(2, to_one);
        pending.goes_on(marker(7), view(), 0);
        assert!(pending.stage_of(message(50)) == MessageStage::Pending);
        assert_eq!(pending.inspect().can_be_revived(settled), serves, "{because}; it is committed");
        let mut delivered = pending;
        while delivered.deliver().is_some() {}
        assert!(delivered.inspect().can_be_revived(settled), "its machine has it");
    }
    let mut alone = survivor::<Tram>(to_one);
    assert!(alone.inspect().can_be_revived(9), "no message to one group waits for results");
    alone.goes_on(marker(7), view(), 700);
    let delivered = alone.deliver().expect("message 50");
    assert!(delivered.clock < 700, "others may have delivered it by this clock: {delivered:?}");
    assert!(alone.inspect().highest_clock() > 700, "what comes next is above");
}

fn a_state_of_a_former_generation_is_of_no_use<O: Played>() {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut core = survivor::<O>(other::<O>(true));
    core.save(&mut before);
    core.goes_on(marker(7), view(), 0);
    core.save(&mut after);
    let mut blank = O::new(config(replica(0, 0), LIFE, O::GROUPS, 5), View::first(5));
    assert!(blank.restored(&before).is_ok() && blank.restored(&after).is_ok());
    blank.waits_for_survivor(marker(7));
    assert!(blank.restored(&before).is_err() && blank.restored(&after).is_ok());
    assert!(blank.restored(&after[..20]).is_err(), "it is cut off");
}

#[test]
fn who_is_waited_for_again_may_lack_what_was_logged_while_it_was_not() {
    let mut core = Ramcast::new(config(replica(0, 1), 0, 2, 3), View::first(3));
    let (earlier, birth) = (Ballot::new(1, 2, 0), Ballot::new(2, 0, 0));
    core.let_lead(birth);
    core.begin_to_follow(birth, 0, 3);
    let local = Ramcast::record(message(1), 1, GroupSet::first(2), true);
    let evict = GroupRecord::Evict { slot: 1 }.into();
    let join = GroupRecord::Join { slot: 1, incarnation: 0 }.into();
    let first = GroupRecord::NewBallot.into();
    let log = [(earlier, evict), (earlier, local), (birth, first), (birth, join)];
    for (index, (birth, record)) in (1..).zip(log) {
        let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
        core.step(event, &mut Vec::new());
    }
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), 4, "the leader has written it, and it is here");
    assert!(!core.log().view().member(1).evicted);
    assert!(
        !core.inspect().can_be_revived(0),
        "others may be done with message 1, which is pending here"
    );
}
