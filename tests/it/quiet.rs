//! What a cluster in which nothing happens costs its API server: ticks of the functions on a real one, over a wire that counts.

use crate::functions_in_a_cluster::{groups, plane_with};
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use whittle_api::{OwnerReference, labels};
use whittle_claims::{Event, Machine};
use whittle_cluster::Clusters;
use whittle_ec2::instance::Instance;
use whittle_ports::contracts::POOL_AND_CLASS;
use whittle_ports::{Adapters, Clock, Settings, concurrently};
use whittle_sim::{Function, SimPorts};
use whittle_testkit::{
    NoFunctions, TestWorld, after, begun, default_spec, instance_of, machine, node_class_reference, planned, pool_owner,
};
use whittle_tests::clock::FixedClock;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{TestAccess, apply, client, clusters_at, install_crds, kubectl};
use whittle_units::{ClusterName, SignedDuration};

const NODES: usize = 1_000;
const PODS_PER_NODE: usize = 2;
/// A kubelet writes its Node this often, though only the time of its heartbeat is new.
const HEARTBEAT_MINUTES: usize = 5;
/// `ClassRefreshMinutes` of the template.
const REFRESH_MINUTES: usize = 5;
/// Minutes that are measured: in as many, each function asks for the metadata of Nodes once, and Events are repeated. Another number by
/// `WHITTLE_QUIET_MINUTES`.
const MINUTES: usize = 15;
/// Minutes in which NodeClaims are written, and everything is seen.
const SETTLED: usize = 8;
/// What is kept is too old from then on.
const KEPT_UNTIL: usize = 119;
/// SPECIFICATION P24, in bytes.
const PER_MINUTE_MAX: u64 = 100_000;

/// Bytes in both directions, with those of TLS.
#[derive(Clone, Default)]
struct Wire(Arc<AtomicU64>);

impl Wire {
    /// Forwards connections to a server; returns the address instead of it.
    async fn to(&self, server: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = format!("https://{}", listener.local_addr().expect("it is bound"));
        let (server, wire) = (server.trim_start_matches("https://").to_owned(), self.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(there) = TcpStream::connect(&server).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), there.into_split());
                tokio::spawn(wire.clone().forward(from_client, to_server));
                tokio::spawn(wire.clone().forward(from_server, to_client));
            }
        });
        address
    }

    async fn forward(self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            self.0.fetch_add(length as u64, Ordering::Relaxed);
            if to.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A Node as a kubelet of EKS writes it: with its labels, and the images that it has.
fn node(number: usize, machine: &Machine) -> Value {
    let (name, zone, id) = (name_of(number), &machine.zone, machine.instance_id.as_str());
    let labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/instance-type": machine.instance_type, "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "us-west-2", "failure-domain.beta.kubernetes.io/zone": zone,
        "k8s.io/cloud-provider-aws": "0123456789abcdef0123456789abcdef", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": machine.instance_type, "topology.ebs.csi.aws.com/zone": zone,
        "topology.k8s.aws/zone-id": "usw2-az1", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "topology.kubernetes.io/region": "us-west-2", "topology.kubernetes.io/zone": zone,
    });
    let images: Vec<Value> = (0..20)
        .map(|image| {
            let digest = format!("{:064x}", (image + 1) * 7_919);
            let repository = format!("602401143452.dkr.ecr.us-west-2.amazonaws.com/team/service-{image}");
            json!({"names": [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{image}.0")], "sizeBytes": 10_000_000 + image})
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels, "finalizers": ["karpenter.sh/termination"], "annotations": {
            "alpha.kubernetes.io/provided-node-ip": format!("10.0.{}.{}", number / 250, number % 250),
            "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"{id}\"}}"),
            "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"providerID": machine.provider_id.as_str()},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, number % 250)}, {"type": "Hostname", "address": name}],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "58", "ephemeral-storage": "80Gi"},
            "allocatable": {"cpu": "7910m", "memory": "31Gi", "pods": "58", "ephemeral-storage": "72Gi"},
            "conditions": conditions(0), "images": images,
            "nodeInfo": {"architecture": "amd64", "bootID": format!("{number:032x}"), "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.40-64.114.amzn2023.x86_64", "kubeProxyVersion": "", "kubeletVersion": "v1.33.4-eks-99d6cc0",
                "machineID": format!("{number:032x}"), "operatingSystem": "linux", "osImage": "Amazon Linux 2023.8.20250908",
                "systemUUID": format!("{number:032x}")},
        },
    })
}

fn name_of(number: usize) -> String {
    format!("ip-10-0-{}-{}.ec2.internal", number / 250, number % 250)
}

/// A machine of EC2's that runs for a claim, and the claim in the table.
fn claimed(world: &TestWorld, pool_uid: &str, number: usize) -> Machine {
    let mut machine = Machine { zone: format!("us-west-2{}", ["a", "b", "c"][number % 3]), ..machine(&format!("i-{number:017x}")) };
    machine.instance_type = "m5.2xlarge".to_owned();
    machine.labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
    let tags = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, "test")];
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    machine.instance_id = world.start_machine(Instance { tags, ..instance_of(&machine) });
    machine.provider_id = format!("aws:///{}/{}", machine.zone, machine.instance_id.as_str()).as_str().into();
    let mut claim = planned(&format!("default-{number:05}"), default_spec());
    claim.key.cluster = ClusterName::new("test");
    claim.spec.node_pool = "default".to_owned();
    claim.spec.node_class = node_class_reference("default");
    claim.spec.owner = OwnerReference { api_version: "karpenter.sh/v1".into(), uid: pool_uid.into(), ..pool_owner() };
    let joined = Event::NodeJoined { node_name: name_of(number) };
    let events = [begun("batch"), Event::FleetAnswered(machine.clone()), joined, Event::NodeReady];
    world.store(&after(&claim, &events, FixedClock::new().now()));
    machine
}

