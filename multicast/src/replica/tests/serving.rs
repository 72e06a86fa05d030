//! What a leader says of its group when its followers do not answer.

use skein_protocol::detector::Pulse;

use super::*;
use crate::standing::Standing;

/// A leader whose followers have granted it their logs and then been silent for long.
fn with_silent_followers() -> Scene {
    let mut scene = Scene::new();
    for slot in [1, 2] {
        scene.grant(slot, 0, true);
    }
    scene.commit();
    assert_eq!(scene.replica.standing(), Standing::Serves, "it has only just begun to lead");
    for slot in [1, 2] {
        for _ in 0..1_000 {
            let pulse = Event::Heartbeat { slot, pulse: Pulse::Missed };
            scene.replica.core.step(pulse, &mut scene.replica.effects);
        }
    }
    scene
}

impl Scene {
    /// What it says once the memory of slot 1 has taken what it writes.
    fn stands(&mut self) -> Standing {
        self.replica.seek_proof();
        self.replica.seek_confirmation(&mut self.links);
        self.happens(GroupEvent::Landed { slot: 1, number: self.replica.writer.writes });
        self.replica.standing()
    }
}

#[test]
fn a_leader_serves_while_the_memory_of_silent_followers_takes_its_entries() {
    let mut scene = with_silent_followers();
    assert!(scene.replica.seek_proof(), "nothing has been written since");
    assert_eq!(scene.replica.standing(), Standing::DoesNotServe);
    let writes = scene.replica.writer.writes;
    assert_eq!(scene.stands(), Standing::Commits);
    assert!(!scene.replica.seek_proof() && scene.replica.writer.writes == writes + 2);
    scene.pass(10_000);
    assert_eq!(scene.replica.standing(), Standing::DoesNotServe, "that was long ago");
    assert_eq!(scene.stands(), Standing::Commits);
}

#[test]
fn a_leader_whose_followers_take_a_write_and_no_entries_does_not_serve() {
    let mut scene = with_silent_followers();
    scene.replica.relayed(FOLLOWER, &relay(SessionId(1), 1), &mut scene.links);
    scene.replica.end_turn(&mut scene.links);
    assert_eq!(scene.stands(), Standing::DoesNotServe, "an entry is not committed");
    scene.commit();
    assert_eq!(scene.stands(), Standing::Commits);
    scene.replica.intake.throttled = true;
    assert_eq!(scene.stands(), Standing::DoesNotServe, "it takes no message");
    scene.replica.intake.throttled = false;
    scene.replica.config.group.durable = true;
    assert_eq!(scene.stands(), Standing::DoesNotServe, "nothing reaches their disks");
}

#[test]
fn a_leader_whose_log_is_full_and_whose_followers_are_silent_does_not_serve() {
    let mut scene = with_silent_followers();
    let mut sequence = 0;
    while scene.replica.log_has_room() {
        assert_eq!(scene.stands(), Standing::Commits);
        sequence += 1;
        scene.replica.relayed(FOLLOWER, &relay(SessionId(1), sequence), &mut scene.links);
        scene.commit();
        let last = scene.replica.writer.writes;
        for (slot, number) in [(1, last - 1), (2, last)] {
            scene.replica.completed(slot, number);
        }
    }
    assert_eq!(scene.stands(), Standing::DoesNotServe);
}
