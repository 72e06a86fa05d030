//! Axes: the position of a value on paper, and the labelled values.

use skein_checker::chart::whole;

/// One axis of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// The quantity.
    pub(crate) what: &'static str,
    /// Empty for a count.
    pub(crate) unit: &'static str,
    pub(crate) scale: Scale,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear, from zero.
    Linear,
    /// Linear, of whole numbers.
    Count,
    Log,
    /// Logarithmic, labelled with powers of two.
    Doubling,
    /// Logarithmic up to 1, labelled with decades and the corresponding percentiles: the share 1 −
    /// F of a distribution F.
    Tail,
    /// Classes that begin at powers of two: 1, 2–3, 4–7, and so on.
    Classes,
}

impl Axis {
    /// The label of the axis and the head of its column: the quantity, and the unit in brackets.
    pub(crate) fn label(&self) -> String {
        match self.unit {
            "" => self.what.to_owned(),
            unit => format!("{} ({unit})", self.what),
        }
    }
}

/// Most labels of an axis between these ends on paper: labels need more room horizontally than
/// vertically.
fn labels_max([from, to]: [f64; 2]) -> usize {
    let room = if from > to { (from - to) / 26.0 } else { (to - from) / 54.0 };
    (whole(room.floor()) as usize).clamp(4, 12)
}

/// Values outside of these bounds are no measurements, and are ignored when an axis is scaled.
const SMALLEST: f64 = 1e-12;
const LARGEST: f64 = 1e18;

/// An axis with its ends, as values and on paper.
pub(super) struct Scaled {
    scale: Scale,
    low: f64,
    high: f64,
    paper: [f64; 2],
}

impl Scaled {
    /// An axis wide enough for all of `values`. Values of zero and less have no position on a
    /// logarithmic axis.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, paper: [f64; 2]) -> Self {
        let proportional = matches!(scale, Scale::Linear | Scale::Count);
        let fits = |value: &f64| value.abs() < LARGEST && (proportional || *value > SMALLEST);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        values.filter(fits).for_each(|value| (low, high) = (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        (low, high) = match scale {
            Scale::Linear | Scale::Count => {
                (low.min(0.0), if high > 0.0 { high * 1.04 } else { 1.0 })
            }
            Scale::Log => (low / 1.25, high * 1.25),
            Scale::Doubling => (low / 1.2, high * 1.2),
            // Down to the decade below the least share, which is the floor of the last step.
            Scale::Tail => (10_f64.powf(low.min(0.5).log10().floor()), 1.0),
            Scale::Classes => (low / 2_f64.sqrt(), high * 2_f64.sqrt()),
        };
        Self { scale, low, high, paper }
    }

    /// The least value with a position.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// The greatest value with a position.
    pub(super) fn high(&self) -> f64 {
        self.high
    }

    /// The position of a value on paper, clamped to the ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Count => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Doubling | Scale::Tail | Scale::Classes => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        let [from, to] = self.paper;
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    /// The labelled values.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let inside = |tick: &f64| (self.low * (1.0 - 1e-9)..=self.high).contains(tick);
        let max = labels_max(self.paper);
        match self.scale {
            Scale::Linear | Scale::Count => {
                let rough = (self.high - self.low) / (max as f64 - 1.0).clamp(3.0, 6.0);
                let least = if self.scale == Scale::Count { 1.0 } else { 0.0 };
                let rough = rough.max(least);
                let unit = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * unit);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
                let first = (self.low / step).ceil();
                let inside = |tick: &f64| (self.low..=self.high).contains(tick);
                (0..=10).map(|i| (first + f64::from(i)) * step).filter(inside).collect()
            }
            Scale::Log => {
                let sets: [&[f64]; 4] = [
                    &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
                    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
                    &[1.0, 2.0, 5.0],
                    &[1.0],
                ];
                let of = |steps: &[f64]| {
                    let all =
                        (-9..13).flat_map(|power| steps.iter().map(move |s| times(*s, power)));
                    all.filter(inside).collect::<Vec<_>>()
                };
                // The finest set that fits, or decades alone if none does.
                sets.map(of)
                    .into_iter()
                    .find(|ticks| ticks.len() <= max)
                    .unwrap_or_else(|| of(sets[3]))
            }
            Scale::Tail => (-12..1).map(|power| times(1.0, power)).filter(inside).collect(),
            Scale::Doubling | Scale::Classes => {
                (-4..40).map(|power| 2_f64.powi(power)).filter(inside).collect()
            }
        }
    }

    /// Lines between the labelled values that show that the axis is logarithmic.
    pub(super) fn minor(&self) -> Vec<f64> {
        if !matches!(self.scale, Scale::Log | Scale::Tail) || self.high / self.low > 1e7 {
            return Vec::new();
        }
        let inside = |tick: &f64| (self.low..=self.high).contains(tick);
        let all = (-12..13).flat_map(|power| (2..10).map(move |s| times(f64::from(s), power)));
        all.filter(inside).collect()
    }

    /// The label of a tick.
    pub(super) fn named(&self, tick: f64) -> String {
        match self.scale {
            Scale::Classes if tick > 1.5 => format!("{tick}–{}", 2.0 * tick - 1.0),
            _ => short(tick),
        }
    }

    /// The label of a tick at the other end of its line, if it has one.
    pub(super) fn named_beyond(&self, tick: f64) -> Option<String> {
        (self.scale == Scale::Tail && tick < 0.5).then(|| percentile(tick))
    }
}

