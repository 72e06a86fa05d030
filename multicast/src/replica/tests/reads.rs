//! Reads that are held at the gate: one answer to each query, in bounded memory.

use super::*;

/// A scene with two groups in which reads are held at the gate: a message to both was delivered here, and
/// nothing came from the other group since its proposal.
fn with_a_closed_gate() -> Scene {
    let mut scene = Scene::with(Topology { groups: 2, ..TOPOLOGY });
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    scene.commit();
    let message = MessageId::new(SessionId(1), 1);
    let (destinations, timestamp) = (GroupSet::first(2), Timestamp::new(5, GroupId(1)));
    let head = Head { sequence: 1, low_water: 1, destinations };
    scene.replica.receive(message.session, head, &[], &mut scene.links);
    let remote = Remote { message, timestamp, ballot: Ballot::new(1, 0, 0), index: 1 };
    let mut bytes = Vec::new();
    Proposed { message, low_water: 1, destinations }.encode(1, &mut bytes);
    Proposed::encode_proposal(&remote, &mut bytes);
    let (proposed, proposals, _) = Proposed::decode(&bytes).unwrap();
    scene.replica.proposed(&proposed, &proposals);
    for slot in 0..2 {
        let by = ReplicaId::new(GroupId(1), slot);
        let acceptance = Acceptance { tag: Ballot::new(1, 0, 0).tag(), index: 1 };
        scene.replica.told(StatusColumn::Accepted, by, acceptance.to_word());
    }
    scene.commit();
    scene.commit();
    assert_eq!(scene.answered(), [true], "it was delivered");
    scene
}

impl Scene {
    /// A session sends a query, and all possible reads are made.
    fn asks(&mut self, session: u64, number: u64, of: u8, query: &[u8]) {
        let question = [&number.to_le_bytes()[..], &[of], query].concat();
        self.replica.asked(SessionId(session), &question, &mut self.links);
        self.happens(GroupEvent::Landed { slot: 1, number: self.replica.writer.writes + 1 });
        self.replica.answer_reads(&mut self.links).unwrap();
    }
}

#[test]
fn a_question_repeated_while_the_gate_is_closed_has_one_answer_there() {
    let mut scene = with_a_closed_gate();
    for _ in 0..500 {
        for number in 1..=3 {
            scene.asks(9, number, 2, &[7; 1000]);
        }
    }
    assert_eq!(scene.replica.reads_waiting(), 3);
    assert_eq!(scene.replica.gated_bytes(), 3 * 1000, "each answer is as long as its question");
    scene.replica.reads.forget(SessionId(9));
    assert_eq!((scene.replica.reads_waiting(), scene.replica.gated_bytes()), (0, 0));
}

#[test]
fn answers_at_a_closed_gate_are_bounded_and_go_when_nobody_asks_again() {
    let mut scene = with_a_closed_gate();
    const LEN: usize = 256 << 10;
    for number in 1..=200 {
        scene.asks(9, number, 2, &vec![7; LEN]);
    }
    let bytes = scene.replica.gated_bytes();
    assert!((8 << 20..(8 << 20) + LEN).contains(&bytes), "{bytes} bytes");
    let waiting = scene.replica.reads_waiting();
    scene.asks(9, 1_000, 1, b"of any age");
    assert_eq!(scene.replica.reads_waiting(), waiting, "stale reads do not wait for the gate");
    scene.replica.tick(10_000, &mut scene.links);
    scene.replica.answer_reads(&mut scene.links).unwrap();
    assert_eq!(scene.replica.gated_bytes(), 0, "nobody has asked for a second");
}
