//! The only source of randomness of a run.

/// A small generator (splitmix64) whose whole state is its seed. The same seed gives the same numbers, on every machine
/// and in every later version.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A uniformly distributed word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        // The bias of one in 2^64 / bound does not matter to a simulation.
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// An index of a slice of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times; never if `n` is zero.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Puts the elements into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// An independent generator: draws from one of the two do not change draws from the other.
    #[must_use = "it has drawn from this one"]
    pub fn fork(&mut self) -> Self {
        Self(self.word())
    }
}

/// Mixes the bits of a word, so that each depends on all.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_stays_the_same_run_for_ever() {
        // From the reference implementation of splitmix64.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.word(), 6_457_827_717_110_365_317);
        assert_eq!(rng.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn bounds_are_reached_and_kept() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            seen[rng.index(3)] += 1;
            assert!((5..=6).contains(&rng.between(5, 6)));
        }
        assert!(seen.iter().all(|&n| n > 250), "{seen:?}");
    }
}
