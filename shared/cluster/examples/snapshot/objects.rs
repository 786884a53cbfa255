//! Nodes and pods in protobuf, as an API server sends them: mostly fields that nobody here reads.

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn entries(self, field: u64, entries: &[(&str, &str)]) -> Self {
        entries.iter().fold(self, |all, (key, value)| all.message(field, texts(&[(1, key), (2, value)])))
    }

    fn amounts(self, field: u64, amounts: &[(&str, &str)]) -> Self {
        let entry = |(key, value): &(&str, &str)| texts(&[(1, key)]).message(2, texts(&[(1, value)]));
        amounts.iter().fold(self, |all, amount| all.message(field, entry(amount)))
    }

    fn messages(self, field: u64, messages: impl IntoIterator<Item = Self>) -> Self {
        messages.into_iter().fold(self, |all, message| all.message(field, message))
    }
}

fn texts(fields: &[(u64, &str)]) -> Message {
    fields.iter().fold(Message::default(), |message, (field, text)| message.text(*field, text))
}

fn time(seconds: usize) -> Message {
    Message::default().number(1, 1_764_000_000 + seconds as u64).number(2, 0)
}

/// The version of all lists.
pub(crate) const VERSION: usize = 123_456_789;

/// A list in its envelope.
pub(crate) fn list(kind: &str, objects: impl Iterator<Item = Vec<u8>>, token: &str) -> Vec<u8> {
    let metadata = texts(&[(1, ""), (2, &VERSION.to_string()), (3, token)]);
    let list = objects.fold(Message::default().message(1, metadata), |list, object| list.bytes(2, &object));
    let envelope = Message::default().message(1, texts(&[(1, "v1"), (2, kind)])).message(2, list).text(3, "").text(4, "");
    [b"k8s\0", &envelope.0[..]].concat()
}

/// An object as an API server stores it.
pub(crate) fn stored(kind: &str, object: &[u8]) -> Vec<u8> {
    let envelope = Message::default().message(1, texts(&[(1, "v1"), (2, kind)])).bytes(2, object).text(3, "").text(4, "");
    [b"k8s\0", &envelope.0[..]].concat()
}

fn metadata(name: &str, namespace: &str, number: usize) -> Message {
    let uid = format!("{number:08x}-1111-4222-8333-{number:012x}");
    texts(&[(1, name), (3, namespace), (4, ""), (5, &uid), (6, &(9_000_000 + number).to_string())]).number(7, 1).message(8, time(number))
}

