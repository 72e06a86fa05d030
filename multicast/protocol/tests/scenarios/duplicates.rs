//! Messages that arrive again, and the responses to them.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::Cause;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::ordering::{EventOf, MessageStage};
use skein_protocol::step::{Effect, Event};
use skein_protocol::view::View;

use crate::played::{Played, both};
use crate::stage::config;

both!(nothing_is_repeated_before_it_was_delivered,);

const MESSAGE: MessageId = MessageId::new(SessionId(1), 1);

fn received<O: Played>() -> EventOf<O> {
    let destinations = GroupSet::single(GroupId(0));
    Event::Received { message: MESSAGE, low_water: 1, destinations, outside: 0 }
}

/// A session may send a message again before it is committed. A reply repeated then would come from a state machine
/// that has not applied the message.
fn nothing_is_repeated_before_it_was_delivered<O: Played>() {
    let me = ReplicaId::new(GroupId(0), 0);
    let config = config(me, 0, 1, 3);
    let mut leader = O::new(config, View::first(3));
    let mut effects = Vec::new();
    let ballot = leader.campaign(Cause::Start);
    for slot in 0..2 {
        let _ = leader.granted(slot, 0, (Ballot::default(), 0), vec![0; 3]);
    }
    leader.begin_to_lead(&mut effects);
    let mut repeats = |leader: &mut O| {
        effects.clear();
        leader.step(received::<O>(), &mut effects);
        effects.iter().any(|effect| matches!(effect, Effect::Repeat { .. }))
    };
    assert!(!repeats(&mut leader), "it is new");
    assert!(!repeats(&mut leader), "it is logged, and nobody else has it");
    assert!(leader.stage_of(MESSAGE) != MessageStage::Delivered);
    let acceptance = Acceptance { tag: ballot.tag(), index: leader.log().last_index() };
    let by = ReplicaId::new(GroupId(0), 1);
    leader.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    leader.step(Event::TurnEnd, &mut Vec::new());
    assert!(!repeats(&mut leader), "it is committed and not delivered");
    assert!(leader.deliver().is_some());
    assert!(repeats(&mut leader) && leader.stage_of(MESSAGE) == MessageStage::Delivered);
}
