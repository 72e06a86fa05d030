//! Loads YCSB's records, and runs a core workload on them.
//!
//! Nothing is assumed about the content of the cluster. Loading overwrites; workloads that insert
//! first search for the last insertions of earlier runs, including killed ones, and continue behind
//! them.

use std::collections::BTreeSet;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_client::{Error, Operation, Outcome, Reply, SessionKey, Transaction};

use crate::generator::{Fault, Sessions, Step, Workload, ask};
use crate::keys::{self, Chooser, Distribution};
use crate::mix::{self, Kind, Mix, SCAN_RECORDS_MAX, Text, Wrong};

/// Maximum number of clients of a run. If a run is killed, at most this many of its last records may
/// be missing.
pub const CLIENTS_MAX: usize = 1_024;

/// Puts a range of records.
pub struct Load {
    text: Text,
    random: SmallRng,
    left: Range<u64>,
}

impl Load {
    /// Puts the records with these numbers.
    pub fn new(records: Range<u64>, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        Self { text: Text::new(&mut random), random, left: records }
    }
}

impl Workload for Load {
    fn kinds(&self) -> &'static [&'static str] {
        &["load"]
    }

    fn next(&mut self, _client: usize, transaction: &mut Transaction) -> Option<usize> {
        let number = self.left.next()?;
        self.text.insert(number, transaction, &mut self.random);
        Some(0)
    }

    fn returned(
        &mut self,
        _client: usize,
        reply: &Reply,
        _transaction: &mut Transaction,
    ) -> Result<Step, Fault> {
        match reply.outcomes[..] {
            [Outcome::Written(_)] => Ok(Step::Complete),
            _ => Err(unexpected(reply)),
        }
    }
}

/// Finds the number of existing records, at least `records`. Killed runs may have left gaps among
/// their last insertions: also returns the range of numbers that may have to be put again.
pub fn existing(sessions: &mut impl Sessions, records: u64) -> Result<(u64, Range<u64>), Error> {
    let session = sessions.open();
    let found = search(sessions, session, records);
    sessions.close(session);
    found
}

fn search(
    sessions: &mut impl Sessions,
    session: SessionKey,
    records: u64,
) -> Result<(u64, Range<u64>), Error> {
    let mut there = |number: u64| -> Result<bool, Error> {
        let look = Transaction::of(Operation::Exists { key: keys::key(number) });
        Ok(ask(sessions, session, &look)?.outcomes.first() == Some(&Outcome::Flag(true)))
    };
    if !there(records)? {
        return Ok((records, records..records));
    }
    let (mut present, mut step) = (records, 1);
    while there(present + step)? {
        (present, step) = (present + step, 2 * step);
    }
    let mut missing = present + step;
    while missing - present > 1 {
        let middle = present + (missing - present) / 2;
        if there(middle)? {
            present = middle;
        } else {
            missing = middle;
        }
    }
    Ok((missing, missing.saturating_sub(CLIENTS_MAX as u64).max(records)..missing))
}

/// A run of a core workload.
pub struct Ycsb {
    mix: Mix,
    chooser: Chooser,
    text: Text,
    inserts: Inserts,
    clients: Vec<Client>,
    /// Reads may miss recent writes.
    stale: bool,
}

struct Client {
    random: SmallRng,
    kind: Kind,
    /// The record of the operation, or the first one of a scan.
    number: u64,
    /// Number of records that a scan has yet to read.
    wanted: u32,
}

impl Ycsb {
    /// `mix` over the records 0 to `existing - 1`, with the given popularity of records.
    pub fn new(
        mix: Mix,
        distribution: Distribution,
        existing: u64,
        clients: usize,
        seed: u64,
    ) -> Self {
        let client = |client| Client {
            random: SmallRng::seed_from_u64(seed ^ keys::fnv(client)),
            kind: Kind::Read,
            number: 0,
            wanted: 0,
        };
        // The number of inserts of a timed run is not known beforehand. Records beyond a fifth more
        // than the existing ones can be scanned, but are never chosen.
        let inserts = if mix.percent_of(Kind::Insert) > 0 { existing / 5 } else { 0 };
        Self {
            mix,
            chooser: Chooser::new(distribution, existing, inserts),
            text: Text::new(&mut SmallRng::seed_from_u64(seed)),
            inserts: Inserts::new(existing),
            clients: (0..clients as u64).map(client).collect(),
            stale: false,
        }
    }

    /// Sets whether reads may miss recent writes: then a record may not be visible yet.
    pub fn take_stale(&mut self, stale: bool) {
        self.stale = stale;
    }

