//! Replicas: at the end, all replicas of a group are at one position and hold the same state.

use std::collections::BTreeMap;

use super::Judgement;
use crate::history::{Digest, Header};

#[derive(Default)]
pub(super) struct Replicas {
    /// The last report of each replica, by group and slot.
    said: BTreeMap<(u16, u8), Digest>,
}

impl Replicas {
    pub(super) fn take(&mut self, digest: Digest) {
        self.said.insert((digest.group, digest.slot), digest);
    }

    pub(super) fn finish(self, header: &Header, verdict: &mut Judgement) {
        verdict.replicas = self.said.len() as u64;
        if self.said.is_empty() {
            return; // No replica reported. The caller that should have asked reports that.
        }
        for group in 0..header.cluster.groups {
            let mut first: Option<&Digest> = None;
            for slot in 0..header.cluster.replicas {
                let Some(said) = self.said.get(&(group, slot)) else {
                    verdict.wrong("replica_silent", || {
                        format!("replica {slot} of group {group} did not say what it holds")
                    });
                    continue;
                };
                let first = *first.get_or_insert(said);
                if (first.position, &first.digest) != (said.position, &said.digest) {
                    verdict.wrong("replicas_differ", || {
                        let show = |one: &Digest| {
                            let Digest { slot, node, position, digest, .. } = one;
                            format!("replica {slot} on node {node} holds {digest} at position {position}")
                        };
                        format!("group {group}: {}, {}", show(first), show(said))
                    });
                }
            }
        }
    }
}
