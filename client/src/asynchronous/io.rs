//! The thread that drives the sessions of asynchronous clients.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use skein_cluster::directory::Directory;
use skein_fabric::any::{AnyFabric, AnyWaker};
use skein_fabric::fork::Process;
use skein_fabric::wait::ask_for_short_slices;
use skein_kvstore::plan::Plan;
use skein_kvstore::reply::Reply;
use skein_protocol::ids::GroupSet;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::connect::ConnectError;
use crate::driver::{Driver, SessionKey, Shape};
use crate::error::{Error, Unavailability};
use crate::reads::ReadMode;

/// Maximum time that the thread sleeps. Replicas and clients wake it earlier.
const NAP_MAX: Duration = Duration::from_millis(500);
/// Alarms that may be set before those whose receivers are gone are removed.
const ALARMS_MIN: usize = 256;

/// Handle of the thread, shared by its clients. The thread ends when the last client drops it.
pub(crate) struct Io {
    /// The process that runs the thread: a forked child has no such thread.
    process: Process,
    commands: Sender<Command>,
    told: Arc<Told>,
    waker: Mutex<AnyWaker>,
    shape: Arc<Known>,
    sessions: AtomicU64,
}

/// The shape of the cluster, as the thread's driver was told it last.
type Known = RwLock<Arc<Shape>>;

/// State that the thread checks before it sleeps.
#[derive(Default)]
struct Told {
    /// Commands that were sent and not taken yet.
    commands: AtomicUsize,
    /// No further command will be sent.
    abandoned: AtomicBool,
}

pub(super) enum Command {
    Open {
        session: u64,
    },
    Submit(Box<Call>),
    /// Send to `ring` at that time, unless its receiver is gone.
    Alarm {
        at: Instant,
        ring: oneshot::Sender<()>,
    },
    /// Whether the cluster that was connected to still runs in its directory.
    Check {
        answer: oneshot::Sender<bool>,
    },
    Close {
        session: u64,
    },
}

/// An operation on its way to the thread.
pub(super) struct Call {
    pub(super) session: u64,
    pub(super) plan: Plan,
    pub(super) mode: ReadMode,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) answer: oneshot::Sender<Result<Reply, Error>>,
    /// Released when the operation has ended.
    pub(super) room: OwnedSemaphorePermit,
}

impl Io {
    /// Starts a thread for the cluster in `dir`.
    pub(super) async fn connect(dir: PathBuf) -> Result<Arc<Self>, ConnectError> {
        let (report, reported) = oneshot::channel();
        let (commands, received) = channel();
        let told = Arc::<Told>::default();
        let inbox = Inbox { received, told: Arc::clone(&told) };
        let start = move || {
            let found = Directory::connect(&dir).map_err(ConnectError::from);
            let made = found.and_then(|found| Ok((Driver::to(&found)?, found.manifest)));
            let (mut driver, manifest) = match made {
                Ok(made) => made,
                // The caller may be gone.
                Err(error) => return drop(report.send(Err(error))),
            };
            driver.found_in(&dir, &manifest);
            let current = move || {
                Directory::connect(&dir)
                    .is_ok_and(|found| found.manifest.cluster == manifest.cluster)
            };
            let shape = known(&driver);
            if report.send(Ok((Arc::clone(&shape), driver.waker()))).is_ok() {
                Thread::new(driver, shape, inbox, Box::new(current)).run();
            }
        };
        spawn(start)?;
        let ended = |_| ConnectError::Thread("it ended at once".to_owned());
        let (shape, waker) = reported.await.map_err(ended)??;
        Ok(Self::new(commands, told, waker, shape))
    }

    /// Starts a thread for `driver`.
    #[cfg(feature = "local")]
    pub(crate) fn over(mut driver: Driver<AnyFabric>) -> Result<Arc<Self>, ConnectError> {
        let (commands, received) = channel();
        let told = Arc::<Told>::default();
        let inbox = Inbox { received, told: Arc::clone(&told) };
        let (shape, waker) = (known(&driver), driver.waker());
        let its = Arc::clone(&shape);
        spawn(move || Thread::new(driver, its, inbox, Box::new(|| true)).run())?;
        Ok(Self::new(commands, told, waker, shape))
    }

    fn new(
        commands: Sender<Command>,
        told: Arc<Told>,
        waker: AnyWaker,
        shape: Arc<Known>,
    ) -> Arc<Self> {
        let (waker, sessions) = (Mutex::new(waker), AtomicU64::new(0));
        Arc::new(Self { process: Process::current(), commands, told, waker, shape, sessions })
    }

    pub(super) fn shape(&self) -> Arc<Shape> {
        Arc::clone(&self.shape.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a session. Its number is chosen here, so that the caller need not wait for it.
    pub(super) fn open(&self) -> u64 {
        let session = self.sessions.fetch_add(1, Ordering::Relaxed);
        // If the thread has ended, the session's first operation reports it.
        let _ = self.tell(Command::Open { session });
        session
    }

    pub(super) fn tell(&self, command: Command) -> Result<(), Error> {
        if !self.process.is_current() {
            return Err(Error::Unavailable { why: Unavailability::Forked, sent: false });
        }
        self.told.commands.fetch_add(1, Ordering::SeqCst);
        self.commands.send(command).map_err(|_| self.ended())?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).wake();
    }

    /// The error of an operation if the thread has ended, which happens early only by a panic.
    #[expect(clippy::unused_self, reason = "it speaks of this thread")]
    pub(super) fn ended(&self) -> Error {
        let why = Unavailability::Fabric("the client's thread has ended".to_owned());
        Error::Unavailable { why, sent: true }
    }

    pub(super) async fn is_current(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.tell(Command::Check { answer }).is_ok() && answered.await.unwrap_or(false)
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.told.abandoned.store(true, Ordering::SeqCst);
            self.wake();
        }
    }
}

