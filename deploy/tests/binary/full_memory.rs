//! Full shared memory, on a small file system of its own.
//!
//! If mounting is not permitted, this test prints so and checks nothing.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Sandbox, until};

/// Three nodes take 32 MiB at the start. Nothing more fits when the rest is filled.
const SIZE: &str = "size=34m,mode=700";
/// How long the cluster may take to continue when there is room again, on a busy machine.
const GOES_ON_WITHIN: Duration = Duration::from_secs(20);

struct SmallMemory(PathBuf);

impl SmallMemory {
    /// Mounts a file system, if that is permitted.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).expect("the temporary directory can be written");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(at);
        let why = match mount.output() {
            Ok(output) if output.status.success() => return Some(Self(at.to_owned())),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("no `mount` command: {error}"),
        };
        println!("full memory: not run: {why}");
        None
    }

    /// Fills all free pages. Returns the file that takes the room.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("fill");
        let mut file = File::create(&path).expect("there is room for its name");
        while file.write_all(&[0; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The slot that leads group 0 with a quorum.
fn leader(sandbox: &Sandbox) -> Option<u64> {
    let status = sandbox.status();
    let group = &status["groups"][0];
    group["leader"].as_u64().filter(|_| group["available"] == true)
}

#[test]
fn a_leader_that_dies_while_memory_is_full_is_replaced_as_soon_as_there_is_room() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let Some(memory) = SmallMemory::mount(&root.path().join("memory")) else { return };
    let sandbox = Sandbox::new();
    let config = sandbox.config(&format!("[node]\nregion_root = '{}'\n", memory.0.display()));
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--config", &config]);
    sandbox.expect(0, &["put", "before", "1"]);
    let filled = memory.fill();
    // The two remaining nodes have not written to each other for this group before.
    sandbox.expect(0, &["admin", "kill", "n0"]);
    until("the death is noticed", || leader(&sandbox) != Some(0));
    fs::remove_file(filled).expect("it is there");
    let freed = Instant::now();
    until("another one leads", || leader(&sandbox).is_some_and(|slot| slot > 0));
    let took = freed.elapsed();
    assert!(took < GOES_ON_WITHIN, "after {took:?}");
    until("its group follows it", || {
        let out = sandbox.run(&["status"]).out;
        out.contains("dead for") && out.matches("ready").count() == 2
    });
    assert_eq!(sandbox.expect(0, &["get", "before"]).out, "1");
    sandbox.expect(0, &["put", "after", "2"]);
    sandbox.expect(0, &["down", "--yes"]);
}
