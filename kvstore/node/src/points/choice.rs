//! To which restore point a cluster returns when none of its nodes runs, and the states there.
//!
//! **Invariant (one choice).** Whoever holds the cluster's directory chooses, and the choice is on disk, in the manifest, before a
//! node starts. From then on, points of the generations before count only if they are the one chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::{Directory, Manifest, Returned, RolledBack};
use skein_kvstore::points::{
    Choice, Disks, Lost, NotReturned, Point, PointEnd, PointRecord, Points, Returning, Survey,
};
use skein_kvstore::slots::SlotMap;
use skein_kvstore::store::Store;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_wal::files::{self, FileError, Files, OpenError, View};
use skein_wal::format::Record;
use skein_wal::{Group, RecoverError, Recovery};

use super::marker::now_us;
use crate::disk::owner;
use crate::engine_log::Joined;
use crate::missing::{has_log, needed};

/// Versions for each millisecond of `lag_ms_max` between the newest one at a point and those that are assigned after a return:
/// more than a group can assign meanwhile. A group assigns fewer than one in a microsecond, so the time of day is above all
/// of them, too, unless the clock was set back.
const VERSIONS_PER_MS: u64 = 10_000;
/// Time for which a state is looked for, and pause between two attempts.
const READ_WITHIN: Duration = Duration::from_secs(20);
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Why no point was chosen, or the state there was not found.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// More disks are gone than the cluster tolerates, for now or for good.
    #[error("more disks are lost than the cluster tolerates{}: {}{}", without(.missing), found(*.floor, *.newest), advice(*.newest))]
    Lost {
        /// The newest point that was known to be everywhere.
        floor: u64,
        /// The newest point that every group still has.
        newest: Option<u64>,
        /// Directories of nodes in which there is no log, or none that can be read.
        missing: Vec<PathBuf>,
    },
    #[error("cannot read the restore points in {}: {why}", path.display())]
    Open { path: PathBuf, why: OpenError },
    /// Nodes whose logs cannot be read do not start, and a group needs them.
    #[error(
        "too few nodes would start: the logs in {} cannot be read; put the nodes' own files back, or move these \
         directories away, and `skein up --accept-lost-disks` again", shown(.0)
    )]
    Unread(Vec<PathBuf>),
    /// The data would be taken for void, and the cluster would go on with what it had before.
    #[error(
        "{} is older than the data: it says that the cluster has returned to restore points {generation} times, and the log \
         in {} was written after {found} times; put the newest cluster.json and cluster.json.copy back, and start the \
         cluster again; no data is lost", manifest.display(), data.display()
    )]
    OlderManifest { manifest: PathBuf, generation: u32, data: PathBuf, found: u32 },
    #[error("cannot sync {}: {why}", path.display())]
    Sync { path: PathBuf, why: FileError },
    #[error(
        "no disk of this host has the state of group {group} at restore point {point}: {why}; `skein down` and `skein up` \
         return to a newer one"
    )]
    NoState { group: u16, point: u64, why: String },
}

fn found(floor: u64, newest: Option<u64>) -> String {
    let known = if floor > 0 {
        format!(", and restore point {floor} was on f+1 disks of every group")
    } else {
        String::new()
    };
    newest.map_or_else(
        || format!("no restore point is left that every group has{known}"),
        |newest| format!("the newest restore point that every group still has is {newest}{known}"),
    )
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn without(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        String::new()
    } else {
        format!(" (no log that can be read is in {})", shown(paths))
    }
}

fn advice(newest: Option<u64>) -> &'static str {
    if newest.is_some() {
        "; put the data back where it was, and start the cluster again; or `skein up --accept-lost-disks` returns to that \
         point, though it may be older than node.lag_ms_max"
    } else {
        "; put the data back where it was, and start the cluster again; if it is gone, `skein down --wipe` and `skein up` \
         begin a new cluster, into which a backup can be restored"
    }
}

