//! Being fed by our leader.

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::GroupEvent;
use skein_protocol::group::frame::{Cursor, Frame, INDEX_AT, POSITION_AT};
use skein_protocol::group::transfer::Reception;
use skein_protocol::guard;
use skein_protocol::mutants::Mutant;
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;

use crate::application::Application;
use crate::election::{LogPart, Piece};
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica_links::ReplicaLinks;

impl<A: Application, O: Links> Replica<A, O> {
    /// Takes a part of our leader's log from the replica in slot `from`.
    pub(in crate::replica) fn take_log<F: Fabric>(
        &mut self,
        from: u8,
        part: LogPart,
        pieces: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let promised = self.core.log().promised();
        let (reader, fabric) = (&self.reader, &links.endpoint.fabric);
        let is_written =
            reader.awaiting && reader.leadership(&self.memory, promised, fabric).is_some();
        if is_written || !self.is_trusted() {
            return;
        }
        match self.core.log_mut().takes_log(from, &(&part).into()) {
            Reception::Ignored => return,
            Reception::Lost => {
                self.transfer.received = None;
                return;
            }
            Reception::First => {
                self.transfer.received = None;
                // Our leader writes our log no more, but some of what it wrote may be on its way.
                self.close_log(links);
                // A leader whose grant is older began at a place where our log no longer ends.
                self.reader.grants += 1;
                self.reader.await_leader(&self.memory, &links.endpoint.fabric);
                self.reader.answered = None;
            }
            Reception::Next => {}
        }
        self.paths.log_parts_taken += 1;
        if self.take_pieces(pieces, links).is_none() {
            tracing::error!(replica = %self.id, from, ?part, "a part of the log does not follow what is here: it is refused");
            self.stop_receiving();
            return;
        }
        self.stir();
        if part.last {
            if self.core.log().stalled_on().is_some() {
                self.cut_log(self.memory.end_of(self.core.log().last_index()), links);
            }
            self.transfer.fed_at = Some(self.exchange.last_delivered());
            tracing::info!(replica = %self.id, last = self.core.log().last_index(), "was fed the log that it lacked");
            self.tell_core(GroupEvent::FedAll, links);
        }
    }

    /// Takes the pieces of a part. Returns `None` if one does not follow what is here.
    fn take_pieces<F: Fabric>(
        &mut self,
        mut pieces: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) -> Option<()> {
        let ballot = self.core.log().promised();
        while let Some(piece) = Piece::next(&mut pieces) {
            match piece {
                Piece::Entry(bytes) => self.take_fed(bytes, ballot, links)?,
                Piece::Payload(bytes) => {
                    self.take_payload(bytes);
                    if let Some(message) = self.core.log().stalled_on()
                        && self.payloads.get(message).is_some()
                    {
                        self.receive_held(message, links);
                    }
                }
                Piece::Mark { commit, delivered } => {
                    if commit > self.core.log().last_index() {
                        return None;
                    }
                    let fed = GroupEvent::Fed { commit, delivered: Rank::new(delivered) };
                    self.tell_core(fed, links);
                    self.memory.pass_committed(self.core.log().commit_index());
                    // Our disk is read with no more room for what is not committed than our memory has.
                    self.record_delivered(links);
                }
            }
        }
        self.reader.cursor = self.memory.runs.end();
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.carry_out(links);
        pieces.is_empty().then_some(())
    }

    /// Takes a committed entry, unless it is here. Returns `None` if it does not follow what is here.
    fn take_fed<F: Fabric>(
        &mut self,
        bytes: &[u8],
        ballot: Ballot,
        links: &mut ReplicaLinks<F, O>,
    ) -> Option<()> {
        let (at, birth) = named(bytes)?;
        let index = at.index;
        let log = self.core.log();
        if index <= log.commit_index() {
            return Some(());
        }
        if index <= log.last_index() {
            if guard!(Mutant::FedSuffixKept, self.memory.runs.remembers(birth, index)) {
                return Some(());
            }
            self.cut_log(self.memory.end_of(index - 1), links);
        }
        let fits =
            at.position + bytes.len() as u64 <= self.memory.freed + self.memory.space.capacity();
        if !fits || self.core.log().stalled_on().is_some() {
            return None;
        }
        self.adopt_entry(bytes, ballot, links);
        let log = self.core.log();
        (log.last_index() == index || log.stalled_on().is_some()).then_some(())
    }
}

/// The place and the birth of an entry; `None` if it is none.
fn named(bytes: &[u8]) -> Option<(Cursor, Ballot)> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(word.try_into().expect("eight bytes")))
    };
    let at = Cursor { index: word(INDEX_AT)?, position: word(POSITION_AT)? };
    Some((at, Frame::parse(bytes, at)?.birth))
}
