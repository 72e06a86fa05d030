//! The onlooker: keeps the history, and checks at each delivery what it rests on.

use skein_fabric::sim::SimFabric;
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId};
use skein_protocol::properties::{History, Places, Violation, check_memory, check_quorum};
use skein_protocol::step::Record;

use super::machine::Machine;
use crate::engine::Engine;
use crate::replica::Replica;
use crate::wiring::Note;

type SimEngine = Engine<SimFabric, Machine>;

/// What was seen so far.
#[derive(Default)]
pub(super) struct Onlooker {
    pub history: History,
    places: Places,
}

impl Onlooker {
    /// A message was multicast.
    pub(super) fn multicast(&mut self, message: MessageId, destinations: GroupSet) {
        self.history.multicasts.insert(message, (destinations, true));
    }

    /// The message's sender has crashed.
    pub(super) fn sender_crashed(&mut self, message: MessageId) {
        if let Some((_, correct)) = self.history.multicasts.get_mut(&message) {
            *correct = false;
        }
    }

    /// Takes in what an engine's turn did, and checks what was delivered in it. `trace` gets a line
    /// for each thing that happened.
    pub(super) fn look_at(
        &mut self,
        engines: &mut [SimEngine],
        turned: usize,
        trace: Option<&mut Vec<String>>,
    ) -> Result<(), Violation> {
        let notes = engines[turned].take_journal();
        if let Some(trace) = trace {
            trace.extend(notes.iter().map(describe));
        }
        for note in notes {
            match note {
                Note::Logged { by, index, record } => self.logged(by, index, record, engines),
                Note::Told(touch) => self.history.touches.push(touch),
                Note::Restored { .. } => {}
                Note::Delivered { by, deliver } => {
                    let replicas = find(engines, by).1.replicas();
                    let holds = |of, index| {
                        let (fabric, replica) = find(engines, of);
                        // What it has read it has; the rest may be whole in its memory.
                        replica.core.last_index() >= index || replica.holds(fabric) >= index
                    };
                    check_quorum(by, &deliver, &self.places, replicas, holds)?;
                    self.history.deliveries.entry(by).or_default().push(deliver);
                }
            }
        }
        Ok(())
    }

    fn logged(&mut self, by: ReplicaId, index: u64, record: Record, engines: &[SimEngine]) {
        if find(engines, by).1.core.leads() {
            self.places.appended(by.group, index, &record);
        }
        if let Record::Local { message, destinations, .. } = record
            && message.session.is_own()
        {
            self.history.multicasts.entry(message).or_insert((destinations, true));
        }
        self.history.logs.entry(by).or_default().push((index, record));
    }

    /// Checks what must hold at any moment of a replica's memory and its machine.
    pub(super) fn inspect(engine: &SimEngine, sessions: usize) -> Result<(), Violation> {
        let (replicas, port) = engine.inside();
        let waiting = port.iter().map(|(_, channel)| channel.waiting()).sum();
        for replica in replicas {
            check_memory(replica.id, &replica.footprint(sessions, waiting))?;
            // A candidate must find in some quorum's memory whatever is not committed.
            if replica.freed_index > replica.core.commit_index() {
                let evidence = format!("{} freed {} uncommitted", replica.id, replica.freed_index);
                return Err(Violation { property: "durability of the log", evidence });
            }
            if let Some(broken) = &replica.application.broken {
                let evidence = format!("{}: {broken}", replica.id);
                return Err(Violation { property: "integrity of payloads", evidence });
            }
        }
        Ok(())
    }
}

/// A replica, and the fabric under it.
fn find(engines: &[SimEngine], id: ReplicaId) -> (&SimFabric, &Replica<Machine>) {
    engines
        .iter()
        .find_map(|engine| {
            let (replicas, port) = engine.inside();
            Some((&port.fabric, replicas.iter().find(|replica| replica.id == id)?))
        })
        .expect("every replica runs somewhere")
}

fn describe(note: &Note) -> String {
    match note {
        Note::Logged { by, index, record } => format!("{by} logs {index}: {record:?}"),
        Note::Told(touch) => format!("{} tells {} about {:?}", touch.by, touch.to, touch.about),
        Note::Restored { by, delivered } => format!("{by} goes on after delivery {delivered}"),
        Note::Delivered { by, deliver } => {
            format!("{by} delivers {} at {}", deliver.message, deliver.timestamp)
        }
    }
}
