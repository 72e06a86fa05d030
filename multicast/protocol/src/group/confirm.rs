//! Reads that a quorum confirms. The leader finds out, after a read has arrived, that no other replica led before it
//! arrived, and then answers alone. Such a read takes no place in the log and no clock. It needs no processor of the
//! followers, except on transports such as tcp, where these place what peers write.
//!
//! A replica closes its log to the leader before it grants another ballot. So if a write was posted after the read
//! arrived and landed in a follower's log, this follower had granted no other ballot when the read arrived. Any write
//! to the log confirms this; if there is none, the leader writes a word in front of the log.
//!
//! **Invariant (confirmation).** When a leader is confirmed, no ballot above its own had f+1 grants when the read
//! arrived. The leader has granted none itself, and neither had f others whose memory it has written since. Every f+1
//! replicas that grant another ballot have one of these slots in common with them. The incarnation that granted there
//! must be another one. A later incarnation grants only when its `Join` is committed, and by then the log of the
//! current leader contains it. The grant of an earlier incarnation does not count, because every log that can be
//! adopted contains the one that we count. For both reasons, the leader counts only incarnations whose `Join` it knows
//! to be committed, with no other one logged behind it. A dead incarnation may be counted: it has granted nothing
//! either.
//!
//! So whatever a client was answered before the read arrived was delivered in our ballot or an earlier one, as a
//! [lease](super::lease) would show for the same moment. What must be delivered before the read is executed is the
//! same, too. A confirmed leader need not check again after the read. What it reads later is of a prefix of the log of
//! the leader at that time, and no client can have been answered without that prefix before the read arrived.
//!
//! This is the check of permissions by which leaders in Mu (OSDI '20, section 4) verify that they lead, used for reads
//! as Raft's dissertation (section 6.4) uses a round of heartbeats.

use super::GroupLog;
use super::followers::FollowerProgress;
use super::record::LogRecord;
use crate::guard;
use crate::mutants::Mutant;

impl<R: LogRecord> GroupLog<R> {
    /// As leader: our write number `number` is in the memory of the follower in `slot`. Numbers rise over all followers
    /// together.
    pub(crate) fn landed(&mut self, slot: u8, number: u64) {
        if let Some(follower) = &mut self.followers.progress[usize::from(slot)] {
            follower.landed = follower.landed.max(number);
        }
    }

    /// Whether this replica led, and no other did, at a moment at which all writes up to `number` had been posted. Then
    /// everything from before that moment is in our log.
    pub fn is_confirmed(&self, number: u64) -> bool {
        if !self.leads() || self.entries.commit < self.entries.first {
            return false;
        }
        let counts = |slot: &u8| {
            let Some(FollowerProgress { incarnation, landed, .. }) =
                self.followers.progress[usize::from(*slot)]
            else {
                return false;
            };
            let admitted = self.members.view.names(*slot, incarnation)
                && self.named_at_end(*slot) == incarnation;
            guard!(Mutant::ConfirmedByUnnamedIncarnation, admitted)
                && guard!(Mutant::ConfirmedBefore, landed > number)
        };
        let others = self.others().filter(counts).count();
        guard!(Mutant::ReadUnconfirmed, others + 1 >= self.quorum())
    }
}
