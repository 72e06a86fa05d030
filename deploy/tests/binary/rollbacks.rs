//! Clusters with durability `async` that lose their power at moments that a seed draws, under transfers between accounts.
//!
//! Each client sends numbered transfers, which its name and their numbers determine, and counts them in the same transaction. So
//! after a loss of power the counters say what every account must hold: a transaction by halves, or one that is missing
//! in front of another of the same client, shows, wherever the cluster has returned to.
//!
//! `SKEIN_ROLLBACK_SEEDS=100..200` runs other seeds than those of the gate.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use skein_client::{Client, Operation, Transaction};

use crate::durable::on_disk;
use crate::returning::{client, floor, kill_nodes, no_panic, now_us};
use crate::support::{Sandbox, kill};
use crate::tampering::{Random, seeds_of};

/// The seeds of the gate.
const SEEDS: Range<u64> = 0..2;
const CLIENTS: u64 = 4;
const ACCOUNTS: u64 = 24;
const ROUNDS: u64 = 4;

/// What a client does as its transfer `number`: from one account to another one, so much.
fn transfer(client: u64, number: u64) -> (u64, u64, i64) {
    let mut random = Random(client << 32 | number);
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    (from, to, 1 + random.below(100).cast_signed())
}

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

fn counter(client: u64) -> Vec<u8> {
    format!("transfers of {client}").into_bytes()
}

/// Sends transfers until the cluster is gone. Returns those that were acknowledged, with the times.
fn load(sandbox: &Sandbox, client: u64, from: u64, ends: &AtomicBool) -> Vec<(u64, u64)> {
    let mut connected = Client::connect(&sandbox.dir).expect("the cluster runs");
    connected.set_timeout(Duration::from_secs(2));
    let mut acknowledged = Vec::new();
    for number in from.. {
        let (payer, payee, amount) = transfer(client, number);
        let mut all = Transaction::of(Operation::Increment { key: account(payer), by: -amount });
        all.then.push(Operation::Increment { key: account(payee), by: amount });
        let value = number.to_string().into_bytes();
        all.then.push(Operation::Put { key: counter(client), value });
        if ends.load(Ordering::Relaxed) || connected.transact(&all).is_err() {
            break;
        }
        acknowledged.push((number, now_us()));
    }
    acknowledged
}

fn number(client: &mut Client, key: Vec<u8>) -> i64 {
    let value = client.get(key).expect("it serves").unwrap_or_else(|| b"0".to_vec());
    String::from_utf8_lossy(&value).parse().expect("a number")
}

/// Reads how far each client got, and checks all accounts against that.
fn check(sandbox: &Sandbox) -> Vec<u64> {
    let mut reader = client(sandbox);
    let counters: Vec<u64> =
        (0..CLIENTS).map(|client| number(&mut reader, counter(client)).cast_unsigned()).collect();
    let mut expected = BTreeMap::<u64, i64>::new();
    for (client, last) in (0..).zip(&counters) {
        for (payer, payee, amount) in (1..=*last).map(|number| transfer(client, number)) {
            *expected.entry(payer).or_default() -= amount;
            *expected.entry(payee).or_default() += amount;
        }
    }
    for at in 0..ACCOUNTS {
        let expected = expected.get(&at).copied().unwrap_or_default();
        assert_eq!(number(&mut reader, account(at)), expected, "account {at}, after {counters:?}");
    }
    counters
}

/// Starts the cluster again, with one disk less now and then.
fn up(sandbox: &Sandbox, random: &mut Random) {
    let data = sandbox.dir.join(format!("node{}.data", random.below(3)));
    let aside = sandbox.dir.with_file_name("aside");
    let lost = random.below(3) == 0;
    if lost {
        fs::rename(&data, &aside).expect("it is there");
    }
    let up = sandbox.run(&["up", "--detach"]);
    if up.code != Some(0) {
        // A node that was started alone had not written its state to its new log yet, and another disk is gone.
        assert!(lost && up.err.contains("--accept-lost-disks"), "{}", up.err);
        fs::rename(&aside, &data).expect("it was put there");
        sandbox.expect(0, &["up", "--detach"]);
    }
    let _ = fs::remove_dir_all(&aside);
}

fn run(seed: u64) {
    println!("seed {seed}"); // Shown on failure.
    let mut random = Random(seed);
    let (_dir, sandbox) = on_disk();
    let config = sandbox.config("[node]\ndurability = \"async\"\nlag_ms_max = 400\n");
    sandbox.expect(0, &["up", "--detach", "--groups", "3", "--config", &config]);
    let mut counters = vec![0; CLIENTS as usize];
    for round in 0..ROUNDS {
        let ends = AtomicBool::new(false);
        let (acknowledged, saved) = thread::scope(|scope| {
            let load = |(client, last): (u64, &u64)| {
                let (from, sandbox, ends) = (last + 1, &sandbox, &ends);
                scope.spawn(move || load(sandbox, client, from, ends))
            };
            let loads: Vec<_> = (0..).zip(&counters).map(load).collect();
            if random.below(2) == 0 {
                thread::sleep(Duration::from_millis(random.below(800)));
                sandbox
                    .pid(random.below(3) as u16)
                    .into_iter()
                    .for_each(|pid| kill(pid, Signal::KILL));
            }
            thread::sleep(Duration::from_millis(random.below(1_500)));
            let saved = floor(&sandbox);
            if random.below(4) == 0 && round > 0 {
                kill_nodes(&sandbox);
            } else {
                sandbox.kill_all();
                up(&sandbox, &mut random);
            }
            ends.store(true, Ordering::Relaxed);
            let ended = loads.into_iter().map(|load| load.join().expect("it does not panic"));
            (ended.collect::<Vec<_>>(), saved)
        });
        let found = check(&sandbox);
        for (client, acknowledged) in (0..).zip(&acknowledged) {
            let before =
                acknowledged.iter().rfind(|(_, at)| *at < saved).map(|(number, _)| *number);
            let least = before.unwrap_or_default();
            assert!(
                found[client] >= least,
                "round {round}: {found:?}, and {least} was acknowledged"
            );
        }
        counters = found;
        no_panic(&sandbox);
        // From the next start on, what a node has not synced is lost with its process.
        for node in 0..3 {
            fs::write(sandbox.dir.join(format!("node{node}.disk")), format!("seed={seed}"))
                .expect("the directory can be written");
        }
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn wherever_the_power_goes_the_cluster_returns_to_one_place_in_the_order() {
    seeds_of("SKEIN_ROLLBACK_SEEDS", SEEDS).into_iter().for_each(run);
}
