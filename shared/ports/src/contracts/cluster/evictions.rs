//! The contract of [`Evictions`], and of reads for draining a node.

use super::{ClusterPlace, node, until};
use crate::{ClusterError, ClusterReader, Evictions, Scope};
use serde_json::{Value, json};
use whittle_api::ClusterObjects;
use whittle_api::k8s::Pod;
use whittle_claims::PodKey;

/// Evictions, as a function with this port makes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn evictions(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Evictions), tag: &str) {
    let (name, web) = (format!("drained-{tag}"), format!("web-{tag}"));
    place.create(node(&name)).await;
    place.create(deployment(&web, &name)).await;
    place.create(budget(&web, &web, 2)).await;
    what_is_read_for_a_drain_is_of_one_node(place, cluster, &name).await;
    let pod = key_of(&running(place, cluster, &name).await[0]);
    a_budget_forbids_an_eviction(place, cluster, &web, &pod).await;
    an_eviction_is_granted_once(place, cluster, &name, &web).await;
    a_pod_is_deleted_by_its_uid(place, cluster, &name, &web).await;
    place.delete("Deployment", "default", &web).await;
    until(place, "the end of the pods", async || drain(place, cluster, &name).await.pods.is_empty().then_some(())).await;
    place.delete("Node", "", &name).await;
}

fn deployment(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {
                "nodeSelector": {"for": node},
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "fake", "resources": {"requests": {"cpu": "100m"}}}],
            },
        }},
    })
}

fn budget(name: &str, app: &str, min_available: i32) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    })
}

fn key_of(pod: &Pod) -> PodKey {
    PodKey { namespace: pod.metadata.namespace.clone(), name: pod.metadata.name.clone(), uid: pod.metadata.uid.clone() }
}

async fn drain(place: &impl ClusterPlace, reader: &impl ClusterReader, node: &str) -> ClusterObjects {
    reader.read(place.cluster(), Scope::Drain, Some(node)).await.expect("the API server answers")
}

/// The two pods of the node, as soon as both are ready.
async fn running(place: &impl ClusterPlace, reader: &impl ClusterReader, node: &str) -> Vec<Pod> {
    let is_ready = |pod: &Pod| !pod.metadata.is_deleting() && pod.condition("Ready").is_some_and(|ready| ready.status == "True");
    until(place, "two ready pods", async || {
        let pods = drain(place, reader, node).await.pods;
        (pods.len() == 2 && pods.iter().all(is_ready)).then(|| pods.to_vec())
    })
    .await
}

/// Waits until a budget counts this many pods as healthy, and allows this many evictions.
async fn counted(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str, healthy: i32, allowed: i32) {
    until(place, "the budget's count", async || {
        let budgets = super::read(place, reader, Scope::All).await.disruption_budgets;
        let status = budgets.iter().find(|budget| budget.metadata.name == name).map(|budget| &budget.status)?;
        ((status.current_healthy, status.disruptions_allowed) == (healthy, allowed)).then_some(())
    })
    .await;
}

async fn what_is_read_for_a_drain_is_of_one_node(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) {
    running(place, reader, name).await;
    let objects = drain(place, reader, name).await;
    assert_eq!((objects.nodes.len(), objects.pods.len()), (1, 2));
    assert!(objects.pods.iter().all(|pod| pod.spec.node_name == name));
    assert_eq!((objects.node_pools.len(), objects.node_claims.len(), objects.disruption_budgets.len()), (0, 0, 0));
    let volumes = async |node: Option<&str>| reader.read(place.cluster(), Scope::Volumes, node).await.expect("the API server answers");
    assert_eq!(volumes(Some(name)).await, ClusterObjects::default(), "no volume is attached");
    assert_eq!(volumes(None).await, ClusterObjects::default(), "no node has no volumes");
    let read = async |node: Option<&str>| reader.read(place.cluster(), Scope::Pods, node).await.expect("the API server answers");
    let pods = read(Some(name)).await;
    assert_eq!((pods.pods.len(), pods.nodes.len(), pods.disruption_budgets.len()), (2, 0, 0));
    assert_eq!(read(Some("absent")).await, ClusterObjects::default());
    assert_eq!(read(None).await, ClusterObjects::default(), "no node has no pods, though some have no node");
    assert_eq!((drain(place, reader, "absent").await.nodes.len(), drain(place, reader, "absent").await.pods.len()), (0, 0));
}

