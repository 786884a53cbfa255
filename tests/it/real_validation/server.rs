//! What a real API server answers.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use whittle_backends::control_plane::ControlPlane;

/// Requests under way at a time.
const CONCURRENCY: usize = 16;
/// Requests for each run of curl, which keeps the connection.
const BATCH: usize = 2000;

/// A write of one object.
pub(super) struct Request {
    pub(super) method: &'static str,
    /// Below `/apis`.
    pub(super) path: String,
    pub(super) body: String,
}

/// What became of a request, or what we say would become of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) accepted: bool,
    /// The fields named by errors. `None` if the answer names none, because the object could not be decoded.
    pub(super) fields: Option<BTreeSet<String>>,
    /// The spec as it is stored.
    pub(super) spec: Value,
    pub(super) message: String,
}

/// Sends all requests and returns the answers in their order.
pub(super) fn send(cluster: &ControlPlane, requests: &[Request]) -> Vec<Value> {
    requests.chunks(BATCH).flat_map(|batch| send_batch(cluster, batch)).collect()
}

fn send_batch(cluster: &ControlPlane, requests: &[Request]) -> Vec<Value> {
    let folder = cluster.kubeconfig().with_file_name("validation");
    std::fs::create_dir_all(&folder).expect("the cluster's folder can be written");
    let mut config = String::new();
    for (position, request) in requests.iter().enumerate() {
        let (body, answer) = (folder.join(format!("{position}.body")), folder.join(format!("{position}.answer")));
        std::fs::write(&body, &request.body).expect("the cluster's folder can be written");
        let separator = if position == 0 { "" } else { "next\n" };
        write!(
            config,
            "{separator}request = \"{}\"\nurl = \"{}/apis/{}\"\ncacert = \"{}\"\nheader = \"Authorization: Bearer {}\"\n\
             header = \"Content-Type: application/json\"\ndata-binary = \"@{}\"\noutput = \"{}\"\nsilent\n",
            request.method,
            cluster.server(),
            request.path,
            cluster.ca().display(),
            cluster.token(),
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

/// The verdict of an answer. Only refusals for what the object says count: anything else is a fault of the test.
pub(super) fn outcome(answer: &Value) -> Outcome {
    if answer["kind"] != "Status" {
        return Outcome { accepted: true, fields: Some(BTreeSet::new()), spec: answer["spec"].clone(), message: String::new() };
    }
    let message = answer["message"].as_str().unwrap_or_default().to_owned();
    let fields = if message.contains("strict decoding error") {
        Some(message.split("unknown field \"").skip(1).filter_map(|rest| Some(plain(rest.split('"').next()?))).collect())
    } else if answer["reason"] == "Invalid" {
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        Some(causes.filter_map(named_field).collect())
    } else {
        None
    };
    Outcome { accepted: false, fields, spec: Value::Null, message }
}

/// The field of a cause; that of a number beyond 32 bits stands in the message alone.
fn named_field(cause: &Value) -> Option<String> {
    let beyond = cause["message"].as_str().and_then(|message| message.split_once("must be of type integer with format int32 in "));
    let field = beyond.map_or_else(|| cause["field"].as_str().unwrap_or_default(), |(_, field)| field.trim_end_matches('"'));
    (!field.is_empty() && field != "<nil>").then(|| plain(field))
}

/// A manifest as kubectl sends it: it writes whole numbers as such, `1.0` too.
pub(super) fn encoded(manifest: &Value) -> String {
    let mut manifest = manifest.clone();
    write_whole_numbers(&mut manifest);
    manifest.to_string()
}

fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(write_whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(whole) = whole {
                *value = (whole as i64).into();
            }
        }
        _ => {}
    }
}

/// A path without the marks in which the server's paths and ours differ.
pub(super) fn plain(path: &str) -> String {
    path.trim_start_matches('.').replace('[', ".").replace(']', "")
}
