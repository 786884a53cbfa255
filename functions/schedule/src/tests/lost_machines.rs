//! Pods that nothing may evict, on a machine that EC2 is about to take.

use super::{checked, four, now, pod};
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::{Node, Pod, PodStatus};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{Claim, ClaimSpec, Deletion, DeletionReason, Event, Machine, PodKey};
use whittle_model::scheduling::{Options, Plan, PodRef};
use whittle_ports::Settings;
use whittle_snapshot::Snapshot;
use whittle_testkit::{after, at, begun, default_spec, deletion, joined, machine, planned, stored};
use whittle_units::ClusterName;

/// A pod of three CPUs that its annotation holds on machine `old`.
fn held() -> Pod {
    let mut held = pod("held", 3);
    held.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    held.spec.node_name = "old".into();
    held.status = PodStatus::default();
    held
}

/// The machine that is interrupted, with the second at which its pods must have ended.
fn interrupted(deadline: Option<i64>) -> Claim {
    let deletion = Deletion { deadline: deadline.map(at), ..deletion(DeletionReason::SpotInterruption, now()) };
    let events = [begun("t"), Event::FleetAnswered(machine("i-1")), joined("old"), Event::NodeReady, Event::DeletionRequested(deletion)];
    after(&planned("old", default_spec()), &events, now())
}

/// The Node of a claim that has one.
fn node(claim: &Claim) -> Option<Node> {
    let machine = claim.machine()?;
    let mut node = Node { metadata: ObjectMeta::named(claim.node_name()?), ..Node::default() };
    let of_pool = [(labels::NODE_POOL, "default"), (labels::INSTANCE_TYPE, "four")];
    let started = [labels::REGISTERED, labels::INITIALIZED].map(|label| (label, "true"));
    node.metadata.labels = of_pool.into_iter().chain(started).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    node.spec.provider_id = machine.provider_id.as_str().to_owned();
    node.status.allocatable = machine.allocatable.clone();
    Some(node)
}

/// What a run plans.
fn plan(pods: Vec<Pod>, claims: Vec<Claim>) -> Plan {
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let nodes = claims.iter().filter_map(node).collect();
    let objects = ClusterObjects { node_pools: vec![pool], pods: pods.into(), nodes, ..ClusterObjects::default() };
    let catalog = BTreeMap::from([("default".to_owned(), Arc::new(vec![four()].into()))]);
    let seen = Snapshot::of(now(), objects, stored(claims), Vec::new(), catalog);
    let options = Options { promised: seen.promises(), ..whittle_snapshot::options(&Settings::default()) };
    checked(&seen.input(), &options, &ClusterName::new("c")).unwrap()
}

#[test]
fn a_pod_that_stays_until_it_is_evicted_gets_no_machine() {
    for deadline in [None, Some(3600)] {
        assert_eq!(plan(vec![held()], vec![interrupted(deadline)]).pods, 0, "{deadline:?}");
    }
}

#[test]
fn a_pod_that_a_notice_will_kill_gets_one_machine_over_all_runs() {
    let old = interrupted(Some(120));
    let first = plan(vec![held()], vec![old.clone()]);
    let [new] = first.claims.as_slice() else { panic!("{first:?}") };
    let key = |pod: &PodRef| PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() };
    let pods = new.pods.iter().map(key).collect();
    let spec = ClaimSpec { requests: new.requests.clone(), instance_types: vec!["four".into()], pods, ..default_spec() };
    let room = four().capacity;
    let launched = Machine { instance_type: "four".into(), capacity: room.clone(), allocatable: room, ..machine("i-2") };
    let events = [begun("u"), Event::FleetAnswered(launched), joined("new"), Event::NodeReady];
    let mut killed = held();
    killed.metadata.deletion_timestamp = Some(now());
    for done in 0..=events.len() {
        let replacement = after(&planned("new", spec.clone()), &events[..done], now());
        let again = |pods: Vec<Pod>| {
            let plan = plan(pods, vec![old.clone(), replacement.clone()]);
            (plan.claims.len(), plan.left_out.len())
        };
        assert_eq!(again(vec![held()]), (0, 0), "it waits, and its machine is {}", replacement.phase.name());
        let successor = pod("held-again", 3);
        assert_eq!(again(vec![killed.clone(), successor]), (0, 0), "it was killed, and the machine is {}", replacement.phase.name());
    }
}
