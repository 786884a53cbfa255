//! A burst of pods on real back ends: the API server and its scheduler, the table and the queues of an emulator.

use crate::cluster_api::POOL;
use crate::wire::run;
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whittle_api::conditions;
use whittle_api::k8s::{Pod, PodCondition};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_aws::{QueueUrls, SqsQueues};
use whittle_dynamo::DynamoStore;
use whittle_ports::{Adapters, ClaimStore, ClusterReader, Scope, Settings};
use whittle_sim::{Function, Simulation, World, WorldOptions};
use whittle_testkit::{NoFunctions, TestWorld};
use whittle_tests::account;
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::dynamo::{TABLE, client, create_table};
use whittle_tests::kubernetes::{CRDS, apply, clusters, kubectl};
use whittle_tests::ministack::Ministack;
use whittle_units::{ClusterName, SignedDuration};

const PODS: usize = 500;
/// In a debug build beside other tests. The goal is five seconds (SPECIFICATION P21).
const SECONDS_MAX: u64 = 40;

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

#[tokio::test]
async fn five_hundred_claims_are_stored_rung_and_shown_in_seconds() {
    let (Some(ministack), Some(plane)) = (Ministack::start(), ControlPlane::start()) else { return };
    let (cluster, clock) = (ClusterName::new("test"), FixedClock::new());
    for crd in CRDS {
        apply(&plane, crd);
    }
    let _ = kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    apply(&plane, POOL);
    apply(&plane, &pods());

    let config = account::config(&ministack);
    create_table(&client(&ministack)).await;
    let store = DynamoStore::new(client(&ministack), TABLE, Arc::new(clock));
    let sqs = aws_sdk_sqs::Client::new(&config);
    let queue = async |name: &str| sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let plan = sqs.create_queue().queue_name("plan.fifo").attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
    let urls = QueueUrls { plan: plan.queue_url.unwrap(), launch: queue("launch").await, ..QueueUrls::default() };
    let queues = SqsQueues::new(sqs.clone(), urls.clone(), Arc::new(clock));
    let clusters = clusters(&plane);
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
        whittle_refresh::handle(adapters, &settings, &cluster).await.expect("the region answers");
    }
    // Until the scheduler has called all of them unschedulable.
    let _ = kubectl(&plane, &["wait", "--for=condition=PodScheduled=False", "--timeout=120s", "pod", "--all"]);

    let begun = Instant::now();
    let report = whittle_schedule::handle(adapters, &settings, &cluster).await.expect("a plan");
    let elapsed = begun.elapsed();
    println!("{PODS} claims stored, rung, mirrored and shown after {:.2} s", elapsed.as_secs_f64());

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
    let launched = |claim: &NodeClaim| conditions::find(&claim.status.conditions, conditions::LAUNCHED).is_some();
    assert!(shown.iter().all(launched), "with their conditions");
    assert_eq!((report.counted("mirrors_failed"), report.counted("mirrors_postponed")), (0, 0));
    assert!(elapsed < Duration::from_secs(SECONDS_MAX), "{elapsed:?}");
}

/// An API server that takes a fifth of a second for each request, and a run with ten seconds left.
#[test]
fn what_only_shows_a_plan_stops_in_time_and_fails_no_run() {
    let start = FixedClock::new().now;
    let world = TestWorld::with_functions("test", start, Arc::new(NoFunctions));
    let (pool, class) = POOL.split_once("---\n").expect("a NodePool and its class");
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
