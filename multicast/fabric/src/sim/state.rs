//! The state of a simulated world, and how its next event lands.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use super::counters::Counters;
use super::hardware::Host;
use super::link::{Lane, Piece, SimLink, Step, Way, cut};
use super::past::Past;
use super::process::{Landing, Process};
use super::rng::{Rng, mix};
use super::{SimConfig, nanos};
use crate::slab::Slab;
use crate::{Completion, Outcome};

#[derive(Debug)]
pub(super) struct State {
    pub(super) now: u64,
    pub(super) config: SimConfig,
    pub(super) rng: Rng,
    /// The first step of each lane: due time, a number that orders steps with equal times, and the lane.
    calendar: BinaryHeap<Reverse<(u64, u64, usize, Way)>>,
    entries: u64,
    pub(super) processes: Vec<Process>,
    /// The latest incarnation of each name.
    pub(super) names: BTreeMap<String, usize>,
    pub(super) links: Vec<SimLink>,
    pub(super) hosts: Vec<Host>,
    pub(super) ops: Slab<Op>,
    posted: u64,
    /// Pairs of names, from and to, between which a partition holds everything back.
    pub(super) stalled: BTreeSet<(String, String)>,
    /// Lanes whose first step came due while they were stalled.
    held: Vec<(usize, Way)>,
    /// Factors on the latency of everything from and to a name.
    pub(super) slow: BTreeMap<String, u64>,
    /// Whether memory changes while it is looked at.
    pub(super) stirred: bool,
    pub(super) fingerprint: u64,
    pub(super) counters: Counters,
    pub(super) trace: Option<Vec<String>>,
}

/// An operation in flight.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) process: usize,
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) at: usize,
    pub(super) bytes: Bytes,
    pub(super) tag: Option<u64>,
    /// Position in the order of all postings.
    pub(super) posted: u64,
    /// It is in several pieces.
    pub(super) torn: bool,
    /// Bytes that have landed: `landed <= bytes.len()`.
    pub(super) landed: usize,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Bytes {
    /// Copied at posting.
    Inline(Vec<u8>),
    /// Copied when the write lands, as hardware does; `posted` is a copy from the time of posting.
    Span { process: usize, region: u32, at: usize, posted: Vec<u8> },
    /// The bytes fetched so far, for a region and an offset of the reader.
    Fetched { bytes: Vec<u8>, into: (u32, usize) },
}

impl Bytes {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Fetched { bytes, .. } => bytes.len(),
            Self::Span { posted, .. } => posted.len(),
        }
    }
}

impl State {
    pub(super) fn new(seed: u64, config: SimConfig) -> Self {
        Self {
            now: 0,
            config,
            rng: Rng::new(seed),
            calendar: BinaryHeap::new(),
            entries: 0,
            processes: Vec::new(),
            names: BTreeMap::new(),
            links: Vec::new(),
            hosts: Vec::new(),
            ops: Slab::default(),
            posted: 0,
            stalled: BTreeSet::new(),
            held: Vec::new(),
            slow: BTreeMap::new(),
            stirred: false,
            fingerprint: mix(seed),
            counters: Counters::default(),
            trace: None,
        }
    }

    // Posting.

    pub(super) fn post(&mut self, link: usize, mut op: Op, fetch: bool) {
        self.posted += 1;
        op.posted = self.posted;
        let len = op.bytes.len();
        let pieces = if self.rng.one_in(self.config.tear_one_in) {
            cut(&mut self.rng, len)
        } else {
            vec![Piece { at: 0, len }]
        };
        op.torn = pieces.len() > 1;
        self.counters.torn_writes += u64::from(op.torn && !fetch);
        if self.links[link].broken {
            let tag = op.tag;
            self.push(link, Way::Back, Step::Complete { tag, outcome: Outcome::Unknown });
            return;
        }
        let op = self.ops.insert(op);
        let count = pieces.len();
        for (i, piece) in pieces.into_iter().enumerate() {
            let last = i + 1 == count;
            let step = if fetch {
                Step::Fetch { op, piece, last }
            } else {
                Step::Land { op, piece, last }
            };
            self.push(link, Way::Data, step);
        }
    }

