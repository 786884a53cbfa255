//! A burst of pods on real back ends: the API server and its scheduler, the table and the queues of an emulator.

use crate::cluster_api::POOL;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whittle_api::conditions;
use whittle_aws::{QueueUrls, SqsQueues};
use whittle_cluster::Clusters;
use whittle_dynamo::DynamoStore;
use whittle_ports::{Adapters, ClaimStore, ClusterReader, Scope, Settings};
use whittle_sim::{Function, Functions, Input, SimPorts, Simulation, World, WorldOptions};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::dynamo::{TABLE, client, create_table};
use whittle_tests::kubernetes::{CRDS, TestAccess, apply, clusters, kubectl};
use whittle_tests::ministack::Ministack;
use whittle_units::ClusterName;

const PODS: usize = 500;
/// In a debug build beside other tests. The goal is five seconds (SPECIFICATION P21).
const SECONDS_MAX: u64 = 40;

/// The region answers `refresh`; nothing happens by itself.
struct NoFunctions;

impl Functions for NoFunctions {
    fn call(&self, _: Function, _: SimPorts, _: Input) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'static>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

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

/// Waits until the scheduler has called all of them unschedulable.
async fn wait_for_verdicts(clusters: &Clusters<TestAccess>, cluster: &ClusterName) {
    for _ in 0..600 {
        let pods = clusters.read(cluster, Scope::All, None).await.expect("the API server answers").pods;
        let is_unschedulable = |conditions: &[whittle_api::k8s::PodCondition]| {
            conditions.iter().any(|condition| condition.type_ == "PodScheduled" && condition.reason == "Unschedulable")
        };
        if pods.iter().filter(|pod| is_unschedulable(&pod.status.conditions)).count() >= PODS {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the scheduler has not looked at all pods");
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

    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(ministack.endpoint())
        .region(Region::new(Ministack::REGION))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("testing", "testing", None, None, "tests")))
        .build();
    create_table(&client(&ministack)).await;
    let store = DynamoStore::new(client(&ministack), TABLE, Arc::new(clock));
    let sqs = aws_sdk_sqs::Client::new(&config);
    let queue = async |name: &str| sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let urls = QueueUrls { launch: queue("launch").await, refresh: queue("refresh").await, ..QueueUrls::default() };
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
    wait_for_verdicts(&clusters, &cluster).await;

    let begun = Instant::now();
    let report = whittle_schedule::handle(adapters, &settings, &cluster).await.expect("a plan");
    let elapsed = begun.elapsed();
    println!("{PODS} claims stored, rung, mirrored and shown after {:.2} s", elapsed.as_secs_f64());

    let stored: BTreeSet<String> = store.list(&cluster).await.unwrap().iter().map(|claim| claim.value.key.name.to_string()).collect();
    assert_eq!(stored.len(), PODS, "{}", report);
    let message = sqs.receive_message().queue_url(&urls.launch).send().await.unwrap();
    let body = message.messages()[0].body().unwrap();
    assert!(stored.iter().all(|name| body.contains(name.as_str())), "the doorbell names every claim");
    let shown = clusters.read(&cluster, Scope::Nodes, None).await.unwrap().node_claims;
    assert_eq!(shown.iter().map(|claim| claim.metadata.name.clone()).collect::<BTreeSet<_>>(), stored);
    let launched = |claim: &whittle_api::karpenter::NodeClaim| conditions::find(&claim.status.conditions, conditions::LAUNCHED).is_some();
    assert!(shown.iter().all(launched), "with their conditions");
    assert_eq!((report.counted("mirrors_failed"), report.counted("mirrors_postponed")), (0, 0));
    assert!(elapsed < Duration::from_secs(SECONDS_MAX), "{elapsed:?}");
}
