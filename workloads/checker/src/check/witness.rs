//! A witness: an order of all transactions that respects real time and in which the
//! [state](super::state) gives every answer of the history.
//!
//! A witness proves the history correct, and the failure of all orders proves it wrong. The search
//! executes one transaction after the other. The next is the one that was answered first, or one
//! that must precede it according to the [hints](super::hints). Where it does not fit or leads
//! nowhere, others are tried, but only those that can make a difference:
//!
//! * *Real time.* A transaction is not tried if it was invoked after the answer of one that is not
//!   done, or if it overwrites a value that a stale read has yet to observe, where the read was
//!   answered before the invocation (`stale`). At one moment, an invocation of a process follows
//!   its answer.
//! * *Persistent sets.* Of the transactions that can precede the one answered first, only those
//!   that share a key with it, or with one that does, need be tried: all others can as well come
//!   later.
//! * *Free moves.* An answered transaction that fits and changes nothing is executed at once,
//!   without alternatives (`eager`). A transaction without an answer is never free, because it may
//!   have had an effect at another time.
//! * *Unknown outcomes* are executed only where something must be tried.
//! * *Jumps.* If nothing fits, the last decision that shares a key with the failure is undone, not
//!   the last one.
//! * *Memory.* A pair of done set and state that led nowhere is not tried again.
//!
//! If the answers of a correct history determine its order, the search takes one step per
//! transaction. The search is bounded: if the bound is reached, the history is undecided.

use hashbrown::{HashMap, HashSet};

use super::eager::{Eager, Sight};
use super::graph::Graph;
use super::hints::Hints;
use super::model::{NEVER, NONE};
use super::scripts::{Deed, Proviso, Script, Scripts};
use super::stale::Stale;
use super::state::State;
use super::subject::Subject;

/// Most failed states that are remembered.
const REMEMBERED_MAX: usize = 1 << 20;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    /// There is an order.
    Found,
    /// There is none. Holds the transaction at which the longest attempt ended.
    Nothing(Stuck),
    /// The search was cut off.
    Undecided,
}

/// The transaction at which the longest attempt ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) transaction: Option<u32>,
    /// The state of its keys, in words.
    pub(super) found: Vec<(u32, String)>,
}

/// A set of keys, or a superset of it (a Bloom filter).
#[derive(Clone, Copy, Default)]
struct Keys([u64; 4]);

impl Keys {
    const ALL: Self = Self([u64::MAX; 4]);

    fn add(&mut self, key: u32) {
        let bit = key.wrapping_mul(0x9E37_79B1) >> 24;
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, other)| *ours |= other);
    }

    fn meets(self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(ours, other)| ours & other != 0)
    }
}

/// The keys and ranges that a script reads and writes.
#[derive(Default)]
struct Footprint {
    reads: Vec<u32>,
    writes: Vec<u32>,
    spans: Vec<(u32, u32)>,
}

/// A linked list of scripts from which any can be removed and restored in reverse order.
struct Row {
    next: Vec<u32>,
    before: Vec<u32>,
}

impl Row {
    fn of(order: &[u32], scripts: usize) -> Self {
        let head = scripts as u32;
        let (mut next, mut before) = (vec![head; scripts + 1], vec![head; scripts + 1]);
        let mut last = head;
        for script in order {
            next[last as usize] = *script;
            before[*script as usize] = last;
            last = *script;
        }
        next[last as usize] = head;
        before[head as usize] = last;
        Self { next, before }
    }

    fn after(&self, script: Option<u32>) -> Option<u32> {
        let head = self.next.len() as u32 - 1;
        let next = self.next[script.unwrap_or(head) as usize];
        (next != head).then_some(next)
    }

    fn take(&mut self, script: u32) {
        let (before, next) = (self.before[script as usize], self.next[script as usize]);
        self.next[before as usize] = next;
        self.before[next as usize] = before;
    }

    fn put_back(&mut self, script: u32) {
        let (before, next) = (self.before[script as usize], self.next[script as usize]);
        self.next[before as usize] = script;
        self.before[next as usize] = script;
    }
}

/// A script, and the way of executing it.
type Choice = (u32, u32);

/// A decision of the search.
struct Frame {
    /// `None` if all choices failed.
    chosen: Option<u32>,
    mark: usize,
    /// It changed nothing, and its answer says so.
    free: bool,
    /// Alternatives, computed on demand; the next one is last.
    others: Option<Vec<Choice>>,
    /// The keys on which the failure of all choices depends.
    keys: Keys,
}

