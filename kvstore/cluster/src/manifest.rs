//! The manifest of a cluster as text, and where it is read.
//!
//! **Invariant.** A bit that flips in a file of a durable cluster makes it no other cluster, and does not hide its data:
//! its manifest has a checksum, and there is a copy, which stands in for one that is damaged or missing.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use skein_fabric::Constants;
use skein_kvstore::machine::behaviour;
use skein_multicast::trees::Shape;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{ClusterConfig, Durability, Protocol};
use crate::directory::{
    CONFIG, Directory, DirectoryError, MANIFEST, MANIFEST_COPY, Manifest, failed,
};

const CHECKSUM: &str = "checksum";

impl Manifest {
    /// Its text. That of a durable cluster has a checksum.
    pub(crate) fn to_text(&self) -> serde_json::Result<String> {
        let mut value = serde_json::to_value(self)?;
        if self.durable {
            value[CHECKSUM] = checksum(&value).into();
        }
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    /// Parses its text, or returns what is wrong with it.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let mut value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let said = value.as_object_mut().and_then(|entries| entries.remove(CHECKSUM));
        if said.is_some_and(|said| said != checksum(&value)) {
            return Err("its checksum is not right".to_owned());
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// Fails if the configuration is not the one that the cluster was created with, as far as its data depends on it.
    pub(crate) fn check_config(
        &self,
        directory: &Directory,
        config: &ClusterConfig,
    ) -> Result<(), DirectoryError> {
        let differs = |entry: &str, made, now| {
            let entry = entry.to_owned();
            let file = directory.path().join(CONFIG);
            Err(DirectoryError::Reconfigured { file, entry, made, now })
        };
        let number = |number: u16| number.to_string();
        // A tree has another shape with another number of groups.
        let groups = config.topology.groups;
        if let Some(made) = self.topology.filter(|made| made.groups != groups) {
            return differs("topology.groups", number(made.groups), number(groups));
        }
        // The nodes of a cluster in memory would refuse each other, and each of them says why here.
        let now = config.parents();
        if self.tree != now {
            let protocol =
                |tree: &Option<_>| if tree.is_some() { Protocol::Tram } else { Protocol::Ramcast };
            let [made_by, by] = [&self.tree, &now].map(protocol);
            if made_by != by {
                return differs("order.protocol", made_by.name().to_owned(), by.name().to_owned());
            }
            let shape = |tree: Option<Vec<_>>| Shape::Parents(tree.unwrap_or_default()).to_string();
            return differs("order.tree", shape(self.tree.clone()), shape(now));
        }
        let Some(made) = self.topology else { return Ok(()) };
        let now = config.topology;
        let durability = self.durability();
        let word = |durability: Durability| durability.name().to_owned();
        #[rustfmt::skip]
        let entries = [
            ("topology.nodes", number(made.nodes), number(now.nodes)),
            ("topology.replicas", number(made.replicas.into()), number(now.replicas.into())),
            ("topology.engines", number(made.engines), number(now.engines)),
            ("node.durability", word(durability), word(config.durability)),
            ("node.store", self.store.name().to_owned(), config.store.name().to_owned()),
        ];
        if let Some((entry, made, now)) = entries.into_iter().find(|(_, made, now)| made != now) {
            return differs(entry, made, now);
        }
        for (entry, now) in limits_of(config) {
            if let Some(made) = self.limits.get(&entry).filter(|made| **made != now) {
                return differs(&entry, made.clone(), now);
            }
        }
        self.check_behaviour(directory)
    }

    /// Fails if the cluster's log holds commands that would have other results in this program.
    fn check_behaviour(&self, directory: &Directory) -> Result<(), DirectoryError> {
        for (entry, now) in behaviour_of(self.durability()) {
            if let Some(made) = self.behaviour.get(&entry).filter(|made| **made != now) {
                let (dir, made) = (directory.path().to_owned(), made.clone());
                let theirs = Box::new(self.build.clone());
                return Err(DirectoryError::OtherBehaviour { dir, theirs, entry, made, now });
            }
        }
        Ok(())
    }

    const fn durability(&self) -> Durability {
        match (self.durable, self.points) {
            (false, _) => Durability::Memory,
            (true, false) => Durability::Sync,
            (true, true) => Durability::Async,
        }
    }
}

/// The limits of a configuration, as a manifest has them.
pub(crate) fn limits_of(config: &ClusterConfig) -> BTreeMap<String, String> {
    by_name(&config.limits.constants())
}

/// The constants of this program that decide the results of commands, as a manifest has them. None if no log is executed
/// again.
pub(crate) fn behaviour_of(durability: Durability) -> BTreeMap<String, String> {
    match durability {
        Durability::Memory | Durability::Async => BTreeMap::new(),
        Durability::Sync => by_name(&behaviour()),
    }
}

fn by_name(constants: &Constants) -> BTreeMap<String, String> {
    constants.entries().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn checksum(manifest: &Value) -> String {
    // The entries of an object are sorted by their names.
    format!("{:016x}", xxh3_64(manifest.to_string().as_bytes()))
}

impl Directory {
    /// The manifest of the cluster in this directory. That of a durable one may be read from its copy, and is compared with it.
    pub fn manifest(&self) -> Result<Manifest, DirectoryError> {
        let copy = || self.manifest_in(MANIFEST_COPY);
        match self.manifest_in(MANIFEST) {
            Err(error @ (DirectoryError::Damaged { .. } | DirectoryError::NoCluster { .. })) => {
                copy().map_err(|_| error)
            }
            Ok(manifest) if manifest.durable => match copy() {
                // One of the two is older: it was put back, or the cluster lost its power between the two writes.
                Ok(copied) if copied.data_name() == manifest.data_name() => {
                    let newer = copied.generation() > manifest.generation();
                    Ok(if newer { copied } else { manifest })
                }
                Ok(copied) if copied.cluster != manifest.cluster => Err(DirectoryError::Mixed {
                    file: self.path().join(MANIFEST),
                    cluster: manifest.cluster,
                    copy: self.path().join(MANIFEST_COPY),
                    copied: copied.cluster,
                }),
                _ => Ok(manifest),
            },
            read => read,
        }
    }

    /// The manifest in the file of this name.
    pub(crate) fn manifest_in(&self, name: &str) -> Result<Manifest, DirectoryError> {
        let file = self.path().join(name);
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DirectoryError::NoCluster { dir: self.path().to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && self.path().is_file() => {
                return Err(DirectoryError::IsFile { file: self.path().to_owned() });
            }
            Err(error) => return Err(failed("read", &file)(error)),
        };
        Manifest::parse(&text).map_err(|why| DirectoryError::Damaged { file, why })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use skein_multicast::config::Topology;
    use skein_multicast::protocol::tram::tree::Tree;

    use super::*;
    use crate::BUILD;
    use crate::config::StoreKind;
    use crate::directory::Returned;

    fn manifest(durable: bool) -> Manifest {
        let topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
        Manifest {
            build: BUILD.owned(),
            cluster: "31d9c0de".to_owned(),
            regions: PathBuf::from("/dev/shm/skein-31d9c0de"),
            nodes: 3,
            topology: durable.then_some(topology),
            tree: None,
            durable,
            store: StoreKind::Memory,
            points: false,
            limits: if durable { limits_of(&ClusterConfig::default()) } else { BTreeMap::new() },
            behaviour: if durable { behaviour_of(Durability::Sync) } else { BTreeMap::new() },
            data: None,
            returned: None,
            made: vec![PathBuf::from("/srv/skein")],
        }
    }

    #[test]
    fn no_bit_of_a_durable_clusters_manifest_can_flip() {
        for durable in [false, true] {
            let text = manifest(durable).to_text().unwrap();
            assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest(durable)));
        }
        let text = manifest(true).to_text().unwrap().into_bytes();
        for at in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            if let Ok(read) = Manifest::parse(&flipped) {
                // White space between the entries may have changed.
                assert_eq!(read, manifest(true), "bit {at}");
            }
        }
    }

    #[test]
    fn a_copy_stands_in_for_a_manifest_that_is_damaged_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path()).unwrap();
        let (file, copy) = (dir.path().join(MANIFEST), dir.path().join(MANIFEST_COPY));
        let text = manifest(true).to_text().unwrap();
        std::fs::write(&copy, &text).unwrap();
        assert_eq!(directory.manifest().unwrap(), manifest(true));
        std::fs::write(&file, text.replace("31d9", "31d8")).unwrap();
        assert_eq!(directory.manifest().unwrap(), manifest(true));
        std::fs::write(&copy, "{}").unwrap();
        let error = directory.manifest().unwrap_err().to_string();
        assert!(error.contains("cluster.json") && error.contains("its checksum"), "{error}");
        std::fs::write(&file, &text).unwrap();
        assert_eq!(directory.manifest().unwrap(), manifest(true));
    }

    #[test]
    fn the_newer_one_of_a_manifest_and_its_copy_counts() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path()).unwrap();
        let returned = |generation| Manifest {
            cluster: format!("cluster{generation}"),
            data: Some("31d9c0de".to_owned()),
            returned: Some(Returned {
                generation,
                of: generation - 1,
                point: 7,
                versions: 8,
                closed: true,
                rolled_back: None,
            }),
            ..manifest(true)
        };
        let all = [manifest(true), returned(1), returned(2)];
        for (file, copy, newest) in [(0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 1, 2)] {
            for (name, manifest) in [(MANIFEST, file), (MANIFEST_COPY, copy)] {
                std::fs::write(dir.path().join(name), all[manifest].to_text().unwrap()).unwrap();
            }
            assert_eq!(directory.manifest().unwrap(), all[newest], "{file}, {copy}");
        }
    }

    #[test]
    fn a_manifest_of_another_cluster_than_its_copy_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path()).unwrap();
        let (file, copy) = (dir.path().join(MANIFEST), dir.path().join(MANIFEST_COPY));
        let other = Manifest { cluster: "1f5bd791".to_owned(), ..manifest(true) };
        std::fs::write(&file, other.to_text().unwrap()).unwrap();
        std::fs::write(&copy, manifest(true).to_text().unwrap()).unwrap();
        let error = directory.manifest().unwrap_err().to_string();
        for expected in [
            "cluster.json is of cluster 1f5bd791",
            "cluster.json.copy beside it of cluster 31d9c0de",
        ] {
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_configuration_of_another_shape_is_refused_by_its_entry() {
        let directory = Directory::at(std::path::Path::new("/srv/skein")).unwrap();
        let durable = ClusterConfig { durability: Durability::Sync, ..ClusterConfig::default() };
        assert!(manifest(true).check_config(&directory, &durable).is_ok());
        let mut other = durable.clone();
        other.topology.replicas = 1;
        let error = manifest(true).check_config(&directory, &other).unwrap_err().to_string();
        assert!(
            error.contains("topology.replicas = 1") && error.contains("made with 3"),
            "{error}"
        );
        let memory = ClusterConfig::default();
        let error = manifest(true).check_config(&directory, &memory).unwrap_err().to_string();
        assert!(error.contains("node.durability = memory"), "{error}");
        let returns = ClusterConfig { durability: Durability::Async, ..ClusterConfig::default() };
        let made = Manifest { points: true, ..manifest(true) };
        assert!(made.check_config(&directory, &returns).is_ok());
        let error = made.check_config(&directory, &durable).unwrap_err().to_string();
        assert!(error.contains("node.durability = sync"), "{error}");
        let along = ClusterConfig { tree: Some(Tree::depth(2)), ..durable.clone() };
        for manifest in [manifest(true), manifest(false)] {
            let error = manifest.check_config(&directory, &along).unwrap_err().to_string();
            assert!(error.contains("order.protocol = tram"), "{error}");
            assert!(error.contains("made with ramcast"), "{error}");
            let made = Manifest { tree: along.parents(), ..manifest };
            let tree = Some(Tree::of(&[Some(1), None]).unwrap());
            let error = made.check_config(&directory, &ClusterConfig { tree, ..durable.clone() });
            let error = error.unwrap_err().to_string();
            assert!(error.contains("order.tree = [1, -1]"), "{error}");
            assert!(error.contains("made with [-1, 0]"), "{error}");
        }
        let mut other = durable.clone();
        other.limits.memory_bytes_max = 2 << 30;
        let error = manifest(true).check_config(&directory, &other).unwrap_err().to_string();
        assert!(error.contains("limits.memory_bytes_max = 2147483648"), "{error}");
        assert!(error.contains("made with 1073741824"), "{error}");
        let older = Manifest { limits: BTreeMap::new(), ..manifest(true) };
        assert!(older.check_config(&directory, &other).is_ok(), "nothing says what it was");
        let mut behaves = manifest(true);
        behaves.behaviour.insert("behaviour".to_owned(), "0".to_owned());
        let error = behaves.check_config(&directory, &durable).unwrap_err().to_string();
        assert!(error.contains("behaviour is 0 there and ") && error.contains("backup"), "{error}");
        let older = Manifest { behaviour: BTreeMap::new(), ..manifest(true) };
        assert!(older.check_config(&directory, &durable).is_ok(), "nothing says what it was");
        let points = ClusterConfig { durability: Durability::Async, ..durable.clone() };
        let restored = Manifest { points: true, ..behaves };
        assert!(restored.check_config(&directory, &points).is_ok(), "no log is executed again");
        let rocksdb = ClusterConfig { store: StoreKind::Rocksdb, ..durable };
        let error = manifest(true).check_config(&directory, &rocksdb).unwrap_err().to_string();
        assert!(error.contains("node.store = rocksdb"), "{error}");
    }
}
