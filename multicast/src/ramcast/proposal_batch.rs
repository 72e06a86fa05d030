//! The proposals that the leaders of one engine make in a turn, as a batch that is sent to each other engine once.
//!
//! For messages to many groups, several leaders of an engine propose in one turn, each for the same other
//! leaders, of which several share an engine. So the proposals for a message are sent together, and every
//! leader on the receiving engine takes all of them.

use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::log::Remote;

/// Limit in bytes of what is sent together: it fits a frame of the smallest ring, and the reader's log must
/// have room for all proposals in it.
pub(crate) const TOGETHER_MAX: usize = 1000;

/// Limit of proposals for one message that are sent together.
const PROPOSALS_MAX: usize = 32;

/// Leaders propose for most messages in the same order, so the entry for a message is searched no further
/// ahead than this.
const LOOK_AHEAD: usize = 4;

/// A message and the proposals for it.
struct Message {
    head: Proposed,
    /// Groups whose leaders receive it.
    to: GroupSet,
    /// Index of its first and last proposal, and the number of its proposals.
    first: usize,
    last: usize,
    count: usize,
}

#[derive(Default)]
pub struct ProposalBatch {
    messages: Vec<Message>,
    /// Each with the index of the next proposal for its message.
    proposals: Vec<(Remote, usize)>,
    /// For each group, the index after the last message that it proposed for together with other groups.
    next: Vec<usize>,
    /// For the groups in `known`: the slots of their leaders, as the proposers know them.
    leaders: Vec<u8>,
    known: GroupSet,
    /// All messages as they are sent, and the end of each in `bytes`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Scratch: indices of the replicas here that take another engine's proposals.
    pub(super) hear: Vec<usize>,
}

impl ProposalBatch {
    pub(crate) fn new(groups: u16) -> Self {
        let groups = usize::from(groups);
        Self {
            messages: Vec::new(),
            proposals: Vec::new(),
            next: vec![0; groups],
            leaders: vec![0; groups],
            known: GroupSet::EMPTY,
            bytes: Vec::new(),
            ends: Vec::new(),
            hear: Vec::new(),
        }
    }

    /// Returns whether this leader of another group differs from the one that earlier proposers of this batch assumed.
    pub(crate) fn doubts(&self, leader: ReplicaId) -> bool {
        let ReplicaId { group, slot } = leader;
        self.known.contains(group) && self.leaders[group.index()] != slot
    }

    /// Sets the leader of its group for this batch.
    pub(crate) fn trust(&mut self, leader: ReplicaId) {
        self.leaders[leader.group.index()] = leader.slot;
        self.known = self.known.with(leader.group);
    }

