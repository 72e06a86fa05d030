//! Reads that a [search](super::witness) does as soon as they fit.
//!
//! A read that fits and changes nothing can be done at once in every order: all else can follow it. Without
//! that, a search that takes whoever was answered first writes over what a slower read is still to see, and
//! finds out much later. So after every write the reads under way are looked at that read what was written.
//!
//! Stale reads may come at any time. They are kept by what they saw, and found when that stands there.

use hashbrown::HashMap;

use super::scripts::{Deed, Proviso, Script, Scripts};

/// The answer that a read of one key was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sight {
    Absent,
    /// There is a value, whichever.
    Present,
    /// The length of the value, and its hash.
    Value(u32, u64),
}

/// Stale reads that were given the same answer.
#[derive(Default)]
struct Waiting {
    scripts: Vec<u32>,
    /// All before this one are done.
    left: usize,
}

pub(super) struct Eager {
    reads_only: Vec<bool>,
    /// Rises with each write, and each that is taken back.
    clock: u64,
    /// Of each key, when it was written last; and when any was.
    written: Vec<u64>,
    any_written: u64,
    /// When each script was tried last.
    tried: Vec<u64>,
    by_sight: HashMap<(u32, Sight), u32>,
    waiting: Vec<Waiting>,
    /// Of each stale script, those it waits with, and its place among them.
    homes: HashMap<u32, (u32, u32)>,
    /// Keys at which stale reads may fit now.
    pub(super) ready: Vec<u32>,
}

/// The keys that a script looks at or writes; `false` if it looks at ranges, too.
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
    // What was not there when it was removed has only been looked for.
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
            // Of one key.
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

    /// Stale reads that may fit where a key is as it `is`. `done` tells of scripts whether they are.
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

    /// Whether a script only reads, and something was written since it was tried that it reads.
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

    /// A script was done.
    pub(super) fn done(&mut self, scripts: &Scripts, number: u32) {
        self.changed(scripts, number);
        let ready = &mut self.ready;
        if !self.waiting.is_empty() {
            keys_of(scripts, &scripts.all[number as usize], |key| ready.push(key));
        }
    }

    /// It was taken back.
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
