//! The sender's side of a transaction: its destinations, and the reply that results from the groups' parts.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use skein_protocol::ids::{GroupId, GroupSet};

use crate::command::{Operation, Transaction};
use crate::limits::Limits;
use crate::points::RestorePoint;
use crate::reply::{Outcome, Page, Refusal, Reply};
use crate::rules;
use crate::slots::{HashSlot, SlotMap};
use crate::wire::{Bytes, Command, Move, Part, Request, Unreadable};

/// A request, its destinations, and how the groups' parts combine into a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Epoch of the slot map by which the plan was made; `None` for opening and closing sessions and for moving slots.
    epoch: Option<u32>,
    destinations: GroupSet,
    request: Vec<u8>,
    then: Vec<Source>,
    otherwise: Vec<Source>,
    page_bytes_max: usize,
    only_reads: bool,
    has_no_effect: bool,
}

/// The groups that produce the outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The owner of the key.
    Group(GroupId),
    /// Every group, each with a part of a page of at most `pairs_max` pairs.
    All { pairs_max: usize },
}

impl Plan {
    /// The plan for `transaction`.
    ///
    /// # Errors
    /// The refusal, if the transaction can never be executed, whatever the groups hold.
    pub fn of(
        transaction: &Transaction,
        slots: &SlotMap,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        Self::of_borrowed(transaction.borrowed(), slots, limits)
    }

    /// The plan for the same transaction by a newer map. To be used only if a group has refused the transaction because
    /// of the map, or would refuse it: then it had no effect. `None` if the map is not newer, or if the transaction
    /// guards a range: only the caller that scanned the range can assign its pairs to their new owners.
    pub fn again(&self, slots: &SlotMap, limits: &Limits) -> Option<Result<Self, Refusal>> {
        if self.epoch? >= slots.epoch {
            return None;
        }
        let transaction = Request::decode(&self.request).ok()?.command()?.transaction;
        let scanned = transaction.guards.iter().any(|guard| guard.only_key().is_none());
        (!scanned).then(|| Self::of_borrowed(transaction, slots, limits))
    }