    pub(super) fn push(&mut self, link: usize, way: Way, step: Step) {
        let mut latency = self.latency(link);
        let late_max = nanos(self.config.late_completions_max);
        if late_max > 0 && way == Way::Back && self.rng.one_in(self.config.late_completions_one_in)
        {
            latency += self.rng.between(0, late_max);
        }
        let ready = match self.config.costs {
            Some(_) if way != Way::Back => {
                let from = self.links[link].from;
                return self.processes[from].outbox.push(link, way, step);
            }
            Some(costs) => self.answered(link, &step, &costs),
            None => self.now + latency,
        };
        self.schedule(link, way, step, ready);
    }

    /// Schedules a step of a connection at `ready`, or after the steps before it.
    pub(super) fn schedule(&mut self, link: usize, way: Way, step: Step, ready: u64) {
        let lane = self.links[link].lane(way);
        lane.steps.push_back((ready, step));
        self.arm(link, way);
    }

    fn latency(&mut self, link: usize) -> u64 {
        if self.rng.one_in(self.config.drag_one_in) {
            self.links[link].drag = self.rng.between(1, self.config.drag_max.max(1));
        }
        let (low, high) = (nanos(self.config.latency.0), nanos(self.config.latency.1));
        let mut latency = self.rng.between(low, high.max(low)) * self.links[link].drag;
        if self.rng.one_in(self.config.hiccup_one_in) {
            latency += self.rng.between(0, nanos(self.config.hiccup_max));
        }
        let ends = [self.links[link].from, self.links[link].to];
        let slowness = ends.map(|end| self.slow.get(&self.processes[end].name).copied());
        latency * slowness.into_iter().flatten().max().unwrap_or(1)
    }

    fn arm(&mut self, link: usize, way: Way) {
        let now = self.now;
        let gap_max = nanos(self.config.latency.0).max(1);
        let lane = self.links[link].lane(way);
        if lane.armed {
            return;
        }
        let Some(&(ready, _)) = lane.steps.front() else { return };
        lane.armed = true;
        let due = ready.max(now + 1 + self.rng.below(gap_max));
        self.entries += 1;
        self.calendar.push(Reverse((due, self.entries, link, way)));
    }

    // Landing.

    /// Called before a look at memory. While memory is stirred, with a probability of one in `one_in`, lands some steps
    /// first. Returns whether it did.
    pub(super) fn stir(&mut self, one_in: u64) -> bool {
        let stirs = self.stirred && self.rng.one_in(one_in);
        if stirs {
            self.counters.stirred_looks += 1;
            let until = self.now.saturating_add(nanos(self.config.stirred_for));
            for _ in 0..self.rng.between(1, self.config.stirred_events_max) {
                if self.next_due().is_none_or(|due| due > until) {
                    break;
                }
                self.step();
            }
        }
        stirs
    }

    /// Called for each look of a process. If the process was stopped in this turn and has not resumed, returns what was
    /// there when it was stopped.
    pub(super) fn past(&mut self, process: usize, at_clock: bool) -> Option<&mut Past> {
        let past = self.processes[process].past.as_mut().filter(|_| self.stirred)?;
        if past.looks(at_clock) {
            return self.processes[process].past.as_mut();
        }
        self.goes_on(process);
        None
    }

    /// Resumes a process that was stopped in the middle of this turn.
    pub(super) fn goes_on(&mut self, process: usize) {
        if self.stirred && self.processes[process].past.take().is_some() {
            self.counters.stopped_turns += 1;
        }
    }

    /// At the end of a turn: resumes each stopped process that has begun its turn.
    pub(super) fn end_pasts(&mut self) {
        for process in &mut self.processes {
            process.past.take_if(|past| past.begun);
        }
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.calendar.peek().map(|Reverse((due, ..))| *due)
    }

