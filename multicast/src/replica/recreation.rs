//! Recreation of a group that has lost more memories than it tolerates: from the state of a replica that has
//! one, or empty.
//!
//! **Invariant (all or none).** No replica gives up its state unless every running replica of its group has
//! confirmed that the group is lost. An operator asks all of them first; each keeps the plan for a while and
//! changes nothing else. Only a second command, with the token of the first, carries the plan out.

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::ReplicaId;
use skein_protocol::ordering::{Inspect as _, Revival};
use skein_protocol::view::View;

use super::Replica;
use crate::application::Application;
use crate::operate::{CommandError, PREPARED_FOR_MS, Recreation};
use crate::ordering::Links;
use crate::replica_links::{Note, ReplicaLinks};

/// Limits of a plan: a ballot keeps 24 bits of an incarnation, and many clocks must be left.
const INCARNATIONS: u32 = 1 << 24;
const CLOCKS: u64 = 1 << 53;

/// The plans of operators.
#[derive(Default)]
pub(super) struct Recreations {
    /// The plan that waits for its second phase.
    prepared: Option<Prepared>,
    /// The token of the last plan that was carried out, and the ballot in which the group resumed.
    recreated: Option<(u64, Ballot)>,
}

/// A plan that an operator has prepared and not confirmed yet.
struct Prepared {
    token: u64,
    plan: Recreation,
    until_ms: u64,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// First phase: refuses the plan, or keeps it for a while. Changes nothing else.
    pub(crate) fn prepare_recreate(
        &mut self,
        token: u64,
        plan: &Recreation,
    ) -> Result<(), CommandError> {
        if self.recreation.recreated.is_some_and(|(done, _)| done == token) {
            return Ok(());
        }
        self.recreation.prepared = None;
        // Nobody has led the group since an earlier attempt reached this replica and not all others.
        let unfinished =
            self.recreation.recreated.is_some_and(|(_, marker)| self.core.log().ballot() <= marker);
        // A learner cannot tell whether the group that has not admitted it ever will.
        let lost = self.is_lost() || self.core.log().is_silent() || self.is_stopped();
        if !lost && !unfinished {
            return Err(CommandError::NotLost(self.id.group));
        }
        if self.core.log().is_durable() {
            return Err(CommandError::Durable(self.id.group));
        }
        let Some(marker) = Ballot::recreated(plan.ballot_counter) else {
            return Err(CommandError::NoGenerationLeft(self.id.group));
        };
        if !self.fits(plan, marker) {
            return Err(CommandError::Outdated(self.id.group));
        }
        let serves = || self.is_trusted() && self.core.inspect().can_be_revived(plan.settled_clock);
        if plan.from == Some(self.id.slot) && !serves() {
            return Err(CommandError::NoSurvivor(self.id.group));
        }
        let until_ms = self.core.log().now_ms() + PREPARED_FOR_MS;
        self.recreation.prepared = Some(Prepared { token, plan: plan.clone(), until_ms });
        Ok(())
    }

    /// Returns whether the plan fits this group, and its ballots are above all that this replica has seen.
    fn fits(&self, plan: &Recreation, ballot_counter: u32) -> bool {
        let slots = self.topology.replicas;
        plan.incarnations.len() == usize::from(slots)
            && plan.incarnations[usize::from(self.id.slot)] == self.incarnation
            && plan.incarnations.iter().all(|incarnation| *incarnation < INCARNATIONS)
            && plan.from.is_none_or(|slot| slot < slots)
            && plan.clock < CLOCKS
            && self.core.log().inspect().ballot_counter() < ballot_counter
    }

    /// Second phase: carries the plan out.
    pub(crate) fn recreate<F: Fabric>(
        &mut self,
        token: u64,
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) -> Result<(), CommandError> {
        if self.recreation.recreated.is_some_and(|(done, _)| done == token) {
            return Ok(());
        }
        let now = self.core.log().now_ms();
        let prepared =
            self.recreation.prepared.take_if(|it| it.token == token && now <= it.until_ms);
        let Some(Prepared { plan, .. }) = prepared else {
            return Err(CommandError::NotPrepared(self.id.group));
        };
        let Recreation { from, incarnations, ballot_counter, clock, .. } = plan;
        let first = from.unwrap_or(0);
        let incarnation = incarnations[usize::from(first)];
        let marker =
            Ballot::revived(ballot_counter, first, incarnation).expect("a generation is left");
        self.recreation.recreated = Some((token, marker));
        if from.is_some() && self.core.log().promised() >= marker {
            return Ok(()); // It received the survivor's state before it received this command.
        }
        self.forget_followers();
        self.forget_transfers(links);
        self.close_log(links);
        let view = View::of(incarnations);
        match from {
            None => self.begin_empty(view, ballot_counter, clock, links, fresh),
            Some(slot) if slot == self.id.slot => {
                tracing::info!(replica = %self.id, end = self.core.log().last_index(), "its group resumes from its log");
                self.core.revive(marker, Revival::Survivor { view, clock });
            }
            Some(_) => self.core.revive(marker, Revival::Other),
        }
        if from.is_some() {
            links.note(|| Note::Promised { by: self.id, ballot: marker, granted: false });
        }
        Ok(())
    }

    fn begin_empty<F: Fabric>(
        &mut self,
        view: View,
        ballot_counter: u32,
        clock: u64,
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) {
        let core = self.core.anew(view, ballot_counter, clock);
        self.begin_at(core, fresh(self.id), Runs::EMPTY, links);
        self.state_is_new(true);
        self.forget_shared_state();
        links.forget_words(self.id);
        links.note_restored(self.id, 0);
    }

    /// Forgets results and payloads that concern other groups and sessions.
    fn forget_shared_state(&mut self) {
        self.exchange.forget();
        self.applied_told = None;
        self.payloads.retain_all(|_| false);
        self.payloads.retain_hints(|_| false);
    }
}
