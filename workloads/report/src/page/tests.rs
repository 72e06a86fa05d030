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
    let spread = |median: f64| json!({"median": median, "low": median / 2.0, "high": median * 2.0});
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
        file("c3.json", store(16, json!({"count": 2, "priority": "idle", "own_session": true}))),
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
        "throughput-clients.svg",
        "throughput-destinations.svg",
        "latency-destinations.svg",
        "batches-entries-per-write.svg",
        "store-sessions.svg",
        "store-latency.svg",
        "store-latency-p99.svg",
        "store-offered.svg",
        "store-load.svg",
        "store-neighbours.svg",
        "store-neighbours-p99.svg",
        "distribution.svg",
        "store-distribution.svg",
        "timeline-chaos.svg",
        "failover-chaos-1.svg",
        "failover-chaos-2.svg",
        "timeline-open-3.svg",
        "failover-open-3.svg",
        "failovers.svg",
    ];
    assert_eq!(names, wanted);
    assert_eq!(
        page.left_out.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(),
        ["notes.json", "cut.json"]
    );
    assert!(page.html.contains("skein bench multicast --clients 16"));
    assert!(page.html.contains("--clients 4 --sessions 2 --read-mode ordered "), "as was said");
    assert!(
        page.html
            .contains("idle: 0.78 % of a core<td>4 × 3<td class=\"text\">100 idle sessions<td>–")
    );
    assert!(page.html.contains("--clients 16 --neighbours 2:idle:own-session --seed 1"));
    assert!(page.html.contains("CPU-bound, idle priority, sessions of their own"));
    assert!(page.html.contains("skein bench idle --sessions 100 --duration 60 "));
    assert!(!page.html.contains("--read-mode confirmed"), "as it is done if nobody says how");
    assert!(!page.html.contains("--clients 16 --sessions"), "each has its own");
    assert!(page.html.contains("a &lt;model&gt;") && !page.html.contains("<model>"));
    assert!(!page.html.contains("<script") && !page.html.contains("href"));
}

#[test]
fn points_are_joined_as_the_load_rises_and_runs_that_repeat_each_other_are_one() {
    let measured = [(1, 1e5), (64, 3e5), (16, 5e5), (16, 4e5)];
    let lines: Vec<_> = measured.map(|(clients, rate)| multicast(clients, 1, rate)).into();
    let figures = figures(&source::read("a.json", &lines.join("\n")).unwrap());
    let at: Vec<_> = figures[0].plots[0].series[0].points.iter().map(|point| point.x).collect();
    assert_eq!(at, [1e5, 4e5, 3e5], "with more clients than can be served throughput falls");
    let ranges = figures[0].plots[0].series[0].points.iter().map(|point| point.range);
    assert_eq!(ranges.collect::<Vec<_>>(), [Some([2.5, 10.0]); 3], "of the latency");
}

#[test]
fn a_run_with_a_kill_is_no_point_and_a_saturated_one_is_hollow() {
    let page = page(&files());
    let picture = |name: &str| &page.pictures.iter().find(|(of, _)| of == name).unwrap().1;
    let load = picture("store-load.svg");
    let hollow = load.matches("fill=\"#fff\" stroke=").count();
    assert_eq!(hollow, 2 + 1, "p50 and p99 at the rate that was too much, and the legend's");
    assert!(load.contains("hollow sign: saturated"));
    assert!(page.html.contains("less than 95 % of what was due"), "the page states the rule");
    assert!(page.html.contains("40,000 due/s, saturated"));
    let data = page.html.split("id=\"store-load\"").nth(1).unwrap();
    let data = data.split("<h2").next().unwrap();
    assert!(data.contains("<td>10000<") && data.contains("<td>40000<"), "{data}");
    assert!(!data.contains("<td>20000<"), "{data}");
}

