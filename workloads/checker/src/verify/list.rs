//! Lists: tokens of one width, appended.
//!
//! If a token is appended by one operation only, it identifies that append. If several operations
//! append the same token, if a token has another width, or if the list may have content from before
//! the history, only lengths and prefixes are checked.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::frontier::{self, Seen};
use super::{Judgement, Key, Moment, NEVER};
use crate::history::{Final, Header, bytes};

pub(super) fn check(header: &Header, name: &str, key: &Key, last: &Final, verdict: &mut Judgement) {
    let value = last.found().map_or("", |(value, _)| value);
    let width = header.token_bytes;
    if !names_appends(header, key, last) {
        return by_length(header, name, key, last, verdict);
    }
    if !value.len().is_multiple_of(width) || !value.is_ascii() {
        let bytes = value.len();
        verdict.wrong("invented", || format!("{name} ends with a part of a token: {bytes} bytes"));
        return;
    }
    let places = places(name, key, value, width, verdict);
    let mut seen = Vec::with_capacity(key.appends.len() + key.gets.len() + 1);
    for append in &key.appends {
        let Some(place) = places.get(append.what.as_str()).copied() else {
            if append.moment.returned != NEVER {
                verdict.wrong("lost", || {
                    let who = append.moment.show(header);
                    format!("{} was appended to {name} ({who}), and is not there", append.what)
                });
            }
            continue;
        };
        let length = (place + 1) * width as u64;
        if append.result.is_some_and(|result| result != length) {
            verdict.wrong("wrong_reply", || {
                let told = append.result.unwrap_or_default();
                format!("{name} had {length} bytes with {}, but {told} was returned", append.what)
            });
        }
        seen.push(Seen { moment: append.moment, saw: place, left: place + 1, name: &append.what });
    }
    for got in &key.gets {
        let found = key.found(got).map_or("", |(value, _)| value);
        if !value.starts_with(found) || !found.len().is_multiple_of(width) {
            verdict.wrong("diverged", || {
                let who = got.moment.show(header);
                let common = found.bytes().zip(value.bytes()).take_while(|(a, b)| a == b).count();
                format!(
                    "{name} was read ({who}) with {} bytes that are not the beginning of its last value of {} bytes: they differ from byte {common} on",
                    found.len(),
                    value.len(),
                )
            });
            continue;
        }
        let place = (found.len() / width) as u64;
        seen.push(Seen { moment: got.moment, saw: place, left: place, name: "a read" });
    }
    let moment = Moment { process: 0, invoked: last.t, returned: NEVER };
    let place = (value.len() / width) as u64;
    seen.push(Seen { moment, saw: place, left: place, name: "the last read" });
    frontier::check(header, name, &seen, verdict);
}

/// Whether each token identifies its append, and all have the width by which a value is split.
fn names_appends(header: &Header, key: &Key, last: &Final) -> bool {
    let mut asked = HashSet::with_capacity(key.appends.len());
    let mut tokens = key.appends.iter().map(|append| append.what.as_str());
    let has_width = |token: &str| token.len() == header.token_bytes && token.is_ascii();
    let mut values = key.gets.iter().filter_map(|got| key.found(got)).chain(last.found());
    !header.before
        && !values.any(|(value, _)| is_coded(value))
        && tokens.all(|token| {
            let names_one = asked.insert(token) && !key.not_written.contains(token);
            names_one && has_width(token) && !is_coded(token)
        })
}

/// Whether a text stands for bytes that are not valid UTF-8.
fn is_coded(text: &str) -> bool {
    matches!(bytes(text), Cow::Owned(_))
}

/// Checks a list by what holds for any tokens. An element never moves, so all values are prefixes
/// of the final one, and an append that returned a length left the prefix of that length.
fn by_length(header: &Header, name: &str, key: &Key, last: &Final, verdict: &mut Judgement) {
    let of = |found: Option<(&str, u64)>| bytes(found.map_or("", |(value, _)| value)).into_owned();
    let value = of(last.found());
    let mut seen = Vec::with_capacity(key.appends.len() + key.gets.len() + 1);
    for append in &key.appends {
        let Some(length) = append.result else { continue };
        let token = bytes(&append.what);
        let saw = length.checked_sub(token.len() as u64);
        let there = usize::try_from(length).ok().and_then(|length| value.get(..length));
        if saw.is_none() || there.is_some_and(|there| !there.ends_with(&token)) {
            verdict.wrong("wrong_reply", || {
                let who = append.moment.show(header);
                format!(
                    "{name} does not end with {} where it has {length} bytes ({who})",
                    append.what
                )
            });
            continue;
        }
        let saw = saw.unwrap_or_default();
        seen.push(Seen { moment: append.moment, saw, left: length, name: &append.what });
    }
    for got in &key.gets {
        let found = of(key.found(got));
        if !value.starts_with(&found) {
            verdict.wrong("diverged", || {
                let (who, bytes) = (got.moment.show(header), found.len());
                format!("{name} was read ({who}) with {bytes} bytes that are not the beginning of its last value")
            });
            continue;
        }
        let place = found.len() as u64;
        seen.push(Seen { moment: got.moment, saw: place, left: place, name: "a read" });
    }
    let moment = Moment { process: 0, invoked: last.t, returned: NEVER };
    let place = value.len() as u64;
    seen.push(Seen { moment, saw: place, left: place, name: "the last read" });
    frontier::check(header, name, &seen, verdict);
}

/// Position of each token in `value`. Reports the tokens that should not be there.
fn places<'a>(
    name: &str,
    key: &Key,
    value: &'a str,
    width: usize,
    verdict: &mut Judgement,
) -> HashMap<&'a str, u64> {
    let asked: HashSet<&str> = key.appends.iter().map(|append| append.what.as_str()).collect();
    let mut places = HashMap::with_capacity(value.len() / width);
    for (place, at) in (0..value.len()).step_by(width).enumerate() {
        let token = &value[at..at + width];
        if let Some(first) = places.insert(token, place as u64) {
            verdict.wrong("twice", || {
                format!("{token} stands in {name} at places {first} and {place}")
            });
        }
        if key.not_written.contains(token) {
            verdict.wrong("not_refused", || {
                format!("{token} stands in {name}, though its client received a refusal")
            });
        } else if !asked.contains(token) {
            verdict.wrong("invented", || {
                format!("{token} stands in {name}, which no transaction appended")
            });
        }
    }
    places
}
