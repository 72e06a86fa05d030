//! A replica enters a ballot: as its leader, or as a follower of its leader. [`promise`](GroupLog::promise) and
//! [`step_down`](GroupLog::step_down) end that.
//!
//! **Invariant.** `ballot == promised` from here on, until another ballot is promised.

use super::record::{GroupRecord, LogRecord};
use super::uncommitted::Uncommitted;
use super::{GroupLog, Role};
use crate::ballot::Ballot;

impl<R: LogRecord> GroupLog<R> {
    /// Follows the leader of the ballot that this replica granted. The leader writes the log behind the common prefix,
    /// to which the log was truncated before. The leader's own first entry is, or will be, at index `first`.
    pub(crate) fn follow(&mut self, ballot: Ballot, first: u64) {
        self.seeded = None;
        // The log is written from its end on: no state transfer is necessary.
        self.transfer.receiver.drop_copy();
        self.paths.followed += u64::from(self.entries.ballot != ballot);
        self.election.failed_ballots = 0;
        self.election.cold_start.end();
        self.owed.leave_ballot();
        (self.entries.ballot, self.entries.first) = (ballot, first);
    }

    /// Begins to lead: the campaign is won, and our log is the adopted one. From now on this replica logs in its own
    /// ballot, and entry times do not fall.
    pub(crate) fn begin_to_lead(&mut self) {
        let campaign = self.election.campaign.as_mut().expect("won");
        // It may have waited for others since it set out.
        campaign.until_ms = self.now_ms + self.config.timeout_ms;
        let ballot = campaign.ballot;
        assert!(
            self.payloads.stalled.is_none() && ballot == self.election.promised,
            "the log is adopted whole"
        );
        self.role = Role::Leader;
        self.election.cold_start.end();
        self.spread.lead(self.now_ms, self.config.spread_after_ms);
        self.seeded = None;
        self.transfer.receiver.catch_up();
        self.lease.clear();
        self.owed.leave_ballot();
        self.entries.ballot = ballot;
        self.followers.forget();
        self.progress.lead(self.config.me.slot);
        if self.entries.last_time_ms > 0 {
            let (last, now) = (self.entries.last_time_ms.cast_signed(), self.now_ms.cast_signed());
            self.entries.time_offset = last - now;
        }
        for Uncommitted { record, .. } in self.entries.uncommitted.iter() {
            let changed = match record.of_group() {
                Some(GroupRecord::Evict { slot } | GroupRecord::Join { slot, .. }) => 1 << slot,
                Some(GroupRecord::NewBallot) | None => 0,
            };
            self.members.changing |= changed;
        }
        self.paths.led += 1;
    }

    /// Records the index of our ballot's first entry.
    pub(crate) fn led_from(&mut self, index: u64) {
        self.entries.first = index;
    }
}