async fn a_budget_forbids_an_eviction(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Evictions), web: &str, pod: &PodKey) {
    counted(place, cluster, web, 2, 0).await;
    let refused = cluster.evict(place.cluster(), pod).await;
    assert!(matches!(refused, Err(ClusterError::EvictionForbidden { .. })), "{refused:?}");
    let second = format!("{web}-second");
    place.create(budget(&second, web, 0)).await;
    counted(place, cluster, &second, 2, 2).await;
    let two = cluster.evict(place.cluster(), pod).await;
    assert!(matches!(two, Err(ClusterError::EvictionForbidden { .. })), "two budgets on one pod: {two:?}");
    place.delete("PodDisruptionBudget", "default", &second).await;
    place.delete("PodDisruptionBudget", "default", web).await;
}

#[track_caller]
fn assert_is_gone(answer: &Result<(), ClusterError>) {
    assert!(matches!(answer, Err(ClusterError::NotFound { .. })), "no pod has this uid: {answer:?}");
}

/// How often the successor of an evicted pod may be faster than the next request.
const SUCCESSORS_MAX: u32 = 20;

async fn an_eviction_is_granted_once(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Evictions), name: &str, web: &str) {
    place.create(budget(web, web, 1)).await;
    let mut tries = 0;
    let pod = loop {
        counted(place, cluster, web, 2, 1).await;
        let [pod, other] = &running(place, cluster, name).await[..] else { panic!("the deployment has two pods") };
        cluster.evict(place.cluster(), &key_of(pod)).await.expect("the budget allows it");
        match cluster.evict(place.cluster(), &key_of(other)).await {
            Err(ClusterError::EvictionForbidden { .. }) => break pod.clone(),
            // On a busy machine the successor of the first is ready, and counted, before the second is asked for.
            Ok(()) if tries < SUCCESSORS_MAX => tries += 1,
            next => panic!("the budget allowed one: {next:?}"),
        }
    };
    until(place, "the end of the pod", async || {
        let pods = drain(place, cluster, name).await.pods;
        pods.iter().all(|known| known.metadata.uid != pod.metadata.uid).then_some(())
    })
    .await;
    assert_is_gone(&cluster.evict(place.cluster(), &key_of(&pod)).await);
    assert_is_gone(&cluster.delete_pod(place.cluster(), &key_of(&pod), 1).await);
    place.delete("PodDisruptionBudget", "default", web).await;
}

async fn a_pod_is_deleted_by_its_uid(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Evictions), name: &str, web: &str) {
    // A real API server charges an eviction to the budget before it looks at the uid.
    let pods = running(place, cluster, name).await;
    let pod = key_of(&pods[0]);
    let other = PodKey { uid: "another".to_owned(), ..pod.clone() };
    assert_is_gone(&cluster.evict(place.cluster(), &other).await);
    assert_is_gone(&cluster.delete_pod(place.cluster(), &other, 1).await);
    let uids = |pods: &[Pod]| pods.iter().map(|pod| (pod.metadata.uid.clone(), pod.metadata.is_deleting())).collect::<Vec<_>>();
    assert_eq!(uids(&drain(place, cluster, name).await.pods), uids(&pods), "its namesake is left alone");
    place.create(budget(web, web, 2)).await;
    counted(place, cluster, web, 2, 0).await;
    cluster.delete_pod(place.cluster(), &pod, 1).await.expect("a budget does not count for a deletion");
    until(place, "the end of the pod", async || {
        let pods = drain(place, cluster, name).await.pods;
        pods.iter().all(|known| known.metadata.uid != pod.uid).then_some(())
    })
    .await;
    assert_is_gone(&cluster.delete_pod(place.cluster(), &pod, 1).await);
    place.delete("PodDisruptionBudget", "default", web).await;
}
