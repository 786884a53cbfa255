//! The same objects, listed by a real API server as JSON and as protobuf, are equal for us.

use crate::cluster_api::Stage;
use serde::de::DeserializeOwned;
use serde_json::Value;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Kind, Node, Pod};
use whittle_ports::{ClusterReader, Scope};
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::{apply, kubectl};

/// Reads of both encodings until nothing changed between them.
const ATTEMPTS_MAX: usize = 20;

/// What pods may refer to.
const CLASSES: &str = "
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 0, preemptionPolicy: Never}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: boxed}, handler: boxed, overhead: {podFixed: {cpu: 250m, memory: 120Mi}}}
";

/// Every field of a pod that we read. It has a gate, and is never bound.
const RICH_POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  generateName: rich-
  name: rich
  namespace: default
  labels: {app: rich, tier: "", free: "yes"}
  annotations: {karpenter.sh/do-not-disrupt: "true", note: "ä\nö \u2028 😀", empty: ""}
  finalizers: [example.com/held, example.com/held-too]
  ownerReferences:
  - {apiVersion: apps/v1, kind: ReplicaSet, name: owner, uid: 11111111-1111-1111-1111-111111111111, controller: false, blockOwnerDeletion: true}
  - {apiVersion: batch/v1, kind: Job, name: other, uid: 22222222-2222-2222-2222-222222222222, controller: true}
spec:
  schedulingGates: [{name: example.com/first}, {name: example.com/second}]
  schedulerName: custom
  priorityClassName: urgent
  runtimeClassName: boxed
  restartPolicy: Never
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  nodeSelector: {disk: ssd, zone: ""}
  resources: {requests: {cpu: "3", memory: 2Gi}, limits: {cpu: "4", memory: 4Gi}}
  resourceClaims: [{name: gpu, resourceClaimName: a-claim}, {name: nic, resourceClaimTemplateName: a-template}]
  tolerations:
  - {operator: Exists}
  - {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 0}
  - {key: c, operator: Exists, effect: NoSchedule}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: cpu, operator: Gt, values: ["3"]}, {key: arch, operator: In, values: [arm64, amd64]}, {key: spot, operator: DoesNotExist}]
        - matchFields: [{key: metadata.name, operator: In, values: [n1]}]
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 7, preference: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: zone
        labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}
        namespaces: [default, other]
        namespaceSelector: {}
        matchLabelKeys: [pod-template-hash]
        mismatchLabelKeys: [team]
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: host, labelSelector: {}}}
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: host, namespaceSelector: {matchLabels: {team: a}}}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: zone
    whenUnsatisfiable: DoNotSchedule
    minDomains: 3
    nodeAffinityPolicy: Ignore
    nodeTaintsPolicy: Honor
    matchLabelKeys: [pod-template-hash]
    labelSelector: {matchLabels: {app: rich}}
  - {maxSkew: 5, topologyKey: host, whenUnsatisfiable: ScheduleAnyway}
  initContainers:
  - {name: sidecar, image: fake, restartPolicy: Always, resources: {requests: {cpu: 100m}}, startupProbe: {tcpSocket: {port: 80}}}
  - {name: setup, image: fake}
  containers:
  - name: app
    image: fake
    command: [run]
    env: [{name: A, value: b}, {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    ports: [{containerPort: 80, protocol: UDP}, {containerPort: 8443, hostPort: 8443, hostIP: 127.0.0.1, name: tls}]
    resources:
      requests: {cpu: "0.1", memory: 128974848, ephemeral-storage: 1e3, example.com/device: 2}
      limits: {memory: 1.5Gi, example.com/device: 2}
      claims: [{name: gpu, request: first}, {name: nic}]
    livenessProbe: {httpGet: {path: /, port: tls}}
    readinessProbe: {exec: {command: [x]}}
    volumeMounts: [{name: claim, mountPath: /a}]
  - {name: plain, image: fake}
  ephemeralContainers: []
  volumes:
  - {name: claim, persistentVolumeClaim: {claimName: data, readOnly: true}}
  - {name: typed, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], storageClassName: gp3, resources: {requests: {storage: 1Gi}}}}}}
  - {name: untyped, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}}}}
  - {name: default-class, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
  - {name: host, hostPath: {path: /var}}
  - {name: csi, csi: {driver: example.com, volumeAttributes: {a: b}}}
  - {name: ebs, awsElasticBlockStore: {volumeID: vol-1}}
  - {name: config, configMap: {name: c, items: [{key: a, path: b}]}}
  - {name: secret, secret: {secretName: s, optional: true}}
  - {name: projected, projected: {sources: [{serviceAccountToken: {path: t}}]}}
  - {name: down, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}
"#;

const RICH_STATUS: &str = r#"{"status": {
    "phase": "Pending", "startTime": "2026-11-25T10:00:00Z", "nominatedNodeName": "n9",
    "allocatedResources": {"cpu": "3", "memory": "2Gi"}, "resources": {"requests": {"cpu": "2500m"}, "limits": {"memory": "4Gi"}},
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes", "lastTransitionTime": "2026-11-25T10:00:01Z"},
        {"type": "example.com/Own", "status": "Unknown"}],
    "containerStatuses": [
        {"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 3,
         "allocatedResources": {"cpu": "200m"}, "resources": {"requests": {"cpu": "150m"}, "limits": {"memory": "1Gi"}}},
        {"name": "plain", "image": "", "imageID": "", "ready": false, "restartCount": 0, "resources": {}}],
    "initContainerStatuses": [{"name": "sidecar", "image": "", "imageID": "", "ready": true, "restartCount": 0, "allocatedResources": {"cpu": "1"}}]
}}"#;

