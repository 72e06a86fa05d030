//! Plots as SVG: lines over two axes, and marks in time. What is drawn is readable without colours
//! (each series has a sign of its own) and without anything beside the text of the picture.

use std::fmt::Write as _;

/// A picture of some series.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Across.
    pub(super) x: Axis,
    /// Upwards.
    pub(super) y: Axis,
    /// At most [`SERIES_MAX`].
    pub(super) series: Vec<Series>,
    /// Moments, where `x` is time, and what happened then.
    pub(super) marks: Vec<(f64, String)>,
    /// Values that have a place across, whether there are points or not.
    pub(super) across: Vec<f64>,
}

/// One direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// What, in which unit.
    pub(super) label: &'static str,
    /// How far apart its values are drawn.
    pub(super) scale: Scale,
}

/// How far apart values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// As they are, from zero.
    Linear,
    /// By their ratio.
    Log,
    /// By their ratio, told as powers of two.
    Doubling,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// As in the legend.
    pub(super) name: String,
    /// From left to right as they are to be joined.
    pub(super) points: Vec<Point>,
    /// How they are joined.
    pub(super) style: Style,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A line with a sign at each point.
    Line,
    /// A line of many points, with a sign now and then.
    Curve,
    /// A column for each point, beside those of the other series.
    Bars,
}

/// Where, and from where to where the runs went whose median it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Across.
    pub(super) x: f64,
    /// Upwards.
    pub(super) y: f64,
    /// The range of `y`.
    pub(super) range: Option<[f64; 2]>,
    /// The run could not do what was asked of it: crossed out.
    pub(super) saturated: bool,
}

/// More lines cannot be told apart.
pub(super) const SERIES_MAX: usize = 8;

/// Okabe's and Ito's colours, which the colour-blind can tell apart, in the order of their contrast
/// with white.
const COLOURS: [&str; SERIES_MAX] =
    ["#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00", "#999999"];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 50.0;
const LEGEND_LINE: f64 = 18.0;
/// So many along a curve.
const SIGNS: usize = 6;
/// Marks that are explained below the picture, and how far apart their numbers must be to be read.
const MARKS_TOLD: usize = 12;
const MARK_APART: f64 = 12.0;
/// A bar's share of the room between two values.
const BAR_SHARE: f64 = 0.8;

impl Plot {
    /// The picture, an `svg` element.
    pub(super) fn svg(&self) -> String {
        let series = &self.series[..self.series.len().min(SERIES_MAX)];
        let points = || series.iter().flat_map(|series| &series.points);
        let ends = |point: &Point| point.range.into_iter().flatten().chain([point.y]);
        let across = points().map(|p| p.x).chain(self.across.iter().copied());
        // Half of a bar stands on either side of its value.
        let has_bars = series.iter().any(|series| series.style == Style::Bars);
        let beside = if has_bars && self.x.scale == Scale::Doubling { 1.3 } else { 1.0 };
        let across = across.flat_map(|value| [value / beside, value * beside]);
        let x = Scaled::new(self.x.scale, across, [LEFT, WIDTH - RIGHT]);
        let y = Scaled::new(self.y.scale, points().flat_map(ends), [HEIGHT - BOTTOM, TOP]);
        let told = self.legend_of_marks();
        let crossed = points().any(|point| point.saturated);
        let lines = series.len() + told.len() + usize::from(crossed);
        let height = HEIGHT + LEGEND_LINE * lines as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\" role=\"img\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        self.frame(&mut svg, &x, &y);
        self.draw_marks(&mut svg, &x);
        let series_count = series.len();
        for (number, series) in series.iter().enumerate() {
            let beside = Beside { number, of: series_count };
            draw(&mut svg, series, beside, &x, &y);
            let line = HEIGHT + LEGEND_LINE * number as f64;
            sign(&mut svg, number, LEFT + 8.0, line - 4.0);
            let name = escaped(&series.name);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{line}\">{name}</text>", LEFT + 20.0);
        }
        let crossed = crossed.then(|| ("×".to_owned(), SATURATED.to_owned()));
        for (line, (sign, text)) in (series.len()..).zip(crossed.into_iter().chain(told)) {
            let y = HEIGHT + LEGEND_LINE * line as f64;
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#c00\">{}</text>\
                 <text x=\"{}\" y=\"{y}\">{}</text>",
                LEFT + 8.0,
                escaped(&sign),
                LEFT + 20.0,
                escaped(&text)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Dashed lines, with numbers as far as there is room for them.
    fn draw_marks(&self, svg: &mut String, x: &Scaled) {
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let mut numbered_to = f64::NEG_INFINITY;
        for (number, (at, what)) in (1..).zip(&self.marks) {
            let at = x.at(*at);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#c00\" \
                 stroke-dasharray=\"3 3\"><title>{number}: {}</title></line>",
                escaped(what)
            );
            if at >= numbered_to + MARK_APART {
                numbered_to = at;
                let _ = writeln!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" \
                     fill=\"#c00\">{number}</text>",
                    top - 3.0
                );
            }
        }
    }

    /// What the marks mean, in print: all of a few, or the first of many.
    fn legend_of_marks(&self) -> Vec<(String, String)> {
        let told = self.marks.iter().take(MARKS_TOLD).enumerate();
        let mut lines: Vec<_> =
            told.map(|(i, (_, what))| ((i + 1).to_string(), what.clone())).collect();
        if self.marks.len() > MARKS_TOLD {
            lines.push(("…".to_owned(), format!("{} faults in all", self.marks.len())));
        }
        lines
    }

    fn frame(&self, svg: &mut String, x: &Scaled, y: &Scaled) {
        let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
        for tick in x.ticks() {
            let at = x.at(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#eee\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                short(tick)
            );
        }
        for tick in y.ticks() {
            let at = y.at(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#eee\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        let middle = [f64::midpoint(left, right), f64::midpoint(top, bottom)];
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#333\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            middle[0],
            bottom + 34.0,
            escaped(self.x.label),
            middle[1],
            escaped(self.y.label)
        );
    }
}

