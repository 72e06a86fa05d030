//! `skein doctor`: what this machine supports, and how to fix what it does not; or which ordering suits a load.

mod workload;

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use skein_cluster::config::{
    ClusterConfig, Draft, Footprint, SHARED_MEMORY, machine_memory, show_bytes,
};
use skein_cluster::directory::{Directory, DirectoryError};
use skein_cluster::regions::free_bytes;
use skein_fabric::adapters::{Gid, Port, Wish, adapters, choose};
use skein_multicast::protocol::tram::tree::Tree;
use skein_multicast::trees::Shape;
use skein_wal::files::{OpenError, measure};

use super::status;
use super::status_table::because;
use crate::args::Global;
use crate::exit::Exit;

/// Name of the finding about the cluster in the directory, which is no part of the machine.
const CLUSTER: &str = "cluster";
/// With fewer descriptors, a node with many sessions runs out of them.
const FILES_MIN: u64 = 1_024;
/// Default of Linux, which a node with a thousand sessions can reach.
const MAPS_MIN: u64 = 65_530;

/// Looks at this machine: what works here, and what to do about the rest
///
/// Exits with 1 if a cluster with the default configuration would not work, or if the cluster in the directory runs and
/// does not serve.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Looks at a load in place of the machine: which ordering suits it, RamCast or a tree, and which tree. FILE has what
    /// `skein bench` multicast, ycsb, bank, smallbank or retwis printed with --json
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Ok,
    /// Works, but something is slower, smaller or missing.
    Note,
    /// A cluster with the default configuration does not work, or the one that runs does not serve.
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    grade: Grade,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Times of durable appends, by their lengths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    appends: Vec<Append>,
}

/// How long durable appends of one length took.
#[derive(Debug, Serialize)]
struct Append {
    bytes: usize,
    p50_us: u64,
    p99_us: u64,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Ok, found: found.into(), advice: None, appends: Vec::new() }
    }

    fn note(self, advice: impl Into<String>) -> Self {
        Self { grade: Grade::Note, advice: Some(advice.into()), ..self }
    }

    fn problem(self, advice: impl Into<String>) -> Self {
        Self { grade: Grade::Problem, advice: Some(advice.into()), ..self }
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if let Some(file) = &self.workload {
            return workload::run(file, self.json);
        }
        let findings = [
            kernel(),
            cores(),
            memory(),
            shared_memory(),
            disk(global),
            locked_memory(),
            huge_pages(),
            open_files(),
            maps(),
            rdma(),
            cluster(global),
        ];
        let fits = |finding: &Finding| finding.grade != Grade::Problem;
        let healthy = findings.iter().all(fits);
        let machine_fits = findings.iter().filter(|it| it.name != CLUSTER).all(fits);
        let text = if self.json {
            let report = serde_json::json!({ "healthy": healthy, "findings": findings });
            format!("{report}\n")
        } else {
            table(&findings, machine_fits)
        };
        crate::output::say(text)?;
        Ok(if healthy { Exit::Ok } else { Exit::No })
    }
}

fn table(findings: &[Finding], machine_fits: bool) -> String {
    let mut text = String::new();
    for Finding { name, grade, found, advice, .. } in findings {
        let grade = match grade {
            Grade::Ok => "ok",
            Grade::Note => "note",
            Grade::Problem => "PROBLEM",
        };
        let _ = writeln!(text, "{grade:<8} {name:<14} {found}");
        if let Some(advice) = advice {
            let _ = writeln!(text, "{:24}{advice}", "");
        }
    }
    let _ = writeln!(
        text,
        "\nfabric shm (processes of this host): {}",
        if machine_fits { "works here" } else { "see above" }
    );
    text.push_str("fabric tcp (one host or several): works wherever connections do\n");
    let verbs = match (cfg!(feature = "verbs"), adapters().is_empty()) {
        (true, false) => "see above",
        (true, true) => "no device here",
        (false, _) => "not in this program: build it with `--features verbs`",
    };
    let _ = writeln!(text, "fabric verbs (RDMA): {verbs}");
    text
}

