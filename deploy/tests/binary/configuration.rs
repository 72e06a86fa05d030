//! Flags and files that cannot work, and their error messages.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::durable::on_disk;
use crate::support::Sandbox;

#[test]
fn what_is_printed_is_a_configuration() {
    let sandbox = Sandbox::new();
    let defaults = sandbox.expect(0, &["config", "print"]).out;
    assert!(defaults.contains("# ") && defaults.contains("nodes = 3"), "{defaults}");
    let file = sandbox.config(&defaults);
    assert_eq!(sandbox.expect(0, &["config", "print", "--config", &file]).out, defaults);

    assert!(defaults.contains("not set, so `skein up` chooses it"), "{defaults}");
    let small = sandbox.config("[node]\ndisk_bytes_max = \"1MiB\"\n");
    let refused = sandbox.expect(2, &["config", "print", "--config", &small]);
    assert!(refused.err.contains("skein.toml:2: node.disk_bytes_max = 1MiB"), "{}", refused.err);
    assert!(refused.err.contains("raise the first, or lower the second"), "{}", refused.err);
    let file = sandbox.config("[node]\ndurability = \"sync\"\n");
    let durable = sandbox.expect(0, &["config", "print", "--config", &file]).out;
    assert!(durable.contains("\ndurability = \"sync\"\n"), "{durable}");

    let file = sandbox.config("[topology]\ngroups = 7\n[limits]\nvalue_bytes_max = \"2 MiB\"\n");
    let merged = sandbox.expect(0, &["config", "print", "--config", &file]).out;
    assert!(merged.contains("groups = 7\n") && merged.contains("value_bytes_max = \"2MiB\""));
    assert!(merged.contains("nodes = 3\n"));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_with_its_place() {
    #[rustfmt::skip]
    let cases = [
        ("[topology]\nnodse = 3\n",                       "skein.toml:2: ", "do you mean nodes?"),
        ("[topologie]\nnodes = 3\n",                      "skein.toml:1: ", "do you mean [topology]?"),
        ("nodes = 3\n",                                   "skein.toml:1: ", "belongs into [topology]"),
        ("[limits]\n\nnodes = 3\n",                       "skein.toml:3: ", "belongs into [topology]"),
        ("[topology]\nnodes = \"three\"\n",               "skein.toml:2: ", "a whole number"),
        ("[topology]\nnodes = -1\n",                      "skein.toml:2: ", "a whole number"),
        ("[topology]\nnodes = 70000\n",                   "skein.toml:2: ", "65535"),
        ("[topology]\nnodes = 3.5\n",                     "skein.toml:2: ", "a whole number"),
        ("[topology]\nreplicas = 5\n",                    "skein.toml:2: ", "nodes = 3 (the default)"),
        ("[topology]\nnodes = 5\nreplicas = 4\n",         "skein.toml:3: ", "replicas = 4"),
        ("[topology]\nnodes = 3\n[topology]\n",           "skein.toml:3: ", "not TOML"),
        ("[topology\n",                                   "skein.toml:1: ", "not TOML"),
        ("\u{0}",                                         "skein.toml:1: ", "not TOML"),
        ("[limits]\nvalue_bytes_max = \"1MB\"\n",         "skein.toml:2: ", "64KiB"),
        ("[limits]\nvalue_bytes_max = \"8MiB\"\n",        "skein.toml:2: ", "transaction_bytes_max"),
        ("[limits]\ntransaction_bytes_max = \"8MiB\"\n",  "skein.toml:2: ", "tuning.payload_bytes_max = 4MiB (the default)"),
        ("[limits]\nmemory_bytes_max = \"512TiB\"\n",     "skein.toml:2: ", "topology.nodes = 3 (the default)"),
        ("[tuning]\nlog_bytes = 100000\n",                "skein.toml:2: ", "a power of two"),
        ("[tuning]\nwindow = 0\n",                        "skein.toml:2: ", "1 to 4096"),
        ("[node]\nwaiting = \"sleepy\"\n",                "skein.toml:2: ", "\"adaptive\", \"busy\", \"park\""),
        ("[order]\ntree = \"depth\"\n",                   "skein.toml:2: ", "only tram orders along a tree"),
        ("[order]\nprotocol = \"tram\"\ntree = [1, 0]\n", "skein.toml:3: ", "are each other's ancestors"),
        ("[order]\nprotocol = \"tram\"\ntree = [-1]\n",   "skein.toml:3: ", "parents for 1, and the number of groups is 2"),
        ("[node]\nregion_root = \"relative\"\n",          "skein.toml:2: ", "absolute path"),
    ];
    let sandbox = Sandbox::new();
    for (text, place, why) in cases {
        let file = sandbox.config(text);
        for command in [&["config", "print"][..], &["up", "--detach"]] {
            let refused = sandbox.expect(2, &[command, &["--config", &file]].concat());
            assert!(
                refused.err.contains(place) && refused.err.contains(why),
                "{text:?}: {}",
                refused.err
            );
            assert!(!sandbox.dir.exists(), "nothing was done");
        }
    }
    let missing = sandbox.expect(2, &["config", "print", "--config", "/nowhere/skein.toml"]);
    assert!(missing.err.contains("/nowhere/skein.toml: cannot read"), "{}", missing.err);
}

#[test]
fn flags_that_cannot_work_are_refused() {
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 9] = [
        (&["up", "--nodes", "0"],                    "nodes = 0 (from the command line)"),
        (&["up", "--nodes", "three"],                "--nodes"),
        (&["up", "--nodes", "100000"],               "--nodes"),
        (&["up", "--replicas", "2"],                 "replicas = 2"),
        (&["up", "--nodes", "3", "--replicas", "5"], "nodes = 3 (from the command line)"),
        (&["up", "--groups", "65"],                  "groups = 65"),
        (&["up", "--grups", "2"],                    "--groups"),
        (&["upp"],                                   "up"),
        (&["node"],                                  "--index"),
    ];
    let sandbox = Sandbox::new();
    for (arguments, why) in cases {
        let refused = sandbox.expect(2, arguments);
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
        assert!(!sandbox.dir.exists(), "nothing was done");
    }
    let filter = sandbox.command(&["config", "print"]).env("SKEIN_LOG", "skein=loud").output();
    assert_eq!(filter.unwrap().status.code(), Some(2));
}