/// What a cross over a point means.
const SATURATED: &str = "saturated: not all operations that were due could be invoked";

/// Which of how many series is drawn.
#[derive(Clone, Copy)]
struct Beside {
    number: usize,
    of: usize,
}

/// A column for each point, from the lower end of the axis.
fn draw_bars(svg: &mut String, series: &Series, beside: Beside, x: &Scaled, y: &Scaled) {
    let colour = COLOURS[beside.number];
    let at: Vec<f64> = series.points.iter().map(|point| x.at(point.x)).collect();
    let apart = at.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let room = if apart.is_finite() { apart * BAR_SHARE } else { 40.0 };
    let width = room / beside.of as f64;
    for (point, at) in series.points.iter().zip(at) {
        let left = at - room / 2.0 + width * beside.number as f64;
        let (top, bottom) = (y.at(point.y), HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            (width * 0.92).max(0.5),
            (bottom - top).max(0.0)
        );
    }
}

fn draw(svg: &mut String, series: &Series, beside: Beside, x: &Scaled, y: &Scaled) {
    if series.style == Style::Bars {
        return draw_bars(svg, series, beside, x, y);
    }
    let number = beside.number;
    let colour = COLOURS[number];
    let mut path = String::new();
    for point in &series.points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", x.at(point.x), y.at(point.y));
    }
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"
    );
    for point in &series.points {
        let at = x.at(point.x);
        if let Some([low, high]) = point.range {
            let (low, high) = (y.at(low), y.at(high));
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6\" \
                 stroke=\"{colour}\"/>",
                at - 3.0
            );
        }
    }
    let (first, step) = match series.style {
        Style::Line => (0, 1),
        // Not all at one place, where curves lie upon each other.
        Style::Curve => {
            let step = series.points.len().div_ceil(SIGNS);
            (step * number / SERIES_MAX, step)
        }
        Style::Bars => return,
    };
    for point in series.points.iter().skip(first).step_by(step.max(1)) {
        sign(svg, number, x.at(point.x), y.at(point.y));
    }
    for point in series.points.iter().filter(|point| point.saturated) {
        let (x, y) = (x.at(point.x), y.at(point.y));
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {y:.1}m-7-7l14 14m0-14l-14 14\" stroke=\"#c00\" stroke-width=\"2\"/>"
        );
    }
}

/// The sign of series `number`.
fn sign(svg: &mut String, number: usize, x: f64, y: f64) {
    let path = match number % 4 {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
        1 => "m-4-4h8v8h-8z",
        2 => "m0-5l5 9h-10z",
        _ => "m0-5l5 5l-5 5l-5-5z",
    };
    // The second four are hollow.
    let fill = if number < 4 { COLOURS[number] } else { "#fff" };
    let colour = COLOURS[number];
    let _ = writeln!(svg, "<path d=\"M{x:.1} {y:.1}{path}\" fill=\"{fill}\" stroke=\"{colour}\"/>");
}

/// An axis with its ends, in values and on paper.
struct Scaled {
    scale: Scale,
    low: f64,
    high: f64,
    paper: [f64; 2],
}

