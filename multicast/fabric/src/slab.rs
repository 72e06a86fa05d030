//! Values by handles that are never mistaken for their successors.

/// A handle is an index and a few bits of how often that place was reused. A stale handle is detected instead of
/// reaching another value.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.1 = Some(value);
            return place.0 << INDEX_BITS | index;
        }
        let index = self.places.len() as u32;
        assert!(index <= INDEX_MASK, "a million handles at once");
        self.places.push((0, Some(value)));
        index
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<T> {
        let place = self.places.get_mut((handle & INDEX_MASK) as usize)?;
        if place.0 != handle >> INDEX_BITS {
            return None;
        }
        let value = place.1.take()?;
        place.0 = (place.0 + 1) & (u32::MAX >> INDEX_BITS);
        self.free.push(handle & INDEX_MASK);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, handle: u32) -> Option<&T> {
        let place = self.places.get((handle & INDEX_MASK) as usize)?;
        if place.0 == handle >> INDEX_BITS { place.1.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let place = self.places.get_mut((handle & INDEX_MASK) as usize)?;
        if place.0 == handle >> INDEX_BITS { place.1.as_mut() } else { None }
    }

    /// Removes all values but those that `keep` accepts.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for handle in self.handles().collect::<Vec<_>>() {
            if !self.get(handle).is_some_and(&keep) {
                self.remove(handle);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + '_ {
        self.handles().filter_map(|handle| Some((handle, self.get(handle)?)))
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = u32> + '_ {
        let numbered = self.places.iter().enumerate();
        numbered.filter(|(_, place)| place.1.is_some()).map(|(i, p)| p.0 << INDEX_BITS | i as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_does_not_reach_its_successor() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!(slab.handles().collect::<Vec<_>>(), [second]);
        slab.insert('c');
        slab.retain(|value| *value == 'c');
        assert_eq!(slab.get(second), None);
        assert_eq!(slab.handles().count(), 1);
    }
}
