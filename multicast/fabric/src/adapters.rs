//! The RDMA devices of this machine, as the system describes them, without a library.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux lists them.
const CLASS: &str = "/sys/class/infiniband";

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The system's name: `mlx5_0`, `rxe0`.
    pub name: String,
    /// Sorted by number.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u8,
    pub active: bool,
    /// `ACTIVE`, `DOWN`, …
    pub state: String,
    /// `Ethernet` (RoCE) or `InfiniBand`.
    pub link_layer: String,
    /// In the system's format: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The addresses that are set.
    pub gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Index into the port's table.
    pub index: u8,
    /// Eight groups of four hexadecimal digits.
    pub address: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
}

impl Gid {
    /// Higher is better: a routed address, and one that exists as long as the interface has its IPv4 address.
    fn rank(&self) -> u8 {
        let routed = self.kind == "RoCE v2";
        let ipv4 = self.address.starts_with("0000:0000:0000:0000:0000:ffff:");
        u8::from(routed) * 2 + u8::from(ipv4)
    }
}

/// Which device, port and address to use. What is `None` is chosen by [`choose`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub device: Option<String>,
    pub port: Option<u8>,
    /// Index into the port's table of addresses.
    pub gid_index: Option<u8>,
}

/// The device, port and address that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub device: String,
    pub port: u8,
    /// Index into the port's table of addresses.
    pub gid_index: u8,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} GID {}", self.device, self.port, self.gid_index)
    }
}

/// Why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAdapter {
    /// There is no device.
    #[error("there is no RDMA device in {CLASS}")]
    None,
    /// No device fits the wish.
    #[error("no RDMA device is {what}; there are {there}")]
    NotThere {
        /// The wish.
        what: String,
        /// The devices, or the GIDs, that there are.
        there: String,
    },
    /// No port is active.
    #[error("no port of {names} is active: look at `rdma link`")]
    Down {
        /// The names of all devices, separated by commas.
        names: String,
    },
}

/// The RDMA devices of this machine, by name.
pub fn adapters() -> Vec<Adapter> {
    adapters_in(Path::new(CLASS))
}

fn adapters_in(class: &Path) -> Vec<Adapter> {
    let adapter = |(name, path): (String, PathBuf)| {
        let mut ports: Vec<_> = entries(&path.join("ports"))
            .into_iter()
            .filter_map(|(number, path)| port(number.parse().ok()?, &path))
            .collect();
        ports.sort_by_key(|port| port.number);
        Adapter { name, ports }
    };
    let mut adapters: Vec<_> = entries(class).into_iter().map(adapter).collect();
    adapters.sort_by(|a, b| a.name.cmp(&b.name));
    adapters
}

fn port(number: u8, path: &Path) -> Option<Port> {
    // "4: ACTIVE"
    let state = line(&path.join("state"))?;
    let state = state.split_once(": ").map_or(state.as_str(), |(_, name)| name).to_owned();
    let gid = |(index, file): (String, PathBuf)| {
        let index = index.parse().ok()?;
        let address = line(&file)?;
        let set = address.chars().any(|c| c != '0' && c != ':');
        let kind = line(&path.join(format!("gid_attrs/types/{index}"))).unwrap_or_default();
        set.then_some(Gid { index, address, kind })
    };
    let mut gids: Vec<_> = entries(&path.join("gids")).into_iter().filter_map(gid).collect();
    gids.sort_by_key(|gid| gid.index);
    Some(Port {
        number,
        active: state == "ACTIVE",
        state,
        link_layer: line(&path.join("link_layer")).unwrap_or_default(),
        rate: line(&path.join("rate")).unwrap_or_default(),
        gids,
    })
}

fn entries(path: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|it| (it.file_name().to_string_lossy().into_owned(), it.path())).collect()
}

