//! Single steps of a candidate, a leader and a follower, through the boundary.

use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::{Contents, Draft as _};
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{
    Asked, Cause, Closing, Control, GroupEffect, GroupEvent, LogRecord as _, Question,
};
use skein_protocol::ordering::{EffectOf, OrderingProtocol, Revival};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::view::View;

/// The response to a request for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Nothing,
    Refuse,
    Grant,
    GrantAgain,
}

/// The response to a request for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Nothing,
    Resume,
    Begin,
}

pub(crate) trait ByHand: OrderingProtocol {
    /// Another replica asks for the state.
    fn asked_for_state(&mut self, request: &Request, trusted: bool) -> Answer {
        let asks = Control::Asks { request: *request, trusted };
        match self.told(request.slot, asks)[..] {
            [] => Answer::Nothing,
            [GroupEffect::SendState { anew: false, .. }] => Answer::Resume,
            [GroupEffect::SendState { anew: true, .. }] => Answer::Begin,
            ref other => panic!("{other:?}"),
        }
    }

    /// Stops sending the state to a slot. Returns whether it was being sent.
    fn stops_sending(&mut self, slot: u8) -> bool {
        self.happens(GroupEvent::StopsSending { slot }) == [GroupEffect::DropCopy]
    }

    /// Handles an event of the group alone. Returns the group's effects.
    fn happens(&mut self, event: GroupEvent) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        self.step(Event::Group(event), &mut effects);
        of_group(effects)
    }

    /// Handles a control message of another replica. Returns the group's effects.
    fn told(&mut self, from: u8, control: Control<'_>) -> Vec<GroupEffect> {
        let mut effects = Vec::new();
        self.control(from, control, &mut effects);
        of_group(effects)
    }

    /// Sets out to lead, with its log closed.
    fn campaign(&mut self, cause: Cause) -> Ballot {
        let effects = self.happens(GroupEvent::LogClosed { then: Closing::SetOut(cause) });
        let ballot = effects.iter().find_map(|effect| match effect {
            GroupEffect::SetsOut { ballot, .. } => Some(*ballot),
            _ => None,
        });
        ballot.expect("it sets out")
    }

    /// A replica grants the ballot. If the candidate is elected, returns the slot whose log is to be adopted.
    fn granted(
        &mut self,
        by: u8,
        incarnation: u32,
        last: (Ballot, u64),
        named: Vec<u32>,
    ) -> Option<u8> {
        self.granted_having_applied(Rank::NOTHING, by, incarnation, last, &named)
    }

    fn granted_having_applied(
        &mut self,
        applied: Rank,
        by: u8,
        incarnation: u32,
        last: (Ballot, u64),
        named: &[u32],
    ) -> Option<u8> {
        let ballot = self.asks();
        let granted = Control::Granted { ballot, incarnation, last, named, applied };
        self.told(by, granted).iter().find_map(|effect| match effect {
            GroupEffect::TakeOver { of } => Some(*of),
            _ => None,
        })
    }

    /// The ballot that it asks for or has promised.
    fn asks(&self) -> Ballot {
        self.log().promised()
    }

    /// Replaces its own state by a saved one.
    fn takes(&mut self, saved: &[u8]) {
        *self = self.restored(saved).expect("what was saved");
    }

    /// Its group continues from its state.
    fn goes_on(&mut self, marker: Ballot, view: View, clock: u64) {
        self.revive(marker, Revival::Survivor { view, clock });
    }

    /// Its group continues from another's state.
    fn waits_for_survivor(&mut self, marker: Ballot) {
        self.revive(marker, Revival::Other);
    }

    /// An operator evicts a follower. Returns whether the core complies.
    fn evicts(&mut self, slot: u8, effects: &mut Vec<EffectOf<Self>>) -> bool {
        let before = effects.len();
        self.step(Event::Group(GroupEvent::Evict { slot }), effects);
        effects.len() > before
    }

    /// All records of the entry at `index`, for which this one stands.
    fn logged(&self, index: u64, record: Self::Record) -> Vec<Self::Record> {
        let mut records = Vec::new();
        if record.first_item().is_some() {
            let draft = self.draft(index, &record, Contents::None);
            draft.for_each_record(|record| records.push(record));
        } else {
            records.push(record);
        }
        records
    }

    /// It has adopted the log that was chosen, and leads.
    fn begin_to_lead(&mut self, effects: &mut Vec<EffectOf<Self>>) {
        self.step(Event::Group(GroupEvent::TookOver), effects);
    }

    /// The response to a request for a vote.
    fn judge(&mut self, ballot: Ballot, leads: bool, forced: bool) -> Vote {
        let control = Control::Prepare { asked: asked(ballot, leads, forced), admitted: &[] };
        match self.told(ballot.slot(), control)[..] {
            [] => Vote::Nothing,
            [GroupEffect::Refuse { .. }] => Vote::Refuse,
            [GroupEffect::CloseLog { then: Closing::Grant(_) }] => Vote::Grant,
            [GroupEffect::GrantAgain(_)] => Vote::GrantAgain,
            ref other => panic!("{other:?}"),
        }
    }

    /// Grants a ballot, with its log closed.
    fn let_lead(&mut self, ballot: Ballot) {
        let then = Closing::Grant(asked(ballot, false, true));
        self.happens(GroupEvent::LogClosed { then });
    }

    fn begin_to_follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        self.happens(GroupEvent::Followed { ballot, base, first });
    }

    fn hear_refusal(&mut self, promised: Ballot) {
        self.told(promised.slot(), Control::Refused { promised });
    }

    /// Receives the report that its incarnation is admitted.
    fn hear_admitted(&mut self, ballot: Ballot, incarnation: u32) {
        self.told(ballot.slot(), Control::Admitted { ballot, incarnation });
    }

    /// The cause for which it sets out to lead now, if it does.
    fn wants_to_lead(&mut self) -> Option<Cause> {
        self.looks().iter().find_map(|effect| match effect {
            GroupEffect::CloseLog { then: Closing::SetOut(cause) } => Some(*cause),
            _ => None,
        })
    }

    /// Whether it does not yet set out to lead.
    ///
    /// # Panics
    /// If it has not set out for very long.
    fn still_waits(&mut self) -> bool {
        assert!(self.log().now_ms() < 1_000_000, "it never sets out");
        self.wants_to_lead().is_none()
    }

    /// Whether it reports to the slot that it is admitted.
    fn tells_admitted(&mut self, slot: u8) -> bool {
        let tells =
            |it: &GroupEffect| matches!(it, GroupEffect::TellAdmitted { to, .. } if *to == slot);
        self.looks().iter().any(tells)
    }

    /// The slot that it asks to lead instead.
    fn transferee(&mut self) -> Option<u8> {
        self.looks().iter().find_map(|effect| match effect {
            GroupEffect::TimeoutNow { to, .. } => Some(*to),
            _ => None,
        })
    }

    fn looks(&mut self) -> Vec<GroupEffect> {
        self.happens(GroupEvent::Watched { trusted: true })
    }

    /// A follower that does not count yet holds all of its log.
    fn caught_up(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<EffectOf<Self>>) {
        self.step(Event::Group(GroupEvent::CaughtUp { slot, incarnation }), effects);
    }

    fn add_follower(&mut self, slot: u8, incarnation: u32) {
        self.happens(GroupEvent::FollowerAdded { slot, incarnation, held_from: 0 });
    }

    fn remove_follower(&mut self, slot: u8) {
        self.happens(GroupEvent::FollowerRemoved { slot });
    }
}

fn asked(ballot: Ballot, leads: bool, forced: bool) -> Asked {
    let question = Question { ballot, leads, forced };
    Asked { by: ballot.slot(), question, attempt: 0, from: Cursor::START }
}

fn of_group<R, T>(effects: Vec<Effect<R, T>>) -> Vec<GroupEffect> {
    let effects = effects.into_iter().filter_map(|effect| match effect {
        Effect::Group(effect) => Some(effect),
        _ => None,
    });
    effects.collect()
}

impl<O: OrderingProtocol> ByHand for O {}
