//! Full and read-only disks, logs without a reader, removed directories and failing admin sockets:
//! none of these ends a node or loses data.
//!
//! If file systems may not be mounted, the tests that need one print so and check nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::support::{Ended, Sandbox, is_running, kill, until};

/// A mounted file system, unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    /// Calls `mount` with these arguments and the directory; `None` if mounting is not permitted.
    fn at(path: &Path, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(arguments).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                println!("file systems: not run: mount: {}", why.trim());
                None
            }
            Err(error) => {
                println!("file systems: not run: no `mount` command: {error}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// A cluster with its directory on a small disk of its own, and some data.
fn on_a_small_disk() -> Option<(Sandbox, Mount)> {
    let sandbox = Sandbox::with_dir("disk/cluster");
    let disk = sandbox.dir.parent().unwrap();
    fs::create_dir(disk).unwrap();
    let mount = Mount::at(disk, &["-t", "tmpfs", "-o", "size=1m", "tmpfs"])?;
    sandbox.expect(0, &["up", "--detach"]);
    write(&sandbox);
    Some((sandbox, mount))
}

const KEYS: usize = 10;

fn write(sandbox: &Sandbox) {
    for key in 0..KEYS {
        sandbox.expect(0, &["put", &format!("key{key}"), "value"]);
    }
}

#[track_caller]
fn check(sandbox: &Sandbox) {
    for key in 0..KEYS {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{key}")]).out.trim(), "value");
    }
}

/// Writes to a file until the disk is full.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for chunk in [1 << 16, 1 << 10, 1] {
        while file.write_all(&vec![0; chunk]).is_ok() {}
    }
}

fn all_ready(sandbox: &Sandbox) -> bool {
    let status = sandbox.run(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap_or_default();
    (0..3).all(|node| status["nodes"][node]["status"]["ready"] == true)
}

fn lines_lost(sandbox: &Sandbox, node: usize) -> u64 {
    sandbox.status()["nodes"][node]["status"]["log_lines_lost"].as_u64().unwrap_or(0)
}

/// Stops the cluster and checks that nothing is left.
#[track_caller]
fn end(sandbox: &Sandbox, more: &[i32]) {
    let (regions, mut pids) = (sandbox.regions(), sandbox.pids());
    pids.extend(more);
    pids.extend(sandbox.supervisor());
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

/// The disk of the cluster's directory is full, and nodes die: the others warn in logs that cannot
/// be written, and the count of a new incarnation cannot be written to a new file.
#[test]
fn a_full_disk_ends_no_node_and_keeps_none_from_starting() {
    let Some((sandbox, _disk)) = on_a_small_disk() else { return };
    let filler = sandbox.dir.parent().unwrap().join("filler");
    fill(&filler);
    let pids = sandbox.pids();
    for (node, pid) in pids.iter().enumerate() {
        kill(*pid, Signal::KILL);
        until("the killed node runs again", || {
            sandbox.incarnations(node as u16) == 2 && all_ready(&sandbox)
        });
        for other in &pids[node + 1..] {
            assert!(is_running(*other), "node {node} was killed, and process {other} is gone too");
        }
        check(&sandbox);
    }
    assert!((0..3).any(|node| lines_lost(&sandbox, node) > 0), "{}", sandbox.status());
    let shown = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(shown.contains("of its log could not be written"), "{shown}");
    assert!(sandbox.supervisor().is_some());
    // When there is room again, the logs continue and report the lines that they lack.
    fs::remove_file(filler).unwrap();
    kill(sandbox.pid(0).unwrap(), Signal::KILL);
    until("a log says what it lacks", || {
        let logs = ["node1.log", "node2.log", "supervisor.log"];
        let read = |name: &&str| fs::read_to_string(sandbox.dir.join(name)).unwrap_or_default();
        logs.iter().map(read).any(|log| log.contains("of this log could not be written"))
    });
    until("node 0 is back", || sandbox.incarnations(0) == 3 && all_ready(&sandbox));
    end(&sandbox, &[]);
}

/// A file that does not fit is not created in part, and a failed command can be repeated.
#[test]
fn a_full_disk_keeps_nothing_of_what_it_has_no_room_for() {
    let sandbox = Sandbox::with_dir("disk/cluster");
    let disk = sandbox.dir.parent().unwrap();
    fs::create_dir(disk).unwrap();
    let Some(_disk) = Mount::at(disk, &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]) else { return };
    let filler = disk.join("filler");
    fill(&filler);
    let network = "[network]\nfabric = 'tcp'\ncluster = 'full'\nencryption = 'never'\n\
                   addresses = ['127.0.0.1:7400', '127.0.0.2:7400', '127.0.0.3:7400']\n";
    let (config, keys) = (sandbox.config(network), disk.join("keys"));
    let pki = ["pki", "init", "--out", keys.to_str().unwrap()];
    for arguments in [&["up", "--detach"][..], &["init", "--config", &config], &pki] {
        let refused = sandbox.expect(3, arguments).err;
        assert!(refused.contains(disk.to_str().unwrap()), "{arguments:?}: {refused}");
        assert!(refused.contains("No space left on device"), "{arguments:?}: {refused}");
        assert!(!sandbox.dir.exists(), "{arguments:?} leaves a directory");
    }
    fs::remove_file(filler).unwrap();
    sandbox.expect(0, &pki);
    sandbox.expect(0, &["up", "--detach"]);
    end(&sandbox, &[]);
}

#[test]
fn an_answer_that_nothing_takes_is_said_to_be_one() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended: Ended =
        sandbox.command(&["incr", "count"]).stdout(full).output().expect("the binary runs").into();
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(ended.err.contains("cannot write to standard output: No space left"), "{}", ended.err);
    assert!(ended.err.contains("the increment was done, and the number is 1"), "{}", ended.err);
    assert_eq!(sandbox.expect(0, &["get", "count"]).out.trim(), "1");
}

