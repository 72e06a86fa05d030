//! The map from keys to groups: 16,384 hash slots, as in Redis Cluster.

use std::ops::BitXor;

use serde::{Deserialize, Serialize};
use skein_protocol::ids::{GroupId, GroupSet};

use crate::store::sum::fold;

/// The number of hash slots.
pub const SLOTS: u16 = 16_384;

/// A hash slot, 0 to 16,383.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlot(pub u16);

/// The group that owns each hash slot. In epoch 1 each group owns a contiguous range of slots, all ranges equal to
/// within one slot. Each [move](crate::wire::Move) of a slot makes another epoch.
///
/// **Invariants.** Every slot has an owner below `groups`, and `epoch >= 1`. The machines of a cluster own the map: two
/// maps of one epoch are equal, and a command sent by another epoch's map is refused with the current map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct SlotMap {
    /// Rises with each change.
    pub epoch: u32,
    groups: u16,
    owners: Vec<u16>,
    /// Digest of the other fields, which replicas compare.
    digest: u64,
}

/// The serialized form of a slot map: ranges, of which there are few if there are few groups.
#[derive(Serialize, Deserialize)]
struct Written {
    epoch: u32,
    groups: u16,
    /// An owner, and the length of its range in slots.
    ranges: Vec<(u16, u16)>,
}

impl From<SlotMap> for Written {
    fn from(map: SlotMap) -> Self {
        let ranges = map.owners.chunk_by(|one, next| one == next);
        let ranges = ranges.map(|range| (range[0], range.len() as u16)).collect();
        Self { epoch: map.epoch, groups: map.groups, ranges }
    }
}

impl TryFrom<Written> for SlotMap {
    type Error = &'static str;

    fn try_from(Written { epoch, groups, ranges }: Written) -> Result<Self, Self::Error> {
        let slots: u64 = ranges.iter().map(|(_, slots)| u64::from(*slots)).sum();
        let groups_fit = (1..=GroupSet::CAPACITY).contains(&groups);
        let owned = ranges.iter().all(|(owner, _)| *owner < groups);
        if slots != u64::from(SLOTS) || epoch == 0 || !groups_fit || !owned {
            return Err("it is no slot map");
        }
        let owners =
            ranges.into_iter().flat_map(|(owner, slots)| std::iter::repeat_n(owner, slots.into()));
        Ok(Self::of(epoch, groups, owners.collect()))
    }
}

impl SlotMap {
    /// The map of epoch 1 in a cluster of `groups`.
    pub fn even(groups: u16) -> Self {
        let owner = |slot: u32| (slot * u32::from(groups) / u32::from(SLOTS)) as u16;
        Self::of(1, groups, (0..u32::from(SLOTS)).map(owner).collect())
    }

    fn of(epoch: u32, groups: u16, owners: Vec<u16>) -> Self {
        let ranges = owners.chunk_by(|one, next| one == next);
        let of_range = |sum, range: &[u16]| fold(sum ^ u64::from(range[0]), range.len() as u64);
        let digest = ranges.fold(fold(u64::from(epoch), u64::from(groups)), of_range);
        Self { epoch, groups, owners, digest }
    }

    /// All groups of the cluster.
    pub fn groups(&self) -> GroupSet {
        GroupSet::first(self.groups)
    }

    /// The group that owns `key`.
    pub fn owner(&self, key: &[u8]) -> GroupId {
        self.owner_of(slot_of(key)).expect("every key has a slot")
    }

    /// The group that owns a slot, or `None` if there is no such slot.
    pub fn owner_of(&self, slot: HashSlot) -> Option<GroupId> {
        self.owners.get(usize::from(slot.0)).copied().map(GroupId)
    }

