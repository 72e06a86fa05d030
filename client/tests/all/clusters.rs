//! The clusters of these tests: all of them pass with either ordering.

use std::env;

use skein_client::local::{Builder, Cluster, TreeShape};

/// Whether transactions of these clusters are ordered along a chain of their shards: with `SKEIN_ORDERING=tram`.
pub(crate) fn along_a_tree() -> bool {
    match env::var("SKEIN_ORDERING").as_deref() {
        Ok("tram") => true,
        Ok("ramcast") | Err(_) => false,
        Ok(other) => panic!("SKEIN_ORDERING={other}: use ramcast or tram"),
    }
}

pub(crate) fn builder() -> Builder {
    let builder = Cluster::builder();
    if along_a_tree() { builder.along(TreeShape::Depth) } else { builder }
}

/// Three nodes with two shards of three replicas each.
pub(crate) fn local() -> Cluster {
    builder().start().unwrap()
}
