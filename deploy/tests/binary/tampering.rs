//! Files of a durable cluster that something has changed: a bit has flipped, a file is cut short, gone, or another one.
//! A seed draws the file and the change. One node is hit at a time, or what all share, so a majority of each group is whole:
//! everything that was acknowledged is served, at once or when what a message names is put back. Nothing panics.
//!
//! `SKEIN_TAMPER_SEEDS=100..200` runs other seeds than those of the gate.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::durable::on_disk;
use crate::support::{Ended, Sandbox, until};

/// The seeds of the gate: of the newest segment, bits that flip, zeroes, an end that is cut off, and the segments of another
/// node and of another cluster; a segment that is gone; and of the other files, those of others in their places.
const SEEDS: [u64; 12] = [3, 8, 9, 11, 16, 20, 29, 34, 57, 104, 117, 284];

/// The seeds that an environment variable names, or else those of the gate.
pub(crate) fn seeds_of(variable: &str, gate: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let Ok(given) = std::env::var(variable) else { return gate.into_iter().collect() };
    let ends =
        given.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from, to) = ends.unwrap_or_else(|| panic!("{variable} is FROM..TO"));
    (from..to).collect()
}

/// A generator of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// One bit of what the file holds, or of all of it.
    Flip,
    /// Some blocks are zeroed.
    Zero,
    /// It is cut short anywhere.
    Cut,
    Empty,
    /// Bytes are appended.
    Longer,
    Gone,
    /// It is a copy of the file of another node.
    OfAnotherNode,
    /// It is a copy of the same file of another cluster.
    OfAnotherCluster,
}

const HARMS: [Harm; 8] = [
    Harm::Flip,
    Harm::Zero,
    Harm::Cut,
    Harm::Empty,
    Harm::Longer,
    Harm::Gone,
    Harm::OfAnotherNode,
    Harm::OfAnotherCluster,
];

/// The files of a node's data, in the order of their names.
fn data(dir: &Path, node: u64) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir.join(format!("node{node}.data"))).expect("data");
    let mut files: Vec<_> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Bytes of a file up to the last that is not zero.
fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).expect("it can be read");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// The file to change: twice out of three a segment.
fn victim(dir: &Path, node: u64, random: &mut Random) -> PathBuf {
    if random.below(3) > 0 {
        let files = data(dir, node);
        // As often the newest that holds something, whatever number of others there are.
        let newest = files.iter().rfind(|file| used(file) > 0).expect("a segment");
        return if random.below(2) == 0 { newest.clone() } else { random.of(&files).clone() };
    }
    let own = ["incarnation", "identity", "peers", "lock"];
    let shared = ["cluster.json", "cluster.json.copy", "cluster.toml", "lock"];
    match random.below(2) {
        0 => dir.join(format!("node{node}.{}", random.of(&own))),
        _ => dir.join(random.of(&shared)),
    }
}

/// The file of another node, or of the same node of another cluster, that is most like this one.
fn counterpart(path: &Path, node: u64, other: &Path, in_other: u64) -> Option<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).expect("text");
    if path.parent().is_some_and(|parent| parent.extension().is_some_and(|kind| kind == "data")) {
        return data(other, in_other).into_iter().rfind(|file| used(file) > 0);
    }
    let name = name.replace(&format!("node{node}."), &format!("node{in_other}."));
    Some(other.join(name)).filter(|other| other != path && other.is_file())
}

/// Changes a file. Returns what was done.
fn tamper(path: &Path, node: u64, foreign: &Path, random: &mut Random) -> Option<String> {
    let harm = *random.of(&HARMS);
    let length = fs::metadata(path).ok()?.len();
    let open = || fs::File::options().read(true).write(true).open(path).expect("it is there");
    let place = |random: &mut Random| {
        let among = if random.below(4) == 0 { length } else { used(path) };
        random.below(among.max(1))
    };
    let mut about = format!("{harm:?}");
    match harm {
        _ if length == 0 && harm != Harm::Gone && harm != Harm::Longer => return None,
        Harm::Flip => {
            let (at, bit, mut file, mut byte) = (place(random), random.below(8), open(), [0]);
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.read_exact(&mut byte))
                .expect("a byte");
            byte[0] ^= 1 << bit;
            file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&byte)).expect("a byte");
            about = format!("bit {bit} of byte {at}");
        }
        Harm::Zero => {
            let (at, mut file) = (place(random) / 4096 * 4096, open());
            let many = (4096 << random.below(5)).min(length - at) as usize;
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.write_all(&vec![0; many]))
                .expect("room");
            about = format!("{many} zeroes at {at}");
        }
        Harm::Cut => {
            let at = place(random);
            open().set_len(at).expect("it can be cut");
            about = format!("cut to {at} of {length} bytes");
        }
        Harm::Empty => open().set_len(0).expect("it can be cut"),
        Harm::Longer => {
            let mut file = open();
            file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(b"and more\n")).expect("room");
        }
        Harm::Gone => fs::remove_file(path).expect("it is there"),
        Harm::OfAnotherNode | Harm::OfAnotherCluster => {
            let (dir, of) = match harm {
                Harm::OfAnotherNode => (
                    path.ancestors().find(|dir| dir.join("cluster.toml").exists())?,
                    (node + 1) % 3,
                ),
                _ => (foreign, node),
            };
            let other = counterpart(path, node, dir, of)?;
            fs::copy(&other, path).expect("a copy");
        }
    }
    Some(about)
}

