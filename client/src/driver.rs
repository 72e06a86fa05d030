//! Many sessions on the caller's thread.

use std::time::Duration;

use skein_fabric::any::{AnyFabric, AnyWaker};
use skein_fabric::fork::Process;
use skein_fabric::wait::{Waiter, Waiting};
use skein_fabric::{Fabric, FabricError};
use skein_kvstore::command::Transaction;
use skein_kvstore::limits::Limits;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Reply;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::{Topology, Tuning};
use skein_multicast::session_transport::{GroupReply, Of, Presence, SessionTransport, WindowFull};
use skein_protocol::ids::SessionId;

pub use skein_multicast::session_transport::SessionKey;

use crate::error::{Error, Unavailability};
use crate::pending_operations::{Counts, PendingOperations, SessionClose};
use crate::reads::{Next, ReadMode, Reads};

/// How long an operation waits for its replies unless told otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// How often to ask, while somebody waits, which nodes run.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A message without all its replies is sent again, under the same name, this often. Replicas that
/// come back are sent it at once; this is for what nobody has thought of.
const SEND_AGAIN_EVERY: Duration = Duration::from_secs(1);
/// How long a session that is being closed may take to say so to the replicas. They find out by
/// themselves if it does not, when the process ends.
const FAREWELL_MAX: Duration = Duration::from_millis(250);

/// An operation under way: what [`Driver::poll`] names it by when it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The session it was submitted to.
    pub session: SessionKey,
    /// Rises with every operation of the driver.
    pub number: u64,
}

/// What a driver must know of the cluster it speaks to.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Which replicas there are.
    pub topology: Topology,
    /// The sizes of the memory shared with them.
    pub tuning: Tuning,
    /// Which group owns which keys.
    pub slots: SlotMap,
    /// What a transaction may hold.
    pub limits: Limits,
    /// How to wait for replies.
    pub waiting: Waiting,
}

impl Shape {
    /// Where `transaction` goes and in which bytes, unless it is over the limits.
    pub(crate) fn plan(&self, transaction: &Transaction) -> Result<Plan, Error> {
        Plan::of(transaction, &self.slots, &self.limits).map_err(Error::before_sending)
    }
}

/// Many sessions, each with many operations under way, on one thread and one fabric.
///
/// Nothing happens between calls: whoever drives it calls [`poll`](Self::poll), and
/// [`wait`](Self::wait) when there was nothing to do. Each operation that was submitted finishes
/// exactly once, with a reply or an error, however its session or the cluster ends.
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
    /// The one that speaks for the sessions.
    process: Process,
    shape: Shape,
    waiter: Waiter,
    operations: PendingOperations,
    reads: Reads,
    read_mode: ReadMode,
    timeout: Duration,
    tickets: u64,
    /// Of sessions that were closed before these were sent.
    dropped: Vec<Ticket>,
    refresh_next: Duration,
    send_again_next: Duration,
    /// As it was when last looked.
    presence: Presence,
    broken: Option<Unavailability>,
    // Kept to be reused.
    messages: Vec<(SessionKey, u64)>,
    senders: Vec<SessionKey>,
    session_closes: Vec<SessionClose>,
}

impl<F: Fabric> Driver<F> {
    /// A driver without sessions, on a fabric of its own.
    pub fn new(fabric: F, shape: Shape) -> Self {
        let waiter = Waiter::new(shape.waiting);
        Self {
            transport: SessionTransport::new(fabric, shape.topology, shape.tuning),
            process: Process::current(),
            shape,
            waiter,
            operations: PendingOperations::default(),
            reads: Reads::default(),
            read_mode: ReadMode::default(),
            timeout: TIMEOUT_DEFAULT,
            tickets: 0,
            dropped: Vec::new(),
            refresh_next: Duration::ZERO,
            send_again_next: Duration::ZERO,
            presence: Presence::default(),
            broken: None,
            messages: Vec::new(),
            senders: Vec::new(),
            session_closes: Vec::new(),
        }
    }

    /// The shape of the cluster, as the driver was told it.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How long operations wait for their replies.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Operations submitted from now on wait this long for their replies:
    /// [`TIMEOUT_DEFAULT`] to begin with.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// How operations that only read are done.
    pub fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// Operations submitted from now on that only read are done so.
    pub fn set_read_mode(&mut self, mode: ReadMode) {
        self.read_mode = mode;
    }

    /// How many operations a session may have under way.
    pub fn window(&self) -> usize {
        self.shape.tuning.window
    }

    /// Opens a session. Operations can be submitted at once; they are sent when every group has
    /// said that it knows the session.
    pub fn open(&mut self) -> SessionKey {
        self.open_as(SessionId(rand::random()))
    }

    /// As [`open`](Self::open), under a name made of these bits: for a run that is to be the same each
    /// time. No two sessions of a cluster may ever have one name.
    pub fn open_as(&mut self, random: SessionId) -> SessionKey {
        let key = self.transport.open(random);
        self.operations.opening(key, Plan::open(&self.shape.slots));
        let now = self.transport.fabric().now();
        self.refresh(now);
        self.send(key);
        key
    }

    /// Sends `transaction` on its way. How it ends comes out of [`poll`](Self::poll), once.
    /// An error here is of an operation that was not sent and has no effect.
    pub fn submit(
        &mut self,
        session: SessionKey,
        transaction: &Transaction,
    ) -> Result<Ticket, Error> {
        self.submit_within(session, transaction, self.timeout)
    }

    /// As [`submit`](Self::submit), with a time-out of its own.
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

    /// As [`submit_within`](Self::submit_within); if it only reads, it is done in that mode.
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

