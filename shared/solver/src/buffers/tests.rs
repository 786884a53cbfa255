use super::*;
use serde_json::{Value, json};
use whittle_api::k8s::PodTemplate;
use whittle_model::scheduling::{LeftOut, NewClaim, Placement};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn buffer(spec: Value) -> CapacityBuffer {
    serde_json::from_value(json!({"metadata": {"name": "spare", "namespace": "shop", "uid": "u"}, "spec": spec})).unwrap()
}

/// Pods of two CPUs and 1 GiB.
fn source(replicas: i32) -> PodSource {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "tmp"}],
        "nodeSelector": {"disk": "ssd"}}});
    PodSource { template: serde_json::from_value::<PodTemplate>(template).unwrap(), replicas, generation: Some(3) }
}

fn ready(buffer: &Buffer) -> (ConditionStatus, &str) {
    let condition = conditions::find(&buffer.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    (condition.status, &condition.reason)
}

#[track_caller]
fn check_replicas(spec: Value, of: i32, expected: i32) {
    let resolved = resolve(&buffer(spec.clone()), Ok(&source(of)), now());
    assert_eq!(resolved.object.status.replicas, Some(expected), "{spec}");
    assert_eq!(resolved.pods.len(), usize::try_from(expected).unwrap(), "{spec}");
    assert_eq!(ready(&resolved), (ConditionStatus::True, "Resolved"));
}

#[test]
fn the_larger_of_number_and_share_counts_up_to_the_limits() {
    let template = json!({"name": "web"});
    let scalable = json!({"kind": "Deployment", "name": "web", "apiGroup": "apps"});
    check_replicas(json!({"podTemplateRef": template, "replicas": 3}), 1, 3);
    check_replicas(json!({"scalableRef": scalable, "replicas": 3, "percentage": 50}), 10, 5);
    check_replicas(json!({"scalableRef": scalable, "replicas": 3, "percentage": 50, "limits": {"cpu": "9"}}), 10, 4);
    check_replicas(json!({"scalableRef": scalable, "percentage": 10}), 3, 1);
    check_replicas(json!({"scalableRef": scalable, "percentage": 0}), 3, 0);
    check_replicas(json!({"scalableRef": scalable, "percentage": 50}), 0, 0);
    check_replicas(json!({"podTemplateRef": template, "limits": {"cpu": "9", "memory": "3Gi"}}), 1, 3);
    check_replicas(json!({"podTemplateRef": template, "limits": {"nvidia.com/gpu": "9"}}), 1, 0);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "limits": {"nvidia.com/gpu": "1"}}), 1, 2);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "percentage": 900}), 50, 2);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "limits": {"cpu": "1"}}), 1, 0);
}

#[test]
fn excessive_replicas_are_capped_with_a_message() {
    let resolved = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 2_000_000})), Ok(&source(1)), now());
    assert_eq!(resolved.pods.len(), 5000);
    let condition = conditions::find(&resolved.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    assert_eq!(condition.message, "2000000 pods are asked for, of which 5000 are looked after");
}

#[test]
fn virtual_pods_have_stable_names_and_no_volumes() {
    let resolved = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 2})), Ok(&source(1)), now());
    let names: Vec<_> = resolved.pods.iter().map(|pod| (pod.metadata.key(), pod.metadata.uid.as_str())).collect();
    assert_eq!(names, [("shop/capacity-buffer-spare-1".to_owned(), "u-1"), ("shop/capacity-buffer-spare-2".to_owned(), "u-2")]);
    let pod = &resolved.pods[0];
    assert!(is_virtual(pod));
    assert_eq!(pod.spec.volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), ["tmp"]);
    assert_eq!(pod.spec.node_selector["disk"], "ssd");
    let status = &resolved.object.status;
    assert_eq!(status.pod_template_ref.as_ref().map(|template| template.name.as_str()), Some("web"));
    assert_eq!((status.pod_template_generation, status.provisioning_strategy.as_deref()), (Some(3), Some(DEFAULT_STRATEGY)));
}