fn conditions(minute: usize) -> Value {
    let heartbeat = format!("2027-01-15T{:02}:{:02}:00Z", 8 + minute / 60, minute % 60);
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("KubeletHas{kind}"), "message": format!("kubelet has looked at {kind}"),
               "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2027-01-14T08:00:00Z"})
    };
    json!([
        condition("MemoryPressure", "False"),
        condition("DiskPressure", "False"),
        condition("PIDPressure", "False"),
        condition("Ready", "True")
    ])
}

fn pod(number: usize) -> Value {
    let node = name_of(number / PODS_PER_NODE);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{number}"), "namespace": "default", "labels": {"app": "web"}},
           "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "2"}}}]}})
}

fn api_of(client: &kube::Client, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    if kind.kind == "Node" { Api::all_with(client.clone(), &kind) } else { Api::default_namespaced_with(client.clone(), &kind) }
}

/// The cluster, and what writes to it.
struct Stage {
    plane: ControlPlane,
    client: kube::Client,
}

impl Stage {
    async fn start(world: &TestWorld) -> Option<Self> {
        let plane = plane_with("")?;
        install_crds(&plane);
        apply(&plane, POOL_AND_CLASS);
        // Which a controller makes otherwise.
        let _ = kubectl(&plane, &["create", "serviceaccount", "default"]);
        let pool = kubectl(&plane, &["get", "nodepool", "default", "-o", "jsonpath={.metadata.uid}"]);
        let client = client(&plane, plane.token()).await;
        let (nodes, pods) = (api_of(&client, "Node"), api_of(&client, "Pod"));
        let create = async |api: &Api<DynamicObject>, objects: Vec<Value>| {
            let objects: Vec<DynamicObject> = objects.into_iter().map(|object| serde_json::from_value(object).unwrap()).collect();
            let created = concurrently(objects.iter().map(|object| async { api.create(&PostParams::default(), object).await })).await;
            created.into_iter().for_each(|created| drop(created.unwrap()));
        };
        create(&nodes, (0..NODES).map(|number| node(number, &claimed(world, &pool, number))).collect()).await;
        create(&pods, (0..NODES * PODS_PER_NODE).map(pod).collect()).await;
        Some(Self { plane, client })
    }