/// Chooses the point to which the cluster returns. None of its nodes runs, and the caller keeps them from
/// starting. `warn` is told which disks cannot be read. `accepts` the loss of more disks than the cluster tolerates, if
/// any point is left.
///
/// # Errors
/// If points may be lost that were on f+1 disks of every group, or the manifest is older than the data.
pub fn choose(
    directory: &Directory,
    manifest: &Manifest,
    config: &ClusterConfig,
    accepts: bool,
    warn: &mut dyn FnMut(String),
) -> Result<Returned, ChoiceError> {
    let before = manifest.returned.as_ref();
    let chosen = before.map(|it| (it.of, it.point));
    let mut survey = Survey::new(config.topology.groups, manifest.generation(), chosen);
    let (mut missing, mut unread, mut lost_nodes) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
    for node in 0..config.topology.nodes {
        let path = data_path(directory, node);
        if !has_log(directory, node) {
            missing.push(path);
            lost_nodes.insert(node);
            continue;
        }
        let files = files::Directory::open(&path)
            .map_err(|why| ChoiceError::Open { path: path.clone(), why })?;
        // What is read may be in a cache only, and the choice would outlive it.
        files::sync_everything(&files)
            .map_err(|why| ChoiceError::Sync { path: path.clone(), why })?;
        let mut newest = 0;
        let read = read(&files, manifest, node, None, &mut |group, points, record| {
            if let PointRecord::Begin { generation, .. } = &record {
                newest = newest.max(*generation);
            }
            if let Some((generation, end)) = points.take(&record) {
                survey.take(group, generation, end);
            }
            Ok(())
        });
        // Even a log that cannot be read to its end says so.
        if newest > manifest.generation() {
            let (manifest, generation) = (directory.manifest_path(), manifest.generation());
            return Err(ChoiceError::OlderManifest {
                manifest,
                generation,
                data: path,
                found: newest,
            });
        }
        if let Err(why) = read {
            warn(format!("the log in {} counts as lost: {why}", path.display()));
            unread.insert(node, path);
            lost_nodes.insert(node);
        }
    }
    let disks = if lost_nodes.is_empty() {
        Disks::All
    } else if needed(config, &lost_nodes).is_empty() {
        Disks::Enough
    } else {
        Disks::TooFew
    };
    let Choice { point, closed, version } = match survey.choose(disks, accepts) {
        Ok(choice) => choice,
        Err(Lost { floor, newest }) => {
            missing.extend(unread.into_values());
            return Err(ChoiceError::Lost { floor, newest, missing });
        }
    };
    // Nothing is chosen before that, for the choice makes newer points void.
    if !needed(config, &unread.keys().copied().collect()).is_empty() {
        return Err(ChoiceError::Unread(unread.into_values().collect()));
    }
    for path in &missing {
        let path = path.display();
        warn(format!("there is no log in {path}: its node takes what the disks of others have"));
    }
    let generation = manifest.generation() + 1;
    let (of, point) = point.unwrap_or((manifest.generation(), 0));
    let gap = config.lag_ms_max.max(1_000) * VERSIONS_PER_MS;
    let versions = version.max(before.map_or(0, |it| it.versions)) + gap;
    let versions = versions.max(now_us());
    let rolled_back = if closed {
        before.and_then(|it| it.rolled_back)
    } else {
        Some(RolledBack { generation, point })
    };
    Ok(Returned { generation, of, point, versions, closed, rolled_back })
}