    pub(super) fn step(&mut self) -> bool {
        let Some(Reverse((due, _, link, way))) = self.calendar.pop() else { return false };
        self.now = self.now.max(due);
        self.links[link].lane(way).armed = false;
        if self.is_stalled(link, way) {
            self.counters.stalls += 1;
            self.held.push((link, way));
            self.links[link].lane(way).armed = true;
            return true;
        }
        if self.config.costs.is_some() && self.waits_at_host(link, way) {
            return true;
        }
        // A crash or a hang-up may have emptied the lane meanwhile.
        if let Some((_, step)) = self.links[link].lane(way).steps.pop_front() {
            if self.trace.is_some() {
                self.note(link, &step);
            }
            self.stamp(&[self.now, link as u64, way as u64]);
            self.land(link, step);
        }
        self.arm(link, way);
        true
    }

    /// Whether the first step of a lane still has to pass the cable and the card of the receiving host.
    fn waits_at_host(&mut self, link: usize, way: Way) -> bool {
        let Some(costs) = self.config.costs.filter(|_| way != Way::Back) else { return false };
        if std::mem::take(&mut self.links[link].lane(way).arrived) {
            return false;
        }
        let Some((_, step)) = self.links[link].lane(way).steps.pop_front() else { return false };
        let ready = self.arrive(link, &step, &costs);
        let lane = self.links[link].lane(way);
        lane.steps.push_front((ready, step));
        lane.arrived = ready > self.now;
        if ready > self.now {
            self.arm(link, way);
        }
        ready > self.now
    }

    fn is_stalled(&self, link: usize, way: Way) -> bool {
        if self.stalled.is_empty() {
            return false;
        }
        let link = &self.links[link];
        let (from, to) = match way {
            Way::Data | Way::Mail => (link.from, link.to),
            Way::Back => (link.to, link.from),
        };
        let name = |process: usize| self.processes[process].name.clone();
        self.stalled.contains(&(name(from), name(to)))
    }

    /// Releases the held lanes that are not stalled any more.
    pub(super) fn release(&mut self) {
        for (link, way) in std::mem::take(&mut self.held) {
            if self.is_stalled(link, way) {
                self.held.push((link, way));
            } else {
                self.links[link].lane(way).armed = false;
                self.arm(link, way);
            }
        }
    }

    fn land(&mut self, link: usize, step: Step) {
        let (from, to) = (self.links[link].from, self.links[link].to);
        match step {
            Step::Land { op, piece, last } => self.land_piece(link, op, piece, last),
            Step::Fetch { op, piece, last } => self.fetch_piece(link, op, piece, last),
            Step::Wake => self.wake(to),
            Step::LostWake => self.processes[to].unwoken = true,
            Step::Mail(bytes) => {
                self.stamp(&[bytes.len() as u64]);
                if self.processes[to].alive {
                    self.counters.mails += 1;
                    self.processes[to].mail.push_back((from, bytes));
                    self.wake(to);
                }
            }
            Step::Deposit { op } => self.deposit(link, op),
            Step::Complete { tag, outcome } => self.complete(link, tag, outcome),
        }
    }

    fn wake(&mut self, process: usize) {
        if self.processes[process].parked.take().is_some() {
            self.counters.wakes += 1;
        }
    }

