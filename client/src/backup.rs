//! Copies of the pairs of all groups, at one place in the order, taken while the cluster serves.
//!
//! One replica of each group, a follower where there is one, copies its pairs part by part (`skein_kvstore::backup`).
//! When little is left in every group, a mark is ordered, at which every copy is completed. If a copy is not completed
//! there, because too much has changed since its last part, another mark follows. A replica that does not answer is
//! replaced by another one of its group, whose copy begins anew.
//!
//! A part is asked for when the one before was taken. So a caller that takes its time holds up nobody, and costs the
//! replica the names of the keys that change meanwhile. While a replica walks over its pairs, it rests after each part
//! for as long as the part took: what it serves otherwise comes first.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_kvstore::backup::{Content, CopyAnswer, CopyQuery, Mark};
use skein_multicast::session_transport::{QueryKey, SessionKey};
use skein_protocol::ids::{GroupId, ReplicaId};

use crate::driver::{Driver, Ticket};
use crate::error::Error;

/// Time after which a replica that sends no part is given up.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// After a longer time between two steps, the caller was away, and not the replicas.
const AWAY: Duration = Duration::from_secs(1);
/// Time after which a replica that does not come to a mark is given up: it lags behind its group.
const LAG_MAX: Duration = Duration::from_secs(30);
/// Time for which marks are repeated while too much changes.
const CATCH_UP_MAX: Duration = Duration::from_mins(1);
/// A mark is sent when no more keys than this are left in any group.
const LITTLE: u64 = 512;
/// Time that the end of the session may take to reach the replicas. If it does not, it follows later.
const END_MAX: Duration = Duration::from_secs(1);
/// The longest rest of a replica between two parts. A part that takes longer waits for the caller, or for a core.
const REST_MAX: Duration = Duration::from_millis(20);
/// Pause before a part is asked for when nothing was left.
const PAUSE: Duration = Duration::from_millis(1);
/// Copies of a group that may be begun.
const ATTEMPTS_MAX: u32 = 15;
/// Pause before a copy is begun anew: a replica that is started again, or whose last backup was killed, takes a while.
const ANEW_AFTER: Duration = Duration::from_secs(1);

/// Takes the copies. An error ends the backup.
pub trait Sink {
    /// Why it takes no more.
    type Error;

    /// The copy of a group begins: what was taken of an earlier one is void.
    fn begin(&mut self, group: u16) -> Result<(), Self::Error>;

    /// Pairs as encoded records, which follow those before in key order.
    fn walk(&mut self, group: u16, records: &[u8]) -> Result<(), Self::Error>;

    /// Changes as encoded records: they override earlier ones.
    fn change(&mut self, group: u16, records: &[u8]) -> Result<(), Self::Error>;
}

/// Why a backup has failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure<E> {
    /// The cluster has failed or is unavailable.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// The sink has failed.
    #[error("{0}")]
    Sink(E),
    /// No replica of the group has made a copy to its end.
    #[error("no replica of group {} has made a copy to its end: {why}; look at `skein status`, and try again", .group.0)]
    NoCopy {
        group: GroupId,
        /// What happened to the last one.
        why: String,
    },
    /// The copies were never so close to the present state that a mark could complete them.
    #[error("for {CATCH_UP_MAX:?}, more has changed in group {} than could be copied: try again when less is written, or write the backup to a faster disk", .group.0)]
    TooMuchChanges { group: GroupId },
}

/// Progress of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of pairs when the backup began.
    pub bytes: u64,
    /// Bytes of records that were taken of the walks under way or done.
    pub walked: u64,
    /// Bytes of records of changes that were taken.
    pub changed: u64,
    /// Keys that have changed since they were copied.
    pub behind: u64,
    /// Copies that have failed and were begun anew.
    pub failures: u32,
}

/// A backup that is being taken.
pub struct Backup<'a, F: Fabric> {
    driver: &'a mut Driver<F>,
    session: SessionKey,
    copies: Vec<Copy>,
    mark: Option<MarkUnderWay>,
    /// Results of marks that were not taken yet.
    results: BTreeMap<Ticket, Result<Vec<Mark>, Error>>,
    /// Time since which marks are repeated.
    marking_since: Option<Duration>,
    bytes: u64,
    failures: u32,
    /// Time of the last step.
    stepped_at: Duration,
}

/// The copy of one group.
struct Copy {
    group: GroupId,
    /// The replica that makes it.
    slot: u8,
    /// Number of copies of this group that were begun.
    attempt: u32,
    /// Number of the next part.
    next: u32,
    query: Option<QueryKey>,
    /// When the query was sent, or is to be sent.
    at: Duration,
    has_begun: bool,
    has_walked: bool,
    /// Keys that have changed since they were sent.
    behind: u64,
    end: End,
    walked: u64,
    changed: u64,
}

