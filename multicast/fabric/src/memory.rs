//! Memory that other processes write while this one reads it.
//!
//! It is never lent out as `&[u8]`: a reference to bytes promises that nobody writes them, and nobody here can keep
//! that promise. All access goes through atomic words, in this process and in every other, so every race is one between
//! atomics. A word is therefore never seen half written (promise 2), and a longer copy can be torn, which readers must
//! expect.
//!
//! **Order.** Every copy into shared memory begins with a release fence, and every copy out of it ends with an acquire
//! fence. Hence a reader that sees any word of a later write, by an acquiring load or a copy, sees all of the earlier
//! writes of the same writer (promise 1). On x86 both fences cost nothing.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::FabricError;

/// Bytes in a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Words in a block. Copies and scans run block by block, without counting inside one.
const BLOCK: usize = 8;

/// Length of a huge page. Shorter memory is not worth one.
const HUGE_PAGE: usize = 2 << 20;
/// The smallest page there is.
const PAGE: usize = 4 << 10;

/// Panics if a region's length is not a positive multiple of a word: a bug of the caller.
pub(crate) fn check_len(len: usize) {
    assert!(len > 0 && len.is_multiple_of(WORD), "a region is whole words, not {len} bytes");
}

/// Whether a span stays within `size` bytes.
#[inline]
pub(crate) fn is_inside(size: usize, at: usize, len: usize) -> bool {
    at.checked_add(len).is_some_and(|end| end <= size)
}

/// Panics if a span leaves its memory of `size` bytes, or begins within a word: a bug of the caller.
#[inline]
pub(crate) fn check_span(size: usize, at: usize, len: usize) {
    if !at.is_multiple_of(WORD) || !is_inside(size, at, len) {
        is_no_span(size, at, len);
    }
}

/// Out of line, so that the hot checks stay short.
#[cold]
pub(crate) fn is_no_span(size: usize, at: usize, len: usize) -> ! {
    panic!("span {at}+{len} begins within a word, or leaves {size}");
}

/// The same for a peer's region. Its bounds come from the peer and may be anything, so this is an error.
pub(crate) fn check_remote_span(size: usize, at: usize, len: usize) -> Result<(), FabricError> {
    if at.is_multiple_of(WORD) && is_inside(size, at, len) {
        Ok(())
    } else {
        Err(FabricError::Outside { at, len, size })
    }
}

