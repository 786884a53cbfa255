//! The cluster ports on a real API server with a real scheduler and controllers: each suite of `contracts` with the token of each
//! function that has the port, and what is the adapter's alone.

use crate::cluster_place::Place;
use crate::cluster_rights::{no_function_does_what_it_has_no_port_for, no_function_has_rights_that_no_port_needs};
use crate::encodings::json_and_protobuf_are_read_alike;
use crate::functions_in_a_cluster::{clusters_of, holders, plane};
use crate::kept::{a_kept_look_is_what_a_whole_list_says, a_quiet_look_is_old_only_in_what_it_may_be};
use whittle_api::labels;
use whittle_claims::{Function, mirror};
use whittle_cluster::Clusters;
use whittle_ports::{ClusterEvent, ClusterReader, Involved, Mirrors, Scope, StatusWriter, contracts};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{TestAccess, apply, await_crds, clusters, clusters_as, install_crds, kubectl};
use whittle_units::ClusterName;

pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) clusters: Clusters<TestAccess>,
    pub(crate) name: ClusterName,
}

/// One control plane for all checks, because it takes seconds to start and half a gigabyte of memory.
#[tokio::test]
async fn the_cluster_adapter_works_on_a_real_control_plane() {
    let Some(plane) = plane() else { return };
    let stage = Stage { clusters: clusters(&plane), name: ClusterName::new("test"), plane };
    a_cluster_without_our_crds_is_read_and_gets_no_mirrors(&stage).await;
    objects_of_old_kinds_are_converted(&stage).await;
    install_crds(&stage.plane);
    apply(&stage.plane, contracts::POOL_AND_CLASS);
    every_function_keeps_the_contracts_of_its_ports(&stage).await;
    no_function_does_what_it_has_no_port_for(&stage).await;
    no_function_has_rights_that_no_port_needs(&stage).await;
    an_object_of_an_old_kind_gets_no_status(&stage).await;
    json_and_protobuf_are_read_alike(&stage).await;
    a_kept_look_is_what_a_whole_list_says(&stage).await;
    a_quiet_look_is_old_only_in_what_it_may_be(&stage).await;
    an_event_is_published_once_and_found_by_kubectl(&stage).await;
    all_pages_of_a_list_are_read(&stage).await;
    the_error_of_a_rejected_token_names_the_remedy(&stage).await;
}

/// The suites that the simulated cluster keeps too, with the rights of the functions.
async fn every_function_keeps_the_contracts_of_its_ports(stage: &Stage) {
    let place = Place::new(&stage.plane, stage.name.clone()).await;
    let of = |function: Function| (clusters_of(&stage.plane, function), function.name());
    for (reader, tag) in holders("ClusterReader").into_iter().map(of) {
        contracts::cluster_reader(&place, &reader, tag).await;
    }
    for (reader, tag) in holders("WorkloadReader").into_iter().map(of) {
        contracts::workload_reader(&place, &reader, tag).await;
    }
    for (cluster, tag) in holders("Mirrors").into_iter().map(of) {
        contracts::mirrors(&place, &cluster, tag).await;
    }
    for (cluster, tag) in holders("Nodes").into_iter().map(of) {
        contracts::nodes(&place, &cluster, tag).await;
    }
    for (cluster, tag) in holders("Evictions").into_iter().map(of) {
        contracts::evictions(&place, &cluster, tag).await;
    }
    for (cluster, tag) in holders("StatusWriter").into_iter().map(of) {
        contracts::events(&place, &cluster, tag).await;
        contracts::pool_status(&place, &cluster, tag).await;
    }
    contracts::class_status(&place, &clusters_of(&stage.plane, Function::Refresh)).await;
    contracts::plan_status(&place, &clusters_of(&stage.plane, Function::Schedule), "schedule").await;
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
    await_crds(&stage.plane);
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

async fn an_object_of_an_old_kind_gets_no_status(stage: &Stage) {
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let old = objects.node_pools.iter().find(|pool| pool.metadata.name == "old").expect("the Provisioner is still there");
    stage.clusters.write_node_pool_status(&stage.name, old).await.expect("a converted pool gets no status");
    assert_eq!(kubectl(&stage.plane, &["get", "nodepools", "-o", "jsonpath={.items[*].metadata.name}"]), "default");
}

async fn an_event_is_published_once_and_found_by_kubectl(stage: &Stage) {
    apply(&stage.plane, "{apiVersion: v1, kind: Node, metadata: {name: n1}}");
    let mut claim = contracts::planned_claim(&stage.name, "owner", FixedClock::new().now);
    claim.spec.node_class.kind = "EC2NodeClass".to_owned();
    claim.spec.node_class.group = "karpenter.k8s.aws".to_owned();
    claim.spec.node_class.name = "default".to_owned();
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror can be created");
    let drains = ClusterEvent { warning: true, ..ClusterEvent::normal(Involved::node("n1"), "FailedDraining", "a budget forbids it") };
    stage.clusters.publish(&stage.name, &drains).await.expect("an event can be published");
    clusters(&stage.plane).publish(&stage.name, &drains).await.expect("again, from another environment");
    let events = kubectl(
        &stage.plane,
        &["get", "events", "--field-selector=reason=FailedDraining", "-o", "jsonpath={.items[*].type} {.items[*].message}"],
    );
    assert_eq!(events, "Warning a budget forbids it", "both are one event");
    for (kind, name, about) in [("nodeclaim", "owner", Involved::claim(&claim)), ("node", "n1", Involved::node("n1"))] {
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
