//! To which restore point a cluster returns, given the points that its disks lead to. It touches no file.

use std::collections::{BTreeMap, BTreeSet};

use super::PointEnd;
use crate::command::Version;

/// Generation and number of a point.
pub type Point = (u32, u64);

/// What the disks of a cluster lead to.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Number of returns so far.
    present: u32,
    /// The point with which the present generation began.
    chosen: Option<Point>,
    /// Points of each group, and whether they closed the cluster.
    groups: Vec<BTreeMap<Point, bool>>,
    /// The newest point of the present generation that was known to be on f+1 disks of every group.
    floor: u64,
    /// Highest version at any end, whether its point counts or not.
    version: Version,
}

/// How many disks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disks {
    All,
    /// At least f+1 of every group, which is what the cluster tolerates.
    Enough,
    /// Fewer than f+1 of a group.
    TooFew,
}

/// Where the cluster returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The point; `None` if there never was one: the cluster begins empty.
    pub point: Option<Point>,
    /// The cluster was stopped there: nothing is lost.
    pub closed: bool,
    /// Highest version that a disk knows of.
    pub version: Version,
}

/// A point may be gone that was on f+1 disks of every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The newest point that was known to be on so many disks; 0 if there is none.
    pub floor: u64,
    /// The newest one that all groups still have.
    pub newest: Option<u64>,
}

impl Survey {
    /// Begins to look at the disks of a cluster with so many groups, whose present `generation` began with the point `chosen`.
    pub fn new(groups: u16, generation: u32, chosen: Option<Point>) -> Self {
        let groups = vec![BTreeMap::new(); usize::from(groups)];
        Self { present: generation, chosen, groups, floor: 0, version: 0 }
    }

    /// Takes a point to which a disk of `group` leads. Other groups than those of the cluster are left out.
    pub fn take(&mut self, group: u16, generation: u32, end: &PointEnd) {
        let Some(points) = self.groups.get_mut(usize::from(group)) else { return };
        if generation == self.present {
            self.floor = self.floor.max(end.floor);
        }
        self.version = self.version.max(end.version);
        points.insert((generation, end.number), end.closes);
    }

    /// The newest point that all groups have. Points of earlier generations count only if the present one began with them: what was
    /// read since rests on their being void.
    fn newest(&self) -> Option<Point> {
        let counts = |point: &Point| point.0 == self.present || Some(*point) == self.chosen;
        let of_group = |points: &BTreeMap<Point, bool>| -> BTreeSet<Point> {
            points.keys().copied().filter(counts).collect()
        };
        let common = self.groups.iter().map(of_group).reduce(|one, other| &one & &other);
        common.and_then(|points| points.last().copied())
    }

