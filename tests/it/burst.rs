//! A burst of pods on real back ends: the API server and its scheduler, the table and the queues of an emulator.

use crate::functions_in_a_cluster::{clusters_of, plane};
use crate::wire::run;
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, PodCondition, PodSource, PodSourceKind, Workloads};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_aws::{QueueUrls, SqsQueues};
use whittle_cluster::Clusters;
use whittle_dynamo::DynamoStore;
use whittle_ports::contracts::POOL_AND_CLASS;
use whittle_ports::{
    Adapters, ClaimStore, ClusterError, ClusterEvent, ClusterReader, Mirrors, ObjectKind, Presence, Scope, Settings, StatusWriter,
    WorkloadReader,
};
use whittle_sim::{Function, Simulation, World, WorldOptions};
use whittle_testkit::{NoFunctions, TestWorld};
use whittle_tests::account;
use whittle_tests::clock::FixedClock;
use whittle_tests::dynamo::{TABLE, client, client_over, create_table};
use whittle_tests::kubernetes::{TestAccess, apply, install_crds, kubectl};
use whittle_tests::ministack::Ministack;
use whittle_tests::wire::Wire;
use whittle_units::{ClusterName, SignedDuration};

const PODS: usize = 500;
/// Processor time of the thread that plans and writes, built for debugging: other tests run on other threads of the process. The rest of
/// the elapsed time is that of the API server and the emulator, and waiting for a processor. The goal is five seconds in all
/// (SPECIFICATION P21).
const PROCESSOR_MAX: Duration = Duration::from_secs(20);
const ELAPSED_MAX: Duration = Duration::from_secs(120);

/// Pods of which each needs a machine of its own.
fn pods() -> String {
    (0..PODS).fold(String::new(), |mut out, n| {
        let _ = write!(
            out,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: web-{n:03}, labels: {{app: web}}}}, spec: {{containers: [{{name: web, \
             image: web, resources: {{requests: {{cpu: 500m, memory: 512Mi}}}}}}], affinity: {{podAntiAffinity: \
             {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: \
             {{app: web}}}}}}]}}}}}}}}\n"
        );
        out
    })
}

/// From the first call of a step to its last answer, and how many there were.
type Steps = BTreeMap<&'static str, (Instant, Instant, u32)>;

/// The cluster, with the times of its calls.
struct Timed {
    clusters: Clusters<TestAccess>,
    steps: Mutex<Steps>,
}

impl Timed {
    async fn step<T>(&self, step: &'static str, call: impl Future<Output = T> + Send) -> T {
        let begun = Instant::now();
        let answer = call.await;
        let mut steps = self.steps.lock().unwrap();
        let times = steps.entry(step).or_insert((begun, begun, 0));
        *times = (times.0.min(begun), Instant::now(), times.2 + 1);
        answer
    }
}

impl ClusterReader for Timed {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        self.step("1 read", self.clusters.read(cluster, scope, node)).await
    }
    async fn look_up(&self, cluster: &ClusterName, kind: ObjectKind, name: &str) -> Result<Presence, ClusterError> {
        self.clusters.look_up(cluster, kind, name).await
    }
}

impl WorkloadReader for Timed {
    async fn selectors(&self, cluster: &ClusterName) -> Result<Workloads, ClusterError> {
        self.clusters.selectors(cluster).await
    }
    async fn pod_source(
        &self,
        cluster: &ClusterName,
        kind: PodSourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<PodSource, String>>, ClusterError> {
        self.clusters.pod_source(cluster, kind, namespace, name).await
    }
}

impl Mirrors for Timed {
    async fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        self.step("3 mirrored", self.clusters.apply_mirror(cluster, mirror)).await
    }
    async fn delete_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.clusters.delete_mirror(cluster, name, uid).await
    }
    async fn release_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.clusters.release_mirror(cluster, name, uid).await
    }
    async fn hand_over_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.clusters.hand_over_mirror(cluster, name).await
    }
}

