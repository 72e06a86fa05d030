//! The only loop: outcomes and words in, events, step, effects out.

mod channels;
mod pace;
mod peers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use skein_fabric::wait::Waiter;
use skein_fabric::{Completion, Constants, Fabric, FabricError, Outcome, Peer};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::Control;
use skein_protocol::ids::{MessageId, ReplicaId, SessionId};
use skein_protocol::message::Head;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::MessageStage;
use skein_protocol::ramcast::Ramcast;

use self::channels::Reading;
use self::pace::Pace;
use crate::application::Application;
use crate::batches::{Batches, Sizes};
use crate::config::{Topology, Tuning, endpoint_name};
use crate::endpoint::{Endpoint, Opening, RingSizes};
use crate::introductions::{Introduction, Name, Purpose, WIRE_VERSION, replica};
use crate::operate::{Command, CommandError, Identity, ReplicaStatus};
use crate::ordering::Links;
use crate::replica::{Replica, untag};
use crate::replica_links::{Meaning, Note, PULSE_TAG, ReplicaLinks};
use crate::roster::Roster;

/// A turn that takes longer is worth a line when somebody looks for what holds others up.
const LONG_TURN: Duration = Duration::from_millis(10);
/// Of a replica's incarnation, what is left for its own use within an incarnation of its node.
const RESETS_BITS: u32 = 10;
/// Messages of its own that an engine may multicast in one incarnation.
const ORIGINATED_BITS: u32 = 18;
/// Letters taken in one turn. Each may open a channel, which takes as long as a hundred messages.
const LETTERS_PER_TURN: usize = 32;
/// Datagrams taken from one channel before the others get their turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// Bytes taken from all channels, and of each replica's log, before what is left waits for the next turn.
const READ_PER_TURN: usize = 1 << 20;

/// One engine thread's replicas and the fabric they share.
pub struct Engine<F, A, O: Links = Ramcast> {
    links: ReplicaLinks<F, O>,
    replicas: Vec<Replica<A, O>>,
    me: Identity,
    /// Makes a replica's state machine, empty.
    application: Box<dyn FnMut(ReplicaId) -> A + Send>,
    reading: Reading,
    dead_sessions: BTreeSet<SessionId>,
    /// A peer's process has ended since this was last asked for.
    peer_died: bool,
    originated: u32,
    /// The last message of our own, and which replica of ours multicast it.
    own: Option<(ReplicaId, MessageId)>,
    pace: Pace,
    completions: Vec<Completion>,
    /// Words that have changed, by number.
    news: Vec<(usize, u64)>,
    /// Those who are asked after.
    peers: Vec<Peer>,
    mail: Vec<u8>,
    /// Words that had changed at one look.
    words: Sizes,
}

impl<F: Fabric, A: Application> Engine<F, A> {
    /// Makes the replicas that engine `me` runs, and the memory their peers write. `application`
    /// makes a replica's state machine, with nothing in it: for its first incarnation, and again each time
    /// when it must begin anew and is given the state by others. RamCast orders.
    pub fn new(
        fabric: F,
        topology: Topology,
        tuning: Tuning,
        me: Identity,
        application: impl FnMut(ReplicaId) -> A + Send + 'static,
    ) -> Result<Self, FabricError> {
        let roster = Arc::new(Roster::unrecorded(me.node, me.incarnation));
        Self::with_roster(fabric, topology, tuning, me, roster, application)
    }
}

impl<F: Fabric, A: Application, O: Links> Engine<F, A, O> {
    /// The same, with any ordering, of a node that remembers which processes ran the others. Its engines share the roster.
    pub fn with_roster(
        fabric: F,
        topology: Topology,
        tuning: Tuning,
        me: Identity,
        roster: Arc<Roster>,
        application: impl FnMut(ReplicaId) -> A + Send + 'static,
    ) -> Result<Self, FabricError> {
        let mut application: Box<dyn FnMut(ReplicaId) -> A + Send> = Box::new(application);
        let sizes = RingSizes {
            session: tuning.ring_bytes as u64,
            session_max: tuning.ring_bytes_max as u64,
            replica: tuning.peer_ring_bytes as u64,
            total_max: tuning.rings_bytes_max as u64,
        };
        let mut links = ReplicaLinks::new(
            Endpoint::new(fabric, sizes),
            topology,
            tuning.window,
            (me.node, me.engine),
        )?;
        links.roster = roster;
        links.constants = links.constants.and(tuning.constants());
        let mut replicas = Vec::new();
        for id in links.local.clone() {
            let incarnation = me.incarnation << RESETS_BITS;
            replicas.push(Replica::new(id, incarnation, application(id), &mut links, tuning)?);
        }
        let of_machines =
            replicas.first().map(|replica: &Replica<A, O>| replica.application.constants());
        links.constants = links.constants.and(of_machines.unwrap_or_default());
        let now = links.endpoint.fabric.now();
        links.handshake();
        Ok(Self {
            links,
            replicas,
            me,
            application,
            reading: Reading::default(),
            dead_sessions: BTreeSet::new(),
            peer_died: false,
            // No incarnation gives a message a name that an earlier one has given.
            originated: me.incarnation << ORIGINATED_BITS,
            own: None,
            pace: Pace::new(now, &tuning),
            completions: Vec::new(),
            news: Vec::new(),
            peers: Vec::new(),
            mail: Vec::new(),
            words: Sizes::default(),
        })
    }

