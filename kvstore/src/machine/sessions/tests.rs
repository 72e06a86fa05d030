use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::machine::part::{self, PartMaker};
use skein_protocol::ids::GroupId;

fn m(session: u64, sequence: u64) -> MessageId {
    MessageId::new(SessionId(session), sequence)
}

/// Delivers a message that has its turn at once.
fn admit(sessions: &mut Sessions, message: MessageId, low_water: u64) -> Admission {
    let admission = sessions.note(message);
    sessions.free_for(message, low_water);
    admission
}

fn record(sessions: &mut Sessions, message: MessageId, reply: &[u8]) {
    sessions.record(message, reply, sum(message, reply));
}

/// The digest, computed from the whole table.
fn digest_of(sessions: &Sessions) -> u64 {
    let open = sessions.open.iter().map(|(id, session)| {
        let replies = session.replies.iter();
        let replies = replies.map(|it| sum(m(id.0, it.sequence), it.reply.as_slice()));
        replies.fold(sum_of(*id, session.floor, false), u64::wrapping_add)
    });
    let ended = sessions.ended.iter().map(|(id, closed_by)| sum_of(*id, *closed_by, true));
    open.chain(ended).fold(0, u64::wrapping_add)
}

fn with_open(session: u64) -> Sessions {
    let mut sessions = Sessions::default();
    sessions.open(m(session, 1)).expect("there is room for one");
    sessions
}

proptest! {
    /// Within the window, the set is exact. Below it, all numbers count as delivered.
    #[test]
    fn delivered_is_a_set_above_the_window(
        steps in vec(prop_oneof![6 => 0u64..200, 1 => 0u64..2 * WINDOW, 1 => any::<u64>()], 0..60),
    ) {
        let mut delivered = Delivered::default();
        let mut model = BTreeSet::new();
        let mut highest = 0u64;
        for step in steps {
            // Back and forth around the highest.
            let sequence = highest.saturating_add(step).saturating_sub(100).max(1);
            let outside = highest >= sequence && highest - sequence >= WINDOW;
            let is_new = !outside && model.insert(sequence);
            prop_assert_eq!(delivered.insert(sequence), is_new, "{} after {}", sequence, highest);
            highest = highest.max(sequence);
            for near in highest.saturating_sub(150).max(1)..=highest {
                prop_assert_eq!(delivered.contains(near), model.contains(&near), "{}", near);
            }
        }
    }

    /// The totals count each retained reply, and no other, whatever is admitted, recorded, forgotten and
    /// closed.
    #[test]
    fn bytes_are_counted(
        steps in vec((0u64..4, 1u64..60, 0u64..60, 0usize..400, 0u8..12), 0..200),
    ) {
        let mut sessions = Sessions::default();
        for (session, sequence, low_water, len, kind) in steps {
            match kind {
                0 => _ = sessions.open(m(session, sequence)),
                1 => _ = sessions.close(m(session, sequence)),
                2 => sessions.expire(SessionId(session + 2)),
                _ => {
                    let message = m(session, sequence);
                    if admit(&mut sessions, message, low_water) == Admission::Fresh {
                        record(&mut sessions, message, &vec![1; len]);
                    }
                }
            }
            let kept = sessions.open.values().flat_map(|session| &session.replies);
            prop_assert_eq!(sessions.owed_bytes, kept.map(Kept::bytes).sum::<u64>());
            prop_assert_eq!(sessions.digest(), digest_of(&sessions));
        }
    }
}

#[test]
fn what_is_passed_over_at_a_wrap_of_the_window_is_not_taken_for_delivered() {
    #[rustfmt::skip]
    let cases = [
        // then               passed over            because
        (WINDOW + 1,          &[WINDOW][..],         "one is passed over, in the place of 0"),
        (WINDOW + 2,          &[WINDOW, WINDOW + 1], "two are"),
        (2 * WINDOW - 1,      &[WINDOW, 2 * WINDOW - 2], "all but one of the window are"),
        (2 * WINDOW,          &[WINDOW + 1, 2 * WINDOW - 1], "a whole window further"),
        (2 * WINDOW + 1,      &[WINDOW + 2, 2 * WINDOW], "more than a window further"),
    ];
    for (then, passed, because) in cases {
        let mut delivered = Delivered::default();
        assert!((0..WINDOW).all(|sequence| delivered.insert(sequence)));
        assert!(delivered.insert(then), "{because}");
        for sequence in passed {
            assert!(!delivered.contains(*sequence), "{because}: {sequence} was not delivered");
            assert!(delivered.insert(*sequence), "{because}: {sequence} is executed when it comes");
        }
        assert!(!delivered.insert(then) && delivered.contains(then - WINDOW), "{because}");
    }
}

#[test]
fn the_dead_are_remembered_in_a_bounded_number() {
    let mut sessions = with_open(0);
    for session in 1..=ENDED_MAX as u64 + 5 {
        sessions.expire(SessionId(session));
    }
    assert_eq!((sessions.ended.len(), sessions.ended_order.len()), (ENDED_MAX, ENDED_MAX));
    assert_eq!(sessions.open(m(6, 1)), Err(Refusal::SessionExpired), "one of the last");
    assert_eq!(sessions.open(m(5, 1)), Ok(()), "the oldest are forgotten first");
}

