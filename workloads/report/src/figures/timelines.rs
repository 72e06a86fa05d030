//! Faults: the whole run, the time around each fault, and the distribution of failover times.

use std::collections::{BTreeMap, BTreeSet};

use super::close_ups::{close_ups, worst};
use super::{Figure, Frame, Table, axis, parts};
use crate::ccdf;
use crate::faults::{Event, Fault, Timeline, seen};
use crate::plot::{Axis, Plot, Point, Scale, Series, Style};
use crate::source::{Chaos, Source, Store, What};

pub(super) const RATE: Axis = axis("throughput", "operations/s", Scale::Linear);

/// Most points of a timeline.
const MOMENTS_MAX: usize = 200;
pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let (events, timeline) = match &source.what {
            What::Chaos(Chaos { events, timeline, .. }) => (events, timeline),
            What::Store(Store { events, timeline, .. }) if !events.is_empty() => (events, timeline),
            What::Store(_) | What::Multicast(_) | What::Idle(_) | What::Peers(_) => continue,
        };
        let stem = stem(sources, number);
        figures.push(overview(number, &stem, events, timeline));
        figures.extend(close_ups(number, &stem, events, timeline));
        figures.extend(worst(number, &stem, events, timeline));
    }
    figures.extend(failovers(sources));
    figures
}

/// A name for the figures of a report: its file, and its number in the file if there are several.
fn stem(sources: &[Source], number: usize) -> String {
    let file = &sources[number].file;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = file.trim_end_matches(".json").chars().map(plain).collect();
    let of_file = sources[..number].iter().filter(|source| source.file == *file).count();
    if of_file == 0 { stem } else { format!("{stem}-{}", of_file + 1) }
}

pub(super) fn point(x: f64, y: f64) -> Point {
    Point { x, y, range: None, saturated: false }
}

/// The whole run, with a table of its faults.
fn overview(number: usize, stem: &str, events: &[Event], timeline: &Timeline) -> Figure {
    let interval = timeline.interval_ms / 1e3;
    let chunk = timeline.ops.len().div_ceil(MOMENTS_MAX).max(1);
    let rate = |(i, ops): (usize, &[u64])| {
        let seconds = ops.len() as f64 * interval;
        point((i * chunk) as f64 * interval, ops.iter().sum::<u64>() as f64 / seconds)
    };
    let points = timeline.ops.chunks(chunk).enumerate().map(rate).collect();
    let name = format!("all clients, means of {} ms", chunk as f64 * timeline.interval_ms);
    let series = vec![Series { name, points, style: Style::Curve }];
    let mut plot = Plot::new([axis("time", "s", Scale::Linear), RATE], series);
    let faults = seen(events, timeline);
    plot.marks = faults.iter().map(|fault| (fault.event.at_s, fault.event.words())).collect();
    Figure {
        name: format!("timeline-{stem}"),
        title: format!("Faults over time: {stem}"),
        about: "Operations answered over time. A dashed line is a fault, with its number in the table below. No answer at all, as the \
                timeline shows it, is the longest stretch of its intervals without an answer that begins within 100 ms of the fault, \
                if it is longer than any in the second before. Half throughput again is the first moment after it from which the answers of \
                20 ms are half as many as usual."
            .to_owned(),
        plots: vec![plot],
        table: Some(table(&faults)),
        from: BTreeSet::from([number]),
    }
}