impl StatusWriter for Timed {
    async fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> Result<(), ClusterError> {
        self.step("4 published in Events", self.clusters.publish(cluster, event)).await
    }
    async fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> Result<(), ClusterError> {
        self.clusters.write_node_pool_status(cluster, pool).await
    }
    async fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> Result<(), ClusterError> {
        self.clusters.write_node_class_status(cluster, class).await
    }
    async fn write_node_overlay_status(&self, cluster: &ClusterName, overlay: &NodeOverlay) -> Result<(), ClusterError> {
        self.clusters.write_node_overlay_status(cluster, overlay).await
    }
    async fn write_capacity_buffer_status(&self, cluster: &ClusterName, buffer: &CapacityBuffer) -> Result<(), ClusterError> {
        self.clusters.write_capacity_buffer_status(cluster, buffer).await
    }
}

/// Processor time so far of a process, or of the thread that asks (`thread-self`), in user and kernel mode.
fn processor_time(process: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u32>().ok()).unwrap_or_default();
    TICK * (ticks(11) + ticks(12))
}

/// Prints when each step began and ended, from the start of the run.
fn print_steps(begun: Instant, mut steps: Steps, wire: &Wire) {
    for request in wire.requests().into_iter().filter(|request| request.begun >= begun) {
        let step = match request.operation.as_str() {
            "TransactWriteItems" => "2 stored (TransactWriteItems)",
            "PutItem" => "5 remembered (PutItem)",
            "BatchWriteItem" => "6 logged (BatchWriteItem)",
            _ => "0 reads of the table",
        };
        let ended = request.ended.unwrap_or(request.begun);
        let times = steps.entry(step).or_insert((request.begun, ended, 0));
        *times = (times.0.min(request.begun), times.1.max(ended), times.2 + 1);
    }
    for (step, (first, last, calls)) in steps {
        let [from, to] = [first, last].map(|at| at.duration_since(begun).as_secs_f64());
        println!("  {step}: {from:.2} s to {to:.2} s, {calls} calls");
    }
}

#[tokio::test]
async fn five_hundred_claims_are_stored_rung_and_shown_in_seconds() {
    let (Some(ministack), Some(plane)) = (Ministack::start(), plane()) else { return };
    let (cluster, clock) = (ClusterName::new("test"), FixedClock::new());
    install_crds(&plane);
    apply(&plane, POOL_AND_CLASS);
    apply(&plane, &pods());

    let config = account::config(&ministack);
    create_table(&client(&ministack)).await;
    let wire = Wire::recording();
    let store = DynamoStore::new(client_over(&ministack, wire.clone()), TABLE, Arc::new(clock));
    let sqs = aws_sdk_sqs::Client::new(&config);
    let queue = async |name: &str| sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let plan = sqs.create_queue().queue_name("plan.fifo").attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
    let urls = QueueUrls { plan: plan.queue_url.unwrap(), launch: queue("launch").await, ..QueueUrls::default() };
    let queues = SqsQueues::new(sqs.clone(), urls.clone(), Arc::new(clock));
    let clusters = Timed { clusters: clusters_of(&plane, Function::Schedule), steps: Mutex::default() };
    let refresh = clusters_of(&plane, Function::Refresh);
    let settings = Settings::default();

    let region = WorldOptions {
        seed: 1,
        cluster: cluster.clone(),
        region: Ministack::REGION.into(),
        kubernetes_version: "1.33".to_owned(),
        start: clock.now,
    };
    let simulation = Simulation::new(World::new(&region), Arc::new(NoFunctions));
    let cloud = simulation.ports();
    let adapters = Adapters { store: &store, cloud: &cloud, cluster: &clusters, queues: &queues, clock: &clock };
    for _ in 0..2 {
        let refreshing = Adapters { store: &store, cloud: &cloud, cluster: &refresh, queues: &queues, clock: &clock };
        whittle_refresh::handle(refreshing, &settings, &cluster).await.expect("the region answers");
    }
    // Until the scheduler has called all of them unschedulable.
    let _ = kubectl(&plane, &["wait", "--for=condition=PodScheduled=False", "--timeout=120s", "pod", "--all"]);

    let api_server = std::fs::read_to_string(plane.kubeconfig().with_file_name("pid/apiserver")).unwrap();
    let times = || [processor_time("thread-self"), processor_time(api_server.trim())];
    let (begun, before) = (Instant::now(), times());
    let report = whittle_schedule::handle(adapters, &settings, &cluster).await.expect("a plan");
    let elapsed = begun.elapsed();
    let after = times();
    let (own, server) = (after[0] - before[0], after[1] - before[1]);
    println!(
        "{PODS} claims stored, rung, mirrored and shown after {elapsed:.2?}; processor time: {own:.2?} ours, {server:.2?} the API server's"
    );
    print_steps(begun, std::mem::take(&mut *clusters.steps.lock().unwrap()), &wire);

    let stored: BTreeSet<String> = store.list(&cluster).await.unwrap().iter().map(|claim| claim.value.key.name.to_string()).collect();
    assert_eq!(stored.len(), PODS, "{}", report);
    let mut bodies = String::new();
    while let Some(message) = sqs.receive_message().queue_url(&urls.launch).send().await.unwrap().messages().first() {
        bodies.push_str(message.body().unwrap());
    }
    let unrung: Vec<&String> = stored.iter().filter(|name| !bodies.contains(name.as_str())).collect();
    assert!(unrung.is_empty(), "no doorbell names {unrung:?}");
    let shown = clusters.read(&cluster, Scope::Nodes, None).await.unwrap().node_claims;
    assert_eq!(shown.iter().map(|claim| claim.metadata.name.clone()).collect::<BTreeSet<_>>(), stored);
    assert!(shown.iter().all(|claim| !claim.spec.requirements.is_empty()), "with what was planned");
    assert_eq!((report.counted("mirrors_failed"), report.counted("mirrors_postponed")), (0, 0));
    assert!(own < PROCESSOR_MAX && elapsed < ELAPSED_MAX, "{own:?}, {elapsed:?}");
}

