//! Objects that a real API server accepts and our types cannot parse: a sweep terminates nothing because of them.

use crate::functions_in_a_cluster::{clusters_of, plane};
use std::sync::Arc;
use whittle_api::karpenter::NodePool;
use whittle_api::{OwnerReference, labels};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Event, Function, mirror, step};
use whittle_cluster::Clusters;
use whittle_ec2::instance::Instance;
use whittle_ports::{Adapters, ClaimStore, ClusterReader, Leases, Mirrors, ObjectKind, Presence, Report, Scope, Settings, contracts};
use whittle_testkit::{NoFunctions, TestWorld, instance_of, node_class_reference};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{CRDS, TestAccess, apply, clusters, install_crds, kubectl};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

const CLASS: &str = "{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: node-role, \
    amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {karpenter.sh/discovery: test}}], \
    securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]}}";

fn pool(name: &str, life: &str, policy: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{disruption: {{consolidationPolicy: {policy}, \
         consolidateAfter: 30s}}, template: {{spec: {{expireAfter: {life}, requirements: [], nodeClassRef: \
         {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}}}}}"
    )
}

/// A NodeClaim managed by another controller.
const FOREIGN: &str = "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: theirs, finalizers: [karpenter.sh/termination]}, \
    spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}";

/// A real API server with a simulated table and region.
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) clusters: Clusters<TestAccess>,
    pub(crate) simulation: TestWorld,
    pub(crate) name: ClusterName,
}

impl Stage {
    fn start() -> Option<Self> {
        Self::start_at(FixedClock::new().now)
    }

    /// The same with our CRDs, a NodePool and a node class, at this time.
    pub(crate) fn with_crds_at(now: Timestamp) -> Option<Self> {
        let stage = Self::start_at(now)?;
        install_crds(&stage.plane);
        apply(&stage.plane, CLASS);
        apply(&stage.plane, &pool("default", "720h", "WhenEmpty"));
        Some(stage)
    }

    fn start_at(start: Timestamp) -> Option<Self> {
        let plane = plane()?;
        let name = ClusterName::new("test");
        let simulation = TestWorld::with_functions(name.as_str(), start, Arc::new(NoFunctions));
        Some(Self { clusters: clusters(&plane), plane, simulation, name })
    }

    /// A running machine with our tags.
    fn start_machine(&self, id: &str) {
        self.run_machine(id, FixedClock::new().now - SignedDuration::from_hours(1), &[]);
    }

    /// A machine that was launched at this time, with additional tags.
    pub(crate) fn run_machine(&self, id: &str, launched_at: Timestamp, more_tags: &[(&str, &str)]) {
        let machine = contracts::machine_launched_at(&InstanceId::new(id), launched_at);
        let tags = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, "test")];
        let tags = tags.iter().chain(more_tags);
        let tags = tags.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.simulation.start_machine(Instance { tags, ..instance_of(&machine) });
    }

    /// An initialized claim of a pool with its machine and its NodeClaim.
    async fn create_claim(&self, name: &str, owner: OwnerReference) -> ClaimKey {
        let now = FixedClock::new().now;
        let id = format!("i-0{name}");
        self.start_machine(&id);
        let spec = ClaimSpec { node_pool: owner.name.clone(), owner, node_class: node_class_reference("default"), ..ClaimSpec::default() };
        let planned = Claim { spec, ..contracts::planned_claim(&self.name, name, now) };
        let machine = contracts::machine_launched_at(&InstanceId::new(id), now);
        let claim = step(&planned, &Event::FleetAnswered(machine), now).expect("planned claims are launched");
        let ports = self.simulation.ports();
        let lease = ports.acquire(&self.name, "test", now, SignedDuration::from_secs(5)).await.expect("the lease is free");
        ports.create(&lease, &claim).await.expect("it is new");
        ports.release(&lease).await.expect("it is held");
        self.clusters.apply_mirror(&self.name, &mirror(&claim)).await.expect("the API server takes mirrors");
        claim.key
    }

    pub(crate) async fn sweep(&self) -> Report {
        let ports = self.simulation.ports();
        let sweep = clusters_of(&self.plane, Function::Sweep);
        let adapters = Adapters { store: &ports, cloud: &ports, cluster: &sweep, queues: &ports, clock: &ports };
        whittle_sweep::handle(adapters, &Settings::default(), &self.name).await.expect("a sweep")
    }

    /// Forty minutes of sweeps; returns the claims at the end, and those being deleted.
    async fn sweeps(&mut self) -> (Vec<String>, Vec<String>) {
        for _ in 0..10 {
            self.sweep().await;
            self.simulation.run_for(SignedDuration::from_mins(4));
        }
        let claims = self.simulation.ports().list(&self.name).await.expect("the table answers");
        let name = |claim: &Claim| claim.key.name.as_str().to_owned();
        let ending = claims.iter().filter(|claim| claim.value.deletion.is_some()).map(|claim| name(&claim.value)).collect();
        (claims.iter().map(|claim| name(&claim.value)).collect(), ending)
    }

    pub(crate) async fn owner(&self, name: &str) -> OwnerReference {
        let objects = self.clusters.read(&self.name, Scope::Nodes, None).await.expect("the API server answers");
        let pool: &NodePool = objects.node_pools.iter().find(|pool| pool.metadata.name == name).expect("it can be read");
        OwnerReference {
            api_version: "karpenter.sh/v1".into(),
            kind: "NodePool".into(),
            name: name.into(),
            uid: pool.metadata.uid.clone(),
            controller: None,
            block_owner_deletion: Some(true),
        }
    }
}

