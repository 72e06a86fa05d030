//! One connection to a peer: our requests, in order, and the two queue pairs.
//!
//! **Two pairs.** A queue pair that refuses one request stops for both directions, and it is then unknown what was done
//! of the requests under way in the other direction. So each direction has its own pair: one carries our requests, the
//! other serves the peer's.
//!
//! **Invariant (refusals).** When a request of ours is refused, all before it are done, and nothing of it or of those
//! after it is: a reliable connection serves in order and stops where it refuses. So they can be posted again after a
//! new beginning, except for those under the revoked grant; their poster sees one denied request and no other harm.
//! After any other failure nothing is posted again, because it is unknown what was done.
//!
//! **Invariant (numbers).** A new beginning has fresh packet numbers, and completions of an earlier beginning are
//! ignored.
//!
//! **Waking.** A receiver that goes to sleep writes an unused number into the *bell* of each of its writers. A writer
//! whose writes are done reads its bell, and answers each number once, with a write that creates a completion at the
//! receiver. So a receiver is woken once per sleep, and at most one such write is under way: there is always room for
//! it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::notes::{Note, Offer};
use super::raw::{
    Adapter, CHAIN_MAX, Far, Pair, Posted, Queue, Reach, Registration, SEND_MAX, What,
};
use super::regions::Held;
use crate::memory::{Memory, WORD};
use crate::{Completion, Outcome};

/// Size of the buffer in which bytes that are not in a region of ours wait until they were written.
const BOUNCE: usize = 256 << 10;
/// Most bytes of one request from that buffer.
const CHUNK_MAX: usize = BOUNCE / 4;
/// Most requests that may wait for one peer. Traffic under flow control stops long before.
const BACKLOG_MAX: usize = 1 << 16;
/// A request that was refused more often than this is not retried any more, whatever its grant.
const REFUSALS_MAX: u32 = 3;
/// Bits of a packet number.
const PACKET_BITS: u32 = 24;
/// Bits of a request's number in the id that the device returns.
const NUMBER_BITS: u32 = 40;

/// One connection.
#[derive(Debug)]
pub(super) struct VerbsLink {
    // The pairs are dropped first, so that the device uses nothing of what follows any more.
    out: Pair,
    into: Pair,
    /// The word in which the peer announces its sleeps, and the buffer from which we post.
    bell: Wired,
    bounce: Wired,
    /// The allocated part of `bounce`, as positions that only rise: `bounce_from <= bounce_to <= bounce_from + BOUNCE`.
    bounce_from: u64,
    bounce_to: u64,

    stage: Stage,
    theirs: Option<Offer>,
    adapter: Arc<Adapter>,
    /// How often `out` was connected anew, from a random start, modulo 2^24.
    beginning: u32,
    /// Our requests that have not ended; the number of the first; and how many are posted: `posted <= requests.len()`.
    requests: VecDeque<Request>,
    first: u64,
    posted: usize,
    /// Requests whose bytes wait for room in `bounce`. No request after the first of them has taken any.
    waiting: usize,
    /// How an untagged write failed, until a tagged one reports it.
    failed: Option<Outcome>,
    /// The request that was refused last, and how often.
    refused: (u64, u32),

    /// The request after which the peer is to be woken, if it sleeps.
    wake_after: Option<u64>,
    /// The last of the peer's sleeps that we have answered.
    answered: u64,
    /// The last sleep that we have announced, and whether the peer has not answered it yet.
    sleep: u64,
    asleep: bool,
}

/// Memory with its registration, which is dropped first.
#[derive(Debug)]
struct Wired {
    registration: Registration,
    memory: Memory,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other side has not reported that it serves us.
    Meeting,
    Up,
    /// We have begun again, and wait for the welcome.
    Again,
}

/// A request of ours.
#[derive(Debug)]
struct Request {
    what: What,
    to: (u64, u32),
    /// The grant under which it is posted; 0 for requests between the two fabrics themselves.
    grant: u32,
    from: From,
    tag: Option<u64>,
    /// Whether it will be denied instead of posted.
    denied: bool,
}

/// Where a request's bytes are.
#[derive(Debug)]
enum From {
    Nothing,
    /// In `bounce`, at a position that only rises.
    Bounce {
        at: u64,
        len: usize,
    },
    /// On the heap, until there is room in `bounce`.
    Heap(Box<[u8]>),
    /// In our own memory, which `held` keeps.
    Span {
        held: Arc<Held>,
        key: u32,
        at: usize,
        len: usize,
    },
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("a call of the verbs failed: {0}")]
    Call(#[from] io::Error),
    #[error("a request failed: {0}")]
    Failed(String),
    #[error("the other side breaks the protocol: {0}")]
    Nonsense(&'static str),
    #[error("{BACKLOG_MAX} requests wait for the other side")]
    Unserved,
    #[error("the control channel has ended")]
    Closed,
}

/// A span of our own memory, for a request.
pub(super) struct Span {
    pub(super) held: Arc<Held>,
    pub(super) at: usize,
    pub(super) len: usize,
}

/// The target of a request, and its grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) to: (u64, u32),
    pub(super) grant: u32,
    /// Whether the peer is already known to refuse it.
    pub(super) denied: bool,
}