    /// Sends a plan on its way that has `left` of the `allowed` time.
    pub(crate) fn submit_plan(
        &mut self,
        session: SessionKey,
        plan: Plan,
        mode: ReadMode,
        left: Duration,
        allowed: Duration,
    ) -> Result<Ticket, Error> {
        self.ready(session)?;
        Ok(self.start(session, plan, mode, left, allowed))
    }

    /// The same, of a session that is [ready](Self::ready).
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
            // Whoever comes to be there is asked in order.
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

    /// Does what there is to do, without waiting, and calls `finished` for each operation that has
    /// come to its end. Returns whether there was anything to do. An error means that the memory
    /// shared with the cluster cannot be used any more; every operation has finished before it.
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
        let (operations, settled) = (&mut self.operations, &mut self.messages);
        let turned = self.transport.turn(&mut |reply| {
            let GroupReply { session, sequence, group, bytes } = reply;
            if operations.reply(session, sequence, group, bytes, finished) {
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
                let why = refused.unwrap_or(gone);
                self.operations.fail(&why, finished);
                self.fail_reads(None, &Error::Unavailable { why, sent: false }, finished);
            }
            self.operations.expire(now, self.presence.without_quorum, finished);
            let access = &mut self.transport;
            self.reads.expire(now, self.presence.without_quorum, finished, &mut |query| {
                access.forget_query(query);
            });
            busy |= self.say_farewell(now);
        }
        Ok(busy)
    }

    /// Waits a little, after a [`poll`](Self::poll) that found nothing to do: spins, yields or
    /// parks, as the cluster's configuration says, and never longer than `longest` or the next
    /// time-out.
    pub fn wait(&mut self, longest: Duration) {
        self.wait_while(longest, &|| true);
    }

    /// As [`wait`](Self::wait), and sleeps only while `undisturbed` says so. Whoever changes that
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

    /// The operations that were submitted and are not finished.
    pub fn under_way(&self) -> usize {
        self.operations.counts().waiting + self.reads.len() + self.dropped.len()
    }

    /// Ends a session. Operations that were sent still finish as they would have; those that were
    /// not finish as [`Error::Closed`]. Goes on in [`poll`](Self::poll).
    pub fn close(&mut self, session: SessionKey) {
        let longest = self.timeout.saturating_add(FAREWELL_MAX);
        let deadline = self.transport.fabric().now().saturating_add(longest);
        self.operations.close(session, deadline, &mut self.dropped);
        let mut dropped = std::mem::take(&mut self.dropped);
        let mut drop = |ticket, _: Result<Reply, Error>| dropped.push(ticket);
        self.fail_reads(Some(session), &Error::Closed, &mut drop);
        self.dropped = dropped;
    }

    /// How many sessions that were closed are not over yet.
    pub fn closing(&self) -> usize {
        self.operations.counts().closing
    }

    /// Ends without a word, as a process that is killed does. The replicas find out by themselves.
    pub fn abandon(mut self) {
        self.broken = Some(Unavailability::Stopped);
    }

    /// Abandons all operations and closes all sessions, so that the replicas need not find out by
    /// themselves that they are over. Waits for that a little; not at all for a cluster that is gone.
    fn leave(&mut self) {
        if self.broken.is_some() || !self.process.is_current() {
            return;
        }
        let deadline = self.transport.fabric().now().saturating_add(FAREWELL_MAX);
        self.operations.fail(&Unavailability::Stopped, &mut |_, _| ());
        self.fail_reads(None, &Error::Closed, &mut |_, _| ());
        for session in self.operations.sessions().collect::<Vec<_>>() {
            self.operations.close(session, deadline, &mut self.dropped);
        }
        let mut refresh_next = self.refresh_next;
        while self.closing() > 0 && self.broken.is_none() {
            if !self.poll(&mut |_, _| ()).is_ok_and(|busy| busy) {
                self.wait(LOOK_EVERY);
            }
            let now = self.transport.fabric().now();
            if now >= refresh_next {
                refresh_next = now + LOOK_EVERY;
                if !self.transport.presence().without_quorum.is_empty() {
                    break;
                }
            }
        }
    }

    /// Whether the session takes another operation.
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

    /// Asks the groups of a read what is missing.
    fn ask(&mut self, now: Duration, ticket: Ticket) {
        let access = &mut self.transport;
        self.reads.ask(ticket, |group, of, question| {
            access.query(now, ticket.session, group, of, question)
        });
    }

    /// Takes the answers to reads that are in.
    fn take_answers(&mut self, finished: &mut dyn FnMut(Ticket, Result<Reply, Error>)) {
        while let Some((query, answer)) = self.transport.take_answer() {
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
        let access = &mut self.transport;
        self.reads.fail(session, error, finished, &mut |query| access.forget_query(query));
    }

    /// Multicasts what the session has queued, as far as its window allows.
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

    /// Now and then, asks which nodes run. While a group is without a quorum, what it would be sent
    /// is held back: there it would only wait, and hold up the other groups that it goes to.
    fn refresh(&mut self, now: Duration) {
        if now < self.refresh_next && !self.operations.is_due(now) {
            return;
        }
        self.refresh_next = now + LOOK_EVERY;
        self.presence = self.transport.presence();
        if now >= self.send_again_next {
            self.send_again_next = now + SEND_AGAIN_EVERY;
            self.operations.stale(&mut self.messages);
            for (session, sequence) in self.messages.drain(..) {
                self.transport.retry(session, sequence);
            }
        }
    }

    /// Sends the last messages of closing sessions, and forgets those that are over.
    fn say_farewell(&mut self, now: Duration) -> bool {
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

    /// Ends every operation. Nothing can be done any more.
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
    /// What other threads wake it with while it waits.
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
