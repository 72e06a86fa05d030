//! Digests that an operator waits for: taken by the engine threads, a part at a time between turns.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use skein_fabric::Fabric;
use skein_kvstore::machine::Machine;
use skein_kvstore::machine::digest::Digesting;
use skein_multicast::engine::Engine;
use skein_protocol::ids::ReplicaId;

use crate::status::StateDigest;

/// How long a digest may take. While messages are delivered all the time, it is never done.
const WITHIN: Duration = Duration::from_secs(20);
/// Bytes looked at between two turns: a tenth of a millisecond or so.
const PART_BYTES: usize = 256 << 10;

/// What the replicas of an engine hold.
pub(super) type Digests = Vec<(ReplicaId, StateDigest)>;

/// The engine's side: the digests that are being taken.
#[derive(Default)]
pub(super) struct Taking {
    /// Who waits for them.
    asked: Vec<SyncSender<Digests>>,
    since: Option<Instant>,
    done: Digests,
    under_way: Digesting,
}

impl Taking {
    /// Somebody waits. Whoever came before waits a little longer.
    pub(super) fn ask(&mut self, answer: SyncSender<Digests>) {
        let asked = std::mem::take(&mut self.asked);
        *self = Self { asked, since: Some(Instant::now()), ..Self::default() };
        self.asked.push(answer);
    }

    /// Takes the next part. Returns whether there was one to take.
    pub(super) fn go_on<F: Fabric>(&mut self, engine: &Engine<F, Machine>) -> bool {
        let Some(since) = self.since else { return false };
        let Some((replica, machine)) = engine.applications().nth(self.done.len()) else {
            for answer in self.asked.drain(..) {
                // Whoever asked may have given up waiting.
                let _ = answer.try_send(self.done.clone());
            }
            *self = Self::default();
            return true;
        };
        if let Some((position, hash)) = machine.digest_part(&mut self.under_way, PART_BYTES) {
            self.done.push((replica, StateDigest::new(position, hash)));
            self.under_way = Digesting::default();
        } else if since.elapsed() > WITHIN {
            // Those who asked find that nobody will answer.
            *self = Self::default();
        }
        true
    }
}

/// The other side: one who waits for the digests of all engines of a node.
pub(super) struct Awaited {
    missing: Vec<Receiver<Digests>>,
    found: Digests,
}

impl Awaited {
    pub(super) fn new(missing: Vec<Receiver<Digests>>) -> Self {
        Self { missing, found: Digests::new() }
    }

    /// All of them, once they are there; or an engine has given up.
    pub(super) fn poll(&mut self) -> Option<Result<Digests, GivenUp>> {
        let mut given_up = false;
        self.missing.retain(|engine| match engine.try_recv() {
            Ok(digests) => {
                self.found.extend(digests);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => {
                given_up = true;
                true
            }
        });
        match (given_up, self.missing.is_empty()) {
            (true, _) => Some(Err(GivenUp)),
            (false, true) => Some(Ok(std::mem::take(&mut self.found))),
            (false, false) => None,
        }
    }
}

/// Messages were delivered all the time.
pub(super) struct GivenUp;
