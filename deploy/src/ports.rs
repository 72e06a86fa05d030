//! Free ports of this machine, for clusters on it alone.

use std::net::TcpListener;

use anyhow::bail;

/// Below the ephemeral range, so that no connection takes a node's port while the node restarts.
const LOWEST: u16 = 20_000;
const HIGHEST: u16 = 32_000;
const TRIES_MAX: u32 = 1_000;

/// Addresses for `nodes` nodes with `engines` engines each. Each engine needs a port.
pub(crate) fn loopback(nodes: u16, engines: u16) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    // Bound until all are found, so that none is found twice.
    let mut held = Vec::new();
    for _ in 0..TRIES_MAX {
        if found.len() == usize::from(nodes) {
            return Ok(found);
        }
        let port = rand::random_range(LOWEST..HIGHEST - engines);
        let bound: Result<Vec<_>, _> =
            (0..engines).map(|engine| TcpListener::bind(("127.0.0.1", port + engine))).collect();
        if let Ok(bound) = bound {
            held.extend(bound);
            found.push(format!("127.0.0.1:{port}"));
        }
    }
    bail!("no free ports from {LOWEST} to {HIGHEST} on 127.0.0.1: set network.addresses")
}
