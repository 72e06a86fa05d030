//! Our machine's results for other groups.

use hashbrown::HashMap;
use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::properties::{About, Touch};
use skein_protocol::results::Results;

use super::{RESULTS_BYTES_MAX, ReceivedResult};
use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica::ReplicaPaths;
use crate::replica_links::{Note, ReplicaLinks};

/// Our machine's results for other groups: sent at the end of the turn, and kept to be sent again.
///
/// Invariants: `untold[g].len() <= RESULTS_BYTES_MAX`, and it is 0 unless `untold_to` contains `g`.
pub(in crate::replica) struct Outgoing {
    by: ReplicaId,
    /// Results, with the groups that may still need them.
    pub(super) results: HashMap<MessageId, (GroupSet, ReceivedResult)>,
    /// Results of this turn that are not sent yet, by group, and the set of these groups.
    untold: Vec<Vec<u8>>,
    untold_to: GroupSet,
}

impl Outgoing {
    pub(super) fn new(by: ReplicaId, groups: u16) -> Self {
        let untold = vec![Vec::new(); usize::from(groups)];
        Self { by, results: HashMap::new(), untold, untold_to: GroupSet::EMPTY }
    }

    pub(in crate::replica) const fn by(&self) -> ReplicaId {
        self.by
    }

    /// Keeps our machine's result until the groups `to` have it: a later leader may have to send it again.
    pub(in crate::replica) fn keep(&mut self, message: MessageId, to: GroupSet, result: &[u8]) {
        self.results.insert(message, (to, result.into()));
    }

    /// Drops our machine's result about a message, which no group needs any more.
    pub(in crate::replica) fn settled(&mut self, message: MessageId) {
        self.results.remove(&message);
    }

    /// As leader: schedules our machine's result to be sent to the leaders of other groups at the end of the
    /// turn, with the others of this turn.
    pub(in crate::replica) fn tell_later<F: Fabric, O: Links>(
        &mut self,
        message: MessageId,
        to: GroupSet,
        result: &[u8],
        core: &O,
        links: &mut ReplicaLinks<F, O>,
    ) {
        for group in to.iter() {
            if self.untold[group.index()].len() + Results::len_of(result.len()) > RESULTS_BYTES_MAX
            {
                self.tell_group(group, core, links);
            }
            let (by, to, about) = (self.by, core.leader_of(group), About::Message(message));
            links.note(|| Note::ReceivedResult(Touch { by, to, about }));
            Results::push(message, result, &mut self.untold[group.index()]);
        }
        self.untold_to = self.untold_to.union(to);
    }

    /// Sends the results of this turn.
    pub(in crate::replica) fn tell<F: Fabric, O: Links>(
        &mut self,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
    ) {
        for group in std::mem::take(&mut self.untold_to).iter() {
            self.tell_group(group, core, links);
        }
    }

    fn tell_group<F: Fabric, O: Links>(
        &mut self,
        group: GroupId,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let results = &mut self.untold[group.index()];
        links.send(self.by, core.leader_of(group), Kind::Exchange, results, &[]);
        results.clear();
    }

    /// Sends our machine's result to the leader of a group again, if it is kept for that group.
    pub(in crate::replica) fn resend<F: Fabric, O: Links>(
        &self,
        message: MessageId,
        to: GroupId,
        core: &O,
        links: &mut ReplicaLinks<F, O>,
        paths: &mut ReplicaPaths,
    ) {
        let Some((_, result)) = self.results.get(&message).filter(|(all, _)| all.contains(to))
        else {
            return;
        };
        let mut bytes = links.borrow();
        Results::push(message, result, &mut bytes);
        let leader = core.leader_of(to);
        let about = About::Message(message);
        paths.result_resent += 1;
        links.note(|| Note::ReceivedResult(Touch { by: self.by, to: leader, about }));
        links.send(self.by, leader, Kind::Exchange, &bytes, &[]);
        links.keep(bytes);
    }
}
