//! Large messages along a tree: to a group that is down, and to others; and hints, of which not all comes.

use std::cell::Cell;
use std::collections::BTreeMap;

use skein_protocol::tram::Tram;
use skein_protocol::tram::tree::Tree;

use super::*;
use crate::session_transport::SessionKey;

/// Time in which everything that can be answered is.
const SOON: Duration = Duration::from_millis(500);
const HELD_BYTES_MAX: usize = 8 << 20;

fn tuning() -> Tuning {
    let payload_bytes_max = 1 << 20;
    Tuning { held_bytes_max: HELD_BYTES_MAX, payload_bytes_max, window: 16, ..Tuning::default() }
}

/// Three groups below a root. The last one has nodes of its own.
struct Cluster {
    world: World,
    engines: Vec<Engine<SimFabric, Answer, Tram>>,
    /// Engines that take no turns.
    down: Vec<usize>,
    access: SessionTransport<SimFabric>,
    /// The session of messages that do not go to the last group.
    other: SessionKey,
    /// Messages under way, and the groups that have not answered.
    unanswered: BTreeMap<(SessionKey, u64), GroupSet>,
}

impl Cluster {
    fn start() -> Self {
        let world = World::new(1, SimConfig::default());
        let topology = Topology { nodes: 6, groups: 4, replicas: 3, engines: 1 };
        let at = |first: u16| (first..first + 3).map(|node| Location { node, engine: 0 }).collect();
        let layout = Layout::new(topology, &[at(0), at(0), at(0), at(3)]).unwrap();
        let layout = layout.along(&Tree::breadth(4)).unwrap();
        let engine = |node| {
            let fabric = world.join(&endpoint_name(node, 0));
            let (me, roster) = (Identity::first(node, 0), Roster::unrecorded(node, 0));
            let engine = Engine::<_, _, Tram>::with_roster;
            engine(fabric, &layout, tuning(), me, Arc::new(roster), None, |_| Answer).unwrap()
        };
        let engines = (0..6).map(engine).collect();
        let mut access = SessionTransport::new(world.join("client"), &layout, tuning());
        let other = access.open(SessionId(1));
        let (down, unanswered) = (Vec::new(), BTreeMap::new());
        let mut cluster = Self { world, engines, down, access, other, unanswered };
        cluster.run(|it| it.engines.iter().all(Engine::connected));
        cluster.down.extend([3, 4, 5]);
        cluster
    }

    /// Lets time pass until `over` says that it is enough. Returns whether it did.
    fn run(&mut self, over: impl Fn(&Self) -> bool) -> bool {
        const TURN: Duration = Duration::from_micros(20);
        for _ in 0..SOON.as_micros() / TURN.as_micros() {
            if over(self) {
                return true;
            }
            self.world.advance(TURN);
            for (at, engine) in self.engines.iter_mut().enumerate() {
                if !self.down.contains(&at) {
                    engine.turn();
                }
            }
            let (unanswered, mut answered) = (&mut self.unanswered, Vec::new());
            let turned = self.access.turn(&mut |reply| {
                let message = (reply.session, reply.sequence);
                if let Some(groups) = unanswered.get_mut(&message) {
                    *groups = groups.without(reply.group);
                    if groups.is_empty() {
                        unanswered.remove(&message);
                        answered.push(message);
                    }
                }
            });
            turned.unwrap();
            for (session, sequence) in answered {
                self.access.settle(session, sequence);
            }
        }
        over(self)
    }

    fn multicast(&mut self, session: SessionKey, to: GroupSet, len: usize) -> (SessionKey, u64) {
        let sequence = self.access.multicast(session, to, &vec![7; len]).unwrap();
        self.unanswered.insert((session, sequence), to);
        (session, sequence)
    }

    /// Sessions send as many messages of that length as may be under way, to the group that is down and another one.
    fn overload(&mut self, sessions: u64, len: usize) {
        for name in 0..sessions {
            let session = self.access.open(SessionId(name << 8));
            for _ in 0..tuning().window {
                self.multicast(session, groups(&[2, 3]), len);
            }
        }
        self.run(|_| false);
    }