/// An API server that takes a fifth of a second for each request, and a run with ten seconds left.
#[test]
fn what_only_shows_a_plan_stops_in_time_and_fails_no_run() {
    let start = FixedClock::new().now;
    let world = TestWorld::with_functions("test", start, Arc::new(NoFunctions));
    let (pool, class) = POOL_AND_CLASS.split_once("---\n").expect("a NodePool and its class");
    world.create(serde_saphyr::from_str::<NodePool>(pool).expect("a NodePool"));
    world.create(serde_saphyr::from_str::<Ec2NodeClass>(class).expect("an EC2NodeClass"));
    for text in pods().split("---\n").filter(|text| !text.is_empty()).take(60) {
        let mut pod: Pod = serde_saphyr::from_str(text).expect("a Pod");
        pod.metadata.namespace = "default".to_owned();
        pod.status.phase = "Pending".to_owned();
        let unschedulable = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: "Unschedulable".into(),
            ..PodCondition::default()
        };
        pod.status.conditions.push(unschedulable);
        world.create(pod);
    }
    let (cluster, settings, ports) = (ClusterName::new("test"), Settings::default(), world.ports());
    for _ in 0..2 {
        run(whittle_refresh::handle(Adapters::all(&ports), &settings, &cluster)).expect("the region answers");
    }
    let slow = ports.with_time_left(SignedDuration::from_millis(200), SignedDuration::from_secs(14));
    let report = run(whittle_schedule::handle(Adapters::all(&slow), &settings, &cluster)).expect("the run does not fail");
    assert_eq!((report.counted("mirrors_postponed"), report.counted("mirrors_failed")), (1, 0), "{report}");
    let stored: Vec<String> = run(ports.list(&cluster)).unwrap().iter().map(|claim| claim.value.key.name.to_string()).collect();
    assert_eq!(stored.len(), 60, "all claims are stored");
    let is_rung = world.world().queues.waiting().any(|message| {
        let input = format!("{:?}", message.input);
        message.function == Function::Launch && stored.iter().all(|name| input.contains(name.as_str()))
    });
    assert!(is_rung, "and their launch was rung for");
    let shown = world.world().cluster.objects.node_claims.len();
    assert!((1..60).contains(&shown), "{shown} NodeClaims");
}