#[track_caller]
fn check_unresolved(spec: Value, reason: &str) {
    let buffer = buffer(spec);
    let unresolved = match source_of(&buffer) {
        Ok((kind, name)) => Unresolved::missing(kind, name),
        Err(unresolved) => unresolved,
    };
    let resolved = resolve(&buffer, Err(&unresolved), now());
    assert_eq!(ready(&resolved), (ConditionStatus::False, reason));
    assert!(resolved.pods.is_empty());
    let updated = updated_statuses(&[resolved], &Plan::default(), &[], now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "NotReadyForProvisioning"));
}

#[test]
fn an_unresolved_buffer_has_a_reason_and_no_pods() {
    check_unresolved(json!({"podTemplateRef": {"name": "gone"}, "replicas": 1}), "PodTemplateNotFound");
    check_unresolved(json!({"scalableRef": {"kind": "StatefulSet", "name": "gone"}, "replicas": 1}), "ScalableRefNotFound");
    check_unresolved(json!({"scalableRef": {"kind": "Job", "name": "x"}, "replicas": 1}), "ResolutionFailed");
    check_unresolved(json!({"scalableRef": {"kind": "Deployment", "name": "x", "apiGroup": "batch"}, "replicas": 1}), "ResolutionFailed");
    check_unresolved(json!({"replicas": 1}), "ResolutionFailed");
}

/// The condition after a pass that placed `fit`, `new`, `on_the_way` and `failed` of the pods.
#[track_caller]
fn check_condition(old: &[usize], new: &[usize], on_the_way: &[usize], failed: &[usize], expected: Option<(ConditionStatus, &str)>) {
    let buffer = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 4})), Ok(&source(1)), now());
    let pods = |list: &[usize]| list.iter().map(|n| PodRef::of(&buffer.pods[*n])).collect::<Vec<_>>();
    let mut plan = Plan::default();
    plan.placements.push(Placement { node: "n".into(), initialized: true, pods: pods(old) });
    plan.placements.push(Placement {
        node: "other".into(),
        initialized: true,
        pods: vec![PodRef { namespace: "shop".into(), name: "capacity-buffer-spare-1".into(), uid: "real".into() }],
    });
    if !new.is_empty() {
        let template = whittle_model::scheduling::TypeNames::default();
        plan.claims.push(NewClaim { pods: pods(new), ..empty_claim(template) });
    }
    plan.left_out = pods(failed).into_iter().map(|pod| LeftOut { pod, reason: Reason::NoNodePools }).collect();
    let updated = updated_statuses(std::slice::from_ref(&buffer), &plan, &pods(on_the_way), now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING);
    assert_eq!(condition.map(|condition| (condition.status, condition.reason.as_str())), expected);
    let count = u32::try_from(old.len()).unwrap();
    let on = virtual_pods_by_machine(&plan, &[buffer]);
    assert_eq!(on.get("n").copied().unwrap_or(0), count);
    assert_eq!(on.get("other"), None, "a real pod of that name is no buffer pod");
}

fn empty_claim(instance_types: whittle_model::scheduling::TypeNames) -> NewClaim {
    NewClaim {
        node_pool: "default".into(),
        instance_types,
        requirements: Vec::new(),
        instance_type_min_values: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        node_class_ref: whittle_api::karpenter::NodeClassReference::default(),
        expire_after: whittle_api::NillableDuration::default(),
        termination_grace_period: None,
        requests: whittle_units::Resources::new(),
        pods: Vec::new(),
        cheapest_price: whittle_units::Price::ZERO,
        offerings: 0,
        why: whittle_model::scheduling::ClaimWhy::default(),
    }
}

#[test]
fn a_buffers_condition_tells_whether_it_fits() {
    use ConditionStatus::{False, True};
    check_condition(&[0, 1, 2, 3], &[], &[], &[], Some((True, "FitsExistingCapacity")));
    check_condition(&[0, 1], &[2, 3], &[], &[], Some((False, "RequiresNewCapacity")));
    check_condition(&[0, 1], &[], &[2, 3], &[], Some((False, "RequiresNewCapacity")));
    check_condition(&[0, 1], &[], &[], &[2, 3], Some((False, "RequiresNewCapacity")));
    check_condition(&[], &[], &[], &[], None);
}

#[test]
fn an_empty_buffer_has_a_condition() {
    let empty = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 0})), Ok(&source(1)), now());
    let updated = updated_statuses(&[empty], &Plan::default(), &[], now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "BufferEmpty"));
}
