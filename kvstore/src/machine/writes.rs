//! The writes of a branch so far.

use std::borrow::Cow;

/// The value written to a key; `None` deletes the key.
pub(crate) type Written<'a> = Option<Cow<'a, [u8]>>;

/// A branch's writes, sorted by key.
///
/// A branch writes a few keys: a look-up in a sorted vector is faster than in a tree, and the vector is one
/// allocation.
#[derive(Default)]
pub(crate) struct Writes<'a>(Vec<(&'a [u8], Written<'a>)>);

impl<'a> Writes<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a [u8], &Written<'a>)> {
        self.0.iter().map(|(key, written)| (*key, written))
    }

    /// The last write to `key`, if there is one.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Written<'a>> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn insert(&mut self, key: &'a [u8], written: Written<'a>) {
        match self.find(key) {
            Ok(at) => self.0[at].1 = written,
            Err(at) => self.0.insert(at, (key, written)),
        }
    }

    /// The last write to `key`. If there is none, it becomes what `stored` returns.
    pub(crate) fn get_or<E>(
        &mut self,
        key: &'a [u8],
        stored: impl FnOnce() -> Result<Written<'a>, E>,
    ) -> Result<&mut Written<'a>, E> {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, stored()?));
                at
            }
        };
        Ok(&mut self.0[at].1)
    }

    /// The writes to keys from `start` to `end`, `end` excluded. Requires `start <= end`.
    pub(crate) fn range(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &Written<'a>)> {
        let place = |key| self.find(key).unwrap_or_else(|at| at);
        let (from, to) = (place(start), end.map_or(self.0.len(), place));
        self.0[from..to].iter().map(|(key, written)| (*key, written))
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(key, _)| *key)
    }
}

impl<'a> IntoIterator for Writes<'a> {
    type Item = (&'a [u8], Written<'a>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn what_was_written_last_stands_at_each_key_in_order() {
        let mut writes = Writes::default();
        let of = |text: &'static str| Some(Cow::Borrowed(text.as_bytes()));
        for (key, value) in [("b", of("1")), ("d", of("2")), ("a", of("3")), ("b", None)] {
            writes.insert(key.as_bytes(), value);
        }
        let Ok(d) = writes.get_or::<Infallible>(b"d", || unreachable!("it was written"));
        d.get_or_insert_default();
        let Ok(c) = writes.get_or::<Infallible>(b"c", || Ok(of("4")));
        *c = of("5");
        let keys = |from: &str, to: Option<&str>| {
            let range = writes.range(from.as_bytes(), to.map(str::as_bytes));
            range.map(|(key, _)| str::from_utf8(key).unwrap()).collect::<String>()
        };
        assert_eq!((writes.get(b"b"), writes.get(b"e")), (Some(&None), None));
        assert_eq!(
            [keys("", None), keys("b", Some("d")), keys("bb", Some("e"))],
            ["abcd", "bc", "cd"]
        );
        assert_eq!([keys("b", Some("b")), keys("e", None)], ["", ""]);
        let all = writes.into_iter().map(|(_, value)| value);
        assert_eq!(all.collect::<Vec<_>>(), [of("3"), None, of("5"), of("2")]);
    }
}
