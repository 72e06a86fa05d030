//! Minimises a failure: leaves out faults, messages and clients one after the other, as long as the same
//! property breaks.

use std::time::{Duration, Instant};

use super::{Failure, Profile, Reduction, Scenario, run_scenario};

/// Schedules that are tried before a scenario counts as harmless: leaving something out changes everything
/// that is drawn after it.
const SCHEDULES: u64 = 4;
/// Number of messages that is not halved any more.
const MESSAGES_MIN: u64 = 8;

impl Failure {
    /// The smallest scenario found within `limit` that breaks the same property, with its trace.
    #[must_use]
    pub fn minimised(self, limit: Duration) -> Self {
        let until = Instant::now() + limit;
        let mut smallest = self;
        while let Some(smaller) = smallest.smaller(until) {
            smallest = smaller;
        }
        match run_scenario(&smallest.scenario, true) {
            Err(traced) if traced.violation == smallest.violation => *traced,
            _ => smallest,
        }
    }

    /// A failure with something left out that breaks the same property, if there is one.
    fn smaller(&self, until: Instant) -> Option<Self> {
        let Scenario { seed, profile, ordering, .. } = self.scenario;
        let profile = Profile::named(profile)?.ordered_by(ordering)?;
        let candidates = smaller_reductions(&self.scenario).into_iter();
        candidates
            .flat_map(|it| (0..SCHEDULES).map(move |schedule| Reduction { schedule, ..it.clone() }))
            .take_while(|_| Instant::now() < until)
            .find_map(|reduction| {
                let scenario = Scenario::reduced(seed, profile, &reduction);
                let failure = run_scenario(&scenario, false).err()?;
                (failure.violation.property == self.violation.property).then_some(*failure)
            })
    }
}

/// Reductions that leave out something more: half of the faults first, then single ones; then messages and clients.
fn smaller_reductions(scenario: &Scenario) -> Vec<Reduction> {
    let now = &scenario.reduction;
    let left = scenario.faults_left();
    let mut smaller = Vec::new();
    if left.len() > 2 {
        let halves = [
            left.iter().copied().take(left.len() / 2).collect(),
            left.iter().copied().skip(left.len() / 2).collect(),
        ];
        smaller.extend(halves.map(|half| Reduction { faults: Some(half), ..now.clone() }));
    }
    smaller.extend(left.iter().map(|out| {
        let rest = left.iter().copied().filter(|number| number != out).collect();
        Reduction { faults: Some(rest), ..now.clone() }
    }));
    if scenario.reopen_at.is_some() {
        smaller.push(Reduction { stay_open: true, ..now.clone() });
    }
    if scenario.rough {
        smaller.push(Reduction { smooth: true, ..now.clone() });
    }
    if scenario.messages > MESSAGES_MIN {
        smaller.push(Reduction { halvings: now.halvings + 1, ..now.clone() });
    }
    let (processes, sessions) = scenario.clients;
    if processes > 1 {
        smaller.push(Reduction { clients: Some((processes - 1, sessions)), ..now.clone() });
    }
    if sessions > 1 {
        smaller.push(Reduction { clients: Some((processes, sessions - 1)), ..now.clone() });
    }
    smaller
}
