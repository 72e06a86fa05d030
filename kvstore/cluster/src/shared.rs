//! The files of a cluster's directory that all its processes share.

use std::io::ErrorKind;

use crate::directory::{CONFIG, Directory, DirectoryError, MANIFEST, MANIFEST_COPY, failed};
use crate::files;

/// The shared files of a cluster's directory, as they were when this process started.
#[derive(Debug)]
pub struct Shared {
    directory: Directory,
    cluster: String,
    manifest: String,
    /// The manifest has a copy.
    has_copy: bool,
    config: String,
}

impl Shared {
    /// Reads the files.
    pub fn read(directory: &Directory) -> Result<Self, DirectoryError> {
        let read = |name| {
            let path = directory.path().join(name);
            std::fs::read_to_string(&path).map_err(failed("read", &path))
        };
        let manifest = directory.manifest()?;
        let unwritten = |error: serde_json::Error| failed("write", directory.path())(error.into());
        Ok(Self {
            manifest: manifest.to_text().map_err(unwritten)?,
            has_copy: manifest.durable,
            cluster: manifest.cluster,
            config: read(CONFIG)?,
            directory: directory.clone(),
        })
    }

    /// The directory that holds the files.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Creates missing files again, and a damaged manifest. Returns whether any was missing or damaged.
    pub fn restore(&self) -> Result<bool, DirectoryError> {
        let dir = self.directory.path();
        let mut restored = false;
        match self.directory.manifest_in(MANIFEST) {
            Ok(manifest) if manifest.cluster == self.cluster => {}
            Ok(_) => {
                let dir = dir.to_owned();
                return Err(DirectoryError::Taken { dir, cluster: self.cluster.clone() });
            }
            Err(DirectoryError::NoCluster { .. } | DirectoryError::Damaged { .. }) => {
                files::make_directory(dir).map_err(failed("make the directory", dir))?;
                self.write(MANIFEST, &self.manifest)?;
                restored = true;
            }
            Err(error) => return Err(error),
        }
        if self.has_copy && self.directory.manifest_in(MANIFEST_COPY).is_err() {
            self.write(MANIFEST_COPY, &self.manifest)?;
            restored = true;
        }
        if is_missing(&dir.join(CONFIG)) {
            self.write(CONFIG, &self.config)?;
            restored = true;
        }
        Ok(restored)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), DirectoryError> {
        let path = self.directory.path().join(name);
        files::replace(&path, text).map_err(failed("write", &path))
    }
}

/// Whether `path` does not exist; false if that cannot be determined.
pub fn is_missing(path: &std::path::Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
