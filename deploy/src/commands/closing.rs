//! Stopping a cluster that has restore points: a last one, and what is said if too few disks hold it.

use std::io::{self, IsTerminal, Write};

use skein_cluster::config::{ClusterConfig, Durability};
use skein_cluster::directory::Directory;
use skein_node::closing::{self, Closing};

use super::status_table::time;
use crate::output::{names, tell};

/// Closes a cluster that has restore points with a last one, and says so if that does not succeed. Ends early if `hurry` returns
/// true.
pub(super) fn close(
    directory: &Directory,
    config: &ClusterConfig,
    hurry: &mut dyn FnMut() -> bool,
) {
    let runs = (0..config.topology.nodes).any(|node| directory.node(node).is_some());
    if config.durability != Durability::Async || !runs {
        return;
    }
    let mut progress = Progress { shown: None, terminal: io::stderr().is_terminal() };
    let closing = closing::close(directory, config, hurry, &mut |now| progress.show(now));
    drop(progress);
    if let Some(warning) = warning(&closing) {
        tell(format_args!("warning: {warning}"));
    }
}

/// What is lost, and why; `None` if that is nothing.
fn warning(closing: &Closing) -> Option<String> {
    let Closing { missing, silent, hopeless, saved_age_ms, .. } = closing;
    if missing.is_empty() {
        return None;
    }
    let why = if !hopeless.is_empty() {
        format!("too few nodes of {} run", names(hopeless))
    } else if !silent.is_empty() {
        let verb = if silent.len() == 1 { "does" } else { "do" };
        format!("{} {verb} not answer", names(silent))
    } else {
        format!("the state of {} was not written in time (node.close_within_ms)", names(missing))
    };
    let lost = saved_age_ms.map_or_else(
        || "what is newer than the newest restore point of all groups".to_owned(),
        |age| format!("what was acknowledged in the last {}", time(age)),
    );
    Some(format!(
        "the last restore point is not on f+1 disks of every group, as {why}: {lost} may be lost. `skein up` says where \
         the cluster returns to"
    ))
}

/// A progress line on a terminal, removed on drop.
struct Progress {
    shown: Option<usize>,
    terminal: bool,
}

impl Progress {
    fn show(&mut self, closing: &Closing) {
        let (saved, missing) = (closing.saved.len(), closing.missing.len());
        if self.terminal && self.shown.replace(saved) != Some(saved) {
            let _ = write!(
                io::stderr(),
                "\r\x1b[Kstopping: the last restore point is on the disks of {saved} of {} groups",
                saved + missing
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_may_be_lost_is_said_in_plain_words() {
        let set = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
        let closing = |missing: &[u16], silent: &[u16], hopeless: &[u16], saved_age_ms| Closing {
            saved: BTreeSet::new(),
            missing: set(missing),
            silent: set(silent),
            hopeless: set(hopeless),
            saved_age_ms,
        };
        #[rustfmt::skip]
        let cases = [
            (closing(&[0], &[], &[], Some(900)),               "the state of g0 was not written in time (node.close_within_ms)", "in the last 900ms"),
            (closing(&[0, 1, 2], &[1], &[], None),             "g1 does not answer",               "newer than the newest restore point"),
            (closing(&[0, 1, 2], &[0, 2], &[], Some(1_000)),   "g0 and g2 do not answer",          "in the last 1s"),
            (closing(&[0, 1, 2], &[0], &[0, 1, 2], Some(1)),   "too few nodes of g0, g1 and g2 run", "in the last 1ms"),
        ];
        for (closing, why, lost) in cases {
            let said = warning(&closing).expect("something may be lost");
            assert!(said.contains(why) && said.contains(lost), "{said}");
        }
        assert_eq!(warning(&closing(&[], &[], &[], None)), None);
    }
}