    /// Chooses the point. Accepts the loss of more disks than are tolerated, if any point is left, only if the operator `accepts` it.
    ///
    /// # Errors
    /// A point may be lost that was on f+1 disks of every group.
    pub fn choose(&self, disks: Disks, accepts: bool) -> Result<Choice, Lost> {
        let newest = self.newest();
        let of_present = newest.filter(|point| point.0 == self.present).map_or(0, |point| point.1);
        let lost = disks == Disks::TooFew || self.floor > of_present;
        let began_empty = self.chosen.is_none_or(|point| point.1 == 0);
        // It has lost its power before its first point, unless the disks are those of others.
        let is_empty = disks == Disks::All && self.floor == 0 && began_empty;
        if lost && !(accepts && newest.is_some()) || newest.is_none() && !is_empty {
            return Err(Lost { floor: self.floor, newest: newest.map(|point| point.1) });
        }
        let closes = |point| self.groups.iter().all(|points| points.get(&point) == Some(&true));
        let closed = newest.is_some_and(closes);
        Ok(Choice { point: newest, closed, version: self.version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::SlotMap;

    /// A point of a group: the group, the generation, the number, and the floor that was known there.
    type Found = (u16, u32, u64, u64);

    fn survey(chosen: Option<Point>, found: &[Found]) -> Survey {
        let mut survey = Survey::new(2, chosen.map_or(0, |_| 1), chosen);
        for (group, generation, number, floor) in found {
            let end = PointEnd {
                number: *number,
                version: 5 * number,
                closes: *number == 40,
                floor: *floor,
                whole: true,
                keys: 0,
                bytes: 0,
                digest: 0,
                slots: SlotMap::even(2),
            };
            survey.take(*group, *generation, &end);
        }
        survey
    }

    #[test]
    fn a_cluster_returns_to_the_newest_point_of_all_groups_if_none_may_be_lost() {
        use Disks::{All, Enough, TooFew};
        let lost = |floor, newest| Err(Lost { floor, newest });
        let both =
            |generation, number, floor| [0, 1].map(|group| (group, generation, number, floor));
        let one_ahead = [&both(0, 10, 0)[..], &[(1, 0, 20, 10)]].concat();
        let returned = [both(0, 10, 0), both(0, 20, 10), both(1, 15, 0)].concat();
        let void = [both(0, 10, 0), both(0, 20, 10)].concat();
        let (none, began, empty) = (None, Some((0, 10)), Some((0, 0)));
        #[rustfmt::skip]
        let cases = [
            // began  found                                 disks   accepts  expected                    because
            (none,  one_ahead.clone(),                      All,    false,   Ok(Some((0, 10))),          "only one group has the newer one"),
            (none,  one_ahead.clone(),                      Enough, false,   Ok(Some((0, 10))),          "the lost disks are tolerated"),
            (none,  one_ahead.clone(),                      TooFew, false,   lost(10, Some(10)),         "those that are lost may have had a newer one"),
            (none,  one_ahead,                              TooFew, true,    Ok(Some((0, 10))),          "an operator says that there is none"),
            (none,  both(0, 10, 20).to_vec(),               All,    false,   lost(20, Some(10)),         "a newer one was on f+1 disks: these are old ones"),
            (none,  both(0, 10, 20).to_vec(),               All,    true,    Ok(Some((0, 10))),          "an operator accepts old ones"),
            (none,  vec![],                                 All,    false,   Ok(None),                   "it has made no point"),
            (none,  vec![],                                 Enough, false,   lost(0, None),              "its points may have been on the lost disk"),
            (none,  vec![],                                 TooFew, true,    lost(0, None),              "there is nothing to accept"),
            (none,  vec![(0, 0, 10, 0)],                    All,    false,   Ok(None),                   "no point was ever everywhere"),
            (none,  vec![(0, 0, 20, 10)],                   All,    false,   lost(10, None),             "one was, and one group has none"),
            (began, returned,                               All,    false,   Ok(Some((1, 15))),          "the newest of the present generation"),
            (began, void.clone(),                           All,    false,   Ok(Some((0, 10))),          "a newer one of an earlier generation is void"),
            (began, void,                                   TooFew, true,    Ok(Some((0, 10))),          "it stays void"),
            (began, vec![],                                 All,    false,   lost(0, None),              "it did not begin empty"),
            (empty, vec![],                                 All,    false,   Ok(None),                   "it did"),
        ];
        for (chosen, found, disks, accepts, expected, because) in cases {
            let choice = survey(chosen, &found).choose(disks, accepts);
            assert_eq!(choice.map(|choice| choice.point), expected, "{because}");
        }
    }

    #[test]
    fn what_a_point_of_one_group_says_counts_whether_it_is_chosen_or_not() {
        let found = survey(None, &[(0, 0, 40, 0), (1, 0, 40, 0), (1, 0, 50, 0), (7, 0, 90, 0)]);
        let choice = found.choose(Disks::All, false).expect("nothing is lost");
        assert_eq!(choice, Choice { point: Some((0, 40)), closed: true, version: 250 });
    }
}
