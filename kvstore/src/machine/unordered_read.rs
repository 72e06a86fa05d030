//! Unordered reads: this group's part of a read-only transaction, executed on the present state.

use super::Machine;
use super::execute::Turn;
use super::read_write_set::ReadWriteSet;
use super::share::Share;
use crate::reply::Refusal;
use crate::rules;
use crate::store::Store;
use crate::unordered_read;
use crate::wire::{Command, Request};

impl<S: Store> Machine<S> {
    /// Answers a query. Returns false if it conflicts with a command that has not taken effect, or something that it
    /// reads is not in memory yet.
    pub(super) fn read_unordered(
        &mut self,
        query: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<bool, S::Error> {
        let read = match self.readable(query) {
            Ok(share) => {
                let last = self.under_way.len();
                let reads = (last > 0 || S::FETCHES).then(|| ReadWriteSet::of(&share));
                if let Some(reads) = &reads
                    && (self.under_way.meets(last, reads) || !self.has_for_query(query, reads))
                {
                    return Ok(false);
                }
                let version = self.completed.version(self.completed.position());
                let turn = Turn { version, room: self.room(0), early: false };
                let read = self.run(turn, &share, true)?.map(drop);
                self.end_query(query);
                read
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = read {
            self.writer.refused(Some(&refusal));
        }
        // Commands up to the last delivery may have taken effect, even if they are not over.
        unordered_read::encode(
            self.completed.version(self.delivered()),
            self.writer.bytes(),
            answer,
        );
        Ok(true)
    }

    /// This group's share of a query that only reads and concerns this group.
    fn readable<'a>(&self, query: &'a [u8]) -> Result<Share<'a>, Refusal> {
        let malformed = |why: &str| Refusal::Malformed(why.to_owned());
        let command = match Request::decode(query) {
            Ok(Request::Read(command)) => command,
            Ok(_) => {
                return Err(malformed("a query must be a read-only transaction without guards"));
            }
            Err(unreadable) => return Err(malformed(&unreadable.to_string())),
        };
        let Command { epoch, transaction } = command;
        if epoch != self.slots.epoch {
            return Err(self.wrong_epoch());
        }
        if !transaction.only_reads() {
            return Err(malformed("a query must be a read-only transaction without guards"));
        }
        rules::check(&transaction, &self.limits)?;
        let (share, groups) = Share::of(transaction, &self.slots, self.group);
        if !groups.contains(self.group) {
            return Err(malformed("the query was sent to a group that owns none of its keys"));
        }
        Ok(share)
    }
}
