//! Takes out one guard after the other.

use skein_protocol::mutants::{Mutant, plant};

use crate::history::Outcome;
use crate::play;
use crate::results::{self, Kept};
use crate::world::Caller;

/// A seed that notices each mutant. `HUNT=20000` looks for the first one of each among so many. Mutants that concern
/// recreated groups are not here: these schedules have none, and the tests of `edges.rs` notice them.
const NOTICED: &[(Mutant, u64)] = &[
    (Mutant::NotGatedAlongTree, 0),
    (Mutant::UpIgnored, 0),
    (Mutant::DownIgnored, 5),
    (Mutant::DownIgnoresParent, 102),
    (Mutant::StableWithoutSubtree, 16),
    (Mutant::UpWithoutOwnMessages, 44),
    (Mutant::WordsWithoutEarlierEntries, 127),
    (Mutant::PassageExempt, 6847),
    (Mutant::SubtreeExempt, 0),
    (Mutant::CommonDestinationExempt, 133),
    (Mutant::ReadsUngated, 8),
    (Mutant::EdgeGapTaken, 66),
];

#[test]
fn each_guard_that_is_taken_out_is_noticed() {
    let hunt: Option<u64> = std::env::var("HUNT").ok().and_then(|it| it.parse().ok());
    for (mutant, seed) in NOTICED {
        let play = |planted: Option<Mutant>, seed| {
            plant(planted);
            let outcome = play(seed, Caller::Sound);
            plant(None);
            outcome
        };
        if let Some(seeds) = hunt {
            let found = (0..seeds).find(|seed| play(Some(*mutant), *seed) != Outcome::Fine);
            println!("{}: {found:?}", mutant.name());
            continue;
        }
        assert_ne!(
            play(Some(*mutant), *seed),
            Outcome::Fine,
            "{} survives seed {seed}",
            mutant.name()
        );
        assert_eq!(play(None, *seed), Outcome::Fine, "seed {seed} without {}", mutant.name());
    }
}

#[test]
fn a_guard_of_results_that_is_taken_out_is_noticed() {
    for mutant in [Mutant::OwnAppliedIsEnough, Mutant::PlacesOfAnyLca] {
        plant(Some(mutant));
        let noticed = (0..100).find(|seed| results::play(*seed) == Kept::DroppedTooEarly);
        plant(None);
        assert!(noticed.is_some(), "{} survives", mutant.name());
    }
}
