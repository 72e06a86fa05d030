//! One page of all measurements: without scripts and external resources, and with the data and the
//! runs below each figure. All necessary information is visible; only a figure's data is folded,
//! and the page is complete on paper without it.

mod runs;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::figures::{Figure, Table, figures};
use crate::plot::{Plot, escaped};
use crate::saturation;
use crate::source::{self, Source};

/// A page, and its pictures as separate files.
#[derive(Clone, Debug)]
pub struct Page {
    pub html: String,
    /// File names and SVG.
    pub pictures: Vec<(String, String)>,
    /// Files without a report, and why.
    pub left_out: Vec<(String, String)>,
}

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60em;
       margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.15em; margin: 2.2em 0 .2em; }
svg { max-width: 100%; height: auto; } figure { margin: 0; }
.one { overflow-x: auto; } .one svg { min-width: 560px; } figcaption { color: #333; max-width: 50em; }
.several { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 374px), 1fr)); gap: .8em; }
table { border-collapse: collapse; font-size: .87em; margin: .6em 0; } summary { cursor: pointer; color: #0072b2; }
th, td { padding: .15em .7em .15em 0; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd; }
th { vertical-align: bottom; border-bottom: 1px solid #333; } thead { display: table-header-group; }
.text { text-align: left; } td { white-space: nowrap; } td.text { white-space: normal; }
.first td, thead:has(tr + tr) tr:first-child th { border-bottom: none; } .wide { overflow-x: auto; }
code { font-size: .92em; overflow-wrap: anywhere; } .quiet { color: #555; font-size: .87em; }
@page { margin: 15mm; }
@media print {
  body { font-size: 9.5pt; max-width: none; margin: 0; padding: 0; } details { display: none; }
  figure, tbody { break-inside: avoid; } h2 { break-after: avoid; } .wide, .one { overflow: visible; }
  .one svg { min-width: 0; width: auto; max-height: 92mm; }
  .several { grid-template-columns: 1fr 1fr; } td { white-space: normal; } table { font-size: 7.5pt; }
}
";

/// Makes a page of files, given as names and contents.
pub fn page(files: &[(String, String)]) -> Page {
    let mut sources = Vec::new();
    let mut left_out = Vec::new();
    for (name, text) in files {
        match source::read(name, text) {
            Ok(read) => sources.extend(read),
            Err(why) => left_out.push((name.clone(), why)),
        }
    }
    let figures = figures(&sources);
    let simulated = !sources.is_empty() && sources.iter().all(Source::is_simulated);
    let title = if simulated { "Skein, simulated" } else { "Skein, measured" };
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    introduction(&mut html, &sources);
    let mut pictures = Vec::new();
    for figure in &figures {
        let drawn: Vec<_> = figure.plots.iter().map(Plot::svg).collect();
        show(&mut html, figure, &drawn, &sources);
        let several = drawn.len() > 1;
        for (number, svg) in (1..).zip(drawn) {
            let number = if several { format!("-{number}") } else { String::new() };
            pictures.push((format!("{}{number}.svg", figure.name), svg));
        }
    }
    html.push_str("<h2 id=\"runs\">All runs</h2>\n");
    table(&mut html, &runs::table(&sources));
    if !left_out.is_empty() {
        html.push_str("<h2>Left out</h2>\n<ul class=\"quiet\">\n");
        for (file, why) in &left_out {
            let _ = writeln!(html, "<li>{}: {}", escaped(file), escaped(why));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</html>\n");
    Page { html, pictures, left_out }
}

fn introduction(html: &mut String, sources: &[Source]) {
    let all: BTreeSet<usize> = (0..sources.len()).collect();
    let simulated = sources.iter().filter(|source| source.is_simulated()).count();
    let mut about = String::new();
    if simulated < sources.len() {
        about.push_str(" The generator of the load shares the machine with what it measures.");
    }
    if simulated > 0 {
        let _ = write!(
            about,
            " {simulated} runs are simulated, in virtual time and on hardware that is not here."
        );
    }
    let _ = writeln!(
        html,
        "<p>{} runs{}.{about} The figures are described in \
         <code>docs/performance.md</code>.</p>\n\
         <p class=\"quiet\">A line joins runs that differ in one setting alone: the one of the axis, or the one that the legend says \
         rises. Runs with equal settings are one point: their median, with a bar from the lowest to the highest. Seed and date are not \
         settings. The legend lists what differs within a figure, the text below it what does not. {}</p>",
        sources.len(),
        measured(sources, &all),
        saturation::RULE
    );
}

/// Machines, versions and dates of runs.
fn measured(sources: &[Source], from: &BTreeSet<usize>) -> String {
    let of = || from.iter().map(|number| &sources[*number]);
    let machines: BTreeSet<_> = of()
        .filter(|source| !source.is_simulated())
        .map(|source| format!("{}, {} cores", source.machine.model, source.machine.cores))
        .collect();
    let versions: BTreeSet<_> = of().map(|source| &source.skein[..]).collect();
    let mut text = String::new();
    if !versions.is_empty() {
        let versions = versions.into_iter().collect::<Vec<_>>().join("; ");
        let machines = machines.into_iter().collect::<Vec<_>>().join("; ");
        let on = if machines.is_empty() {
            String::new()
        } else {
            format!(", on {}", escaped(&machines))
        };
        text = format!(" of Skein {}{on}", escaped(&versions));
    }
    text + &dated(from.iter().map(|number| &sources[*number]))
}

/// Dates of runs.
fn dated<'a>(sources: impl Iterator<Item = &'a Source>) -> String {
    let (mut dates, mut undated) = (BTreeSet::new(), 0);
    for source in sources {
        match source.date.as_deref() {
            Some(date) => drop(dates.insert(date)),
            None => undated += 1,
        }
    }
    let mut text = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first == last => format!(", of {}", escaped(first)),
        (Some(first), Some(last)) => format!(", of {} to {}", escaped(first), escaped(last)),
        _ => String::new(),
    };
    match undated {
        0 => {}
        _ if dates.is_empty() => text += ", without a date",
        some => drop(write!(text, ", {some} of them without a date")),
    }
    text
}

/// Numbers from 1, consecutive ones as a range: `1–4, 7`.
fn numbers(from: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<[usize; 2]> = Vec::new();
    for number in from.iter().map(|number| number + 1) {
        match ranges.last_mut() {
            Some([_, last]) if *last + 1 == number => *last = number,
            _ => ranges.push([number; 2]),
        }
    }
    let words = ranges.iter().map(|[first, last]| match last - first {
        0 => first.to_string(),
        _ => format!("{first}–{last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn show(html: &mut String, figure: &Figure, drawn: &[String], sources: &[Source]) {
    let plural = if figure.from.len() == 1 { "" } else { "s" };
    let several = if drawn.len() > 1 { "several" } else { "one" };
    let _ = writeln!(
        html,
        "<h2 id=\"{}\">{}</h2>\n<figure>\n<div class=\"{several}\">\n{}</div>\n<figcaption>{}<div class=\"quiet\">Run{plural} {} of the table at \
         the end{}.</div></figcaption>\n</figure>",
        figure.name,
        escaped(&figure.title),
        drawn.concat(),
        escaped(&figure.about),
        numbers(&figure.from),
        dated(figure.from.iter().map(|number| &sources[*number]))
    );
    if let Some(below) = &figure.table {
        table(html, below);
    }
    html.push_str("<details><summary>data</summary>\n");
    for plot in &figure.plots {
        data(html, plot);
    }
    html.push_str("</details>\n");
}

/// The data of a plot.
fn data(html: &mut String, plot: &Plot) {
    let (x, y) = (escaped(&plot.x.label()), escaped(&plot.y.label()));
    let of_y = |which: &str| match plot.y.unit {
        "" => which.to_owned(),
        unit => format!("{which} ({})", escaped(unit)),
    };
    let _ = writeln!(
        html,
        "<div class=\"wide\"><table>\n<thead><tr><th class=\"text\">series<th>{x}<th>{y}<th>{}<th>{}<th>saturated</thead>",
        of_y("lowest"),
        of_y("highest")
    );
    for series in &plot.series {
        for point in &series.points {
            let _ = write!(html, "<tr><td class=\"text\">{}", escaped(&series.name));
            let [low, high] = point.range.unwrap_or([point.y; 2]);
            for number in [point.x, point.y, low, high] {
                let _ = write!(html, "<td>{}", short(number));
            }
            html.push_str(if point.saturated { "<td>yes\n" } else { "<td>\n" });
        }
    }
    html.push_str("</table></div>\n");
}

/// A number with four decimals, or with three digits if it is small.
fn short(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-2 {
        return format!("{number:.2e}");
    }
    ((number * 1e4).round() / 1e4).to_string()
}

/// A table. A command is long, so it has a line of its own below its row.
fn table(html: &mut String, table: &Table) {
    const TEXTS: [&str; 6] = ["fault", "nodes", "groups led", "file", "what", "load"];
    const COMMAND: &str = "command";
    let class = |head: &str| if TEXTS.contains(&head) { " class=\"text\"" } else { "" };
    let columns = table.heads.iter().filter(|head| **head != COMMAND).count();
    html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for head in table.heads.iter().filter(|head| **head != COMMAND) {
        let _ = write!(html, "<th{}>{}", class(head), escaped(head));
    }
    if columns < table.heads.len() {
        let _ = write!(html, "<tr><th class=\"text\" colspan=\"{columns}\">{COMMAND}");
    }
    html.push_str("</thead>\n");
    for row in &table.rows {
        let with_command = if columns < row.len() { " class=\"first\"" } else { "" };
        let _ = write!(html, "<tbody><tr{with_command}>");
        for (head, cell) in table.heads.iter().zip(row) {
            let cell = escaped(cell);
            let _ = match *head {
                COMMAND => write!(
                    html,
                    "\n<tr><td class=\"text\" colspan=\"{columns}\"><code>{cell}</code>"
                ),
                _ => write!(html, "<td{}>{cell}", class(head)),
            };
        }
        html.push_str("</tbody>\n");
    }
    html.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests;