/// Everything that the cluster holds, as a scan prints it.
#[track_caller]
fn holds(sandbox: &Sandbox, keys: u64) {
    let found = sandbox.expect(0, &["scan", "--prefix", "key", "--keys-only"]);
    let mut found: Vec<&str> = found.out.lines().collect();
    found.sort_unstable();
    let mut expected: Vec<_> = (0..keys).map(|key| format!("key{key}")).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[track_caller]
fn no_panic(sandbox: &Sandbox, said: &Ended) {
    assert!(!said.err.contains("panicked"), "{}", said.err);
    for log in ["node0.log", "node1.log", "node2.log", "supervisor.log"] {
        let text = fs::read(sandbox.dir.join(log)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("panicked"), "{log}: {text}");
    }
}

#[test]
fn whatever_file_is_changed_nothing_that_was_acknowledged_is_lost() {
    let (_foreign_dir, foreign) = on_disk();
    foreign.expect(0, &["up", "--detach", "--durability", "sync"]);
    foreign.expect(0, &["put", "key0", "foreign"]);
    foreign.expect(0, &["down"]);
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    let mut keys = 0;
    for seed in seeds_of("SKEIN_TAMPER_SEEDS", SEEDS) {
        let mut random = Random(seed);
        for _ in 0..2 {
            sandbox.expect(0, &["put", &format!("key{keys}"), &format!("value{keys}")]);
            keys += 1;
        }
        if random.below(2) == 0 {
            sandbox.kill_all();
        } else {
            sandbox.expect(0, &["down"]);
        }
        let node = random.below(3);
        let (path, before) = loop {
            let path = victim(&sandbox.dir, node, &mut random);
            if let Ok(before) = fs::read(&path) {
                break (path, before);
            }
        };
        let done = tamper(&path, node, &foreign.dir, &mut random);
        let name = path.strip_prefix(&sandbox.dir).expect("a file of the cluster").display();
        println!("seed {seed}: node {node}, {name}: {}", done.as_deref().unwrap_or("unchanged"));
        let up = sandbox.run(&["up", "--detach"]);
        println!(
            "  exit code {:?}{}{}",
            up.code,
            if up.err.is_empty() { "" } else { ": " },
            up.err.trim_end()
        );
        no_panic(&sandbox, &up);
        match up.code {
            Some(0) => {}
            // It runs without the node, and says which.
            Some(5) => {
                assert!(up.err.contains(&format!("n{node} ")), "{}", up.err);
                holds(&sandbox, keys);
                sandbox.expect(0, &["down"]);
                let data = sandbox.dir.join(format!("node{node}.data"));
                let anew = random.below(2) == 0;
                if anew {
                    // The node takes the data of the others.
                    fs::remove_dir_all(&data).expect("it is there");
                }
                if !(anew && path.starts_with(&data)) {
                    fs::write(&path, &before).expect("it can be put back");
                }
                sandbox.expect(0, &["up", "--detach"]);
            }
            // It does not run, and says which file it cannot use.
            code => {
                assert_eq!(code, Some(3), "{}", up.err);
                let file = path.file_name().and_then(|name| name.to_str()).expect("text");
                assert!(up.err.contains(file), "{file} is not named: {}", up.err);
                fs::write(&path, &before).expect("it can be put back");
                sandbox.expect(0, &["up", "--detach"]);
            }
        }
        holds(&sandbox, keys);
        let got = sandbox.expect(0, &["get", "key0"]);
        assert_eq!(got.out, "value0");
        until("all nodes are ready", || crate::disks::ready(&sandbox));
        no_panic(&sandbox, &up);
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
    foreign.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_log_is_executed_by_no_program_with_other_results() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    sandbox.expect(0, &["put", "key0", "value0"]);
    sandbox.expect(0, &["down"]);
    let files = ["cluster.json", "cluster.json.copy"].map(|name| sandbox.dir.join(name));
    let made = fs::read(&files[0]).expect("a manifest");
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let rewrite = |edit: &dyn Fn(&mut Value)| {
        let mut manifest = made.clone();
        // As a program that wrote no checksum would have.
        manifest.as_object_mut().expect("an object").remove("checksum");
        edit(&mut manifest);
        for file in &files {
            fs::write(file, manifest.to_string()).expect("it can be written");
        }
    };

    rewrite(&|manifest| manifest["behaviour"]["behaviour"] = "0".into());
    let refused = sandbox.expect(3, &["up", "--detach"]);
    for part in ["commands have other results", "behaviour is 0 there", "skein backup"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }

    // A cluster that was made before this was recorded has it from its next start on.
    rewrite(&|manifest| {
        let entries = manifest.as_object_mut().expect("an object");
        assert!(entries.remove("limits").is_some() && entries.remove("behaviour").is_some());
    });
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "key0"]).out, "value0");
    let now = fs::read(&files[0]).expect("a manifest");
    let now: Value = serde_json::from_slice(&now).expect("JSON");
    for entry in ["limits", "behaviour"] {
        assert_eq!(now[entry], made[entry], "{entry}");
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_manifest_or_a_configuration_that_is_wrong_hides_and_removes_no_data() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    sandbox.expect(0, &["put", "key0", "value0"]);
    sandbox.kill_all();
    let path = |name: &str| sandbox.dir.join(name);
    let [manifest, copy] = ["cluster.json", "cluster.json.copy"].map(path);
    let whole = fs::read_to_string(&manifest).expect("text");
    let flipped = whole.replacen("\"nodes\": 3", "\"nodes\": 1", 1);
    assert_ne!(flipped, whole);

    // The copy stands in for it, and the next start mends it.
    fs::write(&manifest, &flipped).expect("it can be written");
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "key0"]).out, "value0");
    sandbox.expect(0, &["down"]);
    assert_eq!(fs::read_to_string(&manifest).expect("text"), whole);

    for file in [&manifest, &copy] {
        fs::write(file, &flipped).expect("it can be written");
    }
    let refused = sandbox.expect(3, &["up", "--detach"]);
    let why = "cluster.json is not the manifest of a cluster: its checksum is not right";
    assert!(refused.err.contains(why), "{}", refused.err);
    let refused = sandbox.expect(3, &["down", "--yes"]);
    assert!(refused.err.contains("nothing was done, because there is data"), "{}", refused.err);

    // Without both, the data belongs to nobody who could be started.
    for file in [&manifest, &copy] {
        fs::remove_file(file).expect("a file");
    }
    let refused = sandbox.expect(3, &["up", "--detach"]);
    for part in ["node0.data is the data of a node", "put the newest copy of them back"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    sandbox.expect(3, &["down", "--wipe", "--yes"]);
    assert!(path("node0.data").exists());
    fs::write(&manifest, &whole).expect("it can be written");

    let config = path("cluster.toml");
    let made = fs::read_to_string(&config).expect("text");
    for (was, is, entry) in [
        ("replicas = 3", "replicas = 1", "topology.replicas = 1, and the cluster was made with 3"),
        ("groups = 2", "groups = 3", "topology.groups = 3, and the cluster was made with 2"),
        ("\"sync\"", "\"memory\"", "node.durability = memory, and the cluster was made with sync"),
        (
            "scan_pairs_max",
            "scan_pairs_max = 7 #",
            "limits.scan_pairs_max = 7, and the cluster was made with 10000",
        ),
    ] {
        let entry_line = made.lines().find(|line| !line.starts_with('#') && line.contains(was));
        let line = entry_line.expect("an entry");
        fs::write(
            &config,
            made.replace(&format!("\n{line}\n"), &format!("\n{}\n", line.replace(was, is))),
        )
        .expect("it can be written");
        let refused = sandbox.expect(3, &["up", "--detach"]);
        assert!(refused.err.contains(entry), "{}", refused.err);
    }
    fs::write(&config, &made).expect("it can be written");
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "key0"]).out, "value0");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}
