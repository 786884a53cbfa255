//! Tags of instances that only a Node gives them: their name in EC2's console, and what they belong to (lifecycle 10).

use crate::{Rights, Run, TIME_PER_BATCH};
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, Stored};
use whittle_ports::{Clock, InstanceTags, Instances, Report, TokenBuckets, save};

/// EC2's limit of CreateTags per account and region: ten calls a second, after a hundred at once. All clusters share it.
const BUCKET: &str = "CreateTags";
const BUCKET_SIZE: u32 = 100;
const BUCKET_RATE: u32 = 10;
/// Instances tagged in one run: what the bucket gains until the next run, after five seconds.
const TAGGED_PER_RUN_MAX: usize = 50;
/// Instances that are tagged concurrently.
const CONCURRENCY: usize = 10;

/// What became of the tags of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tagging {
    Stored,
    /// The instance is not shown yet, or the claim was changed meanwhile.
    Later,
    Failed,
}

impl<P: Rights> Run<'_, P> {
    /// Adds missing tags to the instances of these claims, as many as one run may. Whether the next run should come soon for the
    /// others; not if EC2 refuses them all. Nothing else waits for tags.
    pub(crate) async fn tag_instances(&self, mut claims: Vec<Stored<Claim>>, report: &mut Report) -> bool {
        if claims.is_empty() || !self.ports.clock().has_time_for(TIME_PER_BATCH) {
            return false;
        }
        let are_more = claims.len() > TAGGED_PER_RUN_MAX;
        if are_more {
            // Others than in the last run: some may be refused each time.
            let seconds = usize::try_from(self.ports.clock().now().as_second()).unwrap_or_default();
            let first = seconds % claims.len();
            claims.rotate_left(first);
        }
        claims.truncate(TAGGED_PER_RUN_MAX);
        // All at once, so that they share calls.
        let tags = join_all(claims.iter().map(|claim| self.missing_tags(&claim.value))).await;
        let calls = tags.iter().flatten().filter(|missing| !missing.is_empty()).count();
        if calls > 0 && !self.may_call(calls).await {
            report.count("tags_postponed");
            return true;
        }
        let tagging = stream::iter(claims.into_iter().zip(tags)).map(|(claim, tags)| self.tag_instance(claim, tags));
        let outcomes: Vec<Tagging> = tagging.buffer_unordered(CONCURRENCY).collect().await;
        for outcome in &outcomes {
            match outcome {
                Tagging::Stored => report.count("tagged"),
                Tagging::Failed => report.count("tags_failed"),
                Tagging::Later => {}
            }
        }
        are_more && outcomes.contains(&Tagging::Stored)
    }

    /// Whether the account's limit allows this many calls now. No tag is urgent: where the table is in trouble, they wait.
    async fn may_call(&self, calls: usize) -> bool {
        let now = self.ports.clock().now();
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now);
        let count = u32::try_from(calls).unwrap_or(u32::MAX);
        self.ports.store().take_tokens(&BucketName(BUCKET.to_owned()), &full, count, now).await.unwrap_or(false)
    }

    /// The tags that the claim's instance lacks; `None` if EC2 does not show it.
    async fn missing_tags(&self, claim: &Claim) -> Option<Vec<(String, String)>> {
        let (machine, node) = (claim.machine()?, claim.node_name()?);
        let instance = self.ports.cloud().instance(&machine.instance_id).await.ok()??;
        let (name, cluster) = (claim.key.name.as_str(), claim.key.cluster.as_str());
        let wanted = [(labels::TAG_NAME, node), (labels::TAG_NODE_CLAIM, name), (labels::TAG_CLUSTER, cluster)];
        let missing = wanted.into_iter().filter(|(key, _)| !instance.tags.contains_key(*key));
        Some(missing.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// Failures are retried by the next run.
    async fn tag_instance(&self, claim: Stored<Claim>, missing: Option<Vec<(String, String)>>) -> Tagging {
        let (Some(machine), Some(missing)) = (claim.value.machine(), missing) else { return Tagging::Later };
        if !missing.is_empty() && self.ports.cloud().tag(&machine.instance_id, &missing).await.is_err() {
            return Tagging::Failed;
        }
        let mut next = claim.value.clone();
        for key in [labels::INSTANCE_TAGGED, labels::CLUSTER_NAME_TAGGED] {
            next.annotations.insert(key.to_owned(), "true".to_owned());
        }
        if save(self.ports.store(), &claim, next).await.is_ok() { Tagging::Stored } else { Tagging::Later }
    }
}
