//! Admission of datagrams: what may be read now, and what waits in the rings of sessions and other replicas.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, MessageId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::mutants::{Mutant, planted};

use super::Replica;
use crate::application::Application;
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Limits on what is read.
///
/// **Invariant.** A leader's log has room for `may_log` entries.
#[derive(Default)]
pub(crate) struct Intake {
    /// As leader: number of entries that may be logged for datagrams taken in this turn.
    pub(crate) may_log: usize,
    /// Something that could be logged has had no room in this turn.
    pub(super) has_ready: bool,
    /// A message was refused since the last tick because of what is kept for followers.
    pub(super) refused: bool,
    /// Length of a payload that another group's leader relayed, and that exceeds the budget while delivered
    /// payloads are kept. It is relayed again some ticks later.
    pub(super) refused_relay: Option<usize>,
    /// As leader: a follower has yet to deliver so many messages that no session's message is taken.
    pub(super) throttled: bool,
    /// Role (true: leader) and awaited payload at the last scan of the sessions' rings.
    pub(super) reads_sessions: (bool, Option<MessageId>),
    /// As new leader: sessions have sent us messages that are not logged.
    pub(super) unproposed: bool,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Returns whether a datagram of `len` bytes from a session may be read now, while `assembling` bytes of
    /// others are being assembled. `head` returns the message's header, unless it is invalid.
    pub(crate) fn admits(
        &mut self,
        session: SessionId,
        len: usize,
        assembling: usize,
        head: impl Fn() -> Option<Head>,
    ) -> bool {
        let large = len > self.tuning.inline_bytes_max;
        let within_budget = !large || self.fits_budget(len, assembling, &head);
        let within_window = self.payloads.of_session(session) < self.tuning.window;
        let has_room = !self.core.log().leads() || self.log_has_room();
        self.paths.budget_full += u64::from(!within_budget);
        let behind = self.core.log().leads() && self.intake.throttled;
        self.paths.follower_behind += u64::from(behind);
        self.intake.refused |= !within_budget || !within_window || behind;
        self.paths.window_full += u64::from(!within_window);
        self.paths.log_full += u64::from(!has_room);
        // A group that has stopped takes no message, since it would not answer. A replica with many replies
        // to repeat takes none that may ask for another.
        let repeats = self.deliveries.has_many_repeats();
        let taken = !self.core.log().leads() || self.application.takes(session);
        let has_room = has_room && !behind && !repeats && !self.is_stopped() && taken;
        if within_window && within_budget {
            return has_room;
        }
        // The message that the log waits for is taken whatever the limits, and so are those of its session
        // with lower numbers, which are in front of it in the ring: no more than a window. Later ones wait.
        // The session may send them for as long as the log is stalled, since the other replicas of our group
        // answer it.
        has_room && head().is_some_and(|head| self.log_waits_for(session, head.sequence))
    }

    /// Returns whether the budget has room for a large message of a session. One that may not be ordered now has half of the
    /// budget, together with all that is held: it may wait for as long as a group is down, and others go on.
    fn fits_budget(&self, len: usize, assembling: usize, head: impl Fn() -> Option<Head>) -> bool {
        let budget = self.tuning.held_bytes_max;
        if planted(Mutant::HintBlocksFetch) && self.payloads.hints_fill(len) {
            return false;
        }
        let held = self.payloads.large_bytes() + assembling + len;
        let is_held_up = || {
            let held_up = |head: Head| O::holds_up(&self.core, head.destinations);
            head().is_none_or(held_up) && !planted(Mutant::RefusedFillBudget)
        };
        held <= budget / 2 || held <= budget && !is_held_up()
    }

    /// Returns whether a datagram from another replica may be read now. A fetch always may: the log can be
    /// full because the follower that asks waits for the payload, and blocks everything. Datagrams of members
    /// of our group always may: the log can be full because it waits for their votes. A request for an objection leads to
    /// an entry only if there is room.
    pub(crate) fn admits_from_replica(&self, from: GroupId, kind: Kind, len: usize) -> bool {
        // A datagram of an engine may come from a member of our group, and contain messages of others.
        let of_ours = from == self.id.group && kind != Kind::OrderTogether;
        let vital = matches!(kind, Kind::Fetch | Kind::Progress | Kind::Objection) || of_ours;
        vital || !self.core.log().leads() || self.log_has_room_for(O::entries_for(kind, len))
    }

    /// The length up to which a session's messages will be found in the log with their payloads, if they
    /// matter, so that they need not be read before; `None` if they must be read. A leader finds none in its
    /// log.
    pub(crate) fn finds_in_log(&self, session: SessionId) -> Option<usize> {
        let waited_for = self.core.log().stalled_on().is_some_and(|m| m.session == session);
        (!self.core.log().leads() && !waited_for).then_some(self.tuning.inline_bytes_max)
    }

    /// Returns whether the replica has just begun to lead, or to wait for a payload: messages that were left
    /// to be found in the log are to be read.
    pub(crate) fn reads_on(&mut self) -> bool {
        let reads = (self.core.log().leads(), self.core.log().stalled_on());
        std::mem::replace(&mut self.intake.reads_sessions, reads) != reads && reads != (false, None)
    }

    /// As new leader: proposes the messages that sessions have sent and nobody has logged, as far as the log has room.
    pub(super) fn propose_held<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if !self.intake.unproposed || !self.core.log().leads() {
            return;
        }
        for message in self.payloads.messages() {
            if self.core.is_logged(message) {
                continue;
            }
            if !self.log_has_room() {
                return;
            }
            self.receive_held(message, links);
        }
        self.intake.unproposed = false;
    }
}
