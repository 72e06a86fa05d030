//! Why groups did not answer, as the nodes report it: added by `skein get` and similar commands to
//! the client's error.

use skein_client::{Error, GroupId, GroupSet, Unavailability};
use skein_cluster::config::Durability;
use skein_cluster::directory::Directory;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Role;
use skein_node::admin::CallError;
use skein_node::missing::is_missing;
use skein_node::nodes;
use skein_node::status::ReplicaReport;

use crate::args::Global;
use crate::held_up::{Because, HeldUpBy, held_up_by};

/// A message that has waited for so long, in milliseconds, is why its group does not answer.
const WAITS_LONG_MS: u64 = 1_000;

/// The error, followed by a line for each group concerned. Along a tree, other groups that do not serve may be why a
/// group is silent, and are named too.
pub(super) fn explained(error: Error, global: &Global) -> anyhow::Error {
    let groups = match &error {
        Error::UnknownOutcome { silent: groups, .. }
        | Error::Unavailable {
            why:
                Unavailability::NotSent { silent: groups, .. }
                | Unavailability::NoQuorum { groups, .. }
                | Unavailability::HeldUp { by: groups, .. },
            ..
        } => *groups,
        _ => GroupSet::EMPTY,
    };
    if groups.is_empty() {
        return error.into();
    }
    let lines = Seen::now(global).map(|seen| seen.lines(groups)).unwrap_or_default();
    let text = lines.iter().fold(error.to_string(), |text, line| format!("{text}\n  {line}"));
    anyhow::anyhow!(text)
}

/// The reports of the nodes.
struct Seen {
    layout: Layout,
    replicas: Vec<ReplicaReport>,
    /// Whether the nodes keep on disk all that they acknowledge.
    is_on_disk: bool,
    /// Nodes that do not answer, and why.
    mute: Vec<(u16, String)>,
}

impl Seen {
    /// The current reports; `None` if the cluster does not exist any more, which is reported
    /// elsewhere.
    fn now(global: &Global) -> Option<Self> {
        let directory = Directory::at(&global.dir()).ok()?;
        let config = directory.config().ok()?;
        let topology = config.topology;
        let (mut replicas, mut mute) = (Vec::new(), Vec::new());
        let all = nodes::statuses(&directory, topology.nodes);
        for (node, status) in (0..topology.nodes).zip(all) {
            match status {
                Ok(status) => replicas.extend(status.replicas),
                Err(error) if directory.host_of(&config, node).is_some() => {
                    let address = &config.network.addresses[usize::from(node)];
                    let why = match error {
                        CallError::Unreachable { .. } => String::new(),
                        error => format!(" ({error})"),
                    };
                    mute.push((
                        node,
                        format!("it is on another host, {address}, and not reached from here{why}"),
                    ));
                }
                Err(_)
                    if config.durability != Durability::Memory
                        && directory.node(node).is_none()
                        && is_missing(&directory, node) =>
                {
                    let data = directory.node_data(node);
                    mute.push((
                        node,
                        format!("its data is gone: {} is empty or not there", data.display()),
                    ));
                }
                Err(_) if directory.node(node).is_none() => {
                    let start = "it does not run: `skein node` with its index starts it";
                    mute.push((node, start.to_owned()));
                }
                Err(error) => mute.push((node, format!("it cannot be reached: {error}"))),
            }
        }
        let is_on_disk = config.durability == Durability::Sync;
        Some(Self { layout: config.layout(), replicas, is_on_disk, mute })
    }

    fn lines(&self, groups: GroupSet) -> Vec<String> {
        let own = groups.iter().filter_map(|group| self.line(group));
        let others = self.held_up().into_iter().filter(|it| !groups.contains(GroupId(it.by)));
        own.chain(others.map(|it| it.to_string())).collect()
    }

    /// Sentences about groups that do not serve, and about what they hold up along the tree, if there is one.
    fn held_up(&self) -> Vec<HeldUpBy> {
        let tree = self.layout.tree();
        tree.map_or_else(Vec::new, |tree| held_up_by(&tree, |group| self.because(group)))
    }

    fn of(&self, group: GroupId) -> impl Iterator<Item = &ReplicaReport> + Clone {
        self.replicas.iter().filter(move |replica| replica.order.group == group.0)
    }

