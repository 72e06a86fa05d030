//! A cluster's status as tables for people.

use std::fmt::Write as _;

use skein_kvstore::config::show_bytes;
use skein_kvstore::node::directory::Supervisor;
use skein_multicast::operate::{Cause, FailoverStatus, MemberStatus, ReplicaStatus, Role};

use super::status::{GroupView, NodeView, Replica, Snapshot};

/// The whole of it.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "cluster {}  {} keys  {} of shared memory  skein {} ({})",
        snapshot.cluster,
        snapshot.keys,
        show_bytes(snapshot.regions_bytes),
        snapshot.build.version,
        snapshot.build.commit,
    );
    let _ = writeln!(text, "in {}, {}\n", snapshot.dir.display(), supervised(snapshot));
    nodes(&mut text, snapshot);
    text.push('\n');
    groups(&mut text, snapshot);
    text.push('\n');
    replicas(&mut text, snapshot);
    let notes = notes(snapshot);
    if !notes.is_empty() {
        let _ = write!(text, "\n{}", notes.join("\n"));
        text.push('\n');
    }
    text
}

fn supervised(snapshot: &Snapshot) -> String {
    match snapshot.supervisor {
        Some(Supervisor { pid, restarts: true }) => format!("supervised by process {pid}"),
        Some(Supervisor { pid, .. }) => format!("watched by process {pid}, which restarts nothing"),
        None if snapshot.has_several_hosts() => "one of several hosts".to_owned(),
        None => "supervised by nobody".to_owned(),
    }
}

