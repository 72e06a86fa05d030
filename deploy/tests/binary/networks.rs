//! Clusters whose nodes are connected by TCP: on one host, and as on several hosts.

use std::fs::Permissions;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{Sandbox, halt, kill, until};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustix::process::Signal;

const DAY: Duration = Duration::from_hours(24);

/// Pseudorandom numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// Repeated noise on every port: some of it begins like a handshake, some like TLS, and some
/// connections stay silent. `meanwhile` is called now and then.
fn make_noise(addresses: &[String], numbers: &mut Numbers, mut meanwhile: impl FnMut(usize)) {
    let mut silent = Vec::new();
    for round in 0..60 {
        for address in addresses {
            let mut stranger = TcpStream::connect(address).unwrap();
            let mut noise: Vec<u8> =
                (0..numbers.below(400)).map(|_| numbers.below(256) as u8).collect();
            let beginning = match round % 4 {
                0 => [&b"skeintcp"[..], &[numbers.below(5) as u8, 0, 0, 0], &[1, 0]].concat(),
                1 => [&[0x16, 3, 1, 0][..], &[numbers.below(256) as u8, 1, 0, 0]].concat(),
                _ => Vec::new(),
            };
            noise.splice(0..0, beginning);
            // The node may have closed the connection by now.
            let _ = stranger.write_all(&noise);
            silent.push(TcpStream::connect(address).unwrap());
        }
        if round % 10 == 0 {
            meanwhile(round);
        }
    }
}

#[test]
fn a_cluster_on_a_network_serves_survives_a_kill_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let up = sandbox.expect(0, &["up", "--detach", "--fabric", "tcp"]);
    assert!(
        up.out.contains("network    127.0.0.1:") && up.out.contains("not encrypted"),
        "{}",
        up.out
    );
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    for i in 0..20 {
        sandbox.expect(0, &["put", &format!("key{i}"), "before"]);
    }
    kill(sandbox.pid(0).unwrap(), Signal::KILL);
    for i in 0..20 {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{i}")]).out, "before");
        sandbox.expect(0, &["put", &format!("key{i}"), "after"]);
    }
    until("the killed node serves again", || {
        let status = sandbox.status();
        sandbox.incarnations(0) == 2
            && (0..3).all(|node| status["nodes"][node]["status"]["ready"] == true)
    });
    // It holds what was written while it was away: the others need not run.
    kill(sandbox.pid(1).unwrap(), Signal::KILL);
    for i in 0..20 {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{i}")]).out, "after");
    }
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

