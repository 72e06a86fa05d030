//! One load for several stores: puts, gets, or a random mix of both (`mixed`), with 100-byte
//! values, by clients with one operation in flight each, on one thread. `workloads/peers/run`
//! compares the results.
//!
//! ```console
//! $ peer redis 127.0.0.1:6379 put --clients 64 --seconds 3
//! $ peer skein /run/user/1000/skein get --clients 1 --seconds 3
//! $ peer redis-wait 127.0.0.1:6379 mixed --clients 32 --seconds 3 --neighbours 2:own-session
//! $ peer table results.jsonl
//! $ peer report results.jsonl >measured/peers.json      # for `skein report measured`
//! ```
//!
//! `--awake` and `--neighbours` are only recorded with the results: that the cores were kept from
//! sleeping, and which processes computed beside the load.
//!
//! | store | address | a put is |
//! |---|---|---|
//! | `redis` | of the primary | SET |
//! | `redis-wait` | of the primary | SET and WAIT 1, sent together; a write that no replica has is an error |
//! | `cluster-wait` | of the three primaries | the same, each client with one of them and its keys |
//! | `redis-always` | of the only Redis, which syncs its file before it answers | SET |
//! | `etcd` | of the leader | Put by gRPC; gets are linearizable |
//! | `skein` | the cluster's directory | a put by the client library; gets are linearizable |
//! | `skein-ordered` | the same | the same, gets being ordered, as writes are |
//! | `skein-two` | the same, of two groups | a transaction that puts a key of each group |
//! | `skein-guarded` | the same | the same, if both keys have a value |
//! | `skein-all` | the same, of any number of groups | a transaction that puts a key of each group |
//! | `skein-all-led-anew` | the same, all nodes on this host | the same, while all leaders change ([`leaders`]) |
//! | `disk` | a directory | no store: 4 KiB appended to three files of it, until they are durable in two ([`probe`]) |

mod etcd;
mod leaders;
mod led_anew;
mod probe;
mod redis;
mod sockets;
mod store;
mod table;
mod windows;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use skein_client::ReadMode;
use skein_workloads::neighbours::Neighbours;

use self::led_anew::LedAnew;
use self::store::Put;

/// Keys of the load, uniformly distributed.
const KEYS: u64 = 10_000;
const VALUE: [u8; 100] = [b'x'; 100];

const USAGE: &str = "peer STORE ADDRESS put|get|mixed --clients N --seconds S [--awake | --neighbours N[:…]], \
                     or peer table FILE, or peer report FILE";

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Put,
    Get,
}

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The share of puts; the rest are gets.
    pub(crate) puts: f64,
    pub(crate) clients: usize,
    pub(crate) time: Duration,
}

/// The results of a load.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) nanoseconds: Histogram<u64>,
    pub(crate) seconds: f64,
    pub(crate) errors: u64,
    /// Only of `skein-all-led-anew`.
    pub(crate) led_anew: Option<LedAnew>,
}

/// The results as a line of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) store: String,
    pub(crate) asked: String,
    pub(crate) clients: usize,
    /// Whether a process of idle priority kept the cores from sleeping, as the caller says.
    pub(crate) awake: bool,
    /// The processes that computed beside the load, as the caller says.
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) errors: u64,
    /// Only of `skein-all-led-anew`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) led_anew: Option<LedAnew>,
}

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) fn histogram() -> Histogram<u64> {
    skein_workloads::generator::histogram()
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("peer:{number:012}").into_bytes()
}

/// The keys of a client's operations.
pub(crate) struct Keys {
    random: SmallRng,
    /// The keys that it may use.
    numbers: Vec<u64>,
    /// Index of its next key to be filled, and the step to the one after that.
    fill: usize,
    step: usize,
}

impl Keys {
    /// The keys that `fits` accepts, shared by `clients` clients, for the client with the number
    /// `client`.
    pub(crate) fn of(client: usize, clients: usize, fits: impl Fn(u64) -> bool) -> Self {
        let numbers = (0..KEYS).filter(|number| fits(*number)).collect();
        let random = SmallRng::seed_from_u64(client as u64);
        Self { random, numbers, fill: client, step: clients }
    }

    /// A random operation and key.
    pub(crate) fn draw(&mut self, load: Load) -> (Asked, Vec<u8>) {
        let key = key(self.numbers[self.random.random_range(0..self.numbers.len())]);
        (if self.random.random_bool(load.puts) { Asked::Put } else { Asked::Get }, key)
    }

    /// The next key of its share to be filled.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let number = self.numbers.get(self.fill)?;
        self.fill += self.step;
        Some(key(*number))
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (store, address, asked, clients, seconds, beside) = match &words[..] {
        ["table", file] => return table::print(file),
        ["report", file] => return table::report(file),
        [store, address, asked, "--clients", clients, "--seconds", seconds, beside @ ..] => {
            (*store, *address, *asked, clients.parse()?, seconds.parse()?, beside)
        }
        _ => return Err(USAGE.into()),
    };
    let (awake, neighbours) = match beside {
        [] => (false, None),
        ["--awake"] => (true, None),
        ["--neighbours", which] => (false, Some(which.parse()?)),
        _ => return Err(USAGE.into()),
    };
    let puts = match asked {
        "put" => 1.0,
        "get" => 0.0,
        "mixed" => 0.5,
        _ => return Err(USAGE.into()),
    };
    let load = Load { puts, clients, time: Duration::from_secs_f64(seconds) };
    let addresses: Vec<&str> = address.split(',').collect();
    let came = match store {
        "redis" | "redis-always" => redis::run(&addresses, false, load)?,
        "redis-wait" | "cluster-wait" => redis::run(&addresses, true, load)?,
        "etcd" => etcd::run(&addresses, load)?,
        "skein" => store::run(address, ReadMode::default(), Put::One, load)?,
        "skein-ordered" => store::run(address, ReadMode::Ordered, Put::One, load)?,
        "skein-two" => store::run(address, ReadMode::default(), Put::Two, load)?,
        "skein-guarded" => store::run(address, ReadMode::default(), Put::TwoGuarded, load)?,
        "skein-all" => store::run(address, ReadMode::Ordered, Put::All, load)?,
        "skein-all-led-anew" => store::run(address, ReadMode::Ordered, Put::AllLedAnew, load)?,
        "disk" => probe::run(address, load)?,
        other => return Err(format!("no store called {other}").into()),
    };
    let micros = |share| came.nanoseconds.value_at_quantile(share) as f64 / 1e3;
    let line = Line {
        store: store.to_owned(),
        asked: asked.to_owned(),
        clients,
        awake,
        neighbours,
        ops_per_s: (came.nanoseconds.len() as f64 / came.seconds).round(),
        p50_us: micros(0.5),
        p99_us: micros(0.99),
        errors: came.errors,
        led_anew: came.led_anew,
    };
    println!("{}", serde_json::to_string(&line)?);
    Ok(())
}
