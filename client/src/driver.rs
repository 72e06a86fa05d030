//! Drives many sessions on the caller's thread.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skein_cluster::directory::{Directory, Manifest};
use skein_fabric::any::{AnyFabric, AnyWaker};
use skein_fabric::fork::Process;
use skein_fabric::wait::{Waiter, Waiting};
use skein_fabric::{Fabric, FabricError};
use skein_kvstore::command::Transaction;
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Reply;
use skein_kvstore::slots::{HashSlot, SlotMap};
use skein_multicast::config::Tuning;
use skein_multicast::layout::Layout;
use skein_multicast::session_transport::{
    GroupReply, Of, Presence, QueryKey, SessionTransport, WindowFull,
};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId, SessionId};

pub use skein_multicast::session_transport::SessionKey;

use crate::error::{Error, Unavailability};
use crate::inquiry::Inquiry;
use crate::pending_operations::{Counts, PendingOperations, SessionClose};
use crate::reads::{Next, ReadMode, Reads};

/// Default time that an operation waits for its replies.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Interval between checks of which nodes run, while an operation waits.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Interval at which a message without all its replies is sent again, under the same sequence number. Replicas that
/// come back receive it at once; this covers every other case.
const SEND_AGAIN_EVERY: Duration = Duration::from_secs(1);
/// Time that the close of a session may take to reach the replicas. If it does not, they detect the end of the process.
const CLOSE_SESSIONS_MAX: Duration = Duration::from_millis(250);

/// An operation under way. [`Driver::poll`] returns its ticket when it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub session: SessionKey,
    /// Rises with every operation of the driver.
    pub number: u64,
}

/// The properties of a cluster that a driver depends on.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The replicas and their locations.
    pub layout: Layout,
    pub tuning: Tuning,
    /// Assignment of keys to groups.
    pub slots: SlotMap,
    pub limits: Limits,
    /// How a thread waits for replies.
    pub waiting: Waiting,
}

impl Shape {
    /// Destinations and encoding of `transaction`. Fails if it is over the limits.
    pub(crate) fn plan(&self, transaction: &Transaction) -> Result<Plan, Error> {
        Plan::of(transaction, &self.slots, &self.limits).map_err(Error::before_sending)
    }

    /// Handles the refusal of `plan` by a group whose slot map is `slots`. Adopts the map if it is newer than ours.
    /// Returns the plan for our map, if that is newer than the plan's and the plan guards no range.
    pub(crate) fn follow(&mut self, slots: &SlotMap, plan: &Plan) -> Option<Plan> {
        if slots.epoch > self.slots.epoch {
            self.slots = slots.clone();
        }
        plan.again(&self.slots, &self.limits)?.ok()
    }
}

/// Queries for parts of copies, and their answers that were not taken yet.
#[derive(Default)]
struct Copies {
    under_way: Vec<QueryKey>,
    answers: VecDeque<(QueryKey, Vec<u8>)>,
}

/// Many sessions, each with many operations under way, on one thread and one fabric.
///
/// Nothing happens between calls: the caller calls [`poll`](Self::poll), and then [`wait`](Self::wait) if there was
/// nothing to do. Each operation that was submitted finishes exactly once, with a reply or an error, however its
/// session or the cluster ends.
///
/// ```
/// use std::time::Duration;
/// use skein_client::{Operation, Transaction};
///
/// let cluster = skein_client::local::Cluster::local()?;
/// let mut driver = cluster.driver()?; // or Driver::connect("/path/to/the/cluster")?
/// let sessions: Vec<_> = (0..10).map(|_| driver.open()).collect();
/// let increment = Operation::Increment { key: b"count".to_vec(), by: 1 };
/// for session in &sessions {
///     driver.submit(*session, &Transaction::of(increment.clone()))?;
/// }
/// let mut replies = 0;
/// while driver.under_way() > 0 {
///     let busy = driver.poll(&mut |ticket, result| {
///         assert!(result.is_ok(), "{ticket:?}");
///         replies += 1;
///     })?;
///     if !busy {
///         driver.wait(Duration::from_millis(100));
///     }
/// }
/// assert_eq!(replies, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver<F: Fabric> {
    transport: SessionTransport<F>,
    /// The process that owns the sessions.
    process: Process,
    shape: Shape,
    waiter: Waiter,
    operations: PendingOperations,
    reads: Reads,
    inquiry: Inquiry,
    copies: Copies,
    read_mode: ReadMode,
    timeout: Duration,
    tickets: u64,
    /// Operations whose sessions were closed before they were sent, to be reported by `poll`.
    dropped: Vec<Ticket>,
    refresh_next: Duration,
    send_again_next: Duration,
    /// As of the last refresh.
    presence: Presence,
    broken: Option<Unavailability>,
    /// The directory in which the cluster was found, and how often it had returned to a restore point by then.
    origin: Option<(PathBuf, u32)>,
    // Buffers, kept for reuse.
    messages: Vec<(SessionKey, u64)>,
    senders: Vec<SessionKey>,
    session_closes: Vec<SessionClose>,
}