struct Search<'a> {
    scripts: &'a Scripts,
    all: &'a [Script],
    state: State<'a>,
    hints: Option<Hints<'a>>,
    in_time: bool,
    /// Whether stale reads are executed as soon as the state shows what they observed. If values
    /// may be unknown, it never surely shows that.
    stale_apart: bool,
    /// The script of each transaction.
    scripts_of: Vec<u32>,
    /// For scripts invoked at the moment of their process's last answer: the script that was
    /// answered.
    ties: HashMap<u32, u32>,
    required: Vec<bool>,
    done: Vec<bool>,
    by_return: Row,
    by_invoke: Row,
    eager: Eager,
    stale: Stale,
    /// Scripts that need not be executed, by the keys that they read or may write; then those that
    /// cover ranges.
    optional: HashMap<u32, Vec<u32>>,
    ranging: Vec<u32>,
    frames: Vec<Frame>,
    in_vain: HashMap<(u64, u64), Keys>,
    done_hash: u64,
    tries: u64,
    deepest: usize,
    stuck: Stuck,
}

/// Searches for an order. The edges of `graph`, which must be acyclic, are respected. `required`
/// says whether a transaction certainly executed. `tries` is the number of executions that may be
/// tried, and afterwards the number left.
pub(super) fn search(
    subject: &Subject<'_>,
    graph: Option<&Graph>,
    required: impl Fn(u32) -> bool,
    in_time: bool,
    tries: &mut u64,
) -> Searched {
    let scripts = subject.scripts;
    let all = &scripts.all;
    let mut scripts_of = vec![NONE; subject.transactions];
    for (number, script) in (0..).zip(all) {
        scripts_of[script.transaction as usize] = number;
    }
    let mut ties = HashMap::new();
    for (one, before) in scripts.ties.iter().filter(|_| in_time) {
        let [one, before] = [one, before].map(|number| scripts_of[*number as usize]);
        if one != NONE && before != NONE {
            ties.insert(one, before);
        }
    }
    let required: Vec<bool> =
        all.iter().map(|script| script.held.is_some() || required(script.transaction)).collect();
    let hints = graph.map(|graph| {
        Hints::new(graph, in_time, |transaction| {
            let script = scripts_of[transaction as usize];
            script != NONE && required[script as usize]
        })
    });
    let mut order: Vec<u32> = (0..all.len() as u32).filter(|one| required[*one as usize]).collect();
    let script = |one: &u32| &all[*one as usize];
    order.sort_by_key(|one| (script(one).returned, script(one).invoked));
    let by_return = Row::of(&order, all.len());
    order.sort_by_key(|one| script(one).invoked);
    let state = State::new(subject);
    // If a value may be unknown, a stale read of it fits anywhere in the order.
    let stale_apart = !state.may_blur();
    order.retain(|one| !(stale_apart && script(one).stale));
    let by_invoke = Row::of(&order, all.len());
    let mut search = Search {
        scripts,
        all,
        state,
        hints,
        in_time,
        stale_apart,
        scripts_of,
        ties,
        done: vec![false; all.len()],
        required,
        by_return,
        by_invoke,
        eager: Eager::new(scripts, subject.keys.len()),
        stale: if in_time { Stale::new(scripts) } else { Stale::default() },
        optional: HashMap::new(),
        ranging: Vec::new(),
        frames: Vec::new(),
        in_vain: HashMap::new(),
        done_hash: 0,
        tries: 0,
        deepest: 0,
        stuck: Stuck::default(),
    };
    for number in 0..all.len() as u32 {
        if !search.required[number as usize] {
            let Footprint { reads, writes, spans } = search.footprint(number);
            for key in reads.into_iter().chain(writes) {
                search.optional.entry(key).or_default().push(number);
            }
            if !spans.is_empty() {
                search.ranging.push(number);
            }
        }
    }
    let searched = search.run(*tries);
    *tries = tries.saturating_sub(search.tries);
    searched
}

