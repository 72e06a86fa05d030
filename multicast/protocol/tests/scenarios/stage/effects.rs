//! Carries out the effects of cores.

use skein_protocol::group::{GroupRecord, LogRecord as _};
use skein_protocol::ids::ReplicaId;
use skein_protocol::ordering::EffectOf;
use skein_protocol::step::{Effect, Event};

use super::Stage;
use super::node::Entry;
use crate::played::Played;

impl<O: Played> Stage<O> {
    pub(crate) fn carry_out(&mut self, id: ReplicaId, effects: Vec<EffectOf<O>>) {
        for effect in effects {
            match effect {
                Effect::Append { index, record, .. } => self.append(id, index, record),
                Effect::Tell(told) => O::tell(self, id, told),
                Effect::Acknowledge { groups, acceptance } => {
                    let index = acceptance.index;
                    self.say(format_args!("{id} acknowledges {index} to {groups}"));
                    let all: Vec<_> = groups.iter().flat_map(|group| self.members(group)).collect();
                    for to in all.into_iter().filter(|to| *to != id) {
                        self.told.insert((id, to), acceptance);
                        if !self.lost_words.contains(&(id, to)) {
                            self.node(to).words.insert(id, acceptance);
                        }
                    }
                }
                Effect::Settle { group, rank } => {
                    let at = O::show(rank);
                    self.say(format_args!("{id} tells {group}: all of us are done up to {at}"));
                    for to in self.members(group).filter(|to| *to != id) {
                        let event = Event::Settled { group: id.group, rank };
                        self.core(to).step(event, &mut Vec::new());
                    }
                }
                Effect::Fetch { message, from } => {
                    self.say(format_args!("{id} fetches m{} from {from}", message.sequence));
                }
                Effect::Repeat { message } => {
                    self.say(format_args!("{id} repeats its reply to m{}", message.sequence));
                }
                Effect::Forget { .. }
                | Effect::Group(_)
                | Effect::Resend { .. }
                | Effect::DropResult { .. } => {}
            }
        }
        if self.core(id).log().leads() {
            self.write_followers(id);
        }
    }

    /// A leader appends the records for which this one stands to its log.
    fn append(&mut self, id: ReplicaId, index: u64, record: O::Record) {
        let birth = self.core(id).log().ballot();
        for record in self.core(id).logged(index, record) {
            let what = record.of_group().map_or_else(|| O::describe(&record), describe);
            self.say(format_args!("{id} logs {index}: {what}"));
            let node = self.node(id);
            let last = node.log.last_mut();
            if let Some(entry) = last.filter(|entry| entry.index == index) {
                entry.records.push(record);
            } else {
                node.runs.push(birth, index * 64, node.core.log().commit_index());
                node.log.push(Entry { index, birth, records: vec![record] });
            }
        }
    }
}

fn describe(record: GroupRecord) -> String {
    match record {
        GroupRecord::NewBallot => "NewBallot".to_owned(),
        GroupRecord::Evict { slot } => format!("Evict {slot}"),
        GroupRecord::Join { slot, incarnation } => {
            format!("Join {slot}, incarnation {incarnation}")
        }
    }
}
