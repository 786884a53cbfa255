//! The manifests of `infra`, applied to a real API server, and the rights that `infra/cluster` grants to the functions' groups.

use std::path::Path;
use whittle_tests::control_plane::ControlPlane;

/// Asks the API server's authorizer, which also answers for kinds that are not installed.
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
fn the_cluster_manifests_grant_each_group_only_its_own_permissions() {
    let Some(cluster) = ControlPlane::with_parts("") else { return };
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/cluster");
    let applied = cluster.kubectl().args(["apply", "-f"]).arg(&manifests).output().expect("kubectl runs");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for (group, verb, api_group, resource, expected) in [
        ("whittle:read", "list", "", "pods", true),
        ("whittle:read", "watch", "karpenter.sh", "nodeclaims", true),
        ("whittle:read", "watch", "karpenter.sh", "nodepools", false),
        ("whittle:read", "watch", "storage.k8s.io", "volumeattachments", true),
        ("whittle:read", "watch", "storage.k8s.io", "storageclasses", false),
        ("whittle:nodes", "update", "", "nodes", false),
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
fn an_api_server_serves_the_crds() {
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

/// The spec of an EC2NodeClass.
const SPEC: &str = r#"{"role":"nodes","amiSelectorTerms":[{"alias":"al2023@latest"}],"subnetSelectorTerms":[{"tags":{"a":"b"}}],
    "securityGroupSelectorTerms":[{"tags":{"a":"b"}}]}"#;

/// Patches an EC2NodeClass as a member of these groups, as a dry run; returns the API server's error.
fn try_patch(cluster: &ControlPlane, name: &str, groups: &[&str], patch: &str) -> Result<(), String> {
    let mut command = cluster.kubectl();
    command.args(["patch", "ec2nodeclass", name, "--type=merge", "--dry-run=server", "-p", patch]);
    if !groups.is_empty() {
        command.args(["--as=function", "--as-group=system:authenticated"]);
        command.args(groups.iter().map(|group| format!("--as-group={group}")));
    }
    let output = command.output().expect("kubectl runs");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Attempts, each a process, within which an API server enforces a new admission policy.
const ATTEMPTS_MAX: usize = 300;

#[test]
fn refresh_never_writes_the_spec_of_a_node_class() {
    let Some(cluster) = ControlPlane::with_parts("") else { return };
    let infra = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra");
    let apply = |path: &Path| {
        let output = cluster.kubectl().args(["apply", "-f"]).arg(path).output().expect("kubectl runs");
        assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    };
    apply(&infra.join("crds"));
    let waited = cluster.kubectl().args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).output();
    assert!(waited.expect("kubectl runs").status.success());
    apply(&infra.join("cluster"));
    let file = cluster.kubeconfig().with_file_name("class.yaml");
    let class = "apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass";
    for text in [format!("{{{class}, metadata: {{name: default}}, spec: {SPEC}}}"), format!("{{{class}, metadata: {{name: bare}}}}")] {
        std::fs::write(&file, text).expect("the cluster's folder can be written");
        apply(&file);
    }

    let by_refresh = ["whittle:read", "whittle:refresh"];
    let (role, finalizer) = (r#"{"spec":{"role":"admin"}}"#, r#"{"metadata":{"finalizers":["karpenter.k8s.aws/termination"]}}"#);
    let refused = (0..ATTEMPTS_MAX).find_map(|_| try_patch(&cluster, "default", &by_refresh, role).err());
    let refused = refused.expect("the policy is in force by now");
    assert!(refused.contains("Whittle does not write the spec of an EC2NodeClass"), "{refused}");
    assert_eq!(try_patch(&cluster, "default", &by_refresh, finalizer), Ok(()), "it may change the finalizer");
    assert_eq!(try_patch(&cluster, "bare", &by_refresh, finalizer), Ok(()), "also of one that has no spec");
    let whole = format!(r#"{{"spec":{SPEC}}}"#);
    let given = try_patch(&cluster, "bare", &by_refresh, &whole).expect_err("a spec is not given to one that has none");
    assert!(given.contains("Whittle does not write the spec of an EC2NodeClass"), "{given}");
    let taken = try_patch(&cluster, "default", &by_refresh, r#"{"spec":null}"#).expect_err("nor taken from one that has it");
    assert!(taken.contains("Whittle does not write the spec of an EC2NodeClass"), "{taken}");
    assert_eq!(try_patch(&cluster, "default", &[], role), Ok(()), "users may change the spec");
}
