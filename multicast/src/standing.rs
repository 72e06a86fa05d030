//! What a replica says of its group when a session asks whether the group serves.

/// Answer of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It leads, and its group serves.
    Serves,
    /// It leads, too few of its followers answer for a quorum, and their memory takes its entries. So its group serves, but for
    /// what takes words of the followers: under RamCast, messages of several groups.
    Commits,
    /// It follows the replica in this slot, whose heartbeats it sees. That replica knows whether the group serves.
    Follows(u8),
    /// It leads without a quorum, knows no leader that lives, or lacks its state.
    DoesNotServe,
}

impl Standing {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::Serves => vec![0],
            Self::Follows(slot) => vec![1, slot],
            Self::DoesNotServe => vec![2],
            Self::Commits => vec![3],
        }
    }

    /// Reads an answer; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(Self::Serves),
            [1, slot] => Some(Self::Follows(*slot)),
            [2] => Some(Self::DoesNotServe),
            [3] => Some(Self::Commits),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_read_as_it_was_written() {
        let all =
            [Standing::Serves, Standing::Commits, Standing::Follows(7), Standing::DoesNotServe];
        for standing in all {
            assert_eq!(Standing::decode(&standing.encode()), Some(standing));
        }
        for nonsense in [&[][..], &[1], &[4], &[0, 0]] {
            assert_eq!(Standing::decode(nonsense), None);
        }
    }
}
