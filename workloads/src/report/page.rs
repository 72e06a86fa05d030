//! One page of everything that was measured: no scripts, nothing that is fetched, and below each
//! figure its data and how it came about.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use skein_checker::chart::{grouped, whole};

use super::figures::{Figure, figures};
use super::plot::escaped;
use super::source::{self, Chaos, Idle, Multicast, Peers, Source, Store, What};

/// A page, and its pictures by themselves.
#[derive(Clone, Debug)]
pub struct Page {
    /// HTML.
    pub html: String,
    /// File names and SVG.
    pub pictures: Vec<(String, String)>,
    /// Files that hold nothing to show, and why.
    pub left_out: Vec<(String, String)>,
}

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60em;
       margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.15em; margin: 2.2em 0 .2em; }
svg { max-width: 100%; height: auto; } figure { margin: 0; } figcaption { color: #444; }
table { border-collapse: collapse; font-size: .87em; } summary { cursor: pointer; color: #0072b2; }
th, td { padding: .15em .7em .15em 0; text-align: right; border-bottom: 1px solid #eee; }
th:first-child, td:first-child, .text { text-align: left; }
td { white-space: nowrap; } td.text { white-space: normal; min-width: 26em; } .wide { overflow-x: auto; }
code { font-size: .92em; } .quiet { color: #666; font-size: .87em; }
";

/// Makes a page of files: their names and what is in them.
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
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Skein, measured</title>\n\
         <style>{STYLE}</style>\n<h1>Skein, measured</h1>\n"
    );
    introduction(&mut html, &sources);
    let mut pictures = Vec::new();
    for figure in &figures {
        let svg = figure.plot.svg();
        show(&mut html, figure, &svg, &sources);
        pictures.push((format!("{}.svg", figure.name), svg));
    }
    everything(&mut html, &sources);
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
    let machines: BTreeSet<_> = sources.iter().map(|source| &source.machine).collect();
    let versions: BTreeSet<_> = sources.iter().map(|source| &source.skein).collect();
    let machines =
        machines.iter().map(|machine| format!("{}, {} cores", machine.model, machine.cores));
    let machines = machines.collect::<Vec<_>>().join("; ");
    let versions = versions.iter().map(|version| version.as_str()).collect::<Vec<_>>().join("; ");
    let _ = writeln!(
        html,
        "<p>{} reports. Skein {}, on {}. The generator of the load shares the machine with what it \
         measures. What the figures mean is told in <code>docs/performance.md</code>.</p>",
        sources.len(),
        escaped(&versions),
        escaped(&machines)
    );
}

fn show(html: &mut String, figure: &Figure, svg: &str, sources: &[Source]) {
    let _ = writeln!(
        html,
        "<h2 id=\"{}\">{}</h2>\n<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>",
        figure.name,
        escaped(&figure.title),
        escaped(figure.about)
    );
    faults(html, &figure.plot.marks);
    html.push_str("<details><summary>how it was measured</summary>\n<ul class=\"quiet\">\n");
    for source in figure.from.iter().map(|number| &sources[*number]) {
        let _ = writeln!(
            html,
            "<li><code>{}</code><br>{}, {}, Skein {}, {}, {} cores{}",
            escaped(&source.command()),
            escaped(&source.file),
            escaped(date(source)),
            escaped(&source.skein),
            escaped(&source.machine.model),
            source.machine.cores,
            between_cores(source)
        );
    }
    html.push_str(
        "</ul></details>\n<details><summary>data</summary>\n<div class=\"wide\"><table>\n",
    );
    let plot = &figure.plot;
    let (x, y) = (escaped(plot.x.label), escaped(plot.y.label));
    let _ = writeln!(html, "<tr><th>series<th>{x}<th>{y}<th>lowest<th>highest");
    for series in &plot.series {
        for point in &series.points {
            let _ = write!(html, "<tr><td>{}", escaped(&series.name));
            let [low, high] = point.range.unwrap_or([point.y; 2]);
            for number in [point.x, point.y, low, high] {
                let _ = write!(html, "<td>{}", (number * 1e4).round() / 1e4);
            }
            html.push('\n');
        }
    }
    html.push_str("</table></div></details>\n");
}

/// The faults that a figure marks, as far as there is not room for all below the picture.
fn faults(html: &mut String, marks: &[(f64, String)]) {
    if marks.is_empty() {
        return;
    }
    html.push_str("<details><summary>the faults</summary>\n<ol class=\"quiet\">\n");
    for (_, what) in marks {
        let _ = writeln!(html, "<li>{}", escaped(what));
    }
    html.push_str("</ol></details>\n");
}

/// When a report was made.
fn date(source: &Source) -> &str {
    source.date.as_deref().unwrap_or("date unknown")
}

fn between_cores(source: &Source) -> String {
    match &source.what {
        What::Multicast(Multicast { cross_core_ns: Some(trip), .. }) => {
            format!(
                "; from core to core and back in {:.0} ns ({:.0} to {:.0})",
                trip.median, trip.low, trip.high
            )
        }
        What::Store(Store { cross_core_ns: Some(trip), .. }) => {
            format!("; from core to core and back in {trip:.0} ns")
        }
        _ => String::new(),
    }
}

/// Every report in a line.
fn everything(html: &mut String, sources: &[Source]) {
    html.push_str(
        "<h2>All reports</h2>\n<p class=\"quiet\">Latencies are of the operation that is named.</p>\n\
         <div class=\"wide\"><table>\n<tr><th>file<th>date<th>operation<th>groups × replicas\
         <th>sessions × under way<th>operations per second<th>p50, µs<th>p99, µs<th>core to core, ns\
         <th class=\"text\">command\n",
    );
    for source in sources {
        let topology = source.topology();
        let (operation, load, rate, latency, trip) = match &source.what {
            What::Multicast(multicast) => {
                let Multicast { clients, window, p50_us, p99_us, .. } = multicast;
                let trip = multicast.cross_core_ns.map(|trip| trip.median);
                let load = format!("{clients} × {window}");
                let latency = Some([p50_us.median, p99_us.median]);
                let operation = format!("multicast of {} B", multicast.payload_bytes);
                (operation, load, Some(multicast.messages_per_s.median), latency, trip)
            }
            What::Chaos(Chaos { clients, ops_per_s, .. }) => {
                ("chaos".to_owned(), format!("{clients} × 1"), Some(*ops_per_s), None, None)
            }
            What::Idle(Idle { sessions, percent_of_a_core, cross_core_ns, .. }) => {
                let load = format!("{sessions} idle: {percent_of_a_core:.2} % of a core");
                ("none".to_owned(), load, None, None, *cross_core_ns)
            }
            What::Peers(Peers { peers, .. }) => {
                ("stores in turn".to_owned(), format!("{} loads", peers.len()), None, None, None)
            }
            What::Store(store) => {
                let Store { clients, ops_per_s, operations, rate, cross_core_ns, .. } = store;
                let most = operations.iter().max_by_key(|(_, operation)| operation.count);
                let latency = most.map(|(_, it)| [it.latency_us.p50, it.latency_us.p99]);
                let workload = &store.workload;
                let operation = most
                    .map_or_else(|| workload.clone(), |(name, _)| format!("{workload}: {name}"));
                let due = rate.map_or_else(String::new, |rate| {
                    let saturated = if store.is_saturated() { ", saturated" } else { "" };
                    format!(", {} due a second{saturated}", grouped(whole(rate)))
                });
                let load = format!("{clients} × 1{due}");
                (operation, load, Some(*ops_per_s), latency, *cross_core_ns)
            }
        };
        let [p50, p99] =
            latency.map_or([const { String::new() }; 2], |both| both.map(|us| format!("{us:.2}")));
        let trip = trip.map_or_else(String::new, |ns| format!("{ns:.0}"));
        let rate = rate.map_or_else(String::new, |rate| grouped(whole(rate)));
        let _ = writeln!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{} × {}<td>{load}<td>{rate}<td>{p50}<td>{p99}<td>{trip}\
             <td class=\"text\"><code>{}</code>",
            escaped(&source.file),
            escaped(date(source)),
            escaped(&operation),
            topology.groups,
            topology.replicas,
            escaped(&source.command()),
        );
    }
    html.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn origin(workload: &str, rest: Value) -> String {
        let mut all = json!({
            "workload": workload, "skein": "0.1.0 (abc)", "seed": 1, "clients": 1,
            "machine": {"cores": 2, "model": "a <model>"},
            "topology": {"nodes": 3, "groups": 4, "replicas": 3, "engines": 1},
        });
        let rest = rest.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(rest);
        all.to_string()
    }

    fn multicast(clients: u32, destinations: u32, rate: f64) -> String {
        let spread =
            |median: f64| json!({"median": median, "low": median / 2.0, "high": median * 2.0});
        let rest = json!({
            "command": format!("skein bench multicast --clients {clients}"), "clients": clients,
            "placement": "processes", "fabric": "shm", "waiting": "adaptive", "window": 1,
            "destinations": destinations, "payload_bytes": 64, "rate": null,
            "messages_per_s": spread(rate), "p50_us": spread(5.0), "p99_us": spread(9.0),
            "cross_core_ns": spread(90.0), "distribution_us": [[0.0, 3.0], [0.5, 5.0], [1.0, 40.0]],
            "batches": {"entries_per_write": [5, 3, 1, 0], "words_per_look": [0, 0]},
        });
        origin("multicast", rest)
    }

    fn files() -> Vec<(String, String)> {
        let events = json!([
            {"at_s": 0.3, "what": "kill", "nodes": [0], "next_write_ms": {"0": 4.5, "2": null}},
            {"at_s": 0.6, "what": "kill", "nodes": [1], "next_write_ms": {"1": 9.5}},
        ]);
        let timeline = json!({"interval_ms": 10, "ops": vec![40; 200]});
        let chaos = json!({"ops_per_s": 4e3, "events": events, "timeline": timeline.clone()});
        let latency = json!({"p50": 80.0, "p99": 200.0});
        let store = |clients: u32, neighbours: Value| {
            let read = json!({"count": 10, "latency_us": latency});
            let rest = json!({"ops_per_s": 1e4 * f64::from(clients), "clients": clients,
                              "sessions": clients, "read_mode": "confirmed", "records": 100,
                              "neighbours": neighbours,
                              "operations": {"read": read}, "timeline": timeline});
            origin("ycsb-c", rest)
        };
        let open = |rate: f64, kills: bool| {
            let read = json!({"count": 10, "latency_us": latency});
            let kill = json!({"at_s": 0.5, "what": "kill", "nodes": [2], "led": [1]});
            let rest = json!({"ops_per_s": rate, "clients": 4, "sessions": 2, "records": 100,
                              "read_mode": "ordered", "rate": rate,
                              "operations": {"read": read}, "timeline": timeline,
                              "never_invoked": if rate > 3e4 { 24_000 } else { 0 },
                              "events": if kills { vec![kill] } else { vec![] }});
            origin("retwis", rest)
        };
        let idle = json!({"sessions": 100, "percent_of_a_core": 0.784, "duration_s": 60.0});
        let file = |name: &str, text: String| (name.to_owned(), text);
        vec![
            file("a.json", multicast(1, 1, 1e5)),
            file("b.json", multicast(16, 1, 4e5) + "\n" + &multicast(1, 4, 2e4)),
            file("chaos.json", origin("chaos", chaos)),
            file("c1.json", store(1, Value::Null)),
            file("c2.json", store(16, Value::Null)),
            file(
                "c3.json",
                store(16, json!({"count": 2, "priority": "idle", "own_session": true})),
            ),
            file("idle.json", origin("idle", idle)),
            file(
                "open.json",
                [(1e4, false), (4e4, false), (2e4, true)]
                    .map(|(rate, kills)| open(rate, kills))
                    .join("\n"),
            ),
            file("notes.json", "[1, 2]".to_owned()),
            file("cut.json", "{\"workload\": ".to_owned()),
        ]
    }

    #[test]
    fn every_kind_of_report_is_shown_with_where_it_is_from() {
        let page = page(&files());
        let names: Vec<_> = page.pictures.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = [
            "latency-throughput.svg",
            "latency-throughput-p99.svg",
            "throughput-destinations.svg",
            "latency-destinations.svg",
            "distribution.svg",
            "batches-entries-per-write.svg",
            "store-sessions.svg",
            "store-latency.svg",
            "store-load.svg",
            "store-neighbours.svg",
            "store-neighbours-p99.svg",
            "timeline-chaos.svg",
            "failover-chaos.svg",
            "timeline-open.svg",
            "failover-open.svg",
            "failovers.svg",
        ];
        assert_eq!(names, wanted);
        assert_eq!(
            page.left_out.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(),
            ["notes.json", "cut.json"]
        );
        assert!(page.html.contains("skein bench multicast --clients 16"));
        assert!(page.html.contains("--clients 4 --sessions 2 --read-mode ordered "), "as was said");
        assert!(page.html.contains("<td>100 idle: 0.78 % of a core<td><td>"));
        assert!(page.html.contains("--clients 16 --neighbours 2:idle:own-session --seed 1"));
        assert!(page.html.contains("beside CPU-bound, idle priority, sessions of their own"));
        assert!(page.html.contains("skein bench idle --sessions 100 --duration 60 "));
        assert!(!page.html.contains("confirmed"), "as it is done if nobody says how");
        assert!(!page.html.contains("--clients 16 --sessions"), "each has its own");
        assert!(page.html.contains("a &lt;model&gt;") && !page.html.contains("<model>"));
        assert!(!page.html.contains("<script") && !page.html.contains("href"));
    }

    #[test]
    fn points_are_joined_as_the_load_rises_and_the_last_of_equal_ones_counts() {
        let measured = [(1, 1e5), (64, 3e5), (16, 5e5), (16, 4e5)];
        let lines: Vec<_> = measured.map(|(clients, rate)| multicast(clients, 1, rate)).into();
        let figures = figures(&source::read("a.json", &lines.join("\n")).unwrap());
        let at: Vec<_> = figures[0].plot.series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(at, [1e5, 4e5, 3e5], "with more clients than can be served throughput falls");
    }

    #[test]
    fn a_run_with_a_kill_is_no_point_and_a_saturated_one_is_crossed_out() {
        let page = page(&files());
        let picture = |name: &str| &page.pictures.iter().find(|(of, _)| of == name).unwrap().1;
        let load = picture("store-load.svg");
        let crosses = load.matches("m-7-7l14 14").count();
        assert_eq!(crosses, 2, "of 50 % and of 99 %, at the rate that was too much");
        assert!(load.contains("saturated: "));
        assert!(page.html.contains("40,000 due a second, saturated"));
        let data = page.html.split("id=\"store-load\"").nth(1).unwrap();
        let data = data.split("<h2").next().unwrap();
        assert!(data.contains("<td>10000<") && data.contains("<td>40000<"), "{data}");
        assert!(!data.contains("<td>20000<"), "{data}");
    }

    #[test]
    fn faults_are_told_in_print_with_how_long_nobody_was_answered() {
        let events = json!([{"at_s": 0.6, "what": "kill", "nodes": [1], "silence_ms": 21.5,
                             "next_write_ms": {"1": 9.5}}]);
        let timeline =
            json!({"interval_ms": 1, "ops": vec![4; 1_000], "worst_us": vec![900; 1_000]});
        let chaos = json!({"ops_per_s": 4e3, "events": events, "timeline": timeline,
                           "date": "2026-11-23T04:00:00Z", "command": "skein bench chaos --kills 1"});
        let page = page(&[("chaos.json".to_owned(), origin("chaos", chaos))]);
        let names: Vec<_> = page.pictures.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = ["timeline-chaos.svg", "failover-chaos.svg", "failover-latency-chaos.svg"];
        assert_eq!(names, wanted);
        let said =
            "kill of n1 at 0.6 s; next write of g1 after 9.5 ms; nobody was answered for 21.5 ms";
        for (name, picture) in &page.pictures {
            assert!(picture.contains(&format!(">{said}</text>")), "{name}: {picture}");
        }
        assert!(page.html.contains("<td>2026-11-23T04:00:00Z<td>chaos<td>4 × 3"), "{}", page.html);
        assert!(page.html.contains("<code>skein bench chaos --kills 1</code>"));
    }

    #[test]
    fn runs_of_two_versions_or_shapes_are_two_lines() {
        let later = |text: String| text.replace("0.1.0 (abc)", "0.1.0 (def)");
        let lines = [
            multicast(1, 1, 1e5),
            multicast(16, 1, 4e5),
            later(multicast(1, 1, 2e5)),
            later(multicast(16, 1, 5e5)),
        ];
        let figures = figures(&source::read("a.json", &lines.join("\n")).unwrap());
        let names: Vec<_> = figures[0].plot.series.iter().map(|series| &series.name[..]).collect();
        assert_eq!(names.len(), 2);
        assert!(names[0].contains("Skein 0.1.0 (abc)") && names[1].contains("Skein 0.1.0 (def)"));
    }

    #[test]
    fn stores_are_drawn_beside_the_same_neighbours() {
        let two = json!({"count": 2, "priority": "normal", "own_session": false});
        let one = |store: &str, awake: bool, neighbours: &Value, rate: f64| {
            let spread = |y: f64| json!({"median": y, "low": y / 2.0, "high": y * 2.0});
            json!({"store": store, "asked": "mixed", "clients": 32, "awake": awake,
                   "neighbours": neighbours, "ops_per_s": spread(rate), "p99_us": spread(1e3)})
        };
        let peers = json!({"peers": [
            one("redis-wait", false, &Value::Null, 6e4), one("redis-wait", false, &two, 3e4),
            one("redis-wait", true, &Value::Null, 9e4),
            one("skein", false, &Value::Null, 3e5), one("skein", false, &two, 1e5),
            one("etcd", false, &Value::Null, 1e4),
        ]});
        let figures = figures(&source::read("p.json", &origin("peers", peers.clone())).unwrap());
        let names: Vec<_> = figures.iter().map(|figure| &figure.name[..]).collect();
        assert_eq!(names, ["peers-neighbours", "peers-neighbours-p99"]);
        let series = &figures[0].plot.series;
        let names: Vec<_> = series.iter().map(|series| &series.name[..]).collect();
        let wanted = ["redis-wait", "skein"]
            .map(|store| format!("{store}, mixed, 32 clients, beside CPU-bound"));
        assert_eq!(names, wanted, "etcd was measured beside nobody");
        let points = series[0].points.iter().map(|point| [point.x, point.y]).collect::<Vec<_>>();
        assert_eq!(points, [[0.0, 6e4], [2.0, 3e4]], "cores that are kept awake are another load");
        assert!(page(&[("p.json".to_owned(), origin("peers", peers))]).html.contains("6 loads"));
    }

    #[test]
    fn nothing_measured_is_a_page_too() {
        assert!(page(&[]).html.contains("0 reports"));
    }
}
