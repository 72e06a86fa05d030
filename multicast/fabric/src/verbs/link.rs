//! One connection to a peer: our requests, in order, and the two queue pairs.
//!
//! **Two pairs.** A queue pair that refuses one request stops for both directions, and what it had
//! under way the other way may have been done or not. So each direction has a pair of its own: one
//! carries our requests, the other serves the peer's.
//!
//! **Invariant (refusals).** When a request of ours is refused, all before it are done, and of it and
//! all after it nothing is: a reliable connection serves in order and stops where it refuses. So they
//! can be posted again after a new beginning, those under the grant that was taken back excepted, and
//! whoever posted them sees one denied request and no other harm. Nothing is posted again after any
//! other failure, for nobody knows then what was done.
//!
//! **Invariant (numbers).** A new beginning has fresh packet numbers, and ends that tell of an
//! earlier one are not listened to.
//!
//! **Waking.** A receiver that goes to sleep writes a number it has not used into the *bell* of each
//! of its writers; a writer whose writes are done looks at its bell, and answers each number once,
//! with a write that makes an end. So nobody who is awake is woken more than once, and at most one
//! such write is under way: there is always room for it.

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

/// Bytes that are not in a region of ours wait here until they were written.
const BOUNCE: usize = 256 << 10;
/// The most that one request takes from there.
const CHUNK_MAX: usize = BOUNCE / 4;
/// Requests that may wait for one peer. What is credited ends long before.
const BACKLOG_MAX: usize = 1 << 16;
/// A request that is refused so often is not served any more, whatever its grant.
const REFUSALS_MAX: u32 = 3;
/// Packets are numbered with so many bits.
const PACKET_BITS: u32 = 24;
/// Requests are numbered with so many bits in what the device tells of them.
const NUMBER_BITS: u32 = 40;

/// One connection.
#[derive(Debug)]
pub(super) struct VerbsLink {
    // First the pairs, so that the device uses nothing of what follows any more.
    out: Pair,
    into: Pair,
    /// The word in which the peer says that it sleeps, and what we post from.
    bell: Wired,
    bounce: Wired,
    /// What is allocated of the latter, as positions that only rise.
    bounce_from: u64,
    bounce_to: u64,

    stage: Stage,
    theirs: Option<Offer>,
    adapter: Arc<Adapter>,
    /// How often `out` has begun anew.
    beginning: u32,
    /// Our requests that have not ended: the number of the first, and how many are posted.
    requests: VecDeque<Request>,
    first: u64,
    posted: usize,
    /// Those whose bytes wait for room; none after them has taken any.
    waiting: usize,
    /// How an untagged write failed, until a tagged one reports it.
    failed: Option<Outcome>,
    /// The request that was refused last, and how often.
    refused: (u64, u32),

    /// The peer is to be woken, if it sleeps, when that request is done.
    wake_after: Option<u64>,
    /// The last of the peer's sleeps that we have answered.
    answered: u64,
    /// Our last sleep that the peer was told of, and whether it has not answered yet.
    sleep: u64,
    asleep: bool,
}

/// Memory with its registration, which goes first.
#[derive(Debug)]
struct Wired {
    registration: Registration,
    memory: Memory,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other side has not said that it serves us.
    Meeting,
    Up,
    /// We have begun anew, and wait to be welcome.
    Again,
}

/// A request of ours.
#[derive(Debug)]
struct Request {
    what: What,
    to: (u64, u32),
    /// The grant it is posted under; 0 for what is between the two fabrics.
    grant: u32,
    from: From,
    tag: Option<u64>,
    /// It will not be posted.
    denied: bool,
}

/// Where its bytes are.
#[derive(Debug)]
enum From {
    Nothing,
    /// At that position, and up to another.
    Bounce {
        at: u64,
        len: usize,
    },
    /// Until there is room to bounce them.
    Heap(Box<[u8]>),
    /// In our own memory, which is kept.
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
    #[error("the other side makes no sense: {0}")]
    Nonsense(&'static str),
    #[error("{BACKLOG_MAX} requests wait for the other side")]
    Unserved,
    #[error("the control channel has ended")]
    Closed,
}

/// What a caller posts.
pub(super) struct Span {
    pub(super) held: Arc<Held>,
    pub(super) at: usize,
    pub(super) len: usize,
}

/// Where to, and under what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) to: (u64, u32),
    pub(super) grant: u32,
    /// It is known already that the peer would refuse.
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
            bell: Wired::new(adapter, WORD, Reach::Everybody)?,
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

    /// The numbers of the pair that carries our requests, and of the one that serves the peer's.
    pub(super) fn pairs(&self) -> (u32, u32) {
        (self.out.number(), self.into.number())
    }

    /// What we say of our side first. Packets are numbered from what `beginning` was at first.
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

