//! Registers: each put overwrites the value. Versions give the order.
//!
//! If a value is put by one operation only, it identifies that put: it stands at one version, and
//! at none if the put was refused. A value that several operations put, or that may be from before
//! the history, identifies no put.

use hashbrown::{HashMap, HashSet};

use super::frontier::{self, Seen};
use super::{Judgement, Key, Moment, NEVER};
use crate::history::{Final, Header};

pub(super) fn check(header: &Header, name: &str, key: &Key, last: &Final, verdict: &mut Judgement) {
    let mut asked: HashSet<&str> = HashSet::new();
    let mut ambiguous: HashSet<&str> = HashSet::new();
    for put in key.puts.iter().map(|put| put.what.as_str()) {
        if header.before || !asked.insert(put) || key.not_written.contains(put) {
            ambiguous.insert(put);
        }
    }
    let mut versions = Versions { ambiguous, of: HashMap::new(), at: HashMap::new() };
    let mut seen = Vec::with_capacity(key.puts.len() + key.gets.len() + 1);
    for put in &key.puts {
        if let Some(version) = put.result {
            versions.are(name, &put.what, version, verdict);
        }
    }
    let moment = Moment { process: 0, invoked: last.t, returned: NEVER };
    let gets = key.gets.iter().map(|got| (got.moment, key.found(got), "a read"));
    for (moment, found, what) in gets.chain([(moment, last.found(), "the last read")]) {
        let mut place = 0;
        if let Some((value, version)) = found {
            let may_be = header.before || asked.contains(value);
            if !may_be && key.not_written.contains(value) {
                verdict.wrong("not_refused", || {
                    format!("{name} was {value}, though its client received a refusal")
                });
            } else if !may_be {
                verdict.wrong("invented", || {
                    format!("{name} was {value:?}, which no transaction wrote")
                });
            }
            versions.are(name, value, version, verdict);
            place = version;
        }
        seen.push(Seen { moment, saw: place, left: place, name: what });
    }
    for put in &key.puts {
        // A put of unknown outcome may have been observed by a read.
        let version = put.result.or_else(|| versions.of.get(put.what.as_str()).copied());
        let Some(version) = version else { continue };
        let saw = version.saturating_sub(1);
        seen.push(Seen { moment: put.moment, saw, left: version, name: &put.what });
    }
    frontier::check(header, name, &seen, verdict);
}

/// The value of each version and the version of each value.
struct Versions<'a> {
    /// Values that several operations put, or that may be from before the history. They may stand
    /// at any version.
    ambiguous: HashSet<&'a str>,
    of: HashMap<&'a str, u64>,
    at: HashMap<u64, &'a str>,
}

impl<'a> Versions<'a> {
    fn are(&mut self, name: &str, value: &'a str, version: u64, verdict: &mut Judgement) {
        if let Some(other) = self.at.insert(version, value).filter(|other| *other != value) {
            verdict.wrong("diverged", || {
                format!("{name} was both {other} and {value} at version {version}")
            });
        }
        if self.ambiguous.contains(value) {
            return;
        }
        if let Some(other) = self.of.insert(value, version).filter(|other| *other != version) {
            verdict.wrong("twice", || {
                format!("{value} was written to {name} at versions {other} and {version}")
            });
        }
    }
}
