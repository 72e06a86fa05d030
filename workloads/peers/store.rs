//! Skein, by its client library.

use std::path::Path;
use std::time::Duration;

use skein_client::{Driver, Operation, Outcome as Given, ReadMode, Reply, Transaction};
use skein_cluster::directory::Directory;
use skein_workloads::generator::{self, Fault, Settings, Step, Workload};

use crate::{Asked, Came, Keys, Load, Outcome, VALUE, histogram};

struct Clients {
    /// False once all keys have been put.
    filling: bool,
    load: Load,
    keys: Vec<Keys>,
}

pub(crate) fn run(dir: &str, mode: ReadMode, load: Load) -> Outcome<Came> {
    let running = Directory::connect(Path::new(dir))?;
    let mut driver = Driver::to(&running)?;
    driver.set_read_mode(mode);
    let Load { clients, time, .. } = load;
    let keys = |i| Keys::of(i, clients, |_| true);
    let mut workload = Clients { filling: true, load, keys: (0..clients).map(keys).collect() };
    let settings = Settings::to_the_end(clients, 1);
    let filled = generator::run(&mut driver, &mut workload, settings, &mut |_| true);
    workload.filling = false;
    let settings = Settings { duration: Some(time), ..settings };
    let measured = generator::run(&mut driver, &mut workload, settings, &mut |_| true);
    if let Some(why) = filled.ended_early.or(measured.ended_early) {
        return Err(why.into());
    }
    let mut nanoseconds = histogram();
    for latencies in &measured.latency_ns {
        nanoseconds.add(latencies)?;
    }
    let seconds = measured.measured_for.max(Duration::from_nanos(1)).as_secs_f64();
    Ok(Came { nanoseconds, seconds, errors: measured.errors.total() })
}

impl Workload for Clients {
    fn kinds(&self) -> &'static [&'static str] {
        &["operation"]
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let keys = &mut self.keys[client];
        let (asked, key) =
            if self.filling { (Asked::Put, keys.next()?) } else { keys.draw(self.load) };
        let operation = if asked == Asked::Put {
            Operation::Put { key, value: VALUE.to_vec() }
        } else {
            Operation::Get { key }
        };
        transaction.then.clear();
        transaction.then.push(operation);
        Some(0)
    }

    fn returned(&mut self, _: usize, reply: &Reply, _: &mut Transaction) -> Result<Step, Fault> {
        match &reply.outcomes[..] {
            [Given::Written(_)] => Ok(Step::Complete),
            [Given::Value(Some((value, _)))] if *value == VALUE => Ok(Step::Complete),
            _ => Err(Fault { kind: "wrong_reply", what: format!("{reply:?}") }),
        }
    }
}
