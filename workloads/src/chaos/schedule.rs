//! The next fault: drawn from the seed, among those that a cluster must tolerate.
//!
//! **Invariant (at most f).** A killed or evicted replica lacks its state until it is a follower
//! again. No group ever has more than f replicas that lack their state or are stopped: with more it
//! would rightly stop serving, or be lost. Pauses and losses of power are the exceptions: they hit any
//! number of nodes at once, but no state is lost, so groups stop serving and lose nothing.

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
    /// SIGKILL to all nodes in the same instant, which return with what their disks kept.
    Power,
    /// SIGKILL to a node, which returns with an empty disk.
    DiskLoss,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Kill,
        Self::Stop,
        Self::Stutter,
        Self::Pause,
        Self::Restart,
        Self::Transfer,
        Self::Evict,
        Self::ClientKill,
        Self::Partition,
        Self::Power,
        Self::DiskLoss,
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
            Self::Power => "power",
            Self::DiskLoss => "disk-loss",
        }
    }

    /// Whether it takes a cluster that keeps its data on disk.
    pub const fn is_of_disks(self) -> bool {
        matches!(self, Self::Power | Self::DiskLoss)
    }

    /// Whether it kills processes.
    pub const fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::ClientKill | Self::Power | Self::DiskLoss)
    }

    /// Whether groups of fewer than three replicas would not survive it.
    pub const fn takes_three_replicas(self) -> bool {
        !matches!(self, Self::ClientKill | Self::Power)
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
    Power(Outage),
    /// Kill a node and remove its data.
    DiskLoss(u16),
}

/// A loss of power of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub lasts: Duration,
    /// The nodes in the order in which they start, each with the time since the one before.
    pub starts: Vec<(u16, Duration)>,
    /// A node whose data is lost meanwhile.
    pub loses: Option<u16>,
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
    /// Nodes that have lost their data, and are missing since. Another loss may hit a group while it has
    /// only what the others hold.
    pub without_data: BTreeSet<u16>,
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
    /// Whether the next loss of power does not wait until the nodes are well.
    at_once: bool,
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
/// Bounds of the time without power, and of the time between the starts of two nodes.
const OUTAGE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(2)];
const STARTS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];
/// The last node is later by this, one time out of eight: longer than a quorum waits for it.
const LATE: Duration = Duration::from_secs(5);

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
        Self { layout, kinds, target, silence, random, drawn: None, at_once: false }
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
            self.at_once = self.kinds.contains(&Kind::Power) && self.random.random_bool(0.25);
        }
        fault
    }

    fn of_kind(&mut self, kind: Kind, view: &View, stop_max: Duration) -> Option<Fault> {
        match kind {
            // It takes a cluster that is there.
            Kind::ClientKill => {
                let nodes = usize::from(self.layout.topology().nodes);
                (view.missing.len() < nodes).then_some(Fault::ClientKill)
            }
            Kind::Power => self.outage(view).map(Fault::Power),
            Kind::DiskLoss => self.one(view).map(Fault::DiskLoss),
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

    /// A loss of power: one time out of four at once, even while nodes return from the last one.
    fn outage(&mut self, view: &View) -> Option<Outage> {
        let well = view.missing.is_empty() && view.spared.is_empty();
        if !view.without_data.is_empty() || !(well || self.at_once) {
            return None;
        }
        let mut nodes: Vec<u16> = (0..self.layout.topology().nodes).collect();
        nodes.shuffle(&mut self.random);
        let lasts = self.time(OUTAGE[0], OUTAGE[1]);
        let mut starts = Vec::new();
        for node in nodes {
            starts.push((node, self.time(STARTS[0], STARTS[1])));
        }
        if let Some((_, after)) = starts.last_mut().filter(|_| self.random.random_bool(0.125)) {
            *after += LATE;
        }
        let may_lose = self.kinds.contains(&Kind::DiskLoss) && well;
        let loses = if may_lose && self.random.random_bool(0.25) { self.one(view) } else { None };
        Some(Outage { lasts, starts, loses })
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
mod tests;
