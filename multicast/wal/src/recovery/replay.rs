//! The second reading: records in order, of groups that can use them.

use super::image::Image;
use super::{RecoverError, Recovery};
use crate::files::{FileName, Files, SegmentName};
use crate::format::{BlockHeader, Record, Records};
use crate::writer::KeptSegment;
use crate::{Group, Lsn};

/// Blocks of a segment that belong to the log, one behind the other. Offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    name: SegmentName,
    from: u64,
    to: u64,
}

impl Span {
    /// Adds blocks to the spans.
    pub(super) fn extend(spans: &mut Vec<Self>, name: SegmentName, from: u64, to: u64) {
        match spans.last_mut() {
            Some(last) if last.name == name && last.to == from => last.to = to,
            _ => spans.push(Self { name, from, to }),
        }
    }
}

impl Recovery {
    /// Hands out the records of all groups in the order of the log: of a whole group all that it
    /// needs, of a damaged one those before the damage.
    pub fn replay(
        &self,
        files: &impl Files,
        visit: impl FnMut(&Record<'_>),
    ) -> Result<(), RecoverError> {
        self.read_from(Lsn::NONE, files, visit)
    }

    /// The same for one group. Reads no segment that the group does not need: when the writer of the next start is at
    /// work, such a segment may be another one already.
    pub fn replay_group(
        &self,
        group: Group,
        files: &impl Files,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<(), RecoverError> {
        let found = self.groups.iter().find(|found| found.group == group);
        let Some(found) = found.filter(|found| found.last >= found.keep) else { return Ok(()) };
        self.read_from(found.keep, files, |record| {
            if record.group == group {
                visit(record);
            }
        })
    }

    /// Reads the segments with records at or above `needed`.
    fn read_from(
        &self,
        needed: Lsn,
        files: &impl Files,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<(), RecoverError> {
        let mut image = Image::new();
        for span in &self.spans {
            let ends = |kept: &KeptSegment| kept.name == span.name && kept.end <= needed;
            if self.kept.iter().any(ends) {
                continue;
            }
            image.load(files, span.name, span.to)?;
            let mut offset = span.from;
            while offset < span.to {
                let bytes = image.from(offset);
                let Ok((block, _)) = BlockHeader::verify(bytes, span.name.salt) else {
                    return Err(RecoverError::Changed {
                        file: FileName::Segment(span.name),
                        offset,
                    });
                };
                for record in Records::of(&block, bytes) {
                    if self.wants(&record) {
                        visit(&record);
                    }
                }
                offset += u64::from(block.length);
            }
        }
        Ok(())
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        let found = self.groups.binary_search_by_key(&record.group, |found| found.group);
        let found = &self.groups[found.expect("every group with records was found")];
        (found.keep..found.until).contains(&record.lsn)
    }
}
