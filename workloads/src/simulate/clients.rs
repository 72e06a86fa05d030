//! The clients of a run: processes with one driver each, and a few sessions with one operation at a time. Operations
//! and results are recorded.

use std::time::Duration;

use skein_checker::history::{Final, Invoke, Process, Record, Unanswered, text};
use skein_client::{Driver, Error, Operation, Outcome, ReadMode, SessionKey, Shape, Ticket};
use skein_client::{Refusal, Reply, Transaction};
use skein_fabric::sim::{Rng, SimFabric, World};
use skein_kvstore::slots::HashSlot;
use skein_protocol::ids::{GroupId, SessionId};

use super::Style;
use crate::chaos::objects::{Asker, Objects};
use crate::recorded::end;

/// Longest sleep of a client. Nothing wakes it when its next operation is due.
const NAP: Duration = Duration::from_micros(500);

/// The records so far.
#[derive(Default)]
pub(super) struct Tape {
    pub(super) records: Vec<Record>,
    processes: Process,
    pub(super) invoked: u64,
    pub(super) unknown: u64,
    /// Number of hash slots moved.
    pub(super) moves: u64,
    /// A caller received [`Refusal::WrongEpoch`], which its client should have handled.
    pub(super) saw_wrong_epoch: bool,
}

impl Tape {
    /// The time of the next record: the number of records before it.
    pub(super) fn now(&self) -> u64 {
        self.records.len() as u64
    }

    fn process(&mut self) -> Process {
        self.processes += 1;
        self.processes
    }
}

/// A session and its operation in progress.
struct Lane {
    session: SessionKey,
    process: Process,
    asks: Option<Ticket>,
    asked: Transaction,
    /// Earliest time of the next operation.
    due: Duration,
}

/// A client process. It ends as a killed process does, without closing its sessions.
pub(super) struct Client {
    pub(super) name: String,
    driver: Option<Driver<SimFabric>>,
    lanes: Vec<Lane>,
    asker: Asker,
    /// Result of an operation that does not belong to a lane: of [`submit`](Self::submit) or
    /// [`move_slot`](Self::move_slot).
    answer: Option<Result<Reply, Error>>,
}

impl Client {
    /// The client process with this number, with `sessions` open sessions.
    pub(super) fn new(
        world: &World,
        shape: &Shape,
        number: u16,
        sessions: usize,
        rng: &mut Rng,
        tape: &mut Tape,
    ) -> Self {
        let name = format!("c{number}");
        let mut driver = Driver::new(world.join(&name), shape.clone());
        let lanes = (0..sessions).map(|_| Lane {
            session: driver.open_as(SessionId::from_random(rng.word())),
            process: tape.process(),
            asks: None,
            asked: Transaction::default(),
            due: Duration::ZERO,
        });
        let lanes = lanes.collect();
        let asker = Asker::new(rng.word(), number);
        Self { name, driver: Some(driver), lanes, asker, answer: None }
    }

    fn driver(&mut self) -> &mut Driver<SimFabric> {
        self.driver.as_mut().expect("it lives")
    }

    /// Sets the timeout of operations that are submitted from now on.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.driver().set_timeout(timeout);
    }

    /// Whether no lane has an operation in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.asks.is_none())
    }

    /// Submits a transaction in the first session, without recording it.
    pub(super) fn submit(&mut self, transaction: &Transaction) -> Result<Ticket, Error> {
        let session = self.lanes[0].session;
        self.driver().submit(session, transaction)
    }

    /// Requests a move of a slot in the first session, without recording it.
    pub(super) fn move_slot(&mut self, slot: HashSlot, to: GroupId) -> Result<Ticket, Error> {
        let session = self.lanes[0].session;
        self.driver().move_slot(session, slot, to)
    }

    /// The result of the last call of [`submit`](Self::submit) or [`move_slot`](Self::move_slot), once it is there.
    pub(super) fn take_answer(&mut self) -> Option<Result<Reply, Error>> {
        self.answer.take()
    }

    /// Submits an operation in each session that has none in progress and whose think time is over.
    pub(super) fn ask(
        &mut self,
        objects: &Objects,
        style: &Style,
        now: Duration,
        thinks: Duration,
        rng: &mut Rng,
        tape: &mut Tape,
    ) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.asks.is_none() && lane.due <= now) {
            let driver = self.driver.as_mut().expect("it lives");
            let (transaction, _) = objects.draw(style.mix, &mut self.asker, 0);
            let mode =
                if transaction.only_reads() { *rng.pick(style.modes) } else { ReadMode::Ordered };
            driver.set_read_mode(mode);
            let invoke = Invoke::of(tape.now(), lane.process, &transaction, None);
            tape.records.push(Record::Invoke(Invoke { stale: mode == ReadMode::Stale, ..invoke }));
            tape.invoked += 1;
            lane.due = now + thinks.mul_f64(rng.below(1_000) as f64 / 1e3);
            match driver.submit(lane.session, &transaction) {
                Ok(ticket) => (lane.asks, lane.asked) = (Some(ticket), transaction),
                Err(error) => lane.end(&Err(error), tape),
            }
        }
    }

    /// Receives and records results; sleeps a little if there are none. Returns whether there were any.
    pub(super) fn turn(&mut self, tape: &mut Tape) -> Result<bool, Error> {
        let Self { driver, lanes, answer, asker, .. } = self;
        let driver = driver.as_mut().expect("it lives");
        let worked = driver.poll(&mut |ticket, result| match lanes
            .iter_mut()
            .find(|lane| lane.asks == Some(ticket))
        {
            Some(lane) => {
                if let Ok(reply) = &result {
                    asker.told(&lane.asked, reply);
                }
                lane.end(&result, tape);
            }
            None => *answer = Some(result),
        })?;
        if !worked {
            driver.wait(NAP);
        }
        Ok(worked)
    }

    /// Kills the process. The outcomes of operations in progress are recorded as unknown.
    pub(super) fn kill(&mut self, world: &World, tape: &mut Tape) {
        if let Some(driver) = self.driver.take() {
            world.crash(&self.name);
            driver.abandon();
        }
        for lane in self.lanes.drain(..).filter(|lane| lane.asks.is_some()) {
            let why = "its process was killed".to_owned();
            let t = tape.now();
            tape.unknown += 1;
            tape.records.push(Record::Unknown(Unanswered { t, p: lane.process, why }));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.abandon();
        }
    }
}

impl Lane {
    fn end(&mut self, result: &Result<Reply, Error>, tape: &mut Tape) {
        tape.saw_wrong_epoch |= matches!(result, Err(Error::Refused(Refusal::WrongEpoch { .. })));
        let record = end(tape.now(), self.process, result, None);
        self.asks = None;
        if matches!(record, Record::Unknown(_)) {
            // After an unknown outcome the session continues as another process of the history.
            self.process = tape.process();
            tape.unknown += 1;
        }
        tape.records.push(record);
    }
}

/// The record of the final value of a key, as read at `t`.
pub(super) fn found(t: u64, key: &str, reply: &Reply) -> Option<Record> {
    let [Outcome::Value(value)] = &reply.outcomes[..] else { return None };
    let value = value.as_ref().map(|(value, version)| (text(value), *version));
    Some(Record::Final(Final { t, key: key.to_owned(), value }))
}

/// The transaction that reads a key.
pub(super) fn reading(key: &str) -> Transaction {
    Transaction::of(Operation::Get { key: key.as_bytes().to_vec() })
}
