//! Backups of clusters that serve, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Sandbox, kill, until};

const ACCOUNTS: usize = 64;
/// What an account of the bank is opened with, and all of them together.
const OPENING: i64 = 100;
const TOTAL: i64 = 6_400;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("its name is text")
}

/// Money that moves until the child is killed.
fn bank(sandbox: &Sandbox) -> Child {
    let arguments = ["bench", "bank", "--accounts", "64", "--duration", "600"];
    let mut command = sandbox.command(&arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.expect("the binary runs");
    sandbox.until_under_way();
    child
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
}

/// Balances of the bank's accounts.
fn balances(sandbox: &Sandbox) -> Vec<i64> {
    let lines = sandbox.expect(0, &["scan", "--prefix", "bank/", "--json"]).out;
    let balance = |line: &str| json(line)["value"].as_str()?.parse().ok();
    lines.lines().map(|line| balance(line).expect("a number")).collect()
}

/// A cluster of three groups that is filled from the backup.
fn restored(from: &Path) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", "3"]);
    sandbox.expect(0, &["restore", text(from)]);
    sandbox
}

/// Records to copy, so that a backup takes a while.
fn fill(sandbox: &Sandbox) {
    let brief = ["bench", "ycsb", "-w", "c", "--records", "10000", "--duration", "0.1"];
    sandbox.expect(0, &brief);
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("backup");
    (root, path)
}

