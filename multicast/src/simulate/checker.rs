//! The onlooker: it keeps the history, and checks at each delivery what the delivery depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::sim::SimFabric;
use skein_protocol::group::Role;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::properties::{
    About, Held, History, Touch, Violation, check_memory, check_quorum,
};
use skein_protocol::rank::Rank;
use skein_protocol::step::Deliver;
use skein_protocol::tram::tree::Tree;

use super::Driven;
use super::disks::Disks;
use super::machine::Machine;
use super::rules::{Rules, check_elections, check_lease};
use crate::engine::Engine;
use crate::replica::Replica;
use crate::replica_links::Note;

pub(super) type SimEngine<O> = Engine<SimFabric, Machine, O>;

/// The memory of an incarnation that is over: its log, the index up to which it was read, and the index up to
/// which it was whole.
struct Fallen {
    incarnation: u32,
    log: Held,
    read: u64,
    whole: u64,
}

/// Everything that was seen so far.
pub(super) struct Onlooker<O: Driven> {
    pub(super) history: History,
    /// The tree along which messages are ordered, if they are.
    tree: Option<Tree>,
    /// The log of each replica in its present incarnation; for a slot whose incarnation is not admitted, the
    /// log of its last admitted incarnation, up to its end.
    logs: BTreeMap<ReplicaId, Held>,
    fallen: BTreeMap<ReplicaId, Fallen>,
    /// Dead engines whose memory is still written to, and counts in some group.
    remains: Vec<SimEngine<O>>,
    /// Groups that may be lost: whether their memory counts is known once they continue, or report that they are lost.
    pub(super) endangered: GroupSet,
    /// Groups in which a disk was put back as it was earlier: what is committed there may be held by f replicas alone.
    put_back: GroupSet,
    /// The last leader of each group with its first entry committed, and its incarnation.
    leaders: BTreeMap<GroupId, (ReplicaId, u32)>,
    rules: Rules,
    pub(super) leader_changes: u64,
}

impl<O: Driven> Onlooker<O> {
    /// Nothing was seen, in a cluster with this tree, if there is one.
    pub(super) fn new(tree: Option<&Tree>) -> Self {
        Self {
            history: tree.map_or_else(History::default, History::along),
            tree: tree.copied(),
            logs: BTreeMap::new(),
            fallen: BTreeMap::new(),
            remains: Vec::new(),
            endangered: GroupSet::EMPTY,
            put_back: GroupSet::EMPTY,
            leaders: BTreeMap::new(),
            rules: Rules::new(tree.is_some()),
            leader_changes: 0,
        }
    }
}

impl<O: Driven> Onlooker<O> {
    /// A replica begins an incarnation.
    pub(super) fn begins(&mut self, id: ReplicaId) -> Result<(), Violation> {
        self.logs.insert(id, Held::default());
        self.rules.begins(id);
        self.history.begins(id, 0)
    }

    /// A replica begins with what its disk holds: it is bound by all that it has said. If it was never admitted, what
    /// its former incarnation held counts until it is. `read` has what its engine has noted while it read its disk, which
    /// may hold less of a log than it has said that it has, and a former one.
    pub(super) fn resumes(
        &mut self,
        replica: &Replica<Machine, O>,
        read: &[Note<O::Record>],
    ) -> Result<(), Violation> {
        if self.speaks(replica) {
            self.fallen.remove(&replica.id);
        }
        self.logs.insert(replica.id, Held::default());
        for note in read {
            match note {
                Note::Restored { by, .. } if *by == replica.id => {
                    self.logs.insert(*by, Held::given(replica.core.log().commit_index()));
                }
                Note::Logged { by, index, record } if *by == replica.id => {
                    self.logs.entry(*by).or_default().logged(*index, record);
                }
                _ => {}
            }
        }
        self.rules.resumes(replica)?;
        self.history.begins(replica.id, replica.core.delivered())
    }

    /// Whether a replica's own log counts, and not what its former incarnation held. One that was admitted may have lost
    /// its power before its disk said so. It has forgotten that it counts, and its disk holds what it acknowledged.
    fn speaks(&self, replica: &Replica<Machine, O>) -> bool {
        let log = replica.core.log();
        !log.is_silent() || log.is_durable() && self.rules.has_spoken(replica.id)
    }

