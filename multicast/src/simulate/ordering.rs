//! The orderings that can be simulated, and what the simulator needs of an ordering besides its driver.
//!
//! To add an ordering, add a variant of [`Ordering`], its facts, and [`Driven`]. All three are in this file,
//! so that no other file of the simulator, of its tests or of `skein sim` has to change.

use std::fmt;
use std::str::FromStr;

use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{self, Ramcast};
use skein_protocol::single::{self, Single};
use skein_protocol::tram::{self, Tram};

use super::{Coverage, Failure, Profile, Report, Scenario, run_ordered_by};
use crate::ordering::Links;

/// An ordering, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// [RamCast](Ramcast), for one group or several.
    Ramcast,
    /// [The smallest ordering](Single), for one group.
    Single,
    /// [Along a tree of groups](Tram).
    Tram,
}

impl Ordering {
    /// All orderings.
    pub const ALL: [Self; 3] = [Self::Ramcast, Self::Single, Self::Tram];

    /// The ordering that runs if none is named. The seeds of `multicast/tests/seeds.txt` failed with it.
    pub const DEFAULT: Self = Self::Ramcast;

    /// The facts that the simulator needs of each ordering, in one table.
    const fn facts(self) -> Facts {
        match self {
            Self::Ramcast => Facts {
                name: "ramcast",
                about: "RamCast",
                orders_several_groups: true,
                along_a_tree: false,
                reaches_all_counters: true,
                lacks: Profile::without_a_tree,
                never_hits: &["hint_used"],
                run: run_ordered_by::<Ramcast>,
            },
            Self::Single => Facts {
                name: "single",
                about: "the smallest one, which orders a single group",
                orders_several_groups: false,
                along_a_tree: false,
                reaches_all_counters: false,
                lacks: |profile| {
                    let one = profile.is_of_several_groups().then_some("it orders a single group");
                    one.or_else(|| profile.without_a_tree())
                },
                never_hits: &["hint_used"],
                run: run_ordered_by::<Single>,
            },
            Self::Tram => Facts {
                name: "tram",
                about: "TRAM, along a tree of groups",
                orders_several_groups: true,
                along_a_tree: true,
                reaches_all_counters: false,
                lacks: |_| None,
                never_hits: &["relayed"],
                run: run_ordered_by::<Tram>,
            },
        }
    }

    /// All orderings but the [default](Self::DEFAULT).
    pub fn others() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|it| *it != Self::DEFAULT)
    }

    /// A few words for the help of the command line.
    pub const fn about(self) -> &'static str {
        self.facts().about
    }

    /// Returns whether a message may be sent to several groups. If not, scenarios have one group.
    pub const fn orders_several_groups(self) -> bool {
        self.facts().orders_several_groups
    }

    /// Returns whether messages are ordered along a tree of groups, which scenarios draw then.
    pub(super) const fn along_a_tree(self) -> bool {
        self.facts().along_a_tree
    }

    /// Returns whether its scenarios can hit a counter of [`Coverage`] that those of others hit.
    pub fn reaches(self, counter: &str) -> bool {
        !self.facts().never_hits.contains(&counter)
    }

    /// The reason why it cannot run the scenarios of a profile, if there is one.
    pub fn lacks_for(self, profile: &Profile) -> Option<&'static str> {
        (self.facts().lacks)(profile)
    }

    /// Returns whether every counter of [`Coverage`] can rise, so that one that stays at zero is a hole in
    /// what was run.
    pub const fn reaches_all_counters(self) -> bool {
        self.facts().reaches_all_counters
    }

    /// The option of `skein sim` that names it, after a space. Empty for the [default](Self::DEFAULT).
    pub(super) fn option(self) -> String {
        if self == Self::DEFAULT { String::new() } else { format!(" --ordering {self}") }
    }

    /// Runs a scenario with it. With `trace`, keeps the events.
    pub(super) fn run(self, scenario: &Scenario, trace: bool) -> Result<Report, Box<Failure>> {
        (self.facts().run)(scenario, trace)
    }
}