#[test]
fn a_backup_of_a_bank_at_work_adds_up_in_another_number_of_groups() {
    let (sandbox, (_root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    fill(&sandbox);
    for number in 0..20 {
        sandbox.expect(0, &["put", &format!("before{number}"), &format!("value{number}")]);
    }
    let bank = bank(&sandbox);
    let report = json(&sandbox.expect(0, &["backup", text(&backup), "--json"]).out);
    end(bank);
    assert_eq!(report["manifest"]["groups"].as_array().map(Vec::len), Some(2));
    assert!(report["keys"].as_u64() >= Some(10_000 + 20 + ACCOUNTS as u64), "{report}");
    sandbox.expect(0, &["down", "--yes"]);

    let other = restored(&backup);
    let balances = balances(&other);
    assert_eq!(balances.len(), ACCOUNTS);
    assert_eq!(balances.iter().sum::<i64>(), TOTAL, "{balances:?}");
    assert!(balances.iter().any(|balance| *balance != OPENING), "money had moved");
    for number in 0..20 {
        let got = other.expect(0, &["get", &format!("before{number}")]);
        assert_eq!(got.out, format!("value{number}"));
    }
    let again = other.expect(2, &["restore", text(&backup)]);
    assert!(again.err.contains("only an empty one is filled"), "{}", again.err);
    let second = backup.with_file_name("second");
    let copy = json(&other.expect(0, &["backup", text(&second), "--json"]).out);
    assert_eq!((&copy["keys"], &copy["bytes"]), (&report["keys"], &report["bytes"]));
    other.expect(0, &["down", "--yes"]);
}

#[test]
fn a_node_that_dies_meanwhile_costs_time_and_nothing_else() {
    let (sandbox, (_root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    fill(&sandbox);
    let bank = bank(&sandbox);
    let mut taking = sandbox.command(&["backup", text(&backup)]).spawn().expect("the binary runs");
    until("the backup has begun", || backup.join("group-0.run-0").exists());
    // It leads group 1, and makes the copy of group 0.
    kill(sandbox.pid(1).expect("it runs"), Signal::KILL);
    assert!(taking.wait().expect("it has ended").success());
    end(bank);
    sandbox.expect(0, &["down", "--yes"]);
    let other = restored(&backup);
    assert_eq!(balances(&other).iter().sum::<i64>(), TOTAL);
    other.expect(0, &["down", "--yes"]);
}

#[test]
fn a_backup_that_is_killed_is_incomplete_and_refused_as_such() {
    let (sandbox, (_root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    fill(&sandbox);
    let mut taking = sandbox.command(&["backup", text(&backup)]).spawn().expect("the binary runs");
    until("the backup has begun", || backup.join("group-0.run-0").exists());
    taking.kill().expect("it runs");
    taking.wait().expect("it has ended");
    assert!(!backup.join("MANIFEST").exists(), "it was killed too late");
    let refused = sandbox.expect(3, &["restore", text(&backup)]);
    assert!(refused.err.contains("incomplete backup"), "{}", refused.err);
    let refused = sandbox.expect(3, &["backup", text(&backup)]);
    assert!(refused.err.contains("incomplete backup"), "{}", refused.err);
    // Its session ends by itself, and with it what it had begun.
    sandbox.expect(0, &["backup", text(&backup.with_file_name("second"))]);
    sandbox.expect(0, &["down", "--yes"]);
}

#[test]
fn what_is_no_whole_backup_is_refused_before_anything_is_written() {
    let (sandbox, (root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    for number in 0..50 {
        sandbox.expect(0, &["put", &format!("key{number}"), "value"]);
    }
    sandbox.expect(0, &["backup", text(&backup)]);
    let second = root.path().join("second");
    sandbox.expect(0, &["backup", text(&second)]);
    sandbox.expect(0, &["down", "--yes"]);

    let other = Sandbox::new();
    other.expect(0, &["up", "--detach", "--groups", "1"]);
    let run = backup.join("group-1.run-0");
    let whole = fs::read(&run).expect("a file");
    let refused = |what: &str| {
        let refused = other.expect(3, &["restore", text(&backup)]);
        assert!(refused.err.contains(what), "{what}: {}", refused.err);
        assert!(refused.err.contains("group-1.run-0"), "{}", refused.err);
    };
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 4;
    fs::write(&run, &bytes).expect("written");
    refused("does not match its checksum");
    fs::write(&run, &whole[..whole.len() - 3]).expect("written");
    refused("is damaged");
    fs::remove_file(&run).expect("removed");
    refused("is missing");
    fs::copy(second.join("group-1.run-0"), &run).expect("copied");
    refused("belongs to another backup");
    fs::write(&run, whole).expect("written");
    let nothing = other.expect(3, &["restore", text(&root.path().join("nowhere"))]);
    assert!(nothing.err.contains("nowhere"), "{}", nothing.err);
    other.expect(0, &["restore", text(&backup)]);
    assert_eq!(other.expect(0, &["get", "key49"]).out, "value");
    other.expect(0, &["down", "--yes"]);
}

#[test]
fn what_does_not_fit_into_the_cluster_is_refused_before_anything_is_written() {
    let (sandbox, (_root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    sandbox.expect(0, &["put", "key", &"v".repeat(3000)]);
    sandbox.expect(0, &["backup", text(&backup)]);
    sandbox.expect(0, &["down", "--yes"]);
    let other = Sandbox::new();
    let config = other.config("[limits]\nvalue_bytes_max = 2000\n");
    other.expect(0, &["up", "--detach", "--config", &config]);
    let refused = other.expect(2, &["restore", text(&backup)]);
    assert!(refused.err.contains("limits.value_bytes_max"), "{}", refused.err);
    assert_eq!(other.expect(0, &["scan"]).out, "");
    other.expect(0, &["down", "--yes"]);
}

#[test]
fn a_backup_whose_report_is_not_heard_is_whole() {
    let (sandbox, (_root, backup)) = (Sandbox::new(), place());
    sandbox.expect(0, &["up", "--detach"]);
    sandbox.expect(0, &["put", "key", "value"]);
    let mut command = sandbox.command(&["backup", text(&backup)]);
    let full = fs::File::options().write(true).open("/dev/full").expect("a device");
    let ended = command.stdout(full).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("is whole; only the output could not be written"), "{said}");
    sandbox.expect(0, &["inspect", text(&backup)]);
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(restored(&backup).expect(0, &["get", "key"]).out, "value");
}

#[test]
fn a_pipe_in_place_of_a_file_of_a_backup_is_refused() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kvstore/backup/tests/format-1");
    let (root, sandbox) = (tempfile::tempdir().expect("a directory"), Sandbox::new());
    let mut files = Vec::new();
    for entry in fs::read_dir(kept).expect("it is kept") {
        let entry = entry.expect("it is kept");
        fs::copy(entry.path(), root.path().join(entry.file_name())).expect("there is room");
        files.push(root.path().join(entry.file_name()));
    }
    sandbox.expect(0, &["up", "--detach"]);
    for file in files {
        let bytes = fs::read(&file).expect("it is there");
        fs::remove_file(&file).expect("it is ours");
        let made = std::process::Command::new("mkfifo").arg(&file).status().expect("it is there");
        assert!(made.success());
        let said = format!("{} is no regular file", file.display());
        let inspected = sandbox.expect(1, &["inspect", text(root.path())]);
        assert!(inspected.out.contains(&said), "{}", inspected.out);
        let restored = sandbox.run(&["restore", text(root.path())]);
        assert!(restored.code != Some(0) && restored.err.contains(&said), "{}", restored.err);
        fs::remove_file(&file).expect("it is ours");
        fs::write(&file, bytes).expect("there is room");
    }
    sandbox.expect(0, &["down", "--yes"]);
}
