//! Obligations of replicas to each other at any moment, whatever their consequences. They are checked after
//! each turn, so that a missing guard shows where it is missing, and not only where it has led to a loss.

use std::cell::LazyCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::sim::SimFabric;
use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::Inspect as _;
use skein_protocol::properties::Violation;
use skein_protocol::ramcast::log::Remote;
use skein_protocol::rank::Rank;
use skein_protocol::step::Deliver;
use skein_protocol::view::View;

use super::Driven;
use super::checker::SimEngine;
use super::machine::Machine;
use crate::replica::Replica;

/// Number of timeouts after which a replica that stood for election counts as having led for long.
const LONG: u32 = 10;

/// The obligations of replicas, each in its present incarnation, and of groups.
#[derive(Default)]
pub(super) struct Rules {
    promised: BTreeMap<ReplicaId, Ballot>,
    /// The last ballot that each replica has granted.
    granted: BTreeMap<ReplicaId, Ballot>,
    said: BTreeMap<ReplicaId, Acceptance>,
    /// The longest log that any replica of a group considered committed, and the ballot that this replica had
    /// promised then.
    committed: BTreeMap<GroupId, (Runs, Ballot)>,
    /// End of each group's entries, by birth and index.
    ends: BTreeMap<(GroupId, Ballot, u64), u64>,
    /// Index of the first entry of each ballot of each group.
    firsts: BTreeMap<(GroupId, Ballot), u64>,
    /// Multi-group messages that each group has delivered.
    shared: BTreeMap<GroupId, Shared>,
    /// For each replica, the last delivery that its group has reached while it did not wait for that replica.
    missed: BTreeMap<ReplicaId, u64>,
    /// Time at which each replica last stood for election, by its own clock.
    set_out: BTreeMap<ReplicaId, Duration>,
    /// The last incarnation of each slot whose `Join` some replica of its group has folded.
    admitted: BTreeMap<ReplicaId, u32>,
    /// A group was recreated. Messages that it shared with others before that may be delivered nowhere.
    recreated: bool,
    /// Each group has ranks of its own. Then what was passed is not checked here: the search for cycles finds what was
    /// answered too early.
    ranks_of_groups: bool,
}

/// A group's deliveries of multi-group messages.
#[derive(Default)]
struct Shared {
    /// Rank up to which some replica of the group has delivered them all.
    delivered: Rank,
    /// Messages that no replica was seen to consider passed, and their other destinations.
    unpassed: VecDeque<(Rank, GroupSet)>,
    /// Rank up to which the group was seen to have passed.
    passed: Rank,
    /// Messages that the group has not reported as settled, and their positions.
    unsettled: VecDeque<(Rank, u64)>,
    /// Rank up to which the group has reported them as settled, and the position of the last of those.
    settled: Rank,
    done: u64,
}

impl Rules {
    /// No obligations.
    pub(super) fn new(ranks_of_groups: bool) -> Self {
        Self { ranks_of_groups, ..Self::default() }
    }

    /// A replica begins an incarnation, without obligations.
    pub(super) fn begins(&mut self, id: ReplicaId) {
        self.promised.remove(&id);
        self.granted.remove(&id);
        self.said.remove(&id);
        self.missed.remove(&id);
    }

    /// A replica begins with what its disk holds. What it has granted, and what it has acknowledged, it must be able to
    /// repeat; a promise that it has not spoken of may be forgotten.
    pub(super) fn resumes<O: Driven>(
        &mut self,
        replica: &Replica<Machine, O>,
    ) -> Result<(), Violation> {
        let (id, promised) = (replica.id, replica.core.log().promised());
        self.promised.insert(id, promised);
        if let Some(granted) = self.granted.get(&id).filter(|granted| **granted > promised) {
            let evidence = format!("{id} has granted {granted}, and begins again with {promised}");
            return Err(Violation { property: "a promise survives a loss of power", evidence });
        }
        Ok(())
    }

    /// A group is recreated. Each replica keeps its promises until it [restores](Self::restores) its state.
    pub(super) fn recreates(&mut self, group: GroupId) {
        self.committed.remove(&group);
        self.ends.retain(|(of, ..), _| *of != group);
        self.firsts.retain(|(of, _), _| *of != group);
        if let Some(shared) = self.shared.get_mut(&group) {
            shared.unsettled.clear();
            shared.done = 0;
        }
        self.recreated = true;
    }

