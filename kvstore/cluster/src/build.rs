//! Version and commit of this build.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version and the commit it was built from. Processes that share memory must be of the same build, because the
/// memory layout is not a public format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build<S = String> {
    /// Version of the layout of shared memory and of a cluster's directory.
    pub format: u32,
    /// From `Cargo.toml`.
    pub version: S,
    /// Commit hash, or `unknown`.
    pub commit: S,
}

/// This build.
pub const BUILD: Build<&'static str> =
    Build { format: 1, version: env!("CARGO_PKG_VERSION"), commit: env!("SKEIN_COMMIT") };

impl Build<&'static str> {
    /// Version and commit: `0.1.0 (8761cc0d2f3a)`.
    pub const fn text(&self) -> &'static str {
        concat!(env!("CARGO_PKG_VERSION"), " (", env!("SKEIN_COMMIT"), ")")
    }

    /// An owned copy, for serialization.
    pub fn owned(&self) -> Build {
        Build { format: self.format, version: self.version.into(), commit: self.commit.into() }
    }
}

impl<S: fmt::Display> fmt::Display for Build<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}), format {}", self.version, self.commit, self.format)
    }
}
