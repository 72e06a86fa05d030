//! Ranges of seeds: `A..B`, or a number of seeds from a given or random start.

use std::ops::Range;

/// Random starts lie above the seeds that the gate and the documentation name.
const DRAWN: Range<u64> = 1_000_000..1_000_000_000;

/// The value of `--seeds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seeds(Range<u64>);

/// The value of `--from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A random start.
    Random,
    At(u64),
}

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = match text.split_once("..") {
            Some((from, to)) => {
                from.parse().ok().and_then(|from: u64| Some(from..to.parse().ok()?))
            }
            None => text.parse().ok().map(|count| 0..count),
        };
        let range = range.filter(|range| !range.is_empty());
        range.map(Self).ok_or_else(|| {
            "give a number of seeds, such as 1000, or two whole numbers, the first one lower, such as \
             0..1000"
                .to_owned()
        })
    }
}

impl std::str::FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "random" {
            return Ok(Self::Random);
        }
        let at = text.parse().map_err(|_| "give \"random\", or the number of the first seed");
        at.map(Self::At).map_err(str::to_owned)
    }
}

impl Seeds {
    /// The seeds, shifted by `from`.
    pub(super) fn range(&self, from: Option<From>) -> Result<Range<u64>, &'static str> {
        let by = match from {
            None => 0,
            Some(From::At(at)) => at,
            Some(From::Random) => rand::random_range(DRAWN),
        };
        let end = self.0.end.checked_add(by).ok_or("there are no seeds above 2^64")?;
        Ok(self.0.start + by..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(seeds: &str, from: Option<&str>) -> Option<Range<u64>> {
        let from = from.map(|from| from.parse().expect("a place"));
        seeds.parse::<Seeds>().ok()?.range(from).ok()
    }

    #[test]
    fn seeds_are_a_range_or_a_number_of_them() {
        assert_eq!(range("5..9", None), Some(5..9));
        assert_eq!(range("9", None), Some(0..9));
        assert_eq!(range("9", Some("7")), Some(7..16));
        assert_eq!(range("1..9", Some("7")), Some(8..16));
        for wrong in ["", "..", "9..9", "9..5", "0", "-1", "x", "1..", "18446744073709551616"] {
            assert_eq!(range(wrong, None), None, "{wrong}");
        }
        assert_eq!(range("9", Some("18446744073709551610")), None);
        let drawn = range("9", Some("random")).expect("a range");
        assert!(drawn.start >= 1_000_000 && drawn.end == drawn.start + 9);
        assert!("somewhere".parse::<From>().is_err());
    }
}
