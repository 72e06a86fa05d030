//! Faults: the whole run, what is around each fault, and the distribution of failover times.

use std::collections::{BTreeMap, BTreeSet};

use super::{Figure, Frame, Table, axis, parts};
use crate::chart::whole;
use crate::report::ccdf;
use crate::report::faults::{Event, Fault, Timeline, seen};
use crate::report::plot::{Axis, Band, Plot, Point, Scale, Series, Size, Style};
use crate::report::source::{Chaos, Source, Store, What};

const RATE: Axis = axis("throughput", "operations/s", Scale::Linear);
const SINCE: Axis = axis("time since the fault", "ms", Scale::Linear);

/// The most points of a timeline.
const MOMENTS_MAX: usize = 200;
/// The most faults that are drawn by themselves: those that were felt for longest.
const CLOSE_UPS_MAX: usize = 12;
/// How long after a fault is shown, in milliseconds: at least, at most, and against what is to be seen.
const AFTER_MS: [f64; 2] = [40.0, 10_000.0];
const AFTER_SEEN: f64 = 2.5;
/// How long before it, against how long after it.
const BEFORE: f64 = 0.3;
/// So many answers are in an interval of a close-up, usually: in shorter ones chance makes a comb.
const ANSWERS: f64 = 2.0;
/// A gap is at least so many intervals wide, even if these hold fewer answers.
const GAP_STEPS: f64 = 5.0;
/// The most intervals of a close-up.
const STEPS_MAX: f64 = 150.0;

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

/// A name for figures of a report: its file, and which of the file it is if there are several.
fn stem(sources: &[Source], number: usize) -> String {
    let file = &sources[number].file;
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let stem: String = file.trim_end_matches(".json").chars().map(plain).collect();
    let of_file = sources[..number].iter().filter(|source| source.file == *file).count();
    if of_file == 0 { stem } else { format!("{stem}-{}", of_file + 1) }
}

fn point(x: f64, y: f64) -> Point {
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

/// What is known of each fault; columns of which nothing is known are left out.
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

/// What a close-up shows, in milliseconds since the fault, and how long its intervals are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct View {
    from: f64,
    to: f64,
    step: f64,
}

/// Wide enough for all that is to be seen of a fault, and in intervals short enough to read the gap from.
fn view(fault: &Fault<'_>, timeline: &Timeline) -> View {
    let to = (AFTER_SEEN * fault.seen_until()).clamp(AFTER_MS[0], AFTER_MS[1]);
    let interval = timeline.interval_ms;
    let at = whole((fault.event.at_s * 1e3 / interval).floor()) as usize;
    let before = &timeline.ops[..at.min(timeline.ops.len())];
    let before = &before[before.len().saturating_sub(whole(1e3 / interval) as usize)..];
    let usual = before.iter().sum::<u64>() as f64 / before.len().max(1) as f64;
    // Intervals of 1, 2 or 5 times a power of ten, as far as the timeline's divide them.
    let round =
        (0..5).flat_map(|power| [1.0, 2.0, 5.0].map(|it| it * 10_f64.powi(power) * interval));
    let narrow = fault.felt() / GAP_STEPS;
    let fits = |step: &f64| {
        let many = usual * step / interval >= ANSWERS || step * 2.0 > narrow.max(interval);
        many && to * (1.0 + BEFORE) / step <= STEPS_MAX
    };
    let step = round.clone().find(fits).unwrap_or(interval);
    let back = (to * BEFORE / step).ceil().max(3.0) * step;
    View { from: -back, to: (to / step).ceil() * step, step }
}

/// Values of a timeline in the intervals of a view, which begin at the interval of the fault.
fn within(
    view: View,
    at_s: f64,
    interval: f64,
    values: &[u64],
    of: fn(&[u64]) -> u64,
) -> Vec<[f64; 2]> {
    let fault = whole((at_s * 1e3 / interval).floor()).cast_signed();
    let offset = fault as f64 * interval - at_s * 1e3;
    let each = whole(view.step / interval).max(1).cast_signed();
    let (first, last) =
        ((view.from / view.step).round() as i64, (view.to / view.step).round() as i64);
    let value = |i: i64| {
        let from = usize::try_from(fault + i * each).ok()?;
        let chunk = values.get(from..from + each.unsigned_abs() as usize)?;
        let middle = (i as f64 + 0.5) * view.step + offset;
        Some([middle, of(chunk) as f64])
    };
    (first..last).filter_map(value).collect()
}