    /// The other side's offer: from here on its requests are served.
    pub(super) fn offered(&mut self, offer: Offer) -> Result<(), Broken> {
        if self.theirs.is_some() {
            return Err(Broken::Nonsense("it offers a connection twice"));
        }
        self.theirs = Some(offer);
        self.into.connect(&far(&offer, offer.out), (0, offer.first), true)?;
        self.out.connect(&far(&offer, offer.into), (self.beginning, 0), false)?;
        Ok(())
    }

    /// The other side serves us.
    pub(super) fn ready(&mut self) -> Result<(), Broken> {
        if self.theirs.is_none() || self.stage != Stage::Meeting {
            return Err(Broken::Nonsense("it is ready before we have met"));
        }
        self.stage = Stage::Up;
        Ok(())
    }

    /// The other side begins anew.
    pub(super) fn again(&mut self, first: u32) -> Result<(), Broken> {
        let offer = self.theirs.ok_or(Broken::Nonsense("it begins again and never began"))?;
        self.into.connect(&far(&offer, offer.out), (0, first), true)?;
        // We are awake, and a wake-up may have been lost.
        self.asleep = false;
        Ok(())
    }

    /// The other side serves us again. Returns the grant that is no more, if that was why it did not.
    pub(super) fn welcome(&mut self, beginning: u32, open: bool) -> Option<u32> {
        if self.stage != Stage::Again || beginning != self.beginning {
            return None;
        }
        self.stage = Stage::Up;
        let grant = self.requests.front()?.grant;
        let tired = self.refused.1 > REFUSALS_MAX;
        if open && tired {
            tracing::error!(grant, "a request is refused again and again, and its grant is open");
        }
        (!open || tired).then_some(grant)
    }

    /// What is under that grant will not be done.
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

    /// Posts a write of bytes that the caller keeps.
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

    /// Puts bytes where the device finds them, if there is room.
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

    /// Whether there is something that could be posted.
    pub(super) fn has_unposted(&self) -> bool {
        self.posted < self.requests.len()
    }

    /// How much there is.
    pub(super) fn backlog(&self) -> usize {
        self.requests.len() - self.posted
    }

    /// Gives the device all that it takes: a doorbell for each chain.
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
            // Its end says that of all before it.
            last.signalled = true;
            self.out.post(&chain[..len])?;
        }
        Ok(())
    }

    /// The number of the request that an end tells of, if it is of this beginning.
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

    /// The first request has ended: denied, or done.
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

    /// What is denied ends in its turn. Whoever is to be woken is.
    fn settle(&mut self, completions: &mut Vec<Completion>) {
        while self.requests.front().is_some_and(|request| request.denied) {
            self.end_first(completions);
        }
        if self.wake_after.is_some_and(|number| number < self.first) {
            self.wake_after = None;
            self.ring();
        }
    }

    /// That request was refused: begins anew, and returns what the other side must know.
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

    /// Whether such an end matters to us: one of an earlier beginning does not.
    pub(super) fn is_of_now(&self, id: u64) -> bool {
        self.number(id).is_some()
    }

    /// The peer is to be woken if it sleeps, once all that was posted is done.
    pub(super) fn wake(&mut self) {
        if self.requests.is_empty() {
            self.ring();
        } else {
            self.wake_after = Some(self.first + self.requests.len() as u64 - 1);
        }
    }

    /// Answers the peer's sleep, if it has told us of one since.
    fn ring(&mut self) {
        let sleep = self.bell.memory.load(0);
        if sleep == self.answered {
            return;
        }
        self.answered = sleep;
        let (from, tag) = (From::Nothing, None);
        self.push(Request { what: What::Wake, to: (0, 0), grant: 0, from, tag, denied: false });
    }

    /// We are going to sleep. Returns whether the peer had to be told.
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
        // Only a new beginning has put them all back already.
        let _ = self.into.receive();
    }

    /// Nothing of the peer's writes any more but what was looked at before, until it is resumed.
    pub(super) fn suspend(&self) -> io::Result<()> {
        if self.theirs.is_none() || (self.into.let_write(false).is_ok() && self.into.serves()) {
            return Ok(());
        }
        // It has refused something, and begins anew. What it holds on to it lets go.
        self.into.reset()
    }

    /// Serves the peer as before; one that was refused meanwhile begins anew.
    pub(super) fn resume(&self) {
        if self.into.serves() {
            let _ = self.into.let_write(true);
        }
    }

    /// Nobody will ever know how the requests have ended that did not end yet.
    pub(super) fn abandon(self, completions: &mut Vec<Completion>) {
        let tags = self.requests.iter().filter_map(|request| request.tag);
        completions.extend(tags.map(Completion::lost));
    }
}

fn far(offer: &Offer, pair: u32) -> Far {
    let Offer { gid, lid, mtu, reads, .. } = *offer;
    Far { gid, lid, mtu, reads, pair }
}
