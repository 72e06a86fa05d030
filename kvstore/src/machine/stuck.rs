//! Commands that wait for other groups at every replica of the group.
//!
//! A replica may have verdicts that another one has yet to receive, may have had them before or after a delivery, and only the
//! leader executes requests that are marked as reads. So a command that is blocked here need not be blocked elsewhere. It is
//! *stuck* if it waits for a verdict that is missing here, or for a command before it that is stuck. All replicas with the
//! same messages, and no more verdicts, have not spoken about a stuck command unless it is [`Stage::Spoken`] here.

use super::under_way::{Stage, UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX, UnderWay};
use crate::wire::Request;

impl UnderWay {
    /// Whether the command at `at` is set aside, here and elsewhere, until another group speaks about one before it.
    pub(super) fn is_stuck_behind(&self, at: usize) -> bool {
        matches!(self.stage(at), Stage::Blocked { .. }) && self.stuck().get(at) == Some(&true)
    }

    /// Whether no replica has room for another message until another group speaks.
    pub(super) fn is_full_everywhere(&self) -> bool {
        let stuck = self.stuck();
        let last_needs_turn =
            stuck.last() == Some(&true) && needs_turn(self.stage(stuck.len() - 1));
        let commands = (0..stuck.len()).filter(|at| stuck[*at]);
        let bytes: usize = commands.map(|at| payload(self.stage(at)).len()).sum();
        self.len() >= UNDER_WAY_MAX || last_needs_turn || bytes >= UNDER_WAY_BYTES_MAX
    }

    /// For each command, whether it is stuck.
    fn stuck(&self) -> Vec<bool> {
        let mut stuck = Vec::with_capacity(self.len());
        for (_, stage) in self.iter() {
            let is_stuck = match stage {
                Stage::Spoken { .. } | Stage::Awaits { .. } => true,
                Stage::Blocked { command, .. } if Request::is_read(&command.payload) => false,
                Stage::Blocked { .. } if needs_turn(stage) => stuck.contains(&true),
                Stage::Blocked { command, .. } => {
                    let before = self.iter().zip(&stuck).filter(|(_, is_stuck)| **is_stuck);
                    let mut sets = before.filter_map(|((_, stage), _)| stage.read_write_set());
                    sets.any(|set| set.meets(&command.read_write_set))
                }
                Stage::Fetching { .. } | Stage::Answered { .. } | Stage::Again => false,
            };
            stuck.push(is_stuck);
        }
        stuck
    }
}

/// Whether the command waits, at every replica, until all before it are over. A transaction may need its turn because there
/// may not be room for it, which depends on what has come before it.
fn needs_turn(stage: &Stage) -> bool {
    match stage {
        Stage::Blocked { command, needs_turn, .. } => {
            let request = Request::decode(&command.payload);
            *needs_turn && !matches!(request, Ok(Request::Transaction(_) | Request::Read(_)))
        }
        Stage::Awaits { .. } => true,
        _ => false,
    }
}

fn payload(stage: &Stage) -> &[u8] {
    match stage {
        Stage::Blocked { command, .. }
        | Stage::Spoken { command, .. }
        | Stage::Awaits { command, .. } => &command.payload,
        Stage::Fetching { .. } | Stage::Answered { .. } | Stage::Again => &[],
    }
}