/// The stretches that a close-up names: in which nobody was answered, and until the last of the groups
/// wrote again.
fn bands(fault: &Fault<'_>) -> Vec<Band> {
    let silent = fault.gap.silent.map(|[from, to]| Band {
        from,
        to,
        name: format!("no answer for {:.0} ms", to - from),
    });
    let written = fault.event.last_write().map(|(group, ms)| Band {
        from: 0.0,
        to: ms,
        name: format!("g{group}: next write after {ms:.1} ms"),
    });
    // The longer one is drawn first, so that it hides nothing.
    let mut bands: Vec<_> = silent.into_iter().chain(written).collect();
    bands.sort_by(|a, b| (b.to - b.from).total_cmp(&(a.to - a.from)));
    bands
}

/// The faults that were felt for longest, in the order of time.
fn felt_most<'a>(faults: &'a [Fault<'a>], most: usize) -> Vec<&'a Fault<'a>> {
    let mut shown: Vec<_> = faults.iter().collect();
    shown.sort_by(|a, b| b.felt().total_cmp(&a.felt()));
    shown.truncate(most);
    shown.sort_by_key(|fault| fault.number);
    shown
}

/// A close-up of a fault: what `series` draws in its view, with marks and bands.
fn close_up(fault: &Fault<'_>, faults: &[Fault<'_>], view: View, y: Axis, series: Series) -> Plot {
    let mut plot = Plot::new([SINCE, y], vec![series]);
    let since = |other: &Fault<'_>| (other.event.at_s - fault.event.at_s) * 1e3;
    let inside: Vec<_> =
        faults.iter().filter(|other| (view.from..view.to).contains(&since(other))).collect();
    plot.first_mark = inside.first().map_or(1, |first| first.number);
    plot.marks = inside.iter().map(|other| (since(other), other.event.moment())).collect();
    plot.across = vec![view.from, view.to];
    plot
}

/// Throughput around each fault, in intervals short enough to read the gap from.
fn close_ups(number: usize, stem: &str, events: &[Event], timeline: &Timeline) -> Option<Figure> {
    let faults = seen(events, timeline);
    let shown = felt_most(&faults, CLOSE_UPS_MAX);
    let plots: Vec<_> = shown
        .iter()
        .map(|fault| {
            let view = view(fault, timeline);
            let ops = within(view, fault.event.at_s, timeline.interval_ms, &timeline.ops, |ops| {
                ops.iter().sum()
            });
            let points = ops.iter().map(|[x, ops]| point(*x, ops / view.step * 1e3)).collect();
            let name = format!("all clients, in intervals of {} ms", view.step);
            let mut plot =
                close_up(fault, &faults, view, RATE, Series { name, points, style: Style::Bars });
            plot.bands = bands(fault);
            plot.size = if shown.len() == 1 { Size::Whole } else { Size::Half };
            plot
        })
        .collect();
    let left_out = match faults.len() - shown.len() {
        0 => String::new(),
        _ => format!(
            " Of {} faults, the {} that were felt for longest; the table above has all.",
            faults.len(),
            shown.len()
        ),
    };
    (!plots.is_empty()).then(|| Figure {
        name: format!("failover-{stem}"),
        title: format!("Throughput around each fault: {stem}"),
        about: format!(
            "Time runs from the fault. A gap is shaded, with its length: in which nobody was answered, to an interval of the timeline, \
             {} ms; and until the last group that the node led acknowledged a write, as its client measured it. Groups that the node \
             did not lead go on.{left_out}",
            timeline.interval_ms
        ),
        plots,
        table: None,
        from: BTreeSet::from([number]),
    })
}

