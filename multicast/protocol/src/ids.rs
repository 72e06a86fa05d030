//! Identifiers of groups, replicas, sessions and messages.
//!
//! A number with a meaning is a type. `usize` is for indices only. Each type documents its range and how it is written.

use core::fmt;

/// The replicas of one shard. Written `g3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u16);

impl GroupId {
    /// Index into per-group arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// A replica slot of a group. Written `g3.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    pub group: GroupId,
    /// From 0 to 2f.
    pub slot: u8,
}

impl ReplicaId {
    /// The replica in `slot` of `group`.
    pub const fn new(group: GroupId, slot: u8) -> Self {
        Self { group, slot }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.slot)
    }
}

/// A sender of the multicast. It draws its identifier at random when it opens, so no two are equal. Written in
/// hexadecimal, `s00000000deadbeef`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    const OWN: u64 = 0xffff << 48;

    /// The session of message number `count` that engine `engine` of node `node` multicasts itself. Each such message
    /// is number 1 of a session of its own.
    pub const fn own(node: u16, engine: u16, count: u32) -> Self {
        Self(Self::OWN | (node as u64 & 0xff) << 40 | (engine as u64 & 0xff) << 32 | count as u64)
    }

    /// Whether it is a node's session and not a client's.
    pub const fn is_own(self) -> bool {
        self.0 >= Self::OWN
    }

    /// A client's session, from 64 random bits.
    pub const fn from_random(bits: u64) -> Self {
        Self(bits >> 1)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{:016x}", self.0)
    }
}

/// A message's name. The destinations of a name never change. Sequence numbers start at 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    pub session: SessionId,
    /// Dense per session, over all destinations.
    pub sequence: u64,
}

impl MessageId {
    /// Message `sequence` of `session`.
    pub const fn new(session: SessionId, sequence: u64) -> Self {
        Self { session, sequence }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.sequence)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A set of groups: one word in memory, and as many bytes as necessary on the wire.
///
/// A cluster has at most [`GroupSet::CAPACITY`] groups; timestamps have room for 1,024 (see
/// `docs/decisions/0002-group-sets.md`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GroupSet(u64);

impl GroupSet {
    /// The maximum number of groups in a cluster.
    pub const CAPACITY: u16 = 64;

    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The set of `group` alone.
    pub fn single(group: GroupId) -> Self {
        Self::EMPTY.with(group)
    }

    /// Groups 0 to `count - 1`.
    pub fn first(count: u16) -> Self {
        assert!(count <= Self::CAPACITY, "{count} groups are more than {}", Self::CAPACITY);
        Self(u64::MAX.checked_shr(u32::from(Self::CAPACITY - count)).unwrap_or(0))
    }

    /// This set and `group`.
    #[must_use]
    pub fn with(self, group: GroupId) -> Self {
        assert!(group.0 < Self::CAPACITY, "{group} is outside a set of {}", Self::CAPACITY);
        Self(self.0 | 1 << group.0)
    }

    /// Adds `group`. Returns whether it was absent.
    pub fn insert(&mut self, group: GroupId) -> bool {
        let before = core::mem::replace(self, self.with(group));
        before != *self
    }

    /// This set without `group`.
    #[must_use]
    pub fn without(self, group: GroupId) -> Self {
        assert!(group.0 < Self::CAPACITY, "{group} is outside a set of {}", Self::CAPACITY);
        Self(self.0 & !(1 << group.0))
    }

    /// This set and all of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The groups of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The groups in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether `group` is in the set.
    pub const fn contains(self, group: GroupId) -> bool {
        group.0 < Self::CAPACITY && self.0 & (1 << group.0) != 0
    }

    /// Whether every group of `other` is in the set.
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Number of groups in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are at least two groups. It is cheaper than [`len`](Self::len).
    pub const fn has_several(self) -> bool {
        self.0 & self.0.wrapping_sub(1) != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bitmap; bit 0 is group 0.
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// The set of a bitmap.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The groups in rising order.
    pub fn iter(self) -> impl Iterator<Item = GroupId> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let group = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(GroupId(group as u16))
        })
    }
}

impl FromIterator<GroupId> for GroupSet {
    fn from_iter<I: IntoIterator<Item = GroupId>>(groups: I) -> Self {
        groups.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for GroupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for GroupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, group) in self.iter().enumerate() {
            write!(f, "{}{group}", if i == 0 { "" } else { " " })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_its_groups_in_order() {
        let set: GroupSet = [GroupId(63), GroupId(0), GroupId(7)].into_iter().collect();
        assert!(set.iter().eq([GroupId(0), GroupId(7), GroupId(63)]));
        assert_eq!(set.len(), 3);
        assert!(set.contains(GroupId(63)) && !set.contains(GroupId(64)));
        assert!(
            GroupSet::first(64).contains_all(set)
                && !set.contains_all(GroupSet::first(1).with(GroupId(1)))
        );
        assert!(GroupSet::EMPTY.iter().next().is_none());
    }
}
