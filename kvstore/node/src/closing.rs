//! Closes a cluster that has restore points, seen from outside: until f+1 disks of every group lead to the last point.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::Directory;
use skein_protocol::ids::GroupId;

use crate::admin::{self, Action};
use crate::nodes::ask;
use crate::status::PointsStatus;

/// Interval at which the nodes are asked.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Time that a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Time after which groups are given up that do not answer, beyond the time after which nodes report them. A node without a processor
/// answers late.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// How far the last restore point has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closing {
    /// Groups whose state at the last point is on the disks of f+1 replicas.
    pub saved: BTreeSet<u16>,
    /// Groups whose state is on fewer disks.
    pub missing: BTreeSet<u16>,
    /// Those of the missing groups that do not answer, as all nodes say that answer.
    pub silent: BTreeSet<u16>,
    /// Those of the missing groups of which too few nodes run.
    pub hopeless: BTreeSet<u16>,
    /// The least age of a time before which all that was acknowledged is on f+1 disks of every group, as far as a node has told.
    pub saved_age_ms: Option<u64>,
}

/// The disks that lead to the last point, and what the nodes say of it.
struct Watch {
    quorum: usize,
    /// The nodes of each group.
    nodes: BTreeMap<u16, BTreeSet<u16>>,
    /// Group and node. A disk holds what it holds, though its node ends.
    held: BTreeSet<(u16, u16)>,
}

impl Watch {
    fn new(config: &ClusterConfig) -> Self {
        let (layout, topology) = (config.layout(), config.topology);
        let nodes_of = |group| {
            topology.replicas_of(GroupId(group)).map(|replica| layout.node_of(replica)).collect()
        };
        let nodes = (0..topology.groups).map(|group| (group, nodes_of(group))).collect();
        Self { quorum: topology.quorum(), nodes, held: BTreeSet::new() }
    }

    /// Takes what the nodes say that answer. `runs` is true also of nodes that do not answer for now.
    fn take(&mut self, points: &[(u16, &PointsStatus)], runs: impl Fn(u16) -> bool) -> Closing {
        for (node, points) in points {
            self.held.extend(points.closed.iter().map(|group| (*group, *node)));
        }
        let holders = |group: u16| self.held.iter().filter(|(of, _)| *of == group).count();
        let (saved, missing): (BTreeSet<u16>, BTreeSet<u16>) =
            self.nodes.keys().partition(|group| holders(**group) >= self.quorum);
        // A node that is cut off from the others finds all groups silent.
        let says = |group: &u16| {
            !points.is_empty() && points.iter().all(|(_, points)| points.silent.contains(group))
        };
        let may_hold = |group: u16, node: u16| runs(node) || self.held.contains(&(group, node));
        let is_hopeless = |group: &u16| {
            let nodes = self.nodes[group].iter();
            nodes.filter(|node| may_hold(*group, **node)).count() < self.quorum
        };
        let hopeless: BTreeSet<u16> = missing.iter().copied().filter(is_hopeless).collect();
        let silent = missing.iter().copied().filter(says).collect();
        let saved_age_ms = points.iter().filter_map(|(_, points)| points.saved_age_ms).min();
        Closing { saved, missing, silent, hopeless, saved_age_ms }
    }
}

