//! Clients that are killed: separate processes, which write each invocation to standard output
//! before they send it.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skein_checker::history::{Record, Scribe, line};
use skein_client::{Driver, ReadMode, Shape};
use skein_cluster::directory::{Directory, DirectoryError};

use super::load::{self, Gauge, Plan, Sink};
use super::objects::{Mix, Objects};

/// Sessions of a client process.
const SESSIONS: usize = 4;
/// The longest time until a client sends its first transaction.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Makes the command that runs a client process for a cluster. The process has to call [`run`] with
/// the same arguments; its standard input, output and error are set by the run.
pub type ClientCommand = fn(&Path, &Task) -> io::Result<Command>;

/// The work of a client process.
#[derive(Clone, Debug)]
pub struct Task {
    /// Name of the run whose objects it uses.
    pub run: String,
    /// Start of the run in nanoseconds of the monotonic clock.
    pub began: u64,
    pub seed: u64,
    /// Unique among the processes of the run.
    pub writer: u16,
}

/// The client process: sends transactions of several groups to the cluster in `dir` until it is
/// killed, and writes their records to standard output.
///
/// # Errors
///
/// No cluster runs in `dir`.
pub fn run(dir: &Path, task: &Task) -> Result<(), DirectoryError> {
    let running = Directory::connect(dir)?;
    let shape = Shape::of(&running.config);
    let (groups, window) = (shape.layout.topology().groups, shape.tuning.window);
    let objects = Objects::new(&task.run, &shape.slots, groups, task.began);
    let plan = Plan {
        clients: SESSIONS,
        rate: None,
        mix: Mix::ManyGroups,
        read_modes: vec![ReadMode::Confirmed, ReadMode::Ordered, ReadMode::Lease],
        probe: false,
        window,
        seed: task.seed,
        writer: task.writer,
    };
    let gauge = Gauge::default();
    let mut lines = Lines { gauge: &gauge };
    let mut connect = || Driver::connect(dir).ok();
    load::run(&mut connect, &objects, &plan, &mut lines, &gauge);
    Ok(())
}

/// Writes each record as a line before anything else happens: a killed process has reported every
/// operation that it may have sent.
struct Lines<'a> {
    gauge: &'a Gauge,
}

impl Sink for Lines<'_> {
    fn invoked(&mut self, record: Record) {
        let mut text = Vec::with_capacity(256);
        let written = line(&mut text, &record).and_then(|()| {
            let mut out = io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush())
        });
        if written.is_err() {
            // There is no reader any more: the run is over.
            self.gauge.stop.store(true, Ordering::Relaxed);
        }
    }

    fn ended(&mut self, record: Record) {
        self.invoked(record);
    }
}

/// Reasons for which a client was not killed in the middle of its transactions.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("no more client numbers: {0} clients were killed")]
    TooMany(u16),
    #[error("a client has ended by itself, {0}")]
    Ended(ExitStatus),
    #[error("a client sends nothing within {} seconds", BEGIN_WITHIN.as_secs())]
    Silent,
    #[error("cannot {attempt}")]
    System { attempt: &'static str, source: io::Error },
}

fn failed(attempt: &'static str) -> impl Fn(io::Error) -> ClientError {
    move |source| ClientError::System { attempt, source }
}

/// The client processes of a run.
pub(super) struct Clients<'a> {
    dir: &'a Path,
    command: ClientCommand,
    /// The task of the next process, except for its number.
    task: Task,
}

/// A running client process.
struct Running {
    child: Child,
    reader: JoinHandle<()>,
    said: Arc<AtomicU64>,
}

impl<'a> Clients<'a> {
    /// Every process has this task; the first one's number is the task's number plus one.
    pub(super) fn new(dir: &'a Path, command: ClientCommand, task: Task) -> Self {
        Self { dir, command, task }
    }

    /// Starts a client, lets it send transactions for a while, and kills it. Its records go to
    /// `scribe`. Returns the time of the kill and the process id.
    pub(super) fn kill_one(
        &mut self,
        scribe: Scribe,
        after: Duration,
    ) -> Result<(u64, u32), ClientError> {
        let mut running = self.start(scribe)?;
        let deadline = Instant::now() + BEGIN_WITHIN;
        while running.said.load(Ordering::Relaxed) < SESSIONS as u64 {
            if let Some(status) = running.child.try_wait().map_err(failed("follow a client"))? {
                return Err(ClientError::Ended(status));
            }
            if Instant::now() >= deadline {
                let _ = running.end();
                return Err(ClientError::Silent);
            }
            thread::sleep(POLL);
        }
        thread::sleep(after);
        let (t, pid) = (skein_checker::history::now(), running.child.id());
        running.end()?;
        Ok((t, pid))
    }

    fn start(&mut self, scribe: Scribe) -> Result<Running, ClientError> {
        let writer = self.task.writer.checked_add(1);
        self.task.writer = writer.ok_or(ClientError::TooMany(self.task.writer))?;
        let command = (self.command)(self.dir, &self.task);
        let mut command = command.map_err(failed("find this program"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed("start a client"))?;
        let out = child.stdout.take().expect("piped");
        let said = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&said);
        let reader = thread::spawn(move || listen(BufReader::new(out), scribe, &counter));
        Ok(Running { child, reader, said })
    }
}

impl Running {
    fn end(mut self) -> Result<(), ClientError> {
        self.child.kill().map_err(failed("kill a client"))?;
        self.child.wait().map_err(failed("follow a client"))?;
        self.reader.join().expect("listening does not panic");
        Ok(())
    }
}

/// Reads a client's records until it is gone. An incomplete last record is of an operation that was
/// not sent.
fn listen(mut lines: impl BufRead, mut scribe: Scribe, said: &AtomicU64) {
    let mut text = String::new();
    while lines.read_line(&mut text).is_ok_and(|read| read > 0) {
        let Ok(record) = serde_json::from_str(&text) else { break };
        scribe.note(record);
        said.fetch_add(1, Ordering::Relaxed);
        text.clear();
    }
}