/// Noise on every port, some of it like a handshake; many silent connections; clients killed at any
/// moment. Correct clients are served throughout.
#[test]
fn strangers_and_clients_that_vanish_harm_nobody_else() {
    let sandbox = Sandbox::new();
    let up = sandbox.expect(0, &["up", "--detach", "--fabric", "tcp"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    let line = up.out.lines().find_map(|line| line.trim().strip_prefix("network")).unwrap();
    let addresses: Vec<_> = line
        .split(',')
        .map(|it| it.trim().to_owned())
        .filter(|it| it.starts_with("127.0.0.1:"))
        .collect();
    assert_eq!(addresses.len(), 3, "{line}");
    sandbox.expect(0, &["put", "key", "0"]);

    let mut numbers = Numbers(1);
    make_noise(&addresses, &mut numbers, |round| {
        let value = round.to_string();
        sandbox.expect(0, &["put", "key", &value]);
        assert_eq!(sandbox.expect(0, &["get", "key"]).out, value);
    });

    for client in 0..200_u64 {
        let key = format!("key{client}");
        let mut client = sandbox.command(&["put", &key, "1"]);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(numbers.below(20_000)));
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "50");
    assert_eq!(sandbox.pids(), pids, "nobody was started again");
    until("nothing is left of those who are gone", || {
        let status = sandbox.status();
        let groups = status["groups"].as_array().unwrap().iter();
        let mut replicas = groups.flat_map(|group| group["replicas"].as_array().unwrap());
        replicas.all(|replica| replica["sessions"] == 0)
    });
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

/// Three hosts as far as files are concerned: each has a directory and a certificate of its own.
struct Hosts {
    sandbox: Sandbox,
    addresses: Vec<String>,
    nodes: Vec<Child>,
}

impl Hosts {
    fn new() -> Self {
        let sockets: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = sockets.iter().map(|s| s.local_addr().unwrap().to_string()).collect();
        Self { sandbox: Sandbox::new(), addresses, nodes: Vec::new() }
    }

    fn dir(&self, host: &str) -> PathBuf {
        self.sandbox.dir.with_file_name(host)
    }

    /// The certificates of a host: the authority's certificate, and one of its own.
    fn certify(&self, host: &str, authority: &str, arguments: &[&str]) -> PathBuf {
        let (made, own) = (self.dir(authority), self.dir(&format!("{host}.pki")));
        std::fs::create_dir_all(&own).unwrap();
        if !made.exists() {
            self.sandbox.expect(0, &["pki", "init", "--out", made.to_str().unwrap()]);
        }
        let command = [&["pki"], arguments, &["--force", "--out", made.to_str().unwrap()]].concat();
        self.sandbox.expect(0, &command);
        let name = arguments.concat();
        for file in ["authority.pem", &format!("{name}.pem"), &format!("{name}.key")] {
            std::fs::copy(made.join(file), own.join(file)).unwrap();
        }
        own
    }

    /// Gives a host another certificate for `name`, valid from `from` until `to`.
    fn certify_for(&self, host: &str, name: &str, from: SystemTime, to: SystemTime) {
        let (made, own) = (self.dir("ours"), self.dir(&format!("{host}.pki")));
        let read = |file: &str| std::fs::read_to_string(made.join(file)).unwrap();
        let key = KeyPair::from_pem(&read("authority.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("authority.pem"), key).unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from.into(), to.into());
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &issuer).unwrap().pem();
        std::fs::write(own.join(format!("{name}.pem")), pem).unwrap();
        let path = own.join(format!("{name}.key"));
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    /// Starts all three nodes, and waits until they serve. Returns the configuration of a client.
    fn serve(&mut self) -> String {
        for node in 0..3 {
            let host = format!("node{node}");
            self.certify(&host, "ours", &["node", &node.to_string()]);
            self.init(&host, &self.config(&host, "geese"));
            self.start(node);
        }
        self.certify("client", "ours", &["client"]);
        let config = self.config("client", "geese");
        until("the cluster serves", || self.run(&config, &["put", "a", "1"]).0 == Some(0));
        config
    }

    fn init(&self, host: &str, config: &str) {
        let dir = self.dir(host);
        let (code, out) = self.run(dir.to_str().unwrap(), &["init", "--config", config]);
        assert_eq!(code, Some(0), "{out}");
    }

    /// The log of a host's node so far.
    fn said(&self, host: &str) -> String {
        std::fs::read_to_string(self.dir(&format!("{host}.log"))).unwrap()
    }

    /// The file that all hosts share, except for the path of each host's certificates.
    fn config(&self, host: &str, cluster: &str) -> String {
        let path = self.dir(&format!("{host}.toml"));
        let text = format!(
            "[network]\nfabric = 'tcp'\ncluster = '{cluster}'\naddresses = {:?}\n\
             encryption = 'always'\ncertificates = '{}'\n[limits]\nmemory_bytes_max = '64MiB'\n",
            self.addresses,
            self.dir(&format!("{host}.pki")).display(),
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, dir: &str, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(arguments);
        command.env("SKEIN_DIR", dir);
        command
    }

    fn run(&self, dir: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(dir, arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// The start count of a host's node.
    fn incarnations(&self, node: usize) -> String {
        let file = self.dir(&format!("node{node}")).join(format!("node{node}.incarnation"));
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Waits until the process of a node has ended. Returns its exit code.
    fn ended(&mut self, at: usize) -> Option<i32> {
        self.nodes[at].wait().unwrap().code()
    }

    /// Whether the node of a host reports that it is ready.
    fn is_ready(&self, node: usize) -> bool {
        let dir = self.dir(&format!("node{node}"));
        let (_, out) = self.run(dir.to_str().unwrap(), &["status", "--json"]);
        let here = out.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(here).unwrap_or_default();
        status["nodes"][node]["status"]["ready"] == true
    }

    fn pid(&self, at: usize) -> i32 {
        self.nodes[at].id().cast_signed()
    }

    fn start(&mut self, node: usize) {
        self.start_as(node, &format!("node{node}"));
    }

    fn start_as(&mut self, node: usize, host: &str) {
        let dir = self.dir(host);
        let log = std::fs::File::create(self.dir(&format!("{host}.log"))).unwrap();
        let mut command =
            self.command(dir.to_str().unwrap(), &["node", "--index", &node.to_string()]);
        self.nodes.push(command.stderr(log).stdout(Stdio::null()).spawn().unwrap());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

#[test]
fn three_hosts_with_certificates_serve_those_who_have_one_too() {
    let mut hosts = Hosts::new();
    let config = hosts.serve();
    // Not created twice: the promises of the node's incarnations would be forgotten.
    let (dir, made) = (hosts.dir("node0"), hosts.dir("node0.toml"));
    let again = ["init", "--config", made.to_str().unwrap()];
    let (code, out) = hosts.run(dir.to_str().unwrap(), &again);
    assert!(code == Some(2) && out.contains("already"), "{out}");
    assert_eq!(hosts.run(&config, &["get", "a"]), (Some(0), "1".to_owned()));

    // A client whose certificate is of another authority, has a node's name, or is missing.
    hosts.certify("client", "theirs", &["client"]);
    let (code, out) = hosts.run(&config, &["get", "a"]);
    assert!(code == Some(3) && out.contains("of another authority"), "{out}");
    std::fs::remove_file(hosts.dir("client.pki").join("client.key")).unwrap();
    let (code, out) = hosts.run(&config, &["get", "a"]);
    assert!(code == Some(3) && out.contains("client.key") && out.contains("skein pki"), "{out}");
    // A client that expects another cluster.
    hosts.certify("client", "ours", &["client"]);
    let other = hosts.config("client", "ducks");
    let (code, out) = hosts.run(&other, &["get", "a"]);
    assert!(code == Some(3) && out.contains("admits us: no connection to"), "{out}");
    assert!(out.contains("belongs to cluster ducks"), "{out}");
    let config = hosts.config("client", "geese");

    // A node dies and returns, as a service manager would restart it.
    hosts.nodes[0].kill().unwrap();
    hosts.nodes[0].wait().unwrap();
    assert_eq!(hosts.run(&config, &["incr", "count"]).0, Some(0));
    // The error does not advise to remove the directory, which identifies the node to the others.
    let dir = hosts.dir("node0");
    let (code, out) = hosts.run(dir.to_str().unwrap(), &["admin", "evict", "g0", "1"]);
    assert!(code == Some(3) && out.contains("starts the one of this host"), "{out}");
    assert!(!out.contains("skein down") && !out.contains("skein up"), "{out}");
    let (code, out) = hosts.run(dir.to_str().unwrap(), &["status"]);
    assert!(code == Some(1) && out.contains("dead"), "{out}");
    hosts.start(0);
    until("it is ready again", || {
        let (code, out) = hosts.run(dir.to_str().unwrap(), &["status", "--json"]);
        // A host sees only its own node, and does not take the others for dead.
        let here = out.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(here).unwrap_or_default();
        let elsewhere = status["nodes"][1]["problem"] == "on another host";
        elsewhere && code == Some(0) && status["nodes"][0]["status"]["ready"] == true
    });
    assert_eq!(hosts.run(&config, &["get", "a"]), (Some(0), "1".to_owned()));
}

/// An operation on a node of another host is refused with advice, and writes nothing that would
/// make the node look like one of this host.
#[test]
fn what_belongs_to_another_host_is_not_done_here() {
    let mut hosts = Hosts::new();
    // Addresses reserved for documentation: no host has them.
    hosts.addresses[1] = "203.0.113.1:7400".to_owned();
    hosts.addresses[2] = "203.0.113.2:7400".to_owned();
    let certificates = hosts.certify("node0", "ours", &["node", "0"]);
    let made = hosts.dir("ours").to_str().unwrap().to_owned();
    let (code, out) = hosts.run("/nowhere", &["pki", "node", "0", "--out", &made]);
    assert!(code == Some(2) && out.contains("there already") && out.contains("--force"), "{out}");
    let (_, out) = hosts.run("/nowhere", &["pki", "client", "--days", "1", "--out", &made]);
    assert!(out.contains("good for 1 day\n"), "{out}");
    let config = hosts.config("node0", "geese");
    let pki = |dir: &str, node: &str| hosts.run(dir, &["pki", "node", node, "--out", &made]);
    let (code, out) = pki(&config, "99");
    assert!(code == Some(2) && out.contains("no node 99") && out.contains("has 3"), "{out}");
    let (code, out) = pki("/nowhere", "99");
    assert!(code == Some(2) && out.contains("at most 64 nodes"), "{out}");
    let (code, out) = pki("/nowhere", "9");
    assert!(code == Some(0) && out.contains("there is no node8.pem"), "{out}");
    let (code, out) = pki(&config, "2");
    assert!(code == Some(0) && !out.contains("warning"), "{out}");
    hosts.init("node0", &config);
    let dir = hosts.dir("node0").to_str().unwrap().to_owned();

    let (code, out) = hosts.run(&dir, &["node", "--index", "2"]);
    assert!(code == Some(2) && out.contains("does not belong on this host"), "{out}");
    assert!(out.contains("203.0.113.2:7400"), "{out}");
    let key = certificates.join("node0.key");
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (code, out) = hosts.run(&dir, &["node", "--index", "0"]);
    assert!(code == Some(3) && out.contains("can be read by everybody"), "{out}");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();

    let (code, out) = hosts.run(&dir, &["admin", "replace", "n2"]);
    assert!(code == Some(2) && out.contains("does not belong on this host"), "{out}");
    assert!(out.contains("203.0.113.2:7400") && out.contains("nothing was changed"), "{out}");

    // A supervisor starts the node of its own host only.
    let (code, out) = hosts.run(&dir, &["supervise", "--detach"]);
    assert!(code == Some(0) && out.contains("n2 belongs to another host"), "{out}");
    let pid = |file: &str| -> Option<u32> {
        let text = std::fs::read_to_string(hosts.dir("node0").join(file)).unwrap_or_default();
        text.split_whitespace().nth(1).and_then(|pid| pid.parse().ok())
    };
    until("node 0 runs", || pid("node0.lock").is_some());
    // The lock may still name the process that was refused above.
    until("it says so, and takes nobody for dead", || {
        let (_, out) = hosts.run(&dir, &["status"]);
        out.contains("on another host") && !out.contains("dead")
    });
    for command in [&["kill", "n1"][..], &["transfer-leader", "g0", "--node", "1"]] {
        let (code, out) = hosts.run(&dir, &[&["admin"], command].concat());
        assert!(code == Some(3) && out.contains("belongs to another host"), "{out}");
        assert!(out.contains("203.0.113.1:7400"), "{out}");
    }
    let (code, out) = hosts.run(&config, &["status"]);
    assert!(code == Some(3) && out.contains("by which clients reach a cluster"), "{out}");
    let log = std::fs::read_to_string(hosts.dir("node0").join("supervisor.log"));
    assert_eq!(log.unwrap_or_default(), "", "nobody else's node is tried");
    let (code, out) = hosts.run(&dir, &["down", "--yes"]);
    assert_eq!(code, Some(0), "{out}");
}

/// An administrator on one host reaches the nodes of other hosts by forwarded sockets.
#[test]
fn a_group_over_several_hosts_is_led_and_recreated_by_forwarded_sockets() {
    let mut hosts = Hosts::new();
    let config = hosts.serve();
    let dir = hosts.dir("node0").to_str().unwrap().to_owned();
    let admin =
        |hosts: &Hosts, arguments: &[&str]| hosts.run(&dir, &[&["admin"], arguments].concat());
    let forward = |hosts: &Hosts, node: usize| {
        let socket = format!("node{node}.sock");
        let there = hosts.dir(&format!("node{node}")).join(&socket);
        std::os::unix::fs::symlink(there, hosts.dir("node0").join(&socket)).unwrap();
    };
    let (code, out) = admin(&hosts, &["transfer-leader", "g0", "--node", "1"]);
    assert!(code == Some(3) && out.contains("forward its admin socket"), "{out}");
    forward(&hosts, 1);
    let (code, out) = admin(&hosts, &["transfer-leader", "g0", "--node", "1"]);
    assert!(code == Some(0) && out.contains("on node 1, leads it"), "{out}");

    // All but node 0 lose their state.
    for node in [1, 2] {
        hosts.nodes[node].kill().unwrap();
        hosts.nodes[node].wait().unwrap();
    }
    for node in [1, 2] {
        hosts.start(node);
    }
    until("status says that they are lost, and exits with 1", || {
        let (code, out) = hosts.run(&dir, &["status"]);
        code == Some(1) && out.contains("g0 is LOST") && out.contains("g1 is LOST")
    });
    let recreate = |hosts: &Hosts, group: &str| admin(hosts, &["recreate", group, "--from", "n0"]);
    until("node 2 is missed", || {
        let (code, out) = recreate(&hosts, "0");
        assert_ne!(code, Some(0), "{out}");
        out.contains("node 2 belongs to another host") && out.contains("--without 2")
    });
    forward(&hosts, 2);
    for group in ["0", "1"] {
        let with = "with the state of node 0";
        until("the group is recreated", || recreate(&hosts, group).1.contains(with));
    }
    until("it serves", || hosts.run(&config, &["incr", "count"]).0 == Some(0));
}

/// Noise, certificates that have expired or are not valid yet, and nodes of other clusters: all are
/// refused with the reason, and the cluster serves its own.
#[test]
fn who_does_not_belong_to_an_encrypted_cluster_is_refused_and_harms_nobody() {
    let mut hosts = Hosts::new();
    let config = hosts.serve();
    let addresses = hosts.addresses.clone();
    make_noise(&addresses, &mut Numbers(2), |round| {
        let value = round.to_string();
        assert_eq!(hosts.run(&config, &["put", "key", &value]).0, Some(0));
        assert_eq!(hosts.run(&config, &["get", "key"]), (Some(0), value));
    });

    // Expired, or of a host whose clock is ahead.
    let now = SystemTime::now();
    let periods = [(now - 2 * DAY, now - DAY), (now + DAY, now + 2 * DAY)];
    for (from, to) in periods {
        hosts.certify_for("client", "client", from, to);
        let (code, out) = hosts.run(&config, &["get", "key"]);
        assert!(code == Some(3) && out.contains("has expired or is not valid yet"), "{out}");
        assert!(out.contains("the clock of one of the two hosts is wrong"), "{out}");
    }
    hosts.certify("client", "ours", &["client"]);
    assert_eq!(hosts.run(&config, &["get", "key"]), (Some(0), "50".to_owned()));

    // Node 0 dies, and others try to take its place at its address: of another cluster, of another
    // authority, with another configuration, and with a certificate that is not node 0's.
    hosts.nodes[0].kill().unwrap();
    hosts.nodes[0].wait().unwrap();
    let others = [
        ("duck", "ducks", "belongs to cluster ducks, and this is cluster geese"),
        ("foreigner", "geese", "our certificate is of another authority"),
        ("stubborn", "geese", "limits.memory_bytes_max is 68157440 at n0e0, and 67108864 at n"),
        ("expired", "geese", "our certificate has expired"),
    ];
    for (host, cluster, why) in others {
        let authority = if host == "foreigner" { "theirs" } else { "ours" };
        hosts.certify(host, authority, &["node", "0"]);
        if host == "expired" {
            hosts.certify_for(host, "node0", periods[0].0, periods[0].1);
        }
        let file = hosts.config(host, cluster);
        if host == "stubborn" {
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace("64MiB", "65MiB")).unwrap();
        }
        hosts.init(host, &file);
        hosts.start_as(0, host);
        until(&format!("{host} is told why it is not let in"), || hosts.said(host).contains(why));
        assert_eq!(hosts.run(&config, &["incr", "count"]).0, Some(0), "{host}");
        let mut node = hosts.nodes.pop().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }
    assert_eq!(hosts.run(&config, &["get", "count"]), (Some(0), others.len().to_string()));
    hosts.start(0);
    let dir = hosts.dir("node0");
    until("node 0 is ready again", || {
        let (_, out) = hosts.run(dir.to_str().unwrap(), &["status", "--json"]);
        let here = out.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(here).unwrap_or_default();
        status["nodes"][0]["status"]["ready"] == true
    });
    assert_eq!(hosts.run(&config, &["get", "key"]), (Some(0), "50".to_owned()));
}

/// A start that fails because of a certificate or a port has promised nothing: a cluster whose
/// nodes fail at first serves when the cause is removed.
#[test]
fn first_starts_that_fail_cost_a_new_cluster_nothing() {
    let mut hosts = Hosts::new();
    for node in 0..3 {
        let host = format!("node{node}");
        hosts.certify(&host, "ours", &["node", &node.to_string()]);
        hosts.init(&host, &hosts.config(&host, "geese"));
    }
    let key = hosts.dir("node1.pki").join("node1.key");
    let aside = key.with_extension("aside");
    std::fs::rename(&key, &aside).unwrap();
    let taken = TcpListener::bind(&hosts.addresses[2]).unwrap();
    for node in [1, 2, 1, 2] {
        hosts.start(node);
        assert_eq!(hosts.ended(hosts.nodes.len() - 1), Some(3));
        assert_eq!(
            hosts.incarnations(node),
            "0",
            "no incarnation has begun: {}",
            hosts.said(&format!("node{node}"))
        );
    }
    std::fs::rename(&aside, &key).unwrap();
    drop(taken);
    (0..3).for_each(|node| hosts.start(node));
    hosts.certify("client", "ours", &["client"]);
    let config = hosts.config("client", "geese");
    until("the cluster serves", || hosts.run(&config, &["put", "a", "1"]).0 == Some(0));
    assert_eq!(hosts.run(&config, &["get", "a"]), (Some(0), "1".to_owned()));
}

/// A host whose directory was lost and created anew is not taken for the old one, which had
/// promised to keep what was acknowledged: neither by nodes that have met the old one, nor by nodes
/// that have only heard of it. An operator makes it a new node, which receives the state.
#[test]
fn a_lost_directory_made_anew_does_not_pass_for_the_old_one() {
    let mut hosts = Hosts::new();
    let config = hosts.serve();
    until("all are ready", || (0..3).all(|node| hosts.is_ready(node)));
    // Node 2 is paused and does not have what nodes 0 and 1 acknowledge.
    halt(hosts.pid(2));
    until("x is acknowledged", || hosts.run(&config, &["put", "x", "1"]).0 == Some(0));
    hosts.nodes[1].kill().unwrap();
    hosts.nodes[1].wait().unwrap();
    std::fs::remove_dir_all(hosts.dir("node1")).unwrap();
    hosts.init("node1", &hosts.config("node1", "geese"));
    // Now node 0, which has it, is paused, and node 2 continues.
    halt(hosts.pid(0));
    kill(hosts.pid(2), Signal::CONT);
    hosts.start(1);
    assert_eq!(hosts.ended(3), Some(3), "node 1 is refused");
    let said = hosts.said("node1");
    assert!(said.contains("another identity") && said.contains("skein admin replace 1"), "{said}");
    let (code, out) = hosts.run(&config, &["get", "x", "--timeout", "2"]);
    assert_eq!(code, Some(3), "nobody says that there is no x: {out}");
    kill(hosts.pid(0), Signal::CONT);
    until("who has it says so", || hosts.run(&config, &["get", "x"]) == (Some(0), "1".to_owned()));

    // Wrong counts and the directory of another node are refused alike.
    let dir = hosts.dir("node1");
    let replace = ["admin", "replace", "n1"];
    let (code, out) = hosts.run(dir.to_str().unwrap(), &replace);
    assert!(code == Some(0) && out.contains("node 1 is a new one"), "{out}");
    hosts.start(1);
    until("node 1 has the state", || hosts.is_ready(1));
    let (code, out) = hosts.run(dir.to_str().unwrap(), &replace);
    assert!(code == Some(3) && out.contains("node 1 runs"), "{out}");
    let at = hosts.nodes.len() - 1;
    hosts.nodes[at].kill().unwrap();
    hosts.nodes[at].wait().unwrap();
    std::fs::write(dir.join("node1.incarnation"), "0\n").unwrap();
    hosts.start(1);
    let at = hosts.nodes.len() - 1;
    assert_eq!(hosts.ended(at), Some(3), "an old count");
    assert!(
        hosts.said("node1").contains("its directory is out of date"),
        "{}",
        hosts.said("node1")
    );
    let (code, out) = hosts.run(dir.to_str().unwrap(), &replace);
    assert_eq!(code, Some(0), "{out}");
    hosts.start(1);
    until("node 1 has the state again", || hosts.is_ready(1));
    // It counts: node 0 need not run.
    hosts.nodes[0].kill().unwrap();
    until("x is there", || hosts.run(&config, &["get", "x"]) == (Some(0), "1".to_owned()));
}

/// If the file of a node's identity or start count is missing or damaged, the node does not start.
/// The commands that its error names make it a new node, however far the old one had come.
#[test]
fn a_node_that_has_lost_its_count_or_its_identity_comes_back_by_the_commands_that_are_named() {
    let mut hosts = Hosts::new();
    let config = hosts.serve();
    until("all are ready", || (0..3).all(|node| hosts.is_ready(node)));
    let dir = hosts.dir("node1");
    let literal = format!("`skein --dir {} admin replace 1`", dir.display());
    let replace = |hosts: &Hosts| hosts.run(dir.to_str().unwrap(), &["admin", "replace", "n1"]);
    let stop = |hosts: &mut Hosts| {
        let node = hosts.nodes.last_mut().expect("node 1 was started last");
        node.kill().unwrap();
        node.wait().unwrap();
    };
    let refused = |hosts: &mut Hosts, why: &[&str]| {
        hosts.start(1);
        let at = hosts.nodes.len() - 1;
        assert_eq!(hosts.ended(at), Some(3), "{}", hosts.said("node1"));
        let said = hosts.said("node1");
        assert!(why.iter().all(|why| said.contains(why)), "{why:?}: {said}");
    };
    // On the host of another node nothing is done.
    let other = hosts.dir("node0");
    let (code, out) = hosts.run(other.to_str().unwrap(), &["admin", "replace", "n1"]);
    assert!(code == Some(3) && out.contains("give this command on the host of node 1"), "{out}");
    assert_eq!(std::fs::read_to_string(other.join("node1.incarnation")).unwrap(), "0\n");

    // The others have seen its second start.
    hosts.nodes[1].kill().unwrap();
    hosts.nodes[1].wait().unwrap();
    hosts.start(1);
    until("node 1 is ready in its second incarnation", || hosts.is_ready(1));
    stop(&mut hosts);
    std::fs::remove_file(dir.join("node1.incarnation")).unwrap();
    refused(&mut hosts, &["node1.incarnation", "is missing", &literal]);
    let (code, out) = replace(&hosts);
    assert!(code == Some(0) && out.contains("is not known here"), "{out}");
    assert!(out.contains("counts as started once before"), "{out}");
    refused(&mut hosts, &["start number 2 was seen before", "`skein admin replace 1`"]);
    let (code, out) = replace(&hosts);
    assert!(code == Some(0) && !out.contains("is not known here"), "{out}");
    hosts.start(1);
    until("node 1 has the state", || hosts.is_ready(1));

    // It has been replaced twice by now, which is in the file.
    stop(&mut hosts);
    std::fs::write(dir.join("node1.identity"), b"\xff garbage").unwrap();
    refused(&mut hosts, &["node1.identity", "holds no identity", &literal]);
    assert_eq!(replace(&hosts).0, Some(0));
    refused(&mut hosts, &["was replaced by another host", "`skein admin replace 1` here"]);
    assert_eq!(replace(&hosts).0, Some(0));
    hosts.start(1);
    until("node 1 has the state again", || hosts.is_ready(1));

    // The other nodes send it again what it remembered of them.
    stop(&mut hosts);
    std::fs::write(dir.join("node1.peers"), b"\xff garbage").unwrap();
    hosts.start(1);
    until("node 1 is ready without what it remembered", || hosts.is_ready(1));
    let said = hosts.said("node1");
    assert!(said.contains("node1.peers is damaged"), "{said}");
    until("it serves", || hosts.run(&config, &["get", "a"]) == (Some(0), "1".to_owned()));
}
