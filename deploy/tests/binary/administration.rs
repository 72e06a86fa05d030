//! The admin interface, and clients that violate its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::support::{Sandbox, is_running, until};

const STATUS: &str = "{\"v\":1,\"do\":\"status\"}\n";

fn ask(stream: &UnixStream, request: &[u8]) -> Value {
    (&*stream).write_all(request).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn garbage_gets_a_typed_error_and_harms_nothing() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--nodes", "1", "--replicas", "1"]);
    let stream = sandbox.admin(0);
    #[rustfmt::skip]
    let cases: [(&[u8], &str); 12] = [
        (b"GET / HTTP/1.1\n",                     "malformed"),
        (b"\xff\xfe\x00\x01\n",                   "malformed"),
        (b"\n",                                   "malformed"),
        (b"{\"v\":99,\"do\":\"status\"}\n",       "version"),
        (b"{\"v\":1,\"do\":\"explode\"}\n",       "unknown_action"),
        (b"{\"v\":1,\"do\":7}\n",                 "unknown_action"),
        (b"{\"v\":1,\"do\":\"lead\"}\n",          "malformed"),
        (b"{\"v\":1,\"do\":\"lead\",\"group\":-1}\n", "malformed"),
        (b"{\"v\":1,\"do\":\"lead\",\"group\":65535}\n", "not_here"),
        (b"{\"v\":1,\"do\":\"evict\",\"group\":0}\n", "malformed"),
        (b"{\"v\":1,\"do\":\"evict\",\"group\":64,\"slot\":0}\n", "not_here"),
        (b"{\"v\":1,\"do\":\"prepare_recreate\",\"group\":0}\n", "malformed"),
    ];
    for (request, kind) in cases {
        let response = ask(&stream, request);
        assert_eq!(response["v"], 1);
        assert_eq!(response["error"]["kind"], kind, "{response}");
        assert!(response["error"]["message"].is_string());
    }
    assert_eq!(ask(&stream, STATUS.as_bytes())["ok"]["node"], 0, "the connection goes on");

    let long = sandbox.admin(0);
    let response = ask(&long, &[b'x'; 5000]);
    assert_eq!(response["error"]["kind"], "oversized", "{response}");
    assert_eq!((&long).read(&mut [0; 8]).unwrap_or(0), 0, "and this one is closed");
    sandbox.expect(0, &["status"]);
}

#[test]
fn requests_may_come_in_pieces_and_in_heaps() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--nodes", "1", "--replicas", "1"]);
    let stream = sandbox.admin(0);
    let (head, tail) = STATUS.as_bytes().split_at(7);
    (&stream).write_all(head).unwrap();
    sandbox.expect(0, &["status"]);
    assert_eq!(ask(&stream, tail)["ok"]["node"], 0);

    (&stream).write_all(STATUS.repeat(10).as_bytes()).unwrap();
    let answers = BufReader::new(&stream).lines().take(10);
    assert!(answers.into_iter().all(|line| line.unwrap().contains("\"ok\"")));

    let unfinished = sandbox.admin(0);
    (&unfinished).write_all(STATUS.trim().as_bytes()).unwrap();
    unfinished.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    (&unfinished).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"ok\""), "the end of the stream ends a line: {answer}");
}

#[test]
fn silent_connections_are_in_nobodys_way() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--nodes", "1", "--replicas", "1"]);
    let silent: Vec<_> = (0..200).map(|_| sandbox.admin(0)).collect();
    for stream in silent.iter().step_by(3) {
        // Connections that the node closed in favour of newer ones cannot be written.
        let _ = (&*stream).write_all(b"{\"v\":1,");
    }
    sandbox.expect(0, &["status"]);
    drop(silent);
    sandbox.expect(0, &["status"]);
}

#[test]
fn a_node_drains_and_stops_when_asked() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let pids = sandbox.pids();
    let drained = ask(&sandbox.admin(1), b"{\"v\":1,\"do\":\"drain\"}\n");
    assert_eq!(drained["ok"]["draining"], true, "{drained}");
    sandbox.expect(0, &["status"]);
    let stopping = ask(&sandbox.admin(1), b"{\"v\":1,\"do\":\"stop\"}\n");
    assert_eq!(stopping["ok"]["pid"], pids[1]);
    until("node 1 has stopped", || !is_running(pids[1]));
    sandbox.expect(1, &["status"]);
}