fn known(driver: &Driver<AnyFabric>) -> Arc<Known> {
    Arc::new(RwLock::new(Arc::new(driver.shape().clone())))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> Result<(), ConnectError> {
    let body = || {
        ask_for_short_slices();
        body();
    };
    let thread = std::thread::Builder::new().name("skein-client".to_owned()).spawn(body);
    thread.map(drop).map_err(|error| ConnectError::Thread(error.to_string()))
}

/// The thread's end of the commands' channel.
struct Inbox {
    received: Receiver<Command>,
    told: Arc<Told>,
}

impl Inbox {
    fn take(&self) -> Option<Command> {
        let command = self.received.try_recv().ok()?;
        self.told.commands.fetch_sub(1, Ordering::SeqCst);
        Some(command)
    }

    fn is_empty(&self) -> bool {
        self.told.commands.load(Ordering::SeqCst) == 0 && !self.is_abandoned()
    }

    fn is_abandoned(&self) -> bool {
        self.told.abandoned.load(Ordering::SeqCst)
    }
}

struct Thread {
    driver: Driver<AnyFabric>,
    shape: Arc<Known>,
    /// Of the slot map there.
    epoch: u32,
    inbox: Inbox,
    current: Box<dyn Fn() -> bool>,
    sessions: HashMap<u64, SessionKey>,
    calls: HashMap<u64, (oneshot::Sender<Result<Reply, Error>>, OwnedSemaphorePermit)>,
    alarms: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    alarms_set: u64,
    alarms_max: usize,
}

impl Thread {
    fn new(
        driver: Driver<AnyFabric>,
        shape: Arc<Known>,
        inbox: Inbox,
        current: Box<dyn Fn() -> bool>,
    ) -> Self {
        Self {
            epoch: driver.shape().slots.epoch,
            driver,
            shape,
            inbox,
            current,
            sessions: HashMap::new(),
            calls: HashMap::new(),
            alarms: BTreeMap::new(),
            alarms_set: 0,
            alarms_max: ALARMS_MIN,
        }
    }

    fn run(mut self) {
        while !self.inbox.is_abandoned() {
            let mut busy = false;
            while let Some(command) = self.inbox.take() {
                self.take(command);
                busy = true;
            }
            busy |= self.poll();
            self.tell_shape();
            self.ring();
            if !busy {
                let next = self.alarms.first_key_value().map(|((at, _), _)| *at);
                let until = |at: Instant| at.saturating_duration_since(Instant::now());
                let longest = next.map_or(NAP_MAX, until).min(NAP_MAX);
                let inbox = &self.inbox;
                self.driver.wait_while(longest, &|| inbox.is_empty());
            }
        }
    }

    /// Tells the clients of a newer slot map.
    fn tell_shape(&mut self) {
        let shape = self.driver.shape();
        if shape.slots.epoch != self.epoch {
            self.epoch = shape.slots.epoch;
            let mut known = self.shape.write().unwrap_or_else(PoisonError::into_inner);
            *known = Arc::new(shape.clone());
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Open { session } => {
                self.sessions.insert(session, self.driver.open());
            }
            Command::Submit(call) => self.submit(*call),
            Command::Alarm { at, ring } => {
                if self.alarms.len() >= self.alarms_max {
                    // Alarms whose receivers are gone must not pile up.
                    self.alarms.retain(|_, ring| !ring.is_closed());
                    self.alarms_max = 2 * self.alarms.len().max(ALARMS_MIN);
                }
                self.alarms_set += 1;
                self.alarms.insert((at, self.alarms_set), ring);
            }
            Command::Check { answer } => {
                // The caller may be gone.
                let _ = answer.send((self.current)());
            }
            Command::Close { session } => {
                if let Some(key) = self.sessions.remove(&session) {
                    self.driver.close(key);
                }
            }
        }
    }

    fn submit(&mut self, call: Call) {
        let Call { session, plan, mode, deadline, timeout, answer, room } = call;
        if answer.is_closed() {
            return;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let session = self.sessions[&session];
        let submitted = if left.is_zero() {
            let why = Unavailability::NotSent { after: timeout, silent: GroupSet::EMPTY };
            Err(Error::Unavailable { why, sent: false })
        } else {
            self.driver.submit_plan(session, plan, mode, left, timeout)
        };
        match submitted {
            Ok(ticket) => _ = self.calls.insert(ticket.number, (answer, room)),
            Err(error) => _ = answer.send(Err(error)),
        }
    }

    fn poll(&mut self) -> bool {
        let calls = &mut self.calls;
        let polled = self.driver.poll(&mut |ticket, result| {
            if let Some((answer, room)) = calls.remove(&ticket.number) {
                drop(room);
                // The future may have been dropped.
                let _ = answer.send(result);
            }
        });
        // After an error nothing is under way, and the next operation reports the error.
        polled.unwrap_or(false)
    }

    fn ring(&mut self) {
        while let Some(first) = self.alarms.first_entry() {
            if first.key().0 > Instant::now() {
                return;
            }
            let _ = first.remove().send(());
        }
    }
}
