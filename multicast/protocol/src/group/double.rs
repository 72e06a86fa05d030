//! A minimal ordering on a group log, of one group's messages: the rank of a message is its index.
//!
//! It tests the log without its boundary. It calls `judge`, `campaign`, `granted` and similar methods itself, and has
//! no control messages and no [`OnLog`](super::on_log::OnLog). A seed determines the run: leaders change, also in turn
//! between two that cannot reach each other; words arrive late or never; replicas lose their memory and are admitted
//! again. All replicas must deliver the same messages at the same indices.

use alloc::vec::Vec;
use std::vec;

use super::election::GrantDecision;
use super::ordering::NoOthers;
use super::testing::{Record, config};
use super::{Cause, GroupLog, GroupRecord, Role};
use crate::ballot::{Acceptance, Ballot};
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, ReplicaId};
use crate::rank::Rank;
use crate::view::View;

struct Replica {
    log: GroupLog<Record>,
    /// Its memory: the entry at index i is number i - 1.
    memory: Vec<(Ballot, Record)>,
    /// Its acceptance word, as others may read it.
    word: Acceptance,
    delivered: Vec<(u64, u64)>,
}

impl Replica {
    fn new(slot: u8, incarnation: u32, replicas: u8) -> Self {
        let me = ReplicaId::new(GroupId(0), slot);
        let log = GroupLog::new(config(me, incarnation, replicas), View::first(replicas));
        let (memory, word, delivered) = (Vec::new(), Acceptance::default(), Vec::new());
        Self { log, memory, word, delivered }
    }

    /// As leader: logs a record.
    fn append(&mut self, record: Record) -> u64 {
        let (index, birth, time_ms) = self.log.next_entry();
        self.log.push(Uncommitted { index, birth, time_ms, record });
        self.memory.push((birth, record));
        index
    }

    /// As follower or candidate: reads an entry that is now in its memory.
    fn read(&mut self, (birth, record): (Ballot, Record)) {
        self.memory.push((birth, record));
        let index = self.memory.len() as u64;
        self.log.push(Uncommitted { index, birth, time_ms: 0, record });
        self.log.note_accepted(index, 0, true);
    }

    fn truncate(&mut self, len: usize) {
        self.log.truncate(len as u64, |_| {});
        self.memory.truncate(len);
    }

    /// Length of the common prefix of both logs.
    fn shares(&self, other: &[(Ballot, Record)]) -> usize {
        self.memory.iter().zip(other).take_while(|(ours, theirs)| ours == theirs).count()
    }

    fn promise(&mut self, ballot: Ballot) {
        if self.log.leads() {
            self.log.step_down();
        }
        self.log.promise(ballot);
    }

    /// Ends a turn: folds committed entries, and writes the acceptance word.
    fn end_turn(&mut self) {
        if let Some(index) = self.log.newly_committed() {
            self.log.commit_to(index);
        }
        while let Some(Uncommitted { index, birth, record, .. }) = self.log.next_committed() {
            match record {
                Record::Message(message) => self.delivered.push((index, message)),
                Record::Group(GroupRecord::NewBallot) => self.log.commits_new_ballot(birth),
                Record::Group(GroupRecord::Evict { slot }) => self.log.commits_evict(slot),
                Record::Group(GroupRecord::Join { slot, incarnation }) => {
                    self.log.commits_join(slot, incarnation, index);
                }
            }
        }
        let me = self.log.config.me.slot;
        self.log.hear_applied(me, Rank::new(self.log.commit_index()));
        if !self.log.leads() && self.log.keeps_ballot() && !self.log.is_silent() {
            self.word = Acceptance { tag: self.log.ballot().tag(), index: self.log.last_index() };
        }
    }
}

struct World {
    replicas: Vec<Replica>,
    incarnations: Vec<u32>,
    /// The deliveries of the replica that has most.
    delivered: Vec<(u64, u64)>,
    messages: u64,
    /// Two replicas that cannot reach each other.
    apart: Option<[usize; 2]>,
    random: u64,
    led: u32,
    joined: u32,
    /// Number of new leaders whose log lacked an entry that f+1 replicas held.
    overwrote: u32,
}