/// The directory becomes read-only: a node that dies stays dead, because it cannot record its new
/// incarnation, and returns by itself when the directory is writable again.
#[test]
fn a_read_only_directory_ends_no_node() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    write(&sandbox);
    // The supervisor opens its log, to which it can write from then on.
    kill(sandbox.pid(0).unwrap(), Signal::KILL);
    until("node 0 is back", || sandbox.incarnations(0) == 2 && all_ready(&sandbox));
    let dir = sandbox.dir.to_str().unwrap().to_owned();
    let Some(mount) = Mount::at(&sandbox.dir, &["--bind", &dir]) else { return };
    let read_only = Command::new("mount").args(["-o", "remount,bind,ro", &dir]).output().unwrap();
    assert!(read_only.status.success(), "{}", String::from_utf8_lossy(&read_only.stderr));
    assert!(File::create(sandbox.dir.join("file")).is_err());
    let pids = sandbox.pids();
    kill(pids[0], Signal::KILL);
    until("node 0 is gone", || !is_running(pids[0]));
    check(&sandbox);
    until("it was tried to start node 0 again and again", || {
        let log = fs::read_to_string(sandbox.dir.join("supervisor.log")).unwrap_or_default();
        log.matches("node 0 has ended with exit code").count() > 3
    });
    let why = "Read-only file system";
    let log = fs::read_to_string(sandbox.dir.join("supervisor.log")).unwrap();
    assert!(log.contains(&format!("exit code 3: cannot write to {dir}: {why}")), "{log}");
    let status = sandbox.expect(1, &["status", "--wide"]).out;
    assert!(status.contains(&format!("cannot write to {dir}: {why}")), "{status}");
    check(&sandbox);
    assert!(pids[1..].iter().all(|pid| is_running(*pid)));
    assert_eq!(
        sandbox.incarnations(0),
        2,
        "no incarnation has begun that could not be written down"
    );
    drop(mount);
    until("node 0 is back", || sandbox.incarnations(0) == 3 && all_ready(&sandbox));
    check(&sandbox);
    end(&sandbox, &pids);
}