/// The states of replicas at the point to which the cluster returns, from the disk of their `node` or of another node. `empty` makes
/// an empty store.
pub(crate) fn states<S: Store>(
    directory: &Directory,
    manifest: &Manifest,
    config: &ClusterConfig,
    returned: &Returned,
    (node, replicas): (u16, &[ReplicaId]),
    mut empty: impl FnMut(ReplicaId) -> S,
) -> Result<BTreeMap<ReplicaId, (S, SlotMap)>, ChoiceError> {
    let mut states = BTreeMap::new();
    if returned.point == 0 {
        let slots = SlotMap::even(config.topology.groups);
        return Ok(replicas.iter().map(|id| (*id, (empty(*id), slots.clone()))).collect());
    }
    let begun = Instant::now();
    let nodes = (0..config.topology.nodes).map(|more| (node + more) % config.topology.nodes);
    for id in replicas {
        let state = loop {
            let mut why = "it is on no disk".to_owned();
            let sources = nodes.clone().filter(|source| has_log(directory, *source));
            let mut found = sources.filter_map(|source| {
                state(directory, manifest, returned, (source, id.group), || empty(*id))
                    .map_err(|reason| why = format!("node {source}: {reason}"))
                    .ok()
            });
            if let Some(found) = found.next() {
                break found;
            }
            // Another node may be at work on its log, and has renamed a file that was to be read.
            if begun.elapsed() > READ_WITHIN {
                let (group, point) = (id.group.0, returned.point);
                return Err(ChoiceError::NoState { group, point, why });
            }
            thread::sleep(READ_AGAIN);
        };
        states.insert(*id, state);
    }
    Ok(states)
}

fn state<S: Store>(
    directory: &Directory,
    manifest: &Manifest,
    returned: &Returned,
    (node, group): (u16, GroupId),
    mut empty: impl FnMut() -> S,
) -> Result<(S, SlotMap), String> {
    // A node that has begun already has the same state as its first point of the new generation, and may have dropped
    // the other.
    let there = [(returned.of, returned.point), (returned.generation, returned.first())];
    let [chosen, first] = there;
    let mut read = |point| state_at(directory, manifest, point, (node, group), empty());
    let (store, end) = read(chosen).or_else(|_| read(first))?;
    Ok((store, end.slots))
}

fn state_at<S: Store>(
    directory: &Directory,
    manifest: &Manifest,
    (generation, number): Point,
    (node, group): (u16, GroupId),
    empty: S,
) -> Result<(S, PointEnd), String> {
    let view = View::of(&data_path(directory, node));
    let mut returning = Returning::new(empty, generation, number);
    let mut failure = None;
    read(&view, manifest, node, Some(Group(group.0)), &mut |_, _, record| {
        returning.take(&record).map_err(|why| failure = Some(why.to_string()))
    })
    .map_err(|why| failure.unwrap_or_else(|| why.to_string()))?;
    returning.finish().map_err(|why: NotReturned<_>| why.to_string())
}

fn data_path(directory: &Directory, node: u16) -> PathBuf {
    let path = directory.node_data(node);
    std::fs::read_link(&path).unwrap_or(path)
}

/// Why a log of points is not read to its end.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Log(#[from] RecoverError),
    #[error("a record of group {0} is malformed")]
    Malformed(u16),
}

type Visit<'a> = dyn FnMut(u16, &mut Points, PointRecord<'_>) -> Result<(), ()> + 'a;

/// Reads the records of a node's log, of all groups or of one.
fn read(
    files: &impl Files,
    manifest: &Manifest,
    node: u16,
    only: Option<Group>,
    visit: &mut Visit<'_>,
) -> Result<(), ReadError> {
    let recovery = Recovery::read(files, owner(manifest, node), &[])?;
    let mut logs: BTreeMap<u16, (Points, Joined)> = BTreeMap::new();
    let mut malformed = None;
    let take = |record: &Record<'_>| {
        let group = record.group;
        let (points, joined) = logs.entry(group.0).or_default();
        joined.take(&recovery, record, |kind, whole| {
            let taken = PointRecord::decode(kind, whole).map_err(drop);
            let taken = taken.and_then(|record| visit(group.0, points, record));
            if taken.is_err() {
                malformed.get_or_insert(group.0);
            }
        });
    };
    match only {
        Some(group) => recovery.replay_group(group, files, take)?,
        None => recovery.replay(files, take)?,
    }
    malformed.map_or(Ok(()), |group| Err(ReadError::Malformed(group)))
}
