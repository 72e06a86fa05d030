//! A process's side of all its channels: slots, rings, and the control messages that open them.
//!
//! An idle channel costs next to nothing: peers report their writes in [slots](crate::slots), and only the
//! slots are polled, never the rings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use skein_fabric::{Fabric, FabricError, Peer, Permission, RegionKey, Remote};
use skein_protocol::message::Head;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ring::{Nonsense, Outgoing};

use crate::channel::{AssemblingBytes, Channel, Kind, Next, Out};
use crate::introductions::{Introduction, Purpose, Side, WIRE_VERSION, key};
use crate::slots::{Slots, Words};
use crate::wakes::{Hurry, Wakes};

skein_protocol::paths! {
    /// Counts of paths taken in a process's channels.
    EndpointPaths:
    waited_for_room,
    fragmented,
    ring_grown,
    /// A larger ring was refused, and the present one stays.
    ring_kept,
    /// Both sides had said goodbye, and the slot was used again.
    slot_reused,
    /// The peer of a channel died. The channel was still read to its end.
    peer_lost,
    /// A reply was dropped because the session's ring is full: the session had received it from another
    /// leader, or does not read its ring.
    reply_dropped,
}

/// The smallest and the largest size of a ring, in bytes.
const RING_BYTES_MIN: u64 = 4 << 10;
const RING_BYTES_MAX: u64 = 1 << 30;

/// Interval after which control messages are sent or handled again if resources were lacking.
const POST_AGAIN: Duration = Duration::from_millis(2);

/// Sizes of rings, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingSizes {
    /// Initial size of a session's rings.
    pub session: u64,
    /// Limit to which a session's rings may grow.
    pub session_max: u64,
    /// Size of the ring between two replicas.
    pub replica: u64,
    /// Limit for all rings of this process together; no ring grows beyond it.
    pub total_max: u64,
}

/// All channels of a process. A channel's number is the index of its slot.
pub(crate) struct Endpoint<F> {
    pub fabric: F,
    sizes: RingSizes,
    slots: Slots,
    channels: Vec<Option<Channel>>,
    free: Vec<u32>,
    /// Channels written or read since the last [`Endpoint::tell`].
    dirty: Vec<u32>,
    pub wakes: Wakes,
    attached: BTreeMap<(Peer, [u8; 32]), Remote>,
    /// Peers that have written to this process, with or without a channel. Memory of theirs is mapped here
    /// until they are gone.
    correspondents: BTreeSet<Peer>,
    rings_bytes: u64,
    assembling: AssemblingBytes,
    /// A channel has failed since the last [`Endpoint::take_failed`].
    failed: bool,
    /// A writer has asked for a larger ring since the last [`Endpoint::take_asked_to_grow`].
    asked_to_grow: bool,
    pub paths: EndpointPaths,
    /// Control messages for which the peer's mailbox, or the shared memory that it is in, had no room.
    unposted: VecDeque<(Peer, Vec<u8>)>,
    /// Answers that name memory which could not be opened for lack of descriptors or memory. The peer does
    /// not send them again.
    untaken: Vec<(Peer, Introduction)>,
    /// Time at which `unposted` and `untaken` are tried again.
    again_at: Duration,
    /// Scratch: the slots that have changed, and their words.
    news: Vec<(u32, Words)>,
}

/// The outcome of a control message about channels.
pub(crate) enum Opening {
    /// A peer has opened this channel.
    Accepted(u32),
    /// The peer has refused this channel, which this side opened.
    Refused(u32),
    Nothing,
}

impl<F: Fabric> Endpoint<F> {
    pub(crate) fn new(fabric: F, sizes: RingSizes) -> Self {
        Self {
            fabric,
            sizes,
            slots: Slots::default(),
            channels: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            wakes: Wakes::default(),
            attached: BTreeMap::new(),
            correspondents: BTreeSet::new(),
            rings_bytes: 0,
            assembling: AssemblingBytes::default(),
            failed: false,
            asked_to_grow: false,
            paths: EndpointPaths::default(),
            unposted: VecDeque::new(),
            untaken: Vec::new(),
            again_at: Duration::ZERO,
            news: Vec::new(),
        }
    }

