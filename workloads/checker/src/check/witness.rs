//! A witness: one order of all transactions, in real time, in which the store as it should be gives every
//! answer that was given.
//!
//! Whoever finds one has proved the history right, and whoever has tried all orders has proved it wrong. The
//! search executes one transaction after the other. Next is the one that was answered first, or what the
//! [hints](super::hints) say must come before it. Where that does not fit, or leads nowhere, others are
//! tried, but only those that can make a difference:
//!
//! * *Real time.* Nothing is tried that was asked for after somebody was answered who is not done, and nothing that
//!   writes what a stale read is still to see that was answered before (`stale`). At one moment, what one process
//!   asks for comes after what it was answered.
//! * *Persistent sets.* Of what can be done before the transaction that is answered first, only what meets
//!   it on a key, or meets what meets it, need be tried: all else can as well be done later.
//! * *Free moves.* What was answered, changes nothing, and fits, is done at once, and nothing else is tried in
//!   its place (`eager`). What was not answered is never free: it may have done something at another time.
//! * *Unknown outcomes* are done where something must be tried, and otherwise not at all.
//! * *Jumps.* If nothing fits, the last decision that met the keys concerned is taken back, not the last
//!   one.
//! * *Memory.* What led nowhere is not tried again with the same done and the same state.
//!
//! A right history whose order is told by its answers takes one step for each transaction. The search is
//! bounded, and a history for which the bound is not enough is undecided.

use hashbrown::{HashMap, HashSet};

use super::eager::{Eager, Sight};
use super::graph::Graph;
use super::hints::Hints;
use super::model::{NEVER, NONE};
use super::scripts::{Deed, Proviso, Script, Scripts};
use super::stale::Stale;
use super::state::State;
use super::subject::Subject;

/// So much of what led nowhere is remembered.
const REMEMBERED_MAX: usize = 1 << 20;

/// What a search comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    /// There is an order.
    Found,
    /// There is none. The transaction that nothing could be done about, and what it found in place of what
    /// it was told.
    Nothing(Stuck),
    /// It costs too much to know.
    Undecided,
}

/// The transaction at which the longest attempt came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) transaction: Option<u32>,
    /// What stood at its keys, in words.
    pub(super) found: Vec<(u32, String)>,
}

/// Some keys, and perhaps more.
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

/// What a script looks at and changes.
#[derive(Default)]
struct Footprint {
    reads: Vec<u32>,
    writes: Vec<u32>,
    spans: Vec<(u32, u32)>,
}

/// Scripts in a row, from which any can be taken out and, the last first, put back.
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

/// A decision.
struct Frame {
    /// What was chosen, unless all was in vain.
    chosen: Option<u32>,
    mark: usize,
    /// It changed nothing, and was told that it did not.
    free: bool,
    /// What else can be chosen, once that is asked; the last first.
    others: Option<Vec<Choice>>,
    /// The keys on which it depends that nothing fits.
    keys: Keys,
}

struct Search<'a> {
    scripts: &'a Scripts,
    all: &'a [Script],
    state: State<'a>,
    hints: Option<Hints<'a>>,
    in_time: bool,
    /// Whether stale reads are done as soon as what they saw stands there. If keys may have values from
    /// before the history, that is not known.
    stale_apart: bool,
    /// The script of each transaction.
    scripts_of: Vec<u32>,
    /// Of scripts that were asked for at the moment at which their process was answered: what was answered.
    ties: HashMap<u32, u32>,
    required: Vec<bool>,
    done: Vec<bool>,
    by_return: Row,
    by_invoke: Row,
    eager: Eager,
    stale: Stale,
    /// What need not be done, by the keys that it looks at and may write; and that which looks at ranges.
    optional: HashMap<u32, Vec<u32>>,
    ranging: Vec<u32>,
    frames: Vec<Frame>,
    in_vain: HashMap<(u64, u64), Keys>,
    done_hash: u64,
    tries: u64,
    deepest: usize,
    stuck: Stuck,
}

/// Looks for an order. With a graph, that has no circle, its edges are kept to; `required` says of each
/// transaction whether it was certainly done. `tries` is how many executions may be tried, and then how many of
/// them are left.
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
    // If a value may be unknown, a stale read of it fits at any place in the order.
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

    /// What is done, and what is known of the store.
    fn place(&self) -> (u64, u64) {
        (self.done_hash, self.state.hash)
    }

    /// Nothing is asked for later than this by whoever can be done before `first` is.
    fn limit(&self, first: u32) -> u64 {
        if self.in_time { self.all[first as usize].returned } else { NEVER }
    }

    fn node(&self, script: u32) -> u32 {
        self.all[script as usize].transaction
    }

    /// What must be done first for a script to be done.
    fn before(&self, script: u32) -> u32 {
        let mut script = self.hinted(script);
        while let Some(before) = self.ties.get(&script).filter(|one| !self.done[**one as usize]) {
            script = self.hinted(*before);
        }
        script
    }

    /// The same, as far as the hints know.
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

    /// Does something, if it fits.
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

    /// Whether a script that was just executed has written what somebody is still to see who was answered before it was
    /// asked for.
    fn is_early(&mut self, script: u32) -> bool {
        let Self { state, stale, done, all, .. } = self;
        let invoked = all[script as usize].invoked;
        state.wrote().iter().any(|key| stale.is_left(*key, invoked, done))
    }

    /// Whether a script was told all that it did. Only then does it change nothing at whatever time it fits, if
    /// it fits at one time and changes nothing.
    fn is_answered(&self, script: u32) -> bool {
        let script = &self.all[script as usize];
        let untold = |deed: &Deed| matches!(deed, Deed::Delete { flag: None, .. });
        script.held.is_some() && !self.scripts.deeds_of(script).any(untold)
    }

    /// Does what only reads and fits now. Returns whether there was any.
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
            return any; // All that is left is under way: there is no end of reads.
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

    /// Does something that fits in one way only, or changes nothing.
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

    /// What to do where `target`, which comes next, does not fit: something that writes what it reads, and
    /// after which it fits, or that fits at least. Whether it was right is seen later.
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

    /// Tries what else the last decision could have been, then what the one before, and so on. `false` if
    /// there is nothing left.
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

    /// What need not be done and changes nothing is not worth doing.
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

    /// Takes back decisions up to one on which it depends that nothing fits, and makes another there.
    fn go_back(&mut self, mut keys: Keys) -> bool {
        self.eager.ready.clear();
        loop {
            let Some(frame) = self.frames.pop() else { return false };
            let Frame { chosen, mark, free, others, keys: before } = frame;
            let chosen = chosen.expect("decisions before the last are made");
            self.state.undo(mark);
            self.mark_undone(chosen);
            if free {
                // What it read is of no concern where nothing depends on that.
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

    /// What can be done before `first`, itself among it, and makes a difference; the best last. And the keys
    /// that all this depends on.
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

    /// Whether `first` fits when something was done before it.
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

    /// Remembers at what the longest attempt came to its end.
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

/// The keys that some scripts look at and change.
#[derive(Default)]
struct Met {
    reads: HashSet<u32>,
    writes: HashSet<u32>,
    spans: Vec<(u32, u32)>,
}

impl Met {
    fn add(&mut self, footprint: Footprint, search: &Search<'_>) {
        for key in footprint.reads {
            // Who first finds out what nobody was told binds all others.
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

    /// What need not be done and may have to do with any of it.
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
