//! What a replica holds and waits for, as an onlooker sees it.

use crate::ordering::Links;
use skein_protocol::group::frame::HEADER;
use skein_protocol::ids::MessageId;
use skein_protocol::ordering::{Inspect as _, MessageStage};
use skein_protocol::properties::Footprint;

use super::Replica;
use crate::application::Application;
use crate::wiring::{WAITING_MAX, members};

impl<A: Application, O: Links> Replica<A, O> {
    /// Lets go of payloads that nothing will ask for any more, and that nothing else lets go of: of
    /// messages that came again when their session had no need of them.
    pub(crate) fn drop_useless(&mut self) {
        let core = &self.core;
        self.payloads.retain_all(|message| core.may_need(message));
        self.payloads.tidy();
    }

    /// What it holds at this moment, and what it may.
    pub(crate) fn footprint(&self, sessions: usize, waiting: usize) -> Footprint {
        let groups = usize::from(self.topology.groups);
        // What its log names it is given, whatever it holds already: nobody else can go on without. If it begins to
        // lead then, it delivers that, and keeps it for followers that lag.
        let logged =
            self.ends.len() + self.core.inspect().pending() + self.core.log().inherited_payloads();
        let logged = logged + self.payloads.beyond();
        let large_bytes_max =
            self.tuning.held_bytes_max + (sessions + logged) * self.tuning.payload_bytes_max;
        Footprint {
            pending: self.core.inspect().pending(),
            payloads: self.payloads.len(),
            large_bytes: self.payloads.large_bytes(),
            beyond_budget: self.payloads.beyond(),
            log_entries: self.ends.len(),
            waiting,
            sessions,
            window: self.tuning.window,
            large_bytes_max,
            log_entries_max: self.tuning.log_bytes / HEADER,
            told_again_max: WAITING_MAX * members(self.topology) * groups,
            groups,
        }
    }

    /// What it waits for and holds, for people to read.
    pub(crate) fn describe_waiting(&self) -> String {
        let message = |message: &MessageId| {
            let core = &self.core;
            let (known, pending) =
                (core.is_known(*message), core.stage_of(*message) == MessageStage::Pending);
            format!("{message} (known: {known}, pending: {pending})")
        };
        let exchange = self.exchange.describe();
        let stuck = self.core.inspect().describe_stuck();
        let held: Vec<_> = self.payloads.messages().iter().map(message).collect();
        let leaders = self.topology.all_groups().iter().map(|g| self.core.leader_of(g).to_string());
        let leaders: Vec<_> = leaders.collect();
        let feeds =
            self.followers.iter().map(|it| (it.log.is_some(), it.sent, it.attempt, it.joining));
        let feeds: Vec<_> = feeds.collect();
        format!(
            "{}: {exchange}, is stuck with \
            {stuck}, holds {held:?}, takes for leaders {leaders:?}, has promised {}, awaits its leader {}, reads \
            on at {:?}, its log waits for {:?}, is left behind by {:?}, takes {}, has answered {:?}, feeds {feeds:?}",
            self.id,
            self.core.log().promised(),
            self.awaiting,
            self.cursor,
            self.core.log().stalled_on(),
            self.core.log().lagging(),
            self.takes_state(),
            self.answered
        )
    }
}
