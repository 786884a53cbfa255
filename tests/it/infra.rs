//! What `infra` applies to a cluster: accepted by a real API server, and what `infra/cluster` gives to the functions' groups, as a real API server understands it.

use std::path::Path;
use whittle_tests::control_plane::ControlPlane;

/// Asks the API server's authorizer; kinds that are not installed can be asked for too.
fn may(cluster: &ControlPlane, group: &str, verb: &str, api_group: &str, resource: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = format!(
        "{{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {{user: function, groups: ['{group}'], \
         resourceAttributes: {{verb: {verb}, group: '{api_group}', resource: {resource}, subresource: '{subresource}'}}}}}}"
    );
    let file = cluster.kubeconfig().with_file_name("review.yaml");
    std::fs::write(&file, review).expect("the cluster's folder can be written");
    let answer = cluster.kubectl().args(["create", "-o", "jsonpath={.status.allowed}", "-f"]).arg(&file).output().expect("kubectl runs");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    answer.stdout == b"true"
}

#[test]
fn the_cluster_manifests_apply_and_give_each_group_its_rights_alone() {
    let Some(cluster) = ControlPlane::with_parts("") else { return };
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/cluster");
    let applied = cluster.kubectl().args(["apply", "-f"]).arg(&manifests).output().expect("kubectl runs");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for (group, verb, api_group, resource, expected) in [
        ("whittle:read", "list", "", "pods", true),
        ("whittle:read", "watch", "karpenter.sh", "nodepools", true),
        ("whittle:read", "create", "", "events", true),
        ("whittle:read", "patch", "", "nodes", false),
        ("whittle:read", "get", "", "secrets", false),
        ("whittle:read", "list", "", "services", true),
        ("whittle:read", "get", "", "podtemplates", true),
        ("whittle:read", "list", "apps", "replicasets", true),
        ("whittle:plan", "create", "karpenter.sh", "nodeclaims", true),
        ("whittle:plan", "patch", "karpenter.sh", "nodeoverlays/status", true),
        ("whittle:plan", "patch", "autoscaling.x-k8s.io", "capacitybuffers/status", true),
        ("whittle:plan", "patch", "autoscaling.x-k8s.io", "capacitybuffers", false),
        ("whittle:nodes", "patch", "autoscaling.x-k8s.io", "capacitybuffers/status", false),
        ("whittle:plan", "patch", "", "nodes", false),
        ("whittle:plan", "create", "", "pods/eviction", false),
        ("whittle:nodes", "patch", "", "nodes", true),
        ("whittle:nodes", "create", "", "pods/eviction", false),
        ("whittle:nodes", "delete", "", "pods", false),
        ("whittle:terminate", "create", "", "pods/eviction", true),
        ("whittle:terminate", "delete", "", "pods", true),
        ("whittle:terminate", "patch", "karpenter.k8s.aws", "ec2nodeclasses/status", false),
        ("whittle:refresh", "patch", "karpenter.k8s.aws", "ec2nodeclasses/status", true),
        ("whittle:refresh", "delete", "", "nodes", false),
        ("whittle:refresh", "create", "karpenter.sh", "nodepools", false),
    ] {
        assert_eq!(may(&cluster, group, verb, api_group, resource), expected, "{group} {verb} {resource}");
    }
}

#[test]
fn an_api_server_serves_the_definitions() {
    let Some(cluster) = ControlPlane::with_parts("") else { return };
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/crds");
    let run = |arguments: &[&str]| {
        let output = cluster.kubectl().args(arguments).output().expect("kubectl runs");
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&["apply", "-f", &definitions.to_string_lossy()]);
    run(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    let pool = r#"{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, spec: {template: {spec: {
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}}"#;
    let file = cluster.kubeconfig().with_file_name("pool.yaml");
    std::fs::write(&file, pool).expect("the cluster's folder can be written");
    run(&["apply", "-f", &file.to_string_lossy()]);
    let shown = run(&["get", "nodepools"]);
    assert!(shown.contains("default"), "{shown}");
}
