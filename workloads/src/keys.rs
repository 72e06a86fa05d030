//! Choice of records: the request distributions of the YCSB core workloads.
//!
//! Records are numbered from 0 in the order of their insertion. A record's key is the FNV hash of
//! its number, so that the insert order says nothing about the key order ("hashed insert order").
//!
//! The zipfian distribution is that of Gray et al., "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994, with the constant 0.99: record 0 is the most popular, then record 1.
//! Their formula draws the third rank a fifth more often than the exact distribution
//! (`rand_distr::Zipf`), the tenth 4 % more, and late ones 1 % less; published figures of YCSB use
//! it. *Scrambled* spreads the popular records over all of them by hashing the draw, and *latest*
//! makes the newest record the most popular one.

use rand::{Rng, RngExt};

/// The zipfian constant, theta, of the YCSB core workloads.
const THETA: f64 = 0.99;

/// Scrambled draws are zipfian over this many items, whatever the number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// zeta(`SCRAMBLED_ITEMS`), which would take a minute to sum.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// FNV-1a, 64 bits, over the eight bytes of `number`, lowest first. The sign bit is folded away as
/// in YCSB, whose keys are printed from signed numbers.
pub fn fnv(number: u64) -> u64 {
    let hash = number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
    });
    hash.cast_signed().unsigned_abs()
}

/// Prefix of every record's key.
pub const PREFIX: &[u8] = b"user";
/// The first key after all records' keys, whose prefix is followed by a decimal number.
pub const END: &[u8] = b"user:";

/// The key of record `number`: `user` and its hash in decimal.
pub fn key(number: u64) -> Vec<u8> {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = fnv(number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut key = Vec::with_capacity(PREFIX.len() + digits.len());
    key.extend_from_slice(PREFIX);
    key.extend_from_slice(&digits[at..]);
    key
}

/// The hash that `key` was printed from, if it is the key of a record.
pub fn hash_of(key: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(PREFIX).filter(|d| !d.is_empty() && d.len() <= 20)?;
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Ranks from 0, the most popular, with frequency falling as 1 / (rank + 1)^0.99.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Over `items` ranks. Sums `items` terms, so not for the hot path.
    pub fn new(items: u64) -> Self {
        let mut zipfian = Self { items: 0, zeta: 0.0, eta: 0.0 };
        zipfian.grow(items.max(1));
        zipfian
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        Self { items, zeta, eta: eta(items, zeta) }
    }

    /// Extends the ranks to `items`, at a cost of one term per new rank.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta += (self.items..items).map(|i| ((i + 1) as f64).powf(-THETA)).sum::<f64>();
            *self = Self::with_zeta(items, self.zeta);
        }
    }

    /// A random rank.
    #[expect(clippy::cast_sign_loss, reason = "no power of a positive number is negative")]
    pub fn draw(&self, random: &mut impl Rng) -> u64 {
        let u: f64 = random.random();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + HALF_TO_THETA {
            return 1;
        }
        const ALPHA: f64 = 1.0 / (1.0 - THETA);
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(ALPHA);
        // Rounding may give exactly `items` in very rare cases.
        (rank as u64).min(self.items - 1)
    }
}

/// 0.5^0.99, zeta(2) less one.
const HALF_TO_THETA: f64 = 0.503_477_775_028_359_5;

fn eta(items: u64, zeta: f64) -> f64 {
    (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - (1.0 + HALF_TO_THETA) / zeta)
}

/// Popularity of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Scrambled zipfian: some records are far more popular, independent of their age.
    Zipfian,
    /// Zipfian from the newest record backwards.
    Latest,
    /// All records are equally popular.
    Uniform,
}

/// Draws record numbers.
#[derive(Clone, Debug)]
pub struct Chooser {
    /// Scrambled draws range over this many records. Some of them may not exist yet.
    records: u64,
    distribution: Distribution,
    zipfian: Zipfian,
}