    /// Begins the next epoch, in which `to` owns the slot.
    ///
    /// # Panics
    /// If there is no such slot, or no such group.
    pub(crate) fn give(&mut self, slot: HashSlot, to: GroupId) {
        assert!(to.0 < self.groups, "a group of the cluster");
        let mut owners = std::mem::take(&mut self.owners);
        owners[usize::from(slot.0)] = to.0;
        *self = Self::of(self.epoch + 1, self.groups, owners);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// The hash slot of `key`: the CRC16 of the key, or of the bytes between its first `{` and the next `}` if there are
/// any.
pub fn slot_of(key: &[u8]) -> HashSlot {
    let tag = key.iter().position(|b| *b == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|b| *b == b'}').filter(|len| *len > 0).map(|len| &rest[..len])
    });
    HashSlot(crc16(tag.unwrap_or(key)) % SLOTS)
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0.
///
/// The CRC is linear: it is the sum of a contribution of each byte, and the CRC of all bytes before a block is added to
/// the block's first two bytes. So the contributions of a block's bytes do not depend on each other.
fn crc16(bytes: &[u8]) -> u16 {
    let (first, blocks) = bytes.as_rchunks::<BLOCK>();
    let alone = |(byte, followed): (&u8, usize)| CRC16[followed][usize::from(*byte)];
    let sum =
        |bytes: &[u8]| bytes.iter().zip((0..bytes.len()).rev()).map(alone).fold(0, BitXor::bitxor);
    blocks.iter().fold(sum(first), |crc, block| {
        let mut block = *block;
        block[0] ^= (crc >> 8) as u8;
        block[1] ^= crc as u8;
        sum(&block)
    })
}

/// Number of bytes whose contributions are added together.
const BLOCK: usize = 8;

/// The contribution of a byte, by the number of bytes that follow it, and by its value.
static CRC16: [[u16; 256]; BLOCK] = {
    let mut tables = [[0u16; 256]; BLOCK];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u16) << 8;
        let mut followed = 0;
        while followed < BLOCK {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
                bit += 1;
            }
            tables[followed][i] = crc;
            followed += 1;
        }
        i += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        #[rustfmt::skip]
        let cases: [(&[u8], u16, &str); 8] = [
            (b"The quick brown fox jumps over the lazy dog", 0xF0C8 % SLOTS, "several blocks and a rest"),
            (b"123456789",            0x31C3 % SLOTS, "the check value of the specification"),
            (b"foo",                  12_182,         "as CLUSTER KEYSLOT foo says"),
            (b"{foo}.bar",            12_182,         "the tag decides"),
            (b"x{foo}{bar}",          12_182,         "the first tag decides"),
            (b"",                     0,              "no bytes, no bits"),
            (b"foo{}{bar}",           crc16(b"foo{}{bar}") % SLOTS, "an empty tag is none"),
            (b"foo{{bar}}zap",        crc16(b"{bar") % SLOTS, "from the first brace to the next"),
        ];
        for (key, slot, because) in cases {
            assert_eq!(slot_of(key), HashSlot(slot), "{because}");
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written_and_nonsense_is_none() {
        let mut map = SlotMap::even(3);
        assert!(postcard::to_stdvec(&map).unwrap().len() < 20);
        map.give(HashSlot(0), GroupId(2));
        map.give(HashSlot(SLOTS - 1), GroupId(0));
        let bytes = postcard::to_stdvec(&map).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(map.clone()));
        let digests = [SlotMap::even(3), map.clone()].map(|map| map.digest());
        assert_ne!(digests[0], digests[1]);
        assert_eq!((map.epoch, map.owner_of(HashSlot(0))), (3, Some(GroupId(2))));
        assert_eq!(map.owner_of(HashSlot(SLOTS)), None);
        type Case<'a> = (u32, u16, &'a [(u16, u16)]);
        #[rustfmt::skip]
        let cases: [Case<'_>; 6] = [
            (1, 2, &[(0, SLOTS - 1)]),
            (1, 2, &[(0, SLOTS), (1, 1)]),
            (1, 2, &[(2, SLOTS)]),
            (0, 2, &[(0, SLOTS)]),
            (1, 0, &[(0, SLOTS)]),
            (1, 65, &[(64, SLOTS)]),
        ];
        for (epoch, groups, ranges) in cases {
            let ranges = Written { epoch, groups, ranges: ranges.to_vec() };
            let bytes = postcard::to_stdvec(&ranges).unwrap();
            assert!(postcard::from_bytes::<SlotMap>(&bytes).is_err());
        }
    }

    #[test]
    fn an_even_map_gives_every_group_its_share() {
        for groups in [1, 2, 3, 7, 16, 64] {
            let map = SlotMap::even(groups);
            for group in 0..groups {
                let share = map.owners.iter().filter(|owner| **owner == group).count();
                assert!(share.abs_diff(usize::from(SLOTS / groups)) <= 1, "{groups} groups");
            }
        }
    }
}