/// Who wrote which field: about a quarter of an object.
fn managed_fields(number: usize) -> Vec<Message> {
    let fields = |name: &str| {
        let path = |part: usize| {
            format!(
                r#""f:terminationMessagePath{part}":{{}},"f:terminationMessagePolicy{part}":{{}},"f:resources{part}":{{".":{{}},"f:requests":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}}}}"#
            )
        };
        let paths = [0, 1, 2, 3].map(path).join(",");
        format!(r#"{{"f:spec":{{"f:containers":{{"k:{{\"name\":\"{name}\"}}":{{".":{{}},{paths}}}}}}}}}"#)
    };
    let entry = |manager: &str| {
        texts(&[(1, manager), (2, "Update"), (3, "v1")])
            .message(4, time(number))
            .text(6, "FieldsV1")
            .message(7, texts(&[(1, &fields(manager))]))
    };
    ["kube-controller-manager", "kubelet"].map(entry).into()
}

const POD_NAMES: [&str; 2] = ["app", "proxy"];

fn container(name: &str, number: usize) -> Message {
    let environment =
        (0..12).map(|index| texts(&[(1, &format!("SETTING_{index}")), (2, &format!("value-of-setting-{index}-{}", number % 1_000))]));
    let probe = || {
        let get = Message::default()
            .message(2, texts(&[(1, "/healthz")]).message(2, Message::default().number(1, 0).number(2, 8080).text(3, "")).text(4, "HTTP"));
        Message::default().message(1, get).number(2, 5).number(3, 1).number(4, 10).number(5, 1).number(6, 3)
    };
    let cpu = if name == "app" { ["100m", "250m", "500m", "1"][number / 1_000 % 4] } else { "50m" };
    let resources = Message::default().amounts(1, &[("memory", "512Mi")]).amounts(2, &[("cpu", cpu), ("memory", "512Mi")]);
    let port = texts(&[(1, "http")]).number(2, 0).number(3, 8080).text(4, "TCP").text(5, "");
    texts(&[(1, name), (2, &format!("registry.example.com/team/{name}:v1.{}", number / 1_000)), (5, "")])
        .message(6, port)
        .messages(7, environment)
        .message(8, resources)
        .message(9, texts(&[(1, "kube-api-access")]).number(2, 1).text(3, "/var/run/secrets/kubernetes.io/serviceaccount"))
        .message(10, probe())
        .message(11, probe())
        .text(13, "/dev/termination-log")
        .text(14, "IfNotPresent")
        .text(20, "File")
}

fn condition(kind: &str, status: &str, number: usize) -> Message {
    texts(&[(1, kind), (2, status)]).message(3, Message::default()).message(4, time(number)).text(5, "").text(6, "").number(7, 1)
}

/// The namespace and the name of a pod.
pub(crate) fn pod_name(number: usize) -> (String, String) {
    (format!("namespace-{:02}", number / 5_000), format!("{}-{number:05x}", owner_name(number)))
}

fn owner_name(number: usize) -> String {
    format!("app-{:03}-{:010x}", number / 1_000, 4_711 + number / 1_000)
}

/// A pod of one of a hundred Deployments, running on a node of its own kind.
pub(crate) fn pod(number: usize) -> Vec<u8> {
    pod_with(number, "payments")
}

/// The same with another value of a label.
pub(crate) fn pod_with(number: usize, team: &str) -> Vec<u8> {
    let app = format!("app-{:03}", number / 1_000);
    let owner_name = owner_name(number);
    let owner_uid = format!("{:08x}-9999-4222-8333-000000000000", number / 1_000);
    let owner = texts(&[(1, "ReplicaSet"), (3, &owner_name), (4, &owner_uid), (5, "apps/v1")]).number(6, 1).number(7, 1);
    let hash = format!("{:010x}", 4_711 + number / 1_000);
    let labels =
        [("app.kubernetes.io/name", app.as_str()), ("app.kubernetes.io/part-of", "shop"), ("pod-template-hash", &hash), ("team", team)];
    let annotations = [
        ("prometheus.io/scrape", "true"),
        ("prometheus.io/port", "8080"),
        ("kubectl.kubernetes.io/restartedAt", "2026-11-25T10:00:00Z"),
        ("checksum/config", "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"),
    ];
    let (namespace, name) = pod_name(number);
    let metadata = metadata(&name, &namespace, number)
        .text(2, &format!("{owner_name}-"))
        .entries(11, &labels)
        .entries(12, &annotations)
        .message(13, owner)
        .messages(17, managed_fields(number));
    let toleration = |key: &str| texts(&[(1, key), (2, "Exists"), (3, ""), (4, "NoExecute")]).number(5, 300);
    let selector = Message::default().entries(1, &labels[..1]);
    let spread = Message::default().number(1, 1).text(2, "topology.kubernetes.io/zone").text(3, "DoNotSchedule").message(4, selector);
    let spec = Message::default()
        .message(1, texts(&[(1, "kube-api-access")]).message(2, Message::default().message(26, Message::default().number(2, 420))))
        .messages(2, POD_NAMES.map(|name| container(name, number)))
        .text(3, "Always")
        .number(4, 30)
        .text(6, "ClusterFirst")
        .text(8, "default")
        .text(9, "default")
        .text(10, &node_name(number % 5_000))
        .number(11, 0)
        .number(12, 0)
        .number(13, 0)
        .message(14, Message::default())
        .text(16, "")
        .text(17, "")
        .text(19, "default-scheduler")
        .messages(22, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(toleration))
        .text(24, "")
        .number(25, 0)
        .text(29, "")
        .number(30, 1)
        .text(31, "PreemptLowerPriority")
        .message(33, spread);
    Message::default().message(1, metadata).message(2, spec).message(3, pod_status(number)).0
}

fn pod_status(number: usize) -> Message {
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let status = |name: &str| {
        let running = Message::default().message(2, Message::default().message(1, time(number)));
        let id = format!("containerd://{number:064x}");
        let image = format!("registry.example.com/team/{name}@sha256:{:064x}", number / 1_000);
        let amounts = [("cpu", if name == "app" { ["100m", "250m", "500m", "1"][number / 1_000 % 4] } else { "50m" }), ("memory", "512Mi")];
        texts(&[(1, name)])
            .message(2, running)
            .message(3, Message::default())
            .number(4, 1)
            .number(5, 0)
            .text(6, &image)
            .text(7, &image)
            .text(8, &id)
            .number(9, 1)
            .amounts(10, &amounts)
            .message(11, Message::default().amounts(1, &amounts[1..]).amounts(2, &amounts))
    };
    let address = format!("10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256);
    texts(&[(1, "Running")])
        .messages(2, conditions.map(|kind| condition(kind, "True", number)))
        .text(3, "")
        .text(4, "")
        .text(5, &address)
        .text(6, &address)
        .message(7, time(number))
        .messages(8, POD_NAMES.map(status))
        .text(9, "Burstable")
        .text(11, "")
        .message(12, texts(&[(1, &address)]))
        .text(14, "")
        .message(16, texts(&[(1, &address)]))
}

pub(crate) fn node_name(number: usize) -> String {
    format!("ip-10-{}-{}-{}.us-west-2.compute.internal", number / 65_536, number / 256 % 256, number % 256)
}

/// A node of eight processors.
pub(crate) fn node(number: usize) -> Vec<u8> {
    let name = node_name(number);
    let zone = ["us-west-2a", "us-west-2b", "us-west-2c"][number % 3];
    let labels = [
        ("kubernetes.io/arch", "arm64"),
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("karpenter.sh/capacity-type", "spot"),
        ("karpenter.sh/initialized", "true"),
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.sh/registered", "true"),
        ("node.kubernetes.io/instance-type", "m7g.2xlarge"),
        ("topology.k8s.aws/zone-id", "usw2-az1"),
        ("topology.kubernetes.io/region", "us-west-2"),
        ("topology.kubernetes.io/zone", zone),
    ];
    let metadata = metadata(&name, "", number)
        .entries(11, &labels)
        .entries(12, &[("node.alpha.kubernetes.io/ttl", "0"), ("volumes.kubernetes.io/controller-managed-attach-detach", "true")])
        .text(14, "karpenter.sh/termination")
        .messages(17, managed_fields(number));
    let spec = texts(&[(1, ""), (2, ""), (3, &format!("aws:///{zone}/i-{number:017x}"))]).number(4, 0);
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let images =
        (0..50).map(|index| texts(&[(1, &format!("registry.example.com/team/image-{index}@sha256:{index:064x}"))]).number(2, 4_711_000));
    let amounts = [("cpu", "7910m"), ("ephemeral-storage", "18242267924"), ("memory", "31482956Ki"), ("pods", "58")];
    let info = texts(&[
        (1, "m"),
        (2, "u"),
        (3, "b"),
        (4, "6.12"),
        (5, "Amazon Linux 2023"),
        (6, "containerd://2.1"),
        (7, "v1.37.1-eks"),
        (8, ""),
        (9, "linux"),
        (10, "arm64"),
    ]);
    let status = Message::default()
        .amounts(1, &amounts)
        .amounts(2, &amounts)
        .text(3, "")
        .messages(4, conditions.map(|kind| condition(kind, if kind == "Ready" { "True" } else { "False" }, number)))
        .message(7, info)
        .messages(8, images);
    Message::default().message(1, metadata).message(2, spec).message(3, status).0
}

/// The same pod as a watch sends it after a change, with about as much that nobody here reads.
pub(crate) fn pod_in_json(number: usize, version: usize) -> String {
    let (app, hash) = (format!("app-{:03}", number / 1_000), format!("{:010x}", 4_711 + number / 1_000));
    let owner = format!("{app}-{hash}");
    let managed = r#"{\"f:spec\":{\"f:containers\":{\"f:terminationMessagePath\":{}}}}"#.repeat(20);
    let environment: Vec<String> =
        (0..12).map(|index| format!(r#"{{"name":"SETTING_{index}","value":"value-of-setting-{index}"}}"#)).collect();
    let container = |name: &str| {
        format!(
            r#"{{"name":"{name}","image":"registry.example.com/team/{name}:v1","env":[{}],"resources":{{"requests":{{"cpu":"100m","memory":"512Mi"}}}}}}"#,
            environment.join(",")
        )
    };
    format!(
        r#"{{"metadata":{{"name":"{owner}-{number:05x}","namespace":"namespace-{:02}","uid":"{number:08x}-1111-4222-8333-{number:012x}","resourceVersion":"{version}","labels":{{"app.kubernetes.io/name":"{app}","pod-template-hash":"{hash}"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}","uid":"u","controller":true}}],"managedFields":[{{"manager":"kubelet","fieldsV1":"{managed}"}}]}},"spec":{{"nodeName":"ip-10-0-0-1.ec2.internal","containers":[{},{}]}},"status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"False"}}]}}}}"#,
        number / 5_000,
        container("app"),
        container("proxy")
    )
}
