//! The network of a cluster: who is where, and who may belong to it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skein_fabric::tcp::{Book, Net, Security, Tls, TlsError};
use skein_multicast::WIRE_VERSION;
use skein_multicast::config::endpoint_name;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{ClusterConfig, Network, engine_address};

/// The authority's certificate, in the directory of certificates.
pub const AUTHORITY: &str = "authority.pem";

/// Whose certificate is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A node.
    Node(u16),
    /// Anybody else.
    Client,
}

impl Who {
    /// The name in the certificate, and of its file.
    pub fn name(self) -> String {
        match self {
            Self::Node(node) => format!("node{node}"),
            Self::Client => "client".to_owned(),
        }
    }

    /// Which certificate the process needs that joins under this name.
    fn of(process: &str) -> Self {
        let node = process.strip_prefix('n').and_then(|rest| rest.split_once('e'));
        node.and_then(|(node, _)| node.parse().ok()).map_or(Self::Client, Self::Node)
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// Every host must say where the others are.
    #[error(
        "network.fabric = \"{fabric}\" needs network.addresses: where each of the nodes listens"
    )]
    NoAddresses {
        /// Its name.
        fabric: &'static str,
    },
    /// The program was built without them.
    #[cfg(not(feature = "verbs"))]
    #[error(
        "a node with network.fabric = \"verbs\" needs a skein that was built with `--features verbs`"
    )]
    NoVerbs,
    /// There is no such file, or it cannot be read.
    #[error("cannot read {}: {source}; `skein pki` makes certificates and keys, and network.certificates says where they are", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no certificate, or not the right one.
    #[error("the certificates in {} cannot be used: {source}", directory.display())]
    Certificates {
        /// Where they are.
        directory: PathBuf,
        /// What is wrong.
        source: TlsError,
    },
}

/// The network of `cluster`, for one who shows the certificate of `who`.
pub fn net(config: &ClusterConfig, cluster: &str, who: Who) -> Result<Net, NetworkError> {
    let network = &config.network;
    if network.addresses.is_empty() {
        return Err(NetworkError::NoAddresses { fabric: network.fabric.name() });
    }
    let book = Book::default();
    for (node, address) in (0..).zip(&network.addresses) {
        for engine in 0..config.topology.engines {
            // Addresses and their ports were checked with the configuration.
            if let Some(address) = engine_address(address, engine) {
                book.insert(&endpoint_name(node, engine), &address);
            }
        }
    }
    let security = if network.is_encrypted() { mutual(network, who)? } else { Security::Plain };
    Ok(Net::new(cluster, book, security).agreeing(agreed(config)))
}

/// Which RDMA device to use, and how.
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
    let tls = Tls::new(&authority, &own, &key, |process| Who::of(process).name());
    let wrong =
        |source| NetworkError::Certificates { directory: Path::to_owned(directory), source };
    Ok(Security::Mutual(Arc::new(tls.map_err(wrong)?)))
}

/// A digest of all in the configuration that the processes of a cluster must agree on: those that do
/// not refuse each other when they meet.
fn agreed(config: &ClusterConfig) -> u64 {
    let ClusterConfig { topology, network, limits, tuning, .. } = config;
    let mut agreed = String::new();
    let _ = write!(agreed, "{WIRE_VERSION} {topology:?} {limits:?} {tuning:?} ");
    // Which fabric it is they tell each other in plain words.
    let Network { addresses, .. } = network;
    let _ = write!(agreed, "{addresses:?} {:?}", network.is_encrypted());
    xxh3_64(agreed.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_show_the_certificate_of_their_node() {
        assert_eq!(Who::of("n3e1"), Who::Node(3));
        assert_eq!(Who::of("n3e1").name(), "node3");
        for client in ["c12-00ff00ff", "ne", "nothing", "n99999e0"] {
            assert_eq!(Who::of(client), Who::Client, "{client}");
        }
    }

    #[test]
    fn who_has_another_configuration_does_not_agree() {
        let config = ClusterConfig::default();
        let mut other = config.clone();
        other.limits.value_bytes_max += 1;
        assert_ne!(agreed(&config), agreed(&other));
        let mut patient = config.clone();
        patient.stop_within_ms += 1;
        assert_eq!(agreed(&config), agreed(&patient), "each node's own affair");
    }
}