    /// A replica resumes after that delivery. With 0, in a run in which groups were recreated, it begins again.
    pub(super) fn restores(&mut self, id: ReplicaId, delivered: u64) {
        if self.recreated && delivered == 0 {
            self.begins(id);
        }
    }

    /// A replica has delivered a message while its group did not wait for the replicas `absent`.
    pub(super) fn delivers(
        &mut self,
        by: ReplicaId,
        deliver: &Deliver,
        absent: impl Iterator<Item = ReplicaId>,
    ) {
        let Deliver { destinations, rank, position, .. } = *deliver;
        if destinations.len() == 1 {
            return;
        }
        for id in absent {
            let missed = self.missed.entry(id).or_default();
            *missed = position.max(*missed);
        }
        let shared = self.shared.entry(by.group).or_default();
        if rank > shared.delivered {
            shared.delivered = rank;
            shared.unpassed.push_back((rank, destinations.without(by.group)));
            shared.unsettled.push_back((rank, position));
        }
    }

    /// A leader has reported how far its group is done with shared messages, which other groups forget then:
    /// every replica that its log waits for must have applied everything that the group has delivered up to
    /// there. A replica that was not waited for when this was first reported may lack some of it, and takes it from its
    /// group's log or a state. So a report that covers no further shared message says nothing new.
    pub(super) fn settles<'a, O: Driven>(
        &mut self,
        by: ReplicaId,
        rank: Rank,
        view: &View,
        group: impl Iterator<Item = &'a Replica<Machine, O>>,
    ) -> Result<(), Violation> {
        let shared = self.shared.entry(by.group).or_default();
        if rank <= shared.settled {
            return Ok(());
        }
        shared.settled = rank;
        let mut news = None;
        while let Some((_, position)) = shared.unsettled.pop_front_if(|(at, _)| *at <= rank) {
            news = Some(position);
        }
        let Some(needed) = news else { return Ok(()) };
        shared.done = needed;
        let waits_for = |it: &&Replica<Machine, O>| {
            view.names(it.id.slot, it.incarnation) && !view.member(it.id.slot).evicted
        };
        match group.filter(waits_for).find(|it| it.application.done() < needed) {
            None => Ok(()),
            Some(it) => {
                let (id, done) = (it.id, it.application.done());
                let evidence = format!(
                    "{by} reports that its group has settled up to {rank}, which is delivery {needed}: \
                    {id} has applied up to {done}"
                );
                Err(Violation { property: "settled messages were applied everywhere", evidence })
            }
        }
    }

    /// A replica has taken a turn. A `Join` that is committed for the first time admits an incarnation. The
    /// admitted replica must have applied everything that the group is done with: other groups send it to
    /// nobody any more, and any other replica that has it may be the next to lose its memory.
    ///
    /// This is checked when the `Join` is folded, not when it is logged. A deposed leader that has not
    /// noticed may log one for a replica that lacks what its successor's group is done with. Such a `Join` is
    /// never committed: f+1 replicas have promised a higher ballot. Those of them that are alive accept
    /// nothing of the old ballot, and those that have lost their memory since are silent, like the joiner
    /// itself, until a `Join` of their own is committed. Until then the joiner grants and acknowledges
    /// nothing and no quorum counts it, so nothing is lost by what it lacks. Once the `Join` is folded the
    /// joiner counts, whoever leads.
    pub(super) fn admits<'a, O: Driven>(
        &mut self,
        engine: &SimEngine<O>,
        find: impl Fn(ReplicaId) -> Option<&'a Replica<Machine, O>>,
    ) -> Result<(), Violation> {
        let (replicas, _) = engine.inside();
        for replica in replicas {
            for (slot, member) in (0..).zip(replica.core.log().view().members()) {
                let id = ReplicaId::new(replica.id.group, slot);
                if member.incarnation <= self.admitted.get(&id).copied().unwrap_or(0) {
                    continue;
                }
                self.admitted.insert(id, member.incarnation);
                let joiner = find(id).filter(|it| it.incarnation == member.incarnation);
                if let Some(joiner) = joiner {
                    self.has_what_is_settled(joiner)?;
                }
            }
        }
        Ok(())
    }

    fn has_what_is_settled<O: Driven>(
        &self,
        joiner: &Replica<Machine, O>,
    ) -> Result<(), Violation> {
        let needed = self.shared.get(&joiner.id.group).map_or(0, |shared| shared.done);
        let (id, done) = (joiner.id, joiner.application.done());
        if done >= needed {
            return Ok(());
        }
        let evidence = format!("{id} is admitted, and has applied {done} of {needed} deliveries");
        Err(Violation { property: "an admitted replica has what is settled", evidence })
    }

    /// A replica considers that its group has passed a rank: everything that the group has delivered up to
    /// there, and everything that this depends on, must have been delivered everywhere.
    fn passes(&mut self, by: ReplicaId, rank: Rank) -> Result<(), Violation> {
        let (mut levels, mut left) = (BTreeMap::from([(by.group, rank)]), vec![by.group]);
        while let Some(from) = left.pop() {
            let level = levels[&from];
            let messages = self.shared.get(&from).map(|shared| &shared.unpassed);
            for (at, others) in messages.into_iter().flatten().take_while(|(at, _)| *at <= level) {
                for to in others.iter() {
                    if self.shared.get(&to).is_none_or(|shared| shared.delivered < *at) {
                        let property = "passed messages were delivered everywhere";
                        let evidence = format!(
                            "{by} considers {rank} passed, which depends on the message of {from} at \
                            {at}: {to} has not delivered it"
                        );
                        return Err(Violation { property, evidence });
                    }
                    let known = levels.entry(to).or_default();
                    if *known < *at {
                        *known = *at;
                        left.push(to);
                    }
                }
            }
        }
        for (group, level) in levels {
            let unpassed = &mut self.shared.entry(group).or_default().unpassed;
            while unpassed.pop_front_if(|(at, _)| *at <= level).is_some() {}
        }
        self.shared.entry(by.group).or_default().passed = rank;
        Ok(())
    }

    /// A replica has promised that no replica with a lower ballot may write its log any more.
    pub(super) fn promises(
        &mut self,
        by: ReplicaId,
        ballot: Ballot,
        now: Duration,
    ) -> Result<(), Violation> {
        if ballot.slot() == by.slot {
            self.set_out.insert(by, now);
        }
        match self.promised.insert(by, ballot).filter(|before| *before > ballot) {
            None => Ok(()),
            Some(before) => {
                let evidence = format!("{by} has promised {before}, and now promises {ballot}");
                Err(Violation { property: "a promise is kept", evidence })
            }
        }
    }

    /// A replica lets another write its log, in this ballot.
    pub(super) fn grants(&mut self, by: ReplicaId, ballot: Ballot) {
        self.granted.insert(by, ballot);
    }

    /// Whether a replica has acknowledged anything in its present incarnation.
    pub(super) fn has_spoken(&self, id: ReplicaId) -> bool {
        self.said.contains_key(&id)
    }

    /// A replica has acknowledged its log up to an index: in the ballot that it has granted, and in no other.
    pub(super) fn says(&mut self, by: ReplicaId, word: Acceptance) -> Result<(), Violation> {
        self.said.insert(by, word);
        match self.promised.get(&by) {
            Some(promised) if promised.tag() == word.tag => Ok(()),
            promised => {
                let evidence = format!("{by} has promised {promised:?}, and acknowledges {word:?}");
                Err(Violation { property: "acceptance words are of the granted ballot", evidence })
            }
        }
    }

    /// A replica has logged another group's proposal, which counts once words of its ballot cover it. If the
    /// proposal is in front of the ballot's first entry, such words may cover it, and the proposal may be
    /// lost all the same.
    pub(super) fn counts_on(&self, by: ReplicaId, remote: &Remote) -> Result<(), Violation> {
        match self.firsts.get(&(remote.group(), remote.ballot)) {
            Some(first) if remote.index < *first => {
                let evidence = format!("{by} logs {remote:?} of a ballot that begins at {first}");
                Err(Violation { property: "proposals count from their ballot on", evidence })
            }
            _ => Ok(()),
        }
    }

    /// A replica has sent its state, as of that delivery. Other groups may have dropped what it takes to
    /// deliver the messages that were delivered while its group did not wait for it. So it must have
    /// delivered those too, or must have led for so long that every replica that can deliver more has said
    /// so. A deposed leader may not know what happened without it; the present leader [admits](Self::admits)
    /// no replica that lacks that.
    pub(super) fn gives<O: Driven>(
        &self,
        by: &Replica<Machine, O>,
        delivered: u64,
        now: Duration,
    ) -> Result<(), Violation> {
        let missed = self.missed.get(&by.id).copied().unwrap_or(0);
        let set_out = self.set_out.get(&by.id).copied().unwrap_or_default();
        let committed = self.committed.get(&by.id.group);
        let deposed = committed.is_some_and(|(_, ballot)| *ballot > by.core.log().ballot());
        let led_for_long = now >= set_out + LONG * by.timeout();
        if delivered >= missed || led_for_long || deposed || self.recreated {
            return Ok(());
        }
        let id = by.id;
        let evidence =
            format!("{id} sends its state as of delivery {delivered}, and missed {missed}");
        Err(Violation { property: "a transferred state contains all earlier deliveries", evidence })
    }

    /// Checks every replica of an engine that has taken a turn.
    pub(super) fn look_at<O: Driven>(
        &mut self,
        engine: &SimEngine<O>,
        spoke: &[ReplicaId],
    ) -> Result<(), Violation> {
        let (replicas, _) = engine.inside();
        replicas.iter().try_for_each(|replica| {
            let (id, core) = (replica.id, &replica.core);
            let violated = |property, evidence| Err(Violation { property, evidence });
            let promised = core.log().promised();
            if let Some(before) = self.promised.get(&id).filter(|before| **before > promised) {
                let evidence = format!("{id} has promised {before}, but its log has {promised}");
                return violated("a promise is kept", evidence);
            }
            let view = core.log().view();
            // The incarnation that any replica has folded: a replica may learn that its `Join` is committed
            // before it folds it.
            let admitted = self.admitted.get(&id).copied().unwrap_or(0);
            if spoke.contains(&id) && replica.incarnation != admitted {
                let evidence = format!("{id} acknowledges, but its group has admitted {admitted}");
                return violated("no acknowledgement before admission", evidence);
            }
            let counted = view.members().iter().filter(|member| !member.evicted).count();
            if counted < view.members().len() / 2 + 1 {
                let evidence = format!("{id} counts {counted} members of {view:?}");
                return violated("a view counts at least a quorum", evidence);
            }
            let word = self.said.get(&id).filter(|word| word.tag == promised.tag());
            let kept =
                word.is_none_or(|word| core.log().leads() || core.log().last_index() >= word.index);
            if !kept {
                let evidence = format!(
                    "{id} acknowledged {word:?}, but holds up to {}",
                    core.log().last_index()
                );
                return violated("acknowledged entries are held", evidence);
            }
            let (before, passed) =
                (self.shared.get(&id.group).map(|it| it.passed), core.inspect().passed());
            if !self.recreated
                && !self.ranks_of_groups
                && before.is_some_and(|before| before < passed)
            {
                return self.passes(id, passed);
            }
            Ok(())
        })
    }

    /// Checks every replica of an engine that has taken a turn: an entry ends in the same place in every log;
    /// what one replica considers committed is committed for all, and no quorum could choose a log without
    /// it; and the leader holds it. `members` are the replicas of a group whose memory counts.
    pub(super) fn look_at_logs<'a, Members, O: Driven>(
        &mut self,
        engine: &SimEngine<O>,
        members: impl Fn(GroupId) -> Members,
    ) -> Result<(), Violation>
    where
        Members: Iterator<Item = (&'a SimFabric, &'a Replica<Machine, O>)>,
    {
        let (replicas, _) = engine.inside();
        replicas.iter().try_for_each(|replica| {
            let (id, core, runs) = (replica.id, &replica.core, replica.runs());
            let (last, end) = ((runs.last_birth(), runs.end().index - 1), runs.end().position);
            let known = *self.ends.entry((id.group, last.0, last.1)).or_insert(end);
            if known != end {
                let evidence = format!("{last:?} ends at {end} in {id}, and at {known} in another");
                return Err(Violation { property: "an entry has one place", evidence });
            }
            if core.log().leads() {
                self.firsts.insert((id.group, core.log().ballot()), core.log().first_index());
            }
            let (commit, birth) = (core.log().commit_index(), core.log().inspect().commit_birth());
            let (committed, ballot) =
                self.committed.entry(id.group).or_insert((Runs::EMPTY, Ballot::ZERO));
            let most = committed.end().index - 1;
            if commit <= most && commit > 0 && !committed.holds(birth, commit) {
                let evidence = format!("{id} commits {commit} of {birth}, others {committed:?}");
                return Err(Violation { property: "one log is committed", evidence });
            }
            if commit > most {
                let holds = |runs: &Runs| runs.holds(birth, commit);
                if let Err(why) = check_elections(members(id.group), |_, runs| holds(runs)) {
                    let evidence = format!("{id} commits {commit} of {birth}, but {why}");
                    let property = "committed entries survive elections";
                    return Err(Violation { property, evidence });
                }
                committed.clone_from(runs);
                committed.truncate(Cursor { index: commit + 1, position: 0 });
                *ballot = core.log().promised();
            }
            let (birth, most) = (committed.last_birth(), committed.end().index - 1);
            if core.log().leads()
                && core.log().ballot() > *ballot
                && most > 0
                && !runs.holds(birth, most)
            {
                let evidence = format!("{id} leads with {runs:?}, but {committed:?} is committed");
                return Err(Violation { property: "leaders hold what is committed", evidence });
            }
            Ok(())
        })
    }
}