    /// Adds a proposal, for the leaders of all other groups that the message goes to.
    pub(crate) fn push(&mut self, announcement: &Announcement) {
        let Announcement { message, low_water, destinations, timestamp, ballot, index, .. } =
            *announcement;
        let head = Proposed { message, low_water, destinations };
        let (group, number) = (timestamp.group(), self.proposals.len());
        self.proposals.push((Remote { message, timestamp, ballot, index }, number));
        let to = destinations.without(group);
        let next = &mut self.next[group.index()];
        let ahead = self.messages[*next..].iter_mut().take(LOOK_AHEAD).enumerate();
        let mut same = ahead.filter(|(_, it)| it.head == head && it.count < PROPOSALS_MAX);
        if let Some((skipped, message)) = same.next() {
            self.proposals[message.last].1 = number;
            (message.to, message.last) = (message.to.union(to), number);
            message.count += 1;
            *next += skipped + 1;
        } else {
            self.messages.push(Message { head, to, first: number, last: number, count: 1 });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Encodes all messages.
    pub(crate) fn close(&mut self) {
        for message in &self.messages {
            message.head.encode(message.count as u8, &mut self.bytes);
            let mut at = message.first;
            for _ in 0..message.count {
                let (proposal, next) = &self.proposals[at];
                Proposed::encode_proposal(proposal, &mut self.bytes);
                at = *next;
            }
            self.ends.push(self.bytes.len());
        }
    }

    /// The leaders that receive something.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = ReplicaId> {
        let to = self.messages.iter().fold(GroupSet::EMPTY, |all, it| all.union(it.to));
        to.iter().map(|group| ReplicaId::new(group, self.leaders[group.index()]))
    }

    /// Passes the messages for the leaders of these groups, in their order, to `say`, once for each datagram.
    pub(crate) fn tell(&self, to: GroupSet, together: &mut Vec<u8>, mut say: impl FnMut(&[u8])) {
        let mut from = 0;
        for (message, end) in self.messages.iter().zip(&self.ends) {
            let bytes = &self.bytes[std::mem::replace(&mut from, *end)..*end];
            if message.to.intersection(to).is_empty() {
                continue;
            }
            if together.len() + bytes.len() > TOGETHER_MAX && !together.is_empty() {
                say(together);
                together.clear();
            }
            together.extend_from_slice(bytes);
        }
        if !together.is_empty() {
            say(together);
            together.clear();
        }
    }

    /// Empties the batch after it was sent.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.proposals.clear();
        self.next.fill(0);
        self.known = GroupSet::EMPTY;
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ballot::Ballot;
    use skein_protocol::ids::{GroupId, MessageId, SessionId};
    use skein_protocol::timestamp::Timestamp;

    use super::*;

    fn announcement(number: u64, by: u16, destinations: &[u16]) -> Announcement {
        Announcement {
            message: MessageId::new(SessionId(1), number),
            low_water: 1,
            destinations: destinations.iter().map(|group| GroupId(*group)).collect(),
            timestamp: Timestamp::new(number, GroupId(by)),
            ballot: Ballot::new(1, 0, 0),
            index: number,
            again: None,
        }
    }

    /// What the leaders of these groups receive: for each message, the proposing groups.
    fn told(batch: &ProposalBatch, to: &[u16]) -> Vec<Vec<(u64, Vec<u16>)>> {
        let (to, mut all) = (to.iter().map(|group| GroupId(*group)).collect(), Vec::new());
        batch.tell(to, &mut Vec::new(), |mut bytes| {
            let mut together = Vec::new();
            while let Some((head, proposals, rest)) = Proposed::decode(bytes) {
                let by = proposals.iter().map(|proposal| proposal.group().0).collect();
                together.push((head.message.sequence, by));
                bytes = rest;
            }
            all.push(together);
        });
        all
    }

    #[test]
    fn what_several_leaders_propose_for_a_message_is_told_together_and_to_nobody_else() {
        let mut batch = ProposalBatch::new(4);
        for (by, numbers) in [(0, vec![1, 2, 3]), (3, vec![1, 3, 2, 4])] {
            for number in numbers {
                batch.push(&announcement(number, by, &[0, 1, 3]));
            }
        }
        batch.push(&announcement(5, 3, &[2, 3]));
        batch.close();
        // g3 has already proposed for 3, behind 2 in g0's order, so its proposal for 2 goes alone.
        let several =
            vec![(1, vec![0, 3]), (2, vec![0]), (3, vec![0, 3]), (2, vec![3]), (4, vec![3])];
        assert_eq!(told(&batch, &[1]), [several]);
        assert_eq!(told(&batch, &[2]), [[(5, vec![3])]], "the others are none of its business");
        assert_eq!(told(&batch, &[]), Vec::<Vec<_>>::new());
        batch.clear();
        assert!(batch.is_empty() && batch.next == [0; 4]);
    }

    #[test]
    fn no_more_travels_together_than_a_log_has_room_for() {
        let mut batch = ProposalBatch::new(64);
        let all: Vec<_> = (0..64).collect();
        for by in 0..63 {
            (1..=9).for_each(|number| batch.push(&announcement(number, by, &all)));
        }
        batch.close();
        let all = told(&batch, &[63]);
        let count = |it: &Vec<(u64, Vec<u16>)>| it.iter().map(|(_, by)| by.len()).sum::<usize>();
        assert_eq!(all.iter().map(count).sum::<usize>(), 63 * 9);
        let most = TOGETHER_MAX / Proposed::PROPOSAL_BYTES;
        assert!(all.iter().all(|it| count(it) <= most));
    }
}
