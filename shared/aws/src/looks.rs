//! Looks at single machines that are asked for at the same time share a call: `terminate` watches many machines end at once, and
//! EC2 takes few describe calls a second.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whittle_ec2::instance::Instance;
use whittle_ports::CloudError;
use whittle_units::InstanceId;

type Answer = Result<Vec<Instance>, CloudError>;

/// Looks that wait for the call before theirs, and then share one.
struct Round {
    ids: Vec<InstanceId>,
    answer: Shared<BoxFuture<'static, Answer>>,
}

/// The looks of one invocation. One call is under way at a time; whoever comes meanwhile shares the next.
#[derive(Default)]
pub struct Looks {
    turn: futures::lock::Mutex<()>,
    next: Mutex<Option<Round>>,
}

impl Looks {
    /// What `describe` says of a machine and of all others that are asked for by then. It is given their ids.
    pub(crate) async fn at<F, D>(self: &Arc<Self>, id: &InstanceId, describe: D) -> Answer
    where
        D: FnOnce(Vec<InstanceId>) -> F + Send + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let answer = {
            let mut next = self.next();
            let round = next.get_or_insert_with(|| Round { ids: Vec::new(), answer: Arc::clone(self).round(describe).boxed().shared() });
            if !round.ids.contains(id) {
                round.ids.push(id.clone());
            }
            round.answer.clone()
        };
        answer.await
    }

    async fn round<F, D>(self: Arc<Self>, describe: D) -> Answer
    where
        D: FnOnce(Vec<InstanceId>) -> F,
        F: Future<Output = Answer>,
    {
        let _turn = self.turn.lock().await;
        // From here on others wait for the round after this one.
        let ids = self.next().take().map(|round| round.ids).unwrap_or_default();
        describe(ids).await
    }

    fn next(&self) -> MutexGuard<'_, Option<Round>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
