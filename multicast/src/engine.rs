//! The engine's event loop: completions and words in, one step of each replica, effects out.

mod channels;
mod pace;
mod peers;
mod ungated;

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
use crate::application::{Application, Stopped};
use crate::batches::{Batches, Sizes};
use crate::config::{Tuning, endpoint_name};
use crate::disk::Disk;
use crate::endpoint::{Endpoint, Opening, RingSizes};
use crate::introductions::{Introduction, Name, Purpose, WIRE_VERSION, replica};
use crate::layout::Layout;
use crate::operate::{Command, CommandError, Identity, ReplicaStatus};
use crate::ordering::Links;
use crate::replica::{NotReplayed, Replica, untag};
use crate::replica_links::{Meaning, Note, PULSE_TAG, ReplicaLinks, Unwritten};
use crate::roster::Roster;
use crate::work::Work;

/// A turn that takes longer is logged at debug level, to help find what delays others.
const LONG_TURN: Duration = Duration::from_millis(10);
/// Low bits of a replica's incarnation, which count its resets within one incarnation of its node.
const RESETS_BITS: u32 = 10;
/// Bits that count the messages that an engine originates in one incarnation of its node.
const ORIGINATED_BITS: u32 = 18;
/// Control messages read in one turn. Each may open a channel, which takes as long as a hundred messages.
const LETTERS_PER_TURN: usize = 32;
/// Datagrams read from one channel before the next channel is read.
const DATAGRAMS_PER_TURN: usize = 64;
/// Bytes read from all channels together, and from each replica's log, in one turn. The rest waits for the next turn.
const READ_PER_TURN: usize = 1 << 20;
/// Time without work after which the disk writes what nobody waits for. A client that sends its next message when it has the
/// reply is sooner.
const WRITE_AFTER: Duration = Duration::from_micros(300);

/// The replicas of one engine thread and the fabric that they share.
pub struct Engine<F, A: Application, O: Links = Ramcast> {
    links: ReplicaLinks<F, O>,
    replicas: Vec<Replica<A, O>>,
    me: Identity,
    /// Makes an empty state machine for a replica.
    application: Box<dyn FnMut(ReplicaId) -> A + Send>,
    reading: Reading,
    dead_sessions: BTreeSet<SessionId>,
    /// A peer's process has ended, or a process was met, since the last [`Engine::take_peer_died`].
    peer_died: bool,
    originated: u32,
    /// The last message that this engine originated, and the replica here that multicast it.
    own: Option<(ReplicaId, MessageId)>,
    pace: Pace,
    completions: Vec<Completion>,
    /// Scratch: the numbers and values of status words that have changed.
    news: Vec<(usize, u64)>,
    /// Scratch: the peers that are probed.
    peers: Vec<Peer>,
    mail: Vec<u8>,
    /// Sizes of the batches of changed status words.
    words: Sizes,
    /// The engine's own work; its replicas count the rest.
    work: Work,
    /// A machine has failed. What the engine said last is true, and nothing that it would say next need be.
    has_stopped: bool,
    /// Which one, until somebody asks.
    stopped: Option<Stopped<A::Failure>>,
}

impl<F: Fabric, A: Application> Engine<F, A> {
    /// Makes the replicas that engine `me` runs, and the memory that their peers write. `application` makes
    /// an empty state machine for a replica: for its first incarnation, and each time the replica must start
    /// again and receives its state from others. RamCast orders the messages.
    ///
    /// # Errors
    ///
    /// Fails if the fabric cannot create the memory.
    pub fn new(
        fabric: F,
        layout: &Layout,
        tuning: Tuning,
        me: Identity,
        application: impl FnMut(ReplicaId) -> A + Send + 'static,
    ) -> Result<Self, FabricError> {
        let roster = Arc::new(Roster::unrecorded(me.node, me.incarnation));
        Self::with_roster(fabric, layout, tuning, me, roster, None, application)
    }
}

