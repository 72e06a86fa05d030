//! Where the data of nodes lies, if that is not the cluster's directory: symbolic links lead there.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::config::ClusterConfig;
use crate::directory::{Directory, DirectoryError, Manifest, failed};

/// The directories in `node.data_dir` for the data of each node; none if the data is in the cluster's directory.
pub(crate) fn places(manifest: &Manifest, config: &ClusterConfig) -> Vec<PathBuf> {
    let Some(dir) = config.data_dir.as_deref().filter(|_| manifest.durable) else {
        return Vec::new();
    };
    let place = |node| dir.join(format!("skein-{}-node{node}.data", manifest.data_name()));
    (0..manifest.nodes).map(place).collect()
}

/// Fails if the data of a new cluster cannot lie in `dir`. A missing directory is not created: the disk that belongs
/// there may not be mounted.
pub(crate) fn check(dir: &Path, places: &[PathBuf], cluster: &str) -> Result<(), DirectoryError> {
    let refuse = |why| DirectoryError::NoDataDir { path: dir.to_owned(), why };
    let about = fs::metadata(dir).map_err(refuse)?;
    if !about.is_dir() {
        return Err(refuse(io::Error::from(ErrorKind::NotADirectory)));
    }
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(dir, rights).map_err(|error| refuse(error.into()))?;
    match places.iter().find(|place| fs::symlink_metadata(place).is_ok()) {
        Some(path) => {
            Err(DirectoryError::OldData { path: path.clone(), cluster: cluster.to_owned() })
        }
        None => Ok(()),
    }
}

/// Makes the links that are missing.
pub(crate) fn link(directory: &Directory, places: &[PathBuf]) -> Result<(), DirectoryError> {
    for (node, place) in (0..).zip(places) {
        let link = directory.node_data(node);
        match symlink(place, &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed("make the link", &link)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Data that was moved away has this behind `nodeN.` in its name, and a number behind it.
const ASIDE: &str = "data.replaced-";

/// Whether this is the name of data that was moved away, without the `nodeN.` in front.
pub(crate) fn is_aside(kind: &str) -> bool {
    kind.strip_prefix(ASIDE).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Moves the data of a node away, so that its start number `start` finds none. Returns where it is now, if there was any.
/// Data in `node.data_dir` stays on its disk, and a link leads to it.
pub(crate) fn move_aside(
    directory: &Directory,
    node: u16,
    start: u32,
) -> Result<Option<PathBuf>, DirectoryError> {
    let data = directory.node_data(node);
    let aside = data.with_file_name(format!("node{node}.{ASIDE}{start}"));
    let (from, to) = match fs::read_link(&data) {
        Ok(place) => {
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            let to = place.with_file_name(format!("{name}.replaced-{start}"));
            (place, to)
        }
        Err(_) => (data.clone(), aside.clone()),
    };
    match fs::rename(&from, &to) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        moved => moved.map_err(failed("move away", &from))?,
    }
    if to != aside {
        symlink(&to, &aside).map_err(failed("make the link", &aside))?;
    }
    Ok(Some(aside))
}

/// Removes the data of a node, and the link to it if there is one.
pub(crate) fn remove(data: &Path) -> Result<(), DirectoryError> {
    let Ok(place) = fs::read_link(data) else {
        return fs::remove_dir_all(data).map_err(failed("remove", data));
    };
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed("remove", &place)(error));
        }
        _ => {}
    }
    fs::remove_file(data).map_err(failed("remove", data))
}
