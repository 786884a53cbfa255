//! Uninstallation with real adapters: table, queues, machines and profiles in an emulator, objects in a real API
//! server, where each function has its own token and rights. Two clusters share the account; the uninstalled one loses everything of ours,
//! the other nothing (S1.28).

use crate::functions_in_a_cluster::{clusters_of, plane};
use aws_config::SdkConfig;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_ec2::types::{IamInstanceProfileSpecification, InstanceType, ResourceType, Tag, TagSpecification};
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::karpenter::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, NodeClassReference, PlacementGroupSelector, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};
use whittle_api::labels;
use whittle_aws::{Ec2Discovery, Isolation, Machines, QueueUrls, SqsQueues};
use whittle_claims::{Claim, ClaimSpec, Function, LeftNodes, Machine, Phase, Revision, Sighting, UninstallRequest, mirror};
use whittle_cluster::Clusters;
use whittle_dynamo::DynamoStore;
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, PlacementGroup, SecurityGroup, Subnet};
use whittle_ports::{
    Adapters, CatalogRead, ClaimStore, ClassProfile, CloudError, Discovery, Instances, LaunchTemplateCleanup, LaunchTemplates, Leases,
    Mirrors, Records, Settings, contracts,
};
use whittle_terminate::LastPlanned;
use whittle_tests::account;
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::dynamo::{TABLE, client, create_table};
use whittle_tests::kubernetes::{TestAccess, apply, clusters, install_crds, kubectl};
use whittle_tests::ministack::Ministack;
use whittle_units::{ClusterName, InstanceId, ProviderId, SignedDuration};

const LEFT: &str = "left";
const SERVED: &str = "served";
const ROLE: &str = "KarpenterNodeRole-left";
/// The number of ticks until nothing may be left.
const TICKS_MAX: u32 = 12;
const TICK: SignedDuration = SignedDuration::from_mins(1);

/// Discovery with a real cleanup of node classes; everything else is unused here.
struct Cleaner(Ec2Discovery);

impl Discovery for Cleaner {
    async fn cluster_info(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        Ok(ClusterInfo { name: cluster.clone(), ..ClusterInfo::default() })
    }
    async fn subnets(&self, _: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        Ok(Vec::new())
    }
    async fn security_groups(&self, _: &[SecurityGroupSelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        Ok(Vec::new())
    }
    async fn images(&self, _: &[AmiSelectorTerm], _: &str) -> Result<Vec<Image>, CloudError> {
        Ok(Vec::new())
    }
    async fn capacity_reservations(&self, _: &[CapacityReservationSelectorTerm]) -> Result<Vec<CapacityReservation>, CloudError> {
        Ok(Vec::new())
    }
    async fn placement_groups(&self, _: &PlacementGroupSelector) -> Result<Vec<PlacementGroup>, CloudError> {
        Ok(Vec::new())
    }
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String {
        self.0.instance_profile_name(cluster, class, role)
    }
    async fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String, CloudError> {
        self.0.ensure_instance_profile(cluster, class, role, tags).await
    }
    async fn profile_role(&self, profile: &str) -> Result<Option<String>, CloudError> {
        self.0.profile_role(profile).await
    }
    async fn profiles(&self, cluster: &ClusterName) -> Result<Vec<ClassProfile>, CloudError> {
        self.0.profiles(cluster).await
    }
    async fn delete_profile(&self, profile: &ClassProfile) -> Result<bool, CloudError> {
        self.0.delete_profile(profile).await
    }
    async fn release_class(&self, cluster: &ClusterName, class: &str) -> Result<Vec<String>, CloudError> {
        self.0.release_class(cluster, class).await
    }
    async fn catalog(&self, _: Option<&[u8]>) -> Result<CatalogRead, CloudError> {
        Ok(CatalogRead { blob: b"catalog".to_vec(), prices_failed: None })
    }
    async fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CloudError> {
        Ok(known.to_vec())
    }
}

/// The account and the API server.
struct Stage {
    ministack: Ministack,
    plane: ControlPlane,
    clusters: Clusters<TestAccess>,
    config: SdkConfig,
    queues: QueueUrls,
}

impl Stage {
    async fn new() -> Option<Self> {
        let (ministack, plane) = (Ministack::start()?, plane()?);
        create_table(&client(&ministack)).await;
        install_crds(&plane);
        let config = account::config(&ministack);
        let sqs = aws_sdk_sqs::Client::new(&config);
        let queue = async |name: &str| sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
        let plan = sqs.create_queue().queue_name("plan.fifo").attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
        let queues = QueueUrls {
            plan: plan.queue_url.unwrap(),
            terminate: queue("terminate").await,
            refresh: queue("refresh").await,
            ..QueueUrls::default()
        };
        let iam = aws_sdk_iam::Client::new(&config);
        iam.create_role().role_name(ROLE).assume_role_policy_document("{}").send().await.unwrap();
        Some(Self { clusters: clusters(&plane), ministack, plane, config, queues })
    }

