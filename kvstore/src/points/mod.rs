//! Restore points: places in the order at which every group writes its state to disk, and to one of which a cluster with
//! durability `async` returns after a loss of all power.
//!
//! A point is a mark with a number, ordered in all groups. At its turn each machine writes what has changed since the point
//! before, as [`PointRecord`]s. So the records up to an [end](PointEnd) are the state at that point, once a
//! whole copy of the state has ended there or before. A copy is spread over several points, beside their changes.
//!
//! **Invariant (one place).** A point has the same number in all groups, and all groups execute points in one sequence. The
//! states of all groups at one point, together, are the state at one place in the order.
//!
//! **Invariant (floor).** Every group has the [floor] on the disks of f+1 replicas. A replica drops what leads to
//! earlier points only when the floor is not in front of the end of a newer whole copy.

mod log;
mod progress;
mod survey;

use serde::{Deserialize, Serialize};
use skein_protocol::ids::{GroupSet, SessionId};

pub use self::log::{NotReturned, PointEnd, PointLog, PointRecord, Points, Returning};
pub use self::progress::Progress;
pub use self::survey::{Choice, Disks, Lost, Point, Survey};
use crate::reply::{Outcome, Reply};

/// The upper half of the names of sessions that make points. A client's name, which is random, hardly ever begins so.
const MAKERS: u64 = 0x534b_5054 << 32;

/// The name of a session that makes points. Its messages are taken while others wait for a point.
pub fn maker(random: u32) -> SessionId {
    SessionId(MAKERS | u64::from(random))
}

/// Whether a session's name is that of a [maker].
pub(crate) const fn is_maker(session: SessionId) -> bool {
    session.0 & !(u32::MAX as u64) == MAKERS
}

/// Asks groups for a restore point, or tells them only what disks hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestorePoint {
    /// The point's number, above that of every earlier one: the sender's time in microseconds. A number that is not
    /// makes no point, and the message is a report only; such a one may be sent to a single group.
    pub number: u64,
    /// The last point of which the sender knew. If there is another one meanwhile, this message makes none, unless it closes
    /// the cluster: several nodes may find at the same time that a point is due.
    pub after: u64,
    /// The cluster is stopped with this point: all sessions end, and none is opened behind it.
    pub closes: bool,
    /// What the disk of the sender's node holds.
    pub holds: Vec<Holds>,
}

/// The points to which a replica's disk can return: all that its group executed from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    pub group: u16,
    pub slot: u8,
    /// `0 < from <= to`
    pub from: u64,
    pub to: u64,
}

/// A group's answer to a [`RestorePoint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointAnswer {
    /// Number of the group's last point; 0 if there was none.
    pub last: u64,
    /// The newest point that f+1 replicas of every group are known to hold; 0 if there is none.
    pub floor: u64,
    /// The group has changed since its last point.
    pub changed: bool,
}

impl PointAnswer {
    /// Whether everything that the group has executed is on f+1 disks.
    pub const fn is_saved(&self) -> bool {
        self.last == self.floor && !self.changed
    }

    /// The bytes of the outcome by which a group answers.
    pub(crate) fn encode(self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&self.last.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.floor.to_le_bytes());
        bytes[16] = u8::from(self.changed);
        bytes
    }

    /// The answers in the reply to a [`Plan::restore_point`](crate::plan::Plan::restore_point), one for each group; `None` if it
    /// is no such reply.
    pub fn of(reply: &Reply) -> Option<Vec<Self>> {
        let answer = |outcome: &Outcome| {
            let Outcome::Value(Some((bytes, _))) = outcome else { return None };
            let ([last, floor], &[changed]) = bytes.as_chunks() else { return None };
            let (last, floor) = (u64::from_le_bytes(*last), u64::from_le_bytes(*floor));
            Some(Self { last, floor, changed: changed != 0 })
        };
        reply.outcomes.iter().map(answer).collect()
    }
}

/// The newest point that `quorum` replicas of each of the `groups` hold; 0 if there is none.
pub fn floor<'a>(
    groups: GroupSet,
    quorum: usize,
    holds: impl Iterator<Item = &'a Holds> + Clone,
) -> u64 {
    let has = |it: &Holds, point| (it.from..=it.to).contains(&point);
    let in_group = |group: u16, point| {
        holds.clone().filter(|it| it.group == group && has(it, point)).count() >= quorum
    };
    let everywhere = |point: &u64| groups.iter().all(|group| in_group(group.0, *point));
    // Behind the end of a range there is one holder less, so the newest is an end.
    holds.clone().map(|it| it.to).filter(everywhere).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use skein_protocol::ids::GroupId;

    use super::*;

    /// What the disk of a replica leads to: from one point to another.
    const fn holds(group: u16, slot: u8, from: u64, to: u64) -> Holds {
        Holds { group, slot, from, to }
    }

    #[test]
    fn the_floor_is_the_newest_point_that_a_quorum_of_every_group_holds() {
        let whole = [0, 1, 2].map(|slot| holds(0, slot, 10, 90));
        #[rustfmt::skip]
        let cases = [
            // group 1                                            floor  because
            (vec![holds(1, 0, 10, 90), holds(1, 1, 10, 90)],      90,    "two of three are a quorum"),
            (vec![holds(1, 0, 10, 90), holds(1, 1, 10, 70)],      70,    "the second one lags"),
            (vec![holds(1, 0, 10, 95), holds(1, 1, 10, 95)],      90,    "the other group lags"),
            (vec![holds(1, 0, 10, 90)],                           0,     "one is no quorum"),
            (vec![holds(1, 0, 10, 90), holds(1, 1, 110, 110)],    0,     "a new copy does not lead to earlier points"),
            (vec![holds(1, 0, 10, 90), holds(1, 1, 80, 110)],     90,    "a copy that is old enough does"),
            (vec![],                                              0,     "nothing is known of it"),
        ];
        let groups: GroupSet = [GroupId(0), GroupId(1)].into_iter().collect();
        for (other, expected, because) in cases {
            let all: Vec<Holds> = whole.into_iter().chain(other).collect();
            assert_eq!(floor(groups, 2, all.iter()), expected, "{because}");
        }
    }

    #[test]
    fn sessions_that_make_points_are_known_by_their_names() {
        assert!(is_maker(maker(0)) && is_maker(maker(u32::MAX)));
        assert!(!is_maker(SessionId(0)) && !is_maker(SessionId(u64::MAX)));
    }
}