/// A mapping of shared memory, as words.
#[derive(Debug)]
pub(crate) struct Memory {
    words: NonNull<AtomicU64>,
    len: usize,
    /// Mapped bytes: `len <= mapped`, since pages may be larger than what is used of them.
    mapped: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and everything in it is reached
// through atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference gives access to atomics and nothing else.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zeroed bytes that no other process reaches, populated now and not at first touch. In huge pages where
    /// there are any: reserved ones, or else those that the kernel can make.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        if len < HUGE_PAGE {
            return Self::private(len, len.max(1), MapFlags::POPULATE);
        }
        let kept = MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let kept = Self::private(len, len.next_multiple_of(HUGE_PAGE), kept);
        // Populating fails if this process may not have the reserved pages after all.
        if let Some(memory) = kept.ok().filter(|memory| memory.advise(Advice::LinuxPopulateWrite)) {
            return Ok(memory);
        }
        let memory = Self::private(len, len, MapFlags::empty())?;
        memory.advise(Advice::LinuxHugepage);
        for page in (0..len).step_by(PAGE) {
            memory.store(page, 0);
        }
        Ok(memory)
    }

    fn private(len: usize, mapped: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE | flags)?
        };
        Ok(Self::at(base.cast(), len, mapped))
    }

    /// Gives the kernel advice about the mapping. Returns whether the kernel accepted it.
    fn advise(&self, advice: Advice) -> bool {
        // SAFETY: exactly what was mapped, and no advice given here takes bytes away or changes them.
        unsafe { madvise(self.words.as_ptr().cast(), self.mapped, advice) }.is_ok()
    }

    /// Maps the first `len` bytes of a file. They must be allocated already: touching a hole of a full file system
    /// would kill this process.
    pub(crate) fn of_file(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::map(file, len, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// The same, but faster: each page is mapped when it is first touched.
    pub(crate) fn of_file_as_touched(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::map(file, len, MapFlags::SHARED)
    }

    fn map(file: impl AsFd, len: usize, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing of ours.
        // Nobody truncates these files, so the pages stay; the file may be unlinked.
        let base = unsafe {
            mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
        };
        Ok(Self::at(base.cast(), len, len))
    }

    /// Memory for a region of a fabric that uses no files.
    pub(crate) fn of_region(len: usize) -> Result<Self, FabricError> {
        check_len(len);
        let dir = || "this process".into();
        Self::anonymous(len).map_err(|source| FabricError::NoSpace { len, dir: dir(), source })
    }

    fn at(base: *mut AtomicU64, len: usize, mapped: usize) -> Self {
        let words = NonNull::new(base).expect("the kernel never maps at zero");
        Self { words, len, mapped }
    }

    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its address, for a device that reads and writes it.
    #[cfg(feature = "verbs")]
    pub(crate) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// The words of a span.
    #[inline]
    fn span(&self, at: usize, words: usize) -> &[AtomicU64] {
        let len = words.checked_mul(WORD).expect("no mapping is that long");
        check_span(self.len, at, len);
        // SAFETY: in bounds and aligned by the assertions (mappings start on a page); the mapping
        // lives as long as `self`; every bit pattern is a valid word; and as the elements are
        // atomics, others may write them while the slice exists.
        unsafe { std::slice::from_raw_parts(self.words.add(at / WORD).as_ptr(), words) }
    }

    /// The word at byte offset `at`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        let whole = self.len - self.len % WORD;
        if !at.is_multiple_of(WORD) || at >= whole {
            is_no_span(self.len, at, WORD);
        }
        // SAFETY: in bounds and aligned by the check above, and otherwise as `span` argues.
        unsafe { self.words.add(at / WORD).as_ref() }
    }

    /// Loads the word at byte offset `at`. Whatever its writer wrote before it is then visible.
    #[inline]
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// The number of the first word, from `from` on, that differs from `seen`. Words are counted from byte offset `at`.
    pub(crate) fn changed(&self, at: usize, seen: &[u64], from: usize) -> Option<usize> {
        let (words, seen) = (self.span(at, seen.len()).get(from..)?, seen.get(from..)?);
        let differs = |(word, seen): (&AtomicU64, &u64)| word.load(Ordering::Relaxed) != *seen;
        // Few words change: unchanged blocks are skipped as a whole.
        let blocks = words.as_chunks::<BLOCK>().0.iter().zip(seen.as_chunks::<BLOCK>().0);
        let changed = |(words, seen): &(&[AtomicU64; BLOCK], &[u64; BLOCK])| {
            words.iter().zip(*seen).any(differs)
        };
        let same = BLOCK * blocks.take_while(|block| !changed(block)).count();
        let found = words[same..].iter().zip(&seen[same..]).position(differs);
        found.map(|i| from + same + i)
    }

    /// Stores a word at byte offset `at`, after all earlier writes are visible.
    pub(crate) fn store(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    /// The half word at byte offset `at`, which must not be accessed as part of a whole one. Futexes are of this size.
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "half word {at} leaves {}", self.len);
        // SAFETY: in bounds and aligned by the assertion, and the mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.words.as_ptr().cast::<u32>().add(at / 4)) }
    }

    /// Copies bytes in. A word that is written in part keeps its other bytes; that is no race, because a word has one
    /// writer.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        if let Ok(word) = bytes.try_into()
            && at.is_multiple_of(WORD)
        {
            return self.store(at, u64::from_ne_bytes(word));
        }
        fence(Ordering::Release);
        if at.is_multiple_of(WORD) {
            self.put_words(at, bytes);
        } else {
            self.put_within(at, bytes);
        }
    }

    /// Copies in from within a word on.
    #[cold]
    fn put_within(&self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let within = at % WORD;
        let (head, rest) = bytes.split_at(bytes.len().min(WORD - within));
        merge(self.word(at - within), within, head);
        if !rest.is_empty() {
            self.put_words(at - within + WORD, rest);
        }
    }

    /// Copies in from the start of a word on.
    #[inline]
    fn put_words(&self, at: usize, bytes: &[u8]) {
        let (whole, tail) = bytes.as_chunks::<WORD>();
        let words = self.span(at, whole.len() + usize::from(!tail.is_empty()));
        let (words, last) = words.split_at(whole.len());
        each(words, whole, |word, bytes| {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        });
        if let [last] = last {
            merge(last, 0, tail);
        }
    }

    /// Copies bytes out. They can be torn.
    pub(crate) fn get(&self, at: usize, into: &mut [u8]) {
        if at.is_multiple_of(WORD) {
            self.get_words(at, into);
        } else {
            self.get_within(at, into);
        }
        fence(Ordering::Acquire);
    }

    /// Copies out from within a word on.
    #[cold]
    fn get_within(&self, at: usize, into: &mut [u8]) {
        if into.is_empty() {
            return;
        }
        let within = at % WORD;
        let (head, rest) = into.split_at_mut(into.len().min(WORD - within));
        let word = self.word(at - within).load(Ordering::Relaxed).to_ne_bytes();
        head.copy_from_slice(&word[within..][..head.len()]);
        if !rest.is_empty() {
            self.get_words(at - within + WORD, rest);
        }
    }

    /// Copies out from the start of a word on.
    #[inline]
    fn get_words(&self, at: usize, into: &mut [u8]) {
        let (whole, tail) = into.as_chunks_mut::<WORD>();
        let words = self.span(at, whole.len() + usize::from(!tail.is_empty()));
        let (words, last) = words.split_at(whole.len());
        let (blocks, words_left) = words.as_chunks::<BLOCK>();
        let (into_blocks, whole_left) = whole.as_chunks_mut::<BLOCK>();
        for (into, block) in into_blocks.iter_mut().zip(blocks) {
            for (bytes, word) in into.iter_mut().zip(block) {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            }
        }
        for (bytes, word) in whole_left.iter_mut().zip(words_left) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let [last] = last {
            let word = last.load(Ordering::Relaxed).to_ne_bytes();
            tail.copy_from_slice(&word[..tail.len()]);
        }
    }

    /// Copies from other shared memory, which may be changing. Both offsets are multiples of a word.
    pub(crate) fn copy(&self, at: usize, from: &Self, from_at: usize, len: usize) {
        fence(Ordering::Release);
        let whole = len / WORD;
        let source = from.span(from_at, whole);
        each(self.span(at, whole), source, |word, source| {
            word.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        });
        let tail = len % WORD;
        if tail > 0 {
            let word = from.word(from_at + whole * WORD).load(Ordering::Relaxed).to_ne_bytes();
            merge(self.word(at + whole * WORD), 0, &word[..tail]);
        }
        fence(Ordering::Acquire);
    }

    /// Zeroes a span of whole words.
    pub(crate) fn zero(&self, at: usize, len: usize) {
        for word in self.span(at, len / WORD) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.words.as_ptr().cast(), self.mapped) };
        unmapped.expect("the mapping is ours");
    }
}

