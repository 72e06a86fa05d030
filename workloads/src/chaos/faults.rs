//! Injects faults one after the other, and waits for the cluster to recover.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use skein_checker::history::{Fault as Noted, Record, Recorder, Scribe, now};
use skein_multicast::layout::Layout;
use skein_multicast::protocol::ids::GroupId;
use skein_node::admin::Action;
use skein_node::nodes::SignalError;
use skein_node::supervise::Supervisor;

use super::clients::{ClientError, Clients};
use super::hosts::{Hosts, HostsError};
use super::processes::{Processes, Seen};
use super::report::Injected;
use super::run::End;
use super::schedule::{Fault, Kind, Moment, Outage, Parting, Schedule};
use super::with_causes;

const TICK: Duration = Duration::from_millis(5);
/// Interval of status requests, and the delay after a fault, because the answers take processor
/// time from the recovery.
const CHECK_EVERY: Duration = Duration::from_millis(25);
const LOOK_AFTER: Duration = Duration::from_millis(150);
/// How long a cluster may take to recover after the last fault, and how long after an interrupt.
const WELL_WITHIN: Duration = Duration::from_mins(2);
const WELL_IN_A_HURRY: Duration = Duration::from_secs(10);

/// The injector of faults.
pub(super) struct Chaos<'a> {
    pub(super) processes: Processes,
    pub(super) schedule: Schedule,
    pub(super) clients: Clients<'a>,
    pub(super) recorder: &'a Recorder,
    pub(super) scribe: Scribe,
    pub(super) layout: Layout,
    pub(super) stop_max: Duration,
    pub(super) done: Vec<Injected>,
    /// The nodes' hosts, if partitions are possible.
    pub(super) hosts: Option<&'a Hosts>,
    /// What starts the nodes, if they can lose their power.
    pub(super) supervisor: Option<&'a Supervisor>,
    away: BTreeMap<u16, Away>,
    problems: Vec<String>,
    looked: Option<Instant>,
}

/// A node that is not well.
struct Away {
    /// Index in `done` of the fault that caused it.
    fault: usize,
    /// The process that must be gone first.
    killed: Option<u32>,
    /// When a stopped node continues, or a partition is mended.
    until: Option<Instant>,
    /// The partition that it is in.
    parting: Option<Parting>,
    /// Its data is gone.
    without_data: bool,
}

impl Away {
    /// Not well because of this fault.
    fn of(fault: usize) -> Self {
        Self { fault, killed: None, until: None, parting: None, without_data: false }
    }
}

