//! The settings of a run, derived from its report: a line may connect two runs along a setting only
//! if they differ in nothing else.
//!
//! Seed and date are not settings: runs that differ only in these are repetitions. An option of the
//! command line without a field in the report, such as `--distribution uniform`, is taken from the
//! command.

use std::collections::BTreeMap;

use skein_checker::chart::{grouped, whole};

use crate::options::options;
use crate::source::{Multicast, Source, Store, What};
use skein_workloads::neighbours::Neighbours;

/// The settings, in the order of a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    Workload,
    /// What orders messages, and along which tree.
    Order,
    Destinations,
    /// The tree in which destinations are adjacent.
    Adjacent,
    Groups,
    Replicas,
    Payload,
    Records,
    ReadMode,
    Durability,
    /// Whether the loop is open or closed.
    Loop,
    Clients,
    Window,
    Sessions,
    Rate,
    Idle,
    Neighbours,
    NeighbourKind,
    Options,
    Nodes,
    Engines,
    Placement,
    Fabric,
    Waiting,
    Duration,
    WarmUp,
    /// Whether the run completed.
    Ended,
    Skein,
    Machine,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// With its unit.
    pub(crate) words: String,
    /// Its position along a line; 0 if it is not a number.
    pub(crate) number: f64,
}

/// Settings of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings(BTreeMap<Setting, Value>);

impl Settings {
    pub(crate) fn get(&self, setting: Setting) -> Option<&Value> {
        self.0.get(&setting)
    }

    /// The number of a setting; 0 if it is not set.
    pub(crate) fn number(&self, setting: Setting) -> f64 {
        self.get(setting).map_or(0.0, |value| value.number)
    }

    pub(crate) fn set(&mut self, setting: Setting, words: String, number: f64) {
        self.0.insert(setting, Value { words, number });
    }

    /// All settings but one.
    #[must_use]
    pub(crate) fn without(&self, setting: Setting) -> Self {
        let mut rest = self.clone();
        rest.0.remove(&setting);
        rest
    }

    /// A text that is equal for equal settings only.
    pub(crate) fn key(&self) -> String {
        let all = self.0.iter().map(|(setting, value)| format!("{setting:?}={}", value.words));
        all.collect::<Vec<_>>().join("; ")
    }

    /// Sort key of settings: by number, then by words.
    pub(crate) fn order(&self) -> Vec<(Setting, u64, String)> {
        // The bits of non-negative numbers are ordered like the numbers.
        let of = |value: &Value| (value.number.max(0.0).to_bits(), value.words.clone());
        let all = self.0.iter().map(|(setting, value)| (*setting, of(value)));
        all.map(|(setting, (bits, words))| (setting, bits, words)).collect()
    }

