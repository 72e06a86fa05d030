//! A window of numbered values: numbers rise, values are removed in any order, and few exist at a time.

use std::collections::VecDeque;

/// Values with rising numbers. Usually the oldest value is removed next, which takes constant time.
#[derive(Clone, Debug)]
pub struct OrderedWindow<T> {
    values: VecDeque<(u64, T)>,
}

impl<T> Default for OrderedWindow<T> {
    fn default() -> Self {
        Self { values: VecDeque::new() }
    }
}

impl<T> OrderedWindow<T> {
    /// Appends a value. Its number must be above all others.
    pub fn push(&mut self, number: u64, value: T) {
        debug_assert!(self.values.back().is_none_or(|(last, _)| *last < number), "numbers rise");
        self.values.push_back((number, value));
    }

    /// Adds a value under `number`, unless there is one. Returns whether it was added.
    #[inline]
    pub fn insert(&mut self, number: u64, value: impl FnOnce() -> T) -> bool {
        if self.values.back().is_none_or(|(last, _)| *last < number) {
            self.values.push_back((number, value()));
            return true;
        }
        self.insert_within(number, value)
    }

    #[cold]
    fn insert_within(&mut self, number: u64, value: impl FnOnce() -> T) -> bool {
        let Err(place) = self.find(number) else { return false };
        self.values.insert(place, (number, value()));
        true
    }

    /// The value of `number`.
    pub fn get(&self, number: u64) -> Option<&T> {
        Some(&self.values[self.place(number)?].1)
    }

    /// The value of `number`, mutably.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        Some(&mut self.values[place].1)
    }

    /// Removes the value of `number`, and returns it.
    #[inline]
    pub fn remove(&mut self, number: u64) -> Option<T> {
        if let Some((_, value)) = self.values.pop_front_if(|(first, _)| *first == number) {
            return Some(value);
        }
        self.remove_within(number)
    }

    #[cold]
    fn remove_within(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        self.values.remove(place).map(|(_, value)| value)
    }

    /// Keeps the values for which `keep` returns true. It is called with rising numbers.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &mut T) -> bool) {
        self.values.retain_mut(|(number, value)| keep(*number, value));
    }

    /// All values, in rising order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.values.iter().map(|(number, value)| (*number, value))
    }

    /// All values, mutably, in rising order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.values.iter_mut().map(|(number, value)| (*number, value))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn place(&self, number: u64) -> Option<usize> {
        // The index if no number is missing.
        let place = number.checked_sub(self.values.front()?.0)? as usize;
        match self.values.get(place) {
            Some((there, _)) if *there == number => Some(place),
            _ => self.find(number).ok(),
        }
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        self.values.binary_search_by_key(&number, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_numbers_until_they_end() {
        let mut values = OrderedWindow::default();
        for number in [3, 5, 6, 9] {
            values.push(number, number * 10);
        }
        assert_eq!((values.remove(5), values.remove(5), values.remove(4)), (Some(50), None, None));
        assert_eq!((values.get(3), values.get(9), values.get(10)), (Some(&30), Some(&90), None));
        *values.get_mut(6).unwrap() += 1;
        for (_, value) in values.iter_mut() {
            *value += 100;
        }
        assert!(values.iter().eq([(3, &130), (6, &161), (9, &190)]));
        assert!(values.insert(4, || 140) && !values.insert(6, || 0) && values.insert(11, || 0));
        assert!(values.iter().map(|(number, _)| number).eq([3, 4, 6, 9, 11]));
        assert_eq!((values.get(6), values.get(5), values.get(2)), (Some(&161), None, None));
        values.retain(|number, value| number == 9 || *value == 161);
        assert_eq!((values.remove(6), values.len(), values.is_empty()), (Some(161), 1, false));
    }
}