    /// Opens a channel to `peer`. Datagrams that are sent before the peer answers wait.
    pub(crate) fn open(&mut self, peer: Peer, purpose: Purpose) -> Result<u32, FabricError> {
        let (ring_bytes, wanted) = self.sizes_for(purpose, true);
        let (id, side) = self.make(peer, purpose, ring_bytes, wanted)?;
        self.channel_mut(id).asked = true;
        let mail =
            Introduction::Open { version: WIRE_VERSION, purpose, side, wanted_bytes: wanted };
        self.post(peer, mail);
        Ok(id)
    }

    /// Handles a control message about channels. `admit` decides whether the sender may open one.
    pub(crate) fn receive_mail(
        &mut self,
        from: Peer,
        mail: Introduction,
        admit: impl FnOnce(Purpose) -> bool,
    ) -> Opening {
        match mail {
            Introduction::Open { version, purpose, side, wanted_bytes } => {
                let (ring_bytes, theirs) = self.sizes_for(purpose, false);
                let sane = is_ring(wanted_bytes) && (theirs == 0 || is_ring(side.ring_bytes));
                let foreign = version != WIRE_VERSION || !sane;
                if foreign || !admit(purpose) {
                    if foreign {
                        tracing::warn!(
                            version,
                            ?purpose,
                            sane,
                            "refused a channel of another version, or of invalid sizes"
                        );
                    } else {
                        tracing::debug!(?purpose, "refused a channel that its sender may not open");
                    }
                    self.post(from, Introduction::Refused { channel: side.channel });
                    return Opening::Nothing;
                }
                match self.accept(from, purpose, ring_bytes, &side) {
                    Ok(id) => Opening::Accepted(id),
                    Err(error) => {
                        tracing::warn!(%error, ?purpose, "cannot open a channel");
                        self.post(from, Introduction::Refused { channel: side.channel });
                        Opening::Nothing
                    }
                }
            }
            Introduction::Opened { channel, side } => {
                if self.asked(channel, from) {
                    self.channel_mut(channel).outgoing = Outgoing::new(side.ring_bytes);
                    let attached = if is_ring(side.ring_bytes) {
                        self.attach_side(channel, &side)
                    } else {
                        Err(FabricError::StaleKey)
                    };
                    match attached {
                        Err(error) if error.is_lack() && !planted(Mutant::UselessChannelKept) => {
                            self.take_later(from, Introduction::Opened { channel, side }, &error);
                            return Opening::Nothing;
                        }
                        Ok(()) if self.channel(channel).leaving => self.goodbye(channel),
                        Ok(()) => self.pump(channel),
                        Err(error) => self.fail(channel, &error),
                    }
                    if let Some(channel) = &mut self.channels[channel as usize] {
                        channel.asked = false;
                    }
                }
                Opening::Nothing
            }
            // A refusal counts only as an answer: the peer closes a channel that it has opened itself.
            Introduction::Refused { channel } if self.asked(channel, from) => {
                let channel_mut = self.channel_mut(channel);
                channel_mut.silent = true;
                channel_mut.dying = true;
                if channel_mut.leaving {
                    self.remove(channel);
                    return Opening::Nothing;
                }
                Opening::Refused(channel)
            }
            Introduction::Grow { channel, position, wanted_bytes } => {
                if self.owned(channel, from) {
                    self.channel_mut(channel).grow_at = Some((position, wanted_bytes));
                    self.asked_to_grow = true;
                    self.grow(channel);
                    self.touch(channel);
                }
                Opening::Nothing
            }
            Introduction::Grown { channel, ring, ring_bytes } => {
                if self.owned(channel, from) && self.channel(channel).growing {
                    match self.grown(channel, ring, ring_bytes) {
                        Ok(()) => self.pump(channel),
                        Err(error) if error.is_lack() && !planted(Mutant::UselessChannelKept) => {
                            self.take_later(
                                from,
                                Introduction::Grown { channel, ring, ring_bytes },
                                &error,
                            );
                        }
                        Err(error) => self.fail(channel, &error),
                    }
                }
                Opening::Nothing
            }
            _ => Opening::Nothing,
        }
    }

    fn accept(
        &mut self,
        from: Peer,
        purpose: Purpose,
        ring_bytes: u64,
        theirs: &Side,
    ) -> Result<u32, FabricError> {
        let (id, ours) = self.make(from, purpose, ring_bytes, theirs.ring_bytes)?;
        if let Err(error) = self.attach_side(id, theirs) {
            self.remove(id);
            return Err(error);
        }
        self.post(from, Introduction::Opened { channel: theirs.channel, side: ours });
        Ok(id)
    }

