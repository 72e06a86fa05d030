//! `bench` and `demo`, successful and failing.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ended, Sandbox, is_running, kill, until};

const YCSB: [&str; 7] = ["bench", "ycsb", "--records", "2000", "--warmup", "0.1", "--json"];
const BANK: [&str; 5] = ["bench", "bank", "--warmup", "0.1", "--json"];

fn start(sandbox: &Sandbox, arguments: &[&str]) -> Child {
    let mut command = sandbox.command(arguments);
    // Where a demo creates its directory.
    command.env("TMPDIR", sandbox.dir.parent().expect("a directory in another"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

fn tell(child: &Child, signal: Signal) {
    kill(child.id().try_into().expect("a process number"), signal);
}

fn end(child: Child) -> Ended {
    child.wait_with_output().expect("our child").into()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

#[test]
fn benchmarks_run_where_others_were_killed_and_leave_nothing_pending() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let a = json(&sandbox.expect(0, &[&YCSB[..], &["-w", "a", "--duration", "0.5"]].concat()).out);
    assert!(a["ops_per_s"].as_f64() > Some(0.0) && a["errors"] == 0, "{a}");
    for kind in ["read", "update"] {
        let latency = &a["operations"][kind]["latency_us"];
        let at: Vec<_> = ["p50", "p95", "p99", "p999", "max"].map(|p| latency[p].as_f64()).into();
        assert!(at[0] > Some(0.0) && at.is_sorted(), "{a}");
    }
    for killed in [&YCSB[..], &BANK[..]] {
        let letter: &[&str] = if killed == YCSB { &["-w", "e"] } else { &[] };
        let mut child = start(&sandbox, &[killed, letter, &["--duration", "60"]].concat());
        sandbox.until_under_way();
        tell(&child, Signal::KILL);
        child.wait().expect("our child");
    }
    for letter in ["d", "e", "f"] {
        let arguments = [&YCSB[..], &["-w", letter, "--duration", "0.5"]].concat();
        assert_eq!(json(&sandbox.expect(0, &arguments).out)["errors"], 0);
    }
    let bank =
        json(&sandbox.expect(0, &[&BANK[..], &["--duration", "1"]].concat()).out)["bank"].take();
    assert_eq!((&bank["final_sum"], &bank["pending"]), (&bank["expected_sum"], &Value::from(0)));
}

#[test]
fn clients_share_as_many_sessions_as_they_are_given() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let short = ["--records", "500", "--warmup", "0.1", "--duration", "0.3", "--json"];
    let ycsb = |load: &[&'static str]| [&["bench", "ycsb", "-w", "a"], load, &short].concat();
    let shared = ["--clients", "65", "--sessions", "2"];
    let report = json(&sandbox.expect(0, &ycsb(&shared)).out);
    let found = ["clients", "sessions", "errors"].map(|name| report[name].as_u64());
    assert_eq!(found, [Some(65), Some(2), Some(0)], "{report}");
    #[rustfmt::skip]
    let refused = [
        (["--clients", "65", "--sessions", "1"], "give 2 sessions at least"),
        (["--clients", "8", "--sessions", "9"],  "give 8 at most"),
    ];
    for (load, why) in refused {
        let ended = sandbox.expect(2, &ycsb(&load));
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    let bank =
        ["bench", "bank", "--sessions", "3", "--warmup", "0.1", "--duration", "0.5", "--json"];
    assert_eq!(json(&sandbox.expect(0, &bank).out)["sessions"], 3);
}

#[test]
fn an_interrupted_benchmark_and_one_whose_cluster_stops_report_what_they_have() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let long = [&YCSB[..], &["-w", "a", "--duration", "60"]].concat();

    let child = start(&sandbox, &long);
    sandbox.until_under_way();
    tell(&child, Signal::INT);
    let ended = end(child);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let report = json(&ended.out);
    assert_eq!((&report["ended_early"], &report["errors"]), (&"interrupted".into(), &0.into()));

    let child = start(&sandbox, &long);
    sandbox.until_under_way();
    sandbox.expect(0, &["down", "--yes"]);
    let ended = end(child);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let report = json(&ended.out);
    assert!(report["errors_by_kind"]["unavailable"].as_u64() > Some(0), "{report}");
    // Nodes end one after the other, and a client may notice after the first.
    let why = report["ended_early"].as_str().unwrap_or_default();
    assert!(why.contains("stopped") || why.contains("not running"), "{report}");
}

#[test]
fn what_an_idle_cluster_takes_is_counted_of_every_process() {
    let sandbox = Sandbox::new();
    let ended = sandbox.expect(3, &["bench", "idle"]);
    assert!(ended.err.contains("skein up"), "{}", ended.err);
    sandbox.expect(0, &["up", "--detach"]);
    let idle = ["bench", "idle", "--sessions", "3", "--warmup", "0"];
    let report =
        json(&sandbox.expect(0, &[&idle[..], &["--duration", "1", "--json"]].concat()).out);
    let processes = report["processes"].as_array().expect("a list");
    let roles: Vec<_> = processes.iter().map(|process| process["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["node 0", "node 1", "node 2", "supervisor", "sessions"]);
    let ran = |process: &Value| process["ran_ms"].as_f64().expect("a number");
    assert!(processes[..3].iter().all(|node| ran(node) > 0.0), "they beat: {report}");
    let all: f64 = processes.iter().map(ran).sum();
    let share = all / (report["duration_s"].as_f64().unwrap() * 10.0);
    assert!((share - report["percent_of_a_core"].as_f64().unwrap()).abs() < 1e-6, "{report}");
    assert_eq!(sandbox.expect(0, &["scan"]).out, "", "nothing is left of it");
    assert!(sandbox.expect(2, &[&idle[..], &["--duration", "0"]].concat()).err.contains("above 0"));

    let child = start(&sandbox, &idle);
    until("it listens to signals", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
        let caught = caught.and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
        caught >> (Signal::INT.as_raw() - 1) & 1 == 1
    });
    tell(&child, Signal::INT);
    let ended = end(child);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(
        ended.out.contains("% of a core") && ended.out.contains("interrupted"),
        "{}",
        ended.out
    );
}

#[test]
fn an_open_loop_goes_on_when_a_leader_is_killed_and_its_history_is_right() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let smallbank = ["bench", "smallbank", "--customers", "500", "--clients", "16", "--json"];
    let loads =
        [&smallbank[..], &["bench", "retwis", "--records", "500", "--clients", "16", "--json"]];
    for load in loads {
        let history = format!("{}.jsonl", load[1]);
        let history = sandbox.dir.parent().expect("a directory in another").join(history);
        let history = history.to_str().expect("text");
        let times = ["--warmup", "0.2", "--duration", "2", "--rate", "200", "--kill", "1"];
        let arguments = [load, &times, &["--history", history]].concat();
        let report = json(&sandbox.expect(0, &arguments).out);
        assert_eq!((&report["errors"], &report["rate"]), (&0.into(), &200.0.into()), "{report}");
        let event = &report["events"][0];
        assert!(event["at_s"].as_f64().is_some_and(|at| at >= 0.9), "{event}");
        assert_eq!((&event["what"], &event["nodes"][1]), (&"kill".into(), &Value::Null));
        assert!(report["ops_per_s"].as_f64() > Some(0.0), "{report}");
        sandbox.expect(0, &["check", history]);
        until("the node is back", || sandbox.run(&["status"]).code == Some(0));
    }
    let rates = ["--duration", "0.2", "--warmup", "0", "--rate", "50,100"];
    let ended = sandbox.expect(0, &[&smallbank[..], &rates].concat());
    assert_eq!(
        ended.out.lines().map(|line| json(line)["rate"].as_f64()).collect::<Vec<_>>(),
        [Some(50.0), Some(100.0)]
    );
}

#[test]
fn the_multicast_is_measured_wherever_its_replicas_run() {
    let sandbox = Sandbox::new();
    let multicast =
        ["bench", "multicast", "--runs", "2", "--warmup", "0.1", "--json", "--duration"];
    // A busy machine may need longer until there is something to measure.
    let measure = |arguments: &[&str]| {
        let mut tries = ["0.2", "2", "20"].into_iter().map(|duration| {
            let ended = sandbox.run(&[&multicast[..], &[duration], arguments].concat());
            let nothing = ended.code == Some(1) && ended.out.contains("nothing was measured");
            assert!(nothing || ended.code == Some(0), "{}\n{}", ended.out, ended.err);
            (nothing, json(&ended.out))
        });
        tries.find(|(nothing, _)| !nothing).expect("something is measured in 20 s").1
    };
    let networks = [&["--fabric", "tcp"][..], &["--fabric", "tls"]];
    for placement in [&["--processes"][..], &["--threads"]].into_iter().chain(networks) {
        for load in
            [&["--groups", "3", "--dst", "2", "--clients", "4"][..], &["--open-loop", "500"]]
        {
            let report = measure(&[placement, load].concat());
            assert_eq!(report["runs"].as_array().map(Vec::len), Some(2), "{report}");
            assert!(report["messages_per_s"]["low"].as_f64() > Some(0.0), "{report}");
            let writes = report["batches"]["entries_per_write"].as_array();
            assert!(writes.is_some_and(|sizes| sizes[0].as_u64() > Some(0)), "{report}");
            let at = ["p50", "p95", "p99"].map(|at| report[format!("{at}_us")]["median"].as_f64());
            assert!(at[0] > Some(0.0) && at.is_sorted(), "{report}");
        }
    }
    let csv = ["bench", "multicast", "--runs", "2", "--warmup", "0", "--csv", "--duration"];
    let mut tries = ["0.1", "1", "10"].iter().map(|it| sandbox.run(&[&csv[..], &[it]].concat()));
    let ended = tries.find(|ended| ended.code == Some(0)).expect("something is measured in 10 s");
    assert_eq!(ended.out.lines().count(), 3, "{}", ended.out);
}

/// In virtual time a run takes moments.
#[test]
fn the_multicast_is_simulated_on_hardware_that_is_not_here() {
    let sandbox = Sandbox::new();
    let simulated = ["bench", "multicast", "--simulated", "--duration", "0.001", "--seed", "1"];
    let measure = |more: &[&str]| {
        let ended = sandbox.expect(0, &[&simulated[..], &["--json", "--runs", "1"], more].concat());
        let report = json(&ended.out);
        assert_eq!((&report["placement"], &report["good"]), (&"simulated".into(), &true.into()));
        [&report["p50_us"], &report["messages_per_s"]].map(|it| it["median"].as_f64().unwrap())
    };
    let [one, four] = ["1", "4"].map(|groups| measure(&["--groups", groups]));
    // Three sequential writes, to the leader, to a follower and back, of 1.7 µs each, plus
    // overhead; more if groups must agree.
    assert!((5.1..20.0).contains(&one[0]) && four[0] > one[0], "{one:?}, {four:?}");
    assert!(measure(&["--clients", "16"])[1] > 2.0 * one[1]);
    sandbox.expect(2, &["bench", "multicast", "--simulated", "--threads"]);
}

#[test]
fn reports_make_a_page() {
    let sandbox = Sandbox::new();
    let reports = sandbox.dir.parent().expect("a directory in another").join("reports");
    let named = reports.to_str().expect("text");
    let ended = sandbox.expect(2, &["report", named]);
    assert!(ended.err.contains("cannot read the directory"), "{}", ended.err);
    std::fs::create_dir(&reports).expect("a directory");
    std::fs::write(reports.join("noise.json"), "{}").expect("a directory");
    let ended = sandbox.expect(2, &["report", named]);
    assert!(ended.err.contains("noise.json is left out"), "{}", ended.err);
    for clients in ["1", "4"] {
        let load = ["--runs", "1", "--duration", "0.1", "--clients", clients, "--json"];
        let report = sandbox.expect(0, &[&["bench", "multicast"], &load[..]].concat()).out;
        std::fs::write(reports.join(format!("{clients}.json")), report).expect("a directory");
    }
    let ended = sandbox.expect(1, &["report", named]);
    assert!(ended.err.contains("noise.json is left out"), "the rest is shown: {}", ended.err);
    std::fs::remove_file(reports.join("noise.json")).expect("it is there");
    sandbox.expect(0, &["report", named, "--svg", named]);
    let page = std::fs::read_to_string(reports.join("report.html")).expect("it was written");
    assert!(page.contains("latency against throughput") && page.contains("--clients 4"), "{page}");
    assert!(page.contains("1 to 4 clients"), "one line joins both: {page}");
    assert!(reports.join("latency-throughput.svg").exists());
    let wild = r#"{"workload": "chaos", "skein": "0", "machine": {"cores": 1, "model": "m"}, "seed": 1,
        "clients": 1, "topology": {"nodes": 3, "groups": 1, "replicas": 3, "engines": 1}, "ops_per_s": 1,
        "events": [], "timeline": {"interval_ms": 0, "ops": [1]}}"#;
    std::fs::write(reports.join("wild.json"), wild).expect("a directory");
    let ended = sandbox.expect(1, &["report", named]);
    assert!(ended.err.contains("wild.json is left out: ") && ended.err.contains("interval_ms"));
}

#[test]
fn what_cannot_be_measured_is_said() {
    let sandbox = Sandbox::new();
    let ended = sandbox.expect(3, &["bench", "ycsb", "-w", "a"]);
    assert!(ended.err.contains("skein up") && ended.out.is_empty(), "{}", ended.err);
    for (arguments, wanted) in [
        (&["ycsb", "-w", "g"][..], "a, b, c, d, e and f"),
        (&["ycsb", "-w", "a", "--clients", "0"], "from 1 to 1024"),
        (&["ycsb", "-w", "a", "--duration", "0"], "measures nothing"),
        (&["ycsb", "-w", "a", "--duration", "nan"], "a number of seconds"),
        (&["bank", "--accounts", "1"], "from 2"),
        (
            &["bank", "--accounts", "8", "--hot", "9"],
            "--hot 9 is more than there are: --accounts 8",
        ),
        (&["multicast", "--dst", "2"], "more than the groups"),
        (&["multicast", "--replicas", "2"], "replicas = 2"),
        (&["multicast", "--payload", "5000000"], "too long"),
        (&["multicast", "--open-loop", "0"], "due per second"),
    ] {
        let ended = sandbox.expect(2, &[&["bench"], arguments].concat());
        assert!(ended.err.contains(wanted), "{arguments:?}: {}", ended.err);
    }
    sandbox.expect(0, &["up", "--detach"]);
    let ended = sandbox.expect(2, &["bench", "bank", "--accounts", "129"]);
    assert!(ended.err.contains("limits.transaction_keys_max"), "{}", ended.err);
}

#[test]
fn a_demo_that_is_stopped_leaves_nothing_not_even_of_one_that_was_killed() {
    let sandbox = Sandbox::new();
    let root = sandbox.dir.parent().expect("a directory in another").to_owned();
    let files = || std::fs::read_dir(&root).expect("a directory").count();
    let sockets = || {
        let entries = std::fs::read_dir(&root).expect("a directory").flatten();
        entries.filter(|demo| demo.path().join("node2.sock").exists()).count()
    };
    let mut killed = start(&sandbox, &["demo"]);
    until("the demo's nodes listen", || sockets() == 1);
    tell(&killed, Signal::KILL);
    killed.wait().expect("our child");
    assert_eq!(files(), 1);
    until("its nodes are gone", || sockets() == 0);

    let stopped = start(&sandbox, &["demo", "--json"]);
    until("the next demo's nodes listen", || sockets() == 1);
    let dir =
        std::fs::read_dir(&root).expect("a directory").flatten().next().expect("the demo's").path();
    let demo = ["status", "--json", "--dir", dir.to_str().expect("text")];
    until("its clients have come", || {
        let status: Value = serde_json::from_str(&sandbox.run(&demo).out).unwrap_or_default();
        status["groups"][0]["replicas"][0]["sessions"].as_u64() > Some(0)
    });
    tell(&stopped, Signal::INT);
    let ended = end(stopped);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let findings = json(&ended.out);
    assert_eq!((&findings["interrupted"], &findings["good"]), (&true.into(), &false.into()));
    assert_eq!(findings["problems"], Value::Array(Vec::new()));
    assert_eq!(files(), 0);
}

#[test]
fn clients_killed_with_hundreds_of_sessions_hold_nobody_up() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", "8"]);
    sandbox.expect(0, &[&YCSB[..], &["-w", "a", "--duration", "0.1"]].concat());
    let bystander = [&BANK[..], &["--clients", "4", "--readers", "1", "--duration", "8"]].concat();
    let bystander = start(&sandbox, &bystander);
    let long = &["--no-load", "--duration", "60", "--clients"];
    let ycsb = |letter, clients| [&YCSB[..], &["-w", letter], long, &[clients]].concat();
    let large = sandbox.dir.parent().expect("a directory in another").join("large.json");
    let put = |i| serde_json::json!({"put": format!("large{i}"), "value": "z".repeat(1_000_000)});
    let operations = (0..4).map(put).collect::<Vec<_>>();
    let text = serde_json::json!({ "then": operations }).to_string();
    std::fs::write(&large, text).expect("a directory");
    let large = vec!["txn", large.to_str().expect("text")];
    for round in 0..40 {
        let killed = [&ycsb("a", "300"), &ycsb("e", "100"), &large, &large];
        let mut children: Vec<_> = killed.map(|arguments| start(&sandbox, arguments)).into();
        thread::sleep(Duration::from_millis(10 + round * 61 % 170));
        for child in &mut children {
            child.kill().expect("our child");
            child.wait().expect("our child");
        }
    }
    let report = json(&end(bystander).out);
    assert_eq!((&report["errors"], &report["bank"]["pending"]), (&0.into(), &0.into()), "{report}");
    until("nothing is pending", || {
        let status = sandbox.status();
        let groups = status["groups"].as_array().expect("groups").iter();
        let mut replicas = groups.flat_map(|group| group["replicas"].as_array().expect("replicas"));
        replicas.all(|replica| replica["pending"] == 0 && replica["sessions"] == 0)
    });
}

/// The neighbours that the process `parent` started, with their scheduling policies and sessions.
fn neighbours_of(parent: u32) -> Vec<(i32, u32, i32)> {
    let all = fs::read_dir("/proc").expect("a list of processes").flatten();
    let neighbour = |pid: i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let line: Vec<_> = line.split('\0').collect();
        let ours = line.windows(3).any(|words| {
            words[0] == "neighbour" && words[1] == "--with-parent" && words[2] == parent.to_string()
        });
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok().filter(|_| ours)?;
        // From the state on, which follows the name in parentheses.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((pid, fields[38].parse().ok()?, fields[3].parse().ok()?))
    };
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(neighbour).collect()
}

