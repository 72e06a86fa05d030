//! The real files, where a log relies on more than that they hold what was written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use skein_wal::Aligned;
use skein_wal::files::{Directory, FileName, Files};
use skein_wal::format::BLOCK;

const NAMES: [FileName; 2] = [FileName::Spare(1), FileName::Spare(2)];

/// A directory that is gone at the end. Not in `/tmp`, which may be in memory.
fn scratch() -> (tempfile::TempDir, Directory) {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = Directory::open(&scratch.path().join("log")).unwrap();
    (scratch, files)
}

/// The first byte of a file.
fn first(files: &Directory, name: FileName) -> Option<u8> {
    let mut block = Aligned::new(BLOCK);
    files.read(name, 0, block.bytes_mut()).ok()?;
    Some(block.bytes()[0])
}

#[test]
fn a_file_that_ends_early_is_an_error_and_not_zeroes() {
    let (_scratch, files) = scratch();
    files.create(NAMES[0], BLOCK as u64).unwrap();
    let mut blocks = Aligned::new(2 * BLOCK);
    assert!(files.read(NAMES[0], 0, blocks.bytes_mut()).is_err());
    assert_eq!(first(&files, NAMES[0]), Some(0));
}

#[test]
fn a_name_leads_to_the_file_that_has_it_now() {
    let (_scratch, files) = scratch();
    let [one, two] = NAMES;
    let mut block = Aligned::new(BLOCK);
    for (name, byte) in [(one, 1), (two, 2)] {
        files.create(name, BLOCK as u64).unwrap();
        block.bytes_mut().fill(byte);
        files.write(name, 0, block.bytes()).unwrap();
    }
    files.remove(two).unwrap();
    assert_eq!(first(&files, two), None, "it was open");
    files.rename(one, two).unwrap();
    assert_eq!((first(&files, one), first(&files, two)), (None, Some(1)));
    files.create(two, BLOCK as u64).unwrap();
    assert_eq!(first(&files, two), Some(0), "it was replaced");
}

#[test]
fn a_file_that_cannot_be_made_takes_no_space() {
    let (_scratch, files) = scratch();
    files.create(NAMES[0], 1 << 62).unwrap_err();
    assert_eq!(files.list().unwrap(), []);
}

#[test]
fn a_log_is_readable_by_its_owner_alone() {
    let (scratch, files) = scratch();
    let path = scratch.path().join("log");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is left of the look at the disk");
    files.create(NAMES[0], BLOCK as u64).unwrap();
    assert_eq!(mode(&path.join(NAMES[0].to_string())), 0o600);
}
