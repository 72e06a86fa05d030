//! Feeding a follower, as its leader.

use skein_fabric::Fabric;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::{Left, Stage};
use skein_protocol::ids::ReplicaId;

use super::committed::Committed;
use crate::application::Application;
use crate::disk::ReadOn;
use crate::election::{Election, LogPart};
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica::log::RESERVE_FOR_CONTROL;
use crate::replica_links::ReplicaLinks;

/// Bytes of a part, unless its last piece is longer.
const PART_BYTES: usize = 48 << 10;
/// Limit of parts sent in one turn.
const PARTS_PER_TURN: usize = 2;
/// Limit of reads for a part: the first ones may hold nothing of what the receiver lacks.
const READS_PER_PART: usize = 8;
/// Limit of feeds of a replica from one place on: then it is sent the state. One is enough, unless the log grows faster.
const FEEDS_MAX: u32 = 3;
/// Limit of a receiver's requests for the next part: then our disk is taken for too slow.
const RESUMES_MAX: u32 = 5;

/// The log that a follower is fed.
pub(in crate::replica) struct Feed {
    slot: u8,
    committed: Committed,
    /// Everything that our disk had was read, a moment ago.
    at_end: bool,
    /// Number of requests for more since the last part.
    resumes: u32,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Begins to feed a replica whose committed log ends at `from`, if our disk has what follows, and little enough of it.
    /// Returns whether it does.
    pub(in crate::replica) fn begin_feeding<F: Fabric>(
        &mut self,
        slot: u8,
        from: Cursor,
        links: &mut ReplicaLinks<F, O>,
    ) -> bool {
        let group = self.id.group;
        let (end, state) = (self.memory.commit_end(), self.snapshot.state_bytes());
        let follower = &mut self.writer.followers[usize::from(slot)];
        let Some(disk) = &mut links.disk else { return false };
        if from.index > follower.fed_from {
            (follower.feeds, follower.fed_from) = (0, from.index);
        }
        let lacks = end.position.saturating_sub(from.position);
        let ours = from.index <= end.index;
        if !ours || follower.feeds >= FEEDS_MAX || !disk.feeds(group, lacks, state) {
            return false;
        }
        follower.feeds += 1;
        disk.begin_reading(group, from.index);
        tracing::info!(replica = %self.id, slot, from = from.index, bytes = lacks, "feeds a follower from its disk");
        self.paths.feeds += 1;
        let committed = Committed::behind(from);
        self.transfer.feed = Some(Feed { slot, committed, at_end: false, resumes: 0 });
        // The receiver asks again until a part is there, and the first records may take a while.
        self.send_log_part(slot, &[], Left::Much, links);
        true
    }

    /// A receiver has all parts that were sent, and asks for more.
    pub(in crate::replica) fn resume_feeding<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let Some(feed) = &mut self.transfer.feed else { return };
        feed.resumes += 1;
        if feed.resumes > RESUMES_MAX {
            self.give_up_feeding(links);
        }
    }

    /// Sends the next parts of the log, if the follower that is fed has room. Returns whether there were any, or the disk
    /// is being read.
    pub(in crate::replica) fn send_log<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> bool {
        let mut any = false;
        for _ in 0..PARTS_PER_TURN {
            let Some(Feed { slot, .. }) = self.transfer.feed else { break };
            let sends = self.core.log().sends_state();
            let sends = matches!(sends, Some((to, Stage::Sending { .. })) if to == slot);
            if !sends || !links.has_sent_all(self.id, ReplicaId::new(self.id.group, slot)) {
                break;
            }
            any = true; // Nobody wakes us when more was read.
            if !self.read_for_feed(links) {
                self.give_up_feeding(links);
                break;
            }
            let Some(feed) = &mut self.transfer.feed else { break };
            let part = feed.committed.part(PART_BYTES);
            let (end, all) = (feed.committed.end(), feed.committed.ready_bytes() == 0);
            // As we admit it then.
            let reserve = RESERVE_FOR_CONTROL as u64;
            let kept = end.position >= self.memory.freed
                || self.memory.space.retains(end.position, reserve);
            if feed.at_end && all && kept {
                self.end_feeding(slot, end, &part, links);
                break;
            }
            if part.is_empty() {
                break;
            }
            feed.resumes = 0;
            self.send_log_part(slot, &part, Left::Much, links);
        }
        any
    }

    /// Reads what the next part needs, if it is there. Returns whether our disk still has what follows.
    fn read_for_feed<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        let (Some(feed), Some(disk)) = (&mut self.transfer.feed, &mut links.disk) else {
            return false;
        };
        let Feed { committed, at_end, .. } = feed;
        for _ in 0..READS_PER_PART {
            if committed.ready_bytes() >= PART_BYTES {
                break;
            }
            let mut taken = Ok(());
            let read = disk.read_on(self.id.group, &mut |kind, bytes| {
                if taken.is_ok() {
                    taken = committed.take(kind, bytes);
                }
            });
            match read {
                ReadOn::Some if taken.is_ok() => *at_end = false,
                ReadOn::Some | ReadOn::Gone => return false,
                ReadOn::Pending => break,
                ReadOn::End => {
                    *at_end = true;
                    break;
                }
            }
        }
        true
    }

    /// Our disk has no more what the follower lacks, or reads too slowly: it is sent the state when it asks again.
    fn give_up_feeding<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let Some(Feed { slot, .. }) = self.transfer.feed else { return };
        tracing::info!(replica = %self.id, slot, "its disk has no more what a follower lacks");
        self.paths.feeds_cut += 1;
        self.writer.followers[usize::from(slot)].feeds = FEEDS_MAX;
        self.stop_sending_to(slot);
        self.carry_out(links);
    }

    /// Sends the last part: what follows is in our memory, and is kept there until the follower lets us write its log.
    fn end_feeding<F: Fabric>(
        &mut self,
        slot: u8,
        end: Cursor,
        part: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.memory.space.hold(end.position);
        let follower = &mut self.writer.followers[usize::from(slot)];
        follower.attempt += 1;
        follower.freed = end.position;
        self.paths.fed += 1;
        self.send_log_part(slot, part, Left::Nothing, links);
        self.stop_feeding(links);
    }

    fn send_log_part<F: Fabric>(
        &mut self,
        slot: u8,
        pieces: &[u8],
        left: Left,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let part = self.core.log_mut().sends_part(left);
        let (copy, last) = (part.copy.into(), left == Left::Nothing);
        let part = LogPart { incarnation: part.incarnation, copy, number: part.number, last };
        self.tell_member(slot, &Election::Log(part), pieces, links);
    }

    /// Drops what a follower is fed, if one is.
    pub(in crate::replica) fn stop_feeding<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if self.transfer.feed.take().is_some()
            && let Some(disk) = &mut links.disk
        {
            disk.end_reading(self.id.group);
        }
    }
}
