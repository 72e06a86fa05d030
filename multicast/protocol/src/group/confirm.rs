//! Reads that a quorum confirms: who leads finds out, after it was asked, that nobody else did before,
//! and then answers of its own. It takes no place in the log, no clock, and nothing of the followers'
//! processors, but where these place what peers write, as over tcp.
//!
//! A replica closes its log to the leader before it grants another ballot. So a write that was posted
//! behind a question, and landed in the log of a follower, says of a moment behind the question that
//! this follower had granted nobody else yet. Whatever is written anyhow will do; where nothing is, a
//! word in front of the log.
//!
//! **Invariant (confirmation).** When a leader is confirmed, no ballot above its own had f+1 grants when it
//! was asked. It has granted none itself, and neither had f others whose memory it has written since. Every
//! f+1 that grant another ballot have one of these slots in common. Its incarnation there was another one: if a later
//! one, that grants only when its `Join` is committed, and by then the log of whoever leads names it; if
//! an earlier one, its grant counts for nobody, because every log that can be adopted names the one that we
//! count. For both, the leader counts only incarnations whose `Join` it knows to be committed, with no other one
//! logged behind it. An incarnation that is dead may be counted: it has granted nothing either.
//!
//! So whatever anybody was answered before the question was delivered in our ballot or an earlier one, as a
//! [lease](super::lease) would say of the same moment; what is to be delivered before the read is made is the
//! same, too. Who is confirmed need not look again behind the read: what is read later is of a prefix of the
//! log of whoever leads by then, and nobody can have been answered without it who was before the question.
//!
//! This is the check of permissions by which leaders in Mu (OSDI '20, section 4) know that they lead, used
//! for reads as Raft's dissertation (section 6.4) uses a round of heartbeats.

use super::GroupLog;
use super::followers::FollowerProgress;
use super::record::LogRecord;
use crate::guard;
use crate::mutants::Mutant;

impl<R: LogRecord> GroupLog<R> {
    /// As leader: our write under `number` is in the memory of the follower that we feed. Numbers rise, for
    /// all followers together.
    pub(crate) fn landed(&mut self, slot: u8, number: u64) {
        if let Some(follower) = &mut self.followers.progress[usize::from(slot)] {
            follower.landed = follower.landed.max(number);
        }
    }

    /// Whether we have led at a moment at which all writes had been posted up to this number, and no other
    /// one: what came before that moment is in our log.
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
