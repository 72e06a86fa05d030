//! Digests for operators, which the engine threads compute in parts between turns.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use skein_fabric::Fabric;
use skein_kvstore::machine::Machine;
use skein_kvstore::machine::digest::Digesting;
use skein_kvstore::store::Store;
use skein_multicast::Links;
use skein_multicast::application::Stopped;
use skein_multicast::engine::Engine;
use skein_protocol::ids::ReplicaId;

use crate::status::StateDigest;

/// Maximum time to compute a digest. It cannot finish while messages are delivered all the time.
const WITHIN: Duration = Duration::from_secs(20);
/// Bytes that are hashed between two turns: about a tenth of a millisecond.
const PART_BYTES: usize = 256 << 10;

/// Digests of replicas.
pub(super) type Digests = Vec<(ReplicaId, StateDigest)>;

/// The engine's side: the digests that are being computed.
#[derive(Default)]
pub(super) struct Taking {
    /// Recipients of the digests.
    asked: Vec<SyncSender<Digests>>,
    since: Option<Instant>,
    done: Digests,
    under_way: Digesting,
}

impl Taking {
    /// Adds a recipient and starts again, so that earlier recipients wait a little longer.
    pub(super) fn ask(&mut self, answer: SyncSender<Digests>) {
        let asked = std::mem::take(&mut self.asked);
        *self = Self { asked, since: Some(Instant::now()), ..Self::default() };
        self.asked.push(answer);
    }

    /// Computes the next part. Returns whether there was one.
    pub(super) fn go_on<F: Fabric, S: Store, O: Links>(
        &mut self,
        engine: &Engine<F, Machine<S>, O>,
    ) -> Result<bool, Stopped<S::Error>> {
        let Some(since) = self.since else { return Ok(false) };
        let Some((replica, machine)) = engine.applications().nth(self.done.len()) else {
            for answer in self.asked.drain(..) {
                // The recipient may have given up waiting.
                let _ = answer.try_send(self.done.clone());
            }
            *self = Self::default();
            return Ok(true);
        };
        let part = machine.digest_part(&mut self.under_way, PART_BYTES);
        if let Some((position, hash)) = part.map_err(|why| Stopped { replica, why })? {
            self.done.push((replica, StateDigest::new(position, hash)));
            self.under_way = Digesting::default();
        } else if since.elapsed() > WITHIN {
            // Dropping the senders reports the failure to the recipients.
            *self = Self::default();
        }
        Ok(true)
    }
}

/// The other side: the digests of all engines of a node, as they arrive.
pub(super) struct Awaited {
    missing: Vec<Receiver<Digests>>,
    found: Digests,
}

impl Awaited {
    pub(super) fn new(missing: Vec<Receiver<Digests>>) -> Self {
        Self { missing, found: Digests::new() }
    }

    /// All digests, once they have arrived; an error if an engine has given up.
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

/// Digests could not be computed because messages were delivered all the time.
pub(super) struct GivenUp;
