//! Batches concurrent calls about single instances: `terminate` handles many claims at once, and EC2 allows few calls per second.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whittle_ec2::instance::Instance;
use whittle_ports::CloudError;
use whittle_units::InstanceId;

/// The answer of a DescribeInstances call.
type Described = Result<Vec<Instance>, CloudError>;
/// The result of a TerminateInstances call for each of its instances.
pub(crate) type Terminated = BTreeMap<InstanceId, Result<(), CloudError>>;

/// The calls about single instances of one invocation.
#[derive(Default)]
pub struct InstanceCalls {
    pub(crate) lookups: Arc<Batcher<Described>>,
    pub(crate) terminations: Arc<Batcher<Terminated>>,
}

/// Instances whose call waits for the one in progress, and is then shared by all of them.
struct Batch<R> {
    ids: Vec<InstanceId>,
    result: Shared<BoxFuture<'static, R>>,
}

/// Calls of one kind. One is in progress at a time; instances that are added meanwhile share the next.
pub(crate) struct Batcher<R> {
    in_progress: futures::lock::Mutex<()>,
    next: Mutex<Option<Batch<R>>>,
}

impl<R> Default for Batcher<R> {
    fn default() -> Self {
        Self { in_progress: futures::lock::Mutex::default(), next: Mutex::default() }
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
            let mut next = self.next();
            let batch = next.get_or_insert_with(|| Batch { ids: Vec::new(), result: Arc::clone(self).run(call).boxed().shared() });
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
        // From here on, other instances join the next batch.
        let ids = self.next().take().map(|batch| batch.ids).unwrap_or_default();
        call(ids).await
    }

    fn next(&self) -> MutexGuard<'_, Option<Batch<R>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
