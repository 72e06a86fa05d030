//! What is left out of a seed's scenario, so that a minimised failure can be run again.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{Profile, Scenario};

/// The reduction of a seed's scenario. Its text is one word, such as
/// `faults=2+5,halved=3,clients=1x2,smooth,schedule=1`; an empty text leaves nothing out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// Numbers of the faults that remain, if some are left out.
    pub(super) faults: Option<BTreeSet<usize>>,
    /// Number of times that the number of messages was halved.
    pub(super) halvings: u32,
    /// Client processes and sessions in each, if there are fewer.
    pub(super) clients: Option<(usize, usize)>,
    /// Sessions stay open.
    pub(super) stay_open: bool,
    /// The world is not rough.
    pub(super) smooth: bool,
    /// Number of the schedule, of those that the scenario may lead to.
    pub(super) schedule: u64,
}

/// The text is not a reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedReduction(String);

impl Scenario {
    /// The reduced scenario of a seed.
    pub fn reduced(seed: u64, profile: Profile, reduction: &Reduction) -> Self {
        let mut scenario = Self::draw(seed, profile);
        let Reduction { halvings, clients, .. } = *reduction;
        scenario.messages = scenario.messages.unbounded_shr(halvings);
        let (processes, sessions) = clients.unwrap_or(scenario.clients);
        scenario.clients.0 = processes.clamp(1, scenario.clients.0);
        scenario.clients.1 = sessions.clamp(1, scenario.clients.1);
        scenario.rough &= !reduction.smooth;
        scenario.reopen_at = scenario.reopen_at.filter(|_| !reduction.stay_open);
        let mut left = scenario.faults_left();
        left.retain(|number| reduction.faults.as_ref().is_none_or(|left| left.contains(number)));
        let processes = scenario.clients.0;
        left.retain(|number| {
            scenario.faults[*number].client().is_none_or(|client| client < processes)
        });
        let mut faults: Vec<_> =
            left.iter().map(|number| scenario.faults[*number].clone()).collect();
        for fault in &mut faults {
            fault.after = fault.after.unbounded_shr(halvings);
        }
        scenario.reduction = reduction.clone();
        if left.len() < scenario.faults.len() {
            scenario.reduction.faults = Some(left);
        }
        scenario.faults = faults;
        scenario
    }

    /// The faults that remain, by their numbers among all that were drawn.
    pub(super) fn faults_left(&self) -> BTreeSet<usize> {
        self.reduction.faults.clone().unwrap_or_else(|| (0..self.faults.len()).collect())
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.as_ref().map(|left| {
            let numbers: Vec<_> = left.iter().map(ToString::to_string).collect();
            let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join("+") };
            format!("faults={numbers}")
        });
        let parts = [
            faults,
            (self.halvings > 0).then(|| format!("halved={}", self.halvings)),
            self.clients.map(|(processes, sessions)| format!("clients={processes}x{sessions}")),
            self.stay_open.then(|| "stay-open".to_owned()),
            self.smooth.then(|| "smooth".to_owned()),
            (self.schedule > 0).then(|| format!("schedule={}", self.schedule)),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Reduction {
    type Err = MalformedReduction;

    fn from_str(text: &str) -> Result<Self, MalformedReduction> {
        let mut reduction = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            reduction.take(part).ok_or_else(|| MalformedReduction(part.to_owned()))?;
        }
        Ok(reduction)
    }
}

impl Reduction {
    /// Parses one part of a reduction's text.
    fn take(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "faults" if value == "none" => self.faults = Some(BTreeSet::new()),
            "faults" => {
                let numbers = value.split('+').map(|number| number.parse().ok());
                self.faults = Some(numbers.collect::<Option<_>>()?);
            }
            "halved" => self.halvings = value.parse().ok()?,
            "clients" => {
                let (processes, sessions) = value.split_once('x')?;
                self.clients = Some((processes.parse().ok()?, sessions.parse().ok()?));
            }
            "stay-open" if value.is_empty() => self.stay_open = true,
            "smooth" if value.is_empty() => self.smooth = true,
            "schedule" => self.schedule = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for MalformedReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} leaves nothing out: say what a failing seed's replay line says, such as \
            faults=2+5,halved=3,clients=1x2,stay-open,smooth,schedule=1",
            self.0
        )
    }
}

impl std::error::Error for MalformedReduction {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_is_what_its_text_says() {
        let texts = [
            "",
            "faults=none",
            "faults=2+5,halved=3,clients=1x2,stay-open,smooth,schedule=1",
            "halved=200",
        ];
        for text in texts {
            let reduction: Reduction = text.parse().unwrap();
            assert_eq!(reduction.to_string(), text);
            let scenario = Scenario::reduced(9, Profile::ALL[0], &reduction);
            assert_eq!(Scenario::reduced(9, Profile::ALL[0], &scenario.reduction), scenario);
        }
        for text in
            ["faults", "faults=", "faults=1+", "halved=-1", "clients=2", "smooth=1", "rough"]
        {
            assert!(text.parse::<Reduction>().is_err(), "{text}");
        }
        let whole = Scenario::reduced(9, Profile::ALL[0], &Reduction::default());
        assert_eq!(whole, Scenario::draw(9, Profile::ALL[0]), "nothing is left out");
    }
}
