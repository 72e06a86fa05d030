//! The endpoint of one process on the simulated fabric.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::hardware::Host;
use super::link::{SimLink, Step, Way};
use super::nanos;
use super::process::{Key, Known, Lent, Process, Reached, Region as Bytes, get};
use super::state::{self, Op, State};
use crate::memory::{WORD, check_len, check_remote_span, check_span};
use crate::{
    Completion, Fabric, FabricError, Outcome, Peer, Permission, Region, RegionKey, Remote, Source,
    check_mail, mailbox_is_full,
};

/// Bound on the number of events that land during a racing revocation.
const RACING_MAX: u64 = 32;

/// The endpoint of a simulated process. Everything that a crashed process posts is refused. Dropping the endpoint ends
/// the process in an orderly way.
pub struct SimFabric {
    state: Rc<RefCell<State>>,
    me: usize,
}

impl SimFabric {
    pub(super) fn new(state: Rc<RefCell<State>>, me: usize) -> Self {
        Self { state, me }
    }

    /// The name under which the process joined.
    pub fn name(&self) -> String {
        self.state.borrow().processes[self.me].name.clone()
    }

    /// The incarnation of the process.
    pub fn incarnation(&self) -> u64 {
        self.state.borrow().processes[self.me].incarnation
    }

    /// Whether the process is alive.
    pub fn is_alive(&self) -> bool {
        self.state.borrow().processes[self.me].alive
    }

    /// The name and incarnation of a peer.
    pub fn who(&self, peer: Peer) -> (String, u64) {
        let state = self.state.borrow();
        let process = state.processes[self.me].peers[peer.0 as usize].process;
        (state.processes[process].name.clone(), state.processes[process].incarnation)
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut State, usize) -> R) -> R {
        act(&mut self.state.borrow_mut(), self.me)
    }

    /// As [`with`](Self::with), for calls with effects that other processes can see, and for calls that show effects of
    /// other processes. If the process was stopped in this turn, it resumes first.
    fn acts<R>(&mut self, act: impl FnOnce(&mut State, usize) -> R) -> R {
        let state = &mut *self.state.borrow_mut();
        state.goes_on(self.me);
        act(state, self.me)
    }

    fn reached(&self, remote: Remote) -> Result<Reached, FabricError> {
        let state = self.state.borrow();
        let me = &state.processes[self.me];
        let reached = me.remotes.get(remote.0).filter(|_| me.alive);
        reached.copied().ok_or(FabricError::Gone)
    }
}

/// The peer number of `process` at `me`. Makes a connection if there is none.
fn meet(state: &mut State, me: usize, process: usize) -> Peer {
    let known = &state.processes[me].peers;
    let at = known.iter().position(|known| known.process == process && !known.is_over());
    let at = at.unwrap_or_else(|| {
        let link = state.links.len();
        state.links.push(SimLink::new(me, process));
        let known = &mut state.processes[me].peers;
        known.push(Known { process, link, hung_up: false, broken_at: None });
        known.len() - 1
    });
    Peer(at as u32)
}

fn peer(state: &State, me: usize, peer: Peer) -> Known {
    state.processes[me].peers[peer.0 as usize]
}

