//! Random schedules of whole trees, with the real tree, edges and gate. Each group is one log, whose leader changes.
//!
//! With the feature `mutants`, one test takes out a guard after the other. It needs a process of its own, as `cargo
//! nextest` gives it.

mod history;
#[cfg(feature = "mutants")]
mod mutants;
mod random;
mod results;
mod world;

use skein_protocol::tram::tree::Tree;

use self::history::Outcome;
use self::world::{Caller, Shape, World};

/// Plays one schedule.
fn play(seed: u64, caller: Caller) -> Outcome {
    World::new(seed, Shape::drawn(seed), caller).run()
}

#[test]
fn no_schedule_of_any_tree_has_a_cycle_or_ends_early() {
    for seed in 0..8_000 {
        assert_eq!(play(seed, Caller::Sound), Outcome::Fine, "seed {seed}");
    }
}

#[test]
fn no_schedule_of_the_papers_trees_has_a_cycle_or_ends_early() {
    for seed in 0..60 {
        for tree in [Tree::base(8), Tree::breadth(8), Tree::depth(8)] {
            let world = World::new(seed, Shape::of(&tree), Caller::Sound);
            assert_eq!(world.run(), Outcome::Fine, "seed {seed}: {tree:?}");
        }
    }
}

/// What the structs cannot see to: their caller must.
#[test]
fn a_caller_that_breaks_a_rule_is_noticed() {
    let callers = [
        Caller::ForwardsAppended,
        Caller::GatesAppended,
        Caller::TakesFirstAnswer,
        Caller::FollowersTell,
    ];
    for caller in callers {
        let found = (0..200).find(|seed| play(*seed, caller) != Outcome::Fine);
        assert!(found.is_some(), "{caller:?}");
    }
}
