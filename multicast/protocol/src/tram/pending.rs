//! Committed messages that are not delivered here.
//!
//! They are delivered as soon as the state machine takes them. A machine that waits for another group's result takes
//! none, and the log goes on meanwhile. So there may be as many as are ordered while a group is silent.
//!
//! **Invariants.** `queue` is in log order, so indices and ranks rise, and no message is in it twice. `names` has the
//! messages of the first `named` entries of `queue`, and no others.

use alloc::collections::{VecDeque, vec_deque};
use core::cell::RefCell;

use hashbrown::HashSet;

use crate::ids::{GroupSet, MessageId};
use crate::rank::Rank;

/// A message that is committed, addressed to us, and not delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) message: MessageId,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
    pub(super) index: u64,
    pub(super) rank: Rank,
    /// Rank in the log of the lowest common ancestor.
    pub(super) place: Rank,
    pub(super) time_ms: u64,
    /// Our time at which it was committed here.
    pub(super) since_ms: u64,
    pub(super) inline: bool,
    /// Clock of its delivery.
    pub(super) clock: u64,
}

/// The messages, and their names.
#[derive(Default)]
pub(super) struct PendingQueue {
    queue: VecDeque<Pending>,
    names: RefCell<Named>,
}

/// The names of the first messages. They are noted when one is looked for among many: most messages are delivered before
/// that.
#[derive(Default)]
struct Named {
    names: HashSet<MessageId>,
    named: usize,
}

/// Up to so many messages, a linear search is faster.
const FEW: usize = 64;

impl PendingQueue {
    /// Adds a message, which stands in the log behind all others.
    pub(super) fn push(&mut self, pending: Pending) {
        debug_assert!(self.ends_before(pending.index));
        self.queue.push_back(pending);
    }

    /// Adds a message of a saved state. `None` if it does not stand behind all others: such a state is malformed.
    pub(super) fn restore(&mut self, pending: Pending) -> Option<()> {
        self.ends_before(pending.index).then(|| self.queue.push_back(pending))
    }

    fn ends_before(&self, index: u64) -> bool {
        self.queue.back().is_none_or(|last| last.index < index)
    }

    /// Takes the first message.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        let first = self.queue.pop_front()?;
        let Named { names, named } = self.names.get_mut();
        if *named > 0 {
            *named -= 1;
            names.remove(&first.message);
        }
        Some(first)
    }

    /// Whether the message is here.
    pub(super) fn contains(&self, message: MessageId) -> bool {
        if self.queue.len() <= FEW {
            return self.queue.iter().any(|it| it.message == message);
        }
        let Named { names, named } = &mut *self.names.borrow_mut();
        names.extend(self.queue.range(*named..).map(|it| it.message));
        *named = self.queue.len();
        names.contains(&message)
    }

    /// The first message.
    pub(super) fn first(&self) -> Option<&Pending> {
        self.queue.front()
    }

    /// All messages, in log order.
    pub(super) fn iter(&self) -> vec_deque::Iter<'_, Pending> {
        self.queue.iter()
    }

    /// Whether a message to several groups stands in the log before `index`.
    pub(super) fn has_several_before(&self, index: u64) -> bool {
        self.iter().take_while(|it| it.index < index).any(|it| it.destinations.has_several())
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    fn message(number: u64) -> MessageId {
        MessageId::new(SessionId(number % 3), number)
    }

    fn pending(number: u64, groups: u16) -> Pending {
        Pending {
            message: message(number),
            low_water: 0,
            destinations: GroupSet::first(groups),
            index: number,
            rank: Rank::new(number),
            place: Rank::new(number),
            time_ms: 0,
            since_ms: 0,
            inline: true,
            clock: number,
        }
    }

    /// Any number of messages, looked for at any moments: those that came and were not taken are here.
    #[test]
    fn messages_are_found_among_few_and_among_many() {
        for looks_every in [1, 7, 100, 1000] {
            let mut queue = PendingQueue::default();
            let (mut first, mut next) = (1, 1);
            for step in 0..2000_u64 {
                // It grows beyond what is searched one by one, falls to nothing, and grows again.
                if step % 500 < 300 {
                    queue.push(pending(next, 1));
                    next += 1;
                } else if let Some(taken) = queue.pop() {
                    assert_eq!(taken.index, first);
                    first += 1;
                }
                if step % looks_every == 0 {
                    let here = (1..next + 2).filter(|number| queue.contains(message(*number)));
                    assert!(here.eq(first..next), "step {step}");
                    let (len, named) = (queue.len(), queue.names.borrow().named);
                    assert!(len <= FEW || named == len, "they are not searched one by one");
                }
            }
            assert_eq!(queue.len() as u64, next - first);
        }
    }

    #[test]
    fn a_state_whose_messages_are_not_in_log_order_is_refused() {
        let mut queue = PendingQueue::default();
        let taken = [4, 4, 3, 5].map(|number| queue.restore(pending(number, 1)).is_some());
        assert_eq!(taken, [true, false, false, true]);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_message_to_several_groups_is_before_what_follows_it_only() {
        let mut queue = PendingQueue::default();
        for number in 1..=5 {
            queue.push(pending(number, if number == 3 { 2 } else { 1 }));
        }
        assert!(!queue.has_several_before(3) && queue.has_several_before(4));
        (0..3).for_each(|_| _ = queue.pop());
        assert!(!queue.has_several_before(6) && !queue.is_empty());
    }
}