fn nodes(text: &mut String, snapshot: &Snapshot) {
    let head = ["node", "process", "restarts", "up", "memory", "state"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for node in &snapshot.nodes {
        let or_dash = |known: Option<String>| known.unwrap_or("-".to_owned());
        let status = node.status.as_ref();
        rows.push(vec![
            format!("n{}", node.node),
            or_dash(node.pid.map(|pid| pid.to_string())),
            or_dash(node.life.map(|life| life.to_string())),
            or_dash(status.map(|status| time(status.uptime_ms))),
            or_dash(status.map(|status| show_bytes(status.resident_bytes))),
            node_state(node, snapshot),
        ]);
    }
    table(text, &rows, &[false, false, false, false, false, true]);
}

/// What a node is up to, or what its replicas wait for.
fn node_state(node: &NodeView, snapshot: &Snapshot) -> String {
    let Some(status) = &node.status else {
        let problem = node.problem.as_deref().unwrap_or("does not answer");
        return match node.dead_for_ms {
            Some(ms) => format!("{problem} for {}", time(ms)),
            None => problem.to_owned(),
        };
    };
    if status.draining {
        return "draining".to_owned();
    }
    if status.ready {
        return "ready".to_owned();
    }
    let here = snapshot.groups.iter().flat_map(|group| &group.replicas);
    let here: Vec<&ReplicaStatus> =
        here.filter(|replica| replica.node == node.node).map(|r| &r.report.order).collect();
    let names = |of: &dyn Fn(&ReplicaStatus) -> bool| {
        let names = here.iter().filter(|order| of(order)).map(|order| format!("g{}", order.group));
        names.collect::<Vec<_>>().join(" ")
    };
    let lost = names(&|order| order.lost);
    let learning = names(&|order| order.role == Role::Learner && !order.lost);
    let waiting = names(&|order| order.role != Role::Learner && !order.available && !order.lost);
    let parts = [("lost", lost), ("learning", learning), ("without a leader or a quorum", waiting)];
    let parts = parts.iter().filter(|(_, groups)| !groups.is_empty());
    let parts: Vec<_> = parts.map(|(what, groups)| format!("{what}: {groups}")).collect();
    if parts.is_empty() { "getting ready".to_owned() } else { parts.join("; ") }
}

fn groups(text: &mut String, snapshot: &Snapshot) {
    let head = ["group", "state", "leader", "members", "last change of leader"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for group in &snapshot.groups {
        rows.push(vec![
            format!("g{}", group.group),
            group_state(group).to_owned(),
            group.leader.map_or("-".to_owned(), |slot| format!("g{}.{slot}", group.group)),
            group.view.iter().copied().map(member).collect::<Vec<_>>().join("  "),
            group.last_failover.as_ref().map_or("-".to_owned(), failover),
        ]);
    }
    table(text, &rows, &[true; 5]);
}

fn group_state(group: &GroupView) -> &'static str {
    let members = |replica: &&Replica| replica.report.order.role != Role::Learner;
    match group {
        GroupView { lost: true, .. } => "LOST",
        GroupView { available: true, .. } => "serves",
        GroupView { elsewhere: true, .. } => "led elsewhere, if at all",
        _ if group.replicas.iter().filter(members).count() < group.quorum => "no quorum",
        _ => "no leader",
    }
}

/// As in a ballot: `r1i1024` is the replica in slot 1 in its incarnation 1024.
fn member(member: MemberStatus) -> String {
    let name = format!("r{}i{}", member.slot, member.incarnation);
    match (member.evicted, member.alive) {
        (true, _) => name + " evicted",
        (false, false) => name + " silent",
        (false, true) => name,
    }
}

fn failover(last: &FailoverStatus) -> String {
    let why = match last.cause {
        Cause::Start => return "-".to_owned(),
        Cause::Death => "the leader died",
        Cause::Silence => "the leader fell silent",
        Cause::Transfer => "asked for",
    };
    let took = last.took_us as f64 / 1e3;
    format!("{} ago: {why}; took {took:.1} ms", time(last.ago_ms))
}

fn replicas(text: &mut String, snapshot: &Snapshot) {
    let head = [
        "replica",
        "node",
        "role",
        "ballot",
        "log",
        "commit",
        "delivered",
        "pending",
        "oldest",
        "keys",
        "store",
        "sessions",
        "memory",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for group in &snapshot.groups {
        rows.extend(group.replicas.iter().map(|replica| replica_row(replica, group)));
    }
    let left: Vec<bool> = (0..head.len()).map(|column| [0, 2, 3].contains(&column)).collect();
    table(text, &rows, &left);
}

fn replica_row(replica: &Replica, group: &GroupView) -> Vec<String> {
    let order = &replica.report.order;
    let oldest = if order.pending == 0 { "-".to_owned() } else { time(order.oldest_pending_ms) };
    vec![
        format!("g{}.{}", order.group, order.slot),
        format!("n{}", replica.node),
        role(order, group),
        order.ballot.clone(),
        order.log_index.to_string(),
        order.commit_index.to_string(),
        order.delivered.to_string(),
        order.pending.to_string(),
        oldest,
        replica.report.keys.to_string(),
        show_bytes(replica.report.store_bytes),
        order.sessions.to_string(),
        show_bytes(order.memory_bytes),
    ]
}

fn role(order: &ReplicaStatus, group: &GroupView) -> String {
    match order.role {
        Role::Leader => "leader".to_owned(),
        Role::Follower => "follower".to_owned(),
        Role::Candidate => "candidate".to_owned(),
        Role::Learner => match group.learners.iter().find(|learner| learner.slot == order.slot) {
            Some(learner) if learner.caught_up => "learner, caught up".to_owned(),
            Some(learner) => format!("learner, {}", show_bytes(learner.bytes)),
            None => "learner".to_owned(),
        },
    }
}

/// What somebody should know, or do, in words.
fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let tolerated = |group: &GroupView| group.quorum - 1;
    for view in &snapshot.groups {
        let group = view.group;
        match group_state(view) {
            "LOST" => notes.push(format!(
                "g{group} is LOST: more than {} of its replicas have lost their memory, and what it \
                 held cannot be told any more.\n  It serves nothing until `skein admin recreate \
                 {group} --accept-data-loss` begins it anew, with nothing in it.",
                tolerated(view)
            )),
            "no quorum" => notes.push(format!(
                "g{group} has no quorum: it takes {} replicas that have their memory. It goes on by \
                 itself when enough of those that are paused or cut off return.",
                view.quorum
            )),
            _ => {}
        }
        if let Some(stuck) = &view.stuck {
            let by: Vec<_> = stuck.held_up_by.iter().map(|group| format!("g{group}")).collect();
            let by = if by.is_empty() { "its own order".to_owned() } else { by.join(", ") };
            let (message, age) = (&stuck.message, time(stuck.age_ms));
            notes.push(format!("g{group}: message {message} has waited {age}, held up by {by}"));
        }
    }
    if snapshot.supervisor.is_none() && !snapshot.has_several_hosts() {
        notes.push(
            "Nobody supervises the nodes: one that dies stays dead. `skein supervise --detach` \
             changes that."
                .to_owned(),
        );
    }
    notes
}

/// `850ms`, `12s`, `3m 20s`, `5h 2m`, `4d 1h`
fn time(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Rows in columns; those that are not `left` are aligned to the right.
fn table(text: &mut String, rows: &[Vec<String>], left: &[bool]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..left.len()).filter_map(width).collect();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), left) in row.iter().zip(&widths).zip(left) {
            let _ = match left {
                true => write!(line, "{cell:<width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_short() {
        #[rustfmt::skip]
        let cases = [
            (0, "0ms"), (999, "999ms"), (1_000, "1s"), (59_999, "59s"), (200_000, "3m 20s"),
            (18_120_000, "5h 2m"), (349_200_000, "4d 1h"),
        ];
        for (ms, text) in cases {
            assert_eq!(time(ms), text);
        }
    }
}