    /// Schedules an answer to be handled again soon.
    fn take_later(&mut self, from: Peer, mail: Introduction, error: &FabricError) {
        tracing::debug!(%error, "memory of a peer cannot be opened now");
        self.again_at = self.fabric.now() + POST_AGAIN;
        self.untaken.push((from, mail));
    }

    /// Stops writing a channel and drops what waits for the peer. What the peer has written is still read,
    /// and the liveness probe finds out whether it is gone.
    fn fail(&mut self, id: u32, error: &FabricError) {
        let channel = self.channel_mut(id);
        tracing::debug!(%error, purpose = ?channel.purpose, "a channel cannot be written");
        channel.out = None;
        channel.failed = true;
        channel.drop_backlog();
        self.failed = true;
    }

    /// Returns whether a channel has failed since the last call.
    pub(crate) fn take_failed(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }

    fn owned(&self, channel: u32, by: Peer) -> bool {
        self.get(channel).is_some_and(|channel| channel.peer == by)
    }

    /// Returns whether this side has opened that channel to the peer and the peer has not answered yet.
    fn asked(&self, channel: u32, of: Peer) -> bool {
        self.owned(channel, of) && self.channel(channel).asked
    }

    /// The sizes of this side's ring and of the peer's.
    fn sizes_for(&self, purpose: Purpose, opener: bool) -> (u64, u64) {
        match purpose {
            Purpose::Session { .. } => (self.sizes.session, self.sizes.session),
            Purpose::Replica { .. } | Purpose::Engine { .. } if opener => (0, self.sizes.replica),
            Purpose::Replica { .. } | Purpose::Engine { .. } => (self.sizes.replica, 0),
        }
    }

    fn make(
        &mut self,
        peer: Peer,
        purpose: Purpose,
        ring_bytes: u64,
        out_bytes: u64,
    ) -> Result<(u32, Side), FabricError> {
        let ring = match ring_bytes {
            0 => None,
            bytes => Some(self.fabric.create(bytes as usize, Permission::Shared)?),
        };
        self.paths.slot_reused += u64::from(!self.free.is_empty());
        let id = self.free.pop().unwrap_or_else(|| {
            self.channels.push(None);
            self.channels.len() as u32 - 1
        });
        if let Err(error) = self.slots.make(&mut self.fabric, id) {
            if let Some(ring) = ring {
                self.fabric.destroy(ring);
            }
            self.free.push(id);
            return Err(error);
        }
        self.rings_bytes += ring_bytes;
        self.channels[id as usize] = Some(Channel::new(purpose, peer, ring, ring_bytes, out_bytes));
        let ring_key = ring.map_or([0; 32], |ring| key(self.fabric.key(ring)));
        let (slots, slot_at) = self.slots.place(&self.fabric, id);
        let side = Side { channel: id, slots: key(slots), slot_at, ring: ring_key, ring_bytes };
        Ok((id, side))
    }

    fn attach_side(&mut self, id: u32, side: &Side) -> Result<(), FabricError> {
        let peer = self.channel(id).peer;
        let known = self.attached.get(&(peer, side.slots)).copied();
        let slots = match known {
            Some(slots) => slots,
            None => self.fabric.attach(peer, &RegionKey(side.slots))?,
        };
        self.attached.insert((peer, side.slots), slots);
        let ring = match side.ring_bytes {
            0 => slots, // Never written: the peer has no ring for this side, and no room in it.
            _ => self.fabric.attach(peer, &RegionKey(side.ring))?,
        };
        let out = Out { channel: side.channel, slots, slot_at: side.slot_at as usize, ring };
        self.channel_mut(id).out = Some(out);
        Ok(())
    }

