//! The loop of an engine thread.

use std::sync::mpsc::{Receiver, SyncSender};

use skein_fabric::{Fabric, FabricError};
use skein_multicast::application::Application;
use skein_multicast::engine::{Engine, ReplicaStatus};

/// What other threads ask of an engine, between two turns.
#[derive(Debug)]
pub enum Request {
    /// What it is doing.
    Status(SyncSender<EngineStatus>),
    /// To end the loop.
    Stop,
}

/// What an operator sees of an engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Whether it has met every replica it talks to.
    pub connected: bool,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
}

/// Turns `engine` until told to stop.
pub fn run<F: Fabric, A: Application>(
    mut engine: Engine<F, A>,
    requests: &Receiver<Request>,
) -> Result<(), FabricError> {
    loop {
        engine.turn()?;
        match requests.try_recv() {
            Ok(Request::Status(answer)) => {
                let status =
                    EngineStatus { connected: engine.connected(), replicas: engine.status() };
                // Whoever asked may have given up waiting.
                let _ = answer.try_send(status);
            }
            Ok(Request::Stop) => return Ok(()),
            Err(_) => {}
        }
    }
}
