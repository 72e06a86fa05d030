//! A directory for a test's cluster, and the binary that runs it. Nothing is left, whatever happens
//! to the test.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skein_node::admin::is_paused;

/// Timeout of what takes milliseconds, on a busy machine.
const LONG_ENOUGH: Duration = Duration::from_mins(1);

/// Options of `up` that set nothing: with these alone, it takes the settings of a cluster that exists.
const NO_SETTINGS: [&str; 3] = ["--detach", "--no-restart", "--accept-lost-disks"];

pub(crate) struct Sandbox {
    root: tempfile::TempDir,
    pub(crate) dir: PathBuf,
    /// How durable a cluster is for which a test does not say it.
    durability: Option<&'static str>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::with_dir("cluster")
    }

    /// The cluster's directory is at `path` in a temporary one. It is not created.
    pub(crate) fn with_dir(path: impl AsRef<Path>) -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let dir = root.path().join(path);
        // The disk of the temporary directory differs from machine to machine.
        Self { root, dir, durability: Some("memory") }
    }

    /// The cluster's directory is at `path`, and the cluster as durable as the command chooses.
    pub(crate) fn as_chosen(path: impl AsRef<Path>) -> Self {
        let mut sandbox = Self::with_dir(path);
        sandbox.durability = None;
        sandbox
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skein"));
        command.args(arguments).env_remove("SKEIN_LOG").env("SKEIN_DIR", &self.dir);
        if let (Some("up"), Some(durability)) = (arguments.first().copied(), self.durability)
            && !arguments.contains(&"--durability")
        {
            command.args(["--durability", durability]);
        }
        // `up` without options takes the settings of a cluster that exists. With some, it takes defaults for the others.
        let sets = !self.dir.join("cluster.json").exists()
            || arguments.iter().any(|it| it.starts_with("--") && !NO_SETTINGS.contains(it));
        let up = arguments.first() == Some(&"up");
        if up && sets && !names_order(arguments) && along_a_tree() {
            command.args(["--order", "tram", "--tree", "depth"]);
        }
        command.stdin(Stdio::null()).current_dir(self.root.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().expect("the binary runs").into()
    }

    /// Runs a command that must exit with `code`.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments);
        let Ended { out, err, .. } = &ended;
        assert_eq!(ended.code, Some(code), "skein {arguments:?}\n{out}\n{err}");
        ended
    }

    /// Writes a configuration file. Returns its path.
    pub(crate) fn config(&self, text: &str) -> String {
        let path = self.root.path().join("skein.toml");
        fs::write(&path, text).expect("the temporary directory can be written");
        path.to_str().expect("its name is text").to_owned()
    }

    /// Writes a configuration whose shared memory is separate from that of other tests, whose
    /// clusters remove memory that no process holds.
    pub(crate) fn memory_apart(&self) -> String {
        let root = self.dir.with_file_name("memory");
        fs::create_dir(&root).expect("the temporary directory can be written");
        self.config(&format!("[node]\nregion_root = '{}'\n", root.display()))
    }

    /// Starts `up` in the foreground, and waits until it reports that the cluster is ready.
    pub(crate) fn up_in_foreground(&self, arguments: &[&str]) -> Child {
        let arguments = [&["up"], arguments].concat();
        let mut command = self.command(&arguments);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut up = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let mut out = BufReader::new(up.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("text");
        assert!(line.contains("is ready"), "{line}");
        // It prints more, and would notice a closed pipe.
        std::thread::spawn(move || io::copy(&mut out, &mut io::sink()));
        up
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"]).out).expect("status prints JSON")
    }

    pub(crate) fn manifest(&self) -> Option<Value> {
        let text = fs::read_to_string(self.dir.join("cluster.json")).ok()?;
        Some(serde_json::from_str(&text).expect("the manifest is JSON"))
    }

    /// Directory of the cluster's shared memory.
    pub(crate) fn regions(&self) -> PathBuf {
        self.manifest().expect("a cluster")["regions"].as_str().expect("a path").into()
    }

    /// The processes of the nodes.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let nodes =
            self.manifest().map_or(0, |manifest| manifest["nodes"].as_u64().expect("a number"));
        (0..nodes as u16).filter_map(|node| self.pid(node)).collect()
    }

    pub(crate) fn admin(&self, node: u16) -> UnixStream {
        let socket = UnixStream::connect(self.dir.join(format!("node{node}.sock")));
        let socket = socket.expect("the node listens");
        socket.set_read_timeout(Some(LONG_ENOUGH)).expect("a time");
        socket
    }

    /// The process of a node.
    pub(crate) fn pid(&self, node: u16) -> Option<i32> {
        let text = fs::read_to_string(self.dir.join(format!("node{node}.lock"))).ok()?;
        text.trim().strip_prefix("node ")?.parse().ok()
    }

    /// Whether the process of a node runs.
    pub(crate) fn runs(&self, node: u16) -> bool {
        self.pid(node).is_some_and(is_running)
    }

    /// The supervisor's process, if there is one.
    pub(crate) fn supervisor(&self) -> Option<i32> {
        let text = fs::read_to_string(self.dir.join("lock")).ok()?;
        let pid = text.trim().strip_prefix("supervisor ")?.parse().ok()?;
        is_running(pid).then_some(pid)
    }

    /// Start count of a node.
    pub(crate) fn incarnations(&self, node: u16) -> u32 {
        let text = fs::read_to_string(self.dir.join(format!("node{node}.incarnation")));
        text.expect("a cluster").trim().parse().expect("a number")
    }

    /// The sum of a field, such as `sessions`, over all replicas; 0 if none reports it.
    pub(crate) fn sum(&self, field: &str) -> u64 {
        let status = serde_json::from_str(&self.run(&["status", "--json"]).out);
        let status: Value = status.unwrap_or_default();
        let groups = status["groups"].as_array().into_iter().flatten();
        let replicas = groups.flat_map(|group| group["replicas"].as_array().into_iter().flatten());
        replicas.filter_map(|replica| replica[field].as_u64()).sum()
    }

    /// Waits until a load that was just started is in progress: until more was delivered than its
    /// records take, of which there may be 2000, at three replicas each.
    #[track_caller]
    pub(crate) fn until_under_way(&self) {
        let before = self.sum("delivered");
        until("a load is under way", || {
            self.sum("sessions") > 0 && self.sum("delivered") > before + 10_000
        });
    }

    /// The processes that were started for the directory, whoever started them, with these words among their arguments.
    fn processes(&self, words: &[&str]) -> Vec<i32> {
        let dir = self.dir.to_str().expect("its name is text");
        let number = |process: fs::DirEntry| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let has = |word: &str| line.split(|byte| *byte == 0).any(|it| it == word.as_bytes());
            let ours = has(dir) && words.iter().all(|word| has(word));
            process.file_name().to_str()?.parse().ok().filter(|_| ours)
        };
        fs::read_dir("/proc").expect("it is there").flatten().filter_map(number).collect()
    }

    /// Waits until no process for the directory is left, whoever started it.
    #[track_caller]
    pub(crate) fn until_deserted(&self) {
        until("all processes of the cluster have ended", || self.processes(&[]).is_empty());
    }

    /// Kills all nodes, after the supervisor that would restart them: also one that it has just started.
    pub(crate) fn kill(&self) {
        if let Some(supervisor) = self.supervisor() {
            kill(supervisor, Signal::KILL);
            until("the supervisor is gone", || !is_running(supervisor));
        }
        self.nodes().into_iter().for_each(|node| kill(node, Signal::KILL));
    }

    /// The processes of nodes that run: those that were started for the directory, and those that hold its locks.
    fn nodes(&self) -> Vec<i32> {
        let mut nodes = self.processes(&["node"]);
        nodes.extend(self.pids().into_iter().filter(|pid| is_running(*pid)));
        nodes
    }

    /// The same, as a loss of power would. Returns when they are gone.
    #[track_caller]
    pub(crate) fn kill_all(&self) {
        self.kill();
        until("all nodes are gone", || self.nodes().is_empty());
    }

    /// Checks that no file, process or byte of a cluster is left.
    #[track_caller]
    pub(crate) fn check_clean(&self, regions: &Path, pids: &[i32]) {
        assert!(!self.dir.exists(), "{} is left", self.dir.display());
        assert!(!regions.exists(), "{} is left", regions.display());
        for pid in pids {
            assert!(!is_running(*pid), "process {pid} is left");
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let Some(manifest) = self.manifest() else { return };
        let processes = self.supervisor().into_iter().chain(self.pids());
        for pid in processes.filter(|pid| is_running(*pid)) {
            kill(pid, Signal::KILL);
        }
        self.run(&["down", "--yes"]);
        if let Some(regions) = manifest["regions"].as_str() {
            let _ = fs::remove_dir_all(regions);
        }
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Whether the arguments of a command, or the configuration that they name, say how a cluster is ordered.
fn names_order(arguments: &[&str]) -> bool {
    let configs = arguments.windows(2).filter(|pair| pair[0] == "--config");
    let mut texts = configs.filter_map(|pair| fs::read_to_string(pair[1]).ok());
    let named = ["--order", "--tree"].iter().any(|option| arguments.contains(option));
    named || texts.any(|text| text.contains("[order]"))
}

/// Whether clusters for which a test does not say it are ordered along a chain of their groups: with
/// `SKEIN_ORDERING=tram`.
fn along_a_tree() -> bool {
    match std::env::var("SKEIN_ORDERING").as_deref() {
        Ok("tram") => true,
        Ok("ramcast") | Err(_) => false,
        Ok(other) => panic!("SKEIN_ORDERING={other}: use ramcast or tram"),
    }
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    // The process may have ended meanwhile.
    let _ = kill_process(Pid::from_raw(pid).expect("a process number"), signal);
}

/// Pauses a process and waits until all its threads have stopped: a signal takes a moment to reach
/// running threads.
pub(crate) fn halt(pid: i32) {
    kill(pid, Signal::STOP);
    until("a stopped process stands still", || is_paused(pid.cast_unsigned()));
}

/// Whether it is a process of this binary that has not ended completely: while its first thread is
/// a zombie, other threads may still hold its locks.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat.contains("(skein)") && (!stat.contains(") Z ") || threads() > 1)
}

#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG_ENOUGH;
    while !holds() {
        assert!(Instant::now() < deadline, "not in {LONG_ENOUGH:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
