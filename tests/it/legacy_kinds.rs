//! The kinds from before v1 on a real API server that has nothing but our CRDs, and CRDs that were there before ours (ADR 0040).

use crate::real_admission::root;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Output, Stdio};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{self, Object};
use whittle_api::meta::ObjectMeta;
use whittle_api::{ClusterObjects, labels};
use whittle_ports::{ClusterReader, Scope, StatusWriter};
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{TestAccess, apply, clusters, kubectl};
use whittle_units::ClusterName;

/// Seeds with legacy kinds, all valid.
pub(crate) const SEEDS: [&str; 16] = [
    "000-provisioner-windows2019",
    "000-provisioner-windows2022",
    "001-awsnodetemplate-ami",
    "001-awsnodetemplate-fields",
    "001-provisioner-banana",
    "001-provisioner-default",
    "001-provisioner-p3",
    "002-provisioner-default",
    "003-ec2nodeclass-selector-terms",
    "003-ec2nodeclass-v1beta1",
    "003-nodepool-v1beta1",
    "003-nodepool-v1beta1-defaults",
    "003-state-alpha",
    "003-state-alpha-legacy-taint",
    "004-provisioner-default",
    "004-provisioner-requirements",
];

/// What `infra/README.md` tells users to run.
const INSTALL: [&str; 4] = ["apply", "--server-side", "--field-manager=whittle", "-f"];

fn install(plane: &ControlPlane) -> Output {
    let documented = format!("kubectl {} infra/crds", INSTALL.join(" "));
    assert!(include_str!("../../infra/README.md").contains(&documented), "infra/README.md has {documented}");
    plane.kubectl().args(INSTALL).arg(root().join("infra/crds")).output().expect("kubectl runs")
}

fn wait(plane: &ControlPlane) {
    let _ = kubectl(plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
}

struct Stage {
    plane: ControlPlane,
    clusters: whittle_cluster::Clusters<TestAccess>,
    name: ClusterName,
}

impl Stage {
    /// A fresh API server with our CRDs.
    fn new() -> Option<Self> {
        let plane = ControlPlane::with_parts("")?;
        let installed = install(&plane);
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        wait(&plane);
        Some(Self { clusters: clusters(&plane), name: ClusterName::new("test"), plane })
    }

    async fn read(&self) -> ClusterObjects {
        self.clusters.read(&self.name, Scope::Nodes, None).await.expect("the API server answers")
    }

    fn delete_all(&self) {
        let _ = kubectl(&self.plane, &["delete", "provisioners,awsnodetemplates,nodepools,ec2nodeclasses,nodeclaims", "--all"]);
    }
}

/// The objects of a manifest as the functions see them.
fn expected(text: &str) -> ClusterObjects {
    let objects = manifest::read("seed", text).expect("the seed is valid").into_iter().map(|located| located.value).collect();
    let converted = legacy::convert(objects, &ConvertOptions::new(Purpose::OnRead));
    assert_eq!(converted.errors, [], "every seed can be converted");
    let mut set = ClusterObjects::default();
    assert!(converted.objects.into_iter().all(|object| set.insert(object).is_none()));
    set
}

/// Kind, origin and name of an object, and what of it is not the server's.
fn shown(kind: &str, metadata: &ObjectMeta, spec: serde_json::Result<serde_json::Value>) -> (String, String) {
    let mut annotations = metadata.annotations.clone();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    let origin = metadata.annotation(labels::CONVERTED_FROM).unwrap_or(kind);
    let value = serde_json::json!({"labels": metadata.labels, "annotations": annotations, "spec": spec.expect("plain data")});
    (format!("{kind} {} from {origin}", metadata.name), value.to_string())
}

fn all(objects: &ClusterObjects) -> BTreeMap<String, String> {
    let pools = objects.node_pools.iter().map(|pool| shown("NodePool", &pool.metadata, serde_json::to_value(&pool.spec)));
    let classes = objects.node_classes.iter().map(|class| shown("EC2NodeClass", &class.metadata, serde_json::to_value(&class.spec)));
    let claims = objects.node_claims.iter().map(|claim| shown("NodeClaim", &claim.metadata, serde_json::to_value(&claim.spec)));
    pools.chain(classes).chain(claims).collect()
}

const CLAIM: &str = "
apiVersion: karpenter.sh/v1beta1
kind: NodeClaim
metadata: {name: standalone}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m7g.large]}]
  nodeClassRef: {name: default}
  kubelet: {maxPods: 20}
  resources: {requests: {cpu: 1500m}}
