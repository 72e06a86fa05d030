//! Requests that open and end sessions, and requests of sessions that are not open.

use skein_multicast::application::Outbox;

use super::exchange::Verdict;
use super::under_way::CommandPosition;
use super::{Machine, Memo};
use crate::points::RestorePoint;
use crate::reply::Refusal;
use crate::rules;
use crate::slots::HashSlot;
use crate::store::Store;
use crate::wire::{Command, Move, Request};

/// A request that needs an open session.
pub(super) enum Asked<'a> {
    Command(Command<'a>),
    Move(Move),
    Mark(AtMark),
}

/// What is done at a mark.
pub(super) enum AtMark {
    /// It tells the group's totals, and completes a backup's copy.
    Totals,
    /// The state is written to disk.
    Point(RestorePoint),
}

impl<S: Store> Machine<S> {
    /// Opens or ends sessions. The writer holds the reply.
    pub(super) fn control(
        &mut self,
        place: CommandPosition,
        request: &Request<'_>,
    ) -> Option<Memo> {
        let message = place.message;
        // Decided by the destinations alone, so all groups of the message decide alike.
        let result = match request {
            _ if place.destinations != self.groups => {
                let why = "a request to open, close or expire sessions must go to all groups";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Open if self.points.closed => Err(Refusal::Stopping),
            Request::Open => self.sessions.open(message),
            Request::Close => {
                self.end_backup_of(message.session);
                self.sessions.close(message)
            }
            Request::Expire(_) if !message.session.is_own() => {
                let why = "only a node may end sessions of others";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Expire(sessions) => {
                for session in sessions {
                    self.end_backup_of(*session);
                    self.sessions.expire(*session);
                }
                Ok(())
            }
            Request::Transaction(_)
            | Request::Read(_)
            | Request::Move(_)
            | Request::Mark
            | Request::RestorePoint(_) => {
                unreachable!("nothing that begins or ends a session")
            }
        };
        match &result {
            Ok(()) => self.writer.done(true, 0),
            Err(refusal) => self.writer.refused(Some(refusal)),
        }
        let opened = matches!(request, Request::Open) && result.is_ok();
        opened.then_some(Memo::Retained)
    }

    /// Reports the sessions that a control request will end at its turn. No message of any session is delivered
    /// in between.
    pub(super) fn end_sessions(
        &self,
        place: CommandPosition,
        request: &Request<'_>,
        out: &mut dyn Outbox,
    ) {
        match request {
            _ if place.destinations != self.groups => {}
            Request::Close if self.sessions.closes(place.message) => {
                out.end_session(place.message.session);
            }
            Request::Expire(sessions) if place.message.session.is_own() => {
                for session in sessions {
                    out.end_session(*session);
                }
            }
            _ => {}
        }
    }

    /// Drops the verdicts about messages that this group does not have of the sessions that a control request will end: each of
    /// them is refused if it comes.
    pub(super) fn drop_early(&mut self, place: CommandPosition, request: &Request<'_>) {
        match request {
            _ if self.early.len() == 0 || place.destinations != self.groups => {}
            Request::Close if self.sessions.closes(place.message) => {
                let session = place.message.session;
                self.early.retain(|message| message.session != session);
            }
            Request::Expire(sessions) if place.message.session.is_own() => {
                self.early.retain(|message| !sessions.contains(&message.session));
            }
            _ => {}
        }
    }

    /// Objects to a command whose session is not open here, if other groups may wait for this group's verdict.
    /// If the session has ended, it has ended in all groups. If it is unknown, this group may have been
    /// recreated after it had lost its state; other groups may have the session open and wait.
    pub(super) fn object(
        &mut self,
        place: CommandPosition,
        asked: &Result<Asked<'_>, Refusal>,
        out: &mut dyn Outbox,
    ) {
        let others = place.destinations.without(self.group);
        if others.is_empty() || self.sessions.is_past(place.message) {
            return;
        }
        let (waited_for, is_told) = match asked {
            Ok(Asked::Command(command)) => {
                let exchanges = rules::needs_exchange(&command.transaction);
                (exchanges, exchanges)
            }
            // The slot's owner sends a verdict and receives none.
            Ok(Asked::Move(it)) => {
                let owns = self.slots.owner_of(HashSlot(it.slot)) == Some(self.group);
                (owns, !owns)
            }
            Ok(Asked::Mark(_)) | Err(_) => (false, false),
        };
        if waited_for {
            out.exchange(place.message, others, &Verdict::NONE.encode());
        }
        if is_told {
            self.early.refuse(place.message);
        }
    }
}
