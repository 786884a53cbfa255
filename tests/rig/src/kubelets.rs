//! The machines of the simulated EC2 as Nodes: their kubelets register, with what the user data say; once a machine has ended the
//! cloud's node controller removes its Node. kwok keeps them ready in between, and runs their pods.

use crate::account::AccessEntries;
use crate::catalog::Sizes;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use whittle_api::labels;
use whittle_ec2::instance::InstanceState;
use whittle_fake_aws::server::Shared;
use whittle_sim::cluster::JoiningMachine;
use whittle_units::InstanceId;

const LOOK_EVERY: Duration = Duration::from_millis(20);
const HOST: &str = "kubernetes.io/hostname";

/// Lets machines join, where an access entry lets nodes in, and leave as long as the rig runs. Types that `sizes` knows have what it says.
pub(crate) async fn run(region: Shared, sizes: Sizes, client: Client, entries: AccessEntries) {
    let mut interval = tokio::time::interval(LOOK_EVERY);
    // Names of Nodes by machine.
    let mut nodes: BTreeMap<InstanceId, String> = BTreeMap::new();
    loop {
        interval.tick().await;
        let (joined, ended) = region.look(|lone| {
            let alive = |id: &InstanceId| lone.region.machines.get(id).is_some_and(|one| one.instance.state != InstanceState::Terminated);
            let ended: Vec<InstanceId> = nodes.keys().filter(|id| !alive(id)).cloned().collect();
            // A kubelet that is not let in tries again.
            let joined = if entries.let_nodes_join() { std::mem::take(&mut lone.joined) } else { Vec::new() };
            (joined, ended)
        });
        for mut machine in joined {
            if let Some((capacity, allocatable)) = sizes.get(&machine.instance_type) {
                (machine.capacity, machine.allocatable) = (capacity.clone(), allocatable.clone());
            }
            nodes.insert(InstanceId::new(machine.instance_id.clone()), machine.node_name.clone());
            let client = client.clone();
            tokio::spawn(async move {
                let node = node(&machine);
                send(&client, Method::POST, "/api/v1/nodes", &node).await;
            });
        }
        for id in ended {
            let Some(name) = nodes.remove(&id) else { continue };
            let client = client.clone();
            tokio::spawn(async move { send(&client, Method::DELETE, &format!("/api/v1/nodes/{name}"), &json!({})).await });
        }
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) {
    let request =
        Request::builder().method(method.clone()).uri(path).header("content-type", "application/json").body(body.to_string().into_bytes());
    let Ok(request) = request else { return };
    match client.request::<Value>(request).await {
        Ok(_) => {}
        // The Node is there already, or is gone already.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
        Err(error) => eprintln!("{method} {path}: {error}"),
    }
}

/// The Node as the kubelet of a machine registers it.
fn node(machine: &JoiningMachine) -> Value {
    let mut known: BTreeMap<&str, &str> = BTreeMap::from([
        (HOST, machine.node_name.as_str()),
        (labels::INSTANCE_TYPE, &machine.instance_type),
        (labels::REGION, &machine.region),
        (labels::ZONE, &machine.zone),
        (labels::ZONE_ID, &machine.zone_id),
        (labels::ARCH, &machine.architecture),
        (labels::OS, &machine.operating_system),
    ]);
    known.extend(machine.windows_build.as_deref().map(|build| (labels::WINDOWS_BUILD, build)));
    known.extend(machine.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.node_name, "labels": known},
        "spec": {"providerID": machine.provider_id.as_str(), "taints": machine.taints},
        "status": {"capacity": machine.capacity, "allocatable": machine.allocatable},
    })
}
