//! The next fault: drawn from the seed, among those that a cluster must tolerate.
//!
//! **Invariant (at most f).** A killed or evicted replica lacks its state until it is a follower
//! again. No group ever has more than f replicas that lack their state or are stopped: with more it
//! would rightly stop serving, or be lost. Pauses are the exception: they stop any number of nodes
//! at once, but no state is lost, so groups stop serving and lose nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use skein_multicast::layout::Layout;
use skein_protocol::ids::GroupId;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL to nodes, which return without their state.
    Kill,
    /// SIGSTOP to a node, and SIGCONT after a while.
    Stop,
    /// The same for short moments, repeatedly, so that the node is stopped at different points of
    /// its work. The last stop is about as long as the timeout of suspicion.
    Stutter,
    /// SIGSTOP to several nodes at once, sometimes to all, and SIGCONT after a while.
    Pause,
    /// A node is told to end, and returns without its state.
    Restart,
    /// A follower is told to lead.
    Transfer,
    /// A leader is told to evict a follower.
    Evict,
    /// SIGKILL to a client in the middle of transactions.
    ClientKill,
    /// The network between a node and others is cut, in both directions or one, and mended after a
    /// while.
    Partition,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::Stop,
        Self::Stutter,
        Self::Pause,
        Self::Restart,
        Self::Transfer,
        Self::Evict,
        Self::ClientKill,
        Self::Partition,
    ];

    /// The name on the command line and in histories.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Stutter => "stutter",
            Self::Pause => "pause",
            Self::Restart => "restart",
            Self::Transfer => "transfer",
            Self::Evict => "evict",
            Self::ClientKill => "client-kill",
            Self::Partition => "partition",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The nodes that faults prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Leaders two times out of three.
    Any,
    /// Nodes that lead a group.
    Leaders,
    /// Nodes that lead none.
    Followers,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Kill these nodes at once.
    Kill(Vec<u16>),
    /// Stop a node for this long.
    Stop(u16, Duration),
    /// Stop and continue a node repeatedly.
    Stutter(u16, Vec<Moment>),
    /// Stop these nodes at once, each for its time.
    Pause(Vec<(u16, Duration)>),
    /// Tell a node to end. It is restarted.
    Restart(u16),
    /// Tell a node to lead a group.
    Transfer(u16, GroupId),
    /// Evict the group's replica on a node.
    Evict(u16, GroupId),
    ClientKill,
    /// Partition a node from others for this long.
    Partition(u16, Parting, Duration),
}

/// The extent of a partition of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// From all hosts, including the clients', in both directions.
    FromAll,
    /// From this node, in both directions. Clients reach both.
    FromNode(u16),
    /// This node does not receive what the partitioned one sends. The other direction works.
    Unheard(u16),
}

/// A stop of a node, followed by a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub stopped: Duration,
    /// Minimum of the run.
    pub goes_on: Duration,
}

/// The state of the cluster, as far as faults depend on it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The node that leads each group.
    pub leaders: Vec<Option<u16>>,
    /// Nodes that are dead, stopped, or have replicas without their state.
    pub missing: BTreeSet<u16>,
    /// Nodes that must not be hit at present.
    pub spared: BTreeSet<u16>,
}

/// Draws faults.
#[derive(Clone, Debug)]
pub struct Schedule {
    layout: Layout,
    kinds: Vec<Kind>,
    target: Target,
    /// Timeout after which a silent node is suspected.
    silence: Duration,
    random: SmallRng,
    /// A kind that was drawn but not tolerated yet. It is kept, because otherwise the kinds that
    /// are always tolerated would dominate.
    drawn: Option<Kind>,
}

/// Longest stop of a node.
pub const STOP_MAX: Duration = Duration::from_secs(10);
/// Shortest stop of a node.
const STOP_MIN: Duration = Duration::from_millis(10);
/// Bounds of the number of stops when a node stutters, and the longest moment except the last.
const MOMENTS: [usize; 2] = [4, 24];
const MOMENT_MAX: Moment =
    Moment { stopped: Duration::from_millis(20), goes_on: Duration::from_millis(10) };
/// The shortest moment.
const MOMENT_MIN: Duration = Duration::from_micros(200);
/// Bounds of the time between two faults.
const GAP: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