impl Scaled {
    /// Wide enough for all of `values`; those that are not above zero have no place on a scale of
    /// ratios.
    fn new(scale: Scale, values: impl Iterator<Item = f64>, paper: [f64; 2]) -> Self {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        values.filter(fits).for_each(|value| (low, high) = (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        (low, high) = match scale {
            Scale::Linear => (low.min(0.0), if high > 0.0 { high * 1.04 } else { 1.0 }),
            Scale::Log => (low / 1.25, high * 1.25),
            Scale::Doubling => (low / 1.2, high * 1.2),
        };
        Self { scale, low, high, paper }
    }

    fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Doubling => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        let [from, to] = self.paper;
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    fn ticks(&self) -> Vec<f64> {
        let inside = |tick: &f64| (self.low..=self.high).contains(tick);
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 6.0;
                let unit = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * unit);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
                let first = (self.low / step).ceil();
                (0..=10).map(|i| (first + f64::from(i)) * step).filter(inside).collect()
            }
            Scale::Log => {
                let all = |steps: &'static [f64]| {
                    let of = |power: i32| steps.iter().map(move |s| s * 10_f64.powi(power));
                    (-6..13).flat_map(of).filter(inside).collect::<Vec<_>>()
                };
                let fine = all(&[1.0, 2.0, 5.0]);
                if fine.len() <= 12 { fine } else { all(&[1.0]) }
            }
            Scale::Doubling => (-4..40).map(|power| 2_f64.powi(power)).filter(inside).collect(),
        }
    }
}

/// `15000` as `15k`, and what is small with as many digits as it needs.
fn short(number: f64) -> String {
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

/// Text that means nothing but itself in HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_neither_few_nor_many() {
        for scale in [Scale::Linear, Scale::Log, Scale::Doubling] {
            for high in [0.3, 2.0, 7.3, 99.0, 12_345.0, 3e6] {
                let axis = Scaled::new(scale, [high / 64.0, high].into_iter(), [0.0, 1.0]);
                let ticks = axis.ticks();
                assert!((3..=13).contains(&ticks.len()), "{scale:?} to {high}: {ticks:?}");
                let at: Vec<_> = ticks.iter().map(|tick| axis.at(*tick)).collect();
                assert!(at.is_sorted() && at.iter().all(|at| (0.0..=1.0).contains(at)));
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
    fn nothing_leaves_the_paper_and_names_are_harmless() {
        let point = |x, y| Point { x, y, range: Some([y / 2.0, y * 2.0]), saturated: true };
        let axis = |scale| Axis { label: "a & b", scale };
        for scale in [Scale::Linear, Scale::Log, Scale::Doubling] {
            let series = |points| Series { name: "<b>".to_owned(), points, style: Style::Line };
            let points = vec![point(0.0, 0.0), point(1.0, f64::NAN), point(1e9, 1e-9)];
            let plot = Plot {
                x: axis(scale),
                y: axis(scale),
                series: vec![series(points), series(Vec::new())],
                marks: vec![(5.0, "kill \"0\"".to_owned())],
                across: Vec::new(),
            };
            let svg = plot.svg();
            assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;") && svg.contains("a &amp; b"));
            assert!(!svg.contains("inf"), "{svg}");
            assert!(svg.contains("kill &quot;0&quot;</text>"), "marks are told in print");
            assert!(svg.contains(SATURATED));
        }
    }

    #[test]
    fn bars_stand_beside_each_other_and_on_the_axis() {
        let point = |x, y| Point { x, y, range: None, saturated: false };
        let series = |y| Series {
            name: "one".to_owned(),
            points: vec![point(1.0, y), point(2.0, y), point(4.0, y)],
            style: Style::Bars,
        };
        let plot = Plot {
            x: Axis { label: "x", scale: Scale::Doubling },
            y: Axis { label: "y", scale: Scale::Linear },
            series: vec![series(0.5), series(1.0)],
            marks: Vec::new(),
            across: Vec::new(),
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<rect x=").count(), 6);
        let paper = HEIGHT - BOTTOM;
        for bar in svg.lines().filter(|line| line.starts_with("<rect x=")) {
            let number = |name: &str| -> f64 {
                let from = bar.find(name).expect(name) + name.len();
                bar[from..].split('"').next().unwrap().parse().unwrap()
            };
            assert!((number(" y=\"") + number(" height=\"") - paper).abs() < 0.3, "{bar}");
            assert!(number(" x=\"") >= LEFT, "it stands upon the axis: {bar}");
        }
    }

    #[test]
    fn a_linear_axis_goes_below_zero_where_the_values_do() {
        let axis = Scaled::new(Scale::Linear, [-100.0, 400.0].into_iter(), [0.0, 1.0]);
        let ticks = axis.ticks();
        assert!(
            ticks.contains(&-100.0) && ticks.contains(&0.0) && ticks.contains(&400.0),
            "{ticks:?}"
        );
    }
}