#[test]
fn no_more_sessions_open_than_there_is_room_for() {
    let mut sessions = Sessions::default();
    for session in 0..SESSIONS_MAX as u64 {
        sessions.open(m(session, 1)).expect("there is room");
    }
    let full = Refusal::TooManySessions { max: SESSIONS_MAX as u64 };
    assert_eq!(sessions.open(m(u64::MAX, 1)), Err(full));
    assert_eq!(sessions.open(m(3, 1)), Ok(()), "one that is open stays so");
    sessions.close(m(3, 2)).expect("it is open");
    assert_eq!(sessions.open(m(u64::MAX, 1)), Ok(()));
}

#[test]
fn a_session_that_never_raises_its_mark_is_owed_a_window_at_most() {
    let mut sessions = with_open(1);
    for sequence in 2..3 * WINDOW {
        assert_eq!(admit(&mut sessions, m(1, sequence), 0), Admission::Fresh);
        record(&mut sessions, m(1, sequence), b"done");
    }
    assert_eq!(sessions.open[&SessionId(1)].replies.len() as u64, WINDOW);
    assert_eq!(sessions.owed(m(1, 2)), Owed::Nothing);
    assert_eq!(sessions.owed(m(1, 2 * WINDOW - 1)), Owed::Nothing);
    assert_eq!(sessions.owed(m(1, 2 * WINDOW)), Owed::Reply(b"done"), "and no less");
    assert_eq!(sessions.owed(m(1, 3 * WINDOW - 1)), Owed::Reply(b"done"));
    assert_eq!(sessions.owed(m(1, 3 * WINDOW)), Owed::Nothing, "not delivered yet");
}

/// Copies about `bytes` bytes of one table to another. Returns whether nothing is left.
fn copy_some(from: &mut Sessions, to: &mut Sessions, bytes: usize) -> bool {
    let mut part = Vec::new();
    let mut maker = PartMaker::new(&mut part, GroupId(0), 0, bytes);
    let done = from.copy(&mut maker);
    maker.seal();
    let (_, mut records) = part::open(&part, GroupId(0)).expect("a good part");
    while let Some(record) = records.next().expect("a good part") {
        to.restore(&record).expect("a good record");
    }
    done
}

fn assert_same(one: &Sessions, other: &Sessions) {
    let seen = |sessions: &Sessions| {
        let mut all = Vec::new();
        sessions.visit(&mut |bytes| all.push(bytes.to_vec()));
        all
    };
    assert_eq!(seen(one), seen(other));
    assert_eq!((one.bytes(), one.digest()), (other.bytes(), other.digest()));
}

#[test]
fn a_copy_that_is_left_waiting_begins_again_and_takes_no_more_memory() {
    let expire: fn(&mut Sessions, u64) = |sessions, n| sessions.expire(SessionId(1_000 + n));
    let command: fn(&mut Sessions, u64) = |sessions, n| {
        admit(sessions, m(3, 2 + n), n.saturating_sub(10));
        record(sessions, m(3, 2 + n), b"done");
    };
    for (many, because) in [(expire, "more end than are remembered"), (command, "all is touched")] {
        let mut sessions = with_open(1);
        sessions.expire(SessionId(9));
        for session in 2..5 {
            sessions.open(m(session, 1)).expect("there is room");
        }
        let mut copy = Sessions::default();
        assert!(copy_some(&mut sessions, &mut copy, usize::MAX));
        sessions.close(m(2, 2)).expect("it is open");
        for n in 0..ENDED_MAX as u64 + 10 {
            many(&mut sessions, n);
        }
        let remembered = sessions.copy.as_ref().expect("a copy is under way").remembered();
        assert!(remembered <= ENDED_MAX / 2, "{because}: {remembered} messages are remembered");
        while !copy_some(&mut sessions, &mut copy, 1_000) {}
        assert_same(&sessions, &copy);
    }
}

#[test]
fn replies_of_one_session_go_into_many_parts() {
    let mut sessions = with_open(1);
    let mut copy = Sessions::default();
    for sequence in 2..1_000 {
        admit(&mut sessions, m(1, sequence), 1);
        record(&mut sessions, m(1, sequence), &[7; 100]);
    }
    let mut parts = 1;
    while !copy_some(&mut sessions, &mut copy, 4_000) {
        parts += 1;
        // Some replies are freed, one is added to the session that is being copied, and another session opens.
        admit(&mut sessions, m(1, 2_000 + parts), 2 * parts);
        record(&mut sessions, m(1, 2_000 + parts), b"late");
        sessions.open(m(2 + parts, 1)).expect("there is room");
    }
    assert!(parts > 20, "{parts} parts of 100,000 bytes");
    assert_same(&sessions, &copy);
}
