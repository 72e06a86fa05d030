//! Transactions in words.

use std::fmt::Write as _;

use skein_kvstore::slots::SlotMap;

use super::model::{AFTERWARDS, DIVERGED, Fate, Kind, Model, NEVER, NONE, Step};
use super::scripts::{Proviso, Script, Span};
use crate::history::text;

/// Number of last values shown of a list.
const LIST_SHOWN: usize = 4;
/// Number of steps shown of a transaction.
const STEPS_SHOWN: usize = 12;
/// Number of keys named that are wrong together.
const KEYS_SHOWN: usize = 8;

pub(super) struct Words<'a> {
    model: &'a Model,
    slots: SlotMap,
}

impl<'a> Words<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self { model, slots: SlotMap::even(model.header.cluster.groups) }
    }

    /// The group of a key by the first slot map.
    pub(super) fn group(&self, key: u32) -> u16 {
        self.slots.owner(self.model.keys.bytes(key)).0
    }

    /// A key, and its group where there are several.
    pub(super) fn key(&self, key: u32) -> String {
        let name = self.model.keys.text(key);
        if self.model.header.cluster.groups > 1 {
            return format!("{name} (group {})", self.group(key));
        }
        name.to_owned()
    }

    /// The beginning of a sentence about some keys.
    pub(super) fn alone(&self, keys: &[u32]) -> String {
        let mut names: Vec<String> =
            keys.iter().take(KEYS_SHOWN).map(|key| self.key(*key)).collect();
        names.sort_unstable();
        if keys.len() > KEYS_SHOWN {
            names.push(format!("{} more", keys.len() - KEYS_SHOWN));
        }
        let (last, before) = names.split_last().expect("there is a key");
        match before {
            [] => format!("on {last} alone: "),
            _ => format!("on {} and {last} alone: ", before.join(", ")),
        }
    }

    pub(super) fn value(&self, value: u32) -> String {
        self.model.values.text(value).to_owned()
    }

    /// Seconds since the history began.
    pub(super) fn at(&self, t: u64) -> String {
        let since = t.saturating_sub(self.model.header.t);
        format!("{}.{:09} s", since / 1_000_000_000, since % 1_000_000_000)
    }

    /// Process, times and steps of a transaction.
    pub(super) fn transaction(&self, transaction: u32) -> String {
        let steps = self.model.steps_of(transaction);
        let mut text = format!("{}: ", self.who(transaction));
        for (i, step) in steps.iter().take(STEPS_SHOWN).enumerate() {
            let between = if i == 0 { "" } else { ", " };
            let _ = write!(text, "{between}{}", self.step(*step));
        }
        if steps.len() > STEPS_SHOWN {
            let _ = write!(text, " and {} more", steps.len() - STEPS_SHOWN);
        }
        text
    }

    pub(super) fn who(&self, transaction: u32) -> String {
        let one = &self.model.transactions[transaction as usize];
        let asked = self.at(one.invoked);
        if one.process == AFTERWARDS {
            return format!("the final read of all keys, from {asked} on");
        }
        let end = match (one.returned, one.fate) {
            (NEVER, _) => "never answered".to_owned(),
            (returned, Fate::Refused) => {
                format!("refused at {}", self.at(returned))
            }
            (returned, _) => format!("answered at {}", self.at(returned)),
        };
        format!("process {}, invoked at {asked}, {end}", one.process)
    }

    /// The conditions of a transaction, which are not among its steps; `None` if it had none.
    pub(super) fn script(&self, script: &Script) -> Option<String> {
        let guards = self.model.scripts.guards_of(script);
        if guards.is_empty() {
            return None;
        }
        let guards = guards.iter().map(|guard| self.condition(guard));
        let held = match script.held {
            Some(true) => "its conditions held",
            Some(false) => "its conditions did not hold",
            None => "it is not known whether its conditions held",
        };
        Some(format!("{held}: {}", guards.collect::<Vec<_>>().join(", ")))
    }

    fn condition(&self, guard: &Proviso) -> String {
        let of = |key: &u32| self.key(*key);
        match guard {
            Proviso::Exists(key) => format!("{} is there", of(key)),
            Proviso::Missing(key) => format!("{} is missing", of(key)),
            Proviso::Equals(key, value) => {
                let value = self.model.scripts.text(*value);
                let shown = text(value);
                // Bytes that are not valid UTF-8 are shown as digits.
                let quote = if shown.as_bytes() == value { "\"" } else { "" };
                format!("{} equals {quote}{shown}{quote}", of(key))
            }
            Proviso::Version(key, version) => format!("{} is at version {version}", of(key)),
            Proviso::Less(key, number) => format!("{} is less than {number}", of(key)),
            Proviso::AtMost(key, number) => format!("{} is {number} or less", of(key)),
            Proviso::Equal(key, number) => format!("{} is {number}", of(key)),
            Proviso::AtLeast(key, number) => format!("{} is {number} or more", of(key)),
            Proviso::Greater(key, number) => format!("{} is greater than {number}", of(key)),
            Proviso::Unchanged(range, _) => {
                let Span { start, end } = &self.model.scripts.spans[*range as usize];
                let end = end.as_ref().map_or("the end".to_owned(), |end| text(end));
                format!("range {} to {end} is unchanged", text(start))
            }
            Proviso::Elsewhere => "a condition on other keys".to_owned(),
        }
    }

    fn step(&self, step: Step) -> String {
        match step {
            Step::Append { key, value, .. } => {
                format!("append {} to {}", self.value(value), self.key(key))
            }
            Step::Put { key, value, version: 0 } => {
                format!("set {} to {}", self.key(key), self.value(value))
            }
            Step::Put { key, value, version } => {
                format!("set {} to {} (version {version})", self.key(key), self.value(value))
            }
            Step::Incr { key, by, number: None } => format!("add {by} to {}", self.key(key)),
            Step::Incr { key, by, number: Some(number) } => {
                format!("add {by} to {}, which made {number}", self.key(key))
            }
            Step::Patch { key, value, field } => {
                format!("set field {field} of {} to {}", self.key(key), self.value(value))
            }
            Step::Delete { key } => format!("remove {}", self.key(key)),
            Step::Overwrite { key } => format!("overwrite bytes of {}", self.key(key)),
            Step::At { key, version } => format!("find {} at version {version}", self.key(key)),
            Step::Get { key, .. } => format!("read {} as {}", self.key(key), self.seen(step)),
        }
    }

    /// What a read returned.
    pub(super) fn seen(&self, step: Step) -> String {
        let (key, saw, version) = match step {
            Step::Get { key, saw, version } => (key, saw, version),
            Step::At { version, .. } => return format!("version {version}"),
            _ => return String::new(),
        };
        match saw {
            NONE => "nothing".to_owned(),
            0 if self.model.kind(key) == Kind::List => "nothing".to_owned(),
            DIVERGED => "something else".to_owned(),
            // The form in which it was kept depends on what was known of the key at the time.
            _ if matches!(self.model.kind(key), Kind::Other | Kind::Mixed) => {
                format!("what is version {version}")
            }
            length if self.model.kind(key) == Kind::List => self.list(key, length as usize),
            value => format!("{} (version {version})", self.value(value)),
        }
    }

    /// The first `length` values of a list.
    pub(super) fn list(&self, key: u32, length: usize) -> String {
        let tokens = self.model.longest(key).chunks(self.model.width());
        let shown = tokens.take(length).skip(length.saturating_sub(LIST_SHOWN));
        let shown: Vec<_> = shown.map(|token| String::from_utf8_lossy(token)).collect();
        let before = if length > LIST_SHOWN { "… " } else { "" };
        let many = if length > LIST_SHOWN { format!(" of {length} values") } else { String::new() };
        format!("[{before}{}]{many}", shown.join(" "))
    }

    /// What a transaction wrote to a key, as a part of a sentence.
    pub(super) fn wrote(&self, transaction: u32, key: u32) -> String {
        let steps = self.model.steps_of(transaction).iter();
        let own: Vec<_> = steps.filter(|step| step.key() == key && step.writes()).collect();
        let key = self.key(key);
        let parts: Vec<String> = own
            .iter()
            .map(|step| match **step {
                Step::Append { value, .. } => format!("appended {} to {key}", self.value(value)),
                Step::Put { value, version: 0, .. } => {
                    format!("set {key} to {}", self.value(value))
                }
                Step::Put { value, version, .. } => {
                    format!("set {key} to {} as version {version}", self.value(value))
                }
                Step::Patch { value, field, .. } => {
                    format!("set field {field} of {key} to {}", self.value(value))
                }
                Step::Incr { number: Some(number), .. } => format!("counted {key} to {number}"),
                Step::Incr { by, .. } => format!("added {by} to {key}"),
                Step::Delete { .. } => format!("removed {key}"),
                Step::Overwrite { .. } => format!("overwrote bytes of {key}"),
                Step::Get { .. } | Step::At { .. } => unreachable!("it writes"),
            })
            .collect();
        parts.join(" and ")
    }

    /// What a transaction read of a key before writing it, as a part of a sentence.
    pub(super) fn read(&self, transaction: u32, key: u32) -> String {
        let steps = self.model.steps_of(transaction).iter();
        let first = steps.copied().find(|step| step.key() == key);
        let seen = first.map_or(String::new(), |step| self.seen(step));
        format!("read {} as {seen}", self.key(key))
    }
}
