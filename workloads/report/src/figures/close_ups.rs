//! Close-ups of faults: throughput and longest latency around each, in intervals short enough to
//! show a gap.

use std::collections::BTreeSet;

use skein_checker::chart::whole;

use super::timelines::{RATE, point};
use super::{Figure, axis};
use crate::faults::{Event, Fault, Timeline, seen};
use crate::plot::{Axis, Band, Plot, Scale, Series, Size, Style};

const SINCE: Axis = axis("time since the fault", "ms", Scale::Linear);

/// Most faults with close-ups of their own: those with the longest effects.
const CLOSE_UPS_MAX: usize = 12;
/// Time shown after a fault, in milliseconds: minimum and maximum, and as a multiple of its visible
/// effect.
const AFTER_MS: [f64; 2] = [40.0, 10_000.0];
const AFTER_SEEN: f64 = 2.5;
/// Time shown before a fault, as a fraction of the time after it.
const BEFORE: f64 = 0.3;
/// Usual number of answers per interval of a close-up: with fewer, random variation dominates the
/// picture.
const ANSWERS: f64 = 2.0;
/// A gap is at least this many intervals wide, even if they hold fewer answers.
const GAP_STEPS: f64 = 5.0;
/// Most intervals of a close-up.
const STEPS_MAX: f64 = 150.0;

/// The span of a close-up, in milliseconds since the fault, and the length of its intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct View {
    from: f64,
    to: f64,
    step: f64,
}

/// A view wide enough for all visible effects of a fault, with intervals short enough to show the
/// gap.
fn view(fault: &Fault<'_>, timeline: &Timeline) -> View {
    let to = (AFTER_SEEN * fault.seen_until()).clamp(AFTER_MS[0], AFTER_MS[1]);
    let interval = timeline.interval_ms;
    let at = whole((fault.event.at_s * 1e3 / interval).floor()) as usize;
    let before = &timeline.ops[..at.min(timeline.ops.len())];
    let before = &before[before.len().saturating_sub(whole(1e3 / interval) as usize)..];
    let usual = before.iter().sum::<u64>() as f64 / before.len().max(1) as f64;
    // Intervals of 1, 2 or 5 times a power of ten times the timeline's interval.
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

/// Values of a timeline in the intervals of a view, which are aligned to the interval of the fault.
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

/// The named stretches of a close-up: without any answer, and until the last of the groups wrote
/// again.
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
    // The longer one is drawn first, so that it covers nothing.
    let mut bands: Vec<_> = silent.into_iter().chain(written).collect();
    bands.sort_by(|a, b| (b.to - b.from).total_cmp(&(a.to - a.from)));
    bands
}

/// The faults with the longest effects, in the order of time.
fn felt_most<'a>(faults: &'a [Fault<'a>], most: usize) -> Vec<&'a Fault<'a>> {
    let mut shown: Vec<_> = faults.iter().collect();
    shown.sort_by(|a, b| b.felt().total_cmp(&a.felt()));
    shown.truncate(most);
    shown.sort_by_key(|fault| fault.number);
    shown
}

/// A close-up of a fault: `series` in its view, with marks and bands.
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

/// Throughput around each fault, in intervals short enough to show the gap.
pub(super) fn close_ups(
    number: usize,
    stem: &str,
    events: &[Event],
    timeline: &Timeline,
) -> Option<Figure> {
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
            "Time runs from the fault. Gaps are shaded, with their lengths: the time without any answer, to an interval of the timeline, \
             {} ms; and the time until the last group that the node led acknowledged a write, as its client measured it. Groups \
             that the node did not lead are not interrupted.{left_out}",
            timeline.interval_ms
        ),
        plots,
        table: None,
        from: BTreeSet::from([number]),
    })
}

/// The longest latency around the fault with the longest effect, if the timeline has latencies.
pub(super) fn worst(
    number: usize,
    stem: &str,
    events: &[Event],
    timeline: &Timeline,
) -> Option<Figure> {
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

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::figures::timelines::tests::event;

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
            // An interval inside the gap is empty, and one outside is full.
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
    }
}