    fn at(tick: u32) -> FixedClock {
        let start = FixedClock::new();
        FixedClock { now: start.now + TICK * i32::try_from(tick).unwrap(), ..start }
    }
    fn store(&self, clock: FixedClock) -> DynamoStore {
        DynamoStore::new(client(&self.ministack), TABLE, Arc::new(clock))
    }
    fn machines(&self, clock: FixedClock) -> Machines {
        Machines::new(aws_sdk_ec2::Client::new(&self.config), Arc::new(clock))
    }
    fn cleaner(&self, clock: FixedClock) -> Cleaner {
        let region = whittle_units::Region::new(Ministack::REGION);
        Cleaner(Ec2Discovery::new(&self.config, region, Isolation::Reachable, Arc::new(clock)))
    }

    /// Creates a running machine with its launch template, instance profile, claim and a record.
    async fn create_machine(&self, cluster: &ClusterName) -> Claim {
        let clock = Self::at(0);
        let tags = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, cluster.as_str())];
        let profile = self.cleaner(clock).ensure_instance_profile(cluster, "default", ROLE, &BTreeMap::new()).await.unwrap();
        let id = self.run_instance(&tags, Some(&profile)).await;
        let tags: BTreeMap<String, String> = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let template = LaunchTemplate { image_id: "ami-1".to_owned(), tags, ..LaunchTemplate::default() }.named();
        self.machines(clock).ensure_launch_template(&template).await.unwrap();

