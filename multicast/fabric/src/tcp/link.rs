//! One connection to a peer: our requests, the peer's requests, and the bytes in between.
//!
//! **Invariant (order).** Requests are sent, placed, and answered in the order in which they were posted. So an answer
//! to one shows that all before it are done, except for those that were denied.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use super::Traffic;
use super::frame::{CHUNK_MAX, FRAME_MAX, Frame, Nonsense, RegionOffset};
use super::regions::Regions;
use super::stream::Stream;
use crate::{Completion, Outcome, Region};

/// Bytes read in one system call: room for the start of a frame that came before, and more.
pub(super) const BUFFER: usize = 4 * FRAME_MAX;
/// Reads in a row from one link before the others get their turn.
const READS_MAX: usize = 8;
/// If more bytes than this wait for a peer, the peer is given up. Traffic under flow control (rings, logs, messages)
/// stops long before; this bounds the rest: words, heartbeats, answers.
const BACKLOG_MAX: usize = 64 << 20;
/// Most messages of one sender that may wait for one process.
pub(super) const LETTERS_MAX: u64 = 4096;
/// Most notes that may wait for the fabric whose control channel this is. It reads them at every poll.
const NOTES_MAX: usize = 4096;
/// Capacity of `out` that is kept when it is empty.
const ROOM_KEPT: usize = 1 << 20;

/// One connection, and both sides' requests on it.
#[derive(Debug)]
pub(super) struct TcpLink {
    stream: Stream,
    /// Bytes to be sent, of which the first `sent` were.
    out: Vec<u8>,
    sent: usize,
    /// The start of a frame whose end has not arrived.
    rest: Vec<u8>,

    /// Our requests so far; those whose ends are awaited; and the last that was answered: `answered <= posted`.
    posted: u64,
    waiting: VecDeque<Waiting>,
    answered: u64,
    /// How an untagged write failed, until a tagged one reports it.
    failed: Option<Outcome>,
    letters_sent: u64,
    letters_taken: u64,

    /// The peer's requests so far, and whether the peer is to be told that they are done.
    received: u64,
    owed: bool,
    letters_received: u64,
    letters_read: u64,
}

/// A request of ours whose end is awaited.
#[derive(Debug)]
struct Waiting {
    number: u64,
    tag: Option<u64>,
    /// For a read: where its bytes go, and how many.
    into: Option<(Region, usize, usize)>,
}

/// What a peer's frames act upon.
pub(super) struct Reach<'a> {
    pub(super) regions: &'a Regions,
    /// The peer's incarnation, and its handle.
    pub(super) writer: u64,
    pub(super) peer: u32,
    pub(super) messages: &'a mut VecDeque<(u32, Vec<u8>)>,
    /// `None` where nobody reads them.
    pub(super) notes: Option<&'a mut VecDeque<(u32, Vec<u8>)>>,
    pub(super) completions: &'a mut Vec<Completion>,
    pub(super) traffic: &'a mut Traffic,
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the other side has closed it")]
    Closed,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("the other side breaks the protocol: {0}")]
    Nonsense(&'static str),
    #[error("the other side reads nothing: {0} bytes wait for it")]
    Unread(usize),
}

impl From<Nonsense> for Ended {
    fn from(Nonsense(what): Nonsense) -> Self {
        Self::Nonsense(what)
    }
}

