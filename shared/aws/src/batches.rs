//! Batches concurrent calls about single instances: `terminate` handles many claims at once, and EC2 allows few calls per second.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use whittle_ec2::instance::Instance;
use whittle_ports::CloudError;
use whittle_units::InstanceId;

/// The answer of a DescribeInstances call.
type Described = Result<Vec<Instance>, CloudError>;
/// The result of a TerminateInstances call for each of its instances.
pub(crate) type Terminated = BTreeMap<InstanceId, Result<(), CloudError>>;

/// What a batch waits for before its call begins, so that instances that come a moment later share it.
type Pause = fn() -> BoxFuture<'static, ()>;

/// The calls about single instances of one invocation.
pub struct InstanceCalls {
    pub(crate) lookups: Arc<Batcher<Described>>,
    pub(crate) terminations: Arc<Batcher<Terminated>>,
}

/// A batch whose call has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunBatch {
    /// Karpenter's name of the batcher.
    pub batcher: &'static str,
    /// How many instances share the call.
    pub size: usize,
    /// How long the first of them waited for it.
    pub waited: Duration,
}

impl Default for InstanceCalls {
    /// Calls that wait for nothing but the one in progress.
    fn default() -> Self {
        Self::pausing(None)
    }
}

impl InstanceCalls {
    /// Calls before which the instances of concurrent messages gather. Without a pause the first of them would have a call of its own, and
    /// each invocation two where one does.
    #[must_use]
    pub fn gathering(pause: Pause) -> Self {
        Self::pausing(Some(pause))
    }

    fn pausing(pause: Option<Pause>) -> Self {
        Self {
            lookups: Arc::new(Batcher::named("describe_instances", pause)),
            terminations: Arc::new(Batcher::named("terminate_instances", pause)),
        }
    }

    /// The batches that have begun since this was last asked, smallest first.
    #[must_use]
    pub fn take_begun(&self) -> Vec<BegunBatch> {
        let mut begun = std::mem::take(&mut *held(&self.lookups.begun));
        begun.append(&mut held(&self.terminations.begun));
        begun.sort_by_key(|batch| batch.size);
        begun
    }
}

/// Instances whose call waits for the one in progress, and is then shared by all of them.
struct Batch<R> {
    ids: Vec<InstanceId>,
    since: Instant,
    result: Shared<BoxFuture<'static, R>>,
}

/// Calls of one kind. One is in progress at a time; instances that are added meanwhile, or during the pause before it, share the next.
pub(crate) struct Batcher<R> {
    name: &'static str,
    pause: Option<Pause>,
    in_progress: futures::lock::Mutex<()>,
    next: Mutex<Option<Batch<R>>>,
    begun: Mutex<Vec<BegunBatch>>,
}

impl<R> Batcher<R> {
    fn named(name: &'static str, pause: Option<Pause>) -> Self {
        Self { name, pause, in_progress: futures::lock::Mutex::default(), next: Mutex::default(), begun: Mutex::default() }
    }
}

impl<R: Clone + Send + Sync + 'static> Batcher<R> {
    /// The result of `call` for the batch that this instance joins. `call` is given the ids of the batch.
    pub(crate) async fn join<F, C>(self: &Arc<Self>, id: &InstanceId, call: C) -> R
    where
        C: FnOnce(Vec<InstanceId>) -> F + Send + 'static,
        F: Future<Output = R> + Send + 'static,
    {
        let result = {
            let mut next = held(&self.next);
            let batch = next.get_or_insert_with(|| Batch {
                ids: Vec::new(),
                since: Instant::now(),
                result: Arc::clone(self).run(call).boxed().shared(),
            });
            if !batch.ids.contains(id) {
                batch.ids.push(id.clone());
            }
            batch.result.clone()
        };
        result.await
    }

    async fn run<F, C>(self: Arc<Self>, call: C) -> R
    where
        C: FnOnce(Vec<InstanceId>) -> F,
        F: Future<Output = R>,
    {
        let _in_progress = self.in_progress.lock().await;
        if let Some(pause) = self.pause {
            pause().await;
        }
        // From here on, other instances join the next batch.
        let batch = held(&self.next).take();
        let ids = batch.map(|batch| {
            held(&self.begun).push(BegunBatch { batcher: self.name, size: batch.ids.len(), waited: batch.since.elapsed() });
            batch.ids
        });
        call(ids.unwrap_or_default()).await
    }
}

/// Nothing panics while it holds one of these locks.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