#[test]
fn neighbours_compute_beside_a_benchmark_and_end_with_it() {
    const SCHED_IDLE: u32 = 5;
    let sandbox = Sandbox::new();
    let multicast = ["bench", "multicast", "--runs", "1", "--warmup", "0.1", "--json"];
    let measured = ["--duration", "0.3", "--neighbours", "1:nice"];
    let report = json(&sandbox.expect(0, &[&multicast[..], &measured].concat()).out);
    let nice = serde_json::json!({"count": 1, "priority": "nice", "own_session": false});
    assert_eq!(report["neighbours"], nice);

    let for_long = ["--duration", "600", "--neighbours", "2:idle:own-session"];
    let mut child = start(&sandbox, &[&multicast[..], &for_long].concat());
    let all_idle = |all: &[(i32, u32, i32)]| {
        all.len() == 2
            && all.iter().all(|(pid, policy, session)| *policy == SCHED_IDLE && session == pid)
    };
    until("two neighbours compute", || all_idle(&neighbours_of(child.id())));
    let pids: Vec<_> = neighbours_of(child.id()).into_iter().map(|(pid, ..)| pid).collect();
    child.kill().expect("our child");
    child.wait().expect("our child");
    until("they have ended", || pids.iter().all(|pid| !is_running(*pid)));

    let ended = sandbox.expect(2, &["bench", "ycsb", "-w", "a", "--neighbours", "2:lazy"]);
    assert!(ended.err.contains("4:idle:own-session"), "{}", ended.err);
}