/// A row of the table. The methods of [`Ordering`] document the fields.
struct Facts {
    name: &'static str,
    about: &'static str,
    orders_several_groups: bool,
    along_a_tree: bool,
    lacks: fn(&Profile) -> Option<&'static str>,
    never_hits: &'static [&'static str],
    reaches_all_counters: bool,
    run: fn(&Scenario, bool) -> Result<Report, Box<Failure>>,
}

impl fmt::Display for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().name)
    }
}

impl FromStr for Ordering {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|it| it.to_string() == name);
        named.ok_or_else(|| {
            format!("the orderings are {}", Self::ALL.map(|it| it.to_string()).join(" and "))
        })
    }
}

/// An ordering that can be simulated.
pub(crate) trait Driven: Links {
    /// Another group's proposal, if the record contains one.
    fn proposal(record: &Self::Record) -> Option<Remote>;

    /// Adds its counts of the paths taken other than the common one.
    fn cover(&self, coverage: &mut Coverage);
}

impl Driven for Ramcast {
    fn proposal(record: &ramcast::Record) -> Option<Remote> {
        if let ramcast::Record::Remote(remote) = record { Some(*remote) } else { None }
    }

    fn cover(&self, coverage: &mut Coverage) {
        coverage.protocol.add(self.paths());
    }
}

impl Driven for Single {
    fn proposal(_: &single::Record) -> Option<Remote> {
        None
    }

    /// It has no such counters.
    fn cover(&self, _: &mut Coverage) {}
}

impl Driven for Tram {
    fn proposal(_: &tram::Record) -> Option<Remote> {
        None
    }

    /// It has no such counters.
    fn cover(&self, _: &mut Coverage) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::simulate::{Profile, run_scenario};

    #[test]
    fn an_ordering_is_found_by_its_name() {
        for ordering in Ordering::ALL {
            assert_eq!(ordering.to_string().parse(), Ok(ordering));
        }
        assert!("none".parse::<Ordering>().is_err());
    }

    #[test]
    fn a_command_line_names_every_ordering_but_the_default() {
        assert_eq!(Ordering::DEFAULT.option(), "");
        for ordering in Ordering::others() {
            let option = ordering.option();
            let name = option.strip_prefix(" --ordering ").expect("the option, after a space");
            assert_eq!(name.parse(), Ok(ordering));
        }
    }

    #[test]
    fn an_ordering_of_one_group_has_scenarios_of_one_group_only() {
        for ordering in Ordering::ALL {
            let can = || Profile::every().filter_map(|it| it.ordered_by(ordering));
            if ordering.orders_several_groups() {
                let lacks = |it: &Profile| ordering.lacks_for(it).is_some();
                let cannot = Profile::every().filter(|it| lacks(it)).count();
                assert_eq!(can().count() + cannot, Profile::every().count(), "{ordering}");
                continue;
            }
            assert!((1..Profile::ALL.len()).contains(&can().count()), "{ordering}");
            for profile in can() {
                let mut drawn = (0..50).map(|seed| Scenario::draw(seed, profile));
                let found = drawn.find(|it| it.topology().groups != 1);
                assert!(found.is_none(), "{ordering}: {found:?}");
            }
        }
    }

    #[test]
    fn each_ordering_runs_its_own_protocol() {
        let mut drawn = (0..).map(|seed| Scenario::draw(seed, Profile::ALL[0]));
        let scenario = drawn.find(|it| it.topology().groups == 1).expect("a seed of one group");
        let runs = Ordering::ALL.map(|ordering| {
            let scenario = Scenario { ordering, ..scenario.clone() };
            let report = run_scenario(&scenario, false).unwrap();
            report.fingerprint
        });
        let distinct: BTreeSet<u64> = runs.into_iter().collect();
        assert_eq!(distinct.len(), runs.len(), "two rows of the table run one protocol");
    }
}