        let store = self.store(clock);
        let lease = store.acquire(cluster, "test", clock.now, TICK).await.unwrap();
        let mut claim = contracts::planned_claim(cluster, &format!("default-{cluster}"), clock.now);
        let (group, kind) = ("karpenter.k8s.aws".to_owned(), "EC2NodeClass".to_owned());
        claim.spec = ClaimSpec {
            node_pool: "default".to_owned(),
            node_class: NodeClassReference { group, kind, name: "default".to_owned() },
            labels: [(labels::NODE_POOL.to_owned(), "default".to_owned())].into(),
            ..ClaimSpec::default()
        };
        let planned = store.create(&lease, &claim).await.unwrap();
        store.release(&lease).await.unwrap();
        let machine = Machine { provider_id: ProviderId::of_instance("us-west-2a", &id), ..contracts::machine_launched_at(&id, clock.now) };
        claim.phase = Phase::Launched { machine: machine.clone() };
        let launched = store.update(&claim, planned).await.unwrap();
        claim.phase = Phase::Registered { machine, node_name: format!("node-{cluster}"), since: clock.now };
        store.update(&claim, launched).await.unwrap();
        let seen = Sighting { subject: "something".to_owned(), first_seen_at: clock.now, expires_at: clock.now + TICK * 60 };
        store.write(cluster, &seen, Revision::ABSENT).await.unwrap();
        claim
    }

    async fn run_instance(&self, tags: &[(&str, &str)], profile: Option<&str>) -> InstanceId {
        let tags = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build()).collect();
        let tags = TagSpecification::builder().resource_type(ResourceType::Instance).set_tags(Some(tags)).build();
        let run = aws_sdk_ec2::Client::new(&self.config).run_instances().image_id("ami-0123456789abcdef0").tag_specifications(tags);
        let profile = profile.map(|name| IamInstanceProfileSpecification::builder().name(name).build());
        let run = run.set_iam_instance_profile(profile).instance_type(InstanceType::M5Large).min_count(1).max_count(1);
        let answer = run.send().await.unwrap();
        InstanceId::new(answer.instances()[0].instance_id().unwrap())
    }

    /// Creates the objects of a claim, with our finalizers: Node, NodeClaim and node class.
    async fn create_objects(&self, cluster: &ClusterName, claim: &Claim) {
        apply(&self.plane, &pool_and_class());
        self.clusters.apply_mirror(cluster, &mirror(claim)).await.unwrap();
        let (name, id) = (claim.node_name().unwrap(), claim.machine().unwrap().provider_id.as_str());
        apply(&self.plane, &node(name, id, labels::TERMINATION_FINALIZER));
    }

    /// Runs each function involved once, then the uninstall request again. Returns its answer.
    async fn tick(&self, cluster: &ClusterName, nodes: LeftNodes, tick: u32) -> String {
        let clock = Self::at(tick);
        let (store, machines, cleaner) = (self.store(clock), self.machines(clock), self.cleaner(clock));
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&self.config), self.queues.clone(), Arc::new(clock));
        let [terminate, sweep, refresh] =
            [Function::Terminate, Function::Sweep, Function::Refresh].map(|function| clusters_of(&self.plane, function));
        let terminating = Adapters { store: &store, cloud: &machines, cluster: &terminate, queues: &queues, clock: &clock };
        let settings = Settings { clusters: vec![cluster.clone()], ..Settings::default() };
        let request = UninstallRequest { cluster: cluster.clone(), nodes, dry_run: false };
        for claim in store.list(cluster).await.unwrap() {
            whittle_terminate::handle(terminating, &settings, &LastPlanned::default(), &claim.value.key).await.unwrap();
        }
        let refreshing = Adapters { store: &store, cloud: &cleaner, cluster: &refresh, queues: &queues, clock: &clock };
        whittle_refresh::handle(refreshing, &settings, cluster).await.unwrap();
        let sweeping = Adapters { store: &store, cloud: &machines, cluster: &sweep, queues: &queues, clock: &clock };
        let report = whittle_sweep::uninstall(sweeping, &settings, &request).await.unwrap();
        report.decisions.last().unwrap().message.clone()
    }

    /// Repeats the uninstall request, one tick apart, until it reports that nothing is left.
    async fn uninstall(&self, cluster: &ClusterName, nodes: LeftNodes) {
        let mut answers = Vec::new();
        for tick in 0..TICKS_MAX {
            answers.push(self.tick(cluster, nodes, tick).await);
            if answers.last().is_some_and(|answer| answer.starts_with("nothing is left")) {
                return;
            }
        }
        panic!("something is left after all ticks: {answers:#?}");
    }

    /// Keys of the table's items of this cluster.
    async fn keys(&self, cluster: &ClusterName) -> Vec<String> {
        let items = client(&self.ministack).scan().table_name(TABLE).send().await.unwrap().items.unwrap();
        let text = |value: &AttributeValue| value.as_s().cloned().unwrap_or_default();
        let of_cluster = |key: &String| key.split('#').any(|part| part == cluster.as_str());
        let mut keys: Vec<String> = items.iter().map(|item| format!("{}#{}", text(&item["pk"]), text(&item["sk"]))).collect();
        keys.retain(of_cluster);
        keys.sort();
        keys
    }

    async fn profiles(&self) -> Vec<String> {
        let answer = aws_sdk_iam::Client::new(&self.config).list_instance_profiles().send().await.unwrap();
        answer.instance_profiles.into_iter().map(|profile| profile.path).collect()
    }
}

/// A NodePool and a node class of ours, with the role of this account.
fn pool_and_class() -> String {
    let class = "kind: EC2NodeClass\nmetadata: {name: default";
    let ours = format!("{class}, finalizers: [{}]", labels::NODE_CLASS_FINALIZER);
    contracts::POOL_AND_CLASS.replace(class, &ours).replace("node-role", ROLE)
}

fn node(name: &str, provider_id: &str, finalizer: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, finalizers: [{finalizer}]}}, spec: {{providerID: '{provider_id}'}}, \
         status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}}}"
    )
}