impl Search<'_> {
    fn run(&mut self, most: u64) -> Searched {
        while let Some(first) = self.by_return.after(None) {
            if self.tries >= most {
                return Searched::Undecided;
            }
            let known = self.in_vain.get(&self.place()).copied();
            if let Some(keys) = known {
                if !self.go_back(keys) {
                    break;
                }
                continue;
            }
            if self.read_at_once(first) {
                continue;
            }
            let target = self.before(first);
            if self.is_candidate(target, first) && self.choose((target, 0), None, Keys::default()) {
                continue;
            }
            if let Some(choice) = self.near(first, target)
                && self.choose(choice, None, Keys::default())
            {
                continue;
            }

            let (others, keys) = self.others(first, true);
            self.frames.push(Frame {
                chosen: None,
                mark: self.state.mark(),
                free: false,
                others: Some(others),
                keys,
            });
            self.look_deeper(first);
            if !self.go_on() {
                break;
            }
        }
        if self.by_return.after(None).is_none() {
            return Searched::Found;
        }
        Searched::Nothing(std::mem::take(&mut self.stuck))
    }

    /// Key of the memory: the done set and the state.
    fn place(&self) -> (u64, u64) {
        (self.done_hash, self.state.hash)
    }

    /// Latest invocation of a script that can precede `first`.
    fn limit(&self, first: u32) -> u64 {
        if self.in_time { self.all[first as usize].returned } else { NEVER }
    }

    fn node(&self, script: u32) -> u32 {
        self.all[script as usize].transaction
    }

    /// A script that must precede `script` and has no open predecessor, or `script` itself.
    fn before(&self, script: u32) -> u32 {
        let mut script = self.hinted(script);
        while let Some(before) = self.ties.get(&script).filter(|one| !self.done[**one as usize]) {
            script = self.hinted(*before);
        }
        script
    }

    /// The same according to the hints alone.
    fn hinted(&self, script: u32) -> u32 {
        let Some(hints) = &self.hints else { return script };
        let done = |node: u32| {
            let script = self.scripts_of[node as usize];
            script == NONE || self.done[script as usize] || !self.required[script as usize]
        };
        let node = hints.first(self.node(script), done);
        match self.scripts_of.get(node as usize) {
            Some(first) if *first != NONE => *first,
            _ => script,
        }
    }

    fn is_candidate(&self, script: u32, first: u32) -> bool {
        self.all[script as usize].invoked <= self.limit(first) && self.is_free(script)
    }

    /// Executes a choice if it fits.
    fn choose(&mut self, (script, way): Choice, others: Option<Vec<Choice>>, keys: Keys) -> bool {
        self.tries += 1;
        let mark = self.state.mark();
        if !self.state.execute(&self.all[script as usize], way) {
            return false;
        }
        if !self.stale.is_empty() && self.is_early(script) {
            self.state.undo(mark);
            return false;
        }
        let free = self.state.mark() == mark && self.is_answered(script);
        self.mark_done(script);
        self.frames.push(Frame { chosen: Some(script), mark, free, others, keys });
        true
    }

    /// Whether the script just executed overwrote what a stale read has yet to observe that was
    /// answered before its invocation.
    fn is_early(&mut self, script: u32) -> bool {
        let Self { state, stale, done, all, .. } = self;
        let invoked = all[script as usize].invoked;
        state.wrote().iter().any(|key| stale.is_left(*key, invoked, done))
    }

    /// Whether the answer reports all effects of a script. Only then does a script that fits
    /// without a change never change anything wherever it fits.
    fn is_answered(&self, script: u32) -> bool {
        let script = &self.all[script as usize];
        let untold = |deed: &Deed| matches!(deed, Deed::Delete { flag: None, .. });
        script.held.is_some() && !self.scripts.deeds_of(script).any(untold)
    }

    /// Executes the reads that fit now. Returns whether there was any.
    fn read_at_once(&mut self, first: u32) -> bool {
        let mut any = false;
        let mut found = Vec::new();
        while let Some(key) = self.eager.ready.pop() {
            let Some(sight) = self.state.sight(key) else { continue };
            let both = [sight, Sight::Present];
            let is = if sight == Sight::Absent { &both[..1] } else { &both[..] };
            let done = &self.done;
            self.eager.stale_at(key, is, |script| done[script as usize], &mut found);
            for script in found.drain(..) {
                any |= self.is_free(script) && self.choose_only(script);
            }
        }
        let limit = self.limit(first);
        if limit == NEVER {
            return any; // All remaining scripts are in flight, so the number of reads is unbounded.
        }
        let mut at = self.by_invoke.after(None);
        while let Some(script) = at.filter(|script| self.all[*script as usize].invoked <= limit) {
            if self.eager.is_due(self.scripts, script) && self.is_free(script) {
                found.push(script);
            }
            at = self.by_invoke.after(Some(script));
        }
        for script in found {
            self.eager.tried(script);
            any |= self.choose_only(script);
        }
        any
    }

    /// Executes a script that fits in one way only or changes nothing.
    fn choose_only(&mut self, script: u32) -> bool {
        let mark = self.state.mark();
        let fits = self.state.execute(&self.all[script as usize], 0);
        let only = self.state.mark() == mark && self.is_answered(script) || !self.has_ways(script);
        self.state.undo(mark);
        fits && only && self.choose((script, 0), None, Keys::default())
    }

    /// Whether there may be several ways of executing a script.
    fn has_ways(&self, script: u32) -> bool {
        let script = &self.all[script as usize];
        let opens = |guard: &Proviso| match guard {
            Proviso::Version(..) => script.held != Some(true),
            Proviso::Elsewhere => script.held.is_none(),
            _ => false,
        };
        self.scripts.guards_of(script).iter().any(opens)
    }

    fn is_apart(&self, script: u32) -> bool {
        self.stale_apart && self.all[script as usize].stale
    }

    fn is_free(&self, script: u32) -> bool {
        self.hints.as_ref().is_none_or(|hints| hints.is_free(self.node(script)))
            && self.ties.get(&script).is_none_or(|before| self.done[*before as usize])
    }

    /// A choice when `target`, which comes next, does not fit: a script that writes what `target`
    /// reads, after which `target` fits, or which at least fits itself. Whether it was right shows
    /// later.
    fn near(&mut self, first: u32, target: u32) -> Option<Choice> {
        let Footprint { mut reads, writes, spans } = self.footprint(target);
        reads.extend(writes);
        if !spans.is_empty() {
            return None;
        }
        let limit = self.limit(first);
        let mut near = Vec::new();
        let mut at = self.by_invoke.after(None);
        while let Some(script) = at.filter(|script| self.all[*script as usize].invoked <= limit) {
            if script != target
                && !self.eager.reads_only(script)
                && !self.has_ways(script)
                && self.is_candidate(script, first)
                && self.footprint(script).writes.iter().any(|key| reads.contains(key))
            {
                near.push(script);
            }
            at = self.by_invoke.after(Some(script));
        }
        near.sort_unstable_by_key(|script| self.all[*script as usize].returned);
        if let Some(script) = near.iter().find(|script| self.helps((**script, 0), target)) {
            return Some((*script, 0));
        }
        let optional = reads.iter().filter_map(|key| self.optional.get(key)).flatten();
        let mut optional: Vec<u32> = optional.copied().collect();
        optional.sort_unstable();
        optional.dedup();
        for script in optional {
            let may = !self.done[script as usize]
                && !self.has_ways(script)
                && self.is_candidate(script, first);
            if may && self.helps((script, 0), target) {
                return Some((script, 0));
            }
        }
        near.into_iter().find(|script| self.fits(*script)).map(|script| (script, 0))
    }

    fn fits(&mut self, script: u32) -> bool {
        self.tries += 1;
        let mark = self.state.mark();
        let fits = self.state.execute(&self.all[script as usize], 0);
        self.state.undo(mark);
        fits
    }

    fn mark_done(&mut self, script: u32) {
        self.done[script as usize] = true;
        self.done_hash ^= scattered(script);
        self.eager.done(self.scripts, script);
        if self.required[script as usize] {
            self.by_return.take(script);
            if !self.is_apart(script) {
                self.by_invoke.take(script);
            }
            let node = self.node(script);
            if let Some(hints) = &mut self.hints {
                hints.done(node);
            }
        }
    }

    fn mark_undone(&mut self, script: u32) {
        self.done[script as usize] = false;
        self.done_hash ^= scattered(script);
        self.eager.undone(self.scripts, script);
        self.stale.undone(script);
        if self.required[script as usize] {
            if !self.is_apart(script) {
                self.by_invoke.put_back(script);
            }
            self.by_return.put_back(script);
            let node = self.node(script);
            if let Some(hints) = &mut self.hints {
                hints.undone(node);
            }
        }
    }

    /// Tries the alternatives of the last decision, then of the one before, and so on. Returns
    /// `false` if none is left.
    fn go_on(&mut self) -> bool {
        loop {
            let Some(frame) = self.frames.last_mut() else { return false };
            debug_assert!(frame.chosen.is_none(), "it was taken back");
            let Some(next) = frame.others.as_mut().and_then(Vec::pop) else {
                let keys = frame.keys;
                self.frames.pop();
                if self.in_vain.len() < REMEMBERED_MAX {
                    self.in_vain.insert(self.place(), keys);
                }
                return self.go_back(keys);
            };
            let Frame { others, keys, .. } = self.frames.pop().expect("just looked at");
            if self.is_required_or_changes(next) && self.choose(next, others.clone(), keys) {
                return true;
            }
            let mark = self.state.mark();
            self.frames.push(Frame { chosen: None, mark, free: false, others, keys });
        }
    }

    /// An optional script that changes nothing is not worth executing.
    fn is_required_or_changes(&mut self, (script, way): Choice) -> bool {
        if self.required[script as usize] {
            return true;
        }
        let (mark, before) = (self.state.mark(), self.state.hash);
        let fits = self.state.execute(&self.all[script as usize], way);
        let changes = self.state.hash != before;
        self.state.undo(mark);
        fits && changes
    }

    /// Undoes decisions down to one on which the failure depends, and tries an alternative there.
    fn go_back(&mut self, mut keys: Keys) -> bool {
        self.eager.ready.clear();
        loop {
            let Some(frame) = self.frames.pop() else { return false };
            let Frame { chosen, mark, free, others, keys: before } = frame;
            let chosen = chosen.expect("decisions before the last are made");
            self.state.undo(mark);
            self.mark_undone(chosen);
            if free {
                // Its reads matter only if something depends on them.
                let of = self.keys_of(chosen);
                if of.meets(keys) {
                    keys.join(of);
                }
                continue;
            }
            self.tries += 1;
            let first = self.by_return.after(None).expect("it was just taken back");
            let (others, of_all) = if let Some(others) = others {
                (others, before)
            } else {
                let (mut others, of_all) = self.others(first, false);
                others.retain(|(script, way)| *script != chosen || *way > 0);
                (others, of_all)
            };
            let of_chosen = self.keys_of(chosen);
            if !of_all.meets(keys) && !of_chosen.meets(keys) {
                continue;
            }
            keys.join(of_all);
            keys.join(of_chosen);
            let mark = self.state.mark();
            self.frames.push(Frame { chosen: None, mark, free: false, others: Some(others), keys });
            return self.go_on();
        }
    }

    fn keys_of(&self, script: u32) -> Keys {
        let Footprint { reads, writes, spans } = self.footprint(script);
        let mut keys = if spans.is_empty() { Keys::default() } else { Keys::ALL };
        reads.into_iter().chain(writes).for_each(|key| keys.add(key));
        keys
    }

    /// The choices that can precede `first`, including itself, and can make a difference, the best
    /// last; and the keys on which this set depends.
    fn others(&mut self, first: u32, is_stuck: bool) -> (Vec<Choice>, Keys) {
        let limit = self.limit(first);
        let mut met = Met::default();
        let mut keys = Keys::default();
        let mut members: Vec<u32> = Vec::new();
        let mut is_member = HashSet::new();
        let mut add = |it: &Self, script: u32, met: &mut Met, members: &mut Vec<u32>| {
            for script in [it.before(script), script] {
                if !is_member.insert(script) {
                    continue;
                }
                keys.join(it.keys_of(script));
                members.push(script);
                if it.is_candidate(script, first) {
                    met.add(it.footprint(script), it);
                }
            }
        };
        add(self, first, &mut met, &mut members);
        loop {
            let before = members.len();
            let mut at = self.by_invoke.after(None);
            while let Some(script) = at {
                if self.all[script as usize].invoked > limit {
                    break;
                }
                if !members.contains(&script) && met.meets(&self.footprint(script), self) {
                    add(self, script, &mut met, &mut members);
                }
                at = self.by_invoke.after(Some(script));
            }
            for script in met.optional(self) {
                let is_left = !self.done[script as usize];
                if is_left
                    && self.all[script as usize].invoked <= limit
                    && !members.contains(&script)
                {
                    add(self, script, &mut met, &mut members);
                }
            }
            self.tries += members.len() as u64;
            if members.len() == before {
                break;
            }
        }
        members.retain(|script| self.is_candidate(*script, first));
        let mut choices: Vec<(u8, u64, Choice)> = Vec::new();
        for script in members {
            let one = &self.all[script as usize];
            let guards = self.scripts.guards_of(one);
            let open = guards.iter().filter(|guard| matches!(guard, Proviso::Version(..))).count();
            let ways = if one.held == Some(true) { 1 } else { open as u32 + 2 };
            for way in 0..ways {
                let helps = is_stuck && script != first && self.helps((script, way), first);
                let worth = if helps { 0 } else { 1 + u8::from(!self.required[script as usize]) };
                choices.push((worth, self.all[script as usize].returned, (script, way)));
            }
        }
        choices.sort_unstable_by(|one, other| other.cmp(one));
        (choices.into_iter().map(|(.., choice)| choice).collect(), keys)
    }

    /// Whether `first` fits after this choice.
    fn helps(&mut self, (script, way): Choice, first: u32) -> bool {
        self.tries += 1;
        let mark = self.state.mark();
        let helps = self.state.execute(&self.all[script as usize], way)
            && self.state.execute(&self.all[first as usize], 0);
        self.state.undo(mark);
        helps
    }

    fn footprint(&self, script: u32) -> Footprint {
        let scripts = self.scripts;
        let script = &self.all[script as usize];
        let mut footprint = Footprint::default();
        for guard in scripts.guards_of(script) {
            match *guard {
                Proviso::Unchanged(range, _) => footprint.spans.push(self.state.span(range)),
                Proviso::Elsewhere => {}
                Proviso::Exists(key)
                | Proviso::Missing(key)
                | Proviso::Equals(key, _)
                | Proviso::Version(key, _)
                | Proviso::Less(key, _)
                | Proviso::AtMost(key, _)
                | Proviso::Equal(key, _)
                | Proviso::AtLeast(key, _)
                | Proviso::Greater(key, _) => footprint.reads.push(key),
            }
        }
        for deed in scripts.deeds_of(script) {
            match *deed {
                Deed::Get { key, .. } | Deed::Exists { key, .. } => footprint.reads.push(key),
                Deed::Scan { range, .. } => footprint.spans.push(self.state.span(range)),
                Deed::Put { key, .. }
                | Deed::Append { key, .. }
                | Deed::Incr { key, .. }
                | Deed::Field { key, .. }
                | Deed::Overwrite { key, .. }
                | Deed::Delete { key, .. } => footprint.writes.push(key),
            }
        }
        footprint
    }

    /// Records the end of the longest attempt.
    fn look_deeper(&mut self, first: u32) {
        if self.frames.len() <= self.deepest {
            return;
        }
        self.deepest = self.frames.len();
        let Footprint { reads, writes, .. } = self.footprint(first);
        let mut keys: Vec<u32> = reads.into_iter().chain(writes).collect();
        keys.sort_unstable();
        keys.dedup();
        let found = keys.into_iter().map(|key| (key, self.state.show(key))).collect();
        self.stuck = Stuck { transaction: Some(self.node(first)), found };
    }
}

