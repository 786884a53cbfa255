//! Facts that the messages of one invocation share.

use futures::lock::Mutex;

/// A fact that is read at most once for all messages of an invocation, also by those that are handled at the same time.
#[derive(Debug)]
pub struct Once<T>(Mutex<Option<T>>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Copy> Once<T> {
    /// The fact as it was read first. Only one `read` runs at a time, and after a failed one the next may succeed.
    pub async fn get_or_read<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut known = self.0.lock().await;
        if let Some(value) = *known {
            return Ok(value);
        }
        let value = read.await?;
        *known = Some(value);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::{join, pending, ready};

    /// The fact after this outcome of a read.
    fn asked(once: &Once<u32>, outcome: Result<u32, &'static str>) -> Result<u32, &'static str> {
        once.get_or_read(ready(outcome)).now_or_never().expect("nothing is waited for")
    }

    #[test]
    fn the_first_read_that_succeeds_is_the_only_one() {
        let once = Once::<u32>::default();
        assert_eq!(asked(&once, Err("throttled")), Err("throttled"));
        assert_eq!(asked(&once, Ok(1)), Ok(1));
        assert_eq!(asked(&once, Ok(2)), Ok(1));
        assert_eq!(asked(&once, Err("throttled")), Ok(1));
    }

    #[test]
    fn a_read_under_way_is_waited_for() {
        let once = Once::<u32>::default();
        let both = join(once.get_or_read(pending::<Result<u32, &str>>()), once.get_or_read(ready(Ok::<u32, &str>(2))));
        assert_eq!(both.now_or_never(), None);
        // A read that was dropped does not block the next.
        assert_eq!(asked(&once, Ok(3)), Ok(3));
    }
}