    /// Number of the group's replicas that answer and have their state.
    fn members(&self, group: GroupId) -> usize {
        self.of(group).filter(|replica| replica.order.role != Role::Learner).count()
    }

    /// Why a group does not serve; `None` if it does.
    fn because(&self, group: GroupId) -> Option<Because> {
        let leads =
            |replica: &ReplicaReport| replica.order.role == Role::Leader && replica.order.available;
        if self.of(group).any(|replica| replica.order.lost) {
            Some(Because::Lost)
        } else if self.of(group).any(|replica| replica.order.is_stopped()) {
            Some(Because::Diverged)
        } else if self.of(group).any(leads) {
            None // Even if its followers do not answer: their memory takes what it writes.
        } else if self.members(group) < self.layout.topology().quorum() {
            Some(Because::NoQuorum)
        } else {
            Some(Because::NoLeader)
        }
    }

    /// Names the nodes of a group that do not answer, and says why. A semicolon stands before each.
    fn mute_in(&self, group: GroupId) -> String {
        let mute =
            self.mute.iter().filter(|(node, _)| self.layout.replica_on(*node, group).is_some());
        mute.fold(String::new(), |line, (node, why)| format!("{line}; node {node}: {why}"))
    }

    fn line(&self, group: GroupId) -> Option<String> {
        let number = group.0;
        match self.because(group) {
            Some(Because::Lost) if self.is_on_disk => {
                return Some(format!(
                    "g{number} is lost: the data of more of its replicas is gone than it tolerates; start the nodes that have it, or restore a backup into a new cluster"
                ));
            }
            Some(Because::Lost) => {
                return Some(format!(
                    "g{number} is lost: more of its replicas have lost their state than it tolerates; it serves nothing until `skein admin recreate g{number}`, which lists the survivors and continues from one of them, or empty"
                ));
            }
            Some(Because::Diverged) => {
                return Some(format!(
                    "g{number} has stopped: its replicas have diverged, and no state is held by most of them; `skein status` shows which, and docs/operating.md says what to do"
                ));
            }
            Some(Because::NoQuorum) => {
                let (all, quorum) =
                    (self.layout.topology().replicas, self.layout.topology().quorum());
                let line = format!(
                    "g{number} is without a quorum: {} of its {all} replicas answer as members, and it takes {quorum}",
                    self.members(group)
                );
                return Some(line + &self.mute_in(group));
            }
            Some(Because::NoLeader) => {
                let (line, mute) =
                    (format!("g{number} is choosing a leader: try again"), self.mute_in(group));
                let waits = "; if all of it was started just now, it waits 3 s at most for what other nodes hold";
                return Some(if mute.is_empty() { line } else { line + waits + &mute });
            }
            None if self.members(group) < self.layout.topology().quorum() => {
                let line = format!(
                    "g{number} serves by its leader, which writes into the memory of replicas that do not answer; what goes to several groups may wait for these"
                );
                return Some(line + &self.mute_in(group));
            }
            None => {}
        }
        let holds_up = |replica: &ReplicaReport| {
            let blocked = replica.order.blocked.as_ref();
            let others = blocked.filter(|it| it.age_ms >= WAITS_LONG_MS)?.held_up_by.iter();
            others.copied().find(|other| *other != number)
        };
        if let Some(other) = self.of(group).find_map(holds_up) {
            return Some(format!("g{number} waits for g{other}, to which a message went too"));
        }
        let waiting = self.of(group).map(|replica| replica.order.held.waiting).max()?;
        (self.layout.tree().is_some() && waiting > 0).then(|| {
            format!(
                "g{number} holds back {waiting} replies until earlier messages that it has delivered are in all groups to which they went"
            )
        })
    }
}