/// Starts node 2 by hand, with its output in a pipe.
fn node_2_by_hand(sandbox: &Sandbox) -> Child {
    let before = sandbox.pid(2).unwrap();
    kill(before, Signal::KILL);
    until("node 2 is gone", || !is_running(before));
    let mut node = sandbox.command(&["node", "--index", "2", "-vvv"]);
    node.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A pipe without room for a byte. A blocking writer would wait.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write_all(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// A closed pipe, as in `skein node … 2>&1 | head -1`; and a pipe without a reader, which fills up.
#[test]
fn a_log_on_a_pipe_that_is_closed_or_full_stops_nothing() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    write(&sandbox);
    let mut node = node_2_by_hand(&sandbox);
    let mut log = BufReader::new(node.stderr.take().unwrap());
    log.read_line(&mut String::new()).unwrap();
    drop(log);
    until("it serves without its log", || all_ready(&sandbox));
    until("its lines are counted", || lines_lost(&sandbox, 2) > 0);
    write(&sandbox);
    assert!(node.try_wait().unwrap().is_none());

    // An orderly end, which is logged with many lines.
    kill(node.id().cast_signed(), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
    let (unread, full) = full_pipe();
    let mut node = sandbox.command(&["node", "--index", "2", "-vvv"]);
    let mut node = node.stdout(Stdio::null()).stderr(full).spawn().unwrap();
    until("it serves with a log that nobody reads", || all_ready(&sandbox));
    check(&sandbox);
    sandbox.expect(0, &["admin", "transfer-leader", "0", "--node", "2"]);
    write(&sandbox);
    kill(node.id().cast_signed(), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0), "it ends though nobody reads its last words");
    drop(unread);
    sandbox.expect(0, &["down", "--yes"]);
}

/// Removes a directory in which files may be created concurrently.
fn remove(dir: &Path) {
    until("it can be removed", || fs::remove_dir_all(dir).is_ok());
}

#[test]
fn a_cluster_survives_the_loss_of_its_directory_and_can_be_stopped() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    write(&sandbox);
    let (pids, supervisor) = (sandbox.pids(), sandbox.supervisor().unwrap());
    remove(&sandbox.dir);
    // Whether the cluster is found by its files or without them, no other can be started here.
    let refused = sandbox.expect(3, &["up", "--detach"]);
    for pid in &pids {
        assert!(refused.err.contains(&pid.to_string()), "process {pid}: {}", refused.err);
    }
    until("its processes have made it anew", || {
        sandbox.supervisor() == Some(supervisor) && sandbox.pids() == pids && all_ready(&sandbox)
    });
    check(&sandbox);
    // A node that dies is restarted in a new incarnation.
    remove(&sandbox.dir);
    kill(pids[0], Signal::KILL);
    until("it is started again", || sandbox.pids().len() == 3 && all_ready(&sandbox));
    assert!(sandbox.incarnations(0) >= 2);
    assert_eq!(sandbox.pids()[1..], pids[1..]);
    check(&sandbox);
    let said = ["node1.log", "supervisor.log"];
    let said = said.map(|log| fs::read_to_string(sandbox.dir.join(log)).unwrap_or_default());
    assert!(said.iter().any(|log| log.contains("were gone; they are made again")), "{said:?}");
    let all = [&pids[..], &[supervisor]].concat();
    end(&sandbox, &all);
}

#[test]
fn a_manifest_that_is_cut_off_is_made_whole_while_nodes_run() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let path = sandbox.dir.join("cluster.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    until("it is whole again", || fs::read_to_string(&path).is_ok_and(|now| now == text));
    sandbox.expect(0, &["status", "--wide"]);
    fs::write(&path, "").unwrap();
    until("it is whole again", || fs::read_to_string(&path).is_ok_and(|now| now == text));
    end(&sandbox, &[]);
}

/// Processor time of a process, in clock ticks.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn an_admin_socket_that_fails_ends_no_node() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    write(&sandbox);
    let pids = sandbox.pids();
    for node in 0..3 {
        fs::remove_file(sandbox.dir.join(format!("node{node}.sock"))).unwrap();
    }
    until("they are there again", || all_ready(&sandbox));

    // Many connections, some of which send something, that stay open.
    let socket = sandbox.dir.join("node1.sock");
    let mut all = Vec::new();
    for round in 0..2_000 {
        if let Ok(mut stream) = UnixStream::connect(&socket) {
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(&vec![b'x'; round % 5_000]);
            let _ = stream.read(&mut [0; 100]);
            all.push(stream);
        }
        if round % 500 == 0 {
            sandbox.expect(0, &["status", "--wide"]);
        }
        all.drain(..all.len().saturating_sub(200));
    }
    drop(all);
    check(&sandbox);

    assert_eq!(sandbox.pids(), pids, "nobody was started again");
    end(&sandbox, &[]);
}

/// Sets the limit of descriptors of a child process. Returns the former limit.
fn limit_descriptors(pid: i32, most: Option<u64>) -> rustix::io::Result<Option<u64>> {
    let limit = Rlimit { current: most, ..getrlimit(Resource::Nofile) };
    prlimit(Pid::from_raw(pid), Resource::Nofile, limit).map(|before| before.current)
}

