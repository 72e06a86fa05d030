//! A segment in memory, and the blocks that can be found in it.

use crate::aligned::Aligned;
use crate::files::{FileError, FileName, Files, SegmentName};
use crate::format::{BLOCK, BlockHeader};
use crate::{Lsn, Owner};

/// The bytes of one segment. Reused for the next one: it is as long as the longest.
#[derive(Debug)]
pub(super) struct Image {
    buffer: Aligned,
    loaded: Option<SegmentName>,
    length: usize,
}

impl Image {
    pub(super) fn new() -> Self {
        Self { buffer: Aligned::new(BLOCK), loaded: None, length: 0 }
    }

    /// Reads the segment, unless it is here already.
    pub(super) fn load(
        &mut self,
        files: &impl Files,
        name: SegmentName,
        length: u64,
    ) -> Result<(), FileError> {
        if self.loaded == Some(name) && self.length as u64 >= length {
            return Ok(());
        }
        self.loaded = None;
        self.length = length as usize;
        if self.buffer.capacity() < self.length {
            self.buffer = Aligned::new(self.length);
        }
        files.read(FileName::Segment(name), 0, &mut self.buffer.bytes_mut()[..self.length])?;
        self.loaded = Some(name);
        Ok(())
    }

    /// The bytes from `offset` on.
    pub(super) fn from(&self, offset: u64) -> &[u8] {
        let bytes = &self.buffer.bytes()[..self.length];
        bytes.get(offset as usize..).unwrap_or_default()
    }

    /// The block at `offset`, if it is one of this segment, and of this place where `base` is known.
    pub(super) fn block(
        &self,
        owner: Owner,
        offset: u64,
        base: Option<Lsn>,
    ) -> Option<(BlockHeader, u64)> {
        let name = self.loaded.expect("a segment was loaded");
        // The fields first: a checksum is computed only of what claims to be from here.
        let claimed = BlockHeader::parse(self.from(offset)).ok()?;
        let placed = match base {
            Some(base) => claimed.lsn.0 == base.0 + offset,
            None => claimed.lsn.0 >= offset,
        };
        if claimed.sequence != name.sequence || claimed.cluster != owner.cluster || !placed {
            return None;
        }
        BlockHeader::verify(self.from(offset), name.salt).ok()
    }

    /// The blocks at or behind `offset`, wherever they begin.
    pub(super) fn blocks(
        &self,
        owner: Owner,
        offset: u64,
        base: Option<Lsn>,
    ) -> impl Iterator<Item = (u64, BlockHeader, u64)> + '_ {
        let mut offset = offset;
        std::iter::from_fn(move || {
            while offset < self.length as u64 {
                let here = offset;
                offset += BLOCK as u64;
                if let Some((header, checksum)) = self.block(owner, here, base) {
                    offset = here + u64::from(header.length);
                    return Some((here, header, checksum));
                }
            }
            None
        })
    }
}