    fn of_borrowed(
        transaction: Transaction<Bytes<'_>>,
        slots: &SlotMap,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        rules::check(&transaction, limits)?;
        // Computing an owner takes as long as encoding a key, so it is done once per key.
        let guards = transaction.guards.iter().map(|guard| match guard.only_key() {
            Some(key) => GroupSet::single(slots.owner(key.0)),
            None => slots.groups(),
        });
        let mut owners = guards.fold(GroupSet::EMPTY, GroupSet::union);
        let mut source = |operation: &Operation<Bytes<'_>>| match operation {
            Operation::Scan { limit, .. } => {
                owners = slots.groups();
                Source::All { pairs_max: pairs_max(*limit, limits) }
            }
            keyed => {
                let owner = slots.owner(keyed.key().expect("no scan").0);
                owners = owners.with(owner);
                Source::Group(owner)
            }
        };
        let (only_reads, has_no_effect) = (transaction.only_reads(), transaction.has_no_effect());
        let then = transaction.then.iter().map(&mut source).collect();
        let otherwise = transaction.otherwise.iter().map(&mut source).collect();
        let destinations = rules::somebody(owners);
        let command = Command { epoch: slots.epoch, transaction };
        let request =
            if only_reads { Request::Read(command) } else { Request::Transaction(command) };
        let request = request.encode();
        if request.len() > limits.transaction_bytes_max {
            let max = limits.transaction_bytes_max as u64;
            return Err(Refusal::TransactionTooLarge { len: request.len() as u64, max });
        }
        let page_bytes_max = limits.scan_page_bytes_max;
        Ok(Self {
            epoch: Some(slots.epoch),
            destinations,
            request,
            then,
            otherwise,
            page_bytes_max,
            only_reads,
            has_no_effect,
        })
    }

    /// The plan for the session's first message, which opens it.
    pub fn open(slots: &SlotMap) -> Self {
        Self::control(&Request::Open, slots)
    }

    /// The plan for the session's last message, which closes it.
    pub fn close(slots: &SlotMap) -> Self {
        Self::control(&Request::Close, slots)
    }

    /// The plan that gives a hash slot to another group. The slot must be empty.
    pub fn move_slot(slots: &SlotMap, slot: HashSlot, to: GroupId) -> Self {
        let it = Move { epoch: slots.epoch, slot: slot.0, to: to.0 };
        Self::control(&Request::Move(it), slots)
    }

    /// The plan for a mark: its reply has one outcome for each group, in the order of the groups.
    pub fn mark(slots: &SlotMap) -> Self {
        let then = slots.groups().iter().map(Source::Group).collect();
        Self { then, ..Self::control(&Request::Mark, slots) }
    }

    /// The plan for a restore point, or for a report to one group: its reply has one outcome for each group, in the order
    /// of the groups.
    pub fn restore_point(slots: &SlotMap, it: RestorePoint, only: Option<GroupId>) -> Self {
        let destinations = only.map_or(slots.groups(), GroupSet::single);
        let then = destinations.iter().map(Source::Group).collect();
        Self { destinations, then, ..Self::control(&Request::RestorePoint(it), slots) }
    }

    fn control(request: &Request<'_>, slots: &SlotMap) -> Self {
        Self {
            epoch: None,
            destinations: slots.groups(),
            request: request.encode(),
            then: Vec::new(),
            otherwise: Vec::new(),
            page_bytes_max: 0,
            only_reads: false,
            has_no_effect: false,
        }
    }

    /// The groups to which the request is multicast. Each answers with a part.
    pub fn destinations(&self) -> GroupSet {
        self.destinations
    }

    /// Whether the transaction changes nothing, so that it need not be ordered.
    pub fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// The bytes to multicast.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Whether the transaction changes nothing. If its reply [is lost](Refusal::Forgotten), it may be sent again as
    /// another message.
    pub fn may_be_asked_again(&self) -> bool {
        self.has_no_effect
    }

    /// Combines the groups' parts, one of each destination, in any order.
    ///
    /// # Errors
    /// The refusal of a group, or [`Refusal::Unreadable`] if the parts cannot be combined.
    pub fn join<'a>(
        &self,
        parts: impl IntoIterator<Item = (GroupId, &'a [u8])>,
    ) -> Result<Reply, Refusal> {
        let mut parts = parts.into_iter();
        if self.destinations.len() == 1
            && let Some((group, bytes)) = parts.next()
        {
            return self.whole(group, bytes);
        }
        let mut done = Vec::with_capacity(self.destinations.len());
        let mut refused: Option<(GroupId, Option<Refusal>)> = None;
        for (group, bytes) in parts {
            match decode(group, bytes)? {
                Part::Done { held, outcomes } => done.push((group, held, outcomes.into_iter())),
                // The lowest group's reason, regardless of the order of the answers.
                Part::Refused(refusal) => match &refused {
                    Some((lowest, Some(_))) if *lowest < group => {}
                    _ => refused = Some((group, Some(refusal))),
                },
                Part::RefusedElsewhere => refused = refused.or(Some((group, None))),
            }
        }
        match refused {
            Some((_, Some(refusal))) => Err(refusal),
            Some((group, None)) => Err(disagree(group, NO_GROUP_SAYS_WHY)),
            None => self.put_together(done),
        }
    }

    /// The reply from the part of the only destination, which contains all outcomes in order.
    fn whole(&self, group: GroupId, bytes: &[u8]) -> Result<Reply, Refusal> {
        let (held, outcomes) = match decode(group, bytes)? {
            Part::Done { held, outcomes } => (held, outcomes),
            Part::Refused(refusal) => return Err(refusal),
            Part::RefusedElsewhere => return Err(disagree(group, NO_GROUP_SAYS_WHY)),
        };
        let branch = if held { &self.then } else { &self.otherwise };
        match outcomes.len().cmp(&branch.len()) {
            Ordering::Less => return Err(disagree(group, TOO_LITTLE)),
            Ordering::Greater => return Err(disagree(group, TOO_MUCH)),
            Ordering::Equal => {}
        }
        let outcome = |(source, outcome): (&Source, Outcome<Bytes<'_>>)| match (source, outcome) {
            (Source::Group(_), outcome) => Ok(outcome.to_owned()),
            (Source::All { pairs_max }, Outcome::Page(page)) => {
                Ok(Outcome::Page(merge(vec![page], *pairs_max, self.page_bytes_max)))
            }
            (Source::All { .. }, _) => Err(disagree(group, NO_PAGE)),
        };
        let outcomes = branch.iter().zip(outcomes).map(outcome).collect::<Result<_, _>>()?;
        Ok(Reply { held, outcomes })
    }

    fn put_together<'a>(
        &self,
        mut done: Vec<(GroupId, bool, impl Iterator<Item = Outcome<Bytes<'a>>>)>,
    ) -> Result<Reply, Refusal> {
        let missing = done.iter().fold(self.destinations, |left, part| left.without(part.0));
        if let Some(group) = missing.iter().next() {
            return Err(disagree(group, "its reply is missing"));
        }
        let held = done[0].1;
        if let Some((group, ..)) = done.iter().find(|part| part.1 != held) {
            return Err(disagree(*group, "it executed another branch than the other groups"));
        }
        let branch = if held { &self.then } else { &self.otherwise };
        let mut outcomes = Vec::with_capacity(branch.len());
        for source in branch {
            let mut next = |group: GroupId| {
                let part = done.iter_mut().find(|part| part.0 == group);
                let outcome = part.and_then(|(.., outcomes)| outcomes.next());
                outcome.ok_or_else(|| disagree(group, TOO_LITTLE))
            };
            outcomes.push(match source {
                Source::Group(group) => next(*group)?.to_owned(),
                Source::All { pairs_max } => {
                    let mut pages = Vec::with_capacity(self.destinations.len());
                    for group in self.destinations.iter() {
                        match next(group)? {
                            Outcome::Page(page) => pages.push(page),
                            _ => return Err(disagree(group, NO_PAGE)),
                        }
                    }
                    Outcome::Page(merge(pages, *pairs_max, self.page_bytes_max))
                }
            });
        }
        match done.iter_mut().find_map(|(group, _, rest)| rest.next().map(|_| *group)) {
            Some(group) => Err(disagree(group, TOO_MUCH)),
            None => Ok(Reply { held, outcomes }),
        }
    }
}

