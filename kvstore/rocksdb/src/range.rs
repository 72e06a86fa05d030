//! Pairs in key order.

use rocksdb::DBRawIterator;
use skein_kvstore::store::{Found, StoreError};

use crate::database::Database;
use crate::guard::Guard;

/// The pairs of a range.
pub(crate) struct Range<'a> {
    database: &'a Database,
    /// `None` behind the end or an error.
    iterator: Option<DBRawIterator<'a>>,
}

impl<'a> Range<'a> {
    pub(crate) fn of(database: &'a Database, start: &[u8], end: Option<&[u8]>) -> Self {
        Self { database, iterator: Some(database.range(start, end)) }
    }

    /// The pair at the iterator, which then moves on.
    fn take(&mut self) -> Result<Option<(Guard<'a>, Found<Guard<'a>>)>, StoreError> {
        let Some(iterator) = &mut self.iterator else { return Ok(None) };
        let Some((key, value)) = iterator.item() else {
            iterator.status().map_err(|error| self.database.explain_read(&error))?;
            self.iterator = None;
            return Ok(None);
        };
        let (version, value) = self.database.split(value)?;
        let found = Found { value: Guard::copied(value), version };
        let key = Guard::copied(&key[1..]);
        iterator.next();
        Ok(Some((key, found)))
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<(Guard<'a>, Found<Guard<'a>>), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = self.take();
        if taken.is_err() {
            self.iterator = None;
        }
        taken.transpose()
    }
}
