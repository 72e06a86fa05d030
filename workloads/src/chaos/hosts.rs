//! Hosts that are network namespaces, one per node and one for the clients, joined by a switch, so
//! that their links can be cut.
//!
//! Namespaces require root and the `ip` command. If they cannot be created, the reason is returned.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::schedule::Parting;

const PORT: u16 = 7400;
/// Number of sites created so far, which makes names unique.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Failures to create, enter or partition hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostsError {
    /// Install `ip`.
    #[error("there is no `ip` command")]
    NoCommand(#[source] io::Error),
    /// `ip` refuses, most likely because it requires root.
    #[error("`ip {arguments}`: {said}")]
    Refused {
        /// Arguments of `ip`.
        arguments: String,
        /// Its error output.
        said: String,
    },
    /// This thread cannot enter a host.
    #[error("cannot {attempt} {}", namespace.display())]
    Entry {
        /// The step that failed.
        attempt: &'static str,
        namespace: PathBuf,
        source: io::Error,
    },
}

/// Namespaces and a switch. They are removed on drop.
pub struct Hosts {
    /// Prefix of the names of all namespaces.
    name: String,
    nodes: u16,
    cuts: Mutex<Cuts>,
}

/// A cut between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    /// A host's link to the switch.
    Link(u16),
    /// The route from the first host to the second drops packets. The other direction stays open.
    Way(u16, u16),
}

impl Cut {
    /// The cuts of a partition of `node`.
    fn of(node: u16, parting: &Parting) -> Vec<Self> {
        match *parting {
            Parting::FromAll => vec![Self::Link(node)],
            Parting::FromNode(other) => vec![Self::Way(node, other), Self::Way(other, node)],
            Parting::Unheard(by) => vec![Self::Way(node, by)],
        }
    }
}

/// Number of partitions that need each cut: two partitions may need the same cut.
#[derive(Default)]
struct Cuts(BTreeMap<Cut, u32>);

impl Cuts {
    /// Another partition needs the cut. Returns whether it must be made now.
    fn add(&mut self, cut: Cut) -> bool {
        let wanted = self.0.entry(cut).or_default();
        *wanted += 1;
        *wanted == 1
    }

    /// A partition that needed the cut ends. Returns whether the cut must be removed.
    fn take(&mut self, cut: Cut) -> bool {
        let Some(wanted) = self.0.get_mut(&cut) else { return false };
        *wanted -= 1;
        let last = *wanted == 0;
        if last {
            self.0.remove(&cut);
        }
        last
    }
}

fn ip(arguments: &str) -> Result<(), HostsError> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(HostsError::NoCommand)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(HostsError::Refused { arguments: arguments.to_owned(), said });
    }
    Ok(())
}

impl Hosts {
    /// Creates one host per node, and one for clients.
    ///
    /// # Errors
    ///
    /// What was created so far is removed.
    pub fn join(nodes: u16) -> Result<Self, HostsError> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("skein{}x{number}", std::process::id());
        let hosts = Self { name, nodes, cuts: Mutex::default() };
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

    /// The prefix of the nodes' namespaces. The node's number follows.
    pub fn prefix(&self) -> String {
        format!("{}-", self.name)
    }

    /// The addresses of the nodes.
    pub fn addresses(&self) -> Vec<String> {
        (0..self.nodes).map(|node| format!("{}:{PORT}", Self::address(node))).collect()
    }

    /// Moves this thread, and the threads that it starts, to the host of the clients.
    ///
    /// # Errors
    ///
    /// The thread stays where it was.
    pub fn enter(&self) -> Result<(), HostsError> {
        let path = PathBuf::from(format!("/var/run/netns/{}", self.host(self.nodes)));
        let failed = |attempt| {
            let namespace = path.clone();
            move |source| HostsError::Entry { attempt, namespace, source }
        };
        let namespace = File::open(&path).map_err(failed("open"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| failed("enter")(error.into()))
    }

    /// Partitions a node. If a cut fails, all are undone.
    pub(super) fn part(&self, node: u16, parting: &Parting) -> Result<(), HostsError> {
        let cuts = Cut::of(node, parting);
        for (i, cut) in cuts.iter().enumerate() {
            if let Err(error) = self.cut(*cut) {
                for cut in &cuts[..=i] {
                    // The error of the cut is returned, not that of its removal.
                    let _ = self.join_again(*cut);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends a partition, except for cuts that another partition needs.
    pub(super) fn mend(&self, node: u16, parting: &Parting) -> Result<(), HostsError> {
        let joined: Vec<_> =
            Cut::of(node, parting).into_iter().map(|cut| self.join_again(cut)).collect();
        joined.into_iter().collect()
    }

    fn cut(&self, cut: Cut) -> Result<(), HostsError> {
        let first = self.cuts.lock().expect("nobody panics with it").add(cut);
        if first { self.change(cut, true) } else { Ok(()) }
    }

    fn join_again(&self, cut: Cut) -> Result<(), HostsError> {
        let last = self.cuts.lock().expect("nobody panics with it").take(cut);
        if last { self.change(cut, false) } else { Ok(()) }
    }

    fn change(&self, cut: Cut, part: bool) -> Result<(), HostsError> {
        match cut {
            Cut::Link(host) => {
                let to = if part { "down" } else { "up" };
                ip(&format!("-n {} link set p{host} {to}", self.switch()))
            }
            Cut::Way(from, to) => {
                let (host, address) = (self.host(from), Self::address(to));
                let verb = if part { "add" } else { "del" };
                ip(&format!("-n {host} route {verb} blackhole {address}/32"))
            }
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
            // It may never have been created.
            let _ = ip(&format!("netns del {host}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_partitions_cut_is_joined_when_both_are_over() {
        let mut cuts = Cuts::default();
        let (one, other) = (Parting::FromNode(2), Parting::Unheard(1));
        let mut add = |node, parting| -> Vec<_> {
            Cut::of(node, parting).into_iter().filter(|cut| cuts.add(*cut)).collect()
        };
        assert_eq!(add(1, &one), [Cut::Way(1, 2), Cut::Way(2, 1)]);
        assert_eq!(add(2, &other), [], "it is cut");
        assert_eq!(add(1, &Parting::FromAll), [Cut::Link(1)]);
        let mut take = |node, parting| -> Vec<_> {
            Cut::of(node, parting).into_iter().filter(|cut| cuts.take(*cut)).collect()
        };
        assert_eq!(take(1, &one), [Cut::Way(1, 2)]);
        assert_eq!(take(2, &other), [Cut::Way(2, 1)]);
        assert_eq!(take(1, &Parting::FromAll), [Cut::Link(1)]);
        assert_eq!(take(2, &other), [], "nobody wants it cut");
    }

    #[test]
    fn hosts_that_are_parted_twice_are_joined_again() {
        let hosts = match Hosts::join(2) {
            Ok(hosts) => hosts,
            Err(why) => return eprintln!("not run, it takes network namespaces: {why}"),
        };
        let routes = || {
            let output = Command::new("ip")
                .args(["-n", &hosts.host(0), "route", "show", "type", "blackhole"])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        hosts.part(0, &Parting::FromNode(1)).unwrap();
        hosts.part(0, &Parting::Unheard(1)).unwrap();
        hosts.part(1, &Parting::FromNode(0)).unwrap();
        hosts.mend(1, &Parting::FromNode(0)).unwrap();
        hosts.mend(0, &Parting::FromNode(1)).unwrap();
        assert!(routes().contains("10.77.0.2"), "{}", routes());
        hosts.mend(0, &Parting::Unheard(1)).unwrap();
        assert_eq!(routes(), "");
    }
}