    /// Number of records known to exist.
    pub fn existing(&self) -> u64 {
        self.inserts.existing
    }
}

impl Workload for Ycsb {
    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize> {
        let Self { mix, chooser, text, inserts, clients, .. } = self;
        let Client { random, kind, number, wanted } = &mut clients[client];
        *kind = mix.draw(random);
        if *kind == Kind::Insert {
            *number = inserts.take();
            text.insert(*number, transaction, random);
        } else {
            *number = chooser.draw(inserts.existing, random);
        }
        match kind {
            Kind::Insert => {}
            Kind::Read | Kind::ReadModifyWrite => mix::read(*number, transaction),
            Kind::Update => text.update(*number, transaction, random),
            Kind::Scan => {
                *wanted = random.random_range(1..=SCAN_RECORDS_MAX);
                mix::scan(keys::key(*number), *wanted, transaction);
            }
        }
        Some(*kind as usize)
    }

    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault> {
        let Client { random, kind, number, wanted } = &mut self.clients[client];
        let wrong = |wrong| fault(*number, wrong);
        match (&transaction.then[..], &reply.outcomes[..]) {
            ([Operation::Get { .. }], [Outcome::Value(None)]) if self.stale => {}
            ([Operation::Get { .. }], [Outcome::Value(value)]) => {
                let (value, _) = value.as_ref().ok_or_else(|| wrong(Wrong::Missing))?;
                mix::check_value(keys::fnv(*number), value).map_err(wrong)?;
                if *kind == Kind::ReadModifyWrite {
                    self.text.update(*number, transaction, random);
                    return Ok(Step::More);
                }
            }
            ([Operation::Patch { .. }], [Outcome::Length(bytes)]) => {
                if *bytes != mix::RECORD_BYTES as u64 {
                    return Err(wrong(Wrong::Length(*bytes as usize)));
                }
            }
            ([Operation::Put { .. }], [Outcome::Written(_)]) => self.inserts.acknowledge(*number),
            ([Operation::Scan { start, .. }], [Outcome::Page(page)]) => {
                // The first page starts at a record; a later one where the one before ended.
                let first = *start == keys::key(*number) && !self.stale;
                mix::check_page(first.then_some(start.as_slice()), *wanted, page).map_err(wrong)?;
                *wanted -= page.pairs.len() as u32;
                if let Some(next) = page.next.as_ref().filter(|_| *wanted > 0) {
                    mix::scan(next.clone(), *wanted, transaction);
                    return Ok(Step::More);
                }
            }
            _ => return Err(unexpected(reply)),
        }
        Ok(Step::Complete)
    }

    fn failed(&mut self, client: usize) {
        let Client { kind, number, .. } = self.clients[client];
        if kind == Kind::Insert {
            self.inserts.again.push(number);
        }
    }
}

fn fault(number: u64, wrong: Wrong) -> Fault {
    let kind = match wrong {
        Wrong::Missing => "missing_record",
        Wrong::Length(_) | Wrong::Mark(_) => "wrong_value",
        Wrong::Scan(_) => "wrong_scan",
    };
    let key = keys::key(number);
    Fault { kind, what: format!("record {number}, {}: {wrong}", String::from_utf8_lossy(&key)) }
}

fn unexpected(reply: &Reply) -> Fault {
    Fault { kind: "wrong_reply", what: format!("the reply does not fit the operation: {reply:?}") }
}

/// The existing records. They are inserted in the order of their numbers, but acknowledged in any
/// order; only those below the lowest number in flight are known to exist.
struct Inserts {
    existing: u64,
    next: u64,
    acknowledged: BTreeSet<u64>,
    /// Numbers whose insertion has no reply. They are inserted again, because otherwise no later
    /// one would ever count.
    again: Vec<u64>,
}

impl Inserts {
    fn new(existing: u64) -> Self {
        Self { existing, next: existing, acknowledged: BTreeSet::new(), again: Vec::new() }
    }