impl Wired {
    fn new(adapter: &Arc<Adapter>, len: usize, reach: Reach) -> io::Result<Self> {
        let memory = Memory::anonymous(len)?;
        Ok(Self { registration: Registration::new(adapter, &memory, reach)?, memory })
    }
}

impl VerbsLink {
    pub(super) fn new(adapter: &Arc<Adapter>, queue: &Arc<Queue>) -> io::Result<Self> {
        Ok(Self {
            out: Pair::new(queue)?,
            into: Pair::new(queue)?,
            bell: Wired::new(adapter, WORD, Reach::All)?,
            bounce: Wired::new(adapter, BOUNCE, Reach::Ours)?,
            bounce_from: 0,
            bounce_to: 0,
            stage: Stage::Meeting,
            theirs: None,
            adapter: Arc::clone(adapter),
            beginning: rand::random::<u32>() >> (32 - PACKET_BITS),
            requests: VecDeque::new(),
            first: 0,
            posted: 0,
            waiting: 0,
            failed: None,
            refused: (0, 0),
            wake_after: None,
            answered: 0,
            sleep: 0,
            asleep: false,
        })
    }

    /// The numbers of the pair that carries our requests, and of the pair that serves the peer's.
    pub(super) fn pairs(&self) -> (u32, u32) {
        (self.out.number(), self.into.number())
    }

