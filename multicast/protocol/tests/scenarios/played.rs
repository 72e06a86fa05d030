//! The orderings that scenarios are played with: what each of them tells, and how that is written down.
//!
//! A scenario of one group is a function of the ordering, and [`both`] makes a test of it for each.

use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::{self, PeerEffect, PeerEvent, Ramcast};
use skein_protocol::rank::Rank;
use skein_protocol::single::{self, Never, Single};
use skein_protocol::timestamp::Timestamp;

use crate::by_hand::ByHand;
use crate::stage::Stage;

/// Makes a test of each scenario for every ordering, in a module of the scenario's name. Those that are about timestamps,
/// proposals, decisions, results or clocks, or about what two groups owe each other, are RamCast's alone.
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
        }
    )+};
}
pub(crate) use both;

/// An ordering whose replicas can be on stage.
pub(crate) trait Played: ByHand {
    /// The most groups that it orders in scenarios that are about one of them.
    const GROUPS: u16;

    /// Carries out what a replica tells others.
    fn tell(stage: &mut Stage<Self>, by: ReplicaId, told: Self::PeerEffect);

    /// The record of a message as the first group logs it. Numbers of messages rise along a log.
    fn record(
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
    ) -> Self::Record;

    /// A record of its own, as transcripts have it.
    fn describe(record: &Self::Record) -> String;

    /// A rank, as transcripts have it.
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

    /// With the group's name behind it, like a timestamp.
    fn show(rank: Rank) -> String {
        format!("{rank}@g0")
    }
}