";

const UBUNTU: &str = "
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: ubuntu}
spec:
  amiFamily: Ubuntu
  instanceProfile: nodes
  amiSelectorTerms: [{id: ami-0123456789abcdef0}]
  subnetSelectorTerms: [{id: subnet-0123456789abcdef0}]
  securityGroupSelectorTerms: [{name: nodes}]
";

#[tokio::test]
async fn legacy_manifests_are_applied_to_a_fresh_server_and_read_back() {
    let Some(stage) = Stage::new() else { return };
    let seeds = SEEDS.map(|name| std::fs::read_to_string(root().join(format!("tests/seeds/{name}.yaml"))).expect("the seed is there"));
    let mut texts = seeds.to_vec();
    texts.extend([CLAIM.to_owned(), UBUNTU.to_owned()]);
    // A pool of v1beta1 and its class together: the kubelet settings of the one belong into the other.
    texts.push(format!("{}\n---\n{}", seeds[9], seeds[10]));
    for text in texts {
        apply(&stage.plane, &text);
        let read = stage.read().await;
        assert_eq!((&read.unreadable[..], &read.absent_kinds[..]), (&[][..], &[][..]), "{text}");
        assert_eq!(all(&read), all(&expected(&text)), "{text}");
        // Applied again over what the server has made of it.
        apply(&stage.plane, &text);
        assert_eq!(all(&stage.read().await), all(&expected(&text)), "applied again: {text}");
        stage.delete_all();
    }
}

