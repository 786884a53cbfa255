//! Batches concurrent lookups of single instances: `terminate` waits for many instances at once, and EC2 allows few describe calls
//! per second.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whittle_ec2::instance::Instance;
use whittle_ports::CloudError;
use whittle_units::InstanceId;

type Described = Result<Vec<Instance>, CloudError>;

/// Lookups that wait for the call in progress, and then share one.
struct Batch {
    ids: Vec<InstanceId>,
    result: Shared<BoxFuture<'static, Described>>,
}

/// The instance lookups of one invocation. One call is in progress at a time; lookups that start meanwhile share the next.
#[derive(Default)]
pub struct InstanceLookups {
    in_progress: futures::lock::Mutex<()>,
    next: Mutex<Option<Batch>>,
}

impl InstanceLookups {
    /// The result of `describe` for this instance and all others of its batch, whose ids it is given.
    pub(crate) async fn instances_with<F, D>(self: &Arc<Self>, id: &InstanceId, describe: D) -> Described
    where
        D: FnOnce(Vec<InstanceId>) -> F + Send + 'static,
        F: Future<Output = Described> + Send + 'static,
    {
        let result = {
            let mut next = self.next();
            let batch = next.get_or_insert_with(|| Batch { ids: Vec::new(), result: Arc::clone(self).run(describe).boxed().shared() });
            if !batch.ids.contains(id) {
                batch.ids.push(id.clone());
            }
            batch.result.clone()
        };
        result.await
    }

    async fn run<F, D>(self: Arc<Self>, describe: D) -> Described
    where
        D: FnOnce(Vec<InstanceId>) -> F,
        F: Future<Output = Described>,
    {
        let _in_progress = self.in_progress.lock().await;
        // From here on, new lookups join the next batch.
        let ids = self.next().take().map(|batch| batch.ids).unwrap_or_default();
        describe(ids).await
    }

    fn next(&self) -> MutexGuard<'_, Option<Batch>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
