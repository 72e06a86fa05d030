//! A node inside this process: its engine threads, and the ways in which it can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use skein_fabric::shm::Host;
use skein_kvstore::machine::Machine;
use skein_multicast::Links;
use skein_multicast::config::endpoint_name;
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;
use skein_multicast::protocol::ramcast::Ramcast;
use skein_multicast::protocol::tram::Tram;
use skein_multicast::roster::Roster;
use skein_node::engine::{self, Control, EngineStatus};

use super::StartError;
use crate::driver::Shape;

/// Time that an engine may take to report its status.
const STATUS_MAX: Duration = Duration::from_secs(1);

/// A node of the cluster.
pub(super) struct Node {
    number: u16,
    /// Number of earlier starts.
    incarnation: u32,
    engines: Vec<RunningEngine>,
    paused: bool,
}

struct RunningEngine {
    control: Control,
    /// The engine is to end as if it were killed.
    killed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Node {
    pub(super) fn new(number: u16) -> Self {
        Self { number, incarnation: 0, engines: Vec::new(), paused: false }
    }

    /// Starts its engines.
    pub(super) fn start(&mut self, host: &Host, shape: &Shape) -> Result<(), StartError> {
        if self.incarnation == Identity::INCARNATIONS_MAX {
            return Err(StartError::WornOut { node: self.number });
        }
        for engine in 0..shape.layout.topology().engines {
            let engine = self.start_engine(engine, host, shape)?;
            self.engines.push(engine);
        }
        self.incarnation += 1;
        Ok(())
    }

    fn start_engine(
        &self,
        engine: u16,
        host: &Host,
        shape: &Shape,
    ) -> Result<RunningEngine, StartError> {
        match shape.layout.tree() {
            None => self.start_engine_by::<Ramcast>(engine, host, shape),
            Some(_) => self.start_engine_by::<Tram>(engine, host, shape),
        }
    }

    fn start_engine_by<O: Links>(
        &self,
        engine: u16,
        host: &Host,
        shape: &Shape,
    ) -> Result<RunningEngine, StartError> {
        let Shape { layout, tuning, slots, limits, waiting } = shape.clone();
        let (node, incarnation) = (self.number, self.incarnation);
        let name = endpoint_name(node, engine);
        let fabric = host.join(&name)?;
        let mut waker = fabric.waker();
        let of_machines = layout.clone();
        let machine = move |replica| Machine::new(replica, &of_machines, slots.clone(), limits);
        let me = Identity { node, engine, incarnation };
        let roster = Arc::new(Roster::unrecorded(node, incarnation));
        let mut engine =
            Engine::<_, _, O>::with_roster(fabric, &layout, tuning, me, roster, None, machine)?;
        let (control, requests) = engine::control(move || waker.wake());
        let killed = Arc::<AtomicBool>::default();
        let vanishes = Arc::clone(&killed);
        let run = move || {
            let Ok(()) = engine::run(&mut engine, waiting, &requests, &mut || {});
            if vanishes.load(Ordering::SeqCst) {
                engine.fabric().vanish();
            }
        };
        let thread = Builder::new().name(name).spawn(run)?;
        Ok(RunningEngine { control, killed, thread })
    }

    /// Ends its engines between two turns, without sending anything.
    pub(super) fn kill(&mut self) {
        for engine in &self.engines {
            engine.killed.store(true, Ordering::SeqCst);
        }
        self.stop();
    }

    /// Ends its engines.
    pub(super) fn stop(&mut self) {
        for engine in &mut self.engines {
            engine.control.stop();
        }
        for engine in self.engines.drain(..) {
            match engine.thread.join() {
                Err(panic) if !std::thread::panicking() => std::panic::resume_unwind(panic),
                Ok(()) | Err(_) => {}
            }
        }
        self.paused = false;
    }

    /// Pauses its engines, or lets them continue.
    pub(super) fn pause(&mut self, pause: bool) {
        for engine in &mut self.engines {
            engine.control.pause(pause);
        }
        self.paused = pause && !self.engines.is_empty();
    }

    /// Status of its engines, unless they are paused.
    pub(super) fn status(&mut self) -> Vec<EngineStatus> {
        if self.paused {
            return Vec::new();
        }
        let engines = self.engines.iter_mut();
        engines.filter_map(|engine| engine.control.status(STATUS_MAX)).collect()
    }
}