/// Checks a leader and a replica that granted its log to it: nothing is written where the replica has still to read.
pub(super) fn check_unread<O: Driven>(
    leader: &Replica<Machine, O>,
    follower: &Replica<Machine, O>,
) -> Result<(), Violation> {
    let Some(written) = leader.written_to(follower.id.slot) else { return Ok(()) };
    let reads = follower.reads_at(leader.core.log().ballot());
    if reads.is_none_or(|at| written <= at + leader.log_bytes() as u64) {
        return Ok(());
    }
    let (one, other) = (leader.id, follower.id);
    let evidence = format!("{one} wrote up to {written} to {other}, which reads at {reads:?}");
    Err(Violation { property: "nothing unread is overwritten", evidence })
}

/// Checks any replica: everything that it has read of its log and that is not committed yet stays in its
/// memory. It may have acknowledged it, and the next leader may ask for it. Leaders may have overwritten what
/// is in front of `floor`.
///
/// A replica that is [silent](skein_protocol::group::GroupLog::is_silent), and not suspended, has
/// acknowledged nothing, and nothing of its log counts yet. A leader writes it the log in front of its state
/// from memory that the leader reuses, a lap later, for new entries of its own log. Such a write reads its
/// source late: it may carry the new entries before the write that is meant to. If the leader is deposed, and
/// adopts a log without them before that write is made, entries that were read are gone again. None of them is
/// ever committed: f+1 others have elected a leader without them.
pub(super) fn check_memory<O: Driven>(
    replica: &Replica<Machine, O>,
    floor: u64,
    fabric: &SimFabric,
) -> Result<(), Violation> {
    if replica.core.log().is_silent() && !replica.core.log().is_suspended() {
        return Ok(());
    }
    match replica.lost_at(floor, fabric) {
        None => Ok(()),
        Some(at) => {
            let evidence = format!("{} has read {at:?}, which is no longer there", replica.id);
            Err(Violation { property: "read log entries stay in memory", evidence })
        }
    }
}

