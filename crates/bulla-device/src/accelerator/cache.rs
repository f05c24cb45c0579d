//! Keys made ready for the lanes, kept under their ids.

use std::collections::HashMap;

/// Keys that are kept ready in each of an engine's four stores: RSA or EC, private or public.
pub(super) const PREPARED_KEYS_MAX: usize = 256;
const _: () = assert!(PREPARED_KEYS_MAX >= super::library::LANES, "the keys of one call are there together");

/// A bounded store; the one not used for longest makes room. What goes is dropped, and so zeroized.
pub(super) struct Cache<K, V> {
    places: HashMap<K, usize>,
    entries: Vec<Entry<K, V>>,
    clock: u64,
}

struct Entry<K, V> {
    key: K,
    value: V,
    used: u64,
}

impl<K: std::hash::Hash + Eq + Copy, V> Cache<K, V> {
    pub(super) fn new() -> Cache<K, V> {
        Cache { places: HashMap::new(), entries: Vec::new(), clock: 0 }
    }

    /// Where the key's value is, made now if it isn't there. The place holds for the next
    /// [`PREPARED_KEYS_MAX`] - 1 calls at least.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn place<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<usize, E> {
        self.clock += 1;
        if let Some(place) = self.places.get(&key) {
            self.entries[*place].used = self.clock;
            return Ok(*place);
        }
        let entry = Entry { key, value: make()?, used: self.clock };
        let place = if self.entries.len() < PREPARED_KEYS_MAX {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
            let place = oldest.map_or(0, |(place, _)| place);
            self.places.remove(&self.entries[place].key);
            self.entries[place] = entry;
            place
        };
        self.places.insert(key, place);
        Ok(place)
    }

    pub(super) fn at(&self, place: usize) -> &V {
        &self.entries[place].value
    }

    pub(super) fn at_mut(&mut self, place: usize) -> &mut V {
        &mut self.entries[place].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_not_used_for_longest_makes_room() {
        let mut cache = Cache::new();
        let mut put = |key: usize| cache.place::<()>(key, || Ok(key * 10)).unwrap();
        let first = put(0);
        for key in 1..PREPARED_KEYS_MAX {
            put(key);
        }
        assert_eq!(put(0), first);
        assert_eq!(put(PREPARED_KEYS_MAX), 1, "in the place of the oldest one");
        assert_eq!(put(0), first);
        assert_eq!(
            (*cache.at(first), *cache.at(1), cache.entries.len()),
            (0, PREPARED_KEYS_MAX * 10, PREPARED_KEYS_MAX)
        );
        assert!(!cache.places.contains_key(&1));
        assert_eq!(cache.place(1, || Err("asked again")), Err("asked again"));
    }
}