impl Schedule {
    /// Faults of these `kinds`, at least one, for a cluster of this layout, whose nodes suspect who is
    /// silent for `silence`.
    pub fn new(
        layout: Layout,
        kinds: Vec<Kind>,
        target: Target,
        silence: Duration,
        seed: u64,
    ) -> Self {
        assert!(!kinds.is_empty(), "without faults there is nothing to draw");
        let random = SmallRng::seed_from_u64(seed ^ 0x000c_4a05);
        Self { layout, kinds, target, silence, random, drawn: None }
    }

    /// The time until the next fault.
    pub fn gap(&mut self) -> Duration {
        self.random.random_range(GAP[0]..=GAP[1])
    }

    /// The next fault, or `None` if the drawn kind is not tolerated now.
    pub fn next(&mut self, view: &View, stop_max: Duration) -> Option<Fault> {
        let any = self.random.random_range(0..self.kinds.len());
        let kind = *self.drawn.get_or_insert(self.kinds[any]);
        let fault = self.of_kind(kind, view, stop_max);
        // A kind that is not tolerated while all nodes are well never is.
        if fault.is_some() || (view.missing.is_empty() && view.spared.is_empty()) {
            self.drawn = None;
        }
        fault
    }

    fn of_kind(&mut self, kind: Kind, view: &View, stop_max: Duration) -> Option<Fault> {
        match kind {
            Kind::ClientKill => Some(Fault::ClientKill),
            Kind::Kill => self.kill(view).map(Fault::Kill),
            Kind::Restart => self.one(view).map(Fault::Restart),
            Kind::Pause => self.pause(view, stop_max),
            Kind::Transfer => {
                let (group, node) = self.follower(view, false)?;
                Some(Fault::Transfer(node, group))
            }
            Kind::Evict => {
                let (group, node) = self.follower(view, true)?;
                Some(Fault::Evict(node, group))
            }
            Kind::Stop => {
                let node = self.one(view)?;
                Some(Fault::Stop(node, self.time(STOP_MIN, stop_max)))
            }
            Kind::Partition => {
                let node = self.one(view)?;
                let other = (node
                    + self.random.random_range(1..self.layout.topology().nodes.max(2)))
                    % self.layout.topology().nodes.max(1);
                let parting = match self.random.random_range(0..3) {
                    0 => Parting::FromAll,
                    _ if other == node => Parting::FromAll,
                    1 => Parting::FromNode(other),
                    _ => Parting::Unheard(other),
                };
                Some(Fault::Partition(node, parting, self.time(STOP_MIN, stop_max)))
            }
            Kind::Stutter => {
                let node = self.one(view)?;
                let count = self.random.random_range(MOMENTS[0]..=MOMENTS[1]);
                let mut moments: Vec<Moment> = (0..count).map(|_| self.moment()).collect();
                let stopped = self.time(self.silence / 2, 3 * self.silence).min(stop_max);
                moments.push(Moment { stopped, goes_on: Duration::ZERO });
                Some(Fault::Stutter(node, moments))
            }
        }
    }

    fn moment(&mut self) -> Moment {
        let Moment { stopped, goes_on } = MOMENT_MAX;
        let [stopped, goes_on] = [stopped, goes_on].map(|most| self.time(MOMENT_MIN, most));
        Moment { stopped, goes_on }
    }

    /// A time between two bounds, uniform in its logarithm.
    fn time(&mut self, least: Duration, most: Duration) -> Duration {
        let (low, high) = (least.as_secs_f64().ln(), most.as_secs_f64().ln());
        let drawn = self.random.random_range(low..=high.max(low + 1e-6)).exp();
        Duration::from_secs_f64(drawn).min(most)
    }

    /// All leaders at once, one time out of three; else one node.
    fn kill(&mut self, view: &View) -> Option<Vec<u16>> {
        let leaders: BTreeSet<u16> = view.leaders.iter().flatten().copied().collect();
        let all = self.target != Target::Followers && self.random.random_bool(1.0 / 3.0);
        if all
            && leaders.len() > 1
            && leaders.is_disjoint(&view.spared)
            && self.bears(view, &leaders)
        {
            return Some(leaders.into_iter().collect());
        }
        self.one(view).map(|node| vec![node])
    }