/// Next to nothing, and a gate.
const BARE_POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: bare, namespace: default}, spec: {schedulingGates: [{name: a}], containers: [{name: c, image: fake}]}}";

/// Its conditions are those that kwok reports.
const RICH_NODE: &str = r#"
apiVersion: v1
kind: Node
metadata:
  name: rich
  labels: {kubernetes.io/arch: arm64, karpenter.sh/nodepool: default}
  annotations: {karpenter.sh/do-not-disrupt: "true"}
  finalizers: [karpenter.sh/termination]
  ownerReferences: [{apiVersion: karpenter.sh/v1, kind: NodeClaim, name: c, uid: 33333333-3333-3333-3333-333333333333, blockOwnerDeletion: true}]
spec:
  providerID: aws:///us-west-2a/i-0rich
  unschedulable: true
  taints:
  - {key: dedicated, value: gpu, effect: NoSchedule}
  - {key: karpenter.sh/disrupted, effect: PreferNoSchedule}
"#;

const RICH_NODE_STATUS: &str = r#"{"status": {
    "capacity": {"cpu": "8", "memory": "32986188Ki", "pods": "58", "nvidia.com/gpu": "0", "ephemeral-storage": "20959212Ki"},
    "allocatable": {"cpu": "7910m", "memory": "31482956Ki", "pods": "58", "vpc.amazonaws.com/pod-eni": "54"},
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down",
         "lastHeartbeatTime": "2026-11-25T10:00:05Z", "lastTransitionTime": "2026-11-25T10:00:00Z"},
        {"type": "NetworkUnavailable", "status": "Unknown", "lastHeartbeatTime": null, "lastTransitionTime": null}],
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    "images": [{"names": ["a@sha256:1", "a:1"], "sizeBytes": 4711}],
    "volumesInUse": ["kubernetes.io/csi/ebs^vol-1"],
    "volumesAttached": [{"name": "kubernetes.io/csi/ebs^vol-1", "devicePath": ""}, {"name": "b", "devicePath": "/dev/xvdb"}],
    "nodeInfo": {"machineID": "m", "systemUUID": "u", "bootID": "b", "kernelVersion": "6", "osImage": "al2023", "containerRuntimeVersion": "c",
        "kubeletVersion": "v1.37.1-eks", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "arm64"}
}}"#;

pub(crate) async fn json_and_protobuf_are_read_alike(stage: &Stage) {
    let plane = &stage.plane;
    for manifest in [CLASSES, RICH_POD, BARE_POD, RICH_NODE] {
        apply(plane, manifest);
    }
    let _ = kubectl(plane, &["patch", "pod", "rich", "--subresource=status", "--type=merge", "-p", RICH_STATUS]);
    let _ = kubectl(plane, &["patch", "node", "rich", "--subresource=status", "--type=merge", "-p", RICH_NODE_STATUS]);
    let _ = kubectl(plane, &["delete", "pod", "rich", "--wait=false"]);
    let objects = read_in_both(stage).await;
    let pod = objects.pods.iter().find(|pod| pod.metadata.name == "rich").expect("it was applied");
    assert!(pod.metadata.is_deleting() && pod.metadata.generation.is_some(), "{:?}", pod.metadata);
    assert_eq!((pod.spec.priority, pod.spec.termination_grace_period_seconds), (Some(0), Some(0)));
    assert_eq!(pod.spec.overhead.get("cpu").to_string(), "250m");
    for node in ["pod/rich", "pod/bare", "node/rich"] {
        let _ = kubectl(plane, &["patch", node, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
        let _ = kubectl(plane, &["delete", node, "--ignore-not-found", "--grace-period=0", "--force"]);
    }
}

/// What the adapter reads, which is protobuf, after it was found to be what JSON says.
async fn read_in_both(stage: &Stage) -> ClusterObjects {
    for _ in 0..ATTEMPTS_MAX {
        let before = (from_json::<Pod>(&stage.plane, "pods"), from_json::<Node>(&stage.plane, "nodes"));
        let mut objects = stage.clusters.read(&stage.name, Scope::All, None).await.expect("the API server answers");
        let after = (from_json::<Pod>(&stage.plane, "pods"), from_json::<Node>(&stage.plane, "nodes"));
        if before != after {
            continue;
        }
        objects.sort();
        assert_eq!((objects.pods.len(), objects.nodes.len()), (before.0.len(), before.1.len()));
        objects.pods.iter().zip(&before.0).for_each(|(protobuf, json)| assert_eq!(protobuf, json));
        objects.nodes.iter().zip(&before.1).for_each(|(protobuf, json)| assert_eq!(protobuf, json));
        return objects;
    }
    panic!("the cluster changed during each of {ATTEMPTS_MAX} reads");
}

/// The objects of a kind as JSON, by namespace and name.
fn from_json<K: Kind + DeserializeOwned>(plane: &ControlPlane, plural: &str) -> Vec<K> {
    let text = kubectl(plane, &["get", "--raw", &format!("/api/v1/{plural}")]);
    let mut list: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
    let mut objects: Vec<K> = serde_json::from_value(list["items"].take()).expect("objects that we can read");
    objects.sort_by_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
    objects
}