/// Checks a leader and a replica that granted its log to it: a candidate would find with the replica
/// everything that the leader counts on there.
pub(super) fn check_counted<O: Driven>(
    leader: &Replica<Machine, O>,
    follower: &Replica<Machine, O>,
    fabric: &SimFabric,
) -> Result<(), Violation> {
    let (ballot, counted) =
        (leader.core.log().ballot(), leader.core.log().inspect().counts_on(follower.id.slot));
    let lets_in = follower.core.log().promised() == ballot && !follower.core.log().is_silent();
    if !lets_in || counted <= follower.core.log().last_index() {
        return Ok(());
    }
    let held = follower.holds(fabric);
    if counted <= held {
        return Ok(());
    }
    let (one, other) = (leader.id, follower.id);
    let evidence = format!("{one} counts {other} up to {counted}, but it holds up to {held}");
    Err(Violation { property: "entries that a leader counts are there", evidence })
}

/// Checks a leader and a replica that granted its log to it: the replica's memory holds, without a gap,
/// everything that other voting replicas lack in theirs, if the leader had it to write. `members` are the
/// replicas of its group.
pub(super) fn check_reach<O: Driven>(
    leader: &Replica<Machine, O>,
    members: &[(&Replica<Machine, O>, &SimFabric)],
) -> Result<(), Violation> {
    let counts = |it: &Replica<Machine, O>| {
        let member = leader.core.log().view().member(it.id.slot);
        leader.core.log().view().names(it.id.slot, it.incarnation) && !member.evicted
    };
    let counted = members.iter().filter(|(it, _)| counts(it));
    let needed = LazyCell::new(|| {
        let needed = counted.map(|(it, fabric)| {
            let shared = it.in_memory(*fabric, false).shared(leader.runs());
            shared.unwrap_or(it.memory.commit_end())
        });
        needed.min_by_key(|it| it.position)
    });
    for (follower, fabric) in members.iter().filter(|(it, _)| leader.feeds_all_to(it)) {
        let needed = needed.unwrap_or(follower.memory.commit_end());
        let (_, leaders) = members.iter().find(|(it, _)| it.id == leader.id).expect("one of them");
        let serves = || leader.memory.found_from(*leaders).position <= needed.position;
        if let Some(gap) = follower.gap_from(needed, *fabric)
            && serves()
        {
            let (one, other) = (leader.id, follower.id);
            let evidence = format!(
                "{other} of leader {one} lacks {gap:?}, and others lack it from {needed:?} on"
            );
            return Err(Violation { property: "a transferred state can serve others", evidence });
        }
    }
    Ok(())
}

