//! Work on files beside the writing of blocks: segments ahead of need, and old ones that go.

use super::{FileError, FileName, Files, SegmentName};
use crate::aligned::Aligned;
use crate::format::BLOCK;
use crate::writer::Task;

/// Does what the writer asked for. When it returns, the result survives the loss of power.
pub fn perform(files: &impl Files, task: &Task) -> Result<(), FileError> {
    match *task {
        Task::Prepare { name, reuse, bytes } => prepare(files, name, reuse, bytes),
        Task::Retire { segment } => {
            let named = FileName::Segment(segment);
            if is_there(files, named)? {
                files.rename(named, FileName::Spare(segment.sequence))?;
            }
            files.sync_directory()
        }
        Task::Remove { file } => {
            if let Some(now) = name_now(files, file)? {
                files.remove(now)?;
            }
            files.sync_directory()
        }
    }
}

/// Whether a file has its name still: a task whose end there was no space for is done again.
fn is_there(files: &impl Files, file: FileName) -> Result<bool, FileError> {
    Ok(files.list()?.iter().any(|(name, _)| *name == file))
}

/// The name that a file has. A segment may have lost its own in a task for whose end there was no space. None if it has
/// neither name.
fn name_now(files: &impl Files, file: FileName) -> Result<Option<FileName>, FileError> {
    let spare = match file {
        FileName::Segment(segment) => FileName::Spare(segment.sequence),
        FileName::Spare(_) => file,
    };
    let listed = files.list()?;
    Ok([file, spare].into_iter().find(|now| listed.iter().any(|(name, _)| name == now)))
}

/// Makes a segment's file without a header, from an old file if there is one.
///
/// An old segment first loses its name, then its header, and then gets the new name, each durable
/// before the next; it may have lost its name [before](Task::Retire). In any other order a crash leaves a segment without its header, which is damage, or
/// an old header under a new name, which is a swapped file. Old blocks behind the header stay: the new
/// salt refuses them.
fn prepare(
    files: &impl Files,
    name: SegmentName,
    reuse: Option<FileName>,
    bytes: u64,
) -> Result<(), FileError> {
    let spare = FileName::Spare(name.sequence);
    match reuse {
        None => files.create(spare, bytes)?,
        Some(old) => {
            match name_now(files, old)? {
                Some(now) if now != spare => files.rename(now, spare)?,
                Some(_) => {}
                None if is_there(files, spare)? => {}
                // There was no space for the last step alone.
                None => return files.sync_directory(),
            }
            files.sync_directory()?;
            files.write(spare, 0, Aligned::new(BLOCK).bytes())?;
            // An earlier process may have made the file, and was not told that it is durable.
            files.sync(spare)?;
        }
    }
    files.rename(spare, FileName::Segment(name))?;
    files.sync_directory()
}

/// Makes durable whatever an earlier process left, in files and names.
///
/// What can be read is not durable: a block that only a cache held when its writer was killed can be
/// read by its successor, acted upon, and lost with the power. A start does this before it reads.
pub fn sync_everything(files: &impl Files) -> Result<(), FileError> {
    files.sync_directory()?;
    for (name, _) in files.list()? {
        if let FileName::Segment(_) = name {
            files.sync(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::files::Medium;

    /// Files that note what is changed, and in which order.
    struct Noted(Medium, Mutex<Vec<String>>);

    impl Noted {
        fn note(&self, what: String) {
            self.1.lock().unwrap().push(what);
        }

        /// Performs a task, and returns its changes.
        fn of(&self, task: Task) -> Vec<String> {
            perform(self, &task).unwrap();
            std::mem::take(&mut self.1.lock().unwrap())
        }
    }

    impl Files for Noted {
        fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
            self.0.list()
        }

        fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
            self.note(format!("make {name}"));
            self.0.create(name, bytes)
        }

        fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
            self.0.read(name, offset, into)
        }

        fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
            self.note(format!("write {} bytes at {offset} of {name}", bytes.len()));
            self.0.write(name, offset, bytes)
        }

        fn sync(&self, name: FileName) -> Result<(), FileError> {
            self.note(format!("sync {name}"));
            self.0.sync(name)
        }

        fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
            self.note(format!("rename {from} to {to}"));
            self.0.rename(from, to)
        }

        fn remove(&self, name: FileName) -> Result<(), FileError> {
            self.note(format!("remove {name}"));
            self.0.remove(name)
        }

        fn sync_directory(&self) -> Result<(), FileError> {
            self.note("sync names".to_owned());
            self.0.sync_directory()
        }
    }

    #[test]
    fn each_step_is_durable_before_the_next() {
        let files = Noted(Medium::new(1), Mutex::default());
        let (bytes, [old, new]) = (4 * BLOCK as u64, segments());
        let named = FileName::Segment(old);
        let (one, two) = (FileName::Spare(1), FileName::Spare(2));
        let made = files.of(Task::Prepare { name: old, reuse: None, bytes });
        assert_eq!(made, [format!("make {one}"), format!("rename {one} to {old}"), names()]);
        let retired = files.of(Task::Retire { segment: old });
        assert_eq!(retired, [format!("rename {old} to {one}"), names()]);
        let again = files.of(Task::Retire { segment: old });
        assert_eq!(again, [names()], "there was no space for the end of it");
        let used = [
            format!("rename {one} to {two}"),
            names(),
            format!("write {BLOCK} bytes at 0 of {two}"),
            format!("sync {two}"),
            format!("rename {two} to {new}"),
            names(),
        ];
        assert_eq!(files.of(Task::Prepare { name: new, reuse: Some(one), bytes }), used);
        let file = FileName::Segment(new);
        assert_eq!(files.of(Task::Remove { file }), [format!("remove {new}"), names()]);
        assert_eq!(files.of(Task::Remove { file }), [names()]);

        files.of(Task::Prepare { name: old, reuse: None, bytes });
        sync_everything(&files).unwrap();
        assert_eq!(files.1.into_inner().unwrap(), [names(), format!("sync {named}")]);
    }

    /// A segment that was to lose its name had lost it when there was no space to sync that, and is wanted before that is
    /// done again.
    #[test]
    fn a_file_is_found_under_either_of_its_names() {
        let (bytes, [old, new]) = (4 * BLOCK as u64, segments());
        let file = FileName::Segment(old);
        for (task, left) in [
            (Task::Remove { file }, vec![]),
            (
                Task::Prepare { name: new, reuse: Some(file), bytes },
                vec![(FileName::Segment(new), bytes)],
            ),
        ] {
            let medium = Medium::new(1);
            perform(&medium, &Task::Prepare { name: old, reuse: None, bytes }).unwrap();
            medium.rename(file, FileName::Spare(old.sequence)).unwrap();
            perform(&medium, &task).unwrap();
            assert_eq!(medium.list().unwrap(), left);
        }
    }

    fn segments() -> [SegmentName; 2] {
        [1, 2].map(|sequence| SegmentName { sequence, start: 1, salt: sequence + 7 })
    }

    fn names() -> String {
        "sync names".to_owned()
    }
}
