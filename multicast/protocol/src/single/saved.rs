//! The state at the commit index, as sent to a replica that has none.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Pending, Record, Single};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::MessageId;
use crate::logged_set::LoggedSet;
use crate::ordering::{NotRestored, OrderingProtocol as _};
use crate::rank::Rank;
use crate::view::View;

const VERSION: u8 = 1;

impl Single {
    /// Appends what a replica needs to go on from our commit index.
    pub(super) fn save_state(&mut self, into: &mut Vec<u8>) {
        let mut out = Writer(into);
        out.u8(VERSION);
        // The ballot comes first: it decides whether the state is of use.
        out.u64(self.log.ballot().to_word());
        let (commit, birth) = (self.log.commit_index(), self.log.commit_birth().to_word());
        out.words([commit, birth, self.log.last_time_ms(), self.base, self.delivered]);
        for member in self.log.view().members() {
            out.u32(member.incarnation);
            out.u8(u8::from(member.evicted));
        }
        out.u64(self.pending.len() as u64);
        for Pending { message, low_water, index, rank, time_ms, inline, .. } in &self.pending {
            out.message(*message);
            out.words([*low_water, *index, rank.number(), *time_ms]);
            out.u8(u8::from(*inline));
        }
        // Entries above the commit index may be lost, so the saved logged set must not contain their messages.
        let uncommitted = self.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Message { message, low_water, .. } => Some((message, low_water)),
            Record::Group(_) => None,
        });
        let uncommitted: Vec<(MessageId, u64)> = uncommitted.collect();
        for (message, _) in &uncommitted {
            self.logged.remove(*message);
        }
        self.logged.save(&mut out);
        for (message, low_water) in uncommitted {
            self.logged.insert(message, low_water);
        }
    }

    /// A replica of our incarnation that continues from a saved state.
    pub(super) fn with_state(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        let mut from = Reader(saved);
        let ballot = (|| (from.u8()? == VERSION).then(|| from.u64())?.map(Ballot::from_word))();
        let ballot = ballot.ok_or(NotRestored::Malformed)?;
        if ballot.generation() < self.log.promised().generation() {
            return Err(NotRestored::Outdated);
        }
        self.read(ballot, &mut from).ok_or(NotRestored::Malformed)
    }

    fn read(&self, ballot: Ballot, from: &mut Reader<'_>) -> Option<Self> {
        let [commit, birth, time_ms, base, delivered] = from.words()?;
        let replicas = self.config.group.replicas;
        let mut view = View::first(replicas);
        for slot in 0..replicas {
            view.join(slot, from.u32()?);
            if from.u8()? != 0 {
                view.evict(slot);
            }
        }
        let mut pending = VecDeque::new();
        for _ in 0..from.u64()? {
            let message = from.message()?;
            let [low_water, index, rank, time_ms] = from.words()?;
            let (rank, since_ms) = (Rank::new(rank), self.log.now_ms());
            let inline = from.u8()? != 0;
            pending.push_back(Pending {
                message,
                low_water,
                index,
                rank,
                time_ms,
                since_ms,
                inline,
            });
        }
        let logged = LoggedSet::restore(from)?;
        if !from.0.is_empty() {
            return None;
        }
        let mut log = self.log.blank();
        log.restore(commit, Ballot::from_word(birth), time_ms, view.clone(), ballot);
        Some(Self { log, logged, pending, delivered, base, ..Self::new(self.config, view) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::super::testing::{
        anew, config, deliveries, elect, follow, hold, leader, message, received, step,
    };
    use super::*;
    use crate::group::{Cause, GroupEvent, Role};
    use crate::ids::{GroupId, SessionId};
    use crate::ordering::{Inspect as _, MessageStage, Revival};

    /// A leader of a group that was recreated, at time 7,000. Message 1 is delivered; 2 and 3 are committed, and the
    /// payload of 3 is not in the log; 9 is only logged. Slot 1 counts in its incarnation 3, the log does not wait for
    /// slot 2, and one session has ended.
    fn busy() -> Single {
        let mut core = anew(View::of([0, 3, 0]), 100, 7_000);
        let other = MessageId::new(SessionId(2), 1);
        let destinations = crate::ids::GroupSet::single(GroupId(0));
        let event = Event::Received { message: other, low_water: 1, destinations, outside: 0 };
        step(&mut core, event);
        step(&mut core, Event::Group(GroupEvent::Evict { slot: 2 }));
        step(&mut core, received(1, true));
        hold(&mut core, 1);
        assert_eq!(deliveries(&mut core), [(1, 102, 1), (1, 104, 2)]);
        step(&mut core, Event::SessionEnded { session: other.session });
        for (sequence, inline) in [(2, true), (3, false)] {
            step(&mut core, received(sequence, inline));
        }
        hold(&mut core, 1);
        step(&mut core, received(9, true));
        assert_eq!((core.log.commit_index(), core.log.last_index()), (6, 7));
        core
    }

    fn saved(core: &mut Single) -> Vec<u8> {
        let mut bytes = Vec::new();
        core.save(&mut bytes);
        bytes
    }

    /// Slot 2, after it has lost its memory.
    fn blank() -> Single {
        let mut blank = Single::new(config(2, 1), View::first(3));
        step(&mut blank, Event::Tick { now_ms: 500 });
        blank
    }

    #[test]
    fn whoever_takes_a_state_goes_on_where_it_was_saved() {
        let mut core = busy();
        let bytes = saved(&mut core);
        assert!(core.is_logged(message(9)), "who saves forgets nothing");
        let mut learner = blank().restored(&bytes).expect("what was saved");
        assert_eq!(learner.log.role(), Role::Follower);
        assert_eq!((learner.log.last_index(), learner.log.last_birth()), (6, core.log.ballot()));
        assert_eq!(learner.log.promised(), core.log.ballot(), "it lets no earlier leader in");
        assert_eq!(learner.log.view(), core.log.view());
        assert_eq!(learner.log.last_time_ms(), 7_000);
        assert_eq!(learner.delivered(), 2);
        assert!(learner.has_ended(SessionId(2)) && !learner.has_ended(SessionId(1)));
        for (number, stage) in [
            (1, MessageStage::Delivered),
            (2, MessageStage::Pending),
            (3, MessageStage::Pending),
            (9, MessageStage::Unknown),
        ] {
            assert_eq!(learner.stage_of(message(number)), stage, "message {number}");
        }
        assert_eq!(learner.inspect().oldest_pending(), Some((500, message(2))), "by its own time");
        follow(&mut learner, core.log.ballot(), 6);
        assert_eq!(saved(&mut learner), bytes, "it could give the same one");
        let next = [core.deliver(), core.deliver(), core.deliver()];
        assert_eq!([learner.deliver(), learner.deliver(), learner.deliver()], next);
        assert!(next[1].is_some_and(|it| (it.rank.number(), it.time_ms) == (106, 7_000)));
    }

    #[test]
    fn whoever_leads_after_it_took_a_state_keeps_the_payloads_that_are_pending() {
        let bytes = saved(&mut busy());
        let mut core = Single::new(config(1, 3), View::first(3)).restored(&bytes).expect("a state");
        elect(&mut core, 0);
        assert!(core.log.keeps(message(3)) && !core.log.keeps(message(2)));
    }

    #[test]
    fn a_state_that_makes_no_sense_is_refused() {
        let bytes = saved(&mut busy());
        for cut in 0..bytes.len() {
            let malformed = Some(NotRestored::Malformed);
            assert_eq!(blank().restored(&bytes[..cut]).err(), malformed, "cut off at {cut}");
        }
        let refused = |bytes: &[u8]| blank().restored(bytes).err() == Some(NotRestored::Malformed);
        assert!(refused(&[&bytes[..], &[0]].concat()), "it is too long");
        assert!(refused(&[&[VERSION + 1], &bytes[1..]].concat()), "it is of another version");
        for at in 0..bytes.len() {
            for bits in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= bits;
                let _ = blank().restored(&changed); // Valid or malformed, but no panic.
            }
        }
    }

    #[test]
    fn a_state_of_a_former_generation_is_outdated() {
        let (mut core, slot) = (leader(), 0);
        let before = saved(&mut core);
        let marker = Ballot::revived(core.log.ballot_counter(), slot, 0).expect("a generation");
        core.revive(marker, Revival::Survivor { view: View::first(3), clock: 0 });
        let after = saved(&mut core);
        assert!(blank().restored(&before).is_ok() && blank().restored(&after).is_ok());
        let mut waiting = blank();
        waiting.revive(marker, Revival::Other);
        assert_eq!(waiting.restored(&before).err(), Some(NotRestored::Outdated));
        let restored = waiting.restored(&after).expect("it is of this generation");
        assert_eq!(restored.log.promised(), marker);
        // A state of a later generation is of use, too: the replica that saved it continues from another marker.
        let later = Ballot::revived(marker.counter(), slot, 0).expect("a generation");
        core.revive(later, Revival::Survivor { view: View::first(3), clock: 0 });
        assert!(waiting.restored(&saved(&mut core)).is_ok());
    }

    #[test]
    fn what_was_promised_is_promised_whatever_the_state_says() {
        let bytes = saved(&mut leader());
        let mut core = blank();
        let promised = Ballot::new(5, 1, 0);
        core.log.promise(promised);
        let mut restored = core.restored(&bytes).expect("a state");
        assert_eq!(restored.log.promised(), promised);
        assert!(restored.log.campaign(Cause::Silence) > promised);
    }
}