    /// An engine has died.
    pub(super) fn ends(&mut self, engine: &SimEngine<O>, disks: &Disks) {
        let (replicas, endpoint) = engine.inside();
        for replica in replicas {
            // An incarnation that was never admitted was never counted on.
            let counted = self.speaks(replica);
            let incarnation = replica.incarnation;
            if replica.core.log().is_durable() {
                if counted {
                    let log = self.logs.get(&replica.id).cloned().unwrap_or_default();
                    let end = disks.log_end(&endpoint.fabric.name(), replica.id.group).last;
                    let fallen = Fallen { incarnation, log, read: end, whole: end };
                    self.fallen.insert(replica.id, fallen);
                }
                self.history.ends(replica.id);
                continue;
            }
            let log = self.logs.remove(&replica.id).unwrap_or_default();
            if counted {
                let (read, whole) =
                    (replica.keeps(&endpoint.fabric), replica.holds(&endpoint.fabric));
                self.fallen.insert(replica.id, Fallen { incarnation, log, read, whole });
            }
            self.history.ends(replica.id);
        }
    }

    /// The memory of an engine that has died is still written to. A node that dies again before its group has admitted it
    /// leaves what its last admitted incarnation held as it is.
    pub(super) fn keeps_remains(&mut self, engine: SimEngine<O>) {
        self.remains.push(engine);
        let fallen = &self.fallen;
        let counts = |replica: &Replica<Machine, O>| {
            fallen.get(&replica.id).is_some_and(|it| it.incarnation == replica.incarnation)
        };
        self.remains.retain(|engine| engine.inside().0.iter().any(counts));
    }

    /// A dead replica's disk is put back as it was earlier: it forgets what it has said.
    pub(super) fn puts_back(&mut self, id: ReplicaId) {
        self.rules.begins(id);
        self.put_back = self.put_back.with(id.group);
    }

    /// A group has lost more memories than it tolerates.
    pub(super) fn loses(&mut self, group: GroupId) {
        self.history.loses(group);
    }

    /// A group is recreated with an empty state.
    pub(super) fn recreates(&mut self, group: GroupId) {
        self.history.recreates(group);
        self.rules.recreates(group);
        self.logs.retain(|id, _| id.group != group);
        self.fallen.retain(|id, _| id.group != group);
    }

    /// A group resumes from what survivors hold, one of which has made so many deliveries.
    pub(super) fn revives(&mut self, group: GroupId, reached: u64) {
        self.history.revives(group, reached);
        self.rules.recreates(group);
        self.fallen.retain(|id, _| id.group != group);
    }

