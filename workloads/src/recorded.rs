//! Sessions that record every operation of any workload.

use std::time::Duration;

use hashbrown::HashMap;
use skein_checker::history::{Invoke, Process, Record, RecordHeader, Scribe, Unanswered, now};
use skein_client::{Error, ReadMode, Reply, SessionKey, Ticket, Transaction};

use crate::generator::Sessions;

/// The end of process `p`'s operation at `t`.
pub(crate) fn end(
    t: u64,
    p: Process,
    result: &Result<Reply, Error>,
    record: Option<&RecordHeader>,
) -> Record {
    match result {
        Ok(reply) => Record::ok(t, p, reply, record),
        Err(error) => {
            let unanswered = Unanswered { t, p, why: error.to_string() };
            let nothing = error.had_no_effect();
            if nothing { Record::Fail(unanswered) } else { Record::Unknown(unanswered) }
        }
    }
}

/// Sessions that record all operations.
///
/// A process has one operation in flight. A session with several operations in flight counts as as
/// many processes, which are reused after an answer and never after an unknown outcome.
pub struct Recorded<S> {
    sessions: S,
    scribe: Scribe,
    record: Option<RecordHeader>,
    free: HashMap<SessionKey, Vec<Process>>,
    under_way: HashMap<Ticket, Process>,
    processes: Process,
}

impl<S: Sessions> Recorded<S> {
    /// Records the operations on `sessions` in `scribe`. `record` is the layout of values that are
    /// records.
    pub fn new(sessions: S, scribe: Scribe, record: Option<RecordHeader>) -> Self {
        let (free, under_way) = (HashMap::new(), HashMap::new());
        Self { sessions, scribe, record, free, under_way, processes: 0 }
    }

    /// Returns the sessions. Operations still in flight stay without an end.
    pub fn finish(self) -> S {
        self.sessions
    }
}

impl<S: Sessions> Sessions for Recorded<S> {
    fn open(&mut self) -> SessionKey {
        self.sessions.open()
    }

    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error> {
        let process = self.free.get_mut(&session).and_then(Vec::pop).unwrap_or_else(|| {
            self.processes += 1;
            self.processes
        });
        let stale = self.sessions.reads_stale(transaction);
        let invoke = Invoke::of(now(), process, transaction, self.record.as_ref());
        let invoke = Invoke { stale, ..invoke };
        self.scribe.note(Record::Invoke(invoke));
        match self.sessions.submit(session, transaction) {
            Ok(ticket) => {
                self.under_way.insert(ticket, process);
                Ok(ticket)
            }
            Err(error) => {
                let told = Err(error);
                let end = end(now(), process, &told, self.record.as_ref());
                if matches!(end, Record::Fail(_)) {
                    self.free.entry(session).or_default().push(process);
                }
                self.scribe.note(end);
                told.map(|_| unreachable!("it is an error"))
            }
        }
    }

    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        let Self { sessions, scribe, record, free, under_way, .. } = self;
        sessions.poll(&mut |ticket, result| {
            if let Some(process) = under_way.remove(&ticket) {
                let end = end(now(), process, &result, record.as_ref());
                if !matches!(end, Record::Unknown(_)) {
                    free.entry(ticket.session).or_default().push(process);
                }
                scribe.note(end);
            }
            finished(ticket, result);
        })
    }

    fn wait(&mut self, longest: Duration) {
        self.sessions.wait(longest);
    }

    fn close(&mut self, session: SessionKey) {
        self.free.remove(&session);
        self.sessions.close(session);
    }

    fn set_read_mode(&mut self, mode: ReadMode) {
        self.sessions.set_read_mode(mode);
    }

    fn reads_stale(&self, transaction: &Transaction) -> bool {
        self.sessions.reads_stale(transaction)
    }
}

#[cfg(test)]
mod tests {
    use skein_client::GroupSet;

    use super::*;

    #[test]
    fn only_what_certainly_had_no_effect_is_a_failure() {
        let (after, silent) = (Duration::from_secs(5), GroupSet::EMPTY);
        let ended = |error| end(1, 2, &Err(error), None);
        assert!(matches!(ended(Error::WindowFull { window: 4 }), Record::Fail(_)));
        assert!(matches!(ended(Error::UnknownOutcome { after, silent }), Record::Unknown(_)));
    }
}
