//! Series on paper: lines, curves, steps and bars. A series is identified by its sign, its dashes
//! and, as bars, its hatching, so that a print in black and white is as readable as a screen.

use std::fmt::Write as _;

use super::axis::Scaled;
use super::{Point, SERIES_MAX, Series, Style};

/// Okabe and Ito's palette for the colour-blind, ordered by contrast with white.
const COLOURS: [&str; SERIES_MAX] =
    ["#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00", "#777777"];
/// Dashes and gaps; the first line is solid.
const DASHES: [&str; SERIES_MAX] =
    ["none", "7 3", "2 3", "9 3 2 3", "14 4", "4 4", "9 3 2 3 2 3", "1 5"];
/// Outlines of signs around their centre. Each encloses an area, so that it can be hollow.
const SIGNS: [&str; SERIES_MAX] = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "m-3.7-3.7h7.4v7.4h-7.4z",
    "m0-5l5 9h-10z",
    "m0-5.4l5.4 5.4l-5.4 5.4l-5.4-5.4z",
    "m0 5l5-9h-10z",
    "m-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
    "m-5-4.5h10l-10 9h10z",
    "m-5.5-2h11v4h-11z",
];
/// Directions and distances of the hatching of bars; bars of the first series are solid.
const HATCHES: [Option<(i32, u32)>; SERIES_MAX] = [
    None,
    Some((45, 5)),
    Some((0, 4)),
    Some((-45, 8)),
    Some((90, 6)),
    Some((45, 9)),
    Some((-45, 4)),
    Some((0, 9)),
];
/// Number of signs along a curve.
const SIGNS_OF_CURVE: usize = 6;
/// A bar's share of the room between two values.
const BAR_SHARE: f64 = 0.8;

/// The number of a series, and the number of all series.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    pub(super) number: usize,
    pub(super) of: usize,
}

/// Draws a series between the axes. Bars stand on `floor`.
pub(super) fn draw(
    svg: &mut String,
    series: &Series,
    beside: Beside,
    x: &Scaled,
    y: &Scaled,
    floor: f64,
) {
    let number = beside.number;
    match series.style {
        Style::Bars | Style::Histogram => draw_bars(svg, series, beside, x, y, floor),
        Style::Line => {
            path(svg, number, &polygon(&series.points, x, y));
            ranges(svg, number, &series.points, x, y);
            for point in &series.points {
                sign(svg, number, [x.at(point.x), y.at(point.y)], point.saturated);
            }
        }
        Style::Dots => {
            for point in &series.points {
                sign(svg, number, [x.at(point.x), y.at(point.y)], point.saturated);
            }
        }
        Style::Curve | Style::Steps => {
            let line = match series.style {
                Style::Steps => steps(&series.points, x, y, floor),
                _ => polygon(&series.points, x, y),
            };
            path(svg, number, &line);
            // A single curve needs no sign.
            if beside.of == 1 {
                return;
            }
            // The signs of different series are at different points, where curves coincide.
            let step = series.points.len().div_ceil(SIGNS_OF_CURVE).max(1);
            let first = step * number / SERIES_MAX;
            for point in series.points.iter().skip(first).step_by(step) {
                sign(svg, number, [x.at(point.x), y.at(point.y)], false);
            }
        }
    }
}

/// Straight lines from each point to the next.
fn polygon(points: &[Point], x: &Scaled, y: &Scaled) -> String {
    let mut path = String::new();
    for point in points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", x.at(point.x), y.at(point.y));
    }
    path
}

/// Level up to each point, then down to the next; from the last down to the floor.
fn steps(points: &[Point], x: &Scaled, y: &Scaled, floor: f64) -> String {
    let mut path = String::new();
    for point in points {
        let (x, y) = (x.at(point.x), y.at(point.y));
        let _ = if path.is_empty() {
            write!(path, "M{x:.1} {y:.1}")
        } else {
            write!(path, "V{y:.1}H{x:.1}")
        };
    }
    let _ = write!(path, "V{floor:.1}");
    path
}