impl<F: Fabric, A: Application, O: Links> Engine<F, A, O> {
    /// Like [`Engine::new`], with any ordering, for a node that remembers which processes ran the others. The
    /// node's engines share the roster. If there is a `disk`, replicas say only what it holds, and begin with that in
    /// [`replay`](Self::replay).
    ///
    /// # Errors
    /// If the fabric cannot create the memory.
    pub fn with_roster(
        fabric: F,
        layout: &Layout,
        tuning: Tuning,
        me: Identity,
        roster: Arc<Roster>,
        disk: Option<Box<dyn Disk>>,
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
            layout,
            tuning.window,
            (me.node, me.engine),
        )?;
        links.roster = roster;
        links.constants = links.constants.and(tuning.constants());
        let durability = if disk.is_some() { "sync" } else { "memory" };
        links.constants = links.constants.with("node.durability", durability);
        links.disk = disk;
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
            // No incarnation reuses a message name of an earlier one.
            originated: me.incarnation << ORIGINATED_BITS,
            own: None,
            pace: Pace::new(now, &tuning),
            completions: Vec::new(),
            news: Vec::new(),
            peers: Vec::new(),
            mail: Vec::new(),
            words: Sizes::default(),
            work: Work::default(),
            has_stopped: false,
            stopped: None,
        })
    }

    /// Lets the replicas begin with what the disk holds of them. To be called once, before the first turn.
    ///
    /// # Errors
    /// If the disk does not hold what a replica wrote, or a machine fails. Such an engine must not run.
    pub fn replay(&mut self) -> Result<(), (ReplicaId, NotReplayed<A::Failure>)> {
        let Self { replicas, links, application, .. } = self;
        for replica in replicas {
            replica.replay(links, application).map_err(|why| (replica.id, why))?;
        }
        Ok(())
    }

    /// Looks at everything once and does what follows. Returns whether there was anything to do. Does nothing once a
    /// machine has [failed](Self::take_stopped), by which the others take the engine for dead.
    pub fn turn(&mut self) -> bool {
        if self.has_stopped {
            return false;
        }
        self.try_turn().unwrap_or_else(|stopped| {
            tracing::error!(replica = %stopped.replica, why = %stopped.why, "a replica has stopped, and its engine with it");
            self.has_stopped = true;
            self.stopped = Some(stopped);
            true
        })
    }

    /// A turn, which ends where a machine fails.
    fn try_turn(&mut self) -> Result<bool, Stopped<A::Failure>> {
        self.work.turns += 1;
        self.work.replicas += self.replicas.len() as u64;
        self.links.began = self.keep_time();
        let durable = self.links.disk.is_some();
        let mut worked = durable && self.reached_disk();
        worked |= self.read_mail();
        worked |= self.take_completions();
        worked |= self.look_at_words();
        for replica in &mut self.replicas {
            worked |= replica.log_has_more(&self.links.endpoint.fabric)
                && replica.read_log(&mut self.links, READ_PER_TURN);
        }
        worked |= self.read_channels()?;
        let kept_waiting = self.links.loopback.len();
        let mut announced = false;
        for replica in self.replicas.iter_mut().filter(|replica| replica.is_stirred()) {
            announced |= replica.end_turn(&mut self.links);
        }
        self.bound_hints();
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
        if durable {
            self.links.write_to_disk(Unwritten::Now);
        }
        // If writes complete at once, the entries that were just logged are committed by now, and words
        // between replicas here are written.
        self.take_completions();
        if self.links.take_told_here() {
            worked |= self.look_at_words();
        }
        for replica in &mut self.replicas {
            if replica.application.has_news() {
                replica.stir();
                worked = true;
            }
        }
        // Sessions wait for the leaders' replies only, so leaders deliver first.
        worked |= self.deliver(|replica| replica.core.log().leads())?;
        if self.replicas.iter().any(|replica| replica.is_stirred() && !replica.core.log().leads()) {
            self.links.endpoint.tell();
        }
        worked |= self.deliver(|replica| !replica.core.log().leads())?;
        if durable {
            self.record_moments();
        }
        for replica in &mut self.replicas {
            worked |= replica.rest();
        }
        worked |= self.links.loopback.len() > kept_waiting;
        for replica in &mut self.replicas {
            let sent = replica.send_state(&mut self.links);
            if sent.map_err(|why| Stopped { replica: replica.id, why })? {
                replica.stir();
                worked = true;
            }
        }
        if durable {
            worked |= self.write_snapshots()?;
            self.links.write_to_disk(Unwritten::Now);
        }
        self.links.endpoint.tell();
        if worked {
            let now = self.links.endpoint.fabric.now();
            self.pace.has_worked(now);
            let took = now.saturating_sub(self.links.began);
            if took >= LONG_TURN {
                // Other engines wait meanwhile, and suspect this one if there are many such turns.
                tracing::debug!(?took, "a turn took long");
            }
        }
        Ok(worked)
    }

    /// Appends to the log on disk what the replicas have promised, seen committed and delivered in this turn.
    #[inline(never)]
    fn record_moments(&mut self) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.is_stirred()) {
            replica.record_moment(&mut self.links);
        }
    }

    /// Writes the next parts of snapshots. Returns whether there were any.
    #[inline(never)]
    fn write_snapshots(&mut self) -> Result<bool, Stopped<A::Failure>> {
        let Self { replicas, links, .. } = self;
        let mut any = false;
        for replica in replicas {
            let id = replica.id;
            if replica.write_snapshot(links).map_err(|why| Stopped { replica: id, why })? {
                replica.stir();
                any = true;
            }
        }
        Ok(any)
    }

    /// Handles what has reached the disk since the last turn. Returns whether there was anything.
    #[inline(never)]
    fn reached_disk(&mut self) -> bool {
        let Some(disk) = &mut self.links.disk else { return false };
        disk.go_on();
        let durable = disk.durable();
        self.links.durable = durable;
        // Records that were written between two turns may be on disk before a replica has noted the moment.
        let Self { replicas, links, .. } = self;
        let mut any = false;
        for replica in replicas {
            any |= replica.reached_disk(durable, links);
        }
        any
    }

    /// The replica whose machine has failed, if one has since this was last asked. Such an engine is of no further use.
    pub fn take_stopped(&mut self) -> Option<Stopped<A::Failure>> {
        self.stopped.take()
    }

    /// Delivers to the state machines of the chosen replicas, and sends their answers. Returns whether there
    /// was anything.
    fn deliver(
        &mut self,
        whose: impl Fn(&Replica<A, O>) -> bool,
    ) -> Result<bool, Stopped<A::Failure>> {
        let Self { replicas, links, .. } = self;
        let mut any = false;
        for replica in replicas.iter_mut().filter(|replica| whose(replica)) {
            let id = replica.id;
            let stopped = |why| Stopped { replica: id, why };
            any |= replica.is_stirred() && replica.deliver(links).map_err(stopped)?;
            any |= replica.reads_waiting() > 0 && replica.answer_reads(links).map_err(stopped)?;
        }
        Ok(any)
    }

    /// Waits, as `waiter` decides, until a peer has written something or the fabric is woken, but never so
    /// long that others suspect this engine. To be called after a turn that found nothing. `undisturbed` is
    /// checked as well before it sleeps, for events that the fabric does not see.
    pub fn wait(&mut self, waiter: &mut Waiter, undisturbed: &dyn Fn() -> bool) {
        let none_to_wake = self.links.endpoint.wakes.by_tick().is_empty();
        let now = self.links.endpoint.fabric.now();
        let awaits_part = self.replicas.iter().any(Replica::awaits_part);
        let mut longest = self.pace.longest_wait(now, none_to_wake, awaits_part);
        if self.links.unwritten != Unwritten::Nothing {
            if self.pace.idle_for(now) >= WRITE_AFTER {
                self.links.write_to_disk(Unwritten::Later);
            } else {
                longest = longest.min(WRITE_AFTER);
            }
        }
        let Self { links, replicas, .. } = self;
        let (fabric, quiet) = links.parking();
        waiter.idle(fabric, longest, &mut |fabric: &F| {
            undisturbed()
                && quiet(fabric)
                && !replicas
                    .iter()
                    .any(|replica| replica.log_has_more(fabric) || replica.application.has_news())
        });
    }

    /// Returns whether all engines that this one's replicas talk to have been met: it is ready to serve.
    pub fn connected(&self) -> bool {
        self.links.connected()
    }

    /// The nodes whose engines are refused, and why.
    pub fn refusals(&self) -> impl Iterator<Item = (u16, &str)> {
        self.links.refusals.iter().map(|((node, _), why)| (*node, why.as_str()))
    }

    /// The fabric of this engine.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.links.endpoint.fabric
    }

    /// The state machines and the replicas that they belong to.
    pub fn applications(&self) -> impl Iterator<Item = (ReplicaId, &A)> {
        self.replicas.iter().map(|replica| (replica.id, &replica.application))
    }

    /// Histograms of the batch sizes at every stage.
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

    /// The work done so far.
    pub fn work(&self) -> Work {
        self.replicas.iter().fold(self.work, |work, replica| work.and(&replica.work))
    }

    /// Leaders that see too few of their followers alive find out whether their groups serve nevertheless. Returns whether some
    /// of them wait for an answer, which comes with later turns.
    pub fn seek_proofs(&mut self) -> bool {
        self.replicas.iter_mut().fold(false, |awaited, replica| replica.seek_proof() | awaited)
    }

    /// The status of the replicas for an operator.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        let rings = |i| if i == 0 { self.links.endpoint.rings_bytes() } else { 0 };
        let sessions = |id| self.links.sessions_of(id) as u64;
        let replicas = self.replicas.iter().enumerate();
        replicas.map(|(i, replica)| replica.status(sessions(replica.id), rings(i))).collect()
    }

    /// Carries out an operator's command.
    ///
    /// # Errors
    ///
    /// The reason why the command cannot be carried out.
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

    /// Takes at most `most` sessions whose process has died, for the replicas led here to end by an ordered
    /// message; see [`originate`](Self::originate). Returns none while the last such message is in flight, so
    /// that groups do not receive them faster than they deliver them.
    pub fn take_dead_sessions(&mut self, most: usize) -> Vec<SessionId> {
        if self.dead_sessions.is_empty() || self.originates() {
            return Vec::new();
        }
        let rest = self.dead_sessions.iter().nth(most).copied();
        let rest = rest.map(|first| self.dead_sessions.split_off(&first)).unwrap_or_default();
        std::mem::replace(&mut self.dead_sessions, rest).into_iter().collect()
    }

    /// Returns whether a message that this engine originated is in flight. If the replica that multicast it
    /// leads no more, the message may be lost and is not waited for.
    fn originates(&self) -> bool {
        self.own.is_some_and(|(by, message)| {
            let by = self.replicas.iter().find(|replica| replica.id == by);
            by.is_some_and(|by| {
                by.core.log().leads() && by.core.stage_of(message) != MessageStage::Delivered
            })
        })
    }

    /// Returns whether a peer's process has ended, or a new process was met, since the last call. A process
    /// that was killed leaves memory behind, which its host must remove; the identity of a new process must
    /// be remembered.
    pub fn take_peer_died(&mut self) -> bool {
        std::mem::take(&mut self.peer_died)
    }

    /// Multicasts a small message of the node's own to all groups, from a replica here that leads its group
    /// and has room in its log. If there is none, does nothing. Other groups have no ring with its payload,
    /// and fetch it. If another group orders it first, that group's leader is sent it, and may miss it.
    pub fn originate(&mut self, payload: &[u8]) {
        let destinations = self.links.layout.topology().all_groups();
        let can = |replica: &Replica<A, O>| replica.core.log().leads() && replica.log_has_room();
        let orders = |replica: &Replica<A, O>| replica.core.orders(destinations);
        let at = self.replicas.iter().position(|replica| can(replica) && orders(replica));
        let Some(at) = at.or_else(|| self.replicas.iter().position(can)) else { return };
        self.originated += 1;
        let session = SessionId::own(self.me.node, self.me.engine, self.originated);
        let head = Head { sequence: 1, low_water: 1, destinations };
        let replica = &mut self.replicas[at];
        self.own = Some((replica.id, MessageId::new(session, head.sequence)));
        if replica.core.orders(destinations) {
            replica.receive(session, head, payload, &mut self.links);
        } else {
            replica.hand_in(session, head, payload, &mut self.links);
        }
    }

    /// Gives up a message that this engine originated and another group is to order, if that group has not: it may not
    /// have received it. What the message says is said again.
    fn give_up_own(&mut self) {
        let destinations = self.links.layout.topology().all_groups();
        self.own = self.own.filter(|(by, message)| {
            let by = self.replicas.iter().find(|replica| replica.id == *by);
            by.is_none_or(|by| {
                by.core.orders(destinations) || by.core.stage_of(*message) != MessageStage::Unknown
            })
        });
    }

    /// Returns whether a peer has written something that a turn would find.
    pub(crate) fn has_news(&self) -> bool {
        let fabric = &self.links.endpoint.fabric;
        !self.links.is_quiet() || self.replicas.iter().any(|replica| replica.log_has_more(fabric))
    }

    /// Handles, in a simulation, a refusal of a replica here by its group, as if the group had held `count`
    /// elections that this replica did not see.
    pub(crate) fn hear_of_elections(&mut self, id: ReplicaId, count: u32) {
        if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.id == id) {
            let counter = replica.core.log().inspect().ballot_counter().saturating_add(count);
            let other = (id.slot + 1) % replica.replicas();
            let promised = Ballot::new(counter, other, 0);
            replica.core.control(other, Control::Refused { promised }, &mut Vec::new());
            replica.stir();
        }
    }

    /// Starts the journal of events for an observer.
    pub(crate) fn look_on(&mut self) {
        self.links.journal = Some(Vec::new());
    }

    /// Takes the events since the last call.
    pub(crate) fn take_journal(&mut self) -> Vec<Note<O::Record>> {
        self.links.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The replicas, and the endpoint that they share, for an observer.
    pub(crate) fn inside(&self) -> (&[Replica<A, O>], &Endpoint<F>) {
        (&self.replicas, &self.links.endpoint)
    }

    /// The last incarnation of a node that this engine has met or was sent.
    pub(crate) fn life_of(&self, node: u16) -> Option<u32> {
        self.links.roster.known(node).map(|seen| seen.incarnation)
    }

    /// A session that counts as gone at a replica here although it has an open channel to it, on a fabric
    /// where connections may return.
    pub(crate) fn taken_for_gone(&self) -> Option<(ReplicaId, SessionId)> {
        let gone = |it: &Replica<A, O>| {
            let heard = it.dead_sessions.keys().find(|session| self.links.hears(**session, it.id));
            heard.map(|session| (it.id, *session))
        };
        self.replicas.iter().find_map(gone).filter(|_| self.peers_may_return())
    }

    /// Does the periodic work, if a tick is due. Returns the time.
    fn keep_time(&mut self) -> Duration {
        let now = self.links.endpoint.fabric.now();
        if !self.pace.ticks(now) {
            if planted(Mutant::BeatsWithoutTime) {
                self.links.show_incarnation();
            }
            return now;
        }
        self.links.endpoint.wakes.tick();
        self.reading.leaves_none = true;
        self.links.beat();
        self.links.write_to_disk(Unwritten::Later);
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

    /// At most one leader at a time hands over to the replica that led its group at the start, if it is time.
    fn spread_leaders(&mut self, now: Duration) {
        if self.pace.may_hand_over(now) {
            let Self { replicas, links, .. } = self;
            if replicas.iter_mut().any(|replica| replica.hand_over(links)) {
                self.pace.has_handed_over(now);
            }
        }
    }

    /// Scans the status words that peers write. Returns whether any has changed.
    fn look_at_words(&mut self) -> bool {
        let mut news = std::mem::take(&mut self.news);
        self.links.look_at_words(&mut news);
        let (changed, mut told) = (news.len(), 0);
        for (at, word) in news.drain(..) {
            let Meaning { column, by, to } = self.links.meaning(at);
            match to {
                Some(row) => {
                    self.replicas[row].told(column, by, word);
                    told += 1;
                }
                None => {
                    for replica in self.replicas.iter_mut().filter(|replica| replica.id != by) {
                        replica.told(column, by, word);
                        told += 1;
                    }
                }
            }
        }
        self.news = news;
        self.words.note(changed);
        self.work.words += told;
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
                tracing::warn!(len = bytes.len(), "dropped an invalid control message");
                continue;
            };
            self.take_mail(from, mail);
        }
        self.mail = bytes;
        any
    }

    /// The reason why an engine with this version and these constants does not belong to this cluster, if
    /// there is one.
    fn why_refused(&self, version: u16, constants: &[u8]) -> Option<String> {
        if version != WIRE_VERSION {
            return Some(format!(
                "it has version {version} of the memory's layout, and this engine version {WIRE_VERSION}"
            ));
        }
        let Some((theirs, [])) = Constants::decode(constants) else {
            return Some("its configuration cannot be decoded".to_owned());
        };
        self.links.constants.difference(&theirs).map(|difference| difference.to_string())
    }

    /// Logs once that an engine is refused: the engine introduces itself again and again.
    fn refuse(&mut self, (node, engine): (u16, u16), why: String) {
        let topology = self.links.layout.topology();
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
        // An admitted peer may open any session, but may speak for an engine only under that engine's name.
        let sender = self.links.endpoint.fabric.name_of(from);
        let goes_by = |name: String| sender == Some(name);
        match mail {
            Introduction::Hello { version, constants, node, engine, who } => {
                if !goes_by(endpoint_name(node, engine)) {
                    tracing::warn!(
                        node,
                        engine,
                        "refused an engine that does not run under the name it claims"
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
                // The former peer is another incarnation of the engine, or another connection to it, which is over.
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
                let (ours, layout) = (&self.replicas, &self.links.layout);
                let runs =
                    |theirs| layout.topology().has(theirs) && goes_by(layout.endpoint_of(theirs));
                let speaks_for = self.links.met_as(from);
                let met = |theirs: ReplicaId| {
                    let engine = (layout.node_of(theirs), layout.engine_of(theirs));
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
                            let returns = self.links.endpoint.fabric.may_return()
                                && !planted(Mutant::ReturnNotNoticed);
                            if let Some(ours) = self.replicas.iter_mut().find(|r| r.id == to) {
                                if returns {
                                    ours.dead_sessions.remove(&session);
                                }
                                ours.greet(session);
                            }
                        }
                    }
                    Opening::Refused(channel) => {
                        let engine = self.links.engine_of(from);
                        // The reason was logged when this engine was refused.
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
                continue; // The next tick evaluates the value, if it has arrived.
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
