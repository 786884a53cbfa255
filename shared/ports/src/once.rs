//! Facts that messages share: of one invocation, or of all that an execution environment handles.

use crate::Clock;
use futures::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use whittle_units::{ClusterName, Timestamp};

/// A fact that is read at most once for all messages of an invocation, also by those that are handled at the same time.
#[derive(Debug)]
pub struct Once<T>(Mutex<Option<T>>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Copy> Once<T> {
    /// The kept fact, or the result of `read` if there is none. Only one `read` runs at a time, and a failed one is not kept.
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

/// A fact about each cluster that is kept, and read again when a caller needs a newer one.
#[derive(Debug)]
pub struct Cached<T>(std::sync::Mutex<BTreeMap<ClusterName, Arc<Slot<T>>>>);

/// When the fact was read, and the fact.
type Slot<T> = Mutex<Option<(Timestamp, T)>>;

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(std::sync::Mutex::new(BTreeMap::new()))
    }
}

impl<T: Copy> Cached<T> {
    /// The kept fact if it was read at `since` or later, otherwise the result of `read`. Only one `read` runs at a time for a cluster, and
    /// a failed one is not kept. A time in the future comes from a clock that was wrong: then the fact is read again.
    pub async fn get_or_read<E>(
        &self,
        cluster: &ClusterName,
        since: Timestamp,
        clock: &impl Clock,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let slot = self.slot(cluster);
        let mut known = slot.lock().await;
        let now = clock.now();
        if let Some((_, value)) = known.filter(|(at, _)| (since..=now).contains(at)) {
            return Ok(value);
        }
        let value = read.await?;
        *known = Some((now, value));
        Ok(value)
    }

    fn slot(&self, cluster: &ClusterName) -> Arc<Slot<T>> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(cluster.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Deadline;
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

    /// A clock that stands at a second.
    struct Stopped(i64);

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            moment(self.0)
        }
        fn deadline(&self) -> Deadline {
            Deadline(Timestamp::MAX)
        }
        fn unique(&self) -> String {
            String::new()
        }
    }

    fn moment(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// The fact about a cluster at a second, if it must have been read at `since` or later and a read has this outcome.
    fn looked_up(
        cached: &Cached<u32>,
        cluster: &str,
        (since, now): (i64, i64),
        outcome: Result<u32, &'static str>,
    ) -> Result<u32, &'static str> {
        let cluster = ClusterName::new(cluster);
        let found = cached.get_or_read(&cluster, moment(since), &Stopped(now), ready(outcome)).now_or_never();
        found.expect("nothing is waited for")
    }

    #[test]
    fn a_fact_that_is_new_enough_is_not_read_again() {
        let cached = Cached::<u32>::default();
        assert_eq!(looked_up(&cached, "a", (8, 10), Err("throttled")), Err("throttled"));
        assert_eq!(looked_up(&cached, "a", (8, 10), Ok(1)), Ok(1));
        assert_eq!(looked_up(&cached, "a", (10, 12), Ok(2)), Ok(1));
        assert_eq!(looked_up(&cached, "b", (10, 12), Ok(3)), Ok(3), "each cluster has its own");
        assert_eq!(looked_up(&cached, "a", (11, 12), Err("throttled")), Err("throttled"), "what is too old does not stand in");
        assert_eq!(looked_up(&cached, "a", (11, 12), Ok(2)), Ok(2));
        assert_eq!(looked_up(&cached, "a", (1, 5), Ok(4)), Ok(4), "it was read in the future");
    }

    #[test]
    fn a_read_of_a_cluster_is_waited_for_by_those_that_ask_for_the_same_and_no_others() {
        let cached = Cached::<u32>::default();
        let (a, b, clock) = (ClusterName::new("a"), ClusterName::new("b"), Stopped(10));
        let reading = cached.get_or_read(&a, moment(10), &clock, pending::<Result<u32, &str>>());
        let same = cached.get_or_read(&a, moment(10), &clock, ready(Ok::<u32, &str>(1)));
        assert_eq!(join(reading, same).now_or_never(), None);
        assert_eq!(looked_up(&cached, "a", (10, 10), Ok(1)), Ok(1), "a read that was dropped does not block the next");
        let cached = Cached::<u32>::default();
        let reading = cached.get_or_read(&a, moment(10), &clock, pending::<Result<u32, &str>>());
        let other = cached.get_or_read(&b, moment(10), &clock, ready(Ok::<u32, &str>(2)));
        let mut reading = Box::pin(reading);
        assert_eq!(reading.as_mut().now_or_never(), None);
        assert_eq!(other.now_or_never(), Some(Ok(2)));
    }
}