fn path(svg: &mut String, number: usize, path: &str) {
    let (colour, dashes) = (COLOURS[number], DASHES[number]);
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
         stroke-dasharray=\"{dashes}\"/>"
    );
}

/// The ranges of the runs whose medians the points are.
fn ranges(svg: &mut String, number: usize, points: &[Point], x: &Scaled, y: &Scaled) {
    for point in points {
        let Some([low, high]) = point.range else { continue };
        let (at, low, high) = (x.at(point.x), y.at(low), y.at(high));
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6\" \
             stroke=\"{1}\"/>",
            at - 3.0,
            COLOURS[number]
        );
    }
}

/// A bar for each point, beside those of the other series.
fn draw_bars(
    svg: &mut String,
    series: &Series,
    beside: Beside,
    x: &Scaled,
    y: &Scaled,
    floor: f64,
) {
    let at: Vec<f64> = series.points.iter().map(|point| x.at(point.x)).collect();
    let apart = at.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let share = if series.style == Style::Bars { 1.0 } else { BAR_SHARE };
    let room = if apart.is_finite() { apart * share } else { 40.0 };
    let width = room / beside.of as f64;
    for (point, at) in series.points.iter().zip(at) {
        let left = at - room / 2.0 + width * beside.number as f64;
        let top = y.at(point.y);
        let rect = [left, top, (width * 0.92).max(0.5), (floor - top).max(0.0)];
        bar(svg, beside.number, rect);
    }
}

/// A rectangle hatched like the bars of series `number`: left, top, width and height.
fn bar(svg: &mut String, number: usize, [left, top, width, height]: [f64; 4]) {
    let colour = COLOURS[number];
    let hatched = HATCHES[number].is_some();
    let (fill, edge) = if hatched {
        (format!("url(#hatch{number})"), format!(" stroke=\"{colour}\""))
    } else {
        (colour.to_owned(), String::new())
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"{edge}/>"
    );
}

/// The hatching patterns of this many series.
pub(super) fn hatchings(series: usize) -> String {
    let mut svg = "<defs>".to_owned();
    for (number, hatch) in HATCHES.iter().enumerate().take(series) {
        let Some((turn, apart)) = hatch else { continue };
        let _ = write!(
            svg,
            "<pattern id=\"hatch{number}\" width=\"{apart}\" height=\"{apart}\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate({turn})\">\
             <rect width=\"{apart}\" height=\"{apart}\" fill=\"#fff\"/>\
             <path d=\"M0 1h{apart}\" stroke=\"{}\" stroke-width=\"2\"/></pattern>",
            COLOURS[number]
        );
    }
    svg.push_str("</defs>\n");
    svg
}

/// The sign of series `number`; hollow if the point is saturated.
pub(super) fn sign(svg: &mut String, number: usize, [x, y]: [f64; 2], hollow: bool) {
    let (colour, path) = (COLOURS[number], SIGNS[number]);
    let fill = if hollow { "#fff" } else { colour };
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {y:.1}{path}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.4\"/>"
    );
}

/// The legend's sample of a series: its dashes and its sign, or a bar.
pub(super) fn sample(svg: &mut String, beside: Beside, series: &Series, [x, y]: [f64; 2]) {
    let Beside { number, of } = beside;
    match series.style {
        Style::Bars | Style::Histogram => bar(svg, number, [x, y - 5.0, 28.0, 10.0]),
        Style::Line | Style::Curve | Style::Steps | Style::Dots => {
            if series.points.len() > 1 && series.style != Style::Dots {
                path(svg, number, &format!("M{x:.1} {y:.1}h28"));
            }
            if of > 1 || matches!(series.style, Style::Line | Style::Dots) {
                sign(svg, number, [x + 14.0, y], false);
            }
        }
    }
}