/// Applies a manifest; returns the API server's error.
fn try_apply(stage: &Stage, text: &str) -> Result<(), String> {
    let mut child = stage.plane.kubectl();
    child.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("kubectl runs");
    child.stdin.take().expect("its input is a pipe").write_all(text.as_bytes()).expect("kubectl reads");
    let output = child.wait_with_output().expect("kubectl ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

const BETA: &str = "
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: default}
spec:
  template: {spec: {requirements: [], kubelet: {maxPods: 20}, nodeClassRef: {name: default}}}
---
apiVersion: karpenter.k8s.aws/v1beta1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiFamily: AL2023
  role: nodes
  subnetSelectorTerms: [{id: subnet-0123456789abcdef0}]
  securityGroupSelectorTerms: [{name: nodes}]
";

#[tokio::test]
async fn an_object_of_v1beta1_gets_its_status_and_becomes_v1_when_it_is_applied_so() {
    let Some(stage) = Stage::new() else { return };
    apply(&stage.plane, BETA);
    let objects = stage.read().await;
    let (mut pool, mut class): (NodePool, Ec2NodeClass) = (objects.node_pools[0].clone(), objects.node_classes[0].clone());
    pool.status.nodes = 3;
    stage.clusters.write_node_pool_status(&stage.name, &pool).await.expect("the status of a pool of v1beta1 can be written");
    class.status.instance_profile = Some("nodes-profile".to_owned());
    class.metadata.finalizers.push(labels::NODE_CLASS_FINALIZER.to_owned());
    stage.clusters.write_node_class_status(&stage.name, &class).await.expect("finalizer and status of a class can be written");
    assert_eq!(kubectl(&stage.plane, &["get", "nodepool", "default", "-o", "jsonpath={.status.nodes}"]), "3");
    let path = "jsonpath={.status.instanceProfile} {.metadata.finalizers[0]}";
    assert_eq!(kubectl(&stage.plane, &["get", "ec2nodeclass", "default", "-o", path]), "nodes-profile karpenter.k8s.aws/termination");
    assert_eq!(all(&stage.read().await).len(), 2, "both are still read");

    // What `whittle convert` prints takes the place of the old objects, which only then are those of v1.
    let objects = manifest::read("beta", BETA).expect("valid").into_iter().map(|located| located.value).collect();
    let converted = legacy::convert(objects, &ConvertOptions::new(Purpose::Output)).objects;
    let text: Vec<String> = converted.iter().filter_map(Object::to_json).map(|value| value.to_string()).collect();
    apply(&stage.plane, &text.join("\n---\n"));
    let read = stage.read().await;
    let pool = &read.node_pools[0];
    assert_eq!(pool.spec.template.spec.node_class_ref.group, "karpenter.k8s.aws");
    assert_eq!((pool.status.nodes, read.node_classes[0].spec.ami_selector_terms.len()), (3, 1));
    let kept = "jsonpath={.spec.template.spec.kubelet}{.spec.template.spec.nodeClassRef.apiVersion}";
    assert_eq!(kubectl(&stage.plane, &["get", "nodepool", "default", "-o", kept]), "", "no field of v1beta1 is left");
}

#[test]
fn each_version_refuses_the_fields_of_the_other() {
    let Some(stage) = Stage::new() else { return };
    let pool = |version: &str, reference: &str, spec: &str, disruption: &str| {
        format!(
            "{{apiVersion: karpenter.sh/{version}, kind: NodePool, metadata: {{name: default}}, spec: {{disruption: {{{disruption}}}, \
             template: {{spec: {{requirements: [], nodeClassRef: {{{reference}}}{spec}}}}}}}}}"
        )
    };
    let v1 = "group: karpenter.k8s.aws, kind: EC2NodeClass, name: default";
    for (text, named) in [
        (pool("v1", v1, ", kubelet: {maxPods: 20}", "consolidateAfter: 0s"), "kubelet is a field of karpenter.sh/v1beta1"),
        (pool("v1", v1, "", "consolidateAfter: 0s, expireAfter: 24h"), "expireAfter is a field of karpenter.sh/v1beta1"),
        (pool("v1", "name: default", "", "consolidateAfter: 0s"), "spec.template.spec.nodeClassRef.group: Required value"),
        (pool("v1beta1", v1, "", ""), "group is a field of karpenter.sh/v1,"),
        (pool("v1beta1", "name: default", ", expireAfter: 24h", ""), "expireAfter is a field of karpenter.sh/v1,"),
        (pool("v1beta1", "name: default", "", "consolidationPolicy: WhenEmpty"), "WhenEmpty needs consolidateAfter"),
        (pool("v1beta1", "name: default", ", expireAftr: 24h", ""), "unknown field \"spec.template.spec.expireAftr\""),
    ] {
        let error = try_apply(&stage, &text).expect_err(&text);
        assert!(error.contains(named), "{text}: {error}");
    }
}

/// A definition as another autoscaler's installation has it: v1 only, without rules.
const FOREIGN: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAME.karpenter.sh}
spec:
  group: karpenter.sh
  scope: Cluster
  names: {kind: KIND, plural: NAME, singular: SINGULAR}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

#[test]
fn definitions_that_are_there_are_never_overwritten() {
    let Some(plane) = ControlPlane::with_parts("") else { return };
    let foreign = |kind: &str| {
        let singular = kind.to_lowercase();
        FOREIGN.replace("NAME", &format!("{singular}s")).replace("KIND", kind).replace("SINGULAR", &singular)
    };
    // Applied by kubectl, and created as Helm does.
    apply(&plane, &foreign("NodePool"));
    let file = plane.kubeconfig().with_file_name("foreign.yaml");
    std::fs::write(&file, foreign("NodeClaim")).expect("the cluster's folder can be written");
    let _ = kubectl(&plane, &["create", "-f", &file.to_string_lossy()]);
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.generation} {.spec.versions[*].name}{\"\\n\"}{end}";
    let definitions = || kubectl(&plane, &["get", "crd", "-o", path]);
    for _ in 0..2 {
        let installed = install(&plane);
        let error = String::from_utf8_lossy(&installed.stderr);
        assert!(!installed.status.success() && error.contains("conflict"), "{error}");
        let expected = "\
            awsnodetemplates.karpenter.k8s.aws 1 v1alpha1\n\
            capacitybuffers.autoscaling.x-k8s.io 1 v1beta1\n\
            ec2nodeclasses.karpenter.k8s.aws 1 v1 v1beta1\n\
            nodeclaims.karpenter.sh 1 v1\n\
            nodeoverlays.karpenter.sh 1 v1alpha1\n\
            nodepools.karpenter.sh 1 v1\n\
            provisioners.karpenter.sh 1 v1alpha5";
        assert_eq!(definitions(), expected, "those that were missing are there, and no other has changed");
    }
}