impl World {
    fn new(replicas: u8, seed: u64) -> Self {
        Self {
            replicas: (0..replicas).map(|slot| Replica::new(slot, 0, replicas)).collect(),
            incarnations: vec![0; usize::from(replicas)],
            delivered: Vec::new(),
            messages: 0,
            apart: None,
            random: seed * 2 + 1,
            led: 0,
            joined: 0,
            overwrote: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % bound
    }

    fn two(&mut self, at: usize, other: usize) -> (&mut Replica, &mut Replica) {
        let [one, two] = self.replicas.get_disjoint_mut([at, other]).expect("two replicas");
        (one, two)
    }

    /// Whether writes of one replica reach the other.
    fn reaches(&self, one: usize, other: usize) -> bool {
        let apart = |two: [usize; 2]| two.contains(&one) && two.contains(&other);
        one != other && !self.apart.is_some_and(apart)
    }

    /// Whether the leader may write that log. It asks for a grant if it has none.
    fn lets_in(&mut self, leader: usize, slot: usize) -> bool {
        let ballot = self.replicas[leader].log.ballot();
        let log = &mut self.replicas[slot].log;
        match log.judge(ballot, true, false) {
            GrantDecision::GrantAgain => true,
            GrantDecision::Grant => {
                self.replicas[slot].promise(ballot);
                true
            }
            GrantDecision::Refuse => {
                let promised = log.promised();
                self.replicas[leader].log.hear_of(promised);
                false
            }
            GrantDecision::Wait | GrantDecision::Ignore => false,
        }
    }

    /// A leader writes a follower's log, up to a random entry.
    fn write(&mut self, leader: usize, slot: usize, all: bool) {
        let leads = self.reaches(leader, slot) && self.replicas[leader].log.leads();
        if !leads || !self.lets_in(leader, slot) {
            return;
        }
        let incarnation = self.incarnations[slot];
        let some = 1 + self.below(3);
        let (leader, follower) = self.two(leader, slot);
        let ballot = leader.log.ballot();
        if follower.log.ballot() != ballot {
            let base = follower.shares(&leader.memory);
            follower.truncate(base);
            follower.log.follow(ballot, leader.log.first_index());
        }
        let progress = leader.log.follower(slot as u8);
        if progress.is_none_or(|it| it.incarnation != incarnation) {
            leader.log.add_follower(slot as u8, incarnation, 0);
        }
        let some = if all { leader.memory.len() } else { some };
        for entry in leader.memory.iter().skip(follower.memory.len()).take(some) {
            follower.read(*entry);
        }
        let index = follower.log.last_index();
        if self.below(2) == 0 {
            self.replicas[usize::from(ballot.slot())].log.complete(slot as u8, index);
        }
    }

    /// A replica sets out to lead, and asks some of the others.
    fn campaign(&mut self, slot: usize, all: bool) {
        let me = &mut self.replicas[slot];
        if me.log.role() == Role::Blank || me.log.is_silent() {
            return;
        }
        if me.log.leads() {
            me.log.step_down();
        }
        let ballot = me.log.campaign(Cause::Operator);
        let report = |it: &Replica| (it.log.last_birth(), it.log.last_index());
        let (last, named, admitted) = (report(me), me.log.named(), me.log.admitted());
        let mut won = me.log.granted(slot as u8, self.incarnations[slot], last, named);
        for (other, admitted) in admitted.into_iter().enumerate() {
            if !self.reaches(slot, other) || !all && self.below(3) == 0 {
                continue;
            }
            let incarnation = self.incarnations[other];
            let (me, it) = self.two(slot, other);
            if admitted == incarnation {
                it.log.hear_admitted(ballot);
            }
            match it.log.judge(ballot, false, true) {
                GrantDecision::Grant => it.promise(ballot),
                GrantDecision::Refuse => {
                    me.log.hear_of(it.log.promised());
                    continue;
                }
                _ => continue,
            }
            let (last, named) = (report(it), it.log.named());
            let me = &mut self.replicas[slot];
            won = won.or(me.log.granted(other as u8, incarnation, last, named));
            if let Some(best) = won.take() {
                self.lead(slot, usize::from(best));
                return;
            }
        }
    }

    /// Whether f+1 replicas hold an entry that this log lacks.
    fn lacks_what_a_quorum_holds(&self, log: &[(Ballot, Record)]) -> bool {
        let lacked = |it: &Replica| {
            let at = it.shares(log);
            it.memory.get(at).map(|entry| (at, *entry))
        };
        let lacked: Vec<_> = self.replicas.iter().filter_map(lacked).collect();
        let held =
            |entry| lacked.iter().filter(|it| *it == entry).count() * 2 > self.replicas.len();
        lacked.iter().any(held)
    }

    /// Adopts the best log, and leads.
    fn lead(&mut self, slot: usize, best: usize) {
        if !self.replicas[slot].log.is_named_by(best as u8) {
            return;
        }
        let adopted = self.replicas[best].memory.clone();
        self.overwrote += u32::from(self.lacks_what_a_quorum_holds(&adopted));
        let me = &mut self.replicas[slot];
        let base = me.shares(&adopted);
        me.truncate(base);
        adopted[base..].iter().for_each(|entry| me.read(*entry));
        me.log.begin_to_lead();
        let first = me.append(GroupRecord::NewBallot.into());
        me.log.led_from(first);
        self.led += 1;
    }

    /// A replica loses its memory, unless the group would lose more than it tolerates.
    fn restart(&mut self, slot: usize) {
        let named = |it: &Replica, slot: usize| it.log.view().member(slot as u8).incarnation;
        let lacks = |at: &usize| {
            let whole = self.replicas.iter().filter(|it| named(it, *at) == self.incarnations[*at]);
            whole.count() * 2 <= self.replicas.len()
        };
        let lost = (0..self.replicas.len()).filter(lacks).count();
        if (lost + 1) * 2 < self.replicas.len() {
            self.incarnations[slot] += 1;
            let replicas = self.replicas.len() as u8;
            self.replicas[slot] = Replica::new(slot as u8, self.incarnations[slot], replicas);
        }
    }

    /// A leader sends its state to a replica without one, and logs its eviction or its `Join`.
    fn admit(&mut self, leader: usize, slot: usize) {
        if leader == slot || !self.replicas[leader].log.leads() {
            return;
        }
        let incarnation = self.incarnations[slot];
        let (leader, learner) = self.two(leader, slot);
        if leader.log.view().names(slot as u8, incarnation) {
            return;
        }
        if learner.log.role() == Role::Blank {
            let (log, view) = (&leader.log, leader.log.view().clone());
            let commit = log.commit_index();
            learner.log.restore(commit, log.commit_birth(), 0, view, log.ballot());
            learner.memory = leader.memory[..commit as usize].to_vec();
            learner.delivered.clone_from(&leader.delivered);
            leader.log.gives_state(slot as u8);
        }
        let applied = Rank::new(learner.log.commit_index());
        leader.log.hear_applied(slot as u8, applied);
        let record = if learner.memory == leader.memory {
            leader.log.join(slot as u8, incarnation, &NoOthers)
        } else {
            leader.log.evict(slot as u8, &NoOthers)
        };
        if let Some(record) = record {
            leader.append(record.into());
            self.joined += u32::from(matches!(record, GroupRecord::Join { .. }));
        }
    }

    /// A replica ends its turn. Its deliveries must equal those of the others.
    fn end_turn(&mut self, slot: usize) {
        let it = &mut self.replicas[slot];
        it.end_turn();
        let known = self.delivered.len().min(it.delivered.len());
        assert_eq!(it.delivered[..known], self.delivered[..known], "agreement, slot {slot}");
        self.delivered.extend_from_slice(&it.delivered[known..]);
    }

    /// A replica reads the acceptance word of another and, as its leader, how far it has applied.
    fn hear(&mut self, by: usize, of: usize) {
        let (word, applied) = (self.replicas[of].word, self.replicas[of].log.commit_index());
        if self.reaches(by, of) && word != Acceptance::default() {
            let log = &mut self.replicas[by].log;
            log.acknowledged(of as u8, word);
            log.hear_applied(of as u8, Rank::new(applied));
        }
    }

    /// A leader logs a message.
    fn log_message(&mut self, slot: usize) {
        if self.replicas[slot].log.leads() {
            self.messages += 1;
            self.replicas[slot].append(Record::Message(self.messages));
        }
    }

    /// Two replicas that cannot reach each other lead in turn, and the others follow each of them for a moment. An
    /// entry that only one of them logged reaches others in a later ballot of the same leader, and the other leader
    /// cuts it off: figure 8 of the Raft paper.
    fn quarrel(&mut self, one: usize, other: usize) {
        self.apart = Some([one, other]);
        for slot in [one, other].repeat(4) {
            self.campaign(slot, false);
            // The others may have granted a higher ballot, which it knows now.
            if !self.replicas[slot].log.leads() {
                self.campaign(slot, true);
            }
            self.log_message(slot);
            for _ in 0..self.below(3) {
                let follower = self.below(self.replicas.len());
                self.write(slot, follower, false);
                self.end_turn(follower);
                self.hear(slot, follower);
                self.end_turn(slot);
            }
        }
        self.apart = None;
    }

    fn tick(&mut self, now_ms: u64) {
        for it in &mut self.replicas {
            it.log.tick(now_ms);
        }
    }

    /// One random event.
    fn step(&mut self) {
        let (one, other) = (self.below(self.replicas.len()), self.below(self.replicas.len()));
        if one != other && self.below(64) == 0 {
            self.quarrel(one, other);
        }
        match self.below(64) {
            0..16 if self.replicas[one].log.leads() => self.log_message(one),
            0..32 => self.write(one, other, false),
            32..46 => self.hear(one, other),
            46..58 => self.end_turn(one),
            58..61 => self.campaign(one, false),
            61..63 => self.admit(one, other),
            _ => self.restart(one),
        }
    }

    /// All replicas reach each other, and one leads.
    fn heal(&mut self) {
        let all = self.replicas.len();
        for round in 0..4 * all {
            if !self.replicas.iter().any(|it| it.log.leads() && it.log.keeps_ballot())
                || round < all
            {
                self.campaign(round % all, true);
            }
            for (one, other) in (0..6).flat_map(|_| (0..all * all).map(|at| (at / all, at % all))) {
                self.write(one, other, true);
                self.hear(one, other);
                self.end_turn(one);
                self.admit(one, other);
            }
        }
    }
}

#[test]
fn what_one_replica_delivers_all_deliver_in_the_same_places() {
    let (mut led, mut joined, mut overwrote, mut delivered) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new([3, 3, 5][seed % 3], seed as u64);
        for now_ms in 1..1_500 {
            world.tick(now_ms);
            world.step();
        }
        let before = world.delivered.len();
        world.heal();
        for (slot, it) in world.replicas.iter().enumerate() {
            assert_eq!(it.delivered, world.delivered, "seed {seed}, slot {slot} has less");
            assert_eq!(it.log.commit_index(), it.log.last_index(), "seed {seed}, slot {slot}");
        }
        (led, joined) = (led + world.led, joined + world.joined);
        (overwrote, delivered) = (overwrote + world.overwrote, delivered + before);
    }
    assert!(led > 2_000 && joined > 400 && delivered > 10_000, "{led} {joined} {delivered}");
    assert!(overwrote > 200, "{overwrote}");
}
