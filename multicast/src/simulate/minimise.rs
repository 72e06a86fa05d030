//! Makes a failure small: leaves out one fault after the other, messages and clients, as long as the
//! same property breaks.

use std::time::{Duration, Instant};

use super::{Failure, Scenario, run_scenario};

/// Schedules that are tried before a scenario is held to be harmless: leaving something out changes
/// everything that is drawn after it.
const SCHEDULES: u64 = 4;

impl Failure {
    /// The smallest scenario found within `patience` that breaks the same property, with its trace.
    #[must_use]
    pub fn minimised(self, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        let mut smallest = self;
        while let Some(smaller) = smallest.smaller(until) {
            smallest = smaller;
        }
        match run_scenario(&smallest.scenario, true) {
            Err(traced) if traced.violation == smallest.violation => *traced,
            _ => smallest,
        }
    }

    /// One that leaves something out and breaks the same property, if there is one.
    fn smaller(&self, until: Instant) -> Option<Self> {
        let candidates = smaller_scenarios(&self.scenario);
        candidates
            .flat_map(|scenario| {
                (0..SCHEDULES).map(move |schedule| Scenario { schedule, ..scenario.clone() })
            })
            .take_while(|_| Instant::now() < until)
            .find_map(|scenario| {
                let failure = run_scenario(&scenario, false).err()?;
                (failure.violation.property == self.violation.property).then_some(*failure)
            })
    }
}

/// What leaves something out: half of the faults first, then each; then messages and clients.
fn smaller_scenarios(whole: &Scenario) -> impl Iterator<Item = Scenario> {
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = whole.clone();
        change(&mut scenario);
        scenario
    };
    let count = whole.faults.len();
    let mut smaller = Vec::new();
    if count > 2 {
        smaller.push(with(&|it| it.faults.truncate(count / 2)));
        smaller.push(with(&|it| _ = it.faults.drain(..count / 2)));
    }
    smaller.extend((0..count).map(|i| with(&|it| _ = it.faults.remove(i))));
    if whole.reopen_at.is_some() {
        smaller.push(with(&|it| it.reopen_at = None));
    }
    if whole.rough {
        smaller.push(with(&|it| it.rough = false));
    }
    if whole.messages > 8 {
        smaller.push(with(&|it| {
            it.messages /= 2;
            for fault in &mut it.faults {
                fault.after /= 2;
            }
        }));
    }
    let (processes, sessions) = whole.clients;
    if processes > 1 {
        smaller.push(with(&|it| {
            it.clients.0 = processes - 1;
            it.faults.retain(|fault| fault.client().is_none_or(|client| client < processes - 1));
        }));
    }
    if sessions > 1 {
        smaller.push(with(&|it| it.clients.1 = sessions - 1));
    }
    smaller.into_iter()
}
