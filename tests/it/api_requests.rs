//! Writes to a real API server, many over few connections.

use serde_json::Value;
use std::fmt::Write;
use std::process::Command;
use whittle_backends::control_plane::ControlPlane;

/// Requests under way at a time.
const CONCURRENCY: usize = 16;
/// Requests for each run of curl, which keeps the connection.
const BATCH: usize = 2000;

/// A write of one object.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Below `/apis`.
    pub(crate) path: String,
    /// Of the body: `application/json`.
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// Sends all requests and returns the answers in their order.
pub(crate) fn send(cluster: &ControlPlane, requests: &[Request]) -> Vec<Value> {
    requests.chunks(BATCH).flat_map(|batch| send_batch(cluster, batch)).collect()
}

fn send_batch(cluster: &ControlPlane, requests: &[Request]) -> Vec<Value> {
    let folder = cluster.kubeconfig().with_file_name("requests");
    std::fs::create_dir_all(&folder).expect("the cluster's folder can be written");
    let mut config = String::new();
    for (position, request) in requests.iter().enumerate() {
        let (body, answer) = (folder.join(format!("{position}.body")), folder.join(format!("{position}.answer")));
        std::fs::write(&body, &request.body).expect("the cluster's folder can be written");
        let separator = if position == 0 { "" } else { "next\n" };
        write!(
            config,
            "{separator}request = \"{}\"\nurl = \"{}/apis/{}\"\ncacert = \"{}\"\nheader = \"Authorization: Bearer {}\"\n\
             header = \"Content-Type: {}\"\nheader = \"Accept: application/json\"\ndata-binary = \"@{}\"\noutput = \"{}\"\nsilent\n",
            request.method,
            cluster.server(),
            request.path,
            cluster.ca().display(),
            cluster.token(),
            request.content_type,
            body.display(),
            answer.display(),
        )
        .expect("a string takes everything");
    }
    let file = folder.join("curl");
    std::fs::write(&file, config).expect("the cluster's folder can be written");
    let status = Command::new("curl")
        .args(["--parallel", "--parallel-max", &CONCURRENCY.to_string(), "--no-progress-meter", "-K"])
        .arg(&file)
        .status()
        .expect("curl is installed");
    assert!(status.success(), "curl: {status}");
    let answer = |position: usize| std::fs::read(folder.join(format!("{position}.answer"))).expect("curl wrote the answer");
    let answers =
        (0..requests.len()).map(|position| serde_json::from_slice(&answer(position)).expect("the server answers in JSON")).collect();
    std::fs::remove_dir_all(&folder).expect("the cluster's folder can be written");
    answers
}
