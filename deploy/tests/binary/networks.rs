//! Clusters whose nodes reach each other by connections: on one host, and as on several.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{Sandbox, kill, until};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustix::process::Signal;

const DAY: Duration = Duration::from_hours(24);

/// Numbers that look random, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// Noise on every port, again and again: some of it begins as a greeting does, some as TLS does, and
/// some who come say nothing. `meanwhile` is called now and then.
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
            // It may have been sent away by now.
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
        sandbox.lives(0) == 2 && (0..3).all(|node| status["nodes"][node]["status"]["ready"] == true)
    });
    // It holds what was written while it was away: the others need not be there.
    kill(sandbox.pid(1).unwrap(), Signal::KILL);
    for i in 0..20 {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{i}")]).out, "after");
    }
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

/// Noise on every port, some of it in the form of a greeting; many who come and say nothing; clients
/// that are killed at whatever they are doing. Whoever means it is served all the while.
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

/// Three hosts, as far as files go: each has its own directory, and its own certificate.
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

    /// The directory of certificates of a host: the authority's certificate, and one of its own.
    fn certify(&self, host: &str, authority: &str, arguments: &[&str]) -> PathBuf {
        let (made, own) = (self.dir(authority), self.dir(&format!("{host}.pki")));
        std::fs::create_dir_all(&own).unwrap();
        if !made.exists() {
            self.sandbox.expect(0, &["pki", "init", "--out", made.to_str().unwrap()]);
        }
        let command = [&["pki"], arguments, &["--out", made.to_str().unwrap()]].concat();
        self.sandbox.expect(0, &command);
        let name = arguments.concat();
        for file in ["authority.pem", &format!("{name}.pem"), &format!("{name}.key")] {
            std::fs::copy(made.join(file), own.join(file)).unwrap();
        }
        own
    }

    /// Gives a host another certificate for `name`, that is good from one time to another.
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
        std::fs::write(own.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Starts all three, and waits until they serve. Returns how a client reaches them.
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

    /// What the node of a host has said so far.
    fn said(&self, host: &str) -> String {
        std::fs::read_to_string(self.dir(&format!("{host}.log"))).unwrap()
    }

    /// The file that all hosts share, but for where each has its certificates.
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
    // Not made twice: what the node has promised in its lives would be forgotten.
    let (dir, made) = (hosts.dir("node0"), hosts.dir("node0.toml"));
    let again = ["init", "--config", made.to_str().unwrap()];
    let (code, out) = hosts.run(dir.to_str().unwrap(), &again);
    assert!(code == Some(2) && out.contains("already"), "{out}");
    assert_eq!(hosts.run(&config, &["get", "a"]), (Some(0), "1".to_owned()));

    // A client whose certificate is of another authority, of a node's name, or not there.
    hosts.certify("client", "theirs", &["client"]);
    let (code, out) = hosts.run(&config, &["get", "a"]);
    assert!(code == Some(3) && out.contains("of another authority"), "{out}");
    std::fs::remove_file(hosts.dir("client.pki").join("client.key")).unwrap();
    let (code, out) = hosts.run(&config, &["get", "a"]);
    assert!(code == Some(3) && out.contains("client.key") && out.contains("skein pki"), "{out}");
    // One that takes it for another cluster.
    hosts.certify("client", "ours", &["client"]);
    let other = hosts.config("client", "ducks");
    let (code, out) = hosts.run(&other, &["get", "a"]);
    assert!(code == Some(3) && out.contains("lets us in: no connection to"), "{out}");
    assert!(out.contains("belongs to cluster ducks"), "{out}");
    let config = hosts.config("client", "geese");

    // A node dies and comes back, as a service manager would start it.
    hosts.nodes[0].kill().unwrap();
    hosts.nodes[0].wait().unwrap();
    assert_eq!(hosts.run(&config, &["incr", "count"]).0, Some(0));
    hosts.start(0);
    let dir = hosts.dir("node0");
    until("it is ready again", || {
        let (code, out) = hosts.run(dir.to_str().unwrap(), &["status", "--json"]);
        // One host knows of its own node alone, and does not take the others for dead.
        let here = out.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let status: serde_json::Value = serde_json::from_str(here).unwrap_or_default();
        let elsewhere = status["nodes"][1]["problem"] == "on another host";
        elsewhere && code == Some(0) && status["nodes"][0]["status"]["ready"] == true
    });
    assert_eq!(hosts.run(&config, &["get", "a"]), (Some(0), "1".to_owned()));
}

/// Noise, certificates that are good no more or not yet, and nodes that belong elsewhere: all are told
/// why they are not let in, and the cluster serves those who are.
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

    // Node 0 dies, and others come for its place, at its address: of another cluster, of another
    // authority, with another configuration, and with a certificate that is none of node 0's.
    hosts.nodes[0].kill().unwrap();
    hosts.nodes[0].wait().unwrap();
    let others = [
        ("duck", "ducks", "belongs to cluster ducks, and this is cluster geese"),
        ("foreigner", "geese", "our certificate is of another authority"),
        ("stubborn", "geese", "its configuration is not that of the others"),
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