/// Closes the cluster with a last restore point, behind which nothing is executed. Returns when f+1 disks of every group lead to
/// it, when that cannot be expected, after `node.close_within_ms`, or as soon as `hurry` returns true. `show` is told how far it is.
pub fn close(
    directory: &Directory,
    config: &ClusterConfig,
    hurry: &mut dyn FnMut() -> bool,
    show: &mut dyn FnMut(&Closing),
) -> Closing {
    let deadline = Instant::now() + Duration::from_millis(config.close_within_ms);
    let mut watch = Watch::new(config);
    let mut silent_since = None;
    loop {
        // Again and again: a node may have begun to listen only now.
        let answers = ask(config.topology.nodes, |node| {
            admin::call(directory, node, Action::Close, ANSWER_WITHIN)
        });
        let points = answers.iter().flatten().filter_map(|it| Some((it.node, it.points.as_ref()?)));
        let runs = |node| directory.node(node).is_some();
        let closing = watch.take(&points.collect::<Vec<_>>(), runs);
        show(&closing);
        let now = Instant::now();
        let since = silent_since.get_or_insert(now);
        if closing.silent.is_empty() {
            *since = now;
        }
        let given_up = now.duration_since(*since) >= SILENT_FOR
            || !closing.hopeless.is_empty()
            || now >= deadline;
        if closing.missing.is_empty() || given_up || hurry() {
            return closing;
        }
        thread::sleep(ASK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;

    use super::*;

    /// Each node's answer: the groups of which its disk leads to the last point, and those that are silent.
    type Told<'a> = Option<(Groups<'a>, Groups<'a>)>;
    type Groups<'a> = &'a [u16];
    /// What each node tells; the nodes that run; the missing, the silent and the hopeless groups; why.
    type Case<'a> = ([Told<'a>; 4], Groups<'a>, Groups<'a>, Groups<'a>, Groups<'a>, &'a str);

    #[test]
    fn every_group_needs_the_last_point_on_the_disks_of_a_quorum() {
        // Group 0 is on nodes 0, 1 and 2, and group 1 on nodes 1, 2 and 3.
        let topology = Topology { nodes: 4, groups: 2, replicas: 3, engines: 1 };
        let config = ClusterConfig { topology, ..ClusterConfig::default() };
        let all: Groups<'_> = &[0, 1, 2, 3];
        #[rustfmt::skip]
        let cases: [Case<'_>; 6] = [
            // node 0             node 1                 node 2                 node 3              runs     missing  silent  hopeless because
            ([Some((&[0], &[])),  Some((&[0, 1], &[])),  Some((&[1], &[])),     Some((&[], &[]))],  all,     &[],     &[],    &[],     "two of three are a quorum"),
            ([Some((&[0], &[])),  Some((&[0, 1], &[])),  Some((&[], &[])),      Some((&[], &[]))],  all,     &[1],    &[],    &[],     "one is none, though its copy comes"),
            ([Some((&[], &[1])),  Some((&[], &[1])),     None,                  None],              all,     &[0, 1], &[1],   &[],     "all that answer find it silent"),
            ([Some((&[], &[1])),  Some((&[], &[])),      None,                  None],              all,     &[0, 1], &[],    &[],     "one has heard of it"),
            ([Some((&[], &[])),   Some((&[], &[])),      None,                  None],              &[0, 1], &[0, 1], &[],    &[1],    "one node of it runs"),
            ([Some((&[0], &[])),  Some((&[0, 1], &[])),  None,                  None],              &[0, 1], &[1],    &[],    &[1],    "the other one is saved"),
        ];
        for (told, running, missing, silent, hopeless, because) in cases {
            let status = |(node, told): (u16, &Told<'_>)| {
                let (closed, silent) = told.as_ref()?;
                let points = PointsStatus {
                    closed: closed.to_vec(),
                    silent: silent.to_vec(),
                    ..PointsStatus::default()
                };
                Some((node, points))
            };
            let told: Vec<_> = (0..).zip(&told).filter_map(status).collect();
            let told: Vec<_> = told.iter().map(|(node, points)| (*node, points)).collect();
            let mut watch = Watch::new(&config);
            let closing = watch.take(&told, |node| running.contains(&node));
            let set = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
            let found = (&closing.missing, &closing.silent, &closing.hopeless);
            assert_eq!(found, (&set(missing), &set(silent), &set(hopeless)), "{because}");
        }
    }

    #[test]
    fn a_disk_holds_what_it_holds_though_its_node_has_ended() {
        let topology = Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 };
        let config = ClusterConfig { topology, ..ClusterConfig::default() };
        let closed = PointsStatus { closed: vec![0], ..PointsStatus::default() };
        let mut watch = Watch::new(&config);
        assert_eq!(watch.take(&[(0, &closed)], |_| true).missing, BTreeSet::from([0]));
        let closing = watch.take(&[(1, &closed)], |node| node == 1);
        assert!(closing.missing.is_empty(), "{closing:?}");
    }
}