    /// Processes the events of an engine's turn, and checks its deliveries. `trace` receives a line for each
    /// event, with the time.
    pub(super) fn look_at<'a>(
        &mut self,
        engines: impl Fn() -> Box<dyn Iterator<Item = &'a SimEngine<O>> + 'a>,
        turned: &SimEngine<O>,
        notes: Vec<Note<O::Record>>,
        trace: Option<(&mut Vec<String>, Duration)>,
    ) -> Result<(), Violation> {
        if let Some((trace, now)) = trace {
            // Equal reports to many replicas share a line.
            for same in notes.chunk_by(tells_the_same) {
                trace.push(format!("{now:.3?} {}", describe(same)));
            }
        }
        let (mut spoke, mut promised) = (Vec::new(), BTreeSet::new());
        let (replicas, endpoint) = turned.inside();
        for note in notes {
            match note {
                Note::Logged { by, index, record } => {
                    if let Some(remote) = O::proposal(&record) {
                        self.rules.counts_on(by, &remote)?;
                    }
                    self.logged(by, index, &record);
                }
                Note::ReceivedResult(touch) => {
                    self.history.told(&touch)?;
                    if let About::Log(word) = touch.about {
                        self.rules.says(touch.by, word)?;
                        spoke.push(touch.by);
                    }
                }
                Note::Promised { by, ballot, granted } => {
                    self.rules.promises(by, ballot, endpoint.fabric.now())?;
                    if granted {
                        self.rules.grants(by, ballot);
                    }
                    promised.insert(by.group);
                }
                Note::Settled { by, rank, view } => {
                    self.rules.settles(by, rank, &view, replicas_of(engines(), by.group))?;
                }
                Note::Gave { by, delivered } => {
                    let (_, giver) = find(engines(), by).expect("it turned");
                    self.rules.gives(giver, delivered, endpoint.fabric.now())?;
                }
                Note::Restored { by, delivered } => {
                    let core = &find(engines(), by).expect("it turned").1.core;
                    self.logs.insert(by, Held::given(core.log().commit_index()));
                    self.history.begins(by, delivered)?;
                    self.rules.restores(by, delivered);
                }
                Note::Delivered { by, deliver } => {
                    let holds_now = |of: ReplicaId, at: (u64, Rank)| {
                        let Some((fabric, replica)) = find(engines(), of) else { return false };
                        let last = replica.keeps(fabric);
                        // What it has read it holds; the rest may be whole in its memory.
                        let log = self.logs.get(&of);
                        log.is_some_and(|log| log.holds(deliver.message, at, last))
                            || at.0 > last && replica.holds(fabric) >= at.0
                    };
                    // A replica that counts and is still silent has its former incarnation's words.
                    let held = |of: ReplicaId, at: (u64, Rank)| {
                        let speaks = find(engines(), of).is_some_and(|(_, it)| self.speaks(it));
                        let fallen = self.fallen.get(&of);
                        let held = |Fallen { incarnation, log, read, whole }: &Fallen| {
                            let remains = self.remains_of(of, *incarnation);
                            let whole = remains.map_or(*whole, |(fabric, it)| it.holds(fabric));
                            log.holds(deliver.message, at, *read) || at.0 > *read && at.0 <= whole
                        };
                        if speaks { holds_now(of, at) } else { fallen.is_some_and(held) }
                    };
                    let replicas = find(engines(), by).expect("it turned").1.replicas();
                    let rests =
                        Deliver { destinations: self.rests_on(by.group, &deliver), ..deliver };
                    let excused = self.endangered.union(self.put_back);
                    let endangered = !rests.destinations.intersection(excused).is_empty();
                    if !self.history.is_lost(deliver.message) && !endangered {
                        check_quorum(by, &rests, |id| self.logs_of(id), replicas, held)?;
                        self.check_elections(&engines, by, &rests, holds_now)?;
                    }
                    self.history.delivers(by, &deliver)?;
                    let core = &find(engines(), by).expect("it turned").1.core;
                    let of_group = replicas_of(engines(), by.group);
                    // A leader has the message in its log, whether or not it counts, and decides itself what
                    // may be forgotten.
                    let leads = |it: &Replica<Machine, O>| {
                        it.core.log().leads() && it.core.log().ballot() == core.log().ballot()
                    };
                    let absent = of_group.filter(|it| {
                        let member = core.log().view().member(it.id.slot);
                        (member.evicted || member.incarnation != it.incarnation) && !leads(it)
                    });
                    self.rules.delivers(by, &deliver, absent.map(|it| it.id));
                }
            }
        }
        self.rules.admits(turned, |id| find(engines(), id).map(|(_, replica)| replica))?;
        self.rules.look_at(turned, &spoke)?;
        self.rules.look_at_logs(turned, |group| members(engines(), group))?;
        // A lease is gained by a replica that took a turn, and broken by a promise in that turn.
        for leader in replicas {
            check_lease(leader, &endpoint.fabric, || members(engines(), leader.id.group))?;
        }
        for (fabric, leader) in promised.iter().flat_map(|group| members(engines(), *group)) {
            check_lease(leader, fabric, || members(engines(), leader.id.group))?;
        }
        for replica in turned.inside().0.iter().filter(|replica| replica.core.log().won().is_some())
        {
            let now = (replica.id, replica.incarnation);
            let before = self.leaders.insert(replica.id.group, now);
            self.leader_changes += u64::from(before.is_some_and(|before| before != now));
        }
        Ok(())
    }

    /// The logs in which a replica may have put a message. Along a tree, a group delivers what another committed long ago:
    /// the only replica that had put it there may have lost its memory since, while the others hold it unread.
    fn logs_of(&self, id: ReplicaId) -> impl Iterator<Item = &Held> {
        let fallen = self.fallen.get(&id).filter(|_| self.tree.is_some());
        self.logs.get(&id).into_iter().chain(fallen.map(|fallen| &fallen.log))
    }

    /// The memory that an incarnation that is over has left, if it is still written to.
    fn remains_of(
        &self,
        id: ReplicaId,
        incarnation: u32,
    ) -> Option<(&SimFabric, &Replica<Machine, O>)> {
        self.remains.iter().find_map(|engine| {
            let (replicas, endpoint) = engine.inside();
            let mut replicas = replicas.iter();
            let it = replicas.find(|it| it.id == id && it.incarnation == incarnation)?;
            Some((&endpoint.fabric, it))
        })
    }

    /// The groups of which a quorum must hold a message when `by` delivers it: all destinations, or those on its way here.
    fn rests_on(&self, by: GroupId, deliver: &Deliver) -> GroupSet {
        let Some(tree) = &self.tree else { return deliver.destinations };
        let (lca, mut way) = (tree.lca(deliver.destinations), GroupSet::single(by));
        let mut at = by;
        while let Some(parent) = tree.parent(at).filter(|_| at != lca) {
            way.insert(parent);
            at = parent;
        }
        way
    }

    /// Checks that everything a delivery depends on is in every log that a group may choose from now on.
    fn check_elections<'a>(
        &self,
        engines: &impl Fn() -> Box<dyn Iterator<Item = &'a SimEngine<O>> + 'a>,
        by: ReplicaId,
        deliver: &Deliver,
        holds: impl Fn(ReplicaId, (u64, Rank)) -> bool,
    ) -> Result<(), Violation> {
        for group in deliver.destinations.iter() {
            let ids = self.logs.keys().chain(self.fallen.keys()).filter(|id| id.group == group);
            let logs = ids.flat_map(|id| self.logs_of(*id));
            let places = logs.filter_map(|held| held.place_of(deliver.message));
            let places: BTreeSet<_> = places.filter(|at| at.1 <= deliver.rank).collect();
            // The message must be in one of the places in which it was proposed: in others it may have been cut off.
            let why = places.iter().try_fold(None, |_, place| {
                let members = members(engines(), group);
                check_elections(members, |of, _| holds(of, *place)).err().map(Some)
            });
            if let Some(Some(why)) = why {
                let message = deliver.message;
                let evidence = format!("{by} delivered {message}, which {group} may lose: {why}");
                return Err(Violation { property: "deliveries survive elections", evidence });
            }
        }
        Ok(())
    }

    fn logged(&mut self, by: ReplicaId, index: u64, record: &O::Record) {
        self.logs.entry(by).or_default().logged(index, record);
        self.history.logged(by, record);
    }

    /// Checks what must hold at any moment of a replica's memory and its machine.
    pub(super) fn inspect(engine: &SimEngine<O>, sessions: usize) -> Result<(), Violation> {
        let (replicas, endpoint) = engine.inside();
        let waiting = endpoint.iter().map(|(_, channel)| channel.waiting()).sum();
        for replica in replicas {
            check_memory(replica.id, &replica.footprint(sessions, waiting, endpoint.assembling()))?;
            // A candidate must find in some quorum's memory everything that is not committed.
            if replica.memory.freed_index > replica.core.log().commit_index() {
                let evidence =
                    format!("{} freed {} uncommitted", replica.id, replica.memory.freed_index);
                return Err(Violation { property: "durability of the log", evidence });
            }
            if let Some(broken) = &replica.application.broken {
                let evidence = format!("{}: {broken}", replica.id);
                return Err(Violation {
                    property: "the contract with the state machine",
                    evidence,
                });
            }
        }
        Ok(())
    }

    /// Checks that the replicas of a group end with the same state.
    pub(super) fn compare<'a>(
        engines: impl Iterator<Item = &'a SimEngine<O>>,
    ) -> Result<(), Violation> {
        let mut first: BTreeMap<GroupId, (ReplicaId, u64)> = BTreeMap::new();
        for replica in engines.flat_map(|engine| engine.inside().0) {
            let digest = replica.application.digest();
            let (other, known) = *first.entry(replica.id.group).or_insert((replica.id, digest));
            if known != digest {
                let evidence = format!("{} and {other} end with different states", replica.id);
                return Err(Violation { property: "identical replicas", evidence });
            }
        }
        Ok(())
    }
}

