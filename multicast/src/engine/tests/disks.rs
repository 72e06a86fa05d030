//! When the disk writes what an engine has appended.

use std::sync::{Arc, Mutex};

use skein_fabric::wait::Waiting;

use super::*;
use crate::disk::{Disk, Reader};

/// Number of records that were appended, and that were to be written.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<(u64, u64)>>);

impl Counts {
    fn appended(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    fn written(&self) -> u64 {
        self.0.lock().unwrap().1
    }
}

/// A disk that writes at once what it is asked to write.
impl Disk for Counts {
    fn append(&mut self, _: GroupId, _: u8, _: &[&[u8]]) -> u64 {
        let mut counts = self.0.lock().unwrap();
        counts.0 += 1;
        counts.0
    }
    fn flush(&mut self) {
        let mut counts = self.0.lock().unwrap();
        counts.1 = counts.0;
    }
    fn durable(&self) -> u64 {
        self.written()
    }
    fn sync(&mut self) {
        self.flush();
    }
    fn keep_from(&mut self, _: GroupId, _: u64) {}
    fn begin(&mut self, _: GroupId) {}
    fn snapshot_after(&self) -> u64 {
        u64::MAX
    }
    fn replay(&mut self, _: GroupId, _: &mut Reader<'_>) -> Result<(), String> {
        Ok(())
    }
}

fn tuning() -> Tuning {
    Tuning { heartbeat_ms: 1000, ..Tuning::default() }
}

fn layout() -> Layout {
    Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap()
}

/// The engine of a cluster of one replica, and its disk.
fn alone() -> (World, Engine<SimFabric, Answer, Ramcast>, Counts) {
    let world = World::new(1, SimConfig::default());
    let (fabric, me, disk) =
        (world.join(&endpoint_name(0, 0)), Identity::first(0, 0), Counts::default());
    let roster = Arc::new(Roster::unrecorded(0, 0));
    let log: Box<dyn Disk> = Box::new(disk.clone());
    let mut engine =
        Engine::with_roster(fabric, &layout(), tuning(), me, roster, Some(log), |_| Answer)
            .unwrap();
    engine.replay().unwrap();
    (world, engine, disk)
}

#[test]
fn what_is_on_disk_before_its_replica_has_taken_a_turn_counts() {
    let (world, mut engine, disk) = alone();
    for _ in 0..20 {
        world.advance(Duration::from_millis(200));
        engine.turn();
    }
    engine.originate(b"a message of its own");
    assert!(engine.originates(), "it leads, and has logged it");
    engine.wait(&mut Waiter::new(Waiting::Busy), &|| true);
    assert_eq!(disk.written(), disk.appended(), "it has been idle for long");
    for _ in 0..20 {
        world.advance(Duration::from_millis(200));
        engine.turn();
    }
    assert!(!engine.originates(), "it is delivered, whether or not anything follows it");
}

#[test]
fn what_nobody_waits_for_is_written_when_the_engine_is_idle_or_at_a_tick() {
    const MOMENT: Duration = Duration::from_micros(10);
    let (world, mut engine, disk) = alone();
    let mut access = SessionTransport::new(world.join("client"), &layout(), tuning());
    let session = access.open(SessionId(1));
    let mut waiter = Waiter::new(Waiting::Busy);
    let answer = |engine: &mut Engine<_, _>, access: &mut SessionTransport<_>| {
        let mut answered = 0;
        access.multicast(session, GroupSet::first(1), &[]).unwrap();
        while answered == 0 {
            world.advance(MOMENT);
            engine.turn();
            access.turn(&mut |reply| answered = reply.sequence).unwrap();
        }
        access.settle(session, answered);
        while engine.turn() {
            world.advance(MOMENT);
        }
        assert!(disk.written() < disk.appended(), "that it was delivered is not written at once");
    };
    // Its first messages wait until it leads, and the last one comes soon after a tick.
    (0..3).for_each(|_| answer(&mut engine, &mut access));

    engine.wait(&mut waiter, &|| true);
    assert!(disk.written() < disk.appended(), "the next message may come soon");
    world.advance(WRITE_AFTER);
    engine.wait(&mut waiter, &|| true);
    assert_eq!(disk.written(), disk.appended());

    answer(&mut engine, &mut access);
    let before = disk.appended();
    world.advance(Duration::from_secs(1));
    engine.turn();
    assert!(disk.written() >= before, "an engine that does not wait writes it at a tick");
}