/// The only line of a file. Reading an empty place of a table is an error.
fn line(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The device to use: the first with an active port that fits.
pub fn choose(adapters: &[Adapter], wish: &Wish) -> Result<Choice, NoAdapter> {
    if adapters.is_empty() {
        return Err(NoAdapter::None);
    }
    let fits = |name: &str, port: u8| {
        wish.device.as_ref().is_none_or(|it| it == name) && wish.port.is_none_or(|it| it == port)
    };
    let ports = adapters.iter().flat_map(|it| it.ports.iter().map(move |port| (&it.name, port)));
    let fitting: Vec<_> = ports.filter(|(name, port)| fits(name, port.number)).collect();
    let names = || adapters.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if fitting.is_empty() {
        let device = wish.device.as_deref().unwrap_or("one");
        let port = wish.port.map(|port| format!(" with a port {port}")).unwrap_or_default();
        return Err(NoAdapter::NotThere { what: format!("{device}{port}"), there: names() });
    }
    let active = fitting.into_iter().find(|(_, port)| port.active);
    let (device, port) = active.ok_or_else(|| NoAdapter::Down { names: names() })?;
    let gid_index = wish.gid_index.unwrap_or_else(|| {
        let best = port.gids.iter().rev().max_by_key(|gid| gid.rank());
        best.map_or(0, |gid| gid.index)
    });
    if wish.gid_index.is_some() && port.gids.iter().all(|gid| gid.index != gid_index) {
        let what = format!("{device} port {} with a GID {gid_index}", port.number);
        let gids = port.gids.iter().map(|gid| gid.index.to_string()).collect::<Vec<_>>();
        let there = format!("GIDs {} there", gids.join(", "));
        return Err(NoAdapter::NotThere { what, there });
    }
    Ok(Choice { device: device.clone(), port: port.number, gid_index })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files as the system would show them.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const LINK_LOCAL: &str = "fe80:0000:0000:0000:1853:14ff:fe8d:5a45\n";
    const IPV4: &str = "0000:0000:0000:0000:0000:ffff:0a09:0001\n";
    const UNSET: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";

    #[test]
    fn the_first_active_port_and_its_routed_ipv4_address_are_chosen() {
        let dir = tree(&[
            ("mlx5_0/ports/1/state", "1: DOWN\n"),
            ("mlx5_0/ports/2/state", "4: ACTIVE\n"),
            ("mlx5_0/ports/2/link_layer", "Ethernet\n"),
            ("mlx5_0/ports/2/gids/0", LINK_LOCAL),
            ("mlx5_0/ports/2/gids/1", LINK_LOCAL),
            ("mlx5_0/ports/2/gids/2", IPV4),
            ("mlx5_0/ports/2/gids/3", IPV4),
            ("mlx5_0/ports/2/gids/4", UNSET),
            ("mlx5_0/ports/2/gid_attrs/types/0", "IB/RoCE v1\n"),
            ("mlx5_0/ports/2/gid_attrs/types/1", "RoCE v2\n"),
            ("mlx5_0/ports/2/gid_attrs/types/2", "IB/RoCE v1\n"),
            ("mlx5_0/ports/2/gid_attrs/types/3", "RoCE v2\n"),
            ("rxe0/ports/1/state", "4: ACTIVE\n"),
            ("rxe0/ports/1/gids/0", LINK_LOCAL),
        ]);
        let adapters = adapters_in(dir.path());
        assert_eq!(adapters.len(), 2);
        assert_eq!(adapters[0].ports[1].gids.len(), 4, "the one that is not set is not there");
        let choice = |device: &str, port, gid_index| {
            Ok(Choice { device: device.to_owned(), port, gid_index })
        };
        let wish = |device: &str, port, gid_index| {
            let device = (!device.is_empty()).then(|| device.to_owned());
            choose(&adapters, &Wish { device, port, gid_index })
        };
        assert_eq!(wish("", None, None), choice("mlx5_0", 2, 3));
        assert_eq!(wish("", None, Some(1)), choice("mlx5_0", 2, 1));
        assert_eq!(wish("rxe0", None, None), choice("rxe0", 1, 0));
        let why = |wish: Result<Choice, NoAdapter>| wish.unwrap_err().to_string();
        assert_eq!(
            why(wish("mlx4_0", None, None)),
            "no RDMA device is mlx4_0; there are mlx5_0, rxe0"
        );
        assert_eq!(
            why(wish("mlx5_0", Some(1), None)),
            "no port of mlx5_0, rxe0 is active: look at `rdma link`"
        );
        assert!(why(wish("rxe0", None, Some(4))).contains("with a GID 4"));
        assert_eq!(choose(&[], &Wish::default()), Err(NoAdapter::None));
        assert_eq!(adapters_in(Path::new("/nowhere")), []);
    }
}
