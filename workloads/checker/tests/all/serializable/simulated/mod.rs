//! Histories of a strictly serializable store: a map that one transaction at a time changes, each
//! at a moment between its invocation and its answer. Some transactions are never answered, and
//! execute at any later time or not at all.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_checker::history::{
    End, FORMAT, Final, Header, Invoke, Op, Out, Record, Return, Unanswered,
};
use skein_multicast::config::Topology;

/// Bytes per token.
pub(crate) const TOKEN_BYTES: usize = 8;

/// Parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) transactions: usize,
    /// Number of concurrent transactions.
    pub(crate) clients: usize,
    /// Keys of each kind.
    pub(crate) keys: u64,
    /// Number of transactions after which a list is replaced by a new one.
    pub(crate) list_for: usize,
    /// Percentages of transactions without an answer, and of refused ones.
    pub(crate) unknown: u32,
    pub(crate) refused: u32,
}

/// A transaction, and its outcome.
struct Planned {
    process: u64,
    invoked: u64,
    /// Time of execution, if it executes.
    done: Option<u64>,
    end: Ends,
    ops: Vec<Op>,
    out: Vec<Out>,
}

enum Ends {
    Ok(u64),
    Fail(u64),
    Unknown(u64),
    /// The client was killed.
    Silent,
}

pub(crate) fn header() -> Header {
    Header {
        format: FORMAT,
        workload: "simulated".into(),
        skein: "test".into(),
        cluster: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
        seed: 1,
        t: 0,
        unix_ms: 0,
        token_bytes: TOKEN_BYTES,
        bank: None,
        record: None,
        before: false,
    }
}

/// The records of a history in the order of time, without its header.
pub(crate) fn history(plan: Plan) -> Vec<Record> {
    let mut transactions = planned(plan);
    let mut order: Vec<(u64, usize)> =
        transactions.iter().enumerate().filter_map(|(i, one)| Some((one.done?, i))).collect();
    order.sort_unstable();
    let end = transactions
        .iter()
        .map(|one| match one.end {
            Ends::Ok(t) | Ends::Fail(t) | Ends::Unknown(t) => t,
            Ends::Silent => one.invoked,
        })
        .max()
        .unwrap_or_default();
    let mut store = Store::default();
    for (t, i) in order {
        if t <= end {
            let one = &mut transactions[i];
            store.version += 1;
            one.out = one.ops.iter().map(|op| store.apply(op)).collect();
        }
    }
    let mut records = Vec::new();
    for Planned { process: p, invoked, end, ops, out, .. } in transactions {
        records.push((
            invoked,
            0,
            Record::Invoke(Invoke {
                t: invoked,
                p,
                guards: vec![],
                ops,
                otherwise: vec![],
                stale: false,
            }),
        ));
        let unanswered = |t| Unanswered { t, p, why: "simulated".into() };
        let (t, record) = match end {
            Ends::Ok(t) => (t, Record::Ok(Return { t, p, held: true, out })),
            Ends::Fail(t) => (t, Record::Fail(unanswered(t))),
            Ends::Unknown(t) => (t, Record::Unknown(unanswered(t))),
            Ends::Silent => continue,
        };
        records.push((t, 1, record));
    }
    // Of one moment, invocations come first. Each process invokes before it is answered.
    records.sort_by_key(|(t, order, _)| (*t, *order));
    let mut records: Vec<Record> = records.into_iter().map(|(.., record)| record).collect();
    let t = end + 1;
    for (key, (value, version)) in store.keys {
        records.push(Record::Final(Final { t, key, value: Some((value, version)) }));
    }
    records.push(Record::End(End { t }));
    records
}

fn planned(plan: Plan) -> Vec<Planned> {
    let mut random = SmallRng::seed_from_u64(plan.seed);
    let mut free: Vec<(u64, u64)> =
        (0..plan.clients as u64).map(|client| (client, client)).collect();
    let mut processes = plan.clients as u64;
    let mut tokens = 0;
    let mut planned = Vec::with_capacity(plan.transactions);
    for number in 0..plan.transactions {
        let client = free.iter().enumerate().min_by_key(|(_, (at, _))| *at).map_or(0, |(i, _)| i);
        let (at, process) = free[client];
        let invoked = at + random.random_range(1..4);
        let returned = invoked + random.random_range(1..20);
        let within = random.random_range(invoked..=returned);
        let drawn = random.random_range(0..100);
        let (done, end) = if drawn < plan.refused {
            (None, Ends::Fail(returned))
        } else if drawn < plan.refused + plan.unknown {
            let later = random.random_range(0..400);
            let done = random.random_bool(0.6).then_some(invoked + later);
            (done, if later % 3 == 0 { Ends::Silent } else { Ends::Unknown(returned) })
        } else {
            (Some(within), Ends::Ok(returned))
        };
        if matches!(end, Ends::Unknown(_) | Ends::Silent) {
            processes += 1;
            free[client] = (returned, processes);
        } else {
            free[client] = (returned, process);
        }
        let ops = ops(&plan, number, &mut tokens, &mut random);
        planned.push(Planned { process, invoked, done, end, ops, out: Vec::new() });
    }
    planned
}

fn ops(plan: &Plan, number: usize, tokens: &mut u64, random: &mut SmallRng) -> Vec<Op> {
    let many = random.random_range(1..=3);
    let mut token = || {
        *tokens += 1;
        format!("{tokens:0TOKEN_BYTES$x}")
    };
    let mut op = || {
        let key = random.random_range(0..plan.keys);
        let list = format!("list/{key}.{}", number / plan.list_for);
        match random.random_range(0..10) {
            0..3 => Op::Append(list, token()),
            3..6 => Op::Get(list),
            6 => Op::Put(format!("register/{key}"), token()),
            7 => Op::Get(format!("register/{key}")),
            8 => Op::Incr(format!("counter/{key}"), 1),
            _ => Op::Get(format!("counter/{key}")),
        }
    };
    (0..many).map(|_| op()).collect()
}

/// The store.
#[derive(Default)]
struct Store {
    keys: BTreeMap<String, (String, u64)>,
    version: u64,
}

impl Store {
    fn apply(&mut self, op: &Op) -> Out {
        let version = self.version;
        match op {
            Op::Get(key) => Out::Value(self.keys.get(key).cloned()),
            Op::Append(key, token) => {
                let (value, at) = self.keys.entry(key.clone()).or_default();
                value.push_str(token);
                *at = version;
                Out::Length(value.len() as u64)
            }
            Op::Put(key, value) => {
                self.keys.insert(key.clone(), (value.clone(), version));
                Out::Version(version)
            }
            Op::Incr(key, by) => {
                let before =
                    self.keys.get(key).map_or(0, |(value, _)| value.parse::<i64>().unwrap());
                self.keys.insert(key.clone(), ((before + by).to_string(), version));
                Out::Number(before + by)
            }
            other => unreachable!("{other:?} is not planned"),
        }
    }
}
