//! The etcd of a control plane: what is written there, the API server takes for stored, and tells its watchers at once. A server's own
//! requests are slower than the changes of a large cluster.

use crate::control_plane::ControlPlane;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A client of the etcd.
pub struct Etcd(kube::Client);

impl Etcd {
    /// The one of this control plane.
    ///
    /// # Panics
    ///
    /// When its address is none.
    #[must_use]
    pub fn of(control_plane: &ControlPlane) -> Self {
        let config = kube::Config::new(control_plane.etcd().parse().expect("it is an address"));
        Self(kube::Client::try_from(config).expect("it has a client"))
    }

    /// Writes objects in one transaction of at most 128, each under its key as in `/registry/pods/default/web`. All get one version, where
    /// an API server gives each its own.
    ///
    /// # Panics
    ///
    /// When etcd refuses it.
    pub async fn put(&self, objects: impl IntoIterator<Item = (String, Value)>) {
        let put = |(key, value): (String, Value)| json!({"requestPut": {"key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string())}});
        let body = json!({"success": objects.into_iter().map(put).collect::<Vec<Value>>()});
        let request = http::Request::post("/v3/kv/txn").body(body.to_string().into_bytes()).expect("it is a request");
        let answer: Value = self.0.request(request).await.expect("etcd takes it");
        assert_eq!(answer["succeeded"], true, "{answer}");
    }
}
