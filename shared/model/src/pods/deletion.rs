//! Which pods of a workload its controller ends first when there are too many.

use super::is_ready;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whittle_api::k8s::Pod;
use whittle_units::Timestamp;

/// What a pod's end costs its workload, from -2147483648 to 2147483647; 0 without it.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The rank of a pod among those of its ReplicaSet or Deployment, of which the lowest ends first: pods without a node, that do not run,
/// that are not ready, whose end costs less, that share their node with more of their kind, that are younger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeletionRank {
    bound: bool,
    running: bool,
    ready: bool,
    cost: i32,
    beside: Reverse<usize>,
    /// The logarithm of the time since it is ready: controllers take pods of about one age for equally old, and draw by uid.
    age: i64,
    uid: String,
    created: Reverse<Option<Timestamp>>,
    key: String,
}

/// The ranks of the pods of one workload, in their order. Without a time, where uids are no dice, the younger ends first.
#[must_use]
pub fn deletion_ranks<'a>(pods: impl Iterator<Item = &'a Pod> + Clone, now: Option<Timestamp>) -> Vec<DeletionRank> {
    let mut on_nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods.clone().filter(|pod| pod.is_bound()) {
        *on_nodes.entry(&pod.spec.node_name).or_default() += 1;
    }
    let rank = |pod: &Pod| DeletionRank {
        bound: pod.is_bound(),
        running: pod.status.phase == "Running",
        ready: is_ready(pod),
        cost: pod.metadata.annotation(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0),
        beside: Reverse(on_nodes.get(pod.spec.node_name.as_str()).copied().unwrap_or(0)),
        age: now.and_then(|now| age(pod, now)).unwrap_or_default(),
        uid: now.map(|_| pod.metadata.uid.clone()).unwrap_or_default(),
        created: Reverse(pod.metadata.creation_timestamp.filter(|_| now.is_none())),
        key: pod.metadata.key(),
    };
    pods.map(rank).collect()
}

/// The number of binary digits of the nanoseconds for which a pod is ready, or there.
fn age(pod: &Pod, now: Timestamp) -> Option<i64> {
    let ready = pod.condition("Ready").filter(|condition| condition.status == "True").and_then(|condition| condition.last_transition_time);
    let since = ready.or(pod.metadata.creation_timestamp)?;
    let nanos = now.duration_since(since).as_nanos();
    Some(if nanos <= 0 { -1 } else { i64::from(nanos.ilog2()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;
    use whittle_api::k8s::PodCondition;

    /// Names of pods in the order in which they end. Each is given as name, node, phase, whether it is ready, deletion cost and creation.
    fn order(pods: &[(&str, &str, &str, bool, &str, &str)]) -> Vec<String> {
        let pod = |(name, node, phase, ready, cost, created): &(&str, &str, &str, bool, &str, &str)| {
            let mut pod = Pod { metadata: ObjectMeta::named(*name), ..Pod::default() };
            pod.metadata.creation_timestamp = Some(created.parse().unwrap());
            pod.metadata.annotations.insert(DELETION_COST.to_owned(), (*cost).to_owned());
            (*node).clone_into(&mut pod.spec.node_name);
            (*phase).clone_into(&mut pod.status.phase);
            let status = if *ready { "True" } else { "False" };
            pod.status.conditions = vec![PodCondition { type_: "Ready".to_owned(), status: status.to_owned(), ..PodCondition::default() }];
            pod
        };
        let pods: Vec<Pod> = pods.iter().map(pod).collect();
        let mut ranked: Vec<_> = deletion_ranks(pods.iter(), None).into_iter().zip(&pods).collect();
        ranked.sort_by(|a, b| a.0.cmp(&b.0));
        ranked.into_iter().map(|(_, pod)| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn pods_end_in_the_order_of_the_replica_set_controller() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let ended = order(&[
            ("alone", "a", "Running", true, "", late),
            ("crowded-old", "b", "Running", true, "", early),
            ("crowded-young", "b", "Running", true, "x", late),
            ("dear", "b", "Running", true, "100", late),
            ("cheap", "c", "Running", true, "-1", early),
            ("unready", "d", "Running", false, "1000", early),
            ("starting", "e", "Pending", false, "1000", early),
            ("waiting", "", "Pending", false, "1000", early),
        ]);
        assert_eq!(ended, ["waiting", "starting", "unready", "cheap", "crowded-young", "crowded-old", "alone", "dear"]);
    }

    #[test]
    fn pods_of_about_one_age_are_drawn_by_uid() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let pod = |name: &str, created: &str| {
            let metadata = ObjectMeta { uid: name.to_owned(), ..ObjectMeta::named(name) };
            Pod { metadata: ObjectMeta { creation_timestamp: Some(created.parse().unwrap()), ..metadata }, ..Pod::default() }
        };
        let pods = [
            pod("c", "2026-01-01T00:30:00Z"),
            pod("b", "2026-01-01T00:25:00Z"),
            pod("a", "2026-01-01T00:00:00Z"),
            pod("d", "2026-01-01T00:59:00Z"),
        ];
        let mut ranked: Vec<_> = deletion_ranks(pods.iter(), Some(now)).into_iter().zip(["c", "b", "a", "d"]).collect();
        ranked.sort();
        assert_eq!(ranked.into_iter().map(|(_, name)| name).collect::<String>(), "dbca", "thirty and thirty-five minutes are one age");
    }
}
