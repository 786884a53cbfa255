//! Tags of instances that only a Node gives them: their name in EC2's console, and what they belong to (lifecycle 10).

use crate::{Rights, Run, TIME_PER_BATCH};
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, Stored};
use whittle_ec2::instance::Instance;
use whittle_ports::{Clock, CloudError, ClusterEvent, InstanceTags, Instances, Involved, Report, TokenBuckets, publish_event, save};
use whittle_units::InstanceId;

/// EC2's limit of CreateTags per account and region: ten calls a second, after a hundred at once. All clusters share it.
const BUCKET: &str = "CreateTags";
const BUCKET_SIZE: u32 = 100;
const BUCKET_RATE: u32 = 10;
/// Instances tagged in one run: what the bucket gains until the next run, after five seconds.
const TAGGED_PER_RUN_MAX: usize = 50;
/// Instances that are tagged concurrently.
const CONCURRENCY: usize = 10;

/// The tags that EC2 takes of an instance, without those of AWS itself.
const TAGS_MAX: usize = 50;
const AWS_PREFIX: &str = "aws:";

/// What became of the tags of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tagging {
    Stored,
    /// The instance is not shown yet, or the claim was changed meanwhile.
    Later,
    Failed {
        instance: InstanceId,
        error: CloudError,
    },
}

/// The tags that an instance lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Missing {
    added: Vec<(String, String)>,
    /// Those that it has no room for.
    left_out: Vec<&'static str>,
}

impl Missing {
    /// Of these tags, in the order of their weight. Pure.
    fn of(instance: &Instance, wanted: [(&'static str, &str); 3]) -> Self {
        let taken = instance.tags.keys().filter(|key| !key.starts_with(AWS_PREFIX)).count();
        let room = TAGS_MAX.saturating_sub(taken);
        let lacking: Vec<_> = wanted.into_iter().filter(|(key, _)| !instance.tags.contains_key(*key)).collect();
        let (added, left_out) = lacking.split_at(room.min(lacking.len()));
        Self {
            added: added.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            left_out: left_out.iter().map(|(key, _)| *key).collect(),
        }
    }
}

/// The calls that failed, one line for each code: a policy that denies one denies all. Pure.
fn failures(outcomes: &[Tagging]) -> Vec<String> {
    let mut by_code: BTreeMap<&str, (&InstanceId, &CloudError, usize)> = BTreeMap::new();
    for outcome in outcomes {
        if let Tagging::Failed { instance, error } = outcome {
            by_code.entry(error.code.as_str()).or_insert((instance, error, 0)).2 += 1;
        }
    }
    let line = |(instance, error, count): (&InstanceId, &CloudError, usize)| match count {
        1 => format!("{instance}: {error}"),
        _ => format!("{instance} and {} more: {error}", count - 1),
    };
    by_code.into_values().map(line).collect()
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
        let calls = tags.iter().flatten().filter(|missing| !missing.added.is_empty()).count();
        if calls > 0 && !self.may_call(calls).await {
            report.count("tags_postponed");
            return true;
        }
        let tagging = stream::iter(claims.into_iter().zip(tags)).map(|(claim, tags)| self.tag_instance(claim, tags));
        let outcomes: Vec<Tagging> = tagging.buffer_unordered(CONCURRENCY).collect().await;
        for outcome in &outcomes {
            match outcome {
                Tagging::Stored => report.count("tagged"),
                Tagging::Failed { .. } => report.count("tags_failed"),
                Tagging::Later => {}
            }
        }
        for failure in failures(&outcomes) {
            tracing::warn!(cluster = %self.cluster, failure, "instances cannot be tagged: retrying in the next run");
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
    async fn missing_tags(&self, claim: &Claim) -> Option<Missing> {
        let (machine, node) = (claim.machine()?, claim.node_name()?);
        let instance = self.ports.cloud().instance(&machine.instance_id).await.ok()??;
        let (name, cluster) = (claim.key.name.as_str(), claim.key.cluster.as_str());
        Some(Missing::of(&instance, [(labels::TAG_CLUSTER, cluster), (labels::TAG_NODE_CLAIM, name), (labels::TAG_NAME, node)]))
    }

    /// Failures are retried by the next run. A tag without room is not: the instance has as many as EC2 takes, and keeps them.
    async fn tag_instance(&self, claim: Stored<Claim>, missing: Option<Missing>) -> Tagging {
        let (Some(machine), Some(missing)) = (claim.value.machine(), missing) else { return Tagging::Later };
        if !missing.added.is_empty()
            && let Err(error) = self.ports.cloud().tag(&machine.instance_id, &missing.added).await
        {
            return Tagging::Failed { instance: machine.instance_id.clone(), error };
        }
        let mut next = claim.value.clone();
        for key in [labels::INSTANCE_TAGGED, labels::CLUSTER_NAME_TAGGED] {
            next.annotations.insert(key.to_owned(), "true".to_owned());
        }
        if save(self.ports.store(), &claim, next).await.is_err() {
            return Tagging::Later;
        }
        if !missing.left_out.is_empty() {
            self.report_left_out(&claim.value, &machine.instance_id, &missing.left_out).await;
        }
        Tagging::Stored
    }

    async fn report_left_out(&self, claim: &Claim, instance: &InstanceId, left_out: &[&str]) {
        let message = format!(
            "instance {instance} gets no tag {}: EC2 takes {TAGS_MAX} tags of an instance, and it has that many. Leave tags out of \
             spec.tags of its EC2NodeClass",
            left_out.join(" and no tag ")
        );
        tracing::warn!(claim = %claim.key, "{message}");
        let event = ClusterEvent::warning(Involved::claim(claim), "TagsLeftOut", message);
        publish_event(self.ports.cluster(), self.cluster, &event).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_ports::CloudErrorKind;

    fn failed(instance: &str, code: &str) -> Tagging {
        let (kind, message) = (CloudErrorKind::Unauthorized, "denied by a policy".to_owned());
        let error = CloudError { kind, call: "CreateTags", code: code.to_owned(), message };
        Tagging::Failed { instance: instance.into(), error }
    }

    #[test]
    fn each_code_of_a_failure_is_one_line_with_instance_and_message() {
        let outcomes = [failed("i-1", "Unauthorized"), Tagging::Stored, failed("i-2", "Other"), failed("i-3", "Unauthorized")];
        let expected =
            ["i-2: CreateTags failed: Other: denied by a policy", "i-1 and 1 more: CreateTags failed: Unauthorized: denied by a policy"];
        assert_eq!(failures(&outcomes), expected);
        assert_eq!(failures(&[Tagging::Stored, Tagging::Later]), [""; 0]);
    }
}