    /// Replaces this side's ring by a larger one, once everything that the writer put into it was taken.
    fn grow(&mut self, id: u32) {
        let channel = self.channel(id);
        let Some((position, wanted)) = channel.grow_at else { return };
        let (Some(old), Some(out)) = (channel.ring, &channel.out) else { return };
        // The writer writes nothing beyond that position until it is answered.
        if channel.incoming.position() != position || channel.incoming.available() > 0 {
            return;
        }
        let (peer, theirs, capacity) = (channel.peer, out.channel, channel.incoming.capacity());
        let wanted = wanted.min(self.sizes.session_max.max(self.sizes.replica));
        let allowed = wanted.is_power_of_two()
            && wanted > capacity
            && self.rings_bytes + wanted <= self.sizes.total_max;
        let (ring, bytes) =
            match allowed.then(|| self.fabric.create(wanted as usize, Permission::Shared)) {
                Some(Ok(ring)) => {
                    self.fabric.destroy(old);
                    self.rings_bytes += wanted - capacity;
                    self.paths.ring_grown += 1;
                    (ring, wanted)
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "a ring cannot grow");
                    (old, capacity)
                }
                None => (old, capacity),
            };
        self.paths.ring_kept += u64::from(bytes == capacity);
        let channel = self.channel_mut(id);
        channel.grow_at = None;
        channel.ring = Some(ring);
        channel.incoming.resize(bytes);
        let ring = key(self.fabric.key(ring));
        self.post(peer, Introduction::Grown { channel: theirs, ring, ring_bytes: bytes });
    }

    fn grown(&mut self, id: u32, ring: [u8; 32], ring_bytes: u64) -> Result<(), FabricError> {
        let channel = self.channel(id);
        let (peer, old) = (channel.peer, channel.out.as_ref().map(|out| out.ring));
        let tail = channel.outgoing.tail();
        let same = ring_bytes == channel.outgoing.capacity();
        if channel.outgoing.capacity() > ring_bytes || !is_ring(ring_bytes) {
            return Err(FabricError::StaleKey);
        }
        let attached = if same { None } else { Some(self.fabric.attach(peer, &RegionKey(ring))?) };
        if let (Some(_), Some(old)) = (attached, old) {
            self.fabric.detach(old);
        }
        let channel = self.channel_mut(id);
        // The answer implies that everything was taken; the credit word may come later.
        let _ = channel.outgoing.credit(tail);
        channel.outgoing.resize(ring_bytes);
        channel.growing = false;
        channel.grown = true;
        if let (Some(ring), Some(out)) = (attached, &mut channel.out) {
            out.ring = ring;
        }
        Ok(())
    }

    /// Sends a datagram, which waits in the channel if it does not fit.
    pub(crate) fn send(&mut self, id: u32, kind: Kind, head: &[u8], body: &[u8]) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        let sent = channel.send(&mut self.fabric, kind, head, body);
        if sent.is_err() || !channel.sent_all() {
            return self.after_writing(id, sent);
        }
        if !std::mem::replace(&mut channel.dirty, true) {
            self.note_dirty(id);
        }
    }

    /// Returns whether a reply of `len` bytes may wait in a session's channel, together with at most `most`
    /// bytes. A reply may always wait alone.
    pub(crate) fn has_room_for_reply(&mut self, id: u32, len: usize, most: usize) -> bool {
        let channel = self.channel(id);
        let fits = channel.sent_all() || channel.waiting_bytes() + len <= most;
        self.paths.reply_dropped += u64::from(!fits);
        fits
    }

    /// Returns whether to send a reply to a session's message, if at most `most` datagrams may wait.
    pub(crate) fn makes_room_for_reply(&mut self, id: u32, sequence: u64, most: usize) -> bool {
        let (wanted, dropped) = self.channel_mut(id).make_room_for_reply(sequence, most);
        self.paths.reply_dropped += u64::from(dropped);
        wanted
    }

    /// Queues a datagram that is too long to copy for each of several channels.
    pub(crate) fn send_shared(&mut self, id: u32, kind: Kind, bytes: Arc<[u8]>) {
        self.channel_mut(id).send_shared(kind, bytes);
        self.pump(id);
    }

    /// Writes queued datagrams of a channel as far as there is room.
    pub(crate) fn pump(&mut self, id: u32) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        let pumped = channel.pump(&mut self.fabric);
        self.after_writing(id, pumped);
    }

    fn after_writing(&mut self, id: u32, written: Result<(), FabricError>) {
        self.touch(id);
        let channel = self.channel(id);
        self.paths.waited_for_room += u64::from(channel.waiting() > 0 && channel.out.is_some());
        match written {
            Ok(()) => self.ask_to_grow(id),
            Err(error) => self.fail(id, &error),
        }
    }

    fn ask_to_grow(&mut self, id: u32) {
        let channel = self.channel(id);
        if channel.waiting() == 0 || channel.grown {
            return;
        }
        let Some(wanted) = channel.wants(self.sizes.session_max) else { return };
        let Some(out) = &channel.out else { return };
        let (peer, theirs, position) = (channel.peer, out.channel, channel.outgoing.tail());
        self.channel_mut(id).growing = true;
        self.post(peer, Introduction::Grow { channel: theirs, position, wanted_bytes: wanted });
    }

    /// Scans the slots and appends the channels whose slot a peer has written.
    pub(crate) fn look(&mut self, ready: &mut Vec<u32>) {
        let found = ready.len();
        self.slots.look(&self.fabric, &mut self.news);
        for (id, words) in self.news.drain(..) {
            let Some(channel) = &mut self.channels[id as usize] else { continue };
            if channel.see(words).is_err() {
                tracing::warn!(purpose = ?channel.purpose, ?words, "a slot holds invalid words");
                channel.dying = true;
                channel.drop_backlog();
            }
            ready.push(id);
        }
        let mut kept = found;
        for i in found..ready.len() {
            let id = ready[i];
            if !self.channel(id).leaving {
                ready[kept] = id;
                kept += 1;
            } else if self.channel(id).silent {
                self.remove(id);
            }
        }
        ready.truncate(kept);
    }

    /// Returns whether no slot has changed since the last scan.
    pub(crate) fn is_quiet(&self) -> bool {
        self.slots.is_quiet(&self.fabric)
    }

    /// The fabric to sleep on, and the check for news that must be repeated before sleeping.
    pub(crate) fn parking(&mut self) -> (&mut F, impl Fn(&F) -> bool) {
        let slots = &self.slots;
        (&mut self.fabric, move |fabric: &F| slots.is_quiet(fabric))
    }

    /// The next datagram of a channel. A channel with invalid data in its ring is given up.
    pub(crate) fn next(&mut self, id: u32) -> Option<Next> {
        let next = self.get(id)?.next(&self.fabric);
        if next.is_err() {
            self.give_up(id);
        }
        next.ok().flatten()
    }

    /// The header of the session's message that [`next`](Self::next) returned, if it is not begun. `None` if it is
    /// invalid.
    pub(crate) fn peek_head(&self, id: u32, next: Next) -> Option<Head> {
        let mut bytes = [0; Head::BYTES_MAX];
        let bytes = self.channel(id).peek(&self.fabric, next.whole, &mut bytes)?;
        Head::decode(bytes).map(|(head, _)| head)
    }

    /// Gives up a channel whose ring holds invalid data.
    fn give_up(&mut self, id: u32) {
        let channel = self.channel_mut(id);
        tracing::warn!(purpose = ?channel.purpose, "a ring holds invalid data");
        channel.dying = true;
    }

    /// Takes the datagram that [`next`](Self::next) returned. Returns false if it is not complete yet.
    pub(crate) fn take(&mut self, id: u32, next: Next, into: &mut Vec<u8>) -> bool {
        self.take_if(id, next, |_| true, into)
    }

    /// Like [`take`](Self::take), but skips a hint in several frames if `keeps_hint` refuses the length of it and
    /// of all hints that are being assembled: once it is complete, nothing is put in `into`.
    #[inline]
    pub(crate) fn take_if(
        &mut self,
        id: u32,
        next: Next,
        mut keeps_hint: impl FnMut(usize) -> bool,
        into: &mut Vec<u8>,
    ) -> bool {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        if next.whole {
            channel.take_whole(&self.fabric, next.len, into);
            if !channel.dirty || channel.grow_at.is_some() {
                self.after_reading(id);
            }
            return true;
        }
        self.assembling -= channel.assembling_bytes();
        let hints = self.assembling.hints;
        let taken = channel.take(&self.fabric, |len| keeps_hint(hints + len), into);
        let assembling = channel.assembling_bytes();
        self.assembling += assembling;
        self.paths.fragmented += u64::from(assembling != AssemblingBytes::default());
        if taken.is_err() {
            self.give_up(id);
        }
        self.after_reading(id);
        taken.unwrap_or(false)
    }

    /// Skips the rest of each hint that is being assembled, and drops what has come of it.
    pub(crate) fn skip_hints(&mut self) {
        for channel in self.channels.iter_mut().flatten() {
            channel.skip_hint();
        }
        self.assembling.hints = 0;
    }

    /// Skips messages whose first words satisfy `known`: see [`Channel::skip_known`].
    pub(crate) fn skip_known(&mut self, id: u32, len_max: usize, known: impl Fn(u64) -> bool) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        match channel.skip_known(&self.fabric, len_max, known) {
            Ok(true) => self.after_reading(id),
            Ok(false) => {}
            Err(Nonsense) => self.give_up(id),
        }
    }

    fn after_reading(&mut self, id: u32) {
        self.touch(id);
        if self.channel(id).grow_at.is_some() {
            self.grow(id);
        }
    }

    /// Returns whether a writer has asked for a larger ring since the last call: it waits until its ring is read.
    pub(crate) fn take_asked_to_grow(&mut self) -> bool {
        std::mem::take(&mut self.asked_to_grow)
    }

    /// Marks the channel to be read later. Returns whether it was not marked yet.
    pub(crate) fn read_later(&mut self, id: u32) -> bool {
        !std::mem::replace(&mut self.channel_mut(id).later, true)
    }

    /// Clears the mark of [`read_later`](Self::read_later), if the channel still exists.
    pub(crate) fn read_on(&mut self, id: u32) {
        if let Some(channel) = &mut self.channels[id as usize] {
            channel.later = false;
        }
    }

    /// Ends a turn: makes tails and credits visible, and wakes their readers.
    pub(crate) fn tell(&mut self) {
        while let Some(id) = self.dirty.pop() {
            let Some(channel) = &mut self.channels[id as usize] else { continue };
            channel.dirty = false;
            let peer = channel.peer;
            match channel.tell(&mut self.fabric) {
                Ok(true) => self.wake_later(peer),
                Ok(false) => {}
                Err(error) => self.fail(id, &error),
            }
        }
        self.fabric.flush();
        while let Some(peer) = self.wakes.take() {
            self.fabric.wake(peer);
        }
        if self.has_errands() {
            self.run_errands();
        }
    }

    /// Records a peer that has written to this process, so that the liveness probe covers it.
    pub(crate) fn met(&mut self, peer: Peer) {
        self.correspondents.insert(peer);
    }

    /// The peers that have written to this process and are not [lost](Self::lost) yet.
    pub(crate) const fn correspondents(&self) -> &BTreeSet<Peer> {
        &self.correspondents
    }

    /// Wakes the peer at the end of the turn, if it sleeps.
    pub(crate) fn wake_later(&mut self, peer: Peer) {
        self.wakes.note(peer, Hurry::Now);
    }

    pub(crate) fn touch(&mut self, id: u32) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        if !std::mem::replace(&mut channel.dirty, true) {
            self.note_dirty(id);
        }
    }

    fn note_dirty(&mut self, id: u32) {
        self.dirty.push(id);
        self.slots.use_soon(id);
    }

    /// Closes the channel from this side: frees its ring, and its slot once the peer can no longer write there.
    pub(crate) fn close(&mut self, id: u32) {
        self.channel_mut(id).leaving = true;
        self.goodbye(id);
    }

    fn goodbye(&mut self, id: u32) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        let (peer, ring) = (channel.peer, channel.out.as_ref().map(|out| (out.ring, out.slots)));
        channel.drop_backlog();
        let said = channel.say_goodbye(&mut self.fabric);
        let silent = channel.silent;
        if let Err(error) = said {
            tracing::debug!(%error, "cannot notify a peer that its channel is closed");
        }
        if let Some((ring, _)) = ring.filter(|(ring, slots)| ring != slots) {
            self.fabric.detach(ring);
        }
        self.wake_later(peer);
        if silent {
            self.remove(id);
        } else {
            self.free_ring(id);
        }
    }

    fn free_ring(&mut self, id: u32) {
        let channel = self.channels[id as usize].as_mut().expect("a channel of ours");
        self.assembling -= channel.assembling_bytes();
        channel.stop_assembling();
        if let Some(ring) = channel.ring.take() {
            self.rings_bytes -= channel.incoming.capacity();
            self.fabric.destroy(ring);
        }
    }

    /// Removes a channel whose peer is silent.
    fn remove(&mut self, id: u32) {
        self.free_ring(id);
        self.untaken.retain(|(_, mail)| mail.answers() != Some(id));
        let channel = self.channels[id as usize].take().expect("a channel of ours");
        debug_assert!(channel.silent && channel.leaving || channel.out.is_none());
        self.free.push(id);
    }

    /// Forgets a peer that is gone. Returns its channels, which are dying now.
    pub(crate) fn lost(&mut self, peer: Peer) -> Vec<u32> {
        let mut ids = Vec::new();
        for (id, channel) in self.channels.iter_mut().enumerate() {
            if let Some(channel) = channel.as_mut().filter(|channel| channel.peer == peer) {
                channel.dying = true;
                channel.silent = true;
                self.paths.peer_lost += 1;
                channel.out = None;
                channel.drop_backlog();
                ids.push(id as u32);
            }
        }
        for id in ids
            .extract_if(.., |id| {
                self.channels[*id as usize].as_ref().is_some_and(|channel| channel.leaving)
            })
            .collect::<Vec<_>>()
        {
            self.remove(id);
        }
        self.attached.retain(|(of, _), _| *of != peer);
        self.correspondents.remove(&peer);
        self.unposted.retain(|(to, _)| *to != peer);
        self.untaken.retain(|(from, _)| *from != peer);
        self.fabric.hang_up(peer);
        ids
    }

    /// Sends a control message, at once or as soon as there is room. It is kept until then, since nothing
    /// sends it again: a channel whose opening, or the answer to it, was dropped would wait forever.
    pub(crate) fn post(&mut self, to: Peer, mail: Introduction) {
        let mail = mail.encode();
        // Messages to one peer keep their order. If an identical one waits already, such as a repeated
        // welcome, it waits once.
        if self.unposted.iter().any(|(peer, _)| *peer == to) {
            if !self.unposted.iter().any(|(peer, waits)| *peer == to && *waits == mail) {
                self.unposted.push_back((to, mail));
            }
            return;
        }
        if !self.try_post(to, &mail) {
            self.again_at = self.fabric.now() + POST_AGAIN;
            self.unposted.push_back((to, mail));
        }
    }

    /// Tries to send a control message. Returns false if it must be tried again; a message to a peer that is
    /// gone is dropped.
    fn try_post(&mut self, to: Peer, mail: &[u8]) -> bool {
        match self.fabric.send(to, mail) {
            Ok(()) => true,
            Err(FabricError::Mail { .. }) => false,
            Err(error) if error.is_lack() => false,
            Err(error) => {
                tracing::debug!(%error, "cannot send a control message: the peer is gone");
                true
            }
        }
    }

    /// Retries, if it is time, what failed for lack of resources: handles answers, and sends messages to each
    /// peer in their order.
    #[cold]
    fn run_errands(&mut self) {
        let now = self.fabric.now();
        if now < self.again_at {
            return;
        }
        self.again_at = now + POST_AGAIN;
        for (from, mail) in std::mem::take(&mut self.untaken) {
            self.receive_mail(from, mail, |_| false);
        }
        let mut without_room = BTreeSet::new();
        for (to, mail) in std::mem::take(&mut self.unposted) {
            if without_room.contains(&to) || !self.try_post(to, &mail) {
                without_room.insert(to);
                self.unposted.push_back((to, mail));
            }
        }
    }

    /// Returns whether something was written since the last [`tell`](Self::tell) for which its reader was not woken.
    pub(crate) fn has_untold(&self) -> bool {
        !self.dirty.is_empty() || !self.wakes.now().is_empty()
    }

    /// Returns whether something must be retried soon, so that this is no time to sleep for long.
    pub(crate) fn has_errands(&self) -> bool {
        !(self.unposted.is_empty() && self.untaken.is_empty())
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Channel> {
        self.channels.get(id as usize)?.as_ref()
    }

    pub(crate) fn channel(&self, id: u32) -> &Channel {
        self.get(id).expect("a channel of ours")
    }

    pub(crate) fn channel_mut(&mut self, id: u32) -> &mut Channel {
        self.channels[id as usize].as_mut().expect("a channel of ours")
    }

    /// All channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Channel)> {
        self.channels.iter().enumerate().filter_map(|(id, c)| Some((id as u32, c.as_ref()?)))
    }

    /// Bytes of all datagrams that are being assembled.
    pub(crate) const fn assembling(&self) -> AssemblingBytes {
        self.assembling
    }

    /// Bytes of all rings that peers write here.
    pub(crate) const fn rings_bytes(&self) -> u64 {
        self.rings_bytes
    }
}

/// Returns whether a ring may have that size. A peer may send any number.
const fn is_ring(bytes: u64) -> bool {
    bytes.is_power_of_two() && RING_BYTES_MIN <= bytes && bytes <= RING_BYTES_MAX
}
