//! Plots as SVG. Everything is visible in print: nothing depends on a pointer or on colour alone.

mod axis;
mod draw;

use std::fmt::Write as _;

use skein_checker::chart::whole;

use self::axis::Scaled;

pub(super) use self::axis::{Axis, Scale};
use self::draw::{Beside, draw, hatchings, sample, sign};

/// A picture of some series.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Horizontal axis.
    pub(super) x: Axis,
    /// Vertical axis.
    pub(super) y: Axis,
    /// At most [`SERIES_MAX`].
    pub(super) series: Vec<Series>,
    /// Positions on a time axis and what happened then, numbered from `first_mark`.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) first_mark: usize,
    /// Named stretches of `x`.
    pub(super) bands: Vec<Band>,
    /// Values that the horizontal axis must include, with or without points.
    pub(super) across: Vec<f64>,
    /// Whether the line of equal values on both axes is drawn.
    pub(super) diagonal: bool,
    pub(super) size: Size,
}

/// Size of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// As wide as the page.
    Whole,
    /// Half of the page's width.
    Half,
}

/// A shaded stretch of the horizontal axis, with its name above.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Band {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) name: String,
}

/// A series of points.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// As in the legend.
    pub(super) name: String,
    /// In the order in which they are connected.
    pub(super) points: Vec<Point>,
    pub(super) style: Style,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A line with a sign at each point.
    Line,
    /// A line of many points, with signs at some.
    Curve,
    /// Level up to each point, then down.
    Steps,
    /// A bar for each point, up to the next.
    Bars,
    /// A bar for each point, beside those of the other series.
    Histogram,
    /// A sign at each point.
    Dots,
}

/// A value, and the range of the runs whose median it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The range of `y`.
    pub(super) range: Option<[f64; 2]>,
    /// Whether more load brings no more throughput. The sign is hollow.
    pub(super) saturated: bool,
}

/// Most series that can be distinguished.
pub(super) const SERIES_MAX: usize = 8;

const LEFT: f64 = 70.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 50.0;
const LEGEND_LINE: f64 = 18.0;
/// From the left edge of a legend's sample to its text.
const SAMPLE: f64 = 36.0;
/// Assumed width of a letter of the legend.
const LETTER: f64 = 6.3;
/// Marks that are explained below the picture, and the distance at which their numbers are
/// readable.
const MARKS_TOLD: usize = 6;
const MARK_APART: f64 = 12.0;
/// Names of bands have lines of their own above the plot: baseline within a line, and height of a
/// line.
const BAND_NAME: f64 = 10.0;
const BAND_LINE: f64 = 24.0;

/// Explanation of a hollow sign.
const SATURATED: &str = "hollow sign: saturated, more load brings no more throughput";

impl Plot {
    /// A picture as wide as the page, without marks.
    pub(super) fn new([x, y]: [Axis; 2], series: Vec<Series>) -> Self {
        let (marks, bands, across) = (Vec::new(), Vec::new(), Vec::new());
        let (diagonal, size) = (false, Size::Whole);
        Self { x, y, series, marks, first_mark: 1, bands, across, diagonal, size }
    }

    /// Width, height without the legend, and margin to the right of the plot.
    fn paper(&self) -> [f64; 3] {
        let right = if self.y.scale == Scale::Tail { 66.0 } else { 20.0 };
        match self.size {
            Size::Whole => [760.0, 380.0, right],
            Size::Half => [374.0, 240.0, right],
        }
    }

    /// The top of the plot, below the names of its bands.
    fn top(&self) -> f64 {
        TOP + BAND_LINE * self.bands.len() as f64
    }

