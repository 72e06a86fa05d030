//! Slots, the two words of each channel in which the peer reports its writes, in dense arrays.
//!
//! A scan covers all slots while they are few. If they are many, it covers the slots that were in use lately
//! and a share of the others in rotation, so its cost does not grow with the number of idle sessions. A word
//! in an idle slot is found a few scans late. An engine that is about to sleep scans all slots: see
//! [`Slots::is_quiet`].

use skein_fabric::{Fabric, FabricError, Permission, Region, RegionKey};

/// Slots in one region.
const CHUNK: usize = 1024;
const SLOT_BYTES: usize = 16;
/// Slots that are scanned together.
const BLOCK: usize = 8;
/// Up to this many blocks, each scan covers all of them.
const FEW: usize = 16;
/// Blocks that are not in use and are covered by one scan, if there are more than [`FEW`].
const SWEEP: usize = 8;
/// A block counts as in use for this many scans after the last event in it, and for up to twice as many.
const LOOKS_IN_USE: u64 = 1 << 8;

/// A slot's tail word and credit word.
pub(crate) type Words = [u64; 2];

/// The slots of a process's channels, by channel number.
#[derive(Default)]
pub(crate) struct Slots {
    chunks: Vec<Chunk>,
    /// Number of slots.
    len: usize,
    /// The blocks in use, in ascending order.
    in_use: Vec<u32>,
    /// For each block in use, the number of scans at its last event.
    used_at: Vec<Option<u64>>,
    looks: u64,
    /// The first block of the rotation's next share.
    next: usize,
}

struct Chunk {
    region: Region,
    /// The words at the last scan.
    seen: Vec<u64>,
}

impl Slots {
    /// Creates slot number `id`, or resets it if it exists, with both words zero. `id <= len`.
    pub(crate) fn make<F: Fabric>(&mut self, fabric: &mut F, id: u32) -> Result<(), FabricError> {
        let at = id as usize;
        assert!(at <= self.len, "slots are dense");
        if at / CHUNK == self.chunks.len() {
            let region = fabric.create(CHUNK * SLOT_BYTES, Permission::Shared)?;
            self.chunks.push(Chunk { region, seen: Vec::new() });
        }
        let chunk = &mut self.chunks[at / CHUNK];
        let word = 2 * (at % CHUNK);
        chunk.seen.resize(chunk.seen.len().max(word + 2), 0);
        for word in [word, word + 1] {
            fabric.store(chunk.region, 8 * word, 0);
            chunk.seen[word] = 0;
        }
        self.len = self.len.max(at + 1);
        self.used_at.resize(self.len.div_ceil(BLOCK), None);
        Ok(())
    }

    /// Where a peer writes the slot: a region, and a byte offset in it.
    pub(crate) fn place<F: Fabric>(&self, fabric: &F, id: u32) -> (RegionKey, u32) {
        let at = id as usize;
        (fabric.key(self.chunks[at / CHUNK].region), (at % CHUNK * SLOT_BYTES) as u32)
    }

    /// Marks a channel as in use: its peer is likely to write soon.
    pub(crate) fn use_soon(&mut self, id: u32) {
        if self.used_at.len() <= FEW {
            return;
        }
        let block = id as usize / BLOCK;
        if self.used_at[block].replace(self.looks).is_none() {
            let at = self.in_use.partition_point(|before| (*before as usize) < block);
            self.in_use.insert(at, block as u32);
        }
    }

    /// Scans the slots, and appends each that has changed with its words. The slot of a closed channel is
    /// reported at most once more, with its last words.
    pub(crate) fn look<F: Fabric>(&mut self, fabric: &F, news: &mut Vec<(u32, Words)>) {
        self.looks += 1;
        let blocks = self.used_at.len();
        if blocks <= FEW {
            return self.compare(fabric, 0, self.len, news);
        }
        if self.looks.is_multiple_of(LOOKS_IN_USE) {
            self.forget_unused();
        }
        let first = news.len();
        let mut at = 0;
        while let Some(&block) = self.in_use.get(at) {
            // Adjacent blocks are scanned in one go.
            let mut end = block as usize + 1;
            at += 1;
            while self.in_use.get(at) == Some(&(end as u32)) && !end.is_multiple_of(CHUNK / BLOCK) {
                (end, at) = (end + 1, at + 1);
            }
            self.compare(fabric, block as usize * BLOCK, end * BLOCK, news);
        }
        for (id, _) in &news[first..] {
            self.used_at[*id as usize / BLOCK] = Some(self.looks);
        }
        let until = (self.next + SWEEP).min(blocks);
        for block in self.next..until {
            let before = news.len();
            if self.used_at[block].is_none() {
                self.compare(fabric, block * BLOCK, (block + 1) * BLOCK, news);
            }
            if let Some((id, _)) = news.get(before) {
                self.use_soon(*id);
            }
        }
        self.next = if until == blocks { 0 } else { until };
    }

    /// Takes blocks without a recent event out of use.
    fn forget_unused(&mut self) {
        self.in_use.retain(|block| {
            let used_at = &mut self.used_at[*block as usize];
            let kept = used_at.is_some_and(|used_at| self.looks - used_at <= LOOKS_IN_USE);
            if !kept {
                *used_at = None;
            }
            kept
        });
    }