    /// Looks at everything once and does what follows. Returns whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        self.links.began = self.keep_time();
        let mut worked = self.read_mail();
        worked |= self.take_completions();
        worked |= self.look_at_words();
        for replica in &mut self.replicas {
            worked |= replica.log_has_more(&self.links.endpoint.fabric)
                && replica.read_log(&mut self.links, READ_PER_TURN);
        }
        worked |= self.read_channels();
        let kept_waiting = self.links.loopback.len();
        let mut announced = false;
        for replica in self.replicas.iter_mut().filter(|replica| replica.is_stirred()) {
            announced |= replica.end_turn(&mut self.links);
        }
        announced |= O::tell_together(&mut self.links);
        for replica in &mut self.replicas {
            replica.seek_confirmation(&mut self.links);
        }
        if announced {
            // It is in the followers' logs by now, and others wait for it.
            self.links.endpoint.tell();
        } else {
            self.links.endpoint.fabric.flush();
        }
        // Where writes complete at once, what was just logged is committed by now; and what replicas here
        // say to each other was said.
        self.take_completions();
        if self.links.take_told_here() {
            worked |= self.look_at_words();
        }
        // Sessions wait for what leaders have to say, and for nothing else.
        worked |= self.deliver(|replica| replica.core.log().leads());
        if self.replicas.iter().any(|replica| replica.is_stirred() && !replica.core.log().leads()) {
            self.links.endpoint.tell();
        }
        worked |= self.deliver(|replica| !replica.core.log().leads());
        self.replicas.iter_mut().for_each(Replica::rest);
        worked |= self.links.loopback.len() > kept_waiting;
        for replica in &mut self.replicas {
            if replica.send_state(&mut self.links) {
                replica.stir();
                worked = true;
            }
        }
        self.links.endpoint.tell();
        if worked {
            let now = self.links.endpoint.fabric.now();
            self.pace.has_worked(now);
            let took = now.saturating_sub(self.links.began);
            if took >= LONG_TURN {
                // Others wait meanwhile, and some take us for dead if there are many of these.
                tracing::debug!(?took, "a turn took long");
            }
        }
        worked
    }

    /// Hands to the state machines of some replicas what is their turn, and lets their answers out.
    /// Returns whether there was anything.
    fn deliver(&mut self, whose: impl Fn(&Replica<A, O>) -> bool) -> bool {
        let Self { replicas, links, .. } = self;
        let some = replicas.iter_mut().filter(|replica| whose(replica));
        some.fold(false, |any, replica| {
            let delivered = replica.is_stirred() && replica.deliver(links);
            let answered = replica.reads_waiting() > 0 && replica.answer_reads(links);
            answered | delivered | any
        })
    }

    /// After a turn that found nothing: waits as `waiter` sees fit until a peer has written something
    /// or the fabric is woken, and never for so long that others take this engine for dead.
    /// `undisturbed` is asked too before it sleeps, for what the fabric knows nothing of.
    pub fn wait(&mut self, waiter: &mut Waiter, undisturbed: &dyn Fn() -> bool) {
        let none_to_wake = self.links.endpoint.wakes.by_tick().is_empty();
        let longest = self.pace.longest_wait(self.links.endpoint.fabric.now(), none_to_wake);
        let Self { links, replicas, .. } = self;
        let (fabric, quiet) = links.parking();
        waiter.idle(fabric, longest, &mut |fabric: &F| {
            undisturbed()
                && quiet(fabric)
                && !replicas.iter().any(|replica| replica.log_has_more(fabric))
        });
    }

    /// Whether all the engines that this one's replicas talk to have been met: ready to serve.
    pub fn connected(&self) -> bool {
        self.links.connected()
    }

    /// Other nodes whose engines were refused since they last introduced themselves, and why.
    pub fn refusals(&self) -> impl Iterator<Item = (u16, &str)> {
        self.links.refusals.iter().map(|((node, _), why)| (*node, why.as_str()))
    }

    /// The fabric.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.links.endpoint.fabric
    }

    /// The state machines, with the replicas they belong to.
    pub fn applications(&self) -> impl Iterator<Item = (ReplicaId, &A)> {
        self.replicas.iter().map(|replica| (replica.id, &replica.application))
    }

    /// How many things were done together, at every stage.
    pub fn batches(&self) -> Batches {
        let mut batches = Batches {
            datagrams_per_look: self.reading.datagrams.clone(),
            words_per_look: self.words.clone(),
            ..Batches::default()
        };
        for replica in &self.replicas {
            batches.add(&replica.batches);
        }
        batches
    }

    /// What an operator sees of the replicas.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        let rings = |i| if i == 0 { self.links.endpoint.rings_bytes() } else { 0 };
        let sessions = |id| self.links.sessions_of(id) as u64;
        let replicas = self.replicas.iter().enumerate();
        replicas.map(|(i, replica)| replica.status(sessions(replica.id), rings(i))).collect()
    }

    /// Does what an operator asks for, or says why not.
    pub fn command(&mut self, command: &Command) -> Result<(), CommandError> {
        let group = match command {
            Command::Lead(group)
            | Command::PrepareRecreate { group, .. }
            | Command::Recreate { group, .. } => *group,
            Command::Evict(replica) => replica.group,
        };
        let Self { replicas, links, application, .. } = self;
        let replica = replicas.iter_mut().find(|replica| replica.id.group == group);
        let replica = replica.ok_or(CommandError::NotHere(group))?;
        replica.stir();
        match command {
            Command::Lead(_) => replica.transfer_here(links),
            Command::Evict(whom) => replica.evict(*whom, links),
            Command::PrepareRecreate { token, plan, .. } => replica.prepare_recreate(*token, plan),
            Command::Recreate { token, .. } => replica.recreate(*token, links, application),
        }
    }

    /// Sessions whose process has died, at most so many, for the replicas led here to end by an
    /// ordered message; see [`originate`](Self::originate). None while the last such message is under
    /// way: however many die, and however slow the groups are, they are not told faster than they
    /// listen.
    pub fn take_dead_sessions(&mut self, most: usize) -> Vec<SessionId> {
        if self.dead_sessions.is_empty() || self.originates() {
            return Vec::new();
        }
        let rest = self.dead_sessions.iter().nth(most).copied();
        let rest = rest.map(|first| self.dead_sessions.split_off(&first)).unwrap_or_default();
        std::mem::replace(&mut self.dead_sessions, rest).into_iter().collect()
    }

    /// Whether a message of our own is under way. If whoever multicast it leads no more, it may be
    /// lost.
    fn originates(&self) -> bool {
        self.own.is_some_and(|(by, message)| {
            let by = self.replicas.iter().find(|replica| replica.id == by);
            by.is_some_and(|by| {
                by.core.log().leads() && by.core.stage_of(message) != MessageStage::Delivered
            })
        })
    }

    /// Whether the process of any peer has ended since the last call, or another one was met: one that was
    /// killed has left its memory behind, which somebody has to remove, and whom we met is to be remembered.
    pub fn take_peer_died(&mut self) -> bool {
        std::mem::take(&mut self.peer_died)
    }

    /// Multicasts a small message of the node's own to all groups, from a replica that leads its
    /// group, if there is one with room in its log. Other groups have no ring to find its payload in,
    /// and fetch it.
    pub fn originate(&mut self, payload: &[u8]) {
        let can =
            |replica: &&mut Replica<A, O>| replica.core.log().leads() && replica.log_has_room();
        let Some(replica) = self.replicas.iter_mut().find(can) else { return };
        self.originated += 1;
        let session = SessionId::own(self.me.node, self.me.engine, self.originated);
        let destinations = self.links.topology.all_groups();
        let head = Head { sequence: 1, low_water: 1, destinations };
        self.own = Some((replica.id, MessageId::new(session, head.sequence)));
        replica.receive(session, head, payload, &mut self.links);
    }

    /// Whether a peer has written something that a turn would find.
    pub(crate) fn has_news(&self) -> bool {
        let fabric = &self.links.endpoint.fabric;
        !self.links.is_quiet() || self.replicas.iter().any(|replica| replica.log_has_more(fabric))
    }

    /// As if somebody had refused a replica of ours, because its group has held so many elections since
    /// it last heard of one.
    pub(crate) fn hear_of_elections(&mut self, id: ReplicaId, count: u32) {
        if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.id == id) {
            let counter = replica.core.log().inspect().ballot_counter().saturating_add(count);
            let other = (id.slot + 1) % replica.replicas();
            let promised = Ballot::new(counter, other, 0);
            replica.core.control(other, Control::Refused { promised }, &mut Vec::new());
            replica.stir();
        }
    }

    /// Notes for an onlooker what happens from here on.
    pub(crate) fn look_on(&mut self) {
        self.links.journal = Some(Vec::new());
    }

    /// What an onlooker saw since it last asked.
    pub(crate) fn take_journal(&mut self) -> Vec<Note<O::Record>> {
        self.links.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The replicas, and the endpoint they share, for an onlooker.
    pub(crate) fn inside(&self) -> (&[Replica<A, O>], &Endpoint<F>) {
        (&self.replicas, &self.links.endpoint)
    }

    /// The last incarnation of a node that we have met or heard of.
    pub(crate) fn life_of(&self, node: u16) -> Option<u32> {
        self.links.roster.known(node).map(|seen| seen.incarnation)
    }

    /// A session that one of our replicas hears and takes for gone all the same, where connections may return.
    pub(crate) fn taken_for_gone(&self) -> Option<(ReplicaId, SessionId)> {
        let gone = |it: &Replica<A, O>| {
            let heard = it.dead_sessions.keys().find(|session| self.links.hears(**session, it.id));
            heard.map(|session| (it.id, *session))
        };
        self.replicas.iter().find_map(gone).filter(|_| self.peers_may_return())
    }

    /// Does what is to be done once a tick, if it is time. Returns the time.
    fn keep_time(&mut self) -> Duration {
        let now = self.links.endpoint.fabric.now();
        if !self.pace.ticks(now) {
            if planted(Mutant::BeatsWithoutTime) {
                self.links.show_life();
            }
            return now;
        }
        self.links.endpoint.wakes.tick();
        self.reading.leaves_none = true;
        self.links.beat();
        self.look_after_leaders();
        for replica in &mut self.replicas {
            replica.tick(now.as_millis() as u64, &mut self.links);
        }
        self.spread_leaders(now);
        if !self.links.connected() {
            self.handshake();
        }
        (0..self.pace.probes_due(now)).for_each(|_| self.probe_peers());
        now
    }

    /// One leader at a time, if it is time, hands over to the replica that led its group at the start.
    fn spread_leaders(&mut self, now: Duration) {
        if self.pace.may_hand_over(now) {
            let Self { replicas, links, .. } = self;
            if replicas.iter_mut().any(|replica| replica.hand_over(links)) {
                self.pace.has_handed_over(now);
            }
        }
    }

    /// Looks at the words that peers write. Returns whether any has changed.
    fn look_at_words(&mut self) -> bool {
        let mut news = std::mem::take(&mut self.news);
        self.links.look_at_words(&mut news);
        let changed = news.len();
        for (at, word) in news.drain(..) {
            let Meaning { column, by, to } = self.links.meaning(at);
            match to {
                Some(row) => self.replicas[row].told(column, by, word),
                None => {
                    for replica in self.replicas.iter_mut().filter(|replica| replica.id != by) {
                        replica.told(column, by, word);
                    }
                }
            }
        }
        self.news = news;
        self.words.note(changed);
        changed > 0
    }

    fn read_mail(&mut self) -> bool {
        let mut any = false;
        let mut bytes = std::mem::take(&mut self.mail);
        for _ in 0..LETTERS_PER_TURN {
            let Some(from) = self.links.endpoint.fabric.recv(&mut bytes) else { break };
            any = true;
            self.links.endpoint.met(from);
            let Some(mail) = Introduction::decode(&bytes) else {
                tracing::warn!(len = bytes.len(), "dropped mail that makes no sense");
                continue;
            };
            self.take_mail(from, mail);
        }
        self.mail = bytes;
        any
    }

    /// Why an engine that says this of itself does not belong to this cluster, if it does not.
    fn why_refused(&self, version: u16, constants: &[u8]) -> Option<String> {
        if version != WIRE_VERSION {
            return Some(format!(
                "it has version {version} of the memory's layout, and this engine version {WIRE_VERSION}"
            ));
        }
        let Some((theirs, [])) = Constants::decode(constants) else {
            return Some("what it says of its configuration makes no sense".to_owned());
        };
        self.links.constants.difference(&theirs).map(|difference| difference.to_string())
    }

    /// Says once that an engine is refused; it introduces itself again and again.
    fn refuse(&mut self, (node, engine): (u16, u16), why: String) {
        let topology = self.links.topology;
        if node >= topology.nodes || engine >= topology.engines {
            tracing::debug!(node, engine, why, "refused an engine that the cluster does not have");
        } else if self.links.refusals.get(&(node, engine)) != Some(&why) {
            tracing::error!(
                node,
                engine,
                why,
                "refused an engine: all nodes of a cluster must have the same configuration"
            );
            self.links.refusals.insert((node, engine), why);
        }
    }

    fn take_mail(&mut self, from: Peer, mail: Introduction) {
        // Whoever was let in may be anybody's session; who speaks for an engine must be that.
        let sender = self.links.endpoint.fabric.name_of(from);
        let goes_by = |name: String| sender == Some(name);
        match mail {
            Introduction::Hello { version, constants, node, engine, who } => {
                if !goes_by(endpoint_name(node, engine)) {
                    tracing::warn!(
                        node,
                        engine,
                        "refused an engine that has another name than it says"
                    );
                    return;
                }
                if let Some(why) = self.why_refused(version, &constants) {
                    self.refuse((node, engine), why);
                    return;
                }
                self.links.refusals.remove(&(node, engine));
                if !self.links.meet(from, (node, engine), &who) {
                    return self.learn_of_peers();
                }
                // The one that we knew is of another incarnation, or behind a connection that broke.
                if let Some(former) = self.links.welcome(from, (node, engine)) {
                    self.lose(former);
                }
                self.handshake();
                self.learn_of_peers();
            }
            Introduction::Welcome { words, pulse, who } => {
                if let Some(engine) = self.links.engine_of(from)
                    && self.links.meet(from, engine, &who)
                {
                    self.links.welcomed(from, words, pulse);
                }
                self.learn_of_peers();
            }
            Introduction::Unwelcome { known } => {
                if self.links.engine_of(from).is_some() {
                    self.links.roster.refused(known);
                    self.learn_of_peers();
                }
            }
            mail => {
                let (ours, topology) = (&self.replicas, self.links.topology);
                let runs = |theirs| topology.has(theirs) && goes_by(topology.endpoint_of(theirs));
                let speaks_for = self.links.met_as(from);
                let met = |theirs: ReplicaId| {
                    let engine = (topology.node_of(theirs), topology.engine_of(theirs.group));
                    speaks_for == Some(engine)
                };
                let here = |to: Name| ours.iter().any(|r| r.id == replica(to));
                let admit = |purpose| match purpose {
                    Purpose::Session { session, replica } => {
                        here(replica) && !SessionId(session).is_own()
                    }
                    Purpose::Replica { from: theirs, to }
                    | Purpose::Engine { from: theirs, to } => {
                        here(to) && runs(replica(theirs)) && met(replica(theirs))
                    }
                };
                match self.links.endpoint.receive_mail(from, mail, admit) {
                    Opening::Accepted(channel) => {
                        let purpose = self.links.endpoint.channel(channel).purpose;
                        if let Purpose::Session { session, replica: to } = purpose {
                            let (session, to) = (SessionId(session), replica(to));
                            self.links.session_opened(session, to, channel);
                            if self.links.endpoint.fabric.may_return()
                                && !planted(Mutant::ReturnNotNoticed)
                                && let Some(ours) = self.replicas.iter_mut().find(|r| r.id == to)
                            {
                                ours.dead_sessions.remove(&session);
                            }
                        }
                    }
                    Opening::Refused(channel) => {
                        let engine = self.links.engine_of(from);
                        // Why it has nothing to do with us was said when we refused it.
                        if !engine.is_some_and(|it| self.links.refusals.contains_key(&it)) {
                            tracing::warn!(purpose = ?self.links.endpoint.channel(channel).purpose,
                                "another engine refused a channel: it has no memory for it, or has not \
                                 met this one yet; what is sent next asks for another");
                        }
                        self.links.refused(channel);
                    }
                    Opening::Nothing => {}
                }
            }
        }
    }

    fn take_completions(&mut self) -> bool {
        self.links.endpoint.fabric.poll(&mut self.completions);
        let mut any = false;
        for Completion { tag, outcome } in self.completions.drain(..) {
            if tag & PULSE_TAG != 0 {
                continue; // What was read is looked at in the next tick, if it is there.
            }
            any = true;
            let (group, slot, number) = untag(tag);
            let replica = self.replicas.iter_mut().find(|replica| replica.id.group == group);
            match (replica, outcome) {
                (Some(replica), Outcome::Done) => replica.completed(slot, number),
                (Some(replica), outcome) => {
                    replica.failed(slot, number, outcome == Outcome::Denied);
                }
                (None, _) => {}
            }
        }
        any
    }
}

#[cfg(test)]
mod tests;
