//! Hosts that are network namespaces, one for each node and one for the clients, joined by a switch: so their
//! links can be cut.
//!
//! Namespaces take root and the `ip` command. Where they cannot be made, the reason is returned.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail};
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use skein_workloads::chaos::schedule::Parting;

const PORT: u16 = 7400;
/// Made so far: each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A few namespaces and a switch. They are removed when this is dropped.
pub(super) struct Hosts {
    /// What the names of all namespaces begin with.
    name: String,
    nodes: u16,
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.context("there is no `ip` command")?;
    if !output.status.success() {
        bail!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Hosts {
    /// One host for each node, and one for clients.
    pub(super) fn join(nodes: u16) -> anyhow::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let hosts = Self { name: format!("skein{}x{number}", std::process::id()), nodes };
        let switch = hosts.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add br0 type bridge"))?;
        ip(&format!("-n {switch} link set br0 up"))?;
        for host in 0..=nodes {
            let (name, address) = (hosts.host(host), Self::address(host));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add e0 netns {name} type veth peer name p{host} netns {switch}"))?;
            ip(&format!("-n {switch} link set p{host} master br0 up"))?;
            ip(&format!("-n {name} addr add {address}/24 dev e0"))?;
            ip(&format!("-n {name} link set e0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(hosts)
    }

    /// The names of the nodes' namespaces, which end with their numbers.
    pub(super) fn prefix(&self) -> String {
        format!("{}-", self.name)
    }

    /// Where the nodes listen.
    pub(super) fn addresses(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("{}:{PORT}", Self::address(node))).collect()
    }

    /// Takes this thread, and those that it starts, to the host of the clients.
    pub(super) fn enter(&self) -> anyhow::Result<()> {
        let path = format!("/var/run/netns/{}", self.host(self.nodes));
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter {path}"))
    }

    /// Parts a node from others.
    pub(super) fn part(&self, node: u16, parting: &Parting) -> anyhow::Result<()> {
        self.change(node, parting, true)
    }

    /// Joins it to them again.
    pub(super) fn mend(&self, node: u16, parting: &Parting) -> anyhow::Result<()> {
        self.change(node, parting, false)
    }

    fn change(&self, node: u16, parting: &Parting, part: bool) -> anyhow::Result<()> {
        // A route that leads nowhere: what is sent is lost, and what is heard is heard.
        let mute = |from: u16, to: u16| {
            let (host, address) = (self.host(from), Self::address(to));
            let verb = if part { "add" } else { "del" };
            ip(&format!("-n {host} route {verb} blackhole {address}/32"))
        };
        match parting {
            Parting::FromAll => {
                let to = if part { "down" } else { "up" };
                ip(&format!("-n {} link set p{node} {to}", self.switch()))
            }
            Parting::FromNode(other) => mute(node, *other).and(mute(*other, node)),
            Parting::Unheard(by) => mute(node, *by),
        }
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn host(&self, host: u16) -> String {
        format!("{}{host}", self.prefix())
    }

    fn address(host: u16) -> String {
        format!("10.77.0.{}", host + 1)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in (0..=self.nodes).map(|host| self.host(host)).chain([self.switch()]) {
            // It may never have been made.
            let _ = ip(&format!("netns del {host}"));
        }
    }
}