impl Chooser {
    /// Draws among `records` records, to which about `inserts` more will be added during the run. A
    /// scrambled draw among a changing number of records would change the popular records with each
    /// insert. So, as in YCSB, it ranges over all expected records, and is repeated while it hits
    /// one that does not exist yet.
    pub fn new(distribution: Distribution, records: u64, inserts: u64) -> Self {
        let zipfian = match distribution {
            Distribution::Zipfian => Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA),
            Distribution::Latest => Zipfian::new(records),
            // Not used.
            Distribution::Uniform => Zipfian::new(1),
        };
        Self { records: (records + inserts).max(1), distribution, zipfian }
    }

    /// The number of one of the records 0 to `existing - 1`.
    pub fn draw(&mut self, existing: u64, random: &mut impl Rng) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.random_range(0..existing.max(1)),
            Distribution::Latest => {
                self.zipfian.grow(existing);
                (existing - 1).saturating_sub(self.zipfian.draw(random))
            }
            Distribution::Zipfian => loop {
                let number = fnv(self.zipfian.draw(random)) % self.records;
                if number < existing {
                    return number;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    const DRAWS: usize = 1_000_000;

    fn frequencies(items: usize, mut draw: impl FnMut(&mut SmallRng) -> u64) -> Vec<f64> {
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = vec![0u64; items];
        for _ in 0..DRAWS {
            counts[draw(&mut random) as usize] += 1;
        }
        counts.into_iter().map(|count| count as f64 / DRAWS as f64).collect()
    }

    fn close(found: f64, wanted: f64, what: &str) {
        assert!((found / wanted - 1.0).abs() < 0.03, "{what}: {found} instead of {wanted}");
    }

    #[test]
    fn keys_are_those_that_ycsb_loads() {
        #[rustfmt::skip]
        let cases = [
            // record  key
            (0,        "user6284781860667377211"),
            (1,        "user8517097267634966620"),
            (2,        "user1820151046732198393"),
        ];
        for (number, wanted) in cases {
            assert_eq!(String::from_utf8(key(number)).unwrap(), wanted);
            assert_eq!(hash_of(wanted.as_bytes()), Some(fnv(number)));
        }
        for foreign in ["user", "user12x", "useless", "user99999999999999999999"] {
            assert_eq!(hash_of(foreign.as_bytes()), None, "{foreign}");
        }
        assert!((0..10_000).map(key).all(|key| key.as_slice() > PREFIX && key.as_slice() < END));
    }

    #[test]
    fn the_popular_ranks_are_as_popular_as_zipf_says() {
        let zeta: f64 = (1..=1_000).map(|i| f64::from(i).powf(-THETA)).sum();
        let zipfian = Zipfian::new(1_000);
        close(zipfian.zeta, zeta, "zeta");
        close(HALF_TO_THETA, 0.5f64.powf(THETA), "0.5^theta");
        let found = frequencies(1_000, |random| zipfian.draw(random));
        close(found[0], 1.0 / zeta, "rank 0");
        close(found[1], 0.5f64.powf(THETA) / zeta, "rank 1");
        // From rank 2 on the method is an approximation, but the total mass must be right.
        let tenth: f64 = (1..=100).map(|i| f64::from(i).powf(-THETA)).sum();
        close(found[..100].iter().sum(), tenth / zeta, "the most popular tenth");
    }

    #[test]
    fn growing_is_the_same_as_having_been_that_large() {
        let mut grown = Zipfian::new(10);
        for items in [11, 500, 1_000] {
            grown.grow(items);
        }
        close(grown.zeta, Zipfian::new(1_000).zeta, "zeta");
        close(grown.eta, Zipfian::new(1_000).eta, "eta");
    }

    #[test]
    fn scrambled_draws_stay_in_range_and_keep_the_popularity_of_ten_billion_items() {
        let mut chooser = Chooser::new(Distribution::Zipfian, 1_000, 0);
        let mut found = frequencies(1_000, |random| chooser.draw(1_000, random));
        let hottest = |rank: u64| (fnv(rank) % 1_000) as usize;
        // Each record also gets its share of the long tail, about a thousandth of the rest.
        let tail = 1.0 / 1_000.0 * 0.8;
        assert!((found[hottest(0)] - tail - 1.0 / SCRAMBLED_ZETA).abs() < 0.002);
        assert!((found[hottest(1)] - tail - HALF_TO_THETA / SCRAMBLED_ZETA).abs() < 0.002);
        found.sort_by(f64::total_cmp);
        assert!(found[0] > 0.0, "every record is asked for");
    }

    #[test]
    fn no_distribution_asks_for_what_is_not_there() {
        let all = [Distribution::Zipfian, Distribution::Latest, Distribution::Uniform];
        for distribution in all {
            let mut random = SmallRng::seed_from_u64(7);
            for records in [1, 2, 10, 1_000] {
                let mut chooser = Chooser::new(distribution, records, records / 5);
                for i in 0..10_000 {
                    let existing = records + i / 1_000;
                    let drawn = chooser.draw(existing, &mut random);
                    assert!(drawn < existing, "{distribution:?} drew {drawn} of {existing}");
                }
            }
        }
    }

    #[test]
    fn latest_prefers_what_was_inserted_last_and_uniform_nothing() {
        let mut latest = Chooser::new(Distribution::Latest, 1_000, 0);
        let found = frequencies(1_000, |random| latest.draw(1_000, random));
        let zeta = Zipfian::new(1_000).zeta;
        close(found[999], 1.0 / zeta, "the newest");
        close(found[998], HALF_TO_THETA / zeta, "the one before");

        let mut uniform = Chooser::new(Distribution::Uniform, 10, 0);
        for share in frequencies(10, |random| uniform.draw(10, random)) {
            close(share, 0.1, "each of ten");
        }
    }
}