impl<F: Fabric> Driver<F> {
    /// A driver without sessions, on a fabric of its own.
    pub fn new(fabric: F, shape: Shape) -> Self {
        let waiter = Waiter::new(shape.waiting);
        let tree = shape.layout.tree();
        let inquiry = Inquiry::new(shape.layout.topology().replicas, tree.is_some());
        let operations = PendingOperations::along(tree.as_ref());
        Self {
            transport: SessionTransport::new(fabric, &shape.layout, shape.tuning),
            process: Process::current(),
            shape,
            waiter,
            operations,
            reads: Reads::default(),
            inquiry,
            copies: Copies::default(),
            read_mode: ReadMode::default(),
            timeout: TIMEOUT_DEFAULT,
            tickets: 0,
            dropped: Vec::new(),
            refresh_next: Duration::ZERO,
            send_again_next: Duration::ZERO,
            presence: Presence::default(),
            broken: None,
            origin: None,
            messages: Vec::new(),
            senders: Vec::new(),
            session_closes: Vec::new(),
        }
    }

    /// The shape of the cluster, with the newest slot map that the driver has received.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Time that operations wait for their replies.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sets the time that operations wait for their replies if they are submitted from now on. It is
    /// [`TIMEOUT_DEFAULT`] initially.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Mode of operations that only read.
    pub fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// Sets the mode of operations that only read and are submitted from now on.
    pub fn set_read_mode(&mut self, mode: ReadMode) {
        self.read_mode = mode;
    }

    /// Number of operations that a session may have under way.
    pub fn window(&self) -> usize {
        self.shape.tuning.window
    }

    /// Opens a session. Operations can be submitted at once; they are sent when every group has accepted the session.
    pub fn open(&mut self) -> SessionKey {
        self.open_as(SessionId::from_random(rand::random()))
    }

    /// Same as [`open`](Self::open), with a given name, so that a run can be repeated exactly. No two sessions of a
    /// cluster may ever have the same name.
    ///
    /// # Panics
    /// If the name is that of a node's own message.
    pub fn open_as(&mut self, id: SessionId) -> SessionKey {
        let key = self.transport.open(id);
        self.operations.opening(key, Plan::open(&self.shape.slots));
        let now = self.transport.fabric().now();
        self.refresh(now);
        self.send(key);
        key
    }

    /// Submits `transaction`. [`poll`](Self::poll) returns its result, once. If this returns an error, the operation
    /// was not sent and has no effect.
    pub fn submit(
        &mut self,
        session: SessionKey,
        transaction: &Transaction,
    ) -> Result<Ticket, Error> {
        self.submit_within(session, transaction, self.timeout)
    }

    /// Same as [`submit`](Self::submit), with a timeout of its own.
    pub fn submit_within(
        &mut self,
        session: SessionKey,
        transaction: &Transaction,
        timeout: Duration,
    ) -> Result<Ticket, Error> {
        self.ready(session)?;
        let plan = self.shape.plan(transaction)?;
        Ok(self.start(session, plan, self.read_mode, timeout, timeout))
    }

