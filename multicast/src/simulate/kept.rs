//! Files of seeds, one a line: `multicast/tests/seeds.txt`, and lists of failures.

use super::{Ordering, Profile};

/// A seed that found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub seed: u64,
    /// The profile that is drawn from it.
    pub profile: Profile,
    /// The property that it broke, or another note.
    pub found: String,
}

impl Kept {
    /// The seeds that failed once and must pass, in the order of `multicast/tests/seeds.txt`.
    ///
    /// # Panics
    /// If the file, which is part of the program, cannot be read as such.
    pub fn all() -> Vec<Self> {
        let lines = lines(include_str!("../../tests/seeds.txt"));
        lines
            .map(|line| Self::parse(line).unwrap_or_else(|| panic!("not a seed: {line}")))
            .collect()
    }

    /// Parses a line: the seed, the profile, and what it found. With `PROFILE/ORDERING`, another ordering than the default
    /// runs it.
    pub fn parse(line: &str) -> Option<Self> {
        let (seed, rest) = line.split_once(' ')?;
        let (profile, found) = rest.split_once(' ').unwrap_or((rest, ""));
        let (profile, ordering) = profile.split_once('/').unwrap_or((profile, ""));
        let ordering =
            if ordering.is_empty() { Ordering::DEFAULT } else { ordering.parse().ok()? };
        let (seed, profile) = (seed.parse().ok()?, Profile::named(profile)?.ordered_by(ordering)?);
        Some(Self { seed, profile, found: found.to_owned() })
    }
}

/// The lines of a file of seeds, without empty ones and comments.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}
