//! Skein, by its client library.

use std::path::Path;
use std::time::Duration;

use skein_client::{
    Driver, Guard, Operation, Outcome as Given, ReadMode, Reply, Test, Transaction,
};
use skein_cluster::directory::Directory;
use skein_kvstore::slots::{SLOTS, slot_of};
use skein_workloads::generator::{self, Fault, Settings, Step, Workload};

use crate::{Asked, Came, Keys, Load, Outcome, VALUE, histogram};

/// The kind of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Of one key.
    One,
    /// A transaction that puts two keys, one in each group.
    Two,
    /// The same, if both keys have a value.
    TwoGuarded,
}

struct Clients {
    put: Put,
    /// False once all keys have been put.
    filling: bool,
    load: Load,
    keys: Vec<Keys>,
}

pub(crate) fn run(dir: &str, mode: ReadMode, put: Put, load: Load) -> Outcome<Came> {
    let running = Directory::connect(Path::new(dir))?;
    let mut driver = Driver::to(&running)?;
    driver.set_read_mode(mode);
    let Load { clients, time, .. } = load;
    let keys = |i| Keys::of(i, clients, |_| true);
    let mut workload = Clients { put, filling: true, load, keys: (0..clients).map(keys).collect() };
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
        transaction.guards.clear();
        transaction.then.clear();
        if asked == Asked::Get {
            transaction.then.push(Operation::Get { key });
            return Some(0);
        }
        let put = if self.filling { Put::One } else { self.put };
        if put != Put::One {
            let other = loop {
                let (_, other) = keys.draw(self.load);
                if group_of(&other) != group_of(&key) {
                    break other;
                }
            };
            if put == Put::TwoGuarded {
                let exists = |key: &Vec<u8>| Guard { key: key.clone(), test: Test::Exists };
                transaction.guards.extend([exists(&key), exists(&other)]);
            }
            transaction.then.push(Operation::Put { key: other, value: VALUE.to_vec() });
        }
        transaction.then.push(Operation::Put { key, value: VALUE.to_vec() });
        Some(0)
    }

    fn returned(&mut self, _: usize, reply: &Reply, _: &mut Transaction) -> Result<Step, Fault> {
        match &reply.outcomes[..] {
            [Given::Written(_)] | [Given::Written(_), Given::Written(_)] => Ok(Step::Complete),
            [Given::Value(Some((value, _)))] if *value == VALUE => Ok(Step::Complete),
            _ => Err(Fault { kind: "wrong_reply", what: format!("{reply:?}") }),
        }
    }
}

/// The group of a key, of two groups that own half of the slots each, as when a cluster begins.
fn group_of(key: &[u8]) -> u16 {
    slot_of(key).0 / (SLOTS / 2)
}
