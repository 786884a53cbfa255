//! The cluster ports on a real API server with a real scheduler and controllers.

use crate::encodings::json_and_protobuf_are_read_alike;
use crate::kept::a_kept_look_is_what_a_whole_list_says;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::NodeClaimStatus;
use whittle_api::{OwnerReference, labels};
use whittle_claims::{Claim, ClaimSpec, Phase, PodKey, mirror};
use whittle_cluster::Clusters;
use whittle_ports::{
    ClusterError, ClusterEvent, ClusterReader, Evictions, Involved, Mirrors, NodePatch, Nodes, Scope, StatusWriter, contracts,
};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{CRDS, TestAccess, apply, clusters, clusters_as, kubectl};
use whittle_units::ClusterName;

pub(crate) const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node-role
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
";

pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) clusters: Clusters<TestAccess>,
    pub(crate) name: ClusterName,
}

/// One control plane for all checks, because it takes seconds to start and half a gigabyte of memory.
#[tokio::test]
async fn the_cluster_adapter_works_on_a_real_control_plane() {
    let Some(plane) = ControlPlane::start() else { return };
    let stage = Stage { clusters: clusters(&plane), name: ClusterName::new("test"), plane };
    a_cluster_without_our_crds_is_read_and_gets_no_mirrors(&stage).await;
    objects_of_old_kinds_are_converted(&stage).await;
    for crd in CRDS {
        apply(&stage.plane, crd);
    }
    let _ = kubectl(&stage.plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    apply(&stage.plane, POOL);
    a_mirror_is_created_updated_and_kept_by_its_finalizer_until_released(&stage).await;
    a_standalone_node_claim_is_updated_and_never_created(&stage).await;
    a_node_is_patched_only_at_the_resource_version_that_was_read(&stage).await;
    an_eviction_is_forbidden_until_the_budget_allows_it(&stage).await;
    a_pod_is_deleted_only_if_its_uid_matches(&stage).await;
    json_and_protobuf_are_read_alike(&stage).await;
    a_kept_look_is_what_a_whole_list_says(&stage).await;
    status_and_events_are_written(&stage).await;
    all_pages_of_a_list_are_read(&stage).await;
    the_error_of_a_rejected_token_names_the_remedy(&stage).await;
}

async fn a_cluster_without_our_crds_is_read_and_gets_no_mirrors(stage: &Stage) {
    let objects = stage.clusters.read(&stage.name, Scope::All, None).await.expect("missing kinds are no error");
    assert!(objects.namespaces.iter().any(|namespace| namespace.metadata.name == "kube-system"));
    assert!(objects.priority_classes.iter().any(|class| class.metadata.name == "system-node-critical"));
    assert!(objects.node_pools.is_empty() && objects.node_claims.is_empty());
    let claim = contracts::planned_claim(&stage.name, "early", FixedClock::new().now);
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a missing kind is no error");
    stage.clusters.release_mirror(&stage.name, "early", "").await.expect("a missing mirror is released");
}

async fn objects_of_old_kinds_are_converted(stage: &Stage) {
    let crd = |group: &str, version: &str, kind: &str, plural: &str, singular: &str| {
        format!(
            "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {plural}.{group}}}, \
             spec: {{group: {group}, scope: Cluster, names: {{kind: {kind}, plural: {plural}, singular: {singular}}}, versions: \
             [{{name: {version}, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
        )
    };
    apply(&stage.plane, &crd("karpenter.sh", "v1alpha5", "Provisioner", "provisioners", "provisioner"));
    apply(&stage.plane, &crd("karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate", "awsnodetemplates", "awsnodetemplate"));
    let _ = kubectl(&stage.plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    apply(
        &stage.plane,
        "{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: old}, spec: {ttlSecondsAfterEmpty: 30, providerRef: {name: old}}}",
    );
    apply(
        &stage.plane,
        "{apiVersion: karpenter.k8s.aws/v1alpha1, kind: AWSNodeTemplate, metadata: {name: old}, \
         spec: {subnetSelector: {karpenter.sh/discovery: test}, securityGroupSelector: {karpenter.sh/discovery: test}}}",
    );
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let pool = objects.node_pools.iter().find(|pool| pool.metadata.name == "old").expect("the Provisioner is a NodePool");
    assert_eq!(pool.metadata.annotation(labels::CONVERTED_FROM), Some("Provisioner"));
    assert!(!pool.metadata.uid.is_empty(), "it keeps the identity of its object");
    assert!(objects.node_classes.iter().any(|class| class.metadata.name == "old"));
}

fn claim_of(stage: &Stage, name: &str, owner: OwnerReference) -> Claim {
    let now = FixedClock::new().now;
    let id = format!("i-0{name}").as_str().into();
    let machine = contracts::machine_launched_at(&id, now);
    let spec = ClaimSpec {
        node_pool: "default".to_owned(),
        owner,
        node_class: whittle_api::karpenter::NodeClassReference {
            group: "karpenter.k8s.aws".to_owned(),
            kind: "EC2NodeClass".to_owned(),
            name: "default".to_owned(),
        },
        labels: [(labels::NODE_POOL.to_owned(), "default".to_owned())].into(),
        ..ClaimSpec::default()
    };
    Claim { spec, phase: Phase::Launched { machine }, ..contracts::planned_claim(&stage.name, name, now) }
}

/// Generation of an object, and the observed generation of its first condition.
const OBSERVED: &str = "jsonpath={.metadata.generation} {.status.conditions[0].observedGeneration}";

async fn a_mirror_is_created_updated_and_kept_by_its_finalizer_until_released(stage: &Stage) {
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let pool = objects.node_pools.iter().find(|pool| pool.metadata.name == "default").expect("it was applied");
    let owner = OwnerReference {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: "NodePool".to_owned(),
        name: "default".to_owned(),
        uid: pool.metadata.uid.clone(),
        ..OwnerReference::default()
    };
    let mut claim = claim_of(stage, "mirrored", owner);
    claim.phase = Phase::Planned;
    claim.conditions = Claim::planned(claim.key.clone(), String::new(), ClaimSpec::default(), claim.created_at).conditions;
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror can be created");
    assert_eq!(kubectl(&stage.plane, &["get", "nodeclaim", "mirrored", "-o", "jsonpath={.status.providerID}"]), "");

    // Labels of others are kept, ours follow the claim.
    let _ = kubectl(&stage.plane, &["label", "nodeclaim", "mirrored", "team=a"]);
    claim.phase = claim_of(stage, "mirrored", claim.spec.owner.clone()).phase;
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror can be updated");
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("applying it again changes nothing");
    let shown = kubectl(
        &stage.plane,
        &[
            "get",
            "nodeclaim",
            "mirrored",
            "-o",
            "jsonpath={.status.providerID} {.metadata.labels.team} {.metadata.finalizers[0]} {.metadata.ownerReferences[0].kind}",
        ],
    );
    assert_eq!(shown, "aws:///us-west-2a/i-0mirrored a karpenter.sh/termination NodePool");

    assert_eq!(kubectl(&stage.plane, &["get", "nodeclaim", "mirrored", "-o", OBSERVED]), "1 1");
    stage.clusters.delete_mirror(&stage.name, "mirrored", "another").await.expect("an object of another uid is not deleted");
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    assert!(objects.node_claims.iter().any(|claim| claim.metadata.name == "mirrored" && !claim.metadata.is_deleting()));
    stage.clusters.delete_mirror(&stage.name, "mirrored", "").await.expect("a mirror can be deleted");
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror that is being deleted can be updated");
    assert_eq!(kubectl(&stage.plane, &["get", "nodeclaim", "mirrored", "-o", OBSERVED]), "2 2", "its deletion is a new generation");
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let held = objects.node_claims.iter().find(|claim| claim.metadata.name == "mirrored").expect("the finalizer holds it");
    assert!(held.metadata.is_deleting());
    stage.clusters.release_mirror(&stage.name, "mirrored", "another").await.expect("an object of another uid is not released");
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    assert!(objects.node_claims.iter().any(|claim| claim.metadata.name == "mirrored"));
    stage.clusters.release_mirror(&stage.name, "mirrored", "").await.expect("a mirror can be released");
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    assert!(objects.node_claims.iter().all(|claim| claim.metadata.name != "mirrored"));
    stage.clusters.delete_mirror(&stage.name, "mirrored", "").await.expect("deleting what does not exist is a success");
}

async fn a_standalone_node_claim_is_updated_and_never_created(stage: &Stage) {
    let standalone_claim = |uid: &str| {
        let mut claim = claim_of(stage, "standalone", OwnerReference::default());
        claim.spec.standalone_uid = Some(uid.to_owned());
        claim
    };
    let absent = stage.clusters.apply_mirror(&stage.name, &mirror(&standalone_claim("another-uid"))).await;
    assert!(matches!(absent, Err(ClusterError::NotFound { .. })), "{absent:?}");
    apply(
        &stage.plane,
        "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: standalone, labels: {team: b}, annotations: {note: keep}}, \
         spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, \
         requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}}",
    );
    let another = stage.clusters.apply_mirror(&stage.name, &mirror(&standalone_claim("another-uid"))).await;
    assert!(matches!(another, Err(ClusterError::NotFound { .. })), "{another:?}");
    let read = async || {
        let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
        objects.node_claims.into_iter().find(|claim| claim.metadata.name == "standalone")
    };
    let created = read().await.expect("it was applied");
    assert!(created.metadata.finalizers.is_empty() && created.status == NodeClaimStatus::default(), "{created:?}");
    let uid = created.metadata.uid.as_str();
    stage.clusters.apply_mirror(&stage.name, &mirror(&standalone_claim(uid))).await.expect("its uid is that of the claim");
    let shown = read().await.expect("it is still there");
    assert_eq!(shown.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    assert_eq!((shown.metadata.label("team"), shown.metadata.annotation("note")), (Some("b"), Some("keep")));
    assert_eq!(shown.spec, created.spec);
    assert_eq!(shown.status.provider_id, "aws:///us-west-2a/i-0standalone");
    stage.clusters.delete_mirror(&stage.name, "standalone", uid).await.expect("it can be deleted");
    stage.clusters.release_mirror(&stage.name, "standalone", uid).await.expect("it can be released");
    assert_eq!(read().await, None);
}

async fn a_node_is_patched_only_at_the_resource_version_that_was_read(stage: &Stage) {
    let claim = claim_of(stage, "owner", OwnerReference::default());
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror can be created");
    apply(
        &stage.plane,
        "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {type: fake}}, \
         spec: {providerID: 'aws:///us-west-2a/i-0owner', taints: [{key: karpenter.sh/unregistered, effect: NoExecute}]}, \
         status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}, capacity: {cpu: 4, memory: 8Gi, pods: 10}}}",
    );
    let _ = kubectl(&stage.plane, &["wait", "node/n1", "--for=condition=Ready", "--timeout=60s"]);
    let patch = NodePatch {
        labels: [(labels::REGISTERED.to_owned(), "true".to_owned())].into(),
        annotations: [("a".to_owned(), "1".to_owned())].into(),
        add_taints: vec![Taint::new("startup", TaintEffect::NoSchedule)],
        remove_taints: vec![Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute)],
        add_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()),
        // With the claim's own uid, which the adapter has to replace by that of the stored object.
        owner: Some(OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            name: "owner".to_owned(),
            uid: claim.uid.clone(),
            ..OwnerReference::default()
        }),
        ..NodePatch::default()
    };
    let stale = stage.clusters.patch_node(&stage.name, "n1", "1", &patch).await;
    assert!(matches!(stale, Err(ClusterError::Conflict { .. })), "{stale:?}");
    stage.clusters.patch_node(&stage.name, "n1", "", &patch).await.expect("without a resource version the node is patched unconditionally");

    let objects = stage.clusters.read(&stage.name, Scope::All, None).await.expect("the API server answers");
    let node = objects.nodes.iter().find(|node| node.metadata.name == "n1").expect("it was applied");
    let keys: Vec<&str> = node.spec.taints.iter().map(|taint| taint.key.as_str()).collect();
    assert!(keys.contains(&"startup") && !keys.contains(&labels::UNREGISTERED_TAINT), "{keys:?}");
    assert_eq!(node.metadata.label(labels::REGISTERED), Some("true"));
    assert_eq!(node.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    let stored = objects.node_claims.iter().find(|claim| claim.metadata.name == "owner").expect("it was mirrored");
    assert_eq!(node.metadata.owner_references[0].uid, stored.metadata.uid);
    assert_eq!(node.status.allocatable.get("cpu").to_string(), "4");

    let undo = NodePatch {
        remove_taints: vec![Taint::new("startup", TaintEffect::NoSchedule)],
        remove_annotations: vec!["a".to_owned()],
        ..NodePatch::default()
    };
    patch_as_read(stage, &undo).await;
    let missing = stage.clusters.patch_node(&stage.name, "absent", "", &undo).await;
    assert!(matches!(missing, Err(ClusterError::NotFound { .. })), "{missing:?}");

    stage.clusters.delete_node(&stage.name, "absent").await.expect("deleting what does not exist is a success");
}

/// Patches `n1` at the resource version that was read, and retries on a conflict: the control plane changes its taints now and then.
async fn patch_as_read(stage: &Stage, patch: &NodePatch) {
    const ATTEMPTS: usize = 10;
    for _ in 0..ATTEMPTS {
        let objects = stage.clusters.read(&stage.name, Scope::All, None).await.expect("the API server answers");
        let node = objects.nodes.iter().find(|node| node.metadata.name == "n1").expect("it was applied");
        match stage.clusters.patch_node(&stage.name, "n1", &node.metadata.resource_version, patch).await {
            Err(ClusterError::Conflict { .. }) => {}
            answer => return answer.expect("the patch is accepted"),
        }
    }
    panic!("{ATTEMPTS} patches of n1 conflicted");
}

async fn an_eviction_is_forbidden_until_the_budget_allows_it(stage: &Stage) {
    apply(
        &stage.plane,
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: default}, spec: {replicas: 2, \
         selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: fake, \
         resources: {requests: {cpu: 100m}}}]}}}}",
    );
    apply(
        &stage.plane,
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: default}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}",
    );
    let _ = kubectl(&stage.plane, &["rollout", "status", "deployment/web", "--timeout=60s"]);
    let _ = kubectl(&stage.plane, &["wait", "pdb/web", "--for=jsonpath={.status.currentHealthy}=2", "--timeout=60s"]);
    let objects = stage.clusters.read(&stage.name, Scope::Drain, Some("n1")).await.expect("the API server answers");
    assert_eq!((objects.nodes.len(), objects.pods.len()), (1, 2));
    assert_eq!(objects.disruption_budgets.len(), 1);
    let pods_only = stage.clusters.read(&stage.name, Scope::Pods, Some("n1")).await.expect("the API server answers");
    assert_eq!((pods_only.pods.len(), pods_only.nodes.len()), (2, 0));
    let elsewhere = stage.clusters.read(&stage.name, Scope::Pods, Some("n2")).await.expect("the API server answers");
    assert_eq!(elsewhere.pods.len(), 0);
    let metadata = &objects.pods[0].metadata;
    let pod = PodKey { namespace: metadata.namespace.clone(), name: metadata.name.clone(), uid: metadata.uid.clone() };
    let refused = stage.clusters.evict(&stage.name, &pod).await;
    assert!(matches!(refused, Err(ClusterError::EvictionForbidden { .. })), "{refused:?}");

    apply(
        &stage.plane,
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: second, namespace: default}, spec: {minAvailable: 0, selector: {matchLabels: {app: web}}}}",
    );
    let _ = kubectl(&stage.plane, &["wait", "pdb/second", "--for=jsonpath={.status.expectedPods}=2", "--timeout=60s"]);
    let two = stage.clusters.evict(&stage.name, &pod).await;
    assert!(matches!(two, Err(ClusterError::EvictionForbidden { .. })), "two budgets on one pod: {two:?}");
    let _ = kubectl(&stage.plane, &["delete", "pdb", "second"]);

    let _ = kubectl(&stage.plane, &["patch", "pdb", "web", "--type=merge", "-p", r#"{"spec":{"minAvailable":1}}"#]);
    let _ = kubectl(&stage.plane, &["wait", "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=60s"]);
    stage.clusters.evict(&stage.name, &pod).await.expect("the budget allows it");
    let _ = kubectl(&stage.plane, &["wait", &format!("pod/{}", pod.name), "--for=delete", "--timeout=60s"]);
    stage.clusters.evict(&stage.name, &pod).await.expect("deleting what does not exist is a success");
}

async fn a_pod_is_deleted_only_if_its_uid_matches(stage: &Stage) {
    let _ = kubectl(&stage.plane, &["rollout", "status", "deployment/web", "--timeout=60s"]);
    let objects = stage.clusters.read(&stage.name, Scope::Drain, Some("n1")).await.expect("the API server answers");
    let metadata = &objects.pods.iter().find(|pod| !pod.metadata.is_deleting()).expect("the deployment runs").metadata;
    let pod = PodKey { namespace: metadata.namespace.clone(), name: metadata.name.clone(), uid: metadata.uid.clone() };
    let other = PodKey { uid: "another".to_owned(), ..pod.clone() };
    // The API server charges an eviction to the budget before it checks the uid, so the budget is removed first.
    let _ = kubectl(&stage.plane, &["delete", "pdb", "web"]);
    stage.clusters.evict(&stage.name, &other).await.expect("no pod has this uid");
    stage.clusters.delete_pod(&stage.name, &other, 1).await.expect("no pod has this uid");
    assert_eq!(kubectl(&stage.plane, &["get", "pod", &pod.name, "-o", "jsonpath={.metadata.deletionTimestamp}"]), "");
    stage.clusters.delete_pod(&stage.name, &pod, 1).await.expect("a pod can be deleted");
    let _ = kubectl(&stage.plane, &["wait", &format!("pod/{}", pod.name), "--for=delete", "--timeout=60s"]);
    stage.clusters.delete_pod(&stage.name, &pod, 1).await.expect("deleting what does not exist is a success");
}

async fn status_and_events_are_written(stage: &Stage) {
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let mut pool = objects.node_pools.iter().find(|pool| pool.metadata.name == "default").expect("it was applied").clone();
    let now = FixedClock::new().now;
    let ready = whittle_api::ConditionStatus::True;
    whittle_api::conditions::set(&mut pool.status.conditions, whittle_api::conditions::READY, ready, "Ready", "", now);
    stage.clusters.write_node_pool_status(&stage.name, &pool).await.expect("a status can be written");
    let status = |kind| kubectl(&stage.plane, &["get", kind, "default", "-o", "jsonpath={.status.conditions[0].type}"]);
    assert_eq!(status("nodepool"), "Ready");
    let old = objects.node_pools.iter().find(|pool| pool.metadata.name == "old").expect("the Provisioner is still there");
    stage.clusters.write_node_pool_status(&stage.name, old).await.expect("a converted pool gets no status");

    let mut class = objects.node_classes.iter().find(|class| class.metadata.name == "default").expect("it was applied").clone();
    class.metadata.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), "123".to_owned());
    class.metadata.finalizers = vec![labels::NODE_CLASS_FINALIZER.to_owned()];
    whittle_api::conditions::set(&mut class.status.conditions, whittle_api::conditions::READY, ready, "Ready", "", now);
    stage.clusters.write_node_class_status(&stage.name, &class).await.expect("a status can be written");
    assert_eq!(status("ec2nodeclass"), "Ready");
    let hash = kubectl(
        &stage.plane,
        &[
            "get",
            "ec2nodeclass",
            "default",
            "-o",
            r"jsonpath={.metadata.annotations.karpenter\.k8s\.aws/ec2nodeclass-hash} {.metadata.finalizers[0]}",
        ],
    );
    assert_eq!(hash, "123 karpenter.k8s.aws/termination");

    let event = ClusterEvent {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: "n1".to_owned(),
        uid: "n1".to_owned(),
        warning: true,
        reason: "FailedDraining".to_owned(),
        message: "a budget forbids it".to_owned(),
    };
    stage.clusters.publish(&stage.name, &event).await.expect("an event can be published");
    stage.clusters.publish(&stage.name, &event).await.expect("again, from the same environment");
    clusters(&stage.plane).publish(&stage.name, &event).await.expect("again, from another environment");
    let events = kubectl(
        &stage.plane,
        &["get", "events", "--field-selector=reason=FailedDraining", "-o", "jsonpath={.items[*].type} {.items[*].message}"],
    );
    assert_eq!(events, "Warning a budget forbids it", "the three are one event");

    for (kind, name) in [("nodeclaim", "owner"), ("node", "n1")] {
        let claim = claim_of(stage, name, OwnerReference::default());
        let about = if kind == "node" { Involved::node(name) } else { Involved::claim(&claim) };
        let event = ClusterEvent::normal(about, "Seen", format!("seen by {kind}"));
        stage.clusters.publish(&stage.name, &event).await.expect("an event can be published");
        let described = kubectl(&stage.plane, &["describe", kind, name]);
        assert!(described.contains(&format!("seen by {kind}")), "{described}");
    }
}

async fn all_pages_of_a_list_are_read(stage: &Stage) {
    // A page holds 1,000.
    let claims: String = (0..1_050).map(|number| format!("{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c{number:04}, namespace: default}}, spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}\n---\n")).collect();
    apply(&stage.plane, &claims);
    let objects = stage.clusters.read(&stage.name, Scope::All, None).await.expect("the API server answers");
    let names: std::collections::BTreeSet<&str> = objects.volume_claims.iter().map(|claim| claim.metadata.name.as_str()).collect();
    assert_eq!((objects.volume_claims.len(), names.len()), (1_050, 1_050));
}

async fn the_error_of_a_rejected_token_names_the_remedy(stage: &Stage) {
    let refused = clusters_as(&stage.plane, "wrong").read(&stage.name, Scope::Nodes, None).await.expect_err("the token is invalid");
    assert!(refused.to_string().contains("access entry"), "{refused}");
}
