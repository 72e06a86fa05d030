//! The orderings with which scenarios are played: how each carries out its effects, and how transcripts show its
//! records.
//!
//! A scenario of one group is generic in the ordering, and [`both`] makes a test of it for each.

use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::{self, PeerEffect, PeerEvent, Ramcast};
use skein_protocol::rank::Rank;
use skein_protocol::single::{self, Never, Single};
use skein_protocol::timestamp::Timestamp;
use skein_protocol::tram::content::Content;
use skein_protocol::tram::{self, Tram};

use crate::by_hand::ByHand;
use crate::stage::Stage;

/// Makes a test of each scenario for every ordering, in a module of the scenario's name. Scenarios about timestamps,
/// proposals, decisions, results or clocks, or about what two groups retain for each other, are RamCast's alone.
macro_rules! both {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            $(#[$attribute])*
            fn ramcast() {
                super::$name::<skein_protocol::ramcast::Ramcast>();
            }

            #[test]
            $(#[$attribute])*
            fn single() {
                super::$name::<skein_protocol::single::Single>();
            }

            #[test]
            $(#[$attribute])*
            fn tram() {
                super::$name::<skein_protocol::tram::Tram>();
            }
        }
    )+};
}
pub(crate) use both;

/// An ordering whose replicas a [`Stage`] can run.
pub(crate) trait Played: ByHand {
    /// The most groups that it can order. Scenarios about a single group run in a cluster of this many.
    const GROUPS: u16;

    /// Carries out an effect for other replicas.
    fn tell(stage: &mut Stage<Self>, by: ReplicaId, told: Self::PeerEffect);

    /// The record of a message as the first group logs it. Message numbers rise along a log.
    fn record(
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
    ) -> Self::Record;

    /// A record that is not the group log's, as transcripts show it.
    fn describe(record: &Self::Record) -> String;

    /// A rank, as transcripts show it.
    fn show(rank: Rank) -> String;
}

impl Played for Ramcast {
    const GROUPS: u16 = 2;

    fn tell(stage: &mut Stage, by: ReplicaId, told: PeerEffect) {
        match told {
            PeerEffect::Propose { announcement } => {
                for group in announcement.destinations.without(by.group).iter() {
                    let to = stage.leader_of(by, group);
                    announce(stage, by, to, announcement);
                }
            }
            PeerEffect::Announce { to, announcement } => announce(stage, by, to, announcement),
            PeerEffect::Pass { .. } => {}
        }
    }

    fn record(
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
    ) -> ramcast::Record {
        let timestamp = Timestamp::new(message.sequence, GroupId(0));
        ramcast::Record::Local { message, low_water, timestamp, destinations, inline }
    }

    fn describe(record: &ramcast::Record) -> String {
        match record {
            ramcast::Record::Exchange => "Exchange".to_owned(),
            ramcast::Record::Local { message, timestamp, .. } => {
                format!("Local m{} {timestamp}", message.sequence)
            }
            ramcast::Record::Remote(remote) => {
                format!("Remote m{} {}", remote.message.sequence, remote.timestamp)
            }
            ramcast::Record::Decided(decision) => {
                format!("Decided m{} {}", decision.message.sequence, decision.timestamp)
            }
            ramcast::Record::Raise { timestamp } => format!("Raise {timestamp}"),
            ramcast::Record::Group(record) => unreachable!("{record:?} is the group's"),
        }
    }

    fn show(rank: Rank) -> String {
        Timestamp::from(rank).to_string()
    }
}

fn announce(stage: &mut Stage, by: ReplicaId, to: ReplicaId, announcement: Announcement) {
    let (name, at) = (announcement.message.sequence, announcement.timestamp);
    let (index, ballot) = (announcement.index, announcement.ballot);
    let again = if announcement.again.is_some() { ", and asks about it" } else { "" };
    let of = match ballot.counter() {
        1 => String::new(),
        _ => format!(", {index} of {ballot}"),
    };
    stage.say(format_args!("{by} announces m{name} {at}{of} to {to}{again}"));
    stage.send(to, PeerEvent::Announced { from: by, announcement });
}

impl Played for Single {
    const GROUPS: u16 = 1;

    fn tell(_: &mut Stage<Self>, _: ReplicaId, told: Never) {
        match told {}
    }

    fn record(message: MessageId, low_water: u64, _: GroupSet, inline: bool) -> single::Record {
        single::Record::Message { message, low_water, inline }
    }

    fn describe(record: &single::Record) -> String {
        match record {
            single::Record::Message { message, .. } => format!("Local m{}", message.sequence),
            single::Record::Group(record) => unreachable!("{record:?} is the group's"),
        }
    }

    /// Followed by the group's name, like a timestamp.
    fn show(rank: Rank) -> String {
        format!("{rank}@g0")
    }
}

/// A replica hears a report, or a question, of another one.
fn hear(stage: &mut Stage<Tram>, by: ReplicaId, to: ReplicaId, report: &[u8]) {
    let mut effects = Vec::new();
    stage.core(to).hear_report(by, report, &mut effects);
    stage.carry_out(to, effects);
}

impl Played for Tram {
    const GROUPS: u16 = 1;

    fn tell(stage: &mut Stage<Self>, by: ReplicaId, told: tram::PeerEffect) {
        match told {
            tram::PeerEffect::Pass { to, edge } => {
                let ballot = stage.core(by).log().ballot();
                stage.send(
                    to,
                    tram::PeerEvent::Passed { from: by, ballot, edge, sum: 0, held: true },
                );
            }
            tram::PeerEffect::Report { to, asks } => {
                let mut report = Vec::new();
                stage.core(by).report(to, asks, &mut report);
                hear(stage, by, to, &report);
            }
            tram::PeerEffect::Applied { to, asks } => {
                let mut report = Vec::new();
                stage.core(by).report_applied(asks, &mut report);
                hear(stage, by, to, &report);
            }
            tram::PeerEffect::AskResult { to, message } => {
                let mut question = Vec::new();
                stage.core(by).ask_result(message, &mut question);
                hear(stage, by, to, &question);
            }
            tram::PeerEffect::Refuse { message, closed } => {
                stage.say(format_args!("{by} refuses m{}: {closed} are closed", message.sequence));
            }
        }
    }

    fn record(
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
    ) -> tram::Record {
        let outside = if inline { 0 } else { 5_000 };
        let content = Content::Message { message, low_water, destinations, outside, again: false };
        tram::Record::Ordered { content, taken: None, known: false }
    }

    fn describe(record: &tram::Record) -> String {
        match record {
            tram::Record::Ordered { content, taken, .. } => {
                let what =
                    content.message().map_or("marker".to_owned(), |it| format!("m{}", it.sequence));
                match taken {
                    Some(taken) => format!("Edge {} {what}", taken.number.number),
                    None => format!("Local {what}"),
                }
            }
            tram::Record::Exchange => "Exchange".to_owned(),
            tram::Record::Group(record) => unreachable!("{record:?} is the group's"),
        }
    }

    /// Followed by the group's name, like a timestamp.
    fn show(rank: Rank) -> String {
        format!("{rank}@g0")
    }
}
