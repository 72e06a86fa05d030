//! The network of a cluster: the addresses of its processes and their certificates.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skein_fabric::Constants;
use skein_fabric::tcp::{Book, Net, Security, Tls, TlsError};
use skein_kvstore::machine::behaviour;
use skein_multicast::WIRE_VERSION;
use skein_multicast::config::endpoint_name;

use crate::config::{ClusterConfig, Network, engine_address};

/// File name of the authority's certificate in the directory of certificates.
pub const AUTHORITY: &str = "authority.pem";

/// Owner of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Node(u16),
    /// Any process other than a node.
    Client,
}

impl Who {
    /// Name in the certificate and of its file.
    pub fn name(self) -> String {
        match self {
            Self::Node(node) => format!("node{node}"),
            Self::Client => "client".to_owned(),
        }
    }

    /// Owner of the certificate that the process named `process` must present.
    fn of(process: &str) -> Self {
        let node = process.strip_prefix('n').and_then(|rest| rest.split_once('e'));
        node.and_then(|(node, _)| node.parse().ok()).map_or(Self::Client, Self::Node)
    }
}

/// Reasons why the network cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    #[error(
        "network.fabric = \"{fabric}\" needs network.addresses: where each of the nodes listens"
    )]
    NoAddresses {
        /// Name of the fabric.
        fabric: &'static str,
    },
    #[cfg(not(feature = "verbs"))]
    #[error(
        "a node with network.fabric = \"verbs\" needs a skein that was built with `--features verbs`"
    )]
    NoVerbs,
    #[error("cannot read {}: {source}; `skein pki` makes certificates and keys, and network.certificates says where they are", path.display())]
    Unreadable {
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Any user who can read the key can impersonate this process.
    #[error("{} can be read by everybody (its mode is {mode:04o}): `chmod 600 {}`, or 640 with a group that only it is in", path.display(), path.display())]
    OpenKey {
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    #[error("the certificates in {} cannot be used: {source}", directory.display())]
    Certificates {
        /// Directory of the certificates.
        directory: PathBuf,
        source: TlsError,
    },
}

/// The network of `cluster`, for a process that presents the certificate of `who`.
pub fn net(config: &ClusterConfig, cluster: &str, who: Who) -> Result<Net, NetworkError> {
    let network = &config.network;
    if network.addresses.is_empty() {
        return Err(NetworkError::NoAddresses { fabric: network.fabric.name() });
    }
    let book = Book::default();
    for (node, address) in (0..).zip(&network.addresses) {
        for engine in 0..config.topology.engines {
            // Addresses and ports were checked with the configuration.
            if let Some(address) = engine_address(address, engine) {
                book.insert(&endpoint_name(node, engine), &address);
            }
        }
    }
    let security = if network.is_encrypted() { mutual(network, who)? } else { Security::Plain };
    Ok(Net::new(cluster, book, security).agreeing(constants(config)))
}

/// Address of `node` if it is not an address of this host. An address that cannot be resolved counts as this host's:
/// the error is reported where the address is used.
pub fn elsewhere(config: &ClusterConfig, node: u16) -> Option<&str> {
    if !config.network.fabric.is_network() {
        return None;
    }
    let address = config.network.addresses.get(usize::from(node))?;
    let resolved: Vec<_> = address.to_socket_addrs().ok()?.collect();
    let is_foreign = |address: &SocketAddr| {
        let bound = TcpListener::bind((address.ip(), 0));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    (!resolved.is_empty() && resolved.iter().all(is_foreign)).then_some(address.as_str())
}

/// Selection and settings of the RDMA device.
#[cfg(feature = "verbs")]
pub fn cards(config: &ClusterConfig) -> skein_fabric::verbs::Config {
    let network = &config.network;
    let Network { port, gid_index, mtu, traffic_class, .. } = *network;
    skein_fabric::verbs::Config {
        wish: skein_fabric::adapters::Wish {
            device: Some(network.device.clone()).filter(|device| !device.is_empty()),
            port: Some(port).filter(|port| *port > 0),
            gid_index: Some(gid_index).filter(|index| *index != crate::config::ANY_GID),
        },
        mtu: Some(mtu).filter(|mtu| *mtu > 0),
        traffic_class,
    }
}

fn mutual(network: &Network, who: Who) -> Result<Security, NetworkError> {
    let directory = &network.certificates;
    let read = |file: &str| {
        let path = directory.join(file);
        fs::read(&path).map_err(|source| NetworkError::Unreadable { path, source })
    };
    let (authority, name) = (read(AUTHORITY)?, who.name());
    let (own, key) = (read(&format!("{name}.pem"))?, read(&format!("{name}.key"))?);
    let path = directory.join(format!("{name}.key"));
    let mode = fs::metadata(&path).map_or(0, |about| about.permissions().mode() & 0o777);
    if mode & 0o007 != 0 {
        return Err(NetworkError::OpenKey { path, mode });
    }
    let tls = Tls::new(&authority, &own, &key, |process| Who::of(process).name());
    let wrong =
        |source| NetworkError::Certificates { directory: Path::to_owned(directory), source };
    Ok(Security::Mutual(Arc::new(tls.map_err(wrong)?)))
}

/// Settings that must be equal in all processes of a cluster. Processes with different settings refuse each other when
/// they connect.
fn constants(config: &ClusterConfig) -> Constants {
    let ClusterConfig { network, limits, tuning, .. } = config;
    // `network.fabric` is absent: the handshake compares it separately.
    let addresses = network.addresses.join(" ");
    Constants::default()
        .with("wire_version", WIRE_VERSION)
        .and(config.layout().constants())
        .with("network.addresses", addresses)
        .with("network.encryption", if network.is_encrypted() { "used" } else { "not used" })
        .and(limits.constants())
        .and(tuning.constants())
        .and(behaviour())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FabricKind;

    #[test]
    fn engines_show_the_certificate_of_their_node() {
        assert_eq!(Who::of("n3e1"), Who::Node(3));
        assert_eq!(Who::of("n3e1").name(), "node3");
        for client in ["c12-00ff00ff", "ne", "nothing", "n99999e0"] {
            assert_eq!(Who::of(client), Who::Client, "{client}");
        }
    }

    #[test]
    fn a_node_belongs_where_its_address_is() {
        let mut config = ClusterConfig::default();
        assert_eq!(elsewhere(&config, 0), None, "shared memory is always here");
        config.network.fabric = FabricKind::Tcp;
        // Nodes 1 and 2 have addresses that are reserved for documentation; the name of node 3 does not resolve.
        let addresses =
            ["127.0.0.1:7400", "203.0.113.1:7400", "[2001:db8::1]:7400", "nobody.invalid:1"];
        config.network.addresses = addresses.map(String::from).to_vec();
        let found = [0, 1, 2, 3, 4].map(|node| elsewhere(&config, node));
        assert_eq!(found[..2], [None, Some("203.0.113.1:7400")]);
        assert_eq!(found[3..], [None, None], "what cannot be told is not refused");
    }

    #[test]
    fn who_has_another_configuration_does_not_agree() {
        let config = ClusterConfig::default();
        let mut other = config.clone();
        other.limits.value_bytes_max += 1;
        let difference = constants(&config).difference(&constants(&other)).expect("they differ");
        let text = "limits.value_bytes_max is 1048577 there and 1048576 here";
        assert_eq!(difference.to_string(), text);
        other = config.clone();
        other.network.addresses = (0..64).map(|node| format!("10.0.0.{node}:7400")).collect();
        let difference = constants(&config).difference(&constants(&other)).expect("they differ");
        assert_eq!(difference.name, "network.addresses");
        let mut patient = config.clone();
        patient.stop_within_ms += 1;
        assert_eq!(constants(&config), constants(&patient), "each node's own affair");
    }
}
