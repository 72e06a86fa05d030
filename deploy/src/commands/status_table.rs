//! A cluster's status as tables for people.

use std::fmt::Write as _;

use skein_cluster::config::{StoreKind, show_bytes};
use skein_cluster::directory::Supervisor;
use skein_multicast::operate::{
    Cause, DiskProgressStatus, Diverged, DivergenceStatus, FailoverStatus, MemberStatus,
    ReplicaStatus, Role,
};
use skein_node::status::{DamagedLog, DiskStatus, PointsStatus};

use super::status::{DEAD, GroupView, NodeView, Replica, Snapshot};
use super::status_tree;
use crate::held_up::Because;
use crate::output::names;

/// Share of what a log may take on disk, or a group may hold, above which it is warned.
const BOUND_WARNED_PERCENT: u64 = 80;
/// A message that has waited for so long is told, in milliseconds.
const WAITS_LONG_MS: u64 = 1_000;
/// Width of the tables unless `wide` is given.
const WIDTH: usize = 80;

/// The whole status. `wide` shows all columns.
pub(super) fn text(snapshot: &Snapshot, wide: bool) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "cluster {}  {} keys  {} of shared memory",
        snapshot.cluster,
        snapshot.keys,
        show_bytes(snapshot.regions_bytes),
    );
    let (version, commit) = (&snapshot.build.version, &snapshot.build.commit);
    let _ = writeln!(text, "skein {version} ({commit}), {}", supervised(snapshot));
    let (durability, store) = (snapshot.durability.name(), snapshot.store.name());
    let _ = write!(text, "durability {durability}, store {store}");
    if let Some(tree) = &snapshot.tree {
        let _ = write!(text, ", ordered by {} along {tree}", snapshot.order);
    }
    text.push('\n');
    let _ = writeln!(text, "in {}", snapshot.dir.display());
    if let Some(age) = newest_point(snapshot) {
        let _ = writeln!(text, "restore point on f+1 disks of every group: {age}");
    }
    text.push('\n');
    let width = if wide { usize::MAX } else { WIDTH };
    let mut hidden = nodes(snapshot).print(&mut text, width);
    text.push('\n');
    hidden |= groups(snapshot, wide).print(&mut text, width);
    text.push('\n');
    if let Some(rows) = status_tree::edges(snapshot) {
        hidden |= Table { rows, left: &[0, 6], spare: &[4, 2] }.print(&mut text, width);
        text.push('\n');
    }
    hidden |= replicas(snapshot).print(&mut text, width);
    if hidden {
        text.push_str("--wide shows more columns\n");
    }
    for note in notes(snapshot) {
        text.push('\n');
        wrap(&mut text, &note, "", "  ", width);
    }
    text
}

/// The age of the newest restore point that any node knows to be on enough disks; `None` if the cluster has none.
fn newest_point(snapshot: &Snapshot) -> Option<String> {
    let points = snapshot.nodes.iter().filter_map(|node| node.status.as_ref()?.points.as_ref());
    // What another node knows may be older.
    let newest = points.max_by_key(|points| points.last)?;
    if newest.all_on_disk {
        return Some("all that was written".to_owned());
    }
    Some(newest.floor_age_ms.map_or_else(|| "none yet".to_owned(), |age| time(age) + " old"))
}

fn supervised(snapshot: &Snapshot) -> String {
    match snapshot.supervisor {
        Some(Supervisor { pid, restarts: true }) => format!("supervised by process {pid}"),
        Some(Supervisor { pid, .. }) => format!("watched by process {pid}, which restarts nothing"),
        None if snapshot.has_several_hosts() => "one of several hosts".to_owned(),
        None => "not supervised".to_owned(),
    }
}