impl Fabric for SimFabric {
    fn now(&self) -> Duration {
        let mut state = self.state.borrow_mut();
        if let Some(past) = state.past(self.me, true) {
            return Duration::from_nanos(past.now);
        }
        Duration::from_nanos(state.processes[self.me].clock.at(state.now))
    }

    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        self.acts(|state, me| {
            let found = state.names.get(name).copied().filter(|&it| state.processes[it].alive);
            let mine = state.processes[me].name.clone();
            let ways = [(mine.clone(), name.to_owned()), (name.to_owned(), mine)];
            let cut = ways.iter().any(|way| state.stalled.contains(way));
            match found.filter(|_| !cut && state.processes[me].alive) {
                Some(process) => Ok(meet(state, me, process)),
                None => Err(FabricError::Unreachable { name: name.to_owned() }),
            }
        })
    }

    fn is_gone(&mut self, whom: Peer) -> bool {
        self.acts(|state, me| {
            let known = peer(state, me, whom);
            let broken = known.broken_at.is_some_and(|at| at <= state.now);
            known.hung_up || broken || state.is_gone(known.process, me)
        })
    }

    fn may_return(&self) -> bool {
        self.state.borrow().config.peers_may_return
    }

    fn has_died(&mut self, whom: Peer) -> bool {
        !self.may_return()
            && self.acts(|state, me| state.is_gone(peer(state, me, whom).process, me))
    }

    fn name_of(&self, peer: Peer) -> Option<String> {
        Some(self.who(peer).0)
    }

    fn hang_up(&mut self, whom: Peer) {
        self.acts(|state, me| {
            let known = &mut state.processes[me].peers[whom.0 as usize];
            known.hung_up = true;
            let (link, process, broken) = (known.link, known.process, known.broken_at.is_some());
            state.cut_off(link);
            state.cut_off_between(process, me, broken);
            state.processes[me].remotes.retain(|remote| remote.peer != whom.0);
        });
    }

    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError> {
        check_len(len);
        self.acts(|state, me| {
            if state.processes[me].scarce {
                state.counters.refused_regions += 1;
                let source = Errno::NOSPC.into();
                return Err(FabricError::NoSpace { len, dir: "the simulator".into(), source });
            }
            let me = &mut state.processes[me];
            let lent = match permission {
                Permission::Shared => Lent::Shared(me.generation()),
                Permission::Granted => Lent::Nobody,
            };
            let words = vec![0; len / WORD];
            Ok(Region(me.regions.insert(Bytes { words, lent, landing: Vec::new() })))
        })
    }

    fn destroy(&mut self, region: Region) {
        self.acts(|state, me| {
            let destroyed = state.processes[me].regions.remove(region.0);
            assert!(destroyed.is_some(), "the region was destroyed before");
        });
    }

    fn key(&self, region: Region) -> RegionKey {
        let state = self.state.borrow();
        let me = &state.processes[self.me];
        match me.region(region).lent {
            Lent::Shared(generation) => {
                Key { incarnation: me.incarnation, region: region.0, generation }.to_bytes()
            }
            Lent::Nobody | Lent::To { .. } => {
                panic!("a granted region has no key but that of its grant")
            }
        }
    }

    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        self.acts(|state, me| {
            let writer = peer(state, me, writer);
            if writer.is_over() || state.is_gone(writer.process, me) {
                return Err(FabricError::Gone);
            }
            let me = &mut state.processes[me];
            let generation = me.generation();
            let lent = &mut me.region_mut(region).lent;
            assert!(matches!(lent, Lent::Nobody), "the region is granted, or not for granting");
            *lent = Lent::To { writer: writer.process, generation };
            Ok(Key { incarnation: me.incarnation, region: region.0, generation }.to_bytes())
        })
    }

    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.acts(|state, me| {
            if state.config.racing_revocations {
                for _ in 0..state.rng.below(RACING_MAX) {
                    state.step();
                }
            }
            let region = state.processes[me].region_mut(region);
            assert!(!matches!(region.lent, Lent::Shared(_)), "a shared region has no grant");
            region.lent = Lent::Nobody;
            // Words of unfinished writes that have landed remain; no others will land.
            region.landing.clear();
        });
        Ok(())
    }

    fn attach(&mut self, whom: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        let key = Key::from_bytes(key);
        self.acts(|state, me| {
            let known = peer(state, me, whom);
            if known.is_over() || state.is_gone(known.process, me) || !state.processes[me].alive {
                return Err(FabricError::Gone);
            }
            if state.processes[me].scarce {
                state.counters.refused_regions += 1;
                let source = Errno::NOMEM.into();
                return Err(FabricError::System {
                    call: "mmap",
                    path: "the simulator".into(),
                    source,
                });
            }
            let owner = &state.processes[known.process];
            let region = owner.regions.get(key.region).filter(|it| it.is_open(key.generation));
            let region = region.filter(|_| owner.incarnation == key.incarnation);
            let len = region.ok_or(FabricError::StaleKey)?.len();
            let Key { region, generation, .. } = key;
            let Known { process, link, .. } = known;
            let reached = Reached { peer: whom.0, link, process, region, generation, len };
            Ok(Remote(state.processes[me].remotes.insert(reached)))
        })
    }

    fn detach(&mut self, remote: Remote) {
        // No other process can notice a detach.
        self.with(|state, me| _ = state.processes[me].remotes.remove(remote.0));
    }

    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        let reached = self.reached(to)?;
        check_remote_span(reached.len, at, from.bytes())?;
        self.with(|state, me| {
            let bytes = match from {
                Source::Inline(bytes) => state::Bytes::Inline(bytes.to_vec()),
                Source::Span { region, at, len } => {
                    let source = state.processes[me].region(region);
                    check_span(source.len(), at, len);
                    let mut posted = vec![0; len];
                    source.get(at, &mut posted);
                    state::Bytes::Span { process: me, region: region.0, at, posted }
                }
            };
            state.counters.writes += 1;
            let mut tag = tag;
            if state.config.costs.is_some_and(|costs| costs.stores) {
                let done = tag.take().map(|tag| Completion { tag, outcome: Outcome::Done });
                state.processes[me].completions.extend(done);
            }
            state.post(reached.link, op(&reached, at, bytes, tag), false);
        });
        Ok(())
    }

    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        let reached = self.reached(from)?;
        check_remote_span(reached.len, at, len)?;
        self.with(|state, me| {
            check_span(state.processes[me].region(into.0).len(), into.1, len);
            let bytes = state::Bytes::Fetched { bytes: vec![0; len], into: (into.0.0, into.1) };
            state.counters.reads += 1;
            state.post(reached.link, op(&reached, at, bytes, Some(tag)), true);
        });
        Ok(())
    }

    fn flush(&mut self) {
        self.with(|state, me| state.processes[me].outbox.flush());
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.with(|state, me| {
            let there = state.processes[me].completions.len();
            let seen = state.past(me, false).map(|past| std::mem::take(&mut past.completions));
            let seen = seen.unwrap_or(there).min(there);
            completions.extend(state.processes[me].completions.drain(..seen));
        });
    }

    fn wake(&mut self, whom: Peer) {
        self.with(|state, me| {
            let known = peer(state, me, whom);
            if known.is_over() {
                state.processes[known.process].unwoken = true;
                return;
            }
            // A core that polls needs no interrupt.
            let awake = state.processes[known.process].parked.is_none();
            if state.processes[me].alive && !(awake && state.config.costs.is_some()) {
                state.push(known.link, Way::Data, Step::Wake);
            }
        });
    }

    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool) {
        let slept = self.acts(|state, me| {
            let now = state.now;
            let me = &mut state.processes[me];
            if !me.alive || !me.completions.is_empty() || !me.mail.is_empty() {
                return false;
            }
            me.parked = Some(now.saturating_add(me.clock.of_world(nanos(longest))));
            me.unwoken = false;
            true
        });
        if slept && !idle(self) {
            self.acts(|state, me| state.processes[me].parked = None);
        } else if slept {
            self.acts(|state, _| state.counters.parks += 1);
        }
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        check_mail(bytes)?;
        self.with(|state, me| {
            let known = peer(state, me, to);
            if known.is_over() || state.is_gone(known.process, me) || !state.processes[me].alive {
                return Err(FabricError::Gone);
            }
            let waiting = state.processes[known.process].mail.len();
            if waiting + state.links[known.link].mail.steps.len() >= state.config.mail_waiting_max {
                return Err(mailbox_is_full(bytes));
            }
            state.push(known.link, Way::Mail, Step::Mail(bytes.to_vec()));
            Ok(())
        })
    }

    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        self.with(|state, me| {
            loop {
                if let Some(past) = state.past(me, false) {
                    past.messages = past.messages.checked_sub(1)?;
                }
                let (sender, bytes) = state.processes[me].mail.pop_front()?;
                let peers = &state.processes[me].peers;
                let known = peers.iter().any(|it| it.process == sender && !it.is_over());
                // A dead sender without a connection cannot be answered.
                if known || state.processes[sender].alive {
                    *into = bytes;
                    return Some(meet(state, me, sender));
                }
            }
        })
    }

    fn load(&self, region: Region, at: usize) -> u64 {
        let state = &mut *self.state.borrow_mut();
        if let Some(past) = state.past(self.me, false) {
            return past.words(region.0)[at / WORD];
        }
        state.stir(state.config.stirred_looks_one_in);
        let region = state.processes[self.me].region(region);
        check_span(region.len(), at, WORD);
        region.words[at / WORD]
    }

    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        let state = &mut *self.state.borrow_mut();
        if let Some(past) = state.past(self.me, false) {
            let words = past.words(region.0);
            return (from..seen.len()).find(|&i| words[i] != seen[i]);
        }
        state.stir(state.config.stirred_looks_one_in);
        let region = state.processes[self.me].region(region);
        check_span(region.len(), 0, seen.len() * WORD);
        (from..seen.len()).find(|&i| region.words[i] != seen[i])
    }

    fn store(&mut self, region: Region, at: usize, word: u64) {
        assert!(at.is_multiple_of(WORD), "offset {at} is not that of a word");
        self.acts(|state, me| {
            state.processes[me].region_mut(region).put(at, &word.to_ne_bytes());
        });
    }

    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        let state = &mut *self.state.borrow_mut();
        if let Some(past) = state.past(self.me, false) {
            return get(past.words(region.0), at, into);
        }
        let look = |state: &mut State, at, into: &mut [u8]| {
            let region = state.processes[self.me].region(region);
            state.counters.torn_reads += u64::from(region.is_torn(at, into.len()));
            region.get(at, into);
        };
        if !state.stir(state.config.stirred_copies_one_in) {
            return look(state, at, into);
        }
        // A look at more than a word is not atomic.
        let words = into.len() / WORD;
        let (first, rest) = into.split_at_mut(WORD * state.rng.between(0, words as u64) as usize);
        look(state, at, first);
        state.step();
        look(state, at + first.len(), rest);
    }

    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.acts(|state, me| state.processes[me].region_mut(region).put(at, bytes));
    }
}