    /// Scans slots `from` to `until`, all in one chunk unless `from` is 0.
    fn compare<F: Fabric>(
        &mut self,
        fabric: &F,
        from: usize,
        until: usize,
        news: &mut Vec<(u32, Words)>,
    ) {
        let chunk = &mut self.chunks[..];
        let Some(Chunk { region, seen }) = chunk.get_mut(from / CHUNK) else { return };
        let first = from / CHUNK * CHUNK;
        let end = seen.len().min(2 * (until - first));
        let mut word = 2 * (from - first);
        while let Some(changed) = fabric.changed(*region, &seen[..end], word) {
            let mut now = [0; BLOCK * SLOT_BYTES];
            // Neighbours of a changed word have often changed too.
            let from = changed / 2;
            word = end.min(2 * (from + BLOCK));
            let now = &mut now[..8 * word - SLOT_BYTES * from];
            fabric.copy_out(*region, from * SLOT_BYTES, now);
            let (slots, _) = now.as_chunks().0.as_chunks();
            let (seen, _) = seen[2 * from..word].as_chunks_mut();
            for (slot, (now, seen)) in (from..).zip(slots.iter().zip(seen)) {
                let [mut tail, credit] = now.map(u64::from_ne_bytes);
                if [tail, credit] == *seen {
                    continue;
                }
                if credit != seen[1] {
                    // If the credit word is a goodbye, a tail word that is read after it is the last.
                    tail = fabric.load(*region, slot * SLOT_BYTES);
                }
                *seen = [tail, credit];
                news.push(((first + slot) as u32, *seen));
            }
        }
    }

    /// Returns whether no slot has changed since it was last scanned.
    pub(crate) fn is_quiet<F: Fabric>(&self, fabric: &F) -> bool {
        self.chunks.iter().all(|Chunk { region, seen }| fabric.changed(*region, seen, 0).is_none())
    }
}

#[cfg(test)]
mod tests {
    use skein_fabric::shm::{Host, ShmFabric};

    use super::*;

    const MANY: u32 = 3_000;

    fn slots(count: u32) -> (ShmFabric, Slots) {
        let mut fabric = Host::anonymous().join("slots").expect("memory for one");
        let mut slots = Slots::default();
        (0..count).for_each(|id| slots.make(&mut fabric, id).expect("there is room"));
        (fabric, slots)
    }

    /// Writes a slot as its peer would.
    fn write(fabric: &mut ShmFabric, slots: &Slots, id: u32, words: Words) {
        let Chunk { region, .. } = slots.chunks[id as usize / CHUNK];
        let at = id as usize % CHUNK * SLOT_BYTES;
        fabric.store(region, at, words[0]);
        fabric.store(region, at + 8, words[1]);
    }

    /// The number of scans until the change is found.
    fn heard(fabric: &ShmFabric, slots: &mut Slots, id: u32, words: Words) -> usize {
        let mut news = Vec::new();
        let looks = (1..=MANY as usize).find(|_| {
            slots.look(fabric, &mut news);
            !news.is_empty()
        });
        assert_eq!(news, [(id, words)]);
        looks.expect("it is heard in the end")
    }

    #[test]
    fn few_are_all_heard_at_once() {
        let (mut fabric, mut slots) = slots((FEW * BLOCK) as u32);
        for id in (0..slots.len as u32).rev() {
            write(&mut fabric, &slots, id, [7, 0]);
            assert_eq!(heard(&fabric, &mut slots, id, [7, 0]), 1);
        }
    }

    #[test]
    fn of_many_those_in_use_are_heard_at_once_and_others_when_it_is_their_turn() {
        let (mut fabric, mut slots) = slots(MANY);
        let turns = (MANY as usize).div_ceil(BLOCK).div_ceil(SWEEP);
        for id in [0, 1_023, 1_024, 2_047, MANY - 1] {
            write(&mut fabric, &slots, id, [1, 0]);
            assert!(!slots.is_quiet(&fabric), "whoever sleeps now sleeps through it");
            assert!(heard(&fabric, &mut slots, id, [1, 0]) <= turns);
            assert!(slots.is_quiet(&fabric));
            for tail in 2..10 {
                write(&mut fabric, &slots, id, [tail, 5]);
                assert_eq!(heard(&fabric, &mut slots, id, [tail, 5]), 1);
            }
        }
        // A process that has written to this peer expects an answer.
        slots.use_soon(500);
        write(&mut fabric, &slots, 500, [1, 0]);
        assert_eq!(heard(&fabric, &mut slots, 500, [1, 0]), 1);
    }

    #[test]
    fn one_that_is_used_now_and_then_stays_in_use() {
        let (mut fabric, mut slots) = slots(MANY);
        let last = MANY - 1;
        write(&mut fabric, &slots, last, [1, 0]);
        heard(&fabric, &mut slots, last, [1, 0]);
        let (mut news, pause) = (Vec::new(), LOOKS_IN_USE * 3 / 4);
        for tail in 2..10 {
            (0..pause).for_each(|_| slots.look(&fabric, &mut news));
            write(&mut fabric, &slots, last, [tail, 0]);
            assert_eq!(heard(&fabric, &mut slots, last, [tail, 0]), 1, "after {pause} looks");
        }
        assert!(news.is_empty());
    }

    #[test]
    fn what_is_not_used_any_more_is_not_looked_at_each_time() {
        let (mut fabric, mut slots) = slots(MANY);
        for id in 0..MANY {
            write(&mut fabric, &slots, id, [1, 0]);
        }
        let (mut news, turns) = (Vec::new(), slots.used_at.len().div_ceil(SWEEP));
        (0..turns).for_each(|_| slots.look(&fabric, &mut news));
        news.sort_unstable();
        assert!(news.iter().map(|(id, _)| *id).eq(0..MANY), "each once");
        assert_eq!(slots.in_use.len(), slots.used_at.len());
        (0..=2 * LOOKS_IN_USE).for_each(|_| slots.look(&fabric, &mut news));
        assert!(slots.in_use.is_empty(), "{} blocks", slots.in_use.len());
        assert!(slots.used_at.iter().all(Option::is_none));
    }
}
