//! Backups are read as they were written, or refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use skein_backup::{Backup, BackupError, BackupWriter, MANIFEST, Origin, describe};
use skein_kvstore::backup::{Mark, Record};
use skein_kvstore::limits::Limits;

type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn origin() -> Origin {
    Origin {
        cluster: "a-cluster".to_owned(),
        build: "0.1.0".to_owned(),
        date: "2026-11-26T22:47:00Z".to_owned(),
        durability: "memory".to_owned(),
        limits: Limits::default(),
    }
}

fn encoded(map: &Map) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, (value, version)) in map {
        Record { key, value: Some(value), version: *version }.encode(&mut bytes);
    }
    bytes
}

fn mark(map: &Map) -> Mark {
    let mut mark = Mark { position: 9, keys: map.len() as u64, bytes: 0, digest: 0 };
    for (key, (value, version)) in map {
        let record = Record { key, value: Some(value), version: *version };
        mark.bytes += (key.len() + value.len()) as u64;
        mark.digest = mark.digest.wrapping_add(record.digest());
    }
    mark
}

/// Applies changes: a key, and its value unless it is removed.
fn change(map: &mut Map, changes: &[(u16, Option<Vec<u8>>)], versions: &mut u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in changes {
        let key = key.to_string().into_bytes();
        *versions += 1;
        let version = if value.is_some() { *versions } else { 0 };
        Record { key: &key, value: value.as_deref(), version }.encode(&mut bytes);
        match value {
            Some(value) => map.insert(key, (value.clone(), version)),
            None => map.remove(&key),
        };
    }
    bytes
}

fn read(backup: &Backup, group: u16) -> Result<Map, BackupError> {
    let (mut map, mut pairs) = (Map::new(), backup.pairs(group)?);
    while let Some(record) = pairs.next()? {
        let value = record.value.expect("a pair").to_vec();
        assert!(map.insert(record.key.to_vec(), (value, record.version)).is_none());
    }
    Ok(map)
}

/// A backup of two groups with `keys` keys each, some of which have changed.
fn write(dir: &Path, id: u8, keys: u64) -> Backup {
    let mut writer = BackupWriter::create(dir, 2, [id; 16]).unwrap();
    let mut marks = Vec::new();
    for group in 0..2 {
        let pair =
            |key: u64| (format!("{key:04}").into_bytes(), (vec![id; key as usize % 50], key));
        let mut map: Map = (1..=keys).map(pair).collect();
        writer.begin(group).unwrap();
        writer.walk(group, &encoded(&map)).unwrap();
        let mut versions = keys;
        let changes = change(&mut map, &[(1, Some(vec![7; 3])), (2, None)], &mut versions);
        writer.change(group, &changes).unwrap();
        marks.push(mark(&map));
    }
    writer.finish(origin(), &marks, &mut |_, _| ()).unwrap()
}

/// Opens and verifies.
fn verify(dir: &Path) -> Result<(), BackupError> {
    Backup::open(dir)?.verify(&mut |_, _| ()).map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn what_was_written_last_is_read_once_and_in_key_order(
        walked in vec((any::<u16>(), vec(any::<u8>(), 0..2000)), 0..200),
        changes in vec(vec((any::<u16>(), proptest::option::of(vec(any::<u8>(), 0..40))), 0..20), 0..10),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut versions = walked.len() as u64;
        let pair = |(version, (key, value)): (u64, (u16, Vec<u8>))| {
            (key.to_string().into_bytes(), (value, version))
        };
        let mut map: Map = (1..).zip(walked).map(pair).collect();
        let mut writer = BackupWriter::create(dir.path(), 1, [1; 16]).unwrap();
        writer.begin(0).unwrap();
        writer.walk(0, &encoded(&map)).unwrap();
        writer.begin(0).unwrap(); // The first copy was lost.
        writer.walk(0, &encoded(&map)).unwrap();
        for changes in changes {
            let bytes = change(&mut map, &changes, &mut versions);
            writer.change(0, &bytes).unwrap();
        }
        let backup = writer.finish(origin(), &[mark(&map)], &mut |_, _| ()).unwrap();
        prop_assert_eq!(&read(&backup, 0).unwrap(), &map);
        let opened = Backup::open(dir.path()).unwrap();
        prop_assert_eq!(opened.manifest(), backup.manifest());
        prop_assert_eq!(read(&opened, 0).unwrap(), map);
    }
}

#[test]
fn many_changes_become_many_runs_and_the_last_one_counts() {
    let dir = tempfile::tempdir().unwrap();
    // So many groups that each has room for a few of its changes only.
    let mut writer = BackupWriter::create(dir.path(), 8, [1; 16]).unwrap();
    for group in 0..8 {
        writer.begin(group).unwrap();
    }
    let (mut map, mut versions) = (Map::new(), 0);
    for round in 0..3 {
        for key in 0..12 {
            let value = (key != round).then(|| vec![round as u8; 1 << 20]);
            let bytes = change(&mut map, &[(key, value)], &mut versions);
            writer.change(5, &bytes).unwrap();
        }
    }
    let mut marks = vec![mark(&Map::new()); 8];
    marks[5] = mark(&map);
    let backup = writer.finish(origin(), &marks, &mut |_, _| ()).unwrap();
    assert!(backup.manifest().files.len() > 8 + 3, "{:?}", backup.manifest().files);
    assert_eq!(read(&backup, 5).unwrap(), map);
}

