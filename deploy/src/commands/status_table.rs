//! A cluster's status as tables for people.

use std::fmt::Write as _;

use skein_kvstore::config::show_bytes;

use super::status::{NodeView, Replica, Snapshot};

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
    let _ = writeln!(text, "in {}\n", snapshot.dir.display());
    let mut nodes = vec![["node", "process", "up", "memory", "state"].map(String::from).to_vec()];
    nodes.extend(snapshot.nodes.iter().map(node));
    table(&mut text, &nodes, &[false, false, false, false, true]);
    text.push('\n');
    let mut replicas = vec![
        [
            "group",
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
        ]
        .map(String::from)
        .to_vec(),
    ];
    for group in &snapshot.groups {
        replicas.extend(group.replicas.iter().map(|r| replica(r, group.leader)));
        if group.replicas.is_empty() {
            let mut row = vec![format!("g{}", group.group)];
            row.resize(14, "-".to_owned());
            replicas.push(row);
        }
    }
    let left = [0, 1, 3, 4].map(|column| column);
    let left: Vec<bool> = (0..14).map(|column| left.contains(&column)).collect();
    table(&mut text, &replicas, &left);
    text
}

fn node(node: &NodeView) -> Vec<String> {
    let pid = node.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let (up, memory, state) = match (&node.status, &node.problem) {
        (Some(status), _) => {
            let state = match (status.ready, status.draining) {
                (_, true) => "draining",
                (true, false) => "ready",
                (false, false) => "connecting",
            };
            (time(status.uptime_ms), show_bytes(status.resident_bytes), state.to_owned())
        }
        (None, problem) => {
            let problem = problem.as_deref().unwrap_or("unknown");
            ("-".to_owned(), "-".to_owned(), format!("does not answer: {problem}"))
        }
    };
    vec![format!("n{}", node.node), pid, up, memory, state]
}

fn replica(replica: &Replica, leader: Option<u8>) -> Vec<String> {
    let order = &replica.report.order;
    let oldest = if order.pending == 0 { "-".to_owned() } else { time(order.oldest_pending_ms) };
    vec![
        format!("g{}", order.group),
        format!("g{}.{}", order.group, order.slot),
        format!("n{}", replica.node),
        if leader == Some(order.slot) { "leader" } else { "follower" }.to_owned(),
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