    fn land_piece(&mut self, link: usize, handle: u32, piece: Piece, last: bool) {
        let from = self.links[link].from;
        let op = self.ops.get(handle).expect("an operation has steps as long as it lives");
        let (process, region, generation) = (op.process, op.region, op.generation);
        let verdict = match op.outcome {
            Outcome::Done => {
                let target = &self.processes[process];
                let open = target.regions.get(region).map(|r| r.may_write(generation, from));
                match (self.is_within_reach(process, from), open) {
                    (false, _) => Outcome::Unknown,
                    (true, Some(true)) => {
                        self.counters.writes_to_the_dead += u64::from(!target.alive);
                        Outcome::Done
                    }
                    (true, _) => Outcome::Denied,
                }
            }
            decided => decided,
        };
        let bytes = if verdict == Outcome::Done { self.bytes_of(handle, piece) } else { None };
        let verdict = if bytes.is_none() && verdict == Outcome::Done {
            Outcome::Unknown // The source region was destroyed, as if deregistered.
        } else {
            verdict
        };
        let op = self.ops.get_mut(handle).expect("looked at above");
        if op.outcome == Outcome::Done && verdict == Outcome::Denied {
            self.counters.denied += 1;
            self.counters.denied_half_way += u64::from(op.landed > 0);
        }
        op.outcome = verdict;
        let (at, torn, posted) = (op.at, op.torn, op.posted);
        if let Some(bytes) = bytes {
            op.landed += piece.len;
            let len = op.bytes.len();
            self.stamp(&[region.into(), (at + piece.at) as u64, hash(&bytes)]);
            let target = &mut self.processes[process];
            if target.landed > posted {
                self.counters.reorders += u64::from(last);
            } else {
                target.landed = posted;
            }
            let region = target.regions.get_mut(region).expect("found open above");
            if torn && !last && !region.landing.iter().any(|landing| landing.op == handle) {
                region.landing.push(Landing { op: handle, at, len });
            }
            region.put(at + piece.at, &bytes);
        }
        if last || verdict != Outcome::Done {
            self.landed(process, region, handle);
        }
        if last {
            let op = self.ops.remove(handle).expect("looked at above");
            self.answer(link, Step::Complete { tag: op.tag, outcome: verdict });
        }
    }

    /// Nothing more of this write will land.
    fn landed(&mut self, process: usize, region: u32, op: u32) {
        if let Some(region) = self.processes[process].regions.get_mut(region) {
            region.landing.retain(|landing| landing.op != op);
        }
    }

    fn bytes_of(&mut self, op: u32, piece: Piece) -> Option<Vec<u8>> {
        let op = self.ops.get(op)?;
        let range = piece.at..piece.at + piece.len;
        match &op.bytes {
            Bytes::Inline(bytes) | Bytes::Fetched { bytes, .. } => Some(bytes[range].to_vec()),
            Bytes::Span { process, region, at, posted } => {
                if !self.config.late_spans {
                    return Some(posted[range].to_vec());
                }
                let mut bytes = vec![0; piece.len];
                self.processes[*process].regions.get(*region)?.get(at + piece.at, &mut bytes);
                self.counters.late_spans += u64::from(bytes != posted[range]);
                Some(bytes)
            }
        }
    }

    fn fetch_piece(&mut self, link: usize, handle: u32, piece: Piece, last: bool) {
        let op = self.ops.get(handle).expect("an operation has steps as long as it lives");
        let (process, region) = (op.process, op.region);
        let readable = self.is_within_reach(process, self.links[link].from);
        let op = self.ops.get_mut(handle).expect("looked at above");
        let target = &self.processes[process];
        let open = target.regions.get(region).filter(|region| region.is_open(op.generation));
        match (op.outcome, readable, open) {
            (Outcome::Done, true, Some(region)) => {
                let at = op.at + piece.at;
                self.counters.torn_reads += u64::from(region.is_torn(at, piece.len));
                if let Bytes::Fetched { bytes, .. } = &mut op.bytes {
                    region.get(at, &mut bytes[piece.at..piece.at + piece.len]);
                }
            }
            (Outcome::Done, true, None) => op.outcome = Outcome::Denied,
            (Outcome::Done, false, _) => op.outcome = Outcome::Unknown,
            _ => {}
        }
        if last && !self.answer(link, Step::Deposit { op: handle }) {
            self.ops.remove(handle);
        }
    }

    fn deposit(&mut self, link: usize, handle: u32) {
        let op = self.ops.remove(handle).expect("an operation has steps as long as it lives");
        let reader = self.links[link].from;
        if let (Outcome::Done, Bytes::Fetched { bytes, into: (region, at) }) =
            (op.outcome, &op.bytes)
        {
            self.stamp(&[hash(bytes)]);
            if let Some(region) = self.processes[reader].regions.get_mut(*region) {
                region.put(*at, bytes);
            }
        }
        self.complete(link, op.tag, op.outcome);
    }

    /// Sends an answer back if the poster is alive. Returns whether it is.
    fn answer(&mut self, link: usize, step: Step) -> bool {
        let heard = self.processes[self.links[link].from].alive;
        if heard {
            self.push(link, Way::Back, step);
        }
        heard
    }