/// The replicas of a group whose memory counts: those that know it, and those that would learn it from a candidate.
fn members<'a, O: Driven>(
    engines: impl Iterator<Item = &'a SimEngine<O>>,
    group: GroupId,
) -> impl Iterator<Item = (&'a SimFabric, &'a Replica<Machine, O>)> {
    let replicas = engines.flat_map(|engine| {
        let (replicas, endpoint) = engine.inside();
        replicas.iter().map(move |replica| (&endpoint.fabric, replica))
    });
    let of_group: Vec<_> = replicas.filter(|(_, it)| it.id.group == group).collect();
    let counts = |of: &Replica<Machine, O>| {
        let knows = |(_, it): &(_, &Replica<Machine, O>)| {
            !it.core.log().is_silent() && it.core.log().view().names(of.id.slot, of.incarnation)
        };
        // A replica that an operator has told to take a survivor's state grants nothing before it has it.
        let has_state = of.core.log().role() != Role::Blank && !of.core.log().is_suspended();
        !of.core.log().is_silent() || has_state && of_group.iter().any(knows)
    };
    let members: Vec<_> = of_group.iter().copied().filter(|(_, it)| counts(it)).collect();
    members.into_iter()
}

/// All replicas of a group whose processes are alive.
fn replicas_of<'a, O: Driven>(
    engines: impl Iterator<Item = &'a SimEngine<O>>,
    group: GroupId,
) -> impl Iterator<Item = &'a Replica<Machine, O>> {
    let replicas = engines.flat_map(|engine| engine.inside().0);
    replicas.filter(move |replica| replica.id.group == group)
}

