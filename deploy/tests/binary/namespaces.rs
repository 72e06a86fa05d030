//! Hosts that are network namespaces, joined by a switch. Their links are cut in both directions or
//! in one.
//!
//! If namespaces cannot be created, these tests print so and check nothing.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::until;

/// Hosts of the nodes. The last host runs the clients.
const NODES: usize = 3;
const CLIENT: usize = NODES;

/// Namespaces, a switch between them, and a cluster.
struct Site {
    root: tempfile::TempDir,
    nodes: Vec<Child>,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("no `ip` command: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Site {
    /// Hosts without a cluster; `None` if namespaces cannot be created.
    fn new() -> Option<Self> {
        let site = Self { root: tempfile::tempdir().unwrap(), nodes: Vec::new() };
        match Self::join_hosts() {
            Ok(()) => Some(site),
            Err(why) => {
                println!("namespaces: not run: {why}");
                None
            }
        }
    }

    fn join_hosts() -> Result<(), String> {
        let switch = Self::name("switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for host in 0..=CLIENT {
            let (name, address) = (Self::host(host), Self::address(host));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add e0 netns {name} type veth peer name p{host} netns {switch}"))?;
            ip(&format!("-n {switch} link set p{host} master br0 up"))?;
            ip(&format!("-n {name} addr add {address}/24 dev e0"))?;
            ip(&format!("-n {name} link set e0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(())
    }

    fn name(what: &str) -> String {
        format!("skein{}-{what}", std::process::id())
    }

    fn host(host: usize) -> String {
        Self::name(&host.to_string())
    }

    fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// Cuts the host's link.
    fn cut(host: usize) {
        ip(&format!("-n {} link set p{host} down", Self::name("switch"))).unwrap();
    }

    fn mend(host: usize) {
        ip(&format!("-n {} link set p{host} up", Self::name("switch"))).unwrap();
    }

    /// Drops what `from` sends to `to`, in this direction only.
    fn mute(from: usize, to: usize) {
        let (host, address) = (Self::host(from), Self::address(to));
        ip(&format!("-n {host} route add blackhole {address}/32")).unwrap();
    }

    fn unmute(from: usize, to: usize) {
        let (host, address) = (Self::host(from), Self::address(to));
        ip(&format!("-n {host} route del blackhole {address}/32")).unwrap();
    }

    /// Delays what a host sends; returns `false` if this kernel does not support that.
    fn delay(host: usize) -> bool {
        let host = Self::host(host);
        let add = ["netns", "exec", &host, "tc", "qdisc", "add", "dev", "e0", "root"];
        let netem = ["netem", "delay", "15ms", "5ms"];
        let output = Command::new("ip").args(add).args(netem).output().unwrap();
        output.status.success()
    }

    /// Resets all connections between a host and nodes, on both sides; returns `false` if this
    /// kernel does not support that.
    fn reset(host: usize) -> bool {
        let host = Self::host(host);
        let kill = ["netns", "exec", &host, "ss", "--kill", "--tcp", "--no-header"];
        let which = ["state", "established", "( sport = :7400 or dport = :7400 )"];
        let output = Command::new("ip").args(kill).args(which).output().unwrap();
        // Connections that are not reset are not listed.
        output.status.success() && !output.stdout.is_empty()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A command in a host.
    fn command(host: usize, dir: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &Self::host(host), env!("CARGO_BIN_EXE_skein")]);
        command.args(arguments).env_remove("SKEIN_LOG").env("SKEIN_DIR", dir);
        command.stdin(Stdio::null());
        command
    }

    fn run(host: usize, dir: &str, arguments: &[&str]) -> Output {
        Self::command(host, dir, arguments).output().unwrap()
    }

    /// Starts a node on each host. The hosts share a file system and hence a directory, so any of
    /// them can ask all nodes.
    fn start(&mut self) -> (String, String) {
        let (pki, config) = (self.path("pki"), self.path("skein.toml"));
        let (pki, config) = (pki.to_str().unwrap(), config.to_str().unwrap());
        let dir = self.path("cluster").to_str().unwrap().to_owned();
        let addresses: Vec<_> =
            (0..NODES).map(|host| format!("{}:7400", Self::address(host))).collect();
        let text = format!(
            "[network]\nfabric = 'tcp'\ncluster = 'geese'\naddresses = {addresses:?}\n\
             certificates = '{pki}'\n[limits]\nmemory_bytes_max = '256MiB'\n"
        );
        fs::write(config, text).unwrap();
        let done = |output: Output| assert!(output.status.success(), "{output:?}");
        done(Self::run(CLIENT, &dir, &["pki", "init", "--out", pki]));
        done(Self::run(CLIENT, &dir, &["pki", "client", "--out", pki]));
        done(Self::run(CLIENT, &dir, &["init", "--config", config]));
        for node in 0..NODES {
            let number = node.to_string();
            done(Self::run(CLIENT, &dir, &["pki", "node", &number, "--out", pki]));
            let log = File::create(self.path(&format!("node{node}.log"))).unwrap();
            let mut command = Self::command(node, &dir, &["node", "--index", &number]);
            self.nodes.push(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        }
        until("the cluster serves", || {
            Self::run(CLIENT, config, &["put", "a", "1"]).status.success()
        });
        (dir, config.to_owned())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
        for host in (0..=CLIENT).map(Self::host).chain([Self::name("switch")]) {
            // It may never have been created.
            let _ = ip(&format!("netns del {host}"));
        }
    }
}

fn nap(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// Clients work and are killed while hosts are cut off one after the other, while one host does not
/// receive from another, and while connections are reset repeatedly. In the end nothing is lost,
/// twice or out of order, and all nodes serve again.
#[test]
fn histories_hold_while_links_are_cut_and_deaf() {
    let Some(mut site) = Site::new() else { return };
    let (dir, config) = site.start();
    if !Site::delay(CLIENT) {
        println!("delay: not run: this kernel has no netem");
    }
    let workload = ["bench", "chaos", "--faults", "client-kill", "--duration", "21"];
    let rates = ["--clients", "8", "--rate", "300", "--seed", "7"];
    let mut chaos = Site::command(CLIENT, &dir, &[&workload[..], &rates].concat());
    let chaos = chaos.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for host in 0..NODES {
        nap(1_500);
        Site::cut(host);
        // Shorter than the timeout of a connection, and longer.
        nap(if host == 1 { 5_000 } else { 800 });
        Site::mend(host);
        nap(1_200);
        let next = (host + 1) % NODES;
        Site::mute(host, next);
        nap(800);
        Site::unmute(host, next);
    }
    let mut resets = 0;
    for round in 0..40 {
        resets += usize::from(Site::reset(round % (NODES + 1)));
        nap(50);
    }
    if resets == 0 {
        println!("reset storm: not run: this kernel ends no connections for others");
    }
    let ended = chaos.wait_with_output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{out}\n{err}");
    assert!(ended.status.success(), "{out}\n{err}");
    assert!(out.contains("nothing lost, nothing twice, nothing out of order"), "{out}");
    // The client's own sessions recovered each time: a cut does not end a session.
    assert!(out.contains(" 0 failed"), "{out}");
    until("all nodes are ready", || {
        let output = Site::run(CLIENT, &dir, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (0..NODES).all(|node| status["nodes"][node]["status"]["ready"] == true)
    });

    // While one host is cut off, the others continue. It catches up when it is back.
    for host in 0..NODES {
        Site::cut(host);
        until("the others go on", || {
            Site::run(CLIENT, &config, &["incr", "count"]).status.success()
        });
        Site::mend(host);
        until("it is back", || {
            let output = Site::run(CLIENT, &dir, &["status", "--json"]);
            let status: serde_json::Value =
                serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["nodes"][host]["status"]["ready"] == true
        });
    }
}