fn op(reached: &Reached, at: usize, bytes: state::Bytes, tag: Option<u64>) -> Op {
    Op {
        process: reached.process,
        region: reached.region,
        generation: reached.generation,
        at,
        bytes,
        tag,
        posted: 0,
        torn: false,
        landed: 0,
        outcome: Outcome::Done,
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        // During a panic the state may still be borrowed, and is left alone.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.end(self.me, false);
        }
    }
}

impl fmt::Debug for SimFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFabric({}.{:016x})", self.name(), self.incarnation())
    }
}

/// Adds a process with this name.
///
/// # Errors
/// [`FabricError::NameTaken`] if a live process has the name.
pub(super) fn join(world: &Rc<RefCell<State>>, name: &str) -> Result<SimFabric, FabricError> {
    let mut state = world.borrow_mut();
    if state.names.get(name).is_some_and(|&it| state.processes[it].alive) {
        return Err(FabricError::NameTaken { name: name.to_owned(), dir: "the simulator".into() });
    }
    let me = state.processes.len();
    let incarnation = state.rng.word() | 1;
    let host = state.hosts.len();
    state.hosts.push(Host::default());
    state.processes.push(Process::new(name, incarnation, host));
    state.names.insert(name.to_owned(), me);
    state.stamp(&[me as u64]);
    Ok(SimFabric::new(Rc::clone(world), me))
}
