//! The replicas of a run: processes, or threads of this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context, bail};
use skein_cluster::regions::Scratch;
use skein_fabric::FabricError;
use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::wait::Waiting;
use skein_multicast::batches::Batches;
use skein_multicast::config::Topology;
use skein_workloads::multicast::cores;
use skein_workloads::multicast::engines::{self, Experiment, Ground, MeetingPlace, Papers};

use super::{FabricName, Placement};
use crate::commands::pki::{self, Pair};
use crate::ports;

/// Replicas that are connected to each other.
pub(super) struct Running {
    ground: Ground,
    crew: Engines,
    /// Dropped last, after all users of the directory have ended.
    _scratch: Option<Scratch>,
}

enum Engines {
    Processes(Vec<Child>),
    Threads { stop: Arc<AtomicBool>, threads: Vec<JoinHandle<Result<Batches, FabricError>>> },
}

impl Running {
    /// Starts the replicas. Returns when they are connected.
    pub(super) fn start(placement: &Placement, verbose: u8) -> anyhow::Result<Self> {
        let Placement { threads, fabric, waiting, ref layout, tuning, ungated } = *placement;
        let (place, scratch) = match fabric {
            FabricName::Tcp | FabricName::Tls => {
                let papers = (fabric == FabricName::Tls).then(papers).transpose()?;
                (MeetingPlace::Tcp { addresses: addresses(layout.topology())?, papers }, None)
            }
            FabricName::Shm => {
                let scratch = Scratch::make()?;
                (MeetingPlace::Shm(scratch.path().to_owned()), Some(scratch))
            }
        };
        let experiment = Experiment { layout: layout.clone(), tuning, ungated, place };
        let ground = if threads && fabric == FabricName::Shm {
            Ground::Host(Host::anonymous())
        } else {
            Ground::of(&experiment)?
        };
        let crew = if threads {
            start_threads(&ground, &experiment, waiting)?
        } else {
            start_processes(&experiment, waiting, verbose)?
        };
        Ok(Self { ground, crew, _scratch: scratch })
    }

    /// A fabric for the generator.
    pub(super) fn visit(&self) -> anyhow::Result<AnyFabric> {
        self.ground.visit().context("cannot reach the replicas")
    }

    /// Stops the replicas and returns their batch statistics. It is an error if one has failed.
    pub(super) fn stop(mut self) -> anyhow::Result<Batches> {
        let mut batches = Batches::default();
        match &mut self.crew {
            Engines::Processes(children) => {
                // Closing its standard input asks a process to end.
                for child in children.iter_mut() {
                    drop(child.stdin.take());
                }
                for (node, mut child) in children.drain(..).enumerate() {
                    let mut said = String::new();
                    let out = child.stdout.as_mut().expect("piped");
                    out.read_to_string(&mut said)
                        .context("cannot read the output of a node's process")?;
                    let status = child.wait().context("cannot follow a node's process")?;
                    if !status.success() {
                        bail!("the process of node {node} has failed, {status}");
                    }
                    batches.add(
                        &serde_json::from_str(&said)
                            .context("cannot read the output of a node's process")?,
                    );
                }
            }
            Engines::Threads { stop, threads } => {
                stop.store(true, Ordering::Relaxed);
                for thread in threads.drain(..) {
                    batches.add(&thread.join().expect("an engine does not panic")?);
                }
            }
        }
        Ok(batches)
    }
}

/// If a run is abandoned, its processes and threads end.
impl Drop for Engines {
    fn drop(&mut self) {
        match self {
            Self::Processes(children) => {
                for child in children {
                    drop(child.stdin.take());
                    let _ = child.wait();
                }
            }
            Self::Threads { stop, .. } => stop.store(true, Ordering::Relaxed),
        }
    }
}

/// An address for each engine of each node.
fn addresses(Topology { nodes, engines, .. }: Topology) -> anyhow::Result<Vec<String>> {
    ports::loopback(nodes * engines, 1)
}

/// A certificate for all nodes, of a temporary authority.
fn papers() -> anyhow::Result<Papers> {
    let (authority, issuer) = pki::authority()?;
    let Pair { certificate, key } = pki::certificate(Papers::NAME, &issuer, 1)?;
    Ok(Papers { authority: authority.certificate, certificate, key })
}

fn start_processes(
    experiment: &Experiment,
    waiting: Waiting,
    verbose: u8,
) -> anyhow::Result<Engines> {
    let us = std::env::current_exe().context("cannot find this program")?;
    let text = serde_json::to_string(experiment)? + "\n";
    let mut crew = Vec::new();
    for node in 0..experiment.layout.topology().nodes {
        let mut command = Command::new(&us);
        command.args(["bench", "multicast-node", "--index", &node.to_string()]);
        command.args(["--waiting", &waiting.to_string()]);
        command.args(std::iter::repeat_n("-v", usize::from(verbose)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a node's process")?;
        let told = child.stdin.as_mut().expect("piped").write_all(text.as_bytes());
        crew.push(child);
        told.context("cannot write to a node's process")?;
    }
    let mut crew = Engines::Processes(crew);
    let Engines::Processes(children) = &mut crew else { unreachable!("just made") };
    for (node, child) in children.iter_mut().enumerate() {
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out)
            .read_line(&mut line)
            .context("cannot read the output of a node's process")?;
        if line.is_empty() {
            bail!("the process of node {node} has ended before it was ready");
        }
    }
    Ok(crew)
}

/// One thread per engine number, which runs the engines of that number on all nodes.
fn start_threads(
    ground: &Ground,
    experiment: &Experiment,
    waiting: Waiting,
) -> anyhow::Result<Engines> {
    let Topology { nodes, engines, .. } = experiment.layout.topology();
    let cores = cores::usable();
    let stop = Arc::<AtomicBool>::default();
    let (sender, ready) = channel();
    let mut threads = Vec::new();
    for number in 0..engines {
        let (ground, experiment, sender) = (ground.clone(), experiment.clone(), sender.clone());
        let stop = Arc::clone(&stop);
        // The last core is reserved for the generator.
        let core = cores[usize::from(number) % cores.len().saturating_sub(1).max(1)];
        let run = move || {
            cores::pin(core);
            let all: Vec<_> = (0..nodes).map(|node| (node, number)).collect();
            let ready = || _ = sender.send(());
            engines::run(&ground, &experiment, &all, waiting, ready, &stop)
        };
        let thread = thread::Builder::new().name(format!("engines{number}")).spawn(run);
        threads.push(thread.context("cannot start a thread")?);
    }
    drop(sender);
    let crew = Engines::Threads { stop, threads };
    if ready.iter().take(usize::from(engines)).count() < usize::from(engines) {
        let Engines::Threads { threads, .. } = &crew else { unreachable!("just made") };
        let failed = threads.iter().filter(|thread| thread.is_finished()).count();
        bail!("{failed} of {engines} engine threads have ended before they were ready");
    }
    Ok(crew)
}