    /// Sends messages to groups that are not down, one after the other.
    fn serves_others(&mut self, len: usize) -> bool {
        let all = [(groups(&[0, 1]), len), (groups(&[0, 1]), 10), (groups(&[1]), len)];
        all.into_iter().cycle().take(30).all(|(to, len)| {
            let message = self.multicast(self.other, to, len);
            self.run(|it| !it.unanswered.contains_key(&message))
        })
    }

    /// Bytes of payloads that the leader of the root holds.
    fn held(&self) -> usize {
        let up = self.engines.iter().enumerate().filter(|(at, _)| !self.down.contains(at));
        let mut replicas = up.flat_map(|(_, engine)| &engine.replicas);
        let root = replicas.find(|it| it.id.group == GroupId(0) && it.core.log().leads()).unwrap();
        root.payloads.large_bytes()
    }
}

fn groups(groups: &[u16]) -> GroupSet {
    groups.iter().copied().map(GroupId).collect()
}

/// The guards that `Mutant::KeptBytesNotCounted` and `Mutant::RefusedFillBudget` take out.
fn others_are_served_while_a_leaf_is_down() {
    for (len, sessions) in [(16 << 10, 64), (256 << 10, 8), (1 << 20, 2)] {
        let mut cluster = Cluster::start();
        cluster.overload(sessions, len);
        assert!(cluster.serves_others(len), "{len} bytes");
        assert!(cluster.held() <= HELD_BYTES_MAX / 2, "half of it is for others: {len} bytes");
        cluster.down.push(0);
        assert!(cluster.serves_others(len), "the next leaders are in time, too: {len} bytes");
        cluster.down.retain(|at| *at == 0);
        cluster.run(|it| it.unanswered.is_empty());
        assert_eq!(cluster.unanswered.len(), 0, "the leaf is back: {len} bytes");
    }
}

#[test]
fn large_messages_to_a_leaf_that_is_down_leave_room_for_others() {
    others_are_served_while_a_leaf_is_down();
}

#[test]
fn hints_of_which_not_all_comes_count_to_the_budget() {
    const LEN: usize = 1 << 20;
    let mut cluster = Cluster::start();
    cluster.down.clear();
    cluster.run(|_| false);
    // Sessions that stop in the middle of hints to the last group, whose leader is on the fourth node.
    let layout = cluster.engines[0].links.layout.clone();
    let mut rogue = SessionTransport::new(cluster.world.join("rogue"), &layout, tuning());
    for name in 0..6 {
        let session = rogue.open(SessionId(name << 8 | 2));
        rogue.multicast(session, groups(&[0, 3]), &vec![7; LEN]).unwrap();
    }
    let hints = |it: &Cluster| it.engines[3].links.endpoint.assembling().hints;
    while hints(&cluster) < 5 * LEN {
        let before = hints(&cluster);
        rogue.turn(&mut |_| ()).unwrap();
        cluster.world.advance(Duration::from_micros(1));
        cluster.engines.iter_mut().for_each(|engine| _ = engine.turn());
        assert!(hints(&cluster) >= before, "they are slower");
    }
    // Nothing commits there any more, so payloads stay.
    cluster.down.extend([4, 5]);
    for _ in 0..tuning().window {
        cluster.multicast(cluster.other, groups(&[3]), LEN);
    }
    let most = Cell::new(0);
    cluster.run(|it| {
        for replica in &it.engines[3].replicas {
            let large = replica.payloads.large_bytes();
            most.set(most.get().max(large));
            let hints = replica.payloads.hint_bytes() + hints(it);
            assert!(hints == 0 || large + hints <= HELD_BYTES_MAX, "{hints} beside {large}");
        }
        false
    });
    assert!(most.get() > HELD_BYTES_MAX - 5 * LEN, "there are payloads as well");
    assert_eq!(hints(&cluster), 0, "hints go first");
}

#[cfg(feature = "mutants")]
#[test]
fn large_messages_that_fill_the_budget_are_noticed() {
    use skein_protocol::mutants::plant;

    for mutant in [Mutant::KeptBytesNotCounted, Mutant::RefusedFillBudget] {
        plant(Some(mutant));
        let noticed = std::panic::catch_unwind(others_are_served_while_a_leaf_is_down).is_err();
        plant(None);
        assert!(noticed, "{}", mutant.name());
    }
}
