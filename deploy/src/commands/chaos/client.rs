//! Clients that are killed: processes of their own, which say on standard output what they ask for
//! before they ask.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use skein_checker::history::{Record, Scribe, line};
use skein_client::{Driver, ReadMode};
use skein_cluster::directory::Directory;
use skein_kvstore::slots::SlotMap;
use skein_workloads::chaos::load::{self, Gauge, Plan, Sink};
use skein_workloads::chaos::objects::{Mix, Objects};

use crate::args::Global;
use crate::exit::Exit;

/// Sessions of a client that is to be killed.
const SESSIONS: usize = 4;
/// How long one may take to send its first transaction.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Asks for transactions of several groups until it is killed, and says so on standard output
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the run whose objects it uses
    #[arg(long)]
    run: String,
    /// When the run began, in nanoseconds of the monotonic clock
    #[arg(long)]
    began: u64,
    #[arg(long)]
    seed: u64,
    /// A number that no other process of the run has
    #[arg(long)]
    writer: u16,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let dir = global.dir();
        let running = Directory::connect(&dir)?;
        let (groups, window) = (running.config.topology.groups, running.config.tuning.window);
        let objects = Objects::new(&self.run, &SlotMap::even(groups), groups, self.began);
        let plan = Plan {
            clients: SESSIONS,
            rate: None,
            mix: Mix::ManyGroups,
            read_modes: vec![ReadMode::Confirmed, ReadMode::Ordered, ReadMode::Lease],
            probe: false,
            window,
            seed: self.seed,
            writer: self.writer,
        };
        let gauge = Gauge::default();
        let mut lines = Lines { gauge: &gauge };
        let mut connect = || Driver::connect(&dir).ok();
        load::run(&mut connect, &objects, &plan, &mut lines, &gauge);
        Ok(Exit::Ok)
    }
}

/// Each record is a line, written before anything else happens: whoever is killed has said what it
/// was about to do.
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
            // Nobody listens any more: the run is over.
            self.gauge.stop.store(true, Ordering::Relaxed);
        }
    }

    fn ended(&mut self, record: Record) {
        self.invoked(record);
    }
}

/// The client processes of a run.
pub(super) struct Clients<'a> {
    dir: &'a Path,
    run: &'a str,
    began: u64,
    seed: u64,
    writers: u16,
}

/// One that runs.
struct Running {
    child: Child,
    reader: JoinHandle<()>,
    said: Arc<AtomicU64>,
}

impl<'a> Clients<'a> {
    /// The first of them has the number after `writer`.
    pub(super) fn new(dir: &'a Path, run: &'a str, began: u64, seed: u64, writer: u16) -> Self {
        Self { dir, run, began, seed, writers: writer }
    }

    /// Starts one, lets it send transactions for a while, and kills it in the middle of them. What it
    /// said goes to `scribe`. Returns when it was killed, and its number.
    pub(super) fn kill_one(
        &mut self,
        scribe: Scribe,
        after: Duration,
    ) -> anyhow::Result<(u64, u32)> {
        let mut running = self.start(scribe)?;
        let deadline = Instant::now() + BEGIN_WITHIN;
        while running.said.load(Ordering::Relaxed) < SESSIONS as u64 {
            if let Some(status) = running.child.try_wait().context("cannot follow a client")? {
                bail!("a client has ended by itself, {status}");
            }
            if Instant::now() >= deadline {
                let _ = running.end();
                bail!("a client sends nothing within {} seconds", BEGIN_WITHIN.as_secs());
            }
            thread::sleep(POLL);
        }
        thread::sleep(after);
        let (t, pid) = (skein_checker::history::now(), running.child.id());
        running.end()?;
        Ok((t, pid))
    }

    fn start(&mut self, scribe: Scribe) -> anyhow::Result<Running> {
        let Some(writer) = self.writers.checked_add(1) else {
            bail!("no more clients can be told apart: {} were killed", self.writers);
        };
        self.writers = writer;
        let us = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(us);
        command.args(["bench", "chaos-client", "--dir"]).arg(self.dir);
        command.args(["--run", self.run, "--began", &self.began.to_string()]);
        command.args(["--seed", &self.seed.to_string(), "--writer", &writer.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start a client")?;
        let out = child.stdout.take().expect("piped");
        let said = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&said);
        let reader = thread::spawn(move || listen(BufReader::new(out), scribe, &counter));
        Ok(Running { child, reader, said })
    }
}

impl Running {
    fn end(mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill a client")?;
        self.child.wait().context("cannot follow a client")?;
        self.reader.join().expect("listening does not panic");
        Ok(())
    }
}

/// Takes down what a client says until it is gone. What it was about to say when it was killed, it
/// had not done.
fn listen(mut lines: impl BufRead, mut scribe: Scribe, said: &AtomicU64) {
    let mut text = String::new();
    while lines.read_line(&mut text).is_ok_and(|read| read > 0) {
        let Ok(record) = serde_json::from_str(&text) else { break };
        scribe.note(record);
        said.fetch_add(1, Ordering::Relaxed);
        text.clear();
    }
}