/// What a copy was at the mark under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The replica has not come to the mark.
    Open,
    Complete(u64),
    Missed(u64),
    /// The copy was begun anew after the mark was sent.
    Void,
}

struct MarkUnderWay {
    ticket: Ticket,
    /// The answers of all groups, and when they came.
    answered: Option<(Vec<Mark>, Duration)>,
}

impl<'a, F: Fabric> Backup<'a, F> {
    /// Begins a backup with a session of its own.
    pub fn begin(driver: &'a mut Driver<F>) -> Result<Self, Error> {
        let session = driver.open();
        let topology = driver.shape().layout.topology();
        let ticket = driver.mark(session)?;
        let mut backup = Self {
            driver,
            session,
            copies: Vec::new(),
            mark: None,
            results: BTreeMap::new(),
            marking_since: None,
            bytes: 0,
            failures: 0,
            stepped_at: Duration::ZERO,
        };
        let before = loop {
            match backup.results.remove(&ticket) {
                Some(marks) => break marks?,
                None => backup.turn()?,
            }
        };
        backup.bytes = before.iter().map(|mark| mark.bytes).sum();
        let now = backup.driver.now();
        let copy = |group| {
            let leader = backup.driver.leader(group);
            Copy {
                group,
                slot: (leader.slot + 1) % topology.replicas,
                attempt: 1,
                next: 0,
                query: None,
                at: now,
                has_begun: false,
                has_walked: false,
                behind: 0,
                end: End::Open,
                walked: 0,
                changed: 0,
            }
        };
        backup.copies = topology.all_groups().iter().map(copy).collect();
        Ok(backup)
    }

    /// Does what can be done, and waits a little if there is nothing. Returns the marks of all groups when the copies are
    /// complete, and have been taken by `sink`.
    pub fn step<S: Sink>(
        &mut self,
        sink: &mut S,
    ) -> Result<Option<Vec<Mark>>, BackupFailure<S::Error>> {
        self.turn()?;
        while let Some((query, answer)) = self.driver.take_copy() {
            let copy = self.copies.iter_mut().find(|copy| copy.query == Some(query));
            let Some(copy) = copy else { continue };
            copy.query = None;
            let took = self.driver.now().saturating_sub(copy.at);
            let group = copy.group.0;
            let failed = match CopyAnswer::decode(&answer) {
                Some(CopyAnswer::Part(part)) if part.number == copy.next => {
                    copy.next += 1;
                    if !std::mem::replace(&mut copy.has_begun, true) {
                        sink.begin(group).map_err(BackupFailure::Sink)?;
                    }
                    if part.content == Content::Walk {
                        copy.walked += part.records.len() as u64;
                        sink.walk(group, part.records).map_err(BackupFailure::Sink)?;
                    } else {
                        copy.has_walked = true;
                        copy.changed += part.records.len() as u64;
                        sink.change(group, part.records).map_err(BackupFailure::Sink)?;
                    }
                    copy.behind = part.behind;
                    match part.content {
                        Content::Complete(position) => copy.end = End::Complete(position),
                        Content::Missed(position) => copy.end = End::Missed(position),
                        Content::Walk | Content::Changes => {}
                    }
                    let rest = if !copy.has_walked {
                        took.min(REST_MAX)
                    } else if copy.behind == 0 {
                        PAUSE
                    } else {
                        Duration::ZERO
                    };
                    copy.at = self.driver.now() + rest;
                    continue;
                }
                Some(CopyAnswer::Busy) => "it makes a copy for another backup",
                Some(CopyAnswer::Gone) => "it was started again, or has lost the copy",
                Some(CopyAnswer::Part(_)) | None => "its answer cannot be read",
            };
            self.begin_anew(GroupId(group), failed)?;
        }
        self.give_up_silent()?;
        if let Some(marks) = self.keep_marking()? {
            return Ok(Some(marks));
        }
        self.ask();
        Ok(None)
    }

    /// Ends the session, and with it the copies.
    pub fn end(self) -> Result<(), Error> {
        let Self { driver, session, .. } = self;
        driver.close(session);
        let until = driver.now() + END_MAX;
        while driver.closing() > 0 && driver.now() < until {
            if !driver.poll(&mut |_, _| ())? {
                driver.wait(PAUSE);
            }
        }
        Ok(())
    }

    /// Progress so far.
    pub fn progress(&self) -> Progress {
        let sum = |of: fn(&Copy) -> u64| self.copies.iter().map(of).sum();
        Progress {
            bytes: self.bytes,
            walked: sum(|copy| copy.walked),
            changed: sum(|copy| copy.changed),
            behind: sum(|copy| copy.behind),
            failures: self.failures,
        }
    }

    /// Takes what has arrived, or waits a little.
    fn turn(&mut self) -> Result<(), Error> {
        let results = &mut self.results;
        let unreadable = || Error::BadReply("the answer to a mark".to_owned());
        let busy = self.driver.poll(&mut |ticket, result| {
            let marks = result.and_then(|reply| Mark::of(&reply).ok_or_else(unreadable));
            results.insert(ticket, marks);
        })?;
        if !busy {
            self.driver.wait(PAUSE);
        }
        Ok(())
    }