/// Reasons for which a fault was not injected.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum FaultError {
    Signal(#[from] SignalError),
    Hosts(#[from] HostsError),
    Client(#[from] ClientError),
    Data(#[from] io::Error),
}

impl<'a> Chaos<'a> {
    pub(super) fn new(
        processes: Processes,
        schedule: Schedule,
        clients: Clients<'a>,
        recorder: &'a Recorder,
        layout: Layout,
        stop_max: Duration,
    ) -> Self {
        Self {
            processes,
            schedule,
            clients,
            scribe: recorder.scribe(),
            recorder,
            layout,
            stop_max,
            done: Vec::new(),
            hosts: None,
            supervisor: None,
            away: BTreeMap::new(),
            problems: Vec::new(),
            looked: None,
        }
    }

    /// Injects faults until `end`. `watch` receives the faults so far, and returns false to end
    /// early.
    pub(super) fn run(&mut self, end: End, watch: &mut dyn FnMut(&[Injected]) -> bool) {
        let began = Instant::now();
        let mut next = began + self.schedule.gap();
        loop {
            let kills = |fault: &&Injected| Kind::named(fault.what).is_some_and(Kind::kills);
            let kills = self.done.iter().filter(kills).count();
            let over = match end {
                End::After(time) => began.elapsed() >= time,
                End::Kills(wanted) => kills >= wanted,
                End::Faults(wanted) => self.done.len() >= wanted,
            };
            if over || !watch(&self.done) {
                return;
            }
            thread::sleep(TICK);
            self.tend();
            if Instant::now() >= next && self.one_more() {
                next = Instant::now() + self.schedule.gap();
            }
        }
    }

    /// Injects no more faults and waits until all nodes are well, for a shorter time if `watch`
    /// returns false. Returns the problems.
    pub(super) fn heal(&mut self, watch: &mut dyn FnMut(&[Injected]) -> bool) -> Vec<String> {
        let since = Instant::now();
        for away in self.away.values_mut() {
            away.until = away.until.map(|_| Instant::now());
        }
        while !self.away.is_empty() {
            let within = if watch(&self.done) { WELL_WITHIN } else { WELL_IN_A_HURRY };
            if since.elapsed() >= within {
                let nodes: Vec<_> = self.away.keys().map(u16::to_string).collect();
                self.problems.push(format!(
                    "not all replicas of node {} were followers again {} s after the last fault",
                    nodes.join(", "),
                    within.as_secs(),
                ));
                break;
            }
            thread::sleep(TICK);
            self.tend();
        }
        std::mem::take(&mut self.problems)
    }

    /// Draws a fault, and injects it if the cluster tolerates it now.
    fn one_more(&mut self) -> bool {
        let seen = self.processes.look();
        let away: BTreeSet<u16> = self.away.keys().copied().collect();
        let mut view = seen.view(self.layout.topology(), &away);
        let without_data = self.away.iter().filter(|(_, away)| away.without_data);
        view.without_data = without_data.map(|(node, _)| *node).collect();
        let Some(fault) = self.schedule.next(&view, self.stop_max) else { return false };
        let done = match fault {
            Fault::Kill(nodes) => self.signal_nodes("kill", Signal::KILL, &nodes, &seen, None),
            Fault::Restart(node) => {
                self.signal_nodes("restart", Signal::TERM, &[node], &seen, None)
            }
            Fault::Stop(node, time) => {
                self.signal_nodes("stop", Signal::STOP, &[node], &seen, Some(time))
            }
            Fault::Stutter(node, moments) => self.stutter(node, &moments, &seen),
            Fault::Pause(paused) => self.pause(&paused, &seen),
            Fault::Transfer(node, group) => {
                self.transfer(node, group, &seen);
                Ok(())
            }
            Fault::Evict(node, group) => {
                self.evict(node, group, &seen);
                Ok(())
            }
            Fault::ClientKill => self.kill_a_client(),
            Fault::Partition(node, parting, time) => self.part(node, parting, time, &seen),
            Fault::Power(outage) => self.lose_power(&outage, &seen),
            Fault::DiskLoss(node) => self.lose_disk(node, &seen),
        };
        if let Err(error) = done {
            self.problems.push(with_causes(&error));
        }
        self.looked = Some(Instant::now() + LOOK_AFTER);
        true
    }

    fn signal_nodes(
        &mut self,
        what: &'static str,
        signal: Signal,
        nodes: &[u16],
        seen: &Seen,
        time: Option<Duration>,
    ) -> Result<(), FaultError> {
        let pids: Vec<_> = nodes.iter().map(|node| self.processes.pid(*node)).collect();
        let t = self.processes.signal(nodes, signal)?;
        let mut led_by_all = Vec::new();
        for (node, pid) in nodes.iter().zip(pids) {
            let led = seen.led_by(*node);
            led_by_all.extend(&led);
            self.note(Noted { t, what: what.to_owned(), node: Some(*node), pid, led });
            let killed = pid.filter(|_| time.is_none());
            let until = time.map(|time| Instant::now() + time);
            let away = Away { killed, until, ..Away::of(self.done.len()) };
            self.away.insert(*node, away);
        }
        let nodes = nodes.to_vec();
        self.done.push(Injected { t, what, nodes, led: led_by_all, on: t, recovered: None });
        Ok(())
    }

    /// All nodes lose their power, and have it again one after the other. Returns when the last one has been started.
    fn lose_power(&mut self, outage: &Outage, seen: &Seen) -> Result<(), FaultError> {
        let supervisor = self.supervisor.expect("power is asked for only where it can be cut");
        let Outage { lasts, starts, loses } = outage;
        supervisor.hold();
        let (t, pids) = self.processes.kill_all()?;
        let (what, fault) = ("power", self.done.len());
        for (node, pid) in (0..).zip(pids) {
            let led = seen.led_by(node);
            self.note(Noted { t, what: what.to_owned(), node: Some(node), pid, led });
            let away = Away { killed: pid, ..Away::of(fault) };
            // A partition outlasts it.
            let before = self.away.remove(&node).filter(|before| before.parting.is_some());
            let cut = before.map_or((None, None), |before| (before.parting, before.until));
            self.away.insert(node, Away { parting: cut.0, until: cut.1, ..away });
        }
        let emptied = loses.map_or(Ok(()), |node| self.empty(node));
        thread::sleep(*lasts);
        let on = now();
        for (node, after) in starts {
            thread::sleep(*after);
            supervisor.start_node(*node);
        }
        supervisor.restart();
        let nodes = starts.iter().map(|(node, _)| *node).collect();
        let led = (0..self.layout.topology().groups).collect();
        self.done.push(Injected { t, what, nodes, led, on, recovered: None });
        emptied
    }

    fn lose_disk(&mut self, node: u16, seen: &Seen) -> Result<(), FaultError> {
        let supervisor = self.supervisor.expect("disks are lost only where nodes can be held");
        supervisor.hold();
        let done = self.signal_nodes("disk-loss", Signal::KILL, &[node], seen, None);
        let emptied = done.and_then(|()| {
            self.processes.await_end(node);
            self.empty(node)
        });
        supervisor.restart();
        emptied
    }

    /// Removes the data of a node that does not run.
    fn empty(&mut self, node: u16) -> Result<(), FaultError> {
        self.away.entry(node).and_modify(|away| away.without_data = true);
        Ok(self.processes.remove_data(node)?)
    }

    /// The last stop is handled like a fault of its own kind.
    fn stutter(&mut self, node: u16, moments: &[Moment], seen: &Seen) -> Result<(), FaultError> {
        let Some((last, moments)) = moments.split_last() else { return Ok(()) };
        for Moment { stopped, goes_on } in moments {
            self.processes.signal(&[node], Signal::STOP)?;
            thread::sleep(*stopped);
            self.processes.signal(&[node], Signal::CONT)?;
            thread::sleep(*goes_on);
        }
        self.signal_nodes("stutter", Signal::STOP, &[node], seen, Some(last.stopped))
    }

    /// All nodes are stopped before the first continues.
    fn pause(&mut self, paused: &[(u16, Duration)], seen: &Seen) -> Result<(), FaultError> {
        let nodes: Vec<u16> = paused.iter().map(|(node, _)| *node).collect();
        self.signal_nodes("pause", Signal::STOP, &nodes, seen, Some(Duration::ZERO))?;
        for (node, time) in paused {
            let until = Some(Instant::now() + *time);
            self.away.entry(*node).and_modify(|away| away.until = until);
        }
        Ok(())
    }

    /// A transfer may fail without being a problem: the replica may lag, or its leader may be gone.
    fn transfer(&mut self, node: u16, group: GroupId, seen: &Seen) {
        let t = now();
        self.processes.tell(node, Action::Lead { group: group.0 });
        self.told("transfer", t, node, group, seen);
        self.done.last_mut().expect("just done").recovered = Some(t);
    }

    /// The replica returns as a learner. Until then its node counts as away.
    fn evict(&mut self, node: u16, group: GroupId, seen: &Seen) {
        let Some(leader) = seen.leader_of(group) else { return };
        let slot = self.layout.replica_on(node, group);
        let slot = slot.expect("the schedule knows who has a replica of what").slot;
        let t = now();
        self.processes.tell(leader, Action::Evict { group: group.0, slot });
        self.away.insert(node, Away::of(self.done.len()));
        self.told("evict", t, node, group, seen);
    }

    /// Records an action on a node about a group that another node leads.
    fn told(&mut self, what: &'static str, t: u64, node: u16, group: GroupId, seen: &Seen) {
        let led = seen.leader_of(group).map(|_| group.0).into_iter().collect::<Vec<_>>();
        let pid = self.processes.pid(node);
        self.note(Noted { t, what: what.to_owned(), node: Some(node), pid, led: led.clone() });
        self.done.push(Injected { t, what, nodes: vec![node], led, on: t, recovered: None });
    }

    fn part(
        &mut self,
        node: u16,
        parting: Parting,
        time: Duration,
        seen: &Seen,
    ) -> Result<(), FaultError> {
        let hosts = self.hosts.expect("partitions are asked for only where there are hosts");
        let (t, what, led, pid) = (now(), "partition", seen.led_by(node), seen.pid(node));
        hosts.part(node, &parting)?;
        self.note(Noted { t, what: what.to_owned(), node: Some(node), pid, led: led.clone() });
        let until = Some(Instant::now() + time);
        let away = Away { until, parting: Some(parting), ..Away::of(self.done.len()) };
        self.away.insert(node, away);
        self.done.push(Injected { t, what, nodes: vec![node], led, on: t, recovered: None });
        Ok(())
    }

    /// Ends a node's partition, or continues a stopped node. Returns the time and the name of this
    /// event.
    fn end(&mut self, node: u16) -> Result<(u64, &'static str), FaultError> {
        let parting = self.away.get_mut(&node).and_then(|away| away.parting.take());
        match (parting, self.hosts) {
            (Some(parting), Some(hosts)) => {
                hosts.mend(node, &parting)?;
                Ok((now(), "mend"))
            }
            _ => Ok((self.processes.signal(&[node], Signal::CONT)?, "continue")),
        }
    }

    fn kill_a_client(&mut self) -> Result<(), FaultError> {
        let after = self.schedule.gap() / 10;
        let (t, pid) = self.clients.kill_one(self.recorder.scribe(), after)?;
        let what = "client-kill";
        self.note(Noted { t, what: what.to_owned(), node: None, pid: Some(pid), led: Vec::new() });
        let (nodes, led) = (Vec::new(), Vec::new());
        self.done.push(Injected { t, what, nodes, led, on: t, recovered: Some(t) });
        Ok(())
    }

    fn note(&mut self, fault: Noted) {
        self.scribe.note(Record::Fault(fault));
    }

    /// Ends stops and partitions that are due, and records the nodes that are well again.
    fn tend(&mut self) {
        let now_is = Instant::now();
        let due = |(node, away): (&u16, &Away)| {
            away.until.is_some_and(|until| until <= now_is).then_some(*node)
        };
        let due: Vec<u16> = self.away.iter().filter_map(due).collect();
        for node in due {
            let pid = self.processes.pid(node);
            match self.end(node) {
                Ok((t, what)) => {
                    let what = what.to_owned();
                    self.note(Noted { t, what, node: Some(node), pid, led: Vec::new() });
                }
                Err(error) => self.problems.push(with_causes(&error)),
            }
            self.away.entry(node).and_modify(|away| away.until = None);
        }
        if self.away.is_empty() || self.looked.is_some_and(|looked| now_is < looked) {
            return;
        }
        self.looked = Some(now_is + CHECK_EVERY);
        let seen = self.processes.look();
        let well = |(node, away): (&u16, &Away)| {
            let another = away.killed.is_none_or(|killed| seen.pid(*node) != Some(killed));
            (away.until.is_none() && another && seen.is_well(*node)).then_some(*node)
        };
        let well: Vec<u16> = self.away.iter().filter_map(well).collect();
        for node in well {
            let Some(away) = self.away.remove(&node) else { continue };
            let t = now();
            let pid = seen.pid(node);
            self.note(Noted {
                t,
                what: "recovered".to_owned(),
                node: Some(node),
                pid,
                led: Vec::new(),
            });
            // If several nodes were hit, the last one to recover counts.
            if self.away.values().all(|other| other.fault != away.fault) {
                self.done[away.fault].recovered = Some(t);
            }
        }
    }
}
