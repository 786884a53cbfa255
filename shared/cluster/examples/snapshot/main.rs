//! The cost of a snapshot, cold and warm: the adapter reads 5,000 nodes and 100,000 pods from a server on loopback, a process of its own.
//!
//! `cargo run --release -p whittle-cluster --example snapshot [NODES PODS]` prints wall and processor time, the peak of the process's
//! memory, and what is sent.

mod objects;
mod server;

use base64::Engine;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_cluster::Clusters;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, CloudError, ClusterAccess, ClusterReader, Deadline, Scope};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Any valid certificate: the server speaks plain HTTP and never presents it.
const CERTIFICATE: &str = include_str!("../../fixtures/ca.pem");
/// Linux counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

struct Loopback(String);

impl ClusterAccess for Loopback {
    async fn endpoint(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        Ok(ClusterInfo {
            name: cluster.clone(),
            endpoint: self.0.clone(),
            certificate_authority: base64::engine::general_purpose::STANDARD.encode(CERTIFICATE),
            ..ClusterInfo::default()
        })
    }

    async fn bearer_token(&self, _: &ClusterName) -> Result<String, CloudError> {
        Ok("token".to_owned())
    }
}

struct FiveMinutes(Timestamp);

impl Clock for FiveMinutes {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn deadline(&self) -> Deadline {
        Deadline(self.0 + SignedDuration::from_mins(5))
    }
    fn unique(&self) -> String {
        String::new()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    if arguments.first().is_some_and(|argument| argument == "serve") {
        return server::serve(number(1, 0), number(2, 0));
    }
    let (nodes, pods) = (number(0, 5_000), number(1, 100_000));
    let program = std::env::current_exe().expect("this program has a path");
    let mut server = Command::new(program)
        .args(["serve", &nodes.to_string(), &pods.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts once more");
    let mut lines = BufReader::new(server.stdout.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("the server starts").expect("the server prints text");
    let (endpoint, sent) = (line(), line());

    let clock = Arc::new(FiveMinutes(Timestamp::now()));
    let clusters = Clusters::new(Loopback(endpoint), ConvertOptions::new(Purpose::OnRead), clock);
    println!("{nodes} nodes, {pods} pods: {sent}");
    let look = async || {
        let (begun, processor_before) = (Instant::now(), processor_seconds());
        let objects = clusters.read(&ClusterName::new("bench"), Scope::All, None).await.expect("the server answers");
        let (wall, processor) = (begun.elapsed().as_secs_f64(), processor_seconds() - processor_before);
        assert_eq!((objects.nodes.len(), objects.pods.len(), objects.unreadable.len()), (nodes, pods, 0));
        let version = (objects::VERSION + 1).to_string();
        (wall, processor, objects.pods.iter().any(|pod| pod.metadata.resource_version == version))
    };
    let mib = |key| memory_kib(key) as f64 / 1024.0;
    let (wall, processor, _) = look().await;
    println!("cold: {processor:.2} s of one core, {wall:.2} s in all; peak {:.0} MiB, then {:.0} MiB", mib("VmHWM:"), mib("VmRSS:"));
    let (wall, processor, is_new) = look().await;
    assert!(is_new, "the change was told");
    let changes = server::CHANGES;
    println!("warm, {changes} pods changed: {processor:.2} s of one core, {wall:.2} s in all; {:.0} MiB", mib("VmRSS:"));
    server.kill().expect("the server runs");
    server.wait().expect("the server ends");
}

/// User and system time of this process.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = stat.rsplit(')').next().expect("there is text");
    let ticks = |at: usize| after_name.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

fn memory_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux says it");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}