    /// At least two of the running nodes.
    fn pause(&mut self, view: &View, stop_max: Duration) -> Option<Fault> {
        let run = |node: &u16| !view.missing.contains(node) && !view.spared.contains(node);
        let mut nodes: Vec<u16> = (0..self.layout.topology().nodes).filter(run).collect();
        if nodes.len() < 2 {
            return None;
        }
        nodes.shuffle(&mut self.random);
        nodes.truncate(self.random.random_range(2..=nodes.len()));
        let paused = nodes.into_iter().map(|node| (node, self.time(STOP_MIN, stop_max)));
        Some(Fault::Pause(paused.collect()))
    }

    /// A group with a leader, and a node with a follower of the group. If `missing`, the node may
    /// go missing.
    fn follower(&mut self, view: &View, missing: bool) -> Option<(GroupId, u16)> {
        let group = self.random.random_range(0..self.layout.topology().groups);
        let leader = view.leaders.get(usize::from(group)).copied().flatten()?;
        let nodes = self.layout.topology().replicas_of(GroupId(group));
        let nodes = nodes.map(|replica| self.layout.node_of(replica));
        let may = |node: &u16| {
            *node != leader
                && !view.missing.contains(node)
                && !view.spared.contains(node)
                && (!missing || self.bears(view, &BTreeSet::from([*node])))
        };
        let may: Vec<u16> = nodes.filter(may).collect();
        (!may.is_empty()).then(|| (GroupId(group), may[self.random.random_range(0..may.len())]))
    }

    /// A node that may go missing.
    fn one(&mut self, view: &View) -> Option<u16> {
        let leads = |node: u16| view.leaders.contains(&Some(node));
        let wanted = match self.target {
            Target::Leaders => Some(true),
            Target::Followers => Some(false),
            Target::Any => self.random.random_bool(2.0 / 3.0).then_some(true),
        };
        let may = |node: &u16| {
            !view.missing.contains(node)
                && !view.spared.contains(node)
                && wanted.is_none_or(|wanted| leads(*node) == wanted)
                && self.bears(view, &BTreeSet::from([*node]))
        };
        let may: Vec<u16> = (0..self.layout.topology().nodes).filter(may).collect();
        (!may.is_empty()).then(|| may[self.random.random_range(0..may.len())])
    }