#[test]
fn what_is_not_what_the_group_had_at_its_mark_is_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = BackupWriter::create(dir.path(), 1, [1; 16]).unwrap();
    writer.begin(0).unwrap();
    let mut map = Map::new();
    let bytes = change(&mut map, &[(1, Some(vec![1]))], &mut 0);
    writer.change(0, &bytes).unwrap();
    map.get_mut(&b"1"[..]).unwrap().0 = vec![2];
    let error = writer.finish(origin(), &[mark(&map)], &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, BackupError::Wrong { .. }), "{error}");
    assert!(matches!(verify(dir.path()).unwrap_err(), BackupError::Incomplete(_)));
    writer.abandon().unwrap();
    assert!(matches!(verify(dir.path()).unwrap_err(), BackupError::NoBackup(_)));
}

#[test]
fn a_whole_backup_that_is_abandoned_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("backup");
    let mut writer = BackupWriter::create(&dir, 1, [1; 16]).unwrap();
    writer.begin(0).unwrap();
    writer.finish(origin(), &[mark(&Map::new())], &mut |_, _| ()).unwrap();
    verify(&dir).unwrap();
    writer.abandon().unwrap();
    assert!(!dir.exists());
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused_and_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let backup = write(dir.path(), 1, 12);
    let mut names: Vec<_> = backup.manifest().files.iter().map(|file| file.name.clone()).collect();
    assert_eq!(names.len(), 4);
    names.push(MANIFEST.to_owned());
    for name in names {
        let path = dir.path().join(&name);
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8], how: &str| {
            fs::write(&path, bytes).unwrap();
            let error = verify(dir.path()).expect_err(how).to_string();
            assert!(error.contains(&name), "{how}: {error}");
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            refused(&bytes, &format!("bit of byte {at} of {name}"));
            refused(&whole[..at], &format!("{name} cut at {at}"));
        }
        refused(&[&whole[..], b"x"].concat(), &format!("a byte behind {name}"));
        fs::write(&path, whole).unwrap();
        verify(dir.path()).unwrap();
    }
}

#[test]
fn what_is_missing_or_of_another_backup_is_named() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // As long as the other one, so that lengths say nothing.
    let backup = write(dir.path(), 1, 12);
    write(other.path(), 2, 12);
    for file in &backup.manifest().files {
        let path = dir.path().join(&file.name);
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let error = Backup::open(dir.path()).unwrap_err();
        assert!(matches!(&error, BackupError::Missing(missing) if *missing == path), "{error}");
        fs::copy(other.path().join(&file.name), &path).unwrap();
        let error = verify(dir.path()).unwrap_err();
        assert!(matches!(&error, BackupError::Foreign { path: of, .. } if *of == path), "{error}");
        fs::write(&path, whole).unwrap();
    }
    let swap = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|name| dir.path().join(name));
        let (first, second) = (fs::read(&one).unwrap(), fs::read(&other).unwrap());
        fs::write(one, second).unwrap();
        fs::write(other, first).unwrap();
    };
    swap("group-0.run-0", "group-1.run-0");
    let error = verify(dir.path()).unwrap_err().to_string();
    assert!(error.contains("it is run 0 of group 1"), "{error}");
    swap("group-0.run-0", "group-1.run-0");
    verify(dir.path()).unwrap();
    fs::copy(other.path().join(MANIFEST), dir.path().join(MANIFEST)).unwrap();
    assert!(matches!(verify(dir.path()).unwrap_err(), BackupError::Foreign { .. }));
    fs::remove_file(dir.path().join(MANIFEST)).unwrap();
    assert!(matches!(verify(dir.path()).unwrap_err(), BackupError::Incomplete(_)));
    let again = BackupWriter::create(dir.path(), 2, [3; 16]).map(drop).unwrap_err();
    assert!(matches!(again, BackupError::HoldsIncomplete(_)), "{again}");
    let again = BackupWriter::create(other.path(), 2, [3; 16]).map(drop).unwrap_err();
    assert!(matches!(again, BackupError::NotEmpty(_)), "{again}");
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, 3);
    let path = dir.path().join("group-0.run-0");
    let mut bytes = fs::read(&path).unwrap();
    bytes[16] = 2;
    fs::write(&path, bytes).unwrap();
    let error = verify(dir.path()).unwrap_err();
    assert!(matches!(error, BackupError::Newer { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_backup_and_its_files_are_described() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, 12);
    let all = describe(dir.path()).unwrap().to_string();
    assert!(all.contains("of cluster a-cluster") && all.contains("verified"), "{all}");
    assert_eq!(describe(&dir.path().join(MANIFEST)).unwrap().to_string(), all);
    let run = describe(&dir.path().join("group-1.run-1")).unwrap();
    let text = run.to_string();
    assert!(text.contains("run 1 of group 1") && text.contains("1 removed keys"), "{text}");
    assert!(text.contains("from 1 to 2"), "{text}");
    let json = serde_json::to_value(&run).unwrap();
    assert_eq!((&json["pairs"], &json["removed"]), (&1.into(), &1.into()));
    assert!(describe(&dir.path().join("group-9.run-9")).is_err());
}

/// Taken from a cluster by the first version that wrote this format.
#[test]
fn format_1_is_read() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1");
    verify(&dir).unwrap();
    let backup = Backup::open(&dir).unwrap();
    let mut pairs: Vec<_> = (0..2)
        .flat_map(|group| read(&backup, group).unwrap())
        .map(|(key, (value, _))| (key, value))
        .collect();
    pairs.sort();
    let pair = |n: u8| (format!("key{n}").into_bytes(), format!("value{n}").into_bytes());
    assert_eq!(pairs, (1..=5).map(pair).collect::<Vec<_>>());
}