/// A row for each fault. Columns without any known value are left out.
fn table(faults: &[Fault<'_>]) -> Table {
    type Column = (&'static str, fn(&Fault<'_>) -> Option<String>);
    fn ms(ms: Option<f64>) -> Option<String> {
        ms.map(|ms| format!("{ms:.1}"))
    }
    const COLUMNS: [Column; 10] = [
        ("no.", |fault| Some(fault.number.to_string())),
        ("at (s)", |fault| Some(format!("{:.3}", fault.event.at_s))),
        ("fault", |fault| Some(fault.event.what.clone())),
        ("nodes", |fault| Some(fault.event.names())),
        ("groups led", |fault| Some(fault.event.groups_led())),
        ("next write of each (ms)", |fault| Some(fault.event.next_writes(""))),
        ("no answer to anyone, by the clients (ms)", |fault| ms(fault.event.silence_ms)),
        ("no answer, in the timeline (ms)", |fault| {
            let silent = |[from, to]: [f64; 2]| format!("{:.1}: {from:.1} to {to:.1}", to - from);
            Some(fault.gap.silent.map_or_else(|| "no longer than before".to_owned(), silent))
        }),
        ("half throughput again (ms)", |fault| ms(fault.gap.regained)),
        ("longest wait of a client (ms)", |fault| ms(fault.event.wait_ms)),
    ];
    const READMITTED: Column = ("readmitted (ms)", |fault| ms(fault.event.recovered_ms));
    let mut table = Table { heads: Vec::new(), rows: vec![Vec::new(); faults.len()] };
    for (head, of) in COLUMNS.into_iter().chain([READMITTED]) {
        let cells: Vec<_> = faults.iter().map(of).collect();
        if cells.iter().flatten().all(String::is_empty) {
            continue;
        }
        table.heads.push(head);
        for (row, cell) in table.rows.iter_mut().zip(cells) {
            row.push(cell.unwrap_or_else(|| "–".to_owned()));
        }
    }
    table
}

/// Distribution of the times to the next write, over all runs of a kind.
fn failovers(sources: &[Source]) -> Vec<Figure> {
    let mut times: BTreeMap<String, (Vec<f64>, BTreeSet<usize>)> = BTreeMap::new();
    for (from, source) in sources.iter().enumerate() {
        let What::Chaos(chaos) = &source.what else { continue };
        for event in chaos.events.iter().filter(|e| ["kill", "stop"].contains(&e.what.as_str())) {
            let after = format!("after a {}, {} groups", event.what, chaos.topology.groups);
            let (times, of) = times.entry(after).or_default();
            times.extend(event.next_write_ms.values().flatten());
            of.insert(from);
        }
    }
    let series = times.into_iter().filter(|(_, (times, _))| times.len() > 1);
    let series = series.map(|(name, (times, from))| {
        let name = format!("{name}, {} failovers", times.len());
        let points = ccdf::of_times(times).iter().map(|[x, y]| point(*x, *y)).collect();
        (Series { name, points, style: Style::Steps }, from)
    });
    let frame = Frame {
        name: "failovers",
        title: "Distribution of failover times",
        about: "From a fault of a leader's node to the next acknowledged write of its group: the share of failovers that took at least \
                so long. The longest of n stands at 1/n.",
        x: axis("time to the next write", "ms", Scale::Log),
        y: axis("share that took at least so long, 1 − F", "", Scale::Tail),
    };
    parts(frame, "", series.collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::figures) fn event(at_s: f64, next: Option<f64>) -> Event {
        let next = next.map_or_else(String::new, |ms| format!("\"0\": {ms}"));
        let text = format!(
            "{{\"at_s\": {at_s}, \"what\": \"kill\", \"nodes\": [0], \"next_write_ms\": {{{next}}}}}"
        );
        serde_json::from_str(&text).expect("an event")
    }

    #[test]
    fn a_table_has_units_and_no_column_of_which_nothing_is_known() {
        let timeline = Timeline { interval_ms: 1.0, ops: vec![9; 2_000], worst_us: Vec::new() };
        let events = [event(0.5, Some(7.6))];
        let table = table(&seen(&events, &timeline));
        assert!(table.heads.contains(&"next write of each (ms)"));
        assert!(!table.heads.iter().any(|head| head.contains("readmitted")), "{:?}", table.heads);
        assert_eq!(table.rows[0].len(), table.heads.len());
        assert!(table.rows[0].contains(&"g0 7.6".to_owned()), "{:?}", table.rows);
        let many: Vec<_> = (0..20).map(|i| event(0.09 * f64::from(i), None)).collect();
        let all = overview(0, "a", &many, &timeline).table.expect("a table");
        assert_eq!(all.rows.len(), 20, "all faults are told");
    }
}