    /// Same as [`submit_within`](Self::submit_within), with a mode of its own if the transaction only reads.
    ///
    /// ```
    /// use skein_client::{Operation, ReadMode, TIMEOUT_DEFAULT, Transaction};
    ///
    /// let cluster = skein_client::local::Cluster::local()?;
    /// let mut driver = cluster.driver()?;
    /// let session = driver.open();
    /// let get = Transaction::of(Operation::Get { key: b"key".to_vec() });
    /// driver.submit_in_mode(session, &get, ReadMode::Stale, TIMEOUT_DEFAULT)?;
    /// while driver.under_way() > 0 {
    ///     driver.poll(&mut |_, result| assert!(result.is_ok()))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_in_mode(
        &mut self,
        session: SessionKey,
        transaction: &Transaction,
        mode: ReadMode,
        timeout: Duration,
    ) -> Result<Ticket, Error> {
        self.ready(session)?;
        let plan = self.shape.plan(transaction)?;
        Ok(self.start(session, plan, mode, timeout, timeout))
    }

    /// Submits a plan that has `left` of the `allowed` time.
    pub(crate) fn submit_plan(
        &mut self,
        session: SessionKey,
        plan: Plan,
        mode: ReadMode,
        left: Duration,
        allowed: Duration,
    ) -> Result<Ticket, Error> {
        self.ready(session)?;
        // The plan may have been made for an older slot map than ours.
        let again = plan.again(&self.shape.slots, &self.shape.limits).and_then(Result::ok);
        Ok(self.start(session, again.unwrap_or(plan), mode, left, allowed))
    }

    /// Gives an empty hash slot to another group. For simulations only: a recreated group starts with the initial slot
    /// map (see `kvstore/src/machine/moves.rs`).
    #[doc(hidden)]
    pub fn move_slot(
        &mut self,
        session: SessionKey,
        slot: HashSlot,
        to: GroupId,
    ) -> Result<Ticket, Error> {
        self.ready(session)?;
        let plan = Plan::move_slot(&self.shape.slots, slot, to);
        Ok(self.start(session, plan, ReadMode::Ordered, self.timeout, self.timeout))
    }

    /// Asks every group for its [totals](skein_kvstore::backup::Mark) at one place in the order: at this operation's, in
    /// front of which all operations that were acknowledged before are over.
    pub fn mark(&mut self, session: SessionKey) -> Result<Ticket, Error> {
        self.ready(session)?;
        let plan = Plan::mark(&self.shape.slots);
        Ok(self.start(session, plan, ReadMode::Ordered, self.timeout, self.timeout))
    }

    /// The session's name in the cluster.
    pub(crate) fn session_id(&self, session: SessionKey) -> SessionId {
        self.transport.id(session)
    }

    /// The replica that is taken for the leader of `group`.
    pub(crate) fn leader(&self, group: GroupId) -> ReplicaId {
        self.transport.leader(group)
    }

    /// The present time, by the clock of the fabric.
    pub(crate) fn now(&self) -> Duration {
        self.transport.turned_at()
    }

    /// Asks a replica for a part of a copy, and no other one.
    pub(crate) fn ask_for_copy(
        &mut self,
        session: SessionKey,
        of: ReplicaId,
        query: &[u8],
    ) -> QueryKey {
        let now = self.transport.fabric().now();
        let key = self.transport.query(now, session, of.group, Of::Replica(of.slot), query);
        self.copies.under_way.push(key);
        key
    }

    /// Takes an answer to [`ask_for_copy`](Self::ask_for_copy).
    pub(crate) fn take_copy(&mut self) -> Option<(QueryKey, Vec<u8>)> {
        self.copies.answers.pop_front()
    }

    /// Forgets a query for a part, whose answer is no longer needed.
    pub(crate) fn forget_copy(&mut self, query: QueryKey) {
        self.copies.under_way.retain(|other| *other != query);
        self.transport.forget_query(query);
    }

    /// Same as [`submit_plan`](Self::submit_plan), for a session that is [ready](Self::ready).
    fn start(
        &mut self,
        session: SessionKey,
        plan: Plan,
        mode: ReadMode,
        left: Duration,
        allowed: Duration,
    ) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket { session, number: self.tickets };
        let now = self.transport.fabric().now();
        let deadline = now.saturating_add(left);
        self.refresh(now);
        let one_group = !plan.destinations().has_several();
        let of = match mode {
            // While no node can be reached, a read is ordered, and waits for one.
            _ if self.presence.nobody || !plan.only_reads() => None,
            ReadMode::Confirmed => one_group.then_some(Of::Leader),
            ReadMode::Ordered => None,
            ReadMode::Lease => Some(Of::LeaseHolder),
            ReadMode::Stale => Some(Of::Anybody),
        };
        let Some(of) = of else {
            self.operations.submit(ticket, plan, deadline, allowed);
            self.send(session);
            return ticket;
        };
        self.reads.begin(ticket, plan, of, deadline, allowed);
        self.ask(now, ticket);
        ticket
    }

    /// Does all pending work, without waiting, and calls `finished` for each operation that has ended. Returns
    /// whether there was anything to do. An error means that the driver cannot be used any more; every operation has
    /// finished before it.
    pub fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        for ticket in self.dropped.drain(..) {
            finished(ticket, Err(Error::Closed));
        }
        if !self.process.is_current() && self.broken.is_none() {
            return Err(self.end(Unavailability::Forked, finished));
        }
        if let Some(why) = &self.broken {
            return Err(Error::Unavailable { why: why.clone(), sent: false });
        }
        let (operations, settled, shape) =
            (&mut self.operations, &mut self.messages, &mut self.shape);
        let turned = self.transport.turn(&mut |reply| {
            let GroupReply { session, sequence, group, bytes } = reply;
            let mut again = |slots: &SlotMap, plan: &Plan| shape.follow(slots, plan);
            if operations.reply(session, sequence, group, bytes, &mut again, finished) {
                settled.push((session, sequence));
            }
        });
        for (session, sequence) in self.messages.drain(..) {
            self.transport.settle(session, sequence);
        }
        let mut busy = match turned {
            Ok(busy) => busy,
            Err(error) => return Err(self.fail(&error, finished)),
        };
        self.take_answers(finished);
        if busy {
            self.waiter.worked(self.transport.fabric());
        }
        let counts = self.operations.counts();
        if counts != Counts::default() || self.reads.len() > 0 {
            let now = self.transport.turned_at();
            self.refresh(now);
            busy |= self.send_queued();
            if self.presence.nobody {
                let refused = self.transport.refusal().map(|why| {
                    let lacks = why.is_lack();
                    let why = why.to_string();
                    if lacks { Unavailability::Lacking(why) } else { Unavailability::Refused(why) }
                });
                let gone = if self.transport.fabric().may_return() {
                    Unavailability::Unreachable
                } else {
                    Unavailability::Stopped
                };
                let why = match self.rolled_back() {
                    Some(why) => {
                        self.broken = Some(why.clone());
                        why
                    }
                    None => refused.unwrap_or(gone),
                };
                self.operations.fail(&why, finished);
                self.fail_reads(None, &Error::Unavailable { why, sent: false }, finished);
            }
            let not_serving = self.presence.without_quorum.union(self.inquiry.not_serving());
            self.operations.expire(now, not_serving, finished);
            let transport = &mut self.transport;
            self.reads.expire(now, self.presence.without_quorum, finished, &mut |query| {
                transport.forget_query(query);
            });
            busy |= self.close_sessions(now);
        }
        Ok(busy)
    }

    /// Says that the cluster has returned to a restore point since it was found, and that something may be lost. One that
    /// was stopped with a last point has lost nothing but its sessions.
    fn rolled_back(&self) -> Option<Unavailability> {
        let (dir, generation) = self.origin.as_ref()?;
        let manifest = Directory::at(dir).ok()?.manifest().ok()?;
        let point = manifest.rolled_back_since(*generation)?;
        Some(Unavailability::RolledBack { point })
    }

    /// The cluster was found in the directory `dir`.
    pub(crate) fn found_in(&mut self, dir: &Path, cluster: &Manifest) {
        self.origin = Some((dir.to_owned(), cluster.generation()));
    }

    /// Waits a little after a [`poll`](Self::poll) that found nothing to do: spins, yields or parks, as the cluster's
    /// configuration says, and never longer than `longest` or the next timeout.
    pub fn wait(&mut self, longest: Duration) {
        self.wait_while(longest, &|| true);
    }

    /// Same as [`wait`](Self::wait), but sleeps only while `undisturbed` returns true. A thread that changes its result
    /// must wake the fabric.
    pub(crate) fn wait_while(&mut self, longest: Duration, undisturbed: &dyn Fn() -> bool) {
        let now = self.transport.fabric().now();
        let mut longest = longest;
        let counts = self.operations.counts();
        if counts.waiting > 0 || counts.closing > 0 || self.reads.len() > 0 {
            longest = longest.min(self.refresh_next.saturating_sub(now));
        }
        for earliest in self.operations.earliest().into_iter().chain(self.reads.earliest()) {
            longest = longest.min(earliest.saturating_sub(now));
        }
        self.transport.wait(&mut self.waiter, longest, undisturbed);
    }

    /// Number of operations that were submitted and have not finished.
    pub fn under_way(&self) -> usize {
        self.operations.counts().waiting + self.reads.len() + self.dropped.len()
    }

    /// Closes a session. Operations that were sent still finish with their results; those that were not finish with
    /// [`Error::Closed`]. [`poll`](Self::poll) completes the close.
    pub fn close(&mut self, session: SessionKey) {
        let longest = self.timeout.saturating_add(CLOSE_SESSIONS_MAX);
        let deadline = self.transport.fabric().now().saturating_add(longest);
        self.operations.close(session, deadline, &mut self.dropped);
        let mut dropped = std::mem::take(&mut self.dropped);
        let mut drop = |ticket, _: Result<Reply, Error>| dropped.push(ticket);
        self.fail_reads(Some(session), &Error::Closed, &mut drop);
        self.dropped = dropped;
    }

    /// Number of closed sessions whose close is not complete yet.
    pub fn closing(&self) -> usize {
        self.operations.counts().closing
    }

    /// Ends without closing the sessions, as if the process were killed. The replicas detect that by themselves.
    pub fn abandon(mut self) {
        self.broken = Some(Unavailability::Stopped);
    }

    /// Abandons all operations and closes all sessions, so that the replicas need not detect their end. Waits a little
    /// for that, but not at all for a cluster that is gone.
    fn leave(&mut self) {
        if self.broken.is_some() || !self.process.is_current() {
            return;
        }
        let deadline = self.transport.fabric().now().saturating_add(CLOSE_SESSIONS_MAX);
        self.operations.fail(&Unavailability::Stopped, &mut |_, _| ());
        self.fail_reads(None, &Error::Closed, &mut |_, _| ());
        for session in self.operations.sessions().collect::<Vec<_>>() {
            self.operations.close(session, deadline, &mut self.dropped);
        }
        let mut refresh_next = self.refresh_next;
        while self.closing() > 0 && self.broken.is_none() {
            if !self.poll(&mut |_, _| ()).is_ok_and(|busy| busy) {
                self.wait(CHECK_EVERY);
            }
            let now = self.transport.fabric().now();
            if now >= refresh_next {
                refresh_next = now + CHECK_EVERY;
                if !self.transport.presence().without_quorum.is_empty() {
                    break;
                }
            }
        }
    }

    /// Fails unless the session accepts another operation.
    fn ready(&self, session: SessionKey) -> Result<(), Error> {
        let forked = || (!self.process.is_current()).then_some(&Unavailability::Forked);
        if let Some(why) = self.broken.as_ref().or_else(forked) {
            return Err(Error::Unavailable { why: why.clone(), sent: false });
        }
        if self.operations.waiting(session)? + self.reads.of(session) >= self.window() {
            return Err(Error::WindowFull { window: self.window() });
        }
        Ok(())
    }

    /// Queries the groups of a read whose answers are missing.
    fn ask(&mut self, now: Duration, ticket: Ticket) {
        let transport = &mut self.transport;
        self.reads.ask(ticket, |group, of, question| {
            transport.query(now, ticket.session, group, of, question)
        });
    }

    /// Takes the answers to reads that have arrived.
    fn take_answers(&mut self, finished: &mut dyn FnMut(Ticket, Result<Reply, Error>)) {
        while let Some((query, answer)) = self.transport.take_answer() {
            let copies = &mut self.copies.under_way;
            if let Some(at) = copies.iter().position(|other| *other == query) {
                copies.swap_remove(at);
                self.copies.answers.push_back((query, answer));
                continue;
            }
            if self.inquiry.answer(query, &answer) {
                self.transport.give_back(answer);
                continue;
            }
            let next = self.reads.answer(query, &answer, finished);
            self.transport.give_back(answer);
            match next {
                Some((ticket, Next::Repeat)) => self.ask(self.transport.turned_at(), ticket),
                Some((ticket, Next::Order { plan, deadline, allowed })) => {
                    self.operations.submit(ticket, plan, deadline, allowed);
                    self.send(ticket.session);
                }
                Some((_, Next::Nothing)) | None => {}
            }
        }
    }

    fn fail_reads(
        &mut self,
        session: Option<SessionKey>,
        error: &Error,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) {
        let transport = &mut self.transport;
        self.reads.fail(session, error, finished, &mut |query| transport.forget_query(query));
    }

    /// Multicasts the operations that the session has queued, as far as its window allows.
    fn send(&mut self, session: SessionKey) -> bool {
        let mut sent = false;
        while let Some((next, plan)) = self.operations.next(session, self.presence.without_quorum) {
            match self.transport.multicast(session, plan.destinations(), plan.request()) {
                Ok(sequence) => self.operations.sent(session, next, sequence),
                Err(WindowFull) => break,
            }
            sent = true;
        }
        sent
    }

    fn send_queued(&mut self) -> bool {
        if self.operations.counts().queued == 0 {
            return false;
        }
        let mut senders = std::mem::take(&mut self.senders);
        senders.extend(self.operations.senders());
        let sent = senders.drain(..).fold(false, |sent, session| self.send(session) | sent);
        self.senders = senders;
        sent
    }

    /// Checks from time to time which nodes run. While a group is without a quorum, messages to it are held back: they
    /// would only wait there, and delay the other groups that they go to.
    fn refresh(&mut self, now: Duration) {
        if now < self.refresh_next && !self.operations.is_due(now) {
            return;
        }
        self.refresh_next = now + CHECK_EVERY;
        self.presence = self.transport.presence();
        self.inquire(now);
        if now >= self.send_again_next {
            self.send_again_next = now + SEND_AGAIN_EVERY;
            self.operations.stale(&mut self.messages);
            for (session, sequence) in self.messages.drain(..) {
                self.transport.retry(session, sequence);
            }
        }
    }

    /// Asks the groups for which late operations wait whether they serve.
    fn inquire(&mut self, now: Duration) {
        let late = self.operations.late(now);
        if late.is_none() && self.inquiry.is_over() {
            return;
        }
        let groups = late.map_or(GroupSet::EMPTY, |(_, groups)| groups);
        self.ask_only(groups);
        let Some((session, groups)) = late else { return };
        let transport = &mut self.transport;
        self.inquiry.look(session, groups, &mut |session, ReplicaId { group, slot }| {
            transport.query(now, session, group, Of::Standing(slot), &[])
        });
    }

    /// Asks no groups but these whether they serve.
    fn ask_only(&mut self, groups: GroupSet) {
        let transport = &mut self.transport;
        self.inquiry.keep(groups, &mut |query| transport.forget_query(query));
    }

    /// Sends the last messages of closing sessions, and forgets the sessions that are over.
    fn close_sessions(&mut self, now: Duration) -> bool {
        if self.operations.counts().closing == 0 {
            return false;
        }
        let mut session_closes = std::mem::take(&mut self.session_closes);
        self.operations.session_closes(now, &mut session_closes);
        let mut busy = false;
        for close in session_closes.drain(..) {
            match close {
                SessionClose::Send(key) => {
                    let plan = Plan::close(&self.shape.slots);
                    let sent = self.transport.multicast(key, plan.destinations(), plan.request());
                    if let Ok(sequence) = sent {
                        self.operations.ending(key, sequence, plan);
                        busy = true;
                    }
                }
                SessionClose::Forget(key) => {
                    self.ask_only(GroupSet::EMPTY);
                    self.operations.forget(key);
                    self.transport.close(key);
                    busy = true;
                }
            }
        }
        self.session_closes = session_closes;
        busy
    }

    fn fail(
        &mut self,
        error: &FabricError,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Error {
        self.end(Unavailability::Fabric(error.to_string()), finished)
    }

    /// Ends every operation. The driver cannot be used any more.
    fn end(
        &mut self,
        why: Unavailability,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Error {
        self.operations.fail(&why, finished);
        self.broken = Some(why.clone());
        let error = Error::Unavailable { why, sent: false };
        self.fail_reads(None, &error, finished);
        error
    }
}

impl Driver<AnyFabric> {
    /// Handle by which other threads wake the driver while it waits.
    pub(crate) fn waker(&mut self) -> AnyWaker {
        self.transport.fabric().waker()
    }
}

impl<F: Fabric> Drop for Driver<F> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.leave();
        }
    }
}
