//! Leader change where it meets memory: who may write our log, and whose log is taken over.

use skein_fabric::{Fabric, Peer, RegionKey, Source};
use skein_protocol::ballot::Ballot;
use skein_protocol::detector::Pulse;
use skein_protocol::group::frame::{self, Cursor, Leadership};
use skein_protocol::group::transfer::Stage;
use skein_protocol::group::{
    Applied, Asked, Backlog, Closing, Control, GroupEffect, GroupEvent, Question, SLOTS,
};
use skein_protocol::guard;
use skein_protocol::ids::{MessageId, ReplicaId};
use skein_protocol::log::{Body, Entry, Payload};
use skein_protocol::message::{Head, decode_name, encode_name};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ramcast::Cause;
use skein_protocol::step::Event;

use super::log::RESERVE_FOR_CONTROL;
use super::{Answered, Replica};
use crate::application::Application;
use crate::channel::Kind;
use crate::election::{Election, Granted, Piece, Prepare, cursor, place};
use crate::wakes::Hurry;
use crate::wiring::{Column, Note, Wiring};

impl<A: Application> Replica<A> {
    /// Once a tick: takes in who is alive, sets out to lead if it is time, asks those who have not
    /// answered, and lets in or evicts whom the log waits for.
    pub(crate) fn keep_group<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        for slot in self.other_slots() {
            let beats = wiring.beats(ReplicaId::new(self.id.group, slot));
            let pulse = if beats { Pulse::Beat } else { Pulse::Missed };
            self.core.step(Event::Heartbeat { slot, pulse }, &mut self.effects);
        }
        self.tell_core(GroupEvent::Watched { trusted: self.is_trusted() }, wiring);
        self.pursue_wish(wiring);
        self.give_up_unanswering();
        self.evict_blockers();
        self.carry_out(wiring);
    }

    /// A replica's process has ended, or our connection to it; `died`, if it is certainly the process.
    pub(crate) fn saw_death<F: Fabric>(
        &mut self,
        slot: u8,
        died: Option<Peer>,
        wiring: &mut Wiring<F>,
    ) {
        self.stir();
        if died.is_some() && died == self.granted {
            self.core.step(Event::Group(GroupEvent::LeaderDied), &mut self.effects);
        }
        self.core.step(Event::Heartbeat { slot, pulse: Pulse::Dead }, &mut self.effects);
        self.follower_lost(slot);
        self.stop_teaching(slot);
        self.carry_out(wiring);
    }

    /// Something has happened that concerns the group alone.
    pub(super) fn tell_core<F: Fabric>(&mut self, event: GroupEvent, wiring: &mut Wiring<F>) {
        self.core.step(Event::Group(event), &mut self.effects);
        self.carry_out(wiring);
    }

    /// Sets out to lead, as soon as what it has promised allows it to; unless it would answer from a state that is not
    /// the group's.
    pub(crate) fn set_out<F: Fabric>(&mut self, cause: Cause, wiring: &mut Wiring<F>) {
        if self.is_trusted() {
            self.tell_core(GroupEvent::SetOut { cause }, wiring);
        }
    }

    /// Does what the group asks for.
    pub(super) fn carry_out_of_group<F: Fabric>(
        &mut self,
        effect: GroupEffect,
        wiring: &mut Wiring<F>,
    ) {
        match effect {
            GroupEffect::CloseLog { then } => self.close_log_for(then, wiring),
            GroupEffect::SetsOut { ballot, cause } => self.sets_out(ballot, cause, wiring),
            GroupEffect::NoBallotLeft => {
                if !std::mem::replace(&mut self.exhausted, true) {
                    tracing::error!(
                        replica = %self.id,
                        "has no ballot left to lead in: its group has had 16,777,215 elections since it was created or \
                         recreated; copy its data to a new cluster while somebody leads it"
                    );
                }
            }
            GroupEffect::Ask { to, question } => self.ask_for_grant(to, question, wiring),
            GroupEffect::Grant(asked) => {
                wiring.note(|| Note::Promised { by: self.id, ballot: asked.question.ballot });
                self.forget_followers();
                self.report(asked, wiring);
            }
            GroupEffect::GrantAgain(asked) => {
                let peer = wiring.peer_of(ReplicaId::new(self.id.group, asked.by));
                match self.answered.filter(|answered| answered.answers(&asked, peer)) {
                    None => {
                        self.close_log(wiring);
                        self.report(asked, wiring);
                    }
                    Some(answered) => self.report_again(asked, answered, wiring),
                }
            }
            GroupEffect::Refuse { to, promised } => {
                let promised = promised.to_word();
                self.tell_member(to, &Election::Refused { promised }, &[], wiring);
            }
            GroupEffect::Keep { of } => {
                self.grants_received[usize::from(of)] = self.heard_grant.take();
            }
            GroupEffect::TakeOver { of } => self.take_over_log(of, wiring),
            GroupEffect::Admit { slot } => {
                if let Some((granted, _)) = self.heard_grant.take() {
                    self.admit(slot, &granted, wiring);
                }
            }
            GroupEffect::AskForLease { number } => {
                let ballot = self.core.log().ballot().to_word();
                for slot in self.other_slots() {
                    self.ask_member(slot, &Election::Lease { ballot, number }, wiring);
                }
            }
            GroupEffect::PromiseLease { to, ballot, number } => {
                let (ballot, incarnation) = (ballot.to_word(), self.incarnation);
                let promised = Election::Promised { ballot, number, incarnation };
                self.ask_member(to, &promised, wiring);
            }
            GroupEffect::TellAdmitted { to, incarnation } => {
                let ballot = self.core.log().ballot().to_word();
                self.ask_member(to, &Election::Admitted { ballot, incarnation }, wiring);
            }
            GroupEffect::GiveUp { slot, evicted } => {
                tracing::warn!(replica = %self.id, slot, evicted, "goes on without a replica that holds it up");
                self.paths.learner_given_up += u64::from(!evicted);
                self.stop_teaching(slot);
                self.follower_lost(slot);
            }
            GroupEffect::Succeed { to } => {
                let ballot = self.core.log().ballot().to_word();
                self.ask_member(to, &Election::Succeed { ballot }, wiring);
            }
        }
    }

    /// Closes the log, and tells what is to come then.
    fn close_log_for<F: Fabric>(&mut self, then: Closing, wiring: &mut Wiring<F>) {
        if matches!(then, Closing::SetOut(_)) {
            self.set_out_at = Some(wiring.port.fabric.now());
        }
        if matches!(then, Closing::Grant(_)) && planted(Mutant::GrantWithoutRevoking) {
            self.read_log(wiring, usize::MAX);
        } else {
            self.close_log(wiring);
        }
        self.tell_core(GroupEvent::LogClosed { then }, wiring);
    }

    /// Our log is closed, and we ask to lead.
    fn sets_out<F: Fabric>(&mut self, ballot: Ballot, cause: Cause, wiring: &mut Wiring<F>) {
        wiring.note(|| Note::Promised { by: self.id, ballot });
        tracing::info!(replica = %self.id, %ballot, ?cause, "sets out to lead");
        // Nothing more is read: our log is ours, or somebody's whom we let in.
        self.awaiting = true;
        self.header_seen = self.header_there(&wiring.port.fabric);
        self.forget_followers();
        self.grants_received.fill_with(|| None);
    }

    pub(super) fn forget_followers(&mut self) {
        for slot in 0..self.topology.replicas {
            self.follower_lost(slot);
            self.followers[usize::from(slot)].forget_writes();
        }
        self.forget_led_reads();
    }

    fn ask_for_grant<F: Fabric>(&self, to: u8, question: Question, wiring: &mut Wiring<F>) {
        let Question { ballot, leads, forced } = question;
        let (ballot, attempt) = (ballot.to_word(), self.followers[usize::from(to)].attempt);
        let (commit, admitted) = (place(self.commit_end()), self.core.log().admitted());
        let prepare = Prepare { ballot, leads, forced, attempt, commit, admitted };
        self.ask_member(to, &Election::Prepare(prepare), wiring);
    }

    pub(super) fn other_slots(&self) -> impl Iterator<Item = u8> + use<A> {
        let me = self.id.slot;
        (0..self.topology.replicas).filter(move |slot| *slot != me)
    }

    /// Asks something that is asked again until it is answered.
    pub(super) fn ask_member<F: Fabric>(&self, slot: u8, what: &Election, wiring: &mut Wiring<F>) {
        wiring.ask(self.id, ReplicaId::new(self.id.group, slot), Kind::Election, &what.encode());
    }

    pub(super) fn tell_member<F: Fabric>(
        &mut self,
        slot: u8,
        what: &Election,
        tail: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        let to = ReplicaId::new(self.id.group, slot);
        wiring.send(self.id, to, Kind::Election, &what.encode(), tail);
    }

    /// Right behind the last entry that is committed and folded.
    pub(crate) fn commit_end(&self) -> Cursor {
        Cursor { index: self.freed_index + 1, position: self.freed }
    }

    /// Another replica asks to write our log.
    pub(super) fn prepare<F: Fabric>(&mut self, by: u8, asked: &Prepare, wiring: &mut Wiring<F>) {
        let Prepare { ballot, leads, forced, attempt, commit, ref admitted } = *asked;
        self.look_whether_leader_lives(by, wiring);
        let question = Question { ballot: Ballot::from_word(ballot), leads, forced };
        let asked = Asked { by, question, attempt, from: cursor(commit) };
        self.core.control(by, Control::Prepare { asked, admitted }, &mut self.effects);
    }

    /// A refusal for the sake of a leader that is dead would only cost time.
    fn look_whether_leader_lives<F: Fabric>(&mut self, asks: u8, wiring: &mut Wiring<F>) {
        let other = |leader: &ReplicaId| *leader != self.id && leader.slot != asks;
        let Some(leader) = self.core.log().leader().filter(other) else { return };
        let Some(peer) = wiring.peer_of(leader) else { return };
        if wiring.port.fabric.is_gone(peer) {
            let event = Event::Heartbeat { slot: leader.slot, pulse: Pulse::Dead };
            self.core.step(event, &mut self.effects);
            if self.granted == Some(peer) && wiring.port.fabric.has_died(peer) {
                self.core.step(Event::Group(GroupEvent::LeaderDied), &mut self.effects);
            }
        }
    }

    /// Lets who asked write our log, and tells it what the log holds.
    fn report<F: Fabric>(&mut self, asked: Asked, wiring: &mut Wiring<F>) {
        let from = ReplicaId::new(self.id.group, asked.by);
        let Some(peer) = wiring.peer_of(from) else { return };
        // Where memory is short, what we held as a leader may be what our log needs.
        self.leave_logs(wiring);
        let granted = if planted(Mutant::GrantWithoutRevoking) && self.granted.is_some() {
            Ok(RegionKey([u8::MAX; 32]))
        } else {
            wiring.port.fabric.grant(self.log, peer)
        };
        let key = match granted {
            Ok(key) => key.0,
            Err(error) => {
                return tracing::warn!(%error, replica = %self.id, "cannot let a leader write");
            }
        };
        let (ballot, attempt) = (asked.question.ballot, asked.attempt);
        self.granted = Some(peer);
        self.grants += 1;
        self.awaiting = true;
        self.header_seen = self.header_there(&wiring.port.fabric);
        self.core.log_mut().lags_no_more();
        tracing::info!(replica = %self.id, to = %from, %ballot, end = self.runs.end().index - 1, "grants");
        let at_ms = self.core.log().now_ms();
        self.tell_granted(asked, Answered { ballot, attempt, peer, key, at_ms }, wiring);
    }

    /// Tells the same grant once more, if nothing has come of it for long. It was lost, or the answer to it
    /// was, where a channel was refused for lack of memory: what waited for it is gone, and nobody else would say
    /// it again. Until a leader's first words are here our log is what it was.
    fn report_again<F: Fabric>(
        &mut self,
        asked: Asked,
        answered: Answered,
        wiring: &mut Wiring<F>,
    ) {
        let (now, to) = (self.core.log().now_ms(), ReplicaId::new(self.id.group, asked.by));
        let waits = self.awaiting && self.core.log().lagging().is_none();
        let due = now >= answered.at_ms + self.config.group.patience_ms;
        if waits && due && wiring.has_sent_all(self.id, to) {
            self.paths.granted_again += 1;
            self.tell_granted(asked, Answered { at_ms: now, ..answered }, wiring);
        }
    }

    fn tell_granted<F: Fabric>(
        &mut self,
        asked: Asked,
        answered: Answered,
        wiring: &mut Wiring<F>,
    ) {
        self.answered = Some(answered);
        let mut tail = Vec::new();
        let whole = self.collect(asked.from, &wiring.port.fabric, &mut tail);
        let granted = Granted {
            ballot: asked.question.ballot.to_word(),
            attempt: asked.attempt,
            incarnation: self.incarnation,
            grant: self.grants,
            key: answered.key,
            named: self.core.log().named(),
            runs: self.runs.iter().map(|(birth, first)| (birth.to_word(), place(first))).collect(),
            end: place(self.runs.end()),
            freed: self.freed,
            whole,
            applied: self.last_applied,
            held_from: self.held_from(&wiring.port.fabric),
        };
        self.tell_member(asked.by, &Election::Granted(granted), &tail, wiring);
    }

    /// Collects our log's entries from `from` on, and the payloads they do not hold. False if some
    /// of it is overwritten.
    fn collect<F: Fabric>(&self, from: Cursor, fabric: &F, into: &mut Vec<u8>) -> bool {
        let end = self.runs.end();
        let capacity = self.space.capacity();
        if from.position + capacity < end.position {
            return false;
        }
        let mut at = from;
        while at.index < end.index {
            let Some(bytes) = self.raw_entry(&mut at, fabric) else { return false };
            let Some(entry) = Entry::parse(&bytes, at) else { return false };
            if !self.is_of_our_log(&entry, at.index) {
                return false;
            }
            if let Body::Local { message, payload: Payload::Held { .. }, .. } = entry.body
                && let Some(held) = self.payloads.get(message)
            {
                let mut piece = Vec::new();
                encode_name(message, &mut piece);
                let (sequence, low_water) = (message.sequence, held.low_water);
                Head { sequence, low_water, destinations: held.destinations }.encode(&mut piece);
                piece.extend_from_slice(&held.bytes);
                Piece::Payload(&piece).encode(into);
            }
            if entry.body != Body::Pad {
                Piece::Entry(&bytes).encode(into);
            }
            entry.body.step_over(&mut at, announced(&bytes));
        }
        true
    }

    /// Whether an entry that is found in our memory at an index is the one of our log. In front of a state that
    /// was taken, memory still has what stood there before, and that may have been cut off.
    pub(super) fn is_of_our_log(&self, entry: &Entry<'_>, index: u64) -> bool {
        entry.body == Body::Pad || self.runs.remembers(entry.birth, index)
    }

    /// The bytes of the entry at a cursor: of a pad, only its header.
    pub(super) fn raw_entry<F: Fabric>(&self, at: &mut Cursor, fabric: &F) -> Option<Vec<u8>> {
        let capacity = self.space.capacity();
        let offset = at.offset(capacity);
        let mut header = [0; frame::HEADER];
        fabric.copy_out(self.log, offset, &mut header);
        let len = frame::announced_len(&header, *at, capacity)?;
        let mut bytes = header.to_vec();
        if !frame::is_pad(&header) {
            bytes.resize(len, 0);
            fabric.copy_out(self.log, offset, &mut bytes);
        }
        Some(bytes)
    }

    /// Another replica lets us write its log.
    pub(super) fn granted<F: Fabric>(
        &mut self,
        slot: u8,
        granted: Granted,
        tail: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        let follower = &self.followers[usize::from(slot)];
        let awaited = follower.log.is_none() && granted.attempt == follower.attempt;
        if self.core.log().leads() && !awaited {
            return;
        }
        let named = granted.named.clone();
        let grants = Control::Granted {
            ballot: Ballot::from_word(granted.ballot),
            incarnation: granted.incarnation,
            last: (granted.runs().last_birth(), granted.end.0 - 1),
            named: &named,
            applied: Applied::new(granted.applied),
        };
        self.heard_grant = Some((granted, tail.to_vec()));
        self.core.control(slot, grants, &mut self.effects);
        self.carry_out(wiring);
        self.heard_grant = None;
    }

    /// We are elected: takes over the log of slot `best`, and leads.
    fn take_over_log<F: Fabric>(&mut self, best: u8, wiring: &mut Wiring<F>) {
        if best != self.id.slot && !self.adopt(best, wiring) {
            // Whoever holds it may never find the time to set out: we would ask it again and again.
            tracing::info!(replica = %self.id, best, "is too far behind to lead");
            let ballot = self.core.log().promised();
            self.core.log_mut().lags_behind(ballot);
            self.paths.handed_over += 1;
            let ballot = ballot.to_word();
            self.tell_member(best, &Election::Succeed { ballot }, &[], wiring);
            return;
        }
        self.learn_committed();
        let end = self.runs.end();
        self.space.resume(end, self.freed);
        if !self.space.retains(self.freed, 2 * frame::HEADER as u64) {
            // As far as those know who have granted, the log is full of what is not committed. That is no error:
            // they need not know. The others are asked on, and this is tried again with each grant. One that knows
            // more says so with its grant, or sets out itself when nothing comes of us, and has room then.
            //
            // Nobody has room only if the knowledge is gone with its holders, and of what a log reserves for control
            // not even a ballot is left: after a full log, some thirty leaders in a row, none of whom committed its
            // first entry. No entry may be given up for another then, since each may be committed. Such a group
            // waits until a replica comes back that knows more; `status` says that nobody leads it.
            tracing::info!(replica = %self.id, "has no room in its log for a ballot of its own yet");
            return;
        }
        self.rewritten = end;
        for follower in &mut self.followers {
            follower.freed = self.freed;
        }
        tracing::info!(replica = %self.id, ballot = %self.core.log().promised(), end = end.index - 1, "leads");
        self.tell_core(GroupEvent::TookOver, wiring);
        for given in &mut self.given {
            given.asked = 0;
        }
        for (slot, grant) in std::mem::take(&mut self.grants_received).into_iter().enumerate() {
            self.grants_received.push(None);
            // One that was asked anew since closes its log to this grant, and answers once more.
            if let Some((grant, _)) = grant
                && grant.attempt == self.followers[slot].attempt
            {
                self.admit(slot as u8, &grant, wiring);
            }
        }
        self.unproposed = true;
        self.write_followers(wiring);
    }

    /// Whatever a granter has committed is part of the log that was adopted, and is committed here as well.
    fn learn_committed(&mut self) {
        let granted = self.grants_received.iter().flatten();
        let freed = granted.map(|(granted, _)| granted.freed).max().unwrap_or(0);
        let committed = self.ends.iter().rev().find(|(_, end)| *end <= freed);
        if let Some(index) = committed.map(|(index, _)| *index) {
            self.core.step(Event::Group(GroupEvent::Learned { index }), &mut self.effects);
            self.pass_committed();
        }
    }

    /// What sessions sent us and nobody has logged is ours to propose now, as far as the log has room.
    pub(super) fn propose_held<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        if !self.unproposed || !self.core.log().leads() {
            return;
        }
        for message in self.payloads.messages() {
            if self.core.is_known(message) {
                continue;
            }
            if !self.log_has_room() {
                return;
            }
            self.receive_held(message, wiring);
        }
        self.unproposed = false;
    }

    /// Makes our log what slot `best` reported. False if what it reported does not reach back to
    /// what we have.
    fn adopt<F: Fabric>(&mut self, best: u8, wiring: &mut Wiring<F>) -> bool {
        // The grant stays: whoever's log is adopted in the end, this one is let in.
        let Some((granted, tail)) = &mut self.grants_received[usize::from(best)] else {
            return false;
        };
        let (runs, end, tail) = (granted.runs(), cursor(granted.end), std::mem::take(tail));
        let Some(base) = self.runs.shared(&runs).filter(|_| granted.whole) else {
            return false;
        };
        self.cut_log(base);
        let ballot = self.core.log().promised();
        let mut rest = &tail[..];
        while let Some(piece) = Piece::next(&mut rest) {
            match piece {
                Piece::Payload(bytes) => self.take_payload(bytes),
                Piece::Entry(bytes) => self.adopt_entry(bytes, ballot, wiring),
            }
            if self.core.stalled_on().is_some() {
                // Nobody who reported has that payload any more: what comes behind it is not ours.
                self.cut_log(self.end_of(self.core.log().last_index()));
                break;
            }
        }
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.runs.end() == end
    }

    fn take_payload(&mut self, bytes: &[u8]) {
        let read = decode_name(bytes).and_then(|(name, rest)| Some((name, Head::decode(rest)?)));
        if let Some((message, (Head { low_water, destinations, .. }, payload))) = read {
            self.payloads.replace(message, low_water, destinations, payload);
        }
    }

    /// Puts an entry of another's log behind ours, as written by us.
    fn adopt_entry<F: Fabric>(&mut self, bytes: &[u8], ballot: Ballot, wiring: &mut Wiring<F>) {
        let capacity = self.space.capacity();
        let mut at = self.runs.end();
        let Some(position) = bytes.get(16..24).and_then(|word| word.try_into().ok()) else {
            return;
        };
        let position = u64::from_le_bytes(position);
        let fabric = &mut wiring.port.fabric;
        if position > at.position {
            let offset = at.offset(capacity);
            if at.position < position {
                let mut pad = Vec::new();
                frame::encode_pad(at, (position - at.position) as usize, ballot, &mut pad);
                fabric.copy_in(self.log, offset, &pad);
                at.position = position;
            }
        }
        let Some(entry) = Entry::parse(bytes, at) else { return };
        let mut rewritten = bytes.to_vec();
        frame::rewrite(&mut rewritten, ballot);
        let offset = at.offset(capacity);
        fabric.copy_in(self.log, offset, &rewritten);
        self.note_entry(at.index, entry.birth, at.position + bytes.len() as u64);
        self.take_entry(at.index, &entry, wiring);
    }

    /// As leader: begins to write a log that its replica has opened to us, from where it differs from
    /// ours.
    fn admit<F: Fabric>(&mut self, slot: u8, granted: &Granted, wiring: &mut Wiring<F>) {
        let follower = ReplicaId::new(self.id.group, slot);
        let Some(peer) = wiring.peer_of(follower) else { return };
        let member = self.core.log().view().member(slot);
        let named = member.incarnation == granted.incarnation;
        let shared = self.runs.shared(&granted.runs());
        let theirs = cursor(granted.end);
        let wrong = planted(Mutant::WrongBase) && theirs.position <= self.runs.end().position;
        let base = if wrong { Some(theirs) } else { shared };
        // Room for what must always be written, or it could never let the others go on. What is not
        // committed is kept anyway, full or not, and no state holds it.
        let reserve = RESERVE_FOR_CONTROL as u64;
        let kept = |base: &Cursor| base.position >= self.freed;
        let base = base.filter(|base| kept(base) || self.space.retains(base.position, reserve));
        // A learner that could not deliver what it was fed would only be fed more: it needs the state.
        let learns = !named || member.evicted;
        // But it refuses our state if its log goes on behind our last committed entry: others may count on that, and perhaps
        // we can commit nothing without it. Then it is fed.
        let given = self.core.log().sends_state() == Some((slot, Stage::Sent));
        let committed = self.core.log().commit_index();
        let refuses = given && base.is_some_and(|base| base.index - 1 > committed);
        let needs_state = learns && (planted(Mutant::KeptLogNotFed) || !refuses);
        let base = base.filter(|_| !(needs_state && self.core.is_granter_behind(slot)));
        // Nor one that sees nothing committed, as it hears its leader alone: what it keeps of its log would grow with
        // each time that it is let in.
        let fits = self.space.retains(granted.freed, reserve);
        let base = base.filter(|_| guard!(Mutant::LogKeptBeyondRing, fits || !needs_state));
        let base = base.filter(|base| self.rewrite_from(*base, &mut wiring.port.fabric));
        let Some(base) = base else {
            // It answers this ballot again only as long as it has not heard of this.
            self.paths.behind += 1;
            let end = shared.map(|base| self.ends_at(base));
            let event = GroupEvent::OutOfReach { slot, end };
            self.core.step(Event::Group(event), &mut self.effects);
            let ballot = self.core.log().ballot().to_word();
            return self.tell_member(slot, &Election::Behind { ballot }, &[], wiring);
        };
        let log = match wiring.port.fabric.attach(peer, &RegionKey(granted.key)) {
            Ok(log) => log,
            Err(error) => {
                self.followers[usize::from(slot)].attempt += 1;
                return tracing::warn!(%error, %follower, "a granted log was of no use");
            }
        };
        let (ballot, grant) = (self.core.log().ballot(), granted.grant);
        let before = self.written_before(slot, granted, base, &mut wiring.port.fabric);
        let (first, held_from) = (self.core.log().first_index(), before.start);
        let header = Leadership { ballot, base, grant, first, held_from }.encode();
        // What it has applied it tells when it has this header; what it told before may be a former life's.
        wiring.forget_word(self.id, follower, Column::Applied);
        if let Err(error) = wiring.port.fabric.write(log, 0, Source::Inline(&header), None) {
            wiring.port.fabric.detach(log);
            self.followers[usize::from(slot)].attempt += 1;
            return tracing::debug!(%error, %follower, "a granted log cannot be written");
        }
        wiring.port.wake_later(peer);
        let ours = &mut self.followers[usize::from(slot)];
        ours.let_in(log, base.position, granted.freed);
        // A quorum may lack what this follower is yet to be written.
        self.awaited = true;
        self.space.hold(if fits { base.position.min(granted.freed) } else { base.position });
        ours.joining = learns.then_some(granted.incarnation);
        self.stop_teaching(slot);
        self.paths.admitted += 1;
        let (incarnation, held_from) = (granted.incarnation, granted.held_from);
        let event = GroupEvent::Feeds { slot, incarnation, held_from };
        self.core.step(Event::Group(event), &mut self.effects);
        self.write_log(slot, before, 0, Hurry::Now, wiring);
        tracing::info!(replica = %self.id, %follower, base = base.index - 1, "writes a follower's log");
    }

    /// Position at which an entry begins: where less than a header is left of the ring it is the ring's beginning.
    pub(super) fn ends_at(&self, base: Cursor) -> u64 {
        let mut end = Cursor { index: 0, position: base.position };
        end.offset(self.space.capacity());
        end.position
    }

    /// Makes what our log holds from `base` on written in our ballot, as a follower expects it. False
    /// if our memory does not reach back to there: we were given the state behind it.
    pub(super) fn rewrite_from<F: Fabric>(&mut self, base: Cursor, fabric: &mut F) -> bool {
        let ballot = self.core.log().ballot();
        let mut at = base;
        while at.position < self.rewritten.position {
            let Some(mut bytes) = self.raw_entry(&mut at, fabric) else { return false };
            let Some(entry) = Entry::parse(&bytes, at) else { return false };
            if !self.is_of_our_log(&entry, at.index) {
                return false;
            }
            let (body_is_pad, len) = (entry.body == Body::Pad, announced(&bytes));
            frame::rewrite(&mut bytes, ballot);
            let offset = at.offset(self.space.capacity());
            fabric.copy_in(self.log, offset, &bytes);
            at.position += len as u64;
            at.index += u64::from(!body_is_pad);
        }
        if base.position < self.rewritten.position {
            self.rewritten = base;
        }
        true
    }

    /// As follower: asks our leader about messages that we cannot deliver.
    pub(super) fn ask_for_decisions<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let Some(leader) = self.core.log().leader().filter(|leader| *leader != self.id) else {
            return;
        };
        let lacks = self.core.lacks();
        if !lacks.is_empty() {
            let name = |message: MessageId| (message.session.0, message.sequence);
            let messages = lacks.into_iter().map(name).collect();
            self.ask_member(leader.slot, &Election::Lacks { messages }, wiring);
        }
    }

    /// As leader: lets in whoever has all of our log by now.
    pub(super) fn let_in<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        if !self.core.log().leads() {
            return;
        }
        for slot in 0..self.topology.replicas {
            let follower = &self.followers[usize::from(slot)];
            let Some(incarnation) = follower.joining.filter(|_| follower.has_all()) else {
                continue;
            };
            if self.core.log().view().names(slot, incarnation)
                && !self.core.log().view().member(slot).evicted
            {
                self.followers[usize::from(slot)].joining = None;
                self.core.log_mut().asks_no_more(slot);
                tracing::info!(replica = %self.id, slot, incarnation, "is let in");
            } else {
                let event = GroupEvent::CaughtUp { slot, incarnation };
                self.core.step(Event::Group(event), &mut self.effects);
            }
        }
        self.carry_out(wiring);
    }

    /// As leader: a full log that cannot go on for the sake of one that lags goes on without it; and so
    /// does one whose sessions wait because payloads are kept for it, or because it has yet to deliver too many
    /// messages.
    pub(super) fn evict_blockers(&mut self) {
        let still = |len: &usize| self.core.log().keeps_delivered() && self.exceeds_budget(*len);
        self.refused_relay = self.refused_relay.filter(still);
        let refused = std::mem::take(&mut self.refused) || self.refused_relay.is_some();
        let mut freed = [0; SLOTS];
        for (freed, follower) in freed.iter_mut().zip(&self.followers) {
            *freed = follower.freed;
        }
        freed[usize::from(self.id.slot)] = self.freed;
        let backlog = Backlog {
            has_room: self.log_has_room(),
            refused,
            waited_for: self.waited_for().fold(0, |slots, slot| slots | 1 << slot),
            freed: &freed,
            lag: self.space.capacity() / 8,
        };
        self.core.relieve(&backlog, &mut self.effects);
    }
}

/// The length that an entry's header announces.
pub(super) fn announced(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[40..44].try_into().expect("a header")) as usize
}
