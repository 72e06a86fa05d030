//! Recreating a lost group from the log of a survivor.
//!
//! More memories of a group are lost than it tolerates, so it cannot be determined what the group had acknowledged: a
//! quorum that does not contain the survivor may have committed more. An operator declares the survivor's log to be all
//! that was committed, and declares a view in which the replicas that lost their memory count in their present
//! incarnations.
//!
//! **Invariant (no replica counts without the state).** All this happens in a ballot of a new generation, the *marker*,
//! which every replica of the group promises: no leader of an earlier generation writes a log any more. The survivor
//! [goes on](crate::ordering::Revival::Survivor) with its whole log committed, and sends its state. Every other replica
//! is blank or [suspended](crate::ordering::Revival::Other), and neither grants nor acknowledges anything until it has
//! restored a state of that generation. So the first leader is elected by f+1 replicas that each hold all that the
//! survivor held, and from there on the group is like any other. A suspended replica keeps its own state until then: if
//! the survivor is lost meanwhile, the operator can begin with another.

use super::Ramcast;
use super::saved::VERSION;
use crate::ballot::Ballot;
use crate::bytes::Reader;

impl Ramcast {
    /// The ballot of the leader that has [saved](Self::save_order) a state. `None` if the state is malformed.
    pub(super) fn saved_in(&self, saved: &[u8]) -> Option<Ballot> {
        let mut from = Reader(saved);
        if from.u8()? != VERSION {
            return None;
        }
        for _ in 0..4 {
            from.u64()?;
        }
        for _ in 0..self.config.group.replicas {
            from.u32()?;
            from.u8()?;
        }
        for _ in 0..self.group().index() {
            from.u64()?;
        }
        from.u64().map(Ballot::from_word)
    }
}