/// Checks a leader that may answer unordered reads: as long as it holds its lease, no replica can be elected
/// after it. `members` are the replicas of its group whose memory counts.
pub(super) fn check_lease<'a, Members, O: Driven>(
    leader: &Replica<Machine, O>,
    fabric: &SimFabric,
    members: impl FnOnce() -> Members,
) -> Result<(), Violation>
where
    Members: Iterator<Item = (&'a SimFabric, &'a Replica<Machine, O>)>,
{
    if !leader.core.log().leads() || !leader.core.log().holds_lease(fabric.now()) {
        return Ok(());
    }
    let ballot = leader.core.log().ballot();
    let later = members().filter(|(_, member)| member.core.log().promised() > ballot);
    let later: Vec<_> = later.map(|(_, it)| (it.id, it.core.log().promised())).collect();
    if later.len() <= usize::from(leader.replicas()) / 2 {
        return Ok(());
    }
    let evidence = format!("{} holds a lease in {ballot}, but {later:?} have promised", leader.id);
    Err(Violation { property: "no election while a lease is held", evidence })
}

/// Checks an entry of a group that something depends on: every replica that may be elected next has it.
/// `members` are those of the group's replicas whose memory counts, and `holds` decides which of them hold
/// the entry, by the logs that they would report.
pub(super) fn check_elections<'a, O: Driven>(
    members: impl Iterator<Item = (&'a SimFabric, &'a Replica<Machine, O>)>,
    holds: impl Fn(ReplicaId, &Runs) -> bool,
) -> Result<(), String> {
    let logs: Vec<_> = members.map(|(fabric, it)| (it, it.would_report(fabric))).collect();
    let rank = |log: &Runs| (log.last_birth(), log.end().index);
    for (replica, log) in logs.iter().filter(|(replica, log)| !holds(replica.id, log)) {
        let behind = logs.iter().filter(|(_, other)| rank(other) <= rank(log)).count();
        if behind > usize::from(replica.replicas()) / 2 {
            let (id, birth, last) = (replica.id, log.last_birth(), log.end().index - 1);
            return Err(format!(
                "{id} lacks it, and may lead with its log up to {last}, born in {birth}"
            ));
        }
    }
    Ok(())
}