fn nodes(snapshot: &Snapshot) -> Table {
    let disks = snapshot.nodes.iter().any(|node| disk_of(node).is_some());
    let mut head = vec!["node", "process", "restarts", "up", "memory"];
    if disks {
        head.extend(["log on disk", "flush p50", "p99"]);
    }
    head.push("state");
    let last = head.len() - 1;
    let mut rows = vec![head.into_iter().map(String::from).collect::<Vec<_>>()];
    for node in &snapshot.nodes {
        let or_dash = |known: Option<String>| known.unwrap_or("-".to_owned());
        let status = node.status.as_ref();
        let mut row = vec![
            format!("n{}", node.node),
            or_dash(node.pid.map(|pid| pid.to_string())),
            or_dash(node.incarnation.map(|incarnation| incarnation.to_string())),
            or_dash(status.map(|status| time(status.uptime_ms))),
            or_dash(status.map(|status| show_bytes(status.resident_bytes))),
        ];
        if disks {
            let disk = disk_of(node);
            row.push(or_dash(disk.map(|disk| show_bytes(disk.log_bytes))));
            row.push(or_dash(disk.map(|disk| format!("{} µs", disk.flush_p50_us))));
            row.push(or_dash(disk.map(|disk| format!("{} µs", disk.flush_p99_us))));
        }
        row.push(node_state(node, snapshot));
        rows.push(row);
    }
    let left: &[usize] = if last == 5 { &[5] } else { &[8] };
    let spare: &[usize] = if last == 5 { &[4, 2] } else { &[7, 4, 2] };
    Table { rows, left, spare }
}

fn disk_of(node: &NodeView) -> Option<&DiskStatus> {
    node.status.as_ref()?.disk.as_ref()
}

