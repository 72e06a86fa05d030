//! Seeds that are written down: those that failed in the past, in `multicast/tests/seeds.txt`.

use super::Profile;

/// A seed that found something.
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
    /// Those that failed once and must pass, in the order of the file.
    ///
    /// # Panics
    /// If the file, which is part of the program, is not as it should be.
    pub fn all() -> Vec<Self> {
        let file = include_str!("../../tests/seeds.txt");
        let lines = file.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| Self::parse(line).unwrap_or_else(|| panic!("a seed is said so: {line}")))
            .collect()
    }

    fn parse(line: &'static str) -> Option<Self> {
        let (seed, rest) = line.split_once(' ')?;
        let (profile, found) = rest.split_once(' ')?;
        Some(Self { seed: seed.parse().ok()?, profile: Profile::named(profile)?, found })
    }
}