#[test]
fn faults_are_told_in_print_with_how_long_nobody_was_answered() {
    let events = json!([{"at_s": 0.6, "what": "kill", "nodes": [1], "silence_ms": 21.5,
                         "next_write_ms": {"1": 9.5}}]);
    let timeline = json!({"interval_ms": 1, "ops": vec![4; 1_000], "worst_us": vec![900; 1_000]});
    let chaos = json!({"ops_per_s": 4e3, "events": events, "timeline": timeline,
                       "date": "2026-11-23T04:00:00Z", "command": "skein bench chaos --kills 1"});
    let page = page(&[("chaos.json".to_owned(), origin("chaos", chaos))]);
    let names: Vec<_> = page.pictures.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = ["timeline-chaos.svg", "failover-chaos.svg", "failover-latency-chaos.svg"];
    assert_eq!(names, wanted);
    let said = "kill of n1 at 0.600 s; next write: g1 9.5 ms; no answer for 21.5 ms";
    let [overview, close_up, latency] = &page.pictures[..] else { panic!("{names:?}") };
    assert!(overview.1.contains(&format!(">{said}</text>")), "{}", overview.1);
    for (name, picture) in [close_up, latency] {
        assert!(picture.contains(">kill of n1 at 0.600 s</text>"), "{name}: {picture}");
    }
    assert!(close_up.1.contains(">g1: next write after 9.5 ms</text>"), "{}", close_up.1);
    let row = "<td>0.600<td class=\"text\">kill<td class=\"text\">n1";
    assert!(page.html.contains(row), "in a table, too");
    assert!(
        page.html.contains("<td>2026-11-23T04:00:00Z<td class=\"text\">chaos, 1 fault<td>4 × 3"),
        "{}",
        page.html
    );
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
    let names: Vec<_> = figures[0].plots[0].series.iter().map(|series| &series.name[..]).collect();
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
    let series = &figures[0].plots[0].series;
    let names: Vec<_> = series.iter().map(|series| &series.name[..]).collect();
    let wanted = ["redis-wait", "skein"].map(|store| format!("{store}, mixed"));
    assert_eq!(names, wanted, "etcd was measured beside nobody");
    let points = series[0].points.iter().map(|point| [point.x, point.y]).collect::<Vec<_>>();
    assert_eq!(points, [[0.0, 6e4], [2.0, 3e4]], "cores that are kept awake are another load");
    assert!(page(&[("p.json".to_owned(), origin("peers", peers))]).html.contains("6 loads"));
}

#[test]
fn nothing_measured_is_a_page_too() {
    assert!(page(&[]).html.contains("0 runs"));
}

#[test]
fn runs_with_an_option_that_only_the_command_tells_are_two_lines() {
    let store = |clients: u32, option: &str| {
        let read = json!({"count": 10, "latency_us": {"p50": 80.0, "p99": 200.0}});
        let command = format!("skein bench ycsb -w c --clients {clients}{option} --json");
        let rest = json!({"ops_per_s": 1e4 * f64::from(clients), "clients": clients,
                          "records": 100, "operations": {"read": read}, "command": command,
                          "timeline": {"interval_ms": 10, "ops": [1]}});
        origin("ycsb-c", rest)
    };
    let uniform = " --distribution uniform";
    let runs = [(1, ""), (4, ""), (1, uniform), (4, uniform)].map(|(n, option)| store(n, option));
    let figures = figures(&source::read("a.json", &runs.join("\n")).unwrap());
    assert_eq!(figures[0].name, "store-sessions");
    let series = &figures[0].plots[0].series;
    let names: Vec<_> = series.iter().map(|series| &series.name[..]).collect();
    assert_eq!(names, ["--distribution uniform", "all others"]);
    assert!(series.iter().all(|series| series.points.len() == 2));
}

#[test]
fn nothing_is_told_by_hovering_and_heads_have_units() {
    let html = page(&files()).html;
    assert_eq!(html.matches("<title").count(), 1, "the page's own");
    assert!(!html.contains(" title=") && !html.contains("<script"));
    for head in ["throughput (1/s)", "p99 (µs)", "ended (UTC)", "at (s)", "next write of each (ms)"]
    {
        assert!(html.contains(&format!(">{head}")), "{head}");
    }
    for head in ["latency (µs)", "throughput (messages/s)", "time since the fault (ms)"] {
        assert!(html.contains(&format!("<th>{head}")), "{head}");
    }
}

#[test]
fn numbers_of_runs_are_told_as_ranges() {
    let of = |all: &[usize]| numbers(&all.iter().copied().collect());
    assert_eq!(of(&[0, 1, 2, 6, 8, 9]), "1–3, 7, 9–10");
    assert_eq!(of(&[]), "");
}

