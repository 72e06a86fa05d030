//! Skein, by its client library.

use std::path::Path;
use std::thread;
use std::time::Duration;

use skein_client::{
    Driver, Guard, Operation, Outcome as Given, ReadMode, Reply, Test, Transaction,
};
use skein_cluster::directory::Directory;
use skein_kvstore::slots::{SLOTS, SlotMap, slot_of};
use skein_workloads::generator::{self, Fault, Settings, Step, Workload};

use crate::leaders::{Leaders, WINDOWS};
use crate::led_anew::LedAnew;
use crate::windows::{Met, Windows};
use crate::{Asked, Came, Keys, Load, Outcome, VALUE, histogram, key};

/// The kind of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Of one key.
    One,
    /// A transaction that puts two keys, one in each group.
    Two,
    /// The same, if both keys have a value.
    TwoGuarded,
    /// A transaction that puts a key of each group. A get likewise gets a key of each.
    All,
    /// The same, and the leaders of all groups change during the load.
    AllLedAnew,
}

impl Put {
    /// Whether each operation has a key of each group.
    fn is_of_all(self) -> bool {
        matches!(self, Self::All | Self::AllLedAnew)
    }
}

struct Clients {
    put: Put,
    /// False once all keys have been put.
    filling: bool,
    load: Load,
    /// By client.
    keys: Vec<Keys>,
    /// By group, for all clients.
    of_groups: Vec<Keys>,
    met: Met,
}

pub(crate) fn run(dir: &str, mode: ReadMode, put: Put, load: Load) -> Outcome<Came> {
    let running = Directory::connect(Path::new(dir))?;
    let mut driver = Driver::to(&running)?;
    driver.set_read_mode(mode);
    let Load { clients, time, .. } = load;
    let keys = |i| Keys::of(i, clients, |_| true);
    let leaders = (put == Put::AllLedAnew).then(|| Leaders::of(dir, &running)).transpose()?;
    let windows = Windows::default();
    let mut workload = Clients {
        put,
        filling: true,
        load,
        keys: (0..clients).map(keys).collect(),
        of_groups: of_groups(running.config.topology.groups),
        met: Met::new(windows.clone(), clients, WINDOWS),
    };
    let settings = Settings::to_the_end(clients, 1);
    let filled = generator::run(&mut driver, &mut workload, settings, &mut |_| true);
    workload.filling = false;
    let settings = Settings { duration: Some(time), ..settings };
    let (measured, changes) = thread::scope(|scope| {
        let changing = leaders.map(|leaders| scope.spawn(move || leaders.change(time, &windows)));
        let measured = generator::run(&mut driver, &mut workload, settings, &mut |_| true);
        let changes = changing.map(|it| it.join().expect("changing leaders does not panic"));
        (measured, changes)
    });
    if let Some(why) = filled.ended_early.or(measured.ended_early) {
        return Err(why.into());
    }
    let mut nanoseconds = histogram();
    for latencies in &measured.latency_ns {
        nanoseconds.add(latencies)?;
    }
    let seconds = measured.measured_for.max(Duration::from_nanos(1)).as_secs_f64();
    let changes = changes.transpose()?;
    let led_anew = changes.map(|changes| LedAnew::of(&changes, &workload.met, &nanoseconds));
    Ok(Came { nanoseconds, seconds, errors: measured.errors.total(), led_anew })
}

impl Workload for Clients {
    fn kinds(&self) -> &'static [&'static str] {
        &["operation"]
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        self.met.invoked(client);
        let keys = &mut self.keys[client];
        let (asked, key) =
            if self.filling { (Asked::Put, keys.next()?) } else { keys.draw(self.load) };
        transaction.guards.clear();
        transaction.then.clear();
        if self.put.is_of_all() && !self.filling {
            let of_group = |keys: &mut Keys| operation(asked, keys.draw(self.load).1);
            transaction.then.extend(self.of_groups.iter_mut().map(of_group));
            return Some(0);
        }
        if asked == Asked::Get {
            transaction.then.push(operation(asked, key));
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
            transaction.then.push(operation(asked, other));
        }
        transaction.then.push(operation(asked, key));
        Some(0)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        _: &mut Transaction,
    ) -> Result<Step, Fault> {
        self.met.returned(client);
        let is_right = |outcome: &Given| match outcome {
            Given::Written(_) => true,
            Given::Value(Some((value, _))) => *value == VALUE,
            _ => false,
        };
        if !reply.outcomes.is_empty() && reply.outcomes.iter().all(is_right) {
            return Ok(Step::Complete);
        }
        Err(Fault { kind: "wrong_reply", what: format!("{reply:?}") })
    }
}

fn operation(asked: Asked, key: Vec<u8>) -> Operation {
    match asked {
        Asked::Put => Operation::Put { key, value: VALUE.to_vec() },
        Asked::Get => Operation::Get { key },
    }
}

/// The keys of each group, of a cluster whose slots have not moved.
fn of_groups(groups: u16) -> Vec<Keys> {
    let map = SlotMap::even(groups);
    let of_group = |group| Keys::of(usize::from(group), 1, |i| map.owner(&key(i)).0 == group);
    (0..groups).map(of_group).collect()
}

/// The group of a key, of two groups that own half of the slots each, as when a cluster begins.
fn group_of(key: &[u8]) -> u16 {
    slot_of(key).0 / (SLOTS / 2)
}
