//! A cluster's configuration: one TOML file over the defaults, refused where it cannot work.
//!
//! A [`Draft`] remembers where each entry came from, so that what is wrong with it is said with file
//! and line. [`Draft::finish`] parses it into a [`ClusterConfig`], which has passed every check.

mod draft;
mod entries;
mod sizes;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use skein_multicast::config::{Conflict, Topology, Tuning};

pub use draft::{ConfigError, Draft};
pub use sizes::{exact_bytes, parse_bytes, show_bytes};

use draft::Setting;
use entries::{ENTRIES, Kind, SECTIONS};

/// Everything that decides how a cluster is laid out and behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Nodes, groups, replicas, engines.
    pub topology: Topology,
    /// Sizes of memory and bounds of queues.
    pub tuning: Tuning,
    /// Where the directory with the cluster's shared memory is made.
    pub region_root: PathBuf,
    /// How long a node that stops may take to finish what is under way, in milliseconds.
    pub stop_within_ms: u64,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
            tuning: Tuning::default(),
            region_root: PathBuf::from(SHARED_MEMORY),
            stop_within_ms: 5_000,
        }
    }
}

/// Where Linux keeps shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

impl ClusterConfig {
    /// The settings, if any, that cannot work together.
    pub fn check(&self) -> Result<(), Conflict> {
        self.topology.check()?;
        self.tuning.check()
    }

    /// The whole configuration as TOML with a comment for each entry. Reading it gives the same
    /// configuration again.
    pub fn print(&self) -> String {
        let draft = Draft::from(self);
        let mut text = String::from("# The configuration of a Skein cluster.\n");
        for (section, about) in SECTIONS {
            let _ = write!(text, "\n# {about}\n[{section}]\n");
            for entry in ENTRIES.iter().filter(|entry| entry.section == section) {
                let value = match (draft.get(entry), entry.kind) {
                    (Setting::Number(number), Kind::Bytes) => match exact_bytes(*number) {
                        size if size.ends_with('B') => format!("\"{size}\""),
                        plain => plain,
                    },
                    (Setting::Number(number), _) => number.to_string(),
                    (Setting::Text(text), _) => toml::Value::String(text.clone()).to_string(),
                };
                for line in wrapped(entry.about, 98) {
                    let _ = writeln!(text, "# {line}");
                }
                let _ = writeln!(text, "{} = {value}", entry.name);
            }
        }
        text
    }
}

/// `text` in lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The memory of this machine, or of the container we are in, in bytes; if that can be told.
pub fn machine_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let ceiling = std::fs::read_to_string(Path::new("/sys/fs/cgroup/memory.max"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(ceiling.map_or(total, |ceiling: u64| ceiling.min(total)))
}