/// The positions of all numbers in a value, as JSON pointers.
fn places_of_numbers(value: &Value, at: &str, places: &mut Vec<String>) {
    match value {
        Value::Number(_) => places.push(at.to_owned()),
        Value::Array(items) => {
            // Further elements of an array are like the first few.
            for (i, item) in items.iter().enumerate().take(3) {
                places_of_numbers(item, &format!("{at}/{i}"), places);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                places_of_numbers(item, &format!("{at}/{name}"), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn no_number_of_a_report_makes_the_page_panic() {
    let wild =
        [json!(0), json!(-1), json!(1e300), json!(5e-324), json!(u64::MAX), json!(1_u64 << 40)];
    let mut pages = 0;
    for (name, text) in files() {
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        for value in values.map_while(Result::ok) {
            let mut places = Vec::new();
            places_of_numbers(&value, "", &mut places);
            for place in places {
                for number in &wild {
                    let mut changed = value.clone();
                    *changed.pointer_mut(&place).unwrap() = number.clone();
                    let twice = format!("{changed}\n{value}");
                    let page = page(&[(name.clone(), twice)]);
                    for (picture, svg) in &page.pictures {
                        let drawn = !svg.contains("NaN") && !svg.contains("\"inf");
                        assert!(drawn, "{picture} with {number} at {place}");
                    }
                    pages += 1;
                }
            }
        }
    }
    assert!(pages > 500, "{pages}");
}

#[test]
fn reports_of_the_first_versions_are_read() {
    let spread = json!({"median": 2.0, "low": 1.0, "high": 3.0});
    let latency = json!({"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 9.0});
    let timeline = json!({"interval_ms": 10, "ops": [1, 2]});
    let kill = json!({"at_s": 0.01, "what": "kill", "nodes": [0], "next_write_ms": {"0": 4.0},
                      "recovered_ms": null});
    let first = [
        origin(
            "ycsb-a",
            json!({"ops_per_s": 1.0, "errors": 0, "records": 9, "duration_s": 1.0,
            "operations": {"read": {"count": 5, "latency_us": latency}}, "timeline": timeline,
            "errors_by_kind": {}, "bank": null, "warmup_s": 0.0, "ended_early": null}),
        ),
        origin(
            "multicast",
            json!({"command": "skein bench multicast", "placement": "threads",
            "fabric": "shm", "waiting": "busy", "destinations": 1, "payload_bytes": 64, "window": 1,
            "rate": null, "messages_per_s": spread, "p50_us": spread, "p99_us": spread,
            "cross_core_ns": null, "distribution_us": [[0.0, 1.0], [1.0, 2.0]],
            "runs": [{"errors": 2}, {"errors": 1, "ended_early": "interrupted"}]}),
        ),
        origin("chaos", json!({"ops_per_s": 1.0, "events": [kill], "timeline": timeline})),
    ];
    let read = source::read("old.json", &first.join("\n")).expect("they are reports");
    assert_eq!(read.iter().map(|it| it.errors).collect::<Vec<_>>(), [Some(0), Some(3), None]);
    assert_eq!(read[1].ended_early.as_deref(), Some("interrupted"));
    let page = page(&[("old.json".to_owned(), first.join("\n"))]);
    assert!(page.left_out.is_empty() && page.html.contains("date unknown"), "{:?}", page.left_out);
}

#[test]
fn what_was_simulated_on_other_hardware_is_another_line() {
    let on = |hardware: &str, clients: u32| {
        let mut all: Value = serde_json::from_str(&multicast(clients, 1, 1e5)).unwrap();
        all["placement"] = json!("simulated");
        all["hardware"] = json!(hardware);
        all["utilisation"] = json!({"engines": {"core": 99.0, "nic": 1.0, "link": 1.0}});
        all.to_string()
    };
    let all = [on("xl170", 1), on("xl170", 4), on("r320", 1), on("r320", 4)];
    let page = page(&[("simulated.json".to_owned(), all.join("\n"))]);
    assert!(page.left_out.is_empty(), "{:?}", page.left_out);
    for hardware in ["simulated on xl170", "simulated on r320"] {
        assert!(page.html.contains(hardware), "{hardware}");
    }
    assert!(page.html.contains("Skein, simulated") && !page.html.contains("shares the machine"));
    let beside = [simulated_and_measured("simulated"), simulated_and_measured("threads")];
    let page = crate::page::page(&[("both.json".to_owned(), beside.join("\n"))]);
    assert!(page.html.contains("Skein, measured") && page.html.contains("shares the machine"));
    assert!(page.html.contains("1 runs are simulated"));
}

fn simulated_and_measured(placement: &str) -> String {
    let mut all: Value = serde_json::from_str(&multicast(1, 1, 1e5)).unwrap();
    all["placement"] = json!(placement);
    all.to_string()
}

#[test]
fn simulated_runs_with_an_engine_for_each_group_are_joined_along_groups() {
    let on = |groups: u16| {
        let mut all: Value = serde_json::from_str(&simulated_and_measured("simulated")).unwrap();
        all["topology"]["groups"] = json!(groups);
        all["topology"]["engines"] = json!(groups);
        // The machine that simulates does not matter.
        all["machine"]["cores"] = json!(2 * groups);
        all.to_string()
    };
    let all = [on(1), on(2), on(4)];
    let page = page(&[("simulated.json".to_owned(), all.join("\n"))]);
    assert!(page.pictures.iter().any(|(name, _)| name == "throughput-groups.svg"));
}

#[test]
fn two_orderings_are_two_lines_of_one_figure() {
    let along = |text: String, tree: &str| {
        let mut report: Value = serde_json::from_str(&text).unwrap();
        report["order"] = "tram".into();
        report["tree"] = tree.into();
        report["ungated"] = (tree == "depth").into();
        report.to_string()
    };
    let loads = || [(1, 1e5), (16, 4e5)].map(|(clients, rate)| multicast(clients, 4, rate));
    let files = [
        ("compared.json".to_owned(), loads().join("\n")),
        ("breadth.json".to_owned(), loads().map(|text| along(text, "breadth")).join("\n")),
        ("depth.json".to_owned(), loads().map(|text| along(text, "depth")).join("\n")),
    ];
    let page = page(&files);
    let (_, picture) = &page.pictures[0];
    for line in ["ramcast", "tram along breadth", "tram along depth, ungated"] {
        assert!(picture.contains(line), "{line}: {picture}");
    }
    assert!(page.html.contains("multicast of 64 B to 4, tram along breadth"));
}