    fn complete(&mut self, link: usize, tag: Option<u64>, outcome: Outcome) {
        self.counters.unknown += u64::from(outcome == Outcome::Unknown);
        let poster = self.links[link].from;
        match tag {
            Some(tag) => {
                let outcome = self.links[link].failed.take().unwrap_or(outcome);
                self.stamp(&[tag, outcome as u64]);
                self.processes[poster].completions.push(Completion { tag, outcome });
            }
            None if outcome == Outcome::Done => {}
            None => _ = self.links[link].failed.get_or_insert(outcome),
        }
    }

    // Faults.

    /// Ends a process. After a crash, a random number of the steps that it has posted still happen; after an orderly
    /// end, all of them do.
    pub(super) fn end(&mut self, process: usize, crash: bool) {
        let lag = nanos(self.config.gone_lag);
        let dead = &mut self.processes[process];
        if !dead.alive {
            return;
        }
        dead.alive = false;
        dead.parked = None;
        dead.completions.clear();
        dead.mail.clear();
        dead.past = None;
        dead.gone_at = self.now + if crash { self.rng.between(0, lag) } else { 0 };
        self.counters.crashes += u64::from(crash);
        self.stamp(&[process as u64, crash.into()]);
        for link in 0..self.links.len() {
            if self.links[link].from != process {
                continue;
            }
            let back = std::mem::take(&mut self.links[link].back.steps);
            self.forget(link, back, false);
            for way in [Way::Data, Way::Mail] {
                if crash {
                    let lane: &mut Lane = self.links[link].lane(way);
                    let kept = self.rng.between(0, lane.steps.len() as u64) as usize;
                    let lost = lane.steps.split_off(kept);
                    self.forget(link, lost, false);
                }
            }
        }
    }

    /// Breaks every connection between two processes. Operations that have not landed never will. Of those that have,
    /// some completions are lost.
    pub(super) fn flap(&mut self, one: usize, other: usize) {
        if !(self.processes[one].alive && self.processes[other].alive) || one == other {
            return;
        }
        self.counters.flaps += 1;
        self.stamp(&[one as u64, other as u64]);
        let lag = nanos(self.config.gone_lag);
        for link in 0..self.links.len() {
            let (from, to) = (self.links[link].from, self.links[link].to);
            let between = (from, to) == (one, other) || (from, to) == (other, one);
            if !between || self.links[link].broken {
                continue;
            }
            self.links[link].broken = true;
            let known_at = self.now + self.rng.between(0, lag);
            for known in self.processes[from].peers.iter_mut().filter(|it| it.link == link) {
                known.broken_at = Some(known_at);
            }
            let heard = self.rng.between(0, self.links[link].back.steps.len() as u64) as usize;
            let unheard = self.links[link].back.steps.split_off(heard);
            // The bytes of a read must not arrive after a new connection was made.
            let heard = std::mem::take(&mut self.links[link].back.steps);
            for (_, step) in heard {
                self.land(link, step);
            }
            for (_, step) in unheard {
                let tag = match step {
                    Step::Complete { tag, .. } => tag,
                    Step::Deposit { op } => self.ops.remove(op).and_then(|op| op.tag),
                    Step::Land { .. }
                    | Step::Fetch { .. }
                    | Step::Wake
                    | Step::LostWake
                    | Step::Mail(_) => None,
                };
                self.counters.flapped_operations += 1;
                self.push(link, Way::Back, Step::Complete { tag, outcome: Outcome::Unknown });
            }
            self.counters.flapped_operations += self.links[link].data.steps.len() as u64;
            self.cut_off(link);
            let mail = std::mem::take(&mut self.links[link].mail.steps);
            self.forget(link, mail, false);
            self.processes[to].mail.retain(|(sender, _)| *sender != from);
        }
    }

    /// Drops the reads and writes of a connection that have not landed.
    pub(super) fn cut_off(&mut self, link: usize) {
        let lost = std::mem::take(&mut self.links[link].data.steps);
        self.forget(link, lost, true);
    }

