use super::*;

fn axis(what: &'static str, scale: Scale) -> Axis {
    Axis { what, unit: "", scale }
}

fn point(x: f64, y: f64) -> Point {
    Point { x, y, range: None, saturated: false }
}

fn series(points: Vec<Point>, style: Style) -> Series {
    Series { name: "<b>".to_owned(), points, style }
}

#[test]
fn nothing_leaves_the_paper_and_names_are_harmless() {
    let wild = |x, y| Point { range: Some([y / 2.0, y * 2.0]), saturated: true, ..point(x, y) };
    for scale in [Scale::Linear, Scale::Log, Scale::Doubling, Scale::Tail, Scale::Classes] {
        for style in [Style::Line, Style::Curve, Style::Steps, Style::Bars, Style::Histogram] {
            let points = vec![wild(0.0, 0.0), wild(1.0, f64::NAN), wild(1e9, 1e-9)];
            let both = vec![series(points, style), series(Vec::new(), style)];
            let mut plot = Plot::new([axis("a & b", scale), axis("a & b", scale)], both);
            plot.marks = vec![(5.0, "kill \"0\"".to_owned())];
            plot.bands = vec![Band { from: -1e12, to: 1e12, name: "<gap>".to_owned() }];
            for size in [Size::Whole, Size::Half] {
                plot.size = size;
                let svg = plot.svg();
                assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;"), "{svg}");
                assert!(svg.contains("a &amp; b") && svg.contains("&lt;gap&gt;"), "{svg}");
                assert!(!svg.contains("inf") && !svg.contains("<title"), "{svg}");
                assert!(svg.contains("kill &quot;0&quot;</text>"), "marks are told in print");
                assert!(svg.contains("hollow sign"));
            }
        }
    }
}

#[test]
fn bars_stand_beside_each_other_and_on_the_axis() {
    let one = |y| series(vec![point(1.0, y), point(2.0, y), point(4.0, y)], Style::Histogram);
    let axes = [axis("x", Scale::Classes), axis("y", Scale::Linear)];
    let plot = Plot::new(axes, vec![one(0.5), one(1.0)]);
    let svg = plot.svg();
    // Bars of the legend do not stand on the axis.
    let bars: Vec<_> = svg.lines().filter(|line| line.starts_with("<rect x=")).take(6).collect();
    assert_eq!(svg.matches("<rect x=").count(), 6 + 2);
    let [width, height, right] = plot.paper();
    let mut ends = Vec::new();
    for bar in bars {
        let number = |name: &str| -> f64 {
            let from = bar.find(name).expect(name) + name.len();
            bar[from..].split('"').next().unwrap().parse().unwrap()
        };
        let (left, wide) = (number(" x=\""), number(" width=\""));
        assert!((number(" y=\"") + number(" height=\"") - (height - BOTTOM)).abs() < 0.3, "{bar}");
        assert!(left >= LEFT && left + wide <= width - right, "it stands upon the axis: {bar}");
        ends.push((left, left + wide));
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.1), "no bar hides another");
}

#[test]
fn series_differ_without_colours() {
    let all: Vec<_> = (0..SERIES_MAX)
        .map(|i| series(vec![point(1.0, i as f64), point(2.0, 1.0)], Style::Line))
        .collect();
    let axes = [axis("x", Scale::Linear), axis("y", Scale::Linear)];
    let svg = Plot::new(axes, all).svg();
    let mut dashes: Vec<_> = svg
        .split("stroke-dasharray=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    dashes.sort_unstable();
    dashes.dedup();
    assert_eq!(dashes.len(), SERIES_MAX, "each line has dashes of its own");
}

#[test]
fn a_saturated_point_is_hollow_and_the_legend_says_so() {
    let full = vec![point(1.0, 1.0), point(2.0, 2.0)];
    let hollow = vec![point(1.0, 1.0), Point { saturated: true, ..point(2.0, 2.0) }];
    let axes = [axis("x", Scale::Linear), axis("y", Scale::Linear)];
    let of = |points| Plot::new(axes, vec![series(points, Style::Line)]).svg();
    assert!(!of(full.clone()).contains(SATURATED));
    let hollows = |svg: &str| svg.matches("fill=\"#fff\" stroke=").count();
    assert_eq!((hollows(&of(full)), hollows(&of(hollow.clone()))), (0, 2), "it, and the legend's");
    assert!(of(hollow).contains(SATURATED));
}

#[test]
fn long_names_are_broken_between_words() {
    assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    assert_eq!(wrapped("", 3), [""]);
}

#[test]
fn steps_fall_to_the_floor_after_the_last_point() {
    let points = vec![point(1.0, 1.0), point(2.0, 0.5)];
    let axes = [axis("x", Scale::Log), axis("y", Scale::Tail)];
    let svg = Plot::new(axes, vec![series(points, Style::Steps)]).svg();
    assert!(svg.contains("V330.0\" fill"), "{svg}");
}