    /// Our side's offer. Packets are numbered from the initial value of `beginning`.
    pub(super) fn offer(&self) -> Offer {
        Offer {
            gid: self.adapter.gid,
            lid: self.adapter.lid,
            mtu: self.adapter.mtu,
            reads: self.adapter.reads,
            out: self.out.number(),
            into: self.into.number(),
            first: self.beginning,
            bell: (self.bell.memory.address(), self.bell.registration.remote()),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    /// Handles the other side's offer: from here on its requests are served.
    pub(super) fn offered(&mut self, offer: Offer) -> Result<(), Broken> {
        if self.theirs.is_some() {
            return Err(Broken::Nonsense("it offers a connection twice"));
        }
        self.theirs = Some(offer);
        self.into.connect(&far(&offer, offer.out), (0, offer.first), true)?;
        self.out.connect(&far(&offer, offer.into), (self.beginning, 0), false)?;
        Ok(())
    }

    /// The other side is ready to serve us.
    pub(super) fn ready(&mut self) -> Result<(), Broken> {
        if self.theirs.is_none() || self.stage != Stage::Meeting {
            return Err(Broken::Nonsense("it is ready before its offer, or twice"));
        }
        self.stage = Stage::Up;
        Ok(())
    }

    /// The other side begins again.
    pub(super) fn again(&mut self, first: u32) -> Result<(), Broken> {
        let offer = self.theirs.ok_or(Broken::Nonsense("it begins again before its offer"))?;
        self.into.connect(&far(&offer, offer.out), (0, first), true)?;
        // We are awake, and a wake-up may have been lost.
        self.asleep = false;
        Ok(())
    }

    /// The other side serves us again. Returns the grant to give up, if it is closed or was refused too often.
    pub(super) fn welcome(&mut self, beginning: u32, open: bool) -> Option<u32> {
        if self.stage != Stage::Again || beginning != self.beginning {
            return None;
        }
        self.stage = Stage::Up;
        let grant = self.requests.front()?.grant;
        let tired = self.refused.1 > REFUSALS_MAX;
        if open && tired {
            tracing::error!(grant, "a request is refused repeatedly, though its grant is open");
        }
        (!open || tired).then_some(grant)
    }

    /// Denies the requests under that grant.
    pub(super) fn deny(&mut self, grant: u32, completions: &mut Vec<Completion>) {
        debug_assert_eq!(self.posted, 0);
        for request in self.requests.iter_mut().filter(|request| request.grant == grant) {
            request.denied = true;
            if matches!(request.from, From::Heap(_)) {
                request.from = From::Nothing;
                self.waiting -= 1;
            }
        }
        self.settle(completions);
    }

    fn push(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// Posts a write of bytes that the caller may reuse at once.
    pub(super) fn write(&mut self, target: Target, mut bytes: &[u8], tag: Option<u64>) {
        let mut to = target.to;
        loop {
            let (now, more) = bytes.split_at(bytes.len().min(CHUNK_MAX));
            let last = more.is_empty();
            let from = if target.denied || now.is_empty() {
                From::Nothing
            } else if self.waiting == 0
                && let Some(at) = self.bounce(now)
            {
                From::Bounce { at, len: now.len() }
            } else {
                self.waiting += 1;
                From::Heap(now.into())
            };
            let Target { grant, denied, .. } = target;
            let tag = tag.filter(|_| last);
            self.push(Request { what: What::Write, to, grant, from, tag, denied });
            if last {
                return;
            }
            to.0 += now.len() as u64;
            bytes = more;
        }
    }

    /// Posts a write from our own memory, or a read into it.
    pub(super) fn transfer(
        &mut self,
        what: What,
        target: Target,
        Span { held, at, len }: Span,
        tag: Option<u64>,
    ) -> Result<(), Broken> {
        let key = held.local(&self.adapter)?;
        let from = if target.denied || len == 0 {
            From::Nothing
        } else {
            From::Span { held, key, at, len }
        };
        let Target { to, grant, denied } = target;
        self.push(Request { what, to, grant, from, tag, denied });
        Ok(())
    }

    /// Copies bytes into `bounce`, if there is room. Returns their position.
    fn bounce(&mut self, bytes: &[u8]) -> Option<u64> {
        let room = BOUNCE as u64;
        let len = bytes.len().next_multiple_of(WORD) as u64;
        let mut at = self.bounce_to;
        if at % room + len > room {
            at = at.next_multiple_of(room);
        }
        if at + len - self.bounce_from > room {
            return None;
        }
        self.bounce.memory.put((at % room) as usize, bytes);
        self.bounce_to = at + len;
        Some(at)
    }

    pub(super) fn has_unposted(&self) -> bool {
        self.posted < self.requests.len()
    }

    /// Number of requests that were not posted.
    pub(super) fn backlog(&self) -> usize {
        self.requests.len() - self.posted
    }

    /// Posts all requests that the device takes, one doorbell per chain.
    pub(super) fn post(&mut self, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        self.settle(completions);
        if self.requests.len() > BACKLOG_MAX {
            return Err(Broken::Unserved);
        }
        let nothing =
            Posted { id: 0, what: What::Write, from: (0, 0, 0), to: (0, 0), signalled: false };
        while self.stage == Stage::Up {
            let mut chain = [nothing; CHAIN_MAX];
            let mut len = 0;
            while len < CHAIN_MAX && self.posted < self.requests.len().min(SEND_MAX) {
                if let From::Heap(bytes) = &mut self.requests[self.posted].from {
                    let bytes = std::mem::take(bytes);
                    let Some(at) = self.bounce(&bytes) else {
                        self.requests[self.posted].from = From::Heap(bytes);
                        break;
                    };
                    self.requests[self.posted].from = From::Bounce { at, len: bytes.len() };
                    self.waiting -= 1;
                }
                let request = &self.requests[self.posted];
                if !request.denied {
                    let from = match &request.from {
                        From::Nothing => (0, 0, 0),
                        From::Bounce { at, len } => {
                            let at = self.bounce.memory.address() + at % BOUNCE as u64;
                            (at, *len as u32, self.bounce.registration.local())
                        }
                        From::Span { held, key, at, len } => {
                            (held.memory.address() + *at as u64, *len as u32, *key)
                        }
                        From::Heap(_) => unreachable!("it was bounced"),
                    };
                    let number = self.first + self.posted as u64;
                    let number = number % (1 << NUMBER_BITS);
                    let id = u64::from(self.beginning) << NUMBER_BITS | number;
                    let (what, to) = (request.what, request.to);
                    chain[len] = Posted { id, what, from, to, signalled: false };
                    len += 1;
                }
                self.posted += 1;
            }
            let Some(last) = chain[..len].last_mut() else { return Ok(()) };
            // Its completion covers all before it.
            last.signalled = true;
            self.out.post(&chain[..len])?;
        }
        Ok(())
    }

    /// The number of the request with that id, if it belongs to the present beginning and is posted.
    fn number(&self, id: u64) -> Option<u64> {
        let behind = id.wrapping_sub(self.first) % (1 << NUMBER_BITS);
        let known = id >> NUMBER_BITS == u64::from(self.beginning) && behind < self.posted as u64;
        known.then(|| self.first + behind)
    }

    /// That request, and all before it, are done.
    pub(super) fn done(&mut self, id: u64, completions: &mut Vec<Completion>) {
        let Some(number) = self.number(id) else { return };
        self.done_before(number + 1, completions);
    }

    fn done_before(&mut self, number: u64, completions: &mut Vec<Completion>) {
        while self.first < number {
            self.end_first(completions);
        }
        self.settle(completions);
    }

    /// The first request has ended: it is denied or done.
    fn end_first(&mut self, completions: &mut Vec<Completion>) {
        let Some(request) = self.requests.pop_front() else { return };
        self.first += 1;
        self.posted = self.posted.saturating_sub(1);
        if let From::Bounce { at, len } = request.from {
            self.bounce_from = at + len.next_multiple_of(WORD) as u64;
        }
        let outcome = if request.denied { Outcome::Denied } else { Outcome::Done };
        match (request.tag, request.what) {
            (Some(tag), What::Write) => {
                let outcome = self.failed.take().unwrap_or(outcome);
                completions.push(Completion { tag, outcome });
            }
            (Some(tag), _) => completions.push(Completion { tag, outcome }),
            (None, _) if request.denied => _ = self.failed.get_or_insert(outcome),
            (None, _) => {}
        }
    }

    /// Ends denied requests that have become the first, and wakes the peer if that is due.
    fn settle(&mut self, completions: &mut Vec<Completion>) {
        while self.requests.front().is_some_and(|request| request.denied) {
            self.end_first(completions);
        }
        if self.wake_after.is_some_and(|number| number < self.first) {
            self.wake_after = None;
            self.ring();
        }
    }

    /// That request was refused: begins again. Returns the note to send to the other side.
    pub(super) fn refuse(
        &mut self,
        id: u64,
        completions: &mut Vec<Completion>,
    ) -> Result<Option<Note>, Broken> {
        let Some(number) = self.number(id) else { return Ok(None) };
        self.done_before(number, completions);
        let (earlier, times) = self.refused;
        self.refused = (number, if earlier == number { times + 1 } else { 1 });
        let offer = self.theirs.expect("we have met");
        self.beginning = (self.beginning + 1) % (1 << PACKET_BITS);
        let first = rand::random::<u32>() >> (32 - PACKET_BITS);
        self.out.connect(&far(&offer, offer.into), (first, 0), false)?;
        self.posted = 0;
        self.stage = Stage::Again;
        let grant = self.requests.front().map_or(0, |request| request.grant);
        Ok(Some(Note::Again { beginning: self.beginning, first, grant }))
    }

    /// Whether that id belongs to the present beginning.
    pub(super) fn is_of_now(&self, id: u64) -> bool {
        self.number(id).is_some()
    }

    /// Wakes the peer if it sleeps, once all that was posted is done.
    pub(super) fn wake(&mut self) {
        if self.requests.is_empty() {
            self.ring();
        } else {
            self.wake_after = Some(self.first + self.requests.len() as u64 - 1);
        }
    }

    /// Answers the peer's last sleep, if it is new.
    fn ring(&mut self) {
        let sleep = self.bell.memory.load(0);
        if sleep == self.answered {
            return;
        }
        self.answered = sleep;
        let (from, tag) = (From::Nothing, None);
        self.push(Request { what: What::Wake, to: (0, 0), grant: 0, from, tag, denied: false });
    }

    /// Announces that we are going to sleep. Returns whether the peer had to be notified.
    pub(super) fn go_to_sleep(&mut self) -> bool {
        let Some(offer) = self.theirs.filter(|_| self.stage != Stage::Meeting && !self.asleep)
        else {
            return false;
        };
        self.asleep = true;
        self.sleep += 1;
        let target = Target { to: offer.bell, grant: 0, denied: false };
        let sleep = self.sleep.to_ne_bytes();
        self.write(target, &sleep, None);
        true
    }

    /// The peer has answered our sleep.
    pub(super) fn woken(&mut self) {
        self.asleep = false;
        // It fails only if a new beginning has posted all receives again.
        let _ = self.into.receive();
    }

    /// Stops the peer's writes, except for those that the device has already checked, until [`resume`](Self::resume).
    pub(super) fn suspend(&self) -> io::Result<()> {
        if self.theirs.is_none() || (self.into.let_write(false).is_ok() && self.into.serves()) {
            return Ok(());
        }
        // The pair has refused something, and its peer begins again. The reset releases the memory it uses.
        self.into.reset()
    }

    /// Serves the peer again. A peer that was refused meanwhile begins again by itself.
    pub(super) fn resume(&self) {
        if self.into.serves() {
            let _ = self.into.let_write(true);
        }
    }

    /// Reports the requests that have not ended as lost: how they ended will never be known.
    pub(super) fn abandon(self, completions: &mut Vec<Completion>) {
        let tags = self.requests.iter().filter_map(|request| request.tag);
        completions.extend(tags.map(Completion::lost));
    }
}

fn far(offer: &Offer, pair: u32) -> Far {
    let Offer { gid, lid, mtu, reads, .. } = *offer;
    Far { gid, lid, mtu, reads, pair }
}