#[tokio::test]
async fn s1_28_uninstalling_from_a_cluster_removes_everything_and_affects_no_other_cluster() {
    let Some(stage) = Stage::new().await else { return };
    let (uninstalled, served) = (ClusterName::new(LEFT), ClusterName::new(SERVED));
    let (ours, other) = (stage.create_machine(&uninstalled).await, stage.create_machine(&served).await);
    stage.create_objects(&uninstalled, &ours).await;
    apply(&stage.plane, &node("managed", "aws:///us-west-2a/i-0aaaaaaaaaaaaaaaa", "example.com/keeps"));
    let untagged = stage.run_instance(&[("Name", "unrelated"), (labels::TAG_CLUSTER, LEFT)], None).await;
    let before = stage.keys(&served).await;

    stage.uninstall(&uninstalled, LeftNodes::Drain).await;

    let now = Stage::at(TICKS_MAX);
    let machines = stage.machines(now);
    assert_eq!(alive(&machines, &ours.machine().unwrap().instance_id).await, None, "its machine is terminated");
    assert_eq!(machines.launch_templates(&uninstalled).await.unwrap(), [""; 0]);
    assert_eq!(stage.profiles().await, [format!("/karpenter/{}/{SERVED}/default/", Ministack::REGION)]);
    let kept = stage.keys(&uninstalled).await;
    assert_eq!(
        kept,
        [format!("LEASE#{LEFT}#LEASE"), format!("RECORD#{LEFT}#uninstall#uninstall")],
        "the fencing token must never start again"
    );

    let node = other.machine().unwrap().instance_id.clone();
    assert_eq!(alive(&machines, &node).await.as_deref(), Some(SERVED), "the other cluster's machine runs");
    assert_eq!(alive(&machines, &untagged).await.as_deref(), Some(LEFT), "an instance without the tag of a NodePool is not ours");
    assert_eq!(machines.launch_templates(&served).await.unwrap().len(), 1);
    assert_eq!(stage.keys(&served).await, before, "its items are unchanged");
    assert_eq!(stage.store(now).get(&other.key).await.unwrap().unwrap().value, other);

    assert_eq!(kubectl(&stage.plane, &["get", "nodes", "-o", "name"]), "node/managed");
    assert_deletable(&stage.plane);
}

#[tokio::test]
async fn s1_28_kept_machines_run_on_unmanaged_with_their_instance_profile() {
    let Some(stage) = Stage::new().await else { return };
    let (uninstalled, served) = (ClusterName::new(LEFT), ClusterName::new(SERVED));
    let (ours, _) = (stage.create_machine(&uninstalled).await, stage.create_machine(&served).await);
    stage.create_objects(&uninstalled, &ours).await;
    let before = stage.keys(&served).await;

    stage.uninstall(&uninstalled, LeftNodes::Keep).await;

    let machines = stage.machines(Stage::at(TICKS_MAX));
    let id = &ours.machine().unwrap().instance_id;
    let kept = machines.instance(id).await.unwrap().unwrap();
    assert!(kept.is_alive() && kept.tags.contains_key(labels::TAG_LET_GO), "it runs, and no later sweep treats it as an orphan");
    let profile = format!("/karpenter/{}/{LEFT}/default/", Ministack::REGION);
    assert!(stage.profiles().await.contains(&profile), "without its profile a node can pull no image and assign no pod address");
    assert_eq!(machines.launch_templates(&uninstalled).await.unwrap(), [""; 0], "launch templates are deleted");
    let node = kubectl(
        &stage.plane,
        &["get", "node", "node-left", "-o", "jsonpath={.metadata.finalizers}{.metadata.ownerReferences}{.spec.taints}"],
    );
    assert_eq!(node, "", "its pods are undisturbed, and its Node can be deleted");
    assert_eq!(stage.keys(&served).await, before, "the other cluster is unchanged");
    assert_deletable(&stage.plane);
}

