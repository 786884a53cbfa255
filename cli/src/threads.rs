//! Work on several threads at once.

use std::thread::ScopedJoinHandle;

/// Waits for a thread, and returns its result. If it panicked, the panic continues in this thread.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_thread_is_taken_and_its_panic_is_never_lost() {
        assert_eq!(std::thread::scope(|threads| joined(threads.spawn(|| 7))), 7);
        let panic = std::panic::catch_unwind(|| std::thread::scope(|threads| joined(threads.spawn(|| panic!("no answer")))));
        let said = panic.map(|()| "nothing").unwrap_err();
        assert_eq!(said.downcast_ref::<&str>(), Some(&"no answer"));
    }
}