    /// Whether every group still has a quorum without `more`.
    fn bears(&self, view: &View, more: &BTreeSet<u16>) -> bool {
        let gone = |node: &u16| view.missing.contains(node) || more.contains(node);
        (0..self.layout.topology().groups).map(GroupId).all(|group| {
            let replicas = self.layout.topology().replicas_of(group);
            let here = replicas.filter(|replica| !gone(&self.layout.node_of(*replica)));
            here.count() >= self.layout.topology().quorum()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use skein_multicast::config::Topology;
    use skein_protocol::ids::ReplicaId;

    use super::*;

    const SILENCE: Duration = Duration::from_millis(100);
    const FIVE: Topology = Topology { nodes: 5, groups: 3, replicas: 5, engines: 1 };
    const THREE: Topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };

    fn layout(topology: Topology) -> Layout {
        Layout::propose(topology).unwrap()
    }

    fn schedule(topology: Topology, target: Target) -> Schedule {
        Schedule::new(layout(topology), Kind::ALL.to_vec(), target, SILENCE, 1)
    }

    fn hit(fault: &Fault) -> Vec<u16> {
        match fault {
            Fault::Kill(nodes) => nodes.clone(),
            Fault::Pause(paused) => paused.iter().map(|(node, _)| *node).collect(),
            Fault::Stop(node, _)
            | Fault::Partition(node, ..)
            | Fault::Stutter(node, _)
            | Fault::Restart(node)
            | Fault::Transfer(node, _)
            | Fault::Evict(node, _) => vec![*node],
            Fault::ClientKill => Vec::new(),
        }
    }

    /// Whether the nodes hit count as missing towards f.
    fn takes_away(fault: &Fault) -> bool {
        !matches!(fault, Fault::Pause(_) | Fault::Transfer(..))
    }

    #[test]
    fn no_group_ever_misses_more_than_f() {
        for topology in [THREE, FIVE] {
            let mut schedule = schedule(topology, Target::Any);
            let mut view = View { leaders: vec![Some(0), Some(1), Some(2)], ..View::default() };
            let mut most = 0;
            for round in 0..2_000 {
                let Some(fault) = schedule.next(&view, STOP_MAX) else {
                    assert!(!view.missing.is_empty(), "something can be borne by a whole cluster");
                    view.missing.pop_first();
                    continue;
                };
                let hit = if takes_away(&fault) { hit(&fault) } else { Vec::new() };
                for node in hit {
                    assert!(view.missing.insert(node), "node {node} is missing already");
                }
                most = most.max(view.missing.len());
                assert!(view.missing.len() <= usize::from(topology.replicas / 2), "{fault:?}");
                if round % 5 == 0 {
                    view.missing.pop_last();
                }
            }
            assert_eq!(
                most,
                usize::from(topology.replicas / 2),
                "as many as can be borne are tried"
            );
        }
    }

    #[test]
    fn targets_are_hit_and_all_leaders_at_once_now_and_then() {
        let view = View { leaders: vec![Some(0), Some(1), Some(1)], ..View::default() };
        let mut both = 0;
        for (target, nodes) in [(Target::Leaders, 0..2), (Target::Followers, 2..5)] {
            let kinds = vec![Kind::Kill, Kind::Stop, Kind::Stutter, Kind::Restart];
            let mut schedule = Schedule::new(layout(FIVE), kinds, target, SILENCE, 1);
            for _ in 0..500 {
                let fault = schedule.next(&view, STOP_MAX).unwrap();
                let hit = hit(&fault);
                assert!(hit.iter().all(|node| nodes.contains(node)), "{target:?}: {fault:?}");
                both += usize::from(hit.len() == 2);
            }
        }
        assert!(both > 10, "{both}");
    }

    #[test]
    fn who_is_spared_is_not_hit() {
        let mut schedule = schedule(FIVE, Target::Any);
        let leaders = vec![Some(0), Some(1), Some(1)];
        let spared = BTreeSet::from([1, 3]);
        let view = View { leaders, spared: spared.clone(), ..View::default() };
        for _ in 0..500 {
            let hit = schedule.next(&view, STOP_MAX).map(|fault| hit(&fault)).unwrap_or_default();
            assert!(hit.iter().all(|node| !spared.contains(node)), "{hit:?}");
        }
    }

    #[test]
    fn kinds_that_can_seldom_be_borne_come_as_often_as_others() {
        let mut schedule = schedule(THREE, Target::Any);
        let whole = View { leaders: vec![Some(0), Some(1)], ..View::default() };
        let wounded = View { missing: [2].into(), ..whole.clone() };
        let mut counts = HashMap::<_, u32>::new();
        // One node is missing nine times out of ten.
        for round in 0..20_000 {
            let view = if round % 10 == 0 { &whole } else { &wounded };
            if let Some(fault) = schedule.next(view, STOP_MAX) {
                *counts.entry(std::mem::discriminant(&fault)).or_default() += 1;
            }
        }
        let (most, least) = (counts.values().max().unwrap(), counts.values().min().unwrap());
        assert!(counts.len() == Kind::ALL.len() && most < &(2 * least), "{counts:?}");
    }

    #[test]
    fn a_kind_that_is_never_possible_stops_no_other() {
        // Every node leads.
        let view = View { leaders: vec![Some(0), Some(1), Some(2)], ..View::default() };
        let topology = Topology { groups: 3, ..THREE };
        let kinds = vec![Kind::Stop, Kind::Transfer];
        let mut schedule = Schedule::new(layout(topology), kinds, Target::Followers, SILENCE, 1);
        let done = (0..100).filter_map(|_| schedule.next(&view, STOP_MAX)).count();
        assert!((20..80).contains(&done), "{done} transfers");
    }

    #[test]
    fn pauses_stop_two_nodes_or_all_of_them() {
        let mut schedule = Schedule::new(layout(FIVE), vec![Kind::Pause], Target::Any, SILENCE, 1);
        let view = View { leaders: vec![Some(0); 3], missing: [4].into(), ..View::default() };
        let mut counts = BTreeSet::new();
        for _ in 0..200 {
            let fault = schedule.next(&view, STOP_MAX).unwrap();
            let nodes: BTreeSet<u16> = hit(&fault).into_iter().collect();
            assert_eq!(nodes.len(), hit(&fault).len(), "nobody twice: {fault:?}");
            assert!(!nodes.contains(&4), "who is missing is left alone");
            counts.insert(nodes.len());
        }
        assert_eq!(counts, BTreeSet::from([2, 3, 4]));
    }

    #[test]
    fn followers_of_the_group_are_told_to_lead_and_are_evicted() {
        // Each group has three replicas on seven nodes; the second group has no leader.
        let seven = layout(Topology { nodes: 7, groups: 3, replicas: 3, engines: 1 });
        let kinds = vec![Kind::Transfer, Kind::Evict];
        let mut schedule = Schedule::new(seven.clone(), kinds, Target::Any, SILENCE, 1);
        let leader = |group| seven.node_of(ReplicaId::new(GroupId(group), 0));
        let leaders = vec![Some(leader(0)), None, Some(leader(2))];
        let view = View { leaders: leaders.clone(), ..View::default() };
        let (mut led, mut evicted) = (0, 0);
        for _ in 0..300 {
            let (node, group) = match schedule.next(&view, STOP_MAX) {
                Some(Fault::Transfer(node, group)) => {
                    led += 1;
                    (node, group)
                }
                Some(Fault::Evict(node, group)) => {
                    evicted += 1;
                    (node, group)
                }
                other => {
                    assert_eq!(other, None);
                    continue;
                }
            };
            let at = usize::from(group.0);
            assert!(leaders[at].is_some_and(|leader| leader != node), "{group:?} n{node}");
            assert!(seven.replica_on(node, group).is_some(), "{group:?} n{node}");
        }
        assert!(led > 50 && evicted > 50, "{led} {evicted}");
    }

    #[test]
    fn a_node_is_stopped_for_long_and_for_short_and_never_longer_than_allowed() {
        let mut schedule = Schedule::new(layout(THREE), vec![Kind::Stop], Target::Any, SILENCE, 1);
        let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
        let mut times = Vec::new();
        for _ in 0..300 {
            let Some(Fault::Stop(_, time)) = schedule.next(&view, STOP_MAX) else { continue };
            assert!((STOP_MIN..=STOP_MAX).contains(&time), "{time:?}");
            times.push(time);
        }
        assert!(times.iter().any(|time| *time > STOP_MAX / 3));
        assert!(times.iter().any(|time| *time < STOP_MAX / 100));
    }

    #[test]
    fn a_node_is_parted_from_all_or_from_another_and_both_ways_or_one() {
        let mut schedule =
            Schedule::new(layout(THREE), vec![Kind::Partition], Target::Any, SILENCE, 1);
        let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
        let mut counts = [0; 3];
        for _ in 0..300 {
            let Some(Fault::Partition(node, parting, time)) = schedule.next(&view, STOP_MAX) else {
                continue;
            };
            assert!((STOP_MIN..=STOP_MAX).contains(&time), "{time:?}");
            counts[match parting {
                Parting::FromAll => 0,
                Parting::FromNode(other) => {
                    assert_ne!(other, node);
                    1
                }
                Parting::Unheard(other) => {
                    assert_ne!(other, node);
                    2
                }
            }] += 1;
        }
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
    }

    #[test]
    fn a_node_stutters_for_moments_and_once_for_about_as_long_as_it_takes_to_be_suspected() {
        let mut schedule =
            Schedule::new(layout(THREE), vec![Kind::Stutter], Target::Any, SILENCE, 1);
        let view = View { leaders: vec![Some(0), Some(1)], ..View::default() };
        let (mut moments, mut suspected) = (0, 0);
        for _ in 0..300 {
            let Some(Fault::Stutter(_, mut all)) = schedule.next(&view, STOP_MAX) else { continue };
            let last = all.pop().expect("it stutters once at least");
            assert!((SILENCE / 2..=3 * SILENCE).contains(&last.stopped), "{last:?}");
            assert!(
                all.iter().all(|one| one.stopped <= MOMENT_MAX.stopped && one.stopped < SILENCE)
            );
            moments += all.len();
            suspected += usize::from(last.stopped > SILENCE);
        }
        assert!(moments > 2_000 && (50..250).contains(&suspected), "{moments} {suspected}");
    }
}
