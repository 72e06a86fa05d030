//! The longest silence after each fault: the time without any answer, and the wait of one client.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use skein_checker::chart::Paint;

use super::load::Loaded;
use super::report::{Event, Injected};

/// The longest silence after one fault, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Between two answers to any clients.
    pub nobody: u64,
    /// From a client's request to its answer, or until it gave up.
    pub client: u64,
}

/// Distribution of these times over all faults of a kind, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Silences {
    pub count: usize,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub worst: f64,
}

/// By kind of fault, and whether a node that led a group was hit.
pub type ByKind = BTreeMap<String, Silences>;

/// The longest silence after each of the faults, which are sorted by time. A silence belongs to the
/// last fault before its end.
pub fn after(faults: &[Injected], loaded: &Loaded, to: u64) -> Vec<Silence> {
    let mut found = vec![Silence::default(); faults.len()];
    let fault_before = |time: u64| faults.partition_point(|fault| fault.t < time).checked_sub(1);
    let mut answers: Vec<u64> = loaded.samples.iter().map(|sample| sample.returned).collect();
    answers.sort_unstable();
    // A silence at the end lasts until the load was stopped.
    answers.push(to.max(answers.last().copied().unwrap_or(to)));
    for pair in answers.windows(2) {
        if let Some(fault) = fault_before(pair[1]) {
            found[fault].nobody = found[fault].nobody.max(pair[1] - pair[0]);
        }
    }
    for sample in loaded.samples.iter().chain(&loaded.given_up) {
        if let Some(fault) = fault_before(sample.returned) {
            found[fault].client = found[fault].client.max(sample.took);
        }
    }
    found
}

/// The distribution of one of the times of all events, by kind of fault.
pub fn by_kind(events: &[Event], time: impl Fn(&Event) -> f64) -> ByKind {
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for event in events {
        let whom = match () {
            () if event.nodes.is_empty() || event.what == "power" => "",
            () if event.next_write_ms.is_empty() => " of a follower",
            () => " of a leader",
        };
        times.entry(format!("{}{whom}", event.what)).or_default().push(time(event));
    }
    let silences = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        let count = times.len();
        Silences { count, p50: at(50), p90: at(90), p99: at(99), worst: at(100) }
    };
    times.into_iter().map(|(kind, times)| (kind, silences(times))).collect()
}

/// A table for people.
pub fn table(text: &mut String, title: &str, silences: &ByKind, paint: Paint) {
    if silences.is_empty() {
        return;
    }
    let title = paint.strong(&format!("{title:<34}"));
    let _ = writeln!(
        text,
        "\n  {title}{:>7}{:>9}{:>9}{:>9}{:>9}",
        "count", "p50", "p90", "p99", "worst"
    );
    for (kind, Silences { count, p50, p90, p99, worst }) in silences {
        let _ = writeln!(text, "  {kind:<34}{count:>7}{p50:>9.1}{p90:>9.1}{p99:>9.1}{worst:>9.1}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Sample;
    use super::*;

    const MS: u64 = 1_000_000;

    fn fault(ms: u64, what: &'static str) -> Injected {
        Injected { t: ms * MS, what, nodes: vec![0], led: vec![0], on: ms * MS, recovered: None }
    }

    fn sample(invoked: u64, returned: u64) -> Sample {
        Sample { returned: returned * MS, took: (returned - invoked) * MS, many: false }
    }

    #[test]
    fn a_silence_belongs_to_the_last_fault_before_its_end() {
        let faults = [fault(100, "stop"), fault(500, "kill")];
        let samples = vec![
            sample(0, 50),
            sample(60, 90),
            sample(95, 300),
            sample(310, 490),
            sample(489, 520),
        ];
        let given_up = vec![sample(505, 900)];
        let loaded = Loaded { samples, given_up, ..Loaded::default() };
        let found = after(&faults, &loaded, 600 * MS);
        // The last answer before the first fault was at 90 ms, the next one at 300 ms.
        assert_eq!(found[0], Silence { nobody: 210 * MS, client: 205 * MS });
        assert_eq!(found[1], Silence { nobody: 80 * MS, client: 395 * MS });
    }

    #[test]
    fn a_load_without_answers_is_silent_to_the_end() {
        let found = after(&[fault(100, "kill")], &Loaded::default(), 600 * MS);
        assert_eq!(found, [Silence::default()], "there is no first answer to count from");
        let loaded = Loaded { samples: vec![sample(0, 50)], ..Loaded::default() };
        let found = after(&[fault(100, "kill")], &loaded, 600 * MS);
        assert_eq!(found[0].nobody, 550 * MS);
    }

    #[test]
    fn times_are_summed_up_by_the_kind_of_fault() {
        let event = |what, led: bool, silence_ms| Event {
            at_s: 0.0,
            what,
            nodes: vec![1],
            next_write_ms: led.then_some((0, None)).into_iter().collect(),
            recovered_ms: None,
            silence_ms,
            wait_ms: 0.0,
        };
        let mut events: Vec<Event> =
            (1..=100).map(|ms| event("stop", true, f64::from(ms))).collect();
        events.push(event("stop", false, 7.0));
        let kinds = by_kind(&events, |event| event.silence_ms);
        let leaders = kinds["stop of a leader"];
        assert_eq!(
            (leaders.count, leaders.p50, leaders.p90, leaders.p99, leaders.worst),
            (100, 50.0, 90.0, 99.0, 100.0)
        );
        assert_eq!(kinds.get("stop of a follower").map(|all| all.worst), Some(7.0));
        let mut text = String::new();
        table(&mut text, "longest silence in ms", &kinds, Paint(false));
        assert!(text.contains("stop of a leader") && text.contains("99.0"), "{text}");
    }
}