    /// The settings that `told` selects, in words.
    pub(crate) fn words(&self, told: impl Fn(Setting) -> bool) -> String {
        let all = self.0.iter().filter(|(setting, _)| told(**setting));
        all.map(|(_, value)| value.words.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The settings in which not all of these agree.
pub(crate) fn differing(all: &[&Settings]) -> Vec<Setting> {
    let mut found: Vec<Setting> = all
        .iter()
        .flat_map(|settings| settings.0.keys().copied())
        .filter(|setting| {
            let of = |settings: &&Settings| settings.get(*setting).map(|value| value.words.clone());
            all.iter().any(|settings| of(settings) != all.first().and_then(of))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// `1 client`, `2 clients`.
pub(crate) fn counted(number: usize, of: &str) -> String {
    format!("{} {of}{}", grouped(number as u64), if number == 1 { "" } else { "s" })
}

impl Source {
    /// The settings of the run.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        let topology = self.topology();
        let mut count = |setting, number: u16, of: &str| {
            settings.set(setting, counted(number.into(), of), f64::from(number));
        };
        count(Setting::Groups, topology.groups, "group");
        count(Setting::Replicas, topology.replicas.into(), "replica");
        count(Setting::Nodes, topology.nodes, "node");
        // On simulated hosts of their own, replicas have as many engines as there are groups.
        if !self.is_simulated() || topology.engines != topology.groups {
            count(Setting::Engines, topology.engines, "engine thread");
        }
        let mut text = |setting, words: String| settings.set(setting, words, 0.0);
        text(Setting::Skein, format!("Skein {}", self.skein));
        // A simulation has the same result on every machine.
        if !self.is_simulated() {
            text(Setting::Machine, format!("{}, {} cores", self.machine.model, self.machine.cores));
        }
        if let Some(why) = &self.ended_early {
            text(Setting::Ended, format!("ended early ({why})"));
        }
        if let Some(options) = self.told().map(options).filter(|options| !options.is_empty()) {
            text(Setting::Options, options);
        }
        let mut seconds = |setting, seconds: Option<f64>, words: &str| {
            if let Some(seconds) = seconds {
                settings.set(setting, format!("{} s {words}", two_digits(seconds)), seconds);
            }
        };
        seconds(Setting::Duration, self.duration_s, "measured");
        seconds(Setting::WarmUp, self.warmup_s, "of warm-up");
        match &self.what {
            What::Multicast(multicast) => of_multicast(&mut settings, multicast),
            What::Store(store) => of_store(&mut settings, store),
            What::Chaos(_) | What::Idle(_) | What::Peers(_) => {}
        }
        settings
    }
}

fn of_multicast(settings: &mut Settings, multicast: &Multicast) {
    let Multicast { placement, fabric, waiting, destinations, payload_bytes, .. } = multicast;
    let mut text = |setting, words: &str| settings.set(setting, words.to_owned(), 0.0);
    let on = multicast.hardware.as_ref().map(|hardware| format!("{placement} on {hardware}"));
    text(Setting::Placement, on.as_ref().unwrap_or(placement));
    text(Setting::Fabric, fabric);
    text(Setting::Waiting, &format!("{waiting} waiting"));
    text(Setting::Order, &multicast.order_words());
    if let Some(words) = multicast.adjacent_words() {
        text(Setting::Adjacent, &words);
    }
    let to = counted((*destinations).into(), "group");
    settings.set(Setting::Destinations, format!("to {to}"), f64::from(*destinations));
    let bytes = format!("{} B", grouped(*payload_bytes as u64));
    settings.set(Setting::Payload, bytes, *payload_bytes as f64);
    let in_flight = format!("{} in flight each", multicast.window);
    settings.set(Setting::Window, in_flight, multicast.window as f64);
    if multicast.idle > 0 {
        let idle = format!("beside {}", counted(multicast.idle, "idle session"));
        settings.set(Setting::Idle, idle, multicast.idle as f64);
    }
    of_load(settings, multicast.clients, multicast.rate, multicast.neighbours);
}

fn of_store(settings: &mut Settings, store: &Store) {
    settings.set(Setting::Workload, store.workload.clone(), 0.0);
    let records = format!("{} records", grouped(store.records));
    settings.set(Setting::Records, records, store.records as f64);
    if let Some(mode) = &store.read_mode {
        settings.set(Setting::ReadMode, format!("{mode} reads"), 0.0);
    }
    settings.set(Setting::Durability, format!("durability {}", store.durability), 0.0);
    if let Some(sessions) = store.shared() {
        let shared = format!("sharing {}", counted(sessions, "session"));
        settings.set(Setting::Sessions, shared, sessions as f64);
    }
    of_load(settings, store.clients, store.rate, store.neighbours);
}

fn of_load(
    settings: &mut Settings,
    clients: usize,
    rate: Option<f64>,
    neighbours: Option<Neighbours>,
) {
    settings.set(Setting::Clients, counted(clients, "client"), clients as f64);
    let kind = if rate.is_some() { "open loop" } else { "closed loop" };
    settings.set(Setting::Loop, kind.to_owned(), 0.0);
    if let Some(rate) = rate {
        settings.set(Setting::Rate, format!("{} due/s", grouped(whole(rate))), rate);
    }
    if let Some(neighbours) = neighbours {
        let count = usize::from(neighbours.count);
        settings.set(
            Setting::Neighbours,
            format!("beside {}", counted(count, "neighbour")),
            f64::from(neighbours.count),
        );
        settings.set(Setting::NeighbourKind, neighbours.kind(), 0.0);
    }
}

/// A number rounded to two digits: runs of 2.003 s and of 2 s were meant to be equally long.
fn two_digits(number: f64) -> f64 {
    if number <= 0.0 || !number.is_finite() {
        return 0.0;
    }
    let digits = 1 - number.log10().floor() as i32;
    let unit = 10_f64.powi(digits.abs());
    if digits >= 0 { (number * unit).round() / unit } else { (number / unit).round() * unit }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is compared is exact")]
mod tests {
    use super::*;

    #[test]
    fn runs_that_were_meant_to_be_equally_long_are() {
        for (number, wanted) in
            [(2.003, 2.0), (0.5, 0.5), (9.98, 10.0), (59.7, 60.0), (604.0, 600.0), (0.0, 0.0)]
        {
            assert_eq!(two_digits(number), wanted);
        }
    }

    #[test]
    fn only_what_differs_is_told() {
        let of = |clients: usize, workload: &str| {
            let mut settings = Settings::default();
            settings.set(Setting::Workload, workload.to_owned(), 0.0);
            settings.set(Setting::Clients, counted(clients, "client"), clients as f64);
            settings
        };
        let (one, two) = (of(1, "bank"), of(2, "bank"));
        let differ = differing(&[&one, &two]);
        assert_eq!(differ, [Setting::Clients]);
        assert_eq!(two.words(|setting| differ.contains(&setting)), "2 clients");
        assert_eq!(one.words(|setting| !differ.contains(&setting)), "bank");
        let shorter = one.without(Setting::Workload);
        assert_eq!(differing(&[&one, &shorter]), [Setting::Workload], "set for one of them only");
        assert!(differing(&[]).is_empty() && differing(&[&one]).is_empty());
        assert_eq!(one.without(Setting::Clients).key(), two.without(Setting::Clients).key());
        assert_ne!(one.key(), two.key());
    }
}
