//! A hash of the whole state of a machine, computed in parts.
//!
//! The state may have gigabytes, and an engine that hashed them in one turn would seem dead to the others. So
//! the hash is computed in parts between turns, and begins again whenever something was delivered in between.
//! It completes when nothing has been delivered for long enough. Pairs that are not in memory are not read: for a store
//! that fetches, the digest that it keeps of its pairs is hashed instead.

use xxhash_rust::xxh3::Xxh3;

use super::Machine;
use crate::command::{Key, Version};
use crate::store::Store;

/// A hash that is not complete yet.
#[derive(Clone, Default)]
pub struct Digesting {
    position: Version,
    next: Key,
    hash: Xxh3,
}

impl<S: Store> Machine<S> {
    /// A hash of keys, values, versions, sessions and the slot map, independent of how they came about. Reads
    /// the whole state in one call: for tests.
    ///
    /// # Errors
    /// The store has failed.
    pub fn digest(&self) -> Result<u64, S::Error> {
        let hash = self.go_on(&mut Digesting::default(), usize::MAX)?;
        Ok(hash.expect("this was all of it"))
    }

    /// Continues the hash over about `bytes` bytes. Returns it when it is complete, with the position of the
    /// state.
    ///
    /// # Errors
    /// The store has failed: the replica must stop.
    pub fn digest_part(
        &self,
        under_way: &mut Digesting,
        bytes: usize,
    ) -> Result<Option<(Version, u64)>, S::Error> {
        if !self.under_way.is_empty() {
            // Some delivered commands have taken effect, and some have not.
            *under_way = Digesting::default();
            return Ok(None);
        }
        let position = self.completed.position();
        if under_way.position != position {
            *under_way = Digesting { position, ..Digesting::default() };
        }
        Ok(self.go_on(under_way, bytes)?.map(|hash| (position, hash)))
    }

    fn go_on(&self, under_way: &mut Digesting, bytes: usize) -> Result<Option<u64>, S::Error> {
        let mut left = bytes;
        let from = std::mem::take(&mut under_way.next);
        let hash = &mut under_way.hash;
        let mut see = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        if S::FETCHES {
            // The store's own digest, of which every write has kept account, stands for what is not in memory.
            see(&self.store.digest().to_le_bytes());
            see(&self.store.bytes().to_le_bytes());
            see(&(self.store.len() as u64).to_le_bytes());
        }
        let pairs = (!S::FETCHES).then(|| self.store.range(&from, None));
        for pair in pairs.into_iter().flatten() {
            let (key, found) = pair?;
            if left == 0 {
                under_way.next = key.to_vec();
                return Ok(None);
            }
            see(&key);
            see(&found.value);
            see(&found.version.to_le_bytes());
            left = left.saturating_sub(key.len() + found.value.len() + size_of::<Version>());
        }
        self.sessions.visit(&mut see);
        see(&self.slots.digest().to_le_bytes());
        Ok(Some(hash.digest()))
    }
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;
    use skein_multicast::layout::Layout;
    use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

    use super::*;
    use crate::limits::Limits;
    use crate::machine::sessions;
    use crate::machine::under_way::{CommandPosition, Stage};
    use crate::slots::SlotMap;

    fn machine() -> Machine {
        let (replica, slots) = (ReplicaId::new(GroupId(0), 0), SlotMap::even(1));
        let layout =
            Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
        let mut machine = Machine::new(replica, &layout, slots, Limits::default());
        (1..=20).for_each(|key| deliver(&mut machine, key));
        machine
    }

    fn deliver(machine: &mut Machine, key: u8) {
        let position = machine.completed.position() + 1;
        let Ok(()) = machine.store.put(&[key], &[key; 3], position);
        let message = MessageId { session: SessionId(1), sequence: position };
        let destinations = GroupSet::first(1);
        machine.over(CommandPosition { message, position, low_water: 1, destinations });
    }

    fn to_the_end(machine: &Machine, under_way: &mut Digesting) -> (Version, u64) {
        let part = |_| machine.digest_part(under_way, 1).unwrap();
        (0..100).find_map(part).expect("there are 20 keys")
    }

    #[test]
    fn many_parts_are_one_digest() {
        let machine = machine();
        let whole = machine.digest().unwrap();
        assert_eq!(to_the_end(&machine, &mut Digesting::default()), (20, whole));
        let mut other = self::machine();
        let Ok(()) = other.store.put(&[20], &[0; 3], 20);
        assert_ne!(other.digest(), Ok(whole));
    }

    #[test]
    fn what_sessions_are_owed_shows_in_what_replicas_compare() {
        // The same commands were delivered and answered. One replica retains a different reply, or none.
        let compared = |kept: Option<&[u8]>| {
            let mut machine = machine();
            let message = |sequence| MessageId { session: SessionId(1), sequence };
            machine.sessions.open(message(1)).expect("there is room");
            if let Some(reply) = kept {
                machine.sessions.record(message(1), reply, sessions::sum(message(1), reply));
            }
            let place = CommandPosition {
                message: message(2),
                position: 21,
                low_water: 1,
                destinations: GroupSet::first(1),
            };
            machine.over(place);
            machine.digest_over()
        };
        assert_eq!(compared(Some(b"done")), compared(Some(b"done")));
        assert_ne!(compared(Some(b"done")), compared(Some(b"gone")));
        assert_ne!(compared(Some(b"done")), compared(None));
    }

    #[test]
    fn what_is_delivered_in_between_begins_it_again() {
        let mut machine = machine();
        let mut under_way = Digesting::default();
        for _ in 0..5 {
            assert_eq!(machine.digest_part(&mut under_way, 1), Ok(None));
        }
        deliver(&mut machine, 2);
        assert_eq!(to_the_end(&machine, &mut under_way), (21, machine.digest().unwrap()));
    }

    #[test]
    fn what_was_delivered_and_waits_for_others_is_waited_for() {
        let mut machine = machine();
        let place = CommandPosition {
            message: MessageId { session: SessionId(1), sequence: 1 },
            position: 20,
            low_water: 0,
            destinations: GroupSet::first(2),
        };
        let mut under_way = Digesting::default();
        assert_eq!(machine.digest_part(&mut under_way, 1), Ok(None));
        machine.under_way.push(place, Stage::Again);
        assert_eq!(machine.digest_part(&mut under_way, usize::MAX), Ok(None));
        // It takes effect at the position at which it was delivered.
        machine.under_way.pop_over();
        let Ok(()) = machine.store.put(&[1], &[9; 3], 20);
        assert_eq!(to_the_end(&machine, &mut under_way), (20, machine.digest().unwrap()));
    }
}