    /// The picture as an `svg` element.
    pub(super) fn svg(&self) -> String {
        let [width, plot_height, right] = self.paper();
        let series = &self.series[..self.series.len().min(SERIES_MAX)];
        let points = || series.iter().flat_map(|series| &series.points);
        let ends = |point: &Point| point.range.into_iter().flatten().chain([point.y]);
        let across = points().map(|p| p.x).chain(self.across.iter().copied());
        let x = Scaled::new(self.x.scale, across, [LEFT, width - right]);
        let floor = plot_height - BOTTOM;
        let y = Scaled::new(self.y.scale, points().flat_map(ends), [floor, self.top()]);

        let mut legend = String::new();
        let mut line = plot_height + 4.0;
        let letters = whole((width - LEFT - SAMPLE) / LETTER) as usize;
        for (number, series) in series.iter().enumerate() {
            let beside = Beside { number, of: self.series.len() };
            sample(&mut legend, beside, series, [LEFT, line - 4.0]);
            text_lines(&mut legend, &mut line, &wrapped(&series.name, letters));
        }
        if points().any(|point| point.saturated) {
            sign(&mut legend, 0, [LEFT + 14.0, line - 4.0], true);
            text_lines(&mut legend, &mut line, &wrapped(SATURATED, letters));
        }
        for (sign, text) in self.legend_of_marks() {
            let _ = writeln!(
                legend,
                "<text x=\"{}\" y=\"{line}\" text-anchor=\"middle\">{sign}</text>",
                LEFT + 14.0
            );
            text_lines(&mut legend, &mut line, &wrapped(&text, letters));
        }

        let height = line - LEGEND_LINE / 2.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\" role=\"img\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        if series.iter().any(|it| matches!(it.style, Style::Bars | Style::Histogram)) {
            svg.push_str(&hatchings(series.len()));
        }
        self.frame(&mut svg, &x, &y);
        if self.diagonal {
            diagonal(&mut svg, &x, &y);
        }
        self.draw_bands(&mut svg, &x);
        let of = series.len();
        for (number, series) in series.iter().enumerate() {
            draw(&mut svg, series, Beside { number, of }, &x, &y, floor);
        }
        self.draw_marks(&mut svg, &x);
        svg.push_str(&legend);
        svg.push_str("</svg>\n");
        svg
    }

    /// Shaded stretches between two arrowheads, with their names.
    fn draw_bands(&self, svg: &mut String, x: &Scaled) {
        let [width, height, right] = self.paper();
        let ends = |band: &Band| [x.at(band.from), x.at(band.to)];
        for [from, to] in self.bands.iter().map(ends) {
            let (top, wide) = (self.top(), (to - from).max(0.5));
            let high = height - BOTTOM - top;
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"#ccc\" \
                 fill-opacity=\"0.6\"/>"
            );
        }
        for (number, band) in self.bands.iter().enumerate() {
            let [from, to] = ends(band);
            let line = TOP + BAND_NAME + number as f64 * BAND_LINE;
            let (y, down) = (line + 7.0, self.top() - line - 7.0);
            // The name is centred over its band as far as the paper allows.
            let half = band.name.chars().count() as f64 * LETTER / 2.0;
            let (least, most) = (LEFT + half + 4.0, width - right - half - 4.0);
            let middle = f64::midpoint(from, to).max(least).min(most.max(least));
            let _ = writeln!(
                svg,
                "<path d=\"M{from:.1} {y}v{down}M{to:.1} {y}v{down}\" stroke=\"#888\"/>\
                 <path d=\"M{from:.1} {y}H{to:.1}m-4-3l4 3l-4 3M{from:.1} {y}m4-3l-4 3l4 3\" fill=\"none\" \
                 stroke=\"#000\"/>\
                 <text x=\"{middle:.1}\" y=\"{line}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
                escaped(&band.name)
            );
        }
    }

    /// Dashed lines, numbered where there is room.
    fn draw_marks(&self, svg: &mut String, x: &Scaled) {
        let bottom = self.paper()[1] - BOTTOM;
        let mut numbered_to = f64::NEG_INFINITY;
        for (number, (at, _)) in (self.first_mark..).zip(&self.marks) {
            let at = x.at(*at);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#c00\" \
                 stroke-dasharray=\"3 3\"/>",
            );
            if at >= numbered_to + MARK_APART {
                numbered_to = at;
                let _ = writeln!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\">{number}</text>",
                    TOP - 4.0
                );
            }
        }
    }

    /// The marks in words: all if they are few, else the first ones.
    fn legend_of_marks(&self) -> Vec<(String, String)> {
        let told = (self.first_mark..).zip(self.marks.iter().take(MARKS_TOLD));
        let mut lines: Vec<_> =
            told.map(|(number, (_, what))| (number.to_string(), what.clone())).collect();
        if self.marks.len() > MARKS_TOLD {
            lines.push(("…".to_owned(), format!("{} faults in all", self.marks.len())));
        }
        lines
    }

    fn frame(&self, svg: &mut String, x: &Scaled, y: &Scaled) {
        let [width, height, right] = self.paper();
        let (left, right, top, bottom) = (LEFT, width - right, self.top(), height - BOTTOM);
        let mut grid = String::new();
        for (ticks, colour) in [(x.minor(), "#f4f4f4"), (x.ticks(), "#ddd")] {
            for at in ticks.into_iter().map(|tick| x.at(tick)) {
                let _ = write!(grid, "<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"{colour}\"/>");
            }
        }
        for (ticks, colour) in [(y.minor(), "#f4f4f4"), (y.ticks(), "#ddd")] {
            for at in ticks.into_iter().map(|tick| y.at(tick)) {
                let _ = write!(grid, "<path d=\"M{left} {at:.1}H{right}\" stroke=\"{colour}\"/>");
            }
        }
        let _ = writeln!(svg, "{grid}");
        for tick in x.ticks() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x.at(tick),
                bottom + 16.0,
                x.named(tick)
            );
        }
        for tick in y.ticks() {
            let (at, name) = (y.at(tick) + 4.0, y.named(tick));
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{at:.1}\" text-anchor=\"end\">{name}</text>",
                left - 6.0
            );
            if let Some(beyond) = y.named_beyond(tick) {
                let _ = writeln!(svg, "<text x=\"{}\" y=\"{at:.1}\">{beyond}</text>", right + 4.0);
            }
        }
        let middle = [f64::midpoint(left, right), f64::midpoint(top, bottom)];
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#333\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            middle[0],
            bottom + 34.0,
            escaped(&self.x.label()),
            middle[1],
            escaped(&self.y.label())
        );
    }
}

/// The line of equal values on both axes.
fn diagonal(svg: &mut String, x: &Scaled, y: &Scaled) {
    let (low, high) = (x.low().max(y.low()), x.high().min(y.high()));
    if low < high {
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#000\" stroke-dasharray=\"1 4\"/>",
            x.at(low),
            y.at(low),
            x.at(high),
            y.at(high)
        );
    }
}

/// Writes text beside a sample of the legend, and advances `line`.
fn text_lines(svg: &mut String, line: &mut f64, texts: &[String]) {
    for text in texts {
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{line}\">{}</text>", LEFT + SAMPLE, escaped(text));
        *line += LEGEND_LINE;
    }
}

/// Text in lines of at most `letters` letters, broken between words.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one from the start");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > letters {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Text with the special characters of HTML and SVG escaped.
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
mod tests;