/// Applies `act` to each word and its counterpart, block by block.
fn each<T>(words: &[AtomicU64], others: &[T], mut act: impl FnMut(&AtomicU64, &T)) {
    let (blocks, words_left) = words.as_chunks::<BLOCK>();
    let (other_blocks, others_left) = others.as_chunks::<BLOCK>();
    for (block, others) in blocks.iter().zip(other_blocks) {
        block.iter().zip(others).for_each(|(word, other)| act(word, other));
    }
    words_left.iter().zip(others_left).for_each(|(word, other)| act(word, other));
}

/// Replaces the bytes of a word from `at` on, in one store.
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
    merged[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_any_offset_and_neighbours_stay() {
        let memory = Memory::anonymous(64).unwrap();
        for at in 0..20 {
            for len in 0..=30 {
                memory.put(0, &[0xee; 64]);
                let bytes: Vec<u8> = (1..=len).collect();
                memory.put(at, &bytes);
                let mut all = [0; 64];
                memory.get(0, &mut all);
                let end = at + usize::from(len);
                assert_eq!(all[at..end], bytes, "{at}+{len}");
                assert!(all[..at].iter().chain(&all[end..]).all(|&b| b == 0xee), "{at}+{len}");
                let mut part = vec![0; usize::from(len)];
                memory.get(at, &mut part);
                assert_eq!(part, bytes, "{at}+{len}");
            }
        }
    }

    #[test]
    fn the_first_word_that_changed_is_found_wherever_it_is() {
        let memory = Memory::anonymous(64 * WORD).unwrap();
        for len in [0, 1, 7, 8, 9, 40] {
            let seen = vec![0; len];
            assert_eq!(memory.changed(3 * WORD, &seen, 0), None);
            for at in 0..len {
                memory.store((3 + at) * WORD, 1);
                for from in 0..=len {
                    let found = memory.changed(3 * WORD, &seen, from);
                    assert_eq!(found, (from <= at).then_some(at), "{at} of {len} from {from}");
                }
                memory.store((3 + at) * WORD, 0);
            }
        }
    }

    #[test]
    fn what_is_long_is_in_huge_pages_where_there_are_any() {
        let memory = Memory::anonymous(4 * HUGE_PAGE + 8).unwrap();
        memory.put(4 * HUGE_PAGE, &[1; 8]);
        assert_eq!(memory.load(4 * HUGE_PAGE), u64::from_ne_bytes([1; 8]));
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if enabled.is_ok_and(|text| !text.contains("[never]")) {
            let start = format!("{:x}-", memory.words.as_ptr() as usize);
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let ours = maps.split("VmFlags").find(|map| map.contains(&start)).unwrap();
            let huge = ["AnonHugePages:", "Private_Hugetlb:"].map(|name| {
                let line = ours.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
            });
            assert!(huge[0] + huge[1] > 0, "{ours}");
        }
        drop(memory);
    }

    #[test]
    #[should_panic(expected = "leaves")]
    fn a_span_that_leaves_the_memory_is_a_bug() {
        Memory::anonymous(64).unwrap().put(56, &[0; 9]);
    }
}