/// The state of a node, or what its replicas wait for.
fn node_state(node: &NodeView, snapshot: &Snapshot) -> String {
    let Some(status) = &node.status else {
        let problem = node.problem.as_deref().unwrap_or("does not answer");
        return match node.dead_for_ms {
            Some(ms) if problem == DEAD => format!("{problem} for {}", time(ms)),
            _ => problem.to_owned(),
        };
    };
    if status.draining {
        return "draining".to_owned();
    }
    if disk_of(node).is_some_and(|disk| disk.full) {
        return "its disk is full: it acknowledges what fits its last segment".to_owned();
    }
    if disk_of(node).is_some_and(|disk| disk.at_bound) {
        return "its log is at node.disk_bytes_max: it acknowledges what fits its last segment"
            .to_owned();
    }
    if status.ready && status.disk.as_ref().is_some_and(|disk| disk.orders.is_some()) {
        return format!("ready, A TEST MAKES ITS DISK FAIL (node{}.disk)", node.node);
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

fn groups(snapshot: &Snapshot, wide: bool) -> Table {
    let head = ["group", "state", "leader", "members", "last change of leader"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for group in &snapshot.groups {
        rows.push(vec![
            format!("g{}", group.group),
            group_state(group).to_owned(),
            group.leader.map_or("-".to_owned(), |slot| format!("g{}.{slot}", group.group)),
            group.view.iter().copied().map(member).collect::<Vec<_>>().join("  "),
            group.last_failover.as_ref().map_or("-".to_owned(), |last| failover(last, wide)),
        ]);
    }
    // The column of leaders may be dropped: the table of replicas shows them too.
    Table { rows, left: &[0, 1, 2, 3, 4], spare: &[4, 2] }
}

fn group_state(group: &GroupView) -> &'static str {
    let members = |replica: &&Replica| replica.report.order.role != Role::Learner;
    match group {
        GroupView { lost: true, .. } => "LOST",
        _ if group.replicas.iter().any(|replica| replica.report.order.is_stopped()) => "DIVERGED",
        GroupView { available: true, .. } => "serves",
        GroupView { elsewhere: true, .. } => "led elsewhere, if at all",
        _ if group.replicas.iter().filter(members).count() < group.quorum => "no quorum",
        _ => "no leader",
    }
}

/// Why the group does not serve, as far as is known here; `None` if it serves, or may.
pub(super) fn because(group: &GroupView) -> Option<Because> {
    match group_state(group) {
        "LOST" => Some(Because::Lost),
        "DIVERGED" => Some(Because::Diverged),
        "no quorum" => Some(Because::NoQuorum),
        "no leader" => Some(Because::NoLeader),
        _ => None,
    }
}

/// `r1i1024` is the replica in slot 1 in its incarnation 1024.
fn member(member: MemberStatus) -> String {
    let name = format!("r{}i{}", member.slot, member.incarnation);
    match (member.evicted, member.alive) {
        (true, _) => name + " evicted",
        (false, false) => name + " silent",
        (false, true) => name,
    }
}

fn failover(last: &FailoverStatus, wide: bool) -> String {
    let (why, short) = match last.cause {
        Cause::Start => return "-".to_owned(),
        Cause::Death => ("the leader died", "died"),
        Cause::Silence => ("the leader fell silent", "silent"),
        Cause::Operator => ("asked for", "asked for"),
        Cause::HandedOver => ("handed over", "handed over"),
    };
    let (took, ago) = (last.took_us as f64 / 1e3, time(last.ago_ms));
    if wide {
        format!("{ago} ago: {why}; took {took:.1} ms")
    } else {
        format!("{ago} ago, {short}, {took:.1} ms")
    }
}

fn replicas(snapshot: &Snapshot) -> Table {
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
    if snapshot.nodes.iter().any(|node| disk_of(node).is_some()) {
        rows[0].extend(["on disk", "since snapshot", "snapshot"].map(String::from));
        let replicas = snapshot.groups.iter().flat_map(|group| &group.replicas);
        for (row, replica) in rows[1..].iter_mut().zip(replicas) {
            row.extend(on_disk(replica.report.order.disk));
        }
    }
    // Dropped last: the sizes, then the columns that other tables repeat.
    Table { rows, left: &[0, 2, 3], spare: &[15, 14, 13, 12, 11, 10, 5, 8, 4, 9] }
}

/// The last entry on disk, and the sizes of the log since the last snapshot, and of that.
fn on_disk(disk: Option<DiskProgressStatus>) -> [String; 3] {
    let Some(disk) = disk else { return ["-", "-", "-"].map(String::from) };
    let since = disk.since_snapshot_bytes.map_or_else(|| "due".to_owned(), show_bytes);
    let snapshot = match disk.snapshot_bytes {
        0 => "-".to_owned(),
        bytes => show_bytes(bytes),
    };
    [disk.durable_index.to_string(), since, snapshot]
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

/// Whether the replica reports its own divergence.
fn says_so(view: &GroupView, slot: u8) -> bool {
    let orders = view.replicas.iter().map(|replica| &replica.report.order);
    orders.filter(|order| order.slot == slot).any(|order| order.divergence.is_some())
}

/// Notes and advice, in words.
fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let tolerated = |group: &GroupView| group.quorum - 1;
    let has_points = |node: &NodeView| node.status.as_ref().is_some_and(|it| it.points.is_some());
    let durable = snapshot.nodes.iter().any(|node| disk_of(node).is_some() && !has_points(node));
    for view in &snapshot.groups {
        let group = view.group;
        let held = view.replicas.iter().map(|replica| replica.report.store_bytes).max();
        notes.extend(ceiling(group, held.unwrap_or(0), snapshot.group_bytes_max, snapshot.store));
        match group_state(view) {
            "LOST" if durable => notes.push(format!(
                "g{group} is LOST: the data of more than {} of its replicas is gone, and what it held cannot be \
                 served again. Read what you need from the other groups; `skein down --wipe` and `skein up` begin \
                 a new cluster.",
                tolerated(view)
            )),
            "LOST" if snapshot.nodes.iter().any(has_points) => notes.push(format!(
                "g{group} is LOST: more than {} of its replicas have lost their state. `skein admin recreate \
                 {group}` goes on from a survivor, if there is one; `skein down` and `skein up` return all groups \
                 to the newest restore point that every group has.",
                tolerated(view)
            )),
            "LOST" => notes.push(format!(
                "g{group} is LOST: more than {} of its replicas have lost their state, and what it \
                 held is unknown. It serves nothing until it is recreated, from a \
                 survivor or empty: `skein admin recreate {group}` lists the survivors.",
                tolerated(view)
            )),
            "DIVERGED" => notes.push(format!(
                "g{group} has stopped: its replicas have diverged, and no state is held by {} of them.",
                view.quorum
            )),
            "no quorum" => notes.push(format!(
                "g{group} has no quorum: it takes {} replicas that have their state. {}",
                view.quorum,
                returns(snapshot)
            )),
            "serves" => {
                let waits = snapshot.groups.len() > 1 && snapshot.tree.is_none();
                notes.extend(serves_alone(view, waits));
            }
            _ => {}
        }
        let diverged = |it: &Replica| Some((it.node, it.report.order.divergence.clone()?));
        for (node, divergence) in view.replicas.iter().filter_map(diverged) {
            let DivergenceStatus { what, slots, position, ago_ms, recovered } = divergence;
            let names: Vec<_> = slots.iter().map(|slot| format!("g{group}.{slot}")).collect();
            let (names, ago) = (names.join(", "), time(ago_ms));
            match (what, recovered) {
                (Diverged::Own, true) => notes.push(format!(
                    "{names} on n{node} diverged at position {position}, {ago} ago, and received the state \
                     again.\n  If that happens again, replace the host: its memory may be failing."
                )),
                (Diverged::Own, false) => notes.push(format!(
                    "{names} on n{node} diverged at position {position}, {ago} ago: it answers no \
                     requests, and receives the state again."
                )),
                // Replicas that another reports as diverged report it themselves, if they run.
                (Diverged::Others, _) if slots.iter().any(|slot| !says_so(view, *slot)) => notes
                    .push(format!("{names} diverged at position {position}, {ago} ago, as n{node} reports.")),
                _ => {}
            }
        }
        if let Some(blocked) = view.blocked.as_ref().filter(|it| it.age_ms >= WAITS_LONG_MS) {
            let by: Vec<_> = blocked.held_up_by.iter().map(|group| format!("g{group}")).collect();
            let by = if by.is_empty() { "its own order".to_owned() } else { by.join(", ") };
            let (message, age) = (&blocked.message, time(blocked.age_ms));
            notes.push(format!("g{group}: message {message} has waited {age}, blocked by {by}"));
        }
    }
    for node in &snapshot.nodes {
        let cause =
            node.cause.iter().map(|cause| format!("n{} does not serve: {cause}", node.node));
        notes.extend(cause);
        let disk = disk_of(node);
        let Some(status) = &node.status else { continue };
        let node = node.node;
        if let Some(note) =
            status.points.as_ref().and_then(|points| late(node, points, status.uptime_ms))
        {
            notes.push(note);
        }
        if disk.is_some_and(|disk| disk.missing) {
            notes.push(format!(
                "n{node} found no data when it was started, though it had run before: its replicas began \
                 without a state."
            ));
        }
        notes.extend(disk.and_then(|disk| space(node, disk)));
        notes.extend(disk.and_then(|disk| bound(node, disk)));
        for DamagedLog { group, segment, offset } in disk.iter().flat_map(|disk| &disk.damaged) {
            notes.push(format!(
                "n{node} found the log of g{group} damaged when it was started, in segment {segment} at \
                 offset {offset}: its replica began without a state. `skein inspect` shows the log."
            ));
        }
        for group in disk.iter().flat_map(|disk| &disk.checkpoints_lost) {
            notes.push(format!(
                "n{node} found no checkpoint of g{group} that its log could begin with when it was started: its replica began \
                 without a state. The node's log file says what was wrong."
            ));
        }
        if status.log_lines_lost > 0 {
            let lost = status.log_lines_lost;
            let lines = if lost == 1 { "line" } else { "lines" };
            notes.push(format!(
                "n{node}: {lost} {lines} of its log could not be written; it runs on without them. \
                 `df` shows whether the disk of its directory is full."
            ));
        }
        if let Some(problem) = &status.directory_problem {
            notes.push(format!("n{node}: {problem}"));
        }
        for refused in &status.refused {
            notes.push(format!(
                "n{node} refuses n{}, whose configuration differs: {}.\n  All nodes must have the same: \
                 mend the file of the one that is wrong, and start that node again.",
                refused.node, refused.why
            ));
        }
    }
    notes.extend(status_tree::notes(snapshot));
    if let Some(problem) = &snapshot.directory_problem {
        notes.push(format!(
            "{problem}: nodes that run keep running, and one that dies stays dead until its directory can be \
             written."
        ));
    }
    if snapshot.supervisor.is_none() && !snapshot.has_several_hosts() {
        notes.push(
            "No process supervises the nodes: one that dies stays dead. `skein supervise --detach` \
             changes that."
                .to_owned(),
        );
    }
    notes
}

/// A warning about a group that serves though too few of its replicas answer for a quorum. With RamCast, what goes to several
/// groups `waits`.
fn serves_alone(view: &GroupView, waits: bool) -> Option<String> {
    let group = view.group;
    let silent: Vec<_> = view.view.iter().filter(|member| !member.alive).collect();
    if view.view.len() - silent.len() >= view.quorum {
        return None;
    }
    let silent: Vec<_> = silent.iter().map(|it| format!("g{group}.{}", it.slot)).collect();
    let waits =
        if waits { " Messages of several groups, and new sessions, wait for them." } else { "" };
    Some(format!(
        "g{group} serves, but {} do not answer: its leader writes into their memory.{waits} It stops serving when its log is full \
         or is to take a large value, and if the leader fails, unless they go on before.",
        silent.join(", ")
    ))
}

/// When a group without a quorum serves again.
fn returns(snapshot: &Snapshot) -> &'static str {
    let dead = snapshot.nodes.iter().any(|node| node.pid.is_none() && !node.is_elsewhere());
    let restarts = snapshot.supervisor.as_ref().is_some_and(|supervisor| supervisor.restarts);
    match (dead, restarts) {
        (false, _) => {
            "It resumes by itself when enough of those that are paused or cut off return."
        }
        (true, true) => {
            "It resumes when enough nodes are back. The supervisor starts dead ones again unless they were refused: the \
             log of a node, nodeN.log, says what ends it."
        }
        (true, false) => {
            "It resumes when enough nodes are back. Start those that are dead: `skein supervise --detach`."
        }
    }
}

/// A warning if more would be lost with the power of all nodes than it should. A node that has run for so long knows nothing older.
fn late(node: u16, points: &PointsStatus, uptime_ms: u64) -> Option<String> {
    let age = points.saved_age_ms.unwrap_or(uptime_ms);
    if age <= points.lag_ms_max && points.silent.is_empty() {
        return None;
    }
    let lost = points.saved_age_ms.map_or_else(
        || "all that was acknowledged".to_owned(),
        |age| format!("what was acknowledged in the last {}", time(age)),
    );
    let silent = points.silent.iter().copied().collect();
    let why = if points.silent.is_empty() {
        "The disks or the nodes are too slow: leaders take no commands until a newer one is there."
            .to_owned()
    } else {
        let verb = if points.silent.len() == 1 { "does" } else { "do" };
        let names = names(&silent);
        format!("{names} {verb} not answer, and no new ones are made: the others serve without.")
    };
    Some(format!(
        "n{node} knows of no restore point on f+1 disks of every group that is younger than {}: {lost} is on too few disks. {why}",
        time(points.lag_ms_max)
    ))
}

/// A warning if the log of a node may not find enough space.
fn space(node: u16, disk: &DiskStatus) -> Option<String> {
    let DiskStatus { files_bytes, free_bytes, log_bytes_expected, .. } = *disk;
    let free = free_bytes?;
    let (path, grows) = ("the disk of its log", log_bytes_expected.saturating_sub(files_bytes));
    (free < grows).then(|| {
        format!(
            "n{node}: {path} has {} free, and the log may grow by {} before it is recycled: make room. When the \
             disk is full, the node acknowledges nothing until there is room.",
            show_bytes(free),
            show_bytes(grows)
        )
    })
}

/// A warning if the log of a node takes nearly what it may. Files that it keeps for later are no part of that.
fn bound(node: u16, disk: &DiskStatus) -> Option<String> {
    let (takes, most) = (disk.log_bytes, disk.bytes_max?);
    (takes > most / 100 * BOUND_WARNED_PERCENT).then(|| {
        format!(
            "n{node}: its log takes {} of the {} that node.disk_bytes_max allows. When it takes all, the node \
             acknowledges nothing until its state is written. To allow more: `skein down`, and `skein up \
             --config FILE` with a larger node.disk_bytes_max.",
            show_bytes(takes),
            show_bytes(most)
        )
    })
}

/// A warning if a group holds nearly what it may.
fn ceiling(group: u16, held: u64, most: u64, store: StoreKind) -> Option<String> {
    let entry = match store {
        StoreKind::Memory => "limits.memory_bytes_max",
        StoreKind::Rocksdb => "limits.store_bytes_max",
    };
    (held > most / 100 * BOUND_WARNED_PERCENT).then(|| {
        format!(
            "g{group} holds {} of the {} that {entry} allows each group: writes that need more are refused. Delete \
             keys, or restore a backup into a cluster with more groups or a larger {entry}.",
            show_bytes(held),
            show_bytes(most)
        )
    })
}

/// `850ms`, `12s`, `3m 20s`, `5h 2m`, `4d 1h`
pub(super) fn time(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Rows in columns.
struct Table {
    /// The first row is the head.
    rows: Vec<Vec<String>>,
    /// Left-aligned columns.
    left: &'static [usize],
    /// Columns that are dropped if there is no room, in this order.
    spare: &'static [usize],
}

impl Table {
    /// Prints the columns that fit into `width`, with the last one wrapped if necessary. Returns
    /// whether columns were dropped.
    fn print(&self, text: &mut String, width: usize) -> bool {
        let columns = self.rows.first().map_or(0, Vec::len);
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].chars().count());
        let widths: Vec<usize> =
            (0..columns).map(|column| cells(column).max().unwrap_or(0)).collect();
        let mut shown: Vec<usize> = (0..columns).collect();
        let needed =
            |shown: &[usize]| shown.iter().map(|column| widths[*column] + 2).sum::<usize>();
        for spare in self.spare {
            if needed(&shown) > width.saturating_add(2) {
                shown.retain(|column| column != spare);
            }
        }
        let Some((last, others)) = shown.split_last() else { return false };
        for row in &self.rows {
            let mut line = String::new();
            for column in others {
                let (cell, width) = (&row[*column], widths[*column]);
                let _ = if self.left.contains(column) {
                    write!(line, "{cell:<width$}  ")
                } else {
                    write!(line, "{cell:>width$}  ")
                };
            }
            if self.left.contains(last) {
                let indent = " ".repeat(line.chars().count());
                wrap(text, &row[*last], &line, &indent, width);
            } else {
                let _ = writeln!(text, "{line}{:>w$}", row[*last], w = widths[*last]);
            }
        }
        shown.len() < columns
    }
}