/// Maximum number of pairs in a page of a scan with this `limit`.
pub(crate) fn pairs_max(limit: u32, limits: &Limits) -> usize {
    (limit as usize).min(limits.scan_pairs_max)
}

const TOO_LITTLE: &str = "its reply has too few outcomes";
const TOO_MUCH: &str = "its reply has too many outcomes";
const NO_PAGE: &str = "its outcome of a scan is not a page";
const NO_GROUP_SAYS_WHY: &str = "refused, but no group gave a reason";

fn decode(group: GroupId, bytes: &[u8]) -> Result<Part<'_>, Refusal> {
    let unreadable = |why: Unreadable| Refusal::Unreadable { group: group.0, why: why.to_string() };
    Part::decode(bytes).map_err(unreadable)
}

fn disagree(group: GroupId, why: &str) -> Refusal {
    Refusal::Unreadable { group: group.0, why: why.to_owned() }
}

/// Merges the groups' pages into one, in key order.
///
/// A group's page is complete below its `next`, and contains nothing from there on. So the merged page is complete
/// below the lowest `next`, and ends there. A longer page could lack pairs of that group.
fn merge(pages: Vec<Page<Bytes<'_>>>, pairs_max: usize, bytes_max: usize) -> Page {
    let complete_to = pages.iter().filter_map(|page| page.next).min();
    let mut sources: Vec<_> = pages.into_iter().map(|page| page.pairs.into_iter()).collect();
    let mut heads: BinaryHeap<_> = sources
        .iter_mut()
        .enumerate()
        .filter_map(|(i, pairs)| pairs.next().map(|(key, value)| Reverse((key, i, value))))
        .collect();
    let mut merged = Page::default();
    let mut bytes = 0;
    while let Some(Reverse((key, i, value))) = heads.pop() {
        if complete_to.is_some_and(|end| key >= end) {
            break;
        }
        bytes += key.0.len() + value.0.len();
        let full = merged.pairs.len() == pairs_max || bytes > bytes_max;
        if full && !merged.pairs.is_empty() {
            merged.next = Some(key.0.to_vec());
            return merged;
        }
        merged.pairs.push((key.0.to_vec(), value.0.to_vec()));
        heads.extend(sources[i].next().map(|(key, value)| Reverse((key, i, value))));
    }
    merged.next = complete_to.map(|key| key.0.to_vec());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::PartWriter;

    #[test]
    fn what_does_not_answer_the_question_is_no_reply_from_one_group_or_several() {
        let get = |key: &str| Operation::Get { key: key.into() };
        let scan = Operation::Scan { start: Vec::new(), end: None, limit: 9 };
        let (gets, scan) = (Transaction::of(get("a")).then(get("a")), Transaction::of(scan));
        let (absent, page) = (Outcome::Value(None), Outcome::Page(Page::default()));
        #[rustfmt::skip]
        let cases = [
            (&gets, vec![absent.clone(), absent.clone()],                 None),
            (&gets, vec![absent.clone()],                                 Some(TOO_LITTLE)),
            (&gets, vec![absent.clone(), absent.clone(), absent.clone()], Some(TOO_MUCH)),
            (&scan, vec![page.clone()],                                   None),
            (&scan, vec![],                                               Some(TOO_LITTLE)),
            (&scan, vec![page.clone(), page],                             Some(TOO_MUCH)),
            (&scan, vec![absent],                                         Some(NO_PAGE)),
        ];
        let both = |case| [(1, case), (2, case)];
        for (groups, (transaction, outcomes, wrong)) in cases.iter().flat_map(both) {
            let plan = Plan::of(transaction, &SlotMap::even(groups), &Limits::default()).unwrap();
            let mut part = PartWriter::default();
            part.done(true, outcomes.len());
            for outcome in outcomes {
                part.outcome(outcome);
            }
            let parts = plan.destinations().iter().map(|group| (group, part.bytes()));
            let why = plan.join(parts).err().map(|refusal| refusal.to_string());
            assert_eq!(why.is_some(), wrong.is_some(), "{groups} {transaction:?} {outcomes:?}");
            assert!(wrong.is_none_or(|wrong| why.unwrap().ends_with(wrong)), "{outcomes:?}");
        }
    }
}