/// A replica, and the fabric under it.
fn find<'a, O: Driven>(
    mut engines: impl Iterator<Item = &'a SimEngine<O>>,
    id: ReplicaId,
) -> Option<(&'a SimFabric, &'a Replica<Machine, O>)> {
    engines.find_map(|engine| {
        let (replicas, endpoint) = engine.inside();
        Some((&endpoint.fabric, replicas.iter().find(|replica| replica.id == id)?))
    })
}

fn tells_the_same<R>(one: &Note<R>, other: &Note<R>) -> bool {
    match (one, other) {
        (Note::ReceivedResult(one), Note::ReceivedResult(other)) => {
            one.by == other.by && one.about == other.about
        }
        _ => false,
    }
}

/// A description of one note, or of several that report the same to different replicas.
fn describe<R: std::fmt::Debug>(notes: &[Note<R>]) -> String {
    let told = notes.iter().filter_map(|note| match note {
        Note::ReceivedResult(touch) => Some(touch.to.to_string()),
        _ => None,
    });
    let to = told.collect::<Vec<_>>().join(" ");
    match &notes[0] {
        Note::Logged { by, index, record } => format!("{by} logs {index}: {record:?}"),
        Note::ReceivedResult(Touch { by, about: About::Log(word), .. }) => {
            format!(
                "{by} acknowledges to {to} its log up to {}, in the ballot of tag {}",
                word.index, word.tag
            )
        }
        Note::ReceivedResult(Touch { by, about: About::Message(message), .. }) => {
            format!("{by} writes to {to} about {message}")
        }
        Note::ReceivedResult(Touch { by, about: About::Passed, .. }) => {
            format!("{by} sends {to} what was delivered and passed")
        }
        Note::Promised { by, ballot, .. } => format!("{by} promises {ballot}"),
        Note::Settled { by, rank, .. } => {
            format!("{by} reports that its group has settled up to {rank}")
        }
        Note::Gave { by, delivered } => format!("{by} sends its state as of delivery {delivered}"),
        Note::Restored { by, delivered } => format!("{by} resumes after delivery {delivered}"),
        Note::Delivered { by, deliver } => {
            format!("{by} delivers {} at {}", deliver.message, deliver.rank)
        }
    }
}
