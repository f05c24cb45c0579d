//! A slab with generations: ids of what is gone never name what came later.

#[derive(Debug)]
pub(crate) struct Slots<T> {
    items: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    item: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Index and generation of the place that `item` got.
    pub(crate) fn insert(&mut self, item: T) -> (u32, u32) {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.items.get_mut(index as usize)
        {
            slot.item = Some(item);
            return (index, slot.generation);
        }
        let index = crate::codec::clamp(self.items.len());
        self.items.push(Slot { generation: 0, item: Some(item) });
        (index, 0)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.items.get(index as usize)?.item.as_ref()
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.get_mut(index as usize)?.item.as_mut()
    }

    #[inline]
    pub(crate) fn holds(&self, index: u32, generation: u32) -> bool {
        self.items.get(index as usize).is_some_and(|slot| slot.generation == generation && slot.item.is_some())
    }

    #[inline]
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.items.get(index as usize).map_or(0, |slot| slot.generation)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.items.get_mut(index as usize)?;
        let item = slot.item.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(item)
    }

    /// Indexes in use.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = u32> + use<'_, T> {
        self.items
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.item.is_some())
            .map(|(index, _)| crate::codec::clamp(index))
    }
}