    /// Drops the reads, writes and control messages from one process to another that have not landed.
    pub(super) fn cut_off_between(&mut self, from: usize, to: usize, only_broken: bool) {
        for link in 0..self.links.len() {
            let between = (self.links[link].from, self.links[link].to) == (from, to);
            // Hanging up a broken connection does not end the connection that replaced it.
            if between && (self.links[link].broken || !only_broken) {
                self.cut_off(link);
                let mail = std::mem::take(&mut self.links[link].mail.steps);
                self.forget(link, mail, false);
            }
        }
    }

    fn forget(&mut self, link: usize, steps: VecDeque<(u64, Step)>, answer: bool) {
        for (_, step) in steps {
            let (op, last) = match step {
                Step::Land { op, last, .. } | Step::Fetch { op, last, .. } => (op, last),
                Step::Deposit { op } => (op, true),
                // The target of a dropped wake-up may be asleep although writes have landed, or still will.
                Step::Wake => {
                    self.push(link, Way::Data, Step::LostWake);
                    continue;
                }
                Step::Complete { .. } | Step::LostWake | Step::Mail(_) => continue,
            };
            if !last {
                continue;
            }
            let state = self.ops.get(op).expect("an operation has steps as long as it lives");
            let (process, region, tag) = (state.process, state.region, state.tag);
            // Steps that a crash leaves in the lane still land; the write stays in part forever.
            let lane = &self.links[link].data.steps;
            let lands =
                lane.iter().any(|(_, step)| matches!(step, Step::Land { op: o, .. } if *o == op));
            let fetches =
                lane.iter().any(|(_, step)| matches!(step, Step::Fetch { op: o, .. } if *o == op));
            self.counters.cut_writes += u64::from(state.landed > 0 || lands);
            if !lands && !fetches {
                self.ops.remove(op);
                self.landed(process, region, op);
            }
            if answer {
                self.answer(link, Step::Complete { tag, outcome: Outcome::Unknown });
            }
        }
    }

    /// Whether `by` can still read and write the memory of a process: of a dead one only while it has no successor.
    fn is_within_reach(&self, process: usize, by: usize) -> bool {
        let Process { alive, ref name, .. } = self.processes[process];
        let is_last = self.names.get(name) == Some(&process);
        alive || self.config.memory_outlives && is_last && !self.is_gone(process, by)
    }

    /// Whether `to` may observe that a process is dead.
    pub(super) fn is_gone(&self, process: usize, to: usize) -> bool {
        let Process { alive, gone_at, .. } = self.processes[process];
        let later = if self.config.memory_outlives {
            mix(gone_at ^ mix((process << 32 | to) as u64)) % nanos(self.config.gone_lag).max(1)
        } else {
            0
        };
        !alive && gone_at.saturating_add(later) <= self.now
    }

    // Records.

    pub(super) fn stamp(&mut self, words: &[u64]) {
        for word in words {
            self.fingerprint = mix(self.fingerprint ^ word);
        }
    }

    fn note(&mut self, link: usize, step: &Step) {
        let name = |process: usize| self.processes[process].name.as_str();
        let (from, to) = (name(self.links[link].from), name(self.links[link].to));
        let what = match step {
            Step::Land { op, piece, .. } | Step::Fetch { op, piece, .. } => {
                let op = self.ops.get(*op).expect("an operation has steps as long as it lives");
                let verb = if matches!(step, Step::Land { .. }) { "writes" } else { "reads" };
                let (at, len) = (op.at + piece.at, piece.len);
                format!("{from} {verb} {to} region {} {at}+{len}", op.region)
            }
            Step::Wake => format!("{from} wakes {to}"),
            Step::LostWake => format!("the wake-up of {to} by {from} is lost"),
            Step::Mail(bytes) => format!("{from} sends {to} a message of {} bytes", bytes.len()),
            Step::Deposit { .. } => format!("{from} has read from {to}"),
            Step::Complete { tag, outcome } => {
                format!("{from} hears from {to}: {tag:?} {outcome:?}")
            }
        };
        let line = format!("{:?} {what}", Duration::from_nanos(self.now));
        self.trace.get_or_insert_default().push(line);
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}
