//! Answers of groups to unordered reads, and the test whether two rounds of reads saw one state.
//!
//! **Invariant (one cut).** A read-only transaction over several groups reads in each of them and, when all have
//! answered, reads in each of them again. A value that did not change in between was present throughout, so at one
//! moment between the two rounds all of these values were present in their groups. More precisely: each read by itself
//! has a place in the one order that agrees with real time, all reads of the first round precede all reads of the
//! second, and no write to what was read lies between a group's two reads. So the whole transaction has a place there
//! too.
//!
//! Nothing was written in between if the group's position is the same, or if all that was read has the same versions. A
//! key without a value has no version, and neither does a key that a scan did not find.

use crate::command::Version;
use crate::reply::Outcome;
use crate::wire::Part;

/// Appends a group's answer: its position, and its part of the reply.
pub(crate) fn encode(position: Version, part: &[u8], answer: &mut Vec<u8>) {
    answer.extend_from_slice(&position.to_le_bytes());
    answer.extend_from_slice(part);
}

/// The part of the reply in a group's answer; empty if the answer is too short to contain one.
pub fn part(answer: &[u8]) -> &[u8] {
    answer.get(size_of::<Version>()..).unwrap_or_default()
}

/// Whether two answers of a group to the same read show that nothing that they saw was written in between.
pub fn is_unchanged(first: &[u8], second: &[u8]) -> bool {
    let position = |answer: &[u8]| answer.first_chunk().copied().map(Version::from_le_bytes);
    let (Some(before), Some(after)) = (position(first), position(second)) else { return false };
    let versioned = |outcome: &Outcome<_>| matches!(outcome, Outcome::Value(Some(_)));
    let all_versioned = || match Part::decode(part(first)) {
        Ok(Part::Done { outcomes, .. }) => outcomes.iter().all(versioned),
        _ => false,
    };
    before == after || (part(first) == part(second) && all_versioned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Bytes, PartWriter};

    fn answer(position: Version, outcomes: &[Outcome<Bytes<'_>>]) -> Vec<u8> {
        let mut writer = PartWriter::default();
        writer.done(true, outcomes.len());
        for outcome in outcomes {
            writer.outcome(outcome);
        }
        let mut bytes = Vec::new();
        encode(position, writer.bytes(), &mut bytes);
        bytes
    }

    #[test]
    fn what_has_a_version_is_unchanged_if_that_is_and_all_else_if_nothing_was_delivered() {
        let value = |version| Outcome::Value(Some((Bytes(b"value"), version)));
        #[rustfmt::skip]
        let cases = [
            (answer(7, &[value(3)]),            answer(7, &[value(3)]),            true,  "nothing at all happened"),
            (answer(7, &[value(3)]),            answer(9, &[value(3)]),            true,  "nobody wrote the key"),
            (answer(7, &[value(3)]),            answer(9, &[value(8)]),            false, "somebody wrote the same again"),
            (answer(7, &[Outcome::Value(None)]), answer(7, &[Outcome::Value(None)]), true,  "nothing at all happened"),
            (answer(7, &[Outcome::Value(None)]), answer(9, &[Outcome::Value(None)]), false, "it may have been there"),
            (answer(7, &[Outcome::Flag(true)]),  answer(9, &[Outcome::Flag(true)]),  false, "it may have been away"),
            (answer(7, &[]),                     answer(9, &[]),                     true,  "nothing of it is here"),
            (Vec::new(),                         Vec::new(),                         false, "no answer at all"),
        ];
        for (first, second, unchanged, because) in cases {
            assert_eq!(is_unchanged(&first, &second), unchanged, "{because}");
        }
    }
}
