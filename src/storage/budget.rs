//! A bound on things that are loaded on demand and can be loaded again: open files, indexes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// A value that is there or can be made again.
#[derive(Debug)]
pub struct Slot<T> {
    value: RefCell<Option<Rc<T>>>,
    touched: Cell<bool>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            value: RefCell::new(None),
            touched: Cell::new(false),
        }
    }
}

impl<T> Slot<T> {
    /// The value, where it is loaded. Counts as a use.
    pub fn get(&self) -> Option<Rc<T>> {
        let value = self.value.borrow().clone();
        if value.is_some() {
            self.touched.set(true);
        }
        value
    }

    /// Forgets the value; who holds it still keeps it alive.
    pub fn clear(&self) {
        self.value.borrow_mut().take();
    }
}

trait Evict {
    fn is_loaded(&self) -> bool;
    fn take_touched(&self) -> bool;
    fn evict(&self);
}

impl<T> Evict for Slot<T> {
    fn is_loaded(&self) -> bool {
        self.value.borrow().is_some()
    }

    fn take_touched(&self) -> bool {
        self.touched.replace(false)
    }

    fn evict(&self) {
        self.clear();
    }
}

/// The bound: the sum of the weights of loaded slots. What was not used for the longest time goes
/// first, roughly (second chance).
pub struct Budget {
    max: usize,
    used: Cell<usize>,
    loaded: RefCell<VecDeque<(Weak<dyn Evict>, usize)>>,
}

impl Budget {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            used: Cell::new(0),
            loaded: RefCell::default(),
        }
    }

    /// The weight of what is loaded; what was dropped meanwhile may count still.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Puts a loaded value into its slot, and evicts others until the budget holds.
    pub fn load<T: 'static>(&self, slot: &Rc<Slot<T>>, value: Rc<T>, weight: usize) {
        *slot.value.borrow_mut() = Some(value);
        let as_evict: Rc<dyn Evict> = slot.clone();
        let mut loaded = self.loaded.borrow_mut();
        let mut chances = loaded.len();
        self.used.set(self.used.get() + weight);
        while self.used.get() > self.max
            && let Some((candidate, candidate_weight)) = loaded.pop_front()
        {
            if let Some(slot) = candidate.upgrade()
                && slot.is_loaded()
            {
                if chances > 0 && slot.take_touched() {
                    chances -= 1;
                    loaded.push_back((candidate, candidate_weight));
                    continue;
                }
                slot.evict();
            }
            self.used
                .set(self.used.get().saturating_sub(candidate_weight));
        }
        loaded.push_back((Rc::downgrade(&as_evict), weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_is_evicted() {
        let budget = Budget::new(3);
        let slots: Vec<Rc<Slot<usize>>> = (0..4).map(|_| Rc::default()).collect();
        for (nth, slot) in slots.iter().take(3).enumerate() {
            budget.load(slot, Rc::new(nth), 1);
        }
        assert_eq!(slots[0].get().as_deref(), Some(&0));
        budget.load(&slots[3], Rc::new(3), 1);
        assert!(slots[0].get().is_some(), "used since");
        assert!(slots[1].get().is_none());
        assert!(slots[2].get().is_some());
        assert!(slots[3].get().is_some());
        assert_eq!(budget.used(), 3);
    }

    #[test]
    fn dropped_and_cleared_slots_give_their_weight_back() {
        let budget = Budget::new(2);
        let kept: Rc<Slot<u8>> = Rc::default();
        for _ in 0..10 {
            let slot: Rc<Slot<u8>> = Rc::default();
            budget.load(&slot, Rc::new(0), 1);
        }
        budget.load(&kept, Rc::new(1), 1);
        assert!(kept.get().is_some());
        assert!(budget.used() <= 2);
    }
}
