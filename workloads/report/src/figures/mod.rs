//! Figures of the available reports.

mod batches;
mod close_ups;
mod distributions;
mod multicasts;
mod peers;
mod stores;
mod timelines;

pub(super) use self::stores::main_operations;

use std::collections::BTreeSet;

use skein_checker::chart::{grouped, whole};

use crate::lines::{Line, Run, join};
use crate::plot::{Axis, Plot, SERIES_MAX, Scale, Series, Style};
use crate::settings::{Setting, differing};
use crate::source::Source;

/// A figure: one plot, or several side by side, with a caption.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Letters, digits and hyphens.
    pub(super) name: String,
    /// For people.
    pub(super) title: String,
    /// The caption: what to see, and what all series have in common.
    pub(super) about: String,
    pub(super) plots: Vec<Plot>,
    /// A table below the plots.
    pub(super) table: Option<Table>,
    /// Numbers of the reports that it shows.
    pub(super) from: BTreeSet<usize>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Heads of the columns, with units.
    pub(super) heads: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// All figures that can be made of `sources`.
pub(super) fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut figures = multicasts::figures(sources);
    figures.extend(batches::figures(sources));
    figures.extend(stores::figures(sources));
    figures.extend(distributions::figures(sources));
    figures.extend(peers::figures(sources));
    figures.extend(timelines::figures(sources));
    figures
}

/// The texts of a figure, and its axes.
#[derive(Clone, Copy)]
struct Frame {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    x: Axis,
    y: Axis,
}

const fn axis(what: &'static str, unit: &'static str, scale: Scale) -> Axis {
    Axis { what, unit, scale }
}

const LATENCY: Axis = axis("latency", "µs", Scale::Log);
const CLIENTS: Axis = axis("clients", "", Scale::Doubling);

/// Lines along one of `axes`, and single points of the runs that `alone` selects. Empty if no two
/// points can be compared.
fn of_lines(
    frame: Frame,
    runs: &[Run],
    axes: &[Setting],
    alone: &dyn Fn(usize) -> bool,
) -> Vec<Figure> {
    let mut lines = join(runs, axes);
    lines.retain(|line| line.along.is_some() || line.made[0].from.iter().all(|from| alone(*from)));
    let points: usize = lines.iter().map(|line| line.made.len()).sum();
    if points < 2 {
        return Vec::new();
    }
    lines.sort_by_cached_key(|line| {
        (line.along.is_none(), line.settings.order(), line.measure.clone())
    });
    let differ = differing(&lines.iter().map(|line| &line.settings).collect::<Vec<_>>());
    // The name of a line includes the ends of the setting that it varies, unless the axis shows
    // them.
    let on_axis = |setting: Setting| setting_of(frame.x) == Some(setting);
    let count = lines.len();
    let series = lines.into_iter().map(|line| {
        let from: BTreeSet<_> = line.made.iter().flat_map(|made| made.from.clone()).collect();
        let name = match name_of(&line, &differ, &on_axis) {
            name if !name.is_empty() => name,
            _ if count == 1 => "all runs".to_owned(),
            _ => "all others".to_owned(),
        };
        let points = line.made.iter().map(|made| made.point).collect();
        (Series { name, points, style: Style::Line }, from, line.settings)
    });
    let series: Vec<_> = series.collect();
    let common = series[0].2.words(|setting| !differ.contains(&setting));
    let series = series.into_iter().map(|(series, from, _)| (series, from)).collect();
    parts(frame, &common, series)
}

/// The name of a line among others, by the settings in which it differs; empty if it differs in
/// none.
fn name_of(line: &Line, differ: &[Setting], on_axis: &dyn Fn(Setting) -> bool) -> String {
    let mut name = line.settings.words(|setting| differ.contains(&setting));
    let mut add = |words: &str| {
        if !words.is_empty() {
            name = if name.is_empty() { words.to_owned() } else { format!("{name}, {words}") };
        }
    };
    if let Some(along) = line.along.filter(|along| !on_axis(*along)) {
        let [least, most] = line.ends().map(|end| grouped(whole(end)));
        add(&format!("{least} to {most} {}", varied(along)));
    }
    add(&line.measure);
    name
}

/// The unit of a setting that varies along a line without being on the axis.
fn varied(setting: Setting) -> &'static str {
    match setting {
        Setting::Clients => "clients",
        Setting::Window => "in flight each",
        Setting::Rate => "due/s",
        _ => "of what rises",
    }
}

/// The setting that an axis shows.
fn setting_of(axis: Axis) -> Option<Setting> {
    [
        (CLIENTS.what, Setting::Clients),
        (multicasts::OFFERED.what, Setting::Rate),
        (multicasts::DESTINATIONS.what, Setting::Destinations),
        (multicasts::GROUPS.what, Setting::Groups),
        (multicasts::PAYLOAD.what, Setting::Payload),
        (stores::NEIGHBOURS.what, Setting::Neighbours),
    ]
    .into_iter()
    .find_map(|(what, setting)| (what == axis.what).then_some(setting))
}

/// One figure, or several if there are more series than one can hold.
fn parts(frame: Frame, common: &str, series: Vec<(Series, BTreeSet<usize>)>) -> Vec<Figure> {
    parts_of(frame, common, series, SERIES_MAX)
}

fn parts_of(
    frame: Frame,
    common: &str,
    mut series: Vec<(Series, BTreeSet<usize>)>,
    most: usize,
) -> Vec<Figure> {
    let parts = series.len().div_ceil(most);
    let mut figures = Vec::new();
    for part in 1..=parts {
        let rest = series.split_off(series.len().min(most));
        let held = std::mem::replace(&mut series, rest);
        let from = held.iter().flat_map(|(_, from)| from.clone()).collect();
        let plot = Plot::new([frame.x, frame.y], held.into_iter().map(|(it, _)| it).collect());
        let (of, number) = match parts {
            1 => (String::new(), String::new()),
            _ => (format!(" ({part} of {parts})"), format!("-{part}")),
        };
        let (name, title) = (format!("{}{number}", frame.name), format!("{}{of}", frame.title));
        let about = match common {
            "" => frame.about.to_owned(),
            common => format!("{} All series: {common}.", frame.about),
        };
        figures.push(Figure { name, title, about, plots: vec![plot], table: None, from });
    }
    figures
}

/// The reports at both ends of each line along which the load rises, and those without a line.
fn lightest_and_heaviest(runs: &[Run], axes: &[Setting]) -> BTreeSet<usize> {
    let lines = join(runs, axes);
    let ends = lines.iter().flat_map(|line| [line.made.first(), line.made.last()]);
    ends.filter_map(|made| made?.from.first().copied()).collect()
}

/// The reports that are in some line.
fn joined(runs: &[Run], axes: &[Setting]) -> BTreeSet<usize> {
    let lines = join(runs, axes).into_iter().filter(|line| line.along.is_some());
    lines.flat_map(|line| line.made).flat_map(|made| made.from).collect()
}
