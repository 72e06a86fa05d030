//! Which fault comes next: drawn from the seed, among those that a cluster must bear.
//!
//! **Invariant (never more than f).** What is killed loses its memory until its replicas are
//! followers again. No group ever misses more than f of its replicas at a time, for want of memory or
//! because they are stopped: beyond that it would rightly stop, or be lost.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_multicast::config::Topology;
use skein_protocol::ids::GroupId;

/// What can be done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL to nodes, which come back without their memory.
    Kill,
    /// SIGSTOP to a node, and SIGCONT after a while.
    Stop,
    /// The same for moments, again and again: so that it is stopped at one place and at another of
    /// what it does. The last time is about as long as it takes to be suspected.
    Stutter,
    /// A node is told to end, and comes back without its memory.
    Restart,
    /// SIGKILL to a client in the middle of transactions.
    ClientKill,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Kill, Self::Stop, Self::Stutter, Self::Restart, Self::ClientKill];

    /// Its name, on the command line and in histories.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Stutter => "stutter",
            Self::Restart => "restart",
            Self::ClientKill => "client-kill",
        }
    }

    /// The kind called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Whom faults prefer.
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
    /// Stop a node, for so long.
    Stop(u16, Duration),
    /// Stop a node and let it go on, for so long each, again and again.
    Stutter(u16, Vec<Moment>),
    /// Tell a node to end, and start it again.
    Restart(u16),
    /// Kill a client.
    ClientKill,
}

/// A node stands still, and then goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// So long does it stand still.
    pub stopped: Duration,
    /// And goes on for so long at least.
    pub goes_on: Duration,
}

/// The cluster as it is.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The node that leads each group.
    pub leaders: Vec<Option<u16>>,
    /// Nodes that are dead, stopped, or not all of whose replicas have their memory.
    pub missing: BTreeSet<u16>,
    /// Nodes that nothing is to be done to for the moment.
    pub spared: BTreeSet<u16>,
}

/// Draws faults.
#[derive(Clone, Debug)]
pub struct Schedule {
    topology: Topology,
    kinds: Vec<Kind>,
    target: Target,
    /// How long a node is silent until it is suspected.
    silence: Duration,
    random: SmallRng,
}

/// The longest that a node is stopped.
pub const STOP_MAX: Duration = Duration::from_secs(10);
/// The shortest.
const STOP_MIN: Duration = Duration::from_millis(10);
/// How often a node stutters, and the longest moments but for the last one.
const MOMENTS: [usize; 2] = [4, 24];
const MOMENT_MAX: Moment =
    Moment { stopped: Duration::from_millis(20), goes_on: Duration::from_millis(10) };
/// The shortest.
const MOMENT_MIN: Duration = Duration::from_micros(200);
/// Between two faults.
const GAP: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

impl Schedule {
    /// Faults of these `kinds`, at least one, for a cluster of this shape, whose nodes suspect who is
    /// silent for `silence`.
    pub fn new(
        topology: Topology,
        kinds: Vec<Kind>,
        target: Target,
        silence: Duration,
        seed: u64,
    ) -> Self {
        assert!(!kinds.is_empty(), "without faults there is nothing to draw");
        let random = SmallRng::seed_from_u64(seed ^ 0x000c_4a05);
        Self { topology, kinds, target, silence, random }
    }

    /// How long to wait before the next.
    pub fn gap(&mut self) -> Duration {
        self.random.random_range(GAP[0]..=GAP[1])
    }

    /// The next fault, or none that could be borne now.
    pub fn next(&mut self, view: &View, stop_max: Duration) -> Option<Fault> {
        let kind = self.kinds[self.random.random_range(0..self.kinds.len())];
        match kind {
            Kind::ClientKill => Some(Fault::ClientKill),
            Kind::Kill => self.kill(view).map(Fault::Kill),
            Kind::Restart => self.one(view).map(Fault::Restart),
            Kind::Stop => {
                let node = self.one(view)?;
                Some(Fault::Stop(node, self.time(STOP_MIN, stop_max)))
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

    /// A time between two: as often a tenth of one as the one itself.
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
        let may: Vec<u16> = (0..self.topology.nodes).filter(may).collect();
        (!may.is_empty()).then(|| may[self.random.random_range(0..may.len())])
    }

    /// Whether every group still has its quorum without `more`.
    fn bears(&self, view: &View, more: &BTreeSet<u16>) -> bool {
        let gone = |node: &u16| view.missing.contains(node) || more.contains(node);
        (0..self.topology.groups).map(GroupId).all(|group| {
            let replicas = self.topology.replicas_of(group);
            let here = replicas.filter(|replica| !gone(&self.topology.node_of(*replica)));
            here.count() >= self.topology.quorum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_millis(100);
    const FIVE: Topology = Topology { nodes: 5, groups: 3, replicas: 5, engines: 1 };
    const THREE: Topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };

    fn schedule(topology: Topology, target: Target) -> Schedule {
        Schedule::new(topology, Kind::ALL.to_vec(), target, SILENCE, 1)
    }

    fn hit(fault: &Fault) -> Vec<u16> {
        match fault {
            Fault::Kill(nodes) => nodes.clone(),
            Fault::Stop(node, _) | Fault::Stutter(node, _) | Fault::Restart(node) => vec![*node],
            Fault::ClientKill => Vec::new(),
        }
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
                for node in hit(&fault) {
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
            let mut schedule = schedule(FIVE, target);
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
    fn a_node_is_stopped_for_long_and_for_short_and_never_longer_than_allowed() {
        let mut schedule = Schedule::new(THREE, vec![Kind::Stop], Target::Any, SILENCE, 1);
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
    fn a_node_stutters_for_moments_and_once_for_about_as_long_as_it_takes_to_be_suspected() {
        let mut schedule = Schedule::new(THREE, vec![Kind::Stutter], Target::Any, SILENCE, 1);
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