/// Adopted NodeClaims go back the same way.
#[tokio::test]
async fn machines_that_are_handed_over_stay_as_karpenter_has_them() {
    let Some(stage) = Stage::new().await else { return };
    let uninstalled = ClusterName::new(LEFT);
    let ours = stage.create_machine(&uninstalled).await;
    stage.create_objects(&uninstalled, &ours).await;
    let name = ours.key.name.as_str();
    let spec = kubectl(&stage.plane, &["get", "nodeclaim", name, "-o", "jsonpath={.metadata.uid}{.spec}"]);
    let node =
        || kubectl(&stage.plane, &["get", "node", "node-left", "-o", "jsonpath={.metadata.finalizers}{.metadata.ownerReferences}{.spec}"]);
    let before = node();

    stage.uninstall(&uninstalled, LeftNodes::HandOver).await;

    assert_eq!(node(), before);
    assert_eq!(kubectl(&stage.plane, &["get", "nodeclaim", name, "-o", "jsonpath={.metadata.uid}{.spec}"]), spec);
    let shown: serde_json::Value = serde_json::from_str(&kubectl(&stage.plane, &["get", "nodeclaim", name, "-o", "json"])).unwrap();
    let (metadata, status) = (&shown["metadata"], &shown["status"]);
    assert_eq!(
        (&metadata["deletionTimestamp"], &metadata["annotations"][labels::MANAGED]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(metadata["finalizers"], serde_json::json!([labels::TERMINATION_FINALIZER]));
    assert_eq!(status["providerID"], ours.machine().unwrap().provider_id.as_str());
    assert_eq!(status["nodeName"], "node-left");
    let machines = stage.machines(Stage::at(TICKS_MAX));
    let kept = machines.instance(&ours.machine().unwrap().instance_id).await.unwrap().unwrap();
    assert!(kept.is_alive() && kept.tags[labels::TAG_LAUNCH].is_empty() && kept.tags.contains_key(labels::NODE_POOL), "{:?}", kept.tags);
}

/// What Karpenter left of a machine that serves, in a pool whose machines are to be adopted.
async fn left_by_karpenter(stage: &Stage, cluster: &ClusterName) -> InstanceId {
    apply(&stage.plane, &pool_and_class());
    let _ = kubectl(&stage.plane, &["annotate", "nodepool", "default", "whittle.dev/adopt=true"]);
    let tags = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, cluster.as_str())];
    let id = stage.run_instance(&tags, None).await;
    let uid = |kind: &str, name: &str| kubectl(&stage.plane, &["get", kind, name, "-o", "jsonpath={.metadata.uid}"]);
    let pool = uid("nodepool", "default");
    let shared = "labels: {karpenter.sh/nodepool: default, karpenter.k8s.aws/ec2nodeclass: default, team: a, \
                  karpenter.sh/capacity-type: on-demand, node.kubernetes.io/instance-type: m5.large, topology.kubernetes.io/zone: us-west-2a}";
    let finalizers = format!("finalizers: [{}]", labels::TERMINATION_FINALIZER);
    apply(
        &stage.plane,
        &format!(
            "{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: default-x2x4z, {shared}, {finalizers}, \
             annotations: {{karpenter.sh/nodepool-hash: '17', karpenter.sh/nodepool-hash-version: v3}}, \
             ownerReferences: [{{apiVersion: karpenter.sh/v1, kind: NodePool, name: default, uid: {pool}, blockOwnerDeletion: true}}]}}, \
             spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, expireAfter: Never, \
             requirements: [{{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}]}}}}"
        ),
    );
    let provider = ProviderId::of_instance("us-west-2a", &id);
    let status = format!(
        r#"{{"status":{{"providerID":"{}","nodeName":"node-x","capacity":{{"cpu":"2","pods":"29"}},"conditions":[{}]}}}}"#,
        provider.as_str(),
        ["Launched", "Registered", "Initialized", "Ready"]
            .map(|type_| format!(
                r#"{{"type":"{type_}","status":"True","reason":"{type_}","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}"#
            ))
            .join(",")
    );
    let _ = kubectl(&stage.plane, &["patch", "nodeclaim", "default-x2x4z", "--subresource=status", "--type=merge", "-p", &status]);
    let owner = uid("nodeclaim", "default-x2x4z");
    apply(
        &stage.plane,
        &format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: node-x, {finalizers}, labels: {{karpenter.sh/nodepool: default, \
             karpenter.k8s.aws/ec2nodeclass: default, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'}}, \
             ownerReferences: [{{apiVersion: karpenter.sh/v1, \
             kind: NodeClaim, name: default-x2x4z, uid: {owner}, blockOwnerDeletion: true}}]}}, spec: {{providerID: '{}'}}}}",
            provider.as_str()
        ),
    );
    id
}

/// What Karpenter wrote of an object. Kubernetes' own taints come and go beside it: each new Node begins as not ready.
fn left(plane: &ControlPlane, kind: &str, name: &str) -> serde_json::Value {
    let mut shown: serde_json::Value = serde_json::from_str(&kubectl(plane, &["get", kind, name, "-o", "json"])).unwrap();
    for written_by_the_server in ["managedFields", "resourceVersion", "generation"] {
        shown["metadata"].as_object_mut().unwrap().remove(written_by_the_server);
    }
    let taints = shown["spec"].as_object_mut().unwrap().remove("taints");
    let of_others = |taint: &&serde_json::Value| !taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"));
    let taints: Vec<_> = taints.iter().flat_map(|taints| taints.as_array().unwrap()).filter(of_others).cloned().collect();
    shown["spec"]["taints"] = serde_json::json!(taints);
    let holds = |type_: &str| {
        let conditions = shown["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["type"] == type_).map(|condition| condition["status"].clone()).collect::<Vec<_>>()
    };
    let (status, begun) = (&shown["status"], ["Launched", "Registered", "Initialized"].map(holds));
    serde_json::json!([shown["metadata"], shown["spec"], status["providerID"], status["nodeName"], status["capacity"], begun])
}

#[tokio::test]
async fn a_machine_of_karpenter_is_adopted_in_place_and_handed_back_as_it_was() {
    let Some(stage) = Stage::new().await else { return };
    let cluster = ClusterName::new(LEFT);
    let id = left_by_karpenter(&stage, &cluster).await;
    let before = [left(&stage.plane, "nodeclaim", "default-x2x4z"), left(&stage.plane, "node", "node-x")];
    // The account's clock is the real one: the machine is at least ten minutes old.
    let ahead = (whittle_units::Timestamp::now().as_second() - Stage::at(0).now.as_second()) / 60;
    let first = u32::try_from(ahead.max(0)).unwrap() + 10;
    let settings = Settings { clusters: vec![cluster.clone()], ..Settings::default() };
    let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&stage.config), stage.queues.clone(), Arc::new(Stage::at(first)));
    let sweep = clusters_of(&stage.plane, Function::Sweep);
    for tick in first..first + 3 {
        let clock = Stage::at(tick);
        let (store, machines) = (stage.store(clock), stage.machines(clock));
        let adapters = Adapters { store: &store, cloud: &machines, cluster: &sweep, queues: &queues, clock: &clock };
        whittle_sweep::handle(adapters, &settings, &cluster).await.unwrap();
    }
    let claims = stage.store(Stage::at(first + 3)).list(&cluster).await.unwrap();
    let [claim] = &claims[..] else { panic!("one machine is adopted: {claims:?}") };
    assert_eq!((claim.value.key.name.as_str(), claim.value.phase.name()), ("default-x2x4z", "Initialized"));
    assert_eq!(claim.value.machine().map(|machine| &machine.instance_id), Some(&id));
    let managed = left(&stage.plane, "nodeclaim", "default-x2x4z");
    assert_eq!((&managed[0]["uid"], &managed[1]), (&before[0][0]["uid"], &before[0][1]), "in place");
    assert_eq!(managed[0]["annotations"][labels::MANAGED], "true");
    assert_eq!(left(&stage.plane, "node", "node-x"), before[1], "nothing is drained");

    for tick in first + 4..first + 8 {
        stage.tick(&cluster, LeftNodes::HandOver, tick).await;
    }

    let after = [left(&stage.plane, "nodeclaim", "default-x2x4z"), left(&stage.plane, "node", "node-x")];
    assert_eq!(after, before);
    assert_eq!(alive(&stage.machines(Stage::at(first + 8)), &id).await.as_deref(), Some(LEFT));
}

/// The cluster tag of a running instance.
async fn alive(machines: &Machines, id: &InstanceId) -> Option<String> {
    let instance = machines.instance(id).await.unwrap().filter(whittle_ec2::instance::Instance::is_alive);
    instance.and_then(|instance| instance.tags.get(labels::TAG_CLUSTER).cloned())
}

/// Checks that no finalizer of ours is left on any object: even the CRDs can be deleted.
fn assert_deletable(plane: &ControlPlane) {
    assert_eq!(kubectl(plane, &["get", "nodeclaims", "-o", "name"]), "");
    let _ = kubectl(plane, &["delete", "nodepools,ec2nodeclasses", "--all", "--timeout=30s"]);
    let kinds = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"];
    for kind in kinds {
        let _ = kubectl(plane, &["delete", "crd", kind, "--timeout=120s"]);
    }
}
