//! The kinds of scenarios: the purpose of each, and what is drawn for it.

use super::branches::Branches;
use super::faults::Mix;
use super::ordering::Ordering;
use super::surroundings::Surroundings;
use crate::session_transport::Of;

/// A kind of scenario: what is drawn from a seed, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    /// A short description of its purpose.
    pub about: &'static str,
    pub ordering: Ordering,
    /// Minimum number of faults, and the range above it.
    pub(super) faults: (u64, u64),
    pub(super) mix: Mix,
    /// Minimum number of messages, and the range above it.
    pub(super) messages: (u64, u64),
    /// One in so many scenarios has sixteen groups.
    pub(super) large_one_in: u64,
    /// The run continues until every ring and log was lapped twice.
    pub(super) laps: bool,
    /// Some scenarios have groups of one replica.
    pub(super) single: bool,
    /// The leader of a group dies or is suspended for long, whatever else happens.
    pub(super) leader_falls: bool,
    /// A group loses more memories than it tolerates.
    pub(super) loses: bool,
    /// Groups are large, faults hit leaders, and events in flight land while a replica grants its log.
    pub(super) elections: bool,
    /// Many sessions do one thing after the other, over several groups of which some are slow.
    pub(super) overlaps: bool,
    /// Replicas are held up for long, and payloads are large.
    pub(super) lags: bool,
    /// A minority of nodes is away until everything was sent.
    pub(super) away: bool,
    /// Connections end, those of clients too, which implies nothing about the processes behind them.
    pub(super) network: bool,
    /// The logs of a group diverge, and processes are sometimes held up between reads of memory.
    pub(super) forks: bool,
    /// The kind of unordered reads that sessions make.
    pub(super) reads: Option<Of>,
    /// Replicas that received a state lead as soon as they are admitted.
    pub(super) learners: bool,
    /// A learner is suspended for the rest of the load.
    pub(super) stalls: bool,
    /// A follower receives from its own leader, and from no other.
    pub(super) severed: bool,
    /// A leader receives messages from other groups' leaders alone, while a follower lags.
    pub(super) relayed: bool,
    /// Two processes send different messages under the same names.
    pub(super) twins: bool,
    /// A leader dies when no quorum is left without replicas that lag by a whole log.
    pub(super) bare_quorum: bool,
    /// The environment of the processes is difficult.
    pub(super) surroundings: Option<Surroundings>,
    /// Groups fail that have these places in the tree.
    pub(super) branches: Option<Branches>,
    /// Replicas say only what their disks hold, and the power of all fails at once.
    pub(super) power_fails: bool,
    /// Replicas say only what their disks hold, and disks are lost.
    pub(super) disks_fail: bool,
}

/// No faults.
const QUIET: Mix = Mix {
    crashes: 0,
    pauses: 0,
    slows: 0,
    partitions: 0,
    flaps: 0,
    skews: 0,
    client_crashes: 0,
    client_flaps: 0,
    resends: 0,
    transfers: 0,
    evictions: 0,
    deafs: 0,
};

/// The defaults of a profile.
const PLAIN: Profile = Profile {
    name: "",
    about: "",
    ordering: Ordering::DEFAULT,
    faults: (4, 12),
    mix: QUIET,
    messages: (100, 200),
    large_one_in: 500,
    laps: false,
    single: false,
    leader_falls: false,
    loses: false,
    elections: false,
    lags: false,
    away: false,
    overlaps: false,
    network: false,
    forks: false,
    reads: None,
    learners: false,
    stalls: false,
    severed: false,
    relayed: false,
    twins: false,
    bare_quorum: false,
    surroundings: None,
    branches: None,
    power_fails: false,
    disks_fail: false,
};

impl Profile {
    /// Further profiles, for an ordering along a tree alone.
    pub const ALONG_TREES: [Self; 2] = [
        Self {
            name: "inner-groups",
            about: "leaders of groups that pass messages on fail, one after the other",
            faults: (0, 4),
            mix: Mix { crashes: 1, pauses: 1, slows: 2, flaps: 2, client_crashes: 1, ..QUIET },
            messages: (80, 160),
            branches: Some(Branches::Inner),
            ..PLAIN
        },
        Self {
            name: "dead-leaf",
            about: "a group that passes nothing on has no quorum for most of the load",
            faults: (0, 3),
            mix: Mix { slows: 2, flaps: 1, client_crashes: 1, resends: 1, ..QUIET },
            messages: (200, 200),
            branches: Some(Branches::Leaf),
            ..PLAIN
        },
    ];

