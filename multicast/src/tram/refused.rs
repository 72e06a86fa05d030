//! Messages that their lowest common ancestor cannot order yet, because a child behind which they go has no room.

use std::collections::VecDeque;

use hashbrown::HashSet;
use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, MessageId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::tram::Tram;

use crate::application::Application;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

/// The messages, oldest first. Their payloads are kept like those of a follower, which may come to order them.
///
/// Invariants:
/// - `known` is the set of the messages in `waiting`. A session has no more here than its window.
/// - Each message waits for a group in `behind`, or is tried when the log has room, because `again` is set.
#[derive(Default)]
pub(super) struct Refused {
    waiting: VecDeque<MessageId>,
    known: HashSet<MessageId>,
    behind: GroupSet,
    again: bool,
}

impl Refused {
    /// Notes a message that waits for these groups. Its session may send it again meanwhile.
    pub(super) fn wait(&mut self, message: MessageId, behind: GroupSet) {
        self.behind = self.behind.union(behind);
        if self.known.insert(message) {
            self.waiting.push_back(message);
        }
    }

    /// Number of messages to try now: all, if a group has room for which one of them may wait.
    fn begin(&mut self, closed: GroupSet) -> usize {
        if !self.again && closed.contains_all(self.behind) {
            return 0;
        }
        (self.again, self.behind) = (false, GroupSet::EMPTY);
        self.waiting.len()
    }

    /// Whether messages wait for room in the log alone.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.again
    }

    /// Number of messages that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn next(&mut self) -> Option<MessageId> {
        let message = self.waiting.pop_front()?;
        self.known.remove(&message);
        Some(message)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<A: Application> Replica<A, Tram> {
    /// A child or our parent has reported, and may have room again, or our log may. Messages that have none yet wait behind
    /// the others.
    pub(super) fn try_refused<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, Tram>) {
        if !self.core.log().leads() {
            // Whoever leads next has them from their sessions.
            return self.outgoing.refused.clear();
        }
        for _ in 0..self.outgoing.refused.begin(self.core.closed()) {
            if !self.log_has_room() {
                // What was ordered now is reported on, too.
                self.outgoing.refused.again = true;
                return;
            }
            let Some(message) = self.outgoing.refused.next() else { return };
            if self.payloads.get(message).is_some() {
                self.receive_held(message, links);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ids::{GroupId, SessionId};

    use super::*;

    #[test]
    fn a_message_waits_once_and_is_tried_when_a_group_has_room() {
        let mut refused = Refused::default();
        let message = |sequence| MessageId::new(SessionId(1), sequence);
        let set = |groups: &[u16]| groups.iter().copied().map(GroupId).collect::<GroupSet>();
        assert_eq!(refused.begin(set(&[])), 0, "nothing waits");
        for (sequence, behind) in [(2, 3), (1, 4), (2, 3), (3, 3)] {
            refused.wait(message(sequence), set(&[behind]));
        }
        assert_eq!(refused.begin(set(&[3, 4, 5])), 0, "all that they wait for is closed");
        assert_eq!(refused.begin(set(&[3])), 3, "and now not");
        assert_eq!(refused.next(), Some(message(2)));
        refused.wait(message(2), set(&[3]));
        assert_eq!([refused.next(), refused.next()], [1, 3].map(|it| Some(message(it))));
        assert_eq!(refused.begin(set(&[3])), 0);
        refused.again = true;
        assert_eq!(refused.begin(set(&[3])), 1, "the log had no room");
        assert_eq!(refused.next(), Some(message(2)));
        refused.wait(message(2), set(&[3]));
        assert_eq!((refused.begin(set(&[])), refused.next()), (1, Some(message(2))));
        assert_eq!(refused.next(), None);
    }
}