#[test]
fn help_names_the_directory_and_the_exit_codes() {
    let sandbox = Sandbox::new();
    let help = sandbox.expect(0, &["up", "--help"]).out;
    assert!(help.contains("$XDG_STATE_HOME/skein/default") && help.contains("SKEIN_DIR"), "{help}");
    assert!(sandbox.expect(0, &["--help"]).out.contains("Exit codes"));
    assert!(sandbox.expect(0, &["--version"]).out.starts_with("skein "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(sandbox.expect(0, &["completions", shell]).out.contains("skein"));
    }
}

#[test]
fn several_hosts_without_a_memory_ceiling_are_told_to_set_one() {
    let sandbox = Sandbox::new();
    let file = sandbox.config(
        "[network]\nfabric = 'tcp'\ncluster = 'geese'\ncertificates = '/tmp'\n\
         addresses = ['203.0.113.1:7400', '203.0.113.2:7400', '203.0.113.3:7400']\n",
    );
    let refused = sandbox.expect(2, &["init", "--config", &file]);
    assert!(refused.err.contains("limits.memory_bytes_max is not set"), "{}", refused.err);
    assert!(refused.err.contains(&file) && refused.err.contains("[limits]"), "{}", refused.err);
    assert!(!sandbox.dir.exists());
}

#[test]
fn the_directory_may_come_from_the_environment() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir.clone();
    let default = |command: &mut Command| {
        let output =
            command.env_remove("SKEIN_DIR").env("XDG_STATE_HOME", &state).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let said = default(&mut sandbox.command(&["status"]));
    assert!(said.contains(state.join("skein/default").to_str().unwrap()), "{said}");
    assert!(sandbox.expect(3, &["status"]).err.contains(state.to_str().unwrap()));
    assert!(sandbox.expect(3, &["status", "--dir", "/nowhere"]).err.contains("in /nowhere:"));
}

#[test]
fn the_doctor_says_what_is_here() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(ended.code, Some(i32::from(report["healthy"] != true)));
    let names: Vec<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    for name in
        ["cores", "memory", "shared memory", "disk", "locked memory", "open files", "RDMA devices"]
    {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_doctor_measures_the_disk_and_leaves_nothing_there() {
    let (dir, sandbox) = on_disk();
    let disk = |sandbox: &Sandbox| {
        let ended = sandbox.run(&["doctor", "--json"]);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.clone().find(|finding| finding["name"] == "disk").unwrap().clone()
    };
    let found = disk(&sandbox);
    let appends = found["appends"].as_array().unwrap();
    let lengths: Vec<_> = appends.iter().map(|append| append["bytes"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [4096, 65536], "{found}");
    for append in appends {
        let [p50, p99] = ["p50_us", "p99_us"].map(|name| append[name].as_u64().unwrap());
        assert!(0 < p50 && p50 <= p99, "{found}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");

    if Path::new("/dev/shm").is_dir() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let found = disk(&Sandbox::with_dir(memory.path().join("cluster")));
        assert_eq!(found["grade"], "note", "{found}");
        assert!(found["advice"].as_str().unwrap().contains("clusters there are in memory"));
    }
}

/// A small file system in memory, if mounting is permitted.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "skein-test"]).arg(at);
        mount.output().is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_file_system_is_a_clear_error() {
    let sandbox = Sandbox::new();
    let root = sandbox.dir.with_file_name("small");
    let Some(_small) = Small::mount(&root) else {
        println!("not run: may not mount a file system");
        return;
    };
    let file = sandbox.config(&format!("[node]\nregion_root = {root:?}\n"));
    let refused = sandbox.expect(3, &["up", "--detach", "--config", &file]);
    for said in ["27.0 MiB", "1.0 MiB free", root.to_str().unwrap(), "remount"] {
        assert!(refused.err.contains(said), "{said}: {}", refused.err);
    }
    assert!(!sandbox.dir.exists());
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn a_root_that_is_not_there_is_a_clear_error() {
    let sandbox = Sandbox::new();
    let file = sandbox.config("[node]\nregion_root = \"/nowhere\"\n");
    let refused = sandbox.expect(3, &["up", "--detach", "--config", &file]);
    assert!(refused.err.contains("node.region_root = /nowhere"), "{}", refused.err);
    assert!(!sandbox.dir.exists());
}