    /// The heartbeats of one minute.
    async fn beat(&self, minute: usize) {
        let nodes = api_of(&self.client, "Node");
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions(minute)}}));
        let due = (0..NODES).filter(|number| number % HEARTBEAT_MINUTES == minute % HEARTBEAT_MINUTES);
        let names: Vec<String> = due.map(name_of).collect();
        let written = concurrently(names.iter().map(|name| async { nodes.patch_status(name, &PatchParams::default(), &patch).await }));
        written.await.into_iter().for_each(|written| drop(written.unwrap()));
    }
}

/// The execution environments of the functions that have a tick.
struct Functions {
    clusters: Vec<(Function, Clusters<TestAccess>)>,
    cloud: SimPorts,
    name: ClusterName,
}

impl Functions {
    /// The ticks of a minute.
    async fn tick(&self, minute: usize) {
        let begun = FixedClock::new();
        let clock = FixedClock { now: begun.now.checked_add(SignedDuration::from_mins(minute as i64)).unwrap(), ..begun };
        for (function, clusters) in &self.clusters {
            if *function == Function::Refresh && !minute.is_multiple_of(REFRESH_MINUTES) {
                continue;
            }
            let cluster = &clusters.with_clock(Arc::new(clock));
            let cloud = &self.cloud;
            let ports = Adapters { store: cloud, cloud, cluster, queues: cloud, clock: &clock };
            let (settings, name) = (&Settings::default(), &self.name);
            let report = match function {
                Function::Consolidate => whittle_consolidate::handle(ports, settings, name).await,
                Function::Schedule => whittle_schedule::handle(ports, settings, name).await,
                Function::Refresh => whittle_refresh::handle(ports, settings, name).await,
                _ => whittle_sweep::tick(ports, settings, &whittle_sweep::Looks::new(), name).await,
            };
            let report = report.expect("nothing is in its way");
            if *function == Function::Consolidate && (SETTLED..KEPT_UNTIL).contains(&minute) {
                assert_eq!(report.counted("rested"), 1, "minute {minute}: {report}");
            }
        }
    }

    /// Whole lists so far, of each function.
    fn whole_lists(&self) -> Vec<u64> {
        self.clusters.iter().map(|(_, clusters)| clusters.lists_read().whole).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_cluster_of_a_thousand_nodes_costs_little() {
    let name = ClusterName::new("test");
    let world = TestWorld::with_functions("test", FixedClock::new().now(), Arc::new(NoFunctions));
    let Some(stage) = Stage::start(&world).await else { return };
    let wire = Wire::default();
    let address = wire.to(stage.plane.server()).await;
    let functions = [Function::Schedule, Function::Consolidate, Function::Sweep, Function::Refresh];
    assert!(functions.iter().all(|function| groups().contains_key(function)));
    let clusters = functions.map(|function| (function, clusters_at(&stage.plane, &address, &stage.plane.token_of(function.name()))));
    let cloud = world.ports();
    let functions = Functions { clusters: clusters.into(), cloud, name };
    let minutes = std::env::var("WHITTLE_QUIET_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(MINUTES);
    // What is new to the first ticks is written by them.
    for minute in 0..SETTLED {
        functions.tick(minute).await;
    }
    let (lists, bytes) = (functions.whole_lists(), wire.bytes());
    println!("whole lists by function: {lists:?}; {bytes} bytes in the first minutes");
    let mut per_minute = u64::MAX;
    // A server that is late on a busy machine has a function look anew at all Nodes. What costs too much twice is not that.
    for stretch in 0..2 {
        let (first, begun) = (SETTLED + stretch * minutes, wire.bytes());
        let mut before = begun;
        for minute in first..first + minutes {
            stage.beat(minute).await;
            functions.tick(minute).await;
            println!("minute {minute}: {} bytes", wire.bytes() - before);
            before = wire.bytes();
        }
        per_minute = (wire.bytes() - begun) / minutes as u64;
        println!("{per_minute} bytes a minute; whole lists by function: {:?}", functions.whole_lists());
        if first + minutes <= KEPT_UNTIL {
            assert_eq!(functions.whole_lists(), lists, "nothing is listed again within two hours");
        }
        if per_minute <= PER_MINUTE_MAX {
            break;
        }
    }
    assert!(per_minute <= PER_MINUTE_MAX, "{per_minute}");
}