/// `of` times a power of ten. A negative power divides, so that 0.001 is the nearest number to it.
fn times(of: f64, power: i32) -> f64 {
    if power < 0 { of / 10_f64.powi(-power) } else { of * 10_f64.powi(power) }
}

/// The percentile at which this share is left: `p99.9` for 0.001.
fn percentile(left: f64) -> String {
    let nines = whole(-left.log10()) as usize;
    let digits = "9".repeat(nines.max(1));
    match digits.split_at(digits.len().min(2)) {
        ("9", _) => "p90".to_owned(),
        (whole, "") => format!("p{whole}"),
        (whole, rest) => format!("p{whole}.{rest}"),
    }
}

/// `15000` as `15k`; small numbers with as many digits as they need.
pub(super) fn short(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 {
        return format!("{number:e}");
    }
    let (value, unit) = match number.abs() {
        1e9.. => (number / 1e9, "G"),
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = format!("{value:.3}");
    let text = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    format!("{}{unit}", text.trim_end_matches('.'))
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_neither_few_nor_many() {
        for scale in [Scale::Linear, Scale::Log, Scale::Doubling] {
            for high in [0.3, 2.0, 7.3, 99.0, 12_345.0, 3e6] {
                for paper in [[0.0, 284.0], [0.0, 670.0], [330.0, 0.0]] {
                    let axis = Scaled::new(scale, [high / 64.0, high].into_iter(), paper);
                    let ticks = axis.ticks();
                    let most = if scale == Scale::Doubling { 8 } else { labels_max(paper) };
                    assert!((2..=most).contains(&ticks.len()), "{scale:?} to {high}: {ticks:?}");
                    let at: Vec<_> = ticks.iter().map(|tick| axis.at(*tick)).collect();
                    assert!(at.is_sorted() || at.iter().rev().is_sorted(), "{at:?}");
                    assert!(at.iter().all(|at| (0.0..=670.0).contains(at)));
                }
            }
        }
        for (number, wanted) in [
            (0.0, "0"),
            (1e-4, "1e-4"),
            (0.25, "0.25"),
            (1_500.0, "1500"),
            (15_000.0, "15k"),
            (2.5e6, "2.5M"),
        ] {
            assert_eq!(short(number), wanted);
        }
    }

    #[test]
    fn a_narrow_logarithmic_axis_has_labels_too() {
        for [low, high] in [[5.0, 9.0], [95.0, 130.0], [1.1e4, 1.9e4], [3.0, 4.0]] {
            let axis = Scaled::new(Scale::Log, [low, high].into_iter(), [0.0, 670.0]);
            assert!(axis.ticks().len() >= 3, "{low} to {high}: {:?}", axis.ticks());
        }
    }

    #[test]
    fn every_decade_of_a_tail_has_its_percentile() {
        for least in [0.3, 0.01, 2e-6] {
            let axis = Scaled::new(Scale::Tail, [least, 1.0].into_iter(), [330.0, 18.0]);
            let ticks = axis.ticks();
            let decades = whole(-least.log10().floor()) as usize;
            assert_eq!(ticks.len(), decades + 1, "{least}: {ticks:?}");
            assert_eq!(axis.at(ticks[0]), 330.0, "the lowest decade is the floor");
            assert!(axis.named_beyond(1.0).is_none());
        }
        for (share, wanted) in
            [(0.1, "p90"), (0.01, "p99"), (1e-3, "p99.9"), (1e-4, "p99.99"), (1e-6, "p99.9999")]
        {
            assert_eq!(percentile(share), wanted);
        }
    }

    #[test]
    fn a_class_is_named_by_its_ends() {
        let axis = Scaled::new(Scale::Classes, [1.0, 8.0].into_iter(), [0.0, 670.0]);
        let names: Vec<_> = axis.ticks().iter().map(|tick| axis.named(*tick)).collect();
        assert_eq!(names, ["1", "2–3", "4–7", "8–15"]);
    }

    #[test]
    fn an_axis_of_counts_has_no_fractions() {
        let axis = Scaled::new(Scale::Count, [0.0, 2.0].into_iter(), [0.0, 670.0]);
        assert_eq!(axis.ticks(), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_linear_axis_goes_below_zero_where_the_values_do() {
        let axis = Scaled::new(Scale::Linear, [-100.0, 400.0].into_iter(), [0.0, 670.0]);
        let ticks = axis.ticks();
        assert!(
            ticks.contains(&-100.0) && ticks.contains(&0.0) && ticks.contains(&400.0),
            "{ticks:?}"
        );
    }
}