/// The keys that some scripts read and write.
#[derive(Default)]
struct Met {
    reads: HashSet<u32>,
    writes: HashSet<u32>,
    spans: Vec<(u32, u32)>,
}

impl Met {
    fn add(&mut self, footprint: Footprint, search: &Search<'_>) {
        for key in footprint.reads {
            // The first read of something unknown constrains all others.
            if search.state.is_open(key) {
                self.writes.insert(key);
            }
            self.reads.insert(key);
        }
        self.writes.extend(footprint.writes);
        self.spans.extend(footprint.spans);
    }

    fn meets(&self, footprint: &Footprint, search: &Search<'_>) -> bool {
        let within = |key: &u32, spans: &[(u32, u32)]| {
            let rank = search.state.rank(*key);
            rank.is_some_and(|rank| spans.iter().any(|(from, to)| (*from..*to).contains(&rank)))
        };
        let opens = |key: &&u32| search.state.is_open(**key);
        let reads = |key: &u32| self.writes.contains(key);
        let writes = |key: &u32| {
            self.writes.contains(key) || self.reads.contains(key) || within(key, &self.spans)
        };
        footprint.reads.iter().any(reads)
            || footprint.reads.iter().filter(opens).any(writes)
            || footprint.writes.iter().any(writes)
            || self.writes.iter().any(|key| within(key, &footprint.spans))
    }

    /// The optional scripts that may be related to these keys.
    fn optional(&self, search: &Search<'_>) -> Vec<u32> {
        let mut found = search.ranging.clone();
        for key in self.reads.iter().chain(&self.writes) {
            found.extend(search.optional.get(key).into_iter().flatten());
        }
        if !self.spans.is_empty() {
            for (key, scripts) in &search.optional {
                let footprint = Footprint { writes: vec![*key], ..Footprint::default() };
                if self.meets(&footprint, search) {
                    found.extend(scripts);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn scattered(script: u32) -> u64 {
    let mixed = (u64::from(script) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB)
}