#[tokio::test]
async fn objects_that_cannot_be_parsed_never_cause_a_termination() {
    let Some(mut stage) = Stage::start() else { return };
    install_crds(&stage.plane);
    apply(&stage.plane, CLASS);
    for name in ["default", "other"] {
        apply(&stage.plane, &pool(name, "720h", "WhenEmpty"));
    }
    let (default, other) = (stage.owner("default").await, stage.owner("other").await);
    stage.create_claim("long", default).await;
    let to_delete = stage.create_claim("odd", other).await;
    an_expire_after_of_any_length_is_parsed(&stage).await;
    create_unreadable_objects(&stage).await;
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    let mut unreadable: Vec<(&str, &str)> =
        objects.unreadable.iter().map(|unreadable| (unreadable.kind.as_str(), unreadable.field.as_str())).collect();
    unreadable.sort_unstable();
    assert_eq!(unreadable, [("NodeClaim", "status.capacity.cpu"), ("NodePool", "spec.disruption.consolidationPolicy")]);
    let (claims, ending) = stage.sweeps().await;
    assert_eq!((claims.len(), ending), (2, vec![]), "no claim is deleted, and no machine is an orphan");
    let output = kubectl(
        &stage.plane,
        &["get", "events", "-A", "-o", "jsonpath={range .items[*]}{.reason} {.involvedObject.name} {.message}{'\\n'}{end}"],
    );
    let of_pool = output.lines().find(|line| line.starts_with("Unreadable other ")).unwrap_or_else(|| panic!("{output}"));
    assert!(of_pool.contains("spec.disruption.consolidationPolicy: unknown variant `WhenItSuits`"), "{of_pool}");
    assert!(output.contains("Unreadable theirs "), "{output}");
    a_pool_that_cannot_be_read_is_deleted_with_its_claims(&stage, &to_delete).await;
    a_missing_object_is_distinguished_from_a_missing_kind(&stage).await;
}

async fn an_expire_after_of_any_length_is_parsed(stage: &Stage) {
    apply(&stage.plane, &pool("default", "99999999999h", "WhenEmpty"));
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    assert!(objects.unreadable.is_empty(), "{:?}", objects.unreadable);
    let life = objects.node_pools.iter().map(|pool| pool.spec.template.spec.expire_after.to_string());
    assert!(life.into_iter().any(|life| life == "99999999999h"), "its text is preserved");
}

/// A NodePool with an enum value of a newer CRD, and a NodeClaim whose status no release of ours wrote.
async fn create_unreadable_objects(stage: &Stage) {
    let newer =
        CRDS[4].replace("                    - WhenEmpty\n", "                    - WhenEmpty\n                    - WhenItSuits\n");
    assert_ne!(newer, CRDS[4], "the enum is extended");
    apply(&stage.plane, &newer);
    // The server applies a new schema shortly after accepting it.
    let unreadable = pool("other", "720h", "WhenItSuits");
    let accepted = (0..100).any(|_| try_apply(&stage.plane, &unreadable));
    assert!(accepted, "the new value is accepted");
    apply(&stage.plane, FOREIGN);
    let status = "{\"status\":{\"providerID\":\"aws:///us-west-2a/i-0theirs\",\"capacity\":{\"cpu\":\"1e0.5\"}}}";
    let _ = kubectl(&stage.plane, &["patch", "nodeclaim", "theirs", "--subresource=status", "--type=merge", "-p", status]);
    stage.start_machine("i-0theirs");
}

fn try_apply(plane: &ControlPlane, manifest: &str) -> bool {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut kubectl = plane.kubectl();
    let kubectl = kubectl.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut kubectl = kubectl.spawn().expect("kubectl runs");
    kubectl.stdin.take().expect("its input is a pipe").write_all(manifest.as_bytes()).expect("kubectl reads");
    kubectl.wait().expect("kubectl ends").success()
}

/// The garbage collector deletes the NodeClaims of a deleted pool, which the next sweep acts on.
async fn a_pool_that_cannot_be_read_is_deleted_with_its_claims(stage: &Stage, key: &ClaimKey) {
    let _ = kubectl(&stage.plane, &["delete", "nodepool", "other"]);
    let deleted = "--for=jsonpath={.metadata.deletionTimestamp}";
    let _ = kubectl(&stage.plane, &["wait", deleted, "--timeout=60s", "nodeclaim", key.name.as_str()]);
    stage.sweep().await;
    let claim = stage.simulation.ports().get(key).await.expect("the table answers").expect("it is kept").value;
    assert!(claim.deletion.is_some(), "the deletion of its pool is honoured");
}

async fn a_missing_object_is_distinguished_from_a_missing_kind(stage: &Stage) {
    let look_up = |name: &'static str| stage.clusters.look_up(&stage.name, ObjectKind::NodePool, name);
    assert!(matches!(look_up("default").await, Ok(Presence::Exists { uid, .. }) if !uid.is_empty()));
    assert_eq!(look_up("other").await, Ok(Presence::NotFound));
    assert_eq!(stage.clusters.look_up(&stage.name, ObjectKind::Provisioner, "other").await, Ok(Presence::KindNotServed));
    let _ = kubectl(&stage.plane, &["delete", "crd", "nodepools.karpenter.sh"]);
    // The kind is still served for a moment after its CRD was deleted.
    let mut answer = look_up("default").await;
    for _ in 0..1000 {
        if answer != Ok(Presence::KindNotServed) {
            answer = look_up("default").await;
        }
    }
    assert_eq!(answer, Ok(Presence::KindNotServed));
    let objects = stage.clusters.read(&stage.name, Scope::Nodes, None).await.expect("the API server answers");
    assert!(objects.lacks_kind("NodePool") && !objects.lacks_kind("NodeClaim"), "{:?}", objects.absent_kinds);
}
