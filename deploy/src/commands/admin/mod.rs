//! `skein admin`: operations on single nodes and groups of a running cluster.

mod evict;
mod kill;
mod recreate;
mod replace;
mod transfer;
mod view;

use std::time::Duration;

use clap::Subcommand;

use crate::args::Global;
use crate::exit::Exit;

/// How long an action may take to show an effect.
const DONE_WITHIN: Duration = Duration::from_secs(10);
/// Interval of checks for the effect.
const POLL: Duration = Duration::from_millis(10);
/// How long a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Moves a leader, evicts a replica, kills a node for a drill, recreates a lost group, replaces a lost node
///
/// Groups, replica slots and nodes have the numbers that `skein status` shows.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    TransferLeader(transfer::Args),
    Evict(evict::Args),
    Kill(kill::Args),
    Recreate(recreate::Args),
    Replace(replace::Args),
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self.action {
            Action::TransferLeader(args) => args.run(global),
            Action::Evict(args) => args.run(global),
            Action::Kill(args) => args.run(global),
            Action::Recreate(args) => args.run(global),
            Action::Replace(args) => args.run(global),
        }
    }
}

/// Parses `0` or `g0`.
pub(super) fn group(text: &str) -> Result<u16, String> {
    number(text, 'g', "a group, such as 0 or g0")
}

/// Parses `0` or `n0`.
fn node(text: &str) -> Result<u16, String> {
    number(text, 'n', "a node, such as 0 or n0")
}

fn number(text: &str, letter: char, what: &str) -> Result<u16, String> {
    let digits = text.strip_prefix(letter).unwrap_or(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or_else(|| format!("not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_nodes_are_named_as_status_shows_them() {
        for (text, number) in [("0", 0), ("g0", 0), ("g63", 63), ("7", 7)] {
            assert_eq!(group(text), Ok(number), "{text}");
        }
        for text in ["", "g", "n0", "gg0", "g0.1", "-1", "+1", "70000", "zero"] {
            assert!(group(text).is_err(), "{text}");
        }
        assert_eq!(node("n2"), Ok(2));
        assert!(node("g2").is_err());
    }
}
