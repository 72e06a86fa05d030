//! Seeds that failed in the past, in `multicast/tests/seeds.txt`.

use super::Profile;

/// A seed that found something once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The seed.
    pub seed: u64,
    /// What was drawn from it.
    pub profile: Profile,
    /// What it found.
    pub found: &'static str,
}

impl Kept {
    /// All of them, in the order of the file.
    ///
    /// # Panics
    /// If the file, which is part of the program, is not as it should be.
    pub fn all() -> Vec<Self> {
        let lines = include_str!("../../tests/seeds.txt").lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| Self::parse(line).unwrap_or_else(|| panic!("in seeds.txt: {line}")))
            .collect()
    }

    fn parse(line: &'static str) -> Option<Self> {
        let (seed, rest) = line.split_once(' ')?;
        let (profile, found) = rest.split_once(' ')?;
        Some(Self { seed: seed.parse().ok()?, profile: Profile::named(profile)?, found })
    }
}
