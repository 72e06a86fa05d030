//! A node of an experiment: a process that ends when its parent closes its standard input.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;

use anyhow::Context;
use skein_fabric::wait::Waiting;
use skein_multicast::batches::Batches;
use skein_workloads::multicast::engines::{self, Experiment, Ground};

use crate::exit::Exit;

/// Runs one node of `bench multicast` by the layout on standard input, until that is closed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which node, from 0
    #[arg(long)]
    index: u16,
    #[arg(long)]
    waiting: Waiting,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut input = io::stdin().lock();
        let mut text = String::new();
        input.read_line(&mut text).context("cannot read what to do")?;
        let experiment: Experiment =
            serde_json::from_str(&text).context("cannot read what to do")?;
        drop(input);
        let stop = Arc::<AtomicBool>::default();
        let over = Arc::clone(&stop);
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            over.store(true, Ordering::Relaxed);
        });
        let ground = Ground::of(&experiment)?;
        let numbers = experiment.layout.topology().engines;
        let unready = AtomicU16::new(numbers);
        let (stop, unready) = (&*stop, &unready);
        let run = |number| {
            let ready = || {
                if unready.fetch_sub(1, Ordering::Relaxed) == 1 {
                    // A parent that no longer reads the output also closes the input, which ends
                    // this process.
                    let _ = crate::output::say("ready\n");
                }
            };
            engines::run(&ground, &experiment, &[(self.index, number)], self.waiting, ready, stop)
        };
        let all = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..numbers).map(|number| scope.spawn(move || run(number))).collect();
            let ended = threads.into_iter().map(|thread| {
                let end = thread.join().expect("an engine does not panic");
                // If one engine ends, all must end.
                stop.store(true, Ordering::Relaxed);
                end
            });
            ended.collect::<Result<Vec<_>, _>>()
        })?;
        let mut batches = Batches::default();
        for one in &all {
            batches.add(one);
        }
        crate::output::say(serde_json::to_string(&batches)? + "\n")?;
        Ok(Exit::Ok)
    }
}