/// A fault of another node while one has no descriptors.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// This node is paused.
    Stops(usize),
    /// This node is killed and restarted.
    Dies(usize),
    /// The node without descriptors is asked to lead.
    IsToLead,
}

/// Without free descriptors a node cannot check whether its peers are alive, receive their
/// introductions, map their memory or answer administrators. It takes no peer for dead, and it
/// continues normally when it has descriptors again.
#[test]
fn a_node_without_descriptors_serves_again_when_it_has_some() {
    use Meanwhile::{Dies, IsToLead, Nothing, Stops};
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    write(&sandbox);
    let node_1 = sandbox.pid(1).unwrap();
    let socket = sandbox.dir.join("node1.sock");
    for meanwhile in [Nothing, Stops(0), Stops(2), Dies(0), Dies(2), IsToLead] {
        let pids = sandbox.pids();
        let open = fs::read_dir(format!("/proc/{node_1}/fd")).unwrap().count();
        let usual = match limit_descriptors(node_1, Some(open as u64)) {
            Ok(usual) => usual,
            Err(error) => {
                println!("descriptors: not run: {error}");
                break;
            }
        };
        let callers: Vec<_> = (0..20).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
        let mut asked = None;
        match meanwhile {
            Nothing => {}
            Stops(node) => kill(pids[node], Signal::STOP),
            Dies(node) => kill(pids[node], Signal::KILL),
            IsToLead => {
                let mut lead = sandbox.command(&["admin", "transfer-leader", "0", "--node", "1"]);
                asked = Some(lead.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
            }
        }
        let (before, began) = (ticks(node_1), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let (spent, passed) = (ticks(node_1) - before, began.elapsed());
        // A tick is a hundredth of a second.
        let most = passed.as_millis() * 7 / 100;
        assert!(
            u128::from(spent) < most,
            "{meanwhile:?}: {spent} ticks in {passed:?}: it turns in circles"
        );
        drop(callers);
        limit_descriptors(node_1, usual).unwrap();
        if let Stops(node) = meanwhile {
            kill(pids[node], Signal::CONT);
        }
        if let Some(mut asked) = asked {
            asked.wait().unwrap();
        }
        until(&format!("{meanwhile:?}: all serve again"), || all_ready(&sandbox));
        check(&sandbox);
        write(&sandbox);
        for (node, pid) in pids.iter().enumerate() {
            if !matches!(meanwhile, Dies(dead) if dead == node) {
                assert_eq!(sandbox.pid(node as u16), Some(*pid), "{meanwhile:?}: node {node}");
            }
        }
    }
    end(&sandbox, &[]);
}

/// No process is left that could restore the manifest, or find the cluster without it.
#[test]
fn what_a_damaged_manifest_leaves_can_be_removed() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    let (path, supervisor) = (sandbox.dir.join("cluster.json"), sandbox.supervisor().unwrap());
    let text = fs::read_to_string(&path).unwrap();
    for pid in [&[supervisor], &pids[..]].concat() {
        kill(pid, Signal::KILL);
        until("it is gone", || !is_running(pid));
    }
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("is not the manifest"), "{}", refused.err);
    assert!(refused.err.contains("`skein down` removes"), "{}", refused.err);
    assert!(sandbox.expect(2, &["down"]).err.contains("--yes"));
    sandbox.expect(0, &["down", "--yes"]);
    assert!(!path.exists() && !sandbox.dir.join("lock").exists());
    let _ = fs::remove_dir_all(regions);
}

/// However soon `down` follows the removal of the directory, nothing is restored.
#[test]
fn down_stops_a_cluster_whose_directory_was_removed() {
    for wait_ms in [0, 300, 900] {
        let sandbox = Sandbox::new();
        sandbox.expect(0, &["up", "--detach"]);
        let (regions, mut pids) = (sandbox.regions(), sandbox.pids());
        pids.extend(sandbox.supervisor());
        remove(&sandbox.dir);
        std::thread::sleep(Duration::from_millis(wait_ms));
        sandbox.expect(0, &["down", "--yes"]);
        for pid in &pids {
            until("its processes end", || !is_running(*pid));
        }
        sandbox.until_deserted();
        sandbox.check_clean(&regions, &pids);
    }
}
