//! A map by session that skips the hash lookup while the same session is asked for repeatedly.

use alloc::vec::Vec;
use core::cell::Cell;

use hashbrown::HashMap;

use crate::ids::SessionId;

/// A map from sessions to values.
pub struct BySession<T> {
    /// Index into `values`, by session.
    places: HashMap<SessionId, usize>,
    values: Vec<T>,
    /// Unused indices of `values`.
    free: Vec<usize>,
    /// The session of the last lookup, and its index: the processing of one message looks its session up many times.
    last: Cell<Option<(SessionId, usize)>>,
}

impl<T> Default for BySession<T> {
    fn default() -> Self {
        let (places, last) = (HashMap::new(), Cell::new(None));
        Self { places, values: Vec::new(), free: Vec::new(), last }
    }
}

impl<T: Default> BySession<T> {
    /// The session's value, if it has one.
    #[inline]
    pub fn get(&self, session: SessionId) -> Option<&T> {
        Some(&self.values[self.place(session)?])
    }

    /// The session's value, if it has one, mutable.
    #[inline]
    pub fn get_mut(&mut self, session: SessionId) -> Option<&mut T> {
        let place = self.place(session)?;
        Some(&mut self.values[place])
    }

    /// The session's value, inserted if it has none.
    #[inline]
    pub fn or_default(&mut self, session: SessionId) -> &mut T {
        let place = self.place(session).unwrap_or_else(|| self.add(session));
        &mut self.values[place]
    }

    /// Removes the session.
    pub fn remove(&mut self, session: SessionId) {
        self.last.set(None);
        if let Some(place) = self.places.remove(&session) {
            self.values[place] = T::default();
            self.free.push(place);
        }
    }

    /// Removes the sessions for whose value `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.last.set(None);
        let Self { places, values, free, .. } = self;
        places.retain(|_, place| {
            let kept = keep(&values[*place]);
            if !kept {
                values[*place] = T::default();
                free.push(*place);
            }
            kept
        });
    }

    /// All sessions and their values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &T)> {
        self.places.iter().map(|(session, place)| (*session, &self.values[*place]))
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no session has one.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[inline]
    fn place(&self, session: SessionId) -> Option<usize> {
        match self.last.get() {
            Some((last, place)) if last == session => Some(place),
            _ => self.find(session),
        }
    }

    fn find(&self, session: SessionId) -> Option<usize> {
        let place = self.places.get(&session).copied()?;
        self.last.set(Some((session, place)));
        Some(place)
    }

    fn add(&mut self, session: SessionId) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.values.push(T::default());
            self.values.len() - 1
        });
        self.places.insert(session, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_given_what_was_another_sessions() {
        let mut values = BySession::<u64>::default();
        for round in 0..3 {
            let (first, second) = (SessionId(2 * round), SessionId(2 * round + 1));
            *values.or_default(first) = 7;
            *values.or_default(second) = 8;
            assert_eq!((values.get(first), values.get(second)), (Some(&7), Some(&8)));
            values.remove(second);
            assert!(values.get(second).is_none() && values.get_mut(second).is_none());
            assert_eq!(
                (*values.or_default(second), values.len()),
                (0, 2),
                "its place was another's"
            );
            assert_eq!(values.get(first), Some(&7));
            *values.or_default(second) = 9;
            values.retain(|value| *value == 7);
            assert_eq!((values.get(second), values.iter().count()), (None, 1));
            assert_eq!(*values.or_default(second), 0, "what was not kept is nobody's");
            values.retain(|value| *value == 7);
            values.retain(|_| false);
            assert!(values.get(first).is_none() && values.is_empty());
        }
        assert_eq!(values.values.len(), 2);
    }
}