    /// Asks for the next parts. A copy that has come to the mark under way waits for the others.
    fn ask(&mut self) {
        let (session, now) = (self.driver.session_id(self.session).0, self.driver.now());
        for copy in &mut self.copies {
            let stays =
                self.mark.is_some() && matches!(copy.end, End::Complete(_) | End::Missed(_));
            if copy.query.is_some() || stays || now < copy.at {
                continue;
            }
            let query = CopyQuery { session, attempt: copy.attempt, number: copy.next };
            let of = ReplicaId::new(copy.group, copy.slot);
            copy.query = Some(self.driver.ask_for_copy(self.session, of, &query.encode()));
            copy.at = now;
        }
    }

    /// Gives up replicas that do not answer, or do not come to the mark.
    fn give_up_silent<E>(&mut self) -> Result<(), BackupFailure<E>> {
        let now = self.driver.now();
        if now > std::mem::replace(&mut self.stepped_at, now) + AWAY {
            for copy in self.copies.iter_mut().filter(|copy| copy.query.is_some()) {
                copy.at = now;
            }
        }
        let answered = self.mark.as_ref().and_then(|mark| mark.answered.as_ref());
        let lags = answered.is_some_and(|(_, at)| now > *at + LAG_MAX);
        for at in 0..self.copies.len() {
            let copy = &self.copies[at];
            let group = copy.group;
            if copy.query.is_some() && now > copy.at + SILENT_MAX {
                self.begin_anew(group, "it did not answer")?;
            } else if lags && copy.end == End::Open {
                self.begin_anew(group, "it lags behind its group")?;
            }
        }
        Ok(())
    }

    /// Begins the copy of a group anew, at its next replica.
    fn begin_anew<E>(&mut self, group: GroupId, why: &str) -> Result<(), BackupFailure<E>> {
        let replicas = self.driver.shape().layout.topology().replicas;
        let copy = &mut self.copies[group.index()];
        if copy.attempt >= ATTEMPTS_MAX {
            let why = format!("replica {} failed last: {why}", copy.slot);
            return Err(BackupFailure::NoCopy { group, why });
        }
        tracing::warn!(group = group.0, slot = copy.slot, why, "a copy is begun anew");
        if let Some(query) = copy.query.take() {
            self.driver.forget_copy(query);
        }
        let end = if self.mark.is_some() { End::Void } else { End::Open };
        *copy = Copy {
            group,
            slot: (copy.slot + 1) % replicas,
            attempt: copy.attempt + 1,
            next: 0,
            query: None,
            at: self.driver.now() + ANEW_AFTER,
            has_begun: false,
            has_walked: false,
            behind: 0,
            end,
            walked: 0,
            changed: 0,
        };
        self.failures += 1;
        self.marking_since = None;
        Ok(())
    }

    /// Sends a mark when little is left everywhere. Returns its answers if it has completed all copies.
    fn keep_marking<E>(&mut self) -> Result<Option<Vec<Mark>>, BackupFailure<E>> {
        let now = self.driver.now();
        let Some(mark) = &mut self.mark else {
            if self.copies.iter().all(|copy| copy.has_walked && copy.behind <= LITTLE) {
                self.marking_since.get_or_insert(now);
                self.copies.iter_mut().for_each(|copy| copy.end = End::Open);
                let ticket = self.driver.mark(self.session)?;
                self.mark = Some(MarkUnderWay { ticket, answered: None });
            } else if let Some(copy) = self.copies.iter().find(|copy| copy.behind > LITTLE)
                && self.copies.iter().all(|copy| copy.has_walked)
                && now > *self.marking_since.get_or_insert(now) + CATCH_UP_MAX
            {
                return Err(BackupFailure::TooMuchChanges { group: copy.group });
            }
            return Ok(None);
        };
        if let Some(marks) = self.results.remove(&mark.ticket) {
            mark.answered = Some((marks?, now));
        }
        let Some((marks, _)) = &mark.answered else { return Ok(None) };
        let position = |copy: &Copy| marks.get(copy.group.index()).map(|mark| mark.position);
        let complete =
            |copy: &Copy| matches!(copy.end, End::Complete(at) if Some(at) == position(copy));
        if self.copies.iter().all(complete) {
            return Ok(Some(marks.clone()));
        }
        if self.copies.iter().all(|copy| copy.end != End::Open) {
            self.mark = None;
            let missed = self.copies.iter().find(|copy| matches!(copy.end, End::Missed(_)));
            if let (Some(copy), Some(since)) = (missed, self.marking_since)
                && now > since + CATCH_UP_MAX
            {
                return Err(BackupFailure::TooMuchChanges { group: copy.group });
            }
        }
        Ok(None)
    }
}