fn kernel() -> Finding {
    let about = rustix::system::uname();
    let release = about.release().to_string_lossy();
    let found = Finding::ok("kernel", format!("{} {release}", about.sysname().to_string_lossy()));
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    // Linux 5.3 introduced pidfds, by which nodes are stopped.
    if version < (Some(5), Some(3)) {
        return found.problem("skein needs Linux 5.3 or later");
    }
    found
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = usize::from(ClusterConfig::default().topology.nodes) + 1;
    let found = Finding::ok("cores", cores.to_string());
    if cores < wanted {
        return found.note(format!(
            "the engines of three nodes and a client take turns on them; with {wanted} or more each \
             has its own, and commands are faster"
        ));
    }
    found
}

fn memory() -> Finding {
    let Some(bytes) = machine_memory() else {
        return Finding::ok("memory", "unknown").note("/proc/meminfo cannot be read");
    };
    let found = Finding::ok("memory", show_bytes(bytes));
    match Draft::default().finish() {
        Err(error) => found.problem(format!("too little for a default cluster: {error}")),
        Ok(config) if config.limits == ClusterConfig::default().limits => found,
        Ok(config) => found.note(format!(
            "a node of a default cluster may hold {} here, less than elsewhere; see \
             limits.memory_bytes_max",
            show_bytes(config.limits.memory_bytes_max)
        )),
    }
}

fn shared_memory() -> Finding {
    let path = Path::new(SHARED_MEMORY);
    let Ok(about) = rustix::fs::statvfs(path) else {
        return Finding::ok("shared memory", format!("no {SHARED_MEMORY}")).note(
            "clusters use the temporary directory in its place, which may be slow: mount a tmpfs \
             there, or set node.region_root",
        );
    };
    let size = about.f_blocks.saturating_mul(about.f_frsize);
    let free = free_bytes(path).unwrap_or(0);
    let found = format!("{SHARED_MEMORY}: {} free of {}", show_bytes(free), show_bytes(size));
    let found = Finding::ok("shared memory", found);
    let needed = Footprint::of(&ClusterConfig::default());
    let enlarge = format!("enlarge it: mount -o remount,size=… {SHARED_MEMORY}");
    if free < needed.at_start() {
        let start = show_bytes(needed.at_start());
        return found.problem(format!("a default cluster needs {start} to start; {enlarge}"));
    }
    if free < needed.most() {
        let most = show_bytes(needed.most());
        return found
            .note(format!("with many sessions a default cluster grows to {most}; {enlarge}"));
    }
    found
}

/// Lengths of the appends that are measured: of a log with little and with much to write.
const APPENDS: [usize; 2] = [4 << 10, 64 << 10];
/// Writes that are under way at once, as in a node.
const WRITERS: usize = 2;
/// How long appends of each length are measured.
const APPEND_FOR: Duration = Duration::from_millis(300);