impl TcpLink {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            out: Vec::new(),
            sent: 0,
            rest: Vec::new(),
            posted: 0,
            waiting: VecDeque::new(),
            answered: 0,
            failed: None,
            letters_sent: 0,
            letters_taken: 0,
            received: 0,
            owed: false,
            letters_received: 0,
            letters_read: 0,
        }
    }

    /// Appends bytes that precede all frames.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Posts a write. `copy` puts its bytes into a buffer, piece by piece.
    pub(super) fn write(
        &mut self,
        to: RegionOffset,
        len: usize,
        tag: Option<u64>,
        mut copy: impl FnMut(usize, &mut [u8]),
    ) {
        let mut at = 0;
        loop {
            let now = (len - at).min(CHUNK_MAX);
            let last = at + now == len;
            let asks = last && tag.is_some();
            let place = RegionOffset { at: to.at + at as u64, ..to };
            let start = Frame::begin_write(&mut self.out, place, asks, now);
            copy(at, &mut self.out[start..]);
            self.posted += 1;
            if let Some(tag) = tag.filter(|_| last) {
                self.waiting.push_back(Waiting { number: self.posted, tag: Some(tag), into: None });
            }
            at += now;
            if last {
                return;
            }
        }
    }

    /// Posts a read.
    pub(super) fn read(&mut self, from: RegionOffset, len: usize, into: (Region, usize), tag: u64) {
        let mut at = 0;
        loop {
            let now = (len - at).min(CHUNK_MAX);
            let last = at + now == len;
            let place = RegionOffset { at: from.at + at as u64, ..from };
            Frame::Read { place, len: now as u32 }.encode(&mut self.out);
            self.posted += 1;
            self.waiting.push_back(Waiting {
                number: self.posted,
                tag: last.then_some(tag),
                into: Some((into.0, into.1 + at, now)),
            });
            at += now;
            if last {
                return;
            }
        }
    }

    /// Whether the peer takes another message.
    pub(super) fn has_room_for_mail(&self) -> bool {
        self.letters_sent - self.letters_taken < LETTERS_MAX
    }

    pub(super) fn mail(&mut self, bytes: &[u8]) {
        self.letters_sent += 1;
        Frame::Mail { bytes }.encode(&mut self.out);
    }

    #[cfg(feature = "verbs")]
    pub(super) fn note(&mut self, bytes: &[u8]) {
        Frame::Note { bytes }.encode(&mut self.out);
    }

    /// One of the peer's messages was read.
    pub(super) fn letter_read(&mut self) {
        self.letters_read += 1;
        Frame::Taken { messages: self.letters_read }.encode(&mut self.out);
    }

    /// Whether something waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.out.len() || self.stream.has_unsent()
    }

    /// How many bytes wait to be sent.
    pub(super) fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Gives the system all that it takes.
    pub(super) fn flush(&mut self, traffic: &mut Traffic) -> Result<(), Ended> {
        while self.has_unsent() {
            match self.stream.send(&self.out[self.sent..]) {
                Ok(more) => {
                    self.sent += more;
                    traffic.sent += more as u64;
                    traffic.sends += 1;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.backlog() > BACKLOG_MAX {
                        return Err(Ended::Unread(self.backlog()));
                    }
                    // Drop the sent bytes once they are worth it.
                    if self.sent > self.out.len() / 2 {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.out.shrink_to(ROOM_KEPT);
        self.sent = 0;
        Ok(())
    }

    /// Takes what has arrived, by way of `buffer`, which has [`BUFFER`] bytes. Returns whether there may be more.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        reach: &mut Reach<'_>,
    ) -> Result<bool, Ended> {
        for _ in 0..READS_MAX {
            let kept = self.rest.len();
            buffer[..kept].copy_from_slice(&self.rest);
            let came = match self.stream.receive(&mut buffer[kept..]) {
                Ok(0) => return Err(Ended::Closed),
                Ok(came) => came,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            reach.traffic.received += came as u64;
            let end = kept + came;
            let mut at = 0;
            while let Some((frame, len)) = Frame::decode(&buffer[at..end])? {
                self.take(frame, reach)?;
                at += len;
            }
            self.rest.clear();
            self.rest.extend_from_slice(&buffer[at..end]);
            if std::mem::take(&mut self.owed) {
                Frame::Done { number: self.received }.encode(&mut self.out);
            }
            if self.stream.is_drained() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take(&mut self, frame: Frame<'_>, reach: &mut Reach<'_>) -> Result<(), Nonsense> {
        match frame {
            Frame::Write { place, asks, bytes } => {
                self.received += 1;
                if reach.regions.place(place, reach.writer, bytes) {
                    self.owed |= asks;
                } else {
                    self.deny();
                }
            }
            Frame::Read { place, len } => {
                self.received += 1;
                match reach.regions.reach_to_read(place, len as usize) {
                    Some((memory, at)) => {
                        self.owed = false;
                        let start =
                            Frame::begin_fetched(&mut self.out, self.received, len as usize);
                        memory.get(at, &mut self.out[start..]);
                    }
                    None => self.deny(),
                }
            }
            Frame::Done { number } => self.done(number, reach)?,
            Frame::Denied { number } => self.denied(number, reach)?,
            Frame::Fetched { number, bytes } => self.fetched(number, bytes, reach)?,
            Frame::Mail { bytes } => {
                self.letters_received += 1;
                if self.letters_received - self.letters_read > LETTERS_MAX {
                    return Err(Nonsense("it sends more control messages than may wait"));
                }
                reach.messages.push_back((reach.peer, bytes.to_owned()));
            }
            Frame::Taken { messages } => {
                if messages < self.letters_taken || messages > self.letters_sent {
                    return Err(Nonsense("it acknowledges control messages that were not sent"));
                }
                self.letters_taken = messages;
            }
            Frame::Note { bytes } => {
                let Some(notes) = &mut reach.notes else {
                    let why = "it speaks of queue pairs: its fabric is verbs, and here it is tcp";
                    return Err(Nonsense(why));
                };
                if notes.len() >= NOTES_MAX {
                    return Err(Nonsense("it sends too many notes"));
                }
                notes.push_back((reach.peer, bytes.to_owned()));
            }
        }
        Ok(())
    }

    /// Denies the peer's last request. That also reports all before it as done.
    fn deny(&mut self) {
        self.owed = false;
        Frame::Denied { number: self.received }.encode(&mut self.out);
    }

    /// All requests up to `number` are done, except for those that were answered before.
    fn done(&mut self, number: u64, reach: &mut Reach<'_>) -> Result<(), Nonsense> {
        if number < self.answered || number > self.posted {
            return Err(Nonsense("it answers a request that is not in flight"));
        }
        self.answered = number;
        while let Some(ended) = self.waiting.pop_front_if(|waiting| waiting.number <= number) {
            if ended.into.is_some() {
                return Err(Nonsense("it acknowledges a read without its bytes"));
            }
            if let Some(tag) = ended.tag {
                let outcome = self.failed.take().unwrap_or(Outcome::Done);
                reach.completions.push(Completion { tag, outcome });
            }
        }
        Ok(())
    }

    /// Takes the awaited request of that number. All before it are done.
    fn answer(&mut self, number: u64, reach: &mut Reach<'_>) -> Result<Option<Waiting>, Nonsense> {
        if number <= self.answered {
            return Err(Nonsense("it answers a request that is not in flight"));
        }
        self.done(number - 1, reach)?;
        if number > self.posted {
            return Err(Nonsense("it answers a request that is not in flight"));
        }
        self.answered = number;
        Ok(self.waiting.pop_front_if(|waiting| waiting.number == number))
    }

    fn denied(&mut self, number: u64, reach: &mut Reach<'_>) -> Result<(), Nonsense> {
        let outcome = Outcome::Denied;
        match self.answer(number, reach)? {
            Some(Waiting { tag: Some(tag), into: None, .. }) => {
                let outcome = self.failed.take().unwrap_or(outcome);
                reach.completions.push(Completion { tag, outcome });
            }
            Some(Waiting { tag: Some(tag), into: Some(_), .. }) => {
                reach.completions.push(Completion { tag, outcome });
            }
            // A piece of a read: its last piece will be denied too.
            Some(Waiting { tag: None, .. }) => {}
            None => _ = self.failed.get_or_insert(outcome),
        }
        Ok(())
    }

    fn fetched(
        &mut self,
        number: u64,
        bytes: &[u8],
        reach: &mut Reach<'_>,
    ) -> Result<(), Nonsense> {
        match self.answer(number, reach)? {
            Some(Waiting { tag, into: Some((region, at, len)), .. }) if len == bytes.len() => {
                // The region may have been destroyed meanwhile.
                if let Some(memory) = reach.regions.find(region) {
                    memory.put(at, bytes);
                }
                let outcome = Outcome::Done;
                reach.completions.extend(tag.map(|tag| Completion { tag, outcome }));
                Ok(())
            }
            _ => Err(Nonsense("it sends bytes that no read awaits")),
        }
    }

    /// Reports the requests without an answer as lost: how they ended will never be known.
    pub(super) fn abandon(&mut self, completions: &mut Vec<Completion>) {
        let tags = self.waiting.drain(..).filter_map(|waiting| waiting.tag);
        completions.extend(tags.map(Completion::lost));
    }

    /// Sends what there is, and then ends our direction.
    pub(super) fn end(&mut self, traffic: &mut Traffic) {
        let _ = self.flush(traffic);
        self.stream.end();
    }
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
