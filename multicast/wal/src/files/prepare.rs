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
            if is_there(files, file)? {
                files.remove(file)?;
            }
            files.sync_directory()
        }
    }
}

/// Whether a file has its name still: a task whose end there was no space for is done again.
fn is_there(files: &impl Files, file: FileName) -> Result<bool, FileError> {
    Ok(files.list()?.iter().any(|(name, _)| *name == file))
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
            if old != spare {
                files.rename(old, spare)?;
                files.sync_directory()?;
            }
            files.write(spare, 0, Aligned::new(BLOCK).bytes())?;
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