/// A replica, for tests.
#[cfg(test)]
pub(crate) fn example_replica(group: u16, slot: u8, role: Role) -> ReplicaReport {
    use skein_multicast::operate::{Elections, HeldStatus, ReplicaStatus, ResultsStatus};

    let order = ReplicaStatus {
        group,
        slot,
        role,
        incarnation: 0,
        leader: Some(0),
        ballot: String::new(),
        ballot_counter: 1,
        ballot_counters: Vec::new(),
        clock: 0,
        settled_clocks: Vec::new(),
        view: Vec::new(),
        learners: Vec::new(),
        lost: false,
        divergence: None,
        available: true,
        last_failover: None,
        elections: Elections::default(),
        waits_for: None,
        holds_state: true,
        log_birth: 0,
        log_index: 0,
        log_position: 0,
        commit_index: 0,
        delivered: 0,
        pending: 0,
        oldest_pending_ms: 0,
        blocked: None,
        stuck: None,
        sessions: 0,
        held: HeldStatus::default(),
        edges: None,
        results: ResultsStatus::default(),
        disk: None,
        memory_bytes: 0,
    };
    ReplicaReport { order, keys: 0, store_bytes: 0, digest: None }
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;
    use skein_multicast::operate::BlockedStatus;
    use skein_multicast::protocol::tram::tree::Tree;

    use super::example_replica as replica;
    use super::*;

    #[test]
    fn what_keeps_a_group_is_named_with_what_to_do() {
        let topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
        let layout = Layout::propose(topology).unwrap();
        let (replicas, mute) = (Vec::new(), Vec::new());
        let mut whole = Seen { layout, replicas, is_on_disk: false, mute };
        for (group, slot) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            let role = if slot == 0 { Role::Leader } else { Role::Follower };
            whole.replicas.push(replica(group, slot, role));
        }
        let both = GroupSet::first(2);
        assert!(whole.lines(both).is_empty(), "there is nothing to say");

        whole.replicas[3].order.role = Role::Candidate;
        assert_eq!(whole.lines(both), ["g1 is choosing a leader: try again"]);
        whole.mute = vec![(2, "it does not run".into())];
        let line = whole.lines(both).remove(0);
        assert!(
            line.contains("waits 3 s") && line.ends_with("; node 2: it does not run"),
            "{line}"
        );
        whole.mute.clear();

        let blocked =
            BlockedStatus { message: String::new(), age_ms: 1_000, held_up_by: vec![0, 1] };
        whole.replicas[1].order.blocked = Some(blocked);
        assert!(whole.lines(both)[0].contains("g0 waits for g1"));

        // The followers of group 1 are on node 2 and node 0.
        whole.replicas[3].order.role = Role::Leader;
        let followers = whole.replicas.split_off(4);
        whole.mute = vec![(2, "process 7 is paused".into())];
        let alone = whole.lines(GroupSet::single(GroupId(1)));
        assert!(alone[0].contains("g1 serves by its leader") && alone[0].contains("process 7"));
        whole.replicas[3].order.available = false;
        let alone = whole.lines(GroupSet::single(GroupId(1)));
        assert!(alone[0].contains("g1 is without a quorum: 1 of its 3"), "{alone:?}");
        whole.replicas.extend(followers);

        // Group 1 has lost node 1 and node 2, which run its first two slots.
        whole.replicas.truncate(3);
        whole.mute = vec![(1, "it does not run".into()), (2, "process 7 is paused".into())];
        let line = &whole.lines(GroupSet::single(GroupId(1)))[0];
        for part in ["0 of its 3 replicas", "takes 2", "node 1: it does", "node 2: process 7"] {
            assert!(line.contains(part), "{part} in {line}");
        }

        // The same with a tree, in which g1 is above nothing.
        let tree = Tree::depth(2);
        let (replicas, mute) = (whole.replicas.clone(), whole.mute.clone());
        let layout = whole.layout.clone().along(&tree).unwrap();
        let along = Seen { layout, replicas, is_on_disk: false, mute };
        let root = along.lines(GroupSet::single(GroupId(0)));
        assert_eq!(root.len(), 2, "{root:?}");
        assert!(root[0].contains("g0 waits for g1"));
        assert_eq!(root[1], "g1 has no quorum: it holds up messages of several groups to g1.");
        let told = along.lines(both);
        assert!(told[1].contains("takes 2") && told.len() == 2, "it is named once: {told:?}");

        whole.replicas.push(replica(1, 2, Role::Learner));
        whole.replicas[3].order.lost = true;
        let line = &whole.lines(both)[1];
        assert!(line.contains("skein admin recreate g1`"), "{line}");
        whole.is_on_disk = true;
        let line = &whole.lines(both)[1];
        assert!(line.contains("restore a backup") && !line.contains("recreate"), "{line}");
    }
}
