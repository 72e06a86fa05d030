//! Counters: increments by one, each of which returns the new number.

use hashbrown::HashMap;

use super::frontier::{self, Seen};
use super::{Judgement, Key, Moment, NEVER};
use crate::history::{Final, Header};

pub(super) fn check(header: &Header, name: &str, key: &Key, last: &Final, verdict: &mut Judgement) {
    let Some(total) = number(name, last.found(), verdict) else { return };
    let acknowledged = key.increments.iter().filter(|one| one.result.is_some()).count() as u64;
    let unknown = key.increments.len() as u64 - acknowledged;
    if total < acknowledged {
        verdict.wrong("lost", || {
            format!("{name} is {total}, and {acknowledged} increments were acknowledged")
        });
    }
    if total > acknowledged + unknown {
        verdict.wrong("twice", || {
            format!(
                "{name} is {total}, and only {acknowledged} increments were acknowledged and {unknown} are unknown"
            )
        });
    }
    let mut made = HashMap::with_capacity(key.increments.len());
    let mut seen = Vec::with_capacity(key.increments.len() + key.gets.len() + 1);
    for increment in &key.increments {
        let Some(result) = increment.result else { continue };
        let Some(place) = u64::try_from(result).ok().filter(|number| *number > 0) else {
            verdict.wrong("wrong_reply", || format!("an increment of {name} made it {result}"));
            continue;
        };
        if let Some(other) = made.insert(place, increment.moment.process) {
            verdict.wrong("wrong_reply", || {
                let process = increment.moment.process;
                format!(
                    "increments of {name} by processes {other} and {process} both returned {place}"
                )
            });
        }
        let moment = increment.moment;
        seen.push(Seen { moment, saw: place - 1, left: place, name: "an increment" });
    }
    for got in &key.gets {
        let Some(place) = number(name, key.found(got), verdict) else { continue };
        seen.push(Seen { moment: got.moment, saw: place, left: place, name: "a read" });
    }
    let moment = Moment { process: 0, invoked: last.t, returned: NEVER };
    seen.push(Seen { moment, saw: total, left: total, name: "the last read" });
    frontier::check(header, name, &seen, verdict);
}

fn number(name: &str, found: Option<(&str, u64)>, verdict: &mut Judgement) -> Option<u64> {
    let Some((text, _)) = found else { return Some(0) };
    let number = text.parse().ok();
    if number.is_none() {
        verdict.wrong("invented", || format!("{name} has the value {text:?}, which is no count"));
    }
    number
}