/// The disk on which `up` would keep data: whether it can, and how long it takes.
fn disk(global: &Global) -> Finding {
    let dir = std::path::absolute(global.dir()).unwrap_or_else(|_| global.dir());
    let there = dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let measured: Result<Vec<Append>, OpenError> = APPENDS
        .into_iter()
        .map(|bytes| {
            let times = measure(there, bytes, WRITERS, APPEND_FOR)?;
            let micros = |time: Duration| time.as_micros() as u64;
            Ok(Append { bytes, p50_us: micros(times.median), p99_us: micros(times.p99) })
        })
        .collect();
    let appends = match measured {
        Ok(appends) => appends,
        Err(why) => return no_appends(global, there, &why),
    };
    let each = appends.iter().map(|Append { bytes, p50_us, p99_us }| {
        format!("{} in {p50_us} µs (p99 {p99_us})", show_bytes(*bytes as u64))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let found = format!("{}: a durable append of {each}, {WRITERS} at once", there.display());
    let median = appends[0].p50_us;
    let advice = format!(
        "with durability sync a write takes about {} µs alone, mostly for two disks; many clients share a flush",
        median + median / 2 + 60
    );
    let grade = if median < SLOW_US { Grade::Ok } else { Grade::Note };
    Finding { grade, advice: Some(advice), appends, ..Finding::ok("disk", found) }
}

/// The finding of a disk on which no append can be measured.
fn no_appends(global: &Global, there: &Path, why: &OpenError) -> Finding {
    let found = Finding::ok("disk", format!("{}: no durable writes", there.display()));
    let full = matches!(why, OpenError::Io { source, .. }
        if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
    let durable = Directory::at(&global.dir())
        .and_then(|directory| directory.manifest())
        .is_ok_and(|manifest| manifest.durable);
    if full {
        let free = free_bytes(there).map_or_else(|_| "few bytes".to_owned(), show_bytes);
        let advice = format!("the disk is full, {free} are free: make room");
        return if durable {
            found.problem(
                advice
                    + "; until then the cluster there acknowledges what fits the files of its logs",
            )
        } else {
            found.note(advice + ", or a new cluster there is in memory")
        };
    }
    let cause = match why {
        OpenError::Io { source, .. } => format!("{why}: {source}"),
        _ => why.to_string(),
    };
    found.note(if durable {
        format!("the cluster there keeps its data on this disk: {cause}")
    } else {
        format!("clusters there are in memory, unless --dir names a directory on a disk: {cause}")
    })
}

/// Appends that take longer are no flash memory's, or those of a disk that others keep busy. In microseconds.
const SLOW_US: u64 = 5_000;

fn locked_memory() -> Finding {
    let limit = limit(Resource::Memlock);
    let shown = limit.map_or("unlimited".to_owned(), show_bytes);
    let found = Finding::ok("locked memory", format!("limit {shown}; only verbs need it"));
    // All shared memory that RDMA devices access is locked, at least its size at the start.
    let config = ClusterConfig::default();
    let needed = Footprint::of(&config).at_start() / u64::from(config.topology.nodes);
    if !adapters().is_empty() && limit.is_some_and(|limit| limit < needed) {
        return found.note(format!(
            "a node on verbs needs {} to start: ulimit -l unlimited, or LimitMEMLOCK=infinity",
            show_bytes(needed)
        ));
    }
    found
}

/// Huge pages, which hold the logs of clusters on networks and RDMA cards if there are any.
fn huge_pages() -> Finding {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kept = |what: &str| {
        let of_2m = "/sys/kernel/mm/hugepages/hugepages-2048kB";
        read(&format!("{of_2m}/{what}_hugepages")).trim().parse().unwrap_or(0_u64)
    };
    let (kept, free) = (kept("nr"), kept("free"));
    // The policy in force is in brackets.
    let policy = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let policy = policy.split(['[', ']']).nth(1).unwrap_or("never");
    let found = format!("{free} of {kept} kept ones are free; others are made: {policy}");
    let found = Finding::ok("huge pages", found);
    if free == 0 && policy == "never" {
        return found.note(
            "clusters on tcp and verbs work without; logs of theirs would lie in them: \
             sysctl -w vm.nr_hugepages=…, or echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
    found
}

fn open_files() -> Finding {
    let limit = limit(Resource::Nofile);
    let found =
        Finding::ok("open files", limit.map_or("no limit".into(), |l| format!("limit {l}")));
    match limit {
        Some(limit) if limit < FILES_MIN => {
            found.note(format!("many sessions want {FILES_MIN} or more: ulimit -n {FILES_MIN}"))
        }
        _ => found,
    }
}

/// The limit in force; `None` if there is none.
fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

fn maps() -> Finding {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(limit) = text.trim().parse::<u64>() else {
        return Finding::ok("memory maps", "unknown").note("vm.max_map_count cannot be read");
    };
    let found = Finding::ok("memory maps", format!("limit {limit}"));
    if limit < MAPS_MIN {
        return found
            .note(format!("many sessions want more: sysctl -w vm.max_map_count={MAPS_MIN}"));
    }
    found
}

/// Each device, its ports and their addresses, and which of them a cluster would use.
fn rdma() -> Finding {
    let adapters = adapters();
    if adapters.is_empty() {
        return Finding::ok("RDMA devices", "none; only clusters on verbs need one");
    }
    let ports = adapters.iter().flat_map(|adapter| {
        adapter.ports.iter().map(|port| {
            let Port { number, state, link_layer, rate, gids, .. } = port;
            let gids = gids.iter().map(|Gid { index, address, kind }| {
                let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
                format!("GID {index} {address}{kind}")
            });
            let gids = gids.collect::<Vec<_>>().join(", ");
            format!("{} port {number}: {state}, {link_layer}, {rate}, {gids}", adapter.name)
        })
    });
    let listed = ports.collect::<Vec<_>>().join("; ");
    match choose(&adapters, &Wish::default()) {
        Ok(choice) if cfg!(feature = "verbs") => {
            Finding::ok("RDMA devices", format!("{listed}; {choice} would be used"))
        }
        Ok(choice) => Finding::ok("RDMA devices", listed).note(format!(
            "this skein cannot use {choice}: it was not built with `--features verbs`"
        )),
        Err(why) => Finding::ok("RDMA devices", listed).note(why.to_string()),
    }
}

/// The cluster in the directory, if there is one: whether its nodes run and its groups serve, which process supervises
/// them, and, along a tree, what groups that do not serve hold up.
fn cluster(global: &Global) -> Finding {
    let found = about_cluster(global);
    let Ok(snapshot) = status::take(&global.dir()) else { return found };
    let mut advice: Vec<_> = found.advice.iter().cloned().collect();
    let silent = snapshot.nodes.iter().filter(|node| node.status.is_none() && !node.is_elsewhere());
    let silent: Vec<_> = silent.map(|node| format!("n{}", node.node)).collect();
    if !silent.is_empty() {
        let verb = if silent.len() == 1 { "does" } else { "do" };
        advice.push(format!("{} {verb} not answer: `skein status` says why", silent.join(", ")));
    }
    let held_up: Vec<_> = snapshot.held_up.iter().flatten().map(ToString::to_string).collect();
    if !held_up.is_empty() {
        advice.push(held_up.join(" ") + " `skein status` shows which replicas are missing");
    }
    let silent = snapshot.groups.iter().filter(|group| because(group).is_some());
    let silent: Vec<_> = silent.map(|group| format!("g{}", group.group)).collect();
    if !silent.is_empty() {
        let verb = if silent.len() == 1 { "does" } else { "do" };
        advice
            .insert(0, format!("{} {verb} not serve: `skein status` says why", silent.join(", ")));
        return found.problem(advice.join("; "));
    }
    if advice.is_empty() { found } else { found.note(advice.join("; ")) }
}

fn about_cluster(global: &Global) -> Finding {
    let found = |what: String| Finding::ok(CLUSTER, what);
    let manifest = Directory::at(&global.dir())
        .and_then(|directory| directory.manifest().map(|manifest| (directory, manifest)));
    let (directory, manifest) = match manifest {
        Ok(found) => found,
        Err(DirectoryError::NoCluster { dir }) => {
            return found(format!("none in {}", dir.display()));
        }
        Err(error) => return found("unknown".into()).note(error.to_string()),
    };
    let running = (0..manifest.nodes).filter(|node| directory.node(*node).is_some()).count();
    let order = manifest.tree.map_or_else(String::new, |parents| {
        let named = Tree::of(&parents).map(|tree| Shape::from(&tree));
        format!(", ordered by tram along {}", named.unwrap_or(Shape::Parents(parents)))
    });
    let nodes = format!("{}: {running} of {} nodes run{order}", manifest.cluster, manifest.nodes);
    match directory.supervisor() {
        Some(supervisor) if supervisor.restarts => {
            found(format!("{nodes}, supervised by process {}", supervisor.pid))
        }
        Some(supervisor) => found(format!("{nodes}, watched by process {}", supervisor.pid)).note(
            "a node that dies stays dead, as `up --no-restart` requested; `skein node` starts it",
        ),
        None if running == 0 && manifest.durable => found(nodes).note(
            "its data is kept: `skein up` goes on with it, and `skein down --wipe` removes it",
        ),
        None if running == 0 => {
            found(nodes).note("`skein down` removes what is left, `skein up` starts a new cluster")
        }
        None => found(nodes).note(
            "no process supervises them, and one that dies stays dead: `skein supervise --detach`",
        ),
    }
}