/// The longest latency around the fault that was felt for longest, if the timeline tells it.
fn worst(number: usize, stem: &str, events: &[Event], timeline: &Timeline) -> Option<Figure> {
    let faults = seen(events, timeline);
    let fault = felt_most(&faults, 1).into_iter().next()?;
    let view = view(fault, timeline);
    let longest = |us: &[u64]| us.iter().copied().max().unwrap_or(0);
    let (at, interval) = (fault.event.at_s, timeline.interval_ms);
    let worst = within(view, at, interval, &timeline.worst_us, longest);
    let points: Vec<_> =
        worst.iter().filter(|[_, us]| *us > 0.0).map(|[x, us]| point(*x, us / 1e3)).collect();
    if points.is_empty() {
        return None;
    }
    let name = format!("all clients, in intervals of {} ms", view.step);
    let y = axis("longest latency", "ms", Scale::Log);
    let plot = close_up(fault, &faults, view, y, Series { name, points, style: Style::Dots });
    Some(Figure {
        name: format!("failover-latency-{stem}"),
        title: format!("Longest latency around the fault that was felt for longest: {stem}"),
        about: "The longest latency of the operations that were answered in each interval. Where there is no point, none was."
            .to_owned(),
        plots: vec![plot],
        table: None,
        from: BTreeSet::from([number]),
    })
}

/// How long groups were without a leader, of all runs of a kind together.
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
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(at_s: f64, next: Option<f64>) -> Event {
        let next = next.map_or_else(String::new, |ms| format!("\"0\": {ms}"));
        let text = format!(
            "{{\"at_s\": {at_s}, \"what\": \"kill\", \"nodes\": [0], \"next_write_ms\": {{{next}}}}}"
        );
        serde_json::from_str(&text).expect("an event")
    }

    proptest! {
        #[test]
        fn a_close_up_holds_the_gap_in_intervals_that_show_it(
            from in 0..60_usize, len in 3..900_usize, rate in 1..400_u64, next in 0.0..900.0_f64,
        ) {
            let mut ops = vec![rate; 3_000];
            ops[1_000 + from..1_000 + from + len].fill(0);
            let timeline = Timeline { interval_ms: 1.0, ops, worst_us: Vec::new() };
            let events = [event(1.0, Some(next))];
            let fault = &seen(&events, &timeline)[0];
            prop_assert_eq!(fault.gap.length(), len as f64);
            let view = view(fault, &timeline);
            prop_assert!(view.from < 0.0 && view.to >= (from + len) as f64 && view.to >= next);
            prop_assert!(fault.felt() / view.step >= 3.0, "{view:?} of {}", fault.felt());
            let drawn = within(view, 1.0, 1.0, &timeline.ops, |ops| ops.iter().sum());
            prop_assert!(drawn.len() <= 2 + 2 * whole(STEPS_MAX) as usize, "{view:?}");
            // An interval that lies in the gap is empty, and one that lies outside is full.
            for [middle, ops] in drawn {
                let (left, right) = (middle - view.step / 2.0, middle + view.step / 2.0);
                let (gap_from, gap_to) = (from as f64, (from + len) as f64);
                if left >= gap_from && right <= gap_to {
                    prop_assert_eq!(ops, 0.0);
                } else if right <= gap_from || left >= gap_to {
                    prop_assert_eq!(ops, rate as f64 * view.step);
                }
            }
        }
    }

    #[test]
    fn the_faults_that_were_felt_for_longest_are_drawn_in_the_order_of_time() {
        let timeline = Timeline { interval_ms: 1.0, ops: vec![9; 4_000], worst_us: Vec::new() };
        let events: Vec<_> =
            (0..20).map(|i| event(0.1 + 0.15 * f64::from(i), Some(f64::from(i % 7)))).collect();
        let figure = close_ups(0, "a", &events, &timeline).expect("there are faults");
        assert_eq!(figure.plots.len(), CLOSE_UPS_MAX);
        let firsts: Vec<_> = figure.plots.iter().map(|plot| plot.first_mark).collect();
        assert!(firsts.is_sorted(), "{firsts:?}");
        assert!(figure.about.contains("Of 20 faults, the 12"), "{}", figure.about);
        let all = overview(0, "a", &events, &timeline);
        assert_eq!(all.table.expect("a table").rows.len(), 20, "the table has all");
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
    }
}
