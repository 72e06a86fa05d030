//! Reads that a [search](super::witness) executes as soon as they fit.
//!
//! A read that fits and changes nothing can be executed at once in every order, because everything
//! else can follow it. Without this rule, a search that takes transactions in the order of their
//! answers overwrites values that slower reads have yet to observe, and detects that much later. So
//! after every write the pending reads of the written keys are tried.
//!
//! Stale reads may be placed at any time. They are indexed by what they observed, and executed when
//! the state shows it.

use hashbrown::HashMap;

use super::scripts::{Deed, Proviso, Script, Scripts};

/// The answer to a read of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sight {
    Absent,
    /// There is a value. The value itself is not known.
    Present,
    /// Length and hash of the value.
    Value(u32, u64),
}

/// Stale reads with the same answer.
#[derive(Default)]
struct Waiting {
    scripts: Vec<u32>,
    /// All scripts before this index are done.
    left: usize,
}

pub(super) struct Eager {
    reads_only: Vec<bool>,
    /// Incremented by each write and each undone write.
    clock: u64,
    /// Time of the last write of each key, and of any key.
    written: Vec<u64>,
    any_written: u64,
    /// Time at which each script was tried last.
    tried: Vec<u64>,
    by_sight: HashMap<(u32, Sight), u32>,
    waiting: Vec<Waiting>,
    /// For each stale script, the index of its group in `waiting` and its index within the group.
    homes: HashMap<u32, (u32, u32)>,
    /// Keys at which stale reads may fit now.
    pub(super) ready: Vec<u32>,
}

/// Passes the keys that a script reads or writes to `take`. Returns `false` if it also covers
/// ranges.
pub(super) fn keys_of(scripts: &Scripts, script: &Script, mut take: impl FnMut(u32)) -> bool {
    let mut only_keys = true;
    for guard in scripts.guards_of(script) {
        match *guard {
            Proviso::Unchanged(..) => only_keys = false,
            Proviso::Elsewhere => {}
            Proviso::Exists(key)
            | Proviso::Missing(key)
            | Proviso::Equals(key, _)
            | Proviso::Version(key, _)
            | Proviso::Less(key, _)
            | Proviso::AtMost(key, _)
            | Proviso::Equal(key, _)
            | Proviso::AtLeast(key, _)
            | Proviso::Greater(key, _) => take(key),
        }
    }
    for deed in scripts.deeds_of(script) {
        match *deed {
            Deed::Scan { .. } => only_keys = false,
            Deed::Get { key, .. }
            | Deed::Exists { key, .. }
            | Deed::Put { key, .. }
            | Deed::Append { key, .. }
            | Deed::Incr { key, .. }
            | Deed::Field { key, .. }
            | Deed::Overwrite { key, .. }
            | Deed::Delete { key, .. } => take(key),
        }
    }
    only_keys
}

fn is_read(deed: &Deed) -> bool {
    // A delete that found no value is a read.
    let nothing = matches!(deed, Deed::Delete { flag: Some(false), .. });
    nothing || matches!(deed, Deed::Get { .. } | Deed::Exists { .. } | Deed::Scan { .. })
}

impl Eager {
    pub(super) fn new(scripts: &Scripts, keys: usize) -> Self {
        let reads = |script: &Script| {
            script.held.is_some() && !script.stale && scripts.deeds_of(script).all(is_read)
        };
        let mut eager = Self {
            reads_only: scripts.all.iter().map(reads).collect(),
            clock: 1,
            written: vec![1; keys],
            any_written: 1,
            tried: vec![0; scripts.all.len()],
            by_sight: HashMap::new(),
            waiting: Vec::new(),
            homes: HashMap::new(),
            ready: Vec::new(),
        };
        for (number, script) in (0..).zip(&scripts.all) {
            if script.stale {
                eager.wait(scripts, number, script);
            }
        }
        eager.ready = eager.by_sight.keys().map(|(key, _)| *key).collect();
        eager.ready.sort_unstable();
        eager.ready.dedup();
        eager
    }

    fn wait(&mut self, scripts: &Scripts, number: u32, script: &Script) {
        let mut deeds = scripts.deeds_of(script);
        let (key, sight) = match deeds.next() {
            Some(Deed::Get { key, seen: None, .. } | Deed::Exists { key, flag: false }) => {
                (*key, Sight::Absent)
            }
            Some(Deed::Get { key, seen: Some(seen), .. }) => {
                (*key, Sight::Value(seen.len, seen.hash))
            }
            Some(Deed::Exists { key, flag: true }) => (*key, Sight::Present),
            // A scan of one key.
            Some(Deed::Scan { page, .. }) => match scripts.pages[*page as usize].pairs[..] {
                [(key, seen)] => (key, Sight::Value(seen.len, seen.hash)),
                _ => return,
            },
            _ => return,
        };
        let next = self.waiting.len() as u32;
        let at = *self.by_sight.entry((key, sight)).or_insert(next);
        if at == next {
            self.waiting.push(Waiting::default());
        }
        let waiting = &mut self.waiting[at as usize].scripts;
        self.homes.insert(number, (at, waiting.len() as u32));
        waiting.push(number);
    }

    /// Adds to `found` the stale reads that may fit while `key` looks like one of `is`. `done`
    /// reports whether a script is done.
    pub(super) fn stale_at(
        &mut self,
        key: u32,
        is: &[Sight],
        done: impl Fn(u32) -> bool,
        found: &mut Vec<u32>,
    ) {
        for sight in is {
            let Some(at) = self.by_sight.get(&(key, *sight)) else { continue };
            let Waiting { scripts, left } = &mut self.waiting[*at as usize];
            while scripts.get(*left).is_some_and(|script| done(*script)) {
                *left += 1;
            }
            found.extend(scripts[*left..].iter().copied().filter(|script| !done(*script)));
        }
    }

    /// Whether a script only reads.
    pub(super) fn reads_only(&self, script: u32) -> bool {
        self.reads_only[script as usize]
    }

    /// Whether a script only reads, and a key that it reads was written since it was tried.
    pub(super) fn is_due(&self, scripts: &Scripts, number: u32) -> bool {
        if !self.reads_only(number) {
            return false;
        }
        let (mut last, tried) = (0, self.tried[number as usize]);
        let script = &scripts.all[number as usize];
        let only_keys = keys_of(scripts, script, |key| last = last.max(self.written[key as usize]));
        let last = if only_keys { last } else { self.any_written };
        last > tried || tried == 0
    }

    pub(super) fn tried(&mut self, script: u32) {
        self.tried[script as usize] = self.clock;
    }

    /// Notes that a script was executed.
    pub(super) fn done(&mut self, scripts: &Scripts, number: u32) {
        self.changed(scripts, number);
        let ready = &mut self.ready;
        if !self.waiting.is_empty() {
            keys_of(scripts, &scripts.all[number as usize], |key| ready.push(key));
        }
    }

    /// Notes that a script was undone.
    pub(super) fn undone(&mut self, scripts: &Scripts, number: u32) {
        self.changed(scripts, number);
        self.tried[number as usize] = 0;
        if let Some((at, place)) = self.homes.get(&number) {
            let left = &mut self.waiting[*at as usize].left;
            *left = (*left).min(*place as usize);
        }
    }

    fn changed(&mut self, scripts: &Scripts, number: u32) {
        let script = &scripts.all[number as usize];
        if script.stale || self.reads_only(number) {
            return;
        }
        self.clock += 1;
        self.any_written = self.clock;
        let Self { clock, written, .. } = self;
        keys_of(scripts, script, |key| written[key as usize] = *clock);
    }
}