    /// The profiles for any ordering; the first is run if none is named.
    pub const ALL: [Self; 34] = [
        Self {
            name: "default",
            about: "every kind of fault, and a leader that fails in every seed",
            faults: (1, 7),
            mix: Mix {
                crashes: 6,
                pauses: 4,
                slows: 2,
                partitions: 4,
                flaps: 4,
                skews: 2,
                client_crashes: 3,
                resends: 2,
                ..QUIET
            },
            messages: (80, 160),
            large_one_in: 1000,
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "calm",
            about: "no faults, only the fabric's own delays and reordering",
            faults: (0, 1),
            large_one_in: 250,
            single: true,
            ..PLAIN
        },
        Self {
            name: "crashes",
            about: "nodes die and return without their state, repeatedly",
            mix: Mix { crashes: 10, pauses: 2, flaps: 1, ..QUIET },
            messages: (150, 250),
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "partitions",
            about: "connections break, and nodes are cut off, slow or suspended; none dies",
            mix: Mix { pauses: 4, slows: 2, partitions: 8, flaps: 6, skews: 2, ..QUIET },
            ..PLAIN
        },
        Self {
            name: "clients",
            about: "clients die between any two writes, and send everything twice",
            faults: (3, 8),
            mix: Mix { client_crashes: 8, resends: 4, crashes: 1, ..QUIET },
            single: true,
            ..PLAIN
        },
        Self {
            name: "laps",
            about: "runs so long that every ring and log wraps around twice",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 1, partitions: 2, client_crashes: 2, ..QUIET },
            messages: (200, 200),
            large_one_in: 250,
            laps: true,
            single: true,
            ..PLAIN
        },
        Self {
            name: "losses",
            about: "a group loses the state of more replicas than it tolerates, and is recreated",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 2, flaps: 1, resends: 2, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            single: true,
            loses: true,
            ..PLAIN
        },
        Self {
            name: "elections",
            about: "one leader fails after the other, in the middle of its writes",
            faults: (6, 12),
            mix: Mix {
                crashes: 6,
                pauses: 6,
                slows: 3,
                partitions: 8,
                flaps: 4,
                transfers: 2,
                ..QUIET
            },
            messages: (60, 80),
            large_one_in: 1000,
            leader_falls: true,
            elections: true,
            ..PLAIN
        },
        Self {
            name: "overlaps",
            about: "messages that overlap in chains of groups, and sessions that wait for each answer",
            faults: (1, 5),
            mix: Mix { crashes: 1, pauses: 4, slows: 8, partitions: 2, flaps: 2, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            overlaps: true,
            ..PLAIN
        },
        Self {
            name: "slow-replicas",
            about: "replicas lag by more than a log, are evicted, and return",
            faults: (6, 12),
            mix: Mix {
                crashes: 2,
                pauses: 6,
                slows: 3,
                partitions: 6,
                flaps: 2,
                client_crashes: 4,
                transfers: 2,
                evictions: 6,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            lags: true,
            ..PLAIN
        },
        Self {
            name: "absent",
            about: "as many replicas as a group tolerates are absent during the whole load",
            faults: (0, 4),
            mix: Mix { flaps: 2, client_crashes: 2, resends: 2, ..QUIET },
            messages: (250, 150),
            large_one_in: 1000,
            away: true,
            ..PLAIN
        },
        Self {
            name: "networks",
            about: "connections end, clients' too, and do not show whether the process has ended",
            faults: (6, 12),
            mix: Mix { crashes: 3, flaps: 4, client_flaps: 10, client_crashes: 3, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            network: true,
            ..PLAIN
        },
        Self {
            name: "divergent-logs",
            about: "leaders are cut off in the middle of their first writes, and return soon",
            faults: (0, 4),
            mix: Mix { crashes: 2, pauses: 2, slows: 4, transfers: 4, deafs: 4, ..QUIET },
            messages: (60, 80),
            large_one_in: 1000,
            leader_falls: true,
            elections: true,
            forks: true,
            ..PLAIN
        },
        Self {
            name: "unreachable-sessions",
            about: "sessions do not reach some replicas, which are evicted and return",
            faults: (6, 12),
            mix: Mix {
                pauses: 1,
                slows: 2,
                partitions: 1,
                client_crashes: 1,
                transfers: 2,
                evictions: 8,
                deafs: 8,
                ..QUIET
            },
            messages: (100, 100),
            large_one_in: 1000,
            lags: true,
            ..PLAIN
        },
        Self {
            name: "leases",
            about: "unordered reads at leaders that are suspended, are cut off, or have wrong clocks",
            faults: (1, 5),
            mix: Mix {
                crashes: 2,
                pauses: 4,
                slows: 3,
                partitions: 4,
                flaps: 2,
                transfers: 2,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            leader_falls: true,
            reads: Some(Of::LeaseHolder),
            ..PLAIN
        },
        Self {
            name: "confirmed",
            about: "unordered reads at leaders that have a successor and have not noticed",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 3,
                slows: 3,
                partitions: 4,
                flaps: 2,
                transfers: 2,
                ..QUIET
            },
            messages: (150, 150),
            large_one_in: 1000,
            single: true,
            leader_falls: true,
            reads: Some(Of::Leader),
            ..PLAIN
        },
        Self {
            name: "learners",
            about: "replicas that have received the state lead as soon as they are admitted",
            faults: (1, 5),
            mix: Mix {
                crashes: 2,
                pauses: 3,
                slows: 4,
                flaps: 1,
                client_crashes: 2,
                resends: 2,
                evictions: 2,
                deafs: 2,
                ..QUIET
            },
            messages: (120, 120),
            large_one_in: 1000,
            learners: true,
            ..PLAIN
        },
        Self {
            name: "group-loss-and-client-crashes",
            about: "a group is lost and recreated while clients die",
            faults: (1, 4),
            mix: Mix { crashes: 2, pauses: 2, flaps: 1, client_crashes: 6, resends: 1, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            single: true,
            loses: true,
            ..PLAIN
        },
        Self {
            name: "large",
            about: "sixteen groups",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 2,
                slows: 1,
                partitions: 2,
                flaps: 2,
                skews: 1,
                client_crashes: 1,
                resends: 1,
                ..QUIET
            },
            messages: (200, 200),
            large_one_in: 1,
            leader_falls: true,
            ..PLAIN
        },
        Self {
            name: "stalls",
            about: "a learner is suspended for the rest of the load",
            faults: (0, 4),
            mix: Mix { flaps: 2, slows: 1, client_crashes: 2, resends: 2, ..QUIET },
            messages: (250, 150),
            large_one_in: 1000,
            stalls: true,
            ..PLAIN
        },
        Self {
            name: "severed",
            about: "a follower receives from its own leader only, during the whole load",
            faults: (0, 3),
            mix: Mix { client_crashes: 2, resends: 2, evictions: 1, ..QUIET },
            messages: (1500, 1500),
            large_one_in: 1000,
            severed: true,
            ..PLAIN
        },
        Self {
            name: "relayed",
            about: "a leader receives large messages from other groups' leaders only, while a follower lags",
            faults: (0, 3),
            mix: Mix { pauses: 1, client_crashes: 2, resends: 2, evictions: 1, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            relayed: true,
            ..PLAIN
        },
        Self {
            name: "twins",
            about: "two processes send different messages under the same names",
            faults: (1, 6),
            mix: Mix {
                crashes: 3,
                pauses: 2,
                slows: 2,
                partitions: 3,
                deafs: 2,
                flaps: 2,
                resends: 3,
                transfers: 2,
                ..QUIET
            },
            messages: (80, 120),
            twins: true,
            ..PLAIN
        },
        Self {
            name: "uneven",
            about: "up to twice as many nodes as replicas, some of which host more than others",
            faults: (1, 6),
            mix: Mix {
                crashes: 4,
                pauses: 2,
                partitions: 2,
                flaps: 2,
                client_crashes: 1,
                transfers: 2,
                evictions: 1,
                ..QUIET
            },
            messages: (80, 120),
            large_one_in: 1000,
            leader_falls: true,
            surroundings: Some(Surroundings::Uneven),
            ..PLAIN
        },
        Self {
            name: "clocks",
            about: "clocks stop, jump, and resume",
            faults: (2, 6),
            mix: Mix { pauses: 1, flaps: 2, client_flaps: 6, client_crashes: 1, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            network: true,
            surroundings: Some(Surroundings::Clocks),
            ..PLAIN
        },
        Self {
            name: "scarce",
            about: "nodes get no memory while they need some",
            faults: (2, 6),
            mix: Mix { crashes: 2, pauses: 1, flaps: 3, client_crashes: 3, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            surroundings: Some(Surroundings::Scarce),
            ..PLAIN
        },
        Self {
            name: "starts",
            about: "starts fail, and nodes return with a start count that is out of date",
            faults: (0, 4),
            mix: Mix { pauses: 2, partitions: 2, flaps: 2, crashes: 1, ..QUIET },
            messages: (100, 100),
            large_one_in: 1000,
            surroundings: Some(Surroundings::Starts),
            ..PLAIN
        },
        Self {
            name: "stops",
            about: "processes are stopped in the middle of a turn",
            faults: (0, 4),
            mix: Mix { partitions: 3, flaps: 1, transfers: 2, ..QUIET },
            messages: (150, 150),
            large_one_in: 1000,
            reads: Some(Of::LeaseHolder),
            surroundings: Some(Surroundings::Stops),
            ..PLAIN
        },
        Self {
            name: "aged",
            about: "groups that have held thousands of elections",
            faults: (2, 6),
            mix: Mix { crashes: 3, pauses: 3, partitions: 4, transfers: 3, ..QUIET },
            messages: (80, 120),
            large_one_in: 1000,
            leader_falls: true,
            surroundings: Some(Surroundings::Aged),
            ..PLAIN
        },
        Self {
            name: "remains",
            about: "others write to the memory of dead processes until they notice, and many die at once",
            faults: (0, 4),
            mix: Mix { crashes: 3, pauses: 2, slows: 3, resends: 2, transfers: 2, ..QUIET },
            messages: (80, 160),
            large_one_in: 1000,
            loses: true,
            surroundings: Some(Surroundings::Remains),
            ..PLAIN
        },
        Self {
            name: "bare-quorums",
            about: "a leader dies when no quorum is left without replicas that lag by a whole log",
            faults: (0, 3),
            mix: Mix { flaps: 1, client_crashes: 2, resends: 2, ..QUIET },
            messages: (250, 150),
            large_one_in: 1000,
            bare_quorum: true,
            ..PLAIN
        },
        Self {
            name: "power",
            about: "all nodes lose their power at once, and begin again with what their disks hold",
            faults: (1, 5),
            mix: Mix {
                crashes: 6,
                pauses: 2,
                slows: 1,
                partitions: 2,
                flaps: 2,
                client_crashes: 1,
                resends: 2,
                transfers: 1,
                ..QUIET
            },
            messages: (80, 160),
            large_one_in: 1000,
            single: true,
            power_fails: true,
            ..PLAIN
        },
        Self {
            name: "disks",
            about: "nodes lose their disks, one after the other, and join again",
            faults: (1, 5),
            mix: Mix {
                crashes: 5,
                pauses: 3,
                slows: 2,
                partitions: 2,
                flaps: 2,
                resends: 2,
                transfers: 2,
                evictions: 2,
                ..QUIET
            },
            messages: (80, 160),
            large_one_in: 1000,
            leader_falls: true,
            disks_fail: true,
            ..PLAIN
        },
        Self {
            name: "mixed",
            about: "disks are lost, power fails, replicas lag and are evicted",
            faults: (4, 8),
            mix: Mix {
                crashes: 5,
                pauses: 4,
                slows: 2,
                partitions: 4,
                flaps: 2,
                client_crashes: 2,
                resends: 2,
                transfers: 3,
                evictions: 4,
                deafs: 2,
                ..QUIET
            },
            messages: (100, 150),
            large_one_in: 1000,
            lags: true,
            power_fails: true,
            disks_fail: true,
            ..PLAIN
        },
    ];

    /// All profiles.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::ALONG_TREES)
    }

    /// The same profile, ordered by another protocol; `None` if that [lacks](Ordering::lacks_for) what it needs.
    pub fn ordered_by(self, ordering: Ordering) -> Option<Self> {
        let lacks = ordering.lacks_for(&self);
        lacks.is_none().then_some(Self { ordering, ..self })
    }

    /// Returns whether its scenarios need several groups.
    pub(super) fn is_of_several_groups(&self) -> bool {
        let uneven = self.surroundings == Some(Surroundings::Uneven);
        self.overlaps || self.severed || self.relayed || uneven
    }

    /// The reason why an ordering that knows no tree cannot run its scenarios, if there is one.
    pub(super) fn without_a_tree(&self) -> Option<&'static str> {
        self.branches.map(|_| "its scenarios are of groups along a tree")
    }

    /// Former names of profiles, which are accepted for one version.
    const FORMER_NAMES: [(&str, &str); 4] = [
        ("laggards", "slow-replicas"),
        ("forks", "divergent-logs"),
        ("deaf", "unreachable-sessions"),
        ("wrecks", "group-loss-and-client-crashes"),
    ];

    /// The profile of that name, or of that former name.
    pub fn named(name: &str) -> Option<Self> {
        let former = Self::FORMER_NAMES.iter().find(|(former, _)| *former == name);
        let name = former.map_or(name, |(_, name)| name);
        Self::every().find(|profile| profile.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_by_its_former_name() {
        for (former, name) in Profile::FORMER_NAMES {
            assert_eq!(Profile::named(former).map(|profile| profile.name), Some(name));
        }
        assert!(Profile::named("no such profile").is_none());
    }
}