/// Prints `words` behind `first`, wrapped to lines that begin with `next`.
fn wrap(text: &mut String, words: &str, first: &str, next: &str, width: usize) {
    let mut line = first.to_owned();
    let mut begun = false;
    for word in words.split_whitespace() {
        if begun && line.chars().count() + 1 + word.chars().count() > width {
            text.push_str(line.trim_end());
            text.push('\n');
            next.clone_into(&mut line);
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use skein_cluster::config::StoreKind;
    use skein_node::status::DiskStatus;

    use super::{Table, bound, ceiling, space, time, wrap};

    #[test]
    fn it_is_said_before_a_log_finds_no_space() {
        let disk = |log_bytes, free_bytes| DiskStatus {
            store: StoreKind::Memory,
            log_bytes,
            files_bytes: log_bytes + (64 << 20),
            bytes_max: Some(1000 << 20),
            at_bound: false,
            flushes: 0,
            flush_last_us: 0,
            flush_p50_us: 0,
            flush_p99_us: 0,
            free_bytes,
            log_bytes_expected: 640 << 20,
            orders: None,
            full: false,
            missing: false,
            damaged: Vec::new(),
            checkpoints_lost: Vec::new(),
        };
        assert_eq!(space(0, &disk(128 << 20, Some(448 << 20))), None, "just enough");
        let note = space(2, &disk(128 << 20, Some(447 << 20))).expect("too little");
        assert!(note.starts_with("n2: ") && note.contains("may grow by 448.0 MiB"), "{note}");
        assert_eq!(space(0, &disk(700 << 20, Some(0))), None, "it has what it may need");
        assert_eq!(space(0, &disk(0, None)), None, "it is not known");
        assert_eq!(bound(0, &disk(800 << 20, None)), None, "it may take a fifth more");
        let note = bound(1, &disk(801 << 20, None)).expect("it takes more than that");
        assert!(note.starts_with("n1: its log takes 801.0 MiB of the 1000.0 MiB"), "{note}");
        let free = DiskStatus { bytes_max: None, ..disk(1 << 40, None) };
        assert_eq!(bound(0, &free), None, "it is not bounded");
        assert_eq!(ceiling(0, 800 << 20, 1000 << 20, StoreKind::Memory), None, "a fifth is left");
        let note = ceiling(3, 801 << 20, 1000 << 20, StoreKind::Rocksdb).expect("less is left");
        assert!(
            note.starts_with("g3 holds 801.0 MiB of the 1000.0 MiB that limits.store_bytes_max"),
            "{note}"
        );
    }

    #[test]
    fn a_table_fits_and_says_when_it_leaves_columns_out() {
        let row = |cells: [&str; 3]| cells.map(String::from).to_vec();
        let rows = vec![
            row(["node", "memory", "state"]),
            row(["n0", "37.3 MiB", "paused; `skein admin kill 0 --signal CONT` resumes it"]),
        ];
        let table = Table { rows, left: &[2], spare: &[1] };
        let print = |width| {
            let mut text = String::new();
            (table.print(&mut text, width), text)
        };
        let (hidden, wide) = print(usize::MAX);
        assert!(!hidden && wide.contains("37.3 MiB  paused; `skein"), "{wide}");
        assert_eq!(wide.lines().count(), 2);
        let (hidden, narrow) = print(40);
        assert!(hidden && !narrow.contains("MiB"), "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    }

    #[test]
    fn words_are_not_split() {
        let mut text = String::new();
        wrap(&mut text, "one two three a-word-that-is-too-long", "", "  ", 9);
        assert_eq!(text, "one two\n  three\n  a-word-that-is-too-long\n");
    }

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
