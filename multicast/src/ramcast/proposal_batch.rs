//! What the leaders of one engine propose in a turn, batch: each other engine is told once.
//!
//! Messages to many groups are proposed for by several leaders of an engine in one turn, and each of these
//! has to tell the same other leaders, several to an engine too. So what they propose for a message is
//! told together, and whoever leads there hears all of it.

use skein_protocol::ids::{GroupSet, ReplicaId};
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::log::Remote;

/// Bytes that travel together, at most: they fit a frame of the smallest ring, and whoever reads them
/// must have room in its log for all that they propose.
pub(crate) const TOGETHER_MAX: usize = 1000;

/// Proposals for a message that travel together, at most.
const PROPOSALS_MAX: usize = 32;

/// Leaders propose for most messages in the same order: which of the next ones it is, is looked for no
/// further than this.
const LOOK_AHEAD: usize = 4;

/// A message, and what is proposed for it.
struct Message {
    head: Proposed,
    /// Whose leaders hear it.
    to: GroupSet,
    /// The numbers of its first and last proposal, and how many there are.
    first: usize,
    last: usize,
    count: usize,
}

#[derive(Default)]
pub struct ProposalBatch {
    messages: Vec<Message>,
    /// Each with the number of the next one for its message.
    proposals: Vec<(Remote, usize)>,
    /// Of each group, the message behind the last one that it proposed for with others.
    next: Vec<usize>,
    /// The slots of the leaders of these groups, as the proposers know them.
    leaders: Vec<u8>,
    known: GroupSet,
    /// All of the messages as they travel, and where each ends there.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Replicas here that hear what another engine's propose.
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

    /// Whether another group's leader is somebody else than who proposed before takes it for.
    pub(crate) fn doubts(&self, leader: ReplicaId) -> bool {
        let ReplicaId { group, slot } = leader;
        self.known.contains(group) && self.leaders[group.index()] != slot
    }

    /// From here on that one is taken for its group's leader.
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

    /// Writes down what is to be told.
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

    /// Those that are to hear something.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = ReplicaId> {
        let to = self.messages.iter().fold(GroupSet::EMPTY, |all, it| all.union(it.to));
        to.iter().map(|group| ReplicaId::new(group, self.leaders[group.index()]))
    }

    /// Says what these groups' leaders are to hear, message after message; `say` is given what is to
    /// travel together.
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

    /// All was told.
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

    /// What the leaders of these groups hear: of each message, who proposes for it.
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
        // Its place in the order of the first one is behind us, so what g3 proposes for 2 goes alone.
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
