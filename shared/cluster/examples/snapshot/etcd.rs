//! Objects of a real API server, written into its etcd: 100,000 pods take seconds there, and minutes through the server.

use crate::{objects, server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Operations of one transaction; etcd takes 128, and a request of 1.5 MiB.
const WRITES: usize = 64;

/// The etcd at an address, as in `http://127.0.0.1:2379`.
struct Etcd(kube::Client);

impl Etcd {
    fn new(address: &str) -> Self {
        let config = kube::Config::new(address.parse().expect("it is an address"));
        Self(kube::Client::try_from(config).expect("it has a client"))
    }

    /// Writes these objects in one transaction.
    async fn put(&self, objects: &[(String, Vec<u8>)]) {
        let put = |(key, value): &(String, Vec<u8>)| json!({"requestPut": {"key": STANDARD.encode(key), "value": STANDARD.encode(value)}});
        let body = json!({"success": objects.iter().map(put).collect::<Vec<Value>>()}).to_string();
        let request = http::Request::post("/v3/kv/txn").body(body.into_bytes()).expect("it is a request");
        let answer: Value = self.0.request(request).await.expect("etcd takes it");
        assert_eq!(answer["succeeded"], true, "{answer}");
    }

    async fn put_all(&self, objects: impl Iterator<Item = (String, Vec<u8>)>, at_once: usize) {
        let mut waiting = Vec::new();
        for object in objects {
            waiting.push(object);
            if waiting.len() == at_once {
                self.put(&waiting).await;
                waiting.clear();
            }
        }
        if !waiting.is_empty() {
            self.put(&waiting).await;
        }
    }
}

fn pod(number: usize, team: &str) -> (String, Vec<u8>) {
    let (namespace, name) = objects::pod_name(number);
    (format!("/registry/pods/{namespace}/{name}"), objects::stored("Pod", &objects::pod_with(number, team)))
}

/// Writes the nodes and the pods.
pub(crate) async fn fill(address: &str, nodes: usize, pods: usize) {
    let etcd = Etcd::new(address);
    let node = |number| (format!("/registry/minions/{}", objects::node_name(number)), objects::stored("Node", &objects::node(number)));
    etcd.put_all((0..nodes).map(node), WRITES).await;
    etcd.put_all((0..pods).map(|number| pod(number, "payments")), WRITES).await;
    // What one transaction writes has one version, of which the API server may have seen a part. The last of each kind has one of its own.
    etcd.put_all(nodes.checked_sub(1).map(node).into_iter(), 1).await;
    etcd.put_all(pods.checked_sub(1).map(|last| pod(last, "payments")).into_iter(), 1).await;
}

/// Changes a label of the first pods, as many as the server of this example changes, each by itself as an API server does.
pub(crate) async fn change(address: &str, pods: usize) {
    Etcd::new(address).put_all((0..server::CHANGES.min(pods)).map(|number| pod(number, "orders")), 1).await;
}
