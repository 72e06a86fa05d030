//! The fabric over which a cluster's processes communicate, and their addresses.

use std::net::IpAddr;
use std::path::PathBuf;

use skein_multicast::config::{Conflict, Topology};

/// The section `[network]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub fabric: FabricKind,
    /// Name of the cluster on a network; empty if `skein up` is to draw one.
    pub cluster: String,
    /// Address of each node, `host:port`. Engine `e` of a node listens `e` ports further.
    pub addresses: Vec<String>,
    pub encryption: Encryption,
    /// Directory of certificates and keys.
    pub certificates: PathBuf,
    /// RDMA device; empty for the first usable one.
    pub device: String,
    /// Port of the device; 0 for the first active one.
    pub port: u8,
    /// Index of the port's address (GID); [`ANY_GID`] for the best one.
    pub gid_index: u8,
    /// Largest packet in bytes; 0 for the port's own limit.
    pub mtu: u32,
    pub traffic_class: u8,
}

/// Value of `gid_index` for the best address.
pub const ANY_GID: u8 = u8::MAX;

/// Kind of fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricKind {
    /// Shared memory of one host.
    Shm,
    /// TCP connections.
    Tcp,
    /// RDMA network cards, and TCP connections for control traffic.
    Verbs,
}

/// When connections are encrypted and both sides must present certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Always, unless all addresses are loopback addresses.
    BetweenHosts,
    Always,
    /// Any process that reaches a port can read and write everything.
    Never,
}

impl FabricKind {
    /// Names of all fabrics.
    pub const WORDS: &'static [&'static str] = &["shm", "tcp", "verbs"];

    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }

    /// The fabric of that name; [`Shm`](Self::Shm) if there is none.
    pub fn of(word: &str) -> Self {
        match word {
            "tcp" => Self::Tcp,
            "verbs" => Self::Verbs,
            _ => Self::Shm,
        }
    }

    /// Whether its processes have network addresses.
    pub fn is_network(self) -> bool {
        self != Self::Shm
    }
}

impl Encryption {
    pub(super) const WORDS: &'static [&'static str] = &["between-hosts", "always", "never"];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BetweenHosts => "between-hosts",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    pub(super) fn of(word: &str) -> Self {
        match word {
            "always" => Self::Always,
            "never" => Self::Never,
            _ => Self::BetweenHosts,
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            fabric: FabricKind::Shm,
            cluster: String::new(),
            addresses: Vec::new(),
            encryption: Encryption::BetweenHosts,
            certificates: PathBuf::from("/etc/skein"),
            device: String::new(),
            port: 0,
            gid_index: ANY_GID,
            mtu: 0,
            traffic_class: 0,
        }
    }
}

impl Network {
    /// Whether all nodes run on one machine.
    pub fn is_one_host(&self) -> bool {
        self.fabric == FabricKind::Shm || self.addresses.iter().all(|address| is_loopback(address))
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        match self.encryption {
            Encryption::BetweenHosts => !self.is_one_host(),
            Encryption::Always => true,
            Encryption::Never => false,
        }
    }

    pub(super) fn check(&self, topology: Topology) -> Result<(), Conflict> {
        let (count, nodes) = (self.addresses.len(), usize::from(topology.nodes));
        let conflict = |first: String, second: String, why| Err(Conflict { first, second, why });
        if count > 0 && count != nodes {
            return conflict(
                format!("network.addresses = {count} addresses"),
                format!("topology.nodes = {nodes}"),
                "each node has one address, in the order of their numbers",
            );
        }
        for (i, address) in self.addresses.iter().enumerate() {
            let first = format!("network.addresses = [… {address:?} …]");
            let Some((host, port)) = split(address) else { continue };
            if u32::from(port) + u32::from(topology.engines) > 1 << 16 {
                let engines = format!("topology.engines = {}", topology.engines);
                return conflict(first, engines, "each engine listens at a port of its own");
            }
            let near = |other: &&String| {
                split(other).is_some_and(|(name, other)| {
                    name == host && port.abs_diff(other) < topology.engines.max(1)
                })
            };
            if let Some(other) = self.addresses[i + 1..].iter().find(near) {
                return conflict(first, format!("{other:?}"), "no two engines share a port");
            }
        }
        Ok(())
    }
}

/// Host and port of an address, if it is valid.
pub(super) fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let named = !host.is_empty() && host.chars().all(plain);
    let fits = named || bracketed.is_some_and(|host| host.parse::<IpAddr>().is_ok());
    fits.then_some((host, port))
}

/// Address of an engine: its node's address with the port raised by `engine`.
pub(crate) fn engine_address(node: &str, engine: u16) -> Option<String> {
    let (host, port) = split(node)?;
    Some(format!("{host}:{}", port.checked_add(engine)?))
}

fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = split(address) else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        #[rustfmt::skip]
        let cases = [
            ("10.0.0.1:7400",      true,  "an address"),
            ("db-1.example.org:1", true,  "a name"),
            ("[fd00::1]:7400",     true,  "one of the longer ones"),
            ("10.0.0.1",           false, "no port"),
            ("10.0.0.1:0",         false, "any port is none"),
            ("10.0.0.1:70000",     false, "no such port"),
            (":7400",              false, "no host"),
            ("a b:7400",           false, "two words"),
            ("[a]:7400",           false, "not what brackets are for"),
        ];
        for (address, good, because) in cases {
            assert_eq!(split(address).is_some(), good, "{because}");
        }
        assert_eq!(engine_address("[::1]:7400", 2).as_deref(), Some("[::1]:7402"));
        assert_eq!(engine_address("h:65535", 1), None);
    }

    #[test]
    fn only_one_machine_may_speak_plainly_unless_told_so() {
        let network = |addresses: &[&str], encryption| Network {
            fabric: FabricKind::Tcp,
            addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
            encryption,
            ..Network::default()
        };
        let here = ["127.0.0.1:1", "localhost:2", "[::1]:3"];
        let there = ["127.0.0.1:1", "10.0.0.2:1"];
        #[rustfmt::skip]
        let cases = [
            (network(&here, Encryption::BetweenHosts),  false),
            (network(&there, Encryption::BetweenHosts), true),
            (network(&here, Encryption::Always),        true),
            (network(&there, Encryption::Never),        false),
        ];
        for (network, encrypted) in cases {
            assert_eq!(network.is_encrypted(), encrypted, "{network:?}");
        }
    }
}
