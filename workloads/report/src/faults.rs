//! Faults of a measured cluster, and their effects on its timeline.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gap::{self, Gap};

/// A fault.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) at_s: f64,
    pub(crate) what: String,
    pub(crate) nodes: Vec<u16>,
    /// The groups that these nodes led; only of `--kill`.
    #[serde(default)]
    pub(crate) led: Vec<u16>,
    /// Only of `bench chaos`, by the groups that the nodes led.
    #[serde(default)]
    pub(crate) next_write_ms: BTreeMap<String, Option<f64>>,
    /// Longest time without an answer to any client.
    #[serde(default)]
    pub(crate) silence_ms: Option<f64>,
    /// Longest wait of one client.
    #[serde(default)]
    pub(crate) wait_ms: Option<f64>,
    /// Time until all replicas of the nodes were followers again.
    #[serde(default)]
    pub(crate) recovered_ms: Option<f64>,
}

/// Operations over time.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) interval_ms: f64,
    pub(crate) ops: Vec<u64>,
    /// Longest latency per interval in microseconds, if reported.
    #[serde(default)]
    pub(crate) worst_us: Vec<u64>,
}

/// Longest run in seconds, and most operations in an interval.
const SECONDS_MAX: f64 = 1e8;
const OPS_MAX: u64 = 1 << 40;

/// Refuses times and numbers that no benchmark writes and that could not be drawn.
pub(crate) fn check(events: &[Event], timeline: &Timeline) -> Result<(), String> {
    let Timeline { interval_ms, ops, worst_us } = timeline;
    if !(1e-3..=1e6).contains(interval_ms) {
        return Err(format!("interval_ms = {interval_ms} is not from 0.001 to 1,000,000"));
    }
    if let Some(most) = ops.iter().chain(worst_us).find(|value| **value > OPS_MAX) {
        return Err(format!("{most} in the timeline is more than {OPS_MAX}"));
    }
    let times = |event: &Event| {
        let writes = event.next_write_ms.values().flatten().map(|ms| ms / 1e3);
        writes.chain([event.at_s]).collect::<Vec<_>>()
    };
    match events.iter().flat_map(times).find(|time| !(0.0..=SECONDS_MAX).contains(time)) {
        Some(time) => Err(format!("an event at {time} s, which is not from 0 to {SECONDS_MAX}")),
        None => Ok(()),
    }
}

/// A fault and its effect.
#[derive(Clone, Debug)]
pub(crate) struct Fault<'a> {
    /// From 1, in the order of time.
    pub(crate) number: usize,
    pub(crate) event: &'a Event,
    pub(crate) gap: Gap,
}

/// The effects of all faults, in the order of time.
pub(crate) fn seen<'a>(events: &'a [Event], timeline: &Timeline) -> Vec<Fault<'a>> {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let end = timeline.ops.len() as f64 * timeline.interval_ms / 1e3;
    let at = |index: usize| events.get(index).map_or(end, |event| event.at_s);
    let mut since = 0.0;
    let mut faults = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let gap = gap::after(timeline, [since, event.at_s, at(index + 1)]);
        // The usual throughput before the next fault is measured after the gap of this one.
        since = event.at_s + gap.silent.map_or(0.0, |[_, to]| to / 1e3);
        faults.push(Fault { number: index + 1, event, gap });
    }
    faults
}

impl Event {
    /// Names of the nodes.
    pub(crate) fn names(&self) -> String {
        self.nodes.iter().map(|node| format!("n{node}")).collect::<Vec<_>>().join(", ")
    }

    /// The groups that the nodes led.
    pub(crate) fn groups_led(&self) -> String {
        let led = || self.led.iter().map(|group| format!("g{group}"));
        let told = self.next_write_ms.keys().map(|group| format!("g{group}"));
        let groups: Vec<_> = if self.led.is_empty() { told.collect() } else { led().collect() };
        groups.join(", ")
    }

    /// The groups' next writes in words, with `unit` after the milliseconds.
    pub(crate) fn next_writes(&self, unit: &str) -> String {
        let all = self.next_write_ms.iter().map(|(group, ms)| match ms {
            Some(ms) => format!("g{group} {ms:.1}{unit}"),
            None => format!("g{group} never"),
        });
        all.collect::<Vec<_>>().join(", ")
    }

    /// The group whose next write came last, and after how many milliseconds.
    pub(crate) fn last_write(&self) -> Option<(&str, f64)> {
        let all = self.next_write_ms.iter().filter_map(|(group, ms)| Some((&group[..], (*ms)?)));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The event and its time, in words.
    pub(crate) fn moment(&self) -> String {
        let of =
            if self.nodes.is_empty() { String::new() } else { format!(" of {}", self.names()) };
        format!("{}{of} at {:.3} s", self.what, self.at_s)
    }

    /// The same with all known effects.
    pub(crate) fn words(&self) -> String {
        let mut parts = vec![self.moment()];
        if !self.next_write_ms.is_empty() {
            parts.push(format!("next write: {}", self.next_writes(" ms")));
        }
        if let Some(ms) = self.silence_ms {
            parts.push(format!("no answer for {ms:.1} ms"));
        }
        parts.join("; ")
    }
}

impl Fault<'_> {
    /// The longest effect of the fault, in milliseconds.
    pub(crate) fn felt(&self) -> f64 {
        let written = self.event.last_write().map_or(0.0, |(_, ms)| ms);
        self.gap.length().max(written)
    }

    /// The end of the fault's visible effect, in milliseconds after it.
    pub(crate) fn seen_until(&self) -> f64 {
        let silent = self.gap.silent.map_or(0.0, |[_, to]| to);
        silent.max(self.event.last_write().map_or(0.0, |(_, ms)| ms))
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use super::*;

    fn event(at_s: f64, next: &[(&str, Option<f64>)]) -> Event {
        let next_write_ms = next.iter().map(|(group, ms)| ((*group).to_owned(), *ms)).collect();
        Event {
            at_s,
            what: "kill".to_owned(),
            nodes: vec![2],
            led: Vec::new(),
            next_write_ms,
            silence_ms: None,
            wait_ms: None,
            recovered_ms: None,
        }
    }

    #[test]
    fn each_fault_is_seen_until_the_next() {
        let mut ops = vec![5; 100];
        ops[50..60].fill(0);
        ops[80..85].fill(0);
        let timeline = Timeline { interval_ms: 10.0, ops, worst_us: Vec::new() };
        let events = [event(0.8, &[]), event(0.5, &[("1", Some(30.0)), ("0", None)])];
        let seen = seen(&events, &timeline);
        let found: Vec<_> = seen.iter().map(|it| (it.number, it.gap.length(), it.felt())).collect();
        assert_eq!(found, [(1, 100.0, 100.0), (2, 50.0, 50.0)], "in the order of time");
        assert_eq!(seen[0].seen_until(), 100.0);
        let words = "kill of n2 at 0.500 s; next write: g0 never, g1 30.0 ms";
        assert_eq!(
            (&seen[0].event.words()[..], &seen[0].event.groups_led()[..]),
            (words, "g0, g1")
        );
    }
}
