//! Uniform prefix and acyclic order. (RamCast, section 2.2.)
//!
//! A rank for each message, equal at all groups and rising in every group's deliveries, proves that all deliveries
//! together have no cycle. A comparison of replicas in pairs would miss a cycle through three groups. If ranks differ
//! from group to group, the check of real time finds a cycle at the end of the history. Prefix order
//! within a group is stronger here than in the paper: all its replicas, in all their incarnations, deliver the same
//! message under the same number, without a gap.

use alloc::format;

use super::{History, Violation};
use crate::ids::ReplicaId;
use crate::step::Deliver;

/// Checks every delivery.
pub(super) fn check(history: &History, by: ReplicaId, deliver: &Deliver) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "order", evidence });
    let Deliver { message, rank, position, .. } = *deliver;
    let reached = history.reached.get(&by).copied().unwrap_or(0);
    if position != reached + 1 {
        return violated(format!("{by} delivered {message} as number {position} after {reached}"));
    }
    let compares = history.tree.is_none() && !history.is_lost(message);
    let known = history.finals.get(&message).filter(|_| compares);
    if let Some((other, known)) = known.filter(|(_, known)| *known != rank) {
        return violated(format!(
            "{message} is final at {rank} for {by} and at {known} for {other}"
        ));
    }
    let sequence = history.sequences.get(&by.group).map_or(&[][..], |sequence| sequence);
    let known = sequence.get(reached as usize);
    if let Some(known) = known.filter(|known| *known != deliver) {
        let other = known.message;
        return violated(format!(
            "delivery {position} is {message} at {by}, and {other} at others of its group; {deliver:?} {known:?}"
        ));
    }
    let before = reached.checked_sub(1).and_then(|i| sequence.get(i as usize));
    if let Some(before) = before.filter(|before| before.rank >= rank) {
        return violated(format!(
            "{by} delivered {} at {} and then {message} at {rank}",
            before.message, before.rank
        ));
    }
    Ok(())
}

/// Checks every state that a replica receives: the group must have made the deliveries in it.
pub(super) fn check_beginning(
    history: &History,
    replica: ReplicaId,
    reached: u64,
) -> Result<(), Violation> {
    let known = history.deliveries_of(replica.group);
    if reached <= known {
        return Ok(());
    }
    let evidence = format!(
        "{replica} received a state of {reached} deliveries, but its group has made {known}"
    );
    Err(Violation { property: "order", evidence })
}
