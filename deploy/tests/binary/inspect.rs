//! `skein inspect`: what is said of logs that are sound, torn, damaged, or none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::durable::on_disk;
use crate::support::Sandbox;

/// The objects of a kind that `inspect --json` prints.
fn lines(out: &str, kind: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let lines = out.lines().map(parse);
    lines.filter_map(|mut line| line.get_mut(kind).map(Value::take)).collect()
}

/// The first segment of a node that has records in it, and its blocks of records.
fn segment_with_records(sandbox: &Sandbox, node: u16) -> (PathBuf, Vec<Value>) {
    let data = sandbox.dir.join(format!("node{node}.data"));
    let shown = sandbox.expect(0, &["inspect", "--json", data.to_str().expect("text")]);
    let blocks = lines(&shown.out, "block").into_iter();
    let blocks: Vec<_> = blocks.filter(|block| block["kind"] == "records").collect();
    let file = blocks[0]["file"].as_str().expect("a path").to_owned();
    (file.clone().into(), blocks.into_iter().filter(|block| block["file"] == *file).collect())
}

fn flip(file: &Path, byte: u64) {
    let mut bytes = fs::read(file).expect("it can be read");
    bytes[byte as usize] ^= 1;
    fs::write(file, bytes).expect("it can be written");
}

#[test]
fn a_log_is_shown_and_a_damage_in_it_is_named() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync", "--groups", "1"]);
    for number in 0..20 {
        sandbox.expect(0, &["put", &format!("key{number}"), &"v".repeat(number)]);
    }
    let dir = sandbox.dir.to_str().expect("text").to_owned();
    let running = sandbox.run(&["inspect", "--summary", &dir]);
    assert_eq!(running.out.matches("writes it now").count(), 3, "{}", running.out);
    sandbox.kill_all();

    let all = sandbox.expect(0, &["inspect", &dir]);
    assert_eq!(all.out.matches("\nlog in ").count(), 3, "all nodes of the cluster: {}", all.out);
    for word in ["began", "promised", "ballot", "entry", "message", "delivered", "g0 whole"] {
        assert!(all.out.contains(word), "{word}: {}", all.out);
    }
    let summary = sandbox.expect(0, &["inspect", "--summary", "--json", &dir]);
    assert_eq!(lines(&summary.out, "block").len(), 0);
    let logs = lines(&summary.out, "log");
    assert!(logs.len() == 3 && logs.iter().all(|log| log["sound"] == true), "{logs:?}");

    let (file, blocks) = segment_with_records(&sandbox, 0);
    let block = &blocks[blocks.len() / 2];
    let offset = block["offset"].as_u64().expect("a number");
    let path = file.to_str().expect("text");
    flip(&file, offset + 200);
    let damaged = sandbox.expect(1, &["inspect", path]);
    let lost = format!("DAMAGED: what stood at {offset} was durable, and is lost");
    assert!(damaged.out.contains(&lost), "{}", damaged.out);
    let damaged = sandbox.expect(1, &["inspect", "--json", "--summary", &dir]);
    let logs = lines(&damaged.out, "log");
    assert_eq!(logs[0]["damages"][0]["offset"], offset, "{logs:?}");
    assert_eq!(logs[0]["groups"][0]["whole"], false, "{logs:?}");
    assert_eq!((&logs[0]["sound"], &logs[1]["sound"]), (&false.into(), &true.into()));
    flip(&file, offset + 200);

    // The last block, of which nothing says that it was durable.
    let shown = lines(&sandbox.expect(0, &["inspect", "--json", path]).out, "block");
    let last = shown.last().expect("a block")["offset"].as_u64().expect("a number");
    flip(&file, last + 30);
    let torn = sandbox.expect(0, &["inspect", path]);
    assert!(torn.out.contains(&format!("to offset {last}, where a write is torn")), "{}", torn.out);
    flip(&file, last + 30);

    let copy = sandbox.dir.with_file_name("copy of a segment");
    fs::copy(&file, &copy).expect("there is room");
    sandbox.expect(0, &["inspect", copy.to_str().expect("text")]);
    let cut = fs::File::options().write(true).open(&file).expect("it is there");
    cut.set_len(1 << 19).expect("it can be cut");
    let short = sandbox.expect(1, &["inspect", path]);
    assert!(short.out.contains("should be 1048576 bytes long"), "{}", short.out);
    let refused = sandbox.expect(1, &["inspect", "--summary", &dir]);
    assert!(refused.out.contains("a node cannot start with it"), "{}", refused.out);
    fs::copy(&copy, &file).expect("there is room");
    sandbox.expect(0, &["inspect", "--summary", &dir]);

    // Two nodes' directories are swapped.
    let data = |node: u16| sandbox.dir.join(format!("node{node}.data"));
    let swap = || {
        fs::rename(data(0), data(9)).expect("a name");
        fs::rename(data(1), data(0)).expect("a name");
        fs::rename(data(9), data(1)).expect("a name");
    };
    swap();
    let swapped = sandbox.expect(1, &["inspect", "--summary", &dir]);
    assert!(swapped.out.contains("belongs to node 1, and this is node 0"), "{}", swapped.out);
    swap();
    fs::remove_dir_all(data(2)).expect("it is ours");
    fs::create_dir(data(2)).expect("it is ours");
    let gone = sandbox.expect(1, &["inspect", "--summary", &dir]);
    assert!(gone.out.contains("it is empty: its log is gone"), "{}", gone.out);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn what_is_no_log_is_refused_with_the_reason() {
    let root = tempfile::tempdir().expect("a directory");
    let sandbox = Sandbox::new();
    let at = |name: &str| root.path().join(name);
    fs::write(at("empty"), "").expect("there is room");
    fs::write(at("text"), "text").expect("there is room");
    fs::create_dir(at("nothing")).expect("there is room");
    let segment = "0000000000000001-00000001-0000000000000001.log";
    fs::write(at(segment), "").expect("there is room");
    #[rustfmt::skip]
    let cases = [
        ("nowhere",   2, "there is no file or directory"),
        ("empty",     2, "it is empty: 0 bytes"),
        ("text",      2, "no header is at its beginning"),
        ("nothing",   2, "holds no log: name a segment, the data directory of a node"),
        ("/dev/null", 2, "is neither a file nor a directory"),
    ];
    for (name, code, why) in cases {
        let path = root.path().join(name);
        let ended = sandbox.expect(code, &["inspect", path.to_str().expect("text")]);
        assert!(ended.err.contains(why), "{name}: {}", ended.err);
    }
    // By its name it should be one.
    let ended = sandbox.expect(1, &["inspect", at(segment).to_str().expect("text")]);
    assert!(ended.out.contains("DAMAGED: it is empty"), "{}", ended.out);
    if rustix::process::geteuid().is_root() {
        return; // Nothing is forbidden to this user.
    }
    for name in ["text", "nothing"] {
        let path = at(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("it is ours");
        let ended = sandbox.expect(3, &["inspect", path.to_str().expect("text")]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        assert!(ended.err.contains("Permission denied"), "{}", ended.err);
    }
}

#[test]
fn a_backup_is_shown_and_a_damage_in_it_is_named() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kvstore/backup/tests/format-1");
    let (root, sandbox) = (tempfile::tempdir().expect("a directory"), Sandbox::new());
    let mut files = Vec::new();
    for entry in fs::read_dir(kept).expect("it is kept") {
        let entry = entry.expect("it is kept");
        let copy = root.path().join(entry.file_name());
        fs::copy(entry.path(), &copy).expect("there is room");
        files.push(copy);
    }
    let inspect = |code, path: &Path| {
        sandbox.expect(code, &["inspect", "--json", path.to_str().expect("text")]).out
    };
    let dir = root.path();
    let groups = lines(&inspect(0, dir), "backup")[0]["groups"].as_array().map(Vec::len);
    assert_eq!(groups, Some(2));
    for file in &files {
        assert_eq!(lines(&inspect(0, file), "backup").len(), 1, "{}", file.display());
    }
    let text = sandbox.expect(0, &["inspect", dir.to_str().expect("text")]);
    assert!(text.out.contains("verified: every file is whole"), "{}", text.out);

    let run = files.iter().find(|file| !file.ends_with("MANIFEST")).expect("a run");
    let bytes = fs::metadata(run).expect("it is there").len();
    flip(run, bytes - 1);
    for path in [dir, run] {
        let said = &lines(&inspect(1, path), "file")[0];
        let about = said["about"].as_str().expect("text");
        assert!(said["sound"] == false && about.contains("is damaged"), "{about}");
    }
    fs::remove_file(dir.join("MANIFEST")).expect("it is there");
    let about = &lines(&inspect(1, dir), "file")[0]["about"];
    assert!(about.as_str().expect("text").contains("holds an incomplete backup"), "{about}");
}
