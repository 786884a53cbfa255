//! How many programs run at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Places, each of which one can have.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// Takes a place, once there is one. It is free again when what is returned is dropped.
    pub(super) fn take(&self) -> Place<'_> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.freed.wait_while(taken, |taken| self.most <= *taken).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Place { of: self }
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Place<'p> {
    of: &'p Places,
}

impl Drop for Place<'_> {
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
    fn nobody_has_a_place_beyond_the_last_until_one_is_free() {
        let places = Places::new(2);
        let (sender, having) = mpsc::channel();
        let (first, second) = (places.take(), places.take());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _place = places.take();
                sender.send(()).unwrap();
            });
            assert!(having.recv_timeout(Duration::from_millis(50)).is_err(), "both are taken");
            drop(first);
            having.recv().unwrap();
        });
        drop(second);
        assert_eq!(*places.taken.lock().unwrap(), 0);
    }

    #[test]
    fn no_more_have_a_place_than_there_are_and_everybody_gets_one() {
        let places = Places::new(3);
        let (having, most, served) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..50 {
                threads.spawn(|| {
                    let _place = places.take();
                    most.fetch_max(having.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    having.fetch_sub(1, Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!((served.into_inner(), *places.taken.lock().unwrap()), (50, 0));
    }
}
