//! The groups that serve, as their replicas say. They are asked while the time of an operation is nearly over, so that its error
//! names the groups that it waited for. Nothing is asked otherwise.
//!
//! A *look* sees what replicas have said since the look before, and asks again. Looks are counted, and not the time between
//! them: a client that is stopped for a while cannot take that for silence of the groups.
//!
//! **Invariant (truth).** A group is taken for one that does not serve only after [`LOOKS`] looks in a row at which no replica had
//! said that it serves, or that it follows a leader that had said nothing itself.

use skein_multicast::session_transport::{QueryKey, SessionKey};
use skein_multicast::standing::Standing;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};

/// Looks after which a group is taken for one that does not serve. A leader that fails is replaced in less time.
const LOOKS: u32 = 15;

/// The groups that are asked at present.
pub(crate) struct Inquiry {
    /// Replicas of each group.
    replicas: u8,
    /// Whether messages are ordered along a tree, for which a group whose leader [commits](Standing::Commits) suffices.
    along_a_tree: bool,
    /// The session that asks.
    session: Option<SessionKey>,
    asked: Vec<Asked>,
}

/// A group that is asked.
struct Asked {
    group: GroupId,
    /// Looks in a row without a sign that it serves.
    quiet: u32,
    /// By slot.
    told: Vec<Told>,
}

/// A question to a replica, and its answer.
struct Told {
    /// The query without an answer.
    query: Option<QueryKey>,
    /// Its answer since the last look.
    standing: Option<Standing>,
}

impl Inquiry {
    pub(crate) fn new(replicas: u8, along_a_tree: bool) -> Self {
        Self { replicas, along_a_tree, session: None, asked: Vec::new() }
    }

    /// Whether nothing is asked.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.is_empty()
    }

    /// Takes a look at these groups. `ask` sends a query by the session that it is given.
    pub(crate) fn look(
        &mut self,
        session: SessionKey,
        groups: GroupSet,
        ask: &mut dyn FnMut(SessionKey, ReplicaId) -> QueryKey,
    ) {
        let session = *self.session.get_or_insert(session);
        for asked in &mut self.asked {
            asked.quiet = if asked.may_serve(self.along_a_tree) { 0 } else { asked.quiet + 1 };
            for (slot, told) in (0..).zip(&mut asked.told) {
                told.standing = None;
                told.query.get_or_insert_with(|| ask(session, ReplicaId::new(asked.group, slot)));
            }
        }
        let begun: GroupSet = self.asked.iter().map(|asked| asked.group).collect();
        for group in groups.iter().filter(|group| !begun.contains(*group)) {
            let told = (0..self.replicas).map(|slot| {
                let query = Some(ask(session, ReplicaId::new(group, slot)));
                Told { query, standing: None }
            });
            self.asked.push(Asked { group, quiet: 0, told: told.collect() });
        }
    }

    /// Asks no group but these. `forget` forgets a query.
    pub(crate) fn keep(&mut self, groups: GroupSet, forget: &mut dyn FnMut(QueryKey)) {
        self.asked.retain(|asked| {
            let keep = groups.contains(asked.group);
            if !keep {
                asked.told.iter().filter_map(|told| told.query).for_each(&mut *forget);
            }
            keep
        });
        self.session = self.session.filter(|_| !self.is_over());
    }

    /// Takes an answer. Returns whether it is one to a query of this inquiry.
    pub(crate) fn answer(&mut self, query: QueryKey, answer: &[u8]) -> bool {
        let mut all = self.asked.iter_mut().flat_map(|asked| &mut asked.told);
        let Some(told) = all.find(|told| told.query == Some(query)) else { return false };
        told.query = None;
        told.standing = Standing::decode(answer);
        true
    }

    /// The groups that do not serve.
    pub(crate) fn not_serving(&self) -> GroupSet {
        let quiet = self.asked.iter().filter(|asked| asked.quiet >= LOOKS);
        quiet.map(|asked| asked.group).collect()
    }
}

impl Asked {
    /// Whether a replica has said that the group serves, or that the leader, which has said nothing, knows.
    fn may_serve(&self, along_a_tree: bool) -> bool {
        self.told.iter().any(|told| match told.standing {
            Some(Standing::Serves) => true,
            Some(Standing::Commits) => along_a_tree,
            Some(Standing::Follows(leader)) => {
                let leader = self.told.get(usize::from(leader));
                leader.is_none_or(|leader| leader.standing.is_none())
            }
            Some(Standing::DoesNotServe) | None => false,
        })
    }
}

#[cfg(test)]
mod tests;
