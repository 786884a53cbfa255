//! Limits how many programs run at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Slots, each of which one program at a time can hold.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// Takes a slot, and waits until one is free. It is free again when the returned value is dropped.
    pub(super) fn take(&self) -> Slot<'_> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.freed.wait_while(taken, |taken| self.most <= *taken).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Slot { of: self }
    }
}

/// A slot that is taken.
#[derive(Debug)]
pub(super) struct Slot<'p> {
    of: &'p Slots,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.of.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.of.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn nobody_has_a_slot_beyond_the_last_until_one_is_free() {
        let slots = Slots::new(2);
        let (sender, having) = mpsc::channel();
        let (first, second) = (slots.take(), slots.take());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _slot = slots.take();
                sender.send(()).unwrap();
            });
            assert!(having.recv_timeout(Duration::from_millis(50)).is_err(), "both are taken");
            drop(first);
            having.recv().unwrap();
        });
        drop(second);
        assert_eq!(*slots.taken.lock().unwrap(), 0);
    }

    #[test]
    fn no_more_have_a_slot_than_there_are_and_everybody_gets_one() {
        let slots = Slots::new(3);
        let (having, most, served) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..50 {
                threads.spawn(|| {
                    let _slot = slots.take();
                    most.fetch_max(having.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    having.fetch_sub(1, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!((served.into_inner(), *slots.taken.lock().unwrap()), (50, 0));
    }
}
