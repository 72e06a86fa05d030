//! The gap after a fault: the time without any answer, read from a timeline.

use skein_checker::chart::whole;

use crate::source::Timeline;

/// The effect of a fault on a timeline, in milliseconds since the fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gap {
    /// Start and end of the longest stretch of intervals without an answer that begins soon after
    /// the fault, if it is longer than all such stretches in the second before the fault.
    pub(crate) silent: Option<[f64; 2]>,
    /// When half of the usual throughput was reached again after the silent stretch, or after the
    /// fault if there is none: the first moment from which the answers within 20 ms are at least
    /// half as many as before the fault.
    pub(crate) regained: Option<f64>,
}

/// How long before a fault the usual throughput is measured.
pub(crate) const BEFORE_MS: f64 = 1e3;
/// How soon after a fault its gap begins. Later gaps have other causes.
const SOON_MS: f64 = 100.0;
/// How long half of the usual throughput must last.
const LASTS_MS: f64 = 20.0;

impl Gap {
    /// Length of the silent stretch; 0 without one.
    pub(crate) fn length(&self) -> f64 {
        self.silent.map_or(0.0, |[from, to]| to - from)
    }
}

/// The effect of a fault at `at`, observed before `until`, the next fault or the end. `since` is
/// the end of the gap before, or the beginning. All are in seconds.
pub(crate) fn after(timeline: &Timeline, [since, at, until]: [f64; 3]) -> Gap {
    let interval = timeline.interval_ms;
    let len = timeline.ops.len();
    let index = |seconds: f64| (whole((seconds * 1e3 / interval).floor()) as usize).min(len);
    let fault = index(at);
    let end = index(until).max(fault);
    let lead = index(since.max(at - BEFORE_MS / 1e3)).min(fault);
    let (before, behind) = (&timeline.ops[lead..fault], &timeline.ops[fault..end]);
    let ms = |index: usize| (fault + index) as f64 * interval - at * 1e3;

    let usually = longest_silence(before, before.len()).map_or(0, |[from, to]| to - from);
    let soon = whole((SOON_MS / interval).ceil()) as usize;
    let silent = longest_silence(behind, soon).filter(|[from, to]| to - from > usually);
    let mean = before.iter().sum::<u64>() as f64 / before.len().max(1) as f64;
    let lasts = (whole((LASTS_MS / interval).ceil()) as usize).max(1);
    let from = silent.map_or(0, |[_, to]| to);
    let enough = |window: &[u64]| window.iter().sum::<u64>() as f64 >= mean / 2.0 * lasts as f64;
    let regained = (mean > 0.0)
        .then(|| behind[from..].windows(lasts).position(enough))
        .flatten()
        .map(|position| ms(from + position).max(0.0));
    // The interval of the fault began before it.
    let silent = silent.map(|[from, to]| [ms(from).max(0.0), ms(to)]);
    Gap { silent, regained }
}

/// The longest stretch of zeros that begins before `soon`; the first of equally long ones.
fn longest_silence(ops: &[u64], soon: usize) -> Option<[usize; 2]> {
    let mut longest: Option<[usize; 2]> = None;
    let mut from = 0;
    for (index, ops) in ops.iter().chain([&1]).enumerate() {
        if *ops > 0 {
            if index > from && from < soon && longest.is_none_or(|[a, b]| index - from > b - a) {
                longest = Some([from, index]);
            }
            from = index + 1;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timeline(ops: Vec<u64>) -> Timeline {
        Timeline { interval_ms: 1.0, ops, worst_us: Vec::new() }
    }

    /// 10 operations per millisecond, except in these stretches.
    fn with(len: usize, silent: &[[usize; 2]]) -> Timeline {
        let quiet = |i| silent.iter().any(|[from, to]| (*from..*to).contains(&i));
        timeline((0..len).map(|i| if quiet(i) { 0 } else { 10 }).collect())
    }

    /// Silent stretches, expected gap, reason.
    type Case = (&'static [[usize; 2]], Option<[f64; 2]>, &'static str);

    #[test]
    fn the_gap_is_the_longest_silence_until_the_next_fault() {
        #[rustfmt::skip]
        let cases: [Case; 7] = [
            (&[[500, 521]], Some([0.0, 21.0]), "from the fault on"),
            (&[[503, 521]], Some([3.0, 21.0]), "what was under way was answered"),
            (&[[510, 512], [530, 540]], Some([30.0, 40.0]), "the longest"),
            (&[[100, 140], [510, 530]], None, "as long without a fault"),
            (&[[480, 520]], None, "it began before: as long before as after"),
            (&[[620, 690]], None, "it begins too late to be the fault's"),
            (&[[850, 890]], None, "after the next fault"),
        ];
        for (silent, wanted, because) in cases {
            let gap = after(&with(1_000, silent), [0.0, 0.5, 0.8]);
            assert_eq!(gap.silent, wanted, "{because}");
        }
    }

    #[test]
    fn throughput_is_back_when_half_of_it_lasts() {
        let mut ops = vec![10; 1_000];
        ops[500..530].fill(0);
        ops[530] = 40;
        ops[531..560].fill(2);
        let gap = after(&timeline(ops), [0.0, 0.5, 1.0]);
        assert_eq!(gap.silent, Some([0.0, 30.0]));
        let regained = gap.regained.expect("it comes back");
        assert!((40.0..=60.0).contains(&regained), "a burst is not enough: {regained}");
        let never = after(&with(1_000, &[[500, 1_000]]), [0.0, 0.5, 1.0]);
        assert_eq!((never.length(), never.regained), (500.0, None));
    }

    #[test]
    fn a_fault_outside_the_timeline_has_no_gap() {
        for fault in [[0.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-1.0, -0.5, -0.1]] {
            assert_eq!(after(&with(100, &[]), fault).silent, None);
            assert_eq!(after(&timeline(Vec::new()), fault), Gap::default());
        }
    }

    proptest! {
        #[test]
        fn nothing_is_answered_in_a_gap_and_no_stretch_is_longer(
            ops in prop::collection::vec(0..3_u64, 1..300),
            at in 0.0..0.3_f64, later in 0.0..0.09_f64,
        ) {
            let gap = after(&timeline(ops.clone()), [0.0, at, at + later]);
            let fault = whole((at * 1e3).floor()) as usize;
            let end = (whole(((at + later) * 1e3).floor()) as usize).min(ops.len());
            let behind = ops.get(fault..end).unwrap_or(&[]);
            let longest = behind.split(|ops| *ops > 0).map(<[u64]>::len).max().unwrap_or(0);
            if let Some([from, to]) = gap.silent {
                prop_assert!(from >= 0.0 && from < to);
                let bin = |ms: f64| whole((at * 1e3 + ms + 1e-6).floor()) as usize;
                prop_assert!(ops[bin(from)..bin(to)].iter().all(|ops| *ops == 0));
                prop_assert!(gap.length() <= longest as f64 + 1e-6);
                prop_assert!(gap.length() > longest as f64 - 1.0 - 1e-6, "{gap:?} of {longest}");
            } else {
                let before = ops[..fault.min(ops.len())].split(|ops| *ops > 0);
                let usual = before.map(<[u64]>::len).max().unwrap_or(0);
                prop_assert!(longest <= usual);
            }
        }
    }
}