    fn take(&mut self) -> u64 {
        self.again.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn acknowledge(&mut self, number: u64) {
        self.acknowledged.insert(number);
        while self.acknowledged.remove(&self.existing) {
            self.existing += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::generator::{Measured, Settings, run};
    use crate::mix::CORE;
    use crate::model::Model;

    const RECORDS: u64 = 500;

    fn loaded() -> Model {
        let mut model = Model::default();
        let settings = Settings::to_the_end(4, 8);
        let measured = run(&mut model, &mut Load::new(0..RECORDS, 1), settings, &mut |_| true);
        assert_eq!((measured.operations(), measured.errors.total()), (RECORDS, 0));
        assert_eq!(model.pairs.len() as u64, RECORDS);
        model
    }

    fn measure(model: &mut Model, mix: Mix) -> (Measured, u64) {
        let (existing, _) = existing(model, RECORDS).unwrap();
        let mut ycsb = Ycsb::new(mix, mix.distribution, existing, 8, 1);
        let settings = Settings {
            clients: 8,
            sessions: 8,
            warm_up: Duration::from_millis(5),
            duration: Some(Duration::from_millis(150)),
            pace: None,
        };
        (run(model, &mut ycsb, settings, &mut |_| true), ycsb.existing())
    }

    #[test]
    fn every_core_workload_runs_without_an_error_and_again_where_it_ran() {
        let mut model = loaded();
        model.page_max = Some(30);
        for mix in CORE.into_iter().chain(CORE) {
            let (measured, existing) = measure(&mut model, mix);
            assert_eq!((measured.errors.total(), measured.ended_early), (0, None), "{mix:?}");
            for (kind, latency) in Kind::ALL.into_iter().zip(measured.latency_ns) {
                assert_eq!(latency.is_empty(), mix.percent_of(kind) == 0, "{mix:?} {kind:?}");
            }
            assert_eq!(model.pairs.len() as u64, existing);
        }
    }

    #[test]
    fn records_that_are_wrong_are_errors() {
        type Plant = fn(&mut Model);
        #[rustfmt::skip]
        let cases: [(char, &str, Plant); 5] = [
            ('c', "missing_record", |model| _ = model.pairs.remove(&keys::key(keys::fnv(0) % RECORDS))),
            ('a', "wrong_value",    |model| model.pairs.values_mut().for_each(|value| value.truncate(900))),
            ('c', "wrong_value",    |model| model.pairs.values_mut().for_each(|value| value.fill(b'x'))),
            ('e', "wrong_value",    |model| model.pairs.values_mut().for_each(|value| value.fill(b'x'))),
            ('e', "wrong_scan",     |model| model.page_extra = true),
        ];
        for (letter, kind, plant) in cases {
            let mut model = loaded();
            plant(&mut model);
            let (measured, _) = measure(&mut model, Mix::named(letter).unwrap());
            assert!(measured.errors.counts.contains_key(kind), "{kind}: {:?}", measured.errors);
        }
    }

    #[test]
    fn a_killed_runs_insertions_are_found_and_its_holes_named() {
        let mut model = loaded();
        for (upto, wanted) in [(RECORDS, RECORDS), (501, 501), (700, 700), (5_000, 5_000)] {
            (0..upto).for_each(|number| _ = model.pairs.insert(keys::key(number), vec![]));
            let (existing, again) = existing(&mut model, RECORDS).unwrap();
            assert_eq!(existing, wanted);
            let first =
                if upto == RECORDS { RECORDS } else { RECORDS.max(upto.saturating_sub(1_024)) };
            assert_eq!(again, first..wanted);
        }
        // A client was killed while 4,998 and 4,990 were in flight.
        for hole in [4_998, 4_990] {
            model.pairs.remove(&keys::key(hole));
        }
        let (existing, again) = existing(&mut model, RECORDS).unwrap();
        assert!(existing >= 4_990 && again.start <= 4_990, "{existing} {again:?}");
    }

    #[test]
    fn a_cluster_that_goes_away_ends_the_run_with_what_was_measured() {
        let gone = Error::Closed;
        let a = Mix::named('a').unwrap();
        let mut model = loaded();
        model.fails = Some((5_000, gone));
        let (measured, _) = measure(&mut model, a);
        assert!(measured.ended_early.unwrap().starts_with("gave up after"));
        assert_eq!(measured.errors.counts.keys().collect::<Vec<_>>(), [&"other"]);
        let done: u64 = measured.timeline.iter().sum();
        assert!(done <= 5_000, "{done} operations count, and what failed is not among them");
    }

    #[test]
    fn an_insertion_counts_only_when_all_before_it_do() {
        let mut inserts = Inserts::new(10);
        assert_eq!([inserts.take(), inserts.take(), inserts.take()], [10, 11, 12]);
        inserts.acknowledge(11);
        inserts.acknowledge(12);
        assert_eq!(inserts.existing, 10);
        inserts.again.push(10);
        assert_eq!([inserts.take(), inserts.take()], [10, 13]);
        inserts.acknowledge(10);
        assert_eq!(inserts.existing, 13);
    }
}
